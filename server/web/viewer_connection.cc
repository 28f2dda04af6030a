#include "server/web/viewer_connection.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "absl/strings/str_cat.h"

namespace palpate::server {
namespace {

// A control frame carries at most 125 bytes, two of which are the status.
constexpr size_t kMaxCloseReasonBytes = 123;
constexpr size_t kMaxControlBytes = 125;

std::string ClosePayload(WebSocketClose code, std::string_view reason) {
  const auto value = static_cast<uint16_t>(code);
  std::string payload{static_cast<char>(value >> 8), static_cast<char>(value & 0xff)};
  payload.append(reason.substr(0, kMaxCloseReasonBytes));
  return payload;
}

}  // namespace

ViewerConnection::ViewerConnection(const Limits& limits) : limits_(limits), last_progress_(Clock::now()), last_write_(last_progress_) {}

void ViewerConnection::Run(const Write& write) {
  std::unique_lock lock(mutex_);
  while (state_ != State::kEnded) {
    if (pong_wanted_) {
      pong_wanted_ = false;
      const std::string payload = std::exchange(pong_payload_, {});
      WriteUnlocked(lock, write, Opcode::kPong, payload);
      continue;
    }
    if (!queue_.empty()) {
      Message message = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      const std::string bytes = message.update.SerializeAsString();
      lock.lock();
      queued_bytes_ -= std::min(queued_bytes_, message.size_bytes);
      WriteUnlocked(lock, write, Opcode::kBinary, bytes);
      continue;
    }
    if (state_ == State::kClosing) {
      WriteUnlocked(lock, write, Opcode::kClose, ClosePayload(close_code_, close_reason_));
      EndLocked();
      break;
    }
    if (frame_ && HasRoomLocked()) {
      FrameWriter writer = std::exchange(frame_, nullptr);
      const uint64_t dropped = dropped_in_stream_;
      while (writer && state_ == State::kOpen) {
        lock.unlock();
        v1::ViewerUpdate update;
        if (!writer(dropped, update)) writer = nullptr;  // lets go of the frame before the slow part
        const std::string bytes = update.SerializeAsString();
        lock.lock();
        WriteUnlocked(lock, write, Opcode::kBinary, bytes);
      }
      if (writer) {  // the connection closes; what it owns goes outside the lock
        lock.unlock();
        writer = nullptr;
        lock.lock();
      }
      if (state_ != State::kEnded) {
        ++statistics_.frames_sent;
        WritePing(lock, write);
      }
      continue;
    }
    // Nothing can leave: wait for something to send, a pong, or the time at which silence means something.
    const auto now = Clock::now();
    const bool unconfirmed = ping_sent_ > ping_confirmed_;
    const auto deadline = unconfirmed ? last_progress_ + limits_.stall_timeout : last_write_ + limits_.ping_interval;
    if (now >= deadline) {
      if (unconfirmed) {
        EndLocked();
      } else {
        WritePing(lock, write);
      }
      continue;
    }
    changed_.wait_until(lock, deadline);
  }
  EndLocked();
}

bool ViewerConnection::WriteUnlocked(std::unique_lock<std::mutex>& lock, const Write& write, Opcode opcode, std::string_view payload) {
  if (state_ == State::kEnded) return false;
  lock.unlock();
  const bool ok = write(opcode, payload);
  lock.lock();
  last_write_ = Clock::now();
  if (!ok) {
    EndLocked();
    return false;
  }
  if (opcode == Opcode::kBinary) statistics_.bytes_sent += payload.size();
  return state_ != State::kEnded;
}

bool ViewerConnection::WritePing(std::unique_lock<std::mutex>& lock, const Write& write) {
  if (ping_sent_ == ping_confirmed_) last_progress_ = Clock::now();
  const std::string payload = absl::StrCat(++ping_sent_);
  return WriteUnlocked(lock, write, Opcode::kPing, payload);
}

void ViewerConnection::EndLocked() {
  state_ = State::kEnded;
  queue_.clear();
  queued_bytes_ = 0;
  frame_ = nullptr;
  pong_wanted_ = false;
  changed_.notify_all();
}

void ViewerConnection::CloseWith(WebSocketClose code, std::string_view reason) {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kOpen) return;
  state_ = State::kClosing;
  close_code_ = code;
  close_reason_ = reason;
  frame_ = nullptr;
  changed_.notify_all();
}

void ViewerConnection::Close() { CloseWith(WebSocketClose::kNormal, ""); }

void ViewerConnection::End() {
  const std::lock_guard lock(mutex_);
  EndLocked();
}

bool ViewerConnection::WaitUntilEnded(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [this] { return state_ == State::kEnded; });
}

void ViewerConnection::OnPing(std::string_view payload) {
  const std::lock_guard lock(mutex_);
  if (state_ == State::kEnded) return;
  // Only the newest ping needs an answer (RFC 6455 section 5.5.3).
  pong_payload_ = payload.substr(0, kMaxControlBytes);
  pong_wanted_ = true;
  changed_.notify_all();
}

void ViewerConnection::OnPong(std::string_view payload) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(payload.data(), payload.data() + payload.size(), number);
  const std::lock_guard lock(mutex_);
  // A pong that answers no ping of ours is allowed and means nothing.
  if (error != std::errc() || end != payload.data() + payload.size() || number > ping_sent_ || number <= ping_confirmed_) return;
  ping_confirmed_ = number;
  last_progress_ = Clock::now();
  changed_.notify_all();
}

void ViewerConnection::Send(v1::ViewerUpdate update) {
  const size_t size_bytes = update.ByteSizeLong();
  const std::lock_guard lock(mutex_);
  if (state_ != State::kOpen) return;
  if (queue_.size() >= limits_.max_queued_messages || (!queue_.empty() && queued_bytes_ + size_bytes > limits_.max_queued_bytes)) {
    queue_.clear();
    queued_bytes_ = 0;
    state_ = State::kClosing;
    close_code_ = WebSocketClose::kPolicyViolation;
    close_reason_ = "too many unread answers";
    frame_ = nullptr;
  } else {
    queue_.push_back({std::move(update), size_bytes});
    queued_bytes_ += size_bytes;
  }
  changed_.notify_all();
}

void ViewerConnection::OfferFrame(FrameWriter writer) {
  FrameWriter replaced;  // destroyed after the lock: it may own a large frame
  const std::lock_guard lock(mutex_);
  if (state_ != State::kOpen) return;
  if (frame_) {
    replaced = std::move(frame_);
    ++dropped_in_stream_;
    ++statistics_.frames_dropped;
  }
  frame_ = std::move(writer);
  changed_.notify_all();
}

bool ViewerConnection::CanTakeFrame() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::kOpen && !frame_ && queue_.empty() && HasRoomLocked();
}

void ViewerConnection::BeginStream() {
  const std::lock_guard lock(mutex_);
  frame_ = nullptr;
  dropped_in_stream_ = 0;
}

ViewerSinkStatistics ViewerConnection::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

}  // namespace palpate::server
