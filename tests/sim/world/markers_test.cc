// Markers: points that ride in tissue while it moves and is cut. The oracle is a search through all tets, at rest and now.
#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "gpu/shared/dynamics_types.h"
#include "sim/mesh/generators.h"
#include "sim/world/world.h"
#include "tests/sim/world/topology_checks.h"
#include "tests/sim/world/world_builders.h"
#include "tests/support/device_test.h"

namespace palpate::sim::markers_test {
namespace {

using Eigen::Vector3d;
using test::BoxBody;
using test::HeldSide;

/// Barycentric weights by a linear system, and the least of them.
Eigen::Vector4d Weights(const std::array<Vector3d, 4>& x, const Vector3d& p) {
  Eigen::Matrix3d edges;
  for (int c = 0; c < 3; ++c) edges.col(c) = x[static_cast<size_t>(c) + 1] - x[0];
  const Vector3d w = edges.inverse() * (p - x[0]);
  return {1 - w.sum(), w[0], w[1], w[2]};
}

/// The bodies now, as a test sees them from outside.
struct Snapshot {
  struct Body {
    std::string root;  // of the pieces
    std::vector<std::array<uint32_t, 4>> tets;
    std::vector<Vector3d> rest_m, now_m;
  };
  std::vector<Body> bodies;

  static Snapshot Of(World* world) {
    Snapshot out;
    const auto& topology = *world->CurrentFrame()->topology;
    for (size_t b = 0; b < topology.bodies.size(); ++b) {
      Body& body = out.bodies.emplace_back();
      const BodyArrays& arrays = *topology.bodies[b];
      body.root = arrays.name;
      for (size_t p = 0; p < b; ++p) {
        if (topology.bodies[p]->name == arrays.parent) body.root = out.bodies[p].root;
      }
      for (const auto& tet : arrays.tets) {
        if (tet != std::array<uint32_t, 4>{}) body.tets.push_back(tet);
      }
      body.rest_m = world->RestPositions(b);
      const auto now = world->ReadVolumePositions(b);
      EXPECT_TRUE(now.ok()) << now.status();
      for (size_t i = 0; now.ok() && i < now->size(); i += 3) body.now_m.emplace_back((*now)[i], (*now)[i + 1], (*now)[i + 2]);
      EXPECT_EQ(body.now_m.size(), body.rest_m.size());
    }
    return out;
  }
};

struct Truth {
  double depth = -1e300;   // least weight of the tet at rest that holds the point best
  double error_m = 1e300;  // of the tets that hold it: from the marker to where they have it now, the best
  size_t tets = 0;         // that hold it
};

/// Looks at every tet that a body, or a piece of it, has now.
Truth Look(const Snapshot& now, const std::string& root, const Vector3d& rest_m, const FrameMarker& marker) {
  Truth truth;
  for (size_t b = 0; b < now.bodies.size(); ++b) {
    const Snapshot::Body& body = now.bodies[b];
    if (body.root != root) continue;
    for (const auto& v : body.tets) {
      const std::array<Vector3d, 4> x = {body.rest_m[v[0]], body.rest_m[v[1]], body.rest_m[v[2]], body.rest_m[v[3]]};
      Eigen::AlignedBox3d box;
      for (const Vector3d& corner : x) box.extend(corner);
      if (box.exteriorDistance(rest_m) > 1e-6) continue;
      const Eigen::Vector4d w = Weights(x, rest_m);
      truth.depth = std::max(truth.depth, w.minCoeff());
      if (w.minCoeff() < -1e-7) continue;
      ++truth.tets;
      if (b != marker.body_index) continue;
      Vector3d at = Vector3d::Zero();
      for (int c = 0; c < 4; ++c) at += w[c] * body.now_m[v[static_cast<size_t>(c)]];
      truth.error_m = std::min(truth.error_m, (at - marker.position_m).norm());
    }
  }
  return truth;
}

/// The markers that ride in body 1, along x.
std::vector<Vector3d> MarkersOfBar(const Frame& frame) {
  std::vector<Vector3d> in_bar;
  for (const FrameMarker& marker : frame.markers) {
    if (!marker.is_released && marker.body_index == 1) in_bar.push_back(marker.position_m);
  }
  std::sort(in_bar.begin(), in_bar.end(), [](const Vector3d& a, const Vector3d& b) { return a.x() < b.x(); });
  return in_bar;
}

class WorldMarkersTest : public test::DeviceTest {
 protected:
  /// Inside a box about center_m; some at vertices, on edges and on faces of the surface.
  static void Mark(BodyDescription* body, const Vector3d& center_m, const Vector3d& size_m, int count, uint32_t seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> unit(-0.5, 0.5);
    for (int m = 0; m < count; ++m) {
      Vector3d p = center_m + size_m.cwiseProduct(Vector3d(unit(random), unit(random), unit(random)));
      if (m % 10 == 0) p = body->mesh.vertices[random() % body->mesh.vertices.size()];
      if (m % 10 == 1) p.z() = center_m.z() + size_m.z() / 2;
      if (m % 10 == 2) {
        const auto& tet = body->mesh.tets[random() % body->mesh.tets.size()];
        p = 0.3 * body->mesh.vertices[tet[0]] + 0.7 * body->mesh.vertices[tet[1]];
      }
      body->markers.push_back({"m" + std::to_string(m), p});
    }
  }

