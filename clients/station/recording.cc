#include "clients/station/recording.h"

#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace palpate::station {
namespace {

constexpr uint32_t kHasVelocity = 1;  // RecordingTick::flags
constexpr uint32_t kHasGrip = 2;

static_assert(std::endian::native == std::endian::little, "recordings are little-endian");

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

absl::Status Bad(const std::string& file, uint64_t offset, std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("recording '", file, "', byte ", offset, ": ", absl::string_view(what.data(), what.size())));
}

bool AllFinite(const RecordingTick& tick) {
  double sum = tick.time_s + std::abs(tick.grip);
  for (const double v : tick.position_m) sum += std::abs(v);
  for (const double v : tick.rotation_wxyz) sum += std::abs(v);
  for (const double v : tick.velocity_m_per_s) sum += std::abs(v);
  for (const double v : tick.angular_velocity_rad_per_s) sum += std::abs(v);
  for (const double v : tick.force_n) sum += std::abs(v);
  for (const double v : tick.torque_n_m) sum += std::abs(v);
  return std::isfinite(sum);
}

}  // namespace

absl::StatusOr<Recording> ReadRecording(const std::string& file) {
  const std::unique_ptr<std::FILE, FileCloser> stream(std::fopen(file.c_str(), "rb"));
  if (stream == nullptr) return absl::NotFoundError(absl::StrCat("recording '", file, "' cannot be opened: ", std::strerror(errno)));
  RecordingHeader header;
  const size_t header_read = std::fread(&header, 1, sizeof(header), stream.get());
  if (header_read != sizeof(header)) return Bad(file, header_read, absl::StrCat("ends inside its header of ", sizeof(header), " bytes"));
  if (std::memcmp(header.magic, RecordingHeader().magic, sizeof(header.magic)) != 0) return Bad(file, 0, "does not begin with PALPREC1");
  if (header.header_bytes != sizeof(RecordingHeader))
    return Bad(file, 8, absl::StrCat("header size ", header.header_bytes, " is not ", sizeof(header)));
  if (header.tick_bytes != sizeof(RecordingTick))
    return Bad(file, 12, absl::StrCat("tick size ", header.tick_bytes, " is not ", sizeof(RecordingTick)));
  if (std::memchr(header.device_name, '\0', sizeof(header.device_name)) == nullptr)
    return Bad(file, 72, "the device name is not terminated");
  Recording recording;
  recording.capabilities = {
      .name = absl::StrCat("replay of ", header.device_name),
      .degrees_of_freedom = static_cast<int>(header.degrees_of_freedom),
      .peak_force_n = header.peak_force_n,
      .peak_torque_n_m = header.peak_torque_n_m,
      .max_stiffness_n_per_m = header.max_stiffness_n_per_m,
      .max_damping_n_s_per_m = header.max_damping_n_s_per_m,
      .workspace_radius_m = header.workspace_radius_m,
      .force_slew_n_per_s = header.force_slew_n_per_s,
  };
  const absl::Status capable = ValidateCapabilities(recording.capabilities);
  if (!capable.ok()) return Bad(file, 16, std::string(capable.message()));
  uint64_t offset = sizeof(header);
  while (true) {
    RecordingTick tick;
    const size_t read = std::fread(&tick, 1, sizeof(tick), stream.get());
    if (read == 0) break;
    if (read != sizeof(tick)) return Bad(file, offset + read, absl::StrCat("ends inside a tick of ", sizeof(tick), " bytes"));
    if (!AllFinite(tick)) return Bad(file, offset, "the tick holds a value that is not finite");
    double norm_sq = 0;
    for (const double v : tick.rotation_wxyz) norm_sq += v * v;
    if (std::abs(norm_sq - 1) > 1e-6) return Bad(file, offset + 32, absl::StrCat("the rotation's squared norm is ", norm_sq, ", not 1"));
    if (!recording.ticks.empty() && tick.time_s < recording.ticks.back().time_s) {
      return Bad(file, offset,
                 absl::StrCat("time ", tick.time_s, " s is before that of the tick before, ", recording.ticks.back().time_s, " s"));
    }
    recording.ticks.push_back(tick);
    offset += sizeof(tick);
  }
  if (recording.ticks.empty()) return Bad(file, offset, "holds no tick");
  return recording;
}

absl::StatusOr<std::unique_ptr<ReplayDevice>> ReplayDevice::Open(const std::string& file) {
  absl::StatusOr<Recording> recording = ReadRecording(file);
  if (!recording.ok()) return recording.status();
  return std::unique_ptr<ReplayDevice>(new ReplayDevice(*std::move(recording)));
}

DeviceResult ReplayDevice::Read(double /*now_s*/, DeviceState* state) noexcept {
  if (next_ == recording_.ticks.size()) return DeviceResult::kEnded;
  const RecordingTick& tick = recording_.ticks[next_++];
  state->pose.position_m = Eigen::Vector3d(tick.position_m);
  const auto& q = tick.rotation_wxyz;
  state->pose.rotation = Eigen::Quaterniond(q[0], q[1], q[2], q[3]);
  state->velocity.linear_m_per_s = Eigen::Vector3d(tick.velocity_m_per_s);
  state->velocity.angular_rad_per_s = Eigen::Vector3d(tick.angular_velocity_rad_per_s);
  state->has_velocity = (tick.flags & kHasVelocity) != 0;
  state->buttons = tick.buttons;
  state->has_grip = (tick.flags & kHasGrip) != 0;
  state->grip = tick.grip;
  return DeviceResult::kOk;
}

