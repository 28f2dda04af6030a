#pragma once

#include <cstdint>
#include <functional>

#include "sim/scene/edit.h"
#include "sim/topology/sheet_mesh.h"
#include "sim/world/cell_tally.h"

namespace palpate::sim {

/// Adds up what one edit does to the sheet of a shell: see CellTally.
class SheetTally {
 public:
  void Begin() { cells_.Begin(); }
  /// `mass_kg_per_m2`: of a zone of material.
  void OnEdited(const SheetDelta& delta, const std::function<double(TetZoneId)>& mass_kg_per_m2, const SheetMesh& mesh);
  /// A component left the sheet for one of its own, `piece`, which the other side must keep until here.
  void OnDetached(const SheetMesh& piece, uint32_t body, const SheetMesh::DetachedPiece& from);
  /// What it was. `mesh`: as the edit left it.
  EditOutcome Finish(const SheetMesh& mesh);

 private:
  void JudgeAdded(const SheetMesh& mesh, uint32_t slot);

  CellTally<TriangleLists> cells_;
};

}  // namespace palpate::sim
