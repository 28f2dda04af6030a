#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include <Eigen/Core>

#include "gpu/dynamics/nurbs_shell_model.h"

namespace palpate::gpu {

/// Axes of a Gauss point, and second derivatives along them; at rest the axes are orthonormal. Of a coupling those of its first side, with
/// tangents of the second and the gap as second derivatives.
struct NurbsGaussFrame {
  Eigen::Vector3d a1 = Eigen::Vector3d::Zero(), a2 = Eigen::Vector3d::Zero(), normal;
  std::array<Eigen::Vector3d, 3> second = {Eigen::Vector3d::Zero(), Eigen::Vector3d::Zero(), Eigen::Vector3d::Zero()};  // 11, 22, 12

  /// `position_m`: of each control point.
  NurbsGaussFrame(const NurbsShellModel& model, const NurbsShellGauss& gauss, std::span<const Eigen::Vector3d> position_m);
};

/// What a Gauss point's energy, with its damping in a step, resists: of its control points, three coordinates each. At rest it is exact.
/// Elsewhere it has the squares of the derivatives of strain and curvature, and what tension adds: positive semidefinite.
Eigen::MatrixXd NurbsGaussStiffness(const NurbsShellModel& model, const NurbsShellGauss& gauss, std::span<const Eigen::Vector3d> position_m,
                                    double dt_s);

/// Inertia of a control point in a step [kg/s^2].
double NurbsControlInertia(const NurbsShellModel& model, uint32_t control, double dt_s);

/// Shells: control points that Gauss points connect. [control point] the least of its shell.
std::vector<uint32_t> NurbsShellsOf(const NurbsShellModel& model);

/// [control point] m.
std::vector<Eigen::Vector3d> NurbsRestPositions(const NurbsShellModel& model);

}  // namespace palpate::gpu
