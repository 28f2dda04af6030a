#include "sim/nurbs/nurbs_surface.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/nurbs/nurbs_basis.h"

namespace palpate::sim {
namespace {

using Eigen::Vector3d;
using Eigen::Vector4d;
using nurbs_basis::Basis;
using nurbs_basis::BasisOf;
using nurbs_basis::BasisWithDerivatives;
using nurbs_basis::CheckKnots;
using nurbs_basis::Locate;
using nurbs_basis::Located;
using nurbs_basis::MiddleOfLongestSpan;
using nurbs_basis::Multiplicity;
using nurbs_basis::SpanOf;

}  // namespace

absl::StatusOr<NurbsSurface> NurbsSurface::Create(const NurbsDescription& description) {
  PALPATE_RETURN_IF_ERROR(CheckKnots("knots_u", description.degree_u, description.knots_u));
  PALPATE_RETURN_IF_ERROR(CheckKnots("knots_v", description.degree_v, description.knots_v));
  NurbsSurface out;
  out.sides_ = {Side{description.degree_u, description.knots_u}, Side{description.degree_v, description.knots_v}};
  const size_t rows = out.count(NurbsDirection::kU);
  const size_t columns = out.count(NurbsDirection::kV);
  if (rows > kMaxNurbsControlPoints / columns) {
    return absl::InvalidArgumentError(
        absl::StrCat("knots are for ", rows, " x ", columns, " control points, ", kMaxNurbsControlPoints, " are allowed"));
  }
  if (description.control_m.size() != rows * columns) {
    return absl::InvalidArgumentError(
        absl::StrCat("control_m: ", description.control_m.size(), " control points, knots and degrees are for ", rows, " x ", columns));
  }
  if (!description.weights.empty() && description.weights.size() != description.control_m.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("weights: ", description.weights.size(), " of ", description.control_m.size(), " control points"));
  }
  for (size_t i = 0; i < description.control_m.size(); ++i) {
    const double weight = description.weights.empty() ? 1.0 : description.weights[i];
    if (!(weight > 0) || !std::isfinite(weight)) {
      return absl::InvalidArgumentError(absl::StrCat("weights[", i, "]: ", weight, ", it must be positive and finite"));
    }
    if (!description.control_m[i].allFinite()) return absl::InvalidArgumentError(absl::StrCat("control_m[", i, "]: is not finite"));
    out.control_.emplace_back((weight * description.control_m[i]).homogeneous());
    out.control_.back().w() = weight;
  }
  return out;
}

Vector3d NurbsSurface::Point(double u, double v) const {
  const auto& [su, sv] = sides_;
  const Located at_u = Locate(su.knots, su.degree, u);
  const Located at_v = Locate(sv.knots, sv.degree, v);
  const Basis nu = BasisOf(su.knots, su.degree, at_u.span, at_u.t);
  const Basis nv = BasisOf(sv.knots, sv.degree, at_v.span, at_v.t);
  Vector4d sum = Vector4d::Zero();
  for (size_t i = 0; i <= static_cast<size_t>(su.degree); ++i) {
    const Vector4d* row = &control_[(at_u.first + i) * count(NurbsDirection::kV) + at_v.first];
    for (size_t j = 0; j <= static_cast<size_t>(sv.degree); ++j) sum += nu[i] * nv[j] * row[j];
  }
  return sum.hnormalized();
}

