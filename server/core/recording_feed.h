#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "palpate/v1/record.pb.h"
#include "server/core/scene.h"
#include "server/core/scene_past.h"
#include "server/core/worker_pool.h"
#include "sim/record/state_folder.h"

namespace palpate::server {

/// Pieces of a file, one a call; nothing: that was all. Runs on a pool thread, one call at a time.
using ChunkSource = std::function<absl::StatusOr<std::optional<std::string>>()>;

/// The write side of a stream of recording: first what a source gives, then the entries of the running scene, in order and without a gap.
/// One write in flight; finishes the call exactly once, while no write is in flight. Thread-safe.
class RecordingFeed final : public EntrySink, public std::enable_shared_from_this<RecordingFeed> {
 public:
  static constexpr size_t kMaxQueuedBytes = size_t{64} << 20;  ///< of entries that the reader has not taken
  static constexpr size_t kMaxChunkBytes = size_t{512} << 10;

  /// Of the reactor, which lives until `finish`.
  struct Operations {
    std::function<void(const v1::RecordingChunk* chunk)> start_write;
    std::function<void(const absl::Status& status)> finish;
    std::function<void()> cancel;
  };

  /// `until_step`: the last step that is recorded.
  RecordingFeed(WorkerPool& pool, Operations operations, std::optional<uint64_t> until_step)
      : pool_(pool), operations_(std::move(operations)), until_step_(until_step) {}

  /// What comes before the entries. `is_whole`: nothing comes behind it. Without effect if the stream has ended before.
  void Begin(ChunkSource source, bool is_whole);
  bool OnEntry(const std::shared_ptr<const std::string>& bytes, const v1::JournalEntry& entry) override;
  void OnEnd(const absl::Status& reason) override { End(reason); }
  /// The first status counts. Entries that wait are still sent, unless the reader is gone.
  void End(const absl::Status& status);
  void OnWriteDone(bool ok);

 private:
  void Pump();
  void Work();
  absl::StatusOr<std::optional<std::string>> NextPiece();
  void Finish(const absl::Status& status);

  WorkerPool& pool_;
  const Operations operations_;
  const std::optional<uint64_t> until_step_;
  ChunkSource source_;  ///< of the job under way
  std::string rest_;    ///< of a piece that is longer than a chunk; of the job under way
  size_t rest_at_ = 0;
  v1::RecordingChunk chunk_;  ///< of the job or write in flight

  std::mutex mutex_;
  bool has_begun_ = false;
  bool is_busy_ = false;  ///< a job or a write is in flight
  bool is_finished_ = false;
  std::deque<std::shared_ptr<const std::string>> queue_;
  size_t queued_bytes_ = 0;
  std::optional<absl::Status> end_;
  bool is_reader_gone_ = false;
};

/// The begin of a recording: head, assets and the state of one moment. `point` is what Scene::Fork gives.
ChunkSource RecordingFrom(std::shared_ptr<const BranchPoint> point);

/// Places on the time line.
struct PastSpan {
  std::optional<uint64_t> begin;  ///< nothing: the oldest that is kept
  std::optional<uint64_t> end;    ///< the step that leads there is the last; nothing: up to the point
};

/// Files that stay as they are while the result lives; see SceneStore::HoldPast.
using HoldPast = std::function<absl::StatusOr<std::unique_ptr<record::TemporaryFolder>>()>;

/// Everything that a scene keeps of a span, up to `point`: head, assets, the nearest state before the begin (none if that is the creation),
/// entries. What is kept when the first piece is asked for stays until the source ends, whatever the scene trims. Errors: those of `hold`;
/// InvalidArgument naming the oldest step that is kept; Aborted (the scene was made anew).
ChunkSource RecordingOfPast(std::shared_ptr<const BranchPoint> point, HoldPast hold, PastSpan span);

}  // namespace palpate::server
