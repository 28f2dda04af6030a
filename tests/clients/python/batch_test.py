#!/usr/bin/env python3
"""Batches of scenes and the environments made of them, with a server: they go as scenes of their own go, fail alone, and respect limits."""
import asyncio
import importlib.util
import threading
import time
import unittest

import numpy as np

import palpate
import palpate.aio
from palpate.v1 import batch_pb2
from support import PATIENCE_S, phantom

FORCE = ["tool.probe.force", "tool.probe.position.z", "body.slab.volume"]


def press(depth_m):
    return (0, 0, 0.0145 - depth_m)


class BatchTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = palpate.launch()
        cls.addClassCleanup(cls.server.close)

    def batch(self, count, probes=FORCE, **fields):
        batch = palpate.Batch(self.server, phantom(**fields), count, probes)
        self.addCleanup(batch.close)
        return batch

    def test_columns(self):
        batch = self.batch(2)
        self.assertEqual(batch.columns, ("tool.probe.force.x", "tool.probe.force.y", "tool.probe.force.z", "tool.probe.position.z", "body.slab.volume"))
        self.assertEqual(batch.units, ("N", "N", "N", "m", "m3"))
        self.assertEqual((batch.tools, batch.count, batch.dt_s), (("probe",), 2, 1 / 120))
        np.testing.assert_allclose(batch.result.observations, [[0, 0, 0, 0.03, 7.2e-5]] * 2, rtol=1e-5)
        with self.assertRaisesRegex(palpate.NotFound, "the batch has tool.probe.force.x"):
            batch.column("force")

    def test_same_commands_same_bits(self):
        """Each environment goes its own way, and the same as in a batch of one, however many are beside it and whatever they do."""
        depths = [0.001, 0.003, 0.0045]

        def run(batch, chosen):
            hashes = []
            for i in range(6):
                result = batch.step(2, [{"probe": press(depths[c] * (i + 1) / 6)} for c in chosen])
                hashes.append(result.state_hashes)
            return np.array(hashes).T, result.observations

        together, observations = run(self.batch(5), [0, 1, 2, 1, 0])
        np.testing.assert_array_equal(together[0], together[4])
        np.testing.assert_array_equal(together[1], together[3])
        self.assertEqual(len({tuple(row) for row in together.tolist()}), 3)
        for i in range(3):
            alone, own = run(self.batch(1), [i])
            np.testing.assert_array_equal(alone[0], together[i])
            np.testing.assert_array_equal(own[0], observations[i])
        self.assertTrue(np.all(np.diff(observations[:3, 2]) > 0))

    def test_goes_as_a_scene_goes(self):
        batch = self.batch(3)
        with self.server.create(phantom()) as scene:
            edit = {"body": "slab", "carve": {"region": {"ball": {"center_m": (0.01, 0.01, 0.01), "radius_m": 0.012}}}}
            scene.step(4, poses={"probe": press(0.002)})
            scene.edit(edit)
            info = scene.step(4, poses={"probe": press(0.003)})
            batch.move("probe", press(0.002), 4)
            result = batch.step(4, [{"probe": press(0.003)}] * 3, edits={1: [edit]})
            self.assertEqual(int(result.state_hashes[1]), info.state_hash)
            self.assertNotEqual(int(result.state_hashes[0]), info.state_hash)
            self.assertLess(result.observations[1, 4], result.observations[0, 4])
            np.testing.assert_array_equal(result.steps, [8, 8, 8])
            np.testing.assert_array_equal(result.observations[1, :3], scene.frame().force("probe"))

    def test_only_named_release_and_reset(self):
        batch = self.batch(3)
        result = batch.step(3, {1: {"probe": press(0.003)}}, only_named=True)
        np.testing.assert_array_equal(result.environments, [1])
        np.testing.assert_array_equal(batch.step(1).steps, [1, 4, 1])
        pressed = batch.step(2).observations[1, 2]
        self.assertGreater(pressed, 0.05)
        # A tool that is let go keeps its place; one that is not keeps its command.
        held = batch.step(4, release={1: ["probe"]}).observations[1]
        self.assertAlmostEqual(held[3], press(0.003)[2], 6)
        result = batch.reset([1], {"young_modulus_pa": 30000})
        np.testing.assert_array_equal(result.environments, [1])
        np.testing.assert_array_equal(result.steps, [0])
        stiff = batch.move("probe", press(0.003), 7)
        self.assertGreater(stiff.observations[1, 2], 2 * stiff.observations[0, 2])
        result = batch.reset()
        np.testing.assert_array_equal(result.steps, [0, 0, 0])
        self.assertEqual(len(set(result.state_hashes.tolist())), 1)

    def test_one_that_fails_fails_alone(self):
        batch = self.batch(3)
        result = batch.step(2, edits={1: [{"body": "liver", "material": {"material": {"young_modulus_pa": 1000}}}]})
        self.assertEqual(set(result.failures), {1})
        self.assertIsInstance(result.failures[1], palpate.NotFound)
        self.assertEqual(result.needs_reset, ())
        np.testing.assert_array_equal(result.steps, [2, 0, 2])
        np.testing.assert_array_equal(batch.step(1).steps, [3, 1, 3])

    def test_what_is_wrong_ends_the_call(self):
        for open_, words in [((phantom(), 1, ["tool.hammer.force"]), r"probes\[0\].*hammer"), ((phantom(young_modulus_pa=1), 1), "young_modulus_pa"),
                             ((phantom(), 1, ["time"] * 257), "257")]:
            with self.assertRaisesRegex(palpate.InvalidArgument, words):
                palpate.Batch(self.server, *open_)
        with self.assertRaisesRegex(palpate.InvalidArgument, r"outside \[1, 1024\]"):
            palpate.Batch(self.server, phantom(), 0)
        with self.assertRaisesRegex(palpate.ResourceExhausted, "max_tets_per_scene = 2000000"):
            palpate.Batch(self.server, phantom(edge_length_m=0.002), 1024)
        for request, words in [
            ({"step": {"steps": 0}}, r"step.steps: 0 is outside \[1, 100000\]"),
            ({"step": {"steps": 1, "actions": [{"environment": 2}]}}, r"step.actions\[0\].environment: 2 is outside \[0, 2\)"),
            ({"step": {"steps": 1, "actions": [{"environment": 1}, {"environment": 1}]}}, r"step.actions\[1\].environment: 1 is named twice"),
            ({"step": {"steps": 1, "actions": [{"tools": [{"tool_index": 1}]}]}}, r"step.actions\[0\].tools\[0\].tool_index: 1 is outside"),
            ({"step": {"steps": 1, "actions": [{"tools": [{}]}]}}, "neither `pose` nor `release`"),
            ({"step": {"steps": 1, "actions": [{"tools": [{"pose": {"pose": {"position_m": (0, 0, 1000)}}}]}]}}, r"tools\[0\].pose.pose.position_m.z: 1000"),
            ({"step": {"steps": 1, "actions": [{"tools": [{"pose": {"jaw_angle_rad": -1}}]}]}}, r"tools\[0\].pose.jaw_angle_rad: -1"),
            ({"step": {"steps": 1, "actions": [{"edits": [{"body": "slab", "carve": {}}]}]}}, r"step.actions\[0\].edits\[0\].carve.region"),
            ({"reset": {"environments": [0, 0]}}, r"reset.environments\[1\]: 0 is named twice"),
            ({"reset": {"environments": [9]}}, r"reset.environments\[0\]: 9 is outside \[0, 2\)"),
            ({"reset": {"materials": [{"material": {"young_modulus_pa": 1}}]}}, r"reset.materials\[0\].material.young_modulus_pa: 1 is"),
            ({"reset": {"body": "liver"}}, 'reset.body: the scene has no body "liver"'),
            ({"open": {"count": 1}}, "open: this batch is open already"),
            ({}, "neither `open` nor `step` nor `reset`"),
        ]:
            batch = self.batch(2)
            message = batch_pb2.BatchRequest()
            palpate._convert.fill(message, request)  # pylint: disable=protected-access
            with self.assertRaisesRegex(palpate.InvalidArgument, words):
                batch._ask(message)  # pylint: disable=protected-access
            batch.close()
        stream = self.server.connection.stream(self.server.connection.stubs.run_batch, iter([batch_pb2.BatchRequest(step={"steps": 1})]))
        with self.assertRaisesRegex(Exception, "the first request must carry `open`"):
            next(stream)

    def test_the_server_has_so_many(self):
        coarse = phantom(edge_length_m=0.02)

        def beside():
            """How many environments the server has, as it says when 1024 more are asked for."""
            with self.assertRaisesRegex(palpate.ResourceExhausted, "1024 environments beside [0-9]+ others") as caught:
                palpate.Batch(server, coarse, 1024)
            return int(str(caught.exception).split(" beside ")[1].split()[0])

        with palpate.launch() as server, palpate.Batch(server, coarse, 1):
            with palpate.Batch(server, coarse, 40):
                self.assertEqual(beside(), 41)
            # What a client leaves comes back, soon.
            end = time.monotonic() + PATIENCE_S
            while beside() != 1:
                self.assertLess(time.monotonic(), end, "the environments never came back")

    def test_a_server_that_stops_ends_long_work(self):
        with palpate.launch() as server:
            batch = palpate.Batch(server, phantom(), 4)
            threading.Timer(0.3, server._process.stop).start()  # pylint: disable=protected-access
            with self.assertRaisesRegex(palpate.Unavailable, "stopping|reset|closed|end"):
                batch.step(100000)
            batch.close()


class EnvTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = palpate.launch()
        cls.addClassCleanup(cls.server.close)

    def make(self, count, **options):
        options.setdefault("actions", palpate.TipMotion("probe", 0.004, low_m=(-0.02, -0.02, 0.01), high_m=(0.02, 0.02, 0.03)))
        options.setdefault("randomize", lambda random, i: {"young_modulus_pa": random.uniform(5000, 20000)})
        env = palpate.VectorEnv(phantom(), count, ["tool.probe.force", "tool.probe.position"], server=self.server, **options)
        self.addCleanup(env.close)
        return env

    @staticmethod
    def run_down(env, seed, steps=6):
        observations, infos = env.reset(seed=seed)
        out = [observations]
        for _ in range(steps):
            out.append(env.step(np.tile([0.0, 0, -1], (env.num_envs, 1)))[0])
        return np.array(out)

    def test_interface(self):
        env = self.make(3)
        self.assertEqual(env.observation_space.shape, (3, 6))
        self.assertEqual(env.action_space.shape, (3, 3))
        observations, infos = env.reset(seed=1)
        self.assertTrue(env.observation_space.contains(observations))
        self.assertEqual(infos, {})
        observations, rewards, terminations, truncations, infos = env.step(env.action_space.sample())
        self.assertEqual((observations.shape, rewards.shape, terminations.dtype, truncations.dtype), ((3, 6), (3,), bool, bool))
        np.testing.assert_array_equal(env.column(observations, "tool.probe.position"), observations[:, 3:])
        with self.assertRaisesRegex(palpate.InvalidArgument, r"shape \(3,\), not \(3, 3\)"):
            env.step(np.zeros(3))
        with self.assertRaisesRegex(palpate.InvalidArgument, "actions: a number is not finite"):
            env.step(np.full((3, 3), np.nan))
        # Without a reset it begins at rest, as the scene does.
        self.assertAlmostEqual(self.make(1).step(np.array([[0, 0, -1.0]]))[0][0, 5], 0.026, places=6)

    def test_seeds(self):
        env = self.make(3)
        first = self.run_down(env, 7)
        np.testing.assert_array_equal(first, self.run_down(env, 7))
        other = self.run_down(env, 8)
        self.assertTrue(np.any(first[-1, :, 2] != other[-1, :, 2]))
        self.assertEqual(len(set(first[-1, :, 2].tolist())), 3)
        # Environment i does not depend on how many there are.
        np.testing.assert_array_equal(first[:, :2], self.run_down(self.make(2), 7))

    def test_episodes_end_and_begin_anew(self):
        def reward(transition):
            height = transition.column("tool.probe.position")[:, 2]
            return -height, height < transition.goals[:, 0]

        env = self.make(2, reward=reward, max_steps=4, goal=lambda random, i: np.array([0.015 if i == 0 else 0.0]))
        observations, _ = env.reset(seed=3)
        np.testing.assert_array_equal(observations[:, 6], [0.015, 0])
        down = np.tile([0.0, 0, -1], (2, 1))
        ends = [tuple(part.tolist() for part in env.step(down)[2:4]) for _ in range(3)]
        self.assertEqual(ends, [([False, False], [False, False])] * 3)
        observations, rewards, terminations, truncations, _ = env.step(down)
        self.assertEqual((terminations.tolist(), truncations.tolist()), ([True, False], [False, True]))
        np.testing.assert_allclose(rewards, -observations[:, 5])
        # The next step begins new episodes and takes no action.
        observations, rewards, terminations, truncations, _ = env.step(down)
        np.testing.assert_allclose(observations[:, 5], 0.03, rtol=1e-6)
        self.assertEqual((rewards.tolist(), terminations.any(), truncations.any()), ([0, 0], False, False))
        observations = env.step(down)[0]
        np.testing.assert_allclose(observations[:, 5], 0.026, rtol=1e-4)

    def test_one_environment(self):
        def reward(transition):
            return np.ones(len(transition.actions)), transition.column("tool.probe.force.z") > 0.01

        with palpate.Env(phantom(), ["tool.probe.force.z"], palpate.TipPosition("probe", -0.05, 0.05), reward=reward, server=self.server) as env:
            observation, _ = env.reset(seed=1)
            self.assertEqual(observation.shape, (1,))
            self.assertEqual(env.step(np.array([0, 0, 0.02]))[1:4], (1.0, False, False))
            for _ in range(4):
                observation, _, terminated, _, _ = env.step(np.array([0, 0, 0.012]))
                if terminated:
                    break
            self.assertTrue(terminated)
            with self.assertRaisesRegex(palpate.FailedPrecondition, "reset comes first"):
                env.step(np.zeros(3))

    def test_with_async_the_same(self):
        """Same seed and actions: same numbers, through ends of episodes, goals and materials."""
        options = {"actions": palpate.TipMotion("probe", 0.004, low_m=(-0.02, -0.02, 0.01), high_m=(0.02, 0.02, 0.03)), "max_steps": 5, "steps_per_action": 2,
                   "randomize": lambda random, i: {"young_modulus_pa": random.uniform(5000, 20000)},
                   "goal": lambda random, i: random.uniform(0, 1, 2),
                   "reward": lambda transition: (transition.column("tool.probe.force.z"), transition.column("tool.probe.force.z") > 0)}
        actions = np.random.default_rng(5).uniform((-0.2, -0.2, -1), (0.2, 0.2, -0.6), (20, 2, 3))

        def flat(observations, *more):
            return np.concatenate([observations, *(np.asarray(part, float)[:, None] for part in more[:3])], axis=1)

        env = self.make(2, **options)
        expected = [env.reset(seed=4)[0]] + [flat(*env.step(action)) for action in actions]

        async def run():
            async with await palpate.aio.connect(self.server.target) as server:
                probes = ["tool.probe.force", "tool.probe.position"]
                async with palpate.aio.VectorEnv(phantom(), 2, probes, server=server, **options) as same:
                    self.assertEqual((same.columns, same.units, same.dt_s, same.num_envs), (env.columns, env.units, env.dt_s, 2))
                    self.assertEqual((same.observation_space.shape, same.action_space.shape), (env.observation_space.shape, env.action_space.shape))
                    out = [(await same.reset(seed=4))[0]] + [flat(*await same.step(action)) for action in actions]
                    with self.assertRaisesRegex(palpate.InvalidArgument, r"shape \(3,\), not \(2, 3\)"):
                        await same.step(np.zeros(3))
                unopened = palpate.aio.VectorEnv(phantom(), 1, probes, options["actions"], server=server)
                for wait in (unopened.reset, lambda: unopened.step(np.zeros((1, 3)))):
                    with self.assertRaisesRegex(palpate.FailedPrecondition, "`async with` opens them"):
                        await wait()
                with self.assertRaisesRegex(palpate.InvalidArgument, r"probes\[0\]"):
                    async with palpate.aio.VectorEnv(phantom(), 1, ["tool.none.force"], options["actions"], server=server):
                        pass
            return out

        for one, other in zip(asyncio.run(run()), expected, strict=True):
            np.testing.assert_array_equal(one, other)
        self.assertEqual(np.array(expected[1:])[:, :, -2:].sum(axis=(0, 1)).astype(bool).tolist(), [True, True])  # both kinds of end are in it

    def test_one_environment_with_async(self):
        async def run():
            # With a server of its own.
            async with palpate.aio.Env(phantom(), ["tool.probe.force.z"], palpate.TipPosition("probe", -0.05, 0.05), max_steps=2) as env:
                self.assertEqual((env.columns, env.action_space.shape, env.observation_space.shape), (("tool.probe.force.z",), (3,), (1,)))
                observation, _ = await env.reset(seed=1)
                self.assertEqual(observation.shape, (1,))
                self.assertEqual((await env.step(np.array([0, 0, 0.02])))[1:4], (0.0, False, False))
                observation, _, terminated, truncated, _ = await env.step(np.array([0, 0, 0.012]))
                self.assertEqual((terminated, truncated), (False, True))
                with self.assertRaisesRegex(palpate.FailedPrecondition, "reset comes first"):
                    await env.step(np.zeros(3))
                await env.reset()
                self.assertFalse((await env.step(np.array([0, 0, 0.02])))[3])

        asyncio.run(run())

    def test_wrong_tool(self):
        with self.assertRaisesRegex(palpate.NotFound, "the scene has probe"):
            self.make(1, actions=palpate.TipMotion("hammer", 1)).reset()

    @unittest.skipUnless(importlib.util.find_spec("gymnasium"), "gymnasium is not installed")
    def test_gymnasium_takes_the_spaces(self):
        env = self.make(2)
        self.assertTrue(env.single_action_space.to_gymnasium().contains(np.zeros(3)))


if __name__ == "__main__":
    unittest.main()
