#include "sim/nurbs/nurbs_trim_cells.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include <Eigen/QR>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/nurbs/gauss_quadrature.h"

namespace palpate::sim {
namespace {

using Eigen::MatrixXd;
using Eigen::Vector2d;
using Eigen::VectorXd;

constexpr double kOnSide = 2 * kNurbsLoopGap;
constexpr int kSamplesOfPiece = 16;    // of a Bezier piece, between which an arc turns once at most
constexpr double kSameLine = 1e-13;    // of a domain's width: slabs are no thinner
constexpr double kSameMoment = 1e-11;  // of the area
constexpr size_t kLinesOfSlab = 20, kPointsOfLine = 12;

absl::Status Overlap(double u, double v, int winding) {
  return absl::InvalidArgumentError(absl::StrCat("loops: cross or ", winding > 1 ? "overlap" : "run clockwise around what is not left",
                                                 " at (u, v) = (", u, ", ", v, ")"));
}

}  // namespace

absl::StatusOr<NurbsTrimCells> NurbsTrimCells::Create(const NurbsPatch& patch) {
  NurbsTrimCells out;
  for (size_t axis = 0; axis < 2; ++axis) {
    const auto knots = patch.surface.knots(axis == 0 ? NurbsDirection::kU : NurbsDirection::kV);
    std::unique_copy(knots.begin(), knots.end(), std::back_inserter(out.lines_[axis]));
    out.near_[static_cast<Eigen::Index>(axis)] = kOnSide * (out.lines_[axis].back() - out.lines_[axis].front());
  }
  for (const std::vector<NurbsTrim>& loop : patch.Boundary()) {
    for (const NurbsTrim& trim : loop) {
      out.curves_.push_back(trim.curve);
      out.AddArcs(static_cast<uint32_t>(out.curves_.size()) - 1, trim.is_reversed);
    }
  }
  PALPATE_RETURN_IF_ERROR(out.FindKinds());
  return out;
}

absl::Status NurbsTrimCells::FindKinds() {
  kinds_.assign(rows() * columns(), NurbsCellKind::kEmpty);
  cell_arcs_.resize(kinds_.size());
  column_arcs_.resize(columns());
  for (uint32_t a = 0; a < arcs_.size(); ++a) {
    const Arc& arc = arcs_[a];
    const size_t last_column = IndexOf(1, arc.high[1]), last_row = IndexOf(0, arc.high[0]);
    for (size_t column = IndexOf(1, arc.low[1]); column <= last_column; ++column) {
      column_arcs_[column].push_back(a);
      for (size_t row = IndexOf(0, arc.low[0]); row <= last_row; ++row) {
        if (IsInside(arc, row, column)) cell_arcs_[row * columns() + column].push_back(a);
      }
    }
  }
  bool is_any_left = false;
  for (size_t column = 0; column < columns(); ++column) {
    // Off the middle, where arcs of other cells are likely to end.
    const double v = 0.4871 * lines_[1][column] + 0.5129 * lines_[1][column + 1];
    std::vector<std::array<double, 2>> left;
    PALPATE_RETURN_IF_ERROR(IntervalsOn(column, v, lines_[0].front(), lines_[0].back(), &left));
    size_t next = 0;
    for (size_t row = 0; row < rows(); ++row) {
      NurbsCellKind& kind = kinds_[row * columns() + column];
      if (!cell_arcs_[row * columns() + column].empty()) {
        kind = NurbsCellKind::kCut;
        PALPATE_ASSIGN_OR_RETURN(const std::vector<NurbsCubaturePoint> points, PointsOf(row, column));
        if (points.empty()) kind = NurbsCellKind::kEmpty;
      } else {
        const double middle = 0.5 * lines_[0][row] + 0.5 * lines_[0][row + 1];
        while (next < left.size() && left[next][1] < middle) ++next;
        if (next < left.size() && left[next][0] <= middle) kind = NurbsCellKind::kWhole;
      }
      is_any_left = is_any_left || kind != NurbsCellKind::kEmpty;
    }
  }
  return is_any_left ? absl::OkStatus() : absl::InvalidArgumentError("loops: they leave nothing of the patch");
}

size_t NurbsTrimCells::IndexOf(int axis, double t) const {
  const std::vector<double>& lines = lines_[static_cast<size_t>(axis)];
  const auto after = static_cast<size_t>(std::upper_bound(lines.begin(), lines.end(), t) - lines.begin());
  return std::clamp<size_t>(after, 1, lines.size() - 1) - 1;
}

void NurbsTrimCells::AddArcs(uint32_t number, bool is_reversed) {
  const NurbsCurve<2>& curve = curves_[number];
  std::vector<double> breaks;
  const auto knots = curve.knots();
  for (size_t k = 0; k + 1 < knots.size(); ++k) {
    if (!(knots[k] < knots[k + 1])) continue;
    breaks.push_back(knots[k]);
    double before = knots[k];
    Vector2d speed = curve.AtWithDerivatives(before).dt;
    for (int i = 1; i <= kSamplesOfPiece; ++i) {
      const double share = static_cast<double>(i) / kSamplesOfPiece;
      const double after = i == kSamplesOfPiece ? knots[k + 1] : (1 - share) * knots[k] + share * knots[k + 1];
      const Vector2d speed_after = curve.AtWithDerivatives(std::nextafter(after, before)).dt;
      for (int axis = 0; axis < 2; ++axis) {
        if ((speed[axis] < 0) == (speed_after[axis] < 0)) continue;
        double a = before, b = after;
        for (int step = 0; step < 100; ++step) {
          const double middle = 0.5 * a + 0.5 * b;
          if (!(middle > a && middle < b)) break;
          ((curve.AtWithDerivatives(middle).dt[axis] < 0) == (speed[axis] < 0) ? a : b) = middle;
        }
        breaks.push_back(b);
      }
      before = after;
      speed = speed_after;
    }
  }
  breaks.push_back(knots.back());
  std::sort(breaks.begin(), breaks.end());
  for (size_t i = 0; i + 1 < breaks.size(); ++i) {
    if (!(breaks[i] < breaks[i + 1])) continue;
    Arc arc{.curve = number, .first = breaks[i], .last = breaks[i + 1], .start = curve.At(breaks[i]), .end = curve.At(breaks[i + 1])};
    const double rise = arc.end.y() - arc.start.y();
    // What is left lies to the left: a line of rising u enters it where the loop falls.
    if (rise != 0) arc.winding = (rise > 0) != is_reversed ? -1 : 1;
    for (size_t axis = 0; axis < 2; ++axis) {
      const auto at = static_cast<Eigen::Index>(axis);
      std::tie(arc.low[axis], arc.high[axis]) = std::minmax(arc.start[at], arc.end[at]);
    }
    arcs_.push_back(arc);
  }
}

/// Newton's method, kept inside by bisection.
double NurbsTrimCells::ParameterAt(const Arc& arc, int axis, double value) const {
  const NurbsCurve<2>& curve = curves_[arc.curve];
  double a = arc.first, b = arc.last;
  const double rise = arc.end[axis] - arc.start[axis];
  double t = rise != 0 ? a + std::clamp((value - arc.start[axis]) / rise, 0.0, 1.0) * (b - a) : a;
  for (int step = 0; step < 200; ++step) {
    const auto at = curve.AtWithDerivatives(t);
    const double off = at.point[axis] - value;
    if (off == 0) return t;
    ((off < 0) == (rise > 0) ? a : b) = t;
    double next = at.dt[axis] != 0 ? t - off / at.dt[axis] : a;
    if (!(next > a && next < b) || step % 8 == 7) next = 0.5 * a + 0.5 * b;
    if (!(next > a && next < b) || std::abs(next - t) <= 1e-15 * (std::abs(arc.last) + std::abs(arc.first))) return t;
    t = next;
  }
  return t;
}

bool NurbsTrimCells::IsInside(const Arc& arc, size_t row, size_t column) const {
  const double u0 = lines_[0][row] + near_[0], u1 = lines_[0][row + 1] - near_[0];
  const double v0 = lines_[1][column] + near_[1], v1 = lines_[1][column + 1] - near_[1];
  if (!(arc.low[0] < u1 && arc.high[0] > u0 && arc.low[1] < v1 && arc.high[1] > v0)) return false;
  const NurbsCurve<2>& curve = curves_[arc.curve];
  const auto u_at = [&](double v, const Vector2d& beyond) {
    return v > arc.low[1] && v < arc.high[1] ? curve.At(ParameterAt(arc, 1, v)).x() : beyond.x();
  };
  const bool rises = arc.end.y() >= arc.start.y();
  const auto [low, high] = std::minmax({u_at(v0, rises ? arc.start : arc.end), u_at(v1, rises ? arc.end : arc.start)});
  return low < u1 && high > u0;
}

std::vector<double> NurbsTrimCells::SlabsOf(size_t row, size_t column, std::span<const uint32_t> inside) const {
  const double v0 = lines_[1][column], v1 = lines_[1][column + 1];
  std::vector<double> at = {v0, v1};
  for (const uint32_t a : inside) {
    const Arc& arc = arcs_[a];
    at.push_back(arc.start.y());
    at.push_back(arc.end.y());
    for (const double u : {lines_[0][row], lines_[0][row + 1]}) {
      if (u > arc.low[0] && u < arc.high[0]) at.push_back(curves_[arc.curve].At(ParameterAt(arc, 0, u)).y());
    }
  }
  std::sort(at.begin(), at.end());
  std::vector<double> out = {v0};
  const double same = kSameLine * (lines_[1].back() - lines_[1].front());
  for (const double v : at) {
    if (v > out.back() + same && v < v1 - same) out.push_back(v);
  }
  out.push_back(v1);
  return out;
}

absl::Status NurbsTrimCells::IntervalsOn(size_t column, double v, double u0, double u1,
                                         std::vector<std::array<double, 2>>* intervals) const {
  std::vector<std::pair<double, int>> crossings;
  int winding = 0;
  for (const uint32_t a : column_arcs_[column]) {
    const Arc& arc = arcs_[a];
    // An end belongs to the arc above it, so that a line through a corner counts once.
    if (arc.winding == 0 || !(arc.low[1] <= v && v < arc.high[1]) || arc.low[0] >= u1) continue;
    const double u = arc.high[0] <= u0 ? u0 : curves_[arc.curve].At(ParameterAt(arc, 1, v)).x();
    if (u <= u0) {
      winding += arc.winding;
    } else if (u < u1) {
      crossings.emplace_back(u, arc.winding);
    }
  }
  std::sort(crossings.begin(), crossings.end());
  crossings.emplace_back(u1, 0);
  double from = u0;
  for (const auto& [u, change] : crossings) {
    if (u - from > near_[0] && (winding < 0 || winding > 1)) return Overlap(0.5 * from + 0.5 * u, v, winding);
    if (winding > 0 && u > from) {
      if (!intervals->empty() && intervals->back()[1] == from) {
        intervals->back()[1] = u;
      } else {
        intervals->push_back({from, u});
      }
    }
    from = u;
    winding += change;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<NurbsCubaturePoint>> NurbsTrimCells::PointsOf(size_t row, size_t column) const {
  static const GaussRule along = MakeGaussRule(kPointsOfLine), across = MakeGaussRule(kLinesOfSlab);
  std::vector<NurbsCubaturePoint> out;
  const std::vector<double> slabs = SlabsOf(row, column, cell_arcs_[row * columns() + column]);
  for (size_t s = 0; s + 1 < slabs.size(); ++s) {
    const double height = slabs[s + 1] - slabs[s];
    for (size_t i = 0; i < kLinesOfSlab; ++i) {
      const double turn = std::numbers::pi * across.places[i];
      const double v = slabs[s] + height * (1 - std::cos(turn)) / 2;
      const double dv = across.weights[i] * height * std::numbers::pi / 2 * std::sin(turn);
      std::vector<std::array<double, 2>> intervals;
      PALPATE_RETURN_IF_ERROR(IntervalsOn(column, v, lines_[0][row], lines_[0][row + 1], &intervals));
      for (const auto& [first, last] : intervals) {
        for (size_t j = 0; j < kPointsOfLine; ++j) {
          const double weight = along.weights[j] * (last - first) * dv;
          if (weight > 0) out.push_back({{first + along.places[j] * (last - first), v}, weight});
        }
      }
    }
  }
  return out;
}

std::vector<NurbsCubaturePoint> CompressCubature(std::span<const NurbsCubaturePoint> points, int degree) {
  const std::vector<NurbsCubaturePoint> all(points.begin(), points.end());
  const auto moments = static_cast<Eigen::Index>((degree + 1) * (degree + 2) / 2);
  const auto count = static_cast<Eigen::Index>(all.size());
  if (count <= moments) return all;
  Eigen::AlignedBox2d box;
  double area = 0;
  for (const NurbsCubaturePoint& p : all) {
    box.extend(p.uv);
    area += p.weight;
  }
  // Products of Legendre polynomials over the box.
  MatrixXd values(moments, count);
  for (Eigen::Index k = 0; k < count; ++k) {
    const Vector2d at = 2 * (all[static_cast<size_t>(k)].uv - box.center()).cwiseQuotient(box.sizes().cwiseMax(1e-300));
    MatrixXd legendre(degree + 1, 2);
    legendre.row(0).setOnes();
    if (degree > 0) legendre.row(1) = at.transpose();
    for (int n = 1; n < degree; ++n) {
      const double order = n;
      legendre.row(n + 1) = ((2 * order + 1) * at.transpose().cwiseProduct(legendre.row(n)) - order * legendre.row(n - 1)) / (order + 1);
    }
    Eigen::Index row = 0;
    for (int i = 0; i <= degree; ++i) {
      for (int j = 0; i + j <= degree; ++j) values(row++, k) = legendre(i, 0) * legendre(j, 1);
    }
  }
  VectorXd wanted = VectorXd::Zero(moments);
  for (Eigen::Index k = 0; k < count; ++k) wanted += all[static_cast<size_t>(k)].weight / area * values.col(k);

  // Lawson and Hanson: `chosen` have positive weights.
  std::vector<Eigen::Index> chosen;
  std::vector<uint8_t> is_chosen(all.size(), 0), is_refused(all.size(), 0);
  VectorXd weights = VectorXd::Zero(count);
  VectorXd left = wanted;
  for (Eigen::Index step = 0; step < 8 * moments && left.norm() > kSameMoment; ++step) {
    const VectorXd gain = values.transpose() * left;
    Eigen::Index best = -1;
    for (Eigen::Index k = 0; k < count; ++k) {
      if (is_chosen[static_cast<size_t>(k)] + is_refused[static_cast<size_t>(k)] == 0 && gain[k] > 0 && (best < 0 || gain[k] > gain[best]))
        best = k;
    }
    if (best < 0) break;
    chosen.push_back(best);
    is_chosen[static_cast<size_t>(best)] = 1;
    while (!chosen.empty()) {
      MatrixXd of(moments, static_cast<Eigen::Index>(chosen.size()));
      for (size_t c = 0; c < chosen.size(); ++c) of.col(static_cast<Eigen::Index>(c)) = values.col(chosen[c]);
      const VectorXd solved = of.householderQr().solve(wanted);
      double share = 1;  // as far as all stay positive
      for (size_t c = 0; c < chosen.size(); ++c) {
        const double to = solved[static_cast<Eigen::Index>(c)], from = weights[chosen[c]];
        if (to <= 0) share = std::min(share, from / (from - to));
      }
      for (size_t c = 0; c < chosen.size(); ++c) {
        weights[chosen[c]] += share * (solved[static_cast<Eigen::Index>(c)] - weights[chosen[c]]);
      }
      if (share == 1) break;
      std::erase_if(chosen, [&](Eigen::Index k) {
        if (weights[k] > 1e-15) return false;
        weights[k] = 0;
        is_chosen[static_cast<size_t>(k)] = 0;
        return true;
      });
    }
    // What rounding alone wants in is out at once, and waits until something else has come in.
    if (is_chosen[static_cast<size_t>(best)] == 0) {
      is_refused[static_cast<size_t>(best)] = 1;
    } else {
      std::fill(is_refused.begin(), is_refused.end(), uint8_t{0});
    }
    left = wanted - values * weights;
  }
  if (!(left.norm() <= kSameMoment)) return all;
  std::vector<NurbsCubaturePoint> out;
  for (size_t k = 0; k < all.size(); ++k) {
    if (weights[static_cast<Eigen::Index>(k)] > 0) out.push_back({all[k].uv, area * weights[static_cast<Eigen::Index>(k)]});
  }
  return out;
}

}  // namespace palpate::sim
