#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "sim/haptics/build_model.h"

namespace palpate::sim {

/// The tissue behind one contact.
struct ContactSpread {
  std::array<uint32_t, 3> vertices{};  ///< of the surface, that take its force
  std::array<double, 3> weights{};     ///< their shares of it, >= 0, sum 1; 0: the vertex counts for nothing
  std::array<double, 3> areas_m2{};    ///< of the surface at rest that each vertex stands for: a third of its triangles; > 0
  double young_modulus_pa = 5000;      ///< > 0
  double poisson_ratio = 0.45;         ///< [0, 0.5)
};

/// What fits running scenes best: their slope over the life of a model divided by that of the punch below.
inline constexpr double kPatchCalibration = 1.2;

/// Fills LocalContact::stiffness_n_per_m: how stiff the tissue is behind all contacts together, and which share of that each has. [i]
/// correspond.
///
/// A mesh spreads the force of a contact over vertices, and each drags along the tissue around it, however small the tool is. So the patch
/// is as large as the vertices that carry the force, A = |sum F_v|^2 / sum(|F_v|^2 / A_v), and as stiff along the resultant as a rigid
/// punch of that area on a half-space, K = 2 sqrt(A / pi) E / (1 - nu^2), times kPatchCalibration. Contacts with a force share K by their
/// forces; the others get, in the order of their gaps, what the patch would be stiffer with each of them. docs/haptics.md states how far
/// this is from the slope of running scenes. A contact whose numbers are not finite or outside their ranges gets 0, with which
/// BuildLocalModel leaves it out. Cost: O(n log n). Determinism: RUN_TO_RUN. Source: half-space punch: Sneddon 1965.
void ShareStiffness(std::span<const ContactSpread> spreads, std::span<LocalContact> contacts);

}  // namespace palpate::sim
