#pragma once

#include <array>
#include <memory>
#include <vector>

#include "gpu/collision/box_hierarchy.h"
#include "gpu/collision/candidate_pairs.h"

namespace palpate::gpu {

/// Candidates of scenes of many small bodies: pairs of bodies first, then the clusters of these.
///
/// 1. Boxes around the way of each body, and a list of the pairs of bodies whose boxes meet. The list is made of wider boxes, and is kept
///    from run to run for as long as each body stays inside its own.
/// 2. A plane that keeps the two of a pair apart, by more than the distance, at the start and at the end: then they stay apart in between
///    too, since heights over a plane change linearly. Its normal is that of the run before, if it still serves; else it is sought by GJK
///    on the vertices at the start, then at the end. The bodies need not be convex; if they are not, it is their hulls that are kept apart.
///    What meets itself is never dismissed.
/// 3. Clusters of 16 elements of one body each, in an order that is fixed while the surface is (along a Morton curve through the body as
///    it was first seen), so that nothing is sorted from step to step; all pairs of them whose boxes overlap, of the pairs of bodies that
///    are left.
///
/// Bodies that are in no pair are inactive, and cost nothing beyond their box. Bodies in a heap have few partners, but a body of n clusters
/// has n^2 pairs with its like: for large bodies use TreeCandidates. docs/algorithms/body_candidates.md.
class BodyCandidates final : public CandidatePairs {
 public:
  static absl::StatusOr<std::unique_ptr<CandidatePairs>> Create(const std::shared_ptr<Context>& context, uint64_t max_pairs);

  std::string_view name() const override { return "bodies"; }
  absl::Status Begin(Queue& queue, const DeviceSurface& surface, BufferView<Float4> starts_m, BufferView<Float4> ends_m, float distance_m,
                     BufferView<uint32_t> wanted) override;
  absl::Status BeginAtRest(Queue& queue, const DeviceSurface& surface, BufferView<Float4> positions_m, float distance_m,
                           BufferView<float> reaches_m, BufferView<uint32_t> wanted) override;
  absl::Status BeginAgain(Queue& queue, const DeviceSurface& surface, BufferView<Float4> starts_m, BufferView<Float4> ends_m,
                          float distance_m) override;
  bool is_empty() const override { return is_empty_; }
  bool may_be_refused() const override { return counts_.refusable != 0; }
  BufferView<uint32_t> active_bodies() const override { return active_; }
  bool has_fixed_clusters() const override { return true; }
  FixedClusters Fixed(SurfaceElement kind) const override;
  absl::StatusOr<ElementClusters> Add(Queue& queue, SurfaceElement kind, BufferView<Box> boxes) override;
  absl::Status Find(Queue& queue, SurfaceElement p, SurfaceElement q) override;
  absl::StatusOr<ClusterPairsOnDevice> FindOnDevice(Queue& queue, SurfaceElement p, SurfaceElement q) override;

  /// Pairs of bodies that no plane kept apart in this run, those with themselves included.
  uint32_t body_pair_count() const { return body_pair_count_; }
  /// How often the list of pairs of bodies was made.
  uint64_t list_builds() const { return list_builds_; }

 private:
  // Elements of one kind, body by body.
  struct Clusters {
    uint32_t count = 0;
    DeviceBuffer<uint32_t> elements;  // [count][16]
    DeviceBuffer<uint32_t> groups;    // [count][2][16]
    DeviceBuffer<uint32_t> body;      // [count]
    DeviceBuffer<uint32_t> begins;    // [body_count + 1] in clusters
    DeviceBuffer<float> nodes;        // [count][6][16]
    DeviceBuffer<Box> boxes;          // [count] of all elements of each
  };

  // Pairs of clusters, of two kinds or of one.
  struct Found {
    DeviceBuffer<UInt2> pairs;
    DeviceBuffer<uint32_t> count;
  };

  BodyCandidates() = default;
  absl::Status Order(Queue& queue, const DeviceSurface& surface, BufferView<Float4> positions_m);
  absl::Status OrderKind(Queue& queue, const DeviceSurface& surface, SurfaceElement kind, const std::vector<Float4>& positions);
  absl::Status ReserveBodies(Queue& queue, const std::vector<std::vector<uint32_t>>& vertices_of_body);
  uint32_t NodeCount() const { return (body_count_ + BoxHierarchy::kWidth - 1) / BoxHierarchy::kWidth; }
  // One run: where the bodies go, and which of them a plane does not keep apart.
  struct Run {
    BufferView<Float4> starts_m, ends_m;
    float distance_m = 0;
    bool is_again = false;             // only pairs with a body that ends elsewhere than in the run before
    BufferView<float> reaches_m = {};  // [body], or half of distance_m for all
    BufferView<uint32_t> wanted = {};  // [body] only pairs with one of these, or a null view
    bool is_moving() const { return starts_m.handle != ends_m.handle; }
  };
  // As the kernels count them.
  struct Counts {
    uint32_t pairs = 0, refusable = 0, stale = 0, escaped = 0, listed = 0;
  };
  absl::Status FindBodyPairs(Queue& queue, const DeviceSurface& surface, const Run& run);
  absl::Status SweepBodies(Queue& queue, const Run& run);
  absl::Status ListPairs(Queue& queue);
  absl::Status DecidePairs(Queue& queue, const Run& run);
  uint32_t Limit() const;
  absl::Status WriteCounts(Queue& queue);
  absl::Status ReadCounts(Queue& queue);

  std::shared_ptr<Context> context_;
  uint64_t max_pairs_ = 0;
  uint64_t version_ = 0;  // of the surface that the order is of; 0: none
  uint32_t body_count_ = 0;
  uint32_t self_count_ = 0;  // bodies that meet themselves, first in body_pairs_
  uint32_t body_pair_count_ = 0;
  uint64_t order_ = 0;  // how often elements were ordered
  bool is_empty_ = true;
  bool has_list_ = false;
  uint32_t listed_count_ = 0;
  uint64_t list_builds_ = 0;
  Counts counts_;  // as last read or written
  size_t group_size_ = 1;
  Kernel boxes_kernel_, wide_kernel_, few_kernel_, many_kernel_, planes_kernel_, clusters_kernel_, pairs_kernel_, copy_kernel_;
  BoxHierarchy body_tree_;
  ClusterPairs body_cluster_pairs_;
  std::array<Clusters, kSurfaceElementCount> clusters_;
  DeviceBuffer<uint32_t> vertex_begins_, vertices_;       // in blocks of 8 of one body
  DeviceBuffer<float> block_starts_, block_ends_;         // [block][3][8], of the last run
  DeviceBuffer<uint32_t> meets_itself_, may_be_refused_;  // [body]
  DeviceBuffer<uint32_t> active_, changed_;               // [body] in this run
  DeviceBuffer<uint32_t> is_fresh_, stale_;               // [body] what Fixed() tells
  DeviceBuffer<Box> body_boxes_, wide_boxes_;             // [body] of this run; those that the list is of
  DeviceBuffer<Float4> ways_;                             // [body] mean of its vertices' from run to run, or in one [m]
  DeviceBuffer<float> wide_nodes_;                        // wide boxes, 16 a node
  DeviceBuffer<UInt2> listed_, body_pairs_;
  DeviceBuffer<Float4> hints_;  // [listed] a normal that kept the two apart
  DeviceBuffer<uint32_t> counters_;
  std::array<Found, 2> found_;
};

}  // namespace palpate::gpu
