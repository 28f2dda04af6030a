#pragma once

#include <array>
#include <memory>
#include <string>

#include "clients/station/haptic_device.h"
#include "clients/station/plugin/palpate_device.h"

namespace palpate::station {

/// A device behind a shared library with the C interface of plugin/palpate_device.h.
class PluginDevice final : public HapticDevice {
 public:
  /// Loads `library` (a path, or a name for the dynamic linker's search) and opens its device with `options`. Errors, all naming the
  /// library: NotFound (cannot be loaded, with the linker's reason), FailedPrecondition (no entry point, other version, incomplete table),
  /// Unavailable (the device's own text), InvalidArgument (capabilities out of range).
  static absl::StatusOr<std::unique_ptr<PluginDevice>> Open(const std::string& library, const std::string& options);
  ~PluginDevice() override;

  const DeviceCapabilities& capabilities() const override { return capabilities_; }
  DeviceResult Read(double now_s, DeviceState* state) noexcept override;
  DeviceResult Write(const DeviceForce& force) noexcept override;
  const char* error() const noexcept override;

  /// Whether it is a laparoscopic device that gives its encoders away. Only then may the next two be called, instead of Read and Write.
  bool has_encoders() const;
  DeviceResult ReadEncoders(double now_s, PalpateDeviceEncoders* encoders) noexcept;
  /// Voltages of tilt about y, tilt about x, insertion.
  DeviceResult WriteMotors(const std::array<double, 3>& motor_v) noexcept;

 private:
  struct LibraryCloser {
    void operator()(void* handle) const;
  };
  using Library = std::unique_ptr<void, LibraryCloser>;

  PluginDevice(Library library, const PalpateDeviceApi* api, PalpateDevice* device, DeviceCapabilities capabilities)
      : library_(std::move(library)), api_(api), device_(device), capabilities_(std::move(capabilities)) {}

  Library library_;
  const PalpateDeviceApi* api_;
  PalpateDevice* device_;
  DeviceCapabilities capabilities_;
  const char* own_error_ = nullptr;
};

}  // namespace palpate::station
