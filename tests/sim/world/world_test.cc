#include "sim/world/world.h"

#include <gmock/gmock.h>

#include <Eigen/Dense>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "sim/haptics/evaluate.h"
#include "sim/mesh/generators.h"
#include "tests/sim/world/world_builders.h"
#include "tests/support/device_test.h"

namespace palpate::sim::world_test {
namespace {

using Eigen::Vector3d;
using test::BoxBody;
using test::HeldSide;
using test::ToolAt;
using ::testing::HasSubstr;

class WorldTest : public test::DeviceTest {
 protected:
  static BodyDescription Box(const std::string& name, const Vector3d& center, bool held = true) {
    return BoxBody(name, center, {5, 5, 4}, {0.08, 0.08, 0.05}, held ? HeldSide::kLowZ : HeldSide::kNone);
  }
  /// Two boxes side by side and a tool above each.
  static SceneDescription TwoBoxes() {
    SceneDescription scene;
    scene.name = "two boxes";
    scene.bodies = {Box("left", {-0.06, 0, 0}), Box("right", {0.06, 0, 0})};
    scene.bodies[1].material.model = MaterialModel::kCorotated;
    scene.bodies[1].material.density_kg_per_m3 = 500;
    scene.tools = {ToolAt("a", {-0.06, 0, 0.035}), ToolAt("b", {0.06, 0, 0.035}, ToolDrive::kDirect)};
    return scene;
  }
  static std::vector<const ToolCommand*> Idle(const World& world) {
    return std::vector<const ToolCommand*>(world.description().tools.size());
  }
};

TEST_F(WorldTest, DescribesItsBodies) {
  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), TwoBoxes()));
  ASSERT_EQ(world->body_statistics().size(), 2U);
  ASSERT_EQ(world->surfaces().size(), 2U);
  const BodyStatistics& left = world->body_statistics()[0];
  EXPECT_EQ(left.name, "left");
  EXPECT_EQ(left.vertex_count, 100U);
  EXPECT_EQ(left.tet_count, 4U * 4 * 3 * 5);
  EXPECT_EQ(left.fixed_vertex_count, 25U);
  EXPECT_EQ(left.surface_triangle_count, 4U * (4 * 4 + 2 * 4 * 3));
  EXPECT_NEAR(left.volume_m3, 0.08 * 0.08 * 0.05, 1e-12);
  EXPECT_NEAR(left.mass_kg, 1060 * 0.08 * 0.08 * 0.05, 1e-9);
  EXPECT_NEAR(world->body_statistics()[1].mass_kg, 500 * 0.08 * 0.08 * 0.05, 1e-9);
  EXPECT_GT(world->device_bytes(), 10000U);
  EXPECT_GE(world->color_count(), 4U);
}

TEST_F(WorldTest, ZonesHaveTheirStiffnessAndMass) {
  // A bar along z held below, its upper half ten times as stiff: a pull at its end lengthens both halves as springs in a row.
  SceneDescription scene;
  scene.gravity_m_per_s2.setZero();
  scene.dt_s = 0.05;
  scene.solver.iterations = 300;
  BodyDescription body;
  PALPATE_TEST_ASSIGN(body.mesh, BoxMesh({3, 3, 9}, {0.02, 0.02, 0.08}));
  body.self_collision = false;
  body.material.young_modulus_pa = 5000;
  body.material.poisson_ratio = 0;
  body.material.density_kg_per_m3 = 100;
  body.material.damping_s = 0;
  body.zones.emplace_back();
  body.zones[0].name = "stiff";
  body.zones[0].material = body.material;
  body.zones[0].material.young_modulus_pa = 50000;
  body.zones[0].material.density_kg_per_m3 = 200;
  LoadDescription pull;
  for (uint32_t v = 0; v < body.mesh.vertices.size(); ++v) {
    if (body.mesh.vertices[v].z() < -0.0399) body.fixed_vertices.push_back(v);
    if (body.mesh.vertices[v].z() > 0.0399) pull.vertices.push_back(v);
  }
  pull.force_n.z() = 0.01 * 5000 * 0.02 * 0.02;  // a strain of 1 % in the soft half
  body.loads.push_back(pull);
  for (const auto& tet : body.mesh.tets) {
    double z = 0;
    for (const uint32_t v : tet) z += body.mesh.vertices[v].z() / 4;
    body.tet_zones.push_back(z > 0 ? 1 : 0);
  }
  scene.bodies.push_back(body);
  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
  EXPECT_NEAR(world->body_statistics()[0].mass_kg, 150 * 0.02 * 0.02 * 0.08, 1e-9);
  for (int i = 0; i < 20; ++i) PALPATE_ASSERT_OK(world->Step({}).status());
  PALPATE_TEST_ASSIGN(const std::vector<float> x, world->ReadVolumePositions(0));
  const auto z = [&](size_t layer) { return static_cast<double>(x[(9 * layer + 4) * 3 + 2]); };
  EXPECT_NEAR(z(4) - z(0) - 0.04, 4e-4, 2e-5);
  EXPECT_NEAR(z(8) - z(4) - 0.04, 4e-5, 1e-5);
}

