#include "sim/world/edit_tally.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/topology/quality.h"

namespace palpate::sim {

void EditTally::Begin() {
  outcome_ = {};
  touched_mass_kg_ = 0;
  first_parent_.clear();
  added_vertices_.clear();
}

void EditTally::OnVertexRemoved(VertexId vertex) {
  const auto added = std::find(added_vertices_.begin(), added_vertices_.end(), vertex);
  if (added == added_vertices_.end()) {
    outcome_.removed_vertices.push_back(vertex);
  } else {
    added_vertices_.erase(added);
  }
}

void EditTally::OnTetAdded(const ClosedMesh& mesh, const MeshDelta::AddedTet& tet, double density_kg_per_m3) {
  const auto parent = first_parent_.find(tet.parent);
  const TetId first = parent == first_parent_.end() ? tet.parent : parent->second;
  first_parent_[tet.id] = first;
  const double mass_kg = density_kg_per_m3 * mesh.RestVolume(SlotOf(tet.id));
  outcome_.removed_mass_kg -= mass_kg;
  touched_mass_kg_ += mass_kg;
}

void EditTally::OnTetRemoved(const ClosedMesh& mesh, TetId tet, const std::array<VertexId, 4>& vertices, double density_kg_per_m3) {
  if (first_parent_.erase(tet) == 0) outcome_.removed_tets.push_back(tet);
  std::array<Eigen::Vector3d, 4> x;
  for (size_t c = 0; c < 4; ++c) x[c] = mesh.PositionOf(SlotOf(vertices[c]));
  const double volume_m3 = (x[1] - x[0]).cross(x[2] - x[0]).dot(x[3] - x[0]) / 6;
  const double mass_kg = density_kg_per_m3 * volume_m3;
  outcome_.removed_mass_kg += mass_kg;
  touched_mass_kg_ += mass_kg;
}

// Of a tet that this edit has added, at rest.
void EditTally::JudgeAdded(const ClosedMesh& mesh, uint32_t slot) {
  const auto& v = mesh.TetVertices(slot);
  const std::array<Eigen::Vector3d, 4> x = {mesh.PositionOf(v[0]), mesh.PositionOf(v[1]), mesh.PositionOf(v[2]), mesh.PositionOf(v[3])};
  outcome_.min_mean_ratio = std::min(outcome_.min_mean_ratio, MeanRatio(x));
  outcome_.min_edge_ratio = std::min(outcome_.min_edge_ratio, EdgeRatio(x));
}

void EditTally::OnDetached(const ClosedMesh& piece, uint32_t body, const ClosedMesh::DetachedPiece& from) {
  MovedTissue& moved = outcome_.moved.emplace_back();
  moved.body = body;
  for (uint32_t v = 0; v < from.source_vertices.size(); ++v) moved.vertices.emplace_back(from.source_vertices[v], piece.IdOfVertex(v));
  for (uint32_t t = 0; t < from.source_tets.size(); ++t) {
    moved.tets.emplace_back(from.source_tets[t], piece.IdOfTet(t));
    if (first_parent_.contains(from.source_tets[t])) JudgeAdded(piece, t);
  }
}

EditOutcome EditTally::Finish(const ClosedMesh& mesh) {
  for (const auto& [tet, parent] : first_parent_) {
    outcome_.added_tets.push_back(tet);
    if (const uint32_t slot = mesh.Find(tet); slot != kNoSlot) JudgeAdded(mesh, slot);
    if (parent != kNoTet) outcome_.remapped_tets.emplace_back(parent, tet);
  }
  std::sort(outcome_.added_tets.begin(), outcome_.added_tets.end());
  std::sort(outcome_.remapped_tets.begin(), outcome_.remapped_tets.end());
  std::sort(outcome_.removed_tets.begin(), outcome_.removed_tets.end());
  outcome_.added_vertices = std::exchange(added_vertices_, {});
  std::sort(outcome_.added_vertices.begin(), outcome_.added_vertices.end());
  std::sort(outcome_.removed_vertices.begin(), outcome_.removed_vertices.end());
  first_parent_.clear();
  // What is refined or cut weighs what it did, but for rounding.
  if (std::abs(outcome_.removed_mass_kg) < 1e-12 * touched_mass_kg_) outcome_.removed_mass_kg = 0;
  return std::exchange(outcome_, {});
}

}  // namespace palpate::sim
