#!/usr/bin/env python3
"""Every example runs, small and without a window, and does what it claims."""
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "clients/python/examples"
# Where the figures go if somebody wants to look at them.
FIGURES = os.environ.get("PALPATE_EXAMPLE_FIGURES")


class ExamplesTest(unittest.TestCase):

    def run_example(self, name, *arguments, figure=False):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(FIGURES or folder) / f"{name}.png"
            if figure:
                arguments += ("--output", str(path))
            environment = {**os.environ, "MPLBACKEND": "Agg", "MPLCONFIGDIR": folder}
            done = subprocess.run([sys.executable, str(EXAMPLES / f"{name}.py"), *arguments], capture_output=True, text=True, env=environment,
                                  cwd=folder, check=False)
            self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-4000:])
            if figure:
                self.assertEqual(path.read_bytes()[:8], b"\x89PNG\r\n\x1a\n")
                self.assertGreater(path.stat().st_size, 5000)
            return done.stdout

    def number(self, pattern, text):
        found = re.search(pattern, text)
        self.assertIsNotNone(found, f"{pattern} is not in:\n{text}")
        return float(found.group(1))

    def test_each_has_a_test(self):
        helpers = {"phantoms"}
        names = {path.stem for path in EXAMPLES.glob("*.py")} - helpers
        self.assertEqual(names, {name[len("test_"):] for name in dir(self) if name.startswith("test_")} - {"each_has_a_test", "live_view_in_pyvista"})

    def test_hello(self):
        text = self.run_example("hello")
        forces = [self.number(rf"{depth} mm: ([0-9.]+) N", text) for depth in (0, 2, 4)]
        self.assertLess(forces[0], forces[1])
        self.assertLess(forces[1], forces[2])
        self.assertGreater(forces[2], 0.3)

    def test_indentation_curve(self):
        text = self.run_example("indentation_curve", "--points", "8", "--steps", "4", "--edge-length", "0.01", figure=True)
        force, hertz = self.number(r"mm: ([0-9.]+) N;", text), self.number(r"sphere: ([0-9.]+) N", text)
        # A thin slab on a rigid base is stiffer than a half space, and a coarse mesh stiffer still.
        self.assertGreater(force, hertz)
        self.assertLess(force, 6 * hertz)

    def test_parameter_sweep(self):
        text = self.run_example("parameter_sweep", "--count", "4", "--points", "5", "--steps", "6", figure=True)
        ratios = [float(line.split()[2]) for line in text.splitlines()[1:5]]
        # At rest the force is in proportion to the modulus, but for gravity and what still moves.
        self.assertLess(max(ratios) / min(ratios), 1.5)

    def test_identify_modulus(self):
        for seed in ("1", "2"):
            text = self.run_example("identify_modulus", "--seed", seed)
            self.assertLess(abs(self.number(r"off by ([-+0-9.]+) %", text)), 2, text)

    def test_press_policy(self):
        """As a policy of `palpate job run`, in the words of its line protocol."""
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "PATH": f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
            done = subprocess.run([os.environ["PALPATE_CLI"], "job", "run", str(EXAMPLES / "press_policy.json"), "--output", folder],
                                  capture_output=True, text=True, env=environment, cwd=folder, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            result = pathlib.Path(folder)
            summary = json.loads((result / "summary.json").read_text(encoding="utf-8"))
            self.assertEqual((summary["reason"], summary["detail"]), ("policy", "held 0.3 N for 0.3 s"))
            self.assertRegex((result / "policy.log").read_text(encoding="utf-8"), r"^0\.3 N at [0-9.]+ s$")
            force = {probe["name"]: probe for probe in summary["probes"]}["tool.probe.force.z"]
            self.assertLess(abs(force["final"] - 0.3), 0.006)
            self.assertLess(force["max"], 0.31)  # it never pushed harder

    def test_train_touch(self):
        arguments = ("--seed", "1")
        text = self.run_example("train_touch", *arguments)
        self.assertGreaterEqual(self.number(r"success rate: ([0-9.]+)", text), 0.8, text)
        untrained = self.run_example("train_touch", "--rounds", "1", *arguments)
        self.assertLess(self.number(r"success rate: ([0-9.]+)", untrained), 0.3, untrained)
        # The same seed gives the same numbers: the first round is the same in both.
        self.assertEqual(text.splitlines()[0], untrained.splitlines()[0])

    def test_controller_1khz(self):
        text = self.run_example("controller_1khz", "--seconds", "3.5", figure=True)
        self.assertGreater(self.number(r"(\d+) ticks", text), 100)
        # Of 0.2 N and 0.6 N by turns; how well it follows depends on the machine.
        self.assertLess(self.number(r"off target by ([0-9.]+) N", text), 0.2)
        self.assertGreater(self.number(r"the solver's at the end ([-0-9.]+) N", text), 0)

    def test_cut_and_measure(self):
        text = self.run_example("cut_and_measure", "--cuts", "2", "--steps", "20", figure=True)
        gapes = [float(gape) for gape in re.findall(r"gapes +([0-9.]+) mm", text)]
        self.assertEqual(len(gapes), 2)
        self.assertLess(0.02, gapes[0])
        self.assertLess(gapes[0], gapes[1])
        self.assertGreater(self.number(r"(\d+) triangles of cut surface", text), 10)
        self.assertLess(abs(self.number(r"changed by ([-+0-9.]+) %", text)), 0.1)

    def test_live_view(self):
        text = self.run_example("live_view", "--frames", "5", "--library", "matplotlib", figure=True)
        self.assertIn("5 pictures of 1 bodies", text)

    @unittest.skipUnless(importlib.util.find_spec("pyvista") and os.environ.get("DISPLAY"), "needs PyVista and an X server")
    def test_live_view_in_pyvista(self):
        text = self.run_example("live_view", "--frames", "5", "--library", "pyvista", figure=True)
        self.assertIn("5 pictures of 1 bodies", text)


if __name__ == "__main__":
    unittest.main()
