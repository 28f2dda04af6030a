#include "gpu/collision/kdop.h"

#include <array>

#include "Eigen/Dense"
#include "gpu/collision/principal_axis.h"
#include "tests/gpu/collision/volume_support.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::kdop_test {
namespace {

#ifdef PALPATE_NATIVE_KERNELS
constexpr uint32_t kBodies = 60;
#else
constexpr uint32_t kBodies = 500;
#endif

class KdopTest : public test::DeviceTest {
 protected:
  std::vector<float> Build(BoundingVolume volume, const TestBodies& bodies, const std::vector<Float4>& centres = {},
                           uint32_t run_length = 0, const std::vector<Float4>& rotations = {}) {
    auto builder = VolumeBuilder::Create(context(), volume);
    EXPECT_TRUE(builder.ok()) << builder.status();
    if (!builder.ok()) return {};
    const auto vertices = Upload(bodies.vertices);
    const auto begins = Upload(bodies.begins);
    const auto centre_buffer = Upload(centres);
    const auto rotation_buffer = Upload(rotations);
    const auto volumes = Allocate<float>(size_t{bodies.count()} * FloatsPerVolume(volume));
    PALPATE_EXPECT_OK(builder->Build(queue(), vertices, begins, bodies.count(), bodies.vertex_count(), volumes,
                                     {.positions = centres.empty() ? BufferView<Float4>() : centre_buffer.view(),
                                      .rotations = rotations.empty() ? BufferView<Float4>() : rotation_buffer.view()},
                                     run_length));
    return Download(volumes);
  }
};

__extension__ typedef __float128 Wide;  // holds sums of three floats of ordinary size exactly

Wide Exact(const Float4& v, const std::array<double, 3>& axis) { return Wide(v.x) * axis[0] + Wide(v.y) * axis[1] + Wide(v.z) * axis[2]; }

// F01, F02: true projections, from outside, tight.
TEST_F(KdopTest, IntervalsAreTheProjectionsOfTheVertices) {
  for (const BoundingVolume volume : kBoundingVolumes) {
    if (volume == BoundingVolume::kSphere || volume == BoundingVolume::kOrientedBox) continue;
    for (const auto& [name, bodies] : TestWorlds(kBodies, 3)) {
      for (const uint32_t run_length : {0U, 1U, 7U}) {
        const std::vector<float> volumes = Build(volume, bodies, {}, run_length);
        const uint32_t axes = AxisCount(volume);
        for (uint32_t body = 0; body < bodies.count(); ++body) {
          const float* bounds = &volumes[size_t{body} * 2 * axes];
          for (uint32_t axis = 0; axis < axes; ++axis) {
            const auto where = [&, world = name] { return world + ", body " + std::to_string(body) + ", axis " + std::to_string(axis); };
            if (bodies.begins[body] == bodies.begins[body + 1]) {
              ASSERT_EQ(bounds[axis], std::numeric_limits<float>::infinity()) << where();
              ASSERT_EQ(bounds[axes + axis], -std::numeric_limits<float>::infinity()) << where();
              continue;
            }
            Wide lower = Exact(bodies.vertices[bodies.begins[body]], SweepAxis(volume, axis));
            Wide upper = lower;
            double size = 0;
            for (uint32_t v = bodies.begins[body]; v < bodies.begins[body + 1]; ++v) {
              const Float4& p = bodies.vertices[v];
              const Wide d = Exact(p, SweepAxis(volume, axis));
              lower = std::min(lower, d);
              upper = std::max(upper, d);
              size = std::max(size, std::abs(double{p.x}) + std::abs(double{p.y}) + std::abs(double{p.z}));
            }
            const double slack = axis < 3 ? 0 : 2e-6 * size + 1e-44;
            ASSERT_TRUE(Wide(bounds[axis]) <= lower) << where();
            ASSERT_TRUE(Wide(bounds[axes + axis]) >= upper) << where();
            ASSERT_LE(static_cast<double>(lower - Wide(bounds[axis])), slack) << where();
            ASSERT_LE(static_cast<double>(Wide(bounds[axes + axis]) - upper), slack) << where();
          }
        }
      }
    }
  }
}

// F03.
TEST_F(KdopTest, SpheresHoldTheirVertices) {
  for (const auto& [name, bodies] : TestWorlds(kBodies, 4)) {
    std::vector<Float4> positions;
    for (uint32_t body = 0; body < bodies.count(); ++body) {
      positions.push_back(bodies.begins[body] == bodies.begins[body + 1] ? Float4{} : bodies.vertices[bodies.begins[body]]);
    }
    for (const bool has_centres : {false, true}) {
      if (has_centres && positions.empty()) continue;
      for (const uint32_t run_length : {0U, 1U, 3U}) {
        const std::vector<float> volumes =
            Build(BoundingVolume::kSphere, bodies, has_centres ? positions : std::vector<Float4>(), run_length);
        for (uint32_t body = 0; body < bodies.count(); ++body) {
          const float* sphere = &volumes[size_t{body} * 4];
          if (bodies.begins[body] == bodies.begins[body + 1]) {
            ASSERT_EQ(sphere[3], -std::numeric_limits<float>::infinity()) << name;
            continue;
          }
          if (has_centres) {
            ASSERT_EQ(sphere[0], positions[body].x);
            ASSERT_EQ(sphere[1], positions[body].y);
            ASSERT_EQ(sphere[2], positions[body].z);
          }
          Wide farthest_sq = 0;
          for (uint32_t v = bodies.begins[body]; v < bodies.begins[body + 1]; ++v) {
            const Wide x = Wide(bodies.vertices[v].x) - sphere[0];
            const Wide y = Wide(bodies.vertices[v].y) - sphere[1];
            const Wide z = Wide(bodies.vertices[v].z) - sphere[2];
            farthest_sq = std::max(farthest_sq, x * x + y * y + z * z);
          }
          ASSERT_TRUE(Wide(sphere[3]) * Wide(sphere[3]) >= farthest_sq) << name << ", body " << body;
          const auto farthest_m = std::sqrt(static_cast<double>(farthest_sq));
          ASSERT_LE(sphere[3], farthest_m < 1e-15 ? 1.74 * farthest_m : farthest_m * (1 + 2e-6)) << name << ", body " << body;
        }
      }
    }
  }
}

// F20: every vertex inside, both faces of each axis near one, with the 6-DOP of the body before it.
TEST_F(KdopTest, OrientedBoxesHoldTheirVertices) {
  for (const auto& [name, bodies] : TestWorlds(kBodies, 10)) {
    std::mt19937 random(10);
    std::normal_distribution<float> normal;
    std::vector<Float4> rotations;
    for (uint32_t body = 0; body < bodies.count(); ++body) {
      const Eigen::Quaternionf q = Eigen::Quaternionf(normal(random), normal(random), normal(random), normal(random)).normalized();
      rotations.push_back({q.x(), q.y(), q.z(), q.w()});
    }
    const std::vector<float> boxes = Build(BoundingVolume::kDop6, bodies);
    for (const bool has_rotations : {false, true}) {
      if (has_rotations && rotations.empty()) continue;
      const std::vector<Float4>& given = has_rotations ? rotations : std::vector<Float4>();
      const std::vector<float> volumes = Build(BoundingVolume::kOrientedBox, bodies, {}, 0, given);
      for (const uint32_t run_length : {1U, 3U}) {
        ASSERT_EQ(Build(BoundingVolume::kOrientedBox, bodies, {}, run_length, given), volumes) << name << ", runs of " << run_length;
      }
      for (uint32_t body = 0; body < bodies.count(); ++body) {
        const std::string where = name + ", body " + std::to_string(body);
        const float* v = &volumes[size_t{body} * 21];
        if (bodies.begins[body] == bodies.begins[body + 1]) {
          ASSERT_EQ(v[0], std::numeric_limits<float>::infinity()) << where;
          ASSERT_EQ(v[3], -std::numeric_limits<float>::infinity()) << where;
          continue;
        }
        Eigen::Matrix3d axes;  // one a row
        for (int i = 0; i < 9; ++i) axes(i / 3, i % 3) = v[12 + i];
        ASSERT_LE((axes * axes.transpose() - Eigen::Matrix3d::Identity()).cwiseAbs().maxCoeff(), 1e-6) << where;
        ASSERT_GT(axes.determinant(), 0.9) << where;
        const Eigen::Vector3d centre(v[6], v[7], v[8]), half(v[9], v[10], v[11]);
        const double slack = 1e-5 * half.sum() + 1e-6 * centre.cwiseAbs().sum() + 1e-36;
        Eigen::Vector3d least = Eigen::Vector3d::Constant(1e300), most = -least;
        for (uint32_t k = bodies.begins[body]; k < bodies.begins[body + 1]; ++k) {
          const Float4& p = bodies.vertices[k];
          for (int i = 0; i < 3; ++i) {
            const Wide along = (Wide(p.x) - v[6]) * v[12 + 3 * i] + (Wide(p.y) - v[7]) * v[13 + 3 * i] + (Wide(p.z) - v[8]) * v[14 + 3 * i];
            ASSERT_TRUE(along <= Wide(v[9 + i]) && -along <= Wide(v[9 + i])) << where << ", axis " << i;
            least[i] = std::min(least[i], static_cast<double>(along));
            most[i] = std::max(most[i], static_cast<double>(along));
          }
        }
        ASSERT_LE((half - most).maxCoeff(), slack) << where;
        ASSERT_LE((half + least).maxCoeff(), slack) << where;
        for (size_t i = 0; i < 6; ++i) ASSERT_EQ(v[i], boxes[size_t{body} * 6 + i]) << where;
      }
    }
  }
}

// Bodies whose sides differ have the axes of their sides, found or given.
TEST_F(KdopTest, OrientedBoxesFindTheSidesOfTurnedBoxes) {
  std::mt19937 random(11);
  std::normal_distribution<double> normal;
  const Eigen::Vector3d half(0.5, 1.5, 4);
  TestBodies bodies;
  std::vector<Float4> rotations;
  for (uint32_t body = 0; body < kBodies; ++body) {
    const Eigen::Quaterniond q = Eigen::Quaterniond(normal(random), normal(random), normal(random), normal(random)).normalized();
    const Eigen::Vector3d centre(20 * normal(random), 20 * normal(random), 20 * normal(random));
    std::vector<Float4> corners;
    for (int c = 0; c < 8; ++c) {
      const Eigen::Vector3d corner(c & 1 ? half.x() : -half.x(), c & 2 ? half.y() : -half.y(), c & 4 ? half.z() : -half.z());
      const Eigen::Vector3f p = (q * corner + centre).cast<float>();
      corners.push_back({p.x(), p.y(), p.z(), 0});
    }
    bodies.Add(corners);
    rotations.push_back({static_cast<float>(q.x()), static_cast<float>(q.y()), static_cast<float>(q.z()), static_cast<float>(q.w())});
  }
  for (const bool has_rotations : {false, true}) {
    const std::vector<float> volumes =
        Build(BoundingVolume::kOrientedBox, bodies, {}, 0, has_rotations ? rotations : std::vector<Float4>());
    for (uint32_t body = 0; body < kBodies; ++body) {
      std::array<float, 3> sides = {volumes[size_t{body} * 21 + 9], volumes[size_t{body} * 21 + 10], volumes[size_t{body} * 21 + 11]};
      std::sort(sides.begin(), sides.end());
      // Cells of 1/65535 of the body turn the principal axes by a few 1e-5 rad.
      const double error = has_rotations ? 1e-4 : 1e-3;
      for (int i = 0; i < 3; ++i) ASSERT_NEAR(sides[static_cast<size_t>(i)], half[i], error) << "body " << body;
    }
  }
}

TEST_F(KdopTest, OneLargeBodyAmongSmallOnesIsHeldToo) {
#ifdef PALPATE_NATIVE_KERNELS
  const uint32_t large = 6000;
#else
  const uint32_t large = 300000;
#endif
  std::mt19937 random(5);
  std::uniform_real_distribution<float> coordinate(-3, 3);
  TestBodies bodies;
  std::vector<Float4> body;
  for (const uint32_t size : {3U, 0U, large, 1U, 4096U, 8192U, 2U}) {
    body.clear();
    for (uint32_t v = 0; v < size; ++v) body.push_back({coordinate(random), coordinate(random), coordinate(random), 0});
    bodies.Add(body);
  }
  for (const BoundingVolume volume : kBoundingVolumes) {
    // Runs of one vertex per body would be its own reference; here all runs lie within a body or a body within one run.
    const std::vector<float> expected = Build(volume, bodies, {}, bodies.vertex_count());
    EXPECT_EQ(Build(volume, bodies), expected) << BoundingVolumeName(volume);
    EXPECT_EQ(Build(volume, bodies, {}, 100), expected) << BoundingVolumeName(volume);
  }
}

TEST_F(KdopTest, VerticesThatAreNotFiniteShow) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const BoundingVolume volume : kBoundingVolumes) {
      for (const uint32_t run_length : {0U, 2U}) {
        TestBodies bodies;
        bodies.Add({{0, 0, 0, 0}, {1, 1, 1, 0}, {2, 2, 2, 0}});
        bodies.Add({{0, 0, 0, 0}, {1, bad, 1, 0}, {2, 2, 2, 0}, {0, 1, 0, 0}});
        bodies.Add({{0, 0, 0, 0}, {1, 1, 1, 0}, {2, 2, 2, 0}});
        const std::vector<float> volumes = Build(volume, bodies, {}, run_length);
        const size_t stride = FloatsPerVolume(volume);
        EXPECT_TRUE(std::isfinite(volumes[stride - 1]));
        EXPECT_TRUE(std::isnan(volumes[2 * stride - 1])) << BoundingVolumeName(volume);
        EXPECT_TRUE(std::isfinite(volumes[3 * stride - 1]));
      }
    }
  }
}

