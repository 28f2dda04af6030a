// Shells that are carved, refined and cut while they are simulated.
#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/mesh/surface_generators.h"
#include "sim/world/world.h"
#include "tests/sim/world/world_builders.h"
#include "tests/support/device_test.h"

namespace palpate::sim::shell_edit_test {
namespace {

using Eigen::Vector3d;

constexpr double kDensity = 1000;
constexpr double kThickness_m = 0.001;

/// A membrane in the plane z = 0, 80 by 60 mm, held at both ends of x.
BodyDescription Mesentery() {
  BodyDescription body;
  body.name = "mesentery";
  const absl::StatusOr<SurfaceMesh> surface = GenerateSheetSurface(0.08, 0.06, 0.006);
  EXPECT_TRUE(surface.ok()) << surface.status();
  body.mesh.vertices = surface->vertices;
  body.shell.emplace();
  body.shell->triangles = surface->triangles;
  body.shell->thickness_m = kThickness_m;
  body.material.young_modulus_pa = 2e4;
  body.material.poisson_ratio = 0.3;
  body.material.density_kg_per_m3 = kDensity;
  body.material.damping_s = 0.005;
  body.material.mass_damping_per_s = 2;
  for (uint32_t v = 0; v < body.mesh.vertices.size(); ++v) {
    if (std::abs(body.mesh.vertices[v].x()) > 0.0399) body.fixed_vertices.push_back(v);
  }
  return body;
}

SceneDescription OneMesentery() {
  SceneDescription scene;
  scene.bodies = {Mesentery()};
  scene.gravity_m_per_s2 = {0, 0, -9.81};
  scene.contact.check_intersections = true;
  return scene;
}

Edit Carve(size_t body, const Vector3d& center_m, double radius_m) { return {body, CarveEdit{BallRegion{center_m, radius_m}}}; }

/// An upright blade that goes through the given places of the plane, one stroke.
Edit Incise(size_t body, const std::vector<std::array<double, 2>>& way) {
  InciseEdit incise;
  for (const auto& [x, y] : way) incise.edges_m.push_back({Vector3d(x, y, -0.06), Vector3d(x, y, 0.03)});
  return {body, incise};
}

struct Shape {
  int64_t chi = 0;
  size_t triangles = 0;
  double area_m2 = 0;  // at rest
};

/// The arrays of a body are a manifold with boundary, and have the hash that they say.
Shape Check(const World& world, size_t body) {
  Shape shape;
  const Frame& frame = *world.CurrentFrame();
  const BodyArrays& arrays = *frame.topology->bodies[body];
  const std::vector<Vector3d> rest = world.RestPositions(body);
  std::map<std::pair<uint32_t, uint32_t>, int> edges;
  std::map<uint32_t, int> ends;
  std::map<uint32_t, int> corners;
  uint64_t hash = 0;
  EXPECT_EQ(arrays.texture_corners.size(), arrays.has_texture_corners ? arrays.surface_triangles.size() : 0);
  for (uint32_t t = 0; t < arrays.surface_triangles.size(); ++t) {
    if (arrays.surface_triangles[t] == kFreeTriangle) continue;
    ++shape.triangles;
    hash += HashOfTriangle(t, arrays.surface_triangles[t], arrays.triangle_zones[t]);
    if (arrays.has_texture_corners) hash += HashOfTextureCorners(t, arrays.texture_corners[t]);
    std::array<uint32_t, 3> v{};
    for (size_t c = 0; c < 3; ++c) v[c] = arrays.surface_vertices[arrays.surface_triangles[t][c]];
    for (size_t c = 0; c < 3; ++c) {
      EXPECT_EQ(++(edges[{v[c], v[(c + 1) % 3]}]), 1);
      ++corners[v[c]];
    }
    shape.area_m2 += (rest[v[1]] - rest[v[0]]).cross(rest[v[2]] - rest[v[0]]).norm() / 2;
  }
  size_t inner = 0;
  for (const auto& [edge, count] : edges) {
    const bool is_inner = edges.contains({edge.second, edge.first});
    inner += is_inner ? 1 : 0;
    if (!is_inner) ++ends[edge.first];
  }
  for (const auto& [v, count] : ends) EXPECT_EQ(count, 1) << "two borders leave vertex " << v;
  shape.chi = static_cast<int64_t>(corners.size()) - static_cast<int64_t>(edges.size() - inner / 2) + static_cast<int64_t>(shape.triangles);
  EXPECT_EQ(hash, arrays.surface_hash);
  EXPECT_EQ(world.body_statistics()[body].surface_triangle_count, shape.triangles);
  EXPECT_NEAR(world.body_statistics()[body].mass_kg, shape.area_m2 * kThickness_m * kDensity, 1e-12);
  return shape;
}

class WorldShellEditTest : public test::DeviceTest {
 protected:
  std::shared_ptr<const Frame> Run(World& world, int steps, const ToolCommand* command = nullptr) {
    std::shared_ptr<const Frame> frame = world.CurrentFrame();
    for (int i = 0; i < steps; ++i) {
      const std::vector<const ToolCommand*> commands(command == nullptr ? 0 : 1, command);
      const auto next = world.Step(commands);
      EXPECT_TRUE(next.ok()) << next.status();
      if (!next.ok()) return frame;
      frame = *next;
      EXPECT_EQ(frame->contact_statistics.intersection_count, 0U) << "step " << i;
      EXPECT_TRUE(std::isfinite(frame->kinetic_energy_j));
      if (HasFailure()) return frame;
    }
    return frame;
  }
  static std::vector<EditOutcome> Perform(World& world, const std::vector<Edit>& edits) {
    auto outcomes = world.Apply(edits);
    EXPECT_TRUE(outcomes.ok()) << outcomes.status();
    return outcomes.ok() ? *std::move(outcomes) : std::vector<EditOutcome>(edits.size());
  }
  static std::vector<Vector3d> Positions(World& world, size_t body) {
    const auto x = world.ReadVolumePositions(body);
    EXPECT_TRUE(x.ok()) << x.status();
    std::vector<Vector3d> out;
    for (size_t v = 0; x.ok() && 3 * v < x->size(); ++v) out.emplace_back((*x)[3 * v], (*x)[3 * v + 1], (*x)[3 * v + 2]);
    return out;
  }
};

TEST_F(WorldShellEditTest, AHoleIsCutIntoAMesentery) {
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), OneMesentery()));
  Run(*world, 30);
  const Shape before = Check(*world, 0);
  EXPECT_EQ(before.chi, 1);
  const auto frame = world->CurrentFrame();
  const std::vector<EditOutcome> outcomes = Perform(*world, {Carve(0, {0.004, 0.002, -0.005}, 0.014)});
  const EditOutcome& carved = outcomes[0];
  EXPECT_GT(carved.removed_triangles.size(), 10U);
  EXPECT_TRUE(carved.removed_tets.empty());
  const Shape after = Check(*world, 0);
  EXPECT_EQ(after.chi, 0) << "a hole";
  EXPECT_EQ(after.triangles, before.triangles - carved.removed_triangles.size() + carved.added_triangles.size());
  EXPECT_NEAR(carved.removed_mass_kg, (before.area_m2 - after.area_m2) * kThickness_m * kDensity, 1e-12);
  EXPECT_EQ(world->CurrentFrame()->topology_version, frame->topology_version + 1);
  EXPECT_TRUE(world->CurrentFrame()->topology->follows);
  Run(*world, 60);
  Check(*world, 0);
}

