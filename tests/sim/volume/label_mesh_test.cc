#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <numbers>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sim/mesh/label_mesher.h"
#include "sim/mesh/surface_check.h"
#include "sim/volume/label_overlap.h"
#include "sim/volume/label_volume.h"
#include "sim/volume/voxel_field.h"
#include "tests/sim/mesher/mesh_probe.h"

namespace palpate::sim::label_mesh_test {
namespace {

using Eigen::Vector3d;
using ::testing::HasSubstr;
using Shape3 = std::function<int(const Vector3d& x_m)>;

constexpr double kVoxel_m = 0.001;

LabelVolume Voxels(std::array<uint32_t, 3> size, const Vector3d& spacing_m, const Shape3& shape) {
  LabelVolume volume;
  volume.size = size;
  volume.spacing_m = spacing_m;
  volume.voxels.reserve(volume.voxel_count());
  for (uint32_t k = 0; k < size[2]; ++k) {
    for (uint32_t j = 0; j < size[1]; ++j) {
      for (uint32_t i = 0; i < size[0]; ++i) {
        volume.voxels.push_back(static_cast<uint16_t>(shape(Vector3d(i, j, k).cwiseProduct(spacing_m))));
      }
    }
  }
  return volume;
}

bool InBall(const Vector3d& x, const Vector3d& center, double radius) { return (x - center).norm() < radius; }

struct Made {
  LabelMesh mesh;
  std::vector<uint16_t> labels;
  std::vector<LabelSummary> voxels;
};

// Meshes all labels. The last edge length is that of all further labels.
absl::StatusOr<Made> Make(const LabelVolume& volume, std::vector<double> edges_m, int passes = 6) {
  Made out;
  LabelMesherOptions options;
  out.voxels = SummarizeLabels(volume);
  for (const LabelSummary& label : out.voxels) {
    out.labels.push_back(label.label);
    options.volume_m3.push_back(label.volume_m3);
  }
  edges_m.resize(out.labels.size(), edges_m.back());
  options.edge_length_m = edges_m;
  PALPATE_ASSIGN_OR_RETURN(const auto field, VoxelField::Create(volume, out.labels, passes));
  PALPATE_ASSIGN_OR_RETURN(out.mesh, MeshLabels(*field, options));
  return out;
}

// What holds of every mesh.
void ExpectSound(const LabelMesh& made) {
  const absl::Status valid = ValidateTetMesh(made.mesh);
  EXPECT_TRUE(valid.ok()) << valid;
  const AngleRange angles = DihedralAngles(made.mesh);
  EXPECT_GE(angles.min_deg, kStuffingMinDihedralDeg);
  EXPECT_LE(angles.max_deg, kStuffingMaxDihedralDeg);
  const Shape shape = Measure(made.mesh);
  EXPECT_EQ(shape.crowded_faces + shape.bad_edges + shape.bad_vertices + shape.loose_vertices, 0U);
  EXPECT_NEAR(shape.tet_volume_m3, shape.enclosed_volume_m3, 1e-9 * shape.tet_volume_m3) << "tets overlap or leave gaps";
  const absl::Status closed = CheckClosedSurface(BoundaryOf(made.mesh));
  EXPECT_TRUE(closed.ok()) << closed;
  ASSERT_EQ(made.labels.size(), made.mesh.tets.size());
}

void ExpectVolumes(const Made& made, double relative) {
  for (size_t i = 0; i < made.labels.size(); ++i) {
    double volume_m3 = 0;
    for (size_t t = 0; t < made.mesh.labels.size(); ++t) {
      if (made.mesh.labels[t] == i + 1) volume_m3 += TetVolume(made.mesh.mesh, t);
    }
    EXPECT_NEAR(volume_m3, made.voxels[i].volume_m3, relative * made.voxels[i].volume_m3) << "label " << made.labels[i];
    EXPECT_NEAR(volume_m3, made.mesh.outcomes[i].volume_m3, 1e-9 * volume_m3);
  }
}

// Triangles between two labels (0: outside) with the label of greater number behind them.
std::vector<std::array<Vector3d, 3>> Interface(const LabelMesh& made, uint32_t first, uint32_t second) {
  std::map<std::array<uint32_t, 3>, std::vector<std::pair<uint32_t, std::array<uint32_t, 3>>>> faces;
  for (size_t t = 0; t < made.mesh.tets.size(); ++t) {
    const auto& v = made.mesh.tets[t];
    for (const auto& face :
         {std::array{v[1], v[2], v[3]}, std::array{v[0], v[3], v[2]}, std::array{v[0], v[1], v[3]}, std::array{v[0], v[2], v[1]}}) {
      auto key = face;
      std::sort(key.begin(), key.end());
      faces[key].push_back({made.labels[t], face});
    }
  }
  std::vector<std::array<Vector3d, 3>> out;
  for (auto& [key, sides] : faces) {
    if (sides.size() == 1) sides.push_back({0, sides[0].second});
    if (sides[0].first > sides[1].first) std::swap(sides[0], sides[1]);
    if (sides[0].first != std::min(first, second) || sides[1].first != std::max(first, second)) continue;
    const auto& corner = sides[1].second;
    out.push_back({made.mesh.vertices[corner[0]], made.mesh.vertices[corner[1]], made.mesh.vertices[corner[2]]});
  }
  return out;
}

struct Roughness {
  double rms_m = 0;
  double max_m = 0;
  double normal_rms_deg = 0;
  double normal_max_deg = 0;
};

// Distances of corners, and angles of normals, from a surface given by its signed distance and the direction of its normal.
Roughness Measure(const std::vector<std::array<Vector3d, 3>>& triangles, const std::function<double(const Vector3d&)>& distance_m,
                  const std::function<Vector3d(const Vector3d&)>& normal) {
  Roughness out;
  double area_m2 = 0;
  for (const auto& [a, b, c] : triangles) {
    const Vector3d n = (b - a).cross(c - a);
    const double cosine = std::abs(n.normalized().dot(normal((a + b + c) / 3)));
    const double angle_deg = std::acos(std::min(1.0, cosine)) * 180 / std::numbers::pi;
    out.normal_rms_deg += n.norm() * angle_deg * angle_deg;
    out.normal_max_deg = std::max(out.normal_max_deg, angle_deg);
    area_m2 += n.norm();
    for (const Vector3d& x : {a, b, c}) {
      out.rms_m += distance_m(x) * distance_m(x) / (3 * static_cast<double>(triangles.size()));
      out.max_m = std::max(out.max_m, std::abs(distance_m(x)));
    }
  }
  out.normal_rms_deg = std::sqrt(out.normal_rms_deg / area_m2);
  out.rms_m = std::sqrt(out.rms_m);
  return out;
}

Roughness AgainstBall(const std::vector<std::array<Vector3d, 3>>& triangles, const Vector3d& center, double radius) {
  return Measure(
      triangles, [&](const Vector3d& x) { return (x - center).norm() - radius; },
      [&](const Vector3d& x) { return Vector3d((x - center).normalized()); });
}

const Vector3d kMiddle(0.03, 0.03, 0.03);

LabelVolume BallInBall(double inner_m, std::array<uint32_t, 3> size = {60, 60, 60},
                       const Vector3d& spacing_m = Vector3d::Constant(kVoxel_m)) {
  return Voxels(size, spacing_m, [=](const Vector3d& x) { return InBall(x, kMiddle, inner_m) ? 7 : InBall(x, kMiddle, 0.022) ? 3 : 0; });
}

TEST(LabelMeshTest, BallInBallIsRoundInsideAndOutside) {
  const auto made = Make(BallInBall(0.012), {0.002});
  ASSERT_TRUE(made.ok()) << made.status();
  ExpectSound(made->mesh);
  ExpectVolumes(*made, 0.002);
  EXPECT_EQ(made->mesh.part_count, 1U);
  for (const auto& outcome : made->mesh.outcomes) EXPECT_EQ(outcome.part_count, 1U);
  const Roughness outside = AgainstBall(Interface(made->mesh, 1, 0), kMiddle, 0.022);
  const Roughness inside = AgainstBall(Interface(made->mesh, 1, 2), kMiddle, 0.012);
  EXPECT_TRUE(Interface(made->mesh, 2, 0).empty());
  for (const Roughness& surface : {outside, inside}) {
    // steps of voxels would be half a voxel and 45 degrees
    EXPECT_LT(surface.rms_m, 0.1 * kVoxel_m);
    EXPECT_LT(surface.max_m, 0.5 * kVoxel_m);
  }
  EXPECT_LT(outside.normal_rms_deg, 3);
  EXPECT_LT(outside.normal_max_deg, 10);
  EXPECT_LT(inside.normal_rms_deg, 5);
  EXPECT_LT(inside.normal_max_deg, 20);
}

TEST(LabelMeshTest, EdgeLengthsAreThoseOfEachLabel) {
  const LabelVolume volume = BallInBall(0.008);
  const auto made = Make(volume, {0.005, 0.0015});
  ASSERT_TRUE(made.ok()) << made.status();
  ExpectSound(made->mesh);
  ExpectVolumes(*made, 0.005);
  EXPECT_DOUBLE_EQ(made->mesh.outcomes[0].edge_length_m, 0.003) << "the next below 5 mm that is a power of two times 1.5 mm";
  EXPECT_DOUBLE_EQ(made->mesh.outcomes[1].edge_length_m, 0.0015);
  std::array<double, 2> longest_m{};
  for (size_t t = 0; t < made->mesh.labels.size(); ++t) {
    const auto& tet = made->mesh.mesh.tets[t];
    for (int i = 0; i < 4; ++i) {
      for (int j = 0; j < i; ++j) {
        double& length_m = longest_m[made->mesh.labels[t] - 1];
        length_m = std::max(length_m, (made->mesh.mesh.vertices[tet[i]] - made->mesh.mesh.vertices[tet[j]]).norm());
      }
    }
  }
  EXPECT_LT(longest_m[0], 1.5 * 0.003);
  EXPECT_GT(longest_m[0], 0.003) << "not fine everywhere";
  EXPECT_LT(longest_m[1], 1.5 * 0.0015);
  EXPECT_LT(AgainstBall(Interface(made->mesh, 1, 2), kMiddle, 0.008).rms_m, 0.15 * kVoxel_m);
}

TEST(LabelMeshTest, TouchingBallsShareTheFacesBetweenThem) {
  const Vector3d left(0.022, 0.03, 0.03);
  const Vector3d right(0.045, 0.03, 0.03);
  const auto made = Make(Voxels({70, 60, 60}, Vector3d::Constant(kVoxel_m),
                                [&](const Vector3d& x) { return InBall(x, left, 0.016)    ? 1
                                                                : InBall(x, right, 0.018) ? 2
                                                                                          : 0; }),
                         {0.003});
  ASSERT_TRUE(made.ok()) << made.status();
  ExpectSound(made->mesh);
  ExpectVolumes(*made, 0.005);
  EXPECT_EQ(made->mesh.part_count, 1U);
  const auto between = Interface(made->mesh, 1, 2);
  EXPECT_GT(between.size(), 50U);
  // the first ball won the lens
  EXPECT_LT(AgainstBall(between, left, 0.016).rms_m, 0.3 * kVoxel_m);
}

TEST(LabelMeshTest, MeshesATorusInASlabAndFourLabelsAtAPoint) {
  const auto torus = Make(Voxels({80, 80, 40}, Vector3d::Constant(kVoxel_m),
                                 [](const Vector3d& x) {
                                   const Vector3d d = x - Vector3d(0.04, 0.04, 0.02);
                                   if (std::hypot(std::hypot(d[0], d[1]) - 0.024, d[2]) < 0.009) return 1;
                                   return std::abs(d[2]) < 0.004 && std::abs(d[0]) < 0.038 && std::abs(d[1]) < 0.038 ? 2 : 0;
                                 }),
                          {0.003});
  ASSERT_TRUE(torus.ok()) << torus.status();
  ExpectSound(torus->mesh);
  ExpectVolumes(*torus, 0.005);
  EXPECT_EQ(torus->mesh.outcomes[0].part_count, 1U);
  EXPECT_EQ(torus->mesh.outcomes[1].part_count, 2U) << "the slab within the ring and around it";
  const Roughness tube = Measure(
      Interface(torus->mesh, 1, 2),
      [](const Vector3d& x) { return std::hypot(std::hypot(x[0] - 0.04, x[1] - 0.04) - 0.024, x[2] - 0.02) - 0.009; },
      [](const Vector3d& x) {
        const Vector3d d = x - Vector3d(0.04, 0.04, 0.02);
        const Vector3d ring = 0.024 * Vector3d(d[0], d[1], 0).normalized();
        return Vector3d((d - ring).normalized());
      });
  EXPECT_LT(tube.rms_m, 0.5 * kVoxel_m);

  const auto quarters = Make(Voxels({60, 60, 60}, Vector3d::Constant(kVoxel_m),
                                    [](const Vector3d& x) {
                                      if (!InBall(x, kMiddle, 0.025)) return 0;
                                      return x[2] < 0.03 ? 1 : x[0] < 0.03 ? 2 : x[1] < 0.0315 ? 3 : 4;
                                    }),
                             {0.004});
  ASSERT_TRUE(quarters.ok()) << quarters.status();
  ExpectSound(quarters->mesh);
  ExpectVolumes(*quarters, 0.01);
  EXPECT_EQ(quarters->mesh.part_count, 1U);
  const Roughness flat = Measure(
      Interface(quarters->mesh, 1, 2), [](const Vector3d& x) { return x[2] - 0.0295; }, [](const Vector3d&) { return Vector3d(0, 0, 1); });
  EXPECT_LT(flat.rms_m, 0.3 * kVoxel_m);
}

// A plane of slope 1 : 6 in voxels is a staircase with long treads.
TEST(LabelMeshTest, SlantedPlanesHaveNoSteps) {
  const Vector3d normal = Vector3d(-1, -0.5, 6).normalized();
  const auto distance_m = [&](const Vector3d& x) { return normal.dot(x - Vector3d(0.02, 0.02, 0.0203)); };
  const auto made =
      Make(Voxels({40, 40, 40}, Vector3d::Constant(kVoxel_m), [&](const Vector3d& x) { return distance_m(x) < 0 ? 1 : 2; }), {0.002}, 12);
  ASSERT_TRUE(made.ok()) << made.status();
  ExpectSound(made->mesh);
  ExpectVolumes(*made, 0.002);
  std::vector<std::array<Vector3d, 3>> inner;
  for (const auto& triangle : Interface(made->mesh, 1, 2)) {
    const Vector3d x = (triangle[0] + triangle[1] + triangle[2]) / 3;
    if ((x - Vector3d(0.02, 0.02, 0.02)).head<2>().cwiseAbs().maxCoeff() < 0.015) inner.push_back(triangle);
  }
  const Roughness plane = Measure(inner, distance_m, [&](const Vector3d&) { return normal; });
  EXPECT_LT(plane.rms_m, 0.25 * kVoxel_m);
  EXPECT_LT(plane.max_m, 0.5 * kVoxel_m);
  EXPECT_LT(plane.normal_rms_deg, 6) << "steps of 9.6 and 90 degrees would be 30";
}

TEST(LabelMeshTest, ThickSlicesAreFine) {
  const auto made = Make(BallInBall(0.012, {60, 60, 20}, Vector3d(0.001, 0.001, 0.003)), {0.003});
  ASSERT_TRUE(made.ok()) << made.status();
  ExpectSound(made->mesh);
  ExpectVolumes(*made, 0.005);
  const Roughness outside = AgainstBall(Interface(made->mesh, 1, 0), kMiddle, 0.022);
  EXPECT_LT(outside.rms_m, 0.5 * kVoxel_m);
  EXPECT_LT(outside.max_m, 1.5 * kVoxel_m) << "half a slice";
}

TEST(LabelMeshTest, WhatTheVolumeCutsOffIsClosed) {
  const auto made =
      Make(Voxels({30, 30, 30}, Vector3d::Constant(kVoxel_m), [](const Vector3d& x) { return x[0] < 0.0145 ? 1 : 2; }), {0.003});
  ASSERT_TRUE(made.ok()) << made.status();
  ExpectSound(made->mesh);
  ExpectVolumes(*made, 0.005);
  Eigen::AlignedBox3d bounds;
  for (const Vector3d& x : made->mesh.mesh.vertices) bounds.extend(x);
  EXPECT_TRUE(bounds.min().isApproxToConstant(-0.0005, 0.5)) << bounds.min().transpose();
  EXPECT_NEAR(bounds.max().minCoeff(), 0.0295, 0.0005) << "half a voxel beyond the last centres";
}

TEST(LabelMeshTest, NoiseOfManyLabelsStaysSound) {
  for (const uint32_t seed : {1U, 2U, 3U}) {
    std::mt19937 random(seed);
    const LabelVolume volume =
        Voxels({18, 18, 18}, Vector3d::Constant(kVoxel_m), [&](const Vector3d&) { return static_cast<int>(random() % 5); });
    for (const double edge_m : {0.0015, 0.003}) {
      const auto made = Make(volume, {edge_m, 2 * edge_m, edge_m}, static_cast<int>(seed));
      ASSERT_TRUE(made.ok()) << made.status();
      ExpectSound(made->mesh);
    }
  }
}

TEST(LabelMeshTest, PartsAndLossesAreTold) {
  const LabelVolume volume = Voxels({60, 40, 40}, Vector3d::Constant(kVoxel_m), [](const Vector3d& x) {
    if (x == Vector3d(0.03, 0.02, 0.02)) return 9;
    return InBall(x, Vector3d(0.014, 0.02, 0.02), 0.01) || InBall(x, Vector3d(0.045, 0.02, 0.02), 0.01) ? 1 : 0;
  });
  const auto made = Make(volume, {0.004});
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_EQ(made->voxels.size(), 2U);
  EXPECT_EQ(made->voxels[0].part_count, 2U);
  EXPECT_EQ(made->voxels[1].voxel_count, 1U);
  EXPECT_DOUBLE_EQ(made->voxels[1].volume_m3, 1e-9);
  EXPECT_NEAR(made->voxels[1].thickness_m, 0.001, 1e-9);
  EXPECT_EQ(made->mesh.part_count, 2U);
  EXPECT_EQ(made->mesh.outcomes[0].part_count, 2U);
  EXPECT_EQ(made->mesh.outcomes[1].tet_count, 0U) << "a voxel is too small for this edge length";
  const std::vector<uint64_t> covered = CountCoveredVoxels(volume, made->labels, made->mesh.mesh, made->mesh.labels);
  EXPECT_GT(static_cast<double>(covered[0]), 0.95 * static_cast<double>(made->voxels[0].voxel_count));
  EXPECT_LE(covered[0], made->voxels[0].voxel_count);
  EXPECT_EQ(covered[1], 0U);
}

TEST(LabelMeshTest, SameVoxelsGiveTheSameBits) {
  const LabelVolume volume = BallInBall(0.01);
  const auto first = Make(volume, {0.004, 0.002});
  const auto second = Make(volume, {0.004, 0.002});
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->mesh.mesh.tets, second->mesh.mesh.tets);
  EXPECT_EQ(first->mesh.labels, second->mesh.labels);
  ASSERT_EQ(first->mesh.mesh.vertices.size(), second->mesh.mesh.vertices.size());
  for (size_t v = 0; v < first->mesh.mesh.vertices.size(); ++v) {
    ASSERT_EQ(std::memcmp(first->mesh.mesh.vertices[v].data(), second->mesh.mesh.vertices[v].data(), 3 * sizeof(double)), 0) << v;
  }
}

TEST(LabelMeshTest, LimitsAreNamed) {
  const LabelVolume volume = BallInBall(0.01);
  const auto field = VoxelField::Create(volume, {3, 7}, 4);
  ASSERT_TRUE(field.ok()) << field.status();
  LabelMesherOptions options;
  options.edge_length_m = {0.004};
  EXPECT_THAT(std::string(MeshLabels(**field, options).status().message()), HasSubstr("1 values for 2 labels"));
  options.edge_length_m = {0.004, -1};
  EXPECT_THAT(std::string(MeshLabels(**field, options).status().message()), HasSubstr("-1 must be positive"));
  options.edge_length_m = {0.001, 0.001};
  options.max_tets = 1000;
  const absl::Status many = MeshLabels(**field, options).status();
  EXPECT_EQ(many.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(many.message()), HasSubstr("more than 1000 tets"));
  options.max_tets = 20'000'000;
  options.edge_length_m = {1e-9, 1e-9};
  EXPECT_EQ(MeshLabels(**field, options).status().code(), absl::StatusCode::kResourceExhausted);
  options.edge_length_m = {0.004, 0.004};
  options.progress = [](double) { return false; };
  EXPECT_EQ(MeshLabels(**field, options).status().code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(std::string(VoxelField::Create(volume, {4}, 4).status().message()), HasSubstr("label 4 has no voxels"));
  EXPECT_THAT(std::string(VoxelField::Create(volume, {3}, 201).status().message()), HasSubstr("201 smoothing passes"));
}

}  // namespace
}  // namespace palpate::sim::label_mesh_test