TEST_F(WorldTest, RefusesBadDescriptions) {
  const auto error_of = [&](const SceneDescription& scene) {
    const auto world = World::Create(context(), scene);
    EXPECT_FALSE(world.ok());
    EXPECT_EQ(world.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(world.status().message());
  };
  SceneDescription scene = TwoBoxes();
  scene.bodies[1].mesh.tets[7][0] = 4000;
  EXPECT_THAT(error_of(scene), HasSubstr("bodies[1] (right)"));
  scene = TwoBoxes();
  std::swap(scene.bodies[0].mesh.tets[3][0], scene.bodies[0].mesh.tets[3][1]);
  EXPECT_THAT(error_of(scene), AllOf(HasSubstr("bodies[0] (left)"), HasSubstr("tet")));
  scene = TwoBoxes();
  scene.bodies[0].fixed_vertices.push_back(100);
  EXPECT_THAT(error_of(scene), HasSubstr("bodies[0] (left).fixed_vertices: 100 is outside [0, 99]"));
  scene = TwoBoxes();
  scene.tools.resize(40, scene.tools[0]);
  EXPECT_THAT(error_of(scene), HasSubstr("limit of 32"));
}

// A mesh in kilometres or with a wrong scale: every element would be in contact with every other one.
TEST_F(WorldTest, RefusesAMarginFarAboveTheMesh) {
  for (const double scale : {1e-3, 1e-6}) {
    SceneDescription scene = TwoBoxes();
    for (Vector3d& v : scene.bodies[1].mesh.vertices) v = Vector3d(0.06, 0, 0) + scale * (v - Vector3d(0.06, 0, 0));
    const absl::Status status = World::Create(context(), scene).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("contact.margin_m: 0.001 is more than 4 times the mean edge"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("bodies[1] (right)"));
  }
}

// Small bodies are fine with a margin to match, up to the limit itself.
TEST_F(WorldTest, TakesSmallBodiesWithASmallMargin) {
  SceneDescription scene = TwoBoxes();
  scene.tools.clear();
  for (BodyDescription& body : scene.bodies) {
    for (Vector3d& v : body.mesh.vertices) v *= 1e-2;
  }
  // Surface edges of 0.167 to 0.283 mm: a mean of 0.217 mm, of which 0.8 mm are fewer than 4 and 0.95 mm are more.
  scene.contact.margin_m = 9.5e-4;
  EXPECT_TRUE(absl::IsInvalidArgument(World::Create(context(), scene).status()));
  scene.contact.margin_m = 8e-4;
  PALPATE_EXPECT_OK(World::Create(context(), scene).status());
  scene.contact.margin_m = 1e-5;
  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
  for (int i = 0; i < 3; ++i) PALPATE_ASSERT_OK(world->Step({}).status());
}

TEST_F(WorldTest, RefusesBadCalls) {
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), TwoBoxes()));
  const auto before = world->CurrentFrame();
  const ToolCommand good;
  EXPECT_EQ(world->Step({}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(world->Step(std::vector<const ToolCommand*>{&good}).status().message()),
              HasSubstr("1 tool commands for 2 tools"));
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    ToolCommand command;
    command.device_pose.position_m.y() = bad;
    EXPECT_EQ(world->Step(std::vector<const ToolCommand*>{nullptr, &command}).status().code(), absl::StatusCode::kInvalidArgument);
    command = {};
    command.device_pose.rotation.coeffs() << bad, 0, 0, 1;
    EXPECT_EQ(world->Step(std::vector<const ToolCommand*>{&command, nullptr}).status().code(), absl::StatusCode::kInvalidArgument);
  }
  ToolCommand zero;
  zero.device_pose.rotation.coeffs().setZero();
  EXPECT_EQ(world->Step(std::vector<const ToolCommand*>{&zero, nullptr}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(world->CurrentFrame(), before) << "a refused step changes nothing";

  EXPECT_EQ(world->ReadVolumePositions(2).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(world->WriteVolumePositions(2, {}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(world->WriteVolumePositions(0, std::vector<float>(7)).code(), absl::StatusCode::kInvalidArgument);
  std::vector<float> positions(300, 0.0F);
  positions[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(world->WriteVolumePositions(0, positions).code(), absl::StatusCode::kInvalidArgument);
  const auto frame = world->Step(Idle(*world));
  ASSERT_TRUE(frame.ok()) << frame.status();
  EXPECT_EQ((*frame)->step, 1U);
}

TEST_F(WorldTest, FramesAreImmutableAndResetGoesBack) {
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), TwoBoxes()));
  const auto first = world->CurrentFrame();
  EXPECT_EQ(first->step, 0U);
  const std::vector<float> surface = first->surface_positions_m[0];
  const uint64_t hash = first->state_hash;
  std::vector<uint64_t> hashes;
  ToolCommand command;
  command.device_pose.position_m = {-0.06, 0, 0.035};
  for (int i = 0; i < 20; ++i) {
    command.device_pose.position_m.z() -= 0.001;
    command.pose_sequence = static_cast<uint64_t>(i);
    command.station_time_us = 1000 * i;
    PALPATE_TEST_ASSIGN(const auto frame, world->Step(std::vector<const ToolCommand*>{&command, nullptr}));
    EXPECT_EQ(frame->step, static_cast<uint64_t>(i + 1));
    EXPECT_NEAR(frame->sim_time_s, (i + 1) / 120.0, 1e-12);
    ASSERT_EQ(frame->tools.size(), 2U);
    ASSERT_EQ(frame->local_models.size(), 2U);
    EXPECT_EQ(frame->local_models[0].pose_sequence, static_cast<uint64_t>(i));
    EXPECT_EQ(frame->local_models[0].station_time_us, 1000 * i);
    EXPECT_EQ(frame->local_models[0].step, frame->step);
    EXPECT_LT((frame->tools[0].device_pose.position_m - command.device_pose.position_m).norm(), 1e-12);
    EXPECT_LT((frame->tools[1].pose.position_m - Vector3d(0.06, 0, 0.035)).norm(), 1e-7) << "a tool without a client keeps its target";
    EXPECT_TRUE(frame->volume_positions_m[0].empty());
    hashes.push_back(frame->state_hash);
  }
  EXPECT_EQ(first->surface_positions_m[0], surface);
  EXPECT_NE(world->CurrentFrame()->surface_positions_m[0], surface);
  PALPATE_TEST_ASSIGN(const auto reset, world->Reset());
  EXPECT_EQ(reset->step, 0U);
  EXPECT_EQ(reset->state_hash, hash);
  EXPECT_EQ(reset->surface_positions_m[0], surface);
  command.device_pose.position_m = {-0.06, 0, 0.035};
  for (int i = 0; i < 20; ++i) {
    command.device_pose.position_m.z() -= 0.001;
    PALPATE_TEST_ASSIGN(const auto frame, world->Step(std::vector<const ToolCommand*>{&command, nullptr}));
    EXPECT_EQ(frame->state_hash, hashes[static_cast<size_t>(i)]);
  }
}

TEST_F(WorldTest, NewerPosesAreTakenInTheMiddleOfAStep) {
  SceneDescription scene = TwoBoxes();
  PALPATE_TEST_ASSIGN(auto late, World::Create(context(), scene));
  PALPATE_TEST_ASSIGN(auto early, World::Create(context(), scene));
  ToolCommand command;
  command.device_pose.position_m = {-0.06, 0, 0.035};
  ToolCommand other;
  other.device_pose = late->CurrentFrame()->tools[1].device_pose;
  std::vector<const ToolCommand*> commands{&command, nullptr};
  for (int i = 0; i < 20; ++i) {
    ToolCommand newer = command;
    newer.device_pose.position_m.z() -= 0.001;
    newer.pose_sequence = static_cast<uint64_t>(i + 1);
    newer.station_time_us = 1000 * i;
    int calls = 0;
    const auto take = [&] {
      ++calls;
      command = newer;
      if (i >= 10) commands[1] = &other;
    };
    PALPATE_TEST_ASSIGN(const auto frame, late->Step(commands, take));
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(frame->local_models[0].pose_sequence, newer.pose_sequence);
    EXPECT_EQ(frame->local_models[0].station_time_us, newer.station_time_us);
    EXPECT_EQ(frame->tools[0].device_pose.position_m, newer.device_pose.position_m);
    PALPATE_TEST_ASSIGN(const auto expected, early->Step(std::vector<const ToolCommand*>{&newer, nullptr}));
    ASSERT_EQ(frame->state_hash, expected->state_hash) << "step " << i;
    EXPECT_EQ(frame->tools[0].force_n, expected->tools[0].force_n);
  }
  EXPECT_TRUE(late->CurrentFrame()->tools[0].is_touching);
  // What is no pose is not taken then; at the begin of a step it is an error.
  const Eigen::Vector3d last_m = late->CurrentFrame()->tools[0].device_pose.position_m;
  const auto spoil = [&] { command.device_pose.position_m.x() = std::numeric_limits<double>::quiet_NaN(); };
  PALPATE_TEST_ASSIGN(const auto frame, late->Step(commands, spoil));
  EXPECT_EQ(frame->tools[0].device_pose.position_m, last_m);
  EXPECT_EQ(late->Step(commands).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(WorldTest, ABladeGoesWhereItsStepBeganToTakeIt) {
  SceneDescription scene = TwoBoxes();
  scene.tools[0].instrument.kind = InstrumentKind::kScalpel;
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  ToolCommand command;
  command.device_pose = scene.tools[0].rest_pose;
  command.device_pose.position_m.z() += 0.001;
  const Eigen::Vector3d begun_m = command.device_pose.position_m;
  const auto move = [&] { command.device_pose.position_m.z() += 0.001; };
  PALPATE_TEST_ASSIGN(const auto frame, world->Step(std::vector<const ToolCommand*>{&command, nullptr}, move));
  EXPECT_EQ(frame->tools[0].device_pose.position_m, begun_m);
  EXPECT_GT(command.device_pose.position_m.z(), begun_m.z());
}

TEST_F(WorldTest, VolumePositionsComeWhenWanted) {
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), TwoBoxes()));
  world->SetVolumeWanted(true);
  PALPATE_TEST_ASSIGN(const auto with, world->Step(Idle(*world)));
  ASSERT_EQ(with->volume_positions_m.size(), 2U);
  for (size_t body = 0; body < 2; ++body) {
    ASSERT_EQ(with->volume_positions_m[body].size(), 300U);
    PALPATE_TEST_ASSIGN(const auto read, world->ReadVolumePositions(body));
    EXPECT_EQ(with->volume_positions_m[body], read);
    const BoundarySurface& surface = world->surfaces()[body];
    ASSERT_EQ(with->surface_positions_m[body].size(), surface.vertices.size() * 3);
    for (size_t i = 0; i < surface.vertices.size(); ++i) {
      for (size_t axis = 0; axis < 3; ++axis)
        EXPECT_EQ(with->surface_positions_m[body][3 * i + axis], read[3 * surface.vertices[i] + axis]);
    }
  }
  world->SetVolumeWanted(false);
  PALPATE_TEST_ASSIGN(const auto without, world->Step(Idle(*world)));
  EXPECT_TRUE(without->volume_positions_m[0].empty());
  EXPECT_TRUE(without->volume_positions_m[1].empty());
}

TEST_F(WorldTest, WrittenPositionsStandAndFixedVerticesStay) {
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), TwoBoxes()));
  PALPATE_TEST_ASSIGN(std::vector<float> x, world->ReadVolumePositions(1));
  PALPATE_TEST_ASSIGN(const std::vector<float> other, world->ReadVolumePositions(0));
  const std::vector<float> rest = x;
  for (float& v : x) v += 0.002F;
  PALPATE_ASSERT_OK(world->WriteVolumePositions(1, x));
  PALPATE_TEST_ASSIGN(const std::vector<float> now, world->ReadVolumePositions(1));
  for (size_t i = 0; i < now.size(); ++i) EXPECT_EQ(now[i], i < 75 ? rest[i] : x[i]) << "coordinate " << i;
  PALPATE_TEST_ASSIGN(const std::vector<float> other_now, world->ReadVolumePositions(0));
  EXPECT_EQ(other_now, other);
}

