#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/scene/description.h"
#include "sim/world/scene_vertices.h"
#include "sim/world/tool_state.h"
#include "sim/world/world_body.h"

namespace palpate::sim {

/// The stitches of sutures, at rest: each ties a vertex of one body to the nearest triangle of the other's surface, as a clip that nobody
/// has set and that keeps their distance. Vertices that are not of the surface are left out. Errors: InvalidArgument naming the suture (no
/// vertex of the region is on the surface; a vertex is farther from the other body than the suture reaches, with the distance).
absl::StatusOr<std::vector<Clip>> MakeStitches(std::span<const SutureDescription> sutures,
                                               const std::vector<std::unique_ptr<WorldBody>>& bodies, const SceneVertices& vertices);

}  // namespace palpate::sim
