#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <Eigen/Core>
#include <Eigen/Geometry>

#include "sim/mesh/generators.h"
#include "sim/mesh/tet_mesh.h"
#include "sim/scene/description.h"

// A block whose texture coordinates belong to corners: by a box projection of the place at rest, with seams along all its edges.
namespace palpate::test {

inline constexpr double kTile_m = 0.02;

/// Of a place on a side of the box that faces along `axis`, 0 to 5.
inline std::array<double, 2> Projected(const Eigen::Vector3d& p, int axis) {
  const double sign = axis < 3 ? 1 : -1;
  const double u = axis % 3 == 0 ? p.y() : axis % 3 == 1 ? -p.x() : p.x();
  return {sign * u / kTile_m + 0.3, (axis % 3 == 2 ? p.y() : p.z()) / kTile_m + 0.2};
}

inline int AxisOf(const Eigen::Vector3d& normal) {
  Eigen::Index axis = 0;
  normal.cwiseAbs().maxCoeff(&axis);
  return static_cast<int>(axis) + (normal[axis] < 0 ? 3 : 0);
}

/// A block with a surface zone, whose texture coordinates are Projected of each corner.
inline sim::BodyDescription BlockWithSeams() {
  sim::BodyDescription body;
  body.name = "block";
  body.mesh = *sim::BoxMesh({9, 7, 5}, {0.08, 0.06, 0.04});
  const sim::BoundarySurface surface = sim::ExtractBoundary(body.mesh);
  sim::SurfaceZoneDescription& zone = body.surface_zones.emplace_back();
  zone.name = "half";
  for (const auto& t : surface.triangles) {
    std::array<Eigen::Vector3d, 3> p;
    std::array<uint32_t, 3> corners{};
    for (size_t c = 0; c < 3; ++c) {
      corners[c] = surface.vertices[t[c]];
      p[c] = body.mesh.vertices[corners[c]];
    }
    const int axis = AxisOf((p[1] - p[0]).cross(p[2] - p[0]));
    sim::CornerCoordinates& value = body.texture.corners.emplace_back();
    for (size_t c = 0; c < 3; ++c) {
      const auto uv = Projected(p[c], axis);
      value[c] = {static_cast<float>(uv[0]), static_cast<float>(uv[1])};
    }
    if ((p[0] + p[1] + p[2]).x() > 0) zone.triangles.push_back(corners);
  }
  return body;
}

}  // namespace palpate::test
