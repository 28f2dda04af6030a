#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace palpate::server {

/// Cuts what a browser sends into WebSocket frames (RFC 6455 section 5.2), and looks at the length of each before it takes any of it.
class FrameReader {
 public:
  /// `bits`: the first byte of the frame. False: stop, the rest is not looked at.
  using OnFrame = std::function<bool(int bits, std::string_view payload)>;

  explicit FrameReader(size_t max_payload_bytes) : max_payload_bytes_(max_payload_bytes) {}

  /// Takes the next bytes of the connection and passes on the frames that are whole. Holds no more than one frame and `bytes`. Errors:
  /// ResourceExhausted (a frame that says it is longer than the limit), InvalidArgument (not masked, as a browser must; a long control
  /// frame); Cancelled (on_frame said stop). After an error nothing more may be fed.
  absl::Status Feed(std::string_view bytes, const OnFrame& on_frame);

 private:
  const size_t max_payload_bytes_;
  std::string buffer_;
};

}  // namespace palpate::server
