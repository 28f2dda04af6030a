#include "sim/mesh/signed_distance.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <numbers>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sim/mesh/generators.h"
#include "sim/mesh/surface_check.h"
#include "tests/sim/mesher/mesh_probe.h"

namespace palpate::sim::signed_distance_test {
namespace {

using Eigen::Vector3d;
using ::testing::HasSubstr;

SurfaceMesh Cube(double half_m, const Vector3d& center_m = Vector3d::Zero()) {
  SurfaceMesh cube;
  for (int v = 0; v < 8; ++v) {
    cube.vertices.push_back(center_m + half_m * Vector3d((v & 1) != 0 ? 1 : -1, (v & 2) != 0 ? 1 : -1, (v & 4) != 0 ? 1 : -1));
  }
  cube.triangles = {{0, 2, 3}, {0, 3, 1}, {4, 5, 7}, {4, 7, 6}, {0, 1, 5}, {0, 5, 4},
                    {2, 6, 7}, {2, 7, 3}, {0, 4, 6}, {0, 6, 2}, {1, 3, 7}, {1, 7, 5}};
  return cube;
}

void Append(const SurfaceMesh& part, SurfaceMesh* whole) {
  const auto offset = static_cast<uint32_t>(whole->vertices.size());
  whole->vertices.insert(whole->vertices.end(), part.vertices.begin(), part.vertices.end());
  for (const auto& t : part.triangles) whole->triangles.push_back({t[0] + offset, t[1] + offset, t[2] + offset});
}

SurfaceMesh Flipped(SurfaceMesh surface) {
  for (auto& t : surface.triangles) std::swap(t[1], t[2]);
  return surface;
}

double BoxDistance(const Vector3d& x, double half_m) {
  const Vector3d q = x.cwiseAbs() - Vector3d::Constant(half_m);
  return q.cwiseMax(0).norm() + std::min(q.maxCoeff(), 0.0);
}

// Winding number by solid angles (van Oosterom and Strackee): about 1 inside, 0 outside.
double WindingNumber(const SurfaceMesh& surface, const Vector3d& x) {
  double sum = 0;
  for (const auto& t : surface.triangles) {
    const Vector3d a = surface.vertices[t[0]] - x;
    const Vector3d b = surface.vertices[t[1]] - x;
    const Vector3d c = surface.vertices[t[2]] - x;
    sum +=
        2 * std::atan2(a.dot(b.cross(c)), a.norm() * b.norm() * c.norm() + a.dot(b) * c.norm() + b.dot(c) * a.norm() + c.dot(a) * b.norm());
  }
  return sum / (4 * std::numbers::pi);
}

// Distance to a triangle by a route of its own: inside the prism over it the plane's distance, else the nearest of the three segments.
double TriangleDistance(const Vector3d& x, const Vector3d& a, const Vector3d& b, const Vector3d& c) {
  const Vector3d n = (b - a).cross(c - a).normalized();
  double best = 1e300;
  bool in_prism = true;
  for (const auto& [p, q] : {std::pair(a, b), std::pair(b, c), std::pair(c, a)}) {
    const double s = std::clamp((x - p).dot(q - p) / (q - p).squaredNorm(), 0.0, 1.0);
    best = std::min(best, (p + s * (q - p) - x).norm());
    in_prism = in_prism && n.cross(q - p).dot(x - p) >= 0;
  }
  return in_prism ? std::min(best, std::abs(n.dot(x - a))) : best;
}

TEST(SignedDistance, EqualsTheBoxDistanceInAllRegions) {
  const SignedDistance distance(Cube(0.5));
  std::mt19937 random(3);
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (int i = 0; i < 20000; ++i) {
    const Vector3d x(uniform(random), uniform(random), uniform(random));
    EXPECT_NEAR(distance(x), BoxDistance(x, 0.5), 1e-14);
    EXPECT_NEAR((distance.ClosestPoint(x) - x).norm(), std::abs(BoxDistance(x, 0.5)), 1e-14);
  }
  // features themselves and points straight off edges, corners and the middle
  for (const double s : {-0.7, -0.5, 0.0, 0.5, 0.7}) {
    for (const double t : {-0.7, -0.5, 0.0, 0.5, 0.7}) {
      for (const double u : {-0.7, -0.5, 0.0, 0.5, 0.7}) EXPECT_NEAR(distance({s, t, u}), BoxDistance({s, t, u}, 0.5), 1e-14);
    }
  }
}

TEST(SignedDistance, AgreesWithBruteForceOnACurvedSurface) {
  const auto liver = GenerateLiver(0.2, 0.02);
  ASSERT_TRUE(liver.ok());
  const SurfaceMesh surface = BoundaryOf(*liver);
  ASSERT_TRUE(CheckClosedSurface(surface).ok());
  const SignedDistance distance(surface);
  std::mt19937 random(11);
  std::uniform_real_distribution<double> uniform(-0.12, 0.12);
  int inside = 0;
  for (int i = 0; i < 2000; ++i) {
    const Vector3d x(uniform(random), uniform(random), uniform(random));
    double best = 1e300;
    for (const auto& t : surface.triangles) {
      best = std::min(best, TriangleDistance(x, surface.vertices[t[0]], surface.vertices[t[1]], surface.vertices[t[2]]));
    }
    const double value = distance(x);
    EXPECT_NEAR(std::abs(value), best, 1e-12);
    inside += value < 0 ? 1 : 0;
    if (best <= 1e-9) continue;
    const bool wound = WindingNumber(surface, x) > 0.5;
    EXPECT_EQ(value < 0, wound) << x.transpose();
  }
  EXPECT_GT(inside, 50);
}

TEST(SignedDistance, SignIsRightBesideSharpEdges) {
  // a thin blade: the closest feature is often an edge or a vertex with a small angle
  SurfaceMesh blade;
  blade.vertices = {{0, 0, 0}, {1, 0, 0}, {0.5, 1, 0}, {0.5, 0.3, 0.02}};
  blade.triangles = {{0, 2, 1}, {0, 1, 3}, {1, 2, 3}, {2, 0, 3}};
  ASSERT_TRUE(CheckClosedSurface(blade).ok());
  const SignedDistance distance(blade);
  std::mt19937 random(5);
  std::uniform_real_distribution<double> uniform(-0.1, 1.1);
  for (int i = 0; i < 20000; ++i) {
    const Vector3d x(uniform(random), uniform(random), 0.05 * uniform(random) - 0.01);
    if (std::abs(distance(x)) < 1e-9) continue;
    const bool wound = WindingNumber(blade, x) > 0.5;
    EXPECT_EQ(distance(x) < 0, wound) << x.transpose();
  }
}

TEST(MeshSurface, FillsASurfaceWithTheSameVolumeAndTopology) {
  const auto source = GenerateTorus(0.06, 0.02, 0.006);
  ASSERT_TRUE(source.ok());
  StuffingOptions options;
  options.edge_length_m = 0.007;
  const auto mesh = MeshSurface(BoundaryOf(*source), options);
  ASSERT_TRUE(mesh.ok()) << mesh.status();
  EXPECT_SOUND(*mesh);
  const Shape shape = Measure(*mesh);
  EXPECT_EQ(shape.euler, 0);
  EXPECT_EQ(shape.pieces, 1);
  EXPECT_NEAR(shape.tet_volume_m3, Measure(*source).tet_volume_m3, 0.02 * shape.tet_volume_m3);
  const AngleRange range = DihedralAngles(*mesh);
  EXPECT_GE(range.min_deg, kStuffingMinDihedralDeg);
  EXPECT_LE(range.max_deg, kStuffingMaxDihedralDeg);
}

TEST(MeshSurface, KeepsCavitiesAndSeparateParts) {
  SurfaceMesh surface = Cube(0.5);
  Append(Flipped(Cube(0.25)), &surface);
  Append(Cube(0.3, {1.2, 0, 0}), &surface);
  StuffingOptions options;
  options.edge_length_m = 0.05;
  const auto mesh = MeshSurface(surface, options);
  ASSERT_TRUE(mesh.ok()) << mesh.status();
  EXPECT_SOUND(*mesh);
  const Shape shape = Measure(*mesh);
  EXPECT_EQ(shape.pieces, 2);
  EXPECT_EQ(shape.boundary_pieces, 3);
  EXPECT_NEAR(shape.tet_volume_m3, 1 - 0.125 + 0.216, 0.06);
}

TEST(MeshSurface, MoreTrianglesThanLatticePointsIsNoProblem) {
  const auto source = GenerateSphere(0.05, 0.0026);
  ASSERT_TRUE(source.ok());
  const SurfaceMesh surface = BoundaryOf(*source);
  ASSERT_GT(surface.triangles.size(), 10'000U);
  StuffingOptions options;
  options.edge_length_m = 0.01;
  const auto mesh = MeshSurface(surface, options);
  ASSERT_TRUE(mesh.ok()) << mesh.status();
  EXPECT_SOUND(*mesh);
  EXPECT_EQ(Measure(*mesh).euler, 2);
}

void ExpectInvalid(const SurfaceMesh& surface, double edge_length_m, const std::string& word) {
  StuffingOptions options;
  options.edge_length_m = edge_length_m;
  const auto mesh = MeshSurface(surface, options);
  ASSERT_FALSE(mesh.ok());
  EXPECT_EQ(mesh.status().code(), absl::StatusCode::kInvalidArgument) << mesh.status();
  EXPECT_THAT(std::string(mesh.status().message()), HasSubstr(word));
}

TEST(MeshSurface, RefusesSurfacesThatBoundNoSolid) {
  SurfaceMesh open = Cube(0.5);
  open.triangles.pop_back();
  ExpectInvalid(open, 0.1, "edge");
  ExpectInvalid(Flipped(Cube(0.5)), 0.1, "");
  SurfaceMesh crossing = Cube(0.5);
  Append(Cube(0.5, {0.5, 0.3, 0.2}), &crossing);
  ExpectInvalid(crossing, 0.1, "triangle");
  SurfaceMesh wrong_index = Cube(0.5);
  wrong_index.triangles[3][1] = 99;
  ExpectInvalid(wrong_index, 0.1, "99");
  ExpectInvalid(SurfaceMesh{}, 0.1, "");
}

TEST(MeshSurface, SaysWhenTheEdgeLengthIsTooCoarse) { ExpectInvalid(Cube(0.01), 1, "edge_length_m = 1"); }

// Reads the v and f lines of an OBJ file.
SurfaceMesh ReadObj(const std::string& path) {
  SurfaceMesh surface;
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    if (kind == "v") {
      Vector3d x;
      words >> x[0] >> x[1] >> x[2];
      surface.vertices.push_back(x);
    } else if (kind == "f") {
      std::array<uint32_t, 3> triangle{};
      for (uint32_t& v : triangle) {
        std::string corner;
        words >> corner;
        v = static_cast<uint32_t>(std::stoul(corner)) - 1;
      }
      surface.triangles.push_back(triangle);
    }
  }
  return surface;
}

TEST(MeshSurface, MeshesOrRefusesTheBunny) {
  const char* data = std::getenv("PALPATE_DATA_DIR");
  if (data == nullptr) GTEST_SKIP() << "PALPATE_DATA_DIR is not set: no mesh/bunny_10k.obj";
  const SurfaceMesh bunny = ReadObj(std::string(data) + "/mesh/bunny_10k.obj");
  if (bunny.triangles.empty()) GTEST_SKIP() << "no mesh/bunny_10k.obj in PALPATE_DATA_DIR";
  Eigen::AlignedBox3d bounds;
  for (const Vector3d& x : bunny.vertices) bounds.extend(x);
  StuffingOptions options;
  options.edge_length_m = bounds.sizes().maxCoeff() / 25;
  const auto mesh = MeshSurface(bunny, options);
  const absl::Status check = CheckClosedSurface(bunny);
  if (!check.ok()) {
    EXPECT_EQ(mesh.status(), check);
    return;
  }
  ASSERT_TRUE(mesh.ok()) << mesh.status();
  EXPECT_SOUND(*mesh);
  const AngleRange range = DihedralAngles(*mesh);
  EXPECT_GE(range.min_deg, kStuffingMinDihedralDeg);
  EXPECT_LE(range.max_deg, kStuffingMaxDihedralDeg);
  double volume = 0;
  for (const auto& t : bunny.triangles) volume += bunny.vertices[t[0]].dot(bunny.vertices[t[1]].cross(bunny.vertices[t[2]])) / 6;
  EXPECT_NEAR(Measure(*mesh).tet_volume_m3, volume, 0.03 * volume);
}

// Two cubes that stand in each other: the union is meant.
SurfaceMesh CrossedCubes() {
  SurfaceMesh surface = Cube(0.05);
  Append(Cube(0.05, Vector3d(0.031, 0.027, 0.041)), &surface);
  return surface;
}

TEST(WindingNumberTest, CountsLikeTheSolidAngle) {
  SurfaceMesh surface = CrossedCubes();
  Append(Flipped(Cube(0.01, Vector3d(-0.03, -0.03, -0.03))), &surface);  // a cavity
  const SignedDistance distance(surface, SideRule::kWindingNumber);
  std::mt19937 random(5);
  std::uniform_real_distribution<double> place(-0.1, 0.13);
  std::array<int, 4> seen{};
  for (int i = 0; i < 4000; ++i) {
    const Vector3d x(place(random), place(random), place(random));
    const int expected = static_cast<int>(std::lround(WindingNumber(surface, x)));
    ASSERT_EQ(distance.WindingNumber(x), expected) << x.transpose();
    ASSERT_EQ(distance(x) < 0, expected > 0) << x.transpose();
    ++seen[static_cast<size_t>(expected)];
  }
  EXPECT_GT(seen[1], 0);
  EXPECT_GT(seen[2], 0);
}

// Points from which every ray of a lesser choice would meet edges and corners.
TEST(WindingNumberTest, CountsFromTheAxesOfACube) {
  const SignedDistance distance(Cube(1), SideRule::kWindingNumber);
  for (const double x : {-2.0, -1.5, -0.5, 0.0, 0.25, 0.5, 2.0}) {
    for (const double y : {-1.5, 0.0, 0.5}) {
      for (const double z : {-0.5, 0.0, 0.5, 3.0}) {
        const bool is_inside = std::max({std::abs(x), std::abs(y), std::abs(z)}) < 1;
        EXPECT_EQ(distance.WindingNumber({x, y, z}), is_inside ? 1 : 0) << x << " " << y << " " << z;
      }
    }
  }
}

TEST(MeshSurfaceTest, FillsWhatCrossesItselfAsOneSolidWhenAllowed) {
  const SurfaceMesh surface = CrossedCubes();
  StuffingOptions options;
  options.edge_length_m = 0.008;
  const absl::Status refused = MeshSurface(surface, options).status();
  EXPECT_THAT(std::string(refused.message()), HasSubstr("self-intersection"));
  uint64_t pairs = 0;
  const std::string message(refused.message());
  const std::string flag = "--allow-self-intersections ";
  ASSERT_THAT(message, HasSubstr(flag));
  std::istringstream(message.substr(message.find(flag) + flag.size())) >> pairs;
  ASSERT_GT(pairs, 1U);
  EXPECT_FALSE(MeshSurface(surface, options, pairs - 1).ok());
  const auto mesh = MeshSurface(surface, options, pairs);
  ASSERT_TRUE(mesh.ok()) << mesh.status();
  double volume_m3 = 0;
  for (size_t t = 0; t < mesh->tets.size(); ++t) volume_m3 += TetVolume(*mesh, t);
  const double both_m3 = 2 * 0.1 * 0.1 * 0.1;
  const double shared_m3 = (0.1 - 0.031) * (0.1 - 0.027) * (0.1 - 0.041);
  EXPECT_NEAR(volume_m3, both_m3 - shared_m3, 0.02 * both_m3) << "the overlap counts once";
}

}  // namespace
}  // namespace palpate::sim::signed_distance_test