TEST_F(WorldShellEditTest, RefinementChangesTheMeshAlone) {
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), OneMesentery()));
  const auto frame = Run(*world, 12);
  const Shape before = Check(*world, 0);
  const std::vector<Vector3d> x = Positions(*world, 0);
  const std::vector<EditOutcome> outcomes =
      Perform(*world, {{0, RefineEdit{.region = BallRegion{{0, 0, -0.002}, 0.012}, .max_edge_m = 0.003}}});
  EXPECT_FALSE(outcomes[0].is_refused) << outcomes[0].note;
  EXPECT_GT(outcomes[0].added_triangles.size(), 3 * outcomes[0].removed_triangles.size() / 2);
  EXPECT_EQ(outcomes[0].remapped_triangles.size(), outcomes[0].added_triangles.size());
  EXPECT_EQ(outcomes[0].removed_mass_kg, 0);
  EXPECT_GT(outcomes[0].min_mean_ratio, 0.4);
  const Shape after = Check(*world, 0);
  EXPECT_EQ(after.chi, before.chi);
  EXPECT_NEAR(after.area_m2, before.area_m2, 1e-12);
  const std::vector<Vector3d> now = Positions(*world, 0);
  for (size_t v = 0; v < x.size(); ++v) EXPECT_EQ((x[v] - now[v]).norm(), 0) << "vertex " << v;
  EXPECT_NEAR(world->CurrentFrame()->kinetic_energy_j, frame->kinetic_energy_j, 0.2 * frame->kinetic_energy_j);
  Run(*world, 40);
  // Budgets stop it, and say so.
  const std::vector<EditOutcome> stopped = Perform(
      *world, {{0, RefineEdit{.region = BallRegion{{0, 0, 0}, 0.03}, .max_edge_m = 0.0005, .triangle_budget = after.triangles + 40}}});
  EXPECT_TRUE(stopped[0].is_refused);
  EXPECT_LE(Check(*world, 0).triangles, after.triangles + 40);
  Run(*world, 3);
}

