#include "sim/mesh/surface_check.h"

#include <limits>

#include "tests/sim/mesh/mesh_builders.h"

namespace palpate::sim::surface_check_test {
namespace {

using Eigen::Vector3d;

SurfaceMesh Moved(SurfaceMesh surface, const Eigen::Affine3d& motion) {
  for (auto& v : surface.vertices) v = motion * v;
  return surface;
}

TEST(SurfaceCheckTest, AcceptsClosedSurfaces) {
  EXPECT_TRUE(CheckClosedSurface(CubeSurface()).ok()) << CheckClosedSurface(CubeSurface());
  EXPECT_TRUE(CheckClosedSurface(TorusSurface(64, 24)).ok()) << CheckClosedSurface(TorusSurface(64, 24));
  EXPECT_TRUE(CheckClosedSurface(CubeSurface({3, 4, 5}, 1e-9)).ok());
  const TetMesh box = BoxMesh(6, 5, 4);
  const BoundarySurface boundary = ExtractBoundary(box);
  SurfaceMesh flat;  // many triangles in common planes
  for (const uint32_t v : boundary.vertices) flat.vertices.push_back(box.vertices[v]);
  flat.triangles = boundary.triangles;
  EXPECT_TRUE(CheckClosedSurface(flat).ok()) << CheckClosedSurface(flat);
  flat.vertices.emplace_back(100, 100, 100);  // not used
  EXPECT_TRUE(CheckClosedSurface(flat).ok());
}

// 80,000 triangles: a quadratic search would take minutes.
TEST(SurfaceCheckTest, AcceptsALargeSurface) {
  const absl::Status status = CheckClosedSurface(TorusSurface(400, 100));
  EXPECT_TRUE(status.ok()) << status;
}

TEST(SurfaceCheckTest, RefusesBadElements) {
  ExpectInvalid(CheckClosedSurface({}), {"no triangles"});
  SurfaceMesh cube = CubeSurface();
  cube.vertices[3].z() = std::numeric_limits<double>::quiet_NaN();
  ExpectInvalid(CheckClosedSurface(cube), {"vertex 3", "not finite"});
  cube.vertices[3].z() = 1e31;
  ExpectInvalid(CheckClosedSurface(cube), {"vertex 3", "1e+30"});
  cube = CubeSurface();
  cube.triangles[4][1] = 8;
  ExpectInvalid(CheckClosedSurface(cube), {"triangle 4", "index 8", "8 vertices"});
  cube = CubeSurface();
  cube.triangles[4][1] = cube.triangles[4][0];
  ExpectInvalid(CheckClosedSurface(cube), {"triangle 4", "vertex twice"});
  cube = CubeSurface();
  cube.vertices[5] = cube.vertices[0] + 3.0 * (cube.vertices[4] - cube.vertices[0]);  // 0 5 4 on a line
  ExpectInvalid(CheckClosedSurface(cube), {"triangle 5", "degenerate"});
}

TEST(SurfaceCheckTest, RefusesOpenSurfaces) {
  SurfaceMesh cube = CubeSurface();
  cube.triangles.pop_back();
  ExpectInvalid(CheckClosedSurface(cube), {"open", "edge 1-5 at (1, 0, 0.5)", "triangle 4 alone"});
  // Closed to the eye, but the two halves do not share vertices.
  SurfaceMesh split = CubeSurface();
  split.vertices.push_back(split.vertices[0]);
  split.triangles[0][0] = 8;
  ExpectInvalid(CheckClosedSurface(split), {"open"});
}

TEST(SurfaceCheckTest, RefusesEdgesOfMoreThanTwoTriangles) {
  // Two tetrahedra that share an edge.
  SurfaceMesh surface;
  surface.vertices = {{0, 0, 0}, {0, 0, 1}, {1, 0, 0}, {1, 1, 0}, {-1, 0, 0}, {-1, -1, 0}};
  for (const auto& t : std::vector<std::array<uint32_t, 4>>{{0, 2, 3, 1}, {0, 4, 5, 1}}) {
    surface.triangles.push_back({t[0], t[2], t[1]});
    surface.triangles.push_back({t[0], t[1], t[3]});
    surface.triangles.push_back({t[1], t[2], t[3]});
    surface.triangles.push_back({t[0], t[3], t[2]});
  }
  ExpectInvalid(CheckClosedSurface(surface), {"not a manifold", "edge 0-1 at (0, 0, 0.5)", "4 triangles"});
}

TEST(SurfaceCheckTest, AcceptsPartsThatShareAVertex) {
  SurfaceMesh surface = CubeSurface();
  SurfaceMesh other = CubeSurface({1, 1, 1});
  surface = Together(surface, other);
  for (auto& t : surface.triangles) {
    for (uint32_t& v : t) v = v == 8 ? 7 : v;  // corner (1, 1, 1) of both
  }
  EXPECT_TRUE(CheckClosedSurface(surface).ok()) << CheckClosedSurface(surface);
}

TEST(SurfaceCheckTest, RefusesInconsistentOrientation) {
  SurfaceMesh cube = CubeSurface();
  std::swap(cube.triangles[6][1], cube.triangles[6][2]);
  ExpectInvalid(CheckClosedSurface(cube), {"inconsistent orientation", "6", "same direction"});
}

TEST(SurfaceCheckTest, RefusesInwardSurfaces) {
  ExpectInvalid(CheckClosedSurface(TurnedOver(CubeSurface())), {"inward", "volume -1"});
  // Far from the origin, where the sign of a volume about the origin is lost in rounding.
  ExpectInvalid(CheckClosedSurface(TurnedOver(CubeSurface({1e7, -1e7, 1e7}, 0.01))), {"inward"});
  EXPECT_TRUE(CheckClosedSurface(CubeSurface({1e7, -1e7, 1e7}, 0.01)).ok());
  // One of two, with the sum of the volumes still positive.
  ExpectInvalid(CheckClosedSurface(Together(CubeSurface({0, 0, 0}, 2.0), TurnedOver(CubeSurface({5, 0, 0})))), {"inward", "triangle 12"});
}

TEST(SurfaceCheckTest, RefusesWhatIsFlatButForRounding) {
  // In one plane, but for the rounding of tenths: the sign of that volume depends on the order of the coordinates.
  SurfaceMesh flat;
  for (const Vector3d& v : {Vector3d(1, 3, 7), Vector3d(1, 7, 5), Vector3d(8, 9, 10), Vector3d(8, 11, 9)}) flat.vertices.push_back(0.1 * v);
  flat.triangles = {{0, 1, 2}, {0, 3, 1}, {1, 3, 2}, {0, 2, 3}};
  for (int turn = 0; turn < 3; ++turn) {
    ExpectInvalid(CheckClosedSurface(flat), {"encloses no volume"});
    for (Vector3d& v : flat.vertices) v = Vector3d(v.y(), v.z(), v.x());
  }
  flat.vertices[3].x() += 1e-6;
  for (auto& t : flat.triangles) std::swap(t[1], t[2]);
  const bool is_good = CheckClosedSurface(flat).ok();
  for (auto& t : flat.triangles) std::swap(t[1], t[2]);
  EXPECT_NE(is_good, CheckClosedSurface(flat).ok()) << "thin, but not flat: one of both ways is outward";
}

TEST(SurfaceCheckTest, NestedPartsAlternate) {
  const SurfaceMesh outer = CubeSurface({0, 0, 0}, 10.0);
  const SurfaceMesh cavity = TurnedOver(CubeSurface({2, 2, 2}, 6.0));
  const SurfaceMesh core = CubeSurface({4, 4, 4}, 2.0);
  EXPECT_TRUE(CheckClosedSurface(Together(outer, cavity)).ok());
  EXPECT_TRUE(CheckClosedSurface(Together(Together(outer, cavity), core)).ok());
  ExpectInvalid(CheckClosedSurface(Together(outer, core)), {"nested", "triangle 12"});
  ExpectInvalid(CheckClosedSurface(Together(Together(outer, cavity), TurnedOver(core))), {"inward"});
}

TEST(SurfaceCheckTest, RefusesSurfacesThatCross) {
  ExpectInvalid(CheckClosedSurface(Together(CubeSurface(), CubeSurface({0.5, 0.5, 0.5}))), {"self-intersection", "triangle"});
  const Eigen::Affine3d through = Eigen::Translation3d(1, 0, 0) * Eigen::AngleAxisd(0.5 * std::numbers::pi, Vector3d::UnitX());
  ExpectInvalid(CheckClosedSurface(Together(TorusSurface(24, 12), Moved(TorusSurface(24, 12, 1.0, 0.8), through))), {"self-intersection"});
  // Two rings of a chain, on the other hand, are fine.
  const SurfaceMesh chain = Together(TorusSurface(24, 12), Moved(TorusSurface(24, 12), through));
  EXPECT_TRUE(CheckClosedSurface(chain).ok()) << CheckClosedSurface(chain);
}

TEST(SurfaceCheckTest, RefusesTouchingSurfaces) {
  // Face to face, edge in face, corner on face: none shares a vertex by index.
  ExpectInvalid(CheckClosedSurface(Together(CubeSurface(), CubeSurface({1, 0, 0}))), {"self-intersection"});
  ExpectInvalid(CheckClosedSurface(Together(CubeSurface(), CubeSurface({1, 0.25, 0.25}, 0.5))), {"self-intersection"});
  ExpectInvalid(CheckClosedSurface(Together(CubeSurface(), CubeSurface({1, 1, 1}))), {"self-intersection at (1, 1, 1)"});
  ExpectInvalid(CheckClosedSurface(Together(CubeSurface(), CubeSurface({1, 0.25, 1}, 0.5))), {"self-intersection at (1, 0.", ", 1)"});
  // One unit in the last place apart is apart.
  const double above = std::nextafter(1.0, 2.0);
  EXPECT_TRUE(CheckClosedSurface(Together(CubeSurface(), CubeSurface({above, 0, 0}))).ok());
}

TEST(SurfaceCheckTest, RefusesFoldsBetweenNeighbours) {
  // A vertex of the cube pushed through the opposite side: triangles that share a vertex or nothing cross.
  SurfaceMesh cube = CubeSurface();
  cube.vertices[7] = {-0.5, 0.4, 0.3};
  ExpectInvalid(CheckClosedSurface(cube), {"self-intersection"});
  // Two triangles back to back enclose nothing.
  SurfaceMesh pillow{{{0, 0, 0}, {1, 0, 0}, {0, 1, 0}}, {{0, 1, 2}, {0, 2, 1}}};
  ExpectInvalid(CheckClosedSurface(pillow), {"self-intersection"});
  // A flat tetrahedron with its apex in the base: neighbours folded onto each other.
  SurfaceMesh flat{{{0, 0, 0}, {1, 0, 0}, {0, 1, 0}, {0.25, 0.25, 0}}, {{0, 2, 1}, {0, 1, 3}, {1, 2, 3}, {2, 0, 3}}};
  ExpectInvalid(CheckClosedSurface(flat), {"self-intersection"});
}

// Oracle: a dense sample of one triangle against the other, for triangles well apart or well across each other.
TEST(SurfaceCheckTest, AgreesWithSamplingOnRandomPairsOfTetrahedra) {
  std::mt19937 random(11);
  std::uniform_real_distribution<double> coordinate(-1.0, 1.0);
  const auto tetrahedron = [&](const Vector3d& center) {
    SurfaceMesh surface;
    do {
      surface.vertices.clear();
      for (int k = 0; k < 4; ++k) surface.vertices.push_back(center + Vector3d(coordinate(random), coordinate(random), coordinate(random)));
      surface.triangles = {{0, 2, 1}, {0, 1, 3}, {1, 2, 3}, {0, 3, 2}};
    } while (EnclosedVolume(Moved(surface, Eigen::Affine3d(Eigen::Translation3d(-center)))) < 0.05);
    return surface;
  };
  // Barycentric coordinates of p; all positive inside.
  const auto inside_margin = [](const SurfaceMesh& t, const Vector3d& p) {
    double margin = 1.0;
    for (const auto& f : t.triangles) {
      const Vector3d n = (t.vertices[f[1]] - t.vertices[f[0]]).cross(t.vertices[f[2]] - t.vertices[f[0]]).normalized();
      margin = std::min(margin, -n.dot(p - t.vertices[f[0]]));
    }
    return margin;
  };
  int crossing = 0;
  int apart = 0;
  for (int i = 0; i < 400; ++i) {
    const SurfaceMesh a = tetrahedron({0, 0, 0});
    const SurfaceMesh b = tetrahedron({1.0 * (i % 3) * 0.5, 0, 0});
    bool has_inside = false;
    bool has_outside = false;
    for (const auto& f : b.triangles) {
      for (int u = 0; u <= 40; ++u) {
        for (int v = 0; u + v <= 40; ++v) {
          const Vector3d p = (b.vertices[f[0]] * u + b.vertices[f[1]] * v + b.vertices[f[2]] * (40 - u - v)) / 40.0;
          const double margin = inside_margin(a, p);
          has_inside |= margin > 1e-9;
          has_outside |= margin < -1e-9;
        }
      }
    }
    const absl::Status status = CheckClosedSurface(Together(a, b));
    if (has_inside && has_outside) {
      ++crossing;
      ExpectInvalid(status, {"self-intersection"});
    }
    if (status.ok()) {
      ++apart;
      EXPECT_FALSE(has_inside);
    }
  }
  EXPECT_GT(crossing, 50);
  EXPECT_GT(apart, 20);
}

// The verdict belongs to the shape, not to the order of its parts.
TEST(SurfaceCheckTest, VerdictDoesNotDependOnTheOrder) {
  std::mt19937 random(12);
  for (const SurfaceMesh& original : {TorusSurface(20, 10), Together(CubeSurface(), CubeSurface({0.5, 0.5, 0.999}))}) {
    const bool is_good = CheckClosedSurface(original).ok();
    for (int i = 0; i < 20; ++i) {
      SurfaceMesh shuffled = original;
      std::shuffle(shuffled.triangles.begin(), shuffled.triangles.end(), random);
      for (auto& t : shuffled.triangles) std::rotate(t.begin(), t.begin() + i % 3, t.end());
      EXPECT_EQ(CheckClosedSurface(shuffled).ok(), is_good);
    }
  }
}

}  // namespace
}  // namespace palpate::sim::surface_check_test
