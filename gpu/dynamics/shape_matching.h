#pragma once

#include <cstdint>
#include <memory>

#include "gpu/base/status.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/convex_types.h"

namespace palpate::gpu {

/// Best rigid motion of many point sets at once: for each set the rotation R (det +1) and the centres that minimise
/// sum w |R (rest - rest_center) + center - current|^2. See docs/algorithms/shape_matching.md.
///
/// Guarantee: R is a proper rotation for every input that is finite, mirrored, flat, straight and single-point sets included; what the
/// points leave open stays as in the identity, and ShapeMatch.rank tells. Error of R about 1e-6 rad for sets of rank 2 and 3.
/// Cost: one launch, one work-item a set. Determinism: the result is unique.
class ShapeMatching {
 public:
  static absl::StatusOr<ShapeMatching> Create(const std::shared_ptr<Context>& context);

  /// Enqueues the match of set i, points [begins[i], begins[i + 1]), for i < set_count. rest: xyz [m], w = weight >= 0. goals: where each
  /// point would be if the set had moved rigidly. A set without weight gets the identity, and no goals. Errors: InvalidArgument (a buffer
  /// is too small). `begins` is trusted.
  absl::Status Run(Queue& queue, BufferView<uint32_t> begins, uint32_t set_count, BufferView<Float4> rest, BufferView<Float4> current,
                   BufferView<ShapeMatch> matches, BufferView<Float4> goals);

 private:
  Kernel match_;
};

}  // namespace palpate::gpu
