#pragma once

#include <Eigen/Core>

namespace palpate::sim {

/// Sign (-1, 0, 1) of (b-a) x (c-a) . (d-a), computed exactly: floating point with an error bound first, expansion arithmetic where that is
/// not sure. Exact unless an intermediate product overflows or underflows, which needs coordinates (or differences) outside about
/// 1e-90..1e90. Source: Shewchuk, Adaptive Precision Floating-Point Arithmetic and Fast Robust Geometric Predicates, 1997 (error bound,
/// expansion sums).
int Orient3d(const Eigen::Vector3d& a, const Eigen::Vector3d& b, const Eigen::Vector3d& c, const Eigen::Vector3d& d);

/// Sign (-1, 0, 1) of (b-a) x (c-a) of plane points: 1 if a, b, c turn counter-clockwise. Exactness and source as for Orient3d.
int Orient2d(const Eigen::Vector2d& a, const Eigen::Vector2d& b, const Eigen::Vector2d& c);

}  // namespace palpate::sim
