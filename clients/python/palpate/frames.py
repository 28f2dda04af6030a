"""What a scene looks like after a step: positions, contacts, tools and local contact models as arrays. SI units; W is the world frame."""
from __future__ import annotations

import dataclasses
from typing import Dict, List, Optional, Sequence, Tuple

import numpy as np

from ._convert import PoseLike, quaternion, tool_pose, vec3
from .errors import NotFound
from .topology import Topology
from .v1 import haptics_pb2, scene_pb2, stream_pb2

OBSTACLE = -1
"""Contact `tool` of an obstacle."""

CONTACT_DTYPE = np.dtype([("tool", "i4"), ("body", "u4"), ("point_m", "f8", 3), ("normal", "f8", 3), ("separation_m", "f8"), ("force_n", "f8", 3)])
"""Contacts between a tool (A) or obstacle (A, `tool` is -1) and a body (B): point on the body's surface, unit normal from A to B, signed
separation, force on the body with friction."""

SURFACE_CONTACT_DTYPE = np.dtype([("kind", "u4"), ("body_a", "u4"), ("body_b", "u4"), ("vertices", "u4", 4), ("point_a_m", "f8", 3),
                                  ("point_b_m", "f8", 3), ("normal", "f8", 3), ("distance_m", "f8"), ("force_n", "f8", 3)])
"""Contacts between and within bodies: kind 1 is a vertex of A and a triangle of B, 2 an edge of each; force on B."""

JOINT_DTYPE = np.dtype([("position", "f8"), ("effort", "f8"), ("force_n", "f8", 3), ("torque_n_m", "f8", 3), ("point_m", "f8", 3),
                        ("point_a_m", "f8", 3), ("axis", "f8", 3), ("gap_m", "f8"), ("gap_rad", "f8"), ("is_broken", "?")])
"""Joints: their coordinate (hinge in rad; slider, distance and spring in m), what drives or limits it, force and torque on B at its point,
the points of both, the axis, and how far what they hold is off."""

SUPPORT_DTYPE = np.dtype([("force_n", "f8", 3), ("torque_n_m", "f8", 3), ("point_m", "f8", 3), ("is_released", "?")])
"""Regions that hold control points of NURBS shells: force of the shell on what holds it, torque about the point, the mean of the control
points, and whether the tissue that carried them is gone."""

MARKER_DTYPE = np.dtype([("position_m", "f8", 3), ("body", "u4"), ("is_released", "?")])
"""Where markers are, and in which body."""


def _activities(values: "object") -> Tuple[str, ...]:
    names = scene_pb2.ToolActivity.Name
    return tuple(names(value).replace("TOOL_ACTIVITY_", "").lower() for value in values)  # type: ignore[attr-defined]


@dataclasses.dataclass(frozen=True)
class ToolState:
    """A tool after a step."""

    name: str
    """As in the scene."""
    position_m: np.ndarray
    """[3] of the tip, in W: of the simulated tool."""
    rotation: np.ndarray
    """[4] (w, x, y, z), takes vectors of the tool to W."""
    device_position_m: np.ndarray
    """[3] where it was told to be."""
    force_n: np.ndarray
    """[3] of the tissue on the tool, in W."""
    torque_n_m: np.ndarray
    """[3] about the tip."""
    activities: Tuple[str, ...]
    """What it is doing: "touching", "grasping", "cutting", "blocked", "command_expired"."""
    message: "stream_pb2.ToolState"
    """All the rest: jaw angle, what it holds, how far it was stopped short."""


def _tool_state(name: str, message: "stream_pb2.ToolState") -> ToolState:
    return ToolState(name, vec3(message.pose.position_m), quaternion(message.pose.rotation), vec3(message.device_pose.position_m),
                     vec3(message.force_n), vec3(message.torque_n_m), _activities(message.activities), message)


