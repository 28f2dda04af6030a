#!/usr/bin/env python3
"""palpate-station against a running server: what it feels, reports and returns. usage: station_test.py STATION SERVER SAMPLE_PLUGIN SCENE_FILE"""
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

STATION, SERVER, PLUGIN, SCENE = "", "", "", pathlib.Path()
USAGE, NOT_ATTACHED, DEVICE_FAILED = 2, 3, 4


class StationTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.holder.name)
        cls.start_server("127.0.0.1:0")

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

    def test_says_what_is_wrong(self):
        for extra, names, code, word in (
            (("--rate", "0"), {}, USAGE, "rate"),
            (("--device", "joystick"), {}, USAGE, "joystick"),
            (("--device", "sim:depth=7"), {}, USAGE, "depth"),
            (("--device", "plugin:/nonexistent.so"), {}, DEVICE_FAILED, "/nonexistent.so"),
            (("--tls-ca", "/nonexistent.pem"), {}, USAGE, "/nonexistent.pem"),
            (("--device", f"plugin:{PLUGIN},reads=many"), {}, DEVICE_FAILED, "reads"),
            (("--wait", "1"), {"scene": "spleen"}, NOT_ATTACHED, "spleen"),
            (("--wait", "1"), {"tool": "spoon"}, NOT_ATTACHED, "spoon"),
        ):
            result = self.run_station("--seconds", 1, *extra, **names)
            self.assertEqual(result.returncode, code, (extra, result.stderr))
            self.assertIn(word, result.stderr, extra)

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
    STATION, SERVER, PLUGIN, SCENE = sys.argv[1], sys.argv[2], sys.argv[3], pathlib.Path(sys.argv[4])
    unittest.main(argv=sys.argv[:1], verbosity=2)
