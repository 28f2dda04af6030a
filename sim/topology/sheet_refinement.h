#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "absl/status/statusor.h"
#include "sim/topology/sheet_mesh.h"

namespace palpate::sim {

struct SheetRefineOptions {
  double max_edge_m = 0;       ///< at rest, positive
  size_t triangle_budget = 0;  ///< of the whole mesh, afterwards
};

struct SheetRefineResult {
  size_t bisections = 0;    ///< edges that got a vertex in their middle
  bool is_refused = false;  ///< the budget stopped it; the mesh is as the bisections that fitted left it
};

/// Bisects longest edges of triangles until none of those wanted has an edge longer than max_edge_m. Wanted are `triangles` (ids that are
/// gone count for nothing) and of what they become what `is_wanted` says; what is beside them is bisected as far as edges must fit. A
/// triangle is bisected at its longest edge only, after its neighbour there has none longer (longest-edge propagation, Rivara 1984): so
/// angles stay above half of the smallest one, and it ends. Area and surface at rest are conserved to rounding. Deterministic. Errors:
/// InvalidArgument (max_edge_m), those of SheetMesh::Apply, with the mesh as the last bisection left it.
absl::StatusOr<SheetRefineResult> RefineSheet(SheetMesh* mesh, std::span<const TriangleId> triangles, const SheetRefineOptions& options,
                                              const std::function<bool(TriangleId)>& is_wanted);

}  // namespace palpate::sim
