#pragma once

#include <cmath>

#include <Eigen/Geometry>

namespace palpate::station {

/// Rotation vector of the shorter way from `from` to `to`; both unit.
inline Eigen::Vector3d RotationBetween(const Eigen::Quaterniond& from, const Eigen::Quaterniond& to) noexcept {
  Eigen::Quaterniond turn = to * from.conjugate();
  if (turn.w() < 0) turn.coeffs() = -turn.coeffs();
  const double sine = turn.vec().norm();
  if (sine < 1e-12) return 2 * turn.vec();
  return turn.vec() * (2 * std::atan2(sine, turn.w()) / sine);
}

}  // namespace palpate::station
