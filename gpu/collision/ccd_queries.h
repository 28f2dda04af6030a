#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/ccd_types.h"
#include "gpu/shared/collision_types.h"

namespace palpate::gpu {

/// What both the single queries and the detector of whole meshes obey.
struct CcdOptions {
  double separation_m = 0;   ///< distance that counts as contact, >= 0
  double tolerance = 1e-6;   ///< share of the step by which a time of impact may be early, in [1e-7, 0.1]
  uint32_t max_steps = 100;  ///< of the march; a pair that takes more is reported as a hit. >= 1
  bool use_double = true;    ///< where the device has it; in float nothing is missed either, but more is reported in vain

  /// InvalidArgument naming the field out of range.
  absl::Status Validate() const;
};

/// Continuous collision detection of explicit pairs whose vertices move on straight lines from time 0 to 1. The method proves that a pair
/// does not meet, with bounds on every rounding; what it cannot prove is a hit, and so is a pair that merely touches. So no pair that meets
/// is missed and no time of impact is late, whatever the coordinates. docs/algorithms/ccd.md.
///
/// Thread: one at a time. Determinism: run to run on one device.
class CcdQueries {
 public:
  static constexpr size_t kCoordinates = 24;

  static absl::StatusOr<CcdQueries> Create(const std::shared_ptr<Context>& context, const CcdOptions& options = {});

  /// Whether the kernels compute in double.
  bool is_double() const { return is_double_; }

  /// Blocking. `kind`: PALPATE_VERTEX_TRIANGLE (points v, t0, t1, t2) or PALPATE_EDGE_EDGE (a0, a1, b0, b1). `coordinates`: 24 a query, x,
  /// y, z of the four points at time 0, then at time 1 [m]. `errors_m`: one a query (or empty: all exact), what each coordinate may be off.
  /// Errors: InvalidArgument (kind, lengths, negative error), ResourceExhausted.
  absl::StatusOr<std::vector<CcdAnswer>> Run(Queue& queue, uint32_t kind, std::span<const double> coordinates,
                                             std::span<const double> errors_m = {});

 private:
  template <typename Real>
  absl::StatusOr<std::vector<CcdAnswer>> RunAs(Queue& queue, uint32_t kind, std::span<const double> coordinates,
                                               std::span<const double> errors_m);

  std::shared_ptr<Context> context_;
  CcdOptions options_;
  bool is_double_ = false;
  Kernel kernel_;
};

}  // namespace palpate::gpu
