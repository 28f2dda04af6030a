#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <Eigen/SparseCore>

#include "gpu/base/status.h"
#include "gpu/dynamics/nurbs_shell_layout.h"
#include "gpu/dynamics/nurbs_shell_model.h"
#include "gpu/dynamics/packed_types.h"
#include "gpu/dynamics/tissue_buffers.h"
#include "gpu/dynamics/tissue_layout.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/nurbs_shell_state.h"

namespace palpate::gpu {

/// Control points of NURBS shells that are bound to tissue: each is the mean of the corners of a tet, q = sum w_k x_k, with constant
/// weights. So they are no unknowns, and the force F on one acts on the corners with w_k F. A sweep of the tissue takes their energy as
///
///     E - sum_v f_v . d_v + sum_v s_v / 2 |d_v|^2,    f_v = sum w F over what vertex v carries,
///
/// with s_v such that the last sum is an upper bound whichever way all vertices move: of contact and inertia the sums of w times their
/// stiffness, of the shell from the largest eigenvalue. This goes into the inertial targets of the corners, which then have a larger
/// inertia for the sweep. So no sweep goes uphill, and where it ends the tissue feels F.
///
/// The control points themselves are held ones to NurbsShells, with targets that follow the tissue. Determinism: same input, same bits.
/// docs/algorithms/nurbs_shells.md, "Bound to tissue".
class NurbsBindings {
 public:
  /// `bound`: of each shell as in TissueNurbsShell; `control_begins`: where those of each begin in `all`. Null: there are none. Errors:
  /// ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<NurbsBindings>> Create(Queue& queue, std::span<const TissueNurbsShell> shells,
                                                               std::span<const uint32_t> control_begins, const NurbsShellModel& all,
                                                               const NurbsShellLayout& elastic, double dt_s);
  /// Vertices of tissue where the layout has them, which an edit may have changed; the same control points are bound.
  absl::Status SetVertices(Queue& queue, std::span<const TissueNurbsShell> shells, const TissueLayout& layout);

  size_t count() const { return bindings_host_.size(); }
  const DeviceBuffer<uint32_t>& slots() const { return slots_; }  ///< [binding] of its control point
  /// [binding] N of the shell and what touches it; w: stiffness of contact, N/m. To be written before Load.
  const DeviceBuffer<Float4>& forces() const { return forces_; }
  const DeviceBuffer<NurbsBinding>& bindings() const { return bindings_; }

  // Within a step; they enqueue only.
  /// Start of a step, after NurbsShells predicted: inertial targets, and first guess.
  absl::Status Begin(Queue& queue, const DeviceBuffer<StepParams>& params, const DeviceBuffer<Float4>& x,
                     const DeviceBuffer<ControlPointState>& states, const DeviceBuffer<Float4>& control);
  /// Where the tissue has them, as targets and as goals.
  absl::Status Follow(Queue& queue, const DeviceBuffer<Float4>& x, const DeviceBuffer<ControlPointState>& states);
  /// Puts the forces into the inertial targets of the tissue at x, in place of those of the call before.
  absl::Status Load(Queue& queue, const TissueBuffers& tissue, const DeviceBuffer<Float4>& control);

  /// What bound control points do to the tissue as it was loaded last, [binding] N, inertia and gravity included. Blocking.
  absl::StatusOr<std::vector<Float4>> ReadForces(Queue& queue, const DeviceBuffer<Float4>& control) const;
  double mass_kg(size_t binding) const { return bindings_host_[binding].mass; }
  uint32_t slot(size_t binding) const { return slots_host_[binding]; }

 private:
  NurbsBindings() = default;
  std::vector<double> ResistanceOf(std::span<const uint32_t> vertices) const;
  Range Bindings() const { return {bindings_host_.size(), group_}; }

  uint32_t group_ = 1;  // work-items
  uint32_t vertex_count_ = 0;
  std::vector<NurbsBinding> bindings_host_;
  std::vector<uint32_t> slots_host_;
  Eigen::SparseMatrix<double> stiffness_;  // of the shells, at rest, where bound control points move alone [N/m]
  Kernel begin_, follow_, load_, forget_;
  DeviceBuffer<NurbsBinding> bindings_;
  DeviceBuffer<uint32_t> slots_;
  DeviceBuffer<Float4> inertial_, forces_;
  DeviceBuffer<uint32_t> vertices_, begins_, entries_;  // of tissue: slots, and their corners, binding * 4 + corner
  DeviceBuffer<float> resist_;                          // of these, N/m
  DeviceBuffer<Float4> unloaded_, loaded_;              // inertial targets of these, without bindings and with
};

}  // namespace palpate::gpu
