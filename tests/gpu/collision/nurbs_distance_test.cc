// Distances of NURBS objects against closed forms, dense sampling in double and a search from many starts.
#include "gpu/collision/nurbs_distance.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/nurbs/nurbs_shapes.h"
#include "tests/gpu/collision/nurbs_models.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::nurbs_distance_test {
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

Affine3d Stretched(const Vector3d& by) {
  Affine3d map = Affine3d::Identity();
  map.linear() = by.asDiagonal();
  return map;
}
Vector3d ToVector(const std::array<double, 3>& p) { return {p[0], p[1], p[2]}; }

class NurbsDistanceTest : public test::DeviceTest {
 protected:
  std::optional<NurbsObjects> Objects(const std::vector<Patches>& objects) {
    std::vector<std::vector<NurbsNet>> nets;
    for (const Patches& patches : objects) nets.push_back(sim::NetsOf(patches));
    auto out = NurbsObjects::Create(queue(), nets);
    EXPECT_TRUE(out.ok()) << out.status();
    if (!out.ok()) return std::nullopt;
    return *std::move(out);
  }
  std::vector<NurbsDistance> Run(const NurbsObjects& objects, const std::vector<NurbsQuery>& queries, const NurbsDistanceOptions& options) {
    auto search = NurbsDistances::Create(context(), options);
    EXPECT_TRUE(search.ok()) << search.status();
    if (!search.ok()) return std::vector<NurbsDistance>(queries.size());
    auto result = search->Run(queue(), objects, queries);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : std::vector<NurbsDistance>(queries.size());
  }
  NurbsDistance Between(const Patches& a, const Patches& b, const NurbsDistanceOptions& options,
                        const Affine3d& pose_a = Affine3d::Identity(), const Affine3d& pose_b = Affine3d::Identity()) {
    const auto objects = Objects({a, b});
    if (!objects) return {};
    return Run(*objects, {{.object_a = 0, .object_b = 1, .pose_a = PoseOf(pose_a), .pose_b = PoseOf(pose_b)}}, options)[0];
  }
  // What holds of any minimum: points are those of the parameters, and nothing is nearer than the bound.
  static void CheckPlaces(const NurbsMinimum& minimum, const Patches& a, const Patches& b, const Affine3d& pose_a, const Affine3d& pose_b) {
    const Vector3d p = pose_a * a[minimum.surface_a].Point(minimum.uv_a[0], minimum.uv_a[1]);
    const Vector3d q = pose_b * b[minimum.surface_b].Point(minimum.uv_b[0], minimum.uv_b[1]);
    EXPECT_LT((p - ToVector(minimum.point_a_m)).norm(), 1e-12);
    EXPECT_LT((q - ToVector(minimum.point_b_m)).norm(), 1e-12);
    EXPECT_NEAR((p - q).norm(), minimum.distance_m, 1e-12);
  }
};

struct Case {
  uint32_t a = 0, b = 0;
  Affine3d pose_a, pose_b;
  double distance_m = 0;
};

