// A hand that another process plays over a socket.
#include "clients/station/controller_device.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace palpate::station::controller_device_test {
namespace {

using ::testing::HasSubstr;

/// The other end: it listens in a folder of its own, and speaks in whole messages.
class Controller {
 public:
  Controller() {
    std::string name = (std::filesystem::temp_directory_path() / "palpate-controller-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    listener_ = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path().c_str(), sizeof(address.sun_path) - 1);
    EXPECT_EQ(bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(listener_, 1), 0);
  }
  ~Controller() {
    Hang();
    close(listener_);
    std::filesystem::remove_all(folder_);
  }
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  std::string path() const { return (folder_ / "hand").string(); }
  void Accept() { connection_ = accept(listener_, nullptr, nullptr); }
  void Send(const void* data, size_t bytes) const { EXPECT_EQ(send(connection_, data, bytes, 0), static_cast<ssize_t>(bytes)); }
  void Send(const ControllerPose& pose) const { Send(&pose, sizeof(pose)); }
  std::optional<ControllerForce> Force() const {
    ControllerForce force;
    return recv(connection_, &force, sizeof(force), MSG_DONTWAIT) == sizeof(force) ? std::optional(force) : std::nullopt;
  }
  void Hang() {
    if (connection_ >= 0) close(connection_);
    connection_ = -1;
  }

  /// The station's side, opened with `first` as the first pose.
  absl::StatusOr<std::unique_ptr<HapticDevice>> Open(const ControllerPose& first, const std::string& options = "") {
    auto device = std::async(std::launch::async, [this, options] { return MakeDevice("controller:" + path() + options); });
    Accept();
    Send(first);
    return device.get();
  }

 private:
  std::filesystem::path folder_;
  int listener_ = -1;
  int connection_ = -1;
};

ControllerPose PoseAt(double x_m) {
  ControllerPose pose;
  pose.position_m[0] = x_m;
  return pose;
}

TEST(ControllerDevice, TheNewestPoseCountsAndTheForceComesBack) {
  Controller controller;
  const auto device = controller.Open(PoseAt(0.01), ",profile=touch");
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ((*device)->capabilities().peak_force_n, FindDeviceProfile("touch")->peak_force_n);
  EXPECT_EQ((*device)->capabilities().name, "controller on touch");
  DeviceState state;
  ASSERT_EQ((*device)->Read(5, &state), DeviceResult::kOk);
  EXPECT_EQ(state.pose.position_m.x(), 0.01);
  EXPECT_FALSE(state.has_velocity || state.has_grip);
  for (const double x_m : {0.02, 0.03, 0.04}) controller.Send(PoseAt(x_m));
  (*device)->SetEngaged(true);
  ASSERT_EQ((*device)->Read(5.001, &state), DeviceResult::kOk);
  EXPECT_EQ(state.pose.position_m.x(), 0.04);
  ASSERT_EQ((*device)->Write({.force_n = {1, 2, 3}, .torque_n_m = {4, 5, 6}}), DeviceResult::kOk);
  const auto force = controller.Force();
  ASSERT_TRUE(force.has_value());
  EXPECT_EQ(force->tick, 2U);
  EXPECT_EQ(force->time_s, 5.001);
  EXPECT_EQ(force->pose, 4U);
  EXPECT_EQ(force->flags, ControllerForce::kEngaged);
  EXPECT_EQ(Eigen::Vector3d(force->force_n), Eigen::Vector3d(1, 2, 3));
  EXPECT_EQ(Eigen::Vector3d(force->torque_n_m), Eigen::Vector3d(4, 5, 6));
  EXPECT_FALSE(controller.Force().has_value());
}

TEST(ControllerDevice, AHandThatFallsSilentStandsStillAndLetsGo) {
  Controller controller;
  ControllerPose pose = PoseAt(0.01);
  pose.velocity_m_per_s[2] = 0.5;
  pose.grip = 0.25;
  pose.buttons = 3;
  pose.flags = ControllerPose::kHasVelocity | ControllerPose::kHasGrip;
  const auto device = controller.Open(pose);
  ASSERT_TRUE(device.ok()) << device.status();
  DeviceState state;
  ASSERT_EQ((*device)->Read(7, &state), DeviceResult::kOk);
  EXPECT_EQ(state.velocity.linear_m_per_s.z(), 0.5);
  EXPECT_EQ(state.buttons, 3U);
  ASSERT_EQ((*device)->Read(7 + 0.05, &state), DeviceResult::kOk);
  EXPECT_TRUE(state.has_velocity);
  EXPECT_EQ(state.velocity.linear_m_per_s.z(), 0);
  EXPECT_EQ(state.buttons, 3U);
  ASSERT_EQ((*device)->Read(7 + 0.11, &state), DeviceResult::kOk);
  EXPECT_EQ(state.buttons, 0U);
  EXPECT_EQ(state.pose.position_m.x(), 0.01);
  EXPECT_EQ(state.grip, 0.25);
}

TEST(ControllerDevice, TheHandEndsWithItsController) {
  for (const bool says_so : {false, true}) {
    Controller controller;
    const auto device = controller.Open(PoseAt(0));
    ASSERT_TRUE(device.ok()) << device.status();
    DeviceState state;
    ASSERT_EQ((*device)->Read(1, &state), DeviceResult::kOk);
    if (says_so) {
      ControllerPose last;
      last.flags = ControllerPose::kEnded;
      controller.Send(last);
    } else {
      controller.Hang();
    }
    EXPECT_EQ((*device)->Write({.force_n = {1, 0, 0}}), DeviceResult::kOk);
    EXPECT_EQ((*device)->Read(1.001, &state), DeviceResult::kEnded);
  }
}

TEST(ControllerDevice, AControllerThatFetchesNoForceHoldsNobodyUp) {
  Controller controller;
  const auto device = controller.Open(PoseAt(0));
  ASSERT_TRUE(device.ok()) << device.status();
  DeviceState state;
  for (int tick = 0; tick < 20000; ++tick) {
    ASSERT_EQ((*device)->Read(1 + 0.001 * tick, &state), DeviceResult::kOk);
    ASSERT_EQ((*device)->Write({}), DeviceResult::kOk);
  }
  uint64_t fetched = 0, last = 0;
  while (const auto force = controller.Force()) ++fetched, last = force->tick;
  EXPECT_GT(fetched, 0U);
  EXPECT_LT(fetched, 20000U) << "the socket has no end";
  EXPECT_EQ(last, fetched) << "the first ones wait";
  // Nor does one that sends without end.
  int poses = 0;
  const ControllerPose pose = PoseAt(0.5);
  while (poses < 300) {
    controller.Send(pose);
    if (++poses % 100 == 0) {
      ASSERT_EQ((*device)->Read(30 + poses, &state), DeviceResult::kOk);
    }
  }
  EXPECT_EQ(state.pose.position_m.x(), 0.5);
}

TEST(ControllerDevice, BadPosesAreNamed) {
  const auto fault_of = [](auto change, size_t bytes = sizeof(ControllerPose)) {
    Controller controller;
    const auto device = controller.Open(PoseAt(0));
    EXPECT_TRUE(device.ok()) << device.status();
    if (!device.ok()) return std::string();
    ControllerPose pose;
    change(pose);
    std::vector<char> message(std::max(bytes, sizeof(pose)));
    std::memcpy(message.data(), &pose, sizeof(pose));
    controller.Send(message.data(), bytes);
    DeviceState state;
    EXPECT_EQ((*device)->Read(1, &state), DeviceResult::kFailed);
    return std::string((*device)->error());
  };
  EXPECT_THAT(fault_of([](ControllerPose& p) { p.position_m[1] = NAN; }), HasSubstr("position"));
  EXPECT_THAT(fault_of([](ControllerPose& p) { p.rotation_wxyz[0] = 2; }), HasSubstr("rotation"));
  EXPECT_THAT(fault_of([](ControllerPose& p) { p.rotation_wxyz[3] = INFINITY; }), HasSubstr("rotation"));
  EXPECT_THAT(fault_of([](ControllerPose& p) { p.flags = ControllerPose::kHasVelocity, p.velocity_m_per_s[0] = NAN; }),
              HasSubstr("velocity"));
  EXPECT_THAT(fault_of([](ControllerPose& p) { p.flags = ControllerPose::kHasGrip, p.grip = 1.5; }), HasSubstr("grip"));
  EXPECT_THAT(fault_of([](ControllerPose&) {}, 100), HasSubstr("120 bytes"));
  EXPECT_THAT(fault_of([](ControllerPose&) {}, 121), HasSubstr("120 bytes"));
}

TEST(ControllerDevice, WhatCannotBeOpenedIsRefused) {
  const auto refusal = [](const std::string& spec) { return MakeDevice(spec).status(); };
  EXPECT_THAT(std::string(refusal("controller").message()), HasSubstr("controller:PATH"));
  EXPECT_EQ(refusal("controller:" + std::string(200, 'x')).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refusal("controller:x,profile=glove").message()), HasSubstr("'glove' is not one of"));
  EXPECT_THAT(std::string(refusal("controller:x,patience=-1").message()), HasSubstr("patience '-1'"));
  EXPECT_THAT(std::string(refusal("controller:x,force=1").message()), HasSubstr("'force=1'"));
  EXPECT_EQ(refusal("controller:/nowhere/at/all").code(), absl::StatusCode::kUnavailable);
  Controller silent;
  EXPECT_EQ(refusal("controller:" + silent.path() + ",patience=0.01").code(), absl::StatusCode::kDeadlineExceeded);
  Controller wrong;
  ControllerPose first;
  first.position_m[0] = NAN;
  EXPECT_EQ(wrong.Open(first).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace palpate::station::controller_device_test
