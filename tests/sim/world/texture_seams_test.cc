// Texture coordinates by corner, with seams, through random edits: a box projection of the place at rest is exact for every corner that an
// edit makes, on both sides of every seam.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include <Eigen/Geometry>

#include "sim/world/texture_charts.h"
#include "sim/world/world_body.h"
#include "tests/sim/world/random_edits.h"
#include "tests/sim/world/seams.h"
#include "tests/support/device_test.h"

namespace palpate::sim::texture_seams_test {
namespace {

using Eigen::Vector3d;
using ::testing::HasSubstr;

using test::AxisOf;
using test::BlockWithSeams;
using test::Projected;

struct Seen {
  size_t skin_corners = 0, bare_triangles = 0, seams = 0, in_zone = 0;
};

void Check(const WorldBody& body, Seen* seen) {
  const BodyArrays& arrays = *body.arrays();
  const ClosedMesh& mesh = body.mesh();
  SCOPED_TRACE(arrays.name);
  ASSERT_TRUE(arrays.has_texture_corners && arrays.texture_coordinates.empty());
  ASSERT_EQ(arrays.texture_corners.size(), arrays.surface_triangles.size());
  std::vector<std::array<float, 2>> first(arrays.vertex_slot_count, {NAN, NAN});
  uint64_t surface_hash = 0, volume_hash = 0;
  for (uint32_t t = 0; t < arrays.surface_triangles.size(); ++t) {
    const auto& triangle = arrays.surface_triangles[t];
    const TextureCorners& corners = arrays.texture_corners[t];
    surface_hash += HashOfTextureCorners(t, corners);
    volume_hash += HashOfTextureCorners(t, corners);
    if (triangle == kFreeTriangle) {
      ASSERT_EQ(corners, TextureCorners{});
      continue;
    }
    surface_hash += HashOfTriangle(t, triangle, arrays.triangle_zones[t]);
    ASSERT_LT(arrays.triangle_zones[t], arrays.surface_zones.size()) << "clients know nothing of charts";
    if (arrays.surface_zones[arrays.triangle_zones[t]].is_interior) {
      ASSERT_EQ(corners, TextureCorners{});
      ++seen->bare_triangles;
      continue;
    }
    std::array<Vector3d, 3> p;
    for (size_t c = 0; c < 3; ++c) p[c] = mesh.PositionOf(arrays.surface_vertices[triangle[c]]);
    const int axis = AxisOf((p[1] - p[0]).cross(p[2] - p[0]));
    const double middle_x = (p[0] + p[1] + p[2]).x() / 3;
    if (std::abs(middle_x) > 1e-6) {
      ASSERT_EQ(arrays.surface_zones[arrays.triangle_zones[t]].name == "half", middle_x > 0);
    }
    seen->in_zone += arrays.surface_zones[arrays.triangle_zones[t]].name == "half" ? 1 : 0;
    for (size_t c = 0; c < 3; ++c) {
      const auto expected = Projected(p[c], axis);
      ASSERT_NEAR(corners[c][0], expected[0], 1e-5) << "triangle " << t;
      ASSERT_NEAR(corners[c][1], expected[1], 1e-5) << "triangle " << t;
      ++seen->skin_corners;
      std::array<float, 2>& known = first[arrays.surface_vertices[triangle[c]]];
      if (std::isnan(known[0])) known = corners[c];
      seen->seams += std::abs(known[0] - corners[c][0]) + std::abs(known[1] - corners[c][1]) > 1e-3 ? 1 : 0;
    }
  }
  for (uint32_t t = 0; t < arrays.tets.size(); ++t) {
    if (arrays.tets[t] != kFreeTet) volume_hash += HashOfTet(t, arrays.tets[t]);
  }
  EXPECT_EQ(arrays.surface_hash, surface_hash);
  EXPECT_EQ(arrays.volume_hash, volume_hash);
}

TEST(TextureSeamsTest, StayWithTheTissueThroughRandomEdits) {
  const BodyDescription description = BlockWithSeams();
  std::mt19937 random(5);
  Seen seen;
  size_t pieces_seen = 0;
  for (int round = 0; round < 4; ++round) {
    SceneVertices vertices;
    PALPATE_TEST_ASSIGN(std::vector<std::unique_ptr<WorldBody>> bodies, test::MakeBodies({description}, &vertices));
    ASSERT_NO_FATAL_FAILURE(Check(*bodies[0], &seen));
    for (int i = 0; i < 25; ++i) {
      const size_t count = bodies.size();
      PALPATE_TEST_ASSIGN(const size_t edited, test::ApplyRandomEdit(&bodies, &random));
      pieces_seen += bodies.size() - count;
      if (bodies[edited]->has_changes()) {
        const std::shared_ptr<const BodyArrays> before = bodies[edited]->arrays();
        const BodyArraysChange change = bodies[edited]->UpdateArrays();
        const BodyArrays& now = *bodies[edited]->arrays();
        EXPECT_TRUE(change.texture_places.empty() && change.texture_vertices.empty());
        // What the change does not name is as before.
        for (uint32_t t = 0; t < before->texture_corners.size(); ++t) {
          if (std::binary_search(change.triangles.begin(), change.triangles.end(), t)) continue;
          ASSERT_EQ(before->texture_corners[t], now.texture_corners[t]) << "triangle " << t;
        }
      }
      ASSERT_NO_FATAL_FAILURE(Check(*bodies[edited], &seen));
      for (size_t piece = count; piece < bodies.size(); ++piece) ASSERT_NO_FATAL_FAILURE(Check(*bodies[piece], &seen));
    }
  }
  EXPECT_GT(seen.skin_corners, 10000U);
  EXPECT_GT(seen.bare_triangles, 1000U);
  EXPECT_GT(seen.seams, 1000U);
  EXPECT_GT(seen.in_zone, 1000U);
  EXPECT_GT(pieces_seen, 2U);
}

TEST(TextureSeamsTest, WhatDoesNotFitIsRefused) {
  const auto refusal = [](const BodyDescription& description) {
    SceneVertices vertices;
    return std::string(WorldBody::Create(description, 0, &vertices).status().message());
  };
  BodyDescription bad = BlockWithSeams();
  bad.texture.corners.pop_back();
  EXPECT_THAT(refusal(bad), HasSubstr(".texture.corners: "));
  bad = BlockWithSeams();
  bad.texture.corners[3][1][0] = INFINITY;
  EXPECT_THAT(refusal(bad), HasSubstr(".texture.corners[3]: (inf"));
  bad = BlockWithSeams();
  bad.texture.u_period = 2;
  EXPECT_THAT(refusal(bad), HasSubstr("corners have no period"));
  bad = BlockWithSeams();
  bad.texture.coordinates.resize(bad.mesh.vertices.size());
  EXPECT_THAT(refusal(bad), HasSubstr("by vertex and by corner"));
}

TEST(TextureSeamsTest, ABodyThatCannotBeEditedHasThemToo) {
  BodyDescription description = BlockWithSeams();
  description.kind = BodyKind::kRigid;
  description.surface_zones.clear();
  SceneVertices vertices;
  const auto body = WorldBody::Create(description, 0, &vertices);
  ASSERT_TRUE(body.ok()) << body.status();
  EXPECT_EQ((*body)->arrays()->texture_corners, description.texture.corners);
}

TEST(AssignChartsTest, AVertexHasOneCoordinateInAChart) {
  // A ring of eight quadrilaterals around an axis: u runs from 0 to 1, and meets itself.
  std::vector<ChartedTriangle> triangles;
  constexpr uint32_t kSides = 8;
  for (uint32_t k = 0; k < kSides; ++k) {
    const uint32_t next = (k + 1) % kSides;
    const float u = static_cast<float>(k) / kSides, w = static_cast<float>(k + 1) / kSides;
    triangles.push_back({{k, next, kSides + next}, 0, {{{u, 0}, {w, 0}, {w, 1}}}});
    triangles.push_back({{k, kSides + next, kSides + k}, 0, {{{u, 0}, {w, 1}, {u, 1}}}});
  }
  const std::vector<uint32_t> charts = AssignCharts(triangles);
  std::map<std::pair<uint32_t, uint32_t>, std::array<float, 2>> at;
  for (size_t t = 0; t < triangles.size(); ++t) {
    EXPECT_LT(charts[t], 2U);
    for (size_t c = 0; c < 3; ++c) {
      const auto [known, is_new] = at.try_emplace({charts[t], triangles[t].vertices[c]}, triangles[t].corners[c]);
      EXPECT_EQ(known->second, triangles[t].corners[c]);
    }
  }
  // Without a seam one chart is enough.
  for (ChartedTriangle& triangle : triangles) {
    for (size_t c = 0; c < 3; ++c) triangle.corners[c] = {static_cast<float>(triangle.vertices[c]), 0};
  }
  for (const uint32_t chart : AssignCharts(triangles)) EXPECT_EQ(chart, 0U);
}

}  // namespace
}  // namespace palpate::sim::texture_seams_test
