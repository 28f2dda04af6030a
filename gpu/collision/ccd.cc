#include "gpu/collision/ccd.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/strings/str_format.h"
#include "gpu/collision/box_hierarchy.h"
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
constexpr uint32_t kPairsPerClusterPair = BoxHierarchy::kWidth * BoxHierarchy::kWidth;
// Shares of batch_pairs: cluster pairs searched at a time, which rarely give more than a few undecided pairs each, and pairs decided before
// the hits are compared with their limit.
constexpr uint32_t kPairsExpected = 16;
constexpr uint32_t kDecisionsShare = 8;
constexpr uint32_t kMaxBatchPairs = 1U << 26;
// Pairs there is always room for where they are found and decided without waiting. Work-items without a pair are not free.
constexpr uint32_t kLeastRoom = 64;
// Up to so many hits each is compared with all others: one launch instead of a dozen.
constexpr uint32_t kRankedHits = 1024;
// Up to this many hits the list grows as they come. Beyond, all are counted first: there may be more than any memory holds.
constexpr uint32_t kHitsWorthCopying = 1U << 18;
static_assert(uint64_t{kMaxBatchPairs} / kPairsExpected * kPairsPerClusterPair + kMaxCapacity < uint64_t{1} << 32, "counts do not wrap");

/// Work-items of a group where each has a run of cluster pairs.
size_t PairGroup(const DeviceInfo& device) { return device.is_gpu ? 64 : 1; }

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

absl::Status CheckLimit(const char* name, uint64_t value, uint64_t least, uint64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("CcdDetectorOptions.%s: %d is not in [%d, %d]", name, value, least, most));
}

absl::Status PastLimit(const char* name, uint64_t limit, const char* of_what) {
  return absl::ResourceExhaustedError(absl::StrFormat("ccd: more than CcdDetectorOptions.%s = %d %s", name, limit, of_what));
}

}  // namespace

// Times the stages where that was asked for.
struct ContinuousCollisions::StageClock {
  Queue& queue;
  bool is_on = false;
  double begin = Now();

  absl::Status End(double* seconds) {
    if (!is_on) return absl::OkStatus();
    PALPATE_RETURN_IF_ERROR(queue.FinishBlocking());
    const double now = Now();
    *seconds += now - begin;
    begin = now;
    return absl::OkStatus();
  }
};

absl::StatusOr<ContinuousCollisions> ContinuousCollisions::Create(const std::shared_ptr<Context>& context,
                                                                  const CcdDetectorOptions& options) {
  PALPATE_RETURN_IF_ERROR(options.Validate());
  PALPATE_RETURN_IF_ERROR(CheckLimit("max_cluster_pairs", options.max_cluster_pairs, 1, std::numeric_limits<uint32_t>::max()));
  PALPATE_RETURN_IF_ERROR(CheckLimit("max_candidates", options.max_candidates, 1, 1ULL << 48));
  PALPATE_RETURN_IF_ERROR(CheckLimit("max_pairs", options.max_pairs, 1, kMaxCapacity));
  PALPATE_RETURN_IF_ERROR(CheckLimit("max_hits", options.max_hits, 1, kMaxCapacity));
  PALPATE_RETURN_IF_ERROR(CheckLimit("batch_pairs", options.batch_pairs, kPairsPerClusterPair, kMaxBatchPairs));
  ContinuousCollisions detector;
  detector.context_ = context;
  detector.options_ = options;
  detector.is_double_ = options.use_double && context->device().has_fp64;
  PALPATE_ASSIGN_OR_RETURN(detector.float_kernels_, detector.CreateKernels(false));
  detector.candidate_structures_ = CandidateStructures::Create(context, options.max_cluster_pairs, options.candidates);
  PALPATE_ASSIGN_OR_RETURN(detector.counters_, DeviceBuffer<CcdCounters>::Create(context, 1, "ccd counters"));
  PALPATE_ASSIGN_OR_RETURN(detector.edge_counters_, DeviceBuffer<CcdCounters>::Create(context, 1, "ccd edge counters"));
  return detector;
}

