#pragma once

#include <cstdint>
#include <memory>

#include "gpu/base/status.h"
#include "gpu/primitives/radix_sort.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/kdop.h"

namespace palpate::gpu {

/// A list of pairs (a, b), a < b < body_count, that kernels append to in any order (append_pair in volume_tile.clh) and that is then sorted
/// by (a, b), so that the same pairs give the same list. Never truncated: kernels count past the capacity, Complete grows the list and asks
/// for the emission to be run again.
///
/// The order takes two radix sorts, by b and then by a (the sort is stable), of the bits that body_count needs. It costs the same for any
/// distribution: a floor that meets every body is no special case. Memory: 32 bytes a pair. Thread: one at a time.
class PairList {
 public:
  /// `max_pairs` (at most kMaxItems) bounds the memory.
  static absl::StatusOr<PairList> Create(const std::shared_ptr<Context>& context, uint64_t max_pairs);

  /// Enqueues an empty list for bodies [0, body_count). Errors: ResourceExhausted.
  absl::Status Begin(Queue& queue, uint32_t body_count);

  /// What emission kernels are given, in the order of PairSink. Invalid after Complete returned false.
  BufferView<PairCounters> counters() const { return counters_.view(); }
  uint32_t capacity() const { return capacity_; }
  BufferView<uint32_t> first() const { return first_.view(); }
  BufferView<uint32_t> second() const { return second_.view(); }
  /// [capacity] Where pairs that are emitted in their order may go at once; then there is nothing to Sort.
  BufferView<UInt2> sorted() const { return sorted_.view(); }

  /// Blocking. Whether all pairs found room. If not, the list has grown and is empty again: emit once more. Errors: ResourceExhausted with
  /// the count when there are more than max_pairs.
  absl::StatusOr<bool> Complete(Queue& queue);

  /// Enqueues the sort, after Complete returned true.
  absl::Status Sort(Queue& queue);

  /// The smallest body that a kernel called invalid, as of the last Complete; 0xffffffff for none.
  uint32_t bad_body() const { return result_.bad_body; }
  uint32_t row_tiles() const { return result_.row_tiles; }  ///< bodies that AllPairs compared with a cluster of 16
  uint32_t count() const { return result_.pair_count; }
  BufferView<UInt2> pairs() const { return {sorted_.handle(), count()}; }  ///< after Sort

 private:
  absl::Status Reset(Queue& queue, uint32_t body_count, uint32_t bad_body);
  absl::Status Reserve(uint32_t capacity);

  std::shared_ptr<Context> context_;
  PrimitiveConfig config_;
  uint64_t max_pairs_ = 0;
  uint32_t body_count_ = 0;
  uint32_t capacity_ = 0;
  PairCounters result_ = {};
  Kernel zip_;
  RadixSort<uint32_t> sort_;
  DeviceBuffer<PairCounters> counters_;
  DeviceBuffer<uint32_t> first_, second_, first_by_second_, second_sorted_;
  DeviceBuffer<UInt2> sorted_;
};

}  // namespace palpate::gpu