TEST_F(WorldTest, ToolForceEqualsTissueForceAndTheLocalModel) {
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), TwoBoxes()));
  std::vector<ToolCommand> commands(2);
  std::vector<const ToolCommand*> pointers{&commands[0], &commands[1]};
  for (size_t t = 0; t < 2; ++t) commands[t].device_pose.position_m = world->description().tools[t].rest_pose.position_m;
  std::shared_ptr<const Frame> frame;
  for (int i = 0; i < 120; ++i) {
    for (size_t t = 0; t < 2 && i < 40; ++t) commands[t].device_pose.position_m.z() -= 0.0004;
    PALPATE_TEST_ASSIGN(frame, world->Step(pointers));
  }
  for (size_t t = 0; t < 2; ++t) {
    SCOPED_TRACE(testing::Message() << "tool " << t);
    const FrameTool& tool = frame->tools[t];
    Vector3d on_tissue = Vector3d::Zero(), torque = Vector3d::Zero();
    uint32_t contacts = 0;
    for (const FrameContact& c : frame->contacts) {
      if (c.tool_index != t) continue;
      EXPECT_EQ(c.body_index, t);
      EXPECT_NEAR(c.normal.norm(), 1, 1e-4);
      EXPECT_GT(-c.normal.z(), 0) << "from the tool down to the tissue";
      on_tissue += c.force_n.cast<double>();
      torque -= (c.point_m.cast<double>() - tool.pose.position_m).cross(c.force_n.cast<double>());
      ++contacts;
    }
    EXPECT_GT(contacts, 0U);
    EXPECT_EQ(contacts, tool.contact_count);
    EXPECT_GT(tool.force_n.z(), 0.1) << "pushed up";
    EXPECT_LT((tool.force_n + on_tissue).norm(), 1e-5 * on_tissue.norm());
    EXPECT_LT((tool.torque_n_m - torque).norm(), 1e-6);
    if (t == 0) {  // at rest the coupling carries it
      const Vector3d spring = 500 * (tool.pose.position_m - tool.device_pose.position_m);
      EXPECT_LT((spring - tool.force_n).norm(), 0.02 * tool.force_n.norm());
    }
    const LocalModel& model = frame->local_models[t];
    EXPECT_EQ(model.force_n, tool.force_n);
    EXPECT_EQ(model.torque_n_m, tool.torque_n_m);
    EXPECT_GT(model.constraint_count, 0);
    EXPECT_GT(model.validity_radius_m, 0);
    double stiffness = 0;
    for (int i = 0; i < model.constraint_count; ++i) {
      EXPECT_NEAR(model.constraints[static_cast<size_t>(i)].normal_W.norm(), 1, 1e-6);
      EXPECT_GT(model.constraints[static_cast<size_t>(i)].stiffness_n_per_m, 0);
      stiffness += model.constraints[static_cast<size_t>(i)].stiffness_n_per_m;
    }
    EXPECT_GT(stiffness, 1);
    // The model was built to push, where it was built, as the solver did; friction begins from a fresh memory there.
    FrictionState friction;
    const ContactForce there = EvaluateLocalModel(model, model.pose_at_build, {}, friction);
    const Vector3d normal = tool.force_n.normalized();
    EXPECT_NEAR(there.force_n.dot(normal), tool.force_n.norm(), 0.05 * tool.force_n.norm()) << there.force_n.transpose();
  }
}

