#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/collision/candidate_pairs.h"
#include "gpu/collision/ccd_queries.h"
#include "gpu/collision/surface_topology.h"
#include "gpu/primitives/radix_sort.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/box.h"
#include "gpu/shared/ccd_types.h"
#include "gpu/shared/collision_types.h"

namespace palpate::gpu {

/// Counts of one run, by kind (PALPATE_VERTEX_TRIANGLE, PALPATE_EDGE_EDGE).
struct CcdStatistics {
  uint64_t cluster_pairs[2] = {};
  uint64_t candidates[2] = {};  ///< element pairs whose swept boxes overlap, without those that share a vertex
  uint64_t pairs[2] = {};       ///< candidates that the float filter left to the narrow phase
  uint64_t hits[2] = {};
  float earliest_toi = 1;  ///< least time of impact of all hits, as a share of the step; 1 without one
  double build_seconds = 0, find_seconds = 0, decide_seconds = 0;  ///< wall time; only with measure_stages
};

/// The limits are there for geometry that is all in one place, where n elements have n^2 pairs: work stops soon after one is passed, and no
/// memory is taken for what is beyond it. All but max_hits hold for each kind by itself.
struct CcdDetectorOptions : CcdOptions {
  uint64_t max_cluster_pairs = 1ULL << 26;  ///< pairs of clusters of 16 elements whose boxes overlap, 8 bytes each; in [1, 2^32)
  uint64_t max_candidates = 1ULL << 32;     ///< element pairs whose swept boxes overlap; bounds the time to find; in [1, 2^48]
  uint64_t max_pairs = 1ULL << 28;          ///< those that the filter leaves; bounds the time to decide; in [1, 2^31]
  uint64_t max_hits = 1ULL << 24;           ///< bounds the memory of hits, 148 bytes a hit; in [1, 2^31]
  CandidateStructure candidates = CandidateStructure::kAutomatic;  ///< changes no result
  uint32_t batch_pairs = 1U << 22;  ///< undecided pairs found at a time, 8 bytes each; changes no result; in [256, 2^26]
  bool measure_stages = false;      ///< waits after each stage to time it
  /// For checks: neither filters nor decides; Candidates() are all whose swept boxes overlap, 8 bytes a pair, at most max_pairs.
  bool candidates_only = false;
};

/// Continuous collision detection between all vertices and triangles, and all edges, of triangle surfaces, of different bodies and of one
/// body with itself, over one step in which vertices move on straight lines.
///
/// Guarantee: each pair that comes to its separation distance within the step, pairs that share a vertex aside, is among the hits, with a
/// time of impact that is not late (see CcdQueries); pairs of one body only if its group has PALPATE_GROUP_SELF. No capacity truncates:
/// lists grow and their stage runs again. Candidates are found and decided in batches, so that memory follows the hits, not the candidates.
/// Method: swept boxes in a packed hierarchy (box_hierarchy.h), a float filter that rejects only what it proves apart, and the march of
/// ccd_narrow.clh; docs/algorithms/ccd.md. Thread: one at a time. Determinism: run to run on one device; hits are sorted.
class ContinuousCollisions {
 public:
  /// Errors: InvalidArgument naming the option out of range.
  static absl::StatusOr<ContinuousCollisions> Create(const std::shared_ptr<Context>& context, const CcdDetectorOptions& options = {});

  /// Uploads the connectivity. Blocking.
  absl::Status SetTopology(Queue& queue, const SurfaceTopology& topology);
  /// Likewise, on the device already. Someone else may change the surface between runs; then this must be called again.
  void SetSurface(std::shared_ptr<const DeviceSurface> surface);

  /// Finds the hits between the positions at the start and at the end of the step [m], [vertex_count] each, w unused. Some blocking reads.
  /// Errors: FailedPrecondition without topology; InvalidArgument (a buffer too small; a vertex of a triangle is not finite or beyond
  /// 1e30 m: named); ResourceExhausted (one of the limits of CcdDetectorOptions, named with its value, or device memory). After an error
  /// there are no hits.
  absl::Status Run(Queue& queue, BufferView<Float4> starts_m, BufferView<Float4> ends_m);

