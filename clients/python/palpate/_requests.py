"""Requests as messages: what the classes with and without async share."""
from __future__ import annotations

import os
import time
import uuid
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from ._convert import PoseLike, SpecLike, fill, made, numbers, scene_spec, tool_pose, tool_poses
from .errors import InvalidArgument, NotFound
from .v1 import control_pb2, edit_pb2, haptics_pb2, record_pb2, scene_pb2, stream_pb2

_CHUNK_BYTES = 1 << 20

EditLike = Union["edit_pb2.Edit", Mapping[str, Any]]
RateLike = Union[str, float, "control_pb2.Rate", Mapping[str, Any], None]

_ENCODINGS = {"float32": stream_pb2.POSITION_ENCODING_FLOAT32, "uint16": stream_pb2.POSITION_ENCODING_UINT16,
              "none": stream_pb2.POSITION_ENCODING_NONE}
_FORMATS = {name[len("EXPORT_FORMAT_"):].lower(): number for name, number in control_pb2.ExportFormat.items() if number}


def _choice(name: str, value: str, known: Mapping[str, Any]) -> Any:
    if value not in known:
        raise InvalidArgument(f"{name}: {value!r} is none of {', '.join(known)}")
    return known[value]


def rate(value: RateLike) -> "control_pb2.Rate":
    """"fast", "real_time", or simulated seconds per wall second."""
    out = control_pb2.Rate()
    if value is None or value == "real_time":
        out.mode = control_pb2.RATE_MODE_REAL_TIME
    elif value == "fast":
        out.mode = control_pb2.RATE_MODE_AS_FAST_AS_POSSIBLE
    elif isinstance(value, (int, float)):
        out.mode, out.speed = control_pb2.RATE_MODE_REAL_TIME, float(value)
    elif isinstance(value, str):
        raise InvalidArgument(f"rate: {value!r} is none of fast, real_time or a speed")
    else:
        fill(out, value, "rate")
    return out


def create(spec: SpecLike, scene_id: str, play: bool, speed: RateLike) -> "control_pb2.CreateSceneRequest":
    """CreateScene."""
    return made(control_pb2.CreateSceneRequest, spec=scene_spec(spec), scene_id=scene_id, play=play,
                rate=None if speed is None else rate(speed))


def step(scene_id: str, count: int, poses: Optional[Mapping[str, PoseLike]]) -> "control_pb2.StepSceneRequest":
    """StepScene."""
    request = made(control_pb2.StepSceneRequest, scene_id=scene_id, count=count, tools=tool_poses(poses))
    if request.count < 1:
        raise InvalidArgument(f"count: {count} is outside [1, 100000]")
    return request


def export(scene_id: str, body: str, kind: str) -> "control_pb2.ExportSceneRequest":
    """ExportScene."""
    return made(control_pb2.ExportSceneRequest, scene_id=scene_id, body=body, format=_choice("format", kind, _FORMATS))


def watch(scene_id: str, positions: str, contacts: bool, tools: bool, volume: bool, max_rate_hz: Optional[float],
          contact_bodies: Sequence[str]) -> "stream_pb2.WatchRequest":
    """Watch."""
    return made(stream_pb2.WatchRequest, scene_id=scene_id, positions=_choice("positions", positions, _ENCODINGS), max_rate_hz=max_rate_hz,
                without_contacts=not contacts, without_tools=not tools, with_volume=volume, contact_bodies=contact_bodies)


def _parts(name: str, values: Any, parts: str) -> Tuple[Any, ...]:
    out = tuple(values) if isinstance(values, Iterable) else ()
    if len(out) != parts.count(",") + 1:
        raise InvalidArgument(f"{name}: {values!r} is not ({parts})")
    return out


