// Frames of NURBS shells that joints hold: how they move with their control points, what resists them, and what joints do to them.
#include "gpu/dynamics/nurbs_joint_frames.h"

#include <gmock/gmock.h>

#include <Eigen/Dense>
#include <Eigen/Geometry>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gpu/dynamics/nurbs_frame_compliance.h"
#include "gpu/dynamics/nurbs_shell_correction.h"
#include "gpu/dynamics/nurbs_shell_stiffness.h"
#include "gpu/dynamics/tissue_solver.h"
#include "tests/gpu/dynamics/nurbs_models.h"
#include "tests/sim/world/nurbs_shells.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::nurbs_joint_frames_test {
namespace {

using Eigen::Matrix3d;
using Eigen::MatrixXd;
using Eigen::Quaterniond;
using Eigen::Vector3d;

constexpr double kDt = 1.0 / 120;

sim::BodyDescription Sheet(const Vector3d& place_m = {0, 0, 0}, size_t count = 6) {
  return test::ShellBody("sheet", test::FlatSheet(count, count, 0.06, 0.05), place_m, test::ShellMaterial(1e6, 0.3), 0.001, {}, 5e-4, 2);
}

TissueNurbsJointSet SetAt(const sim::BodyDescription& body, double u, double v) {
  TissueNurbsJointSet set;
  for (const sim::JointControlPoint& point : sim::JointControlPointsAt(body, 0, u, v)) {
    set.parts.push_back({.control = point.control, .place = point.place, .turning = point.turning});
  }
  return set;
}

TissueNurbsJointSet SetOfAll(const NurbsShellModel& model) {
  TissueNurbsJointSet set;
  const double mass_kg = std::accumulate(model.mass_kg.begin(), model.mass_kg.end(), 0.0);
  for (uint32_t j = 0; j < model.control_count(); ++j) {
    set.parts.push_back({.control = j, .place = model.mass_kg[j] / mass_kg, .turning = model.mass_kg[j] / mass_kg});
  }
  return set;
}

NurbsFrame FrameOf(const NurbsShellModel& model, const TissueNurbsJointSet& set) {
  Vector3d center = Vector3d::Zero();
  for (const auto& part : set.parts) center += part.turning * Vector3d(model.rest_m[part.control].data());
  NurbsFrame frame;
  for (const auto& part : set.parts) {
    frame.parts.push_back({.control = part.control,
                           .place = part.place,
                           .turning = part.turning,
                           .arm_m = Vector3d(model.rest_m[part.control].data()) - center});
  }
  return frame;
}

/// By another road than the code: the polar factor of the covariance.
struct Pose {
  Vector3d origin = Vector3d::Zero();
  Matrix3d rotation;
};

Pose PoseOf(const NurbsFrame& frame, const std::vector<Vector3d>& x) {
  Pose pose;
  Vector3d mean = Vector3d::Zero();
  for (const auto& part : frame.parts) {
    pose.origin += part.place * x[part.control];
    mean += part.turning * x[part.control];
  }
  // Horn's quaternion.
  Matrix3d s = Matrix3d::Zero();
  for (const auto& part : frame.parts) s += part.turning * part.arm_m * (x[part.control] - mean).transpose();
  Eigen::Matrix4d n;
  n << s.trace(), s(1, 2) - s(2, 1), s(2, 0) - s(0, 2), s(0, 1) - s(1, 0),   //
      0, s(0, 0) - s(1, 1) - s(2, 2), s(0, 1) + s(1, 0), s(2, 0) + s(0, 2),  //
      0, 0, -s(0, 0) + s(1, 1) - s(2, 2), s(1, 2) + s(2, 1),                 //
      0, 0, 0, -s(0, 0) - s(1, 1) + s(2, 2);
  const Eigen::SelfAdjointEigenSolver<Eigen::Matrix4d> solver(n.selfadjointView<Eigen::Upper>());
  const Eigen::Vector4d q = solver.eigenvectors().col(3);
  pose.rotation = Quaterniond(q[0], q[1], q[2], q[3]).toRotationMatrix();
  return pose;
}

TEST(NurbsFrameMotion, IsTheDerivativeOfTheFrame) {
  const sim::BodyDescription body = Sheet();
  const NurbsShellModel& model = *body.nurbs_shell->model;
  std::mt19937 random(7);
  std::uniform_real_distribution<double> noise(-0.003, 0.003);
  for (const auto& [u, v] : {std::pair(0.0, 0.0), std::pair(0.37, 0.81), std::pair(1.0, 0.5)}) {
    const NurbsFrame frame = FrameOf(model, SetAt(body, u, v));
    std::vector<Vector3d> x = NurbsRestPositions(model);
    for (Vector3d& p : x) {
      p = Eigen::AngleAxisd(0.8, Vector3d(1, 2, -1).normalized()) * p + Vector3d(0.1, 0, 0.2);
      p += Vector3d(noise(random), noise(random), noise(random));
    }
    const auto motion = NurbsFrameMotion(frame, x);
    const Pose at = PoseOf(frame, x);
    double sum = 0;
    for (size_t k = 0; k < frame.parts.size(); ++k) {
      sum += frame.parts[k].place;
      for (int axis = 0; axis < 3; ++axis) {
        constexpr double kStep = 1e-6;
        std::vector<Vector3d> after = x;
        after[frame.parts[k].control][axis] += kStep;
        const Pose moved = PoseOf(frame, after);
        const Eigen::AngleAxisd turn(moved.rotation * at.rotation.transpose());
        const Vector3d shift = (moved.origin - at.origin) / kStep, turned = turn.angle() * turn.axis() / kStep;
        EXPECT_LT((shift - motion[k].col(axis).head<3>()).norm(), 1e-8);
        EXPECT_LT((turned - motion[k].col(axis).tail<3>()).norm(), 1e-3 * motion[k].bottomRows<3>().norm() + 1e-2) << k << " " << axis;
      }
    }
    EXPECT_NEAR(sum, 1, 1e-12);
  }
}

// A frame of the whole shell has its mass; and one of a part, all of the stiffness, as the inverse of a dense tangent says.
TEST(NurbsFrameCompliance, IsTheInverseOfTheTangent) {
  const sim::BodyDescription body = Sheet();
  const NurbsShellModel& model = *body.nurbs_shell->model;
  const std::vector<NurbsFrame> frames = {FrameOf(model, SetOfAll(model)), FrameOf(model, SetAt(body, 0.2, 0.4)),
                                          FrameOf(model, SetAt(body, 1, 1))};
  std::vector<uint32_t> held(model.control_count(), 0);
  std::vector<Vector3d> x = NurbsRestPositions(model);
  for (Vector3d& p : x) p += Vector3d(0.05 * p.x(), 0, 2 * p.x() * p.x() + p.x() * p.y());
  {
    auto whole = NurbsFrameCompliance::Create(model, held, kDt, {frames[0]});
    ASSERT_TRUE(whole.ok()) << whole.status();
    PALPATE_ASSERT_OK((*whole)->Update(x));
    const double mass_kg = std::accumulate(model.mass_kg.begin(), model.mass_kg.end(), 0.0);
    const Matrix3d h = (*whole)->pairs()[0].h.topLeftCorner<3, 3>();
    EXPECT_LT((h - mass_kg / (kDt * kDt) * Matrix3d::Identity()).norm(), 1e-5 * h.norm());
  }
  held[3] = 7;
  held[8] = 2;
  auto made = NurbsFrameCompliance::Create(model, held, kDt, {frames[1], frames[2]});
  ASSERT_TRUE(made.ok()) << made.status();
  PALPATE_ASSERT_OK((*made)->Update(x));
  const auto n = static_cast<Eigen::Index>(3 * model.control_count());
  MatrixXd tangent = MatrixXd::Zero(n, n), motion = MatrixXd::Zero(12, n);
  for (const NurbsShellGauss& gauss : model.gauss) {
    const MatrixXd k = NurbsGaussStiffness(model, gauss, x, kDt);
    for (uint32_t i = 0; i < gauss.end - gauss.begin; ++i) {
      for (uint32_t j = 0; j < gauss.end - gauss.begin; ++j) {
        tangent.block<3, 3>(3 * model.entries[gauss.begin + i].control, 3 * model.entries[gauss.begin + j].control) +=
            k.block<3, 3>(3 * i, 3 * j);
      }
    }
  }
  for (uint32_t j = 0; j < model.control_count(); ++j) {
    tangent.block<3, 3>(3 * j, 3 * j) += NurbsControlInertia(model, j, kDt) * Matrix3d::Identity();
  }
  for (size_t f = 0; f < 2; ++f) {
    const auto rows = NurbsFrameMotion(frames[f + 1], x);
    for (size_t k = 0; k < rows.size(); ++k) {
      motion.block<6, 3>(6 * static_cast<Eigen::Index>(f), 3 * frames[f + 1].parts[k].control) = rows[k];
    }
  }
  for (const Eigen::Index at : {9, 10, 11, 25}) {  // held
    tangent.row(at).setZero();
    tangent.col(at).setZero();
    tangent(at, at) = 1;
    motion.col(at).setZero();
  }
  const MatrixXd h = (motion * tangent.ldlt().solve(motion.transpose())).inverse();
  ASSERT_EQ((*made)->pairs().size(), 3U);
  for (const auto& pair : (*made)->pairs()) {
    const MatrixXd wanted = h.block<6, 6>(6 * pair.a, 6 * pair.b);
    EXPECT_LT((pair.h - wanted).norm(), 1e-4 * wanted.norm()) << pair.a << " " << pair.b;
  }
}

TEST(NurbsFrameCompliance, RefusesWhatItCannotHold) {
  const sim::BodyDescription body = Sheet();
  NurbsShellModel two;
  AppendNurbsShell(*body.nurbs_shell->model, &two);
  AppendNurbsShell(*body.nurbs_shell->model, &two);
  NurbsFrame across = FrameOf(two, SetAt(body, 0.5, 0.5));
  across.parts.back().control += 36;
  const auto status = NurbsFrameCompliance::Create(two, std::vector<uint32_t>(two.control_count(), 0), kDt, {across}).status();
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("frame 0 is of two NURBS shells"));
  const sim::BodyDescription large = Sheet({0, 0, 0}, 65);
  const NurbsShellModel& model = *large.nurbs_shell->model;
  ASSERT_GT(model.control_count(), kMaxNurbsCorrected);
  const auto too_large =
      NurbsFrameCompliance::Create(model, std::vector<uint32_t>(model.control_count(), 0), kDt, {FrameOf(model, SetAt(large, 0.5, 0.5))})
          .status();
  EXPECT_THAT(std::string(too_large.message()), testing::HasSubstr("4225 control points; frames are of shells of at most 4096"));
}

