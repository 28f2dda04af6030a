#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "clients/station/haptic_device.h"

namespace palpate::station {
namespace {

// Peak force, torque, stiffness at 1 kHz, damping and workspace radius as drivers in use publish them. The slew is ours: full force within
// 10 ms.
const std::array<DeviceCapabilities, 10>& Profiles() {
  static const std::array<DeviceCapabilities, 10> profiles = {{
      {"delta.3", 3, 20, 0, 5000, 30, 0.15, 2000},
      {"omega.3", 3, 12, 0, 5000, 30, 0.075, 1200},
      {"sigma.7", 6, 12, 0.2, 4000, 30, 0.075, 1200},
      {"lambda.7", 6, 12, 0.2, 8000, 30, 0.1125, 1200},
      {"falcon", 3, 8, 0, 3000, 20, 0.04, 800},
      {"touch", 3, 3.3, 0, 400, 4, 0.075, 330},
      {"omni", 3, 3.3, 0, 700, 5, 0.10, 330},
      {"desktop", 3, 7.9, 0, 1000, 5, 0.10, 790},
      {"premium1.5", 6, 8.5, 0.188, 800, 5, 0.12, 850},
      {"premium3.0", 6, 22, 0.188, 1000, 5, 0.25, 2200},
  }};
  return profiles;
}

}  // namespace

const DeviceCapabilities* FindDeviceProfile(std::string_view name) {
  for (const DeviceCapabilities& profile : Profiles()) {
    if (profile.name == name) return &profile;
  }
  return nullptr;
}

std::vector<std::string> DeviceProfileNames() {
  std::vector<std::string> names;
  for (const DeviceCapabilities& profile : Profiles()) names.push_back(profile.name);
  return names;
}

absl::Status ValidateCapabilities(const DeviceCapabilities& capabilities) {
  struct Rule {
    const char* name;
    double value;
    bool may_be_zero;
  };
  const Rule rules[] = {
      {"peak_force_n", capabilities.peak_force_n, false},
      {"peak_torque_n_m", capabilities.peak_torque_n_m, true},
      {"max_stiffness_n_per_m", capabilities.max_stiffness_n_per_m, false},
      {"max_damping_n_s_per_m", capabilities.max_damping_n_s_per_m, true},
      {"workspace_radius_m", capabilities.workspace_radius_m, false},
      {"force_slew_n_per_s", capabilities.force_slew_n_per_s, false},
  };
  for (const Rule& rule : rules) {
    if (!std::isfinite(rule.value) || rule.value < 0 || (rule.value == 0 && !rule.may_be_zero)) {
      return absl::InvalidArgumentError(absl::StrCat("device '", capabilities.name, "': ", rule.name, " = ", rule.value,
                                                     " is out of range; it must be finite and ", rule.may_be_zero ? ">= 0" : "> 0"));
    }
  }
  if (capabilities.degrees_of_freedom != 3 && capabilities.degrees_of_freedom != 6) {
    return absl::InvalidArgumentError(
        absl::StrCat("device '", capabilities.name, "': degrees_of_freedom = ", capabilities.degrees_of_freedom, " is not 3 or 6"));
  }
  return absl::OkStatus();
}

}  // namespace palpate::station
