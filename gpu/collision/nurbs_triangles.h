#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/collision/nurbs_objects.h"

namespace palpate::gpu {

/// Triangles, of a mesh or loose, as an object of NURBS surfaces, so that all queries take them. Triangle t is surface t, of degree 1 x 1:
/// S(u, v) = (1 - u) p0 + u ((1 - v) p1 + v p2). That is the triangle exactly; its first corner is a side of the patch, and S_u x S_v is
/// the normal of p0, p1, p2.
class NurbsTriangles {
 public:
  /// `vertices_m` in the frame of the object. Errors: InvalidArgument naming the triangle (a vertex that is not there), or that there are
  /// none.
  static absl::StatusOr<NurbsTriangles> Create(std::span<const std::array<double, 3>> vertices_m,
                                               std::span<const std::array<uint32_t, 3>> triangles);

  /// As NurbsObjects::Create takes them. They refer to this.
  std::vector<NurbsNet> Nets() const;
  /// As NurbsObjects::SetControl takes them, for vertices that have moved. Error: InvalidArgument (not as many).
  absl::StatusOr<std::vector<double>> Control(std::span<const std::array<double, 3>> vertices_m) const;
  size_t triangle_count() const { return triangles_.size(); }

  /// Shares of the three corners at a place of a surface.
  static std::array<double, 3> Barycentric(const std::array<double, 2>& uv) { return {1 - uv[0], uv[0] * (1 - uv[1]), uv[0] * uv[1]}; }

 private:
  NurbsTriangles() = default;

  size_t vertex_count_ = 0;
  std::vector<std::array<uint32_t, 3>> triangles_;
  std::vector<double> control_;
};

}  // namespace palpate::gpu
