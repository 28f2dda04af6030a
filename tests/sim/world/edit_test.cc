// Tissue that is cut, carved and refined while it is simulated.
#include <Eigen/Dense>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "sim/instrument/geometry.h"
#include "sim/mesh/generators.h"
#include "sim/world/world.h"
#include "tests/sim/world/topology_checks.h"
#include "tests/sim/world/world_builders.h"
#include "tests/support/device_test.h"

namespace palpate::sim::edit_test {
namespace {

using Eigen::Vector3d;
using test::BoxBody;
using test::HeldSide;

/// Kinetic energy of masses lumped on the vertices, J.
double LumpedEnergy(const BodyArrays& arrays, const std::vector<Vector3d>& rest_m, const std::vector<Vector3d>& velocity_m_per_s,
                    double density_kg_per_m3) {
  double energy_j = 0;
  for (const auto& t : arrays.tets) {
    if (t == std::array<uint32_t, 4>{}) continue;
    const Vector3d a = rest_m[t[1]] - rest_m[t[0]], b = rest_m[t[2]] - rest_m[t[0]], c = rest_m[t[3]] - rest_m[t[0]];
    const double corner_kg = density_kg_per_m3 * a.cross(b).dot(c) / 6 / 4;
    for (const uint32_t v : t) energy_j += corner_kg * velocity_m_per_s[v].squaredNorm() / 2;
  }
  return energy_j;
}

/// What the tet of `mesh` that holds a point has there, of values that are linear in each tet.
Vector3d Interpolate(const TetMesh& mesh, const std::vector<Vector3d>& values, const Vector3d& point_m) {
  double deepest = -1;
  Vector3d value = Vector3d::Zero();
  for (const auto& t : mesh.tets) {
    Eigen::Matrix3d edges;
    for (int k = 0; k < 3; ++k) edges.col(k) = mesh.vertices[t[static_cast<size_t>(k) + 1]] - mesh.vertices[t[0]];
    const Vector3d w = edges.inverse() * (point_m - mesh.vertices[t[0]]);
    const double depth = std::min(w.minCoeff(), 1 - w.sum());
    if (depth <= deepest) continue;
    deepest = depth;
    value = (1 - w.sum()) * values[t[0]] + w[0] * values[t[1]] + w[1] * values[t[2]] + w[2] * values[t[3]];
  }
  EXPECT_GT(deepest, -1e-6) << "no tet holds " << point_m.transpose();
  return value;
}

class WorldEditTest : public test::DeviceTest {
 protected:
  static SceneDescription OneBlock() {
    SceneDescription scene;
    scene.bodies = {BoxBody("block", {0, 0, 0}, {7, 7, 5}, {0.06, 0.06, 0.04}, HeldSide::kLowZ)};
    scene.contact.check_intersections = true;
    return scene;
  }
  static Edit Carve(size_t body, const Vector3d& center_m, double radius_m) {
    return {.body = body, .what = CarveEdit{BallRegion{center_m, radius_m}}};
  }

  static void StepOften(World* world, int steps, const std::string& what) {
    for (int i = 0; i < steps; ++i) {
      PALPATE_TEST_ASSIGN(const auto frame, world->Step({}));
      ASSERT_EQ(frame->contact_statistics.intersection_count, 0U) << what << ", step " << i;
      ASSERT_TRUE(std::isfinite(frame->kinetic_energy_j));
    }
  }
};

TEST_F(WorldEditTest, CarvingTakesTissueOutAndTheRestGoesOn) {
  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), OneBlock()));
  ASSERT_NO_FATAL_FAILURE(test::CheckTopology(*world, nullptr));
  ASSERT_NO_FATAL_FAILURE(StepOften(world.get(), 20, "before"));
  const auto before = world->CurrentFrame();
  const BodyStatistics statistics = world->body_statistics()[0];
  const std::vector<Edit> edits = {Carve(0, {0.01, 0, 0.015}, 0.014)};
  PALPATE_TEST_ASSIGN(const auto outcomes, world->Apply(edits));
  ASSERT_EQ(outcomes.size(), 1U);
  EXPECT_GT(outcomes[0].removed_tets.size(), 20U);
  EXPECT_EQ(outcomes[0].unchanged_count, 0U);
  EXPECT_NEAR(outcomes[0].removed_mass_kg, statistics.mass_kg - world->body_statistics()[0].mass_kg, 1e-12);
  EXPECT_EQ(world->body_statistics()[0].tet_count, statistics.tet_count - outcomes[0].removed_tets.size() + outcomes[0].added_tets.size());
  ASSERT_NO_FATAL_FAILURE(test::CheckTopology(*world, before->topology.get()));
  // Nothing jumped: vertices that are still there are where they were, but for those that were drawn back.
  const BodyArrays& old_arrays = *before->topology->bodies[0];
  const BodyArrays& arrays = *world->CurrentFrame()->topology->bodies[0];
  for (const SurfaceSlot slot : old_arrays.surface_vertices.indices()) {
    if (arrays.surface_vertices[slot] != old_arrays.surface_vertices[slot]) continue;
    for (size_t k = 0; k < 3; ++k) {
      const size_t i = size_t{3} * ToNumber(slot) + k;
      EXPECT_NEAR(world->CurrentFrame()->surface_positions_m[0][i], before->surface_positions_m[0][i], 5e-5);
    }
  }
  ASSERT_NO_FATAL_FAILURE(StepOften(world.get(), 60, "after"));
}

