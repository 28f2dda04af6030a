// Triangle sheets that are carved, refined and cut, against brute force.
#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <Eigen/Dense>

#include "sim/mesh/surface_generators.h"
#include "sim/topology/sheet_incision.h"
#include "sim/topology/sheet_mesh.h"
#include "sim/topology/sheet_refinement.h"

namespace palpate::sim::sheet_test {
namespace {

using Eigen::Vector3d;
using Blade = std::array<Vector3d, 2>;

SheetMesh MustBuild(const absl::StatusOr<SurfaceMesh>& surface) {
  EXPECT_TRUE(surface.ok()) << surface.status();
  auto mesh = SheetMesh::Build(surface->vertices, surface->triangles);
  EXPECT_TRUE(mesh.ok()) << mesh.status();
  return *std::move(mesh);
}

struct Census {
  int64_t chi = 0;
  size_t components = 0, loops = 0;  // loops of the boundary
  double area_m2 = 0;
  Vector3d vector_area_m2 = Vector3d::Zero();
};

/// All of a mesh from its triangles alone; a failure where it is no manifold with boundary.
Census Count(const SheetMesh& mesh) {
  Census census;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> owner;  // of directed edges
  std::map<uint32_t, std::vector<uint32_t>> star;
  for (uint32_t t = 0; t < mesh.triangle_slot_count(); ++t) {
    if (!mesh.IsTriangle(t)) continue;
    const auto& v = mesh.TriangleVertices(t);
    for (size_t k = 0; k < 3; ++k) {
      EXPECT_TRUE(owner.emplace(std::pair{v[k], v[(k + 1) % 3]}, t).second) << "an edge has two triangles in one direction";
      star[v[k]].push_back(t);
    }
    const Vector3d n = (mesh.PositionOf(v[1]) - mesh.PositionOf(v[0])).cross(mesh.PositionOf(v[2]) - mesh.PositionOf(v[0])) / 2;
    census.area_m2 += n.norm();
    census.vector_area_m2 += n;
  }
  std::set<std::pair<uint32_t, uint32_t>> edges;
  std::map<uint32_t, uint32_t> next;  // along the boundary
  for (const auto& [edge, t] : owner) {
    edges.insert({std::min(edge.first, edge.second), std::max(edge.first, edge.second)});
    if (owner.contains({edge.second, edge.first})) continue;
    EXPECT_TRUE(next.emplace(edge.first, edge.second).second) << "two boundaries leave vertex " << edge.first;
  }
  for (const auto& [v, triangles] : star) {  // one fan: walking around from a triangle meets all
    std::set<uint32_t> reached = {triangles[0]};
    for (bool grows = true; grows;) {
      grows = false;
      for (const uint32_t t : triangles) {
        for (const uint32_t w : mesh.TriangleVertices(t)) {
          for (const auto& edge : {std::pair{v, w}, std::pair{w, v}}) {
            const auto at = owner.find(edge);
            if (w != v && at != owner.end() && reached.contains(at->second)) grows |= reached.insert(t).second;
          }
        }
      }
    }
    EXPECT_EQ(reached.size(), triangles.size()) << "vertex " << v << " has more than one fan";
  }
  while (!next.empty()) {
    ++census.loops;
    for (auto at = next.begin(); at != next.end();) {
      const uint32_t to = at->second;
      next.erase(at);
      at = next.find(to);
    }
  }
  std::map<uint32_t, uint32_t> root;
  for (const auto& [v, triangles] : star) root[v] = v;
  const auto find = [&](uint32_t v) {
    while (root[v] != v) v = root[v];
    return v;
  };
  for (const auto& [a, b] : edges) root[find(a)] = find(b);
  for (const auto& [v, of] : root) census.components += v == of ? 1 : 0;
  census.chi = static_cast<int64_t>(star.size()) - static_cast<int64_t>(edges.size()) + static_cast<int64_t>(mesh.triangle_count());
  EXPECT_EQ(mesh.vertex_count(), star.size());
  EXPECT_EQ(mesh.Components().size(), census.components);
  EXPECT_TRUE(mesh.Check().ok()) << mesh.Check();
  return census;
}

std::vector<Vector3d> RestOf(const SheetMesh& mesh) {
  std::vector<Vector3d> x;
  for (uint32_t v = 0; v < mesh.vertex_slot_count(); ++v) x.push_back(mesh.PositionOf(v));
  return x;
}

std::vector<TriangleId> TrianglesIn(const SheetMesh& mesh, const Vector3d& center_m, double radius_m) {
  std::vector<TriangleId> ids;
  for (uint32_t t = 0; t < mesh.triangle_slot_count(); ++t) {
    if (!mesh.IsTriangle(t)) continue;
    const auto& [a, b, c] = mesh.TriangleVertices(t);
    const Vector3d middle = (mesh.PositionOf(a) + mesh.PositionOf(b) + mesh.PositionOf(c)) / 3;
    if ((middle - center_m).norm() <= radius_m) ids.push_back(mesh.IdOfTriangle(t));
  }
  return ids;
}

/// A blade across the sheet z = 0, its edge upright over a place.
Blade Upright(double x, double y) { return {Vector3d(x, y, -0.05), Vector3d(x, y, 0.05)}; }

SheetIncisionResult MustCut(SheetMesh& mesh, SheetIncision& incision, const Blade& from, const Blade& to) {
  const auto result = incision.Cut(RestOf(mesh), from, to);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *result : SheetIncisionResult{};
}

TEST(SheetMesh, TakesManifoldsWithBoundaryAlone) {
  const std::vector<Vector3d> x = {{0, 0, 0}, {1, 0, 0}, {0, 1, 0}, {1, 1, 0}, {0, 0, 1}};
  const auto build = [&](const std::vector<std::array<uint32_t, 3>>& t) { return SheetMesh::Build(x, t).status().code(); };
  EXPECT_EQ(build({{0, 1, 2}, {2, 1, 3}}), absl::StatusCode::kOk);
  EXPECT_EQ(build({{0, 1, 2}, {1, 2, 3}}), absl::StatusCode::kInvalidArgument) << "turned against each other";
  EXPECT_EQ(build({{0, 1, 2}, {2, 1, 3}, {1, 2, 4}}), absl::StatusCode::kInvalidArgument) << "three at an edge";
  EXPECT_EQ(build({{0, 1, 2}, {1, 4, 3}}), absl::StatusCode::kInvalidArgument) << "two fans at a vertex";
  EXPECT_EQ(build({{0, 1, 7}}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(build({{0, 1, 1}}), absl::StatusCode::kInvalidArgument);
}

TEST(SheetMesh, WhereTrianglesMeetInAVertexAloneItIsCopied) {
  SheetMesh mesh = MustBuild(GenerateSheetSurface(0.1, 0.1, 0.01));
  const uint64_t vertices = mesh.vertex_count();
  // Two triangles that share one vertex go, and leave two fans there.
  uint32_t middle = kNoSlot;
  for (uint32_t v = 0; v < mesh.vertex_slot_count(); ++v) {
    if (mesh.IsVertex(v) && mesh.TrianglesAround(v).size() == 6 && mesh.PositionOf(v).norm() < 0.02) middle = v;
  }
  ASSERT_NE(middle, kNoSlot);
  const uint32_t first = mesh.TrianglesAround(middle)[0];
  uint32_t second = kNoSlot;
  for (const uint32_t t : mesh.TrianglesAround(middle)) {
    size_t shared = 0;
    for (const uint32_t v : mesh.TriangleVertices(t)) {
      shared += static_cast<size_t>(std::count(mesh.TriangleVertices(first).begin(), mesh.TriangleVertices(first).end(), v));
    }
    if (shared == 1) second = t;
  }
  ASSERT_NE(second, kNoSlot);
  ASSERT_TRUE(mesh.Apply({.removed = {mesh.IdOfTriangle(first), mesh.IdOfTriangle(second)}}).ok());
  EXPECT_EQ(mesh.delta().added_vertices.size(), 1U);
  EXPECT_EQ(mesh.delta().added_vertices[0].source_count, 1U);
  EXPECT_EQ(mesh.vertex_count(), vertices + 1);
  const Census census = Count(mesh);
  EXPECT_EQ(census.loops, 2U);
  EXPECT_EQ(census.chi, 0) << "one hole: the two triangles and the gap at their vertex";
}

TEST(SheetMesh, ErrorsLeaveItAsItWas) {
  SheetMesh mesh = MustBuild(GenerateSheetSurface(0.1, 0.1, 0.02));
  const uint64_t hash = mesh.hash();
  const TriangleId first = mesh.IdOfTriangle(0);
  EXPECT_EQ(mesh.Apply({.removed = {first, first}}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(mesh.Apply({.removed = {MakeId<TriangleId>(0, 7)}}).code(), absl::StatusCode::kNotFound);
  const auto& v = mesh.TriangleVertices(0);
  SheetEdit twice{.triangles = {{{mesh.IdOfVertex(v[0]), mesh.IdOfVertex(v[1]), mesh.IdOfVertex(v[2])}, kNoTriangle}}};
  EXPECT_EQ(mesh.Apply(twice).code(), absl::StatusCode::kFailedPrecondition);
  SheetEdit flat{.removed = {first}, .triangles = {{{mesh.IdOfVertex(v[0]), mesh.IdOfVertex(v[1]), mesh.IdOfVertex(v[1])}, first}}};
  EXPECT_EQ(mesh.Apply(flat).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(mesh.Apply({.parted = {{mesh.IdOfVertex(v[0]), mesh.IdOfVertex(v[0])}}}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(mesh.hash(), hash);
  EXPECT_EQ(mesh.version(), 0U);
  Count(mesh);
}

TEST(SheetRefinement, MakesEdgesShortAndKeepsTheArea) {
  SheetMesh mesh = MustBuild(GenerateTubeSurface(0.02, 0.1, 0.01));
  const Census before = Count(mesh);
  const Vector3d center(0.02, 0, 0);
  const auto is_near = [&](TriangleId id) {
    const auto& v = mesh.TriangleVertices(SlotOf(id));
    return std::any_of(v.begin(), v.end(), [&](uint32_t w) { return (mesh.PositionOf(w) - center).norm() < 0.02; });
  };
  std::vector<TriangleId> wanted;
  for (uint32_t t = 0; t < mesh.triangle_slot_count(); ++t) {
    if (is_near(mesh.IdOfTriangle(t))) wanted.push_back(mesh.IdOfTriangle(t));
  }
  const auto result = RefineSheet(&mesh, wanted, {.max_edge_m = 0.003, .triangle_budget = 100000}, is_near);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->is_refused);
  EXPECT_GT(result->bisections, 100U);
  const Census after = Count(mesh);
  EXPECT_EQ(after.chi, before.chi);
  EXPECT_EQ(after.loops, before.loops);
  EXPECT_NEAR(after.area_m2, before.area_m2, 1e-13);
  EXPECT_NEAR((after.vector_area_m2 - before.vector_area_m2).norm(), 0, 1e-13);
  double least_ratio = 1;
  for (uint32_t t = 0; t < mesh.triangle_slot_count(); ++t) {
    if (!mesh.IsTriangle(t)) continue;
    const auto& v = mesh.TriangleVertices(t);
    const std::array<Vector3d, 3> x = {mesh.PositionOf(v[0]), mesh.PositionOf(v[1]), mesh.PositionOf(v[2])};
    least_ratio = std::min(least_ratio, TriangleMeanRatio(x));
    if (!is_near(mesh.IdOfTriangle(t))) continue;
    for (size_t k = 0; k < 3; ++k) EXPECT_LE((x[k] - x[(k + 1) % 3]).norm(), 0.003);
  }
  EXPECT_GT(least_ratio, 0.45);
}

TEST(SheetRefinement, StopsAtTheBudget) {
  SheetMesh mesh = MustBuild(GenerateSheetSurface(0.1, 0.1, 0.01));
  const double area_m2 = Count(mesh).area_m2;
  const size_t budget = mesh.triangle_count() + 25;
  const auto result = RefineSheet(&mesh, TrianglesIn(mesh, {0, 0, 0}, 0.05), {.max_edge_m = 0.001, .triangle_budget = budget},
                                  [](TriangleId) { return true; });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->is_refused);
  EXPECT_LE(mesh.triangle_count(), budget);
  EXPECT_NEAR(Count(mesh).area_m2, area_m2, 1e-13);
  EXPECT_EQ(RefineSheet(&mesh, {}, {.max_edge_m = 0, .triangle_budget = budget}, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

// Each row: where the blade goes, in one stroke, and what is left of a square.
struct CutCase {
  std::string name;
  std::vector<Eigen::Vector2d> way;
  int64_t chi;
  size_t components, loops;
};

class SheetCuts : public testing::TestWithParam<CutCase> {};

TEST_P(SheetCuts, LeaveTheTopologyThatTheWaySays) {
  for (const double turn : {0.0, 0.13, 0.7}) {
    for (const size_t parts : {1, 7, 40}) {
      SheetMesh mesh = MustBuild(GenerateSheetSurface(0.1, 0.1, 0.008));
      const Census before = Count(mesh);
      SheetIncision incision(&mesh);
      const Eigen::Rotation2Dd rotation(turn);
      for (size_t i = 0; i + 1 < GetParam().way.size(); ++i) {
        for (size_t k = 0; k < parts; ++k) {
          const auto at = [&](size_t step) -> Blade {
            const double s = static_cast<double>(step) / static_cast<double>(parts);
            const Eigen::Vector2d p = rotation * ((1 - s) * GetParam().way[i] + s * GetParam().way[i + 1]);
            return Upright(p.x(), p.y());
          };
          MustCut(mesh, incision, at(k), at(k + 1));
        }
      }
      incision.EndStroke();
      const std::string what = GetParam().name + ", turned by " + std::to_string(turn) + ", in parts " + std::to_string(parts);
      const Census after = Count(mesh);
      EXPECT_EQ(after.chi, GetParam().chi) << what;
      EXPECT_EQ(after.components, GetParam().components) << what;
      EXPECT_EQ(after.loops, GetParam().loops) << what;
      EXPECT_NEAR(after.area_m2, before.area_m2, 1e-13) << what;
      EXPECT_NEAR((after.vector_area_m2 - before.vector_area_m2).norm(), 0, 1e-13) << what;
    }
  }
}

// Chi: a disc has 1. A slit in from the border leaves a disc, one inside an annulus, one across two discs; a closed way a disc in an
// annulus.
INSTANTIATE_TEST_SUITE_P(Ways, SheetCuts,
                         testing::Values(CutCase{"in", {{-0.09, 0.0031}, {0.0123, 0.0017}}, 1, 1, 1},
                                         CutCase{"inside", {{-0.0251, 0.0021}, {0.0213, 0.0117}}, 0, 1, 2},
                                         CutCase{"across", {{-0.09, 0.0031}, {0.09, 0.0017}}, 2, 2, 2},
                                         CutCase{"bent", {{-0.09, 0.0131}, {0.0033, 0.0017}, {0.0077, 0.09}}, 2, 2, 2},
                                         CutCase{"around",
                                                 {{0.0307, 0.0013},
                                                  {0.0213, 0.0217},
                                                  {0.0011, 0.0303},
                                                  {-0.0211, 0.0221},
                                                  {-0.0301, -0.0017},
                                                  {-0.0217, -0.0207},
                                                  {0.0023, -0.0299},
                                                  {0.0219, -0.0209},
                                                  {0.0307, 0.0013},
                                                  {0.0213, 0.0217}},
                                                 1,
                                                 2,
                                                 3}),
                         [](const auto& instance) { return instance.param.name; });

TEST(SheetIncision, AStrokeThatEndedInTheSheetGoesOn) {
  SheetMesh whole = MustBuild(GenerateSheetSurface(0.1, 0.1, 0.008));
  SheetMesh parted = MustBuild(GenerateSheetSurface(0.1, 0.1, 0.008));
  SheetIncision one(&whole);
  SheetIncision two(&parted);
  for (int i = 0; i < 12; ++i) {
    const Blade from = Upright(-0.06 + 0.01 * i, 0.0013);
    const Blade to = Upright(-0.06 + 0.01 * (i + 1), 0.0013);
    MustCut(whole, one, from, to);
    MustCut(parted, two, from, to);
    two.EndStroke();
  }
  EXPECT_EQ(whole.hash(), parted.hash());
  EXPECT_EQ(Count(parted).components, 2U);
}

TEST(SheetIncision, LeavesAlongAndApartAlone) {
  SheetMesh mesh = MustBuild(GenerateSheetSurface(0.1, 0.1, 0.008));
  const uint64_t hash = mesh.hash();
  SheetIncision incision(&mesh);
  MustCut(mesh, incision, {Vector3d(-0.06, -0.02, 0), Vector3d(-0.06, 0.02, 1e-9)}, {Vector3d(0.06, -0.02, 1e-9), Vector3d(0.06, 0.02, 0)});
  EXPECT_EQ(mesh.hash(), hash) << "a blade that lies in the sheet";
  MustCut(mesh, incision, {Vector3d(0, 0, 0.01), Vector3d(0, 0, 0.05)}, {Vector3d(0.05, 0, 0.01), Vector3d(0.05, 0, 0.05)});
  EXPECT_EQ(mesh.hash(), hash) << "one above it";
  EXPECT_FALSE(incision.IsUnderWay());
  EXPECT_FALSE(incision.Cut({}, Upright(0, 0), Upright(0.1, 0)).ok());
  EXPECT_FALSE(incision.Cut(RestOf(mesh), Upright(0, 0), Upright(NAN, 0)).ok());
}

TEST(SheetIncision, ABudgetStopsTheBlade) {
  SheetMesh mesh = MustBuild(GenerateSheetSurface(0.1, 0.1, 0.008));
  const uint64_t hash = mesh.hash();
  SheetIncision incision(&mesh);
  SheetIncisionOptions options;
  options.triangle_budget = mesh.triangle_count() + 2;
  const auto result = incision.Cut(RestOf(mesh), Upright(-0.09, 0.0033), Upright(0.09, 0.0037), options);
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->is_refused);
  EXPECT_EQ(mesh.hash(), hash);
}

/// The place at rest in tiles, which jumps by 10 at x = 0.
std::array<float, 2> Projected(const Vector3d& at_m, bool is_beyond) {
  return {static_cast<float>(25 * at_m.x() + 7 * at_m.y() + (is_beyond ? 10 : 0)), static_cast<float>(3 - 30 * at_m.y())};
}

void GiveTexture(SheetMesh& mesh) {
  for (uint32_t t = 0; t < mesh.triangle_slot_count(); ++t) {
    const auto& v = mesh.TriangleVertices(t);
    const bool is_beyond = mesh.PositionOf(v[0]).x() + mesh.PositionOf(v[1]).x() + mesh.PositionOf(v[2]).x() > 0;
    TextureCorners corners{};
    for (size_t c = 0; c < 3; ++c) corners[c] = Projected(mesh.PositionOf(v[c]), is_beyond);
    mesh.SetTextureCorners(t, corners);
  }
}

/// Of a flat sheet: nothing has slid, and no triangle lies on both sides of the jump. Returns triangles on the far side.
size_t CheckTexture(const SheetMesh& mesh) {
  size_t beyond = 0;
  for (uint32_t t = 0; t < mesh.triangle_slot_count(); ++t) {
    if (!mesh.IsTriangle(t)) continue;
    const TextureCorners& corners = mesh.TextureCornersOf(t);
    const Vector3d& first_m = mesh.PositionOf(mesh.TriangleVertices(t)[0]);
    const bool is_beyond = corners[0][0] - Projected(first_m, false)[0] > 5;
    beyond += is_beyond ? 1 : 0;
    for (size_t c = 0; c < 3; ++c) {
      const auto expected = Projected(mesh.PositionOf(mesh.TriangleVertices(t)[c]), is_beyond);
      EXPECT_NEAR(corners[c][0], expected[0], 2e-5) << "triangle " << t;
      EXPECT_NEAR(corners[c][1], expected[1], 2e-5) << "triangle " << t;
    }
  }
  return beyond;
}

/// Random carvings, refinements and cuts, of one seed.
std::vector<uint64_t> EditAtRandom(uint32_t seed, bool check) {
  std::mt19937 random(seed);
  const auto uniform = [&](double low, double high) { return low + (high - low) * (static_cast<double>(random()) / 4294967296.0); };
  SheetMesh mesh = seed % 2 == 0 ? MustBuild(GenerateDiscSurface(0.05, 0.008)) : MustBuild(GenerateSphereSurface(0.04, 0.008));
  SheetIncision incision(&mesh);
  const bool is_flat = seed % 2 == 0;
  if (is_flat) GiveTexture(mesh);
  std::vector<uint64_t> hashes;
  for (int round = 0; round < 24; ++round) {
    const double before_m2 = check ? Count(mesh).area_m2 : 0;
    double removed_m2 = 0;
    const Vector3d center(uniform(-0.05, 0.05), uniform(-0.05, 0.05), seed % 2 == 0 ? 0 : uniform(-0.04, 0.04));
    switch (random() % 3) {
      case 0: {
        const std::vector<TriangleId> ids = TrianglesIn(mesh, center, uniform(0.002, 0.012));
        for (const TriangleId id : ids) removed_m2 += mesh.RestArea(SlotOf(id));
        EXPECT_TRUE(mesh.Apply({.removed = ids}).ok());
        break;
      }
      case 1: {
        const auto result = RefineSheet(&mesh, TrianglesIn(mesh, center, uniform(0.004, 0.015)),
                                        {.max_edge_m = uniform(0.002, 0.006), .triangle_budget = 6000}, [](TriangleId) { return true; });
        EXPECT_TRUE(result.ok()) << result.status();
        break;
      }
      default: {
        const Vector3d along(uniform(-1, 1), uniform(-1, 1), uniform(-1, 1));
        Blade blade = {center + 0.03 * along, center - 0.03 * along};
        for (int k = 0; k < 4; ++k) {
          const Vector3d step(uniform(-0.02, 0.02), uniform(-0.02, 0.02), uniform(-0.01, 0.01));
          const Vector3d twist(uniform(-0.01, 0.01), uniform(-0.01, 0.01), uniform(-0.01, 0.01));
          const Blade to = {blade[0] + step + twist, blade[1] + step - twist};
          MustCut(mesh, incision, blade, to);
          if (check) Count(mesh);
          blade = to;
        }
        if (random() % 2 == 0) incision.EndStroke();
      }
    }
    hashes.push_back(mesh.hash());
    if (!check) continue;
    const Census after = Count(mesh);
    EXPECT_NEAR(after.area_m2, before_m2 - removed_m2, 1e-13) << "seed " << seed << ", round " << round;
    if (is_flat) {
      EXPECT_GT(CheckTexture(mesh), 20U);
    }
    if (testing::Test::HasFailure()) return hashes;
  }
  return hashes;
}

TEST(SheetEdits, AtRandomKeepAManifoldAndTheArea) {
  for (uint32_t seed = 0; seed < 8; ++seed) {
    const std::vector<uint64_t> hashes = EditAtRandom(seed, true);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
    EXPECT_EQ(EditAtRandom(seed, false), hashes) << "same edits, other mesh; seed " << seed;
  }
}

// Zones of the surface and of material go on in what edits make of a triangle, and in pieces.
TEST(SheetEdits, ZonesGoOnInWhatComesOfATriangle) {
  const auto surface = GenerateSheetSurface(0.1, 0.1, 0.008);
  ASSERT_TRUE(surface.ok()) << surface.status();
  const auto center_of = [](const auto& positions, const std::array<uint32_t, 3>& v) -> Vector3d {
    return (positions(v[0]) + positions(v[1]) + positions(v[2])) / 3;
  };
  const auto at = [&](uint32_t v) { return surface->vertices[v]; };
  // Bands along y, which the cuts cross, and along x.
  std::vector<SurfaceZoneId> zones;
  std::vector<TetZoneId> materials;
  for (const auto& triangle : surface->triangles) {
    zones.push_back(center_of(at, triangle).x() > 0 ? 2 : 0);
    materials.push_back(center_of(at, triangle).y() > 0.02 ? 3 : 1);
  }
  EXPECT_FALSE(SheetMesh::Build(surface->vertices, surface->triangles, zones, std::vector<TetZoneId>(3)).ok());
  auto built = SheetMesh::Build(surface->vertices, surface->triangles, zones, materials);
  ASSERT_TRUE(built.ok()) << built.status();
  SheetMesh mesh = *std::move(built);
  struct Areas {
    std::map<std::pair<SurfaceZoneId, TetZoneId>, double> m2;
    void Add(const SheetMesh& mesh) {
      for (uint32_t t = 0; t < mesh.triangle_slot_count(); ++t) {
        if (mesh.IsTriangle(t)) m2[{mesh.TriangleZoneOf(t), mesh.MaterialZoneOf(t)}] += mesh.RestArea(t);
      }
    }
  };
  Areas before;
  before.Add(mesh);
  ASSERT_EQ(before.m2.size(), 4U);
  struct Parents : SheetObserver {
    void OnSheetEdited(const SheetMesh& mesh, const SheetDelta& delta) override {
      std::map<TriangleId, TetZoneId> of_removed;
      for (const SheetDelta::RemovedTriangle& triangle : delta.removed_triangles) of_removed[triangle.id] = triangle.material;
      for (const SheetDelta::AddedTriangle& triangle : delta.added_triangles) {
        ASSERT_TRUE(of_removed.contains(triangle.parent));
        EXPECT_EQ(mesh.MaterialZoneOf(SlotOf(triangle.id)), of_removed[triangle.parent]);
        ++count;
      }
    }
    int count = 0;
  } parents;
  mesh.SetObserver(&parents);
  const auto refined = RefineSheet(&mesh, TrianglesIn(mesh, {0, 0.02, 0}, 0.03), {.max_edge_m = 0.004, .triangle_budget = 6000},
                                   [](TriangleId) { return true; });
  ASSERT_TRUE(refined.ok()) << refined.status();
  SheetIncision incision(&mesh);
  MustCut(mesh, incision, Upright(-0.09, 0.0113), Upright(0.09, 0.0113));
  EXPECT_GT(parents.count, 200);
  mesh.SetObserver(nullptr);
  const std::vector<ComponentId> components = mesh.Components();
  ASSERT_EQ(components.size(), 2U);
  auto piece = mesh.Detach(components[1]);
  ASSERT_TRUE(piece.ok()) << piece.status();
  Areas after;
  after.Add(mesh);
  after.Add(piece->mesh);
  ASSERT_EQ(after.m2.size(), 4U);
  // A cut moves vertices a little to spare slivers.
  for (const auto& [zone, m2] : before.m2) EXPECT_NEAR(after.m2[zone], m2, 0.01 * m2);
}

TEST(SheetEdits, DetachedPiecesAreWhatTheyWere) {
  SheetMesh mesh = MustBuild(GenerateSheetSurface(0.1, 0.1, 0.008));
  GiveTexture(mesh);
  SheetIncision incision(&mesh);
  const double area_m2 = Count(mesh).area_m2;
  MustCut(mesh, incision, Upright(-0.09, 0.0113), Upright(0.09, 0.0113));
  const std::vector<ComponentId> components = mesh.Components();
  ASSERT_EQ(components.size(), 2U);
  const ComponentId smaller =
      mesh.ComponentTriangleCount(components[0]) < mesh.ComponentTriangleCount(components[1]) ? components[0] : components[1];
  const size_t count = mesh.ComponentTriangleCount(smaller);
  auto piece = mesh.Detach(smaller);
  ASSERT_TRUE(piece.ok()) << piece.status();
  EXPECT_EQ(piece->mesh.triangle_count(), count);
  EXPECT_NEAR(Count(piece->mesh).area_m2 + Count(mesh).area_m2, area_m2, 1e-13);
  EXPECT_EQ(piece->source_triangles.size(), count);
  EXPECT_GT(CheckTexture(piece->mesh), 20U);
  EXPECT_GT(CheckTexture(mesh), 20U);
  EXPECT_EQ(mesh.Detach(smaller).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace palpate::sim::sheet_test
