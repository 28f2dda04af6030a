#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sim/record/asset_store.h"
#include "sim/record/disk.h"

namespace palpate::record {

/// A folder of its own, removed by the destructor.
class TemporaryFolder {
 public:
  /// Among the temporary files of the system.
  static absl::StatusOr<std::unique_ptr<TemporaryFolder>> Create();
  static absl::StatusOr<std::unique_ptr<TemporaryFolder>> CreateIn(const std::filesystem::path& parent,
                                                                   const std::string& prefix = "palpate");
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::filesystem::path path) : path_(std::move(path)) {}
  const std::filesystem::path path_;
};

/// Where a server keeps its scenes: DIR/scenes/ID holds journals and checkpoints, DIR/replays what replays hold of them, DIR/assets mesh
/// files, DIR/version which format it is. One process at a time. Thread-safe.
class StateFolder {
 public:
  /// Makes the folder where there is none, and locks it. Errors: FailedPrecondition (another server uses it), InvalidArgument (of another
  /// version, or a folder that holds something else), those of the disk.
  static absl::StatusOr<std::unique_ptr<StateFolder>> Open(const std::filesystem::path& path);

  /// Of scenes that are kept, ascending.
  absl::StatusOr<std::vector<std::string>> SceneIds() const;
  std::filesystem::path SceneFolder(const std::string& id) const;
  std::filesystem::path HeldFolder() const { return path_ / "replays"; }
  /// Errors: AlreadyExists; of the disk.
  absl::Status AddScene(const std::string& id) const;
  /// The scene is gone when this returns, even if the process ends before its files are.
  absl::Status RemoveScene(const std::string& id) const;
  /// The files of a scene's past as they are now, in a folder of its own: they stay when the scene trims or loses them. Costs no room while
  /// the scene has them too. What an earlier process held is gone. Errors: NotFound (the scene is not kept), those of the disk;
  /// ResourceExhausted: there are files that only such folders have, and these and the scene's own are more than `max_bytes`.
  absl::StatusOr<std::unique_ptr<TemporaryFolder>> HoldPast(const std::string& id,
                                                            uint64_t max_bytes = std::numeric_limits<uint64_t>::max()) const;
  /// Those that hold files of this scene now, or of an earlier one of that id.
  std::vector<std::filesystem::path> HoldFolders(const std::string& id) const;
  /// Removes assets that none of `references` names, and what deletions that were cut off have left.
  void CollectGarbage(const std::vector<v1::AssetReference>& references) const;

  const std::shared_ptr<const AssetStore>& assets() const { return assets_; }

 private:
  explicit StateFolder(std::filesystem::path path);

  const std::filesystem::path path_;
  const std::shared_ptr<const AssetStore> assets_;
  Descriptor lock_;
  mutable std::mutex hold_mutex_;  ///< so that two who come together do not both find room
};

}  // namespace palpate::record
