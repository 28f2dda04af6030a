#include "clients/job/world_checkpoint.h"

#include <utility>

#include "gpu/base/status.h"
#include "sim/world/world_state.h"

namespace palpate::job {

absl::StatusOr<std::string> CaptureWorld(sim::World& world) {
  PALPATE_ASSIGN_OR_RETURN(const std::shared_ptr<const sim::WorldState> state, world.Capture());
  return sim::EncodeWorldState(*state);
}

absl::StatusOr<std::unique_ptr<sim::World>> RestoreWorld(std::shared_ptr<gpu::Context> context, sim::SceneDescription description,
                                                         std::string_view bytes) {
  PALPATE_ASSIGN_OR_RETURN(const std::shared_ptr<const sim::WorldState> state, sim::DecodeWorldState(bytes));
  return sim::World::Restore(std::move(context), std::move(description), *state);
}

}  // namespace palpate::job
