// Coarse corrections: what they are made of against the host, and what they do to the residual of a step.
#include "gpu/dynamics/coarse_correction.h"

#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <bit>
#include <cmath>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gpu/base/state_archive.h"
#include "gpu/dynamics/tissue_solver.h"
#include "tests/gpu/dynamics/surface_models.h"
#include "tests/gpu/dynamics/tissue_models.h"
#include "tests/support/device_test.h"
#include "tests/support/newton_statics.h"

namespace palpate::gpu::coarse_correction_test {
namespace {

using Eigen::Matrix3d;
using Eigen::MatrixXd;
using Eigen::Vector3d;
using Eigen::VectorXd;
using test::NewtonStatics;
using test::OracleBody;

constexpr double kDt = 1.0 / 120;
constexpr double kLength_m = 0.16;

/// A bar whose end at x = 0 is fixed; inner vertices are off the grid.
TissueModel Cantilever(std::array<uint32_t, 3> cells, const TestMaterial& material) {
  TissueModel model = BoxModel(cells, {kLength_m, 0.05, 0.05}, {0, 0, 0}, material);
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> off(-0.15, 0.15);
  for (size_t v = 0; v < model.rest_m.size(); ++v) {
    std::array<double, 3>& x = model.rest_m[v];
    model.fixed[v] = x[0] == 0;
    const bool is_inside = x[0] > 0 && x[0] < kLength_m && x[1] > 0 && x[1] < 0.05 && x[2] > 0 && x[2] < 0.05;
    if (!is_inside) continue;
    for (double& value : x) value += off(random) * kLength_m / cells[0];
  }
  return model;
}

constexpr TestMaterial kTissue{.young_modulus_pa = 5000, .poisson_ratio = 0.45};
constexpr std::array<uint32_t, 3> k2500{16, 5, 5}, k10000{26, 8, 8}, k50000{44, 14, 14}, k200000{70, 22, 22};

constexpr float kMargin_m = 0.001F;  // of planes

/// The stages that a correction needs, without the rest of a step.
class CoarseCorrectionTest : public test::DeviceTest {
 protected:
  struct Stages {
    explicit Stages(TissueModel of) : model(std::move(of)), sweeps(layout) {}
    TissueModel model;
    TissueLayout layout;
    TissueBuffers tissue;
    ToolContacts tools;
    TissueAnchors anchors;
    TissueSweeps sweeps;
    std::unique_ptr<CoarseCorrection> correction;
  };

  absl::StatusOr<std::unique_ptr<Stages>> Make(const TissueModel& model, uint32_t nodes, std::span<const PlaneObstacle> planes = {}) {
    const TissueOptions options{.dt_s = kDt, .acceleration = 0, .coarse_nodes = nodes};
    const TissueTuning tuning = TissueTuning::For(context()->device());
    auto made = std::make_unique<Stages>(model);
    PALPATE_ASSIGN_OR_RETURN(made->layout, LayOutTissue(model, kDt, tuning.lanes));
    StepParams params{};
    params.dt_s = static_cast<float>(kDt);
    params.inv_dt = static_cast<float>(1 / kDt);
    params.lambda_cap = PALPATE_LAMBDA_UNCAPPED;
    params.low_unit_m = std::ldexp(1.0F, made->layout.displacement_exponent);
    params.low_units_per_m = 1 / params.low_unit_m;
    params.free_count = made->layout.free_count;
    params.vertex_count = made->layout.vertex_count;
    params.triangle_count = made->layout.triangle_count;
    params.tet_count = made->layout.tet_count;
    params.plane_count = static_cast<uint32_t>(planes.size());
    params.margin_m = kMargin_m;
    params.stiffness_n_per_m = 100;
    params.slip_m = 1e-5F;
    PALPATE_RETURN_IF_ERROR(made->tools.Init(queue(), made->layout, options, tuning, {}, planes, 1));
    PALPATE_ASSIGN_OR_RETURN(made->tissue, TissueBuffers::Create(queue(), made->layout, params, false));
    PALPATE_RETURN_IF_ERROR(made->anchors.Init(queue(), made->layout));
    PALPATE_RETURN_IF_ERROR(made->sweeps.Init(queue(), model, options, tuning, /*surfaces_meet=*/false, /*moves_bodies=*/false, nullptr));
    PALPATE_RETURN_IF_ERROR(made->sweeps.Bind(queue(), made->tissue, made->tools, made->anchors));
    PALPATE_ASSIGN_OR_RETURN(made->correction, CoarseCorrection::Create(queue(), model, made->layout, options, tuning));
    return made;
  }

  /// Positions by slot from those by vertex, and inertial targets `y`.
  void Write(Stages& stages, const std::vector<Vector3d>& x, const std::vector<Vector3d>& y) {
    const auto by_slot = [&](const std::vector<Vector3d>& values) {
      std::vector<Float4> out(stages.layout.vertex_count);
      for (size_t v = 0; v < values.size(); ++v) {
        out[ToNumber(stages.layout.solver_index[v])] = {static_cast<float>(values[v].x()), static_cast<float>(values[v].y()),
                                                        static_cast<float>(values[v].z()), 0};
      }
      return out;
    };
    PALPATE_EXPECT_OK(queue().Write(stages.tissue.x, std::span<const Float4>(by_slot(x))));
    PALPATE_EXPECT_OK(queue().Write(stages.tissue.x_start, std::span<const Float4>(by_slot(x))));
    PALPATE_EXPECT_OK(queue().Write(stages.tissue.y, std::span<const Float4>(by_slot(y))));
  }

