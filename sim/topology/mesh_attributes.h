#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <Eigen/Core>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "sim/topology/closed_mesh.h"

namespace palpate::sim {

/// Mechanical properties of a mesh that follow its edits: what a solver keeps for each vertex and tet, and points that ride in the tets
/// (vertices of vessels, markers).
///
/// Guarantees: refinement and copies of vertices conserve total mass and momentum to rounding (masses are lumped by quarter tets and new
/// velocities interpolated linearly, which integrates a linear velocity exactly) and move no embedded point; removal takes out exactly the
/// mass of the removed tets.
class MeshAttributes : public MeshObserver {
 public:
  struct Vertex {
    double mass_kg = 0;
    Eigen::Vector3d position_m = Eigen::Vector3d::Zero();  ///< now, W
    Eigen::Vector3d velocity_m_per_s = Eigen::Vector3d::Zero();
  };
  struct EmbeddedPoint {
    TetId tet = kNoTet;                  ///< kNoTet: its tet was removed, the point is free
    std::array<double, 4> weights = {};  ///< barycentric, of the tet's vertices
    Eigen::Vector3d rest_m = Eigen::Vector3d::Zero();
  };

  /// At rest, without velocity. Attaches itself to the mesh, which must outlive it.
  MeshAttributes(ClosedMesh* mesh, double density_kg_per_m3);
  ~MeshAttributes() override;
  MeshAttributes(const MeshAttributes&) = delete;
  MeshAttributes& operator=(const MeshAttributes&) = delete;

  Vertex& vertex(uint32_t slot) { return vertices_[slot]; }
  const Vertex& vertex(uint32_t slot) const { return vertices_[slot]; }
  double DensityOf(uint32_t tet) const { return density_[tet]; }  ///< kg/m^3
  /// Changes a tet's density; the masses of its vertices follow.
  void SetDensity(uint32_t tet, double density_kg_per_m3);

  /// Embeds a point given by its position at rest. Returns its index. Errors: NotFound (tet), InvalidArgument (outside the tet by more than
  /// 1e-6 in a weight).
  absl::StatusOr<uint32_t> Embed(TetId tet, const Eigen::Vector3d& rest_m);
  const EmbeddedPoint& point(uint32_t index) const { return points_[index]; }
  /// Where an embedded point is now. Precondition: its tet is not kNoTet.
  Eigen::Vector3d PointPosition(uint32_t index) const;
  /// Points whose tets were removed by the last edit.
  const std::vector<uint32_t>& released_points() const { return released_; }

  double TotalMass() const;
  Eigen::Vector3d Momentum() const;  ///< kg m/s

  void OnVertexAdded(const ClosedMesh& mesh, const MeshDelta::AddedVertex& vertex) override;
  void OnTetAdded(const ClosedMesh& mesh, const MeshDelta::AddedTet& tet) override;
  void OnTetRemoved(const ClosedMesh& mesh, TetId tet, const std::array<VertexId, 4>& vertices) override;
  void OnVertexRemoved(const ClosedMesh& mesh, VertexId vertex) override;
  void OnEdited(const ClosedMesh& mesh, const MeshDelta& delta) override;

 private:
  // The best home found so far for a point whose tet was replaced.
  struct Candidate {
    TetId tet = kNoTet;
    std::array<double, 4> weights = {};
    double worst = -1e300;
  };
  std::array<double, 4> WeightsIn(const std::array<uint32_t, 4>& vertices, const Eigen::Vector3d& rest_m) const;
  double VolumeOf(const std::array<uint32_t, 4>& vertices) const;

  ClosedMesh* mesh_;
  std::vector<Vertex> vertices_;  // [vertex slot]
  std::vector<double> density_;   // [tet slot]
  std::vector<EmbeddedPoint> points_;
  absl::flat_hash_map<uint32_t, std::vector<uint32_t>> points_of_tet_;  // by tet slot
  absl::flat_hash_map<uint32_t, Candidate> candidates_;                 // by point, within one edit
  std::vector<uint32_t> released_;
  bool is_released_stale_ = false;
};

}  // namespace palpate::sim
