#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/types.h"

namespace palpate::gpu {

/// Brings many short runs of elements for several buffers to the device by one transfer, and one launch for each eight buffers: what an
/// edit changed costs what it is worth, and not a call of the driver for each array and run.
/// Thread: one at a time. Determinism: runs of one Flush must not overlap; then the result is unique.
class RunWriter {
 public:
  static absl::StatusOr<RunWriter> Create(const std::shared_ptr<Context>& context);

  /// The next Flush writes `source` to buffer[offset...]. The source is copied; the buffer must live until then. Errors: InvalidArgument
  /// past the end, ResourceExhausted above 2^32 words.
  template <typename T>
  absl::Status Add(const DeviceBuffer<T>& buffer, std::span<const std::type_identity_t<T>> source, size_t offset) {
    static_assert(sizeof(T) % sizeof(uint32_t) == 0, "runs are copied in words");
    return AddWords({buffer.handle(), buffer.size_bytes() / 4}, buffer.name(), source.data(), source.size_bytes() / 4,
                    SaturatedBytes(offset, sizeof(T)) / 4);
  }

  /// The elements `indices` (rising) of `values`, each `stride` long, to the same places of the buffer; neighbours make one run.
  template <typename T>
  absl::Status AddElements(const DeviceBuffer<T>& buffer, const std::vector<T>& values, std::span<const uint32_t> indices,
                           size_t stride = 1) {
    for (size_t i = 0; i < indices.size();) {
      size_t end = i + 1;
      while (end < indices.size() && indices[end] == indices[end - 1] + 1) ++end;
      const size_t begin = indices[i] * stride;
      PALPATE_RETURN_IF_ERROR(Add(buffer, std::span<const T>(values).subspan(begin, (end - i) * stride), begin));
      i = end;
    }
    return absl::OkStatus();
  }

  /// Bytes of the runs that wait for the next Flush.
  size_t pending_bytes() const { return words_.size() * sizeof(uint32_t); }

  /// Proof that the runs that were added are on their way to the device: what needs the result takes it.
  class Written {
    friend class RunWriter;
    Written() = default;
  };
  /// Enqueues all runs, in queue order with other commands.
  absl::StatusOr<Written> Flush(Queue& queue);

 private:
  static constexpr size_t kTargets = 8;  // of a launch
  struct Batch {
    std::vector<BufferView<uint32_t>> targets;
    std::vector<UInt4> runs;  // target, first word there, word count, first word in words_
  };

  RunWriter() = default;
  absl::Status AddWords(BufferView<uint32_t> buffer, const std::string& name, const void* source, size_t count, size_t offset);

  Kernel write_runs_;
  std::vector<Batch> batches_;
  std::vector<uint32_t> words_;
  DeviceBuffer<UInt4> device_runs_;
  DeviceBuffer<uint32_t> device_words_;
};

}  // namespace palpate::gpu
