#include "sim/reference/tensor_mass.h"

#include <algorithm>
#include <cmath>

#include <Eigen/Dense>

namespace palpate::sim {
namespace {

using Eigen::Matrix3d;
using Eigen::Vector3d;

constexpr uint32_t kStartPriority = 2;
constexpr uint32_t kMaxPriority = 10;  // ten times the mean chance: one miss in 22,000 steps (the table of the thesis)

/// Free vertices by rising distance in edges from those with a load; the unreached last.
template <typename Neighbors>
std::vector<uint32_t> BreadthFirst(const std::vector<uint32_t>& free, const Neighbors& neighbors, std::span<const Vector3d> loads_n) {
  std::vector<uint8_t> seen(loads_n.size(), 0);
  std::vector<uint32_t> order;
  for (const uint32_t v : free) {
    if (loads_n[v].isZero(0)) continue;
    seen[v] = 1;
    order.push_back(v);
  }
  std::vector<uint8_t> is_free(loads_n.size(), 0);
  for (const uint32_t v : free) is_free[v] = 1;
  for (size_t at = 0; at < order.size(); ++at) {
    for (const auto& neighbor : neighbors[order[at]]) {
      if (seen[neighbor.vertex] != 0 || is_free[neighbor.vertex] == 0) continue;
      seen[neighbor.vertex] = 1;
      order.push_back(neighbor.vertex);
    }
  }
  for (const uint32_t v : free) {
    if (seen[v] == 0) order.push_back(v);
  }
  return order;
}

}  // namespace

PriorityQueue::PriorityQueue(uint32_t vertex_count, uint32_t priority) : places_(vertex_count) {
  for (uint32_t v = 0; v < vertex_count; ++v) Set(v, priority);
}

void PriorityQueue::Set(uint32_t vertex, uint32_t priority) {
  std::vector<uint32_t>& own = places_[vertex];
  while (own.size() < priority) {
    own.push_back(static_cast<uint32_t>(queue_.size()));
    queue_.push_back(vertex);
  }
  while (own.size() > priority) {
    const uint32_t place = own.back();
    own.pop_back();
    const auto last = static_cast<uint32_t>(queue_.size() - 1);
    const uint32_t moved = queue_.back();
    queue_.pop_back();
    if (place == last) continue;
    queue_[place] = moved;
    *std::find(places_[moved].begin(), places_[moved].end(), last) = place;
    std::sort(places_[moved].begin(), places_[moved].end());
  }
}

uint32_t PriorityQueue::Draw(std::mt19937_64& random) const { return queue_[random() % queue_.size()]; }

absl::StatusOr<TensorMass> TensorMass::Create(std::span<const Vector3d> rest_m, std::span<const gpu::TissueTet> tets,
                                              std::vector<uint8_t> fixed) {
  const size_t n = rest_m.size();
  if (fixed.size() != n) return absl::InvalidArgumentError(absl::StrCat("fixed: ", fixed.size(), " entries for ", n, " vertices"));
  TensorMass model;
  model.fixed_ = std::move(fixed);
  model.mass_kg_.assign(n, 0.0);
  model.vertex_tensors_.assign(n, Matrix3d::Zero());
  model.neighbors_.resize(n);
  for (size_t t = 0; t < tets.size(); ++t) {
    const auto& v = tets[t].vertices;
    for (const uint32_t i : v) {
      if (i >= n) return absl::InvalidArgumentError(absl::StrCat("tet ", t, ": vertex ", i, " is outside [0, ", n, ")"));
    }
    Matrix3d edges;
    for (int k = 0; k < 3; ++k) edges.col(k) = rest_m[v[static_cast<size_t>(k) + 1]] - rest_m[v[0]];
    const double volume_m3 = edges.determinant() / 6;
    if (!(volume_m3 > 0)) return absl::InvalidArgumentError(absl::StrCat("tet ", t, ": volume ", volume_m3, " m^3 is not positive"));
    Eigen::Matrix<double, 4, 3> g;
    g.bottomRows<3>() = edges.inverse();
    g.row(0) = -g.bottomRows<3>().colwise().sum();
    const double mu = tets[t].mu_pa, lambda = tets[t].lambda_pa;
    for (int a = 0; a < 4; ++a) {
      const uint32_t i = v[static_cast<size_t>(a)];
      model.mass_kg_[i] += volume_m3 * tets[t].density_kg_per_m3 / 4;
      for (int b = 0; b < 4; ++b) {
        const uint32_t j = v[static_cast<size_t>(b)];
        const Vector3d ga = g.row(a).transpose(), gb = g.row(b).transpose();
        const Matrix3d tensor =
            volume_m3 * (lambda * ga * gb.transpose() + mu * gb * ga.transpose() + mu * ga.dot(gb) * Matrix3d::Identity());
        if (a == b) {
          model.vertex_tensors_[i] += tensor;
          continue;
        }
        auto& list = model.neighbors_[i];
        const auto found = std::find_if(list.begin(), list.end(), [&](const Neighbor& neighbor) { return neighbor.vertex == j; });
        if (found != list.end()) {
          found->tensor += tensor;
        } else {
          list.push_back({j, tensor});
        }
      }
    }
  }
  model.inverses_.assign(n, Matrix3d::Zero());
  for (uint32_t i = 0; i < n; ++i) {
    if (model.fixed_[i] != 0 || model.neighbors_[i].empty()) continue;
    model.free_.push_back(i);
    model.inverses_[i] = model.vertex_tensors_[i].inverse();
  }
  if (model.free_.empty()) return absl::InvalidArgumentError("every vertex is fixed: nothing can move");
  // All at once converges as long as damping times the largest eigenvalue stays below 2.
  model.jacobi_damping_ = std::min(1.0, 1.6 / model.LargestEigenvalue(model.inverses_));
  return model;
}

Vector3d TensorMass::ForceOn(uint32_t vertex, std::span<const Vector3d> displacements_m) const {
  Vector3d force = -vertex_tensors_[vertex] * displacements_m[vertex];
  for (const Neighbor& neighbor : neighbors_[vertex]) force -= neighbor.tensor * displacements_m[neighbor.vertex];
  return force;
}

std::vector<Vector3d> TensorMass::Forces(std::span<const Vector3d> displacements_m) const {
  std::vector<Vector3d> forces(vertex_count());
  for (uint32_t v = 0; v < vertex_count(); ++v) forces[v] = ForceOn(v, displacements_m);
  return forces;
}

double TensorMass::Residual(std::span<const Vector3d> displacements_m, std::span<const Vector3d> loads_n) const {
  double sum = 0;
  for (const uint32_t v : free_) sum += (ForceOn(v, displacements_m) + loads_n[v]).squaredNorm();
  return std::sqrt(sum / static_cast<double>(free_.size()));
}

double TensorMass::LargestEigenvalue(std::span<const Matrix3d> scale) const {
  // Power iteration; the start has a part of every mode.
  std::mt19937_64 random(1);
  std::vector<Vector3d> u(vertex_count(), Vector3d::Zero()), next = u;
  const auto number = [&] { return static_cast<double>(random() % 2001) / 1000 - 1; };
  for (const uint32_t v : free_) u[v] = Vector3d(number(), number(), number());
  double value = 0;
  for (int iteration = 0; iteration < 200; ++iteration) {
    double norm = 0;
    for (const uint32_t v : free_) norm += u[v].squaredNorm();
    norm = std::sqrt(norm);
    for (const uint32_t v : free_) u[v] /= norm;
    double length = 0;
    for (const uint32_t v : free_) {
      next[v] = -scale[v] * ForceOn(v, u);
      length += next[v].squaredNorm();
    }
    value = std::sqrt(length);
    std::swap(u, next);
  }
  return value;
}

void TensorMass::Relax(std::span<const Vector3d> loads_n, UpdateOrder order, int passes, uint64_t seed,
                       std::vector<Vector3d>* displacements_m, const std::function<void()>& after_pass) const {
  std::vector<Vector3d>& u = *displacements_m;
  std::mt19937_64 random(seed);
  std::vector<uint32_t> sequence = order == UpdateOrder::kBreadthFirst ? BreadthFirst(free_, neighbors_, loads_n) : free_;
  std::vector<Vector3d> moves(u.size());
  PriorityQueue queue(static_cast<uint32_t>(free_.size()), kStartPriority);
  double excitation_m = 0;  // moves that earn the starting priority
  for (int pass = 0; pass < passes; ++pass) {
    switch (order) {
      case UpdateOrder::kSynchronous:
        for (const uint32_t v : free_) moves[v] = jacobi_damping_ * (inverses_[v] * (ForceOn(v, u) + loads_n[v]));
        for (const uint32_t v : free_) u[v] += moves[v];
        break;
      case UpdateOrder::kRandom:
        // Fisher and Yates, so that every library gives the same order.
        for (size_t i = sequence.size(); i > 1; --i) std::swap(sequence[i - 1], sequence[random() % i]);
        [[fallthrough]];
      case UpdateOrder::kBreadthFirst:
        for (const uint32_t v : sequence) u[v] += inverses_[v] * (ForceOn(v, u) + loads_n[v]);
        break;
      case UpdateOrder::kPriority: {
        double sum_m = 0;
        for (size_t draw = 0; draw < free_.size(); ++draw) {
          const uint32_t k = queue.Draw(random);
          const uint32_t v = free_[k];
          const Vector3d move = inverses_[v] * (ForceOn(v, u) + loads_n[v]);
          u[v] += move;
          sum_m += move.norm();
          // A priority may rise at once but falls by one at a time: a vertex that was hit again and again only looks calm.
          const double wanted = excitation_m > 0 ? kStartPriority * move.norm() / excitation_m : kStartPriority;
          const auto target = static_cast<uint32_t>(std::clamp(wanted, 1.0, static_cast<double>(kMaxPriority)));
          queue.Set(k, std::max(target, queue.priority(k) - 1));
        }
        excitation_m = sum_m / static_cast<double>(free_.size());
        break;
      }
    }
    if (after_pass) after_pass();
  }
}

double TensorMass::StableStep() const {
  std::vector<Matrix3d> scale(vertex_count(), Matrix3d::Zero());
  for (const uint32_t v : free_) scale[v] = Matrix3d::Identity() / mass_kg_[v];
  return 2 / std::sqrt(LargestEigenvalue(scale));
}

void TensorMass::StepExplicitly(std::span<const Vector3d> loads_n, double dt_s, double damping_per_s, std::vector<Vector3d>* now_m,
                                std::vector<Vector3d>* before_m) const {
  std::vector<Vector3d> next(vertex_count(), Vector3d::Zero());
  const double half = damping_per_s * dt_s / 2;
  for (const uint32_t v : free_) {
    const Vector3d force = ForceOn(v, *now_m) + loads_n[v];
    next[v] = (dt_s * dt_s / mass_kg_[v] * force + 2 * (*now_m)[v] - (1 - half) * (*before_m)[v]) / (1 + half);
  }
  *before_m = std::move(*now_m);
  *now_m = std::move(next);
}

}  // namespace palpate::sim
