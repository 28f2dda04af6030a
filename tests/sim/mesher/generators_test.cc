#include "sim/mesh/generators.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sim/mesh/surface_check.h"
#include "tests/sim/mesher/mesh_probe.h"

namespace palpate::sim::generators_test {
namespace {

using Eigen::Vector3d;
using ::testing::HasSubstr;

Eigen::AlignedBox3d BoundsOf(const TetMesh& mesh) {
  Eigen::AlignedBox3d bounds;
  for (const Vector3d& x : mesh.vertices) bounds.extend(x);
  return bounds;
}

void ExpectInvalid(const absl::StatusOr<TetMesh>& mesh, const std::string& name, const std::string& range) {
  ASSERT_FALSE(mesh.ok());
  EXPECT_EQ(mesh.status().code(), absl::StatusCode::kInvalidArgument) << mesh.status();
  EXPECT_THAT(std::string(mesh.status().message()), HasSubstr(name));
  EXPECT_THAT(std::string(mesh.status().message()), HasSubstr(range));
}

TEST(GenerateLiver, IsOnePieceOfTheStatedLengthAtEveryResolution) {
  for (const double edges_per_length : {5.0, 6.1, 7.32, 8.5, 10.0, 11.72, 14.9, 18.74, 25.0}) {
    SCOPED_TRACE(edges_per_length);
    const auto mesh = GenerateLiver(0.2, 0.2 / edges_per_length);
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    EXPECT_SOUND(*mesh);
    const Shape shape = Measure(*mesh);
    EXPECT_EQ(shape.pieces, 1);
    EXPECT_EQ(shape.boundary_pieces, 1);
    EXPECT_EQ(shape.euler, 2);
    const Eigen::AlignedBox3d bounds = BoundsOf(*mesh);
    EXPECT_NEAR(bounds.sizes()[0], 0.2, 0.5 * 0.2 / edges_per_length);
    EXPECT_TRUE(LiverBounds(0.2).contains(bounds));
    // deeper and higher on the right (-x) than on the left
    double right_low = 0;
    double left_low = 0;
    for (const Vector3d& x : mesh->vertices) {
      if (x[0] < -0.03) right_low = std::min(right_low, x[2]);
      if (x[0] > 0.05) left_low = std::min(left_low, x[2]);
    }
    EXPECT_LT(right_low, left_low - 0.02);
  }
  const auto fine = GenerateLiver(0.2, 0.2 / 30);
  ASSERT_TRUE(fine.ok());
  EXPECT_NEAR(BoundsOf(*fine).sizes()[0], 0.2, 0.002);
}

TEST(GenerateLiver, ScalesWithItsLength) {
  const auto small = GenerateLiver(0.05, 0.005);
  const auto large = GenerateLiver(0.4, 0.04);
  ASSERT_TRUE(small.ok() && large.ok());
  EXPECT_NEAR(Measure(*large).tet_volume_m3 / Measure(*small).tet_volume_m3, 512, 5);
  // the default edge is a tenth of the length
  const auto by_default = GenerateLiver(0.2);
  const auto a_tenth = GenerateLiver(0.2, 0.02);
  ASSERT_TRUE(by_default.ok() && a_tenth.ok());
  EXPECT_EQ(by_default->tets, a_tenth->tets);
  EXPECT_EQ(by_default->vertices, a_tenth->vertices);
}

TEST(GenerateLiver, HitsTheTetCountsOfTheBenchmarks) {
  for (const double tets : {600.0, 2500.0, 10000.0, 50000.0}) {
    SCOPED_TRACE(tets);
    const auto mesh = GenerateLiver(0.2, LiverEdgeLengthForTets(0.2, tets));
    ASSERT_TRUE(mesh.ok());
    EXPECT_NEAR(static_cast<double>(mesh->tets.size()), tets, 0.03 * tets);
  }
  for (const double tets : {300.0, 1200.0, 5000.0, 20000.0}) {
    SCOPED_TRACE(tets);
    const auto mesh = GenerateLiver(0.3, LiverEdgeLengthForTets(0.3, tets));
    ASSERT_TRUE(mesh.ok());
    EXPECT_NEAR(static_cast<double>(mesh->tets.size()), tets, 0.15 * tets);
  }
  double last = 1;
  for (double tets = 200; tets < 5e6; tets *= 1.3) {
    const double edge_length_m = LiverEdgeLengthForTets(0.2, tets);
    EXPECT_LT(edge_length_m, last);
    last = edge_length_m;
  }
}

TEST(GenerateTorus, HasOneHole) {
  for (const double edge_length_m : {0.0, 0.025, 0.012, 0.008}) {
    SCOPED_TRACE(edge_length_m);
    const auto mesh = GenerateTorus(0.06, 0.02, edge_length_m);
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    EXPECT_SOUND(*mesh);
    EXPECT_EQ(Measure(*mesh).euler, 0);
    EXPECT_EQ(Measure(*mesh).pieces, 1);
    const Vector3d size = BoundsOf(*mesh).sizes();
    EXPECT_NEAR(size[0], 0.16, 0.01);
    EXPECT_NEAR(size[2], 0.04, 0.01);
  }
  // the coarsest allowed, for thin and fat tubes
  for (const double minor_radius_m : {0.01, 0.03, 0.05}) {
    SCOPED_TRACE(minor_radius_m);
    const auto mesh = GenerateTorus(0.06, minor_radius_m, 1.25 * std::min(minor_radius_m, 0.06 - minor_radius_m));
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    EXPECT_SOUND(*mesh);
    EXPECT_EQ(Measure(*mesh).euler, 0);
    EXPECT_EQ(Measure(*mesh).pieces, 1);
  }
}

TEST(GenerateSphere, HasTheRadius) {
  const auto mesh = GenerateSphere(0.05, 0.006);
  ASSERT_TRUE(mesh.ok()) << mesh.status();
  EXPECT_SOUND(*mesh);
  const Shape shape = Measure(*mesh);
  EXPECT_EQ(shape.euler, 2);
  for (const uint32_t v : shape.boundary_vertices) EXPECT_NEAR(mesh->vertices[v].norm(), 0.05, 1e-7);
  ASSERT_TRUE(GenerateSphere().ok());
}

TEST(GenerateSlab, IsAnExactBox) {
  const auto mesh = GenerateSlab({0.1, 0.08, 0.02}, 0.007);
  ASSERT_TRUE(mesh.ok()) << mesh.status();
  EXPECT_SOUND(*mesh);
  const Eigen::AlignedBox3d bounds = BoundsOf(*mesh);
  EXPECT_EQ(bounds.min(), Vector3d(-0.05, -0.04, -0.01));
  EXPECT_EQ(bounds.max(), Vector3d(0.05, 0.04, 0.01));
  EXPECT_NEAR(Measure(*mesh).tet_volume_m3, 0.1 * 0.08 * 0.02, 1e-18);
  // 14 x 11 x 3 cells of five tets
  EXPECT_EQ(mesh->tets.size(), 14U * 11 * 3 * 5);
  ASSERT_TRUE(GenerateSlab().ok());
}

TEST(GenerateKidney, IsABean) {
  for (const double edges_per_length : {5.0, 8.0, 15.0, 30.0}) {
    SCOPED_TRACE(edges_per_length);
    const auto mesh = GenerateKidney(0.11, 0.11 / edges_per_length);
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    EXPECT_SOUND(*mesh);
    EXPECT_EQ(Measure(*mesh).euler, 2);
    EXPECT_EQ(Measure(*mesh).pieces, 1);
    EXPECT_NEAR(BoundsOf(*mesh).sizes()[0], 0.11, 0.5 * 0.11 / edges_per_length);
  }
  // the dent: in the middle the surface stays behind what it reaches at the sides
  const auto mesh = GenerateKidney(1, 0.03);
  ASSERT_TRUE(mesh.ok());
  double middle = 0;
  double sides = 0;
  for (const Vector3d& x : mesh->vertices) {
    double& low = std::abs(x[0]) < 0.04 ? middle : sides;
    low = std::min(low, x[1]);
  }
  EXPECT_GT(middle, sides + 0.04);
}

/// The centre line of a swept tube of `disc_size` vertices a section.
std::vector<Vector3d> CenterLine(const TetMesh& mesh, size_t disc_size) {
  std::vector<Vector3d> line;
  for (size_t v = 0; v < mesh.vertices.size(); v += disc_size) line.push_back(mesh.vertices[v]);
  return line;
}

/// Where a line's projection along z crosses itself.
struct Crossing {
  double under = 0, over = 0;  ///< places on the line
  int sign = 0;
};
std::vector<Crossing> Crossings(const std::vector<Vector3d>& line, bool is_closed) {
  std::vector<Crossing> out;
  const size_t n = line.size();
  const size_t segments = is_closed ? n : n - 1;
  for (size_t i = 0; i < segments; ++i) {
    for (size_t j = i + 2; j < segments; ++j) {
      if (is_closed && i == 0 && j == n - 1) continue;
      const Vector3d a = line[(i + 1) % n] - line[i];
      const Vector3d b = line[(j + 1) % n] - line[j];
      const Vector3d d = line[j] - line[i];
      const double cross = a[0] * b[1] - a[1] * b[0];
      const double s = (d[0] * b[1] - d[1] * b[0]) / cross;
      const double t = (d[0] * a[1] - d[1] * a[0]) / cross;
      if (!(s >= 0 && s < 1 && t >= 0 && t < 1)) continue;
      const bool i_over = line[i][2] + s * a[2] > line[j][2] + t * b[2];
      const double at_i = static_cast<double>(i) + s;
      const double at_j = static_cast<double>(j) + t;
      out.push_back({i_over ? at_j : at_i, i_over ? at_i : at_j, (cross > 0) == i_over ? 1 : -1});
    }
  }
  return out;
}

/// A diagram of three alternating crossings of one sign is the trefoil's.
void ExpectTrefoil(const std::vector<Vector3d>& line, bool is_closed) {
  const std::vector<Crossing> crossings = Crossings(line, is_closed);
  ASSERT_EQ(crossings.size(), 3U);
  std::vector<std::pair<double, bool>> passes;
  for (const Crossing& c : crossings) {
    EXPECT_EQ(c.sign, crossings[0].sign);
    passes.emplace_back(c.under, false);
    passes.emplace_back(c.over, true);
  }
  std::sort(passes.begin(), passes.end());
  for (size_t i = 0; i + 1 < passes.size(); ++i) EXPECT_NE(passes[i].second, passes[i + 1].second);
}

struct KnotCase {
  KnotEnds ends;
  double radius_m;  ///< for an extent of 1
  double edge_m;
};

TEST(GenerateKnot, IsAKnottedTubeThatDoesNotMeetItself) {
  for (const KnotCase& c :
       {KnotCase{KnotEnds::kClosed, 0, 0}, KnotCase{KnotEnds::kClosed, 0.08, 0.04},
        KnotCase{KnotEnds::kClosed, kMaxClosedKnotTubePerExtent, kMaxClosedKnotTubePerExtent / 3},
        KnotCase{KnotEnds::kClosed, kMaxClosedKnotTubePerExtent, kMaxClosedKnotTubePerExtent}, KnotCase{KnotEnds::kClosed, 0.03, 0.03},
        KnotCase{KnotEnds::kOpen, 0, 0}, KnotCase{KnotEnds::kOpen, kMaxOpenKnotTubePerExtent, kMaxOpenKnotTubePerExtent / 2},
        KnotCase{KnotEnds::kOpen, 0.01, 0.01}}) {
    SCOPED_TRACE(testing::Message() << (c.ends == KnotEnds::kClosed ? "closed" : "open") << " radius " << c.radius_m << " edge "
                                    << c.edge_m);
    const bool is_closed = c.ends == KnotEnds::kClosed;
    const auto mesh = GenerateKnot(c.ends, 1, c.radius_m, c.edge_m);
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    EXPECT_SOUND(*mesh);
    const Shape shape = Measure(*mesh);
    EXPECT_EQ(shape.pieces, 1);
    EXPECT_EQ(shape.boundary_pieces, 1);
    EXPECT_EQ(shape.euler, is_closed ? 0 : 2);
    // exact: no two triangles of the surface meet
    EXPECT_TRUE(CheckClosedSurface(BoundaryOf(*mesh)).ok()) << CheckClosedSurface(BoundaryOf(*mesh));
    const double radius = c.radius_m > 0 ? c.radius_m : is_closed ? kDefaultClosedKnotTubePerExtent : kDefaultOpenKnotTubePerExtent;
    const double edge = c.edge_m > 0 ? c.edge_m : radius;
    const auto rings = static_cast<size_t>(std::round(radius / edge));
    const size_t disc_size = 1 + 3 * rings * (rings + 1);
    ASSERT_EQ(mesh->vertices.size() % disc_size, 0U);
    const std::vector<Vector3d> line = CenterLine(*mesh, disc_size);
    ExpectTrefoil(line, is_closed);
    Eigen::AlignedBox3d bounds;
    for (const Vector3d& x : line) bounds.extend(x);
    EXPECT_NEAR(bounds.sizes()[0], 1, 0.02);
    // equal distances; the volume is the section's times the length, less what a polygon cuts off
    double length = 0;
    double shortest = 1e9;
    double longest = 0;
    for (size_t i = 0; i + (is_closed ? 0 : 1) < line.size(); ++i) {
      const double step = (line[(i + 1) % line.size()] - line[i]).norm();
      length += step;
      shortest = std::min(shortest, step);
      longest = std::max(longest, step);
    }
    EXPECT_GT(shortest, 0.9 * longest);
    EXPECT_NEAR(longest, edge, 0.05 * edge);
    EXPECT_NEAR(length, is_closed ? kClosedKnotLengthPerExtent : kOpenKnotLengthPerExtent, 0.03 * length);
    const double sides = 6.0 * static_cast<double>(rings);
    const double area = sides / 2 * std::sin(2 * std::numbers::pi / sides) * radius * radius;
    EXPECT_NEAR(shape.tet_volume_m3, area * length, 0.08 * area * length);
    const AngleRange angles = DihedralAngles(*mesh);
    EXPECT_GT(angles.min_deg, 15);
    EXPECT_LT(angles.max_deg, 150);
    // every vertex of a disc lies in the tube, the last ring on it
    for (size_t v = 0; v < mesh->vertices.size(); ++v) {
      const double r = (mesh->vertices[v] - line[v / disc_size]).norm();
      EXPECT_LE(r, radius * (1 + 1e-9));
      if (v % disc_size >= disc_size - 6 * rings) {
        EXPECT_NEAR(r, radius, 1e-9 * radius);
      }
    }
    if (!is_closed) {
      // both tails end on one line along x, which is the direction of the end faces
      EXPECT_NEAR(line.front()[0], -0.5, 1e-9);
      EXPECT_NEAR(line.back()[0], 0.5, 1e-9);
      EXPECT_NEAR((line.front() - line.back()).tail<2>().norm(), 0, 1e-9);
      EXPECT_NEAR(std::abs((line[1] - line[0]).normalized()[0]), 1, 1e-3);
    }
  }
}

TEST(GenerateKnot, RatiosAreNineTenthsOfTouching) {
  // Thickness of a curve: the smaller of the radius of curvature and half the distance between strands.
  for (const KnotEnds ends : {KnotEnds::kClosed, KnotEnds::kOpen}) {
    const bool is_closed = ends == KnotEnds::kClosed;
    const auto mesh = GenerateKnot(ends, 1, 0.005, 0.005);
    ASSERT_TRUE(mesh.ok());
    const std::vector<Vector3d> line = CenterLine(*mesh, 7);
    const size_t n = line.size();
    double radius = 1e9;
    for (size_t i = 1; i + 1 < n; ++i) {
      const Vector3d a = line[i] - line[i - 1];
      const Vector3d b = line[i + 1] - line[i];
      radius = std::min(radius, a.norm() * b.norm() * (a + b).norm() / (2 * a.cross(b).norm()));
    }
    double half = 1e9;
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < i; ++j) {
        const size_t apart = is_closed ? std::min(i - j, n - (i - j)) : i - j;
        if (static_cast<double>(apart) * 0.005 > std::numbers::pi * radius) half = std::min(half, (line[i] - line[j]).norm() / 2);
      }
    }
    EXPECT_NEAR(is_closed ? kMaxClosedKnotTubePerExtent : kMaxOpenKnotTubePerExtent, 0.9 * std::min(radius, half), 0.01 * half);
  }
}

