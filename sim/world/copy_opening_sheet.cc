// Lips of shells: copies of vertices and their originals, each of which has triangles on one side of it.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "gpu/shared/dynamics_types.h"
#include "sim/world/copy_opening.h"

namespace palpate::sim {
namespace {

using Eigen::Vector3d;

constexpr double kOpenShare = 0.6;  // of half the gap of lips, as for tissue
constexpr double kLeastArea = 0.5;  // what a triangle at a vertex that is drawn back keeps, seen along its normal
constexpr int kHalvings = 8;

}  // namespace

/// Whether each triangle around a vertex keeps its side and half of its area if the vertex goes there.
bool CopyOpening::KeepsArea(VertexHandle handle, const Vector3d& to_m, std::span<const SceneSurface::Triangle> fan) const {
  return std::all_of(fan.begin(), fan.end(), [&](const SceneSurface::Triangle& own) {
    const Vector3d a = surface_.PositionOf(own[1]);
    const Vector3d b = surface_.PositionOf(own[2]);
    const Vector3d from = surface_.PositionOf(handle);
    const Vector3d before = (a - from).cross(b - from);
    return (a - to_m).cross(b - to_m).dot(before) >= kLeastArea * before.squaredNorm();
  });
}

/// Towards the triangles around a vertex, at the positions that `at` says; zero where they lie all around.
template <typename At>
Vector3d CopyOpening::TowardsFan(std::span<const SceneSurface::Triangle> fan, const At& at) {
  Vector3d sum = Vector3d::Zero();
  for (const SceneSurface::Triangle& own : fan) {
    const Vector3d a = (at(own[1]) - at(own[0])).normalized();
    const Vector3d b = (at(own[2]) - at(own[0])).normalized();
    const double angle = std::atan2(a.cross(b).norm(), a.dot(b));
    if ((a + b).norm() > 0) sum += angle * (a + b).normalized();
  }
  return sum.norm() > 1e-9 ? Vector3d(sum.normalized()) : Vector3d(Vector3d::Zero());
}

/// A copy goes back into its own part of the sheet, by as much of the way as leaves its triangles in place and passes through nothing.
void CopyOpening::OpenSheet(VertexHandle handle) {
  const WorldBody& body = *bodies_[vertices_.body[handle]];
  const double back_m = kOpenShare * PALPATE_LIP_SHARE * (margin_m_ + body.zones().LargestThickness());
  std::vector<SceneSurface::Triangle> fan;
  std::vector<SceneSurface::Triangle> near;
  ListAround(handle, back_m, &fan, &near);
  const auto now = [&](VertexHandle v) { return surface_.PositionOf(v); };
  std::vector<Vector3d> directions = {TowardsFan(fan, now)};
  for (const SceneSurface::Triangle& own : fan) directions.push_back((now(own[1]) + now(own[2])) / 2 - now(handle));
  for (int k = 0; k < 27; ++k) directions.emplace_back(k % 3 - 1, k / 3 % 3 - 1, k / 9 - 1);
  const Vector3d from = now(handle);
  double way_m = back_m;
  for (int halving = 0; halving < kHalvings; ++halving, way_m /= 2) {
    for (const Vector3d& direction : directions) {
      const Vector3d free = AlongFreeAxes(handle, direction);
      if (!(free.norm() > 1e-9)) continue;
      const Vector3d to = (from + way_m * free.normalized()).cast<float>().cast<double>();
      if (!KeepsArea(handle, to, fan) || PassesThrough(handle, to, fan, near)) continue;
      MoveCopy(handle, to);
      halving = kHalvings;
      break;
    }
  }
  // A driven vertex goes where its place at rest is taken: there too the two must differ.
  if (vertices_.driven[handle] == kNoSlot) return;
  vertices_.rest_m[handle] += back_m * TowardsFan(fan, [&](VertexHandle v) { return vertices_.rest_m[v]; });
  vertices_.changed.push_back(handle);
}

}  // namespace palpate::sim
