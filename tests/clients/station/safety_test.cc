#include "clients/station/safety.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace palpate::station::safety_test {
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
          .ramp_time_s = 0,
          .passivity = false};
}

SafetyInput Wanted(const Vector3d& force_n, double silence_s = 0.01) {
  SafetyInput input;
  input.wanted.force_n = force_n;
  input.silence_s = silence_s;
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
  for (int fault = 0; fault < 8; ++fault) {
    SafetyChain chain(Plain());
    chain.Apply(Wanted({1, 0, 0}));
    SafetyInput input = Wanted({1, 0, 0});
    if (fault == 0) input.wanted.force_n.y() = kNan;
    if (fault == 1) input.wanted.torque_n_m.z() = std::numeric_limits<double>::infinity();
    if (fault == 2) input.position_m.x() = kNan;
    if (fault == 3) input.velocity.linear_m_per_s.x() = kNan;
    if (fault == 4) input.velocity.angular_rad_per_s.x() = kNan;
    if (fault == 5) input.dt_s = kNan;
    if (fault == 6) input.elastic_energy_j = kNan;
    if (fault == 7) input.rotation.w() = kNan;
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

TEST(SafetyChain, TorqueThatIsNotRenderedDoesNotCount) {
  SafetyLimits limits = LimitsOf(*FindDeviceProfile("touch"));
  limits.ramp_time_s = 0;
  SafetyChain chain(limits);
  SafetyInput input = Wanted({0, 0, 0.2});
  input.elastic_energy_j = 1e-4;
  for (int tick = 0; tick < 1000; ++tick) {
    // The handle turns freely; a torque along would give 0.1 N m times 5 rad/s.
    input.wanted.torque_n_m = Vector3d(0.1, 0, 0);
    input.velocity.angular_rad_per_s = Vector3d(5, 0, 0);
    input.rotation = Eigen::AngleAxisd(0.005 * tick, Vector3d::UnitX());
    EXPECT_EQ(chain.Apply(input).force_n.z(), 0.2);
  }
  EXPECT_EQ(chain.counters().passivity_ticks, 0U);
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

TEST(SafetyChain, AStalledTickIsNoLicenceToJump) {
  SafetyLimits limits = Plain();
  limits.force_slew_n_per_s = 500;
  limits.torque_slew_n_m_per_s = 10;
  SafetyChain chain(limits);
  chain.Apply(Wanted({0, 0, 1}));
  SafetyInput late = Wanted({0, 0, 10});
  late.wanted.torque_n_m = Vector3d(0.2, 0, 0);
  late.dt_s = 0.02;
  const DeviceForce force = chain.Apply(late);
  EXPECT_NEAR(force.force_n.z(), 0.5 + 0.5, 1e-12);
  EXPECT_NEAR(force.torque_n_m.x(), 0.01, 1e-12);
}

TEST(SafetyChain, ReleasesWithinTheSlew) {
  SafetyLimits limits = LimitsOf(*FindDeviceProfile("premium1.5"));
  limits.ramp_time_s = 0;
  SafetyChain chain(limits);
  SafetyInput input = Wanted({0, 0, 5});
  input.wanted.torque_n_m = Vector3d(0.1, 0, 0);
  DeviceForce last;
  for (int tick = 0; tick < 100; ++tick) last = chain.Apply(input);
  EXPECT_EQ(last.force_n.z(), 5);
  int ticks = 0;
  for (; !last.force_n.isZero(0) || !last.torque_n_m.isZero(0); ++ticks) {
    const DeviceForce force = chain.Release();
    EXPECT_LE((force.force_n - last.force_n).norm(), limits.force_slew_n_per_s * kTick_s + 1e-12);
    EXPECT_LE((force.torque_n_m - last.torque_n_m).norm(), limits.torque_slew_n_m_per_s * kTick_s + 1e-12);
    last = force;
    ASSERT_LT(ticks, 20);
  }
  EXPECT_GE(ticks, 5);
}

TEST(SafetyChain, FadesSmoothlyWhenModelsStayAwayAndComesBackSo) {
  const SafetyLimits limits = Plain();
  SafetyChain chain(limits);
  double last = 4;
  double silence_s = 0;
  for (; silence_s < 1; silence_s += kTick_s) EXPECT_EQ(chain.Apply(Wanted({0, 0, 4}, silence_s)).force_n.z(), 4);
  for (; silence_s < 3.01; silence_s += kTick_s) {
    const double force = chain.Apply(Wanted({0, 0, 4}, silence_s)).force_n.z();
    EXPECT_LE(force, last);
    EXPECT_LT(last - force, 4 * kTick_s);
    last = force;
    if (std::abs(silence_s - 2) < 0.5 * kTick_s) {
      EXPECT_NEAR(force, 2, 1e-2);
    }
  }
  EXPECT_EQ(last, 0);
  for (int tick = 0; tick < 300; ++tick) {
    const double force = chain.Apply(Wanted({0, 0, 4}, 0)).force_n.z();
    EXPECT_LT(force - last, 0.02);
    last = force;
  }
  EXPECT_EQ(last, 4);
  EXPECT_EQ(chain.counters().stale_events, 1U);
  EXPECT_NEAR(static_cast<double>(chain.counters().stale_ticks), 2010, 3);
  // Without any model, or when nobody knows: no force.
  EXPECT_EQ(chain.Apply(Wanted({0, 0, 4}, std::numeric_limits<double>::infinity())).force_n.z(), 0);
  EXPECT_EQ(chain.Apply(Wanted({0, 0, 4}, kNan)).force_n.z(), 0);
}

TEST(SafetyChain, SilenceIsJudgedByTheRateOfTheScene) {
  const SafetyLimits limits = Plain();
  for (const auto& [period_s, acts_s] : {std::pair{0.05, 1.0}, {0.5, 2.0}, {10.0, 3.0}}) {
    SafetyChain chain(limits);
    SafetyInput input = Wanted({0, 0, 4}, acts_s - 1e-9);
    input.model_period_s = period_s;
    EXPECT_EQ(chain.Apply(input).force_n.z(), 4) << period_s;
    input.silence_s = acts_s + 0.1;
    EXPECT_LT(chain.Apply(input).force_n.z(), 4) << period_s;
  }
}

TEST(SafetyChain, RampsUpAfterAStart) {
  SafetyLimits limits = Plain();
  limits.ramp_time_s = 0.5;
  SafetyChain chain(limits);
  for (int round = 0; round < 2; ++round) {
    chain.Restart();
    for (int tick = 1; tick <= 600; ++tick) {
      const double force = chain.Apply(Wanted({0, 0, 2})).force_n.z();
      EXPECT_NEAR(force, std::min(1.0, tick / 500.0) * 2, 1e-9);
    }
  }
  EXPECT_NEAR(static_cast<double>(chain.counters().ramp_ticks), 2 * 499, 2);
}

TEST(SafetyChain, ObservesTheWorkOfForceAndTorqueExactly) {
  SafetyLimits limits = Plain();
  limits.power_allowance_w = 1e-12;  // nothing comes back
  SafetyChain chain(limits);
  SafetyInput input = Wanted({0, 0, 2});
  input.wanted.torque_n_m = Vector3d(0.1, 0, 0);
  chain.Apply(input);
  input.position_m.z() = 0.003;  // moved along the force: the hand got 6 mJ
  input.wanted.force_n.z() = -1;
  chain.Apply(input);
  EXPECT_NEAR(chain.energy_j(), -0.006, 1e-12);
  input.position_m.z() = 0.004;  // against it
  chain.Apply(input);
  EXPECT_NEAR(chain.energy_j(), -0.005, 1e-12);
  // The way that was turned counts, not what the device says of its speed.
  input.velocity.angular_rad_per_s = Vector3d(50, 0, 0);
  input.rotation = Eigen::AngleAxisd(0.02, Vector3d::UnitX());
  chain.Apply(input);
  EXPECT_NEAR(chain.energy_j(), -0.007, 1e-12);
  EXPECT_NEAR(chain.counters().min_energy_j, -0.007, 1e-12);
}

TEST(SafetyChain, KeepsNoMoreThanTheSpringsCanGiveBack) {
  SafetyChain chain(Plain());
  SafetyInput input = Wanted({0, 0, 2});
  chain.Apply(input);
  // 4 mJ into springs that hold 4 mJ: kept. In free space: forgotten.
  input.position_m.z() = -0.002;
  input.elastic_energy_j = 0.004;
  chain.Apply(input);
  EXPECT_NEAR(chain.energy_j(), 0.004, 1e-15);
  input.wanted.force_n.setZero();
  input.elastic_energy_j = 0;
  chain.Apply(input);
  EXPECT_EQ(chain.energy_j(), 0);
}

TEST(SafetyChain, ForgetsWhatTissueThatIsGoneHeld) {
  SafetyChain chain(Plain());
  SafetyInput input = Wanted({0, 0, 2});
  chain.Apply(input);
  input.position_m.z() = -0.002;
  input.elastic_energy_j = 0.004;
  chain.Apply(input);
  // A new model says that there is hardly anything: twice what it holds is what it can give.
  input.elastic_energy_j = 0.0005;
  input.model_energy_j = -0.0035;
  chain.Apply(input);
  EXPECT_NEAR(chain.energy_j(), 0.001, 1e-15);
}

/// A hand that is moved at 50 mm/s by someone strong, whatever the force. Adds up what it is given, in windows of 1 s.
class DrivenHand {
 public:
  explicit DrivenHand(SafetyChain* chain) : chain_(chain) {}

  void Tick(const Vector3d& force_n, const Vector3d& torque_n_m, double elastic_energy_j, double turn_rad_per_s = 0) {
    const Vector3d step_m(0.05 * kTick_s, 0, 0);
    given_j_.push_back((given_j_.empty() ? 0 : given_j_.back()) + force_.force_n.dot(step_m) +
                       force_.torque_n_m.x() * turn_rad_per_s * kTick_s);
    input_.position_m += step_m;
    angle_rad_ += turn_rad_per_s * kTick_s;
    input_.rotation = Eigen::AngleAxisd(angle_rad_, Vector3d::UnitX());
    input_.velocity = {.linear_m_per_s = step_m / kTick_s, .angular_rad_per_s = Vector3d(turn_rad_per_s, 0, 0)};
    input_.wanted = {.force_n = force_n, .torque_n_m = torque_n_m};
    input_.elastic_energy_j = elastic_energy_j;
    input_.silence_s = 0;
    input_.dt_s = kTick_s;
    force_ = chain_->Apply(input_);
  }

  double MostGivenInASecond() const {
    double most_j = 0;
    for (size_t end = 0; end < given_j_.size(); ++end) {
      for (size_t begin = end < 1000 ? 0 : end - 1000; begin < end; begin += 10) {
        most_j = std::max(most_j, given_j_[end] - given_j_[begin]);
      }
    }
    return most_j;
  }
  const DeviceForce& force() const { return force_; }

 private:
  SafetyChain* chain_;
  SafetyInput input_;
  DeviceForce force_;
  double angle_rad_ = 0;
  std::vector<double> given_j_;
};

SafetyLimits Guarded() {
  SafetyLimits limits = LimitsOf(*FindDeviceProfile("premium1.5"));
  limits.ramp_time_s = 0;
  return limits;
}

TEST(SafetyChain, SlidingBanksNothingForAnActiveWall) {
  SafetyChain chain(Guarded());
  DrivenHand hand(&chain);
  // Friction of 0.5 N over half a metre takes 0.25 J; the springs hold 1 mJ all the time.
  for (int tick = 0; tick < 10000; ++tick) hand.Tick({-0.5, 0, 1}, Vector3d::Zero(), 0.001);
  EXPECT_EQ(hand.force().force_n.x(), -0.5);
  EXPECT_LE(chain.energy_j(), 0.001);
  // Then the same force drives.
  for (int tick = 0; tick < 3000; ++tick) hand.Tick({0.5, 0, 1}, Vector3d::Zero(), 0.001);
  EXPECT_LT(hand.MostGivenInASecond(), 0.004 + 0.001);
  EXPECT_GT(hand.MostGivenInASecond(), 0.001);
}

TEST(SafetyChain, TorqueGivesNoMoreThanForce) {
  SafetyChain chain(Guarded());
  DrivenHand hand(&chain);
  // Turned to and fro, with the largest torque always along: 0.19 N m times 3 rad/s for 5 s would be 2.8 J.
  for (int tick = 0; tick < 5000; ++tick) {
    const double rate_rad_per_s = tick / 250 % 2 == 0 ? 3 : -3;
    hand.Tick(Vector3d::Zero(), {std::copysign(0.188, rate_rad_per_s), 0, 0}, 0, rate_rad_per_s);
  }
  EXPECT_LT(hand.MostGivenInASecond(), 0.004);
  EXPECT_GT(chain.counters().passivity_ticks, 0U);
}

/// A mass in a wall that is softer on the way in than on the way out by `gain`: it hands out energy on every contact. Returns the least
/// energy seen from outside, where the power that is allowed comes back.
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
    if (energy_j < 0) energy_j = std::min(0.0, energy_j + chain->limits().power_allowance_w * kTick_s);
    least_j = std::min(least_j, energy_j);
    position = next;
    SafetyInput input = Wanted(Vector3d::Zero());
    input.position_m = position;
    input.velocity.linear_m_per_s = velocity;
    const double stiffness = velocity.z() > 0 ? 300 * gain : 300;
    const double penetration_m = std::max(0.0, -position.z());
    input.wanted.force_n.z() = stiffness * penetration_m;
    input.elastic_energy_j = 0.5 * stiffness * penetration_m * penetration_m;
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
  EXPECT_GT(least_with_j, -limits.energy_allowance_j);
  EXPECT_GT(with.counters().passivity_ticks, 0U);
  EXPECT_EQ(without.counters().passivity_ticks, 0U);
}

TEST(SafetyChain, LeavesAPassiveWallAlone) {
  SafetyLimits limits = Plain();
  limits.passivity = true;
  SafetyChain chain(limits);
  LeastEnergyOnActiveWall(0.9, &chain);
  EXPECT_EQ(chain.counters().passivity_ticks, 0U);
  EXPECT_EQ(chain.gain(), 1);
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
    input.rotation = Eigen::AngleAxisd(normal(random), vector(1).normalized());
    input.elastic_energy_j = std::exp(4 * normal(random));
    input.model_energy_j = normal(random);
    input.silence_s = unit(random) < 0.1 ? std::numeric_limits<double>::infinity() : 4 * unit(random);
    input.dt_s = unit(random) < 0.01 ? 0.05 : 0.0005 + 0.001 * unit(random);
    if (unit(random) < 0.02) input.wanted.force_n.x() = kNan;
    if (unit(random) < 0.02) input.position_m.x() = -std::numeric_limits<double>::infinity();
    if (unit(random) < 0.01) chain.Restart();
    const DeviceForce force = chain.Apply(input);
    ASSERT_TRUE(force.force_n.allFinite() && force.torque_n_m.allFinite());
    ASSERT_LE(force.force_n.norm(), limits.peak_force_n + 1e-9);
    ASSERT_LE(force.torque_n_m.norm(), limits.peak_torque_n_m + 1e-9);
    ASSERT_LE((force.force_n - last).norm(), limits.force_slew_n_per_s * std::min(input.dt_s, kTick_s) + 1e-9);
    last = force.force_n;
  }
}

}  // namespace
}  // namespace palpate::station::safety_test
