// Probes on frames made by hand, whose measures are known exactly, and on a world.
#include "sim/probe/probe_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/sim/world/world_builders.h"
#include "tests/support/device_test.h"

namespace palpate::sim::probe_set_test {
namespace {

using Eigen::Vector3d;
using Eigen::Vector3f;
using ::testing::HasSubstr;

/// Two bodies and a piece of the first, a tool and two markers of one name.
SceneDescription TwoBodies() {
  SceneDescription scene;
  scene.bodies.resize(2);
  scene.bodies[0].name = "liver";
  scene.bodies[1].name = "left lobe";
  for (BodyDescription& body : scene.bodies) body.markers.push_back({.name = "tumor"});
  scene.bodies[1].markers.push_back({.name = "vessel"});
  scene.tools = {test::ToolAt("probe", {0, 0, 1}), test::ToolAt("hook", {0, 0, 2})};
  return scene;
}

/// The corner of a cube of side `size_m` at `low_m`: a tet of volume size^3 / 6.
std::shared_ptr<BodyArrays> Corner(const std::string& name, const std::string& parent) {
  auto body = std::make_shared<BodyArrays>();
  body->name = name;
  body->parent = parent;
  // A hole in the slots, as edits leave them.
  for (const uint32_t vertex : {0U, 1U, kNoSlot, 2U, 3U}) body->surface_vertices.push_back(vertex);
  const auto s = [](uint32_t slot) { return SurfaceSlot{slot}; };
  body->surface_triangles = {{s(0), s(3), s(1)}, kFreeTriangle, {s(0), s(1), s(4)}, {s(0), s(4), s(3)}, {s(1), s(3), s(4)}};
  body->tets = {kFreeTet, {0, 1, 2, 3}};
  return body;
}

std::vector<float> CornerPositions(float size_m, const Vector3f& low_m) {
  std::vector<float> positions;
  for (const Vector3f& unit : {Vector3f(0, 0, 0), Vector3f(1, 0, 0), Vector3f(9, 9, 9), Vector3f(0, 1, 0), Vector3f(0, 0, 1)}) {
    for (int axis = 0; axis < 3; ++axis) positions.push_back(low_m[axis] + size_m * unit[axis]);
  }
  return positions;
}

Frame HandMadeFrame() {
  Frame frame;
  frame.step = 12;
  frame.sim_time_s = 0.1;
  frame.state_hash = 0xfedcba9876543210ULL;
  auto topology = std::make_shared<WorldTopology>();
  topology->bodies = {Corner("liver", ""), Corner("left lobe", ""), Corner("liver/1", "liver")};
  frame.topology = topology;
  frame.surface_positions_m = {CornerPositions(1, {0, 0, 0}), CornerPositions(2, {5, 0, 0}), CornerPositions(0.5, {0, 0, 3})};
  frame.tools.resize(2);
  frame.tools[0].force_n = {3, 0, -4};
  frame.tools[0].is_touching = true;
  frame.tools[1].pose.position_m = {0.1, 0.2, 0.3};
  frame.markers.resize(3);
  frame.markers[2].position_m = {7, 8, 9};
  FrameContact contact;
  contact.force_n = {1, 0, 0};
  contact.normal = {1, 0, 0};
  contact.separation_m = -0.001F;
  contact.tool_index = 0;
  frame.contacts = {contact, contact, contact};
  frame.contacts[1].body_index = 2;  // the piece
  frame.contacts[1].force_n = {0, 2, 0};
  frame.contacts[2].tool_index = kObstacleContact;
  frame.contacts[2].body_index = 1;
  frame.contacts[2].force_n = {0, 0, 4};
  FrameSurfaceContact touch;
  touch.body_a = 0;
  touch.body_b = 1;
  touch.force_n = {0, 0, 5};
  touch.distance_m = 0.002F;
  frame.surface_contacts = {touch};
  frame.kinetic_energy_j = 0.25;
  frame.step_ms = 4;
  return frame;
}

double ValueOf(const std::string& path, const Frame& frame, const SceneDescription& scene) {
  auto set = ProbeSet::Parse(std::span(&path, 1), scene);
  EXPECT_TRUE(set.ok()) << set.status();
  if (!set.ok()) return -1;
  EXPECT_EQ(set->columns().size(), 1U) << path;
  std::vector<double> out(set->columns().size());
  set->Evaluate(frame, out);
  return out.empty() ? -1 : out[0];
}

TEST(ProbeSetTest, MeasuresWhatAFrameHas) {
  const SceneDescription scene = TwoBodies();
  const Frame frame = HandMadeFrame();
  const auto value = [&](const std::string& path) { return ValueOf(path, frame, scene); };
  EXPECT_EQ(value("time"), 0.1);
  EXPECT_EQ(value("step"), 12);
  EXPECT_EQ(value("state_hash.high"), 0xfedcba98);
  EXPECT_EQ(value("state_hash.low"), 0x76543210);
  EXPECT_EQ(value("energy.kinetic"), 0.25);
  EXPECT_TRUE(std::isnan(value("energy.elastic")));
  EXPECT_EQ(value("body_count"), 3);
  EXPECT_EQ(value("tool.probe.force.norm"), 5);
  EXPECT_EQ(value("tool.probe.is_touching"), 1);
  EXPECT_EQ(value("tool.hook.position.y"), 0.2);
  EXPECT_EQ(value("tool.hook.rotation.w"), 1);
  EXPECT_TRUE(std::isnan(value("tool.hook.grasp_center.x")));
  EXPECT_EQ(value("marker.vessel.position.z"), 9);
  EXPECT_EQ(value("marker.\"left lobe/vessel\".position.z"), 9);
}

TEST(ProbeSetTest, MeasuresBodiesAndTheirPieces) {
  const SceneDescription scene = TwoBodies();
  const Frame frame = HandMadeFrame();
  const auto value = [&](const std::string& path) { return ValueOf(path, frame, scene); };
  EXPECT_NEAR(value("body.liver.volume"), 1.0 / 6, 1e-12);
  EXPECT_NEAR(value("body.\"left lobe\".volume"), 8.0 / 6, 1e-12);
  EXPECT_NEAR(value("body.\"left lobe\".centroid.x"), 5.5, 1e-12);
  EXPECT_NEAR(value("body.liver.surface_area"), 1.5 + std::sqrt(3) / 2, 1e-12);
  EXPECT_EQ(value("body.\"left lobe\".low.x"), 5);
  EXPECT_EQ(value("body.\"left lobe\".high.x"), 7);  // what a free slot holds does not count
  EXPECT_EQ(value("body.liver.tet_count"), 1);
  EXPECT_EQ(value("body.liver.triangle_count"), 4);
  EXPECT_NEAR(value("tissue.liver.volume"), (1 + 0.125) / 6, 1e-12);
  EXPECT_NEAR(value("tissue.liver.centroid.z"), (0.25 + 0.125 * 3.125) / 1.125, 1e-12);
  EXPECT_EQ(value("tissue.liver.piece_count"), 2);
  EXPECT_EQ(value("tissue.liver.high.z"), 3.5);
  EXPECT_EQ(value("body.liver.vertex(2).position.y"), 1);
  EXPECT_TRUE(std::isnan(value("body.liver.vertex(77).position.y")));
  EXPECT_TRUE(std::isnan(value("body.liver.mass"))) << "needs the world";
  EXPECT_TRUE(std::isnan(value("body.liver.max_displacement"))) << "needs the world";
}

TEST(ProbeSetTest, ContactsAreThoseOfTheFilter) {
  const SceneDescription scene = TwoBodies();
  const Frame frame = HandMadeFrame();
  const auto value = [&](const std::string& path) { return ValueOf(path, frame, scene); };
  EXPECT_EQ(value("contacts.count"), 3);
  EXPECT_EQ(value("contacts.count(liver)"), 2) << "the piece is of the liver";
  EXPECT_EQ(value("body.liver.contact_count"), 1);
  EXPECT_EQ(value("contacts.force(liver).y"), 2);
  EXPECT_EQ(value("contacts.count(liver, hook)"), 0);
  EXPECT_EQ(value("contacts.count(*, probe)"), 2);
  EXPECT_EQ(value("contacts.force(\"left lobe\", obstacles).z"), 4);
  EXPECT_EQ(value("contacts.normal_force(liver, probe)"), 1);
  EXPECT_EQ(value("contacts.max_force"), 4);
  EXPECT_EQ(value("contacts.max_penetration"), static_cast<double>(0.001F));
  EXPECT_TRUE(std::isnan(value("contacts.min_separation(liver, hook)")));
  EXPECT_EQ(value("surface_contacts.count"), 1);
  EXPECT_EQ(value("surface_contacts.force(\"left lobe\", liver).z"), 5);
  EXPECT_EQ(value("surface_contacts.force(liver, \"left lobe\").z"), -5) << "the force on the one that is named first";
  EXPECT_EQ(value("surface_contacts.count(liver, liver)"), 0);
}

TEST(ProbeSetTest, PathsWithoutComponentHaveAColumnForEach) {
  const SceneDescription scene = TwoBodies();
  const std::vector<std::string> paths = {"tool.*.force", "state_hash", "body.l*.centroid.x", "step_ms", "marker.*.is_released"};
  auto set = ProbeSet::Parse(paths, scene);
  ASSERT_TRUE(set.ok()) << set.status();
  std::vector<std::string> names;
  for (const ProbeColumn& column : set->columns()) names.push_back(column.name);
  EXPECT_THAT(names,
              ::testing::ElementsAre("tool.probe.force.x", "tool.probe.force.y", "tool.probe.force.z", "tool.hook.force.x",
                                     "tool.hook.force.y", "tool.hook.force.z", "state_hash.high", "state_hash.low", "body.liver.centroid.x",
                                     "body.\"left lobe\".centroid.x", "step_ms", "marker.liver/tumor.is_released",
                                     "marker.\"left lobe/tumor\".is_released", "marker.\"left lobe/vessel\".is_released"));
  EXPECT_EQ(set->columns()[0].unit, "N");
  EXPECT_TRUE(set->columns()[10].is_wall_clock);
  EXPECT_FALSE(set->columns()[0].is_wall_clock);
  // Names of columns are paths themselves.
  EXPECT_TRUE(ProbeSet::Parse(names, scene).ok());
}

TEST(ProbeSetTest, SaysWhatThereIsInstead) {
  const SceneDescription scene = TwoBodies();
  const auto complaint = [&](const std::string& path) {
    const std::vector<std::string> paths = {"time", path};
    return std::string(ProbeSet::Parse(paths, scene).status().message());
  };
  EXPECT_THAT(complaint("tool.prob.force"),
              HasSubstr("probes[1]: \"tool.prob.force\": at byte 5: there is no tool \"prob\"; there are: probe, hook"));
  EXPECT_THAT(complaint("tool.probe.forc"), HasSubstr("there is no measure \"forc\"; there are: position, "));
  EXPECT_THAT(complaint("tool.probe"), HasSubstr("ends where measure is expected"));
  EXPECT_THAT(complaint("tool"), HasSubstr("ends where the name of a tool is expected"));
  EXPECT_THAT(complaint("tool.probe.force.u"), HasSubstr("there is no component \"u\"; there are: x, y, z, norm"));
  EXPECT_THAT(complaint("tool.probe.force.x.y"), HasSubstr("nothing may follow"));
  EXPECT_THAT(complaint("time.x"), HasSubstr("is one number"));
  EXPECT_THAT(complaint("energy.potential"), HasSubstr("energy.elastic"));
  EXPECT_THAT(complaint("marker.tumor.position"),
              HasSubstr("several bodies have a marker \"tumor\"; say which: liver/tumor, left lobe/tumor"));
  EXPECT_THAT(complaint("contacts.force(spleen)"), HasSubstr("there is no such body or tool \"spleen\"; there are: liver, left lobe"));
  EXPECT_THAT(complaint("contacts.force(liver, probe, hook)"), HasSubstr("at most two arguments"));
  EXPECT_THAT(complaint("tool.probe(1).force"), HasSubstr("takes no arguments"));
  EXPECT_THAT(complaint("body.liver.vertex(x).position"), HasSubstr("the index of a vertex"));
  EXPECT_THAT(complaint("body.liver.vertex(4294967296).position"), HasSubstr("the index of a vertex"));
  EXPECT_THAT(complaint("a b"), HasSubstr("at byte 1"));
  EXPECT_TRUE(absl::IsResourceExhausted(ProbeSet::Parse(std::vector<std::string>(kMaxProbes + 1, "time"), scene).status()));
  EXPECT_TRUE(
      absl::IsResourceExhausted(ProbeSet::Parse(std::vector<std::string>(1, std::string(kMaxProbePathBytes + 1, 'a')), scene).status()));
}

TEST(ProbeSetTest, EveryListedProbeIsOne) {
  const SceneDescription scene = TwoBodies();
  const Frame frame = HandMadeFrame();
  const std::vector<ProbeColumn> probes = ListProbes(scene);
  EXPECT_GT(probes.size(), 100U);
  for (const ProbeColumn& probe : probes) {
    std::string path = probe.name.substr(0, probe.name.find("[."));
    if (const size_t at = path.find("(BODY, OTHER)"); at != std::string::npos) path.erase(at);
    if (const size_t at = path.find("INDEX"); at != std::string::npos) path.replace(at, 5, "1");
    auto set = ProbeSet::Parse(std::span(&path, 1), scene);
    ASSERT_TRUE(set.ok()) << probe.name << ": " << set.status();
    EXPECT_EQ(set->columns()[0].unit, probe.unit) << path;
    std::vector<double> out(set->columns().size());
    set->Evaluate(frame, out);
  }
}

class ProbeWorldTest : public test::DeviceTest {};

TEST_F(ProbeWorldTest, MeasuresARunningWorld) {
  SceneDescription scene;
  scene.gravity_m_per_s2 = {0, 0, 0};
  scene.bodies = {test::BoxBody("box", {0, 0, 0}, {3, 3, 3}, {0.02, 0.03, 0.04}, test::HeldSide::kLowZ)};
  scene.tools = {test::ToolAt("probe", {0, 0, 1})};
  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
  const std::vector<std::string> paths = {"body.box.mass",         "body.box.rest_volume",  "body.box.volume", "body.box.max_displacement",
                                          "body.box.vertex_count", "body.box.centroid.norm"};
  PALPATE_TEST_ASSIGN(ProbeSet set, ProbeSet::Parse(paths, scene));
  std::vector<double> out(paths.size());
  set.Evaluate(*world->CurrentFrame(), out, world.get());
  const double volume_m3 = 0.02 * 0.03 * 0.04;
  EXPECT_NEAR(out[0], 1060 * volume_m3, 1e-9);
  EXPECT_NEAR(out[1], volume_m3, 1e-12);
  EXPECT_NEAR(out[2], volume_m3, 1e-6 * volume_m3);
  EXPECT_LT(out[3], 1e-7);
  EXPECT_EQ(out[4], 27);
  EXPECT_LT(out[5], 1e-7);
  PALPATE_TEST_ASSIGN(std::vector<float> positions, world->ReadVolumePositions(0));
  const std::vector<Vector3d> rest = world->RestPositions(0);
  size_t top = 0;
  for (size_t v = 0; v < rest.size(); ++v) top = rest[v].z() > rest[top].z() ? v : top;
  positions[3 * top] += 0.003F;
  PALPATE_ASSERT_OK(world->WriteVolumePositions(0, positions));
  set.Evaluate(*world->CurrentFrame(), out, world.get());
  PALPATE_TEST_ASSIGN(const auto frame, world->Step(std::vector<const ToolCommand*>{nullptr}));
  set.Evaluate(*frame, out, world.get());
  EXPECT_GT(out[3], 1e-4);
  EXPECT_LT(out[3], 0.003);
}

// Pressed from all sides, tissue and what fills it share the pressure by their bulk moduli.
TEST_F(ProbeWorldTest, MeasuresThePressureOfAKeptVolume) {
  constexpr double kOutside_pa = 50, kFilling_pa = 2e4;
  SceneDescription scene;
  scene.gravity_m_per_s2 = {0, 0, 0};
  scene.bodies = {test::BoxBody("bag", {0, 0, 0}, {4, 4, 4}, {0.02, 0.03, 0.04}),
                  test::BoxBody("box", {0.1, 0, 0}, {2, 2, 2}, {0.02, 0.02, 0.02})};
  BodyDescription& bag = scene.bodies[0];
  bag.material.young_modulus_pa = 5000;
  bag.material.poisson_ratio = 0.3;
  bag.material.mass_damping_per_s = 20;
  bag.volume_stiffness_pa = kFilling_pa;
  LoadDescription pressure;
  for (uint32_t v = 0; v < bag.mesh.vertices.size(); ++v) pressure.vertices.push_back(v);
  pressure.pressure_pa = kOutside_pa;
  bag.loads = {pressure};
  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
  const std::vector<std::string> paths = {"body.bag.pressure", "tissue.bag.pressure", "body.box.pressure"};
  PALPATE_TEST_ASSIGN(ProbeSet set, ProbeSet::Parse(paths, scene));
  EXPECT_EQ(set.columns()[0].unit, "Pa");
  std::vector<double> out(paths.size());
  set.Evaluate(*world->CurrentFrame(), out, world.get());
  EXPECT_NEAR(out[0], 0, 0.05) << "at rest";
  for (int n = 0; n < 90; ++n) PALPATE_ASSERT_OK(world->Step({}).status());
  set.Evaluate(*world->CurrentFrame(), out, world.get());
  constexpr double kTissue_pa = 5000 / (3 * (1 - 2 * 0.3));
  EXPECT_NEAR(out[0], kOutside_pa * kFilling_pa / (kFilling_pa + kTissue_pa), 0.02 * kOutside_pa);
  EXPECT_EQ(out[1], out[0]);
  EXPECT_TRUE(std::isnan(out[2])) << "nothing keeps it";
  const auto frame = world->CurrentFrame();
  ASSERT_EQ(frame->kept_pressures_pa.size(), 2U);
  ASSERT_TRUE(frame->kept_pressures_pa[0]);
  EXPECT_NEAR(*frame->kept_pressures_pa[0], out[0], 1e-9 * kOutside_pa);
  EXPECT_FALSE(frame->kept_pressures_pa[1]);
  set.Evaluate(*world->CurrentFrame(), out);
  EXPECT_TRUE(std::isnan(out[0])) << "without its world";
}

}  // namespace
}  // namespace palpate::sim::probe_set_test
