#pragma once

#include <Eigen/Dense>
#include <Eigen/Geometry>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "gpu/dynamics/rigid_blocks.h"
#include "tests/support/device_test.h"

// Scenes of rigid boxes alone, for the tests of their blocks and joints.
namespace palpate::gpu::test_rigid {

using Eigen::Matrix3d;
using Eigen::Quaterniond;
using Eigen::Vector3d;

inline constexpr float kDt = 1.0F / 120;

inline Vector3d Vec(const Float4& v) { return {v.x, v.y, v.z}; }
inline std::array<double, 3> Array(const Vector3d& v) { return {v.x(), v.y(), v.z()}; }
inline Quaterniond Rotation(const Float4& q) { return {q.w, q.x, q.y, q.z}; }

// A box of given half widths with its eight corners and the inertia of a homogeneous one, turned by q about its centre.
struct BoxBody {
  Vector3d half_m;
  Vector3d center_m{0, 0, 0};
  Quaterniond q = Quaterniond::Identity();
  double mass_kg = 1;
  Vector3d velocity{0, 0, 0};
  Vector3d omega{0, 0, 0};

  Matrix3d Inertia() const {
    const Vector3d s = half_m.cwiseProduct(half_m);
    const Vector3d moments = mass_kg / 3 * Vector3d(s.y() + s.z(), s.x() + s.z(), s.x() + s.y());
    return q.toRotationMatrix() * moments.asDiagonal() * q.toRotationMatrix().transpose();
  }
  std::vector<Vector3d> Corners() const {
    std::vector<Vector3d> corners;
    for (int i = 0; i < 8; ++i) {
      const Vector3d local((i & 1) != 0 ? half_m.x() : -half_m.x(), (i & 2) != 0 ? half_m.y() : -half_m.y(),
                           (i & 4) != 0 ? half_m.z() : -half_m.z());
      corners.push_back(center_m + q * local);
    }
    return corners;
  }
};

class RigidScene : public test::DeviceTest {
 protected:
  static StepParams Params() {
    StepParams p{};
    p.dt_s = kDt;
    p.inv_dt = 1 / kDt;
    p.margin_m = 0.001F;
    p.stiffness_n_per_m = 5000;
    p.stiffening = 10;
    p.friction = 0.5F;
    p.slip_m = 0.001F * kDt;
    return p;
  }

  // Buffers of a scene of rigid bodies alone, with planes.
  void Make(const std::vector<BoxBody>& bodies, StepParams params, const std::vector<PlaneObstacle>& planes = {},
            std::span<const RigidJoint> joints = {}, double dissipation = 0) {
    std::vector<RigidBlock> blocks;
    rest_.clear();
    for (const BoxBody& body : bodies) {
      RigidBlock block;
      block.vertex_begin = static_cast<uint32_t>(rest_.size());
      for (const Vector3d& c : body.Corners())
        rest_.push_back({static_cast<float>(c.x()), static_cast<float>(c.y()), static_cast<float>(c.z()), 0});
      block.vertex_end = static_cast<uint32_t>(rest_.size());
      block.mass_kg = body.mass_kg;
      block.center_m = Array(body.center_m);
      const Matrix3d inertia = body.Inertia();
      for (int i = 0; i < 9; ++i) block.inertia_kg_m2[static_cast<size_t>(i)] = inertia(i / 3, i % 3);
      block.velocity_m_per_s = Array(body.velocity);
      block.angular_velocity_rad_per_s = Array(body.omega);
      blocks.push_back(block);
    }
    params.vertex_count = static_cast<uint32_t>(rest_.size());
    params.plane_count = static_cast<uint32_t>(planes.size());
    params_ = Upload(std::vector<StepParams>{params});
    x_ = Upload(rest_);
    x_start_ = Upload(rest_);
    triangles_ = Allocate<UInt4>(0);
    planes_ = Upload(planes);
    touched_ = Allocate<uint8_t>(rest_.size());
    auto created = RigidBlocks::Create(queue(), blocks, rest_);
    ASSERT_TRUE(created.ok()) << created.status();
    rigid_ = *std::move(created);
    if (!joints.empty()) PALPATE_ASSERT_OK(rigid_->SetJoints(queue(), joints, dissipation));
    scene_ = {};
    scene_.params = &params_;
    scene_.x_start = &x_start_;
    scene_.triangles = &triangles_;
    scene_.planes = &planes_;
  }