absl::StatusOr<ContinuousCollisions::Kernels> ContinuousCollisions::CreateKernels(bool input_double) const {
  const ProgramDefines defines = {{"CCD_DOUBLE", is_double_ ? "1" : "0"}, {"CCD_INPUT_DOUBLE", input_double ? "1" : "0"}};
  Kernels result;
  PALPATE_ASSIGN_OR_RETURN(result.boxes, context_->CreateKernel(kernels::ccd, "ccd_boxes", defines));
  PALPATE_ASSIGN_OR_RETURN(result.lanes, context_->CreateKernel(kernels::ccd, "ccd_lanes", defines));
  PALPATE_ASSIGN_OR_RETURN(result.candidates, context_->CreateKernel(kernels::ccd, "ccd_candidates", defines));
  if (!input_double) {
    PALPATE_ASSIGN_OR_RETURN(result.ids, context_->CreateKernel(kernels::ccd, "ccd_ids", defines));
    PALPATE_ASSIGN_OR_RETURN(result.body_lanes, context_->CreateKernel(kernels::ccd, "ccd_body_lanes", defines));
    PALPATE_ASSIGN_OR_RETURN(result.listed, context_->CreateKernel(kernels::ccd, "ccd_listed", defines));
  }
  PALPATE_ASSIGN_OR_RETURN(result.decide, context_->CreateKernel(kernels::ccd, "ccd_decide", defines));
  PALPATE_ASSIGN_OR_RETURN(result.rank, context_->CreateKernel(kernels::ccd, "ccd_rank_hits", defines));
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
  const auto set = [&](Elements& elements, SurfaceElement kind, uint32_t corners, uint32_t stride, cl_mem handle) {
    const uint32_t count = surface_->CountOf(kind);
    elements.kind = kind;
    elements.count = count;
    elements.corner_count = corners;
    elements.stride = stride;
    elements.corners = {handle, size_t{count} * stride};
    elements.groups = surface_->GroupsOf(kind);
  };
  set(vertices_, SurfaceElement::kVertex, 1, 1, nullptr);
  set(edges_, SurfaceElement::kEdge, 2, 2, surface_->edges.handle());
  set(triangles_, SurfaceElement::kTriangle, 3, 4, surface_->triangles.handle());
  const uint32_t b_bits = std::bit_width(std::max(surface_->triangle_count, surface_->edge_count));
  a_shift_ = b_bits;
  kind_shift_ = a_shift_ + std::bit_width(std::max(surface_->vertex_count, surface_->edge_count));
  has_topology_ = true;
}

absl::Status ContinuousCollisions::ReadCounters(Queue& queue) { return queue.ReadBlocking(counters_, std::span<CcdCounters>(&counts_, 1)); }

absl::Status ContinuousCollisions::WriteCounters(Queue& queue) { return queue.Write(counters_, std::span<const CcdCounters>(&counts_, 1)); }

template <typename Position>
absl::Status ContinuousCollisions::Build(Queue& queue, Kernels& kernels, Elements& elements, BufferView<Position> starts,
                                         BufferView<Position> ends) {
  PALPATE_RETURN_IF_ERROR(Grow(context_, elements.boxes, elements.count, "ccd boxes"));
  const auto half_separation = static_cast<float>(options_.separation_m / 2);
  PALPATE_RETURN_IF_ERROR(
      queue.Launch(kernels.boxes, {elements.count, kLocalSize}, Arg("count", elements.count), Arg("corner_count", elements.corner_count),
                   Arg("stride", elements.stride), Arg("corners", elements.corners), Arg("groups", elements.groups), Arg("starts", starts),
                   Arg("ends", ends), Arg("half_separation", half_separation), Arg("boxes", elements.boxes), Arg("counters", counters_)));
  PALPATE_ASSIGN_OR_RETURN(elements.clusters, candidates_->Add(queue, elements.kind, elements.boxes));
  const uint32_t clusters = elements.clusters.count;
  PALPATE_RETURN_IF_ERROR(Grow(context_, elements.intervals, size_t{clusters} * kIntervalFloats, "ccd intervals"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, elements.ids, size_t{clusters} * kIds, "ccd corners"));
  return queue.Launch(kernels.lanes, {clusters, kLocalSize}, Arg("cluster_count", clusters), Arg("corner_count", elements.corner_count),
                      Arg("stride", elements.stride), Arg("corners", elements.corners), Arg("elements", elements.clusters.elements),
                      Arg("starts", starts), Arg("ends", ends), Arg("half_separation", half_separation),
                      Arg("intervals", elements.intervals), Arg("ids", elements.ids));
}