TEST_F(WorldShellEditTest, ATextureStaysWhereItIsThroughEditsAndStates) {
  SceneDescription scene = OneMesentery();
  BodyDescription& mesentery = scene.bodies[0];
  mesentery.texture.pattern = TexturePattern::kFat;
  const auto projected = [](const Vector3d& at_m) {
    return std::array<float, 2>{static_cast<float>(20 * at_m.x() + 3), static_cast<float>(20 * at_m.y())};
  };
  for (const auto& triangle : mesentery.shell->triangles) {
    CornerCoordinates& corners = mesentery.texture.corners.emplace_back();
    for (size_t c = 0; c < 3; ++c) corners[c] = projected(mesentery.mesh.vertices[triangle[c]]);
  }
  const auto check = [&](const World& world) {
    size_t count = 0;
    const std::vector<std::shared_ptr<const BodyArrays>>& bodies = world.CurrentFrame()->topology->bodies;
    for (size_t body = 0; body < bodies.size(); ++body) {
      Check(world, body);
      const BodyArrays& arrays = *bodies[body];
      ASSERT_TRUE(arrays.has_texture_corners);
      const std::vector<Vector3d> rest = world.RestPositions(body);
      for (uint32_t t = 0; t < arrays.surface_triangles.size(); ++t) {
        for (size_t c = 0; c < 3 && arrays.surface_triangles[t] != kFreeTriangle; ++c) {
          const auto expected = projected(rest[arrays.surface_vertices[arrays.surface_triangles[t][c]]]);
          ASSERT_NEAR(arrays.texture_corners[t][c][0], expected[0], 1e-5);
          ASSERT_NEAR(arrays.texture_corners[t][c][1], expected[1], 1e-5);
          ++count;
        }
      }
    }
    EXPECT_GT(count, 500U);
  };
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  check(*world);
  Perform(*world, {Carve(0, {0.02, 0.012, 0}, 0.008), {0, RefineEdit{BallRegion{{-0.02, 0, 0}, 0.015}, 0.003, 0, 5000}}});
  check(*world);
  // A cut across leaves a piece with its own.
  Perform(*world, {Incise(0, {{0.03, -0.04}, {0.03, 0.04}})});
  EXPECT_EQ(world->CurrentFrame()->topology->bodies.size(), 2U);
  check(*world);
  Perform(*world, {Incise(0, {{-0.01, -0.02}, {0.01, -0.02}, {0.01, 0.0}, {-0.012, -0.001}, {-0.0111, -0.024}})});
  check(*world);
  Run(*world, 5);
  PALPATE_TEST_ASSIGN(const auto state, world->Capture());
  PALPATE_TEST_ASSIGN(auto other, World::Restore(context(), scene, *state));
  Perform(*other, {Carve(0, {-0.03, 0.01, 0}, 0.006)});
  Perform(*world, {Carve(0, {-0.03, 0.01, 0}, 0.006)});
  check(*other);
  EXPECT_EQ(other->CurrentFrame()->topology->bodies[0]->surface_hash, world->CurrentFrame()->topology->bodies[0]->surface_hash);
  // By vertex is for tissue alone.
  mesentery.texture.coordinates.assign(mesentery.mesh.vertices.size(), {});
  const auto refused = World::Create(context(), scene);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.status().message()), testing::HasSubstr("texture.coordinates"));
}

/// Where the triangles that a body has now put a place at rest; how many of all bodies hold it, with some room at their edges.
struct Held {
  size_t triangles = 0;
  double error_m = 1e300;  // from the marker
};
Held Look(World& world, const Vector3d& rest_m, const FrameMarker& marker) {
  Held out;
  const auto& bodies = world.CurrentFrame()->topology->bodies;
  for (size_t body = 0; body < bodies.size(); ++body) {
    const std::vector<Vector3d> rest = world.RestPositions(body);
    const auto now = world.ReadVolumePositions(body);
    if (!now.ok()) return out;
    for (const auto& triangle : bodies[body]->surface_triangles) {
      if (triangle == kFreeTriangle) continue;
      std::array<uint32_t, 3> v{};
      for (size_t c = 0; c < 3; ++c) v[c] = bodies[body]->surface_vertices[triangle[c]];
      Eigen::Matrix2d sides;
      for (int c = 0; c < 2; ++c) sides.col(c) = (rest[v[static_cast<size_t>(c) + 1]] - rest[v[0]]).head<2>();
      const Eigen::Vector2d w = sides.inverse() * (rest_m - rest[v[0]]).head<2>();
      if (std::min({w[0], w[1], 1 - w.sum()}) < -1e-7) continue;
      ++out.triangles;
      if (body != marker.body_index) continue;
      const auto at = [&](uint32_t i) { return Vector3d((*now)[3 * i], (*now)[3 * i + 1], (*now)[3 * i + 2]); };
      const Vector3d there = (1 - w.sum()) * at(v[0]) + w[0] * at(v[1]) + w[1] * at(v[2]);
      out.error_m = std::min(out.error_m, (there - marker.position_m).norm());
    }
  }
  return out;
}

