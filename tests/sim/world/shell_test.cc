// Bodies that are shells, in running scenes.
#include <Eigen/Dense>
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "sim/mesh/surface_generators.h"
#include "sim/world/world.h"
#include "tests/sim/world/world_builders.h"
#include "tests/support/device_test.h"

namespace palpate::sim::shell_test {
namespace {

using Eigen::Vector3d;

/// A shell of cotton-like material on a surface that has been moved.
BodyDescription Shell(const std::string& name, const absl::StatusOr<SurfaceMesh>& surface, const Vector3d& shift_m = {0, 0, 0}) {
  BodyDescription body;
  body.name = name;
  EXPECT_TRUE(surface.ok()) << surface.status();
  if (!surface.ok()) return body;
  for (const Vector3d& x : surface->vertices) body.mesh.vertices.push_back(x + shift_m);
  body.shell.emplace();
  body.shell->triangles = surface->triangles;
  body.shell->thickness_m = 0.0005;
  body.material.young_modulus_pa = 2e5;
  body.material.poisson_ratio = 0.3;
  body.material.density_kg_per_m3 = 300;
  return body;
}

Vector3d At(const std::vector<float>& positions, size_t vertex) {
  return {positions[3 * vertex], positions[3 * vertex + 1], positions[3 * vertex + 2]};
}

class WorldShellTest : public test::DeviceTest {
 protected:
  /// The frame after some steps; with_contact: none of them has an intersection.
  std::shared_ptr<const Frame> Run(World& world, int steps) {
    std::shared_ptr<const Frame> frame = world.CurrentFrame();
    for (int i = 0; i < steps; ++i) {
      const auto next = world.Step({});
      EXPECT_TRUE(next.ok()) << next.status();
      if (!next.ok()) return frame;
      frame = *next;
      EXPECT_EQ(frame->contact_statistics.intersection_count, 0U) << "step " << i;
      if (testing::Test::HasFailure()) return frame;
    }
    return frame;
  }
};

TEST_F(WorldShellTest, ASheetFallsOnABallAndFolds) {
  SceneDescription scene;
  scene.bodies = {Shell("gauze", GenerateSheetSurface(0.16, 0.12, 0.008), {0.004, 0.002, 0.045})};
  scene.obstacles = {{"ball", SphereShape{{0, 0, 0}, 0.04}}, {"floor", PlaneShape{{0, 0, -0.04}, {0, 0, 1}}}};
  scene.contact.check_intersections = true;
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  const auto frame = Run(*world, 150);
  const std::vector<float>& x = frame->surface_positions_m[0];
  double lowest = 1;
  double nearest = 1;
  for (size_t v = 0; 3 * v < x.size(); ++v) {
    lowest = std::min(lowest, At(x, v).z());
    nearest = std::min(nearest, At(x, v).norm() - 0.04);
  }
  EXPECT_LT(lowest, 0.0) << "its corners hang down";
  EXPECT_GT(lowest, -0.0401);
  EXPECT_GT(nearest, 0.00025) << "half of its thickness stays between";
}

/// Planes between its own parts stand in the world while it moves on; its triangles are uneven.
TEST_F(WorldShellTest, AThrownSheetKeepsItsMomentum) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> shift_m(-0.0014, 0.0014);
  absl::StatusOr<SurfaceMesh> disc = GenerateDiscSurface(0.05, 0.006);
  ASSERT_TRUE(disc.ok()) << disc.status();
  for (Vector3d& x : disc->vertices) x += Vector3d(shift_m(random), shift_m(random), 0);
  for (const double speed_m_per_s : {0.05, 0.2}) {
    for (const double angle : {0.8, 1.3}) {
      SceneDescription scene;
      scene.bodies = {Shell("gauze", disc)};
      scene.bodies[0].velocity_m_per_s = {speed_m_per_s * std::cos(angle), speed_m_per_s * std::sin(angle), 0};
      scene.gravity_m_per_s2 = {0, 0, 0};
      scene.contact.check_intersections = true;
      PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
      const auto frame = Run(*world, 60);
      if (HasFailure()) return;
      const Vector3d way_m = 60 * scene.dt_s * Vector3d(scene.bodies[0].velocity_m_per_s);
      for (size_t v = 0; v < scene.bodies[0].mesh.vertices.size(); ++v) {
        ASSERT_LT((At(frame->surface_positions_m[0], v) - scene.bodies[0].mesh.vertices[v] - way_m).norm(), 2e-5)
            << "vertex " << v << ", " << speed_m_per_s << " m/s, " << angle << " rad";
      }
    }
  }
}

TEST_F(WorldShellTest, SheetsLieOnEachOtherWithTheirThicknessBetween) {
  SceneDescription scene;
  scene.gravity_m_per_s2 = {0, 0, -9.81};
  scene.contact.margin_m = 0.001;
  scene.obstacles = {{"floor", PlaneShape{{0, 0, 0}, {0, 0, 1}}}};
  for (int k = 0; k < 2; ++k) {
    scene.bodies.push_back(Shell(k == 0 ? "felt" : "gauze", GenerateDiscSurface(0.03, 0.01), {0, 0.002 * k, 0.0015 + 0.0025 * k}));
    scene.bodies.back().shell->thickness_m = k == 0 ? 0.001 : 0.0005;
    scene.bodies.back().material.mass_damping_per_s = 5;
  }
  scene.contact.check_intersections = true;
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  const auto frame = Run(*world, 90);
  double lower_m = 0;
  double upper_m = 0;
  const size_t count = scene.bodies[0].mesh.vertices.size();
  for (size_t v = 0; v < count; ++v) {
    lower_m += At(frame->surface_positions_m[0], v).z() / static_cast<double>(count);
    upper_m += At(frame->surface_positions_m[1], v).z() / static_cast<double>(count);
  }
  ASSERT_FALSE(frame->surface_contacts.empty());
  // So light, they begin to push and no more: at the margin and half of each thickness.
  EXPECT_NEAR(lower_m, 0.001 + 0.0005, 0.0001);
  EXPECT_NEAR(upper_m - lower_m, 0.001 + 0.0005 + 0.00025, 0.0001);
  // 2 pi R^2 / 2 of both.
  EXPECT_NEAR(world->body_statistics()[0].mass_kg, 300 * 0.001 * std::numbers::pi * 0.03 * 0.03, 0.06 * 300 * 0.001 * 0.0028);
}

TEST_F(WorldShellTest, ToolsPushAMembraneFromEitherSide) {
  for (const double side : {1.0, -1.0}) {
    SceneDescription scene;
    scene.gravity_m_per_s2.setZero();
    scene.bodies = {Shell("membrane", GenerateDiscSurface(0.05, 0.01))};
    BodyDescription& body = scene.bodies[0];
    for (uint32_t v = 0; v < body.mesh.vertices.size(); ++v) {
      if (body.mesh.vertices[v].norm() > 0.049) body.fixed_vertices.push_back(v);
    }
    ToolDescription tool = test::ToolAt("probe", {0.003, 0.002, side * 0.012}, ToolDrive::kDirect);
    if (side < 0) tool.rest_pose.rotation = Eigen::Quaterniond(0, 1, 0, 0);  // from below
    tool.radius_m = 0.005;
    scene.tools = {tool};
    PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
    std::shared_ptr<const Frame> frame;
    ToolCommand command;
    command.device_pose = tool.rest_pose;
    for (int i = 0; i < 50; ++i) {
      command.device_pose.position_m.z() -= side * 0.0004;
      frame = test::Step(*world, {command});
    }
    const double depth_m = -side * At(frame->surface_positions_m[0], 0).z();
    EXPECT_GT(depth_m, 0.008) << "the tool is at " << frame->tools[0].pose.position_m.transpose();
    EXPECT_GT(side * frame->tools[0].force_n.z(), 0.05) << "the membrane pushes it back";
    for (size_t v = 0; 3 * v < frame->surface_positions_m[0].size(); ++v) {
      const Vector3d x = At(frame->surface_positions_m[0], v);
      const Vector3d tip_m = frame->tools[0].pose.position_m;
      EXPECT_TRUE(x.head<2>().norm() > 0.02 || (x - tip_m).norm() > 0.005 + 0.0001) << "vertex " << v << " at " << x.transpose();
    }
    // And out again: nothing sticks.
    for (int i = 0; i < 50; ++i) {
      command.device_pose.position_m.z() += side * 0.0004;
      frame = test::Step(*world, {command});
    }
    EXPECT_LT(frame->tools[0].force_n.norm(), 1e-3);
    EXPECT_LT(std::abs(At(frame->surface_positions_m[0], 0).z()), 0.003);
  }
}

TEST_F(WorldShellTest, ASphereUnderPressureGrowsAsTheMembraneSays) {
  constexpr double kRadius_m = 0.03;
  SceneDescription scene;
  scene.gravity_m_per_s2.setZero();
  scene.bodies = {Shell("balloon", GenerateSphereSurface(kRadius_m, 0.01))};
  BodyDescription& body = scene.bodies[0];
  body.material.mass_damping_per_s = 40;
  body.material.model = MaterialModel::kStVenantKirchhoff;
  LoadDescription pressure;
  for (uint32_t v = 0; v < body.mesh.vertices.size(); ++v) pressure.vertices.push_back(v);
  pressure.pressure_pa = -100;
  body.loads = {pressure};
  body.self_collision = false;
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  const auto frame = Run(*world, 100);
  double radius_m = 0;
  const size_t count = body.mesh.vertices.size();
  for (size_t v = 0; v < count; ++v) radius_m += At(frame->surface_positions_m[0], v).norm() / static_cast<double>(count);
  // p pi r^2 = 2 pi R h S lambda with S = E / (1 - nu) (lambda^2 - 1) / 2 of the reference stress, lambda = r / R.
  const double modulus = body.material.young_modulus_pa / (1 - body.material.poisson_ratio);
  double stretch = 1;
  for (int i = 0; i < 50; ++i) {
    stretch = std::sqrt(1 + 2 * 100 * kRadius_m * stretch / (2 * body.shell->thickness_m * modulus));
  }
  EXPECT_GT(stretch, 1.009);
  EXPECT_NEAR(radius_m / kRadius_m - 1, stretch - 1, 0.08 * (stretch - 1));
}

std::array<Vector3d, 3> CornersOf(const std::vector<float>& positions, const std::array<SurfaceSlot, 3>& triangle) {
  return {At(positions, static_cast<size_t>(triangle[0])), At(positions, static_cast<size_t>(triangle[1])),
          At(positions, static_cast<size_t>(triangle[2]))};
}

/// m^3, within a body's surface; of a closed one.
double EnclosedVolume(const Frame& frame, size_t body) {
  double sum = 0;
  const BodyArrays& arrays = *frame.topology->bodies[body];
  const std::vector<float>& x = frame.surface_positions_m[body];
  for (const auto& triangle : arrays.surface_triangles) {
    if (triangle == kFreeTriangle) continue;
    const std::array<Vector3d, 3> at = CornersOf(x, triangle);
    sum += at[0].dot(at[1].cross(at[2])) / 6;
  }
  return sum;
}

/// A bladder of 30 mm about the origin, with a filling.
SceneDescription Bladder(double volume_stiffness_pa, double edge_m = 0.008) {
  SceneDescription scene;
  scene.gravity_m_per_s2.setZero();
  scene.bodies = {Shell("bladder", GenerateSphereSurface(0.03, edge_m))};
  BodyDescription& body = scene.bodies[0];
  body.material.model = MaterialModel::kStVenantKirchhoff;
  body.material.mass_damping_per_s = 20;
  body.material.young_modulus_pa = 5e4;
  body.material.density_kg_per_m3 = 1000;
  body.shell->thickness_m = 0.002;
  body.volume_stiffness_pa = volume_stiffness_pa;
  return scene;
}

// Membrane and filling bear a pressure from outside side by side: 2 T / r of Laplace's law for the one, k for the other.
TEST_F(WorldShellTest, AFillingBearsPressureBesideItsMembrane) {
  const double membrane_pa = 2 * 5e4 * 0.002 / (3 * (1 - 0.3) * 0.03);  // dp / (dV / V)
  for (const double k : {0.0, membrane_pa, 10 * membrane_pa, 1e6}) {
    SceneDescription scene = Bladder(k);
    BodyDescription& body = scene.bodies[0];
    body.self_collision = false;
    LoadDescription pressure;
    for (uint32_t v = 0; v < body.mesh.vertices.size(); ++v) pressure.vertices.push_back(v);
    pressure.pressure_pa = -60;  // outwards, or it would buckle
    body.loads = {pressure};
    PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
    const double rest_m3 = EnclosedVolume(*world->CurrentFrame(), 0);
    const double grown = EnclosedVolume(*Run(*world, 150), 0) / rest_m3 - 1;
    const double expected = 60 / (k + membrane_pa);
    EXPECT_NEAR(grown, expected, 0.09 * expected + 2e-6) << k << " Pa";
  }
}

// Pressed onto a floor: what it presses back with is the pressure of its filling, over what touches the floor.
TEST_F(WorldShellTest, APressedBladderKeepsItsVolumeAndPressesBack) {
  constexpr double kStiffness_pa = 2e5;
  for (const double k : {0.0, kStiffness_pa}) {
    SceneDescription scene = Bladder(k, 0.005);
    BodyDescription& body = scene.bodies[0];
    body.material.young_modulus_pa = 2e4;
    scene.contact.check_intersections = true;
    scene.obstacles = {{"floor", PlaneShape{{0, 0, -0.032}, {0, 0, 1}}}};
    DrivenRegion cap;  // its top goes down
    for (uint32_t v = 0; v < body.mesh.vertices.size(); ++v) {
      if (body.mesh.vertices[v].z() < 0.02) continue;
      body.fixed_vertices.push_back(v);
      cap.vertices.push_back(v);
    }
    cap.velocity_m_per_s = {0, 0, -0.015};
    cap.duration_s = 1;
    body.driven_regions = {cap};
    PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
    const double rest_m3 = EnclosedVolume(*world->CurrentFrame(), 0);
    const auto frame = Run(*world, static_cast<int>(2 / scene.dt_s));
    const double lost = 1 - EnclosedVolume(*frame, 0) / rest_m3;
    if (k == 0) {
      EXPECT_GT(lost, 0.05) << "nothing keeps it";
      continue;
    }
    EXPECT_LT(lost, 0.005);
    // Of the floor: thirds of triangles whose corners touch.
    const BodyArrays& arrays = *frame->topology->bodies[0];
    const std::vector<float>& x = frame->surface_positions_m[0];
    double low_m = 1, area_m2 = 0, floor_n = 0;
    for (size_t v = 0; 3 * v < x.size(); ++v) low_m = std::min(low_m, At(x, v).z());
    for (const auto& triangle : arrays.surface_triangles) {
      const std::array<Vector3d, 3> at = CornersOf(x, triangle);
      const auto touching = std::count_if(at.begin(), at.end(), [&](const Vector3d& corner) { return corner.z() < low_m + 0.0005; });
      area_m2 += (at[1] - at[0]).cross(at[2] - at[0]).norm() / 2 * static_cast<double>(touching) / 3;
    }
    for (const FrameContact& contact : frame->contacts) floor_n += contact.force_n.z();
    const double pressure_pa = kStiffness_pa * lost;
    EXPECT_GT(pressure_pa, 50);
    EXPECT_NEAR(pressure_pa * area_m2, floor_n, 0.15 * floor_n) << area_m2 << " m^2";
  }
}

/// A rigid ball that presses a bladder onto a floor, both under it and above it.
struct BallOnBladder {
  double edge_m = 0.005;
  double radius_m = 0.06;  // of the ball
  double pressure_pa = 0;  // inside, whatever the volume
  double volume_stiffness_pa = 0;
  double way_m = 0.03;
  ToolDrive drive = ToolDrive::kDirect;

