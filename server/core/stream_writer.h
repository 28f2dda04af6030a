#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "server/core/scene.h"
#include "server/core/worker_pool.h"

namespace palpate::server {

/// What encoding a snapshot gave.
enum class Encoded {
  kNothing,  ///< nothing to send
  kLast,     ///< a message
  kMore,     ///< a message, and the same snapshot has another one
};

/// The write side of one gRPC stream of snapshots: encodes on a pool, keeps one write in flight, the latest snapshot wins, and finishes the
/// call exactly once and only while no write is in flight. A snapshot of several messages is sent to its last one before a newer takes its
/// place.
///
/// The operations are those of the reactor, which must stay alive until OnDone; after Finish none is called. A reader that stalls cannot
/// take the end of its stream either: kEndGrace after End the call is cancelled.
template <typename Update>
class StreamWriter : public std::enable_shared_from_this<StreamWriter<Update>> {
 public:
  static constexpr std::chrono::seconds kEndGrace{2};

  struct Operations {
    /// Fills the message for a snapshot; `dropped`: how many were replaced so far. Runs on the pool, one at a time.
    std::function<Encoded(const std::shared_ptr<const SceneSnapshot>& snapshot, uint64_t dropped, Update& update)> encode;
    std::function<void(const Update* update)> start_write;
    std::function<void(const absl::Status& status)> finish;
    std::function<void()> cancel;
    std::function<void()> on_dropped;
  };

  StreamWriter(WorkerPool& pool, Operations operations) : pool_(pool), operations_(std::move(operations)) {}

  void Offer(const std::shared_ptr<const SceneSnapshot>& snapshot) {
    {
      const std::lock_guard lock(mutex_);
      if (end_) return;
      if (busy_) {
        if (pending_) {
          ++dropped_;
          operations_.on_dropped();
        }
        pending_ = snapshot;
        return;
      }
      busy_ = true;
    }
    PostEncode(snapshot);
  }

  void OnWriteDone(bool ok) {
    std::shared_ptr<const SceneSnapshot> next;
    std::optional<absl::Status> end;
    {
      const std::lock_guard lock(mutex_);
      if (!ok && !end_) end_ = absl::CancelledError("the reader is gone");
      if (end_) {
        end = TakeEnd();
      } else if (unfinished_) {
        next = std::exchange(unfinished_, nullptr);
      } else if (pending_) {
        next = std::exchange(pending_, nullptr);
      } else {
        busy_ = false;
      }
    }
    if (next) PostEncode(next);
    if (end) PostFinish(*end);
  }

  /// Ends the stream. The first status counts.
  void End(const absl::Status& status) {
    std::optional<absl::Status> end;
    {
      const std::lock_guard lock(mutex_);
      if (end_) return;
      end_ = status;
      pending_.reset();
      if (!busy_) {
        end = TakeEnd();
      } else {
        pool_.PostAt(WorkerPool::Clock::now() + kEndGrace, [weak = this->weak_from_this()] {
          if (const auto self = weak.lock()) self->CancelIfStuck();
        });
      }
    }
    if (end) PostFinish(*end);
  }

  /// The reactor is about to die.
  void OnDone() {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }

  uint64_t dropped() const {
    const std::lock_guard lock(mutex_);
    return dropped_;
  }

 private:
  // With mutex_ held: the status to finish with, the first time only.
  std::optional<absl::Status> TakeEnd() {
    if (finished_) return std::nullopt;
    finished_ = true;
    return end_;
  }

  // On the pool, because the caller may hold locks of the scene. The reactor lives until Finish.
  void PostFinish(const absl::Status& status) {
    pool_.Post([self = this->shared_from_this(), status] { self->operations_.finish(status); });
  }

  void PostEncode(const std::shared_ptr<const SceneSnapshot>& snapshot) {
    pool_.Post([self = this->shared_from_this(), snapshot] { self->Encode(snapshot); });
  }

  void Encode(const std::shared_ptr<const SceneSnapshot>& snapshot) {
    uint64_t dropped = 0;
    bool ended = false;
    {
      const std::lock_guard lock(mutex_);
      dropped = dropped_;
      ended = end_.has_value();
    }
    // busy_ keeps the reactor alive and `update_` ours until OnWriteDone.
    const Encoded encoded = ended ? Encoded::kNothing : operations_.encode(snapshot, dropped, update_);
    if (encoded == Encoded::kNothing) return OnWriteDone(true);
    if (encoded == Encoded::kMore) {
      const std::lock_guard lock(mutex_);
      unfinished_ = snapshot;
    }
    operations_.start_write(&update_);
  }

  void CancelIfStuck() {
    const std::lock_guard lock(mutex_);
    if (!finished_ && !done_) operations_.cancel();
  }

  WorkerPool& pool_;
  const Operations operations_;
  Update update_;  ///< of the job or write in flight
  mutable std::mutex mutex_;
  bool busy_ = false;                                ///< a job or a write is in flight
  std::shared_ptr<const SceneSnapshot> unfinished_;  ///< has more messages
  std::shared_ptr<const SceneSnapshot> pending_;
  uint64_t dropped_ = 0;
  std::optional<absl::Status> end_;
  bool finished_ = false;
  bool done_ = false;
};

}  // namespace palpate::server
