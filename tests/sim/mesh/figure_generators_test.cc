#include "sim/mesh/figure_generators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numbers>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <Eigen/Geometry>

#include "sim/mesh/signed_distance.h"
#include "sim/mesh/surface_check.h"
#include "sim/mesh/surface_generators.h"

namespace palpate::sim::figure_generators_test {
namespace {

using Eigen::Vector3d;
using ::testing::HasSubstr;

constexpr double kHeight_m = 1.7;

struct Measures {
  double mean_edge_m = 0;
  double least_angle_deg = 180;
  double volume_m3 = 0;
  int euler = 0;                                       ///< vertices - edges + triangles
  std::vector<std::vector<uint32_t>> loops;            ///< boundaries, by their lowest vertex
  std::map<std::pair<uint32_t, uint32_t>, int> edges;  ///< and how many triangles they have
};

Measures MeasuresOf(const SurfaceMesh& surface) {
  Measures m;
  for (const auto& t : surface.triangles) {
    const std::array<Vector3d, 3> x = {surface.vertices[t[0]], surface.vertices[t[1]], surface.vertices[t[2]]};
    m.volume_m3 += x[0].dot(x[1].cross(x[2])) / 6;
    for (size_t k = 0; k < 3; ++k) {
      const Vector3d ab = x[(k + 1) % 3] - x[k];
      const Vector3d ac = x[(k + 2) % 3] - x[k];
      m.least_angle_deg = std::min(m.least_angle_deg, std::acos(ab.normalized().dot(ac.normalized())) * 180 / std::numbers::pi);
      ++m.edges[std::minmax(t[k], t[(k + 1) % 3])];
    }
  }
  for (const auto& [edge, count] : m.edges) {
    m.mean_edge_m += (surface.vertices[edge.first] - surface.vertices[edge.second]).norm() / static_cast<double>(m.edges.size());
  }
  m.euler = static_cast<int>(surface.vertices.size()) - static_cast<int>(m.edges.size()) + static_cast<int>(surface.triangles.size());
  std::map<uint32_t, uint32_t> next;
  for (const auto& t : surface.triangles) {
    for (size_t k = 0; k < 3; ++k) {
      if (m.edges[std::minmax(t[k], t[(k + 1) % 3])] == 1) next[t[k]] = t[(k + 1) % 3];
    }
  }
  while (!next.empty()) {
    std::vector<uint32_t>& loop = m.loops.emplace_back();
    for (auto at = next.begin(); at != next.end(); at = next.find(loop.back())) {
      loop.push_back(at->second);
      next.erase(at);
    }
  }
  return m;
}

/// Whether a triangle stays outside of a closed surface: its middle is further away than its corners, or that holds for its quarters.
bool IsOutside(const SignedDistance& distance, const Vector3d& a, const Vector3d& b, const Vector3d& c, int depth = 0) {
  const Vector3d middle = (a + b + c) / 3;
  const double free_m = distance(middle);
  if (free_m > std::sqrt(std::max({(a - middle).squaredNorm(), (b - middle).squaredNorm(), (c - middle).squaredNorm()}))) return true;
  if (free_m <= 0 || depth == 8) return false;
  const Vector3d ab = (a + b) / 2, bc = (b + c) / 2, ca = (c + a) / 2;
  return IsOutside(distance, a, ab, ca, depth + 1) && IsOutside(distance, b, bc, ab, depth + 1) &&
         IsOutside(distance, c, ca, bc, depth + 1) && IsOutside(distance, ab, bc, ca, depth + 1);
}

double WeightOf(const FigureSurface& figure, size_t v, std::string_view part) {
  double sum = 0;
  for (const PartWeight& w : figure.weights[v]) sum += figure.parts[w.part].name.find(part) != std::string::npos ? w.weight : 0;
  return sum;
}

TEST(FigureGenerators, FigureIsAClosedSurfaceOfRegularTriangles) {
  for (const double edge_m : {kHeight_m / kMinEdgesPerFigure, 0.0, 0.0105}) {
    const auto figure = GenerateFigureSurface(kHeight_m, edge_m);
    ASSERT_TRUE(figure.ok()) << figure.status();
    EXPECT_TRUE(CheckShellSurface(figure->surface).ok()) << CheckShellSurface(figure->surface);
    EXPECT_TRUE(CheckClosedSurface(figure->surface).ok()) << CheckClosedSurface(figure->surface);
    const Measures m = MeasuresOf(figure->surface);
    EXPECT_EQ(m.euler, 2);
    EXPECT_TRUE(m.loops.empty());
    EXPECT_GT(m.least_angle_deg, 30);
    const double wanted_m = edge_m == 0 ? kHeight_m / kDefaultEdgesPerFigure : edge_m;
    EXPECT_NEAR(m.mean_edge_m, wanted_m, 0.15 * wanted_m);
    EXPECT_NEAR(m.volume_m3, 0.0635, 0.003) << "positive: outwards";
    Eigen::AlignedBox3d box;
    Eigen::AlignedBox3d feet;
    for (const Vector3d& x : figure->surface.vertices) {
      box.extend(x);
      if (x.z() < 0.05) feet.extend(x);
      ASSERT_LT(std::abs(FigureDistance(x, kHeight_m)), 1e-4 * kHeight_m);
    }
    EXPECT_NEAR(box.min().z(), 0, 0.1 * wanted_m);
    EXPECT_NEAR(box.max().z(), kHeight_m, 0.1 * wanted_m);
    EXPECT_NEAR(box.min().x(), -box.max().x(), 0.2 * wanted_m);
    EXPECT_GT(-feet.min().y(), feet.max().y() + 0.05) << "the toes point to -y";
  }
}

TEST(FigureGenerators, WeightsFollowTheLimbs) {
  const auto figure = GenerateFigureSurface(kHeight_m);
  ASSERT_TRUE(figure.ok()) << figure.status();
  const std::vector<std::string> names = {"pelvis",        "torso",      "head",      "left_upper_arm", "left_forearm", "right_upper_arm",
                                          "right_forearm", "left_thigh", "left_shin", "right_thigh",    "right_shin"};
  const std::vector<int> parents = {-1, 0, 1, 1, 3, 1, 5, 0, 7, 0, 9};
  ASSERT_EQ(figure->parts.size(), names.size());
  for (size_t p = 0; p < names.size(); ++p) {
    EXPECT_EQ(figure->parts[p].name, names[p]);
    EXPECT_EQ(figure->parts[p].parent, parents[p]);
    EXPECT_LT(FigureDistance(figure->parts[p].joint_m, kHeight_m), -0.02 * kHeight_m) << names[p] << ": its joint is inside";
  }
  ASSERT_EQ(figure->weights.size(), figure->surface.vertices.size());
  size_t whole = 0;
  for (size_t v = 0; v < figure->weights.size(); ++v) {
    const Vector3d x = figure->surface.vertices[v] / kHeight_m;
    ASSERT_LE(figure->weights[v].size(), 3U);
    for (const PartWeight& w : figure->weights[v]) ASSERT_GT(w.weight, 0);
    ASSERT_NEAR(WeightOf(*figure, v, ""), 1, 1e-6);
    whole += figure->weights[v].size() == 1 ? 1 : 0;
    const std::string other = x.x() > 0 ? "right" : "left";
    const std::string own = x.x() > 0 ? "left" : "right";
    EXPECT_EQ(WeightOf(*figure, v, other), 0) << "at " << x.transpose();
    const auto follows = [&](bool is_there, std::string_view part, double weight) {
      if (!is_there) return;
      EXPECT_EQ(WeightOf(*figure, v, part), weight) << part << " at " << x.transpose();
    };
    follows(x.z() > 0.9, "head", 1);
    follows(std::abs(x.x()) > 0.28, own + "_forearm", 1);
    follows(std::abs(x.x()) < 0.12 && x.z() < 0.68, "arm", 0);
    follows(std::abs(x.x()) < 0.16 && x.z() > 0.32 && x.z() < 0.38, own + "_thigh", 1);
    follows(x.z() < 0.25, own + "_shin", 1);
  }
  EXPECT_GT(whole, figure->weights.size() / 2);
}

TEST(FigureGenerators, WeightsChangeSmoothly) {
  const auto figure = GenerateFigureSurface(kHeight_m, 0.0105);
  ASSERT_TRUE(figure.ok()) << figure.status();
  for (const auto& [edge, count] : MeasuresOf(figure->surface).edges) {
    const double length_m = (figure->surface.vertices[edge.first] - figure->surface.vertices[edge.second]).norm();
    for (const FigurePart& part : figure->parts) {
      ASSERT_LE(std::abs(WeightOf(*figure, edge.first, part.name) - WeightOf(*figure, edge.second, part.name)),
                2 * length_m / (kFigureJointBand * kHeight_m) + 1e-5)
          << part.name << " at " << figure->surface.vertices[edge.first].transpose();
    }
  }
}

TEST(FigureGenerators, DressHasFourPlaneBoundariesAndClearsTheFigure) {
  for (const auto& [edge_m, gap_m] : {std::pair(kHeight_m / kMinEdgesPerFigure, 0.008), {0.0, 0.002}, {0.0, 0.015}, {0.0105, 0.008}}) {
    const auto dress = GenerateDressSurface(kHeight_m, gap_m, edge_m);
    ASSERT_TRUE(dress.ok()) << dress.status();
    EXPECT_TRUE(CheckShellSurface(*dress).ok()) << CheckShellSurface(*dress);
    const Measures m = MeasuresOf(*dress);
    EXPECT_EQ(m.euler, -2);
    ASSERT_EQ(m.loops.size(), 4U);
    EXPECT_GT(m.least_angle_deg, kMinFigureAngleDeg);
    const double wanted_m = edge_m == 0 ? kHeight_m / kDefaultEdgesPerFigure : edge_m;
    EXPECT_NEAR(m.mean_edge_m, wanted_m, 0.15 * wanted_m);
    std::array<int, 4> places{};  // neck, left, right, hem
    for (const std::vector<uint32_t>& loop : m.loops) {
      Vector3d middle = Vector3d::Zero();
      Vector3d normal = Vector3d::Zero();
      for (const uint32_t v : loop) middle += dress->vertices[v] / static_cast<double>(loop.size());
      for (size_t i = 0; i < loop.size(); ++i) {
        normal += (dress->vertices[loop[i]] - middle).cross(dress->vertices[loop[(i + 1) % loop.size()]] - middle);
      }
      for (const uint32_t v : loop) EXPECT_NEAR(normal.normalized().dot(dress->vertices[v] - middle), 0, 1e-9);
      ++places[middle.z() < 0.3 * kHeight_m ? 3 : middle.x() > 0.1 * kHeight_m ? 1 : middle.x() < -0.1 * kHeight_m ? 2 : 0];
    }
    EXPECT_EQ(places, (std::array{1, 1, 1, 1}));
    const SignedDistance distance(GenerateFigureSurface(kHeight_m, edge_m)->surface);
    double least_m = 1;
    for (const Vector3d& x : dress->vertices) least_m = std::min(least_m, FigureDistance(x, kHeight_m));
    EXPECT_GT(least_m, 0.8 * gap_m);
    EXPECT_LT(least_m, gap_m + 0.003) << "it rests on the shoulders";
    for (const auto& [a, b, c] : dress->triangles) {
      ASSERT_TRUE(IsOutside(distance, dress->vertices[a], dress->vertices[b], dress->vertices[c])) << dress->vertices[a].transpose();
      const Vector3d middle = (dress->vertices[a] + dress->vertices[b] + dress->vertices[c]) / 3;
      const Vector3d normal = (dress->vertices[b] - dress->vertices[a]).cross(dress->vertices[c] - dress->vertices[a]).normalized();
      // Away from the armpits outwards is further away.
      const double step_m = 0.1 * gap_m;
      if (std::abs(middle.x()) > 0.09 * kHeight_m || middle.z() < 0.62 * kHeight_m) continue;
      ASSERT_GT(distance(middle + step_m * normal), distance(middle)) << middle.transpose();
    }
  }
}

TEST(FigureGenerators, FineDress) {
  const auto dress = GenerateDressSurface(kHeight_m, 0.008, 0.0076);
  ASSERT_TRUE(dress.ok()) << dress.status();
  EXPECT_GT(dress->triangles.size(), 48'000U);
  EXPECT_TRUE(CheckShellSurface(*dress).ok()) << CheckShellSurface(*dress);
  const Measures m = MeasuresOf(*dress);
  EXPECT_EQ(m.euler, -2);
  EXPECT_EQ(m.loops.size(), 4U);
  EXPECT_GT(m.least_angle_deg, kMinFigureAngleDeg);
}

TEST(FigureGenerators, SizesAreProportionalAndRunsAreAlike) {
  const auto tall = GenerateFigureSurface(2);
  const auto again = GenerateFigureSurface(2);
  const auto small = GenerateFigureSurface(0.5);
  ASSERT_TRUE(tall.ok() && again.ok() && small.ok());
  EXPECT_EQ(tall->surface.vertices, again->surface.vertices);
  EXPECT_EQ(tall->surface.triangles, again->surface.triangles);
  EXPECT_EQ(tall->surface.triangles, small->surface.triangles);
  for (size_t v = 0; v < tall->surface.vertices.size(); ++v) {
    ASSERT_LT((tall->surface.vertices[v] / 4 - small->surface.vertices[v]).norm(), 1e-12);
  }
  EXPECT_EQ(GenerateDressSurface(2)->vertices, GenerateDressSurface(2)->vertices);
}

TEST(FigureGenerators, ValuesOutOfRangeAreNamed) {
  const auto message = [](const auto& result) { return std::string(result.status().message()); };
  EXPECT_THAT(message(GenerateFigureSurface(0.05)), HasSubstr("height_m: 0.05 is outside [0.1, 3]"));
  EXPECT_THAT(message(GenerateFigureSurface(NAN)), HasSubstr("height_m: nan is outside [0.1, 3]"));
  EXPECT_THAT(message(GenerateFigureSurface(1.6, 0.1)), HasSubstr("edge_length_m: 0.1 is outside [0.004, 0.02]"));
  EXPECT_THAT(message(GenerateFigureSurface(1.6, 0.003)), HasSubstr("edge_length_m: 0.003 is outside [0.004, 0.02]"));
  EXPECT_THAT(message(GenerateDressSurface(4)), HasSubstr("figure_height_m: 4 is outside [0.1, 3]"));
  EXPECT_THAT(message(GenerateDressSurface(1.7, 0.02)), HasSubstr("gap_m: 0.02 is outside [0.002, 0.015]"));
  EXPECT_THAT(message(GenerateDressSurface(1.6, 0.008, -1)), HasSubstr("edge_length_m: -1 is outside [0.004, 0.02]"));
}

}  // namespace
}  // namespace palpate::sim::figure_generators_test