TEST_F(NurbsDistanceTest, LeastDistancesAreThoseOfClosedForms) {
  const std::vector<Patches> models = {sim::NurbsSphere(1), sim::NurbsTorus(2, 0.5), sim::NurbsCylinder(1, 3), sim::NurbsSphere(0.3)};
  std::vector<Case> cases;
  const Affine3d both = Turned(0.8, {1, -2, 0.5}, {3, 1, -2});
  // Poles, seams, insides; near and far.
  for (const Vector3d& way : {Vector3d(0, 0, 1), Vector3d(1, 0, 0), Vector3d(1, 2, 3).normalized(), Vector3d(-1, 1, 0).normalized()}) {
    for (const double gap_m : {1e-2, 0.7, 50.0}) {
      cases.push_back({0, 3, both, both * Shift((1.3 + gap_m) * way) * Turned(0.4, {1, 1, 0}, {0, 0, 0}), gap_m});
    }
  }
  for (const Vector3d& at : {Vector3d(0.6, 0.2, 0.1), Vector3d(3, 2, 1), Vector3d(0, 2, 1.5), Vector3d(0.9, 0.5, -0.3)}) {
    cases.push_back({1, 3, both, both * Shift(at), std::hypot(at.head<2>().norm() - 2, at.z()) - 0.8});
  }
  cases.push_back({2, 3, both, both * Shift({2, 1, 1.7}), std::sqrt(5.0) - 1.3});  // of the side
  cases.push_back({2, 3, both, both * Shift({0.2, -0.3, 4}), 0.7});                // of the disc
  cases.push_back({2, 3, both, both * Shift({2, 0, 4}), std::sqrt(2.0) - 0.3});    // of the rim between them
  if (kIsNative) cases.resize(3);
  const auto objects = Objects(models);
  ASSERT_TRUE(objects);
  std::vector<NurbsQuery> queries;
  for (const Case& c : cases) {
    queries.push_back({.object_a = c.a, .object_b = c.b, .pose_a = PoseOf(c.pose_a), .pose_b = PoseOf(c.pose_b)});
  }
  const double tolerance_m = 1e-3;
  const auto results = Run(*objects, queries, {.tolerance_m = tolerance_m});
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_EQ(results[i].minima.size(), 1U);
    const NurbsMinimum& minimum = results[i].minima[0];
    CheckPlaces(minimum, models[cases[i].a], models[cases[i].b], cases[i].pose_a, cases[i].pose_b);
    EXPECT_NEAR(minimum.distance_m, cases[i].distance_m, 1e-12 * (1 + cases[i].distance_m));
    EXPECT_LT(minimum.residual, 1e-8);
    EXPECT_TRUE(minimum.is_isolated);
    EXPECT_TRUE(results[i].is_complete);
    EXPECT_LE(results[i].lower_bound_m, cases[i].distance_m);
    EXPECT_GE(results[i].lower_bound_m, cases[i].distance_m - 1.1 * std::max(tolerance_m, 3e-5 * (1 + cases[i].distance_m)));
    const Vector3d way = (ToVector(minimum.point_b_m) - ToVector(minimum.point_a_m)).normalized();
    if (cases[i].a == 0 && cases[i].distance_m < 1) {
      EXPECT_NEAR(ToVector(minimum.normal_a).dot(way), 1, 1e-7);
      EXPECT_NEAR(ToVector(minimum.normal_b).dot(way), -1, 1e-7);
    }
  }
}

