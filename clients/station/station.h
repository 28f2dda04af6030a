#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "clients/cpp/connection.h"
#include "clients/station/controls.h"
#include "clients/station/haptic_device.h"
#include "clients/station/haptic_loop.h"
#include "clients/station/tool_log.h"

namespace palpate::station {

struct StationOptions {
  std::string scene_id;
  std::string tool;
  std::string station_name;           ///< for the server's logs; at most 64 bytes
  LoopOptions loop;                   ///< limits are completed from the device
  ControlOptions controls;            ///< precondition: CheckControls was OK
  double send_rate_hz = 1000;         ///< poses per second to the server, (0, 10000]
  double run_s = 0;                   ///< end this long after the first attachment; 0 = run until stopped
  double patience_s = 0;              ///< give up when not attached so long after the start; 0 = never
  std::string report_file;            ///< JSON; empty = none
  bool live = true;                   ///< one line a second on standard output
  std::function<void()> on_released;  ///< called on the loop's thread when the device renders no force any more, at the end
};

/// Operates a tool with a device until the time is up or `stop` is set: starts the loop's thread, keeps the stream to the server, prints,
/// writes the report. Without a server it waits, says so in the log, and renders no force. Errors: the server's refusal before the first
/// attachment, FailedPrecondition (controls that the instrument has no use for, see ControlMap::Attach), DeadlineExceeded (patience),
/// Unavailable (device failed, with its text), and those of the report file. A device that ends (a
/// recording is over) is no error.
absl::Status RunStation(const StationOptions& options, client::Connection connection, std::unique_ptr<HapticDevice> device,
                        const std::atomic<bool>& stop);

/// What is reported of a run; docs/haptics.md lists the fields.
struct StationReport {
  const LoopStatistics* statistics = nullptr;
  const SafetyChain* safety = nullptr;
  double elapsed_s = 0;  ///< of the loop
  std::string device;
  RealTimeReport real_time;
  uint64_t models_received = 0;
  uint64_t models_refused = 0;  ///< broken ones
  uint64_t attachments = 0;
  uint64_t poses_sent = 0;
  bool passivity = true;
  uint64_t device_limited_ticks = 0;  ///< HapticDevice::limited_ticks
  ControlStatistics sent;             ///< complete at the end of the run only
  ToolSummary tool;
};

/// One JSON object, indented, with a newline at the end.
std::string ReportToJson(const StationReport& report);

/// One line for a person.
std::string LiveLine(const StationReport& report, double rate_hz, double models_per_s, bool attached);

}  // namespace palpate::station
