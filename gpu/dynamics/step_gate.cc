#include "gpu/dynamics/step_gate.h"

#include <span>

#include "gpu/dynamics/surface_kernels.h"

namespace palpate::gpu {

absl::Status StepGate::Init(Queue& queue, StepGate* old) {
  PALPATE_RETURN_IF_ERROR(TakeOrCreate(queue, old == nullptr ? nullptr : &old->judge_moves_, "judge_moves", &judge_moves_));
  return TakeOrCreate(queue, old == nullptr ? nullptr : &old->judge_obstacles_, "judge_obstacles", &judge_obstacles_);
}

absl::Status StepGate::JudgeMoves(Queue& queue, const DeviceBuffer<uint32_t>& gate, const DeviceBuffer<MovePartial>& moves, uint32_t limit,
                                  bool asks_for_bad, uint32_t number) {
  return queue.Launch(judge_moves_, {1, 1}, Arg("parts", static_cast<uint32_t>(moves.count())), Arg("moves", moves), Arg("limit", limit),
                      Arg("asks_for_bad", uint32_t{asks_for_bad ? 1U : 0U}), Arg("number", number), Arg("gate", gate));
}

absl::Status StepGate::JudgeObstacles(Queue& queue, const DeviceBuffer<uint32_t>& gate, const DeviceBuffer<ObstacleCounters>& counters,
                                      uint32_t number) {
  return queue.Launch(judge_obstacles_, {1, 1}, Arg("counters", counters), Arg("number", number), Arg("gate", gate));
}

absl::Status StepGate::EnqueueRead(Queue& queue, const DeviceBuffer<uint32_t>& gate) {
  return queue.EnqueueRead(gate, std::span<uint32_t>(&closed_by_, 1));
}

absl::Status StepGate::Open(Queue& queue, const DeviceBuffer<uint32_t>& gate) {
  closed_by_ = kOpen;
  return queue.Fill(gate, kOpen);
}

}  // namespace palpate::gpu
