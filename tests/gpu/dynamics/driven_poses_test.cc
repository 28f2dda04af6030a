#include "gpu/dynamics/driven_poses.h"

#include <array>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include <Eigen/Geometry>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace palpate::gpu::driven_poses_test {
namespace {

using Eigen::AngleAxisd;
using Eigen::Isometry3d;
using Eigen::Quaterniond;
using Eigen::Translation3d;
using Eigen::Vector3d;
using ::testing::HasSubstr;

Isometry3d Motion(const DrivenPose& pose) {
  const auto vector = [](const Float4& v) { return Vector3d(v.x, v.y, v.z); };
  return Translation3d(vector(pose.center)) * Quaterniond(pose.rotation.w, pose.rotation.x, pose.rotation.y, pose.rotation.z) *
         Translation3d(-vector(pose.center_start));
}

Isometry3d MotionAt(const std::vector<TissueDrivenRegion>& regions, size_t r, double time_s) {
  std::vector<DrivenPose> poses(regions.size());
  PosesOf(regions, time_s, poses);
  return Motion(poses[r]);
}

TissueDrivenRegion Region(std::vector<TissueMotionKey> keys) {
  TissueDrivenRegion region;
  region.duration_s = 100;
  region.keys = std::move(keys);
  return region;
}

TEST(DrivenPoses, WithoutKeysARegionTurnsAboutACentreThatMoves) {
  TissueDrivenRegion region;
  region.velocity_m_per_s = {0.1, 0, -0.2};
  region.angular_velocity_rad_per_s = {0, 0, 3};
  region.center_m = {1, 2, 3};
  region.start_s = 0.5;
  region.duration_s = 2;
  for (const double time_s : {0.0, 0.5, 1.1, 2.5, 9.0}) {
    const double s = std::clamp(time_s - 0.5, 0.0, 2.0);
    const Isometry3d expected =
        Translation3d(1 + 0.1 * s, 2, 3 - 0.2 * s) * AngleAxisd(3 * s, Vector3d::UnitZ()) * Translation3d(-1, -2, -3);
    EXPECT_TRUE(MotionAt({region}, 0, time_s).isApprox(expected, 1e-6)) << time_s;
  }
}

TEST(DrivenPoses, KeysAreMetAndVelocitiesHaveNoJumps) {
  std::vector<TissueMotionKey> keys = {
      {0, {0, 0, 0}, {0, 0, 0}}, {0.4, {0.1, -0.2, 0}, {0.3, 0, 1}}, {0.5, {0.1, 0.1, 0}, {0, -0.5, 1}}, {1.2, {}, {}}};
  for (const double period_s : {0.0, 1.5}) {
    TissueDrivenRegion region = Region(keys);
    region.center_m = {0.3, 0, 0};
    region.period_s = period_s;
    ASSERT_TRUE(CheckMotions(std::vector{region}).ok()) << CheckMotions(std::vector{region});
    for (const TissueMotionKey& key : keys) {
      for (int round = 0; round < (period_s > 0 ? 3 : 1); ++round) {
        const Vector3d turn(key.turn_rad[0], key.turn_rad[1], key.turn_rad[2]);
        const Isometry3d at = MotionAt({region}, 0, key.time_s + round * period_s);
        const Isometry3d expected = Translation3d(Vector3d(0.3 + key.shift_m[0], key.shift_m[1], key.shift_m[2])) *
                                    AngleAxisd(turn.norm(), turn.norm() > 0 ? Vector3d(turn.normalized()) : Vector3d::UnitX()) *
                                    Translation3d(-0.3, 0, 0);
        EXPECT_TRUE(at.isApprox(expected, 1e-6)) << key.time_s;
      }
    }
    // Second differences of the way of a point stay bounded, at the keys and where they repeat.
    const Vector3d point(0.5, 0.2, -0.1);
    constexpr double kStep_s = 0.004;
    for (double t = kStep_s; t < 3.2; t += kStep_s) {
      const auto place = [&](double time_s) { return Vector3d(MotionAt({region}, 0, time_s) * point); };
      EXPECT_LT((place(t + kStep_s) - 2 * place(t) + place(t - kStep_s)).norm(), 400 * kStep_s * kStep_s) << t;
    }
  }
}

TEST(DrivenPoses, NoComponentGoesPastItsKeys) {
  TissueDrivenRegion region = Region({{0, {}, {}}, {1, {-0.01, 0.02, 0}, {}}, {1.1, {-0.01, 0, 0}, {}}, {1.9, {-0.002, 0, 0.03}, {}}});
  region.period_s = 3;
  for (double t = 0; t < 6; t += 0.01) {
    const double in_period_s = t < 3 ? t : t - 3;
    size_t next = 0;
    while (next < 4 && region.keys[next].time_s <= in_period_s) ++next;
    const Vector3d at = MotionAt({region}, 0, t).translation();
    for (int k = 0; k < 3; ++k) {
      const auto [low, high] = std::minmax(region.keys[next - 1].shift_m[k], region.keys[next % 4].shift_m[k]);
      EXPECT_GE(at[k], low - 1e-8) << t;
      EXPECT_LE(at[k], high + 1e-8) << t;
    }
  }
}

TEST(DrivenPoses, EightKeysAPeriodFollowASine) {
  std::vector<TissueMotionKey> keys;
  const auto sine = [](double time_s) { return 0.02 * std::sin(2 * std::numbers::pi * time_s / 4); };
  for (int k = 0; k < 8; ++k) keys.push_back({k * 0.5, {0, 0, sine(k * 0.5)}, {}});
  TissueDrivenRegion region = Region(keys);
  region.period_s = 4;
  for (double t = 0; t < 12; t += 0.03) {
    EXPECT_NEAR(MotionAt({region}, 0, t).translation().z(), sine(t), 0.02 * 0.012) << t;
  }
  // A ramp lets it grow from nothing; after its duration it stands still.
  region.ramp_s = 2;
  region.duration_s = 9;
  EXPECT_NEAR(MotionAt({region}, 0, 1).translation().z(), 0.5 * sine(1), 1e-6);
  EXPECT_NEAR(MotionAt({region}, 0, 5).translation().z(), sine(5), 1e-6);
  EXPECT_NEAR(MotionAt({region}, 0, 50).translation().z(), sine(9), 1e-6);
}

TEST(DrivenPoses, AParentCarriesARegionAndItsCentre) {
  TissueDrivenRegion thigh = Region({{0, {}, {}}, {1, {0.1, 0, 0}, {0.7, 0, 0}}});
  thigh.center_m = {0, 0, 0.9};
  TissueDrivenRegion shin = Region({{0, {}, {}}, {1, {}, {-1.1, 0, 0}}});
  shin.center_m = {0, 0, 0.5};
  shin.parent = 0;
  TissueDrivenRegion foot = Region({});
  foot.parent = 1;
  foot.center_m = {0, 0.1, 0};
  const Isometry3d hip = Translation3d(0.1, 0, 0.9) * AngleAxisd(0.7, Vector3d::UnitX()) * Translation3d(0, 0, -0.9);
  const Isometry3d knee = Translation3d(0, 0, 0.5) * AngleAxisd(-1.1, Vector3d::UnitX()) * Translation3d(0, 0, -0.5);
  EXPECT_TRUE(MotionAt({thigh, shin, foot}, 0, 1).isApprox(hip, 1e-6));
  EXPECT_TRUE(MotionAt({thigh, shin, foot}, 1, 1).isApprox(hip * knee, 1e-6));
  EXPECT_TRUE(MotionAt({thigh, shin, foot}, 2, 7).isApprox(hip * knee, 1e-6));
}

TEST(DrivenPoses, WhatIsNotSoundIsRefused) {
  const auto error = [](auto change) {
    std::vector<TissueDrivenRegion> regions = {Region({}), Region({{0, {}, {}}, {1, {}, {}}})};
    regions[1].vertices = {5, 6};
    change(regions[1]);
    const absl::Status status = CheckMotions(regions);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(error([](auto& r) { r.keys[0].time_s = 0.1; }), HasSubstr("driven region 1: key 0 has the time 0.1 s"));
  EXPECT_THAT(error([](auto& r) { r.keys[1].time_s = 0; }), HasSubstr("key 1 has the time 0 s"));
  EXPECT_THAT(error([](auto& r) { r.keys[1].shift_m[1] = NAN; }), HasSubstr("key 1 is not finite"));
  EXPECT_THAT(error([](auto& r) { r.period_s = 1; }), HasSubstr("the period of 1 s does not end after the last key"));
  EXPECT_THAT(error([](auto& r) { r.ramp_s = -1; }), HasSubstr("the ramp is -1 s"));
  EXPECT_THAT(error([](auto& r) { r.parent = 1; }), HasSubstr("its parent, 1, is not before it"));
  EXPECT_THAT(error([](auto& r) { r.blends.resize(1); }), HasSubstr("1 blends for 2 vertices"));
  const auto blended = [&](std::array<uint32_t, 4> regions, std::array<float, 4> shares) {
    return error([&](auto& r) { r.blends = {{regions, shares}, {{1, 0, 0, 0}, {1, 0, 0, 0}}}; });
  };
  constexpr uint32_t kRests = TissueDrivenBlend::kRests;
  EXPECT_THAT(blended({1, 2, kRests, kRests}, {0.5F, 0.5F, 0, 0}), HasSubstr("blend 0 has region 2"));
  EXPECT_THAT(blended({1, 0, kRests, kRests}, {0.25F, 0.75F, 0, 0}), HasSubstr("blend 0 has the share 0.75"));
  EXPECT_THAT(blended({1, 0, kRests, kRests}, {0.5F, 0.25F, 0, 0}), HasSubstr("shares of blend 0 add up to 0.75"));
}

}  // namespace
}  // namespace palpate::gpu::driven_poses_test
