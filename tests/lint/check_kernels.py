#!/usr/bin/env python3
"""Every .cl file compiles without a warning as OpenCL C 1.2, without a device: undeclared names, doubles by accident, narrowing."""
import re
import shutil
import subprocess

import lint_common

TOOL = shutil.which("clang-14") or shutil.which("clang")
FLAGS = ["-x", "cl", "-cl-std=CL1.2", "-Xclang", "-finclude-default-header", "--target=x86_64-pc-linux-gnu", "-fsyntax-only", "-Wall", "-Wextra",
         "-Wdouble-promotion", "-Wconversion", "-Werror"]


def check(root, files):
    names = [name for name in files if name.endswith(".cl")]
    if TOOL is None:
        yield "clang is not installed (Debian package clang)"
        return
    for name in names:
        run = subprocess.run([TOOL, *FLAGS, "-I.", name], cwd=root, capture_output=True, text=True)
        if run.returncode == 0:
            continue
        errors = [line for line in run.stderr.splitlines() if re.search(r": (fatal )?error: ", line)]
        yield from errors or [f"{name}: {run.stderr.strip()}"]


SELF_TESTS = [
    ({"gpu/a.cl": "__kernel void f(__global float* x) { x[get_global_id(0)] = 2.0f; }\n"}, None),
    ({"gpu/b.clh": "#define TWO 2.0f\n", "gpu/a.cl": '#include "gpu/b.clh"\n__kernel void f(__global float* x) { x[0] = TWO; }\n'}, None),
    ({"gpu/a.cl": "__kernel void f(__global float* x) {\n  x[0] = y;\n}\n"}, "gpu/a.cl:2"),
    ({"gpu/a.cl": "__kernel void f(__global float* x) { x[0] = (float)(x[1] * 2.0); }\n"}, "double"),
    ({"gpu/a.cl": "__kernel void f(__global uint* x) { uint i = get_global_id(0); x[i] = i; }\n"}, "implicit conversion"),
]

if __name__ == "__main__":
    lint_common.main(check, SELF_TESTS)
