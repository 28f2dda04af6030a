#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace palpate::client {

struct ConnectionOptions {
  std::string target = "127.0.0.1:50051";        ///< HOST:PORT of the server
  std::string tls_ca_file;                       ///< PEM file with the authority that signed the server's certificate; empty = no TLS
  std::string token_file;                        ///< file whose first line is the bearer token; empty = none
  size_t max_message_bytes = size_t{256} << 20;  ///< largest answer that is accepted
};

/// A channel to a server and what each call on it must carry. Copies share the channel. Thread-safe.
class Connection {
 public:
  /// Opens a channel lazily: nothing is sent yet. Errors: InvalidArgument (empty target), NotFound/InvalidArgument naming the file that
  /// cannot be read or holds no token; FailedPrecondition when a token would leave this machine without TLS.
  static absl::StatusOr<Connection> Open(const ConnectionOptions& options);

  /// For a server inside this process (tests).
  static Connection FromChannel(std::shared_ptr<grpc::Channel> channel) { return Connection("in-process", std::move(channel), ""); }

  /// Blocks until the server answers or `timeout` has passed: Unavailable then, naming the target.
  absl::Status WaitUntilReady(std::chrono::milliseconds timeout) const;

  /// Adds the token, and a deadline unless `timeout` is zero.
  void Prepare(grpc::ClientContext& context, std::chrono::milliseconds timeout = std::chrono::milliseconds::zero()) const;

  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  const std::string& target() const { return target_; }

 private:
  Connection(std::string target, std::shared_ptr<grpc::Channel> channel, std::string token)
      : target_(std::move(target)), channel_(std::move(channel)), token_(std::move(token)) {}

  std::string target_;
  std::shared_ptr<grpc::Channel> channel_;
  std::string token_;
};

/// The same code (the canonical codes of both are equal) and message.
absl::Status ToAbslStatus(const grpc::Status& status);

}  // namespace palpate::client
