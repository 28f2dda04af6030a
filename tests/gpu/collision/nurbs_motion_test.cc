// First contacts of moving NURBS objects against closed forms, and planted contacts, of which none may come before the bound.
#include "gpu/collision/nurbs_motion.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "sim/nurbs/nurbs_shapes.h"
#include "tests/gpu/collision/nurbs_models.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::nurbs_motion_test {
namespace {

using Eigen::Affine3d;
using Eigen::Vector2d;
using Eigen::Vector3d;
using sim::NurbsSurface;
using sim::PoseOf;
using test::kIsNative;
using test::Sheet;
using test::Shift;
using test::Turned;
using ::testing::HasSubstr;
using Patches = std::vector<NurbsSurface>;

class NurbsMotionTest : public test::DeviceTest {
 protected:
  std::optional<NurbsObjects> Objects(const std::vector<Patches>& objects) {
    std::vector<std::vector<NurbsNet>> nets;
    for (const Patches& patches : objects) nets.push_back(sim::NetsOf(patches));
    auto out = NurbsObjects::Create(queue(), nets);
    EXPECT_TRUE(out.ok()) << out.status();
    if (!out.ok()) return std::nullopt;
    return *std::move(out);
  }
  absl::StatusOr<std::vector<NurbsImpact>> TryRun(const NurbsObjects& start, const NurbsObjects& end,
                                                  const std::vector<NurbsMotionQuery>& queries, const NurbsMotionOptions& options) {
    auto search = NurbsMotions::Create(context(), options);
    if (!search.ok()) return search.status();
    return search->Run(queue(), start, end, queries);
  }
  std::vector<NurbsImpact> Run(const NurbsObjects& start, const NurbsObjects& end, const std::vector<NurbsMotionQuery>& queries,
                               const NurbsMotionOptions& options) {
    auto result = TryRun(start, end, queries, options);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : std::vector<NurbsImpact>(queries.size());
  }
  // The first object stays at `pose`, the other goes by `way` from there.
  static NurbsMotionQuery Moving(uint32_t a, uint32_t b, const Affine3d& pose, const Vector3d& from, const Vector3d& way,
                                 const Vector3d& both = {0, 0, 0}) {
    NurbsMotionQuery out;
    out.start = {.object_a = a, .object_b = b, .pose_a = PoseOf(pose), .pose_b = PoseOf(pose * Shift(from))};
    out.end = {
        .object_a = a, .object_b = b, .pose_a = PoseOf(Shift(both) * pose), .pose_b = PoseOf(Shift(both) * pose * Shift(from + way))};
    return out;
  }
};

TEST_F(NurbsMotionTest, SpheresAndPlanesMeetWhenTheyShould) {
  std::mt19937 random(1);
  Affine3d grow = Affine3d::Identity();
  grow.linear() *= 6;
  grow.translation() = Vector3d(-3, -3, 0);
  const Patches plane = {Sheet({.degree_u = 1, .degree_v = 1, .height_m = 0}, &random).Transformed(grow)};
  const auto objects = Objects({sim::NurbsSphere(1), sim::NurbsSphere(0.5), plane, sim::NurbsTorus(2, 0.5)});
  ASSERT_TRUE(objects);
  const Affine3d turned = Turned(0.9, {1, 2, -1}, {3, 1, 2});
  std::vector<NurbsMotionQuery> queries;
  std::vector<double> times;
  const auto add = [&](const NurbsMotionQuery& query, double time) {
    queries.push_back(query);
    times.push_back(time);
  };
  // A sphere falls on a plane, straight and aslant; both move along.
  add(Moving(2, 0, turned, {0.3, -0.2, 3}, {0, 0, -4}), 0.5);
  add(Moving(2, 1, turned, {-1, 0.4, 2}, {1.5, 0.3, -2}, {100, 20, -30}), 0.75);
  // Two spheres, head-on and off the middle: |from + t way| = 1.5.
  add(Moving(0, 1, turned, {2, 2, 1}, {-4, -4, -2}), 0.25);
  add(Moving(0, 1, turned, {4, 0.9, 0}, {-4, 0, 0}), 1 - std::sqrt(1.5 * 1.5 - 0.9 * 0.9) / 4);
  // A sphere goes fast through the tube of a torus from outside; and one through its hole, that is 1.5 wide.
  add(Moving(3, 1, turned, {6, 0, 0}, {-12, 0, 0}), 0.25);
  add(Moving(3, 1, turned, {0.2, 0.3, 4}, {0, 0, -8}), 2);
  // Past each other: by 0.02.
  add(Moving(0, 1, turned, {4, 1.52, 0}, {-8, 0, 0}), 2);
  // Never near, moving apart, and moving side by side.
  add(Moving(0, 1, turned, {2, 0, 0}, {5, 0, 0}), 2);
  add(Moving(0, 1, turned, {2, 0, 0}, {0, 0, 0}, {1000, 0, 0}), 2);
  if (kIsNative) {
    queries.resize(4);
    times.resize(4);
  }
  const double tolerance_m = kIsNative ? 0.05 : 2e-3;
  const auto results = Run(*objects, *objects, queries, {.tolerance_m = tolerance_m});
  for (size_t i = 0; i < queries.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_TRUE(results[i].is_complete);
    if (times[i] > 1) {
      EXPECT_GT(results[i].lower, 1);
      EXPECT_FALSE(results[i].may_meet);
      continue;
    }
    ASSERT_TRUE(results[i].may_meet);
    EXPECT_LE(results[i].lower, times[i]);
    EXPECT_GE(results[i].lower, times[i] - 3 * tolerance_m);
    ASSERT_TRUE(results[i].time.has_value());
    EXPECT_NEAR(*results[i].time, times[i], 1e-9);
  }
}

// A touch without crossing: the bound is before it, and by no more than the tolerance lets it.
TEST_F(NurbsMotionTest, AGrazeIsNotMissed) {
  const auto objects = Objects({sim::NurbsSphere(1), sim::NurbsSphere(0.5)});
  ASSERT_TRUE(objects);
  for (const double by_m : {0.0, -1e-6, -1e-3}) {
    const double first = 0.5 - std::sqrt(std::max(0.0, 2.25 - std::pow(1.5 + by_m, 2))) / 4;
    const double tolerance_m = kIsNative ? 0.05 : 5e-3;
    const auto results = Run(*objects, *objects, {Moving(0, 1, Turned(1, {1, 1, 0}, {0, 0, 0}), {2, 1.5 + by_m, 0}, {-4, 0, 0})},
                             {.tolerance_m = tolerance_m});
    ASSERT_TRUE(results[0].may_meet);
    EXPECT_LE(results[0].lower, first);
    // Spheres nearer than twice the tolerance may pass for meeting.
    EXPECT_GE(results[0].lower, 0.5 - std::sqrt(std::pow(1.5 + 2 * tolerance_m, 2) - std::pow(1.5 + by_m, 2)) / 4 - tolerance_m);
    if (kIsNative) break;
  }
  // In contact from the start.
  const auto inside = Run(*objects, *objects, {Moving(0, 1, Affine3d::Identity(), {1.2, 0, 0}, {-0.2, 0, 0})}, {.tolerance_m = 0.05});
  EXPECT_TRUE(inside[0].may_meet);
  EXPECT_EQ(inside[0].lower, 0);
  EXPECT_FALSE(inside[0].time.has_value());
}

// Sheets whose control points all go their own way. Two places that meet at a known time are planted by shifting one sheet as a whole, so
// the first contact is not later.
TEST_F(NurbsMotionTest, NothingMeetsBeforeTheBound) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> uniform(0, 1);
  const int trials = kIsNative ? 2 : 60;
  std::vector<Patches> before, after;
  std::vector<double> planted;
  std::vector<NurbsMotionQuery> queries;
  for (int trial = 0; trial < trials; ++trial) {
    const test::SheetOptions shape{.degree_u = 1 + trial % 3, .degree_v = 2, .inside_u = trial % 2, .inside_v = 1, .height_m = 0.15};
    const NurbsSurface a0 = Sheet(shape, &random), a1 = Sheet(shape, &random);
    const NurbsSurface b0 = Sheet(shape, &random).Transformed(Shift({0, 0, 0.6})),
                       b1 = Sheet(shape, &random).Transformed(Shift({0, 0, -0.6}));
    const double time = 0.3 + 0.4 * uniform(random);
    const Vector2d x(uniform(random), uniform(random)), y(uniform(random), uniform(random));
    const auto at = [&](const NurbsSurface& s0, const NurbsSurface& s1, const Vector2d& uv) -> Vector3d {
      return (1 - time) * s0.Point(uv.x(), uv.y()) + time * s1.Point(uv.x(), uv.y());
    };
    const Vector3d by = at(a0, a1, x) - at(b0, b1, y);
    before.push_back({a0});
    before.push_back({b0.Transformed(Shift(by))});
    after.push_back({a1});
    after.push_back({b1.Transformed(Shift(by))});
    planted.push_back(time);
    const auto pair = NurbsQuery{
        .object_a = static_cast<uint32_t>(2 * trial), .object_b = static_cast<uint32_t>(2 * trial + 1), .pose_a = {}, .pose_b = {}};
    queries.push_back({.start = pair, .end = pair});
  }
  const auto start = Objects(before);
  auto end = Objects(before);
  ASSERT_TRUE(start && end);
  for (uint32_t i = 0; i < after.size(); ++i) PALPATE_ASSERT_OK(end->SetControl(queue(), i, test::ControlOf(after[i])));
  const auto results = Run(*start, *end, queries, {.tolerance_m = kIsNative ? 0.1 : 0.01});
  size_t timed = 0;
  for (size_t i = 0; i < queries.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_TRUE(results[i].may_meet);
    EXPECT_TRUE(results[i].is_complete);
    EXPECT_LE(results[i].lower, planted[i]);
    // Dense samples are apart before the bound, all on one side.
    const double just = 0.999 * results[i].lower;
    double lowest = 1e9;
    const auto at = [&](size_t object, double u, double v) -> Vector3d {
      return (1 - just) * before[object][0].Point(u, v) + just * after[object][0].Point(u, v);
    };
    constexpr int kSamples = 12;
    for (int k = 0; k < kSamples * kSamples; ++k) {
      const Vector3d p = at(2 * i, (k / kSamples + 0.5) / kSamples, (k % kSamples + 0.5) / kSamples);
      for (int l = 0; l < kSamples * kSamples; ++l) {
        lowest = std::min(lowest, (p - at(2 * i + 1, (l / kSamples + 0.5) / kSamples, (l % kSamples + 0.5) / kSamples)).norm());
      }
    }
    EXPECT_GT(lowest, 0);
    if (!results[i].time) continue;
    ++timed;
    EXPECT_GE(*results[i].time, results[i].lower - 1e-9);
    EXPECT_LE(*results[i].time, results[i].upper + 0.1);
    const double when = *results[i].time;
    const auto then = [&](size_t object, const std::array<double, 2>& uv) -> Vector3d {
      return (1 - when) * before[object][0].Point(uv[0], uv[1]) + when * after[object][0].Point(uv[0], uv[1]);
    };
    EXPECT_LT((then(2 * i, results[i].uv_a) - then(2 * i + 1, results[i].uv_b)).norm(), 1e-9);
  }
  std::printf("%zu of %d with a time\n", timed, trials);
  EXPECT_GT(timed, static_cast<size_t>(trials) / 3);
}

