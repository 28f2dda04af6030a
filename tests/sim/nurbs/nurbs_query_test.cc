#include "sim/nurbs/nurbs_query.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <Eigen/Geometry>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "sim/nurbs/nurbs_shapes.h"

namespace palpate::sim::nurbs_query_test {
namespace {

using Eigen::Vector2d;
using Eigen::Vector3d;
using ::testing::HasSubstr;

std::vector<NurbsSurface> Moved(const std::vector<NurbsSurface>& patches, const Eigen::Affine3d& map) {
  std::vector<NurbsSurface> out;
  for (const NurbsSurface& patch : patches) out.push_back(patch.Transformed(map));
  return out;
}
std::vector<NurbsSurface> Shifted(const std::vector<NurbsSurface>& patches, const Vector3d& by_m) {
  return Moved(patches, Eigen::Affine3d(Eigen::Translation3d(by_m)));
}

NurbsQueryResult Find(const std::vector<NurbsSurface>& a, const std::vector<NurbsSurface>& b, NurbsQueryOptions options) {
  auto result = FindNurbsContacts(a, b, options);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : NurbsQueryResult{};
}

// A sheet over [0, 1]^2 with bumps; knots inside at thirds, which halving never meets.
NurbsSurface Sheet(int degree_u, int degree_v, int inside, double height, std::mt19937* random) {
  std::uniform_real_distribution<double> uniform(-1, 1);
  NurbsDescription out{.degree_u = degree_u, .degree_v = degree_v, .knots_u = {}, .knots_v = {}, .control_m = {}, .weights = {}};
  const auto knots = [&](int degree) {
    std::vector<double> k(static_cast<size_t>(degree) + 1, 0.0);
    for (int i = 1; i <= inside; ++i) k.push_back(static_cast<double>(i) / (inside + 1));
    k.insert(k.end(), static_cast<size_t>(degree) + 1, 1.0);
    return k;
  };
  out.knots_u = knots(degree_u);
  out.knots_v = knots(degree_v);
  const int rows = degree_u + inside;
  const int columns = degree_v + inside;
  for (int i = 0; i <= rows; ++i) {
    for (int j = 0; j <= columns; ++j) {
      out.control_m.emplace_back(static_cast<double>(i) / rows, static_cast<double>(j) / columns, height * uniform(*random));
      out.weights.push_back(1 + 0.5 * uniform(*random));
    }
  }
  return *NurbsSurface::Create(out);
}

// Whether the intervals of a hit contain the parameters, of A.
bool ContainsOfA(const NurbsHit& hit, const Vector2d& uv) {
  return ((uv - hit.middle_a).cwiseAbs().array() <= hit.half_a.array() + 1e-12).all();
}

TEST(NurbsQueryTest, BoxesHoldTheirPointsAlsoWithoutExtent) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 50; ++trial) {
    NurbsSurface sheet = Sheet(3, 2, 2, 0.3, &random);
    Eigen::Affine3d map = Eigen::Affine3d::Identity();
    map.linear() = Eigen::Matrix3d::Random();
    map.translation() = 10 * Vector3d::Random();
    // Flat, a line, a point.
    const int flat = trial % 5;
    if (flat >= 1 && flat <= 3) map.linear() = map.linear() * Vector3d(flat < 3 ? 1 : 0, flat < 2 ? 1 : 0, 0).asDiagonal();
    sheet = sheet.Transformed(map);
    const TurnedBox box = TurnedBox::Around(sheet);
    EXPECT_LT((box.axes.transpose() * box.axes - Eigen::Matrix3d::Identity()).norm(), 1e-13);
    for (int i = 0; i < 200; ++i) {
      const Vector3d x = sheet.Point(0.5 + 0.5 * std::sin(3.0 * i), 0.5 + 0.5 * std::cos(7.0 * i));
      ASSERT_TRUE(((box.axes.transpose() * (x - box.center_m)).cwiseAbs().array() <= box.half_m.array() + 1e-15).all());
    }
    if (flat == 3) {
      EXPECT_LT(box.diagonal_m(), 1e-11);
    }
  }
}

