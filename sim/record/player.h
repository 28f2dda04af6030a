#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/runtime/context.h"
#include "palpate/v1/journal.pb.h"
#include "sim/record/edit_log.h"
#include "sim/record/recording.h"
#include "sim/world/world.h"

namespace palpate::record {

/// Computes a scene again from its recording: on the same device and driver bit for bit. Owns the world. Not thread-safe.
class Player {
 public:
  struct Divergence {
    uint64_t count = 0;                ///< entries after which the hash was not the recorded one
    std::optional<uint64_t> position;  ///< of the first
  };

  /// Where a player is after a move.
  struct Place {
    uint64_t position = 0;  ///< steps since the creation
    bool at_end = false;    ///< nothing more was recorded, or what follows is damaged: see notes()
  };

  /// At a place of the recording, or at its end: there the newest state that can be read, and everything behind it. `description`: of the
  /// recording's spec. Errors: those of sim::World; DataLoss (no state that is needed can be read).
  static absl::StatusOr<std::unique_ptr<Player>> Create(std::shared_ptr<const Recording> recording, std::shared_ptr<gpu::Context> context,
                                                        sim::SceneDescription description, uint64_t place);
  static absl::StatusOr<std::unique_ptr<Player>> CreateAtEnd(std::shared_ptr<const Recording> recording,
                                                             std::shared_ptr<gpu::Context> context, sim::SceneDescription description);

  /// Takes the world to a place: from the nearest state before it, entry by entry, up to the last before the next step. `is_enough`, if
  /// given, is asked before each step and ends the move early. Errors: InvalidArgument (outside the recording); those of sim::World;
  /// DataLoss.
  absl::StatusOr<Place> Seek(uint64_t position, const std::function<bool()>& is_enough = {});

  /// The same to the next place.
  absl::StatusOr<Place> Step();

  sim::World& world() { return *world_; }
  std::unique_ptr<sim::World> TakeWorld() { return std::move(world_); }
  const Recording& recording() const { return *recording_; }
  std::shared_ptr<const Recording> shared_recording() const { return recording_; }

  uint64_t position() const { return scene_.position(); }
  uint64_t sequence() const { return scene_.journal_sequence(); }  ///< of the newest entry performed
  /// What the scene had beside its world at this place: how it ran, who reset it, answers that it keeps.
  const v1::SceneState& scene() const { return scene_; }  ///< without answers
  const EditLog& answers() const { return answers_; }
  const Divergence& divergence() const { return divergence_; }
  /// Damage met on the way, each kind once, and at most kMaxNotes: the last one tells where that is not all.
  const std::vector<std::string>& notes() const { return notes_; }
  static constexpr size_t kMaxNotes = 64;
  /// Whether the world was exchanged since the last call: then versions of its topology do not follow each other.
  bool TakeJump() { return std::exchange(has_jumped_, false); }

 private:
  /// States taken on the way, so that going back is quick.
  static constexpr size_t kMaxCachedBytes = size_t{256} << 20;
  static constexpr uint64_t kCacheSteps = 200;  ///< between them

  struct CachedState {
    v1::SceneState scene;
    std::shared_ptr<const sim::WorldState> world;
    size_t bytes = 0;
  };
  /// A request of which not all entries have come.
  struct OpenRequest {
    std::optional<v1::EditSceneRequest> request;
    std::vector<sim::Edit> edits;
    std::vector<sim::EditOutcome> outcomes;
  };

  Player(std::shared_ptr<const Recording> recording, std::shared_ptr<gpu::Context> context, sim::SceneDescription description);
  absl::Status SeekEnd();
  absl::Status StartFrom(uint64_t position);
  /// What becomes of the world at hand if the one that is made fails: given up makes that quicker.
  enum class OldWorld : uint8_t { kKept, kGivenUp };
  absl::Status StartFromState(const StateRef& state, OldWorld old_world);
  absl::Status StartFromBegin();
  void BeginAnew();
  absl::Status Load(const v1::SceneState& scene, const sim::WorldState& state, OldWorld old_world);
  absl::StatusOr<bool> ReadNext();
  absl::Status PerformNext();
  absl::Status PerformStep(const v1::JournalStep& step);
  absl::Status PerformEdit(const v1::JournalEdit& edit);
  absl::Status PerformReset(const v1::JournalReset& reset);
  bool StartFromNextState(uint64_t sequence);
  void Note(const absl::Status& damage);
  /// A request whose end is not in the recording was given up: nobody had an answer.
  void CloseOpenEdit();
  void Compare(uint64_t expected);
  void Remember();

  const std::shared_ptr<const Recording> recording_;
  const std::shared_ptr<gpu::Context> context_;
  const sim::SceneDescription description_;
  std::unique_ptr<sim::World> world_;
  std::optional<Recording::Cursor> cursor_;
  std::optional<v1::JournalEntry> next_;  ///< read, not performed
  bool is_at_end_ = false;
  bool is_astray_ = false;  ///< an entry failed, or the world was given up: it is not where the recording says
  v1::SceneState scene_;
  EditLog answers_;
  OpenRequest open_;
  std::map<uint64_t, CachedState> cache_;  ///< by position
  size_t cached_bytes_ = 0;
  Divergence divergence_;
  std::vector<std::string> notes_;
  bool has_jumped_ = false;
};

}  // namespace palpate::record
