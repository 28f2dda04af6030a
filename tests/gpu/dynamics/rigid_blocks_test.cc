#include "gpu/dynamics/rigid_blocks.h"

#include <Eigen/Dense>
#include <Eigen/Geometry>
#include <cmath>
#include <limits>
#include <vector>

#include "gpu/shared/collision_types.h"
#include "tests/gpu/dynamics/rigid_scene.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::rigid_blocks_test {
namespace {

using test_rigid::Array;
using test_rigid::BoxBody;
using test_rigid::kDt;
using test_rigid::RigidScene;
using test_rigid::Rotation;
using test_rigid::Vec;

using Eigen::Matrix3d;
using Eigen::Quaterniond;
using Eigen::Vector3d;

class RigidBlocksTest : public RigidScene {};

TEST_F(RigidBlocksTest, FreeFlightKeepsMomentaAndFallsAsBackwardEuler) {
  BoxBody body{{0.05, 0.02, 0.01}};
  body.q = Quaterniond(Eigen::AngleAxisd(0.7, Vector3d(1, 2, 3).normalized()));
  body.velocity = {0.3, -0.2, 1};
  body.omega = {5, 1, 20};
  StepParams params = Params();
  params.gravity_z = -9.81F;
  Make({body}, params);
  if (HasFatalFailure()) return;
  const Vector3d momentum = body.Inertia() * body.omega;
  const int steps = 240;
  for (int i = 0; i < steps; ++i) Step(2);
  const RigidBlockState state = States()[0];
  // The angular momentum is untouched, down to the rounding of the residual turn.
  EXPECT_LT((Vec(state.momentum) - momentum).norm(), 2e-4 * momentum.norm());
  const double t = steps * kDt;
  const Vector3d expected = t * body.velocity + Vector3d(0, 0, -9.81 / 2 * t * (t + kDt));
  EXPECT_LT((Vec(state.center) - expected).norm(), 2e-3 * expected.norm());
  // The middle axis is unstable, the energy of the turn is nearly kept by the turn about the middle.
  const Vector3d local = Rotation(state.rotation).conjugate() * momentum;
  const double energy = 0.5 * local.dot(local.cwiseQuotient(Vec(state.inertia)));
  EXPECT_NEAR(energy, 0.5 * body.omega.dot(momentum), 0.03 * energy);
  EXPECT_NEAR(Rotation(state.rotation).norm(), 1, 1e-5);
}

TEST_F(RigidBlocksTest, VerticesStayRigid) {
  BoxBody body{{0.05, 0.02, 0.01}};
  body.omega = {30, -10, 20};
  body.center_m = {0.4, 0.1, 0.2};
  Make({body}, Params());
  if (HasFatalFailure()) return;
  for (int i = 0; i < 100; ++i) Step(3);
  const std::vector<Float4> x = Download(x_);
  for (size_t i = 0; i < 8; ++i) {
    for (size_t j = 0; j < i; ++j) {
      EXPECT_NEAR((Vec(x[i]) - Vec(x[j])).norm(), (Vec(rest_[i]) - Vec(rest_[j])).norm(), 1e-6);
    }
  }
}

TEST_F(RigidBlocksTest, ABoxComesToRestOnAPlane) {
  BoxBody body{{0.03, 0.02, 0.01}};
  body.mass_kg = 0.1;
  body.center_m = {0, 0, 0.05};
  body.q = Quaterniond(Eigen::AngleAxisd(0.4, Vector3d(1, 1, 0).normalized()));
  StepParams params = Params();
  params.gravity_z = -9.81F;
  Make({body}, params, {{{0, 0, 1, 0}}});
  if (HasFatalFailure()) return;
  for (int i = 0; i < 360; ++i) Step(10);
  const RigidBlockState state = States()[0];
  EXPECT_LT(Vec(state.velocity).norm(), 1e-3);
  EXPECT_NEAR(state.center.z, 0.0105, 0.0006) << "on its large face, within the margin";
  EXPECT_GT(std::abs((Rotation(state.rotation).conjugate() * Vector3d::UnitZ()).cwiseAbs().maxCoeff()), 0.9999);
}

TEST_F(RigidBlocksTest, FrictionHoldsBelowItsAngleAndSlidesAbove) {
  for (const double degrees : {20.0, 35.0}) {  // friction 0.5 holds up to 26.6
    const double angle = degrees * M_PI / 180;
    BoxBody body{{0.03, 0.03, 0.005}};
    body.mass_kg = 0.1;
    body.center_m = {0, 0, 0.0055};
    StepParams params = Params();
    params.gravity_x = static_cast<float>(9.81 * std::sin(angle));
    params.gravity_z = static_cast<float>(-9.81 * std::cos(angle));
    Make({body}, params, {{{0, 0, 1, 0}}});
    if (HasFatalFailure()) return;
    for (int i = 0; i < 120; ++i) Step(20);
    const double speed = States()[0].velocity.x;
    if (degrees < 26) {
      EXPECT_LT(std::abs(speed), 5e-3);
    } else {
      EXPECT_NEAR(speed, 9.81 * (std::sin(angle) - 0.5 * std::cos(angle)), 0.1);
    }
  }
}

TEST_F(RigidBlocksTest, APairPushesBothEquallyAndOppositely) {
  // A corner of the upper box just above the middle of a face of the lower one.
  BoxBody lower{{0.05, 0.05, 0.01}};
  BoxBody upper{{0.02, 0.03, 0.01}};
  upper.q = Quaterniond(Eigen::AngleAxisd(0.6, Vector3d(1, 0.3, 0).normalized()));
  upper.mass_kg = 0.3;
  double lowest = 1;
  for (const Vector3d& c : upper.Corners()) lowest = std::min(lowest, c.z());
  upper.center_m = {0.01, 0.005, 0.01 - lowest + 0.0008};
  Make({lower, upper}, Params());
  if (HasFatalFailure()) return;
  uint32_t corner = 8;
  for (uint32_t v = 8; v < 16; ++v) {
    if (rest_[v].z < rest_[corner].z) corner = v;
  }
  // Top face of the lower box: the corner above (0.5, 0.3, 0.2) of its corners 4, 5, 6 need not be the nearest point for the test's
  // purpose.
  SurfacePair pair{};
  pair.vertices = {corner, 4, 5, 6};
  pair.weights = {-1, 0.5F, 0.3F, 0.2F};
  pair.normal = {0, 0, -1, 0.001F};
  pair.stiffness_n_per_m = 200;
  std::vector<uint32_t> entries, begins(17, 0);
  for (uint32_t v = 0; v < 16; ++v) {
    begins[v] = static_cast<uint32_t>(entries.size());
    if (v == 4) entries.push_back(1);
    if (v == 5) entries.push_back(2);
    if (v == 6) entries.push_back(3);
    if (v == corner) entries.push_back(0);
  }
  begins[16] = 4;
  SurfaceParams surface{};
  surface.friction = 0.3F;
  surface.slip_m = 1e-5F;
  const auto surface_params = Upload(std::vector<SurfaceParams>{surface});
  const auto detected = Upload(rest_);
  const auto entry_begins = Upload(begins);
  const auto entry_buffer = Upload(entries);
  const auto pairs = Upload(std::vector<SurfacePair>{pair});
  const auto bounds = Upload(std::vector<Float4>(4, Float4{0, 0, 1, 1e6F}));
  const auto clear_m = Upload(std::vector<float>(16, 0.0F));  // every plane is looked at
  const auto is_near = Upload(std::vector<uint8_t>{1});
  Meet({.surface_params = &surface_params,
        .detected = &detected,
        .clear_m = &clear_m,
        .entry_begins = &entry_begins,
        .entries = &entry_buffer,
        .pairs = &pairs,
        .is_near = &is_near,
        .bounds = &bounds});
  Step(200);
  const auto states = States();
  const Vector3d p0 = 1.0 * Vec(states[0].velocity);
  const Vector3d p1 = 0.3 * Vec(states[1].velocity);
  ASSERT_GT(p1.z(), 1e-5) << "the pair pushes";
  EXPECT_LT((p0 + p1).norm(), 1e-3 * p1.norm());
  // Each is turned by the moment of that force about its own centre.
  const std::vector<Float4> x = Download(x_);
  const Vector3d point_upper = Vec(x[corner]);
  const Vector3d point_lower = 0.5 * Vec(x[4]) + 0.3 * Vec(x[5]) + 0.2 * Vec(x[6]);
  const Vector3d l1 = (point_upper - Vec(states[1].center)).cross(p1);
  const Vector3d l0 = (point_lower - Vec(states[0].center)).cross(p0);
  EXPECT_LT((Vec(states[1].momentum) - l1).norm(), 5e-3 * l1.norm());
  EXPECT_LT((Vec(states[0].momentum) - l0).norm(), 5e-3 * l0.norm());
}

// Two pairs of bodies at once, so that a row meant for one would show at the other; what a row says is a constant force here.
TEST_F(RigidBlocksTest, RowsPushBothEquallyAndOppositely) {
  BoxBody lower{{0.05, 0.05, 0.01}};
  BoxBody upper{{0.02, 0.03, 0.01}};
  upper.mass_kg = 0.3;
  upper.center_m = {0.01, 0.005, 0.0208};
  BoxBody beside = upper;
  beside.center_m = {0.0708, 0, 0};
  Make({lower, upper, beside}, Params());
  if (HasFatalFailure()) return;
  std::vector<SurfacePair> pairs(2);
  pairs[0].vertices = {8, 4, 5, 6};  // a corner of the upper box and a face of the lower one
  pairs[1].vertices = {1, 3, 16, 18};
  pairs[1].flags = PALPATE_EDGE_EDGE;
  std::vector<PairRow> rows(2);
  rows[0] = {.point_a = {-0.01F, -0.025F, 0.0108F, 0},
             .point_b = {-0.01F, -0.025F, 0.01F, 0},
             .normal = {0, 0, -1, 0},
             .on_b = {0.1F, 0.2F, -0.5F, 0}};
  rows[1] = {.point_a = {0.05F, 0.01F, 0, 0}, .point_b = {0.0508F, 0.01F, 0, 0}, .normal = {1, 0, 0, 0}, .on_b = {0.4F, -0.1F, 0, 0}};
  // The entries of both pairs by vertex: 4 pair + role.
  const std::vector<std::pair<uint32_t, uint32_t>> by_vertex = {{1, 4}, {3, 5}, {4, 1}, {5, 2}, {6, 3}, {8, 0}, {16, 6}, {18, 7}};
  std::vector<uint32_t> entries, begins;
  for (uint32_t v = 0, k = 0; v <= 24; ++v) {
    begins.push_back(static_cast<uint32_t>(entries.size()));
    for (; k < by_vertex.size() && by_vertex[k].first == v; ++k) entries.push_back(by_vertex[k].second);
  }
  const auto surface_params = Upload(std::vector<SurfaceParams>(1));
  const auto detected = Upload(rest_);
  const auto entry_begins = Upload(begins);
  const auto entry_buffer = Upload(entries);
  const auto pair_buffer = Upload(pairs);
  const auto row_buffer = Upload(rows);
  const auto bounds = Upload(std::vector<Float4>(8, Float4{0, 0, 1, 1e6F}));
  const auto clear_m = Upload(std::vector<float>(24, 1.0F));
  const auto is_near = Upload(std::vector<uint8_t>(2, PALPATE_PAIR_NEAR | PALPATE_PAIR_HAS_ROW));
  Meet({.surface_params = &surface_params,
        .detected = &detected,
        .clear_m = &clear_m,
        .entry_begins = &entry_begins,
        .entries = &entry_buffer,
        .pairs = &pair_buffer,
        .rows = &row_buffer,
        .is_near = &is_near,
        .bounds = &bounds});
  Step(20);
  const auto states = States();
  const double h = 1.0 / Params().inv_dt;
  const Vector3d down = Vec(rows[0].on_b);
  const Vector3d aside = Vec(rows[1].on_b);
  const auto expect = [](const Vector3d& found, const Vector3d& wanted) { EXPECT_LT((found - wanted).norm(), 2e-3 * wanted.norm()); };
  expect(1.0 * Vec(states[0].velocity), h * (down - aside));
  expect(0.3 * Vec(states[1].velocity), -h * down);
  expect(0.3 * Vec(states[2].velocity), h * aside);
  const auto arm = [&](const Float4& point, const Vector3d& center) -> Vector3d { return Vec(point) - center; };
  expect(Vec(states[0].momentum),
         h * (arm(rows[0].point_b, lower.center_m).cross(down) - arm(rows[1].point_a, lower.center_m).cross(aside)));
  expect(Vec(states[1].momentum), -h * arm(rows[0].point_a, upper.center_m).cross(down));
  expect(Vec(states[2].momentum), h * arm(rows[1].point_b, beside.center_m).cross(aside));
}

TEST_F(RigidBlocksTest, PlanesCutAMoveShortAsAWhole) {
  BoxBody body{{0.02, 0.02, 0.02}};
  body.velocity = {0.6, 0, 0};
  body.omega = {0, 0, 15};
  Make({body}, Params());
  if (HasFatalFailure()) return;
  // Vertex 3 may move 1 mm along x; the free move is 5 mm and turns.
  const OnePlane plane = UploadOnePlane(3, 0.001F);
  Meet(PairsOf(plane));
  PALPATE_ASSERT_OK(rigid_->Detected(queue()));
  PALPATE_ASSERT_OK(queue().Copy(x_, x_start_, 8));
  PALPATE_ASSERT_OK(rigid_->Predict(queue(), scene_, x_, touched_));
  ASSERT_GT(Download(x_)[3].x - rest_[3].x, 0.001F);
  BoundBy(plane);
  const std::vector<Float4> x = Download(x_);
  EXPECT_LE(x[3].x - rest_[3].x, 0.001F);
  EXPECT_GT(x[3].x - rest_[3].x, 0.0009F) << "not cut shorter than needed";
  EXPECT_EQ(Download(touched_)[3], PALPATE_TOUCH_TRUNCATED);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_NEAR((Vec(x[i]) - Vec(x[3])).norm(), (Vec(rest_[i]) - Vec(rest_[3])).norm(), 1e-6) << "rigid";
  }
  // A sweep goes on towards the free flight and stays behind the plane.
  PALPATE_ASSERT_OK(rigid_->Sweep(queue(), scene_, x_, touched_));
  EXPECT_LE(Download(x_)[3].x - rest_[3].x, 0.001F);
  // A filter's least share moves the whole body back.
  std::vector<float> shares(8, 1.0F);
  shares[5] = 0.5F;
  const auto share_buffer = Upload(shares);
  const Float4 before = States()[0].center;
  PALPATE_ASSERT_OK(rigid_->FilterBegins(queue()));
  PALPATE_ASSERT_OK(rigid_->TakeBack(queue(), false, share_buffer, plane.entry_begins, x_, touched_));
  EXPECT_NEAR(States()[0].center.x, 0.5F * before.x, 1e-6);
  EXPECT_EQ(Download(share_buffer), std::vector<float>(8, 0.5F)) << "one share for all";
  PALPATE_ASSERT_OK(rigid_->RollBack(queue()));
  EXPECT_EQ(States()[0].center.x, 0.0F);
}

