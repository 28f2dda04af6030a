#include "server/core/frame_pacer.h"

#include <utility>

namespace palpate::server {

std::shared_ptr<FramePacer> FramePacer::Create(double max_rate_hz, bool needs_volume, WorkerPool& pool, Deliver deliver, End end) {
  return std::shared_ptr<FramePacer>(new FramePacer(max_rate_hz, needs_volume, pool, std::move(deliver), std::move(end)));
}

FramePacer::FramePacer(double max_rate_hz, bool needs_volume, WorkerPool& pool, Deliver deliver, End end)
    : interval_(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(1 / max_rate_hz))),
      needs_volume_(needs_volume),
      pool_(pool),
      deliver_(std::move(deliver)),
      end_(std::move(end)) {}

bool FramePacer::TakeSlot(Clock::time_point now) {
  // A frame may come a little before its slot, or a scene whose rate is a multiple of the reader's would lose every other slot to jitter.
  if (now < next_slot_ - interval_ / 4) return false;
  next_slot_ = now - next_slot_ > interval_ ? now + interval_ : next_slot_ + interval_;
  return true;
}

void FramePacer::OnSnapshot(const std::shared_ptr<const SceneSnapshot>& snapshot) {
  if (needs_volume_ && !HasVolume(*snapshot->frame)) return;
  const std::lock_guard lock(mutex_);
  if (stopped_) return;
  const Clock::time_point now = Clock::now();
  if (TakeSlot(now)) {
    kept_.reset();
    deliver_(snapshot);
    return;
  }
  kept_ = snapshot;
  if (timer_armed_) return;
  timer_armed_ = true;
  // Late enough that the next snapshot of a playing scene comes first.
  pool_.PostAt(next_slot_ + interval_ / 2, [weak = weak_from_this()] {
    if (const std::shared_ptr<FramePacer> self = weak.lock()) self->OnTimer();
  });
}

void FramePacer::OnTimer() {
  const std::lock_guard lock(mutex_);
  timer_armed_ = false;
  if (stopped_ || !kept_) return;
  if (TakeSlot(Clock::now())) {
    deliver_(std::exchange(kept_, nullptr));
    return;
  }
  timer_armed_ = true;
  pool_.PostAt(next_slot_ + interval_ / 2, [weak = weak_from_this()] {
    if (const std::shared_ptr<FramePacer> self = weak.lock()) self->OnTimer();
  });
}

void FramePacer::OnSceneEnd(const absl::Status& reason) {
  const std::lock_guard lock(mutex_);
  if (stopped_) return;
  stopped_ = true;
  kept_.reset();
  end_(reason);
}

void FramePacer::Stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  kept_.reset();
}

}  // namespace palpate::server
