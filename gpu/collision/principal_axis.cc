#include "gpu/collision/principal_axis.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource principal_axis;
}

std::optional<SymmetricEigen> EigenOfSymmetric(const Matrix3& matrix) {
  Matrix3 a = matrix;
  Matrix3 v = {{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}};
  double scale = 0;
  for (const auto& row : a) {
    for (const double element : row) {
      if (!std::isfinite(element)) return std::nullopt;
      scale = std::max(scale, std::abs(element));
    }
  }
  // A rotation squares the off-diagonal part in the end, so a few sweeps do; the bound is for safety only.
  for (int sweep = 0; sweep < 60; ++sweep) {
    const double off = std::max({std::abs(a[0][1]), std::abs(a[0][2]), std::abs(a[1][2])});
    if (off <= 1e-18 * scale) break;
    for (const auto& [p, q] : {std::pair<size_t, size_t>{0, 1}, {0, 2}, {1, 2}}) {
      if (a[p][q] == 0) continue;
      const double theta = 0.5 * (a[q][q] - a[p][p]) / a[p][q];
      const double t = std::copysign(1.0, theta) / (std::abs(theta) + std::sqrt(theta * theta + 1));
      const double c = 1 / std::sqrt(t * t + 1);
      const double s = t * c;
      for (size_t k = 0; k < 3; ++k) {
        const double kp = a[k][p];
        const double kq = a[k][q];
        a[k][p] = c * kp - s * kq;
        a[k][q] = s * kp + c * kq;
      }
      for (size_t k = 0; k < 3; ++k) {
        const double pk = a[p][k];
        const double qk = a[q][k];
        a[p][k] = c * pk - s * qk;
        a[q][k] = s * pk + c * qk;
        const double vp = v[k][p];
        const double vq = v[k][q];
        v[k][p] = c * vp - s * vq;
        v[k][q] = s * vp + c * vq;
      }
    }
  }
  std::array<size_t, 3> order = {0, 1, 2};
  std::sort(order.begin(), order.end(), [&](size_t i, size_t j) { return a[i][i] > a[j][j]; });
  SymmetricEigen result;
  for (size_t i = 0; i < 3; ++i) {
    result.values[i] = a[order[i]][order[i]];
    for (size_t k = 0; k < 3; ++k) result.vectors[i][k] = v[k][order[i]];
  }
  return result;
}

uint32_t NearestSweepAxis(BoundingVolume volume, const std::array<double, 3>& direction) {
  uint32_t best = 0;
  double best_cosine = -1;
  for (uint32_t axis = 0; axis < SweepAxisCount(volume); ++axis) {
    const std::array<double, 3> n = SweepAxis(volume, axis);
    const double dot = n[0] * direction[0] + n[1] * direction[1] + n[2] * direction[2];
    const double cosine = std::abs(dot) / std::sqrt(n[0] * n[0] + n[1] * n[1] + n[2] * n[2]);
    // Rounding of the eigenvector must not decide between equals.
    if (cosine > best_cosine * (1 + 1e-9)) {
      best = axis;
      best_cosine = cosine;
    }
  }
  return best;
}

absl::StatusOr<PrincipalAxis> PrincipalAxis::Create(const std::shared_ptr<Context>& context, BoundingVolume volume) {
  PrincipalAxis axis;
  axis.volume_ = volume;
  axis.config_ = PrimitiveConfig::For(context->device());
  axis.chunk_count_ = axis.config_.group_size == 1 ? axis.config_.max_groups : 2048;
  PALPATE_ASSIGN_OR_RETURN(axis.kernel_, context->CreateKernel(kernels::principal_axis, "centre_moments", VolumeDefines(volume)));
  PALPATE_ASSIGN_OR_RETURN(axis.moments_, DeviceBuffer<CentreMoments>::Create(context, axis.chunk_count_, "centre moments"));
  return axis;
}

absl::StatusOr<Matrix3> PrincipalAxis::Covariance(Queue& queue, BufferView<float> volumes, uint32_t count) {
  PALPATE_RETURN_IF_ERROR(CheckCapacity("PrincipalAxis", "volumes", volumes.count, size_t{count} * FloatsPerVolume(volume_)));
  const uint32_t chunk_length = count / chunk_count_ + 1;
  PALPATE_RETURN_IF_ERROR(queue.Launch(kernel_, {chunk_count_, config_.group_size == 1 ? size_t{1} : size_t{64}}, Arg("count", count),
                                       Arg("chunk_length", chunk_length), Arg("volumes", volumes), Arg("moments", moments_)));
  std::vector<CentreMoments> chunks(chunk_count_);
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(moments_, chunks));

  double total = 0;
  std::array<double, 3> mean = {};
  Matrix3 scatter = {};
  for (const CentreMoments& chunk : chunks) {
    const double n = chunk.reference.w;
    if (n == 0) continue;
    const std::array<double, 3> sum = {chunk.sum.x, chunk.sum.y, chunk.sum.z};
    const std::array<double, 3> reference = {chunk.reference.x, chunk.reference.y, chunk.reference.z};
    const Matrix3 squares = {{{chunk.diagonal.x, chunk.mixed.x, chunk.mixed.y},
                              {chunk.mixed.x, chunk.diagonal.y, chunk.mixed.z},
                              {chunk.mixed.y, chunk.mixed.z, chunk.diagonal.z}}};
    std::array<double, 3> apart;  // from the mean so far to that of the chunk
    for (size_t i = 0; i < 3; ++i) apart[i] = reference[i] + sum[i] / n - mean[i];
    for (size_t i = 0; i < 3; ++i) {
      for (size_t j = 0; j < 3; ++j) {
        scatter[i][j] += squares[i][j] - sum[i] * sum[j] / n + apart[i] * apart[j] * total * n / (total + n);
      }
    }
    for (size_t i = 0; i < 3; ++i) mean[i] += apart[i] * n / (total + n);
    total += n;
  }
  if (total > 0) {
    for (auto& row : scatter) {
      for (double& element : row) element /= total;
    }
  }
  return scatter;
}

absl::StatusOr<std::optional<uint32_t>> PrincipalAxis::Find(Queue& queue, BufferView<float> volumes, uint32_t count) {
  PALPATE_ASSIGN_OR_RETURN(const Matrix3 covariance, Covariance(queue, volumes, count));
  const std::optional<SymmetricEigen> eigen = EigenOfSymmetric(covariance);
  if (!eigen.has_value() || !(eigen->values[0] > 0)) return std::optional<uint32_t>();
  return std::optional<uint32_t>(NearestSweepAxis(volume_, eigen->vectors[0]));
}

}  // namespace palpate::gpu
