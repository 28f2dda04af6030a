// Instruments at work in a running world: jaws that hold, power that removes, clips, trocars.
#include <gmock/gmock.h>

#include <Eigen/Dense>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "sim/mesh/generators.h"
#include "sim/world/world.h"
#include "tests/sim/world/world_builders.h"
#include "tests/support/device_test.h"

namespace palpate::sim::instruments_test {
namespace {

using Eigen::Vector3d;
using test::BoxBody;
using test::HeldSide;
using test::Ridge;
using test::Step;
using test::ToolAt;
using ::testing::HasSubstr;

class WorldInstrumentsTest : public test::DeviceTest {
 protected:
  static ToolDescription Tool(const std::string& name, InstrumentKind kind, const Vector3d& tip_m, ToolDrive drive = ToolDrive::kCoupled) {
    ToolDescription tool = ToolAt(name, tip_m, drive);
    tool.radius_m = 0.003;
    tool.instrument.kind = kind;
    return tool;
  }
  static double Highest(const Frame& frame, size_t body) {
    double highest = -1;
    for (size_t i = 2; i < frame.surface_positions_m[body].size(); i += 3) {
      highest = std::max(highest, static_cast<double>(frame.surface_positions_m[body][i]));
    }
    return highest;
  }

  std::shared_ptr<const Frame> first_;
};

TEST_F(WorldInstrumentsTest, JawsPinchHoldPullAndLetGo) {
  for (const ToolDrive drive : {ToolDrive::kCoupled, ToolDrive::kDirect}) {
    SceneDescription scene;
    scene.bodies = {Ridge()};
    scene.bodies[0].material.young_modulus_pa = 10000;
    scene.contact.check_intersections = true;
    // Open jaws astride of the ridge: hinges 13 mm above its top, tips 7 mm below it.
    scene.tools = {Tool("forceps", InstrumentKind::kForceps, {0, 0, 0.003}, drive)};
    scene.tools[0].instrument.max_jaw_angle_rad = 1.2;
    scene.tools[0].instrument.max_grasp_force_n = 2;
    scene.tools[0].rest_pose.position_m.z() = 0.05;
    PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
    ToolCommand command;
    command.device_pose = scene.tools[0].rest_pose;
    command.jaw_angle_rad = 1.2;
    std::shared_ptr<const Frame> frame;
    for (int i = 0; i < 60; ++i) frame = Step(*world, {command});
    EXPECT_NEAR(frame->tools[0].jaw_angle_rad, 1.2, 1e-9);
    for (int i = 0; i < 80; ++i) {
      command.device_pose.position_m.z() -= 0.047 / 80;
      frame = Step(*world, {command});
    }
    EXPECT_EQ(frame->tools[0].grasped_vertices, 0U);
    EXPECT_FALSE(frame->tools[0].is_touching) << "astride";
    command.jaw_angle_rad = 0;
    for (int i = 0; i < 90; ++i) frame = Step(*world, {command});
    EXPECT_TRUE(frame->tools[0].is_grasping);
    EXPECT_TRUE(frame->tools[0].is_touching);
    EXPECT_GE(frame->tools[0].grasped_vertices, 4U);
    EXPECT_GT(frame->tools[0].jaw_angle_rad, 0.1) << "there is tissue between";
    const double before = Highest(*frame, 0);

    for (int i = 0; i < 100; ++i) {
      command.device_pose.position_m.z() += i < 60 ? 0.0001 : 0;
      frame = Step(*world, {command});
      EXPECT_EQ(frame->contact_statistics.intersection_count, 0U);
      EXPECT_LT(frame->tools[0].grasp_force_n, 2 * (1 + 1e-4));
    }
    EXPECT_TRUE(frame->tools[0].is_grasping);
    EXPECT_GT(Highest(*frame, 0), before + 0.003);
    EXPECT_LT(frame->tools[0].force_n.z(), -0.1) << "the tissue pulls back";
    EXPECT_LT(frame->local_models[0].force_n.z(), -0.1);
    EXPECT_GT(frame->local_models[0].constraint_count, 0U);

    command.jaw_angle_rad = 1.2;
    for (int i = 0; i < 150; ++i) frame = Step(*world, {command});
    EXPECT_EQ(frame->tools[0].grasped_vertices, 0U);
    EXPECT_FALSE(frame->tools[0].is_grasping);
    EXPECT_EQ(frame->tools[0].grasp_force_n, 0);
    EXPECT_NEAR(Highest(*frame, 0), 0.01, 0.001) << "the ridge stands as before";
  }
}

// A stone is picked up from the floor, turned over, carried and dropped: held as tissue is, and as far as the force of the jaws goes.
TEST_F(WorldInstrumentsTest, JawsPickUpARigidBody) {
  for (const ToolDrive drive : {ToolDrive::kCoupled, ToolDrive::kDirect}) {
    SceneDescription scene;
    BodyDescription stone = BoxBody("stone", {0, 0, 0.0085}, {2, 2, 2}, {0.006, 0.012, 0.016});
    stone.kind = BodyKind::kRigid;
    stone.self_collision = false;
    stone.material.density_kg_per_m3 = 4000;  // 4.6 g
    BodyDescription block = BoxBody("block", {0.1, 0, 0.0105}, {2, 2, 2}, {0.02, 0.02, 0.02});
    block.kind = BodyKind::kStatic;
    block.self_collision = false;
    scene.bodies = {stone, block};
    scene.obstacles = {{.name = "floor", .shape = PlaneShape{}}};
    scene.contact.friction = 0.4;
    scene.contact.check_intersections = true;
    scene.tools = {Tool("forceps", InstrumentKind::kForceps, {0, 0, 0.05}, drive)};
    scene.tools[0].instrument.max_jaw_angle_rad = 1.2;
    scene.tools[0].instrument.max_grasp_force_n = 4;
    PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
    ToolCommand command;
    command.device_pose = scene.tools[0].rest_pose;
    command.jaw_angle_rad = 1.2;
    std::shared_ptr<const Frame> frame;
    const auto run = [&](int steps, const Vector3d& way_m) {
      for (int i = 0; i < steps; ++i) {
        command.device_pose.position_m += way_m / steps;
        frame = Step(*world, {command});
        EXPECT_EQ(frame->contact_statistics.intersection_count, 0U);
        EXPECT_LT(frame->tools[0].grasp_force_n, 4 * (1 + 1e-4));
      }
    };
    run(60, {0, 0, 0});
    run(80, {0, 0, -0.04});
    command.jaw_angle_rad = 0;
    run(90, {0, 0, 0});
    ASSERT_TRUE(frame->tools[0].is_grasping);
    EXPECT_EQ(frame->tools[0].grasped_body, 0U);
    const double lay_m = Highest(*frame, 0);
    run(60, {0, 0, 0.06});
    run(30, {0, 0, 0});
    EXPECT_TRUE(frame->tools[0].is_grasping);
    EXPECT_NEAR(Highest(*frame, 0), lay_m + 0.06, 0.004);
    // Its weight hangs on the tool.
    const double weight_n = 4000 * 0.006 * 0.012 * 0.016 * 9.81;
    EXPECT_NEAR(frame->tools[0].force_n.z(), -weight_n, 0.1 * weight_n);
    command.jaw_angle_rad = 1.2;
    run(90, {0, 0, 0});
    EXPECT_FALSE(frame->tools[0].is_grasping);
    EXPECT_LT(Highest(*frame, 0), lay_m + 0.01) << "it has fallen";
    // What does not move is not held.
    command.device_pose.position_m.x() = 0.1;
    run(80, {0, 0, -0.06});
    command.jaw_angle_rad = 0;
    run(90, {0, 0, 0});
    EXPECT_FALSE(frame->tools[0].is_grasping);
  }
}

TEST_F(WorldInstrumentsTest, GraspsByRequestSlipAtTheirForce) {
  SceneDescription scene;
  scene.bodies = {BoxBody("block", {0, 0, 0}, {6, 6, 4}, {0.05, 0.05, 0.03}, HeldSide::kLowZ)};
  scene.bodies[0].material.young_modulus_pa = 20000;
  scene.tools = {Tool("forceps", InstrumentKind::kForceps, {0, 0, 0.02}), Tool("probe", InstrumentKind::kProbe, {0, 0, 0.2})};
  scene.tools[0].instrument.max_grasp_force_n = 1;
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  const auto refusal = [&](const Edit& edit) { return std::string(world->Apply(std::vector<Edit>{edit}).status().message()); };
  EXPECT_THAT(refusal({.what = GraspEdit{.tool = 2}}), HasSubstr("edits[0]: tool 2 is outside [0, 2)"));
  EXPECT_THAT(refusal({.what = GraspEdit{.tool = 1}}), HasSubstr("tool probe has no jaws"));
  EXPECT_THAT(refusal({.what = GraspEdit{.tool = 0, .radius_m = -1}}), HasSubstr("radius_m -1"));
  EXPECT_THAT(refusal({.what = ReleaseEdit{.tool = 1}}), HasSubstr("tool probe has no jaws"));

  PALPATE_TEST_ASSIGN(auto outcomes, world->Apply(std::vector<Edit>{{.what = GraspEdit{.tool = 0, .radius_m = 0.012}}}));
  ASSERT_EQ(outcomes.size(), 1U);
  EXPECT_GE(outcomes[0].grasped_vertices, 4U);
  std::vector<ToolCommand> commands(2);
  for (size_t t = 0; t < 2; ++t) commands[t].device_pose = scene.tools[t].rest_pose;
  std::shared_ptr<const Frame> frame;
  double most = 0;
  for (int i = 0; i < 120 && (i == 0 || frame->tools[0].is_grasping); ++i) {
    commands[0].device_pose.position_m.z() += 0.0004;
    frame = Step(*world, commands);
    most = std::max(most, frame->tools[0].grasp_force_n);
    EXPECT_LE(frame->tools[0].grasp_force_n, 1 + 1e-4);
  }
  EXPECT_GT(most, 0.8);
  EXPECT_FALSE(frame->tools[0].is_grasping) << "all slipped out of the jaws";

  for (size_t t = 0; t < 2; ++t) commands[t].device_pose = scene.tools[t].rest_pose;
  for (int i = 0; i < 100; ++i) frame = Step(*world, commands);
  PALPATE_TEST_ASSIGN(outcomes, world->Apply(std::vector<Edit>{{.what = GraspEdit{.tool = 0, .radius_m = 0.012}}}));
  EXPECT_GE(outcomes[0].grasped_vertices, 4U);
  EXPECT_TRUE(Step(*world, commands)->tools[0].is_grasping);
  PALPATE_EXPECT_OK(world->Apply(std::vector<Edit>{{.what = ReleaseEdit{.tool = 0}}}).status());
  EXPECT_FALSE(Step(*world, commands)->tools[0].is_grasping);
}

TEST_F(WorldInstrumentsTest, GraspsReachAsFarAsTheMeshIsCoarseAndTheJawsCloseOnWhatTheyHold) {
  SceneDescription scene;
  scene.gravity_m_per_s2.setZero();
  scene.bodies = {BoxBody("block", {0, 0, 0}, {6, 6, 4}, {0.05, 0.05, 0.03}, HeldSide::kLowZ)};
  // In the middle between vertices that are 10 mm apart, 2.5 mm above the surface: closed jaws do not touch it.
  scene.tools = {Tool("forceps", InstrumentKind::kForceps, {0, 0, 0.0175})};
  scene.tools[0].instrument.max_jaw_angle_rad = 1;
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  ToolCommand command;
  command.device_pose = scene.tools[0].rest_pose;
  command.jaw_angle_rad = 1;
  std::shared_ptr<const Frame> frame;
  for (int i = 0; i < 60; ++i) frame = Step(*world, {command});
  ASSERT_NEAR(frame->tools[0].jaw_angle_rad, 1, 1e-9);
  for (const double radius_m : {0.0, 0.003}) {
    SCOPED_TRACE(radius_m);
    PALPATE_TEST_ASSIGN(auto outcomes, world->Apply(std::vector<Edit>{{.what = GraspEdit{.tool = 0, .radius_m = radius_m}}}));
    EXPECT_GE(outcomes[0].grasped_vertices, 3U);
    EXPECT_EQ(outcomes[0].note, "");
    EXPECT_NEAR(outcomes[0].tissue_distance_m, 0.0025, 1e-4);
    if (radius_m > 0) {
      EXPECT_EQ(outcomes[0].grasp_reach_m, radius_m);
    } else {
      EXPECT_GT(outcomes[0].grasp_reach_m, 0.009);
    }
    // The jaws come down on what they hold and leave it where it is.
    for (int i = 0; i < 60; ++i) frame = Step(*world, {command});
    EXPECT_TRUE(frame->tools[0].is_grasping);
    EXPECT_EQ(frame->tools[0].grasped_body, 0U);
    EXPECT_LT((frame->tools[0].grasp_center_m - Vector3d(0, 0, 0.015)).norm(), 0.005);
    EXPECT_LT(frame->tools[0].jaw_angle_rad, 0.7);
    EXPECT_GT(frame->tools[0].jaw_angle_rad, 0.1);
    EXPECT_LT(frame->tools[0].grasp_force_n, 0.05);
    PALPATE_EXPECT_OK(world->Apply(std::vector<Edit>{{.what = ReleaseEdit{.tool = 0}}}).status());
    for (int i = 0; i < 60; ++i) frame = Step(*world, {command});
    EXPECT_FALSE(frame->tools[0].is_grasping);
    EXPECT_EQ(frame->tools[0].grasp_center_m, Vector3d::Zero());
    EXPECT_NEAR(frame->tools[0].jaw_angle_rad, 1, 1e-9) << "let go, they are where the hand has them";
  }
  // Out of reach: the answer says how far it is and what to do.
  command.device_pose.position_m.z() = 0.04;
  for (int i = 0; i < 60; ++i) frame = Step(*world, {command});
  PALPATE_TEST_ASSIGN(auto outcomes, world->Apply(std::vector<Edit>{{.what = GraspEdit{.tool = 0, .radius_m = 0.0014}}}));
  EXPECT_EQ(outcomes[0].grasped_vertices, 0U);
  EXPECT_NEAR(outcomes[0].tissue_distance_m, 0.025, 1e-4);
  EXPECT_THAT(outcomes[0].note,
              HasSubstr("forceps holds nothing: the nearest surface, of block, is 25.0 mm from its tip and its reach is 1.4 mm"));
  EXPECT_THAT(outcomes[0].note, HasSubstr("radius_m of at least 0.025"));
}

// As a hand does that has just been given the instrument: its jaws are opening while the request comes.
TEST_F(WorldInstrumentsTest, JawsThatAreStillOpeningKeepWhatARequestGaveThem) {
  SceneDescription scene;
  scene.gravity_m_per_s2.setZero();
  scene.bodies = {BoxBody("block", {0, 0, 0}, {6, 6, 4}, {0.05, 0.05, 0.03}, HeldSide::kLowZ)};
  scene.tools = {Tool("forceps", InstrumentKind::kForceps, {0, 0, 0.0175})};
  scene.tools[0].instrument.max_jaw_angle_rad = 1;
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  ToolCommand command;
  command.device_pose = scene.tools[0].rest_pose;
  std::shared_ptr<const Frame> frame;
  for (int i = 0; i < 60; ++i) frame = Step(*world, {command});
  ASSERT_LT(frame->tools[0].jaw_angle_rad, 1e-9);
  command.jaw_angle_rad = 1;
  for (int i = 0; i < 5; ++i) frame = Step(*world, {command});
  ASSERT_GT(frame->tools[0].jaw_angle_rad, 0.05);
  ASSERT_LT(frame->tools[0].jaw_angle_rad, 0.5);
  PALPATE_TEST_ASSIGN(const auto outcomes, world->Apply(std::vector<Edit>{{.what = GraspEdit{.tool = 0}}}));
  EXPECT_GE(outcomes[0].grasped_vertices, 3U);
  for (int i = 0; i < 60; ++i) frame = Step(*world, {command});
  EXPECT_TRUE(frame->tools[0].is_grasping);
  EXPECT_LT(frame->tools[0].jaw_angle_rad, 0.7);
  // Closed by the hand and opened again, they let go.
  command.jaw_angle_rad = 0;
  for (int i = 0; i < 30; ++i) frame = Step(*world, {command});
  EXPECT_TRUE(frame->tools[0].is_grasping);
  command.jaw_angle_rad = 1;
  for (int i = 0; i < 60; ++i) frame = Step(*world, {command});
  EXPECT_FALSE(frame->tools[0].is_grasping);
  EXPECT_NEAR(frame->tools[0].jaw_angle_rad, 1, 1e-9);
}

TEST_F(WorldInstrumentsTest, PowerRemovesMassAtItsRate) {
  // Steps and elements of different size, the same power: mass leaves at P / e. Half the power on the same way takes twice as long for it.
  struct Run {
    double dt_s;
    uint32_t cells;
    double power_w, time_s;
  };
  const Run runs[] = {{1.0 / 60, 11, 60, 1}, {1.0 / 120, 14, 60, 1}, {1.0 / 60, 11, 20, 2}};
  std::vector<double> rates_kg_per_s;
  for (const Run& run : runs) {
    SceneDescription scene;
    scene.dt_s = run.dt_s;
    scene.bodies = {BoxBody("block", {0, 0, 0}, {run.cells, run.cells, run.cells / 2 + 2}, {0.04, 0.04, 0.025}, HeldSide::kLowZ)};
    scene.bodies[0].ablation.energy_j_per_kg = 5e3;
    scene.contact.check_intersections = true;
    scene.tools = {Tool("cavitron", InstrumentKind::kCavitron, {0, 0, 0.018}, ToolDrive::kDirect)};
    scene.tools[0].instrument.reach_m = 0.005;
    scene.tools[0].instrument.max_power_w = 40;
    PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
    const double whole_kg = world->body_statistics()[0].mass_kg;
    ToolCommand command;
    command.device_pose = scene.tools[0].rest_pose;
    std::shared_ptr<const Frame> frame = Step(*world, {command});
    EXPECT_FALSE(frame->tools[0].is_cutting) << "the pedal is up";
    command.pedal = true;
    command.power_w = run.power_w;  // 60: more than it has
    command.duty = 0.5;
    int heating = 0;
    for (int i = 0; i < run.time_s / run.dt_s; ++i) {
      command.device_pose.position_m.z() = std::max(0.006, 0.018 - 0.012 * i * run.dt_s / run.time_s);
      frame = Step(*world, {command});
      heating += frame->tools[0].is_cutting ? 1 : 0;
      ASSERT_EQ(frame->contact_statistics.intersection_count, 0U);
    }
    EXPECT_GT(heating * run.dt_s, 0.7 * run.time_s) << "the tip stays at the tissue";
    double left_kg = 0;
    for (const BodyStatistics& body : world->body_statistics()) left_kg += body.mass_kg;
    const double removed_kg = frame->tools[0].removed_mass_kg;
    EXPECT_NEAR(whole_kg - left_kg, removed_kg, 1e-9);
    // 40 W at half duty against 5 kJ/kg: 4 g/s. What is heated but not gone yet, and what goes with its neighbours, is the difference.
    const double heating_s = heating * run.dt_s;
    const double expected_kg = std::min(run.power_w, 40.0) * 0.5 * heating_s / 5e3;
    EXPECT_NEAR(removed_kg, expected_kg, 0.12 * expected_kg) << run.cells;
    rates_kg_per_s.push_back(removed_kg / heating_s);
    command.pedal = false;
    frame = Step(*world, {command});
    EXPECT_EQ(frame->tools[0].removed_mass_kg, removed_kg);
    PALPATE_TEST_ASSIGN(frame, world->Reset());
    EXPECT_EQ(frame->tools[0].removed_mass_kg, 0);
  }
  EXPECT_NEAR(rates_kg_per_s[2] / rates_kg_per_s[0], 0.5, 0.015) << "half the power";
}

TEST_F(WorldInstrumentsTest, BladesCutWhereTheyMove) {
  // The edge, longer than the block is wide, goes down into it: a cut as deep as the way, whatever the steps.
  double area_m2[2] = {0, 0};
  for (const size_t run : {0, 1}) {
    SceneDescription scene;
    scene.dt_s = run == 0 ? 1.0 / 60 : 1.0 / 120;
    scene.bodies = {BoxBody("block", {0, 0, 0}, {6, 6, 6}, {0.04, 0.04, 0.03}, HeldSide::kLowZ)};
    scene.contact.check_intersections = true;
    scene.tools = {Tool("scalpel", InstrumentKind::kScalpel, {-0.025, 0.003, 0.02}, ToolDrive::kDirect)};
    scene.tools[0].instrument.blade_length_m = 0.05;
    PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
    ToolCommand command;
    command.device_pose = scene.tools[0].rest_pose;
    std::shared_ptr<const Frame> frame;
    int cutting = 0;
    const int steps = static_cast<int>(std::lround(0.3 / scene.dt_s));
    for (int i = 0; i < steps; ++i) {
      command.device_pose.position_m.z() = std::max(0.02 - 0.1 * (i + 1) * scene.dt_s, 0.0);
      frame = Step(*world, {command});
      cutting += frame->tools[0].is_cutting ? 1 : 0;
      EXPECT_FALSE(frame->tools[0].is_touching) << "the blade does not push what it cuts";
      ASSERT_EQ(frame->contact_statistics.intersection_count, 0U);
    }
    EXPECT_GE(cutting, 5);
    EXPECT_NEAR(frame->tools[0].removed_mass_kg, 0, 1e-12);
    const BodyArrays& arrays = *frame->topology->bodies[0];
    ASSERT_EQ(frame->topology->bodies.size(), 1U) << "the foot joins both sides";
    const std::vector<float>& x = frame->surface_positions_m[0];
    for (size_t t = 0; t < arrays.surface_triangles.size(); ++t) {
      if (arrays.triangle_zones[t] == 0) continue;
      Vector3d corners[3];
      for (size_t c = 0; c < 3; ++c) {
        const float* const at = &x[size_t{3} * ToNumber(arrays.surface_triangles[t][c])];
        corners[c] = Vector3d(at[0], at[1], at[2]);
      }
      area_m2[run] += (corners[1] - corners[0]).cross(corners[2] - corners[0]).norm() / 2;
    }
  }
  // Two lips of 40 x 15 mm. The front, as deep as an element, opens when the blade has gone on.
  EXPECT_GT(area_m2[0], 0.6 * 2 * 0.04 * 0.015);
  EXPECT_LT(area_m2[0], 1.3 * 2 * 0.04 * 0.015);
  EXPECT_NEAR(area_m2[0], area_m2[1], 0.05 * area_m2[1]);
}

TEST_F(WorldInstrumentsTest, BladesThatNobodyLeadsCutNothing) {
  // The blade goes down beside the block, is left alone, and is found again on the other side: nothing in between was cut by a hand.
  for (const bool is_lost : {false, true}) {
    SceneDescription scene;
    scene.bodies = {BoxBody("block", {0, 0, 0}, {6, 6, 6}, {0.04, 0.04, 0.03}, HeldSide::kLowZ)};
    scene.tools = {Tool("scalpel", InstrumentKind::kScalpel, {-0.005, 0.03, 0.005}, ToolDrive::kDirect)};
    scene.tools[0].instrument.blade_length_m = 0.02;
    PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
    ToolCommand command;
    command.device_pose = scene.tools[0].rest_pose;
    std::shared_ptr<const Frame> frame;
    for (int i = 0; i < 3; ++i) frame = Step(*world, {command});
    command.is_hold_expired = is_lost;
    frame = Step(*world, {command});
    EXPECT_EQ(frame->tools[0].is_expired, is_lost);
    command.is_hold_expired = false;
    command.device_pose.position_m.y() = -0.03;
    for (int i = 0; i < 4; ++i) frame = Step(*world, {command});
    EXPECT_FALSE(frame->tools[0].is_expired);
    EXPECT_EQ(frame->topology_version > 1, !is_lost);
    // It works again once it is led: back through the tissue.
    for (int i = 0; i < 30; ++i) {
      command.device_pose.position_m.y() += 0.002;
      frame = Step(*world, {command});
    }
    EXPECT_GT(frame->topology_version, 1U);
  }
}

TEST_F(WorldInstrumentsTest, WithoutAStationThePedalIsUp) {
  SceneDescription scene;
  scene.bodies = {BoxBody("block", {0, 0, 0}, {6, 6, 5}, {0.04, 0.04, 0.025}, HeldSide::kLowZ)};
  scene.bodies[0].ablation.energy_j_per_kg = 5e4;
  scene.tools = {Tool("cavitron", InstrumentKind::kCavitron, {0, 0, 0.0125}, ToolDrive::kDirect)};
  scene.tools[0].instrument.reach_m = 0.005;
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  ToolCommand command;
  command.device_pose = scene.tools[0].rest_pose;
  command.pedal = true;
  EXPECT_TRUE(Step(*world, {command})->tools[0].is_cutting);
  PALPATE_TEST_ASSIGN(auto frame, world->Step(std::vector<const ToolCommand*>{nullptr}));
  EXPECT_FALSE(frame->tools[0].is_cutting);
  EXPECT_FALSE(frame->tools[0].is_expired) << "there is no command";
}

TEST_F(WorldInstrumentsTest, JawsWithoutAHandStayAsTheyAre) {
  SceneDescription scene;
  scene.bodies = {Ridge()};
  scene.tools = {Tool("forceps", InstrumentKind::kForceps, {0, 0, 0.05})};
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  ToolCommand command;
  command.device_pose = scene.tools[0].rest_pose;
  command.jaw_angle_rad = 0.8;
  for (int i = 0; i < 60; ++i) Step(*world, {command});
  command.jaw_angle_rad = 0;
  for (int i = 0; i < 5; ++i) Step(*world, {command});
  const double angle_rad = world->CurrentFrame()->tools[0].jaw_angle_rad;
  ASSERT_GT(angle_rad, 0.1);
  ASSERT_LT(angle_rad, 0.75);
  command.is_hold_expired = true;
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Step(*world, {command})->tools[0].jaw_angle_rad, angle_rad);
  command.is_hold_expired = false;
  for (int i = 0; i < 60; ++i) Step(*world, {command});
  EXPECT_EQ(world->CurrentFrame()->tools[0].jaw_angle_rad, 0);
}

TEST_F(WorldInstrumentsTest, ClipsHoldTogetherWhatWasBetweenTheJaws) {
  // Two blocks side by side; one is drawn away by its foot.
  for (const bool clipped : {false, true}) {
    SceneDescription scene;
    scene.bodies = {BoxBody("left", {-0.012, 0, 0}, {4, 4, 4}, {0.02, 0.02, 0.02}, HeldSide::kLowZ),
                    BoxBody("right", {0.012, 0, 0}, {4, 4, 4}, {0.02, 0.02, 0.02}, HeldSide::kLowZ)};
    for (BodyDescription& body : scene.bodies) body.material.young_modulus_pa = 3000;
    scene.bodies[1].driven_regions = {
        {.vertices = scene.bodies[1].fixed_vertices, .velocity_m_per_s = {0.01, 0, 0}, .start_s = 0.2, .duration_s = 0.6}};
    scene.tools = {Tool("applier", InstrumentKind::kClipApplier, {0, 0, 0.016})};
    PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
    ToolCommand command;
    command.device_pose = scene.tools[0].rest_pose;
    PALPATE_TEST_ASSIGN(const auto outcomes, world->Apply(std::vector<Edit>{{.what = GraspEdit{.tool = 0, .radius_m = 0.01}}}));
    ASSERT_GE(outcomes[0].grasped_vertices, 4U);
    std::shared_ptr<const Frame> frame;
    const auto gap = [&] {
      // Between the upper edges that face each other.
      double left = -1;
      double right = 1;
      for (const size_t b : {0, 1}) {
        const std::vector<float>& x = frame->surface_positions_m[b];
        const std::vector<float>& rest = first_->surface_positions_m[b];
        for (size_t i = 0; i < x.size(); i += 3) {
          if (std::abs(rest[i]) > 0.0021 || rest[i + 2] < 0.009 || std::abs(rest[i + 1]) > 0.005) continue;
          (b == 0 ? left : right) = b == 0 ? std::max(left, static_cast<double>(x[i])) : std::min(right, static_cast<double>(x[i]));
        }
      }
      return right - left;
    };
    first_ = world->CurrentFrame();
    for (int i = 0; i < 150; ++i) {
      command.pedal = clipped && i >= 5 && i < 10;
      command.jaw_angle_rad = i < 12 ? 0 : 1;  // lets go
      frame = Step(*world, {command});
      if (i == 4) {
        EXPECT_EQ(frame->tools[0].grasped_vertices, outcomes[0].grasped_vertices);
      }
    }
    EXPECT_EQ(frame->tools[0].grasped_vertices, 0U);
    ASSERT_EQ(frame->clips.size(), clipped ? 1U : 0U);
    if (clipped) {
      EXPECT_LT(gap(), 0.0055);
      const FrameClip& clip = frame->clips[0];
      EXPECT_EQ(clip.length_m, scene.tools[0].instrument.jaw_length_m);
      EXPECT_NEAR(clip.position_m.z(), 0.01, 0.004) << "at the upper edges of both blocks";
      EXPECT_GT(clip.position_m.x(), 0.0005) << "drawn along with the right one";
      EXPECT_LT(clip.position_m.x(), 0.005);
      EXPECT_LT(Eigen::AngleAxisd(clip.rotation).angle(), 1.2) << "turned a little";
      PALPATE_TEST_ASSIGN(const auto reset, world->Reset());
      EXPECT_TRUE(reset->clips.empty());
    } else {
      EXPECT_GT(gap(), 0.009);
    }
  }
}

TEST_F(WorldInstrumentsTest, ShaftsPassThroughTheirTrocars) {
  SceneDescription scene;
  scene.bodies = {BoxBody("block", {0, 0, 0}, {6, 6, 4}, {0.05, 0.05, 0.03}, HeldSide::kLowZ)};
  scene.tools = {Tool("probe", InstrumentKind::kProbe, {0, 0, 0.03})};
  scene.tools[0].length_m = 0.2;
  scene.tools[0].trocar = TrocarDescription{.pivot_m = {0, 0, 0.1}, .max_insertion_m = 0.09, .max_tilt_rad = 0.5};
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  ToolCommand command;
  std::shared_ptr<const Frame> frame;
  double pressed = 0;
  for (int i = 0; i < 150; ++i) {
    // Into the block and across it; the station knows nothing of the wall.
    command.device_pose.position_m = {0.02 * std::sin(0.05 * i), 0, 0.03 - 0.0002 * i};
    frame = Step(*world, {command});
    const RigidPose& pose = frame->tools[0].pose;
    const Vector3d shaft = pose.rotation * Vector3d::UnitZ();
    EXPECT_LT((pose.position_m - Vector3d(0, 0, 0.1)).cross(shaft).norm(), 0.0015) << "step " << i;
    EXPECT_LT((pose.position_m - Vector3d(0, 0, 0.1)).norm(), 0.095);
    pressed = std::max(pressed, frame->tools[0].force_n.norm());
  }
  EXPECT_GT(pressed, 0.3);
}

TEST_F(WorldInstrumentsTest, SameCommandsGiveTheSameBits) {
  SceneDescription scene;
  scene.bodies = {Ridge()};
  scene.bodies[0].ablation.energy_j_per_kg = 1e4;
  scene.tools = {Tool("forceps", InstrumentKind::kForceps, {0, 0.012, 0.003}),
                 Tool("hook", InstrumentKind::kCauteryHook, {0, -0.012, 0.0145})};
  scene.tools[0].instrument.max_jaw_angle_rad = 1.2;
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  std::vector<uint64_t> hashes[2];
  double removed_kg[2] = {0, 0};
  for (std::vector<uint64_t>& run : hashes) {
    PALPATE_EXPECT_OK(world->Reset().status());
    std::vector<ToolCommand> commands(2);
    for (size_t t = 0; t < 2; ++t) commands[t].device_pose = scene.tools[t].rest_pose;
    for (int i = 0; i < 60; ++i) {
      commands[0].jaw_angle_rad = i < 20 ? 1.2 : 0;
      commands[0].device_pose.position_m.z() = i < 20 ? 0.05 : 0.003;
      commands[1].pedal = i > 10;
      const auto frame = Step(*world, commands);
      run.push_back(frame->state_hash);
      removed_kg[&run - hashes] = frame->tools[1].removed_mass_kg;
    }
  }
  EXPECT_EQ(hashes[0], hashes[1]);
  EXPECT_GT(removed_kg[0], 0);
  EXPECT_EQ(removed_kg[0], removed_kg[1]);
}

TEST_F(WorldInstrumentsTest, RefusesBadInstrumentsAndCommands) {
  SceneDescription scene;
  scene.bodies = {Ridge()};
  scene.tools = {Tool("forceps", InstrumentKind::kForceps, {0, 0, 0.05})};
  scene.tools[0].length_m = 0.015;
  EXPECT_THAT(std::string(World::Create(context(), scene).status().message()), HasSubstr("tools[0] (forceps): length_m 0.015"));
  scene.tools[0].length_m = 0.1;
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  for (int kind = 0; kind < 3; ++kind) {
    ToolCommand command;
    (kind == 0 ? command.jaw_angle_rad : kind == 1 ? command.power_w : command.duty) = std::numeric_limits<double>::quiet_NaN();
    EXPECT_EQ(world->Step(std::vector<const ToolCommand*>{&command}).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(WorldInstrumentsTest, PowerRefinesCoarseTissueBeforeItTakesIt) {
  constexpr double kFinest_m = 0.006;
  int removals[2] = {0, 0};  // steps that took something
  for (const size_t run : {0, 1}) {
    SceneDescription scene;
    scene.bodies = {BoxBody("block", {0, 0, 0}, {4, 4, 3}, {0.04, 0.04, 0.025}, HeldSide::kLowZ)};
    scene.bodies[0].ablation.energy_j_per_kg = 5e3;
    scene.contact.check_intersections = true;
    scene.tools = {Tool("hook", InstrumentKind::kCauteryHook, {0, 0, 0.017}, ToolDrive::kDirect)};
    scene.tools[0].instrument.reach_m = 0.004;
    scene.tools[0].instrument.max_power_w = 20;
    scene.tools[0].instrument.refine_to_m = run == 0 ? 0 : kFinest_m;
    PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
    const double whole_kg = world->body_statistics()[0].mass_kg;
    const uint32_t tets = world->body_statistics()[0].tet_count;
    ToolCommand command;
    command.device_pose = scene.tools[0].rest_pose;
    command.pedal = true;
    double before_kg = 0;
    uint32_t most_tets = tets;
    for (int i = 0; i < 120; ++i) {
      command.device_pose.position_m.z() = std::max(0.008, 0.017 - 0.0001 * i);
      const std::shared_ptr<const Frame> frame = Step(*world, {command});
      ASSERT_EQ(frame->contact_statistics.intersection_count, 0U);
      removals[run] += frame->tools[0].removed_mass_kg > before_kg ? 1 : 0;
      before_kg = frame->tools[0].removed_mass_kg;
      most_tets = std::max(most_tets, world->body_statistics()[0].tet_count);
    }
    EXPECT_GT(before_kg, 0.002 * whole_kg) << run;
    double left_kg = 0;
    for (const BodyStatistics& body : world->body_statistics()) left_kg += body.mass_kg;
    EXPECT_NEAR(whole_kg - left_kg, before_kg, 1e-9);
    if (run == 0) {
      EXPECT_EQ(most_tets, tets);
    } else {
      EXPECT_GT(most_tets, 2 * tets);
    }
  }
  EXPECT_GT(removals[0], 0);
  EXPECT_GT(removals[1], 2 * removals[0]) << "smaller parts go more evenly";
}

// A grasp takes what edits before it in the same request have left, pieces that they cut off included.
TEST_F(WorldInstrumentsTest, GraspSeesTheEditsBeforeIt) {
  SceneDescription scene;
  scene.bodies = {BoxBody("bar", {0, 0, 0.05}, {13, 4, 4}, {0.12, 0.03, 0.03}, HeldSide::kLowX)};
  scene.tools = {Tool("forceps", InstrumentKind::kForceps, {0.03, 0, 0.09})};
  std::vector<Edit> edits;
  for (const double z : {0.05, 0.035, 0.065}) {
    edits.push_back({.body = 0, .what = CarveEdit{CapsuleRegion{{0.02, -0.05, z}, {0.02, 0.05, z}, 0.011}}});
  }
  const Edit grasp = {.what = GraspEdit{.tool = 0, .radius_m = 0.04}};
  ToolCommand command;
  command.device_pose = scene.tools[0].rest_pose;
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  PALPATE_TEST_ASSIGN(const auto whole, world->Apply(std::vector<Edit>{grasp}));
  PALPATE_EXPECT_OK(world->Reset().status());
  // One after the other, then all at once.
  PALPATE_EXPECT_OK(world->Apply(edits).status());
  ASSERT_GE(world->body_statistics().size(), 2U);
  PALPATE_TEST_ASSIGN(const auto expected, world->Apply(std::vector<Edit>{grasp}));
  EXPECT_GT(expected[0].grasped_vertices, 4U);
  EXPECT_NE(expected[0].grasped_vertices, whole[0].grasped_vertices);
  PALPATE_EXPECT_OK(world->Reset().status());
  edits.push_back(grasp);
  PALPATE_TEST_ASSIGN(const auto outcomes, world->Apply(edits));
  EXPECT_EQ(outcomes.back().grasped_vertices, expected[0].grasped_vertices);
  EXPECT_EQ(Step(*world, {command})->tools[0].grasped_vertices, expected[0].grasped_vertices);
}

TEST_F(WorldInstrumentsTest, WhatIsHeldMayBeCarvedAway) {
  SceneDescription scene;
  scene.bodies = {BoxBody("block", {0, 0, 0}, {6, 6, 4}, {0.05, 0.05, 0.03}, HeldSide::kLowZ)};
  scene.tools = {Tool("forceps", InstrumentKind::kForceps, {0, 0, 0.02})};
  // All of the block, or what is held: carving and refining beside it give the places of its vertices to new ones, which nobody holds.
  for (const bool is_all : {true, false}) {
    PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
    PALPATE_TEST_ASSIGN(const auto grasped, world->Apply(std::vector<Edit>{{.what = GraspEdit{.tool = 0, .radius_m = 0.012}}}));
    ASSERT_GE(grasped[0].grasped_vertices, 4U);
    ToolCommand command;
    command.device_pose = scene.tools[0].rest_pose;
    ASSERT_TRUE(Step(*world, {command})->tools[0].is_grasping);
    // It pulls when it goes.
    for (int i = 0; i < 8; ++i) {
      command.device_pose.position_m.z() += 0.0005;
      Step(*world, {command});
    }
    ASSERT_GT(world->CurrentFrame()->tools[0].grasp_force_n, 0.01);
    std::vector<Edit> edits = {{.body = 0, .what = CarveEdit{BallRegion{{0, 0, 0.02}, is_all ? 1 : 0.022}}}};
    if (!is_all) edits.push_back({.body = 0, .what = RefineEdit{BallRegion{{0.02, 0.02, 0}, 0.015}, 0.006, 0}});
    PALPATE_TEST_ASSIGN(const auto outcomes, world->Apply(edits));
    ASSERT_GE(outcomes[0].removed_vertices.size(), grasped[0].grasped_vertices);
    if (!is_all) {
      ASSERT_GT(outcomes[1].added_vertices.size(), outcomes[0].removed_vertices.size());
    }
    for (int i = 0; i < 20; ++i) {
      command.device_pose.position_m.z() += 0.0005;
      const std::shared_ptr<const Frame> frame = Step(*world, {command});
      EXPECT_FALSE(frame->tools[0].is_grasping) << i;
      EXPECT_EQ(frame->tools[0].grasped_vertices, 0U);
      EXPECT_EQ(frame->tools[0].grasp_force_n, 0);
    }
  }
}

}  // namespace
}  // namespace palpate::sim::instruments_test
