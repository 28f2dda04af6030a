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

/// The limits of the run: those of the options, with what the device can do.
LoopOptions CompletedLoop(const LoopOptions& options, const DeviceCapabilities& capabilities) {
  LoopOptions completed = options;
  const SafetyLimits device_limits = LimitsOf(capabilities);
  SafetyLimits& limits = completed.limits;
  limits.peak_force_n = device_limits.peak_force_n;
  limits.peak_torque_n_m = device_limits.peak_torque_n_m;
  limits.force_slew_n_per_s = device_limits.force_slew_n_per_s;
  limits.torque_slew_n_m_per_s = device_limits.torque_slew_n_m_per_s;
  return completed;
}

/// One run: the loop's thread with the device, the stream to the server, and what there is to report of both.
class StationRun {
 public:
  StationRun(const StationOptions& options, client::Connection connection, std::unique_ptr<HapticDevice> device)
      : options_(options),
        connection_(std::move(connection)),
        device_(std::move(device)),
        loop_options_(CompletedLoop(options.loop, device_->capabilities())),
        loop_(std::make_unique<HapticLoop>(device_.get(), loop_options_)),
        controls_(options.controls) {
    report_.statistics = &loop_->statistics();
    report_.safety = &loop_->safety();
    report_.device = device_->capabilities().name;
  }

  /// Once. Errors: those of RunStation.
  absl::Status Run(const std::atomic<bool>& stop);

 private:
  // The stream's threads:
  bool NextPose(v1::ToolPose* pose);
  void OnAttached(const v1::Attached& message);
  void OnModel(const v1::LocalModel& message);
  void OnDetached(const absl::Status& why, std::chrono::milliseconds retry_in);

  // The loop's thread:
  void RunTheLoop(const std::atomic<bool>& stop);

  // The caller's thread:
  client::OperateOptions OperateWithCallbacks();
  absl::Status WaitForTheEnd(const client::OperateStream& stream, const std::atomic<bool>& stop);
  void PrintLiveLine(double now_s);
  void CompleteReport(const client::OperateStream& stream);
  absl::Status Outcome(absl::Status waited);

  void Refuse(const absl::Status& why) {
    const std::lock_guard<std::mutex> lock(refusal_mutex_);
    refusal_ = why;
  }
  std::string ToolName() const { return absl::StrCat("tool '", options_.tool, "' of scene '", options_.scene_id, "'"); }

  const StationOptions& options_;
  const client::Connection connection_;
  const std::unique_ptr<HapticDevice> device_;
  const LoopOptions loop_options_;
  const std::unique_ptr<HapticLoop> loop_;  // large: the heap, not the stack
  ControlMap controls_;
  ToolLog tool_log_;
  const Clock::time_point begin_ = Clock::now();

  std::atomic<bool> attached_{false};
  std::atomic<bool> is_misfit_{false};  // the instrument has no use for the controls
  std::atomic<uint64_t> models_received_{0};
  std::atomic<uint64_t> models_refused_{0};
  std::mutex refusal_mutex_;
  absl::Status refusal_;  // guarded by refusal_mutex_

  std::atomic<bool> stop_loop_{false};
  std::atomic<bool> loop_ended_{false};
  DeviceResult loop_result_ = DeviceResult::kOk;  // written before loop_ended_, as is what follows
  RealTimeReport real_time_;

  StationReport report_;
  struct LiveState {
    double next_line_s = 1;
    double last_line_s = 0;
    uint64_t last_cycles = 0;
    uint64_t last_models = 0;
  } live_;
};

absl::Status StationRun::Run(const std::atomic<bool>& stop) {
  std::thread loop_thread([this, &stop] { RunTheLoop(stop); });
  client::OperateStream stream(connection_, OperateWithCallbacks());
  const absl::Status waited = WaitForTheEnd(stream, stop);

  // The hand first: no force after this, whatever the network does.
  stop_loop_.store(true);
  loop_thread.join();
  report_.elapsed_s = SecondsSince(begin_);
  stream.Stop();
  CompleteReport(stream);
  absl::Status result = Outcome(waited);
  if (!options_.report_file.empty()) {
    const absl::Status written = WriteFile(options_.report_file, ReportToJson(report_));
    if (result.ok()) result = written;
  }
  return result;
}

client::OperateOptions StationRun::OperateWithCallbacks() {
  client::OperateOptions operate;
  operate.attach.set_scene_id(options_.scene_id);
  operate.attach.set_tool(options_.tool);
  operate.attach.set_station(options_.station_name);
  // The device feels world stiffness times the scale.
  operate.attach.set_device_max_stiffness_n_per_m(device_->capabilities().max_stiffness_n_per_m / loop_options_.placement.scale);
  operate.send_rate_hz = options_.send_rate_hz;
  operate.next_pose = [this](v1::ToolPose* pose) { return NextPose(pose); };
  operate.on_attached = [this](const v1::Attached& message) { OnAttached(message); };
  operate.on_model = [this](const v1::LocalModel& message) { OnModel(message); };
  operate.on_detached = [this](const absl::Status& why, std::chrono::milliseconds retry_in) { OnDetached(why, retry_in); };
  return operate;
}

bool StationRun::NextPose(v1::ToolPose* pose) {
  PoseSample sample;
  if (is_misfit_.load() || !loop_->NextPose(&sample)) return false;
  ToProto(sample, pose);
  controls_.Apply(sample, pose);
  return true;
}