// F05: also with another scale on each axis.
TEST_F(KdopTest, InstancesArePlacedByScaleRotationAndPosition) {
  std::mt19937 random(6);
  std::uniform_real_distribution<float> unit(-1, 1);
  std::vector<Float4> mesh;
  for (int v = 0; v < 40; ++v) mesh.push_back({unit(random), unit(random), unit(random), 0});
  const std::array<std::pair<uint32_t, uint32_t>, 3> ranges = {{{0, 24}, {24, 8}, {32, 8}}};
  std::vector<RigidInstance> instances;
  std::vector<uint32_t> begins = {0};
  std::vector<Eigen::Vector3d> expected;
  for (int i = 0; i < 300; ++i) {
    const auto [first, size] = ranges[static_cast<size_t>(i) % 3];
    const Eigen::Quaternionf q = Eigen::Quaternionf(unit(random), unit(random), unit(random), unit(random)).normalized();
    const Eigen::Vector3f position(9 * unit(random), 9 * unit(random), 9 * unit(random));
    const Eigen::Vector3f scale(1 + unit(random), 2 + unit(random), 6);
    instances.push_back({.position = {position.x(), position.y(), position.z(), 5},
                         .rotation = {q.x(), q.y(), q.z(), q.w()},
                         .scale = {scale.x(), scale.y(), scale.z(), 7},
                         .mesh = {first, 0, 0, 0}});
    for (uint32_t v = first; v < first + size; ++v) {
      const Eigen::Vector3f local = scale.cwiseProduct(Eigen::Vector3f(mesh[v].x, mesh[v].y, mesh[v].z));
      expected.emplace_back(q.cast<double>() * local.cast<double>() + position.cast<double>());
    }
    begins.push_back(begins.back() + size);
  }
  const auto mesh_buffer = Upload(mesh);
  const auto instance_buffer = Upload(instances);
  const auto begin_buffer = Upload(begins);
  const auto world = Allocate<Float4>(begins.back());
  PALPATE_TEST_ASSIGN(InstanceTransform transform, InstanceTransform::Create(context()));
  PALPATE_ASSERT_OK(transform.Run(queue(), mesh_buffer, instance_buffer, begin_buffer, 300, begins.back(), world));
  const std::vector<Float4> result = Download(world);
  for (size_t v = 0; v < result.size(); ++v) {
    EXPECT_NEAR(result[v].x, expected[v].x(), 1e-5) << v;
    EXPECT_NEAR(result[v].y, expected[v].y(), 1e-5) << v;
    EXPECT_NEAR(result[v].z, expected[v].z(), 1e-5) << v;
  }
}