absl::Status ContinuousCollisions::BuildFixed(Queue& queue, Kernels& kernels, Elements& elements, BufferView<Float4> starts,
                                              BufferView<Float4> ends) {
  const FixedClusters fixed = candidates_->Fixed(elements.kind);
  const uint32_t clusters = fixed.clusters.count;
  elements.clusters = fixed.clusters;
  PALPATE_RETURN_IF_ERROR(Grow(context_, elements.intervals, size_t{clusters} * kIntervalFloats, "ccd intervals"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, elements.ids, size_t{clusters} * kIds, "ccd corners"));
  if (elements.ids_order != fixed.order) {
    PALPATE_RETURN_IF_ERROR(queue.Launch(kernels.ids, {clusters, kLocalSize}, Arg("cluster_count", clusters),
                                         Arg("corner_count", elements.corner_count), Arg("stride", elements.stride),
                                         Arg("corners", elements.corners), Arg("elements", fixed.clusters.elements),
                                         Arg("ids", elements.ids)));
    elements.ids_order = fixed.order;
  }
  const auto bodies = static_cast<uint32_t>(fixed.stale.count);
  return queue.Launch(kernels.body_lanes, {bodies, UsualLocalSize(!context_->device().is_gpu)}, Arg("body_count", bodies),
                      Arg("bodies", fixed.stale), Arg("begins", fixed.begins), Arg("corner_count", elements.corner_count),
                      Arg("ids", elements.ids), Arg("starts", starts), Arg("ends", ends),
                      Arg("half_separation", static_cast<float>(options_.separation_m / 2)), Arg("nodes", fixed.clusters.nodes),
                      Arg("boxes", fixed.boxes), Arg("intervals", elements.intervals), Arg("counters", counters_));
}

absl::Status ContinuousCollisions::CheckVertices(Queue& queue) {
  if (!candidates_->may_be_refused()) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(ReadCounters(queue));
  if (counts_.bad_vertex == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("ccd: the coordinates of vertex %d are not finite or beyond 1e30 m", ~counts_.bad_vertex));
}

uint32_t ContinuousCollisions::ChunkOf(uint32_t cluster_pairs) const {
  const DeviceInfo& device = context_->device();
  return device.is_gpu ? 1 : std::clamp(cluster_pairs / (8 * std::max(device.compute_units, 1U)), 1U, 64U);
}

absl::Status ContinuousCollisions::FindClusterPairs(Queue& queue, uint32_t kind) {
  PALPATE_RETURN_IF_ERROR(candidates_->Find(queue, First(kind).kind, Second(kind).kind));
  statistics_.cluster_pairs[kind] = candidates_->count();
  return Grow(context_, pairs_[kind], std::min(4096U, options_.batch_pairs), "ccd pairs");
}

absl::Status ContinuousCollisions::LaunchCandidates(Queue& queue, Kernels& kernels, uint32_t kind, const ClusterPairRange& range,
                                                    const DeviceBuffer<CcdCounters>& counters) {
  const Elements& p = First(kind);
  const Elements& q = Second(kind);
  const uint32_t chunk = ChunkOf(range.last - range.first);
  const auto capacity = static_cast<uint32_t>(std::min<uint64_t>(pairs_[kind].count(), kMaxCapacity));
  return queue.Launch(kernels.candidates, {(range.last - range.first + chunk - 1) / chunk, PairGroup(context_->device())},
                      Arg("is_within", uint32_t{kind == PALPATE_EDGE_EDGE}), Arg("filters", uint32_t{!options_.candidates_only}),
                      Arg("p_corners", p.corner_count), Arg("q_corners", q.corner_count), Arg("first", range.first),
                      Arg("last", range.last), Arg("chunk", chunk), Arg("device_count", range.count), Arg("cluster_pairs", range.pairs),
                      Arg("p_nodes", p.clusters.nodes), Arg("p_groups", p.clusters.groups), Arg("p_elements", p.clusters.elements),
                      Arg("p_intervals", p.intervals), Arg("p_ids", p.ids), Arg("q_nodes", q.clusters.nodes),
                      Arg("q_groups", q.clusters.groups), Arg("q_elements", q.clusters.elements), Arg("q_intervals", q.intervals),
                      Arg("q_ids", q.ids), Arg("apart", surface_->apart), Arg("capacity", capacity), Arg("pairs", pairs_[kind]),
                      Arg("counters", counters));
}

absl::Status ContinuousCollisions::FindBatch(Queue& queue, Kernels& kernels, uint32_t kind, uint32_t first, uint32_t last) {
  PALPATE_RETURN_IF_ERROR(LaunchCandidates(queue, kernels, kind, {candidates_->pairs(), {}, first, last}, counters_));
  return ReadCounters(queue);
}

uint32_t ContinuousCollisions::RoomFor(uint64_t expected, size_t capacity) {
  return static_cast<uint32_t>(std::min<uint64_t>({expected + expected / 8 + kLeastRoom, capacity, kMaxCapacity}));
}

