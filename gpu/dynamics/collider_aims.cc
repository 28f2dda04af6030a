#include "gpu/dynamics/collider_aims.h"

#include <algorithm>
#include <cmath>

#include "gpu/dynamics/float4.h"

namespace palpate::gpu {
namespace {

// A driven tool that was cut short aims no farther beyond what it reached than this many times that way, and this share of the margin.
constexpr double kAimGrowth = 2;
constexpr double kAimShare = 0.25;

double Distance(const std::array<double, 3>& a, const std::array<double, 3>& b) {
  return std::hypot(b[0] - a[0], b[1] - a[1], b[2] - a[2]);
}

/// How far b is beyond a along n.
double Along(const std::array<double, 3>& n, const std::array<double, 3>& a, const std::array<double, 3>& b) {
  return n[0] * (b[0] - a[0]) + n[1] * (b[1] - a[1]) + n[2] * (b[2] - a[2]);
}

}  // namespace

void ColliderAims::Reset() { *this = ColliderAims(aims_.size(), margin_m_); }

std::span<const Float4> ColliderAims::Aim(std::span<const Collider> colliders, std::span<const ColliderTarget> targets) {
  for (size_t leader = 0, end = 0; leader < targets.size(); leader = end) {
    end = leader + colliders[leader].members;
    double over_m = 0;
    double turn_share = 1;
    const std::array<double, 3>* behind = nullptr;
    for (size_t c = leader; c < end; ++c) {
      State& aim = aims_[c];
      aim.tip_from = ToArray(colliders[c].tip);
      aim.axis_from = ToArray(colliders[c].axis);
      if (const double over = Along(aim.behind, aim.tip_from, targets[c].tip_m) - aim.room_m; over > over_m) {
        over_m = over;
        behind = &aim.behind;
      }
      const double turn_m = Distance(aim.axis_from, targets[c].axis_m);
      if (turn_m > aim.turn_m) turn_share = std::min(turn_share, aim.turn_m / turn_m);
    }
    std::array<double, 3> back{};
    for (size_t k = 0; behind != nullptr && k < 3; ++k) back[k] = over_m * (*behind)[k];
    for (size_t c = leader; c < end; ++c) {
      State& aim = aims_[c];
      std::array<double, 3> tip = targets[leader].tip_m;
      std::array<double, 3> axis = targets[c].axis_m;
      for (size_t k = 0; k < 3; ++k) {
        const double offset_from = aim.tip_from[k] - aims_[leader].tip_from[k];
        const double offset = targets[c].tip_m[k] - targets[leader].tip_m[k];
        tip[k] += offset_from + turn_share * (offset - offset_from) - back[k];
        axis[k] = aim.axis_from[k] + turn_share * (axis[k] - aim.axis_from[k]);
      }
      aim.is_short = behind != nullptr || turn_share < 1;
      goals_[2 * c] = ToFloat4(aim.is_short ? tip : targets[c].tip_m);
      goals_[2 * c + 1] = ToFloat4(aim.is_short ? axis : targets[c].axis_m);
    }
  }
  return goals_;
}

void ColliderAims::ForgetCuts() {
  for (State& aim : aims_) aim.cut_m = 0;
}

void ColliderAims::AddCuts(std::span<const float> cut_m) {
  for (size_t c = 0; c < aims_.size(); ++c) aims_[c].cut_m += cut_m[c];
}

void ColliderAims::Note(std::span<const Collider> colliders, std::span<const ColliderTarget> targets) {
  for (size_t c = 0; c < targets.size(); ++c) {
    State& aim = aims_[c];
    aim.room_m = aim.turn_m = std::numeric_limits<double>::infinity();
    blocked_m_[c] = aim.cut_m;
    if (colliders[c].device_tip.w > 0) continue;  // what drives a coupled tool yields by itself
    if (!(aim.cut_m > 0) && !aim.is_short) continue;
    const std::array<double, 3> tip = ToArray(colliders[c].tip);
    const std::array<double, 3> axis = ToArray(colliders[c].axis);
    const double gap_m = Distance(tip, targets[c].tip_m);
    std::array<double, 3> end = tip;
    std::array<double, 3> end_target = targets[c].tip_m;
    for (size_t k = 0; k < 3; ++k) {
      end[k] += axis[k];
      end_target[k] += targets[c].axis_m[k];
      aim.behind[k] = gap_m > 0 ? (targets[c].tip_m[k] - tip[k]) / gap_m : 0;
    }
    blocked_m_[c] = std::max(gap_m, Distance(end, end_target));
    const double least_m = kAimShare * margin_m_;
    aim.room_m = kAimGrowth * std::max(Along(aim.behind, aim.tip_from, tip), 0.0) + least_m;
    if (Distance(axis, targets[c].axis_m) > least_m) aim.turn_m = kAimGrowth * Distance(aim.axis_from, axis) + least_m;
  }
}

}  // namespace palpate::gpu