// Where the ends of parameters hold a minimum: corner on corner, corner on surface, edge across edge, and the crease of two patches.
TEST_F(NurbsDistanceTest, RimsAndCreasesHoldMinima) {
  std::mt19937 random(1);
  const Patches flat = {Sheet({.degree_u = 2, .degree_v = 1, .height_m = 0}, &random)};
  const auto expect = [&](const Affine3d& pose, double distance_m, const Vector3d& on_a, const Vector3d& on_b) {
    const NurbsDistance result = Between(flat, flat, {.tolerance_m = 1e-3}, Affine3d::Identity(), pose);
    ASSERT_EQ(result.minima.size(), 1U);
    EXPECT_NEAR(result.minima[0].distance_m, distance_m, 1e-12);
    EXPECT_LT((ToVector(result.minima[0].point_a_m) - on_a).norm(), 1e-6);
    EXPECT_LT((ToVector(result.minima[0].point_b_m) - on_b).norm(), 1e-6);
    EXPECT_TRUE(result.minima[0].is_on_rim);
    EXPECT_LE(result.lower_bound_m, distance_m);
  };
  expect(Shift({1.3, 1.4, 0}), 0.5, {1, 1, 0}, {1.3, 1.4, 0});
  if (kIsNative) return;
  const Affine3d upright = Turned(M_PI / 2, {1, 0, 0}, {0.5, 0.2, 0.4}) * Turned(M_PI / 4, {0, 0, 1}, {0, 0, 0});
  expect(upright, 0.4, {0.5, 0.2, 0}, {0.5, 0.2, 0.4});  // a square that stands on its corner
  expect(Turned(M_PI / 2 + 0.4, {1, 0, 0}, {1.2, 0.3, 0}) * Shift({0, -0.5, 0}), 0.2, {1, 0.3, 0}, {1.2, 0.3, 0});
  // A roof of two squares over a sphere: the ridge is nearest.
  Affine3d left = Turned(0.5, {0, 1, 0}, {0, 0, 0}), right = Turned(M_PI - 0.5, {0, 1, 0}, {0, 0, 0});
  const Patches roof = {flat[0].Transformed(left), flat[0].Transformed(right)};
  const NurbsDistance result = Between(roof, sim::NurbsSphere(0.5), {.mode = NurbsDistanceMode::kMinima, .range_m = 3, .leaf_m = 0.1},
                                       Affine3d::Identity(), Shift({0, 0.4, 1.5}));
  ASSERT_EQ(result.minima.size(), 1U);
  EXPECT_NEAR(result.minima[0].distance_m, 1, 1e-12);
  EXPECT_TRUE(result.minima[0].is_on_rim);
  EXPECT_TRUE(result.minima[0].is_isolated);
}

// Surfaces that are parallel: the search ends, its memory is bounded, and the result says what it is.
TEST_F(NurbsDistanceTest, ValleysAreReportedAsSuch) {
  std::mt19937 random(2);
  const Patches shell = sim::NurbsSphere(1), core = sim::NurbsSphere(0.5);
  const NurbsDistance least = Between(shell, core, {.tolerance_m = kIsNative ? 0.2 : 0.02});
  ASSERT_EQ(least.minima.size(), 1U);
  EXPECT_NEAR(least.minima[0].distance_m, 0.5, 1e-12);
  EXPECT_FALSE(least.minima[0].is_isolated);
  EXPECT_TRUE(least.is_complete);
  EXPECT_LE(least.lower_bound_m, 0.5);
  EXPECT_GE(least.lower_bound_m, 0.5 - (kIsNative ? 0.21 : 0.021));
  const NurbsDistanceOptions bounded{
      .mode = NurbsDistanceMode::kMinima, .range_m = 1, .leaf_m = 1e-3, .max_pairs_of_query = kIsNative ? 50U : 500U};
  const NurbsDistance minima = Between(shell, core, bounded);
  EXPECT_FALSE(minima.is_complete);
  ASSERT_EQ(minima.minima.size(), 1U);
  EXPECT_NEAR(minima.minima[0].distance_m, 0.5, 1e-12);
  EXPECT_FALSE(minima.minima[0].is_isolated);
  EXPECT_LE(minima.lower_bound_m, 0.5);
  if (!kIsNative) {
    EXPECT_GT(minima.lower_bound_m, 0);
  }
  // A cylinder above a plane: a line of minima.
  const Patches plane = {Sheet({.degree_u = 1, .degree_v = 1, .height_m = 0}, &random).Transformed(Stretched({9, 9, 1}))};
  const NurbsDistance line =
      Between(plane, sim::NurbsCylinder(1, 3), {.tolerance_m = 1e-2}, Shift({-4, -4, 0}), Turned(M_PI / 2, {0, 1, 0}, {0, 0, 1.25}));
  ASSERT_EQ(line.minima.size(), 1U);
  EXPECT_NEAR(line.minima[0].distance_m, 0.25, 1e-12);
  EXPECT_FALSE(line.minima[0].is_isolated);
  // Surfaces that meet are at no distance.
  const NurbsDistance meeting = Between(shell, core, {.tolerance_m = 1e-2}, Affine3d::Identity(), Shift({0.8, 0.1, 0.2}));
  EXPECT_NEAR(meeting.minima[0].distance_m, 0, 1e-9);
  EXPECT_EQ(meeting.lower_bound_m, 0);
}

