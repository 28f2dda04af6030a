#!/usr/bin/env python3
"""From mappings, arrays and files to messages; spaces; local models. Needs no server."""
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import palpate
from palpate import _convert, _requests, _wire
from palpate.v1 import batch_pb2, edit_pb2, haptics_pb2, scene_pb2


class FillTest(unittest.TestCase):

    def test_vectors_enums_and_depth(self):
        spec = _convert.scene_spec({
            "name": "x", "gravity_m_per_s2": [0, 0, -1], "start": "when_watched",
            "bodies": [{"name": "b", "generator": {"sphere": {"radius_m": np.float32(0.25)}}, "color": (1, 0.5, 0), "kind": "BODY_KIND_RIGID"}],
            "tools": [{"name": "t", "restPose": {"position_m": np.array([1, 2, 3]), "rotation": (0, 1, 0, 0)}}],
        })
        self.assertEqual(spec.gravity_m_per_s2.z, -1)
        self.assertEqual(spec.start, scene_pb2.START_WHEN_WATCHED)
        self.assertEqual(spec.bodies[0].kind, scene_pb2.BODY_KIND_RIGID)
        self.assertEqual(spec.bodies[0].generator.sphere.radius_m, 0.25)
        self.assertEqual(spec.tools[0].rest_pose.rotation.x, 1)

    def test_errors_name_the_path(self):
        for values, words in [
            ({"bodies": [{}, {"nam": 1}]}, "bodies[1].nam: there is no such field"),
            ({"bodies": {"name": "x"}}, "bodies: {'name': 'x'} is not a list"),
            ({"gravity_m_per_s2": [1, 2]}, "gravity_m_per_s2: 2 numbers, not 3"),
            ({"start": "later"}, "start: 'later' is none of unspecified, at_once, when_watched"),
            ({"dt_s": "fast"}, "dt_s: 'fast' is not of the field's type"),
            ({"solver": {"iterations": 1.5}}, "solver.iterations: 1.5"),
            ({"solver": {"iterations": -1}}, "solver.iterations: -1"),
            ({"solver": {"report_energy": 1}}, "solver.report_energy: 1"),
            ({"solver": 3}, "solver: 3 is neither a mapping"),
            ({"name": 3}, "name: 3 is not a text"),
        ]:
            with self.assertRaises(palpate.InvalidArgument) as caught:
                _convert.scene_spec(values)
            self.assertIn(words, str(caught.exception))

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "scene.json"
            with self.assertRaises(palpate.NotFound):
                _convert.scene_spec(path)
            path.write_text('{"bodies": [\n}', encoding="utf-8")
            with self.assertRaisesRegex(palpate.InvalidArgument, "scene.json: line 2"):
                _convert.scene_spec(path)
            path.write_text('{"bodis": []}', encoding="utf-8")
            with self.assertRaisesRegex(palpate.InvalidArgument, "scene.json: bodis: there is no such field"):
                _convert.scene_spec(str(path))
            path.write_text(json.dumps({"name": "ok"}), encoding="utf-8")
            self.assertEqual(_convert.scene_spec(path).name, "ok")

    def test_builder_and_arrays(self):
        vertices = np.arange(12.0).reshape(4, 3)
        spec = palpate.SceneBuilder("n", dt_s=0.01).solver(iterations=3).mesh("m", vertices, np.array([[0, 1, 2, 3]]), color=(1, 0, 0)).fixed_below(
            2).plane().tool("t", (0, 0, 1), instrument={"kind": "scalpel"}).build()
        self.assertEqual(list(spec.bodies[0].mesh.vertices_m), list(range(12)))
        self.assertEqual(list(spec.bodies[0].mesh.tets), [0, 1, 2, 3])
        self.assertEqual(spec.bodies[0].fixed[0].box.max_m.z, 2)
        self.assertEqual(spec.tools[0].instrument.kind, scene_pb2.INSTRUMENT_KIND_SCALPEL)
        with self.assertRaisesRegex(palpate.InvalidArgument, r"tools\[0\].radius: there is no such field"):
            palpate.SceneBuilder().tool("t", (0, 0, 0), radius=1)

    def test_poses(self):
        for pose in ((1, 2, 3), np.array([1, 2, 3.0]), [1, 2, 3, 1, 0, 0, 0], ((1, 2, 3), (1, 0, 0, 0)), {"position_m": (1, 2, 3)},
                     {"pose": {"position_m": (1, 2, 3)}}, scene_pb2.Pose(position_m=scene_pb2.Vec3(x=1, y=2, z=3))):
            message = _convert.tool_pose(pose)
            self.assertEqual((message.pose.position_m.x, message.pose.position_m.z), (1, 3), pose)
        self.assertEqual(_convert.tool_pose({"position_m": (0, 0, 0), "jaw_angle_rad": 0.5}).jaw_angle_rad, 0.5)
        with self.assertRaisesRegex(palpate.InvalidArgument, "4 numbers, not 3"):
            _convert.tool_pose([1, 2, 3, 4])

    def test_edits(self):
        request = _requests.edit("s", {"body": "b", "carve": {"region": _requests.region(((0, 0, 1), 0.5), None, None, None)}}, None, 4)
        self.assertEqual(request.edits[0].carve.region.ball.radius_m, 0.5)
        self.assertEqual(request.expected_topology_version, 4)
        self.assertEqual(len(request.key), 32)
        self.assertNotEqual(_requests.edit("s", edit_pb2.Edit(), None, None).key, request.key)
        self.assertEqual(_requests.edit("s", [], "", None).key, "")
        with self.assertRaisesRegex(palpate.InvalidArgument, "2 are given"):
            _requests.region(((0, 0, 0), 1), None, None, "zone")
        with self.assertRaisesRegex(palpate.InvalidArgument, r"shape \(2, 3\), not \(n, 2, 3\)"):
            _requests.blade([[0, 0, 0], [1, 1, 1]])

    def test_rates(self):
        self.assertEqual(_requests.rate("fast").mode, 2)
        self.assertEqual(_requests.rate(2).speed, 2)
        with self.assertRaises(palpate.InvalidArgument):
            _requests.rate("slow")


