#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include <Eigen/Core>
#include <Eigen/Geometry>

#include "absl/status/statusor.h"
#include "sim/mesh/isosurface_stuffing.h"
#include "sim/mesh/tet_mesh.h"

namespace palpate::sim {

/// The point of triangle a b c closest to `x_m`; all in one frame, m.
Eigen::Vector3d ClosestOnTriangle(const Eigen::Vector3d& x_m, const Eigen::Vector3d& a_m, const Eigen::Vector3d& b_m,
                                  const Eigen::Vector3d& c_m);

/// Where a distance gets its sign from.
enum class SideRule {
  /// The angle-weighted pseudo-normal of the closest feature (Baerentzen and Aanaes, "Signed Distance Computation Using the Angle Weighted
  /// Pseudonormal", 2005): right for every surface that does not meet itself.
  kPseudoNormal,
  /// Inside is where the winding number is positive: right for every closed surface, also for one that passes through itself; then the
  /// absolute value is the distance to the nearest triangle, be it on the outside or not. Twice as slow.
  kWindingNumber,
};

/// Signed distance to a closed, consistently oriented surface (CheckClosedSurface): exact distance over a bounding volume hierarchy.
/// Immutable; queries from several threads are safe.
class SignedDistance {
 public:
  /// Copies the surface. Precondition: CheckClosedSurface(surface) is OK, with self-intersections only for kWindingNumber. O(n log^2 n).
  explicit SignedDistance(const SurfaceMesh& surface, SideRule rule = SideRule::kPseudoNormal);

  /// Negative inside, positive outside, 0 on the surface. [m]
  double operator()(const Eigen::Vector3d& x_m) const;

  /// The point of the surface closest to `x_m`, in the same frame, [m], and the triangle that it lies on. The surface need not be closed
  /// for this. Precondition: there is a triangle.
  struct Nearest {
    Eigen::Vector3d point_m;
    uint32_t triangle = 0;
  };
  Nearest NearestTo(const Eigen::Vector3d& x_m) const;

  /// The point of the surface closest to `x_m`, in the same frame. [m]
  Eigen::Vector3d ClosestPoint(const Eigen::Vector3d& x_m) const;

  /// How often the surface runs round `x_m`, for a point that is not on it: the signed crossings of a ray, each decided exactly.
  int WindingNumber(const Eigen::Vector3d& x_m) const;

 private:
  struct Node {
    Eigen::AlignedBox3d box;
    uint32_t first = 0;  ///< leaf: first slot in order_; inner: index of the right child (the left one follows the node)
    uint32_t count = 0;  ///< leaf: triangle count; inner: 0
  };
  struct Hit {
    double dist_sq_m2;
    Eigen::Vector3d point;
    uint32_t triangle;
    int feature;  ///< 0..2 vertex, 3..5 edge (i, i+1), 6 face
  };

  void Build(uint32_t first, uint32_t count, const std::vector<Eigen::Vector3d>& centroids);
  Hit Closest(const Eigen::Vector3d& x) const;

  /// The signed crossings of the segment from x to `end`, which lies outside; nullopt if it meets a vertex, an edge or the plane of a
  /// triangle it runs in.
  std::optional<int> Crossings(const Eigen::Vector3d& x, const Eigen::Vector3d& end) const;

  SideRule rule_;
  SurfaceMesh surface_;
  std::vector<Eigen::Vector3d> face_normals_;                 ///< [triangle_count] unit
  std::vector<std::array<Eigen::Vector3d, 3>> edge_normals_;  ///< [triangle_count] sum of the two faces' unit normals, edge (i, i+1)
  std::vector<Eigen::Vector3d> vertex_normals_;               ///< [vertex_count] angle-weighted
  std::vector<uint32_t> order_;                               ///< triangles in leaf order
  std::vector<Node> nodes_;
};

/// Fills a closed surface with tets: StuffIsosurface of its signed distance; `options.is_distance` is implied.
/// Errors: those of CheckClosedSurface (open, self-intersecting or inconsistently oriented, with where) and of StuffIsosurface;
/// InvalidArgument if the surface is oriented inwards (encloses a negative volume) or the edge length is too coarse to catch any of it.
/// `max_self_intersections` is that of CheckClosedSurface; above 0 the side is that of the winding number, so overlaps become one solid.
absl::StatusOr<TetMesh> MeshSurface(const SurfaceMesh& surface, const StuffingOptions& options, uint64_t max_self_intersections = 0);

}  // namespace palpate::sim