// An inverted tet's faces may lie outside the body or in other tissue, so that whatever uncovers them must not.
TEST_F(WorldEditTest, NothingCrossesWhereTetsAreInverted) {
  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), OneBlock()));
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  size_t removed = 0, opened = 0, stayed = 0;
  for (int trial = 0; trial < 24; ++trial) {
    PALPATE_ASSERT_OK(world->Reset().status());
    const std::vector<Vector3d> rest_m = world->RestPositions(0);
    // One vertex inside the block goes up to 2 cells away: as many tets as may be inverted without the mesh counting as tangled.
    std::vector<uint32_t> inner;
    for (uint32_t v = 0; v < rest_m.size(); ++v) {
      if ((rest_m[v].cwiseAbs() - Vector3d(0.03, 0.03, 0.02)).maxCoeff() < -0.001) inner.push_back(v);
    }
    const uint32_t moved = inner[random() % inner.size()];
    PALPATE_TEST_ASSIGN(std::vector<float> positions_m, world->ReadVolumePositions(0));
    const Vector3d way = 0.02 * Vector3d(normal(random), normal(random), normal(random)).normalized();
    for (size_t k = 0; k < 3; ++k) positions_m[3 * moved + k] += static_cast<float>(way[static_cast<int>(k)]);
    PALPATE_ASSERT_OK(world->WriteVolumePositions(0, positions_m));
    ASSERT_NO_FATAL_FAILURE(StepOften(world.get(), trial % 3 / 2, "inverted"));
    for (int i = 0; i < 6; ++i) {
      const std::string what = "trial " + std::to_string(trial) + ", edit " + std::to_string(i);
      const Vector3d place = rest_m[moved] + 0.006 * Vector3d(normal(random), normal(random), normal(random));
      std::vector<Edit> edits = {Carve(0, place + Vector3d(0, 0, 0.005 * i), 0.012)};
      if ((trial + i) % 2 != 0) {
        InciseEdit cut;
        const Vector3d side = Vector3d(normal(random), normal(random), 0).normalized();
        for (const double at : {-1.0, 0.0, 1.0})
          cut.edges_m.push_back({place + 0.04 * at * side, place + 0.04 * at * side + Vector3d(0, 0, 0.05)});
        edits = {{.body = 0, .what = cut}};
      }
      PALPATE_TEST_ASSIGN(const auto outcomes, world->Apply(edits));
      ASSERT_EQ(world->CurrentFrame()->contact_statistics.intersection_count, 0U) << what;
      ASSERT_NO_FATAL_FAILURE(test::CheckTopology(*world, nullptr)) << what;
      if (std::holds_alternative<CarveEdit>(edits[0].what)) {
        removed += outcomes[0].removed_tets.size();
        stayed += outcomes[0].unchanged_count;
      } else {
        opened += outcomes[0].added_vertices.size();
      }
      ASSERT_NO_FATAL_FAILURE(StepOften(world.get(), i % 2, what));
    }
    ASSERT_NO_FATAL_FAILURE(StepOften(world.get(), 5, "after trial " + std::to_string(trial)));
  }
  EXPECT_GT(removed, 500U);
  EXPECT_GT(opened, 500U);
  EXPECT_LT(stayed, removed / 5);
  std::printf("%zu tets removed, %zu stayed, %zu vertices added\n", removed, stayed, opened);
}

// A bar in pieces falls on a floor: no step pushes harder than it takes to stop them, nor, once they lie, much harder than they weigh.
TEST_F(WorldEditTest, PiecesThatFallAndLieFeelNoBlows) {
  SceneDescription scene;
  scene.contact.check_intersections = true;
  scene.obstacles = {{"floor", PlaneShape{{0, 0, 0}, {0, 0, 1}}}};
  scene.bodies = {BoxBody("bar", {0, 0, 0.03}, {13, 5, 5}, {0.06, 0.02, 0.02})};
  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
  for (int i = 0; i < 5; ++i) {
    const double turn = 0.5 * std::sin(2.3 * i), tilt = 0.4 * std::cos(3.1 * i);
    const Vector3d across(std::sin(turn), std::cos(turn), 0), normal(std::cos(turn), -std::sin(turn), 0);
    const Vector3d place(-0.02 + 0.008 * i, 0, 0.03), up = 0.03 * (Vector3d::UnitZ() + tilt * normal);
    const size_t count = world->CurrentFrame()->topology->bodies.size();
    for (size_t b = 0; b < count; ++b) {
      InciseEdit cut;
      for (const double at : {-0.03, 0.0, 0.03}) cut.edges_m.push_back({place + at * across - up, place + at * across + up});
      const std::vector<Edit> edits = {{.body = b, .what = cut}};
      PALPATE_ASSERT_OK(world->Apply(edits).status());
    }
  }
  ASSERT_GT(world->CurrentFrame()->topology->bodies.size(), 4U);
  double mass_kg = 0;
  for (const BodyStatistics& body : world->body_statistics()) mass_kg += body.mass_kg;
  const double weight_n = 9.81 * mass_kg;
  const double impact_m_per_s = std::sqrt(2 * 9.81 * 0.02);
  double hardest_n = 0, hardest_later_n = 0;
  for (int i = 0; i < 60; ++i) {
    PALPATE_TEST_ASSIGN(const auto frame, world->Step({}));
    ASSERT_EQ(frame->contact_statistics.intersection_count, 0U) << i;
    double floor_n = 0;
    for (const FrameContact& contact : frame->contacts) floor_n += static_cast<double>(contact.force_n.z());
    hardest_n = std::max(hardest_n, floor_n);
    if (i >= 10) hardest_later_n = std::max(hardest_later_n, floor_n);
  }
  std::printf("hardest %.3f N, after step 10 %.3f N, weight %.3f N\n", hardest_n, hardest_later_n, weight_n);
  EXPECT_GT(hardest_n, weight_n);
  EXPECT_LT(hardest_n, weight_n + mass_kg * impact_m_per_s / scene.dt_s);
  EXPECT_LT(hardest_later_n, 3 * weight_n);
}