class WireTest(unittest.TestCase):
    """Views of packed numbers, against what the library reads."""

    def test_packed_numbers(self):
        message = batch_pb2.BatchResponse()
        message.opened.columns.extend(["a", "b" * 300])
        message.opened.dt_s = 0.5
        message.opened.result.environments.extend([0, 300, 70000])
        message.opened.result.observations.extend([1.5, -2.5, float("nan"), 1e300])
        message.opened.result.state_hashes.extend([1, (1 << 64) - 1])
        message.opened.result.failures.add(environment=3, code=5, message="no")
        data = message.SerializeToString()
        result = _wire.inner(data, 1, 6)
        self.assertEqual(bytes(result), message.opened.result.SerializeToString())
        observations = _wire.packed(result, 2, "<f8")
        np.testing.assert_array_equal(observations, list(message.opened.result.observations))
        self.assertFalse(observations.flags.owndata or observations.flags.writeable)
        np.testing.assert_array_equal(_wire.packed(result, 3, "<u8"), np.array([1, (1 << 64) - 1], np.uint64))
        self.assertEqual(len(_wire.packed(_wire.inner(data, 2), 2, "<f8")), 0)
        # In two pieces, which is allowed, it is the two one after the other.
        twice = bytes(result) + bytes(result)
        self.assertEqual(len(_wire.packed(memoryview(twice), 2, "<f8")), 8)

    def test_bytes_that_make_no_sense(self):
        data = batch_pb2.BatchResult(observations=[1, 2]).SerializeToString()
        for broken in (data[:-1], data[:1], b"\x0f", b"\xff" * 12, b"\x12\x03abc"):
            with self.assertRaises(palpate.DataLoss):
                _wire.packed(memoryview(broken), 2, "<f8")


