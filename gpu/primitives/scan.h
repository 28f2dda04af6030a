#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>

#include "gpu/base/status.h"
#include "gpu/primitives/primitive_config.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"

namespace palpate::gpu {

/// The two kernels and the scratch of a reduce-then-scan; the classes below are its faces.
/// Cost: reads the input twice, writes the output once; at most 2 launches, no host round trip. Thread: one at a time.
class ScanKernels {
 public:
  /// `defines` select the variant of scan.cl; `state_bytes` is the size of its State.
  static absl::StatusOr<ScanKernels> Create(const std::shared_ptr<Context>& context, const ProgramDefines& defines, size_t state_bytes,
                                            std::optional<PrimitiveConfig> config);

  /// `inputs` and `outputs` are those of the variant.
  absl::Status Run(Queue& queue, ItemCount count, const Arg& total, std::initializer_list<Arg> inputs, std::initializer_list<Arg> outputs);

 private:
  PrimitiveConfig config_;
  bool needs_own_sum_ = false;  // compaction by a lone work-item: see IS_KEPT in scan.cl
  Kernel sums_;
  Kernel scan_;
  DeviceBuffer<uint8_t> chunk_sums_;
};

/// out[i] = in[0] + ... + in[i-1] modulo 2^32, out[0] = 0.
class ExclusiveScan {
 public:
  static absl::StatusOr<ExclusiveScan> Create(const std::shared_ptr<Context>& context,
                                              std::optional<PrimitiveConfig> config = std::nullopt);

  /// Enqueues the scan of in[0, count) to out, which may be the same buffer, and leaves the sum of all in total[0] unless `total` is null.
  /// Errors: InvalidArgument (a buffer is too small).
  absl::Status Run(Queue& queue, BufferView<uint32_t> in, ItemCount count, BufferView<uint32_t> out, BufferView<uint32_t> total = {});

 private:
  ScanKernels kernels_;
  DeviceBuffer<uint32_t> own_total_;
};

/// Exclusive scan that starts again at each head: out[i] = sum of in[j] for head <= j < i, where head is the last index <= i with
/// heads[head] != 0 (or 0). T is uint32_t (modulo 2^32) or float (the order of additions depends on count and configuration only).
template <typename T>
class SegmentedScan {
 public:
  static absl::StatusOr<SegmentedScan> Create(const std::shared_ptr<Context>& context,
                                              std::optional<PrimitiveConfig> config = std::nullopt);

  /// Enqueues the scan of in[0, count) to out, which may be the same buffer as `in`, and leaves the sum of the last segment in
  /// last_total[0] unless that is null. Errors: InvalidArgument (a buffer is too small).
  absl::Status Run(Queue& queue, BufferView<T> in, BufferView<uint32_t> heads, ItemCount count, BufferView<T> out,
                   BufferView<T> last_total = {});

 private:
  ScanKernels kernels_;
  DeviceBuffer<T> own_total_;
};

/// Indices of the set flags.
class StreamCompaction {
 public:
  static absl::StatusOr<StreamCompaction> Create(const std::shared_ptr<Context>& context,
                                                 std::optional<PrimitiveConfig> config = std::nullopt);

  /// Enqueues: indices[0, kept[0]) = the i in [0, count) with flags[i] != 0, in rising order. `indices` holds `count` elements; those from
  /// kept[0] on are left as they were. Errors: InvalidArgument (a buffer is too small).
  absl::Status Run(Queue& queue, BufferView<uint32_t> flags, ItemCount count, BufferView<uint32_t> indices, BufferView<uint32_t> kept);

 private:
  ScanKernels kernels_;
};

/// Runs of equal neighbours; of sorted keys, these are the distinct keys with their counts. Key is uint32_t or uint64_t.
template <typename Key>
class RunLengthEncode {
 public:
  static absl::StatusOr<RunLengthEncode> Create(const std::shared_ptr<Context>& context,
                                                std::optional<PrimitiveConfig> config = std::nullopt);

  /// Enqueues: run r of the run_count[0] runs has key run_keys[r] and the elements [run_begins[r], run_begins[r+1]) of `keys`, so its
  /// length is the difference. `run_keys` holds `count` elements, `run_begins` count + 1. Errors: InvalidArgument (a buffer is too small).
  absl::Status Run(Queue& queue, BufferView<Key> keys, ItemCount count, BufferView<Key> run_keys, BufferView<uint32_t> run_begins,
                   BufferView<uint32_t> run_count);

 private:
  ScanKernels kernels_;
};

extern template class SegmentedScan<uint32_t>;
extern template class SegmentedScan<float>;
extern template class RunLengthEncode<uint32_t>;
extern template class RunLengthEncode<uint64_t>;

}  // namespace palpate::gpu
