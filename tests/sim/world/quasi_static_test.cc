// Tissue without inertia in running scenes: where nothing moves any more it is where the dynamic tissue would be, and cuts make it dynamic.
#include <gmock/gmock.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "sim/mesh/generators.h"
#include "sim/world/world.h"
#include "tests/sim/world/topology_checks.h"
#include "tests/sim/world/world_builders.h"
#include "tests/support/device_test.h"

namespace palpate::sim::quasi_static_test {
namespace {

using Eigen::Vector3d;
using test::BoxBody;
using test::HeldSide;
using test::ToolAt;
using ::testing::HasSubstr;

class QuasiStaticTest : public test::DeviceTest {
 protected:
  /// A linear bar along x, held at its low end, in three zones of equal length: the body itself, "middle", "end".
  static BodyDescription Bar(Simulation simulation) {
    BodyDescription body = BoxBody("bar", {0, 0, 0}, {10, 4, 4}, {0.12, 0.04, 0.04}, HeldSide::kLowX);
    body.simulation = simulation;
    body.material.model = MaterialModel::kLinear;
    body.material.young_modulus_pa = 200000;
    body.material.poisson_ratio = 0.3;
    body.material.damping_s = 0.02;
    for (const char* name : {"middle", "end"}) {
      body.zones.emplace_back();
      body.zones.back().name = name;
      body.zones.back().material = body.material;
    }
    for (const auto& tet : body.mesh.tets) {
      double x = 0;
      for (const uint32_t v : tet) x += body.mesh.vertices[v].x() / 4;
      body.tet_zones.push_back(x < -0.02 ? 0 : x < 0.02 ? 1 : 2);
    }
    return body;
  }
  static SceneDescription Scene(Simulation simulation) {
    SceneDescription scene;
    scene.solver.iterations = 60;
    scene.gravity_m_per_s2.z() = -4;
    scene.contact.check_intersections = true;
    scene.bodies = {Bar(simulation)};
    return scene;
  }
  static uint32_t ZoneCount(const BodyDescription& body, uint16_t zone) {
    return static_cast<uint32_t>(std::count(body.tet_zones.begin(), body.tet_zones.end(), zone));
  }
  static Edit Carve(const Vector3d& center_m, double radius_m) { return {.body = 0, .what = CarveEdit{BallRegion{center_m, radius_m}}}; }

