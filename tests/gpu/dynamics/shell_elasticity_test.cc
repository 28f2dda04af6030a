// Energies of gpu/dynamics/shell_elasticity.clh against central finite differences and closed forms.
#include <Eigen/Dense>
#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "gpu/runtime/kernel_source.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::kernels {
extern const KernelSource shell_double;
}  // namespace palpate::gpu::kernels

namespace palpate::gpu::shell_elasticity_test {
namespace {

using Eigen::Matrix2d;
using Eigen::Matrix3d;
using Eigen::Vector2d;
using Eigen::Vector3d;

struct Result {
  double energy = 0;
  Vector3d force;
  Matrix3d hessian;
};

/// A triangle with its rest shape, and what it is made of.
struct Membrane {
  std::array<Vector3d, 3> x;
  Matrix2d rest = Matrix2d::Identity();              ///< columns: from the first vertex to the others
  std::array<double, 4> moduli = {1, 0.3, 1, 0.35};  ///< c_aa, c_ab, c_bb, shear
  double ratio = 1.9;
  double limit = 0.1;
  double modulus = 20;
};
enum MembraneTerm { kGreen, kNeoHookean, kLimit, kMembraneTerms };
constexpr const char* kTermNames[] = {"St-Venant-Kirchhoff", "neo-Hookean", "limit"};

/// Four vertices: an edge and the third vertices of its triangles.
struct Hinge {
  std::array<Vector3d, 4> x;
  double rest = 0;
};

double SmallestEigenvalue(const Matrix3d& m) { return Eigen::SelfAdjointEigenSolver<Matrix3d>(m).eigenvalues()[0]; }

class ShellElasticityTest : public test::DeviceTest {
 protected:
  std::vector<Result> Run(const char* name, const std::vector<double>& in, size_t reals_in, size_t reals_out) {
    const size_t count = in.size() / reals_in;
    auto kernel = context()->CreateKernel(kernels::shell_double, name, {});
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    if (!kernel.ok()) return {};
    const auto input = Upload(in);
    const auto output = Allocate<double>(count * reals_out);
    PALPATE_EXPECT_OK(
        queue().Launch(*kernel, {count, 0}, Arg("count", static_cast<uint32_t>(count)), Arg("cases", input), Arg("results", output)));
    const std::vector<double> out = Download(output);
    std::vector<Result> results(out.size() / 10);
    for (size_t i = 0; i < results.size(); ++i) {
      const double* at = &out[10 * i];
      results[i].energy = at[0];
      results[i].force = {at[1], at[2], at[3]};
      results[i].hessian << at[4], at[5], at[6], at[5], at[7], at[8], at[6], at[8], at[9];
    }
    return results;
  }

  /// [kMembraneTerms * case + term], of the first vertex.
  std::vector<Result> Evaluate(const std::vector<Membrane>& cases) {
    std::vector<double> in;
    for (const Membrane& c : cases) {
      for (const Vector3d& x : c.x) in.insert(in.end(), x.data(), x.data() + 3);
      const Matrix2d rows = c.rest.inverse();
      for (int i = 0; i < 4; ++i) in.push_back(rows(i / 2, i % 2));
      in.insert(in.end(), c.moduli.begin(), c.moduli.end());
      in.insert(in.end(), {c.ratio, c.limit, c.modulus});
    }
    return Run("evaluate_membranes", in, 20, 30);
  }

  /// [4 * case + vertex]
  std::vector<Result> Evaluate(const std::vector<Hinge>& cases) {
    std::vector<double> in;
    for (const Hinge& c : cases) {
      for (const Vector3d& x : c.x) in.insert(in.end(), x.data(), x.data() + 3);
      in.push_back(c.rest);
    }
    return Run("evaluate_hinges", in, 13, 40);
  }

  bool HasDouble() {
    EXPECT_TRUE(context()->device().has_fp64 || !context()->device().is_cpu) << "a CPU without double precision?";
    return context()->device().has_fp64;
  }
  Vector3d RandomVector(double scale = 1) { return scale * Vector3d(uniform_(random_), uniform_(random_), uniform_(random_)); }

