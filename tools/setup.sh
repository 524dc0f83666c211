# Shared by ./quickstart, ./test and .ci/run (sourced by bash): messages, packages, the build.

say() { printf '\n== %s\n' "$*"; }
die() {
    printf '\n%s: %s\n' "${0##*/}" "$1" >&2
    shift
    for line in "$@"; do printf '  %s\n' "$line" >&2; done
    exit 1
}

# Debian's own Python: another one first in PATH may lack pip, pytest and NumPy.
PYTHON=/usr/bin/python3
[ -x "$PYTHON" ] || PYTHON=python3

PACKAGES=(cmake ninja-build gcc libc6-dev pkg-config libjansson-dev libpcre2-dev libutf8proc-dev libedit-dev
    libcmocka-dev python3 python3-pytest python3-numpy python3-pip)

# Installs those of the given Debian packages that are missing.
need_packages() {
    local missing=() p sudo=()
    if ! command -v dpkg-query >/dev/null; then
        echo "no dpkg here: trusting that these, or what they are called on this system, are installed: $*"
        return 0
    fi
    for p in "$@"; do
        case "$(dpkg-query -W -f '${Status}' "$p" 2>/dev/null || true)" in
        *"ok installed") ;;
        *) missing+=("$p") ;;
        esac
    done
    if [ ${#missing[@]} -eq 0 ]; then
        echo "all $# packages are installed"
        return 0
    fi
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || die "these packages are missing, and neither root nor sudo is here to install them:" \
            "${missing[*]}" "Have an administrator run: apt-get install -y ${missing[*]}" "Then run this again."
        sudo=(sudo)
    fi
    echo "installing: ${missing[*]}"
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq ||
        die "apt-get update failed (its message is above)." "Check the network, then run this again."
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" ||
        die "installing failed (apt's message is above)." "Install by hand, then run this again: ${missing[*]}"
}

# build PRESET [TARGET ...]: configures once, then builds what is out of date.
build() {
    local preset=$1
    shift
    mkdir -p build
    cmake --preset "$preset" >"build/configure-$preset.log" 2>&1 || {
        cat "build/configure-$preset.log" >&2
        die "configuring build/$preset failed (see above)." "rm -rf build/$preset and run this again if the folder is old."
    }
    ninja -C "build/$preset" "$@" || die "building build/$preset failed (the compiler's message is above)."
}
