#include "sim/haptics/patch_stiffness.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace palpate::sim {
namespace {

using Eigen::Vector3d;

// Forces that oppose each other (a wedge, tissue between jaws) leave a small resultant; at least this share of them counts.
constexpr double kLeastResultant = 0.5;
// A contact across the resultant takes part in it with at least this share of its stiffness.
constexpr double kLeastShareAlong = 0.25;
// Another contact beside those that there are adds at least this share, or it would not be felt at all.
constexpr double kLeastGrowth = 0.01;

bool IsUsable(const ContactSpread& spread, const LocalContact& contact) {
  double weight = 0;
  for (size_t c = 0; c < 3; ++c) {
    if (!(spread.weights[c] >= 0) || (spread.weights[c] > 0 && !(spread.areas_m2[c] > 0 && std::isfinite(spread.areas_m2[c]))))
      return false;
    weight += spread.weights[c];
  }
  return weight > 0 && std::isfinite(weight) && std::isfinite(spread.young_modulus_pa) && spread.young_modulus_pa > 0 &&
         spread.poisson_ratio >= 0 && spread.poisson_ratio < 0.5 && contact.normal_W.allFinite() && std::isfinite(contact.gap_m) &&
         std::isfinite(contact.normal_force_n) && contact.normal_force_n >= 0;
}

/// Forces on the vertices of a surface.
class Patch {
 public:
  explicit Patch(std::span<const ContactSpread> spreads) {
    for (const ContactSpread& spread : spreads) vertices_.insert(vertices_.end(), spread.vertices.begin(), spread.vertices.end());
    std::sort(vertices_.begin(), vertices_.end());
    vertices_.erase(std::unique(vertices_.begin(), vertices_.end()), vertices_.end());
    forces_n_.assign(vertices_.size(), Vector3d::Zero());
  }

  void Add(const ContactSpread& spread, const Vector3d& force_n) {
    for (size_t c = 0; c < 3; ++c) {
      if (spread.weights[c] == 0) continue;
      Vector3d& at_n =
          forces_n_[static_cast<size_t>(std::lower_bound(vertices_.begin(), vertices_.end(), spread.vertices[c]) - vertices_.begin())];
      if (at_n.isZero(0)) area_m2_ += spread.areas_m2[c];
      squares_ -= at_n.squaredNorm() / spread.areas_m2[c];
      at_n += spread.weights[c] * force_n;
      squares_ += at_n.squaredNorm() / spread.areas_m2[c];
    }
    const double magnitude_n = force_n.norm();
    resultant_n_ += force_n;
    magnitude_n_ += magnitude_n;
    modulus_ += magnitude_n * spread.young_modulus_pa / (1 - spread.poisson_ratio * spread.poisson_ratio);
  }

  /// Unit, or zero without a resultant.
  Vector3d Direction() const { return resultant_n_.isZero(0) ? Vector3d::Zero() : resultant_n_.normalized(); }

  double Stiffness() const {
    if (magnitude_n_ <= 0) return 0;
    const double force_n = std::max(resultant_n_.norm(), kLeastResultant * magnitude_n_);
    const double area_m2 = force_n * force_n < area_m2_ * squares_ ? force_n * force_n / squares_ : area_m2_;
    return kPatchCalibration * 2 * std::sqrt(area_m2 / std::numbers::pi) * modulus_ / magnitude_n_;
  }

 private:
  std::vector<uint32_t> vertices_;
  std::vector<Vector3d> forces_n_;
  Vector3d resultant_n_ = Vector3d::Zero();
  double magnitude_n_ = 0;  ///< sum of magnitudes
  double squares_ = 0;      ///< sum of |F_v|^2 / A_v
  double area_m2_ = 0;      ///< of the vertices with a force
  double modulus_ = 0;      ///< sum of E / (1 - nu^2) times the magnitudes
};

}  // namespace

void ShareStiffness(std::span<const ContactSpread> spreads, std::span<LocalContact> contacts) {
  Patch patch(spreads);
  std::vector<size_t> near;
  double force_n = 0;
  int active_count = 0;
  for (size_t i = 0; i < contacts.size(); ++i) {
    contacts[i].stiffness_n_per_m = 0;
    if (!IsUsable(spreads[i], contacts[i])) continue;
    if (contacts[i].normal_force_n <= 0) {
      near.push_back(i);
      continue;
    }
    patch.Add(spreads[i], contacts[i].normal_force_n * contacts[i].normal_W);
    force_n += contacts[i].normal_force_n;
    ++active_count;
  }
  const auto share_along = [](const Vector3d& direction, const Vector3d& normal) {
    const double along = direction.dot(normal);
    return along * along;
  };
  if (active_count > 0) {
    double along_n = 0;
    const Vector3d direction = patch.Direction();
    for (size_t i = 0; i < contacts.size(); ++i) {
      if (!IsUsable(spreads[i], contacts[i])) continue;
      along_n += contacts[i].normal_force_n * share_along(direction, contacts[i].normal_W);
    }
    const double n_per_m_n = patch.Stiffness() / std::max(along_n, kLeastShareAlong * force_n);
    for (size_t i = 0; i < contacts.size(); ++i) {
      if (IsUsable(spreads[i], contacts[i])) contacts[i].stiffness_n_per_m = n_per_m_n * contacts[i].normal_force_n;
    }
  }
  std::stable_sort(near.begin(), near.end(), [&](size_t a, size_t b) { return contacts[a].gap_m < contacts[b].gap_m; });
  const double usual_n = active_count > 0 ? force_n / active_count : 1;
  double before_n_per_m = patch.Stiffness();
  for (const size_t i : near) {
    const Vector3d direction = patch.Direction();
    patch.Add(spreads[i], usual_n * contacts[i].normal_W);
    const double after_n_per_m = patch.Stiffness();
    const double share = direction.isZero(0) ? 1 : std::max(share_along(direction, contacts[i].normal_W), kLeastShareAlong);
    contacts[i].stiffness_n_per_m = std::max(after_n_per_m - before_n_per_m, kLeastGrowth * after_n_per_m) / share;
    before_n_per_m = std::max(before_n_per_m, after_n_per_m);
  }
}

}  // namespace palpate::sim
