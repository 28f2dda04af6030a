#!/usr/bin/env python3
"""Runs the commands of docs/getting-started.md in order, as they stand there, on an organ made here. usage: getting_started_test.py PALPATE SOURCE_FOLDER"""
import json
import math
import os
import pathlib
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import unittest

PALPATE, SOURCE = "", pathlib.Path()
HAND_S = 8  # long enough for the simulated hand to come down on the organ


def organ_stl(radii_mm=(60, 40, 30), turns=24, rings=12):
    """Binary STL of an ellipsoid in millimetres."""
    def corner(ring, turn):
        if ring in (0, rings):
            turn = 0
        polar, azimuth = math.pi * ring / rings, 2 * math.pi * (turn % turns) / turns
        return (radii_mm[0] * math.sin(polar) * math.cos(azimuth), radii_mm[1] * math.sin(polar) * math.sin(azimuth),
                radii_mm[2] * (1 if ring == 0 else -1 if ring == rings else math.cos(polar)))
    triangles = []
    for ring in range(rings):
        for turn in range(turns):
            a, b, c, d = corner(ring, turn), corner(ring + 1, turn), corner(ring + 1, turn + 1), corner(ring, turn + 1)
            triangles += ([(a, b, c)] if ring < rings - 1 else []) + ([(a, c, d)] if ring > 0 else [])
    out = b"\0" * 80 + struct.pack("<I", len(triangles))
    for triangle in triangles:
        out += struct.pack("<12fH", 0, 0, 0, *(0.0 if abs(x) < 1e-9 else x for vertex in triangle for x in vertex), 0)
    return out


class GettingStarted(unittest.TestCase):
    def test_every_command_of_the_page(self):
        page = (SOURCE / "docs" / "getting-started.md").read_text()
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "organ.stl").write_bytes(organ_stl())
            files = {m.group(1): m.group(2) for m in re.finditer(r"`([\w-]+\.json)`:\n\n```json\n(.*?)```", page, re.DOTALL)}
            self.assertTrue(files)
            for file, text in files.items():
                (folder / file).write_text(text)
            commands = re.findall(r"^    (\S.*)$", re.sub(r"```.*?```", "", page, flags=re.DOTALL), re.MULTILINE)
            self.assertGreater(len(commands), 6)
            felt = 0
            for command in commands:
                with self.subTest(command):
                    program, verb, *arguments = shlex.split(command)
                    self.assertEqual(program, "./run")
                    self.assertIn(verb, ("palpate", "demo"))
                    report = folder / "report.json"
                    if verb == "demo":  # what `./run demo` passes on, and an end
                        arguments = ["demo", "--scene", SOURCE / "scenes" / "liver.json", *arguments, "--headless", "--seconds", HAND_S, "--report", report]
                    result = subprocess.run([PALPATE, *map(str, arguments)], capture_output=True, text=True, timeout=300, cwd=folder, stdin=subprocess.DEVNULL,
                                            env=dict(os.environ, TMPDIR=name))
                    self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
                    if verb == "demo":
                        self.assertGreater(json.loads(report.read_text())["station"]["contact_cycles"], 0, "the hand must have felt the organ")
                        felt += 1
            self.assertEqual(felt, 3)
            self.assertIn("--scale 0.001", subprocess.run([PALPATE, "mesh", "info", "organ.stl"], capture_output=True, text=True, timeout=300, cwd=folder).stderr)


if __name__ == "__main__":
    PALPATE, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
    unittest.main(argv=sys.argv[:1])