  /// Every marker of every body against the search; released ones against what is gone.
  static void CheckMarkers(World* world, const std::vector<std::vector<MarkerDescription>>& given) {
    const Snapshot now = Snapshot::Of(world);
    const auto frame = world->CurrentFrame();
    size_t index = 0;
    for (size_t b = 0; b < given.size(); ++b) {
      for (const MarkerDescription& marker : given[b]) {
        ASSERT_LT(index, frame->markers.size());
        const FrameMarker& state = frame->markers[index++];
        const Truth truth = Look(now, world->description().bodies[b].name, marker.position_m, state);
        SCOPED_TRACE(marker.name + " of body " + std::to_string(b) + ", step " + std::to_string(frame->step));
        if (state.is_released) {
          ASSERT_LT(truth.depth, 1e-6) << "released, and its tissue is there";
          // On the border of what is gone either is right: a point belongs to one of the tets that share it.
        } else {
          ASSERT_GT(truth.tets, 0U) << "its tissue is gone (" << truth.depth << "), and it is not released";
          ASSERT_LT(truth.error_m, 2e-9);
        }
      }
    }
    ASSERT_EQ(index, frame->markers.size());
  }
};

TEST_F(WorldMarkersTest, RandomEditsOfABodyInMotionMoveNoMarkerInTheMaterial) {
  const Vector3d center_m(0, 0, 0.06);
  const Vector3d size_m(0.12, 0.045, 0.045);
  SceneDescription scene;
  scene.bodies = {BoxBody("bar", center_m, {12, 5, 5}, size_m, HeldSide::kLowX)};
  scene.bodies[0].velocity_m_per_s = {0, 0.3, 0};
  Mark(&scene.bodies[0], center_m, size_m, 200, 5);
  // A second body, so that indices of bodies and of markers differ.
  scene.bodies.insert(scene.bodies.begin(), BoxBody("other", {0, 0.3, 0}, {3, 3, 3}, {0.02, 0.02, 0.02}, HeldSide::kLowX));
  Mark(&scene.bodies[0], {0, 0.3, 0}, {0.02, 0.02, 0.02}, 3, 1);
  const std::vector<std::vector<MarkerDescription>> given = {scene.bodies[0].markers, scene.bodies[1].markers};
  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
  ASSERT_EQ(world->CurrentFrame()->markers.size(), 203U);
  for (size_t m = 0; m < 203; ++m) {
    const MarkerDescription& marker = m < 3 ? given[0][m] : given[1][m - 3];
    ASSERT_LT((world->CurrentFrame()->markers[m].position_m - marker.position_m).norm(), 1e-8) << marker.name;
    ASSERT_EQ(world->CurrentFrame()->markers[m].body_index, m < 3 ? 0U : 1U);
  }
  // How far a lip may open at once, of which a marker in it has its share: world_edit.cc.
  const double lip_m = 0.6 * PALPATE_LIP_SHARE * scene.contact.margin_m;
  const double rounding_m = 4e-8;  // the device keeps floats: 1.5e-8 between neighbours at 0.2 m
  std::mt19937 random(11);
  std::uniform_real_distribution<double> unit(-0.5, 0.5);
  const auto place = [&](const Frame& frame) -> Vector3d {
    // Somewhere in the body as it is now: at a marker of the bar.
    const std::vector<Vector3d> in_bar = MarkersOfBar(frame);
    return in_bar[random() % in_bar.size()] + 0.004 * Vector3d(unit(random), unit(random), unit(random));
  };
  size_t carved = 0;
  size_t refined = 0;
  size_t incised = 0;
  double largest_jump_m = 0;
  for (int round = 0; round < 14; ++round) {
    for (int i = 0; i < 3; ++i) PALPATE_ASSERT_OK(world->Step({}).status());
    ASSERT_NO_FATAL_FAILURE(CheckMarkers(world.get(), given)) << "round " << round;
    const auto before = world->CurrentFrame();
    Edit edit{.body = 1, .what = CarveEdit{BallRegion{place(*before), 0.011}}};
    const bool is_refinement = round % 3 == 1;
    if (is_refinement) edit.what = RefineEdit{BallRegion{place(*before), 0.012}, 0.005};
    if (round % 3 == 2) {
      // Sideways into the bar; the first time, while it is still straight, through its middle and all the way.
      const std::vector<Vector3d> in_bar = MarkersOfBar(*before);
      const Vector3d at_m = round == 2 ? in_bar[in_bar.size() / 2] : place(*before);
      const Vector3d from_m(0, 0, -0.08);
      const Vector3d to_m(0.01 * unit(random), 0, round % 6 == 2 ? 0.08 : 0);
      const Vector3d arm_m(0.01 * unit(random), 0.2, 0);
      edit.what = InciseEdit{{{at_m + from_m - arm_m, at_m + from_m + arm_m}, {at_m + to_m - arm_m, at_m + to_m + arm_m}}};
    }
    PALPATE_TEST_ASSIGN(const auto outcomes, world->Apply(std::vector<Edit>{edit}));
    carved += round % 3 == 0 ? outcomes[0].removed_tets.size() : 0;
    refined += is_refinement ? outcomes[0].added_tets.size() : 0;
    incised += round % 3 == 2 ? outcomes[0].added_tets.size() : 0;
    if (round % 3 != 0) {
      EXPECT_TRUE(outcomes[0].released_markers.empty()) << "round " << round;
    }
    ASSERT_NO_FATAL_FAILURE(CheckMarkers(world.get(), given)) << "after edit " << round;
    // The outcome lists those whose state changed, and no marker jumps.
    const auto after = world->CurrentFrame();
    std::vector<uint32_t> released;
    for (uint32_t m = 0; m < after->markers.size(); ++m) {
      if (after->markers[m].is_released && !before->markers[m].is_released) released.push_back(m);
      ASSERT_TRUE(!before->markers[m].is_released || after->markers[m].is_released);
      const double jump_m = (after->markers[m].position_m - before->markers[m].position_m).norm();
      largest_jump_m = std::max(largest_jump_m, jump_m);
      if (after->markers[m].is_released) {
        ASSERT_EQ(jump_m, 0) << m;
      }
      ASSERT_LE(jump_m, rounding_m + (is_refinement ? 0 : lip_m)) << "marker " << m << ", round " << round;
    }
    ASSERT_EQ(outcomes[0].released_markers, released) << "round " << round;
  }
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(world->Step({}).ok());
  ASSERT_NO_FATAL_FAILURE(CheckMarkers(world.get(), given));
  // The run did what it is for.
  const auto frame = world->CurrentFrame();
  const auto in_piece =
      std::count_if(frame->markers.begin(), frame->markers.end(), [](const FrameMarker& m) { return !m.is_released && m.body_index > 1; });
  const auto released = std::count_if(frame->markers.begin(), frame->markers.end(), [](const FrameMarker& m) { return m.is_released; });
  EXPECT_GT(carved, 50U);
  EXPECT_GT(refined, 100U);
  EXPECT_GT(incised, 100U);
  EXPECT_GT(frame->topology->bodies.size(), 2U);
  EXPECT_GT(in_piece, 10);
  EXPECT_GT(released, 10);
  EXPECT_GT(largest_jump_m, 1e-7) << "lips opened without their markers";

  // A reset brings all of them back; what comes then is what came before.
  PALPATE_TEST_ASSIGN(const auto reset, world->Reset());
  for (size_t m = 0; m < 203; ++m) {
    const MarkerDescription& marker = m < 3 ? given[0][m] : given[1][m - 3];
    ASSERT_FALSE(reset->markers[m].is_released);
    ASSERT_EQ(reset->markers[m].body_index, m < 3 ? 0U : 1U);
    ASSERT_LT((reset->markers[m].position_m - marker.position_m).norm(), 1e-8);
  }
  ASSERT_TRUE(world->Step({}).ok());
  ASSERT_NO_FATAL_FAILURE(CheckMarkers(world.get(), given));
}

TEST_F(WorldMarkersTest, ACutOffPieceTakesItsMarkersAlong) {
  SceneDescription scene;
  scene.bodies = {BoxBody("bar", {0, 0, 0.05}, {13, 4, 4}, {0.12, 0.03, 0.03}, HeldSide::kLowX)};
  scene.bodies[0].markers = {{"free", {0.05, 0.001, 0.052}}, {"gone", {0.02, 0, 0.05}}, {"held", {-0.04, 0, 0.055}}};
  const std::vector<std::vector<MarkerDescription>> given = {scene.bodies[0].markers};
  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(world->Step({}).ok());
  const auto before = world->CurrentFrame();
  std::vector<Edit> edits;
  for (const double z : {0.035, 0.05, 0.065}) {
    edits.push_back({.body = 0, .what = CarveEdit{CapsuleRegion{{0.02, -0.05, z}, {0.02, 0.05, z}, 0.011}}});
  }
  PALPATE_TEST_ASSIGN(const auto outcomes, world->Apply(edits));
  std::vector<uint32_t> released;
  for (const EditOutcome& outcome : outcomes) {
    released.insert(released.end(), outcome.released_markers.begin(), outcome.released_markers.end());
  }
  EXPECT_EQ(released, std::vector<uint32_t>{1});
  ASSERT_EQ(world->CurrentFrame()->topology->bodies.size(), 2U);
  for (int i = 0; i < 12; ++i) ASSERT_TRUE(world->Step({}).ok());
  const auto after = world->CurrentFrame();
  EXPECT_EQ(after->markers[0].body_index, 1U);
  EXPECT_EQ(after->markers[1].body_index, 0U);
  EXPECT_EQ(after->markers[2].body_index, 0U);
  EXPECT_TRUE(after->markers[1].is_released);
  EXPECT_EQ(after->markers[1].position_m, before->markers[1].position_m);
  const double fallen_s = 12 * scene.dt_s;
  EXPECT_GT(before->markers[0].position_m.z() - after->markers[0].position_m.z(), 0.9 * 9.81 / 2 * fallen_s * fallen_s);
  ASSERT_NO_FATAL_FAILURE(CheckMarkers(world.get(), given));
}

// One edit cuts a piece off, the next one carves it away: the marker is released by the piece that it is in.
TEST_F(WorldMarkersTest, ReleaseNamesThePieceThatTheMarkerWasIn) {
  SceneDescription scene;
  scene.bodies = {BoxBody("bar", {0, 0, 0.05}, {13, 4, 4}, {0.12, 0.03, 0.03}, HeldSide::kLowX)};
  scene.bodies[0].markers = {{"tip", {0.055, 0.001, 0.052}}};
  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
  std::vector<Edit> edits;
  for (const double z : {0.035, 0.05, 0.065}) {
    edits.push_back({.body = 0, .what = CarveEdit{CapsuleRegion{{0.02, -0.05, z}, {0.02, 0.05, z}, 0.011}}});
  }
  PALPATE_ASSERT_OK(world->Apply(edits).status());
  ASSERT_EQ(world->CurrentFrame()->markers[0].body_index, 1U);
  PALPATE_TEST_ASSIGN(const auto outcomes,
                      world->Apply(std::vector<Edit>{{.body = 1, .what = CarveEdit{BallRegion{{0.06, 0, 0.05}, 0.015}}}}));
  EXPECT_EQ(outcomes[0].released_markers, std::vector<uint32_t>{0});
  EXPECT_TRUE(world->CurrentFrame()->markers[0].is_released);
  EXPECT_EQ(world->CurrentFrame()->markers[0].body_index, 1U);
}

TEST_F(WorldMarkersTest, EveryKindOfSimulationCarriesThem) {
  for (const Simulation simulation : {Simulation::kDynamic, Simulation::kPrecomputed, Simulation::kHybrid, Simulation::kShapeMatched}) {
    SCOPED_TRACE(static_cast<int>(simulation));
    const Vector3d center_m(0, 0, 0.05);
    const Vector3d size_m(0.08, 0.03, 0.03);
    SceneDescription scene;
    scene.bodies = {BoxBody("bar", center_m, {9, 4, 4}, size_m, HeldSide::kLowX)};
    scene.bodies[0].simulation = simulation;
    scene.bodies[0].material.young_modulus_pa = 3000;
    if (StartsQuasiStatic(simulation)) scene.bodies[0].material.model = MaterialModel::kLinear;
    Mark(&scene.bodies[0], center_m, size_m, 40, 3);
    ToolDescription probe;
    probe.name = "probe";
    probe.drive = ToolDrive::kDirect;
    probe.rest_pose.position_m = {0.03, 0, 0.065 + probe.radius_m - 0.004};
    scene.tools = {probe};
    const std::vector<std::vector<MarkerDescription>> given = {scene.bodies[0].markers};
    PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
    const ToolCommand* const commands[] = {nullptr};
    for (int i = 0; i < 15; ++i) ASSERT_TRUE(world->Step(commands).ok());
    ASSERT_NO_FATAL_FAILURE(CheckMarkers(world.get(), given));
    double moved_m = 0;
    for (size_t m = 0; m < given[0].size(); ++m) {
      moved_m = std::max(moved_m, (world->CurrentFrame()->markers[m].position_m - given[0][m].position_m).norm());
    }
    EXPECT_GT(moved_m, 0.001);  // it bends under the probe
    if (simulation == Simulation::kPrecomputed) continue;
    const auto at = [&](size_t m) { return world->CurrentFrame()->markers[m].position_m; };
    PALPATE_TEST_ASSIGN(const auto outcomes,
                        world->Apply(std::vector<Edit>{{.body = 0, .what = CarveEdit{BallRegion{at(3), 0.012}}},
                                                       {.body = 0, .what = RefineEdit{BallRegion{at(5), 0.012}, 0.006}}}));
    EXPECT_GT(outcomes[0].removed_tets.size(), 5U);
    EXPECT_GT(outcomes[1].added_tets.size(), 10U);
    for (int i = 0; i < 15; ++i) ASSERT_TRUE(world->Step(commands).ok());
    ASSERT_NO_FATAL_FAILURE(CheckMarkers(world.get(), given));
  }
}

// Two tets that share an edge: no manifold, so it can be simulated but not edited.
TEST_F(WorldMarkersTest, ABodyThatCannotBeEditedCarriesThem) {
  SceneDescription scene;
  BodyDescription body;
  body.name = "hinge";
  body.mesh.vertices = {{0, 0, 0}, {0, 0, 0.02}, {0.02, 0, 0}, {0.02, 0.02, 0}, {-0.02, 0, 0}, {-0.02, -0.02, 0}};
  body.mesh.tets = {{0, 2, 3, 1}, {0, 4, 5, 1}};
  body.markers = {{"a", {0.01, 0.004, 0.003}}, {"b", {-0.01, -0.004, 0.003}}};
  const std::vector<std::vector<MarkerDescription>> given = {body.markers};
  scene.bodies = {body};
  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(world->Step({}).ok());
  ASSERT_NO_FATAL_FAILURE(CheckMarkers(world.get(), given));
  EXPECT_LT(world->CurrentFrame()->markers[0].position_m.z(), 0.0025);  // it falls
  const auto edited = world->Apply(std::vector<Edit>{{.body = 0, .what = CarveEdit{BallRegion{{0, 0, 0}, 0.1}}}});
  EXPECT_EQ(edited.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(WorldMarkersTest, VolumeWantedOrNotTheyAreTheSame) {
  SceneDescription scene;
  scene.bodies = {BoxBody("bar", {0, 0, 0.05}, {9, 4, 4}, {0.08, 0.03, 0.03}, HeldSide::kLowX)};
  Mark(&scene.bodies[0], {0, 0, 0.05}, {0.08, 0.03, 0.03}, 30, 8);
  const std::vector<std::vector<MarkerDescription>> given = {scene.bodies[0].markers};
  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
  for (int i = 0; i < 6; ++i) {
    world->SetVolumeWanted(i % 2 == 1);
    ASSERT_TRUE(world->Step({}).ok());
    ASSERT_EQ(world->CurrentFrame()->volume_positions_m[0].empty(), i % 2 == 0);
    ASSERT_NO_FATAL_FAILURE(CheckMarkers(world.get(), given));
  }
}

TEST_F(WorldMarkersTest, MarkersMustBeWithinReachOfADeformableBody) {
  const auto create = [&](const MarkerDescription& marker, BodyKind kind) {
    SceneDescription scene;
    scene.bodies = {BoxBody("bar", {0, 0, 0}, {5, 3, 3}, {0.04, 0.02, 0.02}, HeldSide::kLowX)};
    scene.bodies[0].kind = kind;
    if (kind != BodyKind::kDeformable) {
      scene.bodies[0].fixed_vertices.clear();
      scene.bodies[0].self_collision = false;
    }
    scene.bodies[0].markers = {{"inside", {0, 0, 0}}, marker};
    return World::Create(context(), std::move(scene));
  };
  // The extent is 0.04 m, so the reach 4e-5 m.
  PALPATE_TEST_ASSIGN(const auto world, create({"near", {0.003, 0.002, 0.01 + 3.9e-5}}, BodyKind::kDeformable));
  EXPECT_LT((world->CurrentFrame()->markers[1].position_m - Vector3d(0.003, 0.002, 0.01)).norm(), 1e-8);
  const auto refused = [&](const MarkerDescription& marker, BodyKind kind) {
    const auto made = create(marker, kind);
    EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(made.status().message());
  };
  const std::string far = refused({"far", {0.003, 0.002, 0.01 + 4.1e-5}}, BodyKind::kDeformable);
  EXPECT_NE(far.find("bodies[0] (bar).markers[1].position_m: (0.003, 0.002, 0.010041) lies 4.1e-05 m outside"), std::string::npos) << far;
  EXPECT_NE(refused({"nan", {NAN, 0, 0}}, BodyKind::kDeformable).find(".markers[1].position_m: is not finite"), std::string::npos);
  EXPECT_NE(refused({"bad", {0, 0, 0}, 1000000}, BodyKind::kDeformable).find(".markers[1].cell: 1000000 is outside"), std::string::npos);
  EXPECT_NE(refused({"wrong", {0.019, 0, 0}, 0}, BodyKind::kDeformable).find(".markers[1].position_m: the point lies outside tet 0"),
            std::string::npos);
  for (const BodyKind kind : {BodyKind::kRigid, BodyKind::kStatic}) {
    EXPECT_NE(refused({"rigid", {0, 0, 0}}, kind).find("bodies[0] (bar).markers: only a deformable body has markers"), std::string::npos);
  }
  SceneDescription scene;
  scene.bodies = {BoxBody("bar", {0, 0, 0}, {5, 3, 3}, {0.04, 0.02, 0.02}, HeldSide::kLowX)};
  for (size_t m = 0; m <= kMaxMarkers; ++m) scene.bodies[0].markers.push_back({"m", {0, 0, 0}});
  EXPECT_EQ(World::Create(context(), scene).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace palpate::sim::markers_test
