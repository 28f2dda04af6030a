"""From what people write to messages: mappings, arrays and files to protobuf, and vectors back to NumPy."""
from __future__ import annotations

import json
import operator
import os
import pathlib
import reprlib
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Type, TypeVar, Union

import numpy as np
from google.protobuf import message as _message
from google.protobuf.descriptor import FieldDescriptor

from .errors import InvalidArgument, NotFound
from .v1 import haptics_pb2, scene_pb2

PoseLike = Union["haptics_pb2.ToolPose", "scene_pb2.Pose", Mapping[str, Any], Sequence[float], np.ndarray, Tuple[Any, Any]]
SpecLike = Union["scene_pb2.SceneSpec", Mapping[str, Any], str, "os.PathLike[str]", Any]

# Messages that may be written as a sequence of numbers.
_SEQUENCES = {"palpate.v1.Vec3": ("x", "y", "z"), "palpate.v1.Quaternion": ("w", "x", "y", "z"), "palpate.v1.Color": ("r", "g", "b")}
_INTEGERS = (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64)


def _enum_value(field: FieldDescriptor, value: Any, path: str) -> int:
    if isinstance(value, str):
        names = field.enum_type.values_by_name
        prefix = os.path.commonprefix(list(names))
        for name in (value, value.upper(), prefix + value.upper()):
            if name in names:
                return int(names[name].number)
        raise InvalidArgument(f"{path}: {value!r} is none of {', '.join(name[len(prefix):].lower() for name in names)}")
    return int(value)


def _integer(value: Any) -> int:
    if isinstance(value, (str, bytes)):
        return int(value)
    try:
        return operator.index(value)
    except TypeError:
        if not float(value).is_integer():
            raise ValueError from None
        return int(value)


def numbers(values: Any, path: str) -> np.ndarray:
    """An array of float64. Errors: InvalidArgument naming the path."""
    try:
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgument(f"{path}: {reprlib.repr(values)} is not an array of numbers") from None


def _scalar(field: FieldDescriptor, value: Any, path: str) -> Any:
    try:
        if field.type == FieldDescriptor.TYPE_ENUM:
            return _enum_value(field, value, path)
        if field.cpp_type in _INTEGERS:
            return _integer(value)
        if field.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
            return float(value)
        if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
            if not isinstance(value, (bool, np.bool_)):
                raise ValueError
            return bool(value)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, InvalidArgument):
            raise
        raise InvalidArgument(f"{path}: {reprlib.repr(value)} is not of the field's type") from None
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if not isinstance(value, (str, bytes)):
        raise InvalidArgument(f"{path}: {value!r} is not a text")
    return value


def fill(message: _message.Message, values: Any, path: str = "") -> None:
    """Sets fields of a message from a mapping with the names of the .proto file (or their JSON form), at any depth. Vectors may be
    sequences of numbers, enums their names with or without prefix. Errors: InvalidArgument naming the field path."""
    name = message.DESCRIPTOR.full_name
    if isinstance(values, _message.Message):
        if values.DESCRIPTOR.full_name != name:
            raise InvalidArgument(f"{path or name}: a {values.DESCRIPTOR.full_name} where a {name} belongs")
        message.CopyFrom(values)
        return
    if name in _SEQUENCES and not isinstance(values, Mapping):
        flat = numbers(values, path).ravel()
        if len(flat) != len(_SEQUENCES[name]):
            raise InvalidArgument(f"{path}: {len(flat)} numbers, not {len(_SEQUENCES[name])}")
        for part, number in zip(_SEQUENCES[name], flat):
            setattr(message, part, float(number))
        return
    if not isinstance(values, Mapping):
        raise InvalidArgument(f"{path or name}: {values!r} is neither a mapping nor a {name}")
    fields = dict(message.DESCRIPTOR.fields_by_name)
    fields.update({field.json_name: field for field in message.DESCRIPTOR.fields})
    message.SetInParent()
    for key, value in values.items():
        at = f"{path}.{key}" if path else str(key)
        if key not in fields:
            raise InvalidArgument(f"{at}: there is no such field; {name} has {', '.join(message.DESCRIPTOR.fields_by_name)}")
        if value is not None:
            _set(message, fields[key], value, at)


def _set(message: _message.Message, field: FieldDescriptor, value: Any, path: str) -> None:
    target = getattr(message, field.name)
    if field.label == FieldDescriptor.LABEL_REPEATED:
        if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__iter__"):
            raise InvalidArgument(f"{path}: {value!r} is not a list")
        if field.message_type is None:
            _extend(target, field, value, path)
        else:
            for i, item in enumerate(value):
                fill(target.add(), item, f"{path}[{i}]")
    elif field.message_type is not None:
        target.SetInParent()
        fill(target, value, path)
    else:
        try:
            setattr(message, field.name, _scalar(field, value, path))
        except ValueError as error:
            if isinstance(error, InvalidArgument):
                raise
            raise InvalidArgument(f"{path}: {value!r} is outside the range of the field's type") from None