absl::StatusOr<bool> ContinuousCollisions::TryAtOnce(Queue& queue, Kernels& kernels, BufferView<Float4> starts, BufferView<Float4> ends) {
  const bool is_possible = candidates_->has_fixed_clusters() && !options_.candidates_only && !options_.measure_stages;
  const auto is_one_batch = [&](uint32_t kind) {
    return expected_.cluster_pairs[kind] <= options_.batch_pairs / kPairsExpected && expected_.pairs[kind] <= pairs_[kind].count();
  };
  if (!is_possible || !is_one_batch(0) || !is_one_batch(1)) return false;
  PALPATE_RETURN_IF_ERROR(queue.Write(edge_counters_, std::span<const CcdCounters>(&counts_, 1)));
  const DeviceBuffer<CcdCounters>* counters[2] = {};
  counters[PALPATE_VERTEX_TRIANGLE] = &counters_;
  counters[PALPATE_EDGE_EDGE] = &edge_counters_;
  ClusterPairRange ranges[2];
  uint32_t cluster_pairs[2] = {};
  uint32_t room[2] = {};
  for (const uint32_t kind : kKinds) {
    PALPATE_ASSIGN_OR_RETURN(const ClusterPairsOnDevice found, candidates_->FindOnDevice(queue, First(kind).kind, Second(kind).kind));
    PALPATE_RETURN_IF_ERROR(queue.EnqueueRead(*found.count, std::span<uint32_t>(&cluster_pairs[kind], 1)));
    ranges[kind] = {found.pairs, *found.count, 0, RoomFor(expected_.cluster_pairs[kind], found.pairs.count)};
    room[kind] = RoomFor(expected_.pairs[kind], pairs_[kind].count());
    PALPATE_RETURN_IF_ERROR(LaunchCandidates(queue, kernels, kind, ranges[kind], *counters[kind]));
  }
  const auto capacity = static_cast<uint32_t>(std::min<uint64_t>(hits_.count(), options_.max_hits));
  for (const uint32_t kind : kKinds) {
    PALPATE_RETURN_IF_ERROR(LaunchDecide(queue, kernels, kind, 0, room[kind], *counters[kind], capacity, starts, ends));
  }
  CcdCounters counts[2] = {};
  PALPATE_RETURN_IF_ERROR(queue.EnqueueRead(edge_counters_, std::span<CcdCounters>(&counts[PALPATE_EDGE_EDGE], 1)));
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(counters_, std::span<CcdCounters>(&counts[PALPATE_VERTEX_TRIANGLE], 1)));
  bool is_enough = counts[PALPATE_VERTEX_TRIANGLE].hits <= capacity;
  for (const uint32_t kind : kKinds) {
    is_enough &= cluster_pairs[kind] <= ranges[kind].last && counts[kind].pairs <= room[kind] &&
                 counts[kind].candidates <= options_.max_candidates && counts[kind].pairs <= options_.max_pairs;
  }
  if (!is_enough) {
    PALPATE_RETURN_IF_ERROR(WriteCounters(queue));
    return false;
  }
  for (const uint32_t kind : kKinds) {
    statistics_.cluster_pairs[kind] = cluster_pairs[kind];
    statistics_.candidates[kind] = counts[kind].candidates;
    statistics_.pairs[kind] = counts[kind].pairs;
  }
  counts_ = counts[PALPATE_VERTEX_TRIANGLE];
  statistics_.hits[PALPATE_EDGE_EDGE] = counts_.edge_hits;
  statistics_.hits[PALPATE_VERTEX_TRIANGLE] = counts_.hits - counts_.edge_hits;
  return true;
}

absl::Status ContinuousCollisions::CheckLimits(uint32_t kind, uint64_t candidates, uint64_t pairs) const {
  const bool is_within = kind == PALPATE_EDGE_EDGE;
  if (candidates > options_.max_candidates) {
    return PastLimit("max_candidates", options_.max_candidates,
                     is_within ? "pairs of edges whose swept boxes overlap" : "pairs of a vertex and a triangle whose swept boxes overlap");
  }
  if (pairs > options_.max_pairs) {
    return PastLimit("max_pairs", options_.max_pairs,
                     is_within ? "undecided pairs of edges" : "undecided pairs of a vertex and a triangle");
  }
  return absl::OkStatus();
}

