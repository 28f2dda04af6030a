#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <Eigen/Core>
#include <Eigen/SparseCholesky>
#include <Eigen/SparseCore>

#include "gpu/base/status.h"
#include "sim/scene/elastic_tet.h"

namespace palpate::sim {

class ReferenceBody;

/// A spring of all three directions between two vertices, or of a vertex with itself to where it is given to be: a block of a stiffness.
struct StiffnessBlock {
  uint32_t row = 0;
  uint32_t column = 0;
  Eigen::Matrix3d block_n_per_m;

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [of_row, of_column, block] = *this;
    archive(of_row, of_column, block);
  }
};

struct PrecomputedOptions {
  /// Viscosity: 0 for statics. Else the model is one backward Euler step of this length, and the stiffness includes damping / dt_s.
  double dt_s = 0;
  /// Bound on the responses, which take 72 bytes for each pair of chosen vertices, and on the factor of the stiffness, which takes 12 bytes
  /// for each entry.
  size_t max_bytes = size_t{512} << 20;
};

/// Quasi-static linear elasticity whose responses to unit forces are computed beforehand (Cotin, Delingette, Ayache 1999; Forest 2003,
/// section 3): u = A^-1 f for the displacements u of all vertices, with the columns of A^-1 at chosen vertices, where the tissue may be
/// touched, kept as 3 x 3 blocks. The stiffness A is that of the energy of each tet at rest, so every energy is taken at small strain; with
/// a step in the options the viscosity is added, and blocks of the caller. Vertices that are fixed, or in no tet and no block, do not move.
///
/// Topology is built in: a cut needs another model. Double precision; the same calls give the same bits. Not thread-safe: columns are
/// computed when they are first asked for, or all at once by ComputeColumns.
class PrecomputedModel {
 public:
  /// `fixed`: [vertex_count], 1 = does not move. `chosen`: vertices with columns, ascending, unique. `extra`: symmetric, positive
  /// semidefinite as a whole; both triangles.
  /// Errors: InvalidArgument (sizes, indices, volumes that are not positive), FailedPrecondition (the body is not held: the stiffness is
  /// singular), ResourceExhausted naming what the model would take.
  static absl::StatusOr<std::unique_ptr<PrecomputedModel>> Create(std::span<const Eigen::Vector3d> rest_m, std::span<const ElasticTet> tets,
                                                                  std::span<const uint8_t> fixed, std::span<const uint32_t> chosen,
                                                                  std::span<const StiffnessBlock> extra, const PrecomputedOptions& options);

  /// What a model is made of, as Create takes it: made of the same again it gives the same bits.
  struct Input {
    std::vector<Eigen::Vector3d> rest_m;
    std::vector<ElasticTet> tets;
    std::vector<uint8_t> fixed;
    std::vector<uint32_t> chosen;
    std::vector<StiffnessBlock> extra;
    double dt_s = 0;

    template <typename Archive>
    void VisitState(Archive& archive) {
      auto& [rest, of_tets, is_fixed, columns, blocks, dt] = *this;
      archive.Enter("PrecomputedModel");
      archive(rest, of_tets, is_fixed, columns, blocks, dt);
    }
  };
  const Input& input() const { return input_; }
  bool has_all_columns() const;  ///< they have been computed

  size_t vertex_count() const { return place_.size(); }
  size_t chosen_count() const { return chosen_.size(); }
  uint32_t chosen(size_t i) const { return chosen_[i]; }
  /// Index in `chosen`, or kNotChosen.
  static constexpr uint32_t kNotChosen = 0xffffffffU;
  uint32_t ChosenIndex(uint32_t vertex) const { return chosen_index_[vertex]; }
  const std::vector<double>& mass_kg() const { return mass_kg_; }  ///< lumped, [vertex_count]
  size_t bytes() const { return bytes_; }                          ///< held, once all columns are there

  /// Displacements [3 * vertex_count] m under loads [3 * vertex_count] N; those on what does not move are ignored. One sparse solve.
  Eigen::VectorXd Displace(const Eigen::VectorXd& load_n) const;
  /// A u, N, on what moves; zero elsewhere. u is taken as zero on what does not move.
  Eigen::VectorXd Apply(const Eigen::VectorXd& u_m) const;
  /// The viscous part of A times u: damping over the step's length. Zero in statics.
  Eigen::VectorXd ApplyViscosity(const Eigen::VectorXd& u_m) const;

  /// Displacement of chosen vertex i per newton on chosen vertex j, m/N: columns are the axes of the force. Response(i, j) is the transpose
  /// of Response(j, i) to rounding. Computes column j if it is not there yet: three sparse solves.
  Eigen::Ref<const Eigen::Matrix3d, 0, Eigen::OuterStride<>> Response(size_t i, size_t j);
  /// All columns now.
  void ComputeColumns();

  /// Forces on k chosen vertices that give them these displacements (the contact problem of Cotin et al.), [k] N. O(k^3).
  /// Errors: InvalidArgument (a vertex that is not chosen, does not move, or is given twice; sizes).
  absl::StatusOr<std::vector<Eigen::Vector3d>> ForcesFor(std::span<const uint32_t> vertices, std::span<const Eigen::Vector3d> moves_m);

  /// The stiffness that the model shows at k chosen vertices, all others being free to follow: the Schur complement of A, [3k x 3k] N/m.
  /// What is joined to the model there sees nothing else of it. Errors: those of ForcesFor.
  absl::StatusOr<Eigen::MatrixXd> CondenseTo(std::span<const uint32_t> vertices);

 private:
  PrecomputedModel() = default;
  absl::Status NumberWhatMoves();
  absl::Status Assemble(const ReferenceBody& body);
  Eigen::SparseMatrix<double> Reduced(const Eigen::SparseMatrix<double>& full, std::span<const StiffnessBlock> blocks) const;
  absl::Status Factorize();
  absl::StatusOr<Eigen::MatrixXd> ResponsesAt(std::span<const uint32_t> vertices);

  Input input_;
  std::vector<uint32_t> place_;  // of each vertex among those that move, or kNotChosen
  std::vector<uint32_t> moving_;
  std::vector<uint32_t> chosen_;
  std::vector<uint32_t> chosen_index_;
  std::vector<double> mass_kg_;
  Eigen::SparseMatrix<double> stiffness_;  // A on what moves
  Eigen::SparseMatrix<double> viscosity_;  // empty in statics
  Eigen::SimplicialLDLT<Eigen::SparseMatrix<double>> factor_;
  std::vector<Eigen::MatrixXd> columns_;  // [chosen] 3 chosen x 3, or empty
  size_t bytes_ = 0;
};

}  // namespace palpate::sim
