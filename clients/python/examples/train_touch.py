#!/usr/bin/env python3
"""Trains a policy to reach a target on a phantom and touch it gently, by the cross-entropy method: a linear policy with a few numbers, many
of which are tried at once, the best kept. The same seed gives the same policy."""
import numpy as np

import palpate
from phantoms import RADIUS_M, TOP_M, arguments, phantom

options = arguments(__doc__, False, seed=(1, "of everything"), count=(24, "environments: policies tried at once"), rounds=(7, "of training"),
                    actions=(20, "an episode"), tests=(24, "episodes with the trained policy"), edge_length=(0.02, "of the mesh [m]"))
REACH_M = 0.004         # of one action
NEAR_M = 0.004          # of the target, across
GENTLE_N = (0.01, 0.5)  # force that counts as a touch
ELITE = 6


def reward(transition):
    """Nearer is better, a gentle touch at the target is the end, pressing hard costs."""
    place = transition.column("tool.probe.position")
    force_n = np.linalg.norm(transition.column("tool.probe.force"), axis=1)
    across_m = np.linalg.norm(place[:, :2] - transition.goals, axis=1)
    above_m = np.abs(place[:, 2] - TOP_M - RADIUS_M)
    touches = (force_n > GENTLE_N[0]) & (force_n < GENTLE_N[1]) & (across_m < NEAR_M)
    return 20.0 * touches - 30 * across_m - 30 * above_m * (across_m < 2 * NEAR_M) - 0.3 * np.clip(force_n - GENTLE_N[1], 0, 2), touches


def act(weights, observations, columns):
    """[n, 3] actions of [n, 4] policies: a gain across towards the target, and down with a speed that depends on how far the target is and on
    the force."""
    place = observations[:, [columns.index(f"tool.probe.position.{axis}") for axis in "xyz"]]
    force = observations[:, columns.index("tool.probe.force.z")]
    error = (observations[:, -2:] - place[:, :2]) / REACH_M
    down = weights[:, 1] + weights[:, 2] * np.minimum(np.linalg.norm(error, axis=1), 1) + weights[:, 3] * force
    return np.clip(np.concatenate([weights[:, 0:1] * error, down[:, None]], axis=1), -1, 1)


def episodes(env, weights, seed):
    """Returns and successes of one episode in each environment, under its own weights."""
    observations, _ = env.reset(seed=seed)
    total, succeeded, is_over = np.zeros(env.num_envs), np.zeros(env.num_envs, bool), np.zeros(env.num_envs, bool)
    for _ in range(options.actions):
        observations, rewards, terminations, truncations, _ = env.step(act(weights, observations, env.columns))
        total += np.where(is_over, 0, rewards)
        succeeded |= terminations & ~is_over
        is_over |= terminations | truncations
        if is_over.all():
            break
    return total, succeeded


random = np.random.default_rng(options.seed)
with palpate.VectorEnv(phantom(options.edge_length), options.count, ["tool.probe.position", "tool.probe.force"],
                       palpate.TipMotion("probe", REACH_M, low_m=(-0.03, -0.03, 0.01), high_m=(0.03, 0.03, 0.03)), reward=reward,
                       steps_per_action=2, max_steps=options.actions, goal=lambda random, i: random.uniform(-0.025, 0.025, 2)) as env:
    mean, spread = np.zeros(4), np.ones(4)
    for turn in range(options.rounds):
        weights = mean + spread * random.standard_normal((options.count, 4))
        # Twice, with other targets: one episode may be luck.
        total, succeeded = (first + second for first, second in zip(*(episodes(env, weights, int(random.integers(1 << 31))) for _ in range(2))))
        elite = weights[np.argsort(-total)[:ELITE]]
        mean, spread = elite.mean(axis=0), elite.std(axis=0) + 0.05
        print(f"round {turn + 1}: mean return {total.mean() / 2:.2f}, {succeeded.sum()} of {options.count} policies touched a target")
    successes = done = 0
    while done < options.tests:
        _, succeeded = episodes(env, np.tile(mean, (options.count, 1)), int(random.integers(1 << 31)))
        successes, done = successes + int(succeeded.sum()), done + options.count
print(f"policy: {np.array2string(mean, precision=6)}")
print(f"success rate: {successes / done:.3f} of {done} new targets")
