#!/usr/bin/env python3
"""palpate-station against a running server: what it feels, reports and returns. usage: station_test.py STATION SERVER PALPATE SAMPLE_PLUGIN PRESSING_PLUGIN SCENE_FILE [CLASS...]"""
import contextlib
import json
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

STATION, SERVER, PALPATE, PLUGIN, PRESSING_PLUGIN, SCENE = "", "", "", "", "", pathlib.Path()
USAGE, NOT_ATTACHED, DEVICE_FAILED = 2, 3, 4


class StationTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.holder.name)
        cls.start_server("127.0.0.1:0")

    @contextlib.contextmanager
    def other_scene(self, name):
        """A server of its own with a scene of scenes/; the id of the scene is `name`."""
        ready = self.folder / f"{name}.ready.json"
        ready.unlink(missing_ok=True)
        log = self.folder / f"{name}.log"
        with open(log, "w", encoding="utf-8") as out:
            server = subprocess.Popen([SERVER, "--listen", "127.0.0.1:0", "--http", "off", "--scene", SCENE.parent / f"{name}.json", "--ready-file", ready], stdout=out, stderr=out)
        home, address = self.address, None
        try:
            while not ready.exists():
                self.assertIsNone(server.poll(), log.read_text())
                time.sleep(0.05)
            type(self).address = address = f"127.0.0.1:{json.loads(ready.read_text())['grpc_port']}"
            yield
        finally:
            type(self).address = home
            server.send_signal(signal.SIGTERM)
            status = server.wait(timeout=60)
        self.assertEqual(status, 0, (address, log.read_text()))

    @classmethod
    def start_server(cls, address):
        cls.log = open(cls.folder / "server.log", "a", encoding="utf-8")
        ready = cls.folder / "ready.json"
        ready.unlink(missing_ok=True)
        cls.server = subprocess.Popen([SERVER, "--listen", address, "--http", "off", "--scene", SCENE, "--ready-file", ready], stdout=cls.log, stderr=cls.log)
        while not ready.exists():
            if cls.server.poll() is not None:
                raise AssertionError((cls.folder / "server.log").read_text())
            time.sleep(0.05)
        cls.address = f"127.0.0.1:{json.loads(ready.read_text())['grpc_port']}"

    @classmethod
    def stop_server(cls):
        cls.server.send_signal(signal.SIGTERM)
        status = cls.server.wait(timeout=60)
        cls.log.close()
        assert status == 0, (cls.folder / "server.log").read_text()

    @classmethod
    def tearDownClass(cls):
        cls.stop_server()
        cls.holder.cleanup()

    def arguments(self, *extra, tool="probe", scene="liver"):
        return [STATION, "--server", self.address, "--scene", scene, "--tool", tool, *map(str, extra)]

    def run_station(self, *extra, **names):
        return subprocess.run(self.arguments(*extra, **names), capture_output=True, text=True, timeout=180, stdin=subprocess.DEVNULL)

    def test_feels_the_organ_and_reports(self):
        report_file = self.folder / "report.json"
        result = self.run_station("--seconds", 6, "--report", report_file, "--ramp", 0.2)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("force", result.stdout)
        report = json.loads(report_file.read_text())
        self.assertGreater(report["cycles"], 500)
        self.assertGreater(report["contact_cycles"], 0)
        self.assertGreater(report["force_n"]["mean"], 0)
        self.assertGreater(report["force_n"]["max"], 0)
        self.assertLessEqual(report["force_n"]["max"], 12.0)
        self.assertGreater(report["models_received"], 20)
        self.assertEqual(report["models_refused"], 0)
        self.assertGreater(report["poses_sent"], 100)
        self.assertEqual(report["reconnects"], 0)
        self.assertGreater(report["model_age_ms"]["p50"], 0)
        self.assertEqual(set(report["jitter_us"]), {"p50", "p99", "p999", "max"})

    def test_works_with_a_plugin(self):
        report_file = self.folder / "plugin.json"
        result = self.run_station("--seconds", 1, "--quiet", "--report", report_file, "--device", f"plugin:{PLUGIN},amplitude=0.01")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertEqual(json.loads(report_file.read_text())["device"], "sample spring handle")

    def test_grasps_with_its_grip(self):
        report_file = self.folder / "grasp.json.report"
        with self.other_scene("grasp"):
            # Astride of the ridge, 47 mm below; dwell leaves a slow machine's scene time to close the jaws.
            hand = "sim:script=grasp,spots=1,travel=0.047,clearance=0.006,dwell=4,speed=0.05"
            result = self.run_station("--seconds", 14, "--quiet", "--report", report_file, "--device", hand, scene="grasp", tool="forceps")
            self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(report_file.read_text())
        self.assertGreater(report["tool"]["grasping_s"], 0)
        self.assertGreater(report["tool"]["touching_s"], 0)
        self.assertGreater(report["tool"]["max_grasp_force_n"], 0)
        self.assertGreaterEqual(report["sent"]["jaw_closings"], 1)
        self.assertAlmostEqual(report["sent"]["jaw_angle_rad"]["max"], 1.2)
        self.assertEqual(report["tool"]["removed_mass_kg"], 0)

    def test_burns_with_its_pedal(self):
        report_file = self.folder / "burn.json.report"
        with self.other_scene("trocar"):
            hand = "sim:script=palpate,pedal=push,spots=1,travel=0.06,depth=0.006,dwell=5,speed=0.05"
            options = ("--seconds", 10, "--quiet", "--device", hand, "--pedal-button", 0, "--power", 50)
            result = self.run_station("--report", report_file, *options, scene="trocar", tool="aspirator")
            self.assertEqual(result.returncode, 0, result.stderr)
            # Options that the instrument has no use for.
            for extra, tool, word in ((("--jaw-button", 1), "aspirator", "--jaw-button"), (("--pedal-button", 0), "forceps", "forceps"), (("--pedal-button", 0, "--power", 70), "aspirator", "60 W")):
                result = self.run_station("--seconds", 1, *extra, scene="trocar", tool=tool)
                self.assertEqual(result.returncode, USAGE, (extra, result.stderr))
                self.assertIn(word, result.stderr, extra)
        report = json.loads(report_file.read_text())
        self.assertGreater(report["tool"]["removed_mass_kg"], 0)
        self.assertGreater(report["tool"]["cutting_s"], 0)
        self.assertEqual(report["sent"]["power_w"], 50)
        self.assertEqual(report["sent"]["duty"], 1)
        self.assertGreaterEqual(report["sent"]["pedal_presses"], 1)

    def test_a_frozen_station_does_not_go_on_burning(self):
        hand = "sim:script=palpate,pedal=push,spots=1,travel=0.06,depth=0.006,dwell=60,speed=0.05"
        with self.other_scene("trocar"):
            watch = subprocess.Popen([PALPATE, "--server", self.address, "--json", "watch", "trocar", "--rate", "60"], stdout=subprocess.PIPE, text=True)
            station = subprocess.Popen(self.arguments("--quiet", "--device", hand, "--pedal-button", 0, "--power", 50, scene="trocar", tool="aspirator"))
            frames = (frame for frame in map(json.loads, watch.stdout) if frame["type"] == "frame")

            def until(condition):
                for frame, _ in zip(frames, range(60 * 60)):
                    if condition(frame):
                        return frame
                self.fail("it did not come")

            first = next(frames)
            try:
                self.assertEqual(first["tools"][0]["activities"], [])
                # Tissue goes...
                until(lambda frame: frame["topology_version"] > first["topology_version"])
                self.assertIsNone(station.poll())
                station.send_signal(signal.SIGSTOP)
                # ... until what the pedal last said is too old.
                expired = until(lambda frame: "command expired" in frame["tools"][0]["activities"])
                last = until(lambda frame: frame["step"] > expired["step"] + 240)
                self.assertEqual(last["topology_version"], expired["topology_version"])
                self.assertIn("command expired", last["tools"][0]["activities"])
                self.assertTrue(last["tools"][0]["operated"])
                # Its pedal is still down, which counts no more before it was up.
                station.send_signal(signal.SIGCONT)
                again = until(lambda frame: frame["step"] > last["step"] + 120)
                self.assertEqual(again["topology_version"], expired["topology_version"])
            finally:
                station.send_signal(signal.SIGCONT)
                station.send_signal(signal.SIGINT)
                station.wait(timeout=60)
                watch.kill()
                watch.communicate()

    def test_works_with_a_laparoscopic_device(self):
        report_file = self.folder / "lie.json"
        for device in ("lie:inner=sim:script=palpate", f"lie:inner=plugin:{PLUGIN},amplitude=0.03"):
            result = self.run_station("--seconds", 2, "--quiet", "--report", report_file, "--device", device)
            self.assertEqual(result.returncode, 0, result.stderr)
            report = json.loads(report_file.read_text())
            self.assertIn("laparoscopic device", report["device"])
            self.assertGreater(report["poses_sent"], 10)
            self.assertGreaterEqual(report["device_limited_ticks"], 0)

    def test_records_and_replays(self):
        file = self.folder / "session.rec"
        result = self.run_station("--seconds", 1, "--quiet", "--device", f"record:{file},inner=sim:script=poke")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertGreater(file.stat().st_size, 192 * 100)
        result = self.run_station("--quiet", "--device", f"replay:{file}")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_ends_cleanly_on_an_interrupt(self):
        report_file = self.folder / "interrupt.json"
        station = subprocess.Popen(self.arguments("--report", report_file), stdout=subprocess.PIPE, text=True)
        while "attached" not in station.stdout.readline():
            self.assertIsNone(station.poll())
        station.send_signal(signal.SIGINT)
        station.communicate(timeout=30)
        self.assertEqual(station.returncode, 0)
        self.assertEqual(json.loads(report_file.read_text())["attachments"], 1)

    def test_comes_back_after_the_server(self):
        report_file = self.folder / "back.json"
        station = subprocess.Popen(self.arguments("--report", report_file), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

        def wait_for(word):
            while word not in (line := station.stdout.readline()):
                self.assertNotEqual(line, "", "the station ended")

        wait_for("attached")
        self.stop_server()
        wait_for("waiting")
        self.start_server(self.address)
        wait_for("attached")
        station.send_signal(signal.SIGTERM)
        station.communicate(timeout=30)
        self.assertEqual(station.returncode, 0)
        self.assertEqual(json.loads(report_file.read_text())["reconnects"], 1)

    def test_nan_is_no_number(self):
        for option in ("--ramp", "--seconds", "--wait", "--rate", "--send-rate", "--scale", "--model-age-limit", "--power", "--duty", "--jaw-angle"):
            result = self.run_station(option, "nan")
            self.assertEqual(result.returncode, USAGE, (option, result.stderr))
            self.assertIn("nan", result.stderr, option)

    def test_says_what_is_wrong(self):
        for extra, names, code, word in (
            (("--rate", "0"), {}, USAGE, "rate"),
            (("--device", "joystick"), {}, USAGE, "joystick"),
            (("--device", "sim:depth=7"), {}, USAGE, "depth"),
            (("--device", "lie:start=1"), {}, USAGE, "start"),
            (("--duty", "0.5"), {}, USAGE, "--pedal-button"),
            (("--pedal-button", "32"), {}, USAGE, "[0, 31]"),
            (("--pedal-button", "0"), {}, USAGE, "probe"),
            (("--device", "plugin:/nonexistent.so"), {}, DEVICE_FAILED, "/nonexistent.so"),
            (("--tls-ca", "/nonexistent.pem"), {}, USAGE, "/nonexistent.pem"),
            (("--device", f"plugin:{PLUGIN},reads=many"), {}, DEVICE_FAILED, "reads"),
            (("--wait", "1"), {"scene": "spleen"}, NOT_ATTACHED, "spleen"),
            (("--wait", "1"), {"tool": "spoon"}, NOT_ATTACHED, "spoon"),
        ):
            result = self.run_station("--seconds", 1, *extra, **names)
            self.assertEqual(result.returncode, code, (extra, result.stderr))
            self.assertIn(word, result.stderr, extra)

    def test_two_hands_work_at_once(self):
        # A scene of its own: tools keep the places where other tests left them.
        with self.other_scene("liver"):
            hands = {}
            for tool in ("probe", "hand"):
                report = self.folder / f"both-{tool}.json"
                command = self.arguments("--report", report, "--ramp", 0.2, "--device", "sim:script=palpate,speed=0.1,dwell=0.2,spots=2", tool=tool)
                hands[tool] = (subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True), report)
            try:
                # Until each has felt something while the other was there too.
                for station, _ in hands.values():
                    for line in station.stdout:
                        if "attached" in line and float(re.search(r"max ([0-9.]+)\)", line)[1]) > 0.1:
                            break
                    else:
                        self.fail(station.stderr.read())
            finally:
                for station, _ in hands.values():
                    station.send_signal(signal.SIGINT)
                errors = [station.communicate(timeout=60)[1] for station, _ in hands.values()]
        for (station, report_file), error in zip(hands.values(), errors):
            self.assertEqual(station.returncode, 0, error)
            report = json.loads(report_file.read_text())
            self.assertEqual((report["attachments"], report["models_refused"], report["safety"]["nan_ticks"]), (1, 0, 0))
            self.assertGreater(report["contact_cycles"], 0)
            self.assertGreater(report["tool"]["touching_s"], 0)
            self.assertGreater(report["models_received"], 20)
            self.assertGreater(report["poses_sent"], 100)

    def test_lets_go_within_the_slew_at_a_second_signal_too(self):
        for count in (1, 2):
            with self.other_scene("slab"):
                self.check_letting_go(count)

    def check_letting_go(self, count):
        log = self.folder / f"pressing-{count}.log"
        station = subprocess.Popen(self.arguments("--quiet", "--ramp", 0.2, "--device", f"plugin:{PRESSING_PLUGIN},log={log},depth=0.06", scene="slab"))

        def forces():
            lines = log.read_text().splitlines()[:-1] if log.exists() else []
            return [float(line.split()[2]) for line in lines]

        while max(forces()[-1:], default=0) < 0.2:
            self.assertIsNone(station.poll())
            time.sleep(0.05)
        # Two different ones: of two alike that are pending the system keeps one.
        for number in (signal.SIGINT, signal.SIGTERM)[:count]:
            station.send_signal(number)
        self.assertIn(station.wait(timeout=60), (0,) if count == 1 else (128 + signal.SIGINT, 128 + signal.SIGTERM))
        force = [float(line.split()[2]) for line in log.read_text().splitlines()]
        self.assertEqual(force[-1], 0, "the hand was left with a force")
        self.assertLessEqual(max(abs(b - a) for a, b in zip(force, force[1:])), 0.02 + 1e-6)

    def test_a_tool_has_one_hand(self):
        station = subprocess.Popen(self.arguments(), stdout=subprocess.PIPE, text=True)
        while "attached" not in station.stdout.readline():
            self.assertIsNone(station.poll())
        second = self.run_station("--seconds", 1, "--wait", 1)
        self.assertEqual(second.returncode, NOT_ATTACHED, second.stderr)
        station.send_signal(signal.SIGINT)
        station.communicate(timeout=30)
        self.assertEqual(station.returncode, 0)


if __name__ == "__main__":
    STATION, SERVER, PALPATE, PLUGIN, PRESSING_PLUGIN, SCENE = *sys.argv[1:6], pathlib.Path(sys.argv[6])
    unittest.main(argv=sys.argv[:1] + sys.argv[7:], verbosity=2)