def _extend(target: Any, field: FieldDescriptor, values: Any, path: str) -> None:
    flat = values.ravel().tolist() if isinstance(values, np.ndarray) else list(values)
    size = len(target)
    try:
        target.extend(flat)
        return
    except (TypeError, ValueError):
        del target[size:]
    # One by one, to convert them or to name the one that is wrong.
    for i, item in enumerate(flat):
        at = f"{path}[{i}]"
        try:
            target.append(_scalar(field, item, at))
        except ValueError as error:
            raise error if isinstance(error, InvalidArgument) else InvalidArgument(f"{at}: {item!r} is outside the range of the field's type")


M = TypeVar("M", bound=_message.Message)


def made(kind: Type[M], **fields: Any) -> M:
    """A message of its fields, None for those that are left out. Errors: as fill."""
    out = kind()
    fill(out, fields)
    return out


def scene_spec(source: SpecLike) -> "scene_pb2.SceneSpec":
    """A SceneSpec of a spec, a mapping, a builder (anything with `build()`), or the path of a scene file in JSON.
    Errors: NotFound (file), InvalidArgument naming file and field."""
    spec = scene_pb2.SceneSpec()
    if hasattr(source, "build"):
        source = source.build()
    if isinstance(source, (str, os.PathLike)):
        path = pathlib.Path(source)
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise NotFound(f"{path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise InvalidArgument(f"{path}: byte {error.start}: not UTF-8") from error
        except json.JSONDecodeError as error:
            raise InvalidArgument(f"{path}: line {error.lineno}: {error.msg}") from error
        try:
            fill(spec, values)
        except InvalidArgument as error:
            raise InvalidArgument(f"{path}: {error.message}") from error
    else:
        fill(spec, source)
    return spec


def tool_pose(pose: PoseLike, path: str = "pose") -> "haptics_pb2.ToolPose":
    """A ToolPose of a place of the tip (three numbers), a place and a rotation (w, x, y, z), a mapping with `position_m`, `rotation` and
    fields of ToolPose such as `jaw_angle_rad`, or a message."""
    out = haptics_pb2.ToolPose()
    if isinstance(pose, haptics_pb2.ToolPose):
        out.CopyFrom(pose)
    elif isinstance(pose, scene_pb2.Pose):
        out.pose.CopyFrom(pose)
    elif isinstance(pose, Mapping):
        rest = dict(pose)
        place = {key: rest.pop(key) for key in ("position_m", "rotation") if key in rest}
        fill(out, rest, path)
        if place:
            fill(out.pose, place, path)
    elif isinstance(pose, tuple) and len(pose) == 2:
        fill(out.pose, {"position_m": pose[0], "rotation": pose[1]}, path)
    else:
        flat = numbers(pose, path).ravel()
        if len(flat) not in (3, 7):
            raise InvalidArgument(f"{path}: {len(flat)} numbers, not 3 (a place) or 7 (a place and a rotation w x y z)")
        fill(out.pose, {"position_m": flat[:3], **({"rotation": flat[3:]} if len(flat) == 7 else {})}, path)
    return out


def tool_poses(poses: Optional[Mapping[str, PoseLike]]) -> List[Dict[str, Any]]:
    """What tools are told, as fields of ToolTarget messages (`tool`, `pose`). Errors: InvalidArgument naming poses and the tool."""
    if poses is not None and not isinstance(poses, Mapping):
        raise InvalidArgument(f"poses: {reprlib.repr(poses)} is no mapping of tools to poses")
    return [{"tool": tool, "pose": tool_pose(pose, f"poses[{tool!r}]")} for tool, pose in (poses or {}).items()]


def vec3(message: "scene_pb2.Vec3") -> np.ndarray:
    """Three numbers, as an array."""
    return np.array((message.x, message.y, message.z))


def quaternion(message: "scene_pb2.Quaternion") -> np.ndarray:
    """(w, x, y, z), as an array."""
    return np.array((message.w, message.x, message.y, message.z))


def uint32_array(field: Any, width: Optional[int] = None) -> np.ndarray:
    """A packed repeated field as an array, in rows of `width` numbers if given."""
    out = np.fromiter(field, dtype=np.uint32, count=len(field))
    return out if width is None else out.reshape(-1, width)
