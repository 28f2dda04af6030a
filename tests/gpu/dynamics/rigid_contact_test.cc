// Rigid bodies in scenes: with each other, with static ones, with tissue, tools and planes.
#include <Eigen/Geometry>
#include <cmath>
#include <numbers>
#include <random>

#include "gpu/dynamics/tissue_solver.h"
#include "tests/gpu/dynamics/surface_models.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::rigid_contact_test {
namespace {

using Eigen::Matrix3d;
using Eigen::Quaterniond;
using Eigen::Vector3d;

constexpr double kDt = 1.0 / 120;

/// Adds a homogeneous box; a density of 0 makes it static.
void AddBox(TissueModel* scene, const Vector3d& size_m, const Vector3d& center_m, const Quaterniond& q, double density,
            const Vector3d& velocity = Vector3d::Zero()) {
  TissueModel box = BoxModel({1, 1, 1}, size_m, -size_m / 2, {});
  const auto base = static_cast<uint32_t>(scene->rest_m.size());
  if (scene->body_triangle_begin.empty()) scene->body_triangle_begin.push_back(0);
  for (const auto& v : box.rest_m) {
    const Vector3d at = center_m + q * Vector3d(v.data());
    scene->rest_m.push_back({at.x(), at.y(), at.z()});
    scene->fixed.push_back(1);
  }
  for (std::array<uint32_t, 3> t : box.surface_triangles) {
    for (uint32_t& v : t) v += base;
    scene->surface_triangles.push_back(t);
  }
  const auto body = static_cast<uint32_t>(scene->body_triangle_begin.size() - 1);
  scene->body_triangle_begin.push_back(static_cast<uint32_t>(scene->surface_triangles.size()));
  scene->self_collision.push_back(0);
  if (density == 0) return;
  TissueRigidBody rigid;
  rigid.body = body;
  rigid.vertices = {base, static_cast<uint32_t>(scene->rest_m.size())};
  rigid.mass_kg = density * size_m.prod();
  rigid.center_m = {center_m.x(), center_m.y(), center_m.z()};
  const Vector3d s = size_m.cwiseProduct(size_m);
  const Vector3d moments = rigid.mass_kg / 12 * Vector3d(s.y() + s.z(), s.x() + s.z(), s.x() + s.y());
  const Matrix3d inertia = q.toRotationMatrix() * moments.asDiagonal() * q.toRotationMatrix().transpose();
  for (int i = 0; i < 9; ++i) rigid.inertia_kg_m2[static_cast<size_t>(i)] = inertia(i / 3, i % 3);
  rigid.velocity_m_per_s = {velocity.x(), velocity.y(), velocity.z()};
  scene->rigid.push_back(rigid);
}

class RigidContactTest : public test::DeviceTest {
 protected:
  void Make(const TissueModel& scene, TissueOptions options, const std::vector<PlaneObstacle>& planes = {},
            const std::vector<ColliderDescription>& colliders = {}) {
    scene_ = scene;
    auto solver = TissueSolver::Create(context(), scene, options, colliders, planes, TissueTuning::For(context()->device()));
    ASSERT_TRUE(solver.ok()) << solver.status();
    solver_ = *std::move(solver);
  }
  void TearDown() override {
    solver_.reset();
    DeviceTest::TearDown();
  }

  TissueStep Step(const std::vector<ColliderTarget>& targets = {}) {
    auto step = solver_->Step(targets);
    EXPECT_TRUE(step.ok()) << step.status();
    return step.ok() ? *step : TissueStep{};
  }

  std::vector<Vector3d> Positions() {
    std::vector<float> flat(scene_.rest_m.size() * 3);
    PALPATE_EXPECT_OK(solver_->ReadPositions(flat));
    return Unpack(flat);
  }

  Vector3d Center(size_t rigid) {
    const auto x = Positions();
    Vector3d sum = Vector3d::Zero();
    const auto [first, last] = scene_.rigid[rigid].vertices;
    for (uint32_t v = first; v < last; ++v) sum += x[v];
    return sum / (last - first);
  }

  uint32_t Intersections() { return CountIntersections(scene_.surface_triangles, Positions()); }

