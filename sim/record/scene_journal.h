#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "palpate/v1/journal.pb.h"
#include "sim/record/disk.h"
#include "sim/record/journal_file.h"
#include "sim/record/state_file.h"
#include "sim/world/world_state.h"

namespace palpate::record {

struct JournalOptions {
  std::filesystem::path folder;                      ///< of the scene; exists
  std::chrono::duration<double> sync_interval{0.1};  ///< entries that nobody waits for are on disk after this time
  uint64_t max_bytes = uint64_t{1} << 30;            ///< of all files in the folder, and those that are held; see TrimFolder
  size_t max_entry_bytes = kMaxEntryBytes;           ///< of the head
  size_t max_waiting_bytes = size_t{64} << 20;       ///< of entries that a disk which fails has not taken
  uint64_t max_file_bytes = uint64_t{32} << 20;      ///< then a new journal file begins
  std::chrono::duration<double> retry_interval{1};   ///< between attempts at a disk that fails
  std::chrono::duration<double> max_wait{5};         ///< then whoever waits for a disk that fails is told so
  Disk* disk = nullptr;                              ///< null: SystemDisk()
  /// Folders that hold files of this past (StateFolder::HoldFolders); null: there are none. Asked on the journal's threads.
  std::function<std::vector<std::filesystem::path>()> holds = {};
};

/// Writes a scene's journal and checkpoints, on threads of its own: whoever appends only moves bytes into a queue. Thread-safe.
///
/// While the disk fails (it is full, say) entries wait in memory and the scene goes on; who waits for them to be durable is told of the
/// trouble after a while. If too many wait they are given up, and a state has to begin the journal anew: needs_state().
///
/// A checkpoint is on disk only after the entries before it, so that a process that ends at any moment leaves no gap in the past.
class SceneJournal {
 public:
  /// The bound on a folder holds if a checkpoint comes whenever entries have grown by this since the former: only then old files can go.
  static uint64_t GrowthUntilState(uint64_t max_bytes) { return max_bytes / 8; }

  /// Called once, on the writing thread, when everything up to an entry is on disk, or with the reason why it is not: it never will be, or
  /// the disk has failed for long. Entries then still wait, and are written when the disk takes them.
  using Durable = std::function<void(const absl::Status&)>;

  /// Begins a journal file behind entry `sequence` at once. Errors: of the disk; ResourceExhausted (the head is longer than an entry may
  /// be).
  static absl::StatusOr<std::unique_ptr<SceneJournal>> Open(JournalOptions options, v1::JournalHead head, uint64_t sequence,
                                                            uint64_t position, uint64_t step = 0);
  ~SceneJournal();  ///< Writes what is there, as far as the disk takes it.
  SceneJournal(const SceneJournal&) = delete;
  SceneJournal& operator=(const SceneJournal&) = delete;

  /// `entry`: as EncodeEntry makes it. Entries come in the order of their sequence.
  void Append(std::shared_ptr<const std::string> entry, uint64_t sequence, uint64_t position, uint64_t step, Durable durable = {});
  /// Calls when everything appended so far is on disk.
  void WhenDurable(Durable durable);
  /// Takes a checkpoint, which is encoded and written by another thread. Only one at a time: false if the former is not written yet.
  bool AppendState(v1::SceneState scene, std::shared_ptr<const sim::WorldState> world);

  struct Progress {
    uint64_t sequence = 0;  ///< everything up to this entry is on disk
    uint64_t position = 0;
    uint64_t step = 0;
    std::string trouble;          ///< why newer entries are not; empty: all is well
    std::string state_trouble;    ///< why the newest checkpoint could not be written; the journal does without it
    uint64_t bytes = 0;           ///< written so far
    uint64_t states = 0;          ///< checkpoints written so far
    uint64_t begin_position = 0;  ///< oldest place, if old files have gone since the journal was opened; else 0
  };
  Progress progress() const;
  /// Called after each change of progress(), on any thread; must return at once. Given once, before the first entry.
  void SetOnProgress(std::function<void()> on_progress);
  /// Something that was done cannot be an entry: as if the entry had been given up.
  void Lose(const absl::Status& why) { GiveUp(why); }
  /// Whether entries were given up, so that a state has to come next.
  bool needs_state() const;

 private:
  struct Item {
    std::shared_ptr<const std::string> bytes;  ///< null: only somebody who waits
    uint64_t sequence = 0, position = 0, step = 0;
    Durable durable;
    std::chrono::steady_clock::time_point since{};  ///< somebody has waited
  };
  struct StateJob {
    v1::SceneState scene;
    std::shared_ptr<const sim::WorldState> world;
    bool bridges_gap = false;  ///< entries before it were given up
  };
  using Clock = std::chrono::steady_clock;

  SceneJournal(JournalOptions options, v1::JournalHead head);
  void WriteLoop();
  void StateLoop();
  absl::Status OpenNextFile(uint64_t sequence, uint64_t position);
  bool has_work() const;
  absl::Status Write(std::vector<Item> items, const std::optional<Item>& new_file, bool may_wait);
  absl::Status SyncFile();
  void OnTrouble(const absl::Status& status);
  void GiveUp(const absl::Status& status);
  std::vector<Durable> TakeTired();
  absl::Status WriteState(const StateJob& job);
  void NoteProgress() const;

  const JournalOptions options_;
  const v1::JournalHead head_;
  Disk& disk_;

  // Of the writing thread.
  Descriptor file_;
  std::filesystem::path path_;
  uint64_t head_bytes_ = 0;    ///< that the file began with
  uint64_t file_bytes_ = 0;    ///< written
  uint64_t synced_bytes_ = 0;  ///< of these on disk
  Clock::time_point synced_at_;
  std::vector<Item> unsynced_;         ///< written, but perhaps not on disk
  uint64_t gaps_before_unsynced_ = 0;  ///< gaps_ when the first of them was taken from the queue

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::shared_ptr<const std::function<void()>> on_progress_;
  std::deque<Item> queue_;
  size_t queued_bytes_ = 0;
  std::optional<StateJob> state_job_;
  Progress progress_;
  bool needs_state_ = false;             ///< entries were given up
  uint64_t gaps_ = 0;                    ///< how often
  std::optional<Item> new_file_behind_;  ///< the entry behind which the journal begins anew, numbers only
  bool is_stopping_ = false;

  std::thread writer_;
  std::thread state_writer_;
};

/// The rule for what goes when a scene's folder holds more than `max_bytes`. Checkpoints go first, thinned out: always the one whose
/// neighbours are closest together, measured by their age, so that old ones become rare. The two newest stay. Then the oldest journal
/// files go; the past then begins at the first checkpoint behind them. What is needed to come back to now always stays. `begin_position`
/// (may be null) is set where the past does not begin with the creation: to its oldest place, even after an error.
///
/// `held`: folders that hold files of this past. What only they have counts. A file that they have too makes no room when it goes, so it
/// goes only before one that does.
absl::Status TrimFolder(const std::filesystem::path& folder, uint64_t max_bytes, uint64_t* begin_position = nullptr,
                        std::span<const std::filesystem::path> held = {});

/// Before a journal goes on behind entry `sequence` in a folder that another process has left: removes files that were written in part, and
/// gives files of entries and states behind it, which could not be read or reached, the ending ".aside", so that the new past does not run
/// into them and they can still be looked at. Returns their names. Errors: of the disk.
absl::StatusOr<std::vector<std::string>> SetAsideBehind(const std::filesystem::path& folder, uint64_t sequence);

}  // namespace palpate::record
