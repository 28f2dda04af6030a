#include "server/core/scene_manager.h"

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "server/core/build_info.h"
#include "server/core/log.h"
#include "sim/scene/summary.h"

namespace palpate::server {
namespace {

constexpr size_t kMaxSceneIdBytes = 40;

absl::Status CheckSceneId(const std::string& id) {
  if (id.size() > kMaxSceneIdBytes) {
    return absl::InvalidArgumentError(absl::StrCat("scene_id: ", id.size(), " bytes are outside [1, ", kMaxSceneIdBytes, "]"));
  }
  for (const char c : id) {
    if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-')) {
      return absl::InvalidArgumentError(absl::StrCat("scene_id: the character ", static_cast<int>(static_cast<unsigned char>(c)),
                                                     " is not allowed; allowed are a-z, 0-9 and -"));
    }
  }
  return absl::OkStatus();
}

constexpr std::chrono::minutes kLookInterval{1};

absl::Status Stopping() { return absl::UnavailableError("the server is stopping"); }

absl::Status NoSuchScene(const std::string& id) {
  // An id that no scene can have is not echoed: it may be long or unprintable.
  if (absl::Status status = CheckSceneId(id); !status.ok()) return absl::NotFoundError(status.message());
  return absl::NotFoundError(absl::StrCat("scene_id: there is no scene \"", id, "\""));
}

}  // namespace

StreamTicket::~StreamTicket() { manager_.CloseStream(id_, kind_); }

SceneManager::SceneManager(Options options, Metrics& metrics)
    : options_(std::move(options)), metrics_(metrics), encode_pool_("encode", 2), haptic_pool_("haptic", 1), build_pool_("build", 1, 5) {
  if (!options_.store) {
    absl::StatusOr<std::unique_ptr<SceneStore>> store =
        SceneStore::Open({{}, options_.limits.scene, options_.limits.max_kept_versions, options_.context});
    if (store.ok()) options_.store = *std::move(store);
  }
  metrics_.SetSceneStates([this] { return SceneStates(); });
  LookForIdleReplays();
}

SceneManager::~SceneManager() {
  ShutdownAndWait();
  metrics_.SetSceneStates(nullptr);
}

absl::Status SceneManager::Wanted(const std::function<bool()>& is_cancelled) const {
  if (is_cancelled && is_cancelled()) return absl::CancelledError("cancelled before it began");
  const std::lock_guard lock(mutex_);
  return stopping_ ? Stopping() : absl::OkStatus();
}

absl::StatusOr<std::string> SceneManager::ReserveId(const std::string& wanted) {
  if (absl::Status status = CheckSceneId(wanted); !status.ok()) return status;
  std::string id = wanted;
  const std::lock_guard lock(mutex_);
  if (stopping_) return Stopping();
  if (!id.empty() && scenes_.count(id) != 0) return absl::AlreadyExistsError(absl::StrCat("scene_id: \"", id, "\" exists"));
  if (scenes_.size() >= options_.limits.max_scenes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the server has ", scenes_.size(), " scenes and its limit max_scenes = ", options_.limits.max_scenes, " is reached"));
  }
  while (id.empty() || scenes_.count(id) != 0) id = absl::StrCat("scene-", next_scene_number_++);
  scenes_[id];
  ++unfinished_;
  return id;
}

void SceneManager::BuildScene(const std::string& id, std::function<absl::StatusOr<SceneStart>()> make, Done<v1::SceneInfo> done) {
  build_pool_.Post([this, id, make = std::move(make), done = std::move(done)] { FinishBuild(id, make(), done); });
}