NurbsPoint NurbsSurface::PointWithDerivatives(double u, double v) const {
  const auto& [su, sv] = sides_;
  const Located at_u = Locate(su.knots, su.degree, u);
  const Located at_v = Locate(sv.knots, sv.degree, v);
  const std::array<Basis, 3> nu = BasisWithDerivatives(su.knots, su.degree, at_u.span, at_u.t);
  const std::array<Basis, 3> nv = BasisWithDerivatives(sv.knots, sv.degree, at_v.span, at_v.t);
  std::array<std::array<Vector4d, 3>, 3> a;  // [order in u][order in v]
  for (auto& row : a) row.fill(Vector4d::Zero());
  for (size_t i = 0; i <= static_cast<size_t>(su.degree); ++i) {
    const Vector4d* row = &control_[(at_u.first + i) * count(NurbsDirection::kV) + at_v.first];
    for (size_t ov = 0; ov < 3; ++ov) {
      Vector4d along = Vector4d::Zero();
      for (size_t j = 0; j <= static_cast<size_t>(sv.degree); ++j) along += nv[ov][j] * row[j];
      for (size_t ou = 0; ou + ov < 3; ++ou) a[ou][ov] += nu[ou][i] * along;
    }
  }
  // The quotient rule, order by order.
  const double w = a[0][0].w();
  NurbsPoint out;
  out.point_m = a[0][0].head<3>() / w;
  out.du = (a[1][0].head<3>() - a[1][0].w() * out.point_m) / w;
  out.dv = (a[0][1].head<3>() - a[0][1].w() * out.point_m) / w;
  out.duu = (a[2][0].head<3>() - 2 * a[1][0].w() * out.du - a[2][0].w() * out.point_m) / w;
  out.dvv = (a[0][2].head<3>() - 2 * a[0][1].w() * out.dv - a[0][2].w() * out.point_m) / w;
  out.duv = (a[1][1].head<3>() - a[1][0].w() * out.dv - a[0][1].w() * out.du - a[1][1].w() * out.point_m) / w;
  return out;
}

std::optional<Vector3d> NurbsSurface::Normal(double u, double v) const {
  constexpr double kNoLength = 1e-10;  // of a derivative, as a share of what it changes by
  const NurbsPoint at = PointWithDerivatives(u, v);
  const auto [u0, u1] = domain(NurbsDirection::kU);
  const auto [v0, v1] = domain(NurbsDirection::kV);
  Vector3d along_u = at.du;
  Vector3d along_v = at.dv;
  // At a pole one derivative is 0, and a little inside it is what the mixed one makes it.
  if (along_u.norm() <= kNoLength * (v1 - v0) * at.duv.norm()) along_u = (v < 0.5 * (v0 + v1) ? 1 : -1) * at.duv;
  if (along_v.norm() <= kNoLength * (u1 - u0) * at.duv.norm()) along_v = (u < 0.5 * (u0 + u1) ? 1 : -1) * at.duv;
  const Vector3d normal = along_u.cross(along_v);
  const double length = normal.norm();
  if (!(length > kNoLength * along_u.norm() * along_v.norm())) return std::nullopt;
  return normal / length;
}

void NurbsSurface::InsertKnot(NurbsDirection direction, double t) {
  const std::vector<double>& knots = side(direction).knots;
  const int degree = side(direction).degree;
  const size_t k = SpanOf(knots, degree, t);
  const size_t present = Multiplicity(knots, t);
  const size_t lines = count(direction == NurbsDirection::kU ? NurbsDirection::kV : NurbsDirection::kU);
  const size_t points = count(direction);
  const bool is_u = direction == NurbsDirection::kU;
  std::vector<Vector4d> out((points + 1) * lines);
  for (size_t i = 0; i <= points; ++i) {
    double share = 0;  // of point i, the rest is of the one before
    if (i + static_cast<size_t>(degree) <= k) {
      share = 1;
    } else if (i + present <= k) {
      share = (t - knots[i]) / (knots[i + static_cast<size_t>(degree)] - knots[i]);
    }
    for (size_t line = 0; line < lines; ++line) {
      const auto old = [&](size_t at) -> const Vector4d& { return control_[is_u ? at * lines + line : line * points + at]; };
      Vector4d& to = out[is_u ? i * lines + line : line * (points + 1) + i];
      to = share == 1 ? old(i) : share == 0 ? old(i - 1) : Vector4d(share * old(i) + (1 - share) * old(i - 1));
    }
  }
  control_ = std::move(out);
  side(direction).knots.insert(side(direction).knots.begin() + static_cast<std::ptrdiff_t>(k) + 1, t);
}

absl::StatusOr<NurbsSurface> NurbsSurface::WithKnot(NurbsDirection direction, double t, int times) const {
  const auto [first, last] = domain(direction);
  if (!(t > first && t < last)) {
    return absl::InvalidArgumentError(absl::StrCat("knot ", t, " is not inside (", first, ", ", last, ")"));
  }
  const auto present = static_cast<int>(Multiplicity(knots(direction), t));
  if (times < 0 || times > degree(direction) - present) {
    return absl::InvalidArgumentError(
        absl::StrCat("knot ", t, ": ", times, " more to ", present, ", degree ", degree(direction), " allows as many in all"));
  }
  NurbsSurface out = *this;
  for (int i = 0; i < times; ++i) out.InsertKnot(direction, t);
  return out;
}

