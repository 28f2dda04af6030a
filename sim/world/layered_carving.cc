#include "sim/world/layered_carving.h"

#include <algorithm>
#include <iterator>

#include "gpu/base/status.h"

namespace palpate::sim {

int LayeredCarving::SurfaceFaces(uint32_t tet) const {
  int count = 0;
  for (int f = 0; f < 4; ++f) count += mesh_.IsFaceOnSurface(tet, f) ? 1 : 0;
  return count;
}

/// Of what is wanted, all that lies at the surface; where nothing of that goes, one tet from inside. Returns whether anything went.
absl::StatusOr<bool> LayeredCarving::RemoveOneLayer() {
  std::erase_if(wanted_, [&](uint32_t tet) { return is_wanted_[tet] == 0; });
  std::sort(wanted_.begin(), wanted_.end());
  wanted_.erase(std::unique(wanted_.begin(), wanted_.end()), wanted_.end());
  std::vector<uint32_t> layer;
  std::copy_if(wanted_.begin(), wanted_.end(), std::back_inserter(layer), [&](uint32_t tet) { return SurfaceFaces(tet) > 0; });
  bool has_removed = false;
  for (const uint32_t tet : layer) {
    if (is_wanted_[tet] == 0) continue;
    PALPATE_ASSIGN_OR_RETURN(const Carver::Outcome removed, carver_.Remove(mesh_.IdOfTet(tet)));
    has_removed |= removed.is_removed;
  }
  // Nothing goes from the surface: what is left and touches it nowhere may open a cavity.
  for (size_t i = 0; i < wanted_.size() && !has_removed; ++i) {
    const uint32_t tet = wanted_[i];
    if (SurfaceFaces(tet) > 0 || carver_.Classify(tet) != CarveClass::kRemovable) continue;
    PALPATE_ASSIGN_OR_RETURN(const Carver::Outcome removed, carver_.Remove(mesh_.IdOfTet(tet)));
    has_removed = removed.is_removed;
  }
  return has_removed;
}

absl::Status LayeredCarving::Carve(std::span<const TetId> tets, uint32_t* unchanged_count) {
  is_wanted_.assign(mesh_.tet_slot_count(), 0);
  wanted_.clear();
  for (const TetId id : tets) {
    const uint32_t tet = mesh_.Find(id);
    if (tet == kNoSlot) {
      ++*unchanged_count;
    } else if (is_wanted_[tet] == 0) {
      is_wanted_[tet] = 1;
      wanted_.push_back(tet);
    }
  }
  for (bool goes_on = true; goes_on;) {
    PALPATE_ASSIGN_OR_RETURN(goes_on, RemoveOneLayer());
  }
  *unchanged_count += static_cast<uint32_t>(wanted_.size());
  is_wanted_.clear();
  wanted_.clear();
  return absl::OkStatus();
}

void LayeredCarving::OnTetAdded(uint32_t slot, TetId parent) {
  if (is_wanted_.empty()) return;
  if (slot >= is_wanted_.size()) is_wanted_.resize(slot + 1, 0);
  is_wanted_[slot] = parent != kNoTet && is_wanted_[SlotOf(parent)] != 0 ? 1 : 0;
  if (is_wanted_[slot] != 0) wanted_.push_back(slot);
}

}  // namespace palpate::sim
