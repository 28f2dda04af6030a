// The solver's model, which follows edits entry by entry, against one that is made of the edited bodies anew.
#include "sim/world/solver_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <tuple>
#include <vector>

#include "sim/mesh/generators.h"
#include "tests/sim/world/random_edits.h"
#include "tests/support/device_test.h"

namespace palpate::sim::solver_model_test {
namespace {

BodyDescription Block(const std::string& name, double x_m) {
  BodyDescription body;
  body.name = name;
  body.mesh = *BoxMesh({6, 5, 4}, {0.05, 0.04, 0.03});
  for (Eigen::Vector3d& v : body.mesh.vertices) v.x() += x_m;
  body.zones.resize(1);
  body.zones[0].name = "hard";
  body.zones[0].material.young_modulus_pa = 4e4;
  for (size_t t = 0; t < body.mesh.tets.size(); ++t) body.tet_zones.push_back(t % 5 == 0 ? 1 : 0);
  for (uint32_t v = 0; v < body.mesh.vertices.size(); v += 11) body.fixed_vertices.push_back(v);
  return body;
}

BodyDescription Floor() {
  BodyDescription body;
  body.name = "floor";
  body.kind = BodyKind::kStatic;
  body.self_collision = false;
  body.mesh = *BoxMesh({2, 2, 2}, {0.3, 0.1, 0.01});
  for (Eigen::Vector3d& v : body.mesh.vertices) v.z() -= 0.1;
  return body;
}

/// A tet that is there: the rest of its entry follows from body and zone.
using Tet = std::tuple<std::array<uint32_t, 4>, float, float, float>;
std::vector<Tet> LiveTets(const gpu::TissueModel& model) {
  std::vector<Tet> tets;
  for (const gpu::TissueTet& tet : model.tets) {
    if (tet.vertices != gpu::kFreeTissueTet) tets.emplace_back(tet.vertices, tet.mu_pa, tet.lambda_pa, tet.density_kg_per_m3);
  }
  std::sort(tets.begin(), tets.end());
  return tets;
}

/// Body, slot in its arrays, corners.
using Triangle = std::tuple<uint32_t, uint32_t, std::array<uint32_t, 3>>;
std::vector<Triangle> Triangles(const SolverModel& model) {
  std::vector<Triangle> triangles;
  for (uint32_t t = 0; t < model.model().surface_triangles.size(); ++t) {
    triangles.emplace_back(model.BodyOf(t), model.SlotOf(t), model.model().surface_triangles[t]);
  }
  std::sort(triangles.begin(), triangles.end());
  return triangles;
}

/// The same tissue, perhaps at other places.
void ExpectSame(const SolverModel& followed, const SolverModel& fresh, const SceneVertices& vertices) {
  EXPECT_EQ(LiveTets(followed.model()), LiveTets(fresh.model()));
  EXPECT_EQ(Triangles(followed), Triangles(fresh));
  EXPECT_EQ(followed.model().rest_m, fresh.model().rest_m);
  EXPECT_EQ(followed.model().fixed, fresh.model().fixed);
  EXPECT_EQ(followed.model().held_axes, fresh.model().held_axes);
  EXPECT_EQ(followed.model().vertex_origin, fresh.model().vertex_origin);
  EXPECT_EQ(followed.model().self_collision, fresh.model().self_collision);
  EXPECT_EQ(followed.model().volume_stiffness_pa, fresh.model().volume_stiffness_pa);
  for (const VertexHandle v : vertices.handles()) {
    if (!vertices.IsAlive(v)) continue;
    ASSERT_NEAR(followed.AreaAt(v), fresh.AreaAt(v), 1e-12) << ToNumber(v);
  }
}

/// Entries that differ are among those that the change names.
void ExpectNamed(const gpu::TissueModel& before, const gpu::TissueModel& after, const gpu::TissueChange& change) {
  const auto is_named = [](const std::vector<uint32_t>& list, size_t at) {
    return std::find(list.begin(), list.end(), static_cast<uint32_t>(at)) != list.end();
  };
  for (size_t t = 0; t < after.tets.size(); ++t) {
    const bool is_same =
        t < before.tets.size() && before.tets[t].vertices == after.tets[t].vertices && before.tets[t].mu_pa == after.tets[t].mu_pa;
    ASSERT_TRUE(is_same || is_named(change.tets, t)) << "tet " << t;
  }
  for (size_t t = 0; t < after.surface_triangles.size(); ++t) {
    const bool is_same = t < before.surface_triangles.size() && before.surface_triangles[t] == after.surface_triangles[t] &&
                         before.triangle_body[t] == after.triangle_body[t];
    ASSERT_TRUE(is_same || is_named(change.triangles, t)) << "triangle " << t;
  }
  for (size_t v = 0; v < after.rest_m.size(); ++v) {
    const bool is_same = v < before.rest_m.size() && before.rest_m[v] == after.rest_m[v] && before.fixed[v] == after.fixed[v];
    ASSERT_TRUE(is_same || is_named(change.vertices, v)) << "vertex " << v;
  }
}

TEST(SolverModelTest, FollowedThroughRandomEditsItIsTheModelMadeAnew) {
  size_t pieces_seen = 0;
  size_t tets_changed = 0;
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    SceneVertices vertices;
    PALPATE_TEST_ASSIGN(std::vector<std::unique_ptr<WorldBody>> bodies,
                        test::MakeBodies({Block("left", -0.06), Floor(), Block("right", 0.06)}, &vertices));
    const SceneMotions motions;
    SolverModel followed(bodies, motions, vertices);
    followed.Make({}, false);
    for (int i = 0; i < 15; ++i) {
      SCOPED_TRACE(i);
      const gpu::TissueModel before = followed.model();
      const size_t known_bodies = bodies.size();
      PALPATE_TEST_ASSIGN(const size_t edited, test::ApplyRandomEdit(&bodies, &random));
      if (i % 4 == 3) {
        Material material = bodies[edited]->zones().MaterialOf(1);
        material.young_modulus_pa += 1e3;
        bodies[edited]->SetMaterial(1, material);
        followed.MarkMaterials(static_cast<uint32_t>(edited));
      }
      std::vector<BodyArraysChange> changes;
      for (size_t b = 0; b < bodies.size(); ++b) {
        if (!bodies[b]->has_changes()) continue;
        BodyArraysChange change = bodies[b]->UpdateArrays();
        if (b < known_bodies) changes.push_back(std::move(change));
      }
      const gpu::TissueChange change = followed.Update(changes);
      tets_changed += change.tets.size();
      pieces_seen += bodies.size() - known_bodies;
      ASSERT_NO_FATAL_FAILURE(ExpectNamed(before, followed.model(), change));
      SolverModel fresh(bodies, motions, vertices);
      fresh.Make({}, true);
      ASSERT_NO_FATAL_FAILURE(ExpectSame(followed, fresh, vertices));
      ASSERT_FALSE(::testing::Test::HasFailure());
    }
  }
  EXPECT_GT(pieces_seen, 2U);
  EXPECT_GT(tets_changed, 2000U);
}

}  // namespace
}  // namespace palpate::sim::solver_model_test
