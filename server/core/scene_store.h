#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/runtime/context.h"
#include "palpate/v1/control.pb.h"
#include "server/core/scene.h"
#include "server/core/upload_file.h"
#include "sim/record/state_folder.h"
#include "sim/scene/asset_resolver.h"
#include "sim/scene/scene_spec.h"

namespace palpate::server {

/// How scenes outlive the process; the names are those of ServerConfig.
struct StateOptions {
  std::filesystem::path folder;                           ///< empty: they do not
  std::chrono::duration<double> checkpoint_interval{10};  ///< 0: none by time
  uint64_t checkpoint_steps = 0;                          ///< 0: none by steps
  uint64_t max_state_bytes = uint64_t{1} << 30;           ///< of one scene
  std::chrono::duration<double> sync_interval{0.1};
  size_t max_entry_bytes = record::kMaxEntryBytes;  ///< of a journal; fewer in tests
};

/// Makes what scenes start from: of a spec, of what an earlier process has left, of a moment of another scene, of a recording. Keeps their
/// state on disk if there is a folder for it. Thread-safe; all methods block, some for seconds.
class SceneStore {
 public:
  struct Options {
    StateOptions state;
    scene::SceneLimits limits;
    size_t kept_versions = TopologyHistory::kDefaultVersions;
    std::shared_ptr<gpu::Context> context;
  };

  /// Errors: those of record::StateFolder::Open.
  static absl::StatusOr<std::unique_ptr<SceneStore>> Open(Options options);

  /// A new scene. `rate`: as from NormalizeRate. Errors: those of SceneService.CreateScene; AlreadyExists if a scene of that id is on disk
  /// and could not be brought back.
  absl::StatusOr<SceneStart> NewScene(const std::string& id, const v1::CreateSceneRequest& request, const v1::Rate& rate,
                                      const scene::AssetResolver& assets);

  /// Ids of the scenes that an earlier process has left.
  std::vector<std::string> KeptScenes() const;
  /// One of them, at its last durable entry. Damage that was met is logged. Errors: of reading; of building the world.
  absl::StatusOr<SceneStart> Recover(const std::string& id);
  /// It is not brought back now: its files and its id stay.
  void LeaveAlone(const std::string& id) { left_alone_.push_back(id); }
  /// Forgets what no kept scene needs. Called once, after all were recovered.
  void CollectGarbage();

  /// A scene that goes on from a moment of another. It is durable when this returns.
  absl::StatusOr<SceneStart> Branch(const std::string& id, const BranchPoint& point, bool play);

  /// A replay of a recording's file, from its begin; or of the past of a scene that is kept, from its newest checkpoint.
  absl::StatusOr<SceneStart> ReplayFile(const std::string& id, std::shared_ptr<UploadFile> file, const v1::Rate& rate);
  absl::StatusOr<SceneStart> ReplayPast(const std::string& id, const BranchPoint& point);

  /// What a scene keeps of its past now, for as long as the result lives. Errors: those of record::StateFolder::HoldPast.
  absl::StatusOr<std::unique_ptr<record::TemporaryFolder>> HoldPast(const std::string& id) const;

  /// Forgets a scene that has ended. OK if it was never kept.
  absl::Status Remove(const std::string& id);

  bool keeps_state() const { return folder_ != nullptr; }
  const std::filesystem::path& temporary_folder() const { return temporary_->path(); }

 private:
  explicit SceneStore(Options options) : options_(std::move(options)) {}
  v1::JournalHead HeadOf(const std::string& id, const v1::CreateSceneRequest& request, const sim::SceneDescription& description) const;
  /// Begins the journal behind `past.place`, if state is kept.
  absl::Status OpenJournal(const std::string& id, ScenePast::Options* past);
  absl::StatusOr<SceneStart> StartReplay(const std::string& id, std::shared_ptr<const record::Recording> recording,
                                         sim::SceneDescription description, const v1::Rate& rate, uint64_t place);

  const Options options_;
  std::unique_ptr<record::StateFolder> folder_;         ///< null: state is not kept
  std::unique_ptr<record::TemporaryFolder> temporary_;  ///< of recordings that came by the network
  std::shared_ptr<const record::AssetStore> assets_;    ///< in one of these two
  std::vector<v1::AssetReference> kept_references_;     ///< while scenes are recovered
  std::vector<std::string> left_alone_;                 ///< scenes on disk that were not brought back
};

}  // namespace palpate::server
