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

#include "sim/nurbs/nurbs_query.h"
#include "sim/nurbs/nurbs_shapes.h"
#include "tests/gpu/collision/nurbs_models.h"
#include "tests/support/device_test.h"

namespace palpate::gpu {
namespace {

using Eigen::Affine3d;
using Eigen::Vector2d;
using Eigen::Vector3d;
using sim::NurbsSurface;
using test::ControlOf;
using test::NetsOf;
using test::PoseOf;
using test::Sheet;
using test::SheetOptions;
using ::testing::HasSubstr;
using Patches = std::vector<NurbsSurface>;

#ifdef PALPATE_NATIVE_KERNELS
constexpr bool kIsNative = true;
#else
constexpr bool kIsNative = false;
#endif

constexpr NurbsVolume kVolumes[] = {NurbsVolume::kTangentBox, NurbsVolume::kPrincipalBox, NurbsVolume::kAlignedBox, NurbsVolume::kSphere,
                                    NurbsVolume::kDop14,      NurbsVolume::kDop18,        NurbsVolume::kDop26};
constexpr NurbsSplit kSplits[] = {NurbsSplit::kLarger, NurbsSplit::kAlternate, NurbsSplit::kBoth, NurbsSplit::kSixteen};

Affine3d Turned(double angle, const Vector3d& axis, const Vector3d& offset_m) {
  return Eigen::Translation3d(offset_m) * Eigen::AngleAxisd(angle, axis.normalized()) * Affine3d::Identity();
}
Affine3d Shift(const Vector3d& by_m) { return Affine3d(Eigen::Translation3d(by_m)); }

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
  EXPECT_GT(meeting_count, kIsNative ? 50U : 1000U);
  const auto objects = Objects(models);
  ASSERT_TRUE(objects);
  const double tolerance_m = 0.03;
  for (const NurbsVolume volume : kVolumes) {
    for (const NurbsSplit split : kSplits) {
      if (volume != NurbsVolume::kTangentBox && split != NurbsSplit::kLarger && (kIsNative || split != NurbsSplit::kSixteen)) continue;
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
      // Found is what is searched for, not everything.
      const bool is_tight = volume <= NurbsVolume::kPrincipalBox && split != NurbsSplit::kAlternate;
      EXPECT_LT(result.hits.size(), (is_tight ? 12 : 200) * meeting_count);
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
        EXPECT_TRUE(std::any_of(result.hits.begin(), result.hits.end(), [&](const NurbsHit& other) {
          return other.query == hit.query && other.a.u == hit.a.u && other.a.v == hit.a.v && other.b.u == hit.b.u && other.b.v == hit.b.v;
        }));
      }
      EXPECT_EQ(got, expected);
    }
  }
}

}  // namespace
}  // namespace palpate::gpu
