#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <numeric>
#include <vector>

#include <Eigen/Dense>

#include "sim/nurbs/nurbs_shapes.h"
#include "sim/nurbs/nurbs_shell_builder.h"
#include "sim/reference/reference_nurbs_shell.h"

/// Cases of the literature for thin shells, on NURBS of any degree.
namespace palpate::test {

using Eigen::Vector3d;
using Eigen::VectorXd;
using sim::NurbsDirection;
using sim::NurbsObject;
using sim::NurbsShellMaterial;
using sim::NurbsShellQuadrature;
using sim::NurbsSurface;

/// Coordinates that are held or move together.
class CoordinateGroups {
 public:
  explicit CoordinateGroups(size_t controls) : root_(3 * controls + 1) { std::iota(root_.begin(), root_.end(), size_t{0}); }
  void Fix(uint32_t control, int axis) { Unite(0, At(control, axis)); }
  void Tie(uint32_t a, uint32_t b, int axis) { Unite(At(a, axis), At(b, axis)); }
  std::vector<int> Numbers() {
    std::vector<int> number(root_.size(), -1);
    int next = 0;
    for (size_t i = 1; i < root_.size(); ++i) {
      if (Root(i) == i) number[i] = next++;
    }
    std::vector<int> out;
    for (size_t i = 1; i < root_.size(); ++i) out.push_back(number[Root(i)]);
    return out;
  }

