// The whole station against a haptic service of our own, over a socket.
#include "clients/station/station.h"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "clients/station/simulated_hand.h"
#include "tests/clients/station/fake_haptic_server.h"

namespace palpate::station::station_test {
namespace {

using ::palpate::testing::FakeHapticServer;
using ::testing::HasSubstr;

client::Connection ConnectTo(const FakeHapticServer& server) {
  client::ConnectionOptions options;
  options.target = server.address();
  return *client::Connection::Open(options);
}

StationOptions Options(const std::string& report_name) {
  StationOptions options;
  options.scene_id = "scene";
  options.tool = "tool";
  options.station_name = "test";
  options.live = false;
  options.patience_s = 20;
  options.report_file = ::testing::TempDir() + "palpate_station_" + std::to_string(getpid()) + "_" + report_name + ".json";
  options.loop.limits.ramp_time_s = 0.1;
  return options;
}

nlohmann::json ReadReport(const StationOptions& options) {
  std::ifstream file(options.report_file);
  nlohmann::json report = nlohmann::json::parse(file);
  std::filesystem::remove(options.report_file);
  return report;
}

std::unique_ptr<HapticDevice> Hand(const std::string& spec = "sim:script=poke,rate=4,speed=0.2,depth=0.01") { return *MakeDevice(spec); }

TEST(Station, FeelsTheWallAndReports) {
  const FakeHapticServer server({.wall_z_m = -0.01, .stiffness_n_per_m = 300, .start_z_m = 0.02});
  StationOptions options = Options("feels");
  options.run_s = 2.5;
  const std::atomic<bool> stop{false};
  const absl::Status status = RunStation(options, ConnectTo(server), Hand(), stop);
  EXPECT_TRUE(status.ok()) << status;
  const nlohmann::json report = ReadReport(options);
  EXPECT_GT(report["cycles"].get<int>(), 100);
  EXPECT_GT(report["rate_hz"].get<double>(), 0);
  EXPECT_GT(report["contact_cycles"].get<int>(), 10);
  EXPECT_GT(report["force_n"]["max"].get<double>(), 0.2);
  EXPECT_LT(report["force_n"]["max"].get<double>(), 12.0);
  EXPECT_GT(report["force_n"]["mean"].get<double>(), 0);
  EXPECT_GT(report["models_received"].get<int>(), 10);
  EXPECT_EQ(report["models_refused"], 0);
  EXPECT_EQ(report["reconnects"], 0);
  EXPECT_GT(report["model_age_ms"]["p50"].get<double>(), 0);
  for (const char* key : {"p50", "p99", "p999", "max"}) EXPECT_TRUE(report["jitter_us"][key].is_number()) << key;
  EXPECT_LE(report["jitter_us"]["p50"], report["jitter_us"]["max"]);
  EXPECT_TRUE(report["missed"].is_number_unsigned());
  EXPECT_EQ(report["safety"]["nan_ticks"], 0);
  EXPECT_GT(server.poses(), 10U);
  EXPECT_EQ(server.out_of_order_poses(), 0U);
  EXPECT_EQ(server.last_attach().device_max_stiffness_n_per_m(), 5000);
  EXPECT_EQ(server.last_attach().station(), "test");
}

TEST(Station, SendsPedalPowerAndDutyAndReportsWhatTheToolDid) {
  const FakeHapticServer server({.wall_z_m = -0.01, .start_z_m = 0.02, .kind = v1::INSTRUMENT_KIND_CAVITRON, .max_power_w = 60});
  StationOptions options = Options("burns");
  options.run_s = 2.5;
  options.controls = {.pedal_button = kHandPedalButton, .power_w = 35, .duty = 0.5};
  const std::atomic<bool> stop{false};
  const absl::Status status = RunStation(options, ConnectTo(server), Hand("sim:script=poke,pedal=push,rate=4,speed=0.2,depth=0.01"), stop);
  ASSERT_TRUE(status.ok()) << status;
  const nlohmann::json report = ReadReport(options);
  EXPECT_GT(report["sent"]["pedal_poses"].get<int>(), 10);
  EXPECT_EQ(report["sent"]["pedal_presses"], 1) << "down from the touch on";
  EXPECT_EQ(report["sent"]["power_w"], 35);
  EXPECT_EQ(report["sent"]["duty"], 0.5);
  EXPECT_EQ(server.last_pedal_pose().power_w(), 35);
  EXPECT_EQ(server.last_pedal_pose().duty(), 0.5);
  EXPECT_GT(report["tool"]["touching_s"].get<double>(), 0);
  EXPECT_GT(report["tool"]["cutting_s"].get<double>(), 0);
  EXPECT_EQ(report["tool"]["grasping_s"], 0);
  // 1 g for each step of 1/120 s with the pedal down, but for models that were overtaken.
  EXPECT_NEAR(report["tool"]["removed_mass_kg"].get<double>(), 0.001 * 120 * report["tool"]["cutting_s"].get<double>(), 1e-9);
}

TEST(Station, SendsTheJawAngleOfItsGrip) {
  const FakeHapticServer server({.start_z_m = 0.02, .kind = v1::INSTRUMENT_KIND_FORCEPS, .max_jaw_angle_rad = 1.2});
  StationOptions options = Options("grasps");
  options.run_s = 2.5;
  options.controls.jaw_angle_rad = 0.9;
  const std::atomic<bool> stop{false};
  const absl::Status status = RunStation(options, ConnectTo(server), Hand("sim:script=grasp,travel=0.01,dwell=0.3,speed=0.2"), stop);
  ASSERT_TRUE(status.ok()) << status;
  const nlohmann::json report = ReadReport(options);
  EXPECT_GE(report["sent"]["jaw_closings"].get<int>(), 1);
  EXPECT_NEAR(report["sent"]["jaw_angle_rad"]["max"].get<double>(), 0.9, 1e-9);
  EXPECT_EQ(report["sent"]["jaw_angle_rad"]["min"], 0);
  EXPECT_EQ(report["sent"]["pedal_poses"], 0);
  EXPECT_GT(report["tool"]["grasping_s"].get<double>(), 0);
  EXPECT_EQ(report["tool"]["max_grasp_force_n"], 2);
}

TEST(Station, EndsWhenItsControlsDoNotFitTheInstrument) {
  const FakeHapticServer server({});
  StationOptions options = Options("misfit");
  options.controls.pedal_button = 0;
  const std::atomic<bool> stop{false};
  const absl::Status status = RunStation(options, ConnectTo(server), Hand(), stop);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), ::testing::AllOf(HasSubstr("'tool'"), HasSubstr("--pedal-button"), HasSubstr("probe")));
  EXPECT_EQ(server.poses(), 0U);
  EXPECT_EQ(ReadReport(options)["poses_sent"], 0);
}

