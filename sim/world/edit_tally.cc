#include "sim/world/edit_tally.h"

#include "sim/topology/quality.h"

namespace palpate::sim {

void EditTally::OnTetAdded(const ClosedMesh& mesh, const MeshDelta::AddedTet& tet, double density_kg_per_m3) {
  cells_.OnAdded(tet.id, tet.parent, density_kg_per_m3 * mesh.RestVolume(SlotOf(tet.id)));
}

void EditTally::OnTetRemoved(const ClosedMesh& mesh, TetId tet, const std::array<VertexId, 4>& vertices, double density_kg_per_m3) {
  std::array<Eigen::Vector3d, 4> x;
  for (size_t c = 0; c < 4; ++c) x[c] = mesh.PositionOf(SlotOf(vertices[c]));
  const double volume_m3 = (x[1] - x[0]).cross(x[2] - x[0]).dot(x[3] - x[0]) / 6;
  cells_.OnRemoved(tet, density_kg_per_m3 * volume_m3);
}

// Of a tet that this edit has added, at rest.
void EditTally::JudgeAdded(const ClosedMesh& mesh, uint32_t slot) {
  const auto& v = mesh.TetVertices(slot);
  const std::array<Eigen::Vector3d, 4> x = {mesh.PositionOf(v[0]), mesh.PositionOf(v[1]), mesh.PositionOf(v[2]), mesh.PositionOf(v[3])};
  cells_.Judge(MeanRatio(x), EdgeRatio(x));
}

void EditTally::OnDetached(const ClosedMesh& piece, uint32_t body, const ClosedMesh::DetachedPiece& from) {
  MovedTissue& moved = cells_.AddPiece(body);
  for (uint32_t v = 0; v < from.source_vertices.size(); ++v) moved.vertices.emplace_back(from.source_vertices[v], piece.IdOfVertex(v));
  for (uint32_t t = 0; t < from.source_tets.size(); ++t) {
    moved.tets.emplace_back(from.source_tets[t], piece.IdOfTet(t));
    if (cells_.IsAdded(from.source_tets[t])) JudgeAdded(piece, t);
  }
}

EditOutcome EditTally::Finish(const ClosedMesh& mesh) {
  return cells_.Finish([&](TetId tet) {
    if (const uint32_t slot = mesh.Find(tet); slot != kNoSlot) JudgeAdded(mesh, slot);
  });
}

}  // namespace palpate::sim
