// Texture coordinates through random edits of a body: a planar projection of the place at rest is exact for every vertex that an edit
// makes.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <Eigen/Core>

#include "sim/mesh/generators.h"
#include "sim/world/world_body.h"
#include "tests/sim/world/random_edits.h"
#include "tests/support/device_test.h"

namespace palpate::sim::texture_test {
namespace {

using Eigen::Vector3d;
constexpr double kTile_m = 0.02;
constexpr double kPeriod = 2;
constexpr std::array<float, 2> kNone = {0, 0};

std::array<double, 2> Projected(const Vector3d& p, double period) {
  std::array<double, 2> value = {(p.x() + 0.2 * p.z()) / kTile_m + 0.3, (p.y() - 0.4 * p.z()) / kTile_m + 0.1};
  if (period > 0) value[0] -= period * std::floor(value[0] / period);
  return value;
}

BodyDescription Block(double period) {
  BodyDescription body;
  body.name = "block";
  body.mesh = *BoxMesh({9, 7, 5}, {0.08, 0.06, 0.04});
  body.tet_zones.assign(body.mesh.tets.size(), 0);
  body.zones.resize(1);
  body.zones[0].name = "line";
  for (size_t t = 0; t < body.mesh.tets.size(); ++t) body.tet_zones[t] = t % 5 == 0 ? 1 : 0;
  SurfaceZoneDescription& top = body.surface_zones.emplace_back();
  top.name = "top";
  const BoundarySurface surface = ExtractBoundary(body.mesh);
  for (const auto& t : surface.triangles) {
    const std::array<uint32_t, 3> corners = {surface.vertices[t[0]], surface.vertices[t[1]], surface.vertices[t[2]]};
    double z = 0;
    for (const uint32_t v : corners) z += body.mesh.vertices[v].z() / 3;
    if (z > 0.0199) top.triangles.push_back(corners);
  }
  body.texture.u_period = period;
  for (const Vector3d& p : body.mesh.vertices) {
    const auto value = Projected(p, period);
    body.texture.coordinates.push_back({static_cast<float>(value[0]), static_cast<float>(value[1])});
  }
  return body;
}

struct Seen {
  size_t skin_corners = 0, made_corners = 0, bare_vertices = 0;
};

/// Every corner of the skin has the projection of its place at rest, everything else has none, and the hashes cover that.
void Check(const WorldBody& body, double period, Seen* seen) {
  const BodyArrays& arrays = *body.arrays();
  const ClosedMesh& mesh = body.mesh();
  SCOPED_TRACE(arrays.name);
  ASSERT_EQ(arrays.texture_coordinates.size(), arrays.vertex_slot_count);
  std::vector<uint8_t> has_skin(arrays.vertex_slot_count, 0);
  uint64_t surface_hash = 0;
  uint64_t volume_hash = 0;
  for (uint32_t t = 0; t < arrays.surface_triangles.size(); ++t) {
    const auto& triangle = arrays.surface_triangles[t];
    if (triangle == kFreeTriangle) continue;
    surface_hash += HashOfTriangle(t, triangle, arrays.triangle_zones[t]);
    if (arrays.surface_zones[arrays.triangle_zones[t]].is_interior) continue;
    for (const SurfaceSlot slot : triangle) {
      const uint32_t v = arrays.surface_vertices[slot];
      has_skin[v] = 1;
      const auto expected = Projected(mesh.PositionOf(v), period);
      double du = arrays.texture_coordinates[v][0] - expected[0];
      if (period > 0) du -= period * std::round(du / period);
      ASSERT_NEAR(du, 0, 1e-5) << "vertex " << v;
      ASSERT_NEAR(arrays.texture_coordinates[v][1], expected[1], 1e-5) << "vertex " << v;
      if (period > 0) {
        ASSERT_GE(arrays.texture_coordinates[v][0], 0);
        ASSERT_LT(arrays.texture_coordinates[v][0], period);
      }
      ++seen->skin_corners;
      seen->made_corners += GenerationOf(mesh.IdOfVertex(v)) > 1 || v >= 9 * 7 * 5 ? 1 : 0;
    }
  }
  for (uint32_t t = 0; t < arrays.tets.size(); ++t) {
    if (arrays.tets[t] != kFreeTet) volume_hash += HashOfTet(t, arrays.tets[t]);
  }
  for (uint32_t v = 0; v < arrays.vertex_slot_count; ++v) {
    if (has_skin[v] == 0) {
      ASSERT_EQ(arrays.texture_coordinates[v], kNone) << "vertex " << v;
      seen->bare_vertices += mesh.IsVertex(v) && mesh.IsVertexOnSurface(v) ? 1 : 0;
    }
    volume_hash += HashOfTextureCoordinate(v, arrays.texture_coordinates[v]);
  }
  for (const SurfaceSlot slot : arrays.surface_vertices.indices()) {
    if (arrays.surface_vertices[slot] == kNoSlot) continue;
    surface_hash += HashOfTextureCoordinate(slot, arrays.texture_coordinates[arrays.surface_vertices[slot]]);
  }
  EXPECT_EQ(arrays.surface_hash, surface_hash);
  EXPECT_EQ(arrays.volume_hash, volume_hash);
}

std::array<float, 2> OfPlace(const BodyArrays& arrays, SurfaceSlot slot) {
  const uint32_t v = arrays.surface_vertices.contains(slot) ? arrays.surface_vertices[slot] : kNoSlot;
  return v == kNoSlot ? kNone : arrays.texture_coordinates[v];
}

/// The changes name what differs, and nothing else.
void CheckChange(const BodyArrays& before, const BodyArrays& after, const BodyArraysChange& change) {
  std::vector<SurfaceSlot> places;
  std::vector<uint32_t> vertices;
  for (const SurfaceSlot slot : after.surface_vertices.indices()) {
    if (OfPlace(before, slot) != OfPlace(after, slot)) places.push_back(slot);
  }
  for (uint32_t v = 0; v < after.texture_coordinates.size(); ++v) {
    if ((v < before.texture_coordinates.size() ? before.texture_coordinates[v] : kNone) != after.texture_coordinates[v])
      vertices.push_back(v);
  }
  EXPECT_EQ(change.texture_places, places);
  EXPECT_EQ(change.texture_vertices, vertices);
}

class TextureTest : public ::testing::TestWithParam<double> {};

TEST_P(TextureTest, StaysWithTheTissueThroughRandomEdits) {
  const double period = GetParam();
  const BodyDescription description = Block(period);
  std::mt19937 random(11);
  Seen seen;
  size_t pieces_seen = 0;
  for (int round = 0; round < 6; ++round) {
    SceneVertices vertices;
    PALPATE_TEST_ASSIGN(std::vector<std::unique_ptr<WorldBody>> bodies, test::MakeBodies({description}, &vertices));
    ASSERT_NO_FATAL_FAILURE(Check(*bodies[0], period, &seen));
    for (int i = 0; i < 25; ++i) {
      std::vector<std::shared_ptr<const BodyArrays>> before;
      for (const auto& body : bodies) before.push_back(body->arrays());
      PALPATE_TEST_ASSIGN(const size_t edited, test::ApplyRandomEdit(&bodies, &random));
      pieces_seen += bodies.size() - before.size();
      if (bodies[edited]->has_changes()) {
        const BodyArraysChange change = bodies[edited]->UpdateArrays();
        ASSERT_NO_FATAL_FAILURE(CheckChange(*before[edited], *bodies[edited]->arrays(), change));
      }
      ASSERT_NO_FATAL_FAILURE(Check(*bodies[edited], period, &seen));
      for (size_t piece = before.size(); piece < bodies.size(); ++piece) {
        ASSERT_NO_FATAL_FAILURE(Check(*bodies[piece], period, &seen));
      }
    }
  }
  EXPECT_GT(seen.skin_corners, 10000U);
  EXPECT_GT(seen.made_corners, 5000U);
  EXPECT_GT(seen.bare_vertices, 1000U);
  EXPECT_GT(pieces_seen, 3U);
}

INSTANTIATE_TEST_SUITE_P(Periods, TextureTest, ::testing::Values(0.0, kPeriod));

TEST(TextureDescriptionTest, WhatDoesNotFitIsRefused) {
  const auto refuse = [](BodyDescription description, const std::string& text) {
    SceneVertices vertices;
    const auto created = WorldBody::Create(description, 0, &vertices);
    ASSERT_FALSE(created.ok());
    EXPECT_NE(created.status().message().find(text), absl::string_view::npos) << created.status();
  };
  BodyDescription bad = Block(0);
  bad.texture.coordinates.pop_back();
  refuse(bad, ".texture.coordinates: 314 entries for 315 vertices");
  bad = Block(0);
  bad.texture.coordinates[7][1] = NAN;
  refuse(bad, ".texture.coordinates[7]: ");
  bad = Block(kPeriod);
  bad.texture.coordinates[8][0] = static_cast<float>(kPeriod);
  refuse(bad, ".texture.coordinates[8]: ");
  bad.texture.u_period = -1;
  refuse(bad, ".texture.u_period: -1");
}

TEST(TextureDescriptionTest, ABodyThatCannotBeEditedHasThemToo) {
  BodyDescription description = Block(0);
  description.kind = BodyKind::kRigid;
  description.zones.clear();
  description.tet_zones.clear();
  description.surface_zones.clear();
  SceneVertices vertices;
  const auto body = WorldBody::Create(description, 0, &vertices);
  ASSERT_TRUE(body.ok()) << body.status();
  const BodyArrays& arrays = *(*body)->arrays();
  size_t inside = 0;
  for (uint32_t v = 0; v < arrays.vertex_slot_count; ++v) {
    const bool is_on_surface =
        std::find(arrays.surface_vertices.begin(), arrays.surface_vertices.end(), v) != arrays.surface_vertices.end();
    EXPECT_EQ(arrays.texture_coordinates[v], is_on_surface ? description.texture.coordinates[v] : kNone);
    inside += is_on_surface ? 0 : 1;
  }
  EXPECT_GT(inside, 10U);
}

}  // namespace
}  // namespace palpate::sim::texture_test
