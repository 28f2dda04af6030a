// Paths of tools between key poses, recorded hands, and what instruments cannot do.
#include "clients/job/tool_motion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string>

#include "clients/job/json_text.h"
#include "clients/station/recording.h"
#include "sim/record/journal_entries.h"
#include "tests/sim/record/record_builders.h"
#include "tests/support/device_test.h"

namespace palpate::job::tool_motion_test {
namespace {

using Eigen::Vector3d;
using ::testing::HasSubstr;

v1::Trajectory TrajectoryOf(const std::string& json) {
  v1::Trajectory trajectory;
  const absl::Status status = ParseJsonMessage(json, "trajectory", &trajectory);
  EXPECT_TRUE(status.ok()) << status;
  return trajectory;
}

sim::ToolDescription Tool(sim::InstrumentKind kind = sim::InstrumentKind::kProbe) {
  sim::ToolDescription tool;
  tool.name = "tool";
  tool.rest_pose.position_m = {1, 2, 3};
  tool.instrument.kind = kind;
  return tool;
}

constexpr char kKeys[] = R"("keys": [{"time_s": 1, "pose": {"position_m": {"x": 0}}}, {"time_s": 2, "pose": {"position_m": {"x": 1}}},
  {"time_s": 4, "pose": {"position_m": {"x": 1}, "rotation": {"z": 1}}}])";

double XAt(const ToolMotion& motion, double time_s) {
  const auto command = motion.At(time_s);
  EXPECT_TRUE(command.has_value()) << time_s;
  return command ? command->device_pose.position_m.x() : NAN;
}

TEST(ToolMotionTest, GoesThroughItsKeys) {
  for (const char* kind : {"LINEAR", "SMOOTH", "CUBIC", "STEP"}) {
    PALPATE_TEST_ASSIGN(
        const auto motion,
        MakeTrajectory(TrajectoryOf(std::string(R"({"interpolation": "INTERPOLATION_)") + kind + "\"," + kKeys + "}"), Tool(), "t"));
    EXPECT_FALSE(motion->At(0.999).has_value()) << "the scene has it where it is";
    EXPECT_NEAR(XAt(*motion, 1), 0, 1e-12) << kind;
    EXPECT_NEAR(XAt(*motion, 2), 1, 1e-12) << kind;
    EXPECT_NEAR(XAt(*motion, 100), 1, 1e-12) << kind;
  }
}

TEST(ToolMotionTest, InterpolatesAsItIsTold) {
  const auto at = [](const char* kind, double time_s) {
    const auto motion =
        MakeTrajectory(TrajectoryOf(std::string(R"({"interpolation": "INTERPOLATION_)") + kind + "\"," + kKeys + "}"), Tool(), "t");
    EXPECT_TRUE(motion.ok()) << motion.status();
    return motion.ok() ? XAt(**motion, time_s) : NAN;
  };
  EXPECT_NEAR(at("LINEAR", 1.25), 0.25, 1e-12);
  EXPECT_NEAR(at("SMOOTH", 1.25), 3 * 0.0625 - 2 * 0.015625, 1e-12);
  EXPECT_NEAR(at("STEP", 1.999), 0, 1e-12);
  // Hermite with slopes 1 and (1 - 0) / (4 - 1).
  const double s = 0.25, h01 = 3 * s * s - 2 * s * s * s, h10 = s * s * s - 2 * s * s + s, h11 = s * s * s - s * s;
  EXPECT_NEAR(at("CUBIC", 1.25), h01 + h10 * 1 + h11 / 3, 1e-12);
  const auto motion = MakeTrajectory(TrajectoryOf(std::string("{") + kKeys + "}"), Tool(), "t");
  ASSERT_TRUE(motion.ok());
  const auto half = (*motion)->At(3);
  ASSERT_TRUE(half.has_value());
  EXPECT_NEAR(half->device_pose.rotation.angularDistance(Eigen::Quaterniond::Identity()), M_PI / 2, 1e-9);
}

