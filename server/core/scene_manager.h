#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/runtime/context.h"
#include "palpate/v1/control.pb.h"
#include "server/core/metrics.h"
#include "server/core/scene.h"
#include "server/core/scene_store.h"
#include "server/core/upload_file.h"
#include "server/core/worker_pool.h"
#include "sim/scene/asset_resolver.h"
#include "sim/scene/scene_spec.h"

namespace palpate::server {

/// What one server may hold; the names are those of ServerLimits.
struct Limits {
  uint32_t max_scenes = 16;
  scene::SceneLimits scene;
  uint64_t max_message_bytes = 64ULL << 20;
  uint32_t max_streams = 256;
  uint32_t max_kept_versions = TopologyHistory::kDefaultVersions;
};

class SceneManager;

/// A place among max_streams; the destructor gives it back.
class StreamTicket {
 public:
  StreamTicket(SceneManager& manager, uint64_t id, StreamKind kind) : manager_(manager), id_(id), kind_(kind) {}
  ~StreamTicket();
  StreamTicket(const StreamTicket&) = delete;
  StreamTicket& operator=(const StreamTicket&) = delete;

 private:
  SceneManager& manager_;
  uint64_t id_;
  StreamKind kind_;
};

/// All scenes of a server, whatever the transport. Thread-safe; no method blocks. Answers through `done` come on a pool thread.
class SceneManager {
 public:
  struct Options {
    Limits limits;
    std::shared_ptr<const scene::AssetResolver> assets;
    std::shared_ptr<gpu::Context> context;
    std::shared_ptr<SceneStore> store;  ///< null: one that keeps no state
  };

  /// `metrics` outlives the manager.
  SceneManager(Options options, Metrics& metrics);
  /// Precondition: Shutdown has been called and its streams have ended.
  ~SceneManager();
  SceneManager(const SceneManager&) = delete;
  SceneManager& operator=(const SceneManager&) = delete;

  static constexpr int kMaxWaitingChecks = 16;

  /// `assets`: where mesh files come from; null = those of the options. `is_cancelled` (may be empty): asked before the work begins, which
  /// is then not done. Errors: InvalidArgument, AlreadyExists, ResourceExhausted, NotFound (mesh file), Cancelled, Unavailable (the server
  /// stops).
  void Create(const v1::CreateSceneRequest& request, std::shared_ptr<const scene::AssetResolver> assets, std::function<bool()> is_cancelled,
              Done<v1::SceneInfo> done);
  /// The same errors; ResourceExhausted if kMaxWaitingChecks wait already.
  void Check(const v1::SceneSpec& spec, std::function<bool()> is_cancelled, Done<v1::CheckSceneResponse> done);
  /// Brings back the scenes that an earlier process has left; those that cannot be are logged and stay on disk. Blocks.
  void RecoverScenes();
  /// A scene that replays a recording's file, which it keeps until it is deleted; see RecordService.OpenRecording.
  /// `is_cancelled`: as of Create.
  void OpenRecording(std::shared_ptr<UploadFile> file, const v1::OpenRecording& request, std::function<bool()> is_cancelled,
                     Done<v1::SceneInfo> done);
  /// See RecordService.ReplayScene and BranchScene.
  void Replay(const v1::ReplaySceneRequest& request, Done<v1::ReplaySceneResponse> done);
  void Branch(const v1::BranchSceneRequest& request, Done<v1::SceneInfo> done);
  /// Deletes temporary replays that nobody has watched or asked for anything for kTemporaryReplayIdle. `now`: not before that of the last
  /// call; the manager itself calls each minute.
  void DeleteIdleReplays(std::chrono::steady_clock::time_point now);
  static constexpr std::chrono::minutes kTemporaryReplayIdle{10};
  /// Ends the streams at once with ABORTED; `done` comes when the scene is freed.
  void Delete(const std::string& scene_id, Done<v1::DeleteSceneResponse> done);

  /// Errors: NotFound, Unavailable (still being built, or the server stops).
  absl::StatusOr<std::shared_ptr<Scene>> Find(const std::string& scene_id) const;
  /// The picture of a scene's texture by its id. Errors: NotFound.
  absl::StatusOr<std::shared_ptr<const sim::TextureImage>> FindImage(std::string_view id) const;
  /// In order of id; scenes still being built are left out.
  std::vector<std::shared_ptr<Scene>> List() const;
  v1::GetServerInfoResponse ServerInfo() const;

  /// `end` is called when the server stops, perhaps when the ticket has just been given back: it must own what it touches, and only start
  /// the end of the stream. Errors: ResourceExhausted, Unavailable.
  absl::StatusOr<std::unique_ptr<StreamTicket>> OpenStream(StreamKind kind, std::function<void(const absl::Status&)> end);

  /// Refuses new work, ends every stream with UNAVAILABLE, stops every scene and waits for their threads. Idempotent. Blocks for as long as
  /// the longest step.
  void ShutdownAndWait();

  const Limits& limits() const { return options_.limits; }
  const std::shared_ptr<gpu::Context>& context() const { return options_.context; }
  const std::shared_ptr<const scene::AssetResolver>& assets() const { return options_.assets; }
  SceneStore& store() { return *options_.store; }
  Metrics& metrics() { return metrics_; }
  WorkerPool& encode_pool() { return encode_pool_; }  ///< frames, timers, answers
  WorkerPool& haptic_pool() { return haptic_pool_; }  ///< local models: short jobs only

 private:
  friend class StreamTicket;
  struct Entry {
    std::shared_ptr<Scene> scene;  ///< null while it is being built
    bool deleting = false;
    // Of a temporary replay:
    uint64_t use_count = 0;  ///< when it was looked at last
    std::optional<std::chrono::steady_clock::time_point> idle_since;
  };

  /// A place for a scene that is to be built. Errors: InvalidArgument, AlreadyExists, ResourceExhausted, Unavailable.
  absl::StatusOr<std::string> ReserveId(const std::string& wanted);
  /// On the build pool: the scene of a reserved id.
  void BuildScene(const std::string& id, std::function<absl::StatusOr<SceneStart>()> make, Done<v1::SceneInfo> done);
  void FinishBuild(const std::string& id, absl::StatusOr<SceneStart> start, const Done<v1::SceneInfo>& done);
  /// Takes the present moment of a scene, then builds another from it.
  void BuildFrom(const std::string& scene_id, const std::string& new_id,
                 std::function<absl::StatusOr<SceneStart>(const std::string& id, const BranchPoint& point)> make, Done<v1::SceneInfo> done);
  /// Whether work that waited is still wanted. Errors: Cancelled, Unavailable.
  absl::Status Wanted(const std::function<bool()>& is_cancelled) const;
  void CloseStream(uint64_t id, StreamKind kind);
  void LookForIdleReplays();
  std::vector<std::pair<std::string, int>> SceneStates() const;

  Options options_;
  Metrics& metrics_;

  mutable std::mutex mutex_;
  std::map<std::string, Entry> scenes_;
  int waiting_checks_ = 0;
  std::map<uint64_t, std::function<void(const absl::Status&)>> streams_;
  uint64_t next_stream_id_ = 1;
  uint64_t next_scene_number_ = 1;
  bool stopping_ = false;
  int unfinished_ = 0;  ///< builds and deletions in progress
  std::condition_variable finished_;

  // Last members: their threads end first.
  WorkerPool encode_pool_;
  WorkerPool haptic_pool_;
  WorkerPool build_pool_;
};

}  // namespace palpate::server
