#include "sim/mesh/mass_properties.h"

#include <gtest/gtest.h>

#include <Eigen/Geometry>
#include <cmath>

#include "sim/mesh/generators.h"

namespace palpate::sim::mass_properties_test {
namespace {

using Eigen::Matrix3d;
using Eigen::Vector3d;

TEST(MassPropertiesTest, AreThoseOfABoxAnywhereInSpace) {
  auto box = BoxMesh({4, 3, 5}, {0.3, 0.2, 0.1});
  ASSERT_TRUE(box.ok()) << box.status();
  const Matrix3d turn = Eigen::AngleAxisd(1.1, Vector3d(1, -2, 0.5).normalized()).toRotationMatrix();
  const Vector3d shift(1000, -2000, 500);  // moments about the origin would leave nothing of those about the centre
  for (Vector3d& v : box->vertices) v = turn * v + shift;
  const MassProperties mass = ComputeMassProperties(*box, 800);
  const double expected_mass = 800 * 0.3 * 0.2 * 0.1;
  EXPECT_NEAR(mass.mass_kg, expected_mass, 1e-8 * expected_mass);
  EXPECT_LT((mass.center_m - shift).norm(), 1e-9);
  const Vector3d moments = expected_mass / 12 * Vector3d(0.2 * 0.2 + 0.1 * 0.1, 0.3 * 0.3 + 0.1 * 0.1, 0.3 * 0.3 + 0.2 * 0.2);
  const Matrix3d expected = turn * moments.asDiagonal() * turn.transpose();
  EXPECT_LT((mass.inertia_kg_m2 - expected).norm(), 1e-8 * expected.norm());
}

TEST(MassPropertiesTest, PrismOfManyCornersTendsToTheCylinder) {
  const auto cylinder = CylinderMesh(0.1, 0.4, 2, 96, 3);
  ASSERT_TRUE(cylinder.ok()) << cylinder.status();
  const MassProperties mass = ComputeMassProperties(*cylinder, 1000);
  const double expected_mass = 1000 * M_PI * 0.01 * 0.4;
  EXPECT_NEAR(mass.mass_kg, expected_mass, 1e-3 * expected_mass);
  EXPECT_NEAR(mass.inertia_kg_m2(2, 2), expected_mass * 0.01 / 2, 2e-3 * expected_mass * 0.01);
  EXPECT_NEAR(mass.inertia_kg_m2(0, 0), expected_mass * (3 * 0.01 + 0.16) / 12, 2e-3 * expected_mass * 0.01);
}

}  // namespace
}  // namespace palpate::sim::mass_properties_test
