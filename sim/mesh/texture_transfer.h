#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/mesh/io_obj.h"
#include "sim/mesh/tet_mesh.h"

namespace palpate::sim {

/// What the triangles of a mesh's boundary have from a textured surface near it.
struct TransferredTexture {
  std::vector<std::array<Eigen::Vector2d, 3>> corners;  ///< [triangle of the boundary] u v of the corners; empty: the surface has none
  std::vector<uint32_t> materials;                      ///< [triangle of the boundary] as TexturedSurface::triangle_materials, or empty
};

/// Each triangle of the boundary belongs to the island that its centroid is nearest to: triangles of the surface that meet in edges with
/// the same coordinates and material on both sides. Its corners take the coordinates of the nearest points of that island, so that there is
/// no seam inside one, and none across. Precondition: the surface has triangles; both in one frame. O((n + m) log m) expected.
TransferredTexture TransferTexture(const TexturedSurface& surface, const TetMesh& mesh, const BoundarySurface& boundary);

}  // namespace palpate::sim
