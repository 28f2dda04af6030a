#include "sim/record/player.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/record/journal_entries.h"
#include "sim/scene/marker_spec.h"

namespace palpate::record {

Player::Player(std::shared_ptr<const Recording> recording, std::shared_ptr<gpu::Context> context, sim::SceneDescription description)
    : recording_(std::move(recording)), context_(std::move(context)), description_(std::move(description)) {}

absl::StatusOr<std::unique_ptr<Player>> Player::Create(std::shared_ptr<const Recording> recording, std::shared_ptr<gpu::Context> context,
                                                       sim::SceneDescription description, uint64_t place) {
  std::unique_ptr<Player> player(new Player(std::move(recording), std::move(context), std::move(description)));
  PALPATE_RETURN_IF_ERROR(player->Seek(place).status());
  return player;
}

absl::StatusOr<std::unique_ptr<Player>> Player::CreateAtEnd(std::shared_ptr<const Recording> recording,
                                                            std::shared_ptr<gpu::Context> context, sim::SceneDescription description) {
  std::unique_ptr<Player> player(new Player(std::move(recording), std::move(context), std::move(description)));
  PALPATE_RETURN_IF_ERROR(player->SeekEnd());
  return player;
}

absl::StatusOr<Player::Place> Player::Seek(uint64_t position, const std::function<bool()>& is_enough) {
  if (position < recording_->begin_position() || position > recording_->end_position()) {
    return absl::InvalidArgumentError(
        absl::StrCat("position: ", position, " is outside [", recording_->begin_position(), ", ", recording_->end_position(), "]"));
  }
  PALPATE_RETURN_IF_ERROR(StartFrom(position));
  while (true) {
    PALPATE_ASSIGN_OR_RETURN(const bool has_next, ReadNext());
    if (!has_next) break;
    if (next_->has_step() && (this->position() >= position || (is_enough && is_enough()))) break;
    PALPATE_RETURN_IF_ERROR(PerformNext());
    Remember();
  }
  return Place{this->position(), is_at_end_};
}

absl::StatusOr<Player::Place> Player::Step() {
  if (!world_) return absl::FailedPreconditionError("the player has no world");
  PALPATE_ASSIGN_OR_RETURN(bool has_next, ReadNext());
  bool has_stepped = false;
  while (has_next && !(has_stepped && next_->has_step())) {
    has_stepped |= next_->has_step();
    PALPATE_RETURN_IF_ERROR(PerformNext());
    PALPATE_ASSIGN_OR_RETURN(has_next, ReadNext());
  }
  Remember();
  return Place{position(), is_at_end_};
}

absl::Status Player::SeekEnd() {
  PALPATE_RETURN_IF_ERROR(StartFrom(std::numeric_limits<uint64_t>::max()));
  while (true) {
    PALPATE_ASSIGN_OR_RETURN(const bool has_next, ReadNext());
    if (!has_next) break;
    PALPATE_RETURN_IF_ERROR(PerformNext());
  }
  CloseOpenEdit();
  return absl::OkStatus();
}

/// The world at the nearest moment before a place that it can be had at, which may be where it is.
absl::Status Player::StartFrom(uint64_t position) {
  auto cached = cache_.upper_bound(position);
  const bool has_cached = cached != cache_.begin();
  if (has_cached) --cached;
  const auto at_hand = [&]() -> std::optional<uint64_t> {
    std::optional<uint64_t> out;
    if (world_ && !is_astray_ && this->position() <= position) out = this->position();
    if (has_cached) out = std::max(out.value_or(0), cached->first);
    return out;
  };
  const std::vector<StateRef>& states = recording_->states();
  auto state = std::upper_bound(states.begin(), states.end(), position, [](uint64_t p, const StateRef& ref) { return p < ref.position; });
  while (state != states.begin() && (!at_hand() || *at_hand() < std::prev(state)->position)) {
    --state;
    const absl::Status status = StartFromState(*state, OldWorld::kGivenUp);
    if (status.ok()) return status;
    Note(status);
  }
  if (world_ && !is_astray_ && at_hand() == this->position()) return absl::OkStatus();
  if (has_cached) return Load(cached->second.scene, *cached->second.world, OldWorld::kGivenUp);
  return StartFromBegin();
}

absl::Status Player::StartFromState(const StateRef& state, OldWorld old_world) {
  PALPATE_ASSIGN_OR_RETURN(const SceneCheckpoint checkpoint, recording_->LoadState(state));
  PALPATE_ASSIGN_OR_RETURN(const std::shared_ptr<const sim::WorldState> world, sim::DecodeWorldState(checkpoint.world));
  return Annotate(Load(checkpoint.scene, *world, old_world), absl::StrCat("\"", state.file.string(), "\""));
}

absl::Status Player::Load(const v1::SceneState& scene, const sim::WorldState& state, OldWorld old_world) {
  sim::World* old = nullptr;
  // One that is astray may have been given up before.
  if (old_world == OldWorld::kGivenUp && !std::exchange(is_astray_, true)) old = world_.get();
  bool is_there = false;
  if (old != nullptr) {
    PALPATE_ASSIGN_OR_RETURN(is_there, old->GoTo(state));
  }
  if (!is_there) {
    PALPATE_ASSIGN_OR_RETURN(world_, sim::World::Restore(context_, description_, state, old));
  }
  scene_ = scene;
  answers_.Import(scene);
  scene_.clear_answers();
  cursor_.emplace(recording_->EntriesAfter(scene_.journal_sequence()));
  BeginAnew();
  return absl::OkStatus();
}

/// With another world.
void Player::BeginAnew() {
  next_.reset();
  is_at_end_ = false;
  is_astray_ = false;
  open_ = OpenRequest();
  has_jumped_ = true;
}

absl::Status Player::StartFromBegin() {
  if (!recording_->has_begin()) {
    return absl::DataLossError(absl::StrCat("no state of the recording can be read, and it has no begin", notes_.empty() ? "" : ": ",
                                            notes_.empty() ? "" : notes_.back()));
  }
  PALPATE_ASSIGN_OR_RETURN(world_, sim::World::Create(context_, description_));
  const v1::CreateSceneRequest& request = recording_->head().request();
  scene_.Clear();
  scene_.set_scene_id(recording_->head().scene_id());
  *scene_.mutable_rate() = request.rate();
  scene_.set_run_state(request.play() ? v1::RUN_STATE_PLAYING : v1::RUN_STATE_PAUSED);
  answers_ = EditLog();
  cursor_.emplace(recording_->EntriesAfter(0));
  BeginAnew();
  return absl::OkStatus();
}

/// Whether there is a next entry. Where input is missing or damaged it goes on at the next state behind it.
absl::StatusOr<bool> Player::ReadNext() {
  while (!next_ && !is_at_end_) {
    v1::JournalEntry entry;
    const absl::StatusOr<bool> has_entry = cursor_->Next(&entry);
    if (has_entry.ok() && *has_entry) {
      next_ = std::move(entry);
    } else {
      if (!has_entry.ok()) Note(has_entry.status());
      is_at_end_ = !StartFromNextState(cursor_->sequence());
    }
  }
  return next_.has_value();
}

/// From the first state behind an entry that can be read. False: there is none.
bool Player::StartFromNextState(uint64_t sequence) {
  for (const StateRef& state : recording_->states()) {
    if (state.sequence <= sequence) continue;
    const absl::Status status = StartFromState(state, OldWorld::kKept);
    if (status.ok()) return true;
    Note(status);
  }
  return false;
}

/// Who goes over the same damage again and again is told once.
void Player::Note(const absl::Status& damage) {
  const std::string message(damage.message());
  if (notes_.size() >= kMaxNotes || std::find(notes_.begin(), notes_.end(), message) != notes_.end()) return;
  notes_.push_back(notes_.size() + 1 < kMaxNotes ? message : "there is more damage, which is not listed");
}

absl::Status Player::PerformNext() {
  const v1::JournalEntry entry = *std::exchange(next_, std::nullopt);
  absl::Status status;
  switch (entry.entry_case()) {
    case v1::JournalEntry::kStep:
      status = PerformStep(entry.step());
      break;
    case v1::JournalEntry::kEdit:
      status = PerformEdit(entry.edit());
      break;
    case v1::JournalEntry::kReset:
      status = PerformReset(entry.reset());
      break;
    case v1::JournalEntry::kRun:
      scene_.set_run_state(entry.run().state());
      *scene_.mutable_rate() = entry.run().rate();
      scene_.set_failure(entry.run().failure());
      break;
    default:
      break;
  }
  if (!status.ok()) {
    is_astray_ = true;
    return Annotate(status, absl::StrCat("entry ", entry.sequence(), " of the recording"));
  }
  scene_.set_journal_sequence(entry.sequence());
  const sim::Frame& frame = *world_->CurrentFrame();
  scene_.set_step(frame.step);
  scene_.set_state_hash(frame.state_hash);
  scene_.set_topology_version(frame.topology_version);
  return absl::OkStatus();
}

absl::Status Player::PerformStep(const v1::JournalStep& step) {
  PALPATE_ASSIGN_OR_RETURN(ToolCommands commands, DecodeCommands(step.commands(), description_.tools.size()));
  ToolCommands late;
  if (step.has_late_commands()) {
    PALPATE_ASSIGN_OR_RETURN(late, DecodeCommands(step.late_commands(), description_.tools.size()));
  }
  std::vector<const sim::ToolCommand*> pointers(commands.size(), nullptr);
  const auto point = [&] {
    for (size_t t = 0; t < commands.size(); ++t) pointers[t] = commands[t] ? &*commands[t] : nullptr;
  };
  point();
  std::function<void()> before_tools;
  if (step.has_late_commands()) {
    before_tools = [&] {
      commands = late;
      point();
    };
  }
  PALPATE_RETURN_IF_ERROR(world_->Step(pointers, before_tools).status());
  scene_.set_position(scene_.position() + 1);
  scene_.set_time_us(step.time_us());
  Compare(step.state_hash());
  return absl::OkStatus();
}

absl::Status Player::PerformEdit(const v1::JournalEdit& edit) {
  if (edit.has_request()) {
    CloseOpenEdit();
    open_ = OpenRequest();
    open_.request = edit.request();
    PALPATE_RETURN_IF_ERROR(scene::ValidateEditRequest(*open_.request));
    PALPATE_ASSIGN_OR_RETURN(open_.edits, scene::BuildEdits(*open_.request, EditTargetsOf(*world_)));
  }
  if (!open_.request || edit.first() > open_.edits.size() || edit.count() > open_.edits.size() - edit.first()) {
    return absl::DataLossError("edits without their request");
  }
  if (edit.count() > 0) {
    PALPATE_ASSIGN_OR_RETURN(std::vector<sim::EditOutcome> outcomes,
                             world_->Apply(std::span(open_.edits).subspan(edit.first(), edit.count())));
    std::move(outcomes.begin(), outcomes.end(), std::back_inserter(open_.outcomes));
    Compare(edit.state_hash());
  }
  if (edit.is_over()) {
    if (edit.has_response()) answers_.Remember(*open_.request, edit.response());
    open_ = OpenRequest();
  }
  return absl::OkStatus();
}

absl::Status Player::PerformReset(const v1::JournalReset& reset) {
  CloseOpenEdit();
  PALPATE_RETURN_IF_ERROR(world_->Reset().status());
  scene_.set_reset_by(reset.reset_by());
  scene_.set_reset_count(scene_.reset_count() + 1);
  if (scene_.run_state() == v1::RUN_STATE_FAILED) scene_.set_run_state(v1::RUN_STATE_PAUSED);
  scene_.clear_failure();
  Compare(reset.state_hash());
  return absl::OkStatus();
}

void Player::CloseOpenEdit() {
  if (!open_.request) return;
  v1::EditSceneResponse response;
  response.set_topology_version(scene_.topology_version());
  response.set_step(scene_.step());
  response.set_left_out_count(static_cast<uint32_t>(open_.edits.size() - open_.outcomes.size()));
  std::vector<std::string> bodies;
  for (const auto& body : world_->CurrentFrame()->topology->bodies) bodies.push_back(body->name);
  open_.edits.resize(open_.outcomes.size());
  scene::EncodeOutcomes(open_.edits, open_.outcomes, bodies, scene::EncodeMarkerInfos(description_), response);
  if (!open_.outcomes.empty()) answers_.Remember(*open_.request, response);
  open_ = OpenRequest();
}

void Player::Compare(uint64_t expected) {
  if (world_->CurrentFrame()->state_hash == expected) return;
  if (divergence_.count++ == 0) divergence_.position = scene_.position();
}

void Player::Remember() {
  if (open_.request || world_->has_failed()) return;
  const uint64_t position = scene_.position();
  const auto near = cache_.upper_bound(position);
  if (near != cache_.begin() && position - std::prev(near)->first < kCacheSteps) return;
  absl::StatusOr<std::shared_ptr<const sim::WorldState>> state = world_->Capture();
  if (!state.ok()) return;
  CachedState cached{scene_, *std::move(state), 0};
  answers_.Export(&cached.scene);
  cached.bytes = cached.world->scene.size() + cached.world->solver.size() + cached.scene.ByteSizeLong();
  cached_bytes_ += cached.bytes;
  cache_.insert_or_assign(position, std::move(cached));
  while (cached_bytes_ > kMaxCachedBytes && cache_.size() > 1) {
    // Every second one goes, so that what is left is spread over all of the recording.
    bool goes = false;
    std::erase_if(cache_, [&](const auto& entry) {
      goes = !goes;
      if (goes) return false;
      cached_bytes_ -= entry.second.bytes;
      return true;
    });
  }
}

}  // namespace palpate::record