NurbsSurface NurbsSurface::Refined(size_t count_u, size_t count_v) const {
  NurbsSurface out = *this;
  while (out.count(NurbsDirection::kU) < count_u) out.InsertKnot(NurbsDirection::kU, MiddleOfLongestSpan(out.knots(NurbsDirection::kU)));
  while (out.count(NurbsDirection::kV) < count_v) out.InsertKnot(NurbsDirection::kV, MiddleOfLongestSpan(out.knots(NurbsDirection::kV)));
  return out;
}

std::array<NurbsSurface, 2> NurbsSurface::SplitInside(NurbsDirection direction, double t) const {
  NurbsSurface whole = *this;
  const auto degree = static_cast<size_t>(this->degree(direction));
  for (size_t present = Multiplicity(knots(direction), t); present < degree; ++present) whole.InsertKnot(direction, t);
  const std::vector<double>& knots = whole.side(direction).knots;
  const auto last = static_cast<size_t>(std::upper_bound(knots.begin(), knots.end(), t) - knots.begin()) - 1;
  const size_t shared = last - degree;  // the control point that lies on the surface at t
  const size_t points = whole.count(direction);
  std::array<NurbsSurface, 2> out = {whole, whole};
  out[0].side(direction).knots.assign(knots.begin(), knots.begin() + static_cast<std::ptrdiff_t>(last) + 1);
  out[0].side(direction).knots.push_back(t);
  out[1].side(direction).knots.assign(knots.begin() + static_cast<std::ptrdiff_t>(shared), knots.end());
  out[1].side(direction).knots.front() = t;
  const size_t columns = whole.count(NurbsDirection::kV);
  if (direction == NurbsDirection::kU) {
    out[0].control_.resize((shared + 1) * columns);
    out[1].control_.assign(whole.control_.begin() + static_cast<std::ptrdiff_t>(shared * columns), whole.control_.end());
    return out;
  }
  for (NurbsSurface& part : out) part.control_.clear();
  for (size_t i = 0; i < whole.control_.size(); ++i) {
    const size_t j = i % points;
    if (j <= shared) out[0].control_.push_back(whole.control_[i]);
    if (j >= shared) out[1].control_.push_back(whole.control_[i]);
  }
  return out;
}

absl::StatusOr<std::array<NurbsSurface, 2>> NurbsSurface::Split(NurbsDirection direction, double t) const {
  const auto [first, last] = domain(direction);
  if (!(t > first && t < last)) {
    return absl::InvalidArgumentError(absl::StrCat("parameter ", t, " to split at is not inside (", first, ", ", last, ")"));
  }
  return SplitInside(direction, t);
}

void NurbsSurface::SplitAtKnots(NurbsDirection direction, std::vector<NurbsSurface>* parts) const {
  // In halves, so that all that is cut is cut log(spans) times, not once for each span.
  const std::optional<double> middle = nurbs_basis::MiddleKnot(knots(direction), degree(direction));
  if (!middle) {
    parts->push_back(*this);
    return;
  }
  const std::array<NurbsSurface, 2> two = SplitInside(direction, *middle);
  for (const NurbsSurface& half : two) half.SplitAtKnots(direction, parts);
}

std::vector<NurbsSurface> NurbsSurface::BezierPatches() const {
  std::vector<NurbsSurface> strips;
  SplitAtKnots(NurbsDirection::kU, &strips);
  std::vector<NurbsSurface> patches;
  for (const NurbsSurface& strip : strips) strip.SplitAtKnots(NurbsDirection::kV, &patches);
  return patches;
}

NurbsSurface NurbsSurface::Transformed(const Eigen::Affine3d& map) const {
  NurbsSurface out = *this;
  for (Vector4d& p : out.control_) p.head<3>() = map.linear() * p.head<3>() + p.w() * map.translation();
  return out;
}

NurbsSurface NurbsSurface::WithControlPoints(std::span<const Eigen::Vector3d> control_m) const {
  NurbsSurface out = *this;
  for (size_t i = 0; i < out.control_.size(); ++i) out.control_[i].head<3>() = out.control_[i].w() * control_m[i];
  return out;
}

