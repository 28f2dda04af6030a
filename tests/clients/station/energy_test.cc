// The loop over a bad network: whatever delay, jitter and loss do to the models, the hand is not driven (virtual wall with an energy
// observer, no peer has this).
#include <cstdio>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "clients/station/simulated_hand.h"
#include "tests/clients/station/emulated_station.h"

namespace palpate::station::energy_test {
namespace {

using Eigen::Vector3d;
using ::palpate::testing::EmulatedScene;
using ::palpate::testing::kTick_s;
using ::palpate::testing::Network;
using ::palpate::testing::Organ;

constexpr double kAllowance_j = 0.0015;
constexpr double kAllowance_w = 0.002;
constexpr double kSlack_j = 0.0005;  // what leaves while the slew limit still takes a driving force back

/// Adds up from outside what the forces do to the hand.
class EnergyMeter final : public HapticDevice {
 public:
  /// `allows_power`: the power that the station may give comes back to the meter, so that it shows what goes beyond.
  EnergyMeter(std::unique_ptr<HapticDevice> inner, bool allows_power) : inner_(std::move(inner)), allows_power_(allows_power) {}
  const DeviceCapabilities& capabilities() const override { return inner_->capabilities(); }
  DeviceResult Read(double now_s, DeviceState* state) noexcept override {
    const DeviceResult result = inner_->Read(now_s, state);
    if (has_position_) energy_j_ -= force_n_.dot(state->pose.position_m - position_m_);
    if (allows_power_ && energy_j_ < 0) energy_j_ = std::min(0.0, energy_j_ + kAllowance_w * kTick_s);
    position_m_ = state->pose.position_m;
    has_position_ = true;
    least_j_ = std::min(least_j_, energy_j_);
    largest_force_n_ = std::max(largest_force_n_, force_n_.norm());
    return result;
  }
  DeviceResult Write(const DeviceForce& force) noexcept override {
    force_n_ = force.force_n;
    // A hand that has left the tissue takes nothing along: otherwise stored work would hide later activity.
    if (force_n_.isZero(0)) energy_j_ = std::min(energy_j_, 0.0);
    return inner_->Write(force);
  }
  void SetEngaged(bool engaged) noexcept override { inner_->SetEngaged(engaged); }

  double least_j() const { return least_j_; }  ///< minus the most that the hand has ever been given on balance
  double largest_force_n() const { return largest_force_n_; }

 private:
  std::unique_ptr<HapticDevice> inner_;
  bool allows_power_;
  Vector3d position_m_ = Vector3d::Zero();
  Vector3d force_n_ = Vector3d::Zero();
  bool has_position_ = false;
  double energy_j_ = 0;
  double least_j_ = 0;
  double largest_force_n_ = 0;
};

struct Outcome {
  double least_energy_j = 0;
  double largest_force_n = 0;
  uint64_t passivity_ticks = 0;
  uint64_t contact_cycles = 0;
};

/// 12 s of a poking hand. `hold_force`: the station holds the force that the server computed instead of evaluating the local model (what
/// this design avoids).
Outcome Emulate(const Organ& organ, const Network& network, bool passivity, bool hold_force, const std::string& script) {
  EnergyMeter device(std::make_unique<SimulatedHand>(*ParseHandOptions(script)), passivity);
  LoopOptions options;
  options.limits = LimitsOf(device.capabilities());
  options.limits.ramp_time_s = 0.05;
  options.limits.passivity = passivity;
  if (hold_force) options.model_force_rate_n_per_s = 1e9;
  const auto loop = std::make_unique<HapticLoop>(&device, options);
  EmulatedScene scene(organ, network);
  if (hold_force) {
    scene.change = [](double, sim::LocalModel* model) {
      // A penetration so deep, of a spring so soft, that moving changes nothing.
      sim::LocalConstraint& constraint = model->constraints[0];
      constraint.rest_penetration_m = std::max(0.0, constraint.rest_penetration_m) * constraint.stiffness_n_per_m / 1e-6;
      constraint.stiffness_n_per_m = 1e-6;
      model->blend_time_s = 0;
    };
  }
  loop->Attach({});
  for (int tick = 1; tick <= 12000; ++tick) {
    const int64_t now_us = 1'000'000 + tick * 1000;
    EXPECT_EQ(loop->Tick(now_us), DeviceResult::kOk);
    scene.Advance(tick, now_us, loop.get());
  }
  return {device.least_j(), device.largest_force_n(), loop->safety().counters().passivity_ticks, loop->statistics().contact_cycles};
}

constexpr Network kNetworks[] = {{0, 0, 0}, {0.005, 0.005, 0}, {0.025, 0.01, 0.05}, {0.05, 0.02, 0.2}};
TEST(Energy, LocalModelsStayPassiveOverABadNetwork) {
  std::printf("stiffness  delay  jitter  loss   least energy [mJ]: held force, local model, with controller (ticks)\n");
  double worst_held_j = 0;
  for (const double stiffness : {200.0, 600.0, 1500.0}) {
    for (const Network& network : kNetworks) {
      const Organ organ{.stiffness_n_per_m = stiffness};
      const std::string script = "script=poke,rate=1.5,depth=0.012";
      const Outcome held = Emulate(organ, network, false, true, script);
      const Outcome plain = Emulate(organ, network, false, false, script);
      const Outcome guarded = Emulate(organ, network, true, false, script);
      std::printf("%9.0f  %5.3f  %6.3f  %4.2f   %10.3f  %10.3f  %10.3f  (%lu)\n", stiffness, network.delay_s, network.jitter_s,
                  network.loss, 1e3 * held.least_energy_j, 1e3 * plain.least_energy_j, 1e3 * guarded.least_energy_j,
                  static_cast<unsigned long>(guarded.passivity_ticks));
      worst_held_j = std::min(worst_held_j, held.least_energy_j);
      EXPECT_GT(guarded.contact_cycles, 1000U);
      EXPECT_GT(guarded.least_energy_j, -kAllowance_j - kSlack_j);
      EXPECT_GE(plain.least_energy_j, held.least_energy_j - 1e-4);
    }
  }
  // The meter sees the trouble that a held force makes, so its silence means something.
  EXPECT_LT(worst_held_j, -0.05);
}

TEST(Energy, ControllerKeepsABreathingOrganFromDrivingTheHand) {
  bool plain_drives = false;
  for (const Network& network : kNetworks) {
    const Organ organ{.stiffness_n_per_m = 400, .breath_m = 0.006};
    const std::string script = "depth=0.01,dwell=4,spots=1";
    const Outcome plain = Emulate(organ, network, false, false, script);
    const Outcome guarded = Emulate(organ, network, true, false, script);
    std::printf("breathing, delay %.3f: least energy %.3f mJ, with controller %.3f mJ (%lu ticks)\n", network.delay_s,
                1e3 * plain.least_energy_j, 1e3 * guarded.least_energy_j, static_cast<unsigned long>(guarded.passivity_ticks));
    EXPECT_GT(guarded.least_energy_j, -kAllowance_j - kSlack_j);
    plain_drives |= plain.least_energy_j < -4 * kAllowance_j;
  }
  EXPECT_TRUE(plain_drives);
}

}  // namespace
}  // namespace palpate::station::energy_test