  SceneDescription Scene() const {
    SceneDescription scene = Bladder(volume_stiffness_pa, edge_m);
    BodyDescription& body = scene.bodies[0];
    body.material.young_modulus_pa = 2e4;
    if (pressure_pa > 0) {
      LoadDescription load;
      for (uint32_t v = 0; v < body.mesh.vertices.size(); ++v) load.vertices.push_back(v);
      load.pressure_pa = -pressure_pa;
      body.loads = {load};
    }
    scene.obstacles = {{"floor", PlaneShape{{0, 0, -0.032}, {0, 0, 1}}}};
    ToolDescription ball = test::ToolAt("ball", {0, 0, 0.033 + radius_m}, drive);
    ball.radius_m = radius_m;
    ball.length_m = 0.001;
    scene.tools = {ball};
    return scene;
  }
  /// The command of step `i`: down at 60 mm/s, then it is held.
  ToolCommand Command(const SceneDescription& scene, int i) const {
    ToolCommand command;
    command.device_pose = scene.tools[0].rest_pose;
    command.device_pose.position_m.z() -= std::min(way_m, 0.06 * (i + 1) * scene.dt_s);
    return command;
  }
  int PressSteps(const SceneDescription& scene) const { return static_cast<int>(way_m / 0.06 / scene.dt_s) + 1; }
};

double FloorForce(const Frame& frame) {
  double sum_n = 0;
  for (const FrameContact& contact : frame.contacts) sum_n += contact.tool_index == kObstacleContact ? contact.force_n.z() : 0;
  return sum_n;
}

/// m^2, thirds of triangles whose corners a ball touches.
double AreaAtBall(const Frame& frame, double touch_m) {
  double sum_m2 = 0;
  const BodyArrays& arrays = *frame.topology->bodies[0];
  for (const auto& triangle : arrays.surface_triangles) {
    const std::array<Vector3d, 3> at = CornersOf(frame.surface_positions_m[0], triangle);
    const auto touching =
        std::count_if(at.begin(), at.end(), [&](const Vector3d& x) { return (x - frame.tools[0].pose.position_m).norm() < touch_m; });
    sum_m2 += (at[1] - at[0]).cross(at[2] - at[0]).norm() / 2 * static_cast<double>(touching) / 3;
  }
  return sum_m2;
}

// Each vertex that the ball presses flat is held by a contact of its own: all comes to rest, tool and floor feel the same force, and it is
// the pressure over the area that touches, besides what the bent rim of that bears.
TEST_F(WorldShellTest, ABladderUnderPressureLiesStillUnderALargeBall) {
  const std::array<BallOnBladder, 5> cases = {{{.pressure_pa = 300},
                                               {.radius_m = 0.3, .pressure_pa = 300},
                                               {.pressure_pa = 600, .way_m = 0.045},
                                               {.edge_m = 0.008, .pressure_pa = 300, .way_m = 0.02},
                                               {.pressure_pa = 300, .drive = ToolDrive::kCoupled}}};
  for (const BallOnBladder& ball : cases) {
    SCOPED_TRACE(testing::Message() << ball.pressure_pa << " Pa, ball of " << ball.radius_m << " m, " << ball.way_m << " m deep");
    SceneDescription scene = ball.Scene();
    scene.contact.check_intersections = true;
    PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
    std::shared_ptr<const Frame> frame;
    double most_j = 0, least_n = 1e9, most_n = 0;
    const int held = ball.PressSteps(scene) + 60;
    for (int i = 0; i < held + 40; ++i) {
      frame = test::Step(*world, {ball.Command(scene, i)});
      ASSERT_EQ(frame->contact_statistics.intersection_count, 0U) << i;
      if (i < held) continue;
      most_j = std::max(most_j, frame->kinetic_energy_j);
      least_n = std::min(least_n, frame->tools[0].force_n.z());
      most_n = std::max(most_n, frame->tools[0].force_n.z());
    }
    EXPECT_LT(most_j, 1e-9);
    EXPECT_LT(most_n - least_n, 0.005 * most_n);
    EXPECT_GT(least_n, 0.3);
    EXPECT_NEAR(FloorForce(*frame), most_n, 0.005 * most_n);
    const double area_m2 = AreaAtBall(*frame, ball.radius_m + 0.002 + 0.0002);
    EXPECT_NEAR(ball.pressure_pa * area_m2, most_n, 0.12 * most_n) << area_m2 << " m^2";
  }
}

TEST_F(WorldShellTest, AFilledBladderKeepsItsVolumeUnderALargeBall) {
  double before_n = 0;
  for (const double k : {0.0, 2e5, 2e6}) {
    const BallOnBladder ball{.volume_stiffness_pa = k};
    const SceneDescription scene = ball.Scene();
    PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
    const double rest_m3 = EnclosedVolume(*world->CurrentFrame(), 0);
    std::shared_ptr<const Frame> frame;
    for (int i = 0; i < ball.PressSteps(scene) + (k == 0 ? 0 : 60); ++i) frame = test::Step(*world, {ball.Command(scene, i)});
    const double lost = 1 - EnclosedVolume(*frame, 0) / rest_m3;
    const double force_n = frame->tools[0].force_n.z();
    if (k == 0) {
      EXPECT_GT(lost, 0.2) << "nothing keeps it";
      continue;
    }
    EXPECT_LT(frame->kinetic_energy_j, 1e-9);
    EXPECT_GT(lost, 0);
    EXPECT_LT(lost, 500 / k) << k << " Pa";
    EXPECT_NEAR(FloorForce(*frame), force_n, 0.005 * force_n);
    EXPECT_NEAR(k * lost * AreaAtBall(*frame, ball.radius_m + 0.002 + 0.0002), force_n, 0.12 * force_n);
    EXPECT_NEAR(force_n, before_n, before_n > 0 ? 0.03 * before_n : 1e9) << "stiffer fillings hardly differ";
    before_n = force_n;
  }
}

// Coarse meshes are near what fine ones converge to (edges of 1.8 mm, measured once).
TEST_F(WorldShellTest, AMembraneFeelsABallAlikeHoweverFineItIs) {
  struct Case {
    double radius_m, edge_m, fine_n, tolerance;
  };
  const std::array<Case, 4> cases = {
      {{0.03, 0.007, 0.01039, 0.045}, {0.03, 0.005, 0.01039, 0.03}, {0.01, 0.007, 0.00759, 0.15}, {0.01, 0.005, 0.00759, 0.08}}};
  for (const Case& c : cases) {
    SceneDescription scene;
    scene.gravity_m_per_s2.setZero();
    scene.bodies = {Shell("membrane", GenerateDiscSurface(0.05, c.edge_m))};
    BodyDescription& body = scene.bodies[0];
    body.material.mass_damping_per_s = 20;
    body.material.young_modulus_pa = 2e4;
    scene.solver.iterations = 60;
    LoadDescription load;  // next to nothing, so that tools push its vertices
    load.pressure_pa = 1e-6;
    for (uint32_t v = 0; v < body.mesh.vertices.size(); ++v) load.vertices.push_back(v);
    body.loads = {load};
    for (uint32_t v = 0; v < body.mesh.vertices.size(); ++v) {
      if (body.mesh.vertices[v].norm() > 0.0499) body.fixed_vertices.push_back(v);
    }
    ToolDescription ball = test::ToolAt("ball", {0, 0, c.radius_m + 0.002}, ToolDrive::kDirect);
    ball.radius_m = c.radius_m;
    ball.length_m = 0.001;
    scene.tools = {ball};
    PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
    ToolCommand command;
    command.device_pose = ball.rest_pose;
    std::shared_ptr<const Frame> frame;
    for (int i = 0; i < 160; ++i) {
      if (i < 60) command.device_pose.position_m.z() -= 0.012 / 60;
      frame = test::Step(*world, {command});
    }
    EXPECT_NEAR(frame->tools[0].force_n.z(), c.fine_n, c.tolerance * c.fine_n) << c.radius_m << " m, edges of " << c.edge_m << " m";
  }
}

TEST_F(WorldShellTest, AStateUnderABallGoesOnWithTheSameBits) {
  const BallOnBladder ball{.edge_m = 0.008, .pressure_pa = 300, .way_m = 0.02, .drive = ToolDrive::kCoupled};
  const SceneDescription scene = ball.Scene();
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  const int middle = ball.PressSteps(scene) / 2 + 10;
  for (int i = 0; i < middle; ++i) test::Step(*world, {ball.Command(scene, i)});
  EXPECT_GT(world->CurrentFrame()->tools[0].contact_count, 3U);
  PALPATE_TEST_ASSIGN(const std::shared_ptr<const WorldState> state, world->Capture());
  PALPATE_TEST_ASSIGN(auto other, World::Restore(context(), scene, *state));
  for (int i = middle; i < middle + 15; ++i) {
    const auto a = test::Step(*world, {ball.Command(scene, i)}), b = test::Step(*other, {ball.Command(scene, i)});
    ASSERT_EQ(a->state_hash, b->state_hash) << i;
    ASSERT_EQ(a->tools[0].force_n, b->tools[0].force_n) << i;
  }
}

/// A disc of cloth that is held inside three fifths of its radius and hangs freely around that, as in Cusick's drape tester.
struct Drape {
  double radius_m = 0.15;
  int rings = 10;                  // a multiple of five, so that one of them is the border of what is held
  double bending_length_m = 0.02;  // c = (B / (w g))^(1/3) of Peirce
  double membrane_lengths = 50;    // Eh / (w g radius)

