// Energy of gpu/dynamics/nurbs_shell_elasticity.clh at a Gauss point against central finite differences and closed forms.
#include <Eigen/Dense>
#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "gpu/runtime/kernel_source.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::kernels {
extern const KernelSource nurbs_shell_double;
}  // namespace palpate::gpu::kernels

namespace palpate::gpu::nurbs_shell_elasticity_test {
namespace {

using Eigen::Matrix3d;
using Eigen::Vector3d;

struct Result {
  double energy = 0;
  Vector3d force;
  Matrix3d hessian;
};

/// A Gauss point and a control point near it.
struct Point {
  std::array<Vector3d, 5> vectors;  ///< a1, a2, a11, a22, a12
  std::array<double, 3> rest{};     ///< curvature
  std::array<double, 3> curvature_before{}, strain_before{};
  std::array<double, 4> moduli = {1, 0.3, 1, 0.35};  ///< c_11, c_12, c_22, shear
  double membrane = 300;
  double rate = 0;                                      ///< damping / dt
  std::array<double, 5> basis = {0.7, -0.4, 2, -3, 1};  ///< g1, g2, h11, h22, h12

  Point Moved(const Vector3d& d) const {
    Point p = *this;
    for (size_t k = 0; k < 5; ++k) p.vectors[k] += basis[k] * d;
    return p;
  }
};

/// On a cylinder about the y axis with curvature 1 / r, normal outwards.
Point OnCylinder(double r) {
  Point p;
  p.vectors = {Vector3d::UnitX(), Vector3d::UnitY(), Vector3d(0, 0, -1 / r), Vector3d::Zero(), Vector3d::Zero()};
  return p;
}

double SmallestEigenvalue(const Matrix3d& m) { return Eigen::SelfAdjointEigenSolver<Matrix3d>(m).eigenvalues()[0]; }

class NurbsShellElasticityTest : public test::DeviceTest {
 protected:
  std::vector<Result> Evaluate(const std::vector<Point>& cases) {
    std::vector<double> in;
    const auto add = [&](const auto& values) { in.insert(in.end(), values.begin(), values.end()); };
    for (const Point& c : cases) {
      for (const Vector3d& v : c.vectors) in.insert(in.end(), v.data(), v.data() + 3);
      add(c.rest);
      add(c.curvature_before);
      add(c.strain_before);
      add(c.moduli);
      in.insert(in.end(), {c.membrane, c.rate});
      add(c.basis);
    }
    auto kernel = context()->CreateKernel(kernels::nurbs_shell_double, "evaluate_nurbs_points", {});
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    if (!kernel.ok()) return {};
    const auto input = Upload(in);
    const auto output = Allocate<double>(cases.size() * 10);
    PALPATE_EXPECT_OK(queue().Launch(*kernel, {cases.size(), 0}, Arg("count", static_cast<uint32_t>(cases.size())), Arg("cases", input),
                                     Arg("results", output)));
    const std::vector<double> out = Download(output);
    std::vector<Result> results(cases.size());
    for (size_t i = 0; i < results.size(); ++i) {
      const double* at = &out[10 * i];
      results[i].energy = at[0];
      results[i].force = {at[1], at[2], at[3]};
      results[i].hessian << at[4], at[5], at[6], at[5], at[7], at[8], at[6], at[8], at[9];
    }
    return results;
  }

  bool HasDouble() {
    EXPECT_TRUE(context()->device().has_fp64 || !context()->device().is_cpu) << "a CPU without double precision?";
    return context()->device().has_fp64;
  }
  Vector3d RandomVector(double scale = 1) { return scale * Vector3d(uniform_(random_), uniform_(random_), uniform_(random_)); }

  /// Gauss points of every kind that a solver meets: near rest, stretched, pressed together, sheared, bent far, thick and thin.
  std::vector<Point> Points() {
    std::vector<Point> cases;
    for (int i = 0; i < 200; ++i) {
      Point p;
      const Vector3d u = RandomVector().normalized();
      const Vector3d v = u.unitOrthogonal();
      const double far = i < 60 ? 0.02 : 0.4;
      p.vectors[0] = (i % 5 == 0 ? 1.7 : i % 5 == 1 ? 0.4 : 1) * u + RandomVector(far);
      p.vectors[1] = v + RandomVector(far);
      for (size_t k = 2; k < 5; ++k) p.vectors[k] = RandomVector(i < 30 ? 0.2 : 3);
      for (double& b : p.rest) b = 2 * uniform_(random_);
      for (double& b : p.curvature_before) b = 2 * uniform_(random_);
      for (double& e : p.strain_before) e = 0.2 * uniform_(random_);
      const double nu = 0.15 * (i % 4);
      p.moduli = {1, nu, 1, (1 - nu) / 2};
      if (i % 7 == 0) p.moduli = {1, 0, 0, 0};  // a strip
      p.membrane = i % 7 == 0 ? 0 : i % 3 == 0 ? 1200 : 30;
      p.rate = i % 2 == 0 ? 0 : 0.8;
      for (size_t k = 0; k < 5; ++k) p.basis[k] = (k < 2 ? 1 : 5) * uniform_(random_);
      cases.push_back(p);
    }
    return cases;
  }

