#include "sim/nurbs/planar_triangulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "sim/mesh/exact_predicates.h"

namespace palpate::sim::planar_triangulation_test {
namespace {

using Eigen::Vector2d;
using Kind = PlanarTriangulation::EdgeKind;

double AreaOf(const PlanarTriangulation& plane, const PlanarTriangulation::Triangle& t) {
  const Vector2d a = plane.points()[t.vertices[1]] - plane.points()[t.vertices[0]];
  const Vector2d b = plane.points()[t.vertices[2]] - plane.points()[t.vertices[0]];
  return 0.5 * (a.x() * b.y() - a.y() * b.x());
}

// Triangles turn the right way, neighbors know each other and agree on what their edge is, and together they are the box.
void Check(const PlanarTriangulation& plane, double box_area) {
  double area = 0;
  for (uint32_t t = 0; t < plane.triangles().size(); ++t) {
    const auto& triangle = plane.triangles()[t];
    const auto& v = triangle.vertices;
    ASSERT_EQ(Orient2d(plane.points()[v[0]], plane.points()[v[1]], plane.points()[v[2]]), 1);
    area += AreaOf(plane, triangle);
    for (size_t i = 0; i < 3; ++i) {
      if (triangle.neighbors[i] == PlanarTriangulation::kNone) continue;
      const auto& other = plane.triangles()[triangle.neighbors[i]];
      bool is_known = false;
      for (size_t j = 0; j < 3; ++j) {
        if (other.neighbors[j] != t || other.vertices[(j + 1) % 3] != v[(i + 2) % 3] || other.vertices[(j + 2) % 3] != v[(i + 1) % 3])
          continue;
        is_known = true;
        EXPECT_EQ(other.kinds[j], triangle.kinds[i]);
        EXPECT_EQ(other.turns[j], -triangle.turns[i]);
      }
      EXPECT_TRUE(is_known);
    }
  }
  EXPECT_NEAR(area, box_area, 1e-12 * box_area);
}

double AreaWith(const PlanarTriangulation& plane, int winding) {
  double area = 0;
  for (const auto& t : plane.triangles()) area += t.winding == winding ? AreaOf(plane, t) : 0;
  return area;
}

std::vector<uint32_t> InsertCircle(PlanarTriangulation& plane, const Vector2d& center, double radius, int count) {
  std::vector<uint32_t> out;
  for (int i = 0; i < count; ++i) {
    const double angle = 2 * std::numbers::pi * i / count;
    out.push_back(plane.Insert(center + radius * Vector2d(std::cos(angle), std::sin(angle))));
  }
  return out;
}

TEST(PlanarTriangulationTest, PointsOnAGridAreTriangulatedAndFoundAgain) {
  PlanarTriangulation plane({Vector2d(-1, -1), Vector2d(5, 5)});
  std::vector<uint32_t> numbers;
  for (int i = 0; i < 5; ++i) {
    for (int j = 0; j < 5; ++j) numbers.push_back(plane.Insert({i, j}));
  }
  Check(plane, 36);
  for (int i = 0; i < 5; ++i) {
    for (int j = 0; j < 5; ++j) EXPECT_EQ(plane.Insert({i, j}), numbers[static_cast<size_t>(5 * i + j)]);
  }
  EXPECT_EQ(plane.triangles().size(), 2U + 2U * 25U);
}

TEST(PlanarTriangulationTest, RandomPointsAreDelaunay) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> in(0, 1);
  PlanarTriangulation plane({Vector2d(-0.1, -0.1), Vector2d(1.1, 1.1)});
  for (int i = 0; i < 300; ++i) plane.Insert({in(random), in(random)});
  Check(plane, 1.44);
  for (const auto& t : plane.triangles()) {
    // The circle of a triangle is empty.
    const Vector2d a = plane.points()[t.vertices[0]];
    const Vector2d b = plane.points()[t.vertices[1]] - a;
    const Vector2d c = plane.points()[t.vertices[2]] - a;
    const double d = 2 * (b.x() * c.y() - b.y() * c.x());
    const Vector2d center((c.y() * b.squaredNorm() - b.y() * c.squaredNorm()) / d, (b.x() * c.squaredNorm() - c.x() * b.squaredNorm()) / d);
    for (const Vector2d& p : plane.points()) EXPECT_GT((p - a - center).norm(), center.norm() * (1 - 1e-9));
  }
}

TEST(PlanarTriangulationTest, OutlinesAreEdgesAndTheAreasBetweenThemAreRight) {
  PlanarTriangulation plane({Vector2d(-2, -2), Vector2d(2, 2)});
  const auto outer = InsertCircle(plane, {0, 0}, 1, 40);
  const auto hole = InsertCircle(plane, {0.3, 0}, 0.5, 24);
  std::mt19937 random(3);
  std::uniform_real_distribution<double> in(-1.5, 1.5);
  for (int i = 0; i < 200; ++i) plane.Insert({in(random), in(random)});
  for (size_t i = 0; i < outer.size(); ++i) EXPECT_FALSE(plane.Fix(outer[i], outer[(i + 1) % outer.size()], Kind::kOutline));
  for (size_t i = hole.size(); i-- > 0;) EXPECT_FALSE(plane.Fix(hole[(i + 1) % hole.size()], hole[i], Kind::kOutline));
  plane.MakeDelaunay();
  plane.FindWindings();
  Check(plane, 16);
  const auto polygon = [](double radius, int n) { return 0.5 * n * radius * radius * std::sin(2 * std::numbers::pi / n); };
  EXPECT_NEAR(AreaWith(plane, 1), polygon(1, 40) - polygon(0.5, 24), 1e-12);
  EXPECT_NEAR(AreaWith(plane, 0), 16 - polygon(1, 40) + polygon(0.5, 24), 1e-12);
  EXPECT_EQ(AreaWith(plane, -1), 0);
  // Halved edges keep it so.
  for (int pass = 0; pass < 3; ++pass) {
    const size_t count = plane.triangles().size();
    for (uint32_t t = 0; t < count; ++t) {
      const auto v = plane.triangles()[t].vertices;
      EXPECT_TRUE(plane.SplitEdge(t, 0, 0.5 * plane.points()[v[1]] + 0.5 * plane.points()[v[2]]) ||
                  plane.triangles()[t].kinds[0] == Kind::kOutline);
    }
  }
  Check(plane, 16);
  EXPECT_NEAR(AreaWith(plane, 1), polygon(1, 40) - polygon(0.5, 24), 1e-9);
}

TEST(PlanarTriangulationTest, TellsWhichTrianglesChanged) {
  PlanarTriangulation plane({Vector2d(-2, -2), Vector2d(2, 2)});
  InsertCircle(plane, {0, 0}, 1, 30);
  plane.MakeDelaunay();
  plane.TakeChanged();
  size_t flipped = 0;
  for (uint32_t t = 0; t < 40; ++t) {
    const std::vector<PlanarTriangulation::Triangle> before(plane.triangles().begin(), plane.triangles().end());
    const auto& v = before[t].vertices;
    if (!plane.SplitEdge(t, 1, 0.7 * plane.points()[v[0]] + 0.3 * plane.points()[v[2]])) continue;
    const std::vector<uint32_t> told = plane.TakeChanged();
    flipped += told.size() > 4 ? 1 : 0;
    for (uint32_t i = 0; i < plane.triangles().size(); ++i) {
      if (i < before.size() && before[i].vertices == plane.triangles()[i].vertices) continue;
      EXPECT_NE(std::find(told.begin(), told.end(), i), told.end()) << i << " when " << t << " is split";
    }
  }
  EXPECT_GT(flipped, 0U);
  EXPECT_TRUE(plane.TakeChanged().empty());
}

TEST(PlanarTriangulationTest, SegmentsThroughVerticesAreFixedInParts) {
  PlanarTriangulation plane({Vector2d(-1, -1), Vector2d(5, 5)});
  std::vector<uint32_t> numbers;
  for (int i = 0; i < 5; ++i) {
    for (int j = 0; j < 5; ++j) numbers.push_back(plane.Insert({i, j}));
  }
  EXPECT_FALSE(plane.Fix(numbers[0], numbers[24], Kind::kLine));  // (0, 0) to (4, 4)
  EXPECT_FALSE(plane.Fix(numbers[0], numbers[14], Kind::kLine));  // to (2, 4), through (1, 2)
  Check(plane, 36);
  int fixed = 0;
  for (const auto& t : plane.triangles()) fixed += static_cast<int>(std::count(t.kinds.begin(), t.kinds.end(), Kind::kLine));
  EXPECT_EQ(fixed, 2 * (4 + 2));
}

TEST(PlanarTriangulationTest, ACrossingIsReportedWhereItIs) {
  PlanarTriangulation plane({Vector2d(-1, -1), Vector2d(2, 2)});
  const uint32_t a = plane.Insert({0, 0});
  const uint32_t b = plane.Insert({1, 1});
  const uint32_t c = plane.Insert({0, 1});
  const uint32_t d = plane.Insert({1, 0});
  EXPECT_FALSE(plane.Fix(a, b, Kind::kOutline));
  const auto place = plane.Fix(c, d, Kind::kOutline);
  ASSERT_TRUE(place.has_value());
  EXPECT_NEAR((*place - Vector2d(0.5, 0.5)).norm(), 0, 1e-12);
}

}  // namespace
}  // namespace palpate::sim::planar_triangulation_test
