#include "clients/station/recording.h"

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "clients/station/simulated_hand.h"

namespace palpate::station::recording_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string TempFile(const std::string& name) {
  return ::testing::TempDir() + "palpate_recording_" + std::to_string(getpid()) + "_" + name;
}

/// Records `ticks` ticks of a poking hand on a wall; returns the states that went through. The recorder's ring holds 8192 ticks, so none is
/// lost however late the writer comes.
std::vector<DeviceState> Record(const std::string& file, int ticks, const std::string& hand = "script=poke") {
  std::vector<DeviceState> states(ticks);
  auto device = RecordingDevice::Open(file, std::make_unique<SimulatedHand>(*ParseHandOptions(hand)));
  EXPECT_TRUE(device.ok()) << device.status();
  (*device)->SetEngaged(true);
  for (int tick = 0; tick < ticks; ++tick) {
    EXPECT_EQ((*device)->Read(0.001 * tick, &states[tick]), DeviceResult::kOk);
    DeviceForce force;
    force.force_n.z() = 300 * std::max(0.0, -0.02 - states[tick].pose.position_m.z());
    EXPECT_EQ((*device)->Write(force), DeviceResult::kOk);
  }
  EXPECT_EQ((*device)->lost(), 0U);
  return states;
}

TEST(Recording, ReplaysWhatWasRecordedBitForBit) {
  const std::string file = TempFile("exact");
  const std::vector<DeviceState> states = Record(file, 3000);
  auto replay = ReplayDevice::Open(file);
  ASSERT_TRUE(replay.ok()) << replay.status();
  EXPECT_EQ((*replay)->capabilities().peak_force_n, 12);
  for (const DeviceState& wanted : states) {
    DeviceState state;
    ASSERT_EQ((*replay)->Read(0, &state), DeviceResult::kOk);
    ASSERT_EQ(std::memcmp(state.pose.position_m.data(), wanted.pose.position_m.data(), sizeof(double) * 3), 0);
    ASSERT_EQ(std::memcmp(state.pose.rotation.coeffs().data(), wanted.pose.rotation.coeffs().data(), sizeof(double) * 4), 0);
    ASSERT_EQ(std::memcmp(state.velocity.linear_m_per_s.data(), wanted.velocity.linear_m_per_s.data(), sizeof(double) * 3), 0);
    ASSERT_EQ(state.has_velocity, wanted.has_velocity);
    ASSERT_EQ(state.buttons, wanted.buttons);
  }
  DeviceState state;
  EXPECT_EQ((*replay)->Read(0, &state), DeviceResult::kEnded);
  std::filesystem::remove(file);
}

TEST(Recording, KeepsButtonsAndGrip) {
  const std::string file = TempFile("grip");
  const std::vector<DeviceState> states = Record(file, 2500, "script=grasp,pedal=push,travel=0.02,dwell=0.2,speed=0.1");
  auto replay = ReplayDevice::Open(file);
  ASSERT_TRUE(replay.ok()) << replay.status();
  uint32_t all_buttons = 0;
  double least_grip = 1;
  for (const DeviceState& wanted : states) {
    DeviceState state;
    ASSERT_EQ((*replay)->Read(0, &state), DeviceResult::kOk);
    ASSERT_EQ(state.buttons, wanted.buttons);
    ASSERT_TRUE(state.has_grip);
    ASSERT_EQ(state.grip, wanted.grip);
    all_buttons |= state.buttons;
    least_grip = std::min(least_grip, state.grip);
  }
  EXPECT_EQ(all_buttons, 3U);
  EXPECT_EQ(least_grip, 0);
  // Without a grip there is none afterwards either.
  Record(file, 10);
  auto plain = ReplayDevice::Open(file);
  DeviceState state;
  ASSERT_EQ((*plain)->Read(0, &state), DeviceResult::kOk);
  EXPECT_FALSE(state.has_grip);
  std::filesystem::remove(file);
}

TEST(Recording, HoldsTheForcesAndTimes) {
  const std::string file = TempFile("forces");
  const std::vector<DeviceState> states = Record(file, 2000);
  const absl::StatusOr<Recording> recording = ReadRecording(file);
  ASSERT_TRUE(recording.ok()) << recording.status();
  ASSERT_EQ(recording->ticks.size(), 2000U);
  double largest_n = 0;
  for (int tick = 0; tick < 2000; ++tick) {
    EXPECT_EQ(recording->ticks[tick].time_s, 0.001 * tick);
    EXPECT_EQ(recording->ticks[tick].force_n[2], 300 * std::max(0.0, -0.02 - states[tick].pose.position_m.z()));
    largest_n = std::max(largest_n, recording->ticks[tick].force_n[2]);
  }
  EXPECT_GT(largest_n, 0.5);
  std::filesystem::remove(file);
}