class BadInputTest(unittest.TestCase):
    """What is wrong is named by the field, and is always an InvalidArgument."""

    def test_values(self):
        nowhere = palpate.Scene(None, "none")
        builder = palpate.SceneBuilder
        for words, call in [
            (r"solver.iterations: inf is not of the field's type", lambda: _convert.scene_spec({"solver": {"iterations": float("inf")}})),
            (r"young_modulus_pa: 1000.*000 is not of", lambda: builder().body("b", "slab", material={"young_modulus_pa": 10**400})),
            (r"rest_pose.position_m: 'abc' is not an array", lambda: builder().tool("t", "abc")),
            (r"mesh.tets\[3\]: -1 is outside the range", lambda: builder().mesh("m", np.zeros((4, 3)), [[0, 1, 2, -1]])),
            (r"mesh.tets\[3\]: 0.5 is not of", lambda: builder().mesh("m", np.zeros((4, 3)), [[0, 1, 2, 0.5]])),
            (r"vertices_m: .* is not an array", lambda: builder().mesh("m", [[0, 0], [0]], [[0, 1, 2, 3]])),
            (r"count: 1.5 is not of", lambda: nowhere.step(1.5)),
            (r"count: 'x' is not of", lambda: nowhere.step("x")),
            (r"count: 1000000000000 is outside the range", lambda: nowhere.step(10**12)),
            (r"count: 0 is outside \[1, 100000\]", lambda: nowhere.step(0)),
            (r"poses: \[1\] is no mapping", lambda: nowhere.step(1, [1])),
            (r"poses\['t'\]: 'up' is not an array", lambda: nowhere.step(1, {"t": "up"})),
            (r"edits: 3 is not a list", lambda: nowhere.edit(3)),
            (r"expected_topology_version: -1 is outside", lambda: nowhere.edit([], expected_topology_version=-1)),
            (r"ball: 3 is not \(center, radius\)", lambda: nowhere.carve("b", ball=3)),
            (r"region.tets.ids\[1\]: -1 is outside", lambda: nowhere.carve("b", tets=[1, -1])),
            (r"region.tets.ids\[0\]: 'a' is not of", lambda: nowhere.carve("b", tets=["a"])),
            (r"edges: 'xx' is not an array", lambda: nowhere.incise("b", "xx")),
            (r"max_rate_hz: 'a' is not of", lambda: nowhere.watch(max_rate_hz="a")),
            (r"position: 1.5 is not of", lambda: nowhere.seek(1.5)),
            (r"count: 1.5 is not of", lambda: palpate.Batch(None, builder(), 1.5)),
        ]:
            with self.subTest(words), self.assertRaisesRegex(palpate.InvalidArgument, words):
                call()
        with self.assertRaises(palpate.FailedPrecondition):
            builder().fixed_below(0)

    def test_ids_keep_all_their_bits(self):
        largest = (1 << 64) - 1
        message = edit_pb2.Edit()
        _convert.fill(message, {"carve": {"region": {"tets": {"ids": [np.uint64(largest), (1 << 54) + 1]}}}})
        self.assertEqual(list(message.carve.region.tets.ids), [largest, (1 << 54) + 1])
        message = edit_pb2.EditSceneRequest()
        _convert.fill(message, {"expected_topology_version": str(largest)})
        self.assertEqual(message.expected_topology_version, largest)

    def test_a_file_that_is_no_text(self):
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            file.write(b"\xff\xfe")
            file.flush()
            with self.assertRaisesRegex(palpate.InvalidArgument, "byte 0: not UTF-8"):
                _convert.scene_spec(file.name)


class LocalModelTest(unittest.TestCase):

    def test_force_of_a_wall(self):
        message = haptics_pb2.LocalModel()
        message.pose_at_build.position_m.z = 0.01
        message.constraints.add(arm_m={"z": -0.004}, normal={"z": 1}, rest_penetration_m=0.002, stiffness_n_per_m=500, damping_n_s_per_m=2)
        model = palpate.LocalModel(message)
        np.testing.assert_allclose(model.force_at((0, 0, 0.01)), (0, 0, 1.0))
        np.testing.assert_allclose(model.force_at((0.5, 0, 0.009)), (0, 0, 1.5))
        np.testing.assert_allclose(model.force_at((0, 0, 0.0125)), (0, 0, 0))
        np.testing.assert_allclose(model.force_at((0, 0, 0.01), np.array([0, 0, 0.25])), (0, 0, 0.5))
        # Upside down about the tip the arm points up: the contact point is 8 mm farther away.
        np.testing.assert_allclose(model.force_at((0, 0, 0.0, 0, 1, 0, 0)), (0, 0, 500 * (0.002 + 0.01 - 0.008)), atol=1e-12)


    def test_force_of_a_ball(self):
        message = haptics_pb2.LocalModel()
        message.pose_at_build.position_m.z = 0.05
        # A ball of 54 mm around the origin, tip included: 4 mm deep.
        message.constraints.add(normal={"z": 1}, rest_penetration_m=0.004, stiffness_n_per_m=500, curvature_per_m=[20, 0, 0, 20, 0, 0])
        model = palpate.LocalModel(message)
        for place in ((0, 0, 0.05), (0.01, -0.005, 0.048), (0, 0.02, 0.04)):
            distance = np.linalg.norm(place)
            np.testing.assert_allclose(model.force_at(place), 500 * (0.054 - distance) * np.array(place) / distance, atol=1e-12)
        np.testing.assert_allclose(model.force_at((0.03, 0, 0.05)), (0, 0, 0), atol=1e-12)


class BoxTest(unittest.TestCase):

    def test_samples_lie_inside(self):
        box = palpate.Box([-1, 0, -np.inf, -np.inf], [1, np.inf, 3, np.inf], seed=4)
        samples = [box.sample() for _ in range(100)]
        self.assertTrue(all(sample in box for sample in samples))
        box.seed(4)
        np.testing.assert_array_equal(box.sample(), samples[0])
        self.assertNotIn(np.zeros(3), box)
        self.assertNotIn(np.array([2, 0, 0, 0]), box)
        self.assertEqual(box.batched(2).shape, (2, 4))
        self.assertEqual(palpate.Box(0, 1, (3,)), palpate.Box(0, [1, 1, 1]))
        with self.assertRaises(ValueError):
            palpate.Box(1, 0)


