#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "palpate/v1/journal.pb.h"
#include "palpate/v1/record.pb.h"
#include "sim/record/journal_entries.h"
#include "sim/record/recording.h"
#include "sim/record/scene_journal.h"
#include "sim/world/world.h"

namespace palpate::server {

/// Somebody who writes a recording of a running scene. Calls come from the scene's thread, one at a time, and return within microseconds.
class EntrySink {
 public:
  virtual ~EntrySink() = default;
  /// An entry as it lies in a file. False: no more, please.
  virtual bool OnEntry(const std::shared_ptr<const std::string>& bytes, const v1::JournalEntry& entry) = 0;
  /// The last call: the scene has ended.
  virtual void OnEnd(const absl::Status& reason) = 0;
};

/// Where a scene stands on its time line.
struct PastPlace {
  uint64_t sequence = 0;  ///< of the newest entry
  uint64_t position = 0;  ///< steps since the creation, resets or not
  uint64_t step = 0;      ///< steps since the last reset
};

/// What a scene remembers of its input: gives every entry its number and hands it to the journal on disk, if there is one, and to those who
/// record. Of the scene's thread, except where said.
class ScenePast {
 public:
  struct Options {
    v1::JournalHead head;                              ///< begin_position left out
    std::unique_ptr<record::SceneJournal> journal;     ///< null: nothing is kept on disk
    std::shared_ptr<const record::AssetStore> assets;  ///< that the head's assets lie in; null: there are none
    PastPlace place;                                   ///< to go on from
    uint64_t begin_position = 0;                       ///< oldest place on disk
    record::EventList events;                          ///< before that
    std::chrono::duration<double> state_interval{0};   ///< between checkpoints by wall time; 0: none
    uint64_t state_steps = 0;                          ///< and by steps; 0: none
    uint64_t state_bytes = 0;                          ///< and by bytes of entries, so that old files can go; 0: none
    size_t max_entry_bytes = record::kMaxEntryBytes;
    bool is_state_due = false;  ///< one right at the begin
  };

  explicit ScenePast(Options options);
  ~ScenePast();

  void OnStepBegin(std::span<const sim::ToolCommand* const> commands);
  /// `commands`: those that the step used in the end.
  void OnStepEnd(std::span<const sim::ToolCommand* const> commands, const sim::Frame& frame);
  /// `request`: only with the first edits of one.
  void OnEdits(const v1::EditSceneRequest* request, size_t first, size_t count, const sim::Frame& frame);
  /// `request`, if none of its edits was performed.
  void OnEditEnd(const v1::EditSceneRequest* request, const v1::EditSceneResponse& response, const absl::Status& status);
  void OnReset(const std::string& by, const sim::Frame& frame);
  void OnRun(v1::RunState state, const v1::Rate& rate, const std::string& failure);
  void OnBookmark(const v1::Bookmark& bookmark, bool is_removed);

  /// Calls when all that came so far is on disk; at once where nothing is kept on disk.
  void WhenDurable(record::SceneJournal::Durable durable);
  /// OK, or why what is done now would not be durable: ResourceExhausted.
  absl::Status Health() const;
  /// Whether a request can be an entry. Errors: ResourceExhausted naming its size.
  absl::Status CheckEdits(const v1::EditSceneRequest& request) const;
  /// Called after each change of progress(), on any thread. Given once, before the first entry.
  void SetOnProgress(std::function<void()> on_progress);

  bool IsStateDue() const;
  /// A checkpoint of now: `scene` is completed by the place.
  void TakeState(v1::SceneState scene, std::shared_ptr<const sim::WorldState> world);
  /// An attempt at a checkpoint failed: the next one is due as if it had been made.
  void SkipState();
  void CompleteState(v1::SceneState* scene) const;

  void AddSink(std::shared_ptr<EntrySink> sink) { sinks_.push_back(std::move(sink)); }
  void End(const absl::Status& reason);

  const v1::JournalHead& head() const { return options_.head; }  ///< any thread
  const std::shared_ptr<const record::AssetStore>& assets() const { return options_.assets; }
  bool is_kept() const { return is_kept_; }  ///< any thread: whether there is a journal
  PastPlace place() const { return place_; }
  uint64_t begin_position() const;  ///< oldest place that is kept
  const record::EventList& events() const { return options_.events; }
  record::SceneJournal::Progress progress() const;  ///< any thread; precondition: is_kept()

 private:
  bool is_wanted() const { return is_kept() || !sinks_.empty(); }
  /// Numbers the entry and hands it on.
  void Emit(v1::JournalEntry entry);

  Options options_;
  const bool is_kept_;
  mutable std::mutex journal_mutex_;  ///< for progress() at the end
  record::SceneJournal::Progress last_progress_;
  PastPlace place_;
  record::ToolCommands commands_;  ///< at the start of the step under way
  std::vector<std::shared_ptr<EntrySink>> sinks_;
  std::chrono::steady_clock::time_point state_at_;  ///< of the newest checkpoint
  uint64_t state_position_ = 0;
  uint64_t bytes_since_state_ = 0;
};

}  // namespace palpate::server
