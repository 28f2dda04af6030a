#!/usr/bin/env python3
"""What a GPU would run, without one: every kernel goes through clang to PTX, the assembly of NVIDIA's devices.

Contraction: no product and sum of a kernel's own text may be fused, wherever the compiler sees the pragma. Names: PTX calls nothing that is not
there. Memory of its own: what a work-item keeps on the stack instead of in registers, in bytes, is at most LIMIT, or what `ptx_stack.json`
allows; nor may that table allow more than is needed. Where NVIDIA's assembler `ptxas` is found, registers that it spills are looked at in the
same way, with 0 as the limit. Functions that clang does not inline have rows of their own; the device's compiler may decide otherwise.

usage: check_ptx.py [--self-test | --table | --update]   (--table prints what all kernels need, --update writes the file; it wants ptxas)
"""
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import check_kernels
import lint_common

TABLE = "tests/lint/ptx_stack.json"
LIMIT = {"stack": 256, "spills": 0}
ARCHITECTURE = "sm_80"
BUILTINS = "/usr/lib/clc/nvptx64--nvidiacl.bc"
CLANG = shutil.which("clang-14") or shutil.which("clang")
PTXAS = shutil.which("ptxas")
TARGET = ["--target=nvptx64-unknown-nvidiacl", "-Xclang", "-target-cpu", "-Xclang", ARCHITECTURE, "-Xclang", "-target-feature", "-Xclang", "+ptx70"]
FLAGS = ["-x", "cl", "-cl-std=CL1.2", *TARGET, "-Xclang", "-finclude-default-header", "-I."]
PRELUDE = "gpu/shared/prelude.h"
FLOAT_OPERATION = re.compile(r"= f(?:add|sub|mul|div|neg)\b[^\n]*\b(?:fast|contract|reassoc|afn|arcp)\b")
FUNCTION = re.compile(r"^(?:\.visible )?\.(?:entry|func)\s+(?:\([^)]*\)\s*)?(\w+)", re.MULTILINE)
KERNEL = re.compile(r'@(\w+), !"kernel"')
DEFINITION = re.compile(r"^define dso_local (?=[^@\n]*@(\w+)\()", re.MULTILINE)
DEPOT = re.compile(r"__local_depot\d+\[(\d+)\]")
OUTSIDE = re.compile(r"^\.extern \.func\s+(?:\([^)]*\)\s*)?(\w+)", re.MULTILINE)
SPILLS = re.compile(r"Function properties for (\w+)\s+\d+ bytes stack frame, (\d+) bytes spill stores")


def is_of_a_gpu(definitions):
    """Whether a device with groups would get these definitions: some are for CPUs, that have vectors and groups of one."""
    groups = all(value != "1" for name, value in definitions.items() if name.endswith("_GROUP"))
    return groups and all(value == "1" for name, value in definitions.items() if name.endswith("LANES"))


def definitions_of(name):
    group = check_kernels.GROUPS[-1]
    sets = [{**variant, **group, **check_kernels.FIXED.get(name, {})} for variant in check_kernels.VARIANTS.get(name, [{}])]
    return [definitions for definitions in sets if is_of_a_gpu(definitions)] or sets[:1]


def run_clang(root, *arguments, text=None):
    """Output of the compiler. Errors: RuntimeError, its first error."""
    run = subprocess.run([CLANG, *arguments, "-S", "-o", "-"], cwd=root, input=text, capture_output=True, text=True)
    if run.returncode != 0:
        raise RuntimeError(next((line for line in run.stderr.splitlines() if "error: " in line), f"{arguments[-1]}: {run.stderr.strip()}"))
    return run.stdout


def compile_kernels(root, name, definitions, *flags):
    """The code of a file between languages (LLVM's). Errors: RuntimeError."""
    prelude = ["-include", PRELUDE] if (root / PRELUDE).is_file() else []
    return run_clang(root, *FLAGS, *prelude, *(f"-D{key}={value}" for key, value in definitions.items()), *flags, "-emit-llvm", name)


def to_ptx(root, name, definitions):
    """PTX of a file. Errors: RuntimeError."""
    code = compile_kernels(root, name, definitions, "-O3", "-Xclang", "-disable-llvm-passes", "-Xclang", "-mlink-bitcode-file", "-Xclang", BUILTINS)
    kernels = set(KERNEL.findall(code))
    # What only kernels call need not stand alone.
    code = DEFINITION.sub(lambda match: match[0] if match[1] in kernels else "define internal ", code)
    return run_clang(root, *TARGET, "-O3", "-Wno-override-module", "-x", "ir", "-", text=code)


def contraction_problems(root, name, definitions):
    text = compile_kernels(root, name, definitions, "-O1")
    fused = len(re.findall(r"call [^\n]*@llvm\.fmuladd", text))
    if fused:
        yield f"{name}:1: {fused} products are fused with sums: the pragma of {PRELUDE} comes too late or is overridden"
    if loose := FLOAT_OPERATION.search(text):
        yield f"{name}:1: an operation may be reordered: {loose[0].strip()}"


