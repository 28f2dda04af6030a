// Nearest points of objects of patches against closed forms.
#include "sim/nurbs/nurbs_nearest.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "sim/nurbs/nurbs_body_shape.h"
#include "sim/nurbs/nurbs_mass_properties.h"
#include "sim/nurbs/nurbs_revolution.h"
#include "sim/nurbs/nurbs_shapes.h"
#include "tests/sim/nurbs/nurbs_test_objects.h"

namespace palpate::sim::nurbs_nearest_test {
namespace {

using Eigen::Matrix3d;
using Eigen::Vector3d;

constexpr double kBig_m = 0.03;
constexpr double kTube_m = 0.01;

NurbsObject ObjectOf(const std::vector<NurbsSurface>& surfaces) { return *NurbsObject::FromSurfaces("shape", surfaces); }

/// Signed, outside positive.
double ToTorus(const Vector3d& p) { return std::hypot(std::hypot(p.x(), p.y()) - kBig_m, p.z()) - kTube_m; }

Vector3d RandomPoint(std::mt19937& random, double within_m) {
  std::uniform_real_distribution<double> share(-within_m, within_m);
  return {share(random), share(random), share(random)};
}

TEST(NurbsRevolution, AVaseIsClosedAndHoldsWhatPappusSays) {
  const NurbsObject vase = ObjectOf(NurbsVase(0.03, 0.1));
  ASSERT_TRUE(vase.CheckClosed().ok()) << vase.CheckClosed();
  EXPECT_EQ(vase.patches().size(), 20U);
  const auto properties = ComputeNurbsObjectMassProperties(vase, 1);
  ASSERT_TRUE(properties.ok()) << properties.status();
  // The outline of a quarter in the plane y = 0: the volume is pi times the integral of r^2 dz around it.
  double volume_m3 = 0;
  constexpr int kSamples = 20000;
  for (size_t p = 0; p < vase.patches().size(); p += 4) {
    const NurbsSurface& surface = vase.patches()[p].surface;
    const auto [first, last] = surface.domain(NurbsDirection::kV);
    for (int i = 0; i < kSamples; ++i) {
      const Vector3d a = surface.Point(0, first + (last - first) * i / kSamples);
      const Vector3d b = surface.Point(0, first + (last - first) * (i + 1) / kSamples);
      volume_m3 += M_PI * (a.x() * a.x() + a.x() * b.x() + b.x() * b.x()) / 3 * (b.z() - a.z());
    }
  }
  EXPECT_NEAR(properties->volume_m3, volume_m3, 1e-8 * volume_m3);
  EXPECT_GT(properties->volume_m3, 0);
}

TEST(NurbsNearest, DistancesFromSphereAndTorusAreThoseOfClosedForms) {
  std::mt19937 random(1);
  const NurbsNearest sphere(ObjectOf(NurbsSphere(kBig_m)));
  const NurbsNearest torus(ObjectOf(NurbsTorus(kBig_m, kTube_m)));
  for (int i = 0; i < 400; ++i) {
    const Vector3d p = RandomPoint(random, 0.06);
    const NurbsPlace on_sphere = sphere.Nearest(p);
    EXPECT_NEAR((on_sphere.point_m - p).norm(), std::abs(p.norm() - kBig_m), 1e-13) << p.transpose();
    const NurbsPlace on_torus = torus.Nearest(p);
    EXPECT_NEAR(ToTorus(on_torus.point_m), 0, 1e-13);
    EXPECT_NEAR((on_torus.point_m - p).norm(), std::abs(ToTorus(p)), 1e-13) << p.transpose();
  }
  // At poles, where one of the parameters says nothing, and along the seams between patches.
  for (const Vector3d& p :
       {Vector3d(0, 0, 0.05), Vector3d(0, 0, -0.05), Vector3d(0.05, 0, 0), Vector3d(1e-9, 0, -0.05), Vector3d(0.02, 0.02, 0)}) {
    EXPECT_NEAR((sphere.Nearest(p).point_m - p).norm(), std::abs(p.norm() - kBig_m), 1e-13) << p.transpose();
  }
}

TEST(NurbsNearest, TheRimOfWhatTrimmingLeavesIsNearestWhereTheHoleIs) {
  NurbsObjectDescription description{
      "washer", {{"square", PlaneSurface({0, 0, 0}, {1, 0, 0}, {0, 1, 0}), {PolygonTrims({{0, 0}, {1, 0}, {1, 1}, {0, 1}})}}}};
  description.patches[0].loops.push_back({CircleTrim({0.5, 0.5}, 0.25, true)});
  const auto object = NurbsObject::Create(description);
  ASSERT_TRUE(object.ok()) << object.status();
  const NurbsNearest nearest(*object);
  std::mt19937 random(2);
  for (int i = 0; i < 200; ++i) {
    const Vector3d p = Vector3d(0.5, 0.5, 0) + RandomPoint(random, 0.45);
    const double out = std::hypot(p.x() - 0.5, p.y() - 0.5);
    const double expected = out < 0.25 ? std::hypot(0.25 - out, p.z()) : std::abs(p.z());
    // Within the polylines of the loop, a millionth of the domain.
    EXPECT_NEAR((nearest.Nearest(p).point_m - p).norm(), expected, 2e-6) << p.transpose();
  }
}

TEST(NurbsNearest, TrianglesLeadToThePointsNearThem) {
  const auto shape = MakeNurbsBodyShape(ObjectOf(NurbsTorus(kBig_m, kTube_m)), 1e-4, 0, true, 100000);
  ASSERT_TRUE(shape.ok()) << shape.status();
  const NurbsBodyShape& torus = **shape;
  EXPECT_TRUE(torus.is_closed);
  EXPECT_NEAR(torus.volume_m3, 2 * M_PI * M_PI * kBig_m * kTube_m * kTube_m, 1e-10 * torus.volume_m3);
  ASSERT_EQ(torus.triangle_places.size(), torus.triangles.size());
  double farthest_m = 0;
  for (size_t t = 0; t < torus.triangles.size(); ++t) {
    const auto& [a, b, c] = torus.triangles[t];
    // Corners, sides and the middle.
    for (const Vector3d& w : {Vector3d(1, 0, 0), Vector3d(0.5, 0.5, 0), Vector3d(0.2, 0.3, 0.5)}) {
      const Vector3d p = w[0] * torus.vertices[a] + w[1] * torus.vertices[b] + w[2] * torus.vertices[c];
      const NurbsPlace place = torus.nearest.NearestFrom(torus.triangle_places[t], p);
      EXPECT_NEAR((place.point_m - p).norm(), std::abs(ToTorus(p)), 1e-13);
      farthest_m = std::max(farthest_m, std::abs(ToTorus(p)));
    }
  }
  EXPECT_LE(farthest_m, 1e-4);
  EXPECT_GT(farthest_m, 1e-5);
}

/// Distance of a segment from the torus by dense sampling and golden sections.
double SegmentToTorus(const Vector3d& a, const Vector3d& b) {
  constexpr int kSamples = 400;
  const auto at = [&](double s) { return ToTorus(a + s * (b - a)); };
  int best = 0;
  for (int i = 1; i <= kSamples; ++i) best = at(1.0 * i / kSamples) < at(1.0 * best / kSamples) ? i : best;
  double low = std::max(0.0, (best - 1.0) / kSamples), high = std::min(1.0, (best + 1.0) / kSamples);
  for (int i = 0; i < 100; ++i) {
    const double x = low + 0.382 * (high - low), y = low + 0.618 * (high - low);
    (at(x) < at(y) ? high : low) = at(x) < at(y) ? y : x;
  }
  return at((low + high) / 2);
}

TEST(NurbsNearest, SegmentsAndTheirDerivatives) {
  const NurbsNearest torus(ObjectOf(NurbsTorus(kBig_m, kTube_m)));
  std::mt19937 random(3);
  int checked = 0;
  for (int i = 0; i < 200; ++i) {
    const Vector3d a = RandomPoint(random, 0.06);
    const Vector3d b = a + (i % 4 == 0 ? Vector3d::Zero() : RandomPoint(random, 0.02));
    if (SegmentToTorus(a, b) < 0.002) continue;
    const NurbsApproach found = torus.Approach(torus.Nearest(a), a, b);
    if (std::abs(found.distance_m - SegmentToTorus(a, b)) > 1e-9) continue;  // another local minimum
    ++checked;
    // The way is where the distance grows; differences of gradients are the second derivatives.
    constexpr double kStep_m = 1e-6;
    Matrix3d second;
    for (int k = 0; k < 3; ++k) {
      const Vector3d d = kStep_m * Vector3d::Unit(k);
      const NurbsApproach more = torus.Approach(found.place, a + d, b + d);
      const NurbsApproach less = torus.Approach(found.place, a - d, b - d);
      EXPECT_NEAR((more.distance_m - less.distance_m) / (2 * kStep_m), found.normal[k], 1e-5);
      second.col(k) = (more.normal - less.normal) / (2 * kStep_m);
    }
    EXPECT_LT((second - found.curvature_per_m).norm(), 1e-3 * second.norm() + 1e-2)
        << second << "\n\n"
        << found.curvature_per_m << "\nfrom " << a.transpose() << " to " << b.transpose();
  }
  EXPECT_GT(checked, 100);
}

TEST(NurbsNearest, AStraightToolOnASphereIsCurvedAcrossAlone) {
  const NurbsNearest sphere(ObjectOf(NurbsSphere(kBig_m)));
  const double over_m = 0.036;
  const Vector3d a(-0.05, 0.004, over_m), b(0.05, 0.004, over_m);
  const NurbsApproach found = sphere.Approach(sphere.Nearest({0.01, 0.004, over_m}), a, b);
  const Vector3d middle(0, 0.004, over_m);
  EXPECT_NEAR(found.distance_m, middle.norm() - kBig_m, 1e-13);
  EXPECT_LT((found.on_segment_m - middle).norm(), 1e-7);
  EXPECT_LT((found.normal - middle.normalized()).norm(), 1e-7);
  const Vector3d along = Vector3d::UnitX();
  const Vector3d across = found.normal.cross(along);
  EXPECT_NEAR(across.dot(found.curvature_per_m * across), 1 / middle.norm(), 1e-4);
  EXPECT_NEAR(along.dot(found.curvature_per_m * along), 0, 1e-4);
}

}  // namespace
}  // namespace palpate::sim::nurbs_nearest_test
