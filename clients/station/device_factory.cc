#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "clients/station/controller_device.h"
#include "clients/station/haptic_device.h"
#include "clients/station/laparoscopic_station_device.h"
#include "clients/station/plugin_device.h"
#include "clients/station/recording.h"
#include "clients/station/simulated_hand.h"

namespace palpate::station {

absl::StatusOr<std::unique_ptr<HapticDevice>> MakeDevice(const std::string& spec) {
  const size_t colon = spec.find(':');
  const std::string kind = spec.substr(0, colon);
  const std::string rest = colon == std::string::npos ? "" : spec.substr(colon + 1);
  if (kind == "sim") {
    const absl::StatusOr<HandOptions> options = ParseHandOptions(rest);
    if (!options.ok()) return options.status();
    return std::make_unique<SimulatedHand>(*options);
  }
  if (kind == "replay") {
    if (rest.empty()) return absl::InvalidArgumentError("device replay: no file; give replay:FILE");
    return ReplayDevice::Open(rest);
  }
  if (kind == "record") {
    const std::string separator = ",inner=";
    const size_t at = rest.find(separator);
    if (at == std::string::npos || at == 0) {
      return absl::InvalidArgumentError(absl::StrCat("device record: '", rest, "' is not FILE,inner=SPEC"));
    }
    const std::string inner_spec = rest.substr(at + separator.size());
    if (absl::StartsWith(inner_spec, "record:")) return absl::InvalidArgumentError("device record: inner must not be a recorder itself");
    absl::StatusOr<std::unique_ptr<HapticDevice>> inner = MakeDevice(inner_spec);
    if (!inner.ok()) return inner.status();
    return RecordingDevice::Open(rest.substr(0, at), *std::move(inner));
  }
  if (kind == "plugin") {
    const size_t comma = rest.find(',');
    if (rest.empty() || comma == 0) return absl::InvalidArgumentError("device plugin: no library; give plugin:LIBRARY[,OPTIONS]");
    return PluginDevice::Open(rest.substr(0, comma), comma == std::string::npos ? "" : rest.substr(comma + 1));
  }
  if (kind == "controller") return ControllerDevice::Open(rest);
  if (kind == "lie") return LaparoscopicStationDevice::Open(rest);
  return absl::InvalidArgumentError(
      absl::StrCat("device '", spec, "': kind '", kind, "' is not one of sim, replay, record, plugin, controller, lie"));
}

std::string DeviceSpecHelp() {
  return absl::StrCat(
      "Devices (--device SPEC):\n"
      "  sim[:KEY=VALUE,...]        a simulated hand; keys and defaults:\n"
      "      script=palpate         palpate (ring of spots), sweep (slide under pressure), poke (sine) or grasp\n"
      "      pedal=none             push: button 0 is down while it pushes, or holds what it grasped; grasp: button 1 while closed\n"
      "      profile=omega.3        limits of a real device: ",
      absl::StrJoin(DeviceProfileNames(), " "),
      "\n"
      "      depth=0.015 speed=0.04 dwell=0.6 spots=5 spacing=0.02 travel=0.15 clearance=0.01   (m, m/s, s)\n"
      "      max_force=4 rate=0.5 mass=0.3 stiffness=400 damping=12                             (N, Hz, kg, N/m, N s/m)\n"
      "  replay:FILE                poses of a recording, tick by tick\n"
      "  record:FILE,inner=SPEC     records all that goes to and from SPEC\n"
      "  plugin:LIBRARY[,OPTIONS]   a shared library with the interface of palpate_device.h\n"
      "  controller:PATH[,profile=omega.3][,patience=10]   another process plays the hand, over a Unix socket at which it listens\n"
      "  lie[:KEY=VALUE,...,inner=SPEC]   a laparoscopic device: encoders and motors of a plug-in that has them, or of a simulated\n"
      "                             mechanism in the hand SPEC (default sim); start=0.02 (m) stiffness=1000 (N/m) damping=5 (N s/m)\n");
}

}  // namespace palpate::station
