#include "clients/station/triple_buffer.h"

#include <array>
#include <cstdint>
#include <thread>

#include <gtest/gtest.h>

namespace palpate::station::triple_buffer_test {
namespace {

TEST(TripleBuffer, GivesTheNewestValueOnce) {
  TripleBuffer<int> buffer;
  EXPECT_FALSE(buffer.Update());
  EXPECT_EQ(buffer.front(), 0);
  buffer.Write(1);
  buffer.Write(2);
  buffer.Write(3);
  ASSERT_TRUE(buffer.Update());
  EXPECT_EQ(buffer.front(), 3);
  EXPECT_FALSE(buffer.Update());
  EXPECT_EQ(buffer.front(), 3);
  buffer.Write(4);
  EXPECT_EQ(buffer.front(), 3);
  ASSERT_TRUE(buffer.Update());
  EXPECT_EQ(buffer.front(), 4);
}

TEST(TripleBuffer, NeverTearsAValueOrGoesBack) {
  struct Value {
    std::array<uint64_t, 64> words{};
  };
  constexpr uint64_t kLast = 200000;
  TripleBuffer<Value> buffer;
  std::thread writer([&] {
    for (uint64_t i = 1; i <= kLast; ++i) {
      buffer.back().words.fill(i);
      buffer.Publish();
    }
  });
  uint64_t seen = 0;
  uint64_t torn = 0;
  uint64_t backward = 0;
  while (seen != kLast) {
    if (!buffer.Update()) {
      std::this_thread::yield();
      continue;
    }
    const auto& words = buffer.front().words;
    for (const uint64_t word : words) torn += word != words[0] ? 1 : 0;
    backward += words[0] <= seen ? 1 : 0;
    seen = words[0];
  }
  writer.join();
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(backward, 0);
}

}  // namespace
}  // namespace palpate::station::triple_buffer_test
