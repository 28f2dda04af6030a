// extract_rotations of gpu/dynamics/tissue.cl and follow_rotation of rotations.clh against the polar decomposition by Eigen.
#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gpu/dynamics/float4.h"
#include "gpu/runtime/kernel_source.h"
#include "gpu/shared/dynamics_types.h"
#include "gpu/shared/energies.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::kernels {
extern const KernelSource tissue;
extern const KernelSource rotations_probe;
}  // namespace palpate::gpu::kernels

namespace palpate::gpu::rotations_test {
namespace {

using Eigen::Matrix3d;
using Eigen::Quaterniond;
using Eigen::Vector3d;

struct Tet {
  Matrix3d f = Matrix3d::Identity();
  Quaterniond guess = Quaterniond::Identity();
  bool is_free_place = false;
};

class RotationsTest : public test::DeviceTest {
 protected:
  Vector3d RandomVector(double size) {
    std::uniform_real_distribution<double> any(-size, size);
    return {any(random_), any(random_), any(random_)};
  }
  Quaterniond RandomRotation() {
    std::normal_distribution<double> any;
    return Quaterniond(any(random_), any(random_), any(random_), any(random_)).normalized();
  }
  /// Turned by the returned rotation, with these stretches along random axes.
  Tet Stretched(const Vector3d& stretches, double guess_angle, Matrix3d* rotation) {
    const Matrix3d axes = RandomRotation().toRotationMatrix();
    const Quaterniond turn = RandomRotation();
    Tet tet;
    *rotation = turn.toRotationMatrix();
    tet.f = *rotation * axes * stretches.asDiagonal() * axes.transpose();
    tet.guess = Quaterniond(Eigen::AngleAxisd(guess_angle, RandomVector(1).normalized())) * turn;
    return tet;
  }

  /// Each tet has vertices of its own, and the unit tet as its rest shape.
  std::vector<Float4> Extract(const std::vector<Tet>& tets, int lanes) {
    std::vector<Float4> x, rest, rotations;
    std::vector<UInt4> indices;
    for (const Tet& tet : tets) {
      const auto first = static_cast<uint32_t>(x.size());
      x.push_back({0.3F, -0.2F, 0.1F, 0});
      for (int column = 0; column < 3; ++column) {
        const Vector3d place = tet.f.col(column) + Vector3d(0.3, -0.2, 0.1);
        x.push_back({static_cast<float>(place.x()), static_cast<float>(place.y()), static_cast<float>(place.z()), 0});
      }
      rest.insert(rest.end(), {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}});
      indices.push_back({first, first + 1, first + 2, first + 3});
      if (tet.is_free_place) indices.back() = {0xffffffffU, 0xffffffffU, 0xffffffffU, 0xffffffffU};
      const Eigen::Vector4f q = tet.guess.coeffs().cast<float>();
      rotations.push_back({q.x(), q.y(), q.z(), q.w()});
    }
    const ProgramDefines defines = {{"PALPATE_LANES", std::to_string(lanes)},
                                    {"PALPATE_TEAM", "1"},
                                    {"PALPATE_GROUP", "8"},
                                    {"PALPATE_ENERGY_MASK", "2"},
                                    {"PALPATE_FIBERS", "0"},
                                    {"PALPATE_VISCOUS", "0"},
                                    {"PALPATE_SURFACE", "0"},
                                    {"PALPATE_SHAPE", "0"},
                                    {"PALPATE_VOLUME", "0"}};
    auto kernel = context()->CreateKernel(kernels::tissue, "extract_rotations", defines);
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    if (!kernel.ok()) return {};
    StepParams params = {};
    params.tet_count = static_cast<uint32_t>(tets.size());
    const auto out = Upload(rotations);
    const size_t items = (tets.size() + static_cast<size_t>(lanes) - 1) / static_cast<size_t>(lanes);
    PALPATE_EXPECT_OK(queue().Launch(*kernel, {items}, Arg("gate", BufferView<uint32_t>{}),
                                     Arg("p", Upload(std::vector<StepParams>{params})), Arg("x", Upload(x)), Arg("tets", Upload(indices)),
                                     Arg("tet_rest", Upload(rest)), Arg("rotations", out)));
    return Download(out);
  }

