#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <Eigen/Core>

#include "absl/status/statusor.h"
#include "sim/nurbs/nurbs_object.h"

namespace palpate::sim {

/// A point of a quadrature over a part of a patch's domain.
struct NurbsCubaturePoint {
  Eigen::Vector2d uv{0, 0};
  double weight = 0;  ///< positive, of du dv or of what was asked for
};

/// What trimming leaves of a cell between lines of knots.
enum class NurbsCellKind : uint8_t { kEmpty, kWhole, kCut };

/// The cells between the lines of knots of a patch, and quadrature over what its loops leave of them. Loops are exact: they are cut into
/// arcs along which u and v do not turn. A cell is cut into slabs in v at the ends of these arcs and where they cross its sides; on a line
/// of a slab the arcs bound intervals of u. Points are Gauss points of both. A slab's lines lie at (1 - cos pi s) / 2, so that arcs which
/// turn at its end, as square roots do, are smooth in s. Arcs nearer to a side of a cell than twice kNurbsLoopGap of the domain lie on it.
/// Other decompositions of cut cells: B. Marussig and T. J. R. Hughes, A review of trimming in isogeometric analysis, 2018; M.
/// Breitenberger, A. Apostolatos, B. Philipp, R. Wuechner, K.-U. Bletzinger, Analysis in computer aided design, 2015.
///
/// Keeps what it needs of the patch. Immutable after construction.
class NurbsTrimCells {
 public:
  /// Errors: InvalidArgument (loops that overlap, cross or leave nothing), naming a place.
  static absl::StatusOr<NurbsTrimCells> Create(const NurbsPatch& patch);

  size_t rows() const { return lines_[0].size() - 1; }     ///< along u
  size_t columns() const { return lines_[1].size() - 1; }  ///< along v
  /// Knots of u (0) or v (1) without repetitions.
  std::span<const double> lines(int axis) const { return lines_[static_cast<size_t>(axis)]; }
  /// The row (axis 0) or column of a parameter; on a line the later one, at the end the last.
  size_t IndexOf(int axis, double t) const;
  NurbsCellKind kind(size_t row, size_t column) const { return kinds_[row * columns() + column]; }

  /// Of what is left of a cell, with weights of du dv: moments of discs are within 1e-8 of the area (tested).
  /// Precondition: the cell is not empty. Error: InvalidArgument as above.
  absl::StatusOr<std::vector<NurbsCubaturePoint>> PointsOf(size_t row, size_t column) const;

 private:
  /// A part of a loop along which neither u nor v turns.
  struct Arc {
    uint32_t curve = 0;
    double first = 0, last = 0;  // parameters of the curve
    Eigen::Vector2d start, end;  // there
    int winding = 0;             // what a line of rising u gains where it crosses the arc; 0: along u
    std::array<double, 2> low{}, high{};
  };

  void AddArcs(uint32_t curve, bool is_reversed);
  double ParameterAt(const Arc& arc, int axis, double value) const;
  bool IsInside(const Arc& arc, size_t row, size_t column) const;
  std::vector<double> SlabsOf(size_t row, size_t column, std::span<const uint32_t> inside) const;
  absl::Status FindKinds();
  /// Intervals of [u0, u1] that are left on a line of v in a column. Error: a winding number that is neither 0 nor 1.
  absl::Status IntervalsOn(size_t column, double v, double u0, double u1, std::vector<std::array<double, 2>>* intervals) const;

  std::array<std::vector<double>, 2> lines_;
  Eigen::Vector2d near_{0, 0};  // what lies on a side of a cell
  std::vector<NurbsCurve<2>> curves_;
  std::vector<Arc> arcs_;
  std::vector<NurbsCellKind> kinds_;                // [row][column]
  std::vector<std::vector<uint32_t>> cell_arcs_;    // [row][column] those inside
  std::vector<std::vector<uint32_t>> column_arcs_;  // [column] those that a line of v may cross
};

/// Few points with positive weights that integrate all polynomials of `degree` in (u, v) over a box about them as the given ones do, to
/// 1e-11: by non-negative least squares on their moments (C. L. Lawson and R. J. Hanson, Solving Least Squares Problems, 1974). There are
/// no more than (degree + 1) (degree + 2) / 2; Tchakaloff's theorem says that they exist. Sources: A. P. Nagy and D. J. Benson, On the
/// numerical integration of trimmed isogeometric elements, 2015; A. Sommariva and M. Vianello, Compression of multivariate discrete
/// measures, 2015. The given points where rounding keeps it from that.
std::vector<NurbsCubaturePoint> CompressCubature(std::span<const NurbsCubaturePoint> points, int degree);

}  // namespace palpate::sim
