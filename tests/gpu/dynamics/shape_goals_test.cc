#include "gpu/dynamics/shape_goals.h"

#include <gmock/gmock.h>

#include <Eigen/Dense>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gpu/dynamics/tissue_solver.h"
#include "tests/gpu/dynamics/tissue_models.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::shape_goals_test {
namespace {

using Eigen::Matrix3d;
using Eigen::MatrixXd;
using Eigen::Quaterniond;
using Eigen::Vector3d;
using ::testing::HasSubstr;

constexpr TissueShapeMode kModes[] = {TissueShapeMode::kRigid, TissueShapeMode::kLinear, TissueShapeMode::kQuadratic};
const char* Name(TissueShapeMode mode) {
  constexpr const char* kNames[] = {"rigid", "linear", "quadratic"};
  return kNames[static_cast<size_t>(mode)];
}

/// A shape-matched box.
TissueModel ShapedBox(std::array<uint32_t, 3> cells, const Vector3d& size_m, const Vector3d& corner_m, const TissueShape& shape,
                      TestMaterial material = {}) {
  material.energy = TissueEnergy::kShapeMatched;
  TissueModel model = BoxModel(cells, size_m, corner_m, material);
  model.shapes = {shape};
  return model;
}

Vector3d Rest(const TissueModel& model, size_t v) { return {model.rest_m[v][0], model.rest_m[v][1], model.rest_m[v][2]}; }
Vector3d ToVector(const Float4& v) { return {v.x, v.y, v.z}; }
Float4 ToFloat4(const Vector3d& v) { return {static_cast<float>(v.x()), static_cast<float>(v.y()), static_cast<float>(v.z()), 0.0F}; }

/// What the method says, from its definition: means, A = A_pq A_qq^-1 by least squares, R by a singular value decomposition. In double,
/// with positions at rest and stiffnesses of the clusters only.
class Reference {
 public:
  Reference(const TissueModel& model, const ShapeClusters& clusters) : model_(model), clusters_(clusters) {}

  /// Goals of all vertices; those in no cluster stay. *energy: sum over clusters of beta times that of the best deformation and
  /// 1 - beta times that of the best rotation [J].
  std::vector<Vector3d> Goals(const std::vector<Vector3d>& x, double* energy = nullptr) const {
    std::vector<Vector3d> sum(x.size(), Vector3d::Zero());
    std::vector<double> stiffness(x.size(), 0.0);
    if (energy != nullptr) *energy = 0;
    for (const ShapeCluster& cluster : clusters_.clusters) {
      const auto n = static_cast<Eigen::Index>(cluster.end - cluster.begin);
      Eigen::VectorXd k(n);
      MatrixXd now(n, 3), rest(n, 3);
      for (Eigen::Index i = 0; i < n; ++i) {
        const size_t m = cluster.begin + static_cast<size_t>(i);
        k[i] = clusters_.member_linear[m].w;
        now.row(i) = x[clusters_.member_vertex[m]].transpose();
        rest.row(i) = Rest(model_, clusters_.member_vertex[m]).transpose();
      }
      const Eigen::RowVector3d center = k.transpose() * now / k.sum();
      const Eigen::RowVector3d rest_center = k.transpose() * rest / k.sum();
      const MatrixXd p = now.rowwise() - center;
      const MatrixXd q = rest.rowwise() - rest_center;
      const Matrix3d a_pq = p.transpose() * k.asDiagonal() * q;
      const Eigen::JacobiSVD<Matrix3d> svd(a_pq, Eigen::ComputeFullU | Eigen::ComputeFullV);
      Matrix3d flip = Matrix3d::Identity();
      flip(2, 2) = (svd.matrixU() * svd.matrixV().transpose()).determinant();
      const Matrix3d rotation = svd.matrixU() * flip * svd.matrixV().transpose();
      const MatrixXd turned = q * rotation.transpose();
      MatrixXd goal = turned;
      if (cluster.mode != PALPATE_SHAPE_RIGID) {
        const Matrix3d a_qq = q.transpose() * k.asDiagonal() * q;
        const Matrix3d a = a_pq * a_qq.inverse();
        double volume = a.determinant();
        double share = cluster.beta * std::clamp(volume / 0.1, 0.0, 1.0);
        const double scale = cluster.keeps != 0 ? 1 / std::cbrt(std::max(volume, 0.1)) : 1;
        MatrixXd deformed = scale * q * a.transpose();
        if (cluster.mode == PALPATE_SHAPE_QUADRATIC) {
          // Weighted least squares over 1, q and their six products: what the products add to the linear part is theirs.
          MatrixXd terms(n, 10);
          const double unit = 1 / std::sqrt(a_qq.trace() / k.sum());
          for (Eigen::Index i = 0; i < n; ++i) {
            const Vector3d s = unit * q.row(i).transpose();
            terms.row(i) << 1, s.x(), s.y(), s.z(), s.x() * s.x(), s.y() * s.y(), s.z() * s.z(), s.x() * s.y(), s.y() * s.z(),
                s.z() * s.x();
          }
          const Eigen::VectorXd root = k.cwiseSqrt();
          const MatrixXd fit = (root.asDiagonal() * terms).colPivHouseholderQr().solve(root.asDiagonal() * p);
          deformed += terms * fit - q * a.transpose();
        }
        if (energy != nullptr) *energy += share * 0.5 * k.dot((p - deformed).rowwise().squaredNorm());
        goal = share * deformed + (1 - share) * turned;
        if (energy != nullptr) *energy += (1 - share) * 0.5 * k.dot((p - turned).rowwise().squaredNorm());
      } else if (energy != nullptr) {
        *energy += 0.5 * k.dot((p - turned).rowwise().squaredNorm());
      }
      for (Eigen::Index i = 0; i < n; ++i) {
        const size_t v = clusters_.member_vertex[cluster.begin + static_cast<size_t>(i)];
        sum[v] += k[i] * (center + goal.row(i)).transpose();
        stiffness[v] += k[i];
      }
    }
    std::vector<Vector3d> goals = x;
    for (size_t v = 0; v < x.size(); ++v) {
      if (stiffness[v] > 0) goals[v] = sum[v] / stiffness[v];
    }
    return goals;
  }