BEGIN = {"type": "begin", "protocol": 1, "job": "j", "dt_s": 0.01, "interval_s": 0.02, "seed": 7, "observations": [{"name": "time", "unit": "s"},
         {"name": "gap", "unit": "m"}], "tools": [{"name": "t", "kind": "INSTRUMENT_KIND_FORCEPS", "position_m": {"x": 0, "y": 0, "z": 1},
                                                   "rotation": {"w": 1, "x": 0, "y": 0, "z": 0}, "max_jaw_angle_rad": 1, "max_power_w": 0}]}


class PolicyTest(unittest.TestCase):
    """The line protocol of `palpate job run`."""

    def speak(self, decide, *messages, **options):
        source = io.StringIO("".join(json.dumps(message) + "\n" for message in messages))
        sink = io.StringIO()
        palpate.policy.run(decide, source=source, sink=sink, **options)
        return [json.loads(line) for line in sink.getvalue().splitlines()]

    def test_answers(self):
        decisions = iter([
            {"t": (0, 0, 0.5)},
            None,
            palpate.policy.Answer({"t": {"jaw_angle_rad": 0, "pedal": True}},
                                  edits=[{"body": "b", "carve": {"region": {"ball": {"center_m": (0, 0, 1), "radius_m": 0.5}}}}]),
            palpate.policy.Answer(stop=True, reason="done"),
        ])
        seen, told = [], []

        def decide(now):
            seen.append(now)
            return next(decisions)

        steps = [{"type": "step", "step": i, "time_s": i / 100, "observations": {"time": i / 100, "gap": None}} for i in range(4)]
        answers = self.speak(decide, BEGIN, *steps, {"type": "end", "reason": "over"}, begin=told.append, end=told.append)
        self.assertEqual(answers, [
            {"tools": [{"tool": "t", "pose": {"position_m": {"z": 0.5}}}]},
            {},
            {"tools": [{"tool": "t", "jaw_angle_rad": 0.0, "pedal": True}],
             "edits": [{"body": "b", "carve": {"region": {"ball": {"center_m": {"z": 1.0}, "radius_m": 0.5}}}}]},
            {"stop": True, "reason": "done"},
        ])
        self.assertEqual((told[0].tools["t"].kind, told[0].seed, told[0].units, told[1]), ("forceps", 7, ("s", "m"), "over"))
        self.assertEqual((seen[2].step, seen[2].observations["time"]), (2, 0.02))
        self.assertTrue(np.isnan(seen[0].observations["gap"]))

    def test_what_goes_wrong(self):
        step = {"type": "step", "step": 0, "time_s": 0, "observations": {}}
        for error, words, messages, decision in [
            (palpate.FailedPrecondition, "protocol 2", [{**BEGIN, "protocol": 2}], None),
            (palpate.DataLoss, "before the beginning", [step], None),
            (palpate.InvalidArgument, "not finite", [BEGIN, step], {"t": (0, 0, float("nan"))}),
            (palpate.InvalidArgument, r"edits\[0\].carv: there is no such field", [BEGIN, step], palpate.policy.Answer(edits=[{"carv": {}}])),
        ]:
            with self.assertRaisesRegex(error, words):
                self.speak(lambda now, decision=decision: decision, *messages)
        with self.assertRaisesRegex(palpate.DataLoss, "no JSON"):
            palpate.policy.run(lambda now: None, source=io.StringIO("hello\n"), sink=io.StringIO())

    def test_prints_do_not_reach_the_job(self):
        code = "from palpate import policy\ndef decide(now):\n    print('thinking')\npolicy.run(decide)\n"
        lines = json.dumps(BEGIN) + "\n" + json.dumps({"type": "step", "step": 0, "time_s": 0, "observations": {}}) + "\n"
        done = subprocess.run([sys.executable, "-c", code], input=lines, capture_output=True, text=True, check=True)
        self.assertEqual((done.stdout, done.stderr), ("{}\n", "thinking\n"))


class ErrorTest(unittest.TestCase):

    def test_classes_by_code(self):
        error = palpate.errors.of_number(3, "field: wrong")
        self.assertIsInstance(error, palpate.InvalidArgument)
        self.assertIsInstance(error, ValueError)
        self.assertEqual((error.code, str(error)), ("INVALID_ARGUMENT", "field: wrong"))
        other = palpate.errors.of_number(2, "x")
        self.assertEqual((type(other), other.code), (palpate.PalpateError, "UNKNOWN"))


if __name__ == "__main__":
    unittest.main()
