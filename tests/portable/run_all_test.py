#!/usr/bin/env python3
"""deploy/portable/run_all.sh with programs that only pretend: what it runs, judges, keeps, and goes on from. usage: run_all_test.py FOLDER_OF_SCRIPT"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = pathlib.Path()
DEVICE = '[ "$1" = --list ] && exit\necho "device of ${1:-auto}"'
TESTS = '[ "$1" = --gtest_list_tests ] && printf "First.\\n  A\\nSecond/One.\\n  B\\n" && exit\necho "$1" >>{folder}/calls'
BENCH = '[ "$1" = --list ] && printf "fast\\nslow\\n" && exit\necho "$1" >>{folder}/calls\nprintf \'{"suite": "%s"}\\n\' "$1" >>"${2#--json=}"'


class RunAllTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve() / "a folder"
        self.folder.mkdir()
        for name in ("run_all.sh", "README.md"):
            shutil.copy(SOURCE / name, self.folder)
        self.program("palpate-device", DEVICE)
        self.program("palpate-gpu-tests", TESTS)
        self.program("palpate-bench", BENCH)
        self.results = self.folder.parent / "results"
        self.environment = {name: value for name, value in os.environ.items() if name not in ("OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "PALPATE_DATA_DIR")}

    def program(self, name, *parts):
        path = self.folder / name
        text = "\n".join(["#!/bin/sh", *parts, ""])
        path.write_text(text.replace("{folder}", f"'{self.folder}'"))
        path.chmod(0o755)

    def command(self, *arguments):
        return ["sh", self.folder / "run_all.sh", "--out", self.results, *arguments]

    def run_all(self, *arguments):
        return subprocess.run(self.command(*arguments), cwd=self.folder.parent, capture_output=True, text=True, check=False, env=self.environment)

    def calls(self):
        path = self.folder / "calls"
        text = path.read_text().split("\n")[:-1] if path.exists() else []
        path.unlink(missing_ok=True)
        return text

    def rows(self):
        return [row["suite"] for row in json.loads((self.results / "results.json").read_text())]

    def test_runs_all_and_keeps_the_results_in_few_files(self):
        self.program("palpate-gpu-tests", TESTS, 'echo "[  PASSED  ] 3 tests."\necho "[  SKIPPED ] 1 test, listed below:"')
        done = self.run_all()
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertEqual(self.calls(), ["--gtest_filter=First.*-*.Slow*", "--gtest_filter=Second/One.*-*.Slow*", "fast", "slow"])
        self.assertIn("passed  test:First 3 tests skipped: 1 test\n", done.stdout)
        self.assertIn("on device of auto\n", done.stdout)
        self.assertEqual(self.rows(), ["fast", "slow"])
        self.assertEqual(sorted(path.name for path in self.results.iterdir()), ["device.txt", "done.txt", "log.txt", "results.json", "results.jsonl"])

    def test_a_suite_that_fails_is_named(self):
        self.program("palpate-gpu-tests", TESTS, 'case $1 in *First*) echo "it broke"; exit 5 ;; esac')
        done = self.run_all()
        self.assertEqual(done.returncode, 1)
        self.assertIn("FAILED: test:First\n", done.stdout)
        self.assertIn("failed  test:First status 5", done.stdout)
        self.assertIn("it broke", (self.results / "log.txt").read_text())
        self.assertIn("test:First failed", (self.results / "done.txt").read_text())

    def test_only_what_failed_is_run_again(self):
        self.program("palpate-bench", BENCH, '[ "$1" = fast ] || [ -e {folder}/mended ] || exit 4')
        self.assertEqual(self.run_all().returncode, 1)
        self.calls()
        (self.folder / "mended").touch()
        done = self.run_all()
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(self.calls(), ["slow"])
        self.assertIn("before  test:First\n", done.stdout)

    def test_one_that_hangs_is_ended(self):
        self.program("palpate-gpu-tests", TESTS, 'case $1 in *First*) sleep 600 ;; esac')
        done = self.run_all("--limit", "1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("failed  test:First ran past 1 s", done.stdout)
        self.assertIn("passed  suite:slow", done.stdout)

    def test_a_run_that_is_killed_leaves_no_row_twice(self):
        self.program("palpate-bench", BENCH, '[ "$1" = fast ] || [ -e {folder}/mended ] || { touch {folder}/waits; sleep 600; }')
        process = subprocess.Popen(self.command(), cwd=self.folder.parent, stdout=subprocess.DEVNULL, env=self.environment, start_new_session=True)
        end = time.monotonic() + 60
        while not (self.folder / "waits").exists():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)
        os.killpg(process.pid, 9)
        process.wait()
        subprocess.run(["pkill", "-f", str(self.folder / "palpate-bench")], check=False)
        # As a kill between the rows and their note leaves it.
        with (self.results / "results.jsonl").open("a") as file:
            file.write('{"suite": "half')
        self.calls()
        (self.folder / "mended").touch()
        done = self.run_all()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(self.calls(), ["slow"])
        self.assertEqual(self.rows(), ["fast", "slow"])

    def test_no_device_is_a_failure(self):
        self.program("palpate-device", '[ "$1" = --list ] && exit\necho "no OpenCL device on this machine" >&2\nexit 1')
        done = self.run_all()
        self.assertEqual(done.returncode, 3)
        self.assertIn("no OpenCL device on this machine", done.stderr)
        self.assertEqual(self.calls(), [])

    def test_results_of_another_device_are_not_mixed(self):
        self.assertEqual(self.run_all().returncode, 0)
        done = self.run_all("--device", "gpu")
        self.assertEqual(done.returncode, 2)
        self.assertIn("another device", done.stderr)
        self.assertEqual(self.run_all("--quick").returncode, 2)

    def test_the_loader_of_the_folder_is_used_where_the_system_has_none(self):
        self.program("palpate-device", 'case "${LD_LIBRARY_PATH:-}" in {folder}/lib*) ;; *) echo "libOpenCL.so.1: not found" >&2; exit 127 ;; esac', DEVICE)
        self.assertEqual(self.run_all().returncode, 0)
        self.program("palpate-device", 'echo "no such program here" >&2; exit 127')
        done = self.run_all()
        self.assertEqual(done.returncode, 3)
        self.assertIn("no such program here", done.stderr)

    def test_a_drivers_library_that_no_list_names_is_found(self):
        drivers, vendors = self.folder.parent / "drivers", self.folder.parent / "vendors"
        for folder in (drivers, vendors):
            folder.mkdir()
        (drivers / "libnvidia-opencl.so.1").touch()
        (vendors / "other.icd").write_text("libother.so\n")
        self.environment |= {"LD_LIBRARY_PATH": str(drivers), "OCL_ICD_VENDORS": str(vendors)}
        self.program("palpate-device", DEVICE, 'cat "$OCL_ICD_VENDORS"/*.icd | sort | tr "\\n" " "')
        done = self.run_all()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"on device of auto\n{drivers}/libnvidia-opencl.so.1 libother.so", done.stdout)
        # One that is named is not named twice.
        (vendors / "nvidia.icd").write_text("libnvidia-opencl.so.1\n")
        shutil.rmtree(self.results)
        self.assertIn("on device of auto\nlibnvidia-opencl.so.1 libother.so", self.run_all().stdout)

    def test_wrong_arguments_are_refused(self):
        for arguments, message in ((("--limit", "soon"), "--limit takes a number of seconds, not 'soon'"), (("--limit", "0"), "not '0'"),
                                   (("--device",), "--device needs a value"), (("--fast",), "unknown argument: --fast")):
            done = self.run_all(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(message, done.stderr)


if __name__ == "__main__":
    SOURCE = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
