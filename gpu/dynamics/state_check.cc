#include "gpu/dynamics/state_check.h"

#include <algorithm>
#include <utility>

namespace palpate::gpu {

namespace kernels {
extern const KernelSource tissue;
}  // namespace kernels

absl::Status StateCheck::Init(Queue& queue, const ProgramDefines& defines, uint32_t partials, StateCheck* old) {
  partials_host_.resize(partials);
  PALPATE_ASSIGN_OR_RETURN(partials_, DeviceBuffer<StepPartial>::Create(queue.context(), partials, "step_partials"));
  PALPATE_RETURN_IF_ERROR(queue.Zero(partials_));
  if (old != nullptr) {
    finish_step_ = std::move(old->finish_step_);
    inspect_state_ = std::move(old->inspect_state_);
    return absl::OkStatus();
  }
  PALPATE_ASSIGN_OR_RETURN(finish_step_, queue.context()->CreateKernel(kernels::tissue, "finish_step", defines));
  PALPATE_ASSIGN_OR_RETURN(inspect_state_, queue.context()->CreateKernel(kernels::tissue, "inspect_state", defines));
  return absl::OkStatus();
}

absl::Status StateCheck::Bind(const TissueBuffers& tissue) {
  PALPATE_RETURN_IF_ERROR(finish_step_.Bind(Arg("p", tissue.params), Arg("gate", tissue.gate), Arg("x", tissue.x),
                                            Arg("x_start", tissue.x_start), Arg("velocity", tissue.velocity),
                                            Arg("velocity_before", tissue.velocity_before), Arg("mass", tissue.mass),
                                            Arg("original_index", tissue.original_index), Arg("tets", tissue.tets),
                                            Arg("tet_rest", tissue.tet_rest), Arg("partials", partials_)));
  return inspect_state_.Bind(Arg("p", tissue.params), Arg("x", tissue.x), Arg("velocity", tissue.velocity), Arg("mass", tissue.mass),
                             Arg("original_index", tissue.original_index), Arg("tets", tissue.tets), Arg("tet_rest", tissue.tet_rest),
                             Arg("partials", partials_));
}

absl::Status StateCheck::Finish(Queue& queue) { return queue.Enqueue(finish_step_, Partials()); }
absl::Status StateCheck::Inspect(Queue& queue) { return queue.Enqueue(inspect_state_, Partials()); }

absl::StatusOr<StateSums> StateCheck::Read(Queue& queue) {
  PALPATE_RETURN_IF_ERROR(EnqueueRead(queue));
  PALPATE_RETURN_IF_ERROR(queue.FinishBlocking());
  return Take();
}

absl::Status StateCheck::EnqueueRead(Queue& queue) { return queue.EnqueueRead(partials_, std::span<StepPartial>(partials_host_)); }

StateSums StateCheck::Take() const {
  StateSums sums;
  for (const StepPartial& partial : partials_host_) {
    sums.hash += partial.hash;
    sums.kinetic_energy_j += partial.kinetic_energy_j;
    sums.max_speed_m_per_s = std::max<double>(sums.max_speed_m_per_s, partial.max_speed_m_per_s);
    sums.bad_vertices += partial.bad_vertices;
    sums.inverted_tets += partial.inverted_tets;
    sums.inverted_elastic += partial.inverted_elastic;
    sums.strained_tets += partial.strained_tets;
  }
  return sums;
}

absl::Status GatheredPositions::Init(Queue& queue, const ProgramDefines& defines, GatheredPositions* old) {
  PALPATE_ASSIGN_OR_RETURN(indices_, DeviceBuffer<uint32_t>::Create(queue.context(), 0, "gathered_index"));
  PALPATE_ASSIGN_OR_RETURN(packed_, DeviceBuffer<float>::Create(queue.context(), 0, "gathered"));
  if (old != nullptr) {
    gather_positions_ = std::move(old->gather_positions_);
    return absl::OkStatus();
  }
  PALPATE_ASSIGN_OR_RETURN(gather_positions_, queue.context()->CreateKernel(kernels::tissue, "gather_positions", defines));
  return absl::OkStatus();
}

absl::Status GatheredPositions::Set(Queue& queue, const TissueBuffers& tissue, std::span<const uint32_t> slots) {
  count_ = static_cast<uint32_t>(slots.size());
  const size_t room = std::max<size_t>(slots.size(), 1);
  PALPATE_RETURN_IF_ERROR(Grow(queue.context(), indices_, room, "gathered_index"));
  PALPATE_RETURN_IF_ERROR(Grow(queue.context(), packed_, room * 3, "gathered"));
  PALPATE_RETURN_IF_ERROR(queue.Write(indices_, slots));
  host_.assign(slots.size() * 3, 0.0F);
  return gather_positions_.Bind(Arg("count", count_), Arg("x", tissue.x), Arg("indices", indices_), Arg("packed", packed_));
}

void GatheredPositions::Clear() {
  count_ = 0;
  host_.clear();
}

absl::Status GatheredPositions::EnqueueRead(Queue& queue) {
  if (count_ == 0) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(queue.Enqueue(gather_positions_, {count_, 0}));
  return queue.EnqueueRead(packed_, std::span<float>(host_));
}

}  // namespace palpate::gpu