def region(ball: Optional[Tuple[Any, float]], capsule: Optional[Tuple[Any, Any, float]], tets: Optional[Iterable[int]],
           zone: Optional[str], triangles: Optional[Iterable[int]] = None) -> Dict[str, Any]:
    """The EditRegion of exactly one of the arguments."""
    given: List[Dict[str, Any]] = []
    if ball is not None:
        given.append({"ball": dict(zip(("center_m", "radius_m"), _parts("ball", ball, "center, radius")))})
    if capsule is not None:
        given.append({"capsule": dict(zip(("end0_m", "end1_m", "radius_m"), _parts("capsule", capsule, "end, end, radius")))})
    if tets is not None:
        given.append({"tets": {"ids": tets}})
    if zone is not None:
        given.append({"zone": zone})
    if triangles is not None:
        given.append({"triangles": {"ids": triangles}})
    if len(given) != 1:
        raise InvalidArgument(f"region: one of ball, capsule, tets, zone and triangles is wanted, {len(given)} are given")
    return given[0]


def blade(edges: Any) -> List[Dict[str, Any]]:
    """[n, 2, 3] places of the cutting edge as BladeEdge."""
    places = numbers(edges, "edges")
    if places.ndim != 3 or places.shape[1:] != (2, 3):
        raise InvalidArgument(f"edges: an array of shape {places.shape}, not (n, 2, 3)")
    return [{"end0_m": edge[0], "end1_m": edge[1]} for edge in places]


def edit(scene_id: str, edits: Union[EditLike, Sequence[EditLike]], key: Optional[str],
         expected_topology_version: Optional[int]) -> "edit_pb2.EditSceneRequest":
    """EditScene; without a key it gets one of its own, so that it can be sent again."""
    return made(edit_pb2.EditSceneRequest, scene_id=scene_id, key=uuid.uuid4().hex if key is None else key,
                edits=[edits] if isinstance(edits, (edit_pb2.Edit, Mapping)) else edits, expected_topology_version=expected_topology_version)


def material(values: Union["scene_pb2.MaterialSpec", Mapping[str, Any]], zone: str) -> "edit_pb2.MaterialEdit":
    """MaterialEdit."""
    out = edit_pb2.MaterialEdit(zone=zone)
    fill(out.material, values, "material")
    return out


def attach(scene_id: str, tool: str, station: str, max_stiffness_n_per_m: float) -> "haptics_pb2.OperateRequest":
    """The first request of Operate."""
    return haptics_pb2.OperateRequest(attach=made(haptics_pb2.Attach, scene_id=scene_id, tool=tool, station=station,
                                                  device_max_stiffness_n_per_m=max_stiffness_n_per_m))


def pose(at: PoseLike, fields: Mapping[str, Any], sequence: int) -> "haptics_pb2.OperateRequest":
    """A pose of Operate; `fields`: more of ToolPose."""
    message = tool_pose(at)
    fill(message, fields, "pose")
    message.sequence, message.station_time_us = sequence, time.monotonic_ns() // 1000
    return haptics_pb2.OperateRequest(pose=message)


def seek(scene_id: str, target: Union[int, str]) -> "record_pb2.SeekSceneRequest":
    """SeekScene: to a bookmark (text) or a position."""
    return made(record_pb2.SeekSceneRequest, scene_id=scene_id, **{"bookmark" if isinstance(target, str) else "position": target})


def recording(path: "str | os.PathLike[str]", scene_id: str, speed: RateLike, temporary: bool) -> Iterator["record_pb2.OpenRecordingRequest"]:
    """OpenRecording, in pieces. Errors: NotFound (the file), at once."""
    request = made(record_pb2.OpenRecording, scene_id=scene_id, rate=None if speed is None else rate(speed), temporary=temporary)
    try:
        file = open(path, "rb")  # pylint: disable=consider-using-with
    except OSError as error:
        raise NotFound(f"{os.fspath(path)}: {error.strerror}") from error

    def pieces() -> Iterator["record_pb2.OpenRecordingRequest"]:
        with file:
            yield record_pb2.OpenRecordingRequest(open=request, data=file.read(_CHUNK_BYTES))
            while data := file.read(_CHUNK_BYTES):
                yield record_pb2.OpenRecordingRequest(data=data)

    return pieces()
