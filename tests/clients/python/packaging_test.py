#!/usr/bin/env python3
"""The wheel is built from the checkout without a network, holds what it should, works in a fresh environment; the sources pass mypy."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
SOURCES = ROOT / "clients/python"
USE = """
import importlib.metadata, pathlib, palpate
assert importlib.metadata.version("palpate") == palpate.__version__
print(pathlib.Path(palpate.__file__).parent)
b = palpate.SceneBuilder().body("s", "slab", {"size_m": (0.04, 0.04, 0.02)}, edge_length_m=0.01).fixed_below(-0.0099)
with palpate.launch() as server, server.create(b) as scene:
    print(scene.step(2).step)
"""


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command[0]} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout


class WheelTest(unittest.TestCase):

    def test_built_installed_and_used(self):
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        with tempfile.TemporaryDirectory() as folder:
            # A copy: setuptools leaves build/ and palpate.egg-info in what it builds from.
            tree = pathlib.Path(folder) / "tree"
            shutil.copytree(SOURCES, tree / "clients/python", ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
            shutil.copytree(ROOT / "proto", tree / "proto")
            run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, tree / "clients/python", env=environment)
            wheels = list(pathlib.Path(folder).glob("*.whl"))
            self.assertEqual(len(wheels), 1)
            with zipfile.ZipFile(wheels[0]) as wheel:
                names = set(wheel.namelist())
                metadata = wheel.read(next(name for name in names if name.endswith("METADATA"))).decode()
            sources = {f"palpate/{path.name}" for path in (SOURCES / "palpate").iterdir() if path.suffix == ".py" or path.name == "py.typed"}
            protos = {f"palpate/v1/{path.stem}_pb2.py" for path in (ROOT / "proto/palpate/v1").glob("*.proto")}
            self.assertLessEqual(sources | protos | {"palpate/v1/__init__.py"}, names)
            self.assertEqual([], [name for name in names if not name.startswith(("palpate/", "palpate-"))])
            for wanted in ("grpcio<2,>=1.51", "protobuf<7,>=4.21", "numpy<3,>=1.24"):
                self.assertIn(f"Requires-Dist: {wanted}", metadata.replace(" (", "").replace(")", ""))
            fresh = pathlib.Path(folder) / "fresh"
            run(sys.executable, "-m", "venv", "--system-site-packages", fresh, env=environment)
            run(fresh / "bin/python", "-m", "pip", "install", "--no-index", "--no-deps", wheels[0], env=environment)
            place, steps = run(fresh / "bin/python", "-c", USE, cwd=folder, env=environment).split()
            self.assertTrue(place.startswith(str(fresh)), place)
            self.assertEqual(steps, "2")


class TypeTest(unittest.TestCase):

    def test_mypy(self):
        with tempfile.TemporaryDirectory() as folder:
            mypy = shutil.which("mypy", path="/usr/bin:" + os.environ.get("PATH", ""))
            self.assertIsNotNone(mypy, "mypy is missing (Debian package mypy)")
            run(mypy, "--config-file", SOURCES / "pyproject.toml", "--cache-dir", folder, "-p", "palpate", cwd=os.environ["PYTHONPATH"])


if __name__ == "__main__":
    unittest.main()
