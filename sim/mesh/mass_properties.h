#pragma once

#include <Eigen/Core>

#include "sim/mesh/tet_mesh.h"

namespace palpate::sim {

/// What rigid motion depends on.
struct MassProperties {
  double mass_kg = 0;
  Eigen::Vector3d center_m{0, 0, 0};                        ///< of mass, frame of the mesh
  Eigen::Matrix3d inertia_kg_m2 = Eigen::Matrix3d::Zero();  ///< about the centre of mass, axes of the mesh's frame
};

/// Of a homogeneous body that fills the mesh: exact integrals over the tets. Precondition: ValidateTetMesh, density positive. O(tets).
MassProperties ComputeMassProperties(const TetMesh& mesh, double density_kg_per_m3);

}  // namespace palpate::sim