  TissueModel scene_;
  std::unique_ptr<TissueSolver> solver_;
};

TissueOptions Options() {
  TissueOptions options;
  options.surface_friction = 0.5;
  options.friction = 0.5;
  return options;
}

TEST_F(RigidContactTest, ABoxFallsOnAStaticBoxAndStays) {
  TissueModel scene;
  AddBox(&scene, {0.4, 0.4, 0.05}, {0, 0, -0.025}, Quaterniond::Identity(), 0);
  AddBox(&scene, {0.06, 0.04, 0.02}, {0.01, 0, 0.1}, Quaterniond(Eigen::AngleAxisd(0.5, Vector3d(1, 2, 0).normalized())), 2000);
  Make(scene, Options());
  if (HasFatalFailure()) return;
  TissueStep step;
  for (int i = 0; i < 240; ++i) {
    step = Step();
    ASSERT_EQ(step.bad_vertices, 0U);
    if (i % 5 == 0) {
      ASSERT_EQ(Intersections(), 0U) << "step " << i;
    }
  }
  EXPECT_LT(step.max_speed_m_per_s, 5e-3);
  EXPECT_NEAR(Center(0).z(), 0.0105, 0.0008) << "lies on its large face";
  Vector3d force = Vector3d::Zero();
  for (const SurfaceReport& r : step.surface_contacts) force += Vector3d(r.force.x, r.force.y, r.force.z) * (r.vertices.x < 8 ? 1 : -1);
  EXPECT_NEAR(force.z(), 2000 * 0.06 * 0.04 * 0.02 * 9.81, 0.05) << "what it rests on carries its weight";
}

TEST_F(RigidContactTest, APlatformThatIsDrivenCarriesABox) {
  TissueModel scene;
  AddBox(&scene, {0.4, 0.4, 0.05}, {0, 0, -0.025}, Quaterniond::Identity(), 0);
  AddBox(&scene, {0.1, 0.1, 0.01}, {0, 0, 0.007}, Quaterniond::Identity(), 0);
  AddBox(&scene, {0.03, 0.03, 0.02}, {0, 0, 0.0235}, Quaterniond::Identity(), 1000);
  TissueDrivenRegion platform;
  platform.vertices.resize(8);
  std::iota(platform.vertices.begin(), platform.vertices.end(), 8U);
  platform.velocity_m_per_s = {0.05, 0, 0.1};
  platform.duration_s = 0.5;
  scene.driven = {platform};
  Make(scene, Options());
  if (HasFatalFailure()) return;
  for (int i = 0; i < 120; ++i) {
    ASSERT_EQ(Step().bad_vertices, 0U);
    ASSERT_EQ(Intersections(), 0U) << "step " << i;
  }
  EXPECT_NEAR(Positions()[8].z(), 0.002 + 0.05, 1e-4) << "the platform is up";
  EXPECT_NEAR(Center(0).z(), 0.0225 + 0.05, 0.0015) << "and the box on it";
  EXPECT_NEAR(Center(0).x(), 0.025, 0.004) << "held by friction";
}

TEST_F(RigidContactTest, AFastThinPlateDoesNotTunnel) {
  for (const double speed : {5.0, 40.0}) {
    TissueModel scene;
    AddBox(&scene, {0.4, 0.4, 0.004}, {0, 0, 0}, Quaterniond::Identity(), 0);
    AddBox(&scene, {0.05, 0.05, 0.002}, {0, 0, 0.1}, Quaterniond(Eigen::AngleAxisd(1.2, Vector3d(0, 1, 0))), 8000, {0, 0, -speed});
    Make(scene, Options());
    if (HasFatalFailure()) return;
    for (int i = 0; i < 40; ++i) {
      ASSERT_EQ(Step().bad_vertices, 0U);
      ASSERT_EQ(Intersections(), 0U) << "step " << i << " at " << speed;
      ASSERT_GT(Center(0).z(), 0.002) << "step " << i << " at " << speed;
    }
  }
}

TEST_F(RigidContactTest, BodiesThatAllButTouchDoNotHangOnEachOther) {
  // Two boxes with crossed edges, nearer than rounding lets planes tell apart, off the centres of both: what pushes them apart turns the
  // other ends of these edges towards each other.
  const double half_diagonal_m = std::hypot(0.01, 0.01);
  const Quaterniond edge_up(Eigen::AngleAxisd(std::numbers::pi / 4, Vector3d::UnitX()));
  for (const double gap_m : {1.2e-6, 4e-6}) {
    TissueModel scene;
    AddBox(&scene, {0.06, 0.02, 0.02}, {0.15, 0.15, 0.2}, edge_up, 1500);
    const Vector3d above(0.15 + 0.025, 0.15 + 0.02, 0.2 + 2 * half_diagonal_m + gap_m);
    AddBox(&scene, {0.06, 0.02, 0.02}, above, Eigen::AngleAxisd(std::numbers::pi / 2, Vector3d::UnitZ()) * edge_up, 1500);
    Make(scene, Options());
    if (HasFatalFailure()) return;
    constexpr int kSteps = 24;
    TissueStep step;
    for (int i = 0; i < kSteps; ++i) step = Step();
    EXPECT_EQ(Intersections(), 0U);
    const double fallen_m = 0.5 * 9.81 * kSteps * (kSteps + 1) * kDt * kDt;
    const Vector3d lower = Center(0);
    const Vector3d upper = Center(1);
    EXPECT_NEAR(0.2 + above.z() - lower.z() - upper.z(), 2 * fallen_m, 0.01 * fallen_m) << "momentum at a gap of " << gap_m;
    EXPECT_GT(upper.z() - lower.z(), above.z() - 0.2 + 1e-4) << "pushed apart from a gap of " << gap_m;
    EXPECT_TRUE(step.surface_contacts.empty());
  }
}

// How far a detection looks goes by how far bodies move in the step, and what two of them that race towards each other meet is the same.
TEST_F(RigidContactTest, ReachGrowsWithTheWayOfABody) {
  TissueOptions options = Options();
  options.gravity_m_per_s2 = {0, 0, 0};
  options.surface_reserve_m = 0.006;
  const auto pairs_at = [&](double speed_m_per_s) {
    TissueModel scene;
    AddBox(&scene, {0.05, 0.05, 0.05}, {0, 0, 0}, Quaterniond::Identity(), 1000, {speed_m_per_s, 0, 0});
    AddBox(&scene, {0.05, 0.05, 0.05}, {0.055, 0, 0}, Quaterniond::Identity(), 1000, {-speed_m_per_s, 0, 0});
    Make(scene, options);
    return HasFatalFailure() ? 0 : Step().surface.contacts;
  };
  EXPECT_EQ(pairs_at(0), 0U) << "5 mm apart and at rest";
  EXPECT_GT(pairs_at(0.2), 0U) << "1.7 mm a step each";
  for (int i = 0; i < 60; ++i) {
    ASSERT_EQ(Step().bad_vertices, 0U);
    ASSERT_EQ(Intersections(), 0U) << "step " << i;
  }
  EXPECT_LT(Center(0).x(), 0.01) << "they bounce off each other";
}

TEST_F(RigidContactTest, CollidingBoxesKeepMomentum) {
  TissueModel scene;
  AddBox(&scene, {0.05, 0.05, 0.05}, {0, 0, 0}, Quaterniond(Eigen::AngleAxisd(0.3, Vector3d(1, 1, 1).normalized())), 1000, {0.08, 0, 0});
  AddBox(&scene, {0.05, 0.04, 0.03}, {0.075, 0.01, 0.005}, Quaterniond(Eigen::AngleAxisd(1.3, Vector3d(1, 0, 1).normalized())), 3000,
         {-0.04, 0, 0});
  TissueOptions options = Options();
  options.gravity_m_per_s2 = {0, 0, 0};
  options.iterations = 400;
  Make(scene, options);
  if (HasFatalFailure()) return;
  const double m0 = scene.rigid[0].mass_kg, m1 = scene.rigid[1].mass_kg;
  const Vector3d before = m0 * Vector3d(0.08, 0, 0) - m1 * Vector3d(0.04, 0, 0);
  Vector3d c0 = Center(0), c1 = Center(1);
  Vector3d momentum;
  // Slow enough that no move is cut short: a cut takes momentum from an impact.
  bool met = false;
  for (int i = 0; i < 90; ++i) {
    met |= !Step().surface_contacts.empty();
    const Vector3d d0 = Center(0), d1 = Center(1);
    momentum = (m0 * (d0 - c0) + m1 * (d1 - c1)) / kDt;
    c0 = d0;
    c1 = d1;
    ASSERT_EQ(Intersections(), 0U);
  }
  ASSERT_TRUE(met);
  EXPECT_LT((momentum - before).norm(), 0.03 * (m0 * 0.08 + m1 * 0.04));
}

TEST_F(RigidContactTest, AStoneSinksIntoTissueAndIsCarried) {
  TestMaterial material;
  material.young_modulus_pa = 20000;
  material.damping_s = 0.02;
  TissueModel slab = BoxModel({8, 8, 3}, {0.16, 0.16, 0.03}, {-0.08, -0.08, -0.03}, material);
  for (size_t v = 0; v < slab.rest_m.size(); ++v) slab.fixed[v] = slab.rest_m[v][2] < -0.0299 ? 1 : 0;
  TissueModel scene = SceneOf({slab}, true);
  AddBox(&scene, {0.03, 0.03, 0.03}, {0, 0, 0.03}, Quaterniond(Eigen::AngleAxisd(0.2, Vector3d(1, 0.4, 0).normalized())), 4000);
  TissueOptions options = Options();
  options.check_intersections = true;
  Make(scene, options);
  if (HasFatalFailure()) return;
  TissueStep step;
  for (int i = 0; i < 240; ++i) {
    step = Step();
    ASSERT_EQ(step.bad_vertices, 0U);
    ASSERT_EQ(step.surface.intersections, 0U) << "step " << i;
  }
  EXPECT_EQ(Intersections(), 0U);
  EXPECT_LT(step.max_speed_m_per_s, 0.02);
  Vector3d force = Vector3d::Zero();
  const uint32_t stone = scene.rigid[0].vertices[0];
  for (const SurfaceReport& r : step.surface_contacts) {
    const uint32_t of_b = r.kind == PALPATE_VERTEX_TRIANGLE ? r.vertices.y : r.vertices.z;
    force += Vector3d(r.force.x, r.force.y, r.force.z) * (of_b >= stone ? 1 : -1);
  }
  EXPECT_NEAR(force.z(), 4000 * 2.7e-5 * 9.81, 0.15);
}

TEST_F(RigidContactTest, APileOfBoxesSettlesWithoutIntersections) {
  TissueModel scene;
  AddBox(&scene, {0.5, 0.5, 0.05}, {0, 0, -0.025}, Quaterniond::Identity(), 0);
  std::mt19937 random(5);
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (int i = 0; i < 18; ++i) {
    const Quaterniond q = Quaterniond(uniform(random), uniform(random), uniform(random), uniform(random)).normalized();
    AddBox(&scene, {0.03, 0.02, 0.015}, {0.05 * (i % 3 - 1), 0.05 * (i / 3 % 2), 0.04 + 0.045 * (i / 6)}, q, 2000);
  }
  TissueOptions options = Options();
  options.check_intersections = true;
  Make(scene, options);
  if (HasFatalFailure()) return;
  TissueStep step;
  for (int i = 0; i < 180; ++i) {
    step = Step();
    ASSERT_EQ(step.bad_vertices, 0U);
    ASSERT_EQ(step.surface.intersections, 0U) << "step " << i;
  }
  EXPECT_EQ(Intersections(), 0U);
  EXPECT_LT(step.max_speed_m_per_s, 0.3);
  const uint64_t hash = step.hash;
  // The same again, to the bit.
  PALPATE_ASSERT_OK(solver_->Reset());
  for (int i = 0; i < 180; ++i) step = Step();
  EXPECT_EQ(step.hash, hash);
}

TEST_F(RigidContactTest, MomentumBringsAColumnNearerToItsSolutionInAsManySweeps) {
  constexpr int kBoxes = 8;
  TissueModel scene;
  AddBox(&scene, {0.2, 0.2, 0.05}, {0, 0, -0.025}, Quaterniond::Identity(), 0);
  for (int i = 0; i < kBoxes; ++i) AddBox(&scene, {0.04, 0.04, 0.02}, {0, 0, 0.0109 + 0.0209 * i}, Quaterniond::Identity(), 1000);
  const auto heights = [&](double acceleration, uint32_t sweeps) {
    TissueOptions options = Options();
    options.acceleration = acceleration;
    options.iterations = sweeps;
    Make(scene, options);
    std::array<double, kBoxes> z{};
    if (HasFatalFailure()) return z;
    Step();
    EXPECT_EQ(Intersections(), 0U);
    for (size_t i = 0; i < kBoxes; ++i) z[i] = Center(i).z();
    return z;
  };
  const std::array<double, kBoxes> solution = heights(0, 2000);
  const auto error = [&](const std::array<double, kBoxes>& z) {
    double sum = 0;
    for (size_t i = 0; i < kBoxes; ++i) sum += std::pow(z[i] - solution[i], 2);
    return std::sqrt(sum);
  };
  constexpr std::pair<uint32_t, double> kShares[] = {{8, 0.9}, {16, 0.75}, {32, 0.6}};
  for (const auto& [sweeps, share] : kShares) EXPECT_LT(error(heights(0.9, sweeps)), share * error(heights(0, sweeps))) << sweeps;
  // Where planes cut moves short, plain sweeps scatter by some 0.05 mm, however many they are.
  EXPECT_LT(error(heights(0.9, 2000)), 1.2e-4) << "the same solution";
}

TEST_F(RigidContactTest, AToolPushesABoxAcrossAPlane) {
  TissueModel scene;
  AddBox(&scene, {0.04, 0.04, 0.02}, {0, 0, 0.0106}, Quaterniond::Identity(), 1000);
  ColliderDescription tool;
  tool.radius_m = 0.005;
  tool.tip_m = {-0.04, 0, 0.01};
  tool.axis_m = {0, 0, 0.1};
  Make(scene, Options(), {{{0, 0, 1, 0}}}, {tool});
  if (HasFatalFailure()) return;
  double pushed_n = 0;
  for (int i = 0; i < 120; ++i) {
    const TissueStep step = Step({{{-0.04 + 0.0005 * i, 0, 0.01}, tool.axis_m}});
    ASSERT_EQ(step.bad_vertices, 0U);
    pushed_n = 0;
    for (const ContactReport& r : step.contacts) pushed_n += r.collider == 0 ? r.force.x : 0;
  }
  EXPECT_NEAR(Center(0).x(), -0.04 + 0.0005 * 119 + 0.005 + 0.02, 0.0012) << "in front of the tool";
  EXPECT_NEAR(pushed_n, 0.5 * 1000 * 3.2e-5 * 9.81, 0.05) << "against the friction of the plane";
}

TEST_F(RigidContactTest, StatesAreRestoredAndBadModelsRefused) {
  TissueModel scene;
  AddBox(&scene, {0.04, 0.04, 0.02}, {0, 0, 0.5}, Quaterniond(Eigen::AngleAxisd(0.7, Vector3d(1, 2, 3).normalized())), 1000, {1, 0, 0});
  TissueOptions options = Options();
  options.gravity_m_per_s2 = {0, 0, 0};
  Make(scene, options);
  if (HasFatalFailure()) return;
  for (int i = 0; i < 10; ++i) Step();
  std::vector<float> positions(24), velocities(24, 0.0F), later(24);
  PALPATE_ASSERT_OK(solver_->ReadPositions(positions));
  for (size_t i = 0; i < 24; i += 3) velocities[i] = 1;
  for (int i = 0; i < 10; ++i) Step();
  PALPATE_ASSERT_OK(solver_->ReadPositions(later));
  PALPATE_ASSERT_OK(solver_->WriteState(positions, velocities));
  for (int i = 0; i < 10; ++i) Step();
  std::vector<float> again(24);
  PALPATE_ASSERT_OK(solver_->ReadPositions(again));
  for (size_t i = 0; i < 24; ++i) EXPECT_NEAR(again[i], later[i], 1e-5);

  const auto refused = [&](const TissueModel& bad, const char* what) {
    const auto solver = TissueSolver::Create(context(), bad, options, {}, {}, TissueTuning::For(context()->device()));
    EXPECT_TRUE(absl::IsInvalidArgument(solver.status())) << solver.status();
    EXPECT_NE(solver.status().message().find(what), std::string::npos) << solver.status();
  };
  TissueModel bad = scene;
  bad.fixed[3] = 0;
  refused(bad, "vertex 3 is not marked as fixed");
  bad = scene;
  bad.self_collision[0] = 1;
  refused(bad, "may meet itself");
  bad = scene;
  bad.rigid[0].vertices = {0, 9};
  refused(bad, "are not within");
  bad = scene;
  bad.rigid[0].mass_kg = -1;
  refused(bad, "mass_kg");
}

}  // namespace
}  // namespace palpate::gpu::rigid_contact_test