TEST_F(WorldEditTest, AToolFeelsNoGapWhileTissueBesideItGoes) {
  SceneDescription scene = OneBlock();
  ToolDescription probe;
  probe.name = "probe";
  probe.drive = ToolDrive::kDirect;
  probe.rest_pose.position_m = {-0.015, 0, 0.02 + probe.radius_m - 0.003};
  scene.tools = {probe};
  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
  const ToolCommand* const commands[] = {nullptr};
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(world->Step(commands).ok());
  size_t removed = 0;
  for (int i = 0; i < 30; ++i) {
    const auto before = world->CurrentFrame();
    const std::vector<Edit> edits = {Carve(0, {0.02, -0.025 + 0.0017 * i, 0.02}, 0.008)};
    PALPATE_TEST_ASSIGN(const auto outcomes, world->Apply(edits));
    removed += outcomes[0].removed_tets.size();
    // Between two steps the hand has what the newest one found.
    const auto edited = world->CurrentFrame();
    ASSERT_EQ(edited->local_models.size(), 1U);
    ASSERT_EQ(edited->local_models[0].step, before->step);
    ASSERT_EQ(edited->local_models[0].constraint_count, before->local_models[0].constraint_count);
    ASSERT_EQ(edited->local_models[0].force_n, before->local_models[0].force_n);
    ASSERT_EQ(edited->tools[0].force_n, before->tools[0].force_n);
    ASSERT_EQ(edited->tools[0].is_touching, before->tools[0].is_touching);
    PALPATE_TEST_ASSIGN(const auto frame, world->Step(commands));
    ASSERT_EQ(frame->local_models[0].step, before->step + 1);
    ASSERT_GT(frame->local_models[0].constraint_count, 0U) << "step " << frame->step;
    ASSERT_GT(frame->tools[0].force_n.z(), 0.01) << "step " << frame->step;
  }
  EXPECT_GT(removed, 20U);
}

TEST_F(WorldEditTest, ResetUndoesEdits) {
  SceneDescription scene = OneBlock();
  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
  std::vector<uint64_t> hashes;
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(world->body_statistics()[0].tet_count, scene.bodies[0].mesh.tets.size());
    for (int i = 0; i < 5; ++i) {
      PALPATE_TEST_ASSIGN(const auto frame, world->Step({}));
      hashes.push_back(frame->state_hash);
    }
    const std::vector<Edit> edits = {Carve(0, {0.01, 0, 0.015}, 0.014), Carve(0, {-0.03, -0.03, 0.02}, 0.01)};
    PALPATE_ASSERT_OK(world->Apply(edits).status());
    for (int i = 0; i < 5; ++i) {
      PALPATE_TEST_ASSIGN(const auto frame, world->Step({}));
      hashes.push_back(frame->state_hash);
    }
    const uint64_t version = world->CurrentFrame()->topology_version;
    PALPATE_TEST_ASSIGN(const auto frame, world->Reset());
    EXPECT_GT(frame->topology_version, version);
    EXPECT_FALSE(frame->topology->follows);
    ASSERT_NO_FATAL_FAILURE(test::CheckTopology(*world, nullptr));
  }
  // The same edits before the same steps give the same bits.
  for (size_t i = 0; i < 10; ++i) EXPECT_EQ(hashes[i], hashes[i + 10]) << i;
}

TEST_F(WorldEditTest, WhatIsCutOffIsABodyOfItsOwn) {
  SceneDescription scene;
  scene.bodies = {BoxBody("bar", {0, 0, 0.05}, {13, 4, 4}, {0.12, 0.03, 0.03})};
  for (uint32_t v = 0; v < scene.bodies[0].mesh.vertices.size(); ++v) {
    if (scene.bodies[0].mesh.vertices[v].x() < -0.0599) scene.bodies[0].fixed_vertices.push_back(v);
  }
  scene.contact.check_intersections = true;
  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
  ASSERT_NO_FATAL_FAILURE(StepOften(world.get(), 2, "before"));
  const auto before = world->CurrentFrame();
  const double mass_kg = world->body_statistics()[0].mass_kg;
  std::vector<Edit> edits = {{.body = 0, .what = CarveEdit{CapsuleRegion{{0.02, -0.05, 0.05}, {0.02, 0.05, 0.05}, 0.011}}}};
  for (const double z : {0.035, 0.065}) {
    edits.push_back({.body = 0, .what = CarveEdit{CapsuleRegion{{0.02, -0.05, z}, {0.02, 0.05, z}, 0.011}}});
  }
  PALPATE_TEST_ASSIGN(const std::vector<float> positions_m, world->ReadVolumePositions(0));
  PALPATE_TEST_ASSIGN(const auto outcomes, world->Apply(edits));
  ASSERT_NO_FATAL_FAILURE(test::CheckTopology(*world, before->topology.get()));
  ASSERT_GE(world->body_statistics().size(), 2U);
  EXPECT_EQ(world->body_statistics()[1].name, "bar.1");
  // What goes on in the piece is not told as removed, and lies where it was.
  const auto cutting = std::find_if(outcomes.begin(), outcomes.end(), [](const EditOutcome& outcome) { return !outcome.moved.empty(); });
  ASSERT_NE(cutting, outcomes.end());
  ASSERT_EQ(cutting->moved.size(), cutting->new_bodies.size());
  const MovedTissue& moved = cutting->moved[0];
  EXPECT_EQ(moved.body, 1U);
  EXPECT_EQ(moved.tets.size(), world->body_statistics()[1].tet_count);
  EXPECT_EQ(moved.vertices.size(), world->body_statistics()[1].vertex_count);
  for (const auto& [here, there] : moved.tets) {
    EXPECT_EQ(std::count(cutting->removed_tets.begin(), cutting->removed_tets.end(), here), 0);
  }
  PALPATE_TEST_ASSIGN(const std::vector<float> piece_m, world->ReadVolumePositions(1));
  size_t old_vertices = 0;
  for (const auto& [here, there] : moved.vertices) {
    EXPECT_EQ(std::count(cutting->removed_vertices.begin(), cutting->removed_vertices.end(), here), 0);
    if (GenerationOf(here) != 1 || 3 * size_t{SlotOf(here)} >= positions_m.size()) continue;  // made by these edits
    ++old_vertices;
    for (size_t k = 0; k < 3; ++k) EXPECT_NEAR(piece_m[3 * SlotOf(there) + k], positions_m[3 * SlotOf(here) + k], 3e-5);
  }
  EXPECT_GT(old_vertices, 30U);
  EXPECT_EQ(world->CurrentFrame()->topology->bodies[1]->parent, "bar");
  EXPECT_EQ(world->body_statistics()[1].fixed_vertex_count, 0U);
  double total_kg = 0;
  for (const BodyStatistics& body : world->body_statistics()) total_kg += body.mass_kg;
  for (const EditOutcome& outcome : outcomes) total_kg += outcome.removed_mass_kg;
  EXPECT_NEAR(total_kg, mass_kg, 1e-12);
  const auto height = [&] {
    double sum = 0;
    const auto& x = world->CurrentFrame()->surface_positions_m[1];
    for (size_t i = 2; i < x.size(); i += 3) sum += x[i];
    return sum / (static_cast<double>(x.size()) / 3);
  };
  // It falls with the speed that it had; what is held stays.
  const double start_m = height();
  ASSERT_NO_FATAL_FAILURE(StepOften(world.get(), 12, "falling"));
  const double fallen_s = 12 * scene.dt_s;
  EXPECT_GT(start_m - height(), 0.9 * 9.81 / 2 * fallen_s * fallen_s);
  EXPECT_LT(start_m - height(), 9.81 / 2 * std::pow(fallen_s + 3 * scene.dt_s, 2));
}

