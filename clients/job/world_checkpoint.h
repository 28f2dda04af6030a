#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "gpu/runtime/context.h"
#include "sim/world/world.h"

namespace palpate::job {

/// All that a world is, as bytes, but for times of the wall clock: the same state gives the same bytes in each run. Errors: those of
/// World::Capture.
absl::StatusOr<std::string> CaptureWorld(sim::World& world);

/// The world of these bytes. Errors: those of DecodeWorldState and World::Restore.
absl::StatusOr<std::unique_ptr<sim::World>> RestoreWorld(std::shared_ptr<gpu::Context> context, sim::SceneDescription description,
                                                         std::string_view bytes);

}  // namespace palpate::job
