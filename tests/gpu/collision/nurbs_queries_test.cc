// Queries between NURBS objects: places where the surfaces meet are known from dense sampling in double, and none may be missed.
#include "gpu/collision/nurbs_queries.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include "bench/nurbs_planted_pairs.h"
#include "gpu/collision/nurbs_polish.h"
#include "sim/nurbs/nurbs_query.h"
#include "sim/nurbs/nurbs_shapes.h"
#include "tests/gpu/collision/nurbs_models.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::nurbs_queries_test {
namespace {

using Eigen::Affine3d;
using Eigen::Vector2d;
using Eigen::Vector3d;
using sim::NetsOf;
using sim::NurbsSurface;
using sim::PoseOf;
using test::ControlOf;
using test::kIsNative;
using test::Sheet;
using test::SheetOptions;
using test::Shift;
using test::Turned;
using ::testing::HasSubstr;
using Patches = std::vector<NurbsSurface>;

constexpr NurbsVolume kVolumes[] = {NurbsVolume::kTangentBox, NurbsVolume::kPrincipalBox, NurbsVolume::kAlignedBox, NurbsVolume::kSphere,
                                    NurbsVolume::kDop14,      NurbsVolume::kDop18,        NurbsVolume::kDop26};
constexpr NurbsSplit kSplits[] = {NurbsSplit::kLarger, NurbsSplit::kAlternate, NurbsSplit::kBoth, NurbsSplit::kSixteen};

Patches Moved(const Patches& patches, const Affine3d& map) {
  Patches out;
  for (const NurbsSurface& patch : patches) out.push_back(patch.Transformed(map));
  return out;
}

bool Contains(const NurbsPart& part, const Vector2d& uv) {
  constexpr double kRounding = 1e-12;  // of the known parameters
  return uv.x() >= part.u[0] - kRounding && uv.x() <= part.u[1] + kRounding && uv.y() >= part.v[0] - kRounding &&
         uv.y() <= part.v[1] + kRounding;
}

// A place where two surfaces meet.
struct Meeting {
  uint32_t surface_a = 0;
  Vector2d at_a;
  bool knows_b = false;
  uint32_t surface_b = 0;
  Vector2d at_b = {};
};

// Parameters along grid lines of a surface where `height` of the point changes its sign.
std::vector<Vector2d> SignChanges(const NurbsSurface& surface, int samples, const std::function<double(const Vector3d&)>& height) {
  std::vector<Vector2d> out;
  for (int i = 0; i <= samples; ++i) {
    for (int j = 0; j < samples; ++j) {
      for (const bool along_u : {false, true}) {
        const double fixed = static_cast<double>(i) / samples;
        const auto at = [&](double t) { return along_u ? Vector2d((j + t) / samples, fixed) : Vector2d(fixed, (j + t) / samples); };
        const auto above = [&](double t) { return height(surface.Point(at(t).x(), at(t).y())); };
        double low = 0;
        double high = 1;
        const double at_low = above(low);
        if (!(at_low * above(high) < 0)) continue;
        for (int k = 0; k < 50; ++k) (above(0.5 * (low + high)) * at_low > 0 ? low : high) = 0.5 * (low + high);
        out.push_back(at(low));
      }
    }
  }
  return out;
}

class NurbsQueriesTest : public test::DeviceTest {
 protected:
  std::optional<NurbsObjects> Objects(const std::vector<Patches>& objects) {
    std::vector<std::vector<NurbsNet>> nets;
    for (const Patches& patches : objects) nets.push_back(NetsOf(patches));
    auto out = NurbsObjects::Create(queue(), nets);
    EXPECT_TRUE(out.ok()) << out.status();
    if (!out.ok()) return std::nullopt;
    return *std::move(out);
  }

  absl::StatusOr<NurbsQueryResult> TryRun(const NurbsObjects& objects, const std::vector<NurbsQuery>& queries,
                                          const NurbsQueryOptions& options) {
    auto search = NurbsQueries::Create(context(), options);
    if (!search.ok()) return search.status();
    return search->Run(queue(), objects, queries);
  }
  NurbsQueryResult Run(const NurbsObjects& objects, const std::vector<NurbsQuery>& queries, const NurbsQueryOptions& options) {
    auto result = TryRun(objects, queries, options);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : NurbsQueryResult{};
  }
  NurbsQueryResult Find(const Patches& a, const Patches& b, const NurbsQueryOptions& options, const Affine3d& pose_a = Affine3d::Identity(),
                        const Affine3d& pose_b = Affine3d::Identity()) {
    const auto objects = Objects({a, b});
    if (!objects) return {};
    return Run(*objects, {{.object_a = 0, .object_b = 1, .pose_a = PoseOf(pose_a), .pose_b = PoseOf(pose_b)}}, options);
  }

