#include "gpu/collision/view_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace palpate::gpu {
namespace {

using Vector = std::array<double, 3>;

constexpr double kRounding = 16 * 0x1p-53;  // as VIEW_ROUNDING of view_volume.clh
constexpr double kTiny = 1e-290;
constexpr double kShareRounding = 4e-15;

Vector Sub(const Vector& a, const Vector& b) { return {a[0] - b[0], a[1] - b[1], a[2] - b[2]}; }
double Dot(const Vector& a, const Vector& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }
Vector Cross(const Vector& a, const Vector& b) { return {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]}; }
Vector CrossSize(const Vector& a, const Vector& b) {
  const auto s = [](double p, double q) { return std::abs(p) + std::abs(q); };
  return {s(a[1] * b[2], a[2] * b[1]), s(a[2] * b[0], a[0] * b[2]), s(a[0] * b[1], a[1] * b[0])};
}
Vector Add(const Vector& a, const Vector& b) { return {a[0] + b[0], a[1] + b[1], a[2] + b[2]}; }
Vector Of(const Float4& v) { return {v.x, v.y, v.z}; }

// A value with the size of what it is computed from.
struct Bounded {
  double value = 0, size = 0;
};
struct BoundedVector {
  Vector value, size;
};

Bounded Dot(const BoundedVector& a, const BoundedVector& n) { return {Dot(a.value, n.value), Dot(a.size, n.size)}; }
Bounded Add(const Bounded& a, const Bounded& b) { return {a.value + b.value, a.size + b.size}; }

int SignOf(const Bounded& b) {
  const double bound = kRounding * b.size + kTiny;
  return b.value > bound ? 1 : b.value < -bound ? -1 : 0;
}

// Sign of all Bernstein coefficients of a(t) . (x(t) x y(t)); 0 if they differ or one is not certain.
int CubicSign(const BoundedVector& a0, const BoundedVector& a1, const MovingTriangle& t) {
  const Vector x0 = Sub(t.start_m[1], t.start_m[0]), x1 = Sub(t.end_m[1], t.end_m[0]);
  const Vector y0 = Sub(t.start_m[2], t.start_m[0]), y1 = Sub(t.end_m[2], t.end_m[0]);
  const BoundedVector n0 = {Cross(x0, y0), CrossSize(x0, y0)}, n2 = {Cross(x1, y1), CrossSize(x1, y1)};
  const BoundedVector n1 = {Add(Cross(x0, y1), Cross(x1, y0)), Add(CrossSize(x0, y1), CrossSize(x1, y0))};
  const int sign = SignOf(Dot(a0, n0));
  for (const Bounded& b : {Add(Dot(a1, n0), Dot(a0, n1)), Add(Dot(a1, n1), Dot(a0, n2)), Dot(a1, n2)}) {
    if (SignOf(b) != sign) return 0;
  }
  return sign;
}

BoundedVector From(const Vector& p, const Vector& q, double share, const Vector& axis) {
  BoundedVector r;
  for (size_t k = 0; k < 3; ++k) {
    const double d = p[k] - q[k];
    const double along = share * axis[k];
    r.value[k] = d - along;
    r.size[k] = std::abs(d) + std::abs(along);
  }
  return r;
}

}  // namespace

uint32_t ClassifyView(const MovingTriangle& triangle, const ViewPrimitive& primitive) {
  const Vector q0 = Of(primitive.start), q1 = Of(primitive.end), axis = Of(primitive.axis);
  double least = 0, most = 0;
  if (primitive.axis.w != 0) {
    const double length_sq = Dot(axis, axis);
    least = std::numeric_limits<double>::infinity();
    most = -least;
    for (size_t c = 0; c < 3; ++c) {
      for (const Vector& p : {Sub(triangle.start_m[c], q0), Sub(triangle.end_m[c], q1)}) {
        const double u = Dot(p, axis) / length_sq;
        double size = 0;
        for (size_t k = 0; k < 3; ++k) size += std::abs(p[k] * axis[k]);
        const double pad = kShareRounding * (1 + size / length_sq);
        least = std::min(least, u - pad);
        most = std::max(most, u + pad);
      }
    }
    if (!(least <= most)) {
      least = 0;
      most = 1;
    }
    least = std::clamp(least, 0.0, 1.0);
    most = std::clamp(most, 0.0, 1.0);
  }
  int sign = 2;
  for (const double share : {least, most}) {
    const int one = CubicSign(From(triangle.start_m[0], q0, share, axis), From(triangle.end_m[0], q1, share, axis), triangle);
    sign = sign == 2 || sign == one ? one : 0;
  }
  return sign > 0 ? PALPATE_VIEW_POSITIVE : sign < 0 ? PALPATE_VIEW_NEGATIVE : PALPATE_VIEW_UNSURE;
}

double CoveringDegree(std::span<const Float4> positions, std::span<const UInt4> triangles, std::array<double, 3> point_m) {
  double sum = 0;
  for (const UInt4& t : triangles) {
    const Vector a = Sub(Of(positions[t.x]), point_m), b = Sub(Of(positions[t.y]), point_m), c = Sub(Of(positions[t.z]), point_m);
    const double la = std::sqrt(Dot(a, a)), lb = std::sqrt(Dot(b, b)), lc = std::sqrt(Dot(c, c));
    // Van Oosterom and Strackee, "The solid angle of a plane triangle", 1983.
    sum += 2 * std::atan2(Dot(a, Cross(b, c)), la * lb * lc + Dot(a, b) * lc + Dot(b, c) * la + Dot(c, a) * lb);
  }
  return sum / (4 * std::numbers::pi);
}

}  // namespace palpate::gpu