TEST(GenerateSheet, KeepsItsLayers) {
  for (const uint32_t layers : {1U, 2U, 5U}) {
    const auto mesh = GenerateSheet(0.2, 0.1, 0.004, layers, 0.01);
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    EXPECT_SOUND(*mesh);
    EXPECT_EQ(mesh->tets.size(), 20U * 10 * layers * 5);
    EXPECT_NEAR(Measure(*mesh).tet_volume_m3, 0.2 * 0.1 * 0.004, 1e-15);
    EXPECT_EQ(BoundsOf(*mesh).max(), Vector3d(0.1, 0.05, 0.002));
    EXPECT_EQ(BoundsOf(*mesh).min(), Vector3d(-0.1, -0.05, -0.002));
  }
  ASSERT_TRUE(GenerateSheet().ok());
}

TEST(Generators, RefuseValuesOutOfRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double length_m : {0.009, 1.1, -0.2, nan}) ExpectInvalid(GenerateLiver(length_m), "length_m", "[0.01, 1]");
  for (const double edge_length_m : {0.2 / 201, 0.21, -1.0, nan})
    ExpectInvalid(GenerateLiver(0.2, edge_length_m), "edge_length_m", "[0.001, 0.2]");
  ExpectInvalid(GenerateTorus(0.004, 0.002), "major_radius_m", "[0.005, 1]");
  ExpectInvalid(GenerateTorus(0.06, 0.06), "minor_radius_m", "(0, 0.06)");
  ExpectInvalid(GenerateTorus(0.06, 0), "minor_radius_m", "(0, 0.06)");
  ExpectInvalid(GenerateTorus(0.06, nan), "minor_radius_m", "(0, 0.06)");
  ExpectInvalid(GenerateTorus(0.06, 0.02, 0.026), "edge_length_m = 0.026", "at most 0.025");
  ExpectInvalid(GenerateTorus(0.06, 0.055, 0.008), "edge_length_m = 0.008", "at most 0.00625");
  ExpectInvalid(GenerateTorus(0.06, 0.001), "edge_length_m = 0.0122", "at most 0.00125");
  ExpectInvalid(GenerateSphere(0.0005), "radius_m", "[0.001, 1]");
  ExpectInvalid(GenerateSlab({0.1, 2, 0.1}), "size_m.y", "[0.001, 1]");
  ExpectInvalid(GenerateSlab({0.1, 0.1, 0.1}, 0.0001), "edge_length_m", "[0.0005, 0.1]");
  ExpectInvalid(GenerateKidney(2), "length_m", "[0.01, 1]");
  for (const double extent_m : {0.019, 2.1, nan}) ExpectInvalid(GenerateKnot(KnotEnds::kClosed, extent_m), "extent_m", "[0.02, 2]");
  for (const double radius_m : {0.1101, 0.0049, -1.0, nan})
    ExpectInvalid(GenerateKnot(KnotEnds::kClosed, 1, radius_m), "tube_radius_m", "[0.005, 0.11]");
  ExpectInvalid(GenerateKnot(KnotEnds::kOpen, 1, 0.036), "tube_radius_m = 0.036", "[0.005, 0.0358]");
  for (const double edge_m : {0.0049, 0.081, nan})
    ExpectInvalid(GenerateKnot(KnotEnds::kClosed, 1, 0.08, edge_m), "edge_length_m", "[0.005, 0.08]");
  ExpectInvalid(GenerateSheet(2.1), "length_m", "[0.001, 2]");
  ExpectInvalid(GenerateSheet(0.1, nan), "width_m", "[0.001, 2]");
  ExpectInvalid(GenerateSheet(0.1, 0.05, 0.06), "thickness_m", "[0.0001, 0.05]");
  ExpectInvalid(GenerateSheet(0.1, 0.1, 0.01, 0), "layer_count = 0", "[1, 16]");
  ExpectInvalid(GenerateSheet(0.1, 0.1, 0.01, 17), "layer_count = 17", "[1, 16]");
  ExpectInvalid(GenerateSheet(0.1, 0.1, 0.01, 1, 0.11), "edge_length_m", "[0.0005, 0.1]");
  EXPECT_EQ(GenerateLiver(0.2, 0, [](double) { return false; }).status().code(), absl::StatusCode::kCancelled);
}

