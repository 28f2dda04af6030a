#include "gpu/dynamics/shape_matching.h"

#include <Eigen/Core>
#include <Eigen/Geometry>
#include <Eigen/SVD>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gpu/runtime/kernel_source.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::kernels {
extern const KernelSource matching_probe;
}  // namespace palpate::gpu::kernels

namespace palpate::gpu::shape_matching_test {
namespace {

using Eigen::Matrix3d;
using Eigen::Quaterniond;
using Eigen::Vector3d;

Vector3d ToVector(const Float4& v) { return {v.x, v.y, v.z}; }
Float4 ToFloat4(const Vector3d& v, double w = 0) {
  return {static_cast<float>(v.x()), static_cast<float>(v.y()), static_cast<float>(v.z()), static_cast<float>(w)};
}
Quaterniond ToQuaternion(const Float4& q) { return Quaterniond(q.w, q.x, q.y, q.z); }

class ShapeMatchingTest : public test::DeviceTest {
 protected:
  struct Svd {
    Matrix3d scaled, turned;
    Quaterniond rotation;
    uint32_t rank = 0;
    bool converged = false;
  };

  std::vector<Svd> Decompose(const std::vector<Matrix3d>& matrices) {
    std::vector<Float4> columns;
    for (const Matrix3d& m : matrices) {
      for (int i = 0; i < 3; ++i) columns.push_back(ToFloat4(m.col(i)));
    }
    const auto d_columns = Upload(columns);
    const auto scaled = Allocate<Float4>(columns.size());
    const auto turned = Allocate<Float4>(columns.size());
    const auto rotations = Allocate<Float4>(matrices.size());
    const auto outcome = Allocate<UInt2>(matrices.size());
    auto kernel = context()->CreateKernel(kernels::matching_probe, "probe_svd");
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    PALPATE_EXPECT_OK(queue().Launch(*kernel, {matrices.size(), 0}, Arg("count", static_cast<uint32_t>(matrices.size())),
                                     Arg("matrices", d_columns), Arg("scaled", scaled), Arg("turned", turned), Arg("rotations", rotations),
                                     Arg("outcome", outcome)));
    const auto s = Download(scaled);
    const auto t = Download(turned);
    const auto r = Download(rotations);
    const auto o = Download(outcome);
    std::vector<Svd> results(matrices.size());
    for (size_t i = 0; i < matrices.size(); ++i) {
      for (int c = 0; c < 3; ++c) {
        results[i].scaled.col(c) = ToVector(s[3 * i + c]);
        results[i].turned.col(c) = ToVector(t[3 * i + c]);
      }
      results[i].rotation = ToQuaternion(r[i]);
      results[i].rank = o[i].x;
      results[i].converged = o[i].y != 0;
    }
    return results;
  }

  Matrix3d RandomMatrix() {
    std::normal_distribution<double> normal;
    Matrix3d m;
    for (int i = 0; i < 9; ++i) m(i) = normal(random_);
    return m;
  }
  Quaterniond RandomRotation() {
    std::normal_distribution<double> normal;
    return Quaterniond(normal(random_), normal(random_), normal(random_), normal(random_)).normalized();
  }
  Vector3d RandomVector() { return RandomMatrix().col(0); }

  // The rotation of largest trace(R^T A), by Eigen in double.
  static Matrix3d Reference(const Matrix3d& a) {
    const Eigen::JacobiSVD<Matrix3d> svd(a, Eigen::ComputeFullU | Eigen::ComputeFullV);
    Matrix3d flip = Matrix3d::Identity();
    flip(2, 2) = (svd.matrixU() * svd.matrixV().transpose()).determinant();
    return svd.matrixU() * flip * svd.matrixV().transpose();
  }

