#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

/// Basis functions over clamped knots, which curves and surfaces share. `degree` is in [1, kMaxNurbsDegree] unless said otherwise.
namespace palpate::sim {

inline constexpr int kMaxNurbsDegree = 15;

namespace nurbs_basis {

/// Functions that are not 0 in a span, or their derivatives.
using Basis = std::array<double, kMaxNurbsDegree + 1>;

/// Whether degree and knots are those of a curve, clamped and without a gap. Errors: InvalidArgument that names `field`.
absl::Status CheckKnots(absl::string_view field, int degree, std::span<const double> knots);

/// The last k with knots[k] <= t < knots[k + 1]; at the end of the domain that of the last span. O(log knots).
size_t SpanOf(std::span<const double> knots, int degree, double t);

/// Where a parameter lies, brought into the domain.
struct Located {
  double t;
  size_t span;
  size_t first;  ///< control point that counts there
};
Located Locate(std::span<const double> knots, int degree, double t);

/// N_{k - degree .. k, degree} at t in span k; `degree` may be 0.
Basis BasisOf(std::span<const double> knots, int degree, size_t k, double t);

/// Of orders 0 to 2.
std::array<Basis, 3> BasisWithDerivatives(std::span<const double> knots, int degree, size_t k, double t);

size_t Multiplicity(std::span<const double> knots, double t);

/// A knot inside with about as many spans before it as after it; nothing if there is a single span. O(log knots).
std::optional<double> MiddleKnot(std::span<const double> knots, int degree);

/// Middle of the longest span, the first of equals.
double MiddleOfLongestSpan(std::span<const double> knots);

}  // namespace nurbs_basis
}  // namespace palpate::sim
