#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "sim/mesh/mass_properties.h"
#include "sim/nurbs/nurbs_object.h"
#include "sim/nurbs/nurbs_surface.h"

namespace palpate::sim {

/// Of a homogeneous body inside a shell of patches.
struct NurbsMassProperties {
  double area_m2 = 0;
  double volume_m3 = 0;
  MassProperties mass;
};

/// Surface integrals by the divergence theorem: Gauss quadrature on Bezier patches, which are split until the four parts agree with the
/// whole to 1e-11 of the sum. `density_kg_per_m3` is positive. Patches must close and their normals point outwards. An error tells of a
/// shell that is open, as far as its area vectors tell (they add up to 0 on each closed one), or inside out.
absl::StatusOr<NurbsMassProperties> ComputeNurbsMassProperties(std::span<const NurbsSurface> patches, double density_kg_per_m3);

/// Of a trimmed object that is closed by NurbsObject::CheckClosed (its errors are those of this). Over a trimmed domain integrals are line
/// integrals along its loops (Green's theorem) of integrals along u, both by Gauss quadrature, the outer one halved until its parts agree
/// to 1e-11 of the sum. Where loops of two patches are not quite one edge, as in files of CAD programs, the gap limits what is right.
absl::StatusOr<NurbsMassProperties> ComputeNurbsObjectMassProperties(const NurbsObject& object, double density_kg_per_m3,
                                                                     double join_tolerance_m = 0);

/// What is left of a patch after trimming.
double NurbsAreaOf(const NurbsPatch& patch);

}  // namespace palpate::sim
