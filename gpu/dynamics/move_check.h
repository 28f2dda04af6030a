#pragma once

#include <cstdint>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/dynamics/surface_reach.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/dynamics_types.h"
#include "gpu/shared/types.h"

namespace palpate::gpu {

/// How far surface vertices went from certified positions.
struct Moves {
  uint32_t beyond_cap = 0;  ///< vertices farther than PALPATE_CAP_SHARE of their reach: planes say nothing about them
  uint32_t truncated = 0;   ///< `touched`
  uint32_t bad = 0;         ///< not finite, or beyond all bounds
  uint32_t used_up = 0;     ///< vertices where known pairs may not be all that are near: pairs have to be detected anew
  float longest_m = 0;      ///< way of a vertex of a body that meets itself

  bool within_cap() const { return beyond_cap + bad == 0; }
};

/// Looks at moves on the device. Sums are over as many parts, whatever the device.
class MoveCheck {
 public:
  /// `old` (or null): one that is given up, whose kernel is used again.
  absl::Status Init(Queue& queue, uint32_t vertex_count, uint32_t partials, MoveCheck* old);
  /// Moves from `from` to x, without waiting: Take() tells, after the next blocking call.
  absl::Status Enqueue(Queue& queue, const SurfaceReach& reach, const DeviceBuffer<uint32_t>& vertex_groups,
                       const DeviceBuffer<Float4>& from, const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched);
  Moves Take() const;
  /// Without reading: partials() are for others on the device.
  absl::Status Launch(Queue& queue, const SurfaceReach& reach, const DeviceBuffer<uint32_t>& vertex_groups,
                      const DeviceBuffer<Float4>& from, const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched);
  const DeviceBuffer<MovePartial>& partials() const { return partials_; }
  /// Both. Blocking.
  absl::StatusOr<Moves> Run(Queue& queue, const SurfaceReach& reach, const DeviceBuffer<uint32_t>& vertex_groups,
                            const DeviceBuffer<Float4>& from, const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched);

  size_t device_bytes() const { return partials_.size_bytes(); }

 private:
  uint32_t vertex_count_ = 0;
  Kernel check_moves_;
  DeviceBuffer<MovePartial> partials_;
  std::vector<MovePartial> partials_host_;
};

}  // namespace palpate::gpu
