#include "gpu/dynamics/rigid_impacts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include <Eigen/Geometry>

namespace palpate::gpu::rigid_impacts_test {
namespace {

using Eigen::Vector3d;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr double kDt = 1.0 / 120;
constexpr double kRadius_m = 0.02;

Vector3d Vec(const Float4& v) { return {v.x, v.y, v.z}; }

std::vector<Vector6d> Free(uint32_t) { return {}; }

/// A ball of which inertia and place are simple.
RigidBlockState Ball(double x_m, double speed_m_per_s, double mass_kg = 1) {
  RigidBlockState state{};
  state.center = {static_cast<float>(x_m), 0, 0, static_cast<float>(mass_kg)};
  state.rotation = {0, 0, 0, 1};
  const auto moment = static_cast<float>(0.4 * mass_kg * kRadius_m * kRadius_m);
  state.inertia = {moment, moment, moment, 0};
  state.velocity = {static_cast<float>(speed_m_per_s), 0, 0, 0};
  return state;
}

/// The balls of a row touch.
std::vector<ImpactContact> Row(size_t balls, double restitution) {
  std::vector<ImpactContact> out;
  for (uint32_t i = 0; i + 1 < balls; ++i) {
    out.push_back(
        {.body_a = i, .body_b = i + 1, .point_m = {2 * kRadius_m * (i + 0.5), 0, 0}, .normal = {1, 0, 0}, .restitution = restitution});
  }
  return out;
}

struct Outcome {
  std::vector<double> speeds;
  std::vector<uint32_t> changed;
};

/// What becomes of balls in a row that the step left at one common velocity.
Outcome Collide(const std::vector<RigidBlockState>& before, double restitution) {
  double mass = 0, momentum = 0;
  for (const RigidBlockState& ball : before) {
    mass += ball.center.w;
    momentum += ball.center.w * ball.velocity.x;
  }
  std::vector<RigidBlockState> after = before;
  for (RigidBlockState& ball : after) ball.velocity.x = static_cast<float>(momentum / mass);
  Outcome out;
  out.changed = RigidImpacts(kDt, Vector3d::Zero()).Apply(before, Row(before.size(), restitution), after, Free);
  double kept = 0;
  for (const RigidBlockState& ball : after) {
    out.speeds.push_back(ball.velocity.x);
    kept += ball.center.w * ball.velocity.x;
  }
  EXPECT_NEAR(kept, momentum, 1e-6 * std::abs(momentum));
  return out;
}

TEST(RigidImpacts, TwoBallsPartByNewtonsLaw) {
  for (const double e : {0.25, 0.6, 1.0}) {
    for (const double mass : {0.2, 1.0, 30.0}) {
      const Outcome out = Collide({Ball(0, 2), Ball(2 * kRadius_m, -1, mass)}, e);
      EXPECT_THAT(out.changed, ElementsAre(0, 1));
      EXPECT_NEAR(out.speeds[1] - out.speeds[0], 3 * e, 1e-5) << e << " " << mass;
    }
  }
}

// The cradle: as many balls leave as came, whatever rests between.
TEST(RigidImpacts, ARowHandsAnImpactOnBallByBall) {
  Outcome out = Collide({Ball(0, 1), Ball(0.04, 0), Ball(0.08, 0), Ball(0.12, 0), Ball(0.16, 0)}, 1);
  for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(out.speeds[i], i == 4 ? 1 : 0, 1e-5) << i;
  out = Collide({Ball(0, 1), Ball(0.04, 1), Ball(0.08, 0), Ball(0.12, 0), Ball(0.16, 0)}, 1);
  for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(out.speeds[i], i >= 3 ? 1 : 0, 1e-5) << i;
}

// Of a plastic row nothing moves otherwise than the step left it, and slow impacts do not bounce.
TEST(RigidImpacts, NothingChangesWithoutRestitutionOrBelowTheThreshold) {
  EXPECT_THAT(Collide({Ball(0, 1), Ball(0.04, 0)}, 0).changed, IsEmpty());
  EXPECT_THAT(Collide({Ball(0, 0.009), Ball(0.04, 0)}, 1).changed, IsEmpty());
  std::vector<RigidBlockState> resting = {Ball(0, 0)};
  const ImpactContact floor = {.body_b = 0, .point_m = {0, 0, -kRadius_m}, .restitution = 1};
  EXPECT_THAT(RigidImpacts(kDt, {0, 0, -9.81}).Apply(resting, std::vector{floor}, resting, Free), IsEmpty()) << "gravity of one step";
}

// A box that lands flat leaves flat, and one that lands on an edge keeps its energy.
TEST(RigidImpacts, ABoxBouncesFromAllItsContactsAtOnce) {
  const Vector3d half{0.05, 0.03, 0.02};
  for (const double tilt : {0.0, 0.3}) {
    RigidBlockState box{};
    box.center = {0, 0, 0, 2};
    const Eigen::AngleAxisd turn(tilt, Vector3d::UnitY());
    const Eigen::Quaterniond q(turn);
    box.rotation = {static_cast<float>(q.x()), static_cast<float>(q.y()), static_cast<float>(q.z()), static_cast<float>(q.w())};
    const Vector3d squares = half.cwiseProduct(half);
    const Vector3d moments = 2.0 / 3 * Vector3d(squares.y() + squares.z(), squares.x() + squares.z(), squares.x() + squares.y());
    box.inertia = {static_cast<float>(moments.x()), static_cast<float>(moments.y()), static_cast<float>(moments.z()), 0};
    box.velocity = {0, 0, -1, 0};
    std::vector<ImpactContact> contacts;
    for (const double x : {-1, 1}) {
      for (const double y : {-1, 1}) {
        const Vector3d corner = turn * Vector3d(x * half.x(), y * half.y(), -half.z());
        if (tilt == 0 || x > 0) contacts.push_back({.body_b = 0, .point_m = corner, .normal = {0, 0, 1}, .restitution = 1});
      }
    }
    std::vector<RigidBlockState> after = {box};  // as if the step had not seen the impact yet
    RigidImpacts(kDt, Vector3d::Zero()).Apply(std::vector{box}, contacts, after, Free);
    const Vector3d v = Vec(after[0].velocity), l = Vec(after[0].momentum);
    const Vector3d local = turn.inverse() * l;
    const double energy = v.squaredNorm() + 0.5 * local.dot(local.cwiseQuotient(moments));
    EXPECT_NEAR(energy, 1, 1e-5) << tilt;
    if (tilt == 0) {
      EXPECT_NEAR(v.z(), 1, 1e-5);
      EXPECT_LT(l.norm(), 1e-7);
    } else {
      EXPECT_GT(std::abs(l.y()), 1e-3) << "it turns";
    }
  }
}

// A ball that slides into the floor at a slant: friction takes mu (1 + e) of the fall from the slide, and makes it roll; no more than that.
TEST(RigidImpacts, FrictionIsCoulombs) {
  for (const double mu : {0.1, 1.0}) {
    RigidBlockState ball = Ball(0, 3);
    ball.velocity.z = -1;
    std::vector<RigidBlockState> after = {ball};
    const ImpactContact floor = {.body_b = 0, .point_m = {0, 0, -kRadius_m}, .restitution = 0.5, .friction = mu};
    RigidImpacts(kDt, Vector3d::Zero()).Apply(std::vector{ball}, std::vector{floor}, after, Free);
    EXPECT_NEAR(after[0].velocity.z, 0.5, 1e-6);
    const double spin = after[0].momentum.y / after[0].inertia.y;
    if (mu < 0.5) {
      EXPECT_NEAR(after[0].velocity.x, 3 - mu * 1.5, 1e-5);
      EXPECT_LT(spin * kRadius_m, after[0].velocity.x) << "it slides on";
    } else {
      EXPECT_NEAR(after[0].velocity.x, 3 * 5.0 / 7, 1e-5);
      EXPECT_NEAR(spin * kRadius_m, after[0].velocity.x, 1e-5) << "it rolls";
    }
  }
}

// Tissue or a coupled tool that caught the ball already: nothing is left to bounce.
TEST(RigidImpacts, WhatElsePushedCounts) {
  const std::vector<RigidBlockState> before = {Ball(0, -2)};
  std::vector<RigidBlockState> after = {Ball(0, -0.1)};
  const ImpactContact wall = {.body_b = 0, .point_m = {-kRadius_m, 0, 0}, .normal = {1, 0, 0}, .restitution = 0.5};
  Vector6d caught = Vector6d::Zero();
  caught[0] = 1;
  RigidImpacts(kDt, Vector3d::Zero()).Apply(before, std::vector{wall}, after, Free, {{0, caught}});
  EXPECT_NEAR(after[0].velocity.x, 0.5, 1e-6) << "of the 1 m/s that are left";
}

// A rail to the world takes up what is across it: an oblique contact then gives as much along it as a straight one.
TEST(RigidImpacts, WhatHoldsABodyToTheWorldHoldsItInAnImpact) {
  const std::vector<RigidBlockState> before = {Ball(0, 1), Ball(2 * kRadius_m, 0)};
  std::vector<RigidBlockState> after = before;
  const ImpactContact oblique = {
      .body_a = 0, .body_b = 1, .point_m = {kRadius_m, 0, 0}, .normal = {std::cos(0.4), 0, std::sin(0.4)}, .restitution = 1};
  const HeldRows rails = [](uint32_t) {
    std::vector<Vector6d> rows;
    for (int r = 1; r < 6; ++r) rows.emplace_back(Vector6d::Unit(r));
    return rows;
  };
  RigidImpacts(kDt, {0, 0, -9.81}).Apply(before, std::vector{oblique}, after, rails);
  EXPECT_LT((Vec(after[0].velocity) - Vector3d(0, 0, 0)).norm(), 1e-5);
  EXPECT_LT((Vec(after[1].velocity) - Vector3d(1, 0, 0)).norm(), 1e-5);
}

// A wall that comes towards a ball; a ball that nothing hits stays as the step left it.
TEST(RigidImpacts, OnlyWhatIsHitChanges) {
  const std::vector<RigidBlockState> before = {Ball(0, -2), Ball(1, 0.3)};
  std::vector<RigidBlockState> after = before;
  after[0].velocity = {0, 0.7F, -0.1F, 0};
  after[1].velocity = {0.2F, 0, 0, 0};
  const ImpactContact wall = {
      .body_b = 0, .point_m = {-kRadius_m, 0, 0}, .normal = {1, 0, 0}, .wall_velocity_m_per_s = {1, 0, 0}, .restitution = 0.5};
  EXPECT_THAT(RigidImpacts(kDt, Vector3d::Zero()).Apply(before, std::vector{wall}, after, Free), ElementsAre(0));
  EXPECT_LT((Vec(after[0].velocity) - Vector3d(1 + 0.5 * 3, 0, 0)).norm(), 1e-5) << "from a wall that comes at 1 m/s";
  EXPECT_EQ(after[1].velocity.x, 0.2F);
}

}  // namespace
}  // namespace palpate::gpu::rigid_impacts_test
