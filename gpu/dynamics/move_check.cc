#include "gpu/dynamics/move_check.h"

#include <algorithm>
#include <span>

#include "gpu/dynamics/surface_kernels.h"

namespace palpate::gpu {

absl::Status MoveCheck::Init(Queue& queue, uint32_t vertex_count, uint32_t partials, MoveCheck* old) {
  vertex_count_ = vertex_count;
  partials_host_.resize(partials);
  PALPATE_ASSIGN_OR_RETURN(partials_, DeviceBuffer<MovePartial>::Create(queue.context(), partials, "surface moves"));
  return TakeOrCreate(queue, old == nullptr ? nullptr : &old->check_moves_, "check_moves", &check_moves_);
}

absl::StatusOr<Moves> MoveCheck::Run(Queue& queue, const SurfaceReach& reach, const DeviceBuffer<uint32_t>& vertex_groups,
                                     const DeviceBuffer<Float4>& from, const DeviceBuffer<Float4>& x,
                                     const DeviceBuffer<uint8_t>& touched) {
  PALPATE_RETURN_IF_ERROR(Enqueue(queue, reach, vertex_groups, from, x, touched));
  PALPATE_RETURN_IF_ERROR(queue.FinishBlocking());
  return Take();
}

absl::Status MoveCheck::Enqueue(Queue& queue, const SurfaceReach& reach, const DeviceBuffer<uint32_t>& vertex_groups,
                                const DeviceBuffer<Float4>& from, const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched) {
  PALPATE_RETURN_IF_ERROR(Launch(queue, reach, vertex_groups, from, x, touched));
  return queue.EnqueueRead(partials_, std::span<MovePartial>(partials_host_));
}

absl::Status MoveCheck::Launch(Queue& queue, const SurfaceReach& reach, const DeviceBuffer<uint32_t>& vertex_groups,
                               const DeviceBuffer<Float4>& from, const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched) {
  const size_t parts = partials_host_.size();
  return queue.Launch(check_moves_, {parts, parts % kSurfaceGroup == 0 ? kSurfaceGroup : 1}, Arg("vertex_count", vertex_count_),
                      Arg("p", reach.params()), Arg("reaches", reach.reaches()), Arg("caps", reach.caps()), Arg("spare", reach.spare()),
                      Arg("x", x), Arg("detected", from), Arg("vertex_groups", vertex_groups), Arg("touched", touched),
                      Arg("partials", partials_));
}

Moves MoveCheck::Take() const {
  Moves moves;
  for (const MovePartial& p : partials_host_) {
    moves.beyond_cap += p.beyond_cap;
    moves.truncated += p.truncated;
    moves.bad += p.bad;
    moves.used_up += p.used_up;
    moves.longest_m = std::max(moves.longest_m, p.longest_m);
  }
  return moves;
}

}  // namespace palpate::gpu
