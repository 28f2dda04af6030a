#include "gpu/dynamics/rigid_joints.h"

#include <gmock/gmock.h>

#include <Eigen/Dense>
#include <Eigen/Geometry>
#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <random>
#include <utility>
#include <vector>

#include "tests/gpu/dynamics/rigid_scene.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::rigid_joints_test {
namespace {

using test_rigid::Array;
using test_rigid::BoxBody;
using test_rigid::kDt;
using test_rigid::RigidScene;
using test_rigid::Rotation;
using test_rigid::Vec;

using Eigen::Quaterniond;
using Eigen::Vector3d;

constexpr int kSweeps = 12;
constexpr double kGravity = 9.81;

std::array<double, 4> Array(const Quaterniond& q) { return {q.x(), q.y(), q.z(), q.w()}; }

RigidJointRow Locked() { return {.drive = JointDrive::kLocked}; }

RigidJoint Ball(uint32_t a, uint32_t b, const Vector3d& at) {
  RigidJoint joint{.body_a = a, .body_b = b, .point_a_m = Array(at), .point_b_m = Array(at)};
  for (int r = 0; r < 3; ++r) joint.rows[static_cast<size_t>(r)] = Locked();
  return joint;
}

// The axis is z of the frame.
RigidJoint Hinge(uint32_t a, uint32_t b, const Vector3d& at, const Vector3d& axis) {
  RigidJoint joint = Ball(a, b, at);
  joint.about = RigidJoint::About::kTwist;
  joint.frame = Array(Quaterniond::FromTwoVectors(Vector3d::UnitZ(), axis).normalized());
  joint.rows[3] = joint.rows[4] = Locked();
  return joint;
}

RigidJoint Spring(uint32_t a, uint32_t b, const Vector3d& at_a, const Vector3d& at_b, double stiffness, double damping, double length) {
  RigidJoint joint{.body_a = a, .body_b = b, .point_a_m = Array(at_a), .point_b_m = Array(at_b), .along = RigidJoint::Along::kDistance};
  joint.rows[0] = {.drive = JointDrive::kSpring, .target = length, .stiffness = stiffness, .damping = damping};
  return joint;
}

class RigidJointsTest : public RigidScene {
 protected:
  static StepParams Falling(double gravity = kGravity) {
    StepParams params = Params();
    params.gravity_z = static_cast<float>(-gravity);
    return params;
  }

  std::vector<JointReport> Reports() {
    const auto reports = rigid_->ReadJoints(queue());
    EXPECT_TRUE(reports.ok()) << reports.status();
    return {reports->begin(), reports->end()};
  }