void SceneManager::Create(const v1::CreateSceneRequest& request, std::shared_ptr<const scene::AssetResolver> assets,
                          std::function<bool()> is_cancelled, Done<v1::SceneInfo> done) {
  const auto refuse = [&](const absl::Status& status) { encode_pool_.Post([done, status] { done(status); }); };
  const absl::StatusOr<v1::Rate> rate = NormalizeRate(request.rate());
  if (!rate.ok()) return refuse(rate.status());
  const absl::StatusOr<std::string> id = ReserveId(request.scene_id());
  if (!id.ok()) return refuse(id.status());
  BuildScene(
      *id,
      [this, id = *id, request, rate = *rate, assets = std::move(assets),
       is_cancelled = std::move(is_cancelled)]() -> absl::StatusOr<SceneStart> {
        PALPATE_RETURN_IF_ERROR(Wanted(is_cancelled));
        return options_.store->NewScene(id, request, rate, assets ? *assets : *options_.assets);
      },
      std::move(done));
}

void SceneManager::FinishBuild(const std::string& id, absl::StatusOr<SceneStart> start, const Done<v1::SceneInfo>& done) {
  using StartedScene = absl::StatusOr<std::shared_ptr<Scene>>;
  StartedScene scene = start.ok() ? StartedScene(Scene::Start(*std::move(start), encode_pool_, metrics_)) : StartedScene(start.status());
  bool stopping = false;
  {
    const std::lock_guard lock(mutex_);
    stopping = stopping_;
    if (scene.ok() && !stopping) {
      scenes_[id].scene = *scene;
    } else {
      scenes_.erase(id);
    }
  }
  if (scene.ok() && stopping) {
    (*scene)->Stop(Stopping(), nullptr);
    scene = Stopping();
  }
  if (scene.ok()) {
    const v1::SceneInfo info = (*scene)->Info();
    uint64_t tets = 0;
    for (const v1::BodyInfo& body : info.bodies()) tets += body.tet_count();
    Log(LogLevel::kInfo, "scene created",
        {{"scene", id}, {"name", info.name()}, {"bodies", info.bodies_size()}, {"tets", tets}, {"device_bytes", info.device_bytes()}});
    done(info);
  } else {
    Log(LogLevel::kInfo, "scene refused", {{"scene", id}, {"error", scene.status()}});
    done(scene.status());
  }
  const std::lock_guard lock(mutex_);
  --unfinished_;
  finished_.notify_all();
}

void SceneManager::RecoverScenes() {
  for (const std::string& id : options_.store->KeptScenes()) {
    const absl::StatusOr<std::string> reserved = ReserveId(id);
    if (!reserved.ok()) options_.store->LeaveAlone(id);
    absl::StatusOr<SceneStart> start = reserved.ok() ? options_.store->Recover(id) : absl::StatusOr<SceneStart>(reserved.status());
    if (start.ok()) {
      Log(LogLevel::kInfo, "scene recovered", {{"scene", id}, {"step", start->world->CurrentFrame()->step}, {"plays", start->play}});
    } else {
      Log(LogLevel::kError, "scene not recovered", {{"scene", id}, {"error", start.status()}});
    }
    if (reserved.ok()) FinishBuild(id, std::move(start), [](const absl::StatusOr<v1::SceneInfo>&) {});
  }
  options_.store->CollectGarbage();
}

void SceneManager::OpenRecording(std::shared_ptr<UploadFile> file, const v1::OpenRecording& request, std::function<bool()> is_cancelled,
                                 Done<v1::SceneInfo> done) {
  const absl::StatusOr<v1::Rate> rate = NormalizeRate(request.rate());
  const absl::StatusOr<std::string> id = rate.ok() ? ReserveId(request.scene_id()) : rate.status();
  if (!id.ok()) return encode_pool_.Post([done = std::move(done), status = id.status()] { done(status); });
  BuildScene(
      *id,
      [this, id = *id, file = std::move(file), rate = *rate, is_temporary = request.temporary(),
       is_cancelled = std::move(is_cancelled)]() -> absl::StatusOr<SceneStart> {
        PALPATE_RETURN_IF_ERROR(Wanted(is_cancelled));
        PALPATE_ASSIGN_OR_RETURN(SceneStart start, options_.store->ReplayFile(id, file, rate));
        start.is_temporary = is_temporary;
        return start;
      },
      std::move(done));
}

