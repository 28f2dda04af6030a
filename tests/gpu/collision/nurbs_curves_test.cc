// Lines along which NURBS objects cross: circles that are known, and places on bumpy sheets that are known from dense sampling in double.
#include "gpu/collision/nurbs_curves.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "sim/nurbs/nurbs_shapes.h"
#include "tests/gpu/collision/nurbs_models.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::nurbs_curves_test {
namespace {

using Eigen::Affine3d;
using Eigen::Vector3d;
using sim::NetsOf;
using sim::NurbsSurface;
using sim::PoseOf;
using test::Sheet;
using test::Shift;
using test::Turned;
using ::testing::HasSubstr;
using Patches = std::vector<NurbsSurface>;

Vector3d At(const NurbsCurvePoint& point) { return {point.point_m[0], point.point_m[1], point.point_m[2]}; }

/// Degree 1 x 1 over [x0, x1] x [y0, y1] in the plane z = 0.
NurbsSurface Plane(double x0, double x1, double y0, double y1) {
  return *NurbsSurface::Create({.degree_u = 1,
                                .degree_v = 1,
                                .knots_u = {0, 0, 1, 1},
                                .knots_v = {0, 0, 1, 1},
                                .control_m = {{x0, y0, 0}, {x0, y1, 0}, {x1, y0, 0}, {x1, y1, 0}},
                                .weights = {}});
}

double DistanceFrom(const NurbsCurve& curve, const Vector3d& p) {
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i + (curve.is_closed ? 0 : 1) < curve.points.size(); ++i) {
    const Vector3d from = At(curve.points[i]), way = At(curve.points[(i + 1) % curve.points.size()]) - from;
    const double share = std::clamp((p - from).dot(way) / way.squaredNorm(), 0.0, 1.0);
    least = std::min(least, (from + share * way - p).norm());
  }
  return least;
}

double LengthOf(const NurbsCurve& curve) {
  double sum = 0;
  for (size_t i = 0; i + (curve.is_closed ? 0 : 1) < curve.points.size(); ++i) {
    sum += (At(curve.points[(i + 1) % curve.points.size()]) - At(curve.points[i])).norm();
  }
  return sum;
}

class NurbsCurvesTest : public test::DeviceTest {
 protected:
  absl::StatusOr<std::vector<NurbsCurve>> Trace(const Patches& a, const Patches& b, double search_m, const NurbsCurveOptions& options,
                                                const Affine3d& pose_a = Affine3d::Identity(),
                                                const Affine3d& pose_b = Affine3d::Identity()) {
    const std::vector<std::vector<NurbsNet>> nets = {NetsOf(a), NetsOf(b)};
    PALPATE_ASSIGN_OR_RETURN(const NurbsObjects objects, NurbsObjects::Create(queue(), nets));
    const std::vector<NurbsQuery> queries = {{.object_a = 0, .object_b = 1, .pose_a = PoseOf(pose_a), .pose_b = PoseOf(pose_b)}};
    PALPATE_ASSIGN_OR_RETURN(NurbsQueries search, NurbsQueries::Create(context(), {.tolerance_m = search_m}));
    PALPATE_ASSIGN_OR_RETURN(const NurbsQueryResult found, search.Run(queue(), objects, queries));
    PALPATE_ASSIGN_OR_RETURN(const NurbsPolishResult polished, PolishNurbsHits(objects, queries, found.hits));
    PALPATE_ASSIGN_OR_RETURN(std::vector<NurbsCurve> curves, TraceNurbsCurves(objects, queries, found.hits, polished.contacts, options));
    for (const NurbsCurve& curve : curves) {
      EXPECT_EQ(curve.query, 0U);
      EXPECT_GE(curve.points.size(), 2U);
      for (const NurbsCurvePoint& point : curve.points) {
        EXPECT_LT((pose_a * a[point.surface_a].Point(point.uv_a[0], point.uv_a[1]) - At(point)).norm(), 1e-9);
        EXPECT_LT((pose_b * b[point.surface_b].Point(point.uv_b[0], point.uv_b[1]) - At(point)).norm(), 1e-9);
      }
    }
    return curves;
  }
};

