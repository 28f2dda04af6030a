#!/usr/bin/env python3
"""Every .cl file compiles without a warning as OpenCL C 1.2, without a device: undeclared names, doubles by accident, narrowing."""
import re
import shutil
import subprocess

import lint_common

TOOL = shutil.which("clang-14") or shutil.which("clang")
FLAGS = ["-x", "cl", "-cl-std=CL1.2", "-Xclang", "-finclude-default-header", "--target=x86_64-pc-linux-gnu", "-fsyntax-only", "-Wall", "-Wextra",
         "-Wdouble-promotion", "-Wconversion", "-Werror"]


# Kernels that are compiled with definitions from the host: each set in turn, with each set for the group added.
GROUPS = [{"GROUP_SIZE": "1", "ITEMS": "1024"}, {"GROUP_SIZE": "64", "ITEMS": "8"}]
VARIANTS = {
    "gpu/dynamics/tissue.cl": [{"PALPATE_LANES": "8", "PALPATE_TEAM": "1", "PALPATE_GROUP": "8", "PALPATE_PHASES": "1", "PALPATE_PHASE_GROUP": "1", "PALPATE_ENERGY_MASK": "30u",
                                "PALPATE_FIBERS": "1", "PALPATE_VISCOUS": "0", "PALPATE_SURFACE": "1", "PALPATE_SHAPE": "1", "PALPATE_VOLUME": "1",
                                "PALPATE_SMOOTHING": "1", "PALPATE_RIGID": "1"},
                               {"PALPATE_LANES": "1", "PALPATE_TEAM": "8", "PALPATE_GROUP": "64", "PALPATE_PHASES": "1", "PALPATE_PHASE_GROUP": "64", "PALPATE_ENERGY_MASK": "1u",
                                "PALPATE_FIBERS": "0", "PALPATE_VISCOUS": "1", "PALPATE_SURFACE": "0", "PALPATE_SHAPE": "0", "PALPATE_VOLUME": "0",
                                "PALPATE_DISPLACED": "1"},
                               {"PALPATE_LANES": "1", "PALPATE_TEAM": "8", "PALPATE_GROUP": "64", "PALPATE_PHASES": "1", "PALPATE_PHASE_GROUP": "64", "PALPATE_ENERGY_MASK": "0x7fffu",
                                "PALPATE_FIBERS": "1", "PALPATE_VISCOUS": "1", "PALPATE_SURFACE": "1", "PALPATE_SHAPE": "1", "PALPATE_VOLUME": "1",
                                "PALPATE_SMOOTHING": "1"},
                               {"PALPATE_LANES": "8", "PALPATE_TEAM": "1", "PALPATE_GROUP": "8", "PALPATE_PHASES": "1", "PALPATE_PHASE_GROUP": "1", "PALPATE_ENERGY_MASK": "0u",
                                "PALPATE_FIBERS": "0", "PALPATE_VISCOUS": "0", "PALPATE_SURFACE": "1", "PALPATE_SHAPE": "1", "PALPATE_VOLUME": "1"}],
    "gpu/dynamics/tissue_energy.cl": [{"PALPATE_DOUBLE": "1"}, {"PALPATE_DOUBLE": "0"}],
    "gpu/dynamics/component_balance.cl": [{"PALPATE_BALANCE_GROUP": "1"}, {"PALPATE_BALANCE_GROUP": "64"}],
    "gpu/dynamics/shape_goals.cl": [{"PALPATE_SHAPE_GROUP": "1"}, {"PALPATE_SHAPE_GROUP": "64"}],
    "gpu/dynamics/tools.cl": [{"PALPATE_LIST_GROUP": "1"}, {"PALPATE_LIST_GROUP": "64"}],
    "gpu/dynamics/volume.cl": [{"PALPATE_VOLUME_GROUP": "1"}, {"PALPATE_VOLUME_GROUP": "64"}],
    "gpu/collision/ccd.cl": [{"CCD_DOUBLE": "1", "CCD_INPUT_DOUBLE": "0"}, {"CCD_DOUBLE": "1", "CCD_INPUT_DOUBLE": "1"},
                             {"CCD_DOUBLE": "0", "CCD_INPUT_DOUBLE": "0"}],
    "gpu/collision/ccd_queries.cl": [{"CCD_DOUBLE": "1"}, {"CCD_DOUBLE": "0"}],
    "gpu/collision/intersections.cl": [{"USE_DOUBLE": "1"}, {"USE_DOUBLE": "0"}],
    "gpu/collision/proximity.cl": [{"LANES": "16"}, {"LANES": "8"}, {"LANES": "1"}],
    "tests/gpu/collision/proximity_probe.cl": [{"LANES": "8"}, {"LANES": "1"}],
    **{f"gpu/collision/{stem}.cl": [*({"AXES": axes, "STAGE": "4"} for axes in ("0", "3", "7", "9", "13")), {"AXES": "3", "STAGE": "4", "ORIENTED": "1"}]
       for stem in ("all_pairs", "body_broad_phase", "kdop", "principal_axis", "sweep_and_prune")},
    "gpu/dynamics/rigid_volumes.cl": [*({"AXES": axes} for axes in ("0", "3", "7", "9", "13")), {"AXES": "3", "ORIENTED": "1"}],
    "gpu/collision/nurbs_distance.cl": [{"MAX_ORDER": "4", "ORDER_U": order, "ORDER_V": order, "RATIONAL": rational, "VOLUME": "0", "SPLIT": "0",
                                         "WITH_CORNERS": "1", "WITH_CONES": minima, "MINIMA": minima} for order, rational, minima in
                                        (("4", "0", "0"), ("0", "1", "0"), ("4", "1", "1"), ("0", "0", "1"))],
    "gpu/collision/nurbs_motion.cl": [{"MAX_ORDER": "4", "ORDER_U": order, "ORDER_V": order, "RATIONAL": rational, "VOLUME": "0", "SPLIT": "0",
                                       "STACK": "64"} for order, rational in (("4", "0"), ("0", "1"))],
    "gpu/collision/nurbs_objects.cl": [{"MAX_ORDER": "4", "ORDER_U": "4", "ORDER_V": "4", "RATIONAL": "0"},
                                       {"MAX_ORDER": "16", "ORDER_U": "0", "ORDER_V": "0", "RATIONAL": "1"}],
    "gpu/collision/nurbs_queries.cl": [{"MAX_ORDER": "4", "ORDER_U": order, "ORDER_V": order, "RATIONAL": rational, "VOLUME": volume, "SPLIT": split,
                                        "STACK": "64"} for volume, split, order, rational in
                                       (("0", "0", "4", "0"), ("1", "1", "0", "1"), ("2", "2", "0", "1"), ("3", "3", "4", "1"), ("4", "0", "0", "1"),
                                        ("5", "0", "0", "1"), ("6", "3", "0", "0"))],
    "gpu/collision/nurbs_self.cl": [{"MAX_ORDER": "4", "ORDER_U": order, "ORDER_V": order, "RATIONAL": rational, "VOLUME": "0", "SPLIT": "0",
                                     "WITH_CONES": "1"} for order, rational in (("4", "0"), ("0", "1"))],
    "gpu/primitives/radix_sort.cl": [{"KEY": "uint", "FLOAT_KEYS": "0"}, {"KEY": "uint", "FLOAT_KEYS": "1"}, {"KEY": "ulong", "FLOAT_KEYS": "0"}],
    "gpu/primitives/reduce.cl": [{"VALUE": "float", "ELEMENT": "float", "REDUCE_SUM": "1", "IDENTITY": "0"},
                                 {"VALUE": "uint", "ELEMENT": "uint", "REDUCE_MIN": "1", "MIN_FUNCTION": "min", "IDENTITY": "UINT_MAX"},
                                 {"VALUE": "ulong", "ELEMENT": "ulong", "REDUCE_MAX": "1", "MAX_FUNCTION": "max", "IDENTITY": "0"},
                                 {"VALUE": "Box", "ELEMENT": "Float4", "REDUCE_BOX": "1"}],
    "gpu/primitives/scan.cl": [{"SCAN_VALUES": "1", "VALUE": "uint"}, {"SCAN_SEGMENTS": "1", "VALUE": "float"}, {"SCAN_FLAGS": "1", "VALUE": "uint"},
                               {"SCAN_RUNS": "1", "VALUE": "uint", "KEY": "uint"}, {"SCAN_RUNS": "1", "VALUE": "uint", "KEY": "ulong"}],
}
FIXED = {"gpu/primitives/radix_sort.cl": {"RADIX_BITS": "8"},
         "gpu/collision/all_pairs.cl": {"KEY": "uint", "FLOAT_KEYS": "1", "RADIX_BITS": "8"}}


