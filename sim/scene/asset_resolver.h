#pragma once

#include <filesystem>
#include <string>

#include "absl/status/statusor.h"

namespace palpate::scene {

/// Finds the file that BodySpec.mesh_file names. Thread-safe.
class AssetResolver {
 public:
  virtual ~AssetResolver() = default;

  /// The path to open. Errors: InvalidArgument (a name that may not be used), NotFound.
  virtual absl::StatusOr<std::filesystem::path> Resolve(const std::string& mesh_file) const = 0;

  /// What an error that mentions `path` may say to the client.
  virtual std::string Redact(const std::string& message) const { return message; }
};

/// For a server: only regular files inside one folder. Absolute names, `..` and symbolic links that lead outside are refused, and messages
/// never show where the folder lies. An empty root refuses every name.
class AssetRootResolver : public AssetResolver {
 public:
  explicit AssetRootResolver(const std::filesystem::path& root);
  absl::StatusOr<std::filesystem::path> Resolve(const std::string& mesh_file) const override;
  std::string Redact(const std::string& message) const override;

 private:
  std::filesystem::path root_;  ///< canonical, or empty
};

/// For a program on the user's own machine: names are relative to the folder of the scene file; any readable file is allowed.
class SceneFolderResolver : public AssetResolver {
 public:
  explicit SceneFolderResolver(std::filesystem::path folder) : folder_(std::move(folder)) {}
  absl::StatusOr<std::filesystem::path> Resolve(const std::string& mesh_file) const override;

 private:
  std::filesystem::path folder_;
};

}  // namespace palpate::scene