TEST_F(KdopTest, SmallBuffersAreRefused) {
  PALPATE_TEST_ASSIGN(VolumeBuilder builder, VolumeBuilder::Create(context(), BoundingVolume::kDop18));
  const auto vertices = Allocate<Float4>(8);
  const auto begins = Upload(std::vector<uint32_t>{0, 4, 8});
  const auto volumes = Allocate<float>(36);
  const auto few = Allocate<float>(35);
  EXPECT_TRUE(absl::IsInvalidArgument(builder.Build(queue(), vertices, begins, 2, 9, volumes)));
  EXPECT_TRUE(absl::IsInvalidArgument(builder.Build(queue(), vertices, begins, 3, 8, volumes)));
  EXPECT_TRUE(absl::IsInvalidArgument(builder.Build(queue(), vertices, begins, 2, 8, few)));
}

TEST(SymmetricEigenTest, GivesThePublishedValuesOfAKnownMatrix) {
  // Amaral 2021, section 4.13: values and vectors as computed there with two other programs.
  const auto eigen = EigenOfSymmetric({{{4, 2, 0}, {2, 5, 3}, {0, 3, 6}}});
  ASSERT_TRUE(eigen.has_value());
  const std::array<double, 3> values = {8.9089, 4.6395, 1.4516};
  const Matrix3 vectors = {{{0.27285, 0.6697, 0.69069}, {0.79072, 0.25284, -0.55753}, {-0.54801, 0.69826, -0.46056}}};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(eigen->values[i], values[i], 1e-4);
    double dot = 0;
    for (size_t k = 0; k < 3; ++k) dot += eigen->vectors[i][k] * vectors[i][k];
    EXPECT_NEAR(std::abs(dot), 1, 1e-4);
  }
}

