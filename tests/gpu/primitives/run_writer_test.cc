#include "gpu/primitives/run_writer.h"

#include <random>

#include "tests/support/device_test.h"

namespace palpate::gpu::run_writer_test {
namespace {

class RunWriterTest : public test::DeviceTest {};

// Random runs for more buffers than a launch has targets, of several element types, against the same writes on the host.
TEST_F(RunWriterTest, WritesWhatTheHostWouldWrite) {
  constexpr size_t kBuffers = 19;
  constexpr size_t kElements = 700;
  std::mt19937_64 random(3);
  PALPATE_TEST_ASSIGN(RunWriter writer, RunWriter::Create(context()));
  std::vector<DeviceBuffer<UInt4>> wide(kBuffers);
  std::vector<DeviceBuffer<float>> narrow(kBuffers);
  std::vector<std::vector<UInt4>> wide_host(kBuffers, std::vector<UInt4>(kElements));
  std::vector<std::vector<float>> narrow_host(kBuffers, std::vector<float>(kElements));
  for (size_t b = 0; b < kBuffers; ++b) {
    PALPATE_TEST_ASSIGN(wide[b], CreateBufferFrom(queue(), std::span<const UInt4>(wide_host[b]), "wide"));
    PALPATE_TEST_ASSIGN(narrow[b], CreateBufferFrom(queue(), std::span<const float>(narrow_host[b]), "narrow"));
  }
  for (int flush = 0; flush < 5; ++flush) {
    for (size_t b = 0; b < kBuffers; ++b) {
      if (random() % 4 == 0) continue;
      for (size_t at = random() % 50; at < kElements;) {
        const size_t length = std::min<size_t>(1 + random() % (flush == 0 ? 600 : 7), kElements - at);
        for (size_t k = at; k < at + length; ++k) {
          const auto word = [&] { return static_cast<uint32_t>(random()); };
          wide_host[b][k] = {word(), word(), word(), word()};
          narrow_host[b][k] = static_cast<float>(word());
        }
        PALPATE_ASSERT_OK(writer.Add(wide[b], std::span<const UInt4>(wide_host[b]).subspan(at, length), at));
        PALPATE_ASSERT_OK(writer.Add(narrow[b], std::span<const float>(narrow_host[b]).subspan(at, length), at));
        at += length + random() % 90;
      }
    }
    PALPATE_ASSERT_OK(writer.Flush(queue()).status());
    EXPECT_EQ(writer.pending_bytes(), 0U);
    for (size_t b = 0; b < kBuffers; ++b) {
      std::vector<UInt4> w(kElements);
      std::vector<float> f(kElements);
      PALPATE_ASSERT_OK(queue().ReadBlocking(wide[b], std::span<UInt4>(w)));
      PALPATE_ASSERT_OK(queue().ReadBlocking(narrow[b], std::span<float>(f)));
      ASSERT_EQ(w, wide_host[b]) << "buffer " << b << ", flush " << flush;
      ASSERT_EQ(f, narrow_host[b]) << "buffer " << b << ", flush " << flush;
    }
  }
}

TEST_F(RunWriterTest, ElementsWithAStrideGoToTheirPlaces) {
  PALPATE_TEST_ASSIGN(RunWriter writer, RunWriter::Create(context()));
  std::vector<uint32_t> before(30, 7);
  std::vector<uint32_t> values(30);
  for (uint32_t i = 0; i < 30; ++i) values[i] = 100 + i;
  PALPATE_TEST_ASSIGN(DeviceBuffer<uint32_t> buffer, CreateBufferFrom(queue(), std::span<const uint32_t>(before), "strided"));
  const std::vector<uint32_t> elements = {0, 3, 4, 9};
  PALPATE_ASSERT_OK(writer.AddElements(buffer, values, elements, 3));
  EXPECT_EQ(writer.pending_bytes(), 4 * 3 * sizeof(uint32_t));
  PALPATE_ASSERT_OK(writer.Flush(queue()).status());
  for (const uint32_t e : elements) std::copy_n(values.begin() + 3 * e, 3, before.begin() + 3 * e);
  std::vector<uint32_t> found(30);
  PALPATE_ASSERT_OK(queue().ReadBlocking(buffer, std::span<uint32_t>(found)));
  EXPECT_EQ(found, before);
}

TEST_F(RunWriterTest, RefusesRunsPastTheEnd) {
  PALPATE_TEST_ASSIGN(RunWriter writer, RunWriter::Create(context()));
  PALPATE_TEST_ASSIGN(const DeviceBuffer<Float4> buffer, DeviceBuffer<Float4>::Create(context(), 4, "small"));
  const std::vector<Float4> values(3);
  PALPATE_EXPECT_OK(writer.Add(buffer, std::span<const Float4>(values), 1));
  const absl::Status status = writer.Add(buffer, std::span<const Float4>(values), 2);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_NE(std::string(status.message()).find("small"), std::string::npos) << status;
  EXPECT_TRUE(absl::IsInvalidArgument(writer.Add(buffer, std::span<const Float4>(values), SIZE_MAX)));
  PALPATE_EXPECT_OK(writer.Add(buffer, std::span<const Float4>(), 4));
}

}  // namespace
}  // namespace palpate::gpu::run_writer_test
