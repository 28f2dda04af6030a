#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "gpu/base/status.h"
#include "gpu/primitives/primitive_config.h"
#include "gpu/primitives/scan.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"

namespace palpate::gpu {

/// Macros of radix_sort.clh for keys of type Key.
template <typename Key>
ProgramDefines RadixDefines(const PrimitiveConfig& config);

/// Bits [begin, end) of a key.
struct BitRange {
  uint32_t begin = 0;
  uint32_t end = 0;
};

/// Stable sort of pairs (key, 32-bit value) by rising key: least-significant-digit radix sort (Knuth 5.2.5) with per-chunk digit counts.
/// Key is uint32_t, uint64_t or float (order of FloatBitsToKey in gpu/shared/float_key.h: -0 before +0, NaNs outermost).
///
/// Cost: up to 8 bits a pass, up to 11 on CPUs; a pass reads the keys twice and the values once, writes both once, with 3 to 4 launches; up
/// to 2,048 elements one launch makes all passes. No host round trip. Memory: one more pair of arrays of the capacity. Thread: one at a
/// time. Determinism: the result is unique.
template <typename Key>
class RadixSort {
 public:
  static constexpr BitRange kAllBits = {0, 8 * sizeof(Key)};

  /// For up to `capacity` elements (at most kMaxItems).
  static absl::StatusOr<RadixSort> Create(const std::shared_ptr<Context>& context, uint32_t capacity,
                                          std::optional<PrimitiveConfig> config = std::nullopt);

  /// Enqueues the sort of the first `count` pairs to keys_out and values_out; the inputs are not changed and must be other buffers. A null
  /// `values_in` stands for 0, 1, 2, ... Only the bits in `bits` are compared, which takes fewer passes. Errors: InvalidArgument (capacity
  /// exceeded, a buffer too small, bits out of range).
  absl::Status Run(Queue& queue, BufferView<Key> keys_in, BufferView<uint32_t> values_in, ItemCount count, BufferView<Key> keys_out,
                   BufferView<uint32_t> values_out, BitRange bits = kAllBits);

 private:
  PrimitiveConfig config_;
  uint32_t capacity_ = 0;
  Kernel count_;
  Kernel scatter_;
  Kernel few_;
  ExclusiveScan scan_;
  DeviceBuffer<uint32_t> counts_;
  DeviceBuffer<Key> keys_;
  DeviceBuffer<uint32_t> values_;
};

extern template class RadixSort<uint32_t>;
extern template class RadixSort<uint64_t>;
extern template class RadixSort<float>;

}  // namespace palpate::gpu
