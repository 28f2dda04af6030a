"""Requests as messages: what the classes with and without async share."""
from __future__ import annotations

import uuid
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from ._convert import PoseLike, SpecLike, fill, scene_spec, tool_pose
from .errors import InvalidArgument
from .v1 import control_pb2, edit_pb2, haptics_pb2, scene_pb2, stream_pb2

EditLike = Union["edit_pb2.Edit", Mapping[str, Any]]
RateLike = Union[str, float, "control_pb2.Rate", Mapping[str, Any], None]

_ENCODINGS = {"float32": stream_pb2.POSITION_ENCODING_FLOAT32, "uint16": stream_pb2.POSITION_ENCODING_UINT16,
              "none": stream_pb2.POSITION_ENCODING_NONE}
_FORMATS = {"obj": control_pb2.EXPORT_FORMAT_OBJ, "vtk": control_pb2.EXPORT_FORMAT_VTK, "msh": control_pb2.EXPORT_FORMAT_MSH}


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
    request = control_pb2.CreateSceneRequest(spec=scene_spec(spec), scene_id=scene_id, play=play)
    if speed is not None:
        request.rate.CopyFrom(rate(speed))
    return request


def step(scene_id: str, count: int, poses: Optional[Mapping[str, PoseLike]]) -> "control_pb2.StepSceneRequest":
    """StepScene."""
    if count < 1:
        raise InvalidArgument(f"count: {count} is outside [1, 100000]")
    request = control_pb2.StepSceneRequest(scene_id=scene_id, count=count)
    for tool, pose in (poses or {}).items():
        request.tools.add(tool=tool, pose=tool_pose(pose, f"poses[{tool!r}]"))
    return request


def export(scene_id: str, body: str, kind: str) -> "control_pb2.ExportSceneRequest":
    """ExportScene."""
    return control_pb2.ExportSceneRequest(scene_id=scene_id, body=body, format=_choice("format", kind, _FORMATS))


def watch(scene_id: str, positions: str, contacts: bool, tools: bool, volume: bool, max_rate_hz: Optional[float],
          contact_bodies: Sequence[str]) -> "stream_pb2.WatchRequest":
    """Watch."""
    request = stream_pb2.WatchRequest(scene_id=scene_id, positions=_choice("positions", positions, _ENCODINGS), without_contacts=not contacts,
                                      without_tools=not tools, with_volume=volume, contact_bodies=list(contact_bodies))
    if max_rate_hz is not None:
        request.max_rate_hz = max_rate_hz
    return request


def region(ball: Optional[Tuple[Any, float]], capsule: Optional[Tuple[Any, Any, float]], tets: Optional[Iterable[int]],
           zone: Optional[str]) -> Dict[str, Any]:
    """The EditRegion of exactly one of the arguments."""
    given: List[Dict[str, Any]] = []
    if ball is not None:
        given.append({"ball": {"center_m": ball[0], "radius_m": ball[1]}})
    if capsule is not None:
        given.append({"capsule": {"end0_m": capsule[0], "end1_m": capsule[1], "radius_m": capsule[2]}})
    if tets is not None:
        given.append({"tets": {"ids": [int(i) for i in tets]}})
    if zone is not None:
        given.append({"zone": zone})
    if len(given) != 1:
        raise InvalidArgument(f"region: one of ball, capsule, tets and zone is wanted, {len(given)} are given")
    return given[0]


def blade(edges: Any) -> List[Dict[str, Any]]:
    """[n, 2, 3] places of the cutting edge as BladeEdge."""
    places = np.asarray(edges, float)
    if places.ndim != 3 or places.shape[1:] != (2, 3):
        raise InvalidArgument(f"edges: an array of shape {places.shape}, not (n, 2, 3)")
    return [{"end0_m": edge[0], "end1_m": edge[1]} for edge in places]


def edit(scene_id: str, edits: Union[EditLike, Sequence[EditLike]], key: Optional[str],
         expected_topology_version: Optional[int]) -> "edit_pb2.EditSceneRequest":
    """EditScene; without a key it gets one of its own, so that it can be sent again."""
    request = edit_pb2.EditSceneRequest(scene_id=scene_id, key=uuid.uuid4().hex if key is None else key)
    if isinstance(edits, (edit_pb2.Edit, Mapping)):
        edits = [edits]
    for i, one in enumerate(edits):
        fill(request.edits.add(), one, f"edits[{i}]")
    if expected_topology_version is not None:
        request.expected_topology_version = expected_topology_version
    return request


def material(values: Union["scene_pb2.MaterialSpec", Mapping[str, Any]], zone: str) -> "edit_pb2.MaterialEdit":
    """MaterialEdit."""
    out = edit_pb2.MaterialEdit(zone=zone)
    fill(out.material, values, "material")
    return out


def attach(scene_id: str, tool: str, station: str, max_stiffness_n_per_m: float) -> "haptics_pb2.OperateRequest":
    """The first request of Operate."""
    return haptics_pb2.OperateRequest(attach=haptics_pb2.Attach(scene_id=scene_id, tool=tool, station=station,
                                                                device_max_stiffness_n_per_m=max_stiffness_n_per_m))