absl::Status ContinuousCollisions::ListCandidates(Queue& queue, Kernels& kernels, uint32_t kind) {
  PALPATE_RETURN_IF_ERROR(FindClusterPairs(queue, kind));
  const uint32_t total = candidates_->count();
  for (;;) {
    counts_.candidates = counts_.pairs = 0;
    PALPATE_RETURN_IF_ERROR(WriteCounters(queue));
    for (uint32_t first = 0, last = 0; first < total; first = last) {
      last = first + std::min(options_.batch_pairs / kPairsExpected, total - first);
      PALPATE_RETURN_IF_ERROR(FindBatch(queue, kernels, kind, first, last));
      PALPATE_RETURN_IF_ERROR(CheckLimits(kind, counts_.candidates, counts_.pairs));
    }
    statistics_.candidates[kind] = counts_.candidates;
    statistics_.pairs[kind] = counts_.pairs;
    if (counts_.pairs <= pairs_[kind].count()) return absl::OkStatus();
    PALPATE_RETURN_IF_ERROR(Grow(context_, pairs_[kind], counts_.pairs, "ccd pairs"));
  }
}

template <typename Position>
absl::Status ContinuousCollisions::FindAndDecide(Queue& queue, Kernels& kernels, uint32_t kind, BufferView<Position> starts,
                                                 BufferView<Position> ends, StageClock& clock) {
  PALPATE_RETURN_IF_ERROR(FindClusterPairs(queue, kind));
  const uint32_t total = candidates_->count();
  uint32_t batch = options_.batch_pairs / kPairsExpected;
  for (uint32_t first = 0; first < total;) {
    const uint32_t last = first + std::min(batch, total - first);
    PALPATE_RETURN_IF_ERROR(FindBatch(queue, kernels, kind, first, last));
    const uint64_t candidates = statistics_.candidates[kind] + counts_.candidates;
    const uint64_t pairs = statistics_.pairs[kind] + counts_.pairs;
    PALPATE_RETURN_IF_ERROR(CheckLimits(kind, candidates, pairs));
    const uint32_t found = counts_.pairs;
    counts_.candidates = counts_.pairs = 0;
    PALPATE_RETURN_IF_ERROR(WriteCounters(queue));
    if (found > pairs_[kind].count()) {
      // Dense: fewer at a time from here on, as many as surely fit if need be.
      if (found > options_.batch_pairs) {
        const uint64_t half_full = uint64_t{last - first} * (options_.batch_pairs / 2) / found;
        batch = std::max(static_cast<uint32_t>(half_full), options_.batch_pairs / kPairsPerClusterPair);
      }
      PALPATE_RETURN_IF_ERROR(Grow(context_, pairs_[kind], std::min(found, options_.batch_pairs), "ccd pairs"));
      continue;
    }
    statistics_.candidates[kind] = candidates;
    statistics_.pairs[kind] = pairs;
    PALPATE_RETURN_IF_ERROR(clock.End(&statistics_.find_seconds));
    PALPATE_RETURN_IF_ERROR(Decide(queue, kernels, kind, found, starts, ends));
    PALPATE_RETURN_IF_ERROR(clock.End(&statistics_.decide_seconds));
    first = last;
  }
  return clock.End(&statistics_.find_seconds);
}

template <typename Position>
absl::Status ContinuousCollisions::LaunchDecide(Queue& queue, Kernels& kernels, uint32_t kind, uint32_t first, uint32_t last,
                                                BufferView<CcdCounters> found, uint32_t capacity, BufferView<Position> starts,
                                                BufferView<Position> ends) {
  const auto launch = [&](auto zero) {
    using Real = decltype(zero);
    // A device may take denormal floats for zero.
    const Real input_error = std::is_same_v<Real, float> ? 4 * std::numeric_limits<Real>::min() : 0;
    return queue.Launch(kernels.decide, {std::max(last - first, 1U), kLocalSize}, Arg("kind", kind), Arg("first", first), Arg("last", last),
                        Arg("found", found), Arg("pairs", pairs_[kind]), Arg("edges", surface_->edges),
                        Arg("triangles", surface_->triangles), Arg("starts", starts), Arg("ends", ends),
                        Arg("separation", static_cast<Real>(options_.separation_m)), Arg("input_error", input_error),
                        Arg("tolerance", static_cast<Real>(options_.tolerance)), Arg("max_steps", options_.max_steps),
                        Arg("a_shift", a_shift_), Arg("kind_shift", kind_shift_), Arg("capacity", capacity), Arg("hits", hits_),
                        Arg("keys", keys_), Arg("counters", counters_));
  };
  return is_double_ ? launch(double{}) : launch(float{});
}

