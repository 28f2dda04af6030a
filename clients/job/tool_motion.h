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
  /// What holds at this time; velocity is left out. Nothing: the tool keeps its place.
  virtual std::optional<sim::ToolCommand> At(double time_s) const = 0;
};

/// Errors: InvalidArgument naming `path` and the field: poses out of range, jaws or power beyond the instrument's.
absl::StatusOr<std::unique_ptr<ToolMotion>> MakeTrajectory(const v1::Trajectory& trajectory, const sim::ToolDescription& tool,
                                                           const std::string& path);

/// A recorded hand; `file` is where its ticks are. Between ticks as a linear trajectory, after the last one as that. Errors: those of
/// station::ReadRecording; as above.
absl::StatusOr<std::unique_ptr<ToolMotion>> MakeRecordedHand(const v1::HandRecording& recording, const std::filesystem::path& file,
                                                             const sim::ToolDescription& tool, const std::string& path);

/// Whether an instrument can do what a command asks. Errors: InvalidArgument naming `path` and the field.
absl::Status CheckCommand(const sim::ToolCommand& command, const sim::InstrumentDescription& instrument, const std::string& path);

}  // namespace palpate::job