 private:
  const TissueModel& model_;
  const ShapeClusters& clusters_;
};

class ShapeGoalsTest : public test::DeviceTest {
 protected:
  void Prepare(const TissueModel& model, uint32_t group_size = 1, double dt_s = 0.01) {
    model_ = model;
    std::vector<SolverSlot> order;
    for (const SolverSlot slot : IndexRange<SolverSlot>(model.rest_m.size())) order.push_back(slot);
    PALPATE_TEST_ASSIGN(clusters_, BuildShapeClusters(model_, order, static_cast<uint32_t>(order.size()), dt_s));
    PALPATE_TEST_ASSIGN(goals_, ShapeGoals::Create(queue(), clusters_, group_size));
  }

  std::vector<Float4> Goals(const std::vector<Vector3d>& x) {
    std::vector<Float4> packed;
    for (const Vector3d& v : x) packed.push_back(ToFloat4(v));
    PALPATE_EXPECT_OK(goals_->Update(queue(), Upload(packed)));
    return Download(goals_->goals());
  }

  template <typename F>
  std::vector<Vector3d> Mapped(const F& map) const {
    std::vector<Vector3d> x;
    for (size_t v = 0; v < model_.rest_m.size(); ++v) x.push_back(ToVector(ToFloat4(map(Rest(model_, v)))));
    return x;
  }
  static double Worst(const std::vector<Float4>& goals, const std::vector<Vector3d>& expected) {
    double worst = 0;
    for (size_t v = 0; v < goals.size(); ++v) worst = std::max(worst, (ToVector(goals[v]) - expected[v]).norm());
    return worst;
  }

  Vector3d RandomVector(double size) {
    std::normal_distribution<double> normal(0, size);
    return {normal(random_), normal(random_), normal(random_)};
  }
  Matrix3d RandomRotation() {
    std::normal_distribution<double> normal;
    return Quaterniond(normal(random_), normal(random_), normal(random_), normal(random_)).normalized().toRotationMatrix();
  }

  void TearDown() override {
    goals_.reset();
    DeviceTest::TearDown();
  }

