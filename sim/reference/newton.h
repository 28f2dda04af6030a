#pragma once

#include <vector>

#include "sim/reference/reference_body.h"

namespace palpate::sim {

/// What is minimised: sum_i m_i inv_dt_sq / 2 |x_i - target_i|^2 + elastic energy - loads . x. inv_dt_sq = 0: statics.
struct NewtonProblem {
  double inv_dt_sq = 0;
  Eigen::VectorXd target_m;  ///< [3 * vertex_count]; unused in statics
  Eigen::VectorXd load_n;    ///< [3 * vertex_count]
};

enum class NewtonSolver {
  kDirect,              ///< sparse LDL^T
  kConjugateGradient,   ///< with the diagonal as preconditioner
  kIncompleteCholesky,  ///< conjugate gradients with an incomplete Cholesky factorisation as preconditioner
};

struct NewtonOptions {
  NewtonSolver solver = NewtonSolver::kDirect;
  double tolerance_n = 1e-10;  ///< of the residual
  int max_iterations = 60;
  /// Whether of each tet only the semidefinite part of the stiffness is taken, always or only where the whole leads uphill. The parts cost
  /// more than all the rest, and near a minimum they are not needed.
  bool always_projects = true;
  double linear_tolerance_ratio = 0.01;  ///< conjugate gradients: share of the residual at which a linear solve ends
};

/// The way of a solve; entry k is the state after k iterations.
struct NewtonResult {
  Eigen::VectorXd x;
  std::vector<double> residual_n;  ///< root mean square over the free vertices
  std::vector<double> time_ms;     ///< since the start
  std::vector<double> linear_ms;   ///< of that, in the solver of linear systems alone
};

/// Newton's method from `start` with the projected stiffness and a line search on the energy. Fixed vertices stay where `start` has them.
/// Errors: InvalidArgument (sizes), Internal (the matrix cannot be factorised), DeadlineExceeded (the tolerance was not reached).
absl::StatusOr<NewtonResult> MinimizeByNewton(const ReferenceBody& body, const NewtonProblem& problem, const Eigen::VectorXd& start,
                                              const NewtonOptions& options);

}  // namespace palpate::sim
