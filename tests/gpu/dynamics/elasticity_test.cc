// Energies of gpu/dynamics/elasticity.clh against central finite differences, exact invariants and Hooke's law.
#include <Eigen/Dense>
#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "gpu/runtime/kernel_source.h"
#include "gpu/shared/energies.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::kernels {
extern const KernelSource elasticity_double;
}  // namespace palpate::gpu::kernels

namespace palpate::gpu::elasticity_test {
namespace {

using Eigen::Matrix3d;
using Eigen::Vector3d;

// Each energy of the table, each with fibres (the same where it has none), viscosity.
enum Term {
#define PALPATE_ENERGY(name, Name, api, code, text) k##Name,
  PALPATE_ELASTIC_ENERGIES(PALPATE_ENERGY)
#undef PALPATE_ENERGY
#define PALPATE_ENERGY(name, Name, api, code, text) k##Name##Fibers,
      PALPATE_ELASTIC_ENERGIES(PALPATE_ENERGY)
#undef PALPATE_ENERGY
          kViscous,
  kTermCount
};
constexpr const char* kTermNames[] = {
#define PALPATE_ENERGY(name, Name, api, code, text) text,
    PALPATE_ELASTIC_ENERGIES(PALPATE_ENERGY)
#undef PALPATE_ENERGY
#define PALPATE_ENERGY(name, Name, api, code, text) text " with fibres",
        PALPATE_ELASTIC_ENERGIES(PALPATE_ENERGY)
#undef PALPATE_ENERGY
            "viscous"};
static_assert(std::size(kTermNames) == kTermCount);
constexpr size_t kRealsIn = 45;
constexpr size_t kRealsOut = 10 * kTermCount;
constexpr bool IsLinear(int term) { return term == kLinear || term == kLinearFibers; }
constexpr bool IsNeoHookean(int term) { return term == kStableNeoHookean || term == kStableNeoHookeanFibers; }
constexpr bool IsCorotated(int term) { return term == kCorotated || term == kCorotatedFibers; }
constexpr bool IsSprings(int term) { return term == kMassSpring || term == kMassSpringFibers; }
constexpr bool HasFibers(int term) { return term == kLinearFibers || term == kStVenantKirchhoffFibers; }

/// Nearest proper rotation, also of inverted F.
Matrix3d PolarRotation(const Matrix3d& f) {
  const Eigen::JacobiSVD<Matrix3d> svd(f, Eigen::ComputeFullU | Eigen::ComputeFullV);
  Matrix3d u = svd.matrixU();
  if ((u * svd.matrixV().transpose()).determinant() < 0) u.col(2) = -u.col(2);
  return u * svd.matrixV().transpose();
}

struct Case {
  Matrix3d f = Matrix3d::Identity();
  Vector3d g = Vector3d::UnitX();
  Matrix3d c_start = Matrix3d::Identity();
  double rate = 0.6;
  double mu_v = 1;
  double lambda_v = 1;
  Matrix3d rows = -Matrix3d::Identity() / 3;  ///< of Dm^-1
  Vector3d fibers = Vector3d::UnitX();
  double alpha_v = 0, beta_v = 0, shear_v = 0;
};

struct Result {
  double energy = 0;
  Vector3d force;
  Matrix3d hessian;
};
using Results = std::array<Result, kTermCount>;

class ElasticityTest : public test::DeviceTest {
 protected:
  /// `displaced`: kernels are given F and C without the unit matrix.
  template <typename Real>
  std::vector<Results> Evaluate(const std::vector<Case>& cases, bool displaced = false) {
    const Matrix3d known = (displaced ? 1.0 : 0.0) * Matrix3d::Identity();
    std::vector<Real> in;
    in.reserve(cases.size() * kRealsIn);
    const auto push = [&](double v) { in.push_back(static_cast<Real>(v)); };
    for (const Case& c : cases) {
      const Matrix3d r = PolarRotation(c.f);
      for (const Matrix3d& m : {Matrix3d(c.f - known), r}) {
        for (int i = 0; i < 9; ++i) push(m(i / 3, i % 3));
      }
      for (int i = 0; i < 3; ++i) push(c.g[i]);
      for (const auto& [i, j] : {std::pair{0, 0}, {0, 1}, {0, 2}, {1, 1}, {1, 2}, {2, 2}}) push(c.c_start(i, j) - known(i, j));
      for (const double v : {c.rate, c.mu_v, c.lambda_v}) push(v);
      for (int i = 0; i < 9; ++i) push(c.rows(i / 3, i % 3));
      for (const double v : {c.fibers.x(), c.fibers.y(), c.fibers.z(), c.alpha_v, c.beta_v, c.shear_v}) push(v);
    }
    ProgramDefines defines;
    if (std::is_same_v<Real, float>) defines = {{"PALPATE_R", "float"}, {"PALPATE_DOUBLE", "0"}};
    if (displaced) defines["PALPATE_DISPLACED"] = "1";
    auto kernel = context()->CreateKernel(kernels::elasticity_double, "evaluate_elasticity", defines);
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    if (!kernel.ok()) return {};
    const auto input = Upload(in);
    const auto output = Allocate<Real>(cases.size() * kRealsOut);
    PALPATE_EXPECT_OK(queue().Launch(*kernel, {cases.size(), 0}, Arg("count", static_cast<uint32_t>(cases.size())), Arg("cases", input),
                                     Arg("results", output)));
    const std::vector<Real> out = Download(output);
    std::vector<Results> results(cases.size());
    const Real* at = out.data();
    for (Results& result : results) {
      for (Result& r : result) {
        r.energy = at[0];
        r.force = {at[1], at[2], at[3]};
        r.hessian << at[4], at[5], at[6], at[5], at[7], at[8], at[6], at[8], at[9];
        at += 10;
      }
    }
    return results;
  }

