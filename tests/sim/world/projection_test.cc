// Tools that respond by geometric projection in a running world.
#include <gmock/gmock.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "sim/instrument/geometry.h"
#include "sim/instrument/projection.h"
#include "sim/mesh/generators.h"
#include "sim/world/world.h"
#include "tests/sim/world/world_builders.h"
#include "tests/support/device_test.h"

namespace palpate::sim::projection_test {
namespace {

using Eigen::Vector3d;
using test::BoxBody;
using test::HeldSide;
using test::Ridge;
using test::Step;
using test::ToolAt;

class WorldProjectionTest : public test::DeviceTest {
 protected:
  /// A liver on its lowest quarter.
  static BodyDescription Liver(double tets, double* top_m) {
    BodyDescription body;
    body.name = "liver";
    auto mesh = GenerateLiver(0.2, LiverEdgeLengthForTets(0.2, tets));
    EXPECT_TRUE(mesh.ok()) << mesh.status();
    body.mesh = *std::move(mesh);
    body.material.mass_damping_per_s = 15;  // its tail swings for long
    double low = 1;
    double high = -1;
    *top_m = -1;
    for (const Vector3d& v : body.mesh.vertices) {
      low = std::min(low, v.z());
      high = std::max(high, v.z());
      if (v.head<2>().norm() < 0.02) *top_m = std::max(*top_m, v.z());
    }
    for (uint32_t v = 0; v < body.mesh.vertices.size(); ++v) {
      if (body.mesh.vertices[v].z() < low + 0.25 * (high - low)) body.fixed_vertices.push_back(v);
    }
    return body;
  }
  static ToolDescription Tool(const Vector3d& tip_m, ToolDrive drive, ToolResponse response = ToolResponse::kProjection,
                              InstrumentKind kind = InstrumentKind::kProbe) {
    ToolDescription tool = ToolAt("tool", tip_m, drive);
    tool.radius_m = 0.004;
    tool.length_m = 0.15;
    tool.response = response;
    tool.instrument.kind = kind;
    return tool;
  }
  static std::vector<ToolCommand> AtRest(const SceneDescription& scene) {
    std::vector<ToolCommand> commands(scene.tools.size());
    for (size_t t = 0; t < commands.size(); ++t) commands[t].device_pose = scene.tools[t].rest_pose;
    return commands;
  }
  /// Least distance of any surface from the parts of a tool.
  static double LeastGap(const SceneDescription& scene, const Frame& frame, size_t t) {
    const FrameTool& tool = frame.tools[t];
    const ToolDescription& description = scene.tools[t];
    double least = 1;
    for (const InstrumentCapsule& part :
         CapsulesOf(description.instrument, description.length_m, description.radius_m, tool.jaw_angle_rad)) {
      const Vector3d tip = tool.pose.position_m + tool.pose.rotation * part.tip_m;
      const Vector3d axis = tool.pose.rotation * part.axis_m;
      for (size_t b = 0; b < frame.topology->bodies.size(); ++b) {
        const std::vector<float>& x = frame.surface_positions_m[b];
        for (const auto& triangle : frame.topology->bodies[b]->surface_triangles) {
          if (triangle == kFreeTriangle) continue;
          std::array<Vector3d, 3> corners;
          for (size_t c = 0; c < 3; ++c) {
            const float* const at = &x[size_t{3} * ToNumber(triangle[c])];
            corners[c] = {at[0], at[1], at[2]};
          }
          least = std::min(least, DistanceToSkeleton(tip, axis, corners).distance_m - part.radius_m);
        }
      }
    }
    return least;
  }
  /// A hook goes into a block and then along it, with its power on.
  void CarveWithHook(int coarse_nodes) {
    SCOPED_TRACE(testing::Message() << coarse_nodes << " coarse nodes");
    SceneDescription scene;
    scene.solver.coarse_nodes = coarse_nodes;
    if (coarse_nodes > 0) scene.solver.acceleration = 0.85;
    scene.bodies = {BoxBody("block", {0, 0, 0}, {7, 7, 5}, {0.06, 0.06, 0.03}, HeldSide::kLowZ)};
    scene.bodies[0].ablation.energy_j_per_kg = 1e5;
    scene.contact.check_intersections = true;
    scene.tools = {Tool({0, 0, 0.02}, ToolDrive::kDirect, ToolResponse::kProjection, InstrumentKind::kCauteryHook)};
    PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
    std::vector<ToolCommand> commands = AtRest(scene);
    commands[0].pedal = true;
    std::shared_ptr<const Frame> frame;
    for (int i = 0; i < 300; ++i) {
      Vector3d& position = commands[0].device_pose.position_m;
      position.z() = std::max(0.006, position.z() - 0.0002);
      position.x() = i < 150 ? 0 : 0.0001 * (i - 150);
      frame = Step(*world, commands);
      EXPECT_EQ(frame->contact_statistics.intersection_count, 0U) << i;
      EXPECT_LT(frame->max_speed_m_per_s, 2) << i;
      EXPECT_GE(LeastGap(scene, *frame, 0), -2e-6) << i;
    }
    EXPECT_GT(frame->tools[0].removed_mass_kg, 1e-5);
    EXPECT_GT(frame->topology_version, 1U);
  }
};

TEST_F(WorldProjectionTest, ALiverGivesWayByTheDepthOfTheTool) {
  std::vector<std::vector<double>> forces;
  for (const ToolResponse response : {ToolResponse::kEnergy, ToolResponse::kProjection}) {
    SceneDescription scene;
    double top_m = 0;
    scene.bodies = {Liver(1000, &top_m)};
    scene.contact.check_intersections = true;
    scene.gravity_m_per_s2.setZero();
    scene.tools = {Tool({0, 0, top_m + 0.006}, ToolDrive::kDirect, response)};
    PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
    std::vector<ToolCommand> commands = AtRest(scene);
    forces.emplace_back();
    std::shared_ptr<const Frame> frame;
    for (int depth_mm = 2; depth_mm <= 10; depth_mm += 2) {
      for (int i = 0; i < 40; ++i) {
        commands[0].device_pose.position_m.z() =
            std::max(commands[0].device_pose.position_m.z() - 0.0005, top_m + 0.004 - 0.001 * depth_mm);
        frame = Step(*world, commands);
        EXPECT_GE(LeastGap(scene, *frame, 0), -2e-6);
        EXPECT_EQ(frame->contact_statistics.intersection_count, 0U);
      }
      EXPECT_EQ(frame->tools[0].blocked_m, 0);
      EXPECT_LT(LeastGap(scene, *frame, 0), 0.001) << "the surface is where the tool is";
      EXPECT_LT((frame->tools[0].pose.position_m - commands[0].device_pose.position_m).norm(), 1e-6);
      EXPECT_TRUE(frame->tools[0].is_touching);
      forces.back().push_back(frame->tools[0].force_n.z());
      EXPECT_GT(frame->local_models[0].constraint_count, 0);
      EXPECT_NEAR((frame->local_models[0].force_n - frame->tools[0].force_n).norm(), 0, 1e-12);
    }
  }
  for (size_t k = 0; k < forces[1].size(); ++k) {
    EXPECT_GT(forces[1][k], k == 0 ? 0 : forces[1][k - 1]) << "rises with depth";
    EXPECT_GT(forces[1][k] / forces[0][k], 0.5) << k;
    EXPECT_LT(forces[1][k] / forces[0][k], 1.7) << k;
  }
}

TEST_F(WorldProjectionTest, EnergyStaysBoundedAndTissueComesBack) {
  SceneDescription scene;
  double top_m = 0;
  scene.bodies = {Liver(600, &top_m)};
  scene.gravity_m_per_s2.setZero();
  scene.tools = {Tool({0, 0, top_m + 0.006}, ToolDrive::kDirect)};
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  std::vector<ToolCommand> commands = AtRest(scene);
  std::shared_ptr<const Frame> frame;
  for (int i = 0; i < 5; ++i) frame = Step(*world, commands);
  const std::vector<float> rest = frame->surface_positions_m[0];
  double touched = 0;
  double largest_force_n = 0;
  for (int i = 0; i < 500; ++i) {
    // Strokes over the surface and into it, up to 12 mm deep, 0.2 m/s.
    const double phase = 2 * EIGEN_PI * i / 125.0;
    commands[0].device_pose.position_m = {0.03 * std::sin(phase), 0.02 * std::sin(2 * phase),
                                          top_m + 0.004 - 0.012 * std::sin(phase) * std::sin(phase)};
    frame = Step(*world, commands);
    EXPECT_LT(frame->kinetic_energy_j, 0.01) << i;
    EXPECT_LT(frame->max_speed_m_per_s, 1.5) << i;
    EXPECT_EQ(frame->inverted_tets, 0U) << i;
    EXPECT_GE(LeastGap(scene, *frame, 0), -2e-6) << i;
    touched += frame->tools[0].is_touching ? 1 : 0;
    largest_force_n = std::max(largest_force_n, frame->tools[0].force_n.norm());
  }
  EXPECT_GT(touched, 200);
  EXPECT_LT(largest_force_n, 10);
  for (int i = 0; i < 200; ++i) {
    commands[0].device_pose.position_m.z() = std::min(top_m + 0.05, commands[0].device_pose.position_m.z() + 0.001);
    frame = Step(*world, commands);
    EXPECT_LE(frame->tools[0].force_n.norm(), largest_force_n) << "nothing sticks";
  }
  EXPECT_FALSE(frame->tools[0].is_touching);
  EXPECT_EQ(frame->tools[0].force_n, Vector3d(Vector3d::Zero()));
  double farthest = 0;
  for (size_t i = 0; i < rest.size(); ++i) farthest = std::max<double>(farthest, std::abs(frame->surface_positions_m[0][i] - rest[i]));
  EXPECT_LT(farthest, 0.001);
}

TEST_F(WorldProjectionTest, TwoToolsLeaveNothingInsideEither) {
  SceneDescription scene;
  const double top_m = 0.025;
  scene.bodies = {BoxBody("block", {0, 0, 0}, {11, 6, 6}, {0.1, 0.05, 2 * top_m}, HeldSide::kLowZ)};
  scene.gravity_m_per_s2.setZero();
  scene.tools = {Tool({-0.03, 0, top_m + 0.02}, ToolDrive::kDirect), Tool({0.03, 0, top_m + 0.02}, ToolDrive::kCoupled)};
  scene.tools[1].name = "other";
  for (ToolDescription& tool : scene.tools) {
    const double side = tool.name == "tool" ? -1 : 1;
    tool.rest_pose.rotation = Eigen::AngleAxisd(side * 0.6, Vector3d::UnitY());
  }
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  std::vector<ToolCommand> commands = AtRest(scene);
  int both = 0;
  for (int i = 0; i < 240; ++i) {
    for (size_t t = 0; t < 2; ++t) {
      Vector3d& position = commands[t].device_pose.position_m;
      position.x() = (t == 0 ? -1 : 1) * std::max(0.007, 0.03 - 0.0002 * i);  // towards each other
      position.z() = std::max(top_m - 0.016, position.z() - 0.0003);
    }
    const auto frame = Step(*world, commands);
    for (size_t t = 0; t < 2; ++t) EXPECT_GE(LeastGap(scene, *frame, t), -2e-6) << i << ", tool " << t;
    both += frame->tools[0].is_touching && frame->tools[1].is_touching ? 1 : 0;
    EXPECT_LT(frame->max_speed_m_per_s, 2);
  }
  EXPECT_GT(both, 100);
}

TEST_F(WorldProjectionTest, ACoupledToolInATrocarRestsAgainstItsCoupling) {
  SceneDescription scene;
  double top_m = 0;
  scene.bodies = {Liver(600, &top_m)};
  scene.gravity_m_per_s2.setZero();
  scene.tools = {Tool({0, 0, top_m + 0.006}, ToolDrive::kCoupled)};
  scene.solver.iterations = 60;  // twenty leave 11 % of the balance between a light tool and stiff anchors unsolved
  scene.tools[0].trocar = TrocarDescription{.pivot_m = {0.02, 0, top_m + 0.09}, .max_insertion_m = 0.14};
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  std::vector<ToolCommand> commands = AtRest(scene);
  std::shared_ptr<const Frame> frame;
  for (int i = 0; i < 300; ++i) {
    commands[0].device_pose.position_m.z() = std::max(top_m - 0.006, commands[0].device_pose.position_m.z() - 0.0002);
    frame = Step(*world, commands);
    EXPECT_GE(LeastGap(scene, *frame, 0), -2e-6) << i;
  }
  const FrameTool& tool = frame->tools[0];
  const Vector3d shaft = tool.pose.rotation * Vector3d::UnitZ();
  const Vector3d to_pivot = scene.tools[0].trocar->pivot_m - tool.pose.position_m;
  EXPECT_LT(to_pivot.cross(shaft).norm(), 0.0005) << "through the pivot";
  const Vector3d spring = scene.tools[0].coupling_stiffness_n_per_m * (tool.pose.position_m - commands[0].device_pose.position_m);
  EXPECT_GT(tool.force_n.norm(), 0.1);
  EXPECT_LT((tool.force_n - spring).norm(), 0.1 * tool.force_n.norm()) << tool.force_n.transpose() << " against " << spring.transpose();
}

TEST_F(WorldProjectionTest, AShaftPushesACutLobeAside) {
  SceneDescription scene;
  scene.bodies = {BoxBody("block", {0, 0, 0}, {11, 6, 6}, {0.1, 0.05, 0.05}, HeldSide::kLowZ)};
  scene.bodies[0].material.young_modulus_pa = 8000;
  scene.contact.check_intersections = true;
  scene.gravity_m_per_s2.setZero();
  // A shaft along y beside the right lobe's inner face: it comes down into the cut and then moves towards +x.
  scene.tools = {Tool({0.002, -0.06, 0.04}, ToolDrive::kDirect)};
  scene.tools[0].radius_m = 0.003;
  scene.tools[0].length_m = 0.12;
  scene.tools[0].rest_pose.rotation = Eigen::Quaterniond::FromTwoVectors(Vector3d::UnitZ(), Vector3d::UnitY());
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  const InciseEdit cut{.edges_m = {{Vector3d(0.001, -0.04, 0.03), Vector3d(0.001, -0.04, -0.005)},
                                   {Vector3d(0.001, 0.04, 0.03), Vector3d(0.001, 0.04, -0.005)}}};
  PALPATE_TEST_ASSIGN(const auto outcomes, world->Apply(std::vector<Edit>{{.what = cut}}));
  ASSERT_GT(outcomes[0].added_vertices.size(), 10U);
  const std::vector<float> before = world->CurrentFrame()->surface_positions_m[0];
  std::vector<ToolCommand> commands = AtRest(scene);
  std::shared_ptr<const Frame> frame;
  for (int i = 0; i < 300; ++i) {
    Vector3d& position = commands[0].device_pose.position_m;
    if (i < 150) {
      position.z() = std::max(0.012, position.z() - 0.0002);
    } else {
      position.x() = std::min(0.015, position.x() + 0.0001);
    }
    frame = Step(*world, commands);
    EXPECT_GE(LeastGap(scene, *frame, 0), -2e-6) << i;
    EXPECT_EQ(frame->contact_statistics.intersection_count, 0U) << i;
    EXPECT_LT(frame->max_speed_m_per_s, 1.1) << i;  // around step 138 a lip springs off the shaft at 1.0 m/s
  }
  EXPECT_LT(frame->tools[0].force_n.x(), -0.05) << "the lobe pushes back";
  EXPECT_LT((frame->tools[0].pose.position_m - commands[0].device_pose.position_m).norm(), 0.001);
  double aside_m = 0;
  for (size_t i = 0; i < before.size(); i += 3) {
    if (before[i] > 0) aside_m = std::max<double>(aside_m, frame->surface_positions_m[0][i] - before[i]);
  }
  EXPECT_GT(aside_m, 0.008);
}

TEST_F(WorldProjectionTest, JawsHoldAndLetGo) {
  SceneDescription scene;
  scene.bodies = {Ridge()};
  scene.bodies[0].material.young_modulus_pa = 10000;
  scene.tools = {Tool({0, 0, 0.05}, ToolDrive::kDirect, ToolResponse::kProjection, InstrumentKind::kForceps)};
  scene.tools[0].radius_m = 0.003;
  scene.tools[0].instrument.max_jaw_angle_rad = 1.2;
  scene.tools[0].instrument.max_grasp_force_n = 2;
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  std::vector<ToolCommand> commands = AtRest(scene);
  commands[0].jaw_angle_rad = 1.2;
  std::shared_ptr<const Frame> frame;
  const auto highest = [&] {
    double high = -1;
    for (size_t i = 2; i < frame->surface_positions_m[0].size(); i += 3) high = std::max<double>(high, frame->surface_positions_m[0][i]);
    return high;
  };
  for (int i = 0; i < 60; ++i) frame = Step(*world, commands);
  for (int i = 0; i < 80; ++i) {
    commands[0].device_pose.position_m.z() -= 0.047 / 80;
    frame = Step(*world, commands);
  }
  EXPECT_FALSE(frame->tools[0].is_grasping);
  commands[0].jaw_angle_rad = 0;
  for (int i = 0; i < 90; ++i) {
    frame = Step(*world, commands);
    EXPECT_GE(LeastGap(scene, *frame, 0), -2e-6) << i;
  }
  EXPECT_TRUE(frame->tools[0].is_grasping);
  EXPECT_TRUE(frame->tools[0].is_touching);
  EXPECT_GE(frame->tools[0].grasped_vertices, 4U);
  EXPECT_GT(frame->tools[0].jaw_angle_rad, 0.1) << "there is tissue between";
  const double before = highest();
  for (int i = 0; i < 100; ++i) {
    commands[0].device_pose.position_m.z() += i < 60 ? 0.0001 : 0;
    frame = Step(*world, commands);
    EXPECT_LT(frame->tools[0].grasp_force_n, 2 * (1 + 1e-4));
  }
  EXPECT_TRUE(frame->tools[0].is_grasping);
  EXPECT_GT(highest(), before + 0.003);
  EXPECT_LT(frame->tools[0].force_n.z(), -0.1) << "the tissue pulls back";
  EXPECT_GT(frame->local_models[0].constraint_count, 0);
  commands[0].jaw_angle_rad = 1.2;
  for (int i = 0; i < 150; ++i) frame = Step(*world, commands);
  EXPECT_EQ(frame->tools[0].grasped_vertices, 0U);
  EXPECT_NEAR(highest(), 0.01, 0.001) << "the ridge stands as before";
  // Contact is as before: shut, the jaws push the ridge down.
  commands[0].jaw_angle_rad = 0;
  for (int i = 0; i < 100; ++i) {
    commands[0].device_pose.position_m.z() = std::min(0.05, commands[0].device_pose.position_m.z() + 0.001);
    frame = Step(*world, commands);
  }
  for (int i = 0; i < 150; ++i) {
    commands[0].device_pose.position_m.z() = std::max(0.007, commands[0].device_pose.position_m.z() - 0.0005);
    frame = Step(*world, commands);
    EXPECT_GE(LeastGap(scene, *frame, 0), -2e-6) << i;
  }
  EXPECT_TRUE(frame->tools[0].is_touching);
  EXPECT_FALSE(frame->tools[0].is_grasping);
  EXPECT_GT(frame->tools[0].force_n.z(), 0.02);
}

// With coarse corrections too: they leave what the tool touches alone.
TEST_F(WorldProjectionTest, AHookCarvesWhatItTouches) {
  for (const int coarse_nodes : {0, 4096}) CarveWithHook(coarse_nodes);
}

TEST_F(WorldProjectionTest, RigidBodiesArePushedByForcesAndCommandsRepeatBitForBit) {
  SceneDescription scene;
  scene.bodies = {BoxBody("tissue", {0, 0, 0}, {6, 6, 4}, {0.05, 0.05, 0.02}, HeldSide::kLowZ),
                  BoxBody("stone", {0.06, 0, 0}, {3, 3, 3}, {0.02, 0.02, 0.02}, HeldSide::kLowZ)};
  scene.bodies[1].kind = BodyKind::kRigid;
  scene.bodies[1].fixed_vertices.clear();
  scene.bodies[1].self_collision = false;
  scene.gravity_m_per_s2.setZero();
  scene.tools = {Tool({0, 0, 0.016}, ToolDrive::kDirect), Tool({0.08, 0, 0}, ToolDrive::kDirect)};
  scene.tools[1].name = "pusher";
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  std::vector<uint64_t> hashes;
  for (int run = 0; run < 2; ++run) {
    std::vector<ToolCommand> commands = AtRest(scene);
    std::shared_ptr<const Frame> frame;
    bool touched_stone = false;
    for (int i = 0; i < 80; ++i) {
      commands[0].device_pose.position_m.z() -= 0.0001;
      commands[1].device_pose.position_m.x() -= 0.0002;
      frame = Step(*world, commands);
      for (const FrameContact& contact : frame->contacts) touched_stone |= contact.body_index == 1;
      hashes.push_back(frame->state_hash);
    }
    EXPECT_TRUE(touched_stone);
    EXPECT_TRUE(frame->tools[0].is_touching);
    PALPATE_TEST_ASSIGN(frame, world->Reset());
  }
  for (size_t i = 0; i < hashes.size() / 2; ++i) EXPECT_EQ(hashes[i], hashes[i + hashes.size() / 2]) << i;
}

TEST_F(WorldProjectionTest, PrecomputedBodiesAreRefused) {
  SceneDescription scene;
  scene.bodies = {BoxBody("tissue", {0, 0, 0}, {4, 4, 3}, {0.05, 0.05, 0.02}, HeldSide::kLowZ)};
  scene.bodies[0].simulation = Simulation::kPrecomputed;
  scene.bodies[0].material.model = MaterialModel::kLinear;
  scene.tools = {Tool({0, 0, 0.02}, ToolDrive::kDirect)};
  const auto world = World::Create(context(), scene);
  EXPECT_EQ(world.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(world.status().message(), ::testing::HasSubstr("tools[0] (tool): the response by projection needs bodies with dynamics"));
}

}  // namespace
}  // namespace palpate::sim::projection_test