TEST_F(WorldShellEditTest, MarkersStayInTheMaterialThroughEditsPiecesAndStates) {
  SceneDescription scene = OneMesentery();
  for (int i = 0; i < 12; ++i) {
    for (int k = 0; k < 9; ++k) {
      const Vector3d place(-0.038 + 0.0066 * i + 0.0003 * k, -0.028 + 0.007 * k, 0.0004);
      scene.bodies[0].markers.push_back({absl::StrCat("m", i, ".", k), place});
    }
  }
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  std::vector<uint32_t> released;
  size_t looked = 0;
  const auto check = [&](World& of) {
    const std::vector<FrameMarker>& markers = of.CurrentFrame()->markers;
    ASSERT_EQ(markers.size(), scene.bodies[0].markers.size());
    for (size_t m = 0; m < markers.size(); ++m) {
      const bool is_released = std::find(released.begin(), released.end(), m) != released.end();
      ASSERT_EQ(markers[m].is_released, is_released) << m;
      const Vector3d& place_m = scene.bodies[0].markers[m].position_m;
      const Held held = Look(of, place_m, markers[m]);
      if (is_released) {
        EXPECT_EQ(held.triangles, 0U) << m << ": its material is there";
        continue;
      }
      // A cut may draw a vertex to its border, and the place a little out of what is left.
      if (held.triangles == 0) continue;
      EXPECT_LT(held.error_m, 1e-6) << m;
      ++looked;
    }
  };
  const auto perform = [&](World& of, const Edit& edit) {
    const std::vector<EditOutcome> outcomes = Perform(of, {edit});
    for (const EditOutcome& outcome : outcomes) {
      released.insert(released.end(), outcome.released_markers.begin(), outcome.released_markers.end());
    }
    check(of);
  };
  check(*world);
  Run(*world, 10);
  check(*world);
  perform(*world, {0, RefineEdit{BallRegion{{-0.01, 0, 0}, 0.018}, 0.003, 0, 8000}});
  EXPECT_TRUE(released.empty());
  perform(*world, Carve(0, {0.012, 0.012, 0}, 0.014));
  EXPECT_GT(released.size(), 2U);
  perform(*world, Incise(0, {{-0.02, -0.04}, {-0.021, 0.004}, {-0.005, 0.006}}));
  Run(*world, 10);
  perform(*world, Incise(0, {{0.029, -0.04}, {0.0288, 0.04}}));
  ASSERT_EQ(world->CurrentFrame()->topology->bodies.size(), 2U);
  Run(*world, 5);
  check(*world);
  size_t in_piece = 0;
  for (const FrameMarker& marker : world->CurrentFrame()->markers) in_piece += marker.body_index == 1 ? 1 : 0;
  EXPECT_GT(in_piece, 5U);
  EXPECT_GT(looked, 600U);
  PALPATE_TEST_ASSIGN(const auto state, world->Capture());
  PALPATE_TEST_ASSIGN(auto other, World::Restore(context(), scene, *state));
  const std::vector<uint32_t> before = released;
  const Edit edit = Carve(0, world->CurrentFrame()->markers[11].position_m, 0.009);
  perform(*world, edit);
  const std::vector<uint32_t> of_first = std::exchange(released, before);
  perform(*other, edit);
  EXPECT_EQ(released, of_first);
  EXPECT_GT(released.size(), before.size());
  Run(*other, 3);
  Run(*world, 3);
  for (size_t m = 0; m < world->CurrentFrame()->markers.size(); ++m) {
    EXPECT_EQ(world->CurrentFrame()->markers[m].position_m, other->CurrentFrame()->markers[m].position_m);
  }
  PALPATE_ASSERT_OK(world->Reset().status());
  released.clear();
  check(*world);
}

TEST_F(WorldShellEditTest, AnIncisionFallsOpen) {
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), OneMesentery()));
  Run(*world, 30);
  const Shape before = Check(*world, 0);
  // In three requests that go on where the one before ended.
  size_t copied = 0;
  for (const double y : {-0.02, -0.007, 0.006}) {
    const std::vector<EditOutcome> outcomes = Perform(*world, {Incise(0, {{0.0013, y}, {0.0013, y + 0.013}})});
    EXPECT_EQ(outcomes[0].removed_mass_kg, 0);
    for (const VertexId id : outcomes[0].added_vertices) copied += id != kNoVertex ? 1 : 0;
  }
  EXPECT_GT(copied, 6U);
  const Shape after = Check(*world, 0);
  EXPECT_EQ(after.chi, 0) << "a slit";
  EXPECT_NEAR(after.area_m2, before.area_m2, 1e-12);
  EXPECT_EQ(world->body_statistics().size(), 1U);
  const auto opening_m = [&] {  // of vertices that are in one place at rest
    const std::vector<Vector3d> x = Positions(*world, 0);
    const std::vector<Vector3d> rest = world->RestPositions(0);
    double widest_m = 0;
    for (size_t v = 0; v < x.size(); ++v) {
      for (size_t w = 0; w < v; ++w) {
        if (rest[v] == rest[w] && !rest[v].isZero(0)) widest_m = std::max(widest_m, (x[v] - x[w]).norm());
      }
    }
    return widest_m;
  };
  const double at_first_m = opening_m();
  Run(*world, 80);
  EXPECT_LT(at_first_m, 0.0002);
  EXPECT_GT(opening_m(), 0.001) << "it hangs, so its lips are pulled apart";
}

