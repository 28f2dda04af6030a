#include "clients/station/station.h"

#include <cstdio>
#include <mutex>
#include <thread>
#include <utility>

#include <spdlog/spdlog.h>

#include "absl/strings/str_cat.h"
#include "clients/cpp/operate_stream.h"
#include "clients/station/convert.h"

namespace palpate::station {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

absl::Status WriteFile(const std::string& file, const std::string& text) {
  std::FILE* stream = std::fopen(file.c_str(), "wb");
  if (stream == nullptr) return absl::PermissionDeniedError(absl::StrCat("report file '", file, "' cannot be written"));
  const bool written = std::fwrite(text.data(), 1, text.size(), stream) == text.size();
  if (std::fclose(stream) != 0 || !written) return absl::DataLossError(absl::StrCat("report file '", file, "' could not be written whole"));
  return absl::OkStatus();
}

}  // namespace

absl::Status RunStation(const StationOptions& options, client::Connection connection, std::unique_ptr<HapticDevice> device,
                        const std::atomic<bool>& stop) {
  LoopOptions loop_options = options.loop;
  const SafetyLimits device_limits = LimitsOf(device->capabilities());
  SafetyLimits& limits = loop_options.limits;
  limits.peak_force_n = device_limits.peak_force_n;
  limits.peak_torque_n_m = device_limits.peak_torque_n_m;
  limits.force_slew_n_per_s = device_limits.force_slew_n_per_s;
  limits.torque_slew_n_m_per_s = device_limits.torque_slew_n_m_per_s;
  // Large: the heap, not the stack.
  const auto loop = std::make_unique<HapticLoop>(device.get(), loop_options);

  std::atomic<bool> attached{false};
  std::atomic<uint64_t> models_received{0};
  std::atomic<uint64_t> models_refused{0};
  std::mutex refusal_mutex;
  absl::Status refusal;  // guarded by refusal_mutex

  client::OperateOptions operate;
  operate.attach.set_scene_id(options.scene_id);
  operate.attach.set_tool(options.tool);
  operate.attach.set_station(options.station_name);
  // The device feels world stiffness times the scale.
  operate.attach.set_device_max_stiffness_n_per_m(device->capabilities().max_stiffness_n_per_m / loop_options.placement.scale);
  operate.send_rate_hz = options.send_rate_hz;
  ControlMap controls(options.controls);
  ToolLog tool_log;
  std::atomic<bool> is_misfit{false};
  operate.next_pose = [&](v1::ToolPose* pose) {
    PoseSample sample;
    if (is_misfit.load() || !loop->NextPose(&sample)) return false;
    ToProto(sample, pose);
    controls.Apply(sample, pose);
    return true;
  };
  operate.on_attached = [&](const v1::Attached& message) {
    sim::RigidPose pose;
    const absl::Status status = FromProto(message.pose(), "attached.pose", &pose);
    if (!status.ok()) {
      spdlog::error("the server's answer to the attachment is broken: {}", std::string(status.message()));
      return;
    }
    spdlog::info("tool '{}' of scene '{}' attached: radius {} m, length {} m, scene step {} s", options.tool, options.scene_id,
                 message.radius_m(), message.length_m(), message.dt_s());
    const absl::Status fits = controls.Attach(message);
    if (!fits.ok()) {
      const std::lock_guard<std::mutex> lock(refusal_mutex);
      refusal = absl::Status(fits.code(), absl::StrCat("tool '", options.tool, "' of scene '", options.scene_id, "': ", fits.message()));
      is_misfit.store(true);
      return;
    }
    tool_log.Attach(message);
    loop->Attach(pose);
    attached.store(true);
  };
  operate.on_model = [&](const v1::LocalModel& message) {
    models_received.fetch_add(1);
    const absl::Status status = FromProto(message, &loop->ModelSlot());
    if (status.ok()) {
      if (is_misfit.load()) return;
      loop->PublishModel(MonotonicNow_us());
      tool_log.Add(message);
    } else if (models_refused.fetch_add(1) == 0) {
      spdlog::error("a local model of step {} is broken and not used: {}", message.step(), std::string(status.message()));
    }
  };
  operate.on_detached = [&](const absl::Status& why, std::chrono::milliseconds retry_in) {
    loop->Detach();
    attached.store(false);
    if (retry_in.count() == 0) {
      const std::lock_guard<std::mutex> lock(refusal_mutex);
      refusal = why;
    } else {
      spdlog::warn("not attached to '{}' of scene '{}' at {}: {}; next try in {} ms", options.tool, options.scene_id, connection.target(),
                   std::string(why.message()), retry_in.count());
    }
  };

  const auto begin = Clock::now();
  std::atomic<bool> stop_loop{false};
  std::atomic<bool> loop_ended{false};
  DeviceResult loop_result = DeviceResult::kOk;  // written before loop_ended
  RealTimeReport real_time;
  std::thread loop_thread([&] {
    // Asks for `stop` itself: whatever blocks the other threads, the force goes.
    loop_result = RunLoop(
        loop.get(), [&] { return stop_loop.load() || stop.load(); }, &real_time);
    if (options.on_released) options.on_released();
    loop_ended.store(true);
  });
  auto stream = std::make_unique<client::OperateStream>(connection, std::move(operate));

  StationReport report;
  report.statistics = &loop->statistics();
  report.safety = &loop->safety();
  report.device = device->capabilities().name;
  absl::Status result;
  double first_attached_s = -1;
  double next_line_s = 1;
  double last_line_s = 0;
  uint64_t last_cycles = 0;
  uint64_t last_models = 0;
  while (!stop.load() && !loop_ended.load() && !stream->done() && !is_misfit.load()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const double now_s = SecondsSince(begin);
    if (first_attached_s < 0 && stream->attachments() > 0) first_attached_s = now_s;
    if (first_attached_s >= 0 && options.run_s > 0 && now_s - first_attached_s >= options.run_s) break;
    if (first_attached_s < 0 && options.patience_s > 0 && now_s >= options.patience_s) {
      result = absl::DeadlineExceededError(absl::StrCat("tool '", options.tool, "' of scene '", options.scene_id, "' at ",
                                                        connection.target(), " could not be attached within ", options.patience_s, " s"));
      break;
    }
    if (options.live && now_s >= next_line_s) {
      const uint64_t cycles = report.statistics->cycles.load();
      const uint64_t models = models_received.load();
      const double interval_s = now_s - last_line_s;
      report.elapsed_s = now_s;
      report.tool = tool_log.Summary();
      std::puts(LiveLine(report, static_cast<double>(cycles - last_cycles) / interval_s,
                         static_cast<double>(models - last_models) / interval_s, attached.load())
                    .c_str());
      std::fflush(stdout);
      last_cycles = cycles;
      last_models = models;
      last_line_s = now_s;
      next_line_s = now_s + 1;
    }
  }

  // The hand first: no force after this, whatever the network does.
  stop_loop.store(true);
  loop_thread.join();
  report.elapsed_s = SecondsSince(begin);
  stream->Stop();
  report.real_time = real_time;
  report.models_received = models_received.load();
  report.models_refused = models_refused.load();
  report.attachments = stream->attachments();
  report.poses_sent = stream->poses_sent();
  report.passivity = limits.passivity;
  report.device_limited_ticks = device->limited_ticks();
  report.sent = controls.statistics();
  report.tool = tool_log.Summary();
  if (!real_time.priority) spdlog::info("the loop ran without real-time priority: {}", real_time.priority_note);
  if (result.ok()) {
    const std::lock_guard<std::mutex> lock(refusal_mutex);
    result = refusal;
  }
  if (loop_result == DeviceResult::kFailed) {
    result = absl::UnavailableError(absl::StrCat("device '", report.device, "' failed: ", device->error()));
  } else if (loop_result == DeviceResult::kEnded) {
    spdlog::info("device '{}' has no more data", report.device);
  }
  if (!options.report_file.empty()) {
    const absl::Status written = WriteFile(options.report_file, ReportToJson(report));
    if (result.ok()) result = written;
  }
  return result;
}

}  // namespace palpate::station