TEST_F(WorldEditTest, RefiningChangesNeitherMassNorMotion) {
  // Held at its foot and thrown: bent, and with other velocities everywhere.
  SceneDescription scene = OneBlock();
  scene.bodies[0].velocity_m_per_s = {0.5, 0.1, 0};
  scene.bodies[0].material.young_modulus_pa = 500;
  scene.bodies[0].material.damping_s = 0;
  scene.gravity_m_per_s2.setZero();
  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
  PALPATE_TEST_ASSIGN(const auto twin, World::Create(context(), scene));
  ASSERT_NO_FATAL_FAILURE(StepOften(world.get(), 4, "before"));
  PALPATE_TEST_ASSIGN(const std::vector<float> last_m, world->ReadVolumePositions(0));
  ASSERT_NO_FATAL_FAILURE(StepOften(world.get(), 1, "before"));
  ASSERT_NO_FATAL_FAILURE(StepOften(twin.get(), 5, "before"));
  const auto before = world->CurrentFrame();
  ASSERT_GT(before->max_speed_m_per_s, 0.2);
  const BodyStatistics statistics = world->body_statistics()[0];
  PALPATE_TEST_ASSIGN(const std::vector<float> old_m, world->ReadVolumePositions(0));
  const std::vector<Edit> edits = {{.body = 0, .what = RefineEdit{BallRegion{{0, 0, 0.02}, 0.015}, 0.008, 0}}};
  PALPATE_TEST_ASSIGN(const auto outcomes, world->Apply(edits));
  EXPECT_GT(outcomes[0].added_tets.size(), 50U);
  EXPECT_EQ(outcomes[0].remapped_tets.size(), outcomes[0].added_tets.size());
  EXPECT_EQ(outcomes[0].removed_mass_kg, 0);
  EXPECT_GT(outcomes[0].min_mean_ratio, 0.05);
  EXPECT_LT(outcomes[0].min_mean_ratio, 1);
  EXPECT_GT(outcomes[0].min_edge_ratio, 0.1);
  EXPECT_NEAR(world->body_statistics()[0].mass_kg, statistics.mass_kg, 1e-12);
  // New vertices have the velocity that the coarse mesh had there. So the energy of lumped masses falls, by convexity and to no less than
  // that of a linear field; how much is computed here from the meshes.
  std::vector<Vector3d> velocity_m_per_s;
  for (size_t i = 0; i < old_m.size(); i += 3) {
    velocity_m_per_s.push_back(Vector3d(old_m[i] - last_m[i], old_m[i + 1] - last_m[i + 1], old_m[i + 2] - last_m[i + 2]) / scene.dt_s);
  }
  const double density = scene.bodies[0].material.density_kg_per_m3;
  const double old_j = LumpedEnergy(*before->topology->bodies[0], scene.bodies[0].mesh.vertices, velocity_m_per_s, density);
  EXPECT_NEAR(before->kinetic_energy_j, old_j, 1e-4 * old_j);
  const std::vector<Vector3d> rest_m = world->RestPositions(0);
  for (size_t v = velocity_m_per_s.size(); v < rest_m.size(); ++v) {
    velocity_m_per_s.push_back(Interpolate(scene.bodies[0].mesh, velocity_m_per_s, rest_m[v]));
  }
  const double new_j = LumpedEnergy(*world->CurrentFrame()->topology->bodies[0], rest_m, velocity_m_per_s, density);
  EXPECT_LT(new_j, old_j);
  EXPECT_NEAR(world->CurrentFrame()->kinetic_energy_j, new_j, 1e-4 * new_j);
  ASSERT_NO_FATAL_FAILURE(test::CheckTopology(*world, before->topology.get()));
  PALPATE_TEST_ASSIGN(const std::vector<float> new_m, world->ReadVolumePositions(0));
  ASSERT_GT(new_m.size(), old_m.size());
  for (size_t i = 0; i < old_m.size(); ++i) ASSERT_EQ(new_m[i], old_m[i]) << "coordinate " << i << " of a vertex that was there";
  // The next step moves every vertex that was there as if nothing had happened, up to what a finer mesh bends otherwise.
  ASSERT_NO_FATAL_FAILURE(StepOften(world.get(), 1, "after"));
  ASSERT_NO_FATAL_FAILURE(StepOften(twin.get(), 1, "twin"));
  PALPATE_TEST_ASSIGN(const std::vector<float> moved_m, world->ReadVolumePositions(0));
  PALPATE_TEST_ASSIGN(const std::vector<float> twin_m, twin->ReadVolumePositions(0));
  double farthest_m = 0;
  double largest_m = 0;
  for (size_t i = 0; i < old_m.size(); ++i) {
    farthest_m = std::max<double>(farthest_m, std::abs(twin_m[i] - old_m[i]));
    largest_m = std::max<double>(largest_m, std::abs(moved_m[i] - twin_m[i]));
  }
  EXPECT_GT(farthest_m, 0.2 * scene.dt_s);
  EXPECT_LT(largest_m, 0.1 * farthest_m);
}