  /// As Run, but hits between two bodies neither of which is `wanted` (1 or 0 each, [body]) may be left out. For moves of which the
  /// caller knows that only some bodies can meet anything; RunAgain goes on from there.
  absl::Status RunWanted(Queue& queue, BufferView<Float4> starts_m, BufferView<Float4> ends_m, BufferView<uint32_t> wanted);

  /// As Run, after a run with the same surface and starts: hits between two bodies whose vertices all end where they did in that run may
  /// be left out. For rounds that change the ways of a few bodies. Hits within a body that meets itself are all found.
  absl::Status RunAgain(Queue& queue, BufferView<Float4> starts_m, BufferView<Float4> ends_m);

  /// As Run, but only between the pairs of `contacts`, whose elements are those of the surface; for pairs whose number is small against the
  /// surface's. A contact's normal decides what it can. Statistics: no cluster pairs, candidates are the contacts. Errors: as Run, but
  /// whether positions are finite is not looked at.
  absl::Status RunListed(Queue& queue, BufferView<SurfaceContact> contacts, BufferView<Float4> starts_m, BufferView<Float4> ends_m);

  /// As Run, for positions in double: x, y, z of each vertex, [3 vertex_count]. FailedPrecondition on a device without double.
  absl::Status RunDouble(Queue& queue, BufferView<double> starts_m, BufferView<double> ends_m);

  uint32_t hit_count() const { return hit_count_; }
  /// Sorted by (kind, a, b); valid until the next run.
  BufferView<CcdHit> hits() const { return {sorted_hits_.handle(), hit_count_}; }
  const DeviceBuffer<CcdHit>& hit_buffer() const { return sorted_hits_; }
  const CcdStatistics& statistics() const { return statistics_; }

  /// Blocking. The candidates of the last run, in no particular order. FailedPrecondition without candidates_only.
  absl::StatusOr<std::vector<UInt2>> Candidates(Queue& queue, uint32_t kind) const;

 private:
  /// Pairs of bodies that a run may leave out: RunAgain, RunWanted.
  struct Selection {
    bool is_again = false;
    BufferView<uint32_t> wanted = {};
  };
  // Vertices, edges or triangles.
  struct Elements {
    uint32_t count = 0;
    uint32_t corner_count = 1;
    uint32_t stride = 1;
    BufferView<uint32_t> corners;
    BufferView<uint32_t> groups;
    SurfaceElement kind = SurfaceElement::kVertex;
    ElementClusters clusters;
    DeviceBuffer<Box> boxes;
    DeviceBuffer<float> intervals;
    DeviceBuffer<uint32_t> ids;
    uint64_t ids_order = 0;  // FixedClusters::order that the ids are of; 0: of no fixed clusters
  };
  struct Kernels {
    Kernel boxes, lanes, ids, body_lanes, candidates, listed, decide, rank, gather;
    bool are_compiled = false;
  };

  struct StageClock;

