#include "server/web/guess_limiter.h"

#include <gtest/gtest.h>

#include <string>

namespace palpate::server::guess_limiter_test {
namespace {

constexpr GuessLimiter::Clock::time_point kStart{};

TEST(GuessLimiter, RefusesAnAddressAfterTooManyWrongOnesForAWhile) {
  GuessLimiter limiter;
  for (int i = 0; i < GuessLimiter::kMaxWrong; ++i) {
    EXPECT_TRUE(limiter.MayGuess("a", kStart));
    limiter.OnWrong("a", kStart);
  }
  EXPECT_FALSE(limiter.MayGuess("a", kStart));
  EXPECT_TRUE(limiter.MayGuess("b", kStart));
  EXPECT_FALSE(limiter.MayGuess("a", kStart + GuessLimiter::kWindow - std::chrono::nanoseconds(1)));
  EXPECT_TRUE(limiter.MayGuess("a", kStart + GuessLimiter::kWindow));
  limiter.OnWrong("a", kStart + GuessLimiter::kWindow);
  EXPECT_TRUE(limiter.MayGuess("a", kStart + GuessLimiter::kWindow)) << "a new window begins at nothing";
}

TEST(GuessLimiter, RemembersABoundedNumberOfAddresses) {
  GuessLimiter limiter;
  for (int i = 0; i < GuessLimiter::kMaxWrong; ++i) limiter.OnWrong("first", kStart);
  for (size_t i = 1; i < GuessLimiter::kMaxAddresses; ++i) limiter.OnWrong(std::to_string(i), kStart + std::chrono::seconds(1));
  EXPECT_FALSE(limiter.MayGuess("first", kStart));
  limiter.OnWrong("one more", kStart + std::chrono::seconds(1));
  EXPECT_TRUE(limiter.MayGuess("first", kStart)) << "forgotten, so that memory is bounded";
}

}  // namespace
}  // namespace palpate::server::guess_limiter_test
