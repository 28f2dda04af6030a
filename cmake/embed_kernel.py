#!/usr/bin/env python3
"""Turns one OpenCL file into a C++ source that defines palpate::gpu::kernels::<stem>.

usage: embed_kernel.py ROOT RELATIVE_CL OUT_CC
Quoted includes are resolved from ROOT and flattened, each file once; #line keeps the positions of compiler messages. The rules that all
kernels share come first, whatever the file includes: a pragma holds from its place on only.
"""
import pathlib
import re
import sys

PRELUDE = "gpu/shared/prelude.h"
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


def flatten(root, relative, seen, out):
    seen.add(relative)
    out.append(f'#line 1 "{relative}"')
    for number, line in enumerate((root / relative).read_text().splitlines(), start=1):
        match = INCLUDE.match(line)
        if not match:
            out.append(line)
            continue
        if match.group(1) not in seen:
            flatten(root, match.group(1), seen, out)
        out.append(f'#line {number + 1} "{relative}"')


def main():
    root, relative, target = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    # The first line names the kernel file: runtimes that compile kernels otherwise read it there.
    lines, seen = [f'#line 1 "{relative}"'], set()
    flatten(root, PRELUDE, seen, lines)
    flatten(root, relative, seen, lines)
    text = "\n".join(lines) + "\n"
    stem = pathlib.PurePath(relative).stem
    # Compilers limit the length of one literal, so the text is cut into adjacent raw strings.
    chunks = [text[i:i + 8000] for i in range(0, len(text), 8000)]
    literal = "\n".join(f'R"~cl~({chunk})~cl~"' for chunk in chunks)
    target.write_text(
        f"// Generated from {relative} by cmake/embed_kernel.py.\n"
        '#pragma GCC diagnostic ignored "-Woverlength-strings"  // beyond 64 KiB a compiler need not follow; ours do\n'
        '#include "gpu/runtime/kernel_source.h"\n\n'
        "namespace palpate::gpu::kernels {\n"
        f"extern const KernelSource {stem};\n"
        f'const KernelSource {stem} = {{"{relative}",\n{literal}}};\n'
        "}  // namespace palpate::gpu::kernels\n")


main()
