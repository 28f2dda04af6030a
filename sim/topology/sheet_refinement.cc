#include "sim/topology/sheet_refinement.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"

namespace palpate::sim {
namespace {

/// Order of edges: by length at rest, then by their vertices, so that no two are equal.
struct EdgeRank {
  double length_sq_m2 = 0;
  uint32_t low = 0, high = 0;
  bool operator<(const EdgeRank& other) const {
    return std::tie(length_sq_m2, low, high) < std::tie(other.length_sq_m2, other.low, other.high);
  }
};

EdgeRank LongestEdge(const SheetMesh& mesh, uint32_t triangle) {
  const auto& v = mesh.TriangleVertices(triangle);
  EdgeRank longest;
  for (size_t k = 0; k < 3; ++k) {
    const uint32_t a = std::min(v[k], v[(k + 1) % 3]);
    const uint32_t b = std::max(v[k], v[(k + 1) % 3]);
    longest = std::max(longest, EdgeRank{(mesh.PositionOf(b) - mesh.PositionOf(a)).squaredNorm(), a, b});
  }
  return longest;
}

/// The edge to bisect first so that the triangle can be bisected at its longest one.
EdgeRank TerminalEdge(const SheetMesh& mesh, uint32_t triangle) {
  for (EdgeRank edge = LongestEdge(mesh, triangle);;) {
    const uint32_t other = mesh.Across(triangle, edge.low, edge.high);
    if (other == kNoSlot) return edge;
    const EdgeRank beyond = LongestEdge(mesh, other);
    if (!(edge < beyond)) return edge;
    triangle = other;
    edge = beyond;
  }
}

/// Splits the triangles at an edge through its middle.
SheetEdit Bisection(const SheetMesh& mesh, const EdgeRank& edge) {
  SheetEdit edit;
  MeshEdit::NewVertex& middle = edit.vertices.emplace_back();
  middle.position_m = (mesh.PositionOf(edge.low) + mesh.PositionOf(edge.high)) / 2;
  middle.sources[0] = {mesh.IdOfVertex(edge.low), 0.5};
  middle.sources[1] = {mesh.IdOfVertex(edge.high), 0.5};
  middle.source_count = 2;
  for (const uint32_t t : mesh.TrianglesAtEdge(edge.low, edge.high)) {
    const TriangleId parent = mesh.IdOfTriangle(t);
    edit.removed.push_back(parent);
    for (const uint32_t end : {edge.high, edge.low}) {  // takes the place of each end in turn
      SheetEdit::NewTriangle child{{}, parent};
      for (size_t c = 0; c < 3; ++c) {
        const uint32_t v = mesh.TriangleVertices(t)[c];
        child.vertices[c] = v == end ? NewVertexId(0) : mesh.IdOfVertex(v);
      }
      edit.triangles.push_back(child);
    }
  }
  return edit;
}

}  // namespace

absl::StatusOr<SheetRefineResult> RefineSheet(SheetMesh* mesh, std::span<const TriangleId> triangles, const SheetRefineOptions& options,
                                              const std::function<bool(TriangleId)>& is_wanted) {
  if (!(options.max_edge_m > 0) || !std::isfinite(options.max_edge_m)) {
    return absl::InvalidArgumentError(absl::StrCat("max_edge_m ", options.max_edge_m, " must be positive and finite"));
  }
  const double limit_sq_m2 = options.max_edge_m * options.max_edge_m;
  SheetRefineResult result;
  std::deque<TriangleId> queue(triangles.begin(), triangles.end());
  absl::flat_hash_set<TriangleId> wanted(triangles.begin(), triangles.end());
  while (!queue.empty()) {
    const uint32_t triangle = mesh->Find(queue.front());
    if (triangle == kNoSlot || !(LongestEdge(*mesh, triangle).length_sq_m2 > limit_sq_m2)) {
      queue.pop_front();
      continue;
    }
    const SheetEdit edit = Bisection(*mesh, TerminalEdge(*mesh, triangle));
    if (mesh->triangle_count() + edit.removed.size() > options.triangle_budget) {
      result.is_refused = true;
      return result;
    }
    PALPATE_RETURN_IF_ERROR(mesh->Apply(edit));
    ++result.bisections;
    for (const SheetDelta::AddedTriangle& added : mesh->delta().added_triangles) {
      if (!wanted.contains(added.parent) || !is_wanted(added.id)) continue;
      wanted.insert(added.id);
      queue.push_back(added.id);
    }
  }
  return result;
}

}  // namespace palpate::sim