  /// Devices that are CPUs always have it: there a test that needs it may not be skipped.
  bool HasDouble() {
    EXPECT_TRUE(context()->device().has_fp64 || !context()->device().is_cpu) << "a CPU without double precision?";
    return context()->device().has_fp64;
  }

  Matrix3d RandomMatrix(double scale = 1) {
    Matrix3d m;
    for (int i = 0; i < 9; ++i) m(i / 3, i % 3) = scale * uniform_(random_);
    return m;
  }
  Matrix3d RandomRotation() {
    return Eigen::Quaterniond(Eigen::Vector4d(normal_(random_), normal_(random_), normal_(random_), normal_(random_)).normalized())
        .toRotationMatrix();
  }
  /// Rows of Dm^-1 of a well-shaped tet whose first vertex has the gradient g.
  Matrix3d RowsFor(const Vector3d& g) {
    while (true) {
      Matrix3d rows = g.norm() * RandomMatrix(1.0);
      rows.row(2) = -(g.transpose() + rows.row(0) + rows.row(1));
      if (rows.determinant() > 0.3 * std::pow(g.norm(), 3)) return rows;
    }
  }
  /// Deformations of every kind that a solver meets.
  std::vector<Case> Cases() {
    std::vector<Matrix3d> fs;
    for (int i = 0; i < 40; ++i) fs.push_back(Matrix3d::Identity() + RandomMatrix(0.3));  // moderate
    for (int i = 0; i < 40; ++i) fs.push_back(RandomMatrix(1.5));                         // anything, half of them inverted
    const auto stretched = [&](double a, double b, double c) {
      return Matrix3d(RandomRotation() * Vector3d(a, b, c).asDiagonal() * RandomRotation());
    };
    for (int i = 0; i < 20; ++i) fs.push_back(stretched(5, 1.3, 0.2));     // strongly stretched
    for (int i = 0; i < 20; ++i) fs.push_back(stretched(1.2, 0.8, 0));     // flat
    for (int i = 0; i < 20; ++i) fs.push_back(stretched(1.1, 0.9, -0.6));  // inverted through one axis
    for (int i = 0; i < 10; ++i) fs.push_back(stretched(1.4, 1.5, 1.6));   // blown up
    for (int i = 0; i < 10; ++i) fs.push_back(stretched(0.2, 0.3, 0.15));  // crushed
    std::vector<Case> cases;
    constexpr double kPoisson[] = {0, 0.2, 0.45, 0.49};
    for (size_t i = 0; i < fs.size(); ++i) {
      Case c;
      c.f = fs[i];
      c.g = 30 * Vector3d(uniform_(random_), uniform_(random_), uniform_(random_)) + Vector3d(5, 0, 0);
      const Matrix3d start = Matrix3d::Identity() + RandomMatrix(0.4);
      c.c_start = start.transpose() * start;
      const double nu = kPoisson[i % 4];
      c.mu_v = 1 / (2 * (1 + nu));
      c.lambda_v = nu / ((1 + nu) * (1 - 2 * nu));
      c.rows = RowsFor(c.g);
      c.fibers = RandomRotation().col(0);
      // Twice to ten times as stiff along the fibres, with every sign of the coupling.
      c.beta_v = 1 + 5 * std::abs(uniform_(random_));
      c.alpha_v = 0.3 * uniform_(random_);
      c.shear_v = 0.3 * uniform_(random_) * c.mu_v;
      cases.push_back(c);
    }
    return cases;
  }