template <typename Position>
absl::Status ContinuousCollisions::Decide(Queue& queue, Kernels& kernels, uint32_t kind, uint32_t pair_count, BufferView<Position> starts,
                                          BufferView<Position> ends) {
  for (uint32_t first = 0; first < pair_count;) {
    const uint32_t last = first + std::min(options_.batch_pairs / kDecisionsShare, pair_count - first);
    const uint32_t before = counts_.hits;
    const auto capacity = static_cast<uint32_t>(std::min<uint64_t>(hits_.count(), options_.max_hits));
    PALPATE_RETURN_IF_ERROR(LaunchDecide(queue, kernels, kind, first, last, {}, capacity, starts, ends));
    PALPATE_RETURN_IF_ERROR(ReadCounters(queue));
    if (counts_.hits > options_.max_hits) return PastLimit("max_hits", options_.max_hits, "hits");
    if (counts_.hits > capacity && counts_.hits <= kHitsWorthCopying) {
      PALPATE_RETURN_IF_ERROR(GrowHits(queue, before, counts_.hits));
      counts_.hits = before;
      PALPATE_RETURN_IF_ERROR(WriteCounters(queue));
      continue;
    }
    statistics_.hits[kind] += counts_.hits - before;
    first = last;
  }
  return absl::OkStatus();
}

absl::Status ContinuousCollisions::GrowHits(Queue& queue, uint32_t kept, uint32_t needed) {
  const uint64_t target = std::min(uint64_t{needed} + needed / 2, options_.max_hits);
  PALPATE_ASSIGN_OR_RETURN(auto hits, DeviceBuffer<CcdHit>::Create(context_, target, "ccd hits"));
  PALPATE_RETURN_IF_ERROR(queue.Copy(hits_, hits, kept));
  hits_ = std::move(hits);
  PALPATE_ASSIGN_OR_RETURN(auto keys, DeviceBuffer<uint64_t>::Create(context_, target, "ccd keys"));
  PALPATE_RETURN_IF_ERROR(queue.Copy(keys_, keys, kept));
  keys_ = std::move(keys);
  return absl::OkStatus();
}

absl::Status ContinuousCollisions::SortHits(Queue& queue, Kernels& kernels) {
  if (counts_.hits == 0) return absl::OkStatus();
  statistics_.earliest_toi = std::bit_cast<float>(counts_.earliest_bits);
  PALPATE_RETURN_IF_ERROR(Grow(context_, sorted_hits_, hits_.count(), "ccd sorted hits"));
  hit_count_ = counts_.hits;
  if (hit_count_ <= kRankedHits) {
    return queue.Launch(kernels.rank, {hit_count_, kLocalSize}, Arg("count", hit_count_), Arg("hits", hits_), Arg("keys", keys_),
                        Arg("sorted", sorted_hits_));
  }
  hit_count_ = 0;
  if (sorted_keys_.count() < counts_.hits) {
    PALPATE_RETURN_IF_ERROR(Grow(context_, sorted_keys_, hits_.count(), "ccd sorted keys"));
    PALPATE_RETURN_IF_ERROR(Grow(context_, order_, hits_.count(), "ccd order"));
    PALPATE_ASSIGN_OR_RETURN(sort_, RadixSort<uint64_t>::Create(context_, static_cast<uint32_t>(sorted_keys_.count())));
  }
  PALPATE_RETURN_IF_ERROR(sort_.Run(queue, keys_, {}, counts_.hits, sorted_keys_, order_, {0, kind_shift_ + 1}));
  PALPATE_RETURN_IF_ERROR(queue.Launch(kernels.gather, {counts_.hits, kLocalSize}, Arg("count", counts_.hits), Arg("hits", hits_),
                                       Arg("order", order_), Arg("sorted", sorted_hits_)));
  hit_count_ = counts_.hits;
  return absl::OkStatus();
}

template <typename Position>
absl::Status ContinuousCollisions::CompileNow(Queue& queue, Kernels& kernels, BufferView<Position> starts, BufferView<Position> ends) {
  PALPATE_RETURN_IF_ERROR(Grow(context_, hits_, 1024, "ccd hits"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, keys_, hits_.count(), "ccd keys"));
  if (kernels.are_compiled) return absl::OkStatus();
  // Some drivers compile a kernel when it is first launched, this one for a second: with nothing to do in the first call, rather than at
  // the first close pair, in the middle of a cut.
  PALPATE_RETURN_IF_ERROR(LaunchDecide(queue, kernels, PALPATE_VERTEX_TRIANGLE, 0, 0, {}, 0, starts, ends));
  PALPATE_RETURN_IF_ERROR(queue.Launch(kernels.gather, {1, kLocalSize}, Arg("count", 0U), Arg("hits", hits_), Arg("order", order_),
                                       Arg("sorted", sorted_hits_)));
  kernels.are_compiled = true;
  return absl::OkStatus();
}

