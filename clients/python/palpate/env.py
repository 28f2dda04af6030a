"""Environments in the interface of Gymnasium, without depending on it: N scenes of one spec on one device.

    env = palpate.VectorEnv("scenes/slab.json", 16, ["tool.probe.force", "tool.probe.position"], actions=palpate.TipMotion("probe", 0.002))
    observations, infos = env.reset(seed=1)
    observations, rewards, terminations, truncations, infos = env.step(env.action_space.sample())
"""
from __future__ import annotations

import contextlib
import dataclasses
from types import TracebackType
from typing import Any, Callable, Dict, Generator, List, Mapping, Optional, Protocol, Sequence, Tuple, Type, TypeVar

import numpy as np

from . import errors
from ._convert import SpecLike, numbers, scene_spec
from .batch import Batch, BatchResult, BatchState
from .scenes import Server, launch
from .spaces import Bound, Box
from .v1 import scene_pb2

RewardFunction = Callable[["Transition"], Tuple[np.ndarray, np.ndarray]]
"""Rewards [n] and terminations [n] of a transition."""

Randomize = Callable[[np.random.Generator, int], Mapping[str, Any]]
"""What an environment is made of from a reset on: of a random generator and its number, fields of MaterialSpec."""

Goal = Callable[[np.random.Generator, int], np.ndarray]
"""What an environment is to reach: numbers of a random generator and its number."""

Begun = Tuple[np.ndarray, Dict[str, Any]]
"""Observations [n, columns] and infos."""

Stepped = Tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Dict[str, Any]]
"""Observations [n, columns], rewards [n], terminations [n], truncations [n], infos."""

SteppedOnly = Tuple[np.ndarray, float, bool, bool, Dict[str, Any]]
"""The same of one environment."""

T = TypeVar("T")
Work = Generator[Any, BatchResult, T]


@dataclasses.dataclass(frozen=True)
class Transition:
    """A step of all environments, for reward functions."""

    observations: np.ndarray
    """[n, columns] after the step."""
    previous: np.ndarray
    """[n, columns] before it."""
    actions: np.ndarray
    """[n, ...] as given."""
    columns: Tuple[str, ...]
    """Names of the observations' columns."""
    goals: np.ndarray
    """[n, ...] what each environment was given at its reset, see VectorEnv `goal`; no columns without one."""

    def column(self, name: str) -> np.ndarray:
        """[n] or, for the name of a probe with components x, y and z, [n, 3]. Errors: NotFound."""
        return _column(self.columns, self.observations, name)


def _column(columns: Tuple[str, ...], values: np.ndarray, name: str) -> np.ndarray:
    if name in columns:
        return values[:, columns.index(name)]
    parts = [f"{name}.{axis}" for axis in "xyz"]
    if all(part in columns for part in parts):
        return values[:, [columns.index(part) for part in parts]]
    raise errors.NotFound(f"column: there is no {name!r}; there are {', '.join(columns)}")


class Actions(Protocol):
    """How the numbers of an action move tools."""

    space: Box
    """Of one environment's action."""

    def reset(self, environments: np.ndarray, spec: "scene_pb2.SceneSpec", count: int) -> None:
        """Some environments (of `count`) begin anew."""

    def poses(self, actions: np.ndarray) -> List[Mapping[str, Any]]:
        """What the tools of each environment are told, of [n, ...] actions: see Batch.step."""


class TipPosition:
    """An action is the place of one tool's tip in W, between two corners of a box."""

    def __init__(self, tool: str, low_m: Bound, high_m: Bound) -> None:
        self.tool = tool
        self.space = Box(low_m, high_m, (3,))

    def reset(self, environments: np.ndarray, spec: "scene_pb2.SceneSpec", count: int) -> None:
        """Nothing is kept."""

    def poses(self, actions: np.ndarray) -> List[Mapping[str, Any]]:
        """See Actions."""
        return [{self.tool: place} for place in np.clip(actions, self.space.low, self.space.high)]


