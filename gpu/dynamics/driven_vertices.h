#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/dynamics/tissue_buffers.h"
#include "gpu/runtime/queue.h"

namespace palpate::gpu {

class SurfaceContacts;

/// Vertices whose way is given, as a stage of the solver's step: regions that move rigidly by a law of time, and prescribed vertices whose
/// targets come from outside. They have no unknowns; the stage sets their targets and first guesses.
class DrivenVertices {
 public:
  absl::Status MakeKernels(Context& context);
  /// At the start and after each edit.
  absl::Status SetRegions(Queue& queue, std::span<const TissueDrivenRegion> regions, const TissueLayout& layout);
  /// At the start: room for the targets of the layout's last driven vertices, the prescribed ones.
  absl::Status MakePrescribed(Queue& queue, size_t count);

  uint32_t count() const { return count_; }
  size_t prescribed_count() const { return prescribed_host_.size(); }

  /// Prescribed vertices stay where they are in `positions` [slot].
  absl::Status Hold(Queue& queue, const TissueLayout& layout, std::span<const Float4> positions);
  /// Packed targets [m] of the prescribed vertices from the next step on. Errors: InvalidArgument (their number, not finite).
  absl::Status SetPrescribed(Queue& queue, std::span<const float> positions_m);

  /// Start of a step that ends at `end_s` since the last reset: targets and first guesses.
  absl::Status Begin(Queue& queue, const TissueBuffers& tissue, double end_s);
  /// Start of a sweep where surfaces meet: towards the targets, as far as the planes between elements let them.
  absl::Status Move(Queue& queue, const TissueBuffers& tissue, const SurfaceContacts& surface);

  size_t device_bytes() const;

 private:
  std::vector<TissueDrivenRegion> regions_;
  std::vector<DrivenPose> poses_host_;
  uint32_t count_ = 0;         // of regions and prescribed ones
  uint32_t region_count_ = 0;  // of regions: the first ones
  DeviceBuffer<uint32_t> vertices_;
  DeviceBuffer<UInt4> vertex_regions_;
  DeviceBuffer<Float4> vertex_shares_;
  DeviceBuffer<DrivenPose> poses_;
  DeviceBuffer<Float4> rest_;
  std::vector<Float4> prescribed_host_;
  DeviceBuffer<Float4> prescribed_;
  Kernel drive_, prescribe_, move_;
};

}  // namespace palpate::gpu