TEST_F(WorldShellEditTest, WhatIsCutOffFalls) {
  const SceneDescription scene = OneMesentery();
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  Run(*world, 10);
  const double area_m2 = Check(*world, 0).area_m2;
  const std::vector<EditOutcome> outcomes =
      Perform(*world, {Incise(0, {{-0.012, -0.04}, {-0.0117, 0.04}}), Incise(0, {{0.0123, -0.04}, {0.0128, 0.04}})});
  ASSERT_EQ(outcomes[1].new_bodies.size() + outcomes[0].new_bodies.size(), 2U);
  ASSERT_EQ(world->body_statistics().size(), 3U);
  double sum_m2 = 0;
  for (size_t b = 0; b < 3; ++b) {
    const Shape shape = Check(*world, b);
    EXPECT_EQ(shape.chi, 1);
    sum_m2 += shape.area_m2;
  }
  EXPECT_NEAR(sum_m2, area_m2, 1e-12);
  const auto lowest = [&](size_t body) {
    double low = 1;
    for (const Vector3d& x : Positions(*world, body)) low = std::min(low, x.z());
    return low;
  };
  std::vector<double> before = {lowest(0), lowest(1), lowest(2)};
  Run(*world, 60);
  int fallen = 0;
  for (size_t b = 0; b < 3; ++b) fallen += lowest(b) < before[b] - 0.1 ? 1 : 0;
  EXPECT_EQ(fallen, 1) << "what lay in the middle; the others hang from their ends";
  // Pieces are edited like any other body, and a checkpoint brings them back.
  Perform(*world, {Carve(1, Positions(*world, 1)[0], 0.008)});
  PALPATE_TEST_ASSIGN(const auto state, world->Capture());
  PALPATE_TEST_ASSIGN(auto restored, World::Restore(context(), scene, *state));
  EXPECT_EQ(restored->CurrentFrame()->state_hash, world->CurrentFrame()->state_hash);
  const std::vector<Edit> more = {Incise(0, {{-0.03, -0.04}, {-0.0301, 0.004}}),
                                  {0, RefineEdit{BallRegion{{-0.03, 0.01, -0.01}, 0.01}, 0.004}}};
  Perform(*world, more);
  Perform(*restored, more);
  EXPECT_EQ(Run(*restored, 5)->state_hash, Run(*world, 5)->state_hash);
  EXPECT_EQ(restored->CurrentFrame()->topology->bodies[0]->surface_hash, world->CurrentFrame()->topology->bodies[0]->surface_hash);
}

TEST_F(WorldShellEditTest, SameEditsSameBitsAndAResetForgetsThem) {
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), OneMesentery()));
  const auto play = [&] {
    Run(*world, 5);
    Perform(*world, {Carve(0, {0.01, 0, 0}, 0.01)});
    Run(*world, 3);
    Perform(*world, {Incise(0, {{-0.013, -0.04}, {-0.0117, 0.01}}), {0, RefineEdit{BallRegion{{-0.012, 0.01, 0}, 0.01}, 0.004}}});
    return Run(*world, 5)->state_hash;
  };
  const Shape at_first = Check(*world, 0);
  const uint64_t first = play();
  PALPATE_TEST_ASSIGN(const auto frame, world->Reset());
  EXPECT_EQ(frame->step, 0U);
  EXPECT_EQ(Check(*world, 0).triangles, at_first.triangles);
  EXPECT_EQ(play(), first);
}

TEST_F(WorldShellEditTest, HeldLoadedAndDrivenVerticesGoOn) {
  SceneDescription scene = OneMesentery();
  scene.gravity_m_per_s2 = {0, 0, 0};
  DrivenRegion region;
  for (const uint32_t v : scene.bodies[0].fixed_vertices) {
    if (scene.bodies[0].mesh.vertices[v].x() > 0) region.vertices.push_back(v);
  }
  region.velocity_m_per_s = {0.02, 0, 0};
  region.duration_s = 0.5;
  scene.bodies[0].driven_regions = {region};
  LoadDescription load;
  for (uint32_t v = 0; v < scene.bodies[0].mesh.vertices.size(); ++v) load.vertices.push_back(v);
  load.pressure_pa = 20;
  scene.bodies[0].loads = {load};
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  Run(*world, 5);
  // A cut through the driven border parts two of its vertices, and new ones between them are driven too.
  Perform(*world, {Incise(0, {{0.06, 0.0023}, {0.02, 0.0031}}), Carve(0, {0, 0, 0}, 0.008)});
  Check(*world, 0);
  Run(*world, 60);
  double least = 1;
  const std::vector<Vector3d> x = Positions(*world, 0);
  const std::vector<Vector3d> rest = world->RestPositions(0);
  for (size_t v = 0; v < x.size(); ++v) {
    if (rest[v].x() > 0.0399) least = std::min(least, x[v].x() - rest[v].x());
  }
  EXPECT_NEAR(least, 0.01, 0.0005) << "all of the border has gone its way";
}

