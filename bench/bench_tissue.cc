// Elasticity alone, without contact: how fast the device's sweeps reduce the residual of an implicit step, next to Newton's method of Eigen
// on the host to the same residual; the explicit tensor-mass model with its stable step; convergence of its update orders;
// shape-matched bodies against elastic ones; what coarse corrections change; a long free flight.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numbers>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "bench/bench_support.h"
#include "gpu/dynamics/tissue_solver.h"
#include "gpu/runtime/context.h"
#include "gpu/shared/energies.h"
#include "sim/mesh/generators.h"
#include "sim/quasistatic/contact_response.h"
#include "sim/quasistatic/precomputed_model.h"
#include "sim/reference/newton.h"
#include "sim/reference/tensor_mass.h"
#include "sim/scene/material.h"

namespace palpate::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Eigen::Vector3d;

constexpr double kLength_m = 0.2;
constexpr double kStep_s = 1.0 / 120;
constexpr double kGravity_m_per_s2 = 9.81;
constexpr double kTargets[] = {0.1, 0.01, 0.001};  // of the residual at the start
constexpr uint32_t kCoarseNodes = 4096;
constexpr double kCorrectedAcceleration = 0.85;
constexpr uint32_t kMostSweeps = 60;
constexpr double kTolerance_m_per_s2 = 0.0015;
constexpr int kShownPasses[] = {1, 2, 5, 10, 20, 50, 100, 200};

double MillisecondsSince(Clock::time_point begin) { return std::chrono::duration<double, std::milli>(Clock::now() - begin).count(); }

/// A liver held at its lower part.
struct Organ {
  sim::TetMesh mesh;
  std::vector<uint8_t> fixed;
  double low_m = 1e9, high_m = -1e9;
};

absl::StatusOr<Organ> MakeOrgan(double tet_count) {
  Organ organ;
  PALPATE_ASSIGN_OR_RETURN(organ.mesh, sim::GenerateLiver(kLength_m, sim::LiverEdgeLengthForTets(kLength_m, tet_count)));
  for (const Vector3d& v : organ.mesh.vertices) {
    organ.low_m = std::min(organ.low_m, v.z());
    organ.high_m = std::max(organ.high_m, v.z());
  }
  for (const Vector3d& v : organ.mesh.vertices) organ.fixed.push_back(v.z() < organ.low_m + 0.4 * (organ.high_m - organ.low_m) ? 1 : 0);
  return organ;
}

absl::StatusOr<std::vector<sim::ElasticTet>> TetsOf(const Organ& organ, sim::MaterialModel model) {
  sim::Material material;
  material.model = model;
  material.damping_s = 0;
  PALPATE_ASSIGN_OR_RETURN(sim::ElasticTet tet, sim::ElasticTetOf(material));
  std::vector<sim::ElasticTet> tets;
  for (const auto& vertices : organ.mesh.tets) {
    tet.vertices = vertices;
    tets.push_back(tet);
  }
  return tets;
}

/// The first time at which a curve of residuals is at or below a value; -1 if never.
double TimeTo(const std::vector<double>& residual_n, const std::vector<double>& time_ms, double value) {
  for (size_t k = 0; k < residual_n.size(); ++k) {
    if (residual_n[k] <= value) return time_ms[k];
  }
  return -1;
}

/// The faster of Eigen's Newton-CG solves of a step on the host, and where its time went.
struct HostSolve {
  sim::NewtonResult newton;
  std::string name;
};

