#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "palpate/v1/journal.pb.h"
#include "sim/record/disk.h"
#include "sim/scene/asset_resolver.h"

namespace palpate::record {

inline constexpr uint64_t kMaxAssetBytes = uint64_t{2} << 30;

/// One file of a scene: the name that the spec (or the format's rules) gives it, and what it holds.
struct AssetFile {
  std::string name;
  std::string content;
};

/// Mesh files by what they hold. Files that belong together (TetGen meshes are two) lie in one folder, DIR/KEY/mesh.EXTENSION; the key is
/// the SHA-256 of the content, of several files that of their hashes. Several processes may share a store. Thread-safe.
class AssetStore {
 public:
  explicit AssetStore(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// Takes files in that belong together. Errors: of writing, naming the file.
  absl::StatusOr<std::vector<v1::AssetReference>> Put(const std::vector<AssetFile>& files) const;

  /// Where the first of these files lies, the others beside it. Errors: NotFound; InvalidArgument (a hash that is none);
  /// DataLoss (a file does not hold what its name says).
  absl::StatusOr<std::filesystem::path> PathOf(const std::vector<v1::AssetReference>& references) const;

  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
};

/// The assets of a head that lie in one folder with this one, itself first; empty if it is the second of a pair.
std::vector<v1::AssetReference> GroupOf(const v1::AssetReference& reference, const v1::JournalHead& head);

/// Names of the folders that may hold these files, alone or as one of a pair.
std::set<std::string> KeysOf(const std::vector<v1::AssetReference>& references);

/// The files that opening `path` reads: itself, and the other half of a TetGen mesh. Errors: of reading.
absl::StatusOr<std::vector<AssetFile>> ReadAsset(const std::string& name, const std::filesystem::path& path);

/// Takes what another resolver finds into a store and gives out the copies, so that what a scene was made of can be had again. Thread-safe.
class KeepingResolver : public scene::AssetResolver {
 public:
  KeepingResolver(const scene::AssetResolver& inner, const AssetStore& store) : inner_(inner), store_(store) {}
  absl::StatusOr<std::filesystem::path> Resolve(const std::string& mesh_file) const override;
  std::string Redact(const std::string& message) const override;

  /// Everything that was asked for, by name.
  std::vector<v1::AssetReference> references() const;

 private:
  const scene::AssetResolver& inner_;
  const AssetStore& store_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, v1::AssetReference> references_;
  mutable std::map<std::string, std::string> names_;  ///< of copies, by path
};

/// Finds what a journal names in a store. Thread-safe.
class StoredResolver : public scene::AssetResolver {
 public:
  StoredResolver(const AssetStore& store, const v1::JournalHead& head);
  absl::StatusOr<std::filesystem::path> Resolve(const std::string& mesh_file) const override;

 private:
  AssetStore store_;
  std::map<std::string, v1::AssetReference> references_;
};

}  // namespace palpate::record