TEST(Station, WorksWithALaparoscopicDevice) {
  const FakeHapticServer server({.wall_z_m = -0.01, .stiffness_n_per_m = 800, .start_z_m = 0.01});
  StationOptions options = Options("lie");
  options.run_s = 3;
  const std::atomic<bool> stop{false};
  const absl::Status status =
      RunStation(options, ConnectTo(server), Hand("lie:inner=sim:script=poke,rate=2,speed=0.2,depth=0.01,max_force=20"), stop);
  ASSERT_TRUE(status.ok()) << status;
  const nlohmann::json report = ReadReport(options);
  EXPECT_GT(report["contact_cycles"].get<int>(), 10);
  EXPECT_GT(report["force_n"]["max"].get<double>(), 0.2);
  EXPECT_LE(report["force_n"]["max"].get<double>(), 7.0001);
  EXPECT_EQ(report["device_limited_ticks"], 0) << "the safety chain keeps within the motors along the shaft";
  EXPECT_EQ(server.last_attach().device_max_stiffness_n_per_m(), 1000);
  EXPECT_EQ(report["safety"]["nan_ticks"], 0);
}

TEST(Station, ComesBackWhenStreamsBreak) {
  const FakeHapticServer server({.models_per_stream = 20});
  StationOptions options = Options("breaks");
  options.run_s = 2;
  const std::atomic<bool> stop{false};
  const absl::Status status = RunStation(options, ConnectTo(server), Hand(), stop);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_GE(ReadReport(options)["reconnects"].get<int>(), 2);
  EXPECT_GE(server.attachments(), 3);
}

/// Tells what a station does with its device.
class WatchedDevice final : public HapticDevice {
 public:
  struct Seen {
    std::atomic<uint64_t> reads{0};
    std::atomic<bool> engaged{false};
  };
  WatchedDevice(std::unique_ptr<HapticDevice> inner, Seen* seen) : inner_(std::move(inner)), seen_(seen) {}
  const DeviceCapabilities& capabilities() const override { return inner_->capabilities(); }
  DeviceResult Read(double now_s, DeviceState* state) noexcept override {
    seen_->reads.fetch_add(1);
    return inner_->Read(now_s, state);
  }
  DeviceResult Write(const DeviceForce& force) noexcept override { return inner_->Write(force); }
  void SetEngaged(bool engaged) noexcept override {
    inner_->SetEngaged(engaged);
    seen_->engaged.store(engaged);
  }

 private:
  std::unique_ptr<HapticDevice> inner_;
  Seen* seen_;
};

/// Waits until `condition` holds. False after a time that no machine needs.
bool Eventually(const std::function<bool()>& condition) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > give_up) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