  // How many of the meetings are in no hit.
  static size_t CountMissed(const NurbsQueryResult& result, uint32_t query, const std::vector<Meeting>& meetings) {
    size_t missed = 0;
    for (const Meeting& meeting : meetings) {
      const bool is_found = std::any_of(result.hits.begin(), result.hits.end(), [&](const NurbsHit& hit) {
        return hit.query == query && hit.a.surface == meeting.surface_a && Contains(hit.a, meeting.at_a) &&
               (!meeting.knows_b || (hit.b.surface == meeting.surface_b && Contains(hit.b, meeting.at_b)));
      });
      missed += is_found ? 0 : 1;
    }
    return missed;
  }
};

// Bezier points of the device against those of the host reference, within the bound that queries allow for.
TEST_F(NurbsQueriesTest, BezierPointsAreWithinTheBound) {
  std::mt19937 random(1);
  const std::vector<Patches> models = {
      {Sheet({.degree_u = 3, .degree_v = 2, .inside_u = 2, .inside_v = 3, .height_m = 0.3, .weight_ratio = 1e6}, &random)},
      {Sheet({.degree_u = 1, .degree_v = 5, .inside_u = 4, .inside_v = 1, .height_m = 0.3}, &random)},
      Moved(sim::NurbsTorus(2, 0.5), Shift({1e5, -3e5, 2e5})),
      {Sheet({.degree_u = 15, .degree_v = 14, .height_m = 0.3}, &random)}};
  for (const Patches& model : models) {
    const auto objects = Objects({model});
    ASSERT_TRUE(objects);
    // The bound is of both the points and the cutting, so that half of it is generous.
    const double bound = objects->relative_error() * objects->radius_m(0);
    std::vector<Float4> points(objects->bezier().count);
    PALPATE_ASSERT_OK(objects->ReadBezierBlocking(queue(), points));
    size_t at = 0;
    double worst = 0;
    for (uint32_t patch = 0; patch < objects->patch_count(0); ++patch) {
      const auto place = objects->patch_place(patch);
      NurbsSurface part = model[place.surface];
      for (const NurbsSurface& bezier : model[place.surface].BezierPatches()) {
        if (bezier.domain(sim::NurbsDirection::kU).first == place.u[0] && bezier.domain(sim::NurbsDirection::kV).first == place.v[0])
          part = bezier;
      }
      for (const Eigen::Vector4d& expected : part.control()) {
        const Float4& p = points.at(at++);
        const auto middle = objects->middle_m(0);
        const Vector3d got(p.x / double{p.w} + middle[0], p.y / double{p.w} + middle[1], p.z / double{p.w} + middle[2]);
        worst = std::max(worst, (got - expected.hnormalized()).norm());
      }
    }
    EXPECT_EQ(at, points.size());
    EXPECT_LT(worst, bound + 1e-15 * Vector3d(objects->middle_m(0)[0], objects->middle_m(0)[1], objects->middle_m(0)[2]).norm());
    EXPECT_GT(worst, 0);
  }
}

// Bumpy sheets of all degrees cross planes; every volume and every rule.
TEST_F(NurbsQueriesTest, NoCrossingOfAPlaneIsMissed) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> uniform(-1, 1);
  const int trials = kIsNative ? 2 : 16;
  std::vector<Patches> models;
  std::vector<NurbsQuery> queries;
  std::vector<std::vector<Meeting>> meetings;
  std::vector<double> levels_m;
  size_t meeting_count = 0;
  for (int trial = 0; trial < trials; ++trial) {
    const NurbsSurface sheet = Sheet({.degree_u = 1 + trial % 4,
                                      .degree_v = 1 + trial / 4 % 4,
                                      .inside_u = trial % 3,
                                      .inside_v = (trial + 1) % 4,
                                      .height_m = 0.2,
                                      .weight_ratio = trial % 2 == 0 ? 4.0 : 1e6},
                                     &random);
    const NurbsSurface plane = Sheet({.degree_u = 1, .degree_v = 1, .height_m = 0}, &random);
    Affine3d grow = Affine3d::Identity();
    grow.linear() *= 3;
    levels_m.push_back(0.1 * uniform(random));
    grow.translation() = Vector3d(-1, -1, levels_m.back());
    const Affine3d both = Turned(2 * uniform(random), {1, uniform(random), 0.3}, 5 * Vector3d::Random());
    models.push_back({sheet});
    models.push_back({plane});
    queries.push_back({.object_a = static_cast<uint32_t>(models.size() - 2),
                       .object_b = static_cast<uint32_t>(models.size() - 1),
                       .pose_a = PoseOf(both),
                       .pose_b = PoseOf(both * grow)});
    meetings.emplace_back();
    for (const Vector2d& uv : SignChanges(sheet, 40, [&](const Vector3d& p) { return p.z() - levels_m.back(); })) {
      const Vector3d on_plane = grow.inverse() * sheet.Point(uv.x(), uv.y());
      meetings.back().push_back({.at_a = uv, .knows_b = true, .at_b = on_plane.head<2>()});
    }
    meeting_count += meetings.back().size();
  }
  EXPECT_GT(meeting_count, kIsNative ? 20U : 1000U);
  const auto objects = Objects(models);
  ASSERT_TRUE(objects);
  const double tolerance_m = 0.03;
  for (const NurbsVolume volume : kVolumes) {
    for (const NurbsSplit split : kSplits) {
      if (volume != NurbsVolume::kTangentBox && split != NurbsSplit::kLarger) continue;
      SCOPED_TRACE(testing::Message() << "volume " << static_cast<int>(volume) << " split " << static_cast<int>(split));
      const NurbsQueryResult result = Run(*objects, queries, {.volume = volume, .split = split, .tolerance_m = tolerance_m});
      size_t missed = 0;
      for (uint32_t q = 0; q < queries.size(); ++q) missed += CountMissed(result, q, meetings[q]);
      EXPECT_EQ(missed, 0U) << "of " << meeting_count;
      double farthest_m = 0;
      for (const NurbsHit& hit : result.hits) {
        EXPECT_LE(hit.size_m, tolerance_m);
        const Vector3d p = models[queries[hit.query].object_a][0].Point(hit.a.mid_u(), hit.a.mid_v());
        farthest_m = std::max(farthest_m, std::abs(p.z() - levels_m[hit.query]));
        // The place in W is that of the parameters.
        const Affine3d pose = [&] {
          Affine3d map;
          const NurbsPose& from = queries[hit.query].pose_a;
          for (int i = 0; i < 3; ++i) {
            for (int k = 0; k < 3; ++k) map.linear()(i, k) = from.linear[static_cast<size_t>(3 * i + k)];
            map.translation()[i] = from.offset_m[static_cast<size_t>(i)];
          }
          return map;
        }();
        const Vector3d at(hit.a.point_m[0], hit.a.point_m[1], hit.a.point_m[2]);
        EXPECT_LT((pose * p - at).norm(), NurbsQueries::SlackMetres(*objects, queries[hit.query]));
        EXPECT_NEAR(hit.distance_m, (Vector3d(hit.b.point_m[0], hit.b.point_m[1], hit.b.point_m[2]) - at).norm(), 1e-5);
      }
      EXPECT_LT(farthest_m, 2 * tolerance_m);
      // Found is what is searched for, not everything; a few sheets may happen to be flat.
      const bool is_tight = volume <= NurbsVolume::kPrincipalBox && split != NurbsSplit::kAlternate;
      if (!kIsNative) {
        EXPECT_LT(result.hits.size(), (is_tight ? 12 : 200) * meeting_count);
      }
      std::printf("volume %d split %d: %zu hits of %zu meetings, %zu missed, %llu tests\n", static_cast<int>(volume),
                  static_cast<int>(split), result.hits.size(), meeting_count, missed, static_cast<unsigned long long>(result.pair_tests));
      // A first hit is there exactly where there are any.
      NurbsQueryOptions first{.volume = volume, .split = split, .first_only = true, .tolerance_m = tolerance_m};
      std::vector<uint32_t> expected;
      for (const NurbsHit& hit : result.hits) {
        if (expected.empty() || expected.back() != hit.query) expected.push_back(hit.query);
      }
      std::vector<uint32_t> got;
      for (const NurbsHit& hit : Run(*objects, queries, first).hits) {
        got.push_back(hit.query);
        // Where two volumes are of one size but for rounding, the two searches may cut another one first.
        const auto meets = [](const NurbsPart& x, const NurbsPart& y) {
          return x.surface == y.surface && x.u[0] <= y.u[1] && y.u[0] <= x.u[1] && x.v[0] <= y.v[1] && y.v[0] <= x.v[1];
        };
        EXPECT_TRUE(std::any_of(result.hits.begin(), result.hits.end(), [&](const NurbsHit& other) {
          return other.query == hit.query && meets(other.a, hit.a) && meets(other.b, hit.b);
        }));
      }
      EXPECT_EQ(got, expected);
    }
  }
}

