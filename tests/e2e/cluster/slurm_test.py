#!/usr/bin/env python3
"""Tasks on a real Slurm, whose processes are killed and requeued: the table is that of a run nobody disturbed.
usage: slurm_test.py PALPATE REPOSITORY_ROOT"""
import contextlib
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

import local_slurm

PALPATE, ROOT = "", pathlib.Path()
SKIPPED = 77
TASKS = 16  # 6 are to be interrupted, and some end before that
STEPS = 1000
LIMIT_S = 600


def palpate(*arguments, environment=None):
    result = subprocess.run([PALPATE, *map(str, arguments)], capture_output=True, text=True, env=environment)
    if result.returncode != 0:
        raise AssertionError(f"palpate {' '.join(map(str, arguments))}: status {result.returncode}\n{result.stdout}\n{result.stderr}")
    return result.stdout


def job_file(steps):
    """A block that is pressed again and again, softer and heavier from task to task."""
    strokes = [{"time_s": 0.5 * k, "pose": {"position_m": {"z": -0.004 * (k % 2)}}} for k in range(20)]
    return {
        "scene": {
            "bodies": [{
                "name": "block",
                "generator": {"slab": {"size_m": {"x": 0.05, "y": 0.05, "z": 0.02}}, "edge_length_m": 0.008},
                "fixed": [{"box": {"min_m": {"x": -1, "y": -1, "z": -0.011}, "max_m": {"x": 1, "y": 1, "z": -0.0099}}}],
            }],
            "tools": [{"name": "probe", "radius_m": 0.006, "rest_pose": {"position_m": {"z": 0.018}}, "drive": "TOOL_DRIVE_DIRECT"}],
        },
        "tools": [{"tool": "probe", "trajectory": {"relative": True, "keys": strokes}}],
        "stop": {"steps": steps},
        "probes": ["tool.probe.force", "energy.elastic", "state_hash"],
        "sweep": {"grid": [{"field": "bodies[block].material.young_modulus_pa", "range": {"low": 4000, "high": 8000, "count": TASKS // 4}},
                           {"field": "bodies[block].material.density_kg_per_m3", "values": [900, 1000, 1100, 1200]}]},
    }


def status(process):
    """{field: value} of /proc/PROCESS/status. Errors: ProcessLookupError."""
    try:
        lines = pathlib.Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError as error:
        raise ProcessLookupError from error
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def wait_while(condition, limit_s=10):
    """Until the condition is gone, or for so long."""
    end = time.monotonic() + limit_s
    while condition() and time.monotonic() < end:
        time.sleep(0.01)


def is_asked_to_end(process):
    """Whether a process that was stopped has got SIGTERM, which waits for it to go on, or goes on already."""
    try:
        fields = status(process)
    except ProcessLookupError:
        return True
    return not fields["State"].startswith("T") or int(fields["ShdPnd"], 16) >> (signal.SIGTERM - 1) & 1 == 1


def is_running(process):
    try:
        return status(process)["State"][0] not in "ZX"
    except ProcessLookupError:
        return False


class SlurmTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def expand(self, name, steps):
        (self.folder / f"{name}.json").write_text(json.dumps(job_file(steps)))
        palpate("job", "expand", self.folder / f"{name}.json", "-o", self.folder / name)
        return self.folder / name

    def processes(self, folder):
        """{element of the array: id of the process that runs its task}, of those that have results already."""
        found = {}
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                words = entry.joinpath("cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if str(folder) in words and "--tasks" in words:
                task = int(words[words.index("--tasks") + 1].split("-")[0])
                if (folder / f"task-{task:06d}/probes.csv.part").exists():
                    found[task] = int(entry.name)
        return found

    def disturb(self, slurm, folder, array):
        """Interrupts elements in each of three ways, two each. Returns {way: elements}."""
        done = {"killed": [], "requeued": [], "out of time": []}

        def act(way, element, process):
            """Errors: ProcessLookupError, FileNotFoundError (the task has ended before that)."""
            # On a busy machine a request can take longer than the rest of a task: it stands still meanwhile.
            shell = int(status(process)["PPid"])
            os.kill(process, signal.SIGSTOP)
            wait_while(lambda: status(process)["State"][0] in "RSD")
            if element not in self.processes(folder):
                os.kill(process, signal.SIGCONT)
                raise ProcessLookupError
            if way == "killed":
                os.kill(process, signal.SIGKILL)
                return
            if way == "requeued":
                slurm.call("scontrol", "requeue", f"{array}_{element}")  # Slurm lets it go on, and only then has it end
            else:
                # What --signal=B:USR1@... has Slurm do; it looks at time limits twice a minute, too rarely for a test.
                os.kill(shell, signal.SIGUSR1)
            wait_while(lambda: not is_asked_to_end(process))
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)
            wait_while(lambda: is_running(process), limit_s=LIMIT_S)
            summary = folder / f"task-{element:06d}/summary.json"
            if summary.exists() and json.loads(summary.read_text())["provenance"]["interruptions"] == 0:
                raise ProcessLookupError

        tried = set()
        while any(len(elements) < 2 for elements in done.values()):
            queue = slurm.queue()
            self.assertTrue(any(job.startswith(f"{array}_") for job in queue), f"all tasks have ended too early: {done}")
            running = [(element, process) for element, process in self.processes(folder).items() if queue.get(f"{array}_{element}") == "RUNNING"]
            for element, process in running:
                way = min(done, key=lambda name: len(done[name]))
                if element in tried or len(done[way]) >= 2:
                    continue
                tried.add(element)
                try:
                    act(way, element, process)
                except (FileNotFoundError, ProcessLookupError):
                    continue  # has just ended
                done[way].append(element)
            time.sleep(0.05)
        return done

    def test_table_is_that_of_an_undisturbed_run(self):
        undisturbed, disturbed = self.expand("undisturbed", STEPS), self.expand("disturbed", STEPS)
        palpate("job", "run", undisturbed, "--tasks", "all")
        with local_slurm.LocalSlurm(cpus=2) as slurm:
            submitted = json.loads(palpate("--json", "job", "submit", disturbed, "--slurm", "--submit", "--retries", 2, "--grace", 30,
                                           environment=slurm.environment))
            self.assertEqual((submitted["tasks"], submitted["processes"]), (TASKS, TASKS))
            done = self.disturb(slurm, disturbed, submitted["array_job"])
            slurm.wait_for("the end of all jobs", lambda: not slurm.queue(), limit_s=LIMIT_S)
            logs = {path.stem: path.read_text() for path in (disturbed / "slurm").glob("*.log")}
            ended = slurm.call("scontrol", "--oneliner", "show", "job", submitted["collect_job"]).stdout
            self.assertRegex(ended, r"JobState=COMPLETED ", logs.get("collect"))
        palpate("job", "collect", undisturbed, "-o", self.folder / "undisturbed.csv")
        palpate("job", "collect", disturbed, "-o", self.folder / "disturbed.csv")
        table = (self.folder / "disturbed.csv").read_bytes()
        self.assertEqual(table, (self.folder / "undisturbed.csv").read_bytes())
        self.assertEqual(len(table.splitlines()), TASKS + 1)
        # What was done to them has happened.
        for element in done["killed"]:
            self.assertIn("ended with status 137; attempt 2 of 3", logs[f"{submitted['array_job']}_{element}"])
        for element in done["out of time"]:
            self.assertIn("the time limit is near; requeued", logs[f"{submitted['array_job']}_{element}"])
        for element in done["requeued"]:
            self.assertIn("DUE TO JOB REQUEUE", logs[f"{submitted['array_job']}_{element}"])
        for element in done["requeued"] + done["out of time"]:
            summary = json.loads((disturbed / f"task-{element:06d}/summary.json").read_text())
            log = logs[f"{submitted['array_job']}_{element}"]
            self.assertEqual(summary["provenance"]["interruptions"], 1, f"{done}, element {element}:\n{log}")  # saved, and gone on from there

    def test_elements_share_out_the_tasks(self):
        folder = self.expand("shared", 1)
        palpate("job", "submit", folder, "--slurm", "--tasks-per-process", 6, "--palpate", "echo ran", "-o", self.folder / "scripts")
        script = (self.folder / "scripts/array.sbatch").read_text()
        last = int(re.search(r"^#SBATCH --array=0-(\d+)$", script, re.MULTILINE)[1])
        ran = [subprocess.run(["bash", self.folder / "scripts/array.sbatch"], capture_output=True, text=True, check=True,
                              env={**os.environ, "SLURM_ARRAY_TASK_ID": str(element)}).stdout.split() for element in range(last + 1)]
        self.assertEqual(ran, [["ran", "job", "run", str(folder), "--tasks", tasks] for tasks in ("0-5", "6-11", "12-15")])

    def test_script_waits_until_its_process_has_saved(self):
        folder = self.expand("asked", 1)
        sleeper = self.folder / "sleeper"
        sleeper.write_text(f"#!/usr/bin/env bash\ntrap 'sleep 0.3; touch {self.folder}/saved; exit 4' TERM\ntouch {self.folder}/runs\n"
                        "while :; do sleep 0.01; done\n")
        sleeper.chmod(0o755)
        palpate("job", "submit", folder, "--slurm", "--palpate", str(sleeper), "-o", self.folder / "scripts")
        for _ in range(4):
            for name in ("runs", "saved"):
                (self.folder / name).unlink(missing_ok=True)
            script = subprocess.Popen(["bash", self.folder / "scripts/array.sbatch"], env={**os.environ, "SLURM_ARRAY_TASK_ID": "0"})
            wait_while(lambda: not (self.folder / "runs").exists())
            for _ in range(40):  # some of them while the trap of another runs, or before a wait
                script.send_signal(signal.SIGTERM)
                time.sleep(0.0005)
            status_of_script = script.wait(timeout=60)
            self.assertTrue((self.folder / "saved").exists(), "the script has ended before its process")
            self.assertIn(status_of_script, (4, 128 + signal.SIGTERM))

    def test_what_it_writes_is_what_was_asked_for(self):
        folder = self.expand("a 'quoted' $folder 100%", 1)
        palpate("job", "submit", folder, "--slurm", "--at-once", 8, "--cpus", 4, "--memory", 1.5, "--gpus", 2, "--time", "1-00:00:00", "--partition", "gpu",
                "--account", "lab", "--grace", 90, "--sbatch=--qos=low", "--sbatch=--nice", "--name", "livers")
        script = (folder / "slurm/array.sbatch").read_text()
        for line in (f"--array=0-{TASKS - 1}%8", "--requeue", "--open-mode=append", "--signal=B:USR1@90", "--cpus-per-task=4", "--mem=1536M", "--gres=gpu:2",
                     "--time=1-00:00:00", "--partition=gpu", "--account=lab", "--qos=low", "--nice", "--job-name=livers",
                     f"--output=\"{str(folder).replace('%', '%%')}/slurm/\"%A_%a.log"):
            self.assertIn(f"#SBATCH {line}\n", script)
        shown = subprocess.run(["bash", "-c", f"{re.search(r'^folder=.*$', script, re.MULTILINE)[0]}; printf %s \"$folder\""], capture_output=True, text=True)
        self.assertEqual(shown.stdout, str(folder))

    def test_odd_paths_are_taken(self):
        folder = self.expand("a b's \"c\" 100% $d #e", 1)
        logs = self.folder / "logs of \"all\" 50%"
        with local_slurm.LocalSlurm(cpus=2) as slurm:
            palpate("job", "submit", folder, "--slurm", "--submit", "-o", logs, "--tasks-per-process", TASKS, environment=slurm.environment)
            slurm.wait_for("the end of all jobs", lambda: not slurm.queue(), limit_s=LIMIT_S)
        self.assertEqual(sorted(path.suffix for path in logs.iterdir()), [".log", ".log", ".sbatch", ".sbatch"])
        palpate("job", "collect", folder, "-o", self.folder / "table.csv")

    def test_bad_input_is_refused(self):
        folder = self.expand("refused", 1)
        for arguments, message in (((), "give one of --slurm and --kubernetes"), (("--slurm", "--kubernetes"), "give one of"),
                                   (("--slurm", "--partition", "a b"), "--partition: 'a b'"), (("--slurm", "--sbatch=qos"), "--sbatch: 'qos'"),
                                   (("--slurm", "--palpate", "a\nb"), "--palpate: holds a control character"),
                                   (("--slurm", "-o", self.folder / "a\nb"), "--output: holds a control character"),
                                   (("--slurm", "-o", self.folder / "a\\b"), "with a backslash in its name"),
                                   (("--kubernetes", "--name", "Livers"), "--name: 'Livers' is no name for Kubernetes"),
                                   (("--kubernetes", "--claim", "-x"), "--claim: '-x'"), (("--slurm", "--tasks-per-process", "0"), "--tasks-per-process")):
            refused = subprocess.run([PALPATE, "job", "submit", folder, *arguments], capture_output=True, text=True)
            self.assertNotEqual(refused.returncode, 0, arguments)
            self.assertIn(message, refused.stderr)
        (folder / "manifest.json").write_text('{"format": 1}')
        for place, message in ((folder, "its manifest has no tasks"), (self.folder / "nowhere", "palpate job expand")):
            refused = subprocess.run([PALPATE, "job", "submit", place, "--slurm"], capture_output=True, text=True)
            self.assertEqual(refused.returncode, 1)
            self.assertIn(message, refused.stderr)


if __name__ == "__main__":
    PALPATE, ROOT = sys.argv[1], pathlib.Path(sys.argv[2])
    if packages := local_slurm.missing():
        print(f"skipped: no Slurm here; Debian packages: {' '.join(packages)}")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
