#!/usr/bin/env python3
"""The portable folder needs nothing but OpenCL and the C library, is small, and runs from anywhere. usage: portable_folder_test.py FOLDER"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

FOLDER = pathlib.Path()
LARGEST_BYTES = 40 * 2 ** 20
# What run_all.sh calls, besides a shell.
TOOLS = ("awk", "cat", "cksum", "cp", "cut", "date", "dirname", "grep", "head", "mkdir", "rm", "sed", "timeout", "touch", "tr", "uname", "wc")
LIBRARIES = {"linux-vdso.so.1", "libOpenCL.so.1", "libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "ld-linux-x86-64.so.2"}
# Debian 12's; older systems cannot load the programs.
NEWEST_GLIBC = (2, 36)


def programs():
    return [FOLDER / "palpate-gpu-tests", FOLDER / "palpate-device", *sorted((FOLDER / "suites").iterdir())]


class PortableFolderTest(unittest.TestCase):
    def test_is_small(self):
        total = sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file() and FOLDER / "data" not in path.parents)
        self.assertLess(total, LARGEST_BYTES)
        self.assertGreater(len(programs()), 2)

    def test_needs_only_opencl_and_the_c_library(self):
        for program in programs():
            with self.subTest(program.name):
                text = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
                names = {pathlib.PurePath(line.split()[0]).name for line in text.splitlines()}
                self.assertIn("libc.so.6", names)
                self.assertEqual(names - LIBRARIES, set())

    def test_asks_for_no_newer_c_library(self):
        for program in programs():
            with self.subTest(program.name):
                text = subprocess.run(["objdump", "-T", program], capture_output=True, text=True, check=True).stdout
                versions = {tuple(map(int, version.split("."))) for version in re.findall(r"GLIBC_([0-9.]+)", text)}
                self.assertLessEqual(max(versions), NEWEST_GLIBC)

    def test_lists_its_suites_and_refuses_others(self):
        listed = subprocess.run([FOLDER / "palpate-bench", "--list"], capture_output=True, text=True, check=True).stdout.split()
        self.assertIn("primitives", listed)
        self.assertEqual(listed, sorted(listed))
        wrong = subprocess.run([FOLDER / "palpate-bench", "nothing"], capture_output=True, text=True, check=False)
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("primitives", wrong.stderr)

    def test_has_the_device_tests(self):
        listed = subprocess.run([FOLDER / "palpate-gpu-tests", "--gtest_list_tests"], capture_output=True, text=True, check=True).stdout
        for suite in ("RadixSort", "Scan", "Queue"):
            self.assertRegex(listed, rf"(?m)^\w*{suite}\w*\.")

    def test_runs_all_from_a_copy(self):
        """With one benchmark case and few tests, so that it ends soon: the script must find, run, judge and collect them."""
        with tempfile.TemporaryDirectory() as holder:
            copy = pathlib.Path(holder) / "copy"
            copy.mkdir()
            for name in ("run_all.sh", "README.md", "palpate-device"):
                shutil.copy(FOLDER / name, copy)

            def wrap(name, list_flag, listed, command):
                path = copy / name
                path.write_text(f'#!/bin/sh\n[ "$1" = {list_flag} ] && echo "{listed}" && exit\n{command}\n')
                path.chmod(0o755)

            def run():
                return subprocess.run(["sh", copy / "run_all.sh", "--quick", "--out", "results"], cwd=holder, capture_output=True, text=True, check=False)

            wrap("palpate-bench", "--list", "primitives", f'"{FOLDER}/palpate-bench" "$@" --filter=scan_u32/10000')
            wrap("palpate-gpu-tests", "--gtest_list_tests", "Fnv1a64Test.", f'"{FOLDER}/palpate-gpu-tests" "$@"')
            done = run()
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            results = pathlib.Path(holder) / "results"
            rows = json.loads((results / "results.json").read_text())
            self.assertTrue(rows)
            self.assertEqual({row["suite"] for row in rows}, {"primitives"})
            self.assertIn("all passed", done.stdout)
            self.assertRegex(done.stdout, r"passed  test:Fnv1a64Test [1-9]\d* test")
            # a test that fails fails the run
            shutil.rmtree(results)
            wrap("palpate-gpu-tests", "--gtest_list_tests", "Fnv1a64Test.", "exit 3")
            done = run()
            self.assertEqual(done.returncode, 1)
            self.assertIn("FAILED: test:Fnv1a64Test", done.stdout)

    def test_says_in_a_bare_root_that_there_is_no_device(self):
        """A root with the C library, a shell, small tools and the folder: neither loader nor driver."""
        with tempfile.TemporaryDirectory() as holder:
            root = pathlib.Path(holder)
            for tool in ("sh", *TOOLS):
                copy_program(root, pathlib.Path(shutil.which(tool)))
            for program in programs()[:2]:
                copy_libraries(root, program, without="libOpenCL")
            shutil.copytree(FOLDER, root / "palpate", ignore=shutil.ignore_patterns("suites", "data"))
            for folder in ("tmp", "dev", "proc"):
                (root / folder).mkdir()
            (root / "dev/null").touch()
            inside = ["chroot", str(root), "/bin/sh", "/palpate/run_all.sh", "--out", "/tmp/results"]
            if subprocess.run(["unshare", "--map-root-user", "true"], capture_output=True, check=False).returncode != 0:
                self.skipTest("this machine lets nobody but root change the root")
            done = subprocess.run(["unshare", "--map-root-user", *inside], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
            self.assertIn("no device to run on", done.stderr)
            self.assertIn("no OpenCL device", done.stderr)


def copy_program(root, path):
    (root / "bin").mkdir(exist_ok=True)
    shutil.copy(path.resolve(), root / "bin" / path.name)
    copy_libraries(root, path)


def copy_libraries(root, program, without=None):
    for library in re.findall(r"(/\S+) \(0x", subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout):
        if without and without in library:
            continue
        place = root / library.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(pathlib.Path(library).resolve(), place)


if __name__ == "__main__":
    FOLDER = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
