#include "sim/haptics/build_model.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "sim/haptics/evaluate.h"

namespace palpate::sim::build_model_test {
namespace {

using Eigen::Quaterniond;
using Eigen::Vector3d;

double TotalStiffness(const LocalModel& model) {
  double total = 0;
  for (int i = 0; i < model.constraint_count; ++i) total += model.constraints[i].stiffness_n_per_m;
  return total;
}

/// Force of the model where it was built, at rest.
ContactForce ForceAtBuild(const LocalModel& model) {
  FrictionState friction;
  return EvaluateLocalModel(model, model.pose_at_build, RigidVelocity{}, friction);
}

Vector3d SumOfForces(const std::vector<LocalContact>& contacts) {
  Vector3d sum = Vector3d::Zero();
  for (const LocalContact& contact : contacts) sum += contact.normal_force_n * contact.normal_W;
  return sum;
}

Quaterniond RandomRotation(std::mt19937& random) {
  std::normal_distribution<double> normal;
  return Quaterniond(normal(random), normal(random), normal(random), normal(random)).normalized();
}

/// Contacts scattered around a tip, `spread` of the normals about +z (0 = parallel).
std::vector<LocalContact> RandomContacts(std::mt19937& random, int count, double spread, const Vector3d& tip_m) {
  std::uniform_real_distribution<double> unit(0, 1);
  std::normal_distribution<double> normal;
  std::vector<LocalContact> contacts(count);
  for (LocalContact& contact : contacts) {
    contact.normal_W = (Vector3d::UnitZ() + spread * Vector3d(normal(random), normal(random), normal(random))).normalized();
    contact.point_m = tip_m + 0.01 * Vector3d(normal(random), normal(random), normal(random));
    const double kind = unit(random);
    contact.gap_m = kind < 0.5 ? -0.002 * unit(random) : 0.008 * unit(random) + 1e-6;
    contact.normal_force_n = kind < 0.4 ? 0.3 * unit(random) : 0;
    contact.stiffness_n_per_m = 20 * (0.2 + unit(random));
    contact.friction = 0.2 * unit(random);
    contact.damping_s = 0.01 * unit(random);
  }
  return contacts;
}

TEST(BuildLocalModel, MakesNoConstraintWithoutContacts) {
  LocalModelInput input;
  input.device_pose.position_m = Vector3d(1, 2, 3);
  const LocalModel model = BuildLocalModel(input);
  EXPECT_EQ(model.constraint_count, 0);
  EXPECT_EQ(model.pose_at_build.position_m, Vector3d(1, 2, 3));
}

TEST(BuildLocalModel, IsAsStiffAsItsContacts) {
  for (const int parts : {1, 2, 5, 16}) {
    std::vector<LocalContact> contacts(parts);
    for (int i = 0; i < parts; ++i) {
      contacts[i] = {.point_m = Vector3d(0.001 * i, 0, 0),
                     .normal_W = Vector3d::UnitZ(),
                     .gap_m = -0.001,
                     .normal_force_n = 0.1,
                     .stiffness_n_per_m = 150.0 / parts};
    }
    LocalModelInput input;
    input.contacts = contacts;
    const LocalModel model = BuildLocalModel(input);
    EXPECT_EQ(model.constraint_count, parts);
    EXPECT_NEAR(TotalStiffness(model), 150, 1e-9);
    EXPECT_NEAR(ForceAtBuild(model).force_n.z(), 0.1 * parts, 1e-12);
  }
}

TEST(BuildLocalModel, PutsTheCouplingInSeries) {
  const std::vector<LocalContact> contacts = {
      {.point_m = Vector3d(0, 0, -0.005), .normal_W = Vector3d::UnitZ(), .gap_m = 0, .normal_force_n = 1.5, .stiffness_n_per_m = 120}};
  LocalModelInput input;
  input.tool_pose.position_m = Vector3d(0, 0, 0);
  input.device_pose.position_m = Vector3d(0, 0, -1.5 / 500);  // the coupling's spring carries the force
  input.coupling_stiffness_n_per_m = 500;
  input.contacts = contacts;
  const LocalModel model = BuildLocalModel(input);
  const double tissue = 120;
  EXPECT_NEAR(TotalStiffness(model), tissue * 500 / (tissue + 500), 1e-9);
  EXPECT_NEAR(ForceAtBuild(model).force_n.z(), 1.5, 1e-12);
  // Both springs relax over f / k_tissue + f / k_coupling.
  RigidPose lifted = input.device_pose;
  FrictionState friction;
  lifted.position_m.z() += 1.5 / tissue + 1.5 / 500 - 1e-6;
  EXPECT_GT(EvaluateLocalModel(model, lifted, {}, friction).force_n.z(), 0);
  lifted.position_m.z() += 2e-6;
  EXPECT_EQ(EvaluateLocalModel(model, lifted, {}, friction).force_n.z(), 0);
}

TEST(BuildLocalModel, NeverExceedsTheDeviceAndKeepsTheForce) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    std::vector<LocalContact> contacts = RandomContacts(random, 40, 0.3, Vector3d::Zero());
    for (LocalContact& contact : contacts) contact.stiffness_n_per_m *= 200;
    LocalModelInput input;
    input.device_max_stiffness_n_per_m = 400;
    input.contacts = contacts;
    const LocalModel model = BuildLocalModel(input);
    EXPECT_NEAR(TotalStiffness(model), 400, 1e-9);
    EXPECT_NEAR((ForceAtBuild(model).force_n - SumOfForces(contacts)).norm(), 0, 1e-11);
  }
}

