#include "sim/quasistatic/precomputed_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <Eigen/Cholesky>

#include "sim/reference/reference_body.h"

namespace palpate::sim {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::Vector3d;
using Eigen::VectorXd;

// The least pivot of a stiffness that holds its body, over the largest; rounding leaves about 1e-16 of a rigid motion.
constexpr double kLeastPivotShare = 1e-12;

constexpr size_t kFactorEntryBytes = sizeof(double) + sizeof(int);

Index At(size_t vertex) { return static_cast<Index>(3 * vertex); }

absl::Status CheckInput(size_t n, std::span<const uint32_t> chosen, std::span<const StiffnessBlock> extra, double dt_s) {
  if (!(dt_s >= 0) || !std::isfinite(dt_s)) {
    return absl::InvalidArgumentError(absl::StrCat("dt_s ", dt_s, " must not be negative, and finite"));
  }
  for (size_t i = 0; i < chosen.size(); ++i) {
    if (chosen[i] >= n) return absl::InvalidArgumentError(absl::StrCat("chosen[", i, "]: ", chosen[i], " is outside [0, ", n, ")"));
    if (i > 0 && chosen[i] <= chosen[i - 1]) {
      return absl::InvalidArgumentError(absl::StrCat("chosen[", i, "]: ", chosen[i], " does not follow ", chosen[i - 1]));
    }
  }
  for (size_t i = 0; i < extra.size(); ++i) {
    if (extra[i].row >= n || extra[i].column >= n || !extra[i].block_n_per_m.allFinite()) {
      return absl::InvalidArgumentError(
          absl::StrCat("extra[", i, "]: (", extra[i].row, ", ", extra[i].column, ") is outside [0, ", n, ") or not finite"));
    }
  }
  return absl::OkStatus();
}

absl::Status TooLarge(size_t vertex_count, size_t chosen_count, size_t bytes, size_t max_bytes) {
  return absl::ResourceExhaustedError(absl::StrCat("a pre-computed model of ", vertex_count, " vertices, ", chosen_count,
                                                   " of which can be touched, takes ", bytes >> 20, " MiB, more than the limit of ",
                                                   max_bytes >> 20, " MiB: use a coarser mesh"));
}

/// Whose stiffness is the viscosity over the step. Small strain: the viscosity of a tet is its stiffness times damping_s, of the isotropic
/// part alone, as the solver has it.
std::vector<ElasticTet> DampersOf(std::span<const ElasticTet> tets, double dt_s) {
  std::vector<ElasticTet> viscous(tets.begin(), tets.end());
  for (ElasticTet& tet : viscous) {
    const double rate = tet.damping_s / dt_s;
    tet.model = MaterialModel::kLinear;
    tet.fibers = {};
    tet.mu_pa = static_cast<float>(tet.mu_pa * rate);
    tet.lambda_pa = static_cast<float>(tet.lambda_pa * rate);
  }
  return viscous;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PrecomputedModel>> PrecomputedModel::Create(std::span<const Vector3d> rest_m,
                                                                           std::span<const ElasticTet> tets, std::span<const uint8_t> fixed,
                                                                           std::span<const uint32_t> chosen,
                                                                           std::span<const StiffnessBlock> extra,
                                                                           const PrecomputedOptions& options) {
  const size_t n = rest_m.size();
  PALPATE_RETURN_IF_ERROR(CheckInput(n, chosen, extra, options.dt_s));
  const size_t response_bytes = 72 * chosen.size() * chosen.size();
  if (response_bytes > options.max_bytes) return TooLarge(n, chosen.size(), response_bytes, options.max_bytes);

  std::unique_ptr<PrecomputedModel> model(new PrecomputedModel);
  PALPATE_ASSIGN_OR_RETURN(const ReferenceBody body,
                           ReferenceBody::Create({rest_m.begin(), rest_m.end()}, {tets.begin(), tets.end()}, {fixed.begin(), fixed.end()}));
  model->mass_kg_ = body.mass_kg();
  model->input_ = {.rest_m = {rest_m.begin(), rest_m.end()},
                   .tets = {tets.begin(), tets.end()},
                   .fixed = {fixed.begin(), fixed.end()},
                   .chosen = {chosen.begin(), chosen.end()},
                   .extra = {extra.begin(), extra.end()},
                   .dt_s = options.dt_s};
  PALPATE_RETURN_IF_ERROR(model->NumberWhatMoves());
  PALPATE_RETURN_IF_ERROR(model->Assemble(body));
  PALPATE_RETURN_IF_ERROR(model->Factorize());
  const auto factor_bytes = static_cast<size_t>(model->factor_.matrixL().nestedExpression().nonZeros()) * kFactorEntryBytes;
  if (response_bytes + factor_bytes > options.max_bytes) {
    return TooLarge(n, chosen.size(), response_bytes + factor_bytes, options.max_bytes);
  }
  model->bytes_ =
      response_bytes + factor_bytes + static_cast<size_t>(model->stiffness_.nonZeros() + model->viscosity_.nonZeros()) * kFactorEntryBytes;
  model->chosen_.assign(chosen.begin(), chosen.end());
  model->chosen_index_.assign(n, kNotChosen);
  for (uint32_t i = 0; i < chosen.size(); ++i) model->chosen_index_[chosen[i]] = i;
  model->columns_.resize(chosen.size());
  return model;
}

absl::Status PrecomputedModel::NumberWhatMoves() {
  const size_t n = input_.rest_m.size();
  std::vector<uint8_t> is_used(n, 0);
  for (const ElasticTet& tet : input_.tets) {
    for (const uint32_t v : tet.vertices) is_used[v] = 1;
  }
  for (const StiffnessBlock& block : input_.extra) is_used[block.row] = is_used[block.column] = 1;
  place_.assign(n, kNotChosen);
  for (uint32_t v = 0; v < n; ++v) {
    if (input_.fixed[v] != 0 || is_used[v] == 0) continue;
    place_[v] = static_cast<uint32_t>(moving_.size());
    moving_.push_back(v);
  }
  if (moving_.empty()) return absl::InvalidArgumentError("no vertex of the pre-computed model can move");
  return absl::OkStatus();
}

/// Stiffness and viscosity of what moves.
absl::Status PrecomputedModel::Assemble(const ReferenceBody& body) {
  stiffness_ = Reduced(body.Stiffness(body.Rest(), false), input_.extra);
  if (!(input_.dt_s > 0)) return absl::OkStatus();
  PALPATE_ASSIGN_OR_RETURN(const ReferenceBody damper,
                           ReferenceBody::Create(input_.rest_m, DampersOf(input_.tets, input_.dt_s), input_.fixed));
  viscosity_ = Reduced(damper.Stiffness(damper.Rest(), false), {});
  // Where there is damping alone a body would creep away for ever: what holds it must be elastic.
  stiffness_ = Eigen::SparseMatrix<double>(stiffness_ + viscosity_);
  return absl::OkStatus();
}

/// The rows and columns of what moves, with blocks of all vertices added.
Eigen::SparseMatrix<double> PrecomputedModel::Reduced(const Eigen::SparseMatrix<double>& full,
                                                      std::span<const StiffnessBlock> blocks) const {
  std::vector<Eigen::Triplet<double>> entries;
  entries.reserve(static_cast<size_t>(full.nonZeros()) + 9 * blocks.size());
  const auto add = [&](Index row, Index column, double value) {
    const uint32_t r = place_[static_cast<size_t>(row / 3)];
    const uint32_t c = place_[static_cast<size_t>(column / 3)];
    if (r == kNotChosen || c == kNotChosen) return;
    entries.emplace_back(static_cast<int>(At(r) + row % 3), static_cast<int>(At(c) + column % 3), value);
  };
  for (Index column = 0; column < full.outerSize(); ++column) {
    for (Eigen::SparseMatrix<double>::InnerIterator it(full, column); it; ++it) add(it.row(), it.col(), it.value());
  }
  for (const StiffnessBlock& block : blocks) {
    for (Index k = 0; k < 9; ++k) add(At(block.row) + k % 3, At(block.column) + k / 3, block.block_n_per_m(k % 3, k / 3));
  }
  const auto size = At(moving_.size());
  Eigen::SparseMatrix<double> out(size, size);
  out.setFromTriplets(entries.begin(), entries.end());
  return out;
}

absl::Status PrecomputedModel::Factorize() {
  factor_.compute(stiffness_);
  const bool is_factored = factor_.info() == Eigen::Success;
  const VectorXd pivots = is_factored ? VectorXd(factor_.vectorD()) : VectorXd::Zero(1);
  if (pivots.minCoeff() > kLeastPivotShare * pivots.maxCoeff()) return absl::OkStatus();
  const auto fixed_count = std::count_if(input_.fixed.begin(), input_.fixed.end(), [](uint8_t f) { return f != 0; });
  return absl::FailedPreconditionError(
      absl::StrCat("the stiffness is singular: the ", fixed_count, " fixed vertices of ", input_.rest_m.size(),
                   " do not hold the pre-computed body (each part of it needs three that are not in line)"));
}

VectorXd PrecomputedModel::Displace(const VectorXd& load_n) const {
  VectorXd load(At(moving_.size()));
  for (size_t i = 0; i < moving_.size(); ++i) load.segment<3>(At(i)) = load_n.segment<3>(At(moving_[i]));
  const VectorXd moved = factor_.solve(load);
  VectorXd u = VectorXd::Zero(At(place_.size()));
  for (size_t i = 0; i < moving_.size(); ++i) u.segment<3>(At(moving_[i])) = moved.segment<3>(At(i));
  return u;
}

namespace {

VectorXd Product(const Eigen::SparseMatrix<double>& matrix, const std::vector<uint32_t>& moving, const VectorXd& u_m) {
  VectorXd u(At(moving.size()));
  for (size_t i = 0; i < moving.size(); ++i) u.segment<3>(At(i)) = u_m.segment<3>(At(moving[i]));
  const VectorXd product = matrix * u;
  VectorXd out = VectorXd::Zero(u_m.size());
  for (size_t i = 0; i < moving.size(); ++i) out.segment<3>(At(moving[i])) = product.segment<3>(At(i));
  return out;
}

}  // namespace

VectorXd PrecomputedModel::Apply(const VectorXd& u_m) const { return Product(stiffness_, moving_, u_m); }

VectorXd PrecomputedModel::ApplyViscosity(const VectorXd& u_m) const {
  return viscosity_.size() == 0 ? VectorXd(VectorXd::Zero(u_m.size())) : Product(viscosity_, moving_, u_m);
}

Eigen::Ref<const Eigen::Matrix3d, 0, Eigen::OuterStride<>> PrecomputedModel::Response(size_t i, size_t j) {
  MatrixXd& column = columns_[j];
  if (column.size() == 0) {
    column = MatrixXd::Zero(At(chosen_.size()), 3);
    const uint32_t place = place_[chosen_[j]];
    if (place != kNotChosen) {
      MatrixXd load = MatrixXd::Zero(At(moving_.size()), 3);
      load.middleRows<3>(At(place)).setIdentity();
      const MatrixXd u = factor_.solve(load);
      for (size_t row = 0; row < chosen_.size(); ++row) {
        if (place_[chosen_[row]] != kNotChosen) column.middleRows<3>(At(row)) = u.middleRows<3>(At(place_[chosen_[row]]));
      }
    }
  }
  return column.middleRows<3>(At(i));
}

bool PrecomputedModel::has_all_columns() const {
  return std::all_of(columns_.begin(), columns_.end(), [](const MatrixXd& column) { return column.size() > 0; });
}

void PrecomputedModel::ComputeColumns() {
  for (size_t j = 0; j < chosen_.size(); ++j) Response(0, j);
}

/// The responses of some chosen vertices to forces on them.
absl::StatusOr<MatrixXd> PrecomputedModel::ResponsesAt(std::span<const uint32_t> vertices) {
  std::vector<uint8_t> is_given(vertex_count(), 0);
  for (size_t i = 0; i < vertices.size(); ++i) {
    const uint32_t v = vertices[i];
    const bool is_known = v < vertex_count() && chosen_index_[v] != kNotChosen;
    if (!is_known || place_[v] == kNotChosen || is_given[v] != 0) {
      return absl::InvalidArgumentError(absl::StrCat("vertices[", i, "]: ", v,
                                                     !is_known                 ? " was not chosen for responses"
                                                     : place_[v] == kNotChosen ? " does not move"
                                                                               : " is given twice"));
    }
    is_given[v] = 1;
  }
  MatrixXd responses(At(vertices.size()), At(vertices.size()));
  for (size_t j = 0; j < vertices.size(); ++j) {
    for (size_t i = 0; i < vertices.size(); ++i) {
      responses.block<3, 3>(At(i), At(j)) = Response(chosen_index_[vertices[i]], chosen_index_[vertices[j]]);
    }
  }
  return MatrixXd((responses + responses.transpose()) / 2);
}

absl::StatusOr<std::vector<Vector3d>> PrecomputedModel::ForcesFor(std::span<const uint32_t> vertices, std::span<const Vector3d> moves_m) {
  if (vertices.size() != moves_m.size()) {
    return absl::InvalidArgumentError(absl::StrCat(moves_m.size(), " displacements for ", vertices.size(), " vertices"));
  }
  PALPATE_ASSIGN_OR_RETURN(const MatrixXd responses, ResponsesAt(vertices));
  VectorXd moves(At(moves_m.size()));
  for (size_t i = 0; i < moves_m.size(); ++i) moves.segment<3>(At(i)) = moves_m[i];
  const VectorXd solved = responses.llt().solve(moves);
  std::vector<Vector3d> forces;
  for (size_t i = 0; i < moves_m.size(); ++i) forces.emplace_back(solved.segment<3>(At(i)));
  return forces;
}

absl::StatusOr<MatrixXd> PrecomputedModel::CondenseTo(std::span<const uint32_t> vertices) {
  PALPATE_ASSIGN_OR_RETURN(const MatrixXd responses, ResponsesAt(vertices));
  return MatrixXd(responses.llt().solve(MatrixXd::Identity(responses.rows(), responses.cols())));
}

}  // namespace palpate::sim
