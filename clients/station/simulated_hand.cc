#include "clients/station/simulated_hand.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace palpate::station {
namespace {

using Eigen::Vector3d;

constexpr double kStep_s = 0.001;       // longest step of the integration
constexpr double kTouch_n = 0.08;       // what a hand notices
constexpr double kTouchTime_s = 0.005;  // for this long, so that one stray sample is no touch
constexpr int kSlideLegs = 3;
constexpr double kGripTime_s = 0.3;  // from open to closed

struct NumberKey {
  const char* name;
  double HandOptions::*field;
  double min, max;
};

constexpr NumberKey kNumberKeys[] = {
    {"mass", &HandOptions::mass_kg, 0.01, 20},
    {"stiffness", &HandOptions::stiffness_n_per_m, 1, 1e5},
    {"damping", &HandOptions::damping_n_s_per_m, 0, 1e4},
    {"depth", &HandOptions::depth_m, 0.0005, 0.1},
    {"speed", &HandOptions::speed_m_per_s, 0.001, 1},
    {"dwell", &HandOptions::dwell_s, 0, 60},
    {"spacing", &HandOptions::spacing_m, 0, 0.2},
    {"travel", &HandOptions::travel_m, 0.001, 1},
    {"clearance", &HandOptions::clearance_m, 0, 0.2},
    {"max_force", &HandOptions::max_force_n, 0.1, 50},
    {"rate", &HandOptions::poke_rate_hz, 0.01, 10},
};

absl::Status SetScript(const std::string& value, HandOptions* options) {
  if (value == "palpate") {
    options->script = HandScript::kPalpate;
  } else if (value == "sweep") {
    options->script = HandScript::kSweep;
  } else if (value == "poke") {
    options->script = HandScript::kPoke;
  } else if (value == "grasp") {
    options->script = HandScript::kGrasp;
  } else {
    return absl::InvalidArgumentError(absl::StrCat("device sim: script '", value, "' is not one of palpate, sweep, poke, grasp"));
  }
  return absl::OkStatus();
}

absl::Status SetPedal(const std::string& value, HandOptions* options) {
  if (value != "none" && value != "push") {
    return absl::InvalidArgumentError(absl::StrCat("device sim: pedal '", value, "' is not one of none, push"));
  }
  options->uses_pedal = value == "push";
  return absl::OkStatus();
}

absl::Status SetProfile(const std::string& value, HandOptions* options) {
  const DeviceCapabilities* profile = FindDeviceProfile(value);
  if (profile == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("device sim: profile '", value, "' is not one of ", absl::StrJoin(DeviceProfileNames(), ", ")));
  }
  options->capabilities = *profile;
  return absl::OkStatus();
}

absl::Status SetSpots(const std::string& value, HandOptions* options) {
  if (!absl::SimpleAtoi(value, &options->spots) || options->spots < 1 || options->spots > 64) {
    return absl::InvalidArgumentError(absl::StrCat("device sim: spots = '", value, "' is not a whole number in [1, 64]"));
  }
  return absl::OkStatus();
}

struct WordKey {
  const char* name;
  absl::Status (*set)(const std::string& value, HandOptions* options);
};

constexpr WordKey kWordKeys[] = {{"script", SetScript}, {"profile", SetProfile}, {"spots", SetSpots}, {"pedal", SetPedal}};

absl::Status SetNumber(const NumberKey& key, const std::string& value, HandOptions* options) {
  double number = 0;
  if (!absl::SimpleAtod(value, &number) || !(number >= key.min && number <= key.max)) {
    return absl::InvalidArgumentError(
        absl::StrCat("device sim: ", key.name, " = '", value, "' is not a number in [", key.min, ", ", key.max, "]"));
  }
  options->*(key.field) = number;
  return absl::OkStatus();
}

absl::Status SetOption(const std::string& key, const std::string& value, HandOptions* options) {
  for (const WordKey& known : kWordKeys) {
    if (key == known.name) return known.set(value, options);
  }
  for (const NumberKey& known : kNumberKeys) {
    if (key == known.name) return SetNumber(known, value, options);
  }
  std::vector<std::string> names;
  for (const WordKey& known : kWordKeys) names.emplace_back(known.name);
  for (const NumberKey& known : kNumberKeys) names.emplace_back(known.name);
  return absl::InvalidArgumentError(absl::StrCat("device sim: unknown key '", key, "'; known: ", absl::StrJoin(names, ", ")));
}

}  // namespace