template <typename F>
absl::Status ContinuousCollisions::UntilHitsFit(Queue& queue, const F& find_and_decide) {
  for (;;) {
    for (const uint32_t kind : kKinds) PALPATE_RETURN_IF_ERROR(find_and_decide(kind));
    if (counts_.hits <= hits_.count()) return absl::OkStatus();
    PALPATE_RETURN_IF_ERROR(Grow(context_, hits_, counts_.hits, "ccd hits"));
    PALPATE_RETURN_IF_ERROR(Grow(context_, keys_, hits_.count(), "ccd keys"));
    for (const uint32_t kind : kKinds) statistics_.candidates[kind] = statistics_.pairs[kind] = statistics_.hits[kind] = 0;
    counts_.hits = 0;
    PALPATE_RETURN_IF_ERROR(WriteCounters(queue));
  }
}

absl::Status ContinuousCollisions::FindListed(Queue& queue, uint32_t kind, BufferView<SurfaceContact> contacts, BufferView<Float4> starts,
                                              BufferView<Float4> ends) {
  const auto count = static_cast<uint32_t>(contacts.count);
  PALPATE_RETURN_IF_ERROR(Grow(context_, pairs_[kind], 1024, "ccd pairs"));
  for (;;) {
    counts_.candidates = counts_.pairs = 0;
    PALPATE_RETURN_IF_ERROR(WriteCounters(queue));
    PALPATE_RETURN_IF_ERROR(
        queue.Launch(float_kernels_.listed, {count, kLocalSize}, Arg("kind", kind), Arg("count", count), Arg("contacts", contacts),
                     Arg("starts", starts), Arg("ends", ends), Arg("separation", static_cast<float>(options_.separation_m)),
                     Arg("capacity", static_cast<uint32_t>(pairs_[kind].count())), Arg("pairs", pairs_[kind]), Arg("counters", counters_)));
    PALPATE_RETURN_IF_ERROR(ReadCounters(queue));
    PALPATE_RETURN_IF_ERROR(CheckLimits(kind, 0, counts_.pairs));
    statistics_.pairs[kind] = counts_.pairs;
    if (counts_.pairs <= pairs_[kind].count()) return absl::OkStatus();
    PALPATE_RETURN_IF_ERROR(Grow(context_, pairs_[kind], counts_.pairs, "ccd pairs"));
  }
}

absl::Status ContinuousCollisions::RunListed(Queue& queue, BufferView<SurfaceContact> contacts, BufferView<Float4> starts_m,
                                             BufferView<Float4> ends_m) {
  hit_count_ = 0;
  statistics_ = {};
  if (!has_topology_) return absl::FailedPreconditionError("ccd: SetTopology comes before RunListed");
  PALPATE_RETURN_IF_ERROR(CheckCapacity("ContinuousCollisions", "starts", starts_m.count, surface_->vertex_count));
  PALPATE_RETURN_IF_ERROR(CheckCapacity("ContinuousCollisions", "ends", ends_m.count, surface_->vertex_count));
  if (contacts.count == 0) return absl::OkStatus();
  counts_ = {};
  counts_.earliest_bits = kNoHit;
  PALPATE_RETURN_IF_ERROR(CompileNow(queue, float_kernels_, starts_m, ends_m));
  const auto find_and_decide = [&](uint32_t kind) -> absl::Status {
    PALPATE_RETURN_IF_ERROR(FindListed(queue, kind, contacts, starts_m, ends_m));
    statistics_.candidates[kind] = contacts.count;
    return Decide(queue, float_kernels_, kind, counts_.pairs, starts_m, ends_m);
  };
  PALPATE_RETURN_IF_ERROR(UntilHitsFit(queue, find_and_decide));
  return SortHits(queue, float_kernels_);
}

template <typename Position>
absl::Status ContinuousCollisions::BeginCandidates(Queue& queue, BufferView<Position> starts, BufferView<Position> ends,
                                                   const Selection& selection) {
  if constexpr (std::is_same_v<Position, Float4>) {
    if (!options_.candidates_only) {
      PALPATE_ASSIGN_OR_RETURN(candidates_, candidate_structures_.For(*surface_));
      const auto distance_m = static_cast<float>(options_.separation_m);
      return selection.is_again ? candidates_->BeginAgain(queue, *surface_, starts, ends, distance_m)
                                : candidates_->Begin(queue, *surface_, starts, ends, distance_m, selection.wanted);
    }
  }
  PALPATE_ASSIGN_OR_RETURN(candidates_, candidate_structures_.Tree());
  return candidates_->Begin(queue, *surface_, {}, {}, 0, {});
}

