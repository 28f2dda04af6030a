#!/usr/bin/env python3
"""The Python package with a server: scenes, streams, edits, tools, async, security, and a server that dies and comes back."""
import asyncio
import json
import pathlib
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest

import numpy as np

import palpate
import palpate.aio
from google.protobuf import json_format
from palpate.v1 import control_pb2, haptics_pb2, scene_pb2
from support import PATIENCE_S, phantom


class ServerTest(unittest.TestCase):
    """Tests that share one server."""

    @classmethod
    def setUpClass(cls):
        cls.server = palpate.launch()
        cls.addClassCleanup(cls.server.close)


class SceneTest(ServerTest):

    def test_life_of_a_scene(self):
        with self.server.create(phantom(), "life") as scene:
            self.assertEqual([known.id for known in self.server.scenes()], ["life"])
            self.assertEqual(self.server.scene("life").spec().bodies[0].generator.slab.size_m.x, 0.06)
            self.assertEqual(scene.step(3).step, 3)
            self.assertEqual(scene.rate("fast").rate.mode, control_pb2.RATE_MODE_AS_FAST_AS_POSSIBLE)
            self.assertEqual(scene.play().state, control_pb2.RUN_STATE_PLAYING)
            with self.assertRaisesRegex(palpate.FailedPrecondition, "the scene plays"):
                scene.step()
            self.assertEqual(scene.pause().state, control_pb2.RUN_STATE_PAUSED)
            info = scene.reset("a test")
            self.assertEqual((info.step, info.reset_by), (0, "a test"))
            self.assertEqual(scene.export().count(b"\nf "), scene.info().bodies[0].surface_triangle_count)
            self.assertIn(b"CELLS", scene.export("slab", "vtk"))
            self.assertIn(b"UnstructuredGrid", scene.export("slab", "vtu"))
            self.assertEqual(scene.export(format="glb")[:4], b"glTF")
            with self.assertRaisesRegex(palpate.InvalidArgument, "none of obj, vtk, msh, vtu, vtp, glb"):
                scene.export(format="stl")
        with self.assertRaisesRegex(palpate.NotFound, 'no scene "life"'):
            self.server.scene("life")

    def test_messages_of_the_server_arrive(self):
        with self.assertRaisesRegex(palpate.InvalidArgument, r"bodies\[0\].material.young_modulus_pa: 1 is outside \[10, 1e\+09\]"):
            self.server.create(phantom(young_modulus_pa=1))
        self.assertEqual(self.server.check(phantom()).bodies[0].tet_count, 360)
        with self.server.create(phantom(), "twice"):
            with self.assertRaises(palpate.AlreadyExists):
                self.server.create(phantom(), "twice")

    def test_frames(self):
        with self.server.create(phantom()) as scene:
            with scene.operate("probe") as tool:
                np.testing.assert_allclose(tool.position_m, (0, 0, 0.03))
                sequence = tool.move((0, 0, 0.012))
                step_until_used(scene, tool, sequence)
                scene.step(5)
            frame = scene.frame()
            positions = frame.positions("slab")
            self.assertEqual(positions.shape, (frame.topology["slab"].vertex_count, 3))
            self.assertEqual(positions.dtype, np.float32)
            self.assertFalse(positions.flags.owndata)
            self.assertLess(positions[:, 2].min(), -0.0099)
            contacts = frame.contacts
            self.assertGreater(len(contacts), 0)
            self.assertEqual(set(contacts["tool"]), {0})
            # What the tissue does to the tool is what the tool does to the tissue.
            np.testing.assert_allclose(frame.force("probe"), -contacts["force_n"].sum(axis=0), atol=1e-6)
            self.assertGreater(frame.force("probe")[2], 0.01)
            self.assertIn("touching", frame.tools["probe"].activities)
            with self.assertRaisesRegex(palpate.NotFound, "'liver'; the scene has slab"):
                frame.positions("liver")
            with scene.watch(positions="uint16") as frames:
                coarse = next(frames)
            error = coarse.message.bodies[0].max_error_m
            self.assertLess(np.abs(coarse.positions() - positions).max(), 1.01 * error + 1e-9)
            self.assertGreater(np.abs(coarse.positions() - positions).max(), 0)
            volume = scene.frame(volume=True)
            tets = volume.topology["slab"].tets
            self.assertEqual(len(tets), 360)
            corners = volume.positions("slab")[tets].astype(float)
            edges = corners[:, 1:] - corners[:, :1]
            self.assertGreater(np.linalg.det(edges).min(), 0)

    def test_pressures(self):
        spec = phantom().build()
        spec.bodies[0].volume_stiffness_pa = 1e5
        spec.bodies.add().CopyFrom(spec.bodies[0])
        spec.bodies[1].name = "other"
        spec.bodies[1].ClearField("volume_stiffness_pa")
        spec.bodies[1].pose.position_m.x = 0.2
        with self.server.create(spec) as scene:
            with scene.operate("probe") as tool:
                step_until_used(scene, tool, tool.move((0, 0, 0.006)))
                scene.step(20)
            frame = scene.frame()
            self.assertGreater(frame.pressure_pa("slab"), 1)
            self.assertLess(frame.pressure_pa("slab"), 1e4)
            self.assertIsNone(frame.pressure_pa("other"))
            with self.assertRaises(palpate.NotFound):
                frame.pressure_pa(2)

    def test_watch_follows_edits(self):
        with self.server.create(phantom(), play=True, rate="fast") as scene, scene.watch(volume=True, max_rate_hz=1000) as frames:
            first = next(frames)
            self.assertEqual(len(first.topology["slab"].tets), 360)
            outcome = scene.refine("slab", 0.006, ball=((0, 0, 0.01), 0.008))
            self.assertGreater(len(outcome.added_tets), 0)
            cut = scene.edit({"body": "slab", "incise": {"edges": [{"end0_m": (x, 0.01, 0.02), "end1_m": (x, 0.01, 0.0)} for x in (-0.04, 0.04)]}})
            carved = scene.carve("slab", ball=((0.015, -0.015, 0.01), 0.012))
            self.assertGreater(len(carved.removed_tets), 0)
            info = scene.pause()
            for frame in frames:  # each is checked by hash on its way
                if frame.topology.version > cut.topology_version and frame.step == info.step:
                    break
            self.assertEqual(len(frame.topology["slab"].tets), info.bodies[0].tet_count)
            self.assertEqual(len(first.topology["slab"].tets), 360)
            self.assertLess(frame.positions("slab")[frame.topology["slab"].tets].max(), 0.2)

    def test_texture_coordinates_of_corners_follow_edits(self):
        builder = phantom().build()
        builder.bodies[0].texture.CopyFrom(scene_pb2.TextureSpec(pattern=scene_pb2.TEXTURE_PATTERN_CHECKER, box={}, tile_size_m=0.02))
        for volume in (False, True):
            with self.server.create(builder) as scene, scene.watch(volume=volume, max_rate_hz=1000) as frames:
                first = next(frames).topology["slab"]
                self.assertIsNone(first.texture_coordinates)
                self.assertEqual(first.texture_corners.shape, (len(first.triangle_slots), 3, 2))
                self.check_corners(frames.keyframe, first.triangle_slots, first.texture_corners, next(scene.watch(volume=volume)))
                scene.refine("slab", 0.006, ball=((0, 0, 0.01), 0.008))
                scene.carve("slab", ball=((0.015, -0.015, 0.01), 0.012))
                step = scene.step().step
                last = next(frame for frame in frames if frame.step == step).topology["slab"]  # each version is checked by hash on its way
                self.assertGreater(len(last.triangle_slots), len(first.triangle_slots))
                live = last.triangle_slots.any(axis=1)
                self.assertFalse(last.texture_corners[~live].any())
                self.assertGreater(np.count_nonzero(last.texture_corners[live].any(axis=(1, 2))), np.count_nonzero(first.texture_corners.any(axis=(1, 2))))

    def check_corners(self, keyframe, triangles, corners, frame):
        """At rest the coordinates of a box are places along two axes, in tiles: edges of triangles are as long in them."""
        self.assertTrue(keyframe.bodies[0].texture.by_corner)
        places = frame.positions("slab")[triangles].astype(float)
        edges = np.linalg.norm(places[:, 1:] - places[:, :1], axis=2)
        np.testing.assert_allclose(0.02 * np.linalg.norm(corners[:, 1:] - corners[:, :1], axis=2), edges, rtol=1e-4)

    def test_edits_are_idempotent_by_key(self):
        with self.server.create(phantom()) as scene:
            edit = {"body": "slab", "carve": {"region": {"ball": {"center_m": (0, 0, 0.01), "radius_m": 0.012}}}}
            first = scene.edit(edit, key="k")
            again = scene.edit(edit, key="k")
            self.assertTrue(again.is_repeat)
            self.assertEqual(list(first.outcomes[0].removed_tets), list(again.outcomes[0].removed_tets))
            with self.assertRaisesRegex(palpate.FailedPrecondition, "expected_topology_version: 1"):
                scene.edit(edit, expected_topology_version=1)
            with self.assertRaisesRegex(palpate.NotFound, "edits"):
                scene.carve("liver", ball=((0, 0, 0), 0.01))
            scene.material("slab", {"young_modulus_pa": 20000})
            self.assertTrue(scene.refine("slab", 0.004, ball=((0, 0, 0), 0.02), tet_budget=300).is_refused)

    def test_joints_are_driven_and_let_go(self):
        door = {"name": "door", "kind": "BODY_KIND_RIGID", "pose": {"position_m": {"x": 0.15}},
                "generator": {"slab": {"size_m": {"x": 0.2, "y": 0.01, "z": 0.3}}, "edge_length_m": 0.1}}
        with self.server.create({"bodies": [door], "joints": [{"name": "hinge", "body_b": "door", "hinge": {}}]}) as scene:
            scene.drive("hinge", {"turn": {"motor": {"speed_rad_per_s": 2}}})
            scene.step(60)
            frame = scene.frame()
            self.assertEqual([joint.name for joint in frame.topology.joints], ["hinge"])
            row = frame.joints[0]
            self.assertAlmostEqual(row["position"], 1, delta=1e-3)
            np.testing.assert_allclose(row["axis"], (0, 0, 1), atol=1e-6)
            np.testing.assert_allclose(row["point_m"], row["point_a_m"], atol=1e-6)
            self.assertFalse(row["is_broken"])
            scene.drive("hinge", {"release": {}})
            scene.step()
            self.assertTrue(scene.frame().joints[0]["is_broken"])
            with self.assertRaises(palpate.NotFound):
                scene.drive("lock", {"release": {}})

    def test_supports_tell_what_they_carry(self):
        knots = [0, 0, 0, 0.5, 1, 1, 1]
        places = [0, 0.025, 0.075, 0.1]
        surface = {"degree_u": 2, "degree_v": 2, "knots_u": knots, "knots_v": knots, "control_m": [c for x in places for y in places for c in (x, y, 0)]}
        edge = {"box": {"min_m": {"x": -0.01, "y": -1, "z": -1}, "max_m": {"x": 0.03, "y": 1, "z": 1}}, "name": "edge"}
        sheet = {"name": "sheet", "nurbs": {"object": {"version": 1, "patches": [surface]}, "thickness_m": 0.002}, "fixed": [edge],
                 "material": {"model": "MATERIAL_MODEL_ST_VENANT_KIRCHHOFF", "young_modulus_pa": 1e7, "density_kg_per_m3": 1000, "mass_damping_per_s": 8}}
        with self.server.create({"bodies": [sheet]}) as scene:
            scene.step(240)
            frame = scene.frame()
            self.assertEqual([(s.name, s.body, s.region, s.kind) for s in frame.topology.supports], [("edge", "sheet", 0, "held")])
            row = frame.supports[0]
            np.testing.assert_allclose(row["force_n"], (0, 0, -9.81 * 0.02), atol=0.01 * 9.81 * 0.02)
            np.testing.assert_allclose(row["point_m"], (0.0125, 0.05, 0), atol=1e-6)
            self.assertGreater(row["torque_n_m"][1], 0.5 * 0.0375 * 9.81 * 0.02)
            self.assertFalse(row["is_released"])

    def test_stitches_tell_where_they_hold(self):
        box = {"name": "box", "kind": "BODY_KIND_STATIC", "generator": {"slab": {"size_m": {"x": 0.1, "y": 0.1, "z": 0.02}}, "edge_length_m": 0.05}}
        gauze = {"name": "gauze", "pose": {"position_m": {"z": 0.013}}, "shell": {"sheet": {"length_m": 0.06, "width_m": 0.04}, "edge_length_m": 0.02}}
        suture = {"body_a": "gauze", "body_b": "box", "ball": {"radius_m": 1}, "reach_m": 0.005}
        with self.server.create({"bodies": [box, gauze], "sutures": [suture]}) as scene:
            scene.step(5)
            frame = scene.frame()
            stitches = frame.stitches
            self.assertEqual(stitches.shape, (len(frame.positions("gauze")), 2, 3))
            np.testing.assert_allclose(stitches[:, 0], frame.positions("gauze"), atol=1e-6)
            np.testing.assert_allclose(stitches[:, 1, 2], 0.01, atol=1e-6)
            self.assertEqual(frame.clips.shape, (0, 3))

    def test_grasp_and_release(self):
        spec = phantom().tool("forceps", (0, 0, 0.0105), radius_m=0.002, drive="direct", instrument={"kind": "forceps"})
        with self.server.create(spec) as scene:
            self.assertGreater(scene.grasp("forceps", 0.01).grasped_vertices, 0)
            scene.step()
            self.assertIn("grasping", scene.frame().tools["forceps"].activities)
            scene.release("forceps")
            scene.step()
            self.assertNotIn("grasping", scene.frame().tools["forceps"].activities)

    def test_poses_do_not_pile_up(self):
        answers = queue.Queue()
        answers.put(haptics_pb2.OperateUpdate(attached=haptics_pb2.Attached()))
        sent = []

        class Call:
            """A connection that takes nothing."""

            def __iter__(self):
                return iter(answers.get, None)

            def __next__(self):
                return answers.get()

            def cancel(self):
                answers.put(None)

        class Connection:
            stubs = types.SimpleNamespace(haptics=types.SimpleNamespace(Operate=None))

            def stream(self, method, requests):
                sent.append(requests)
                return Call()

        tool = palpate.scenes.Tool(Connection(), haptics_pb2.OperateRequest(attach=haptics_pb2.Attach(tool="probe")))
        self.addCleanup(answers.put, None)
        for i in range(5000):
            tool.move((0, 0, i), pedal=1000 <= i < 2000)
        answers.put(None)
        tool.close()
        waiting = list(sent[0])
        self.assertEqual([request.WhichOneof("request") for request in waiting], ["attach", "pose", "pose", "pose"])
        self.assertEqual([(request.pose.sequence, request.pose.pedal) for request in waiting[1:]],
                         [(1000, False), (2000, True), (5000, False)])
        many = palpate._streams.PoseQueue(haptics_pb2.OperateRequest())
        for i in range(1000):
            many.put(haptics_pb2.OperateRequest(pose=haptics_pb2.ToolPose(sequence=i + 1, pedal=i % 2 == 0)))
        many.close()
        self.assertEqual([request.pose.sequence for request in many][1:], list(range(985, 1001)))

    def test_tools_have_one_hand(self):
        with self.server.create(phantom()) as scene:
            with scene.operate("probe"):
                with self.assertRaisesRegex(palpate.AlreadyExists, 'operated by station "python"'):
                    scene.operate("probe")
            with self.assertRaisesRegex(palpate.NotFound, 'no tool "scalpel"'):
                scene.operate("scalpel")
            eventually(self, lambda: not scene.info().operated_tools)
            with scene.operate("probe", station="again") as tool:
                tool.move((0, 0, 1e6))
                with self.assertRaisesRegex(palpate.InvalidArgument, "position_m.z"):
                    step_until_used(scene, tool, 1)

    def test_local_model_predicts_the_force(self):
        with self.server.create(phantom()) as scene, scene.operate("probe") as tool:
            model = step_until_used(scene, tool, tool.move((0, 0, 0.012)))
            for _ in range(5):
                scene.step()
            model = step_until_used(scene, tool, tool.move((0, 0, 0.012)))
            np.testing.assert_allclose(model.force_at((0, 0, 0.012)), model.force_n, rtol=0.05, atol=1e-3)
            self.assertGreater(model.force_at((0, 0, 0.0118))[2], model.force_n[2])

    def test_a_hand_on_a_station(self):
        with self.server.create(phantom(), play=True) as scene:
            place = scene.frame().tools["probe"].position_m
            with scene.station("probe", arguments=("--ramp", "0")) as hand:
                deepest, ticks, moved, acted = 0.0, [], 0, 0
                for tick in hand.ticks(1.5):
                    ticks.append(tick.tick)
                    acted = max(acted, tick.pose)
                    if tick.is_engaged:
                        deepest = max(deepest, tick.force_n[2])
                        place[2] = max(place[2] - 2e-5, 0.013)  # into the tissue, whose top is at 0.01, with a tip of 5 mm
                    moved = hand.move(place)
            self.assertGreater(deepest, 0.01)  # it is pushed back
            self.assertEqual(ticks, sorted(set(ticks)))
            self.assertLessEqual(acted, moved)
            self.assertGreater(acted, 1)
            self.assertEqual(hand.report["device"], "controller on omega.3")
            self.assertGreaterEqual(hand.report["cycles"], len(ticks))
            self.assertGreater(hand.report["contact_cycles"], 0)
            eventually(self, lambda: not scene.info().operated_tools)
            # And what cannot be.
            with self.assertRaisesRegex(palpate.NotFound, "no tool 'hammer'; it has 'probe'"):
                scene.station("hammer")
            with self.assertRaisesRegex(palpate.InvalidArgument, "'glove' is not one of"):
                scene.station("probe", profile="glove")
            with scene.operate("probe"), scene.station("probe", timeout_s=1) as hand:
                with self.assertRaisesRegex(palpate.FailedPrecondition, 'operated by station "python"'):
                    list(hand.ticks())
            with scene.station("probe") as hand:
                with self.assertRaisesRegex(palpate.InvalidArgument, "finite"):
                    hand.move((0, 0, float("nan")))

    def test_a_deleted_scene_ends_its_streams(self):
        scene = self.server.create(phantom(), play=True)
        with scene.watch() as frames:
            next(frames)
            scene.delete()
            with self.assertRaisesRegex(palpate.Aborted, "was deleted"):
                for _ in frames:
                    pass
        with scene.watch() as frames, self.assertRaises(palpate.NotFound):
            next(frames)

    def test_close_ends_an_iterator_of_another_thread(self):
        with self.server.create(phantom()) as scene:
            frames = scene.watch()
            next(frames)
            threading.Timer(0.1, frames.close).start()
            self.assertEqual(list(frames), [])


