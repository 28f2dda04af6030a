// Where a surface meets itself: places that are known are not missed, and neighbours are not taken for contacts.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "gpu/collision/nurbs_queries.h"
#include "sim/nurbs/nurbs_shapes.h"
#include "tests/gpu/collision/nurbs_models.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::nurbs_self_test {
namespace {

using Eigen::Vector2d;
using Eigen::Vector3d;
using sim::NurbsSurface;
using test::kIsNative;
using test::Sheet;
using ::testing::HasSubstr;
using Patches = std::vector<NurbsSurface>;

bool Contains(const NurbsPart& part, const Vector2d& uv) {
  constexpr double kRounding = 1e-12;  // of the known parameters
  return uv.x() >= part.u[0] - kRounding && uv.x() <= part.u[1] + kRounding && uv.y() >= part.v[0] - kRounding &&
         uv.y() <= part.v[1] + kRounding;
}

// Two places of a surface that are one point.
bool IsHit(const NurbsQueryResult& result, uint32_t query, const Vector2d& x, const Vector2d& y) {
  return std::any_of(result.hits.begin(), result.hits.end(), [&](const NurbsHit& hit) {
    return hit.query == query && ((Contains(hit.a, x) && Contains(hit.b, y)) || (Contains(hit.a, y) && Contains(hit.b, x)));
  });
}

// (t^3 - t, t^2) for t in [-1.5, 1.5], which crosses itself at t = -1 and 1, drawn along z.
NurbsSurface Loop() {
  sim::NurbsDescription out{
      .degree_u = 3, .degree_v = 1, .knots_u = {0, 0, 0, 0, 1, 1, 1, 1}, .knots_v = {0, 0, 1, 1}, .control_m = {}, .weights = {}};
  for (int i = 0; i < 4; ++i) {
    std::array<double, 3> t{};
    for (int k = 0; k < 3; ++k) t[static_cast<size_t>(k)] = k < i ? 1.5 : -1.5;
    const double x = t[0] * t[1] * t[2] - (t[0] + t[1] + t[2]) / 3;
    const double y = (t[0] * t[1] + t[0] * t[2] + t[1] * t[2]) / 3;
    for (const double z : {0.0, 1.0}) out.control_m.emplace_back(x, y, z);
  }
  return *NurbsSurface::Create(out);
}

// A spiral of two turns, `gap_m` from turn to turn, drawn along z; cubic with many knots.
NurbsSurface Spiral(double gap_m) {
  constexpr int kPoints = 40;
  sim::NurbsDescription out{.degree_u = 3, .degree_v = 1, .knots_u = {}, .knots_v = {0, 0, 1, 1}, .control_m = {}, .weights = {}};
  out.knots_u.assign(4, 0.0);
  for (int i = 1; i < kPoints - 3; ++i) out.knots_u.push_back(i);
  out.knots_u.insert(out.knots_u.end(), 4, kPoints - 3);
  for (int i = 0; i < kPoints; ++i) {
    const double angle = 4 * M_PI * i / (kPoints - 1);
    const double radius = 0.5 + gap_m * angle / (2 * M_PI);
    for (const double z : {0.0, 0.3}) out.control_m.emplace_back(radius * std::cos(angle), radius * std::sin(angle), z);
  }
  return *NurbsSurface::Create(out);
}

// A surface of random control points in a cube, one of which is moved so that the places x and y become one point.
NurbsSurface Crumpled(int degree_u, int degree_v, int inside, bool is_rational, const Vector2d& x, const Vector2d& y,
                      std::mt19937* random) {
  std::uniform_real_distribution<double> uniform(0, 1);
  const NurbsSurface flat = Sheet({.degree_u = degree_u,
                                   .degree_v = degree_v,
                                   .inside_u = inside,
                                   .inside_v = inside / 2,
                                   .height_m = 0,
                                   .weight_ratio = is_rational ? 5.0 : 1.0},
                                  random);
  sim::NurbsDescription out{.degree_u = degree_u, .degree_v = degree_v, .knots_u = {}, .knots_v = {}, .control_m = {}, .weights = {}};
  out.knots_u.assign(flat.knots(sim::NurbsDirection::kU).begin(), flat.knots(sim::NurbsDirection::kU).end());
  out.knots_v.assign(flat.knots(sim::NurbsDirection::kV).begin(), flat.knots(sim::NurbsDirection::kV).end());
  for (const Eigen::Vector4d& p : flat.control()) {
    out.control_m.emplace_back(uniform(*random), uniform(*random), uniform(*random));
    out.weights.push_back(p.w());
  }
  const NurbsSurface before = *NurbsSurface::Create(out);
  const Vector3d apart = before.Point(x.x(), x.y()) - before.Point(y.x(), y.y());
  // The share of each control point in the difference.
  size_t best = 0;
  double best_share = 0;
  for (size_t i = 0; i < out.control_m.size(); ++i) {
    sim::NurbsDescription moved = out;
    moved.control_m[i].x() += 1;
    const NurbsSurface after = *NurbsSurface::Create(moved);
    const double share = (after.Point(x.x(), x.y()) - after.Point(y.x(), y.y())).x() - apart.x();
    if (std::abs(share) > std::abs(best_share)) {
      best = i;
      best_share = share;
    }
  }
  out.control_m[best] -= apart / best_share;
  return *NurbsSurface::Create(out);
}

class NurbsSelfTest : public test::DeviceTest {
 protected:
  std::optional<NurbsObjects> Objects(const std::vector<Patches>& objects) {
    std::vector<std::vector<NurbsNet>> nets;
    for (const Patches& patches : objects) nets.push_back(sim::NetsOf(patches));
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
  NurbsQueryResult Find(const NurbsObjects& objects, double tolerance_m) {
    std::vector<NurbsQuery> queries;
    for (uint32_t i = 0; i < objects.object_count(); ++i) queries.push_back({.object_a = i, .object_b = i, .pose_a = {}, .pose_b = {}});
    auto result = TryRun(objects, queries, {.is_self = true, .tolerance_m = tolerance_m});
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : NurbsQueryResult{};
  }
};

TEST_F(NurbsSelfTest, ALoopMeetsItselfAlongItsLineAndNowhereElse) {
  const NurbsSurface loop = Loop();
  const NurbsSurface refined = loop.Refined(kIsNative ? 6 : 11, kIsNative ? 2 : 4);
  const double tolerance_m = kIsNative ? 0.3 : 0.05;
  const auto objects = Objects({{loop}, {refined}});
  ASSERT_TRUE(objects);
  const NurbsQueryResult result = Find(*objects, tolerance_m);
  ASSERT_FALSE(result.hits.empty());
  for (uint32_t q = 0; q < 2; ++q) {
    size_t missed = 0;
    for (int i = 0; i <= 50; ++i) missed += IsHit(result, q, {1.0 / 6, i / 50.0}, {5.0 / 6, i / 50.0}) ? 0 : 1;
    EXPECT_EQ(missed, 0U) << q;
  }
  for (const NurbsHit& hit : result.hits) {
    EXPECT_NEAR(std::min(hit.a.mid_u(), hit.b.mid_u()), 1.0 / 6, tolerance_m);
    EXPECT_NEAR(std::max(hit.a.mid_u(), hit.b.mid_u()), 5.0 / 6, tolerance_m);
    EXPECT_NEAR(hit.a.mid_v(), hit.b.mid_v(), 2 * tolerance_m);
  }
}

TEST_F(NurbsSelfTest, SurfacesThatDoNotMeetThemselvesHaveNoHits) {
  std::mt19937 random(1);
  std::vector<Patches> models = {{Spiral(0.05)}};
  for (int trial = 0; trial < (kIsNative ? 1 : 8); ++trial) {
    models.push_back({Sheet({.degree_u = 2 + trial % 3,
                             .degree_v = 3,
                             .inside_u = 2,
                             .inside_v = trial % 4,
                             .height_m = 0.3,
                             .weight_ratio = trial % 2 == 0 ? 1.0 : 3.0},
                            &random)});
  }
  models.push_back({sim::NurbsTorus(2, 0.5)[0]});
  const auto objects = Objects(models);
  ASSERT_TRUE(objects);
  const NurbsQueryResult result = Find(*objects, 1e-3);
  EXPECT_EQ(result.hits.size(), 0U);
  std::printf("%llu tests\n", static_cast<unsigned long long>(result.pair_tests));
}

TEST_F(NurbsSelfTest, NoMeetingOfCrumpledSurfacesIsMissed) {
  std::mt19937 random(2);
  std::uniform_real_distribution<double> uniform(0, 1);
  std::vector<Patches> models;
  std::vector<std::array<Vector2d, 2>> known;
  for (int trial = 0; trial < (kIsNative ? 2 : 60); ++trial) {
    // Some are near each other, where cones decide.
    const Vector2d x(uniform(random), uniform(random));
    Vector2d y(uniform(random), uniform(random));
    if (trial % 3 == 0) y = x + 0.25 * (y - x);
    models.push_back({Crumpled(2 + trial % 2, 2 + trial / 2 % 2, kIsNative ? 0 : trial % 4, trial % 2 == 1, x, y, &random)});
    known.push_back({x, y});
  }
  const auto objects = Objects(models);
  ASSERT_TRUE(objects);
  const NurbsQueryResult result = Find(*objects, kIsNative ? 0.4 : 0.1);
  size_t missed = 0;
  for (uint32_t q = 0; q < known.size(); ++q) missed += IsHit(result, q, known[q][0], known[q][1]) ? 0 : 1;
  EXPECT_EQ(missed, 0U) << "of " << known.size();
  std::printf("%zu hits of %zu surfaces\n", result.hits.size(), known.size());
}

// New control points cost what they always do.
TEST_F(NurbsSelfTest, ADeformedSurfaceIsAsANewOne) {
  std::mt19937 random(3);
  const Vector2d x(0.2, 0.3), y(0.8, 0.6);
  const Patches flat = {Sheet({.degree_u = 3, .degree_v = 3, .inside_u = 2, .inside_v = 1, .height_m = 0}, &random)};
  const Patches folded = {Crumpled(3, 3, 2, false, x, y, &random)};
  auto objects = Objects({flat});
  ASSERT_TRUE(objects);
  const double tolerance_m = kIsNative ? 0.5 : 0.1;
  EXPECT_TRUE(Find(*objects, tolerance_m).hits.empty());
  PALPATE_ASSERT_OK(objects->SetControl(queue(), 0, test::ControlOf(folded)));
  const NurbsQueryResult deformed = Find(*objects, tolerance_m);
  EXPECT_TRUE(IsHit(deformed, 0, x, y));
  const auto fresh = Objects({folded});
  ASSERT_TRUE(fresh);
  EXPECT_EQ(Find(*fresh, tolerance_m).hits.size(), deformed.hits.size());
}

TEST_F(NurbsSelfTest, WrongInputIsRefused) {
  const auto objects = Objects({{Loop()}, sim::NurbsSphere(1)});
  ASSERT_TRUE(objects);
  const auto message = [&](const NurbsQuery& query, const NurbsQueryOptions& options) {
    return std::string(TryRun(*objects, {query}, options).status().message());
  };
  const NurbsQueryOptions options{.is_self = true, .tolerance_m = 0.1};
  EXPECT_THAT(message({.object_a = 0, .object_b = 1, .pose_a = {}, .pose_b = {}}, options), HasSubstr("queries[0]: with is_self"));
  NurbsQuery moved{.object_a = 0, .object_b = 0, .pose_a = {}, .pose_b = {}};
  moved.pose_b.offset_m[1] = 1;
  EXPECT_THAT(message(moved, options), HasSubstr("queries[0]: with is_self"));
  EXPECT_THAT(message({.object_a = 1, .object_b = 1, .pose_a = {}, .pose_b = {}}, options), HasSubstr("object 1 has several surfaces"));
  NurbsQueryOptions first = options;
  first.first_only = true;
  EXPECT_THAT(message({.object_a = 0, .object_b = 0, .pose_a = {}, .pose_b = {}}, first), HasSubstr("NurbsQueryOptions.is_self"));
}

}  // namespace
}  // namespace palpate::gpu::nurbs_self_test
