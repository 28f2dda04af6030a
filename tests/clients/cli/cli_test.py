#!/usr/bin/env python3
"""Runs the palpate program on files, without a server. usage: cli_test.py PALPATE SCENES_FOLDER"""
import gzip
import json
import math
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

PALPATE = ""
SCENES = pathlib.Path()

LEAVES = ["scene check", "scene from-mesh", "scene create", "scene list", "scene show", "scene delete", "scene play", "scene pause", "scene step", "scene reset", "scene rate",
          "watch", "export", "edit", "mesh info", "mesh convert", "mesh from-surface", "mesh from-labels", "mesh generate liver", "mesh generate torus", "mesh generate slab",
          "mesh generate sphere", "mesh generate kidney", "mesh generate knot", "mesh generate sheet", "nurbs info", "nurbs refine", "nurbs tessellate",
          "nurbs shape sphere", "nurbs shape torus", "nurbs shape cylinder", "nurbs shape cone", "nurbs shape vase", "nurbs import", "nurbs export", "devices", "server-info", "demo", "verify ccd-queries", "verify mesh-pair", "verify tissue",
          "record", "replay", "seek", "timeline", "branch", "bookmark", "diff", "job run", "job expand", "job collect", "job check", "job probes", "job submit"]
FAILED, USAGE, UNREACHABLE = 1, 2, 3


def run(*arguments, env=None):
    return subprocess.run([PALPATE, *map(str, arguments)], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, env=env)


def tetrahedron_msh(tets):
    """MSH 2.2 with the corners of a unit tetrahedron."""
    lines = ["$MeshFormat", "2.2 0 8", "$EndMeshFormat", "$Nodes", "4", "1 0 0 0", "2 1 0 0", "3 0 1 0", "4 0 0 1", "$EndNodes", "$Elements", str(len(tets))]
    lines += [f"{i + 1} 4 2 0 1 " + " ".join(map(str, tet)) for i, tet in enumerate(tets)]
    return "\n".join(lines + ["$EndElements", ""])


CUBE_QUADS = [(0, 2, 3, 1), (4, 5, 7, 6), (0, 1, 5, 4), (2, 6, 7, 3), (0, 4, 6, 2), (1, 3, 7, 5)]


def cube_stl(size, open_side=False):
    """Binary STL of an axis-aligned cube, as a scanner writes it: no shared vertices."""
    corner = [(size * (i & 1), size * (i >> 1 & 1), size * (i >> 2 & 1)) for i in range(8)]
    triangles = [t for a, b, c, d in CUBE_QUADS[open_side:] for t in ((a, b, c), (a, c, d))]
    out = b"\0" * 80 + struct.pack("<I", len(triangles))
    for triangle in triangles:
        out += struct.pack("<12fH", 0, 0, 0, *(x for vertex in triangle for x in corner[vertex]), 0)
    return out


def label_nrrd(names=("liver", "tumor")):
    """A ball of radius 15 mm with a ball of 6 mm in it, in voxels of 1 x 1 x 1.5 mm, as a segmentation of 3D Slicer."""
    size, spacing = (36, 36, 24), (1, 1, 1.5)
    voxels = bytearray()
    for k in range(size[2]):
        for j in range(size[1]):
            for i in range(size[0]):
                x, y, z = i - 17.5, j - 17.5, 1.5 * k - 17.25
                voxels.append(2 if (x - 3) ** 2 + y * y + z * z < 36 else 1 if x * x + y * y + z * z < 225 else 0)
    head = f"NRRD0004\ntype: uint8\ndimension: 3\nsizes: {size[0]} {size[1]} {size[2]}\nencoding: gzip\nspace: left-posterior-superior\n"
    head += f"space directions: ({spacing[0]},0,0) (0,{spacing[1]},0) (0,0,{spacing[2]})\nspace origin: (10,20,30)\n"
    for number, name in enumerate(names):
        head += f"Segment{number}_Name:={name}\nSegment{number}_LabelValue:={number + 1}\n"
    return (head + "\n").encode() + gzip.compress(bytes(voxels))


class CliTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def ok(self, *arguments):
        result = run(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def fails(self, status, *arguments):
        """Runs a command that must fail with this status, a message on standard error and nothing on standard output; the message."""
        result = run(*arguments)
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertTrue(result.stderr.strip())
        return result.stderr


class Help(CliTest):
    def test_every_command_explains_itself(self):
        for leaf in LEAVES:
            with self.subTest(leaf):
                text = self.ok(*leaf.split(), "--help")
                self.assertIn(f"Usage: palpate {leaf}", text)
                self.assertIn("Exit status:", text)

    def test_help_lists_every_command(self):
        self.assertEqual({leaf.split()[0] for leaf in LEAVES}, self.commands_in(self.ok("--help")))
        for group in ("scene", "mesh", "mesh generate", "nurbs", "nurbs shape"):
            listed = self.commands_in(self.ok(*group.split(), "--help"))
            self.assertEqual({leaf[len(group):].split()[0] for leaf in LEAVES if leaf.startswith(group + " ")}, listed)

    @staticmethod
    def commands_in(text):
        return set(re.findall(r"^  ([a-z-]+) ", text.split("Subcommands:")[1], re.MULTILINE))

    def test_version(self):
        self.assertRegex(self.ok("--version"), r"^palpate \d+\.\d+\.\d+\n$")


class Usage(CliTest):
    def test_wrong_arguments(self):
        for arguments in ([], ["mesh"], ["nonsense"], ["mesh", "nonsense"], ["mesh", "info"], ["mesh", "info", "a", "b"], ["scene", "step", "x", "0"],
                          ["scene", "step", "x", "-1"], ["scene", "rate", "x", "--speed", "0"], ["watch", "x", "--rate", "fast"],
                          ["mesh", "generate", "liver"], ["mesh", "generate", "liver", "-o", "x.msh", "--edge-length", "-1"],
                          ["mesh", "generate", "liver", "-o", "x.msh", "--edge-length", "0.1", "--tets", "600"], ["--timeout", "0", "server-info"],
                          ["export", "x", "-o", "y", "--format", "doc"], ["nurbs"], ["nurbs", "info"], ["nurbs", "tessellate", "x", "-o", "y.obj"],
                          ["nurbs", "tessellate", "x", "-o", "y.obj", "--tolerance", "0"], ["nurbs", "shape", "sphere", "-o", "x.json", "--radius", "-1"],
                          ["nurbs", "shape", "cube", "-o", "x.json"], ["demo", "--scene", "x", "--headless"], ["--tls-ca", "/nonexistent", "devices"]):
            with self.subTest(arguments):
                self.fails(USAGE, *arguments)

    def test_unknown_command_is_named(self):
        self.assertIn("nonsense", self.fails(USAGE, "nonsense"))
        self.assertIn("nonsense", self.fails(USAGE, "mesh", "nonsense"))


class Mesh(CliTest):
    def generate(self, name="liver.msh", *extra):
        path = self.folder / name
        self.ok("mesh", "generate", "liver", "--edge-length", "0.03", "-o", path, *extra)
        return path

    def info(self, path, *extra):
        return json.loads(self.ok("mesh", "info", path, "--json", *extra))

    def test_generated_meshes_are_what_they_say(self):
        for shape, options, volume in (("sphere", ["--radius", 0.05], 4 / 3 * 3.14159 * 0.05 ** 3), ("slab", ["--size", 0.1, 0.1, 0.02], 0.0002),
                                       ("torus", ["--major-radius", 0.06, "--minor-radius", 0.02], 2 * 3.14159 ** 2 * 0.06 * 0.02 ** 2),
                                       ("knot", ["--tube-radius", 0.016], 3 * 0.016 ** 2 * 1.1), ("knot", ["--open", "--extent", 0.5], 3 * 0.0125 ** 2 * 1.19),
                                       ("sheet", ["--layers", 2], 0.00016), ("kidney", [], 0.91 * 4 / 3 * 3.14159 * 0.5 * 0.29 * 0.2 * 0.11 ** 3)):
            with self.subTest(shape, options=options):
                path = self.folder / f"{shape}.msh"
                said = json.loads(self.ok("mesh", "generate", shape, "--edge-length", "0.008", "-o", path, "--json", *options))
                info = self.info(path)
                self.assertEqual((said["tets"], said["vertices"]), (info["tets"], info["vertices"]))
                self.assertAlmostEqual(info["volume_m3"] / volume, 1, delta=0.06)
                # Euler: V - E + F = 2 - 2 genus, with 2 E = 3 F.
                self.assertEqual(info["surface_vertices"] - info["surface_triangles"] // 2, 0 if shape == "torus" or options[:1] == ["--tube-radius"] else 2)

    def test_a_length_that_is_no_number_is_refused(self):
        output = ["-o", self.folder / "x.msh"]
        for arguments in (["mesh", "generate", "liver", *output, "--edge-length"], ["mesh", "generate", "sphere", *output, "--radius"],
                          ["mesh", "generate", "slab", *output, "--size", "0.1", "0.1"], ["mesh", "convert", "x.msh", *output, "--scale"],
                          ["scene", "rate", "x", "--speed"], ["demo", "--scene", SCENES / "liver.json", "--headless", "--seconds"], ["server-info", "--timeout"]):
            with self.subTest(arguments):
                self.assertIn("nan", self.fails(USAGE, *arguments, "nan"))
                self.fails(USAGE, *arguments, "-nan")

    def test_generators_are_deterministic(self):
        self.assertEqual(self.generate("a.msh").read_bytes(), self.generate("b.msh").read_bytes())

    def test_tets_option(self):
        path = self.folder / "l.msh"
        self.ok("mesh", "generate", "liver", "--tets", "2500", "-o", path)
        self.assertAlmostEqual(self.info(path)["tets"] / 2500, 1, delta=0.1)

    def test_conversion_keeps_the_mesh(self):
        source = self.generate()
        before = self.info(source)
        for name, options in (("a.vtk", []), ("b.vtk", ["--binary"]), ("c.msh", ["--msh-version", "2.2"]), ("d.msh", ["--msh-version", "4.1"])):
            with self.subTest(name):
                target = self.folder / name
                self.ok("mesh", "convert", source, "-o", target, *options)
                self.assertEqual(before, self.info(target))

    def test_surface_of_a_mesh_bounds_the_same_solid(self):
        source = self.generate()
        target = self.folder / "surface.obj"
        self.ok("mesh", "convert", source, "-o", target)
        volume, surface = self.info(source), self.info(target)
        self.assertTrue(surface["bounds_a_solid"])
        self.assertEqual(surface["triangles"], volume["surface_triangles"])
        self.assertAlmostEqual(surface["volume_m3"] / volume["volume_m3"], 1, delta=1e-5)  # assimp keeps floats

    def test_info_measures_a_tetrahedron_known_by_heart(self):
        path = self.write("one.msh", tetrahedron_msh([(1, 2, 3, 4)]))
        info = self.info(path)
        self.assertEqual((info["tets"], info["vertices"], info["surface_triangles"]), (1, 4, 4))
        self.assertAlmostEqual(info["volume_m3"], 1 / 6)
        self.assertAlmostEqual(info["dihedral_deg"]["min"], 54.7356103172)
        self.assertAlmostEqual(info["dihedral_deg"]["max"], 90)
        self.assertAlmostEqual(info["edge_m"]["max"], 2 ** 0.5)
        # inradius 1 / (3 + sqrt 3), circumradius sqrt(3) / 2
        self.assertEqual(set(info["shape"]), {"radius_ratio", "mean_ratio", "solid_angle", "dihedral", "edge_ratio", "inradius_per_edge"})
        self.assertAlmostEqual(info["shape"]["edge_ratio"]["min"], 1 / 2 ** 0.5)
        self.assertAlmostEqual(info["shape"]["radius_ratio"]["min"], 3 / (3 + 3 ** 0.5) / (3 ** 0.5 / 2))
        self.assertIn("1 tets, 4 vertices", self.ok("mesh", "info", path))

    def test_inverted_tet_is_refused_and_can_be_flipped(self):
        path = self.write("inverted.msh", tetrahedron_msh([(1, 3, 2, 4)]))
        self.assertIn("inverted.msh", self.fails(FAILED, "mesh", "info", path))
        self.assertAlmostEqual(self.info(path, "--flip-inverted")["volume_m3"], 1 / 6)

    def test_what_mends_a_mesh_is_named(self):
        inverted = self.write("inverted.msh", tetrahedron_msh([(1, 3, 2, 4)]))
        self.assertIn("palpate mesh convert --flip-inverted", self.fails(FAILED, "mesh", "info", inverted))
        self.ok("mesh", "convert", "--flip-inverted", inverted, "-o", self.folder / "mended.msh")
        self.ok("mesh", "info", self.folder / "mended.msh")
        spare = self.write("spare.msh", tetrahedron_msh([(1, 2, 3, 4)]).replace("$Nodes\n4\n", "$Nodes\n5\n9 7 7 7\n"))
        self.assertIn("palpate mesh convert --drop-unused", self.fails(FAILED, "mesh", "info", spare))
        self.ok("mesh", "convert", "--drop-unused", spare, "-o", self.folder / "mended.msh")
        self.ok("mesh", "info", self.folder / "mended.msh")

    def test_msh_of_the_first_version_is_read(self):
        path = self.write("old.msh", "$NOD\n4\n1 0 0 0\n2 1 0 0\n3 0 1 0\n4 0 0 1\n$ENDNOD\n$ELM\n1\n1 4 1 1 4 1 2 3 4\n$ENDELM\n")
        self.assertAlmostEqual(self.info(path)["volume_m3"], 1 / 6)

    def test_vtk_surfaces_are_told_and_filled(self):
        # The cube again, as VTK writes polydata.
        corners = "\n".join(f"{0.1 * (i & 1)} {0.1 * (i >> 1 & 1)} {0.1 * (i >> 2 & 1)}" for i in range(8))
        quads = "\n".join("4 " + " ".join(map(str, quad)) for quad in CUBE_QUADS)
        path = self.write("cube.vtk", f"# vtk DataFile Version 3.0\ncube\nASCII\nDATASET POLYDATA\nPOINTS 8 float\n{corners}\nPOLYGONS 6 30\n{quads}\n")
        self.assertIn("palpate mesh from-surface", self.fails(FAILED, "mesh", "convert", path, "-o", self.folder / "x.msh"))
        self.assertTrue(self.info(path)["bounds_a_solid"])
        self.ok("mesh", "from-surface", path, "--edge-length", "0.02", "-o", self.folder / "cube.msh")
        self.assertAlmostEqual(self.info(self.folder / "cube.msh")["volume_m3"] / 0.001, 1, delta=0.1)

    def test_other_units_are_noticed(self):
        """A liver of 200 mm must not pass for one of 200 m, whoever looks at it."""
        for size, remedy in ((200.0, "--scale 0.001"), (20.0, "--scale 0.01")):
            with self.subTest(size):
                surface = self.write("organ.stl", cube_stl(size))
                result = run("mesh", "info", surface, "--json")
                self.assertIn(remedy, json.loads(result.stdout)["warning"])
                self.assertIn("warning: ", result.stderr)
                self.assertIn(remedy, result.stderr)
                unscaled = run("mesh", "from-surface", surface, "--edge-length", size / 8, "-o", self.folder / "organ.msh")
                self.assertIn(remedy, unscaled.stderr)
                self.assertIn(remedy, run("mesh", "info", self.folder / "organ.msh").stderr)
                scene = self.write("scene.json", json.dumps({"bodies": [{"name": "organ", "mesh_file": "organ.msh"}]}))
                self.assertIn(remedy.replace("--scale ", '"scale": '), run("scene", "check", scene).stderr)
                scaled = run("mesh", "convert", self.folder / "organ.msh", *remedy.split(), "-o", self.folder / "scaled.msh")
                self.assertEqual((scaled.returncode, scaled.stderr), (0, ""))
        plain = run("mesh", "info", self.generate())
        self.assertEqual(plain.stderr, "")

    def test_self_intersections_can_be_allowed(self):
        # Two cubes that cross, as a modelling program joins them.
        out = bytearray(cube_stl(0.1))
        second = [x + (0.031, 0.027, 0.041)[i % 3] for t in range(12) for i, x in enumerate(struct.unpack_from("<9f", out, 84 + 50 * t + 12))]
        triangles = b"".join(struct.pack("<12fH", 0, 0, 0, *second[9 * t:9 * t + 9], 0) for t in range(12))
        struct.pack_into("<I", out, 80, 24)
        path = self.write("crossed.stl", bytes(out) + triangles)
        target = self.folder / "crossed.msh"
        message = self.fails(FAILED, "mesh", "from-surface", path, "--edge-length", "0.01", "-o", target)
        remedy = re.search(r"--allow-self-intersections \d+", message)
        self.assertTrue(remedy, message)
        self.ok("mesh", "from-surface", path, "--edge-length", "0.01", "-o", target, *remedy.group().split())
        self.assertAlmostEqual(self.info(target)["volume_m3"] / (0.002 - 0.069 * 0.073 * 0.059), 1, delta=0.05)

    def test_bad_files_are_refused_by_name(self):
        good = self.generate().read_text()
        cases = {"missing.msh": None, "empty.msh": "", "truncated.msh": good[:len(good) // 2], "garbage.vtk": "\x7f\x00\xff" * 99, "noformat.xyz": "1 2 3",
                 "index.msh": tetrahedron_msh([(1, 2, 3, 9)]), "huge.msh": good.replace("$Nodes\n", "$Nodes\n1 99999999999 1 99999999999\n"),
                 "flat.obj": "v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 7\n"}
        for name, content in cases.items():
            with self.subTest(name):
                path = self.folder / name
                if content is not None:
                    self.write(name, content)
                self.assertIn(name, self.fails(FAILED, "mesh", "info", path))

    def test_errors_are_json_when_asked(self):
        error = json.loads(self.fails(FAILED, "--json", "mesh", "info", self.folder / "none.msh"))["error"]
        self.assertEqual(error["code"], "NOT_FOUND")
        self.assertIn("none.msh", error["message"])

    def test_from_surface_fills_a_cube(self):
        source = self.write("cube.stl", cube_stl(100.0))
        target = self.folder / "cube.msh"
        result = run("mesh", "from-surface", source, "--scale", "0.001", "--edge-length", "0.012", "-o", target)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr, "", "a progress bar belongs on a terminal only")
        info = self.info(target)
        self.assertAlmostEqual(info["volume_m3"] / 0.001, 1, delta=0.05)
        self.assertGreater(info["dihedral_deg"]["min"], 10.7)
        self.assertLess(info["dihedral_deg"]["max"], 164.8)

    def test_from_surface_refuses_what_bounds_no_solid(self):
        source = self.write("open.stl", cube_stl(0.1, open_side=True))
        target = self.folder / "open.msh"
        self.assertIn("open.stl", self.fails(FAILED, "mesh", "from-surface", source, "--edge-length", "0.02", "-o", target))
        self.assertFalse(target.exists())
        self.assertFalse(self.info(source)["bounds_a_solid"])

    def test_limit_on_tets(self):
        source = self.write("cube.stl", cube_stl(0.1))
        self.fails(FAILED, "mesh", "from-surface", source, "--edge-length", "0.01", "--max-tets", "100", "-o", self.folder / "x.msh")

    def test_output_is_checked_before_the_work(self):
        source = self.generate()
        for target in ("x.doc", "nowhere/x.msh"):
            with self.subTest(target):
                self.fails(FAILED, "mesh", "convert", source, "-o", self.folder / target)
        self.fails(FAILED, "mesh", "convert", source, "-o", self.folder / "x.msh", "--binary")
        self.assertEqual([p.name for p in self.folder.iterdir()], ["liver.msh"])


class Scene(CliTest):
    def spec(self, **changes):
        return {"bodies": [{"generator": {"sphere": {"radius_m": 0.05}}}]} | changes

    def test_check_tells_of_an_array_in_one_row(self):
        out = self.ok("scene", "check", SCENES / "boxes.json")
        self.assertRegex(out, r"(?m)^256 like box0 +8 +5 ")
        self.assertRegex(out, r"(?m)^wall-left +\d+ ")
        self.assertLess(len(out.splitlines()), 20)
        self.assertEqual(len(json.loads(self.ok("scene", "check", SCENES / "boxes.json", "--json"))["bodies"]), 517)

    def test_check_warns_of_few_sweeps(self):
        def warning(name="liver.json", **changes):
            spec = json.loads((SCENES / name).read_text()) | {"solver": changes}
            result = run("scene", "check", self.write(name, json.dumps(spec)))
            self.assertEqual(result.returncode, 0, result.stderr)
            return result.stderr

        self.assertEqual(warning(), "")
        self.assertIn("; 17 are advised", warning(iterations=10), "corrections come by themselves")
        self.assertEqual(warning(iterations=17), "")
        self.assertRegex(warning(iterations=10, coarse_nodes=0), r"liver\.json: warning: solver\.iterations: 10 are too few .* bodies\[0\] \(liver, 2518 tets, 5000 Pa\).*; 20 are advised")
        spec = json.loads((SCENES / "liver.json").read_text())
        spec["bodies"][0]["generator"]["edge_length_m"] = 0.0105
        spec["solver"] = {"coarse_nodes": 0}
        path = self.write("fine.json", json.dumps(spec))
        advised = re.search(r"20 are too few .*; (\d+) are advised", run("scene", "check", path).stderr)
        self.assertTrue(advised)
        self.assertGreaterEqual(int(advised[1]), 40)
        spec["solver"]["iterations"] = int(advised[1])
        self.assertEqual(run("scene", "check", self.write("fine.json", json.dumps(spec))).stderr, "")
        self.assertNotIn("corrections", self.ok("scene", "check", self.write("fine.json", json.dumps(spec))))
        spec["solver"] = {}
        self.assertIn("17 solver iterations with coarse corrections", self.ok("scene", "check", self.write("fine.json", json.dumps(spec))))

    def check_error(self, spec, name="scene.json"):
        path = self.write(name, spec if isinstance(spec, str) else json.dumps(spec))
        message = self.fails(FAILED, "scene", "check", path)
        self.assertIn(name, message)
        return message

    def test_every_example_is_valid(self):
        files = sorted(SCENES.glob("*.json"))
        self.assertIn("liver.json", [f.name for f in files])
        for file in files:
            with self.subTest(file.name):
                built = json.loads(self.ok("scene", "check", file, "--json"))
                surfaces = {body["name"] for body in json.loads(file.read_text())["bodies"] if "nurbs" in body or "shell" in body}
                for body in built["bodies"]:
                    self.assertEqual(body["tet_count"] > 0, body["name"] not in surfaces, body["name"])
                    self.assertGreater(body["mass_kg"], 0)
                self.assertGreater(int(built["device_bytes"]), 0)
                self.assertIn("valid", self.ok("scene", "check", file))

    def test_the_demo_scene_is_about_2500_tets_with_two_tools(self):
        built = json.loads(self.ok("scene", "check", SCENES / "liver.json", "--json"))
        self.assertAlmostEqual(built["bodies"][0]["tet_count"] / 2500, 1, delta=0.1)
        self.assertGreater(built["bodies"][0]["fixed_vertex_count"], 20)
        self.assertEqual([t["name"] for t in json.loads((SCENES / "liver.json").read_text())["tools"]], ["probe", "hand"])

    def test_mass_is_volume_times_density(self):
        path = self.write("s.json", json.dumps(self.spec(bodies=[{"generator": {"slab": {}}, "material": {"density_kg_per_m3": 500}, "scale": 2}])))
        body = json.loads(self.ok("scene", "check", path, "--json"))["bodies"][0]
        self.assertAlmostEqual(body["volume_m3"], 8 * 0.0002)
        self.assertAlmostEqual(body["mass_kg"], 500 * 8 * 0.0002)

    def test_mesh_files_are_found_beside_the_scene(self):
        (self.folder / "meshes").mkdir()
        self.write("meshes/one.msh", tetrahedron_msh([(1, 2, 3, 4)]))
        path = self.write("s.json", json.dumps(self.spec(bodies=[{"mesh_file": "meshes/one.msh"}])))
        self.assertEqual(json.loads(self.ok("scene", "check", path, "--json"))["bodies"][0]["tet_count"], 1)
        self.assertIn("bodies[0].mesh_file", self.check_error(self.spec(bodies=[{"mesh_file": "meshes/two.msh"}])))

    def test_errors_name_file_and_field(self):
        cases = [({"bodies": []}, "bodies"), (self.spec(dt_s=3), "dt_s"), (self.spec(dt="x"), "dt"), (self.spec(dt_s="x"), "dt_s"),
                 (self.spec(solver={"iterations": 0}), "solver.iterations"),
                 (self.spec(bodies=[{"generator": {"sphere": {"radius_m": 50}}}]), "bodies[0].generator.sphere.radius_m"),
                 (self.spec(bodies=[{"generator": {"sphere": {}}, "material": {"poisson_ratio": 0.5}}]), "bodies[0].material.poisson_ratio"),
                 (self.spec(bodies=[{"generator": {"sphere": {}}, "material": {"young_modulus": 5}}]), "young_modulus"),
                 (self.spec(bodies=[{"generator": {"sphere": {}}, "material": {"model": "JELLY"}}]), "bodies[0].material.model"),
                 (self.spec(tools=[{"name": "a"}, {"name": "a"}]), "tools[1].name"),
                 (self.spec(gravity_m_per_s2={"z": -1e9}), "gravity_m_per_s2")]
        for spec, field in cases:
            with self.subTest(field):
                self.assertIn(field, self.check_error(spec))

    def test_syntax_errors_name_line_and_column(self):
        self.assertIn("broken.json:3:", self.check_error('{\n  "name": "a"\n  "dt_s": 1\n}\n', "broken.json"))
        self.assertIn("empty.json:1:1", self.check_error("", "empty.json"))
        self.check_error("[]", "list.json")
        self.check_error("\xff\xfe", "bytes.json")
        self.check_error("[" * 100000, "deep.json")

    def test_missing_file_and_folder(self):
        self.assertIn("none.json", self.fails(FAILED, "scene", "check", self.folder / "none.json"))
        self.assertIn("too long", self.fails(FAILED, "scene", "check", "x" * 1000))
        self.assertIn("/dev/zero", self.fails(FAILED, "scene", "check", "/dev/zero"))
        self.fails(FAILED, "scene", "check", self.folder)

    def test_a_scene_from_a_mesh(self):
        """Surface or volume, millimetres or metres: the scene is one that the server takes, with a probe above an organ that stands on its foot."""
        volume = self.folder / "in-metres.msh"
        self.ok("mesh", "generate", "kidney", "-o", volume)
        for source, scale in ((self.write("organ.stl", cube_stl(120.0)), 0.001), (volume, 1)):
            with self.subTest(source.name):
                target = self.folder / "scene.json"
                made = json.loads(self.ok("scene", "from-mesh", source, "--tets", "600", "-o", target, "--json"))
                self.assertEqual(made["scale"], scale)
                self.assertAlmostEqual(made["extent_m"], 0.12, delta=0.02)
                built = json.loads(self.ok("scene", "check", target, "--json"))["bodies"][0]
                self.assertGreater(built["fixed_vertex_count"], 3)
                self.assertLess(built["fixed_vertex_count"], built["vertex_count"] / 2)
                info = json.loads(self.ok("mesh", "info", self.folder / "scene.msh", "--json"))
                low, high = info["bounds_m"]["min"], info["bounds_m"]["max"]
                for axis in range(2):
                    self.assertAlmostEqual(low[axis] + high[axis], 0)
                self.assertAlmostEqual(low[2], 0)
                tool = json.loads(target.read_text())["tools"][0]
                self.assertAlmostEqual(tool["rest_pose"]["position_m"]["z"] - tool["radius_m"] - high[2], 0.02)
        if scale == 1:
            self.assertGreater(info["tets"], 600, "a mesh of tetrahedra is taken as it is")

    def test_a_scene_from_a_mesh_that_cannot_be(self):
        for source, words in ((self.write("open.stl", cube_stl(0.1, open_side=True)), ["open.stl"]), (self.folder / "none.stl", ["none.stl"]),
                              (self.folder, ["extension"]), (self.write("empty.msh", ""), ["empty.msh"]),
                              (self.write("scene.msh", tetrahedron_msh([(1, 2, 3, 4)])), ["scene.msh", "--output"])):
            with self.subTest(source.name):
                before = sorted(p.name for p in self.folder.iterdir())
                message = self.fails(FAILED, "scene", "from-mesh", source, "-o", self.folder / "scene.json")
                for word in words:
                    self.assertIn(word, message)
                self.assertEqual(sorted(p.name for p in self.folder.iterdir()), before, "nothing half made is left")
        good = self.write("good.stl", cube_stl(0.1))
        self.fails(FAILED, "scene", "from-mesh", good, "-o", self.folder / "none" / "scene.json")
        self.fails(FAILED, "scene", "from-mesh", good, "-o", self.folder / "scene.txt")
        self.fails(FAILED, "scene", "from-mesh", good, "-o", self.folder / "scene.json", "--young-modulus", "1e30")
        self.fails(USAGE, "scene", "from-mesh", good, "--scale", "nan")
        self.fails(USAGE, "scene", "from-mesh", good, "--tets", "1")

    def test_create_looks_at_the_file_before_the_server(self):
        self.assertIn("dt", self.fails(FAILED, "--server", "127.0.0.1:1", "scene", "create", self.write("s.json", '{"dt": 1}')))


class Server(CliTest):
    def test_nobody_there(self):
        for command in ("scene list", "scene show x", "scene delete x", "scene play x", "scene pause x", "scene step x", "scene reset x", "scene rate x",
                        "watch x", "export x -o x.obj", "server-info"):
            with self.subTest(command):
                self.assertIn("127.0.0.1:1", self.fails(UNREACHABLE, "--server", "127.0.0.1:1", "--timeout", "0.2", *command.split()))

    def test_address_from_the_environment(self):
        result = run("--timeout", "0.2", "server-info", env={"PALPATE_SERVER": "127.0.0.1:2"})
        self.assertEqual(result.returncode, UNREACHABLE)
        self.assertIn("127.0.0.1:2", result.stderr)


class Devices(CliTest):
    def test_list(self):
        result = run("--json", "devices")
        devices = json.loads(result.stdout)["devices"]
        self.assertEqual(result.returncode, 0 if devices else FAILED)
        for index, device in enumerate(devices):
            self.assertEqual(device["index"], index)
            self.assertTrue(device["name"])


class LabelsTest(CliTest):
    """Volumes of labels. A build without ITK says what is missing, and there is no more to test."""

    def setUp(self):
        super().setUp()
        self.volume = self.write("organ.nrrd", label_nrrd())
        result = run("mesh", "from-labels", self.volume, "--list")
        if "libinsighttoolkit5-dev" in result.stderr:
            self.assertEqual(result.returncode, FAILED)
            self.skipTest("built without ITK")

    def test_list_names_labels_with_volumes(self):
        listing = json.loads(self.ok("mesh", "from-labels", self.volume, "--list", "--json"))
        liver, tumor = listing["labels"]
        self.assertEqual((liver["label"], liver["name"], tumor["name"], tumor["parts"]), (1, "liver", "tumor", 1))
        self.assertAlmostEqual(liver["volume_m3"] + tumor["volume_m3"], 4 / 3 * 3.14159 * 0.015 ** 3, delta=2e-7)
        self.assertAlmostEqual(tumor["extent_m"][0], 0.012, delta=0.001)
        self.assertIn("tumor", self.ok("mesh", "from-labels", self.volume, "--list"))

    def test_mesh_has_a_group_for_each_label(self):
        target = self.folder / "organ.msh"
        made = json.loads(self.ok("mesh", "from-labels", self.volume, "--edge-length", "0.003", "--edge-lengths", "tumor=0.0015", "-o", target, "--json"))
        self.assertEqual([label["name"] for label in made["labels"]], ["liver", "tumor"])
        for label in made["labels"]:
            self.assertAlmostEqual(label["volume_m3"] / label["voxel_volume_m3"], 1, delta=0.01)
            self.assertGreater(label["covered"], 0.97)
        self.assertEqual((made["warnings"], made["parts"]), ([], 1))
        self.assertGreater(made["dihedral_deg"]["min"], 10.78)
        self.assertLess(made["dihedral_deg"]["max"], 164.74)
        # in the frame of the file, in metres: the ball's middle is at (27.5, 37.5, 47.25) mm
        for axis, middle in enumerate((0.0275, 0.0375, 0.04725)):
            self.assertAlmostEqual(made["bounds_m"]["min"][axis], middle - 0.015, delta=0.0007)
            self.assertAlmostEqual(made["bounds_m"]["max"][axis], middle + 0.015, delta=0.0007)
        self.assertIn('3 2 "tumor"', target.read_text())
        info = json.loads(self.ok("mesh", "info", target, "--json"))
        self.assertEqual(info["tets"], made["tets"])

        scene = self.folder / "scene.json"
        self.assertIn("zones      2", self.ok("scene", "from-mesh", target, "-o", scene))
        zones = json.loads(scene.read_text())["bodies"][0]["zones"]
        self.assertEqual([zone["mesh_group"] for zone in zones], ["liver", "tumor"])
        self.ok("scene", "check", scene)
        zones = scene.read_text().replace('"mesh_group": "tumor"', '"mesh_group": "spleen"')
        scene.write_text(zones)
        self.assertIn("the mesh has liver (1), tumor (2)", self.fails(FAILED, "scene", "check", scene))

    def test_labels_are_chosen_and_named(self):
        target = self.folder / "tumor.vtk"
        made = json.loads(self.ok("mesh", "from-labels", self.volume, "--labels", "2=lesion", "--edge-length", "0.002", "-o", target, "--json"))
        self.assertEqual([label["name"] for label in made["labels"]], ["lesion"])
        self.assertAlmostEqual(made["volume_m3"], made["labels"][0]["volume_m3"], delta=1e-12)
        arguments = ("mesh", "from-labels", self.volume, "-o", target)
        self.assertIn("3=spleen: no voxel has this label; the volume has 1 = liver, 2 = tumor", self.fails(FAILED, *arguments, "--labels", "3=spleen"))
        self.assertIn("1 is given twice", self.fails(FAILED, *arguments, "--labels", "1=a,1=b"))
        self.assertIn('two labels have the name "a"', self.fails(FAILED, *arguments, "--labels", "1=a,2=a"))
        self.assertIn("LABEL=LENGTH expected", self.fails(FAILED, *arguments, "--edge-lengths", "spleen=0.001"))
        self.assertIn("must be a number above 0", self.fails(FAILED, *arguments, "--edge-lengths", "tumor=-1"))
        self.assertIn("is lost: no tetrahedron fits into it", self.fails(FAILED, *arguments, "--edge-length", "0.03"))
        self.assertIn("more than 100 tets", self.fails(FAILED, *arguments, "--max-tets", "100"))
        named = self.write("three.nrrd", label_nrrd(("liver", "tumor", "vessel")))
        self.assertIn("label 3 (vessel) has no voxels", self.fails(FAILED, "mesh", "from-labels", named, "--labels", "vessel", "-o", target))
        self.assertIn("label 3 (vessel) has no voxels and is left out", run("mesh", "from-labels", named, "-o", target).stderr)
        self.assertIn("--output is required", self.fails(FAILED, "mesh", "from-labels", self.volume))
        self.assertIn("organ.nrrd", self.fails(FAILED, "mesh", "from-labels", self.write("organ.nrrd", label_nrrd()[:500]), "--list"))


class Nurbs(CliTest):
    """A disc of radius 0.2 in the middle of a unit square, cut out of it or left of it."""
    CIRCLE = {"degree": 2, "knots": [0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 4], "weights": [1, 0.5 ** 0.5] * 4 + [1],
              "points": [0.5 + 0.2 * x for x in (1, 0, 1, 1, 0, 1, -1, 1, -1, 0, -1, -1, 0, -1, 1, -1, 1, 0)]}

    def square(self, *loops, **changes):
        patch = {"name": "square", "degree_u": 1, "degree_v": 1, "knots_u": [0, 0, 1, 1], "knots_v": [0, 0, 1, 1], "control_m": [0, 0, 0, 0, 1, 0, 1, 0, 0, 1, 1, 0]}
        if loops:
            patch["loops"] = [{"curves": curves} for curves in loops]
        return self.write("square.nurbs.json", json.dumps({"version": 1, "patches": [patch | changes]}))

    def outline(self):
        corners = [(0, 0), (1, 0), (1, 1), (0, 1)]
        return [{"degree": 1, "knots": [0, 0, 1, 1], "points": [*corners[i], *corners[(i + 1) % 4]]} for i in range(4)]

    def shape(self, name, *options):
        path = self.folder / f"{name}.nurbs.json"
        made = json.loads(self.ok("nurbs", "shape", name, *options, "-o", path, "--json"))
        self.assertTrue(made["closed"])
        return path

    def info(self, path, *options):
        return json.loads(self.ok("nurbs", "info", path, "--json", *options))

    def test_shapes_have_their_closed_forms(self):
        pi = math.pi
        for name, options, patches, volume, area, height in (
                ("sphere", ["--radius", 0.02], 8, 4 / 3 * pi * 8e-6, 4 * pi * 4e-4, 0), ("torus", ["--major-radius", 0.05, "--minor-radius", 0.01], 16, 2 * pi ** 2 * 5e-6, 4 * pi ** 2 * 5e-4, 0),
                ("cylinder", ["--radius", 0.01, "--height", 0.04], 12, pi * 4e-6, 2 * pi * 1e-4 + 2 * pi * 4e-4, 0.02),
                ("cone", ["--radius", 0.03, "--height", 0.04], 8, pi * 9e-4 * 0.04 / 3, pi * 0.03 * 0.08, 0.01)):
            with self.subTest(name):
                path = self.shape(name, *options)
                info = self.info(path, "--density", 2000)
                self.assertEqual((info["patch_count"], info["closed"], info["trimmed"], info["edges"]["open"]), (patches, True, False, 0))
                self.assertAlmostEqual(info["volume_m3"] / volume, 1, delta=1e-11)
                self.assertAlmostEqual(info["area_m2"] / area, 1, delta=1e-11)
                self.assertAlmostEqual(info["mass_kg"] / volume, 2000, delta=1e-7)
                self.assertAlmostEqual(info["center_m"][2], height, delta=1e-12)
                self.assertAlmostEqual(info["inertia_kg_m2"][0][0], info["inertia_kg_m2"][1][1])
                text = self.ok("nurbs", "info", path)
                self.assertIn("closed      yes", text)
                self.assertEqual(len(re.findall(r"^\d+ +\dx\d", text, re.MULTILINE)), patches)

    def test_refined_shapes_are_the_same_and_finer(self):
        source, target = self.shape("torus"), self.folder / "finer.nurbs.json"
        before = self.info(source)
        self.ok("nurbs", "refine", source, "--levels", 2, "-o", target)
        after = self.info(target)
        self.assertEqual(after["patches"][0]["control_points"], [6, 6])
        self.assertAlmostEqual(after["volume_m3"] / before["volume_m3"], 1, delta=1e-11)
        self.ok("nurbs", "refine", source, "--insert", "3,u,0.25,2", "--insert", "0,v,0.5", "-o", target)
        patches = self.info(target)["patches"]
        self.assertEqual([p["control_points"] for p in patches[:4]], [[3, 4], [3, 3], [3, 3], [5, 3]])
        bar, fine = self.shape("cylinder"), self.folder / "fine.nurbs.json"
        before = self.info(bar)
        self.ok("nurbs", "refine", bar, "--degree", 3, "--span", 0.02, "-o", fine)
        after = self.info(fine)
        self.assertTrue(all(min(p["degree"]) == 3 for p in after["patches"]))
        self.assertGreater(sum(p["control_points"][0] * p["control_points"][1] for p in after["patches"]), 200)
        self.assertAlmostEqual(after["volume_m3"] / before["volume_m3"], 1, delta=1e-11)
        self.assertIn("degree 16 is outside", self.fails(FAILED, "nurbs", "refine", bar, "--degree", 16, "-o", self.folder / "x.json"))
        self.assertIn("span: -1 m is not positive", self.fails(FAILED, "nurbs", "refine", bar, "--span", -1, "-o", self.folder / "x.json"))
        for insertion, message in (("3,w,0.5", "'3,w,0.5' is not PATCH,u|v,PARAMETER"), ("99,u,0.5", "patch 99: there are 16"), ("0,u,1", "patches[0]: knot 1 is not inside (0, 1)"),
                                   ("0,u,0.5,3", "degree 2 allows")):
            with self.subTest(insertion):
                self.assertIn(message, self.fails(FAILED, "nurbs", "refine", source, "--insert", insertion, "-o", self.folder / "x.json"))
        self.assertIn("degree 2 allows", self.fails(FAILED, "nurbs", "refine", target, "--insert", "0,v,0.5,2147483647", "-o", self.folder / "x.json"))
        self.assertIn("--levels or --insert", self.fails(FAILED, "nurbs", "refine", source, "-o", self.folder / "x.json"))
        self.assertIn("is outside [0, 16]", self.fails(FAILED, "nurbs", "refine", source, "--levels", 17, "-o", self.folder / "x.json"))

    def test_triangles_in_every_format_bound_the_solid(self):
        source = self.shape("sphere", "--radius", 0.05)
        volume = self.info(source)["volume_m3"]
        counts = set()
        for ending in ("obj", "stl", "ply"):
            with self.subTest(ending):
                target = self.folder / f"ball.{ending}"
                made = json.loads(self.ok("nurbs", "tessellate", source, "--tolerance", 0.0005, "-o", target, "--json"))
                self.assertTrue(made["bounds_a_solid"])
                surface = json.loads(self.ok("mesh", "info", target, "--json"))
                self.assertTrue(surface["bounds_a_solid"], surface)
                self.assertEqual(surface["triangles"], made["triangles"])
                self.assertAlmostEqual(surface["volume_m3"] / volume, 1, delta=0.03)
                counts.add(surface["triangles"])
        self.assertEqual(len(counts), 1)
        self.assertIn("needs more than 16777216 triangles", self.fails(FAILED, "nurbs", "tessellate", source, "--tolerance", 1e-15, "-o", self.folder / "x.obj"))

    def test_a_hole_is_cut_out(self):
        clockwise = [self.CIRCLE | {"is_reversed": True}]
        path = self.square(self.outline(), clockwise)
        info = self.info(path)
        self.assertAlmostEqual(info["area_m2"], 1 - math.pi * 0.04, delta=1e-11)
        self.assertEqual((info["closed"], info["edges"]["open"], info["patches"][0]["loops"]), (False, 5, 2))
        self.assertIn("open: 5 edges are not joined; patches[0] \"square\", loops[0].curves[0]", info["why_not"])
        self.ok("nurbs", "tessellate", path, "--tolerance", 1e-4, "-o", self.folder / "square.ply")
        surface = json.loads(self.ok("mesh", "info", self.folder / "square.ply", "--json"))
        self.assertAlmostEqual(surface["area_m2"], 1 - math.pi * 0.04, delta=2e-4)
        self.assertAlmostEqual(self.info(self.square([self.CIRCLE]))["area_m2"], math.pi * 0.04, delta=1e-11)

    def test_errors_name_file_patch_and_field(self):
        for path, message in ((lambda: self.square(knots_u=[0, 0, 0, 1]), 'square.nurbs.json: patches[0] "square": knots_u'),
                              (lambda: self.square(weights=[1, 1, 0, 1]), 'patches[0] "square": weights[2]: 0, it must be positive'),
                              (lambda: self.square(control_m=[0, 0, 0]), "control_m: 1 control points, knots and degrees are for 2 x 2"),
                              (lambda: self.square(control_m=[0, 0]), "patches[0].control_m: 2 numbers, 3 for each point"),
                              (lambda: self.square(degree=2), "degree"),
                              (lambda: self.square(self.outline()[:3]), 'patches[0] "square": loops[0]: not closed, curves[2] ends at (0, 1), curves[0] begins at (0, 0)'),
                              (lambda: self.square([self.CIRCLE | {"is_reversed": True}]), "run the wrong way round"),
                              (lambda: self.square(self.outline(), [self.CIRCLE | {"is_reversed": True}], [self.CIRCLE | {"is_reversed": True}]), "loops: one runs clockwise around"),
                              (lambda: self.write("broken.nurbs.json", '{"version": 1,\n "patches": [}'), "broken.nurbs.json:2:"),
                              (lambda: self.write("old.nurbs.json", '{"patches": []}'), "old.nurbs.json: version: 0, this program reads 1"),
                              (lambda: self.folder / "none.nurbs.json", "none.nurbs.json: cannot be read"), (lambda: self.folder, "is a folder, not a file of NURBS")):
            with self.subTest(message):
                self.assertIn(message, self.fails(FAILED, "nurbs", "info", path()))
        error = json.loads(self.fails(FAILED, "--json", "nurbs", "info", self.square(degree_u=16)))["error"]
        self.assertEqual(error["code"], "INVALID_ARGUMENT")
        self.assertIn("--minor-radius", self.fails(FAILED, "nurbs", "shape", "torus", "--major-radius", 0.01, "-o", self.folder / "x.json"))

    def test_output_is_checked_before_the_work(self):
        source = self.shape("sphere")
        for arguments in (["nurbs", "shape", "sphere", "-o", "x.obj"], ["nurbs", "shape", "sphere", "-o", "nowhere/x.json"], ["nurbs", "refine", source, "--levels", "1", "-o", "x.step"],
                          ["nurbs", "tessellate", source, "--tolerance", "0.01", "-o", "x.doc"], ["nurbs", "export", source, "-o", "x.obj"], ["nurbs", "import", source, "-o", "x.json"]):
            with self.subTest(arguments):
                self.fails(FAILED, *arguments[:-1], self.folder / arguments[-1])
        self.assertEqual([p.name for p in self.folder.iterdir()], ["sphere.nurbs.json"])

    def test_cad_files_go_out_and_come_back(self):
        if not (pathlib.Path(PALPATE).parent / "palpate-cad").exists():
            self.skipTest("built without OpenCASCADE (deploy/packages.txt, group cad)")
        source, again = self.shape("cylinder", "--radius", 0.01, "--height", 0.04), self.folder / "again.nurbs.json"
        before = self.info(source)
        for ending in ("step", "igs"):
            with self.subTest(ending):
                part = self.folder / f"part.{ending}"
                self.assertIn("12 patches", self.ok("nurbs", "export", source, "-o", part))
                made = json.loads(self.ok("nurbs", "import", part, "-o", again, "--json"))
                self.assertTrue(made["closed"], made)
                after = self.info(again)
                self.assertTrue(after["trimmed"])
                self.assertAlmostEqual(after["volume_m3"] / before["volume_m3"], 1, delta=1e-6)
                self.assertAlmostEqual(after["bounds_m"]["max"][2], 0.04, delta=1e-6)
        damaged = self.write("damaged.step", (self.folder / "part.step").read_bytes()[:3000])
        again.unlink()
        self.assertIn("damaged.step: ", self.fails(FAILED, "nurbs", "import", damaged, "-o", again))
        self.assertFalse(again.exists(), "nothing is left of an import that failed")
        self.assertIn("none.step: cannot be read", self.fails(FAILED, "nurbs", "import", self.folder / "none.step", "-o", again))
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["cylinder.nurbs.json", "damaged.step", "part.igs", "part.step"])

    def test_damaged_cad_files_end_in_an_error(self):
        """Cut off or with bytes changed: whatever OpenCASCADE does with them, the command gives an error that names the file, or an object."""
        if not (pathlib.Path(PALPATE).parent / "palpate-cad").exists():
            self.skipTest("built without OpenCASCADE (deploy/packages.txt, group cad)")
        source, out, refused = self.shape("cylinder"), self.folder / "x.nurbs.json", 0
        dice = random.Random(11)
        for ending in ("step", "iges"):
            self.ok("nurbs", "export", source, "-o", self.folder / f"part.{ending}")
            good = (self.folder / f"part.{ending}").read_bytes()
            for number in range(8):
                bad = bytearray(good[:len(good) * (number + 1) // 9] if number % 2 else good)
                for _ in range(0 if number % 2 else 5 * number + 3):
                    bad[dice.randrange(len(bad))] = dice.choice(b"0123456789#(),.$'E-")
                path = self.write(f"bad.{ending}", bytes(bad))
                with self.subTest(f"{ending} {number}"):
                    result = run("nurbs", "import", path, "-o", out)
                    self.assertIn(result.returncode, (0, FAILED), result.stderr)
                    if result.returncode == FAILED:
                        refused += 1
                        self.assertIn(f"bad.{ending}: ", result.stderr)
                        self.assertFalse(out.exists())
                    out.unlink(missing_ok=True)
        self.assertGreaterEqual(refused, 4)

    def test_without_opencascade_the_packages_are_named(self):
        alone = self.folder / "palpate"
        shutil.copy(PALPATE, alone)
        result = subprocess.run([alone, "nurbs", "import", self.write("part.step", "x"), "-o", self.folder / "x.json"], capture_output=True, text=True, timeout=120)
        self.assertEqual(result.returncode, FAILED)
        self.assertIn("libocct-data-exchange-dev", result.stderr)


if __name__ == "__main__":
    PALPATE, SCENES = sys.argv[1], pathlib.Path(sys.argv[2])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
