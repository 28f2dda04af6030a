#include "sim/nurbs/nurbs_derivative_bounds.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <Eigen/Geometry>

namespace palpate::sim {
namespace {

using Eigen::Vector3d;

/// A polynomial of (u, v) by its Bernstein coefficients, numbers or vectors.
template <typename T>
struct Polynomial {
  size_t rows = 1, columns = 1;  // degrees in u and v, and one
  std::vector<T> coefficients;   // [rows][columns]

  const T& At(size_t i, size_t j) const { return coefficients[i * columns + j]; }
};

/// [n][k] of all n up to `most`.
std::vector<std::vector<double>> PascalsTriangle(size_t most) {
  std::vector<std::vector<double>> out(most + 1);
  for (size_t n = 0; n <= most; ++n) {
    out[n].assign(n + 1, 1);
    for (size_t k = 1; k < n; ++k) out[n][k] = out[n - 1][k - 1] + out[n - 1][k];
  }
  return out;
}

/// Of a degree of at least one in this direction, over an interval of this width.
template <typename T>
Polynomial<T> Derivative(const Polynomial<T>& a, NurbsDirection direction, double width) {
  const bool is_u = direction == NurbsDirection::kU;
  Polynomial<T> out{is_u ? a.rows - 1 : a.rows, is_u ? a.columns : a.columns - 1, {}};
  const double factor = static_cast<double>(is_u ? out.rows : out.columns) / width;
  for (size_t i = 0; i < out.rows; ++i) {
    for (size_t j = 0; j < out.columns; ++j) {
      out.coefficients.push_back(factor * ((is_u ? a.At(i + 1, j) : a.At(i, j + 1)) - a.At(i, j)));
    }
  }
  return out;
}

class Bounder {
 public:
  explicit Bounder(const NurbsSurface& bezier)
      : choose_(PascalsTriangle(3 * std::max(bezier.count(NurbsDirection::kU), bezier.count(NurbsDirection::kV)))) {}

  NurbsDerivativeBounds Of(const NurbsSurface& part) const {
    const size_t rows = part.count(NurbsDirection::kU), columns = part.count(NurbsDirection::kV);
    Eigen::AlignedBox3d box;
    for (const Eigen::Vector4d& p : part.control()) box.extend(Vector3d(p.hnormalized()));
    // About the middle, which changes no derivative: smaller numbers round less.
    Polynomial<Vector3d> a{rows, columns, {}};
    Polynomial<double> w{rows, columns, {}};
    for (const Eigen::Vector4d& p : part.control()) {
      a.coefficients.emplace_back(p.w() * (Vector3d(p.hnormalized()) - box.center()));
      w.coefficients.push_back(p.w());
    }
    const auto width = [&](NurbsDirection direction) {
      const auto [first, last] = part.domain(direction);
      return last - first;
    };
    constexpr auto kU = NurbsDirection::kU;
    constexpr auto kV = NurbsDirection::kV;
    const bool is_polynomial = std::ranges::all_of(w.coefficients, [&](double weight) { return weight == w.coefficients[0]; });
    if (is_polynomial) return OfDifferences(a, w.coefficients[0], width(kU), width(kV));
    const auto by = [&](const auto& of, NurbsDirection direction) { return Derivative(of, direction, width(direction)); };
    const Polynomial<double> w_u = by(w, kU), w_v = by(w, kV);
    const Polynomial<Vector3d> p = Sum(w, by(a, kU), -1, w_u, a), q = Sum(w, by(a, kV), -1, w_v, a);
    const Polynomial<double> w_sq = Product(w, w);
    const Polynomial<double> w_cubed = Product(w_sq, w);
    return {.u = Most(p, w_sq),
            .v = Most(q, w_sq),
            .uu = Most(Sum(w, by(p, kU), -2, w_u, p), w_cubed),
            .uv = Most(Sum(w, by(p, kV), -2, w_v, p), w_cubed),
            .vv = Most(Sum(w, by(q, kV), -2, w_v, q), w_cubed)};
  }

