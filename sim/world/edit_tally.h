#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sim/scene/edit.h"
#include "sim/topology/closed_mesh.h"

namespace palpate::sim {

/// Adds up what one edit does to the mesh of a body, as its observer reports it. Tets that come and go within the edit count for nothing;
/// what is left has the tet before the edit that it comes from.
class EditTally {
 public:
  void Begin();
  void OnVertexAdded(VertexId vertex) { added_vertices_.push_back(vertex); }
  void OnVertexRemoved(VertexId vertex);
  void OnTetAdded(const ClosedMesh& mesh, const MeshDelta::AddedTet& tet, double density_kg_per_m3);
  /// `vertices`: that it had.
  void OnTetRemoved(const ClosedMesh& mesh, TetId tet, const std::array<VertexId, 4>& vertices, double density_kg_per_m3);
  /// A component left the mesh for one of its own, `piece`, which the other side must keep until here.
  void OnDetached(const ClosedMesh& piece, uint32_t body, const ClosedMesh::DetachedPiece& from);
  /// What it was. `mesh`: as the edit left it.
  EditOutcome Finish(const ClosedMesh& mesh);

 private:
  void JudgeAdded(const ClosedMesh& mesh, uint32_t slot);

  EditOutcome outcome_;
  double touched_mass_kg_ = 0;                      // of all tets that came and went
  absl::flat_hash_map<TetId, TetId> first_parent_;  // of tets added by this edit: the tet before it that they come from, or kNoTet
  std::vector<VertexId> added_vertices_;
};

}  // namespace palpate::sim