/// The longest edge at rest of tets that come as near as radius_m to a line between two points, which is looked at in steps.
double LongestEdgeNear(const World& world, const Vector3d& end0_m, const Vector3d& end1_m, double radius_m) {
  const std::vector<Vector3d> rest_m = world.RestPositions(0);
  double longest_m = 0;
  for (const auto& t : world.CurrentFrame()->topology->bodies[0]->tets) {
    if (t == std::array<uint32_t, 4>{}) continue;
    const std::array<Vector3d, 4> x = {rest_m[t[0]], rest_m[t[1]], rest_m[t[2]], rest_m[t[3]]};
    bool is_near = false;
    for (int i = 0; i <= 40 && !is_near; ++i) is_near = DistanceToTet(end0_m + i / 40.0 * (end1_m - end0_m), x) < radius_m;
    for (size_t i = 0; is_near && i < 4; ++i) {
      for (size_t j = 0; j < i; ++j) longest_m = std::max(longest_m, (x[i] - x[j]).norm());
    }
  }
  return longest_m;
}

// All tets that reach into a region are fine at the end, however small it is beside them, and others stay as they are as far as they can.
TEST_F(WorldEditTest, RefiningReachesAllOfTheRegionAndLittleElse) {
  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), OneBlock()));
  const uint32_t tets = world->body_statistics()[0].tet_count;
  const Vector3d end0_m(-0.02, 0.003, 0.002);
  const Vector3d end1_m(0.021, -0.004, 0.011);
  const Vector3d dot_m(0.0137, 0.0171, -0.0042);
  const std::vector<Edit> edits = {{.body = 0, .what = RefineEdit{BallRegion{dot_m, 1e-5}, 0.005, 0}},
                                   {.body = 0, .what = RefineEdit{CapsuleRegion{end0_m, end1_m, 0.003}, 0.006, 0}}};
  ASSERT_GT(LongestEdgeNear(*world, dot_m, dot_m, 1e-5), 0.01);
  ASSERT_GT(LongestEdgeNear(*world, end0_m, end1_m, 0.003), 0.01);
  PALPATE_TEST_ASSIGN(const auto outcomes, world->Apply(edits));
  for (const EditOutcome& outcome : outcomes) EXPECT_FALSE(outcome.is_refused) << outcome.note;
  EXPECT_LE(LongestEdgeNear(*world, dot_m, dot_m, 1e-5), 0.005);
  EXPECT_LE(LongestEdgeNear(*world, end0_m, end1_m, 0.003), 0.006);
  EXPECT_GT(outcomes[0].added_tets.size(), 20U);
  EXPECT_LT(outcomes[0].added_tets.size(), 300U);
  EXPECT_LT(world->body_statistics()[0].tet_count, 5 * tets);
  EXPECT_GT(outcomes[1].min_mean_ratio, 0.2);
  ASSERT_NO_FATAL_FAILURE(test::CheckTopology(*world, nullptr));
  // Once is enough.
  PALPATE_TEST_ASSIGN(const auto again, world->Apply(edits));
  for (const EditOutcome& outcome : again) EXPECT_TRUE(outcome.added_tets.empty());
}

/// A bar along x whose ends are held; they are driven apart (or together) by way_m each.
class WorldIncisionTest : public WorldEditTest {
 protected:
  static SceneDescription HeldBar(double way_m) {
    SceneDescription scene;
    scene.bodies = {BoxBody("bar", {0, 0, 0}, {13, 5, 5}, {0.12, 0.03, 0.03})};
    BodyDescription& bar = scene.bodies[0];
    DrivenRegion left;
    DrivenRegion right;
    for (uint32_t v = 0; v < bar.mesh.vertices.size(); ++v) {
      const double x = bar.mesh.vertices[v].x();
      if (std::abs(x) < 0.0599) continue;
      bar.fixed_vertices.push_back(v);
      (x < 0 ? left : right).vertices.push_back(v);
    }
    left.duration_s = right.duration_s = 0.25;
    left.velocity_m_per_s = {-way_m / 0.25, 0, 0};
    right.velocity_m_per_s = {way_m / 0.25, 0, 0};
    bar.driven_regions = {left, right};
    scene.gravity_m_per_s2.setZero();
    scene.contact.check_intersections = true;
    return scene;
  }
  /// Across the bar at x = 0, from above down to z.
  static Edit CutDownTo(double z) {
    InciseEdit incise;
    for (const double at : {0.03, z}) incise.edges_m.push_back({Vector3d(0.0003, -0.05, at), Vector3d(0.0003, 0.05, at)});
    return {.body = 0, .what = incise};
  }
  /// Extent along x of the gap in the middle of the upper face.
  static double Opening(const World& world) {
    double left = -1;
    double right = 1;
    const Frame& frame = *world.CurrentFrame();
    for (size_t b = 0; b < frame.surface_positions_m.size(); ++b) {
      const auto& x = frame.surface_positions_m[b];
      const auto& vertices = frame.topology->bodies[b]->surface_vertices.values();
      for (size_t i = 0; i < vertices.size(); ++i) {
        if (vertices[i] == kNoSlot || x[3 * i + 2] < 0.012) continue;
        if (x[3 * i] < 0) left = std::max<double>(left, x[3 * i]);
        if (x[3 * i] > 0) right = std::min<double>(right, x[3 * i]);
      }
    }
    return right - left;
  }
};

