#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace palpate::server {

/// The same code and message; the codes of both libraries are numerically equal. Messages are cut to a length that fits into HTTP/2
/// headers.
grpc::Status ToGrpc(const absl::Status& status);

/// What a call gets whose request did not arrive within `timeout`: DeadlineExceeded.
absl::Status UploadTooLate(std::chrono::milliseconds timeout);

/// Compares every byte of `given` whatever it holds. `expected` is not empty.
bool EqualInConstantTime(std::string_view given, std::string_view expected);

/// Checks the bearer token of calls. Thread-safe.
class Authenticator {
 public:
  /// An empty token lets every call pass.
  explicit Authenticator(std::string token) : token_(std::move(token)) {}

  /// The token of a file: its text without the white space around it. Errors: NotFound, InvalidArgument (empty, longer than 4096 bytes,
  /// characters that no header can carry).
  static absl::StatusOr<std::string> ReadTokenFile(const std::string& path);

  /// Errors: Unauthenticated unless the call's metadata hold `authorization: Bearer <token>`. Takes the same time wherever the token is
  /// wrong.
  absl::Status Check(const grpc::ServerContextBase& context) const;

  /// Whether `token` is the token. In constant time as above.
  bool IsToken(std::string_view token) const { return token_.empty() || EqualInConstantTime(token, token_); }

  bool enabled() const { return !token_.empty(); }

 private:
  std::string token_;
};

}  // namespace palpate::server
