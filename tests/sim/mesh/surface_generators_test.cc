#include "sim/mesh/surface_generators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>
#include <string>
#include <utility>

#include <Eigen/Geometry>

#include "sim/mesh/surface_check.h"

namespace palpate::sim::surface_generators_test {
namespace {

using Eigen::Vector3d;
using ::testing::HasSubstr;

struct Measures {
  double area_m2 = 0;
  Vector3d area_vector = Vector3d::Zero();
  double shortest_m = 1e9, longest_m = 0;
  int euler = 0;  ///< vertices - edges + triangles
};

Measures MeasuresOf(const SurfaceMesh& surface) {
  Measures m;
  std::set<std::pair<uint32_t, uint32_t>> edges;
  for (const auto& t : surface.triangles) {
    const Vector3d& o = surface.vertices[t[0]];
    const Vector3d n = (surface.vertices[t[1]] - o).cross(surface.vertices[t[2]] - o) / 2;
    m.area_m2 += n.norm();
    m.area_vector += n;
    for (size_t k = 0; k < 3; ++k) {
      const uint32_t a = t[k];
      const uint32_t b = t[(k + 1) % 3];
      edges.insert(std::minmax(a, b));
      const double length_m = (surface.vertices[a] - surface.vertices[b]).norm();
      m.shortest_m = std::min(m.shortest_m, length_m);
      m.longest_m = std::max(m.longest_m, length_m);
    }
  }
  m.euler = static_cast<int>(surface.vertices.size()) - static_cast<int>(edges.size()) + static_cast<int>(surface.triangles.size());
  return m;
}

TEST(SurfaceGenerators, ShapesHaveTheirAreaTopologyAndSides) {
  const auto sheet = GenerateSheetSurface(0.2, 0.1, 0.01);
  ASSERT_TRUE(sheet.ok()) << sheet.status();
  EXPECT_TRUE(CheckShellSurface(*sheet).ok()) << CheckShellSurface(*sheet);
  Measures m = MeasuresOf(*sheet);
  EXPECT_NEAR(m.area_m2, 0.02, 1e-9);
  EXPECT_NEAR(m.area_vector.z(), 0.02, 1e-9) << "upwards";
  EXPECT_EQ(m.euler, 1);
  EXPECT_LT(m.longest_m, 0.012);
  EXPECT_GT(m.shortest_m, 0.0045);

  const auto disc = GenerateDiscSurface(0.1, 0.01);
  ASSERT_TRUE(disc.ok()) << disc.status();
  EXPECT_TRUE(CheckShellSurface(*disc).ok()) << CheckShellSurface(*disc);
  m = MeasuresOf(*disc);
  EXPECT_NEAR(m.area_vector.z(), std::numbers::pi * 0.01, 0.003 * std::numbers::pi * 0.01);
  EXPECT_EQ(m.euler, 1);

  const auto tube = GenerateTubeSurface(0.02, 0.1, 0.005);
  ASSERT_TRUE(tube.ok()) << tube.status();
  EXPECT_TRUE(CheckShellSurface(*tube).ok()) << CheckShellSurface(*tube);
  m = MeasuresOf(*tube);
  EXPECT_NEAR(m.area_m2, 2 * std::numbers::pi * 0.02 * 0.1, 0.02 * 0.0126);
  EXPECT_EQ(m.euler, 0);
  for (const auto& t : tube->triangles) {
    const Vector3d& o = tube->vertices[t[0]];
    const Vector3d n = (tube->vertices[t[1]] - o).cross(tube->vertices[t[2]] - o);
    ASSERT_GT(n.dot(Vector3d(o.x(), o.y(), 0)), 0) << "outwards";
  }

  const auto sphere = GenerateSphereSurface(0.05, 0.01);
  ASSERT_TRUE(sphere.ok()) << sphere.status();
  EXPECT_TRUE(CheckShellSurface(*sphere).ok()) << CheckShellSurface(*sphere);
  EXPECT_TRUE(CheckClosedSurface(*sphere).ok()) << CheckClosedSurface(*sphere);
  m = MeasuresOf(*sphere);
  EXPECT_NEAR(m.area_m2, 4 * std::numbers::pi * 0.0025, 0.02 * 0.0314);
  EXPECT_EQ(m.euler, 2);
  EXPECT_LT(m.longest_m / m.shortest_m, 1.4);
}

TEST(SurfaceGenerators, ValuesOutOfRangeAreNamed) {
  EXPECT_THAT(std::string(GenerateSheetSurface(0, 0.1).status().message()), HasSubstr("length_m: 0 is outside"));
  EXPECT_THAT(std::string(GenerateSheetSurface(0.1, 11).status().message()), HasSubstr("width_m: 11 is outside"));
  EXPECT_THAT(std::string(GenerateDiscSurface(-1).status().message()), HasSubstr("radius_m: -1 is outside"));
  EXPECT_THAT(std::string(GenerateTubeSurface(0.02, 0.1, 0.2).status().message()), HasSubstr("edge_length_m: 0.2 is outside"));
  EXPECT_THAT(std::string(GenerateSphereSurface(0.05, 1e-5).status().message()), HasSubstr("edge_length_m: 1e-05 is outside"));
}

TEST(CheckShellSurface, DefectsAreNamedWithTheirPlace) {
  const SurfaceMesh good = *GenerateSheetSurface(0.02, 0.02, 0.01);
  const auto refuse = [&](const auto& change, const std::string& text) {
    SurfaceMesh changed = good;
    change(changed);
    EXPECT_THAT(std::string(CheckShellSurface(changed).message()), HasSubstr(text));
  };
  refuse([](SurfaceMesh& m) { m.triangles.clear(); }, "has no triangle");
  refuse([](SurfaceMesh& m) { m.vertices[2].x() = NAN; }, "vertex 2 lies at (nan");
  refuse([](SurfaceMesh& m) { m.triangles[1][0] = 77; }, "triangle 1: vertex 77 is outside");
  refuse([](SurfaceMesh& m) { m.triangles[1][0] = m.triangles[1][1]; }, "triangle 1 (");
  refuse([](SurfaceMesh& m) { m.vertices.emplace_back(1, 2, 3); }, "at (1, 2, 3) belongs to no triangle");
  refuse([](SurfaceMesh& m) { std::swap(m.triangles[0][0], m.triangles[0][1]); }, "in the same direction by triangles 0 and ");
  refuse(
      [](SurfaceMesh& m) {
        m.triangles.push_back({m.triangles[0][1], m.triangles[0][0], m.triangles[0][2]});
      },
      "belongs to more than two triangles");
}

}  // namespace
}  // namespace palpate::sim::surface_generators_test