// A separating direction is sought among many; boxes of which a point is in both overlap.
TEST(NurbsQueryTest, OverlapAgreesWithBruteForce) {
  std::mt19937 random(2);
  std::uniform_real_distribution<double> uniform(-1, 1);
  const auto vector = [&] { return Vector3d(uniform(random), uniform(random), uniform(random)); };
  const auto height = [](const TurnedBox& box, const Vector3d& n) { return (box.axes.transpose() * n).cwiseAbs().dot(box.half_m); };
  int apart = 0;
  int by_edges = 0;
  int together = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    TurnedBox boxes[2];
    for (TurnedBox& box : boxes) {
      box.center_m = 1.2 * vector();
      box.half_m = (trial % 4 == 0 ? Vector3d(0.8, 0.8, 0) : vector()).cwiseAbs();
      box.axes = Eigen::AngleAxisd(3 * uniform(random), vector().normalized()).toRotationMatrix();
    }
    const bool overlaps = DoOverlap(boxes[0], boxes[1]);
    EXPECT_EQ(overlaps, DoOverlap(boxes[1], boxes[0]));
    // The nearest points of two convex bodies, by projecting to and fro.
    Vector3d at = boxes[0].center_m;
    Vector3d other = at;
    for (int i = 0; i < 3000; ++i) {
      const auto project = [](const TurnedBox& box, const Vector3d& x) {
        const Vector3d local = box.axes.transpose() * (x - box.center_m);
        return Vector3d(box.center_m + box.axes * local.cwiseMax(-box.half_m).cwiseMin(box.half_m));
      };
      other = project(boxes[1], at);
      at = project(boxes[0], other);
    }
    const double distance = (at - other).norm();
    if (distance > 1e-3) {
      ++apart;
      EXPECT_FALSE(overlaps) << trial << " " << distance;
      bool by_face = false;
      for (int i = 0; i < 3; ++i) {
        for (const TurnedBox& box : boxes) {
          const Vector3d n = box.axes.col(i);
          by_face |= std::abs(n.dot(boxes[1].center_m - boxes[0].center_m)) > height(boxes[0], n) + height(boxes[1], n);
        }
      }
      by_edges += by_face ? 0 : 1;
    } else if (distance < 1e-9) {
      ++together;
      EXPECT_TRUE(overlaps) << trial;
    }
  }
  EXPECT_GT(apart, 500);
  EXPECT_GT(by_edges, 10);
  EXPECT_GT(together, 500);
  TurnedBox unit{Vector3d::Zero(), Vector3d::Ones(), Eigen::Matrix3d::Identity()};
  TurnedBox beside = unit;
  beside.center_m = {2, 0.3, 0};
  EXPECT_TRUE(DoOverlap(unit, beside)) << "touching";
  beside.center_m.x() = 2 + 1e-9;
  EXPECT_FALSE(DoOverlap(unit, beside));
}

TEST(NurbsQueryTest, SpheresMeetOnTheirCircle) {
  const std::vector<NurbsSurface> a = NurbsSphere(1);
  const std::vector<NurbsSurface> b = Shifted(a, {1, 0, 0});
  constexpr double kTolerance = 0.01;
  const NurbsQueryResult result = Find(a, b, {.tolerance_m = kTolerance});
  const double radius = std::sqrt(3.0) / 2;
  const auto off = [&](const Vector3d& x) { return std::hypot(x.x() - 0.5, x.tail<2>().norm() - radius); };
  for (const NurbsHit& hit : result.hits) {
    EXPECT_LE(hit.size_m, kTolerance);
    EXPECT_LT(off(hit.point_m), 3 * kTolerance);
    const Vector3d on_a = a[hit.patch_a].Point(hit.middle_a.x(), hit.middle_a.y());
    const Vector3d on_b = b[hit.patch_b].Point(hit.middle_b.x(), hit.middle_b.y());
    EXPECT_LT((on_a - on_b).norm(), 2 * kTolerance);
  }
  for (int i = 0; i < 1000; ++i) {
    const double angle = 2 * std::numbers::pi * i / 1000;
    const Vector3d x(0.5, radius * std::cos(angle), radius * std::sin(angle));
    double nearest = 1;
    for (const NurbsHit& hit : result.hits) nearest = std::min(nearest, (hit.point_m - x).norm());
    EXPECT_LE(nearest, kTolerance) << angle;
  }
  EXPECT_EQ(Find(a, b, {.tolerance_m = kTolerance, .first_only = true}).hits.size(), 1U);
  EXPECT_LT(Find(a, b, {.tolerance_m = kTolerance, .first_only = true}).box_tests, result.box_tests / 10);
  // The same where both are carried along.
  const Eigen::Affine3d map =
      Eigen::Translation3d(3, -1, 2) * Eigen::AngleAxisd(1.1, Vector3d(1, 1, 3).normalized()) * Eigen::Affine3d::Identity();
  for (const NurbsHit& hit : Find(Moved(a, map), Moved(b, map), {.tolerance_m = kTolerance}).hits) {
    EXPECT_LT(off(map.inverse() * hit.point_m), 3 * kTolerance);
  }
}

TEST(NurbsQueryTest, SpheresThatAllButTouch) {
  const std::vector<NurbsSurface> a = NurbsSphere(1);
  const Vector3d way = Vector3d(1, 2, 3).normalized();
  EXPECT_TRUE(Find(a, Shifted(a, 2.001 * way), {.tolerance_m = 2e-4}).hits.empty());
  const NurbsQueryResult result = Find(a, Shifted(a, (2 - 1e-9) * way), {.tolerance_m = 2e-4});
  ASSERT_FALSE(result.hits.empty());
  double nearest = 1;
  for (const NurbsHit& hit : result.hits) nearest = std::min(nearest, (hit.point_m - way).norm());
  EXPECT_LT(nearest, 2e-4);
}