void SceneManager::Replay(const v1::ReplaySceneRequest& request, Done<v1::ReplaySceneResponse> done) {
  const absl::StatusOr<std::shared_ptr<Scene>> source = Find(request.scene_id());
  absl::Status refused = source.status();
  if (source.ok() && !(*source)->past().is_kept()) {
    refused = absl::FailedPreconditionError(absl::StrCat(
        "scene_id: scene \"", request.scene_id(), "\" has no past on disk: the server keeps no state (--state-dir), or it is a replay"));
  }
  if (!refused.ok()) return encode_pool_.Post([done = std::move(done), refused] { done(refused); });
  BuildFrom(
      request.scene_id(), request.replay_id(),
      [this, is_temporary = request.temporary()](const std::string& id, const BranchPoint& point) -> absl::StatusOr<SceneStart> {
        PALPATE_ASSIGN_OR_RETURN(SceneStart start, options_.store->ReplayPast(id, point));
        start.is_temporary = is_temporary;
        return start;
      },
      [this, done = std::move(done)](absl::StatusOr<v1::SceneInfo> info) {
        const absl::StatusOr<std::shared_ptr<Scene>> scene = info.ok() ? Find(info->scene_id()) : info.status();
        if (!scene.ok()) return done(scene.status());
        (*scene)->GetTimeline([info = *std::move(info), done](absl::StatusOr<v1::Timeline> timeline) {
          if (!timeline.ok()) return done(timeline.status());
          v1::ReplaySceneResponse response;
          *response.mutable_scene() = info;
          *response.mutable_timeline() = *std::move(timeline);
          done(std::move(response));
        });
      });
}

void SceneManager::Branch(const v1::BranchSceneRequest& request, Done<v1::SceneInfo> done) {
  BuildFrom(
      request.scene_id(), request.branch_id(),
      [this, play = request.play()](const std::string& id, const BranchPoint& point) { return options_.store->Branch(id, point, play); },
      std::move(done));
}

void SceneManager::BuildFrom(const std::string& scene_id, const std::string& new_id,
                             std::function<absl::StatusOr<SceneStart>(const std::string& id, const BranchPoint& point)> make,
                             Done<v1::SceneInfo> done) {
  const auto refuse = [&](const absl::Status& status) { encode_pool_.Post([done, status] { done(status); }); };
  const absl::StatusOr<std::shared_ptr<Scene>> scene = Find(scene_id);
  if (!scene.ok()) return refuse(scene.status());
  const absl::StatusOr<std::string> id = ReserveId(new_id);
  if (!id.ok()) return refuse(id.status());
  // What is replayed has to be on disk.
  (*scene)->WhenDurable([this, scene = *scene, id = *id, make = std::move(make), done = std::move(done)](const absl::Status& /*status*/) {
    scene->Fork(nullptr, [this, id, make, done](absl::StatusOr<BranchPoint> point) {
      auto shared = std::make_shared<absl::StatusOr<BranchPoint>>(std::move(point));
      BuildScene(
          id, [id, make, shared] { return shared->ok() ? make(id, **shared) : absl::StatusOr<SceneStart>(shared->status()); }, done);
    });
  });
}

void SceneManager::Check(const v1::SceneSpec& spec, std::function<bool()> is_cancelled, Done<v1::CheckSceneResponse> done) {
  absl::Status refused;
  {
    const std::lock_guard lock(mutex_);
    if (waiting_checks_ < kMaxWaitingChecks) {
      ++waiting_checks_;
    } else {
      refused = absl::ResourceExhaustedError(absl::StrCat("the server has ", kMaxWaitingChecks, " scenes waiting to be checked"));
    }
  }
  if (!refused.ok()) {
    encode_pool_.Post([done = std::move(done), refused] { done(refused); });
    return;
  }
  build_pool_.Post([this, spec, is_cancelled = std::move(is_cancelled), done = std::move(done)] {
    {
      const std::lock_guard lock(mutex_);
      --waiting_checks_;
    }
    if (absl::Status wanted = Wanted(is_cancelled); !wanted.ok()) return done(wanted);
    const absl::StatusOr<sim::SceneDescription> description = scene::BuildSceneDescription(spec, *options_.assets, options_.limits.scene);
    if (!description.ok()) {
      done(description.status());
    } else {
      done(scene::SummarizeScene(*description));
    }
  });
}