void StationRun::OnAttached(const v1::Attached& message) {
  sim::RigidPose pose;
  const absl::Status status = FromProto(message.pose(), "attached.pose", &pose);
  if (!status.ok()) {
    spdlog::error("the server's answer to the attachment is broken: {}", std::string(status.message()));
    return;
  }
  spdlog::info("{} attached: radius {} m, length {} m, scene step {} s", ToolName(), message.radius_m(), message.length_m(),
               message.dt_s());
  const absl::Status fits = controls_.Attach(message);
  if (!fits.ok()) {
    Refuse(absl::Status(fits.code(), absl::StrCat(ToolName(), ": ", fits.message())));
    is_misfit_.store(true);
    return;
  }
  tool_log_.Attach(message);
  loop_->Attach(pose);
  attached_.store(true);
}

void StationRun::OnModel(const v1::LocalModel& message) {
  models_received_.fetch_add(1);
  const absl::Status status = FromProto(message, &loop_->ModelSlot());
  if (status.ok()) {
    if (is_misfit_.load()) return;
    loop_->PublishModel(MonotonicNow_us());
    tool_log_.Add(message);
  } else if (models_refused_.fetch_add(1) == 0) {
    spdlog::error("a local model of step {} is broken and not used: {}", message.step(), std::string(status.message()));
  }
}

void StationRun::OnDetached(const absl::Status& why, std::chrono::milliseconds retry_in) {
  loop_->Detach();
  attached_.store(false);
  if (retry_in.count() == 0) {
    Refuse(why);
  } else {
    spdlog::warn("not attached to '{}' of scene '{}' at {}: {}; next try in {} ms", options_.tool, options_.scene_id, connection_.target(),
                 std::string(why.message()), retry_in.count());
  }
}

void StationRun::RunTheLoop(const std::atomic<bool>& stop) {
  // Asks for `stop` itself: whatever blocks the other threads, the force goes.
  loop_result_ = RunLoop(
      loop_.get(), [&] { return stop_loop_.load() || stop.load(); }, &real_time_);
  if (options_.on_released) options_.on_released();
  loop_ended_.store(true);
}

/// Until somebody stops the run, its time is up, or loop or stream end. Errors: DeadlineExceeded (patience).
absl::Status StationRun::WaitForTheEnd(const client::OperateStream& stream, const std::atomic<bool>& stop) {
  double first_attached_s = -1;
  while (!stop.load() && !loop_ended_.load() && !stream.done() && !is_misfit_.load()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const double now_s = SecondsSince(begin_);
    if (first_attached_s < 0 && stream.attachments() > 0) first_attached_s = now_s;
    if (first_attached_s >= 0 && options_.run_s > 0 && now_s - first_attached_s >= options_.run_s) break;
    if (first_attached_s < 0 && options_.patience_s > 0 && now_s >= options_.patience_s) {
      return absl::DeadlineExceededError(
          absl::StrCat(ToolName(), " at ", connection_.target(), " could not be attached within ", options_.patience_s, " s"));
    }
    if (options_.live && now_s >= live_.next_line_s) PrintLiveLine(now_s);
  }
  return absl::OkStatus();
}

void StationRun::PrintLiveLine(double now_s) {
  const uint64_t cycles = report_.statistics->cycles.load();
  const uint64_t models = models_received_.load();
  const double interval_s = now_s - live_.last_line_s;
  report_.elapsed_s = now_s;
  report_.tool = tool_log_.Summary();
  std::puts(LiveLine(report_, static_cast<double>(cycles - live_.last_cycles) / interval_s,
                     static_cast<double>(models - live_.last_models) / interval_s, attached_.load())
                .c_str());
  std::fflush(stdout);
  live_ = {.next_line_s = now_s + 1, .last_line_s = now_s, .last_cycles = cycles, .last_models = models};
}

/// Precondition: loop and stream have ended.
void StationRun::CompleteReport(const client::OperateStream& stream) {
  report_.real_time = real_time_;
  report_.models_received = models_received_.load();
  report_.models_refused = models_refused_.load();
  report_.attachments = stream.attachments();
  report_.poses_sent = stream.poses_sent();
  report_.passivity = loop_options_.limits.passivity;
  report_.device_limited_ticks = device_->limited_ticks();
  report_.sent = controls_.statistics();
  report_.tool = tool_log_.Summary();
}

/// What the run comes to: a failed device goes before why the wait ended, and this before what the server refused.
absl::Status StationRun::Outcome(absl::Status waited) {
  if (!real_time_.priority) spdlog::info("the loop ran without real-time priority: {}", real_time_.priority_note);
  if (loop_result_ == DeviceResult::kFailed) {
    return absl::UnavailableError(absl::StrCat("device '", report_.device, "' failed: ", device_->error()));
  }
  if (loop_result_ == DeviceResult::kEnded) spdlog::info("device '{}' has no more data", report_.device);
  if (!waited.ok()) return waited;
  const std::lock_guard<std::mutex> lock(refusal_mutex_);
  return refusal_;
}

}  // namespace

absl::Status RunStation(const StationOptions& options, client::Connection connection, std::unique_ptr<HapticDevice> device,
                        const std::atomic<bool>& stop) {
  return StationRun(options, std::move(connection), std::move(device)).Run(stop);
}

}  // namespace palpate::station