class TipMotion:
    """An action is how far one tool's tip is to move, each coordinate in [-1, 1] times `reach_m`, from where it was told to be; it stays
    between two corners."""

    def __init__(self, tool: str, reach_m: float, low_m: Bound = -np.inf, high_m: Bound = np.inf) -> None:
        self.tool, self.reach_m = tool, reach_m
        self.space = Box(-1.0, 1.0, (3,))
        self._low, self._high = np.asarray(low_m, float), np.asarray(high_m, float)
        self._places: np.ndarray = np.zeros((0, 3))

    def reset(self, environments: np.ndarray, spec: "scene_pb2.SceneSpec", count: int) -> None:
        """The tool is at its resting place. Errors: NotFound (no such tool)."""
        rest = [tool.rest_pose.position_m for tool in spec.tools if tool.name == self.tool]
        if not rest:
            raise errors.NotFound(f"tool: there is no {self.tool!r}; the scene has {', '.join(tool.name for tool in spec.tools)}")
        if len(self._places) != count:
            self._places = np.zeros((count, 3))
        self._places[environments] = (rest[0].x, rest[0].y, rest[0].z)

    def poses(self, actions: np.ndarray) -> List[Mapping[str, Any]]:
        """See Actions."""
        self._places = np.clip(self._places + np.clip(actions, -1, 1) * self.reach_m, self._low, self._high)
        return [{self.tool: place} for place in self._places]


