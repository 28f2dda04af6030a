#include "sim/world/stitches.h"

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_set>
#include <utility>

#include <Eigen/QR>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/mesh/signed_distance.h"

namespace palpate::sim {
namespace {

using Eigen::Vector3d;

struct Nearest {
  std::array<VertexHandle, 3> corners{};
  Vector3d point_m = Vector3d::Zero();
  double distance_m = std::numeric_limits<double>::infinity();
};

Nearest NearestTriangle(const WorldBody& body, const SceneVertices& vertices, const Vector3d& point_m) {
  Nearest nearest;
  const BodyArrays& arrays = *body.arrays();
  for (const auto& triangle : arrays.surface_triangles) {
    if (triangle == kFreeTriangle) continue;
    std::array<VertexHandle, 3> corners{};
    for (size_t c = 0; c < 3; ++c) corners[c] = body.HandleOf(arrays.surface_vertices[triangle[c]]);
    const Vector3d at = ClosestOnTriangle(point_m, vertices.rest_m[corners[0]], vertices.rest_m[corners[1]], vertices.rest_m[corners[2]]);
    if (const double distance_m = (at - point_m).norm(); distance_m < nearest.distance_m) nearest = {corners, at, distance_m};
  }
  return nearest;
}

/// Shares of the corners of a triangle that have this point of it as their mean.
std::array<double, 3> SharesOf(const std::array<VertexHandle, 3>& corners, const Vector3d& point_m, const SceneVertices& vertices) {
  const Vector3d& a = vertices.rest_m[corners[0]];
  Eigen::Matrix<double, 3, 2> sides;
  sides << vertices.rest_m[corners[1]] - a, vertices.rest_m[corners[2]] - a;
  const Eigen::Vector2d shares = sides.colPivHouseholderQr().solve(point_m - a);
  return {1 - shares.sum(), shares[0], shares[1]};
}

Clip Stitch(VertexHandle vertex, const Nearest& nearest, const SceneVertices& vertices) {
  const std::array<VertexHandle, 3>& corners = nearest.corners;
  Clip clip;
  clip.is_stitch = true;
  clip.foot = SharesOf(corners, nearest.point_m, vertices);
  std::vector<VertexHandle> handles = {vertex};
  handles.insert(handles.end(), corners.begin(), corners.end());
  Vector3d center_m = Vector3d::Zero();
  for (const VertexHandle handle : handles) center_m += vertices.rest_m[handle] / static_cast<double>(handles.size());
  for (const VertexHandle handle : handles) {
    HeldVertex held;
    held.handle = handle;
    held.rest_m = vertices.rest_m[handle];
    held.target_m = held.rest_m - center_m;
    clip.held.push_back(held);
  }
  return clip;
}

}  // namespace

absl::StatusOr<std::vector<Clip>> MakeStitches(std::span<const SutureDescription> sutures,
                                               const std::vector<std::unique_ptr<WorldBody>>& bodies, const SceneVertices& vertices) {
  std::vector<Clip> clips;
  for (size_t i = 0; i < sutures.size(); ++i) {
    const SutureDescription& suture = sutures[i];
    const WorldBody& a = *bodies[suture.body_a];
    const WorldBody& b = *bodies[suture.body_b];
    const size_t before = clips.size();
    const auto& surface = a.arrays()->surface_vertices.values();
    const std::unordered_set<uint32_t> on_surface(surface.begin(), surface.end());
    for (const uint32_t v : suture.vertices) {
      if (!on_surface.contains(v)) continue;
      const VertexHandle handle = a.HandleOf(v);
      const Nearest nearest = NearestTriangle(b, vertices, vertices.rest_m[handle]);
      if (nearest.distance_m > suture.reach_m) {
        return absl::InvalidArgumentError(
            absl::StrFormat("sutures[%d]: vertex %d of %s is %.1f mm from the surface of %s, and reach_m is %.4g", i, v, a.name(),
                            1e3 * nearest.distance_m, b.name(), suture.reach_m));
      }
      clips.push_back(Stitch(handle, nearest, vertices));
    }
    if (clips.size() == before)
      return absl::InvalidArgumentError(absl::StrCat("sutures[", i, "]: no vertex of the region is on the surface of ", a.name()));
  }
  return clips;
}

}  // namespace palpate::sim
