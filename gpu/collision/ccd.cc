#include "gpu/collision/ccd.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/strings/str_format.h"
#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource ccd;
}
namespace {

// Small: a CPU driver keeps the variables of a whole group on one stack, and left to itself may choose thousands of work-items.
constexpr size_t kLocalSize = 32;
constexpr uint32_t kNoHit = 0xffffffffU;
constexpr uint32_t kIntervalFloats = 36 * BoxHierarchy::kWidth;
constexpr uint32_t kIds = 3 * BoxHierarchy::kWidth;
constexpr uint32_t kKinds[2] = {PALPATE_VERTEX_TRIANGLE, PALPATE_EDGE_EDGE};
constexpr uint64_t kMaxCapacity = 1ULL << 31;

uint64_t Wide(const UInt* words) { return uint64_t{words[1]} << 32 | words[0]; }

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

absl::StatusOr<ContinuousCollisions> ContinuousCollisions::Create(const std::shared_ptr<Context>& context,
                                                                  const CcdDetectorOptions& options) {
  PALPATE_RETURN_IF_ERROR(options.Validate());
  if (options.max_pairs < 1 || options.max_pairs > kMaxCapacity) {
    return absl::InvalidArgumentError(absl::StrFormat("CcdDetectorOptions.max_pairs: %d is not in [1, 2^31]", options.max_pairs));
  }
  if (options.max_hits < 1 || options.max_hits > kMaxCapacity) {
    return absl::InvalidArgumentError(absl::StrFormat("CcdDetectorOptions.max_hits: %d is not in [1, 2^31]", options.max_hits));
  }
  ContinuousCollisions detector;
  detector.context_ = context;
  detector.options_ = options;
  detector.is_double_ = options.use_double && context->device().has_fp64;
  PALPATE_ASSIGN_OR_RETURN(detector.float_kernels_, detector.CreateKernels(false));
  for (Elements* elements : {&detector.vertices_, &detector.edges_, &detector.triangles_}) {
    PALPATE_ASSIGN_OR_RETURN(elements->tree, BoxHierarchy::Create(context));
  }
  PALPATE_ASSIGN_OR_RETURN(detector.cluster_pairs_, ClusterPairs::Create(context));
  PALPATE_ASSIGN_OR_RETURN(detector.counters_, DeviceBuffer<CcdCounters>::Create(context, 1, "ccd counters"));
  return detector;
}

absl::StatusOr<ContinuousCollisions::Kernels> ContinuousCollisions::CreateKernels(bool input_double) const {
  const ProgramDefines defines = {{"CCD_DOUBLE", is_double_ ? "1" : "0"}, {"CCD_INPUT_DOUBLE", input_double ? "1" : "0"}};
  Kernels result;
  PALPATE_ASSIGN_OR_RETURN(result.boxes, context_->CreateKernel(kernels::ccd, "ccd_boxes", defines));
  PALPATE_ASSIGN_OR_RETURN(result.lanes, context_->CreateKernel(kernels::ccd, "ccd_lanes", defines));
  PALPATE_ASSIGN_OR_RETURN(result.candidates, context_->CreateKernel(kernels::ccd, "ccd_candidates", defines));
  PALPATE_ASSIGN_OR_RETURN(result.decide, context_->CreateKernel(kernels::ccd, "ccd_decide", defines));
  PALPATE_ASSIGN_OR_RETURN(result.gather, context_->CreateKernel(kernels::ccd, "ccd_gather_hits", defines));
  return result;
}

absl::Status ContinuousCollisions::SetTopology(Queue& queue, const SurfaceTopology& topology) {
  PALPATE_ASSIGN_OR_RETURN(DeviceSurface surface, DeviceSurface::Upload(queue, topology));
  SetSurface(std::make_shared<const DeviceSurface>(std::move(surface)));
  return absl::OkStatus();
}

void ContinuousCollisions::SetSurface(std::shared_ptr<const DeviceSurface> surface) {
  hit_count_ = 0;
  surface_ = std::move(surface);
  const auto set = [](Elements& elements, uint32_t count, uint32_t corners, uint32_t stride, cl_mem handle, BufferView<uint32_t> groups) {
    elements.count = count;
    elements.corner_count = corners;
    elements.stride = stride;
    elements.corners = {handle, size_t{count} * stride};
    elements.groups = groups;
  };
  set(vertices_, surface_->vertex_count, 1, 1, nullptr, surface_->vertex_groups);
  set(edges_, surface_->edge_count, 2, 2, surface_->edges.handle(), surface_->edge_groups);
  set(triangles_, surface_->triangle_count, 3, 4, surface_->triangles.handle(), surface_->groups);
  const uint32_t b_bits = std::bit_width(std::max(surface_->triangle_count, surface_->edge_count));
  a_shift_ = b_bits;
  kind_shift_ = a_shift_ + std::bit_width(std::max(surface_->vertex_count, surface_->edge_count));
  has_topology_ = true;
}

absl::Status ContinuousCollisions::ReadCounters(Queue& queue, CcdCounters* counters) const {
  return queue.ReadBlocking(counters_, std::span<CcdCounters>(counters, 1));
}

absl::Status ContinuousCollisions::WriteCounters(Queue& queue, const CcdCounters& counters) const {
  return queue.Write(counters_, std::span<const CcdCounters>(&counters, 1));
}

template <typename Position>
absl::Status ContinuousCollisions::Build(Queue& queue, Kernels& kernels, Elements& elements, BufferView<Position> starts,
                                         BufferView<Position> ends) {
  PALPATE_RETURN_IF_ERROR(Grow(context_, elements.boxes, elements.count, "ccd boxes"));
  const auto half_separation = static_cast<float>(options_.separation_m / 2);
  PALPATE_RETURN_IF_ERROR(queue.Launch(kernels.boxes, {elements.count, kLocalSize}, elements.count, elements.corner_count, elements.stride,
                                       elements.corners, elements.groups, starts, ends, half_separation, elements.boxes, counters_));
  PALPATE_RETURN_IF_ERROR(elements.tree.Build(queue, elements.boxes, elements.groups, elements.count, surface_->body_count));
  const uint32_t clusters = elements.tree.cluster_count();
  PALPATE_RETURN_IF_ERROR(Grow(context_, elements.intervals, size_t{clusters} * kIntervalFloats, "ccd intervals"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, elements.ids, size_t{clusters} * kIds, "ccd corners"));
  return queue.Launch(kernels.lanes, {clusters, kLocalSize}, clusters, elements.corner_count, elements.stride, elements.corners,
                      elements.tree.elements(), starts, ends, half_separation, elements.intervals, elements.ids);
}

absl::Status ContinuousCollisions::Find(Queue& queue, Kernels& kernels, uint32_t kind) {
  const bool is_within = kind == PALPATE_EDGE_EDGE;
  Elements& p = is_within ? edges_ : vertices_;
  Elements& q = is_within ? edges_ : triangles_;
  if (is_within) {
    PALPATE_RETURN_IF_ERROR(cluster_pairs_.FindWithin(queue, p.tree));
  } else {
    PALPATE_RETURN_IF_ERROR(cluster_pairs_.FindBetween(queue, p.tree, q.tree));
  }
  const uint32_t cluster_pairs = cluster_pairs_.count();
  statistics_.cluster_pairs[kind] = cluster_pairs;
  if (cluster_pairs == 0) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(Grow(context_, pairs_[kind], 4096, "ccd pairs"));
  const uint32_t chunk = context_->device().is_gpu ? 1 : 64;
  const size_t items = (cluster_pairs + chunk - 1) / chunk;
  for (;;) {
    const auto capacity = static_cast<uint32_t>(std::min<uint64_t>(pairs_[kind].count(), options_.max_pairs));
    PALPATE_RETURN_IF_ERROR(queue.Launch(kernels.candidates, {items, context_->device().is_gpu ? size_t{64} : size_t{1}},
                                         uint32_t{is_within}, uint32_t{!options_.candidates_only}, p.corner_count, q.corner_count,
                                         cluster_pairs, chunk, cluster_pairs_.pairs(), p.tree.nodes(), p.tree.node_groups(),
                                         p.tree.elements(), p.intervals, p.ids, q.tree.nodes(), q.tree.node_groups(), q.tree.elements(),
                                         q.intervals, q.ids, capacity, pairs_[kind], counters_));
    CcdCounters counters;
    PALPATE_RETURN_IF_ERROR(ReadCounters(queue, &counters));
    statistics_.candidates[kind] = Wide(counters.candidates[kind]);
    statistics_.pairs[kind] = counters.pairs[kind];
    // The count of pairs wraps at 2^32, that of the candidates it is a part of does not.
    if (counters.pairs[kind] > options_.max_pairs || statistics_.candidates[kind] > std::numeric_limits<uint32_t>::max()) {
      return absl::ResourceExhaustedError(absl::StrFormat("ccd: %d candidates, %d of them undecided; CcdDetectorOptions.max_pairs is %d",
                                                          statistics_.candidates[kind], counters.pairs[kind], options_.max_pairs));
    }
    if (counters.pairs[kind] <= capacity) return absl::OkStatus();
    PALPATE_RETURN_IF_ERROR(Grow(context_, pairs_[kind], counters.pairs[kind], "ccd pairs"));
    counters.pairs[kind] = 0;
    counters.candidates[kind][0] = counters.candidates[kind][1] = 0;
    PALPATE_RETURN_IF_ERROR(WriteCounters(queue, counters));
  }
}

template <typename Position>
absl::Status ContinuousCollisions::Decide(Queue& queue, Kernels& kernels, BufferView<Position> starts, BufferView<Position> ends) {
  PALPATE_RETURN_IF_ERROR(Grow(context_, hits_, 1024, "ccd hits"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, keys_, hits_.count(), "ccd keys"));
  CcdCounters counters;
  for (;;) {
    const auto capacity = static_cast<uint32_t>(std::min<uint64_t>(hits_.count(), options_.max_hits));
    for (const uint32_t kind : kKinds) {
      const auto pair_count = static_cast<uint32_t>(statistics_.pairs[kind]);
      // Some drivers compile a kernel when it is first launched, this one for a second: with nothing to do in the first call, rather than
      // at the first close pair, in the middle of a cut.
      if (pair_count == 0 && kernels.are_compiled) continue;
      const auto launch = [&](auto zero) {
        using Real = decltype(zero);
        // A device may take denormal floats for zero.
        const Real input_error = std::is_same_v<Real, float> ? 4 * std::numeric_limits<Real>::min() : 0;
        return queue.Launch(kernels.decide, {std::max(pair_count, 1U), kLocalSize}, kind, pair_count, pairs_[kind], surface_->edges,
                            surface_->triangles, starts, ends, static_cast<Real>(options_.separation_m), input_error,
                            static_cast<Real>(options_.tolerance), options_.max_steps, a_shift_, kind_shift_, capacity, hits_, keys_,
                            counters_);
      };
      PALPATE_RETURN_IF_ERROR(is_double_ ? launch(double{}) : launch(float{}));
      PALPATE_RETURN_IF_ERROR(ReadCounters(queue, &counters));
      statistics_.hits[kind] = counters.hits - (kind == kKinds[0] ? 0 : statistics_.hits[kKinds[0]]);
    }
    if (!kernels.are_compiled) {
      PALPATE_RETURN_IF_ERROR(queue.Launch(kernels.gather, {1, kLocalSize}, 0U, hits_, order_, sorted_hits_));
      kernels.are_compiled = true;
    }
    if (statistics_.pairs[0] + statistics_.pairs[1] == 0) return absl::OkStatus();
    if (counters.hits > options_.max_hits) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("ccd: %d hits; CcdDetectorOptions.max_hits is %d", counters.hits, options_.max_hits));
    }
    if (counters.hits <= capacity) break;
    PALPATE_RETURN_IF_ERROR(Grow(context_, hits_, counters.hits, "ccd hits"));
    PALPATE_RETURN_IF_ERROR(Grow(context_, keys_, hits_.count(), "ccd keys"));
    counters.hits = 0;
    counters.earliest_bits = kNoHit;
    PALPATE_RETURN_IF_ERROR(WriteCounters(queue, counters));
  }
  if (counters.hits == 0) return absl::OkStatus();
  statistics_.earliest_toi = std::bit_cast<float>(counters.earliest_bits);
  if (sorted_keys_.count() < counters.hits) {
    PALPATE_RETURN_IF_ERROR(Grow(context_, sorted_keys_, hits_.count(), "ccd sorted keys"));
    PALPATE_RETURN_IF_ERROR(Grow(context_, order_, hits_.count(), "ccd order"));
    PALPATE_RETURN_IF_ERROR(Grow(context_, sorted_hits_, hits_.count(), "ccd sorted hits"));
    PALPATE_ASSIGN_OR_RETURN(sort_, RadixSort<uint64_t>::Create(context_, static_cast<uint32_t>(hits_.count())));
  }
  PALPATE_RETURN_IF_ERROR(sort_.Run(queue, keys_, {}, counters.hits, sorted_keys_, order_, {0, kind_shift_ + 1}));
  PALPATE_RETURN_IF_ERROR(queue.Launch(kernels.gather, {counters.hits, kLocalSize}, counters.hits, hits_, order_, sorted_hits_));
  hit_count_ = counters.hits;
  return absl::OkStatus();
}