class NurbsJointFramesTest : public test::DeviceTest {
 protected:
  void Make(const TissueModel& model) {
    PALPATE_TEST_ASSIGN(solver_, TissueSolver::Create(context(), model, options_, {}, {}, TissueTuning::For(context()->device())));
  }
  TissueStep Step() {
    auto step = solver_->Step({});
    EXPECT_TRUE(step.ok()) << step.status();
    return step.ok() ? *std::move(step) : TissueStep{};
  }
  void TearDown() override {
    solver_.reset();
    DeviceTest::TearDown();
  }

  TissueOptions options_{.iterations = 8};
  std::unique_ptr<TissueSolver> solver_;
};

RigidJoint Ball(uint32_t a, uint32_t b, const std::array<double, 3>& at) {
  RigidJoint joint{.body_a = a, .body_b = b, .point_a_m = at, .point_b_m = at};
  for (size_t r = 0; r < 3; ++r) joint.rows[r] = {.drive = JointDrive::kLocked};
  return joint;
}

/// A spring pulls at a patch point: its force is what the sum of the momenta of the control points shows, and where it pulls.
TEST_F(NurbsJointFramesTest, ForcesActOnControlPointsByTheirBasisFunctions) {
  const sim::BodyDescription body = Sheet();
  TissueModel model = test::NurbsModelOf({body});
  model.nurbs_joint_sets = {SetAt(body, 0.3, 0.6)};
  const std::array<double, 3> at = NurbsJointOrigin(model.nurbs_shells, model.nurbs_joint_sets[0]);
  RigidJoint spring{.body_a = RigidJoint::kWorld, .body_b = 0, .along = RigidJoint::Along::kDistance};
  spring.point_a_m = {at[0], at[1], at[2] + 0.1};
  spring.point_b_m = at;
  spring.rows[0] = {.drive = JointDrive::kSpring, .target = 0.08, .stiffness = 0.2};
  model.joints = {spring};
  options_.gravity_m_per_s2 = {0, 0, 0};
  options_.iterations = 30;
  Make(model);
  const NurbsShellModel& shell = *body.nurbs_shell->model;
  double before = 0;
  std::vector<Float4> last;
  for (const auto& p : shell.rest_m) last.push_back({static_cast<float>(p[0]), static_cast<float>(p[1]), static_cast<float>(p[2]), 0});
  for (int i = 0; i < 4; ++i) {
    const TissueStep step = Step();
    double momentum = 0, moment_x = 0, moment_y = 0;  // along z, and what turns the sheet
    for (size_t j = 0; j < shell.control_count(); ++j) {
      const double p = shell.mass_kg[j] * (step.control_points_m[j].z - last[j].z) / kDt;
      momentum += p;
      moment_x += shell.rest_m[j][1] * p;
      moment_y += shell.rest_m[j][0] * p;
    }
    last.assign(step.control_points_m.begin(), step.control_points_m.end());
    const double force = step.joints[0].force.z;
    EXPECT_NEAR(force, 0.2 * 0.02, 0.1 * 0.004) << "the spring hardly shortens";
    EXPECT_NEAR((momentum - before) / kDt, force, 0.01 * force) << "step " << i;
    if (i == 0) {
      EXPECT_NEAR(moment_x / kDt, at[1] * force, 0.01 * 0.03 * force);
      EXPECT_NEAR(moment_y / kDt, at[0] * force, 0.01 * 0.03 * force);
    }
    before = momentum;
  }
}