TEST_F(WorldIncisionTest, AStrokeMayComeInManyRequests) {
  // A blade that reaches down to z = 0 moves across the bar, in one edit, or in many of which none knows of the others; steps come between.
  double areas_m2[3] = {0, 0, 0};
  const int parts_of_run[3] = {1, 12, 60};
  for (size_t run = 0; run < 3; ++run) {
    PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), HeldBar(0)));
    const int parts = parts_of_run[run];
    for (int i = 0; i < parts; ++i) {
      InciseEdit incise;
      for (const int k : {i, i + 1}) {
        const double y = 0.02 * (2.0 * k / parts - 1);
        incise.edges_m.push_back({Vector3d(0.0003, y, 0), Vector3d(0.0003, y, 0.03)});
      }
      PALPATE_ASSERT_OK(world->Apply(std::vector<Edit>{{.body = 0, .what = incise}}).status());
      if (i % 10 == 5) {
        ASSERT_NO_FATAL_FAILURE(StepOften(world.get(), 1, "between"));
      }
    }
    const Frame& frame = *world->CurrentFrame();
    const BodyArrays& bar = *frame.topology->bodies[0];
    for (size_t t = 0; t < bar.surface_triangles.size(); ++t) {
      if (bar.triangle_zones[t] == 0) continue;
      std::array<Eigen::Vector3f, 3> x;
      for (size_t c = 0; c < 3; ++c)
        x[c] = Eigen::Map<const Eigen::Vector3f>(&frame.surface_positions_m[0][size_t{3} * ToNumber(bar.surface_triangles[t][c])]);
      areas_m2[run] += 0.5 * double{(x[1] - x[0]).cross(x[2] - x[0]).norm()};
    }
  }
  // Two lips, 30 mm wide, almost 15 mm deep.
  EXPECT_NEAR(areas_m2[0], 2 * 0.03 * 0.015, 0.3 * 2 * 0.03 * 0.015);
  for (const size_t run : {1, 2}) EXPECT_NEAR(areas_m2[run], areas_m2[0], 0.05 * areas_m2[0]) << parts_of_run[run];
}

// A bar that droops and swings, with notches from carving: a cut right through takes its end off, however often that was done before.
TEST_F(WorldIncisionTest, AWholeCutTakesTheEndOffASwingingCarvedBar) {
  for (uint32_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> unit(-0.5, 0.5);
    SceneDescription scene;
    scene.bodies = {BoxBody("bar", {0, 0, 0}, {15, 5, 5}, {0.14, 0.045, 0.045}, HeldSide::kLowX)};
    scene.bodies[0].velocity_m_per_s = {0, 0.3, 0};
    scene.contact.check_intersections = true;
    PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
    for (const double cut_m : {0.045, 0.01}) {
      for (int i = 0; i < 12; ++i) PALPATE_ASSERT_OK(world->Step({}).status());
      // What was at rest at x is where these vertices are now.
      const auto center_m = [&](double x_m) {
        const std::vector<Vector3d> rest_m = world->RestPositions(0);
        const auto now = world->ReadVolumePositions(0);
        Vector3d sum = Vector3d::Zero();
        double count = 0;
        for (size_t v = 0; v < rest_m.size(); ++v) {
          if (std::abs(rest_m[v].x() - x_m) > 0.0055) continue;
          sum += Vector3d((*now)[3 * v], (*now)[3 * v + 1], (*now)[3 * v + 2]);
          ++count;
        }
        return Vector3d(sum / count);
      };
      for (int k = 0; k < 8; ++k) {
        const Vector3d at_m = center_m(cut_m + 0.02 * unit(random)) + 0.045 * Vector3d(0, unit(random), unit(random));
        PALPATE_ASSERT_OK(world->Apply(std::vector<Edit>{Carve(0, at_m, 0.006)}).status());
      }
      PALPATE_ASSERT_OK(world->Step({}).status());
      const Vector3d middle_m = center_m(cut_m);
      const Vector3d normal =
          (center_m(cut_m + 0.01) - center_m(cut_m - 0.01) + 0.004 * Vector3d(0, unit(random), unit(random))).normalized();
      const Vector3d edge_m = 0.06 * normal.unitOrthogonal();
      const Vector3d way_m = normal.cross(edge_m);
      const size_t bodies = world->CurrentFrame()->topology->bodies.size();
      PALPATE_TEST_ASSIGN(const auto outcomes,
                          world->Apply(std::vector<Edit>{{.body = 0,
                                                          .what = InciseEdit{{{middle_m - way_m - edge_m, middle_m - way_m + edge_m},
                                                                              {middle_m + way_m - edge_m, middle_m + way_m + edge_m}}}}}));
      EXPECT_FALSE(outcomes[0].new_bodies.empty()) << "at " << cut_m;
      EXPECT_GT(world->CurrentFrame()->topology->bodies.size(), bodies);
      const std::vector<Vector3d> rest_m = world->RestPositions(0);
      for (const auto& tet : world->CurrentFrame()->topology->bodies[0]->tets) {
        if (tet == std::array<uint32_t, 4>{}) continue;
        Vector3d centroid_m = Vector3d::Zero();
        for (const uint32_t v : tet) centroid_m += rest_m[v] / 4;
        ASSERT_LT(centroid_m.x(), cut_m + 0.018) << "still on the part that is held";
      }
      EXPECT_EQ(world->CurrentFrame()->contact_statistics.intersection_count, 0U);
    }
  }
}

