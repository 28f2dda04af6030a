#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "palpate/v1/job.pb.h"
#include "sim/scene/description.h"
#include "sim/world/world.h"

namespace palpate::job {

/// Where a tool is told to be, by simulated time. Without memory: asking again gives the same.
class ToolMotion {
 public:
  virtual ~ToolMotion() = default;
  /// What holds at this time. Nothing: the tool keeps its place.
  virtual std::optional<sim::ToolCommand> At(double time_s) const = 0;
  /// Whether commands have the velocity that the tool was told; otherwise it follows from the path.
  virtual bool has_velocity() const { return false; }
};

/// Errors: InvalidArgument naming `path` and the field: poses out of range, jaws or power beyond the instrument's.
absl::StatusOr<std::unique_ptr<ToolMotion>> MakeTrajectory(const v1::Trajectory& trajectory, const sim::ToolDescription& tool,
                                                           const std::string& path);

/// A recorded hand; `file` is where its ticks are. Between ticks as a linear trajectory, after the last one as that. Errors: those of
/// station::ReadRecording; as above.
absl::StatusOr<std::unique_ptr<ToolMotion>> MakeRecordedHand(const v1::HandRecording& recording, const std::filesystem::path& file,
                                                             const sim::ToolDescription& tool, const std::string& path);

/// What a tool of a recorded scene was told; `file` is the recording. A time has the command of the step that ends at it or goes on over
/// it. Errors: those of record::Recording; DataLoss (a part of it is damaged or missing); NotFound (it has no such tool); as above, naming
/// the step.
absl::StatusOr<std::unique_ptr<ToolMotion>> MakeReplay(const v1::ToolReplay& replay, const std::filesystem::path& file,
                                                       const sim::ToolDescription& tool, const std::string& path);

/// Whether an instrument can do what a command asks. Errors: InvalidArgument naming `path` and the field.
absl::Status CheckCommand(const sim::ToolCommand& command, const sim::InstrumentDescription& instrument, const std::string& path);

}  // namespace palpate::job
