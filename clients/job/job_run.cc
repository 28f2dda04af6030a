#include "clients/job/job_run.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "clients/job/final_state.h"
#include "clients/job/job_state.h"
#include "clients/job/results.h"
#include "clients/job/steering.h"
#include "clients/job/stop_rules.h"
#include "clients/job/summary.h"
#include "clients/job/world_checkpoint.h"
#include "gpu/base/status.h"

namespace palpate::job {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kDefaultCheckpointInterval_s = 60;
constexpr const char* kSummary = "summary.json";
/// How files begin that are written under another name first.
constexpr std::array<std::string_view, 4> kWrittenFiles = {kSummary, "checkpoint.palpate", FinalState::kFile, "geometry"};

/// When a job is saved though nobody interrupts it.
class CheckpointClock {
 public:
  explicit CheckpointClock(const v1::JobCheckpoints& checkpoints)
      : interval_s_(checkpoints.has_interval_s() ? checkpoints.interval_s() : kDefaultCheckpointInterval_s),
        interval_steps_(checkpoints.has_interval_steps() ? checkpoints.interval_steps() : 0) {}

  bool IsDue(uint64_t step) const {
    if (interval_steps_ > 0 && step > 0 && step % interval_steps_ == 0) return true;
    return interval_s_ > 0 && std::chrono::duration<double>(Clock::now() - last_).count() >= interval_s_;
  }
  void Restart() { last_ = Clock::now(); }

 private:
  double interval_s_;
  uint64_t interval_steps_;
  Clock::time_point last_ = Clock::now();
};

/// Removes what a process that was killed has left of files that it had begun; only those that jobs write, since the folder may have
/// others. Precondition: the folder is locked, so that nobody writes there.
void RemoveParts(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> parts;
  std::error_code error;
  for (auto entry = std::filesystem::recursive_directory_iterator(folder, error); entry != std::filesystem::recursive_directory_iterator();
       entry.increment(error)) {
    const std::string own = *entry->path().lexically_relative(folder).begin();
    const bool is_ours = std::ranges::any_of(kWrittenFiles, [&own](std::string_view name) { return own.starts_with(name); });
    if (!is_ours && entry->is_directory(error)) entry.disable_recursion_pending();
    if (is_ours && entry->path().extension() == record::kPartExtension) parts.push_back(entry->path());
  }
  for (const std::filesystem::path& part : parts) std::filesystem::remove(part, error);
}

class JobRun {
 public:
  JobRun(const LoadedJob& loaded, const RunOptions& options) : loaded_(loaded), options_(options), clock_(loaded.job.checkpoints()) {}

  absl::StatusOr<JobPlan> Plan();
  absl::StatusOr<RunOutcome> Run();

 private:
  absl::StatusOr<bool> IsDone() const;
  absl::StatusOr<std::optional<v1::JobState>> FindState() const;
  absl::Status BeginOrResume(const std::optional<v1::JobState>& state);
  absl::Status Resume(const v1::JobState& state);
  absl::StatusOr<RunOutcome> Go();
  absl::StatusOr<std::optional<StopReason>> StepOnce();
  absl::Status Save(bool is_interruption);
  absl::StatusOr<RunOutcome> End(const StopReason& reason);
  RunOutcome Fail(const absl::Status& status);
  absl::Status WriteSummary(SummaryFacts facts);
  double Wall_s() const { return wall_before_s_ + std::chrono::duration<double>(Clock::now() - begun_).count(); }
  void Note(const std::string& text) const {
    if (options_.on_note) options_.on_note(text);
  }

