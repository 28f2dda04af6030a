#!/usr/bin/env python3
"""palpate job as a batch system calls it: exit statuses, signals, kills, sweeps and their tables.

usage: jobs_test.py PALPATE SCENES"""
import csv
import io
import json
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PALPATE, SCENES = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2]).resolve()
DEADLINE_S = 120

PHANTOM = {
    "bodies": [{
        "name": "box",
        "generator": {"slab": {"size_m": {"x": 0.04, "y": 0.04, "z": 0.02}}, "edge_length_m": 0.01},
        "fixed": [{"box": {"min_m": {"x": -1, "y": -1, "z": -0.011}, "max_m": {"x": 1, "y": 1, "z": -0.0099}}}],
    }],
    "tools": [{"name": "probe", "drive": "TOOL_DRIVE_DIRECT", "rest_pose": {"position_m": {"z": 0.016}}}],
}


def job(**more):
    return {
        "name": "press",
        "scene": PHANTOM,
        "tools": [{"tool": "probe", "trajectory": {"relative": True, "keys": [
            {"time_s": 0}, {"time_s": 1, "pose": {"position_m": {"z": -0.004}}}]}}],
        "probes": ["tool.probe.force", "body.box.volume", "state_hash"],
        "stop": {"steps": 300},
        **more,
    }


class JobsTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="palpate-jobs-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def write(self, name, content):
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    def call(self, *arguments):
        return subprocess.run([PALPATE, "job", *map(str, arguments)], cwd=self.folder, capture_output=True, text=True, timeout=DEADLINE_S)

    def start(self, *arguments):
        return subprocess.Popen([PALPATE, "job", *map(str, arguments)], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait_for(self, condition, process):
        """Until the condition holds; False if the process has ended before."""
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            if condition():
                return True
            if process.poll() is not None:
                return False
            time.sleep(0.005)
        self.fail("nothing happened in time")

    def results(self, folder):
        """All that is the same in each run."""
        files = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file() and p.name != ".lock"}
        summary = json.loads(files["summary.json"])
        del summary["provenance"]
        files["summary.json"] = summary
        files.pop("state.plrec", None)  # its hash is in the summary; the rest is checked by clients_job_test
        return files

    def test_a_job_runs_and_is_not_run_twice(self):
        file = self.write("press.json", job(stop={"steps": 5}, outputs={"final_state": True}))
        run = self.call("run", file)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("ended at step 5 (duration)", run.stdout)
        summary = json.loads((self.folder / "press.out" / "summary.json").read_text())
        self.assertEqual(summary["status"], "ended")
        self.assertRegex(summary["provenance"]["version"], r"^\d+\.\d+")
        self.assertIn("job run", summary["provenance"]["command"])
        rows = list(csv.reader(io.StringIO((self.folder / "press.out" / "probes.csv").read_text())))
        self.assertEqual(len(rows), 7)
        state = subprocess.run([PALPATE, "replay", "--headless", "press.out/state.plrec"],
                               cwd=self.folder, capture_output=True, text=True, timeout=DEADLINE_S)
        self.assertEqual(state.returncode, 0, state.stderr)
        again = self.call("--json", "run", file)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(json.loads(again.stdout)["outcome"], "was_done")
        self.write("press.json", job(stop={"steps": 6}))
        other = self.call("run", file)
        self.assertEqual(other.returncode, 2, other.stderr)
        self.assertIn("holds the results of another job", other.stderr)
        fresh = self.call("run", file, "--fresh")
        self.assertEqual(fresh.returncode, 0, fresh.stderr)

    def test_exit_statuses_of_wrong_input_and_of_failures(self):
        cases = [
            (["run", "nowhere.json"], 2, "nowhere.json"),
            (["run", self.write("syntax.json", "{,}")], 2, "syntax.json:1:2: not JSON"),
            (["run", self.write("field.json", job(halt={}))], 2, "halt"),
            (["run", self.write("range.json", job(stop={"steps": 0}))], 2, "stop.steps: 0 is outside"),
            (["run", self.write("probe.json", job(probes=["tool.prob.force"]))], 2, "there are: probe"),
            (["run", self.write("plain.json", job()), "--task", "0"], 2, "has no sweep"),
            (["run", self.write("press.json", job()), "--device", "no such device"], 1, "no such device"),
            (["run", str(self.folder), "--tasks", "all"], 2, "manifest.json"),
            (["collect", str(self.folder)], 2, "manifest.json"),
            (["run"], 2, "job"),
            (["run", self.write("edit.json", job(edits=[{"time_s": 0, "edits": [{"body": "spleen", "carve": {"region": {"zone": "x"}}}]}]))], 1,
             "the scene has no body"),
            (["check", self.write("range.json", job(stop={"steps": 0}))], 2, "stop.steps: 0 is outside"),
        ]
        for arguments, status, text in cases:
            with self.subTest(arguments=arguments):
                run = self.call(*arguments)
                self.assertEqual(run.returncode, status, run.stderr + run.stdout)
                self.assertIn(text, run.stderr + run.stdout)
        self.assertEqual(json.loads((self.folder / "edit.out" / "summary.json").read_text())["status"], "failed")

    def test_check_and_probes_need_no_device(self):
        file = self.write("press.json", job())
        check = self.call("check", file)
        self.assertEqual(check.returncode, 0, check.stderr)
        self.assertIn("tool.probe.force.x [N]", check.stdout)
        probes = self.call("probes", file)
        self.assertEqual(probes.returncode, 0, probes.stderr)
        self.assertIn("body.box.volume", probes.stdout)

    def test_an_interruption_counts_more_than_a_failure_before_it(self):
        """An engine that sees a failure would leave the rest undone."""
        edits = [{"time_s": 0, "edits": [{"body": "box", "carve": {"region": {"ball": {"center_m": {"x": 1}, "radius_m": 0.001}}}}]}]
        sweep = {"grid": [{"field": "job.edits[0].edits[0].body", "values": ["spleen", "box"]}]}
        file = self.write("press.json", job(stop={"steps": 100000}, edits=edits, sweep=sweep))
        process = self.start("run", file, "--tasks", "all", "--workers", "1")
        table = self.folder / "press.out" / "task-000001" / "probes.csv.part"
        self.assertTrue(self.wait_for(table.exists, process))
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=DEADLINE_S)
        self.assertEqual(process.returncode, 4, errors)
        self.assertIn("1 tasks are saved", errors)
        self.assertIn("task-000000: ", errors)

    def test_signals_and_kills_leave_no_trace(self):
        geometry = {"outputs": {"geometry": {"interval_s": 0.2}, "final_state": True}, "checkpoints": {"interval_steps": 40}}
        file = self.write("press.json", job(**geometry))
        whole = self.call("run", file, "-o", "whole")
        self.assertEqual(whole.returncode, 0, whole.stderr)
        parts = self.folder / "parts"
        randomness = random.Random(4)
        table = parts / "probes.csv.part"
        interrupted = killed = 0
        signals = [signal.SIGTERM, signal.SIGKILL, signal.SIGUSR1, signal.SIGKILL, signal.SIGINT, signal.SIGKILL]
        for number in signals:
            process = self.start("run", file, "-o", "parts")
            begun = table.stat().st_mtime_ns if table.exists() else 0
            if not self.wait_for(lambda: table.exists() and table.stat().st_mtime_ns != begun, process):
                process.communicate()
                break  # it was done first
            time.sleep(randomness.uniform(0, 0.1))
            process.send_signal(number)
            _, errors = process.communicate(timeout=DEADLINE_S)
            if number == signal.SIGKILL:
                killed += process.returncode == -signal.SIGKILL
            elif process.returncode == 4:
                interrupted += 1
                self.assertIn("the same command goes on", errors)
                self.assertTrue((parts / "checkpoint.palpate").exists())
            else:
                self.assertEqual(process.returncode, 0, errors)
        self.assertGreater(interrupted, 0)
        self.assertGreater(killed, 0)
        rest = self.call("run", file, "-o", "parts")
        self.assertEqual(rest.returncode, 0, rest.stderr)
        first, second = self.results(self.folder / "whole"), self.results(parts)
        self.assertEqual(sorted(first), sorted(second))
        for name in first:
            self.assertEqual(first[name], second[name], name)

    def sweep(self):
        return job(stop={"steps": 12}, sweep={
            "seed": 3, "grid": [{"field": "bodies[box].material.young_modulus_pa", "values": [2000, 4000]}],
            "samples": {"method": "SWEEP_METHOD_SOBOL", "count": 4, "dimensions": [
                {"field": "job.tools[probe].trajectory.keys[1].pose.position_m.z", "low": -0.006, "high": -0.002}]}})

    def test_a_sweep_gives_the_same_table_whatever_runs_it(self):
        file = self.write("sweep.json", self.sweep())
        self.assertEqual(self.call("run", file).returncode, 2)
        expand = self.call("expand", file, "-o", "many")
        self.assertEqual(expand.returncode, 0, expand.stderr)
        self.assertIn("8 tasks", expand.stdout)
        for tasks in (["--task", "6"], ["--tasks", "0-2,7"]):
            run = self.call("run", self.folder / "many", *tasks)
            self.assertEqual(run.returncode, 0, run.stderr)
        partial = self.call("collect", self.folder / "many", "-o", "partial.csv")
        self.assertEqual(partial.returncode, 1)
        for number in (3, 4, 5):
            self.assertIn(f"task-00000{number}", partial.stderr)
        self.assertNotIn("task-000006", partial.stderr)
        rows = list(csv.DictReader(io.StringIO((self.folder / "partial.csv").read_text())))
        self.assertEqual([row["status"] for row in rows], ["ended"] * 3 + ["missing"] * 3 + ["ended"] * 2)
        self.assertEqual(self.call("run", self.folder / "many", "--tasks", "all", "--workers", "2").returncode, 0)
        # The file itself, in one go.
        self.assertEqual(self.call("run", file, "-o", "one", "--tasks", "all", "--workers", "3").returncode, 0)
        tables = []
        for folder in ("many", "one"):
            collect = self.call("collect", self.folder / folder)
            self.assertEqual(collect.returncode, 0, collect.stderr)
            tables.append(collect.stdout)
        self.assertEqual(tables[0], tables[1])
        rows = list(csv.DictReader(io.StringIO(tables[0])))
        self.assertEqual(len(rows), 8)
        self.assertEqual(len({row["state_hash"] for row in rows}), 8)
        forces = [float(row["tool.probe.force.z.max [N]"]) for row in rows]
        self.assertGreaterEqual(min(forces), 0)

    def test_an_interrupted_sweep_goes_on(self):
        content = self.sweep()
        content["stop"]["steps"] = 100
        file = self.write("sweep.json", content)
        process = self.start("run", file, "-o", "parts", "--tasks", "all", "--workers", "2")
        table = self.folder / "parts" / "task-000000" / "probes.csv.part"
        self.wait_for(table.exists, process)
        process.terminate()
        _, errors = process.communicate(timeout=DEADLINE_S)
        self.assertEqual(process.returncode, 4, errors)
        self.assertEqual(self.call("run", file, "-o", "parts", "--tasks", "all").returncode, 0)
        self.assertEqual(self.call("run", file, "-o", "whole", "--tasks", "all", "--workers", "1").returncode, 0)
        self.assertEqual(self.call("collect", self.folder / "parts").stdout, self.call("collect", self.folder / "whole").stdout)

    def test_the_examples_run(self):
        run = self.call("run", SCENES / "jobs" / "stiffness-sweep.json", "-o", "sweep", "--tasks", "0,15")
        self.assertEqual(run.returncode, 0, run.stderr)
        collect = self.call("collect", self.folder / "sweep")
        self.assertEqual(collect.returncode, 1)
        rows = list(csv.DictReader(io.StringIO(collect.stdout)))
        self.assertEqual(len(rows), 16)
        self.assertGreater(float(rows[0]["tool.probe.force.z.max [N]"]), 0.01)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
