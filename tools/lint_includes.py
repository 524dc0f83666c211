#!/usr/bin/env python3
"""Checks that includes point down only: cli > server > engine > model > {kv, kernels, quant, dist} > io > base, and
text > io; server, engine and cli may use text. kv, kernels and quant see each other's *_types.h, nothing more.

    tools/lint_includes.py [SOURCE_ROOT]

Prints each include that points up or sideways and exits with 1 when there is one.
"""
import pathlib
import re
import sys

BELOW = {
    "base": [],
    "io": ["base"],
    "text": ["io", "base"],
    "dist": ["io", "base"],
    "quant": ["io", "base"],
    "kernels": ["io", "base"],
    "kv": ["io", "base"],
    "model": ["kv", "kernels", "quant", "dist", "io", "base"],
    "engine": ["model", "text", "kv", "kernels", "quant", "dist", "io", "base"],
    "server": ["engine", "text", "model", "io", "base"],
    "cli": ["server", "engine", "text", "model", "kv", "kernels", "quant", "dist", "io", "base"],
}
SIBLINGS = {"kv", "kernels", "quant"}
# Reasons beside each; a new one needs a reason as well.
EXCEPTIONS = {
    ("kernels/cpu/exl3_ref.c", "quant/exl3.h"): "the reference kernel is defined by the format's own exact decoder",
}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)


def allowed(source, target):
    """Whether src/<source>/... may include src/<target>."""
    layer = target.split("/")[0]
    if layer == source or layer in BELOW[source]:
        return True
    return source in SIBLINGS and layer in SIBLINGS and target.endswith("_types.h")


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    bad, n = [], 0
    for path in sorted((root / "src").rglob("*.[ch]")):
        source = path.relative_to(root / "src").parts[0]
        if source not in BELOW:
            bad.append(f"{path}: src/{source} is not a layer")
            continue
        n += 1
        for target in INCLUDE.findall(path.read_text()):
            if not (root / "src" / target).is_file():
                if not (path.parent / target).is_file():
                    bad.append(f"{path}: \"{target}\" is not a file under src/")
            elif not allowed(source, target) and (str(path.relative_to(root / "src")), target) not in EXCEPTIONS:
                bad.append(f"{path}: src/{source} includes \"{target}\", which is not below it")
    print("\n".join(bad) if bad else f"{n} files: every include points down")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