void SceneManager::LookForIdleReplays() {
  encode_pool_.PostAt(WorkerPool::Clock::now() + kLookInterval, [this] {
    DeleteIdleReplays(WorkerPool::Clock::now());
    LookForIdleReplays();
  });
}

void SceneManager::DeleteIdleReplays(std::chrono::steady_clock::time_point now) {
  std::vector<std::string> idle;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [id, entry] : scenes_) {
      if (!entry.scene || entry.deleting || !entry.scene->is_temporary()) continue;
      const uint64_t use_count = entry.scene->use_count();
      if (entry.scene->watcher_count() > 0 || use_count != entry.use_count || !entry.idle_since) {
        entry.use_count = use_count;
        entry.idle_since = now;
      } else if (now - *entry.idle_since >= kTemporaryReplayIdle) {
        idle.push_back(id);
      }
    }
  }
  for (const std::string& id : idle) {
    Log(LogLevel::kInfo, "replay left alone", {{"scene", id}});
    Delete(id, [](const absl::StatusOr<v1::DeleteSceneResponse>&) {});
  }
}

void SceneManager::Delete(const std::string& scene_id, Done<v1::DeleteSceneResponse> done) {
  std::shared_ptr<Scene> scene;
  absl::Status refused;
  {
    const std::lock_guard lock(mutex_);
    const auto it = scenes_.find(scene_id);
    if (it == scenes_.end() || it->second.deleting) {
      refused = NoSuchScene(scene_id);
    } else if (!it->second.scene) {
      refused = absl::UnavailableError(absl::StrCat("scene \"", scene_id, "\" is still being built"));
    } else {
      it->second.deleting = true;
      scene = it->second.scene;
      ++unfinished_;
    }
  }
  if (!refused.ok()) {
    encode_pool_.Post([done = std::move(done), refused] { done(refused); });
    return;
  }
  Scene& to_stop = *scene;
  to_stop.Stop(absl::AbortedError(absl::StrCat("scene \"", scene_id, "\" was deleted")),
               [this, scene_id, done = std::move(done), scene = std::move(scene)]() mutable {
                 {
                   const std::lock_guard lock(mutex_);
                   scenes_[scene_id].scene.reset();  // the id stays taken
                 }
                 const bool is_kept = scene->past().is_kept();
                 scene.reset();  // joins the thread, which is at its end
                 const absl::Status removed = is_kept ? options_.store->Remove(scene_id) : absl::OkStatus();
                 {
                   const std::lock_guard lock(mutex_);
                   scenes_.erase(scene_id);
                 }
                 Log(LogLevel::kInfo, "scene deleted", {{"scene", scene_id}});
                 if (removed.ok()) {
                   done(v1::DeleteSceneResponse());
                 } else {
                   done(removed);
                 }
                 const std::lock_guard lock(mutex_);
                 --unfinished_;
                 finished_.notify_all();
               });
}

absl::StatusOr<std::shared_ptr<const sim::TextureImage>> SceneManager::FindImage(std::string_view id) const {
  std::vector<std::shared_ptr<Scene>> scenes;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, entry] : scenes_) {
      if (entry.scene != nullptr) scenes.push_back(entry.scene);
    }
  }
  for (const std::shared_ptr<Scene>& scene : scenes) {
    for (const std::shared_ptr<const sim::TextureImage>& image : scene->Snapshot()->topology->statics->images) {
      if (image->id == id) return image;
    }
  }
  return absl::NotFoundError("no scene has this picture");
}

