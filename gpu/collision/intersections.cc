#include "gpu/collision/intersections.h"

#include <algorithm>
#include <array>
#include <string>

#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource intersections;
}
namespace {

constexpr uint64_t kMaxCrossings = 1ULL << 28;

}  // namespace

absl::StatusOr<IntersectionCounter> IntersectionCounter::Create(const std::shared_ptr<Context>& context,
                                                                const IntersectionOptions& options) {
  if (options.max_crossings == 0 || options.max_crossings > kMaxCrossings) {
    return absl::InvalidArgumentError(
        absl::StrCat("intersections: max_crossings is ", options.max_crossings, ", it must be in [1, ", kMaxCrossings, "]"));
  }
  IntersectionCounter counter;
  counter.context_ = context;
  counter.options_ = options;
  const ProgramDefines defines = {{"USE_DOUBLE", context->device().has_fp64 ? "1" : "0"}};
  const auto& source = kernels::intersections;
  PALPATE_ASSIGN_OR_RETURN(counter.boxes_kernel_, context->CreateKernel(source, "intersections_boxes", defines));
  PALPATE_ASSIGN_OR_RETURN(counter.detect_, context->CreateKernel(source, "intersections_detect", defines));
  PALPATE_ASSIGN_OR_RETURN(counter.records_, context->CreateKernel(source, "intersections_records", defines));
  counter.candidates_ = CandidateStructures::Create(context, options.max_cluster_pairs, options.candidates);
  PALPATE_ASSIGN_OR_RETURN(counter.counters_, DeviceBuffer<uint32_t>::Create(context, kCounters, "intersection counters"));
  PALPATE_RETURN_IF_ERROR(counter.keys_.Reserve(context, 0, options.max_crossings));
  return counter;
}

/// Boxes and clusters of the triangles; null if there are none.
absl::StatusOr<CandidatePairs*> IntersectionCounter::Begin(Queue& queue, const DeviceSurface& surface, BufferView<Float4> positions_m) {
  crossing_count_ = 0;
  touching_count_ = 0;
  is_enqueued_ = false;
  if (positions_m.count < surface.vertex_count) {
    return absl::InvalidArgumentError(
        absl::StrCat("intersections: ", positions_m.count, " positions for ", surface.vertex_count, " vertices"));
  }
  const uint32_t triangle_count = surface.triangle_count;
  if (!boxes_ || boxes_.count() < triangle_count) {
    boxes_ = {};
    flags_ = {};
    PALPATE_ASSIGN_OR_RETURN(boxes_, DeviceBuffer<Box>::Create(context_, triangle_count, "intersection boxes"));
    PALPATE_ASSIGN_OR_RETURN(flags_, DeviceBuffer<uint32_t>::Create(context_, triangle_count, "intersection flags"));
  }
  if (triangle_count == 0) return nullptr;
  PALPATE_ASSIGN_OR_RETURN(CandidatePairs* const candidates, candidates_.For(surface));
  PALPATE_RETURN_IF_ERROR(Annotate(candidates->Begin(queue, surface, positions_m, positions_m, 0, {}), "intersections"));
  PALPATE_RETURN_IF_ERROR(queue.Zero(counters_));
  PALPATE_RETURN_IF_ERROR(queue.Launch(boxes_kernel_, {triangle_count, 64}, Arg("triangle_count", triangle_count),
                                       Arg("triangles", surface.triangles), Arg("groups", surface.groups),
                                       Arg("active_bodies", candidates->active_bodies()), Arg("positions", positions_m),
                                       Arg("boxes", boxes_), Arg("flags", flags_), Arg("counters", counters_)));
  PALPATE_ASSIGN_OR_RETURN(clusters_, candidates->Add(queue, SurfaceElement::kTriangle, boxes_));
  return candidates;
}

absl::Status IntersectionCounter::LaunchDetect(Queue& queue, const DeviceSurface& surface, BufferView<Float4> positions_m,
                                               BufferView<UInt2> pairs, uint32_t pair_count, BufferView<uint32_t> found) {
  const bool is_gpu = context_->device().is_gpu;
  const uint32_t chunk = is_gpu ? 1 : std::clamp(pair_count / (64 * context_->device().compute_units), 1U, 64U);
  const Range range = {(pair_count + chunk - 1) / chunk, is_gpu ? size_t{64} : size_t{1}};
  return queue.Launch(detect_, range, Arg("nodes", clusters_.nodes), Arg("node_groups", clusters_.groups),
                      Arg("elements", clusters_.elements), Arg("apart", surface.apart), Arg("cluster_pairs", pairs),
                      Arg("pair_count", pair_count), Arg("found", found), Arg("chunk", chunk), Arg("triangles", surface.triangles),
                      Arg("triangle_edges", surface.triangle_edges), Arg("positions", positions_m),
                      Arg("edge_shift", BitsFor(surface.triangle_count)), Arg("capacity", keys_.capacity()),
                      Arg("max_crossings", static_cast<uint32_t>(options_.max_crossings)), Arg("keys", keys_.keys()), Arg("flags", flags_),
                      Arg("counters", counters_));
}

