#include "sim/haptics/patch_stiffness.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace palpate::sim::patch_stiffness_test {
namespace {

using Eigen::Vector3d;

constexpr double kArea_m2 = 1e-5;

double PunchStiffness(double area_m2, double young_modulus_pa = 5000, double poisson_ratio = 0.45) {
  return kPatchCalibration * 2 * std::sqrt(area_m2 / std::numbers::pi) * young_modulus_pa / (1 - poisson_ratio * poisson_ratio);
}

struct Contacts {
  std::vector<LocalContact> contacts;
  std::vector<ContactSpread> spreads;

  /// At a vertex, or in a triangle with `weights`.
  void Add(double force_n, const Vector3d& normal, std::array<uint32_t, 3> vertices, std::array<double, 3> weights = {1, 0, 0},
           double gap_m = 0) {
    contacts.push_back({.point_m = Vector3d::Zero(), .normal_W = normal, .gap_m = gap_m, .normal_force_n = force_n});
    spreads.push_back({.vertices = vertices, .weights = weights, .areas_m2 = {kArea_m2, kArea_m2, kArea_m2}});
  }
  /// Shares the stiffness; the sum of what contacts have along `direction`.
  double Along(const Vector3d& direction) {
    ShareStiffness(spreads, contacts);
    double sum = 0;
    for (const LocalContact& c : contacts) sum += c.stiffness_n_per_m * std::pow(c.normal_W.dot(direction), 2);
    return sum;
  }
};

TEST(ShareStiffness, IsThatOfAPunchAsLargeAsTheVerticesThatTakeTheForce) {
  Contacts at_vertex;
  at_vertex.Add(0.3, Vector3d::UnitZ(), {7, 8, 9});
  EXPECT_NEAR(at_vertex.Along(Vector3d::UnitZ()), PunchStiffness(kArea_m2), 1e-9);
  Contacts in_triangle;
  in_triangle.Add(0.3, Vector3d::UnitZ(), {7, 8, 9}, {1.0 / 3, 1.0 / 3, 1.0 / 3});
  EXPECT_NEAR(in_triangle.Along(Vector3d::UnitZ()), PunchStiffness(3 * kArea_m2), 1e-9);
}

TEST(ShareStiffness, DoesNotDependOnHowAForceIsDivided) {
  // Six triangles around a vertex, all touched there.
  Contacts fan;
  for (uint32_t i = 0; i < 6; ++i) fan.Add(0.05, Vector3d::UnitZ(), {0, i + 1, (i + 1) % 6 + 1});
  EXPECT_NEAR(fan.Along(Vector3d::UnitZ()), PunchStiffness(kArea_m2), 1e-9);
  for (const LocalContact& c : fan.contacts) EXPECT_NEAR(c.stiffness_n_per_m, PunchStiffness(kArea_m2) / 6, 1e-9);
}

TEST(ShareStiffness, FollowsTheForces) {
  // A touch far from where the force is does not make the patch larger; an equal force there does.
  Contacts uneven;
  uneven.Add(1, Vector3d::UnitZ(), {0, 1, 2});
  uneven.Add(1e-4, Vector3d::UnitZ(), {3, 4, 5});
  EXPECT_NEAR(uneven.Along(Vector3d::UnitZ()), PunchStiffness(kArea_m2), 1e-3 * PunchStiffness(kArea_m2));
  Contacts even;
  even.Add(1, Vector3d::UnitZ(), {0, 1, 2});
  even.Add(1, Vector3d::UnitZ(), {3, 4, 5});
  EXPECT_NEAR(even.Along(Vector3d::UnitZ()), PunchStiffness(2 * kArea_m2), 1e-9);
}

TEST(ShareStiffness, HoldsAlongTheResultant) {
  // A tip that has gone deep: normals all around it.
  Contacts cone;
  for (uint32_t i = 0; i < 8; ++i) {
    const double phi = 2 * std::numbers::pi * i / 8;
    cone.Add(0.2, Vector3d(0.8 * std::cos(phi), 0.8 * std::sin(phi), 0.6), {3 * i, 3 * i + 1, 3 * i + 2});
  }
  // The resultant is 0.6 of the forces.
  EXPECT_NEAR(cone.Along(Vector3d::UnitZ()), PunchStiffness(8 * 0.36 * kArea_m2), 1e-9);
}

TEST(ShareStiffness, IsFiniteWhereForcesCancel) {
  Contacts pinch;
  pinch.Add(1, Vector3d::UnitX(), {0, 1, 2});
  pinch.Add(1, -Vector3d::UnitX(), {3, 4, 5});
  pinch.Add(0, -Vector3d::UnitX(), {0, 4, 5}, {1, 0, 0}, 1e-3);
  EXPECT_GT(pinch.Along(Vector3d::UnitX()), 0);
  Contacts one_vertex;
  one_vertex.Add(1, Vector3d::UnitX(), {0, 1, 2});
  one_vertex.Add(1, -Vector3d::UnitX(), {0, 1, 2});
  EXPECT_LT(one_vertex.Along(Vector3d::UnitX()), 4 * PunchStiffness(kArea_m2) + 1e-9);
}

TEST(ShareStiffness, GivesNearContactsWhatTheLargerPatchAdds) {
  Contacts touching;
  touching.Add(0.2, Vector3d::UnitZ(), {0, 1, 2});
  touching.Add(0, Vector3d::UnitZ(), {6, 7, 8}, {1, 0, 0}, 2e-3);
  touching.Add(0, Vector3d::UnitZ(), {3, 4, 5}, {1, 0, 0}, 1e-3);
  touching.Add(0, Vector3d::UnitZ(), {3, 4, 5}, {1, 0, 0}, 3e-3);
  touching.Along(Vector3d::UnitZ());
  EXPECT_NEAR(touching.contacts[0].stiffness_n_per_m, PunchStiffness(kArea_m2), 1e-9);
  // The nearest first, whatever the order in which they come.
  EXPECT_NEAR(touching.contacts[2].stiffness_n_per_m, PunchStiffness(2 * kArea_m2) - PunchStiffness(kArea_m2), 1e-9);
  EXPECT_NEAR(touching.contacts[1].stiffness_n_per_m, PunchStiffness(3 * kArea_m2) - PunchStiffness(2 * kArea_m2), 1e-9);
  // Where there is a contact already, another hardly adds to it.
  EXPECT_LT(touching.contacts[3].stiffness_n_per_m, 0.02 * PunchStiffness(3 * kArea_m2));
  EXPECT_GT(touching.contacts[3].stiffness_n_per_m, 0);
  // Before anything touches, the first contact has the whole stiffness of its place.
  Contacts apart;
  apart.Add(0, Vector3d::UnitZ(), {0, 1, 2}, {0.5, 0.5, 0}, 1e-3);
  apart.Add(0, Vector3d::UnitZ(), {0, 1, 2}, {0.5, 0.5, 0}, 2e-3);
  apart.Along(Vector3d::UnitZ());
  EXPECT_NEAR(apart.contacts[0].stiffness_n_per_m, PunchStiffness(2 * kArea_m2), 1e-9);
}

TEST(ShareStiffness, LeavesBrokenContactsOut) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Contacts contacts;
  for (uint32_t i = 0; i < 8; ++i) contacts.Add(0.1, Vector3d::UnitZ(), {3 * i, 3 * i + 1, 3 * i + 2});
  contacts.contacts[0].normal_W.x() = nan;
  contacts.contacts[1].gap_m = nan;
  contacts.contacts[2].normal_force_n = -1;
  contacts.spreads[3].areas_m2[0] = 0;
  contacts.spreads[4].young_modulus_pa = 0;
  contacts.spreads[5].poisson_ratio = 0.5;
  contacts.spreads[6].weights[0] = -1;
  ShareStiffness(contacts.spreads, contacts.contacts);
  EXPECT_NEAR(contacts.contacts[7].stiffness_n_per_m, PunchStiffness(kArea_m2), 1e-9);
  for (int i = 0; i < 7; ++i) EXPECT_EQ(contacts.contacts[static_cast<size_t>(i)].stiffness_n_per_m, 0) << i;
}

}  // namespace
}  // namespace palpate::sim::patch_stiffness_test
