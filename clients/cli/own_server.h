#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "clients/cli/child_process.h"
#include "clients/cpp/connection.h"

namespace palpate::cli {

/// A server of one's own: palpate-server beside this program, as a child process on a free port of the loopback address. The destructor
/// stops it and removes its files.
class OwnServer {
 public:
  /// Returns once it answers; the first start on a machine compiles the OpenCL kernels. `device`: as palpate-server --device, empty = auto.
  /// Errors: NotFound (no such program), Internal (it ended; its last words), DeadlineExceeded.
  static absl::StatusOr<OwnServer> Start(const std::string& device);
  OwnServer(OwnServer&& other) noexcept;
  OwnServer& operator=(OwnServer&&) = delete;
  ~OwnServer();

  const client::Connection& connection() const { return *connection_; }

 private:
  OwnServer() = default;
  std::string folder_;
  std::optional<ChildProcess> process_;
  std::optional<client::Connection> connection_;
};

}  // namespace palpate::cli
