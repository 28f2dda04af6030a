// The training station: a haptic device at 1 kHz on one side, a Palpate server on the other.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <iostream>
#include <string>
#include <vector>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <CLI/CLI.hpp>

#include "clients/cpp/command_line.h"
#include "clients/station/station.h"

namespace {

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

}  // namespace

int main(int argc, char** argv) {
  using palpate::station::StationOptions;
  CLI::App app("palpate-station: operates a tool of a scene with a haptic device at 1 kHz.", "palpate-station");
  palpate::client::ConnectionOptions connection_options;
  StationOptions options;
  std::string device_spec = "sim";
  std::string log_level = "info";
  std::vector<double> origin_m;
  std::vector<double> rotation_wxyz;
  double age_limit_ms = options.loop.limits.max_silence_s * 1e3;
  double patience_s = -1;
  bool quiet = false;
  bool no_passivity = false;
  char host[48] = "station";
  gethostname(host, sizeof(host) - 1);
  options.station_name = host;

  app.add_option("--server", connection_options.target, "server, HOST:PORT")->capture_default_str();
  app.add_option("--scene", options.scene_id, "id of the scene")->required();
  app.add_option("--tool", options.tool, "name of the tool in the scene")->required();
  app.add_option("--device", device_spec, "device, see below")->capture_default_str();
  app.add_option("--name", options.station_name, "name of this station in the server's logs; default: the host's name");
  app.add_option("--seconds", options.run_s, "end so long after the tool was attached; 0 = run until Ctrl-C")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  app.add_option("--wait", patience_s, "give up when not attached within so many seconds; 0 = never; default: 30 with --seconds, else 0")
      ->check(CLI::Range(0.0, 1e9));
  app.add_option("--report", options.report_file, "write a JSON report to this file at the end");
  app.add_option("--rate", options.loop.rate_hz, "rate of the device loop, Hz")->check(CLI::Range(10.0, 10000.0))->capture_default_str();
  app.add_option("--send-rate", options.send_rate_hz, "poses a second to the server at most, Hz")
      ->check(CLI::Range(1.0, 10000.0))
      ->capture_default_str();
  app.add_option("--scale", options.loop.placement.scale, "world metres per device metre")
      ->check(CLI::Range(0.001, 1000.0))
      ->capture_default_str();
  app.add_option("--origin", origin_m,
                 "origin of the device's frame in the world, X Y Z in m; default: the device starts where the tool is")
      ->expected(3);
  app.add_option("--rotation", rotation_wxyz, "rotation of the device's frame in the world, quaternion W X Y Z; default: none")
      ->expected(4);
  app.add_option("--pedal-button", options.controls.pedal_button, "button of the device, 0 to 31, that is the pedal while it is held");
  app.add_option("--power", options.controls.power_w, "W while the pedal is down; default: the instrument's largest");
  app.add_option("--duty", options.controls.duty, "share of the time that power flows, above 0 to 1; default: 1");
  app.add_option("--jaw-button", options.controls.jaw_button,
                 "button of the device that closes the jaws while it is held; default: the device's grip, or closed");
  app.add_option("--jaw-angle", options.controls.jaw_angle_rad, "rad between open jaws; default: the instrument's largest");
  app.add_option("--ramp", options.loop.limits.ramp_time_s, "seconds from zero to full force after attaching")
      ->check(CLI::Range(0.0, 60.0))
      ->capture_default_str();
  app.add_option("--model-age-limit", age_limit_ms,
                 "ms without a new local model up to which the newest acts in full, then it fades; at least 4 steps of the scene")
      ->check(CLI::Range(1.0, 10000.0))
      ->capture_default_str();
  app.add_flag("--no-passivity", no_passivity, "switch the passivity controller off (the observer still reports)");
  app.add_option("--tls-ca", connection_options.tls_ca_file,
                 "PEM file of the authority that signed the server's certificate; default: no TLS");
  app.add_option("--token-file", connection_options.token_file, "file whose first line is the access token");
  app.add_option("--log-level", log_level, "least level that is logged (to standard error)")
      ->check(CLI::IsMember({"debug", "info", "warning", "error", "off"}))
      ->capture_default_str();
  app.add_flag("--quiet", quiet, "no live line each second");
  app.footer(
      palpate::station::DeviceSpecHelp() +
      "\nExit status: 0 done, 1 the report could not be written, 2 wrong usage (also options that do not fit the instrument), 3 not "
      "attached (refused, or --wait is over), 4 the "
      "device failed. SIGINT and SIGTERM end it; a second one ends it without waiting for the server, once the force is gone; a third at "
      "once.");
  palpate::client::RefuseNan(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? kOk : kUsage;
  }

  auto logger = spdlog::stderr_logger_mt("station");
  spdlog::set_default_logger(logger);
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %n: %v");
  spdlog::set_level(spdlog::level::from_str(log_level));

  const auto usage_error = [](const std::string& message) {
    std::cerr << "palpate-station: " << message << "\n";
    return kUsage;
  };
  if (options.station_name.size() > 64) return usage_error("--name is longer than 64 bytes");
  const auto all_finite = [](const std::vector<double>& values) {
    return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
  };
  if (!all_finite(origin_m)) return usage_error("--origin must be finite");
  if (!origin_m.empty()) options.loop.placement.origin_m = Eigen::Vector3d(origin_m.data());
  if (!rotation_wxyz.empty()) {
    Eigen::Quaterniond rotation(rotation_wxyz[0], rotation_wxyz[1], rotation_wxyz[2], rotation_wxyz[3]);
    if (!all_finite(rotation_wxyz) || !(rotation.norm() > 1e-6) || !std::isfinite(rotation.norm())) {
      return usage_error("--rotation must be finite and not zero");
    }
    options.loop.placement.rotation = rotation.normalized();
  }
  if (const absl::Status status = palpate::station::CheckControls(options.controls); !status.ok()) {
    return usage_error(std::string(status.message()));
  }
  options.loop.limits.max_silence_s = age_limit_ms * 1e-3;
  options.loop.limits.passivity = !no_passivity;
  options.live = !quiet;
  options.on_released = [] {
    released.store(true);
    EndIfUrgent();
  };
  options.patience_s = patience_s >= 0 ? patience_s : (options.run_s > 0 ? 30 : 0);

  absl::StatusOr<palpate::client::Connection> connection = palpate::client::Connection::Open(connection_options);
  if (!connection.ok()) return usage_error(std::string(connection.status().message()));
  absl::StatusOr<std::unique_ptr<palpate::station::HapticDevice>> device = palpate::station::MakeDevice(device_spec);
  if (!device.ok()) {
    std::cerr << "palpate-station: " << device.status().message() << "\n";
    return device.status().code() == absl::StatusCode::kInvalidArgument ? kUsage : kDeviceFailed;
  }

  struct sigaction action {};
  action.sa_handler = OnSignal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);

  const absl::Status status = palpate::station::RunStation(options, *std::move(connection), *std::move(device), stop);
  if (!status.ok()) std::cerr << "palpate-station: " << status.message() << "\n";
  return ExitCode(status);
}
