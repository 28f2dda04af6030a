#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace palpate::testing {

/// A TCP connection to 127.0.0.1 for tests that need every byte under control: raw HTTP, hostile WebSocket frames, a reader that does not
/// read.
class SocketClient {
 public:
  explicit SocketClient(uint16_t port);
  ~SocketClient();
  SocketClient(const SocketClient&) = delete;
  SocketClient& operator=(const SocketClient&) = delete;

  bool connected() const { return fd_ >= 0; }
  bool SendBytes(std::string_view bytes);
  /// Everything until the peer closes, at most 20 s.
  std::string ReceiveAll();

  /// The handshake; the status line's code, 0 if none came. `headers` are whole lines ending in CRLF.
  int OpenWebSocket(std::string_view path, std::string_view host, std::string_view headers = "");

  struct Frame {
    int opcode = 0;
    std::string payload;
    /// Of a close frame; 0 without.
    int close_code() const {
      return payload.size() < 2 ? 0 : (static_cast<unsigned char>(payload[0]) << 8 | static_cast<unsigned char>(payload[1]));
    }
  };
  /// Sends one masked frame.
  bool SendFrame(int opcode, std::string_view payload, bool is_final = true);
  /// The next frame; answers pings itself unless told not to. Nothing at the end of the connection or after `timeout`.
  std::optional<Frame> ReceiveFrame(std::chrono::milliseconds timeout = std::chrono::seconds(20), bool answer_pings = true);

 private:
  bool ReceiveBytes(std::string& out, size_t count, std::chrono::steady_clock::time_point deadline);
  int fd_ = -1;
};

}  // namespace palpate::testing
