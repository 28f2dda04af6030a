#include "server/api/encode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "sim/mesh/generators.h"
#include "sim/nurbs/nurbs_body_shape.h"
#include "sim/nurbs/nurbs_shapes.h"
#include "sim/scene/summary.h"
#include "sim/scene/tool_spec.h"

namespace palpate::server::encode_test {
namespace {

std::vector<double> Decode(const v1::BodyFrame& body, v1::PositionEncoding encoding) {
  std::vector<double> out;
  if (encoding == v1::POSITION_ENCODING_FLOAT32) {
    for (size_t i = 0; i + 4 <= body.positions().size(); i += 4) {
      float value = 0;
      std::memcpy(&value, body.positions().data() + i, 4);
      out.push_back(value);
    }
    return out;
  }
  const double origin[] = {body.origin_m().x(), body.origin_m().y(), body.origin_m().z()};
  const double scale[] = {body.scale_m().x(), body.scale_m().y(), body.scale_m().z()};
  for (size_t i = 0; i + 2 <= body.positions().size(); i += 2) {
    // Little-endian whatever this machine is.
    const unsigned value = static_cast<unsigned char>(body.positions()[i]) + 256U * static_cast<unsigned char>(body.positions()[i + 1]);
    const size_t axis = (i / 2) % 3;
    out.push_back(origin[axis] + value * scale[axis]);
  }
  return out;
}

TEST(EncodePositions, Float32IsExact) {
  const std::vector<float> positions = {1.5F, -2.25F, 1e-20F, 3.1415927F, 0, 100};
  v1::BodyFrame body;
  EncodePositions(positions, v1::POSITION_ENCODING_FLOAT32, body);
  const std::vector<double> decoded = Decode(body, v1::POSITION_ENCODING_FLOAT32);
  ASSERT_EQ(decoded.size(), positions.size());
  for (size_t i = 0; i < positions.size(); ++i) EXPECT_EQ(decoded[i], positions[i]);
  EXPECT_EQ(body.max_error_m(), 0);
}

TEST(EncodePositions, QuantisedErrorIsWithinTheStatedBoundAndTheBoundIsTight) {
  std::mt19937 random(7);
  for (const double extent : {1e-4, 0.01, 0.2, 10.0}) {
    for (const double offset : {0.0, 0.5, -99.0}) {
      std::uniform_real_distribution<float> coordinate(static_cast<float>(offset - extent), static_cast<float>(offset + extent));
      std::vector<float> positions(3 * 5000);
      for (float& x : positions) x = coordinate(random);
      v1::BodyFrame body;
      EncodePositions(positions, v1::POSITION_ENCODING_UINT16, body);
      ASSERT_EQ(body.positions().size(), positions.size() * 2);
      const std::vector<double> decoded = Decode(body, v1::POSITION_ENCODING_UINT16);
      double worst = 0;
      for (size_t i = 0; i < positions.size(); ++i) worst = std::max(worst, std::abs(decoded[i] - positions[i]));
      EXPECT_LE(worst, body.max_error_m()) << extent << " " << offset;
      EXPECT_LE(body.max_error_m(), 2 * extent / 65535 / 2 * 1.001 + 1e-12) << extent << " " << offset;
    }
  }
}

TEST(EncodePositions, FlatBoxesSinglePointsAndNoneAreEncodedExactly) {
  v1::BodyFrame body;
  // Flat in z, one point, none.
  EncodePositions(std::vector<float>{0, 0, 0.1F, 1, 1, 0.1F}, v1::POSITION_ENCODING_UINT16, body);
  EXPECT_EQ(body.scale_m().z(), 0);
  EXPECT_FLOAT_EQ(static_cast<float>(Decode(body, v1::POSITION_ENCODING_UINT16)[5]), 0.1F);
  EncodePositions(std::vector<float>{1, 2, 3}, v1::POSITION_ENCODING_UINT16, body);
  EXPECT_EQ(Decode(body, v1::POSITION_ENCODING_UINT16), (std::vector<double>{1, 2, 3}));
  EncodePositions(std::vector<float>{}, v1::POSITION_ENCODING_UINT16, body);
  EXPECT_TRUE(body.positions().empty());
  EncodePositions(std::vector<float>{1, 2, 3}, v1::POSITION_ENCODING_NONE, body);
  EXPECT_TRUE(body.positions().empty());
}

TEST(EncodePositions, ExtremesOfTheBoxUseTheFullRange) {
  v1::BodyFrame body;
  EncodePositions(std::vector<float>{-1, -1, -1, 3, 3, 3}, v1::POSITION_ENCODING_UINT16, body);
  EXPECT_EQ(body.positions(), std::string("\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff", 12));
}

sim::SceneDescription TwoBodies() {
  sim::SceneDescription description;
  for (int i = 0; i < 2; ++i) {
    sim::BodyDescription body;
    body.name = i == 0 ? "a" : "b";
    body.mesh = *sim::BoxMesh({4, 4, 4}, {0.1, 0.1, 0.1});
    description.bodies.push_back(std::move(body));
  }
  sim::ToolDescription tool;
  tool.name = "probe";
  description.tools.push_back(tool);
  description.obstacles.push_back({"floor", sim::PlaneShape{}});
  sim::CapsuleShape capsule;
  capsule.radius_m = 0.25;
  capsule.end1_m = {0, 0, 1};
  description.obstacles.push_back({"rail", capsule});
  return description;
}

std::shared_ptr<const sim::WorldTopology> WorldOf(const sim::SceneDescription& description, uint64_t version) {
  auto world = std::make_shared<sim::WorldTopology>();
  world->version = version;
  for (const sim::BodyDescription& body : description.bodies) {
    const sim::BoundarySurface surface = sim::ExtractBoundary(body.mesh);
    auto arrays = std::make_shared<sim::BodyArrays>();
    arrays->name = body.name;
    arrays->surface_vertices.values() = surface.vertices;
    for (const auto& [a, b, c] : surface.triangles) {
      arrays->surface_triangles.push_back({sim::SurfaceSlot{a}, sim::SurfaceSlot{b}, sim::SurfaceSlot{c}});
    }
    arrays->triangle_zones.resize(surface.triangles.size());
    arrays->vertex_slot_count = static_cast<uint32_t>(body.mesh.vertices.size());
    arrays->tets = body.mesh.tets;
    arrays->fixed_vertices = body.fixed_vertices;
    arrays->surface_zones = {{"skin", body.color}, {"interior", body.interior_color}};
    world->bodies.push_back(std::move(arrays));
  }
  return world;
}

TEST(Topology, SurfaceAndVolumeAgree) {
  sim::SceneDescription description = TwoBodies();
  // A corner, which lies on the surface, and the inner vertex (1, 1, 1) of the grid, which does not.
  description.bodies[0].fixed_vertices = {0, 1 + 4 * (1 + 4 * 1)};
  description.bodies[0].markers = {{"m0", {0, 0, 0}}};
  description.bodies[1].markers = {{"m1", {0, 0, 0}}};
  const std::shared_ptr<const SceneTopology> topology = BuildTopology(description, WorldOf(description, 3));
  EXPECT_EQ(topology->version, 3U);
  v1::Keyframe on_surface;
  v1::Keyframe in_volume;
  EncodeTopology(*topology, false, on_surface);
  EncodeTopology(*topology, true, in_volume);
  const v1::BodyTopology& surface = on_surface.bodies(0);
  const v1::BodyTopology& volume = in_volume.bodies(0);
  const std::vector<uint32_t>& vertices = topology->world->bodies[0]->surface_vertices.values();
  EXPECT_EQ(volume.vertex_count(), 64U);
  EXPECT_FALSE(topology->statics->checks_intersections);
  EXPECT_EQ(surface.vertex_count(), 56U);
  EXPECT_EQ(surface.triangles_size(), volume.triangles_size());
  for (int i = 0; i < surface.triangles_size(); ++i) {
    ASSERT_LT(surface.triangles(i), surface.vertex_count());
    EXPECT_EQ(vertices[surface.triangles(i)], volume.triangles(i));
  }
  EXPECT_EQ(surface.tets_size(), 0);
  EXPECT_EQ(static_cast<size_t>(volume.tets_size()), 4 * description.bodies[0].mesh.tets.size());
  EXPECT_EQ(volume.fixed_size(), 2);
  ASSERT_EQ(surface.fixed_size(), 1);
  EXPECT_EQ(vertices[surface.fixed(0)], 0U);
  EXPECT_EQ(surface.triangle_zones_size(), 0);
  EXPECT_EQ(surface.surface_zones(1).name(), "interior");

  EXPECT_EQ(on_surface.topology_version(), 3U);
  ASSERT_EQ(on_surface.markers_size(), 2);
  EXPECT_EQ(on_surface.markers(1).name(), "m1");
  EXPECT_EQ(on_surface.markers(1).body(), "b");
  EXPECT_EQ(on_surface.bodies(1).name(), "b");
  EXPECT_EQ(on_surface.tools(0).name(), "probe");
  EXPECT_EQ(on_surface.obstacles(1).capsule().radius_m(), 0.25);
  EXPECT_EQ(on_surface.gravity_m_per_s2().z(), -9.81);
}

TEST(Topology, ToolsShowWhatTheirInstrumentIs) {
  sim::ToolDescription tool;
  tool.name = "grasper";
  tool.instrument.kind = sim::InstrumentKind::kForceps;
  tool.instrument.jaw_length_m = 0.03;
  v1::ToolShape shape = EncodeToolShape(tool);
  EXPECT_EQ(shape.kind(), v1::INSTRUMENT_KIND_FORCEPS);
  EXPECT_EQ(shape.jaw_length_m(), 0.03);
  EXPECT_EQ(shape.max_jaw_angle_rad(), 1);
  EXPECT_EQ(shape.blade_length_m(), 0);
  EXPECT_EQ(shape.max_power_w(), 0);
  EXPECT_TRUE(shape.traits().has_jaws());
  EXPECT_FALSE(shape.traits().has_blade() || shape.traits().has_power() || shape.traits().leaves_clips());
  tool.instrument.kind = sim::InstrumentKind::kCavitron;
  shape = EncodeToolShape(tool);
  EXPECT_EQ(shape.kind(), v1::INSTRUMENT_KIND_CAVITRON);
  EXPECT_EQ(shape.jaw_length_m(), 0);
  EXPECT_EQ(shape.max_power_w(), 60);
  EXPECT_EQ(shape.reach_m(), 0.003);
  EXPECT_TRUE(shape.traits().has_power());
  EXPECT_FALSE(shape.traits().has_jaws());
  tool.instrument.kind = sim::InstrumentKind::kClipApplier;
  shape = EncodeToolShape(tool);
  EXPECT_EQ(shape.kind(), v1::INSTRUMENT_KIND_CLIP_APPLIER);
  EXPECT_TRUE(shape.traits().has_jaws() && shape.traits().leaves_clips());
  tool.instrument.kind = sim::InstrumentKind::kScalpel;
  EXPECT_TRUE(EncodeToolShape(tool).traits().has_blade());
}

// Each kind is one name in both enums.
TEST(Topology, KindsOfInstrumentsHaveTheSameNames) {
  const auto name_of = [](sim::InstrumentKind kind) { return v1::InstrumentKind_Name(scene::EncodeInstrumentKind(kind)); };
  EXPECT_EQ(name_of(sim::InstrumentKind::kProbe), "INSTRUMENT_KIND_PROBE");
  EXPECT_EQ(name_of(sim::InstrumentKind::kForceps), "INSTRUMENT_KIND_FORCEPS");
  EXPECT_EQ(name_of(sim::InstrumentKind::kScalpel), "INSTRUMENT_KIND_SCALPEL");
  EXPECT_EQ(name_of(sim::InstrumentKind::kCauteryHook), "INSTRUMENT_KIND_CAUTERY_HOOK");
  EXPECT_EQ(name_of(sim::InstrumentKind::kCavitron), "INSTRUMENT_KIND_CAVITRON");
  EXPECT_EQ(name_of(sim::InstrumentKind::kClipApplier), "INSTRUMENT_KIND_CLIP_APPLIER");
}

TEST(EncodePositions, PlacesThatNobodyUsesAreOutsideTheBounds) {
  v1::BodyFrame body;
  const std::vector<float> positions = {1, 1, 1, 0, 0, 0, 1.25F, 1.5F, 2};
  const std::vector<uint32_t> places = {4, sim::kNoSlot, 5};
  EncodePositions(positions, v1::POSITION_ENCODING_UINT16, body, places);
  EXPECT_EQ(body.origin_m().x(), 1);
  EXPECT_NEAR(body.scale_m().z(), 1.0 / 65535, 1e-12);
  ASSERT_EQ(body.positions().size(), 18U);
  EXPECT_NEAR(Decode(body, v1::POSITION_ENCODING_UINT16)[8], 2, body.max_error_m());
}

sim::Frame SomeFrame() {
  sim::Frame frame;
  frame.step = 42;
  frame.sim_time_s = 0.35;
  frame.server_time_us = 1234;
  frame.state_hash = 0xfedcba9876543210ULL;
  frame.surface_positions_m = {{0, 0, 0, 1, 1, 1}};
  frame.volume_positions_m = {{0, 0, 0, 1, 1, 1, 2, 2, 2}};
  sim::FrameContact contact;
  contact.body_index = 1;
  contact.point_m = {1, 2, 3};
  contact.normal = {0, 0, 1};
  contact.separation_m = -0.001F;
  contact.force_n = {0, 0, -2};
  frame.contacts.push_back(contact);
  sim::FrameTool tool;
  tool.pose.position_m = {0, 0, 1};
  tool.force_n = {0, 0, 2};
  tool.contact_count = 1;
  tool.jaw_angle_rad = 0.5;
  tool.is_touching = tool.is_blocked = true;
  tool.blocked_m = 0.002;
  tool.grasped_vertices = 12;
  tool.grasp_force_n = 3;
  tool.removed_mass_kg = 0.25;
  frame.tools.push_back(tool);
  frame.markers = {{{1, 2, 3}, 0, false}, {{4, 5, 6}, 2, true}};
  frame.clips = {{{1, 0, 2}, Eigen::Quaterniond(0, 0, 1, 0), 0.02}};
  frame.stitches = {{{1, 2, 3}, {4, 5, 6}}, {{7, 8, 9}, {10, 11, 12}}};
  frame.stage_ms = {1, 2, 3, 4, 5, 6};
  frame.max_penetration_m = 0.001;
  sim::FrameSurfaceContact pair;
  pair.kind = sim::SurfaceContactKind::kVertexTriangle;
  pair.body_a = 0;
  pair.body_b = 2;
  pair.vertices = {sim::SurfaceSlot{1}, sim::SurfaceSlot{0}, sim::SurfaceSlot{2}, sim::SurfaceSlot{1}};
  pair.point_a_m = {1, 0, 0};
  pair.point_b_m = {2, 0, 0};
  pair.normal = {1, 0, 0};
  pair.distance_m = 1;
  pair.force_n = {5, 0, 0};
  frame.surface_contacts.push_back(pair);
  pair.kind = sim::SurfaceContactKind::kEdgeEdge;
  pair.body_a = 1;
  frame.surface_contacts.push_back(pair);
  frame.contact_statistics = {10, 2, 3, 4, 5, 6, 7, 1.5, 2.5, 3.5, 11, 9, 1};
  return frame;
}

/// Three bodies whose surfaces hold every second vertex of the volume.
SceneTopology SomeTopology() {
  SceneTopology topology;
  auto world = std::make_shared<sim::WorldTopology>();
  for (const char* name : {"a", "b", "c"}) {
    auto body = std::make_shared<sim::BodyArrays>();
    body->name = name;
    body->surface_vertices = {1, 3, 5};
    world->bodies.push_back(std::move(body));
  }
  topology.world = std::move(world);
  topology.parents = {sim::kNoSlot, sim::kNoSlot, sim::kNoSlot};
  auto statics = std::make_shared<SceneStatics>();
  statics->checks_intersections = true;
  topology.statics = std::move(statics);
  return topology;
}

TEST(EncodeFrame, CarriesEverything) {
  FrameStatus status;
  status.state = v1::RUN_STATE_PLAYING;
  status.steps_per_s = 119.5;
  status.overruns = 3;
  status.operated = {true};
  v1::Frame out;
  out.add_contacts();  // overwritten, not appended to
  EncodeFrame(SomeFrame(), SomeTopology(), status, FrameOptions{}, 7, out);
  EXPECT_EQ(out.step(), 42U);
  EXPECT_EQ(out.sim_time_s(), 0.35);
  EXPECT_EQ(out.server_time_us(), 1234);
  EXPECT_EQ(out.state_hash(), 0xfedcba9876543210ULL);
  EXPECT_EQ(out.topology_version(), 1U);
  EXPECT_EQ(out.dropped(), 7U);
  EXPECT_EQ(out.state(), v1::RUN_STATE_PLAYING);
  ASSERT_EQ(out.contacts_size(), 1);
  EXPECT_EQ(out.contacts(0).tool_index(), 0xffffffffU);
  EXPECT_EQ(out.contacts(0).body_index(), 1U);
  EXPECT_EQ(out.contacts(0).point_m().y(), 2);
  EXPECT_FLOAT_EQ(static_cast<float>(out.contacts(0).separation_m()), -0.001F);
  EXPECT_EQ(out.contacts(0).force_n().z(), -2);
  ASSERT_EQ(out.tools_size(), 1);
  EXPECT_TRUE(out.tools(0).operated());
  EXPECT_EQ(out.tools(0).pose().position_m().z(), 1);
  EXPECT_EQ(out.tools(0).pose().rotation().w(), 1);
  EXPECT_EQ(out.tools(0).force_n().z(), 2);
  EXPECT_EQ(out.tools(0).jaw_angle_rad(), 0.5);
  ASSERT_EQ(out.tools(0).activities_size(), 2);
  EXPECT_EQ(out.tools(0).activities(0), v1::TOOL_ACTIVITY_TOUCHING);
  EXPECT_EQ(out.tools(0).activities(1), v1::TOOL_ACTIVITY_BLOCKED);
  EXPECT_EQ(out.tools(0).blocked_m(), 0.002);
  EXPECT_EQ(out.tools(0).grasped_vertices(), 12U);
  EXPECT_EQ(out.tools(0).grasp_force_n(), 3);
  EXPECT_EQ(out.tools(0).removed_mass_kg(), 0.25);
  ASSERT_EQ(static_cast<size_t>(out.stats().stages_size()), sim::kStageNames.size());
  EXPECT_EQ(out.stats().stages(2).stage(), "solve");
  EXPECT_EQ(out.stats().stages(2).ms(), 3);
  EXPECT_FALSE(out.stats().has_elastic_energy_j()) << "not measured";
  EXPECT_EQ(out.stats().steps_per_s(), 119.5);
  EXPECT_EQ(out.stats().overruns(), 3U);
  EXPECT_EQ(out.bodies(0).positions().size(), 24U);
  ASSERT_EQ(out.clips_size(), 1);
  EXPECT_EQ(out.clips(0).pose().position_m().z(), 2);
  EXPECT_EQ(out.clips(0).pose().rotation().y(), 1);
  EXPECT_EQ(out.clips(0).length_m(), 0.02);
  ASSERT_EQ(out.stitches_m_size(), 12);
  for (int i = 0; i < 12; ++i) EXPECT_EQ(out.stitches_m(i), static_cast<float>(i + 1));
  ASSERT_EQ(out.markers_size(), 2);
  EXPECT_EQ(out.markers(0).position_m().y(), 2);
  EXPECT_EQ(out.markers(0).body_index(), 0U);
  EXPECT_FALSE(out.markers(0).is_released());
  EXPECT_EQ(out.markers(1).position_m().z(), 6);
  EXPECT_EQ(out.markers(1).body_index(), 2U);
  EXPECT_TRUE(out.markers(1).is_released());
}

TEST(EncodeFrame, CarriesPressuresOfBodiesThatKeepTheirVolume) {
  sim::Frame frame = SomeFrame();
  FrameOptions options;
  options.positions = v1::POSITION_ENCODING_NONE;
  v1::Frame out;
  EncodeFrame(frame, SomeTopology(), FrameStatus{}, options, 0, out);
  EXPECT_FALSE(out.bodies(0).has_pressure_pa());
  frame.kept_pressures_pa.resize(frame.surface_positions_m.size());
  EncodeFrame(frame, SomeTopology(), FrameStatus{}, options, 0, out);
  EXPECT_FALSE(out.bodies(0).has_pressure_pa());
  frame.kept_pressures_pa[0] = -120.5;
  EncodeFrame(frame, SomeTopology(), FrameStatus{}, options, 0, out);
  EXPECT_EQ(out.bodies(0).pressure_pa(), -120.5);
}

TEST(EncodeFrame, LeavesOutWhatIsNotWanted) {
  FrameOptions options;
  options.with_contacts = false;
  options.with_tools = false;
  options.with_volume = true;
  v1::Frame out;
  EncodeFrame(SomeFrame(), SomeTopology(), FrameStatus{}, options, 0, out);
  EXPECT_EQ(out.contacts_size(), 0);
  EXPECT_EQ(out.surface_contacts_size(), 0);
  EXPECT_EQ(out.stats().contact().contact_count(), 10U);
  EXPECT_EQ(out.tools_size(), 0);
  EXPECT_EQ(out.bodies(0).positions().size(), 36U);
}

TEST(EncodeFrame, CarriesContactsBetweenSurfaces) {
  v1::Frame out;
  EncodeFrame(SomeFrame(), SomeTopology(), FrameStatus{}, FrameOptions{}, 0, out);
  ASSERT_EQ(out.surface_contacts_size(), 2);
  const v1::SurfaceContact& contact = out.surface_contacts(0);
  EXPECT_EQ(contact.kind(), v1::SURFACE_CONTACT_KIND_VERTEX_TRIANGLE);
  EXPECT_EQ(contact.body_a(), 0U);
  EXPECT_EQ(contact.body_b(), 2U);
  EXPECT_EQ(std::vector<uint32_t>(contact.vertices().begin(), contact.vertices().end()), (std::vector<uint32_t>{1, 0, 2, 1}));
  EXPECT_EQ(contact.point_a_m().x(), 1);
  EXPECT_EQ(contact.point_b_m().x(), 2);
  EXPECT_EQ(contact.normal().x(), 1);
  EXPECT_EQ(contact.distance_m(), 1);
  EXPECT_EQ(contact.force_n().x(), 5);
  EXPECT_EQ(out.surface_contacts(1).kind(), v1::SURFACE_CONTACT_KIND_EDGE_EDGE);
  const v1::ContactStats& stats = out.stats().contact();
  EXPECT_EQ(stats.contact_count(), 10U);
  EXPECT_EQ(stats.acting_count(), 2U);
  EXPECT_EQ(stats.detection_count(), 3U);
  EXPECT_EQ(stats.filter_rounds(), 4U);
  EXPECT_EQ(stats.filtered_vertices(), 5U);
  EXPECT_EQ(stats.truncated_vertices(), 6U);
  EXPECT_EQ(stats.intersection_count(), 7U);
  EXPECT_TRUE(stats.intersections_checked());
  EXPECT_EQ(stats.detect_ms(), 1.5);
  EXPECT_EQ(stats.filter_ms(), 2.5);
  EXPECT_EQ(stats.check_ms(), 3.5);
  EXPECT_EQ(stats.self_search_count(), 11U);
  EXPECT_EQ(stats.listed_search_count(), 9U);
  EXPECT_EQ(stats.renewed_list_count(), 1U);
  // among all vertices the surface's have other places
  FrameOptions in_volume;
  in_volume.with_volume = true;
  EncodeFrame(SomeFrame(), SomeTopology(), FrameStatus{}, in_volume, 0, out);
  EXPECT_EQ(out.surface_contacts(0).vertices(0), 3U);
  EXPECT_EQ(out.surface_contacts(0).vertices(2), 5U);
}

TEST(EncodeFrame, KeepsTheContactsOfTheBodiesAskedFor) {
  v1::WatchRequest request;
  const auto encode = [&request] {
    v1::Frame out;
    const absl::StatusOr<FrameOptions> options = FrameOptionsFromProto(request, SomeTopology());
    EXPECT_TRUE(options.ok()) << options.status();
    EncodeFrame(SomeFrame(), SomeTopology(), FrameStatus{}, *options, 0, out);
    return out;
  };
  request.add_contact_bodies("b");  // of the contact with an obstacle and of one of the pairs
  EXPECT_EQ(encode().contacts_size(), 1);
  ASSERT_EQ(encode().surface_contacts_size(), 1);
  EXPECT_EQ(encode().surface_contacts(0).body_a(), 1U);
  request.set_contact_bodies(0, "c");
  EXPECT_EQ(encode().contacts_size(), 0);
  EXPECT_EQ(encode().surface_contacts_size(), 2);
  request.set_contact_bodies(0, "a");
  request.add_contact_bodies("a");
  EXPECT_EQ(encode().surface_contacts_size(), 1);
  // A piece belongs to the body it was cut off from.
  SceneTopology cut = SomeTopology();
  cut.parents[2] = 0;
  v1::Frame out;
  EncodeFrame(SomeFrame(), cut, FrameStatus{}, *FrameOptionsFromProto(request, cut), 0, out);
  EXPECT_EQ(out.surface_contacts_size(), 2);
  request.set_contact_bodies(1, "liver");
  const absl::Status status = FrameOptionsFromProto(request, SomeTopology()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "contact_bodies[1]: the scene has no body \"liver\"");
  request.clear_contact_bodies();
  for (int i = 0; i < 1025; ++i) request.add_contact_bodies("a");
  EXPECT_EQ(FrameOptionsFromProto(request, SomeTopology()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(FrameOptions, AreChecked) {
  const SceneTopology topology;
  v1::WatchRequest request;
  ASSERT_TRUE(FrameOptionsFromProto(request, topology).ok());
  EXPECT_EQ(FrameOptionsFromProto(request, topology)->positions, v1::POSITION_ENCODING_FLOAT32);
  EXPECT_EQ(MaxRateFromProto(request), 60);
  for (const double rate : {0.0, 0.09, 10001.0, std::nan("")}) {
    request.set_max_rate_hz(rate);
    EXPECT_EQ(FrameOptionsFromProto(request, topology).status().code(), absl::StatusCode::kInvalidArgument) << rate;
  }
  request.set_max_rate_hz(10000);
  EXPECT_TRUE(FrameOptionsFromProto(request, topology).ok());
  request.set_positions(static_cast<v1::PositionEncoding>(4));
  EXPECT_FALSE(FrameOptionsFromProto(request, topology).ok());
}

TEST(EncodeFrame, ShellsWithExactSurfacesAreTheirControlPointsForWhoWantsThat) {
  sim::SceneDescription description = TwoBodies();
  sim::BodyDescription& ball = description.bodies[1];
  const auto shape = sim::MakeNurbsBodyShape(*sim::NurbsObject::FromSurfaces("ball", sim::NurbsSphere(0.02)), 1e-3, 0, false, 10000);
  ASSERT_TRUE(shape.ok()) << shape.status();
  ball.nurbs = *shape;
  ball.nurbs_shell.emplace();
  const std::shared_ptr<const SceneTopology> topology = BuildTopology(description, WorldOf(description, 1));
  v1::Keyframe keyframe;
  EncodeTopology(*topology, false, keyframe, true);
  EXPECT_TRUE(keyframe.bodies(1).nurbs().is_deformable());
  sim::Frame frame;
  frame.surface_positions_m = {{1, 2, 3}, {4, 5, 6, 7, 8, 9}};
  frame.nurbs.poses = {std::nullopt, std::nullopt};
  frame.nurbs.control_m = {{}, {0.5F, 1, 2, 3, 4, 5, 6, 7, 8}};
  FrameOptions options;
  v1::Frame out;
  EncodeFrame(frame, *topology, FrameStatus{}, options, 0, out);
  EXPECT_EQ(out.bodies(1).positions().size(), 24U) << "vertices";
  options.with_nurbs = true;
  EncodeFrame(frame, *topology, FrameStatus{}, options, 0, out);
  EXPECT_EQ(out.bodies(0).positions().size(), 12U);
  ASSERT_EQ(out.bodies(1).positions().size(), 36U) << "control points";
  EXPECT_FALSE(out.bodies(1).has_pose());
  float first = 0;
  std::memcpy(&first, out.bodies(1).positions().data(), sizeof(first));
  EXPECT_EQ(first, 0.5F);
}

TEST(EncodeFrame, BodiesWithExactSurfacesAreAPoseForWhoWantsThat) {
  sim::SceneDescription description = TwoBodies();
  sim::BodyDescription& ball = description.bodies[1];
  const auto shape = sim::MakeNurbsBodyShape(*sim::NurbsObject::FromSurfaces("ball", sim::NurbsSphere(0.02)), 1e-3, 0, true, 10000);
  ASSERT_TRUE(shape.ok()) << shape.status();
  ball.nurbs = *shape;
  const std::shared_ptr<const SceneTopology> topology = BuildTopology(description, WorldOf(description, 1));
  v1::Keyframe exact;
  EncodeTopology(*topology, false, exact, true);
  EXPECT_GT(exact.bodies(0).triangles_size(), 0);
  EXPECT_FALSE(exact.bodies(0).has_nurbs());
  const v1::BodyTopology& of_ball = exact.bodies(1);
  EXPECT_EQ(of_ball.vertex_count(), 0U);
  EXPECT_EQ(of_ball.triangles_size(), 0);
  EXPECT_EQ(of_ball.mesh_hash(), 0U);
  EXPECT_EQ(of_ball.name(), ball.name);
  EXPECT_GT(of_ball.surface_zones_size(), 0);
  ASSERT_EQ(of_ball.nurbs().object().patches_size(), 8);
  EXPECT_EQ(of_ball.nurbs().object().patches(0).control_m_size(), 27);
  EXPECT_EQ(of_ball.nurbs().tolerance_m(), 1e-3);
  v1::Keyframe triangles;
  EncodeTopology(*topology, false, triangles);
  EXPECT_FALSE(triangles.bodies(1).has_nurbs());
  EXPECT_GT(triangles.bodies(1).triangles_size(), 0);

  sim::Frame frame;
  frame.surface_positions_m = {{1, 2, 3}, {4, 5, 6, 7, 8, 9}};
  frame.nurbs.poses = {std::nullopt, sim::RigidPose{{1, 2, 3}, Eigen::Quaterniond(0.5, 0.5, -0.5, 0.5)}};
  frame.contacts.resize(2);
  frame.contacts[0].body_index = 1;
  frame.nurbs.places = {sim::FrameNurbsPlace{3, 0.25, 0.75, {7, 8, 9}}, std::nullopt};
  frame.surface_contacts.resize(1);
  frame.surface_contacts[0].body_b = 1;
  frame.surface_contacts[0].vertices = {};
  frame.nurbs.surface_places = {{std::nullopt, sim::FrameNurbsPlace{5, 0.5, 1, {1, 1, 1}}}};
  FrameOptions options;
  v1::Frame out;
  EncodeFrame(frame, *topology, FrameStatus{}, options, 0, out);
  EXPECT_EQ(out.bodies(1).positions().size(), 24U);
  EXPECT_FALSE(out.bodies(1).has_pose());
  ASSERT_TRUE(out.contacts(0).has_place());
  EXPECT_EQ(out.contacts(0).place().patch(), 3U);
  EXPECT_EQ(out.contacts(0).place().v(), 0.75);
  EXPECT_EQ(out.contacts(0).place().point_m().z(), 9);
  EXPECT_FALSE(out.contacts(1).has_place());
  EXPECT_FALSE(out.surface_contacts(0).has_place_a());
  EXPECT_EQ(out.surface_contacts(0).place_b().patch(), 5U);
  options.with_nurbs = true;
  EncodeFrame(frame, *topology, FrameStatus{}, options, 0, out);
  EXPECT_EQ(out.bodies(0).positions().size(), 12U);
  EXPECT_EQ(out.bodies(1).positions().size(), 0U);
  EXPECT_EQ(out.bodies(1).pose().position_m().y(), 2);
  EXPECT_EQ(out.bodies(1).pose().rotation().y(), -0.5);
  EXPECT_LT(out.bodies(1).ByteSizeLong(), 100U);
}

TEST(EncodeLocalModel, CarriesTheUsedConstraintsOnly) {
  sim::LocalModel model;
  model.step = 5;
  model.pose_sequence = 9;
  model.station_time_us = 77;
  model.constraint_count = 2;
  for (int i = 0; i < sim::kMaxLocalConstraints; ++i) {
    sim::LocalConstraint& c = model.constraints[static_cast<size_t>(i)];
    c.arm_T_m = {0.1 * i, 0, 0};
    c.normal_W = {0, 0, 1};
    c.stiffness_n_per_m = 100 + i;
  }
  model.force_n = {1, 2, 3};
  v1::LocalModel out;
  out.add_constraints();
  const sim::FrameTool tool;
  EncodeLocalModel(model, tool, out);
  EXPECT_EQ(out.step(), 5U);
  EXPECT_EQ(out.pose_sequence(), 9U);
  EXPECT_EQ(out.station_time_us(), 77);
  ASSERT_EQ(out.constraints_size(), 2);
  EXPECT_EQ(out.constraints(1).arm_m().x(), 0.1);
  EXPECT_EQ(out.constraints(1).stiffness_n_per_m(), 101);
  EXPECT_EQ(out.force_n().y(), 2);
  // A count that no model should have never reads outside the array.
  model.constraint_count = 1000;
  EncodeLocalModel(model, tool, out);
  EXPECT_EQ(out.constraints_size(), sim::kMaxLocalConstraints);
}

TEST(EncodeLocalModel, SaysWhatTheToolDoes) {
  sim::FrameTool tool;
  tool.jaw_angle_rad = 0.25;
  tool.grasp_force_n = 1.5;
  tool.blocked_m = 0.002;
  tool.removed_mass_kg = 0.003;
  for (const auto& [flag, activity] : {std::pair(&sim::FrameTool::is_touching, v1::TOOL_ACTIVITY_TOUCHING),
                                       std::pair(&sim::FrameTool::is_grasping, v1::TOOL_ACTIVITY_GRASPING),
                                       std::pair(&sim::FrameTool::is_cutting, v1::TOOL_ACTIVITY_CUTTING),
                                       std::pair(&sim::FrameTool::is_blocked, v1::TOOL_ACTIVITY_BLOCKED)}) {
    tool.*flag = true;
    v1::LocalModel out;
    EncodeLocalModel(sim::LocalModel(), tool, out);
    ASSERT_EQ(out.activities_size(), 1);
    EXPECT_EQ(out.activities(0), activity);
    EXPECT_EQ(out.jaw_angle_rad(), 0.25);
    EXPECT_EQ(out.grasp_force_n(), 1.5);
    EXPECT_EQ(out.blocked_m(), 0.002);
    EXPECT_EQ(out.removed_mass_kg(), 0.003);
    tool.*flag = false;
  }
}

TEST(EncodeAttached, StatesLimitsOnlyOfWhatTheInstrumentHas) {
  sim::ToolDescription tool;
  tool.instrument.max_jaw_angle_rad = 0.7;
  tool.instrument.max_power_w = 33;
  const auto encode = [&](sim::InstrumentKind kind) {
    tool.instrument.kind = kind;
    v1::Attached out;
    EncodeAttached(tool, out);
    EXPECT_EQ(out.kind(), scene::EncodeInstrumentKind(kind));
    return std::pair(out.max_jaw_angle_rad(), out.max_power_w());
  };
  EXPECT_EQ(encode(sim::InstrumentKind::kProbe), std::pair(0.0, 0.0));
  EXPECT_EQ(encode(sim::InstrumentKind::kForceps), std::pair(0.7, 0.0));
  EXPECT_EQ(encode(sim::InstrumentKind::kClipApplier), std::pair(0.7, 0.0));
  EXPECT_EQ(encode(sim::InstrumentKind::kScalpel), std::pair(0.0, 0.0));
  EXPECT_EQ(encode(sim::InstrumentKind::kCauteryHook), std::pair(0.0, 33.0));
  EXPECT_EQ(encode(sim::InstrumentKind::kCavitron), std::pair(0.0, 33.0));
}

TEST(Summary, CountsVolumeMassAndColors) {
  sim::SceneDescription description = TwoBodies();
  description.bodies[0].material.density_kg_per_m3 = 2000;
  description.bodies[0].fixed_vertices = {0, 1};
  const v1::BodyInfo info = scene::SummarizeBody(description.bodies[0]);
  EXPECT_EQ(info.vertex_count(), 64U);
  EXPECT_EQ(info.tet_count(), 27U * 5);
  EXPECT_EQ(info.surface_vertex_count(), 56U);
  EXPECT_EQ(info.surface_triangle_count(), 6U * 9 * 2);
  EXPECT_EQ(info.fixed_vertex_count(), 2U);
  EXPECT_NEAR(info.volume_m3(), 0.001, 1e-12);
  EXPECT_NEAR(info.mass_kg(), 2, 1e-9);
  const v1::CheckSceneResponse summary = scene::SummarizeScene(description);
  EXPECT_EQ(summary.bodies_size(), 2);
  EXPECT_GT(summary.device_bytes(), 0U);
  // A tet needs four colours, and a greedy colouring never more than one above the highest number of neighbours.
  EXPECT_GE(summary.color_count(), 4U);
  EXPECT_LE(summary.color_count(), 19U);
}

}  // namespace
}  // namespace palpate::server::encode_test