class Frame:
    """The published state after one step: immutable. Arrays are made when they are asked for; positions are views of the message's bytes."""

    def __init__(self, message: "stream_pb2.Frame", topology: Topology) -> None:
        self.message = message
        """All the rest."""
        self.topology = topology
        """What the bodies are made of at this frame's version."""

    @property
    def step(self) -> int:
        """Steps since the last reset."""
        return int(self.message.step)

    @property
    def time_s(self) -> float:
        """Simulated time since the last reset."""
        return float(self.message.sim_time_s)

    @property
    def state_hash(self) -> int:
        """Of positions and velocities on the device."""
        return int(self.message.state_hash)

    @property
    def dropped(self) -> int:
        """Frames that this reader has missed since its stream began."""
        return int(self.message.dropped)

    @property
    def failure(self) -> str:
        """Why the scene stopped; empty unless it has failed."""
        return str(self.message.failure)

    @property
    def stats(self) -> "stream_pb2.StepStats":
        """Times, energies and counts of the step."""
        return self.message.stats

    def positions(self, body: "int | str" = 0) -> np.ndarray:
        """[n, 3] positions of a body's vertices in W: of the surface, or of all in a stream with the volume. Float32 positions are a
        read-only view of the message; quantised ones are decoded to float64. Errors: NotFound (no such body, a stream without positions)."""
        index = self.topology.index(body) if isinstance(body, str) else body
        message = self.message.bodies[index] if index < len(self.message.bodies) else None
        known = self.topology.bodies[index].vertex_count if index < len(self.topology.bodies) else 0
        if message is None or (known and not message.positions):
            raise NotFound(f"body {body!r}: the stream carries no positions of it")
        if message.HasField("scale_m"):
            numbers = np.frombuffer(message.positions, dtype="<u2").reshape(-1, 3)
            return vec3(message.origin_m) + numbers * vec3(message.scale_m)
        return np.frombuffer(message.positions, dtype="<f4").reshape(-1, 3)

    def pressure_pa(self, body: "int | str" = 0) -> "float | None":
        """What a body with a volume_stiffness_pa presses with, Pa; None of other bodies. Errors: NotFound (no such body)."""
        index = self.topology.index(body) if isinstance(body, str) else body
        if not 0 <= index < len(self.message.bodies):
            raise NotFound(f"no body {body!r}")
        message = self.message.bodies[index]
        return float(message.pressure_pa) if message.HasField("pressure_pa") else None

    @property
    def contacts(self) -> np.ndarray:
        """Contacts of tools and obstacles with bodies, CONTACT_DTYPE."""
        out = np.zeros(len(self.message.contacts), CONTACT_DTYPE)
        for row, contact in zip(out, self.message.contacts):
            tool = OBSTACLE if contact.tool_index == 0xFFFFFFFF else contact.tool_index
            point, normal, force = contact.point_m, contact.normal, contact.force_n
            row["tool"], row["body"], row["separation_m"] = tool, contact.body_index, contact.separation_m
            row["point_m"] = point.x, point.y, point.z
            row["normal"] = normal.x, normal.y, normal.z
            row["force_n"] = force.x, force.y, force.z
        return out

    @property
    def surface_contacts(self) -> np.ndarray:
        """Contacts between and within bodies, SURFACE_CONTACT_DTYPE."""
        out = np.zeros(len(self.message.surface_contacts), SURFACE_CONTACT_DTYPE)
        for row, contact in zip(out, self.message.surface_contacts):
            row["kind"], row["body_a"], row["body_b"] = contact.kind, contact.body_a, contact.body_b
            row["vertices"], row["distance_m"] = list(contact.vertices), contact.distance_m
            for name in ("point_a_m", "point_b_m", "normal", "force_n"):
                row[name] = vec3(getattr(contact, name))
        return out

    @property
    def markers(self) -> np.ndarray:
        """Markers in the order of `topology.markers`, MARKER_DTYPE."""
        out = np.zeros(len(self.message.markers), MARKER_DTYPE)
        for row, marker in zip(out, self.message.markers):
            row["position_m"], row["body"], row["is_released"] = vec3(marker.position_m), marker.body_index, marker.is_released
        return out

    @property
    def joints(self) -> np.ndarray:
        """Joints in the order of `topology.joints`, JOINT_DTYPE."""
        out = np.zeros(len(self.message.joints), JOINT_DTYPE)
        for row, joint in zip(out, self.message.joints):
            for name in ("position", "effort", "gap_m", "gap_rad", "is_broken"):
                row[name] = getattr(joint, name)
            for name in ("force_n", "torque_n_m", "point_m", "point_a_m", "axis"):
                row[name] = vec3(getattr(joint, name))
        return out

    @property
    def supports(self) -> np.ndarray:
        """Regions that hold NURBS shells, in the order of `topology.supports`, SUPPORT_DTYPE."""
        out = np.zeros(len(self.message.supports), SUPPORT_DTYPE)
        for row, support in zip(out, self.message.supports):
            row["is_released"] = support.is_released
            for name in ("force_n", "torque_n_m", "point_m"):
                row[name] = vec3(getattr(support, name))
        return out

    @property
    def stitches(self) -> np.ndarray:
        """[stitches][2][3] both ends of each stitch of a suture that holds, in W [m]: the sewn vertex, and its place on the other surface."""
        return np.array(self.message.stitches_m, np.float32).reshape(-1, 2, 3)

    @property
    def clips(self) -> np.ndarray:
        """[clips][3] the middle of what each clip holds, in W [m]; `message.clips` has their rotation and length."""
        return np.array([vec3(clip.pose.position_m) for clip in self.message.clips]).reshape(-1, 3)

    @property
    def tools(self) -> Dict[str, ToolState]:
        """The tools by name."""
        return {shape.name: _tool_state(shape.name, state) for shape, state in zip(self.topology.tools, self.message.tools)}

    def force(self, tool: str) -> np.ndarray:
        """[3] force of the tissue on a tool, in W. Errors: NotFound (no such tool, a stream without tools)."""
        for shape, state in zip(self.topology.tools, self.message.tools):
            if shape.name == tool:
                return vec3(state.force_n)
        names = [shape.name for shape in self.topology.tools]
        if tool in names:
            raise NotFound(f"tool {tool!r}: the stream carries no tools")
        raise NotFound(f"tool: there is no {tool!r}; the scene has {', '.join(names)}")

    def __repr__(self) -> str:
        return f"<palpate.Frame step {self.step}, {self.time_s:.4g} s, {len(self.message.bodies)} bodies>"


