#include "server/core/scene_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gpu/base/status.h"
#include "server/core/build_info.h"
#include "server/core/log.h"
#include "sim/record/file_names.h"
#include "sim/record/recording_begin.h"

namespace palpate::server {
namespace {

/// Of an entry with a head, without the head.
constexpr size_t kHeadRest = 1024;

/// The scene's spec made again, from what a journal says and the store holds.
absl::StatusOr<sim::SceneDescription> DescriptionOf(const v1::JournalHead& head, const record::AssetStore& store,
                                                    const scene::SceneLimits& limits) {
  return scene::BuildSceneDescription(head.request().spec(), record::StoredResolver(store, head), limits);
}

void LogNotes(const std::string& id, const std::vector<std::string>& notes) {
  for (const std::string& note : notes) Log(LogLevel::kWarning, "state damaged", {{"scene", id}, {"found", note}});
}

}  // namespace

absl::StatusOr<std::unique_ptr<SceneStore>> SceneStore::Open(Options options) {
  std::unique_ptr<SceneStore> store(new SceneStore(std::move(options)));
  PALPATE_ASSIGN_OR_RETURN(store->temporary_, record::TemporaryFolder::Create());
  if (!store->options_.state.folder.empty()) {
    absl::StatusOr<std::unique_ptr<record::StateFolder>> folder = record::StateFolder::Open(store->options_.state.folder);
    if (!folder.ok()) return Annotate(folder.status(), "--state-dir");
    store->folder_ = *std::move(folder);
    store->assets_ = store->folder_->assets();
  } else {
    store->assets_ = std::make_shared<record::AssetStore>(store->temporary_->path() / "assets");
  }
  return store;
}

v1::JournalHead SceneStore::HeadOf(const std::string& id, const v1::CreateSceneRequest& request,
                                   const sim::SceneDescription& description) const {
  v1::JournalHead head = record::MakeHead(request, description, options_.context->device(), kVersion, kBuildCommit);
  head.set_scene_id(id);
  head.set_begin_time_us(
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch()).count());
  return head;
}

absl::StatusOr<SceneStart> SceneStore::NewScene(const std::string& id, const v1::CreateSceneRequest& request, const v1::Rate& rate,
                                                const scene::AssetResolver& assets) {
  if (std::find(left_alone_.begin(), left_alone_.end(), id) != left_alone_.end()) {
    return absl::AlreadyExistsError(absl::StrCat(
        "scene_id: \"", id, "\" is kept on disk and could not be brought back: see the server's log; its folder there has to go first"));
  }
  const record::KeepingResolver keeping(assets, *assets_);
  PALPATE_ASSIGN_OR_RETURN(sim::SceneDescription description, scene::BuildSceneDescription(request.spec(), keeping, options_.limits));
  SceneStart start;
  start.id = id;
  start.spec = scene::WithoutInlineMeshes(request.spec());
  start.rate = rate;
  start.play = request.play();
  start.kept_versions = options_.kept_versions;
  start.past.head = HeadOf(id, request, description);
  v1::CreateSceneRequest& kept = *start.past.head.mutable_request();
  kept.set_scene_id(id);
  *kept.mutable_rate() = rate;
  for (const v1::AssetReference& reference : keeping.references()) *start.past.head.add_assets() = reference;
  start.past.assets = assets_;
  start.past.max_entry_bytes = options_.state.max_entry_bytes;
  PALPATE_RETURN_IF_ERROR(
      Annotate(record::CheckEntrySize(start.past.head.ByteSizeLong() + kHeadRest, options_.state.max_entry_bytes), "spec"));
  PALPATE_ASSIGN_OR_RETURN(start.world, sim::World::Create(options_.context, std::move(description)));
  if (folder_) {
    PALPATE_RETURN_IF_ERROR(Annotate(folder_->AddScene(id), "--state-dir"));
    if (absl::Status status = OpenJournal(id, &start.past); !status.ok()) {
      folder_->RemoveScene(id).IgnoreError();
      return status;
    }
  }
  return start;
}

absl::Status SceneStore::OpenJournal(const std::string& id, ScenePast::Options* past) {
  record::JournalOptions options;
  options.folder = folder_->SceneFolder(id);
  options.sync_interval = options_.state.sync_interval;
  options.max_bytes = options_.state.max_state_bytes;
  options.holds = [folder = folder_.get(), id] { return folder->HoldFolders(id); };
  options.max_file_bytes = std::min(options.max_file_bytes, options.max_bytes / 8);
  options.max_entry_bytes = options_.state.max_entry_bytes;
  past->state_bytes = record::SceneJournal::GrowthUntilState(options.max_bytes);
  past->max_entry_bytes = options.max_entry_bytes;
  past->state_interval = options_.state.checkpoint_interval;
  past->state_steps = options_.state.checkpoint_steps;
  absl::StatusOr<std::unique_ptr<record::SceneJournal>> journal =
      record::SceneJournal::Open(std::move(options), past->head, past->place.sequence, past->place.position, past->place.step);
  if (!journal.ok()) return Annotate(journal.status(), "--state-dir");
  past->journal = *std::move(journal);
  return absl::OkStatus();
}