TEST(ToolMotionTest, RelativePathsBeginAtTheToolsPlace) {
  PALPATE_TEST_ASSIGN(
      const auto motion,
      MakeTrajectory(TrajectoryOf(R"({"relative": true, "keys": [{"time_s": 0}, {"time_s": 1, "pose": {"position_m": {"z": -0.5}}}]})"),
                     Tool(), "t"));
  EXPECT_EQ(motion->At(0)->device_pose.position_m, Vector3d(1, 2, 3));
  EXPECT_EQ(motion->At(2)->device_pose.position_m, Vector3d(1, 2, 2.5));
}

TEST(ToolMotionTest, RefusesWhatAnInstrumentCannotDo) {
  const auto complaint = [](const std::string& key, sim::InstrumentKind kind) {
    return std::string(MakeTrajectory(TrajectoryOf("{\"keys\": [" + key + "]}"), Tool(kind), "tools[0].trajectory").status().message());
  };
  EXPECT_THAT(complaint(R"({"jaw_angle_rad": 0.5})", sim::InstrumentKind::kProbe),
              HasSubstr("tools[0].trajectory.keys[0].jaw_angle_rad: is of no use to probes"));
  EXPECT_THAT(complaint(R"({"jaw_angle_rad": 1.5})", sim::InstrumentKind::kForceps), HasSubstr("jaw_angle_rad: 1.5 is outside [0, 1]"));
  EXPECT_THAT(complaint(R"({"pedal": true})", sim::InstrumentKind::kScalpel), HasSubstr("pedal: is of no use to scalpels"));
  EXPECT_THAT(complaint(R"({"power_w": 100, "pedal": true})", sim::InstrumentKind::kCauteryHook),
              HasSubstr("power_w: 100 is outside [0, 60]"));
  EXPECT_THAT(complaint(R"({"pose": {"position_m": {"x": 1000}}})", sim::InstrumentKind::kProbe), HasSubstr("position_m.x"));
  EXPECT_EQ(complaint(R"({"power_w": 30, "pedal": true})", sim::InstrumentKind::kCauteryHook), "");
}

/// A device whose handle goes 10 mm along +x of D in 0.1 s, with a grip that opens and a button.
class MovingHandle final : public station::HapticDevice {
 public:
  MovingHandle() {
    capabilities_ = {.name = "handle",
                     .degrees_of_freedom = 6,
                     .peak_force_n = 5,
                     .peak_torque_n_m = 0,
                     .max_stiffness_n_per_m = 1000,
                     .max_damping_n_s_per_m = 1,
                     .workspace_radius_m = 0.1,
                     .force_slew_n_per_s = 500};
  }
  const station::DeviceCapabilities& capabilities() const override { return capabilities_; }
  station::DeviceResult Read(double now_s, station::DeviceState* state) noexcept override {
    *state = {};
    state->pose.position_m = {0.05 + 0.1 * now_s, 0, 0};
    state->has_grip = true;
    state->grip = 10 * now_s;
    state->buttons = now_s > 0.05 ? 4 : 0;
    return station::DeviceResult::kOk;
  }
  station::DeviceResult Write(const station::DeviceForce& /*force*/) noexcept override { return station::DeviceResult::kOk; }

 private:
  station::DeviceCapabilities capabilities_;
};