  SceneDescription Scene() const {
    constexpr double kWeight_n_per_m2 = 0.2 * 9.81;
    SceneDescription scene;
    scene.gravity_m_per_s2 = {0, 0, -9.81};
    scene.solver.iterations = 60;
    scene.contact.check_intersections = true;
    scene.contact.margin_m = 0.0005;
    scene.bodies = {Shell("cloth", GenerateDiscSurface(radius_m, radius_m / rings))};
    BodyDescription& body = scene.bodies[0];
    body.material.model = MaterialModel::kStVenantKirchhoff;
    body.material.density_kg_per_m3 = 0.2 / body.shell->thickness_m;
    body.material.young_modulus_pa = membrane_lengths * kWeight_n_per_m2 * radius_m / body.shell->thickness_m;
    body.material.mass_damping_per_s = 4;
    body.shell->bending_stiffness_n_m = kWeight_n_per_m2 * std::pow(bending_length_m, 3);
    for (uint32_t v = 0; v < body.mesh.vertices.size(); ++v) {
      // A nudge that tells where to fold, a thousandth of the radius.
      Vector3d& x = body.mesh.vertices[v];
      if (x.norm() <= 0.6001 * radius_m) {
        body.fixed_vertices.push_back(v);
      } else {
        x.z() += 1e-3 * radius_m * std::sin(3 * std::atan2(x.y(), x.x()));
      }
    }
    return scene;
  }