std::vector<std::string> SceneStore::KeptScenes() const {
  if (!folder_) return {};
  const absl::StatusOr<std::vector<std::string>> ids = folder_->SceneIds();
  if (!ids.ok()) Log(LogLevel::kError, "state unreadable", {{"error", ids.status()}});
  return ids.ok() ? *ids : std::vector<std::string>();
}

absl::StatusOr<SceneStart> SceneStore::Recover(const std::string& id) {
  const auto recover = [&]() -> absl::StatusOr<SceneStart> {
    PALPATE_ASSIGN_OR_RETURN(const std::shared_ptr<const record::Recording> recording,
                             record::Recording::OpenFolder(folder_->SceneFolder(id)));
    kept_references_.insert(kept_references_.end(), recording->head().assets().begin(), recording->head().assets().end());
    LogNotes(id, recording->damages());
    PALPATE_ASSIGN_OR_RETURN(sim::SceneDescription description, DescriptionOf(recording->head(), *assets_, options_.limits));
    PALPATE_ASSIGN_OR_RETURN(const std::unique_ptr<record::Player> player,
                             record::Player::CreateAtEnd(recording, options_.context, std::move(description)));
    LogNotes(id, player->notes());
    if (player->divergence().count > 0) {
      Log(LogLevel::kWarning, "recovery differs from what was recorded",
          {{"scene", id},
           {"first_position", *player->divergence().position},
           {"entries", player->divergence().count},
           {"recorded_on", recording->head().device()},
           {"recorded_driver", recording->head().driver_version()}});
    }
    SceneStart start;
    start.id = id;
    start.spec = scene::WithoutInlineMeshes(recording->head().request().spec());
    start.state = player->scene();
    player->answers().Export(&start.state);
    start.rate = start.state.rate();
    start.play = start.state.run_state() == v1::RUN_STATE_PLAYING;
    start.kept_versions = options_.kept_versions;
    start.past.head = recording->head();
    start.past.assets = assets_;
    start.past.place = {player->sequence(), player->position(), player->scene().step()};
    start.past.events = recording->events();
    start.past.begin_position = recording->begin_position();
    start.past.is_state_due = true;  // so that the next recovery is short, and what was damaged is behind it
    start.world = player->TakeWorld();
    PALPATE_ASSIGN_OR_RETURN(const std::vector<std::string> aside,
                             record::SetAsideBehind(folder_->SceneFolder(id), start.past.place.sequence));
    for (const std::string& file : aside) Log(LogLevel::kWarning, "state set aside", {{"scene", id}, {"file", file}});
    PALPATE_RETURN_IF_ERROR(OpenJournal(id, &start.past));
    return start;
  };
  absl::StatusOr<SceneStart> start = recover();
  if (!start.ok()) LeaveAlone(id);
  return start;
}

void SceneStore::CollectGarbage() {
  // Assets of a scene that is not there may be wanted by it.
  if (folder_ && left_alone_.empty()) folder_->CollectGarbage(kept_references_);
  kept_references_.clear();
}

absl::StatusOr<SceneStart> SceneStore::Branch(const std::string& id, const BranchPoint& point, bool play) {
  SceneStart start;
  start.id = id;
  start.spec = scene::WithoutInlineMeshes(point.head.request().spec());
  start.state = point.state;
  start.rate = point.state.rate();
  start.play = play && point.state.failure().empty();
  if (point.state.failure().empty()) start.state.set_run_state(play ? v1::RUN_STATE_PLAYING : v1::RUN_STATE_PAUSED);
  start.kept_versions = options_.kept_versions;
  start.past.head = HeadOf(id, point.head.request(), point.description);
  start.past.head.mutable_request()->set_scene_id(id);
  *start.past.head.mutable_assets() = point.head.assets();
  start.past.head.set_origin(absl::StrCat(point.head.scene_id(), "@", point.state.position()));
  start.past.assets = point.assets;
  start.past.place = {point.state.journal_sequence(), point.state.position(), point.state.step()};
  start.past.begin_position = point.state.position();
  PALPATE_ASSIGN_OR_RETURN(start.world, sim::World::Restore(options_.context, point.description, *point.world));
  if (!folder_) return start;
  PALPATE_RETURN_IF_ERROR(Annotate(folder_->AddScene(id), "--state-dir"));
  const auto keep = [&]() -> absl::Status {
    record::SceneCheckpoint checkpoint;
    checkpoint.scene = start.state;
    checkpoint.scene.set_scene_id(id);
    checkpoint.world = sim::EncodeWorldState(*point.world);
    const std::string name = record::StateName(point.state.journal_sequence(), point.state.position());
    PALPATE_RETURN_IF_ERROR(record::WriteStateFile(record::SystemDisk(), folder_->SceneFolder(id) / name, checkpoint));
    return OpenJournal(id, &start.past);
  };
  if (absl::Status status = keep(); !status.ok()) {
    folder_->RemoveScene(id).IgnoreError();
    return status;
  }
  return start;
}

