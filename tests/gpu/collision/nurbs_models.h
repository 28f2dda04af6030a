#pragma once

#include <Eigen/Geometry>
#include <array>
#include <cmath>
#include <random>
#include <span>
#include <vector>

#include "sim/nurbs/nurbs_nets.h"
#include "sim/nurbs/nurbs_surface.h"

namespace palpate::test {

/// Kernels compiled natively under sanitizers are slow: tests take smaller cases there.
#ifdef PALPATE_NATIVE_KERNELS
inline constexpr bool kIsNative = true;
#else
inline constexpr bool kIsNative = false;
#endif

/// A turn about an axis through the origin [rad], then a shift.
inline Eigen::Affine3d Turned(double angle, const Eigen::Vector3d& axis, const Eigen::Vector3d& offset_m) {
  return Eigen::Translation3d(offset_m) * Eigen::AngleAxisd(angle, axis.normalized()) * Eigen::Affine3d::Identity();
}
inline Eigen::Affine3d Shift(const Eigen::Vector3d& by_m) { return Eigen::Affine3d(Eigen::Translation3d(by_m)); }

/// Control points of all surfaces, as NurbsObjects::SetControl takes them.
inline std::vector<double> ControlOf(std::span<const sim::NurbsSurface> patches) {
  std::vector<double> out;
  for (const gpu::NurbsNet& net : sim::NetsOf(patches)) out.insert(out.end(), net.control.begin(), net.control.end());
  return out;
}

struct SheetOptions {
  int degree_u = 3, degree_v = 3;
  int inside_u = 0, inside_v = 0;  ///< knots inside, evenly spaced
  double height_m = 0.2;           ///< of random bumps
  double weight_ratio = 1;         ///< largest to smallest weight
};

/// A bumpy sheet over [0, 1]^2.
inline sim::NurbsSurface Sheet(const SheetOptions& options, std::mt19937* random) {
  std::uniform_real_distribution<double> uniform(-1, 1);
  sim::NurbsDescription out{
      .degree_u = options.degree_u, .degree_v = options.degree_v, .knots_u = {}, .knots_v = {}, .control_m = {}, .weights = {}};
  const auto knots = [](int degree, int inside) {
    std::vector<double> k(static_cast<size_t>(degree) + 1, 0.0);
    for (int i = 1; i <= inside; ++i) k.push_back(static_cast<double>(i) / (inside + 1));
    k.insert(k.end(), static_cast<size_t>(degree) + 1, 1.0);
    return k;
  };
  out.knots_u = knots(options.degree_u, options.inside_u);
  out.knots_v = knots(options.degree_v, options.inside_v);
  const int rows = options.degree_u + options.inside_u;
  const int columns = options.degree_v + options.inside_v;
  for (int i = 0; i <= rows; ++i) {
    for (int j = 0; j <= columns; ++j) {
      out.control_m.emplace_back(static_cast<double>(i) / rows, static_cast<double>(j) / columns, options.height_m * uniform(*random));
      out.weights.push_back(std::pow(options.weight_ratio, 0.5 * uniform(*random)));
    }
  }
  return *sim::NurbsSurface::Create(out);
}

}  // namespace palpate::test