TEST(SymmetricEigenTest, EqualsEigen) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  for (int trial = 0; trial < 2000; ++trial) {
    Eigen::Matrix3d a = Eigen::Matrix3d::NullaryExpr([&] { return normal(random); });
    a = trial % 3 == 0 ? Eigen::Matrix3d(a.col(0) * a.col(0).transpose()) : Eigen::Matrix3d(a * a.transpose());
    if (trial % 5 == 0) a = Eigen::Matrix3d(a.diagonal().asDiagonal());
    a *= std::pow(10.0, trial % 41 - 20);
    Matrix3 matrix;
    for (size_t i = 0; i < 3; ++i) {
      for (size_t j = 0; j < 3; ++j) matrix[i][j] = a(static_cast<int>(i), static_cast<int>(j));
    }
    const auto eigen = EigenOfSymmetric(matrix);
    ASSERT_TRUE(eigen.has_value());
    const Eigen::SelfAdjointEigenSolver<Eigen::Matrix3d> reference(a);
    const double scale = a.norm();
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(eigen->values[i], reference.eigenvalues()[2 - static_cast<int>(i)], 1e-13 * scale);
      const Eigen::Vector3d v(eigen->vectors[i][0], eigen->vectors[i][1], eigen->vectors[i][2]);
      EXPECT_NEAR(v.norm(), 1, 1e-13);
      EXPECT_LE((a * v - eigen->values[i] * v).norm(), 1e-13 * scale);
    }
  }
  EXPECT_FALSE(EigenOfSymmetric({{{1, 0, 0}, {0, std::nan(""), 0}, {0, 0, 1}}}).has_value());
}

