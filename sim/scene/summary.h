#pragma once

#include <cstdint>
#include <vector>

#include "palpate/v1/control.pb.h"
#include "sim/scene/description.h"

namespace palpate::scene {

/// Counts, mass and volume of one body. Precondition: its mesh is valid.
v1::BodyInfo SummarizeBody(const sim::BodyDescription& body);

/// Number of independent vertex sets that a greedy colouring of the mesh finds, vertices in index order: no two vertices of a tet share a
/// set.
uint32_t CountColors(const sim::SceneDescription& description);

/// What would be built, without a device: `device_bytes` is an estimate from the counts of vertices, tets and incidences.
v1::CheckSceneResponse SummarizeScene(const sim::SceneDescription& description);

}  // namespace palpate::scene
