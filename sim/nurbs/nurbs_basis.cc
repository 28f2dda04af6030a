#include "sim/nurbs/nurbs_basis.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace palpate::sim::nurbs_basis {

constexpr double kLeastDomain = 1e-100;  // derivatives by shorter ones overflow

absl::Status CheckKnots(absl::string_view field, int degree, std::span<const double> knots) {
  if (degree < 1 || degree > kMaxNurbsDegree) {
    return absl::InvalidArgumentError(absl::StrCat("degree of ", field, ": ", degree, ", it must be in [1, ", kMaxNurbsDegree, "]"));
  }
  const auto order = static_cast<size_t>(degree) + 1;
  if (knots.size() < 2 * order) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": ", knots.size(), " knots, degree ", degree, " needs ", 2 * order, " at least"));
  }
  for (size_t i = 0; i < knots.size(); ++i) {
    if (!std::isfinite(knots[i])) return absl::InvalidArgumentError(absl::StrCat(field, "[", i, "]: is not finite"));
    if (i > 0 && knots[i] < knots[i - 1]) {
      return absl::InvalidArgumentError(absl::StrCat(field, "[", i, "]: ", knots[i], " is less than ", knots[i - 1], " before it"));
    }
  }
  if (knots[order - 1] != knots.front() || knots[knots.size() - order] != knots.back()) {
    return absl::InvalidArgumentError(absl::StrCat(field, ": not clamped, the first and the last ", order, " knots must be equal"));
  }
  if (!(knots.front() < knots.back())) return absl::InvalidArgumentError(absl::StrCat(field, ": all knots are equal"));
  if (!(knots.back() - knots.front() >= kLeastDomain)) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": from ", knots.front(), " to ", knots.back(), ", the domain must be at least ", kLeastDomain, " long"));
  }
  for (size_t i = order; i + order < knots.size(); ++i) {
    const bool is_end = knots[i] == knots.front() || knots[i] == knots.back();
    if (is_end || knots[i] == knots[i + order - 1]) {
      return absl::InvalidArgumentError(absl::StrCat(field, "[", i, "]: ", knots[i], " is there more often than degree ", degree,
                                                     is_end ? " + 1 allows at an end" : " allows inside"));
    }
  }
  return absl::OkStatus();
}

size_t SpanOf(std::span<const double> knots, int degree, double t) {
  const auto first = knots.begin() + degree;
  const auto last = knots.end() - degree - 1;
  return static_cast<size_t>(std::upper_bound(first, last, t) - knots.begin()) - 1;
}

Located Locate(std::span<const double> knots, int degree, double t) {
  const double inside = std::clamp(t, knots.front(), knots.back());
  const size_t span = SpanOf(knots, degree, inside);
  return {inside, span, span - static_cast<size_t>(degree)};
}

// All denominators are knots around the span, so none is 0.
Basis BasisOf(std::span<const double> knots, int degree, size_t k, double t) {
  Basis n{1.0};
  for (int d = 1; d <= degree; ++d) {
    double carried = 0;
    for (int j = 0; j < d; ++j) {
      const double right = knots[k + static_cast<size_t>(j) + 1];
      const double left = knots[k + static_cast<size_t>(j) + 1 - static_cast<size_t>(d)];
      const double share = n[static_cast<size_t>(j)] / (right - left);
      n[static_cast<size_t>(j)] = carried + (right - t) * share;
      carried = (t - left) * share;
    }
    n[static_cast<size_t>(d)] = carried;
  }
  return n;
}

namespace {

// From functions of degree - 1, or their derivatives, in span k: the derivatives of those of `degree`.
Basis Derived(std::span<const double> knots, int degree, size_t k, const Basis& lower) {
  Basis out{};
  for (int j = 0; j < degree; ++j) {
    const double left = knots[k + static_cast<size_t>(j) + 1 - static_cast<size_t>(degree)];
    const double slope = degree * lower[static_cast<size_t>(j)] / (knots[k + static_cast<size_t>(j) + 1] - left);
    out[static_cast<size_t>(j)] -= slope;
    out[static_cast<size_t>(j) + 1] += slope;
  }
  return out;
}

}  // namespace

std::array<Basis, 3> BasisWithDerivatives(std::span<const double> knots, int degree, size_t k, double t) {
  std::array<Basis, 3> out{BasisOf(knots, degree, k, t)};
  out[1] = Derived(knots, degree, k, BasisOf(knots, degree - 1, k, t));
  if (degree > 1) out[2] = Derived(knots, degree, k, Derived(knots, degree - 1, k, BasisOf(knots, degree - 2, k, t)));
  return out;
}

size_t Multiplicity(std::span<const double> knots, double t) {
  const auto range = std::equal_range(knots.begin(), knots.end(), t);
  return static_cast<size_t>(range.second - range.first);
}

std::optional<double> MiddleKnot(std::span<const double> knots, int degree) {
  const auto order = static_cast<size_t>(degree) + 1;
  if (knots.size() <= 2 * order) return std::nullopt;
  return knots[order + (knots.size() - 2 * order) / 2];
}

double MiddleOfLongestSpan(std::span<const double> knots) {
  size_t longest = 0;
  for (size_t i = 1; i + 1 < knots.size(); ++i) {
    if (knots[i + 1] - knots[i] > knots[longest + 1] - knots[longest]) longest = i;
  }
  return 0.5 * knots[longest] + 0.5 * knots[longest + 1];
}

}  // namespace palpate::sim::nurbs_basis
