#!/usr/bin/env python3
"""The image of the Dockerfile, built from this checkout's programs and run as it is shipped: its own user and command, nothing of its root writable.
usage: image_test.py REPOSITORY_ROOT BUILD_FOLDER

Says that it skips (status 77) where podman cannot run a container at all."""
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import yaml

ROOT, BUILD = pathlib.Path(), pathlib.Path()
SKIPPED = 77
INTERRUPTED = 4  # exit status of `palpate job run`
IMAGE, BASE = "localhost/palpate-server:test", "localhost/palpate-base:bookworm"
SHARE = "/usr/local/share/palpate"
# The container's root is read-only, it may do nothing that an ordinary process may not, and it has no network but its own loopback.
CONFINED = ["--network", "none", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
ENGINE = []


def run(*command, check=True, **options):
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    if check and result.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: status {result.returncode}\n{result.stdout[-3000:]}\n{result.stderr[-3000:]}")
    return result


def podman(*arguments, **options):
    return run(*ENGINE, *arguments, **options)


def limits():
    """Within those of this process: podman would raise them, which not every machine allows."""
    def within(kind, most):
        hard = resource.getrlimit(kind)[1]
        return most if hard == resource.RLIM_INFINITY else min(hard, most)

    return [f"--ulimit={name}={most}:{most}" for name, most in (("nofile", within(resource.RLIMIT_NOFILE, 8192)),
                                                               ("nproc", within(resource.RLIMIT_NPROC, 4096)))]


def find_engine(folder):
    """A podman of our own (its images and containers are in `folder`) that can run a container; else why there is none."""
    if os.geteuid() != 0:
        return None, "the base image is made by debootstrap, which needs root"
    for program in ("podman", "debootstrap"):
        if shutil.which(program) is None:
            return None, f"there is no {program} (Debian package of this name)"
    reasons = []
    for runtime in filter(shutil.which, ("runc", "crun")):
        engine = ["podman", "--root", str(folder / "store"), "--runroot", str(folder / "run"), "--runtime", runtime, "--cgroup-manager", "cgroupfs"]
        ENGINE[:] = engine
        os.environ.update(PALPATE_CONTAINER_ENGINE=" ".join(engine), BUILDAH_ISOLATION="chroot")
        if not reasons:
            build_image()
        tried = podman("run", "--rm", *limits(), *CONFINED, "--entrypoint", "true", IMAGE, check=False)
        if tried.returncode == 0:
            return engine, None
        reasons.append(f"{runtime}: {tried.stderr.strip().splitlines()[-1]}")
    return None, "no container runs here: " + "; ".join(reasons or ["neither runc nor crun is installed"])


def build_image():
    """By the script that users call. The base image of an earlier run is good enough; everything of ours is new."""
    base = ["--base", BASE] if podman("image", "exists", BASE, check=False).returncode == 0 else ["--bootstrap"]
    run(ROOT / "deploy/image.sh", *base, "--prebuilt", BUILD, "--tag", IMAGE)


class Container:
    """`with Container(...) as container:` it runs; at the end it is gone."""

    def __init__(self, *arguments, options=(), entrypoint=None):
        replaced = ["--entrypoint", json.dumps(entrypoint)] if entrypoint else []
        self.name = podman("run", "--detach", *limits(), *CONFINED, *options, *replaced, IMAGE, *arguments).stdout.strip().splitlines()[-1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        podman("rm", "--force", "--time", "0", self.name, check=False)

    def call(self, *command, check=True):
        return podman("exec", self.name, *command, check=check)

    def log(self):
        result = podman("logs", self.name, check=False)
        return result.stdout + result.stderr

    def state(self):
        return json.loads(podman("inspect", self.name).stdout)[0]["State"]

    def wait_for(self, what, ready, limit_s=300):
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            if answer := ready():
                return answer
            if not self.state()["Running"]:
                raise AssertionError(f"{what}: the container has ended: {self.log()[-3000:]}")
            time.sleep(0.3)
        raise AssertionError(f"{what}: not within {limit_s} s: {self.log()[-3000:]}")

    def page(self, path):
        """What the HTTP port answers; the image has a shell but no program for this."""
        script = f"exec 3<>/dev/tcp/127.0.0.1/8080 && printf 'GET {path} HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n' >&3 && cat <&3"
        return self.call("bash", "-c", script, check=False).stdout


class ImageTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=BUILD)
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def volume(self, name, source=None):
        """A folder that the image's user may write, at its place in the container."""
        path = self.folder / name
        if source and source.exists():
            shutil.copytree(source, path)
        path.mkdir(exist_ok=True)
        run("chown", "-R", "10001:10001", path)
        return path

    def caches(self):
        """Kernels that this machine has compiled before, here or for other tests, are not compiled again."""
        kept, of_others = BUILD / "image-kernel-cache", BUILD / "kernel-cache/pocl"
        if not kept.exists() and of_others.exists():
            try:
                shutil.copytree(of_others, self.folder / "cache/pocl")
            except shutil.Error:
                pass  # tests that run beside this one have renamed files
        return ["--volume", f"{self.volume('cache', kept)}:/var/cache/palpate"]

    def keep_caches(self):
        kept = BUILD / "image-kernel-cache"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(self.folder / "cache", kept)

    def step_of(self, container, scene):
        return int(json.loads(container.call("palpate", "--json", "scene", "show", scene).stdout)["scene"]["step"])

    def test_it_holds_what_the_list_says_and_nothing_is_missing(self):
        wanted = set(re.search(r"^\[runtime\]\n(.*?)(?=^\[|\Z)", (ROOT / "deploy/packages.txt").read_text(), re.MULTILINE | re.DOTALL)[1].split())
        of_base = set(podman("run", "--rm", *limits(), *CONFINED, BASE, "apt-mark", "showmanual").stdout.split())
        with Container(entrypoint=["sleep", "infinity"]) as container:
            self.assertEqual(set(container.call("apt-mark", "showmanual").stdout.split()) - of_base, wanted)
            for program in ("palpate", "palpate-server", "palpate-station"):
                libraries = container.call("ldd", f"/usr/local/bin/{program}").stdout
                self.assertIn("libc.so", libraries)
                self.assertNotIn("not found", libraries)
                self.assertNotIn("libTK", libraries, "OpenCASCADE stays outside")
            # An ordinary user, to whom nothing belongs but the folder of compiled kernels.
            self.assertEqual(container.call("id", "-u").stdout.strip(), "10001")
            self.assertNotEqual(container.call("touch", "/usr/local/bin/palpate", check=False).returncode, 0)
            for scene in sorted((ROOT / "scenes").glob("*.json")):
                container.call("palpate", "scene", "check", f"{SHARE}/scenes/{scene.name}")
            # Files of NURBS are read; those of CAD programs are to be converted elsewhere.
            container.call("palpate", "nurbs", "shape", "sphere", "-o", "/tmp/ball.nurbs.json")
            self.assertIn("closed      yes", container.call("palpate", "nurbs", "info", "/tmp/ball.nurbs.json").stdout)
            refused = container.call("palpate", "nurbs", "import", "/tmp/part.step", "-o", "/tmp/part.nurbs.json", check=False)
            self.assertIn("libocct-data-exchange-dev", refused.stderr)

    def test_server_becomes_healthy_and_ends_in_order(self):
        options = [*self.caches(), "--volume", f"{self.volume('scenes')}:/var/lib/palpate"]
        with Container(options=options) as container:  # the command is the image's own
            container.wait_for("health", lambda: " 200 " in container.page("/healthz").partition("\n")[0])
            # What the image itself asks, and that the viewer is served.
            self.assertEqual(podman("healthcheck", "run", container.name, check=False).returncode, 0)
            self.assertIn("<title>", container.page("/"))
            self.assertIn("palpate-server", container.call("cat", "/proc/1/comm").stdout)
            container.wait_for("steps", lambda: self.step_of(container, "liver") > 20)
            step = self.step_of(container, "liver")
            podman("stop", "--time", "30", container.name)  # SIGTERM; the container's command is its first process
            self.assertEqual((container.state()["ExitCode"], container.state()["Running"]), (0, False), container.log()[-3000:])
            self.keep_caches()
        # Another container has the scene where the first one left it.
        with Container(options=options) as container:
            container.wait_for("health", lambda: " 200 " in container.page("/healthz").partition("\n")[0])
            self.assertGreaterEqual(self.step_of(container, "liver"), step)

    def test_pods_of_a_job_run_interrupted_and_again(self):
        """The commands of `palpate job submit --kubernetes`, with its index in the environment as Kubernetes has it."""
        volume = self.volume("volume")
        (volume / "scene.json").write_text(json.dumps({
            "bodies": [{"name": "block", "generator": {"slab": {"size_m": {"x": 0.05, "y": 0.05, "z": 0.02}}, "edge_length_m": 0.008},
                        "fixed": [{"box": {"min_m": {"x": -1, "y": -1, "z": -0.011}, "max_m": {"x": 1, "y": 1, "z": -0.0099}}}]}]}))
        (volume / "sweep.json").write_text(json.dumps({
            "scene_file": "scene.json", "stop": {"steps": 1200}, "probes": ["energy.elastic", "state_hash"],
            "sweep": {"grid": [{"field": "bodies[block].material.young_modulus_pa", "values": [3000, 4000, 5000]}]}}))
        palpate = BUILD / "bin/palpate"
        run(palpate, "job", "expand", volume / "sweep.json", "-o", volume / "tasks")
        run(palpate, "job", "submit", volume / "tasks", "--kubernetes", "--tasks-per-process", 2, "--claim-path", "tasks", "-o", self.folder / "manifests")
        job, collect = (yaml.safe_load((self.folder / f"manifests/{name}.yaml").read_text())["spec"] for name in ("job", "collect"))
        self.assertEqual(job["completions"], 2)
        run("chown", "-R", "10001:10001", volume)
        options = [*self.caches(), "--volume", f"{volume}:/job"]

        def pod(spec, *more):
            container = spec["template"]["spec"]["containers"][0]
            return Container(options=[*options, *more], entrypoint=container["command"])

        def status(container):
            podman("wait", container.name)
            return container.state()["ExitCode"]

        first = "--env=JOB_COMPLETION_INDEX=0"
        with pod(job, first) as container:
            container.wait_for("results of the first task", (volume / "tasks/task-000000/probes.csv.part").exists)
            podman("stop", "--time", "60", container.name)
            self.assertEqual(container.state()["ExitCode"], INTERRUPTED, container.log())
        for index in range(job["completions"]):
            with pod(job, f"--env=JOB_COMPLETION_INDEX={index}") as container:
                self.assertEqual(status(container), 0, container.log())
        with pod(collect) as container:
            self.assertEqual(status(container), 0, container.log())
        # The same programs without a container and without an interruption.
        run(palpate, "job", "expand", volume / "sweep.json", "-o", self.folder / "here")
        run(palpate, "job", "run", self.folder / "here", "--tasks", "all", env={**os.environ, "PALPATE_CACHE_DIR": str(BUILD / "kernel-cache")})
        for folder in (volume / "tasks", self.folder / "here"):
            run(palpate, "job", "collect", folder, "-o", folder / "compared.csv")
        self.assertEqual((volume / "tasks/compared.csv").read_bytes(), (self.folder / "here/compared.csv").read_bytes())
        self.keep_caches()


if __name__ == "__main__":
    ROOT, BUILD = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    engine, reason = find_engine(BUILD / "image-test")
    if engine is None:
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    outcome = unittest.main(argv=sys.argv[:1] + sys.argv[3:], exit=False).result
    # The base image stays for the next run; what was built on it would pile up.
    podman("image", "rm", "--force", IMAGE, check=False)
    podman("image", "prune", "--force", check=False)
    sys.exit(not outcome.wasSuccessful())