  double WorstGap() {
    double worst = 0;
    for (const JointReport& report : Reports()) worst = std::max(worst, static_cast<double>(report.force.w));
    return worst;
  }
};

// Times at which a sampled signal rises through 0, by linear interpolation.
std::vector<double> Rises(const std::vector<double>& signal) {
  std::vector<double> times;
  for (size_t i = 1; i < signal.size(); ++i) {
    if (signal[i - 1] < 0 && signal[i] >= 0) times.push_back((static_cast<double>(i) - signal[i] / (signal[i] - signal[i - 1])) * kDt);
  }
  return times;
}

double MeanPeriod(const std::vector<double>& signal) {
  const std::vector<double> times = Rises(signal);
  EXPECT_GE(times.size(), 3U);
  return times.size() < 2 ? 0 : (times.back() - times.front()) / static_cast<double>(times.size() - 1);
}

// ---- The order of elimination ----

// What the plan says of the pattern of a symmetric matrix: which blocks there are after elimination.
TEST(JointPlan, FactorsTheMatrixOfAnyGraph) {
  std::mt19937 random(7);
  for (int round = 0; round < 40; ++round) {
    const uint32_t bodies = 2 + random() % 12;
    const uint32_t joint_count = 1 + random() % 16;
    std::vector<RigidJoint> joints;
    for (uint32_t j = 0; j < joint_count; ++j) {
      const uint32_t a = random() % 5 == 0 ? RigidJoint::kWorld : random() % bodies;
      uint32_t b = random() % bodies;
      if (b == a) b = (b + 1) % bodies;
      joints.push_back(Ball(a, b, Vector3d::Zero()));
    }
    const JointPlan plan = JointPlan::Of(joints, bodies);
    const size_t n = plan.nodes.size();
    ASSERT_EQ(n, plan.members.size() + joints.size());
    // A random matrix of this pattern, of one number a block; joints have nothing on their diagonals.
    Eigen::MatrixXd matrix = Eigen::MatrixXd::Zero(static_cast<Eigen::Index>(n), static_cast<Eigen::Index>(n));
    std::vector<double> blocks(plan.block_count, 0.0);
    const auto number = [&] { return 0.5 + 1e-3 * static_cast<double>(random() % 1000); };
    for (size_t i = 0; i < n; ++i) {
      matrix(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(i)) = plan.nodes[i].is_joint != 0 ? -1e-6 : number();
    }
    for (size_t j = 0; j < joints.size(); ++j) {
      const JointPlace& place = plan.places[j];
      EXPECT_EQ(plan.nodes[place.node].is_joint, 1U);
      EXPECT_EQ(plan.nodes[place.node].index, j);
      bool is_after_one = false;
      for (const bool of_b : {false, true}) {
        const uint32_t node = of_b ? place.node_b : place.node_a;
        const uint32_t member = of_b ? place.member_b : place.member_a;
        if (node == PALPATE_JOINT_WORLD) continue;
        EXPECT_EQ(plan.nodes[node].index, member);
        EXPECT_EQ(plan.members[member], of_b ? joints[j].body_b : joints[j].body_a);
        EXPECT_EQ((place.is_transposed >> (of_b ? 1 : 0)) & 1U, node > place.node ? 1U : 0U);
        is_after_one |= node < place.node;
        const double value = number();
        blocks[of_b ? place.block_b : place.block_a] = value;
        matrix(place.node, node) = matrix(node, place.node) = value;
      }
      EXPECT_TRUE(is_after_one) << "joint " << j;
    }
    const Eigen::VectorXd exact = Eigen::VectorXd::LinSpaced(static_cast<Eigen::Index>(n), 1, 2);
    Eigen::VectorXd x = matrix * exact;
    Eigen::VectorXd diagonal = matrix.diagonal();
    std::vector<double> lower(blocks.size());
    for (size_t k = 0; k < n; ++k) {
      const JointNode& node = plan.nodes[k];
      uint32_t target = node.target_begin;
      for (uint32_t i = node.below_begin; i < node.below_end; ++i) {
        ASSERT_GT(plan.below[i].x, k);
        lower[plan.below[i].y] = blocks[plan.below[i].y] / diagonal[static_cast<Eigen::Index>(k)];
        x[plan.below[i].x] -= lower[plan.below[i].y] * x[static_cast<Eigen::Index>(k)];
        for (uint32_t j = node.below_begin; j <= i; ++j, ++target) {
          const double change = lower[plan.below[i].y] * blocks[plan.below[j].y];
          (i == j ? diagonal[plan.below[i].x] : blocks[plan.targets[target]]) -= change;
        }
      }
    }
    for (size_t k = n; k-- > 0;) {
      double value = x[static_cast<Eigen::Index>(k)] / diagonal[static_cast<Eigen::Index>(k)];
      for (uint32_t i = plan.nodes[k].below_begin; i < plan.nodes[k].below_end; ++i) value -= lower[plan.below[i].y] * x[plan.below[i].x];
      x[static_cast<Eigen::Index>(k)] = value;
    }
    EXPECT_LT((x - exact).cwiseAbs().maxCoeff(), 1e-5) << "round " << round;
  }
}

TEST(JointPlan, ChainsHaveNoFill) {
  std::vector<RigidJoint> joints;
  for (uint32_t i = 0; i < 200; ++i) joints.push_back(Ball(i == 0 ? RigidJoint::kWorld : i - 1, i, Vector3d::Zero()));
  const JointPlan plan = JointPlan::Of(joints, 200);
  ASSERT_EQ(plan.groups.size(), 1U);
  EXPECT_EQ(plan.block_count, 399U);
  for (const JointNode& node : plan.nodes) EXPECT_LE(node.below_end - node.below_begin, 1U);
}

// ---- Bodies that swing ----

// A box on a ball joint. Its period is that of a physical pendulum, and its swings get no smaller.
TEST_F(RigidJointsTest, PendulumHasItsPeriodAndKeepsItsSwing) {
  constexpr double kLength = 1;
  constexpr double kAngle = 0.05;
  BoxBody bob{{0.02, 0.02, 0.02}};
  bob.q = Quaterniond(Eigen::AngleAxisd(kAngle, Vector3d::UnitY()));
  bob.center_m = kLength * Vector3d(-std::sin(kAngle), 0, -std::cos(kAngle));
  Make({bob}, Falling(10), {}, std::vector{Ball(RigidJoint::kWorld, 0, Vector3d::Zero())});
  if (HasFatalFailure()) return;
  std::vector<double> x;
  for (int i = 0; i < 1440; ++i) {
    Step(kSweeps);
    x.push_back(States()[0].center.x);
    if (HasFatalFailure()) return;
  }
  const double inertia = bob.Inertia()(1, 1) + kLength * kLength;
  const double expected = 2 * std::numbers::pi * std::sqrt(inertia / (10 * kLength)) * (1 + kAngle * kAngle / 16);
  EXPECT_NEAR(MeanPeriod(x), expected, 2e-3 * expected);
  const auto largest = [&](size_t begin, size_t end) {
    double most = 0;
    for (size_t i = begin; i < end; ++i) most = std::max(most, std::abs(x[i]));
    return most;
  };
  EXPECT_NEAR(largest(840, 1440), kLength * std::sin(kAngle), 0.01 * kAngle);
  EXPECT_NEAR(largest(840, 1440), largest(0, 600), 0.0025 * kAngle);
  EXPECT_LT(WorstGap(), 1e-6);
}

// Large swings: energy is that of the start. (Velocities are those between two positions, so the mean of two is that at a position.)
TEST_F(RigidJointsTest, DoublePendulumKeepsItsEnergy) {
  BoxBody upper{{0.02, 0.02, 0.25}};
  upper.q = Quaterniond(Eigen::AngleAxisd(-std::numbers::pi / 2, Vector3d::UnitY()));
  upper.center_m = {0.25, 0, 0};
  BoxBody lower = upper;
  lower.center_m = {0.75, 0, 0};
  Make({upper, lower}, Falling(), {},
       std::vector{Hinge(RigidJoint::kWorld, 0, Vector3d::Zero(), Vector3d::UnitY()), Hinge(0, 1, {0.5, 0, 0}, Vector3d::UnitY())});
  if (HasFatalFailure()) return;
  std::vector<RigidBlockState> before = States();
  double lowest = 1e9;
  double highest = -1e9;
  for (int i = 0; i < 1200; ++i) {
    Step(kSweeps);
    if (HasFatalFailure()) return;
    const std::vector<RigidBlockState> after = States();
    double energy = 0;
    for (size_t b = 0; b < 2; ++b) {
      const Vector3d v = (Vec(before[b].velocity) + Vec(after[b].velocity)) / 2;
      const Vector3d l = Rotation(before[b].rotation).conjugate() * ((Vec(before[b].momentum) + Vec(after[b].momentum)) / 2);
      energy += 0.5 * v.squaredNorm() + 0.5 * l.dot(l.cwiseQuotient(Vec(before[b].inertia))) + kGravity * before[b].center.z;
    }
    if (i > 0) {
      lowest = std::min(lowest, energy);
      highest = std::max(highest, energy);
    }
    before = after;
  }
  // They fell by up to 2 m g 0.5 m in all: that is the scale.
  EXPECT_GT(lowest, -0.02 * kGravity);
  EXPECT_LT(highest, 0.02 * kGravity);
  EXPECT_LT(WorstGap(), 1e-6);
}

// A fast top goes round with m g r / (I omega).
TEST_F(RigidJointsTest, TopPrecesses) {
  constexpr double kSpin = 100;
  constexpr double kTilt = 0.3;
  constexpr double kArm = 0.1;
  BoxBody top{{0.08, 0.08, 0.01}};
  top.q = Quaterniond(Eigen::AngleAxisd(kTilt, Vector3d::UnitX()));
  const Vector3d axis = top.q * Vector3d::UnitZ();
  top.center_m = kArm * axis;
  const double along = (top.q.conjugate() * (top.Inertia() * axis)).z();
  // Started with the precession of a steady top, so that it hardly nods: the smaller root of m g r = rate (I_3 w_3 - I_1 rate cos tilt).
  const double across = top.Inertia()(0, 0) + kArm * kArm;
  const double a = across * std::cos(kTilt);
  const double rate = (along * kSpin - std::sqrt(along * along * kSpin * kSpin - 4 * a * kGravity * kArm)) / (2 * a);
  const Vector3d up = Vector3d::UnitZ();
  top.omega = kSpin * axis + rate * (up - up.dot(axis) * axis);
  top.velocity = top.omega.cross(top.center_m);
  // Velocities and momenta are those of the middles of steps: at the start, of half a step before.
  const Quaterniond back(Eigen::AngleAxisd(-rate * kDt / 2, up));
  top.velocity = back * top.velocity;
  top.omega = top.Inertia().inverse() * (back * (top.Inertia() * top.omega));
  Make({top}, Falling(), {}, std::vector{Ball(RigidJoint::kWorld, 0, Vector3d::Zero())});
  if (HasFatalFailure()) return;
  double turned = 0;
  double last = std::atan2(axis.y(), axis.x());
  constexpr int kSteps = 600;
  for (int i = 0; i < kSteps; ++i) {
    Step(kSweeps);
    const RigidBlockState state = States()[0];
    const double now = std::atan2(state.center.y, state.center.x);
    turned += std::remainder(now - last, 2 * std::numbers::pi);
    last = now;
    const double tilt = std::acos(std::clamp(state.center.z / kArm, -1.0, 1.0));
    ASSERT_NEAR(tilt, kTilt, 4e-3) << "step " << i;
  }
  EXPECT_NEAR(turned / (kSteps * kDt), rate, 5e-3 * rate);
}

// ---- Loads ----

// 50 links of 2 cm, the last carries 100 times the weight of a link; then 1,000 times.
TEST_F(RigidJointsTest, ChainHoldsALoadOfAThousandLinks) {
  for (const double load : {100.0, 1000.0}) {
    std::vector<BoxBody> links;
    std::vector<RigidJoint> joints;
    for (uint32_t i = 0; i < 50; ++i) {
      BoxBody link{{0.01, 0.002, 0.002}};
      link.center_m = {0.01 + 0.02 * i, 0, 0};
      link.mass_kg = i == 49 ? 0.001 * load : 0.001;
      joints.push_back(Ball(i == 0 ? RigidJoint::kWorld : i - 1, i, {0.02 * i, 0, 0}));
      links.push_back(link);
    }
    Make(links, Falling(), {}, joints, RigidJoints::kDefaultDissipation);
    if (HasFatalFailure()) return;
    double worst = 0;
    for (int i = 0; i < 360; ++i) {  // from level, through its lowest place and up again
      Step(20);
      if (HasFatalFailure()) return;
      worst = std::max(worst, WorstGap());
    }
    EXPECT_LT(worst, 1e-4 * 0.02) << "load " << load;
    for (const RigidBlockState& state : States()) ASSERT_TRUE(std::isfinite(state.center.x) && std::abs(state.center.z) < 1.1);
  }
}

// At rest a joint carries what hangs on it.
TEST_F(RigidJointsTest, ReportsWhatItCarries) {
  BoxBody upper{{0.01, 0.01, 0.01}};
  BoxBody lower = upper;
  upper.center_m = {0, 0, -0.02};
  upper.mass_kg = 0.5;
  lower.center_m = {0, 0, -0.06};
  lower.mass_kg = 2;
  RigidJoint arm = Hinge(RigidJoint::kWorld, 0, Vector3d::Zero(), Vector3d::UnitY());
  arm.rows[5] = Locked();
  RigidJoint beam{.body_a = 0, .body_b = 1, .point_a_m = {0.1, 0, -0.04}, .point_b_m = {0.1, 0, -0.04}};
  beam.about = RigidJoint::About::kTurn;
  beam.rows.fill(Locked());
  Make({upper, lower}, Falling(), {}, std::vector{arm, beam}, RigidJoints::kDefaultDissipation);
  if (HasFatalFailure()) return;
  for (int i = 0; i < 120; ++i) Step(kSweeps);
  const std::vector<JointReport> reports = Reports();
  EXPECT_LT((Vec(reports[0].force) - Vector3d(0, 0, 2.5 * kGravity)).norm(), 2e-3 * 2.5 * kGravity);
  EXPECT_LT((Vec(reports[1].force) - Vector3d(0, 0, 2 * kGravity)).norm(), 2e-3 * 2 * kGravity);
  // The weight of the lower one acts 0.1 m beside the point of its joint: r x F = (-0.1, 0, .) x (0, 0, -2 g) = (0, -0.2 g, 0).
  EXPECT_LT((Vec(reports[1].torque) - Vector3d(0, 0.2 * kGravity, 0)).norm(), 2e-3 * 0.2 * kGravity);
  EXPECT_LT(WorstGap(), 1e-6);
}

// Four bars with four parallel hinges: three more constraints than there are freedoms to take away. It swings as a parallelogram.
TEST_F(RigidJointsTest, FourBarLinkageClosesThoughItsHingesAreRedundant) {
  BoxBody left{{0.01, 0.01, 0.1}};
  left.center_m = {0, 0, -0.1};
  BoxBody right = left;
  right.center_m = {0.3, 0, -0.1};
  BoxBody floor{{0.15, 0.01, 0.01}};
  floor.center_m = {0.15, 0, -0.2};
  floor.velocity = {0.5, 0, 0};
  left.velocity = right.velocity = {0.25, 0, 0};
  left.omega = right.omega = {0, -2.5, 0};
  const Vector3d y = Vector3d::UnitY();
  Make({left, right, floor}, Falling(), {},
       std::vector{Hinge(RigidJoint::kWorld, 0, {0, 0, 0}, y), Hinge(RigidJoint::kWorld, 1, {0.3, 0, 0}, y), Hinge(0, 2, {0, 0, -0.2}, y),
                   Hinge(1, 2, {0.3, 0, -0.2}, y)});
  if (HasFatalFailure()) return;
  double worst = 0;
  double farthest = 0;
  for (int i = 0; i < 240; ++i) {
    Step(kSweeps);
    if (HasFatalFailure()) return;
    worst = std::max(worst, WorstGap());
    farthest = std::max(farthest, std::abs(States()[2].center.x - 0.15));
    // The floor stays level.
    ASSERT_LT(Rotation(States()[2].rotation).angularDistance(Quaterniond(Rotation(States()[2].rotation).w() < 0 ? -1 : 1, 0, 0, 0)), 3.2);
    for (const JointReport& report : Reports()) ASSERT_LT(report.torque.w, 1e-4);
  }
  EXPECT_LT(worst, 1e-6);
  EXPECT_GT(farthest, 0.05);
}

// ---- Springs: table I.8 of the thesis named in docs/algorithms/nurbs.md ----

struct TwoBodies {
  double stiffness, damping, length;
};

TEST_F(RigidJointsTest, DampedSpringHasThePeriodAndTheDecayOfTheory) {
  for (const TwoBodies& system : {TwoBodies{5, 0, 1.2}, TwoBodies{0.5, 0, 0.8}, TwoBodies{5, 0.5, 0.8}}) {
    BoxBody a{{0.5, 0.5, 0.5}};
    BoxBody b = a;
    a.center_m = {-1, 0, 0};
    b.center_m = {1, 0, 0};
    Make({a, b}, Params(), {}, std::vector{Spring(0, 1, {-0.5, 0, 0}, {0.5, 0, 0}, system.stiffness, system.damping, system.length)});
    if (HasFatalFailure()) return;
    std::vector<double> stretch;
    for (int i = 0; i < 2400; ++i) {
      Step(2);
      const std::vector<RigidBlockState> states = States();
      stretch.push_back(states[1].center.x - states[0].center.x - 1 - system.length);
      ASSERT_NEAR(states[1].center.x + states[0].center.x, 0, 1e-4);
    }
    // s'' = -2 c s' - 2 k (s - l): both bodies weigh 1 kg.
    const double decay = system.damping;
    const double omega = std::sqrt(2 * system.stiffness - decay * decay);
    EXPECT_NEAR(MeanPeriod(stretch), 2 * std::numbers::pi / omega, 0.01 * 2 * std::numbers::pi / omega);
    const double start = std::abs(1 - system.length);
    const int late = static_cast<int>(std::lround(2 * std::numbers::pi / omega * 3 / kDt));
    double late_peak = 0;
    for (int i = late - 30; i < late + 30; ++i) late_peak = std::max(late_peak, std::abs(stretch[static_cast<size_t>(i)]));
    EXPECT_NEAR(late_peak, start * std::exp(-decay * late * kDt), 0.01 * start) << "stiffness " << system.stiffness;
  }
}

// System 4: the spring pulls beside the centre of B, which turns.
TEST_F(RigidJointsTest, SpringBesideTheCentreTurnsABody) {
  BoxBody a{{0.5, 0.5, 0.5}};
  BoxBody b = a;
  a.center_m = {-1, 0, 0};
  b.center_m = {1, 0, 0};
  const Vector3d at_a(-0.5, 0.1, 0);
  const Vector3d at_b(0.5, 0.3, 0);
  Make({a, b}, Params(), {}, std::vector{Spring(0, 1, at_a, at_b, 5, 0, 0.8)});
  if (HasFatalFailure()) return;
  Step(4);
  const Vector3d pull = 5 * ((at_b - at_a).norm() - 0.8) * (at_b - at_a).normalized();
  EXPECT_NEAR(pull.norm(), 1.099, 1e-3);
  const std::vector<RigidBlockState> states = States();
  EXPECT_LT((Vec(states[0].velocity) - kDt * pull).norm(), 1e-3 * kDt * pull.norm());
  EXPECT_LT((Vec(states[0].momentum) - kDt * (at_a - a.center_m).cross(pull)).norm(), 1e-3 * kDt);
  EXPECT_LT((Vec(states[1].momentum) - kDt * (at_b - b.center_m).cross(-pull)).norm(), 1e-3 * kDt);
  EXPECT_NEAR(states[1].momentum.z / kDt, 0.431, 2e-3);
  // Nothing comes in from outside.
  for (int i = 0; i < 600; ++i) Step(4);
  Vector3d momentum(0, 0, 0), spin(0, 0, 0);
  for (const RigidBlockState& state : States()) {
    momentum += Vec(state.velocity);
    spin += Vec(state.momentum) + Vec(state.center).cross(Vec(state.velocity));
  }
  EXPECT_LT(momentum.norm(), 1e-4);
  EXPECT_LT(spin.norm(), 5e-3);
}

// ---- Limits and motors ----

TEST_F(RigidJointsTest, HingeStopsAtItsLimits) {
  BoxBody door{{0.1, 0.01, 0.1}};
  door.center_m = {0.1, 0, 0};
  door.velocity = {0, 0.2, 0};
  door.omega = {0, 0, 2};
  RigidJoint hinge = Hinge(RigidJoint::kWorld, 0, Vector3d::Zero(), Vector3d::UnitZ());
  hinge.rows[5].lower = -0.3;
  hinge.rows[5].upper = 0.5;
  Make({door}, Falling(), {}, std::vector{hinge});
  if (HasFatalFailure()) return;
  double highest = 0;
  for (int i = 0; i < 60; ++i) {
    Step(kSweeps);
    highest = std::max(highest, static_cast<double>(Reports()[0].coordinates[5]));
  }
  EXPECT_NEAR(highest, 0.5, 1e-4);
}

TEST_F(RigidJointsTest, MotorTurnsAtItsSpeedAndStallsAtItsTorque) {
  BoxBody arm{{0.1, 0.01, 0.01}};
  arm.center_m = {0.1, 0, 0};
  RigidJoint hinge = Hinge(RigidJoint::kWorld, 0, Vector3d::Zero(), -Vector3d::UnitY());
  hinge.rows[5] = {.drive = JointDrive::kMotor, .speed = 1, .max_effort = 4};
  Make({arm}, Falling(), {}, std::vector{hinge});
  if (HasFatalFailure()) return;
  // The weight needs 0.981 N m: it can lift that.
  for (int i = 0; i < 60; ++i) Step(kSweeps);
  EXPECT_NEAR(Reports()[0].coordinates[5], 0.5, 1e-3);
  // Now it cannot: the arm falls back, and the motor pushes with all it has.
  RigidJoint weak = hinge;
  weak.rows[5].max_effort = 0.3;
  PALPATE_ASSERT_OK(rigid_->joints()->SetRows(0, weak.rows));
  for (int i = 0; i < 20; ++i) Step(kSweeps);
  EXPECT_LT(Reports()[0].coordinates[5], 0.4);
  EXPECT_NEAR(std::abs(Reports()[0].efforts[5]), 0.3, 1e-5);
  // Without any speed it is a brake.
  weak.rows[5] = {.drive = JointDrive::kMotor, .speed = 0, .max_effort = 100};
  PALPATE_ASSERT_OK(rigid_->joints()->SetRows(0, weak.rows));
  Step(kSweeps);
  const double held = Reports()[0].coordinates[5];
  for (int i = 0; i < 60; ++i) Step(kSweeps);
  EXPECT_NEAR(Reports()[0].coordinates[5], held, 1e-4);
}

// A slider along a slope: the way of free fall along it, whatever it turns against.
TEST_F(RigidJointsTest, SliderSlidesDownItsAxis) {
  BoxBody car{{0.02, 0.03, 0.01}};
  const Vector3d down = Vector3d(1, 0, -1).normalized();
  RigidJoint slider{.body_a = RigidJoint::kWorld, .body_b = 0};
  slider.point_a_m = slider.point_b_m = {0.01, 0.02, 0.005};
  slider.frame = Array(Quaterniond::FromTwoVectors(Vector3d::UnitZ(), down).normalized());
  slider.about = RigidJoint::About::kTurn;
  slider.rows.fill(Locked());
  slider.rows[2] = {};
  slider.rows[2].upper = 0.4;
  Make({car}, Falling(), {}, std::vector{slider});
  if (HasFatalFailure()) return;
  constexpr int kSteps = 30;
  for (int i = 0; i < kSteps; ++i) Step(kSweeps);
  const double t = kSteps * kDt;
  EXPECT_NEAR(Reports()[0].coordinates[2], kGravity / std::sqrt(2) / 2 * t * (t + kDt), 1e-4);
  EXPECT_LT(WorstGap(), 1e-6);
  for (int i = 0; i < 120; ++i) Step(kSweeps);
  EXPECT_NEAR(Reports()[0].coordinates[2], 0.4, 1e-4);
}

// A point on a plane and one on a line keep the other freedoms.
TEST_F(RigidJointsTest, PlaneAndLineHoldAPointOnly) {
  BoxBody a{{0.02, 0.02, 0.02}};
  a.omega = {3, 0, 2};
  BoxBody b = a;
  b.center_m = {0.5, 0, 0};
  const Vector3d corner(0.02, 0.02, 0.02);
  RigidJoint plane{.body_a = RigidJoint::kWorld, .body_b = 0, .point_a_m = Array(corner), .point_b_m = Array(corner)};
  plane.rows[2] = Locked();
  const Vector3d other = b.center_m + corner;
  RigidJoint line{.body_a = RigidJoint::kWorld, .body_b = 1, .point_a_m = Array(other), .point_b_m = Array(other)};
  line.rows[1] = line.rows[2] = Locked();
  Make({a, b}, Falling(), {}, std::vector{plane, line});
  if (HasFatalFailure()) return;
  for (int i = 0; i < 240; ++i) Step(kSweeps);
  EXPECT_LT(WorstGap(), 1e-6);
  // They hang from it: the centre is within reach of the corner.
  for (const RigidBlockState& state : States()) EXPECT_NEAR(state.center.z, 0.02, 0.036);
}

// A rope is a distance with an upper limit: slack, then taut.
TEST_F(RigidJointsTest, RopeIsSlackUntilItIsTaut) {
  BoxBody weight{{0.02, 0.02, 0.02}};
  RigidJoint rope{.body_a = RigidJoint::kWorld, .body_b = 0, .point_a_m = {0, 0, 0.02}, .point_b_m = {0, 0, 0.02}};
  rope.point_a_m = {0, 0, 0.12};
  rope.along = RigidJoint::Along::kDistance;
  rope.rows[0].upper = 0.3;
  Make({weight}, Falling(), {}, std::vector{rope}, 0.1);
  if (HasFatalFailure()) return;
  for (int i = 0; i < 12; ++i) Step(kSweeps);
  const double t = 12 * kDt;
  EXPECT_NEAR(States()[0].center.z, -kGravity / 2 * t * (t + kDt), 1e-4);
  for (int i = 0; i < 240; ++i) {
    Step(kSweeps);
    ASSERT_LT(Reports()[0].coordinates[0], 0.3 + 2e-3) << "step " << i;
  }
  EXPECT_NEAR(States()[0].center.z, -0.2, 1e-3);
  EXPECT_NEAR(Reports()[0].force.z, kGravity, 0.02 * kGravity);
}

// A plane stops a corner of the first of two boxes: the second stays with it, and a filter takes both back by the least share.
TEST_F(RigidJointsTest, AGroupGoesBackAsAWhole) {
  BoxBody a{{0.02, 0.02, 0.02}};
  BoxBody b = a;
  b.center_m = {0.05, 0, 0};
  a.velocity = b.velocity = {1, 0, 0};
  Make({a, b}, Params(), {}, std::vector{Ball(0, 1, {0.025, 0, 0})});
  if (HasFatalFailure()) return;
  constexpr float kAt = 0.001F;
  const OnePlane plane = UploadOnePlane(3, kAt);  // of the first
  Meet(PairsOf(plane));
  PALPATE_ASSERT_OK(rigid_->Detected(queue()));
  PALPATE_ASSERT_OK(queue().Copy(x_, x_start_, 16));
  PALPATE_ASSERT_OK(rigid_->Predict(queue(), scene_, x_, touched_));
  const auto gone = [&](size_t body) { return static_cast<double>(States()[body].center.x) - (body == 0 ? 0 : 0.05); };
  ASSERT_GT(gone(0), 0.008);
  BoundBy(plane);
  EXPECT_LE(gone(0), kAt);
  EXPECT_GT(gone(0), 0.9 * kAt);
  EXPECT_NEAR(gone(1), gone(0), 1e-7);
  PALPATE_ASSERT_OK(rigid_->Sweep(queue(), scene_, x_, touched_));
  EXPECT_LE(gone(0), kAt);
  EXPECT_NEAR(gone(1), gone(0), 1e-7);
  EXPECT_LT(WorstGap(), 1e-6);
  std::vector<float> shares(16, 1.0F);
  shares[12] = 0.5F;
  const auto share_buffer = Upload(shares);
  const double before = gone(0);
  PALPATE_ASSERT_OK(rigid_->FilterBegins(queue()));
  PALPATE_ASSERT_OK(rigid_->TakeBack(queue(), false, share_buffer, plane.entry_begins, x_, touched_));
  EXPECT_NEAR(gone(0), 0.5 * before, 1e-7);
  EXPECT_NEAR(gone(1), 0.5 * before, 1e-7);
  for (const float share : Download(share_buffer)) EXPECT_EQ(share, 0.5F);
}

// ---- What is refused, and what is kept ----

TEST_F(RigidJointsTest, RefusesWhatIsNoJoint) {
  Make({BoxBody{{0.1, 0.1, 0.1}}}, Params());
  if (HasFatalFailure()) return;
  const auto message = [&](const RigidJoint& joint) { return std::string(rigid_->SetJoints(queue(), std::vector{joint}).message()); };
  EXPECT_THAT(message(Ball(0, 0, Vector3d::Zero())), testing::HasSubstr("joint 0: both ends are one body"));
  EXPECT_THAT(message(Ball(RigidJoint::kWorld, RigidJoint::kWorld, Vector3d::Zero())), testing::HasSubstr("both ends are the world"));
  EXPECT_THAT(message(Ball(0, 1, Vector3d::Zero())), testing::HasSubstr("there is no rigid body 1, of 1"));
  RigidJoint bad = Ball(RigidJoint::kWorld, 0, Vector3d::Zero());
  bad.rows[4].lower = 1;
  bad.rows[4].upper = 0;
  EXPECT_THAT(message(bad), testing::HasSubstr("joint 0: rows[4].lower: 1 is above upper"));
  bad = Ball(RigidJoint::kWorld, 0, Vector3d::Zero());
  bad.rows[0].stiffness = std::nan("");
  EXPECT_THAT(message(bad), testing::HasSubstr("rows[0].stiffness"));
  bad = Ball(RigidJoint::kWorld, 0, Vector3d::Zero());
  bad.frame = {0, 0, 0, 2};
  EXPECT_THAT(message(bad), testing::HasSubstr("frame: is not a unit quaternion"));
}

// A chain with dry friction and limits, a wheel that a motor turns round, and a pendulum: three groups.
struct ChainAndWheel {
  static constexpr uint32_t kWheel = 6, kBob = 7;
  std::vector<BoxBody> bodies;
  std::vector<RigidJoint> joints;
  ChainAndWheel() {
    for (uint32_t i = 0; i < kWheel; ++i) {
      BoxBody link{{0.05, 0.01, 0.01}};
      link.center_m = {0.05 + 0.1 * i, 0, 0};
      joints.push_back(Hinge(i == 0 ? RigidJoint::kWorld : i - 1, i, {0.1 * i, 0, 0}, Vector3d::UnitY()));
      joints.back().rows[5] = {.drive = JointDrive::kMotor, .speed = 0, .max_effort = 0.05, .lower = -0.6, .upper = 0.6};
      bodies.push_back(link);
    }
    BoxBody wheel{{0.1, 0.02, 0.1}};
    wheel.center_m = {0, 1, 0};
    joints.push_back(Hinge(RigidJoint::kWorld, kWheel, {0.03, 1, 0}, Vector3d::UnitY()));
    joints.back().rows[5] = {.drive = JointDrive::kMotor, .speed = 25, .max_effort = 5};
    bodies.push_back(wheel);
    BoxBody bob{{0.02, 0.03, 0.04}};
    bob.center_m = {0.2, 2, 0};
    bob.omega = {9, 0, 0};
    joints.push_back(Ball(RigidJoint::kWorld, kBob, {0, 2, 0}));
    bodies.push_back(bob);
  }
};

// With few sweeps efforts still change from solve to solve, so one of the wrong solve shows.
TEST_F(RigidJointsTest, GoesOnFromASavedStateBitForBit) {
  const ChainAndWheel scene;
  const auto make = [&] { Make(scene.bodies, Falling(), {}, scene.joints, RigidJoints::kDefaultDissipation); };
  for (const int sweeps : {1, 2, 4, kSweeps}) {
    SCOPED_TRACE(sweeps);
    make();
    if (HasFatalFailure()) return;
    for (int i = 0; i < 40; ++i) Step(sweeps);
    StateWriter writer;
    PALPATE_ASSERT_OK(rigid_->SaveState(queue(), writer));
    const auto go_on = [&] {
      for (int i = 0; i < 40; ++i) Step(sweeps);
      return std::pair(States(), Reports());
    };
    std::unique_ptr<RigidBlocks> first = std::move(rigid_);
    make();
    PALPATE_ASSERT_OK(rigid_->GoOnFrom(queue(), *first));
    const auto taken_over = go_on();
    make();
    StateReader reader(writer.bytes(), "test");
    PALPATE_ASSERT_OK(rigid_->LoadState(queue(), reader));
    const auto loaded = go_on();
    rigid_ = std::move(first);
    const auto expected = go_on();
    for (const auto& [states, reports] : {taken_over, loaded}) {
      for (size_t b = 0; b < states.size(); ++b) {
        EXPECT_EQ(states[b].center, expected.first[b].center) << b;
        EXPECT_EQ(states[b].rotation, expected.first[b].rotation) << b;
        EXPECT_EQ(states[b].velocity, expected.first[b].velocity) << b;
        EXPECT_EQ(states[b].momentum, expected.first[b].momentum) << b;
      }
      for (size_t j = 0; j < reports.size(); ++j) {
        EXPECT_THAT(reports[j].coordinates, testing::ElementsAreArray(expected.second[j].coordinates)) << j;
        EXPECT_THAT(reports[j].efforts, testing::ElementsAreArray(expected.second[j].efforts)) << j;
      }
    }
    EXPECT_GT(std::abs(expected.second[ChainAndWheel::kWheel].coordinates[5]), 2 * std::numbers::pi);
  }
}

// The next step is the same whether somebody looks or not.
TEST_F(RigidJointsTest, ReportsChangeNothing) {
  const ChainAndWheel scene;
  Make(scene.bodies, Falling(), {}, scene.joints, RigidJoints::kDefaultDissipation);
  if (HasFatalFailure()) return;
  for (int i = 0; i < 5; ++i) {
    Step(2);
    const std::vector<double> before = Download(rigid_->joints()->reals());
    Reports();
    EXPECT_EQ(Download(rigid_->joints()->reals()), before) << "step " << i;
  }
}

}  // namespace
}  // namespace palpate::gpu::rigid_joints_test
