#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "gpu/base/status.h"
#include "gpu/primitives/primitive_config.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/box.h"

namespace palpate::gpu {

enum class ReductionOp { kSum, kMin, kMax };

/// Sum, minimum or maximum of an array of float, uint32_t or uint64_t.
///
/// Sums of integers wrap. The order of a float sum depends on count and configuration only: the same bits in each run. kMin and kMax of
/// floats ignore NaNs; which zero is returned of -0 and +0 is not specified. Of no elements: 0 for kSum; for kMin the largest value
/// (+inf for float), for kMax the smallest (0, or -inf for float).
/// Cost: reads the input once, at most 2 launches, no host round trip. Thread: one at a time. Determinism: run to run.
template <typename T>
class Reduction {
 public:
  /// `config` is that of the device by default.
  static absl::StatusOr<Reduction> Create(const std::shared_ptr<Context>& context, ReductionOp op,
                                          std::optional<PrimitiveConfig> config = std::nullopt);

  /// Enqueues out[0] = the reduction of in[0, count). Errors: InvalidArgument (a buffer is too small).
  absl::Status Run(Queue& queue, BufferView<T> in, ItemCount count, BufferView<T> out);

 private:
  PrimitiveConfig config_;
  Kernel chunks_;
  Kernel partials_kernel_;
  DeviceBuffer<T> partials_;
};

/// Bounding box of an array of points (w unused). NaN coordinates are ignored. The box of no points is empty (see gpu/shared/box.h).
/// Cost, thread and determinism as Reduction.
class BoundingBox {
 public:
  static absl::StatusOr<BoundingBox> Create(const std::shared_ptr<Context>& context, std::optional<PrimitiveConfig> config = std::nullopt);

  /// Enqueues out[0] = the box of points[0, count). Errors: InvalidArgument (a buffer is too small).
  absl::Status Run(Queue& queue, BufferView<Float4> points, ItemCount count, BufferView<Box> out);

 private:
  PrimitiveConfig config_;
  Kernel chunks_;
  Kernel partials_kernel_;
  DeviceBuffer<Box> partials_;
};

extern template class Reduction<float>;
extern template class Reduction<uint32_t>;
extern template class Reduction<uint64_t>;

}  // namespace palpate::gpu