TEST(BoxMesh, FollowsItsVertexNumbering) {
  const std::array<uint32_t, 3> nodes = {5, 5, 30};
  const Vector3d size(0.02, 0.02, 0.2);
  const auto mesh = BoxMesh(nodes, size);
  ASSERT_TRUE(mesh.ok());
  EXPECT_SOUND(*mesh);
  ASSERT_EQ(mesh->vertices.size(), 5U * 5 * 30);
  EXPECT_EQ(mesh->tets.size(), 4U * 4 * 29 * 5);
  for (uint32_t k = 0; k < 30; ++k) {
    for (uint32_t j = 0; j < 5; ++j) {
      for (uint32_t i = 0; i < 5; ++i) {
        const Vector3d want = size.cwiseProduct(Vector3d(i / 4.0 - 0.5, j / 4.0 - 0.5, k / 29.0 - 0.5));
        EXPECT_LT((mesh->vertices[i + 5 * (j + 5 * k)] - want).norm(), 1e-15);
      }
    }
  }
  EXPECT_NEAR(Measure(*mesh).tet_volume_m3, 8e-5, 1e-17);
  EXPECT_EQ(Measure(*mesh).euler, 2);
  // cubes give the angles of the regular tet and of its corner pieces
  const AngleRange cube = DihedralAngles(*BoxMesh({3, 4, 5}, {0.2, 0.3, 0.4}));
  EXPECT_NEAR(cube.min_deg, std::acos(1 / std::sqrt(3.0)) * 180 / std::numbers::pi, 1e-9);
  EXPECT_NEAR(cube.max_deg, 90, 1e-9);
}

