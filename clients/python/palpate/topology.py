"""A reader's copy of what the bodies of a scene are made of, kept up to date by deltas and checked by hash: docs/streaming.md."""
from __future__ import annotations

import dataclasses
import math
from typing import Callable, List, Optional, Sequence, Tuple

import numpy as np

from ._convert import uint32_array
from .errors import DataLoss, NotFound
from .v1 import stream_pb2

_CHAIN = np.uint64(0x9E3779B97F4A7C15)
_MASK = (1 << 64) - 1


def _mix(z: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64, modulo 2^64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _chain(hashes: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return _mix(hashes + _CHAIN + (low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)))


def _constant(value: int, like: np.ndarray) -> np.ndarray:
    return np.full(len(like), value, np.uint64)


def triangle_hashes(slots: np.ndarray, triangles: np.ndarray, zones: np.ndarray) -> np.ndarray:
    """The number of each triangle slot; 0 for free ones."""
    out = _chain(_constant(0, slots), slots, triangles[:, 0])
    out = _chain(_chain(out, triangles[:, 1], triangles[:, 2]), zones, _constant(3, slots))
    return np.where(triangles.any(axis=1), out, np.uint64(0))


def tet_hashes(slots: np.ndarray, tets: np.ndarray) -> np.ndarray:
    """The number of each tet slot; 0 for free ones."""
    out = _chain(_constant(0, slots), slots, tets[:, 0])
    out = _chain(_chain(out, tets[:, 1], tets[:, 2]), tets[:, 3], _constant(4, slots))
    return np.where(tets.any(axis=1), out, np.uint64(0))


def texture_hashes(places: np.ndarray, coordinates: np.ndarray) -> np.ndarray:
    """The number of each texture coordinate, [n, 2] float32; 0 for (0, 0)."""
    bits = np.ascontiguousarray(coordinates, dtype="<f4").view("<u4")
    out = _chain(_chain(_constant(0, places), places, bits[:, 0]), bits[:, 1], _constant(5, places))
    return np.where((coordinates != 0).any(axis=1), out, np.uint64(0))


def corner_hashes(slots: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """The number of the texture coordinates of each triangle slot's corners, [n, 3, 2] float32; 0 where all are (0, 0)."""
    bits = np.ascontiguousarray(corners, dtype="<f4").reshape(-1, 6).view("<u4")
    out, low = _constant(0, slots), slots
    for k in (0, 2, 4):
        out, low = _chain(out, low, bits[:, k]), bits[:, k + 1]
    return np.where((corners != 0).any(axis=(1, 2)), _chain(out, low, _constant(6, slots)), np.uint64(0))


def _sum(hashes: np.ndarray) -> int:
    return int(hashes.sum(dtype=np.uint64)) & _MASK


def _frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def _resized(array: np.ndarray, count: int) -> np.ndarray:
    out = np.zeros((count, *array.shape[1:]), array.dtype)
    kept = min(count, len(array))
    out[:kept] = array[:kept]
    return out


@dataclasses.dataclass(frozen=True)
class Body:
    """The arrays of one body at one version. They are by slot: a slot of zeros is free and counts as nothing. Arrays are read-only and
    never change; a new version has new ones."""

    name: str
    """Name, unique in the scene."""
    parent: str
    """Of a piece that was cut off: the body it came from; otherwise empty."""
    vertex_count: int
    """Positions per frame, places that nobody uses included."""
    triangle_slots: np.ndarray
    """[slots, 3] indices of positions."""
    zone_slots: np.ndarray
    """[slots] index into `zones`."""
    tet_slots: np.ndarray
    """[slots, 4] indices of positions; no rows in streams without the volume."""
    fixed: np.ndarray
    """Indices of fixed vertices."""
    texture_coordinates: Optional[np.ndarray]
    """[vertex_count, 2], (0, 0) where there are none; None for a body without, or with `texture_corners`."""
    texture_corners: Optional[np.ndarray]
    """[slots, 3, 2] of the corners of triangles, where those that meet in a vertex may differ; (0, 0) where there are none; None without."""
    color: Tuple[float, float, float]
    """Linear RGB."""
    zones: Tuple[str, ...]
    """Names of the parts of the surface: 0 is the skin."""
    mesh_hash: int
    """Of the arrays, checked against the server's."""

    @property
    def triangles(self) -> np.ndarray:
        """[n, 3] indices of positions, without free slots."""
        return self.triangle_slots[self.triangle_slots.any(axis=1)]

    @property
    def tets(self) -> np.ndarray:
        """[n, 4] indices of positions, without free slots."""
        return self.tet_slots[self.tet_slots.any(axis=1)]


@dataclasses.dataclass(frozen=True)
class Topology:
    """All bodies at one version."""

    version: int
    """Goes up with each change."""
    bodies: Tuple[Body, ...]
    """In the order of a frame's bodies; pieces that were cut off come last."""
    tools: Tuple["stream_pb2.ToolShape", ...]
    """Size and kind of each tool."""
    markers: Tuple["stream_pb2.MarkerInfo", ...]
    """In the order of a frame's markers."""
    joints: Tuple["stream_pb2.JointInfo", ...] = ()
    """In the order of a frame's joints."""
    supports: Tuple["stream_pb2.SupportInfo", ...] = ()
    """In the order of a frame's supports."""

    def index(self, body: str) -> int:
        """The place of a body. Errors: NotFound, with the names there are."""
        for i, known in enumerate(self.bodies):
            if known.name == body:
                return i
        raise NotFound(f"body: there is no {body!r}; the scene has {', '.join(b.name for b in self.bodies)}")

    def __getitem__(self, body: str) -> Body:
        return self.bodies[self.index(body)]


class TopologyMirror:
    """Follows the messages of a stream. `topology` is what the frames until the next change belong to."""

    def __init__(self) -> None:
        self.topology = Topology(0, (), (), ())
        """At the newest version; of version 0 before the first keyframe."""

    def keyframe(self, keyframe: "stream_pb2.Keyframe") -> None:
        """Begins anew. Errors: DataLoss: the message makes no sense, or its arrays do not have the hash that it says."""
        self.topology = Topology(keyframe.topology_version, tuple(_body(body) for body in keyframe.bodies), tuple(keyframe.tools),
                                 tuple(keyframe.markers), tuple(keyframe.joints), tuple(keyframe.supports))

    def delta(self, delta: "stream_pb2.TopologyDelta") -> None:
        """Goes to the next version. Errors: DataLoss, also if the delta does not begin at this version."""
        old = self.topology
        if delta.from_version != old.version or delta.to_version <= old.version:
            raise DataLoss(f"a change of topology from version {delta.from_version} to {delta.to_version} came at version {old.version}")
        bodies = list(old.bodies)
        for change in delta.bodies:
            if change.body_index >= len(bodies):
                raise DataLoss(f"a change of body {change.body_index}, which is outside [0, {len(bodies)})")
            bodies[change.body_index] = _changed(bodies[change.body_index], change)
        bodies += [_body(body) for body in delta.new_bodies]
        self.topology = dataclasses.replace(old, version=delta.to_version, bodies=tuple(bodies))

    def check(self, frame: "stream_pb2.Frame") -> None:
        """Errors: DataLoss if a frame does not belong to the arrays."""
        known = self.topology
        if frame.topology_version != known.version:
            raise DataLoss(f"frame {frame.step} is of topology version {frame.topology_version}, the arrays are of {known.version}")
        if frame.bodies and len(frame.bodies) != len(known.bodies):
            raise DataLoss(f"frame {frame.step} has {len(frame.bodies)} bodies of {len(known.bodies)}")
        if len(frame.markers) != len(known.markers):
            raise DataLoss(f"frame {frame.step} has {len(frame.markers)} markers of {len(known.markers)}")
        if len(frame.joints) != len(known.joints):
            raise DataLoss(f"frame {frame.step} has {len(frame.joints)} joints of {len(known.joints)}")
        if len(frame.supports) != len(known.supports):
            raise DataLoss(f"frame {frame.step} has {len(frame.supports)} supports of {len(known.supports)}")


def _check(name: str, is_right: bool, what: str) -> None:
    if not is_right:
        raise DataLoss(f"topology of body {name!r}: {what}")


def _check_indices(name: str, vertex_count: int, *arrays: np.ndarray) -> None:
    for array in arrays:
        # Free slots hold zeros, also in a body without a vertex.
        _check(name, array.size == 0 or int(array.max()) < max(1, vertex_count), f"an index is outside [0, {vertex_count})")


def _check_hash(name: str, own: int, expected: int) -> None:
    _check(name, own == expected, f"the arrays have the hash {own:016x}, the server's {expected:016x}")


def _coordinates(name: str, values: Sequence[float], *shape: int) -> np.ndarray:
    """[n, *shape] texture coordinates."""
    flat = np.fromiter(values, dtype=np.float32, count=len(values))
    _check(name, len(flat) % math.prod(shape) == 0 and bool(np.isfinite(flat).all()), "texture coordinates that make no sense")
    return flat.reshape(-1, *shape) + np.float32(0)  # takes the sign off a negative zero


def _all_hashes(triangles: np.ndarray, zones: np.ndarray, tets: np.ndarray, coordinates: Optional[np.ndarray],
                corners: Optional[np.ndarray]) -> int:
    slots = np.arange(len(triangles))
    total = _sum(triangle_hashes(slots, triangles, zones)) + _sum(tet_hashes(np.arange(len(tets)), tets))
    if coordinates is not None:
        total += _sum(texture_hashes(np.arange(len(coordinates)), coordinates))
    if corners is not None:
        total += _sum(corner_hashes(slots, corners))
    return total & _MASK


def _vertex_texture(message: "stream_pb2.BodyTopology") -> Optional[np.ndarray]:
    """[vertex_count, 2] of a whole body; None for one without."""
    name = message.name
    if not message.HasField("texture") or message.texture.by_corner:
        _check(name, not message.texture_coordinates, "texture coordinates of vertices that have none")
        return None
    values = _coordinates(name, message.texture_coordinates, 2)
    places = uint32_array(message.texture_vertices) if message.texture_vertices else np.arange(len(values), dtype=np.uint32)
    _check(name, len(values) == len(places) and (len(places) == 0 or int(places.max()) < message.vertex_count),
           "texture coordinates that do not fit the vertices")
    out = np.zeros((message.vertex_count, 2), np.float32)
    out[places] = values
    return _frozen(out)


def _corner_texture(message: "stream_pb2.BodyTopology", triangle_count: int) -> Optional[np.ndarray]:
    """[slots, 3, 2] of a whole body; None for one without."""
    corners = _coordinates(message.name, message.texture_corners, 3, 2)
    is_by_corner = message.HasField("texture") and message.texture.by_corner
    _check(message.name, len(corners) == (triangle_count if is_by_corner else 0), "texture coordinates that do not fit the triangles")
    return _frozen(corners) if is_by_corner else None


def _body(message: "stream_pb2.BodyTopology") -> Body:
    name = message.name
    _check(name, len(message.triangles) % 3 == 0 and len(message.tets) % 4 == 0, "numbers that make no triangles or tets")
    triangles, tets = uint32_array(message.triangles, 3), uint32_array(message.tets, 4)
    zones = uint32_array(message.triangle_zones) if message.triangle_zones else np.zeros(len(triangles), np.uint32)
    _check(name, len(zones) == len(triangles), f"{len(zones)} zones of {len(triangles)} triangles")
    _check_indices(name, message.vertex_count, triangles, tets)
    coordinates, corners = _vertex_texture(message), _corner_texture(message, len(triangles))
    own = _all_hashes(triangles, zones, tets, coordinates, corners)
    _check_hash(name, own, message.mesh_hash)
    color = (message.color.r, message.color.g, message.color.b)
    return Body(name, message.parent, message.vertex_count, _frozen(triangles), _frozen(zones), _frozen(tets),
                _frozen(uint32_array(message.fixed)), coordinates, corners, color, tuple(zone.name for zone in message.surface_zones), own)


def _set_rows(name: str, array: np.ndarray, count: int, slots: np.ndarray, rows: np.ndarray) -> np.ndarray:
    _check(name, len(slots) == len(rows) and (len(slots) == 0 or int(slots.max()) < count), "slots and contents that do not fit together")
    out = _resized(array, count)
    out[slots] = rows
    return out


def _changed(old: Body, change: "stream_pb2.BodyDelta") -> Body:
    """The body after a change. The hash is kept up to date by what changed; the cost is that of a copy of the arrays."""
    name = old.name
    slots, tet_slots = uint32_array(change.triangle_slots), uint32_array(change.tet_slots)
    _check(name, len(change.triangles) == 3 * len(slots) and len(change.triangle_zones) == len(slots) and
           len(change.tets) == 4 * len(tet_slots), "slots and contents that do not fit together")
    rows, tet_rows = uint32_array(change.triangles, 3), uint32_array(change.tets, 4)
    _check_indices(name, change.vertex_count, rows, tet_rows)
    triangles = _set_rows(name, old.triangle_slots, change.triangle_count, slots, rows)
    zones = _set_rows(name, old.zone_slots, change.triangle_count, slots, uint32_array(change.triangle_zones))
    tets = _set_rows(name, old.tet_slots, change.tet_count, tet_slots, tet_rows)
    own = old.mesh_hash
    own += _difference(slots, old.triangle_slots, change.triangle_count,
                       lambda at, new: triangle_hashes(at, triangles[at] if new else old.triangle_slots[at],
                                                       zones[at] if new else old.zone_slots[at]))
    own += _difference(tet_slots, old.tet_slots, change.tet_count,
                       lambda at, new: tet_hashes(at, tets[at] if new else old.tet_slots[at]))
    places, values = uint32_array(change.texture_vertices), _coordinates(name, change.texture_coordinates, 2)
    coordinates, gained = _changed_texture(name, old.texture_coordinates, change.vertex_count, places, values, texture_hashes)
    own += gained
    values = _coordinates(name, change.texture_corners, 3, 2)
    corners, gained = _changed_texture(name, old.texture_corners, change.triangle_count, slots, values, corner_hashes)
    own += gained
    own &= _MASK
    _check_hash(name, own, change.mesh_hash)
    fixed = _frozen(uint32_array(change.fixed)) if change.fixed_changed else old.fixed
    return dataclasses.replace(old, vertex_count=change.vertex_count, triangle_slots=_frozen(triangles), zone_slots=_frozen(zones),
                               tet_slots=_frozen(tets), fixed=fixed, texture_coordinates=coordinates, texture_corners=corners, mesh_hash=own)


def _changed_texture(name: str, old: Optional[np.ndarray], count: int, places: np.ndarray, values: np.ndarray,
                     hashes: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Tuple[Optional[np.ndarray], int]:
    """The texture coordinates after a change, and what the sum of their numbers gains by it."""
    if old is None:
        _check(name, len(values) == 0, "texture coordinates of a body without")
        return None, 0
    before, after = old, _set_rows(name, old, count, places, values)
    return _frozen(after), _difference(places, before, count, lambda at, new: hashes(at, after[at] if new else before[at]))


def _difference(changed: np.ndarray, old: np.ndarray, count: int, hashes: Callable[[np.ndarray, bool], np.ndarray]) -> int:
    """What the sum of numbers of slots gains by a change: of slots that changed, and of those at the end that are gone."""
    distinct = np.unique(changed)
    gone = np.arange(count, len(old), dtype=np.uint32)
    before = np.concatenate([distinct[distinct < min(count, len(old))], gone])
    return _sum(hashes(distinct, True)) - _sum(hashes(before, False))


__all__: List[str] = ["Body", "Topology", "TopologyMirror", "triangle_hashes", "tet_hashes", "texture_hashes", "corner_hashes"]
