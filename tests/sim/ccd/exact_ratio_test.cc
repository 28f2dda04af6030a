#include "sim/ccd/exact_ratio.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>

namespace palpate::sim::exact_ratio_test {
namespace {

// 2^n times a natural number, in decimal.
std::string PowerOfTwo(int n, std::string digits = "1") {
  for (int i = 0; i < n; ++i) {
    int carry = 0;
    for (auto d = digits.rbegin(); d != digits.rend(); ++d) {
      const int twice = 2 * (*d - '0') + carry;
      *d = static_cast<char>('0' + twice % 10);
      carry = twice / 10;
    }
    if (carry != 0) digits.insert(digits.begin(), '1');
  }
  return digits;
}

void ExpectExact(const std::string& numerator, const std::string& denominator, double expected) {
  const auto result = RoundRatio(numerator, denominator);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->value, expected);
  EXPECT_EQ(result->error, 0) << numerator << "/" << denominator;
}

TEST(ExactRatio, DoublesAreExact) {
  ExpectExact("0", "5", 0);
  ExpectExact("-3", "4", -0.75);
  ExpectExact("3", "-4", -0.75);
  ExpectExact("-3", "-4", 0.75);
  ExpectExact("+6", "3", 2);
  ExpectExact("9007199254740993", "9007199254740993", 1);
  ExpectExact("-5348868689029467", "324518553658426726783156020576256", -5348868689029467 * 0x1p-108);
  ExpectExact("1", PowerOfTwo(1074), std::numeric_limits<double>::denorm_min());
  ExpectExact("3", PowerOfTwo(1074), 3 * std::numeric_limits<double>::denorm_min());
  ExpectExact(PowerOfTwo(1023), "1", 0x1p1023);
  ExpectExact(PowerOfTwo(3000), PowerOfTwo(2990), 1024);
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    // An odd factor on both sides leaves the value and takes the long way.
    const auto n = static_cast<uint32_t>(random()), factor = static_cast<uint32_t>(random()) | 1U;
    const int shift = static_cast<int>(random() % 60);
    ExpectExact(std::to_string(uint64_t{n} * factor), PowerOfTwo(shift, std::to_string(factor)), std::ldexp(n, -shift));
  }
}

TEST(ExactRatio, OthersAreWithinTheirError) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 2000; ++i) {
    const uint64_t n = random() >> (random() % 60), d = (random() >> (random() % 60)) | 3U;
    const auto result = RoundRatio(std::to_string(n), std::to_string(d));
    ASSERT_TRUE(result.ok());
    const auto exact = static_cast<long double>(n) / static_cast<long double>(d);
    const auto off = static_cast<double>(std::abs(exact - static_cast<long double>(result->value)));
    EXPECT_LE(off, result->error + 1e-3 * std::abs(result->value) * 0x1p-53) << n << "/" << d;
    EXPECT_LE(result->error, std::abs(result->value) * 0x1p-51);
  }
  const auto small = RoundRatio("1", PowerOfTwo(1080));
  ASSERT_TRUE(small.ok());
  EXPECT_EQ(small->value, 0);
  EXPECT_EQ(small->error, std::numeric_limits<double>::denorm_min());
  EXPECT_GT(RoundRatio("1", "3")->error, 0);
}

TEST(ExactRatio, BadInputIsRefused) {
  for (const auto& [n, d, what] : {std::array<std::string, 3>{"1", "0", "denominator"},
                                   {"1", "", "not an integer"},
                                   {"x", "1", "not an integer"},
                                   {"1.5", "1", "not an integer"},
                                   {"--1", "1", "not an integer"},
                                   {"-", "1", "not an integer"},
                                   {std::string(kMaxRatioDigits + 1, '1'), "1", "longer than the limit"},
                                   {PowerOfTwo(1024), "1", "larger than any double"}}) {
    const auto result = RoundRatio(n, d);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(result.status().message()), testing::HasSubstr(what));
  }
}

}  // namespace
}  // namespace palpate::sim::exact_ratio_test
