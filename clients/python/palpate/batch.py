"""Many scenes of one spec that are stepped together."""
from __future__ import annotations

import dataclasses
import queue
from types import TracebackType
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Type, Union

import grpc
import numpy as np

from . import _requests, _wire, errors
from ._convert import PoseLike, SpecLike, fill, made, numbers, scene_spec, tool_pose
from ._requests import EditLike
from .scenes import Server
from .v1 import batch_pb2


PosesLike = Union[Sequence[Optional[Mapping[str, PoseLike]]], Mapping[int, Mapping[str, PoseLike]], None]
"""By environment, what its tools are told: see Scene.step."""


@dataclasses.dataclass(frozen=True)
class BatchResult:
    """What a request left behind, of the environments that it stepped or reset."""

    environments: np.ndarray
    """[n] their numbers."""
    observations: np.ndarray
    """[n, columns] float64, a read-only view of the answer's bytes; NaN where a probe has no value."""
    state_hashes: np.ndarray
    """[n] uint64 of positions and velocities."""
    steps: np.ndarray
    """[n] steps since the reset."""
    failures: Dict[int, errors.PalpateError]
    """By environment: why it made no step, or not all."""
    needs_reset: Tuple[int, ...]
    """Environments that make no step before a reset."""


# Numbers of fields in batch.proto.
_OPENED, _RESULT, _OPENED_RESULT = 1, 2, 6
_OBSERVATIONS, _STATE_HASHES = 2, 3


def _result(message: "batch_pb2.BatchResult", data: memoryview, column_count: int) -> BatchResult:
    """Of a message and its bytes."""
    n = len(message.environments)
    observations = _wire.packed(data, _OBSERVATIONS, "<f8").reshape(n, column_count)
    return BatchResult(np.fromiter(message.environments, np.int64, n), observations, _wire.packed(data, _STATE_HASHES, "<u8"),
                       np.fromiter(message.steps, np.int64, n),
                       {failure.environment: errors.of_number(failure.code, failure.message) for failure in message.failures},
                       tuple(failure.environment for failure in message.failures if failure.needs_reset))


class BatchState:
    """What a batch says and what it has heard, whichever way messages go."""

    count: int
    """Environments."""
    columns: Tuple[str, ...]
    """Of the observations; a probe with several components has a column for each."""
    units: Tuple[str, ...]
    """Of each column."""
    tools: Tuple[str, ...]
    """Names, in the order of their indices."""
    dt_s: float
    """Length of a step."""
    result: BatchResult
    """The newest; at first of all environments at rest."""

    @staticmethod
    def _opening(spec: SpecLike, count: int, probes: Sequence[str]) -> "batch_pb2.BatchRequest":
        opening = made(batch_pb2.BatchOpen, spec=scene_spec(spec), count=count, probes=probes)
        if not 1 <= opening.count <= 1024:
            raise errors.InvalidArgument(f"count: {count} is outside [1, 1024]")
        return batch_pb2.BatchRequest(open=opening)

    def _opened(self, data: bytes) -> None:
        opened = batch_pb2.BatchResponse.FromString(data).opened
        self.count, self.dt_s = int(opened.count), float(opened.dt_s)
        self.columns, self.units, self.tools = tuple(opened.columns), tuple(opened.units), tuple(opened.tools)
        self.result = _result(opened.result, _wire.inner(data, _OPENED, _OPENED_RESULT), len(self.columns))

    def _answered(self, data: bytes) -> BatchResult:
        self.result = _result(batch_pb2.BatchResponse.FromString(data).result, _wire.inner(data, _RESULT), len(self.columns))
        return self.result

    def column(self, name: str) -> int:
        """The place of a column. Errors: NotFound, with the names there are."""
        if name not in self.columns:
            raise errors.NotFound(f"column: there is no {name!r}; the batch has {', '.join(self.columns)}")
        return self.columns.index(name)

    def _tool(self, name: str) -> int:
        if name not in self.tools:
            raise errors.NotFound(f"tool: there is no {name!r}; the scene has {', '.join(self.tools)}")
        return self.tools.index(name)

    def _step(self, steps: int, poses: PosesLike, edits: Optional[Mapping[int, Sequence[EditLike]]],
              release: Optional[Mapping[int, Sequence[str]]], only_named: bool) -> "batch_pb2.BatchRequest":
        by_environment: Dict[int, Mapping[str, PoseLike]] = {}
        if isinstance(poses, Mapping):
            by_environment = dict(poses)
        elif poses is not None:
            by_environment = {i: told for i, told in enumerate(poses) if told is not None}
        request = _steps(steps, only_named)
        for environment in sorted({*by_environment, *(edits or {}), *(release or {})}):
            action = request.step.actions.add()
            fill(action, {"environment": environment, "edits": (edits or {}).get(environment, ())}, f"actions of environment {environment}")
            for tool, pose in by_environment.get(environment, {}).items():
                action.tools.add(tool_index=self._tool(tool), pose=tool_pose(pose, f"poses[{environment}][{tool!r}]"))
            for tool in (release or {}).get(environment, ()):
                action.tools.add(tool_index=self._tool(tool), release=True)
        return request

    def _move(self, tool: str, positions_m: np.ndarray, steps: int, rotations: Optional[np.ndarray],
              environments: Optional[Sequence[int]]) -> "batch_pb2.BatchRequest":
        chosen = list(range(self.count)) if environments is None else [int(i) for i in environments]
        places = _rows("positions_m", positions_m, len(chosen), 3)
        turns = None if rotations is None else _rows("rotations", rotations, len(chosen), 4)
        index = self._tool(tool)
        request = _steps(steps, environments is not None)
        for i, environment in enumerate(chosen):
            action = request.step.actions.add()
            fill(action, {"environment": environment}, f"environments[{i}]")
            pose = action.tools.add(tool_index=index).pose.pose
            pose.position_m.x, pose.position_m.y, pose.position_m.z = places[i].tolist()
            if turns is not None:
                pose.rotation.w, pose.rotation.x, pose.rotation.y, pose.rotation.z = turns[i].tolist()
        return request

    @staticmethod
    def _reset(environments: Sequence[int], material: Optional[Mapping[str, Any]], zone: str, body: str) -> "batch_pb2.BatchRequest":
        materials = [] if material is None else [_requests.material(material, zone)]
        return batch_pb2.BatchRequest(reset=made(batch_pb2.BatchReset, environments=environments, body=body, materials=materials))


