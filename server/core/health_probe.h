#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"

namespace palpate::server {

/// Asks a gRPC port for its health as a new client would: over a connection of its own, made anew each time. Thread-safe; callers that come
/// together share one answer, which also serves those of the next second.
class HealthProbe {
 public:
  /// `target`: "127.0.0.1:50051". `has_tls`: the port speaks TLS; its certificate is not looked at, since the peer is this process.
  HealthProbe(std::string target, bool has_tls);

  /// Waits a few seconds at most. Errors: Unavailable, with what the call met.
  absl::Status Check();

 private:
  absl::Status Ask() const;

  const std::string target_;
  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  std::mutex mutex_;
  std::optional<std::chrono::steady_clock::time_point> asked_;
  absl::Status answer_;
};

}  // namespace palpate::server
