#pragma once

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <memory>
#include <numbers>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "clients/station/haptic_loop.h"
#include "sim/haptics/build_model.h"

namespace palpate::testing {

inline constexpr double kTick_s = 0.001;

/// A hand on an arm that wants to be where the test says: m x'' = K (x_ref - x) + B (x_ref' - x') + F, semi-implicit in ticks of 1 ms.
class GuidedHand final : public station::HapticDevice {
 public:
  using Reference = std::function<Eigen::Vector3d(double time_s)>;

  GuidedHand(const station::DeviceCapabilities& capabilities, Reference reference)
      : capabilities_(capabilities), reference_(std::move(reference)), position_m_(reference_(0)) {}

  const station::DeviceCapabilities& capabilities() const override { return capabilities_; }
  station::DeviceResult Read(double now_s, station::DeviceState* state) noexcept override {
    for (; time_s_ + 0.5 * kTick_s < now_s; time_s_ += kTick_s) {
      const Eigen::Vector3d reference_m = reference_(time_s_ + kTick_s);
      const Eigen::Vector3d reference_velocity_m_per_s = (reference_m - reference_(time_s_)) / kTick_s;
      const Eigen::Vector3d momentum = kMass_kg * velocity_m_per_s_ + kTick_s * (kArm_n_per_m * (reference_m - position_m_) +
                                                                                 kArm_n_s_per_m * reference_velocity_m_per_s + force_n_);
      velocity_m_per_s_ = momentum / (kMass_kg + kTick_s * kArm_n_s_per_m + kTick_s * kTick_s * kArm_n_per_m);
      position_m_ += kTick_s * velocity_m_per_s_;
    }
    *state = station::DeviceState{};
    state->pose.position_m = position_m_;
    state->velocity.linear_m_per_s = velocity_m_per_s_;
    state->has_velocity = true;
    return station::DeviceResult::kOk;
  }
  station::DeviceResult Write(const station::DeviceForce& force) noexcept override {
    force_n_ = force.force_n;
    return station::DeviceResult::kOk;
  }

  const Eigen::Vector3d& position_m() const { return position_m_; }
  const Eigen::Vector3d& force_n() const { return force_n_; }

 private:
  // As SimulatedHand's.
  static constexpr double kMass_kg = 0.3;
  static constexpr double kArm_n_per_m = 400;
  static constexpr double kArm_n_s_per_m = 12;

  station::DeviceCapabilities capabilities_;
  Reference reference_;
  double time_s_ = 0;
  Eigen::Vector3d position_m_;
  Eigen::Vector3d velocity_m_per_s_ = Eigen::Vector3d::Zero();
  Eigen::Vector3d force_n_ = Eigen::Vector3d::Zero();
};

struct Network {
  double delay_s = 0;   ///< one way
  double jitter_s = 0;  ///< uniform on top
  double loss = 0;      ///< of poses and of models
  double outage_begin_s = 0;
  double outage_s = 0;  ///< so long nothing passes; what was sent meanwhile passes at its end, as over TCP
};

struct Organ {
  double stiffness_n_per_m = 300;
  double radius_m = 0.05;  ///< round, its top at z = top_m
  double top_m = -0.01;
  double friction = 0;
  double breath_m = 0;  ///< amplitude of its centre along z
  double breath_hz = 0.7;
  double slope_error = 1;  ///< models take it for so many times as stiff as it is
  int ticks_per_step = 16;
};

/// A scene behind a network: poses go up, local models of the real builder come down, in the time of the test.
class EmulatedScene {
 public:
  EmulatedScene(const Organ& organ, const Network& network, uint32_t seed = 77) : organ_(organ), network_(network), random_(seed) {}

  /// Passes on what is due at `time_s` (of tick number `tick`).
  void Advance(int tick, int64_t now_us, station::HapticLoop* loop) {
    const double time_s = tick * kTick_s;
    station::PoseSample pose;
    if (loop->NextPose(&pose) && !IsLost()) up_.push_back({Arrival(time_s), pose, {}});
    for (; !up_.empty() && up_.front().arrives_s <= time_s; up_.pop_front()) {
      if (!has_pose_ || up_.front().pose.sequence > newest_.sequence) newest_ = up_.front().pose;
      has_pose_ = true;
    }
    if (tick % organ_.ticks_per_step == 0 && has_pose_ && !IsLost()) down_.push_back({Arrival(time_s), {}, Build(time_s)});
    for (; !down_.empty() && down_.front().arrives_s <= time_s; down_.pop_front()) {
      loop->ModelSlot() = down_.front().model;
      loop->PublishModel(now_us);
    }
  }

  /// Called on each model before it is sent.
  std::function<void(double time_s, sim::LocalModel*)> change;

 private:
  struct Message {
    double arrives_s;
    station::PoseSample pose;
    sim::LocalModel model;
  };

  bool IsLost() { return std::uniform_real_distribution<double>(0, 1)(random_) < network_.loss; }
  double Arrival(double sent_s) {
    const double end_s = network_.outage_begin_s + network_.outage_s;
    if (sent_s >= network_.outage_begin_s && sent_s < end_s) sent_s = end_s;
    return sent_s + network_.delay_s + std::uniform_real_distribution<double>(0, network_.jitter_s)(random_);
  }

