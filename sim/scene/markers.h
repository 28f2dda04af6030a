#pragma once

#include "gpu/base/status.h"
#include "sim/scene/description.h"

namespace palpate::sim {

/// How far outside its body a marker may be given, as a share of the longest side of the body's bounding box (at rest, along the axes of
/// W). In front of or behind the middle surface of a shell it may also be as far as the shell is thick.
inline constexpr double kMarkerReach = 1e-3;

/// Finds the tet, or the triangle of a shell, of each marker of a body that has none yet; one that lies a little outside is put on the
/// nearest point of the surface, of a shell the middle one. Precondition: ValidateTetMesh(body->mesh), or CheckShell(body). Errors:
/// InvalidArgument (not a deformable body; a position that is not finite or too far outside, with the distance; more than kMaxMarkers),
/// with a message that begins with the field, as in ".markers[2].position_m: ...".
absl::Status PlaceMarkers(BodyDescription* body);

}  // namespace palpate::sim
