#pragma once

#include <algorithm>
#include <array>
#include <cmath>

#include <Eigen/Core>

namespace palpate::sim {

/// A gap and its first derivatives after a way.
struct CurvedGap {
  double change_m = 0;
  Eigen::Vector3d normal{0, 0, 1};  ///< unit
  double stretch = 1;               ///< distances along the surface there, over those before
};

/// H t, for H as LocalConstraint::curvature_per_m has it.
inline Eigen::Vector3d TimesCurvature(const std::array<double, 6>& h, const Eigen::Vector3d& t) noexcept {
  return {h[0] * t.x() + h[1] * t.y() + h[2] * t.z(), h[1] * t.x() + h[3] * t.y() + h[4] * t.z(),
          h[2] * t.x() + h[4] * t.y() + h[5] * t.z()};
}

/// How a gap with the normal n and the second derivatives H (H n = 0) changes on a way t. Exact for spheres, cylinders and planes; for
/// others right to second order. With q = t^T H t, k = |H t|^2 / q and a = 1 + k n^T t it is
///
///     n^T t + q / (a + sqrt(a^2 + |H t|^2)).
inline CurvedGap FollowGap(const Eigen::Vector3d& normal, const std::array<double, 6>& curvature_per_m,
                           const Eigen::Vector3d& way_m) noexcept {
  CurvedGap out;
  const double along_m = normal.dot(way_m);
  out.change_m = along_m;
  out.normal = normal;
  const std::array<double, 6>& h = curvature_per_m;
  const Eigen::Vector3d turn = TimesCurvature(h, way_m);
  const double most_per_m = std::sqrt(h[0] * h[0] + h[3] * h[3] + h[5] * h[5] + 2 * (h[1] * h[1] + h[2] * h[2] + h[4] * h[4]));
  const double mean_per_m = h[0] + h[3] + h[5] > 0 ? most_per_m : -most_per_m;
  const double q_m = way_m.dot(turn);
  // Of a saddle k is beyond all bounds where q changes its sign; straight along the normal it is nothing, and the larger curvature serves.
  const double k_per_m = std::abs(q_m) > 1e-300 ? std::clamp(turn.squaredNorm() / q_m, -most_per_m, most_per_m) : mean_per_m;
  constexpr double kLeast = 0.05;  // beyond the centre of curvature there is no nearest point
  const double a = std::max(kLeast, 1 + k_per_m * along_m);
  out.stretch = a;
  const double root = std::sqrt(a * a + turn.squaredNorm());
  out.change_m += q_m / (a + root);
  out.normal = (a * normal + turn).normalized();
  return out;
}

}  // namespace palpate::sim