TEST_F(WorldIncisionTest, UnderTensionACutOpens) {
  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), HeldBar(0.006)));
  ASSERT_NO_FATAL_FAILURE(StepOften(world.get(), 60, "pulled"));
  const auto before = world->CurrentFrame();
  const double mass_kg = world->body_statistics()[0].mass_kg;
  const std::vector<Edit> edits = {CutDownTo(0)};
  PALPATE_TEST_ASSIGN(const auto outcomes, world->Apply(edits));
  EXPECT_TRUE(outcomes[0].note.empty()) << outcomes[0].note;
  EXPECT_GE(outcomes[0].added_vertices.size(), 10U);
  ASSERT_EQ(world->body_statistics().size(), 1U) << "the bar holds below the cut";
  EXPECT_NEAR(world->body_statistics()[0].mass_kg, mass_kg, 1e-12);
  ASSERT_NO_FATAL_FAILURE(test::CheckTopology(*world, before->topology.get()));
  EXPECT_LT(world->CurrentFrame()->contact_statistics.intersection_count, 1U);
  ASSERT_NO_FATAL_FAILURE(StepOften(world.get(), 200, "cut"));
  EXPECT_GT(Opening(*world), 0.004);
  EXPECT_LT(world->CurrentFrame()->max_speed_m_per_s, 0.05);
}

// What a vertex follows is a linear function of its place here, so new vertices on edges must have its value at theirs.
TEST_F(WorldIncisionTest, NewVerticesFollowTheMeanOfWhatTheirSourcesFollow) {
  SceneDescription scene = HeldBar(0);
  BodyDescription& bar = scene.bodies[0];
  const auto share_of = [](double y) { return 0.75 + y / 0.1; };  // 0.6 to 0.9
  DrivenRegion& left = bar.driven_regions[0];
  for (const uint32_t v : left.vertices) {
    const auto share = static_cast<float>(share_of(bar.mesh.vertices[v].y()));
    left.blends.push_back(
        {.regions = {0, DrivenBlend::kRests, DrivenBlend::kRests, DrivenBlend::kRests}, .shares = {share, 1 - share, 0, 0}});
  }
  left.velocity_m_per_s = {-0.02, 0, 0};
  left.duration_s = 0.25;
  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
  ASSERT_NO_FATAL_FAILURE(StepOften(world.get(), 10, "pulled"));
  const std::vector<Edit> edits = {{.body = 0, .what = RefineEdit{BallRegion{{-0.06, 0, 0}, 0.02}, 0.003}}};
  PALPATE_TEST_ASSIGN(const auto outcomes, world->Apply(edits));
  EXPECT_GT(outcomes[0].added_vertices.size(), 100U);
  ASSERT_NO_FATAL_FAILURE(StepOften(world.get(), 60, "refined"));
  PALPATE_TEST_ASSIGN(const std::vector<float> x, world->ReadVolumePositions(0));
  const std::vector<Vector3d> rest = world->RestPositions(0);
  size_t driven = 0;
  for (size_t v = 0; v < rest.size(); ++v) {
    if (rest[v].x() > -0.0599) continue;
    ++driven;
    EXPECT_NEAR(x[3 * v] - rest[v].x(), -0.005 * share_of(rest[v].y()), 1e-6) << rest[v].transpose();
    EXPECT_NEAR(x[3 * v + 1] - rest[v].y(), 0, 1e-7);
  }
  EXPECT_GT(driven, 50U);
}

/// Lips lie almost in touch: they must not hold each other back when the body moves along their normal.
TEST_F(WorldIncisionTest, LipsDoNotStickWhenTheBodyMoves) {
  SceneDescription scene = HeldBar(0);
  for (DrivenRegion& region : scene.bodies[0].driven_regions) {
    region.velocity_m_per_s = {0.1, 0, 0};
    region.duration_s = 10;
  }
  scene.bodies[0].velocity_m_per_s = {0.1, 0, 0};
  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
  const std::vector<Edit> edits = {CutDownTo(0)};
  PALPATE_ASSERT_OK(world->Apply(edits).status());
  const double mass_kg = world->body_statistics()[0].mass_kg;
  for (int i = 0; i < 100; ++i) {
    PALPATE_TEST_ASSIGN(const auto frame, world->Step({}));
    ASSERT_EQ(frame->contact_statistics.intersection_count, 0U) << "step " << i;
    EXPECT_NEAR(frame->max_speed_m_per_s, 0.1, 0.01) << "step " << i;
    EXPECT_LT(frame->kinetic_energy_j, 1.02 * mass_kg * 0.1 * 0.1 / 2);
  }
}