  /// Area of the shadow beyond the held disc, as a share of that of the flat cloth there.
  double CoefficientOf(const SceneDescription& scene, const Frame& frame) const {
    constexpr int kCells = 400;
    const double cell_m = 2 * radius_m / kCells;
    std::vector<uint8_t> is_dark(size_t{kCells} * kCells, 0);
    const auto in_cells = [&](uint32_t v) -> Eigen::Vector2d {
      return (At(frame.surface_positions_m[0], v).head<2>() + Eigen::Vector2d::Constant(radius_m)) / cell_m;
    };
    for (const auto& triangle : scene.bodies[0].shell->triangles) {
      const std::array<Eigen::Vector2d, 3> p = {in_cells(triangle[0]), in_cells(triangle[1]), in_cells(triangle[2])};
      const auto side = [&](size_t k, const Eigen::Vector2d& at) {
        const Eigen::Vector2d along = p[(k + 1) % 3] - p[k], to = at - p[k];
        return along.x() * to.y() - along.y() * to.x();
      };
      const auto bound = [&](int axis, auto pick) {
        return std::clamp(static_cast<int>(std::floor(pick({p[0][axis], p[1][axis], p[2][axis]}))), 0, kCells - 1);
      };
      const auto least = [](std::initializer_list<double> x) { return std::min(x); };
      const auto most = [](std::initializer_list<double> x) { return std::max(x); };
      for (int j = bound(1, least); j <= bound(1, most); ++j) {
        for (int i = bound(0, least); i <= bound(0, most); ++i) {
          const Eigen::Vector2d at(i + 0.5, j + 0.5);
          const double a = side(0, at), b = side(1, at), c = side(2, at);
          if ((a >= 0 && b >= 0 && c >= 0) || (a <= 0 && b <= 0 && c <= 0)) is_dark[static_cast<size_t>(j * kCells + i)] = 1;
        }
      }
    }
    const double shadow_m2 = static_cast<double>(std::count(is_dark.begin(), is_dark.end(), 1)) * cell_m * cell_m;
    const double held_m2 = std::numbers::pi * 0.36 * radius_m * radius_m;
    return (shadow_m2 - held_m2) / (held_m2 / 0.36 - held_m2);
  }
};

// The drape coefficient grows with the bending length, from cloth that hangs down to a board, and is the same for cloth of another size
// that is like it. Finer meshes may hang in other folds: that moves it by some hundredths, as other folds of one cloth do in the tester.
TEST_F(WorldShellTest, ClothDrapesByItsBendingLength) {
  const auto measure = [&](const Drape& drape) {
    const SceneDescription scene = drape.Scene();
    auto world = World::Create(context(), scene);
    EXPECT_TRUE(world.ok()) << world.status();
    if (!world.ok()) return 0.0;
    const auto frame = Run(**world, 360);
    EXPECT_LT(frame->max_speed_m_per_s, 0.02 * drape.radius_m) << "it hangs still";
    return drape.CoefficientOf(scene, *frame);
  };
  const double supple = measure({.bending_length_m = 0.012});
  const double cotton = measure({.bending_length_m = 0.02});
  const double stiff = measure({.bending_length_m = 0.035});
  const double board = measure({.bending_length_m = 0.1});
  EXPECT_GT(supple, 0.05);
  EXPECT_GT(cotton, supple + 0.15);
  EXPECT_GT(stiff, cotton + 0.3);
  EXPECT_GT(board, 0.97);
  EXPECT_LE(board, 1.001);
  EXPECT_NEAR(measure({.radius_m = 0.3, .bending_length_m = 0.04}), cotton, 0.003) << "twice the size";
  EXPECT_NEAR(measure({.rings = 15}), cotton, 0.08) << "a finer mesh";
}

TEST_F(WorldShellTest, ZonesStretchByTheirOwnStiffness) {
  constexpr double kLength_m = 0.08, kWidth_m = 0.02, kForce_n = 0.02;
  SceneDescription scene;
  scene.gravity_m_per_s2.setZero();
  scene.solver.iterations = 60;
  scene.bodies = {Shell("strip", GenerateSheetSurface(kLength_m, kWidth_m, 0.005))};
  BodyDescription& body = scene.bodies[0];
  body.material.model = MaterialModel::kStVenantKirchhoff;
  body.material.poisson_ratio = 0;
  body.material.young_modulus_pa = 8e4;
  body.material.mass_damping_per_s = 30;
  body.self_collision = false;
  ZoneDescription cuff;
  cuff.name = "cuff";
  cuff.material = body.material;
  cuff.material.young_modulus_pa = 2e5;
  cuff.shell.thickness_m = 0.001;
  body.zones = {cuff};
  const auto x_of = [&](uint32_t v) { return body.mesh.vertices[v].x(); };
  for (const auto& [a, b, c] : body.shell->triangles) body.tet_zones.push_back((x_of(a) + x_of(b) + x_of(c)) / 3 > 0 ? 1 : 0);
  LoadDescription pull;
  pull.force_n = {kForce_n, 0, 0};
  double border_m = 1;  // where the zones meet: the mean over its rugged line
  std::vector<uint32_t> middle;
  for (uint32_t v = 0; v < body.mesh.vertices.size(); ++v) {
    if (x_of(v) < -kLength_m / 2 + 1e-6) body.fixed_vertices.push_back(v);
    if (x_of(v) > kLength_m / 2 - 1e-6) pull.vertices.push_back(v);
    if (std::abs(x_of(v)) < std::abs(border_m)) border_m = x_of(v);
  }
  for (uint32_t v = 0; v < body.mesh.vertices.size(); ++v) {
    if (std::abs(x_of(v) - border_m) < 1e-6) middle.push_back(v);
  }
  body.loads = {pull};
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  const auto frame = Run(*world, 300);
  const auto shift_of = [&](const std::vector<uint32_t>& vertices) {
    double sum = 0;
    for (const uint32_t v : vertices) sum += (At(frame->surface_positions_m[0], v).x() - x_of(v)) / static_cast<double>(vertices.size());
    return sum;
  };
  ASSERT_FALSE(middle.empty());
  // F = w h E (e + 3/2 e^2 + 1/2 e^3): of the second Piola-Kirchhoff stress along a strip that does not narrow.
  const auto strain_of = [&](double stiffness_n) {
    double e = 0;
    for (int i = 0; i < 50; ++i) e = kForce_n / stiffness_n / (1 + 1.5 * e + 0.5 * e * e);
    return e;
  };
  const double soft = strain_of(kWidth_m * 0.0005 * 8e4), stiff = strain_of(kWidth_m * 0.001 * 2e5);
  EXPECT_GT(soft, 4.5 * stiff);
  const double to_border_m = kLength_m / 2 + border_m;
  EXPECT_NEAR(shift_of(middle), soft * to_border_m, 0.06 * soft * to_border_m);
  EXPECT_NEAR(shift_of(pull.vertices) - shift_of(middle), stiff * (kLength_m - to_border_m), 0.06 * soft * to_border_m);
  EXPECT_NEAR(world->body_statistics()[0].mass_kg, 300 * kWidth_m * kLength_m * 0.00075, 0.04 * 300 * kWidth_m * kLength_m * 0.00075);
  // Another material for one zone alone.
  Material softer = cuff.material;
  softer.young_modulus_pa = 8e4;
  PALPATE_ASSERT_OK(world->Apply(std::vector<Edit>{{0, MaterialEdit{.zone = "cuff", .material = softer}}}).status());
  const double before_m = shift_of(pull.vertices);
  const auto later = Run(*world, 300);
  double after_m = 0;
  for (const uint32_t v : pull.vertices) {
    after_m += (At(later->surface_positions_m[0], v).x() - x_of(v)) / static_cast<double>(pull.vertices.size());
  }
  EXPECT_NEAR(after_m - before_m, (strain_of(kWidth_m * 0.001 * 8e4) - stiff) * (kLength_m - to_border_m), 0.06 * soft * to_border_m);
}

/// A strip along x of two halves, held where it begins: the second half is its zone "far".
struct Strip {
  static constexpr double kLength_m = 0.08, kWidth_m = 0.02;
  SceneDescription scene;
  std::vector<uint32_t> middle, end;  // vertices
  double border_m = 0;                // from where it is held to the line where the halves meet

