#pragma once

#include "absl/status/status.h"
#include "sim/scene/description.h"
#include "sim/topology/closed_mesh.h"
#include "sim/world/body_arrays.h"

namespace palpate::sim {

// The surface of a body as it is described. `mesh` is null for a body that cannot be edited: then `arrays` have its triangles already.

/// Of the k-th named zone: the body's own comes first, of an editable body then the insides of its zones of tets.
constexpr SurfaceZoneId NamedSurfaceZone(bool is_editable, size_t tet_zone_count, size_t k) {
  return static_cast<SurfaceZoneId>((is_editable ? 1 + tet_zone_count : 1) + k);
}

/// Gives `arrays` the surface zones, and puts the triangles that the description names into theirs. Errors: InvalidArgument, with a message
/// that begins with the field.
absl::Status MakeSurfaceZones(const BodyDescription& description, ClosedMesh* mesh, BodyArrays* arrays);

/// Gives the texture coordinates to the surface of the mesh, or of the arrays, whose zones are final. Errors as above.
absl::Status TakeTexture(const BodyDescription& description, ClosedMesh* mesh, BodyArrays* arrays);

}  // namespace palpate::sim
