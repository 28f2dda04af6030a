#include "sim/scene/material.h"

#include <gmock/gmock.h>

#include <Eigen/Dense>
#include <string>

#include "tests/support/device_test.h"

namespace palpate::sim::material_test {
namespace {

using Matrix6 = Eigen::Matrix<double, 6, 6>;
using ::testing::HasSubstr;

/// Stress of a strain by the constants of a tet with fibres.
Eigen::Matrix3d StressOf(const gpu::TissueTet& tet, const Eigen::Matrix3d& e) {
  const Eigen::Vector3d a(tet.fibers.direction[0], tet.fibers.direction[1], tet.fibers.direction[2]);
  const Eigen::Matrix3d dyad = a * a.transpose();
  const double along = a.dot(e * a);
  return 2 * tet.mu_pa * e + tet.lambda_pa * e.trace() * Eigen::Matrix3d::Identity() +
         tet.fibers.coupling_pa * (along * Eigen::Matrix3d::Identity() + e.trace() * dyad) + tet.fibers.stiffness_pa * along * dyad +
         2 * tet.fibers.shear_pa * (dyad * e + e * dyad);
}

/// Stiffness over xx, yy, zz, yz, xz, xy with engineering shears.
Matrix6 Stiffness(const gpu::TissueTet& tet) {
  constexpr int kPair[6][2] = {{0, 0}, {1, 1}, {2, 2}, {1, 2}, {0, 2}, {0, 1}};
  Matrix6 c;
  for (int column = 0; column < 6; ++column) {
    Eigen::Matrix3d e = Eigen::Matrix3d::Zero();
    e(kPair[column][0], kPair[column][1]) += 0.5;
    e(kPair[column][1], kPair[column][0]) += 0.5;
    const Eigen::Matrix3d s = StressOf(tet, e);
    for (int row = 0; row < 6; ++row) c(row, column) = s(kPair[row][0], kPair[row][1]);
  }
  return c;
}

TEST(MaterialTest, FiveConstantsGiveBackTheEngineeringOnes) {
  Material material;
  material.model = MaterialModel::kStVenantKirchhoff;
  material.young_modulus_pa = 4000;
  material.poisson_ratio = 0.35;
  for (const double along : {4000.0, 12000.0, 2000.0}) {
    for (const double nu : {0.0, 0.2, 0.35}) {
      SCOPED_TRACE(testing::Message() << "E along " << along << ", nu along " << nu);
      material.fibers = FiberProperties{{0, 0, 1}, along, nu, 900};
      PALPATE_TEST_ASSIGN(const gpu::TissueTet tet, TissueOf(material));
      EXPECT_EQ(tet.energy, gpu::TissueEnergy::kStVenantKirchhoff);
      const Matrix6 c = Stiffness(tet);
      EXPECT_GT(Eigen::SelfAdjointEigenSolver<Matrix6>(c).eigenvalues()[0], 0);
      const Matrix6 s = c.inverse();
      EXPECT_NEAR(1 / s(0, 0), 4000, 0.4);
      EXPECT_NEAR(1 / s(1, 1), 4000, 0.4);
      EXPECT_NEAR(1 / s(2, 2), along, 1e-4 * along);
      EXPECT_NEAR(-s(0, 1) / s(0, 0), 0.35, 1e-4);
      EXPECT_NEAR(-s(0, 2) / s(2, 2), nu, 1e-4);
      EXPECT_NEAR(1 / s(3, 3), 900, 0.1);
      EXPECT_NEAR(1 / s(4, 4), 900, 0.1);
      EXPECT_NEAR(1 / s(5, 5), 4000 / 2.7, 0.2);
    }
  }
}

TEST(MaterialTest, FibersLikeTheRestAddNothing) {
  Material material;
  material.model = MaterialModel::kLinear;
  material.poisson_ratio = 0.3;
  material.fibers = FiberProperties{{1, 0, 0}, material.young_modulus_pa, 0.3, material.young_modulus_pa / 2.6};
  PALPATE_TEST_ASSIGN(const gpu::TissueTet tet, TissueOf(material));
  EXPECT_NEAR(tet.fibers.coupling_pa, 0, 1e-2);
  EXPECT_NEAR(tet.fibers.stiffness_pa, 0, 1e-2);
  EXPECT_NEAR(tet.fibers.shear_pa, 0, 1e-2);
}

TEST(MaterialTest, RefusesWhatHasNoPositiveEnergy) {
  Material material;
  material.model = MaterialModel::kLinear;
  material.fibers = FiberProperties{{1, 0, 0}, 1000, 0.45, 900};
  EXPECT_THAT(std::string(TissueOf(material).status().message()), HasSubstr("fibers.poisson_ratio: 0.45 leaves"));
  material.model = MaterialModel::kCorotated;
  EXPECT_THAT(std::string(TissueOf(material).status().message()), HasSubstr("only the linear and the St-Venant-Kirchhoff"));
}

TEST(MaterialTest, SpringsHaveAPoissonRatioOfAQuarter) {
  Material material;
  material.model = MaterialModel::kMassSpring;
  material.young_modulus_pa = 1000;
  PALPATE_TEST_ASSIGN(const gpu::TissueTet tet, TissueOf(material));
  EXPECT_EQ(tet.mu_pa, 400);
  EXPECT_EQ(tet.lambda_pa, 400);
}

}  // namespace
}  // namespace palpate::sim::material_test