  const LoadedJob& loaded_;
  const RunOptions& options_;
  CheckpointClock clock_;
  FinalState final_state_;
  sim::SceneDescription scene_;
  std::optional<JobResults> results_;
  std::optional<StopRules> rules_;
  std::optional<Steering> steering_;
  std::unique_ptr<sim::World> world_;
  std::vector<std::string> devices_;
  bool is_resumed_ = false;
  uint32_t interruptions_ = 0;
  double wall_before_s_ = 0;
  Clock::time_point begun_ = Clock::now();
  std::string begun_text_ = UtcNow();
};

/// Whether the folder has the end of this very job. Errors: FailedPrecondition (of another job).
absl::StatusOr<bool> JobRun::IsDone() const {
  const auto text = record::ReadWholeFile(options_.folder / kSummary, kMaxTextBytes);
  if (absl::IsNotFound(text.status())) return false;
  if (!text.ok()) return text.status();
  const auto summary = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!summary.is_object() || !summary.contains("job_hash") || !summary.contains("status")) return false;
  if (summary["job_hash"] != loaded_.hash) {
    return absl::FailedPreconditionError(absl::StrCat(options_.folder.string(),
                                                      ": holds the results of another job, or of this one before it or ",
                                                      "its files were changed; --fresh begins anew"));
  }
  return summary["status"] == "ended";
}

absl::StatusOr<JobPlan> JobRun::Plan() {
  auto scene = loaded_.job.outputs().final_state() ? final_state_.BuildScene(loaded_) : BuildScene(loaded_);
  if (!scene.ok()) return scene.status();
  scene_ = *std::move(scene);
  const auto make_parts = [this]() -> absl::Status {
    PALPATE_ASSIGN_OR_RETURN(results_, JobResults::Make(loaded_, scene_));
    PALPATE_ASSIGN_OR_RETURN(rules_, StopRules::Make(loaded_.job.stop(), scene_));
    PALPATE_ASSIGN_OR_RETURN(steering_, Steering::Make(loaded_, scene_));
    return absl::OkStatus();
  };
  PALPATE_RETURN_IF_ERROR(Annotate(make_parts(), loaded_.file.string()));
  return JobPlan{rules_->last_step(), results_->columns()};
}

absl::StatusOr<RunOutcome> JobRun::Run() {
  const RunOutcome was_done{.end = RunEnd::kWasDone, .reason = {}, .failure = {}, .step = 0};
  if (!options_.begin_anew) {
    // Before the scene is made: of many tasks that are run again most are done.
    PALPATE_ASSIGN_OR_RETURN(const bool is_done, IsDone());
    if (is_done) return was_done;
  }
  PALPATE_RETURN_IF_ERROR(Plan().status());
  PALPATE_ASSIGN_OR_RETURN(const FolderLock lock, FolderLock::Take(options_.folder));
  if (!options_.begin_anew) {
    PALPATE_ASSIGN_OR_RETURN(const bool is_done, IsDone());  // by another process meanwhile
    if (is_done) return was_done;
  }
  RemoveParts(options_.folder);
  PALPATE_ASSIGN_OR_RETURN(const std::optional<v1::JobState> state, FindState());
  if (const absl::Status status = BeginOrResume(state); !status.ok()) return Fail(status);
  auto outcome = Go();
  if (!outcome.ok()) return Fail(outcome.status());
  return outcome;
}

/// The checkpoint to go on from, if there is one. Errors: FailedPrecondition (of another job).
absl::StatusOr<std::optional<v1::JobState>> JobRun::FindState() const {
  if (options_.begin_anew) return std::optional<v1::JobState>();
  auto state = ReadJobState(options_.folder);
  if (!state.ok()) {
    Note(absl::StrCat(state.status().message(), "; the job begins anew"));
    return std::optional<v1::JobState>();
  }
  if (!*state || (*state)->inputs_hash() == loaded_.hash) return state;
  return absl::FailedPreconditionError(absl::StrCat(options_.folder.string(),
                                                    ": holds the checkpoint of another job, or of this one before ",
                                                    "it or its files were changed; --fresh begins anew"));
}