TEST(BuildLocalModel, KeepsTheTotalForceUnderMerging) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    const int count = 1 + static_cast<int>(random() % 120);
    LocalModelInput input;
    input.tool_pose.position_m = Vector3d(0.1, -0.2, 0.3);
    input.tool_pose.rotation = RandomRotation(random);
    input.device_pose = input.tool_pose;
    input.device_pose.position_m += Vector3d(0.001, 0.002, -0.003);
    input.coupling_stiffness_n_per_m = round % 2 == 0 ? 500 : std::numeric_limits<double>::infinity();
    input.max_constraints = 1 + static_cast<int>(random() % 20);
    const std::vector<LocalContact> contacts = RandomContacts(random, count, 0.4, input.tool_pose.position_m);
    input.contacts = contacts;
    const LocalModel model = BuildLocalModel(input);
    ASSERT_LE(model.constraint_count, input.max_constraints);
    const Vector3d wanted = SumOfForces(contacts);
    EXPECT_NEAR((ForceAtBuild(model).force_n - wanted).norm(), 0, 1e-12 * (1 + wanted.norm()))
        << "round " << round << ", " << count << " contacts";
    for (int i = 0; i < model.constraint_count; ++i) {
      EXPECT_NEAR(model.constraints[i].normal_W.norm(), 1, 1e-12);
      EXPECT_GT(model.constraints[i].stiffness_n_per_m, 0);
    }
  }
}

TEST(BuildLocalModel, KeepsTheTorqueAcrossTheForceUnderMerging) {
  std::mt19937 random(13);
  for (int round = 0; round < 100; ++round) {
    LocalModelInput input;
    input.max_constraints = 1;
    std::vector<LocalContact> contacts = RandomContacts(random, 30, 0.3, Vector3d::Zero());
    for (LocalContact& contact : contacts) {
      contact.gap_m = -0.001;
      contact.normal_force_n += 0.01;
    }
    input.contacts = contacts;
    const LocalModel model = BuildLocalModel(input);
    ASSERT_EQ(model.constraint_count, 1);
    Vector3d torque = Vector3d::Zero();
    for (const LocalContact& c : contacts) torque += (c.point_m + c.gap_m * c.normal_W).cross(c.normal_force_n * c.normal_W);
    const Vector3d along = SumOfForces(contacts).normalized();
    const Vector3d wanted = torque - along * along.dot(torque);
    EXPECT_NEAR((ForceAtBuild(model).torque_n_m - wanted).norm(), 0, 1e-13);
  }
}

