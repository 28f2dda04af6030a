#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "palpate/v1/journal.pb.h"
#include "palpate/v1/record.pb.h"
#include "sim/record/asset_store.h"
#include "sim/record/journal_file.h"
#include "sim/record/state_file.h"

namespace palpate::record {

/// What happened on a time line, for people; the newest ones only. Not thread-safe.
class EventList {
 public:
  static constexpr size_t kMaxEvents = 4096;

  /// An entry at a place of the time line, if it is one that people look for.
  void Note(const v1::JournalEntry& entry, uint64_t position, uint64_t step);
  void Add(v1::Timeline::Event event);
  const std::deque<v1::Timeline::Event>& events() const { return events_; }
  /// Steps since the last reset before a place (at it, the scene is reset already); as far as the events that are kept tell.
  uint64_t StepAt(uint64_t position) const;
  /// Place of a bookmark, the newest of that name.
  std::optional<uint64_t> FindBookmark(const std::string& name) const;

 private:
  std::deque<v1::Timeline::Event> events_;
};

/// Where a checkpoint lies.
struct StateRef {
  uint64_t sequence = 0;  ///< of the last entry that is in it
  uint64_t position = 0;  ///< on the time line
  std::filesystem::path file;
  std::optional<uint64_t> entry_offset;  ///< of the entry that holds it; nothing: it is a file of its own
};

/// The past of one scene, as it lies on disk: a recording's file, or a folder of state with its journals and checkpoints. What is damaged
/// is left out and named in damages(); what can still be read is offered. Immutable; any thread.
///
/// A place on the time line is the number of steps since the scene was created, resets or not.
class Recording {
 public:
  /// Reads all entries once. Errors: those of opening; InvalidArgument (no journal, another version); DataLoss (nothing can be read).
  static absl::StatusOr<std::shared_ptr<const Recording>> OpenFile(const std::filesystem::path& path);
  static absl::StatusOr<std::shared_ptr<const Recording>> OpenFolder(const std::filesystem::path& folder);

  const v1::JournalHead& head() const { return head_; }        ///< of the oldest file
  uint64_t begin_sequence() const { return begin_sequence_; }  ///< of the oldest entry, which need not be there
  uint64_t begin_position() const { return begin_position_; }
  uint64_t end_position() const { return end_position_; }
  uint64_t end_sequence() const { return end_sequence_; }
  const std::vector<StateRef>& states() const { return states_; }  ///< ascending
  const EventList& events() const { return events_; }
  /// What could not be read, each with file and offset.
  const std::vector<std::string>& damages() const { return damages_; }
  bool has_begin() const { return begin_sequence_ == 1; }  ///< from the creation on, so that no state is needed

  /// Errors: those of ReadStateFile.
  absl::StatusOr<SceneCheckpoint> LoadState(const StateRef& state) const;

  /// The assets inside a recording's file, to be put into a store. Errors: reading; DataLoss (content that is not what its hash says).
  absl::Status UnpackAssets(const AssetStore& store) const;

  /// Reads entries in order of their sequence, each once; heads, assets and states are left out.
  class Cursor {
   public:
    /// False: the end. Errors: DataLoss: the next entry is missing (names the numbers) or damaged.
    absl::StatusOr<bool> Next(v1::JournalEntry* entry);
    uint64_t sequence() const { return sequence_; }  ///< of the newest entry read

   private:
    friend class Recording;
    Cursor(const Recording& recording, uint64_t sequence) : recording_(recording), sequence_(sequence) {}
    const Recording& recording_;
    uint64_t sequence_;
    size_t file_ = 0;
    std::optional<JournalReader> reader_;
  };
  /// The entries behind `sequence`. The recording outlives the cursor.
  Cursor EntriesAfter(uint64_t sequence) const { return Cursor(*this, sequence); }

 private:
  struct File {
    std::filesystem::path path;
    uint64_t begin_sequence = 0;  ///< of its first input
    uint64_t end_sequence = 0;    ///< of its last; begin - 1: it has none
    uint64_t end_offset = 0;      ///< behind the last good entry
  };

  absl::Status ReadJournal(const std::filesystem::path& path, bool is_recording);
  void NoteEntry(const v1::JournalEntry& entry, uint64_t offset, File* file, bool is_recording);
  void FindStates(const std::filesystem::path& folder);

  v1::JournalHead head_;
  std::vector<File> files_;  ///< ascending
  std::vector<StateRef> states_;
  EventList events_;
  std::vector<std::string> damages_;
  uint64_t begin_sequence_ = 0;  ///< of the first input
  uint64_t end_sequence_ = 0;
  uint64_t begin_position_ = 0;
  uint64_t end_position_ = 0;
  uint64_t step_ = 0;  ///< since the last reset, at the end of what was read
};

}  // namespace palpate::record
