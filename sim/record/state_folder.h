#pragma once

#include <filesystem>
#include <memory>
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
  static absl::StatusOr<std::unique_ptr<TemporaryFolder>> CreateIn(const std::filesystem::path& parent);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::filesystem::path path) : path_(std::move(path)) {}
  const std::filesystem::path path_;
};

/// Where a server keeps its scenes: DIR/scenes/ID holds journals and checkpoints, DIR/assets mesh files, DIR/version which format it is.
/// One process at a time. Thread-safe.
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
  /// the scene has them too. What an earlier process held is gone. Errors: NotFound (the scene is not kept), those of the disk.
  absl::StatusOr<std::unique_ptr<TemporaryFolder>> HoldPast(const std::string& id) const;
  /// Removes assets that none of `references` names, and what deletions that were cut off have left.
  void CollectGarbage(const std::vector<v1::AssetReference>& references) const;

  const std::shared_ptr<const AssetStore>& assets() const { return assets_; }

 private:
  explicit StateFolder(std::filesystem::path path);

  const std::filesystem::path path_;
  const std::shared_ptr<const AssetStore> assets_;
  Descriptor lock_;
};

}  // namespace palpate::record
