#include "tests/server/web/socket_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace palpate::testing {

SocketClient::SocketClient(uint16_t port) {
  fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    close(fd_);
    fd_ = -1;
  }
}

SocketClient::~SocketClient() {
  if (fd_ >= 0) close(fd_);
}

bool SocketClient::SendBytes(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool SocketClient::ReceiveBytes(std::string& out, size_t count, std::chrono::steady_clock::time_point deadline) {
  while (out.size() < count) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd wait{fd_, POLLIN, 0};
    if (left.count() <= 0 || poll(&wait, 1, static_cast<int>(left.count())) <= 0) return false;
    char buffer[16384];
    const ssize_t got = recv(fd_, buffer, std::min(sizeof(buffer), count - out.size()), 0);
    if (got <= 0) return false;
    out.append(buffer, static_cast<size_t>(got));
  }
  return true;
}

std::string SocketClient::ReceiveAll() {
  std::string all;
  ReceiveBytes(all, SIZE_MAX, std::chrono::steady_clock::now() + std::chrono::seconds(20));
  return all;
}

int SocketClient::OpenWebSocket(std::string_view path, std::string_view host, std::string_view headers) {
  std::string request = "GET ";
  request.append(path).append(" HTTP/1.1\r\nHost: ").append(host);
  request.append(
      "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n");
  request.append(headers).append("\r\n");
  if (!SendBytes(request)) return 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::string answer;
  while (answer.find("\r\n\r\n") == std::string::npos) {
    if (!ReceiveBytes(answer, answer.size() + 1, deadline)) return 0;
  }
  return answer.rfind("HTTP/1.1 ", 0) == 0 ? std::atoi(answer.c_str() + 9) : 0;
}

bool SocketClient::SendFrame(int opcode, std::string_view payload, bool is_final) {
  constexpr unsigned char kMask[4] = {0x12, 0x34, 0x56, 0x78};
  std::string frame(1, static_cast<char>((is_final ? 0x80 : 0) | opcode));
  const auto append_big_endian = [&frame](uint64_t value, int bytes) {
    for (int i = bytes - 1; i >= 0; --i) frame.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  };
  if (payload.size() < 126) {
    append_big_endian(0x80 | payload.size(), 1);
  } else if (payload.size() < 65536) {
    append_big_endian(0x80 | 126, 1);
    append_big_endian(payload.size(), 2);
  } else {
    append_big_endian(0x80 | 127, 1);
    append_big_endian(payload.size(), 8);
  }
  frame.append(reinterpret_cast<const char*>(kMask), 4);
  for (size_t i = 0; i < payload.size(); ++i) frame.push_back(static_cast<char>(payload[i] ^ kMask[i % 4]));
  return SendBytes(frame);
}

std::optional<SocketClient::Frame> SocketClient::ReceiveFrame(std::chrono::milliseconds timeout, bool answer_pings) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (true) {
    std::string head;
    if (!ReceiveBytes(head, 2, deadline)) return std::nullopt;
    size_t size = static_cast<unsigned char>(head[1]) & 0x7f;
    const size_t extra = size == 126 ? 2 : size == 127 ? 8 : 0;
    if (extra > 0) {
      std::string length;
      if (!ReceiveBytes(length, extra, deadline)) return std::nullopt;
      size = 0;
      for (const char c : length) size = size << 8 | static_cast<unsigned char>(c);
    }
    Frame frame;
    frame.opcode = head[0] & 0x0f;
    if (!ReceiveBytes(frame.payload, size, deadline)) return std::nullopt;
    if (frame.opcode == 9 && answer_pings) {
      SendFrame(10, frame.payload);
      continue;
    }
    return frame;
  }
}

}  // namespace palpate::testing
