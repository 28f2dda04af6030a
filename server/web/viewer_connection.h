#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "server/web/viewer_backend.h"

namespace palpate::server {

/// Status codes of WebSocket close frames, RFC 6455 section 7.4.1.
enum class WebSocketClose : uint16_t {
  kNormal = 1000,
  kGoingAway = 1001,
  kUnsupportedData = 1003,
  kPolicyViolation = 1008,
  kTooBig = 1009,
  kTryAgainLater = 1013,
};

/// The writing half of one browser connection: decides what leaves next and when, on the thread that calls Run.
///
/// Order: pongs, then queued messages, then the newest frame. A frame leaves only while fewer than max_frames_in_flight frames are
/// unconfirmed: a ping follows each frame, and the browser's pong confirms that it has taken everything before it off the network. So a
/// slow link skips frames instead of growing a backlog. Thread-safe.
class ViewerConnection : public ViewerSink {
 public:
  struct Limits {
    size_t max_queued_messages = 64;
    size_t max_queued_bytes = 256u << 20;
    int max_frames_in_flight = 4;
    std::chrono::milliseconds stall_timeout{10000};  ///< unconfirmed for so long: the browser is gone
    std::chrono::milliseconds ping_interval{15000};  ///< of an idle connection
  };
  enum class Opcode : int { kBinary = 2, kClose = 8, kPing = 9, kPong = 10 };
  /// Writes one WebSocket message; may block; false when the connection is broken. Called from Run only.
  using Write = std::function<bool(Opcode opcode, std::string_view payload)>;

  explicit ViewerConnection(const Limits& limits);

  /// Writes until the connection ends, by Close, CloseWith, End, a full queue, a stall or a failed write.
  void Run(const Write& write);

  /// Like Close, with a status and reason for the close frame. The first caller's status is the one sent.
  void CloseWith(WebSocketClose code, std::string_view reason);
  /// Ends at once: nothing more is written.
  void End();
  /// Waits until Run has nothing more to write after Close or End, at most `timeout`. False on time-out.
  bool WaitUntilEnded(std::chrono::milliseconds timeout);

  /// What the browser sent.
  void OnPing(std::string_view payload);
  void OnPong(std::string_view payload);

  void Send(v1::ViewerUpdate update) override;
  void OfferFrame(FrameWriter writer) override;
  bool CanTakeFrame() const override;
  void BeginStream() override;
  void Close() override;
  ViewerSinkStatistics statistics() const override;

 private:
  using Clock = std::chrono::steady_clock;
  enum class State { kOpen, kClosing, kEnded };
  struct Message {
    v1::ViewerUpdate update;
    size_t size_bytes = 0;
  };

  bool HasRoomLocked() const { return ping_sent_ - ping_confirmed_ < static_cast<uint64_t>(limits_.max_frames_in_flight); }
  /// Sets the state to ended and forgets what waits.
  void EndLocked();
  /// Writes without the lock and counts; ends the connection on failure.
  bool WriteUnlocked(std::unique_lock<std::mutex>& lock, const Write& write, Opcode opcode, std::string_view payload);
  bool WritePing(std::unique_lock<std::mutex>& lock, const Write& write);

  const Limits limits_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::kOpen;
  WebSocketClose close_code_ = WebSocketClose::kNormal;
  std::string close_reason_;
  std::deque<Message> queue_;
  size_t queued_bytes_ = 0;
  std::string pong_payload_;
  bool pong_wanted_ = false;
  FrameWriter frame_;  ///< the slot
  uint64_t dropped_in_stream_ = 0;
  uint64_t ping_sent_ = 0;           ///< number of pings sent; the payload of a ping is its number
  uint64_t ping_confirmed_ = 0;      ///< newest number that came back
  Clock::time_point last_progress_;  ///< when the newest pong came, or when the oldest unconfirmed ping was sent
  Clock::time_point last_write_;
  ViewerSinkStatistics statistics_;
};

}  // namespace palpate::server
