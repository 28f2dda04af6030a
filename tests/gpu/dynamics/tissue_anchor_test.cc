// Vertices that are held by tools and clips, and tools of several capsules.
#include <gmock/gmock.h>

#include <Eigen/Dense>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "gpu/dynamics/tissue_solver.h"
#include "tests/gpu/dynamics/tissue_models.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::tissue_anchor_test {
namespace {

using Eigen::Vector3d;
using ::testing::HasSubstr;

Vector3d ToVector(const Float4& v) { return {v.x, v.y, v.z}; }

class TissueAnchorTest : public test::DeviceTest {
 protected:
  std::unique_ptr<TissueSolver> Make(const TissueModel& model, const TissueOptions& options,
                                     const std::vector<ColliderDescription>& colliders) {
    auto solver = TissueSolver::Create(context(), model, options, colliders, {}, TissueTuning{});
    EXPECT_TRUE(solver.ok()) << solver.status();
    return solver.ok() ? *std::move(solver) : nullptr;
  }
  static std::vector<Vector3d> Positions(TissueSolver& solver) {
    std::vector<float> flat(size_t{solver.layout().vertex_count} * 3);
    PALPATE_EXPECT_OK(solver.ReadPositions(flat));
    return Unpack(flat);
  }
  static std::vector<Vector3d> Forces(TissueSolver& solver, uint32_t parts) {
    std::vector<float> flat(size_t{solver.layout().vertex_count} * 3);
    PALPATE_EXPECT_OK(solver.ReadForces(parts, flat));
    return Unpack(flat);
  }
  static Vector3d Sum(std::span<const AnchorReport> reports) {
    Vector3d sum = Vector3d::Zero();
    for (const AnchorReport& report : reports) sum += ToVector(report.force);
    return sum;
  }
  static std::vector<ColliderTarget> TargetsOf(const std::vector<ColliderDescription>& colliders) {
    std::vector<ColliderTarget> targets;
    for (const ColliderDescription& c : colliders) targets.push_back({c.tip_m, c.axis_m});
    return targets;
  }
  /// A forceps of three capsules, its tip at `tip`.
  static std::vector<ColliderDescription> Forceps(const Vector3d& tip, double coupling_n_per_m) {
    ColliderDescription shaft{.radius_m = 0.003, .tip_m = {tip.x(), tip.y(), tip.z()}, .axis_m = {0, 0, 0.05}};
    shaft.coupling_n_per_m = coupling_n_per_m;
    shaft.mass_kg = coupling_n_per_m > 0 ? 0.05 : 0;
    shaft.damping_n_s_per_m = 2 * std::sqrt(coupling_n_per_m * shaft.mass_kg);
    std::vector<ColliderDescription> all{shaft};
    for (const double side : {-1.0, 1.0}) {
      ColliderDescription jaw = shaft;
      jaw.radius_m = 0.0015;
      jaw.tip_m[0] += 0.01 * side;
      jaw.axis_m = {-0.01 * side, 0, 0.01};
      jaw.places_after_leader = static_cast<uint32_t>(all.size());
      all.push_back(jaw);
    }
    return all;
  }
};

TEST_F(TissueAnchorTest, ForceIsMinusTheGradientOfTheEnergy) {
  TissueModel model = BoxModel({3, 3, 2}, {0.06, 0.06, 0.04}, {0, 0, 0}, {});
  model.fixed[0] = 1;
  const std::vector<ColliderDescription> tool = Forceps({0.03, 0.03, 0.5}, 0);
  auto solver = Make(model, {}, tool);
  ASSERT_NE(solver, nullptr);
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> shift(-0.01, 0.01);
  std::vector<TissueAnchor> anchors;
  const std::vector<Vector3d> x = Positions(*solver);
  uint32_t capped = 0;
  uint32_t before = 0;  // one-sided ones whose vertex is on the free side
  for (uint32_t i = 0; i < 60; ++i) {
    // Some vertices are held twice, one of them is fixed.
    TissueAnchor a{.vertex = static_cast<uint32_t>(random() % x.size()), .holder = i % 3, .stiffness_n_per_m = 100.0 + i};
    for (int axis = 0; axis < 3; ++axis) a.target_m[axis] = x[a.vertex][axis] - tool[a.holder].tip_m[axis] + shift(random);
    a.max_force_n = i % 2 == 0 ? 0.4 : 100;
    if (i % 3 == 2) {  // one-sided
      const Vector3d n = Vector3d(shift(random), shift(random), shift(random)).normalized();
      a.normal = {n.x(), n.y(), n.z()};
    }
    anchors.push_back(a);
  }
  PALPATE_ASSERT_OK(solver->SetAnchors(anchors, 0));
  const std::vector<Vector3d> forces = Forces(*solver, kAnchorForces);
  const auto energy = [&](uint32_t vertex, const Vector3d& at) {
    double sum = 0;
    for (const TissueAnchor& a : anchors) {
      if (a.vertex != vertex) continue;
      Vector3d d = at;
      for (int axis = 0; axis < 3; ++axis) d[axis] -= tool[a.holder].tip_m[axis] + a.target_m[axis];
      if (const Vector3d n(a.normal[0], a.normal[1], a.normal[2]); n.norm() > 0) {
        before += n.dot(d) > 0 ? 1 : 0;
        d = std::min(n.dot(d), 0.0) * n;
      }
      const double yield_m = a.max_force_n / a.stiffness_n_per_m;
      if (d.norm() < yield_m) {
        sum += a.stiffness_n_per_m * d.squaredNorm() / 2;
      } else {
        sum += a.max_force_n * (d.norm() - yield_m / 2);
        ++capped;
      }
    }
    return sum;
  };
  for (uint32_t v = 0; v < x.size(); ++v) {
    Vector3d gradient;
    for (int axis = 0; axis < 3; ++axis) {
      const Vector3d h = 1e-7 * Vector3d::Unit(axis);
      gradient[axis] = (energy(v, x[v] + h) - energy(v, x[v] - h)) / 2e-7;
    }
    EXPECT_LT((forces[v] + gradient).norm(), 1e-4 * (1 + gradient.norm())) << "vertex " << v;
  }
  EXPECT_GT(capped, 30U);
  EXPECT_GT(before, 30U);
}

TEST_F(TissueAnchorTest, OneSidedAnchorsKeepTissueBeforeTheirPlaneAndPushTheTool) {
  // A coupled tool that leaves tissue to anchors comes down on a block: each vertex of its top has a plane below the tip.
  const Vector3d size(0.06, 0.06, 0.04);
  TissueModel model = BoxModel({4, 4, 3}, size, {0, 0, 0}, {});
  for (size_t v = 0; v < model.rest_m.size(); ++v) model.fixed[v] = model.rest_m[v][2] < 1e-6 ? 1 : 0;
  std::vector<ColliderDescription> tool = Forceps({0.03, 0.03, 0.045}, 500);
  for (ColliderDescription& c : tool) c.skips_tissue = true;
  TissueOptions options;
  options.gravity_m_per_s2 = {0, 0, 0};
  auto solver = Make(model, options, tool);
  ASSERT_NE(solver, nullptr);
  std::vector<TissueAnchor> anchors;
  for (uint32_t v = 0; v < model.rest_m.size(); ++v) {
    if (model.rest_m[v][2] < size[2] - 1e-6) continue;
    TissueAnchor a{.vertex = v, .holder = 0, .stiffness_n_per_m = 2000, .max_force_n = 1e6};
    a.target_m = {model.rest_m[v][0] - tool[0].tip_m[0], model.rest_m[v][1] - tool[0].tip_m[1], -0.004};
    a.normal = {0, 0, -1};
    anchors.push_back(a);
  }
  PALPATE_ASSERT_OK(solver->SetAnchors(anchors, 0));
  std::vector<ColliderTarget> targets = TargetsOf(tool);
  TissueStep step;
  for (int i = 0; i < 200; ++i) {
    for (ColliderTarget& target : targets) target.tip_m[2] -= i < 100 ? 0.00005 : 0;
    PALPATE_TEST_ASSIGN(step, solver->Step(targets));
    EXPECT_TRUE(step.contacts.empty() || step.contacts[0].point.w == 0) << "no contact force";
  }
  const double tip_z = step.colliders[0].tip.z;
  for (const AnchorReport& report : step.anchors) {
    EXPECT_LE(report.force.z, 0) << "it never pulls the tissue up";
    EXPECT_EQ(report.force.x, 0);
    EXPECT_LT(report.point.z, tip_z - 0.004 + 0.0005);
  }
  const Vector3d on_tool = -Sum(step.anchors);
  EXPECT_GT(on_tool.z(), 0.1);
  EXPECT_NEAR(on_tool.z(), 500 * (tip_z - targets[0].tip_m[2]), 0.02 * on_tool.z()) << "what the coupling carries";
  // Withdrawn, it lets go at once.
  for (int i = 0; i < 60; ++i) {
    for (ColliderTarget& target : targets) target.tip_m[2] += 0.0005;
    PALPATE_TEST_ASSIGN(step, solver->Step(targets));
    for (const AnchorReport& report : step.anchors) EXPECT_LE(report.force.z, 0);
  }
  EXPECT_EQ(Sum(step.anchors), Vector3d(Vector3d::Zero()));

  anchors.assign(1, {.vertex = 40, .holder = 0, .stiffness_n_per_m = 1, .max_force_n = 1, .normal = {0, 0, 0.5}});
  EXPECT_EQ(solver->SetAnchors(anchors, 0).code(), absl::StatusCode::kInvalidArgument);
  anchors[0] = {.vertex = 40, .holder = 3, .stiffness_n_per_m = 1, .max_force_n = 1, .normal = {0, 0, 1}};
  EXPECT_EQ(solver->SetAnchors(anchors, 1).code(), absl::StatusCode::kInvalidArgument) << "a clip holds from all sides";
}

TEST_F(TissueAnchorTest, ToolFeelsWhatItHolds) {
  TissueModel model = BoxModel({5, 5, 3}, {0.08, 0.08, 0.04}, {-0.04, -0.04, 0}, {.young_modulus_pa = 5000, .damping_s = 0.02});
  for (uint32_t v = 0; v < model.fixed.size(); ++v) model.fixed[v] = model.rest_m[v][2] == 0;
  const std::vector<ColliderDescription> tool = Forceps({0, 0, 0.06}, 500);
  auto solver = Make(model, {.iterations = 40}, tool);
  ASSERT_NE(solver, nullptr);
  std::vector<TissueAnchor> anchors;
  for (uint32_t v = 0; v < model.rest_m.size(); ++v) {
    const Vector3d x(model.rest_m[v][0], model.rest_m[v][1], model.rest_m[v][2]);
    if (x.z() < 0.039 || x.head<2>().norm() > 0.02) continue;
    const uint32_t jaw = x.x() < 0 ? 1 : 2;
    TissueAnchor a{.vertex = v, .holder = jaw, .stiffness_n_per_m = 300, .max_force_n = 5};
    for (int axis = 0; axis < 3; ++axis) a.target_m[axis] = x[axis] - tool[jaw].tip_m[axis];
    anchors.push_back(a);
  }
  ASSERT_GE(anchors.size(), 4U);
  PALPATE_ASSERT_OK(solver->SetAnchors(anchors, 0));
  std::vector<ColliderTarget> targets = TargetsOf(tool);
  TissueStep step;
  Vector3d velocity = Vector3d::Zero();
  Vector3d tip(0, 0, 0.06);
  for (int i = 0; i < 300; ++i) {
    const Vector3d device_before(targets[0].tip_m[0], targets[0].tip_m[1], targets[0].tip_m[2]);
    for (ColliderTarget& target : targets) target.tip_m[2] += i < 40 ? 0.0005 : 0;
    PALPATE_TEST_ASSIGN(step, solver->Step(targets));
    ASSERT_EQ(step.anchors.size(), anchors.size());
    // Newton's law for the tool at every step: coupling and damper against what it holds.
    const Vector3d device(targets[0].tip_m[0], targets[0].tip_m[1], targets[0].tip_m[2]);
    const Vector3d now = ToVector(step.colliders[0].tip);
    const Vector3d now_velocity = (now - tip) * 120;
    const Vector3d driven = 500 * (device - now) + tool[0].damping_n_s_per_m * ((device - device_before) * 120 - now_velocity);
    const Vector3d needed = 0.05 * (now_velocity - velocity) * 120;
    EXPECT_LT((driven - Sum(step.anchors) - needed).norm(), 0.02) << "step " << i;
    velocity = now_velocity;
    tip = now;
    for (int m = 1; m < 3; ++m) {
      EXPECT_NEAR(step.colliders[m].tip.x - step.colliders[0].tip.x, m == 1 ? -0.01 : 0.01, 1e-7);
      EXPECT_NEAR(step.colliders[m].tip.z, step.colliders[0].tip.z, 1e-7);
    }
  }
  const Vector3d pull = Sum(step.anchors);
  EXPECT_GT(pull.z(), 0.5) << "pulled up";
  Vector3d from_vertices = Vector3d::Zero();
  for (const Vector3d& f : Forces(*solver, kAnchorForces)) from_vertices += f;
  EXPECT_LT((from_vertices - pull).norm(), 1e-4 * pull.norm());
  // Statics: what holds the bottom carries the weight and the pull.
  Vector3d support = Vector3d::Zero();
  double free_mass = 0;
  const std::vector<Vector3d> elastic = Forces(*solver, kElasticForces);
  for (uint32_t v = 0; v < model.fixed.size(); ++v) {
    if (model.fixed[v]) support += elastic[v];
    if (!model.fixed[v]) free_mass += solver->layout().mass_kg[solver->layout().solver_index[v]];
  }
  const Vector3d expected = pull + free_mass * Vector3d(0, 0, -9.81);
  EXPECT_LT((support - expected).norm(), 0.01 * pull.norm()) << support.transpose() << " instead of " << expected.transpose();

  // Let go: nothing pulls any more, and the tissue goes back.
  PALPATE_ASSERT_OK(solver->SetAnchors({}, 0));
  for (int i = 0; i < 150; ++i) PALPATE_ASSERT_OK(solver->Step(targets).status());
  double highest = 0;
  for (const Vector3d& x : Positions(*solver)) highest = std::max(highest, x.z());
  EXPECT_LT(highest, 0.0405);
}

TEST_F(TissueAnchorTest, NoAnchorPullsMoreThanItsForce) {
  TissueModel model = BoxModel({3, 3, 2}, {0.06, 0.06, 0.04}, {-0.03, -0.03, 0}, {.young_modulus_pa = 20000, .damping_s = 0.02});
  for (uint32_t v = 0; v < model.fixed.size(); ++v) model.fixed[v] = model.rest_m[v][2] == 0;
  const std::vector<ColliderDescription> tool = Forceps({0, 0, 0.1}, 0);
  auto solver = Make(model, {.gravity_m_per_s2 = {0, 0, 0}}, tool);
  ASSERT_NE(solver, nullptr);
  std::vector<TissueAnchor> anchors;
  for (uint32_t v = 32; v < 48; ++v) {
    TissueAnchor a{.vertex = v, .holder = 0, .stiffness_n_per_m = 500, .max_force_n = 0.25};
    for (int axis = 0; axis < 3; ++axis) a.target_m[axis] = model.rest_m[v][axis] - tool[0].tip_m[axis];
    anchors.push_back(a);
  }
  PALPATE_ASSERT_OK(solver->SetAnchors(anchors, 0));
  std::vector<ColliderTarget> targets = TargetsOf(tool);
  double most = 0;
  double total = 0;
  for (int i = 0; i < 200; ++i) {
    for (ColliderTarget& target : targets) target.tip_m[2] += i < 100 ? 0.002 : 0;
    PALPATE_TEST_ASSIGN(const TissueStep step, solver->Step(targets));
    for (const AnchorReport& report : step.anchors) {
      most = std::max(most, ToVector(report.force).norm());
      ASSERT_LE(ToVector(report.force).norm(), 0.25 * (1 + 1e-5));
    }
    total = Sum(step.anchors).z();
  }
  EXPECT_NEAR(total, 16 * 0.25, 0.01) << "each pulls with all it may";
  EXPECT_GT(most, 0.249);
}

TEST_F(TissueAnchorTest, ClipJoinsBodiesAndKeepsMomentum) {
  // Two boxes that do not collide, one at rest and one moving away; the faces that look at each other share a clip.
  TissueModel model = BoxModel({2, 2, 2}, {0.03, 0.03, 0.03}, {0, 0, 0}, {.damping_s = 0.02});
  const TissueModel other = BoxModel({2, 2, 2}, {0.03, 0.03, 0.03}, {0.034, 0, 0}, {.damping_s = 0.02});
  const auto base = static_cast<uint32_t>(model.rest_m.size());
  model.rest_m.insert(model.rest_m.end(), other.rest_m.begin(), other.rest_m.end());
  model.fixed.resize(model.rest_m.size(), 0);
  for (TissueTet tet : other.tets) {
    for (uint32_t& v : tet.vertices) v += base;
    model.tets.push_back(tet);
  }
  for (auto triangle : other.surface_triangles) {
    for (uint32_t& v : triangle) v += base;
    model.surface_triangles.push_back(triangle);
  }
  auto solver = Make(model, {.gravity_m_per_s2 = {0, 0, 0}, .iterations = 30}, {});
  ASSERT_NE(solver, nullptr);
  std::vector<float> positions;
  std::vector<float> velocities;
  for (uint32_t v = 0; v < model.rest_m.size(); ++v) {
    for (const double c : model.rest_m[v]) positions.push_back(static_cast<float>(c));
    velocities.insert(velocities.end(), {v < base ? 0.0F : 0.2F, 0, 0});
  }
  PALPATE_ASSERT_OK(solver->WriteState(positions, velocities));
  std::vector<TissueAnchor> anchors;
  Vector3d center = Vector3d::Zero();
  for (uint32_t v = 0; v < model.rest_m.size(); ++v) {
    if (model.rest_m[v][0] < 0.029 || model.rest_m[v][0] > 0.035) continue;
    anchors.push_back({.vertex = v, .holder = 0, .target_m = model.rest_m[v], .stiffness_n_per_m = 400, .max_force_n = 1000});
    center += Vector3d(model.rest_m[v][0], model.rest_m[v][1], model.rest_m[v][2]);
  }
  ASSERT_EQ(anchors.size(), 18U);
  center /= 18;
  for (TissueAnchor& a : anchors) {
    for (int axis = 0; axis < 3; ++axis) a.target_m[axis] -= center[axis];
  }
  PALPATE_ASSERT_OK(solver->SetAnchors(anchors, 1));
  const std::vector<SolverSlot>& index = solver->layout().solver_index;
  std::vector<Vector3d> before = Positions(*solver);
  double total_mass = 0;
  for (const float m : solver->layout().mass_kg) total_mass += m;
  Vector3d velocity_of[2];
  for (int i = 0; i < 240; ++i) {
    PALPATE_TEST_ASSIGN(const TissueStep step, solver->Step({}));
    EXPECT_LT(Sum(step.anchors).norm(), 2e-3) << "a clip holds nothing but what it joins";
    const std::vector<Vector3d> x = Positions(*solver);
    velocity_of[0] = velocity_of[1] = Vector3d::Zero();
    for (uint32_t v = 0; v < x.size(); ++v) {
      velocity_of[v < base ? 0 : 1] += 120 * (x[v] - before[v]) * solver->layout().mass_kg[index[v]] / (total_mass / 2);
    }
    EXPECT_NEAR((velocity_of[0] + velocity_of[1]).x() / 2, 0.1, 0.002) << "step " << i;
    before = x;
  }
  EXPECT_NEAR(velocity_of[0].x(), velocity_of[1].x(), 0.01) << "they go on as one";
  double widest = 0;
  for (const TissueAnchor& a : anchors) widest = std::max(widest, (before[a.vertex] - before[anchors[0].vertex]).norm());
  EXPECT_LT(widest, 0.05);
}

TEST_F(TissueAnchorTest, CapsulesOfOneToolShareItsForce) {
  TissueModel model = BoxModel({6, 6, 3}, {0.09, 0.09, 0.04}, {-0.045, -0.045, 0}, {.young_modulus_pa = 6000, .damping_s = 0.02});
  for (uint32_t v = 0; v < model.fixed.size(); ++v) model.fixed[v] = model.rest_m[v][2] == 0;
  // Only the jaws reach the tissue.
  std::vector<ColliderDescription> tool = Forceps({0, 0, 0.07}, 400);
  for (size_t m : {1, 2}) tool[m].tip_m[2] -= 0.02;
  auto solver = Make(model, {.iterations = 40}, tool);
  ASSERT_NE(solver, nullptr);
  std::vector<ColliderTarget> targets = TargetsOf(tool);
  TissueStep step;
  for (int i = 0; i < 250; ++i) {
    for (ColliderTarget& target : targets) target.tip_m[2] -= i < 30 ? 0.0005 : 0;
    PALPATE_TEST_ASSIGN(step, solver->Step(targets));
  }
  Vector3d by_member[3] = {Vector3d::Zero(), Vector3d::Zero(), Vector3d::Zero()};
  for (const ContactReport& report : step.contacts) by_member[report.collider] += ToVector(report.force);
  EXPECT_EQ(by_member[0].norm(), 0);
  EXPECT_LT(by_member[1].z(), -0.1);
  EXPECT_LT(by_member[2].z(), -0.1);
  const Vector3d spring = 400 * (ToVector(step.colliders[0].device_tip) - ToVector(step.colliders[0].tip));
  const Vector3d on_tissue = by_member[1] + by_member[2];
  EXPECT_LT((spring - on_tissue).norm(), 0.01 * on_tissue.norm()) << spring.transpose() << " instead of " << on_tissue.transpose();
}

TEST_F(TissueAnchorTest, RefusesBadAnchorsAndGroups) {
  const TissueModel model = BoxModel({1, 1, 1}, {0.03, 0.03, 0.03}, {0, 0, 0}, {});
  auto solver = Make(model, {}, Forceps({0, 0, 0.1}, 0));
  ASSERT_NE(solver, nullptr);
  const TissueAnchor good{.vertex = 3, .holder = 2, .target_m = {0, 0, 0}, .stiffness_n_per_m = 1, .max_force_n = 1};
  PALPATE_EXPECT_OK(solver->SetAnchors(std::vector<TissueAnchor>{good, good}, 0));
  for (int kind = 0; kind < 6; ++kind) {
    TissueAnchor bad = good;
    if (kind == 0) bad.vertex = 8;
    if (kind == 1) bad.holder = 3;
    if (kind == 2) bad.stiffness_n_per_m = 0;
    if (kind == 3) bad.max_force_n = -1;
    if (kind == 4) bad.target_m[1] = std::numeric_limits<double>::quiet_NaN();
    if (kind == 5) bad.stiffness_n_per_m = std::numeric_limits<double>::infinity();
    const absl::Status status = solver->SetAnchors(std::vector<TissueAnchor>{good, bad}, 0);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << kind;
    EXPECT_THAT(std::string(status.message()), HasSubstr("anchor 1")) << kind;
  }
  EXPECT_EQ(solver->SetAnchors({}, TissueSolver::kMaxClips + 1).code(), absl::StatusCode::kResourceExhausted);

  std::vector<ColliderDescription> gap = Forceps({0, 0, 0.1}, 0);
  gap[1].places_after_leader = 0;
  const auto refused = TissueSolver::Create(context(), model, {}, gap, {}, TissueTuning{});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("collider 2"));
}

}  // namespace
}  // namespace palpate::gpu::tissue_anchor_test
