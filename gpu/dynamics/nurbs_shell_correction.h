#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <Eigen/SparseCholesky>

#include "gpu/base/status.h"
#include "gpu/dynamics/nurbs_shell_layout.h"
#include "gpu/dynamics/nurbs_shell_model.h"
#include "gpu/dynamics/nurbs_shell_terms.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"

namespace palpate::gpu {

/// Shells of more control points than this are not corrected, and joints do not hold them.
inline constexpr uint32_t kMaxNurbsCorrected = 4096;
/// Those of up to so many have a dense inverse on the device, larger ones a sparse factor on the host.
inline constexpr uint32_t kMaxNurbsDense = 640;

/// Moves all control points of a shell at once, between two sweeps: thin shells are far stiffer in the plane than across it, and blocks of
/// one control point find bending slowly. A move is (M / dt^2 + K)^-1 times the forces that are left, with K the stiffness at rest, turned
/// at each control point as the surface has turned there since. The inverse, or factor, is made once.
///
/// A move alone may raise the energy, so it is taken by its share: where the force along it comes to 0, linearly. Use:
///   Propose(forces) -> moves(); the caller works out the forces at x + moves; Share(forces there); Take(x).
/// Where contacts come on the way, forces at x + share times moves tell more: Shorten(forces there).
/// Determinism: same calls, same bits. Nothing blocks but Propose where a shell is solved on the host.
class NurbsShellCorrection {
 public:
  /// `held` [control point]: bits of axes that do not move. Keeps references. Errors: ResourceExhausted, Internal (not positive definite).
  static absl::StatusOr<NurbsShellCorrection> Create(Queue& queue, const NurbsShellModel& model, const NurbsShellLayout& layout,
                                                     std::span<const uint32_t> held, double dt_s, uint32_t max_dense = kMaxNurbsDense);

  bool empty() const { return solved_count_ == 0; }  ///< no shell is small enough
  uint32_t solved_count() const { return solved_count_; }

  /// `forces`: what is left at each slot, inertia and contact included; `terms` after Gather or sweeps. Writes moves().
  absl::Status Propose(Queue& queue, const NurbsShellTerms& terms, const DeviceBuffer<Float4>& forces);
  const DeviceBuffer<Float4>& moves() const { return moves_; }  ///< [slot] m; 0 where nothing is solved
  /// Sums the forces along the moves before and after, shell by shell, and keeps the share in [0, 1] of each.
  absl::Status Share(Queue& queue, const DeviceBuffer<Float4>& forces, const DeviceBuffer<Float4>& forces_after);
  /// Less of the moves of a shell whose forces at x + share times moves push back: by a line again. Contacts stiffen, so that is short of
  /// where the force is 0.
  absl::Status Shorten(Queue& queue, const DeviceBuffer<Float4>& forces, const DeviceBuffer<Float4>& forces_there);
  const DeviceBuffer<float>& share() const { return share_; }             ///< [shell that is solved]
  const DeviceBuffer<uint32_t>& slot_part() const { return slot_part_; }  ///< [slot] place in share(), or 0xffffffff: its moves are 0
  /// x += share times moves.
  absl::Status Take(Queue& queue, const DeviceBuffer<Float4>& x);

  size_t device_bytes() const;

 private:
  /// A shell that is solved on the host.
  struct SparsePart {
    uint32_t first = 0, count = 0;  // solved
    std::vector<uint8_t> is_held;   // [3 count]
    Eigen::SimplicialLDLT<Eigen::SparseMatrix<double>, Eigen::Lower> factor;
  };
  absl::Status SolveOnHost(Queue& queue);

  uint32_t slot_count_ = 0, solved_count_ = 0, part_count_ = 0;
  DeviceBuffer<uint32_t> solved_slot_;  // [solved] rising within a part
  DeviceBuffer<UInt4> solved_part_;     // [solved] first solved of its part, their count, first real of its inverse or 0xffffffff, part
  DeviceBuffer<UInt2> part_range_;      // [part] solved
  DeviceBuffer<uint32_t> slot_part_;    // [slot] part, or 0xffffffff
  DeviceBuffer<uint32_t> gauss_;        // [solved] place of the Gauss point whose axes turn it
  DeviceBuffer<Float4> axes_;           // [solved][2] a1 and normal at rest
  DeviceBuffer<float> inverse_;         // [part][3 count][3 count], of those without a factor
  DeviceBuffer<Float4> turned_, moves_;
  DeviceBuffer<Float4> solved_;  // [solved] moves in the rest shape, where they are solved on the host
  std::vector<std::unique_ptr<SparsePart>> sparse_;
  std::vector<Float4> turned_host_;
  DeviceBuffer<float> share_;  // [part]
  uint32_t lanes_ = 1;
  Kernel turn_, solve_, find_share_, shorten_, take_;
};

}  // namespace palpate::gpu