  std::mt19937_64 random_{20240612};
  std::uniform_real_distribution<double> uniform_{-1, 1};
};

TEST_F(NurbsShellElasticityTest, ForcesAndBlocksMatchFiniteDifferences) {
  if (!HasDouble()) GTEST_SKIP() << "the device has no double precision";
  const std::vector<Point> cases = Points();
  constexpr double kStep = 1e-5;
  std::vector<Point> moved;
  for (const Point& c : cases) {
    for (int axis = 0; axis < 3; ++axis) {
      for (const double sign : {1.0, -1.0}) moved.push_back(c.Moved(sign * kStep * Vector3d::Unit(axis)));
    }
  }
  const std::vector<Result> exact = Evaluate(cases);
  const std::vector<Result> around = Evaluate(moved);
  ASSERT_EQ(around.size(), moved.size());
  int tight = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    const Result& r = exact[i];
    Vector3d gradient;
    Matrix3d jacobian;
    for (int axis = 0; axis < 3; ++axis) {
      const Result& plus = around[6 * i + 2 * static_cast<size_t>(axis)];
      const Result& minus = around[6 * i + 2 * static_cast<size_t>(axis) + 1];
      gradient[axis] = (plus.energy - minus.energy) / (2 * kStep);
      jacobian.col(axis) = -(plus.force - minus.force) / (2 * kStep);
    }
    SCOPED_TRACE(testing::Message() << "case " << i);
    const double scale = 1 + r.hessian.norm() + jacobian.norm();
    EXPECT_LT((r.force + gradient).norm(), 1e-6 * (scale + r.force.norm()));
    EXPECT_GT(SmallestEigenvalue(r.hessian), -1e-9 * scale) << "the block must be positive semidefinite";
    EXPECT_GT(SmallestEigenvalue(r.hessian - jacobian), -1e-6 * scale) << "the block bounds the exact one from above\n"
                                                                       << r.hessian << "\nexact\n"
                                                                       << jacobian;
    if ((r.hessian - jacobian).norm() < 0.2 * jacobian.norm()) ++tight;
  }
  EXPECT_GT(tight, 40) << "a bound, and not a far one";
}

TEST_F(NurbsShellElasticityTest, AtRestTheBlockIsExactAndThereIsNoForce) {
  if (!HasDouble()) GTEST_SKIP() << "the device has no double precision";
  Point p = OnCylinder(0.5);
  p.rest = {-2, 0, 0};
  std::vector<Point> cases = {p};
  // Turned, it is the same.
  const Eigen::AngleAxisd turn(2.1, Vector3d(1, -2, 0.5).normalized());
  cases.push_back(p);
  for (Vector3d& v : cases.back().vectors) v = turn * v;
  const std::vector<Result> results = Evaluate(cases);
  for (const Result& r : results) {
    EXPECT_LT(r.energy, 1e-28);
    EXPECT_LT(r.force.norm(), 1e-12);
  }
  const double s11 = p.basis[2], s22 = p.basis[3], s12 = p.basis[4];  // without Christoffel symbols
  EXPECT_NEAR(results[0].hessian(2, 2), s11 * s11 + s22 * s22 + 0.6 * s11 * s22 + 4 * 0.35 * s12 * s12, 1e-12);
  const Matrix3d turned = turn.toRotationMatrix() * results[0].hessian * turn.toRotationMatrix().transpose();
  EXPECT_LT((turned - results[1].hessian).norm(), 1e-9 * turned.norm());
}

TEST_F(NurbsShellElasticityTest, EnergiesOfStretchAndCurvatureAreThoseOfAPlate) {
  if (!HasDouble()) GTEST_SKIP() << "the device has no double precision";
  const double nu = 0.3;
  Point flat = OnCylinder(1e30);
  flat.moduli = {1, nu, 1, (1 - nu) / 2};
  flat.membrane = 12 / (0.01 * 0.01);
  std::vector<Point> cases(3, flat);
  cases[0].vectors[0] *= 1.2;  // E_11 = 0.22
  cases[1].vectors[2] = Vector3d(0, 0, 0.5);
  cases[1].vectors[3] = Vector3d(0, 0, 0.5);  // a dome
  cases[2].vectors[4] = Vector3d(0, 0, 0.5);  // a twist
  const std::vector<Result> results = Evaluate(cases);
  EXPECT_NEAR(results[0].energy, flat.membrane * 0.22 * 0.22 / 2, 1e-9);
  EXPECT_NEAR(results[1].energy, (1 + nu) * 0.25, 1e-12);
  EXPECT_NEAR(results[2].energy, (1 - nu) * 0.25, 1e-12);
}

TEST_F(NurbsShellElasticityTest, WhatHasNoAreaStaysFinite) {
  if (!HasDouble()) GTEST_SKIP() << "the device has no double precision";
  std::vector<Point> cases(4, OnCylinder(0.5));
  cases[0].vectors = {Vector3d::Zero(), Vector3d::Zero(), Vector3d::Zero(), Vector3d::Zero(), Vector3d::Zero()};
  cases[1].vectors[1] = cases[1].vectors[0];
  cases[2].vectors[0].setZero();
  cases[3].basis = {0, 0, 0, 0, 0};
  const std::vector<Result> results = Evaluate(cases);
  for (const Result& r : results) {
    EXPECT_TRUE(std::isfinite(r.energy) && r.force.allFinite() && r.hessian.allFinite());
    EXPECT_GE(SmallestEigenvalue(r.hessian), -1e-6 * (1 + r.hessian.norm()));
  }
  EXPECT_EQ(results[3].force.norm() + results[3].hessian.norm(), 0) << "lanes beside a control point's own add zero";
}

}  // namespace
}  // namespace palpate::gpu::nurbs_shell_elasticity_test