class Episodes:
    """How the episodes of environments go, whichever way messages go. What asks the batch is a generator: it yields what a method of the
    batch returned, and is sent the result."""

    num_envs: int
    """Environments."""
    columns: Tuple[str, ...]
    """Names of the observations' columns, without the goal's."""
    units: Tuple[str, ...]
    """Of each column."""
    single_action_space: Box
    """Of one environment."""
    single_observation_space: Box
    """Of one environment."""
    action_space: Box
    """Of all."""
    observation_space: Box
    """Of all."""

    metadata: Dict[str, Any] = {"render_modes": [], "autoreset_mode": "NextStep"}

    def __init__(self, spec: SpecLike, count: int, actions: Actions, reward: Optional[RewardFunction], steps_per_action: int,
                 max_steps: Optional[int], randomize: Optional[Randomize], goal: Optional[Goal]) -> None:
        self._spec, self.num_envs = scene_spec(spec), count
        self._actions, self._reward, self._randomize, self._goal = actions, reward, randomize, goal
        self._steps_per_action, self._max_steps = steps_per_action, max_steps
        self._batch: Any = None

    def _opened(self, batch: BatchState) -> None:
        """The batch is there, with all environments at rest."""
        count = self.num_envs
        self._batch = batch
        self.columns, self.units = batch.columns, batch.units
        self._randoms = [np.random.default_rng([0, i]) for i in range(count)]
        self._goals = np.stack([self._new_goal(i) for i in range(count)])
        self._values = batch.result.observations
        self._elapsed = np.zeros(count, int)
        self._is_over = np.zeros(count, bool)
        self._actions.reset(np.arange(count), self._spec, count)
        self.single_action_space = self._actions.space
        self.single_observation_space = Box(-np.inf, np.inf, (len(self.columns) + self._goals.shape[1],))
        self.action_space = self.single_action_space.batched(count)
        self.observation_space = self.single_observation_space.batched(count)

    def _raise_if_not_open(self) -> None:
        if self._batch is None:
            raise errors.FailedPrecondition("the environments are not open; `async with` opens them")

    @property
    def dt_s(self) -> float:
        """Simulated time of one action."""
        self._raise_if_not_open()
        return float(self._batch.dt_s) * self._steps_per_action

    def _new_goal(self, environment: int) -> np.ndarray:
        return np.zeros(0) if self._goal is None else np.asarray(self._goal(self._randoms[environment], environment), float).ravel()

    def _observations(self) -> np.ndarray:
        return np.concatenate([self._values, self._goals], axis=1)

    def _begin(self, environments: np.ndarray) -> Work[None]:
        """New episodes."""
        self._values = self._values.copy()
        if self._randomize is None:
            result = yield self._batch.reset(environments.tolist())
            self._values[result.environments] = result.observations
        for i in map(int, environments):
            if self._randomize is not None:
                self._values[i] = (yield self._batch.reset([i], self._randomize(self._randoms[i], i))).observations[0]
            self._goals[i] = self._new_goal(i)
        self._elapsed[environments], self._is_over[environments] = 0, False
        self._actions.reset(environments, self._spec, self.num_envs)

    def _reset_all(self, seed: Optional[int]) -> Work[Begun]:
        self._raise_if_not_open()
        if seed is not None:
            self._randoms = [np.random.default_rng([seed, i]) for i in range(self.num_envs)]
        yield from self._begin(np.arange(self.num_envs))
        return self._observations(), {}

    def _checked(self, actions: np.ndarray) -> np.ndarray:
        actions = numbers(actions, "actions")
        if actions.shape != self.action_space.shape:
            raise errors.InvalidArgument(f"actions: an array of shape {actions.shape}, not {self.action_space.shape}")
        if not np.isfinite(actions).all():
            raise errors.InvalidArgument("actions: a number is not finite")
        return actions

    def _step_all(self, actions: np.ndarray) -> Work[Stepped]:
        self._raise_if_not_open()
        actions = self._checked(actions)
        begun = self._is_over.copy()
        if begun.any():
            yield from self._begin(np.nonzero(begun)[0])
        acting = np.nonzero(~begun)[0]
        poses = self._actions.poses(actions)
        if begun.any():
            self._actions.reset(np.nonzero(begun)[0], self._spec, self.num_envs)  # whose action does not count
        infos: Dict[str, Any] = {}
        previous = self._values.copy()
        failed = np.zeros(self.num_envs, bool)
        if len(acting):
            result = yield self._batch.step(self._steps_per_action, {int(i): poses[i] for i in acting}, only_named=True)
            self._values = self._values.copy()
            self._values[result.environments] = result.observations
            failed[list(result.failures)] = True
            if result.failures:
                infos["failure"] = {i: str(error) for i, error in result.failures.items()}
        self._elapsed[acting] += 1
        rewards: np.ndarray = np.zeros(self.num_envs)
        terminations: np.ndarray = np.zeros(self.num_envs, bool)
        if self._reward is not None:
            transition = Transition(self._values, previous, actions, self.columns, self._goals)
            rewards, terminations = (np.array(part) for part in self._reward(transition))
        rewards = np.where(begun | failed, 0.0, rewards)
        terminations = terminations.astype(bool) & ~begun & ~failed
        truncations = failed.copy()
        if self._max_steps is not None:
            truncations |= (self._elapsed >= self._max_steps) & ~terminations
        self._is_over = terminations | truncations
        return self._observations(), rewards, terminations, truncations, infos

    def column(self, observations: np.ndarray, name: str) -> np.ndarray:
        """The column of a probe [n], or of one with components x, y and z [n, 3]. Errors: NotFound."""
        return _column(self.columns, observations, name)

    def only_action(self, action: np.ndarray) -> np.ndarray:
        """As `step` takes it, of the only environment. Errors: FailedPrecondition (its episode is over)."""
        self._raise_if_not_open()
        if self._is_over[0]:
            raise errors.FailedPrecondition("the episode is over; reset comes first")
        return np.asarray(action, float)[None]


def only(stepped: Stepped) -> SteppedOnly:
    """What a step gave, of the only environment."""
    observations, rewards, terminations, truncations, infos = stepped
    return observations[0], float(rewards[0]), bool(terminations[0]), bool(truncations[0]), infos


