#include "gpu/primitives/scan.h"

#include <algorithm>
#include <numeric>

#include "tests/gpu/primitives/primitive_test.h"

namespace palpate::gpu::scan_test {
namespace {

constexpr uint32_t kUntouched = 0xdeadbeefU;

class ScanTest : public test::DeviceTest {
 protected:
  void CheckExclusiveScan(ExclusiveScan& scan, const std::vector<uint32_t>& values, const std::string& where) {
    std::vector<uint32_t> expected(values.size());
    std::exclusive_scan(values.begin(), values.end(), expected.begin(), 0U);
    const uint32_t sum = std::accumulate(values.begin(), values.end(), 0U);
    const auto in = Upload(values);
    const auto out = Upload(std::vector<uint32_t>(values.size(), kUntouched));
    const auto total = Upload(std::vector<uint32_t>{kUntouched});
    const auto count = static_cast<uint32_t>(values.size());
    PALPATE_ASSERT_OK(scan.Run(queue(), in, count, out, total));
    ASSERT_EQ(Download(out), expected) << where;
    ASSERT_EQ(Download(total), std::vector<uint32_t>{sum}) << where;
    ASSERT_EQ(Download(in), values) << where;
    PALPATE_ASSERT_OK(scan.Run(queue(), in, count, in));
    ASSERT_EQ(Download(in), expected) << where << ", in place";
  }

  void CheckCompaction(StreamCompaction& compaction, const std::vector<uint32_t>& flags, const std::string& where) {
    std::vector<uint32_t> expected;
    for (uint32_t i = 0; i < flags.size(); ++i) {
      if (flags[i] != 0) expected.push_back(i);
    }
    const auto kept_count = static_cast<uint32_t>(expected.size());
    expected.resize(flags.size(), kUntouched);
    const auto in = Upload(flags);
    const auto indices = Upload(std::vector<uint32_t>(flags.size(), kUntouched));
    const auto kept = Upload(std::vector<uint32_t>{kUntouched});
    PALPATE_ASSERT_OK(compaction.Run(queue(), in, static_cast<uint32_t>(flags.size()), indices, kept));
    ASSERT_EQ(Download(kept), std::vector<uint32_t>{kept_count}) << where;
    ASSERT_EQ(Download(indices), expected) << where;
  }

