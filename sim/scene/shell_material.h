#pragma once

#include "gpu/dynamics/shell_layout.h"
#include "sim/scene/description.h"

namespace palpate::sim {

/// Of zone 0, the body itself, or zones[zone - 1]. Precondition: the body is a shell.
ShellProperties ShellOfZone(const BodyDescription& body, size_t zone);
/// What the zone gives, and the shell's where it gives nothing.
ShellProperties ShellOfZone(const ShellProperties& shell, const ShellZoneDescription& zone);

/// The constants of a triangle of a shell, its vertices left at 0. Errors: InvalidArgument naming the field, for callers without a spec too
/// (thickness, bending stiffness, strain limit, an elastic model or fibres that a shell has not, constants without a positive energy).
absl::StatusOr<gpu::ShellTriangle> ShellTriangleOf(const ShellProperties& shell, const Material& material);

/// That a body is what a shell can be, and its surface sound. Errors: InvalidArgument naming the field.
absl::Status CheckShell(const BodyDescription& body);

/// At rest, all zones together. Precondition: the body is a shell.
struct ShellTotals {
  double area_m2 = 0;
  double volume_m3 = 0;
  double mass_kg = 0;
};
ShellTotals TotalsOfShell(const BodyDescription& body);

}  // namespace palpate::sim
