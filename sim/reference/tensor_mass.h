#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <vector>

#include <Eigen/Core>

#include "gpu/base/status.h"
#include "sim/scene/elastic_tet.h"

namespace palpate::sim {

/// The order in which Relaxation updates vertices (Forest 2003, section 3).
enum class UpdateOrder {
  kSynchronous,  ///< all at once from the old state, damped as far as that needs to converge
  kRandom,       ///< each once a pass, in a new random order
  /// Brown's: by the distance in edges from the loaded vertices, over free vertices only; at the same distance those found first come
  /// first; those out of reach last, by number. While nothing is loaded the last order stays (at first: by number).
  kBreadthFirst,
  kPriority,  ///< drawn with a probability that grows with how far a vertex, or one next to it, moved last
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

/// Linear elasticity as stiffness tensors on vertices and edges (Cotin, Delingette, Ayache 2000; Forest 2003, section 3), as a baseline for
/// the implicit solver. f_i = -(K_ii u_i + sum_j K_ij u_j). Displacements and forces are [vertex_count].
class TensorMass {
 public:
  /// Only mu, lambda, density of the tets count. Errors: InvalidArgument (sizes, indices, volumes that are not positive).
  static absl::StatusOr<TensorMass> Create(std::span<const Eigen::Vector3d> rest_m, std::span<const ElasticTet> tets,
                                           std::vector<uint8_t> fixed);

  size_t vertex_count() const { return fixed_.size(); }
  std::vector<Eigen::Vector3d> Forces(std::span<const Eigen::Vector3d> displacements_m) const;

  /// What forces + loads leave on the free vertices, N: root mean square, and the largest.
  double Residual(std::span<const Eigen::Vector3d> displacements_m, std::span<const Eigen::Vector3d> loads_n) const;
  double LargestResidual(std::span<const Eigen::Vector3d> displacements_m, std::span<const Eigen::Vector3d> loads_n) const;

  size_t free_count() const { return free_.size(); }  ///< vertices that can move

  /// The longest step of the explicit scheme below without damping that stays bounded: 2 over the highest angular frequency.
  double StableStep() const;

  /// One step of (m/dt^2 + c/(2 dt)) u+ = f + load + 2 m/dt^2 u - (m/dt^2 - c/(2 dt)) u-, with c = damping_per_s m.
  void StepExplicitly(std::span<const Eigen::Vector3d> loads_n, double dt_s, double damping_per_s, std::vector<Eigen::Vector3d>* now_m,
                      std::vector<Eigen::Vector3d>* before_m) const;

 private:
  friend class Relaxation;
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
  std::vector<Eigen::Vector3d> start_;  // of the search for the largest eigenvalue
  double jacobi_damping_ = 1;
};

struct RelaxationOptions {
  UpdateOrder order = UpdateOrder::kBreadthFirst;
  uint64_t seed = 1;                                         ///< of the orders that draw
  std::function<void(uint32_t vertex)> on_update = nullptr;  ///< sees each vertex just before its update; may be null
};

/// Brings a TensorMass to equilibrium by updates of vertices, each to the balance of its loads and its neighbours, in an order that goes on
/// from call to call. Work is given out in vertex updates, so a step can take as many as its time allows. All orders have the same fixed
/// point. Deterministic: same calls, same bits.
class Relaxation {
 public:
  /// `model` must outlive this.
  Relaxation(const TensorMass* model, RelaxationOptions options);

  /// Updates `update_count` vertices, or kSynchronous: as many whole passes as fit in what calls have given so far. Shapes: [vertex_count].
  void Run(std::span<const Eigen::Vector3d> loads_n, size_t update_count, std::vector<Eigen::Vector3d>* displacements_m);

 private:
  Eigen::Vector3d MoveOf(uint32_t vertex, std::span<const Eigen::Vector3d> loads_n, std::span<const Eigen::Vector3d> displacements_m) const;
  void OrderBreadthFirst(std::span<const Eigen::Vector3d> loads_n);
  void UpdateDrawn(std::span<const Eigen::Vector3d> loads_n, std::vector<Eigen::Vector3d>* displacements_m);

  const TensorMass* model_;
  RelaxationOptions options_;
  std::mt19937_64 random_;
  size_t given_count_ = 0;          // updates of the current pass; kSynchronous: not yet used
  std::vector<uint32_t> sequence_;  // of a pass
  std::vector<uint32_t> loaded_;    // vertices that sequence_ starts with
  std::vector<Eigen::Vector3d> moves_m_;
  std::vector<uint32_t> places_;  // [vertex] in the model's list of free vertices
  PriorityQueue queue_;           // of those places
  double excitation_m_ = 0;       // moves that earn the mean priority
};

}  // namespace palpate::sim
