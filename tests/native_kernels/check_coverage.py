#!/usr/bin/env python3
"""Checks that the native kernel tests launched every kernel, under each kind of sanitizer.

usage: check_coverage.py ROOT LAUNCH_FOLDER FILE.cl...
LAUNCH_FOLDER has one file for each test, named <program>_asan or <program>_tsan, with _1_of_2 and so on for its shards, with lines "FILE KERNEL" (see native_runtime.cc).
"""
import pathlib
import re
import sys

# gpu/primitives/group.clh defines GROUP_KERNEL as a kernel of fixed group size.
KERNEL = re.compile(r"\b(?:__kernel|kernel|GROUP_KERNEL)\b(?:\s*__attribute__\s*\(\(.*?\)\)\s*)?\s*void\s+(\w+)\s*\(", re.S)
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)


def main():
    root, launches = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    failed = False
    total = 0
    for kind in ("asan", "tsan"):
        seen = set()
        for path in sorted({*launches.glob(f"*_{kind}"), *launches.glob(f"*_{kind}_*_of_*")}):
            seen.update(tuple(line.split()) for line in path.read_text().splitlines())
        for file in sys.argv[3:]:
            relative = pathlib.Path(file).resolve().relative_to(root).as_posix()
            kernels = KERNEL.findall(COMMENT.sub("", pathlib.Path(file).read_text()))
            if not kernels:
                print(f"{relative}: no kernel was recognised")
                failed = True
            for kernel in kernels:
                total += 1
                if (relative, kernel) not in seen:
                    print(f"{relative}: kernel {kernel} was not launched under {kind}")
                    failed = True
    if total == 0:
        print("no kernel files were given")
        failed = True
    if not failed:
        print(f"{total} launches of kernels found")
    return 1 if failed else 0


sys.exit(main())
