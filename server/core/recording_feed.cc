#include "server/core/recording_feed.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/record/journal_file.h"
#include "sim/record/recording.h"
#include "sim/record/recording_begin.h"
#include "sim/record/state_file.h"

namespace palpate::server {
namespace {

/// A reader that stalls cannot take the end of its stream either.
constexpr std::chrono::seconds kEndGrace{2};
constexpr uint64_t kNoEnd = std::numeric_limits<uint64_t>::max();

/// What the past of a scene gives, piece by piece.
class PastReader {
 public:
  PastReader(std::shared_ptr<const BranchPoint> point, HoldPast hold, PastSpan span)
      : point_(std::move(point)), hold_(std::move(hold)), span_(span), until_sequence_(point_->state.journal_sequence()) {}

  absl::StatusOr<std::optional<std::string>> Next() {
    if (!cursor_) return Begin();
    std::string out;
    v1::JournalEntry entry;
    while (out.size() < RecordingFeed::kMaxChunkBytes && cursor_->sequence() < until_sequence_ && position_ < span_.end.value_or(kNoEnd)) {
      PALPATE_ASSIGN_OR_RETURN(const bool has_entry, cursor_->Next(&entry));
      if (!has_entry) return absl::DataLossError(absl::StrCat("the journal ends before entry ", until_sequence_));
      if (entry.has_step()) ++position_;
      out += record::EncodeEntry(entry);
    }
    if (out.empty()) return std::nullopt;
    return out;
  }

 private:
  absl::StatusOr<std::optional<std::string>> Begin() {
    PALPATE_ASSIGN_OR_RETURN(held_, hold_());
    PALPATE_ASSIGN_OR_RETURN(recording_, record::Recording::OpenFolder(held_->path()));
    if (recording_->head().begin_time_us() != point_->head.begin_time_us()) {
      return absl::AbortedError(absl::StrCat("scene \"", point_->head.scene_id(), "\" was deleted and made anew meanwhile"));
    }
    const uint64_t place = span_.begin.value_or(recording_->begin_position());
    if (place < recording_->begin_position()) {
      // Since the last reset: a step before that cannot be asked for.
      const v1::SceneState& now = point_->state;
      return absl::InvalidArgumentError(absl::StrCat("from_step: ", now.step() - (now.position() - place),
                                                     " is not kept any more; the oldest step that is kept is ",
                                                     now.step() - (now.position() - recording_->begin_position())));
    }
    if (span_.end.value_or(place) < place) {
      return absl::InvalidArgumentError(
          absl::StrCat("until_step: it was done ", place - *span_.end, " steps before the oldest moment that is kept"));
    }
    const auto& states = recording_->states();
    auto state = std::upper_bound(states.begin(), states.end(), place, [](uint64_t p, const auto& ref) { return p < ref.position; });
    while (state != states.begin()) {
      const absl::StatusOr<record::SceneCheckpoint> checkpoint = recording_->LoadState(*--state);
      if (!checkpoint.ok()) continue;  // the one before it will do
      PALPATE_ASSIGN_OR_RETURN(const std::string entry, record::EncodeStateEntry(*checkpoint));
      return From(state->sequence, state->position, entry);
    }
    if (!recording_->has_begin()) return absl::DataLossError("no state of the past can be read");
    return From(0, 0, "");
  }

  absl::StatusOr<std::optional<std::string>> From(uint64_t sequence, uint64_t position, const std::string& state) {
    cursor_.emplace(recording_->EntriesAfter(sequence));
    position_ = position;
    PALPATE_ASSIGN_OR_RETURN(const std::string assets, record::EncodeAssets(point_->head, *point_->assets, sequence));
    return record::EncodeHead(point_->head, sequence, position) + assets + state;
  }

