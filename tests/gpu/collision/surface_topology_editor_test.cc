#include "gpu/collision/surface_topology_editor.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "tests/gpu/collision/surface_models.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::surface_topology_editor_test {
namespace {

class SurfaceTopologyEditorTest : public test::DeviceTest {
 protected:
  /// The first `count` elements of a device buffer.
  template <typename T>
  std::vector<T> Read(const DeviceBuffer<T>& buffer, size_t count) {
    std::vector<T> values(count);
    if (count > 0) PALPATE_EXPECT_OK(queue().ReadBlocking(buffer, std::span<T>(values)));
    return values;
  }

  /// What is on the device is what the editor has, and that is sound and says the same as a topology made anew.
  void ExpectSound(const SurfaceTopologyEditor& editor, const DeviceSurface& surface, std::span<const UInt4> triangles,
                   std::span<const uint32_t> groups, uint32_t vertex_count) {
    Triangles list;
    for (const UInt4& t : triangles) list.push_back({t.x, t.y, t.z});
    const auto fresh = SurfaceTopology::Build(vertex_count, list, groups);
    ASSERT_TRUE(fresh.ok()) << fresh.status();
    ASSERT_EQ(surface.triangle_count, triangles.size());
    ASSERT_EQ(surface.edge_count, fresh->edges.size());
    const auto by_vertices = [](const UInt2& a, const UInt2& b) { return std::pair(a.x, a.y) < std::pair(b.x, b.y); };
    std::vector<UInt2> edges = editor.edges();
    std::sort(edges.begin(), edges.end(), by_vertices);
    ASSERT_EQ(edges, fresh->edges);
    ASSERT_EQ(editor.vertex_groups(), fresh->vertex_groups);
    std::vector<int> vertex_owners(vertex_count, 0);
    std::vector<int> edge_owners(editor.edges().size(), 0);
    std::vector<std::vector<uint32_t>> of_edge(editor.edges().size());
    for (uint32_t t = 0; t < triangles.size(); ++t) {
      const UInt4& v = editor.triangles()[t];
      const UInt4& e = editor.triangle_edges()[t];
      ASSERT_EQ((UInt4{v.x, v.y, v.z, 0}), (UInt4{triangles[t].x, triangles[t].y, triangles[t].z, 0}));
      ASSERT_EQ(e.w, groups[t]);
      const std::array<uint32_t, 3> corners{v.x, v.y, v.z};
      const std::array<uint32_t, 3> sides{e.x, e.y, e.z};
      for (uint32_t k = 0; k < 3; ++k) {
        const uint32_t a = std::min(corners[k], corners[(k + 1) % 3]);
        const uint32_t b = std::max(corners[k], corners[(k + 1) % 3]);
        ASSERT_LT(sides[k], editor.edges().size());
        ASSERT_EQ(editor.edges()[sides[k]], (UInt2{a, b})) << "edge " << k << " of triangle " << t;
        ASSERT_EQ(editor.edge_groups()[sides[k]], groups[t]);
        of_edge[sides[k]].push_back(t);
        if (v.w >> k & 1U) ++vertex_owners[corners[k]];
        if (v.w >> (3 + k) & 1U) ++edge_owners[sides[k]];
      }
    }
    for (uint32_t v = 0; v < vertex_count; ++v) {
      ASSERT_EQ(vertex_owners[v], fresh->vertex_groups[v] == SurfaceTopology::kNoGroup ? 0 : 1) << "vertex " << v;
    }
    for (size_t e = 0; e < edge_owners.size(); ++e) ASSERT_EQ(edge_owners[e], 1) << "edge " << e;
    ASSERT_EQ(Read(surface.triangles, triangles.size()), editor.triangles());
    ASSERT_EQ(Read(surface.triangle_edges, triangles.size()), editor.triangle_edges());
    ASSERT_EQ(Read(surface.edges, edges.size()), editor.edges());
    ASSERT_EQ(Read(surface.edge_groups, edges.size()), editor.edge_groups());
    ASSERT_EQ(Read(surface.vertex_groups, vertex_count), editor.vertex_groups());
    ASSERT_EQ(Read(surface.groups, groups.size()), std::vector<uint32_t>(groups.begin(), groups.end()));
    const std::vector<UInt2> ranges = Read(surface.edge_triangle_range, edges.size());
    const std::vector<uint32_t> places = Read(surface.edge_triangles, surface.edge_triangles.count());
    for (size_t e = 0; e < ranges.size(); ++e) {
      ASSERT_LE(ranges[e].y, places.size());
      ASSERT_EQ(std::vector<uint32_t>(places.begin() + ranges[e].x, places.begin() + ranges[e].y), of_edge[e]) << "edge " << e;
    }
  }
};

// Triangles of two bodies come and go at random, edges with three and more triangles among them; the last triangles fill the gaps.
TEST_F(SurfaceTopologyEditorTest, FollowsRandomEdits) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    constexpr uint32_t kVerticesOfBody = 20;
    const std::array<uint32_t, 2> body_groups = {0U | PALPATE_GROUP_SELF, 1U};
    std::vector<UInt4> triangles;
    std::vector<uint32_t> groups;
    std::set<std::array<uint32_t, 3>> present;
    const auto make = [&](UInt4* triangle, uint32_t* group) {
      for (;;) {
        const auto body = static_cast<uint32_t>(random() % 2);
        std::array<uint32_t, 3> v{};
        for (uint32_t& i : v) i = body * kVerticesOfBody + static_cast<uint32_t>(random() % kVerticesOfBody);
        std::array<uint32_t, 3> key = v;
        std::sort(key.begin(), key.end());
        if (key[0] == key[1] || key[1] == key[2] || !present.insert(key).second) continue;
        *triangle = {v[0], v[1], v[2], 0};
        *group = body_groups[body];
        return;
      }
    };
    for (int i = 0; i < 60; ++i) make(&triangles.emplace_back(), &groups.emplace_back());
    Triangles list;
    for (const UInt4& t : triangles) list.push_back({t.x, t.y, t.z});
    PALPATE_TEST_ASSIGN(const SurfaceTopology topology, SurfaceTopology::Build(2 * kVerticesOfBody, list, groups));
    PALPATE_TEST_ASSIGN(DeviceSurface surface, DeviceSurface::Upload(queue(), topology, 0.5));
    SurfaceTopologyEditor editor(topology, surface);
    PALPATE_TEST_ASSIGN(RunWriter writer, RunWriter::Create(context()));
    for (int edit = 0; edit < 60; ++edit) {
      std::set<uint32_t> changed;
      for (uint64_t i = random() % 4; i > 0; --i) {  // gone
        if (triangles.size() < 5) break;
        const auto t = static_cast<uint32_t>(random() % triangles.size());
        std::array<uint32_t, 3> key{triangles[t].x, triangles[t].y, triangles[t].z};
        std::sort(key.begin(), key.end());
        present.erase(key);
        triangles[t] = triangles.back();
        groups[t] = groups.back();
        triangles.pop_back();
        groups.pop_back();
        changed.insert(t);
      }
      for (uint64_t i = random() % 4; i > 0 && triangles.size() < 80; --i) {  // new
        changed.insert(static_cast<uint32_t>(triangles.size()));
        make(&triangles.emplace_back(), &groups.emplace_back());
      }
      const std::vector<uint32_t> rising(changed.begin(), changed.end());
      std::vector<uint32_t> of_changed;
      for (const uint32_t t : rising) of_changed.push_back(t < groups.size() ? groups[t] : 0);
      PALPATE_TEST_ASSIGN(const bool fits, editor.Apply(rising, triangles, of_changed, 2, &surface, &writer));
      ASSERT_TRUE(fits);
      PALPATE_ASSERT_OK(writer.Flush(queue()).status());
      ASSERT_NO_FATAL_FAILURE(ExpectSound(editor, surface, triangles, groups, 2 * kVerticesOfBody)) << "edit " << edit;
    }
  }
}

