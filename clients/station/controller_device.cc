#include "clients/station/controller_device.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace palpate::station {
namespace {

static_assert(std::endian::native == std::endian::little, "messages are little-endian, and so must be the machine");

constexpr int kMaxPosesPerTick = 64;  // more wait for the next tick: a controller cannot hold the loop up

struct Options {
  std::string path;
  DeviceCapabilities capabilities = *FindDeviceProfile("omega.3");
  double patience_s = 10;
};

absl::StatusOr<Options> ParseOptions(const std::string& spec) {
  const std::vector<std::string> items = absl::StrSplit(spec, ',');
  Options options;
  options.path = items[0];
  if (options.path.empty()) return absl::InvalidArgumentError("device controller: no socket; give controller:PATH");
  if (options.path.size() >= sizeof(sockaddr_un::sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("device controller: '", options.path, "' has ", options.path.size(),
                                                   " characters; a socket's path may have ", sizeof(sockaddr_un::sun_path) - 1));
  }
  for (size_t i = 1; i < items.size(); ++i) {
    const std::pair<std::string, std::string> item = absl::StrSplit(items[i], absl::MaxSplits('=', 1));
    const auto& [key, value] = item;
    if (key == "profile") {
      const DeviceCapabilities* profile = FindDeviceProfile(value);
      if (profile == nullptr) {
        return absl::InvalidArgumentError(
            absl::StrCat("device controller: profile '", value, "' is not one of ", absl::StrJoin(DeviceProfileNames(), ", ")));
      }
      options.capabilities = *profile;
    } else if (key == "patience") {
      if (!absl::SimpleAtod(value, &options.patience_s) || !(options.patience_s > 0 && options.patience_s <= 3600)) {
        return absl::InvalidArgumentError(
            absl::StrCat("device controller: patience '", value, "' is not a number of seconds in (0, 3600]"));
      }
    } else {
      return absl::InvalidArgumentError(absl::StrCat("device controller: '", items[i], "' is neither profile=NAME nor patience=SECONDS"));
    }
  }
  options.capabilities.name = absl::StrCat("controller on ", options.capabilities.name);
  return options;
}

bool AreFinite(const double* values, size_t count) noexcept {
  return std::all_of(values, values + count, [](double value) { return std::isfinite(value); });
}

}  // namespace

absl::StatusOr<std::unique_ptr<ControllerDevice>> ControllerDevice::Open(const std::string& spec) {
  absl::StatusOr<Options> options = ParseOptions(spec);
  if (!options.ok()) return options.status();
  const std::string where = absl::StrCat("device controller '", options->path, "': ");
  const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (socket < 0) return absl::ErrnoToStatus(errno, absl::StrCat(where, "no socket"));
  std::unique_ptr<ControllerDevice> device(new ControllerDevice(socket, std::move(options->capabilities)));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy(options->path.begin(), options->path.end(), address.sun_path);
  if (connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return absl::UnavailableError(absl::StrCat(where, "no controller listens there: ", std::strerror(errno)));
  }
  pollfd wait{.fd = socket, .events = POLLIN, .revents = 0};
  const int ready = poll(&wait, 1, static_cast<int>(options->patience_s * 1000));
  if (ready == 0) return absl::DeadlineExceededError(absl::StrCat(where, "no pose came within ", options->patience_s, " s"));
  if (ready < 0) return absl::ErrnoToStatus(errno, absl::StrCat(where, "cannot be read"));
  switch (device->Fetch(0)) {
    case DeviceResult::kOk:
      return device;
    case DeviceResult::kEnded:
      return absl::UnavailableError(absl::StrCat(where, "the controller went away before its first pose"));
    case DeviceResult::kFailed:
      break;
  }
  return absl::InvalidArgumentError(absl::StrCat(where, device->error_));
}

ControllerDevice::~ControllerDevice() { close(socket_); }