TEST(BuildLocalModel, LetsNearContactsTouchAfterTheirGap) {
  const std::vector<LocalContact> contacts = {
      {.point_m = Vector3d(0, 0, -0.003), .normal_W = Vector3d::UnitZ(), .gap_m = 0.003, .normal_force_n = 0, .stiffness_n_per_m = 90}};
  LocalModelInput input;
  input.contacts = contacts;
  const LocalModel model = BuildLocalModel(input);
  ASSERT_EQ(model.constraint_count, 1);
  EXPECT_DOUBLE_EQ(model.constraints[0].rest_penetration_m, -0.003);
  EXPECT_EQ(ForceAtBuild(model).force_n, Vector3d::Zero());
  FrictionState friction;
  RigidPose pose;
  pose.position_m.z() = -0.0029;
  EXPECT_EQ(EvaluateLocalModel(model, pose, {}, friction).force_n.z(), 0);
  pose.position_m.z() = -0.004;
  EXPECT_NEAR(EvaluateLocalModel(model, pose, {}, friction).force_n.z(), 90 * 0.001, 1e-9);
}

TEST(BuildLocalModel, LetsWhatTouchesWithoutAForcePushAtOnce) {
  const std::vector<LocalContact> contacts = {
      {.point_m = Vector3d(0, 0, -0.003), .normal_W = Vector3d::UnitZ(), .gap_m = -0.001, .normal_force_n = 0, .stiffness_n_per_m = 90}};
  LocalModelInput input;
  input.contacts = contacts;
  const LocalModel model = BuildLocalModel(input);
  ASSERT_EQ(model.constraint_count, 1);
  EXPECT_EQ(ForceAtBuild(model).force_n, Vector3d::Zero());
  FrictionState friction;
  RigidPose pose;
  pose.position_m.z() = -1e-4;
  EXPECT_NEAR(EvaluateLocalModel(model, pose, {}, friction).force_n.z(), 90 * 1e-4, 1e-9);
}

TEST(BuildLocalModel, PutsTheCouplingInSeriesAlongTheResultant) {
  // Two walls at 45 degrees, each as stiff as 200 N/m: along the resultant 200 N/m in all.
  const double c = std::sqrt(0.5);
  std::vector<LocalContact> contacts(2);
  for (const int i : {0, 1}) {
    contacts[i] = {
        .point_m = Vector3d::Zero(), .normal_W = Vector3d(i == 0 ? c : -c, 0, c), .normal_force_n = 0.5, .stiffness_n_per_m = 200};
  }
  LocalModelInput input;
  input.coupling_stiffness_n_per_m = 200;
  input.contacts = contacts;
  const LocalModel model = BuildLocalModel(input);
  RigidPose pose;
  pose.position_m.z() = -1e-4;
  FrictionState friction;
  EXPECT_NEAR(EvaluateLocalModel(model, pose, {}, friction).force_n.z() - ForceAtBuild(model).force_n.z(), 100 * 1e-4, 1e-9);
}

TEST(BuildLocalModel, KeepsSlotsForNearContacts) {
  std::mt19937 random(17);
  std::vector<LocalContact> contacts = RandomContacts(random, 40, 0.1, Vector3d::Zero());
  for (int i = 0; i < 40; ++i) {
    contacts[i].gap_m = i < 30 ? -0.001 : 0.001 * (i - 29);
    contacts[i].normal_force_n = i < 30 ? 0.1 : 0;
  }
  LocalModelInput input;
  input.max_constraints = 8;
  input.contacts = contacts;
  const LocalModel model = BuildLocalModel(input);
  int near_count = 0;
  double nearest_m = 1;
  for (int i = 0; i < model.constraint_count; ++i) {
    if (model.constraints[i].rest_penetration_m < 0) {
      ++near_count;
      nearest_m = std::min(nearest_m, -model.constraints[i].rest_penetration_m);
    }
  }
  EXPECT_EQ(near_count, 2);
  EXPECT_DOUBLE_EQ(nearest_m, 0.001);  // a merged group touches with its first member
}

