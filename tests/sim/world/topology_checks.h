#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <utility>

#include "sim/world/world.h"

namespace palpate::test {

using sim::BodyArrays;
using sim::BodyArraysChange;
using sim::BodyStatistics;
using sim::Frame;
using sim::HashOfTet;
using sim::HashOfTextureCoordinate;
using sim::HashOfTriangle;
using sim::World;
using sim::WorldTopology;

/// The arrays agree with each other, their hashes and the statistics; changes lead from `before` to them.
inline void CheckTopology(const World& world, const WorldTopology* before) {
  const Frame& frame = *world.CurrentFrame();
  ASSERT_NE(frame.topology, nullptr);
  const WorldTopology& topology = *frame.topology;
  ASSERT_EQ(frame.topology_version, topology.version);
  ASSERT_EQ(topology.bodies.size(), world.body_statistics().size());
  ASSERT_EQ(frame.surface_positions_m.size(), topology.bodies.size());
  for (size_t b = 0; b < topology.bodies.size(); ++b) {
    const BodyArrays& arrays = *topology.bodies[b];
    SCOPED_TRACE(arrays.name);
    ASSERT_EQ(frame.surface_positions_m[b].size(), arrays.surface_vertices.size() * 3);
    uint64_t surface_hash = 0;
    uint64_t volume_hash = 0;
    std::map<std::pair<sim::SurfaceSlot, sim::SurfaceSlot>, int> edges;
    std::map<std::array<uint32_t, 3>, int> faces;  // of tets, as sorted vertex slots
    size_t tets = 0;
    size_t triangles = 0;
    for (uint32_t t = 0; t < arrays.tets.size(); ++t) {
      const auto& v = arrays.tets[t];
      if (v == sim::kFreeTet) continue;
      ++tets;
      volume_hash += HashOfTet(t, v);
      for (size_t f = 0; f < 4; ++f) {
        std::array<uint32_t, 3> face = {v[(f + 1) % 4], v[(f + 2) % 4], v[(f + 3) % 4]};
        std::sort(face.begin(), face.end());
        ++faces[face];
      }
    }
    for (uint32_t t = 0; t < arrays.surface_triangles.size(); ++t) {
      const auto& s = arrays.surface_triangles[t];
      if (s == sim::kFreeTriangle) continue;
      ++triangles;
      surface_hash += HashOfTriangle(t, s, arrays.triangle_zones[t]);
      std::array<uint32_t, 3> face{};
      for (size_t c = 0; c < 3; ++c) {
        ASSERT_TRUE(arrays.surface_vertices.contains(s[c]));
        face[c] = arrays.surface_vertices[s[c]];
        ++edges[{s[c], s[(c + 1) % 3]}];
      }
      std::sort(face.begin(), face.end());
      ASSERT_EQ(faces[face], 1) << "triangle " << t << " is not the face of exactly one tet";
      ASSERT_LT(arrays.triangle_zones[t], arrays.surface_zones.size());
    }
    for (const auto& [edge, count] : edges) {
      ASSERT_EQ(count, 1);
      ASSERT_EQ(edges.count({edge.second, edge.first}), 1U) << "the surface has a hole";
    }
    // One fan of triangles at each vertex: from edge to edge around it one comes past all of them.
    std::map<sim::SurfaceSlot, std::map<sim::SurfaceSlot, sim::SurfaceSlot>> next;  // of a corner: from the second corner to the third
    for (const auto& s : arrays.surface_triangles) {
      if (s == sim::kFreeTriangle) continue;
      for (size_t c = 0; c < 3; ++c) next[s[c]][s[(c + 1) % 3]] = s[(c + 2) % 3];
    }
    for (const auto& [slot, turn] : next) {
      size_t count = 0;
      sim::SurfaceSlot at = turn.begin()->first;
      do {
        ASSERT_EQ(turn.count(at), 1U);
        at = turn.at(at);
        ++count;
      } while (at != turn.begin()->first && count <= turn.size());
      ASSERT_EQ(count, turn.size()) << "two fans at surface vertex " << ToNumber(slot);
    }
    size_t open_faces = 0;
    for (const auto& [face, count] : faces) open_faces += count == 1 ? 1 : 0;
    EXPECT_EQ(open_faces, triangles);
    for (uint32_t v = 0; v < arrays.texture_coordinates.size(); ++v)
      volume_hash += HashOfTextureCoordinate(v, arrays.texture_coordinates[v]);
    for (const sim::SurfaceSlot s : arrays.surface_vertices.indices()) {
      const uint32_t v = arrays.surface_vertices[s];
      if (v != sim::kNoSlot && !arrays.texture_coordinates.empty())
        surface_hash += HashOfTextureCoordinate(s, arrays.texture_coordinates[v]);
    }
    EXPECT_EQ(surface_hash, arrays.surface_hash);
    EXPECT_EQ(volume_hash, arrays.volume_hash);
    const BodyStatistics& statistics = world.body_statistics()[b];
    EXPECT_EQ(statistics.tet_count, tets);
    EXPECT_EQ(statistics.surface_triangle_count, triangles);
    EXPECT_EQ(statistics.name, arrays.name);
  }
  if (before == nullptr || before->version == topology.version) return;
  ASSERT_TRUE(topology.follows);
  ASSERT_EQ(topology.version, before->version + 1);
  for (size_t b = 0; b < before->bodies.size(); ++b) {
    // A copy of the arrays before, with the slots that are said to have changed taken over, is the arrays now.
    BodyArrays copy = *before->bodies[b];
    const BodyArrays& now = *topology.bodies[b];
    copy.tets.resize(now.tets.size());
    copy.surface_triangles.resize(now.surface_triangles.size());
    for (const BodyArraysChange& change : topology.changes) {
      if (change.body != b) continue;
      EXPECT_TRUE(std::is_sorted(change.tets.begin(), change.tets.end()));
      for (const uint32_t t : change.tets) copy.tets[t] = now.tets[t];
      for (const uint32_t t : change.triangles) copy.surface_triangles[t] = now.surface_triangles[t];
    }
    EXPECT_EQ(copy.tets, now.tets);
    EXPECT_EQ(copy.surface_triangles, now.surface_triangles);
  }
}

}  // namespace palpate::test
