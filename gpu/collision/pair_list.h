#pragma once

#include <cstdint>
#include <memory>

#include "gpu/base/status.h"
#include "gpu/primitives/radix_sort.h"
#include "gpu/primitives/scan.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/kdop.h"

namespace palpate::gpu {

/// A list of pairs (a, b), a < b < body_count, that kernels append to in any order (append_pair in volume_tile.clh) and that is then sorted
/// by (a, b), so that the same pairs give the same list. Never truncated: kernels count past the capacity, Complete grows the list and asks
/// for the emission to be run again.
///
/// The order costs one atomic increment per pair at emission: it counts the partners of each a, and the value it had is the pair's place in
/// the segment of a. After a scan of the counts each pair is moved to its segment, and segments are sorted by insertion. Segments of more
/// than kLongSegment pairs (a floor under everything) are sorted together by radix. Memory: 20 bytes a pair. Thread: one at a time.
class PairList {
 public:
  static constexpr uint32_t kLongSegment = 64;

  /// `max_pairs` < 2^32 bounds the memory.
  static absl::StatusOr<PairList> Create(const std::shared_ptr<Context>& context, uint64_t max_pairs);

  /// Enqueues an empty list for bodies [0, body_count). Errors: ResourceExhausted.
  absl::Status Begin(Queue& queue, uint32_t body_count);

  /// What emission kernels are given, in the order of PairSink. Invalid after Complete returned false.
  BufferView<PairCounters> counters() const { return counters_.view(); }
  BufferView<uint32_t> partner_counts() const { return partner_counts_.view(); }
  uint32_t capacity() const { return capacity_; }
  BufferView<UInt2> emitted() const { return emitted_.view(); }
  BufferView<uint32_t> ranks() const { return ranks_.view(); }

  /// Blocking. Whether all pairs found room. If not, the list has grown and is empty again: emit once more. Errors: ResourceExhausted with
  /// the count when there are more than max_pairs.
  absl::StatusOr<bool> Complete(Queue& queue);

  /// Enqueues the sort, after Complete returned true.
  absl::Status Sort(Queue& queue);

  /// The smallest body that a kernel called invalid, as of the last Complete; 0xffffffff for none.
  uint32_t bad_body() const { return result_.bad_body; }
  uint32_t count() const { return result_.pair_count; }
  BufferView<UInt2> pairs() const { return {sorted_.handle(), count()}; }  ///< after Sort

 private:
  absl::Status Reset(Queue& queue, uint32_t body_count, uint32_t bad_body);
  absl::Status SortLongSegments(Queue& queue);

  std::shared_ptr<Context> context_;
  PrimitiveConfig config_;
  uint64_t max_pairs_ = 0;
  uint32_t body_count_ = 0;
  uint32_t capacity_ = 0;
  PairCounters result_ = {};
  Kernel scatter_, sort_segments_, find_long_, long_keys_, store_long_;
  ExclusiveScan scan_;
  StreamCompaction compaction_;
  DeviceBuffer<PairCounters> counters_;
  DeviceBuffer<uint32_t> partner_counts_, offsets_, ranks_;
  DeviceBuffer<UInt2> emitted_, sorted_;
  // Of long segments only.
  std::unique_ptr<RadixSort<uint64_t>> long_sort_;
  uint32_t long_capacity_ = 0;
  DeviceBuffer<uint32_t> is_long_, places_, long_count_, long_values_;
  DeviceBuffer<uint64_t> keys_, sorted_keys_;
};

}  // namespace palpate::gpu
