#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <Eigen/Core>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "sim/topology/closed_mesh.h"

namespace palpate::sim {

/// Barycentric weights of a point in a tet with these corners, which sum to 1 exactly but for the last bit. All in one frame, m.
/// Precondition: the tet's volume is not 0.
std::array<double, 4> BarycentricWeights(const std::array<Eigen::Vector3d, 4>& corners_m, const Eigen::Vector3d& point_m);

/// The most that a weight may be below 0 for a point that counts as inside: far more than rounding, far less than anybody sees.
inline constexpr double kEmbeddingTolerance = 1e-6;

/// Points that ride in the tets of a mesh: landmarks, points of vessels. A point is given by its place at rest; where it is in the deformed
/// body follows from the weights of its tet's four vertices.
///
/// Guarantees: no edit moves a point in the material: its place at rest never changes, and where its tet is replaced (refinement, incision,
/// copies of vertices) it goes on in the part that holds this place, with weights worked out from it anew, so nothing adds up over many
/// edits. A point is released by exactly the edit that takes its tet out without putting anything in its place.
/// Costs: an edit as much as its tets and the points in them. Deterministic.
class EmbeddedPoints final : public MeshObserver {
 public:
  struct Point {
    TetId tet = kNoTet;                  ///< kNoTet: the point is released or withdrawn
    std::array<double, 4> weights = {};  ///< of the tet's vertices, in their order
    Eigen::Vector3d rest_m = Eigen::Vector3d::Zero();

    template <typename Archive>
    void VisitState(Archive& archive) {
      auto& [of_tet, of_vertices, rest] = *this;
      archive(of_tet, of_vertices, rest);
    }
  };

  /// Attaches itself to the mesh, which must outlive it.
  explicit EmbeddedPoints(ClosedMesh* mesh);
  ~EmbeddedPoints() override;
  EmbeddedPoints(const EmbeddedPoints&) = delete;
  EmbeddedPoints& operator=(const EmbeddedPoints&) = delete;

  /// Embeds a point given by its place at rest. Returns its index, the number of points before. Errors: NotFound (tet), InvalidArgument
  /// (outside the tet by more than kEmbeddingTolerance in a weight).
  absl::StatusOr<uint32_t> Embed(TetId tet, const Eigen::Vector3d& rest_m);
  /// Embeds a point of another mesh, whose tet became `tet` of this one with its vertices in the same order (ClosedMesh::Detach). Returns
  /// its index. Precondition: the tet is alive.
  uint32_t Adopt(const Point& point, TetId tet);
  /// Lets go of a point that goes on elsewhere: it does not count as released. Precondition: it has a tet.
  void Withdraw(uint32_t index);

  size_t size() const { return points_.size(); }
  const Point& point(uint32_t index) const { return points_[index]; }
  /// Points that ride in a component, ascending. O(points).
  std::vector<uint32_t> PointsOf(ComponentId component) const;
  /// Points whose tissue was taken out since the last call, ascending.
  std::vector<uint32_t> TakeReleased();

  /// Of a reader the mesh must have been read before.
  template <typename Archive>
  void VisitState(Archive& archive) {
    [[maybe_unused]] auto& [mesh, points, points_of_tet, candidates, released] = *this;
    archive.Enter("EmbeddedPoints");
    archive(points, points_of_tet, released);
    archive.Check(IsSound(), "a point rides in a tet that is not there");
  }

  void OnTetAdded(const ClosedMesh& mesh, const MeshDelta::AddedTet& tet) override;
  void OnTetRemoved(const ClosedMesh& mesh, TetId tet, const std::array<VertexId, 4>& vertices) override;
  void OnEdited(const ClosedMesh& mesh, const MeshDelta& delta) override;

 private:
  bool IsSound() const;

  // The best home found so far for a point whose tet is replaced.
  struct Candidate {
    TetId tet = kNoTet;
    std::array<double, 4> weights = {};
    double worst = -1e300;
  };
  std::array<double, 4> WeightsIn(uint32_t tet, const Eigen::Vector3d& rest_m) const;

  ClosedMesh* mesh_;
  std::vector<Point> points_;
  absl::flat_hash_map<uint32_t, std::vector<uint32_t>> points_of_tet_;  // by tet slot
  absl::flat_hash_map<uint32_t, Candidate> candidates_;                 // by point, within one edit
  std::vector<uint32_t> released_;
};

}  // namespace palpate::sim
