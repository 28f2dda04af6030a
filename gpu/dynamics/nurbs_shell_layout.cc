#include "gpu/dynamics/nurbs_shell_layout.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

namespace palpate::gpu {
namespace {

absl::Status Check(const NurbsShellModel& model) {
  const auto error = [](const auto&... what) { return absl::InvalidArgumentError(absl::StrCat("NURBS shell: ", what...)); };
  const size_t controls = model.control_count();
  if (model.mass_kg.size() != controls || model.half_thickness_m.size() != controls || model.mass_damping_per_s.size() != controls ||
      model.control_begin.size() != controls + 1 || model.control_entries.size() != model.entries.size()) {
    return error("its arrays do not fit ", controls, " control points");
  }
  for (size_t c = 0; c < controls; ++c) {
    if (!(model.mass_kg[c] > 0)) return error("control point ", c, ": mass ", model.mass_kg[c], " kg is not positive");
    if (model.control_begin[c] >= model.control_begin[c + 1]) return error("control point ", c, ": no Gauss point feels it");
    if (model.control_begin[c + 1] > model.entries.size()) return error("control point ", c, ": its entries are out of range");
    for (uint32_t k = model.control_begin[c]; k < model.control_begin[c + 1]; ++k) {
      const uint32_t e = model.control_entries[k];
      if (e >= model.entries.size() || model.entries[e].control != c) return error("control point ", c, ": entry ", e, " is not its own");
    }
    for (const double x : model.rest_m[c]) {
      if (!std::isfinite(x)) return error("control point ", c, ": its position is not finite");
    }
  }
  for (size_t g = 0; g < model.gauss.size(); ++g) {
    const NurbsShellGauss& gauss = model.gauss[g];
    const auto& [c_11, c_12, c_22, shear] = gauss.bending_n_m;
    if (!(gauss.area_m2 > 0)) return error("Gauss point ", g, ": area ", gauss.area_m2, " m^2 is not positive");
    if (gauss.coupling && !(gauss.coupling->gap_n_per_m2 > 0 && gauss.coupling->turn_n >= 0)) {
      return error("Gauss point ", g, ": its coupling does not give a positive energy");
    }
    if (!gauss.coupling &&
        (!(c_11 > 0 && c_22 >= 0 && shear >= 0 && c_11 * c_22 >= c_12 * c_12) || !(gauss.membrane_per_bending_per_m2 >= 0))) {
      return error("Gauss point ", g, ": its moduli do not give a positive energy");
    }
    if (gauss.begin > gauss.end || gauss.end > model.entries.size()) return error("Gauss point ", g, ": its entries are out of range");
    for (uint32_t e = gauss.begin; e < gauss.end; ++e) {
      if (model.entries[e].control >= controls || model.entries[e].gauss != g) return error("entry ", e, ": its indices are wrong");
    }
  }
  return absl::OkStatus();
}

/// gauss_place and block_count.
void PlaceGaussPoints(const NurbsShellModel& model, NurbsShellLayout* out) {
  const uint32_t lanes = out->lanes;
  uint32_t next = 0;
  bool was_coupling = false;
  for (const NurbsShellGauss& gauss : model.gauss) {
    if (gauss.coupling.has_value() != std::exchange(was_coupling, gauss.coupling.has_value())) next = (next + lanes - 1) / lanes * lanes;
    out->gauss_place.push_back(next++);
  }
  out->block_count = (next + lanes - 1) / lanes;
}

/// Blocks that a control point acts on, rising.
std::vector<uint32_t> BlocksOf(const NurbsShellModel& model, const NurbsShellLayout& layout, uint32_t control) {
  std::vector<uint32_t> blocks;
  for (uint32_t k = model.control_begin[control]; k < model.control_begin[control + 1]; ++k) {
    const uint32_t block = layout.gauss_place[model.entries[model.control_entries[k]].gauss] / layout.lanes;
    if (blocks.empty() || blocks.back() != block) blocks.push_back(block);
  }
  return blocks;
}

/// The first colour of which no control point acts on a block that this one acts on.
std::vector<uint32_t> ColorsOf(const NurbsShellModel& model, const NurbsShellLayout& layout) {
  std::vector<std::vector<uint32_t>> used(layout.block_count);  // colours
  std::vector<uint32_t> colors(model.control_count());
  std::vector<uint32_t> taken;  // [colour] by the control point, from 1
  for (uint32_t c = 0; c < model.control_count(); ++c) {
    const std::vector<uint32_t> blocks = BlocksOf(model, layout, c);
    for (const uint32_t block : blocks) {
      for (const uint32_t color : used[block]) taken[color] = c + 1;
    }
    uint32_t color = 0;
    while (color < taken.size() && taken[color] == c + 1) ++color;
    if (color == taken.size()) taken.push_back(0);
    colors[c] = color;
    for (const uint32_t block : blocks) used[block].push_back(color);
  }
  return colors;
}

}  // namespace

absl::StatusOr<NurbsShellLayout> LayOutNurbsShells(const NurbsShellModel& model, uint32_t lanes, double dt_s) {
  PALPATE_RETURN_IF_ERROR(Check(model));
  NurbsShellLayout out;
  out.lanes = lanes;
  PlaceGaussPoints(model, &out);
  const std::vector<uint32_t> colors = ColorsOf(model, out);
  out.slot_control.resize(model.control_count());
  std::iota(out.slot_control.begin(), out.slot_control.end(), 0U);
  std::stable_sort(out.slot_control.begin(), out.slot_control.end(), [&](uint32_t a, uint32_t b) { return colors[a] < colors[b]; });
  out.control_slot.resize(model.control_count());
  for (uint32_t slot = 0; slot < out.slot_control.size(); ++slot) {
    out.control_slot[out.slot_control[slot]] = slot;
    if (slot == 0 || colors[out.slot_control[slot]] != colors[out.slot_control[slot - 1]]) out.color_begin.push_back(slot);
  }
  out.color_begin.push_back(static_cast<uint32_t>(out.slot_control.size()));

  out.rest_real.assign(size_t{out.block_count} * PALPATE_NURBS_REST_REALS * lanes, 0.0F);
  for (size_t g = 0; g < model.gauss.size(); ++g) {
    const NurbsShellGauss& gauss = model.gauss[g];
    const size_t place = out.gauss_place[g];
    float* at = &out.rest_real[place / lanes * PALPATE_NURBS_REST_REALS * lanes + place % lanes];
    if (const auto& coupling = gauss.coupling) {
      at[0] = static_cast<float>(coupling->rest_cosine);
      at[lanes] = static_cast<float>(coupling->rest_sine);
      at[3 * lanes] = static_cast<float>(gauss.area_m2 * coupling->gap_n_per_m2);
      at[4 * lanes] = static_cast<float>(gauss.area_m2 * coupling->turn_n);
      at[7 * lanes] = -1.0F;
      continue;
    }
    for (size_t k = 0; k < 3; ++k) at[k * lanes] = static_cast<float>(gauss.rest_curvature_per_m[k]);
    for (size_t k = 0; k < 4; ++k) at[(3 + k) * lanes] = static_cast<float>(gauss.area_m2 * gauss.bending_n_m[k]);
    at[7 * lanes] = static_cast<float>(gauss.membrane_per_bending_per_m2);
    at[8 * lanes] = static_cast<float>(gauss.damping_s / dt_s);
    out.is_viscous = out.is_viscous || gauss.damping_s > 0;
  }

  std::vector<uint32_t> block_sizes(out.block_count, 0);
  for (const uint32_t control : out.slot_control) {
    const auto begin = static_cast<uint32_t>(out.entry_block.size());
    for (uint32_t k = model.control_begin[control]; k < model.control_begin[control + 1]; ++k) {
      const NurbsShellEntry& entry = model.entries[model.control_entries[k]];
      const uint32_t place = out.gauss_place[entry.gauss];
      const uint32_t block = place / lanes;
      if (out.entry_block.size() == begin || out.entry_block.back() != block) {
        out.entry_block.push_back(block);
        out.entry_basis.resize(out.entry_basis.size() + size_t{PALPATE_NURBS_BASIS_REALS} * lanes, 0.0F);
        ++block_sizes[block];
      }
      float* at = &out.entry_basis[(out.entry_block.size() - 1) * PALPATE_NURBS_BASIS_REALS * lanes + place % lanes];
      at[0] = static_cast<float>(entry.by_1_per_m);
      at[lanes] = static_cast<float>(entry.by_2_per_m);
      at[2 * lanes] = static_cast<float>(entry.by_11_per_m2);
      at[3 * lanes] = static_cast<float>(entry.by_22_per_m2);
      at[4 * lanes] = static_cast<float>(entry.by_12_per_m2);
    }
    out.control_range.push_back({begin, static_cast<uint32_t>(out.entry_block.size())});
  }
  uint32_t first = 0;
  for (const uint32_t size : block_sizes) {
    out.block_range.push_back({first, first});
    first += size;
  }
  out.block_slot.resize(first);
  out.block_entry.resize(first);
  for (uint32_t slot = 0; slot < out.control_range.size(); ++slot) {
    for (uint32_t e = out.control_range[slot].x; e < out.control_range[slot].y; ++e) {
      const uint32_t at = out.block_range[out.entry_block[e]].y++;
      out.block_slot[at] = slot;
      out.block_entry[at] = e;
    }
  }
  return out;
}

void AppendNurbsShell(const NurbsShellModel& part, NurbsShellModel* all) {
  const auto append = [](const auto& from, auto* to, auto shift) {
    for (auto value : from) {
      shift(value);
      to->push_back(value);
    }
  };
  const auto keep = [](auto&) {};
  const auto controls = static_cast<uint32_t>(all->rest_m.size());
  const auto gauss = static_cast<uint32_t>(all->gauss.size());
  const auto entries = static_cast<uint32_t>(all->entries.size());
  const auto parts = static_cast<uint32_t>(all->net_parts.size());
  const uint32_t nets = all->net_begin.empty() ? 0 : all->net_begin.back();
  const auto patches = static_cast<uint32_t>(all->net_begin.empty() ? 0 : all->net_begin.size() - 1);
  // Lists of starts share the one between the two.
  for (std::vector<uint32_t>* begins : {&all->control_begin, &all->net_begin, &all->net_part_begin}) {
    if (!begins->empty()) begins->pop_back();
  }
  append(part.rest_m, &all->rest_m, keep);
  append(part.mass_kg, &all->mass_kg, keep);
  append(part.half_thickness_m, &all->half_thickness_m, keep);
  append(part.mass_damping_per_s, &all->mass_damping_per_s, keep);
  append(part.gauss, &all->gauss, [&](NurbsShellGauss& g) {
    g.begin += entries;
    g.end += entries;
    g.patch += patches;
  });
  append(part.entries, &all->entries, [&](NurbsShellEntry& e) {
    e.control += controls;
    e.gauss += gauss;
  });
  append(part.control_begin, &all->control_begin, [&](uint32_t& n) { n += entries; });
  append(part.control_entries, &all->control_entries, [&](uint32_t& n) { n += entries; });
  append(part.net_begin, &all->net_begin, [&](uint32_t& n) { n += nets; });
  append(part.net_part_begin, &all->net_part_begin, [&](uint32_t& n) { n += parts; });
  all->frame_control_count += part.frame_control_count;
  append(part.net_parts, &all->net_parts, [&](NurbsShellPart& p) { p.control += controls; });
}

}  // namespace palpate::gpu
