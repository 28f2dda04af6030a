// The local model against the ways of extrapolating low-rate forces that it replaces (Forest 2003, section 8.2), on a tissue
// with a closed form.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "sim/haptics/build_model.h"
#include "sim/haptics/evaluate.h"

namespace palpate::sim::extrapolation_test {
namespace {

using Eigen::Vector3d;

constexpr double kRadius_m = 0.04;  // a round organ
constexpr double kStiffness_n_per_m = 300;
constexpr double kTick_s = 0.001;
constexpr int kTicksPerStep = 40;  // 25 steps a second: a loaded server
constexpr int kLatencyTicks = 15;  // a step's force or model arrives so much later

/// Force of the organ on a tip at p.
Vector3d Truth(const Vector3d& p) { return kStiffness_n_per_m * std::max(0.0, kRadius_m - p.norm()) * p.normalized(); }

/// A stroke over the organ, 8 mm deep, that turns round at 0.5 s and again at 0.8 s.
Vector3d Tip(double t) {
  const double angle = t < 0.5 ? 0.8 * t : (t < 0.8 ? 0.4 - 1.2 * (t - 0.5) : 0.04 + 0.8 * (t - 0.8));
  const double depth_m = t < 0.5 ? 0.016 * t : (t < 0.8 ? 0.008 - 0.02 * (t - 0.5) : 0.002 + 0.01 * (t - 0.8));
  return (kRadius_m - depth_m) * Vector3d(std::sin(angle), 0, std::cos(angle));
}

struct Step {
  double t_s = 0;
  Vector3d tip_m;
  Vector3d force_n;
};

struct Errors {
  double rms_n = 0;
  double max_n = 0;
};

/// Error of a method over the 0.1 s after each turn.
Errors Measure(const std::function<Vector3d(const Step& newest, const Step& before, double now_s, const Vector3d& tip_m)>& method) {
  double sum = 0;
  int count = 0;
  Errors errors;
  for (int tick = 2 * kTicksPerStep + kLatencyTicks; tick < 1000; ++tick) {
    const int step = (tick - kLatencyTicks) / kTicksPerStep;
    const auto sample = [](int index) {
      const double t = index * kTicksPerStep * kTick_s;
      return Step{t, Tip(t), Truth(Tip(t))};
    };
    const double now_s = tick * kTick_s;
    const double error_n = (method(sample(step), sample(step - 1), now_s, Tip(now_s)) - Truth(Tip(now_s))).norm();
    if ((now_s >= 0.5 && now_s < 0.6) || (now_s >= 0.8 && now_s < 0.9)) {
      sum += error_n * error_n;
      ++count;
      errors.max_n = std::max(errors.max_n, error_n);
    }
  }
  errors.rms_n = std::sqrt(sum / count);
  return errors;
}

/// What the server sends: of a contact with the force of the organ and `share` of its stiffness, as far off as models of running scenes are
/// (docs/haptics.md).
LocalModel ModelOf(const Step& step, double share) {
  const Vector3d normal = step.tip_m.normalized();
  const double gap_m = step.tip_m.norm() - kRadius_m;
  const LocalContact contact = {.point_m = step.tip_m - gap_m * normal,
                                .normal_W = normal,
                                .gap_m = gap_m,
                                .normal_force_n = step.force_n.norm(),
                                .stiffness_n_per_m = share * kStiffness_n_per_m};
  LocalModelInput input;
  input.device_pose.position_m = input.tool_pose.position_m = step.tip_m;
  input.contacts = {&contact, 1};
  return BuildLocalModel(input);
}

TEST(Extrapolation, LocalModelErrsLeastWhenTheHandTurnsRound) {
  const Errors constant = Measure([](const Step& newest, const Step&, double, const Vector3d&) { return newest.force_n; });
  const Errors linear_time = Measure([](const Step& newest, const Step& before, double now_s, const Vector3d&) {
    return Vector3d(newest.force_n + (now_s - newest.t_s) / (newest.t_s - before.t_s) * (newest.force_n - before.force_n));
  });
  const Errors linear_position = Measure([](const Step& newest, const Step& before, double, const Vector3d& tip_m) {
    const double travel_m = (newest.tip_m - before.tip_m).norm();
    const double share = travel_m > 1e-9 ? (tip_m - newest.tip_m).norm() / travel_m : 0;
    return Vector3d(newest.force_n + share * (newest.force_n - before.force_n));
  });
  double share = 1;
  const auto from_newest = [&](const Step& newest, const Step&, double, const Vector3d& tip_m) {
    FrictionState friction;
    return EvaluateLocalModel(ModelOf(newest, share), {.position_m = tip_m}, {}, friction).force_n;
  };
  const Errors local_model = Measure(from_newest);
  share = 0.7;
  const Errors too_soft = Measure(from_newest);
  share = 1.4;
  const Errors too_stiff = Measure(from_newest);
  const Errors blended = Measure([](const Step& newest, const Step& before, double now_s, const Vector3d& tip_m) {
    const double blend_s = kTicksPerStep * kTick_s;
    const double weight = std::clamp((now_s - newest.t_s - kLatencyTicks * kTick_s) / blend_s, 0.0, 1.0);
    FrictionState a;
    FrictionState b;
    return Vector3d(weight * EvaluateLocalModel(ModelOf(newest, 1), {.position_m = tip_m}, {}, a).force_n +
                    (1 - weight) * EvaluateLocalModel(ModelOf(before, 1), {.position_m = tip_m}, {}, b).force_n);
  });
  std::printf("error [N] in the 0.1 s after a turn   rms     max\n");
  const auto print = [](const char* name, const Errors& e) { std::printf("%-36s %.4f  %.4f\n", name, e.rms_n, e.max_n); };
  print("constant", constant);
  print("linear in time", linear_time);
  print("linear in position", linear_position);
  print("local model", local_model);
  print("local model, 0.7 of the stiffness", too_soft);
  print("local model, 1.4 of the stiffness", too_stiff);
  print("local models, two blended", blended);
  for (const Errors& other : {constant, linear_time, linear_position}) {
    EXPECT_LT(local_model.rms_n, 0.5 * other.rms_n);
    for (const Errors& off : {too_soft, too_stiff}) EXPECT_LT(off.rms_n, 0.8 * other.rms_n);
    EXPECT_LT(local_model.max_n, other.max_n);
    EXPECT_LT(blended.rms_n, other.rms_n);
  }
}

}  // namespace
}  // namespace palpate::sim::extrapolation_test