  /// Triangles of every kind that a solver meets.
  std::vector<Membrane> Membranes() {
    std::vector<Membrane> cases;
    for (int i = 0; i < 160; ++i) {
      Membrane c;
      do {
        c.rest << uniform_(random_), uniform_(random_), uniform_(random_), uniform_(random_);
      } while (c.rest.determinant() < 0.2);
      const Vector3d u = RandomVector().normalized();
      const Vector3d v = u.unitOrthogonal();
      const double stretch = i < 60 ? 1 : i < 80 ? 2 : i < 100 ? 0.4 : 1;
      for (int k = 0; k < 3; ++k) {
        const Vector2d r = k == 0 ? Vector2d(0, 0) : Vector2d(c.rest.col(k - 1));
        c.x[static_cast<size_t>(k)] = stretch * (r.x() * u + r.y() * v) + RandomVector(0.15);
      }
      if (i >= 100 && i < 120) c.x[0] = 0.3 * c.x[1] + 0.7 * c.x[2] + RandomVector(1e-3);            // without area, nearly
      if (i >= 120 && i < 130) c.x[0] = 0.3 * c.x[1] + 0.7 * c.x[2];                                 // exactly
      if (i >= 130 && i < 145) c.x[0] = 1.3 * (c.x[1] + c.x[2]) - 1.6 * c.x[0] + RandomVector(0.1);  // on the other side of its edge
      if (i >= 145) c.x[0] = c.x[1];
      const double nu = 0.15 * (i % 4);
      const double weft = i % 3 == 0 ? 1 : 0.2 + std::abs(uniform_(random_));
      c.moduli = {1 / (1 - nu * nu * weft), nu * weft / (1 - nu * nu * weft), weft / (1 - nu * nu * weft), 1 / (2 * (1 + nu))};
      c.ratio = 1 + 2 * nu / (1 - 2 * nu);
      cases.push_back(c);
    }
    return cases;
  }

  std::vector<Hinge> Hinges() {
    std::vector<Hinge> cases;
    for (int i = 0; i < 120; ++i) {
      Hinge c;
      const double angle = (i < 40 ? 0.3 : 2.9) * uniform_(random_);
      const double h = 0.6 + 0.4 * uniform_(random_);
      const double bend = i % 2 == 0 ? 0 : 0.5 * uniform_(random_);
      c.x = {Vector3d(0, 0, 0), Vector3d(1, 0, 0), Vector3d(0.5 + uniform_(random_), h * std::cos(angle), h * std::sin(angle)),
             Vector3d(0.5 + uniform_(random_), -0.8, 0)};
      if (i >= 100) c.x[2] = Vector3d(0.4, 0.05 * std::cos(angle), 0.05 * std::sin(angle));  // a sliver
      const Eigen::Quaterniond turn(Eigen::Vector4d(uniform_(random_), uniform_(random_), uniform_(random_), 1.1).normalized());
      for (Vector3d& x : c.x) x = 0.01 * (turn * x);
      c.rest = bend;
      cases.push_back(c);
    }
    return cases;
  }