 private:
  /// Of a / w with a constant weight: by differences of the coefficients, which are the derivatives' but for factors.
  static NurbsDerivativeBounds OfDifferences(const Polynomial<Vector3d>& a, double w, double width_u, double width_v) {
    const double pu = static_cast<double>(a.rows - 1) / width_u, pv = static_cast<double>(a.columns - 1) / width_v;
    const double puu = pu * (static_cast<double>(a.rows) - 2) / width_u, pvv = pv * (static_cast<double>(a.columns) - 2) / width_v;
    NurbsDerivativeBounds most;
    for (size_t i = 0; i < a.rows; ++i) {
      for (size_t j = 0; j < a.columns; ++j) {
        const bool has_u = i + 1 < a.rows, has_v = j + 1 < a.columns;
        if (has_u) most.u = std::max(most.u, pu * (a.At(i + 1, j) - a.At(i, j)).norm() / w);
        if (has_v) most.v = std::max(most.v, pv * (a.At(i, j + 1) - a.At(i, j)).norm() / w);
        if (has_u && has_v) {
          most.uv = std::max(most.uv, pu * pv * (a.At(i + 1, j + 1) - a.At(i + 1, j) - a.At(i, j + 1) + a.At(i, j)).norm() / w);
        }
        if (i + 2 < a.rows) most.uu = std::max(most.uu, puu * (a.At(i + 2, j) - 2 * a.At(i + 1, j) + a.At(i, j)).norm() / w);
        if (j + 2 < a.columns) most.vv = std::max(most.vv, pvv * (a.At(i, j + 2) - 2 * a.At(i, j + 1) + a.At(i, j)).norm() / w);
      }
    }
    return most;
  }

  template <typename T>
  Polynomial<T> Product(const Polynomial<double>& a, const Polynomial<T>& b) const {
    Polynomial<T> out{a.rows + b.rows - 1, a.columns + b.columns - 1, {}};
    out.coefficients.assign(out.rows * out.columns, T(0 * b.coefficients[0]));
    for (size_t i = 0; i < a.rows; ++i) {
      for (size_t j = 0; j < a.columns; ++j) {
        const double of_a = choose_[a.rows - 1][i] * choose_[a.columns - 1][j] * a.At(i, j);
        for (size_t k = 0; k < b.rows; ++k) {
          for (size_t l = 0; l < b.columns; ++l) {
            const double share =
                choose_[b.rows - 1][k] * choose_[b.columns - 1][l] / (choose_[out.rows - 1][i + k] * choose_[out.columns - 1][j + l]);
            out.coefficients[(i + k) * out.columns + j + l] += of_a * share * b.At(k, l);
          }
        }
      }
    }
    return out;
  }

  /// a b + factor c d, where both products have the same degrees.
  Polynomial<Vector3d> Sum(const Polynomial<double>& a, const Polynomial<Vector3d>& b, double factor, const Polynomial<double>& c,
                           const Polynomial<Vector3d>& d) const {
    Polynomial<Vector3d> out = Product(a, b);
    const Polynomial<Vector3d> other = Product(c, d);
    for (size_t i = 0; i < out.coefficients.size(); ++i) out.coefficients[i] += factor * other.coefficients[i];
    return out;
  }

  /// Of |a| / b, where b is positive, and its degrees are not less: where both have the same, as of the coefficients.
  double Most(const Polynomial<Vector3d>& a, const Polynomial<double>& b) const {
    const size_t rows = b.rows - a.rows + 1, columns = b.columns - a.columns + 1;
    const Polynomial<Vector3d> raised = Product({rows, columns, std::vector<double>(rows * columns, 1)}, a);
    double most = 0;
    for (size_t i = 0; i < raised.coefficients.size(); ++i) most = std::max(most, raised.coefficients[i].norm() / b.coefficients[i]);
    return most;
  }

  std::vector<std::vector<double>> choose_;
};

std::vector<NurbsSurface> Cut(const NurbsSurface& whole, NurbsDirection direction, int parts) {
  const auto [first, last] = whole.domain(direction);
  std::vector<NurbsSurface> out;
  NurbsSurface rest = whole;
  for (int i = 1; i < parts; ++i) {
    const double s = static_cast<double>(i) / parts;
    auto two = rest.Split(direction, (1 - s) * first + s * last);
    if (!two.ok()) continue;
    out.push_back(std::move((*two)[0]));
    rest = std::move((*two)[1]);
  }
  out.push_back(std::move(rest));
  return out;
}

}  // namespace

NurbsDerivativeBounds BoundNurbsDerivatives(const NurbsSurface& bezier, int parts) {
  const Bounder bounder(bezier);
  NurbsDerivativeBounds out;
  for (const NurbsSurface& strip : Cut(bezier, NurbsDirection::kU, parts)) {
    for (const NurbsSurface& part : Cut(strip, NurbsDirection::kV, parts)) {
      const NurbsDerivativeBounds of_part = bounder.Of(part);
      out.u = std::max(out.u, of_part.u);
      out.v = std::max(out.v, of_part.v);
      out.uu = std::max(out.uu, of_part.uu);
      out.uv = std::max(out.uv, of_part.uv);
      out.vv = std::max(out.vv, of_part.vv);
    }
  }
  return out;
}

}  // namespace palpate::sim
