#pragma once

#include "gpu/dynamics/shell_layout.h"
#include "sim/scene/description.h"

namespace palpate::sim {

/// The constants of a triangle of a shell, its vertices left at 0. Errors: InvalidArgument naming the field, for callers without a spec too
/// (thickness, bending stiffness, strain limit, an elastic model or fibres that a shell has not, constants without a positive energy).
absl::StatusOr<gpu::ShellTriangle> ShellTriangleOf(const ShellDescription& shell, const Material& material);

/// That a body is what a shell can be, and its surface sound. Errors: InvalidArgument naming the field.
absl::Status CheckShell(const BodyDescription& body);

/// [kg], [m^2] at rest.
double ShellArea_m2(const BodyDescription& body);
double ShellMass_kg(const BodyDescription& body);

}  // namespace palpate::sim