  template <typename T>
  std::vector<T> Read(const DeviceBuffer<T>& buffer) {
    std::vector<T> values(buffer.count());
    PALPATE_EXPECT_OK(queue().ReadBlocking(buffer, std::span<T>(values)));
    return values;
  }
  std::vector<Vector3d> Positions(Stages& stages) {
    const std::vector<Float4> x = Read(stages.tissue.x);
    std::vector<Vector3d> out;
    for (const SolverSlot slot : stages.layout.solver_index) {
      const Float4& p = x[ToNumber(slot)];
      out.emplace_back(p.x, p.y, p.z);
    }
    return out;
  }
};

std::vector<Vector3d> RestOf(const TissueModel& model) {
  std::vector<Vector3d> rest;
  for (const auto& r : model.rest_m) rest.emplace_back(r[0], r[1], r[2]);
  return rest;
}

Vector3d Rotate(const Float4& q, const Vector3d& v) { return Eigen::Quaterniond(q.w, q.x, q.y, q.z) * v; }

/// Makes all of the model one body that keeps its volume.
void KeepVolume(TissueModel* model, double stiffness_pa) {
  model->triangle_body.assign(model->surface_triangles.size(), 0);
  model->self_collision = {0};
  model->volume_stiffness_pa = {stiffness_pa};
}

/// Within the triangles [first, end), m^3; gradient: by vertex, added to, or null.
double VolumeOf(const TissueModel& model, const std::vector<Vector3d>& x, uint32_t first, uint32_t end, std::vector<Vector3d>* gradient) {
  double sum = 0;
  for (uint32_t t = first; t < end; ++t) {
    const auto& [a, b, c] = model.surface_triangles[t];
    sum += x[a].dot(x[b].cross(x[c])) / 6;
    if (gradient == nullptr) continue;
    (*gradient)[a] += x[b].cross(x[c]) / 6;
    (*gradient)[b] += x[c].cross(x[a]) / 6;
    (*gradient)[c] += x[a].cross(x[b]) / 6;
  }
  return sum;
}

/// Energy of a step: inertia and neo-Hookean tets, in double, and that of a kept volume of the whole model.
double EnergyOf(const TissueModel& model, const TissueLayout& layout, const std::vector<Vector3d>& x, const std::vector<Vector3d>& y) {
  double sum = 0;
  for (size_t v = 0; v < x.size(); ++v) {
    if (model.fixed[v] == 0) sum += layout.mass_kg[layout.solver_index[v]] / (2 * kDt * kDt) * (x[v] - y[v]).squaredNorm();
  }
  for (const TissueTet& tet : model.tets) {
    Matrix3d rest, now;
    for (int c = 0; c < 3; ++c) {
      rest.col(c) = Vector3d(model.rest_m[tet.vertices[c + 1]].data()) - Vector3d(model.rest_m[tet.vertices[0]].data());
      now.col(c) = x[tet.vertices[c + 1]] - x[tet.vertices[0]];
    }
    const Matrix3d f = now * rest.inverse();
    const double j = f.determinant();
    const double mu = tet.mu_pa;
    sum += rest.determinant() / 6 * (mu / 2 * (f.squaredNorm() - 3) - mu * (j - 1) + (tet.lambda_pa + mu) / 2 * (j - 1) * (j - 1));
  }
  if (!model.volume_stiffness_pa.empty()) {
    const auto triangles = static_cast<uint32_t>(model.surface_triangles.size());
    const double rest_m3 = VolumeOf(model, RestOf(model), 0, triangles, nullptr);
    const double excess_m3 = VolumeOf(model, x, 0, triangles, nullptr) - rest_m3;
    sum += model.volume_stiffness_pa[0] * excess_m3 * excess_m3 / (2 * rest_m3);
  }
  return sum;
}

TEST_F(CoarseCorrectionTest, WeightsReproduceLinearFieldsAndLeaveOutWhatIsHeld) {
  TissueModel model = Cantilever(k2500, kTissue);
  model.held_axes.assign(model.rest_m.size(), 0);
  for (size_t v = 0; v < model.rest_m.size(); ++v) model.held_axes[v] = model.rest_m[v][0] == kLength_m ? 2 : 0;
  for (const uint32_t nodes : {8U, 60U, 300U}) {
    PALPATE_TEST_ASSIGN(const TissueLayout layout, LayOutTissue(model, kDt, 1));
    const CoarseLattice lattice = BuildCoarseLattice(model, layout, kDt, nodes);
    ASSERT_EQ(lattice.parts.size(), 1U);
    ASSERT_LE(lattice.cells.size(), nodes);
    const CoarsePart& part = lattice.parts[0];
    const CoarseWeights weights = WeighCoarse(lattice, layout);
    size_t entries = 0;
    for (size_t v = 0; v < model.rest_m.size(); ++v) {
      const uint32_t slot = ToNumber(layout.solver_index[v]);
      double sum = 0;
      Vector3d at = Vector3d::Zero();
      for (uint32_t c = 0; c < kCoarseCorners; ++c) {
        const double w = weights.vertex_weights[slot * kCoarseCorners + c];
        if (w == 0) continue;
        ++entries;
        sum += w;
        const auto& cell = lattice.cells[weights.vertex_nodes[slot * kCoarseCorners + c]];
        for (int k = 0; k < 3; ++k) at[k] += w * (part.origin_m[k] + part.spacing_m * cell[k]);
      }
      if (model.fixed[v] != 0 || model.held_axes[v] != 0) {
        EXPECT_EQ(sum, 0) << v;
        continue;
      }
      ASSERT_NEAR(sum, 1, 1e-6) << v;
      EXPECT_LT((at - Vector3d(model.rest_m[v].data())).norm(), 1e-6) << v;
    }
    EXPECT_EQ(entries, weights.entry_vertex.size());
    EXPECT_EQ(entries, weights.node_begins.back());
  }
}

// The operator of the lattice is the change of the device's own forces at rest.
TEST_F(CoarseCorrectionTest, InverseIsThatOfTheHessianAtRest) {
  for (const auto& [energy, is_smoothed] : {std::pair(TissueEnergy::kStableNeoHookean, false),
                                            {TissueEnergy::kCorotated, false},
                                            {TissueEnergy::kStVenantKirchhoff, false},
                                            {TissueEnergy::kStableNeoHookean, true}}) {
    SCOPED_TRACE(testing::Message() << Name(energy) << (is_smoothed ? ", node-smoothed" : ""));
    TissueModel model = Cantilever({6, 3, 3}, {.young_modulus_pa = 5000, .poisson_ratio = 0.4, .mass_damping_per_s = 3, .energy = energy});
    for (TissueTet& tet : model.tets) tet.is_smoothed = is_smoothed ? 1 : 0;
    if (is_smoothed) {  // two materials, each with domains of its own
      for (size_t t = 0; t < model.tets.size() / 2; ++t) model.tets[t].mu_pa *= 3;
    }
    PALPATE_TEST_ASSIGN(const std::unique_ptr<Stages> stages, Make(model, 12));
    const CoarseLattice& lattice = stages->correction->lattice();
    const CoarseWeights& weights = stages->correction->weights();
    const CoarsePart& part = lattice.parts[0];
    const auto n = static_cast<Eigen::Index>(3 * part.node_count);
    ASSERT_GE(n, 24);
    MatrixXd inverse(n, n);
    for (Eigen::Index r = 0; r < n; ++r) {
      for (Eigen::Index c = 0; c < n; ++c) inverse(r, c) = lattice.inverse[static_cast<size_t>(r * part.row_floats + c)];
    }
    // Mass damping is in the weight of inertia, which the device takes from y.
    std::vector<Float4> y = Read(stages->tissue.x);
    for (Float4& target : y) target.w = static_cast<float>(3 * kDt);
    PALPATE_ASSERT_OK(queue().Write(stages->tissue.y, std::span<const Float4>(y)));
    const std::vector<Float4> rest = Read(stages->tissue.x);
    PALPATE_TEST_ASSIGN(const DeviceBuffer<Float4> forces, DeviceBuffer<Float4>::Create(context(), stages->layout.vertex_count, "forces"));
    const auto at_nodes = [&](const std::vector<Float4>& x) {
      PALPATE_EXPECT_OK(queue().Write(stages->tissue.x, std::span<const Float4>(x)));
      PALPATE_EXPECT_OK(stages->sweeps.Update(queue(), stages->tissue));
      PALPATE_EXPECT_OK(stages->sweeps.EnqueueForces(queue(), stages->layout.vertex_count, kAllForces, stages->tissue.x, forces));
      const std::vector<Float4> f = Read(forces);
      VectorXd sum = VectorXd::Zero(n);
      for (uint32_t node = 0; node < part.node_count; ++node) {
        for (uint32_t e = weights.node_begins[node]; e < weights.node_begins[node + 1]; ++e) {
          const Float4& force = f[weights.entry_vertex[e]];
          sum.segment<3>(3 * node) += weights.entry_weight[e] * Vector3d(force.x, force.y, force.z);
        }
      }
      return sum;
    };
    constexpr float kMove_m = 1e-4F;
    MatrixXd hessian(n, n);
    for (Eigen::Index c = 0; c < n; ++c) {
      VectorXd difference = VectorXd::Zero(n);
      for (const float move : {-kMove_m, kMove_m}) {
        std::vector<Float4> x = rest;
        const auto node = static_cast<uint32_t>(c / 3);
        for (uint32_t e = weights.node_begins[node]; e < weights.node_begins[node + 1]; ++e) {
          Float4& p = x[weights.entry_vertex[e]];
          (c % 3 == 0 ? p.x : c % 3 == 1 ? p.y : p.z) += move * weights.entry_weight[e];
        }
        difference -= (move > 0 ? 1 : -1) * at_nodes(x);
      }
      hessian.col(c) = difference / (2 * kMove_m);
    }
    const MatrixXd expected = inverse.inverse();
    EXPECT_LT((hessian - expected).norm(), 3e-3 * expected.norm());
    EXPECT_LT((hessian - hessian.transpose()).norm(), 3e-3 * expected.norm());
    EXPECT_GT(Eigen::SelfAdjointEigenSolver<MatrixXd>((expected + expected.transpose()) / 2).eigenvalues()[0], 0);
  }
}

// The work of each tet once is the sum over all corners, whatever the energies, with viscosity and places without a tet.
TEST_F(CoarseCorrectionTest, WorkAlongMovesIsThatOfTheForces) {
  std::mt19937_64 random(11);
  std::normal_distribution<double> normal;
  constexpr TissueEnergy kEnergies[] = {TissueEnergy::kStableNeoHookean, TissueEnergy::kCorotated, TissueEnergy::kLinear,
                                        TissueEnergy::kStVenantKirchhoff};
  for (const auto& [mixed, damping_s] : {std::pair<size_t, double>(1, 0), {4, 0.02}}) {
    SCOPED_TRACE(testing::Message() << mixed << " energies, damping " << damping_s);
    TissueModel model = Cantilever({7, 3, 3}, {.young_modulus_pa = 5000, .poisson_ratio = 0.4, .damping_s = damping_s});
    for (size_t t = 0; t < model.tets.size(); ++t) {
      model.tets[t].energy = kEnergies[t % mixed];
      model.tets[t].mu_pa *= 1 + 0.1 * static_cast<double>(t % 7);
    }
    ASSERT_NE(model.tets.size() % 8, 0U) << "the last batch shall not be full";
    model.tets[10].vertices = kFreeTissueTet;
    PALPATE_TEST_ASSIGN(const std::unique_ptr<Stages> stages, Make(model, 40));
    ASSERT_TRUE(stages->sweeps.HasStresses());
    const std::vector<Vector3d> rest = RestOf(model);
    Write(*stages, rest, rest);
    PALPATE_ASSERT_OK(stages->sweeps.Begin(queue(), stages->tissue));
    std::vector<Float4> x = Read(stages->tissue.x), moves(x.size());
    const auto add_noise = [&](double size_m, Float4* to) {
      to->x += static_cast<float>(size_m * normal(random));
      to->y += static_cast<float>(size_m * normal(random));
      to->z += static_cast<float>(size_m * normal(random));
    };
    for (size_t v = 0; v < x.size(); ++v) {
      x[v].x *= 1.1F;
      add_noise(2e-3, &x[v]);
      add_noise(1e-3, &moves[v]);
    }
    PALPATE_ASSERT_OK(queue().Write(stages->tissue.x, std::span<const Float4>(x)));
    PALPATE_ASSERT_OK(stages->sweeps.Update(queue(), stages->tissue));
    PALPATE_TEST_ASSIGN(const DeviceBuffer<Float4> forces, DeviceBuffer<Float4>::Create(context(), x.size(), "forces"));
    PALPATE_TEST_ASSIGN(DeviceBuffer<Float4> trial, DeviceBuffer<Float4>::Create(context(), x.size(), "trial"));
    PALPATE_TEST_ASSIGN(DeviceBuffer<Float4> along, DeviceBuffer<Float4>::Create(context(), x.size(), "moves"));
    PALPATE_TEST_ASSIGN(DeviceBuffer<float> share, DeviceBuffer<float>::Create(context(), 1, "share"));
    PALPATE_ASSERT_OK(queue().Write(along, std::span<const Float4>(moves)));
    for (const float part : {1.0F, 0.4F}) {
      std::vector<Float4> at = x;
      for (size_t v = 0; v < x.size(); ++v) {
        at[v] = {x[v].x + part * moves[v].x, x[v].y + part * moves[v].y, x[v].z + part * moves[v].z, 0};
      }
      PALPATE_ASSERT_OK(queue().Write(trial, std::span<const Float4>(at)));
      PALPATE_ASSERT_OK(queue().Write(share, std::span<const float>(&part, 1)));
      PALPATE_ASSERT_OK(stages->sweeps.EnqueueForces(queue(), stages->layout.vertex_count, kElasticForces, trial, forces));
      const std::vector<Float4> f = Read(forces);
      double expected_j = 0, scale_j = 0;
      for (size_t v = 0; v < f.size(); ++v) {
        const double work_j =
            static_cast<double>(f[v].x) * moves[v].x + static_cast<double>(f[v].y) * moves[v].y + static_cast<double>(f[v].z) * moves[v].z;
        expected_j += work_j;
        scale_j += std::abs(work_j);
      }
      ASSERT_GT(std::abs(expected_j), 0.01 * scale_j);
      for (const uint32_t items : {1U, 3U, 1024U}) {
        PALPATE_TEST_ASSIGN(const DeviceBuffer<float> sums, DeviceBuffer<float>::Create(context(), items, "sums"));
        PALPATE_ASSERT_OK(part == 1 ? stages->sweeps.BeginLine(queue(), {items, 1}, stages->tissue, along, sums)
                                    : stages->sweeps.WorkOnLine(queue(), {items, 1}, share, sums));
        double sum_j = 0;
        for (const float some_j : Read(sums)) sum_j += some_j;
        EXPECT_NEAR(sum_j, expected_j, 1e-5 * scale_j) << items << " items, " << part;
      }
    }
  }
}

// What stiff tets read are displacements with low parts: forces are those of these numbers in double. Of the positions, which are rounded
// in the world, they would be others by far more.
TEST_F(CoarseCorrectionTest, ForcesOfStiffTetsAreThoseOfTheirDisplacements) {
  const TissueModel model = Cantilever(k2500, {.young_modulus_pa = 1e6, .poisson_ratio = 0.45});
  PALPATE_TEST_ASSIGN(const std::unique_ptr<Stages> stages, Make(model, 100));
  ASSERT_TRUE(stages->layout.IsDisplaced());
  std::vector<Vector3d> x = RestOf(model);
  for (Vector3d& p : x) p.z() -= 0.05 * p.x() * p.x();
  std::vector<Vector3d> y = x;
  for (Vector3d& target : y) target.z() -= 9.81 * kDt * kDt;
  Write(*stages, x, y);
  PALPATE_ASSERT_OK(stages->correction->Begin(queue(), stages->tissue));
  for (int k = 0; k < 10; ++k) {
    PALPATE_ASSERT_OK(stages->sweeps.Sweep(queue(), stages->tissue));
    if (k % 5 == 0) PALPATE_ASSERT_OK(stages->correction->Correct(queue(), stages->tissue, stages->tools, stages->sweeps).status());
  }
  PALPATE_ASSERT_OK(stages->sweeps.Update(queue(), stages->tissue));
  PALPATE_TEST_ASSIGN(const DeviceBuffer<Float4> forces, DeviceBuffer<Float4>::Create(context(), stages->layout.vertex_count, "forces"));
  PALPATE_ASSERT_OK(stages->sweeps.EnqueueForces(queue(), stages->layout.vertex_count, kAllForces, stages->tissue.x, forces));
  const std::vector<Float4> found = Read(forces);
  const std::vector<Float4> u = Read(stages->tissue.u), target = Read(stages->tissue.y);
  std::vector<Vector3d> displaced, rounded = Positions(*stages), at_y;
  double most_low_m = 0;
  for (size_t v = 0; v < x.size(); ++v) {
    const SolverSlot slot = stages->layout.solver_index[v];
    const Float4& of = u[ToNumber(slot)];
    const Float4& rest = stages->layout.rest_m[slot];
    const auto bits = std::bit_cast<uint32_t>(of.w);
    Vector3d low;
    for (int axis = 0; axis < 3; ++axis) {
      low[axis] =
          std::ldexp(static_cast<double>(static_cast<int32_t>(bits << (2 + 10 * axis)) >> 22), stages->layout.displacement_exponent);
    }
    most_low_m = std::max(most_low_m, low.cwiseAbs().maxCoeff());
    // The rest shape of the tets is that of the model, in double.
    displaced.push_back(Vector3d(model.rest_m[v].data()) + (Vector3d(of.x, of.y, of.z) + low));
    EXPECT_EQ(static_cast<float>(rounded[v].x()), rest.x + of.x);
    const Float4& to = target[ToNumber(slot)];
    at_y.emplace_back(to.x, to.y, to.z);
  }
  EXPECT_GT(most_low_m, 1e-11);
  EXPECT_LT(most_low_m, 5e-9);
  const auto forces_at = [&](const std::vector<Vector3d>& at) {
    std::vector<Vector3d> sum(at.size(), Vector3d::Zero());
    for (const TissueTet& tet : model.tets) {
      Matrix3d rest, now;
      for (int c = 0; c < 3; ++c) {
        rest.col(c) = Vector3d(model.rest_m[tet.vertices[c + 1]].data()) - Vector3d(model.rest_m[tet.vertices[0]].data());
        now.col(c) = at[tet.vertices[c + 1]] - at[tet.vertices[0]];
      }
      const Matrix3d inverse = rest.inverse();
      const Matrix3d f = now * inverse;
      const double mu = tet.mu_pa, j = f.determinant();
      const Matrix3d stress = mu * f + ((tet.lambda_pa + mu) * (j - 1) - mu) * j * f.inverse().transpose();
      for (int c = 0; c < 3; ++c) {
        const Vector3d force = -rest.determinant() / 6 * stress * inverse.row(c).transpose();
        sum[tet.vertices[c + 1]] += force;
        sum[tet.vertices[0]] -= force;
      }
    }
    for (size_t v = 0; v < at.size(); ++v) {
      sum[v] -= stages->layout.mass_kg[stages->layout.solver_index[v]] / (kDt * kDt) * (at[v] - at_y[v]);
    }
    return sum;
  };
  const std::vector<Vector3d> of_displaced = forces_at(displaced), of_rounded = forces_at(rounded);
  double weight_sq = 0, error_sq = 0, rounding_sq = 0;
  for (size_t v = 0; v < x.size(); ++v) {
    if (model.fixed[v] != 0) continue;
    const SolverSlot slot = stages->layout.solver_index[v];
    const Float4& f = found[ToNumber(slot)];
    weight_sq += std::pow(9.81 * stages->layout.mass_kg[slot], 2);
    error_sq += (Vector3d(f.x, f.y, f.z) - of_displaced[v]).squaredNorm();
    rounding_sq += (of_rounded[v] - of_displaced[v]).squaredNorm();
  }
  printf("of weights: error of forces %.2g, what rounding positions does %.2g\n", std::sqrt(error_sq / weight_sq),
         std::sqrt(rounding_sq / weight_sq));
  EXPECT_LT(std::sqrt(error_sq / weight_sq), 3e-4);
  EXPECT_GT(std::sqrt(rounding_sq / weight_sq), 3e-3);
}

TEST_F(CoarseCorrectionTest, ForcesAndMovesAreThoseOfTheHost) {
  const TissueModel model = Cantilever(k2500, kTissue);
  PALPATE_TEST_ASSIGN(const std::unique_ptr<Stages> stages, Make(model, 100));
  std::vector<Vector3d> x = RestOf(model);
  const std::vector<Vector3d> y = x;
  for (Vector3d& p : x) p = Eigen::AngleAxisd(6 * p.x(), Vector3d(0, 1, 0).normalized()) * p;  // bent by a radian
  Write(*stages, x, y);
  PALPATE_ASSERT_OK(stages->correction->Begin(queue(), stages->tissue));
  PALPATE_ASSERT_OK(stages->correction->Correct(queue(), stages->tissue, stages->tools, stages->sweeps).status());
  const CoarseLattice& lattice = stages->correction->lattice();
  const CoarseWeights& weights = stages->correction->weights();
  const CoarsePart& part = lattice.parts[0];
  const std::vector<Float4> forces = Read(stages->correction->forces());
  const std::vector<Float4> rotations = Read(stages->correction->rotations());
  const std::vector<float> node_forces = Read(stages->correction->node_forces());
  VectorXd expected(3 * part.node_count);
  double most_turned = 0;
  for (uint32_t node = 0; node < part.node_count; ++node) {
    Vector3d sum = Vector3d::Zero();
    for (uint32_t e = weights.node_begins[node]; e < weights.node_begins[node + 1]; ++e) {
      const Float4& f = forces[weights.entry_vertex[e]];
      sum += weights.entry_weight[e] * Vector3d(f.x, f.y, f.z);
    }
    const Float4& q = rotations[weights.node_frame[node]];
    ASSERT_NEAR(q.x * q.x + q.y * q.y + q.z * q.z + q.w * q.w, 1, 1e-5);
    most_turned = std::max(most_turned, 2 * std::acos(std::min(1.0, std::abs(static_cast<double>(q.w)))));
    expected.segment<3>(3 * node) = Rotate({-q.x, -q.y, -q.z, q.w}, sum);
  }
  EXPECT_NEAR(most_turned, 1.5, 0.6) << "the tip of the bent bar";
  const double largest = expected.cwiseAbs().maxCoeff();
  ASSERT_GT(largest, 0);
  for (Eigen::Index k = 0; k < expected.size(); ++k) EXPECT_NEAR(node_forces[static_cast<size_t>(k)], expected[k], 1e-4 * largest) << k;
  VectorXd node_moves(expected.size());
  for (Eigen::Index r = 0; r < expected.size(); ++r) {
    double sum = 0;
    for (Eigen::Index c = 0; c < expected.size(); ++c) {
      sum += static_cast<double>(lattice.inverse[static_cast<size_t>(r * part.row_floats + c)]) * expected[c];
    }
    node_moves[r] = sum;
  }
  const std::vector<Float4> moves = Read(stages->correction->moves());
  const double longest = node_moves.cwiseAbs().maxCoeff();
  for (uint32_t s = 0; s < stages->layout.vertex_count; ++s) {
    Vector3d move = Vector3d::Zero();
    for (uint32_t c = 0; c < kCoarseCorners; ++c) {
      const uint32_t node = weights.vertex_nodes[s * kCoarseCorners + c];
      move += weights.vertex_weights[s * kCoarseCorners + c] * Rotate(rotations[weights.node_frame[node]], node_moves.segment<3>(3 * node));
    }
    ASSERT_LT((move - Vector3d(moves[s].x, moves[s].y, moves[s].z)).norm(), 1e-3 * longest) << s;
  }
}

TEST_F(CoarseCorrectionTest, ACorrectionLowersTheEnergy) {
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal;
  // The bulk modulus is 3.3 times Young's. Beyond 20 times that, a volume is kept by multipliers, which are no energy.
  for (const auto& [young, kept_pa] : {std::pair(1e3, 0.0), {1e5, 0.0}, {1e6, 0.0}, {1e3, 5e4}, {1e5, 1e6}}) {
    TissueModel model = Cantilever(k2500, {.young_modulus_pa = young, .poisson_ratio = 0.45});
    if (kept_pa > 0) KeepVolume(&model, kept_pa);
    PALPATE_TEST_ASSIGN(const std::unique_ptr<Stages> stages, Make(model, 120));
    for (const double turn : {0.0, 2.0}) {
      for (const double noise_m : {0.0, 3e-4}) {
        SCOPED_TRACE(testing::Message() << young << " Pa, volume kept by " << kept_pa << " Pa, turned by " << turn << ", noise "
                                        << noise_m);
        std::vector<Vector3d> x = RestOf(model);
        const Eigen::AngleAxisd whole(turn, Vector3d(1, 2, -1).normalized());
        for (size_t v = 0; v < x.size(); ++v) {
          const Eigen::AngleAxisd bend(2 * x[v].x(), Vector3d(0, 1, 0));
          x[v] = whole * Vector3d(bend * x[v]);
          if (model.fixed[v] == 0) x[v] += noise_m * Vector3d(normal(random), normal(random), normal(random));
        }
        std::vector<Vector3d> y = x;
        for (Vector3d& target : y) target += Vector3d(0, 0, -9.81 * kDt * kDt);
        Write(*stages, x, y);
        PALPATE_ASSERT_OK(stages->correction->Begin(queue(), stages->tissue));
        double before = EnergyOf(model, stages->layout, x, y);
        const double first = before;
        for (int k = 0; k < 3; ++k) {
          PALPATE_ASSERT_OK(stages->correction->Correct(queue(), stages->tissue, stages->tools, stages->sweeps).status());
          const double share = Read(stages->correction->share())[0];
          const double after = EnergyOf(model, stages->layout, Positions(*stages), y);
          EXPECT_GE(share, k == 0 ? 1e-3 : 0) << "later ones may find nothing to gain";
          EXPECT_LT(after, before + 1e-6 * first) << "correction " << k << " by " << share;
          before = after;
        }
        EXPECT_LT(before, 0.99 * first);
      }
    }
  }
}

// Two bodies of three keep their volume. Moves are those of P' H P with the matrix of rank one that each volume adds.
TEST_F(CoarseCorrectionTest, MovesKnowOfKeptVolumes) {
  const TissueModel bar = Cantilever({6, 3, 3}, kTissue);
  TissueModel model = SceneOf({bar, bar, bar}, false);
  const size_t count = bar.rest_m.size();
  for (size_t v = 0; v < model.rest_m.size(); ++v) model.rest_m[v][1] += 0.1 * static_cast<double>(v / count);
  model.volume_stiffness_pa = {1e5, 0, 3e4};  // below 20 times the bulk modulus
  PALPATE_TEST_ASSIGN(const std::unique_ptr<Stages> stages, Make(model, 60));
  std::vector<Vector3d> x = RestOf(model);
  const std::vector<Vector3d> y = x;
  for (size_t v = 0; v < x.size(); ++v) {
    const Vector3d grown(x[v].x(), x[v].y(), x[v].z() * (1 + x[v].x()));
    x[v] = Eigen::AngleAxisd(4 * x[v].x(), Vector3d(0, 1, 0)) * grown;
  }
  Write(*stages, x, y);
  PALPATE_ASSERT_OK(stages->correction->Begin(queue(), stages->tissue));
  PALPATE_ASSERT_OK(stages->correction->Correct(queue(), stages->tissue, stages->tools, stages->sweeps).status());
  const CoarseLattice& lattice = stages->correction->lattice();
  const CoarseWeights& weights = stages->correction->weights();
  ASSERT_EQ(lattice.parts.size(), 3U);
  const std::vector<Float4> forces = Read(stages->correction->forces());
  const std::vector<Float4> rotations = Read(stages->correction->rotations());
  const std::vector<Float4> moves = Read(stages->correction->moves());
  for (size_t body = 0; body < 3; ++body) {
    SCOPED_TRACE(body);
    const CoarsePart& part = lattice.parts[lattice.vertex_part[body * count]];
    const auto n = static_cast<Eigen::Index>(3 * part.node_count);
    MatrixXd inverse(n, n);
    for (Eigen::Index r = 0; r < n; ++r) {
      for (Eigen::Index c = 0; c < n; ++c)
        inverse(r, c) = lattice.inverse[part.inverse_begin + static_cast<size_t>(r * part.row_floats + c)];
    }
    const auto turned = [&](uint32_t node, const Vector3d& v) {
      const Float4& q = rotations[weights.node_frame[part.node_begin + node]];
      return Rotate({-q.x, -q.y, -q.z, q.w}, v);
    };
    const uint32_t first = model.body_triangle_begin[body], end = model.body_triangle_begin[body + 1];
    std::vector<Vector3d> gradient(x.size(), Vector3d::Zero());
    const double excess_m3 = VolumeOf(model, x, first, end, &gradient) - VolumeOf(model, RestOf(model), first, end, nullptr);
    EXPECT_GT(excess_m3, 0.03 * VolumeOf(model, x, first, end, nullptr));
    std::vector<Vector3d> gradient_of_slot(stages->layout.vertex_count, Vector3d::Zero());
    for (size_t v = 0; v < x.size(); ++v) gradient_of_slot[ToNumber(stages->layout.solver_index[v])] = gradient[v];
    VectorXd f = VectorXd::Zero(n), a = VectorXd::Zero(n);
    for (uint32_t node = 0; node < part.node_count; ++node) {
      for (uint32_t e = weights.node_begins[part.node_begin + node]; e < weights.node_begins[part.node_begin + node + 1]; ++e) {
        const uint32_t slot = weights.entry_vertex[e];
        f.segment<3>(3 * node) += weights.entry_weight[e] * turned(node, Vector3d(forces[slot].x, forces[slot].y, forces[slot].z));
        a.segment<3>(3 * node) += weights.entry_weight[e] * turned(node, gradient_of_slot[slot]);
      }
    }
    const double stiffness = model.volume_stiffness_pa[body] / VolumeOf(model, RestOf(model), first, end, nullptr);
    const VectorXd plain = inverse * f;
    const VectorXd node_moves = (inverse.inverse() + stiffness * a * a.transpose()).llt().solve(f);
    if (stiffness > 0) {
      EXPECT_GT((node_moves - plain).norm(), 0.1 * plain.norm()) << "it makes a difference";
    }
    const double longest = node_moves.cwiseAbs().maxCoeff();
    for (size_t v = body * count; v < (body + 1) * count; ++v) {
      const uint32_t slot = ToNumber(stages->layout.solver_index[v]);
      Vector3d move = Vector3d::Zero();
      for (uint32_t c = 0; c < kCoarseCorners; ++c) {
        const uint32_t node = weights.vertex_nodes[slot * kCoarseCorners + c];
        const double weight = weights.vertex_weights[slot * kCoarseCorners + c];
        if (weight > 0) move += weight * Rotate(rotations[weights.node_frame[node]], node_moves.segment<3>(3 * (node - part.node_begin)));
      }
      ASSERT_LT((move - Vector3d(moves[slot].x, moves[slot].y, moves[slot].z)).norm(), 3e-3 * longest) << v;
    }
  }
}

// A body that keeps its volume, and has nothing to do, changes nothing of how far another goes.
TEST_F(CoarseCorrectionTest, KeptVolumesLeaveOtherBodiesTheirLine) {
  const TissueModel bar = Cantilever({6, 3, 3}, kTissue);
  std::vector<float> alone;
  for (const bool beside : {false, true}) {
    TissueModel model = beside ? SceneOf({bar, bar}, false) : bar;
    const size_t count = bar.rest_m.size();
    for (size_t v = 0; v < model.rest_m.size(); ++v) model.rest_m[v][1] += 0.1 * static_cast<double>(v / count);
    if (beside) model.volume_stiffness_pa = {0, 1e5};
    PALPATE_TEST_ASSIGN(const std::unique_ptr<Stages> stages, Make(model, beside ? 60 : 30));
    std::vector<Vector3d> x = RestOf(model);
    const std::vector<Vector3d> y = x;
    for (size_t v = 0; v < count; ++v) x[v] = Eigen::AngleAxisd(3 * x[v].x(), Vector3d(0, 1, 0)) * x[v];
    Write(*stages, x, y);
    PALPATE_ASSERT_OK(stages->correction->Begin(queue(), stages->tissue));
    PALPATE_ASSERT_OK(stages->correction->Correct(queue(), stages->tissue, stages->tools, stages->sweeps).status());
    const std::vector<float> share = Read(stages->correction->share());
    if (!beside) {
      alone = share;
      EXPECT_LT(std::abs(alone[1]), 0.7) << "the force along the moves falls";
      continue;
    }
    for (size_t k = 0; k < 2; ++k) EXPECT_NEAR(share[k], alone[k], 2e-3) << k;
  }
}

// A bar that begins to fall, its lower side in touch with a plane.
TEST_F(CoarseCorrectionTest, WhatAContactHoldsStays) {
  const TissueModel model = Cantilever(k2500, kTissue);
  const std::vector<Vector3d> rest = RestOf(model);
  double lowest = 1;
  for (const Vector3d& p : rest) lowest = std::min(lowest, p.z());
  const PlaneObstacle floor{{0, 0, 1, static_cast<float>(lowest) - 0.5F * kMargin_m}};
  PALPATE_TEST_ASSIGN(const std::unique_ptr<Stages> stages, Make(model, 120, std::span(&floor, 1)));
  std::vector<Vector3d> y = rest;
  for (Vector3d& target : y) target.z() -= 9.81 * kDt * kDt;
  Write(*stages, rest, y);
  PALPATE_ASSERT_OK(stages->correction->Begin(queue(), stages->tissue));
  PALPATE_ASSERT_OK(stages->correction->Correct(queue(), stages->tissue, stages->tools, stages->sweeps).status());
  EXPECT_GT(Read(stages->correction->share())[0], 1e-3);
  const std::vector<Float4> moves = Read(stages->correction->moves());
  const std::vector<Vector3d> x = Positions(*stages);
  size_t held = 0;
  size_t moved = 0;
  for (size_t v = 0; v < rest.size(); ++v) {
    const Float4& move = moves[ToNumber(stages->layout.solver_index[v])];
    if (model.fixed[v] != 0) continue;
    if (rest[v].z() < lowest + 0.4 * kMargin_m) {
      ++held;
      EXPECT_EQ(std::abs(move.x) + std::abs(move.y) + std::abs(move.z), 0);
      EXPECT_LT((x[v] - rest[v]).norm(), 1e-7);
    } else {
      moved += move.z < 0 ? 1 : 0;
    }
  }
  EXPECT_GT(held, 50U);
  EXPECT_GT(moved, 5 * held / 2) << "the rest of the bar falls";
}

// With stencils: a V-cycle, next to the operator that they hold, in double.
TEST_F(CoarseCorrectionTest, SmoothedNodesComeNearTheSolution) {
  for (const double young : {1e3, 5e3, 1e6}) {
    SCOPED_TRACE(testing::Message() << young << " Pa");
    const TissueModel model = Cantilever(k10000, {.young_modulus_pa = young, .poisson_ratio = 0.45});
    PALPATE_TEST_ASSIGN(const std::unique_ptr<Stages> stages, Make(model, 1000));
    const CoarseLattice& lattice = stages->correction->lattice();
    const CoarseWeights& weights = stages->correction->weights();
    const CoarseStencils& stencils = lattice.stencils;
    ASSERT_EQ(lattice.parts.size(), 1U);
    ASSERT_TRUE(lattice.parts[0].has_stencils);
    ASSERT_EQ(stencils.nodes.size(), lattice.cells.size());
    EXPECT_LT(lattice.parts[0].solved_count, lattice.parts[0].node_count / 3);
    const auto n = static_cast<Eigen::Index>(3 * stencils.nodes.size());
    MatrixXd op = MatrixXd::Zero(n, n);
    for (size_t i = 0; i < stencils.nodes.size(); ++i) {
      for (uint32_t e = stencils.row_begins[i]; e < stencils.row_begins[i + 1]; ++e) {
        for (int c = 0; c < 3; ++c) {
          const Float4& column = stencils.blocks[3 * e + static_cast<uint32_t>(c)];
          op.block<3, 1>(static_cast<Eigen::Index>(3 * i), 3 * static_cast<Eigen::Index>(stencils.columns[e]) + c) =
              Vector3d(column.x, column.y, column.z);
        }
      }
    }
    EXPECT_LT((op - op.transpose()).norm(), 1e-6 * op.norm());
    std::vector<Vector3d> x = RestOf(model);
    std::vector<Vector3d> y = x;
    for (Vector3d& target : y) target += Vector3d(0, 2e-4 * target.x(), -9.81 * kDt * kDt);
    Write(*stages, x, y);
    PALPATE_ASSERT_OK(stages->correction->Begin(queue(), stages->tissue));
    PALPATE_ASSERT_OK(stages->correction->Correct(queue(), stages->tissue, stages->tools, stages->sweeps).status());
    const std::vector<Float4> forces = Read(stages->correction->forces());
    const std::vector<Float4> node_moves = Read(stages->correction->node_moves());
    VectorXd at_nodes = VectorXd::Zero(n), moves(n);
    for (uint32_t node = 0; node < lattice.cells.size(); ++node) {
      for (uint32_t e = weights.node_begins[node]; e < weights.node_begins[node + 1]; ++e) {
        const Float4& f = forces[weights.entry_vertex[e]];
        at_nodes.segment<3>(3 * node) += weights.entry_weight[e] * Vector3d(f.x, f.y, f.z);
      }
      moves.segment<3>(3 * node) = Vector3d(node_moves[node].x, node_moves[node].y, node_moves[node].z);
    }
    const VectorXd solution = op.ldlt().solve(at_nodes);
    const VectorXd error = moves - solution;
    const double left = std::sqrt(error.dot(op * error) / solution.dot(op * solution));
    printf("%g Pa, %zu nodes, %u solved: %.2g of the error left\n", young, lattice.cells.size(), lattice.parts[0].solved_count, left);
    EXPECT_LT(left, 0.2);
    EXPECT_GT(moves.dot(at_nodes), 0.9 * solution.dot(at_nodes));
  }
}

// A scene whose parts are solved at once, smoothed, and left out.
TEST_F(CoarseCorrectionTest, PartsOfAllKindsStandSideBySide) {
  const TissueModel large = BoxModel({30, 10, 10}, {0.3, 0.1, 0.1}, {0, 0, 0}, kTissue);
  const TissueModel small = BoxModel({4, 3, 3}, {0.04, 0.03, 0.03}, {0, 0, 0.3}, kTissue);
  const TissueModel matched = BoxModel({2, 2, 2}, {0.02, 0.02, 0.02}, {0, 0, 0.5}, {.energy = TissueEnergy::kShapeMatched});
  TissueModel scene = SceneOf({small, large, matched, small}, false);
  scene.shapes.emplace_back();
  PALPATE_TEST_ASSIGN(const std::unique_ptr<Stages> stages, Make(scene, 1000));
  const CoarseLattice& lattice = stages->correction->lattice();
  ASSERT_EQ(lattice.parts.size(), 3U);
  EXPECT_TRUE(IsConsistent(lattice, stages->model.rest_m.size()));
  EXPECT_FALSE(lattice.parts[0].has_stencils);
  EXPECT_TRUE(lattice.parts[1].has_stencils);
  EXPECT_FALSE(lattice.parts[2].has_stencils);
  // A push along y on all of it: every part moves by the same, as if it were alone.
  const std::vector<Vector3d> x = RestOf(stages->model);
  std::vector<Vector3d> y = x;
  for (Vector3d& target : y) target.y() += 1e-3;
  Write(*stages, x, y);
  PALPATE_ASSERT_OK(stages->correction->Begin(queue(), stages->tissue));
  PALPATE_ASSERT_OK(stages->correction->Correct(queue(), stages->tissue, stages->tools, stages->sweeps).status());
  const std::vector<Float4> moves = Read(stages->correction->moves());
  for (size_t v = 0; v < x.size(); ++v) {
    const Float4& move = moves[ToNumber(stages->layout.solver_index[v])];
    const double expected = lattice.vertex_part[v] == kNoCoarsePart ? 0 : 1e-3;
    ASSERT_LT(Vector3d(move.x, move.y - expected, move.z).norm(), 5e-5) << v;
  }
}

TEST_F(CoarseCorrectionTest, DamagedLatticesAreNotConsistent) {
  const TissueModel model = Cantilever(k10000, kTissue);
  PALPATE_TEST_ASSIGN(const TissueLayout layout, LayOutTissue(model, kDt, 1));
  const CoarseLattice sound = BuildCoarseLattice(model, layout, kDt, 1000);
  ASSERT_TRUE(IsConsistent(sound, model.rest_m.size()));
  EXPECT_FALSE(IsConsistent(sound, model.rest_m.size() + 1));
  const std::vector<void (*)(CoarseLattice&)> damages = {
      [](CoarseLattice& l) { l.cells.pop_back(); },
      [](CoarseLattice& l) { l.inverse.pop_back(); },
      [](CoarseLattice& l) { l.parts[0].row_floats += 8; },
      [](CoarseLattice& l) { l.parts[0].solved_begin = 1; },
      [](CoarseLattice& l) { l.vertex_part[5] = 1; },
      [](CoarseLattice& l) { l.stencils.columns[7] = static_cast<uint32_t>(l.stencils.nodes.size()); },
      [](CoarseLattice& l) { l.stencils.row_begins[3] = 0; },
      [](CoarseLattice& l) { l.stencils.parents[9] = l.SolvedCount(); },
      [](CoarseLattice& l) { l.stencils.children.pop_back(); },
      [](CoarseLattice& l) { l.stencils.nodes[0] = static_cast<uint32_t>(l.cells.size()); },
      [](CoarseLattice& l) { l.stencils.blocks.pop_back(); }};
  for (size_t k = 0; k < damages.size(); ++k) {
    CoarseLattice damaged = sound;
    damages[k](damaged);
    EXPECT_FALSE(IsConsistent(damaged, model.rest_m.size())) << k;
  }
}

class CoarseSolverTest : public test::DeviceTest {
 protected:
  absl::StatusOr<std::unique_ptr<TissueSolver>> Make(const TissueModel& model, const TissueOptions& options) {
    return TissueSolver::Create(context(), model, options, {}, {}, TissueTuning::For(context()->device()));
  }
};

TEST_F(CoarseSolverTest, SameCallsGiveTheSameBits) {
  const TissueModel model = Cantilever({8, 4, 4}, kTissue);
  std::vector<uint64_t> hashes[4];
  const TissueOptions runs[4] = {{.dt_s = kDt, .coarse_nodes = 50},
                                 {.dt_s = kDt, .coarse_nodes = 50},
                                 {.dt_s = kDt, .coarse_nodes = 50, .tolerance_m_per_s2 = 1e-9},
                                 {.dt_s = kDt}};
  for (int run = 0; run < 4; ++run) {
    PALPATE_TEST_ASSIGN(const std::unique_ptr<TissueSolver> solver, Make(model, runs[run]));
    for (int i = 0; i < 6; ++i) {
      PALPATE_TEST_ASSIGN(const TissueStep step, solver->Step({}));
      hashes[run].push_back(step.hash);
    }
  }
  EXPECT_EQ(hashes[0], hashes[1]);
  EXPECT_EQ(hashes[0], hashes[2]) << "a tolerance that is never met changes nothing";
  EXPECT_NE(hashes[0], hashes[3]) << "corrections do something";
}

// A body that falls and turns feels no force within, and a correction must not make one.
TEST_F(CoarseSolverTest, FreeFallStaysFreeFall) {
  TissueModel model = BoxModel({6, 3, 3}, {0.12, 0.06, 0.06}, {0, 0, 0}, {.young_modulus_pa = 1e5});
  PALPATE_TEST_ASSIGN(const std::unique_ptr<TissueSolver> solver, Make(model, {.dt_s = 0.01, .coarse_nodes = 60}));
  for (int n = 1; n <= 30; ++n) {
    PALPATE_ASSERT_OK(solver->Step({}).status());
    std::vector<float> x(3 * model.rest_m.size());
    PALPATE_ASSERT_OK(solver->ReadPositions(x));
    const Vector3d shift(0, 0, -9.81 * 0.01 * 0.01 * n * (n + 1) / 2);
    for (size_t v = 0; v < model.rest_m.size(); ++v) {
      const Vector3d moved = Vector3d(x[3 * v], x[3 * v + 1], x[3 * v + 2]) - Vector3d(model.rest_m[v].data());
      ASSERT_LT((moved - shift).norm(), 2e-6 + 3e-7 * n) << "step " << n << ", vertex " << v;
    }
  }
}

// Corrections go the way of all moves between detections.
TEST_F(CoarseSolverTest, BodiesThatMeetStayApart) {
  for (const double speed : {0.5, 5.0}) {
    SCOPED_TRACE(testing::Message() << speed << " m/s");
    const TestMaterial soft{.young_modulus_pa = 10000, .damping_s = 0.002};
    const TissueModel left = BoxModel({4, 4, 4}, {0.04, 0.04, 0.04}, {0, 0, 0}, soft);
    const TissueModel model = SceneOf({left, BoxModel({4, 4, 4}, {0.04, 0.04, 0.04}, {0.044, 0.003, 0.005}, soft)}, true);
    PALPATE_TEST_ASSIGN(const std::unique_ptr<TissueSolver> solver,
                        Make(model, {.dt_s = kDt, .gravity_m_per_s2 = {0, 0, 0}, .coarse_nodes = 100, .check_intersections = true}));
    std::vector<float> x, velocity;
    for (size_t v = 0; v < model.rest_m.size(); ++v) {
      for (size_t k = 0; k < 3; ++k) {
        x.push_back(static_cast<float>(model.rest_m[v][k]));
        velocity.push_back(k == 0 && v < left.rest_m.size() ? static_cast<float>(speed) : 0);
      }
    }
    PALPATE_ASSERT_OK(solver->WriteState(x, velocity));
    uint32_t most_acting = 0;
    double momentum = 0;
    for (int i = 0; i < 30; ++i) {
      const std::vector<float> before = x;
      PALPATE_TEST_ASSIGN(const TissueStep step, solver->Step({}));
      ASSERT_EQ(step.bad_vertices, 0U);
      ASSERT_EQ(step.surface.intersections, 0U) << "step " << i;
      PALPATE_ASSERT_OK(solver->ReadPositions(x));
      std::vector<Vector3d> at;
      momentum = 0;
      for (size_t v = 0; v < model.rest_m.size(); ++v) {
        at.emplace_back(x[3 * v], x[3 * v + 1], x[3 * v + 2]);
        momentum += solver->layout().mass_kg[solver->layout().solver_index[v]] * (x[3 * v] - before[3 * v]) / kDt;
      }
      ASSERT_EQ(CountIntersections(model.surface_triangles, at), 0U) << "step " << i;
      most_acting = std::max(most_acting, step.surface.acting);
    }
    EXPECT_GT(most_acting, 10U);
    EXPECT_NEAR(momentum, 0.064 * speed, 2e-3 * 0.064 * speed);
  }
}

// With a tolerance a step ends once it is solved well enough: at rest after the first sweep.
class CoarseToleranceTest : public CoarseSolverTest, public testing::WithParamInterface<double> {};

INSTANTIATE_TEST_SUITE_P(Kept, CoarseToleranceTest, testing::Values(0, 1e5, 1e7));

TEST_P(CoarseToleranceTest, SweepsEndWhereItIsMet) {
  TissueModel model = Cantilever({8, 4, 4}, {.young_modulus_pa = 20000, .mass_damping_per_s = 30});
  if (GetParam() > 0) KeepVolume(&model, GetParam());
  std::vector<uint32_t> sweeps;
  std::vector<float> x[2];
  for (const double tolerance : {0.0, 0.02}) {
    PALPATE_TEST_ASSIGN(const std::unique_ptr<TissueSolver> solver,
                        Make(model, {.dt_s = kDt, .acceleration = 0.85, .coarse_nodes = 4096, .tolerance_m_per_s2 = tolerance}));
    for (int i = 0; i < 240; ++i) {
      PALPATE_TEST_ASSIGN(const TissueStep step, solver->Step({}));
      if (tolerance > 0) {
        sweeps.push_back(step.sweeps);
        EXPECT_TRUE(step.sweeps == 20 || step.sweeps % 5 == 1) << step.sweeps;
      } else {
        ASSERT_EQ(step.sweeps, 20U);
      }
    }
    std::vector<float>& out = x[tolerance > 0 ? 1 : 0];
    out.resize(3 * model.rest_m.size());
    PALPATE_ASSERT_OK(solver->ReadPositions(out));
  }
  EXPECT_GT(sweeps.front(), 1U) << "it begins to fall";
  EXPECT_EQ(sweeps.back(), 1U) << "it is at rest";
  for (size_t k = 0; k < x[0].size(); ++k) ASSERT_NEAR(x[0][k], x[1][k], 1e-4) << k;
}

// Residual of a step of the swinging bar over that at its start, by the number of tets and Young's modulus.
class CoarseResidualTest : public test::DeviceTest {
 protected:
  void Measure(const TissueModel& model, uint32_t nodes, std::vector<double>* residuals) {
    const TissueOptions options{.dt_s = kDt, .acceleration = 0.85, .coarse_nodes = nodes};
    PALPATE_TEST_ASSIGN(const std::unique_ptr<TissueSolver> solver,
                        TissueSolver::Create(context(), model, options, {}, {}, TissueTuning::For(context()->device())));
    for (int i = 0; i < 3; ++i) PALPATE_ASSERT_OK(solver->Step({}).status());
    PALPATE_TEST_ASSIGN(*residuals, solver->StepMeasuringResidual({}));
    ASSERT_EQ(residuals->size(), size_t{options.iterations} + 1);
  }
  void ExpectAThousandth(std::array<uint32_t, 3> cells, double young_modulus_pa) {
    SCOPED_TRACE(testing::Message() << 6 * cells[0] * cells[1] * cells[2] << " tets of " << young_modulus_pa << " Pa");
    const TissueModel model = Cantilever(cells, {.young_modulus_pa = young_modulus_pa, .poisson_ratio = 0.45, .damping_s = 0.005});
    const TissueOptions options{.dt_s = kDt, .iterations = 60, .acceleration = 0.85, .coarse_nodes = 4096, .tolerance_m_per_s2 = 0.0015};
    PALPATE_TEST_ASSIGN(const std::unique_ptr<TissueSolver> solver,
                        TissueSolver::Create(context(), model, options, {}, {}, TissueTuning::For(context()->device())));
    for (int i = 0; i < 3; ++i) PALPATE_ASSERT_OK(solver->Step({}).status());
    PALPATE_TEST_ASSIGN(const std::vector<double> residuals, solver->StepMeasuringResidual({}));
    printf("%u tets, %g Pa: %.2g after %zu sweeps\n", 6 * cells[0] * cells[1] * cells[2], young_modulus_pa, residuals.back() / residuals[0],
           residuals.size() - 1);
    EXPECT_LT(residuals.back(), 1e-3 * residuals[0]);
  }
  /// kept_pa: of the volume of all of it, 0: none.
  void Compare(std::array<uint32_t, 3> cells, double young_modulus_pa, double most, double gain, double kept_pa = 0) {
    SCOPED_TRACE(testing::Message() << 6 * cells[0] * cells[1] * cells[2] << " tets of " << young_modulus_pa << " Pa, " << kept_pa);
    TissueModel model = Cantilever(cells, {.young_modulus_pa = young_modulus_pa, .poisson_ratio = 0.45});
    if (kept_pa > 0) KeepVolume(&model, kept_pa);
    std::vector<double> plain, corrected;
    Measure(model, 0, &plain);
    Measure(model, 4096, &corrected);
    ASSERT_FALSE(plain.empty() || corrected.empty());
    const double left = corrected.back() / corrected[0];
    printf("%u tets, %g Pa, volume kept by %g Pa: %.2g without, %.2g with\n", 6 * cells[0] * cells[1] * cells[2], young_modulus_pa, kept_pa,
           plain.back() / plain[0], left);
    EXPECT_LT(left, most);
    EXPECT_LT(left, gain * plain.back() / plain[0]);
  }
};

TEST_F(CoarseResidualTest, FallsWhateverTheSize) {
  Compare(k2500, 5000, 1e-3, 0.05);
  Compare(k10000, 5000, 3e-3, 0.05);
  Compare(k10000, 30000, 1e-2, 0.02);
  Compare(k10000, 1e6, 3e-2, 0.1);
}

TEST_F(CoarseResidualTest, FallsWhereVolumesAreKeptToo) {
  Compare(k2500, 5000, 1e-3, 0.05, 1e5);
  Compare(k10000, 5000, 3e-3, 0.05, 1e5);
  Compare(k10000, 5000, 3e-3, 0.5, 1e7);  // most of the residual at the start is of a volume that a predicted move changes
  Compare(k10000, 30000, 1e-2, 0.02, 1e6);
}

// With the same settings at all sizes, from 1 kPa to 1 MPa: a tolerance ends the sweeps, and 60 are the most.
TEST_F(CoarseResidualTest, AThousandthIsLeftOfStiffBodiesToo) {
  for (const auto& cells : {k2500, k10000}) {
    for (const double young_modulus_pa : {1e3, 3e4, 2e5, 1e6}) ExpectAThousandth(cells, young_modulus_pa);
  }
}

TEST_F(CoarseResidualTest, SlowAThousandthIsLeftOfLargeBodiesToo) {
  for (const auto& cells : {k50000, k200000}) {
    for (const double young_modulus_pa : {1e3, 1e6}) ExpectAThousandth(cells, young_modulus_pa);
  }
}

// A state that is written again is the same state, whatever displacements were before.
TEST_F(CoarseSolverTest, StiffTissueBeginsAnewAfterAReset) {
  const TissueModel model = Cantilever({8, 4, 4}, {.young_modulus_pa = 2e6});
  PALPATE_TEST_ASSIGN(const std::unique_ptr<TissueSolver> solver, Make(model, {.dt_s = kDt, .iterations = 7, .coarse_nodes = 50}));
  ASSERT_TRUE(solver->layout().IsDisplaced());
  std::vector<float> x;
  std::vector<uint64_t> hashes[4];
  for (int run = 0; run < 4; ++run) {
    if (run == 1) PALPATE_ASSERT_OK(solver->Reset());
    if (run == 2) {
      x.resize(3 * model.rest_m.size());
      PALPATE_ASSERT_OK(solver->ReadPositions(x));
    }
    if (run >= 2) PALPATE_ASSERT_OK(solver->WriteState(x));
    for (int i = 0; i < 4; ++i) {
      PALPATE_TEST_ASSIGN(const TissueStep step, solver->Step({}));
      hashes[run].push_back(step.hash);
    }
  }
  EXPECT_EQ(hashes[0], hashes[1]);
  EXPECT_EQ(hashes[2], hashes[3]);
  EXPECT_NE(hashes[0], hashes[2]);
}

// Moves of nodes are straight: of a slender body that turns far in a step they stretch it, and the force along them falls late on the way.
TEST_F(CoarseSolverTest, SlenderBodiesHangInLargeStepsAsNewtonsMethodFindsThem) {
  TissueModel model = BoxModel({40, 4, 4}, {0.2, 0.02, 0.02}, {0, 0, 0}, {.young_modulus_pa = 5e5, .poisson_ratio = 0.45});
  OracleBody body;
  body.young_modulus_pa = 5e5;
  body.poisson_ratio = 0.45;
  body.density_kg_per_m3 = 1000;
  for (const auto& r : model.rest_m) body.rest_m.emplace_back(r[0], r[1], r[2]);
  for (const TissueTet& tet : model.tets) body.tets.push_back(tet.vertices);
  NewtonStatics oracle(body);
  for (size_t v = 0; v < model.rest_m.size(); ++v) {
    model.fixed[v] = model.rest_m[v][0] == 0;
    oracle.load_n[v] = {0, 0, -9.81 * oracle.mass_kg[v]};
    for (int axis = 0; axis < 3; ++axis) oracle.held[3 * v + axis] = model.fixed[v];
  }
  EXPECT_LT(oracle.Solve(60, 1e-8), 1e-8);
  const TissueOptions options{.dt_s = 0.1, .iterations = 100, .acceleration = 0.85, .coarse_nodes = 1000};
  PALPATE_TEST_ASSIGN(const std::unique_ptr<TissueSolver> solver,
                      TissueSolver::Create(context(), model, options, {}, {}, TissueTuning::For(context()->device())));
  for (int i = 0; i < 40; ++i) PALPATE_ASSERT_OK(solver->Step({}).status());
  std::vector<float> x(3 * model.rest_m.size());
  PALPATE_ASSERT_OK(solver->ReadPositions(x));
  double worst_m = 0, sag_m = 0;
  for (size_t v = 0; v < model.rest_m.size(); ++v) {
    worst_m = std::max(worst_m, (Vector3d(x[3 * v], x[3 * v + 1], x[3 * v + 2]) - oracle.x_m[v]).norm());
    sag_m = std::max(sag_m, body.rest_m[v].z() - oracle.x_m[v].z());
  }
  EXPECT_GT(sag_m, 0.03) << "it turns far";
  EXPECT_LT(worst_m, 1e-3 * sag_m);
}

TEST_F(CoarseResidualTest, SlowFallsWhateverTheSize) {
  Compare(k50000, 5000, 1e-2, 0.02);
  Compare(k50000, 30000, 1e-2, 0.02);
  Compare(k200000, 5000, 1e-2, 0.02);
}

}  // namespace
}  // namespace palpate::gpu::coarse_correction_test
