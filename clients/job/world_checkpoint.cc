#include "clients/job/world_checkpoint.h"

#include <utility>

#include "gpu/base/status.h"
#include "sim/world/world_state.h"

namespace palpate::job {

absl::StatusOr<std::string> CaptureWorld(sim::World& world) {
  PALPATE_ASSIGN_OR_RETURN(const std::shared_ptr<const sim::WorldState> state, world.Capture());
  sim::WorldState timeless = *state;
  auto frame = std::make_shared<sim::Frame>(*state->frame);
  frame->server_time_us = 0;
  frame->step_ms = 0;
  frame->stage_ms = {};
  frame->contact_statistics.detect_ms = frame->contact_statistics.filter_ms = frame->contact_statistics.check_ms = 0;
  for (sim::LocalModel& model : frame->local_models) model.server_time_us = 0;
  timeless.frame = std::move(frame);
  return sim::EncodeWorldState(timeless);
}

absl::StatusOr<std::unique_ptr<sim::World>> RestoreWorld(std::shared_ptr<gpu::Context> context, sim::SceneDescription description,
                                                         std::string_view bytes) {
  PALPATE_ASSIGN_OR_RETURN(const std::shared_ptr<const sim::WorldState> state, sim::DecodeWorldState(bytes));
  return sim::World::Restore(std::move(context), std::move(description), *state);
}

}  // namespace palpate::job
