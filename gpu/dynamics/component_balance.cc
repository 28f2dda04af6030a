#include "gpu/dynamics/component_balance.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace palpate::gpu {
namespace {

using Vec = std::array<double, 3>;

// Share of the distance of a pair that two whole components may approach; with BOUND_SHARE of surface_contact.cl it is below 1.
constexpr double kComponentShare = 0.25;
constexpr double kEnough = 1e-16;  // of the squared residual, scaled

/// The linear system of all free components: their blocks, and the rows of the pairs that join them.
class System {
 public:
  explicit System(const ComponentForces& forces) : f_(forces), n_(forces.is_free.size()), force_(n_), scale_(n_) {
    for (size_t p = 0; p < n_; ++p) {
      const std::array<double, 6>& block = f_.blocks[p].block;
      force_[p] = f_.blocks[p].force;
      scale_[p] = {block[0], block[3], block[5]};
    }
    for (const ComponentRow& r : f_.rows) {
      const Vec normal{r.normal.x, r.normal.y, r.normal.z};
      const Vec friction{r.friction.x, r.friction.y, r.friction.z};
      for (size_t k = 0; k < 3; ++k) {
        const double diagonal = r.friction.w + (r.slope_n_per_m - r.friction.w) * normal[k] * normal[k];
        AddPair(r, k, r.normal.w * normal[k] - friction[k], &force_);
        scale_[r.component_a][k] += diagonal;
        scale_[r.component_b][k] += diagonal;
      }
    }
  }

  size_t size() const { return n_; }
  const std::vector<Vec>& force() const { return force_; }

  std::vector<Vec> Times(const std::vector<Vec>& v) const {
    std::vector<Vec> out(n_);
    for (size_t p = 0; p < n_; ++p) out[p] = f_.blocks[p].Times(v[p]);
    for (const ComponentRow& r : f_.rows) {
      if (r.slope_n_per_m == 0) continue;
      const Vec normal{r.normal.x, r.normal.y, r.normal.z};
      const Vec& a = v[r.component_a];
      const Vec& b = v[r.component_b];
      const double along = normal[0] * (b[0] - a[0]) + normal[1] * (b[1] - a[1]) + normal[2] * (b[2] - a[2]);
      for (size_t k = 0; k < 3; ++k) {
        AddPair(r, k, r.friction.w * (b[k] - a[k]) + (r.slope_n_per_m - r.friction.w) * along * normal[k], &out);
      }
    }
    return out;
  }

  /// By the inverse of the diagonal; what is not free does not move.
  std::vector<Vec> Preconditioned(std::vector<Vec> v) const {
    for (size_t p = 0; p < n_; ++p) {
      for (size_t k = 0; k < 3; ++k) v[p][k] = f_.is_free[p] ? v[p][k] / scale_[p][k] : 0;
    }
    return v;
  }

 private:
  /// What a pair does to b, and the opposite to a.
  void AddPair(const ComponentRow& r, size_t k, double on_b, std::vector<Vec>* sums) const {
    if (f_.is_free[r.component_a]) (*sums)[r.component_a][k] -= on_b;
    if (f_.is_free[r.component_b]) (*sums)[r.component_b][k] += on_b;
  }

  const ComponentForces& f_;
  size_t n_;
  std::vector<Vec> force_;
  std::vector<Vec> scale_;
};

double Dot(const std::vector<Vec>& a, const std::vector<Vec>& b) {
  double sum = 0;
  for (size_t p = 0; p < a.size(); ++p) sum += a[p][0] * b[p][0] + a[p][1] * b[p][1] + a[p][2] * b[p][2];
  return sum;
}

/// For each component the one that stands for all that pairs of free components join.
std::vector<uint32_t> JoinedBy(const ComponentForces& forces) {
  std::vector<uint32_t> leader(forces.is_free.size());
  std::iota(leader.begin(), leader.end(), 0U);
  const auto root = [&](uint32_t p) {
    while (leader[p] != p) p = leader[p] = leader[leader[p]];
    return p;
  };
  for (const ComponentRow& r : forces.rows) {
    if (forces.is_free[r.component_a] && forces.is_free[r.component_b]) leader[root(r.component_a)] = root(r.component_b);
  }
  for (uint32_t p = 0; p < leader.size(); ++p) leader[p] = root(p);
  return leader;
}

/// The motion that the joined components would make as one: none where a pair joins them with something that is not free. At leaders.
std::vector<Vec> CommonMoves(const ComponentForces& forces, const std::vector<uint32_t>& leader) {
  const size_t n = leader.size();
  std::vector<uint8_t> is_held(n, 0);
  for (const ComponentRow& r : forces.rows) {
    if (!forces.is_free[r.component_a]) is_held[leader[r.component_b]] = 1;
    if (!forces.is_free[r.component_b]) is_held[leader[r.component_a]] = 1;
  }
  std::vector<ComponentBlock> of_joined(n);
  for (size_t p = 0; p < n; ++p) of_joined[leader[p]].Add(forces.blocks[p]);
  std::vector<Vec> common(n, Vec{});
  for (size_t p = 0; p < n; ++p) {
    if (forces.is_free[p] && leader[p] == p && !is_held[p]) common[p] = of_joined[p].Balance();
  }
  return common;
}

}  // namespace

