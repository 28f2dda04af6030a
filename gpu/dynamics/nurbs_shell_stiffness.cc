#include "gpu/dynamics/nurbs_shell_stiffness.h"

#include <algorithm>
#include <numeric>

#include <Eigen/Dense>

namespace palpate::gpu {

using Eigen::Matrix2d;
using Eigen::Matrix3d;
using Eigen::MatrixXd;
using Eigen::Vector2d;
using Eigen::Vector3d;

namespace {

constexpr double kLeastArea = 1e-6;  // of a Gauss point, in shares of that at rest: below it has no normal

/// What pulls in the surface, without what pushes: the part of the stress that stiffens moves across it. [N]
Matrix2d Tension(const NurbsShellGauss& gauss, const NurbsGaussFrame& frame) {
  const auto& [c_11, c_12, c_22, shear] = gauss.bending_n_m;
  const double e_11 = (frame.a1.squaredNorm() - 1) / 2, e_22 = (frame.a2.squaredNorm() - 1) / 2, e_12 = frame.a1.dot(frame.a2) / 2;
  Matrix2d stress;
  stress << c_11 * e_11 + c_12 * e_22, 2 * shear * e_12, 2 * shear * e_12, c_12 * e_11 + c_22 * e_22;
  const Eigen::SelfAdjointEigenSolver<Matrix2d> parts(gauss.membrane_per_bending_per_m2 * stress);
  return parts.eigenvectors() * parts.eigenvalues().cwiseMax(0).asDiagonal() * parts.eigenvectors().transpose();
}

/// Of a coupling: squares of the derivatives of the gap and of both products of unit vectors (nurbs_shell_coupling.clh).
MatrixXd CouplingStiffness(const NurbsShellModel& model, const NurbsShellGauss& gauss, const NurbsGaussFrame& side) {
  const auto dual_of = [](const Vector3d& a1, const Vector3d& a2) {
    Eigen::Matrix<double, 3, 2> tangents;
    tangents << a1, a2;
    const Matrix2d metric = tangents.transpose() * tangents;
    const bool has_area = metric.determinant() > kLeastArea * kLeastArea;
    return Eigen::Matrix<double, 3, 2>(tangents * (has_area ? Matrix2d(metric.inverse()) : Matrix2d::Zero()));
  };
  const Eigen::Matrix<double, 3, 2> dual_a = dual_of(side.a1, side.a2), dual_b = dual_of(side.second[0], side.second[1]);
  const Vector3d normal_b = side.second[0].cross(side.second[1]).normalized();
  const Vector3d along = side.a1.normalized();
  const Vector3d across = side.normal.cross(along);
  const uint32_t count = gauss.end - gauss.begin;
  Eigen::Matrix3Xd gap(3, 3 * count);
  Eigen::Matrix2Xd turn(2, 3 * count);
  for (uint32_t i = 0; i < count; ++i) {
    const NurbsShellEntry& e = model.entries[gauss.begin + i];
    const Vector3d g_a = dual_a * Vector2d(e.by_1_per_m, e.by_2_per_m), g_b = dual_b * Vector2d(e.by_11_per_m2, e.by_22_per_m2);
    gap.block<3, 3>(0, 3 * i) = e.by_12_per_m2 * Matrix3d::Identity();
    turn.block<1, 3>(0, 3 * i) = -(g_a.dot(normal_b) * side.normal + g_b.dot(side.normal) * normal_b).transpose();
    turn.block<1, 3>(1, 3 * i) = (g_a.dot(across) * side.normal.dot(normal_b) * side.normal -
                                  e.by_1_per_m / side.a1.norm() * along.dot(normal_b) * across - g_b.dot(across) * normal_b)
                                     .transpose();
  }
  if (!turn.allFinite()) turn.setZero();  // a side has collapsed
  return gauss.area_m2 * (gauss.coupling->gap_n_per_m2 * gap.transpose() * gap + gauss.coupling->turn_n * turn.transpose() * turn);
}

}  // namespace

NurbsGaussFrame::NurbsGaussFrame(const NurbsShellModel& model, const NurbsShellGauss& gauss, std::span<const Vector3d> position_m) {
  const Vector3d& first = position_m[model.entries[gauss.begin].control];
  for (uint32_t e = gauss.begin; e < gauss.end; ++e) {
    const NurbsShellEntry& entry = model.entries[e];
    const Vector3d x = position_m[entry.control] - first;
    a1 += entry.by_1_per_m * x;
    a2 += entry.by_2_per_m * x;
    second[0] += entry.by_11_per_m2 * x;
    second[1] += entry.by_22_per_m2 * x;
    second[2] += entry.by_12_per_m2 * x;
  }
  normal = a1.cross(a2).normalized();
}

MatrixXd NurbsGaussStiffness(const NurbsShellModel& model, const NurbsShellGauss& gauss, std::span<const Vector3d> position_m,
                             double dt_s) {
  const NurbsGaussFrame frame(model, gauss, position_m);
  if (gauss.coupling) return CouplingStiffness(model, gauss, frame);
  const uint32_t count = gauss.end - gauss.begin;
  Matrix2d metric;
  metric << frame.a1.squaredNorm(), frame.a1.dot(frame.a2), frame.a1.dot(frame.a2), frame.a2.squaredNorm();
  const bool has_area = metric.determinant() > kLeastArea * kLeastArea;
  // Dual tangents: of the change of curvature with what turns the normal.
  const Matrix2d dual = has_area ? Matrix2d(metric.inverse()) : Matrix2d::Zero();
  const Vector3d d1 = dual(0, 0) * frame.a1 + dual(0, 1) * frame.a2, d2 = dual(1, 0) * frame.a1 + dual(1, 1) * frame.a2;
  Eigen::Matrix3Xd strain(3, 3 * count), bend(3, 3 * count);  // of (11, 22, 2 * 12)
  Eigen::Matrix2Xd gradient(2, count);
  for (uint32_t i = 0; i < count; ++i) {
    const NurbsShellEntry& e = model.entries[gauss.begin + i];
    const auto along = [&](size_t k, double h) {
      return h - e.by_1_per_m * frame.second[k].dot(d1) - e.by_2_per_m * frame.second[k].dot(d2);
    };
    gradient.col(i) << e.by_1_per_m, e.by_2_per_m;
    strain.block<1, 3>(0, 3 * i) = e.by_1_per_m * frame.a1.transpose();
    strain.block<1, 3>(1, 3 * i) = e.by_2_per_m * frame.a2.transpose();
    strain.block<1, 3>(2, 3 * i) = e.by_1_per_m * frame.a2.transpose() + e.by_2_per_m * frame.a1.transpose();
    bend.block<1, 3>(0, 3 * i) = along(0, e.by_11_per_m2) * frame.normal.transpose();
    bend.block<1, 3>(1, 3 * i) = along(1, e.by_22_per_m2) * frame.normal.transpose();
    bend.block<1, 3>(2, 3 * i) = 2 * along(2, e.by_12_per_m2) * frame.normal.transpose();
  }
  if (!has_area) bend.setZero();
  const auto& [c_11, c_12, c_22, shear] = gauss.bending_n_m;
  Matrix3d c;
  c << c_11, c_12, 0, c_12, c_22, 0, 0, 0, shear;
  c *= gauss.area_m2 * (1 + gauss.damping_s / dt_s);
  MatrixXd k = bend.transpose() * c * bend + gauss.membrane_per_bending_per_m2 * (strain.transpose() * c * strain);
  const MatrixXd across = gauss.area_m2 * (gradient.transpose() * Tension(gauss, frame) * gradient);
  for (uint32_t i = 0; i < count; ++i) {
    for (uint32_t j = 0; j < count; ++j) k.block<3, 3>(3 * i, 3 * j).diagonal().array() += across(i, j);
  }
  return k;
}

double NurbsControlInertia(const NurbsShellModel& model, uint32_t control, double dt_s) {
  return model.mass_kg[control] * (1 + model.mass_damping_per_s[control] * dt_s) / (dt_s * dt_s);
}

std::vector<uint32_t> NurbsShellsOf(const NurbsShellModel& model) {
  std::vector<uint32_t> root(model.control_count());
  std::iota(root.begin(), root.end(), 0U);
  const auto find = [&](uint32_t c) {
    while (root[c] != c) c = root[c] = root[root[c]];
    return c;
  };
  for (const NurbsShellGauss& gauss : model.gauss) {
    for (uint32_t e = gauss.begin + 1; e < gauss.end; ++e) {
      const uint32_t a = find(model.entries[e].control);
      const uint32_t b = find(model.entries[gauss.begin].control);
      root[std::max(a, b)] = std::min(a, b);
    }
  }
  for (uint32_t c = 0; c < root.size(); ++c) root[c] = find(c);
  return root;
}

std::vector<Vector3d> NurbsRestPositions(const NurbsShellModel& model) {
  std::vector<Vector3d> out;
  out.reserve(model.control_count());
  for (const std::array<double, 3>& p : model.rest_m) out.emplace_back(p[0], p[1], p[2]);
  return out;
}

}  // namespace palpate::gpu
