#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "clients/job/durable_file.h"
#include "clients/job/job_file.h"
#include "clients/job/policy.h"
#include "clients/job/stop_rules.h"
#include "clients/job/tool_motion.h"
#include "palpate/v1/job.pb.h"
#include "sim/world/world.h"

namespace palpate::job {

/// What happens in a job: edits at their times, tools along their paths, and what the policy decides.
class Steering {
 public:
  /// Precondition: `loaded` outlives this. Errors: InvalidArgument or NotFound naming the field: tools that the scene does not have,
  /// motions that the instrument cannot do, observations; those of files.
  static absl::StatusOr<Steering> Make(const LoadedJob& loaded, const sim::SceneDescription& scene);

  /// Opens the policy, which writes to `folder`. Errors: those of the policy.
  absl::Status Begin(const std::filesystem::path& folder);
  /// The same after an interruption: the policy hears again what it has heard. Errors: DataLoss (its record is damaged), FailedPrecondition
  /// (it does not answer as it did).
  absl::Status Resume(const std::filesystem::path& folder, const v1::JobState& state);
  /// Where this is. What the policy has heard so far is on the disk then.
  absl::Status Save(v1::JobState* state);

  /// What comes before the step that follows the world's newest frame: performs edits, and makes commands(). Returns a reason if the policy
  /// ends the job. Errors: those of edits, naming them, and of the policy.
  absl::StatusOr<std::optional<StopReason>> Prepare(sim::World& world);
  /// For World::Step; valid until the next Prepare.
  std::span<const sim::ToolCommand* const> commands() const { return pointers_; }

  /// The job is over.
  void End(const std::string& reason);

  uint64_t edit_count() const { return edit_count_; }
  double removed_mass_kg() const { return removed_mass_kg_; }

 private:
  /// Of the policy: who it is, what it sees, how often.
  struct Control {
    PolicySetup setup;
    sim::ProbeSet probes;
    std::vector<uint32_t> tools;  ///< indices into the scene's
    uint64_t interval_steps = 1;
    std::unique_ptr<Policy> policy;
    GrowingFile record;
  };

  explicit Steering(const LoadedJob& loaded, const sim::SceneDescription& scene);
  absl::Status AddMotions(const sim::SceneDescription& scene);
  absl::Status AddControl(const sim::SceneDescription& scene);
  absl::Status OpenPolicy(const std::filesystem::path& folder);
  absl::Status Perform(sim::World& world, const google::protobuf::RepeatedPtrField<v1::Edit>& edits, const std::string& where);
  absl::StatusOr<v1::PolicyAnswer> AskPolicy(sim::World& world);
  absl::Status TakeCommands(const v1::PolicyAnswer& answer, uint64_t step);

  const LoadedJob* loaded_;
  double dt_s_;
  std::vector<sim::ToolDescription> tools_;
  std::vector<std::unique_ptr<ToolMotion>> motions_;  // [tool] or null
  Control control_;
  std::vector<std::optional<sim::ToolCommand>> targets_;  // [tool] that the policy gave last
  std::vector<sim::ToolCommand> commands_;
  std::vector<const sim::ToolCommand*> pointers_;
  int next_edits_ = 0;
  uint64_t edit_count_ = 0;
  double removed_mass_kg_ = 0;
};

}  // namespace palpate::job
