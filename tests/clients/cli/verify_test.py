#!/usr/bin/env python3
"""Runs `palpate verify` on files it makes, and on the public data where PALPATE_DATA_DIR has them. usage: verify_test.py PALPATE"""
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unittest

PALPATE = ""
DATA = os.environ.get("PALPATE_DATA_DIR")
FAILED, USAGE = 1, 2


def run(*arguments):
    return subprocess.run([PALPATE, *map(str, arguments)], capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL)


def rows(points, truth=None):
    """Rows of one query; points are 8 triples of (numerator, denominator)."""
    end = "" if truth is None else f",{truth}"
    return "".join(",".join(f"{n},{d}" for n, d in point) + end + "\n" for point in points)


def falling_vertex(end_z):
    """A vertex that falls from z = 1 to end_z, over a static triangle at z = 0."""
    triangle = [((0, 1), (0, 1), (0, 1)), ((4, 1), (0, 1), (0, 1)), ((0, 1), (4, 1), (0, 1))]
    return [((1, 1), (1, 1), (1, 1)), *triangle, ((1, 1), (1, 1), end_z), *triangle]


def ply(positions, triangles, kind="f", order="<"):
    name = {"f": "float", "d": "double"}[kind]
    endian = {"<": "little", ">": "big"}[order]
    header = f"ply\nformat binary_{endian}_endian 1.0\nelement vertex {len(positions)}\n" + "".join(f"property {name} {axis}\n" for axis in "xyz")
    header += f"element face {len(triangles)}\nproperty list uchar int vertex_indices\nend_header\n"
    return header.encode() + b"".join(struct.pack(f"{order}3{kind}", *p) for p in positions) + b"".join(struct.pack(f"{order}B3i", 3, *t) for t in triangles)


class VerifyTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def ok(self, *arguments):
        result = run("verify", *arguments)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout

    def fails(self, status, *arguments):
        result = run("verify", *arguments)
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        self.assertTrue(result.stderr.startswith("palpate: "), result.stderr)
        return result.stderr


class Queries(VerifyTest):
    def test_seven_columns(self):
        path = self.write("some_vf.csv", rows(falling_vertex((-1, 1)), 1) + rows(falling_vertex((1, 2)), 0) + rows(falling_vertex((0, 1)), 1) +
                          rows(falling_vertex((1, 10**200)), 0))
        self.assertRegex(self.ok("ccd-queries", path), r"some_vf\.csv: queries=4 missed=0 false=0 colliding=2 inexact=1 mean_us=")
        self.assertRegex(self.ok("ccd-queries", path, "--float"), "queries=4 missed=0")
        said = json.loads(self.ok("ccd-queries", path, "--json"))
        self.assertEqual((said["queries"], said["missed"], said["false"]), (4, 0, 0))

    def test_six_columns(self):
        path = self.write("vertex-face.csv", rows(falling_vertex((-1, 1))) + rows(falling_vertex((1, 3))))
        truth = self.write("truth.json", "[true,false]")
        self.assertIn("queries=2 missed=0 false=0", self.ok("ccd-queries", path, "--truth", truth))
        self.assertIn("needs --truth", self.fails(USAGE, "ccd-queries", path))
        self.assertIn("1 answers for the 2 queries", self.fails(USAGE, "ccd-queries", path, "--truth", self.write("short.json", "[true]")))

    def test_kind(self):
        path = self.write("unnamed.csv", rows(falling_vertex((-1, 1)), 1))
        self.assertIn("--kind", self.fails(USAGE, "ccd-queries", path))
        self.assertIn("missed=0 false=0", self.ok("ccd-queries", path, "--kind", "vf"))

    def test_a_missed_collision_fails(self):
        # The truth is wrong on purpose: no detector may find this.
        path = self.write("wrong_vf.csv", rows(falling_vertex((1, 2)), 1))
        result = run("verify", "ccd-queries", path)
        self.assertEqual(result.returncode, FAILED)
        self.assertIn("missed=1", result.stdout)

    def test_unusable_files(self):
        good = rows(falling_vertex((-1, 1)), 1)
        for content in ("", good[:-30], good + "1,2,3\n", good.replace("1", "x", 1), "\0\xff" * 1000, rows(falling_vertex((1, 0)), 1),
                        rows(falling_vertex(("7" * 5000, 1)), 1), rows(falling_vertex((10**400, 1)), 1), good.replace(",1\n", ",7\n")):
            with self.subTest(content[:40]):
                message = self.fails(USAGE, "ccd-queries", self.write("bad_vf.csv", content))
                self.assertIn("bad_vf.csv", message)
        self.fails(USAGE, "ccd-queries", self.folder / "none_vf.csv")
        self.fails(USAGE, "ccd-queries", "--kind", "vf", self.folder)

    @unittest.skipUnless(DATA, "PALPATE_DATA_DIR is not set")
    def test_public_queries(self):
        data = pathlib.Path(DATA) / "ccd"
        files = sorted(data.glob("queries/*/*/*.csv"))
        if not files:
            self.skipTest("no queries in PALPATE_DATA_DIR")
        lines = self.ok("ccd-queries", *files).splitlines()
        self.assertEqual(len(lines), len(files))
        # 4,735 queries, some of them an ulp apart. More false reports than this mean that a direction got lost.
        self.assertLessEqual(sum(int(re.search(r"false=(\d+)", line)[1]) for line in lines), 12)
        for scene, kind in (("cloth-funnel", "227vf"), ("cloth-funnel", "227ee"), ("n-body-simulation", "18vf")):
            folder = data / "scenes" / scene
            if folder.exists():
                said = self.ok("ccd-queries", folder / "queries" / f"{kind}.csv", "--truth", folder / "mma_bool" / f"{kind}_mma_bool.json")
                self.assertIn(" missed=0 false=0 ", said)


