// The past of a scene: what it keeps, and going back. The rest of Scene is in scene.cc.
#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gpu/base/status.h"
#include "server/core/log.h"
#include "server/core/scene.h"

namespace palpate::server {
namespace {

constexpr size_t kMaxBookmarkBytes = 64;

absl::Status NoPast(const std::string& id) {
  return absl::FailedPreconditionError(
      absl::StrCat("scene_id: scene \"", id, "\" has no past: the server keeps no state (--state-dir), and it is no replay"));
}

int64_t NowUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

absl::Status Scene::StepPlayer() {
  const uint64_t before = player_->position();
  const absl::StatusOr<record::Player::Place> place = player_->Step();
  FollowPlayer();
  if (!place.ok()) return place.status();
  if (place->at_end) state_ = v1::RUN_STATE_PAUSED;
  if (place->position == before) EndStepJobs(absl::OutOfRangeError("the recording is at its end"));
  return absl::OkStatus();
}

/// Takes over what the player did, even if it failed on the way: its world may be another one.
void Scene::FollowPlayer() {
  world_ = &player_->world();
  if (player_->TakeJump()) world_gives_volume_ = false;  // another world
  frame_ = world_->CurrentFrame();
  reset_by_ = player_->scene().reset_by();
  reset_count_ = player_->scene().reset_count();
  LogNotes();
  UpdateBodies();
  if (volume_wanted_.load(std::memory_order_relaxed) > 0) EnsureVolume();
}

void Scene::TakeState() {
  absl::StatusOr<std::shared_ptr<const sim::WorldState>> world = world_->Capture();
  if (world.ok()) {
    past_.TakeState(State(), *std::move(world));
  } else {
    if (!world_->has_failed()) Log(LogLevel::kError, "no state", {{"scene", id_}, {"error", world.status()}});
    past_.SkipState();
  }
}

/// Damage that the player has met since, each kind once.
void Scene::LogNotes() {
  const std::vector<std::string>& notes = player_->notes();
  for (; logged_notes_ < notes.size(); ++logged_notes_) {
    Log(LogLevel::kWarning, "recording damaged", {{"scene", id_}, {"found", notes[logged_notes_]}});
  }
}

void Scene::NoteKept() {
  will_note_kept_ = false;
  const record::SceneJournal::Progress progress = past_.progress();
  const bool is_failing = !progress.trouble.empty() || !progress.state_trouble.empty();
  metrics_->OnKept(past_.place().position - progress.position, is_failing, progress.bytes, progress.states);
  if (is_failing == is_failing_) return;
  is_failing_ = is_failing;
  Log(is_failing ? LogLevel::kError : LogLevel::kInfo, is_failing ? "state cannot be kept" : "state is kept again",
      {{"scene", id_}, {"error", progress.trouble.empty() ? progress.state_trouble : progress.trouble}});
}

v1::SceneState Scene::State() const {
  v1::SceneState out;
  out.set_run_state(state_);
  out.set_failure(failure_);
  *out.mutable_rate() = rate_;
  out.set_reset_by(reset_by_);
  out.set_reset_count(reset_count_);
  edit_log_.Export(&out);
  out.set_step(frame_->step);
  out.set_state_hash(frame_->state_hash);
  out.set_topology_version(frame_->topology_version);
  out.set_time_us(NowUs());
  return out;
}

void Scene::NoteRun() {
  if (!player_) past_.OnRun(state_, rate_, failure_);
}

void Scene::Seek(const v1::SeekSceneRequest& request, std::function<bool()> is_cancelled, Done<v1::SceneInfo> done) {
  if (!is_replay()) {
    return Answer<v1::SceneInfo>(
        std::move(done), absl::FailedPreconditionError(absl::StrCat("scene_id: scene \"", id_, "\" is no replay; see ReplayScene")));
  }
  Enqueue(
      [this, request, is_cancelled = std::move(is_cancelled), done] {
        uint64_t position = request.position();
        if (request.target_case() == v1::SeekSceneRequest::kBookmark) {
          const std::optional<uint64_t> found = player_->recording().events().FindBookmark(request.bookmark());
          if (!found) {
            return Answer<v1::SceneInfo>(done, absl::NotFoundError(absl::StrCat("bookmark: there is no \"", request.bookmark(), "\"")));
          }
          position = *found;
        }
        const record::Recording& recording = player_->recording();
        if (position < recording.begin_position() || position > recording.end_position()) {
          return Answer<v1::SceneInfo>(
              done, absl::InvalidArgumentError(absl::StrCat(
                        request.target_case() == v1::SeekSceneRequest::kBookmark ? "bookmark" : "position", ": ", position, " is outside [",
                        recording.begin_position(), ", ", recording.end_position(), "], the places that are kept")));
        }
        EndStepJobs(absl::AbortedError("the scene was taken to another moment"));
        const auto is_enough = [this, &is_cancelled] { return stopping_ || (is_cancelled && is_cancelled()); };
        const absl::StatusOr<record::Player::Place> place = player_->Seek(position, is_enough);
        FollowPlayer();
        if (!place.ok()) {
          if (!absl::IsInvalidArgument(place.status())) Fail(place.status());
          return Answer<v1::SceneInfo>(done, place.status());
        }
        if (state_ == v1::RUN_STATE_FAILED) state_ = v1::RUN_STATE_PAUSED;
        failure_.clear();
        Anchor();
        Publish();
        Answer<v1::SceneInfo>(done, Info());
      },
      [this, done](const absl::Status& reason) { Answer<v1::SceneInfo>(done, reason); }, CommandKind::kEdit);
}

v1::Timeline Scene::TimelineNow() const {
  v1::Timeline out;
  out.set_dt_s(dt_s_);
  out.set_is_replay(is_replay());
  if (player_) {
    const record::Recording& recording = player_->recording();
    out.set_begin(recording.begin_position());
    out.set_end(recording.end_position());
    out.set_position(player_->position());
    out.set_durable(recording.end_position());
    out.set_source(recording.head().scene_id());
    out.set_divergences(player_->divergence().count);
    if (player_->divergence().position) out.set_first_divergence(*player_->divergence().position);
    std::vector<std::string> damages = recording.damages();
    for (const std::string& note : player_->notes()) {
      if (std::find(damages.begin(), damages.end(), note) == damages.end()) damages.push_back(note);
    }
    if (damages.size() > record::Player::kMaxNotes) damages.resize(record::Player::kMaxNotes);
    // Where the server keeps an upload tells nobody anything.
    const std::string upload = upload_ ? absl::StrCat("\"", upload_->path().string(), "\"") : "";
    for (const std::string& damage : damages) {
      out.add_damages(upload.empty() ? damage : absl::StrReplaceAll(damage, {{upload, "the recording"}}));
    }
  } else {
    out.set_begin(past_.begin_position());
    out.set_end(past_.place().position);
    out.set_position(past_.place().position);
    out.set_durable(past_.progress().position);
  }
  const record::EventList& events = player_ ? player_->recording().events() : past_.events();
  const v1::Timeline::Event* reset = nullptr;  // steps count from it
  for (const v1::Timeline::Event& event : events.events()) {
    if (event.position() < out.begin() && event.kind() == "reset") reset = &event;
  }
  for (const v1::Timeline::Event& event : events.events()) {
    if (event.position() >= out.begin() || &event == reset) *out.add_events() = event;
  }
  return out;
}

void Scene::GetTimeline(Done<v1::Timeline> done) {
  if (!has_past()) return Answer<v1::Timeline>(std::move(done), NoPast(id_));
  Enqueue([this, done] { Answer<v1::Timeline>(done, TimelineNow()); },
          [this, done](const absl::Status& reason) { Answer<v1::Timeline>(done, reason); });
}

void Scene::SetBookmark(const v1::SetBookmarkRequest& request, Done<v1::Timeline> done) {
  const std::string& name = request.name();
  if (!has_past()) return Answer<v1::Timeline>(std::move(done), NoPast(id_));
  if (is_replay()) {
    return Answer<v1::Timeline>(std::move(done),
                                absl::FailedPreconditionError("scene_id: bookmarks are set in the scene that is replayed"));
  }
  if (name.empty() || name.size() > kMaxBookmarkBytes || std::any_of(name.begin(), name.end(), absl::ascii_iscntrl)) {
    return Answer<v1::Timeline>(std::move(done), absl::InvalidArgumentError(absl::StrCat("name: must have 1 to ", kMaxBookmarkBytes,
                                                                                         " bytes without control characters")));
  }
  Enqueue(
      [this, request, done] {
        const uint64_t now = past_.place().position;
        if (request.has_position() && (request.position() < past_.begin_position() || request.position() > now)) {
          return Answer<v1::Timeline>(done, absl::InvalidArgumentError(absl::StrCat("position: ", request.position(), " is outside [",
                                                                                    past_.begin_position(), ", ", now, "]")));
        }
        if (request.remove() && !past_.events().FindBookmark(request.name())) {
          return Answer<v1::Timeline>(done, absl::NotFoundError(absl::StrCat("name: there is no bookmark \"", request.name(), "\"")));
        }
        v1::Bookmark bookmark;
        bookmark.set_name(request.name());
        bookmark.set_position(request.has_position() ? request.position() : now);
        bookmark.set_step(request.has_position() ? past_.events().StepAt(request.position()) : frame_->step);
        bookmark.set_time_us(NowUs());
        past_.OnBookmark(bookmark, request.remove());
        Answer<v1::Timeline>(done, TimelineNow());
      },
      [this, done](const absl::Status& reason) { Answer<v1::Timeline>(done, reason); });
}

/// As an edit: so a request that is under way is not cut in two.
void Scene::Fork(std::shared_ptr<EntrySink> with_sink, Done<BranchPoint> done) {
  Enqueue(
      [this, with_sink = std::move(with_sink), done] {
        absl::StatusOr<std::shared_ptr<const sim::WorldState>> world = world_->Capture();
        if (!world.ok()) return Answer<BranchPoint>(done, world.status());
        BranchPoint point;
        point.world = *std::move(world);
        point.state = State();
        if (player_) {
          v1::SceneState kept = player_->scene();
          player_->answers().Export(&kept);
          kept.set_run_state(v1::RUN_STATE_PAUSED);
          point.state = std::move(kept);
        } else {
          past_.CompleteState(&point.state);
        }
        point.head = past_.head();
        point.assets = past_.assets();
        point.description = world_->description();
        if (with_sink) past_.AddSink(with_sink);
        Answer<BranchPoint>(done, std::move(point));
      },
      [this, done](const absl::Status& reason) { Answer<BranchPoint>(done, reason); }, CommandKind::kEdit);
}

void Scene::WhenDurable(std::function<void(const absl::Status&)> done) {
  Enqueue([this, done] { past_.WhenDurable(done); }, [done](const absl::Status& reason) { done(reason); });
}

}  // namespace palpate::server