  std::mt19937_64 random_{7};
};

// The example of Amaral 2021, figure 4.2.
TEST_F(ShapeMatchingTest, GivesThePublishedEigenvectorsOfAKnownMatrix) {
  Matrix3d m;
  m << 4, 2, 0, 2, 5, 3, 0, 3, 6;
  const Svd svd = Decompose({m})[0];
  const double values[3] = {8.9089, 4.6395, 1.4516};
  const Vector3d vectors[3] = {{0.27285, 0.6697, 0.69069}, {0.79072, 0.25284, -0.55753}, {-0.54801, 0.69826, -0.46056}};
  for (int i = 0; i < 3; ++i) {
    EXPECT_NEAR(svd.scaled.col(i).norm(), values[i], 1e-3);
    const double sign = svd.turned.col(i).dot(vectors[i]) < 0 ? -1 : 1;
    EXPECT_LT((sign * svd.turned.col(i) - vectors[i]).cwiseAbs().maxCoeff(), 1e-3);
    EXPECT_LT((m * svd.turned.col(i) - svd.scaled.col(i).norm() * svd.turned.col(i)).cwiseAbs().maxCoeff(), 5e-6);
  }
  EXPECT_EQ(svd.rank, 3U);
}

TEST_F(ShapeMatchingTest, DecompositionIsOneForAnyMatrix) {
  std::vector<Matrix3d> matrices = {Matrix3d::Zero(), Matrix3d::Identity(), -Matrix3d::Identity(), Matrix3d::Ones()};
  for (int i = 0; i < 2000; ++i) {
    Matrix3d m = RandomMatrix();
    if (i % 4 == 1) m.col(i % 3) *= 1e-4;
    if (i % 4 == 2) m = RandomVector() * RandomVector().transpose() + 1e-6 * m;
    if (i % 4 == 3) m *= std::pow(10.0, i % 31 - 15);
    matrices.push_back(m.cast<float>().cast<double>());
  }
  const std::vector<Svd> results = Decompose(matrices);
  for (size_t i = 0; i < matrices.size(); ++i) {
    const Svd& svd = results[i];
    const double size = std::max(matrices[i].norm(), 1e-30);
    ASSERT_TRUE(svd.converged) << i;
    ASSERT_LT((svd.turned.transpose() * svd.turned - Matrix3d::Identity()).norm(), 5e-6) << i;
    ASSERT_NEAR(svd.turned.determinant(), 1, 5e-6) << i;
    ASSERT_LT((svd.scaled * svd.turned.transpose() - matrices[i]).norm(), 3e-6 * size) << i;
    ASSERT_GE(svd.scaled.col(0).norm() * 1.00001, svd.scaled.col(1).norm()) << i;
    ASSERT_GE(svd.scaled.col(1).norm() * 1.00001, svd.scaled.col(2).norm()) << i;
    const Eigen::JacobiSVD<Matrix3d> reference(matrices[i]);
    for (int c = 0; c < 3; ++c) ASSERT_NEAR(svd.scaled.col(c).norm(), reference.singularValues()(c), 3e-6 * size) << i;
    ASSERT_NEAR(svd.rotation.norm(), 1, 1e-6) << i;
  }
}

TEST_F(ShapeMatchingTest, RotationEqualsEigens) {
  std::vector<Matrix3d> matrices;
  for (int i = 0; i < 3000; ++i) {
    Matrix3d m = RandomMatrix();  // half of them mirror
    if (i % 3 == 1) m = (RandomRotation().toRotationMatrix() * Vector3d(1, 0.9, 1e-3 * (i % 2 == 0 ? 1 : -1)).asDiagonal()).eval();
    matrices.push_back(m.cast<float>().cast<double>());
  }
  const std::vector<Svd> results = Decompose(matrices);
  int mirrored = 0;
  for (size_t i = 0; i < matrices.size(); ++i) {
    const Matrix3d r = results[i].rotation.toRotationMatrix();
    ASSERT_NEAR(r.determinant(), 1, 1e-5) << i;
    // How sharply A determines R: the sum of the two smallest singular values, with the sign of det A on the smallest.
    const Eigen::JacobiSVD<Matrix3d> svd(matrices[i]);
    const double sign = matrices[i].determinant() < 0 ? -1 : 1;
    const double sharpness = (svd.singularValues()(1) + sign * svd.singularValues()(2)) / svd.singularValues()(0);
    mirrored += sign < 0 ? 1 : 0;
    if (sharpness < 1e-3) continue;
    ASSERT_LT((r - Reference(matrices[i])).norm(), 3e-6 / std::min(sharpness, 1.0)) << i;
  }
  EXPECT_GT(mirrored, 500);
}

TEST_F(ShapeMatchingTest, IncompleteMatricesTurnAsLittleAsPossible) {
  std::vector<Matrix3d> matrices;
  std::vector<Vector3d> from, to;
  for (int i = 0; i < 200; ++i) {
    Vector3d p = RandomVector().normalized();
    const Vector3d q = RandomVector().normalized();
    if (i % 10 == 0) p = q;
    if (i % 10 == 1) p = -q;
    from.push_back(q);
    to.push_back(p);
    matrices.emplace_back(p * q.transpose() * 3.0);
  }
  const std::vector<Svd> results = Decompose(matrices);
  for (size_t i = 0; i < matrices.size(); ++i) {
    ASSERT_EQ(results[i].rank, 1U) << i;
    ASSERT_LT((results[i].rotation * from[i] - to[i]).norm(), 3e-6) << i;
    const double angle = 2 * std::acos(std::min(1.0, std::abs(results[i].rotation.w())));
    ASSERT_NEAR(angle, std::acos(std::clamp(from[i].dot(to[i]), -1.0, 1.0)), 2e-3) << i;
  }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<Svd> odd = Decompose({Matrix3d::Zero(), Matrix3d::Constant(nan), Vector3d(infinity, 1, 1).asDiagonal()});
  for (const Svd& svd : odd) {
    EXPECT_EQ(svd.rank, 0U);
    EXPECT_EQ(svd.rotation.coeffs(), Quaterniond::Identity().coeffs());
  }
  EXPECT_TRUE(odd[0].converged);
  EXPECT_FALSE(odd[1].converged);
  EXPECT_FALSE(odd[2].converged);
}

TEST_F(ShapeMatchingTest, QuaternionsAgreeWithEigen) {
  std::vector<Float4> vectors = {{0, 0, 0, 0}, {1e-7F, 0, 0, 0}, {0, 3e-4F, 0, 0}, {0, 0, 3.14F, 0}};
  for (int i = 0; i < 200; ++i) vectors.push_back(ToFloat4(RandomVector().normalized() * (3.1 * (i + 1) / 200)));
  const auto d_vectors = Upload(vectors);
  const auto logs = Allocate<Float4>(vectors.size());
  const auto products = Allocate<Float4>(vectors.size());
  PALPATE_TEST_ASSIGN(Kernel kernel, context()->CreateKernel(kernels::matching_probe, "probe_quaternions"));
  PALPATE_ASSERT_OK(queue().Launch(kernel, {vectors.size(), 0}, Arg("count", static_cast<uint32_t>(vectors.size())),
                                   Arg("vectors", d_vectors), Arg("logs", logs), Arg("products", products)));
  const auto log_values = Download(logs);
  const auto product_values = Download(products);
  const auto rotation = [](const Float4& v) {
    const Vector3d w = ToVector(v);
    return w.norm() > 0 ? Quaterniond(Eigen::AngleAxisd(w.norm(), w.normalized())) : Quaterniond::Identity();
  };
  for (size_t i = 0; i < vectors.size(); ++i) {
    ASSERT_LT((ToVector(log_values[i]) - ToVector(vectors[i])).norm(), 1e-5) << i;
    ASSERT_NEAR(log_values[i].w, 1, 1e-6) << i;
    const Quaterniond other = rotation(vectors[(i + 1) % vectors.size()]);
    const Quaterniond product = other * rotation(vectors[i]) * other.conjugate();
    ASSERT_LT((ToVector(product_values[i]) - product * Vector3d::UnitX()).norm(), 5e-6) << i;
  }
}

TEST_F(ShapeMatchingTest, FindsTheMotionOfPointSets) {
  struct Set {
    std::string name;
    uint32_t rank;
    std::vector<Vector3d> points;
  };
  std::vector<Set> sets;
  for (int i = 0; i < 40; ++i) {
    Set solid = {"solid", 3, {}}, flat = {"flat", 2, {}}, straight = {"straight", 1, {}};
    for (int k = 0; k < 4 + i; ++k) {
      const Vector3d p = RandomVector();
      solid.points.push_back(p);
      flat.points.emplace_back(p.x(), p.y(), 0);
      straight.points.emplace_back(p.x(), 0, 0);
    }
    sets.insert(sets.end(), {solid, flat, straight, Set{"point", 0, {RandomVector()}},
                             Set{"equal points", 0, std::vector<Vector3d>(3, Vector3d(1, 2, 3))}});
  }
  std::vector<uint32_t> begins = {0};
  std::vector<Float4> rest, current;
  std::vector<Quaterniond> rotations;
  for (const Set& set : sets) {
    const Quaterniond place = RandomRotation();
    const Quaterniond q = RandomRotation();
    const Vector3d offset = 5 * RandomVector();
    for (const Vector3d& p : set.points) {
      const Vector3d at = place * p;
      rest.push_back(ToFloat4(at, 0.5 + (rest.size() % 3)));
      current.push_back(ToFloat4(q * at + offset));
    }
    begins.push_back(static_cast<uint32_t>(rest.size()));
    rotations.push_back(q);
  }
  begins.push_back(begins.back());  // an empty set
  const uint32_t set_count = static_cast<uint32_t>(sets.size()) + 1;
  PALPATE_TEST_ASSIGN(ShapeMatching matching, ShapeMatching::Create(context()));
  const auto d_begins = Upload(begins);
  const auto d_rest = Upload(rest);
  const auto d_current = Upload(current);
  const auto matches = Allocate<ShapeMatch>(set_count);
  const auto goals = Allocate<Float4>(rest.size());
  PALPATE_ASSERT_OK(matching.Run(queue(), d_begins, set_count, d_rest, d_current, matches, goals));
  const auto match = Download(matches);
  const auto goal = Download(goals);
  for (size_t s = 0; s < sets.size(); ++s) {
    const std::string where = sets[s].name + " " + std::to_string(s);
    ASSERT_EQ(match[s].rank, sets[s].rank) << where;
    ASSERT_EQ(match[s].converged, 1U) << where;
    if (sets[s].rank >= 2) {
      ASSERT_LT((ToQuaternion(match[s].rotation).toRotationMatrix() - rotations[s].toRotationMatrix()).norm(), 3e-5) << where;
    }
    for (uint32_t i = begins[s]; i < begins[s + 1]; ++i) {
      ASSERT_LT((ToVector(goal[i]) - ToVector(current[i])).norm(), 2e-5) << where;  // what was moved rigidly is found exactly
    }
  }
  EXPECT_EQ(match.back().rank, 0U);
  EXPECT_EQ(match.back().rotation.w, 1);
  EXPECT_TRUE(absl::IsInvalidArgument(matching.Run(queue(), d_begins, set_count + 1, d_rest, d_current, matches, goals)));
}

TEST_F(ShapeMatchingTest, GoalsOfDeformedAndMirroredSetsAreRigidAndBest) {
  std::vector<uint32_t> begins = {0};
  std::vector<Float4> rest, current;
  for (int s = 0; s < 60; ++s) {
    const Quaterniond q = RandomRotation();
    for (int k = 0; k < 12; ++k) {
      const Vector3d p = RandomVector();
      Vector3d moved = q * p + 0.3 * RandomVector();
      if (s % 3 == 2) moved.x() = -moved.x();  // turned inside out
      rest.push_back(ToFloat4(p, 1));
      current.push_back(ToFloat4(moved));
    }
    begins.push_back(static_cast<uint32_t>(rest.size()));
  }
  PALPATE_TEST_ASSIGN(ShapeMatching matching, ShapeMatching::Create(context()));
  const auto d_begins = Upload(begins);
  const auto d_rest = Upload(rest);
  const auto d_current = Upload(current);
  const auto matches = Allocate<ShapeMatch>(60);
  const auto goals = Allocate<Float4>(rest.size());
  PALPATE_ASSERT_OK(matching.Run(queue(), d_begins, 60, d_rest, d_current, matches, goals));
  const auto match = Download(matches);
  const auto goal = Download(goals);
  for (size_t s = 0; s < 60; ++s) {
    const uint32_t begin = begins[s];
    for (uint32_t i = begin; i < begin + 12; ++i) {
      for (uint32_t j = begin; j < i; ++j) {
        ASSERT_NEAR((ToVector(goal[i]) - ToVector(goal[j])).norm(), (ToVector(rest[i]) - ToVector(rest[j])).norm(), 1e-5) << s;
      }
    }
    Vector3d p0 = Vector3d::Zero(), q0 = Vector3d::Zero();
    for (uint32_t i = begin; i < begin + 12; ++i) {
      p0 += ToVector(current[i]) / 12;
      q0 += ToVector(rest[i]) / 12;
    }
    Matrix3d a = Matrix3d::Zero();
    for (uint32_t i = begin; i < begin + 12; ++i) a += (ToVector(current[i]) - p0) * (ToVector(rest[i]) - q0).transpose();
    const Matrix3d r = ToQuaternion(match[s].rotation).toRotationMatrix();
    ASSERT_GE((r.transpose() * a).trace(), (Reference(a).transpose() * a).trace() - 1e-4) << s;
    ASSERT_LT((ToVector(match[s].center) - p0).norm(), 1e-5) << s;
    ASSERT_LT((ToVector(match[s].rest_center) - q0).norm(), 1e-5) << s;
  }
}

}  // namespace
}  // namespace palpate::gpu::shape_matching_test