  template <typename Key>
  void CheckRuns(RunLengthEncode<Key>& encode, const std::vector<Key>& keys, const std::string& where) {
    std::vector<Key> expected_keys;
    std::vector<uint32_t> expected_begins;
    for (uint32_t i = 0; i < keys.size(); ++i) {
      if (i == 0 || keys[i] != keys[i - 1]) {
        expected_keys.push_back(keys[i]);
        expected_begins.push_back(i);
      }
    }
    expected_begins.push_back(static_cast<uint32_t>(keys.size()));
    const auto in = Upload(keys);
    const auto run_keys = Allocate<Key>(keys.size());
    const auto run_begins = Allocate<uint32_t>(keys.size() + 1);
    const auto run_count = Upload(std::vector<uint32_t>{kUntouched});
    PALPATE_ASSERT_OK(encode.Run(queue(), in, static_cast<uint32_t>(keys.size()), run_keys, run_begins, run_count));
    ASSERT_EQ(Download(run_count), std::vector<uint32_t>{static_cast<uint32_t>(expected_keys.size())}) << where;
    ASSERT_EQ(Download(run_keys, expected_keys.size()), expected_keys) << where;
    ASSERT_EQ(Download(run_begins, expected_begins.size()), expected_begins) << where;
  }
};

template <typename T>
std::vector<T> SegmentedReference(const std::vector<T>& values, const std::vector<uint32_t>& heads, T* last) {
  std::vector<T> out(values.size());
  T sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (heads[i] != 0) sum = 0;
    out[i] = sum;
    sum += values[i];
  }
  *last = sum;
  return out;
}

std::vector<std::pair<std::string, std::vector<uint32_t>>> HeadPatterns(size_t size, uint64_t seed) {
  auto patterns = TestPatterns<uint32_t>(size, seed);
  std::mt19937_64 random(seed + 1);
  std::vector<uint32_t> rare(size);
  for (uint32_t& flag : rare) flag = random() % 500 == 0 ? static_cast<uint32_t>(random()) | 1U : 0U;
  patterns.emplace_back("rare", rare);
  std::vector<uint32_t> last(size, 0);
  if (size > 0) last.back() = 1;
  patterns.emplace_back("last only", last);
  return patterns;
}

TEST_F(ScanTest, ExclusiveScanEqualsStd) {
  for (const NamedConfig& config : TestConfigs()) {
    PALPATE_TEST_ASSIGN(ExclusiveScan scan, ExclusiveScan::Create(context(), config.config));
    for (const uint32_t size : TestSizes()) {
      for (const auto& [pattern, values] : TestPatterns<uint32_t>(size, size)) {
        CheckExclusiveScan(scan, values, Where(config, pattern, values));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(ScanTest, SegmentedScanOfIntegersEqualsASerialLoop) {
  for (const NamedConfig& config : TestConfigs()) {
    PALPATE_TEST_ASSIGN(SegmentedScan<uint32_t> scan, SegmentedScan<uint32_t>::Create(context(), config.config));
    for (const uint32_t size : TestSizes()) {
      const std::vector<uint32_t> values = TestPatterns<uint32_t>(size, size).front().second;
      for (const auto& [pattern, flags] : HeadPatterns(size, size)) {
        uint32_t last = 0;
        const std::vector<uint32_t> expected = SegmentedReference(values, flags, &last);
        const auto in = Upload(values);
        const auto heads = Upload(flags);
        const auto out = Upload(std::vector<uint32_t>(size, kUntouched));
        const auto total = Upload(std::vector<uint32_t>{kUntouched});
        PALPATE_ASSERT_OK(scan.Run(queue(), in, heads, size, out, total));
        ASSERT_EQ(Download(out), expected) << Where(config, pattern, flags);
        ASSERT_EQ(Download(total), std::vector<uint32_t>{last}) << Where(config, pattern, flags);
        PALPATE_ASSERT_OK(scan.Run(queue(), in, heads, size, in));
        ASSERT_EQ(Download(in), expected) << Where(config, pattern, flags) << ", in place";
      }
    }
  }
}

TEST_F(ScanTest, SegmentedScanOfFloatsIsCloseAndTheSameEachTime) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(0, 1);
  for (const NamedConfig& config : TestConfigs()) {
    PALPATE_TEST_ASSIGN(SegmentedScan<float> scan, SegmentedScan<float>::Create(context(), config.config));
    for (const uint32_t size : {0U, 1U, 2U, 63U, 64U, 65U, 1009U, kManyElements}) {
      std::vector<float> values(size);
      for (float& value : values) value = uniform(random);
      for (const auto& [pattern, flags] : HeadPatterns(size, size)) {
        double last = 0;
        const std::vector<double> expected = SegmentedReference(std::vector<double>(values.begin(), values.end()), flags, &last);
        const auto in = Upload(values);
        const auto heads = Upload(flags);
        const auto out = Allocate<float>(size);
        PALPATE_ASSERT_OK(scan.Run(queue(), in, heads, size, out));
        const std::vector<float> first = Download(out);
        for (size_t i = 0; i < size; ++i) {
          // All terms are positive, so n additions are off by n rounding errors at most.
          ASSERT_NEAR(first[i], expected[i], (expected[i] + 1) * 6e-8 * (static_cast<double>(i) + 1)) << Where(config, pattern, flags);
          if (flags[i] != 0) {
            ASSERT_EQ(first[i], 0) << Where(config, pattern, flags);
          }
        }
        const auto again = Allocate<float>(size);
        PALPATE_ASSERT_OK(scan.Run(queue(), in, heads, size, again));
        ASSERT_EQ(Download(again), first) << Where(config, pattern, flags);
      }
    }
  }
}

TEST_F(ScanTest, CompactionKeepsSetFlagsInOrder) {
  for (const NamedConfig& config : TestConfigs()) {
    PALPATE_TEST_ASSIGN(StreamCompaction compaction, StreamCompaction::Create(context(), config.config));
    for (const uint32_t size : TestSizes()) {
      for (const auto& [pattern, flags] : HeadPatterns(size, size)) {
        CheckCompaction(compaction, flags, Where(config, pattern, flags));
        if (HasFatalFailure()) return;
      }
    }
  }
}

template <typename Key>
class RunLengthTest : public ScanTest {};
using RunKeys = ::testing::Types<uint32_t, uint64_t>;
TYPED_TEST_SUITE(RunLengthTest, RunKeys);

TYPED_TEST(RunLengthTest, EncodesRunsOfSortedAndUnsortedKeys) {
  for (const NamedConfig& config : TestConfigs()) {
    PALPATE_TEST_ASSIGN(RunLengthEncode<TypeParam> encode, RunLengthEncode<TypeParam>::Create(this->context(), config.config));
    for (const uint32_t size : TestSizes()) {
      for (auto& [pattern, keys] : TestPatterns<TypeParam>(size, size)) {
        this->CheckRuns(encode, keys, Where(config, pattern, keys));
        std::sort(keys.begin(), keys.end());
        this->CheckRuns(encode, keys, Where(config, pattern + ", sorted", keys));
        if (this->HasFatalFailure()) return;
      }
    }
  }
}

// A count left on the device by an earlier stage limits the next one without a trip to the host.
TEST_F(ScanTest, CountOnTheDeviceLimitsTheWork) {
  for (const NamedConfig& config : TestConfigs()) {
    PALPATE_TEST_ASSIGN(StreamCompaction compaction, StreamCompaction::Create(context(), config.config));
    PALPATE_TEST_ASSIGN(ExclusiveScan scan, ExclusiveScan::Create(context(), config.config));
    PALPATE_TEST_ASSIGN(RunLengthEncode<uint32_t> encode, RunLengthEncode<uint32_t>::Create(context(), config.config));
    const uint32_t size = 10000;
    for (const uint32_t keep_each : {1U, 3U, 7000U}) {
      std::vector<uint32_t> flags(size);
      for (uint32_t i = 0; i < size; ++i) flags[i] = i % keep_each == 0;
      const auto in = Upload(flags);
      const auto indices = Upload(std::vector<uint32_t>(size, 5));
      const auto kept = Allocate<uint32_t>(1);
      const auto sums = Upload(std::vector<uint32_t>(size, kUntouched));
      const auto run_keys = Allocate<uint32_t>(size);
      const auto run_begins = Allocate<uint32_t>(size + 1);
      const auto run_count = Allocate<uint32_t>(1);
      const auto total = Allocate<uint32_t>(1);
      PALPATE_ASSERT_OK(compaction.Run(queue(), in, size, indices, kept));
      PALPATE_ASSERT_OK(scan.Run(queue(), indices, {size, kept}, sums, total));
      PALPATE_ASSERT_OK(encode.Run(queue(), indices, {size, kept}, run_keys, run_begins, run_count));
      const uint32_t n = (size + keep_each - 1) / keep_each;
      std::vector<uint32_t> expected(size, kUntouched);
      uint32_t sum = 0;
      for (uint32_t i = 0; i < n; ++i) {
        expected[i] = sum;
        sum += i * keep_each;
      }
      ASSERT_EQ(Download(kept), std::vector<uint32_t>{n});
      ASSERT_EQ(Download(sums), expected) << config.name << ", each " << keep_each;
      ASSERT_EQ(Download(total), std::vector<uint32_t>{sum});
      ASSERT_EQ(Download(run_count), std::vector<uint32_t>{n});
      ASSERT_EQ(Download(run_begins)[n], n);
    }
    // A count beyond the capacity is cut off.
    const auto beyond = Upload(std::vector<uint32_t>{99});
    const auto in = Upload(std::vector<uint32_t>{1, 1, 1});
    PALPATE_ASSERT_OK(scan.Run(queue(), in, {2, beyond}, in));
    ASSERT_EQ(Download(in), (std::vector<uint32_t>{0, 1, 1}));
  }
}

TEST_F(ScanTest, TooSmallBuffersAreRefused) {
  PALPATE_TEST_ASSIGN(ExclusiveScan scan, ExclusiveScan::Create(context()));
  PALPATE_TEST_ASSIGN(StreamCompaction compaction, StreamCompaction::Create(context()));
  PALPATE_TEST_ASSIGN(SegmentedScan<float> segmented, SegmentedScan<float>::Create(context()));
  PALPATE_TEST_ASSIGN(RunLengthEncode<uint64_t> encode, RunLengthEncode<uint64_t>::Create(context()));
  const auto two = Allocate<uint32_t>(2);
  const auto three = Allocate<uint32_t>(3);
  const auto none = Allocate<uint32_t>(0);
  const auto floats = Allocate<float>(3);
  const auto keys = Allocate<uint64_t>(3);
  for (const absl::Status& status : {scan.Run(queue(), two, 3, three), scan.Run(queue(), three, 3, two),
                                     scan.Run(queue(), three, 3, three, none), compaction.Run(queue(), two, 3, three, three),
                                     compaction.Run(queue(), three, 3, two, three), compaction.Run(queue(), three, 3, three, none),
                                     segmented.Run(queue(), floats, two, 3, floats), encode.Run(queue(), keys, 3, keys, three, three)}) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  }
}

TEST_F(ScanTest, WrongConfigurationsAreRefused) {
  for (const PrimitiveConfig& config : {PrimitiveConfig{.group_size = 3, .max_groups = 1, .min_chunk = 1},
                                        PrimitiveConfig{.group_size = 0, .max_groups = 1, .min_chunk = 1},
                                        PrimitiveConfig{.group_size = 1, .max_groups = 0, .min_chunk = 1},
                                        PrimitiveConfig{.group_size = 1, .max_groups = 1025, .min_chunk = 1},
                                        PrimitiveConfig{.group_size = 1, .max_groups = 1, .min_chunk = 0}}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ExclusiveScan::Create(context(), config).status()));
  }
}

TEST_F(ScanTest, SlowScansAndCompactsTenMillionValues) {
  const uint32_t size = 10'000'019;
  const auto patterns = TestPatterns<uint32_t>(size, 3);
  PALPATE_TEST_ASSIGN(ExclusiveScan scan, ExclusiveScan::Create(context()));
  PALPATE_TEST_ASSIGN(StreamCompaction compaction, StreamCompaction::Create(context()));
  PALPATE_TEST_ASSIGN(RunLengthEncode<uint32_t> encode, RunLengthEncode<uint32_t>::Create(context()));
  for (const size_t pattern : {0U, 1U, 2U}) {
    CheckExclusiveScan(scan, patterns[pattern].second, patterns[pattern].first);
    CheckCompaction(compaction, patterns[pattern].second, patterns[pattern].first);
    CheckRuns(encode, patterns[pattern].second, patterns[pattern].first);
  }
}

}  // namespace
}  // namespace palpate::gpu::scan_test