  template <typename Position>
  absl::Status RunAs(Queue& queue, Kernels& kernels, BufferView<Position> starts, BufferView<Position> ends, size_t needed,
                     const Selection& selection);
  template <typename Position>
  absl::Status BeginCandidates(Queue& queue, BufferView<Position> starts, BufferView<Position> ends, const Selection& selection);
  template <typename Position>
  absl::Status Build(Queue& queue, Kernels& kernels, Elements& elements, BufferView<Position> starts, BufferView<Position> ends);
  absl::Status BuildFixed(Queue& queue, Kernels& kernels, Elements& elements, BufferView<Float4> starts, BufferView<Float4> ends);
  absl::Status CheckVertices(Queue& queue);
  // The two elements of a pair.
  Elements& First(uint32_t kind) { return kind == PALPATE_EDGE_EDGE ? edges_ : vertices_; }
  Elements& Second(uint32_t kind) { return kind == PALPATE_EDGE_EDGE ? edges_ : triangles_; }
  // Cluster pairs [0, most) whose elements are compared; `count`, or null: how many of them there are.
  struct ClusterPairRange {
    BufferView<UInt2> pairs;
    BufferView<uint32_t> count;
    uint32_t first = 0;
    uint32_t last = 0;
  };
  absl::Status LaunchCandidates(Queue& queue, Kernels& kernels, uint32_t kind, const ClusterPairRange& range,
                                const DeviceBuffer<CcdCounters>& counters);
  // All stages without waiting, with room for about what the run before found; false if that was not enough: then nothing was done.
  absl::StatusOr<bool> TryAtOnce(Queue& queue, Kernels& kernels, BufferView<Float4> starts, BufferView<Float4> ends);
  static uint32_t RoomFor(uint64_t expected, size_t capacity);
  uint32_t ChunkOf(uint32_t cluster_pairs) const;
  absl::Status FindClusterPairs(Queue& queue, uint32_t kind);
  // Adds what the cluster pairs [first, last) give to pairs_[kind] and to the counts, which it reads. Not an error: pairs beyond the
  // capacity, which are only counted.
  absl::Status FindBatch(Queue& queue, Kernels& kernels, uint32_t kind, uint32_t first, uint32_t last);
  absl::Status CheckLimits(uint32_t kind, uint64_t candidates, uint64_t pairs) const;
  absl::Status ListCandidates(Queue& queue, Kernels& kernels, uint32_t kind);
  template <typename Position>
  absl::Status FindAndDecide(Queue& queue, Kernels& kernels, uint32_t kind, BufferView<Position> starts, BufferView<Position> ends,
                             StageClock& clock);
  template <typename Position>
  absl::Status Decide(Queue& queue, Kernels& kernels, uint32_t kind, uint32_t pair_count, BufferView<Position> starts,
                      BufferView<Position> ends);
  // Compiles what a driver compiles late, at the first run.
  template <typename Position>
  absl::Status CompileNow(Queue& queue, Kernels& kernels, BufferView<Position> starts, BufferView<Position> ends);
  // Calls find_and_decide(kind) for both kinds, again if there were more hits than the list held.
  template <typename F>
  absl::Status UntilHitsFit(Queue& queue, const F& find_and_decide);
  absl::Status FindListed(Queue& queue, uint32_t kind, BufferView<SurfaceContact> contacts, BufferView<Float4> starts,
                          BufferView<Float4> ends);
  template <typename Position>
  absl::Status LaunchDecide(Queue& queue, Kernels& kernels, uint32_t kind, uint32_t first, uint32_t last, BufferView<CcdCounters> found,
                            uint32_t capacity, BufferView<Position> starts, BufferView<Position> ends);
  absl::Status GrowHits(Queue& queue, uint32_t kept, uint32_t needed);
  absl::Status SortHits(Queue& queue, Kernels& kernels);
  absl::StatusOr<Kernels> CreateKernels(bool input_double) const;
  absl::Status ReadCounters(Queue& queue);
  absl::Status WriteCounters(Queue& queue);

  std::shared_ptr<Context> context_;
  CcdDetectorOptions options_;
  bool is_double_ = false;
  bool has_topology_ = false;
  uint32_t hit_count_ = 0;
  uint32_t a_shift_ = 0;
  uint32_t kind_shift_ = 0;
  CcdStatistics statistics_;
  std::shared_ptr<const DeviceSurface> surface_ = std::make_shared<const DeviceSurface>();
  Elements vertices_, edges_, triangles_;
  CandidateStructures candidate_structures_;
  CandidatePairs* candidates_ = nullptr;  // of this run
  Kernels float_kernels_, double_kernels_;
  RadixSort<uint64_t> sort_;
  CcdCounters counts_ = {};                             // as last read or written
  DeviceBuffer<CcdCounters> counters_, edge_counters_;  // the second: candidates and pairs of edges, in TryAtOnce
  CcdStatistics expected_;                              // of the last run: a round after it finds less, as a rule
  DeviceBuffer<UInt2> pairs_[2];                        // by kind: of one batch, or all candidates
  DeviceBuffer<CcdHit> hits_, sorted_hits_;
  DeviceBuffer<uint64_t> keys_, sorted_keys_;
  DeviceBuffer<uint32_t> order_;
};

}  // namespace palpate::gpu
