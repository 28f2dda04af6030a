#!/usr/bin/env python3
"""The demo, whole: server, simulated hand and viewer stream as `./run demo` starts them. usage: demo_test.py PALPATE SCENES_FOLDER [CLASS...]"""
import json
import os
import pathlib
import re
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


class DemoCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.mark = f"PALPATE_DEMO_TEST={os.getpid()}-{self.id()}"

    def start(self, *arguments):
        environment = dict(os.environ, TMPDIR=str(self.folder), **dict([self.mark.split("=", 1)]))
        # `./run demo` names a scene of its own before those of the caller.
        return subprocess.Popen([PALPATE, "demo", "--scene", SCENES / "liver.json", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, env=environment, stdin=subprocess.DEVNULL)

    def leaves_nothing(self):
        self.assertEqual(processes_with(self.mark), [])
        self.assertEqual([path.name for path in self.folder.glob("palpate-demo-*")], [])

    def wait_for_line(self, process, text):
        for line in process.stdout:
            if text in line:
                return line
        self.fail(f"no '{text}' before the end: {process.stderr.read()}")


    def look_at(self, server, scene):
        """Somebody who watches the scene for the rest of the test."""
        watcher = subprocess.Popen([PALPATE, "--server", server, "watch", scene], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        self.addCleanup(watcher.wait)
        self.addCleanup(watcher.kill)


class DemoTest(DemoCase):
    def test_a_show_waits_for_who_comes_to_see_it(self):
        process = self.start("--scene", SCENES / "incision.json", "--http", "127.0.0.1:0", "--seconds", 1)
        server = self.wait_for_line(process, "server").split()[1]
        self.wait_for_line(process, "begins when a browser opens that address")
        shown = json.loads(subprocess.run([PALPATE, "--server", server, "--json", "scene", "show", "incision"], check=True, capture_output=True, text=True).stdout)
        self.assertEqual(int(shown["scene"].get("step", 0)), 0)
        self.assertEqual(shown["scene"].get("operatedTools", []), [])
        self.look_at(server, "incision")
        self.wait_for_line(process, "station")
        _, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, err)
        self.leaves_nothing()

    def test_who_does_not_want_to_wait_ends_it(self):
        process = self.start("--scene", SCENES / "tori.json", "--http", "127.0.0.1:0")
        self.wait_for_line(process, "begins when")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, err)
        self.leaves_nothing()

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

    def refused(self, *arguments):
        """What a demo says that ends before it has started anything."""
        process = self.start(*arguments, "--headless", "--seconds", 1)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 1, err)
        self.assertEqual(out, "", "a server had been started")
        self.assertNotIn("palpate-server", err)
        self.leaves_nothing()
        return err

    def test_what_cannot_be_is_refused_before_anything_starts(self):
        bad = self.folder / "bad.json"
        bad.write_text('{"dt_s": 7}')
        meshless = self.folder / "meshless.json"
        meshless.write_text('{"bodies": [{"name": "organ", "mesh_file": "organ.msh"}]}')
        for arguments, words in ((["--scene", bad], ["bad.json", "dt_s"]), (["--scene", meshless], ["meshless.json", "organ.msh"]),
                                 (["--scene", self.folder / "none.json"], ["none.json"]), (["--scene", self.folder], ["folder"]),
                                 (["--tool", "spoon"], ["spoon", "liver.json", "probe, hand"]), (["--hand", "foot"], ["--hand", "foot", "replay"]),
                                 (["--hand", "sim:depth=x"], ["--hand", "depth"]), (["--hand", "record:/nonexistent/r,inner=sim"], ["--hand", "/nonexistent"]),
                                 (["--scene", SCENES / "sheet.json", "--tool", "probe"], ["no tool"]), (["--device", "abacus"], ["--device", "abacus"]),
                                 (["--http", "nowhere"], ["--http", "nowhere"]), (["--web-root", self.folder / "none"], ["--web-root"]),
                                 (["--report", self.folder / "none" / "report.json"], ["report.json"])):
            with self.subTest(arguments):
                message = self.refused(*arguments)
                for word in words:
                    self.assertIn(word, message)


class EveryScene(DemoCase):
    def test_every_scene_is_shown(self):
        for scene in sorted(SCENES.glob("*.json")):
            with self.subTest(scene.name):
                spec = json.loads(scene.read_text())
                tools = spec.get("tools", [])
                process = self.start("--scene", scene, "--http", "127.0.0.1:0")
                if spec.get("start") == "START_WHEN_WATCHED":
                    server = self.wait_for_line(process, "server").split()[1]
                    self.wait_for_line(process, "begins when")
                    self.look_at(server, scene.stem)
                station = self.wait_for_line(process, "station")
                self.assertIn(f"on tool {'probe' if any(t['name'] == 'probe' for t in tools) else tools[0]['name']} " if tools else "none", station)
                while int(re.match(r"step (\d+)", self.wait_for_line(process, "steps/s")).group(1)) < 3:
                    pass
                process.send_signal(signal.SIGINT)
                _, err = process.communicate(timeout=240)
                self.assertEqual(process.returncode, 0, err)
                self.leaves_nothing()

    def test_a_scene_without_a_tool_is_reported(self):
        report = self.folder / "report.json"
        process = self.start("--scene", SCENES / "tori.json", "--headless", "--seconds", 1, "--report", report)
        _, err = process.communicate(timeout=240)
        self.assertEqual(process.returncode, 0, err)
        data = json.loads(report.read_text())
        self.assertIsNone(data["station"])
        self.assertGreater(data["viewer"]["frames"], 0)


if __name__ == "__main__":
    PALPATE, SCENES = sys.argv[1], pathlib.Path(sys.argv[2])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
