#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <Eigen/Core>

#include "sim/mesh/tet_mesh.h"

namespace palpate::sim {

/// How far a tet is from the mesher's bounds on dihedral angles: its smallest one, or the largest one's supplement on a scale that makes
/// both bounds equally bad. [radians] A tet of no or negative volume: -1. `x`: corners in the order of TetMesh.
double BoundQuality(const std::array<Eigen::Vector3d, 4>& x);
inline double BoundQuality(const TetMesh& mesh, const std::array<uint32_t, 4>& tet) {
  return BoundQuality({mesh.vertices[tet[0]], mesh.vertices[tet[1]], mesh.vertices[tet[2]], mesh.vertices[tet[3]]});
}

/// Makes the boundary a closed 2-manifold in its connectivity. Pieces that only touch in a vertex get vertices of their own at the same
/// place, appended; where pieces are also joined otherwise, the fewest tets are dropped. Only vertices with `suspect` set (a value each,
/// 0 or 1; extended and changed) are looked at: it must be set wherever the boundary may pinch. `labels`: null, or a value for each tet
/// that stays with it. Vertices that lost all their tets stay.
void MakeManifold(TetMesh* mesh, std::vector<uint8_t>* suspect, std::vector<uint32_t>* labels);

}  // namespace palpate::sim
