#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <Eigen/Core>

#include "absl/status/statusor.h"
#include "sim/nurbs/nurbs_basis.h"

namespace palpate::sim {

/// A NURBS curve as files and callers give it, in the plane of a surface's parameters (Dimension 2) or in space (3, metres).
template <int Dimension>
struct NurbsCurveDescription {
  int degree = 0;                                            ///< [1, kMaxNurbsDegree]
  std::vector<double> knots;                                 ///< not decreasing, clamped: the first and the last degree + 1 are equal
  std::vector<Eigen::Matrix<double, Dimension, 1>> control;  ///< [number of knots - degree - 1]
  std::vector<double> weights;                               ///< one a control point, positive; empty: all 1, a B-spline curve
};

inline constexpr size_t kMaxNurbsCurvePoints = size_t{1} << 16;

/// A piecewise rational curve C(t) with positive weights, in double precision. It lies in the convex hull of its control points, and each
/// part of it in that of the part's own.
/// Source: L. Piegl and W. Tiller, The NURBS Book, 2nd edition, chapters 3 to 5.
template <int Dimension>
class NurbsCurve {
 public:
  using Point = Eigen::Matrix<double, Dimension, 1>;
  using Weighted = Eigen::Matrix<double, Dimension + 1, 1>;
  struct PointWithDerivatives {
    Point point, dt, dtt;
  };

  /// An error names the field that is wrong, with what was wanted.
  static absl::StatusOr<NurbsCurve> Create(const NurbsCurveDescription<Dimension>& description);

  int degree() const { return degree_; }
  std::span<const double> knots() const { return knots_; }
  size_t count() const { return control_.size(); }
  std::pair<double, double> domain() const { return {knots_.front(), knots_.back()}; }
  /// Control points times their weights, with the weight behind them.
  std::span<const Weighted> weighted_control() const { return control_; }
  Point control(size_t i) const { return control_[i].hnormalized(); }

  /// Parameters beyond the domain count as its ends. At a knot derivatives are those of the later side, at the end of the earlier one.
  Point At(double t) const;
  PointWithDerivatives AtWithDerivatives(double t) const;

  /// The same curve with the knot `t` inserted `times` times. Error: `t` is not inside the domain, or would be there more often than the
  /// degree.
  absl::StatusOr<NurbsCurve> WithKnot(double t, int times = 1) const;
  /// The parts before and after `t`, with the parameters they had. Error: `t` is not inside the domain.
  absl::StatusOr<std::array<NurbsCurve, 2>> Split(double t) const;
  /// From `first` to `last`, brought into the domain. Precondition: the first is less.
  NurbsCurve Part(double first, double last) const;
  /// The parts between knots, without knots inside.
  std::vector<NurbsCurve> BezierPieces() const;

  /// To `tolerance` (positive, in units of the points, 12 digits at most): Gauss quadrature on Bezier pieces, which are halved until two
  /// halves agree with the whole.
  double Length(double tolerance) const;

 private:
  NurbsCurve() = default;
  void InsertKnot(double t);
  std::array<NurbsCurve, 2> SplitInside(double t) const;
  void SplitAtKnots(std::vector<NurbsCurve>* pieces) const;

  int degree_ = 0;
  std::vector<double> knots_;
  std::vector<Weighted, Eigen::aligned_allocator<Weighted>> control_;
};

extern template class NurbsCurve<2>;
extern template class NurbsCurve<3>;

}  // namespace palpate::sim
