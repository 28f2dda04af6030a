#include "clients/station/plugin_device.h"

#include <dlfcn.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace palpate::station {
namespace {

/// What every plug-in's table has; version 1.1 added the rest.
constexpr size_t kLeastApiBytes = offsetof(PalpateDeviceApi, read_encoders);

}  // namespace

void PluginDevice::LibraryCloser::operator()(void* handle) const { dlclose(handle); }

absl::StatusOr<std::unique_ptr<PluginDevice>> PluginDevice::Open(const std::string& library, const std::string& options) {
  const std::string where = absl::StrCat("device plugin '", library, "': ");
  Library handle(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (handle == nullptr) return absl::NotFoundError(absl::StrCat(where, "cannot be loaded: ", dlerror()));
  // POSIX defines the conversion of an object pointer from dlsym to a function pointer.
  const auto entry_point = reinterpret_cast<PalpateDeviceEntryPoint>(dlsym(handle.get(), PALPATE_DEVICE_ENTRY_POINT));
  if (entry_point == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(where, "exports no function ", PALPATE_DEVICE_ENTRY_POINT));
  }
  const PalpateDeviceApi* api = entry_point(PALPATE_DEVICE_ABI_VERSION);
  if (api == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(where, "does not work with interface version ", PALPATE_DEVICE_ABI_VERSION));
  }
  if (api->abi_version != PALPATE_DEVICE_ABI_VERSION || api->struct_size < kLeastApiBytes) {
    return absl::FailedPreconditionError(absl::StrCat(where, "has interface version ", api->abi_version, " with a table of ",
                                                      api->struct_size, " bytes; wanted version ", PALPATE_DEVICE_ABI_VERSION,
                                                      " with at least ", kLeastApiBytes));
  }
  if (api->open == nullptr || api->capabilities == nullptr || api->read == nullptr || api->write == nullptr || api->last_error == nullptr ||
      api->close == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(where, "leaves a function of its table empty"));
  }
  PalpateDevice* device = nullptr;
  char error[512] = "";
  if (api->open(options.c_str(), &device, error, sizeof(error)) != PALPATE_DEVICE_OK || device == nullptr) {
    error[sizeof(error) - 1] = '\0';
    return absl::UnavailableError(absl::StrCat(where, "cannot open its device: ", error[0] == '\0' ? "no reason given" : error));
  }
  PalpateDeviceCapabilities raw{};
  raw.struct_size = sizeof(raw);
  const int32_t result = api->capabilities(device, &raw);
  raw.name[sizeof(raw.name) - 1] = '\0';
  DeviceCapabilities capabilities{
      .name = raw.name[0] == '\0' ? library : raw.name,
      .degrees_of_freedom = static_cast<int>(raw.degrees_of_freedom),
      .peak_force_n = raw.peak_force_n,
      .peak_torque_n_m = raw.peak_torque_n_m,
      .max_stiffness_n_per_m = raw.max_stiffness_n_per_m,
      .max_damping_n_s_per_m = raw.max_damping_n_s_per_m,
      .workspace_radius_m = raw.workspace_radius_m,
      .force_slew_n_per_s = raw.force_slew_n_per_s,
  };
  absl::Status status = ValidateCapabilities(capabilities);
  if (result != PALPATE_DEVICE_OK)
    status = absl::UnavailableError(absl::StrCat("cannot state its capabilities: ", api->last_error(device)));
  if (!status.ok()) {
    api->close(device);
    return absl::Status(status.code(), absl::StrCat(where, status.message()));
  }
  return std::unique_ptr<PluginDevice>(new PluginDevice(std::move(handle), api, device, std::move(capabilities)));
}

PluginDevice::~PluginDevice() { api_->close(device_); }

DeviceResult PluginDevice::Read(double now_s, DeviceState* state) noexcept {
  PalpateDeviceState raw{};
  raw.struct_size = sizeof(raw);
  raw.rotation_wxyz[0] = 1;
  const int32_t result = api_->read(device_, now_s, &raw);
  if (result == PALPATE_DEVICE_ENDED) return DeviceResult::kEnded;
  if (result != PALPATE_DEVICE_OK) return DeviceResult::kFailed;
  *state = DeviceState{};
  state->pose.position_m = Eigen::Vector3d(raw.position_m);
  state->pose.rotation = Eigen::Quaterniond(raw.rotation_wxyz[0], raw.rotation_wxyz[1], raw.rotation_wxyz[2], raw.rotation_wxyz[3]);
  const double norm = state->pose.rotation.norm();
  if (!(std::abs(norm - 1) < 0.01)) {  // also catches what is not a number
    own_error_ = "the device's rotation is not a unit quaternion";
    return DeviceResult::kFailed;
  }
  state->pose.rotation.coeffs() /= norm;
  state->has_velocity = raw.has_velocity != 0;
  if (state->has_velocity) {
    state->velocity.linear_m_per_s = Eigen::Vector3d(raw.velocity_m_per_s);
    state->velocity.angular_rad_per_s = Eigen::Vector3d(raw.angular_velocity_rad_per_s);
  }
  state->buttons = raw.buttons;
  state->has_grip = raw.has_grip != 0;
  state->grip = raw.grip;
  return DeviceResult::kOk;
}

DeviceResult PluginDevice::Write(const DeviceForce& force) noexcept {
  PalpateDeviceForce raw{};
  raw.struct_size = sizeof(raw);
  for (int axis = 0; axis < 3; ++axis) {
    raw.force_n[axis] = force.force_n[axis];
    raw.torque_n_m[axis] = force.torque_n_m[axis];
  }
  return api_->write(device_, &raw) == PALPATE_DEVICE_OK ? DeviceResult::kOk : DeviceResult::kFailed;
}

bool PluginDevice::has_encoders() const {
  return api_->struct_size >= sizeof(PalpateDeviceApi) && api_->read_encoders != nullptr && api_->write_motors != nullptr;
}

DeviceResult PluginDevice::ReadEncoders(double now_s, PalpateDeviceEncoders* encoders) noexcept {
  *encoders = PalpateDeviceEncoders{};
  encoders->struct_size = sizeof(*encoders);
  const int32_t result = api_->read_encoders(device_, now_s, encoders);
  if (result == PALPATE_DEVICE_ENDED) return DeviceResult::kEnded;
  return result == PALPATE_DEVICE_OK ? DeviceResult::kOk : DeviceResult::kFailed;
}

DeviceResult PluginDevice::WriteMotors(const std::array<double, 3>& motor_v) noexcept {
  PalpateDeviceMotors raw{};
  raw.struct_size = sizeof(raw);
  for (size_t i = 0; i < motor_v.size(); ++i) raw.motor_v[i] = motor_v[i];
  return api_->write_motors(device_, &raw) == PALPATE_DEVICE_OK ? DeviceResult::kOk : DeviceResult::kFailed;
}

const char* PluginDevice::error() const noexcept { return own_error_ != nullptr ? own_error_ : api_->last_error(device_); }

}  // namespace palpate::station