class MeshPair(VerifyTest):
    START = [(0, 0, 0), (4, 0, 0), (0, 4, 0), (1, 1, 1), (1, 5, 3), (5, 1, 3)]
    END = START[:3] + [(1, 1, -1), (1, 5, 3), (5, 1, 3)]
    TRIANGLES = [(0, 1, 2), (3, 4, 5)]

    def frames(self, **options):
        return self.write("0.ply", ply(self.START, self.TRIANGLES, **options)), self.write("1.ply", ply(self.END, self.TRIANGLES, **options))

    def test_one_vertex_through_a_triangle(self):
        # Ids: 6 vertices, 6 edges by (larger, smaller) vertex, 2 faces.
        vf = self.write("vf.json", "[[3,12],[4,12]]")
        vf_truth = self.write("vf_truth.json", "[true,false]")
        for options in ({}, {"kind": "d"}, {"order": ">"}):
            with self.subTest(options):
                said = self.ok("mesh-pair", *self.frames(**options), "--vf", self.write("one.json", "[[3,12]]"), "--vf-truth",
                               self.write("one_truth.json", "[true]"))
                self.assertRegex(said, r"vf: candidates=\d+ undecided=1 hits=1 required=1 missing=0 colliding=1 missed=0 false=0")
                toi = float(re.search(r"earliest_toi=(\S+)", said)[1])
                self.assertTrue(0.499 < toi <= 0.5, toi)
        # A pair that is nowhere near is missing among the candidates.
        result = run("verify", "mesh-pair", *self.frames(), "--vf", vf, "--vf-truth", vf_truth)
        self.assertEqual(result.returncode, FAILED)
        self.assertIn("missing=1", result.stdout)
        said = json.loads(self.ok("mesh-pair", *self.frames(), "--json"))
        self.assertEqual(said["vf"]["hits"], 1)
        self.assertNotIn("missing", said["vf"])

    def test_unusable_files(self):
        start, end = self.frames()
        other = self.write("other.ply", ply(self.START, [(0, 1, 2)]))
        self.assertIn("no two frames of one mesh", self.fails(USAGE, "mesh-pair", start, other))
        cut = self.write("cut.ply", start.read_bytes()[:-3])
        self.assertIn("cut.ply", self.fails(USAGE, "mesh-pair", cut, end))
        self.assertIn("not finite", self.fails(USAGE, "mesh-pair", start, self.write("nan.ply", ply(self.START[:5] + [(0, float("nan"), 0)], self.TRIANGLES))))
        for pairs in ("[[0,99]]", "[[3,6]]", "[[12,13]]", "[3,12]", "[[3,12]"):
            self.fails(USAGE, "mesh-pair", start, end, "--vf", self.write("pairs.json", pairs))
        self.assertIn("without the pairs", self.fails(USAGE, "mesh-pair", start, end, "--vf-truth", self.write("t.json", "[]")))
        degenerate = self.write("degenerate.ply", ply(self.START, [(0, 0, 1)]))
        self.assertIn("degenerate.ply", self.fails(USAGE, "mesh-pair", degenerate, degenerate))

    @unittest.skipUnless(DATA, "PALPATE_DATA_DIR is not set")
    def test_public_scenes(self):
        scenes = pathlib.Path(DATA) / "ccd" / "scenes"
        for scene, start, end, step in (("cloth-funnel", "227", "228", "227"), ("cloth-ball", "cloth_ball92", "cloth_ball93", "92"),
                                        ("n-body-simulation", "balls16_18", "balls16_19", "18")):
            folder = scenes / scene
            if not folder.exists():
                continue
            with self.subTest(scene):
                said = json.loads(self.ok("mesh-pair", folder / "frames" / f"{start}.ply", folder / "frames" / f"{end}.ply", "--json",
                                          *(word for kind in ("vf", "ee") for word in (
                                              f"--{kind}", folder / "boxes" / f"{step}{kind}.json",
                                              f"--{kind}-truth", folder / "mma_bool" / f"{step}{kind}_mma_bool.json"))))
                for kind in ("vf", "ee"):
                    self.assertEqual((said[kind]["missing"], said[kind]["missed"], said[kind]["false"]), (0, 0, 0))
                    self.assertGreater(said[kind]["colliding"], 0)


if __name__ == "__main__":
    PALPATE = sys.argv.pop(1)
    unittest.main()