absl::StatusOr<std::shared_ptr<Scene>> SceneManager::Find(const std::string& scene_id) const {
  const std::lock_guard lock(mutex_);
  if (stopping_) return Stopping();
  const auto it = scenes_.find(scene_id);
  if (it == scenes_.end() || it->second.deleting) return NoSuchScene(scene_id);
  if (!it->second.scene) return absl::UnavailableError(absl::StrCat("scene \"", scene_id, "\" is still being built"));
  return it->second.scene;
}

std::vector<std::shared_ptr<Scene>> SceneManager::List() const {
  std::vector<std::shared_ptr<Scene>> out;
  const std::lock_guard lock(mutex_);
  for (const auto& [id, entry] : scenes_) {
    if (entry.scene && !entry.deleting) out.push_back(entry.scene);
  }
  return out;
}

std::vector<std::pair<std::string, int>> SceneManager::SceneStates() const {
  std::array<int, 3> counts{};
  for (const std::shared_ptr<Scene>& scene : List()) {
    switch (scene->Snapshot()->status.state) {
      case v1::RUN_STATE_PLAYING:
        ++counts[1];
        break;
      case v1::RUN_STATE_FAILED:
        ++counts[2];
        break;
      default:
        ++counts[0];
    }
  }
  return {{"paused", counts[0]}, {"playing", counts[1]}, {"failed", counts[2]}};
}

v1::GetServerInfoResponse SceneManager::ServerInfo() const {
  v1::GetServerInfoResponse out;
  out.set_version(kVersion);
  out.set_commit(kBuildCommit);
  if (options_.context) {
    out.set_device(gpu::DescribeDevice(options_.context->device()));
    out.set_driver_version(options_.context->device().driver_version);
  }
  out.set_scene_count(static_cast<uint32_t>(List().size()));
  v1::ServerLimits& limits = *out.mutable_limits();
  limits.set_max_scenes(options_.limits.max_scenes);
  limits.set_max_bodies_per_scene(options_.limits.scene.max_bodies_per_scene);
  limits.set_max_tets_per_scene(options_.limits.scene.max_tets_per_scene);
  limits.set_max_message_bytes(options_.limits.max_message_bytes);
  limits.set_max_streams(options_.limits.max_streams);
  limits.set_max_kept_versions(options_.limits.max_kept_versions);
  return out;
}

absl::StatusOr<std::unique_ptr<StreamTicket>> SceneManager::OpenStream(StreamKind kind, std::function<void(const absl::Status&)> end) {
  uint64_t id = 0;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return Stopping();
    if (streams_.size() >= options_.limits.max_streams) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "the server has ", streams_.size(), " streams and its limit max_streams = ", options_.limits.max_streams, " is reached"));
    }
    id = next_stream_id_++;
    streams_.emplace(id, std::move(end));
  }
  metrics_.OnStreamOpened(kind);
  return std::make_unique<StreamTicket>(*this, id, kind);
}

void SceneManager::CloseStream(uint64_t id, StreamKind kind) {
  metrics_.OnStreamClosed(kind);
  const std::lock_guard lock(mutex_);
  streams_.erase(id);
}

void SceneManager::ShutdownAndWait() {
  std::map<std::string, Entry> scenes;
  std::map<uint64_t, std::function<void(const absl::Status&)>> streams;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    streams = streams_;
    for (auto& [id, entry] : scenes_) {
      if (entry.scene && !entry.deleting) {
        entry.deleting = true;
        ++unfinished_;
        scenes.emplace(id, entry);
      }
    }
  }
  for (const auto& [id, end] : streams) end(Stopping());
  for (auto& [id, entry] : scenes) {
    Scene& scene = *entry.scene;
    scene.Stop(Stopping(), [this, id = id, owned = std::move(entry.scene)]() mutable {
      {
        const std::lock_guard lock(mutex_);
        scenes_.erase(id);
      }
      owned.reset();
      const std::lock_guard lock(mutex_);
      --unfinished_;
      finished_.notify_all();
    });
  }
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [this] { return unfinished_ == 0; });
}

}  // namespace palpate::server