// Across all octants of both, wherever they are: one closed line, as near to the circle as asked.
TEST_F(NurbsCurvesTest, SpheresCrossInOneCircle) {
  const Patches sphere = sim::NurbsSphere(1);
  const double radius_m = std::sqrt(3.0) / 2;
  for (const Affine3d& both : {Affine3d::Identity(), Turned(1.1, {1, 1, 3}, {3, -1, 2})}) {
    for (const double tolerance_m : {1e-2, 1e-4}) {
      const Affine3d other = both * Shift({1, 0, 0}) * Turned(0.3, {0, 1, 1}, {0, 0, 0});
      PALPATE_TEST_ASSIGN(const std::vector<NurbsCurve> curves, Trace(sphere, sphere, 0.1, {.tolerance_m = tolerance_m}, both, other));
      ASSERT_EQ(curves.size(), 1U);
      EXPECT_TRUE(curves[0].is_closed);
      for (const NurbsCurvePoint& point : curves[0].points) {
        const Vector3d local = both.inverse() * At(point);
        EXPECT_NEAR(local.x(), 0.5, 1e-9);
        EXPECT_NEAR(local.tail<2>().norm(), radius_m, 1e-9);
      }
      for (int i = 0; i < 500; ++i) {
        const double angle = 2 * std::numbers::pi * i / 500;
        const Vector3d on_circle(0.5, radius_m * std::cos(angle), radius_m * std::sin(angle));
        EXPECT_LT(DistanceFrom(curves[0], both * on_circle), tolerance_m);
      }
      // Chords with a rise of the tolerance are 2 sqrt(2 r t) long; those here are no shorter than a quarter of that on average.
      const double fewest = 2 * std::numbers::pi * radius_m / (2 * std::sqrt(2 * radius_m * tolerance_m));
      EXPECT_LT(static_cast<double>(curves[0].points.size()), 4 * fewest + 40) << tolerance_m;
    }
  }
}

TEST_F(NurbsCurvesTest, APlaneCutsATorusInTwoCircles) {
  const Patches torus = sim::NurbsTorus(2, 0.5);
  const Patches plane = {Plane(-4, 4, -4, 4)};
  const Affine3d both = Turned(0.7, {-1, 2, 0.4}, {10, -20, 5});
  PALPATE_TEST_ASSIGN(const std::vector<NurbsCurve> curves,
                      Trace(torus, plane, 0.2, {.tolerance_m = 1e-3}, both, both * Shift({0, 0, 0.25})));
  ASSERT_EQ(curves.size(), 2U);
  std::vector<double> lengths_m;
  for (const NurbsCurve& curve : curves) {
    EXPECT_TRUE(curve.is_closed);
    lengths_m.push_back(LengthOf(curve));
  }
  std::ranges::sort(lengths_m);
  const double beside_m = std::sqrt(0.25 - 0.0625);
  EXPECT_NEAR(lengths_m[0], 2 * std::numbers::pi * (2 - beside_m), 5e-3 * lengths_m[0]);
  EXPECT_NEAR(lengths_m[1], 2 * std::numbers::pi * (2 + beside_m), 5e-3 * lengths_m[1]);
}

// Lines along which patches are joined are there once.
TEST_F(NurbsCurvesTest, APlaneThroughSeamsOfASphereCutsItInOneCircle) {
  const Patches sphere = sim::NurbsSphere(1);
  const Patches plane = {Plane(-1.5, 1.75, -1.5, 1.75)};
  PALPATE_TEST_ASSIGN(const std::vector<NurbsCurve> curves, Trace(sphere, plane, 0.1, {.tolerance_m = 1e-3}));
  ASSERT_EQ(curves.size(), 1U);
  EXPECT_TRUE(curves[0].is_closed);
  EXPECT_NEAR(LengthOf(curves[0]), 2 * std::numbers::pi, 1e-2);
}

// D7: a flat patch with curved rims. Triangles on its corners, as published, have their side where the rim is not.
TEST_F(NurbsCurvesTest, LinesEndAtCurvedRimsOfFlatPatches) {
  const double half = std::sqrt(0.5);
  const Patches ring = {*NurbsSurface::Create({.degree_u = 2,
                                               .degree_v = 1,
                                               .knots_u = {0, 0, 0, 1, 1, 1},
                                               .knots_v = {0, 0, 1, 1},
                                               .control_m = {{1, 0, 0}, {2, 0, 0}, {1, 1, 0}, {2, 2, 0}, {0, 1, 0}, {0, 2, 0}},
                                               .weights = {1, 1, half, half, 1, 1}})};
  const Patches plane = {Plane(-1, 3, -1, 1)};
  const Affine3d upright = Turned(std::numbers::pi / 2, {1, 0, 0}, {0, 0.5, 0});
  PALPATE_TEST_ASSIGN(const std::vector<NurbsCurve> curves, Trace(ring, plane, 0.2, {.tolerance_m = 1e-3}, Affine3d::Identity(), upright));
  ASSERT_EQ(curves.size(), 1U);
  EXPECT_FALSE(curves[0].is_closed);
  std::vector<double> ends_m = {At(curves[0].points.front()).x(), At(curves[0].points.back()).x()};
  std::ranges::sort(ends_m);
  EXPECT_NEAR(ends_m[0], std::sqrt(0.75), 1e-9) << "the corners' side is at 0.5";
  EXPECT_NEAR(ends_m[1], std::sqrt(3.75), 1e-9);
}

