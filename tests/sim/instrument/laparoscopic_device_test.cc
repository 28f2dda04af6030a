#include "sim/instrument/laparoscopic_device.h"

#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <cmath>
#include <numbers>
#include <random>

namespace palpate::sim::laparoscopic_device_test {
namespace {

using Eigen::Vector3d;

class LaparoscopicDeviceTest : public testing::Test {
 protected:
  LaparoscopicDevice::Joints Draw() {
    std::uniform_real_distribution<double> unit(-1, 1);
    return {unit(random_) * std::numbers::pi / 6, unit(random_) * std::numbers::pi / 6, 0.04 + 0.04 * unit(random_), 3.1 * unit(random_)};
  }
  std::mt19937_64 random_{11};
  LaparoscopicDevice device_{LaparoscopicDeviceDescription{}};
};

TEST_F(LaparoscopicDeviceTest, ZeroCountsAreTheRestPose) {
  const RigidPose pose = device_.PoseOf(device_.JointsOf(LaparoscopicDevice::Counts{}));
  EXPECT_LT((pose.position_m - Vector3d(0, 0, -0.02)).norm(), 1e-15);
  EXPECT_LT(pose.rotation.angularDistance(Eigen::Quaterniond::Identity()), 1e-12);
  // One whole turn of roll is 1024 counts.
  const RigidPose turned = device_.PoseOf(device_.JointsOf(LaparoscopicDevice::Counts{0, 0, 5800, 1024}));
  EXPECT_LT((turned.position_m - Vector3d(0, 0, -0.1)).norm(), 1e-12);
  EXPECT_LT(turned.rotation.angularDistance(pose.rotation), 1e-9);
}

TEST_F(LaparoscopicDeviceTest, PosesAreRigidAndInvertible) {
  for (int i = 0; i < 1000; ++i) {
    const LaparoscopicDevice::Joints joints = Draw();
    const RigidPose pose = device_.PoseOf(joints);
    EXPECT_NEAR(pose.rotation.norm(), 1, 1e-12);
    // The shaft passes through the fixed point, and the plain tilts turn it as their names say.
    EXPECT_LT(pose.position_m.cross(pose.rotation * Vector3d::UnitZ()).norm(), 1e-15);
    const LaparoscopicDevice::Joints back = device_.JointsOf(pose);
    EXPECT_NEAR(back.tilt_y_rad, joints.tilt_y_rad, 1e-9);
    EXPECT_NEAR(back.tilt_x_rad, joints.tilt_x_rad, 1e-9);
    EXPECT_NEAR(back.insertion_m, joints.insertion_m, 1e-12);
    EXPECT_NEAR(back.roll_rad, joints.roll_rad, 1e-9);
    const LaparoscopicDevice::Counts counts = device_.CountsOf(joints);
    const LaparoscopicDevice::Joints rounded = device_.JointsOf(counts);
    EXPECT_LE(std::abs(rounded.tilt_y_rad - joints.tilt_y_rad), std::numbers::pi / 3 / 5000 / 2 * 1.0001);
    EXPECT_LE(std::abs(rounded.insertion_m - joints.insertion_m), 0.08 / 5800 / 2 * 1.0001);
    EXPECT_EQ(device_.CountsOf(rounded), counts);
  }
  const RigidPose pose = device_.PoseOf({0.3, 0, 0.05, 0});
  EXPECT_LT((pose.rotation * Vector3d::UnitZ() - Vector3d(std::sin(0.3), 0, std::cos(0.3))).norm(), 1e-12);
}

TEST_F(LaparoscopicDeviceTest, MotorsDoTheWorkOfTheForce) {
  for (int i = 0; i < 300; ++i) {
    const LaparoscopicDevice::Joints joints = Draw();
    const LaparoscopicDevice::Joints direction = Draw();
    Vector3d force = Vector3d::Random();
    const LaparoscopicDevice::Drive drive = device_.DriveOf(joints, force);
    ASSERT_FALSE(drive.is_limited);
    const double h = 1e-6;
    const auto moved = [&](double s) {
      return device_.PoseOf({joints.tilt_y_rad + s * direction.tilt_y_rad, joints.tilt_x_rad + s * direction.tilt_x_rad,
                             joints.insertion_m + s * direction.insertion_m, joints.roll_rad + s * direction.roll_rad});
    };
    const double power = force.dot(moved(h).position_m - moved(-h).position_m) / (2 * h);
    EXPECT_NEAR(drive.tilt_y_torque_n_m * direction.tilt_y_rad + drive.tilt_x_torque_n_m * direction.tilt_x_rad +
                    drive.insertion_force_n * direction.insertion_m,
                power, 1e-8);
    EXPECT_NEAR(drive.motor_v[0] * 0.01 * 14, drive.tilt_y_torque_n_m, 1e-12);
    EXPECT_NEAR(drive.motor_v[2] * 0.01 / 0.005, drive.insertion_force_n, 1e-12);
  }
}

TEST_F(LaparoscopicDeviceTest, TheTipFeelsWhatTheMotorsDo) {
  for (int i = 0; i < 300; ++i) {
    const LaparoscopicDevice::Joints joints = Draw();
    const Vector3d force = Vector3d::Random();
    const LaparoscopicDevice::Drive drive = device_.DriveOf(joints, force);
    ASSERT_FALSE(drive.is_limited);
    EXPECT_LT((device_.ForceOf(joints, drive.motor_v) - force).norm(), 1e-12);
  }
  // Each motor alone: 3.5 V of insertion are 7 N inwards.
  EXPECT_LT((device_.ForceOf({}, {0, 0, 3.5}) - Vector3d(0, 0, -7)).norm(), 1e-12);
}

TEST_F(LaparoscopicDeviceTest, StopsAreAtTheEndsOfTheRanges) {
  const LaparoscopicDevice::Joints inside{0.1, -0.2, 0.03, 20};
  EXPECT_EQ(device_.BetweenStops(inside).tilt_y_rad, 0.1);
  EXPECT_EQ(device_.BetweenStops(inside).roll_rad, 20);
  const LaparoscopicDevice::Joints outside = device_.BetweenStops({1, -1, 0.2, 0});
  EXPECT_NEAR(outside.tilt_y_rad, std::numbers::pi / 6, 1e-15);
  EXPECT_NEAR(outside.tilt_x_rad, -std::numbers::pi / 6, 1e-15);
  EXPECT_EQ(outside.insertion_m, 0.08);
  EXPECT_EQ(device_.BetweenStops({0, 0, -0.01, 0}).insertion_m, 0);
}

TEST_F(LaparoscopicDeviceTest, MotorsHaveLimits) {
  EXPECT_NEAR(device_.description().max_tilt_torque_n_m(), 0.49, 1e-12);
  EXPECT_NEAR(device_.description().max_insertion_force_n(), 7, 1e-12);
  int limited = 0;
  for (int i = 0; i < 300; ++i) {
    const LaparoscopicDevice::Joints joints = Draw();
    const Vector3d force = 40 * Vector3d::Random();
    const LaparoscopicDevice::Drive drive = device_.DriveOf(joints, force);
    for (const double v : drive.motor_v) EXPECT_LE(std::abs(v), 3.5 * (1 + 1e-12));
    EXPECT_LE(std::abs(drive.tilt_y_torque_n_m), 0.49 * (1 + 1e-12));
    EXPECT_LE(std::abs(drive.tilt_x_torque_n_m), 0.49 * (1 + 1e-12));
    EXPECT_LE(std::abs(drive.insertion_force_n), 7 * (1 + 1e-12));
    if (!drive.is_limited) continue;
    ++limited;
    // The direction stays: it is the drive of a smaller force.
    const double share = std::abs(drive.insertion_force_n) > 1e-6
                             ? drive.insertion_force_n / -force.dot(device_.PoseOf(joints).rotation * Vector3d::UnitZ())
                             : 0;
    ASSERT_GT(share, 0);
    const LaparoscopicDevice::Drive smaller = device_.DriveOf(joints, share * 0.999 * force);
    EXPECT_FALSE(smaller.is_limited);
    EXPECT_NEAR(smaller.tilt_x_torque_n_m, 0.999 * drive.tilt_x_torque_n_m, 1e-9);
  }
  EXPECT_GT(limited, 100);
}

}  // namespace
}  // namespace palpate::sim::laparoscopic_device_test
