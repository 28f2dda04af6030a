#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/dynamics/nurbs_shell_model.h"
#include "gpu/shared/nurbs_shell_types.h"
#include "gpu/shared/types.h"

namespace palpate::gpu {

/// NURBS shells laid out for the device; see nurbs_shell_terms.clh for the arrays. Gauss points fill blocks of `lanes` in their order;
/// couplings have blocks of their own.
/// Control points have slots: colour by colour, in a colour by their number. No two of a colour act on the same block, so that all of them
/// may move at the same time and update what lies in their blocks.
struct NurbsShellLayout {
  uint32_t lanes = 1;
  std::vector<uint32_t> control_slot;  ///< [control point]
  std::vector<uint32_t> slot_control;  ///< [slot]
  std::vector<uint32_t> color_begin;   ///< [colour + 1] slots

  uint32_t block_count = 0;
  std::vector<uint32_t> gauss_place;  ///< [Gauss point] lanes * block + lane
  std::vector<float> rest_real;       ///< [block][PALPATE_NURBS_REST_REALS][lanes]
  std::vector<UInt2> control_range;   ///< [slot] entries: blocks that it acts on, rising
  std::vector<uint32_t> entry_block;  ///< [entry]
  std::vector<float> entry_basis;     ///< [entry][PALPATE_NURBS_BASIS_REALS][lanes], zero in lanes it does not act on
  std::vector<UInt2> block_range;     ///< [block] into the two below, slots rising
  std::vector<uint32_t> block_slot, block_entry;
  bool is_viscous = false;

  uint32_t color_count() const { return color_begin.empty() ? 0 : static_cast<uint32_t>(color_begin.size()) - 1; }
  bool empty() const { return slot_control.empty(); }
};

/// `lanes`: 1, 4, 8 or 16. Errors: InvalidArgument for indices out of range, values that are not finite, masses or moduli that are not
/// positive, and control points that no Gauss point feels.
absl::StatusOr<NurbsShellLayout> LayOutNurbsShells(const NurbsShellModel& model, uint32_t lanes, double dt_s);

/// Adds the shells of one model to those of another. Their control points follow on those that are there.
void AppendNurbsShell(const NurbsShellModel& part, NurbsShellModel* all);

}  // namespace palpate::gpu