TEST(Recording, ARecordingOfAReplayIsTheSameFile) {
  const std::string first = TempFile("first");
  const std::string second = TempFile("second");
  Record(first, 500);
  {
    auto replay = ReplayDevice::Open(first);
    ASSERT_TRUE(replay.ok());
    const absl::StatusOr<Recording> recording = ReadRecording(first);
    auto device = RecordingDevice::Open(second, *std::move(replay));
    ASSERT_TRUE(device.ok());
    for (const RecordingTick& tick : recording->ticks) {
      DeviceState state;
      ASSERT_EQ((*device)->Read(tick.time_s, &state), DeviceResult::kOk);
      (*device)->Write({.force_n = Eigen::Vector3d(tick.force_n)});
    }
  }
  const auto body = [](const std::string& file) {
    std::ifstream stream(file, std::ios::binary);
    std::string text((std::istreambuf_iterator<char>(stream)), {});
    return text.substr(sizeof(RecordingHeader));  // the headers differ in the device's name
  };
  EXPECT_EQ(body(first), body(second));
  std::filesystem::remove(first);
  std::filesystem::remove(second);
}

class BrokenRecording : public ::testing::Test {
 protected:
  /// The error after `damage` to a good file's bytes.
  static std::string ErrorAfter(const std::function<void(std::string*)>& damage) {
    const std::string file = TempFile("broken");
    Record(file, 10);
    std::ifstream in(file, std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(in)), {});
    damage(&bytes);
    std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
    const absl::StatusOr<Recording> recording = ReadRecording(file);
    std::filesystem::remove(file);
    return recording.ok() ? "" : std::string(recording.status().message());
  }
  static void Put(std::string* bytes, size_t offset, double value) { std::memcpy(bytes->data() + offset, &value, sizeof(value)); }
};

TEST_F(BrokenRecording, IsRefusedNamingFileAndOffset) {
  EXPECT_EQ(ErrorAfter([](std::string*) {}), "");
  EXPECT_THAT(ErrorAfter([](std::string* b) { b->clear(); }), AllOf(HasSubstr("broken"), HasSubstr("byte 0"), HasSubstr("header")));
  EXPECT_THAT(ErrorAfter([](std::string* b) { b->resize(100); }), AllOf(HasSubstr("byte 100"), HasSubstr("header")));
  EXPECT_THAT(ErrorAfter([](std::string* b) { (*b)[0] = 'X'; }), HasSubstr("PALPREC1"));
  EXPECT_THAT(ErrorAfter([](std::string* b) { (*b)[12] = 1; }), HasSubstr("tick size"));
  EXPECT_THAT(ErrorAfter([](std::string* b) { b->resize(192); }), HasSubstr("no tick"));
  EXPECT_THAT(ErrorAfter([](std::string* b) { b->pop_back(); }), AllOf(HasSubstr("byte 2111"), HasSubstr("inside a tick")));
  EXPECT_THAT(ErrorAfter([](std::string* b) { Put(b, 24, -1); }), HasSubstr("peak_force_n"));
  EXPECT_THAT(ErrorAfter([](std::string* b) { Put(b, 192 + 8, std::numeric_limits<double>::quiet_NaN()); }),
              AllOf(HasSubstr("byte 192"), HasSubstr("finite")));
  EXPECT_THAT(ErrorAfter([](std::string* b) { Put(b, 192 + 32, 2); }), HasSubstr("rotation"));
  EXPECT_THAT(ErrorAfter([](std::string* b) { Put(b, 192, 7); }), AllOf(HasSubstr("byte 384"), HasSubstr("time")));
}

TEST_F(BrokenRecording, NeverCrashesOnRandomDamage) {
  std::srand(5);
  for (int round = 0; round < 60; ++round) {
    ErrorAfter([](std::string* b) {
      for (int i = 0; i < 8; ++i) (*b)[std::rand() % b->size()] = static_cast<char>(std::rand());
      if (std::rand() % 2 == 0) b->resize(std::rand() % b->size());
    });
  }
}

TEST(Recording, CannotBeOpenedWhereNothingIs) {
  EXPECT_THAT(std::string(ReadRecording("/nonexistent/file").status().message()), HasSubstr("/nonexistent/file"));
  EXPECT_THAT(std::string(MakeDevice("record:/nonexistent/file,inner=sim").status().message()), HasSubstr("/nonexistent/file"));
}

}  // namespace
}  // namespace palpate::station::recording_test
