#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <vector>

#include <Eigen/Core>

#include "gpu/base/status.h"
#include "gpu/dynamics/tissue_layout.h"

namespace palpate::sim {

/// The order in which the asynchronous relaxation of TensorMass updates vertices (Forest 2003, section 3).
enum class UpdateOrder {
  kSynchronous,   ///< all at once from the old state, damped as far as that needs to converge
  kRandom,        ///< each once a pass, in a new random order
  kBreadthFirst,  ///< by the distance in edges from the loaded vertices (Brown)
  kPriority,      ///< drawn with a probability that grows with how far a vertex moved last
};

/// Draws vertices with a chance proportional to their priorities: a vertex of priority p stands p times in a queue.
class PriorityQueue {
 public:
  PriorityQueue(uint32_t vertex_count, uint32_t priority);

  /// Appends to raise; to lower, the last occurrences of the vertex are overwritten by the last elements of the queue.
  void Set(uint32_t vertex, uint32_t priority);
  uint32_t priority(uint32_t vertex) const { return static_cast<uint32_t>(places_[vertex].size()); }
  uint32_t Draw(std::mt19937_64& random) const;
  std::span<const uint32_t> queue() const { return queue_; }

 private:
  std::vector<uint32_t> queue_;
  std::vector<std::vector<uint32_t>> places_;  // of each vertex, in the queue
};

/// Linear elasticity as stiffness tensors on vertices and edges (Cotin, Delingette, Ayache 2000): the model of the thesis, as a baseline
/// for the implicit solver. f_i = -(K_ii u_i + sum_j K_ij u_j). Displacements and forces are [vertex_count].
class TensorMass {
 public:
  /// Only mu, lambda, density of the tets count. Errors: InvalidArgument (sizes, indices, volumes that are not positive).
  static absl::StatusOr<TensorMass> Create(std::span<const Eigen::Vector3d> rest_m, std::span<const gpu::TissueTet> tets,
                                           std::vector<uint8_t> fixed);

  size_t vertex_count() const { return fixed_.size(); }
  std::vector<Eigen::Vector3d> Forces(std::span<const Eigen::Vector3d> displacements_m) const;

  /// Root mean square of forces + loads over the free vertices, N.
  double Residual(std::span<const Eigen::Vector3d> displacements_m, std::span<const Eigen::Vector3d> loads_n) const;

  /// `passes` times as many vertex updates as there are free vertices. Each sets a vertex to the balance of its loads and its neighbours.
  /// Calls with the same state, seed and order give the same result. `after_pass` (may be null) sees the displacements after each pass.
  void Relax(std::span<const Eigen::Vector3d> loads_n, UpdateOrder order, int passes, uint64_t seed,
             std::vector<Eigen::Vector3d>* displacements_m, const std::function<void()>& after_pass) const;

  /// The longest step of the explicit scheme below without damping that stays bounded: 2 over the highest angular frequency.
  double StableStep() const;

  /// One step of (m/dt^2 + c/(2 dt)) u+ = f + load + 2 m/dt^2 u - (m/dt^2 - c/(2 dt)) u-, with c = damping_per_s m.
  void StepExplicitly(std::span<const Eigen::Vector3d> loads_n, double dt_s, double damping_per_s, std::vector<Eigen::Vector3d>* now_m,
                      std::vector<Eigen::Vector3d>* before_m) const;

 private:
  struct Neighbor {
    uint32_t vertex;
    Eigen::Matrix3d tensor;  ///< K_ij
  };
  Eigen::Vector3d ForceOn(uint32_t vertex, std::span<const Eigen::Vector3d> displacements_m) const;
  double LargestEigenvalue(std::span<const Eigen::Matrix3d> scale) const;

  std::vector<uint8_t> fixed_;
  std::vector<uint32_t> free_;
  std::vector<double> mass_kg_;
  std::vector<Eigen::Matrix3d> vertex_tensors_;  // K_ii
  std::vector<Eigen::Matrix3d> inverses_;        // of K_ii, zero where fixed
  std::vector<std::vector<Neighbor>> neighbors_;
  double jacobi_damping_ = 1;
};

}  // namespace palpate::sim
