#include "clients/station/laparoscopic_station_device.h"

#include <cmath>
#include <memory>
#include <numbers>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <Eigen/Geometry>

namespace palpate::station::laparoscopic_station_device_test {
namespace {

using Eigen::Vector3d;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// A hand that is where the test puts it.
class PuppetHand final : public HapticDevice {
 public:
  const DeviceCapabilities& capabilities() const override { return capabilities_; }
  DeviceResult Read(double /*now_s*/, DeviceState* state) noexcept override {
    *state = next;
    return DeviceResult::kOk;
  }
  DeviceResult Write(const DeviceForce& force) noexcept override {
    felt = force;
    return DeviceResult::kOk;
  }
  void SetEngaged(bool value) noexcept override { engaged = value; }

  DeviceState next;
  DeviceForce felt;
  bool engaged = false;

 private:
  DeviceCapabilities capabilities_ = *FindDeviceProfile("premium1.5");
};

class LaparoscopicStationDeviceTest : public ::testing::Test {
 protected:
  static constexpr double kStart_m = 0.03;
  const sim::LaparoscopicDeviceDescription description_{};
  PuppetHand* hand_ = new PuppetHand;  // the device owns it
  LaparoscopicStationDevice device_{description_, 1000, 5,
                                    std::make_unique<SimulatedMechanism>(description_, kStart_m, std::unique_ptr<HapticDevice>(hand_))};

