#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace palpate::record {

/// Numbers in files are little-endian whatever the machine.
inline void AppendU16(uint16_t value, std::string* out) {
  out->push_back(static_cast<char>(value & 0xff));
  out->push_back(static_cast<char>(value >> 8));
}
inline void AppendU32(uint32_t value, std::string* out) {
  for (int shift = 0; shift < 32; shift += 8) out->push_back(static_cast<char>((value >> shift) & 0xff));
}
inline void AppendU64(uint64_t value, std::string* out) {
  for (int shift = 0; shift < 64; shift += 8) out->push_back(static_cast<char>((value >> shift) & 0xff));
}
/// Preconditions: the bytes are there.
inline uint16_t ReadU16(std::string_view bytes, size_t at) {
  return static_cast<uint16_t>(static_cast<uint8_t>(bytes[at]) | static_cast<uint8_t>(bytes[at + 1]) << 8);
}
inline uint32_t ReadU32(std::string_view bytes, size_t at) {
  uint32_t out = 0;
  for (size_t b = 0; b < 4; ++b) out |= uint32_t{static_cast<uint8_t>(bytes[at + b])} << (8 * b);
  return out;
}
inline uint64_t ReadU64(std::string_view bytes, size_t at) { return uint64_t{ReadU32(bytes, at)} | uint64_t{ReadU32(bytes, at + 4)} << 32; }

}  // namespace palpate::record
