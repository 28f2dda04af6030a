#pragma once

#include "gpu/base/status.h"
#include "sim/scene/description.h"

namespace palpate::sim {

/// Checks a binding of a NURBS shell, and finds the tets that hold its control points where it has none yet. Preconditions: CheckNurbsShell
/// of the shell, ValidateTetMesh of the other body. Errors: InvalidArgument (a body that is no dynamic one of tets, or out of range; a
/// control point that is held, bound twice or out of range, or outside the body, with the distance).
absl::Status PlaceNurbsBinding(const SceneDescription& scene, const BodyDescription& body, NurbsShellBinding* binding);

}  // namespace palpate::sim