const char* ControllerDevice::Fault(const ControllerPose& pose, size_t bytes) noexcept {
  if (bytes != sizeof(ControllerPose)) return "a pose does not have 120 bytes";
  if (!AreFinite(pose.position_m, 3)) return "the controller's position is not finite";
  const double* q = pose.rotation_wxyz;
  const double norm = std::sqrt(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3]);
  if (!(std::abs(norm - 1) < 0.01)) return "the controller's rotation is not a unit quaternion";  // also catches what is not a number
  if ((pose.flags & ControllerPose::kHasVelocity) != 0 &&
      (!AreFinite(pose.velocity_m_per_s, 3) || !AreFinite(pose.angular_velocity_rad_per_s, 3))) {
    return "the controller's velocity is not finite";
  }
  if ((pose.flags & ControllerPose::kHasGrip) != 0 && !(pose.grip >= 0 && pose.grip <= 1)) return "the controller's grip is outside [0, 1]";
  return nullptr;
}

/// The newest pose that has come, if any.
DeviceResult ControllerDevice::Fetch(double now_s) noexcept {
  for (int i = 0; i < kMaxPosesPerTick; ++i) {
    ControllerPose pose;
    const ssize_t bytes = recv(socket_, &pose, sizeof(pose), MSG_DONTWAIT | MSG_TRUNC);
    if (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return DeviceResult::kOk;
    if (bytes == 0 || (bytes < 0 && errno == ECONNRESET)) return DeviceResult::kEnded;
    if (bytes < 0) {
      error_ = "the controller's socket cannot be read";
      return DeviceResult::kFailed;
    }
    if (const char* fault = Fault(pose, static_cast<size_t>(bytes)); fault != nullptr) {
      error_ = fault;
      return DeviceResult::kFailed;
    }
    if ((pose.flags & ControllerPose::kEnded) != 0) return DeviceResult::kEnded;
    pose_ = pose;
    pose_at_s_ = now_s;
    ++pose_count_;
  }
  return DeviceResult::kOk;
}

DeviceResult ControllerDevice::Read(double now_s, DeviceState* state) noexcept {
  if (tick_ == 0) pose_at_s_ = now_s;  // the first pose came before there was a clock
  ++tick_;
  now_s_ = now_s;
  const DeviceResult result = Fetch(now_s);
  if (result != DeviceResult::kOk) return result;
  *state = DeviceState{};
  state->pose.position_m = Eigen::Vector3d(pose_.position_m);
  state->pose.rotation =
      Eigen::Quaterniond(pose_.rotation_wxyz[0], pose_.rotation_wxyz[1], pose_.rotation_wxyz[2], pose_.rotation_wxyz[3]).normalized();
  const double silent_s = now_s - pose_at_s_;
  state->has_velocity = (pose_.flags & ControllerPose::kHasVelocity) != 0;
  if (state->has_velocity && silent_s <= kStale_s) {
    state->velocity.linear_m_per_s = Eigen::Vector3d(pose_.velocity_m_per_s);
    state->velocity.angular_rad_per_s = Eigen::Vector3d(pose_.angular_velocity_rad_per_s);
  }
  state->buttons = silent_s <= kSilence_s ? pose_.buttons : 0;
  state->has_grip = (pose_.flags & ControllerPose::kHasGrip) != 0;
  state->grip = state->has_grip ? pose_.grip : 0;
  return DeviceResult::kOk;
}

DeviceResult ControllerDevice::Write(const DeviceForce& force) noexcept {
  ControllerForce message;
  message.tick = tick_;
  message.time_s = now_s_;
  for (int axis = 0; axis < 3; ++axis) {
    message.force_n[axis] = force.force_n[axis];
    message.torque_n_m[axis] = force.torque_n_m[axis];
  }
  message.pose = pose_count_;
  message.flags = is_engaged_ ? ControllerForce::kEngaged : 0;
  // A controller that is gone is noticed by the next Read; one that is slow loses this force.
  (void)send(socket_, &message, sizeof(message), MSG_DONTWAIT | MSG_NOSIGNAL);
  return DeviceResult::kOk;
}

}  // namespace palpate::station