absl::StatusOr<HandOptions> ParseHandOptions(const std::string& text) {
  HandOptions options;
  options.capabilities = *FindDeviceProfile("omega.3");
  const std::vector<std::string> items = absl::StrSplit(text, ',', absl::SkipEmpty());
  for (const std::string& item : items) {
    const size_t equals = item.find('=');
    if (equals == std::string::npos) return absl::InvalidArgumentError(absl::StrCat("device sim: '", item, "' is not KEY=VALUE"));
    if (absl::Status status = SetOption(item.substr(0, equals), item.substr(equals + 1), &options); !status.ok()) return status;
  }
  options.capabilities.name = absl::StrCat("simulated hand on ", options.capabilities.name);
  return options;
}

void SimulatedHand::SetEngaged(bool engaged) noexcept {
  if (engaged == engaged_) return;
  engaged_ = engaged;
  // The arm holds still where it is; the script begins anew from there.
  reference_m_ = position_m_;
  reference_velocity_m_per_s_.setZero();
  surface_z_m_ = position_m_.z();
  start_z_m_ = position_m_.z();
  spot_ = 0;
  grip_ = 1;
  Enter(engaged ? Phase::kDescend : Phase::kRest);
}

DeviceResult SimulatedHand::Read(double now_s, DeviceState* state) noexcept {
  if (has_time_) {
    // After a long pause of the loop the hand does not catch up.
    double left_s = std::clamp(now_s - last_s_, 0.0, 0.1);
    while (left_s > 1e-9) {
      const double dt_s = std::min(left_s, kStep_s);
      Advance(dt_s);
      left_s -= dt_s;
    }
  }
  has_time_ = true;
  last_s_ = now_s;
  *state = DeviceState{};
  state->pose.position_m = position_m_;
  state->velocity.linear_m_per_s = velocity_m_per_s_;
  state->has_velocity = true;
  state->buttons = (IsPedalDown() ? 1U << kHandPedalButton : 0U) | (IsClosed() ? 1U << kHandClosedButton : 0U);
  state->has_grip = options_.script == HandScript::kGrasp;
  state->grip = state->has_grip ? grip_ : 0;
  return DeviceResult::kOk;
}

DeviceResult SimulatedHand::Write(const DeviceForce& force) noexcept {
  force_n_ = force.force_n;
  return DeviceResult::kOk;
}

void SimulatedHand::Advance(double dt_s) noexcept {
  AdvanceScript(dt_s);
  const double m = options_.mass_kg;
  const double k = options_.stiffness_n_per_m;
  const double b = options_.damping_n_s_per_m;
  const Vector3d momentum = m * velocity_m_per_s_ + dt_s * (k * (reference_m_ - position_m_) + b * reference_velocity_m_per_s_ + force_n_);
  velocity_m_per_s_ = momentum / (m + dt_s * b + dt_s * dt_s * k);
  position_m_ += dt_s * velocity_m_per_s_;
}

bool SimulatedHand::IsPedalDown() const noexcept {
  return options_.uses_pedal && (phase_ == Phase::kPress || phase_ == Phase::kDwell || phase_ == Phase::kSlide || phase_ == Phase::kPoke ||
                                 phase_ == Phase::kHold);
}

Vector3d SimulatedHand::SpotOffset() const noexcept {
  // The first spot is the middle of the ring.
  if (options_.spots == 1 || spot_ == 0) return Vector3d::Zero();
  const double angle_rad = 2 * std::numbers::pi * (spot_ - 1) / (options_.spots - 1);
  return options_.spacing_m * Vector3d(std::cos(angle_rad), std::sin(angle_rad), 0);
}

bool SimulatedHand::MoveReference(const Vector3d& goal_m, double dt_s) noexcept {
  const Vector3d way_m = goal_m - reference_m_;
  const double distance_m = way_m.norm();
  const double reach_m = options_.speed_m_per_s * dt_s;
  if (distance_m <= reach_m) {
    reference_velocity_m_per_s_.setZero();
    reference_m_ = goal_m;
    return true;
  }
  reference_velocity_m_per_s_ = way_m * (options_.speed_m_per_s / distance_m);
  reference_m_ += dt_s * reference_velocity_m_per_s_;
  return false;
}

void SimulatedHand::Enter(Phase phase) noexcept {
  phase_ = phase;
  phase_s_ = 0;
  felt_s_ = 0;
  slide_leg_ = 0;
  held_m_ = reference_m_;
}

