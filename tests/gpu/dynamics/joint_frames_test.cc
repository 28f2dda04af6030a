// Joints whose ends are sets of vertices of tissue and shells, or poses that are given.
#include "gpu/dynamics/joint_frames.h"

#include <gmock/gmock.h>

#include <Eigen/Dense>
#include <Eigen/Geometry>
#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <vector>

#include "gpu/dynamics/tissue_solver.h"
#include "tests/gpu/dynamics/shell_models.h"
#include "tests/gpu/dynamics/surface_models.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::joint_frames_test {
namespace {

using Eigen::Quaterniond;
using Eigen::Vector3d;

constexpr double kDt = 1.0 / 120;
constexpr double kGravity = 9.81;

std::array<double, 3> Array(const Vector3d& v) { return {v.x(), v.y(), v.z()}; }
Vector3d Vec(const Float4& v) { return {v.x, v.y, v.z}; }
RigidJointRow Locked() { return {.drive = JointDrive::kLocked}; }

RigidJoint Ball(uint32_t a, uint32_t b, const Vector3d& at) {
  RigidJoint joint{.body_a = a, .body_b = b, .point_a_m = Array(at), .point_b_m = Array(at)};
  for (size_t r = 0; r < 3; ++r) joint.rows[r] = Locked();
  return joint;
}

RigidJoint Fixed(uint32_t a, uint32_t b, const Vector3d& at) {
  RigidJoint joint = Ball(a, b, at);
  joint.about = RigidJoint::About::kTurn;
  for (size_t r = 3; r < 6; ++r) joint.rows[r] = Locked();
  return joint;
}

RigidJoint Hinge(uint32_t a, uint32_t b, const Vector3d& at, const Vector3d& axis) {
  RigidJoint joint = Ball(a, b, at);
  joint.about = RigidJoint::About::kTwist;
  const Quaterniond q = Quaterniond::FromTwoVectors(Vector3d::UnitZ(), axis).normalized();
  joint.frame = {q.x(), q.y(), q.z(), q.w()};
  joint.rows[3] = joint.rows[4] = Locked();
  return joint;
}

/// Vertices of a model from `first` on that a box takes in.
std::vector<uint32_t> Inside(const TissueModel& model, const Vector3d& low, const Vector3d& high, uint32_t first = 0) {
  std::vector<uint32_t> out;
  for (uint32_t v = first; v < model.rest_m.size(); ++v) {
    const Vector3d x(model.rest_m[v].data());
    if ((x.array() >= low.array() - 1e-9).all() && (x.array() <= high.array() + 1e-9).all()) out.push_back(v);
  }
  return out;
}

TissueJointSet SetOf(const TissueModel& model, std::vector<uint32_t> vertices) {
  TissueJointSet set;
  for (const uint32_t v : vertices) {
    for (size_t a = 0; a < 3; ++a) set.origin_m[a] += model.rest_m[v][a] / static_cast<double>(vertices.size());
  }
  set.vertices = std::move(vertices);
  return set;
}

/// A bar of tissue along x from the origin, 10 x 3 x 3 cm unless told, as body 0.
TissueModel Bar(const TestMaterial& material, const Vector3d& size_m = {0.1, 0.03, 0.03}, std::array<uint32_t, 3> cells = {10, 3, 3}) {
  TissueModel model = BoxModel(cells, size_m, Vector3d(0, -size_m.y() / 2, -size_m.z() / 2), material);
  model.body_triangle_begin = {0, static_cast<uint32_t>(model.surface_triangles.size())};
  model.self_collision = {0};
  return model;
}

class JointFramesTest : public test::DeviceTest {
 protected:
  void Make(const TissueModel& scene, TissueOptions options = {}, const std::vector<PlaneObstacle>& planes = {}) {
    scene_ = scene;
    auto solver = TissueSolver::Create(context(), scene, options, {}, planes, TissueTuning::For(context()->device()));
    ASSERT_TRUE(solver.ok()) << solver.status();
    solver_ = *std::move(solver);
  }
  void TearDown() override {
    solver_.reset();
    DeviceTest::TearDown();
  }
  TissueStep Step(int count = 1) {
    TissueStep out;
    for (int i = 0; i < count; ++i) {
      auto step = solver_->Step({});
      EXPECT_TRUE(step.ok()) << step.status();
      if (!step.ok()) return {};
      EXPECT_EQ(step->bad_vertices, 0U);
      out = *std::move(step);
    }
    return out;
  }
  std::vector<Vector3d> Positions() {
    std::vector<float> flat(scene_.rest_m.size() * 3);
    PALPATE_EXPECT_OK(solver_->ReadPositions(flat));
    return Unpack(flat);
  }
  Vector3d Mean(const std::vector<uint32_t>& vertices) {
    const auto x = Positions();
    Vector3d sum = Vector3d::Zero();
    for (const uint32_t v : vertices) sum += x[v];
    return sum / static_cast<double>(vertices.size());
  }
  double MassOf(const std::vector<uint32_t>& vertices) const {
    double sum = 0;
    for (const uint32_t v : vertices) sum += solver_->layout().mass_kg[solver_->layout().solver_index[v]];
    return sum;
  }

