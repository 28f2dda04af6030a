#include "clients/station/plugin_device.h"

#include <cmath>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace palpate::station::plugin_device_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string OpenError(const std::string& library, const std::string& options = "") {
  const auto device = PluginDevice::Open(library, options);
  return device.ok() ? "" : std::string(device.status().message());
}

TEST(PluginDevice, SpeaksWithTheSample) {
  const auto made = MakeDevice(std::string("plugin:") + PALPATE_SAMPLE_PLUGIN + ",amplitude=0.05,period=1");
  ASSERT_TRUE(made.ok()) << made.status();
  HapticDevice& device = **made;
  EXPECT_EQ(device.capabilities().name, "sample spring handle");
  EXPECT_EQ(device.capabilities().peak_force_n, 5);
  EXPECT_EQ(device.capabilities().degrees_of_freedom, 3);
  DeviceState state;
  ASSERT_EQ(device.Read(10.0, &state), DeviceResult::kOk);
  EXPECT_EQ(state.pose.position_m, Eigen::Vector3d::Zero());
  ASSERT_EQ(device.Write({.force_n = {1, 0, 0}}), DeviceResult::kOk);
  ASSERT_EQ(device.Read(10.5, &state), DeviceResult::kOk);
  EXPECT_NEAR(state.pose.position_m.x(), 0.002, 1e-12);  // its spring has 500 N/m
  EXPECT_NEAR(state.pose.position_m.z(), -0.05, 1e-12);
  EXPECT_FALSE(state.has_velocity);
  ASSERT_EQ(device.Write({.force_n = {NAN, 0, 0}}), DeviceResult::kFailed);
  EXPECT_STREQ(device.error(), "force on axis 0 is not finite");
}

TEST(PluginDevice, PassesButtonsAndGripOn) {
  const auto device = PluginDevice::Open(PALPATE_SAMPLE_PLUGIN, "amplitude=0.05,period=1");
  ASSERT_TRUE(device.ok()) << device.status();
  DeviceState state;
  ASSERT_EQ((*device)->Read(10.0, &state), DeviceResult::kOk);
  EXPECT_TRUE(state.has_grip);
  EXPECT_EQ(state.grip, 1);
  EXPECT_EQ(state.buttons, 0U);
  ASSERT_EQ((*device)->Read(10.5, &state), DeviceResult::kOk);
  EXPECT_NEAR(state.grip, 0, 1e-12);
  EXPECT_EQ(state.buttons, 1U);
}

TEST(PluginDevice, GivesItsEncodersToTheLaparoscopicDevice) {
  const auto device = MakeDevice(std::string("lie:inner=plugin:") + PALPATE_SAMPLE_PLUGIN + ",amplitude=0.04,period=1");
  ASSERT_TRUE(device.ok()) << device.status();
  DeviceState state;
  ASSERT_EQ((*device)->Read(10.0, &state), DeviceResult::kOk);
  EXPECT_NEAR(state.pose.position_m.z(), -0.02, 1e-12);
  ASSERT_EQ((*device)->Read(10.25, &state), DeviceResult::kOk);  // half of the way in, half of a turn
  EXPECT_NEAR(state.pose.position_m.z(), -0.04, 1e-9);
  EXPECT_NEAR((state.pose.rotation * Eigen::Vector3d::UnitX()).x(), -1, 1e-9);
  // 2 N outwards push the handle, a spring of 500 N/m, by 4 mm: 290 counts.
  ASSERT_EQ((*device)->Write({.force_n = {0, 0, 2}}), DeviceResult::kOk);
  ASSERT_EQ((*device)->Read(10.25, &state), DeviceResult::kOk);
  EXPECT_NEAR(state.pose.position_m.z(), -0.036, 1e-9);
  // Beyond the motors nothing beyond their voltage is sent: the plug-in would fail.
  ASSERT_EQ((*device)->Write({.force_n = {0, 0, 20}}), DeviceResult::kOk);
  EXPECT_EQ((*device)->limited_ticks(), 1U);
  ASSERT_EQ((*device)->Read(10.25, &state), DeviceResult::kOk);
  EXPECT_NEAR(state.pose.position_m.z(), -0.026, 0.08 / 5800);
}

