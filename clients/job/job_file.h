#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "palpate/v1/job.pb.h"
#include "sim/scene/asset_resolver.h"
#include "sim/scene/description.h"

namespace palpate::job {

inline constexpr double kMaxTime_s = 3600;
inline constexpr uint64_t kMaxSteps = 1'000'000'000;
inline constexpr int kMaxKeys = 100'000;  ///< of a trajectory
inline constexpr uint64_t kMaxSeed = uint64_t{1} << 53;

/// A file that a job depends on.
struct InputFile {
  std::string name;  ///< as the job has it
  std::filesystem::path path;
  uint64_t size_bytes = 0;
  std::string hash;  ///< SHA-256
};

/// A job that can be run: overrides are in place, the scene is read, all files are there.
struct LoadedJob {
  v1::Job job;          ///< without scene, overrides and sweep
  v1::SceneSpec scene;  ///< with overrides
  std::filesystem::path file;
  std::filesystem::path folder;        ///< that the job's files are relative to
  std::filesystem::path scene_folder;  ///< mesh files are relative to it
  std::vector<InputFile> inputs;       ///< without the job file itself
  std::string hash;                    ///< SHA-256 of all that the result depends on, but for program and device

  /// A file that the job names.
  std::filesystem::path PathOf(const std::string& name) const { return folder / name; }
};

/// Reads a job file, strictly JSON. Errors: NotFound, InvalidArgument naming the file and line and column (syntax) or the field.
absl::StatusOr<v1::Job> ReadJobFile(const std::filesystem::path& path);
absl::StatusOr<v1::Job> ParseJobJson(std::string_view text, std::string_view display_name);

/// The scene that a job names, with overrides in both applied; `job` loses what is in the result then. Errors: as ReadJobFile, naming
/// `overrides` and the path.
absl::StatusOr<v1::SceneSpec> ResolveScene(const std::filesystem::path& file, v1::Job* job, std::filesystem::path* scene_folder);

/// Checks every field against the ranges of job.proto, without a scene. Errors: InvalidArgument `<field path>: <value> is outside <range>`,
/// or what else is wrong with it.
absl::Status ValidateJob(const v1::Job& job);

/// All of the above, and the files hashed. Precondition: the job has no sweep. Errors: those, with the name of the file in front.
absl::StatusOr<LoadedJob> LoadJob(v1::Job job, const std::filesystem::path& file);

/// Of a loaded job: reads and makes meshes. Errors: as scene::BuildSceneDescription.
absl::StatusOr<sim::SceneDescription> BuildScene(const LoadedJob& loaded);
/// The same with files from elsewhere than the scene's folder.
absl::StatusOr<sim::SceneDescription> BuildScene(const LoadedJob& loaded, const scene::AssetResolver& assets);

/// The folder that a job's files are relative to.
std::filesystem::path FolderOf(const v1::Job& job, const std::filesystem::path& file);

/// The job's name, or that of its file.
std::string NameOf(const v1::Job& job, const std::filesystem::path& file);

}  // namespace palpate::job