// The first search of the published rule would miss nothing either, but starve a direction: what follows fails with it (defects D4, D5).
TEST_F(NurbsQueriesTest, BothDirectionsAreCutWhateverDegreesAndKnots) {
  std::mt19937 random(4);
  struct Case {
    int degree_u, degree_v, inside;
  };
  for (const Case& c : {Case{3, 2, 0}, Case{2, 3, 0}, Case{3, 3, 2}, Case{4, 1, 1}}) {
    const Patches sheet = {
        Sheet({.degree_u = c.degree_u, .degree_v = c.degree_v, .inside_u = c.inside, .inside_v = c.inside, .height_m = 0.1}, &random)};
    const NurbsQueryResult result = Find(sheet, Moved(sheet, Shift({0.13, 0.07, 0})), {.max_level = kIsNative ? 12U : 20U});
    ASSERT_FALSE(result.hits.empty());
    for (const NurbsHit& hit : result.hits) {
      for (const NurbsPart* part : {&hit.a, &hit.b}) {
        const double u = part->u[1] - part->u[0];
        const double v = part->v[1] - part->v[0];
        EXPECT_LE(std::max(u, v), 4.1 * std::min(u, v));
        EXPECT_LE(std::max(u, v), kIsNative ? 0.51 : 0.13);
      }
    }
  }
  // Two copies of a sheet, one above the other: parallel all over, and apart. The published rule reports a contact.
  const Patches bumpy = {Sheet({.degree_u = 3, .degree_v = 3, .inside_u = 2, .inside_v = 2, .height_m = 0.2}, &random)};
  EXPECT_TRUE(Find(bumpy, bumpy, {.max_level = 60}, Affine3d::Identity(), Shift({0, 0, 0.05})).hits.empty());
}

// Defects D1 and D2 (wrong mean, centre of the box in its own axes): a placed object would be looked for elsewhere. D3: the parameters of a
// hit are those of its place. D6: the size of what is left is below the tolerance, or told.
TEST_F(NurbsQueriesTest, SpheresMeetOnTheirCircleWhereverTheyAre) {
  const Patches sphere = sim::NurbsSphere(1);
  const double radius_m = std::sqrt(3.0) / 2;
  const double tolerance_m = kIsNative ? 0.1 : 0.02;
  for (const NurbsVolume volume : {NurbsVolume::kTangentBox, NurbsVolume::kPrincipalBox, NurbsVolume::kDop18}) {
    for (const Affine3d& both : {Affine3d::Identity(), Turned(1.1, {1, 1, 3}, {3, -1, 2}), Turned(0.7, {-1, 2, 0.4}, {1e6, -2e6, 3e5})}) {
      if (kIsNative && both.translation().norm() > 100) continue;
      const NurbsQueryResult result = Find(sphere, sphere, {.volume = volume, .tolerance_m = tolerance_m}, both,
                                           both * Shift({1, 0, 0}) * Turned(0.3, {0, 1, 1}, {0, 0, 0}));
      const auto off = [&](const Vector3d& x) { return std::hypot(x.x() - 0.5, x.tail<2>().norm() - radius_m); };
      ASSERT_FALSE(result.hits.empty());
      for (const NurbsHit& hit : result.hits) {
        EXPECT_LE(hit.size_m, tolerance_m);
        const Vector3d at(hit.a.point_m[0], hit.a.point_m[1], hit.a.point_m[2]);
        const Vector3d local = both.inverse() * at;
        EXPECT_LT(off(local), 3 * tolerance_m);
        EXPECT_LT((sphere[hit.a.surface].Point(hit.a.mid_u(), hit.a.mid_v()) - local).norm(), 2e-5);
        EXPECT_LT(hit.distance_m, 2 * tolerance_m);
      }
      // The circle in the parameters of the first sphere: none of it is missed.
      size_t meetings = 0;
      std::vector<Meeting> known;
      for (uint32_t s = 0; s < sphere.size(); ++s) {
        for (const Vector2d& uv : SignChanges(sphere[s], 25, [](const Vector3d& p) { return p.x() - 0.5; }))
          known.push_back({.surface_a = s, .at_a = uv});
      }
      meetings += known.size();
      EXPECT_GT(meetings, 50U);
      EXPECT_EQ(CountMissed(result, 0, known), 0U);
    }
  }
}

