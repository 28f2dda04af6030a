#include "sim/reference/tensor_mass.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include <Eigen/Dense>

namespace palpate::sim {
namespace {

using Eigen::Matrix3d;
using Eigen::Vector3d;

constexpr uint32_t kMeanPriority = 2;                  // the queue is twice as long as there are free vertices
constexpr uint32_t kMaxPriority = 10 * kMeanPriority;  // missed in one step of 22,000 (the table in Forest 2003)
constexpr double kExcitationRate = 10;                 // the excitation changes by at most exp(10) a pass
constexpr uint32_t kNowhere = 0xffffffffU;

/// Three numbers in [-1, 1] that belong to a place, so that they do not depend on how vertices are numbered.
Vector3d Noise(const Vector3d& place_m) {
  uint64_t state = 0;
  Vector3d noise;
  for (int round = 0; round < 6; ++round) {
    // splitmix64; the second round of the coordinates has seen all three.
    state = (state ^ std::bit_cast<uint64_t>(place_m[round % 3] + 0.0)) + 0x9e3779b97f4a7c15U;
    state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9U;
    state = (state ^ (state >> 27)) * 0x94d049bb133111ebU;
    state ^= state >> 31;
    noise[round % 3] = static_cast<double>(state >> 11) * 0x1p-52 - 1;
  }
  return noise;
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

absl::StatusOr<TensorMass> TensorMass::Create(std::span<const Vector3d> rest_m, std::span<const ElasticTet> tets,
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
  model.start_.assign(n, Vector3d::Zero());
  for (uint32_t i = 0; i < n; ++i) {
    if (model.fixed_[i] != 0 || model.neighbors_[i].empty()) continue;
    model.free_.push_back(i);
    model.inverses_[i] = model.vertex_tensors_[i].inverse();
    model.start_[i] = Noise(rest_m[i]);
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

double TensorMass::LargestResidual(std::span<const Vector3d> displacements_m, std::span<const Vector3d> loads_n) const {
  double largest = 0;
  for (const uint32_t v : free_) largest = std::max(largest, (ForceOn(v, displacements_m) + loads_n[v]).norm());
  return largest;
}

double TensorMass::LargestEigenvalue(std::span<const Matrix3d> scale) const {
  // Power iteration; the start has a part of every mode.
  std::vector<Vector3d> u = start_, next = u;
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

Relaxation::Relaxation(const TensorMass* model, RelaxationOptions options)
    : model_(model),
      options_(std::move(options)),
      random_(options_.seed),
      sequence_(model->free_),
      moves_m_(model->vertex_count()),
      places_(model->vertex_count(), kNowhere),
      queue_(static_cast<uint32_t>(model->free_.size()), kMeanPriority) {
  for (uint32_t k = 0; k < sequence_.size(); ++k) places_[sequence_[k]] = k;
}

Vector3d Relaxation::MoveOf(uint32_t vertex, std::span<const Vector3d> loads_n, std::span<const Vector3d> displacements_m) const {
  if (options_.on_update) options_.on_update(vertex);
  return model_->inverses_[vertex] * (model_->ForceOn(vertex, displacements_m) + loads_n[vertex]);
}

void Relaxation::OrderBreadthFirst(std::span<const Vector3d> loads_n) {
  std::vector<uint32_t> loaded;
  for (const uint32_t v : model_->free_) {
    if (!loads_n[v].isZero(0)) loaded.push_back(v);
  }
  if (loaded.empty() || loaded == loaded_) return;
  loaded_ = std::move(loaded);
  given_count_ = 0;
  std::vector<uint8_t> is_waiting(model_->vertex_count(), 0);
  for (const uint32_t v : model_->free_) is_waiting[v] = 1;
  for (const uint32_t v : loaded_) is_waiting[v] = 0;
  sequence_ = loaded_;
  for (size_t at = 0; at < sequence_.size(); ++at) {
    for (const TensorMass::Neighbor& neighbor : model_->neighbors_[sequence_[at]]) {
      if (is_waiting[neighbor.vertex] == 0) continue;
      is_waiting[neighbor.vertex] = 0;
      sequence_.push_back(neighbor.vertex);
    }
  }
  for (const uint32_t v : model_->free_) {
    if (is_waiting[v] != 0) sequence_.push_back(v);
  }
}

void Relaxation::UpdateDrawn(std::span<const Vector3d> loads_n, std::vector<Vector3d>* displacements_m) {
  const uint32_t k = queue_.Draw(random_);
  const uint32_t v = model_->free_[k];
  const Vector3d move = MoveOf(v, loads_n, *displacements_m);
  (*displacements_m)[v] += move;
  // The excitation keeps the queue near its wanted length.
  if (excitation_m_ == 0) excitation_m_ = move.norm();
  const auto free_count = static_cast<double>(model_->free_.size());
  const bool is_long = static_cast<double>(queue_.queue().size()) > kMeanPriority * free_count;
  excitation_m_ *= std::exp((is_long ? kExcitationRate : -kExcitationRate) / free_count);
  const double wanted = excitation_m_ > 0 ? kMeanPriority * move.norm() / excitation_m_ : 1;
  const auto target = static_cast<uint32_t>(std::clamp(wanted, 1.0, static_cast<double>(kMaxPriority)));
  // A priority may rise at once but at most halves: a vertex that was hit again and again only looks calm.
  const uint32_t old = queue_.priority(k);
  queue_.Set(k, std::max({target, old / 2, 1U}));
  if (target <= old) return;
  // What moved has taken its neighbours out of balance.
  for (const TensorMass::Neighbor& neighbor : model_->neighbors_[v]) {
    const uint32_t j = places_[neighbor.vertex];
    if (j != kNowhere) queue_.Set(j, std::max(queue_.priority(j), target / 2));
  }
}

void Relaxation::Run(std::span<const Vector3d> loads_n, size_t update_count, std::vector<Vector3d>* displacements_m) {
  std::vector<Vector3d>& u = *displacements_m;
  const size_t pass_count = sequence_.size();
  if (options_.order == UpdateOrder::kSynchronous) {
    for (given_count_ += update_count; given_count_ >= pass_count; given_count_ -= pass_count) {
      for (const uint32_t v : sequence_) moves_m_[v] = model_->jacobi_damping_ * MoveOf(v, loads_n, u);
      for (const uint32_t v : sequence_) u[v] += moves_m_[v];
    }
    return;
  }
  if (options_.order == UpdateOrder::kBreadthFirst) OrderBreadthFirst(loads_n);
  for (; update_count > 0; --update_count) {
    if (options_.order == UpdateOrder::kRandom && given_count_ == 0) {
      // Fisher and Yates, so that every library gives the same order.
      for (size_t i = pass_count; i > 1; --i) std::swap(sequence_[i - 1], sequence_[random_() % i]);
    }
    if (options_.order == UpdateOrder::kPriority) {
      UpdateDrawn(loads_n, displacements_m);
    } else {
      const uint32_t v = sequence_[given_count_];
      u[v] += MoveOf(v, loads_n, u);
    }
    if (++given_count_ == pass_count) given_count_ = 0;
  }
}

}  // namespace palpate::sim
