#include "gpu/dynamics/tangle_monitor.h"

#include <utility>

#include "gpu/dynamics/surface_kernels.h"

namespace palpate::gpu {

absl::Status TangleMonitor::Init(Queue& queue, uint32_t vertex_count, TangleMonitor* old) {
  if (old != nullptr) {
    counter_ = std::move(old->counter_);
  } else {
    PALPATE_ASSIGN_OR_RETURN(counter_, IntersectionCounter::Create(queue.context()));
  }
  PALPATE_RETURN_IF_ERROR(TakeOrCreate(queue, old == nullptr ? nullptr : &old->mark_tangled_, "mark_tangled", &mark_tangled_));
  PALPATE_ASSIGN_OR_RETURN(tangled_, DeviceBuffer<uint32_t>::Create(queue.context(), vertex_count, "surface tangled"));
  return queue.Zero(tangled_);
}

absl::Status TangleMonitor::EnqueueLook(Queue& queue, const DeviceSurface& surface, const DeviceBuffer<Float4>& x) {
  return counter_.Enqueue(queue, surface, x);
}

absl::Status TangleMonitor::TakeLook(Queue& queue, const DeviceSurface& surface, const DeviceBuffer<Float4>& x) {
  PALPATE_RETURN_IF_ERROR(counter_.Take(queue, surface, x));
  return Mark(queue, surface);
}

absl::Status TangleMonitor::Look(Queue& queue, const DeviceSurface& surface, const DeviceBuffer<Float4>& x) {
  PALPATE_RETURN_IF_ERROR(counter_.Run(queue, surface, x));
  return Mark(queue, surface);
}

/// What the counter found.
absl::Status TangleMonitor::Mark(Queue& queue, const DeviceSurface& surface) {
  const bool was_tangled = intersections_ > 0;
  intersections_ = counter_.crossing_count();
  if (was_tangled || intersections_ > 0) PALPATE_RETURN_IF_ERROR(queue.Zero(tangled_));
  return queue.Launch(mark_tangled_, {intersections_, kSurfaceGroup}, Arg("count", intersections_), Arg("crossings", counter_.crossings()),
                      Arg("edges", surface.edges), Arg("triangles", surface.triangles), Arg("tangled", tangled_));
}

absl::Status TangleMonitor::Forget(Queue& queue) {
  intersections_ = 0;
  return queue.Zero(tangled_);
}

absl::Status TangleMonitor::Follow(std::span<const uint32_t> slots, RunWriter* writer) {
  constexpr uint32_t kUnmarked = 0;
  for (const uint32_t slot : slots) PALPATE_RETURN_IF_ERROR(writer->Add(tangled_, std::span(&kUnmarked, 1), slot));
  return absl::OkStatus();
}

absl::Status TangleMonitor::SaveState(Queue& queue, StateWriter& archive) const {
  // All members, so that a new one is not forgotten.
  [[maybe_unused]] const auto& [intersections, counter, mark_tangled, tangled] = *this;
  std::vector<uint32_t> marks;
  if (intersections > 0) {
    marks.resize(tangled.count());
    PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(tangled, std::span<uint32_t>(marks)));
  }
  archive.Enter("TangleMonitor");
  archive(intersections, marks);
  return absl::OkStatus();
}

absl::Status TangleMonitor::LoadState(Queue& queue, StateReader& archive) {
  std::vector<uint32_t> marks;
  archive.Enter("TangleMonitor");
  archive(intersections_, marks);
  archive.Check(marks.size() == (intersections_ > 0 ? tangled_.count() : 0), "another number of vertices");
  PALPATE_RETURN_IF_ERROR(archive.status());
  return marks.empty() ? queue.Zero(tangled_) : queue.Write(tangled_, std::span<const uint32_t>(marks));
}

}  // namespace palpate::gpu