  /// Steps with one tool, or none, that goes from where it is to `to` in `moving` steps and stays there.
  static void Run(World* world, int moving, int staying, const Vector3d& to, const std::function<void(const Frame&)>& look = {}) {
    ToolCommand command;
    const bool has_tool = !world->description().tools.empty();
    const Vector3d from = has_tool ? world->CurrentFrame()->tools[0].device_pose.position_m : Vector3d::Zero();
    for (int i = 1; i <= moving + staying; ++i) {
      command.device_pose.position_m = from + std::min(1.0, static_cast<double>(i) / std::max(moving, 1)) * (to - from);
      PALPATE_TEST_ASSIGN(const auto frame,
                          world->Step(has_tool ? std::vector<const ToolCommand*>{&command} : std::vector<const ToolCommand*>{}));
      ASSERT_EQ(frame->contact_statistics.intersection_count, 0U) << "step " << frame->step;
      ASSERT_EQ(frame->inverted_tets, 0U) << "step " << frame->step;
      if (look) look(*frame);
    }
  }
  static double LargestMove(const std::vector<float>& a, const std::vector<float>& b) {
    EXPECT_EQ(a.size(), b.size());
    double most = 0;
    for (size_t i = 0; i + 2 < std::min(a.size(), b.size()); i += 3) {
      most = std::max<double>(most, std::hypot(a[i] - b[i], a[i + 1] - b[i + 1], a[i + 2] - b[i + 2]));
    }
    return most;
  }
};

TEST_F(QuasiStaticTest, PressedBarEndsWhereTheDynamicOneDoes) {
  for (const ToolDrive drive : {ToolDrive::kDirect, ToolDrive::kCoupled}) {
    SCOPED_TRACE(drive == ToolDrive::kDirect ? "driven tool" : "coupled tool");
    Vector3d force[2];
    std::vector<float> shape[2];
    for (const Simulation simulation : {Simulation::kDynamic, Simulation::kPrecomputed}) {
      const size_t k = simulation == Simulation::kDynamic ? 0 : 1;
      SceneDescription scene = Scene(simulation);
      scene.tools = {ToolAt("tool", {0.045, 0.002, 0.027}, drive)};
      PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
      EXPECT_EQ(world->body_statistics()[0].quasi_static_tets, k == 0 ? 0U : scene.bodies[0].mesh.tets.size());
      double least_n = 1e9, most_n = 0;
      int stay = 0;
      ASSERT_NO_FATAL_FAILURE(Run(world.get(), 40, 260, {0.045, 0.002, 0.014}, [&](const Frame& frame) {
        if (++stay <= 250) return;
        least_n = std::min(least_n, frame.tools[0].force_n.norm());
        most_n = std::max(most_n, frame.tools[0].force_n.norm());
      }));
      // At rest: the force has settled.
      EXPECT_LT(most_n - least_n, 2e-3 * most_n);
      force[k] = world->CurrentFrame()->tools[0].force_n;
      PALPATE_TEST_ASSIGN(shape[k], world->ReadVolumePositions(0));
    }
    std::printf("%.4f N dynamic, %.4f N pre-computed\n", force[0].norm(), force[1].norm());
    EXPECT_GT(force[0].norm(), 0.2);
    EXPECT_LT((force[1] - force[0]).norm(), 0.02 * force[0].norm()) << force[0].transpose() << " and " << force[1].transpose();
    std::vector<float> rest;
    for (const Vector3d& v : Bar(Simulation::kDynamic).mesh.vertices) {
      for (int axis = 0; axis < 3; ++axis) rest.push_back(static_cast<float>(v[axis]));
    }
    const double moved_m = LargestMove(shape[0], rest);
    std::printf("moved %.3f mm, difference %.4f mm\n", moved_m * 1e3, LargestMove(shape[1], shape[0]) * 1e3);
    EXPECT_GT(moved_m, 0.005);
    EXPECT_LT(LargestMove(shape[1], shape[0]), 0.02 * moved_m);
  }
}

TEST_F(QuasiStaticTest, CarriesWhatLiesOnIt) {
  SceneDescription scene = Scene(Simulation::kPrecomputed);
  scene.bodies.push_back(BoxBody("block", {-0.02, 0.003, 0.0325}, {3, 3, 3}, {0.02, 0.02, 0.02}));
  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
  ASSERT_NO_FATAL_FAILURE(Run(world.get(), 0, 240, {}));
  Vector3d carried = Vector3d::Zero();
  for (const FrameSurfaceContact& contact : world->CurrentFrame()->surface_contacts) {
    carried += (contact.body_b == 1 ? 1.0 : -1.0) * contact.force_n.cast<double>();
  }
  EXPECT_NEAR(carried.z(), 4 * world->body_statistics()[1].mass_kg, 0.05 * 4 * world->body_statistics()[1].mass_kg);
  EXPECT_LT(world->CurrentFrame()->max_speed_m_per_s, 0.003);
}

TEST_F(QuasiStaticTest, SameCommandsGiveTheSameBits) {
  SceneDescription scene = Scene(Simulation::kHybrid);
  scene.tools = {ToolAt("tool", {0.045, 0.002, 0.027}, ToolDrive::kCoupled)};
  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
  std::vector<uint64_t> hashes[2];
  for (std::vector<uint64_t>& of_round : hashes) {
    const auto note = [&](const Frame& frame) { of_round.push_back(frame.state_hash); };
    ASSERT_NO_FATAL_FAILURE(Run(world.get(), 15, 5, {0.045, 0.002, 0.015}, note));
    PALPATE_ASSERT_OK(world->Apply(std::vector<Edit>{Carve({0.06, 0.02, -0.02}, 0.012)}).status());
    ASSERT_NO_FATAL_FAILURE(Run(world.get(), 5, 5, {0.04, 0.002, 0.015}, note));
    PALPATE_ASSERT_OK(world->Reset().status());
    EXPECT_EQ(world->body_statistics()[0].quasi_static_tets, scene.bodies[0].mesh.tets.size());
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

TEST_F(QuasiStaticTest, PrecomputedBodyRefusesCuts) {
  SceneDescription scene = Scene(Simulation::kPrecomputed);
  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
  const uint64_t version = world->CurrentFrame()->topology_version;
  const Edit refine = {.body = 0, .what = RefineEdit{ZoneRegion{"end"}, 0.005}};
  const Edit incise = {.body = 0,
                       .what = InciseEdit{{{Vector3d(0, 0, 0), Vector3d(0, 0, 0.1)}, {Vector3d(0, 0.1, 0), Vector3d(0, 0.1, 0.1)}}}};
  for (const Edit& edit : {Carve({0.06, 0.02, 0.02}, 0.01), refine, incise}) {
    const absl::Status status = world->Apply(std::vector<Edit>{edit}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("edits[0]"), HasSubstr("body bar is pre-computed")));
  }
  EXPECT_EQ(world->CurrentFrame()->topology_version, version);
  ASSERT_NO_FATAL_FAILURE(Run(world.get(), 0, 2, {}));
  EXPECT_EQ(world->WriteVolumePositions(0, std::vector<float>(10 * 4 * 4 * 3)).code(), absl::StatusCode::kFailedPrecondition);
  // Materials can change: the responses are computed anew. Ten times as stiff it hangs down a tenth as far.
  const auto sag_m = [&] {
    const auto x = world->ReadVolumePositions(0);
    EXPECT_TRUE(x.ok()) << x.status();
    return -0.02 - static_cast<double>((*x)[9 * 3 + 2]);
  };
  ASSERT_NO_FATAL_FAILURE(Run(world.get(), 0, 60, {}));
  const double before_m = sag_m();
  EXPECT_GT(before_m, 0.002);
  Material stiff = scene.bodies[0].material;
  stiff.young_modulus_pa *= 10;
  PALPATE_ASSERT_OK(world->Apply(std::vector<Edit>{{.body = 0, .what = MaterialEdit{"", stiff}}}).status());
  ASSERT_NO_FATAL_FAILURE(Run(world.get(), 0, 60, {}));
  EXPECT_NEAR(sag_m(), before_m / 10, 0.01 * before_m);
}

TEST_F(QuasiStaticTest, CutZonesBecomeDynamicWithoutAJump) {
  constexpr double kJump_m = 5e-5;  // of any vertex in a step: a two-hundredth of the way that the bar is bent
  const Vector3d pressed(0.02, 0.002, 0.018);
  std::vector<float> shape[2];
  Vector3d force[2];
  for (const Simulation simulation : {Simulation::kDynamic, Simulation::kHybrid}) {
    const size_t k = simulation == Simulation::kDynamic ? 0 : 1;
    SCOPED_TRACE(k == 0 ? "dynamic" : "hybrid");
    SceneDescription scene = Scene(simulation);
    scene.tools = {ToolAt("tool", {0.02, 0.002, 0.03}, ToolDrive::kCoupled)};
    PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
    ASSERT_NO_FATAL_FAILURE(Run(world.get(), 30, 230, pressed));
    EXPECT_GT(world->CurrentFrame()->tools[0].force_n.norm(), 0.2);
    // First a corner at the free end is taken away, where next to no stress is released; then tets in the middle, which carries the load,
    // are refined, which leaves the solid what it is.
    const double end_z = world->CurrentFrame()->surface_positions_m[0][3 * world->surfaces()[0].vertices.size() - 1];
    const Edit refine = {.body = 0, .what = RefineEdit{BallRegion{Vector3d(0, 0, -0.002), 0.006}, 0.012}};
    uint32_t quasi_static_tets = ZoneCount(scene.bodies[0], 0) + ZoneCount(scene.bodies[0], 1);
    for (const Edit& edit : {Carve({0.06, 0.02, end_z - 0.002}, 0.009), refine}) {
      const auto before = world->CurrentFrame();
      PALPATE_TEST_ASSIGN(const auto outcomes, world->Apply(std::vector<Edit>{edit}));
      EXPECT_GT(outcomes[0].removed_tets.size(), 0U);
      ASSERT_NO_FATAL_FAILURE(test::CheckTopology(*world, before->topology.get()));
      // The other zones are as they were.
      EXPECT_EQ(world->body_statistics()[0].quasi_static_tets, k == 1 ? quasi_static_tets : 0);
      quasi_static_tets = ZoneCount(scene.bodies[0], 0);
      std::vector<float> last = before->surface_positions_m[0];
      double last_n = before->tools[0].force_n.norm();
      double most_m = 0, most_n = 0;
      const auto now_at = world->CurrentFrame()->topology->bodies[0]->surface_vertices.values();
      const auto& before_at = before->topology->bodies[0]->surface_vertices.values();
      const auto look = [&](const std::vector<float>& x) {
        for (size_t i = 0; i < before_at.size(); ++i) {
          if (now_at[i] != before_at[i]) continue;
          const auto at = [&](const std::vector<float>& from) { return Vector3d(from[3 * i], from[3 * i + 1], from[3 * i + 2]); };
          most_m = std::max(most_m, (at(x) - at(last)).norm());
        }
        last = x;
      };
      look(world->CurrentFrame()->surface_positions_m[0]);
      ASSERT_NO_FATAL_FAILURE(Run(world.get(), 0, 20, pressed, [&](const Frame& frame) {
        look(frame.surface_positions_m[0]);
        most_n = std::max(most_n, std::abs(frame.tools[0].force_n.norm() - last_n));
        last_n = frame.tools[0].force_n.norm();
      }));
      std::printf("%s: largest move %.4f mm, largest change of the tool's force %.4f N of %.3f\n", k == 0 ? "dynamic" : "hybrid ",
                  most_m * 1e3, most_n, last_n);
      EXPECT_LT(most_m, kJump_m);
      EXPECT_LT(most_n, 0.01 * last_n);
    }
    // At rest again the two kinds of tissue hold each other as one would hold itself.
    ASSERT_NO_FATAL_FAILURE(Run(world.get(), 0, 300, pressed));
    PALPATE_TEST_ASSIGN(shape[k], world->ReadVolumePositions(0));
    force[k] = world->CurrentFrame()->tools[0].force_n;
  }
  std::printf("at rest: shapes within %.4f mm, %.4f N dynamic, %.4f N hybrid\n", LargestMove(shape[0], shape[1]) * 1e3, force[0].norm(),
              force[1].norm());
  ASSERT_EQ(shape[0].size(), shape[1].size());
  EXPECT_LT(LargestMove(shape[0], shape[1]), 1e-4);
  EXPECT_LT((force[0] - force[1]).norm(), 0.01 * force[0].norm());
}

TEST_F(QuasiStaticTest, ZonesThatNothingHoldsBecomeDynamicToo) {
  // The middle is sawn through: the end hangs on nothing and falls; the zone at the wall stays as it is.
  SceneDescription scene = Scene(Simulation::kHybrid);
  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
  ASSERT_NO_FATAL_FAILURE(Run(world.get(), 0, 30, {}));
  std::vector<Edit> edits;
  for (const double z : {-0.015, 0.0, 0.015}) {
    edits.push_back({.body = 0, .what = CarveEdit{CapsuleRegion{{0, -0.05, z - 0.001}, {0, 0.05, z - 0.001}, 0.0095}}});
  }
  PALPATE_ASSERT_OK(world->Apply(edits).status());
  ASSERT_EQ(world->body_statistics().size(), 2U);
  EXPECT_EQ(world->body_statistics()[0].quasi_static_tets + world->body_statistics()[1].quasi_static_tets, ZoneCount(scene.bodies[0], 0));
  ASSERT_NO_FATAL_FAILURE(test::CheckTopology(*world, nullptr));
  ASSERT_NO_FATAL_FAILURE(Run(world.get(), 0, 60, {}));
  double lowest = 0, highest = -1;
  for (const std::vector<float>& x : world->CurrentFrame()->surface_positions_m) {
    for (size_t i = 2; i < x.size(); i += 3) {
      lowest = std::min<double>(lowest, x[i]);
      highest = std::max<double>(highest, x[i]);
    }
  }
  EXPECT_LT(lowest, -0.4);  // g t^2 / 2 = 0.5 m
  EXPECT_GT(highest, 0.01);
  // What has fallen off can be cut like any other tissue.
  for (const char* name : {"bar", "bar.1"}) {
    const auto found = std::find_if(world->body_statistics().begin(), world->body_statistics().end(),
                                    [&](const BodyStatistics& body) { return body.name == name; });
    ASSERT_NE(found, world->body_statistics().end());
    const auto b = static_cast<size_t>(found - world->body_statistics().begin());
    const Edit refine = {.body = b, .what = RefineEdit{BallRegion{Vector3d(-0.06, 0.02, 0.02), 0.02}, 0.01}};
    PALPATE_ASSERT_OK(world->Apply(std::vector<Edit>{refine}).status());
  }
  EXPECT_EQ(world->body_statistics()[0].quasi_static_tets + world->body_statistics()[1].quasi_static_tets, 0U);
  ASSERT_NO_FATAL_FAILURE(Run(world.get(), 0, 10, {}));
}

TEST_F(QuasiStaticTest, RefusesWhatItCannotSimulate) {
  const auto error_of = [&](const std::function<void(BodyDescription&)>& change) {
    SceneDescription scene = Scene(Simulation::kPrecomputed);
    change(scene.bodies[0]);
    const auto world = World::Create(context(), scene);
    EXPECT_FALSE(world.ok());
    EXPECT_EQ(world.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(world.status().message());
  };
  EXPECT_THAT(error_of([](BodyDescription& body) { body.fixed_vertices.clear(); }), AllOf(HasSubstr("body bar"), HasSubstr("do not hold")));
  EXPECT_THAT(error_of([](BodyDescription& body) { body.fixed_vertices.resize(2); }), HasSubstr("the 2 fixed vertices"));
  EXPECT_THAT(error_of([](BodyDescription& body) { body.loads.emplace_back(); }), HasSubstr("bodies[0] (bar): loads"));
  EXPECT_THAT(error_of([](BodyDescription& body) { body.driven_regions.emplace_back(); }), HasSubstr("driven_regions"));
  EXPECT_THAT(error_of([](BodyDescription& body) { body.velocity_m_per_s.x() = 1; }), HasSubstr("velocity_m_per_s"));
}

}  // namespace
}  // namespace palpate::sim::quasi_static_test
