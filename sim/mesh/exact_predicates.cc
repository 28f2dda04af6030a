#include "sim/mesh/exact_predicates.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

namespace palpate::sim {
namespace {

// An exact sum of at most N doubles that do not overlap, in ascending order of magnitude, without zeros.
template <size_t N>
struct Expansion {
  std::array<double, N> terms;
  size_t count = 0;

  void Append(double term) {
    if (term != 0.0) terms[count++] = term;
  }
  int Sign() const { return count == 0 ? 0 : (terms[count - 1] > 0.0 ? 1 : -1); }
};

// a + b = sum + error, exactly.
inline void TwoSum(double a, double b, double& sum, double& error) {
  sum = a + b;
  const double b_virtual = sum - a;
  error = (a - (sum - b_virtual)) + (b - b_virtual);
}

// a * b = product + error, exactly.
inline void TwoProduct(double a, double b, double& product, double& error) {
  product = a * b;
  error = std::fma(a, b, -product);
}

Expansion<2> Difference(double a, double b) {
  double sum;
  double error;
  TwoSum(a, -b, sum, error);
  Expansion<2> result;
  result.Append(error);
  result.Append(sum);
  return result;
}

// Adds one double to an expansion (grow-expansion), in place.
template <size_t N>
void Add(Expansion<N>& e, double term) {
  size_t count = 0;
  for (size_t i = 0; i < e.count; ++i) {
    double error;
    TwoSum(term, e.terms[i], term, error);
    if (error != 0.0) e.terms[count++] = error;
  }
  e.count = count;
  e.Append(term);
}

template <size_t N, size_t M>
Expansion<N + M> Sum(const Expansion<N>& a, const Expansion<M>& b) {
  Expansion<N + M> result;
  for (size_t i = 0; i < a.count; ++i) result.terms[i] = a.terms[i];
  result.count = a.count;
  for (size_t i = 0; i < b.count; ++i) Add(result, b.terms[i]);
  return result;
}

template <size_t N, size_t M>
Expansion<2 * N * M> Product(const Expansion<N>& a, const Expansion<M>& b) {
  Expansion<2 * N * M> result;
  for (size_t i = 0; i < a.count; ++i) {
    for (size_t k = 0; k < b.count; ++k) {
      double product;
      double error;
      TwoProduct(a.terms[i], b.terms[k], product, error);
      Add(result, error);
      Add(result, product);
    }
  }
  return result;
}

template <size_t N>
Expansion<N> Negated(Expansion<N> e) {
  for (size_t i = 0; i < e.count; ++i) e.terms[i] = -e.terms[i];
  return e;
}

int SignOf(double value) { return (value > 0.0) - (value < 0.0); }

// Half the distance from 1 to the next double, as in the source.
constexpr double kEpsilon = std::numeric_limits<double>::epsilon() / 2.0;

int ExactOrient3d(const Eigen::Vector3d& a, const Eigen::Vector3d& b, const Eigen::Vector3d& c, const Eigen::Vector3d& d) {
  std::array<std::array<Expansion<2>, 3>, 3> m;
  for (int k = 0; k < 3; ++k) {
    m[0][k] = Difference(b[k], a[k]);
    m[1][k] = Difference(c[k], a[k]);
    m[2][k] = Difference(d[k], a[k]);
  }
  const auto minor = [&m](int i, int k) { return Sum(Product(m[0][i], m[1][k]), Negated(Product(m[0][k], m[1][i]))); };
  const auto x = Product(minor(1, 2), m[2][0]);
  const auto y = Product(minor(2, 0), m[2][1]);
  const auto z = Product(minor(0, 1), m[2][2]);
  return Sum(Sum(x, y), z).Sign();
}

int ExactOrient2d(const Eigen::Vector2d& a, const Eigen::Vector2d& b, const Eigen::Vector2d& c) {
  const auto left = Product(Difference(b.x(), a.x()), Difference(c.y(), a.y()));
  const auto right = Product(Difference(b.y(), a.y()), Difference(c.x(), a.x()));
  return Sum(left, Negated(right)).Sign();
}

}  // namespace

int Orient3d(const Eigen::Vector3d& a, const Eigen::Vector3d& b, const Eigen::Vector3d& c, const Eigen::Vector3d& d) {
  const Eigen::Vector3d u = b - a;
  const Eigen::Vector3d v = c - a;
  const Eigen::Vector3d w = d - a;
  const double yz = u.y() * v.z();
  const double zy = u.z() * v.y();
  const double zx = u.z() * v.x();
  const double xz = u.x() * v.z();
  const double xy = u.x() * v.y();
  const double yx = u.y() * v.x();
  const double determinant = (yz - zy) * w.x() + (zx - xz) * w.y() + (xy - yx) * w.z();
  const double permanent = (std::abs(yz) + std::abs(zy)) * std::abs(w.x()) + (std::abs(zx) + std::abs(xz)) * std::abs(w.y()) +
                           (std::abs(xy) + std::abs(yx)) * std::abs(w.z());
  const double bound = (7.0 + 56.0 * kEpsilon) * kEpsilon * permanent;
  if (determinant > bound || -determinant > bound) return SignOf(determinant);
  if (permanent == 0.0) return 0;  // common: points in an axis-parallel plane
  return ExactOrient3d(a, b, c, d);
}

int Orient2d(const Eigen::Vector2d& a, const Eigen::Vector2d& b, const Eigen::Vector2d& c) {
  const double left = (b.x() - a.x()) * (c.y() - a.y());
  const double right = (b.y() - a.y()) * (c.x() - a.x());
  const double determinant = left - right;
  const double bound = (3.0 + 16.0 * kEpsilon) * kEpsilon * (std::abs(left) + std::abs(right));
  if (determinant > bound || -determinant > bound) return SignOf(determinant);
  return ExactOrient2d(a, b, c);
}

}  // namespace palpate::sim
