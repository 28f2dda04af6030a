#pragma once

#include <filesystem>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "clients/job/job_file.h"
#include "gpu/runtime/device.h"
#include "sim/record/asset_store.h"
#include "sim/record/state_folder.h"
#include "sim/world/world.h"

namespace palpate::job {

/// The end of a job as a recording of one moment: with the scene and the files that it was made of, so that a server opens it anywhere.
class FinalState {
 public:
  static constexpr const char* kFile = "state.plrec";

  /// Makes the scene and keeps the files that it asks for: they may change while the job runs. Errors: as job::BuildScene, those of
  /// temporary files.
  absl::StatusOr<sim::SceneDescription> BuildScene(const LoadedJob& loaded);

  /// Precondition: BuildScene. Without times of the wall clock. Errors: those of World::Capture, of reading and of writing.
  absl::Status Write(const LoadedJob& loaded, const gpu::DeviceInfo& device, const std::filesystem::path& folder, sim::World& world) const;

 private:
  std::unique_ptr<record::TemporaryFolder> folder_;
  std::vector<v1::AssetReference> assets_;
};

}  // namespace palpate::job