// Touching at a point, at poles, along a circle; coincident; tiny and huge; weights of very different size.
TEST_F(NurbsQueriesTest, AdversarialPairsAreNotMissed) {
  const Patches sphere = sim::NurbsSphere(1);
  for (const Vector3d& way : {Vector3d(1, 2, 3).normalized(), Vector3d(0, 0, 1), Vector3d(1, 0, 0)}) {
    for (const double scale : {1.0, 1e-7, 1e7}) {
      Affine3d grow = Affine3d::Identity();
      grow.linear() *= scale;
      const Patches model = Moved(sphere, grow);
      // Exactly touching, as far as doubles say; a hit is near the place. Twice the slack farther away there is none.
      const NurbsQueryResult result = Find(model, model, {.tolerance_m = 0.01 * scale}, Affine3d::Identity(), Shift(2 * scale * way));
      ASSERT_FALSE(result.hits.empty()) << scale;
      const bool is_near = std::any_of(result.hits.begin(), result.hits.end(), [&](const NurbsHit& hit) {
        return (Vector3d(hit.a.point_m[0], hit.a.point_m[1], hit.a.point_m[2]) - scale * way).norm() < 0.02 * scale;
      });
      EXPECT_TRUE(is_near);
      EXPECT_TRUE(Find(model, model, {.first_only = true, .tolerance_m = 1e-4 * scale}, Affine3d::Identity(), Shift(2.001 * scale * way))
                      .hits.empty());
      if (kIsNative) break;
    }
  }
  // Coincident surfaces: the same parameters of both are in a hit.
  std::mt19937 random(6);
  std::uniform_real_distribution<double> uniform(0, 1);
  for (const double weight_ratio : {1.0, 1e8}) {
    const Patches sheet = {Sheet({.degree_u = 2, .degree_v = 3, .inside_u = 1, .height_m = 0.3, .weight_ratio = weight_ratio}, &random)};
    const Affine3d both = Turned(1, {1, 2, 3}, {0.3, -4, 2});
    const NurbsQueryResult result = Find(sheet, sheet, {.max_level = kIsNative ? 10U : 16U}, both, both);
    std::vector<Meeting> known;
    for (int i = 0; i < 500; ++i) {
      const Vector2d uv(uniform(random), uniform(random));
      known.push_back({.at_a = uv, .knows_b = true, .at_b = uv});
    }
    EXPECT_EQ(CountMissed(result, 0, known), 0U);
  }
  // A torus lying on a plane touches it along a circle.
  const Patches torus = sim::NurbsTorus(2, 0.5);
  Affine3d grow = Affine3d::Identity();
  grow.linear() *= 8;
  grow.translation() = Vector3d(-4, -4, -0.5);
  const Patches plane = {Sheet({.degree_u = 1, .degree_v = 1, .height_m = 0}, &random).Transformed(grow)};
  const NurbsQueryResult result = Find(torus, plane, {.tolerance_m = kIsNative ? 0.4 : 0.1});
  for (int i = 0; i < 100; ++i) {
    const double angle = 2 * std::numbers::pi * i / 100;
    const Vector3d at(2 * std::cos(angle), 2 * std::sin(angle), -0.5);
    double nearest = 1e9;
    for (const NurbsHit& hit : result.hits) {
      nearest = std::min(nearest, (Vector3d(hit.a.point_m[0], hit.a.point_m[1], hit.a.point_m[2]) - at).norm());
    }
    EXPECT_LT(nearest, kIsNative ? 0.8 : 0.2);
  }
}

// Flat sheets in one plane: their volumes have no thickness, so that nothing but the allowance for rounding keeps them together.
TEST_F(NurbsQueriesTest, CoplanarSheetsAreNotMissed) {
  std::mt19937 random(12);
  std::uniform_real_distribution<double> uniform(0, 1);
  const Patches a = {Sheet({.degree_u = 3, .degree_v = 2, .height_m = 0}, &random)};
  const Patches b = {Sheet({.degree_u = 2, .degree_v = 4, .height_m = 0}, &random)};
  const auto objects = Objects({a, b});
  ASSERT_TRUE(objects);
  std::vector<NurbsQuery> queries;
  std::vector<std::vector<Meeting>> known;
  size_t count = 0;
  for (int i = 0; i < (kIsNative ? 4 : 30); ++i) {
    const Vector3d axis(uniform(random) - 0.5, uniform(random) - 0.5, uniform(random) - 0.5);
    const Affine3d both = Turned(3 * uniform(random), axis, {uniform(random), 2 * uniform(random), -uniform(random)});
    const Affine3d in_plane = Turned(6 * uniform(random), {0, 0, 1}, {uniform(random), uniform(random), 0});
    queries.push_back({.object_a = 0, .object_b = 1, .pose_a = PoseOf(both), .pose_b = PoseOf(both * in_plane)});
    known.emplace_back();
    for (int k = 0; k < 200; ++k) {
      const Vector2d uv(uniform(random), uniform(random));
      const Vector3d on_b = in_plane.inverse() * Vector3d(uv.x(), uv.y(), 0);
      if (on_b.head<2>().minCoeff() < 0 || on_b.head<2>().maxCoeff() > 1) continue;
      known.back().push_back({.at_a = uv, .knows_b = true, .at_b = on_b.head<2>()});
    }
    count += known.back().size();
  }
  EXPECT_GT(count, kIsNative ? 50U : 1000U);
  for (const NurbsVolume volume : kVolumes) {
    if (kIsNative && volume != NurbsVolume::kTangentBox) continue;
    const NurbsQueryResult result = Run(*objects, queries, {.volume = volume, .max_level = kIsNative ? 6U : 10U});
    size_t missed = 0;
    for (uint32_t q = 0; q < queries.size(); ++q) missed += CountMissed(result, q, known[q]);
    EXPECT_EQ(missed, 0U) << "of " << count << ", volume " << static_cast<int>(volume);
  }
}