ComponentBlock::ComponentBlock(const float* sums) {
  for (size_t k = 0; k < 3; ++k) force[k] = sums[k];
  for (size_t k = 0; k < 6; ++k) block[k] = sums[3 + k];
}

void ComponentBlock::Add(const ComponentBlock& other) {
  for (size_t k = 0; k < 3; ++k) force[k] += other.force[k];
  for (size_t k = 0; k < 6; ++k) block[k] += other.block[k];
}

std::array<double, 3> ComponentBlock::Times(const std::array<double, 3>& v) const {
  const auto& b = block;
  return {b[0] * v[0] + b[1] * v[1] + b[2] * v[2], b[1] * v[0] + b[3] * v[1] + b[4] * v[2], b[2] * v[0] + b[4] * v[1] + b[5] * v[2]};
}

std::array<double, 3> ComponentBlock::Balance() const {
  const auto& b = block;
  const double l10 = b[1] / b[0];
  const double l20 = b[2] / b[0];
  const double d1 = b[3] - l10 * b[1];
  const double t = b[4] - l20 * b[1];
  const double l21 = t / d1;
  const double d2 = b[5] - l20 * b[2] - l21 * t;
  const double y1 = force[1] - l10 * force[0];
  const double z = (force[2] - l20 * force[0] - l21 * y1) / d2;
  const double y = y1 / d1 - l21 * z;
  return {force[0] / b[0] - l10 * y - l20 * z, y, z};
}

std::vector<Vec> BalanceComponents(const ComponentForces& forces) {
  const System system(forces);
  const size_t n = system.size();
  std::vector<Vec> residual = system.force();
  std::vector<Vec> move(n, Vec{});
  std::vector<Vec> z = system.Preconditioned(residual);
  std::vector<Vec> direction = z;
  double rz = Dot(residual, z);
  const double enough = kEnough * rz;
  for (size_t i = 0; i < 6 * n + 20 && rz > enough && rz > 0; ++i) {
    const std::vector<Vec> q = system.Times(direction);
    const double curvature = Dot(direction, q);
    if (!(curvature > 0)) break;
    const double alpha = rz / curvature;
    for (size_t p = 0; p < n; ++p) {
      for (size_t k = 0; k < 3; ++k) {
        move[p][k] += alpha * direction[p][k];
        residual[p][k] -= alpha * q[p][k];
      }
    }
    z = system.Preconditioned(residual);
    const double next = Dot(residual, z);
    for (size_t p = 0; p < n; ++p) {
      for (size_t k = 0; k < 3; ++k) direction[p][k] = z[p][k] + next / rz * direction[p][k];
    }
    rz = next;
  }
  for (const Vec& m : move) {
    if (!std::isfinite(m[0] + m[1] + m[2])) return std::vector<Vec>(n, Vec{});
  }
  return move;
}

ComponentMoves MovesToBalance(const ComponentForces& forces) {
  ComponentMoves result{.move_m = BalanceComponents(forces), .leader = JoinedBy(forces)};
  const std::vector<Vec> common = CommonMoves(forces, result.leader);
  const size_t n = result.leader.size();
  std::vector<double> share(n, 1.0);  // of what is not common; at leaders, as the next
  std::vector<uint8_t> stays(n, 0);
  for (const ComponentRow& r : forces.rows) {
    const size_t joined = result.leader[forces.is_free[r.component_a] ? r.component_a : r.component_b];
    // So near that rounding alone might take the two through each other: whole components stay where they are.
    if (r.detected.w < 4 * r.rounding_m) stays[joined] = 1;
    double before = 0;
    double more = 0;
    const Vec normal{r.detected.x, r.detected.y, r.detected.z};
    for (size_t k = 0; k < 3; ++k) {
      before += normal[k] * (forces.moved_m[r.component_a][k] - forces.moved_m[r.component_b][k]);
      // The common part cancels, and is 0 where one of the two is held.
      more += normal[k] * (result.move_m[r.component_a][k] - result.move_m[r.component_b][k]);
    }
    const double room = std::max(0.0, kComponentShare * (r.detected.w - forces.least_gap_m) - r.rounding_m);
    if (before + more <= room) continue;
    share[joined] = std::min(share[joined], std::max(0.0, (room - before) / more));
  }
  for (size_t p = 0; p < n; ++p) {
    const uint32_t leader = result.leader[p];
    Vec& move = result.move_m[p];
    if (!forces.is_free[p] || stays[leader]) {
      move = {};
      continue;
    }
    for (size_t k = 0; k < 3; ++k) move[k] = common[leader][k] + share[leader] * (move[k] - common[leader][k]);
  }
  return result;
}

}  // namespace palpate::gpu
