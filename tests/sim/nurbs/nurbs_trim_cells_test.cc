// Quadrature over what loops leave of the cells between knots: against closed forms, and cells against the winding number at points.
#include "sim/nurbs/nurbs_trim_cells.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <random>
#include <string>
#include <vector>

#include "sim/nurbs/nurbs_mass_properties.h"
#include "tests/support/trimmed_sheets.h"

namespace palpate::sim::nurbs_trim_cells_test {
namespace {

using Eigen::Vector2d;
using test::CircleTrim;
using test::PolygonTrims;
using test::TrimmedSheet;

constexpr double kPi = std::numbers::pi;

/// Points of all cells, cut ones compressed for polynomials of a degree where it is not negative.
std::vector<NurbsCubaturePoint> AllPoints(const NurbsTrimCells& cells, int degree = -1) {
  std::vector<NurbsCubaturePoint> out;
  for (size_t row = 0; row < cells.rows(); ++row) {
    for (size_t column = 0; column < cells.columns(); ++column) {
      if (cells.kind(row, column) == NurbsCellKind::kEmpty) continue;
      auto points = cells.PointsOf(row, column);
      EXPECT_TRUE(points.ok()) << points.status();
      if (degree >= 0) *points = CompressCubature(*points, degree);
      out.insert(out.end(), points->begin(), points->end());
    }
  }
  return out;
}

double MomentOf(const std::vector<NurbsCubaturePoint>& points, const Vector2d& center, int i, int j) {
  double sum = 0;
  for (const NurbsCubaturePoint& p : points) sum += p.weight * std::pow(p.uv.x() - center.x(), i) * std::pow(p.uv.y() - center.y(), j);
  return sum;
}

TEST(NurbsTrimCells, ADiscHasItsAreaAndMoments) {
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> uniform(0, 1);
  double worst = 0;
  for (int n = 0; n < 30; ++n) {
    const double radius = 0.02 + 0.4 * uniform(random);
    const Vector2d center(radius + (1 - 2 * radius) * uniform(random), radius + (1 - 2 * radius) * uniform(random));
    const NurbsObject object = TrimmedSheet(3, 1 + static_cast<size_t>(n % 9), 1, {{CircleTrim(center, radius)}});
    const auto cells = NurbsTrimCells::Create(object.patches()[0]);
    ASSERT_TRUE(cells.ok()) << cells.status();
    const double area = kPi * radius * radius, r2 = radius * radius;
    for (const int degree : {-1, 4, 6}) {
      const std::vector<NurbsCubaturePoint> points = AllPoints(*cells, degree);
      for (const auto& [i, j, exact] :
           {std::tuple(0, 0, 1.0), std::tuple(1, 0, 0.0), std::tuple(0, 1, 0.0), std::tuple(1, 1, 0.0), std::tuple(2, 0, r2 / 4),
            std::tuple(0, 2, r2 / 4), std::tuple(4, 0, r2 * r2 / 8), std::tuple(2, 2, r2 * r2 / 24)}) {
        const double error = std::abs(MomentOf(points, center, i, j) / area - exact) / std::pow(radius, i + j);
        worst = std::max(worst, error);
        EXPECT_LT(error, 1e-8) << "moment " << i << " " << j << ", degree " << degree << ", radius " << radius << " about "
                               << center.transpose();
      }
    }
  }
  RecordProperty("worst", std::to_string(worst));
}

TEST(NurbsTrimCells, KindsAndPointsAreThoseOfTheWindingNumber) {
  // Two holes, one of them across a corner of four cells, and an outline with a slanted side.
  const NurbsObject object = TrimmedSheet(2, 7, 1,
                                          {PolygonTrims({{0.05, 0.03}, {0.97, 0.11}, {0.81, 0.94}, {0.02, 0.9}}),
                                           {CircleTrim({3.0 / 7, 3.0 / 7}, 0.11, true)},
                                           PolygonTrims({{0.6, 0.6}, {0.62, 0.78}, {0.75, 0.7}})});
  const NurbsPatch& patch = object.patches()[0];
  const auto cells = NurbsTrimCells::Create(patch);
  ASSERT_TRUE(cells.ok()) << cells.status();
  const NurbsTrimRegion region(patch);
  constexpr int kSamples = 40;
  for (size_t row = 0; row < cells->rows(); ++row) {
    for (size_t column = 0; column < cells->columns(); ++column) {
      const Vector2d low(cells->lines(0)[row], cells->lines(1)[column]);
      const Vector2d width = Vector2d(cells->lines(0)[row + 1], cells->lines(1)[column + 1]) - low;
      int inside = 0;
      for (int i = 0; i < kSamples; ++i) {
        for (int j = 0; j < kSamples; ++j) {
          inside += region.Contains(low + width.cwiseProduct(Vector2d(i + 0.5, j + 0.5)) / kSamples) ? 1 : 0;
        }
      }
      const double share = inside / static_cast<double>(kSamples * kSamples);
      const NurbsCellKind kind = cells->kind(row, column);
      if (kind != NurbsCellKind::kCut) {
        EXPECT_EQ(share, kind == NurbsCellKind::kWhole ? 1 : 0) << row << " " << column;
      }
      if (kind == NurbsCellKind::kEmpty) continue;
      const auto points = cells->PointsOf(row, column);
      ASSERT_TRUE(points.ok()) << points.status();
      EXPECT_NEAR(MomentOf(*points, {0, 0}, 0, 0) / (width.x() * width.y()), share, 0.03);
      for (const NurbsCubaturePoint& point : *points) {
        EXPECT_TRUE(region.Contains(point.uv)) << point.uv.transpose();
        EXPECT_GT(point.weight, 0);
        EXPECT_TRUE(((point.uv - low).array() >= 0).all() && ((low + width - point.uv).array() >= 0).all());
      }
    }
  }
  EXPECT_NEAR(MomentOf(AllPoints(*cells), {0, 0}, 0, 0), NurbsAreaOf(patch), 1e-10);
}

TEST(NurbsTrimCells, PolygonsHaveTheirAreaWhereverTheirCornersAre) {
  // Stars about a point, with corners on lines of knots, on their crossings and anywhere, and sides along lines.
  std::mt19937_64 random(9);
  std::uniform_real_distribution<double> uniform(0, 1);
  int tried = 0;
  for (int n = 0; n < 60; ++n) {
    std::vector<Vector2d> corners;
    const int count = 3 + n % 9;
    for (int i = 0; i < count; ++i) {
      const double angle = 2 * kPi * (i + 0.8 * uniform(random)) / count;
      Vector2d corner = Vector2d(0.5, 0.5) + (0.15 + 0.3 * uniform(random)) * Vector2d(std::cos(angle), std::sin(angle));
      if (n % 3 > 0) corner.x() = std::round(corner.x() * 20) / 20;
      if (n % 3 > 1) corner.y() = std::round(corner.y() * 20) / 20;
      if (corners.empty() || corner != corners.back()) corners.push_back(corner);
    }
    double twice = 0, turns = 0;
    for (size_t i = 0; i < corners.size(); ++i) {
      const Vector2d a = corners[i] - Vector2d(0.5, 0.5), b = corners[(i + 1) % corners.size()] - Vector2d(0.5, 0.5);
      twice += a.x() * b.y() - a.y() * b.x();
      turns += std::atan2(a.x() * b.y() - a.y() * b.x(), a.dot(b)) / (2 * kPi);
    }
    if (corners.size() < 3 || corners.front() == corners.back() || std::abs(turns - 1) > 1e-9 || twice < 0.02) continue;
    const NurbsObject object = TrimmedSheet(2, 10, 1, {PolygonTrims(corners)});
    const auto cells = NurbsTrimCells::Create(object.patches()[0]);
    if (!cells.ok()) {
      // Rounding of corners may fold a star.
      EXPECT_GT(n % 3, 0) << cells.status();
      continue;
    }
    ++tried;
    EXPECT_NEAR(MomentOf(AllPoints(*cells), {0, 0}, 0, 0), twice / 2, 1e-9) << n;
    EXPECT_NEAR(MomentOf(AllPoints(*cells, 4), {0, 0}, 0, 0), twice / 2, 1e-9) << n;
  }
  EXPECT_GT(tried, 40);
}

TEST(NurbsTrimCells, CurvedLoopsHaveTheAreaOfGreensTheorem) {
  // Closed cubic curves about a point, with weights.
  std::mt19937_64 random(17);
  std::uniform_real_distribution<double> uniform(0, 1);
  int tried = 0;
  for (int n = 0; n < 40; ++n) {
    NurbsTrimDescription trim;
    trim.curve.degree = 3;
    const int count = 7 + n % 5;
    for (int i = 0; i < count; ++i) {
      const double angle = 2 * kPi * i / (count - 1);
      trim.curve.control.push_back(Vector2d(0.5, 0.5) + (0.15 + 0.33 * uniform(random)) * Vector2d(std::cos(angle), std::sin(angle)));
      trim.curve.weights.push_back(0.5 + uniform(random));
    }
    trim.curve.control.back() = trim.curve.control.front();
    trim.curve.knots.assign(4, 0.0);
    for (int i = 1; i + 3 < count; ++i) trim.curve.knots.push_back(i);
    trim.curve.knots.insert(trim.curve.knots.end(), 4, count - 3.0);
    const NurbsObject object = TrimmedSheet(3, 2 + static_cast<size_t>(n % 11), 1, {{trim}});
    const auto cells = NurbsTrimCells::Create(object.patches()[0]);
    if (!cells.ok()) continue;  // a curve with a loop in it
    ++tried;
    const double area = NurbsAreaOf(object.patches()[0]);
    EXPECT_NEAR(MomentOf(AllPoints(*cells), {0, 0}, 0, 0), area, 1e-7 * area) << n;
    EXPECT_NEAR(MomentOf(AllPoints(*cells, 6), {0, 0}, 0, 0), area, 1e-7 * area) << n;
  }
  EXPECT_GT(tried, 30);
}

TEST(NurbsTrimCells, FewPositivePointsIntegrateAllPolynomials) {
  const NurbsObject object = TrimmedSheet(3, 4, 1, {{CircleTrim({0.5, 0.5}, 0.37)}});
  const auto cells = NurbsTrimCells::Create(object.patches()[0]);
  ASSERT_TRUE(cells.ok());
  size_t cut = 0;
  for (size_t row = 0; row < 4; ++row) {
    for (size_t column = 0; column < 4; ++column) {
      if (cells->kind(row, column) != NurbsCellKind::kCut) continue;
      ++cut;
      const auto all = cells->PointsOf(row, column);
      for (const int degree : {2, 4, 6, 10}) {
        const std::vector<NurbsCubaturePoint> few = CompressCubature(*all, degree);
        EXPECT_LE(few.size(), static_cast<size_t>((degree + 1) * (degree + 2) / 2));
        const Vector2d center = few[0].uv;
        const double area = MomentOf(*all, center, 0, 0);
        for (const NurbsCubaturePoint& p : few) EXPECT_GT(p.weight, 0);
        for (int i = 0; i <= degree; ++i) {
          for (int j = 0; i + j <= degree; ++j) {
            EXPECT_NEAR(MomentOf(few, center, i, j), MomentOf(*all, center, i, j), 1e-11 * area) << degree << ": " << i << " " << j;
          }
        }
      }
    }
  }
  EXPECT_EQ(cut, 12U);
}

TEST(NurbsTrimCells, LoopsAlongKnotsCutNothing) {
  // Within the gap that loops may have, too.
  const double off = 0.5 * kNurbsLoopGap;
  const NurbsObject object =
      TrimmedSheet(2, 4, 1, {PolygonTrims({{0, off}, {1, 0}, {1, 1 - off}, {0.5 + off, 1}, {0.5 - off, 0.5}, {0, 0.5 + off}})});
  const auto cells = NurbsTrimCells::Create(object.patches()[0]);
  ASSERT_TRUE(cells.ok()) << cells.status();
  for (size_t row = 0; row < 4; ++row) {
    for (size_t column = 0; column < 4; ++column) {
      EXPECT_EQ(cells->kind(row, column), row < 2 && column >= 2 ? NurbsCellKind::kEmpty : NurbsCellKind::kWhole) << row << " " << column;
    }
  }
}

TEST(NurbsTrimCells, LoopsThatCrossOverlapOrLeaveNothingAreErrors) {
  const auto error = [](std::vector<std::vector<NurbsTrimDescription>> loops) {
    const NurbsObject object = TrimmedSheet(3, 5, 1, std::move(loops));
    return std::string(NurbsTrimCells::Create(object.patches()[0]).status().message());
  };
  // A figure of eight, of which the larger part runs counter-clockwise.
  const std::string eight = error({PolygonTrims({{0.1, 0.1}, {0.9, 0.8}, {0.9, 0.1}, {0.35, 0.9}})});
  EXPECT_NE(eight.find("loops: cross or run clockwise around what is not left at (u, v) = ("), std::string::npos) << eight;
  const std::string two = error({{CircleTrim({0.4, 0.5}, 0.3)}, {CircleTrim({0.6, 0.5}, 0.3)}});
  EXPECT_NE(two.find("loops: cross or overlap at"), std::string::npos) << two;
  const std::string outside = error({{CircleTrim({0.3, 0.3}, 0.2)}, {CircleTrim({0.8, 0.8}, 0.1, true)}});
  EXPECT_NE(outside.find("run clockwise"), std::string::npos) << outside;
  const std::string nothing = error({PolygonTrims({{0, 0}, {1, 0}, {1, 1e-6}, {0, 1e-6}})});
  EXPECT_NE(nothing.find("loops: they leave nothing of the patch"), std::string::npos) << nothing;
}

}  // namespace
}  // namespace palpate::sim::nurbs_trim_cells_test