void SimulatedHand::AdvanceScript(double dt_s) noexcept {
  phase_s_ += dt_s;
  grip_ = std::clamp(grip_ + (IsClosed() ? -dt_s : dt_s) / kGripTime_s, 0.0, 1.0);
  switch (phase_) {
    case Phase::kRest:
      return;
    case Phase::kTravel:
      return Travel(dt_s);
    case Phase::kDescend:
      return Descend(dt_s);
    case Phase::kPress:
      return Press(dt_s);
    case Phase::kDwell:
      return Dwell();
    case Phase::kSlide:
      return Slide(dt_s);
    case Phase::kPoke:
      return Poke();
    case Phase::kClose:
      reference_velocity_m_per_s_.setZero();
      if (phase_s_ >= kGripTime_s + options_.dwell_s) Enter(Phase::kPull);
      return;
    case Phase::kPull:
      if (MoveReference(held_m_ + Vector3d(0, 0, options_.clearance_m), dt_s)) Enter(Phase::kHold);
      return;
    case Phase::kHold:
      if (phase_s_ >= options_.dwell_s) EndPush(Phase::kOpen);
      return;
    case Phase::kOpen:
      if (phase_s_ >= kGripTime_s + 0.5 * options_.dwell_s) Enter(Phase::kLift);
      return;
    case Phase::kLift:
      return Lift(dt_s);
  }
}

void SimulatedHand::EndPush(Phase next) noexcept {
  ++pushes_;
  Enter(next);
}

void SimulatedHand::Travel(double dt_s) noexcept {
  const Vector3d offset_m = SpotOffset();
  if (MoveReference(Vector3d(offset_m.x(), offset_m.y(), lift_z_m_), dt_s)) Enter(Phase::kDescend);
}

void SimulatedHand::Descend(double dt_s) noexcept {
  // Who grasps wants to be deep, not only there.
  const bool grasps = options_.script == HandScript::kGrasp;
  felt_s_ = felt_n() > (grasps ? options_.max_force_n : kTouch_n) ? felt_s_ + dt_s : 0;
  if (felt_s_ >= kTouchTime_s && grasps) {
    lift_z_m_ = start_z_m_;
    Enter(Phase::kClose);
    return;
  }
  if (felt_s_ >= kTouchTime_s) {
    surface_z_m_ = position_m_.z();
    lift_z_m_ = surface_z_m_ + options_.clearance_m;
    Enter(options_.script == HandScript::kPoke ? Phase::kPoke : Phase::kPress);
    return;
  }
  if (MoveReference(Vector3d(held_m_.x(), held_m_.y(), start_z_m_ - options_.travel_m), dt_s)) {
    lift_z_m_ = start_z_m_;  // nothing here
    Enter(grasps ? Phase::kClose : Phase::kLift);
  }
}

void SimulatedHand::Press(double dt_s) noexcept {
  // The arm pushes on until the hand itself is deep enough: against stiff tissue its reference runs ahead.
  const bool deep_enough = surface_z_m_ - position_m_.z() >= options_.depth_m;
  const double furthest_z_m = surface_z_m_ - options_.depth_m - options_.max_force_n / options_.stiffness_n_per_m;
  if (deep_enough || felt_n() >= options_.max_force_n || MoveReference(Vector3d(held_m_.x(), held_m_.y(), furthest_z_m), dt_s)) {
    reference_velocity_m_per_s_.setZero();
    Enter(options_.script == HandScript::kSweep ? Phase::kSlide : Phase::kDwell);
  }
}

void SimulatedHand::Dwell() noexcept {
  // Fingers feel by moving: a small circle of pressure, 1.5 mm at 1.5 Hz.
  const double omega = 2 * std::numbers::pi * 1.5;
  const double amplitude_m = std::min(0.0015, 0.1 * options_.depth_m);
  reference_m_ = held_m_ + Vector3d(0, 0, -amplitude_m * std::sin(omega * phase_s_));
  reference_velocity_m_per_s_ = Vector3d(0, 0, -amplitude_m * omega * std::cos(omega * phase_s_));
  if (phase_s_ >= options_.dwell_s) EndPush(Phase::kLift);
}

void SimulatedHand::Slide(double dt_s) noexcept {
  const double side = slide_leg_ == 0 ? 1 : (slide_leg_ == 1 ? -1 : 0);
  if (MoveReference(held_m_ + Vector3d(side * options_.spacing_m, 0, 0), dt_s) && ++slide_leg_ == kSlideLegs) EndPush(Phase::kLift);
}

void SimulatedHand::Poke() noexcept {
  const double omega = 2 * std::numbers::pi * options_.poke_rate_hz;
  const double depth_m = 0.5 * options_.depth_m * (1 - std::cos(omega * phase_s_));
  reference_m_ = Vector3d(held_m_.x(), held_m_.y(), surface_z_m_ - depth_m);
  reference_velocity_m_per_s_ = Vector3d(0, 0, -0.5 * options_.depth_m * omega * std::sin(omega * phase_s_));
  pushes_ = std::max(pushes_, static_cast<int>(phase_s_ * options_.poke_rate_hz));
}

void SimulatedHand::Lift(double dt_s) noexcept {
  if (!MoveReference(Vector3d(held_m_.x(), held_m_.y(), lift_z_m_), dt_s)) return;
  spot_ = (spot_ + 1) % options_.spots;
  Enter(Phase::kTravel);
}

}  // namespace palpate::station