  /// One visit of each: rotations that a sweep takes for F, which is that of `tets`. `guesses` are replaced by those found. What else a
  /// visit finds is compared with these.
  std::vector<Matrix3d> Follow(std::vector<Tet>* tets, int lanes) {
    const auto width = static_cast<size_t>(lanes);
    const size_t blocks = (tets->size() + width - 1) / width;
    std::vector<float> gradients(blocks * 9 * width), turns(blocks * 4 * width), found(blocks * 13 * width);
    const auto at = [&](size_t i, size_t parts, size_t k) { return (i / width * parts + k) * width + i % width; };
    for (size_t i = 0; i < blocks * width; ++i) {
      if (i >= tets->size()) {  // padding has no gradient
        turns[at(i, 4, 3)] = 1;
        continue;
      }
      for (size_t k = 0; k < 9; ++k) gradients[at(i, 9, k)] = static_cast<float>((*tets)[i].f(k / 3, k % 3));
      for (size_t k = 0; k < 4; ++k) turns[at(i, 4, k)] = static_cast<float>((*tets)[i].guess.coeffs()[k]);
    }
    auto kernel = context()->CreateKernel(kernels::rotations_probe, "probe_follow", {{"PALPATE_LANES", std::to_string(lanes)}});
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    if (!kernel.ok()) return {};
    const auto device_turns = Upload(turns);
    const auto device_found = Upload(found);
    const Vector3d g(0.3, -0.7, 0.5);
    PALPATE_EXPECT_OK(queue().Launch(*kernel, {blocks}, Arg("block_count", static_cast<uint32_t>(blocks)),
                                     Arg("g", Float4{0.3F, -0.7F, 0.5F, 0}), Arg("gradients", Upload(gradients)),
                                     Arg("turns", device_turns), Arg("found", device_found)));
    turns = Download(device_turns);
    found = Download(device_found);
    std::vector<Matrix3d> rotations(tets->size());
    for (size_t i = 0; i < tets->size(); ++i) {
      for (size_t k = 0; k < 9; ++k) rotations[i](k / 3, k % 3) = found[at(i, 13, k)];
      const Vector3d turned(found[at(i, 13, 9)], found[at(i, 13, 10)], found[at(i, 13, 11)]);
      EXPECT_LT((turned - rotations[i] * g).norm(), 2e-6) << i << " of " << lanes << " lanes";
      const double stretches = (rotations[i].transpose() * (*tets)[i].f).trace();  // to the square of the turn, times the strain
      EXPECT_NEAR(found[at(i, 13, 12)], stretches, 3e-5) << i << " of " << lanes << " lanes";
      for (size_t k = 0; k < 4; ++k) (*tets)[i].guess.coeffs()[k] = turns[at(i, 4, k)];
    }
    return rotations;
  }

  static Matrix3d MatrixOf(const Float4& q) { return Quaterniond(q.w, q.x, q.y, q.z).normalized().toRotationMatrix(); }