  Strip() {
    scene.gravity_m_per_s2.setZero();
    scene.solver.iterations = 60;
    scene.bodies = {Shell("strip", GenerateSheetSurface(kLength_m, kWidth_m, 0.005))};
    BodyDescription& of = body();
    of.material.model = MaterialModel::kStVenantKirchhoff;
    of.material.poisson_ratio = 0;
    of.material.young_modulus_pa = 8e4;
    of.material.mass_damping_per_s = 30;
    of.self_collision = false;
    of.zones.emplace_back();
    far().name = "far";
    far().material = of.material;
    const auto x_of = [&](uint32_t v) { return of.mesh.vertices[v].x(); };
    for (const auto& [a, b, c] : of.shell->triangles) of.tet_zones.push_back((x_of(a) + x_of(b) + x_of(c)) / 3 > 0 ? 1 : 0);
    double nearest_m = 1;
    for (uint32_t v = 0; v < of.mesh.vertices.size(); ++v) {
      if (x_of(v) < -kLength_m / 2 + 1e-6) of.fixed_vertices.push_back(v);
      if (x_of(v) > kLength_m / 2 - 1e-6) end.push_back(v);
      if (std::abs(x_of(v)) < std::abs(nearest_m)) nearest_m = x_of(v);
    }
    for (uint32_t v = 0; v < of.mesh.vertices.size(); ++v) {
      if (std::abs(x_of(v) - nearest_m) < 1e-6) middle.push_back(v);
    }
    border_m = kLength_m / 2 + nearest_m;
  }
  BodyDescription& body() { return scene.bodies[0]; }
  ZoneDescription& far() { return body().zones[0]; }
  void PullEnd(const Vector3d& force_n) {
    LoadDescription pull;
    pull.force_n = force_n;
    pull.vertices = end;
    body().loads = {pull};
  }
  /// Mean over some vertices [m].
  Vector3d ShiftOf(const Frame& frame, const std::vector<uint32_t>& vertices) {
    Vector3d sum = {0, 0, 0};
    for (const uint32_t v : vertices) sum += At(frame.surface_positions_m[0], v) - body().mesh.vertices[v];
    return sum / static_cast<double>(vertices.size());
  }
  /// F = w h E (e + 3/2 e^2 + 1/2 e^3): of the second Piola-Kirchhoff stress along a strip that does not narrow.
  static double StrainOf(double force_n, double modulus_pa, double thickness_m) {
    double e = 0;
    for (int i = 0; i < 100; ++i) e = force_n / (kWidth_m * thickness_m * modulus_pa) / (1 + 1.5 * e + 0.5 * e * e);
    return e;
  }
};

TEST_F(WorldShellTest, ZonesHaveWarpAndWeftOfTheirOwn) {
  constexpr double kForce_n = 0.02;
  // Along x: the warp of the body, and the weft of a zone whose warp is along y; the one modulus, then the other.
  for (const double weft_pa : {4e4, 3e5}) {
    Strip strip;
    strip.body().shell->orthotropic = {.warp = {1, 0, 0}, .weft_modulus_pa = 1e4, .shear_modulus_pa = 2e4};
    strip.far().shell.orthotropic = {.warp = {0, 3, 0}, .weft_modulus_pa = weft_pa, .shear_modulus_pa = 3e4};
    strip.PullEnd({kForce_n, 0, 0});
    PALPATE_TEST_ASSIGN(auto world, World::Create(context(), strip.scene));
    const auto frame = Run(*world, 300);
    const double near = Strip::StrainOf(kForce_n, 8e4, 0.0005), far = Strip::StrainOf(kForce_n, weft_pa, 0.0005);
    const double to_border_m = strip.ShiftOf(*frame, strip.middle).x();
    EXPECT_NEAR(to_border_m, near * strip.border_m, 0.06 * near * strip.border_m);
    EXPECT_NEAR(strip.ShiftOf(*frame, strip.end).x() - to_border_m, far * (Strip::kLength_m - strip.border_m),
                0.06 * std::max(near, far) * strip.border_m)
        << "a weft of " << weft_pa;
  }
  // A zone that is isotropic though the body is not: its own modulus across the body's warp.
  Strip strip;
  strip.body().shell->orthotropic = {.warp = {0, 1, 0}, .weft_modulus_pa = 3e4, .shear_modulus_pa = 2e4};
  strip.far().shell.is_isotropic = true;
  strip.PullEnd({kForce_n, 0, 0});
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), strip.scene));
  const auto frame = Run(*world, 300);
  const double near = Strip::StrainOf(kForce_n, 3e4, 0.0005), far = Strip::StrainOf(kForce_n, 8e4, 0.0005);
  const double to_border_m = strip.ShiftOf(*frame, strip.middle).x();
  EXPECT_NEAR(to_border_m, near * strip.border_m, 0.06 * near * strip.border_m);
  EXPECT_NEAR(strip.ShiftOf(*frame, strip.end).x() - to_border_m, far * (Strip::kLength_m - strip.border_m), 0.06 * near * strip.border_m);
}

