#include "server/web/frame_reader.h"

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace palpate::server {
namespace {

constexpr size_t kMaxControlBytes = 125;

uint64_t BigEndian(std::string_view bytes) {
  uint64_t value = 0;
  for (const char c : bytes) value = value << 8 | static_cast<unsigned char>(c);
  return value;
}

}  // namespace

absl::Status FrameReader::Feed(std::string_view bytes, const OnFrame& on_frame) {
  buffer_.append(bytes);
  size_t begin = 0;
  while (true) {
    const std::string_view rest = std::string_view(buffer_).substr(begin);
    if (rest.size() < 2) break;
    const auto bits = static_cast<unsigned char>(rest[0]);
    const auto second = static_cast<unsigned char>(rest[1]);
    const size_t short_length = second & 0x7f;
    const size_t length_bytes = short_length == 127 ? 8 : short_length == 126 ? 2 : 0;
    if (rest.size() < 2 + length_bytes) break;
    const uint64_t length = length_bytes == 0 ? short_length : BigEndian(rest.substr(2, length_bytes));
    if ((second & 0x80) == 0) return absl::InvalidArgumentError("a frame without a mask");
    if ((bits & 0x08) != 0 && length > kMaxControlBytes) return absl::InvalidArgumentError("a control frame longer than 125 bytes");
    if (length > max_payload_bytes_) {
      return absl::ResourceExhaustedError(absl::StrCat("message longer than ", max_payload_bytes_, " bytes (web.max_request_bytes)"));
    }
    const size_t header = 2 + length_bytes + 4;
    if (rest.size() < header + length) break;
    char* const payload = buffer_.data() + begin + header;
    for (size_t i = 0; i < length; ++i) payload[i] = static_cast<char>(payload[i] ^ rest[header - 4 + i % 4]);
    if (!on_frame(bits, {payload, static_cast<size_t>(length)})) return absl::CancelledError("");
    begin += header + static_cast<size_t>(length);
  }
  buffer_.erase(0, begin);
  return absl::OkStatus();
}

}  // namespace palpate::server
