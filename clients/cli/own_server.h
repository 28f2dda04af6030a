#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "clients/cli/child_process.h"
#include "clients/cpp/connection.h"

namespace palpate::cli {

struct OwnServerOptions {
  std::string program{};                          ///< a path; empty: palpate-server beside this program
  std::string http = "127.0.0.1:0";               ///< as palpate-server --http
  std::string device{};                           ///< as palpate-server --device; empty: auto
  std::vector<std::string> arguments{};           ///< more of palpate-server's
  std::function<absl::Status()> while_waiting{};  ///< called some times a second until the server answers; an error ends the start
};

/// A server of one's own: palpate-server as a child process on a free port of the loopback address. The destructor stops it and removes
/// its files.
class OwnServer {
 public:
  /// Returns once it answers; the first start on a machine compiles the OpenCL kernels. Errors: NotFound (no such program), Internal (it
  /// ended; its last words), DeadlineExceeded, those of while_waiting.
  static absl::StatusOr<OwnServer> Start(const OwnServerOptions& options);
  OwnServer(OwnServer&& other) noexcept;
  OwnServer& operator=(OwnServer&&) = delete;
  ~OwnServer();

  const client::Connection& connection() const { return *connection_; }
  const std::string& target() const { return target_; }  ///< of gRPC, HOST:PORT
  int http_port() const { return http_port_; }           ///< 0: off
  std::string LastWords() const;                         ///< the end of its log

  /// OK while it runs. Internal: it ended; its last words.
  absl::Status CheckAlive();

  /// Asks it to end and waits. Errors: Internal (it ended with another status than 0; its last words).
  absl::Status Stop();

 private:
  OwnServer() = default;
  absl::Status Ended(int exit_status) const;

  std::string folder_;
  std::optional<ChildProcess> process_;
  std::optional<client::Connection> connection_;
  std::string target_;
  int http_port_ = 0;
};

/// The path of a program beside this one.
std::string SiblingProgram(const std::string& name);

/// The last lines of a file, for an error message, each indented.
std::string TailOf(const std::string& path);

}  // namespace palpate::cli
