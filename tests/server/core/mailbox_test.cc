#include "server/core/mailbox.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace palpate::server::mailbox_test {
namespace {

TEST(Mailbox, GivesTheNewestOnce) {
  Mailbox<int> mailbox;
  int value = -1;
  EXPECT_FALSE(mailbox.Read(value));
  EXPECT_EQ(value, -1);
  mailbox.Write(1);
  mailbox.Write(2);
  mailbox.Write(3);
  EXPECT_TRUE(mailbox.Read(value));
  EXPECT_EQ(value, 3);
  EXPECT_FALSE(mailbox.Read(value));
  mailbox.Write(4);
  EXPECT_TRUE(mailbox.Read(value));
  EXPECT_EQ(value, 4);
}

struct Pair {
  uint64_t a = 0;
  uint64_t filler[30] = {};
  uint64_t b = 0;
};

TEST(Mailbox, NeverTearsAndNeverGoesBack) {
  Mailbox<Pair> mailbox;
  constexpr uint64_t kCount = 200000;
  std::thread writer([&] {
    for (uint64_t i = 1; i <= kCount; ++i) {
      Pair pair;
      pair.a = pair.b = i;
      for (uint64_t& f : pair.filler) f = i;
      mailbox.Write(pair);
    }
  });
  uint64_t last = 0;
  while (last < kCount) {
    Pair pair;
    if (!mailbox.Read(pair)) continue;
    ASSERT_EQ(pair.a, pair.b);
    ASSERT_EQ(pair.filler[17], pair.a);
    ASSERT_GT(pair.a, last);
    last = pair.a;
  }
  writer.join();
  EXPECT_EQ(last, kCount);
}

}  // namespace
}  // namespace palpate::server::mailbox_test