class PrincipalAxisTest : public KdopTest {};

// F07.
TEST_F(PrincipalAxisTest, BodiesOnALineChooseItsAxis) {
  std::mt19937 random(8);
  std::uniform_real_distribution<float> unit(-1, 1);
  for (const BoundingVolume volume : kBoundingVolumes) {
    PALPATE_TEST_ASSIGN(PrincipalAxis principal, PrincipalAxis::Create(context(), volume));
    for (uint32_t axis = 0; axis < SweepAxisCount(volume); ++axis) {
      const std::array<double, 3> n = SweepAxis(volume, axis);
      // Far from the origin in another direction: what is not centred would choose that.
      for (const float offset : {0.0F, 1000.0F}) {
        TestBodies bodies;
        for (uint32_t i = 0; i < 400; ++i) {
          const float s = 20 * unit(random);
          bodies.AddBox({static_cast<float>(n[0]) * s + offset * (axis == 1 ? 0.0F : 0.3F) + unit(random),
                         static_cast<float>(n[1]) * s + offset + unit(random), static_cast<float>(n[2]) * s - offset + unit(random), 0},
                        {0.5F, 0.5F, 0.5F, 0});
        }
        bodies.Add({});
        const auto volumes = Upload(Build(volume, bodies));
        PALPATE_TEST_ASSIGN(const std::optional<uint32_t> found, principal.Find(queue(), volumes, bodies.count()));
        ASSERT_TRUE(found.has_value());
        EXPECT_EQ(*found, axis) << BoundingVolumeName(volume) << " offset " << offset;
      }
    }
  }
}