  const std::shared_ptr<const BranchPoint> point_;
  const HoldPast hold_;
  const PastSpan span_;
  const uint64_t until_sequence_;  ///< newest entry at the moment of the point
  uint64_t position_ = 0;          ///< behind what was read
  std::unique_ptr<record::TemporaryFolder> held_;
  std::shared_ptr<const record::Recording> recording_;
  std::optional<record::Recording::Cursor> cursor_;
};

}  // namespace

ChunkSource RecordingFrom(std::shared_ptr<const BranchPoint> point) {
  return [point = std::move(point), is_done = false]() mutable -> absl::StatusOr<std::optional<std::string>> {
    if (std::exchange(is_done, true)) return std::nullopt;
    const record::SceneCheckpoint checkpoint{point->state, sim::EncodeWorldState(*point->world)};
    PALPATE_ASSIGN_OR_RETURN(std::string bytes, record::EncodeMoment(point->head, *point->assets, checkpoint));
    return bytes;
  };
}

ChunkSource RecordingOfPast(std::shared_ptr<const BranchPoint> point, HoldPast hold, PastSpan span) {
  const auto reader = std::make_shared<PastReader>(std::move(point), std::move(hold), span);
  return [reader] { return reader->Next(); };
}

void RecordingFeed::Begin(ChunkSource source, bool is_whole) {
  {
    const std::lock_guard lock(mutex_);
    if (has_begun_) return;  // it has ended before
    source_ = std::move(source);
    has_begun_ = true;
    if (is_whole && !end_) end_ = absl::OkStatus();
  }
  Pump();
}

bool RecordingFeed::OnEntry(const std::shared_ptr<const std::string>& bytes, const v1::JournalEntry& entry) {
  bool goes_on = true;
  bool is_too_slow = false;
  {
    const std::lock_guard lock(mutex_);
    if (end_) return false;
    queue_.push_back(bytes);
    queued_bytes_ += bytes->size();
    is_too_slow = queued_bytes_ > kMaxQueuedBytes;
    if (until_step_ && entry.has_step() && entry.step().step() >= *until_step_) {
      end_ = absl::OkStatus();
      goes_on = false;
    }
  }
  if (goes_on && is_too_slow) {
    End(absl::ResourceExhaustedError(absl::StrCat("the reader is slower than the scene: ", kMaxQueuedBytes, " bytes wait")));
    goes_on = false;
  }
  Pump();
  return goes_on;
}

void RecordingFeed::End(const absl::Status& status) {
  {
    const std::lock_guard lock(mutex_);
    if (!end_) end_ = status;
    if (absl::IsCancelled(status)) is_reader_gone_ = true;
    if (!has_begun_ && !status.ok()) has_begun_ = true;  // nothing will come
  }
  pool_.PostAt(WorkerPool::Clock::now() + kEndGrace, [weak = weak_from_this()] {
    const std::shared_ptr<RecordingFeed> self = weak.lock();
    if (!self) return;
    const std::lock_guard lock(self->mutex_);
    if (!self->is_finished_ && self->end_ && !self->end_->ok()) self->operations_.cancel();
  });
  Pump();
}

void RecordingFeed::OnWriteDone(bool ok) {
  {
    const std::lock_guard lock(mutex_);
    if (!ok) is_reader_gone_ = true;
    if (!ok && !end_) end_ = absl::CancelledError("the reader is gone");
    is_busy_ = false;
  }
  Pump();
}

void RecordingFeed::Pump() {
  {
    const std::lock_guard lock(mutex_);
    if (is_busy_ || is_finished_ || !has_begun_) return;
    if (!source_ && rest_at_ >= rest_.size() && queue_.empty() && !end_) return;
    is_busy_ = true;
  }
  pool_.Post([self = shared_from_this()] { self->Work(); });
}

void RecordingFeed::Work() {
  const absl::StatusOr<std::optional<std::string>> piece = NextPiece();
  if (!piece.ok()) return Finish(piece.status());
  if (*piece) {
    chunk_.set_data(**piece);
    return operations_.start_write(&chunk_);
  }
  std::optional<absl::Status> end;
  {
    const std::lock_guard lock(mutex_);
    if (queue_.empty()) end = end_;
    is_busy_ = false;
  }
  if (end) return Finish(*end);
  Pump();
}

/// The next bytes to send; nothing: there are none now.
absl::StatusOr<std::optional<std::string>> RecordingFeed::NextPiece() {
  {
    const std::lock_guard lock(mutex_);
    // A recording that is whole, or has reached its last step, has ended in order by then.
    if (is_reader_gone_) return end_->ok() ? absl::CancelledError("the reader is gone") : *end_;
  }
  while (rest_at_ >= rest_.size()) {
    rest_.clear();
    rest_at_ = 0;
    if (source_) {
      PALPATE_ASSIGN_OR_RETURN(std::optional<std::string> piece, source_());
      if (piece) {
        rest_ = *std::move(piece);
      } else {
        source_ = nullptr;
      }
      continue;
    }
    const std::lock_guard lock(mutex_);
    while (!queue_.empty() && rest_.size() < kMaxChunkBytes) {
      rest_ += *queue_.front();
      queued_bytes_ -= queue_.front()->size();
      queue_.pop_front();
    }
    if (rest_.empty()) return std::nullopt;
  }
  std::string out = rest_.substr(rest_at_, kMaxChunkBytes);
  rest_at_ += out.size();
  return out;
}

void RecordingFeed::Finish(const absl::Status& status) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_finished_, true)) return;
    end_ = status;
  }
  source_ = nullptr;  // a scene that is paused has this as a sink until its next step: what the source holds goes now
  operations_.finish(status);
}

}  // namespace palpate::server
