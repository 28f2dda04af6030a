#pragma once

#include <vector>

#include "gpu/base/status.h"
#include "gpu/dynamics/tissue_buffers.h"
#include "gpu/runtime/queue.h"

namespace palpate::gpu {

/// The elastic energy of all tets, in double where the device has it, else in float with compensated sums; always in the same order.
class ElasticEnergySum {
 public:
  /// `defines`: of the solver's program (tissue.cl). `partials`: work-items, whatever the device.
  absl::Status Init(Queue& queue, const TissueLayout& layout, const ProgramDefines& defines, uint32_t partials, bool in_double);

  /// [J] at positions tissue.x. Blocking; leaves everything else as it is.
  absl::StatusOr<double> At(Queue& queue, const TissueBuffers& tissue, const TissueLayout& layout);

  size_t device_bytes() const { return partials_.size_bytes() + rotations_.size_bytes(); }

 private:
  Range range_;
  DeviceBuffer<Float2> partials_;  // high and low parts
  std::vector<Float2> partials_host_;
  DeviceBuffer<Float4> rotations_;  // of corotated tets as they are: those of the sweeps are a sweep older, and go on as they would
  Kernel sum_, extract_rotations_;
};

}  // namespace palpate::gpu
