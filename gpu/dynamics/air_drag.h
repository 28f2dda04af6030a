#pragma once

#include <array>
#include <cstdint>

#include "gpu/base/status.h"
#include "gpu/dynamics/rigid_blocks.h"
#include "gpu/dynamics/tissue_buffers.h"
#include "gpu/dynamics/tissue_layout.h"
#include "gpu/runtime/queue.h"

namespace palpate::gpu {

/// The air around bodies, as a stage of the solver's step: a surface triangle of area A and unit normal n, from which the air moves with
/// the speed u along n, is pushed by rho C / 2 A |u| u n. Of a sphere that adds up to the drag coefficient C by its cross section, of a
/// sheet to C by its area. It is linearised about the free motion of the step, with the exact slope, so that no wind makes a light body
/// overshoot; the speed at which a fall becomes steady is met to second order in g h over that speed. docs/algorithms/tissue.md, "Air".
class AirDrag {
 public:
  /// `old` (or null): one that is given up, whose kernel is used again.
  absl::Status MakeKernels(Context& context, AirDrag* old);
  /// At the start and after each edit. Errors: InvalidArgument (TissueModel::drag_kg_per_m3).
  absl::Status SetSurface(Queue& queue, const TissueModel& model, const TissueLayout& layout);
  /// Of the air, from the next step on.
  void SetWind(const std::array<double, 3>& velocity_m_per_s) { wind_m_per_s_ = velocity_m_per_s; }

  bool empty() const { return !is_felt_; }  ///< no body feels it

  /// After the prediction of the vertices, before that of the rigid bodies (or null).
  absl::Status Apply(Queue& queue, const TissueBuffers& tissue, const RigidSurroundings& scene, RigidBlocks* rigid);

  /// What it gives the vertices in `slots`, which follow something else: impulses [N s] with w = 1 where there is any, and their slopes
  /// [kg], [2 e] xx xy xz yy and yz zz. tissue.velocity has to be theirs.
  absl::Status PushFollowers(Queue& queue, const TissueBuffers& tissue, const DeviceBuffer<uint32_t>& slots,
                             const DeviceBuffer<Float4>& impulses, const DeviceBuffer<Float4>& slopes);

  size_t device_bytes() const { return drag_.size_bytes(); }

 private:
  Float4 Wind() const;

  std::array<double, 3> wind_m_per_s_{};
  bool is_felt_ = false;
  uint32_t free_count_ = 0;
  DeviceBuffer<float> drag_;  // [triangle] rho C / 2
  Kernel push_vertices_, push_followers_;
};

}  // namespace palpate::gpu