// All places where bumpy sheets cross planes are on the lines, and these end at rims only.
TEST_F(NurbsCurvesTest, NoCrossingOfABumpySheetIsOffTheLines) {
  std::mt19937 random(21);
  std::uniform_real_distribution<double> uniform(-1, 1);
  size_t known = 0, missed = 0, missed_without_one = 0, ends = 0;
  constexpr double kTolerance_m = 2e-3;
  for (int trial = 0; trial < 12; ++trial) {
    const Patches sheet = {Sheet({.degree_u = 2 + trial % 3,
                                  .degree_v = 2 + trial / 3 % 2,
                                  .inside_u = trial % 4,
                                  .inside_v = (trial + 1) % 3,
                                  .height_m = 0.2,
                                  .weight_ratio = trial % 2 == 0 ? 4.0 : 100},
                                 &random)};
    const double level_m = 0.05 * uniform(random);
    const Patches plane = {Plane(-1, 2, -1, 2)};
    const Affine3d both = Turned(2 * uniform(random), {1, uniform(random), 0.3}, 5 * Vector3d::Random());
    PALPATE_TEST_ASSIGN(const std::vector<NurbsCurve> curves,
                        Trace(sheet, plane, 0.03, {.tolerance_m = kTolerance_m}, both, both * Shift({0, 0, level_m})));
    for (const NurbsCurve& curve : curves) {
      if (curve.is_closed) continue;
      for (const NurbsCurvePoint* end : {&curve.points.front(), &curve.points.back()}) {
        ++ends;
        const double from_rim = std::min(std::min(end->uv_a[0], 1 - end->uv_a[0]), std::min(end->uv_a[1], 1 - end->uv_a[1]));
        EXPECT_LT(from_rim, 1e-9) << trial;
      }
    }
    const int samples = 30;
    for (int i = 0; i <= samples; ++i) {
      for (int j = 0; j < samples; ++j) {
        const double v = static_cast<double>(i) / samples;
        const auto above = [&](double t) { return sheet[0].Point((j + t) / samples, v).z() - level_m; };
        double low = 0, high = 1;
        const double at_low = above(low);
        if (!(at_low * above(high) < 0)) continue;
        for (int k = 0; k < 50; ++k) (above(0.5 * (low + high)) * at_low > 0 ? low : high) = 0.5 * (low + high);
        const Vector3d at = both * sheet[0].Point((j + low) / samples, v);
        ++known;
        double least_m = 1, least_of_others_m = 1;
        for (size_t c = 0; c < curves.size(); ++c) {
          const double off_m = DistanceFrom(curves[c], at);
          least_m = std::min(least_m, off_m);
          if (c > 0) least_of_others_m = std::min(least_of_others_m, off_m);
        }
        missed += least_m > kTolerance_m ? 1 : 0;
        missed_without_one += least_of_others_m > kTolerance_m ? 1 : 0;
      }
    }
  }
  std::printf("%zu known places, %zu ends of lines\n", known, ends);
  EXPECT_GT(known, 300U);
  EXPECT_EQ(missed, 0U);
  EXPECT_GT(missed_without_one, 0U) << "the check is not idle";
}

TEST_F(NurbsCurvesTest, SameInputSameBitsAndWrongInputIsRefused) {
  const Patches sphere = sim::NurbsSphere(1);
  const Affine3d other = Shift({1, 0.2, 0.1});
  PALPATE_TEST_ASSIGN(const std::vector<NurbsCurve> once, Trace(sphere, sphere, 0.3, {.tolerance_m = 0.01}, Affine3d::Identity(), other));
  PALPATE_TEST_ASSIGN(const std::vector<NurbsCurve> again, Trace(sphere, sphere, 0.3, {.tolerance_m = 0.01}, Affine3d::Identity(), other));
  ASSERT_EQ(once.size(), again.size());
  for (size_t c = 0; c < once.size(); ++c) {
    ASSERT_EQ(once[c].points.size(), again[c].points.size());
    for (size_t i = 0; i < once[c].points.size(); ++i) EXPECT_EQ(once[c].points[i].point_m, again[c].points[i].point_m);
  }
  const auto message = [&](const NurbsCurveOptions& options) {
    return std::string(Trace(sphere, sphere, 0.3, options, Affine3d::Identity(), other).status().message());
  };
  EXPECT_THAT(message({.tolerance_m = 0}), HasSubstr("tolerance_m: 0"));
  EXPECT_THAT(message({.tolerance_m = NAN}), HasSubstr("tolerance_m: nan"));
  EXPECT_THAT(message({.tolerance_m = 1e-5, .max_points = 20}), HasSubstr("more than max_points = 20"));
  const std::vector<std::vector<NurbsNet>> nets = {NetsOf(sphere)};
  PALPATE_TEST_ASSIGN(const NurbsObjects objects, NurbsObjects::Create(queue(), nets));
  const std::vector<NurbsContact> contacts(1);
  EXPECT_THAT(std::string(TraceNurbsCurves(objects, {}, {}, contacts, {.tolerance_m = 1}).status().message()), HasSubstr("contacts[0]"));
}

}  // namespace
}  // namespace palpate::gpu::nurbs_curves_test
