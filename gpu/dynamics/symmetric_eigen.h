#pragma once

#include <array>
#include <cmath>
#include <cstddef>

namespace palpate::gpu {

template <size_t n>
using Matrix = std::array<std::array<double, n>, n>;  // rows

/// Eigenvalues, in no order, and orthonormal eigenvectors (columns) of a symmetric matrix, by cyclic Jacobi rotations.
template <size_t n>
void SymmetricEigen(Matrix<n> a, std::array<double, n>* values, Matrix<n>* vectors) {
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) (*vectors)[i][j] = i == j ? 1 : 0;
  }
  for (int sweep = 0; sweep < 64; ++sweep) {
    double off = 0;
    double on = 0;
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) (i == j ? on : off) += a[i][j] * a[i][j];
    }
    if (off <= 1e-30 * on) break;
    for (size_t p = 0; p + 1 < n; ++p) {
      for (size_t q = p + 1; q < n; ++q) {
        if (a[p][q] == 0) continue;
        const double theta = (a[q][q] - a[p][p]) / (2 * a[p][q]);
        const double t = std::copysign(1.0, theta) / (std::abs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(t * t + 1);
        const double s = t * c;
        for (size_t k = 0; k < n; ++k) {
          const double kp = a[k][p];
          const double kq = a[k][q];
          a[k][p] = c * kp - s * kq;
          a[k][q] = s * kp + c * kq;
        }
        for (size_t k = 0; k < n; ++k) {
          const double pk = a[p][k];
          const double qk = a[q][k];
          a[p][k] = c * pk - s * qk;
          a[q][k] = s * pk + c * qk;
          const double vp = (*vectors)[k][p];
          const double vq = (*vectors)[k][q];
          (*vectors)[k][p] = c * vp - s * vq;
          (*vectors)[k][q] = s * vp + c * vq;
        }
      }
    }
  }
  for (size_t i = 0; i < n; ++i) (*values)[i] = a[i][i];
}

}  // namespace palpate::gpu
