#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "gpu/dynamics/nurbs_shell_model.h"
#include "sim/nurbs/nurbs_object.h"

namespace palpate::sim {

/// What a shell is made of: isotropic, in plane stress.
struct NurbsShellMaterial {
  double thickness_m = 0;
  double density_kg_per_m3 = 0;
  double young_modulus_pa = 0;
  double poisson_ratio = 0;       ///< in (-1, 0.5]
  double damping_s = 0;           ///< stiffness-proportional viscosity
  double mass_damping_per_s = 0;  ///< mass-proportional (Rayleigh)
};

/// How many Gauss points a knot span has in a direction of degree p.
enum class NurbsShellQuadrature {
  kFull,     ///< p + 1
  kReduced,  ///< (p + 2) / 2 rounded down where the surface goes on smoothly at both ends of the span, p where at one, else p + 1
};

struct NurbsShellOptions {
  NurbsShellQuadrature quadrature = NurbsShellQuadrature::kReduced;
  /// Where patches meet at an angle, the bending stiffness of the strip that holds it, as a multiple of the shell's; 0: a hinge that turns
  /// freely. Couplings know only whether it is 0.
  double crease_stiffness = 1000;
  double join_tolerance_m = 0;  ///< edges are those of NurbsObject::Edges with it
};

inline constexpr int kMaxNurbsShellDegree = 5;

/// Cells that loops cut have all of their stiffness at what is left of them, and this share of it at all of the cell, without mass: so the
/// energy of a cut cell is off by this share of what it would be without the cut. Control points that act on next to nothing are held by
/// it, as in the finite cell method (J. Parvizian, A. Duester, E. Rank, Finite cell method, 2007).
inline constexpr double kNurbsShellCutAwayStiffness = 1e-4;

/// The Kirchhoff-Love shell of an object's mid-surface. Degrees are in [2, kMaxNurbsShellDegree], bending needs two derivatives; see
/// NurbsObject::WithDegree. Sides with the same control points, forwards or backwards, are joined; see docs/algorithms/nurbs_shells.md for
/// how they bend. Lines of knots of full multiplicity count as sides. Other edges that two patches share, trims and sides with other
/// control points alike, are coupled: gpu::NurbsShellCoupling at Gauss points of the common curve, between lines of knots of both patches.
///
/// Of trimmed patches there is what the loops leave, in energy, mass and area. Cells between lines of knots that are cut have points of
/// NurbsTrimCells, compressed for polynomials of twice the degree over the area at rest. Control points that act on nothing that is left
/// are no unknowns.
///
/// Errors: InvalidArgument, naming the patch, for degrees, material out of range, no area, loops that cross, overlap or leave nothing,
/// edges whose two places are too far from each other, and sides of which three meet.
absl::StatusOr<gpu::NurbsShellModel> BuildNurbsShell(const NurbsObject& object, const NurbsShellMaterial& material,
                                                     const NurbsShellOptions& options = {});

}  // namespace palpate::sim
