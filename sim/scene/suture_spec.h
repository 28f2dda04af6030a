#pragma once

#include "absl/status/status.h"
#include "palpate/v1/scene.pb.h"
#include "sim/scene/checker.h"
#include "sim/scene/description.h"

namespace palpate::scene {

/// Checks a scene's sutures against what scene.proto says of them, but for the bodies that they name.
void CheckSutures(Checker& check, const v1::SceneSpec& spec);

/// Fills out->sutures. Preconditions: CheckSutures passed, out->bodies are there. Errors: InvalidArgument naming the field (a body that is
/// missing or cannot be sewn, a region without a vertex, too many stitches).
absl::Status BuildSutures(const v1::SceneSpec& spec, sim::SceneDescription* out);

}  // namespace palpate::scene