/// One implicit step of an organ that was pulled a tenth longer upwards and is let go.
absl::Status CompareStep(std::shared_ptr<gpu::Context> context, const Organ& organ, sim::MaterialModel energy, const std::string& name,
                         Report* report) {
  PALPATE_ASSIGN_OR_RETURN(const std::vector<sim::ElasticTet> tets, TetsOf(organ, energy));
  gpu::TissueModel model;
  for (const sim::ElasticTet& tet : tets) model.tets.push_back(sim::TissueOf(tet));
  model.fixed = organ.fixed;
  std::vector<float> start;
  const double bottom_m = organ.low_m + 0.4 * (organ.high_m - organ.low_m);
  PALPATE_ASSIGN_OR_RETURN(const sim::ReferenceBody body, sim::ReferenceBody::Create(organ.mesh.vertices, tets, organ.fixed));
  Eigen::VectorXd x = body.Rest();
  for (size_t v = 0; v < organ.mesh.vertices.size(); ++v) {
    const Vector3d& rest = organ.mesh.vertices[v];
    model.rest_m.push_back({rest.x(), rest.y(), rest.z()});
    const double z = rest.z() + (organ.fixed[v] != 0 ? 0 : 0.1 * (rest.z() - bottom_m));
    x[static_cast<Eigen::Index>(3 * v + 2)] = static_cast<float>(z);
    for (const double value : {rest.x(), rest.y(), z}) start.push_back(static_cast<float>(value));
  }
  const size_t default_sweeps = gpu::TissueOptions{}.iterations;
  gpu::TissueOptions options;
  options.dt_s = kStep_s;
  options.iterations = IsQuick() ? 40 : 200;
  const gpu::TissueTuning tuning = gpu::TissueTuning::For(context->device());
  PALPATE_ASSIGN_OR_RETURN(auto solver, gpu::TissueSolver::Create(context, model, options, {}, {}, tuning));
  PALPATE_RETURN_IF_ERROR(solver->WriteState(start));
  PALPATE_ASSIGN_OR_RETURN(const std::vector<double> residual_n, solver->StepMeasuringResidual({}));
  // Sweeps are not equally long (those of a corotated body search its rotations), so each number of them is timed by itself.
  const auto time_sweeps = [&](size_t sweeps) -> absl::StatusOr<double> {
    gpu::TissueOptions some = options;
    some.iterations = static_cast<uint32_t>(sweeps);
    PALPATE_ASSIGN_OR_RETURN(auto timed, gpu::TissueSolver::Create(context, model, some, {}, {}, tuning));
    std::vector<double> step_ms;
    for (int repetition = 0; repetition < (IsQuick() ? 3 : 15); ++repetition) {
      PALPATE_RETURN_IF_ERROR(timed->WriteState(start));
      const Clock::time_point begin = Clock::now();
      PALPATE_RETURN_IF_ERROR(timed->Step({}).status());
      if (repetition > 0) step_ms.push_back(MillisecondsSince(begin));
    }
    return Quantile(step_ms, 0.5);
  };
  report->Add(name, "tets", static_cast<double>(organ.mesh.tets.size()), "count");
  std::string curve = name + ": residual over that at the start after";
  for (const int k : kShownPasses) {
    if (static_cast<size_t>(k) < residual_n.size()) curve += absl::StrFormat(" %d sweeps %.2g;", k, residual_n[k] / residual_n[0]);
  }
  report->Note(curve);
  // A step as scenes take it.
  PALPATE_ASSIGN_OR_RETURN(const double usual_ms, time_sweeps(default_sweeps));
  const double usual_n = residual_n[default_sweeps];

  sim::NewtonProblem problem;
  problem.inv_dt_sq = 1 / (kStep_s * kStep_s);
  problem.load_n = Eigen::VectorXd::Zero(x.size());
  problem.target_m = x;
  for (Eigen::Index i = 2; i < x.size(); i += 3) problem.target_m[i] -= kStep_s * kStep_s * kGravity_m_per_s2;
  const double least_n = std::min(0.2 * kTargets[2] * residual_n[0], usual_n);
  PALPATE_ASSIGN_OR_RETURN(const sim::NewtonResult direct,
                           sim::MinimizeByNewton(body, problem, x, {.tolerance_n = least_n, .max_iterations = 100}));
  // The answer before the times: both minimise the same function.
  std::vector<float> got(start.size());
  PALPATE_RETURN_IF_ERROR(solver->ReadPositions(got));
  double worst_m = 0, moved_m = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    worst_m = std::max(worst_m, std::abs(got[i] - direct.x[static_cast<Eigen::Index>(i)]));
    moved_m = std::max(moved_m, std::abs(x[static_cast<Eigen::Index>(i)] - direct.x[static_cast<Eigen::Index>(i)]));
  }
  report->Add(name, "distance_over_motion", worst_m / moved_m, "ratio");
  if (!IsQuick() && !(worst_m < 0.05 * moved_m)) {
    return absl::InternalError(
        absl::StrFormat("%s: device and reference are %.2g m apart after a motion of %.2g m", name, worst_m, moved_m));
  }
  // The best that conjugate gradients do here: either preconditioner, linear systems solved well or just well enough.
  HostSolve best;
  for (const auto& [kind, kind_name] :
       {std::pair(sim::NewtonSolver::kConjugateGradient, "diagonal"), {sim::NewtonSolver::kIncompleteCholesky, "incomplete Cholesky"}}) {
    for (const double linear_tolerance_ratio : {0.01, 0.1}) {
      PALPATE_ASSIGN_OR_RETURN(sim::NewtonResult result, sim::MinimizeByNewton(body, problem, x,
                                                                               {.solver = kind,
                                                                                .tolerance_n = usual_n,
                                                                                .max_iterations = 100,
                                                                                .always_projects = false,
                                                                                .linear_tolerance_ratio = linear_tolerance_ratio}));
      if (!best.newton.time_ms.empty() && best.newton.time_ms.back() <= result.time_ms.back()) continue;
      best = {std::move(result), absl::StrFormat("%s, to %g of each residual", kind_name, linear_tolerance_ratio)};
    }
  }
  report->Add(name, "start_residual", residual_n[0], "N");
  report->Add(name, "step_device", usual_ms, "ms");
  report->Add(name, "step_device_residual", usual_n, "N");
  report->Add(name, "step_newton_cg", best.newton.time_ms.back(), "ms");
  report->Add(name, "step_newton_cg_linear_solves", best.newton.linear_ms.back(), "ms");  // without the matrices
  report->Add(name, "step_newton_cg_residual", best.newton.residual_n.back(), "N");
  report->Add(name, "step_newton_cg_iterations", static_cast<double>(best.newton.residual_n.size() - 1), "count");
  report->Add(name, "step_newton_direct", TimeTo(direct.residual_n, direct.time_ms, usual_n), "ms");
  report->Note(absl::StrFormat("%s: %d sweeps; Newton-CG: %s", name, default_sweeps, best.name));
  for (const double target : kTargets) {
    const std::string suffix = absl::StrFormat("_to_%g", target);
    const auto found = std::find_if(residual_n.begin(), residual_n.end(), [&](double n) { return n <= target * residual_n[0]; });
    if (found != residual_n.end()) {
      PALPATE_ASSIGN_OR_RETURN(const double device_ms, time_sweeps(static_cast<size_t>(found - residual_n.begin())));
      report->Add(name, "device" + suffix, device_ms, "ms");
    }
    report->Add(name, "newton_direct" + suffix, TimeTo(direct.residual_n, direct.time_ms, target * residual_n[0]), "ms");
  }
  return absl::OkStatus();
}