TEST(Station, WaitsForAServerThatComesAndGoes) {
  FakeHapticServer server({});
  const client::Connection connection = ConnectTo(server);
  server.Stop();
  StationOptions options = Options("late");
  options.patience_s = 0;
  WatchedDevice::Seen seen;
  std::atomic<bool> stop{false};
  absl::Status status;
  std::thread station([&] { status = RunStation(options, connection, std::make_unique<WatchedDevice>(Hand(), &seen), stop); });
  // The loop runs, without a tool.
  EXPECT_TRUE(Eventually([&] { return seen.reads > 100; }));
  EXPECT_FALSE(seen.engaged);
  EXPECT_EQ(server.attachments(), 0);
  for (int round = 1; round <= 2; ++round) {
    server.Start();
    EXPECT_TRUE(Eventually([&] { return seen.engaged.load(); }));
    EXPECT_EQ(server.attachments(), round);
    if (round == 2) break;
    server.Stop();
    EXPECT_TRUE(Eventually([&] { return !seen.engaged.load(); }));
  }
  stop.store(true);
  station.join();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(ReadReport(options)["reconnects"], 1);
}

TEST(Station, TellsWhenItsDeviceIsFree) {
  // Even if nothing else of the station comes to an end: it is the loop that looks at `stop`.
  const FakeHapticServer server({.wall_z_m = 0.005});
  StationOptions options = Options("free");
  WatchedDevice::Seen seen;
  std::atomic<bool> stop{false};
  std::atomic<bool> released{false};
  options.on_released = [&] { released.store(true); };
  std::thread station(
      [&] { EXPECT_TRUE(RunStation(options, ConnectTo(server), std::make_unique<WatchedDevice>(Hand(), &seen), stop).ok()); });
  EXPECT_TRUE(Eventually([&] { return seen.engaged.load(); }));
  EXPECT_FALSE(released);
  stop.store(true);
  EXPECT_TRUE(Eventually([&] { return released.load(); }));
  station.join();
  ReadReport(options);
}

TEST(Station, GivesUpWhenItsPatienceEnds) {
  FakeHapticServer server({});
  const client::Connection connection = ConnectTo(server);
  server.Stop();
  StationOptions options = Options("patience");
  options.patience_s = 0.5;
  const std::atomic<bool> stop{false};
  const absl::Status status = RunStation(options, connection, Hand(), stop);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr(server.address()));
  const nlohmann::json report = ReadReport(options);
  EXPECT_EQ(report["contact_cycles"], 0);
  EXPECT_GT(report["cycles"].get<int>(), 50);
}

TEST(Station, SaysWhyItWasRefused) {
  const FakeHapticServer server({.attach_status = grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "attach.tool: no tool 'tool'")});
  const std::atomic<bool> stop{false};
  StationOptions options = Options("refused");
  options.report_file.clear();
  const absl::Status status = RunStation(options, ConnectTo(server), Hand(), stop);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()), "attach.tool: no tool 'tool'");
}

TEST(Station, LeavesBrokenModelsAside) {
  const FakeHapticServer server({.start_z_m = 0.02, .broken_models = true});
  StationOptions options = Options("broken");
  options.run_s = 1.5;
  const std::atomic<bool> stop{false};
  EXPECT_TRUE(RunStation(options, ConnectTo(server), Hand(), stop).ok());
  const nlohmann::json report = ReadReport(options);
  EXPECT_GT(report["models_refused"].get<int>(), 5);
  EXPECT_GT(report["contact_cycles"].get<int>(), 10);
  EXPECT_EQ(report["safety"]["nan_ticks"], 0);
}

TEST(Station, EndsWithItsRecording) {
  const FakeHapticServer server({});
  const std::string file = ::testing::TempDir() + "palpate_station_" + std::to_string(getpid()) + ".rec";
  const std::atomic<bool> stop{false};
  StationOptions options = Options("recording");
  options.run_s = 0.5;
  EXPECT_TRUE(RunStation(options, ConnectTo(server), Hand("record:" + file + ",inner=sim:script=poke"), stop).ok());
  ReadReport(options);
  options.run_s = 0;
  EXPECT_TRUE(RunStation(options, ConnectTo(server), Hand("replay:" + file), stop).ok());
  const nlohmann::json report = ReadReport(options);
  EXPECT_THAT(report["device"].get<std::string>(), HasSubstr("replay of simulated hand"));
  EXPECT_EQ(report["cycles"].get<size_t>() * 192 + 192, std::filesystem::file_size(file));
  std::filesystem::remove(file);
}

TEST(Station, NamesAReportThatCannotBeWritten) {
  const FakeHapticServer server({});
  StationOptions options = Options("nowhere");
  options.report_file = "/nonexistent/report.json";
  options.run_s = 0.2;
  const std::atomic<bool> stop{false};
  EXPECT_THAT(std::string(RunStation(options, ConnectTo(server), Hand(), stop).message()), HasSubstr("/nonexistent/report.json"));
}

}  // namespace
}  // namespace palpate::station::station_test
