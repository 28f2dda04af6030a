#include "sim/nurbs/nurbs_curve.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/nurbs/gauss_quadrature.h"

namespace palpate::sim {
namespace {

constexpr int kMaxHalvings = 16;

template <int Dimension>
double GaussLength(const NurbsCurve<Dimension>& curve, double first, double last) {
  const GaussQuadrature& gauss = GaussQuadrature::Get();
  double sum = 0;
  for (size_t i = 0; i < GaussQuadrature::kPoints; ++i) {
    sum += gauss.weights[i] * curve.AtWithDerivatives(first + (last - first) * gauss.places[i]).dt.norm();
  }
  return sum * (last - first);
}

template <int Dimension>
double LengthBetween(const NurbsCurve<Dimension>& curve, double first, double last, double whole, double tolerance, int depth) {
  const double middle = 0.5 * first + 0.5 * last;
  const double before = GaussLength(curve, first, middle);
  const double after = GaussLength(curve, middle, last);
  if (depth == kMaxHalvings || !(middle > first && middle < last) || std::abs(before + after - whole) <= tolerance) return before + after;
  return LengthBetween(curve, first, middle, before, tolerance / 2, depth + 1) +
         LengthBetween(curve, middle, last, after, tolerance / 2, depth + 1);
}

}  // namespace

template <int Dimension>
absl::StatusOr<NurbsCurve<Dimension>> NurbsCurve<Dimension>::Create(const NurbsCurveDescription<Dimension>& description) {
  PALPATE_RETURN_IF_ERROR(nurbs_basis::CheckKnots("knots", description.degree, description.knots));
  NurbsCurve out;
  const size_t count = description.knots.size() - static_cast<size_t>(description.degree) - 1;
  if (count > kMaxNurbsCurvePoints) {
    return absl::InvalidArgumentError(absl::StrCat("knots are for ", count, " control points, ", kMaxNurbsCurvePoints, " are allowed"));
  }
  if (description.control.size() != count) {
    return absl::InvalidArgumentError(
        absl::StrCat("points: ", description.control.size(), " control points, knots and degree are for ", count));
  }
  if (!description.weights.empty() && description.weights.size() != count) {
    return absl::InvalidArgumentError(absl::StrCat("weights: ", description.weights.size(), " of ", count, " control points"));
  }
  out.degree_ = description.degree;
  out.knots_ = description.knots;
  for (size_t i = 0; i < count; ++i) {
    const double weight = description.weights.empty() ? 1.0 : description.weights[i];
    if (!(weight > 0) || !std::isfinite(weight)) {
      return absl::InvalidArgumentError(absl::StrCat("weights[", i, "]: ", weight, ", it must be positive and finite"));
    }
    if (!description.control[i].allFinite()) return absl::InvalidArgumentError(absl::StrCat("points[", i, "]: is not finite"));
    Weighted point;
    point.template head<Dimension>() = weight * description.control[i];
    point[Dimension] = weight;
    out.control_.push_back(point);
  }
  return out;
}

template <int Dimension>
typename NurbsCurve<Dimension>::Point NurbsCurve<Dimension>::At(double t) const {
  const nurbs_basis::Located at = nurbs_basis::Locate(knots_, degree_, t);
  const nurbs_basis::Basis n = nurbs_basis::BasisOf(knots_, degree_, at.span, at.t);
  Weighted sum = Weighted::Zero();
  for (size_t i = 0; i <= static_cast<size_t>(degree_); ++i) sum += n[i] * control_[at.first + i];
  return sum.hnormalized();
}

template <int Dimension>
typename NurbsCurve<Dimension>::PointWithDerivatives NurbsCurve<Dimension>::AtWithDerivatives(double t) const {
  const nurbs_basis::Located at = nurbs_basis::Locate(knots_, degree_, t);
  const std::array<nurbs_basis::Basis, 3> n = nurbs_basis::BasisWithDerivatives(knots_, degree_, at.span, at.t);
  std::array<Weighted, 3> a = {Weighted::Zero(), Weighted::Zero(), Weighted::Zero()};
  for (size_t order = 0; order < 3; ++order) {
    for (size_t i = 0; i <= static_cast<size_t>(degree_); ++i) a[order] += n[order][i] * control_[at.first + i];
  }
  const double w = a[0][Dimension];
  PointWithDerivatives out;
  out.point = a[0].template head<Dimension>() / w;
  out.dt = (a[1].template head<Dimension>() - a[1][Dimension] * out.point) / w;
  out.dtt = (a[2].template head<Dimension>() - 2 * a[1][Dimension] * out.dt - a[2][Dimension] * out.point) / w;
  return out;
}

template <int Dimension>
void NurbsCurve<Dimension>::InsertKnot(double t) {
  const size_t k = nurbs_basis::SpanOf(knots_, degree_, t);
  const size_t present = nurbs_basis::Multiplicity(knots_, t);
  decltype(control_) out(control_.size() + 1);
  for (size_t i = 0; i < out.size(); ++i) {
    double share = 0;  // of point i, the rest is of the one before
    if (i + static_cast<size_t>(degree_) <= k) {
      share = 1;
    } else if (i + present <= k) {
      share = (t - knots_[i]) / (knots_[i + static_cast<size_t>(degree_)] - knots_[i]);
    }
    out[i] = share == 1 ? control_[i] : share == 0 ? control_[i - 1] : Weighted(share * control_[i] + (1 - share) * control_[i - 1]);
  }
  control_ = std::move(out);
  knots_.insert(knots_.begin() + static_cast<std::ptrdiff_t>(k) + 1, t);
}

template <int Dimension>
absl::StatusOr<NurbsCurve<Dimension>> NurbsCurve<Dimension>::WithKnot(double t, int times) const {
  if (!(t > knots_.front() && t < knots_.back())) {
    return absl::InvalidArgumentError(absl::StrCat("knot ", t, " is not inside (", knots_.front(), ", ", knots_.back(), ")"));
  }
  const auto present = static_cast<int>(nurbs_basis::Multiplicity(knots_, t));
  if (times < 0 || times > degree_ - present) {
    return absl::InvalidArgumentError(
        absl::StrCat("knot ", t, ": ", times, " more to ", present, ", degree ", degree_, " allows as many in all"));
  }
  NurbsCurve out = *this;
  for (int i = 0; i < times; ++i) out.InsertKnot(t);
  return out;
}

template <int Dimension>
std::array<NurbsCurve<Dimension>, 2> NurbsCurve<Dimension>::SplitInside(double t) const {
  NurbsCurve whole = *this;
  const auto degree = static_cast<size_t>(degree_);
  for (size_t present = nurbs_basis::Multiplicity(knots_, t); present < degree; ++present) whole.InsertKnot(t);
  const std::vector<double>& knots = whole.knots_;
  const auto last = static_cast<size_t>(std::upper_bound(knots.begin(), knots.end(), t) - knots.begin()) - 1;
  const size_t shared = last - degree;  // the control point that lies on the curve at t
  std::array<NurbsCurve, 2> out = {whole, whole};
  out[0].knots_.assign(knots.begin(), knots.begin() + static_cast<std::ptrdiff_t>(last) + 1);
  out[0].knots_.push_back(t);
  out[1].knots_.assign(knots.begin() + static_cast<std::ptrdiff_t>(shared), knots.end());
  out[1].knots_.front() = t;
  out[0].control_.assign(whole.control_.begin(), whole.control_.begin() + static_cast<std::ptrdiff_t>(shared) + 1);
  out[1].control_.assign(whole.control_.begin() + static_cast<std::ptrdiff_t>(shared), whole.control_.end());
  return out;
}

template <int Dimension>
absl::StatusOr<std::array<NurbsCurve<Dimension>, 2>> NurbsCurve<Dimension>::Split(double t) const {
  if (!(t > knots_.front() && t < knots_.back())) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", t, " to split at is not inside (", knots_.front(), ", ", knots_.back(), ")"));
  }
  return SplitInside(t);
}