// Parallel normals: the sheets have all points in common, or none by a hair. Neither is a crossing that could be certified.
TEST_F(NurbsQueriesTest, FlatSheetsInParallelPlanesAreNoCrossings) {
  std::mt19937 random(13);
  const Patches sheet = {Sheet({.degree_u = 3, .degree_v = 3, .height_m = 0}, &random)};
  const auto objects = Objects({sheet});
  ASSERT_TRUE(objects);
  for (const double gap_m : {0.0, 1e-12, 1e-11, 1e-10}) {
    for (const double angle : {0.3, 1.1, 2.5}) {
      const Affine3d both = Turned(angle, {1, angle, -0.4}, {0.3, -0.2, 0.1});
      const std::vector<NurbsQuery> queries = {{.object_a = 0,
                                                .object_b = 0,
                                                .pose_a = PoseOf(both),
                                                .pose_b = PoseOf(both * Shift({0.1, 0.2, gap_m}) * Turned(angle, {0, 0, 1}, {0, 0, 0}))}};
      const NurbsQueryResult found = Run(*objects, queries, {.max_level = 6});
      ASSERT_FALSE(found.hits.empty());
      PALPATE_TEST_ASSIGN(const NurbsPolishResult polished, PolishNurbsHits(*objects, queries, found.hits));
      for (const NurbsContact& contact : polished.contacts) EXPECT_NE(contact.kind, NurbsContactKind::kCrossing) << gap_m;
      if (gap_m == 0) {
        EXPECT_FALSE(polished.contacts.empty());
      }
    }
  }
}

// Against the reference in double on the host: crossings that it finds, taken to common points, are in hits of the device; and the number
// of hits is of the same order.
TEST_F(NurbsQueriesTest, AgreesWithTheHostReference) {
  std::mt19937 random(8);
  std::uniform_real_distribution<double> uniform(-1, 1);
  const double tolerance_m = kIsNative ? 0.1 : 0.02;
  size_t host_hits = 0;
  size_t device_hits = 0;
  size_t crossings = 0;
  for (int trial = 0; trial < (kIsNative ? 2 : 12); ++trial) {
    const Patches a = {Sheet({.degree_u = 3, .degree_v = 2, .inside_u = 2, .inside_v = 1, .height_m = 0.3, .weight_ratio = 100}, &random)};
    const Patches b = trial % 3 == 2 ? Moved(sim::NurbsSphere(0.4), Shift({0.5, 0.5, 0}))
                                     : Patches{Sheet({.degree_u = 2, .degree_v = 3, .inside_u = trial % 2, .height_m = 0.3}, &random)};
    const Affine3d pose_b = Turned(0.8 * uniform(random), Vector3d::Random(), 0.2 * Vector3d::Random());
    const auto objects = Objects({a, b});
    ASSERT_TRUE(objects);
    const std::vector<NurbsQuery> queries = {{.object_a = 0, .object_b = 1, .pose_a = {}, .pose_b = PoseOf(pose_b)}};
    const NurbsQueryResult device = Run(*objects, queries, {.tolerance_m = tolerance_m});
    const auto host = sim::FindNurbsContacts(a, Moved(b, pose_b), {.tolerance_m = tolerance_m});
    ASSERT_TRUE(host.ok());
    host_hits += host->hits.size();
    device_hits += device.hits.size();
    PALPATE_TEST_ASSIGN(const NurbsPolishResult polished, PolishNurbsHits(*objects, queries, device.hits));
    for (const NurbsContact& contact : polished.contacts) crossings += contact.kind == NurbsContactKind::kCrossing ? 1 : 0;
    const Patches moved = Moved(b, pose_b);
    size_t unexplained = 0;
    for (const sim::NurbsHit& hit : host->hits) {
      // A host hit is explained by a device hit that meets its parts, or is a false one: no point of the parts is common.
      const bool is_met = std::any_of(device.hits.begin(), device.hits.end(), [&](const NurbsHit& other) {
        const auto meets = [](const NurbsPart& part, const Vector2d& middle, const Vector2d& half) {
          return part.u[0] <= middle.x() + half.x() && part.u[1] >= middle.x() - half.x() && part.v[0] <= middle.y() + half.y() &&
                 part.v[1] >= middle.y() - half.y();
        };
        return other.a.surface == hit.patch_a && other.b.surface == hit.patch_b && meets(other.a, hit.middle_a, hit.half_a) &&
               meets(other.b, hit.middle_b, hit.half_b);
      });
      if (is_met) continue;
      // Its parts, searched on in double, must turn out to be apart.
      const auto part_of = [](const NurbsSurface& surface, const Vector2d& middle, const Vector2d& half) {
        NurbsSurface part = surface;
        for (const auto direction : {sim::NurbsDirection::kU, sim::NurbsDirection::kV}) {
          const int k = direction == sim::NurbsDirection::kU ? 0 : 1;
          const auto [first, last] = part.domain(direction);
          if (middle[k] + half[k] < last) part = (*part.Split(direction, middle[k] + half[k]))[0];
          if (middle[k] - half[k] > first) part = (*part.Split(direction, middle[k] - half[k]))[1];
        }
        return part;
      };
      const auto closer = sim::FindNurbsContacts(Patches{part_of(a[hit.patch_a], hit.middle_a, hit.half_a)},
                                                 Patches{part_of(moved[hit.patch_b], hit.middle_b, hit.half_b)}, {.tolerance_m = 1e-6});
      ASSERT_TRUE(closer.ok());
      unexplained += closer->hits.empty() ? 0 : 1;
    }
    EXPECT_EQ(unexplained, 0U);
  }
  std::printf("host %zu hits, device %zu, of these %zu certified crossings\n", host_hits, device_hits, crossings);
  EXPECT_GT(host_hits, 20U);
  EXPECT_LT(device_hits, 3 * host_hits + 100);
  EXPECT_GT(crossings, device_hits / 10);
}