absl::Status IntersectionCounter::Enqueue(Queue& queue, const DeviceSurface& surface, BufferView<Float4> positions_m) {
  is_enqueued_ = false;
  if (!last_found_ || surface.triangle_count == 0) return absl::OkStatus();
  PALPATE_ASSIGN_OR_RETURN(CandidatePairs * candidates, candidates_.For(surface));
  if (!candidates->finds_on_device()) return absl::OkStatus();
  PALPATE_ASSIGN_OR_RETURN(candidates, Begin(queue, surface, positions_m));
  PALPATE_ASSIGN_OR_RETURN(const ClusterPairsOnDevice pairs,
                           candidates->FindOnDevice(queue, SurfaceElement::kTriangle, SurfaceElement::kTriangle));
  room_ = static_cast<uint32_t>(std::min<uint64_t>(uint64_t{*last_found_} + *last_found_ / 2 + 64, pairs.pairs.count));
  PALPATE_RETURN_IF_ERROR(LaunchDetect(queue, surface, positions_m, pairs.pairs, room_, *pairs.count));
  PALPATE_RETURN_IF_ERROR(queue.EnqueueRead(*pairs.count, found_host_));
  PALPATE_RETURN_IF_ERROR(queue.EnqueueRead(counters_, counted_));
  is_enqueued_ = true;
  return absl::OkStatus();
}

absl::Status IntersectionCounter::Take(Queue& queue, const DeviceSurface& surface, BufferView<Float4> positions_m) {
  const bool is_usual = is_enqueued_ && found_host_[1] == 0 && found_host_[0] <= room_ && counted_[0] == 0 && counted_[1] == 0;
  if (!is_usual) return Run(queue, surface, positions_m);
  is_enqueued_ = false;
  last_found_ = found_host_[0];
  crossing_count_ = 0;
  touching_count_ = counted_[2];
  return absl::OkStatus();
}

absl::Status IntersectionCounter::Run(Queue& queue, const DeviceSurface& surface, BufferView<Float4> positions_m) {
  PALPATE_ASSIGN_OR_RETURN(CandidatePairs* const candidates, Begin(queue, surface, positions_m));
  if (candidates == nullptr) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(Annotate(candidates->Find(queue, SurfaceElement::kTriangle, SurfaceElement::kTriangle), "intersections"));
  last_found_ = candidates->count();
  const uint32_t edge_shift = BitsFor(surface.triangle_count);
  std::array<uint32_t, kCounters> counters = {};
  for (;;) {
    PALPATE_RETURN_IF_ERROR(LaunchDetect(queue, surface, positions_m, candidates->pairs(), candidates->count(), {}));
    PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(counters_, counters));
    if (counters[1] != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("intersections: the position of vertex ", ~counters[1], " is not finite or beyond 1e8 m"));
    }
    if (counters[0] > options_.max_crossings) {
      return absl::ResourceExhaustedError(
          absl::StrCat("intersections: more than max_crossings = ", options_.max_crossings, " edges pierce triangles"));
    }
    if (counters[0] <= keys_.capacity()) break;
    PALPATE_RETURN_IF_ERROR(keys_.Reserve(context_, counters[0], options_.max_crossings));
    PALPATE_RETURN_IF_ERROR(queue.Zero(counters_));
  }
  if (!crossings_ || crossings_.count() < counters[0]) {
    crossings_ = {};
    PALPATE_ASSIGN_OR_RETURN(crossings_, DeviceBuffer<UInt2>::Create(context_, keys_.capacity(), "crossings"));
  }
  crossing_count_ = counters[0];
  touching_count_ = counters[2];
  if (crossing_count_ == 0) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(keys_.Sort(queue, crossing_count_, edge_shift + BitsFor(surface.edge_count)));
  return queue.Launch(records_, {crossing_count_, 64}, Arg("count", crossing_count_), Arg("keys", keys_.sorted()),
                      Arg("edge_shift", edge_shift), Arg("edge_triangle_range", surface.edge_triangle_range),
                      Arg("edge_triangles", surface.edge_triangles), Arg("crossings", crossings_), Arg("flags", flags_));
}

}  // namespace palpate::gpu
