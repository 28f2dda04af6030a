#include "sim/record/scene_journal.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/record/file_names.h"
#include "sim/record/journal_file.h"

namespace palpate::record {

absl::StatusOr<std::unique_ptr<SceneJournal>> SceneJournal::Open(JournalOptions options, v1::JournalHead head, uint64_t sequence,
                                                                 uint64_t position, uint64_t step) {
  std::unique_ptr<SceneJournal> journal(new SceneJournal(std::move(options), std::move(head)));
  PALPATE_RETURN_IF_ERROR(journal->OpenNextFile(sequence, position));
  journal->progress_.sequence = sequence;
  journal->progress_.position = position;
  journal->progress_.step = step;
  journal->writer_ = std::thread([raw = journal.get()] { raw->WriteLoop(); });
  journal->state_writer_ = std::thread([raw = journal.get()] { raw->StateLoop(); });
  return journal;
}

SceneJournal::SceneJournal(JournalOptions options, v1::JournalHead head)
    : options_(std::move(options)), head_(std::move(head)), disk_(options_.disk != nullptr ? *options_.disk : SystemDisk()) {}

SceneJournal::~SceneJournal() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  wake_.notify_all();
  if (state_writer_.joinable()) state_writer_.join();
  if (writer_.joinable()) writer_.join();
}

void SceneJournal::Append(std::shared_ptr<const std::string> entry, uint64_t sequence, uint64_t position, uint64_t step, Durable durable) {
  absl::Status refused;
  bool is_too_much = false;
  {
    const std::lock_guard lock(mutex_);
    if (needs_state_) {
      refused = absl::ResourceExhaustedError(absl::StrCat("the journal has a gap: ", progress_.trouble));
    } else {
      is_too_much = queued_bytes_ > options_.max_waiting_bytes;
      queued_bytes_ += entry->size();
      queue_.push_back({std::move(entry), sequence, position, step, std::move(durable), Clock::now()});
    }
  }
  // A disk that neither takes entries nor fails.
  if (is_too_much) return GiveUp(absl::ResourceExhaustedError(absl::StrCat("\"", options_.folder.string(), "\": the disk is too slow")));
  if (!refused.ok()) {
    if (durable) durable(refused);
    return;
  }
  wake_.notify_all();
}

void SceneJournal::WhenDurable(Durable durable) {
  absl::Status refused;
  {
    const std::lock_guard lock(mutex_);
    if (needs_state_) {
      refused = absl::ResourceExhaustedError(absl::StrCat("the journal has a gap: ", progress_.trouble));
    } else {
      queue_.push_back({nullptr, 0, 0, 0, std::move(durable), Clock::now()});
    }
  }
  if (!refused.ok()) return durable(refused);
  wake_.notify_all();
}

bool SceneJournal::AppendState(v1::SceneState scene, std::shared_ptr<const sim::WorldState> world) {
  {
    const std::lock_guard lock(mutex_);
    if (state_job_ || is_stopping_) return false;
    const bool bridges_gap = needs_state_;
    if (needs_state_) {
      // What comes from now on goes into a new file behind the state.
      needs_state_ = false;
      new_file_behind_ = Item{nullptr, scene.journal_sequence(), scene.position(), scene.step(), {}, {}};
    }
    state_job_ = {std::move(scene), std::move(world), bridges_gap};
  }
  wake_.notify_all();
  return true;
}

SceneJournal::Progress SceneJournal::progress() const {
  const std::lock_guard lock(mutex_);
  return progress_;
}

bool SceneJournal::needs_state() const {
  const std::lock_guard lock(mutex_);
  return needs_state_;
}

absl::Status SceneJournal::OpenNextFile(uint64_t sequence, uint64_t position) {
  const std::filesystem::path path = options_.folder / JournalName(sequence + 1);
  v1::JournalEntry entry;
  entry.set_sequence(sequence);
  v1::JournalHead& head = *entry.mutable_head();
  head = head_;
  head.set_begin_position(position);
  PALPATE_RETURN_IF_ERROR(Annotate(CheckEntrySize(entry.ByteSizeLong(), options_.max_entry_bytes), "the scene's spec"));
  const std::string header = EncodeFileHeader();
  const std::string bytes = EncodeEntry(entry);
  // Written whole, so that a file without a head is never seen.
  const std::array<std::string_view, 2> parts = {header, bytes};
  PALPATE_RETURN_IF_ERROR(WriteWholeFile(disk_, path, parts));
  absl::StatusOr<Descriptor> file = OpenForAppending(path);
  if (!file.ok()) {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);  // the one before it goes on
    return file.status();
  }
  file_ = *std::move(file);
  path_ = path;
  head_bytes_ = file_bytes_ = synced_bytes_ = header.size() + bytes.size();
  synced_at_ = Clock::now();
  return absl::OkStatus();
}