TEST(BuildLocalModel, LeavesBrokenContactsOut) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const LocalContact good{
      .point_m = Vector3d::Zero(), .normal_W = Vector3d::UnitZ(), .gap_m = -0.001, .normal_force_n = 1, .stiffness_n_per_m = 90};
  std::vector<LocalContact> contacts(8, good);
  contacts[0].point_m.x() = nan;
  contacts[1].normal_W = Vector3d::Zero();
  contacts[2].normal_force_n = -1;
  contacts[3].stiffness_n_per_m = 0;
  contacts[4].stiffness_n_per_m = std::numeric_limits<double>::infinity();
  contacts[5].damping_s = -1;
  contacts[6].gap_m = nan;
  LocalModelInput input;
  input.contacts = contacts;
  const LocalModel model = BuildLocalModel(input);
  EXPECT_EQ(model.constraint_count, 1);
  EXPECT_DOUBLE_EQ(ForceAtBuild(model).force_n.z(), 1);
}

TEST(BuildLocalModel, DropsForcesThatCancel) {
  const std::vector<LocalContact> contacts = {
      {.point_m = Vector3d(0, 0, -0.005), .normal_W = Vector3d::UnitZ(), .gap_m = -0.001, .normal_force_n = 1, .stiffness_n_per_m = 90},
      {.point_m = Vector3d(0, 0, 0.005), .normal_W = -Vector3d::UnitZ(), .gap_m = -0.001, .normal_force_n = 1, .stiffness_n_per_m = 90}};
  LocalModelInput input;
  input.contacts = contacts;
  EXPECT_EQ(BuildLocalModel(input).constraint_count, 2);
  input.max_constraints = 1;
  EXPECT_EQ(BuildLocalModel(input).constraint_count, 0);
}

TEST(BuildLocalModel, DoesNotDependOnTheFrame) {
  std::mt19937 random(19);
  for (int round = 0; round < 30; ++round) {
    LocalModelInput input;
    input.tool_pose.position_m = Vector3d(0.02, 0.01, 0.05);
    input.device_pose = input.tool_pose;
    input.device_pose.position_m.z() -= 0.002;
    input.coupling_stiffness_n_per_m = 700;
    input.max_constraints = 6;
    const std::vector<LocalContact> contacts = RandomContacts(random, 30, 0.4, input.tool_pose.position_m);
    input.contacts = contacts;
    const LocalModel model = BuildLocalModel(input);

    const Quaterniond R = RandomRotation(random);
    const Vector3d p(3, -2, 1);
    std::vector<LocalContact> moved = contacts;
    for (LocalContact& contact : moved) {
      contact.point_m = R * contact.point_m + p;
      contact.normal_W = R * contact.normal_W;
    }
    LocalModelInput moved_input = input;
    for (RigidPose* pose : {&moved_input.tool_pose, &moved_input.device_pose}) {
      pose->position_m = R * pose->position_m + p;
      pose->rotation = R * pose->rotation;
    }
    moved_input.contacts = moved;
    const LocalModel moved_model = BuildLocalModel(moved_input);
    ASSERT_EQ(moved_model.constraint_count, model.constraint_count);
    for (int i = 0; i < model.constraint_count; ++i) {
      const LocalConstraint& a = model.constraints[i];
      const LocalConstraint& b = moved_model.constraints[i];
      EXPECT_NEAR((a.arm_T_m - b.arm_T_m).norm(), 0, 1e-11);
      EXPECT_NEAR((R * a.normal_W - b.normal_W).norm(), 0, 1e-11);
      EXPECT_NEAR(a.stiffness_n_per_m, b.stiffness_n_per_m, 1e-9);
      EXPECT_NEAR(a.rest_penetration_m, b.rest_penetration_m, 1e-11);
    }
  }
}

TEST(BuildLocalModel, GivesTheSameModelTwice) {
  std::mt19937 random(23);
  const std::vector<LocalContact> contacts = RandomContacts(random, 100, 0.4, Vector3d::Zero());
  LocalModelInput input;
  input.contacts = contacts;
  const LocalModel a = BuildLocalModel(input);
  const LocalModel b = BuildLocalModel(input);
  ASSERT_EQ(a.constraint_count, b.constraint_count);
  for (int i = 0; i < a.constraint_count; ++i) {
    EXPECT_EQ(a.constraints[i].arm_T_m, b.constraints[i].arm_T_m);
    EXPECT_EQ(a.constraints[i].normal_W, b.constraints[i].normal_W);
    EXPECT_EQ(a.constraints[i].rest_penetration_m, b.constraints[i].rest_penetration_m);
  }
}

}  // namespace
}  // namespace palpate::sim::build_model_test