// A small sphere in the middle of an ellipsoid: its two nearest points are the ends of the shortest axis, wherever patches meet.
TEST_F(NurbsDistanceTest, AllMinimaOfAnEllipsoidAreFoundOnce) {
  const Patches sphere = sim::NurbsSphere(1), core = sim::NurbsSphere(0.25);
  for (const Vector3d& axes : {Vector3d(3, 2, 1), Vector3d(1, 3, 2)}) {
    for (const double turn : {0.0, 0.7}) {
      if (kIsNative && (turn == 0 || axes.x() < 2)) continue;
      // The patches of the ellipsoid are those of a turned sphere.
      const Affine3d pose = Stretched(axes) * Turned(turn, {1, 1, 1}, {0, 0, 0});
      const NurbsDistance result =
          Between(sphere, core, {.mode = NurbsDistanceMode::kMinima, .range_m = 1.2, .leaf_m = kIsNative ? 0.5 : 0.1}, pose);
      ASSERT_EQ(result.minima.size(), 2U) << axes.transpose() << " " << turn;
      EXPECT_TRUE(result.is_complete);
      Eigen::Index shortest = 0;
      axes.minCoeff(&shortest);
      double product = 1;
      for (const NurbsMinimum& minimum : result.minima) {
        CheckPlaces(minimum, sphere, core, pose, Affine3d::Identity());
        EXPECT_NEAR(minimum.distance_m, 0.75, 1e-11);
        EXPECT_LT(minimum.residual, 1e-8);
        EXPECT_TRUE(minimum.is_isolated);
        product *= ToVector(minimum.point_a_m)[shortest];
      }
      EXPECT_NEAR(product, -1, 1e-9);
      EXPECT_LE(result.lower_bound_m, 0.75);
      EXPECT_GT(result.lower_bound_m, 0.6 - (kIsNative ? 0.4 : 0.0));
    }
  }
}

// The distance of two sheets as a function of four parameters, for searches from many starts.
struct FourParameters {
  const NurbsSurface& a;
  const NurbsSurface& b;
  Affine3d pose_b;
  double operator()(const Eigen::Vector4d& x) const { return (a.Point(x[0], x[1]) - pose_b * b.Point(x[2], x[3])).norm(); }

  // The best of the 80 neighbours at smaller and smaller steps.
  Eigen::Vector4d Descend(Eigen::Vector4d x, double step) const {
    double best = (*this)(x);
    while (step > 1e-7) {
      const Eigen::Vector4d from = x;
      for (int n = 0; n < 81; ++n) {
        const Eigen::Vector4d way(n % 3 - 1, n / 3 % 3 - 1, n / 9 % 3 - 1, n / 27 - 1);
        const Eigen::Vector4d next = (from + step * way).cwiseMax(0.0).cwiseMin(1.0);
        if (const double there = (*this)(next); there < best - 1e-15) {
          best = there;
          x = next;
        }
      }
      if (x == from) step *= 0.5;
    }
    return x;
  }