def definitions_of(name):
    if name not in VARIANTS:
        return [{}]
    return [{**variant, **group, **FIXED.get(name, {})} for variant in VARIANTS[name] for group in GROUPS]


def check(root, files):
    names = [name for name in files if name.endswith(".cl")]
    if TOOL is None:
        yield "clang is not installed (Debian package clang)"
        return
    for name in names:
        for definitions in definitions_of(name):
            flags = [f"-D{key}={value}" for key, value in definitions.items()]
            run = subprocess.run([TOOL, *FLAGS, *flags, "-I.", name], cwd=root, capture_output=True, text=True)
            if run.returncode == 0:
                continue
            errors = [line for line in run.stderr.splitlines() if re.search(r": (fatal )?error: ", line)] or [f"{name}: {run.stderr.strip()}"]
            yield from (f"{error} ({' '.join(flags)})" if flags else error for error in errors)
            break  # the first bad set is enough


SELF_TESTS = [
    ({"gpu/a.cl": "__kernel void f(__global float* x) { x[get_global_id(0)] = 2.0f; }\n"}, None),
    ({"gpu/b.clh": "#define TWO 2.0f\n", "gpu/a.cl": '#include "gpu/b.clh"\n__kernel void f(__global float* x) { x[0] = TWO; }\n'}, None),
    ({"gpu/a.cl": "__kernel void f(__global float* x) {\n  x[0] = y;\n}\n"}, "gpu/a.cl:2"),
    ({"gpu/a.cl": "__kernel void f(__global float* x) { x[0] = (float)(x[1] * 2.0); }\n"}, "double"),
    ({"gpu/a.cl": "__kernel void f(__global uint* x) { uint i = get_global_id(0); x[i] = i; }\n"}, "implicit conversion"),
]

if __name__ == "__main__":
    lint_common.main(check, SELF_TESTS)
