#include "sim/mesh/generators.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/sim/mesher/mesh_probe.h"

namespace palpate::sim {
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
}  // namespace palpate::sim