/// What a step costs with each energy, and node-smoothed: a free swing of the organ, all in turn so that each sees the same machine.
absl::Status CompareEnergies(std::shared_ptr<gpu::Context> context, const Organ& organ, const std::string& name, Report* report) {
  struct Swing {
    std::string name;
    std::unique_ptr<gpu::TissueSolver> solver;
    std::vector<double> step_ms;
  };
  std::vector<Swing> swings;
  using Model = std::tuple<sim::MaterialModel, const char*, bool>;
  for (const auto& [energy, energy_name, is_smoothed] : {
#define PALPATE_ENERGY(name, Name, api, code, text) Model(sim::MaterialModel::k##Name, #name, false),
           PALPATE_ELASTIC_ENERGIES(PALPATE_ENERGY)
#undef PALPATE_ENERGY
               Model(sim::MaterialModel::kStableNeoHookean, "neo_hookean_smoothed", true),
           Model(sim::MaterialModel::kCorotated, "corotated_smoothed", true),
       }) {
    gpu::TissueModel model;
    PALPATE_ASSIGN_OR_RETURN(const std::vector<sim::ElasticTet> tets, TetsOf(organ, energy));
    for (const sim::ElasticTet& tet : tets) model.tets.push_back(sim::TissueOf(tet));
    for (gpu::TissueTet& tet : model.tets) tet.is_smoothed = is_smoothed ? 1 : 0;
    for (const Vector3d& v : organ.mesh.vertices) model.rest_m.push_back({v.x(), v.y(), v.z()});
    model.fixed = organ.fixed;
    gpu::TissueOptions options;
    options.dt_s = kStep_s;
    PALPATE_ASSIGN_OR_RETURN(auto solver,
                             gpu::TissueSolver::Create(context, model, options, {}, {}, gpu::TissueTuning::For(context->device())));
    swings.push_back({energy_name, std::move(solver), {}});
  }
  const int steps = IsQuick() ? 10 : 120;
  for (int i = 0; i < steps; ++i) {
    for (Swing& swing : swings) {
      const Clock::time_point begin = Clock::now();
      PALPATE_RETURN_IF_ERROR(swing.solver->Step({}).status());
      if (i >= steps / 10) swing.step_ms.push_back(MillisecondsSince(begin));
    }
  }
  const double first_ms = Quantile(swings.front().step_ms, 0.5);
  for (const Swing& swing : swings) {
    const double step_ms = Quantile(swing.step_ms, 0.5);
    report->Add(name, "step_" + swing.name, step_ms, "ms");
    report->Add(name, "step_" + swing.name + "_over_" + swings.front().name, step_ms / first_ms, "ratio");
  }
  return absl::OkStatus();
}

/// The model of Forest 2003: explicit steps of an organ that is pushed at its top.
absl::Status MeasureTensorMass(const Organ& organ, const std::string& name, Report* report) {
  PALPATE_ASSIGN_OR_RETURN(const std::vector<sim::ElasticTet> tets, TetsOf(organ, sim::MaterialModel::kLinear));
  PALPATE_ASSIGN_OR_RETURN(const sim::TensorMass model, sim::TensorMass::Create(organ.mesh.vertices, tets, organ.fixed));
  std::vector<Vector3d> loads(organ.mesh.vertices.size(), Vector3d::Zero());
  for (size_t v = 0; v < loads.size(); ++v) {
    if (organ.mesh.vertices[v].z() > organ.high_m - 0.01) loads[v].z() = -0.01;
  }
  const double stable_s = model.StableStep();
  report->Add(name, "explicit_stable_step", stable_s, "s");
  std::vector<Vector3d> now(loads.size(), Vector3d::Zero()), before = now;
  const int steps = IsQuick() ? 20 : 200;
  const Clock::time_point begin = Clock::now();
  for (int step = 0; step < steps; ++step) model.StepExplicitly(loads, 0.9 * stable_s, 1, &now, &before);
  const double explicit_ms = MillisecondsSince(begin) / steps;
  report->Add(name, "explicit_step", explicit_ms, "ms");
  report->Add(name, "explicit_speed", 0.9 * stable_s * 1e3 / explicit_ms, "ratio");  // simulated over real time
  return absl::OkStatus();
}

