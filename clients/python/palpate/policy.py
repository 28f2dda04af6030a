"""Policies of jobs in Python: a program that `palpate job run` asks once in each control interval what tools and surgeon do (docs/jobs.md).

    from palpate import policy
    policy.run(lambda now: {"probe": (0, 0, 0.02 - 0.001 * now.time_s)})
"""
from __future__ import annotations

import dataclasses
import json
import math
import sys
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, TextIO, Tuple, Union

import numpy as np
from google.protobuf import json_format

from ._convert import PoseLike, fill, tool_pose
from ._requests import EditLike
from .errors import DataLoss, FailedPrecondition, InvalidArgument
from .v1 import edit_pb2

PROTOCOL = 1
"""Version of the lines that are spoken."""


@dataclasses.dataclass(frozen=True)
class ToolSetup:
    """A tool that the policy moves."""

    name: str
    """As in the scene."""
    kind: str
    """Of its instrument: "probe", "forceps", "scalpel", ..."""
    position_m: np.ndarray
    """[3] of the tip at rest, in W."""
    rotation: np.ndarray
    """[4] (w, x, y, z) at rest."""
    max_jaw_angle_rad: float
    """0: no jaws."""
    max_power_w: float
    """0: none."""


@dataclasses.dataclass(frozen=True)
class Setup:
    """What stays the same for a whole job."""

    job: str
    """Its name."""
    dt_s: float
    """Length of a step."""
    interval_s: float
    """Between two decisions."""
    seed: int
    """For all that is random: a job that goes on after an interruption asks again, and compares."""
    observations: Tuple[str, ...]
    """Names of what is observed."""
    units: Tuple[str, ...]
    """Of each."""
    tools: Mapping[str, ToolSetup]
    """By name."""


@dataclasses.dataclass(frozen=True)
class Now:
    """What a decision is made of."""

    setup: Setup
    """As at the beginning."""
    step: int
    """Steps done."""
    time_s: float
    """Simulated time."""
    observations: Mapping[str, float]
    """By name; NaN where there is no value."""

    def vector(self, name: str) -> np.ndarray:
        """[3] of a probe with components x, y and z. Errors: KeyError."""
        return np.array([self.observations[f"{name}.{axis}"] for axis in "xyz"])


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a policy decides. A decision may also be the mapping of `tools` alone, or None: all goes on as it was."""

    tools: Mapping[str, PoseLike] = dataclasses.field(default_factory=dict)
    """What tools are told from now on, see Scene.step; a mapping without `position_m` leaves a tool where it is."""
    edits: Sequence[EditLike] = ()
    """Performed at once."""
    stop: bool = False
    """The job is over."""
    reason: str = ""
    """Why, for the summary."""


Decision = Union[Answer, Mapping[str, PoseLike], None]
Decide = Callable[[Now], Decision]


def run(decide: Decide, begin: Optional[Callable[[Setup], None]] = None, end: Optional[Callable[[str], None]] = None, *,
        source: Optional[TextIO] = None, sink: Optional[TextIO] = None) -> None:
    """Answers a job until it is over. `begin` is told the setup once, `end` the reason. What the program prints goes to standard error, which
    the job keeps as policy.log. Errors: DataLoss (lines that make no sense), FailedPrecondition (another protocol), those of the functions;
    the job fails then, with the program's last words."""
    lines, out = source if source is not None else sys.stdin, sink if sink is not None else sys.stdout
    if sink is None:
        sys.stdout = sys.stderr  # a stray print would be taken for an answer
    setup: Optional[Setup] = None
    for line in lines:
        message = _message(line)
        kind = message.get("type")
        if kind == "begin":
            setup = _setup(message)
            if begin is not None:
                begin(setup)
        elif kind == "step":
            if setup is None:
                raise DataLoss("a step came before the beginning")
            out.write(json.dumps(_answer(decide(_now(setup, message))), allow_nan=False) + "\n")
            out.flush()
        elif kind == "end":
            if end is not None:
                end(str(message.get("reason", "")))
            return


def _message(line: str) -> Dict[str, Any]:
    try:
        message = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataLoss(f"a line that is no JSON: {error.msg}: {line[:200]!r}") from error
    if not isinstance(message, dict):
        raise DataLoss(f"a line that is no object: {line[:200]!r}")
    return message


def _setup(message: Mapping[str, Any]) -> Setup:
    if message.get("protocol") != PROTOCOL:
        raise FailedPrecondition(f"the job speaks protocol {message.get('protocol')}, this package {PROTOCOL}")
    tools: Dict[str, ToolSetup] = {}
    for tool in message["tools"]:
        place, turn = tool["position_m"], tool["rotation"]
        tools[tool["name"]] = ToolSetup(tool["name"], tool["kind"].replace("INSTRUMENT_KIND_", "").lower(),
                                        np.array([place[axis] for axis in "xyz"]), np.array([turn[axis] for axis in "wxyz"]),
                                        float(tool["max_jaw_angle_rad"]), float(tool["max_power_w"]))
    observed = message["observations"]
    return Setup(message["job"], float(message["dt_s"]), float(message["interval_s"]), int(message["seed"]),
                 tuple(column["name"] for column in observed), tuple(column["unit"] for column in observed), tools)


def _now(setup: Setup, message: Mapping[str, Any]) -> Now:
    values = {name: math.nan if value is None else float(value) for name, value in message["observations"].items()}
    return Now(setup, int(message["step"]), float(message["time_s"]), values)


def _answer(decision: Decision) -> Dict[str, Any]:
    """An answer as palpate.v1.PolicyAnswer in JSON."""
    answer = decision if isinstance(decision, Answer) else Answer(tools=decision or {})
    out: Dict[str, Any] = {}
    if answer.tools:
        out["tools"] = [_command(name, pose) for name, pose in answer.tools.items()]
    if answer.edits:
        out["edits"] = []
        for i, edit in enumerate(answer.edits):
            message = edit_pb2.Edit()
            fill(message, edit, f"edits[{i}]")
            out["edits"].append(json_format.MessageToDict(message, preserving_proto_field_name=True))
    if answer.stop:
        out["stop"] = True
    if answer.reason:
        out["reason"] = answer.reason
    return out


def _command(tool: str, pose: PoseLike) -> Dict[str, Any]:
    message = tool_pose(pose, f"tools[{tool!r}]")
    out: Dict[str, Any] = {"tool": tool}
    out.update(json_format.MessageToDict(message, preserving_proto_field_name=True))
    if isinstance(pose, Mapping) and "jaw_angle_rad" in pose:
        out["jaw_angle_rad"] = float(pose["jaw_angle_rad"])  # zero means closed, none as before
    for name in ("sequence", "station_time_us"):
        out.pop(name, None)
    if not all(math.isfinite(value) for value in _numbers(out)):
        raise InvalidArgument(f"tools[{tool!r}]: a number is not finite")
    return out


def _numbers(values: Any) -> List[float]:
    if isinstance(values, Mapping):
        return [number for value in values.values() for number in _numbers(value)]
    # json_format writes numbers that JSON does not have as texts.
    if values in ("NaN", "Infinity", "-Infinity"):
        return [math.nan]
    return [float(values)] if isinstance(values, (int, float)) else []


__all__: List[str] = ["Answer", "Now", "PROTOCOL", "Setup", "ToolSetup", "run"]