  TissueModel model_;
  ShapeClusters clusters_;
  std::unique_ptr<ShapeGoals> goals_;
  std::mt19937_64 random_{11};
};

TEST_F(ShapeGoalsTest, RigidMotionIsItsOwnGoal) {
  for (const TissueShapeMode mode : kModes) {
    for (const double cluster_size_m : {0.0, 0.03}) {
      for (const uint32_t group_size : {1U, 16U}) {
        for (const bool keeps_volume : {false, true}) {
          SCOPED_TRACE(testing::Message() << Name(mode) << ", clusters of " << cluster_size_m << " m, group of " << group_size);
          Prepare(ShapedBox({6, 4, 3}, {0.12, 0.08, 0.06}, {-0.06, 0, 0},
                            {.mode = mode, .beta = 0.7, .cluster_size_m = cluster_size_m, .keeps_volume = keeps_volume}),
                  group_size);
          for (int i = 0; i < 4; ++i) {
            const Matrix3d rotation = i == 0 ? Matrix3d::Identity() : RandomRotation();
            const Vector3d shift = RandomVector(i == 3 ? 5.0 : 0.1);  // far from the origin too
            const std::vector<Vector3d> x = Mapped([&](const Vector3d& q) { return Vector3d(rotation * q + shift); });
            EXPECT_LT(Worst(Goals(x), x), 3e-7 + 2e-7 * shift.norm());
          }
        }
      }
    }
  }
}

TEST_F(ShapeGoalsTest, GoalsAreThoseOfTheDefinition) {
  for (const TissueShapeMode mode : kModes) {
    for (const double cluster_size_m : {0.0, 0.025}) {
      for (const uint32_t group_size : {1U, 64U}) {
        SCOPED_TRACE(testing::Message() << Name(mode) << ", clusters of " << cluster_size_m << " m, group of " << group_size);
        Prepare(ShapedBox({6, 5, 4}, {0.1, 0.08, 0.06}, {0.02, 0, -0.03},
                          {.mode = mode, .beta = 0.8, .cluster_size_m = cluster_size_m, .keeps_volume = group_size == 1}),
                group_size);
        const Reference reference(model_, clusters_);
        for (const double size_m : {0.001, 0.004, 0.01}) {  // up to half the distance of vertices: some tets turn over
          const Matrix3d map = RandomRotation() * (Matrix3d::Identity() + 0.3 * Matrix3d::Random());
          std::vector<Vector3d> x = Mapped([&](const Vector3d& q) { return Vector3d(map * q); });
          for (Vector3d& v : x) v = ToVector(ToFloat4(v + RandomVector(size_m)));
          EXPECT_LT(Worst(Goals(x), reference.Goals(x)), 2e-6) << "noise " << size_m << " m";
        }
      }
    }
  }
}

TEST_F(ShapeGoalsTest, ModesHoldTheMapsTheyAreNamedAfter) {
  for (const double cluster_size_m : {0.0, 0.035}) {
    Matrix3d linear;
    linear << 1.3, 0.4, -0.1, 0.2, 0.8, 0.3, 0.1, -0.5, 1.1;
    const auto affine = [&](const Vector3d& q) { return Vector3d(linear * q + Vector3d(0.3, -0.2, 0.1)); };
    const auto bent = [&](const Vector3d& q) {
      return Vector3d(affine(q) + Vector3d(3 * q.x() * q.y() + 2 * q.z() * q.z(), 4 * q.x() * q.x() - q.y() * q.z(), 3 * q.z() * q.x()));
    };
    for (const TissueShapeMode mode : kModes) {
      SCOPED_TRACE(testing::Message() << Name(mode) << ", clusters of " << cluster_size_m << " m");
      Prepare(ShapedBox({5, 5, 5}, {0.1, 0.1, 0.1}, {-0.05, -0.05, 0},
                        {.mode = mode, .beta = 1, .cluster_size_m = cluster_size_m, .keeps_volume = false}));
      const std::vector<Vector3d> affine_x = Mapped(affine);
      const std::vector<Vector3d> bent_x = Mapped(bent);
      const double affine_off = Worst(Goals(affine_x), affine_x);
      const double bent_off = Worst(Goals(bent_x), bent_x);
      if (mode == TissueShapeMode::kRigid) {
        EXPECT_GT(affine_off, 1e-3);
      } else {
        EXPECT_LT(affine_off, 5e-7);
      }
      if (mode == TissueShapeMode::kQuadratic) {
        EXPECT_LT(bent_off, 5e-7);
      } else {
        EXPECT_GT(bent_off, 3e-4);
      }
    }
    // With its volume kept, a linear map has goals of the volume at rest.
    Prepare(ShapedBox({5, 5, 5}, {0.1, 0.1, 0.1}, {-0.05, -0.05, 0}, {.beta = 1, .cluster_size_m = 0, .keeps_volume = true}));
    const double scale = std::cbrt(linear.determinant());
    const Vector3d center = affine(Vector3d(0, 0, 0.05));
    const std::vector<Vector3d> x = Mapped(affine);
    std::vector<Vector3d> expected = x;
    for (Vector3d& v : expected) v = center + (v - center) / scale;
    EXPECT_LT(Worst(Goals(x), expected), 5e-7);
  }
}

TEST_F(ShapeGoalsTest, ForceIsTheGradientOfTheEnergy) {
  for (const TissueShapeMode mode : kModes) {
    SCOPED_TRACE(Name(mode));
    // Without kept volume the energy is a minimum over poses, so its gradient is that of fixed ones.
    Prepare(
        ShapedBox({4, 3, 3}, {0.08, 0.06, 0.06}, {0, 0, 0}, {.mode = mode, .beta = 0.6, .cluster_size_m = 0.03, .keeps_volume = false}));
    const Reference reference(model_, clusters_);
    std::vector<Vector3d> x = Mapped([](const Vector3d& q) { return Vector3d(1.2 * q.x() + 0.2 * q.z(), q.y(), 0.9 * q.z()); });
    for (Vector3d& v : x) v = ToVector(ToFloat4(v + RandomVector(0.002)));
    const std::vector<Float4> goals = Goals(x);
    double largest_n = 0;
    for (size_t v = 0; v < x.size(); ++v) largest_n = std::max(largest_n, goals[v].w * (x[v] - ToVector(goals[v])).norm());
    EXPECT_GT(largest_n, 0.01);
    for (size_t v = 0; v < x.size(); v += 5) {
      const Vector3d force_n = -goals[v].w * (x[v] - ToVector(goals[v]));
      for (int axis = 0; axis < 3; ++axis) {
        constexpr double kStep_m = 1e-6;
        std::array<double, 2> energy{};
        for (size_t side = 0; side < 2; ++side) {
          std::vector<Vector3d> moved = x;
          moved[v][axis] += side == 0 ? -kStep_m : kStep_m;
          reference.Goals(moved, &energy[side]);
        }
        EXPECT_NEAR(force_n[axis], (energy[0] - energy[1]) / (2 * kStep_m), 1e-4 * largest_n) << "vertex " << v;
      }
    }
  }
}

TEST_F(ShapeGoalsTest, ForcesHaveNoSumAndNoMoment) {
  for (const TissueShapeMode mode : kModes) {
    for (const bool keeps_volume : {false, true}) {
      SCOPED_TRACE(Name(mode));
      TissueModel model = ShapedBox({5, 4, 3}, {0.1, 0.08, 0.06}, {0, 0, 0},
                                    {.mode = mode, .beta = 0.7, .cluster_size_m = 0.03, .keeps_volume = keeps_volume});
      // A stiff and dense part, like a zone.
      for (size_t t = 0; t < model.tets.size() / 3; ++t) {
        model.tets[t].mu_pa *= 20;
        model.tets[t].lambda_pa *= 20;
        model.tets[t].density_kg_per_m3 = 3000;
      }
      Prepare(model, 4);
      for (const double size_m : {0.003, 0.1}) {
        std::vector<Vector3d> x = Mapped([](const Vector3d& q) { return q; });
        for (Vector3d& v : x) v = ToVector(ToFloat4(v + RandomVector(size_m)));
        const std::vector<Float4> goals = Goals(x);
        Vector3d sum = Vector3d::Zero(), moment = Vector3d::Zero();
        double size_n = 0, size_nm = 0;
        for (size_t v = 0; v < x.size(); ++v) {
          const Vector3d force = goals[v].w * (ToVector(goals[v]) - x[v]);
          sum += force;
          moment += x[v].cross(force);
          size_n += force.norm();
          size_nm += x[v].norm() * force.norm();
        }
        EXPECT_LT(sum.norm(), 1e-5 * size_n);
        EXPECT_LT(moment.norm(), 1e-5 * size_nm);
      }
    }
  }
}

// The body is worth Young's modulus and Poisson's ratio for strains that are the same everywhere, however it is divided.
TEST_F(ShapeGoalsTest, AffineStrainMeetsTheModuli) {
  constexpr double kYoung_pa = 10000;
  constexpr double kVolume_m3 = 0.001;
  for (const TissueShapeMode mode : kModes) {
    for (const double cluster_size_m : {0.0, 0.05, 0.034}) {
      for (const double beta : {0.0, 0.5, 0.9}) {
        if (mode == TissueShapeMode::kRigid && beta > 0) continue;
        for (const bool keeps_volume : {false, true}) {
          SCOPED_TRACE(testing::Message() << Name(mode) << ", clusters of " << cluster_size_m << " m, beta " << beta << ", volume kept "
                                          << keeps_volume);
          Prepare(ShapedBox({6, 6, 6}, {0.1, 0.1, 0.1}, {0, 0, 0},
                            {.mode = mode, .beta = beta, .cluster_size_m = cluster_size_m, .keeps_volume = keeps_volume},
                            {.young_modulus_pa = kYoung_pa, .poisson_ratio = 0.3}));
          const double nu = keeps_volume ? beta / (3 - beta) : 0;
          const double mu = kYoung_pa / (2 * (1 + nu));
          const double lambda = kYoung_pa * nu / ((1 + nu) * (1 - 2 * nu));
          Matrix3d pull = Matrix3d::Zero(), shear = Matrix3d::Zero();
          pull(0, 0) = 1e-3;
          shear(1, 2) = shear(2, 1) = 1e-3;
          for (const Matrix3d& strain : {pull, shear, Matrix3d(1e-3 * Matrix3d::Identity())}) {
            const std::vector<Vector3d> x = Mapped([&](const Vector3d& q) { return Vector3d(q + strain * q); });
            const std::vector<Float4> goals = Goals(x);
            double work_j = 0;
            for (size_t v = 0; v < x.size(); ++v) {
              work_j += 0.5 * goals[v].w * (x[v] - ToVector(goals[v])).dot(strain * Rest(model_, v));
            }
            const double expected_j = kVolume_m3 * (mu * strain.squaredNorm() + lambda / 2 * strain.trace() * strain.trace());
            EXPECT_NEAR(work_j, expected_j, 0.03 * expected_j) << strain;
          }
        }
      }
    }
  }
}

TEST_F(ShapeGoalsTest, FoldedFlatAndCollapsedStatesHaveFiniteGoals) {
  for (const TissueShapeMode mode : kModes) {
    SCOPED_TRACE(Name(mode));
    Prepare(ShapedBox({4, 4, 4}, {0.08, 0.08, 0.08}, {0, 0, 0}, {.mode = mode, .beta = 0.9, .cluster_size_m = 0.03}), 8);
    const Vector3d factors[] = {{-1, 1, 1}, {-1, -1, -1}, {1, 1, 0}, {1, 0, 0}, {0, 0, 0}, {1, 1, -1e-9}, {100, 100, 100}, {1e-4, 1, 1e3}};
    for (const Vector3d& factor : factors) {
      const std::vector<Vector3d> x = Mapped([&](const Vector3d& q) { return Vector3d(factor.cwiseProduct(q)); });
      const double size_m = 0.14 * std::max(factor.norm(), 1.0);
      for (const Float4& goal : Goals(x)) {
        ASSERT_TRUE(std::isfinite(goal.x + goal.y + goal.z)) << factor.transpose();
        ASSERT_LT(ToVector(goal).norm(), 4 * size_m) << factor.transpose();
        ASSERT_GT(goal.w, 0);
      }
    }
  }
}

TEST_F(ShapeGoalsTest, ClustersCoverTheBodyAndOverlap) {
  for (const double cluster_size_m : {0.0, 0.005, 0.026, 0.035, 0.05}) {
    SCOPED_TRACE(cluster_size_m);
    Prepare(ShapedBox({8, 5, 3}, {0.16, 0.1, 0.06}, {0, 0, 0}, {.cluster_size_m = cluster_size_m}));
    std::vector<uint32_t> parent(model_.rest_m.size());
    std::iota(parent.begin(), parent.end(), 0U);
    const auto root = [&](uint32_t v) {
      while (parent[v] != v) v = parent[v];
      return v;
    };
    for (const ShapeCluster& cluster : clusters_.clusters) {
      ASSERT_GE(cluster.end - cluster.begin, 4U);
      std::set<uint32_t> members;
      Vector3d mean = Vector3d::Zero();
      Matrix3d covariance = Matrix3d::Zero();
      double stiffness = 0;
      for (uint32_t m = cluster.begin; m < cluster.end; ++m) {
        const uint32_t v = clusters_.member_vertex[m];
        EXPECT_TRUE(members.insert(v).second) << "vertex " << v << " twice";
        parent[root(v)] = root(clusters_.member_vertex[cluster.begin]);
        const Float4& phi = clusters_.member_linear[m];
        mean += phi.w * ToVector(phi);
        covariance += phi.w * ToVector(phi) * ToVector(phi).transpose();
        stiffness += phi.w;
      }
      EXPECT_LT(mean.norm(), 1e-6 * stiffness);
      EXPECT_LT((covariance / stiffness - Matrix3d::Identity()).norm(), 1e-5);
      EXPECT_NEAR(stiffness * cluster.basis_y.w, 1, 1e-5);
    }
    for (uint32_t v = 0; v < parent.size(); ++v) {
      ASSERT_LT(clusters_.share_begin[v], clusters_.share_begin[v + 1]);
      ASSERT_LE(clusters_.share_begin[v + 1] - clusters_.share_begin[v], cluster_size_m > 0 && cluster_size_m < 0.02 ? 24U : 8U);
      EXPECT_EQ(root(v), root(0)) << "vertex " << v << " hangs loose";
    }
    const size_t cells = cluster_size_m == 0 ? 1
                                             : std::llround(0.16 / cluster_size_m) * std::llround(0.1 / cluster_size_m) *
                                                   std::llround(0.06 / cluster_size_m);
    if (cluster_size_m > 0 && cluster_size_m < 0.02) continue;  // clusters of single tets
    EXPECT_EQ(clusters_.clusters.size(), cells);
  }
}

/// Two boxes whose vertices meet in the plane x = 0, joined there or not.
TissueModel HalvedBox(const TissueShape& shape) {
  TissueModel model = ShapedBox({3, 4, 4}, {0.06, 0.08, 0.08}, {-0.06, 0, 0}, shape);
  const TissueModel other = ShapedBox({3, 4, 4}, {0.06, 0.08, 0.08}, {0, 0, 0}, shape);
  const auto base = static_cast<uint32_t>(model.rest_m.size());
  model.rest_m.insert(model.rest_m.end(), other.rest_m.begin(), other.rest_m.end());
  model.fixed.insert(model.fixed.end(), other.fixed.begin(), other.fixed.end());
  for (TissueTet tet : other.tets) {
    for (uint32_t& v : tet.vertices) v += base;
    model.tets.push_back(tet);
  }
  model.surface_triangles = BoundaryOf(model.tets);
  return model;
}

TEST_F(ShapeGoalsTest, TheSidesOfACutDoNotHoldEachOther) {
  for (const double cluster_size_m : {0.0, 0.03}) {
    Prepare(HalvedBox({.mode = TissueShapeMode::kQuadratic, .beta = 0.5, .cluster_size_m = cluster_size_m}));
    const size_t half = model_.rest_m.size() / 2;
    const Matrix3d rotation = RandomRotation();
    std::vector<Vector3d> x;
    for (size_t v = 0; v < 2 * half; ++v) {
      const Vector3d q = Rest(model_, v);
      x.push_back(ToVector(ToFloat4(v < half ? q : Vector3d(rotation * q + Vector3d(0.1, 0, 0)))));
    }
    EXPECT_LT(Worst(Goals(x), x), 1e-6);
  }
}

TEST_F(ShapeGoalsTest, FlatClustersFollowTheRotationAcross) {
  // A sheet of one layer, 40 times as wide as thick.
  Prepare(ShapedBox({8, 8, 1}, {0.2, 0.2, 0.005}, {0, 0, 0}, {.mode = TissueShapeMode::kQuadratic, .beta = 1, .keeps_volume = false}));
  ASSERT_EQ(clusters_.clusters.size(), 1U);
  EXPECT_EQ(clusters_.clusters[0].rank, 2U);
  EXPECT_EQ(clusters_.clusters[0].mode, PALPATE_SHAPE_LINEAR);
  const Matrix3d rotation = RandomRotation();
  const std::vector<Vector3d> x =
      Mapped([&](const Vector3d& q) { return Vector3d(rotation * Vector3d(1.2 * q.x() + 0.1 * q.y(), 0.9 * q.y(), 3 * q.z())); });
  const std::vector<Float4> goals = Goals(x);
  // In its plane it deforms as a linear cluster; across, where it was made thrice as thick, it wants to be as thick as it was.
  const size_t layer = 9 * 9;
  for (size_t v = 0; v < layer; ++v) {
    const Vector3d middle = rotation.transpose() * (ToVector(goals[v]) + ToVector(goals[v + layer])) / 2;
    const Vector3d expected = rotation.transpose() * (x[v] + x[v + layer]) / 2;
    EXPECT_LT((middle - expected).head<2>().norm(), 1e-4);
    const Vector3d across = rotation.transpose() * (ToVector(goals[v + layer]) - ToVector(goals[v]));
    EXPECT_LT((across - Vector3d(0, 0, 0.005)).norm(), 2e-4);
  }
}

TEST_F(ShapeGoalsTest, SameInputGivesSameBits) {
  for (const uint32_t group_size : {1U, 32U}) {
    std::vector<std::vector<Float4>> results;
    for (int run = 0; run < 2; ++run) {
      random_.seed(3);
      Prepare(ShapedBox({5, 4, 3}, {0.1, 0.08, 0.06}, {0, 0, 0}, {.mode = TissueShapeMode::kQuadratic, .beta = 0.7, .cluster_size_m = 0.03},
                        {.damping_s = 0.01}),
              group_size);
      std::vector<Vector3d> x = Mapped([](const Vector3d& q) { return q; });
      for (Vector3d& v : x) v += RandomVector(0.01);
      std::vector<Float4> packed;
      for (const Vector3d& v : x) packed.push_back(ToFloat4(v));
      PALPATE_EXPECT_OK(goals_->Begin(queue(), Upload(packed)));
      results.push_back(Goals(Mapped([](const Vector3d& q) { return Vector3d(1.1 * q); })));
    }
    EXPECT_EQ(results[0], results[1]);
  }
}

TEST_F(ShapeGoalsTest, RefusesShapesThatMakeNoSense) {
  const TissueModel good = ShapedBox({2, 2, 2}, {0.04, 0.04, 0.04}, {0, 0, 0}, {});
  const auto error_of = [](const TissueModel& model) -> std::string {
    const auto layout = LayOutTissue(model, 0.01, 1);
    if (!layout.ok()) return std::string(layout.status().message());
    return std::string(BuildShapeClusters(model, layout->solver_index, layout->vertex_count, 0.01).status().message());
  };
  EXPECT_EQ(error_of(good), "");
  TissueModel bad = good;
  bad.shapes[0].beta = 1.5;
  EXPECT_THAT(error_of(bad), HasSubstr("shapes[0]: beta 1.5 must be in [0, 1]"));
  bad = good;
  bad.shapes[0].cluster_size_m = 1e-6;
  EXPECT_THAT(error_of(bad), HasSubstr("shapes[0]: clusters of 1e-06 m make 6.4e+13 cells, more than 1048576"));
  bad = good;
  bad.tets[3].shape = 1;
  EXPECT_THAT(error_of(bad), HasSubstr("tet 3: shape 1 is outside [0, 1)"));
  bad = good;
  bad.tets[5].energy = TissueEnergy::kLinear;
  EXPECT_THAT(error_of(bad), HasSubstr("is also of another body"));
  bad = good;
  for (auto& v : bad.rest_m) v = {v[0], v[1], 1e6 * v[2]};
  bad.shapes[0].cluster_size_m = 20000;
  EXPECT_EQ(error_of(bad), "");
}

// --- in the solver

class ShapeSolverTest : public test::DeviceTest {
 protected:
  std::unique_ptr<TissueSolver> Make(const TissueModel& model, const TissueOptions& options,
                                     const std::vector<ColliderDescription>& colliders = {}, const std::vector<PlaneObstacle>& planes = {},
                                     const TissueTuning& tuning = {}) {
    model_ = model;
    auto solver = TissueSolver::Create(context(), model, options, colliders, planes, tuning);
    EXPECT_TRUE(solver.ok()) << solver.status();
    return solver.ok() ? *std::move(solver) : nullptr;
  }
  std::vector<Vector3d> Read(TissueSolver& solver) {
    std::vector<float> flat(model_.rest_m.size() * 3);
    PALPATE_EXPECT_OK(solver.ReadPositions(flat));
    return Unpack(flat);
  }
  std::vector<Vector3d> Forces(TissueSolver& solver, uint32_t parts) {
    std::vector<float> flat(model_.rest_m.size() * 3);
    PALPATE_EXPECT_OK(solver.ReadForces(parts, flat));
    return Unpack(flat);
  }
  std::vector<Vector3d> RestShape() const {
    std::vector<Vector3d> x;
    for (size_t v = 0; v < model_.rest_m.size(); ++v) x.push_back(Rest(model_, v));
    return x;
  }
  /// Farthest vertex from the best rigid fit of the rest shape, by an independent match.
  double OffShape(const std::vector<Vector3d>& x) const {
    const auto n = static_cast<Eigen::Index>(x.size());
    Eigen::Matrix3Xd now(3, n), rest(3, n);
    for (Eigen::Index v = 0; v < n; ++v) {
      now.col(v) = x[static_cast<size_t>(v)];
      rest.col(v) = Rest(model_, static_cast<size_t>(v));
    }
    const Eigen::Matrix4d fit = Eigen::umeyama(rest, now, false);
    return ((fit.topLeftCorner<3, 3>() * rest).colwise() + Vector3d(fit.topRightCorner<3, 1>()) - now).colwise().norm().maxCoeff();
  }

