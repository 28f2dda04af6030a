#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <Eigen/Core>
#include <Eigen/Geometry>

#include "absl/status/statusor.h"
#include "sim/nurbs/nurbs_basis.h"

namespace palpate::sim {

/// The two directions of a surface's parameters.
enum class NurbsDirection { kU, kV };

/// A NURBS surface as files and callers give it.
struct NurbsDescription {
  int degree_u = 0;                        ///< [1, kMaxNurbsDegree]
  int degree_v = 0;                        ///< likewise
  std::vector<double> knots_u;             ///< not decreasing, clamped: the first and the last degree_u + 1 are equal
  std::vector<double> knots_v;             ///< likewise
  std::vector<Eigen::Vector3d> control_m;  ///< [count_u][count_v], count = number of knots - degree - 1
  std::vector<double> weights;             ///< one a control point, positive; empty: all 1, a B-spline surface
};

inline constexpr size_t kMaxNurbsControlPoints = size_t{1} << 20;

/// A point of a surface with its derivatives by the parameters.
struct NurbsPoint {
  Eigen::Vector3d point_m;
  Eigen::Vector3d du, dv;
  Eigen::Vector3d duu, duv, dvv;
};

/// A piecewise rational surface S(u, v) with positive weights, in double precision. With positive weights it lies in the convex hull of its
/// control points, also each part of it in that of the part's own, and affine maps of the control points map the surface.
/// Source: L. Piegl and W. Tiller, The NURBS Book, 2nd edition, chapters 4 and 5.
class NurbsSurface {
 public:
  /// An error names the field that is wrong, with what was wanted.
  static absl::StatusOr<NurbsSurface> Create(const NurbsDescription& description);

  int degree(NurbsDirection direction) const { return side(direction).degree; }
  std::span<const double> knots(NurbsDirection direction) const { return side(direction).knots; }
  size_t count(NurbsDirection direction) const { return side(direction).knots.size() - static_cast<size_t>(degree(direction)) - 1; }
  /// First and last parameter.
  std::pair<double, double> domain(NurbsDirection direction) const { return {side(direction).knots.front(), side(direction).knots.back()}; }
  /// Control points times their weights, with the weight as the fourth: [count_u][count_v].
  std::span<const Eigen::Vector4d> control() const { return control_; }
  Eigen::Vector3d control_m(size_t i, size_t j) const { return control_[i * count(NurbsDirection::kV) + j].hnormalized(); }

  /// Parameters beyond the domain count as its ends. At a knot the derivatives are those of the later side, at the end of the earlier one.
  Eigen::Vector3d Point(double u, double v) const;
  NurbsPoint PointWithDerivatives(double u, double v) const;
  /// Unit, along S_u x S_v. Where an edge of the surface is one point (a pole) it is the limit from within; nothing where there is none.
  std::optional<Eigen::Vector3d> Normal(double u, double v) const;

  /// The same surface with the knot `t` inserted `times` times. Error: `t` is not inside the domain, or would be there more often than the
  /// degree.
  absl::StatusOr<NurbsSurface> WithKnot(NurbsDirection direction, double t, int times = 1) const;
  /// The same surface with at least so many control points: knots are inserted in the middle of the longest span, the first of equals.
  NurbsSurface Refined(size_t count_u, size_t count_v) const;
  /// The parts before and after `t`, both clamped, with the parameters they had. Error: `t` is not inside the domain.
  absl::StatusOr<std::array<NurbsSurface, 2>> Split(NurbsDirection direction, double t) const;
  /// The parts between knots, without knots inside: rational Bezier patches, v fastest.
  std::vector<NurbsSurface> BezierPatches() const;
  NurbsSurface Transformed(const Eigen::Affine3d& map) const;
  /// With other control points, [count_u][count_v] m; weights and knots stay.
  NurbsSurface WithControlPoints(std::span<const Eigen::Vector3d> control_m) const;
  /// The same points, seen from the other side: u runs backwards.
  NurbsSurface Reversed() const;

 private:
  struct Side {
    int degree = 0;
    std::vector<double> knots;
  };
  NurbsSurface() = default;
  const Side& side(NurbsDirection direction) const { return sides_[direction == NurbsDirection::kU ? 0 : 1]; }
  Side& side(NurbsDirection direction) { return sides_[direction == NurbsDirection::kU ? 0 : 1]; }
  void InsertKnot(NurbsDirection direction, double t);
  void SplitAtKnots(NurbsDirection direction, std::vector<NurbsSurface>* parts) const;
  std::array<NurbsSurface, 2> SplitInside(NurbsDirection direction, double t) const;

  std::array<Side, 2> sides_;
  std::vector<Eigen::Vector4d> control_;
};

/// The same surface with a higher degree in one direction; knots become as many times more. Error: lower than now, or out of range.
absl::StatusOr<NurbsSurface> ElevateNurbsDegree(const NurbsSurface& surface, NurbsDirection direction, int degree);

}  // namespace palpate::sim
