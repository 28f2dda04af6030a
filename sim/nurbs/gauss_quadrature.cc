#include "sim/nurbs/gauss_quadrature.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace palpate::sim {

const GaussQuadrature& GaussQuadrature::Get() {
  static const GaussQuadrature quadrature;
  return quadrature;
}

// Roots of the Legendre polynomial by Newton's method.
GaussRule MakeGaussRule(size_t points) {
  GaussRule rule;
  const auto n = static_cast<int>(points);
  for (int i = 0; i < n; ++i) {
    double x = std::cos(std::numbers::pi * (i + 0.75) / (n + 0.5));
    double slope = 1;
    for (int step = 0; step < 8; ++step) {
      double before = 1;
      double value = x;
      for (int k = 2; k <= n; ++k) {
        const double next = ((2 * k - 1) * x * value - (k - 1) * before) / k;
        before = value;
        value = next;
      }
      slope = n * (before - x * value) / (1 - x * x);
      x -= value / slope;
    }
    rule.places.push_back(0.5 + 0.5 * x);
    rule.weights.push_back(1 / ((1 - x * x) * slope * slope));
  }
  return rule;
}

GaussQuadrature::GaussQuadrature() {
  const GaussRule rule = MakeGaussRule(kPoints);
  std::copy(rule.places.begin(), rule.places.end(), places.begin());
  std::copy(rule.weights.begin(), rule.weights.end(), weights.begin());
}

}  // namespace palpate::sim
