// Gaps to curved surfaces against closed forms, alone and inside local models.
#include "sim/haptics/curved_gap.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "sim/haptics/build_model.h"
#include "sim/haptics/evaluate.h"

namespace palpate::sim::curved_gap_test {
namespace {

using Eigen::Matrix3d;
using Eigen::Vector3d;

std::array<double, 6> SymmetricOf(const Matrix3d& m) { return {m(0, 0), m(0, 1), m(0, 2), m(1, 1), m(1, 2), m(2, 2)}; }

Vector3d Random(std::mt19937& random, double size) {
  std::uniform_real_distribution<double> share(-size, size);
  return {share(random), share(random), share(random)};
}

TEST(CurvedGap, IsExactForSpheresFromOutsideAndInside) {
  std::mt19937 random(1);
  constexpr double kRadius_m = 0.05;
  for (const double sign : {1.0, -1.0}) {
    for (int i = 0; i < 200; ++i) {
      const Vector3d normal = Random(random, 1).normalized();
      // The distance from a ball's centre, or what is left of a hollow one's radius.
      const Vector3d from_center_m = sign * kRadius_m * normal;
      const Matrix3d curvature = sign / kRadius_m * (Matrix3d::Identity() - normal * normal.transpose());
      const Vector3d way_m = Random(random, 0.02);
      const CurvedGap gap = FollowGap(normal, SymmetricOf(curvature), way_m);
      EXPECT_NEAR(gap.change_m, sign * ((from_center_m + way_m).norm() - kRadius_m), 1e-15);
      EXPECT_LT((gap.normal - sign * (from_center_m + way_m).normalized()).norm(), 1e-13);
    }
  }
}

TEST(CurvedGap, IsExactForCylindersAndPlanes) {
  std::mt19937 random(2);
  constexpr double kRadius_m = 0.03;
  const Vector3d axis = Vector3d(1, 2, -1).normalized();
  const Vector3d normal = axis.cross(Vector3d::UnitX()).normalized();
  const Vector3d around = axis.cross(normal);
  for (int i = 0; i < 200; ++i) {
    const Vector3d way_m = Random(random, 0.015);
    const CurvedGap gap = FollowGap(normal, SymmetricOf(around * around.transpose() / kRadius_m), way_m);
    const Vector3d place_m = kRadius_m * normal + way_m;
    const Vector3d out_m = place_m - place_m.dot(axis) * axis;
    EXPECT_NEAR(gap.change_m, out_m.norm() - kRadius_m, 1e-15);
    EXPECT_LT((gap.normal - out_m.normalized()).norm(), 1e-13);
    EXPECT_EQ(FollowGap(normal, {}, way_m).change_m, normal.dot(way_m));
  }
}

TEST(CurvedGap, IsRightToSecondOrderForSaddlesAndBoundedFarAway) {
  std::mt19937 random(3);
  const Vector3d normal = Vector3d::UnitZ();
  const std::array<double, 6> saddle = {40, 10, 0, -30, 0, 0};
  for (int i = 0; i < 200; ++i) {
    const Vector3d way_m = Random(random, 1e-4);
    const double second_order_m = way_m.z() + way_m.dot(TimesCurvature(saddle, way_m)) / 2;
    EXPECT_NEAR(FollowGap(normal, saddle, way_m).change_m, second_order_m, 100 * 100 * 8e-12);
    const CurvedGap far = FollowGap(normal, saddle, Random(random, 1));
    EXPECT_TRUE(std::isfinite(far.change_m) && far.normal.allFinite());
    EXPECT_NEAR(far.normal.norm(), 1, 1e-12);
  }
}

/// A tool in a ball, and then beside.
TEST(CurvedGap, AModelOfABallIsTheBallAround) {
  constexpr double kBall_m = 0.05;
  constexpr double kTip_m = 0.004;
  constexpr double kDepth_m = 0.003;
  LocalContact contact;
  const Vector3d normal = Vector3d(0.3, -0.2, 0.9).normalized();
  const double out_m = kBall_m + kTip_m - kDepth_m;
  contact.normal_W = normal;
  contact.gap_m = -kDepth_m;
  contact.point_m = kBall_m * normal;
  contact.normal_force_n = 7;  // what the solver says counts for nothing
  contact.stiffness_n_per_m = 400;
  contact.exact = LocalContact::Exact{out_m * normal, SymmetricOf((Matrix3d::Identity() - normal * normal.transpose()) / out_m)};
  LocalModelInput input;
  input.device_pose.position_m = out_m * normal;
  input.tool_pose.position_m = (kBall_m + kTip_m) * normal;
  input.contacts = {&contact, 1};
  const LocalModel model = BuildLocalModel(input);
  ASSERT_EQ(model.constraint_count, 1);
  std::mt19937 random(4);
  for (int i = 0; i < 100; ++i) {
    RigidPose pose = input.device_pose;
    pose.position_m += Random(random, 0.002);
    pose.rotation = Eigen::AngleAxisd(0.5, Random(random, 1).normalized());  // about the tip: a ball feels no turn
    FrictionState friction;
    const Vector3d force_n = EvaluateLocalModel(model, pose, {}, friction).force_n;
    const double deep_m = kBall_m + kTip_m - pose.position_m.norm();
    EXPECT_LT((force_n - 400 * std::max(0.0, deep_m) * pose.position_m.normalized()).norm(), 1e-10);
  }
}

}  // namespace
}  // namespace palpate::sim::curved_gap_test