TEST_F(WorldShellTest, AStrainLimitHoldsInItsZoneAlone) {
  constexpr double kForce_n = 0.4, kLimit = 0.05;  // would stretch it by 0.33
  for (const bool is_far_limited : {true, false}) {
    Strip strip;
    strip.far().shell.strain_limit = is_far_limited ? kLimit : std::numeric_limits<double>::infinity();
    if (!is_far_limited) strip.body().shell->strain_limit = kLimit;
    strip.PullEnd({kForce_n, 0, 0});
    PALPATE_TEST_ASSIGN(auto world, World::Create(context(), strip.scene));
    const auto frame = Run(*world, 300);
    const double near_m = strip.ShiftOf(*frame, strip.middle).x();
    const double far_m = strip.ShiftOf(*frame, strip.end).x() - near_m;
    const double free = Strip::StrainOf(kForce_n, 8e4, 0.0005);
    const double of_near = near_m / strip.border_m, of_far = far_m / (Strip::kLength_m - strip.border_m);
    // The stretch beyond the limit at a rest of twenty times the stiffness, and what a row of triangles at the border shares.
    EXPECT_NEAR(is_far_limited ? of_near : of_far, free, 0.08 * free);
    EXPECT_LT(is_far_limited ? of_far : of_near, kLimit + 0.1 * free);
    EXPECT_GT(is_far_limited ? of_far : of_near, kLimit);
  }
}

