#pragma once

#include <Eigen/Core>
#include <Eigen/Geometry>

#include "sim/mesh/tet_mesh.h"

namespace palpate::cli {

/// What `palpate mesh info` tells of a mesh.
struct MeshQuality {
  Eigen::AlignedBox3d bounds_m;
  double volume_m3 = 0;
  double min_tet_volume_m3 = 0, max_tet_volume_m3 = 0;
  double min_edge_m = 0, mean_edge_m = 0, max_edge_m = 0;  ///< of the tets' edges, each tet counting its six
  double min_dihedral_deg = 0, max_dihedral_deg = 0;
  double min_radius_ratio = 0, mean_radius_ratio = 0;  ///< 3 * inradius / circumradius: 1 = regular, 0 = flat
};

/// Precondition: sim::ValidateTetMesh. O(tets).
MeshQuality MeasureQuality(const sim::TetMesh& mesh);

}  // namespace palpate::cli
