#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <Eigen/Core>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "sim/topology/sheet_mesh.h"

namespace palpate::sim {

/// Points that ride in the triangles of a sheet, as EmbeddedPoints does in tets. A point is given by its place at rest; where it is in the
/// deformed sheet follows from the weights of its triangle's three vertices.
///
/// Guarantees: no edit moves a point in the material: its place at rest never changes. Where its triangle is replaced it goes on in the
/// part that holds this place best, with weights worked out from it anew. A point is released by exactly the edit that takes its triangle
/// out without putting anything in its place.
/// Costs: an edit as much as its triangles and the points in them. Deterministic.
class SheetPoints {
 public:
  struct Point {
    TriangleId triangle = kNoTriangle;   ///< kNoTriangle: the point is released or withdrawn
    std::array<double, 3> weights = {};  ///< of the triangle's vertices, in their order
    Eigen::Vector3d rest_m = Eigen::Vector3d::Zero();

    template <typename Archive>
    void VisitState(Archive& archive) {
      auto& [of_triangle, of_vertices, rest] = *this;
      archive(of_triangle, of_vertices, rest);
    }
  };

  /// `mesh` outlives this, and whoever observes it calls OnEdited.
  explicit SheetPoints(const SheetMesh* mesh) : mesh_(mesh) {}

  /// Embeds a point given by its place at rest, which is taken onto the triangle's plane. Returns its index, the number of points before.
  /// Errors: NotFound (triangle), InvalidArgument (beside the triangle by more than 1e-6 in a weight).
  absl::StatusOr<uint32_t> Embed(TriangleId triangle, const Eigen::Vector3d& rest_m);
  /// Embeds a point of another sheet, whose triangle became `triangle` of this one with its vertices in the same order (SheetMesh::Detach).
  /// Returns its index. Precondition: the triangle is alive.
  uint32_t Adopt(const Point& point, TriangleId triangle);
  /// Lets go of a point that goes on elsewhere: it does not count as released. Precondition: it has a triangle.
  void Withdraw(uint32_t index);

  size_t size() const { return points_.size(); }
  const Point& point(uint32_t index) const { return points_[index]; }
  /// Points that ride in a component, ascending. O(points).
  std::vector<uint32_t> PointsOf(ComponentId component) const;
  /// Points whose triangle was taken out since the last call, ascending.
  std::vector<uint32_t> TakeReleased();

  void OnEdited(const SheetDelta& delta);

  /// Of a reader the mesh must have been read before.
  template <typename Archive>
  void VisitState(Archive& archive) {
    [[maybe_unused]] auto& [mesh, points, points_of_triangle, released] = *this;
    archive.Enter("SheetPoints");
    archive(points, points_of_triangle, released);
    archive.Check(IsSound(), "a point rides in a triangle that is not there");
  }

 private:
  std::array<double, 3> WeightsIn(uint32_t triangle, const Eigen::Vector3d& rest_m) const;
  bool IsSound() const;

  const SheetMesh* mesh_;
  std::vector<Point> points_;
  absl::flat_hash_map<uint32_t, std::vector<uint32_t>> points_of_triangle_;  // by slot
  std::vector<uint32_t> released_;
};

}  // namespace palpate::sim
