#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "gpu/base/state_archive.h"
#include "gpu/base/status.h"
#include "gpu/dynamics/coarse_lattice.h"
#include "gpu/dynamics/packed_types.h"
#include "gpu/dynamics/tissue_buffers.h"
#include "gpu/dynamics/tissue_layout.h"
#include "gpu/dynamics/tissue_layout_editor.h"
#include "gpu/dynamics/tissue_sweeps.h"
#include "gpu/dynamics/tissue_types.h"
#include "gpu/dynamics/tool_contacts.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"

namespace palpate::gpu {

/// Carries what sweeps leave over the whole body at once: information travels by one ring of vertices a sweep, so that fine or stiff bodies
/// would need hundreds. A correction is a move of all vertices in the space of a CoarseLattice, worked out from the forces that are left,
/// and as long as the force along it tells. One on whose way something stiff pushes back is given up.
///
/// What a contact, an anchor or a joint acts on is left where it is. Bodies that keep their volume keep it in a correction as they do in a
/// sweep: with its stiffness there and its multiplier.
///
/// Guarantees: where no bound cuts it short, a correction does not raise the energy of the step as far as that is quadratic along it, or
/// grows ever steeper; one that would begin uphill is not made. With bounds it goes the way of all moves between detections, so nothing
/// passes through anything. Edits change what it gains, never where the sweeps end. Cost: one evaluation of all forces and two along the
/// moves, and one product with a dense matrix or a V-cycle, two where a body keeps its volume. Thread: one at a time. Determinism: same
/// calls and tuning, same bits. No blocking calls but at edits, for the state and with a tolerance.
class CoarseCorrection {
 public:
  /// Keeps a reference to `layout`. Errors: ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<CoarseCorrection>> Create(Queue& queue, const TissueModel& model, const TissueLayout& layout,
                                                                  const TissueOptions& options, const TissueTuning& tuning);

  /// After an edit of the layout. Weights follow; the inverse is made anew when a tenth of the tets have changed since it was made.
  absl::Status Follow(Queue& queue, const TissueModel& model, const TissueChange& change);
  /// What an inverse that edits left behind was made of. All else follows from the model and the layout. Blocking.
  absl::Status SaveState(StateWriter& archive);
  absl::Status LoadState(Queue& queue, StateReader& archive);

  /// Start of the sweeps of a step: how the nodes have turned.
  absl::Status Begin(Queue& queue, const TissueBuffers& tissue);
  /// Between two sweeps. With a tolerance (TissueOptions::tolerance_m_per_s2) it waits for the device, and false says that the forces that
  /// are left do not exceed it: nothing was moved.
  absl::StatusOr<bool> Correct(Queue& queue, const TissueBuffers& tissue, ToolContacts& tools, TissueSweeps& sweeps);

  /// For tests. Forces that the last correction began with, at solved nodes and turned to the rest shape (of parts with stencils what
  /// smoothing left of them): three floats a node, parts padded to CoarsePart::row_floats. share(): [2], the share of its moves that it
  /// took, and the force along them at their end over that at their start.
  const DeviceBuffer<Float4>& forces() const { return forces_; }
  const DeviceBuffer<float>& node_forces() const { return node_force_; }
  const DeviceBuffer<Float4>& rotations() const { return rotations_; }
  const DeviceBuffer<Float4>& node_moves() const { return node_move_; }
  const DeviceBuffer<Float4>& moves() const { return moves_; }
  const DeviceBuffer<float>& share() const { return share_; }
  const CoarseLattice& lattice() const { return lattice_; }
  const CoarseWeights& weights() const { return weights_; }
  size_t device_bytes() const;

 private:
  CoarseCorrection(const TissueLayout& layout, const TissueOptions& options, const TissueTuning& tuning)
      : layout_(layout),
        dt_s_(options.dt_s),
        max_nodes_(options.coarse_nodes),
        tolerance_m_per_s2_(options.tolerance_m_per_s2),
        group_size_(tuning.list_group),
        items_(tuning.partials) {}
  Range Partials() const { return {items_, items_ % 64 == 0 ? 64U : 1U}; }  // exactly as many
  absl::Status GiveLattice(Queue& queue);
  absl::Status GiveStencils(Queue& queue);
  absl::Status BindNodes();
  absl::Status Relax(Queue& queue, double keep, double add);
  absl::Status SolveNodes(Queue& queue, const DeviceBuffer<Float4>& forces);
  absl::Status SpreadMoves(Queue& queue, const TissueBuffers& tissue, const DeviceBuffer<Float4>& forces,
                           const DeviceBuffer<Float4>& moves);
  absl::Status KeepVolumes(Queue& queue, const TissueBuffers& tissue, TissueSweeps& sweeps);
  absl::Status SumAtTrial(Queue& queue, const TissueBuffers& tissue, bool has_share, ToolContacts& tools, TissueSweeps& sweeps);
  absl::StatusOr<bool> IsEnough(Queue& queue, const TissueBuffers& tissue);
  absl::Status GiveWeights(Queue& queue);

  const TissueLayout& layout_;
  double dt_s_ = 0;
  uint32_t max_nodes_ = 0;
  double tolerance_m_per_s2_ = 0;
  double corrected_mass_kg_ = 0;  // of the vertices that weigh at a node
  uint32_t group_size_ = 1;
  uint32_t items_ = 1;  // of sums over vertices
  CoarseLattice lattice_;
  CoarseWeights weights_;
  uint64_t changed_tets_ = 0;  // since the inverse was made
  DeviceBuffer<UInt2> node_slot_;
  DeviceBuffer<UInt4> solved_part_;
  DeviceBuffer<uint32_t> node_begins_, node_frame_, entry_vertex_, vertex_nodes_, solved_node_;
  DeviceBuffer<uint32_t> fine_nodes_, row_begins_, columns_, parents_, child_begins_, children_;
  DeviceBuffer<float> inverse_, entry_weight_, vertex_weights_, node_force_, sums_start_, sums_end_, tet_sums_, share_;
  DeviceBuffer<float> parent_weights_, child_weights_;
  DeviceBuffer<Float4> rest_, rotations_, node_move_, solved_move_, forces_, trial_forces_, moves_, trial_;
  DeviceBuffer<Float4> gradients_, yields_;  // of kept volumes
  DeviceBuffer<Float4> blocks_, inverse_diagonal_, residual_, direction_, next_direction_, solution_;
  Kernel turn_nodes_, gather_forces_, solve_nodes_, spread_moves_, sum_along_, find_share_, sum_left_, try_share_, judge_share_;
  Kernel relax_nodes_, restrict_residual_, prolong_moves_, give_way_;
};

}  // namespace palpate::gpu
