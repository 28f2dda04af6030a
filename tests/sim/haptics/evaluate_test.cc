#include "sim/haptics/evaluate.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

namespace palpate::sim::evaluate_test {
namespace {

using Eigen::Quaterniond;
using Eigen::Vector3d;

/// A plane under the tip: force k (rest_penetration - z).
LocalModel Wall(double stiffness_n_per_m, double rest_penetration_m, double friction = 0, const Vector3d& normal = Vector3d::UnitZ()) {
  LocalModel model;
  model.constraint_count = 1;
  model.constraints[0] = LocalConstraint{.arm_T_m = Vector3d::Zero(),
                                         .normal_W = normal,
                                         .rest_penetration_m = rest_penetration_m,
                                         .stiffness_n_per_m = stiffness_n_per_m,
                                         .friction = friction};
  return model;
}

RigidPose At(const Vector3d& position_m) { return {.position_m = position_m}; }

TEST(EvaluateLocalModel, IsASpringOnOneSide) {
  const LocalModel wall = Wall(300, 0.002);
  FrictionState friction;
  EXPECT_NEAR(EvaluateLocalModel(wall, At({0, 0, 0}), {}, friction).force_n.z(), 0.6, 1e-12);
  EXPECT_NEAR(EvaluateLocalModel(wall, At({0, 0, -0.001}), {}, friction).force_n.z(), 0.9, 1e-12);
  const ContactForce away = EvaluateLocalModel(wall, At({0, 0, 0.0021}), {}, friction);
  EXPECT_EQ(away.force_n, Vector3d::Zero());
  EXPECT_EQ(away.active_count, 0);
  EXPECT_EQ(away.max_penetration_m, 0);
}

TEST(EvaluateLocalModel, DampsButNeverPulls) {
  LocalModel wall = Wall(300, 0.002);
  wall.constraints[0].damping_n_s_per_m = 5;
  FrictionState friction;
  EXPECT_NEAR(EvaluateLocalModel(wall, At({0, 0, 0}), {.linear_m_per_s = {0, 0, -0.1}}, friction).force_n.z(), 0.6 + 0.5, 1e-12);
  EXPECT_NEAR(EvaluateLocalModel(wall, At({0, 0, 0}), {.linear_m_per_s = {0, 0, 0.1}}, friction).force_n.z(), 0.6 - 0.5, 1e-12);
  EXPECT_EQ(EvaluateLocalModel(wall, At({0, 0, 0}), {.linear_m_per_s = {0, 0, 1}}, friction).force_n.z(), 0);
  // Out of contact there is nothing to damp.
  EXPECT_EQ(EvaluateLocalModel(wall, At({0, 0, 0.01}), {.linear_m_per_s = {0, 0, -1}}, friction).force_n.z(), 0);
}

TEST(EvaluateLocalModel, TurnsWithTheToolAndGivesTorque) {
  LocalModel wall = Wall(1000, 0);
  wall.constraints[0].arm_T_m = Vector3d(0.1, 0, 0);
  FrictionState friction;
  RigidPose pose;
  pose.rotation = Quaterniond(Eigen::AngleAxisd(0.01, Vector3d::UnitY()));  // the arm's end goes down by 0.1 sin(0.01)
  const ContactForce contact = EvaluateLocalModel(wall, pose, {}, friction);
  const double force_n = 1000 * 0.1 * std::sin(0.01);
  EXPECT_NEAR(contact.force_n.z(), force_n, 1e-12);
  EXPECT_NEAR(contact.torque_n_m.y(), -0.1 * std::cos(0.01) * force_n, 1e-12);
  EXPECT_NEAR(contact.torque_n_m.x(), 0, 1e-15);
}

TEST(EvaluateLocalModel, SticksThenSlides) {
  const double mu = 0.3;
  const LocalModel wall = Wall(600, 0.005, mu);
  FrictionState friction;
  EvaluateLocalModel(wall, At({0, 0, 0}), {}, friction);
  // Sticking: a spring of 2/3 of 600 N/m.
  EXPECT_NEAR(EvaluateLocalModel(wall, At({0.001, 0, 0}), {}, friction).force_n.x(), -0.4, 1e-12);
  EXPECT_NEAR(EvaluateLocalModel(wall, At({0, 0, 0}), {}, friction).force_n.x(), 0, 1e-12);
  // Sliding: mu times 3 N, however far.
  for (int i = 1; i <= 100; ++i) {
    const Vector3d force = EvaluateLocalModel(wall, At({0.0005 * i, 0, 0}), {}, friction).force_n;
    EXPECT_LE(std::hypot(force.x(), force.y()), mu * force.z() + 1e-12);
  }
  EXPECT_NEAR(EvaluateLocalModel(wall, At({0.0505, 0, 0}), {}, friction).force_n.x(), -mu * 3, 1e-12);
  // Reversal: the place follows the tool, so the friction turns round within twice its elastic range.
  const double range_m = mu * 3 / 400;
  EXPECT_NEAR(EvaluateLocalModel(wall, At({0.0505 - range_m, 0, 0}), {}, friction).force_n.x(), 0, 1e-12);
  EXPECT_NEAR(EvaluateLocalModel(wall, At({0.0505 - 2 * range_m, 0, 0}), {}, friction).force_n.x(), mu * 3, 1e-12);
  // Contact lost: forgotten.
  EvaluateLocalModel(wall, At({0.04, 0, 0.1}), {}, friction);
  EXPECT_EQ(EvaluateLocalModel(wall, At({0.03, 0, 0}), {}, friction).force_n.x(), 0);
}

TEST(EvaluateLocalModel, StaysInTheFrictionConeAndTakesEnergyOnClosedPaths) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  const double mu = 0.4;
  const LocalModel wall = Wall(500, 0.004, mu);
  FrictionState friction;
  Vector3d position = Vector3d::Zero();
  Vector3d force = EvaluateLocalModel(wall, At(position), {}, friction).force_n;
  double work_on_tool_j = 0;
  for (int i = 0; i < 20000; ++i) {
    const Vector3d next = i == 19999 ? Vector3d::Zero() : Vector3d(0.995 * position + 2e-4 * Vector3d(normal(random), normal(random), 0));
    const Vector3d next_force = EvaluateLocalModel(wall, At(next), {}, friction).force_n;
    work_on_tool_j += 0.5 * (force + next_force).dot(next - position);
    position = next;
    force = next_force;
    ASSERT_LE(std::hypot(force.x(), force.y()), mu * force.z() + 1e-12);
  }
  EXPECT_LT(work_on_tool_j, 0);
}

TEST(EvaluateLocalModel, DoesNotDependOnTheFrame) {
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  const auto vector = [&] { return Vector3d(normal(random), normal(random), normal(random)); };
  for (int round = 0; round < 100; ++round) {
    LocalModel model;
    model.constraint_count = 5;
    for (int i = 0; i < 5; ++i) {
      model.constraints[i] = {.arm_T_m = 0.01 * vector(),
                              .normal_W = (Vector3d::UnitZ() + 0.5 * vector()).normalized(),
                              .rest_penetration_m = 0.002 * normal(random),
                              .stiffness_n_per_m = 200,
                              .friction = 0.3,
                              .damping_n_s_per_m = 1};
    }
    const Quaterniond R = Quaterniond(normal(random), normal(random), normal(random), normal(random)).normalized();
    const Vector3d p = vector();
    LocalModel turned = model;
    turned.pose_at_build = {.position_m = p, .rotation = R};
    for (int i = 0; i < 5; ++i) turned.constraints[i].normal_W = R * model.constraints[i].normal_W;
    FrictionState friction;
    FrictionState turned_friction;
    for (int tick = 0; tick < 10; ++tick) {
      RigidPose pose{.position_m = 0.002 * vector(),
                     .rotation = Quaterniond(1, 0.02 * normal(random), 0.02 * normal(random), 0).normalized()};
      const RigidVelocity velocity{.linear_m_per_s = 0.05 * vector(), .angular_rad_per_s = vector()};
      const ContactForce force = EvaluateLocalModel(model, pose, velocity, friction);
      const RigidPose turned_pose{.position_m = R * pose.position_m + p, .rotation = R * pose.rotation};
      const ContactForce turned_force = EvaluateLocalModel(
          turned, turned_pose, {.linear_m_per_s = R * velocity.linear_m_per_s, .angular_rad_per_s = R * velocity.angular_rad_per_s},
          turned_friction);
      EXPECT_NEAR((R * force.force_n - turned_force.force_n).norm(), 0, 1e-9);
      EXPECT_NEAR((R * force.torque_n_m - turned_force.torque_n_m).norm(), 0, 1e-10);
    }
  }
}

TEST(ModelBlend, IsZeroWithoutAModelAndStartsFromZero) {
  ModelBlend blend;
  EXPECT_EQ(blend.newest(), nullptr);
  EXPECT_EQ(blend.Evaluate(At({0, 0, 0}), {}, 0).force_n, Vector3d::Zero());
  LocalModel wall = Wall(100, 0.01);
  wall.blend_time_s = 0.01;
  blend.Push(wall, 1.0);
  EXPECT_EQ(blend.Evaluate(At({0, 0, 0}), {}, 1.0).force_n.z(), 0);
  EXPECT_NEAR(blend.Evaluate(At({0, 0, 0}), {}, 1.004).force_n.z(), 0.4, 1e-12);
  EXPECT_NEAR(blend.Evaluate(At({0, 0, 0}), {}, 1.02).force_n.z(), 1.0, 1e-12);
  blend.Clear();
  EXPECT_EQ(blend.Evaluate(At({0, 0, 0}), {}, 1.03).force_n, Vector3d::Zero());
}

TEST(ModelBlend, EvaluatesBothModelsAtTheCurrentPose) {
  ModelBlend blend;
  LocalModel soft = Wall(100, 0.01);
  LocalModel hard = Wall(500, 0.004);
  hard.blend_time_s = 0.02;
  blend.Push(soft, 0);
  blend.Evaluate(At({0, 0, 0}), {}, 0.5);
  blend.Push(hard, 1.0);
  const double z = -0.003;
  const double f_soft = 100 * 0.013;
  const double f_hard = 500 * 0.007;
  EXPECT_NEAR(blend.Evaluate(At({0, 0, z}), {}, 1.005).force_n.z(), 0.75 * f_soft + 0.25 * f_hard, 1e-12);
  EXPECT_NEAR(blend.Evaluate(At({0, 0, z}), {}, 1.02).force_n.z(), f_hard, 1e-12);
}

struct Roughness {
  double largest_step_n = 0;  ///< change of force between two ticks of 1 ms
  double merge_step_n = 0;
};

/// Models whose planes jump arrive every `interval_ms`.
Roughness PushRandomModels(double blend_time_s, int interval_ms, const BlendLimits& limits = {}) {
  std::mt19937 random(29);
  std::uniform_real_distribution<double> unit(0, 1);
  ModelBlend blend(limits);
  Roughness roughness;
  Vector3d last = Vector3d::Zero();
  for (int tick = 0; tick < 3000; ++tick) {
    const double now_s = 0.001 * tick;
    if (tick % interval_ms == 0) {
      LocalModel model = Wall(400, 0.003 + 0.004 * unit(random), 0, Vector3d(0.3 * unit(random), 0.3 * unit(random), 1).normalized());
      model.blend_time_s = blend_time_s;
      blend.Push(model, now_s);
    }
    const Vector3d force = blend.Evaluate(At({0, 0, 0}), {}, now_s).force_n;
    // Later than 0.3 s: it takes some models to know how often they come.
    if (tick > 300) roughness.largest_step_n = std::max(roughness.largest_step_n, (force - last).norm());
    last = force;
  }
  roughness.merge_step_n = blend.merge_step_n();
  return roughness;
}

TEST(ModelBlend, BoundsTheJumpAtAnUpdate) {
  // The largest force of a model is 400 * 0.007 = 2.8 N, and any difference of two at most as large.
  EXPECT_GT(PushRandomModels(0, 16).largest_step_n, 0.8);
  EXPECT_LE(PushRandomModels(0.016, 16).largest_step_n, 2.8 / 16 + 1e-9);
  EXPECT_LE(PushRandomModels(0.010, 16).largest_step_n, 2.8 / 10 + 1e-9);
  EXPECT_LT(PushRandomModels(0.010, 16).merge_step_n, 0.001);
}

TEST(ModelBlend, BlendsOverTheTimeInWhichModelsReallyCome) {
  // Two of three are lost: what the scene says of its step is not how often something changes.
  EXPECT_LE(PushRandomModels(0.016, 48).largest_step_n, 2.8 / 48 + 1e-9);
}

TEST(ModelBlend, ALateModelIsNoSlowScene) {
  ModelBlend blend;
  LocalModel wall = Wall(400, 0.003);
  wall.blend_time_s = 0.016;
  double now_s = 0;
  for (int i = 0; i < 20; ++i) blend.Push(wall, now_s += 0.016);
  EXPECT_NEAR(blend.period_s(), 0.016, 1e-12);
  blend.Push(wall, now_s += 3);
  EXPECT_NEAR(blend.period_s(), 0.02, 1e-12);
  for (int i = 0; i < 20; ++i) blend.Push(wall, now_s += 0.1);
  EXPECT_NEAR(blend.period_s(), 0.1, 1e-12);
}

TEST(ModelBlend, StaysContinuousWhenModelsComeBeforeTheBlendIsOver) {
  // The weights change by at most 1/16 a tick; what merging adds is known, and small.
  const Roughness roughness = PushRandomModels(0.016, 10);
  EXPECT_LE(roughness.largest_step_n, 2.8 / 16 + roughness.merge_step_n + 1e-9);
  EXPECT_GT(roughness.merge_step_n, 0);
  EXPECT_LT(roughness.merge_step_n, 0.06);
}

TEST(ModelBlend, LimitsWhatModelsChangeButNotWhatTheHandDoes) {
  const Roughness roughness = PushRandomModels(0.016, 16, {.force_step_n = 0.03});
  EXPECT_LE(roughness.largest_step_n, 0.03 + roughness.merge_step_n + 1e-9);
  EXPECT_LT(roughness.merge_step_n, 0.03);
  ModelBlend blend({.force_step_n = 0.03, .torque_step_n_m = 0.001});
  LocalModel wall = Wall(400, 0.005);
  wall.blend_time_s = 0.016;
  blend.Push(wall, 0);
  for (int tick = 1; tick <= 100; ++tick) blend.Evaluate(At({0, 0, 0}), {}, 0.001 * tick);
  EXPECT_NEAR(blend.Evaluate(At({0, 0, 0}), {}, 0.101).force_n.z(), 2, 1e-12);
  EXPECT_NEAR(blend.Evaluate(At({0, 0, -0.005}), {}, 0.102).force_n.z(), 4, 1e-12);
  // A torque that appears counts too.
  wall.constraints[0].arm_T_m = Vector3d(0.1, 0, 0);
  blend.Push(wall, 0.103);
  EXPECT_NEAR(blend.Evaluate(At({0, 0, 0}), {}, 0.104).torque_n_m.norm(), 0.001, 1e-12);
}

TEST(ModelBlend, AccountsForTheEnergyOfItsSprings) {
  std::mt19937 random(31);
  std::normal_distribution<double> normal;
  ModelBlend blend({.force_step_n = 0.05});
  RigidPose pose = At({0, 0, 0});
  ContactForce last;
  double work_j = 0;         // of the tool
  double put_in_j = 0;       // by models
  double least_left_j = 0;   // of both after what the springs hold: friction takes, nothing gives
  double largest_error = 0;  // where there is no friction
  for (const double friction : {0.0, 0.4}) {
    blend.Clear();
    last = ContactForce{};
    pose = At({0, 0, 0});
    work_j = put_in_j = 0;
    for (int tick = 0; tick < 4000; ++tick) {
      if (tick % 7 == 0) {
        LocalModel model = Wall(300 + 100 * normal(random), 0.004 + 0.001 * normal(random), friction,
                                Vector3d(0.2 * normal(random), 0.2 * normal(random), 1).normalized());
        model.constraints[0].arm_T_m = Vector3d(0.01, 0, 0);
        model.blend_time_s = 0.016;
        blend.Push(model, 0.001 * tick);
      }
      const RigidPose before = pose;
      pose.position_m = 0.99 * pose.position_m + 5e-5 * Vector3d(normal(random), normal(random), normal(random));
      const ContactForce now = blend.Evaluate(pose, {}, 0.001 * tick);
      put_in_j += now.model_energy_j;
      work_j -= 0.5 * (last.force_n + now.force_n).dot(pose.position_m - before.position_m);
      const double left_j = work_j + put_in_j - now.elastic_energy_j;
      least_left_j = std::min(least_left_j, left_j);
      if (friction == 0) largest_error = std::max(largest_error, std::abs(left_j));
      last = now;
    }
    EXPECT_GT(last.elastic_energy_j, 1e-4);
  }
  // The trapezium is exact for springs, but for the change of weights during a tick.
  EXPECT_LT(largest_error, 2e-4);
  EXPECT_GT(least_left_j, -2e-4);
}

TEST(ModelBlend, CarriesFrictionOverToTheNextModel) {
  ModelBlend blend;
  const LocalModel wall = Wall(600, 0.005, 0.5);
  blend.Push(wall, 0);
  blend.Evaluate(At({0, 0, 0}), {}, 0.001);
  const double before = blend.Evaluate(At({0.001, 0, 0}), {}, 0.002).force_n.x();
  EXPECT_NEAR(before, -0.4, 1e-12);
  blend.Push(wall, 0.003);
  EXPECT_NEAR(blend.Evaluate(At({0.001, 0, 0}), {}, 0.003).force_n.x(), before, 1e-12);
}

}  // namespace
}  // namespace palpate::sim::evaluate_test