/// The update orders of Forest 2003: relaxation of an organ that is pushed at its top, as residuals over that at the start after given
/// numbers of vertex updates. Letting the organ go again, as Forest does, gives the same numbers: the model is linear.
absl::Status MeasureOrders(const Organ& organ, const std::string& name, Report* report) {
  PALPATE_ASSIGN_OR_RETURN(const std::vector<sim::ElasticTet> tets, TetsOf(organ, sim::MaterialModel::kLinear));
  PALPATE_ASSIGN_OR_RETURN(const sim::TensorMass model, sim::TensorMass::Create(organ.mesh.vertices, tets, organ.fixed));
  PALPATE_ASSIGN_OR_RETURN(const sim::ReferenceBody body, sim::ReferenceBody::Create(organ.mesh.vertices, tets, organ.fixed));
  std::vector<Vector3d> push(organ.mesh.vertices.size(), Vector3d::Zero());
  sim::NewtonProblem problem;
  problem.load_n = Eigen::VectorXd::Zero(body.Rest().size());
  for (size_t v = 0; v < push.size(); ++v) {
    if (organ.mesh.vertices[v].z() <= organ.high_m - 0.01) continue;
    push[v].z() = -0.01;
    problem.load_n[static_cast<Eigen::Index>(3 * v + 2)] = -0.01;
  }
  PALPATE_ASSIGN_OR_RETURN(const sim::NewtonResult balance, sim::MinimizeByNewton(body, problem, body.Rest(), {}));

  const int passes = IsQuick() ? 20 : 200;
  for (const auto& [order, order_name] : {std::pair(sim::UpdateOrder::kSynchronous, "synchronous"),
                                          {sim::UpdateOrder::kRandom, "random"},
                                          {sim::UpdateOrder::kBreadthFirst, "breadth_first"},
                                          {sim::UpdateOrder::kPriority, "priority"}}) {
    const std::string row = absl::StrFormat("%s_%s", name, order_name);
    std::vector<Vector3d> u(push.size(), Vector3d::Zero());
    const double start_rms_n = model.Residual(u, push), start_max_n = model.LargestResidual(u, push);
    const auto distance_m = [&] {
      double sum = 0;
      for (size_t v = 0; v < u.size(); ++v) {
        sum += (organ.mesh.vertices[v] + u[v] - balance.x.segment<3>(static_cast<Eigen::Index>(3 * v))).squaredNorm();
      }
      return std::sqrt(sum);
    };
    const double start_m = distance_m();
    report->Add(row, "updates_per_pass", static_cast<double>(model.free_count()), "count");
    std::string curve = row + ": residual over that at the start, root mean square and largest, after";
    sim::Relaxation relaxation(&model, {.order = order});
    double run_ms = 0;
    int done = 0;
    for (const int k : kShownPasses) {
      if (k > passes) break;
      const Clock::time_point begin = Clock::now();
      relaxation.Run(push, static_cast<size_t>(k - done) * model.free_count(), &u);
      run_ms += MillisecondsSince(begin);
      done = k;
      const double rms = model.Residual(u, push) / start_rms_n, largest = model.LargestResidual(u, push) / start_max_n;
      report->Add(row, absl::StrFormat("residual_rms_after_%d_passes", k), rms, "ratio");
      report->Add(row, absl::StrFormat("residual_max_after_%d_passes", k), largest, "ratio");
      curve += absl::StrFormat(" %d updates (%.1f ms) %.2g, %.2g;", static_cast<size_t>(k) * model.free_count(), run_ms, rms, largest);
    }
    report->Note(curve);
    report->Add(row, "pass", run_ms / done, "ms");
    report->Add(row, "distance_to_equilibrium", distance_m() / start_m, "ratio");
    if (!(distance_m() < start_m)) return absl::InternalError(absl::StrFormat("%s went away from the equilibrium", row));
  }
  return absl::OkStatus();
}

/// A step of the organ as an elastic and as a shape-matched body of the same moduli, 20 sweeps each, and how far each sags under its
/// weight.
absl::Status CompareShapeMatching(std::shared_ptr<gpu::Context> context, const Organ& organ, const std::string& name, Report* report) {
  struct Kind {
    const char* name;
    bool is_elastic;
    gpu::TissueShape shape;
  };
  double edges_m = 0;
  for (const auto& tet : organ.mesh.tets) {
    for (size_t a = 0; a < 4; ++a) {
      for (size_t b = a + 1; b < 4; ++b) edges_m += (organ.mesh.vertices[tet[a]] - organ.mesh.vertices[tet[b]]).norm();
    }
  }
  const double cluster_size_m = 3 * edges_m / (6.0 * static_cast<double>(organ.mesh.tets.size()));
  // Poisson's ratio 0.3 in all: beta = 3 nu / (1 + nu).
  sim::Material material;
  material.poisson_ratio = 0.3;
  const double beta = 0.9 / 1.3;
  const Kind kinds[] = {
      {"elastic", true, {}},
      {"shape_rigid", false, {.mode = gpu::TissueShapeMode::kRigid, .cluster_size_m = cluster_size_m}},
      {"shape_linear", false, {.mode = gpu::TissueShapeMode::kLinear, .beta = beta, .cluster_size_m = cluster_size_m}},
      {"shape_quadratic", false, {.mode = gpu::TissueShapeMode::kQuadratic, .beta = beta, .cluster_size_m = cluster_size_m}},
      {"shape_one_cluster", false, {.mode = gpu::TissueShapeMode::kQuadratic, .beta = beta}}};
  PALPATE_ASSIGN_OR_RETURN(gpu::TissueTet tet, sim::TissueOf(material));
  double elastic_sag_m = 0;
  for (const Kind& kind : kinds) {
    gpu::TissueModel model;
    model.fixed = organ.fixed;
    for (const Vector3d& rest : organ.mesh.vertices) model.rest_m.push_back({rest.x(), rest.y(), rest.z()});
    if (!kind.is_elastic) {
      model.shapes = {kind.shape};
      tet.energy = gpu::TissueEnergy::kShapeMatched;
    }
    for (const auto& vertices : organ.mesh.tets) {
      tet.vertices = vertices;
      model.tets.push_back(tet);
    }
    gpu::TissueOptions options;
    options.dt_s = kStep_s;
    PALPATE_ASSIGN_OR_RETURN(auto solver,
                             gpu::TissueSolver::Create(context, model, options, {}, {}, gpu::TissueTuning::For(context->device())));
    std::vector<double> step_ms;
    for (int step = 0; step < (IsQuick() ? 60 : 240); ++step) {
      const Clock::time_point begin = Clock::now();
      PALPATE_ASSIGN_OR_RETURN(const gpu::TissueStep outcome, solver->Step({}));
      step_ms.push_back(MillisecondsSince(begin));
      if (outcome.bad_vertices > 0) return absl::InternalError(absl::StrFormat("%s, %s: a step was rolled back", name, kind.name));
    }
    std::vector<float> x(3 * organ.mesh.vertices.size());
    PALPATE_RETURN_IF_ERROR(solver->ReadPositions(x));
    double sag_m = 0;
    for (size_t v = 0; v < organ.mesh.vertices.size(); ++v) sag_m += organ.mesh.vertices[v].z() - x[3 * v + 2];
    sag_m /= static_cast<double>(organ.mesh.vertices.size());
    if (kind.is_elastic) elastic_sag_m = sag_m;
    report->Add(name, absl::StrFormat("step_%s", kind.name), Quantile(step_ms, 0.5), "ms");
    report->Add(name, absl::StrFormat("sag_%s", kind.name), sag_m / elastic_sag_m, "ratio");
    report->Add(name, absl::StrFormat("memory_%s", kind.name), static_cast<double>(solver->device_bytes()) / 1e6, "MB");
  }
  return absl::OkStatus();
}

