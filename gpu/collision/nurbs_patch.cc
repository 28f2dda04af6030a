#include "gpu/collision/nurbs_patch.h"

#include <algorithm>
#include <span>

namespace palpate::gpu::nurbs {
namespace {

// Bernstein polynomials of a degree, and their first derivatives.
void Bernstein(size_t order, double t, double* value, double* slope) {
  value[0] = 1;
  for (size_t d = 1; d < order; ++d) {
    if (d + 1 == order) {
      for (size_t i = 0; i < order; ++i) {
        slope[i] = static_cast<double>(d) * ((i > 0 ? value[i - 1] : 0) - (i < d ? value[i] : 0));
      }
    }
    value[d] = t * value[d - 1];
    for (size_t i = d - 1; i > 0; --i) value[i] = t * value[i - 1] + (1 - t) * value[i];
    value[0] *= 1 - t;
  }
}

// Their second derivatives: differences of the first ones of one degree less.
void BernsteinSecond(size_t order, double t, double* bend) {
  double value[PALPATE_NURBS_MAX_DEGREE + 1];
  double slope[PALPATE_NURBS_MAX_DEGREE + 1];
  std::fill(bend, bend + order, 0.0);
  if (order < 3) return;
  Bernstein(order - 1, t, value, slope);
  const auto degree = static_cast<double>(order - 1);
  for (size_t i = 0; i < order; ++i) bend[i] = degree * ((i > 0 ? slope[i - 1] : 0) - (i + 1 < order ? slope[i] : 0));
}

// Polynomials of one direction: values, first and second derivatives.
struct Row {
  double value[3][PALPATE_NURBS_MAX_DEGREE + 1];
  Row(size_t order, double t) {
    Bernstein(order, t, value[0], value[1]);
    BernsteinSecond(order, t, value[2]);
  }
};

Point4 Sum(const Net& net, const double* u, const double* v) {
  Point4 sum;
  for (size_t i = 0; i < net.nu; ++i) {
    Point4 row;
    for (size_t j = 0; j < net.nv; ++j) row = Mix(1, row, v[j], net.at(i, j));
    sum = Mix(1, sum, u[i], row);
  }
  return sum;
}

}  // namespace

Net PartAlong(Net net, bool along_u, double a, double b) {
  const size_t count = along_u ? net.nu : net.nv;
  const size_t step = along_u ? net.nv : 1;
  const size_t lines = along_u ? net.nv : net.nu;
  std::vector<Point4> row(count), out(count);
  for (size_t line = 0; line < lines; ++line) {
    Point4* p = &net.points[along_u ? line : line * net.nv];
    // Blossoms: k arguments b, the others a.
    for (size_t k = 0; k < count; ++k) {
      for (size_t i = 0; i < count; ++i) row[i] = p[i * step];
      for (size_t r = 1; r < count; ++r) {
        const double t = r <= k ? b : a;
        for (size_t i = 0; i + r < count; ++i) row[i] = Mix(1 - t, row[i], t, row[i + 1]);
      }
      out[k] = row[0];
    }
    for (size_t i = 0; i < count; ++i) p[i * step] = out[i];
  }
  return net;
}

std::array<Net, 2> Halves(const Net& net, bool along_u) { return {PartAlong(net, along_u, 0, 0.5), PartAlong(net, along_u, 0.5, 1)}; }

Evaluated Evaluate(const Net& net, double u, double v) {
  double bu[PALPATE_NURBS_MAX_DEGREE + 1], su[PALPATE_NURBS_MAX_DEGREE + 1];
  double bv[PALPATE_NURBS_MAX_DEGREE + 1], sv[PALPATE_NURBS_MAX_DEGREE + 1];
  Bernstein(net.nu, u, bu, su);
  Bernstein(net.nv, v, bv, sv);
  Evaluated out{};
  for (size_t i = 0; i < net.nu; ++i) {
    for (size_t j = 0; j < net.nv; ++j) {
      const Point4& p = net.at(i, j);
      out.x = out.x + bu[i] * bv[j] * p.x;
      out.w += bu[i] * bv[j] * p.w;
      out.du = out.du + su[i] * bv[j] * p.x;
      out.wu += su[i] * bv[j] * p.w;
      out.dv = out.dv + bu[i] * sv[j] * p.x;
      out.wv += bu[i] * sv[j] * p.w;
    }
  }
  return out;
}

Jet EvaluateJet(const Net& net, double u, double v) {
  const Row in_u(net.nu, u);
  const Row in_v(net.nv, v);
  const auto sum = [&](size_t du, size_t dv) { return Sum(net, in_u.value[du], in_v.value[dv]); };
  const Point4 s = sum(0, 0);
  const Point4 su = sum(1, 0);
  const Point4 sv = sum(0, 1);
  const double by = 1 / s.w;
  Jet out;
  out.point = by * s.x;
  // Leibniz: w S = X, differentiated.
  out.du = by * (su.x - su.w * out.point);
  out.dv = by * (sv.x - sv.w * out.point);
  const Point4 suu = sum(2, 0);
  const Point4 suv = sum(1, 1);
  const Point4 svv = sum(0, 2);
  out.duu = by * (suu.x - suu.w * out.point - 2 * su.w * out.du);
  out.duv = by * (suv.x - suv.w * out.point - su.w * out.dv - sv.w * out.du);
  out.dvv = by * (svv.x - svv.w * out.point - 2 * sv.w * out.dv);
  return out;
}

std::array<double, 2> Lengths(const Net& net) {
  double u = 0;
  double v = 0;
  const auto point = [&](size_t i, size_t j) { return (1 / net.at(i, j).w) * net.at(i, j).x; };
  for (size_t i = 0; i < net.nu; ++i) {
    for (size_t j = 0; j < net.nv; ++j) {
      u = std::max(u, Norm(point(i, j) - point(0, j)));
      v = std::max(v, Norm(point(i, j) - point(i, 0)));
    }
  }
  return {u, v};
}

Vector Placed(const NurbsPose& pose, const Vector& p, const Vector& origin) {
  Vector out = Vector(pose.offset_m) - origin;
  for (size_t i = 0; i < 3; ++i) {
    for (size_t k = 0; k < 3; ++k) out[i] += pose.linear[3 * i + k] * p[k];
  }
  return out;
}

Net PlacedNet(const NurbsObjects& objects, uint32_t object, uint32_t patch, const NurbsPose& pose, const Vector& origin) {
  const auto place = objects.patch_place(patch);
  const std::span<const double> control = objects.control(object);
  const Vector middle = objects.middle_m(object);
  const Vector middle_in_w = Placed(pose, middle, origin);
  Net net{.nu = place.degree_u + 1, .nv = place.degree_v + 1, .points = {}};
  std::vector<Point4> own(net.nu * net.nv);
  for (size_t i = 0; i < net.nu; ++i) {
    for (size_t j = 0; j < net.nv; ++j) {
      const double* p = &control[4 * (place.control + i * place.stride + j)];
      const Vector from_middle = {p[0] / p[3] - middle[0], p[1] / p[3] - middle[1], p[2] / p[3] - middle[2]};
      Vector at = middle_in_w;
      for (size_t r = 0; r < 3; ++r) {
        for (size_t k = 0; k < 3; ++k) at[r] += pose.linear[3 * r + k] * from_middle[k];
      }
      own[i * net.nv + j] = {p[3] * at, p[3]};
    }
  }
  std::vector<Point4> rows(net.nu * net.nv);
  net.points.assign(net.nu * net.nv, {});
  for (size_t k = 0; k < net.nu; ++k) {
    for (size_t i = 0; i < net.nu; ++i) {
      for (size_t j = 0; j < net.nv; ++j) {
        rows[k * net.nv + j] = Mix(1, rows[k * net.nv + j], place.to_bezier[0][k * net.nu + i], own[i * net.nv + j]);
      }
    }
  }
  for (size_t k = 0; k < net.nu; ++k) {
    for (size_t l = 0; l < net.nv; ++l) {
      Point4& to = net.points[k * net.nv + l];
      for (size_t j = 0; j < net.nv; ++j) to = Mix(1, to, place.to_bezier[1][l * net.nv + j], rows[k * net.nv + j]);
    }
  }
  return net;
}

bool Solve4(std::array<std::array<double, 4>, 4> m, Parameters b, Parameters& x) {
  for (size_t k = 0; k < 4; ++k) {
    for (size_t j = 0; j < k; ++j) m[k][k] -= m[k][j] * m[k][j];
    if (!(m[k][k] > 0)) return false;
    m[k][k] = std::sqrt(m[k][k]);
    for (size_t i = k + 1; i < 4; ++i) {
      for (size_t j = 0; j < k; ++j) m[i][k] -= m[i][j] * m[k][j];
      m[i][k] /= m[k][k];
    }
  }
  for (size_t i = 0; i < 4; ++i) {
    for (size_t j = 0; j < i; ++j) b[i] -= m[i][j] * b[j];
    b[i] /= m[i][i];
  }
  for (size_t i = 4; i-- > 0;) {
    for (size_t j = i + 1; j < 4; ++j) b[i] -= m[j][i] * b[j];
    b[i] /= m[i][i];
  }
  x = b;
  return true;
}

}  // namespace palpate::gpu::nurbs