def _steps(steps: int, only_named: bool) -> "batch_pb2.BatchRequest":
    out = made(batch_pb2.BatchStep, steps=steps, only_named=only_named)
    if not 1 <= out.steps <= 100000:
        raise errors.InvalidArgument(f"steps: {steps} is outside [1, 100000]")
    return batch_pb2.BatchRequest(step=out)


def _rows(name: str, values: Any, count: int, width: int) -> np.ndarray:
    array = numbers(values, name)
    try:
        return np.broadcast_to(array, (count, width))
    except ValueError:
        raise errors.InvalidArgument(f"{name}: an array of shape {array.shape}, not ({count}, {width})") from None


class Batch(BatchState):
    """`count` scenes of one spec on a server's device, for learning, identification and sweeps. They end with this context manager; viewers
    do not see them. Each goes the same way, bit for bit, as a scene of its own that gets the same commands. Not thread-safe.
    Errors: those of Server.create; ResourceExhausted (environments, tets), InvalidArgument (count, probes[i])."""

    def __init__(self, server: Server, spec: SpecLike, count: int, probes: Sequence[str] = ()) -> None:
        request = self._opening(spec, count, probes)
        self._queue: "queue.SimpleQueue[Optional[batch_pb2.BatchRequest]]" = queue.SimpleQueue()
        connection = server.connection
        self._call = connection.stream(connection.stubs.run_batch, iter(self._queue.get, None))
        self._opened(self._ask(request))

    def __enter__(self) -> "Batch":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()

    def close(self) -> None:
        """Frees the scenes."""
        self._queue.put(None)
        self._call.cancel()

    def _ask(self, request: "batch_pb2.BatchRequest") -> bytes:
        self._queue.put(request)
        try:
            return next(self._call)  # type: ignore[no-any-return]
        except (grpc.RpcError, StopIteration) as error:
            self._queue.put(None)
            raise errors.of_end(error) from None

    def step(self, steps: int = 1, poses: PosesLike = None, *,
             edits: Optional[Mapping[int, Sequence[EditLike]]] = None, release: Optional[Mapping[int, Sequence[str]]] = None,
             only_named: bool = False) -> BatchResult:
        """Steps all environments. `poses`: by environment what its tools are told from now on; they keep their commands until told
        otherwise, or let go by `release`. `edits`: performed before the first step. `only_named`: environments that nothing is said to are
        left alone. Errors: InvalidArgument (the batch has ended then)."""
        return self._answered(self._ask(self._step(steps, poses, edits, release, only_named)))

    def move(self, tool: str, positions_m: np.ndarray, steps: int = 1, rotations: Optional[np.ndarray] = None,
             environments: Optional[Sequence[int]] = None) -> BatchResult:
        """Tells one tool of all environments (or of some, and steps only those) where to be, [n, 3] and [n, 4] (w, x, y, z), and steps."""
        return self._answered(self._ask(self._move(tool, positions_m, steps, rotations, environments)))

    def reset(self, environments: Sequence[int] = (), material: Optional[Mapping[str, Any]] = None, *, zone: str = "",
              body: str = "") -> BatchResult:
        """Back to the rest state, all or some; tools are let go. `material`: fields of MaterialSpec that the body (default: the first), or a
        zone of it, is given then."""
        return self._answered(self._ask(self._reset(environments, material, zone, body)))


__all__: List[str] = ["Batch", "BatchResult", "BatchState"]