TEST_F(NurbsQueriesTest, PolishedHitsAreCommonPointsOrProvenApart) {
  const Patches sphere = sim::NurbsSphere(1);
  const auto objects = Objects({sphere});
  ASSERT_TRUE(objects);
  const Affine3d both = Turned(0.7, {-1, 2, 0.4}, {10, -20, 5});
  const auto query = [&](double gap_m) {
    return std::vector<NurbsQuery>{{.object_a = 0, .object_b = 0, .pose_a = PoseOf(both), .pose_b = PoseOf(both * Shift({gap_m, 0, 0}))}};
  };
  // Crossing: a circle.
  {
    const auto queries = query(1);
    const NurbsQueryResult found = Run(*objects, queries, {.tolerance_m = kIsNative ? 0.2 : 0.05});
    PALPATE_TEST_ASSIGN(const NurbsPolishResult polished, PolishNurbsHits(*objects, queries, found.hits));
    EXPECT_EQ(polished.contacts.size() + polished.dropped, found.hits.size());
    size_t crossings = 0;
    for (const NurbsContact& contact : polished.contacts) {
      if (contact.kind != NurbsContactKind::kCrossing) continue;
      ++crossings;
      EXPECT_LE(contact.distance_m, 4e-10);
      EXPECT_LE(contact.radius, 1e-6);
      const Vector3d local = both.inverse() * Vector3d(contact.point_m[0], contact.point_m[1], contact.point_m[2]);
      EXPECT_NEAR(local.x(), 0.5, 1e-9);
      EXPECT_NEAR(local.norm(), 1, 1e-9);
      EXPECT_LT((sphere[contact.surface_a].Point(contact.uv_a[0], contact.uv_a[1]) - local).norm(), 1e-9);
      // Outwards, from the two centres.
      const Vector3d of_a(contact.normal_a[0], contact.normal_a[1], contact.normal_a[2]);
      const Vector3d of_b(contact.normal_b[0], contact.normal_b[1], contact.normal_b[2]);
      EXPECT_LT((of_a - both.linear() * local).norm(), 1e-7);
      EXPECT_LT((of_b - both.linear() * (local - Vector3d(1, 0, 0))).norm(), 1e-7);
    }
    EXPECT_GT(crossings, found.hits.size() / 4);
    if (!kIsNative) {
      EXPECT_GT(polished.dropped, 0U);
    }
    size_t unresolved = 0;
    for (const NurbsContact& contact : polished.contacts) unresolved += contact.kind == NurbsContactKind::kUnresolved ? 1 : 0;
    EXPECT_LT(unresolved, found.hits.size() / 20);
    std::printf("%zu hits: %zu crossings, %zu unresolved, %llu dropped\n", found.hits.size(), crossings, unresolved,
                static_cast<unsigned long long>(polished.dropped));
  }
  // Nearly touching: hits at this tolerance, all proven to be none.
  {
    auto queries = query(0);  // inside patches: at their corners boxes are tight
    queries[0].pose_b = PoseOf(both * Shift(2.0002 * Vector3d(1, 2, 3).normalized()));
    const NurbsQueryResult found = Run(*objects, queries, {.tolerance_m = 0.1});
    EXPECT_FALSE(found.hits.empty());
    PALPATE_TEST_ASSIGN(const NurbsPolishResult polished, PolishNurbsHits(*objects, queries, found.hits));
    for (const NurbsContact& contact : polished.contacts) {
      EXPECT_EQ(contact.kind, NurbsContactKind::kUnresolved);
      EXPECT_GE(contact.distance_m, 0.0002 - 1e-9);
    }
    EXPECT_GT(polished.dropped, 0U);
  }
  // Touching: a common point, no certificate, and it is not dropped.
  {
    const auto queries = query(2);
    const NurbsQueryResult found = Run(*objects, queries, {.tolerance_m = 0.05});
    PALPATE_TEST_ASSIGN(const NurbsPolishResult polished, PolishNurbsHits(*objects, queries, found.hits));
    size_t tangential = 0;
    for (const NurbsContact& contact : polished.contacts) {
      EXPECT_NE(contact.kind, NurbsContactKind::kCrossing);
      if (contact.kind != NurbsContactKind::kTangential) continue;
      ++tangential;
      const Vector3d local = both.inverse() * Vector3d(contact.point_m[0], contact.point_m[1], contact.point_m[2]);
      EXPECT_LT((local - Vector3d(1, 0, 0)).norm(), 1e-4);
    }
    EXPECT_GT(tangential, 0U);
  }
  PALPATE_TEST_ASSIGN(const NurbsQueryResult some, TryRun(*objects, query(1), {.tolerance_m = 0.5}));
  std::vector<NurbsHit> wrong = some.hits;
  ASSERT_FALSE(wrong.empty());
  wrong[0].query = 7;
  EXPECT_THAT(std::string(PolishNurbsHits(*objects, query(1), wrong).status().message()), HasSubstr("hits[0].query: 7"));
  wrong[0].query = 0;
  wrong[0].b.patch = 1000;
  EXPECT_THAT(std::string(PolishNurbsHits(*objects, query(1), wrong).status().message()), HasSubstr("hits[0]: patch 1000"));
}

// Pairs that are known to meet at a place, half of them tangentially. `./run bench nurbs --filter pairs` does ten million.
TEST_F(NurbsQueriesTest, NoPlantedContactOfRandomPairsIsMissed) {
  bench::PlantedPairs source(kIsNative ? 4 : 64, 11);
  auto objects = NurbsObjects::Create(queue(), source.Nets());
  ASSERT_TRUE(objects.ok()) << objects.status();
  std::vector<bench::PlantedPair> pairs;
  std::vector<NurbsQuery> queries;
  size_t tangential = 0;
  for (int i = 0; i < (kIsNative ? 10 : 5000); ++i) {
    pairs.push_back(source.Next());
    queries.push_back(pairs.back().query);
    tangential += pairs.back().is_tangential ? 1 : 0;
  }
  EXPECT_GT(tangential, pairs.size() / 3);
  const NurbsQueryResult result = Run(*objects, queries, {.max_level = kIsNative ? 6U : 10U});
  EXPECT_EQ(bench::PlantedPairs::CountMissed(pairs, result.hits), 0U) << "of " << pairs.size();
  // The check is not idle: with each fifth hit left out some are missed.
  std::vector<NurbsHit> some;
  for (size_t i = 0; i < result.hits.size(); ++i) {
    if (i % 5 != 0) some.push_back(result.hits[i]);
  }
  EXPECT_GT(bench::PlantedPairs::CountMissed(pairs, some), 0U);
  EXPECT_LT(result.hits.size(), 200 * pairs.size());
  std::printf("%zu hits of %zu pairs\n", result.hits.size(), pairs.size());
}

