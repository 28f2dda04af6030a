#pragma once

#include <vector>

#include <Eigen/Core>

#include "gpu/base/status.h"

namespace palpate::sim {

/// Forces of unilateral contacts without friction: 0 <= f, 0 <= gap + C f, and one of the two is zero in each contact (Signorini).
struct UnilateralSolution {
  Eigen::VectorXd force_n;
  Eigen::VectorXd gap_m;  ///< that is left, gap + C f
  /// The certificate: the largest of -force (as a length, times the mean compliance), -gap and min(force, gap) over all contacts. Zero for
  /// an exact solution; the problem has one only, since C is positive definite.
  double error_m = 0;
  int pivots = 0;
};

/// Solves the unilateral contact problem by an active set that lowers the energy f.Cf/2 + gap.f with each change (Lawson and Hanson 1974),
/// so that it ends. `compliance` [k x k] m/N: symmetric positive definite, the way of contact i opening per newton in contact j. `gap_m`:
/// [k] without forces, negative where bodies overlap.
/// Errors: InvalidArgument (sizes, not finite, not positive definite), Internal (rounding kept it from an end after 10 k + 100 changes).
absl::StatusOr<UnilateralSolution> SolveUnilateral(const Eigen::MatrixXd& compliance, const Eigen::VectorXd& gap_m);

/// How the force of a contact depends on where its point is.
enum class ContactLaw {
  kCapsule,  ///< of tools and obstacles: StepParams in gpu/shared/dynamics_types.h
  kBarrier,  ///< of surfaces with each other: barrier_force in gpu/dynamics/surface_contact.clh
  kSpring,   ///< of an anchor: isotropic, both ways, at most max_force_n
};

/// A contact of a quasi-static body with something else, linearised: as its point moves by q from where it would be without contact forces,
/// the gap is gap_m + normal.q, and the point has slid by the part of slip_m + q across the normal.
struct ResponseContact {
  ContactLaw law = ContactLaw::kCapsule;
  Eigen::Vector3d normal{0, 0, 1};  ///< unit, towards the body
  double gap_m = 0;
  Eigen::Vector3d slip_m{0, 0, 0};     ///< in this step, if nothing responds
  Eigen::Vector3d stretch_m{0, 0, 0};  ///< of a spring: from its target to the point
  double stiffness_n_per_m = 0;
  double margin_m = 0;     ///< the contact pushes from this gap on
  double stiffening = 0;   ///< of kCapsule
  double friction = 0;     ///< Coulomb coefficient
  double slip_full_m = 0;  ///< slip in a step below which friction is proportional to it
  double max_force_n = 0;  ///< of a spring
};

struct ResponseSolution {
  std::vector<Eigen::Vector3d> force_n;  ///< on the body
  std::vector<Eigen::Vector3d> move_m;   ///< q
  double residual_m = 0;                 ///< largest |q - C force(q)|
  int iterations = 0;
};

/// Forces and moves that agree: q = C f(q). `compliance` [3k x 3k] m/N: symmetric positive semidefinite. Newton's method with a line search
/// on the energy, which is convex as long as the normal force that friction is taken from is that of the iterate before. Ends at
/// `tolerance_m` or after `max_iterations`; the result says its residual.
ResponseSolution SolveResponse(const std::vector<ResponseContact>& contacts, const Eigen::MatrixXd& compliance, double tolerance_m,
                               int max_iterations);

/// Force of a contact on the body if its point moved by q, with the friction of a given normal force, and minus its derivative.
Eigen::Vector3d ContactForce(const ResponseContact& contact, const Eigen::Vector3d& move_m, double friction_push_n,
                             Eigen::Matrix3d* stiffness_n_per_m);

}  // namespace palpate::sim
