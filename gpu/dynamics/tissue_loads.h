#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/dynamics/tissue_buffers.h"
#include "gpu/runtime/queue.h"

namespace palpate::gpu {

/// Pressures and forces that act for a time, as a stage of the solver's step: they move the inertial targets of the vertices they act on.
/// A pressure follows the surface, so it is worked out anew before each sweep. docs/algorithms/tissue.md, "Zones and loads".
class TissueLoads {
 public:
  /// The program is that of tissue.cl. `old` (or null): one of the same program that is given up, whose kernel is used again.
  absl::Status MakeKernels(Context& context, const ProgramDefines& defines, TissueLoads* old);
  /// At the start and after each edit; none of the loads acts then.
  absl::Status SetLoads(Queue& queue, std::span<const TissueLoad> loads, const TissueLayout& layout);

  bool empty() const { return loads_.empty(); }

  /// Start of a step at `start_s` since the last reset, after the prediction: chooses the loads that act and applies them.
  absl::Status Begin(Queue& queue, const TissueBuffers& tissue, double start_s);
  /// The loads of this step with the surface as it is now.
  absl::Status Apply(Queue& queue, const TissueBuffers& tissue);
  /// Whether any load acts in this step.
  bool has_acting() const { return acting_ != 0; }
  /// Those on the vertices in `slots`, which follow something else (NURBS shells): pushes [count], N. Precondition: has_acting().
  absl::Status Push(Queue& queue, const TissueBuffers& tissue, const DeviceBuffer<uint32_t>& slots, const DeviceBuffer<Float4>& pushes);

  size_t device_bytes() const;

 private:
  void ShareForces(const TissueLayout& layout);
  absl::Status WriteActing(Queue& queue);

  std::vector<TissueLoad> loads_;
  std::vector<std::vector<std::pair<uint32_t, float>>> shares_;  // of each load: the slots it pulls at and their parts of its force
  uint32_t vertex_count_ = 0;
  bool any_triangle_ = false;  // loads are given by triangle, too
  uint32_t acting_ = 0;        // bits of those that pressures_ and forces_ hold
  DeviceBuffer<float> pressures_;
  DeviceBuffer<uint32_t> bits_, triangle_loads_;
  DeviceBuffer<Float4> forces_;
  DeviceBuffer<Float4> y_free_;  // inertial targets without loads
  Kernel apply_, push_;
};

}  // namespace palpate::gpu