TEST_F(WorldTest, ObstaclesAreFeltWithoutBeingTools) {
  SceneDescription scene;
  scene.bodies = {Box("free", {0, 0, 0.03}, false)};
  scene.solver.iterations = 30;
  scene.bodies[0].material.damping_s = 0.02;
  scene.obstacles.push_back({"floor", PlaneShape{{0, 0, 0.002}, {0, 0, 2}}});
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  std::shared_ptr<const Frame> frame;
  for (int i = 0; i < 300; ++i) {
    PALPATE_TEST_ASSIGN(frame, world->Step({}));
  }
  Vector3d force = Vector3d::Zero();
  for (const FrameContact& c : frame->contacts) {
    EXPECT_EQ(c.tool_index, kObstacleContact);
    force += c.force_n.cast<double>();
  }
  EXPECT_TRUE(frame->tools.empty());
  EXPECT_NEAR(force.z(), world->body_statistics()[0].mass_kg * 9.81, 0.01 * force.z());
  const std::vector<float>& x = frame->surface_positions_m[0];
  for (size_t i = 2; i < x.size(); i += 3) EXPECT_GT(x[i], 0.0015F);
}

TEST_F(WorldTest, MemoryIsGivenBack) {
  const size_t before = context()->allocated_bytes();
  for (int i = 0; i < 3; ++i) {
    PALPATE_TEST_ASSIGN(auto world, World::Create(context(), TwoBoxes()));
    world->SetVolumeWanted(i % 2 == 0);
    for (int k = 0; k < 3; ++k) PALPATE_ASSERT_OK(world->Step(Idle(*world)).status());
    EXPECT_GT(context()->allocated_bytes(), before);
    EXPECT_LE(world->device_bytes(), context()->allocated_bytes() - before);
  }
  EXPECT_EQ(context()->allocated_bytes(), before);
}

}  // namespace
}  // namespace palpate::sim::world_test