absl::StatusOr<SceneStart> SceneStore::ReplayFile(const std::string& id, std::shared_ptr<UploadFile> file, const v1::Rate& rate) {
  absl::StatusOr<std::shared_ptr<const record::Recording>> opened = record::Recording::OpenFile(file->path());
  if (!opened.ok()) {
    // Where the server keeps it tells its sender nothing.
    const std::string name = absl::StrCat("\"", file->path().string(), "\"");
    return absl::Status(opened.status().code(), absl::StrReplaceAll(opened.status().message(), {{name, "the recording"}}));
  }
  const std::shared_ptr<const record::Recording> recording = *std::move(opened);
  PALPATE_RETURN_IF_ERROR(recording->UnpackAssets(*assets_));
  PALPATE_ASSIGN_OR_RETURN(sim::SceneDescription description, DescriptionOf(recording->head(), *assets_, options_.limits));
  PALPATE_ASSIGN_OR_RETURN(SceneStart start, StartReplay(id, recording, std::move(description), rate, recording->begin_position()));
  start.upload = std::move(file);
  return start;
}

absl::StatusOr<SceneStart> SceneStore::ReplayPast(const std::string& id, const BranchPoint& point) {
  // The scene goes on, and may trim its files or be deleted.
  PALPATE_ASSIGN_OR_RETURN(std::unique_ptr<record::TemporaryFolder> held, HoldPast(point.head.scene_id()));
  PALPATE_ASSIGN_OR_RETURN(const std::shared_ptr<const record::Recording> recording, record::Recording::OpenFolder(held->path()));
  if (recording->head().begin_time_us() != point.head.begin_time_us()) {
    return absl::AbortedError(absl::StrCat("scene_id: scene \"", point.head.scene_id(), "\" was deleted and made anew meanwhile"));
  }
  v1::Rate rate;
  rate.set_mode(v1::RATE_MODE_REAL_TIME);
  rate.set_speed(1);
  const uint64_t place = recording->states().empty() ? recording->begin_position() : recording->states().back().position;
  PALPATE_ASSIGN_OR_RETURN(SceneStart start, StartReplay(id, recording, point.description, rate, place));
  start.held_past = std::move(held);
  return start;
}

absl::StatusOr<std::unique_ptr<record::TemporaryFolder>> SceneStore::HoldPast(const std::string& id) const {
  if (!folder_) return absl::FailedPreconditionError("the server keeps no state (--state-dir)");
  absl::StatusOr<std::unique_ptr<record::TemporaryFolder>> held = folder_->HoldPast(id, options_.state.max_state_bytes);
  if (!held.ok()) return Annotate(held.status(), "scene_id");
  return held;
}

absl::StatusOr<SceneStart> SceneStore::StartReplay(const std::string& id, std::shared_ptr<const record::Recording> recording,
                                                   sim::SceneDescription description, const v1::Rate& rate, uint64_t place) {
  SceneStart start;
  start.id = id;
  start.spec = scene::WithoutInlineMeshes(recording->head().request().spec());
  start.rate = rate;
  start.kept_versions = options_.kept_versions;
  start.past.head = recording->head();
  start.past.assets = assets_;
  PALPATE_ASSIGN_OR_RETURN(start.player, record::Player::Create(std::move(recording), options_.context, std::move(description), place));
  LogNotes(id, start.player->recording().damages());
  return start;
}

absl::Status SceneStore::Remove(const std::string& id) {
  if (!folder_) return absl::OkStatus();
  std::error_code error;
  if (!std::filesystem::exists(folder_->SceneFolder(id), error)) return absl::OkStatus();
  return folder_->RemoveScene(id);
}

}  // namespace palpate::server
