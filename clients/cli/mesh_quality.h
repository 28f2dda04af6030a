#pragma once

#include <array>

#include <Eigen/Core>
#include <Eigen/Geometry>

#include "sim/mesh/tet_mesh.h"
#include "sim/topology/quality.h"

namespace palpate::cli {

/// One of the shape measures of sim::TetQuality over a mesh: 1 = regular, 0 = flat.
struct ShapeMeasure {
  const char* name;
  double sim::TetQuality::*member;
  double min = 1, mean = 0;
};

/// What `palpate mesh info` tells of a mesh.
struct MeshQuality {
  Eigen::AlignedBox3d bounds_m;
  double volume_m3 = 0;
  double min_tet_volume_m3 = 0, max_tet_volume_m3 = 0;
  double min_edge_m = 0, mean_edge_m = 0, max_edge_m = 0;  ///< of the tets' edges, each tet counting its six
  double min_dihedral_deg = 0, max_dihedral_deg = 0;
  std::array<ShapeMeasure, 6> shape = {{{"radius_ratio", &sim::TetQuality::radius_ratio},
                                        {"mean_ratio", &sim::TetQuality::mean_ratio},
                                        {"solid_angle", &sim::TetQuality::min_solid_angle},
                                        {"dihedral", &sim::TetQuality::min_dihedral},
                                        {"edge_ratio", &sim::TetQuality::edge_ratio},
                                        {"inradius_per_edge", &sim::TetQuality::inradius_per_edge}}};
};

/// Precondition: sim::ValidateTetMesh. O(tets).
MeshQuality MeasureQuality(const sim::TetMesh& mesh);

}  // namespace palpate::cli