  std::mt19937_64 random_{20240611};
  std::uniform_real_distribution<double> uniform_{-1, 1};
  std::normal_distribution<double> normal_;
};

/// What the fibres add to the stiffness.
double FiberModulus(const Case& c, int term) { return HasFibers(term) ? c.beta_v : 0; }

/// The case with its vertex moved by `d`.
Case Moved(const Case& c, const Vector3d& d) {
  Case moved = c;
  moved.f += d * c.g.transpose();
  return moved;
}

double SmallestEigenvalue(const Matrix3d& m) { return Eigen::SelfAdjointEigenSolver<Matrix3d>(m).eigenvalues()[0]; }

TEST_F(ElasticityTest, ForcesAndBlocksMatchFiniteDifferences) {
  if (!HasDouble()) GTEST_SKIP() << "the device has no double precision";
  const std::vector<Case> cases = Cases();
  constexpr double kStep = 1e-5;  // change of F
  std::vector<Case> moved;
  for (const Case& c : cases) {
    for (int axis = 0; axis < 3; ++axis) {
      const Vector3d d = kStep / c.g.norm() * Vector3d::Unit(axis);
      moved.push_back(Moved(c, d));
      moved.push_back(Moved(c, -d));
    }
  }
  const std::vector<Results> exact = Evaluate<double>(cases);
  const std::vector<Results> around = Evaluate<double>(moved);
  ASSERT_EQ(exact.size(), cases.size());
  ASSERT_EQ(around.size(), moved.size());
  std::array<double, kTermCount> worst_force{}, worst_block{};
  for (size_t i = 0; i < cases.size(); ++i) {
    const double h = kStep / cases[i].g.norm();
    for (int term = 0; term < kTermCount; ++term) {
      const Result& r = exact[i][term];
      Vector3d gradient;
      Matrix3d jacobian;
      for (int axis = 0; axis < 3; ++axis) {
        const Result& plus = around[6 * i + 2 * axis][term];
        const Result& minus = around[6 * i + 2 * axis + 1][term];
        gradient[axis] = (plus.energy - minus.energy) / (2 * h);
        jacobian.col(axis) = -(plus.force - minus.force) / (2 * h);
      }
      SCOPED_TRACE(testing::Message() << kTermNames[term] << ", case " << i << "\nF =\n"
                                      << cases[i].f << "\ng = " << cases[i].g.transpose());
      const double stiffness = (cases[i].mu_v + cases[i].lambda_v + FiberModulus(cases[i], term)) * cases[i].g.squaredNorm();
      const double force_scale = std::max(r.force.norm(), 1e-2 * stiffness / cases[i].g.norm());
      const double force_error = (r.force + gradient).norm() / force_scale;
      worst_force[term] = std::max(worst_force[term], force_error);
      EXPECT_LT(force_error, 1e-6);

      // A tetrahedron's energy is smooth in one vertex except where the polar rotation jumps.
      Eigen::Vector3d sigma = Eigen::JacobiSVD<Matrix3d>(cases[i].f).singularValues();
      if (cases[i].f.determinant() < 0) sigma[2] = -sigma[2];
      if (IsCorotated(term) && sigma[1] + sigma[2] < 0.05) continue;
      const double block_scale = std::max(r.hessian.norm(), stiffness);
      EXPECT_LT((jacobian - jacobian.transpose()).norm(), 1e-6 * block_scale);
      EXPECT_GT(SmallestEigenvalue(r.hessian), -1e-9 * block_scale) << "the block must be positive semidefinite";
      const Matrix3d excess = r.hessian - jacobian;
      if (IsNeoHookean(term) || IsLinear(term)) {
        worst_block[term] = std::max(worst_block[term], excess.norm() / block_scale);
        EXPECT_LT(excess.norm(), 1e-6 * block_scale) << "the block is the exact one";
      } else {
        // Of the others only an upper bound is used, so that a block step cannot overshoot.
        EXPECT_GT(SmallestEigenvalue(excess), -1e-6 * block_scale) << "the block bounds the exact one from above\n"
                                                                   << r.hessian << "\nexact\n"
                                                                   << jacobian;
      }
    }
  }
  for (int term = 0; term < kTermCount; ++term) {
    RecordProperty(std::string("worst_force_error_") + std::to_string(term), std::to_string(worst_force[term]));
  }
}

TEST_F(ElasticityTest, FormsInDisplacementsAreTheSameFunctions) {
  if (!HasDouble()) GTEST_SKIP() << "the device has no double precision";
  const std::vector<Case> cases = Cases();
  const std::vector<Results> plain = Evaluate<double>(cases);
  const std::vector<Results> displaced = Evaluate<double>(cases, true);
  ASSERT_EQ(displaced.size(), cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    const double stretch = std::max(1.0, std::pow(cases[i].f.squaredNorm(), 2));
    for (int term = 0; term < kTermCount; ++term) {
      SCOPED_TRACE(testing::Message() << kTermNames[term] << ", case " << i << "\nF =\n" << cases[i].f);
      const Result& a = plain[i][term];
      const Result& b = displaced[i][term];
      const double moduli = (cases[i].mu_v + cases[i].lambda_v + FiberModulus(cases[i], term)) * stretch * (IsSprings(term) ? 25 : 1);
      EXPECT_NEAR(b.energy, a.energy, 1e-13 * moduli);
      EXPECT_LT((b.force - a.force).norm(), 1e-13 * moduli * cases[i].g.norm());
      EXPECT_LT((b.hessian - a.hessian).norm(), 1e-13 * moduli * cases[i].g.squaredNorm());
    }
  }
}

// The forces of small strains, also turned a little, keep their digits in floats; from F itself they drown in the rounding of 1.
TEST_F(ElasticityTest, FormsInDisplacementsKeepSmallStrains) {
  if (!HasDouble()) GTEST_SKIP() << "the device has no double precision";
  std::vector<Case> cases = Cases();
  for (Case& c : cases) {
    c.f = Matrix3d::Identity() + RandomMatrix(1e-5);
    const Matrix3d start = Matrix3d::Identity() + RandomMatrix(1e-5);
    c.c_start = start.transpose() * start;
  }
  // What the device is given is rounded already; its exact forces are those of that.
  const auto rounded = [](const Matrix3d& m) { return Matrix3d(m.cast<float>().cast<double>()); };
  for (Case& c : cases) {
    c.f = Matrix3d::Identity() + rounded(c.f - Matrix3d::Identity());
    c.c_start = Matrix3d::Identity() + rounded(c.c_start - Matrix3d::Identity());
  }
  const std::vector<Results> exact = Evaluate<double>(cases, true);
  const std::vector<Results> plain = Evaluate<float>(cases);
  const std::vector<Results> displaced = Evaluate<float>(cases, true);
  ASSERT_EQ(displaced.size(), cases.size());
  for (const int term : {static_cast<int>(kStableNeoHookean), static_cast<int>(kLinear), static_cast<int>(kStVenantKirchhoff),
                         static_cast<int>(kLinearFibers), static_cast<int>(kStVenantKirchhoffFibers), static_cast<int>(kViscous)}) {
    SCOPED_TRACE(kTermNames[term]);
    double worst = 0, worst_plain = 0;
    for (size_t i = 0; i < cases.size(); ++i) {
      const double scale = (cases[i].mu_v + cases[i].lambda_v + FiberModulus(cases[i], term)) * 1e-5 * cases[i].g.norm();
      worst = std::max(worst, (displaced[i][term].force - exact[i][term].force).norm() / scale);
      worst_plain = std::max(worst_plain, (plain[i][term].force - exact[i][term].force).norm() / scale);
    }
    EXPECT_LT(worst, 1e-6);
    EXPECT_GT(worst_plain, 1e-3);
  }
}

TEST_F(ElasticityTest, ViscousBlockIsExactWhereTheStressPulls) {
  if (!HasDouble()) GTEST_SKIP() << "the device has no double precision";
  // g . S g >= 0 holds for every g when the tet only expands.
  std::vector<Case> cases, moved;
  constexpr double kStep = 1e-5;
  for (Case c : Cases()) {
    c.c_start = 0.25 * (c.f.transpose() * c.f);
    cases.push_back(c);
    for (int axis = 0; axis < 3; ++axis) {
      const Vector3d d = kStep / c.g.norm() * Vector3d::Unit(axis);
      moved.push_back(Moved(c, d));
      moved.push_back(Moved(c, -d));
    }
  }
  const auto exact = Evaluate<double>(cases);
  const auto around = Evaluate<double>(moved);
  ASSERT_EQ(around.size(), moved.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    Matrix3d jacobian;
    for (int axis = 0; axis < 3; ++axis) {
      jacobian.col(axis) =
          -(around[6 * i + 2 * axis][kViscous].force - around[6 * i + 2 * axis + 1][kViscous].force) * cases[i].g.norm() / (2 * kStep);
    }
    EXPECT_LT((exact[i][kViscous].hessian - jacobian).norm(), 1e-6 * exact[i][kViscous].hessian.norm()) << "case " << i << "\n"
                                                                                                        << cases[i].f;
  }
}

TEST_F(ElasticityTest, RotationsChangeNothing) {
  if (!HasDouble()) GTEST_SKIP() << "the device has no double precision";
  std::vector<Case> cases = Cases();
  std::vector<Case> rotated = cases;
  std::vector<Matrix3d> q;
  for (Case& c : rotated) {
    q.push_back(RandomRotation());
    c.f = q.back() * c.f;
  }
  std::vector<Case> rigid = cases;
  for (size_t i = 0; i < rigid.size(); ++i) {
    rigid[i].f = q[i];
    rigid[i].c_start.setIdentity();
  }
  const auto before = Evaluate<double>(cases);
  const auto after = Evaluate<double>(rotated);
  const auto still = Evaluate<double>(rigid);
  ASSERT_EQ(after.size(), cases.size());
  ASSERT_EQ(still.size(), cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    const double stiffness = (cases[i].mu_v + cases[i].lambda_v) * cases[i].g.squaredNorm();
    Eigen::Vector3d sigma = Eigen::JacobiSVD<Matrix3d>(cases[i].f).singularValues();
    if (cases[i].f.determinant() < 0) sigma[2] = -sigma[2];
    for (int term = 0; term < kTermCount; ++term) {
      SCOPED_TRACE(testing::Message() << kTermNames[term] << ", case " << i);
      if (IsLinear(term)) {
        EXPECT_GT(still[i][term].energy, 1e-6) << "the linear model is known to resist rotation";
        continue;
      }
      const Result& a = before[i][term];
      const Result& b = after[i][term];
      EXPECT_NEAR(a.energy, b.energy, 1e-10 * (std::abs(a.energy) + 1));
      if (!IsCorotated(term) || sigma[1] + sigma[2] > 0.05) {
        EXPECT_LT((q[i] * a.force - b.force).norm(), 1e-9 * (a.force.norm() + stiffness / cases[i].g.norm()));
        EXPECT_LT((q[i] * a.hessian * q[i].transpose() - b.hessian).norm(), 1e-9 * (a.hessian.norm() + stiffness));
      }
      EXPECT_NEAR(still[i][term].energy, 0, 1e-12) << "rigid motion stores and loses nothing";
      EXPECT_LT(still[i][term].force.norm(), 1e-11 * stiffness / cases[i].g.norm());
    }
  }
}

TEST_F(ElasticityTest, ViscosityIsBlindToRigidMotionOfADeformedTet) {
  if (!HasDouble()) GTEST_SKIP() << "the device has no double precision";
  std::vector<Case> cases = Cases();
  for (Case& c : cases) {
    c.c_start = c.f.transpose() * c.f;
    c.f = RandomRotation() * c.f;
  }
  const auto results = Evaluate<double>(cases);
  ASSERT_EQ(results.size(), cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    const double scale = cases[i].f.squaredNorm() * cases[i].f.squaredNorm() + 1;
    EXPECT_NEAR(results[i][kViscous].energy, 0, 1e-13 * scale * (1 + cases[i].lambda_v));
    EXPECT_LT(results[i][kViscous].force.norm(), 1e-11 * scale * (1 + cases[i].lambda_v) * cases[i].g.norm());
  }
}

TEST_F(ElasticityTest, SmallStrainsObeyHooke) {
  if (!HasDouble()) GTEST_SKIP() << "the device has no double precision";
  constexpr double kStrain = 1e-5;
  std::vector<Case> cases = Cases();
  for (Case& c : cases) {
    c.f = Matrix3d::Identity() + RandomMatrix(kStrain);
    c.c_start.setIdentity();
  }
  const auto results = Evaluate<double>(cases);
  ASSERT_EQ(results.size(), cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    const Matrix3d strain = (c.f + c.f.transpose()) / 2 - Matrix3d::Identity();
    const Matrix3d isotropic_stress = 2 * c.mu_v * strain + c.lambda_v * strain.trace() * Matrix3d::Identity();
    const double isotropic_energy = c.mu_v * strain.squaredNorm() + c.lambda_v / 2 * strain.trace() * strain.trace();
    for (int term = 0; term < kTermCount; ++term) {
      SCOPED_TRACE(testing::Message() << kTermNames[term] << ", case " << i);
      if (IsSprings(term)) continue;  // Hooke's law only on average
      const double factor = term == kViscous ? c.rate : 1;
      const bool has_fibers = HasFibers(term);
      Matrix3d stress = isotropic_stress;
      double energy = isotropic_energy;
      if (has_fibers) {
        const Vector3d ea = strain * c.fibers;
        const double along = c.fibers.dot(ea);
        const Matrix3d dyad = c.fibers * c.fibers.transpose();
        stress += c.alpha_v * (along * Matrix3d::Identity() + strain.trace() * dyad) + c.beta_v * along * dyad +
                  2 * c.shear_v * (c.fibers * ea.transpose() + ea * c.fibers.transpose());
        energy += c.alpha_v * along * strain.trace() + 2 * c.shear_v * ea.squaredNorm() + c.beta_v / 2 * along * along;
      }
      // The next order is kStrain smaller.
      const double scale = (c.mu_v + c.lambda_v + (has_fibers ? c.beta_v : 0)) * kStrain;
      EXPECT_LT((results[i][term].force + factor * stress * c.g).norm(), 20 * kStrain * scale * c.g.norm());
      EXPECT_NEAR(results[i][term].energy, factor * energy, 50 * kStrain * scale * kStrain);
    }
  }
}

TEST_F(ElasticityTest, E10EnergiesOfTheUnitCubeAreTheClosedForms) {
  if (!HasDouble()) GTEST_SKIP() << "the device has no double precision";
  // E = 1000, nu = 0.49; joule per cubic metre, closed forms. Volume is kept except by the symmetric shear, of which only
  // St-Venant-Kirchhoff has a figure that does not depend on the volume term.
  struct Strain {
    const char* name;
    Matrix3d f;
    double green, neo_hookean;
  };
  Matrix3d shear = Matrix3d::Identity(), symmetric = Matrix3d::Identity();
  shear(0, 1) = 0.2;
  symmetric(0, 1) = symmetric(1, 0) = 0.2;
  const auto isochoric = [](double s) { return Matrix3d(Vector3d(s, 1 / std::sqrt(s), 1 / std::sqrt(s)).asDiagonal()); };
  const std::vector<Strain> strains = {{"simple shear", shear, 10.1342, 6.71141},
                                       {"symmetric shear", symmetric, 40.2685, 0},
                                       {"isochoric 1.2", isochoric(1.2), 44.288, 17.897},
                                       {"isochoric 0.8", isochoric(0.8), 61.644, 23.490}};
  std::vector<Case> cases;
  for (const Strain& strain : strains) cases.push_back({.f = strain.f, .mu_v = 1000 / 2.98, .lambda_v = 490 / (1.49 * 0.02)});
  const auto results = Evaluate<double>(cases);
  ASSERT_EQ(results.size(), strains.size());
  for (size_t i = 0; i < strains.size(); ++i) {
    SCOPED_TRACE(strains[i].name);
    EXPECT_NEAR(results[i][kStVenantKirchhoff].energy, strains[i].green, 1e-3);
    if (strains[i].neo_hookean > 0) {
      EXPECT_NEAR(results[i][kStableNeoHookean].energy, strains[i].neo_hookean, 1e-3);
    }
  }
  EXPECT_NEAR(results[0][kLinear].energy, 6.71141, 1e-4);
  // E14: a solid of E = 2, nu = 0 stretched alike in all directions stores 3 s^2 in the strain s.
  for (const double s : {1.0, 2.0, 3.0}) {
    const auto blown = Evaluate<double>({{.f = std::sqrt(1 + 2 * s) * Matrix3d::Identity(), .mu_v = 1, .lambda_v = 0}});
    ASSERT_EQ(blown.size(), 1U);
    EXPECT_NEAR(blown[0][kStVenantKirchhoff].energy, 3 * s * s, 1e-12);
  }
}

TEST_F(ElasticityTest, SpringsObeyHookeOnAverageOverDirections) {
  if (!HasDouble()) GTEST_SKIP() << "the device has no double precision";
  // E = 1, Poisson's ratio 1/4, whatever the shape of the tet: turn one strain in all directions.
  constexpr int kTurns = 5000;
  constexpr double kStrain = 1e-4;
  for (int shape = 0; shape < 3; ++shape) {
    const Vector3d g = shape == 0 ? Vector3d(-1, -1, -1) : Vector3d(uniform_(random_), uniform_(random_), uniform_(random_));
    const Matrix3d rows = shape == 0 ? Matrix3d::Identity() : RowsFor(g);
    for (const Vector3d& principal : {Vector3d(1, 0, 0), Vector3d(1, -1, 0), Vector3d(1, 1, 1)}) {
      std::vector<Case> cases;
      for (int i = 0; i < kTurns; ++i) {
        const Matrix3d r = RandomRotation();
        cases.push_back(
            {.f = Matrix3d::Identity() + kStrain * r * principal.asDiagonal() * r.transpose(), .g = g, .mu_v = 0.4, .rows = rows});
      }
      double energy = 0;
      for (const Results& result : Evaluate<double>(cases)) energy += result[kMassSpring].energy / kTurns;
      const double expected = 0.4 * principal.squaredNorm() + 0.2 * principal.sum() * principal.sum();
      EXPECT_NEAR(energy / (kStrain * kStrain), expected, 0.03 * expected) << "shape " << shape << ", strain " << principal.transpose();
    }
  }
}

TEST_F(ElasticityTest, FloatAgreesWithDouble) {
  if (!HasDouble()) GTEST_SKIP() << "the device has no double precision";
  const std::vector<Case> cases = Cases();
  const auto exact = Evaluate<double>(cases);
  const auto rounded = Evaluate<float>(cases);
  ASSERT_EQ(rounded.size(), cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    const double f2 = cases[i].f.squaredNorm();
    const double stretch = std::max({1.0, f2, f2 * f2});
    for (int term = 0; term < kTermCount; ++term) {
      SCOPED_TRACE(testing::Message() << kTermNames[term] << ", case " << i << "\nF =\n" << cases[i].f);
      const Result& a = exact[i][term];
      const Result& b = rounded[i][term];
      const double moduli = cases[i].mu_v + cases[i].lambda_v + FiberModulus(cases[i], term);
      const double stiffness = moduli * cases[i].g.squaredNorm() * stretch * (IsSprings(term) ? 25 : 1);
      EXPECT_NEAR(b.energy, a.energy, 2e-6 * (std::abs(a.energy) + moduli * stretch));
      EXPECT_LT((b.force - a.force).norm(), 4e-6 * (a.force.norm() + stiffness / cases[i].g.norm()));
      EXPECT_LT((b.hessian - a.hessian).norm(), 4e-6 * (a.hessian.norm() + stiffness));
      EXPECT_GT(SmallestEigenvalue(b.hessian), -1e-5 * (a.hessian.norm() + stiffness));
    }
  }
}

}  // namespace
}  // namespace palpate::gpu::elasticity_test