  sim::LocalModel Build(double time_s) const {
    const double sway_m = organ_.breath_m * std::sin(2 * std::numbers::pi * organ_.breath_hz * time_s);
    const Eigen::Vector3d centre_m(0, 0, organ_.top_m - organ_.radius_m + sway_m);
    const Eigen::Vector3d from_centre_m = newest_.pose.position_m - centre_m;
    const double depth_m = organ_.radius_m - from_centre_m.norm();
    sim::LocalContact contact;
    contact.normal_W = from_centre_m.normalized();
    contact.point_m = centre_m + organ_.radius_m * contact.normal_W;
    contact.gap_m = -depth_m;
    contact.normal_force_n = organ_.stiffness_n_per_m * std::max(0.0, depth_m);
    contact.friction = organ_.friction;
    contact.stiffness_n_per_m = organ_.slope_error * organ_.stiffness_n_per_m;
    sim::LocalModelInput input;
    input.device_pose = newest_.pose;
    input.tool_pose = newest_.pose;
    input.contacts = {&contact, 1};
    sim::LocalModel model = sim::BuildLocalModel(input);
    model.station_time_us = newest_.station_time_us;
    model.blend_time_s = organ_.ticks_per_step * kTick_s;
    if (change) change(time_s, &model);
    return model;
  }

  const Organ organ_;
  const Network network_;
  std::mt19937 random_;
  std::deque<Message> up_;
  std::deque<Message> down_;
  station::PoseSample newest_;
  bool has_pose_ = false;
};

/// What a hand met, tick by tick.
struct Trace {
  std::vector<Eigen::Vector3d> position_m;
  std::vector<Eigen::Vector3d> force_n;  ///< that is held from this tick to the next
  std::vector<double> given_j;           ///< work of the forces on the hand up to this tick

  /// Largest change of force from one tick to the next, between two times.
  double LargestStep(double begin_s, double end_s) const {
    double largest_n = 0;
    for (size_t i = std::max<size_t>(1, Index(begin_s)); i < Index(end_s); ++i) {
      largest_n = std::max(largest_n, (force_n[i] - force_n[i - 1]).norm());
    }
    return largest_n;
  }

  double MeanForce(double begin_s, double end_s) const {
    double sum_n = 0;
    for (size_t i = Index(begin_s); i < Index(end_s); ++i) sum_n += force_n[i].norm();
    return sum_n / static_cast<double>(Index(end_s) - Index(begin_s));
  }

  /// The most work that the hand was given on balance in any second between two times.
  double MostGivenInASecond(double begin_s, double end_s) const {
    double most_j = 0;
    std::deque<size_t> least;  // of the second before, ascending in place and in value
    for (size_t i = Index(begin_s); i < Index(end_s); ++i) {
      while (!least.empty() && given_j[least.back()] >= given_j[i]) least.pop_back();
      least.push_back(i);
      if (least.front() + 1000 < i) least.pop_front();
      most_j = std::max(most_j, given_j[i] - given_j[least.front()]);
    }
    return most_j;
  }

  /// Largest part of the force above 20 Hz between two times: what passes a Butterworth high-pass of fourth order.
  double LargestAbove20Hz(double begin_s, double end_s) const {
    const double w = std::tan(std::numbers::pi * 20 * kTick_s);
    double largest_n = 0;
    std::vector<Eigen::Vector3d> signal = force_n;
    for (const double q : {1 / (2 * std::cos(std::numbers::pi / 8)), 1 / (2 * std::cos(3 * std::numbers::pi / 8))}) {
      const double norm = 1 / (1 + w / q + w * w);
      const double a1 = 2 * (w * w - 1) * norm;
      const double a2 = (1 - w / q + w * w) * norm;
      Eigen::Vector3d x1 = signal[0], x2 = signal[0], y1 = Eigen::Vector3d::Zero(), y2 = Eigen::Vector3d::Zero();
      for (Eigen::Vector3d& x : signal) {
        const Eigen::Vector3d y = norm * (x - 2 * x1 + x2) - a1 * y1 - a2 * y2;
        x2 = x1;
        x1 = x;
        y2 = y1;
        y1 = y;
        x = y;
      }
    }
    for (size_t i = Index(begin_s); i < Index(end_s); ++i) largest_n = std::max(largest_n, signal[i].norm());
    return largest_n;
  }

 private:
  size_t Index(double time_s) const { return std::min(force_n.size(), static_cast<size_t>(std::lround(time_s / kTick_s))); }
};

/// Runs a loop for `duration_s` with a hand that follows `reference`, beside a scene.
inline Trace RunHand(station::HapticLoop* loop, const GuidedHand& hand, EmulatedScene* scene, double duration_s) {
  Trace trace;
  const int64_t begin_us = 1'000'000;
  loop->Attach({});
  double given_j = 0;
  for (int tick = 0; tick < static_cast<int>(std::lround(duration_s / kTick_s)); ++tick) {
    const int64_t now_us = begin_us + tick * 1000;
    EXPECT_EQ(loop->Tick(now_us), station::DeviceResult::kOk);
    if (tick > 0) given_j += trace.force_n.back().dot(hand.position_m() - trace.position_m.back());
    trace.position_m.push_back(hand.position_m());
    trace.force_n.push_back(hand.force_n());
    trace.given_j.push_back(given_j);
    scene->Advance(tick, now_us, loop);
  }
  return trace;
}

}  // namespace palpate::testing