TEST(PluginDevice, WithoutEncodersIsNoLaparoscopicDevice) {
  const auto device = MakeDevice(std::string("lie:inner=plugin:") + PALPATE_PLUGIN_OF_BEFORE);
  EXPECT_EQ(device.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(device.status().message()), HasSubstr("read_encoders"));
  // As what it is, a plug-in with the table and the state of version 1.0 works, and has no grip.
  const auto plain = PluginDevice::Open(PALPATE_PLUGIN_OF_BEFORE, "");
  ASSERT_TRUE(plain.ok()) << plain.status();
  DeviceState state;
  ASSERT_EQ((*plain)->Read(0, &state), DeviceResult::kOk);
  EXPECT_EQ(state.pose.position_m, Eigen::Vector3d(1, 2, 3));
  EXPECT_FALSE(state.has_grip);
}

TEST(PluginDevice, EndsWhenThePluginSaysSo) {
  const auto device = PluginDevice::Open(PALPATE_SAMPLE_PLUGIN, "reads=2");
  ASSERT_TRUE(device.ok());
  DeviceState state;
  EXPECT_EQ((*device)->Read(0, &state), DeviceResult::kOk);
  EXPECT_EQ((*device)->Read(0, &state), DeviceResult::kOk);
  EXPECT_EQ((*device)->Read(0, &state), DeviceResult::kEnded);
}

TEST(PluginDevice, PassesTheDevicesOwnErrorOn) {
  EXPECT_THAT(OpenError(PALPATE_SAMPLE_PLUGIN, "amplitude=9"), AllOf(HasSubstr("amplitude"), HasSubstr("[0, 0.2]")));
  EXPECT_THAT(OpenError(PALPATE_SAMPLE_PLUGIN, "nonsense"), HasSubstr("KEY=VALUE"));
}

TEST(PluginDevice, RefusesWhatIsNoPlugin) {
  EXPECT_THAT(OpenError("/nonexistent.so"), AllOf(HasSubstr("/nonexistent.so"), HasSubstr("cannot be loaded")));
  EXPECT_THAT(OpenError(PALPATE_PLUGIN_WITHOUT_ENTRY), HasSubstr("palpate_device_api"));
  EXPECT_THAT(OpenError(PALPATE_PLUGIN_OF_OTHER_VERSION), HasSubstr("version 99"));
  EXPECT_THAT(OpenError(PALPATE_PLUGIN_THAT_DECLINES), HasSubstr("does not work with interface version 1"));
  EXPECT_THAT(OpenError(PALPATE_PLUGIN_WITH_HOLES), HasSubstr("empty"));
  EXPECT_THAT(OpenError(PALPATE_PLUGIN_WITH_BAD_LIMITS), AllOf(HasSubstr("peak_force_n"), HasSubstr("-1")));
}

TEST(PluginDevice, StopsOnARotationThatIsNone) {
  const auto device = PluginDevice::Open(PALPATE_PLUGIN_WITH_BAD_ROTATION, "");
  ASSERT_TRUE(device.ok()) << device.status();
  DeviceState state;
  EXPECT_EQ((*device)->Read(0, &state), DeviceResult::kFailed);
  EXPECT_THAT((*device)->error(), HasSubstr("quaternion"));
}

TEST(PluginDevice, ReadsAnOlderPluginsShorterStructs) {
  // It fills in fewer bytes than the host offers; the rest keeps its default.
  const auto device = PluginDevice::Open(PALPATE_PLUGIN_WITH_SHORT_STATE, "");
  ASSERT_TRUE(device.ok()) << device.status();
  DeviceState state;
  ASSERT_EQ((*device)->Read(0, &state), DeviceResult::kOk);
  EXPECT_EQ(state.pose.position_m, Eigen::Vector3d(1, 2, 3));
  EXPECT_EQ(state.velocity.linear_m_per_s, Eigen::Vector3d::Zero());
}

}  // namespace
}  // namespace palpate::station::plugin_device_test