TEST_F(WorldShellEditTest, WhatAShellDoesNotHaveIsRefused) {
  SceneDescription scene = OneMesentery();
  scene.bodies.push_back(test::BoxBody("block", {0, 0, 0.05}, {3, 3, 3}, {0.02, 0.02, 0.02}, test::HeldSide::kLowZ));
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  const auto refused = [&](const Edit& edit) {
    const auto outcome = world->Apply(std::vector<Edit>{edit});
    EXPECT_FALSE(outcome.ok());
    EXPECT_EQ(outcome.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(outcome.status().message());
  };
  using testing::HasSubstr;
  EXPECT_THAT(refused({0, CarveEdit{TetListRegion{{TetId{1}}}}}), HasSubstr("mesentery is a shell: it has triangles, not tets"));
  EXPECT_THAT(refused({1, CarveEdit{TriangleListRegion{{TriangleId{1}}}}}), HasSubstr("block is no shell: it has tets, not triangles"));
  EXPECT_EQ(world->Apply(std::vector<Edit>{{0, CarveEdit{ZoneRegion{"x"}}}}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(refused({0, RefineEdit{BallRegion{{0, 0, 0}, 0.01}, 0.003, 100}}), HasSubstr("tet_budget: body mesentery is a shell"));
  EXPECT_THAT(refused({1, RefineEdit{BallRegion{{0, 0, 0}, 0.01}, 0.003, 0, 100}}), HasSubstr("triangle_budget: body block is no shell"));
  Material material = scene.bodies[0].material;
  material.fibers = FiberProperties{Eigen::Vector3d::UnitX(), 6e4, 0.3, 8e3};
  EXPECT_THAT(refused({0, MaterialEdit{.zone = "", .material = material}}), HasSubstr("material.fibers: a shell has none"));
  material = scene.bodies[0].material;
  material.model = MaterialModel::kCorotated;
  EXPECT_THAT(refused({0, MaterialEdit{.zone = "", .material = material}}), HasSubstr("material.model: a shell is"));
  material = scene.bodies[0].material;
  material.young_modulus_pa = 1;
  EXPECT_THAT(refused({0, MaterialEdit{.zone = "", .material = material}}), HasSubstr("young_modulus_pa: 1 is outside"));
  EXPECT_FALSE(world->Apply(std::vector<Edit>{{0, MaterialEdit{.zone = "x", .material = scene.bodies[0].material}}}).ok());
  EXPECT_THAT(refused({0, CarveEdit{BallRegion{{0, 0, 0}, -1}}}), HasSubstr("radius_m"));
  EXPECT_EQ(world->CurrentFrame()->topology_version, 1U);
  // Ids that are gone are counted.
  const std::vector<EditOutcome> outcomes =
      Perform(*world, {{0, CarveEdit{TriangleListRegion{{MakeId<TriangleId>(3, 9), MakeId<TriangleId>(5, 1)}}}}});
  EXPECT_EQ(outcomes[0].unchanged_count, 1U);
  EXPECT_EQ(outcomes[0].removed_triangles.size(), 1U);
}

TEST_F(WorldShellEditTest, AnotherMaterialHangsAsIfItHadBeenThereAtFirst) {
  SceneDescription scene = OneMesentery();
  scene.bodies[0].material.mass_damping_per_s = 20;
  const Material stiff = scene.bodies[0].material;
  Material soft = stiff;
  soft.young_modulus_pa = stiff.young_modulus_pa / 4;
  const auto lowest_m = [](const Frame& frame) {
    double z = 0;
    for (size_t i = 2; i < frame.surface_positions_m[0].size(); i += 3)
      z = std::min(z, static_cast<double>(frame.surface_positions_m[0][i]));
    return z;
  };
  PALPATE_TEST_ASSIGN(auto changed, World::Create(context(), scene));
  const double sag_of_stiff_m = lowest_m(*Run(*changed, 250));
  const double mass_kg = changed->body_statistics()[0].mass_kg;
  Perform(*changed, {{0, MaterialEdit{.zone = "", .material = soft}}});
  EXPECT_EQ(lowest_m(*changed->CurrentFrame()), sag_of_stiff_m) << "the state is as it was";
  const double sag_of_changed_m = lowest_m(*Run(*changed, 250));
  EXPECT_LT(sag_of_changed_m, 1.2 * sag_of_stiff_m) << "it hangs lower";
  EXPECT_EQ(changed->body_statistics()[0].mass_kg, mass_kg);
  scene.bodies[0].material = soft;
  PALPATE_TEST_ASSIGN(auto from_start, World::Create(context(), scene));
  EXPECT_NEAR(lowest_m(*Run(*from_start, 250)), sag_of_changed_m, 0.01 * std::abs(sag_of_changed_m));
  // With cuts in it too.
  Perform(*changed, {Carve(0, {0, 0, sag_of_changed_m}, 0.015), {0, MaterialEdit{.zone = "", .material = stiff}}});
  EXPECT_GT(lowest_m(*Run(*changed, 250)), 1.05 * sag_of_changed_m) << "it is drawn up";
}

TEST_F(WorldShellEditTest, ZonesAreCutAndTakenOutWithTheirMass) {
  SceneDescription scene = OneMesentery();
  BodyDescription& body = scene.bodies[0];
  ZoneDescription vessel;
  vessel.name = "vessel";
  vessel.material = body.material;
  vessel.material.density_kg_per_m3 = 2 * kDensity;
  vessel.shell.thickness_m = 2 * kThickness_m;
  body.zones = {vessel};
  double of_vessel_m2 = 0, area_m2 = 0;
  for (const auto& [a, b, c] : body.shell->triangles) {
    const std::array<Vector3d, 3> x = {body.mesh.vertices[a], body.mesh.vertices[b], body.mesh.vertices[c]};
    const bool is_vessel = std::abs((x[0] + x[1] + x[2]).y() / 3) < 0.01;
    body.tet_zones.push_back(is_vessel ? 1 : 0);
    const double m2 = (x[1] - x[0]).cross(x[2] - x[0]).norm() / 2;
    area_m2 += m2;
    if (is_vessel) of_vessel_m2 += m2;
  }
  constexpr double kLight = kThickness_m * kDensity, kHeavy = 4 * kThickness_m * kDensity;  // kg/m^2
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  const auto mass_kg = [&] { return world->body_statistics()[0].mass_kg; };
  EXPECT_NEAR(mass_kg(), (area_m2 - of_vessel_m2) * kLight + of_vessel_m2 * kHeavy, 1e-12);
  Run(*world, 10);
  // A hole in the membrane alone, then a finer mesh around the border of both, then the vessel.
  const EditOutcome hole = Perform(*world, {{0, CarveEdit{CapsuleRegion{{0, 0.02, -0.03}, {0, 0.02, 0.03}, 0.006}}}})[0];
  EXPECT_GT(hole.removed_triangles.size(), 0U);
  EXPECT_NEAR(mass_kg(), (area_m2 - of_vessel_m2) * kLight + of_vessel_m2 * kHeavy - hole.removed_mass_kg, 1e-12);
  const double before_kg = mass_kg();
  EXPECT_EQ(Perform(*world, {{0, RefineEdit{.region = CapsuleRegion{{0, 0.01, -0.03}, {0, 0.01, 0.03}, 0.012}, .max_edge_m = 0.003}}})[0]
                .removed_mass_kg,
            0);
  EXPECT_NEAR(mass_kg(), before_kg, 1e-12);
  Run(*world, 10);
  PALPATE_TEST_ASSIGN(const auto state, world->Capture());
  const auto take_out = [&](World& from) {
    const EditOutcome vessel_out = Perform(from, {{0, CarveEdit{ZoneRegion{"vessel"}}}})[0];
    EXPECT_NEAR(vessel_out.removed_mass_kg, of_vessel_m2 * kHeavy, 1e-10);
    return Run(from, 10)->state_hash;
  };
  const uint64_t hash = take_out(*world);
  ASSERT_EQ(world->body_statistics().size(), 2U) << "two strips are left";
  EXPECT_NEAR(world->body_statistics()[0].mass_kg + world->body_statistics()[1].mass_kg, before_kg - of_vessel_m2 * kHeavy, 1e-10);
  PALPATE_TEST_ASSIGN(auto restored, World::Restore(context(), scene, *state));
  EXPECT_EQ(take_out(*restored), hash);
}

TEST_F(WorldShellEditTest, AFillingIsKeptUntilACutLetsItGo) {
  SceneDescription scene;
  scene.gravity_m_per_s2.setZero();
  BodyDescription body;
  body.name = "bladder";
  PALPATE_TEST_ASSIGN(const SurfaceMesh surface, GenerateSphereSurface(0.03, 0.01));
  body.mesh.vertices = surface.vertices;
  body.shell.emplace();
  body.shell->triangles = surface.triangles;
  body.shell->thickness_m = kThickness_m;
  body.material.young_modulus_pa = 2e4;
  body.material.poisson_ratio = 0.3;
  body.material.density_kg_per_m3 = kDensity;
  body.material.mass_damping_per_s = 20;
  body.volume_stiffness_pa = 1e6;
  LoadDescription pressure;  // pulls it outwards, which its membrane alone would give way to
  for (uint32_t v = 0; v < body.mesh.vertices.size(); ++v) pressure.vertices.push_back(v);
  pressure.pressure_pa = -50;
  body.loads = {pressure};
  scene.bodies = {body};
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  // Of its area now to that at rest.
  const auto stretch = [&](World& of) {
    double area_m2 = 0;
    const std::vector<Vector3d> x = Positions(of, 0);
    const BodyArrays& arrays = *of.CurrentFrame()->topology->bodies[0];
    for (const auto& triangle : arrays.surface_triangles) {
      if (triangle == kFreeTriangle) continue;
      const auto at = [&](size_t corner) { return x[arrays.surface_vertices[triangle[corner]]]; };
      area_m2 += (at(1) - at(0)).cross(at(2) - at(0)).norm() / 2;
    }
    return area_m2 / Check(of, 0).area_m2;
  };
  Run(*world, 40);
  EXPECT_NEAR(stretch(*world), 1, 1e-3) << "filled";
  const EditOutcome finer = Perform(*world, {{0, RefineEdit{.region = BallRegion{{0, 0, 0.03}, 0.02}, .max_edge_m = 0.006}}})[0];
  EXPECT_EQ(finer.note, "");
  EXPECT_FALSE(world->body_statistics()[0].is_volume_released);
  Run(*world, 20);
  EXPECT_NEAR(stretch(*world), 1, 1e-3) << "refined, but closed";
  PALPATE_TEST_ASSIGN(const auto filled, world->Capture());
  const auto open = [&](World& of) {
    const EditOutcome cut = Perform(of, {Carve(0, {0, 0, 0.03}, 0.012)})[0];
    EXPECT_EQ(cut.note, "the shell is open now, and its volume is no longer kept");
    EXPECT_TRUE(of.body_statistics()[0].is_volume_released);
    return Run(of, 30)->state_hash;
  };
  const uint64_t hash = open(*world);
  EXPECT_GT(stretch(*world), 1.02) << "empty";
  PALPATE_TEST_ASSIGN(auto restored, World::Restore(context(), scene, *filled));
  EXPECT_FALSE(restored->body_statistics()[0].is_volume_released);
  EXPECT_EQ(open(*restored), hash);
  PALPATE_TEST_ASSIGN(const auto emptied, world->Capture());
  PALPATE_TEST_ASSIGN(auto open_again, World::Restore(context(), scene, *emptied));
  EXPECT_TRUE(open_again->body_statistics()[0].is_volume_released);
  EXPECT_EQ(Run(*open_again, 5)->state_hash, Run(*world, 5)->state_hash);
  EXPECT_EQ(Perform(*world, {Carve(0, {0.03, 0, 0}, 0.012)})[0].note, "") << "it was open before";
  PALPATE_ASSERT_OK(world->Reset().status());
  EXPECT_FALSE(world->body_statistics()[0].is_volume_released);
  Run(*world, 40);
  EXPECT_NEAR(stretch(*world), 1, 1e-3) << "filled again";
}

TEST_F(WorldShellEditTest, ZonesKeepTheirPropertiesThroughEditsPiecesAndStates) {
  SceneDescription scene = OneMesentery();
  BodyDescription& body = scene.bodies[0];
  body.material.model = MaterialModel::kStVenantKirchhoff;
  body.material.poisson_ratio = 0;
  ZoneDescription edge;
  edge.name = "edge";
  edge.material = body.material;
  edge.shell.orthotropic = {.warp = {0, 1, 0}, .weft_modulus_pa = 20 * body.material.young_modulus_pa, .shear_modulus_pa = std::nullopt};
  edge.shell.strain_limit = 0.02;
  edge.shell.bending_stiffness_n_m = 1e-5;
  body.zones = {edge};
  for (const auto& [a, b, c] : body.shell->triangles) {
    const double y_m = (body.mesh.vertices[a] + body.mesh.vertices[b] + body.mesh.vertices[c]).y() / 3;
    body.tet_zones.push_back(y_m > 0.005 ? 1 : 0);
  }
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  Run(*world, 5);
  Perform(*world, {{0, RefineEdit{.region = CapsuleRegion{{0, 0.01, -0.03}, {0, 0.01, 0.03}, 0.012}, .max_edge_m = 0.004}}});
  // Across both zones, twice: three pieces have a part of each.
  Perform(*world, {Incise(0, {{-0.012, -0.04}, {-0.0117, 0.04}}), Incise(0, {{0.0123, -0.04}, {0.0128, 0.04}})});
  ASSERT_EQ(world->body_statistics().size(), 3U);
  Run(*world, 5);
  PALPATE_TEST_ASSIGN(const auto state, world->Capture());
  const auto go_on = [&](World& from) {
    Run(from, 5);
    Perform(from, {{1, RefineEdit{.region = BallRegion{{0, 0, 0}, 1}, .max_edge_m = 0.006}}});
    return Run(from, 10)->state_hash;
  };
  const uint64_t hash = go_on(*world);
  PALPATE_TEST_ASSIGN(auto restored, World::Restore(context(), scene, *state));
  EXPECT_EQ(go_on(*restored), hash);
  scene.bodies[0].zones[0].shell.strain_limit = 0.03;
  EXPECT_FALSE(World::Restore(context(), scene, *state).ok()) << "it is another scene";
}

TEST_F(WorldShellEditTest, AllOfItCanBeTakenOut) {
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), OneMesentery()));
  Run(*world, 2);
  Perform(*world, {Carve(0, {0, 0, 0}, 1)});
  EXPECT_EQ(Check(*world, 0).triangles, 0U);
  Run(*world, 2);
}