 private:
  static size_t At(uint32_t control, int axis) { return 1 + 3 * size_t{control} + static_cast<size_t>(axis); }
  size_t Root(size_t i) const {
    while (root_[i] != i) i = root_[i];
    return i;
  }
  void Unite(size_t a, size_t b) {
    a = Root(a);
    b = Root(b);
    root_[std::max(a, b)] = std::min(a, b);
  }
  std::vector<size_t> root_;
};

/// Statics of a shell and the point that is looked at.
struct NurbsShellCase {
  NurbsObject object;
  NurbsShellMaterial material;
  gpu::NurbsShellModel model;
  VectorXd load_n;
  std::vector<int> groups;
  size_t patch = 0;
  double u = 0, v = 0;
  Vector3d direction;
  double soft_n_per_m = 0;  ///< springs to the rest shape, where rigid motions are free
  std::vector<uint32_t> inner;
};

inline size_t CountOf(const NurbsObject& object, size_t patch, NurbsDirection d) { return object.patches()[patch].surface.count(d); }

inline size_t NetIndex(const NurbsShellCase& c, size_t patch, size_t i, size_t j) {
  return c.model.net_begin[patch] + i * CountOf(c.object, patch, NurbsDirection::kV) + j;
}

/// The unknown at place (i, j) of a net. Precondition: it is one.
inline uint32_t ControlAt(const NurbsShellCase& c, size_t patch, size_t i, size_t j) {
  return c.model.net_parts[c.model.net_part_begin[NetIndex(c, patch, i, j)]].control;
}

inline std::vector<NurbsSurface> MovedSurfaces(const NurbsObject& object, const gpu::NurbsShellModel& model, const VectorXd& x) {
  std::vector<NurbsSurface> out;
  size_t n = 0;
  for (const sim::NurbsPatch& patch : object.patches()) {
    const NurbsSurface& s = patch.surface;
    sim::NurbsDescription d;
    d.degree_u = s.degree(NurbsDirection::kU);
    d.degree_v = s.degree(NurbsDirection::kV);
    d.knots_u.assign(s.knots(NurbsDirection::kU).begin(), s.knots(NurbsDirection::kU).end());
    d.knots_v.assign(s.knots(NurbsDirection::kV).begin(), s.knots(NurbsDirection::kV).end());
    for (const Eigen::Vector4d& control : s.control()) {
      Vector3d sum = Vector3d::Zero();
      for (uint32_t k = model.net_part_begin[n]; k < model.net_part_begin[n + 1]; ++k) {
        sum += model.net_parts[k].weight * x.segment<3>(3 * static_cast<Eigen::Index>(model.net_parts[k].control));
      }
      ++n;
      d.control_m.push_back(sum);
      d.weights.push_back(control.w());
    }
    out.push_back(*NurbsSurface::Create(d));
  }
  return out;
}

inline void AddPointLoad(NurbsShellCase* c, size_t patch, size_t i, size_t j, const Vector3d& force_n) {
  const size_t n = NetIndex(*c, patch, i, j);
  for (uint32_t k = c->model.net_part_begin[n]; k < c->model.net_part_begin[n + 1]; ++k) {
    c->load_n.segment<3>(3 * static_cast<Eigen::Index>(c->model.net_parts[k].control)) += c->model.net_parts[k].weight * force_n;
  }
}

inline double DeflectionOf(const NurbsShellCase& c, const VectorXd& displacement) {
  const VectorXd rest = sim::ReferenceNurbsShell(c.model).Rest();
  const NurbsSurface moved = MovedSurfaces(c.object, c.model, rest + displacement)[c.patch];
  return (moved.Point(c.u, c.v) - c.object.patches()[c.patch].surface.Point(c.u, c.v)).dot(c.direction);
}

/// A quadrilateral of an arc and a straight direction, of one degree in both and so many spans a side.
inline NurbsSurface Refine(const NurbsSurface& surface, int degree, size_t spans_u, size_t spans_v) {
  const NurbsSurface u = *sim::ElevateNurbsDegree(surface, NurbsDirection::kU, degree);
  const NurbsSurface v = *sim::ElevateNurbsDegree(u, NurbsDirection::kV, degree);
  NurbsSurface out = v;
  for (size_t k = 1; k < spans_u; ++k) out = *out.WithKnot(NurbsDirection::kU, static_cast<double>(k) / static_cast<double>(spans_u));
  for (size_t k = 1; k < spans_v; ++k) out = *out.WithKnot(NurbsDirection::kV, static_cast<double>(k) / static_cast<double>(spans_v));
  return out;
}

/// The arc from angle 0 to `angle` of the circle radius (cos a first + sin a second), moved along `along`.
inline NurbsSurface ArcStrip(double radius, double angle, const Vector3d& first, const Vector3d& second, const Vector3d& along) {
  const auto at = [&](double a, double r) { return Vector3d(r * (std::cos(a) * first + std::sin(a) * second)); };
  const double w = std::cos(angle / 2);
  sim::NurbsDescription d;
  d.degree_u = 2;
  d.degree_v = 1;
  d.knots_u = {0, 0, 0, 1, 1, 1};
  d.knots_v = {0, 0, 1, 1};
  for (const Vector3d& p : {at(0, radius), at(angle / 2, radius / w), at(angle, radius)}) {
    d.control_m.push_back(p);
    d.control_m.emplace_back(p + along);
  }
  d.weights = {1, 1, w, w, 1, 1};
  return *NurbsSurface::Create(d);
}

inline NurbsShellCase MakeShellCase(const std::vector<NurbsSurface>& surfaces, const NurbsShellMaterial& material,
                                    NurbsShellQuadrature quadrature) {
  NurbsShellCase c{*NurbsObject::FromSurfaces("case", surfaces), material, {}, {}, {}, 0, 0, 0, {}, 0, {}};
  c.model = *sim::BuildNurbsShell(c.object, material, {.quadrature = quadrature});
  c.load_n = VectorXd::Zero(3 * static_cast<Eigen::Index>(c.model.control_count()));
  return c;
}

/// Symmetry at a side: the row there stays in the plane across `axis`, and the next row moves as it does along the plane.
inline void HoldSymmetric(const NurbsShellCase& c, CoordinateGroups* groups, bool along_u, bool is_last, int axis) {
  const size_t rows = CountOf(c.object, 0, along_u ? NurbsDirection::kU : NurbsDirection::kV);
  const size_t columns = CountOf(c.object, 0, along_u ? NurbsDirection::kV : NurbsDirection::kU);
  const size_t at = is_last ? rows - 1 : 0;
  const size_t next = is_last ? rows - 2 : 1;
  for (size_t k = 0; k < columns; ++k) {
    const uint32_t here = along_u ? ControlAt(c, 0, at, k) : ControlAt(c, 0, k, at);
    const uint32_t beside = along_u ? ControlAt(c, 0, next, k) : ControlAt(c, 0, k, next);
    groups->Fix(here, axis);
    for (int other = 0; other < 3; ++other) {
      if (other != axis) groups->Tie(here, beside, other);
    }
  }
}

/// A quarter of the roof: u from the crown down, v from the diaphragm to the middle.
inline NurbsShellCase ScordelisLoRoof(int degree, int spans, NurbsShellQuadrature quadrature) {
  const NurbsShellMaterial material{.thickness_m = 0.25, .density_kg_per_m3 = 1, .young_modulus_pa = 4.32e8, .poisson_ratio = 0};
  const NurbsSurface arc = ArcStrip(25, 40 * std::numbers::pi / 180, Vector3d::UnitZ(), Vector3d::UnitX(), 25 * Vector3d::UnitY());
  NurbsShellCase c = MakeShellCase({Refine(arc, degree, static_cast<size_t>(spans), static_cast<size_t>(spans))}, material, quadrature);
  c.load_n = sim::ReferenceNurbsShell(c.model).AreaLoad({0, 0, -90});
  CoordinateGroups groups(c.model.control_count());
  HoldSymmetric(c, &groups, true, false, 0);
  HoldSymmetric(c, &groups, false, true, 1);
  for (size_t i = 0; i < CountOf(c.object, 0, NurbsDirection::kU); ++i) {
    groups.Fix(ControlAt(c, 0, i, 0), 0);
    groups.Fix(ControlAt(c, 0, i, 0), 2);
  }
  c.groups = groups.Numbers();
  c.u = c.v = 1;
  c.direction = -Vector3d::UnitZ();
  return c;
}

/// An eighth: u around from y = 0 to x = 0, v from the middle to the diaphragm.
inline NurbsShellCase PinchedCylinder(int degree, int spans, NurbsShellQuadrature quadrature) {
  const NurbsShellMaterial material{.thickness_m = 3, .density_kg_per_m3 = 1, .young_modulus_pa = 3e6, .poisson_ratio = 0.3};
  const NurbsSurface arc = ArcStrip(300, std::numbers::pi / 2, Vector3d::UnitX(), Vector3d::UnitY(), 300 * Vector3d::UnitZ());
  NurbsShellCase c = MakeShellCase({Refine(arc, degree, static_cast<size_t>(spans), static_cast<size_t>(spans))}, material, quadrature);
  const size_t last = CountOf(c.object, 0, NurbsDirection::kU) - 1;
  AddPointLoad(&c, 0, last, 0, {0, -0.25, 0});
  CoordinateGroups groups(c.model.control_count());
  HoldSymmetric(c, &groups, true, false, 1);
  HoldSymmetric(c, &groups, true, true, 0);
  HoldSymmetric(c, &groups, false, false, 2);
  for (size_t i = 0; i <= last; ++i) {
    groups.Fix(ControlAt(c, 0, i, CountOf(c.object, 0, NurbsDirection::kV) - 1), 0);
    groups.Fix(ControlAt(c, 0, i, CountOf(c.object, 0, NurbsDirection::kV) - 1), 1);
  }
  c.groups = groups.Numbers();
  c.u = 1;
  c.v = 0;
  c.direction = -Vector3d::UnitY();
  return c;
}

inline const NurbsShellMaterial kHemisphere{.thickness_m = 0.04, .density_kg_per_m3 = 1, .young_modulus_pa = 6.825e7, .poisson_ratio = 0.3};

/// A quarter of the hemisphere, closed at its pole: u around from x to y, v from the equator to the pole.
inline NurbsShellCase PinchedHemisphere(int degree, int spans, NurbsShellQuadrature quadrature) {
  const NurbsSurface octant = sim::NurbsSphere(10)[4];
  NurbsShellCase c =
      MakeShellCase({Refine(octant, degree, static_cast<size_t>(spans), static_cast<size_t>(spans))}, kHemisphere, quadrature);
  const size_t last = CountOf(c.object, 0, NurbsDirection::kU) - 1;
  AddPointLoad(&c, 0, 0, 0, {1, 0, 0});
  AddPointLoad(&c, 0, last, 0, {0, -1, 0});
  CoordinateGroups groups(c.model.control_count());
  HoldSymmetric(c, &groups, true, false, 1);
  HoldSymmetric(c, &groups, true, true, 0);
  groups.Fix(ControlAt(c, 0, 0, CountOf(c.object, 0, NurbsDirection::kV) - 1), 2);
  c.groups = groups.Numbers();
  c.direction = Vector3d::UnitX();
  return c;
}

/// All of it, of four patches that are joined.
inline NurbsShellCase WholeHemisphere(int degree, int spans, NurbsShellQuadrature quadrature) {
  std::vector<NurbsSurface> patches;
  for (size_t q = 4; q < 8; ++q)
    patches.push_back(Refine(sim::NurbsSphere(10)[q], degree, static_cast<size_t>(spans), static_cast<size_t>(spans)));
  NurbsShellCase c = MakeShellCase(patches, kHemisphere, quadrature);
  AddPointLoad(&c, 0, 0, 0, {2, 0, 0});
  AddPointLoad(&c, 1, 0, 0, {0, -2, 0});
  AddPointLoad(&c, 2, 0, 0, {-2, 0, 0});
  AddPointLoad(&c, 3, 0, 0, {0, 2, 0});
  c.groups = CoordinateGroups(c.model.control_count()).Numbers();
  c.soft_n_per_m = 1e-6;
  c.direction = Vector3d::UnitX();
  return c;
}

inline NurbsSurface Rectangle(double length, double width, int degree) {
  sim::NurbsDescription d;
  d.degree_u = d.degree_v = 1;
  d.knots_u = d.knots_v = {0, 0, 1, 1};
  d.control_m = {{0, 0, 0}, {0, width, 0}, {length, 0, 0}, {length, width, 0}};
  return Refine(*NurbsSurface::Create(d), degree, 1, 1);
}

/// 2 m x 1 m with knots at uneven places.
inline NurbsShellCase UnevenSheet(int degree) {
  const NurbsShellMaterial material{.thickness_m = 0.01, .density_kg_per_m3 = 1, .young_modulus_pa = 1e6, .poisson_ratio = 0.3};
  NurbsSurface s = Rectangle(2, 1, degree);
  for (const double t : {0.1, 0.35, 0.8}) s = *s.WithKnot(NurbsDirection::kU, t);
  for (const double t : {0.3, 0.55}) s = *s.WithKnot(NurbsDirection::kV, t);
  NurbsShellCase c = MakeShellCase({s}, material, NurbsShellQuadrature::kFull);
  for (size_t i = 1; i + 1 < s.count(NurbsDirection::kU); ++i) {
    for (size_t j = 1; j + 1 < s.count(NurbsDirection::kV); ++j) c.inner.push_back(ControlAt(c, 0, i, j));
  }
  return c;
}

/// What bends it to z = a x^2 / 2 + b x y + c y^2 / 2: coefficients by the blossom of each term.
inline VectorXd BentSheet(const NurbsShellCase& c, const Vector3d& abc) {
  const NurbsSurface& s = c.object.patches()[0].surface;
  const auto blossom = [&](NurbsDirection d, size_t i, int power) {
    const int p = s.degree(d);
    double sum = 0;
    double pairs = 0;
    for (size_t k = i + 1; k <= i + static_cast<size_t>(p); ++k) {
      sum += s.knots(d)[k];
      for (size_t l = k + 1; l <= i + static_cast<size_t>(p); ++l) pairs += s.knots(d)[k] * s.knots(d)[l];
    }
    const double width = d == NurbsDirection::kU ? 2 : 1;
    return power == 1 ? width * sum / p : width * width * 2 * pairs / (p * (p - 1));
  };
  VectorXd out = VectorXd::Zero(c.load_n.size());
  for (size_t i = 0; i < s.count(NurbsDirection::kU); ++i) {
    for (size_t j = 0; j < s.count(NurbsDirection::kV); ++j) {
      out[3 * static_cast<Eigen::Index>(ControlAt(c, 0, i, j)) + 2] =
          abc[0] / 2 * blossom(NurbsDirection::kU, i, 2) + abc[1] * blossom(NurbsDirection::kU, i, 1) * blossom(NurbsDirection::kV, j, 1) +
          abc[2] / 2 * blossom(NurbsDirection::kV, j, 2);
    }
  }
  return out;
}

/// A strip of length 10, width 1, thickness 0.1, E = 1.2e6, nu = 0, held with its slope at x = 0.
inline NurbsShellCase ClampedStrip(int degree, int spans, NurbsShellQuadrature quadrature) {
  const NurbsShellMaterial material{.thickness_m = 0.1, .density_kg_per_m3 = 1, .young_modulus_pa = 1.2e6, .poisson_ratio = 0};
  NurbsShellCase c = MakeShellCase({Rectangle(10, 1, degree).Refined(static_cast<size_t>(degree + spans), static_cast<size_t>(degree) + 1)},
                                   material, quadrature);
  CoordinateGroups groups(c.model.control_count());
  for (size_t j = 0; j < CountOf(c.object, 0, NurbsDirection::kV); ++j) {
    for (int axis = 0; axis < 3; ++axis) groups.Fix(ControlAt(c, 0, 0, j), axis);
    groups.Fix(ControlAt(c, 0, 1, j), 1);
    groups.Fix(ControlAt(c, 0, 1, j), 2);
  }
  c.groups = groups.Numbers();
  return c;
}

struct BentStrip {
  absl::Status status;
  double end_angle = 0, height_m = 0, length_m = 10;
  Vector3d start_m, end_m;
};

/// By an end moment that would turn the end by `turn`, in steps: minus moment times angle of the last two rows is its energy.
inline BentStrip BendStrip(int degree, int spans, NurbsShellQuadrature quadrature, double turn) {
  const NurbsShellCase c = ClampedStrip(degree, spans, quadrature);
  const sim::ReferenceNurbsShell shell(c.model);
  const size_t rows = CountOf(c.object, 0, NurbsDirection::kU);
  const size_t columns = CountOf(c.object, 0, NurbsDirection::kV);
  BentStrip out;
  VectorXd x = shell.Rest();
  constexpr int kSteps = 40;
  double angle = 0;
  for (int step = 1; step <= kSteps; ++step) {
    const double moment = 100.0 * turn / 10 * step / kSteps;  // E I = 100
    sim::NurbsShellLoad load{.dead_n = VectorXd::Zero(shell.size())};
    load.following = [&](const VectorXd& at, VectorXd* force, std::vector<Eigen::Triplet<double>>* stiffness) {
      const NurbsSurface& s = c.object.patches()[0].surface;
      for (size_t j = 0; j < columns; ++j) {
        // The integral of the basis function across the strip.
        const auto knots = s.knots(NurbsDirection::kV);
        const double share = (knots[j + static_cast<size_t>(degree) + 1] - knots[j]) / (degree + 1);
        const auto a = static_cast<int>(3 * ControlAt(c, 0, rows - 1, j));
        const auto b = static_cast<int>(3 * ControlAt(c, 0, rows - 2, j));
        const double dx = at[a] - at[b];
        const double dz = at[a + 2] - at[b + 2];
        const double r2 = dx * dx + dz * dz;
        const double m = moment * share;
        const double gx = -dz / r2, gz = dx / r2;
        const double hxx = 2 * dx * dz / (r2 * r2), hxz = (dz * dz - dx * dx) / (r2 * r2);
        (*force)[a] += m * gx;
        (*force)[a + 2] += m * gz;
        (*force)[b] -= m * gx;
        (*force)[b + 2] -= m * gz;
        for (const auto& [p, sp] : {std::pair(a, 1), std::pair(b, -1)}) {
          for (const auto& [q, sq] : {std::pair(a, 1), std::pair(b, -1)}) {
            stiffness->emplace_back(p, q, -m * sp * sq * hxx);
            stiffness->emplace_back(p, q + 2, -m * sp * sq * hxz);
            stiffness->emplace_back(p + 2, q, -m * sp * sq * hxz);
            stiffness->emplace_back(p + 2, q + 2, m * sp * sq * hxx);
          }
        }
      }
    };
    const auto next = sim::SolveNurbsShell(shell, load, c.groups, x, 1e-7, 60);
    out.status = next.status();
    if (!next.ok()) return out;
    x = *next;
    const auto a = static_cast<int>(3 * ControlAt(c, 0, rows - 1, 0));
    const auto b = static_cast<int>(3 * ControlAt(c, 0, rows - 2, 0));
    const double now = std::atan2(x[a + 2] - x[b + 2], x[a] - x[b]);
    angle += std::remainder(now - angle, 2 * std::numbers::pi);
  }
  out.end_angle = angle;
  const NurbsSurface bent = MovedSurfaces(c.object, c.model, x)[0];
  out.start_m = bent.Point(0, 0.5);
  out.end_m = bent.Point(1, 0.5);
  for (double u = 0; u <= 1; u += 0.01) out.height_m = std::max(out.height_m, bent.Point(u, 0.5).z());
  return out;
}

struct LoadedCantilever {
  absl::Status status;
  double down_m = 0, back_m = 0;
};

/// By a dead load on the end, in steps.
inline LoadedCantilever LoadCantilever(int degree, int spans, NurbsShellQuadrature quadrature, double force_n) {
  const NurbsShellCase c = ClampedStrip(degree, spans, quadrature);
  const sim::ReferenceNurbsShell shell(c.model);
  const NurbsSurface& s = c.object.patches()[0].surface;
  const size_t rows = CountOf(c.object, 0, NurbsDirection::kU);
  LoadedCantilever out;
  VectorXd x = shell.Rest();
  constexpr int kSteps = 20;
  for (int step = 1; step <= kSteps; ++step) {
    sim::NurbsShellLoad load{.dead_n = VectorXd::Zero(shell.size())};
    for (size_t j = 0; j < s.count(NurbsDirection::kV); ++j) {
      const auto knots = s.knots(NurbsDirection::kV);
      const double share = (knots[j + static_cast<size_t>(degree) + 1] - knots[j]) / (degree + 1);
      load.dead_n[3 * static_cast<Eigen::Index>(ControlAt(c, 0, rows - 1, j)) + 2] = -force_n * share * step / kSteps;
    }
    const auto next = sim::SolveNurbsShell(shell, load, c.groups, x, 1e-7, 60);
    out.status = next.status();
    if (!next.ok()) return out;
    x = *next;
  }
  const Vector3d end = MovedSurfaces(c.object, c.model, x)[0].Point(1, 0.5);
  out.down_m = -end.z();
  out.back_m = 10 - end.x();
  return out;
}

/// A cantilever that does not stretch, of unit length, under a dead load P at its end: alpha = P L^2 / (E I). By shooting.
struct Elastica {
  double down = 0, back = 0;

  explicit Elastica(double alpha) {
    double low = 0, high = 4 * alpha;
    for (int k = 0; k < 80; ++k) {
      const double middle = (low + high) / 2;
      (Shoot(alpha, middle) > 0 ? high : low) = middle;
    }
  }

 private:
  /// Curvature at the end if it is `curvature` at the clamp.
  double Shoot(double alpha, double curvature) {
    constexpr int kSteps = 2000;
    double angle = 0;
    down = 0;
    back = 1;
    for (int i = 0; i < kSteps; ++i) {
      const double h = 1.0 / kSteps;
      const double middle = angle + h / 2 * (curvature - h / 4 * alpha * std::cos(angle));
      down += h * std::sin(middle);
      back -= h * std::cos(middle);
      const double before = curvature;
      curvature -= h * alpha * std::cos(middle);
      angle += h / 2 * (before + curvature);
    }
    return curvature;
  }
};

}  // namespace palpate::test
