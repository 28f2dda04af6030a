#!/usr/bin/env python3
"""A real Prometheus, with the shipped rules, scrapes a running server. usage: prometheus_test.py PALPATE_SERVER REPOSITORY_ROOT"""
import json
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse
import urllib.request

import yaml

SERVER, ROOT = "", pathlib.Path()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def fetch(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


class PrometheusTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, name, *command):
        log = open(self.folder / f"{name}.log", "w+", encoding="utf-8")
        process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)

        def stop():
            process.terminate()
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            log.close()

        self.addCleanup(stop)
        return process

    def wait_for(self, what, ready, *processes, limit_s=180):
        """Asks again until `ready` answers something true, and answers that."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            for process in processes:
                self.assertIsNone(process.poll(), f"{process.args[0]} has ended: {self.logs()}")
            try:
                if answer := ready():
                    return answer
            except OSError:
                pass
            time.sleep(0.2)
        self.fail(f"{what}: not within {limit_s} s: {self.logs()}")

    def logs(self):
        return "\n".join(f"{path.name}: {path.read_text()[-2000:]}" for path in self.folder.glob("*.log"))

    def test_prometheus_sees_the_scene_step(self):
        ready_file = self.folder / "ready.json"
        server = self.start("server", SERVER, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--ready-file", ready_file, "--scene",
                            ROOT / "scenes" / "liver.json")
        self.wait_for("server", ready_file.exists, server)
        target = f"127.0.0.1:{json.loads(ready_file.read_text())['http_port']}"

        config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["scrape_configs"][0]["static_configs"] = [{"targets": [target]}]
        (self.folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        shutil.copy(ROOT / "deploy/prometheus/rules.yml", self.folder)
        port = free_port()
        prometheus = self.start("prometheus", shutil.which("prometheus"), f"--config.file={self.folder / 'prometheus.yml'}",
                                f"--storage.tsdb.path={self.folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}")

        def query(expression):
            answer = json.loads(fetch(f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": expression})))
            return [(sample["metric"], float(sample["value"][1])) for sample in answer["data"]["result"]]

        both = (server, prometheus)
        self.wait_for("steps", lambda: query("palpate_steps_total > 0"), *both)
        (labels, first), = query("palpate_steps_total")
        self.assertEqual((labels["scene"], labels["job"]), ("liver", "palpate"))
        self.wait_for("more steps", lambda: query(f"palpate_steps_total > {first}"), *both)
        self.assertEqual(query("up"), [(query("up")[0][0], 1.0)])
        # Histograms arrive whole: the number of observations is the number of steps, and the recorded quantile exists. The scene goes on, so a
        # step may end while the two are collected; not in every second.
        self.wait_for("as many observations as steps", lambda: query("palpate_step_seconds_count == on (scene) palpate_steps_total"), *both)
        stages = {labels["stage"] for labels, count in query("palpate_stage_seconds_count > 0")}
        self.assertIn("solve", stages)
        self.wait_for("recording rule", lambda: query("scene:palpate_step_seconds:p99 > 0"), *both)
        for metric in ("palpate_device_memory_bytes", "palpate_build_info", 'palpate_scenes{state="playing"}', "palpate_scene_device_bytes"):
            self.assertTrue(query(f"{metric} > 0"), metric)
        # The rules were loaded, and none of them is broken.
        rules = [rule for group in json.loads(fetch(f"http://127.0.0.1:{port}/api/v1/rules"))["data"]["groups"] for rule in group["rules"]]
        self.assertGreater(len(rules), 5)
        self.assertEqual([rule["name"] for rule in rules if rule["health"] == "err"], [])

        # The page itself passes the format's own checker.
        checked = subprocess.run([shutil.which("promtool"), "check", "metrics"], input=fetch(f"http://{target}/metrics"), capture_output=True, text=True)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)

        server.terminate()
        self.assertEqual(server.wait(timeout=30), 0)
        self.wait_for("the server to be seen as down", lambda: query("up == 0"), prometheus)


if __name__ == "__main__":
    SERVER, ROOT = sys.argv[1], pathlib.Path(sys.argv[2])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
