#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <Eigen/Core>
#include <Eigen/SparseCore>

#include "gpu/base/status.h"
#include "sim/scene/elastic_tet.h"

namespace palpate::sim {

/// Linear tetrahedra with the elastic energies of docs/algorithms/tissue.md in double precision, written apart from the kernels: stresses
/// and their differentials as dense matrices. States are [3 * vertex_count] m. Immutable.
class ReferenceBody {
 public:
  /// `fixed`: [vertex_count], 1 = does not move. Errors: InvalidArgument (sizes, indices, volumes that are not positive).
  static absl::StatusOr<ReferenceBody> Create(std::vector<Eigen::Vector3d> rest_m, std::vector<ElasticTet> tets,
                                              std::vector<uint8_t> fixed);

  size_t vertex_count() const { return rest_m_.size(); }
  bool is_fixed(size_t vertex) const { return fixed_[vertex] != 0; }
  size_t free_count() const { return free_count_; }
  Eigen::VectorXd Rest() const;
  const std::vector<double>& mass_kg() const { return mass_kg_; }  ///< lumped

  double Energy(const Eigen::VectorXd& x) const;           ///< J
  Eigen::VectorXd Forces(const Eigen::VectorXd& x) const;  ///< -dEnergy/dx, N; of fixed vertices too

  /// d2Energy/dx2, N/m; rows and columns of fixed vertices are zero. `projected`: of each tet the positive semidefinite part only.
  Eigen::SparseMatrix<double> Stiffness(const Eigen::VectorXd& x, bool projected) const;

 private:
  struct Element {
    ElasticTet tet;
    Eigen::Matrix<double, 4, 3> gradients;  ///< rows: rest gradients of the shape functions
    double volume_m3 = 0;
  };
  using Matrix12 = Eigen::Matrix<double, 12, 12>;

  Eigen::Matrix<double, 3, 4> Corners(const Element& element, const Eigen::VectorXd& x) const;
  Matrix12 ElementStiffness(const Element& element, const Eigen::VectorXd& x) const;

  std::vector<Eigen::Vector3d> rest_m_;
  std::vector<uint8_t> fixed_;
  std::vector<Element> elements_;
  std::vector<double> mass_kg_;
  size_t free_count_ = 0;
};

}  // namespace palpate::sim