  // Places of a grid that are no farther than all their neighbours.
  std::vector<Eigen::Vector4d> Starts(int samples) const {
    std::vector<Vector3d> on_a, on_b;
    for (int i = 0; i < samples * samples; ++i) {
      const double u = static_cast<double>(i / samples) / (samples - 1), v = static_cast<double>(i % samples) / (samples - 1);
      on_a.push_back(a.Point(u, v));
      on_b.push_back(pose_b * b.Point(u, v));
    }
    const auto near = [&](int i, int j) {
      std::vector<int> out;
      for (int k = std::max(0, i - 1); k <= std::min(samples - 1, i + 1); ++k) {
        for (int l = std::max(0, j - 1); l <= std::min(samples - 1, j + 1); ++l) out.push_back(k * samples + l);
      }
      return out;
    };
    std::vector<Eigen::Vector4d> starts;
    for (int p = 0; p < samples * samples; ++p) {
      for (int q = 0; q < samples * samples; ++q) {
        const double here = (on_a[static_cast<size_t>(p)] - on_b[static_cast<size_t>(q)]).squaredNorm();
        bool is_least = true;
        for (const int k : near(p / samples, p % samples)) {
          for (const int l : near(q / samples, q % samples)) {
            is_least &= here <= (on_a[static_cast<size_t>(k)] - on_b[static_cast<size_t>(l)]).squaredNorm();
          }
          if (!is_least) break;
        }
        if (!is_least) continue;
        starts.push_back(Eigen::Vector4d(p / samples, p % samples, q / samples, q % samples) / (samples - 1));
      }
    }
    return starts;
  }
};

TEST_F(NurbsDistanceTest, MinimaOfBumpySheetsAreThoseOfManyStarts) {
  std::mt19937 random(5);
  const double range_m = kIsNative ? 0.8 : 0.6;
  size_t known = 0;
  size_t missed = 0;
  size_t found_in_all = 0;
  for (int trial = 0; trial < (kIsNative ? 1 : 5); ++trial) {
    const bool is_rational = trial % 2 == 1;
    const test::SheetOptions shape{.degree_u = 2 + trial % 2,
                                   .degree_v = 3,
                                   .inside_u = kIsNative ? 0 : 2,
                                   .inside_v = kIsNative ? 0 : 1,
                                   .height_m = 0.3,
                                   .weight_ratio = is_rational ? 4.0 : 1.0};
    const Patches a = {Sheet(shape, &random)}, b = {Sheet(shape, &random)};
    const Affine3d pose_b = Turned(0.3, {1.0, 0.8 * trial, 2.0}, {0.1, -0.1, 0.6});
    const NurbsDistance result = Between(a, b, {.mode = NurbsDistanceMode::kMinima, .range_m = range_m, .leaf_m = kIsNative ? 0.4 : 0.06},
                                         Affine3d::Identity(), pose_b);
    EXPECT_TRUE(result.is_complete);
    const FourParameters distance{a[0], b[0], pose_b};
    double least = 1e9;
    for (const Eigen::Vector4d& start : distance.Starts(kIsNative ? 8 : 20)) {
      const Eigen::Vector4d x = distance.Descend(start, 0.02);
      least = std::min(least, distance(x));
      if (distance(x) > range_m - 1e-6) continue;
      ++known;
      const bool is_found = std::any_of(result.minima.begin(), result.minima.end(), [&](const NurbsMinimum& minimum) {
        return (ToVector(minimum.point_a_m) - a[0].Point(x[0], x[1])).norm() < 1e-3 && minimum.distance_m < distance(x) + 1e-9;
      });
      missed += is_found ? 0 : 1;
    }
    ASSERT_FALSE(result.minima.empty());
    EXPECT_LE(result.minima[0].distance_m, least + 1e-9);
    EXPECT_LE(result.lower_bound_m, least);
    for (const NurbsMinimum& minimum : result.minima) {
      ++found_in_all;
      CheckPlaces(minimum, a, b, Affine3d::Identity(), pose_b);
      EXPECT_LT(minimum.residual, 1e-8);
      const Eigen::Vector4d x(minimum.uv_a[0], minimum.uv_a[1], minimum.uv_b[0], minimum.uv_b[1]);
      EXPECT_GT(distance(distance.Descend(x, 1e-3)), minimum.distance_m - 1e-12);
    }
    const NurbsDistance nearest = Between(a, b, {.tolerance_m = 1e-3}, Affine3d::Identity(), pose_b);
    ASSERT_EQ(nearest.minima.size(), 1U);
    EXPECT_LE(nearest.minima[0].distance_m, result.minima[0].distance_m + 1e-3);
    EXPECT_LE(nearest.lower_bound_m, least);
    EXPECT_GE(nearest.lower_bound_m, least - 1.1e-3);
  }
  std::printf("%zu minima found, %zu known from starts, %zu of them missed\n", found_in_all, known, missed);
  EXPECT_EQ(missed, 0U);
  EXPECT_GE(known, kIsNative ? 1U : 10U);
}