TEST(ToolMotionTest, RecordedHandsAreMappedIntoTheScene) {
  const std::string file = ::testing::TempDir() + "/hand.palprec";
  {
    PALPATE_TEST_ASSIGN(const auto device, station::RecordingDevice::Open(file, std::make_unique<MovingHandle>()));
    for (int i = 0; i <= 100; ++i) {
      station::DeviceState state;
      ASSERT_EQ(device->Read(0.001 * i, &state), station::DeviceResult::kOk);
      ASSERT_EQ(device->Write({}), station::DeviceResult::kOk);
    }
  }
  v1::HandRecording recording;
  recording.set_file(file);
  recording.set_start_s(2);
  recording.set_scale(3);
  recording.mutable_rotation()->set_w(1);  // a quarter turn about z: x of D is y of W
  recording.mutable_rotation()->set_z(1);
  recording.set_pedal_button(2);
  recording.set_open_jaw_angle_rad(0.8);
  const sim::ToolDescription tool = Tool(sim::InstrumentKind::kClipApplier);
  PALPATE_TEST_ASSIGN(const auto motion, MakeRecordedHand(recording, file, tool, "tools[0].recording"));
  EXPECT_FALSE(motion->At(1.9).has_value());
  const auto begin = motion->At(2.0);
  ASSERT_TRUE(begin.has_value());
  EXPECT_LT((begin->device_pose.position_m - tool.rest_pose.position_m).norm(), 1e-12) << "it begins where the tool is";
  EXPECT_LT(begin->device_pose.rotation.angularDistance(tool.rest_pose.rotation), 1e-9);
  const auto later = motion->At(2.0805);
  ASSERT_TRUE(later.has_value());
  EXPECT_LT((later->device_pose.position_m - (tool.rest_pose.position_m + Vector3d(0, 3 * 0.1 * 0.0805, 0))).norm(), 1e-9);
  EXPECT_NEAR(later->jaw_angle_rad, 0.8 * 0.805, 1e-9);
  EXPECT_TRUE(later->pedal);
  EXPECT_FALSE(begin->pedal);
  recording.set_power_w(10);
  EXPECT_THAT(std::string(MakeRecordedHand(recording, file, tool, "tools[0].recording").status().message()),
              HasSubstr("power_w: is of no use"));
  EXPECT_THAT(std::string(MakeRecordedHand(recording, file + ".not", tool, "tools[0].recording").status().message()),
              HasSubstr("tools[0].recording.file: "));
  std::filesystem::remove(file);
}

TEST(ToolMotionTest, RecordedToolsAreToldAsTheyWereStepByStep) {
  v1::JournalEntry head = test::HeadEntry(7, 5);  // a recording that begins in the middle of a scene
  head.mutable_head()->add_tools("tool");
  std::string bytes = record::EncodeFileHeader() + record::EncodeEntry(head);
  uint64_t sequence = 7;
  for (uint64_t step = 1; step <= 4; ++step) {
    v1::JournalEntry entry = test::StepEntry(++sequence, step);
    sim::ToolCommand command;
    command.device_pose.position_m.x() = 0.1 * static_cast<double>(step);
    command.velocity_m_per_s.x() = 7;
    // In step 3 nobody has it; in step 4 the pose is replaced while the step runs.
    if (step != 3) record::EncodeCommands({command}, entry.mutable_step()->mutable_commands());
    command.device_pose.position_m.x() = 0.5;
    if (step == 4) {
      entry.mutable_step()->set_has_late_commands(true);
      record::EncodeCommands({command}, entry.mutable_step()->mutable_late_commands());
    }
    bytes += record::EncodeEntry(entry);
    if (step != 2) continue;
    v1::JournalEntry reset;
    reset.set_sequence(++sequence);
    reset.mutable_reset()->set_reset_by("somebody");
    bytes += record::EncodeEntry(reset);
  }
  const test::TestFolder folder;
  test::PutBytes(folder.path() / "hour.plrec", bytes);
  v1::ToolReplay replay;
  replay.set_start_s(2);
  PALPATE_TEST_ASSIGN(const auto motion, MakeReplay(replay, folder.path() / "hour.plrec", Tool(), "tools[0].replay"));
  EXPECT_FALSE(motion->At(2).has_value());
  EXPECT_EQ(XAt(*motion, 2.01), 0.1) << "it is there at the end of the step";
  EXPECT_EQ(XAt(*motion, 2.015), 0.2);
  EXPECT_EQ(XAt(*motion, 2.02), 0.2);
  EXPECT_FALSE(motion->At(2.03).has_value());
  EXPECT_EQ(XAt(*motion, 2.04), 0.5);
  EXPECT_FALSE(motion->At(2.05).has_value()) << "behind the end nobody has it";
  EXPECT_EQ(motion->At(2.01)->velocity_m_per_s.x(), 7);
  EXPECT_TRUE(motion->has_velocity());
}

}  // namespace
}  // namespace palpate::job::tool_motion_test
