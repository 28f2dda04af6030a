#pragma once

#include "gpu/base/status.h"
#include "gpu/dynamics/tissue_layout.h"
#include "sim/scene/description.h"
#include "sim/scene/elastic_tet.h"

namespace palpate::sim {

/// The constants of a tet of this material, its vertices left at 0. Fibres make the St-Venant-Kirchhoff and the linear model transversely
/// isotropic: young_modulus_pa and poisson_ratio are then those across them. A mass-spring material has a Poisson ratio of 1/4 whatever
/// poisson_ratio says. Errors: InvalidArgument naming the field when the five elastic constants of a fibre material do not give a positive
/// energy, or when the model knows no fibres.
absl::StatusOr<ElasticTet> ElasticTetOf(const Material& material);
absl::StatusOr<gpu::TissueTet> TissueOf(const Material& material);

/// The same tet for the solver.
inline gpu::TissueTet TissueOf(const ElasticTet& tet) {
  gpu::TissueTet out;
  out.vertices = tet.vertices;
  out.mu_pa = tet.mu_pa;
  out.lambda_pa = tet.lambda_pa;
  out.damping_s = tet.damping_s;
  out.density_kg_per_m3 = tet.density_kg_per_m3;
  out.mass_damping_per_s = tet.mass_damping_per_s;
  out.energy = static_cast<gpu::TissueEnergy>(tet.model);  // made of the same rows
  out.fibers = {tet.fibers.direction, tet.fibers.coupling_pa, tet.fibers.stiffness_pa, tet.fibers.shear_pa};
  return out;
}

/// The same tet for the host. Precondition: it is elastic, not of a shape-matched body.
inline ElasticTet ElasticTetOf(const gpu::TissueTet& tet) {
  return {.vertices = tet.vertices,
          .mu_pa = tet.mu_pa,
          .lambda_pa = tet.lambda_pa,
          .damping_s = tet.damping_s,
          .density_kg_per_m3 = tet.density_kg_per_m3,
          .mass_damping_per_s = tet.mass_damping_per_s,
          .model = static_cast<MaterialModel>(tet.energy),
          .fibers = {tet.fibers.direction, tet.fibers.coupling_pa, tet.fibers.stiffness_pa, tet.fibers.shear_pa}};
}

/// The ranges that MaterialSpec of proto/palpate/v1/scene.proto states, for materials of scenes and of edits alike.
/// Errors: InvalidArgument `<field>: <value> is outside <range>`, the first in the order of the message.
absl::Status CheckMaterialRanges(const Material& material);

/// Of zone 0, the body itself, or of zones[zone - 1].
inline const Material& MaterialOf(const BodyDescription& body, size_t zone) {
  return zone == 0 ? body.material : body.zones[zone - 1].material;
}

inline constexpr double kMaxShapeBeta = 0.95;

/// How the solver matches shapes; `material` is that of zone 0.
gpu::TissueShape ShapeOf(const ShapeMatchingOptions& options, const Material& material);

/// What a kind of simulation and an element ask of a material. Errors: InvalidArgument naming the field (fibres or springs of a
/// shape-matched or node-smoothed body).
absl::Status CheckMaterialFor(Simulation simulation, TetElement element, const Material& material);

/// Which bodies have an element other than the linear one; `has_tets`: neither shells nor bodies with an exact surface. Errors:
/// InvalidArgument.
absl::Status CheckElementFor(TetElement element, BodyKind kind, Simulation simulation, bool has_tets);

}  // namespace palpate::sim
