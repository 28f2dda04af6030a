#pragma once

#include <array>
#include <cstddef>

namespace palpate::sim {

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
