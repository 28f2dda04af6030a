#include "sim/mesh/tet_mesh.h"

#include <limits>

#include "tests/sim/mesh/mesh_builders.h"

namespace palpate::sim::tet_mesh_test {
namespace {

TEST(TetMeshTest, VolumeOfUnitTetIsOneSixth) {
  TetMesh mesh = UnitTet();
  EXPECT_DOUBLE_EQ(TetVolume(mesh, 0), 1.0 / 6.0);
  std::swap(mesh.tets[0][0], mesh.tets[0][1]);
  EXPECT_DOUBLE_EQ(TetVolume(mesh, 0), -1.0 / 6.0);
}

TEST(TetMeshTest, AcceptsGoodMeshes) {
  EXPECT_TRUE(ValidateTetMesh(UnitTet()).ok());
  EXPECT_TRUE(ValidateTetMesh(BoxMesh(3, 4, 5)).ok());
  EXPECT_TRUE(ValidateTetMesh(ShakenBox(6, 1)).ok());
  // Size does not matter, only shape.
  EXPECT_TRUE(ValidateTetMesh(BoxMesh(1, 1, 1, 1e-30)).ok());
  EXPECT_TRUE(ValidateTetMesh(BoxMesh(1, 1, 1, 1e30)).ok());
}

TEST(TetMeshTest, RefusesEmptyMeshes) {
  ExpectInvalid(ValidateTetMesh({}), {"no tets"});
  ExpectInvalid(ValidateTetMesh({UnitTet().vertices, {}}), {"no tets"});
  ExpectInvalid(ValidateTetMesh({{}, {{0, 1, 2, 3}}}), {"no vertices"});
}

TEST(TetMeshTest, RefusesCoordinatesThatAreNotFinite) {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    TetMesh mesh = BoxMesh(2, 1, 1);
    mesh.vertices[7].y() = bad;
    ExpectInvalid(ValidateTetMesh(mesh), {"vertex 7", "not finite"});
  }
  TetMesh mesh = UnitTet();
  for (auto& v : mesh.vertices) v *= 1e200;
  ExpectInvalid(ValidateTetMesh(mesh), {"tet 0", "too large"});
}

TEST(TetMeshTest, RefusesWrongIndices) {
  TetMesh mesh = BoxMesh(1, 1, 1);
  mesh.tets[3][2] = 8;
  ExpectInvalid(ValidateTetMesh(mesh), {"tet 3", "index 8", "0..7"});
  mesh = BoxMesh(1, 1, 1);
  mesh.tets[2][3] = mesh.tets[2][0];
  ExpectInvalid(ValidateTetMesh(mesh), {"tet 2", "used twice"});
}

TEST(TetMeshTest, RefusesInvertedTets) {
  TetMesh mesh = BoxMesh(2, 2, 2);
  std::swap(mesh.tets[17][0], mesh.tets[17][1]);
  ExpectInvalid(ValidateTetMesh(mesh), {"tet 17", "inverted", "-0.166667 m^3"});
  ASSERT_TRUE(FindTetMeshDefect(mesh).has_value());
  EXPECT_TRUE(FindTetMeshDefect(mesh)->is_inverted);
  EXPECT_EQ(FindTetMeshDefect(mesh)->element, TetMeshDefect::Element::kTet);
  EXPECT_EQ(FindTetMeshDefect(mesh)->index, 17U);
}

TEST(TetMeshTest, RefusesDegenerateTetsRelativeToTheirSize) {
  for (const double scale : {1e-6, 1.0, 1e6}) {
    TetMesh mesh = UnitTet();
    mesh.vertices[3] = {0.25, 0.25, 1e-10};
    for (auto& v : mesh.vertices) v *= scale;
    ExpectInvalid(ValidateTetMesh(mesh), {"tet 0", "degenerate"});
    // Longest edge sqrt(2), volume height / 6: the bound is at a height of 6e-9 * 2.83.
    mesh.vertices[3].z() = 1.8e-8 * scale;
    EXPECT_TRUE(ValidateTetMesh(mesh).ok()) << ValidateTetMesh(mesh);
    mesh.vertices[3].z() = 1.6e-8 * scale;
    EXPECT_FALSE(ValidateTetMesh(mesh).ok());
  }
  TetMesh point = UnitTet();
  for (auto& v : point.vertices) v = {1, 2, 3};
  ExpectInvalid(ValidateTetMesh(point), {"tet 0", "degenerate"});
}

TEST(TetMeshTest, RefusesVerticesWithoutTet) {
  TetMesh mesh = BoxMesh(1, 1, 1);
  mesh.vertices.emplace_back(5, 5, 5);
  ExpectInvalid(ValidateTetMesh(mesh), {"vertex 8", "no tet"});
}

TEST(TetMeshTest, RefusesTrianglesOfThreeTets) {
  TetMesh mesh = UnitTet();
  mesh.vertices.emplace_back(1, 1, 1);
  mesh.vertices.emplace_back(2, 2, 2);
  mesh.tets.push_back({1, 2, 3, 4});
  mesh.tets.push_back({1, 2, 3, 5});
  ExpectInvalid(ValidateTetMesh(mesh), {"tet 2", "triangle 1 2 3", "tets 0 and 1"});
}

TEST(TetMeshTest, RefusesTwoTetsOnTheSameSideOfATriangle) {
  TetMesh mesh = UnitTet();
  mesh.vertices.emplace_back(0.2, 0.2, 0.5);
  mesh.tets.push_back({0, 1, 2, 4});
  ExpectInvalid(ValidateTetMesh(mesh), {"tet 1", "overlaps tet 0", "triangle 0 1 2"});
  // The same tet twice, in another order.
  mesh = UnitTet();
  mesh.tets.push_back({1, 2, 0, 3});
  ExpectInvalid(ValidateTetMesh(mesh), {"tet 1", "overlaps tet 0"});
}

TEST(TetMeshTest, BoundaryOfOneTetIsItsFourTriangles) {
  const BoundarySurface surface = ExtractBoundary(UnitTet());
  EXPECT_EQ(surface.vertices, (std::vector<uint32_t>{0, 1, 2, 3}));
  EXPECT_EQ(surface.triangles, (std::vector<std::array<uint32_t, 3>>{{1, 2, 3}, {0, 3, 2}, {0, 1, 3}, {0, 2, 1}}));
}

// Against the definition: all triangles in a map, those that occur once.
TEST(TetMeshTest, BoundaryMatchesBruteForce) {
  for (const TetMesh& mesh : {BoxMesh(1, 1, 1), BoxMesh(4, 3, 2), ShakenBox(5, 3)}) {
    std::map<std::array<uint32_t, 3>, int> uses;
    for (const auto& tet : mesh.tets) {
      for (size_t skip = 0; skip < 4; ++skip) {
        std::array<uint32_t, 3> key = {tet[(skip + 1) % 4], tet[(skip + 2) % 4], tet[(skip + 3) % 4]};
        std::sort(key.begin(), key.end());
        ++uses[key];
      }
    }
    std::vector<std::array<uint32_t, 3>> expected;
    for (const auto& [key, count] : uses) {
      if (count == 1) expected.push_back(key);
    }
    const BoundarySurface surface = ExtractBoundary(mesh);
    EXPECT_TRUE(std::is_sorted(surface.vertices.begin(), surface.vertices.end()));
    std::vector<std::array<uint32_t, 3>> found;
    for (const auto& t : surface.triangles) {
      std::array<uint32_t, 3> key = {surface.vertices[t[0]], surface.vertices[t[1]], surface.vertices[t[2]]};
      std::sort(key.begin(), key.end());
      found.push_back(key);
    }
    std::sort(found.begin(), found.end());
    EXPECT_EQ(found, expected);
  }
}

// The divergence theorem: an outward surface encloses what the tets fill.
TEST(TetMeshTest, BoundaryPointsOutwardAndLeavesOutInnerVertices) {
  const TetMesh mesh = BoxMesh(3, 3, 3, 0.5);
  const BoundarySurface boundary = ExtractBoundary(mesh);
  EXPECT_EQ(boundary.vertices.size(), 56U);
  EXPECT_EQ(boundary.triangles.size(), 108U);
  SurfaceMesh surface;
  for (const uint32_t v : boundary.vertices) surface.vertices.push_back(mesh.vertices[v]);
  surface.triangles = boundary.triangles;
  EXPECT_NEAR(EnclosedVolume(surface), 1.5 * 1.5 * 1.5, 1e-12);
}

}  // namespace
}  // namespace palpate::sim::tet_mesh_test