absl::Status JobRun::BeginOrResume(const std::optional<v1::JobState>& state) {
  devices_ = {gpu::DescribeDevice(options_.context->device())};
  if (state) return Resume(*state);
  RemoveJobState(options_.folder);
  std::error_code error;
  for (const char* old : {kSummary, FinalState::kFile}) std::filesystem::remove(options_.folder / old, error);
  PALPATE_ASSIGN_OR_RETURN(world_, sim::World::Create(options_.context, scene_));
  PALPATE_RETURN_IF_ERROR(results_->Begin(options_.folder));
  return steering_->Begin(options_.folder);
}

absl::Status JobRun::Resume(const v1::JobState& state) {
  is_resumed_ = true;
  PALPATE_ASSIGN_OR_RETURN(world_, RestoreWorld(options_.context, scene_, state.world()));
  const std::shared_ptr<const sim::Frame> frame = world_->CurrentFrame();
  if (frame->step != state.step() || frame->state_hash != state.state_hash()) {
    return absl::DataLossError(absl::StrFormat("the checkpoint's world is at step %d with hash %016x, not at step %d with %016x",
                                               frame->step, frame->state_hash, state.step(), state.state_hash()));
  }
  if (static_cast<size_t>(state.held_steps_size()) != rules_->rule_count())
    return absl::DataLossError("the checkpoint has other conditions");
  rules_->set_held({state.held_steps().begin(), state.held_steps().end()});
  interruptions_ = state.interruptions();
  wall_before_s_ = state.wall_s();
  std::vector<std::string> devices(state.devices().begin(), state.devices().end());
  if (!devices.empty() && devices.back() != devices_[0]) {
    Note(absl::StrCat("goes on on another device than it was on (", devices.back(), "): bits may differ from an undisturbed run"));
    devices.push_back(devices_[0]);
  }
  if (!devices.empty()) devices_ = std::move(devices);
  PALPATE_RETURN_IF_ERROR(results_->Resume(options_.folder, state, frame->sim_time_s));
  Note(absl::StrCat("goes on at step ", frame->step));
  return steering_->Resume(options_.folder, state);
}

/// All of one frame, then the step to the next.
absl::StatusOr<std::optional<StopReason>> JobRun::StepOnce() {
  PALPATE_ASSIGN_OR_RETURN(std::optional<StopReason> reason, steering_->Prepare(*world_));
  if (reason) return reason;
  const auto frame = world_->Step(steering_->commands());
  if (absl::IsDataLoss(frame.status()) && loaded_.job.stop().failure_is_an_end()) {
    return StopReason{"failure", std::string(frame.status().message())};
  }
  if (!frame.ok()) return Annotate(frame.status(), absl::StrCat("step ", world_->CurrentFrame()->step + 1));
  return std::optional<StopReason>();
}

absl::StatusOr<RunOutcome> JobRun::Go() {
  // What is in a checkpoint was looked at before it was written.
  bool is_new = !is_resumed_;
  while (true) {
    const std::shared_ptr<const sim::Frame> frame = world_->CurrentFrame();
    if (is_new) {
      PALPATE_RETURN_IF_ERROR(results_->Add(*frame, *world_));
      if (const std::optional<StopReason> reason = rules_->Look(*frame, world_.get())) return End(*reason);
      if (options_.is_interrupted && options_.is_interrupted()) {
        PALPATE_RETURN_IF_ERROR(Save(true));
        return RunOutcome{.end = RunEnd::kInterrupted, .reason = {}, .failure = {}, .step = frame->step};
      }
      if (clock_.IsDue(frame->step)) PALPATE_RETURN_IF_ERROR(Save(false));
    }
    is_new = true;
    PALPATE_ASSIGN_OR_RETURN(const std::optional<StopReason> reason, StepOnce());
    if (reason) return End(*reason);
    if (options_.on_progress) {
      const std::shared_ptr<const sim::Frame> next = world_->CurrentFrame();
      options_.on_progress({next->step, rules_->last_step(), next->sim_time_s});
    }
  }
}