  TissueModel scene_;
  std::unique_ptr<TissueSolver> solver_;
};

constexpr TestMaterial kDamped = {.young_modulus_pa = 1e5, .mass_damping_per_s = 6};

// What holds a whole face may not matter: as fixed vertices, or by a joint.
TEST_F(JointFramesTest, ABarWeldedToTheWorldSagsAsOneWhoseEndIsFixed) {
  TissueModel fixed = Bar(kDamped, {0.1, 0.015, 0.015}, {20, 3, 3});
  const auto end = Inside(fixed, {0, -1, -1}, {0, 1, 1});
  const auto tip = Inside(fixed, {0.1, -1, -1}, {0.1, 1, 1});
  TissueModel jointed = fixed;
  for (const uint32_t v : end) fixed.fixed[v] = kFixedVertex;
  TissueOptions options;
  options.iterations = 40;
  options.coarse_nodes = 100;
  Make(fixed, options);
  ASSERT_FALSE(HasFatalFailure());
  Step(360);
  const Vector3d wanted = Mean(tip);
  ASSERT_LT(wanted.z(), -0.01) << "it sags";

  // The joint's point is off the middle of the set.
  jointed.joint_sets = {SetOf(jointed, end)};
  jointed.joints = {Fixed(RigidJoint::kWorld, 0, {-0.01, 0.02, 0})};
  Make(jointed, options);
  ASSERT_FALSE(HasFatalFailure());
  const TissueStep step = Step(360);
  const Vector3d got = Mean(tip);
  // The face of a set may deform in itself, so it gives a little more.
  EXPECT_NEAR(got.z(), wanted.z(), 0.08 * std::abs(wanted.z()));
  ASSERT_EQ(step.joints.size(), 1U);
  const double weight = MassOf(Inside(jointed, {-1, -1, -1}, {1, 1, 1})) * kGravity;
  EXPECT_NEAR(step.joints[0].force.z, weight, 0.005 * weight);
  EXPECT_NEAR(Vec(step.joints[0].force).head<2>().norm(), 0, 0.005 * weight);
  // About the point, 2 cm to the side of the bar.
  Vector3d center = Vector3d::Zero();
  const auto x = Positions();
  const auto all = Inside(jointed, {-1, -1, -1}, {1, 1, 1});
  for (const uint32_t v : all) center += MassOf({v}) / MassOf(all) * x[v];
  EXPECT_NEAR(step.joints[0].torque.y, -(0.01 + center.x()) * weight, 0.01 * 0.06 * weight);
  EXPECT_NEAR(step.joints[0].torque.x, (center.y() - 0.02) * weight, 0.01 * 0.06 * weight);
  EXPECT_LT(step.joints[0].force.w, 1e-6);
  EXPECT_LT(step.joints[0].torque.w, 1e-5);
}

TEST_F(JointFramesTest, TissueCarriesAHeavyBodyOnABall) {
  // Hung up at its upper face, 100 times as heavy a block below.
  TissueModel scene = Bar({.young_modulus_pa = 1e6, .poisson_ratio = 0.3, .mass_damping_per_s = 4}, {0.02, 0.02, 0.1}, {2, 2, 10});
  for (const uint32_t v : Inside(scene, {-1, -1, 0.05}, {1, 1, 1})) scene.fixed[v] = kFixedVertex;
  const auto below = Inside(scene, {-1, -1, -0.05}, {1, 1, -0.04});
  const double mass = 4;
  AddRigidBox(&scene, {0.03, 0.03, 0.03}, {0.01, 0, -0.075}, mass);
  scene.joint_sets = {SetOf(scene, below)};
  scene.joints = {Ball(1, 0, {0.01, 0, -0.055})};
  Make(scene);
  ASSERT_FALSE(HasFatalFailure());
  const double rest = Mean(below).z();
  double worst_gap = 0;
  TissueStep step;
  for (int i = 0; i < 600; ++i) {
    step = Step();
    worst_gap = std::max(worst_gap, static_cast<double>(step.joints[0].force.w));
  }
  EXPECT_LT(worst_gap, 2e-6) << "in every step, under twice its weight";
  EXPECT_NEAR(step.joints[0].force.z, mass * kGravity, 0.01 * mass * kGravity) << "on the body";
  // F L / (E A) and half of its own weight; ends that cannot narrow make it a little stiffer, finite strain softer.
  const double strain = (mass * kGravity + 0.2) / (1e6 * 4e-4);
  EXPECT_NEAR(rest - Mean(below).z(), strain * 0.09, 0.15 * strain * 0.09);
  EXPECT_LT(step.max_speed_m_per_s, 1e-3);
}

TEST_F(JointFramesTest, ABodyAtTheEndOfABarBendsIt) {
  // Welded: the bar bears a force and a moment. Against the tip of a cantilever under both, E I w'' = M.
  const double length = 0.2, mass = 0.005, arm = 0.04;
  const auto bar = [&](double density) {
    TestMaterial material = {.young_modulus_pa = 1e6, .poisson_ratio = 0, .density_kg_per_m3 = density, .mass_damping_per_s = 8};
    material.energy = TissueEnergy::kCorotated;
    TissueModel scene = Bar(material, {length, 0.02, 0.02}, {40, 4, 4});
    for (const uint32_t v : Inside(scene, {0, -1, -1}, {0, 1, 1})) scene.fixed[v] = kFixedVertex;
    return scene;
  };
  TissueOptions options;
  options.iterations = 60;
  options.coarse_nodes = 200;
  // Linear tets are too stiff in bending: how stiff, the bar tells by its own weight, w L^4 / (8 E I).
  TissueModel scene = bar(100);
  const auto tip = Inside(scene, {length, -1, -1}, {length, 1, 1});
  Make(scene, options);
  ASSERT_FALSE(HasFatalFailure());
  Step(300);
  const double stiffness = 100 * 4e-4 * kGravity * std::pow(length, 4) / (8 * -Mean(tip).z());
  scene = bar(1);
  AddRigidBox(&scene, {0.03, 0.01, 0.01}, {length + arm, 0, 0}, mass);
  scene.joint_sets = {SetOf(scene, tip)};
  scene.joints = {Fixed(1, 0, {length, 0, 0})};
  Make(scene, options);
  ASSERT_FALSE(HasFatalFailure());
  const TissueStep step = Step(300);
  const double force = mass * kGravity, moment = force * arm;
  const double sag = (force * std::pow(length, 3) / 3 + moment * length * length / 2) / stiffness;
  EXPECT_NEAR(-Mean(tip).z(), sag, 0.05 * sag);
  EXPECT_NEAR(step.joints[0].force.z, force, 0.01 * force) << "what the bar does to the body";
  EXPECT_NEAR(std::abs(step.joints[0].torque.y), moment, 0.03 * moment);
}

TEST_F(JointFramesTest, JoinedPiecesKeepTheirMomenta) {
  // Two bars on a hinge, thrown: nothing acts from outside.
  TissueModel other = Bar({.young_modulus_pa = 5e3});
  for (std::array<double, 3>& v : other.rest_m) v[0] += 0.11;
  TissueModel scene = SceneOf({Bar({.young_modulus_pa = 1e4}), other}, /*self_collision=*/false);
  scene.joint_sets = {SetOf(scene, Inside(scene, {0.09, -1, -1}, {0.1, 1, 1})), SetOf(scene, Inside(scene, {0.11, -1, -1}, {0.12, 1, 1}))};
  scene.joints = {Hinge(0, 1, {0.105, 0, 0}, {0, 1, 0})};
  TissueOptions options;
  options.gravity_m_per_s2 = {0, 0, 0};
  options.iterations = 120;
  options.dt_s = 1.0 / 480;
  Make(scene, options);
  ASSERT_FALSE(HasFatalFailure());
  std::vector<float> x(scene.rest_m.size() * 3), v(scene.rest_m.size() * 3, 0.0F);
  for (size_t i = 0; i < scene.rest_m.size(); ++i) {
    for (size_t a = 0; a < 3; ++a) x[3 * i + a] = static_cast<float>(scene.rest_m[i][a]);
    v[3 * i + 2] = static_cast<float>(1.5 * std::abs(scene.rest_m[i][0] - 0.105));  // they fold
    v[3 * i + 1] = 0.2F;
  }
  PALPATE_ASSERT_OK(solver_->WriteState(x, v));
  struct Momenta {
    Vector3d linear = Vector3d::Zero(), angular = Vector3d::Zero();
  };
  const auto momenta = [&] {
    Momenta out;
    std::vector<TissueVertexState> states(scene.rest_m.size());
    PALPATE_EXPECT_OK(solver_->ReadState(states));
    for (uint32_t i = 0; i < states.size(); ++i) {
      const double mass = solver_->layout().mass_kg[solver_->layout().solver_index[i]];
      const Vector3d p = mass * Vec(states[i].velocity_m_per_s);
      out.linear += p;
      out.angular += Vec(states[i].position_m).cross(p);
    }
    return out;
  };
  const Momenta before = momenta();
  double angle = 0;
  for (int i = 0; i < 240; ++i) {
    const TissueStep step = Step();
    ASSERT_LT(step.joints[0].force.w, 2e-6) << "step " << i;
    ASSERT_LT(step.joints[0].torque.w, 2e-5) << "step " << i;
    angle = step.joints[0].coordinates[5];
  }
  EXPECT_GT(std::abs(angle), 0.3) << "the hinge turned";
  const Momenta after = momenta();
  const double scale = before.linear.norm();
  EXPECT_LT((after.linear - before.linear).norm(), 2e-3 * scale);
  EXPECT_LT((after.angular - before.angular).norm(), 0.02 * 0.1 * scale);
}

TEST_F(JointFramesTest, AMountCarriesTissueAlong) {
  TissueModel scene = Bar({.young_modulus_pa = 5e4, .mass_damping_per_s = 4});
  const auto held = Inside(scene, {0, -1, -1}, {0.02, 1, 1});
  scene.joint_sets = {SetOf(scene, held)};
  scene.joint_mounts.resize(1);
  scene.joints = {Fixed(1, 0, {0.01, 0, 0})};
  Make(scene);
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_FALSE(solver_->SetJointMount(1, {}, {0, 0, 0, 1}).ok());
  EXPECT_FALSE(solver_->SetJointMount(0, {}, {0, 0, 0, 2}).ok());
  TissueStep step;
  const Vector3d start = Mean(held);
  for (int i = 1; i <= 240; ++i) {
    const double t = std::min(i * kDt, 1.0);
    const Quaterniond q(Eigen::AngleAxisd(0.8 * t, Vector3d::UnitZ()));
    PALPATE_ASSERT_OK(solver_->SetJointMount(0, {0.1 * t, 0, 0.05 * t}, {q.x(), q.y(), q.z(), q.w()}));
    step = Step();
    ASSERT_LT(step.joints[0].force.w, 2e-6) << "step " << i;
  }
  const Vector3d wanted = Vector3d(0.1, 0, 0.05) + Quaterniond(Eigen::AngleAxisd(0.8, Vector3d::UnitZ())) * start;
  EXPECT_LT((Mean(held) - wanted).norm(), 1e-3);
  const double weight = MassOf(Inside(scene, {-1, -1, -1}, {1, 1, 1})) * kGravity;
  EXPECT_NEAR(step.joints[0].force.z, weight, 0.01 * weight);
}

TEST_F(JointFramesTest, ASheetHangsOnABallByItsEdge) {
  TissueModel scene;
  scene.body_triangle_begin = {0};
  AddSheet(&scene, 12, 12, {0.2, 0.2}, {0, 0, 0}, {.young_modulus_pa = 1e5, .mass_damping_per_s = 5});
  const auto held = Inside(scene, {0.05, 0, -1}, {0.15, 0.02, 1});
  ASSERT_GE(held.size(), 3U);
  scene.joint_sets = {SetOf(scene, held)};
  scene.joints = {Ball(RigidJoint::kWorld, 0, {0.1, 0, 0})};
  Make(scene);
  ASSERT_FALSE(HasFatalFailure());
  TissueStep step;
  double worst = 0;
  for (int i = 0; i < 720; ++i) {
    step = Step();
    worst = std::max(worst, static_cast<double>(step.joints[0].force.w));
  }
  EXPECT_LT(worst, 1e-6) << "also where it meets itself on its way";
  EXPECT_LT(step.joints[0].force.w, 1e-7);
  const double weight = MassOf(Inside(scene, {-1, -1, -1}, {1, 1, 1})) * kGravity;
  // Efforts that overshoot swing from sweep to sweep: they were off by half of the weight, sideways too.
  EXPECT_NEAR(step.joints[0].force.z, weight, 1e-3 * weight);
  EXPECT_LT(std::hypot(step.joints[0].force.x, step.joints[0].force.y), 1e-3 * weight);
  EXPECT_LT(Mean(Inside(scene, {0, 0.2, -1}, {1, 0.2, 1})).z(), -0.17) << "its other edge is below";
}

TEST_F(JointFramesTest, EffortsOfAnySetOfASheetComeToRest) {
  // Sets of one to many rows, and of coarse and fine triangles, thin and thick: an effort that overshoots swings from sweep to sweep.
  struct Case {
    uint32_t cells;
    Vector3d lower, upper;
    double young_modulus_pa;
  };
  const Case cases[] = {{12, {0.05, 0, -1}, {0.15, 0.02, 1}, 1e5},    {12, {-1, 0, -1}, {1, 0.06, 1}, 1e5},
                        {12, {0.06, 0.06, -1}, {0.14, 0.14, 1}, 1e5}, {12, {-1, -1, -1}, {0.05, 0.05, 1}, 1e6},
                        {24, {0.05, 0, -1}, {0.15, 0.02, 1}, 1e5},    {6, {-1, 0, -1}, {1, 0.04, 1}, 1e4}};
  for (const Case& c : cases) {
    TissueModel scene;
    scene.body_triangle_begin = {0};
    AddSheet(&scene, c.cells, c.cells, {0.2, 0.2}, {0, 0, 0}, {.young_modulus_pa = c.young_modulus_pa, .mass_damping_per_s = 5});
    const auto held = Inside(scene, c.lower, c.upper);
    scene.joint_sets = {SetOf(scene, held)};
    const auto& at = scene.joint_sets[0].origin_m;
    scene.joints = {Ball(RigidJoint::kWorld, 0, {at[0], at[1], at[2]})};
    Make(scene);
    ASSERT_FALSE(HasFatalFailure());
    TissueStep step;
    for (int i = 0; i < 480; ++i) step = Step();
    const double weight = MassOf(Inside(scene, {-1, -1, -1}, {1, 1, 1})) * kGravity;
    const Vector3d force(step.joints[0].force.x, step.joints[0].force.y, step.joints[0].force.z);
    EXPECT_LT((force - Vector3d(0, 0, weight)).norm(), 2e-3 * weight) << held.size() << " vertices of a sheet of " << c.cells << " cells";
  }
}

TEST_F(JointFramesTest, NothingPassesThroughWhatAJointPresses) {
  // A slider with a motor pushes a bar of tissue down onto a static block.
  TissueModel scene = Bar({.young_modulus_pa = 3e4});
  const auto held = Inside(scene, {0, -1, -1}, {0.02, 1, 1});
  const auto block = static_cast<uint32_t>(scene.rest_m.size());
  AddRigidBox(&scene, {0.2, 0.1, 0.02}, {0.05, 0, -0.03}, 1);
  scene.rigid.clear();  // it does not move
  scene.joint_sets = {SetOf(scene, held)};
  RigidJoint slider = Fixed(RigidJoint::kWorld, 0, {0.01, 0, 0});
  slider.rows[2] = {.drive = JointDrive::kMotor, .speed = -0.05, .max_effort = 2};
  scene.joints = {slider};
  TissueOptions options;
  Make(scene, options);
  ASSERT_FALSE(HasFatalFailure());
  TissueStep step;
  for (int i = 0; i < 180; ++i) {
    step = Step();
    if (i % 6 == 0) {
      ASSERT_EQ(CountIntersections(scene_.surface_triangles, Positions()), 0U) << "step " << i;
    }
  }
  double lowest = 1;
  const auto x = Positions();
  for (uint32_t v = 0; v < block; ++v) lowest = std::min(lowest, x[v].z());
  EXPECT_LT(lowest, -0.018);
  EXPECT_GT(lowest, -0.02) << "it lies on the block";
  EXPECT_NEAR(std::abs(step.joints[0].efforts[2]), 2, 0.01) << "with all that the motor has";
  Vector3d carried = Vector3d::Zero();
  for (const SurfaceReport& r : step.surface_contacts) carried += Vec(r.force) * (r.vertices.x >= block ? -1 : 1);
  const double weight = MassOf(Inside(scene, {-1, -0.04, -0.018}, {0.11, 0.04, 1})) * kGravity;
  EXPECT_NEAR(std::abs(carried.z()), 2 + weight, 0.15 * (2 + weight));
}

TEST_F(JointFramesTest, AMountOnACouplingFeelsWhatHangsThere) {
  // A body on a coupling: its weight stretches the spring, and it swings with the mass of both.
  TissueModel scene;
  scene.body_triangle_begin = {0};
  AddRigidBox(&scene, {0.04, 0.04, 0.04}, {0, 0, -0.05}, 0.15);
  TissueJointMount mount;
  mount.coupling_n_per_m = 200;
  mount.mass_kg = 0.05;
  scene.joint_mounts = {mount};
  scene.joints = {Fixed(1, 0, {0, 0, 0})};
  TissueOptions options;
  options.dt_s = 1.0 / 960;
  Make(scene, options);
  ASSERT_FALSE(HasFatalFailure());
  std::vector<double> heights;
  double at = 0;
  TissueStep step;
  for (int i = 0; i < 960; ++i) {
    PALPATE_ASSERT_OK(solver_->SetJointMount(0, {0, 0, 0}, {0, 0, 0, 1}));
    step = Step();
    at = step.joints[0].point.z;
    heights.push_back(at);
    ASSERT_LT(step.joints[0].force.w, 1e-6);
  }
  // Undamped but for the time steps: about the place where the spring carries the body. Tools do not weigh.
  const double sag = 0.15 * kGravity / 200;
  std::vector<double> times;
  for (size_t i = 1; i < heights.size(); ++i) {
    const double a = heights[i - 1] + sag, b = heights[i] + sag;
    if (a > 0 && b <= 0) times.push_back((static_cast<double>(i) + a / (a - b)) * options.dt_s);
  }
  ASSERT_GE(times.size(), 3U);
  const double period = 2 * std::numbers::pi * std::sqrt(0.2 / 200);
  EXPECT_NEAR((times.back() - times.front()) / static_cast<double>(times.size() - 1), period, 0.01 * period);
}

// Sets of tissue that meets other bodies, a rigid body, and mounts of both kinds.
TEST_F(JointFramesTest, TheSameStepsHaveTheSameBits) {
  TissueModel scene = Bar({.young_modulus_pa = 2e4}, {0.06, 0.02, 0.02}, {6, 2, 2});
  AddRigidBox(&scene, {0.02, 0.02, 0.02}, {0.075, 0, 0}, 0.02);
  scene.joint_sets = {SetOf(scene, Inside(scene, {0, -1, -1}, {0.01, 1, 1})), SetOf(scene, Inside(scene, {0.05, -1, -1}, {0.06, 1, 1}))};
  TissueJointMount coupled;
  coupled.coupling_n_per_m = 300;
  coupled.damping_n_s_per_m = 5;
  coupled.mass_kg = 0.05;
  scene.joint_mounts = {coupled, {.center_m = {0.1, 0, 0}}};
  // Rigid body 0, sets 1 and 2, mounts 3 and 4.
  scene.joints = {Hinge(3, 1, {0, 0, 0.02}, {0, 1, 0}), Ball(2, 0, {0.0625, 0, 0}), Ball(4, 0, {0.1, 0, 0})};
  scene.loads = {{.force_n = {0, 0.1, 0}, .start_s = 0, .duration_s = 1}};
  scene.loads[0].vertices = Inside(scene, {0.03, -1, -1}, {0.03, 1, 1});
  Make(scene);
  ASSERT_FALSE(HasFatalFailure());
  const auto run = [&] {
    uint64_t hash = 0;
    for (int i = 0; i < 6; ++i) {
      PALPATE_EXPECT_OK(solver_->SetJointMount(0, {0, 0, 1e-3 * i}, {0, 0, 0, 1}, {0.1, 0, 0}));
      PALPATE_EXPECT_OK(solver_->SetJointMount(1, {0.1, 0, 2e-4 * i}, {0, 0, 0, 1}));
      hash = Step().hash;
    }
    return hash;
  };
  const uint64_t first = run();
  PALPATE_ASSERT_OK(solver_->Reset());
  EXPECT_EQ(run(), first);
}

TEST_F(JointFramesTest, PendulumOfTissueHasThePeriodOfARigidOne) {
  // Stiff enough to swing as one piece. About a hinge 1 cm from its end: T = 2 pi sqrt(I / (m g d)), with small swings.
  TissueModel scene = Bar({.young_modulus_pa = 1e5, .poisson_ratio = 0.3}, {0.1, 0.03, 0.03}, {6, 2, 2});
  scene.joint_sets = {SetOf(scene, Inside(scene, {0, -1, -1}, {0.034, 1, 1}))};
  // Hinge axis along y through (0.01, 0, 0); it lies across, so start with gravity that is a little turned from its length.
  scene.joints = {Hinge(RigidJoint::kWorld, 0, {0.01, 0, 0}, {0, 1, 0})};
  TissueOptions options;
  options.gravity_m_per_s2 = {kGravity * std::cos(0.15), 0, -kGravity * std::sin(0.15)};
  options.iterations = 60;
  options.dt_s = 1.0 / 480;
  Make(scene, options);
  ASSERT_FALSE(HasFatalFailure());
  std::vector<double> crossings;
  double before = 0;
  for (int i = 0; i < 480; ++i) {
    const TissueStep step = Step();
    const double at = step.joints[0].coordinates[5] - 0.15;  // the line of gravity
    if (i > 0 && before * at < 0) crossings.push_back((i - 1 + before / (before - at)) * options.dt_s);
    before = at;
  }
  ASSERT_GE(crossings.size(), 2U);
  const double d = 0.04, inertia = (0.1 * 0.1 + 0.03 * 0.03) / 12 + d * d;
  const double period = 2 * std::numbers::pi * std::sqrt(inertia / (kGravity * d));
  EXPECT_NEAR(2 * (crossings[1] - crossings[0]), period, 0.02 * period);
}

TEST_F(JointFramesTest, ErrorsNameWhatIsWrong) {
  const auto error = [&](const std::function<void(TissueModel*)>& change) {
    TissueModel scene = Bar({});
    scene.joint_sets = {SetOf(scene, Inside(scene, {0, -1, -1}, {0, 1, 1}))};
    scene.joints = {Ball(RigidJoint::kWorld, 0, {0, 0, 0})};
    change(&scene);
    auto solver = TissueSolver::Create(context(), scene, {}, {}, {}, TissueTuning::For(context()->device()));
    return solver.ok() ? std::string("no error") : std::string(solver.status().message());
  };
  EXPECT_EQ(error([](TissueModel*) {}), "no error");
  EXPECT_THAT(error([](TissueModel* m) { m->joint_sets[0].vertices[1] = 4000; }), testing::HasSubstr("vertex 4000 is out of range"));
  EXPECT_THAT(error([](TissueModel* m) { m->fixed[m->joint_sets[0].vertices[0]] = kFixedVertex; }), testing::HasSubstr("is not free"));
  EXPECT_THAT(error([](TissueModel* m) { m->joint_sets.push_back(m->joint_sets[0]); }), testing::HasSubstr("given twice"));
  EXPECT_THAT(error([](TissueModel* m) { m->joints[0].body_b = 1; }), testing::HasSubstr("there is no rigid body 1"));
  EXPECT_THAT(error([](TissueModel* m) { m->joints.clear(); }), testing::HasSubstr("there are no joints"));
  EXPECT_THAT(error([](TissueModel* m) {
                m->joint_mounts.resize(1);
                m->joints.push_back(Ball(RigidJoint::kWorld, 1, {0, 0, 0}));
              }),
              testing::HasSubstr("moved from outside"));
}

}  // namespace
}  // namespace palpate::gpu::joint_frames_test
