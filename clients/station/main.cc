// The training station: a haptic device at 1 kHz on one side, a Palpate server on the other.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <CLI/CLI.hpp>

#include "clients/cpp/command_line.h"
#include "clients/station/station.h"

namespace {

using palpate::station::ControlOptions;
using palpate::station::DeviceSpecHelp;
using palpate::station::Placement;
using palpate::station::StationOptions;

// Exit codes, also in --help.
constexpr int kOk = 0;
constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr int kNotAttached = 3;
constexpr int kDeviceFailed = 4;

std::atomic<bool> stop{false};
std::atomic<bool> released{false};  // the device renders no force any more
std::atomic<int> signals{0};
std::atomic<int> urgent_signal{0};  // the second one
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void EndIfUrgent() {
  if (urgent_signal.load() != 0 && released.load()) _exit(128 + urgent_signal.load());
}

void OnSignal(int signal) {
  stop.store(true);
  switch (signals.fetch_add(1)) {
    case 0:
      return;
    case 1:
      // Ends without waiting for the server, but not before the hand has been let go: the loop does that within its slew.
      urgent_signal.store(signal);
      EndIfUrgent();
      return;
    default:
      _exit(128 + signal);  // the device hangs
  }
}

int ExitCode(const absl::Status& status) {
  if (status.ok()) return kOk;
  if (status.code() == absl::StatusCode::kUnavailable) return kDeviceFailed;
  if (status.code() == absl::StatusCode::kFailedPrecondition) return kUsage;  // options that the instrument has no use for
  if (status.code() == absl::StatusCode::kPermissionDenied || status.code() == absl::StatusCode::kDataLoss) return kFailed;
  return kNotAttached;
}

/// What the command line says, before it is checked.
struct CommandLine {
  palpate::client::ConnectionOptions connection;
  StationOptions station;
  std::string device_spec = "sim";
  std::string log_level = "info";
  std::vector<double> origin_m;       // empty: not given
  std::vector<double> rotation_wxyz;  // likewise
  double age_limit_ms = StationOptions().loop.limits.max_silence_s * 1e3;
  double patience_s = -1;  // negative: not given
  bool quiet = false;
  bool no_passivity = false;
};

void AddRunOptions(CLI::App* app, CommandLine* line) {
  app->add_option("--server", line->connection.target, "server, HOST:PORT")->capture_default_str();
  app->add_option("--scene", line->station.scene_id, "id of the scene")->required();
  app->add_option("--tool", line->station.tool, "name of the tool in the scene")->required();
  app->add_option("--device", line->device_spec, "device, see below")->capture_default_str();
  app->add_option("--name", line->station.station_name, "name of this station in the server's logs; default: the host's name");
  app->add_option("--seconds", line->station.run_s, "end so long after the tool was attached; 0 = run until Ctrl-C")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  app->add_option("--wait", line->patience_s,
                  "give up when not attached within so many seconds; 0 = never; default: 30 with --seconds, else 0")
      ->check(CLI::Range(0.0, 1e9));
  app->add_option("--report", line->station.report_file, "write a JSON report to this file at the end");
}

void AddLoopOptions(CLI::App* app, CommandLine* line) {
  app->add_option("--rate", line->station.loop.rate_hz, "rate of the device loop, Hz")
      ->check(CLI::Range(10.0, 10000.0))
      ->capture_default_str();
  app->add_option("--send-rate", line->station.send_rate_hz, "poses a second to the server at most, Hz")
      ->check(CLI::Range(1.0, 10000.0))
      ->capture_default_str();
  app->add_option("--scale", line->station.loop.placement.scale, "world metres per device metre")
      ->check(CLI::Range(0.001, 1000.0))
      ->capture_default_str();
  app->add_option("--origin", line->origin_m,
                  "origin of the device's frame in the world, X Y Z in m; default: the device starts where the tool is")
      ->expected(3);
  app->add_option("--rotation", line->rotation_wxyz, "rotation of the device's frame in the world, quaternion W X Y Z; default: none")
      ->expected(4);
}

void AddControlOptions(CLI::App* app, CommandLine* line) {
  ControlOptions& controls = line->station.controls;
  app->add_option("--pedal-button", controls.pedal_button, "button of the device, 0 to 31, that is the pedal while it is held");
  app->add_option("--power", controls.power_w, "W while the pedal is down; default: the instrument's largest");
  app->add_option("--duty", controls.duty, "share of the time that power flows, above 0 to 1; default: 1");
  app->add_option("--jaw-button", controls.jaw_button,
                  "button of the device that closes the jaws while it is held; default: the device's grip, or closed");
  app->add_option("--jaw-angle", controls.jaw_angle_rad, "rad between open jaws; default: the instrument's largest");
}

void AddSafetyOptions(CLI::App* app, CommandLine* line) {
  app->add_option("--ramp", line->station.loop.limits.ramp_time_s, "seconds from zero to full force after attaching")
      ->check(CLI::Range(0.0, 60.0))
      ->capture_default_str();
  app->add_option("--model-age-limit", line->age_limit_ms,
                  "ms without a new local model up to which the newest acts in full, then it fades; at least 4 steps of the scene")
      ->check(CLI::Range(1.0, 10000.0))
      ->capture_default_str();
  app->add_flag("--no-passivity", line->no_passivity, "switch the passivity controller off (the observer still reports)");
}

void AddServerAndLogOptions(CLI::App* app, CommandLine* line) {
  app->add_option("--tls-ca", line->connection.tls_ca_file,
                  "PEM file of the authority that signed the server's certificate; default: no TLS");
  app->add_option("--token-file", line->connection.token_file, "file whose first line is the access token");
  app->add_option("--log-level", line->log_level, "least level that is logged (to standard error)")
      ->check(CLI::IsMember({"debug", "info", "warning", "error", "off"}))
      ->capture_default_str();
  app->add_flag("--quiet", line->quiet, "no live line each second");
}

void AddOptions(CLI::App* app, CommandLine* line) {
  AddRunOptions(app, line);
  AddLoopOptions(app, line);
  AddControlOptions(app, line);
  AddSafetyOptions(app, line);
  AddServerAndLogOptions(app, line);
  app->footer(
      DeviceSpecHelp() +
      "\nExit status: 0 done, 1 the report could not be written, 2 wrong usage (also options that do not fit the instrument), 3 not "
      "attached (refused, or --wait is over), 4 the "
      "device failed. SIGINT and SIGTERM end it; a second one ends it without waiting for the server, once the force is gone; a third at "
      "once.");
}

bool AllFinite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

/// Where the device is in the world. Errors: InvalidArgument naming the option.
absl::Status Place(const CommandLine& line, Placement* placement) {
  if (!AllFinite(line.origin_m)) return absl::InvalidArgumentError("--origin must be finite");
  if (!line.origin_m.empty()) placement->origin_m = Eigen::Vector3d(line.origin_m.data());
  if (line.rotation_wxyz.empty()) return absl::OkStatus();
  const std::vector<double>& q = line.rotation_wxyz;
  const Eigen::Quaterniond rotation(q[0], q[1], q[2], q[3]);
  if (!AllFinite(q) || !(rotation.norm() > 1e-6) || !std::isfinite(rotation.norm())) {
    return absl::InvalidArgumentError("--rotation must be finite and not zero");
  }
  placement->rotation = rotation.normalized();
  return absl::OkStatus();
}

/// What the station is to do. Errors: InvalidArgument naming the option.
absl::StatusOr<StationOptions> Checked(const CommandLine& line) {
  StationOptions options = line.station;
  if (options.station_name.size() > 64) return absl::InvalidArgumentError("--name is longer than 64 bytes");
  if (absl::Status status = Place(line, &options.loop.placement); !status.ok()) return status;
  if (absl::Status status = palpate::station::CheckControls(options.controls); !status.ok()) return status;
  options.loop.limits.max_silence_s = line.age_limit_ms * 1e-3;
  options.loop.limits.passivity = !line.no_passivity;
  options.live = !line.quiet;
  options.patience_s = line.patience_s >= 0 ? line.patience_s : (options.run_s > 0 ? 30 : 0);
  options.on_released = [] {
    released.store(true);
    EndIfUrgent();
  };
  return options;
}

std::string HostName() {
  char host[48] = "station";
  gethostname(host, sizeof(host) - 1);
  return host;
}

void LogToStandardError(const std::string& level) {
  spdlog::set_default_logger(spdlog::stderr_logger_mt("station"));
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %n: %v");
  spdlog::set_level(spdlog::level::from_str(level));
}

void HandleSignals() {
  struct sigaction action {};
  action.sa_handler = OnSignal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

/// Says what is wrong; the code is returned.
int Fail(const absl::Status& status, int code) {
  std::cerr << "palpate-station: " << status.message() << "\n";
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("palpate-station: operates a tool of a scene with a haptic device at 1 kHz.", "palpate-station");
  CommandLine line;
  line.station.station_name = HostName();
  AddOptions(&app, &line);
  palpate::client::RefuseNan(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? kOk : kUsage;
  }
  LogToStandardError(line.log_level);

  const absl::StatusOr<StationOptions> options = Checked(line);
  if (!options.ok()) return Fail(options.status(), kUsage);
  absl::StatusOr<palpate::client::Connection> connection = palpate::client::Connection::Open(line.connection);
  if (!connection.ok()) return Fail(connection.status(), kUsage);
  absl::StatusOr<std::unique_ptr<palpate::station::HapticDevice>> device = palpate::station::MakeDevice(line.device_spec);
  if (!device.ok()) return Fail(device.status(), device.status().code() == absl::StatusCode::kInvalidArgument ? kUsage : kDeviceFailed);
  HandleSignals();
  const absl::Status status = palpate::station::RunStation(*options, *std::move(connection), *std::move(device), stop);
  return status.ok() ? kOk : Fail(status, ExitCode(status));
}