TEST_F(PrincipalAxisTest, CovarianceIsThatOfTheCentres) {
  for (const BoundingVolume volume : {BoundingVolume::kSphere, BoundingVolume::kDop6, BoundingVolume::kDop26}) {
    PALPATE_TEST_ASSIGN(PrincipalAxis principal, PrincipalAxis::Create(context(), volume));
    for (const auto& [name, bodies] : TestWorlds(kBodies, 9)) {
      if (name == TinyWorldName()) continue;  // squares of its distances underflow
      const std::vector<float> host = Build(volume, bodies);
      const auto volumes = Upload(host);
      PALPATE_TEST_ASSIGN(const Matrix3 covariance, principal.Covariance(queue(), volumes, bodies.count()));
      std::vector<Eigen::Vector3d> centres;
      const size_t stride = FloatsPerVolume(volume);
      for (uint32_t i = 0; i < bodies.count(); ++i) {
        if (bodies.begins[i] == bodies.begins[i + 1]) continue;
        const float* v = &host[i * stride];
        const uint32_t axes = AxisCount(volume);
        centres.push_back(axes == 0 ? Eigen::Vector3d(v[0], v[1], v[2])
                                    : 0.5 * (Eigen::Vector3d(v[0], v[1], v[2]) + Eigen::Vector3d(v[axes], v[axes + 1], v[axes + 2])));
      }
      Eigen::Vector3d mean = Eigen::Vector3d::Zero();
      for (const auto& c : centres) mean += c / static_cast<double>(centres.size());
      Eigen::Matrix3d expected = Eigen::Matrix3d::Zero();
      double size = 0;
      for (const auto& c : centres) {
        expected += (c - mean) * (c - mean).transpose() / static_cast<double>(centres.size());
        size = std::max(size, c.norm());
      }
      // Rounding of a centre to float moves it by up to 1e-7 of its distance.
      const double tolerance = 1e-5 * expected.norm() + 1e-14 * size * size + 1e-6 * size * std::sqrt(expected.norm());
      for (size_t i = 0; i < 3; ++i) {
        for (size_t j = 0; j < 3; ++j) {
          EXPECT_NEAR(covariance[i][j], expected(static_cast<int>(i), static_cast<int>(j)), tolerance) << name;
        }
      }
    }
  }
}

TEST_F(PrincipalAxisTest, WithoutSpreadThereIsNoAxis) {
  PALPATE_TEST_ASSIGN(PrincipalAxis principal, PrincipalAxis::Create(context(), BoundingVolume::kDop6));
  TestBodies bodies;
  for (int i = 0; i < 50; ++i) bodies.AddBox({3, 4, 5, 0}, {0.5F, 0.5F, 0.5F, 0});
  const auto volumes = Upload(Build(BoundingVolume::kDop6, bodies));
  PALPATE_TEST_ASSIGN(const std::optional<uint32_t> none, principal.Find(queue(), volumes, bodies.count()));
  EXPECT_FALSE(none.has_value());
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto bad = Upload(std::vector<float>{0, 0, 0, 1, 1, 1, nan, 0, 0, 1, 1, 1});
  PALPATE_TEST_ASSIGN(const std::optional<uint32_t> not_finite, principal.Find(queue(), bad, 2));
  EXPECT_FALSE(not_finite.has_value());
}

}  // namespace
}  // namespace palpate::gpu::kdop_test