// Many queries of several objects at a time: each has the hits it has alone, to the bit, also in parts and in another order; twice the
// same.
TEST_F(NurbsQueriesTest, ManyQueriesGiveWhatSingleOnesGive) {
  std::mt19937 random(9);
  const std::vector<Patches> models = {{Sheet({.degree_u = 3, .degree_v = 3, .inside_u = 3, .inside_v = 2}, &random)},
                                       sim::NurbsSphere(0.4),
                                       {Sheet({.degree_u = 2, .degree_v = 2}, &random)}};
  const auto objects = Objects(models);
  ASSERT_TRUE(objects);
  std::vector<NurbsQuery> queries;
  for (int i = 0; i < (kIsNative ? 6 : 40); ++i) {
    queries.push_back({.object_a = static_cast<uint32_t>(i % 3),
                       .object_b = static_cast<uint32_t>((i + 1 + i / 3) % 3),
                       .pose_a = PoseOf(Turned(i, Vector3d::Random(), 0.5 * Vector3d::Random())),
                       .pose_b = PoseOf(Turned(2 * i, Vector3d::Random(), 0.5 * Vector3d::Random()))});
  }
  const NurbsQueryOptions options = {.tolerance_m = kIsNative ? 0.2 : 0.05};
  const auto same = [](const NurbsHit& x, const NurbsHit& y) {
    return x.a.patch == y.a.patch && x.b.patch == y.b.patch && x.a.u == y.a.u && x.a.v == y.a.v && x.b.u == y.b.u && x.b.v == y.b.v &&
           x.a.point_m == y.a.point_m && x.b.point_m == y.b.point_m && x.size_m == y.size_m && x.distance_m == y.distance_m;
  };
  const auto all_same = [&](std::span<const NurbsHit> x, std::span<const NurbsHit> y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                      [&](const NurbsHit& i, const NurbsHit& j) { return i.query == j.query && same(i, j); });
  };
  const NurbsQueryResult all = Run(*objects, queries, options);
  ASSERT_FALSE(all.hits.empty());
  EXPECT_TRUE(all_same(all.hits, Run(*objects, queries, options).hits));
  // Bounded memory: the same in halves, and an error where a query alone is too much.
  NurbsQueryOptions narrow = options;
  narrow.max_pairs = kIsNative ? 60 : 300;
  const auto in_parts = TryRun(*objects, queries, narrow);
  if (in_parts.ok()) {
    EXPECT_TRUE(all_same(all.hits, in_parts->hits));
  }
  EXPECT_TRUE(kIsNative || in_parts.ok()) << in_parts.status();
  EXPECT_GE(all.peak_bytes, all.hits.size() * sizeof(NurbsPair));
  if (!kIsNative) {
    EXPECT_LT(in_parts->peak_bytes, all.peak_bytes);
    // In depth a query needs little, however deep it goes.
    const NurbsQueryResult first = Run(*objects, queries, {.first_only = true, .max_level = 55});
    EXPECT_GE(first.peak_bytes, 55 * sizeof(NurbsPair));
    EXPECT_LT(first.peak_bytes, 100'000U);
  }
  narrow.max_pairs = 2;
  EXPECT_THAT(std::string(TryRun(*objects, queries, narrow).status().message()), HasSubstr("more than max_pairs = 2 pairs"));
  narrow = options;
  narrow.max_hits = static_cast<uint32_t>(all.hits.size()) - 1;
  EXPECT_THAT(std::string(TryRun(*objects, queries, narrow).status().message()), HasSubstr("hits"));
  narrow.max_hits = static_cast<uint32_t>(all.hits.size());
  EXPECT_TRUE(TryRun(*objects, queries, narrow).ok());
  auto reversed = queries;
  std::reverse(reversed.begin(), reversed.end());
  const NurbsQueryResult backwards = Run(*objects, reversed, options);
  for (uint32_t q = 0; q < queries.size(); q += kIsNative ? 3 : 7) {
    const NurbsQueryResult alone = Run(*objects, {queries[q]}, options);
    std::vector<NurbsHit> own, own_backwards;
    for (NurbsHit hit : all.hits) {
      if (hit.query == q) own.push_back(hit);
    }
    for (NurbsHit hit : backwards.hits) {
      if (hit.query == queries.size() - 1 - q) own_backwards.push_back(hit);
    }
    EXPECT_TRUE(std::equal(own.begin(), own.end(), alone.hits.begin(), alone.hits.end(), same)) << q;
    EXPECT_TRUE(std::equal(own.begin(), own.end(), own_backwards.begin(), own_backwards.end(), same)) << q;
  }
}

// Deforming costs an upload: the same as objects made anew. Poses: the same as moved control points, affine ones too.
TEST_F(NurbsQueriesTest, DeformedAndPlacedObjectsAreAsNewOnes) {
  std::mt19937 random(10);
  // Degrees as those of NoCrossingOfAPlaneIsMissed have one program for both.
  const SheetOptions shape{.degree_u = 4, .degree_v = 2, .inside_u = 2, .inside_v = 3, .height_m = 0.2, .weight_ratio = 4};
  const Patches before = {Sheet(shape, &random)};
  const Patches after = {Sheet(shape, &random)};
  const Patches sphere = sim::NurbsSphere(0.4);
  auto objects = Objects({before, sphere});
  ASSERT_TRUE(objects);
  const std::vector<NurbsQuery> queries = {{.object_a = 0, .object_b = 1, .pose_a = {}, .pose_b = PoseOf(Shift({0.5, 0.5, 0}))}};
  const NurbsQueryOptions options = {.tolerance_m = kIsNative ? 0.2 : 0.05};
  const NurbsQueryResult of_before = Run(*objects, queries, options);
  PALPATE_ASSERT_OK(objects->SetControl(queue(), 0, ControlOf(after)));
  const NurbsQueryResult deformed = Run(*objects, queries, options);
  const auto fresh = Objects({after, sphere});
  ASSERT_TRUE(fresh);
  const NurbsQueryResult expected = Run(*fresh, queries, options);
  ASSERT_FALSE(expected.hits.empty());
  ASSERT_EQ(deformed.hits.size(), expected.hits.size());
  for (size_t i = 0; i < expected.hits.size(); ++i) {
    EXPECT_EQ(deformed.hits[i].a.u, expected.hits[i].a.u);
    EXPECT_EQ(deformed.hits[i].a.point_m, expected.hits[i].a.point_m);
    EXPECT_EQ(deformed.hits[i].size_m, expected.hits[i].size_m);
  }
  EXPECT_NE(of_before.hits.size(), expected.hits.size());

  Affine3d skew = Turned(0.4, {1, 0, 2}, {0.1, 0.2, -0.1});
  skew.linear() = skew.linear() * Vector3d(2, 0.5, 1.3).asDiagonal();
  skew.linear()(0, 1) += 0.4;
  const Affine3d other = Turned(0.3, {0, 1, 0.5}, {0.9, 0.3, 0.1});
  for (const NurbsVolume volume : kVolumes) {
    if (kIsNative && volume != NurbsVolume::kTangentBox) continue;
    const NurbsQueryResult placed = Find(after, sphere, {.volume = volume, .tolerance_m = 0.05}, skew, other);
    const Patches moved = Moved(after, skew);
    std::vector<Meeting> known;
    for (const Vector2d& uv : SignChanges(moved[0], 30, [&](const Vector3d& p) { return (other.inverse() * p).norm() - 0.4; })) {
      known.push_back({.at_a = uv});
    }
    EXPECT_GT(known.size(), 20U);
    EXPECT_EQ(CountMissed(placed, 0, known), 0U) << static_cast<int>(volume);
  }
}