/// The pre-computed model: what it takes to make and to hold, and what a step costs that has contacts on a patch of the surface.
absl::Status MeasurePrecomputed(const Organ& organ, const std::string& name, Report* report) {
  PALPATE_ASSIGN_OR_RETURN(const std::vector<sim::ElasticTet> tets, TetsOf(organ, sim::MaterialModel::kLinear));
  std::vector<uint32_t> surface;
  for (const uint32_t v : sim::ExtractBoundary(organ.mesh).vertices) {
    if (organ.fixed[v] == 0) surface.push_back(v);
  }
  std::sort(surface.begin(), surface.end());
  Clock::time_point begin = Clock::now();
  PALPATE_ASSIGN_OR_RETURN(const auto model,
                           sim::PrecomputedModel::Create(organ.mesh.vertices, tets, organ.fixed, surface, {}, {.dt_s = kStep_s}));
  report->Add(name, "precomputed_factor", MillisecondsSince(begin), "ms");
  begin = Clock::now();
  model->ComputeColumns();
  report->Add(name, "precomputed_columns", MillisecondsSince(begin), "ms");
  report->Add(name, "precomputed_memory", static_cast<double>(model->bytes()) / (1 << 20), "MiB");
  report->Add(name, "precomputed_touchable", static_cast<double>(surface.size()), "count");

  // A plate presses on the vertices nearest to the top.
  std::vector<uint32_t> patch = surface;
  std::sort(patch.begin(), patch.end(), [&](uint32_t a, uint32_t b) {
    const double za = organ.mesh.vertices[a].z(), zb = organ.mesh.vertices[b].z();
    return za != zb ? za > zb : a < b;
  });
  if (patch.size() > 24) patch.erase(patch.begin() + 24, patch.end());
  const int rounds = IsQuick() ? 3 : 30;
  double residual_m = 0;
  Eigen::VectorXd u;
  begin = Clock::now();
  for (int round = 0; round < rounds; ++round) {
    std::vector<sim::ResponseContact> contacts;
    for (const uint32_t v : patch) {
      sim::ResponseContact contact;
      contact.normal = -Vector3d::UnitZ();
      contact.gap_m = organ.high_m - 0.004 - 1e-5 * round - organ.mesh.vertices[v].z();
      contact.stiffness_n_per_m = 1500;
      contact.margin_m = 0.001;
      contact.stiffening = 10;
      contact.friction = 0.1;
      contact.slip_full_m = 1e-3 * kStep_s;
      contacts.push_back(contact);
    }
    Eigen::MatrixXd compliance(3 * static_cast<Eigen::Index>(patch.size()), 3 * static_cast<Eigen::Index>(patch.size()));
    for (size_t i = 0; i < patch.size(); ++i) {
      for (size_t j = 0; j < patch.size(); ++j) {
        compliance.block<3, 3>(3 * static_cast<Eigen::Index>(i), 3 * static_cast<Eigen::Index>(j)) =
            model->Response(model->ChosenIndex(patch[i]), model->ChosenIndex(patch[j]));
      }
    }
    const sim::ResponseSolution solution = sim::SolveResponse(contacts, compliance, 1e-8, 40);
    residual_m = std::max(residual_m, solution.residual_m);
    Eigen::VectorXd load = Eigen::VectorXd::Zero(3 * static_cast<Eigen::Index>(organ.mesh.vertices.size()));
    for (size_t i = 0; i < patch.size(); ++i) load.segment<3>(3 * static_cast<Eigen::Index>(patch[i])) = solution.force_n[i];
    u = model->Displace(load);
  }
  report->Add(name, "precomputed_step", MillisecondsSince(begin) / rounds, "ms");  // contacts and the displacement of all vertices
  report->Add(name, "precomputed_residual", residual_m, "m");
  if (!(residual_m < 1e-6) || !(u.cwiseAbs().maxCoeff() > 0.001)) {
    return absl::InternalError(
        absl::StrFormat("%s: the pre-computed step left %g m and moved %g m", name, residual_m, u.cwiseAbs().maxCoeff()));
  }
  return absl::OkStatus();
}

