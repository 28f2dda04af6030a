#include "gpu/dynamics/collider_aims.h"

#include <gtest/gtest.h>

#include <cmath>

#include "gpu/dynamics/float4.h"

namespace palpate::gpu::collider_aims_test {
namespace {

constexpr double kMargin_m = 0.001;

Collider At(double x, double coupling_n_per_m = 0, uint32_t members = 1) {
  Collider c{};
  c.tip = ToFloat4({x, 0, 0});
  c.axis = ToFloat4({0, 0, 0.1});
  c.device_tip.w = static_cast<float>(coupling_n_per_m);
  c.members = members;
  return c;
}
ColliderTarget To(double x) { return {.tip_m = {x, 0, 0}, .axis_m = {0, 0, 0.1}}; }

TEST(ColliderAims, AFreeColliderGoesToItsTargetToTheBit) {
  ColliderAims aims(1, kMargin_m);
  const Collider from = At(0.1);
  const ColliderTarget to{.tip_m = {1.0 / 3, 0.7, -0.1}, .axis_m = {0, 0.3, 0.1}};
  const std::span<const Float4> goals = aims.Aim({&from, 1}, {&to, 1});
  EXPECT_EQ(goals[0].x, static_cast<float>(1.0 / 3));
  EXPECT_EQ(goals[1].y, 0.3F);
  aims.ForgetCuts();
  aims.Note({&from, 1}, {&to, 1});
  EXPECT_EQ(aims.blocked_m()[0], 0);
}

/// One step towards `to`, in which the collider gets as far as `reaches`.
double GoalOfStep(ColliderAims& aims, Collider& collider, double to, double reaches) {
  const ColliderTarget target = To(to);
  const double goal = aims.Aim({&collider, 1}, {&target, 1})[0].x;
  const auto cut_m = static_cast<float>(goal - reaches);
  aims.ForgetCuts();
  aims.AddCuts({&cut_m, 1});
  collider.tip.x = static_cast<float>(reaches);
  aims.Note({&collider, 1}, {&target, 1});
  return goal;
}

TEST(ColliderAims, ABlockedColliderClosesTheGapByTwiceWhatItManaged) {
  ColliderAims aims(1, kMargin_m);
  Collider collider = At(0);
  EXPECT_NEAR(GoalOfStep(aims, collider, 0.01, 0.002), 0.01, 1e-9);
  EXPECT_NEAR(aims.blocked_m()[0], 0.008, 1e-9);
  EXPECT_NEAR(GoalOfStep(aims, collider, 0.01, 0.002), 0.002 + 2 * 0.002 + kMargin_m / 4, 1e-8) << "twice the 2 mm it went";
  EXPECT_NEAR(GoalOfStep(aims, collider, 0.01, 0.002), 0.002 + kMargin_m / 4, 1e-8) << "it did not move: a share of the margin is left";
  EXPECT_NEAR(aims.blocked_m()[0], 0.008, 1e-8);
}

TEST(ColliderAims, ATargetThatGoesAwayAgainIsFollowedAtOnce) {
  ColliderAims aims(1, kMargin_m);
  Collider collider = At(0);
  GoalOfStep(aims, collider, 0.01, 0.0);
  EXPECT_NEAR(GoalOfStep(aims, collider, -0.02, -0.02), -0.02, 1e-9);
  EXPECT_NEAR(aims.blocked_m()[0], 0, 1e-8);
}

TEST(ColliderAims, CapsulesOfOneToolAreHeldBackTogether) {
  ColliderAims aims(2, kMargin_m);
  std::array<Collider, 2> tool{At(0, 0, 2), At(0.05)};
  const std::array<ColliderTarget, 2> targets{To(0.01), To(0.06)};
  aims.Aim(tool, targets);
  const std::array<float, 2> cut_m{0.01F, 0.01F};
  aims.ForgetCuts();
  aims.AddCuts(cut_m);
  aims.Note(tool, targets);  // neither moved
  const std::span<const Float4> goals = aims.Aim(tool, targets);
  EXPECT_NEAR(goals[0].x, kMargin_m / 4, 1e-8);
  EXPECT_NEAR(goals[2].x - goals[0].x, 0.05, 1e-8);
}

TEST(ColliderAims, ACoupledColliderIsSentToItsTarget) {
  ColliderAims aims(1, kMargin_m);
  Collider collider = At(0, 300);
  GoalOfStep(aims, collider, 0.01, 0.001);
  EXPECT_NEAR(aims.blocked_m()[0], 0.009, 1e-8) << "what was cut";
  EXPECT_NEAR(GoalOfStep(aims, collider, 0.01, 0.001), 0.01, 1e-9) << "what drives it yields by itself";
}

TEST(ColliderAims, ResetForgets) {
  ColliderAims aims(1, kMargin_m);
  Collider collider = At(0);
  GoalOfStep(aims, collider, 0.01, 0.0);
  aims.Reset();
  EXPECT_EQ(aims.blocked_m()[0], 0);
  EXPECT_NEAR(GoalOfStep(aims, collider, 0.01, 0.0), 0.01, 1e-9);
}

}  // namespace
}  // namespace palpate::gpu::collider_aims_test