// However far a query goes in depth: the same distance, and a bound as good. The last search has no breadth left to do.
TEST_F(NurbsDistanceTest, DepthAndBreadthFindTheSameDistance) {
  std::mt19937 random(7);
  std::vector<Patches> models = {sim::NurbsTorus(0.5, 0.2)};
  for (int i = 0; i < (kIsNative ? 1 : 3); ++i) {
    models.push_back({Sheet({.degree_u = 3, .degree_v = 3, .inside_u = 4, .inside_v = 3, .height_m = 0.4}, &random)});
  }
  const auto objects = Objects(models);
  ASSERT_TRUE(objects);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<NurbsQuery> queries;
  for (int i = 0; i < (kIsNative ? 2 : 60); ++i) {
    const Vector3d axis(uniform(random), uniform(random), uniform(random));
    const Vector3d away = 1.2 * Vector3d(uniform(random), uniform(random), uniform(random));
    queries.push_back({.object_a = static_cast<uint32_t>(i) % static_cast<uint32_t>(models.size()),
                       .object_b = static_cast<uint32_t>(i / 2) % static_cast<uint32_t>(models.size()),
                       .pose_a = PoseOf(Turned(3 * uniform(random), axis, {0, 0, 0})),
                       .pose_b = PoseOf(Turned(3 * uniform(random), {axis.z(), axis.y(), axis.x()}, away))});
  }
  const double tolerance_m = kIsNative ? 0.05 : 1e-3;
  NurbsDistanceOptions options{.tolerance_m = tolerance_m, .depth_cuts = 1};
  const auto in_breadth = Run(*objects, queries, options);
  size_t meeting = 0;
  for (const uint32_t cuts : {20U, 300U, 1U << 20}) {
    options.depth_cuts = cuts;
    if (cuts == 1U << 20) options.max_pairs = 2 * (options.max_pairs_of_query = static_cast<uint32_t>(queries.size()));
    const auto results = Run(*objects, queries, options);
    for (size_t i = 0; i < queries.size(); ++i) {
      SCOPED_TRACE(absl::StrCat("query ", i, ", cuts ", cuts));
      EXPECT_TRUE(results[i].is_complete);
      ASSERT_EQ(results[i].minima.size(), 1U);
      const double distance_m = results[i].minima[0].distance_m, other_m = in_breadth[i].minima[0].distance_m;
      EXPECT_NEAR(distance_m, other_m, 1.1 * tolerance_m);
      EXPECT_LE(results[i].lower_bound_m, std::min(distance_m, other_m));
      EXPECT_GE(results[i].lower_bound_m, distance_m - 1.1 * tolerance_m);
      meeting += distance_m < 1e-9 ? 1 : 0;
    }
  }
  if (kIsNative) return;
  EXPECT_GT(meeting, 5U);
  EXPECT_LT(meeting, 2 * queries.size());
}

