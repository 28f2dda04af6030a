#pragma once

#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include "sim/nurbs/nurbs_object.h"
#include "tests/support/trimmed_sheets.h"

namespace palpate::sim {

using test::CircleTrim;
using test::PolygonTrims;

/// A rectangle in space: u along `du`, v along `dv`, both in [0, 1].
inline NurbsDescription PlaneSurface(const Eigen::Vector3d& corner, const Eigen::Vector3d& du, const Eigen::Vector3d& dv) {
  return {1, 1, {0, 0, 1, 1}, {0, 0, 1, 1}, {corner, corner + dv, corner + du, corner + du + dv}, {}};
}

/// A side of a cylinder along z, u around counter-clockwise in [0, 4], v up in [0, 1].
inline NurbsDescription CylinderSurface(double radius, double height) {
  NurbsDescription side{2, 1, {0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 4}, {0, 0, 1, 1}, {}, {}};
  const NurbsTrimDescription circle = CircleTrim({0, 0}, radius);
  for (size_t i = 0; i < 9; ++i) {
    for (const double z : {0.0, height}) {
      side.control_m.emplace_back(circle.curve.control[i].x(), circle.curve.control[i].y(), z);
      side.weights.push_back(circle.curve.weights[i]);
    }
  }
  return side;
}

/// A square plate of 1 x 1 x `height` about the z axis with a hole of `radius` through it: seven patches, two of them trimmed twice. Edges
/// are not numbered.
inline NurbsObjectDescription DrilledPlate(double radius, double height) {
  NurbsObjectDescription plate{"drilled plate", {}};
  const double h = height;
  const auto add = [&](const char* name, NurbsDescription surface) { plate.patches.push_back({name, std::move(surface), {}}); };
  add("front", PlaneSurface({-0.5, -0.5, 0}, {1, 0, 0}, {0, 0, h}));
  add("right", PlaneSurface({0.5, -0.5, 0}, {0, 1, 0}, {0, 0, h}));
  add("back", PlaneSurface({0.5, 0.5, 0}, {-1, 0, 0}, {0, 0, h}));
  add("left", PlaneSurface({-0.5, 0.5, 0}, {0, -1, 0}, {0, 0, h}));
  const auto square = PolygonTrims({{0, 0}, {1, 0}, {1, 1}, {0, 1}});
  // The hole's wall is seen from inside: u runs clockwise.
  auto wall = CylinderSurface(radius, h);
  const auto reversed = NurbsSurface::Create(wall)->Reversed();
  wall.control_m.clear();
  wall.weights.clear();
  for (const Eigen::Vector4d& p : reversed.control()) {
    wall.control_m.emplace_back(p.hnormalized());
    wall.weights.push_back(p.w());
  }
  add("wall", wall);
  add("lid", PlaneSurface({-0.5, -0.5, h}, {1, 0, 0}, {0, 1, 0}));
  plate.patches.back().loops = {square, {CircleTrim({0.5, 0.5}, radius, true)}};
  // Seen from below: u along y, v along x.
  add("bottom", PlaneSurface({-0.5, -0.5, 0}, {0, 1, 0}, {1, 0, 0}));
  NurbsTrimDescription mirrored = CircleTrim({0.5, 0.5}, radius);
  for (Eigen::Vector2d& p : mirrored.curve.control) p = Eigen::Vector2d(p.y(), p.x());  // runs clockwise
  plate.patches.back().loops = {square, {mirrored}};
  return plate;
}

}  // namespace palpate::sim
