#include "sim/ccd/exact_ratio.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/strings/str_format.h"
#include "sim/mesh/io_cursor.h"

namespace palpate::sim {
namespace {

/// A natural number: 32-bit digits, least significant first, no leading zero.
using Natural = std::vector<uint32_t>;

struct Integer {
  Natural magnitude;
  bool is_negative = false;
};

void Trim(Natural& n) {
  while (!n.empty() && n.back() == 0) n.pop_back();
}

absl::StatusOr<Integer> ParseInteger(std::string_view text) {
  Integer result;
  std::string_view digits = text;
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) {
    result.is_negative = digits[0] == '-';
    digits.remove_prefix(1);
  }
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " is not an integer"));
  }
  if (digits.size() > kMaxRatioDigits) {
    return absl::InvalidArgumentError(
        absl::StrFormat("an integer of %d digits is longer than the limit of %d", digits.size(), kMaxRatioDigits));
  }
  for (size_t i = 0; i < digits.size();) {
    // Nine digits at a time fit into 32 bits.
    uint64_t carry = 0;
    uint64_t factor = 1;
    for (const size_t end = std::min(i + 9, digits.size()); i < end; ++i) {
      carry = carry * 10 + static_cast<uint64_t>(digits[i] - '0');
      factor *= 10;
    }
    for (uint32_t& digit : result.magnitude) {
      carry += digit * factor;
      digit = static_cast<uint32_t>(carry);
      carry >>= 32;
    }
    if (carry != 0) result.magnitude.push_back(static_cast<uint32_t>(carry));
  }
  Trim(result.magnitude);
  return result;
}

int64_t BitCount(const Natural& n) { return n.empty() ? 0 : 32 * static_cast<int64_t>(n.size()) - std::countl_zero(n.back()); }

// Precondition: at most 64 bits.
uint64_t ToUint64(const Natural& n) { return (n.size() > 1 ? uint64_t{n[1]} << 32 : 0) | (n.empty() ? 0 : n[0]); }

Natural ShiftLeft(const Natural& n, uint64_t bits) {
  Natural result(bits / 32, 0);
  const unsigned rest = bits % 32;
  uint64_t carry = 0;
  for (const uint32_t digit : n) {
    carry |= uint64_t{digit} << rest;
    result.push_back(static_cast<uint32_t>(carry));
    carry >>= 32;
  }
  result.push_back(static_cast<uint32_t>(carry));
  Trim(result);
  return result;
}

bool IsLess(const Natural& a, const Natural& b) {
  if (a.size() != b.size()) return a.size() < b.size();
  return std::lexicographical_compare(a.rbegin(), a.rend(), b.rbegin(), b.rend());
}

// a -= b; precondition: b <= a.
void Subtract(Natural& a, const Natural& b) {
  int64_t borrow = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    int64_t digit = static_cast<int64_t>(a[i]) - (i < b.size() ? b[i] : 0) + borrow;
    borrow = digit < 0 ? -1 : 0;
    a[i] = static_cast<uint32_t>(digit);
  }
  Trim(a);
}

}  // namespace

absl::StatusOr<RoundedReal> RoundRatio(std::string_view numerator, std::string_view denominator) {
  PALPATE_ASSIGN_OR_RETURN(const Integer n, ParseInteger(numerator));
  PALPATE_ASSIGN_OR_RETURN(const Integer d, ParseInteger(denominator));
  if (d.magnitude.empty()) return absl::InvalidArgumentError("the denominator is 0");
  if (n.magnitude.empty()) return RoundedReal{};
  if (BitCount(n.magnitude) <= 53 && BitCount(d.magnitude) <= 64) {
    const uint64_t top = ToUint64(n.magnitude);
    const uint64_t bottom = ToUint64(d.magnitude);
    if (std::has_single_bit(bottom)) {
      const double value = std::ldexp(static_cast<double>(top), -std::countr_zero(bottom));
      return RoundedReal{n.is_negative != d.is_negative ? -value : value, 0};
    }
  }
  // A quotient of 63 or 64 bits, and whether anything is left over.
  const int64_t shift = 63 - (BitCount(n.magnitude) - BitCount(d.magnitude));
  Natural rest = ShiftLeft(n.magnitude, static_cast<uint64_t>(std::max<int64_t>(shift, 0)));
  const Natural divisor = ShiftLeft(d.magnitude, static_cast<uint64_t>(std::max<int64_t>(-shift, 0)));
  uint64_t quotient = 0;
  for (int bit = 63; bit >= 0; --bit) {
    const Natural part = ShiftLeft(divisor, static_cast<uint64_t>(bit));
    if (IsLess(rest, part)) continue;
    Subtract(rest, part);
    quotient |= uint64_t{1} << bit;
  }
  // The high 53 bits, or fewer where the result is denormal; toward zero.
  const int64_t exponent = static_cast<int64_t>(std::bit_width(quotient)) - shift;  // the ratio is below 2^exponent
  if (exponent > std::numeric_limits<double>::max_exponent) return absl::InvalidArgumentError("the ratio is larger than any double");
  const int64_t kept = std::clamp<int64_t>(exponent + 1074, 0, 53);
  const int64_t dropped = static_cast<int64_t>(std::bit_width(quotient)) - kept;
  const uint64_t head = dropped >= 64 ? 0 : dropped > 0 ? quotient >> dropped : quotient;
  const bool is_exact = rest.empty() && (dropped <= 0 || (dropped < 64 && head << dropped == quotient));
  RoundedReal result;
  result.value = std::ldexp(static_cast<double>(head), static_cast<int>(std::max<int64_t>(dropped, 0) - shift));
  if (!is_exact) result.error = std::nextafter(result.value, std::numeric_limits<double>::infinity()) - result.value;
  if (n.is_negative != d.is_negative) result.value = -result.value;
  return result;
}

}  // namespace palpate::sim
