#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <sys/types.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/core/config.h"

namespace palpate::server {

/// Raises the process's soft limit on open descriptors to `wanted`, or to the hard limit where that is lower. Returns the soft limit then.
uint64_t RaiseDescriptorLimit(uint64_t wanted);

/// Listens on an address and hands connections on, never more than a limit of them, so that a flood of connections does not take the
/// descriptors that the rest of the process needs.
///
/// A connection belongs to whoever it was handed to, who also closes it; here only its number and inode are kept, to count those that still
/// live. At the limit one that is of no use makes room for a newcomer: the oldest that has not sent a byte, or else the one silent for
/// longest, if for longer than a live peer can be. Otherwise the newcomer is closed. Out of descriptors all the same (other parts of the
/// process use them too), a spare one serves to turn newcomers away, so that they learn it, and the port works again once there are some.
class Acceptor {
 public:
  struct Options {
    int max_connections = 1024;                    ///< at least 1
    int max_connections_per_peer = 512;            ///< of one address that is not loopback
    std::chrono::milliseconds max_mute{10000};     ///< without a first byte for so long: closed
    std::chrono::milliseconds max_silence{30000};  ///< silent for so long: may be closed to make room
  };
  struct Statistics {
    int connections = 0;    ///< now
    uint64_t accepted = 0;  ///< handed on since the start
    uint64_t refused = 0;   ///< closed at once: at the limit, or out of descriptors
    uint64_t evicted = 0;   ///< closed later: mute, or silent when room was needed
  };
  /// Takes over a connected, non-blocking socket.
  using OnConnection = std::function<void(int fd)>;

  /// Binds and listens on every address that the host of `address` stands for, all with the same port. Errors: Unavailable.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Listen(const Address& address, const Options& options);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  /// Begins to accept, on a thread of its own, from which `on_connection` is called. Once.
  void Start(OnConnection on_connection);
  /// Stops listening; what was handed on lives on. Idempotent.
  void Stop();

  int port() const { return port_; }
  Statistics statistics() const;

 private:
  struct Connection {
    int fd = -1;
    ino_t inode = 0;
    std::string peer;  ///< address without port; empty: loopback
    std::chrono::steady_clock::time_point since;
    bool closing = false;  ///< shut down here; its owner has not closed it yet
  };

  explicit Acceptor(const Options& options) : options_(options) {}
  void Run();
  /// Accepts what waits on a listener. False: out of descriptors or memory.
  bool AcceptAll(int listener);
  void TellExhausted(const char* why);
  /// Turns away whoever waits on a listener, with the spare descriptor.
  void TurnAway(int listener);
  bool HasRoom(const std::string& peer);
  /// Forgets connections that have ended, closes those that stay mute.
  void Sweep();
  /// Shuts down the connection that is of least use. False: all are in use.
  bool MakeRoom();
  void ShutDown(Connection& connection);

  const Options options_;
  int port_ = 0;
  std::vector<int> listeners_;
  int wake_fd_ = -1;
  int spare_fd_ = -1;
  OnConnection on_connection_;
  std::thread thread_;
  std::vector<Connection> connections_;  ///< of the thread, in the order of arrival
  std::optional<std::chrono::steady_clock::time_point> last_told_;
  std::atomic<int> connection_count_{0};
  std::atomic<uint64_t> accepted_{0};
  std::atomic<uint64_t> refused_{0};
  std::atomic<uint64_t> evicted_{0};
};

}  // namespace palpate::server
