#include "sim/topology/ablation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace palpate::sim {
namespace {

// A tet counts as full if only rounding is missing.
constexpr double kFull = 1 - 1e-12;

bool IsPositive(double value) { return value > 0 && std::isfinite(value); }
bool IsNotNegative(double value) { return value >= 0 && std::isfinite(value); }

}  // namespace

absl::StatusOr<AblationModel> AblationModel::Create(std::vector<AblationTissue> tissues) {
  if (tissues.empty()) return absl::InvalidArgumentError("ablation needs at least one tissue");
  for (size_t i = 0; i < tissues.size(); ++i) {
    const AblationTissue& tissue = tissues[i];
    if (!IsPositive(tissue.density_kg_per_m3) || !IsPositive(tissue.energy_j_per_kg) || !IsNotNegative(tissue.cooling_time_s)) {
      return absl::InvalidArgumentError(absl::StrCat("tissue ", i, ": density ", tissue.density_kg_per_m3, " kg/m^3 and energy ",
                                                     tissue.energy_j_per_kg, " J/kg must be positive, cooling time ", tissue.cooling_time_s,
                                                     " s not negative"));
    }
  }
  return AblationModel(std::move(tissues));
}

absl::StatusOr<std::vector<TetId>> AblationModel::Deposit(double power_w, double duty, double dt_s, std::span<const Exposure> exposures) {
  if (!IsNotNegative(power_w) || !IsNotNegative(dt_s) || !(duty >= 0 && duty <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("power ", power_w, " W and dt ", dt_s, " s must not be negative, duty ", duty, " must lie in [0, 1]"));
  }
  absl::flat_hash_map<TetId, uint32_t> seen;
  for (size_t i = 0; i < exposures.size(); ++i) {
    const Exposure& exposure = exposures[i];
    if (!IsPositive(exposure.volume_m3) || !IsPositive(exposure.weight) || exposure.zone >= tissues_.size()) {
      return absl::InvalidArgumentError(absl::StrCat("exposure ", i, ": volume ", exposure.volume_m3, " m^3 and weight ", exposure.weight,
                                                     " must be positive, zone ", exposure.zone, " below ", tissues_.size()));
    }
    if (!seen.try_emplace(exposure.tet, 0).second)
      return absl::InvalidArgumentError(absl::StrCat("exposure ", i, ": the tet is exposed twice"));
  }
  for (Heat& heat : heat_) {
    const double time_s = tissues_[heat.zone].cooling_time_s;
    if (time_s == 0) continue;
    const double lost_j = heat.energy_j * -std::expm1(-dt_s / time_s);
    heat.energy_j -= lost_j;
    energy_.stored_j -= lost_j;
    energy_.cooled_j += lost_j;
  }
  double left_j = power_w * duty * dt_s;
  energy_.delivered_j += left_j;
  std::vector<double> need_j(exposures.size());
  std::vector<uint32_t> place(exposures.size());
  for (size_t i = 0; i < exposures.size(); ++i) {
    const AblationTissue& tissue = tissues_[exposures[i].zone];
    need_j[i] = exposures[i].volume_m3 * tissue.density_kg_per_m3 * tissue.energy_j_per_kg;
    const auto [it, is_new] = index_.try_emplace(exposures[i].tet, static_cast<uint32_t>(heated_.size()));
    if (is_new) {
      heated_.push_back(exposures[i].tet);
      heat_.push_back({0, exposures[i].zone});
    }
    place[i] = it->second;
  }
  // Each round fills at least one tet or places everything.
  std::vector<bool> is_full(exposures.size(), false);
  for (size_t round = 0; round <= exposures.size() && left_j > 0; ++round) {
    double weight_sum = 0;
    for (size_t i = 0; i < exposures.size(); ++i) {
      is_full[i] = heat_[place[i]].energy_j >= kFull * need_j[i];
      if (!is_full[i]) weight_sum += exposures[i].weight;
    }
    if (weight_sum == 0) break;
    const double give_j = left_j;
    bool has_filled = false;
    left_j = 0;
    for (size_t i = 0; i < exposures.size(); ++i) {
      if (is_full[i]) continue;
      const double share_j = give_j * exposures[i].weight / weight_sum;
      const double room_j = need_j[i] - heat_[place[i]].energy_j;
      const double taken_j = std::min(share_j, room_j);
      heat_[place[i]].energy_j += taken_j;
      energy_.stored_j += taken_j;
      left_j += share_j - taken_j;
      has_filled = has_filled || share_j >= room_j;
    }
    if (!has_filled) break;
  }
  energy_.unabsorbed_j += left_j;
  std::vector<TetId> due;
  for (size_t i = 0; i < exposures.size(); ++i) {
    if (heat_[place[i]].energy_j >= kFull * need_j[i]) due.push_back(exposures[i].tet);
  }
  return due;
}

void AblationModel::Remove(TetId tet) {
  const auto it = index_.find(tet);
  if (it == index_.end()) return;
  const uint32_t at = it->second;
  energy_.stored_j -= heat_[at].energy_j;
  energy_.spent_j += heat_[at].energy_j;
  index_.erase(it);
  if (at + 1 != heated_.size()) {
    heated_[at] = heated_.back();
    heat_[at] = heat_.back();
    index_[heated_[at]] = at;
  }
  heated_.pop_back();
  heat_.pop_back();
}

void AblationModel::Replace(TetId parent, std::span<const Child> children) {
  const auto it = index_.find(parent);
  if (it == index_.end()) return;
  const Heat heat = heat_[it->second];
  Remove(parent);
  // Not destroyed, only handed on.
  energy_.spent_j -= heat.energy_j;
  energy_.stored_j += heat.energy_j;
  for (const Child& child : children) {
    index_[child.tet] = static_cast<uint32_t>(heated_.size());
    heated_.push_back(child.tet);
    heat_.push_back({heat.energy_j * child.share, heat.zone});
  }
}

double AblationModel::StoredIn(TetId tet) const {
  const auto it = index_.find(tet);
  return it == index_.end() ? 0 : heat_[it->second].energy_j;
}

}  // namespace palpate::sim