TEST_F(WorldShellTest, ACantileverOfTwoZonesBendsByTheStiffnessOfEach) {
  constexpr double kForce_n = 2e-5, kStiff_n_m = 1e-4;
  const auto deflection_m = [&](double near_n_m, double far_n_m, BendingModel far_model) {
    Strip strip;
    // A row of triangles is held, so that it begins level.
    for (uint32_t v = 0; v < strip.body().mesh.vertices.size(); ++v) {
      const double from_start_m = strip.body().mesh.vertices[v].x() + Strip::kLength_m / 2;
      if (from_start_m > 1e-6 && from_start_m < 0.006) strip.body().fixed_vertices.push_back(v);
    }
    std::sort(strip.body().fixed_vertices.begin(), strip.body().fixed_vertices.end());
    strip.body().material.mass_damping_per_s = strip.far().material.mass_damping_per_s = 10;
    strip.scene.solver.iterations = 150;
    strip.body().shell->bending_stiffness_n_m = near_n_m;
    strip.far().shell.bending_stiffness_n_m = far_n_m;
    strip.far().shell.bending = far_model;
    strip.PullEnd({0, 0, -kForce_n});
    const auto world = World::Create(context(), strip.scene);
    EXPECT_TRUE(world.ok()) << world.status();
    return world.ok() ? -strip.ShiftOf(*Run(**world, 400), strip.end).z() : 0;
  };
  // F / w ((L^3 - b^3) / 3 B + b^3 / 3 B_far) of a beam, b from the border to its end.
  const auto beam_m = [&](double near_n_m, double far_n_m) {
    const double all = 0.075, far = 0.04;
    return kForce_n / Strip::kWidth_m / 3 * ((std::pow(all, 3) - std::pow(far, 3)) / near_n_m + std::pow(far, 3) / far_n_m);
  };
  const double same_m = deflection_m(kStiff_n_m, kStiff_n_m, BendingModel::kDiscreteShells);
  const double of_beam_m = beam_m(kStiff_n_m, kStiff_n_m);
  EXPECT_NEAR(same_m, of_beam_m, 0.2 * of_beam_m);
  for (const BendingModel model : {BendingModel::kDiscreteShells, BendingModel::kQuadratic}) {
    // Against the strip of one stiffness, so that what the mesh is off cancels, but for half a cell of where it begins and they meet.
    const double soft_m = deflection_m(kStiff_n_m, 0.25 * kStiff_n_m, model);
    EXPECT_NEAR(soft_m / same_m, beam_m(kStiff_n_m, 0.25 * kStiff_n_m) / of_beam_m, 0.15);
    const double stiff_m = deflection_m(0.25 * kStiff_n_m, kStiff_n_m, model);
    EXPECT_NEAR(stiff_m / same_m, beam_m(0.25 * kStiff_n_m, kStiff_n_m) / of_beam_m, 0.35);
  }
}

