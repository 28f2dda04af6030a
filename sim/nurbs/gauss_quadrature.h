#pragma once

#include <array>
#include <cstddef>
#include <vector>

namespace palpate::sim {

/// Gauss-Legendre quadrature on [0, 1] with any number of points, exact for polynomials of degree 2 `points` - 1; places descend.
struct GaussRule {
  std::vector<double> places, weights;
};
GaussRule MakeGaussRule(size_t points);

/// Gauss-Legendre quadrature on [0, 1], exact for polynomials of degree 23.
struct GaussQuadrature {
  static constexpr size_t kPoints = 12;
  std::array<double, kPoints> places{};
  std::array<double, kPoints> weights{};

  static const GaussQuadrature& Get();

 private:
  GaussQuadrature();
};

}  // namespace palpate::sim