absl::Status JobRun::Save(bool is_interruption) {
  const std::shared_ptr<const sim::Frame> frame = world_->CurrentFrame();
  v1::JobState state;
  state.set_format(kJobStateFormat);
  state.set_inputs_hash(loaded_.hash);
  state.set_step(frame->step);
  state.set_state_hash(frame->state_hash);
  PALPATE_ASSIGN_OR_RETURN(*state.mutable_world(), CaptureWorld(*world_));
  PALPATE_RETURN_IF_ERROR(results_->Save(&state));
  PALPATE_RETURN_IF_ERROR(steering_->Save(&state));
  for (const uint64_t held : rules_->held()) state.add_held_steps(held);
  state.set_interruptions(interruptions_ + (is_interruption ? 1 : 0));
  state.set_wall_s(Wall_s());
  for (const std::string& device : devices_) state.add_devices(device);
  PALPATE_RETURN_IF_ERROR(WriteJobState(options_.folder, state));
  clock_.Restart();
  return absl::OkStatus();
}

absl::Status JobRun::WriteSummary(SummaryFacts facts) {
  facts.command = options_.command;
  facts.begun = begun_text_;
  facts.ended = UtcNow();
  facts.devices = devices_;
  facts.wall_s = Wall_s();
  facts.interruptions = interruptions_;
  facts.programs_compiled = options_.context->programs_compiled();
  facts.edit_count = steering_->edit_count();
  facts.removed_mass_kg = steering_->removed_mass_kg();
  PALPATE_ASSIGN_OR_RETURN(const std::string text, MakeSummary(loaded_, facts, *results_, world_.get(), options_.folder));
  return WriteDurably(options_.folder / kSummary, text);
}

absl::StatusOr<RunOutcome> JobRun::End(const StopReason& reason) {
  steering_->End(reason.kind);
  PALPATE_RETURN_IF_ERROR(results_->Finish(*world_->CurrentFrame(), *world_));
  // Not one of the summary's outputs: it also keeps what the solver no longer needs, which an interruption clears.
  if (loaded_.job.outputs().final_state() && !world_->has_failed()) {
    PALPATE_RETURN_IF_ERROR(final_state_.Write(loaded_, options_.context->device(), options_.folder, *world_));
  }
  SummaryFacts facts;
  facts.status = "ended";
  facts.reason = reason.kind;
  facts.detail = reason.detail;
  PALPATE_RETURN_IF_ERROR(WriteSummary(std::move(facts)));
  RemoveJobState(options_.folder);
  std::error_code error;
  std::filesystem::remove(options_.folder / "policy.record", error);
  const std::string told = reason.detail.empty() ? reason.kind : absl::StrCat(reason.kind, ": ", reason.detail);
  return RunOutcome{.end = RunEnd::kEnded, .reason = told, .failure = {}, .step = world_->CurrentFrame()->step};
}

RunOutcome JobRun::Fail(const absl::Status& status) {
  if (results_) {
    if (const absl::Status kept = results_->Keep(); !kept.ok()) Note(std::string(kept.message()));
  }
  SummaryFacts facts;
  facts.status = "failed";
  facts.reason = std::string(absl::StatusCodeToString(status.code()));
  facts.detail = std::string(status.message());
  if (const absl::Status written = WriteSummary(std::move(facts)); !written.ok()) Note(std::string(written.message()));
  return {.end = RunEnd::kFailed, .reason = {}, .failure = status, .step = world_ == nullptr ? 0 : world_->CurrentFrame()->step};
}

}  // namespace

absl::StatusOr<JobPlan> PlanJob(const LoadedJob& loaded) {
  const RunOptions none;
  return JobRun(loaded, none).Plan();
}

absl::StatusOr<RunOutcome> RunJob(const LoadedJob& loaded, const RunOptions& options) { return JobRun(loaded, options).Run(); }

}  // namespace palpate::job
