#include "clients/station/haptic_loop.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <thread>

#include <gtest/gtest.h>

#include "clients/station/simulated_hand.h"

namespace {
thread_local bool counting = false;
thread_local long allocations = 0;
}  // namespace

// Sanitizers bring an operator new of their own; there the count cannot be made.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PALPATE_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define PALPATE_SANITIZED 1
#endif
#endif

#ifndef PALPATE_SANITIZED
// Counts what the loop must not do. Not inlined: the compiler must not see that new and delete are malloc and free.
[[gnu::noinline]] void* operator new(std::size_t size) {
  if (counting) ++allocations;
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif

namespace palpate::station::haptic_loop_test {
namespace {

using Eigen::Quaterniond;
using Eigen::Vector3d;

/// A device that is where the test puts it.
class ScriptedDevice final : public HapticDevice {
 public:
  const DeviceCapabilities& capabilities() const override { return capabilities_; }
  DeviceResult Read(double /*now_s*/, DeviceState* state) noexcept override {
    *state = next;
    return result;
  }
  DeviceResult Write(const DeviceForce& force) noexcept override {
    written = force;
    return DeviceResult::kOk;
  }
  void SetEngaged(bool value) noexcept override { engaged = value; }

  DeviceState next;
  DeviceResult result = DeviceResult::kOk;
  DeviceForce written;
  bool engaged = false;

 private:
  DeviceCapabilities capabilities_ = *FindDeviceProfile("premium1.5");
};

/// Drives a loop with a clock of its own, 1 ms a tick, against a plane z = wall_z.
class HapticLoopTest : public ::testing::Test {
 protected:
  void Make(HapticDevice* device, LoopOptions options = {}) {
    const SafetyLimits given = options.limits;
    options.limits = LimitsOf(device->capabilities());
    options.limits.ramp_time_s = 0;
    options.limits.passivity = given.passivity;
    loop_ = std::make_unique<HapticLoop>(device, options);
  }

  void Tick(int count = 1) {
    for (int i = 0; i < count; ++i) ASSERT_EQ(loop_->Tick(now_us_ += 1000), DeviceResult::kOk);
  }

  /// A model of the wall as a server would build it from the newest pose.
  void SendWall(double wall_z_m, double stiffness_n_per_m, double blend_time_s = 0) {
    PoseSample pose;
    if (loop_->NextPose(&pose)) newest_ = pose;
    sim::LocalModel& model = loop_->ModelSlot();
    model = sim::LocalModel{};
    model.pose_at_build = newest_.pose;
    model.station_time_us = newest_.station_time_us;
    model.validity_radius_m = 0.05;
    model.blend_time_s = blend_time_s;
    model.constraint_count = 1;
    model.constraints[0] = {.arm_T_m = Vector3d::Zero(),
                            .normal_W = Vector3d::UnitZ(),
                            .rest_penetration_m = wall_z_m - newest_.pose.position_m.z(),
                            .stiffness_n_per_m = stiffness_n_per_m};
    loop_->PublishModel(now_us_);
  }

  std::unique_ptr<HapticLoop> loop_;
  int64_t now_us_ = 5'000'000;
  PoseSample newest_;
};

TEST_F(HapticLoopTest, RendersNothingAndSendsNothingWithoutATool) {
  ScriptedDevice device;
  Make(&device);
  Tick(100);
  PoseSample pose;
  EXPECT_FALSE(loop_->NextPose(&pose));
  EXPECT_EQ(device.written.force_n, Vector3d::Zero());
  EXPECT_FALSE(device.engaged);
  EXPECT_EQ(loop_->statistics().cycles, 100U);
}

TEST_F(HapticLoopTest, PosesCarryButtonsAndGrip) {
  ScriptedDevice device;
  device.next.buttons = 6;
  device.next.has_grip = true;
  device.next.grip = 0.3;
  Make(&device);
  loop_->Attach({});
  Tick();
  PoseSample pose;
  ASSERT_TRUE(loop_->NextPose(&pose));
  EXPECT_EQ(pose.buttons, 6U);
  EXPECT_TRUE(pose.has_grip);
  EXPECT_EQ(pose.grip, 0.3);
  device.next.grip = std::nan("");
  Tick();
  ASSERT_TRUE(loop_->NextPose(&pose));
  EXPECT_FALSE(pose.has_grip);
}

TEST_F(HapticLoopTest, TakesTheToolUpWhereItIs) {
  ScriptedDevice device;
  LoopOptions options;
  options.placement.scale = 2;
  options.placement.rotation = Quaterniond(Eigen::AngleAxisd(M_PI / 2, Vector3d::UnitZ()));
  Make(&device, options);
  device.next.pose.position_m = Vector3d(0.01, 0.02, 0.03);
  device.next.pose.rotation = Quaterniond(Eigen::AngleAxisd(0.3, Vector3d::UnitX()));
  const sim::RigidPose tool{.position_m = {1, 2, 3}, .rotation = Quaterniond(Eigen::AngleAxisd(1, Vector3d::UnitY()))};
  loop_->Attach(tool);
  Tick();
  PoseSample pose;
  ASSERT_TRUE(loop_->NextPose(&pose));
  EXPECT_NEAR((pose.pose.position_m - tool.position_m).norm(), 0, 1e-12);
  EXPECT_NEAR(pose.pose.rotation.angularDistance(tool.rotation), 0, 1e-7);
  EXPECT_TRUE(device.engaged);
  // x of D is y of W, twice as long; a turn about x of D is one about y of W.
  device.next.pose.position_m.x() += 0.01;
  device.next.pose.rotation = Quaterniond(Eigen::AngleAxisd(0.5, Vector3d::UnitX()));
  Tick();
  ASSERT_TRUE(loop_->NextPose(&pose));
  EXPECT_NEAR((pose.pose.position_m - Vector3d(1, 2.02, 3)).norm(), 0, 1e-12);
  const Quaterniond wanted = Quaterniond(Eigen::AngleAxisd(0.2, Vector3d::UnitY())) * tool.rotation;
  EXPECT_NEAR(pose.pose.rotation.angularDistance(wanted), 0, 1e-7);
  EXPECT_EQ(pose.sequence, 2U);
}

TEST_F(HapticLoopTest, BringsTheToolToAFixedPlacementSmoothly) {
  ScriptedDevice device;
  LoopOptions options;
  options.placement.origin_m = Vector3d(0, 0, 1);
  options.align_time_s = 0.1;
  Make(&device, options);
  loop_->Attach({.position_m = {0.2, 0, 1}});
  double last_x_m = 0.2;
  for (int tick = 0; tick < 150; ++tick) {
    Tick();
    PoseSample pose;
    ASSERT_TRUE(loop_->NextPose(&pose));
    EXPECT_LE(std::abs(pose.pose.position_m.x() - last_x_m), 0.2 / 100 + 1e-9);
    last_x_m = pose.pose.position_m.x();
  }
  EXPECT_NEAR(last_x_m, 0, 1e-12);
}

TEST_F(HapticLoopTest, FeelsTheWallAtTheCurrentPoseWhateverTheModelsAge) {
  ScriptedDevice device;
  Make(&device);
  loop_->Attach({});
  Tick();
  SendWall(-0.01, 400);
  // The server falls silent, the hand goes on: the force follows the hand.
  for (int tick = 0; tick < 20; ++tick) {
    device.next.pose.position_m.z() = -0.0005 * (tick + 1);
    Tick();
  }
  EXPECT_EQ(device.written.force_n.z(), 0);
  device.next.pose.position_m.z() = -0.0125;
  Tick(3);
  EXPECT_NEAR(device.written.force_n.z(), 1.0, 1e-9);
  EXPECT_NEAR(loop_->statistics().model_age_ms.max(), 23, 0.2);
}

TEST_F(HapticLoopTest, TurnsForcesIntoTheDevicesFrame) {
  ScriptedDevice device;
  LoopOptions options;
  options.placement.rotation =
      Quaterniond(Eigen::AngleAxisd(M_PI / 2, Vector3d::UnitX()));  // z of W is y of D... turned by 90 degrees about x
  Make(&device, options);
  loop_->Attach({});
  Tick();
  SendWall(0.002, 500);
  Tick(5);
  const Vector3d wanted = options.placement.rotation.conjugate() * Vector3d(0, 0, 1);
  EXPECT_NEAR((device.written.force_n - wanted).norm(), 0, 1e-9);
}

TEST_F(HapticLoopTest, LetsTheForceFadeWhenModelsStopAndReturnWhenTheyComeBack) {
  ScriptedDevice device;
  LoopOptions options;
  options.limits.passivity = false;
  Make(&device, options);
  loop_->Attach({});
  Tick();
  SendWall(0.005, 400);
  Tick(20);
  EXPECT_NEAR(device.written.force_n.z(), 2, 1e-9);
  Tick(970);
  EXPECT_NEAR(device.written.force_n.z(), 2, 1e-9);
  Tick(1000);
  EXPECT_NEAR(device.written.force_n.z(), 1, 0.1);
  Tick(1100);
  EXPECT_EQ(device.written.force_n.z(), 0);
  EXPECT_EQ(loop_->safety().counters().stale_events, 1U);
  EXPECT_NEAR(loop_->statistics().silence_max_s, 3.09, 0.01);
  SendWall(0.005, 400);
  Tick();
  EXPECT_LT(device.written.force_n.z(), 0.05);
  Tick(300);
  EXPECT_NEAR(device.written.force_n.z(), 2, 1e-9);
}

TEST_F(HapticLoopTest, ReleasesWithinTheSlewOfItsDevice) {
  ScriptedDevice device;
  Make(&device);
  loop_->Attach({});
  Tick();
  SendWall(0.01, 500);
  Tick(20);
  double last_n = device.written.force_n.z();
  EXPECT_NEAR(last_n, 5, 1e-9);
  const double step_n = device.capabilities().force_slew_n_per_s * 0.001;
  int ticks = 0;
  for (bool done = false; !done; ++ticks) {
    done = loop_->Release();
    EXPECT_LE(last_n - device.written.force_n.z(), step_n + 1e-9);
    last_n = device.written.force_n.z();
    ASSERT_LT(ticks, HapticLoop::kReleaseTicks);
  }
  EXPECT_EQ(last_n, 0);
  EXPECT_EQ(ticks, static_cast<int>(std::ceil(5 / step_n)));
}

TEST_F(HapticLoopTest, WhatSpringsHoldIsCountedInTheDevicesFrame) {
  // A metre of the device is two of the world: what the springs hold is half as much in the device's frame.
  ScriptedDevice device;
  LoopOptions options;
  options.placement.scale = 2;
  Make(&device, options);
  loop_->Attach({});
  Tick();
  SendWall(0.002, 400);
  Tick(5);
  // Pressed down by 1 mm at the device: 2 mm deeper in the world. Then back, slowly: the springs must give all of it back.
  double given_j = 0;
  for (int tick = 0; tick <= 2000; ++tick) {
    const double z_m = -0.001 * std::sin(M_PI * tick / 2000);
    given_j += device.written.force_n.z() * (z_m - device.next.pose.position_m.z());
    device.next.pose.position_m.z() = z_m;
    if (tick % 16 == 0) SendWall(0.002, 400);
    Tick();
  }
  EXPECT_NEAR(given_j, 0, 1e-5);
  EXPECT_EQ(loop_->safety().gain(), 1);
}

TEST_F(HapticLoopTest, LetsGoWhenTheStreamEndsAndIgnoresModelsOfAnEarlierAttachment) {
  ScriptedDevice device;
  Make(&device);
  loop_->Attach({});
  Tick();
  SendWall(0.005, 400);
  Tick(10);
  EXPECT_GT(device.written.force_n.z(), 1);
  loop_->Detach();
  Tick(20);
  EXPECT_EQ(device.written.force_n, Vector3d::Zero());
  EXPECT_FALSE(device.engaged);
  SendWall(0.005, 400);  // still on its way when the stream ended
  loop_->Attach({});
  Tick(10);
  EXPECT_EQ(device.written.force_n, Vector3d::Zero());
  EXPECT_TRUE(device.engaged);
  SendWall(0.005, 400);
  Tick(10);
  EXPECT_GT(device.written.force_n.z(), 1);
}

TEST_F(HapticLoopTest, LetsGoWhenTheDeviceSaysNonsense) {
  ScriptedDevice device;
  Make(&device);
  loop_->Attach({});
  Tick();
  SendWall(0.005, 400);
  Tick(10);
  device.next.pose.position_m.x() = std::numeric_limits<double>::quiet_NaN();
  PoseSample pose;
  loop_->NextPose(&pose);
  Tick(20);
  EXPECT_EQ(device.written.force_n, Vector3d::Zero());
  EXPECT_FALSE(loop_->NextPose(&pose));
  EXPECT_EQ(loop_->safety().counters().nan_ticks, 20U);
  device.next.pose.position_m.x() = 0;
  Tick(10);
  EXPECT_GT(device.written.force_n.z(), 1);
}

TEST_F(HapticLoopTest, EndsWithItsDevice) {
  ScriptedDevice device;
  Make(&device);
  Tick(5);
  device.result = DeviceResult::kEnded;
  EXPECT_EQ(loop_->Tick(now_us_ += 1000), DeviceResult::kEnded);
  device.result = DeviceResult::kFailed;
  EXPECT_EQ(loop_->Tick(now_us_ += 1000), DeviceResult::kFailed);
}

TEST_F(HapticLoopTest, DerivesTheVelocityOfADeviceThatStatesNone) {
  ScriptedDevice device;
  Make(&device);
  loop_->Attach({});
  for (int tick = 0; tick < 100; ++tick) {
    device.next.pose.position_m.x() = 0.05 * 0.001 * tick;
    Tick();
  }
  PoseSample pose;
  ASSERT_TRUE(loop_->NextPose(&pose));
  EXPECT_NEAR(pose.velocity_m_per_s.x(), 0.05, 1e-6);
}

TEST_F(HapticLoopTest, DoesNotAllocate) {
#ifdef PALPATE_SANITIZED
  GTEST_SKIP() << "a sanitizer's operator new is in place";
#endif
  // The whole of it: hand, models, blending, safety, passivity, statistics.
  SimulatedHand hand(*ParseHandOptions("script=poke,rate=5"));
  LoopOptions options;
  Make(&hand, options);
  loop_->Attach({});
  Tick(2);
  counting = true;
  allocations = 0;
  for (int tick = 0; tick < 2000; ++tick) {
    if (tick % 8 == 0) SendWall(-0.01, 400, 0.008);
    loop_->Tick(now_us_ += 1000);
  }
  counting = false;
  EXPECT_EQ(allocations, 0);
  EXPECT_GT(loop_->statistics().contact_cycles, 100U);
  // The counter itself works.
  counting = true;
  void* memory = ::operator new(16);
  counting = false;
  ::operator delete(memory);
  EXPECT_EQ(allocations, 1);
}

TEST_F(HapticLoopTest, HandsValuesBetweenThreeRunningThreads) {
  SimulatedHand hand(*ParseHandOptions("script=poke,rate=5"));
  Make(&hand);
  std::atomic<bool> stop{false};
  RealTimeReport report;
  std::thread device_thread([&] {
    EXPECT_EQ(RunLoop(
                  loop_.get(), [&] { return stop.load(); }, &report),
              DeviceResult::kOk);
  });
  std::thread sender([&] {
    uint64_t last = 0;
    while (!stop.load()) {
      PoseSample pose;
      if (loop_->NextPose(&pose)) {
        EXPECT_GT(pose.sequence, last);
        last = pose.sequence;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_GT(last, 10U);
  });
  loop_->Attach({});
  for (int step = 0; step < 60; ++step) {
    sim::LocalModel& model = loop_->ModelSlot();
    model = sim::LocalModel{};
    model.constraint_count = 1;
    model.blend_time_s = 0.005;
    model.constraints[0] = {
        .arm_T_m = Vector3d::Zero(), .normal_W = Vector3d::UnitZ(), .rest_penetration_m = -0.001, .stiffness_n_per_m = 300};
    loop_->PublishModel(MonotonicNow_us());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_LE(loop_->statistics().lateness_us.Percentile(0.5), loop_->statistics().lateness_us.max() + 1);
  }
  stop.store(true);
  device_thread.join();
  sender.join();
  EXPECT_GT(loop_->statistics().models_taken, 10U);
  EXPECT_GT(loop_->statistics().cycles, 50U);
  EXPECT_FALSE(report.memory.empty());
  EXPECT_EQ(report.priority, report.priority_note.empty());
}

}  // namespace
}  // namespace palpate::station::haptic_loop_test
