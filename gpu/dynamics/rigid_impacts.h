#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include <Eigen/Core>

#include "gpu/shared/rigid_types.h"

namespace palpate::gpu {

/// Two bodies that press on each other at the end of a step. Metres, world frame.
struct ImpactContact {
  static constexpr uint32_t kWall = 0xffffffffU;  ///< moves as it does, whatever hits it
  uint32_t body_a = kWall, body_b = kWall;        ///< indices of RigidBlock; not both walls, not the same
  Eigen::Vector3d point_m{0, 0, 0};
  Eigen::Vector3d normal{0, 0, 1};                 ///< unit, from A to B
  Eigen::Vector3d wall_velocity_m_per_s{0, 0, 0};  ///< of the wall, if one of them is one
  double restitution = 0;                          ///< in [0, 1]
  double friction = 0;                             ///< coefficient
};

using Vector6d = Eigen::Matrix<double, 6, 1>;
/// Of a body: rows over (velocity of its centre, angular velocity), world axes, that joints with the world keep at zero.
using HeldRows = std::function<std::vector<Vector6d>(uint32_t body)>;

/// Restitution of rigid bodies. The implicit step ends impacts as if nothing bounced. So bodies that take part in an impact get, in its
/// place, the velocities that impulses give them: from those of the start of the step and gravity, between pairs of bodies, the fastest
/// impact first, until nothing approaches any more. All contacts of a pair are one linear complementarity problem by Newton's law, so that
/// a box leaves the floor flat; pairs go one after the other as in Moreau's and Han and Gilmore's scheme, so that a row of balls hands an
/// impact on ball by ball. Friction is Coulomb's, with the impulses of the pair.
///
/// What joins a body to the world holds it in an impact, too; impulses do not go through joints between bodies, which take up in the next
/// step what is against them. Momentum is kept, and no pair gains energy. Nothing happens where no contact approaches faster than 2 |g| h
/// and 1 cm/s. Host work, some microseconds an impulse. Same input, same result.
class RigidImpacts {
 public:
  RigidImpacts(double dt_s, const Eigen::Vector3d& gravity_m_per_s2);

  /// `before`: the bodies at the start of a step; `after`: at its end. Velocities and momenta of `after` are changed. `outside`: impulses
  /// [N s] and their moments about the centre, of what else pushed a body in the step, such as tissue. Returns the bodies that were
  /// changed.
  std::vector<uint32_t> Apply(std::span<const RigidBlockState> before, std::span<const ImpactContact> contacts,
                              std::span<RigidBlockState> after, const HeldRows& held,
                              const std::map<uint32_t, Vector6d>& outside = {}) const;

 private:
  /// Detection may stop a body a little before what it is about to hit, so that an impact takes two steps. It keeps its speed until it
  /// presses. Returns these bodies.
  std::vector<uint32_t> GiveBackCutSpeed(std::span<const RigidBlockState> before, std::span<const ImpactContact> contacts,
                                         std::span<RigidBlockState> after) const;

  double dt_s_;
  Eigen::Vector3d gravity_m_per_s2_;
  double threshold_m_per_s_;
};

}  // namespace palpate::gpu