TEST_F(NurbsMotionTest, LittleEffortGivesABoundAllTheSame) {
  const auto objects = Objects({sim::NurbsSphere(1), sim::NurbsSphere(0.5)});
  ASSERT_TRUE(objects);
  const std::vector<NurbsMotionQuery> queries = {Moving(0, 1, Affine3d::Identity(), {4, 0.3, 0.2}, {-4, 0, 0})};
  double last = -1;
  for (const uint32_t tests : {1U, 20U, 60U, 100000U}) {
    const auto results = Run(*objects, *objects, queries, {.tolerance_m = kIsNative ? 0.1 : 0.01, .max_tests = tests});
    EXPECT_LE(results[0].lower, 1 - std::sqrt(2.25 - 0.13) / 4);
    EXPECT_GE(results[0].lower, last);
    last = results[0].lower;
    EXPECT_EQ(results[0].is_complete, tests == 100000);
  }
}

TEST_F(NurbsMotionTest, WrongInputIsRefused) {
  std::mt19937 random(4);
  const Patches sheet = {Sheet({.degree_u = 2, .degree_v = 2, .inside_u = 1, .weight_ratio = 2}, &random)};
  const auto objects = Objects({sim::NurbsSphere(1), sheet});
  const auto other = Objects({sim::NurbsSphere(1), {Sheet({.degree_u = 2, .degree_v = 2, .inside_u = 1, .weight_ratio = 2}, &random)}});
  const auto fewer = Objects({sheet});
  ASSERT_TRUE(objects && other && fewer);
  const NurbsMotionOptions options{};
  const auto query = Moving(0, 1, Affine3d::Identity(), {1, 0, 0}, {1, 0, 0});
  const auto message = [&](const NurbsObjects& end, const NurbsMotionQuery& q) {
    return std::string(TryRun(*objects, end, {q}, options).status().message());
  };
  EXPECT_THAT(message(*other, query), HasSubstr("end: objects[1]: weights differ"));
  EXPECT_THAT(message(*fewer, query), HasSubstr("end: 1 objects, the start has 2"));
  NurbsMotionQuery wrong = query;
  wrong.end.object_b = 0;
  EXPECT_THAT(message(*objects, wrong), HasSubstr("queries[0].end: its objects"));
  wrong = query;
  wrong.end.pose_a.offset_m[0] = NAN;
  EXPECT_THAT(message(*objects, wrong), HasSubstr("queries[0].end: queries[0].pose_a.offset_m: nan"));
  for (const NurbsMotionOptions& bad :
       {NurbsMotionOptions{.tolerance_m = 0}, NurbsMotionOptions{.max_level = 201}, NurbsMotionOptions{.max_tests = 0}}) {
    EXPECT_EQ(NurbsMotions::Create(context(), bad).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(Run(*objects, *objects, {}, options).empty());
}

}  // namespace
}  // namespace palpate::gpu::nurbs_motion_test