TEST_F(WorldShellEditTest, AScalpelCutsAndAHookBurns) {
  for (const bool is_blade : {true, false}) {
    SceneDescription scene = OneMesentery();
    scene.gravity_m_per_s2 = {0, 0, 0};
    scene.bodies[0].ablation.energy_j_per_kg = 2e4;
    ToolDescription tool;
    tool.name = "tool";
    tool.radius_m = 0.002;
    tool.length_m = 0.1;
    tool.drive = ToolDrive::kDirect;
    tool.instrument.kind = is_blade ? InstrumentKind::kScalpel : InstrumentKind::kCauteryHook;
    tool.instrument.blade_length_m = 0.012;
    tool.instrument.reach_m = 0.006;
    tool.instrument.max_power_w = 20;
    // The blade's edge stands across the sheet; the hook hangs over it.
    const Eigen::Quaterniond turn(Eigen::AngleAxisd(is_blade ? M_PI / 2 : 0, Vector3d::UnitY()));
    tool.rest_pose = {is_blade ? Vector3d(-0.0013, -0.05, 0.006) : Vector3d(0, 0, 0.008), turn};
    scene.tools = {tool};
    PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
    ToolCommand command;
    command.device_pose = tool.rest_pose;
    command.pedal = !is_blade;
    const double area_m2 = Check(*world, 0).area_m2;
    int cutting = 0;
    for (int i = 0; i < 60 && !HasFailure(); ++i) {
      if (is_blade) command.device_pose.position_m.y() = std::min(-0.05 + 0.001 * i, 0.008);
      cutting += Run(*world, 1, &command)->tools[0].is_cutting ? 1 : 0;
    }
    const Shape shape = Check(*world, 0);
    EXPECT_GT(cutting, 5);
    EXPECT_EQ(shape.chi, is_blade ? 1 : 0) << "a slit from the border, or a hole";
    const double removed_kg = world->CurrentFrame()->tools[0].removed_mass_kg;
    if (is_blade) {
      EXPECT_NEAR(removed_kg, 0, 1e-12);
      EXPECT_GT(world->CurrentFrame()->topology_version, 5U);
    } else {
      EXPECT_NEAR(removed_kg, (area_m2 - shape.area_m2) * kThickness_m * kDensity, 1e-12);
      EXPECT_GT(removed_kg, 5e-5);
      EXPECT_LE(removed_kg, 20 * 60 * scene.dt_s / 2e4) << "power over energy";
    }
  }
}

}  // namespace
}  // namespace palpate::sim::shell_edit_test
