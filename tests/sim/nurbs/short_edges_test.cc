// Vertices that all but coincide.
#include "sim/nurbs/short_edges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "sim/nurbs/nurbs_object_tessellation.h"
#include "tests/support/trimmed_sheets.h"

namespace palpate::sim::short_edges_test {
namespace {

using Eigen::Vector3d;

/// A grid of triangles on the unit square, with columns at these places.
SurfaceMesh Grid(const std::vector<double>& columns) {
  SurfaceMesh mesh;
  constexpr uint32_t kRows = 5;
  for (const double x : columns) {
    for (uint32_t j = 0; j < kRows; ++j) mesh.vertices.emplace_back(x, j / (kRows - 1.0), 0);
  }
  for (uint32_t i = 0; i + 1 < columns.size(); ++i) {
    for (uint32_t j = 0; j + 1 < kRows; ++j) {
      const uint32_t a = i * kRows + j, b = a + kRows;
      mesh.triangles.push_back({a, b, b + 1});
      mesh.triangles.push_back({a, b + 1, a + 1});
    }
  }
  return mesh;
}

double AreaOf(const SurfaceMesh& mesh) {
  double sum = 0;
  for (const auto& [a, b, c] : mesh.triangles) {
    const double area = (mesh.vertices[b] - mesh.vertices[a]).cross(mesh.vertices[c] - mesh.vertices[a]).z() / 2;
    EXPECT_GT(area, 0) << "none is turned over";
    sum += area;
  }
  return sum;
}

size_t BorderEdges(const SurfaceMesh& mesh) {
  std::map<std::pair<uint32_t, uint32_t>, int> uses;
  for (const auto& t : mesh.triangles) {
    for (size_t k = 0; k < 3; ++k) ++uses[std::minmax(t[k], t[(k + 1) % 3])];
  }
  EXPECT_TRUE(std::ranges::all_of(uses, [](const auto& use) { return use.second <= 2; }));
  return static_cast<size_t>(std::ranges::count_if(uses, [](const auto& use) { return use.second == 1; }));
}

TEST(ShortEdgesTest, ColumnsThatCoincideBecomeOne) {
  for (const double gap : {2e-9, 1e-5, 5e-3}) {
    SurfaceMesh mesh = Grid({0, 0.25, 0.5, 0.5 + gap, 0.75, 1});
    std::vector<NurbsGridPlace> places(mesh.vertices.size());
    for (size_t v = 0; v < places.size(); ++v) places[v] = {.patch = 0, .u = mesh.vertices[v].x(), .v = mesh.vertices[v].y()};
    const size_t border = BorderEdges(mesh);
    EXPECT_EQ(CollapseShortEdges(0.01, 1.0 / 16, &mesh, &places), 5U) << gap;
    EXPECT_EQ(mesh.vertices.size(), 25U);
    EXPECT_EQ(mesh.triangles.size(), 32U);
    EXPECT_EQ(BorderEdges(mesh), border - 2);
    EXPECT_NEAR(AreaOf(mesh), 1, 1e-12) << "corners and borders stay";
    ASSERT_EQ(places.size(), mesh.vertices.size());
    for (size_t v = 0; v < places.size(); ++v) EXPECT_EQ(Vector3d(places[v].u, places[v].v, 0), mesh.vertices[v]);
  }
}

TEST(ShortEdgesTest, WhatIsLongForItsNeighboursOrForTheToleranceStays) {
  SurfaceMesh mesh = Grid({0, 0.25, 0.5, 0.53, 0.75, 1});
  const SurfaceMesh before = mesh;
  EXPECT_EQ(CollapseShortEdges(1, 1.0 / 16, &mesh, nullptr), 0U) << "an eighth of its neighbours";
  EXPECT_EQ(mesh.triangles, before.triangles);
  EXPECT_EQ(CollapseShortEdges(0.02, 1.0 / 4, &mesh, nullptr), 0U) << "longer than allowed";
  EXPECT_EQ(CollapseShortEdges(0.04, 1.0 / 4, &mesh, nullptr), 5U);
}

TEST(ShortEdgesTest, TwoBordersAreNotJoined) {
  // Two squares that a bridge joins, so narrow that its borders all but touch. Only its ends may come together along their own borders.
  SurfaceMesh mesh;
  const auto at = [&](double x, double y) { mesh.vertices.emplace_back(x, y, 0); };
  at(0, 0), at(1, 0), at(2, 0), at(3, 0), at(0, 1), at(1, 1e-6), at(2, 1e-6), at(3, 1);
  mesh.triangles = {{0, 1, 5}, {0, 5, 4}, {1, 2, 6}, {1, 6, 5}, {2, 3, 7}, {2, 7, 6}};
  EXPECT_EQ(CollapseShortEdges(0.01, 1.0 / 16, &mesh, nullptr), 0U) << "edges across the bridge join two borders";
  EXPECT_EQ(mesh.triangles.size(), 6U);
}

TEST(ShortEdgesTest, BreaksOfAnEdgeThatAllButCoincideGiveOneVertexInShells) {
  // The loop has corners 3 um from each other.
  const std::vector<Eigen::Vector2d> corners = {{0, 0}, {0.61, 0.001}, {0.61 + 3e-5, 0.001}, {1, 0}, {1, 1}, {0, 1}};
  const NurbsObject sheet = test::TrimmedSheet(3, 4, 0.1, {test::PolygonTrims(corners)});
  const auto shortest_m = [&](size_t least_cells) {
    const auto mesh = TessellateNurbsObject(sheet, 5e-4, 0, nullptr, least_cells);
    EXPECT_TRUE(mesh.ok()) << mesh.status();
    double least = 1;
    for (const auto& t : mesh->triangles) {
      for (size_t k = 0; k < 3; ++k) least = std::min(least, (mesh->vertices[t[k]] - mesh->vertices[t[(k + 1) % 3]]).norm());
    }
    return least;
  };
  EXPECT_LT(shortest_m(1), 1e-5) << "exact meshes have all corners";
  EXPECT_GT(shortest_m(3), 1e-4);
}

}  // namespace
}  // namespace palpate::sim::short_edges_test
