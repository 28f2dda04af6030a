#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>

#include "server/core/scene.h"
#include "server/core/worker_pool.h"

namespace palpate::server {

/// Thins a scene's snapshots out to a reader's maximum rate. A snapshot that comes too early is kept and delivered later unless a newer one
/// takes its place, so that the last state of a scene always arrives. Over any long time no more than max_rate_hz snapshots per second
/// pass. Snapshots that never passed because of the rate are not drops: nobody asked for them.
class FramePacer : public SnapshotListener, public std::enable_shared_from_this<FramePacer> {
 public:
  using Deliver = std::function<void(const std::shared_ptr<const SceneSnapshot>&)>;
  using End = std::function<void(const absl::Status&)>;

  /// Both functions must return within microseconds. `pool` outlives the pacer. With `needs_volume` snapshots without volume positions are
  /// ignored.
  static std::shared_ptr<FramePacer> Create(double max_rate_hz, bool needs_volume, WorkerPool& pool, Deliver deliver, End end);

  void OnSnapshot(const std::shared_ptr<const SceneSnapshot>& snapshot) override;
  void OnSceneEnd(const absl::Status& reason) override;

  /// Forgets a kept snapshot; nothing is delivered after the return.
  void Stop();

 private:
  using Clock = std::chrono::steady_clock;
  FramePacer(double max_rate_hz, bool needs_volume, WorkerPool& pool, Deliver deliver, End end);
  void OnTimer();
  bool TakeSlot(Clock::time_point now);

  const Clock::duration interval_;
  const bool needs_volume_;
  WorkerPool& pool_;
  Deliver deliver_;
  End end_;

  std::mutex mutex_;
  Clock::time_point next_slot_{};
  std::shared_ptr<const SceneSnapshot> kept_;
  bool timer_armed_ = false;
  bool stopped_ = false;
};

}  // namespace palpate::server