NurbsSurface NurbsSurface::Reversed() const {
  NurbsSurface out = *this;
  std::vector<double>& knots = out.sides_[0].knots;
  const double sum = knots.front() + knots.back();
  std::reverse(knots.begin(), knots.end());
  const auto [first, last] = domain(NurbsDirection::kU);
  for (double& t : knots) t = std::clamp(sum - t, first, last);  // the ends to the bit
  const size_t columns = count(NurbsDirection::kV);
  const size_t rows = count(NurbsDirection::kU);
  for (size_t i = 0; i < rows; ++i) {
    std::copy_n(control_.begin() + static_cast<std::ptrdiff_t>(i * columns), columns,
                out.control_.begin() + static_cast<std::ptrdiff_t>((rows - 1 - i) * columns));
  }
  return out;
}

// The surface itself is among those of the higher degree: the one that agrees with it at the Greville abscissae.
absl::StatusOr<NurbsSurface> ElevateNurbsDegree(const NurbsSurface& surface, NurbsDirection direction, int degree) {
  const int before = surface.degree(direction);
  if (degree < before || degree > kMaxNurbsDegree) {
    return absl::InvalidArgumentError(absl::StrCat("degree ", degree, " is outside [", before, ", ", kMaxNurbsDegree, "]"));
  }
  const auto knots = surface.knots(direction);
  std::vector<double> finer;
  for (size_t k = 0; k < knots.size(); ++k) {
    finer.push_back(knots[k]);
    if (k + 1 == knots.size() || knots[k + 1] != knots[k]) finer.insert(finer.end(), static_cast<size_t>(degree - before), knots[k]);
  }
  const size_t points = finer.size() - static_cast<size_t>(degree) - 1;
  const bool is_u = direction == NurbsDirection::kU;
  const size_t lines = surface.count(is_u ? NurbsDirection::kV : NurbsDirection::kU);
  const size_t old_points = surface.count(direction);
  Eigen::MatrixXd from = Eigen::MatrixXd::Zero(static_cast<Eigen::Index>(points), static_cast<Eigen::Index>(old_points));
  Eigen::MatrixXd to = Eigen::MatrixXd::Zero(static_cast<Eigen::Index>(points), static_cast<Eigen::Index>(points));
  for (size_t i = 0; i < points; ++i) {
    double t = 0;
    for (size_t k = 1; k <= static_cast<size_t>(degree); ++k) t += finer[i + k] / degree;
    const auto fill = [&](std::span<const double> of, int of_degree, Eigen::MatrixXd* matrix) {
      const nurbs_basis::Located at = nurbs_basis::Locate(of, of_degree, t);
      const nurbs_basis::Basis n = nurbs_basis::BasisOf(of, of_degree, at.span, at.t);
      for (size_t j = 0; j <= static_cast<size_t>(of_degree); ++j) {
        (*matrix)(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(at.first + j)) = n[j];
      }
    };
    fill(knots, before, &from);
    fill(finer, degree, &to);
  }
  const Eigen::MatrixXd map = to.partialPivLu().solve(from);
  NurbsDescription out;
  out.degree_u = is_u ? degree : surface.degree(NurbsDirection::kU);
  out.degree_v = is_u ? surface.degree(NurbsDirection::kV) : degree;
  const auto other = surface.knots(is_u ? NurbsDirection::kV : NurbsDirection::kU);
  out.knots_u = is_u ? finer : std::vector<double>(other.begin(), other.end());
  out.knots_v = is_u ? std::vector<double>(other.begin(), other.end()) : finer;
  const size_t rows = is_u ? points : lines;
  const size_t columns = is_u ? lines : points;
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < columns; ++j) {
      Eigen::Vector4d sum = Eigen::Vector4d::Zero();
      const size_t line = is_u ? j : i;
      for (size_t k = 0; k < old_points; ++k) {
        const double part = map(static_cast<Eigen::Index>(is_u ? i : j), static_cast<Eigen::Index>(k));
        sum += part * surface.control()[is_u ? k * lines + line : line * old_points + k];
      }
      out.control_m.emplace_back(sum.hnormalized());
      out.weights.push_back(sum.w());
    }
  }
  return NurbsSurface::Create(out);
}

}  // namespace palpate::sim