TEST_F(WorldShellTest, AZoneThatIsLikeItsShellChangesNothing) {
  uint64_t hash = 0;
  for (const int like : {0, 1, 2}) {  // no zone; one with nothing of its own; one that says all anew
    Strip strip;
    BodyDescription& body = strip.body();
    body.shell->orthotropic = {.warp = {1, 0.2, 0}, .weft_modulus_pa = 3e4, .shear_modulus_pa = 2e4};
    body.shell->strain_limit = 0.03;
    body.shell->bending_stiffness_n_m = 2e-6;
    if (like == 2) {
      strip.far().shell = {.thickness_m = body.shell->thickness_m,
                           .is_isotropic = false,
                           .orthotropic = body.shell->orthotropic,
                           .bending = BendingModel::kDiscreteShells,
                           .bending_stiffness_n_m = 2e-6,
                           .strain_limit = 0.03};
    }
    if (like == 0) body.zones.clear(), body.tet_zones.clear();
    strip.scene.gravity_m_per_s2 = {0, 0, -9.81};
    PALPATE_TEST_ASSIGN(auto world, World::Create(context(), strip.scene));
    const uint64_t now = Run(*world, 30)->state_hash;
    EXPECT_TRUE(like == 0 || now == hash) << like;
    hash = now;
  }
}

TEST_F(WorldShellTest, RunsAreTheSameAgainAndFromACheckpoint) {
  SceneDescription scene;
  scene.bodies = {Shell("gauze", GenerateSheetSurface(0.08, 0.06, 0.01), {0, 0, 0.02}),
                  test::BoxBody("tissue", {0, 0, -0.011}, {4, 4, 3}, {0.05, 0.05, 0.02}, test::HeldSide::kLowZ)};
  scene.bodies[0].shell->strain_limit = 0.05;
  ZoneDescription hem;
  hem.name = "hem";
  hem.material = scene.bodies[0].material;
  hem.material.young_modulus_pa = 1e6;
  hem.shell = {.thickness_m = 0.001,
               .is_isotropic = false,
               .orthotropic = std::nullopt,
               .bending = BendingModel::kQuadratic,
               .bending_stiffness_n_m = 1e-5,
               .strain_limit = 0.02};
  scene.bodies[0].zones = {hem};
  for (const auto& triangle : scene.bodies[0].shell->triangles) {
    scene.bodies[0].tet_zones.push_back(scene.bodies[0].mesh.vertices[triangle[0]].x() > 0.02 ? 1 : 0);
  }
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  Run(*world, 20);
  PALPATE_TEST_ASSIGN(const auto state, world->Capture());
  const uint64_t at_twenty = world->CurrentFrame()->state_hash;
  const uint64_t at_thirty = Run(*world, 10)->state_hash;
  PALPATE_TEST_ASSIGN(auto restored, World::Restore(context(), scene, *state));
  EXPECT_EQ(restored->CurrentFrame()->state_hash, at_twenty);
  EXPECT_EQ(Run(*restored, 10)->state_hash, at_thirty);
  PALPATE_ASSERT_OK(world->Reset().status());
  EXPECT_EQ(Run(*world, 20)->state_hash, at_twenty);
}

TEST_F(WorldShellTest, TissueBesideAShellIsCutAndTheShellIsNot) {
  SceneDescription scene;
  scene.bodies = {Shell("gauze", GenerateSheetSurface(0.08, 0.06, 0.01), {0, 0, 0.006}),
                  test::BoxBody("tissue", {0, 0, -0.011}, {5, 5, 4}, {0.05, 0.05, 0.02}, test::HeldSide::kLowZ)};
  scene.contact.check_intersections = true;
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  Run(*world, 15);
  double removed_kg = 0;
  for (const double x : {-0.01, 0.012, 0.0}) {
    const std::vector<Edit> edits = {{.body = 1, .what = CarveEdit{BallRegion{{x, 0, -0.002}, 0.008}}}};
    PALPATE_TEST_ASSIGN(const auto done, world->Apply(edits));
    removed_kg += done[0].removed_mass_kg;
    Run(*world, 5);
  }
  EXPECT_GT(removed_kg, 0);
  PALPATE_TEST_ASSIGN(const auto state, world->Capture());
  const uint64_t now = world->CurrentFrame()->state_hash;
  PALPATE_TEST_ASSIGN(auto restored, World::Restore(context(), scene, *state));
  EXPECT_EQ(restored->CurrentFrame()->state_hash, now);
  EXPECT_EQ(Run(*restored, 5)->state_hash, Run(*world, 5)->state_hash);
}

}  // namespace
}  // namespace palpate::sim::shell_test