/// Entries behind a gap wait for the state that bridges it: without it they lead nowhere, so that nobody may be told that they are durable.
bool SceneJournal::has_work() const { return (is_stopping_ || !queue_.empty()) && !(state_job_ && state_job_->bridges_gap); }

void SceneJournal::WriteLoop() {
  pthread_setname_np(pthread_self(), "journal");
  std::unique_lock lock(mutex_);
  while (true) {
    if (unsynced_.empty()) {
      wake_.wait(lock, [this] { return has_work(); });
    } else {
      wake_.wait_until(lock, synced_at_ + std::chrono::duration_cast<Clock::duration>(options_.sync_interval),
                       [this] { return has_work(); });
    }
    if (is_stopping_ && queue_.empty() && unsynced_.empty()) return;
    const bool is_last = is_stopping_;
    std::vector<Item> items;
    std::optional<Item> new_file;
    if (has_work()) {
      items.assign(std::make_move_iterator(queue_.begin()), std::make_move_iterator(queue_.end()));
      queue_.clear();
      queued_bytes_ = 0;
      new_file = std::exchange(new_file_behind_, std::nullopt);
    }
    if (unsynced_.empty() || new_file) gaps_before_unsynced_ = gaps_;
    lock.unlock();
    const absl::Status status = Write(std::move(items), new_file, /*may_wait=*/!is_last);
    if (!status.ok()) OnTrouble(status);
    lock.lock();
    if (status.ok()) continue;
    if (is_last) return;
    wake_.wait_for(lock, options_.retry_interval, [this] { return is_stopping_; });
  }
}

/// Writes entries, and brings them to disk if somebody waits for it or it is time.
/// `new_file`: the journal begins anew behind it first.
absl::Status SceneJournal::Write(std::vector<Item> items, const std::optional<Item>& new_file, bool may_wait) {
  if (new_file) unsynced_.clear();  // before the gap, so nobody waits
  const size_t first = unsynced_.size();
  bool is_awaited = !may_wait;
  for (Item& item : items) {
    is_awaited |= static_cast<bool>(item.durable);
    unsynced_.push_back(std::move(item));
  }
  if (new_file) {
    if (absl::Status status = OpenNextFile(new_file->sequence, new_file->position); !status.ok()) {
      const std::lock_guard lock(mutex_);
      if (!new_file_behind_) new_file_behind_ = new_file;  // the old file takes nothing more
      return status;
    }
  }
  for (size_t i = first; i < unsynced_.size(); ++i) {
    const Item& item = unsynced_[i];
    if (!item.bytes) continue;
    const std::array<std::string_view, 1> parts = {*item.bytes};
    PALPATE_RETURN_IF_ERROR(WriteAll(disk_, file_, parts, path_));
    file_bytes_ += item.bytes->size();
  }
  if (is_awaited || Clock::now() - synced_at_ >= options_.sync_interval) PALPATE_RETURN_IF_ERROR(SyncFile());
  return absl::OkStatus();
}

absl::Status SceneJournal::SyncFile() {
  if (file_bytes_ > synced_bytes_ && disk_.Sync(file_.get()) != 0) return FileError(path_, "cannot be written", errno);
  std::vector<Item> done = std::exchange(unsynced_, {});
  const auto newest = std::find_if(done.rbegin(), done.rend(), [](const Item& item) { return item.bytes != nullptr; });
  {
    const std::lock_guard lock(mutex_);
    progress_.bytes += file_bytes_ - synced_bytes_;
    if (!needs_state_) progress_.trouble.clear();
    if (newest != done.rend() && newest->sequence > progress_.sequence) {
      progress_.sequence = newest->sequence;
      progress_.position = newest->position;
      progress_.step = newest->step;
    }
  }
  wake_.notify_all();  // a state may wait for them
  NoteProgress();
  synced_bytes_ = file_bytes_;
  synced_at_ = Clock::now();
  for (Item& item : done) {
    if (item.durable) item.durable(absl::OkStatus());
  }
  // A head may be long (it has the spec with its inline meshes): files are not made of heads.
  const bool is_full = file_bytes_ - head_bytes_ > std::max(options_.max_file_bytes, head_bytes_);
  // Without room for the next one this file just gets longer.
  if (is_full && newest != done.rend()) OpenNextFile(newest->sequence, newest->position).IgnoreError();
  return absl::OkStatus();
}