  /// Where the tip is in D while the hand is at its own `position_m`.
  Vector3d TipOf(const Vector3d& position_m) const { return position_m - Vector3d(0, 0, description_.rest_length_m + kStart_m); }
  sim::RigidPose PoseAt(const Vector3d& hand_m) {
    hand_->next.pose.position_m = hand_m;
    DeviceState state;
    EXPECT_EQ(device_.Read(0, &state), DeviceResult::kOk);
    return state.pose;
  }
};

TEST_F(LaparoscopicStationDeviceTest, TheTipIsWhereTheHandHoldsItToACount) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> unit(-1, 1);
  // Half a count of insertion, and of both tilts on the longest lever.
  const double tilt_count_rad = description_.range[0] / description_.counts[0];
  const double bound_m = 0.5 * description_.range[2] / description_.counts[2] + std::numbers::sqrt2 * 0.5 * tilt_count_rad * 0.1 * 1.2;
  for (int i = 0; i < 500; ++i) {
    const Vector3d hand_m(0.02 * unit(random), 0.02 * unit(random), 0.02 * unit(random) - 0.01);
    const sim::RigidPose pose = PoseAt(hand_m);
    EXPECT_LT((pose.position_m - TipOf(hand_m)).norm(), bound_m);
    EXPECT_LT(pose.position_m.cross(pose.rotation * Vector3d::UnitZ()).norm(), 1e-12) << "the shaft passes through the fixed point";
    // What it reads is exact to a count, so reading it back gives the same counts.
    const sim::LaparoscopicDevice kinematics(description_);
    const sim::LaparoscopicDevice::Joints joints = kinematics.JointsOf(pose);
    const sim::LaparoscopicDevice::Counts counts = kinematics.CountsOf(joints);
    const sim::RigidPose again = kinematics.PoseOf(kinematics.JointsOf(counts));
    EXPECT_LT((again.position_m - pose.position_m).norm(), 1e-9);
    EXPECT_LT(again.rotation.angularDistance(pose.rotation), 1e-7);
  }
}

TEST_F(LaparoscopicStationDeviceTest, RollButtonsGripAndEngagementPassThrough) {
  hand_->next.pose.rotation = Eigen::Quaterniond(Eigen::AngleAxisd(0.7, Vector3d::UnitZ()));
  hand_->next.buttons = 5;
  hand_->next.has_grip = true;
  hand_->next.grip = 0.4;
  DeviceState state;
  ASSERT_EQ(device_.Read(0, &state), DeviceResult::kOk);
  const double count_rad = 2 * std::numbers::pi / 1024;
  EXPECT_NEAR(state.pose.rotation.angularDistance(hand_->next.pose.rotation), 0, 0.51 * count_rad);
  EXPECT_EQ(state.buttons, 5U);
  EXPECT_TRUE(state.has_grip);
  EXPECT_EQ(state.grip, 0.4);
  device_.SetEngaged(true);
  EXPECT_TRUE(hand_->engaged);
}

TEST_F(LaparoscopicStationDeviceTest, ForcesComeThroughTheMotorsWithTheirPower) {
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> unit(-1, 1);
  for (int i = 0; i < 200; ++i) {
    const Vector3d hand_m(0.02 * unit(random), 0.02 * unit(random), 0.02 * unit(random) - 0.01);
    PoseAt(hand_m);
    const Vector3d wanted_n(unit(random), unit(random), unit(random));
    ASSERT_EQ(device_.Write({.force_n = wanted_n}), DeviceResult::kOk);
    // The station sees the joints to a count, so the hand's force is that much off; any motion's power agrees likewise.
    EXPECT_LT((hand_->felt.force_n - wanted_n).norm(), 2e-3 * wanted_n.norm());
    const Vector3d velocity(unit(random), unit(random), unit(random));
    EXPECT_NEAR(hand_->felt.force_n.dot(velocity), wanted_n.dot(velocity), 2e-3 * wanted_n.norm() * velocity.norm());
  }
  EXPECT_EQ(device_.limited_ticks(), 0U);
}

TEST_F(LaparoscopicStationDeviceTest, MotorsThatAreTooWeakAreCounted) {
  // Insertion: 7 N. Across, the tilt motors give 0.49 N m over the length from the fixed point, here 0.1 m.
  PoseAt(Vector3d(0, 0, -0.05));
  device_.Write({.force_n = {0, 0, 7}});
  EXPECT_EQ(device_.limited_ticks(), 0U);
  EXPECT_NEAR(hand_->felt.force_n.z(), 7, 1e-9);
  device_.Write({.force_n = {0, 0, 9}});
  EXPECT_EQ(device_.limited_ticks(), 1U);
  EXPECT_NEAR(hand_->felt.force_n.z(), 7, 1e-9);
  device_.Write({.force_n = {6, 0, 3}});
  EXPECT_EQ(device_.limited_ticks(), 2U);
  EXPECT_NEAR(hand_->felt.force_n.x(), 4.9, 5e-3);
  EXPECT_NEAR(hand_->felt.force_n.z(), 3 * 4.9 / 6, 5e-3) << "scaled as a whole";
  device_.Write({.force_n = {-4.8, 0, 0}});
  EXPECT_EQ(device_.limited_ticks(), 2U);
  EXPECT_NEAR(device_.capabilities().peak_force_n, 7, 1e-12);
  EXPECT_EQ(device_.capabilities().peak_torque_n_m, 0);
}

TEST_F(LaparoscopicStationDeviceTest, StopsHoldTheHandBack) {
  // Deeper than the range of insertion, 80 mm: the counts stay, and a spring pushes out.
  EXPECT_NEAR(PoseAt(Vector3d(0, 0, -0.06)).position_m.z(), -0.1, 1e-9);
  device_.Write({});
  EXPECT_NEAR(hand_->felt.force_n.z(), SimulatedMechanism::kStop_n_per_m * 0.01, 1e-6);
  // Out of the patient: fully withdrawn, and pulled in.
  EXPECT_NEAR(PoseAt(Vector3d(0, 0, 0.08)).position_m.z(), -0.02, 1e-9);
  device_.Write({});
  EXPECT_NEAR(hand_->felt.force_n.z(), -SimulatedMechanism::kStop_n_per_m * 0.05, 1e-6);
  // Tilted too far.
  const sim::RigidPose tilted = PoseAt(Vector3d(0.2, 0, 0));
  EXPECT_NEAR(std::atan2(-tilted.position_m.x(), -tilted.position_m.z()), -std::numbers::pi / 6, 1e-3);
  device_.Write({});
  EXPECT_LT(hand_->felt.force_n.x(), -1);
  // Between the stops there is nothing.
  PoseAt(Vector3d(0.01, 0.01, -0.01));
  device_.Write({});
  EXPECT_EQ(hand_->felt.force_n, Vector3d::Zero());
}

TEST(LaparoscopicStationDeviceSpec, IsMadeFromText) {
  const auto device = MakeDevice("lie:start=0.01,stiffness=600,damping=3,inner=sim:script=poke,profile=premium1.5");
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ((*device)->capabilities().max_stiffness_n_per_m, 600);
  EXPECT_EQ((*device)->capabilities().max_damping_n_s_per_m, 3);
  EXPECT_THAT((*device)->capabilities().name, HasSubstr("premium1.5"));
  DeviceState state;
  ASSERT_EQ((*device)->Read(0, &state), DeviceResult::kOk);
  EXPECT_NEAR(state.pose.position_m.z(), -0.03, 1e-5);
  EXPECT_TRUE(MakeDevice("lie").ok());
  EXPECT_TRUE(MakeDevice("lie:inner=sim").ok());
  const auto message = [](const char* spec) { return std::string(MakeDevice(spec).status().message()); };
  EXPECT_THAT(message("lie:start=0.2"), AllOf(HasSubstr("start"), HasSubstr("[0, 0.08]")));
  EXPECT_THAT(message("lie:gear=3"), HasSubstr("'gear'"));
  EXPECT_THAT(message("lie:inner=lie"), HasSubstr("inner"));
  EXPECT_THAT(message("lie:inner=joystick"), HasSubstr("joystick"));
  EXPECT_THAT(message("lie:inner=plugin"), HasSubstr("plugin"));
}

}  // namespace
}  // namespace palpate::station::laparoscopic_station_device_test