TEST_F(NurbsQueriesTest, WrongInputIsRefused) {
  std::mt19937 random(11);
  const Patches sheet = {Sheet({.degree_u = 2, .degree_v = 2, .inside_u = 1}, &random)};
  const auto refused = [&](const std::function<void(NurbsNet&, std::vector<double>&, std::vector<double>&)>& change) {
    NurbsNet net = NetsOf(sheet)[0];
    std::vector<double> knots(net.knots_u.begin(), net.knots_u.end());
    std::vector<double> control(net.control.begin(), net.control.end());
    net.knots_u = knots;
    net.control = control;
    change(net, knots, control);
    net.knots_u = knots;
    net.control = control;
    const std::vector<std::vector<NurbsNet>> objects = {{net}};
    return std::string(NurbsObjects::Create(queue(), objects).status().message());
  };
  using Numbers = std::vector<double>;
  EXPECT_THAT(refused([](NurbsNet& net, Numbers&, Numbers&) { net.degree_u = 16; }),
              HasSubstr("objects[0].surfaces[0].knots_u: degree 16"));
  EXPECT_THAT(refused([](NurbsNet& net, Numbers&, Numbers&) { net.degree_v = 0; }), HasSubstr("knots_v: degree 0"));
  EXPECT_THAT(refused([](NurbsNet&, Numbers& knots, Numbers&) { knots[3] = -1; }), HasSubstr("knots_u[3]: -1 is less"));
  EXPECT_THAT(refused([](NurbsNet&, Numbers& knots, Numbers&) { knots[0] = -1; }), HasSubstr("is not clamped"));
  EXPECT_THAT(refused([](NurbsNet&, Numbers& knots, Numbers&) { knots[3] = NAN; }), HasSubstr("knots_u[3]: is not finite"));
  EXPECT_THAT(refused([](NurbsNet&, Numbers&, Numbers& control) { control.pop_back(); }), HasSubstr(".control: 47 numbers"));
  // D9: weights that are not positive break the hull.
  EXPECT_THAT(refused([](NurbsNet&, Numbers&, Numbers& control) { control[7] = 0; }), HasSubstr("objects[0].control[1]: weight 0"));
  EXPECT_THAT(refused([](NurbsNet&, Numbers&, Numbers& control) { control[7] = -1; }), HasSubstr("weight -1"));
  EXPECT_THAT(
      refused([](NurbsNet&, Numbers&, Numbers& control) { std::for_each(&control[4], &control[8], [](double& x) { x *= 1e-20; }); }),
      HasSubstr("the ratio is at most"));
  EXPECT_THAT(refused([](NurbsNet&, Numbers&, Numbers& control) { control[8] = NAN; }), HasSubstr("control[2]: is not finite"));
  const std::vector<std::vector<NurbsNet>> none = {{}};
  EXPECT_THAT(std::string(NurbsObjects::Create(queue(), none).status().message()), HasSubstr("objects[0]: has no surfaces"));

  auto objects = Objects({sheet});
  ASSERT_TRUE(objects);
  EXPECT_THAT(std::string(objects->SetControl(queue(), 1, {}).message()), HasSubstr("objects[1]: there are 1"));
  EXPECT_THAT(std::string(objects->SetControl(queue(), 0, {}).message()), HasSubstr("objects[0]: 0 control points, it has 12"));
  const auto message = [&](const NurbsQuery& query) {
    return std::string(TryRun(*objects, {query}, {.tolerance_m = 0.1}).status().message());
  };
  EXPECT_THAT(message({.object_a = 0, .object_b = 3, .pose_a = {}, .pose_b = {}}), HasSubstr("queries[0]: object 3, there are 1"));
  NurbsQuery bad{.object_a = 0, .object_b = 0, .pose_a = {}, .pose_b = {}};
  bad.pose_b.linear[4] = NAN;
  EXPECT_THAT(message(bad), HasSubstr("queries[0].pose_b.linear: nan"));
  bad.pose_b = {};
  bad.pose_a.offset_m[1] = 1e13;
  EXPECT_THAT(message(bad), HasSubstr("queries[0].pose_a.offset_m: 1e+13"));
  for (const NurbsQueryOptions& options :
       {NurbsQueryOptions{.volume = static_cast<NurbsVolume>(7)}, NurbsQueryOptions{.split = static_cast<NurbsSplit>(4)},
        NurbsQueryOptions{.tolerance_m = -1}, NurbsQueryOptions{.tolerance_m = NAN}, NurbsQueryOptions{.max_level = 201},
        NurbsQueryOptions{.max_pairs = 0}, NurbsQueryOptions{.max_hits = 0}}) {
    EXPECT_EQ(NurbsQueries::Create(context(), options).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(Run(*objects, {}, {.tolerance_m = 1}).hits.empty());
}

}  // namespace
}  // namespace palpate::gpu::nurbs_queries_test