DeviceResult ReplayDevice::Write(const DeviceForce& /*force*/) noexcept { return DeviceResult::kOk; }

absl::StatusOr<std::unique_ptr<RecordingDevice>> RecordingDevice::Open(const std::string& file, std::unique_ptr<HapticDevice> inner) {
  std::unique_ptr<std::FILE, FileCloser> stream(std::fopen(file.c_str(), "wb"));
  if (stream == nullptr)
    return absl::PermissionDeniedError(absl::StrCat("recording '", file, "' cannot be written: ", std::strerror(errno)));
  const DeviceCapabilities& capabilities = inner->capabilities();
  RecordingHeader header;
  header.degrees_of_freedom = static_cast<uint32_t>(capabilities.degrees_of_freedom);
  header.peak_force_n = capabilities.peak_force_n;
  header.peak_torque_n_m = capabilities.peak_torque_n_m;
  header.max_stiffness_n_per_m = capabilities.max_stiffness_n_per_m;
  header.max_damping_n_s_per_m = capabilities.max_damping_n_s_per_m;
  header.workspace_radius_m = capabilities.workspace_radius_m;
  header.force_slew_n_per_s = capabilities.force_slew_n_per_s;
  capabilities.name.copy(header.device_name, sizeof(header.device_name) - 1);
  if (std::fwrite(&header, sizeof(header), 1, stream.get()) != 1) {
    return absl::DataLossError(absl::StrCat("recording '", file, "' cannot be written: ", std::strerror(errno)));
  }
  return std::unique_ptr<RecordingDevice>(new RecordingDevice(stream.release(), std::move(inner)));
}

RecordingDevice::RecordingDevice(std::FILE* file, std::unique_ptr<HapticDevice> inner)
    : file_(file), inner_(std::move(inner)), ring_(kCapacity), writer_([this] { WriteLoop(); }) {}

RecordingDevice::~RecordingDevice() {
  stopping_.store(true);
  writer_.join();
  std::fclose(file_);
}

DeviceResult RecordingDevice::Read(double now_s, DeviceState* state) noexcept {
  const DeviceResult result = inner_->Read(now_s, state);
  if (result != DeviceResult::kOk) return result;
  if (disk_failed_.load(std::memory_order_relaxed)) return DeviceResult::kFailed;
  current_ = RecordingTick{};
  current_.time_s = now_s;
  const Eigen::Quaterniond& q = state->pose.rotation;
  const double wxyz[4] = {q.w(), q.x(), q.y(), q.z()};
  std::memcpy(current_.rotation_wxyz, wxyz, sizeof(wxyz));
  for (int axis = 0; axis < 3; ++axis) {
    current_.position_m[axis] = state->pose.position_m[axis];
    current_.velocity_m_per_s[axis] = state->velocity.linear_m_per_s[axis];
    current_.angular_velocity_rad_per_s[axis] = state->velocity.angular_rad_per_s[axis];
  }
  current_.buttons = state->buttons;
  const bool has_grip = state->has_grip && std::isfinite(state->grip);
  current_.flags = (state->has_velocity ? kHasVelocity : 0) | (has_grip ? kHasGrip : 0);
  current_.grip = has_grip ? state->grip : 0;
  has_current_ = true;
  return DeviceResult::kOk;
}

DeviceResult RecordingDevice::Write(const DeviceForce& force) noexcept {
  if (has_current_) {
    has_current_ = false;
    for (int axis = 0; axis < 3; ++axis) {
      current_.force_n[axis] = force.force_n[axis];
      current_.torque_n_m[axis] = force.torque_n_m[axis];
    }
    const uint64_t produced = produced_.load(std::memory_order_relaxed);
    if (produced - consumed_.load(std::memory_order_acquire) < kCapacity) {
      ring_[produced % kCapacity] = current_;
      produced_.store(produced + 1, std::memory_order_release);
    } else {
      lost_.store(lost_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
  }
  return inner_->Write(force);
}

const char* RecordingDevice::error() const noexcept {
  return disk_failed_.load() ? "the recording cannot be written any more (disk full?)" : inner_->error();
}

bool RecordingDevice::Drain() {
  uint64_t consumed = consumed_.load(std::memory_order_relaxed);
  const uint64_t produced = produced_.load(std::memory_order_acquire);
  for (; consumed < produced; ++consumed) {
    if (std::fwrite(&ring_[consumed % kCapacity], sizeof(RecordingTick), 1, file_) != 1) return false;
    consumed_.store(consumed + 1, std::memory_order_release);
  }
  return true;
}

void RecordingDevice::WriteLoop() {
  while (true) {
    // The flag first: what was produced before it is then drained below.
    const bool last = stopping_.load();
    if (!Drain()) {
      disk_failed_.store(true);
      return;
    }
    if (last) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace palpate::station
