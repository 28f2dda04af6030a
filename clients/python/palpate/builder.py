"""Scenes in a few calls."""
from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Sequence

import numpy as np

from ._convert import fill, numbers
from .errors import FailedPrecondition
from .v1 import scene_pb2


class SceneBuilder:
    """Makes a SceneSpec; methods return the builder. Keyword arguments are the fields of the messages in proto/palpate/v1/scene.proto;
    vectors may be sequences, enums their names without prefix. Errors: InvalidArgument naming the field."""

    def __init__(self, name: str = "scene", **fields: Any) -> None:
        self._spec = scene_pb2.SceneSpec()
        fill(self._spec, {"name": name, **fields})

    def solver(self, **fields: Any) -> "SceneBuilder":
        """Fields of SolverSpec, such as iterations."""
        fill(self._spec.solver, fields, "solver")
        return self

    def contact(self, **fields: Any) -> "SceneBuilder":
        """Fields of ContactSpec, such as margin_m and friction."""
        fill(self._spec.contact, fields, "contact")
        return self

    def _body(self, name: str, geometry: Mapping[str, Any], material: Optional[Mapping[str, Any]], fields: Mapping[str, Any]) -> "SceneBuilder":
        path = f"bodies[{len(self._spec.bodies)}]"
        values: Dict[str, Any] = {"name": name, **geometry, **fields}
        if material is not None:
            values["material"] = material
        fill(self._spec.bodies.add(), values, path)
        return self

    def body(self, name: str, shape: str, size: Optional[Mapping[str, Any]] = None, *, edge_length_m: Optional[float] = None,
             material: Optional[Mapping[str, Any]] = None, **fields: Any) -> "SceneBuilder":
        """A body of the server's mesher: `shape` is liver, torus, slab, sphere, kidney, knot or sheet, `size` holds its fields."""
        generator: Dict[str, Any] = {shape: size or {}, **({} if edge_length_m is None else {"edge_length_m": edge_length_m})}
        return self._body(name, {"generator": generator}, material, fields)

    def mesh(self, name: str, vertices_m: np.ndarray, tets: np.ndarray, *, material: Optional[Mapping[str, Any]] = None,
             **fields: Any) -> "SceneBuilder":
        """A body of arrays: [n, 3] vertices and [m, 4] indices of positively oriented tets."""
        data = {"vertices_m": numbers(vertices_m, "vertices_m").ravel(), "tets": np.asarray(tets).ravel()}
        return self._body(name, {"mesh": data}, material, fields)

    def fixed_below(self, z_m: float) -> "SceneBuilder":
        """Holds the vertices of the newest body whose place at rest is below a height, in W."""
        if not self._spec.bodies:
            raise FailedPrecondition("fixed_below: there is no body yet")
        self._spec.bodies[-1].fixed.add(box=scene_pb2.Box(min_m=scene_pb2.Vec3(x=-100, y=-100, z=-100), max_m=scene_pb2.Vec3(x=100, y=100, z=z_m)))
        return self

    def plane(self, name: str = "table", point_m: Sequence[float] = (0, 0, 0), normal: Sequence[float] = (0, 0, 1)) -> "SceneBuilder":
        """An obstacle; solid on the side that the normal leaves."""
        fill(self._spec.obstacles.add(), {"name": name, "plane": {"point_m": point_m, "normal": normal}}, f"obstacles[{len(self._spec.obstacles)}]")
        return self

    def tool(self, name: str, position_m: Sequence[float], **fields: Any) -> "SceneBuilder":
        """A tool at its resting place; `fields` of ToolSpec, such as radius_m, drive, instrument."""
        path = f"tools[{len(self._spec.tools)}]"
        fill(self._spec.tools.add(), {"name": name, "rest_pose": {"position_m": position_m}, **fields}, path)
        return self

    def build(self) -> "scene_pb2.SceneSpec":
        """A copy of the spec so far."""
        out = scene_pb2.SceneSpec()
        out.CopyFrom(self._spec)
        return out