struct HeldLiver {
  gpu::TissueModel model;
  size_t tip = 0;  // the vertex that is farthest from where it is held
};

/// A liver, `is_held` at one lobe.
absl::StatusOr<HeldLiver> MakeHeldLiver(double tet_count, const sim::Material& material, bool is_held) {
  PALPATE_ASSIGN_OR_RETURN(const sim::TetMesh mesh, sim::GenerateLiver(kLength_m, sim::LiverEdgeLengthForTets(kLength_m, tet_count)));
  PALPATE_ASSIGN_OR_RETURN(gpu::TissueTet tet, sim::TissueOf(material));
  HeldLiver liver;
  for (size_t v = 0; v < mesh.vertices.size(); ++v) {
    const Vector3d& rest = mesh.vertices[v];
    liver.model.rest_m.push_back({rest.x(), rest.y(), rest.z()});
    liver.model.fixed.push_back(is_held && rest.x() < -0.25 * kLength_m ? 1 : 0);
    if (rest.x() > mesh.vertices[liver.tip].x()) liver.tip = v;
  }
  for (const auto& vertices : mesh.tets) {
    tet.vertices = vertices;
    liver.model.tets.push_back(tet);
  }
  return liver;
}

/// A liver swings down for half a second, with and without coarse corrections: where its tip is from where 60 sweeps with corrections have
/// it (240 of node-smoothed tets), what is left of the residual of a step, and how long steps take.
absl::Status MeasureSwing(std::shared_ptr<gpu::Context> context, double tet_count, const sim::Material& material, bool is_smoothed,
                          const std::string& name, Report* report) {
  PALPATE_ASSIGN_OR_RETURN(HeldLiver liver, MakeHeldLiver(tet_count, material, true));
  for (gpu::TissueTet& tet : liver.model.tets) tet.is_smoothed = is_smoothed ? 1 : 0;
  const uint32_t usual = gpu::TissueOptions{}.iterations;
  struct Run {
    const char* name;
    uint32_t iterations, nodes;
    double acceleration;
  };
  const Run runs[] = {{"converged", is_smoothed ? 240U : 60U, kCoarseNodes, kCorrectedAcceleration},
                      {"plain", usual, 0, 0.9},
                      {"corrected", usual, kCoarseNodes, kCorrectedAcceleration},
                      {"corrected_17", 17, kCoarseNodes, kCorrectedAcceleration}};
  Vector3d converged_m = Vector3d::Zero();
  for (const Run& run : runs) {
    gpu::TissueOptions options;
    options.dt_s = kStep_s;
    options.iterations = run.iterations;
    options.coarse_nodes = run.nodes;
    options.acceleration = run.acceleration;
    const Clock::time_point begin = Clock::now();
    PALPATE_ASSIGN_OR_RETURN(auto solver,
                             gpu::TissueSolver::Create(context, liver.model, options, {}, {}, gpu::TissueTuning::For(context->device())));
    const double create_ms = MillisecondsSince(begin);
    std::vector<double> step_ms;
    double residual = 0;
    for (int step = 0; step < 60; ++step) {
      if (step == 3) {  // while it speeds up
        PALPATE_ASSIGN_OR_RETURN(const std::vector<double> residual_n, solver->StepMeasuringResidual({}));
        residual = residual_n.back() / residual_n[0];
        continue;
      }
      const Clock::time_point step_begin = Clock::now();
      PALPATE_ASSIGN_OR_RETURN(const gpu::TissueStep outcome, solver->Step({}));
      step_ms.push_back(MillisecondsSince(step_begin));
      if (outcome.bad_vertices > 0) return absl::InternalError(absl::StrFormat("%s, %s: a step was rolled back", name, run.name));
    }
    std::vector<float> x(3 * liver.model.rest_m.size());
    PALPATE_RETURN_IF_ERROR(solver->ReadPositions(x));
    const Vector3d tip_m(x[3 * liver.tip], x[3 * liver.tip + 1], x[3 * liver.tip + 2]);
    if (&run == &runs[0]) {
      converged_m = tip_m;
      report->Add(name, "tets", static_cast<double>(liver.model.tets.size()), "count");
      report->Add(name, "way", (tip_m - Vector3d(liver.model.rest_m[liver.tip].data())).norm(), "m");
    } else {
      report->Add(name, absl::StrFormat("error_%s", run.name), (tip_m - converged_m).norm(), "m");
      report->Add(name, absl::StrFormat("step_%s", run.name), Quantile(step_ms, 0.5), "ms");
      report->Add(name, absl::StrFormat("create_%s", run.name), create_ms, "ms");
    }
    report->Add(name, absl::StrFormat("residual_%s", run.name), residual, "ratio");
  }
  return absl::OkStatus();
}

