#include "sim/nurbs/nurbs_mass_properties.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <string>

#include "sim/nurbs/nurbs_shapes.h"

namespace palpate::sim::nurbs_mass_properties_test {
namespace {

using Eigen::Matrix3d;
using Eigen::Vector3d;
using ::testing::HasSubstr;

constexpr double kPi = std::numbers::pi;
constexpr double kDensity_kg_per_m3 = 1060;

struct Expected {
  double area_m2, volume_m3;
  Vector3d center_m;
  Vector3d moments_m2;  // principal, about the centre, by mass
};

// Also shifted and turned, refined, and far from the origin.
void Check(const std::vector<NurbsSurface>& shape, const Expected& expected) {
  const Eigen::Affine3d turn =
      Eigen::Translation3d(30, -7, 2) * Eigen::AngleAxisd(0.7, Vector3d(1, 2, 3).normalized()) * Eigen::Affine3d::Identity();
  for (const bool is_moved : {false, true}) {
    std::vector<NurbsSurface> patches;
    for (const NurbsSurface& patch : shape) patches.push_back(is_moved ? patch.Refined(5, 4).Transformed(turn) : patch);
    const auto properties = ComputeNurbsMassProperties(patches, kDensity_kg_per_m3);
    ASSERT_TRUE(properties.ok()) << properties.status();
    const double tolerance = is_moved ? 1e-11 : 1e-13;
    EXPECT_NEAR(properties->area_m2, expected.area_m2, tolerance * expected.area_m2);
    EXPECT_NEAR(properties->volume_m3, expected.volume_m3, tolerance * expected.volume_m3);
    const double mass_kg = kDensity_kg_per_m3 * expected.volume_m3;
    EXPECT_NEAR(properties->mass.mass_kg, mass_kg, tolerance * mass_kg);
    const Eigen::Affine3d map = is_moved ? turn : Eigen::Affine3d::Identity();
    EXPECT_LT((properties->mass.center_m - map * expected.center_m).norm(), 30 * tolerance);
    const Matrix3d inertia_kg_m2 = map.linear() * (mass_kg * expected.moments_m2).asDiagonal() * map.linear().transpose();
    EXPECT_LT((properties->mass.inertia_kg_m2 - inertia_kg_m2).norm(), 10 * tolerance * inertia_kg_m2.norm());
  }
}

TEST(NurbsMassPropertiesTest, SphereTorusCylinderConeAgainstClosedForms) {
  const double r = 0.7;
  Check(NurbsSphere(r), {4 * kPi * r * r, 4.0 / 3 * kPi * r * r * r, {0, 0, 0}, Vector3d::Constant(0.4 * r * r)});
  const double c = 1.1;
  const double a = 0.4;
  const double across = (4 * c * c + 5 * a * a) / 8;
  Check(NurbsTorus(c, a), {4 * kPi * kPi * a * c, 2 * kPi * kPi * a * a * c, {0, 0, 0}, {across, across, c * c + 0.75 * a * a}});
  const double h = 1.3;
  const double side = (3 * r * r + h * h) / 12;
  Check(NurbsCylinder(r, h), {2 * kPi * r * (r + h), kPi * r * r * h, {0, 0, h / 2}, {side, side, r * r / 2}});
  const double slant = std::hypot(r, h);
  const double cone = 3.0 / 20 * (r * r + h * h / 4);
  Check(NurbsCone(r, h), {kPi * r * (r + slant), kPi * r * r * h / 3, {0, 0, h / 4}, {cone, cone, 0.3 * r * r}});
}

TEST(NurbsMassPropertiesTest, AnEllipsoidIsAMappedSphere) {
  Eigen::Affine3d map = Eigen::Affine3d::Identity();
  map.linear() = Vector3d(0.5, 1.5, 3).asDiagonal();
  std::vector<NurbsSurface> patches;
  for (const NurbsSurface& patch : NurbsSphere(1)) patches.push_back(patch.Transformed(map));
  const auto properties = ComputeNurbsMassProperties(patches, 1);
  ASSERT_TRUE(properties.ok()) << properties.status();
  EXPECT_NEAR(properties->volume_m3, 4.0 / 3 * kPi * 0.5 * 1.5 * 3, 1e-11);
  const Vector3d squares(0.25, 2.25, 9);
  for (int i = 0; i < 3; ++i) {
    EXPECT_NEAR(properties->mass.inertia_kg_m2(i, i), properties->volume_m3 * 0.2 * (squares.sum() - squares[i]), 1e-10);
  }
}

TEST(NurbsMassPropertiesTest, OpenShellsAndThoseInsideOutAreRefused) {
  std::vector<NurbsSurface> patches = NurbsCylinder(1, 1);
  const NurbsSurface taken = patches.back();
  patches.pop_back();
  const auto open = ComputeNurbsMassProperties(patches, 1);
  EXPECT_EQ(open.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(open.status().message()), HasSubstr("the shell is open"));
  patches.push_back(taken.Reversed());
  EXPECT_THAT(std::string(ComputeNurbsMassProperties(patches, 1).status().message()), HasSubstr("the shell is open"))
      << "one patch inside out";
  std::vector<NurbsSurface> inside_out;
  for (const NurbsSurface& patch : NurbsCone(1, 1)) inside_out.push_back(patch.Reversed());
  EXPECT_THAT(std::string(ComputeNurbsMassProperties(inside_out, 1).status().message()), HasSubstr("normals must point outwards"));
  EXPECT_EQ(ComputeNurbsMassProperties({}, 1).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace palpate::sim::nurbs_mass_properties_test