template <typename Position>
absl::Status ContinuousCollisions::RunAs(Queue& queue, Kernels& kernels, BufferView<Position> starts, BufferView<Position> ends,
                                         size_t needed, const Selection& selection) {
  hit_count_ = 0;
  statistics_ = {};
  if (!has_topology_) return absl::FailedPreconditionError("ccd: SetTopology comes before Run");
  PALPATE_RETURN_IF_ERROR(CheckCapacity("ContinuousCollisions", "starts", starts.count, needed));
  PALPATE_RETURN_IF_ERROR(CheckCapacity("ContinuousCollisions", "ends", ends.count, needed));
  if (triangles_.count == 0) return absl::OkStatus();
  counts_ = {};
  counts_.earliest_bits = kNoHit;
  PALPATE_RETURN_IF_ERROR(WriteCounters(queue));

  StageClock clock = {queue, options_.measure_stages};
  PALPATE_RETURN_IF_ERROR(BeginCandidates(queue, starts, ends, selection));
  if (candidates_->is_empty()) return absl::OkStatus();
  for (Elements* elements : {&vertices_, &edges_, &triangles_}) {
    if constexpr (std::is_same_v<Position, Float4>) {
      if (candidates_->has_fixed_clusters()) {
        PALPATE_RETURN_IF_ERROR(BuildFixed(queue, kernels, *elements, starts, ends));
        continue;
      }
    }
    elements->ids_order = 0;
    PALPATE_RETURN_IF_ERROR(Build(queue, kernels, *elements, starts, ends));
  }
  PALPATE_RETURN_IF_ERROR(clock.End(&statistics_.build_seconds));
  // What is not finite overlaps nothing, and must not wait for a limit that the rest may pass.
  PALPATE_RETURN_IF_ERROR(CheckVertices(queue));
  if (options_.candidates_only) {
    for (const uint32_t kind : kKinds) PALPATE_RETURN_IF_ERROR(ListCandidates(queue, kernels, kind));
    return clock.End(&statistics_.find_seconds);
  }
  PALPATE_RETURN_IF_ERROR(CompileNow(queue, kernels, starts, ends));
  bool is_done = false;
  if constexpr (std::is_same_v<Position, Float4>) {
    if (selection.is_again) {
      PALPATE_ASSIGN_OR_RETURN(is_done, TryAtOnce(queue, kernels, starts, ends));
    }
  }
  if (!is_done) {
    PALPATE_RETURN_IF_ERROR(UntilHitsFit(queue, [&](uint32_t kind) { return FindAndDecide(queue, kernels, kind, starts, ends, clock); }));
  }
  expected_ = statistics_;
  PALPATE_RETURN_IF_ERROR(SortHits(queue, kernels));
  return clock.End(&statistics_.decide_seconds);
}

absl::Status ContinuousCollisions::Run(Queue& queue, BufferView<Float4> starts_m, BufferView<Float4> ends_m) {
  return RunAs(queue, float_kernels_, starts_m, ends_m, surface_->vertex_count, {});
}

absl::Status ContinuousCollisions::RunWanted(Queue& queue, BufferView<Float4> starts_m, BufferView<Float4> ends_m,
                                             BufferView<uint32_t> wanted) {
  if (wanted.count < surface_->body_count) {
    return absl::InvalidArgumentError(absl::StrCat("ccd: ", wanted.count, " flags of wanted bodies, there are ", surface_->body_count));
  }
  return RunAs(queue, float_kernels_, starts_m, ends_m, surface_->vertex_count, {.is_again = false, .wanted = wanted});
}

absl::Status ContinuousCollisions::RunAgain(Queue& queue, BufferView<Float4> starts_m, BufferView<Float4> ends_m) {
  return RunAs(queue, float_kernels_, starts_m, ends_m, surface_->vertex_count, {.is_again = true, .wanted = {}});
}

absl::Status ContinuousCollisions::RunDouble(Queue& queue, BufferView<double> starts_m, BufferView<double> ends_m) {
  if (!is_double_) return absl::FailedPreconditionError("ccd: positions in double need a device with double");
  if (!double_kernels_.boxes) {
    PALPATE_ASSIGN_OR_RETURN(double_kernels_, CreateKernels(true));
  }
  return RunAs(queue, double_kernels_, starts_m, ends_m, size_t{3} * surface_->vertex_count, {});
}

absl::StatusOr<std::vector<UInt2>> ContinuousCollisions::Candidates(Queue& queue, uint32_t kind) const {
  if (!options_.candidates_only) return absl::FailedPreconditionError("ccd: pairs are kept with CcdDetectorOptions.candidates_only");
  std::vector<UInt2> pairs(statistics_.pairs[kind]);
  if (!pairs.empty()) PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(pairs_[kind], pairs));
  return pairs;
}

}  // namespace palpate::gpu
