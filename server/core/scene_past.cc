#include "server/core/scene_past.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/record/journal_file.h"

namespace palpate::server {
namespace {

/// A journal that lost entries wants a state, but a disk that is full need not be asked all the time.
constexpr std::chrono::seconds kStateRetry{1};
/// Of an entry with a request, without the request.
constexpr size_t kEntryRest = 1024;

}  // namespace

ScenePast::ScenePast(Options options)
    : options_(std::move(options)),
      is_kept_(options_.journal != nullptr),
      place_(options_.place),
      state_at_(std::chrono::steady_clock::now()),
      state_position_(place_.position) {}

ScenePast::~ScenePast() = default;

void ScenePast::OnStepBegin(std::span<const sim::ToolCommand* const> commands) {
  if (is_wanted()) commands_ = record::CopyCommands(commands);
}

void ScenePast::OnStepEnd(std::span<const sim::ToolCommand* const> commands, const sim::Frame& frame) {
  ++place_.position;
  place_.step = frame.step;
  v1::JournalEntry entry;
  // A sink that came while the step ran begins behind it.
  if (is_wanted() && commands_.size() == commands.size()) {
    *entry.mutable_step() = record::EncodeStep(commands_, record::CopyCommands(commands), frame);
  } else {
    entry.mutable_step();
  }
  Emit(std::move(entry));
}

void ScenePast::OnEdits(const v1::EditSceneRequest* request, size_t first, size_t count, const sim::Frame& frame) {
  v1::JournalEntry entry;
  v1::JournalEdit& edit = *entry.mutable_edit();
  if (request != nullptr) *edit.mutable_request() = *request;
  edit.set_first(static_cast<uint32_t>(first));
  edit.set_count(static_cast<uint32_t>(count));
  edit.set_state_hash(frame.state_hash);
  edit.set_topology_version(frame.topology_version);
  Emit(std::move(entry));
}

void ScenePast::OnEditEnd(const v1::EditSceneRequest* request, const v1::EditSceneResponse& response, const absl::Status& status) {
  v1::JournalEntry entry;
  v1::JournalEdit& edit = *entry.mutable_edit();
  if (request != nullptr) *edit.mutable_request() = *request;
  edit.set_is_over(true);
  *edit.mutable_response() = response;
  edit.set_status_code(static_cast<int32_t>(status.code()));
  edit.set_status_message(std::string(status.message()));
  Emit(std::move(entry));
}

void ScenePast::OnReset(const std::string& by, const sim::Frame& frame) {
  place_.step = 0;
  v1::JournalEntry entry;
  entry.mutable_reset()->set_reset_by(by);
  entry.mutable_reset()->set_state_hash(frame.state_hash);
  Emit(std::move(entry));
}

void ScenePast::OnRun(v1::RunState state, const v1::Rate& rate, const std::string& failure) {
  v1::JournalEntry entry;
  entry.mutable_run()->set_state(state);
  *entry.mutable_run()->mutable_rate() = rate;
  entry.mutable_run()->set_failure(failure);
  Emit(std::move(entry));
}

void ScenePast::OnBookmark(const v1::Bookmark& bookmark, bool is_removed) {
  v1::JournalEntry entry;
  *entry.mutable_bookmark()->mutable_bookmark() = bookmark;
  entry.mutable_bookmark()->set_is_removed(is_removed);
  Emit(std::move(entry));
}

void ScenePast::Emit(v1::JournalEntry entry) {
  entry.set_sequence(++place_.sequence);
  options_.events.Note(entry, place_.position, place_.step);
  if (!is_wanted()) return;
  if (absl::Status status = record::CheckEntrySize(entry.ByteSizeLong(), options_.max_entry_bytes); !status.ok()) {
    // An answer that is beyond all measure: a checkpoint has to tell what it did.
    if (options_.journal) options_.journal->Lose(status);
    for (const std::shared_ptr<EntrySink>& sink : sinks_) sink->OnEnd(status);
    sinks_.clear();
    return;
  }
  const auto bytes = std::make_shared<const std::string>(record::EncodeEntry(entry));
  bytes_since_state_ += bytes->size();
  if (options_.journal) options_.journal->Append(bytes, place_.sequence, place_.position, place_.step);
  std::erase_if(sinks_, [&](const std::shared_ptr<EntrySink>& sink) { return !sink->OnEntry(bytes, entry); });
}

void ScenePast::WhenDurable(record::SceneJournal::Durable durable) {
  if (!options_.journal) return durable(absl::OkStatus());
  options_.journal->WhenDurable(std::move(durable));
}

absl::Status ScenePast::Health() const {
  if (!options_.journal) return absl::OkStatus();
  const std::string trouble = options_.journal->progress().trouble;
  if (trouble.empty()) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("the scene's state cannot be kept, so nothing is changed now: ", trouble));
}

absl::Status ScenePast::CheckEdits(const v1::EditSceneRequest& request) const {
  return Annotate(record::CheckEntrySize(request.ByteSizeLong() + kEntryRest, options_.max_entry_bytes), "edits");
}

void ScenePast::SetOnProgress(std::function<void()> on_progress) {
  if (options_.journal) options_.journal->SetOnProgress(std::move(on_progress));
}

uint64_t ScenePast::begin_position() const {
  return is_kept() ? std::max(options_.begin_position, progress().begin_position) : options_.begin_position;
}

bool ScenePast::IsStateDue() const {
  if (!options_.journal) return false;
  const auto elapsed = std::chrono::steady_clock::now() - state_at_;
  if (options_.journal->needs_state()) return elapsed >= kStateRetry;
  if (options_.is_state_due) return true;
  if (options_.state_bytes > 0 && bytes_since_state_ >= options_.state_bytes) return true;
  const uint64_t steps = place_.position - state_position_;
  return steps > 0 && ((options_.state_interval.count() > 0 && elapsed >= options_.state_interval) ||
                       (options_.state_steps > 0 && steps >= options_.state_steps));
}

void ScenePast::CompleteState(v1::SceneState* scene) const {
  scene->set_scene_id(options_.head.scene_id());
  scene->set_journal_sequence(place_.sequence);
  scene->set_position(place_.position);
}

void ScenePast::TakeState(v1::SceneState scene, std::shared_ptr<const sim::WorldState> world) {
  CompleteState(&scene);
  options_.journal->AppendState(std::move(scene), std::move(world));
  SkipState();
}

void ScenePast::SkipState() {
  options_.is_state_due = false;
  state_at_ = std::chrono::steady_clock::now();
  state_position_ = place_.position;
  bytes_since_state_ = 0;
}

void ScenePast::End(const absl::Status& reason) {
  for (const std::shared_ptr<EntrySink>& sink : sinks_) sink->OnEnd(reason);
  sinks_.clear();
  std::unique_ptr<record::SceneJournal> journal;
  {
    const std::lock_guard lock(journal_mutex_);
    if (options_.journal) last_progress_ = options_.journal->progress();
    journal = std::move(options_.journal);
  }
  // Its end, without the lock, waits for the disk.
}

record::SceneJournal::Progress ScenePast::progress() const {
  const std::lock_guard lock(journal_mutex_);
  return options_.journal ? options_.journal->progress() : last_progress_;
}

}  // namespace palpate::server
