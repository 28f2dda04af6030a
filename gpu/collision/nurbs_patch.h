#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpu/collision/nurbs_objects.h"
#include "gpu/collision/nurbs_queries.h"

/// Single rational Bezier patches on the host in double: what polishes the results of searches on the device.
namespace palpate::gpu::nurbs {

using Vector = std::array<double, 3>;
using Parameters = std::array<double, 4>;  ///< u, v of the first, u, v of the second, in [0, 1] of their patches

inline Vector operator+(const Vector& a, const Vector& b) { return {a[0] + b[0], a[1] + b[1], a[2] + b[2]}; }
inline Vector operator-(const Vector& a, const Vector& b) { return {a[0] - b[0], a[1] - b[1], a[2] - b[2]}; }
inline Vector operator*(double s, const Vector& a) { return {s * a[0], s * a[1], s * a[2]}; }
inline double Dot(const Vector& a, const Vector& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }
inline double Norm(const Vector& a) { return std::sqrt(Dot(a, a)); }
inline Vector Cross(const Vector& a, const Vector& b) {
  return {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]};
}

/// A homogeneous point.
struct Point4 {
  Vector x = {};  ///< times the weight
  double w = 0;
};
inline Point4 Mix(double s, const Point4& a, double t, const Point4& b) { return {s * a.x + t * b.x, s * a.w + t * b.w}; }

/// Control points of a Bezier patch, v fastest.
struct Net {
  size_t nu = 0, nv = 0;  ///< orders: degree + 1
  std::vector<Point4> points;
  const Point4& at(size_t i, size_t j) const { return points[i * nv + j]; }
};

/// The part [a, b] along u or v; a and b may be outside [0, 1].
Net PartAlong(Net net, bool along_u, double a, double b);
std::array<Net, 2> Halves(const Net& net, bool along_u);

/// A homogeneous point with its first derivatives.
struct Evaluated {
  Vector x, du, dv;
  double w, wu, wv;
  Vector point() const { return (1 / w) * x; }
  Vector along_u() const { return (1 / w) * (du - wu * point()); }
  Vector along_v() const { return (1 / w) * (dv - wv * point()); }
};
Evaluated Evaluate(const Net& net, double u, double v);

/// A point of the surface with all derivatives to the second.
struct Jet {
  Vector point, du, dv, duu, duv, dvv;
};
Jet EvaluateJet(const Net& net, double u, double v);

/// How long a net is along u and along v: the largest distance of its points from the first of their row.
std::array<double, 2> Lengths(const Net& net);

/// pose * p - origin.
Vector Placed(const NurbsPose& pose, const Vector& p, const Vector& origin);
/// The Bezier points of a patch in W about `origin`, from the control points as they were given.
Net PlacedNet(const NurbsObjects& objects, uint32_t object, uint32_t patch, const NurbsPose& pose, const Vector& origin);

/// Solves the symmetric system m x = b by Cholesky's scheme; false if m is not positive definite.
bool Solve4(std::array<std::array<double, 4>, 4> m, Parameters b, Parameters& x);

}  // namespace palpate::gpu::nurbs