  std::mt19937 random_{20};
};

constexpr int kLanes[] = {1, 4, 8, 16};

TEST_F(RotationsTest, AreThoseOfThePolarDecomposition) {
  std::uniform_real_distribution<double> stretch(0.2, 3);
  std::uniform_real_distribution<double> angle(0, 2);
  std::vector<Tet> tets;
  std::vector<Matrix3d> expected;
  for (int i = 0; i < 1003; ++i) {  // no multiple of the lanes
    tets.push_back(
        Stretched({stretch(random_), stretch(random_), stretch(random_)}, i % 4 == 0 ? 1e-3 : angle(random_), &expected.emplace_back()));
  }
  for (const int lanes : kLanes) {
    const std::vector<Float4> found = Extract(tets, lanes);
    ASSERT_EQ(found.size(), tets.size());
    for (size_t i = 0; i < tets.size(); ++i) ASSERT_LT((MatrixOf(found[i]) - expected[i]).norm(), 5e-6) << i << " of " << lanes << " lanes";
  }
}

TEST_F(RotationsTest, OfInvertedAndFlatTetsAreProperAndNearest) {
  // The nearest rotation of an inverted tet turns over the axis of least stretch, if that is clearly the least.
  std::uniform_real_distribution<double> stretch(0.6, 2);
  std::uniform_real_distribution<double> least(-0.3, 0.05);
  std::vector<Tet> tets;
  std::vector<Matrix3d> expected;
  for (int i = 0; i < 500; ++i) {
    const Vector3d stretches(stretch(random_), stretch(random_), i % 5 == 0 ? 0 : least(random_));
    tets.push_back(Stretched(stretches, 0.3, &expected.emplace_back()));
  }
  for (const int lanes : kLanes) {
    const std::vector<Float4> found = Extract(tets, lanes);
    for (size_t i = 0; i < tets.size(); ++i) {
      ASSERT_NEAR(found[i].x * found[i].x + found[i].y * found[i].y + found[i].z * found[i].z + found[i].w * found[i].w, 1, 1e-6) << i;
      ASSERT_LT((MatrixOf(found[i]) - expected[i]).norm(), 2e-5) << i << " of " << lanes << " lanes";
    }
  }
}

// What a tet gets must not depend on which others share its lanes: edits move tets to other places.
TEST_F(RotationsTest, DependOnNoNeighbour) {
  std::uniform_real_distribution<double> stretch(-0.5, 2);
  std::vector<Tet> tets;
  Matrix3d unused;
  for (int i = 0; i < 333; ++i) tets.push_back(Stretched({stretch(random_), stretch(random_), stretch(random_)}, 0.02 * i / 10, &unused));
  std::vector<size_t> order(tets.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::shuffle(order, random_);
  std::vector<Tet> shuffled;
  for (const size_t i : order) shuffled.push_back(tets[i]);
  for (const int lanes : kLanes) {
    const std::vector<Float4> found = Extract(tets, lanes);
    const std::vector<Float4> again = Extract(shuffled, lanes);
    for (size_t i = 0; i < order.size(); ++i) {
      ASSERT_EQ(std::memcmp(&again[i], &found[order[i]], sizeof(Float4)), 0) << order[i] << " of " << lanes << " lanes";
    }
  }
}

// A visit leaves a share of what a tet has turned since the last one: 1 - 3/2 (a + b) / (a + b + c) for two of three stretches.
TEST_F(RotationsTest, OfCornersFollowSmallTurnsVisitByVisit) {
  constexpr double kTurn = 8e-3;
  std::uniform_real_distribution<double> stretch(0.7, 1.4);
  for (const int lanes : kLanes) {
    std::vector<Tet> tets;
    std::vector<Matrix3d> expected;
    for (int i = 0; i < 333; ++i)
      tets.push_back(Stretched({stretch(random_), stretch(random_), stretch(random_)}, 0, &expected.emplace_back()));
    for (int visit = 0; visit < 12; ++visit) {
      const double turn = visit < 4 ? kTurn : 0;  // then they rest
      for (size_t i = 0; i < tets.size(); ++i) {
        const Matrix3d more = Eigen::AngleAxisd(turn, RandomVector(1).normalized()).toRotationMatrix();
        tets[i].f = more * tets[i].f;
        expected[i] = more * expected[i];
      }
      const std::vector<Matrix3d> found = Follow(&tets, lanes);
      ASSERT_EQ(found.size(), tets.size());
      const double bound = std::max(0.7 * kTurn * std::pow(0.35, std::max(0, visit - 3)), 5e-6);
      for (size_t i = 0; i < tets.size(); ++i) {
        ASSERT_LT((found[i] - expected[i]).norm(), bound) << "visit " << visit << ", " << i << " of " << lanes << " lanes";
        ASSERT_LT((found[i].transpose() * found[i] - Matrix3d::Identity()).norm(), 5e-6);
        ASSERT_NEAR(tets[i].guess.norm(), 1, 1e-6);
      }
    }
  }
}

TEST_F(RotationsTest, OfCornersThatTurnedFarOrAreInvertedAreFoundAtOnce) {
  std::uniform_real_distribution<double> stretch(0.6, 2);
  std::uniform_real_distribution<double> least(-0.3, 0.05);
  std::vector<Tet> tets;
  std::vector<Matrix3d> expected;
  for (int i = 0; i < 500; ++i) {
    const bool is_inverted = i % 3 == 0;
    const Vector3d stretches(stretch(random_), stretch(random_), is_inverted ? least(random_) : stretch(random_));
    tets.push_back(Stretched(stretches, is_inverted ? 0.3 : 0.02 + 0.003 * i, &expected.emplace_back()));
  }
  for (const int lanes : kLanes) {
    std::vector<Tet> visited = tets;
    const std::vector<Matrix3d> found = Follow(&visited, lanes);
    for (size_t i = 0; i < tets.size(); ++i) ASSERT_LT((found[i] - expected[i]).norm(), 2e-5) << i << " of " << lanes << " lanes";
  }
}

TEST_F(RotationsTest, OfCornersDependOnNoNeighbour) {
  std::uniform_real_distribution<double> stretch(-0.5, 2);
  std::vector<Tet> tets;
  Matrix3d unused;
  for (int i = 0; i < 333; ++i) {
    tets.push_back(Stretched({stretch(random_), stretch(random_), stretch(random_)}, i % 2 == 0 ? 1e-3 : 0.3, &unused));
  }
  std::vector<size_t> order(tets.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::shuffle(order, random_);
  for (const int lanes : kLanes) {
    std::vector<Tet> visited = tets, shuffled;
    for (const size_t i : order) shuffled.push_back(tets[i]);
    const std::vector<Matrix3d> found = Follow(&visited, lanes);
    const std::vector<Matrix3d> again = Follow(&shuffled, lanes);
    for (size_t i = 0; i < order.size(); ++i) {
      ASSERT_EQ(again[i], found[order[i]]) << lanes << " lanes";
      ASSERT_EQ(shuffled[i].guess.coeffs(), visited[order[i]].guess.coeffs()) << lanes << " lanes";
    }
  }
}

TEST_F(RotationsTest, FreePlacesAndLostRotationsDoNoHarm) {
  std::vector<Tet> tets;
  std::vector<Matrix3d> expected;
  for (int i = 0; i < 50; ++i) {
    tets.push_back(Stretched({0.8, 1.1, 1.3}, 0.1, &expected.emplace_back()));
    tets.back().is_free_place = i % 3 == 0;
    if (i % 7 == 0) tets.back().guess.coeffs().setConstant(std::nan(""));
    // Lost rotations start at the identity.
    if (i % 7 == 0) tets.back().f = (expected.back() = Eigen::AngleAxisd(0.4, Vector3d::UnitY()).toRotationMatrix()) * 1.2;
  }
  for (const int lanes : kLanes) {
    const std::vector<Float4> found = Extract(tets, lanes);
    for (size_t i = 0; i < tets.size(); ++i) {
      if (tets[i].is_free_place) continue;
      ASSERT_LT((MatrixOf(found[i]) - expected[i]).norm(), 5e-6) << i << " of " << lanes << " lanes";
    }
  }
}

}  // namespace
}  // namespace palpate::gpu::rotations_test
