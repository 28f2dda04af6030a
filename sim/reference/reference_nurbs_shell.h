#pragma once

#include <functional>
#include <vector>

#include <Eigen/Core>
#include <Eigen/SparseCore>

#include "absl/status/statusor.h"
#include "gpu/dynamics/nurbs_shell_model.h"

namespace palpate::sim {

/// Kirchhoff-Love shells in double precision, written apart from the kernels: derivatives of the normal by the product rule of Kiendl,
/// Hsu, Wu, Reali 2015, and not by the projections that kernels use; of couplings by differentiation of each operation. States are [3 *
/// control_count] m. Immutable.
class ReferenceNurbsShell {
 public:
  /// Keeps a reference.
  explicit ReferenceNurbsShell(const gpu::NurbsShellModel& model) : model_(model) {}

  Eigen::Index size() const { return 3 * static_cast<Eigen::Index>(model_.control_count()); }
  Eigen::VectorXd Rest() const;

  double Energy(const Eigen::VectorXd& x) const;             ///< J
  Eigen::VectorXd Gradient(const Eigen::VectorXd& x) const;  ///< N
  /// Second derivatives, exact [N/m].
  std::vector<Eigen::Triplet<double>> Stiffness(const Eigen::VectorXd& x) const;

  /// Loads on control points: of `load_n_per_m2` on the rest area, and of a pressure along the normals as they are.
  Eigen::VectorXd AreaLoad(const Eigen::Vector3d& load_n_per_m2) const;
  Eigen::VectorXd PressureLoad(const Eigen::VectorXd& x, double pressure_pa) const;

 private:
  const gpu::NurbsShellModel& model_;
};

/// Something with an energy besides the shell's.
struct NurbsShellLoad {
  Eigen::VectorXd dead_n;  ///< [3 * control_count]
  /// Adds forces that follow the shape, and minus their derivatives; may be empty.
  std::function<void(const Eigen::VectorXd& x, Eigen::VectorXd* force, std::vector<Eigen::Triplet<double>>* stiffness)> following = nullptr;
};

/// Newton's method from `start` with a sparse direct solve. `groups` [3 * control_count]: coordinates with the same number move by the same
/// amount, those with -1 do not move. `max_iterations` = 1 and no tolerance: linear statics about `start`. Errors: Internal (the matrix
/// cannot be factorised), DeadlineExceeded (the residual stays above `tolerance_n`).
absl::StatusOr<Eigen::VectorXd> SolveNurbsShell(const ReferenceNurbsShell& shell, const NurbsShellLoad& load,
                                                const std::vector<int>& groups, const Eigen::VectorXd& start, double tolerance_n,
                                                int max_iterations);

}  // namespace palpate::sim