  TissueModel model_;
  std::mt19937_64 random_{5};
};

TEST_F(ShapeSolverTest, FreeFallFollowsBackwardEuler) {
  for (const TissueShapeMode mode : kModes) {
    SCOPED_TRACE(Name(mode));
    auto solver = Make(ShapedBox({3, 2, 2}, {0.06, 0.04, 0.04}, {0, 0, 0}, {.mode = mode, .cluster_size_m = 0.03}, {.damping_s = 0.05}),
                       {.dt_s = 0.01, .gravity_m_per_s2 = {1, 0, -9.81}, .iterations = 4});
    ASSERT_NE(solver, nullptr);
    const Vector3d v0(0.3, -0.2, 1.5);
    const Vector3d g(1, 0, -9.81);
    const std::vector<Vector3d> rest = RestShape();
    PALPATE_ASSERT_OK(solver->WriteState(Pack(rest), Pack(std::vector<Vector3d>(rest.size(), v0))));
    for (int n = 1; n <= 50; ++n) {
      PALPATE_ASSERT_OK(solver->Step({}).status());
      const Vector3d shift = 0.01 * n * v0 + 0.01 * 0.01 * n * (n + 1) / 2 * g;
      const std::vector<Vector3d> x = Read(*solver);
      for (size_t v = 0; v < x.size(); ++v) ASSERT_LT((x[v] - rest[v] - shift).norm(), 2e-6 + 2e-6 * n) << "step " << n << ", vertex " << v;
    }
  }
}

TEST_F(ShapeSolverTest, MomentumIsKept) {
  constexpr double kDt = 0.01;
  for (const TissueShapeMode mode : kModes) {
    for (const double damping_s : {0.0, 0.02}) {
      SCOPED_TRACE(testing::Message() << Name(mode) << ", damping " << damping_s << " s");
      auto solver = Make(ShapedBox({4, 3, 3}, {0.08, 0.06, 0.06}, {-0.04, -0.03, -0.03}, {.mode = mode, .cluster_size_m = 0.03},
                                   {.young_modulus_pa = 20000, .damping_s = damping_s}),
                         {.dt_s = kDt, .gravity_m_per_s2 = {0, 0, 0}, .iterations = 200});
      ASSERT_NE(solver, nullptr);
      std::vector<double> mass;
      for (const SolverSlot i : solver->layout().solver_index) mass.push_back(solver->layout().mass_kg[i]);
      std::vector<Vector3d> x = RestShape();
      std::vector<Vector3d> v;
      std::normal_distribution<double> normal(0, 0.05);
      for (const Vector3d& at : x)
        v.push_back(Vector3d(0.5, -1, 4).cross(at) + Vector3d(normal(random_), normal(random_), normal(random_)));
      PALPATE_ASSERT_OK(solver->WriteState(Pack(x), Pack(v)));
      const auto sum = [&](const std::vector<Vector3d>& arm, const std::vector<Vector3d>& velocity) {
        Vector3d linear = Vector3d::Zero(), angular = Vector3d::Zero();
        for (size_t i = 0; i < mass.size(); ++i) {
          linear += mass[i] * velocity[i];
          angular += mass[i] * arm[i].cross(velocity[i]);
        }
        return std::pair(linear, angular);
      };
      const auto [linear, angular] = sum(x, v);
      double speed = 0;
      for (size_t i = 0; i < mass.size(); ++i) speed += mass[i] * v[i].norm();
      for (int n = 0; n < 20; ++n) {
        PALPATE_ASSERT_OK(solver->Step({}).status());
        const std::vector<Vector3d> x1 = Read(*solver);
        std::vector<Vector3d> v1;
        for (size_t i = 0; i < x1.size(); ++i) v1.push_back((x1[i] - x[i]) / kDt);
        // x1 = x + h v1, and internal forces have no moment about x1: L1 = sum m x1 cross v.
        const Vector3d expected = sum(x1, v).second;
        const auto [linear1, angular1] = sum(x1, v1);
        EXPECT_LT((linear1 - linear).norm(), 1e-4 * speed) << "step " << n;
        EXPECT_LT((angular1 - expected).norm(), 2e-3 * angular.norm()) << "step " << n;
        x = x1;
        v = v1;
      }
    }
  }
}

TEST_F(ShapeSolverTest, FindsItsShapeFromAnyState) {
  for (const TissueShapeMode mode : kModes) {
    for (const double cluster_size_m : {0.0, 0.04}) {
      auto solver = Make(ShapedBox({4, 3, 3}, {0.08, 0.06, 0.06}, {0, 0, 0}, {.mode = mode, .beta = 0.5, .cluster_size_m = cluster_size_m},
                                   {.young_modulus_pa = 5000, .damping_s = 0.01}),
                         {.gravity_m_per_s2 = {0, 0, 0}});
      ASSERT_NE(solver, nullptr);
      std::uniform_real_distribution<double> place(0, 0.08);
      std::normal_distribution<double> rounding(0, 1e-6);
      const auto noisy = [&](const Vector3d& x) { return Vector3d(x + Vector3d(rounding(random_), rounding(random_), rounding(random_))); };
      const std::vector<std::pair<const char*, std::function<Vector3d(const Vector3d&)>>> states = {
          {"scattered", [&](const Vector3d&) { return Vector3d(place(random_), place(random_), place(random_)); }},
          {"mirrored",
           [&](const Vector3d& q) {
             return noisy({-q.x(), q.y(), q.z()});
           }},
          {"flat",
           [&](const Vector3d& q) {
             return noisy({q.x(), q.y(), 0});
           }},
          {"on a line",
           [&](const Vector3d& q) {
             return noisy({q.x(), 0, 0});
           }},
          {"in a point",
           [&](const Vector3d&) {
             return noisy({0, 0, 0});
           }},
          {"blown up", [&](const Vector3d& q) { return noisy(10 * q); }}};
      for (const auto& [name, map] : states) {
        SCOPED_TRACE(testing::Message() << Name(mode) << ", clusters of " << cluster_size_m << " m, " << name);
        std::vector<Vector3d> x;
        for (const Vector3d& q : RestShape()) x.push_back(map(q));
        EXPECT_GT(OffShape(x), 0.01);
        PALPATE_ASSERT_OK(solver->WriteState(Pack(x)));
        int steps = 0;
        while (steps < 600 && OffShape(Read(*solver)) > 1e-4) {
          for (int i = 0; i < 20; ++i, ++steps) PALPATE_ASSERT_OK(solver->Step({}).status());
        }
        EXPECT_LT(steps, 600) << OffShape(Read(*solver));
      }
    }
  }
}

TEST_F(ShapeSolverTest, EverySweepLowersTheResidual) {
  for (const TissueShapeMode mode : kModes) {
    for (const double young_pa : {5e3, 3e4}) {
      SCOPED_TRACE(testing::Message() << Name(mode) << ", " << young_pa << " Pa");
      TissueModel model = ShapedBox({6, 3, 3}, {0.12, 0.06, 0.06}, {0, 0, 0}, {.mode = mode, .cluster_size_m = 0.04},
                                    {.young_modulus_pa = young_pa, .damping_s = 0.005});
      for (uint32_t v = 0; v < model.fixed.size(); ++v) model.fixed[v] = model.rest_m[v][0] == 0;
      auto solver = Make(model, {.iterations = 300, .acceleration = 0});
      ASSERT_NE(solver, nullptr);
      for (int i = 0; i < 3; ++i) PALPATE_ASSERT_OK(solver->Step({}).status());
      PALPATE_TEST_ASSIGN(const std::vector<double> residual, solver->StepMeasuringResidual({}));
      const double noise = 3e-4 * residual[0];
      // A sweep takes off at least 1 / (1 + k h^2 / m) of what is left of a motion that the goals follow.
      EXPECT_LT(residual.back(), young_pa < 1e4 ? noise : 0.02 * residual[0]);
      for (size_t k = 0; k + 1 < residual.size() && residual[k] > 8 * noise; ++k) EXPECT_LT(residual[k + 1], residual[k] * 1.02) << k;
    }
  }
}

TEST_F(ShapeSolverTest, ContactForceCarriesTheWeight) {
  for (const TissueShapeMode mode : kModes) {
    SCOPED_TRACE(Name(mode));
    auto solver = Make(ShapedBox({4, 4, 3}, {0.08, 0.08, 0.06}, {0, 0, 0.0005}, {.mode = mode, .cluster_size_m = 0.04},
                                 {.young_modulus_pa = 20000, .damping_s = 0.02}),
                       {.iterations = 40}, {}, {{{0, 0, 1, 0}}});
    ASSERT_NE(solver, nullptr);
    const double weight_n = 0.08 * 0.08 * 0.06 * 1000 * 9.81;
    double force_n = 0;
    for (int i = 0; i < 400; ++i) {
      PALPATE_TEST_ASSIGN(const TissueStep step, solver->Step({}));
      force_n = 0;
      for (const ContactReport& r : step.contacts) force_n += r.force.z;
    }
    EXPECT_NEAR(force_n, weight_n, 0.003 * weight_n);
    for (const Vector3d& x : Read(*solver)) EXPECT_GT(x.z(), 0);
  }
}

TEST_F(ShapeSolverTest, ElasticAndShapeMatchedBodiesShareAScene) {
  TissueModel model = ShapedBox({3, 3, 3}, {0.06, 0.06, 0.06}, {0, 0, 0.001}, {.mode = TissueShapeMode::kQuadratic, .cluster_size_m = 0.03},
                                {.damping_s = 0.01});
  const auto base = static_cast<uint32_t>(model.rest_m.size());
  const auto triangles = static_cast<uint32_t>(model.surface_triangles.size());
  const TissueModel top = BoxModel({3, 3, 3}, {0.06, 0.06, 0.06}, {0.01, 0.01, 0.07}, {.damping_s = 0.01});
  model.rest_m.insert(model.rest_m.end(), top.rest_m.begin(), top.rest_m.end());
  model.fixed.insert(model.fixed.end(), top.fixed.begin(), top.fixed.end());
  for (TissueTet tet : top.tets) {
    for (uint32_t& v : tet.vertices) v += base;
    model.tets.push_back(tet);
  }
  for (auto triangle : top.surface_triangles) {
    for (uint32_t& v : triangle) v += base;
    model.surface_triangles.push_back(triangle);
  }
  model.body_triangle_begin = {0, triangles, static_cast<uint32_t>(model.surface_triangles.size())};
  model.self_collision = {1, 1};
  const TissueOptions options{.check_intersections = true};
  const ColliderDescription tool{.radius_m = 0.006, .tip_m = {0.03, 0.03, 0.16}, .axis_m = {0, 0, 0.1}};
  const auto target = [](int i) {
    return ColliderTarget{{0.03 + 0.002 * std::sin(0.3 * i), 0.03, 0.16 - 0.0008 * std::min(i, 60)}, {0, 0, 0.1}};
  };
  std::vector<uint64_t> hashes;
  std::vector<std::vector<Vector3d>> ends;
  size_t contacts = 0;
  for (const TissueTuning& tuning :
       std::vector<TissueTuning>{{}, {}, {.lanes = 1, .team = 8, .group = 64, .list_group = 16, .shape_group = 16, .partials = 256}}) {
    auto solver = Make(model, options, {tool}, {{{0, 0, 1, 0}}}, tuning);
    ASSERT_NE(solver, nullptr);
    TissueStep step;
    for (int i = 0; i < 80; ++i) {
      const std::vector<ColliderTarget> targets = {target(i)};
      PALPATE_TEST_ASSIGN(step, solver->Step(targets));
      ASSERT_EQ(step.bad_vertices, 0U);
      ASSERT_EQ(step.surface.intersections, 0U) << "step " << i;
      contacts += step.surface_contacts.size();
      if (i == 25) ends.push_back(Read(*solver));  // later the upper one topples, and which way rounding decides
    }
    hashes.push_back(step.hash);
  }
  EXPECT_GT(contacts, 1000U);
  EXPECT_EQ(hashes[0], hashes[1]);
  double worst = 0, moved = 0;
  for (size_t v = 0; v < ends[0].size(); ++v) {
    worst = std::max(worst, (ends[2][v] - ends[0][v]).norm());
    moved = std::max(moved, (ends[0][v] - Rest(model_, v)).norm());
  }
  EXPECT_GT(moved, 0.01);
  EXPECT_LT(worst, 0.1 * moved) << "another grouping of the sums";
}

TEST_F(ShapeSolverTest, GoesOnWithAnotherModel) {
  const TissueShape shape{.mode = TissueShapeMode::kQuadratic, .cluster_size_m = 0.03};
  auto solver = Make(HalvedBox(shape), {.gravity_m_per_s2 = {0, 0, 0}});
  ASSERT_NE(solver, nullptr);
  // The left half alone goes on; what moved of it moves on.
  const size_t half = model_.rest_m.size() / 2;
  std::vector<Vector3d> v(2 * half, Vector3d(0.1, 0, 0));
  PALPATE_ASSERT_OK(solver->WriteState(Pack(RestShape()), Pack(v)));
  for (int i = 0; i < 5; ++i) PALPATE_ASSERT_OK(solver->Step({}).status());
  std::vector<TissueVertexState> states(2 * half);
  PALPATE_ASSERT_OK(solver->ReadState(states));
  states.resize(half);
  model_ = ShapedBox({3, 4, 4}, {0.06, 0.08, 0.08}, {-0.06, 0, 0}, shape);
  PALPATE_ASSERT_OK(solver->Rebuild(model_, states));
  for (int i = 0; i < 5; ++i) PALPATE_ASSERT_OK(solver->Step({}).status());
  const std::vector<Vector3d> x = Read(*solver);
  for (size_t i = 0; i < half; ++i) EXPECT_LT((x[i] - Rest(model_, i) - Vector3d(0.1 * 10 / 120, 0, 0)).norm(), 5e-6);
}

}  // namespace
}  // namespace palpate::gpu::shape_goals_test