  // Surfaces meet: the scene of Make, with what `pairs` has of pairs.
  void Meet(RigidSurroundings pairs) {
    pairs.params = scene_.params;
    pairs.x_start = scene_.x_start;
    pairs.triangles = scene_.triangles;
    pairs.planes = scene_.planes;
    scene_ = pairs;
  }

  // What surfaces have of one plane: one vertex may go `at_m` along x from where it is. Buffers live as long as this.
  struct OnePlane {
    DeviceBuffer<SurfaceParams> surface_params;
    DeviceBuffer<Float4> detected, bounds;
    DeviceBuffer<uint32_t> entry_begins, entries, groups;
    DeviceBuffer<SurfacePair> pairs;
    DeviceBuffer<float> clear_m, reaches;
    DeviceBuffer<uint8_t> is_near;
  };
  OnePlane UploadOnePlane(size_t vertex, float at_m) {
    const size_t count = rest_.size();
    SurfaceParams surface{};
    surface.slip_m = 1;
    std::vector<uint32_t> begins(count + 1, 0);
    std::fill(begins.begin() + static_cast<std::ptrdiff_t>(vertex) + 1, begins.end(), 1U);
    std::vector<float> clear(count, std::numeric_limits<float>::max());
    clear[vertex] = 0.999F * at_m;
    OnePlane plane;
    plane.surface_params = Upload(std::vector<SurfaceParams>{surface});
    plane.detected = Upload(rest_);
    plane.bounds = Upload(std::vector<Float4>{{1, 0, 0, at_m}});
    plane.entry_begins = Upload(begins);
    plane.entries = Upload(std::vector<uint32_t>{0});
    plane.groups = Upload(std::vector<uint32_t>(count, 0));
    plane.pairs = Upload(std::vector<SurfacePair>(1));
    plane.clear_m = Upload(clear);
    plane.reaches = Upload(std::vector<float>{1});
    plane.is_near = Upload(std::vector<uint8_t>{1});
    return plane;
  }
  static RigidSurroundings PairsOf(const OnePlane& plane) {
    return {.surface_params = &plane.surface_params,
            .detected = &plane.detected,
            .clear_m = &plane.clear_m,
            .entry_begins = &plane.entry_begins,
            .entries = &plane.entries,
            .pairs = &plane.pairs,
            .is_near = &plane.is_near,
            .bounds = &plane.bounds};
  }
  // Takes the newest poses back as the plane demands.
  void BoundBy(const OnePlane& plane) {
    PALPATE_ASSERT_OK(
        rigid_->Bound(queue(), plane.groups, plane.reaches, plane.detected, plane.clear_m, plane.entry_begins, plane.bounds, x_, touched_));
  }

  void Step(int sweeps) {
    PALPATE_ASSERT_OK(queue().Copy(x_, x_start_, rest_.size()));
    PALPATE_ASSERT_OK(rigid_->Predict(queue(), scene_, x_, touched_));
    for (int k = 0; k < sweeps; ++k) PALPATE_ASSERT_OK(rigid_->Sweep(queue(), scene_, x_, touched_));
    PALPATE_ASSERT_OK(rigid_->Finish(queue(), scene_, x_));
  }

  std::vector<RigidBlockState> States() {
    const auto states = rigid_->ReadStates(queue());
    EXPECT_TRUE(states.ok()) << states.status();
    return {states->begin(), states->end()};
  }

  void TearDown() override {
    rigid_.reset();
    params_ = {};
    x_ = {};
    x_start_ = {};
    triangles_ = {};
    planes_ = {};
    touched_ = {};
    DeviceTest::TearDown();
  }

  std::vector<Float4> rest_;
  DeviceBuffer<StepParams> params_;
  DeviceBuffer<Float4> x_, x_start_;
  DeviceBuffer<UInt4> triangles_;
  DeviceBuffer<PlaneObstacle> planes_;
  DeviceBuffer<uint8_t> touched_;
  std::unique_ptr<RigidBlocks> rigid_;
  RigidSurroundings scene_;
};

}  // namespace palpate::gpu::test_rigid
