#!/usr/bin/env python3
"""The demo, whole: server, simulated hand and viewer stream as `./run demo --headless` starts them. usage: demo_test.py PALPATE SCENES_FOLDER"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PALPATE, SCENES = "", pathlib.Path()


def processes_with(variable):
    """Command lines of the processes whose environment holds `variable`."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            pass
    return found


class DemoTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.mark = f"PALPATE_DEMO_TEST={os.getpid()}-{self.id()}"

    def start(self, *arguments):
        environment = dict(os.environ, TMPDIR=str(self.folder), **dict([self.mark.split("=", 1)]))
        return subprocess.Popen([PALPATE, "demo", *map(str, arguments if "--scene" in arguments else ("--scene", SCENES / "liver.json", *arguments))], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, env=environment, stdin=subprocess.DEVNULL)

    def leaves_nothing(self):
        self.assertEqual(processes_with(self.mark), [])
        self.assertEqual([path.name for path in self.folder.glob("palpate-demo-*")], [])

    def test_report(self):
        report = self.folder / "report.json"
        process = self.start("--headless", "--seconds", 8, "--report", report)
        out, err = process.communicate(timeout=240)
        self.assertEqual(process.returncode, 0, out + err)
        self.leaves_nothing()
        data = json.loads(report.read_text())
        self.assertTrue(data["device"])
        self.assertGreater(data["steps_per_s"], 0)
        step = data["step_ms"]
        for times in [step, *step["stages"].values()]:
            self.assertLessEqual(times["p50"], times["p99"])
            self.assertLessEqual(times["p99"], times["max"])
        self.assertIn("solve", step["stages"])
        self.assertGreater(step["p50"], 0)
        station = data["station"]
        self.assertGreater(station["cycles"], 1000)
        self.assertGreater(station["rate_hz"], 0)
        self.assertEqual(set(station["jitter_us"]) & {"p50", "p99", "p999", "max"}, {"p50", "p99", "p999", "max"})
        self.assertIn("missed", station)
        self.assertGreater(station["model_age_ms"]["p50"], 0)
        self.assertGreaterEqual(station["model_age_ms"]["p99"], station["model_age_ms"]["p50"])
        self.assertGreater(station["contact_cycles"], 0, "the hand must have felt the organ")
        self.assertGreater(station["force_n"]["max"], 0)
        self.assertGreater(data["viewer"]["frames"], 10)
        self.assertGreaterEqual(data["viewer"]["dropped"], 0)
        self.assertGreater(data["viewer"]["bytes_per_s"], 0)
        self.assertIn("http://127.0.0.1:", out)

    def wait_for_line(self, process, text):
        for line in process.stdout:
            if text in line:
                return line
        self.fail(f"no '{text}' before the end: {process.stderr.read()}")

    def test_interrupt_ends_everything(self):
        process = self.start("--http", "127.0.0.1:0")
        self.wait_for_line(process, "steps/s")
        self.assertEqual(len(processes_with(self.mark)), 3)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0)
        self.leaves_nothing()

    def test_a_kill_leaves_no_orphan(self):
        process = self.start("--http", "127.0.0.1:0")
        self.wait_for_line(process, "steps/s")
        process.kill()
        process.communicate(timeout=60)
        end = time.monotonic() + 60
        while processes_with(self.mark):
            self.assertLess(time.monotonic(), end, processes_with(self.mark))
            time.sleep(0.1)

    def test_an_interrupted_headless_run_fails(self):
        process = self.start("--headless", "--seconds", 1000)
        self.wait_for_line(process, "steps/s")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1)
        self.leaves_nothing()

    def test_a_bad_scene_says_why(self):
        bad = self.folder / "bad.json"
        bad.write_text('{"dt_s": 7}')
        process = self.start("--scene", bad, "--headless", "--seconds", 1)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1)
        self.assertIn("dt_s", err)
        self.leaves_nothing()

    def test_an_unknown_tool_says_why(self):
        process = self.start("--tool", "spoon", "--headless", "--seconds", 1)
        _, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 1)
        self.assertIn("spoon", err)
        self.leaves_nothing()


if __name__ == "__main__":
    PALPATE, SCENES = sys.argv[1], pathlib.Path(sys.argv[2])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
