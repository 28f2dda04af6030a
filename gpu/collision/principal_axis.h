#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "gpu/base/status.h"
#include "gpu/collision/kdop.h"
#include "gpu/primitives/primitive_config.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/kdop.h"

namespace palpate::gpu {

/// Row-major symmetric 3x3 matrix.
using Matrix3 = std::array<std::array<double, 3>, 3>;

/// Eigenvalues of a symmetric matrix in falling order with their unit eigenvectors (vectors[i] belongs to values[i]).
struct SymmetricEigen {
  std::array<double, 3> values = {};
  Matrix3 vectors = {};
};

/// Cyclic Jacobi rotations (Golub and Van Loan, Matrix Computations, 8.5) to machine precision. No value if an element is not finite.
std::optional<SymmetricEigen> EigenOfSymmetric(const Matrix3& matrix);

/// The sweep axis of `volume` nearest in angle to `direction` (not 0, any length); the first of equals.
uint32_t NearestSweepAxis(BoundingVolume volume, const std::array<double, 3>& direction);

/// Finds the direction in which the centres of bodies spread most: principal component analysis of the centred centres.
/// Thread: one at a time.
class PrincipalAxis {
 public:
  static absl::StatusOr<PrincipalAxis> Create(const std::shared_ptr<Context>& context, BoundingVolume volume);

  /// Blocking. Covariance [m^2] of the centres of volumes[0, count) (empty ones left out). The device sums each chunk about one of its own
  /// centres, the host joins the chunks in double (Chan, Golub, LeVeque 1983), so that a far origin costs no digits.
  absl::StatusOr<Matrix3> Covariance(Queue& queue, BufferView<float> volumes, uint32_t count);

  /// Blocking. The sweep axis nearest to the principal one. No value where there is none: all centres in one point, or not finite.
  absl::StatusOr<std::optional<uint32_t>> Find(Queue& queue, BufferView<float> volumes, uint32_t count);

 private:
  PrimitiveConfig config_;
  BoundingVolume volume_ = BoundingVolume::kDop6;
  uint32_t chunk_count_ = 0;
  Kernel kernel_;
  DeviceBuffer<CentreMoments> moments_;
};

}  // namespace palpate::gpu