def step_until_used(scene, tool, sequence):
    """Steps until a step has used a pose, and returns its local model: poses and steps come on different ways."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        step = scene.step().step
        model = tool.wait(timeout_s=PATIENCE_S, step=step)
        if model.pose_sequence >= sequence:
            return model
    raise AssertionError("the pose never arrived")


def eventually(test, condition):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        test.assertLess(time.monotonic(), end, "never true")
        time.sleep(0.01)


class AsyncTest(ServerTest):

    def test_everything_once(self):
        async def run():
            async with await palpate.aio.connect(self.server.target) as server:
                self.assertTrue((await server.info()).device)
                self.assertEqual((await server.check(phantom())).bodies[0].tet_count, 360)
                async with await server.create(phantom(), "async") as scene:
                    self.assertEqual([known.id for known in await server.scenes()], ["async"])
                    await scene.step(2)
                    await scene.rate("fast")
                    await scene.play()
                    async with await scene.operate("probe") as tool:
                        model = await tool.wait(await tool.move((0, 0, 0.012)))
                        self.assertGreaterEqual(model.pose_sequence, 1)
                    versions = []
                    async with scene.watch(max_rate_hz=1000) as frames:
                        async for frame in frames:
                            versions.append(frame.topology.version)
                            if len(versions) == 1:
                                await scene.carve("slab", ball=((0, 0, 0.01), 0.012))
                            elif versions[-1] > versions[0]:
                                break
                    await scene.pause()
                    self.assertGreater(len((await scene.frame()).positions("slab")), 100)
                    self.assertTrue(await scene.export())
                    with self.assertRaisesRegex(palpate.NotFound, "body"):
                        await scene.incise("liver", [[[0, 0, 0], [0, 0, 1]], [[1, 0, 0], [1, 0, 1]]])
                    self.assertEqual((await scene.reset()).step, 0)
                with self.assertRaises(palpate.NotFound):
                    await server.scene("async")

        asyncio.run(run())

    def test_a_tool_outlives_a_wait(self):
        async def run():
            async with await palpate.aio.connect(self.server.target) as server, await server.create(phantom(), "patient") as scene:
                async with await scene.operate("probe") as tool:
                    with self.assertRaises(palpate.DeadlineExceeded):
                        await tool.wait(await tool.move((0, 0, 0.012)), timeout_s=0.01)
                    await scene.play()
                    model = await tool.wait(await tool.move((0, 0, 0.012)), timeout_s=PATIENCE_S)
                    self.assertIs(tool.model.message.__class__, model.message.__class__)
                with self.assertRaisesRegex(palpate.NotFound, 'no tool "scalpel"'):
                    await scene.operate("scalpel")

        asyncio.run(run())

    def test_a_batch(self):
        async def run():
            async with await palpate.aio.connect(self.server.target) as server:
                async with palpate.aio.Batch(server, phantom(), 2, ["tool.probe.force"]) as batch:
                    await batch.reset([1], {"young_modulus_pa": 20000})
                    result = await batch.move("probe", (0, 0, 0.012), steps=3)
                with self.assertRaisesRegex(palpate.InvalidArgument, r"probes\[0\]"):
                    async with palpate.aio.Batch(server, phantom(), 2, ["tool.none.force"]):
                        pass
                with self.assertRaises(palpate.FailedPrecondition):
                    await palpate.aio.Batch(server, phantom(), 1)._ask(None)
                return result

        result = asyncio.run(run())
        with palpate.Batch(self.server, phantom(), 2, ["tool.probe.force"]) as batch:
            batch.reset([1], {"young_modulus_pa": 20000})
            same = batch.move("probe", (0, 0, 0.012), steps=3)
        np.testing.assert_array_equal(result.state_hashes, same.state_hashes)
        np.testing.assert_array_equal(result.observations, same.observations)
        self.assertGreater(result.observations[1, 2], result.observations[0, 2])

    def test_a_hand_on_a_station(self):
        async def press(scene):
            place = (await scene.frame()).tools["probe"].position_m
            async with await scene.station("probe", arguments=("--ramp", "0")) as hand:
                deepest, ticks, moved, acted, others = 0.0, [], 0, 0, 0

                async def beside():
                    nonlocal others
                    while True:
                        others += 1
                        await asyncio.sleep(0)

                task = asyncio.create_task(beside())
                async for tick in hand.ticks(PATIENCE_S):
                    if deepest > 0.01 and len(ticks) >= 1000:
                        break
                    ticks.append(tick.tick)
                    acted = max(acted, tick.pose)
                    if tick.is_engaged:
                        deepest = max(deepest, tick.force_n[2])
                        place[2] = max(place[2] - 2e-5, 0.013)
                    moved = await hand.move(place)
                task.cancel()
            self.assertGreater(deepest, 0.01)
            self.assertEqual(ticks, sorted(set(ticks)))
            self.assertLessEqual(acted, moved)
            self.assertGreater(acted, 1)
            self.assertGreaterEqual(others, len(ticks))
            self.assertEqual(hand.report["device"], "controller on omega.3")
            self.assertGreater(hand.report["contact_cycles"], 0)

        async def fail(scene):
            with self.assertRaisesRegex(palpate.NotFound, "no tool 'hammer'; it has 'probe'"):
                await scene.station("hammer")
            with self.assertRaisesRegex(palpate.InvalidArgument, "'glove' is not one of"):
                await scene.station("probe", profile="glove")
            async with await scene.operate("probe"), await scene.station("probe", timeout_s=1) as hand:
                with self.assertRaisesRegex(palpate.FailedPrecondition, 'operated by station "python"'):
                    [tick async for tick in hand.ticks()]

        async def close(scene):
            """Who follows its ticks comes to an end with it."""
            hand = await scene.station("probe")
            ticks = []

            async def follow():
                async for tick in hand.ticks():
                    ticks.append(tick)

            task = asyncio.create_task(follow())
            end = time.monotonic() + PATIENCE_S
            while not ticks:
                self.assertLess(time.monotonic(), end, "never a tick")
                await asyncio.sleep(0.01)
            with self.assertRaisesRegex(palpate.InvalidArgument, "finite"):
                await hand.move((0, 0, float("nan")))
            await hand.close()
            await asyncio.wait_for(task, PATIENCE_S)
            self.assertIn("device", hand.report)

        async def run():
            async with await palpate.aio.connect(self.server.target) as server, await server.create(phantom(), play=True) as scene:
                for part in (press, fail, close):
                    await part(scene)
                    end = time.monotonic() + PATIENCE_S
                    while (await scene.info()).operated_tools:
                        self.assertLess(time.monotonic(), end, "the tool is never let go")
                        await asyncio.sleep(0.01)

        asyncio.run(run())

    def test_streams_side_by_side(self):
        async def follow(server, name):
            async with await server.create(phantom(), name, play=True, rate="fast") as scene:
                async for frame in scene.watch(positions="none", max_rate_hz=1000):
                    if frame.step >= 20:
                        return name

        async def run():
            async with await palpate.aio.connect(self.server.target) as server:
                return await asyncio.gather(*(follow(server, f"side-{i}") for i in range(3)))

        self.assertEqual(asyncio.run(run()), ["side-0", "side-1", "side-2"])


class PastTest(unittest.TestCase):
    """Recordings and what outlives a server."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.server = palpate.launch(state_dir=cls.folder / "state", patience_s=PATIENCE_S)
        cls.addClassCleanup(cls.server.close)

    def test_save_and_open(self):
        with self.server.create(phantom(), "saved") as scene:
            scene.step(3, poses={"probe": (0, 0, 0.012)})
            scene.carve("slab", ball=((0.01, 0.01, 0.01), 0.012))
            info = scene.step(2)
            size = scene.save(self.folder / "saved.palrec")
            self.assertEqual(size, (self.folder / "saved.palrec").stat().st_size)
        with self.server.open_recording(self.folder / "saved.palrec") as replay:
            now = replay.info()
            self.assertEqual((now.state_hash, now.step, now.is_replay), (info.state_hash, info.step, True))
            self.assertEqual(len(replay.frame().topology["slab"].triangles), now.bodies[0].surface_triangle_count)
            with self.assertRaises(palpate.FailedPrecondition):
                replay.carve("slab", ball=((0, 0, 0.01), 0.012))
        (self.folder / "torn.palrec").write_bytes((self.folder / "saved.palrec").read_bytes()[:100])
        with self.assertRaises((palpate.DataLoss, palpate.InvalidArgument)):
            self.server.open_recording(self.folder / "torn.palrec")
        with self.assertRaises(palpate.NotFound):
            self.server.open_recording(self.folder / "none.palrec")

    def test_record_and_replay(self):
        path = self.folder / "run.palrec"
        with self.server.create(phantom(), "recorded") as scene:
            with scene.record(path, until_step=8) as recorder:
                hashes = [scene.step(1, poses={"probe": (0, 0, 0.016 - 0.0005 * i)}).state_hash for i in range(8)]
                self.assertEqual(recorder.wait(), path.stat().st_size)
            timeline = scene.bookmark("half", 4)
            self.assertIn("half", [event.label for event in timeline.events])
            with scene.replay("again") as again:
                self.assertEqual(again.seek("half").state_hash, hashes[3])
                self.assertEqual(again.seek(8).state_hash, hashes[7])
                again.seek(4)
                with again.branch("other") as other:
                    self.assertEqual(other.info().state_hash, hashes[3])
                    self.assertEqual(other.step(1, poses={"probe": (0, 0, 0.014)}).state_hash, hashes[4])
                    self.assertNotEqual(other.step(1, poses={"probe": (0, 0, 0.02)}).state_hash, hashes[5])
        with self.server.open_recording(path, "from-file") as replay:
            self.assertEqual([replay.step().state_hash for _ in range(7)], hashes[:7])
            self.assertEqual(replay.seek(8).state_hash, hashes[7])
            self.assertEqual(replay.timeline().divergences, 0)
            with self.assertRaisesRegex(palpate.OutOfRange, "at its end"):
                replay.step()

    def test_temporary_replays(self):
        """The server hears which replays it may delete; when it does is tested with it."""
        path = self.folder / "temporary.palrec"
        with self.server.create(phantom(), "left-alone") as scene:
            scene.save(path)
            self.assertFalse(scene.info().is_temporary)
            for temporary in (False, True):
                with scene.replay(temporary=temporary) as replay, self.server.open_recording(path, temporary=temporary) as opened:
                    self.assertEqual((replay.info().is_temporary, opened.info().is_temporary), (temporary, temporary))

            async def run():
                async with await palpate.aio.connect(self.server.target) as server:
                    async with await (await server.scene("left-alone")).replay(temporary=True) as replay:
                        self.assertTrue((await replay.info()).is_temporary)
                    async with await server.open_recording(path, temporary=True) as replay:
                        self.assertTrue((await replay.info()).is_temporary)

            asyncio.run(run())

    def test_with_async(self):
        path, saved = self.folder / "async.palrec", self.folder / "async-state.palrec"

        async def run():
            async with await palpate.aio.connect(self.server.target) as server, await server.create(phantom(), "async-past") as scene:
                self.assertEqual((await scene.spec()).name, "phantom")
                async with await scene.record(path, until_step=4) as recorder:
                    hashes = [(await scene.step(1, {"probe": (0, 0, 0.014 - 0.0005 * i)})).state_hash for i in range(4)]
                    self.assertEqual(await recorder.wait(), path.stat().st_size)
                await scene.bookmark("half", 2)
                self.assertEqual(await scene.save(saved), saved.stat().st_size)
                async with await scene.replay() as again:
                    self.assertEqual((await again.seek("half")).state_hash, hashes[1])
                    async with await again.branch() as other:
                        self.assertEqual((await other.step(1, {"probe": (0, 0, 0.013)})).state_hash, hashes[2])
                self.assertIn("half", [event.label for event in (await scene.timeline()).events])
                for file, position in ((path, 4), (saved, 0)):
                    async with await server.open_recording(file) as replay:
                        self.assertEqual((await replay.seek(position) if position else await replay.info()).state_hash, hashes[3])
                with self.assertRaisesRegex(palpate.NotFound, "no-such-folder"):
                    await scene.record(self.folder / "no-such-folder/x")
                async with await scene.record(path):
                    pass
                self.assertGreater(path.stat().st_size, 0)

        asyncio.run(run())

    def test_files_that_cannot_be_written(self):
        kept = self.folder / "kept.palrec"
        kept.write_bytes(b"kept")
        with self.server.create(phantom()) as scene:
            # The server has much to send when the reader leaves.
            for _ in range(20):
                with self.assertRaisesRegex(palpate.NotFound, "no-such-folder"):
                    scene.save(self.folder / "no-such-folder/x")
                with self.assertRaisesRegex(palpate.NotFound, "no-such-folder"):
                    scene.record(self.folder / "no-such-folder/x")
            self.assertEqual(scene.info().step, 0)
            gone = self.server.create(phantom())
            gone.delete()
            for write in (gone.save, gone.record):
                with self.assertRaises(palpate.NotFound):
                    write(kept)
        self.assertEqual(kept.read_bytes(), b"kept")
        self.assertIsNotNone(self.server.pid)
        self.assertEqual([path.name for path in self.folder.glob("*.part")], [])

    def test_scenes_outlive_the_server(self):
        scene = self.server.create(phantom(), "kept", play=True, rate="fast")
        with scene.watch(max_rate_hz=1000) as frames:
            version = next(frames).topology.version
            done = scene.edit({"body": "slab", "carve": {"region": {"ball": {"center_m": (0, 0, 0.01), "radius_m": 0.012}}}}, key="only-once")
            self.assertGreater(len(done.outcomes[0].removed_tets), 0)
            self.server.kill()
            threading.Timer(0.2, self.server.restart).start()
            for frame in frames:
                if frames.reconnects and frame.step > done.step:
                    break
            # The edit was answered, so it is there; sent again, it is not done twice.
            self.assertGreaterEqual(frame.topology.version, version)
            again = scene.edit({"body": "slab", "carve": {"region": {"ball": {"center_m": (0, 0, 0.01), "radius_m": 0.012}}}}, key="only-once")
            self.assertTrue(again.is_repeat)
            self.assertEqual(scene.info().bodies[0].tet_count, 360 - len(done.outcomes[0].removed_tets))
        scene.delete()


