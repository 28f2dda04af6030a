#include "gpu/base/state_archive.h"

namespace palpate {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78U;  // Castagnoli's, bits reversed

/// table[k][b]: the CRC of byte b and k zero bytes behind it.
constexpr std::array<std::array<uint32_t, 256>, 8> MakeTables() {
  std::array<std::array<uint32_t, 256>, 8> table{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    table[0][b] = crc;
  }
  for (uint32_t b = 0; b < 256; ++b) {
    for (size_t k = 1; k < 8; ++k) table[k][b] = (table[k - 1][b] >> 8) ^ table[0][table[k - 1][b] & 0xff];
  }
  return table;
}

constexpr std::array<std::array<uint32_t, 256>, 8> kTables = MakeTables();

}  // namespace

uint32_t Crc32c(std::string_view bytes, uint32_t crc) {
  crc = ~crc;
  const char* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, at, 8);
    word ^= crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][word >> (8 * k) & 0xff];
  }
  for (; left > 0; --left, ++at) crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<unsigned char>(*at)) & 0xff];
  return ~crc;
}

void StateReader::Fail(absl::string_view what) {
  if (!status_.ok()) return;
  std::string where = where_.empty() ? std::string() : absl::StrCat(", ", where_);
  status_ = absl::InvalidArgumentError(absl::StrCat(what_, where, ", byte ", at_, " of ", bytes_.size(), ": ", what));
}

}  // namespace palpate
