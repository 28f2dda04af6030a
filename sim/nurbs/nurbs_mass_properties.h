#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "sim/mesh/mass_properties.h"
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

}  // namespace palpate::sim