// Many queries at a time are as single ones; few pairs in memory give the same.
TEST_F(NurbsDistanceTest, ManyQueriesGiveWhatSingleOnesGive) {
  std::mt19937 random(6);
  const std::vector<Patches> models = {sim::NurbsSphere(0.4), {Sheet({.degree_u = 3, .degree_v = 2, .inside_u = 2}, &random)}};
  const auto objects = Objects(models);
  ASSERT_TRUE(objects);
  std::vector<NurbsQuery> queries;
  for (int i = 0; i < (kIsNative ? 3 : 24); ++i) {
    queries.push_back({.object_a = static_cast<uint32_t>(i % 2),
                       .object_b = static_cast<uint32_t>(i / 2 % 2),
                       .pose_a = PoseOf(Turned(i, {1, 0.3 * i, 1}, {0, 0, 0})),
                       .pose_b = PoseOf(Turned(2 * i, {0.1 * i, 1, 1}, {0.5 * i, 2, 1}))});
  }
  const NurbsDistanceOptions options{.tolerance_m = 1e-2};
  const auto all = Run(*objects, queries, options);
  NurbsDistanceOptions narrow = options;
  narrow.depth_cuts = 1;
  const auto in_breadth = Run(*objects, queries, narrow);
  narrow.max_pairs_of_query = 64;
  narrow.max_pairs = 200;
  const auto in_parts = Run(*objects, queries, narrow);
  for (size_t i = 0; i < queries.size(); ++i) {
    ASSERT_EQ(all[i].minima.size(), 1U);
    EXPECT_LE(in_parts[i].lower_bound_m, all[i].minima[0].distance_m);
    if (in_parts[i].is_complete) {
      EXPECT_EQ(in_parts[i].minima[0].distance_m, in_breadth[i].minima[0].distance_m);
      EXPECT_EQ(in_parts[i].lower_bound_m, in_breadth[i].lower_bound_m);
    }
    if (i % 7 != 0) continue;
    const auto alone = Run(*objects, {queries[i]}, options);
    EXPECT_EQ(alone[0].minima[0].uv_a, all[i].minima[0].uv_a);
    EXPECT_EQ(alone[0].minima[0].distance_m, all[i].minima[0].distance_m);
    EXPECT_EQ(alone[0].lower_bound_m, all[i].lower_bound_m);
  }
}

TEST_F(NurbsDistanceTest, WrongInputIsRefused) {
  const NurbsDistanceOptions minima{.mode = NurbsDistanceMode::kMinima, .range_m = 1, .leaf_m = 0.1};
  const auto message = [&](NurbsDistanceOptions options, auto&& change) {
    change(options);
    return std::string(NurbsDistances::Create(context(), options).status().message());
  };
  EXPECT_THAT(message({}, [](auto& o) { o.tolerance_m = 0; }), HasSubstr("tolerance_m: 0"));
  EXPECT_THAT(message(minima, [](auto& o) { o.range_m = NAN; }), HasSubstr("range_m: nan"));
  EXPECT_THAT(message(minima, [](auto& o) { o.leaf_m = -1; }), HasSubstr("leaf_m: -1"));
  EXPECT_THAT(message({}, [](auto& o) { o.max_level = 201; }), HasSubstr("max_level: 201"));
  EXPECT_THAT(message({}, [](auto& o) { o.depth_cuts = (1U << 20) + 1; }), HasSubstr("depth_cuts: 1048577"));
  EXPECT_THAT(message({}, [](auto& o) { o.max_pairs = 1; }), HasSubstr("max_pairs: 1"));
  EXPECT_THAT(message({}, [](auto& o) { o.max_pairs_of_query = 1U << 22; }), HasSubstr("max_pairs_of_query"));
  EXPECT_THAT(message({}, [](auto& o) { o.mode = static_cast<NurbsDistanceMode>(2); }), HasSubstr("mode"));
  const auto objects = Objects({sim::NurbsSphere(1)});
  ASSERT_TRUE(objects);
  PALPATE_TEST_ASSIGN(NurbsDistances search, NurbsDistances::Create(context(), {}));
  EXPECT_THAT(std::string(search.Run(queue(), *objects, std::vector<NurbsQuery>{{.object_a = 0, .object_b = 2, .pose_a = {}, .pose_b = {}}})
                              .status()
                              .message()),
              HasSubstr("queries[0]: object 2, there are 1"));
  EXPECT_TRUE(search.Run(queue(), *objects, {})->empty());
}

}  // namespace
}  // namespace palpate::gpu::nurbs_distance_test
