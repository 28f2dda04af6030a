#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/primitives/primitive_config.h"
#include "gpu/primitives/radix_sort.h"
#include "gpu/primitives/scan.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/box.h"
#include "gpu/shared/collision_types.h"

namespace palpate::gpu {

/// A packed tree of axis-aligned boxes with 16 children a node, rebuilt from scratch on the device: the elements are sorted along a Hilbert
/// curve (group by group), each run of 16 is a cluster, each run of 16 clusters a node of the next level, and so on up to one root. There
/// are no pointers: node i of level k+1 holds nodes 16 i ... 16 i + 15 of level k, so memory and launches are known from the element count.
/// Boxes of one node lie side by side, coordinate by coordinate, so that one vector operation tests all 16.
///
/// Queries give *cluster pairs*: each holds up to 256 element pairs, which a kernel of the caller tests with box_hierarchy.clh. That splits
/// the work into equal pieces whatever the distribution. Guarantee: two elements whose boxes overlap (closed intervals; touching counts)
/// are in exactly one cluster pair, unless their groups forbid the pair. Unsorted input, uneven sizes and coincident boxes cost time,
/// never pairs. Boxes with a NaN overlap nothing. After: Kamel and Faloutsos, "On packing R-trees", 1993; docs/algorithms/hierarchy.md.
///
/// Thread: one at a time. Determinism: cluster order and cluster pairs are unique for the input.
class BoxHierarchy {
 public:
  static constexpr uint32_t kWidth = 16;
  static constexpr uint32_t kMaxLevels = 8;
  static constexpr uint32_t kNoElement = 0xffffffffU;

  static absl::StatusOr<BoxHierarchy> Create(const std::shared_ptr<Context>& context);

  /// Enqueues the build over boxes[0, count). `groups` (or null: all in one self-pairing group) holds a body index, with
  /// PALPATE_GROUP_SELF if elements of that group may meet each other. `group_count` bounds the body indices (they choose how many bits of
  /// the sort key tell bodies apart; 1 if groups is null). No host round trip unless buffers grow. Errors: InvalidArgument (a buffer too
  /// small, count above 2^26), ResourceExhausted.
  absl::Status Build(Queue& queue, BufferView<Box> boxes, BufferView<uint32_t> groups, uint32_t count, uint32_t group_count);

  uint32_t element_count() const { return count_; }
  uint32_t cluster_count() const { return cluster_count_; }

  /// Boxes of the nodes of all levels, level 0 (clusters of elements) first: [node][6][16] floats, lower x, y, z, upper x, y, z.
  /// Lanes without an element hold NaN, which overlaps nothing.
  BufferView<float> nodes() const { return nodes_.view(); }
  /// Group range of each lane of each node: [node][2][16], smallest and largest group value below it.
  BufferView<uint32_t> node_groups() const { return node_groups_.view(); }
  /// Element of each lane of each cluster, kNoElement in padding: [cluster][16].
  BufferView<uint32_t> elements() const { return elements_.view(); }
  /// Where each level begins in nodes(), then one past the end. There are at least two levels: the lanes of level 1 are the clusters'
  /// own boxes.
  const std::vector<uint32_t>& level_begins() const { return level_begins_; }

 private:
  absl::Status Reserve(uint32_t count, uint32_t curve_count);

  std::shared_ptr<Context> context_;
  PrimitiveConfig config_;
  uint32_t count_ = 0;
  uint32_t cluster_count_ = 0;
  uint32_t capacity_ = 0;
  std::vector<uint32_t> level_begins_;
  Kernel bounds_kernel_, frames_kernel_, keys_kernel_, clusters_kernel_, level_kernel_;
  RadixSort<uint32_t> sort_;
  DeviceBuffer<uint32_t> bounds_;
  DeviceBuffer<Float4> frames_;
  DeviceBuffer<uint32_t> keys_, sorted_keys_, order_;
  DeviceBuffer<float> nodes_;
  DeviceBuffer<uint32_t> node_groups_, elements_;
};

/// Pairs of clusters whose boxes overlap, of a hierarchy with itself or of two hierarchies.
class ClusterPairs {
 public:
  /// `max_pairs` (below 2^32) bounds the memory: 8 bytes a pair.
  static absl::StatusOr<ClusterPairs> Create(const std::shared_ptr<Context>& context, uint64_t max_pairs = 1ULL << 28);

  /// All pairs (p, q), p <= q, of clusters of `tree`. One blocking read. Errors: ResourceExhausted when there are more than max_pairs,
  /// named max_cluster_pairs as in the options of the detectors; the search ends there, before any memory is taken for them.
  absl::Status FindWithin(Queue& queue, const BoxHierarchy& tree);

  /// All pairs (p of a, q of b). Two elements of one group meet only if that group has PALPATE_GROUP_SELF. Errors as above.
  absl::Status FindBetween(Queue& queue, const BoxHierarchy& a, const BoxHierarchy& b);

  /// As FindWithin and FindBetween, without waiting: if there are more pairs than room() the buffer holds none, nor if total() says that
  /// there are too many.
  absl::Status FindOnDevice(Queue& queue, const BoxHierarchy& a, const BoxHierarchy& b, bool within);

  uint32_t count() const { return count_; }
  BufferView<UInt2> pairs() const { return {pairs_.handle(), count_}; }  ///< sorted by (x, y)
  BufferView<UInt2> room() const { return pairs_; }
  const DeviceBuffer<uint32_t>& total() const { return total_; }  ///< pairs found, and whether there are more than max_pairs (1 or 0)

 private:
  absl::Status Find(Queue& queue, const BoxHierarchy& a, const BoxHierarchy& b, bool within);
  absl::Status Count(Queue& queue, const BoxHierarchy& a, const BoxHierarchy& b, bool within);
  absl::Status Write(Queue& queue, const BoxHierarchy& a, const BoxHierarchy& b, bool within);

  std::shared_ptr<Context> context_;
  uint64_t max_pairs_ = 0;
  uint32_t count_ = 0;
  PrimitiveConfig config_;
  Kernel count_kernel_, write_kernel_;
  ExclusiveScan scan_;
  DeviceBuffer<uint32_t> counts_, offsets_, total_;
  DeviceBuffer<UInt2> first_pairs_, pairs_;
};

}  // namespace palpate::gpu
