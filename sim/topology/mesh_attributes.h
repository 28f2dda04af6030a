#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <Eigen/Core>

#include "sim/topology/closed_mesh.h"
#include "sim/topology/embedded_points.h"

namespace palpate::sim {

/// Mechanical properties of a mesh that follow its edits: what a solver keeps for each vertex and tet, with points that ride in the tets. A
/// reference for tests of edits: a running world keeps the same in its own arrays (WorldBody), but for the masses, which the solver lumps.
///
/// Guarantees: refinement and copies of vertices conserve total mass and momentum to rounding (masses are lumped by quarter tets and new
/// velocities interpolated linearly, which integrates a linear velocity exactly); removal takes out exactly the mass of the removed tets.
/// Those of embedded points: EmbeddedPoints.
class MeshAttributes : public MeshObserver {
 public:
  struct Vertex {
    double mass_kg = 0;
    Eigen::Vector3d position_m = Eigen::Vector3d::Zero();  ///< now, W
    Eigen::Vector3d velocity_m_per_s = Eigen::Vector3d::Zero();
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

  EmbeddedPoints& points() { return points_; }
  const EmbeddedPoints& points() const { return points_; }
  /// Where an embedded point is now. Precondition: its tet is not kNoTet.
  Eigen::Vector3d PointPosition(uint32_t index) const;

  double TotalMass() const;
  Eigen::Vector3d Momentum() const;  ///< kg m/s

  void OnVertexAdded(const ClosedMesh& mesh, const MeshDelta::AddedVertex& vertex) override;
  void OnTetAdded(const ClosedMesh& mesh, const MeshDelta::AddedTet& tet) override;
  void OnTetRemoved(const ClosedMesh& mesh, TetId tet, const std::array<VertexId, 4>& vertices) override;
  void OnVertexRemoved(const ClosedMesh& mesh, VertexId vertex) override;

 private:
  double VolumeOf(const std::array<uint32_t, 4>& vertices) const;

  ClosedMesh* mesh_;
  std::vector<Vertex> vertices_;  // [vertex slot]
  std::vector<double> density_;   // [tet slot]
  EmbeddedPoints points_;
};

}  // namespace palpate::sim