/// Two sheets on two balls at corners and a fixed joint inside: nothing acts from outside.
TEST_F(NurbsJointFramesTest, JoinedSheetsKeepTheirMomentumAndHold) {
  sim::BodyDescription thrown = Sheet({0, 0, 0.01});
  thrown.velocity_m_per_s = {0.2, 0.1, 0};
  const sim::BodyDescription other = Sheet();
  TissueModel model = test::NurbsModelOf({other, thrown});
  for (const auto& [u, v] : {std::pair(0.0, 0.0), std::pair(1.0, 0.3)}) {
    for (uint32_t b = 0; b < 2; ++b) {
      TissueNurbsJointSet set = SetAt(b == 0 ? other : thrown, u, v);
      set.body = set.shell = b;
      model.nurbs_joint_sets.push_back(set);
    }
  }
  // At a corner, and half way up to the other sheet.
  for (uint32_t j = 0; j < 2; ++j) {
    const auto a = NurbsJointOrigin(model.nurbs_shells, model.nurbs_joint_sets[2 * j]);
    model.joints.push_back(Ball(2 * j, 2 * j + 1, {a[0], a[1], 0.005}));
  }
  options_.gravity_m_per_s2 = {0, 0, 0};
  options_.iterations = 16;
  Make(model);
  const NurbsShellModel& shell = *other.nurbs_shell->model;
  const double mass_kg = std::accumulate(shell.mass_kg.begin(), shell.mass_kg.end(), 0.0);
  const auto center = [&](const TissueStep& step) {
    Vector3d sum = Vector3d::Zero();
    for (size_t j = 0; j < step.control_points_m.size(); ++j) {
      const Float4& p = step.control_points_m[j];
      sum += shell.mass_kg[j % shell.control_count()] * Vector3d(p.x, p.y, p.z);
    }
    return Vector3d(sum / (2 * mass_kg));
  };
  Vector3d before = center(Step());
  for (int i = 0; i < 40; ++i) {
    const TissueStep step = Step();
    const Vector3d after = center(step);
    EXPECT_LT(((after - before) / kDt - Vector3d(0.1, 0.05, 0)).norm(), 0.002 * 0.11) << "step " << i;
    before = after;
    for (const JointReport& joint : step.joints) EXPECT_LT(joint.force.w, 1e-6) << "step " << i;
  }
}