/// What may not be on disk comes again, behind what surely is.
void SceneJournal::OnTrouble(const absl::Status& status) {
  const bool is_cut_back = ftruncate(file_.get(), static_cast<off_t>(synced_bytes_)) == 0;
  file_bytes_ = synced_bytes_;
  bool is_too_much = false;
  bool is_behind = false;
  std::vector<Durable> tired;
  {
    const std::lock_guard lock(mutex_);
    // Given up with all the others, while these were on their way to the disk.
    is_behind = gaps_ != gaps_before_unsynced_;
    // Behind an entry in part nothing could be read.
    if (!is_cut_back && !new_file_behind_) new_file_behind_ = Item{nullptr, progress_.sequence, progress_.position, progress_.step, {}, {}};
    progress_.trouble = std::string(status.message());
    for (const Item& item : unsynced_) queued_bytes_ += item.bytes && !is_behind ? item.bytes->size() : 0;
    for (Item& item : unsynced_) {
      if (is_behind && item.durable) tired.push_back(std::move(item.durable));
    }
    if (!is_behind) queue_.insert(queue_.begin(), std::make_move_iterator(unsynced_.begin()), std::make_move_iterator(unsynced_.end()));
    is_too_much = queued_bytes_ > options_.max_waiting_bytes || is_stopping_;
    if (!is_too_much) {
      std::vector<Durable> others = TakeTired();
      tired.insert(tired.end(), std::make_move_iterator(others.begin()), std::make_move_iterator(others.end()));
    }
  }
  unsynced_.clear();
  if (is_too_much) {
    GiveUp(status);
  } else {
    NoteProgress();
  }
  for (Durable& durable : tired) durable(status);
}

/// Those who have waited for long. Their entries stay.
std::vector<SceneJournal::Durable> SceneJournal::TakeTired() {
  const Clock::time_point since = Clock::now() - std::chrono::duration_cast<Clock::duration>(options_.max_wait);
  std::vector<Durable> tired;
  for (Item& item : queue_) {
    if (item.durable && item.since <= since) tired.push_back(std::exchange(item.durable, nullptr));
  }
  std::erase_if(queue_, [](const Item& item) { return !item.bytes && !item.durable; });
  return tired;
}

/// Nothing that waits will ever be on disk.
void SceneJournal::GiveUp(const absl::Status& status) {
  std::deque<Item> lost;
  {
    const std::lock_guard lock(mutex_);
    lost = std::exchange(queue_, {});
    queued_bytes_ = 0;
    needs_state_ = true;
    ++gaps_;
    progress_.trouble = std::string(status.message());
  }
  wake_.notify_all();  // a state may wait for them
  NoteProgress();
  for (Item& item : lost) {
    if (item.durable) item.durable(status);
  }
}

void SceneJournal::StateLoop() {
  pthread_setname_np(pthread_self(), "states");
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return is_stopping_ || state_job_.has_value(); });
    if (!state_job_) return;
    const StateJob job = *state_job_;  // stays, so that no other comes meanwhile
    if (!job.bridges_gap) {
      wake_.wait(lock, [&] { return needs_state_ || progress_.sequence >= job.scene.journal_sequence(); });
      if (needs_state_) {  // entries before it were given up: it would stand behind a gap that nothing begins anew
        state_job_.reset();
        continue;
      }
    }
    lock.unlock();
    const absl::Status status = WriteState(job);
    lock.lock();
    state_job_.reset();
    if (status.ok()) ++progress_.states;
    progress_.state_trouble = std::string(status.message());
    if (job.bridges_gap && status.ok()) {
      progress_.sequence = job.scene.journal_sequence();
      progress_.position = job.scene.position();
      progress_.step = job.scene.step();
      progress_.trouble.clear();
    }
    lock.unlock();
    // What comes behind a gap leads nowhere without its state.
    if (job.bridges_gap && !status.ok()) GiveUp(status);
    NoteProgress();
    wake_.notify_all();
    lock.lock();
  }
}

absl::Status SceneJournal::WriteState(const StateJob& job) {
  SceneCheckpoint checkpoint;
  checkpoint.scene = job.scene;
  checkpoint.world = sim::EncodeWorldState(*job.world);
  const std::filesystem::path path = options_.folder / StateName(job.scene.journal_sequence(), job.scene.position());
  PALPATE_RETURN_IF_ERROR(WriteStateFile(disk_, path, checkpoint));
  // So that what comes until the next checkpoint, and that one, have room below the bound.
  const uint64_t room = GrowthUntilState(options_.max_bytes) + checkpoint.world.size();
  uint64_t begin_position = 0;
  const std::vector<std::filesystem::path> held = options_.holds ? options_.holds() : std::vector<std::filesystem::path>();
  absl::Status status = TrimFolder(options_.folder, options_.max_bytes - std::min(room, options_.max_bytes), &begin_position, held);
  const std::lock_guard lock(mutex_);
  progress_.begin_position = std::max(progress_.begin_position, begin_position);
  return status;
}

void SceneJournal::SetOnProgress(std::function<void()> on_progress) {
  const std::lock_guard lock(mutex_);
  on_progress_ = std::make_shared<const std::function<void()>>(std::move(on_progress));
}

/// Without the lock.
void SceneJournal::NoteProgress() const {
  std::shared_ptr<const std::function<void()>> on_progress;
  {
    const std::lock_guard lock(mutex_);
    on_progress = on_progress_;
  }
  if (on_progress) (*on_progress)();
}

}  // namespace palpate::record
