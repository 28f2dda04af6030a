"""Small cases of the kernels on Oclgrind, a simulator of OpenCL devices that finds data races between work-items.

  oclgrind_test.py --programs DIR

Kernels are built as for a GPU, with groups of many work-items. Only what Oclgrind 21.10 copes with is here: its compiler refuses double
precision and vectors of bits, and large cases take hours. Exit status: 77 where there is no Oclgrind.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

# Program of tests/gpu, file, filter of its tests.
CASES = [
    ("gpu_dynamics_tests", "contact_geometry_test.cc", "*"),
    ("gpu_dynamics_tests", "shape_matching_test.cc", "*"),
    ("gpu_primitives_tests", "reduction_test.cc", "*BoundingBox*:*CountOnTheDevice*"),
    ("gpu_primitives_tests", "run_writer_test.cc", "*"),
]

RACE = """
kernel void sum(global const int* in, global int* out, local int* seen) {
  seen[0] = in[get_local_id(0)];
  barrier(CLK_LOCAL_MEM_FENCE);
  out[get_local_id(0)] = seen[0];
}
"""
RACE_CASE = "race.cl\nsum\n4 1 1\n4 1 1\n\n<size=16 range=0:1:3>\n<size=16 fill=0>\n<size=4>\n"
TIMEOUT_S = 300


def findings(command, folder, environment=None):
    """What Oclgrind reports of a command's kernels."""
    log = folder / "findings.txt"
    subprocess.run([command[0], "--data-races", "--log", log, *command[1:]], cwd=folder, env=environment, timeout=TIMEOUT_S, check=False,
                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return log.read_text() if log.exists() else ""


def check_detector(folder):
    (folder / "race.cl").write_text(RACE)
    (folder / "race.sim").write_text(RACE_CASE)
    return [] if "race" in findings(["oclgrind-kernel", "race.sim"], folder) else ["a kernel with a race passes: nothing below means anything"]


def check_program(program, file, cases, folder):
    result = folder / "result.json"
    environment = dict(os.environ, PALPATE_ASSUME_GPU="4", PALPATE_CACHE_DIR="")
    found = findings(["oclgrind", program, f"--files={file}", f"--gtest_filter={cases}", f"--gtest_output=json:{result}"], folder, environment)
    if found:
        return [f"{file}:\n{found}"]
    if not result.exists():
        return [f"{file} did not come to its end"]
    # Oclgrind itself may crash when it is unloaded, so the exit status tells nothing.
    totals = json.loads(result.read_text())
    print(f"{file}: {totals['tests']} tests")
    if totals["tests"] == 0 or totals["failures"] > 0:
        return [f"{file}: {totals['tests']} tests, {totals['failures']} failed"]
    return []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=pathlib.Path, required=True)
    programs = parser.parse_args().programs.resolve()
    if not shutil.which("oclgrind"):
        print("skipped: no oclgrind (a Debian package)")
        return 77
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        problems += check_detector(pathlib.Path(folder))
    for name, file, cases in CASES:
        with tempfile.TemporaryDirectory() as folder:
            problems += check_program(programs / name, file, cases, pathlib.Path(folder))
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
