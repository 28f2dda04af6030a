#include "gpu/primitives/radix_sort.h"

#include <algorithm>
#include <numeric>

#include "gpu/shared/float_key.h"
#include "tests/gpu/primitives/primitive_test.h"

namespace palpate::gpu::radix_sort_test {
namespace {

template <typename Key>
uint64_t OrderOf(Key key) {
  if constexpr (std::is_same_v<Key, float>) {
    return FloatBitsToKey(std::bit_cast<uint32_t>(key));
  } else {
    return key;
  }
}

class RadixSortTest : public test::DeviceTest {
 protected:
  // Compares with std::stable_sort on the chosen bits. Keys are compared as bits, so that -0 and +0 differ.
  template <typename Key>
  void Check(RadixSort<Key>& sort, const std::vector<Key>& keys, BitRange bits, bool values_are_indices, const std::string& where) {
    const auto count = static_cast<uint32_t>(keys.size());
    std::vector<uint32_t> values(count);
    for (uint32_t i = 0; i < count; ++i) values[i] = values_are_indices ? i : i * 2654435761U;
    std::vector<uint32_t> order(count);
    std::iota(order.begin(), order.end(), 0U);
    const uint32_t width = bits.end - bits.begin;
    const uint64_t mask = width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
    const auto part = [&](uint32_t i) { return width == 0 ? 0 : OrderOf(keys[i]) >> bits.begin & mask; };
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return part(a) < part(b); });
    std::vector<Key> expected_keys(count);
    std::vector<uint32_t> expected_values(count);
    for (uint32_t i = 0; i < count; ++i) {
      expected_keys[i] = keys[order[i]];
      expected_values[i] = values[order[i]];
    }
    const auto keys_in = Upload(keys);
    const auto values_in = Upload(values);
    const auto keys_out = Allocate<Key>(count);
    const auto values_out = Allocate<uint32_t>(count);
    PALPATE_ASSERT_OK(
        sort.Run(queue(), keys_in, values_are_indices ? BufferView<uint32_t>() : values_in.view(), count, keys_out, values_out, bits));
    const std::vector<Key> sorted = Download(keys_out);
    ASSERT_TRUE(count == 0 || std::memcmp(sorted.data(), expected_keys.data(), count * sizeof(Key)) == 0) << where;
    ASSERT_EQ(Download(values_out), expected_values) << where;
    const std::vector<Key> in_after = Download(keys_in);
    ASSERT_TRUE(count == 0 || std::memcmp(in_after.data(), keys.data(), count * sizeof(Key)) == 0) << where << ": input changed";
  }
};

template <typename Key>
class IntegerSortTest : public RadixSortTest {};
using Integers = ::testing::Types<uint32_t, uint64_t>;
TYPED_TEST_SUITE(IntegerSortTest, Integers);

TYPED_TEST(IntegerSortTest, EqualsStableSort) {
  using Key = TypeParam;
  for (const NamedConfig& config : TestConfigs()) {
    PALPATE_TEST_ASSIGN(RadixSort<Key> sort, RadixSort<Key>::Create(this->context(), 100000, config.config));
    for (const uint32_t size : TestSizes()) {
      if (size > 5000 && config.name == "sequential") continue;  // the same code as "device", only slower
      bool values_are_indices = false;
      for (const auto& [pattern, keys] : TestPatterns<Key>(size, size)) {
        this->Check(sort, keys, RadixSort<Key>::kAllBits, values_are_indices, Where(config, pattern, keys));
        if (this->HasFatalFailure()) return;
        values_are_indices = !values_are_indices;
      }
    }
  }
}

TYPED_TEST(IntegerSortTest, OnlyTheChosenBitsCount) {
  using Key = TypeParam;
  const uint32_t all = 8 * sizeof(Key);
  for (const NamedConfig& config : TestConfigs()) {
    PALPATE_TEST_ASSIGN(RadixSort<Key> sort, RadixSort<Key>::Create(this->context(), 2000, config.config));
    const std::vector<Key> keys = TestPatterns<Key>(2000, 9).front().second;
    for (const BitRange bits : {BitRange{0, 1}, BitRange{all - 1, all}, BitRange{0, 8}, BitRange{3, 10}, BitRange{4, 20}, BitRange{5, 28},
                                BitRange{all - 9, all}, BitRange{1, all}, BitRange{7, 7}, BitRange{all, all}, BitRange{0, 0}}) {
      this->Check(sort, keys, bits, false, config.name + " bits " + std::to_string(bits.begin) + " to " + std::to_string(bits.end));
      if (this->HasFatalFailure()) return;
    }
  }
}

