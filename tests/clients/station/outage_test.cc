// What a hand feels of a network that is late, loses messages or is gone for a while. All in the time of the test.
#include <cstdio>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "tests/clients/station/emulated_station.h"

namespace palpate::station::outage_test {
namespace {

using Eigen::Vector3d;
using ::palpate::testing::EmulatedScene;
using ::palpate::testing::GuidedHand;
using ::palpate::testing::kTick_s;
using ::palpate::testing::Network;
using ::palpate::testing::Organ;
using ::palpate::testing::RunHand;
using ::palpate::testing::Trace;

constexpr double kMostStep_n = 0.05;       // from one tick to the next
constexpr double kMostAbove20Hz_n = 0.05;  // after an outage
constexpr double kMostGiven_j = 0.004;     // in any second
constexpr double kArm_n_per_m = 400;       // of GuidedHand

constexpr double kOutageBegin_s = 7;
constexpr double kRecovery_s = 14;  // the longest: a hand that has sunk in is lifted with 2 mW

/// Presses slowly until the force would be `force_n`, then keeps still: 20 mN a tick of the force come from the hand's motion at most.
GuidedHand::Reference SteadyPress(double stiffness_n_per_m, double force_n) {
  const double goal_m = 0.01 + force_n / stiffness_n_per_m + force_n / kArm_n_per_m;
  const double speed_m_per_s = std::min(0.04, 0.02 / (stiffness_n_per_m * kTick_s));
  return [=](double time_s) {
    const double near_m = 0.0098;
    return Vector3d(0, 0, -(time_s < 1 ? near_m * time_s : std::min(goal_m, near_m + speed_m_per_s * (time_s - 1))));
  };
}

struct Outcome {
  Trace trace;
  uint64_t stale_ticks = 0;
  uint64_t passivity_ticks = 0;
  uint64_t slew_limited_ticks = 0;
  double gain = 0;
  double min_energy_j = 0;  ///< as the observer counts: without what friction and damping took
};

Outcome Emulate(const DeviceCapabilities& device, const Organ& organ, const Network& network, GuidedHand::Reference reference,
                double duration_s, const std::function<void(double, sim::LocalModel*)>& change = {}) {
  GuidedHand hand(device, std::move(reference));
  LoopOptions options;
  options.limits = LimitsOf(device);
  const auto loop = std::make_unique<HapticLoop>(&hand, options);
  EmulatedScene scene(organ, network);
  scene.change = change;
  Outcome outcome;
  outcome.trace = RunHand(loop.get(), hand, &scene, duration_s);
  const SafetyCounters& counters = loop->safety().counters();
  outcome.stale_ticks = counters.stale_ticks;
  outcome.passivity_ticks = counters.passivity_ticks;
  outcome.slew_limited_ticks = counters.slew_limited_ticks;
  outcome.gain = loop->safety().gain();
  outcome.min_energy_j = counters.min_energy_j;
  return outcome;
}

/// What docs/haptics.md quotes; printed at the end.
struct Worst {
  double step_n = 0;
  double above_20_hz_n = 0;
  double given_j = 0;
  double mean_share = 0;
  ~Worst() {
    std::printf("worst: step %.3f N, above 20 Hz %.3f N, given in a second %.2f mJ, mean force off by %.1f %%\n", step_n, above_20_hz_n,
                1e3 * given_j, 100 * mean_share);
  }
};
Worst& WorstFound() {
  static Worst worst;
  return worst;
}

void ExpectGentle(const DeviceCapabilities& device, double stiffness_n_per_m, double force_n, const Network& network) {
  const Organ organ{.stiffness_n_per_m = stiffness_n_per_m};
  const double back_s = network.outage_begin_s + network.outage_s;
  const double end_s = back_s + (network.outage_s > 1 ? kRecovery_s : 3);
  const Outcome outcome = Emulate(device, organ, network, SteadyPress(stiffness_n_per_m, force_n), end_s);
  const Trace& trace = outcome.trace;
  SCOPED_TRACE(device.name + ", " + std::to_string(stiffness_n_per_m) + " N/m, delay " + std::to_string(network.delay_s) + " s, outage " +
               std::to_string(network.outage_s) + " s");
  EXPECT_NEAR(trace.MeanForce(kOutageBegin_s - 0.5, kOutageBegin_s), force_n, 0.1 * force_n) << "late models take nothing away";
  EXPECT_LE(trace.LargestStep(0, end_s), kMostStep_n);
  EXPECT_LE(trace.LargestAbove20Hz(back_s, end_s), kMostAbove20Hz_n);
  EXPECT_LE(trace.MostGivenInASecond(kOutageBegin_s - 0.5, end_s), kMostGiven_j);
  EXPECT_NEAR(trace.MeanForce(end_s - 1, end_s), force_n, 0.1 * force_n);
  Worst& worst = WorstFound();
  worst.step_n = std::max(worst.step_n, trace.LargestStep(0, end_s));
  worst.above_20_hz_n = std::max(worst.above_20_hz_n, trace.LargestAbove20Hz(back_s, end_s));
  worst.given_j = std::max(worst.given_j, trace.MostGivenInASecond(kOutageBegin_s - 0.5, end_s));
  worst.mean_share = std::max({worst.mean_share, std::abs(trace.MeanForce(kOutageBegin_s - 0.5, kOutageBegin_s) / force_n - 1),
                               std::abs(trace.MeanForce(end_s - 1, end_s) / force_n - 1)});
  if (network.outage_s < 1) {
    EXPECT_EQ(outcome.stale_ticks, 0U) << "a spring that is held for a while is safe";
  }
}

class Outage : public ::testing::TestWithParam<double> {};

// From soft tissue to the stiffest that a device renders.
INSTANTIATE_TEST_SUITE_P(Stiffness, Outage, ::testing::Values(100, 300, 1000, 5000),
                         [](const auto& test) { return std::to_string(static_cast<int>(test.param)); });

TEST_P(Outage, LeavesASteadyPressGentle) {
  const DeviceCapabilities& device = *FindDeviceProfile("delta.3");
  for (const double outage_s : {0.06, 0.25, 1.0, 2.0, 3.0}) {
    for (const double delay_s : {0.0, 0.01, 0.05, 0.1}) {
      ExpectGentle(device, GetParam(), 4,
                   {.delay_s = delay_s, .jitter_s = 0.2 * delay_s, .loss = 0.05, .outage_begin_s = kOutageBegin_s, .outage_s = outage_s});
    }
  }
}

TEST(Outages, AreGentleWithEveryDevice) {
  for (const std::string& name : DeviceProfileNames()) {
    const DeviceCapabilities& device = *FindDeviceProfile(name);
    for (const double outage_s : {1.0, 3.0}) {
      ExpectGentle(device, device.max_stiffness_n_per_m, 2.5,
                   {.delay_s = 0.02, .loss = 0.05, .outage_begin_s = kOutageBegin_s, .outage_s = outage_s});
    }
  }
}

TEST(Outages, DoNotTakeTheForceOffAHandThatHasLeft) {
  // Gone for 3 s while the hand presses; it lifts at the end of the outage and presses again a second later: the full force is there.
  const Organ organ{.stiffness_n_per_m = 300};
  const GuidedHand::Reference press = SteadyPress(300, 4);
  const auto reference = [&](double time_s) { return time_s > 10 && time_s < 11 ? Vector3d(0, 0, 0) : press(std::min(time_s, 7.0)); };
  const Outcome outcome = Emulate(*FindDeviceProfile("omega.3"), organ, {.outage_begin_s = 7, .outage_s = 3}, reference, 13);
  EXPECT_LT(outcome.trace.MeanForce(9.8, 10), 0.3);
  EXPECT_NEAR(outcome.trace.MeanForce(12, 13), 4, 0.05);
}

TEST(Latency, ALateNetworkFeelsLikeNone) {
  // Along a round organ, to and fro and in and out, with friction, and slopes that are wrong either way.
  for (const double slope_error : {0.7, 1.0, 1.5}) {
    for (const double stiffness_n_per_m : {100.0, 300.0, 1000.0}) {
      const Organ organ{.stiffness_n_per_m = stiffness_n_per_m, .friction = 0.2, .slope_error = slope_error};
      const GuidedHand::Reference press = SteadyPress(stiffness_n_per_m, 2);
      const auto reference = [&](double time_s) {
        const double t = std::max(0.0, time_s - 4);
        return Vector3d(press(time_s) + Vector3d(0.008 * std::sin(2 * M_PI * 0.2 * t), 0, 0.001 * std::sin(2 * M_PI * 0.7 * t)));
      };
      const DeviceCapabilities& device = *FindDeviceProfile("omega.3");
      const double here_n = Emulate(device, organ, {}, reference, 14).trace.MeanForce(4, 14);
      for (const double delay_s : {0.0, 0.01, 0.05, 0.1}) {
        const Outcome outcome = Emulate(device, organ, {.delay_s = delay_s, .jitter_s = 0.2 * delay_s, .loss = 0.05}, reference, 14);
        const Trace& trace = outcome.trace;
        EXPECT_LE(trace.LargestStep(0, 14), kMostStep_n) << stiffness_n_per_m << " N/m, slope " << slope_error << ", delay " << delay_s;
        EXPECT_NEAR(trace.MeanForce(4, 14), here_n, 0.1 * here_n) << stiffness_n_per_m << " N/m, slope " << slope_error << ", " << delay_s;
        EXPECT_EQ(outcome.stale_ticks, 0U);
        EXPECT_EQ(outcome.passivity_ticks, 0U);
      }
    }
  }
}

TEST(Latency, APassiveWallKeepsItsFullForce) {
  // Press and release at full speed: not one tick may be weaker than the wall is.
  const DeviceCapabilities& device = *FindDeviceProfile("delta.3");
  for (const double stiffness_n_per_m : {100.0, 300.0, 1000.0, 5000.0}) {
    for (const double delay_s : {0.0, 0.01, 0.05, 0.1}) {
      const Organ organ{.stiffness_n_per_m = stiffness_n_per_m};
      const double way_m = 4 / stiffness_n_per_m + 4 / kArm_n_per_m;
      const auto reference = [&](double time_s) {
        return Vector3d(0, 0, -0.0098 * std::min(1.0, time_s) - (time_s > 2 ? 0.5 * way_m * (1 - std::cos(2 * M_PI * (time_s - 2))) : 0));
      };
      const Outcome outcome = Emulate(device, organ, {.delay_s = delay_s, .loss = 0.05}, reference, 10);
      EXPECT_EQ(outcome.passivity_ticks, 0U) << stiffness_n_per_m << " N/m, delay " << delay_s;
      EXPECT_EQ(outcome.gain, 1);
      double worst_n = 0;
      double most_n = 0;
      for (size_t tick = 2000; tick < outcome.trace.force_n.size(); ++tick) {
        const double wall_n = stiffness_n_per_m * std::max(0.0, -0.01 - outcome.trace.position_m[tick].z());
        worst_n = std::max(worst_n, std::abs(outcome.trace.force_n[tick].z() - wall_n));
        most_n = std::max(most_n, wall_n);
      }
      EXPECT_GT(most_n, 3);
      EXPECT_LT(worst_n, 1e-6) << stiffness_n_per_m << " N/m, delay " << delay_s;
    }
  }
}

TEST(Latency, SlowScenesDoNotFade) {
  for (const int ticks_per_step : {16, 50, 200, 600}) {
    const Organ organ{.stiffness_n_per_m = 300, .ticks_per_step = ticks_per_step};
    const Outcome outcome = Emulate(*FindDeviceProfile("omega.3"), organ, {.delay_s = 0.05, .loss = 0.05}, SteadyPress(300, 3), 12);
    EXPECT_EQ(outcome.stale_ticks, 0U) << ticks_per_step;
    EXPECT_NEAR(outcome.trace.MeanForce(8, 12), 3, 0.05) << ticks_per_step;
  }
}

TEST(Latency, ModelsThatAnswerOldPosesDoNotLast) {
  // The way up is dead, the way down is not: models keep coming, all about the same old pose.
  int64_t old_us = 0;
  const auto freeze = [&](double time_s, sim::LocalModel* model) {
    if (time_s < 5) old_us = model->station_time_us;
    model->station_time_us = old_us;
  };
  const Outcome outcome = Emulate(*FindDeviceProfile("omega.3"), {}, {}, SteadyPress(300, 3), 12, freeze);
  EXPECT_NEAR(outcome.trace.MeanForce(5, 6.9), 3, 0.05);
  EXPECT_EQ(outcome.trace.MeanForce(9.5, 12), 0);
  EXPECT_LE(outcome.trace.LargestStep(4, 12), kMostStep_n);
}

TEST(HostileModels, GiveNoMoreThanIsAllowed) {
  // Walls that always push the way the hand goes, or anywhere, as stiff as the device and deeper than any tissue.
  const DeviceCapabilities& device = *FindDeviceProfile("premium3.0");
  for (const bool follow : {true, false}) {
    for (const int ticks_per_step : {2, 8, 16, 50}) {
      std::mt19937 random(5);
      std::normal_distribution<double> normal;
      Vector3d last_m = Vector3d::Zero();
      const auto change = [&](double, sim::LocalModel* model) {
        const Vector3d way_m = model->pose_at_build.position_m - last_m;
        last_m = model->pose_at_build.position_m;
        sim::LocalConstraint& constraint = model->constraints[0];
        constraint.normal_W = (follow && way_m.norm() > 0 ? way_m : Vector3d(normal(random), normal(random), normal(random))).normalized();
        constraint.rest_penetration_m = 0.02;
        constraint.stiffness_n_per_m = device.max_stiffness_n_per_m;
      };
      const auto reference = [](double time_s) { return Vector3d(0.02 * std::sin(3 * time_s), 0, 0.01 * std::sin(11 * time_s)); };
      const Outcome outcome = Emulate(device, {.ticks_per_step = ticks_per_step}, {}, reference, 20, change);
      // Seen from outside: net work, less the power that is allowed.
      double energy_j = 0;
      double least_j = 0;
      for (size_t tick = 1; tick < outcome.trace.given_j.size(); ++tick) {
        energy_j -= outcome.trace.given_j[tick] - outcome.trace.given_j[tick - 1];
        if (energy_j < 0) energy_j = std::min(0.0, energy_j + 0.002 * kTick_s);
        least_j = std::min(least_j, energy_j);
      }
      std::printf("hostile models every %d ms, %s: least energy %.2f mJ\n", ticks_per_step, follow ? "with the hand" : "anywhere",
                  1e3 * least_j);
      EXPECT_GT(least_j, -0.002);
      EXPECT_GT(outcome.min_energy_j, -0.002);
      EXPECT_GT(outcome.passivity_ticks, 1000U);
    }
  }
}

TEST(Stall, AGapBetweenTicksDoesNotMakeTheForceJump) {
  // The loop is not woken for 20 ms while the hand goes on into a stiff wall.
  const DeviceCapabilities& device = *FindDeviceProfile("falcon");
  GuidedHand hand(device, [](double time_s) { return Vector3d(0, 0, -0.05 * time_s); });
  LoopOptions options;
  options.limits = LimitsOf(device);
  options.limits.ramp_time_s = 0;
  const auto loop = std::make_unique<HapticLoop>(&hand, options);
  EmulatedScene scene({.stiffness_n_per_m = 3000}, {});
  loop->Attach({});
  double last_n = 0;
  double largest_n = 0;
  for (int tick = 0; tick < 260; tick += tick == 190 ? 20 : 1) {
    loop->Tick(1'000'000 + tick * 1000);
    largest_n = std::max(largest_n, std::abs(hand.force_n().norm() - last_n));
    last_n = hand.force_n().norm();
    scene.Advance(tick, 1'000'000 + tick * 1000, loop.get());
  }
  EXPECT_GT(last_n, 1);
  EXPECT_LE(largest_n, device.force_slew_n_per_s * kTick_s + 1e-9);
  EXPECT_GT(largest_n, 0.5) << "the wall was met during the gap, with 1.5 N";
}

}  // namespace
}  // namespace palpate::station::outage_test