template <int Dimension>
NurbsCurve<Dimension> NurbsCurve<Dimension>::Part(double first, double last) const {
  NurbsCurve out = *this;
  if (last < out.knots_.back()) out = out.SplitInside(last)[0];
  if (first > out.knots_.front()) out = out.SplitInside(first)[1];
  return out;
}

template <int Dimension>
void NurbsCurve<Dimension>::SplitAtKnots(std::vector<NurbsCurve>* pieces) const {
  const std::optional<double> middle = nurbs_basis::MiddleKnot(knots_, degree_);
  if (!middle) {
    pieces->push_back(*this);
    return;
  }
  const std::array<NurbsCurve, 2> two = SplitInside(*middle);
  for (const NurbsCurve& half : two) half.SplitAtKnots(pieces);
}

template <int Dimension>
std::vector<NurbsCurve<Dimension>> NurbsCurve<Dimension>::BezierPieces() const {
  std::vector<NurbsCurve> pieces;
  SplitAtKnots(&pieces);
  return pieces;
}

template <int Dimension>
double NurbsCurve<Dimension>::Length(double tolerance) const {
  double sum = 0;
  const std::vector<NurbsCurve> pieces = BezierPieces();
  for (const NurbsCurve& piece : pieces) {
    const auto [first, last] = piece.domain();
    sum += LengthBetween(piece, first, last, GaussLength(piece, first, last), tolerance / static_cast<double>(pieces.size()), 0);
  }
  return sum;
}

template class NurbsCurve<2>;
template class NurbsCurve<3>;

}  // namespace palpate::sim