class StartTest(unittest.TestCase):

    def test_nobody_there(self):
        with self.assertRaisesRegex(palpate.Unavailable, "no server answers within 0.2 s"):
            palpate.connect("127.0.0.1:9", timeout_s=0.2)
        with self.assertRaisesRegex(palpate.NotFound, "no-such-server: no such program"):
            palpate.launch(program="no-such-server")
        with self.assertRaisesRegex(palpate.Internal, "(?s)ended with status 2.*no-such-flag"):
            palpate.launch(arguments=["--no-such-flag"])

    def test_token(self):
        with tempfile.TemporaryDirectory() as folder:
            token = pathlib.Path(folder) / "token"
            token.write_text("secret\n", encoding="utf-8")
            with palpate.launch(arguments=["--token-file", str(token)]) as server:
                with self.assertRaises(palpate.Unauthenticated):
                    server.info()
                with palpate.connect(server.target, token="secret") as known:
                    self.assertTrue(known.info().version)
                    with known.create(phantom()) as scene, scene.watch() as frames:
                        self.assertEqual(next(frames).step, 0)

    def test_tls(self):
        with tempfile.TemporaryDirectory() as folder:
            key, certificate = f"{folder}/key.pem", f"{folder}/cert.pem"
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                            "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", certificate],
                           check=True, capture_output=True)
            process = palpate.scenes.ServerProcess(None, ["--tls-cert", certificate, "--tls-key", key], None, False, "warning", PATIENCE_S)
            self.addCleanup(process.close)
            process.start()
            with palpate.connect(f"localhost:{process.grpc_port}", tls=certificate) as server:
                self.assertTrue(server.info().version)
            with self.assertRaises(palpate.Unavailable):
                palpate.connect(f"localhost:{process.grpc_port}", tls=True, timeout_s=0.5)
            with self.assertRaisesRegex(palpate.NotFound, "tls: "):
                palpate.connect("localhost:1", tls=f"{folder}/none.pem")

    def test_a_server_that_dies_and_comes_back(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "phantom.json"
            path.write_text(json.dumps(json_format.MessageToDict(phantom().build(), preserving_proto_field_name=True)), encoding="utf-8")
            with palpate.launch(scenes=[path], patience_s=PATIENCE_S) as server:
                scene = server.scene("phantom")
                with scene.watch() as frames:
                    self.assertEqual(len(next(frames).topology.bodies), 1)
                    server.kill()
                    self.assertIsNone(server.pid)
                    returned = threading.Timer(0.3, server.restart)
                    returned.start()
                    for frame in frames:
                        if frames.reconnects and frame.step > 0:
                            break
                    self.assertGreaterEqual(frames.reconnects, 1)
                    returned.join()
                    self.assertEqual(scene.edit({"body": "slab", "material": {"material": {"young_modulus_pa": 9000}}}).left_out_count, 0)

    def test_patience_ends(self):
        with palpate.launch(patience_s=0.3) as server:
            scene = server.create(phantom())
            with scene.watch() as frames:
                next(frames)
                server.kill()
                with self.assertRaises(palpate.Unavailable):
                    for _ in frames:
                        pass
            with self.assertRaises(palpate.Unavailable):
                scene.info()

    def test_a_server_ends_with_its_program(self):
        code = "import palpate; s = palpate.launch(); print(s.pid, flush=True)"
        pid = int(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
        eventually(self, lambda: not pathlib.Path(f"/proc/{pid}").exists())

    def test_a_server_ends_with_a_program_that_is_killed(self):
        code = "import os, palpate, signal; s = palpate.launch(); print(s.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
        killed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertEqual(killed.returncode, -signal.SIGKILL)
        pid = int(killed.stdout)
        eventually(self, lambda: not pathlib.Path(f"/proc/{pid}").exists())


if __name__ == "__main__":
    unittest.main()
