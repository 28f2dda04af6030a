#include "sim/reference/newton.h"

#include <chrono>
#include <cmath>

#include <Eigen/IterativeLinearSolvers>
#include <Eigen/SparseCholesky>

namespace palpate::sim {
namespace {

using Eigen::VectorXd;

class Minimization {
 public:
  Minimization(const ReferenceBody& body, const NewtonProblem& problem) : body_(body), problem_(problem) {
    const auto n = static_cast<Eigen::Index>(3 * body.vertex_count());
    inertia_ = VectorXd::Zero(n);
    free_ = VectorXd::Zero(n);
    for (size_t v = 0; v < body.vertex_count(); ++v) {
      inertia_.segment<3>(static_cast<Eigen::Index>(3 * v)).setConstant(problem.inv_dt_sq * body.mass_kg()[v]);
      if (!body.is_fixed(v)) free_.segment<3>(static_cast<Eigen::Index>(3 * v)).setOnes();
    }
  }

  double Energy(const VectorXd& x) const {
    double energy = body_.Energy(x) - problem_.load_n.dot(x);
    if (problem_.inv_dt_sq > 0) energy += ((x - problem_.target_m).array().square() * inertia_.array()).sum() / 2;
    return energy;
  }
  /// Minus the gradient on what is free.
  VectorXd Residual(const VectorXd& x) const {
    VectorXd r = body_.Forces(x) + problem_.load_n;
    if (problem_.inv_dt_sq > 0) r -= inertia_.cwiseProduct(x - problem_.target_m);
    return r.cwiseProduct(free_);
  }
  double Norm(const VectorXd& residual) const {
    return residual.norm() / std::sqrt(static_cast<double>(std::max<size_t>(body_.free_count(), 1)));
  }
  Eigen::SparseMatrix<double> Matrix(const VectorXd& x, bool projected) const {
    Eigen::SparseMatrix<double> matrix = body_.Stiffness(x, projected);
    // Fixed coordinates get a one so that the matrix is regular; their right side is zero.
    VectorXd diagonal = inertia_.cwiseProduct(free_) + (VectorXd::Ones(free_.size()) - free_);
    Eigen::SparseMatrix<double> other(matrix.rows(), matrix.cols());
    other.reserve(Eigen::VectorXi::Ones(matrix.cols()));
    for (Eigen::Index i = 0; i < diagonal.size(); ++i) other.insert(i, i) = diagonal[i];
    return matrix + other;
  }

 private:
  const ReferenceBody& body_;
  const NewtonProblem& problem_;
  VectorXd inertia_, free_;
};

}  // namespace

absl::StatusOr<NewtonResult> MinimizeByNewton(const ReferenceBody& body, const NewtonProblem& problem, const VectorXd& start,
                                              const NewtonOptions& options) {
  const auto n = static_cast<Eigen::Index>(3 * body.vertex_count());
  if (start.size() != n || problem.load_n.size() != n || (problem.inv_dt_sq > 0 && problem.target_m.size() != n)) {
    return absl::InvalidArgumentError(absl::StrCat("start, loads and targets need ", n, " numbers each"));
  }
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const Minimization minimization(body, problem);
  NewtonResult result;
  result.x = start;
  Eigen::SimplicialLDLT<Eigen::SparseMatrix<double>> direct;
  Eigen::ConjugateGradient<Eigen::SparseMatrix<double>, Eigen::Lower | Eigen::Upper> gradient;
  Eigen::ConjugateGradient<Eigen::SparseMatrix<double>, Eigen::Lower | Eigen::Upper, Eigen::IncompleteCholesky<double>> factored;
  double linear_ms = 0;
  for (int iteration = 0;; ++iteration) {
    const VectorXd residual = minimization.Residual(result.x);
    result.residual_n.push_back(minimization.Norm(residual));
    result.time_ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    result.linear_ms.push_back(linear_ms);
    if (result.residual_n.back() <= options.tolerance_n) return result;
    if (iteration == options.max_iterations) {
      return absl::DeadlineExceededError(absl::StrCat("a residual of ", result.residual_n.back(), " N is left after ", iteration,
                                                      " iterations, above ", options.tolerance_n));
    }
    VectorXd step;
    for (const bool projected : {false, true}) {
      if (!projected && options.always_projects) continue;
      const Eigen::SparseMatrix<double> matrix = minimization.Matrix(result.x, projected);
      const Clock::time_point linear_begin = Clock::now();
      absl::Status solved;
      if (options.solver == NewtonSolver::kDirect) {
        if (result.residual_n.size() == 1) direct.analyzePattern(matrix);
        direct.factorize(matrix);
        if (direct.info() != Eigen::Success) {
          solved = absl::InternalError("the stiffness matrix cannot be factorised");
        } else {
          step = direct.solve(residual);
        }
      } else if (options.solver == NewtonSolver::kConjugateGradient) {
        gradient.setTolerance(options.linear_tolerance_ratio);
        gradient.compute(matrix);
        step = gradient.solve(residual);
      } else {
        factored.setTolerance(options.linear_tolerance_ratio);
        factored.compute(matrix);
        if (factored.info() != Eigen::Success) {
          solved = absl::InternalError("the stiffness matrix has no incomplete factorisation");
        } else {
          step = factored.solve(residual);
        }
      }
      linear_ms += std::chrono::duration<double, std::milli>(Clock::now() - linear_begin).count();
      if (projected && !solved.ok()) return solved;
      if (solved.ok() && step.allFinite() && step.dot(residual) > 0) break;
    }
    const double slope = step.dot(residual);
    const double energy = minimization.Energy(result.x);
    const VectorXd before = result.x;
    double length = 1;
    for (int halving = 0; halving < 40; ++halving, length /= 2) {
      result.x = before + length * step;
      // Near the end the energy only changes by rounding.
      if (minimization.Energy(result.x) <= energy - 1e-4 * length * slope + 1e-13 * std::abs(energy)) break;
    }
  }
}

}  // namespace palpate::sim