def spills_of(ptx):
    """{kernel: bytes} of what the assembler puts aside. Errors: RuntimeError."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "kernel.ptx")
        with open(path, "w", encoding="utf-8") as file:
            file.write(ptx)
        run = subprocess.run([PTXAS, "-v", f"--gpu-name={ARCHITECTURE}", "-o", os.devnull, path], capture_output=True, text=True)
    if run.returncode != 0:
        raise RuntimeError(f"ptxas: {run.stderr.strip().splitlines()[0]}")
    return {kernel: int(spilled) for kernel, spilled in SPILLS.findall(run.stderr)}


def device_code(root, name, definitions):
    """({kernel, or function that is not inlined: its needs}, problems) of one file with one set of definitions."""
    ptx = to_ptx(root, name, definitions)
    problems = [f"{name}:1: no such function on the device: {called}" for called in sorted(set(OUTSIDE.findall(ptx))) if called != "vprintf"]
    starts = [(match.start(), match[1]) for match in FUNCTION.finditer(ptx)]
    ends = [start for start, _ in starts[1:]] + [len(ptx)]
    spills = spills_of(ptx) if PTXAS and not problems else {}
    needs = {function: {"stack": sum(map(int, DEPOT.findall(ptx[start:end]))), "spills": spills.get(function, 0)}
             for (start, function), end in zip(starts, ends)}
    return needs, problems


def measure(root, names):
    """({(file, kernel): the most that it needs}, problems) of all files and sets of definitions."""
    needs, problems = {}, []

    def examine(task):
        name, definitions, is_first = task
        try:
            found, wrong = device_code(root, name, definitions)
            return name, found, (list(contraction_problems(root, name, definitions)) if is_first else []) + wrong
        except RuntimeError as error:
            return name, {}, [str(error)]

    tasks = [(name, definitions, number == 0) for name in names for number, definitions in enumerate(definitions_of(name))]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, found, wrong in pool.map(examine, tasks):
            problems += [problem for problem in wrong if problem not in problems]
            for kernel, need in found.items():
                most = needs.setdefault((name, kernel), {"stack": 0, "spills": 0})
                most.update({what: max(most[what], need[what]) for what in need})
    return needs, problems


def kernel_files(files):
    return [name for name in files if name.endswith(".cl") and name.startswith("gpu/")]


def read_table(root, files):
    if TABLE not in files:
        return {}
    table = json.loads((root / TABLE).read_text(encoding="utf-8"))
    return {(name, kernel): {**LIMIT, **need} for name, kernels in table.items() for kernel, need in kernels.items()}


def check(root, files):
    if CLANG is None or not os.path.exists(BUILTINS):
        yield "clang or its builtins for NVIDIA's devices are not installed (Debian packages clang, libclc-14)"
        return
    allowed = read_table(root, files)
    needs, problems = measure(root, kernel_files(files))
    yield from problems
    if problems:
        return
    for name, kernel in sorted({*needs, *allowed}):
        for what, limit in LIMIT.items():
            has, may = needs.get((name, kernel), LIMIT)[what], allowed.get((name, kernel), LIMIT)[what]
            if has > may:
                yield f"{name}:1: {what} of {kernel}: {has} bytes for each work-item, {may} are allowed"
            elif max(has, limit) < may and (what == "stack" or PTXAS):
                yield f"{TABLE}:1: {what} of {kernel} in {name}: {may} bytes are allowed, it needs {has if has > limit else f'at most {limit}'}"


SELF_TESTS = [
    ({"gpu/a.cl": "__kernel void f(__global float* x) { x[get_global_id(0)] = sqrt(x[0]) * 2.0f; }\n"}, None),
    ({"gpu/a.cl": "__kernel void f(__global float* x) { x[0] = x[1] * x[2] + x[3]; }\n"}, "fused"),
    ({PRELUDE: "#pragma OPENCL FP_CONTRACT OFF\n", "gpu/a.cl": "__kernel void f(__global float* x) { x[0] = x[1] * x[2] + x[3]; }\n"}, None),
    ({"gpu/a.cl": "float g(float x);\n__kernel void f(__global float* x) { x[0] = g(x[0]); }\n"}, "no such function on the device: g"),
    ({"gpu/a.cl": "__kernel void f(__global float* x, int n) {\n  float t[100];\n  for (int i = 0; i < n; ++i) t[x[i] > 0 ? i : 0] = x[i];\n"
                  "  x[n] = t[n];\n}\n"}, "stack of f: 400 bytes"),
    ({"gpu/a.cl": "__kernel void f(__global float* x) { x[0] = 1.0f; }\n", TABLE: '{"gpu/a.cl": {"f": {"stack": 400}}}'}, "400 bytes are allowed"),
    ({"gpu/a.cl": "__kernel void f(__global float* x) { x[0] = y; }\n"}, "gpu/a.cl:1:"),
]


def write_table(needs):
    table = {}
    for (name, kernel), need in sorted(needs.items()):
        beyond = {what: size for what, size in need.items() if size > LIMIT[what]}
        if beyond:
            table.setdefault(name, {})[kernel] = beyond
    (lint_common.ROOT / TABLE).write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")


def main():
    mode = sys.argv[1] if len(sys.argv) == 2 else ""
    if mode not in ("--update", "--table"):
        lint_common.main(check, SELF_TESTS)
    if mode == "--update" and PTXAS is None:
        sys.exit("ptxas, which counts spilled registers, is not installed (CUDA toolkit of NVIDIA)")
    needs, problems = measure(lint_common.ROOT, kernel_files(lint_common.project_files()))
    if mode == "--table":
        print("stack  spills  kernel (bytes of a work-item)")
        for (name, kernel), need in sorted(needs.items(), key=lambda item: (-item[1]["stack"], item[0])):
            print(f"{need['stack']:5}  {need['spills']:6}  {kernel} ({name})")
    else:
        write_table(needs)
    sys.exit("\n".join(problems) or 0)


if __name__ == "__main__":
    main()