  std::mt19937_64 random_{20240612};
  std::uniform_real_distribution<double> uniform_{-1, 1};
};

TEST_F(ShellElasticityTest, MembraneForcesAndBlocksMatchFiniteDifferences) {
  if (!HasDouble()) GTEST_SKIP() << "the device has no double precision";
  const std::vector<Membrane> cases = Membranes();
  constexpr double kStep = 1e-5;
  std::vector<Membrane> moved;
  for (const Membrane& c : cases) {
    for (int axis = 0; axis < 3; ++axis) {
      for (const double sign : {1.0, -1.0}) {
        moved.push_back(c);
        moved.back().x[0] += sign * kStep * Vector3d::Unit(axis);
      }
    }
  }
  const std::vector<Result> exact = Evaluate(cases);
  const std::vector<Result> around = Evaluate(moved);
  ASSERT_EQ(around.size(), moved.size() * kMembraneTerms);
  for (size_t i = 0; i < cases.size(); ++i) {
    for (size_t term = 0; term < kMembraneTerms; ++term) {
      const Result& r = exact[kMembraneTerms * i + term];
      Vector3d gradient;
      Matrix3d jacobian;
      for (int axis = 0; axis < 3; ++axis) {
        const Result& plus = around[kMembraneTerms * (6 * i + 2 * static_cast<size_t>(axis)) + term];
        const Result& minus = around[kMembraneTerms * (6 * i + 2 * static_cast<size_t>(axis) + 1) + term];
        gradient[axis] = (plus.energy - minus.energy) / (2 * kStep);
        jacobian.col(axis) = -(plus.force - minus.force) / (2 * kStep);
      }
      SCOPED_TRACE(testing::Message() << kTermNames[term] << ", case " << i);
      const double scale = 1 + r.hessian.norm() + jacobian.norm();
      EXPECT_LT((r.force + gradient).norm(), 1e-7 * (scale + r.force.norm()));
      EXPECT_GT(SmallestEigenvalue(r.hessian), -1e-9 * scale) << "the block must be positive semidefinite";
      // The limit's energy has a kink in its second derivative.
      if (term == kLimit && (jacobian - jacobian.transpose()).norm() > 1e-6 * scale) continue;
      EXPECT_GT(SmallestEigenvalue(r.hessian - jacobian), -2e-5 * scale) << "the block bounds the exact one from above\n"
                                                                         << r.hessian << "\nexact\n"
                                                                         << jacobian;
      if (term == kNeoHookean && SmallestEigenvalue(jacobian) > 1e-6) {
        EXPECT_LT((r.hessian - jacobian).norm(), 1e-5 * scale) << "the block is exact where that is positive";
      }
    }
  }
}

TEST_F(ShellElasticityTest, MembranesObeyHookesLawOfPlaneStress) {
  if (!HasDouble()) GTEST_SKIP() << "the device has no double precision";
  constexpr double kStrain = 1e-5;
  constexpr double kNu = 0.3;
  Membrane sheet;
  sheet.rest << 1, 0.4, 0, 0.9;
  const double c = 1 / (1 - kNu * kNu);
  sheet.moduli = {c, kNu * c, c, 1 / (2 * (1 + kNu))};
  sheet.ratio = 1 + 2 * kNu / (1 - 2 * kNu);  // lambda' = lambda + mu
  // Pulled along x with free sides the energy is E e^2 / 2, and with held sides E e^2 / (2 (1 - nu^2)).
  std::vector<Membrane> cases;
  for (const double side : {-kNu * kStrain, 0.0}) {
    const auto at = [&](double x, double y) { return Vector3d((1 + kStrain) * x, (1 + side) * y, 0.7); };
    sheet.x = {at(0, 0), at(1, 0), at(0.4, 0.9)};
    cases.push_back(sheet);
  }
  const std::vector<Result> results = Evaluate(cases);
  for (const MembraneTerm term : {kGreen, kNeoHookean}) {
    EXPECT_NEAR(results[term].energy / (kStrain * kStrain), 0.5, 1e-4) << kTermNames[term];
    EXPECT_NEAR(results[kMembraneTerms + term].energy / (kStrain * kStrain), 0.5 * c, 1e-4) << kTermNames[term];
  }
}

TEST_F(ShellElasticityTest, HingeForcesAndBlocksMatchFiniteDifferences) {
  if (!HasDouble()) GTEST_SKIP() << "the device has no double precision";
  const std::vector<Hinge> cases = Hinges();
  constexpr double kStep = 1e-8;
  std::vector<Hinge> moved;
  for (const Hinge& c : cases) {
    for (size_t v = 0; v < 4; ++v) {
      for (int axis = 0; axis < 3; ++axis) {
        for (const double sign : {1.0, -1.0}) {
          moved.push_back(c);
          moved.back().x[v] += sign * kStep * Vector3d::Unit(axis);
        }
      }
    }
  }
  const std::vector<Result> exact = Evaluate(cases);
  const std::vector<Result> around = Evaluate(moved);
  ASSERT_EQ(around.size(), 4 * moved.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    Vector3d sum = Vector3d::Zero();
    for (size_t v = 0; v < 4; ++v) {
      const Result& r = exact[4 * i + v];
      Vector3d gradient;
      Matrix3d jacobian;
      for (size_t axis = 0; axis < 3; ++axis) {
        const size_t pair = 24 * i + 6 * v + 2 * axis;
        gradient[static_cast<int>(axis)] = (around[4 * pair].energy - around[4 * (pair + 1)].energy) / (2 * kStep);
        jacobian.col(static_cast<int>(axis)) = -(around[4 * pair + v].force - around[4 * (pair + 1) + v].force) / (2 * kStep);
      }
      SCOPED_TRACE(testing::Message() << "case " << i << ", vertex " << v);
      const double scale = r.hessian.norm() + jacobian.norm();
      EXPECT_LT((r.force + gradient).norm(), 1e-5 * (r.force.norm() + 1e-2 * scale * 0.01));
      EXPECT_GT(SmallestEigenvalue(r.hessian), -1e-9 * scale) << "the block must be positive semidefinite";
      EXPECT_GT(SmallestEigenvalue(r.hessian - jacobian), -1e-4 * scale) << "the block bounds the exact one from above\n"
                                                                         << r.hessian << "\nexact\n"
                                                                         << jacobian;
      sum += r.force;
    }
    EXPECT_LT(sum.norm(), 1e-9 * (exact[4 * i].force.norm() + 1));
  }
}

TEST_F(ShellElasticityTest, AFlatHingeIsExactAndTurnsTheShortWay) {
  if (!HasDouble()) GTEST_SKIP() << "the device has no double precision";
  // Both ends lie a height of 1 over the edge: the angle of a small lift z of one is z, of a fold nearly all the way pi.
  std::vector<Hinge> cases;
  for (const double angle : {1e-3, 1.0, 3.0, -3.0}) {
    cases.push_back({{Vector3d(0, 0, 0), Vector3d(1, 0, 0), Vector3d(0.5, std::cos(angle), std::sin(angle)), Vector3d(0.5, -1, 0)}, 0});
  }
  cases.push_back(cases.back());
  cases.back().rest = 3.0;  // the normals of the last are turned by 3, so what it lacks is 0
  cases.push_back(cases[2]);
  cases.back().rest = 3.0;  // and here by -3: 2 pi - 6 away
  const std::vector<Result> results = Evaluate(cases);
  EXPECT_NEAR(results[0].energy, 0.5e-6, 1e-12);
  EXPECT_NEAR(results[4].energy, 0.5, 1e-12);
  EXPECT_NEAR(results[8].energy, 4.5, 1e-9);
  EXPECT_NEAR(results[12].energy, 4.5, 1e-9);
  EXPECT_NEAR(results[16].energy, 0, 1e-12);
  EXPECT_NEAR(results[20].energy, 0.5 * std::pow(2 * M_PI - 6, 2), 1e-6);
}

TEST_F(ShellElasticityTest, WhatHasNoAreaStaysFinite) {
  if (!HasDouble()) GTEST_SKIP() << "the device has no double precision";
  const Vector3d o(0, 0, 0);
  const std::vector<Hinge> hinges = {{{o, o, o, o}, 0.3},
                                     {{o, Vector3d(1, 0, 0), Vector3d(0.5, 0, 0), Vector3d(0.5, -1, 0)}, 0},
                                     {{o, o, Vector3d(1, 0, 0), Vector3d(0, 1, 0)}, 0},
                                     {{o, Vector3d(1, 0, 0), Vector3d(2, 0, 0), Vector3d(-1, 0, 0)}, 0.2}};
  for (const Result& r : Evaluate(hinges)) {
    EXPECT_TRUE(std::isfinite(r.energy) && r.force.allFinite() && r.hessian.allFinite());
    EXPECT_GE(SmallestEigenvalue(r.hessian), -1e-6 * (1 + r.hessian.norm()));
  }
  Membrane point;
  point.x = {o, o, o};
  for (const Result& r : Evaluate(std::vector<Membrane>{point})) {
    EXPECT_TRUE(std::isfinite(r.energy) && r.force.allFinite() && r.hessian.allFinite());
  }
}

}  // namespace
}  // namespace palpate::gpu::shell_elasticity_test
