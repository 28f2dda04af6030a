#pragma once

#include <Eigen/Geometry>

#include "sim/world/body_arrays.h"
#include "sim/world/scene_vertices.h"
#include "sim/world/world_body.h"

namespace palpate::sim {

/// Volume within the surface of a body [m^3], positive if its triangles are turned outwards. place_m(slot): where a vertex of the surface
/// is, as Eigen::Vector3d. A sum over the tets from a point of the body to its triangles (divergence theorem), in double.
template <typename PlaceOf>
double EnclosedVolume_m3(const BodyArrays& arrays, const PlaceOf& place_m) {
  double sum_m3 = 0;
  Eigen::Vector3d from = Eigen::Vector3d::Zero();  // on the body, so that few digits are lost
  bool is_first = true;
  for (const auto& triangle : arrays.surface_triangles) {
    if (triangle == kFreeTriangle) continue;
    const Eigen::Vector3d a = place_m(triangle[0]), b = place_m(triangle[1]), c = place_m(triangle[2]);
    if (is_first) from = a;
    is_first = false;
    sum_m3 += (a - from).dot((b - from).cross(c - from)) / 6;
  }
  return sum_m3;
}

/// Of the body at rest: what it keeps where it has a volume_stiffness_pa. `vertices`: of its world.
inline double EnclosedAtRest_m3(const WorldBody& body, const SceneVertices& vertices) {
  const BodyArrays& arrays = *body.arrays();
  return EnclosedVolume_m3(arrays, [&](SurfaceSlot slot) { return vertices.rest_m[body.HandleOf(arrays.surface_vertices[slot])]; });
}

}  // namespace palpate::sim
