#include "clients/station/safety.h"

#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

namespace palpate::station {
namespace {

using Eigen::Vector3d;

constexpr double kTick_s = 0.001;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// No ramp, no passivity, generous slew: each test switches on what it looks at.
SafetyLimits Plain() {
  return {.peak_force_n = 10,
          .peak_torque_n_m = 0.2,
          .force_slew_n_per_s = 1e6,
          .torque_slew_n_m_per_s = 1e6,
          .max_damping_n_s_per_m = 20,
          .ramp_time_s = 0,
          .passivity = false};
}

SafetyInput Wanted(const Vector3d& force_n, double model_age_s = 0.01) {
  SafetyInput input;
  input.wanted.force_n = force_n;
  input.model_age_s = model_age_s;
  input.dt_s = kTick_s;
  return input;
}

TEST(SafetyChain, LetsASafeForceThrough) {
  SafetyChain chain(Plain());
  SafetyInput input = Wanted({1, -2, 3});
  input.wanted.torque_n_m = Vector3d(0.01, 0.02, -0.03);
  const DeviceForce force = chain.Apply(input);
  EXPECT_EQ(force.force_n, Vector3d(1, -2, 3));
  EXPECT_EQ(force.torque_n_m, Vector3d(0.01, 0.02, -0.03));
  const SafetyCounters& counters = chain.counters();
  EXPECT_EQ(counters.nan_ticks + counters.stale_ticks + counters.ramp_ticks + counters.passivity_ticks + counters.force_limited_ticks +
                counters.slew_limited_ticks,
            0U);
}

TEST(SafetyChain, TurnsNumbersThatAreNoneIntoNoForce) {
  for (int fault = 0; fault < 6; ++fault) {
    SafetyChain chain(Plain());
    chain.Apply(Wanted({1, 0, 0}));
    SafetyInput input = Wanted({1, 0, 0});
    if (fault == 0) input.wanted.force_n.y() = kNan;
    if (fault == 1) input.wanted.torque_n_m.z() = std::numeric_limits<double>::infinity();
    if (fault == 2) input.position_m.x() = kNan;
    if (fault == 3) input.velocity.linear_m_per_s.x() = kNan;
    if (fault == 4) input.velocity.angular_rad_per_s.x() = kNan;
    if (fault == 5) input.dt_s = kNan;
    const DeviceForce force = chain.Apply(input);
    EXPECT_TRUE(force.force_n.allFinite()) << fault;
    if (fault != 5) {
      EXPECT_EQ(force.force_n, Vector3d::Zero()) << fault;
    }
    EXPECT_EQ(chain.counters().nan_ticks, 1U) << fault;
    // And it recovers.
    EXPECT_EQ(chain.Apply(Wanted({1, 0, 0})).force_n, Vector3d(1, 0, 0)) << fault;
  }
}

TEST(SafetyChain, LimitsForceAndTorqueToThePeakAndKeepsTheirDirection) {
  SafetyChain chain(Plain());
  SafetyInput input = Wanted({30, 40, 0});
  input.wanted.torque_n_m = Vector3d(0, 0, -5);
  const DeviceForce force = chain.Apply(input);
  EXPECT_NEAR((force.force_n - Vector3d(6, 8, 0)).norm(), 0, 1e-12);
  EXPECT_NEAR((force.torque_n_m - Vector3d(0, 0, -0.2)).norm(), 0, 1e-12);
  EXPECT_EQ(chain.counters().force_limited_ticks, 1U);
}

TEST(SafetyChain, GivesNoTorqueToADeviceWithoutTorque) {
  DeviceCapabilities capabilities = *FindDeviceProfile("omega.3");
  SafetyLimits limits = LimitsOf(capabilities);
  limits.ramp_time_s = 0;
  SafetyChain chain(limits);
  SafetyInput input = Wanted({0, 0, 1});
  input.wanted.torque_n_m = Vector3d(1, 1, 1);
  EXPECT_EQ(chain.Apply(input).torque_n_m, Vector3d::Zero());
  EXPECT_EQ(chain.counters().force_limited_ticks, 0U);
}

TEST(SafetyChain, LimitsTheSlewBothWays) {
  SafetyLimits limits = Plain();
  limits.force_slew_n_per_s = 500;
  SafetyChain chain(limits);
  double last = 0;
  for (int tick = 0; tick < 40; ++tick) {
    const double force = chain.Apply(Wanted({0, 0, tick < 20 ? 8.0 : -8.0})).force_n.z();
    EXPECT_LE(std::abs(force - last), 0.5 + 1e-12);
    last = force;
    if (tick == 19) {
      EXPECT_NEAR(force, 8, 1e-12);
    }
  }
  EXPECT_NEAR(last, -2, 1e-9);
  EXPECT_EQ(chain.counters().slew_limited_ticks, 15U + 20U);
}

TEST(SafetyChain, LetsTheForceOfAnOldModelFade) {
  SafetyLimits limits = Plain();
  limits.max_model_age_s = 0.05;
  limits.age_decay_time_s = 0.1;
  SafetyChain chain(limits);
  EXPECT_EQ(chain.Apply(Wanted({0, 0, 4}, 0.05)).force_n.z(), 4);
  EXPECT_NEAR(chain.Apply(Wanted({0, 0, 4}, 0.15)).force_n.z(), 4 * std::exp(-1), 1e-12);
  EXPECT_EQ(chain.Apply(Wanted({0, 0, 4}, 0.05 + 0.1 * 7)).force_n.z(), 0);
  EXPECT_EQ(chain.Apply(Wanted({0, 0, 4}, std::numeric_limits<double>::infinity())).force_n.z(), 0);
  EXPECT_EQ(chain.Apply(Wanted({0, 0, 4}, kNan)).force_n.z(), 0);
  EXPECT_EQ(chain.Apply(Wanted({0, 0, 4}, 0.01)).force_n.z(), 4);
  chain.Apply(Wanted({0, 0, 4}, 0.2));
  EXPECT_EQ(chain.counters().stale_ticks, 3U);  // of the others there was no model
  EXPECT_EQ(chain.counters().stale_events, 2U);
}

TEST(SafetyChain, RampsUpAfterAStart) {
  SafetyLimits limits = Plain();
  limits.ramp_time_s = 0.1;
  SafetyChain chain(limits);
  for (int round = 0; round < 2; ++round) {
    chain.Restart();
    for (int tick = 1; tick <= 120; ++tick) {
      const double force = chain.Apply(Wanted({0, 0, 2})).force_n.z();
      EXPECT_NEAR(force, std::min(1.0, tick / 100.0) * 2, 1e-9);
    }
  }
  EXPECT_NEAR(static_cast<double>(chain.counters().ramp_ticks), 2 * 99, 2);
}

TEST(SafetyChain, ObservesTheWorkOfAHeldForceExactly) {
  SafetyChain chain(Plain());
  SafetyInput input = Wanted({0, 0, 2});
  chain.Apply(input);
  input.position_m.z() = 0.003;  // moved along the force: the hand got 6 mJ
  input.wanted.force_n.z() = -1;
  chain.Apply(input);
  EXPECT_NEAR(chain.energy_j(), -0.006, 1e-15);
  input.position_m.z() = 0.004;  // against it
  chain.Apply(input);
  EXPECT_NEAR(chain.energy_j(), -0.005, 1e-15);
  EXPECT_NEAR(chain.counters().min_energy_j, -0.006, 1e-15);
}

TEST(SafetyChain, ForgetsSurplusInFreeSpaceButNoDeficit) {
  for (const double direction : {1.0, -1.0}) {
    SafetyChain chain(Plain());
    SafetyInput input = Wanted({0, 0, 2});
    chain.Apply(input);
    input.position_m.z() = 0.002 * direction;
    input.wanted.force_n.z() = 0;
    for (int tick = 0; tick < 30; ++tick) chain.Apply(input);
    EXPECT_NEAR(chain.energy_j(), direction > 0 ? -0.004 : 0, 1e-15);
  }
}

/// A mass in a wall that is softer on the way in than on the way out by `gain`: it hands out energy on every contact. Returns the least
/// energy seen from outside.
double LeastEnergyOnActiveWall(double gain, SafetyChain* chain) {
  double energy_j = 0;
  double least_j = 0;
  Vector3d position(0, 0, 0.005);
  Vector3d velocity(0, 0, -0.15);
  Vector3d force = Vector3d::Zero();
  const double mass_kg = 0.2;
  for (int tick = 0; tick < 5000; ++tick) {
    // A ball under gravity bounces on the wall.
    velocity += kTick_s * (force / mass_kg - Vector3d(0, 0, 1));
    const Vector3d next = position + kTick_s * velocity;
    energy_j -= force.dot(next - position);
    least_j = std::min(least_j, energy_j);
    position = next;
    SafetyInput input = Wanted(Vector3d::Zero());
    input.position_m = position;
    input.velocity.linear_m_per_s = velocity;
    const double stiffness = velocity.z() > 0 ? 300 * gain : 300;
    input.wanted.force_n.z() = stiffness * std::max(0.0, -position.z());
    force = chain->Apply(input).force_n;
  }
  return least_j;
}

TEST(SafetyChain, KeepsAnActiveWallPassive) {
  SafetyChain without(Plain());
  const double least_without_j = LeastEnergyOnActiveWall(1.3, &without);
  SafetyLimits limits = Plain();
  limits.passivity = true;
  SafetyChain with(limits);
  const double least_with_j = LeastEnergyOnActiveWall(1.3, &with);
  EXPECT_LT(least_without_j, -0.02);
  EXPECT_GT(least_with_j, -2 * limits.energy_allowance_j);
  EXPECT_GT(with.counters().passivity_ticks, 0U);
  EXPECT_EQ(without.counters().passivity_ticks, 0U);
}

TEST(SafetyChain, LeavesAPassiveWallAlone) {
  SafetyLimits limits = Plain();
  limits.passivity = true;
  SafetyChain chain(limits);
  LeastEnergyOnActiveWall(0.9, &chain);
  EXPECT_EQ(chain.counters().passivity_ticks, 0U);
}

TEST(SafetyChain, KeepsEveryPromiseUnderRandomFaults) {
  std::mt19937 random(41);
  std::uniform_real_distribution<double> unit(0, 1);
  std::normal_distribution<double> normal;
  const SafetyLimits limits = LimitsOf(*FindDeviceProfile("premium1.5"));
  SafetyChain chain(limits);
  Vector3d last = Vector3d::Zero();
  for (int tick = 0; tick < 50000; ++tick) {
    const auto vector = [&](double scale) { return Vector3d(scale * Vector3d(normal(random), normal(random), normal(random))); };
    SafetyInput input;
    input.wanted.force_n = vector(std::exp(4 * normal(random)));
    input.wanted.torque_n_m = vector(std::exp(4 * normal(random)));
    input.position_m = vector(0.05);
    input.velocity.linear_m_per_s = vector(1);
    input.velocity.angular_rad_per_s = vector(3);
    input.model_age_s = unit(random) < 0.1 ? std::numeric_limits<double>::infinity() : 0.2 * unit(random);
    input.dt_s = 0.0005 + 0.001 * unit(random);
    if (unit(random) < 0.02) input.wanted.force_n.x() = kNan;
    if (unit(random) < 0.02) input.position_m.x() = -std::numeric_limits<double>::infinity();
    if (unit(random) < 0.01) chain.Restart();
    const DeviceForce force = chain.Apply(input);
    ASSERT_TRUE(force.force_n.allFinite() && force.torque_n_m.allFinite());
    ASSERT_LE(force.force_n.norm(), limits.peak_force_n + 1e-9);
    ASSERT_LE(force.torque_n_m.norm(), limits.peak_torque_n_m + 1e-9);
    ASSERT_LE((force.force_n - last).norm(), limits.force_slew_n_per_s * input.dt_s + 1e-9);
    last = force.force_n;
  }
}

}  // namespace
}  // namespace palpate::station