def _carried_out(work: Work[T]) -> T:
    """Of work whose batch answers at once."""
    try:
        answer = next(work)
        while True:
            answer = work.send(answer)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


class VectorEnv(Episodes):
    """`count` environments that are stepped together, in the interface of gymnasium.vector.VectorEnv.

    spec: as Server.create takes it. probes: what is observed (docs/jobs.md). actions: TipPosition, TipMotion, or an object of one's own.
    reward: of a Transition, rewards and terminations; default: zeros and never. steps_per_action: steps of the scene for each action.
    max_steps: actions after which an episode is truncated; None: never. randomize: of a random generator and the number of an environment,
    fields of MaterialSpec that it is given at a reset. goal: likewise numbers that are appended to its observations. server: default: one of
    one's own, launched and closed with this.

    An environment whose episode has ended is reset by the next step, whose action it ignores (metadata["autoreset_mode"] is "NextStep").
    One that fails is truncated, and `infos["failure"]` says why. Same seed, same actions, same device: same numbers, whatever `count`.
    Errors: as Batch."""

    def __init__(self, spec: SpecLike, count: int, probes: Sequence[str], actions: Actions, *, reward: Optional[RewardFunction] = None,
                 steps_per_action: int = 1, max_steps: Optional[int] = None, randomize: Optional[Randomize] = None,
                 goal: Optional[Goal] = None, server: Optional[Server] = None) -> None:
        super().__init__(spec, count, actions, reward, steps_per_action, max_steps, randomize, goal)
        with contextlib.ExitStack() as resources:
            used = server if server is not None else resources.enter_context(launch())
            self._opened(resources.enter_context(Batch(used, self._spec, count, probes)))
            self._resources = resources.pop_all()

    def __enter__(self) -> "VectorEnv":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()

    def close(self) -> None:
        """Frees the scenes, and the server if it is one's own."""
        self._resources.close()

    def reset(self, *, seed: Optional[int] = None, options: Optional[Mapping[str, Any]] = None) -> Begun:
        """Begins all episodes anew. With a seed all that is random begins anew too: environment i draws from the sequence of (seed, i)."""
        return _carried_out(self._reset_all(seed))

    def step(self, actions: np.ndarray) -> Stepped:
        """Observations [n, columns], rewards [n], terminations [n], truncations [n], infos."""
        return _carried_out(self._step_all(actions))

    @property
    def batch(self) -> Batch:
        """The scenes themselves."""
        return self._batch  # type: ignore[no-any-return]


class Env:
    """One environment, in the interface of gymnasium.Env. Arguments as of VectorEnv. It does not reset itself."""

    metadata: Dict[str, Any] = {"render_modes": []}

    def __init__(self, spec: SpecLike, probes: Sequence[str], actions: Actions, **options: Any) -> None:
        self._vector = VectorEnv(spec, 1, probes, actions, **options)
        self.action_space = self._vector.single_action_space
        """Of an action."""
        self.observation_space = self._vector.single_observation_space
        """Of an observation."""
        self.columns = self._vector.columns
        """Names of the observation's columns, without the goal's."""

    def __enter__(self) -> "Env":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()

    def close(self) -> None:
        """Frees the scene."""
        self._vector.close()

    def reset(self, *, seed: Optional[int] = None, options: Optional[Mapping[str, Any]] = None) -> Begun:
        """Begins an episode."""
        observations, infos = self._vector.reset(seed=seed, options=options)
        return observations[0], infos

    def step(self, action: np.ndarray) -> SteppedOnly:
        """Observation, reward, whether the episode terminated or was truncated, infos. Errors: FailedPrecondition (it is over: reset)."""
        return only(self._vector.step(self._vector.only_action(action)))


__all__: List[str] = ["Actions", "Env", "Episodes", "TipMotion", "TipPosition", "Transition", "VectorEnv"]
