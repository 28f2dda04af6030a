#pragma once

#include <memory>
#include <span>

#include "absl/status/status.h"
#include "sim/scene/description.h"
#include "sim/scene/edit.h"
#include "sim/world/world_body.h"

namespace palpate::sim {

/// Whether an edit makes sense in the scene as it is: its body, tool, region and values. Nothing is changed. Errors: NotFound (body, zone,
/// tool, joint), InvalidArgument (values; a body that cannot be edited), FailedPrecondition (a pre-computed body).
absl::Status CheckEdit(const Edit& edit, std::span<const std::unique_ptr<WorldBody>> bodies, const SceneDescription& scene);

}  // namespace palpate::sim
