#include "sim/quasistatic/contact_response.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <Eigen/Cholesky>
#include <Eigen/LU>

namespace palpate::sim {
namespace {

using Eigen::Index;
using Eigen::Matrix3d;
using Eigen::MatrixXd;
using Eigen::Vector3d;
using Eigen::VectorXd;

constexpr int kHalvings = 20;
// Where friction and normal forces feed each other, the normal force that friction is taken from must follow slowly to settle.
constexpr int kPlainRounds = 8;
constexpr double kFrictionShare = 0.4;
constexpr double kSettled = 100;  // tolerances

/// Of a gap: energy [J], normal force [N], and its slope [N/m] towards smaller gaps.
struct Push {
  double energy_j = 0;
  double force_n = 0;
  double slope_n_per_m = 0;
};

Push PushOf(const ResponseContact& contact, double gap_m) {
  const double margin = contact.margin_m;
  const double k = contact.stiffness_n_per_m;
  if (!(gap_m < margin)) return {};
  const auto go_on = [](const Push& from, double way_m) {
    return Push{from.energy_j + from.force_n * way_m + from.slope_n_per_m * way_m * way_m / 2, from.force_n + from.slope_n_per_m * way_m,
                from.slope_n_per_m};
  };
  if (contact.law == ContactLaw::kCapsule) {
    const double c = std::min(margin - gap_m, 2 * margin);
    const double stiff = contact.stiffening * (c / margin) * (c / margin);
    return go_on({k * c * c * (0.5 + stiff / 4), k * c * (1 + stiff), k * (1 + 3 * stiff)}, margin - gap_m - c);
  }
  // The knee and the floor of barrier_energy.
  const double knee = margin / 2;
  if (gap_m >= knee) return {k * (margin - gap_m) * (margin - gap_m) / 2, k * (margin - gap_m), k};
  const double at = std::max(gap_m, margin / 50);
  const double scale = k * knee * knee;
  return go_on({scale / 2 + scale * std::log(knee / at), scale / at, scale / (at * at)}, at - gap_m);
}

Vector3d SlipOf(const ResponseContact& contact, const Vector3d& move_m) {
  const Vector3d slip = contact.slip_m + move_m;
  return slip - slip.dot(contact.normal) * contact.normal;
}

/// Energy of a contact whose friction is that of a given normal force.
double EnergyOf(const ResponseContact& contact, const Vector3d& move_m, double friction_push_n) {
  if (contact.law == ContactLaw::kSpring) {
    const double k = contact.stiffness_n_per_m;
    const double stretch_m = (contact.stretch_m + move_m).norm();
    const double full_m = contact.max_force_n / k;
    return stretch_m < full_m ? k * stretch_m * stretch_m / 2 : contact.max_force_n * (stretch_m - full_m / 2);
  }
  const double slip_m = SlipOf(contact, move_m).norm();
  const double full_m = contact.slip_full_m;
  const double way_m = slip_m < full_m ? slip_m * slip_m / (2 * full_m) : slip_m - full_m / 2;
  return PushOf(contact, contact.gap_m + contact.normal.dot(move_m)).energy_j + contact.friction * friction_push_n * way_m;
}

}  // namespace

absl::StatusOr<UnilateralSolution> SolveUnilateral(const MatrixXd& compliance, const VectorXd& gap_m) {
  const Index k = gap_m.size();
  if (compliance.rows() != k || compliance.cols() != k) {
    return absl::InvalidArgumentError(
        absl::StrCat("a compliance of ", compliance.rows(), " x ", compliance.cols(), " does not fit ", k, " gaps"));
  }
  if (!compliance.allFinite() || !gap_m.allFinite()) return absl::InvalidArgumentError("a compliance or a gap is not finite");
  UnilateralSolution solution;
  solution.force_n = VectorXd::Zero(k);
  solution.gap_m = gap_m;
  if (k == 0) return solution;
  const MatrixXd c = (compliance + compliance.transpose()) / 2;
  if (c.llt().info() != Eigen::Success) return absl::InvalidArgumentError("the compliance is not positive definite");
  const double scale_m = std::max(gap_m.cwiseAbs().maxCoeff(), std::numeric_limits<double>::min());
  const double tolerance_m = 1e-13 * scale_m;
  std::vector<Index> active;  // contacts that push
  const Index limit = 10 * k + 100;
  for (;; ++solution.pivots) {
    solution.gap_m = gap_m + c * solution.force_n;
    Index worst = -1;
    for (Index i = 0; i < k; ++i) {
      const bool is_active = std::find(active.begin(), active.end(), i) != active.end();
      if (!is_active && solution.gap_m[i] < -tolerance_m && (worst < 0 || solution.gap_m[i] < solution.gap_m[worst])) worst = i;
    }
    if (worst < 0) break;
    if (solution.pivots == limit) {
      return absl::InternalError(
          absl::StrCat("no set of contacts was found in ", limit, " changes; a gap of ", solution.gap_m[worst], " m is left"));
    }
    active.push_back(worst);
    while (!active.empty()) {
      const auto count = static_cast<Index>(active.size());
      MatrixXd part(count, count);
      VectorXd right(count);
      for (Index i = 0; i < count; ++i) {
        right[i] = -gap_m[active[static_cast<size_t>(i)]];
        for (Index j = 0; j < count; ++j) part(i, j) = c(active[static_cast<size_t>(i)], active[static_cast<size_t>(j)]);
      }
      const VectorXd wanted = part.llt().solve(right);
      if (wanted.minCoeff() > 0) {
        for (Index i = 0; i < count; ++i) solution.force_n[active[static_cast<size_t>(i)]] = wanted[i];
        break;
      }
      // As far towards the wanted forces as none of them pulls; what reaches zero there lets go.
      double share = 1;
      Index first = 0;
      for (Index i = 0; i < count; ++i) {
        const double now = solution.force_n[active[static_cast<size_t>(i)]];
        if (wanted[i] > 0) continue;
        const double to_zero = now > wanted[i] ? now / (now - wanted[i]) : 0.0;
        if (to_zero < share || (i == 0 && to_zero <= share)) {
          share = to_zero;
          first = i;
        }
      }
      for (Index i = 0; i < count; ++i) {
        double& force = solution.force_n[active[static_cast<size_t>(i)]];
        force = i == first ? 0 : std::max(force + share * (wanted[i] - force), 0.0);
      }
      active.erase(active.begin() + first);
    }
  }
  const double mean_compliance = c.trace() / static_cast<double>(k);
  for (Index i = 0; i < k; ++i) {
    const double push_m = solution.force_n[i] * mean_compliance;
    solution.error_m = std::max({solution.error_m, -push_m, -solution.gap_m[i], std::min(push_m, solution.gap_m[i])});
  }
  return solution;
}

Vector3d ContactForce(const ResponseContact& contact, const Vector3d& move_m, double friction_push_n, Matrix3d* stiffness_n_per_m) {
  if (contact.law == ContactLaw::kSpring) {
    const Vector3d stretch = contact.stretch_m + move_m;
    const double factor = std::min(contact.stiffness_n_per_m, contact.max_force_n / std::max(stretch.norm(), 1e-9));
    *stiffness_n_per_m = factor * Matrix3d::Identity();
    if (factor < contact.stiffness_n_per_m) *stiffness_n_per_m -= factor / stretch.squaredNorm() * stretch * stretch.transpose();
    return -factor * stretch;
  }
  const Vector3d& n = contact.normal;
  const Push push = PushOf(contact, contact.gap_m + n.dot(move_m));
  const Vector3d slip = SlipOf(contact, move_m);
  const double factor = contact.friction * friction_push_n / std::max(slip.norm(), contact.slip_full_m);
  *stiffness_n_per_m = push.slope_n_per_m * n * n.transpose() + factor * (Matrix3d::Identity() - n * n.transpose());
  if (slip.norm() > contact.slip_full_m) *stiffness_n_per_m -= factor / slip.squaredNorm() * slip * slip.transpose();
  return push.force_n * n - factor * slip;
}

ResponseSolution SolveResponse(const std::vector<ResponseContact>& contacts, const MatrixXd& compliance, double tolerance_m,
                               int max_iterations) {
  const size_t k = contacts.size();
  const auto size = static_cast<Index>(3 * k);
  const auto at = [](size_t j) { return static_cast<Index>(3 * j); };
  // With q = C g the energy g.Cg/2 + sum of those of the contacts is convex in g, and least where g is their force.
  VectorXd g = VectorXd::Zero(size);
  VectorXd move = VectorXd::Zero(size);
  std::vector<double> push_n(k, 0.0);  // that friction is taken from
  std::vector<double> newest_push_n(k, 0.0);
  int friction_rounds = 0;
  VectorXd force(size);
  MatrixXd slopes(size, 3);  // blocks of the diagonal
  const auto evaluate = [&](const std::vector<double>& friction_push_n) {
    for (size_t j = 0; j < k; ++j) {
      Matrix3d stiffness;
      force.segment<3>(at(j)) = ContactForce(contacts[j], move.segment<3>(at(j)), friction_push_n[j], &stiffness);
      slopes.middleRows<3>(at(j)) = stiffness;
    }
  };
  const auto energy_of = [&](const VectorXd& forces, const VectorXd& moves) {
    double energy = forces.dot(moves) / 2;
    for (size_t j = 0; j < k; ++j) energy += EnergyOf(contacts[j], moves.segment<3>(at(j)), push_n[j]);
    return energy;
  };
  ResponseSolution solution;
  for (;; ++solution.iterations) {
    for (size_t j = 0; j < k; ++j) {
      const Vector3d q = move.segment<3>(at(j));
      newest_push_n[j] =
          contacts[j].law == ContactLaw::kSpring ? 0 : PushOf(contacts[j], contacts[j].gap_m + contacts[j].normal.dot(q)).force_n;
    }
    evaluate(newest_push_n);
    solution.residual_m = k == 0 ? 0 : (move - compliance * force).cwiseAbs().maxCoeff();
    if (solution.residual_m <= tolerance_m || solution.iterations >= max_iterations) break;
    if (friction_rounds > 0) {
      const double share = friction_rounds < kPlainRounds ? 1 : kFrictionShare;
      for (size_t j = 0; j < k; ++j) push_n[j] += share * (newest_push_n[j] - push_n[j]);
      ++friction_rounds;
    }
    evaluate(push_n);
    if (friction_rounds == 0) {
      // Normal forces that are still far off would let friction lock what must yet yield: first the solution without it.
      const double without_m = (move - compliance * force).cwiseAbs().maxCoeff();
      if (without_m <= kSettled * tolerance_m || 2 * solution.iterations >= max_iterations) friction_rounds = 1;
      if (friction_rounds == 1 && without_m <= tolerance_m) continue;
    }
    MatrixXd matrix(size, size);
    for (size_t j = 0; j < k; ++j) matrix.middleRows<3>(at(j)) = slopes.middleRows<3>(at(j)) * compliance.middleRows<3>(at(j));
    matrix.diagonal().array() += 1;
    const VectorXd step = matrix.partialPivLu().solve(force - g);
    const VectorXd step_move = compliance * step;
    const double slope = step_move.dot(g - force);
    const double energy = energy_of(g, move);
    double length = 1;
    for (int halving = 0; halving < kHalvings; ++halving, length /= 2) {
      // Near the end the energy only changes by rounding.
      const double change = energy_of(g + length * step, move + length * step_move) - energy;
      if (change <= 1e-4 * length * slope + 1e-13 * std::abs(energy)) break;
    }
    g += length * step;
    move += length * step_move;
  }
  for (size_t j = 0; j < k; ++j) {
    solution.force_n.emplace_back(force.segment<3>(at(j)));
    solution.move_m.emplace_back(move.segment<3>(at(j)));
  }
  return solution;
}

}  // namespace palpate::sim
