#pragma once

#include <array>
#include <cstdint>

#include "sim/scene/edit.h"
#include "sim/topology/closed_mesh.h"
#include "sim/world/cell_tally.h"

namespace palpate::sim {

/// Adds up what one edit does to the mesh of a body, as its observer reports it: see CellTally.
class EditTally {
 public:
  void Begin() { cells_.Begin(); }
  void OnVertexAdded(VertexId vertex) { cells_.OnVertexAdded(vertex); }
  void OnVertexRemoved(VertexId vertex) { cells_.OnVertexRemoved(vertex); }
  void OnTetAdded(const ClosedMesh& mesh, const MeshDelta::AddedTet& tet, double density_kg_per_m3);
  /// `vertices`: that it had.
  void OnTetRemoved(const ClosedMesh& mesh, TetId tet, const std::array<VertexId, 4>& vertices, double density_kg_per_m3);
  /// A component left the mesh for one of its own, `piece`, which the other side must keep until here.
  void OnDetached(const ClosedMesh& piece, uint32_t body, const ClosedMesh::DetachedPiece& from);
  /// What it was. `mesh`: as the edit left it.
  EditOutcome Finish(const ClosedMesh& mesh);

 private:
  void JudgeAdded(const ClosedMesh& mesh, uint32_t slot);

  CellTally<TetLists> cells_;
};

}  // namespace palpate::sim