TEST_F(RigidBlocksTest, FitFindsPoseAndMotion) {
  BoxBody body{{0.05, 0.02, 0.01}};
  body.center_m = {1, 2, 3};
  Make({body, body}, Params());
  if (HasFatalFailure()) return;
  const Quaterniond q(Eigen::AngleAxisd(2.5, Vector3d(1, -2, 0.5).normalized()));
  const Vector3d shift(0.3, -0.7, 0.1);
  const Vector3d velocity(1, 2, -3);
  const Vector3d omega(4, -5, 6);
  std::vector<Float4> positions, velocities;
  for (const Float4& r : rest_) {
    const Vector3d arm = q * (Vec(r) - body.center_m);
    const Vector3d p = body.center_m + shift + arm;
    const Vector3d v = velocity + omega.cross(arm);
    positions.push_back({static_cast<float>(p.x()), static_cast<float>(p.y()), static_cast<float>(p.z()), 0});
    velocities.push_back({static_cast<float>(v.x()), static_cast<float>(v.y()), static_cast<float>(v.z()), 0});
  }
  PALPATE_ASSERT_OK(rigid_->Fit(queue(), positions, velocities, x_, touched_));
  for (const RigidBlockState& state : States()) {
    EXPECT_LT((Vec(state.center) - body.center_m - shift).norm(), 1e-6);
    EXPECT_LT((Vec(state.velocity) - velocity).norm(), 1e-4);
    const Matrix3d inertia = q.toRotationMatrix() * body.Inertia() * q.toRotationMatrix().transpose();
    EXPECT_LT((Vec(state.momentum) - inertia * omega).norm(), 1e-4 * (inertia * omega).norm());
  }
  PALPATE_ASSERT_OK(rigid_->Reset(queue(), x_, touched_));
  const std::vector<Float4> x = Download(x_);
  for (size_t v = 0; v < rest_.size(); ++v) EXPECT_LT((Vec(x[v]) - Vec(rest_[v])).norm(), 1e-6);
  EXPECT_TRUE(absl::IsInvalidArgument(rigid_->Fit(queue(), std::span(positions).first(3), {}, x_, touched_)));
}

