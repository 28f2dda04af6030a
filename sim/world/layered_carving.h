#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "sim/topology/carving.h"
#include "sim/topology/closed_mesh.h"
#include "sim/topology/exposure_guard.h"

namespace palpate::sim {

/// Carves many tets of a body, from the surface inwards. While it does, its owner tells it of every tet that comes and goes: what a wanted
/// tet is divided into is wanted too.
class LayeredCarving {
 public:
  /// `mesh` must outlive it.
  explicit LayeredCarving(ClosedMesh* mesh) : mesh_(*mesh), carver_(mesh) {}

  /// What edits ask before they uncover tissue, until told otherwise.
  void SetGuard(const ExposureGuard& guard) {
    carver_.SetGuard(guard, [this](uint32_t tet) { return IsWanted(tet); });
  }
  /// Adds the tets that stay, or are unknown, to unchanged_count. Errors: those of Carver::Remove.
  absl::Status Carve(std::span<const TetId> tets, uint32_t* unchanged_count);

  template <typename Archive>
  void VisitState(Archive& archive) {
    [[maybe_unused]] auto& [mesh, carver, is_wanted, wanted] = *this;
    archive(carver);
  }

  void OnTetAdded(uint32_t slot, TetId parent);
  void OnTetRemoved(uint32_t slot) {
    if (slot < is_wanted_.size()) is_wanted_[slot] = 0;
  }

 private:
  bool IsWanted(uint32_t tet) const { return tet < is_wanted_.size() && is_wanted_[tet] != 0; }
  int SurfaceFaces(uint32_t tet) const;
  absl::StatusOr<bool> RemoveOneLayer();

  ClosedMesh& mesh_;
  Carver carver_;
  std::vector<uint8_t> is_wanted_;  // [tet slot], empty between calls
  std::vector<uint32_t> wanted_;
};

}  // namespace palpate::sim