TEST_F(NurbsJointFramesTest, SameCallsSameBitsAndStatesGoOn) {
  // Another sheet lies on it, so planes bound what joints move.
  const sim::BodyDescription body = Sheet();
  TissueModel model = test::NurbsModelOf({body, Sheet({0.01, 0, 0.0022}, 5)});
  model.nurbs_joint_sets = {SetAt(body, 0, 0.5), SetAt(body, 0.7, 0.5)};
  for (uint32_t s = 0; s < 2; ++s) {
    model.joints.push_back(Ball(RigidJoint::kWorld, s, NurbsJointOrigin(model.nurbs_shells, model.nurbs_joint_sets[s])));
  }
  uint64_t first = 0;
  for (int run = 0; run < 2; ++run) {
    Make(model);
    uint64_t hash = 0;
    for (int i = 0; i < 5; ++i) {
      const TissueStep step = Step();
      hash = step.hash;
      EXPECT_GT(step.surface.contacts, 0U);
    }
    if (run == 0) first = hash;
    EXPECT_EQ(hash, first);
  }
}

TEST_F(NurbsJointFramesTest, WhatCannotBeHeldIsRefused) {
  const sim::BodyDescription body = Sheet();
  const auto refusal = [&](const std::function<void(TissueModel*)>& change) {
    TissueModel model = test::NurbsModelOf({body});
    model.nurbs_joint_sets = {SetAt(body, 0.3, 0.6)};
    model.joints = {Ball(RigidJoint::kWorld, 0, NurbsJointOrigin(model.nurbs_shells, model.nurbs_joint_sets[0]))};
    change(&model);
    return std::string(TissueSolver::Create(context(), model, options_, {}, {}, TissueTuning::For(context()->device())).status().message());
  };
  EXPECT_EQ(refusal([](TissueModel*) {}), "");
  EXPECT_THAT(refusal([](TissueModel* m) { m->nurbs_joint_sets[0].shell = 1; }), testing::HasSubstr("there is no NURBS shell 1"));
  EXPECT_THAT(refusal([](TissueModel* m) { m->nurbs_joint_sets[0].parts[1].control = 99; }),
              testing::HasSubstr("control point 99 is out of"));
  EXPECT_THAT(refusal([](TissueModel* m) { m->nurbs_joint_sets[0].parts[0].place += 0.1; }),
              testing::HasSubstr("weights do not add up to 1"));
  EXPECT_THAT(refusal([](TissueModel* m) { m->nurbs_joint_sets[0].parts[0].turning = -0.1; }), testing::HasSubstr("is below 0"));
  EXPECT_THAT(refusal([](TissueModel* m) { m->nurbs_shells[0].held = {m->nurbs_joint_sets[0].parts[2].control}; }),
              testing::HasSubstr("is not free"));
  EXPECT_THAT(refusal([](TissueModel* m) {
                for (auto& part : m->nurbs_joint_sets[0].parts) part.turning = 0;
                m->nurbs_joint_sets[0].parts[0].turning = m->nurbs_joint_sets[0].parts[1].turning = 0.5;
              }),
              testing::HasSubstr("less than three control points"));
  EXPECT_THAT(refusal([](TissueModel* m) { m->nurbs_joint_sets.push_back(m->nurbs_joint_sets[0]); }), testing::HasSubstr("has no joint"));
}

}  // namespace
}  // namespace palpate::gpu::nurbs_joint_frames_test
