#pragma once

#include <array>
#include <cstdint>

#include "gpu/collision/self_pairs_use.h"
#include "gpu/runtime/context.h"
#include "gpu/shared/types.h"

namespace palpate::gpu {

/// Most clips at a time, see TissueSolver::SetAnchors.
inline constexpr uint32_t kMaxTissueClips = 128;

/// How the kernels are specialised for a device; see the head of gpu/dynamics/tissue.cl. All values give the same algorithm; results agree
/// bit for bit only between equal settings, since sums are grouped differently.
struct TissueTuning {
  uint32_t lanes = 8;
  uint32_t team = 1;
  uint32_t group = 8;
  uint32_t list_group = 1;
  uint32_t shape_group = 1;  ///< of a cluster of shape_goals.cl
  uint32_t partials = 16;    ///< work-items of the end-of-step checks
  // Of run_phases, in which colours of sweeps, and what stands between them, are phases of one launch.
  uint32_t phase_groups = 0;  ///< at most; 0: each colour is a launch of its own, with the same bits
  uint32_t phase_group = 1;   ///< work-items of a group, a multiple of `team`
  uint32_t phase_chunk = 16;  ///< vertices of a colour that a group takes at a time

  /// What was measured best for the kind of device.
  static TissueTuning For(const DeviceInfo& device);
};

struct TissueOptions {
  double dt_s = 1.0 / 120.0;
  std::array<double, 3> gravity_m_per_s2{0, 0, -9.81};
  uint32_t iterations = 20;
  double acceleration = 0.9;  ///< Chebyshev: estimate of the spectral radius of a sweep in [0, 1); 0 = off. With corrections: 0.85
  /// Most nodes of the coarse corrections between sweeps (CoarseCorrection); 0: none. Not while tissue recovers from a tangle, nor in
  /// scenes with bodies that keep their volume.
  uint32_t coarse_nodes = 0;
  /// Sweeps end at the start of a correction if the forces that are left would accelerate the tissue by no more than this (root mean square
  /// weighted by mass, of vertices that move freely); 0: never before `iterations`. Then each correction waits for the device once.
  double tolerance_m_per_s2 = 0;
  double joint_dissipation = 0.02;  ///< see RigidJoints
  double margin_m = 0.001;          ///< contacts push from this gap on
  double friction = 0.1;
  double stiffness_n_per_m = 0;  ///< of one contact; 0 = 20 E times the mean edge length
  double range_m = 0.01;         ///< gaps up to this are reported
  // Contact of the surfaces of bodies with each other and themselves, with the same margin and stiffness.
  double surface_friction = 0.1;
  double surface_reserve_m = 0;                        ///< see SurfaceOptions
  uint32_t surface_max_detections = 4;                 ///< of near pairs in one step
  bool check_intersections = false;                    ///< counts after each step the edges that pass through triangles
  SelfPairsUse self_pairs = SelfPairsUse::kAutomatic;  ///< of searches for near pairs; never changes the motion
  bool report_energy = false;                          ///< TissueStep::elastic_energy_j; costs nothing if off, and never changes the motion
  bool energy_in_double = true;                        ///< where the device has it; else in float with a compensated sum
};

/// A capsule and how it is driven.
struct ColliderDescription {
  double radius_m = 0.005;
  std::array<double, 3> tip_m{};   ///< one end of the axis
  std::array<double, 3> axis_m{};  ///< from the tip to the other end
  double coupling_n_per_m = 0;     ///< 0: goes exactly where it is told; else a body of mass_kg drawn there by a spring and a damper
  double damping_n_s_per_m = 0;
  double mass_kg = 0;
  /// Moves with the collider that many places before it in the list: together they are one tool, whose place is that of the first, the
  /// leader, and whose coupling and mass are the leader's. 0: leads itself. Followers stand right behind their leader.
  uint32_t places_after_leader = 0;
  bool skips_tissue = false;  ///< it does not push tissue, only rigid bodies: anchors keep tissue away
};

/// A spring between a vertex and a point that is rigid with a collider, or with a clip, which is held by nothing but its anchors. It acts
/// both ways. It pulls with at most max_force_n, whatever its stretch. One-sided, it only keeps the vertex from going behind the plane
/// through the target, and lets it slide.
struct TissueAnchor {
  uint32_t vertex = 0;               ///< caller's
  uint32_t holder = 0;               ///< a collider, or collider count + clip
  std::array<double, 3> target_m{};  ///< from the holder's tip, world axes, at the end of the next step
  double stiffness_n_per_m = 0;
  double max_force_n = 0;
  std::array<double, 3> normal{};  ///< unit: one-sided, pushes this way; zero: holds from all sides. Not of clips
};

/// Where a collider is wanted at the end of a step.
struct ColliderTarget {
  std::array<double, 3> tip_m{};
  std::array<double, 3> axis_m{};
};

/// What a step starts from, of one vertex.
struct TissueVertexState {
  Float4 position_m{};
  Float4 velocity_m_per_s{};
  Float4 velocity_before_m_per_s{};  ///< a step earlier
};

/// What the control points of a support do to what holds them, in W: what is left of elastic, contact and inertial forces on them, their
/// weight included.
struct NurbsSupportReport {
  std::array<double, 3> force_n{};
  std::array<double, 3> torque_n_m{};  ///< about `point_m`
  std::array<double, 3> point_m{};     ///< mean of the control points that count, or of all if none does
  bool is_released = false;            ///< none is held or bound any more
};

}  // namespace palpate::gpu