def rotation_matrix(rotation: np.ndarray) -> np.ndarray:
    """[3, 3] of a quaternion (w, x, y, z), which need not be unit but must not be zero."""
    w, x, y, z = np.asarray(rotation, float) / np.linalg.norm(rotation)
    return np.array([[1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
                     [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
                     [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]])


class LocalModel:
    """The contact mechanics around one tool after a step, for loops far faster than the scene (docs/haptics.md)."""

    def __init__(self, message: "haptics_pb2.LocalModel") -> None:
        self.message = message
        """All the rest."""
        constraints = message.constraints
        self.arms_m = np.array([vec3(c.arm_m) for c in constraints]).reshape(-1, 3)
        """[n, 3] contact points in the tool's frame."""
        self.normals = np.array([vec3(c.normal) for c in constraints]).reshape(-1, 3)
        """[n, 3] unit, in W, from tissue to tool."""
        self.rest_penetrations_m = np.array([c.rest_penetration_m for c in constraints])
        """[n] at the pose of the build; negative: still that far away."""
        self.stiffnesses_n_per_m = np.array([c.stiffness_n_per_m for c in constraints])
        """[n] along the normals."""
        self.dampings_n_s_per_m = np.array([c.damping_n_s_per_m for c in constraints])
        """[n] along the normals."""
        self.curvatures_per_m = np.array([_symmetric(c.curvature_per_m) for c in constraints]).reshape(-1, 3, 3)
        """[n, 3, 3] second derivatives of the gaps by the places of the arms, in W; zeros: planes."""
        self._position_m = vec3(message.pose_at_build.position_m)
        # An absent rotation is the identity.
        rotation = message.pose_at_build.rotation
        self._rotation = np.eye(3) if not message.pose_at_build.HasField("rotation") else rotation_matrix(quaternion(rotation))

    @property
    def step(self) -> int:
        """Of the scene."""
        return int(self.message.step)

    @property
    def pose_sequence(self) -> int:
        """Of the newest pose that the step used."""
        return int(self.message.pose_sequence)

    @property
    def force_n(self) -> np.ndarray:
        """[3] on the tool at the pose of the build, as the solver has it."""
        return vec3(self.message.force_n)

    @property
    def activities(self) -> Tuple[str, ...]:
        """What the tool is doing, see ToolState."""
        return _activities(self.message.activities)

    def force_at(self, pose: PoseLike, velocity_m_per_s: Optional[np.ndarray] = None) -> np.ndarray:
        """[3] normal force on the tool at another pose, in W: springs and dampers of the constraints, without friction."""
        message = tool_pose(pose).pose
        if not len(self.normals):
            return np.zeros(3)
        rotation = self._rotation if not message.HasField("rotation") else rotation_matrix(quaternion(message.rotation))
        travel = vec3(message.position_m) - self._position_m + self.arms_m @ (rotation - self._rotation).T
        change, normals = self._follow(travel)
        penetration = self.rest_penetrations_m - change
        force = self.stiffnesses_n_per_m * penetration
        if velocity_m_per_s is not None:
            force = force - self.dampings_n_s_per_m * (normals @ np.asarray(velocity_m_per_s, float))
        force = np.where(penetration > 0, np.maximum(force, 0), 0)
        return force @ normals

    def _follow(self, travel: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        """[n] changes of the gaps and [n, 3] normals after ways [n, 3]: exact for spheres, cylinders and planes (docs/haptics.md)."""
        along = np.einsum("ij,ij->i", self.normals, travel)
        turn = np.einsum("ijk,ik->ij", self.curvatures_per_m, travel)
        q = np.einsum("ij,ij->i", travel, turn)
        most = np.sqrt(np.einsum("ijk,ijk->i", self.curvatures_per_m, self.curvatures_per_m))
        mean = np.where(np.trace(self.curvatures_per_m, axis1=1, axis2=2) > 0, most, -most)
        curved = np.abs(q) > 1e-300
        k = np.where(curved, np.clip(np.einsum("ij,ij->i", turn, turn) / np.where(curved, q, 1), -most, most), mean)
        a = np.maximum(0.05, 1 + k * along)
        root = np.sqrt(a * a + np.einsum("ij,ij->i", turn, turn))
        normals = a[:, None] * self.normals + turn
        return along + q / (a + root), normals / np.linalg.norm(normals, axis=1, keepdims=True)


def _symmetric(values: Sequence[float]) -> np.ndarray:
    """[3, 3] of xx xy xz yy yz zz, or of nothing."""
    xx, xy, xz, yy, yz, zz = values if len(values) else (0.0,) * 6
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


__all__: List[str] = ["CONTACT_DTYPE", "Frame", "JOINT_DTYPE", "LocalModel", "MARKER_DTYPE", "OBSTACLE", "SUPPORT_DTYPE", "SURFACE_CONTACT_DTYPE", "ToolState", "rotation_matrix"]
