#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "gpu/dynamics/nurbs_shell_model.h"
#include "gpu/dynamics/tissue_layout.h"
#include "sim/haptics/local_model.h"
#include "sim/nurbs/nurbs_object.h"
#include "sim/scene/description.h"

namespace palpate::sim {

/// The shell about a surface, in the surface's frame. Errors: InvalidArgument naming the field of the body (thickness, a material that a
/// shell cannot have) or what is wrong with the surface.
absl::StatusOr<gpu::NurbsShellModel> NurbsShellModelOf(const NurbsObject& object, const Material& material, double thickness_m);

/// The same shell elsewhere.
gpu::NurbsShellModel MovedNurbsShell(gpu::NurbsShellModel model, const RigidPose& pose);

/// That a body is what a NURBS shell can be. Errors: InvalidArgument naming the field.
absl::Status CheckNurbsShell(const BodyDescription& body);

/// As the solver takes it; `first_vertex`: of the body, in the solver's model. Precondition: CheckNurbsShell.
gpu::TissueNurbsShell TissueNurbsShellOf(const BodyDescription& body, uint32_t index, uint32_t first_vertex);

/// At rest [m^2], and [kg].
double NurbsShellArea_m2(const gpu::NurbsShellModel& model);
double NurbsShellMass_kg(const gpu::NurbsShellModel& model);

}  // namespace palpate::sim
