#include "clients/station/controls.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace palpate::station {
namespace {

/// "cautery hook".
std::string NameOf(v1::InstrumentKind kind) {
  if (kind == v1::INSTRUMENT_KIND_UNSPECIFIED) return "probe";
  const std::string name = v1::InstrumentKind_Name(kind);
  const std::string prefix = "INSTRUMENT_KIND_";
  if (name.compare(0, prefix.size(), prefix) != 0) return absl::StrCat("instrument of unknown kind ", static_cast<int>(kind));
  return absl::AsciiStrToLower(absl::StrReplaceAll(name.substr(prefix.size()), {{"_", " "}}));
}

bool IsPressed(const PoseSample& sample, const std::optional<int>& button) {
  return button.has_value() && ((sample.buttons >> *button) & 1U) != 0;
}

}  // namespace

absl::Status CheckControls(const ControlOptions& options) {
  for (const auto& [name, button] : {std::pair("--pedal-button", options.pedal_button), std::pair("--jaw-button", options.jaw_button)}) {
    if (button && (*button < 0 || *button > 31)) {
      return absl::InvalidArgumentError(absl::StrCat(name, " ", *button, " is outside [0, 31]"));
    }
  }
  const auto check = [](const char* name, const std::optional<double>& value, double high) -> absl::Status {
    if (!value || (*value > 0 && *value <= high)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(name, " ", *value, " is outside (0, ", high, "]"));
  };
  absl::Status status = check("--power", options.power_w, 1000);
  if (status.ok()) status = check("--duty", options.duty, 1);
  if (status.ok()) status = check("--jaw-angle", options.jaw_angle_rad, 3);
  if (!status.ok()) return status;
  if ((options.power_w || options.duty) && !options.pedal_button) {
    return absl::InvalidArgumentError("--power and --duty need --pedal-button: nothing else puts the pedal down");
  }
  return absl::OkStatus();
}

absl::Status ControlMap::Attach(const v1::Attached& attached) {
  const std::string name = NameOf(attached.kind());
  const auto misfit = [&](const char* option, const char* what) {
    return absl::FailedPreconditionError(absl::StrCat(option, ": the tool is a ", name, ", which has no ", what));
  };
  max_power_w_ = attached.max_power_w();
  const v1::InstrumentTraits& traits = attached.traits();
  has_jaws_ = traits.has_jaws();
  if (options_.pedal_button && !traits.has_power() && !traits.leaves_clips()) return misfit("--pedal-button", "pedal");
  if (options_.power_w && !traits.has_power()) return misfit("--power", "power");
  if (options_.duty && !traits.has_power()) return misfit("--duty", "power");
  if (options_.jaw_button && !has_jaws_) return misfit("--jaw-button", "jaws");
  if (options_.jaw_angle_rad && !has_jaws_) return misfit("--jaw-angle", "jaws");
  if (options_.power_w && *options_.power_w > max_power_w_) {
    return absl::FailedPreconditionError(
        absl::StrCat("--power ", *options_.power_w, " W is more than the ", max_power_w_, " W of this ", name));
  }
  if (options_.jaw_angle_rad && *options_.jaw_angle_rad > attached.max_jaw_angle_rad()) {
    return absl::FailedPreconditionError(absl::StrCat("--jaw-angle ", *options_.jaw_angle_rad, " rad is more than the ",
                                                      attached.max_jaw_angle_rad(), " rad of this ", name));
  }
  open_rad_ = options_.jaw_angle_rad.value_or(attached.max_jaw_angle_rad());
  was_down_ = false;
  was_closed_ = true;
  return absl::OkStatus();
}

void ControlMap::Apply(const PoseSample& sample, v1::ToolPose* message) {
  double angle_rad = 0;
  if (has_jaws_ && options_.jaw_button) {
    angle_rad = IsPressed(sample, options_.jaw_button) ? 0 : open_rad_;
  } else if (has_jaws_ && sample.has_grip) {
    angle_rad = std::clamp(sample.grip, 0.0, 1.0) * open_rad_;
  }
  const bool is_down = IsPressed(sample, options_.pedal_button);
  message->set_jaw_angle_rad(angle_rad);
  message->set_pedal(is_down);
  message->set_power_w(options_.power_w.value_or(0));
  message->set_duty(options_.duty.value_or(0));

  const bool is_closed = has_jaws_ && angle_rad < 0.5 * open_rad_;
  statistics_.jaw_closings += is_closed && !was_closed_ ? 1 : 0;
  statistics_.pedal_poses += is_down ? 1 : 0;
  statistics_.pedal_presses += is_down && !was_down_ ? 1 : 0;
  statistics_.min_jaw_angle_rad = has_sent_ ? std::min(statistics_.min_jaw_angle_rad, angle_rad) : angle_rad;
  statistics_.max_jaw_angle_rad = std::max(statistics_.max_jaw_angle_rad, angle_rad);
  if (is_down) {
    statistics_.power_w = options_.power_w.value_or(max_power_w_);
    statistics_.duty = options_.duty.value_or(1);
  }
  has_sent_ = true;
  was_down_ = is_down;
  was_closed_ = is_closed;
}

}  // namespace palpate::station