template <typename Position>
absl::Status ContinuousCollisions::RunAs(Queue& queue, Kernels& kernels, BufferView<Position> starts, BufferView<Position> ends,
                                         size_t needed) {
  hit_count_ = 0;
  statistics_ = {};
  if (!has_topology_) return absl::FailedPreconditionError("ccd: SetTopology comes before Run");
  PALPATE_RETURN_IF_ERROR(CheckCapacity("ContinuousCollisions", "starts", starts.count, needed));
  PALPATE_RETURN_IF_ERROR(CheckCapacity("ContinuousCollisions", "ends", ends.count, needed));
  if (triangles_.count == 0) return absl::OkStatus();
  CcdCounters counters = {};
  counters.earliest_bits = kNoHit;
  PALPATE_RETURN_IF_ERROR(WriteCounters(queue, counters));

  double stage_begin = Now();
  const auto end_stage = [&](double* seconds) {
    if (!options_.measure_stages) return absl::OkStatus();
    PALPATE_RETURN_IF_ERROR(queue.FinishBlocking());
    const double now = Now();
    *seconds = now - stage_begin;
    stage_begin = now;
    return absl::OkStatus();
  };
  for (Elements* elements : {&vertices_, &edges_, &triangles_}) PALPATE_RETURN_IF_ERROR(Build(queue, kernels, *elements, starts, ends));
  PALPATE_RETURN_IF_ERROR(end_stage(&statistics_.build_seconds));
  for (const uint32_t kind : kKinds) PALPATE_RETURN_IF_ERROR(Find(queue, kernels, kind));
  PALPATE_RETURN_IF_ERROR(end_stage(&statistics_.find_seconds));
  PALPATE_RETURN_IF_ERROR(ReadCounters(queue, &counters));
  if (counters.bad_vertex != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("ccd: the coordinates of vertex %d are not finite or beyond 1e30 m", ~counters.bad_vertex));
  }
  if (options_.candidates_only) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(Decide(queue, kernels, starts, ends));
  return end_stage(&statistics_.decide_seconds);
}

absl::Status ContinuousCollisions::Run(Queue& queue, BufferView<Float4> starts_m, BufferView<Float4> ends_m) {
  return RunAs(queue, float_kernels_, starts_m, ends_m, surface_->vertex_count);
}

absl::Status ContinuousCollisions::RunDouble(Queue& queue, BufferView<double> starts_m, BufferView<double> ends_m) {
  if (!is_double_) return absl::FailedPreconditionError("ccd: positions in double need a device with double");
  if (!double_kernels_.boxes) {
    PALPATE_ASSIGN_OR_RETURN(double_kernels_, CreateKernels(true));
  }
  return RunAs(queue, double_kernels_, starts_m, ends_m, size_t{3} * surface_->vertex_count);
}

absl::StatusOr<std::vector<UInt2>> ContinuousCollisions::CandidatePairs(Queue& queue, uint32_t kind) const {
  std::vector<UInt2> pairs(statistics_.pairs[kind]);
  if (!pairs.empty()) PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(pairs_[kind], pairs));
  return pairs;
}

}  // namespace palpate::gpu
