#include "sim/world/sheet_tally.h"

#include <algorithm>
#include <array>

namespace palpate::sim {

void SheetTally::OnEdited(const SheetDelta& delta, const std::function<double(TetZoneId)>& mass_kg_per_m2, const SheetMesh& mesh) {
  for (const MeshDelta::AddedVertex& vertex : delta.added_vertices) cells_.OnVertexAdded(vertex.id);
  for (const SheetDelta::AddedTriangle& triangle : delta.added_triangles) {
    const uint32_t slot = SlotOf(triangle.id);
    cells_.OnAdded(triangle.id, triangle.parent, mass_kg_per_m2(mesh.MaterialZoneOf(slot)) * mesh.RestArea(slot));
  }
  for (const SheetDelta::RemovedTriangle& triangle : delta.removed_triangles) {
    cells_.OnRemoved(triangle.id, mass_kg_per_m2(triangle.material) * triangle.area_m2);
  }
  for (const VertexId vertex : delta.removed_vertices) cells_.OnVertexRemoved(vertex);
}

/// At rest.
void SheetTally::JudgeAdded(const SheetMesh& mesh, uint32_t slot) {
  const auto& v = mesh.TriangleVertices(slot);
  const std::array<Eigen::Vector3d, 3> x = {mesh.PositionOf(v[0]), mesh.PositionOf(v[1]), mesh.PositionOf(v[2])};
  const std::array<double, 3> edges_m = {(x[1] - x[0]).norm(), (x[2] - x[1]).norm(), (x[0] - x[2]).norm()};
  cells_.Judge(TriangleMeanRatio(x), *std::min_element(edges_m.begin(), edges_m.end()) / *std::max_element(edges_m.begin(), edges_m.end()));
}

void SheetTally::OnDetached(const SheetMesh& piece, uint32_t body, const SheetMesh::DetachedPiece& from) {
  MovedTissue& moved = cells_.AddPiece(body);
  for (uint32_t v = 0; v < from.source_vertices.size(); ++v) moved.vertices.emplace_back(from.source_vertices[v], piece.IdOfVertex(v));
  for (uint32_t t = 0; t < from.source_triangles.size(); ++t) {
    moved.triangles.emplace_back(from.source_triangles[t], piece.IdOfTriangle(t));
    if (cells_.IsAdded(from.source_triangles[t])) JudgeAdded(piece, t);
  }
}

EditOutcome SheetTally::Finish(const SheetMesh& mesh) {
  return cells_.Finish([&](TriangleId triangle) {
    if (const uint32_t slot = mesh.Find(triangle); slot != kNoSlot) JudgeAdded(mesh, slot);
  });
}

}  // namespace palpate::sim