TEST_F(SurfaceTopologyEditorTest, SaysWhatIsWrongAndWhatDoesNotFit) {
  const Triangles list = {{0, 1, 2}, {0, 2, 3}};
  const std::vector<uint32_t> groups = {0, 0};
  PALPATE_TEST_ASSIGN(const SurfaceTopology topology, SurfaceTopology::Build(8, list, groups));
  const auto apply = [&](double slack_share, const std::vector<UInt4>& triangles,
                         const std::vector<uint32_t>& of_groups) -> absl::StatusOr<bool> {
    PALPATE_ASSIGN_OR_RETURN(DeviceSurface surface, DeviceSurface::Upload(queue(), topology, slack_share));
    PALPATE_ASSIGN_OR_RETURN(RunWriter writer, RunWriter::Create(context()));
    const std::vector<uint32_t> changed = {2};
    return SurfaceTopologyEditor(topology, surface).Apply(changed, triangles, std::span(of_groups).subspan(2), 2, &surface, &writer);
  };
  const std::vector<UInt4> good = {{0, 1, 2, 0}, {0, 2, 3, 0}, {4, 5, 6, 0}};
  const auto fits = apply(0.5, good, {0, 0, 1});
  ASSERT_TRUE(fits.ok()) << fits.status();
  EXPECT_TRUE(*fits);
  const auto full = apply(0, good, {0, 0, 1});
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_FALSE(*full);
  EXPECT_TRUE(absl::IsInvalidArgument(apply(0.5, {{0, 1, 2, 0}, {0, 2, 3, 0}, {4, 4, 6, 0}}, {0, 0, 1}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(apply(0.5, {{0, 1, 2, 0}, {0, 2, 3, 0}, {4, 5, 8, 0}}, {0, 0, 1}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(apply(0.5, {{0, 1, 2, 0}, {0, 2, 3, 0}, {3, 4, 5, 0}}, {0, 0, 1}).status()));
}

}  // namespace
}  // namespace palpate::gpu::surface_topology_editor_test
