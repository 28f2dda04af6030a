#pragma once

#include <cstddef>
#include <vector>

#include "sim/mesh/tet_mesh.h"
#include "sim/nurbs/nurbs_grid_tessellation.h"

namespace palpate::sim {

/// Collapses edges that are no longer than `longest_m` and shorter than `share` of the longest edge of the triangles beside them: of two
/// vertices that all but coincide one stays, on a border rather than off it. No part of the mesh moves by more than `longest_m` in one
/// collapse. Borders and what is connected with what stay; so do edges whose collapse would turn a triangle over. `places`: [vertex], they
/// go along. Returns how many edges are gone. Deterministic.
size_t CollapseShortEdges(double longest_m, double share, SurfaceMesh* mesh, std::vector<NurbsGridPlace>* places);

}  // namespace palpate::sim
