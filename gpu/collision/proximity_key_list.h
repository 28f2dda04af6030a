#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>

#include "gpu/base/status.h"
#include "gpu/primitives/radix_sort.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"

namespace palpate::gpu {

/// Bits that hold every number below `count`, at least one.
inline uint32_t BitsFor(uint32_t count) { return std::max<uint32_t>(std::bit_width(std::max(count, 1U) - 1), 1); }

/// Keys that a kernel appends in no particular order, and their sorted copy.
class ProximityKeyList {
 public:
  /// Room for `count` keys and a quarter more, so that a slowly growing list does not move each step; never above `limit`. Old contents are
  /// lost when it grows. Errors: ResourceExhausted.
  absl::Status Reserve(const std::shared_ptr<Context>& context, uint32_t count, uint64_t limit) {
    if (capacity_ >= count && capacity_ > 0) return absl::OkStatus();
    const auto target = static_cast<uint32_t>(std::min<uint64_t>(std::max<uint64_t>(count + uint64_t{count} / 4, 4096), limit));
    capacity_ = 0;
    keys_ = {};
    sorted_ = {};
    order_ = {};
    PALPATE_ASSIGN_OR_RETURN(keys_, DeviceBuffer<uint64_t>::Create(context, target, "keys of pairs"));
    PALPATE_ASSIGN_OR_RETURN(sorted_, DeviceBuffer<uint64_t>::Create(context, target, "sorted keys of pairs"));
    PALPATE_ASSIGN_OR_RETURN(order_, DeviceBuffer<uint32_t>::Create(context, target, "order of pairs"));
    PALPATE_ASSIGN_OR_RETURN(sort_, RadixSort<uint64_t>::Create(context, target));
    capacity_ = target;
    return absl::OkStatus();
  }

  /// Enqueues the sort of the first `count` keys by their lowest `bits` bits.
  absl::Status Sort(Queue& queue, uint32_t count, uint32_t bits) { return sort_.Run(queue, keys_, {}, count, sorted_, order_, {0, bits}); }

  uint32_t capacity() const { return capacity_; }
  const DeviceBuffer<uint64_t>& keys() const { return keys_; }
  const DeviceBuffer<uint64_t>& sorted() const { return sorted_; }

 private:
  uint32_t capacity_ = 0;
  DeviceBuffer<uint64_t> keys_, sorted_;
  DeviceBuffer<uint32_t> order_;
  RadixSort<uint64_t> sort_;
};

}  // namespace palpate::gpu
