#pragma once

#include "gpu/base/status.h"
#include "gpu/dynamics/tissue_layout.h"
#include "sim/scene/description.h"

namespace palpate::sim {

/// The constants of a tet of this material, its vertices left at 0. Fibres make the St-Venant-Kirchhoff and the linear model transversely
/// isotropic: young_modulus_pa and poisson_ratio are then those across them. A mass-spring material has a Poisson ratio of 1/4 whatever
/// poisson_ratio says. Errors: InvalidArgument naming the field when the five elastic constants of a fibre material do not give a positive
/// energy, or when the model knows no fibres.
absl::StatusOr<gpu::TissueTet> TissueOf(const Material& material);

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

/// What a kind of simulation asks of a material. Errors: InvalidArgument naming the field (fibres or springs of a shape-matched body).
absl::Status CheckMaterialFor(Simulation simulation, const Material& material);

}  // namespace palpate::sim