/// The first steps of the same swing, all with one set of options: a tolerance that the device measures, and a bound on the sweeps. What is
/// left of the residual of the fourth step, sweeps, and time of the step, which is that of the processor too.
absl::Status MeasureTolerance(std::shared_ptr<gpu::Context> context, double tet_count, const sim::Material& material,
                              const std::string& name, Report* report) {
  PALPATE_ASSIGN_OR_RETURN(const HeldLiver liver, MakeHeldLiver(tet_count, material, true));
  gpu::TissueOptions options;
  options.dt_s = kStep_s;
  options.iterations = kMostSweeps;
  options.coarse_nodes = kCoarseNodes;
  options.acceleration = kCorrectedAcceleration;
  options.tolerance_m_per_s2 = kTolerance_m_per_s2;
  PALPATE_ASSIGN_OR_RETURN(auto solver,
                           gpu::TissueSolver::Create(context, liver.model, options, {}, {}, gpu::TissueTuning::For(context->device())));
  Samples times;
  std::vector<double> sweeps;
  double residual = 0;
  for (int step = 0; step < 20; ++step) {
    if (step == 3) {
      PALPATE_ASSIGN_OR_RETURN(const std::vector<double> residual_n, solver->StepMeasuringResidual({}));
      residual = residual_n.back() / residual_n[0];
      continue;
    }
    const Stopwatch watch;
    PALPATE_ASSIGN_OR_RETURN(const gpu::TissueStep outcome, solver->Step({}));
    times.Add(watch.Elapsed());
    sweeps.push_back(outcome.sweeps);
  }
  report->Add(name, "tets", static_cast<double>(liver.model.tets.size()), "count");
  report->Add(name, "residual", residual, "ratio");
  report->Add(name, "sweeps", Quantile(sweeps, 0.5), "count");
  report->Add(name, "most_sweeps", Quantile(sweeps, 1), "count");
  report->Add(name, "step", 1e3 * Quantile(times.wall_s, 0.5), "ms");
  report->Add(name, "step_processor", 1e3 * Quantile(times.cpu_s, 0.5), "ms");
  return absl::OkStatus();
}

/// A liver without gravity and damping that turns once a second and was stretched by a tenth: what ten seconds leave of its momenta, and of
/// its energy (which backward Euler takes from what vibrates).
absl::Status MeasureFreeFlight(std::shared_ptr<gpu::Context> context, bool is_corrected, const std::string& name, Report* report) {
  sim::Material material;
  material.damping_s = 0;
  PALPATE_ASSIGN_OR_RETURN(const HeldLiver liver, MakeHeldLiver(2500, material, false));
  gpu::TissueOptions options;
  options.dt_s = kStep_s;
  options.gravity_m_per_s2 = {0, 0, 0};
  options.report_energy = true;
  if (is_corrected) {
    options.coarse_nodes = kCoarseNodes;
    options.acceleration = kCorrectedAcceleration;
  }
  PALPATE_ASSIGN_OR_RETURN(auto solver,
                           gpu::TissueSolver::Create(context, liver.model, options, {}, {}, gpu::TissueTuning::For(context->device())));
  const size_t count = liver.model.rest_m.size();
  Vector3d centre_m = Vector3d::Zero();
  double mass_kg = 0;
  std::vector<double> masses_kg(count);
  for (size_t v = 0; v < count; ++v) {
    masses_kg[v] = solver->layout().mass_kg[solver->layout().solver_index[v]];
    mass_kg += masses_kg[v];
    centre_m += masses_kg[v] * Vector3d(liver.model.rest_m[v].data());
  }
  centre_m /= mass_kg;
  const Vector3d turn_per_s(0, 0, 2 * std::numbers::pi);
  const Vector3d drift_m_per_s(0.02, 0, 0);
  std::vector<float> x(3 * count), velocity(3 * count);
  for (size_t v = 0; v < count; ++v) {
    Vector3d arm_m = Vector3d(liver.model.rest_m[v].data()) - centre_m;
    arm_m.x() *= 1.1;
    const Vector3d speed = turn_per_s.cross(arm_m) + drift_m_per_s;
    for (size_t k = 0; k < 3; ++k) {
      x[3 * v + k] = static_cast<float>(arm_m[static_cast<Eigen::Index>(k)]);
      velocity[3 * v + k] = static_cast<float>(speed[static_cast<Eigen::Index>(k)]);
    }
  }
  PALPATE_RETURN_IF_ERROR(solver->WriteState(x, velocity));
  const auto momenta = [&](std::span<const float> before, std::span<const float> after) {
    std::pair<Vector3d, Vector3d> sums(Vector3d::Zero(), Vector3d::Zero());
    for (size_t v = 0; v < count; ++v) {
      const Vector3d at_m(after[3 * v], after[3 * v + 1], after[3 * v + 2]);
      const Vector3d p = masses_kg[v] / kStep_s * (at_m - Vector3d(before[3 * v], before[3 * v + 1], before[3 * v + 2]));
      sums.first += p;
      sums.second += at_m.cross(p);
    }
    return sums;
  };
  std::pair<Vector3d, Vector3d> first;
  double first_j = 0;
  constexpr int kSteps = 1200;
  for (int i = 0; i < kSteps; ++i) {
    const std::vector<float> before = x;
    PALPATE_ASSIGN_OR_RETURN(const gpu::TissueStep step, solver->Step({}));
    if (i != 0 && i != kSteps - 1) {
      if (i == kSteps - 2) PALPATE_RETURN_IF_ERROR(solver->ReadPositions(x));
      continue;
    }
    PALPATE_RETURN_IF_ERROR(solver->ReadPositions(x));
    const double energy_j = step.kinetic_energy_j + step.elastic_energy_j.value_or(0);
    const auto now = momenta(before, x);
    if (i == 0) {
      first = now;
      first_j = energy_j;
      continue;
    }
    report->Add(name, "momentum_lost", (now.first - first.first).norm() / first.first.norm(), "ratio");
    report->Add(name, "angular_momentum_lost", (now.second - first.second).norm() / first.second.norm(), "ratio");
    report->Add(name, "energy_kept", energy_j / first_j, "ratio");
    report->Add(name, "elastic_energy", step.elastic_energy_j.value_or(0), "J");
  }
  return absl::OkStatus();
}