// Where a bumpy sheet passes through a plane is known by its heights: no crossing between two samples may be missed.
TEST(NurbsQueryTest, NoCrossingOfAPlaneIsMissed) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> uniform(-1, 1);
  size_t crossings = 0;
  size_t hits = 0;
  int planes_not_crossed = 0;
  for (int trial = 0; trial < 60; ++trial) {
    const NurbsSurface sheet = Sheet(1 + trial % 4, 1 + trial / 4 % 4, trial % 5, 0.2, &random);
    NurbsSurface plane = Sheet(1, 1, 0, 0, &random);
    Eigen::Affine3d grow = Eigen::Affine3d::Identity();
    grow.linear() *= 3;
    grow.translation() = Vector3d(-1, -1, 0.2 * uniform(random));
    plane = plane.Transformed(grow);
    const double level_m = grow.translation().z();
    const NurbsQueryResult result = Find({sheet}, {plane}, {.tolerance_m = 0.02});
    hits += result.hits.size();
    constexpr int kSamples = 60;
    size_t own = 0;
    for (int i = 0; i <= kSamples; ++i) {
      for (int j = 0; j < kSamples; ++j) {
        for (const bool along_u : {false, true}) {
          const auto at = [&](double t) {
            return along_u ? Vector2d((j + t) / kSamples, static_cast<double>(i) / kSamples)
                           : Vector2d(static_cast<double>(i) / kSamples, (j + t) / kSamples);
          };
          const auto above = [&](double t) { return sheet.Point(at(t).x(), at(t).y()).z() - level_m; };
          double low = 0;
          double high = 1;
          if (above(low) * above(high) >= 0) continue;
          for (int k = 0; k < 50; ++k) (above(0.5 * (low + high)) * above(low) > 0 ? low : high) = 0.5 * (low + high);
          ++own;
          EXPECT_TRUE(std::any_of(result.hits.begin(), result.hits.end(), [&](const NurbsHit& hit) { return ContainsOfA(hit, at(low)); }))
              << trial << ": " << at(low).transpose();
        }
      }
    }
    crossings += own;
    for (const NurbsHit& hit : result.hits) {
      EXPECT_LT(std::abs(sheet.Point(hit.middle_a.x(), hit.middle_a.y()).z() - level_m), 0.04);
    }
    planes_not_crossed += own == 0 ? 1 : 0;
  }
  std::printf("%zu crossings, %zu hits, %d planes that were not crossed\n", crossings, hits, planes_not_crossed);
  EXPECT_GT(crossings, 1000U);
}

// By the number of knots, as published, unequal degrees and knots off the middle would starve a direction.
TEST(NurbsQueryTest, BothDirectionsAreCutWhateverDegreesAndKnots) {
  std::mt19937 random(4);
  for (const auto& [degree_u, degree_v, inside] : {std::tuple(3, 2, 0), {2, 3, 0}, {3, 3, 2}, {4, 1, 1}}) {
    const NurbsSurface sheet = Sheet(degree_u, degree_v, inside, 0.2, &random);
    const NurbsQueryResult result = Find({sheet}, Shifted({sheet}, {0.13, 0.07, 0}), {.tolerance_m = 1e-9, .max_level = 24});
    ASSERT_FALSE(result.hits.empty());
    for (const NurbsHit& hit : result.hits) {
      EXPECT_LE(std::max(hit.half_a.x(), hit.half_a.y()), 2 * std::min(hit.half_a.x(), hit.half_a.y()));
      EXPECT_LE(std::max(hit.half_b.x(), hit.half_b.y()), 2 * std::min(hit.half_b.x(), hit.half_b.y()));
    }
  }
  // Two copies of a sheet, one above the other: parallel all over, and apart.
  const NurbsSurface bumpy = Sheet(3, 3, 2, 0.2, &random);
  const NurbsQueryResult apart = Find({bumpy}, Shifted({bumpy}, {0, 0, 0.05}), {.tolerance_m = 1e-9, .max_level = 60});
  EXPECT_TRUE(apart.hits.empty());
  EXPECT_LT(apart.box_tests, 100000U);
}

TEST(NurbsQueryTest, BadQueriesAreRefused) {
  const std::vector<NurbsSurface> sphere = NurbsSphere(1);
  const auto refused = [&](const NurbsQueryOptions& options, const std::vector<NurbsSurface>& other) {
    return std::string(FindNurbsContacts(sphere, other, options).status().message());
  };
  EXPECT_THAT(refused({.tolerance_m = 0}, sphere), HasSubstr("tolerance_m: 0, it must be positive"));
  EXPECT_THAT(refused({.tolerance_m = NAN}, sphere), HasSubstr("tolerance_m: nan"));
  EXPECT_THAT(refused({.tolerance_m = 1, .max_level = 201}, sphere), HasSubstr("max_level: 201, it must be in [0, 200]"));
  EXPECT_THAT(refused({.tolerance_m = 1e-3, .max_hits = 100}, Shifted(sphere, {1, 0, 0})), HasSubstr("more than max_hits = 100 hits"));
  EXPECT_TRUE(Find(sphere, {}, {.tolerance_m = 1}).hits.empty());
}

}  // namespace
}  // namespace palpate::sim::nurbs_query_test