TEST_F(WorldIncisionTest, UnderPressureTheLipsBearOnEachOther) {
  // 5 kPa pressed by 3.3 % over 9 cm^2, with ends that cannot widen, is 0.16 N. A half whose lip slides is a column with one free end: from
  // pi^2 E I / (4 l^2) = 0.23 N on it would give way to the side, with only friction against it.
  for (const unsigned seed : {0U, 1U, 2U}) {  // of the order of the tets, which must not matter
    SCOPED_TRACE(seed);
    SceneDescription scene = HeldBar(-0.002);
    std::mt19937 random(seed);
    if (seed > 0) std::shuffle(scene.bodies[0].mesh.tets.begin(), scene.bodies[0].mesh.tets.end(), random);
    PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
    ASSERT_NO_FATAL_FAILURE(StepOften(world.get(), 60, "pressed"));
    const double energy_j = world->CurrentFrame()->kinetic_energy_j;
    const std::vector<Edit> edits = {CutDownTo(-0.03)};
    PALPATE_TEST_ASSIGN(const auto outcomes, world->Apply(edits));
    EXPECT_EQ(outcomes[0].new_bodies.size(), 1U);
    ASSERT_EQ(world->body_statistics().size(), 2U);
    ASSERT_NO_FATAL_FAILURE(test::CheckTopology(*world, nullptr));
    double peak_j = 0;
    for (int i = 0; i < 200; ++i) {
      PALPATE_TEST_ASSIGN(const auto frame, world->Step({}));
      ASSERT_EQ(frame->contact_statistics.intersection_count, 0U) << "step " << i;
      peak_j = std::max(peak_j, frame->kinetic_energy_j);
    }
    // All that their motion can come from is 0.35 mJ.
    EXPECT_LT(peak_j, energy_j + 2e-4);
    Vector3d force_n = Vector3d::Zero();
    double sum_n = 0;
    for (const FrameSurfaceContact& contact : world->CurrentFrame()->surface_contacts) {
      if (contact.body_a == contact.body_b) continue;
      force_n += (contact.body_a < contact.body_b ? 1 : -1) * contact.force_n.cast<double>();
      sum_n += contact.force_n.norm();
    }
    EXPECT_NEAR(std::abs(force_n.x()), 0.165, 0.02);
    EXPECT_NEAR(std::hypot(force_n.y(), force_n.z()), 0, 0.005);
    EXPECT_LT(sum_n, 1.02 * force_n.norm()) << "contacts work against each other";
    EXPECT_LT(Opening(*world), 2e-4);
  }
}

TEST_F(WorldEditTest, WholeBodiesCanGo) {
  SceneDescription scene = OneBlock();
  scene.bodies.push_back(BoxBody("other", {0.2, 0, 0}, {3, 3, 3}, {0.02, 0.02, 0.02}));
  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
  const std::vector<Edit> first = {Carve(0, {0, 0, 0}, 1)};
  PALPATE_TEST_ASSIGN(const auto outcomes, world->Apply(first));
  EXPECT_EQ(world->body_statistics()[0].tet_count, 0U);
  ASSERT_NO_FATAL_FAILURE(StepOften(world.get(), 3, "one left"));
  const std::vector<Edit> second = {Carve(1, {0, 0, 0}, 1)};
  PALPATE_ASSERT_OK(world->Apply(second).status());
  EXPECT_EQ(world->body_statistics()[1].mass_kg, 0);
  ASSERT_NO_FATAL_FAILURE(StepOften(world.get(), 3, "none left"));
  PALPATE_ASSERT_OK(world->Reset().status());
  EXPECT_EQ(world->body_statistics()[0].tet_count, scene.bodies[0].mesh.tets.size());
}

TEST_F(WorldEditTest, RefusesBadEditsAndStaysAsItWas) {
  SceneDescription scene = OneBlock();
  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
  const auto before = world->CurrentFrame();
  const auto expect = [&](const Edit& bad, absl::StatusCode code, const std::string& part) {
    const std::vector<Edit> edits = {Carve(0, {0, 0, 0.02}, 0.01), bad};
    const auto outcome = world->Apply(edits);
    EXPECT_EQ(outcome.status().code(), code) << outcome.status();
    EXPECT_NE(std::string(outcome.status().message()).find("edits[1]"), std::string::npos) << outcome.status();
    EXPECT_NE(std::string(outcome.status().message()).find(part), std::string::npos) << outcome.status();
  };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  expect(Carve(1, {0, 0, 0}, 1), absl::StatusCode::kNotFound, "body 1");
  expect(Carve(0, {0, 0, 0}, -1), invalid, "radius_m -1");
  expect(Carve(0, {0, NAN, 0}, 1), invalid, "center_m");
  expect({.body = 0, .what = CarveEdit{ZoneRegion{"liver"}}}, absl::StatusCode::kNotFound, "liver");
  expect({.body = 0, .what = RefineEdit{BallRegion{{0, 0, 0}, 1}, 0, 0}}, invalid, "max_edge_m");
  expect({.body = 0, .what = InciseEdit{{{Vector3d(0, 0, 0), Vector3d(1, 0, 0)}}}}, invalid, "edges_m");
  expect({.body = 0, .what = MaterialEdit{"x", {}}}, absl::StatusCode::kNotFound, "zone");
  Material material;
  material.poisson_ratio = 0.6;
  expect({.body = 0, .what = MaterialEdit{"", material}}, invalid, "poisson_ratio");
  // The ranges are those of scenes.
  const auto with = [](auto change) {
    Material changed;
    change(&changed);
    return Edit{.body = 0, .what = MaterialEdit{"", changed}};
  };
  expect(with([](Material* m) { m->young_modulus_pa = 5; }), invalid, "young_modulus_pa: 5 is outside [10, 1e+09]");
  expect(with([](Material* m) { m->poisson_ratio = 0.497; }), invalid, "poisson_ratio: 0.497 is outside [0, 0.495]");
  expect(with([](Material* m) { m->density_kg_per_m3 = 5e4; }), invalid, "density_kg_per_m3: 50000 is outside [1, 30000]");
  expect(with([](Material* m) { m->damping_s = 2; }), invalid, "damping_s: 2 is outside [0, 1]");
  expect(with([](Material* m) { m->mass_damping_per_s = NAN; }), invalid, "mass_damping_per_s: nan is outside [0, 1000]");
  EXPECT_EQ(world->CurrentFrame(), before);
}

}  // namespace
}  // namespace palpate::sim::edit_test