TEST(BoxMesh, RefusesBadInput) {
  ExpectInvalid(BoxMesh({1, 2, 2}, {1, 1, 1}), "node_counts[0] = 1", "at least 2");
  ExpectInvalid(BoxMesh({2, 2, 2}, {1, 0, 1}), "size_m.y = 0", "positive");
  ExpectInvalid(BoxMesh({2, 2, 2}, {1, 1, std::numeric_limits<double>::infinity()}), "size_m.z", "finite");
  EXPECT_EQ(BoxMesh({4000, 4000, 4000}, {1, 1, 1}).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(BoxMesh({4294967295U, 4294967295U, 4294967295U}, {1, 1, 1}).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(CylinderMesh, IsThePrismOfItsPolygon) {
  for (const uint32_t rings : {1U, 2U, 3U}) {
    for (const uint32_t sectors : {3U, 6U, 12U, 17U}) {
      SCOPED_TRACE(std::to_string(rings) + " rings, " + std::to_string(sectors) + " sectors");
      const auto mesh = CylinderMesh(0.2, 1, rings, sectors, 6);
      ASSERT_TRUE(mesh.ok());
      EXPECT_SOUND(*mesh);
      EXPECT_EQ(mesh->vertices.size(), 7 * (1 + rings * sectors));
      EXPECT_EQ(mesh->tets.size(), 3U * 6 * sectors * (2 * rings - 1));
      EXPECT_EQ(Measure(*mesh).euler, 2);
      EXPECT_NEAR(Measure(*mesh).tet_volume_m3, sectors / 2.0 * std::sin(2 * std::numbers::pi / sectors) * 0.04, 1e-14);
      // numbering: the axis first in each layer, then rings outwards
      for (uint32_t layer = 0; layer <= 6; ++layer) {
        const uint32_t base = layer * (1 + rings * sectors);
        EXPECT_LT((mesh->vertices[base] - Vector3d(0, 0, layer / 6.0 - 0.5)).norm(), 1e-15);
        for (uint32_t ring = 1; ring <= rings; ++ring) {
          for (uint32_t sector = 0; sector < sectors; ++sector) {
            const Vector3d& x = mesh->vertices[base + 1 + (ring - 1) * sectors + sector];
            const double angle = 2 * std::numbers::pi * sector / sectors;
            EXPECT_LT((x - Vector3d(0.2 * ring / rings * std::cos(angle), 0.2 * ring / rings * std::sin(angle), layer / 6.0 - 0.5)).norm(),
                      1e-14);
          }
        }
      }
    }
  }
}

TEST(CylinderMesh, RefusesBadInput) {
  ExpectInvalid(CylinderMesh(0, 1, 1, 6, 1), "radius_m = 0", "positive");
  ExpectInvalid(CylinderMesh(1, -1, 1, 6, 1), "height_m = -1", "positive");
  ExpectInvalid(CylinderMesh(1, 1, 0, 6, 1), "ring_count = 0", "at least 1");
  ExpectInvalid(CylinderMesh(1, 1, 1, 2, 1), "sector_count = 2", "at least 3");
  ExpectInvalid(CylinderMesh(1, 1, 1, 6, 0), "layer_count = 0", "at least 1");
  EXPECT_EQ(CylinderMesh(1, 1, 4000000000U, 4000000000U, 4000000000U).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace palpate::sim::generators_test