TEST_F(RadixSortTest, SortsFloatsOfEverySignAndSize) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::mt19937 random(4);
  for (const NamedConfig& config : TestConfigs()) {
    PALPATE_TEST_ASSIGN(RadixSort<float> sort, RadixSort<float>::Create(context(), 100000, config.config));
    std::vector<float> special = {0.0F,
                                  -0.0F,
                                  1.0F,
                                  -1.0F,
                                  kInfinity,
                                  -kInfinity,
                                  1e-45F,
                                  -1e-45F,
                                  1e-39F,
                                  -1e-39F,
                                  std::numeric_limits<float>::min(),
                                  std::numeric_limits<float>::max(),
                                  std::numeric_limits<float>::lowest()};
    Check(sort, special, RadixSort<float>::kAllBits, false, config.name + " special");
    for (const uint32_t size : {1U, 2U, 1009U, kManyElements}) {
      std::vector<float> keys(size);
      for (float& key : keys) {
        do {
          key = std::bit_cast<float>(static_cast<uint32_t>(random()));  // denormals and infinities included
        } while (std::isnan(key));
        if (random() % 50 == 0) key = special[random() % special.size()];
      }
      Check(sort, keys, RadixSort<float>::kAllBits, size % 2 == 0, config.name + " random " + std::to_string(size));
      ASSERT_FALSE(HasFatalFailure());
    }
  }
}

TEST(FloatKeyTest, KeepsTheOrderAndCanBeUndone) {
  std::mt19937 random(6);
  for (int i = 0; i < 100000; ++i) {
    const auto a = static_cast<uint32_t>(random());
    const auto b = static_cast<uint32_t>(random());
    EXPECT_EQ(KeyToFloatBits(FloatBitsToKey(a)), a);
    const auto fa = std::bit_cast<float>(a);
    const auto fb = std::bit_cast<float>(b);
    if (std::isnan(fa) || std::isnan(fb) || fa == fb) continue;
    EXPECT_EQ(fa < fb, FloatBitsToKey(a) < FloatBitsToKey(b)) << fa << " " << fb;
  }
  EXPECT_LT(FloatBitsToKey(std::bit_cast<uint32_t>(-0.0F)), FloatBitsToKey(std::bit_cast<uint32_t>(0.0F)));
}

TEST_F(RadixSortTest, CountOnTheDeviceLimitsTheWork) {
  for (const NamedConfig& config : TestConfigs()) {
    PALPATE_TEST_ASSIGN(RadixSort<uint32_t> sort, RadixSort<uint32_t>::Create(context(), 10000, config.config));
    const std::vector<uint32_t> keys = TestPatterns<uint32_t>(10000, 1).front().second;
    const auto in = Upload(keys);
    for (const uint32_t n : {0U, 1U, 1234U, 10000U, 99999U}) {
      const auto count = Upload(std::vector<uint32_t>{n});
      const auto keys_out = Upload(std::vector<uint32_t>(10000, 5));
      const auto values_out = Upload(std::vector<uint32_t>(10000, 5));
      PALPATE_ASSERT_OK(sort.Run(queue(), in, {}, {10000, count}, keys_out, values_out));
      std::vector<uint32_t> expected = keys;
      const uint32_t m = std::min(n, 10000U);
      std::sort(expected.begin(), expected.begin() + m);
      std::fill(expected.begin() + m, expected.end(), 5U);
      ASSERT_EQ(Download(keys_out), expected) << config.name << " " << n;
    }
  }
}

TEST_F(RadixSortTest, WrongArgumentsAreRefused) {
  PALPATE_TEST_ASSIGN(RadixSort<uint32_t> sort, RadixSort<uint32_t>::Create(context(), 3));
  const auto a = Allocate<uint32_t>(4);
  const auto b = Allocate<uint32_t>(4);
  const auto c = Allocate<uint32_t>(4);
  const auto d = Allocate<uint32_t>(4);
  const auto two = Allocate<uint32_t>(2);
  for (const absl::Status& status :
       {sort.Run(queue(), a, b, 4, c, d), sort.Run(queue(), two, b, 3, c, d), sort.Run(queue(), a, two, 3, c, d),
        sort.Run(queue(), a, b, 3, two, d), sort.Run(queue(), a, b, 3, c, two), sort.Run(queue(), a, b, 3, a, d),
        sort.Run(queue(), a, b, 3, c, b), sort.Run(queue(), a, b, 3, c, d, {4, 3}), sort.Run(queue(), a, b, 3, c, d, {0, 33})}) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(RadixSort<uint32_t>::Create(context(), kMaxItems + 1).status()));
}

TEST_F(RadixSortTest, SlowSortsTenMillionKeys) {
  const uint32_t size = 10'000'019;
  {
    PALPATE_TEST_ASSIGN(RadixSort<uint32_t> sort, RadixSort<uint32_t>::Create(context(), size));
    for (const size_t pattern : {0U, 1U}) {
      const auto [name, keys] = TestPatterns<uint32_t>(size, 8)[pattern];
      Check(sort, keys, RadixSort<uint32_t>::kAllBits, true, name);
    }
  }
  PALPATE_TEST_ASSIGN(RadixSort<uint64_t> sort, RadixSort<uint64_t>::Create(context(), size));
  Check(sort, TestPatterns<uint64_t>(size, 8).front().second, RadixSort<uint64_t>::kAllBits, false, "random");
}

}  // namespace
}  // namespace palpate::gpu::radix_sort_test
