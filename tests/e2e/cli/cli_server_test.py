#!/usr/bin/env python3
"""The palpate program against a running server: every scene command, watch and export. usage: cli_server_test.py PALPATE PALPATE_SERVER SCENES_FOLDER"""
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PALPATE, SERVER, SCENES = "", "", pathlib.Path()
FAILED, UNREACHABLE = 1, 3


class CliServerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.holder.name)
        cls.log = open(cls.folder / "server.log", "w", encoding="utf-8")
        ready = cls.folder / "ready.json"
        cls.server = subprocess.Popen([SERVER, "--listen", "127.0.0.1:0", "--http", "off", "--ready-file", ready], stdout=cls.log, stderr=cls.log)
        while not ready.exists():
            if cls.server.poll() is not None:
                raise AssertionError((cls.folder / "server.log").read_text())
            time.sleep(0.05)
        cls.address = f"127.0.0.1:{json.loads(ready.read_text())['grpc_port']}"

    @classmethod
    def tearDownClass(cls):
        cls.server.send_signal(signal.SIGTERM)
        status = cls.server.wait(timeout=60)
        cls.log.close()
        text = (cls.folder / "server.log").read_text()
        cls.holder.cleanup()
        assert status == 0, text

    def run_cli(self, *arguments):
        return subprocess.run([PALPATE, "--server", self.address, *map(str, arguments)], capture_output=True, text=True, timeout=180, stdin=subprocess.DEVNULL)

    def ok(self, *arguments):
        result = self.run_cli(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def json(self, *arguments):
        return json.loads(self.ok("--json", *arguments))

    def fails(self, *arguments):
        result = self.run_cli("--json", *arguments)
        self.assertEqual(result.returncode, FAILED, result.stdout + result.stderr)
        return json.loads(result.stderr)["error"]["code"]

    def create(self, scene_id, *extra, spec=None):
        path = self.folder / f"{scene_id}.json"
        path.write_text(json.dumps(spec or {"bodies": [{"name": "ball", "generator": {"sphere": {"radius_m": 0.05}, "edge_length_m": 0.025}}]}))
        self.addCleanup(self.run_cli, "scene", "delete", scene_id)
        return self.json("scene", "create", path, "--id", scene_id, *extra)

    def test_life_of_a_scene(self):
        info = self.create("life")
        self.assertEqual((info["scene_id"], info["state"], int(info["step"])), ("life", "RUN_STATE_PAUSED", 0))
        self.assertIn("life", [scene["scene_id"] for scene in self.json("scene", "list")["scenes"]])
        rest_hash = info["state_hash"]
        self.assertEqual(int(self.json("scene", "step", "life", 7)["step"]), 7)
        stepped = self.json("scene", "step", "life")
        self.assertEqual(int(stepped["step"]), 8)
        self.assertNotEqual(stepped["state_hash"], rest_hash)
        reset = self.json("scene", "reset", "life")
        self.assertEqual((int(reset["step"]), reset["state_hash"]), (0, rest_hash))
        self.assertEqual(self.json("scene", "step", "life", 8)["state_hash"], stepped["state_hash"], "the same steps give the same bits")
        self.assertEqual(self.json("scene", "rate", "life", "--fast")["rate"]["mode"], "RATE_MODE_AS_FAST_AS_POSSIBLE")
        self.assertEqual(self.json("scene", "play", "life")["state"], "RUN_STATE_PLAYING")
        self.assertEqual(self.fails("scene", "step", "life"), "FAILED_PRECONDITION")
        before = int(self.json("scene", "show", "life")["scene"]["step"])
        end = time.monotonic() + 60
        while int(self.json("scene", "show", "life")["scene"]["step"]) <= before:
            self.assertLess(time.monotonic(), end, "a playing scene must step")
        self.assertEqual(self.json("scene", "pause", "life")["state"], "RUN_STATE_PAUSED")
        self.assertEqual(self.json("scene", "rate", "life", "--speed", "0.5")["rate"]["speed"], 0.5)
        self.assertIn("ball", self.ok("scene", "show", "life"))
        self.assertIn("life", self.ok("scene", "list"))
        self.ok("scene", "delete", "life")
        self.assertEqual(self.fails("scene", "show", "life"), "NOT_FOUND")

    def test_refusals(self):
        self.create("taken")
        path = self.folder / "taken.json"
        self.assertEqual(self.fails("scene", "create", path, "--id", "taken"), "ALREADY_EXISTS")
        self.assertEqual(self.fails("scene", "create", path, "--id", "Not An Id"), "INVALID_ARGUMENT")
        for command in ("show", "delete", "play", "pause", "step", "reset", "rate"):
            self.assertEqual(self.fails("scene", command, "nobody"), "NOT_FOUND", command)
        self.assertEqual(self.fails("watch", "nobody"), "NOT_FOUND")
        self.assertEqual(self.fails("export", "nobody", "-o", "x.obj"), "NOT_FOUND")
        self.assertFalse(pathlib.Path("x.obj").exists())
        self.assertEqual(self.fails("export", "taken", "-o", self.folder / "x.obj", "--body", "nobody"), "NOT_FOUND")

    def test_mesh_files_travel_with_the_scene(self):
        mesh = self.folder / "block.msh"
        self.ok("mesh", "generate", "slab", "--edge-length", "0.02", "-o", mesh)
        info = self.create("travel", spec={"bodies": [{"mesh_file": mesh.name}]})
        self.assertEqual(info["bodies"][0]["tet_count"], self.json("mesh", "info", mesh)["tets"])

    def test_export_gives_back_the_mesh(self):
        info = self.create("out")["bodies"][0]
        for name, key, counts in (("a.msh", "tets", info["tet_count"]), ("a.vtk", "tets", info["tet_count"]),
                                  ("a.obj", "triangles", info["surface_triangle_count"])):
            with self.subTest(name):
                path = self.folder / name
                self.ok("export", "out", "-o", path)
                self.assertEqual(self.json("mesh", "info", path)[key], counts)
        self.assertIn("v ", self.ok("export", "out", "-o", "-", "--format", "obj"))

    def test_watch_tells_of_each_step(self):
        self.create("seen", "--play", "--fast")
        lines = [json.loads(line) for line in self.ok("--json", "watch", "seen", "--frames", 20, "--rate", 10000, "--positions", "uint16").splitlines()]
        self.assertEqual(lines[0]["type"], "keyframe")
        self.assertEqual(lines[0]["bodies"][0]["name"], "ball")
        frames = [line for line in lines if line["type"] == "frame"]
        self.assertEqual(len(frames), 20)
        steps = [frame["step"] for frame in frames]
        self.assertEqual(steps, sorted(set(steps)))
        self.assertIn("solve", frames[-1]["stage_ms"])
        self.assertGreater(frames[-1]["bytes"], 6 * lines[0]["bodies"][0]["vertices"])
        text = self.ok("watch", "seen", "--frames", 2)
        self.assertEqual(len(text.splitlines()), 2)
        self.assertIn("steps/s", text)

    def test_watch_lists_contacts_and_filters_them_by_body(self):
        ball = {"name": "ball", "generator": {"sphere": {"radius_m": 0.05}, "edge_length_m": 0.025}, "pose": {"position_m": {"z": 0.0505}}}
        self.create("touch", spec={"contact": {"check_intersections": True}, "bodies": [ball], "obstacles": [{"name": "table", "plane": {}}]})
        self.ok("scene", "step", "touch", 20)
        frame = [json.loads(line) for line in self.ok("--json", "watch", "touch", "--frames", 1, "--contacts").splitlines()][-1]
        self.assertGreater(frame["contacts"], 0)
        self.assertEqual(len(frame["contact_list"]), frame["contacts"] + frame["surface_contacts"])
        contact = frame["contact_list"][0]
        self.assertEqual((contact["kind"], contact["b"]), ("obstacle", "ball"))
        self.assertGreater(contact["force_n"][2], 0)
        self.assertEqual(frame["contact"]["intersections"], 0)
        self.assertIn("0 intersections", self.ok("watch", "touch", "--frames", 1))
        self.assertEqual(self.fails("watch", "touch", "--body", "nobody"), "NOT_FOUND")
        lines = self.ok("--json", "watch", "touch", "--frames", 1, "--body", "ball").splitlines()
        self.assertEqual(json.loads(lines[-1])["contacts"], frame["contacts"])

    def test_edits_and_the_watch_that_follows_them(self):
        before = self.create("cut")["bodies"][0]
        process = subprocess.Popen([PALPATE, "--server", self.address, "--json", "watch", "cut", "--rate", "10000"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        keyframe = json.loads(process.stdout.readline())
        self.assertEqual((keyframe["type"], keyframe["topology_version"]), ("keyframe", 1))
        answer = self.json("edit", "cut", "--key", "k", "carve", "--body", "ball", "--ball", 0, 0, 0.05, 0.02)
        removed = len(answer["outcomes"][0]["removed_tets"])
        self.assertEqual((int(answer["topology_version"]), answer["is_repeat"]), (2, False))
        self.assertGreater(removed, 0)
        after = self.json("scene", "show", "cut")["scene"]["bodies"][0]
        self.assertEqual(after["tet_count"], before["tet_count"] - removed + len(answer["outcomes"][0]["added_tets"]))
        self.assertTrue(self.json("edit", "cut", "--key", "k", "carve", "--body", "ball", "--ball", 0, 0, 0.05, 0.02)["is_repeat"])
        # The change, or a keyframe if that is shorter, with the hash that the program has checked.
        line = json.loads(process.stdout.readline())
        while line["type"] == "frame" and line["topology_version"] == 1:
            line = json.loads(process.stdout.readline())
        self.assertIn(line["type"], ("delta", "keyframe"))
        self.assertRegex(line["bodies"][0]["mesh_hash"], "^[0-9a-f]{16}$")
        self.assertNotEqual(line["bodies"][0]["mesh_hash"], keyframe["bodies"][0]["mesh_hash"])
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0)

        self.assertIn("ball:", self.ok("edit", "cut", "refine", "--body", "ball", "--ball", 0, 0, -0.05, 0.02, "--max-edge", "0.02"))
        self.ok("edit", "cut", "incise", "--body", "ball", "--edge", 0.04, -0.03, 0, 0.06, -0.03, 0, "--edge", 0.04, 0.03, 0, 0.06, 0.03, 0)
        self.ok("edit", "cut", "material", "--body", "ball", "--young-modulus", 20000)
        file = self.folder / "edits.json"
        ball = {"center_m": {"z": -0.05}, "radius_m": 0.01}
        file.write_text(json.dumps({"edits": [{"body": "ball", "carve": {"region": {"ball": ball}}}, {"body": "ball", "carve": {"region": {"ball": ball}}}]}))
        self.assertEqual(len(self.json("edit", "cut", "--file", file)["outcomes"]), 2)
        self.assertEqual(len(self.ok("--json", "edit", "cut", "--file", file, "--each").splitlines()), 2)
        exported = self.folder / "cut.msh"
        self.ok("export", "cut", "-o", exported)
        self.assertEqual(self.json("mesh", "info", exported)["tets"], self.json("scene", "show", "cut")["scene"]["bodies"][0]["tet_count"])
        self.assertEqual(self.fails("edit", "cut", "carve", "--body", "nobody", "--ball", 0, 0, 0, 1), "NOT_FOUND")
        self.assertEqual(self.fails("edit", "cut", "carve", "--body", "ball", "--ball", 0, 0, 0, 0), "INVALID_ARGUMENT")
        self.assertEqual(self.fails("edit", "cut", "carve", "--body", "ball"), "INVALID_ARGUMENT")
        self.assertEqual(self.fails("edit", "cut", "--expected-version", 1, "carve", "--body", "ball", "--zone", "none"), "FAILED_PRECONDITION")
        self.assertEqual(self.run_cli("edit", "cut").returncode, 2)

    def test_supports_are_listed(self):
        knots = [0, 0, 0, 0.5, 1, 1, 1]
        places = [0, 0.025, 0.075, 0.1]
        surface = {"degree_u": 2, "degree_v": 2, "knots_u": knots, "knots_v": knots, "control_m": [c for x in places for y in places for c in (x, y, 0)]}
        edge = {"box": {"min_m": {"x": -0.01, "y": -1, "z": -1}, "max_m": {"x": 0.03, "y": 1, "z": 1}}, "name": "edge"}
        sheet = {"name": "sheet", "nurbs": {"object": {"version": 1, "patches": [surface]}, "thickness_m": 0.002}, "fixed": [edge],
                 "material": {"model": "MATERIAL_MODEL_ST_VENANT_KIRCHHOFF", "young_modulus_pa": 1e7, "density_kg_per_m3": 1000, "mass_damping_per_s": 8}}
        self.create("awning", spec={"bodies": [sheet]})
        self.ok("scene", "step", "awning", 240)
        row = json.loads(self.ok("--json", "watch", "awning", "--frames", 1).splitlines()[-1])["supports"][0]
        self.assertEqual((row["name"], row["body"], row["region"], row["kind"], row["bound_to"], row["released"]), ("edge", "sheet", 0, "held", "", False))
        self.assertAlmostEqual(row["force_n"][2], -9.81 * 0.02, delta=0.01 * 9.81 * 0.02)
        self.assertRegex(self.ok("watch", "awning", "--frames", 1, "--supports"), r"sheet[.]fixed\[0\] edge +held +carries \( *-?0.00[0-9]+, +-?0.00[0-9]+, +-0[.]19[0-9]+\) N")

    def test_joints_are_listed_driven_and_let_go(self):
        door = {"name": "door", "kind": "BODY_KIND_RIGID", "generator": {"slab": {"size_m": {"x": 0.2, "y": 0.01, "z": 0.3}}, "edge_length_m": 0.1},
                "pose": {"position_m": {"x": 0.15}}}
        self.create("hall", spec={"bodies": [door], "joints": [{"name": "hinge", "body_b": "door", "hinge": {}}]})

        def joint(steps):
            self.ok("scene", "step", "hall", steps)
            return json.loads(self.ok("--json", "watch", "hall", "--frames", 1, "--joints").splitlines()[-1])["joints"][0]

        hangs = joint(10)
        self.assertEqual((hangs["name"], hangs["broken"]), ("hinge", False))
        self.assertAlmostEqual(hangs["position"], 0, delta=1e-5)
        self.assertEqual((hangs["point_a_m"], hangs["axis"]), ([0, 0, 0], [0, 0, 1]))
        self.ok("edit", "hall", "joint", "--joint", "hinge", "--speed", 2)
        self.assertAlmostEqual(joint(60)["position"], 1, delta=1e-3)
        self.ok("edit", "hall", "joint", "--joint", "hinge", "--target", 0.2, "--stiffness", 20, "--damping", 2)
        self.assertAlmostEqual(joint(240)["position"], 0.2, delta=1e-3)
        self.assertRegex(self.ok("watch", "hall", "--frames", 1, "--joints"), "hinge +hinge +0[.]2.* rad")
        self.ok("edit", "hall", "joint", "--joint", "hinge", "--release")
        self.assertTrue(joint(5)["broken"])
        self.assertEqual(self.fails("edit", "hall", "joint", "--joint", "lock", "--release"), "NOT_FOUND")
        self.assertEqual(self.fails("edit", "hall", "joint", "--joint", "hinge"), "INVALID_ARGUMENT")
        self.assertEqual(self.fails("edit", "hall", "joint", "--joint", "hinge", "--length", 0, 1), "INVALID_ARGUMENT")

    def test_replays_that_go_when_they_are_left_alone(self):
        self.create("past")
        self.ok("scene", "step", "past", 3)
        file = self.folder / "past.plrec"
        self.ok("record", "past", "--moment", "-o", file)
        for name, flags in (("stays", []), ("goes", ["--temporary"])):
            self.addCleanup(self.run_cli, "scene", "delete", name)
            self.ok("replay", file, "--on-server", "--id", name, *flags)
            scene = self.json("scene", "show", name)["scene"]
            self.assertEqual((scene["is_replay"], scene["is_temporary"]), (True, bool(flags)))
        result = self.run_cli("replay", file, "--temporary")
        self.assertEqual(result.returncode, 2, result.stdout)
        self.assertIn("--temporary requires --on-server", result.stderr)

    def test_watch_ends_with_time_and_with_a_signal(self):
        self.create("still")
        self.ok("watch", "still", "--seconds", "0.3")
        process = subprocess.Popen([PALPATE, "--server", self.address, "--json", "watch", "still"], stdout=subprocess.PIPE, text=True)
        self.assertEqual(json.loads(process.stdout.readline())["type"], "keyframe")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0)

    def test_watch_fails_when_the_scene_goes(self):
        self.create("gone")
        process = subprocess.Popen([PALPATE, "--server", self.address, "--json", "watch", "gone"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        process.stdout.readline()
        self.ok("scene", "delete", "gone")
        _, error = process.communicate(timeout=60)
        self.assertEqual((process.returncode, json.loads(error)["error"]["code"]), (FAILED, "ABORTED"))

    def test_server_info(self):
        info = self.json("server-info")
        self.assertRegex(info["version"], r"^\d+\.\d+\.\d+$")
        self.assertGreater(int(info["limits"]["max_scenes"]), 0)
        self.assertIn(info["device"].split()[0], self.ok("server-info"))

    def test_every_example_scene_runs(self):
        for file in sorted(SCENES.glob("*.json")):
            with self.subTest(file.name):
                scene_id = f"example-{file.stem}"
                self.addCleanup(self.run_cli, "scene", "delete", scene_id)
                self.json("scene", "create", file, "--id", scene_id)
                info = self.json("scene", "step", scene_id, 60)
                self.assertEqual((info["state"], info["failure"]), ("RUN_STATE_PAUSED", ""))
                self.ok("scene", "delete", scene_id)


if __name__ == "__main__":
    PALPATE, SERVER, SCENES = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
