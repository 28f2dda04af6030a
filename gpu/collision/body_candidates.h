#pragma once

#include <array>
#include <memory>
#include <vector>

#include "gpu/collision/box_hierarchy.h"
#include "gpu/collision/candidate_pairs.h"

namespace palpate::gpu {

/// Candidates of scenes of many small bodies: pairs of bodies first, then the clusters of these.
///
/// 1. Boxes around the way of each body; pairs of bodies whose boxes meet.
/// 2. A plane that keeps the two apart, by more than the distance, at the start and at the end: then they stay apart in between too, since
///    heights over a plane change linearly. Its normal is sought by GJK on the vertices at the start, then at the end. The bodies need
///    not be convex; if they are not, it is their hulls that are kept apart. What meets itself is never dismissed.
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
  absl::Status Begin(Queue& queue, const DeviceSurface& surface, BufferView<Float4> starts_m, BufferView<Float4> ends_m,
                     float distance_m) override;
  absl::Status BeginAgain(Queue& queue, const DeviceSurface& surface, BufferView<Float4> starts_m, BufferView<Float4> ends_m,
                          float distance_m) override;
  bool is_empty() const override { return is_empty_; }
  BufferView<uint32_t> active_bodies() const override { return active_; }
  absl::StatusOr<ElementClusters> Add(Queue& queue, SurfaceElement kind, BufferView<Box> boxes) override;
  absl::Status Find(Queue& queue, SurfaceElement p, SurfaceElement q) override;

  /// Pairs of bodies that no plane kept apart in this run, those with themselves included.
  uint32_t body_pair_count() const { return body_pair_count_; }

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

  BodyCandidates() = default;
  absl::Status Order(Queue& queue, const DeviceSurface& surface, BufferView<Float4> positions_m);
  absl::Status OrderKind(Queue& queue, const DeviceSurface& surface, SurfaceElement kind, const std::vector<Float4>& positions);
  absl::Status FindBodyPairs(Queue& queue, const DeviceSurface& surface, BufferView<Float4> starts_m, BufferView<Float4> ends_m,
                             float distance_m, bool only_changed);

  std::shared_ptr<Context> context_;
  uint64_t max_pairs_ = 0;
  uint64_t version_ = 0;  // of the surface that the order is of; 0: none
  uint32_t body_count_ = 0;
  uint32_t self_count_ = 0;  // bodies that meet themselves, first in body_pairs_
  uint32_t body_pair_count_ = 0;
  bool is_empty_ = true;
  size_t group_size_ = 1;
  Kernel boxes_kernel_, few_kernel_, many_kernel_, clusters_kernel_, pairs_kernel_, copy_kernel_;
  BoxHierarchy body_tree_;
  ClusterPairs body_cluster_pairs_;
  std::array<Clusters, kSurfaceElementCount> clusters_;
  DeviceBuffer<uint32_t> vertex_begins_, vertices_, body_groups_, meets_itself_, active_, changed_, counters_;
  DeviceBuffer<Float4> last_ends_;  // of vertices_, in the run before
  DeviceBuffer<Box> body_boxes_;
  DeviceBuffer<UInt2> body_pairs_, pairs_buffer_;
};

}  // namespace palpate::gpu
