#pragma once

#include <string_view>

#include "gpu/base/status.h"

namespace palpate::sim {

/// A real number as a double and what that may be off.
struct RoundedReal {
  double value = 0;
  double error = 0;  ///< |value - exact| <= error; 0 if the value is exact
};

/// Longest integer, in digits, that RoundRatio takes.
inline constexpr size_t kMaxRatioDigits = 4096;

/// The ratio of two decimal integers of any size (an optional sign, then digits). Exact wherever the ratio is a double; otherwise within
/// one unit in the last place. Errors: InvalidArgument (not an integer, too many digits, denominator 0, larger than any double); the
/// message does not name the source.
absl::StatusOr<RoundedReal> RoundRatio(std::string_view numerator, std::string_view denominator);

}  // namespace palpate::sim