absl::Status Run(std::shared_ptr<gpu::Context> context, Report* report) {
  for (const double tet_count : IsQuick() ? std::vector<double>{1000} : std::vector<double>{1000, 2500, 10000}) {
    const std::string name = absl::StrFormat("liver_%d", static_cast<int>(tet_count));
    const std::string shape = name + "_shape", tensor_mass = name + "_tensor_mass", orders = name + "_orders",
                      precomputed = name + "_precomputed", energies = name + "_energies";
    PALPATE_ASSIGN_OR_RETURN(const Organ organ, MakeOrgan(tet_count));
    for (const auto& [energy, energy_name] :
         {std::pair(sim::MaterialModel::kStableNeoHookean, "neo_hookean"), {sim::MaterialModel::kCorotated, "corotated"}}) {
      const std::string step = absl::StrFormat("%s_step_%s", name, energy_name);
      if (IsSelected(step)) PALPATE_RETURN_IF_ERROR(CompareStep(context, organ, energy, step, report));
    }
    if (IsSelected(energies)) PALPATE_RETURN_IF_ERROR(CompareEnergies(context, organ, energies, report));
    if (IsSelected(shape)) PALPATE_RETURN_IF_ERROR(CompareShapeMatching(context, organ, shape, report));
    if (IsSelected(tensor_mass)) PALPATE_RETURN_IF_ERROR(MeasureTensorMass(organ, tensor_mass, report));
    if (IsSelected(orders)) PALPATE_RETURN_IF_ERROR(MeasureOrders(organ, orders, report));
    if (IsSelected(precomputed)) PALPATE_RETURN_IF_ERROR(MeasurePrecomputed(organ, precomputed, report));
  }
  for (const double tet_count : IsQuick() ? std::vector<double>{2500} : std::vector<double>{2500, 10000, 50000, 200000}) {
    for (const double young_modulus_pa : {1e3, 5e3, 3e4, 2e5, 1e6}) {
      for (const auto& [energy, energy_name] :
           {std::pair(sim::MaterialModel::kStableNeoHookean, "neo_hookean"), {sim::MaterialModel::kCorotated, "corotated"}}) {
        if (energy == sim::MaterialModel::kCorotated && young_modulus_pa != 5e3) continue;
        const std::string swing =
            absl::StrFormat("swing_%d_%s_%d", static_cast<int>(tet_count), energy_name, static_cast<int>(young_modulus_pa));
        sim::Material material;
        material.model = energy;
        material.young_modulus_pa = young_modulus_pa;
        const std::string tolerance =
            absl::StrFormat("tolerance_%d_%s_%d", static_cast<int>(tet_count), energy_name, static_cast<int>(young_modulus_pa));
        if (IsSelected(tolerance)) PALPATE_RETURN_IF_ERROR(MeasureTolerance(context, tet_count, material, tolerance, report));
        if (tet_count > 50000 && young_modulus_pa != 5e3) continue;
        if (IsSelected(swing)) PALPATE_RETURN_IF_ERROR(MeasureSwing(context, tet_count, material, false, swing, report));
      }
    }
    for (const double poisson_ratio : {0.45, 0.495}) {
      const std::string swing = absl::StrFormat("swing_%d_smoothed_%g", static_cast<int>(tet_count), poisson_ratio);
      sim::Material material;
      material.young_modulus_pa = 5e3;
      material.poisson_ratio = poisson_ratio;
      if (tet_count > 10000 || !IsSelected(swing)) continue;
      PALPATE_RETURN_IF_ERROR(MeasureSwing(context, tet_count, material, true, swing, report));
    }
  }
  for (const auto& [name, is_corrected] : {std::pair("free_flight_plain", false), {"free_flight", true}}) {
    if (IsSelected(name)) PALPATE_RETURN_IF_ERROR(MeasureFreeFlight(context, is_corrected, name, report));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace palpate::bench

int main(int argc, char** argv) {
  palpate::bench::Initialize(argc, argv,
                             "Solvers of elasticity: sweeps of the device, Newton's method, explicit tensor-mass, update orders.");
  auto context = palpate::gpu::Context::Create({.device = palpate::bench::DeviceSelector()});
  palpate::bench::Report report("tissue", context.ok() ? palpate::gpu::DescribeDevice((*context)->device()) : "none");
  if (!context.ok()) return report.Finish(context.status());
  return report.Finish(palpate::bench::Run(*context, &report));
}
