#include "clients/job/final_state.h"

#include "clients/job/build_info.h"
#include "clients/job/durable_file.h"
#include "clients/job/world_checkpoint.h"
#include "gpu/base/status.h"
#include "sim/record/recording_begin.h"

namespace palpate::job {

absl::StatusOr<sim::SceneDescription> FinalState::BuildScene(const LoadedJob& loaded) {
  PALPATE_ASSIGN_OR_RETURN(folder_, record::TemporaryFolder::Create());
  const record::AssetStore store(folder_->path());
  const scene::SceneFolderResolver files(loaded.scene_folder);
  const record::KeepingResolver keeping(files, store);
  auto description = job::BuildScene(loaded, keeping);
  assets_ = keeping.references();
  return description;
}

absl::Status FinalState::Write(const LoadedJob& loaded, const gpu::DeviceInfo& device, const std::filesystem::path& folder,
                               sim::World& world) const {
  const std::shared_ptr<const sim::Frame> frame = world.CurrentFrame();
  v1::CreateSceneRequest request;
  *request.mutable_spec() = loaded.scene;
  request.mutable_rate()->set_mode(v1::RATE_MODE_REAL_TIME);
  v1::JournalHead head = record::MakeHead(request, world.description(), device, kVersion, kBuildCommit);
  for (const v1::AssetReference& reference : assets_) *head.add_assets() = reference;
  record::SceneCheckpoint checkpoint;
  v1::SceneState& state = checkpoint.scene;
  // Entries before it, if there were any, are not in the file.
  state.set_journal_sequence(frame->step + 1);
  state.set_position(frame->step);
  state.set_step(frame->step);
  state.set_state_hash(frame->state_hash);
  state.set_topology_version(frame->topology_version);
  state.set_run_state(v1::RUN_STATE_PAUSED);
  *state.mutable_rate() = request.rate();
  PALPATE_ASSIGN_OR_RETURN(checkpoint.world, CaptureWorld(world));
  PALPATE_ASSIGN_OR_RETURN(const std::string bytes, record::EncodeMoment(head, record::AssetStore(folder_->path()), checkpoint));
  return WriteDurably(folder / kFile, bytes);
}

}  // namespace palpate::job
