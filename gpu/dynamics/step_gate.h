#pragma once

#include <cstdint>

#include "gpu/base/status.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/dynamics_types.h"

namespace palpate::gpu {

/// Lets the host enqueue a step to its end before it knows what the device finds on the way. Checks whose answer is nearly always that all
/// is well are judged on the device: one that finds something closes the gate (TissueBuffers::gate), and kernels that change the state do
/// nothing from then on. So the state stays as it was at that check, and the host, which reads the gate at the end, goes on from there with
/// the check that it would have waited for. The bits are those of a host that waits.
class StepGate {
 public:
  static constexpr uint32_t kOpen = 0;
  static constexpr uint32_t kEnd = 0xffffffffU;  ///< the number of the check at the end of a step

  /// `old` (or null): one that is given up, whose kernel is used again.
  absl::Status Init(Queue& queue, StepGate* old);

  /// Enqueues check `number`: closes an open gate if vertices are beyond what planes tell, or more than `limit` were held back, unless some
  /// are bad; with `asks_for_bad`, if some are.
  absl::Status JudgeMoves(Queue& queue, const DeviceBuffer<uint32_t>& gate, const DeviceBuffer<MovePartial>& moves, uint32_t limit,
                          bool asks_for_bad, uint32_t number);
  /// The same, if anything was counted.
  absl::Status JudgeObstacles(Queue& queue, const DeviceBuffer<uint32_t>& gate, const DeviceBuffer<ObstacleCounters>& counters,
                              uint32_t number);

  /// Enqueues reading which check has closed the gate: closed_by(), after the next blocking call.
  absl::Status EnqueueRead(Queue& queue, const DeviceBuffer<uint32_t>& gate);
  uint32_t closed_by() const { return closed_by_; }
  absl::Status Open(Queue& queue, const DeviceBuffer<uint32_t>& gate);

 private:
  uint32_t closed_by_ = kOpen;
  Kernel judge_moves_, judge_obstacles_;
};

}  // namespace palpate::gpu
