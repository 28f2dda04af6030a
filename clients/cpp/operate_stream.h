#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "clients/cpp/connection.h"
#include "palpate/v1/haptics.grpc.pb.h"

namespace palpate::client {

struct OperateOptions {
  v1::Attach attach;                             ///< scene, tool, station name, device stiffness
  double send_rate_hz = 1000;                    ///< how often next_pose is asked; (0, 10000]
  std::chrono::milliseconds first_backoff{100};  ///< pause before the first reconnection; doubles up to
  std::chrono::milliseconds longest_backoff{2000};
  std::chrono::milliseconds connect_timeout{2000};          ///< of one attempt
  std::chrono::milliseconds missing_scene_patience{10000};  ///< how long an unknown scene or tool is retried before the first attachment

  /// Fills in the newest pose and answers true; false if there is none newer than the last. Called on the sending thread only.
  std::function<bool(v1::ToolPose*)> next_pose;
  /// The tool is ours. Called on the reading thread, before any on_model of this attachment.
  std::function<void(const v1::Attached&)> on_attached;
  /// A model came. Called on the reading thread.
  std::function<void(const v1::LocalModel&)> on_model;
  /// The stream ended, or an attempt failed. `retry_in` is zero when no further attempt follows (the stream is then done). Called on the
  /// reading thread.
  std::function<void(const absl::Status& why, std::chrono::milliseconds retry_in)> on_detached;
};

/// A hand on a tool (proto/palpate/v1/haptics.proto, Operate) that comes back by itself.
///
/// Two threads: one connects, reads, and reconnects with growing pauses; one sends the newest pose at a fixed rate (a pose that was
/// overtaken is never sent). No further attempt is made when the server refuses for good before the first attachment: INVALID_ARGUMENT,
/// UNAUTHENTICATED, PERMISSION_DENIED, UNIMPLEMENTED, or NOT_FOUND for longer than missing_scene_patience. After a first attachment it
/// tries until Stop.
class OperateStream {
 public:
  OperateStream(Connection connection, OperateOptions options);
  ~OperateStream();  ///< Stop.
  OperateStream(const OperateStream&) = delete;
  OperateStream& operator=(const OperateStream&) = delete;

  /// Ends the call and both threads. Blocking, idempotent. No callback runs after it returns.
  void Stop();

  bool done() const { return done_.load(); }                    ///< no further attempt will be made
  uint64_t attachments() const { return attachments_.load(); }  ///< how often the tool was taken
  uint64_t poses_sent() const { return poses_sent_.load(); }

 private:
  void Run();
  /// One attachment, from connecting to the end of the stream. `attached` tells whether the server gave the tool.
  absl::Status RunOnce(bool* attached);
  void SendPoses(grpc::ClientReaderWriter<v1::OperateRequest, v1::OperateUpdate>* stream, const std::atomic<bool>& ended);
  /// False if Stop came first.
  bool Sleep(std::chrono::milliseconds duration);

  const Connection connection_;
  const OperateOptions options_;
  std::unique_ptr<v1::HapticService::Stub> stub_;
  std::mutex mutex_;
  std::condition_variable stop_changed_;
  bool stopping_ = false;                   // guarded by mutex_
  grpc::ClientContext* context_ = nullptr;  // guarded by mutex_; of the running call
  std::atomic<bool> done_{false};
  std::atomic<uint64_t> attachments_{0};
  std::atomic<uint64_t> poses_sent_{0};
  std::thread thread_;
};

}  // namespace palpate::client