TEST_F(RigidBlocksTest, BadBlocksAreNamed) {
  const std::vector<Float4> rest(8);
  RigidBlock good;
  good.vertex_end = 4;
  good.mass_kg = 1;
  good.inertia_kg_m2 = {1, 0, 0, 0, 1, 0, 0, 0, 1};
  const auto expect = [&](RigidBlock second, const char* what) {
    second.vertex_begin = second.vertex_begin == 0 ? 4 : second.vertex_begin;
    second.vertex_end = 8;
    const auto created = RigidBlocks::Create(queue(), std::vector<RigidBlock>{good, second}, rest);
    EXPECT_TRUE(absl::IsInvalidArgument(created.status())) << created.status();
    EXPECT_NE(created.status().message().find("rigid body 1"), std::string::npos) << created.status();
    EXPECT_NE(created.status().message().find(what), std::string::npos) << created.status();
  };
  RigidBlock bad = good;
  bad.mass_kg = 0;
  expect(bad, "mass_kg");
  bad = good;
  bad.inertia_kg_m2[4] = -1;
  expect(bad, "moments of inertia");
  bad = good;
  bad.inertia_kg_m2[1] = 0.5;
  expect(bad, "symmetric");
  bad = good;
  bad.vertex_begin = 3;
  expect(bad, "are not within [4");
  bad = good;
  bad.velocity_m_per_s[2] = std::nan("");
  expect(bad, "finite");
  EXPECT_TRUE(absl::IsInvalidArgument(RigidBlocks::Create(queue(), {}, rest).status()));
}

}  // namespace
}  // namespace palpate::gpu::rigid_blocks_test
