#include "gpu/runtime/buffer.h"

#include <gmock/gmock.h>

#include <numeric>

#include "gpu/runtime/kernel_source.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::kernels {
extern const KernelSource runtime_test;
}  // namespace palpate::gpu::kernels

namespace palpate::gpu::buffer_test {
namespace {

using ::testing::HasSubstr;
using BufferTest = test::DeviceTest;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST_F(BufferTest, WhatIsWrittenIsRead) {
  std::vector<int32_t> values(1000);
  std::iota(values.begin(), values.end(), -500);
  const auto buffer = Upload(values);
  EXPECT_EQ(buffer.count(), 1000U);
  EXPECT_EQ(buffer.size_bytes(), 4000U);
  EXPECT_EQ(Download(buffer), values);
  const std::vector<int32_t> part = {7, 8, 9};
  PALPATE_ASSERT_OK(queue().Write(buffer, part, 997));
  PALPATE_ASSERT_OK(queue().Write(buffer, part));
  std::vector<int32_t> read(4);
  PALPATE_ASSERT_OK(queue().ReadBlocking(buffer, read, 996));
  EXPECT_EQ(read, (std::vector<int32_t>{496, 7, 8, 9}));
  PALPATE_ASSERT_OK(queue().ReadBlocking(buffer, read));
  EXPECT_EQ(read, (std::vector<int32_t>{7, 8, 9, -497}));
}

TEST_F(BufferTest, MovesCarryTheAllocation) {
  DeviceBuffer<int32_t> a = Upload(std::vector<int32_t>{1, 2, 3}, "a");
  const size_t bytes = context()->allocated_bytes();
  DeviceBuffer<int32_t> b = std::move(a);
  EXPECT_FALSE(a);  // NOLINT(bugprone-use-after-move): the state after a move is part of the contract
  EXPECT_EQ(a.handle(), nullptr);
  EXPECT_EQ(context()->allocated_bytes(), bytes);
  EXPECT_EQ(b.name(), "a");
  EXPECT_EQ(Download(b), (std::vector<int32_t>{1, 2, 3}));
  b = Upload(std::vector<int32_t>{4}, "b");
  EXPECT_LT(context()->allocated_bytes(), bytes);
  EXPECT_EQ(Download(b), std::vector<int32_t>{4});
}

TEST_F(BufferTest, EmptyBufferIsAValidArgument) {
  const auto empty = Upload(std::vector<int32_t>{}, "empty");
  EXPECT_TRUE(empty);
  EXPECT_EQ(empty.count(), 0U);
  EXPECT_TRUE(Download(empty).empty());
  PALPATE_EXPECT_OK(queue().Write(empty, std::vector<int32_t>{}));
  PALPATE_EXPECT_OK(queue().Fill(empty, 1));
  PALPATE_EXPECT_OK(queue().Copy(empty, empty, 0));
  PALPATE_TEST_ASSIGN(Kernel kernel, context()->CreateKernel(kernels::runtime_test, "scale_values"));
  PALPATE_EXPECT_OK(queue().Launch(kernel, {0, 1}, Arg("in", empty), Arg("out", empty), Arg("count", 0U)));
  PALPATE_EXPECT_OK(queue().Launch(kernel, {1, 1}, Arg("in", empty), Arg("out", empty), Arg("count", 0U)));
}

TEST_F(BufferTest, AccessPastTheEndIsRefused) {
  const auto buffer = Upload(std::vector<int32_t>{1, 2, 3}, "three");
  std::vector<int32_t> four(4);
  for (const absl::Status& status :
       {queue().Write(buffer, four), queue().Write(buffer, four, 1), queue().ReadBlocking(buffer, four), queue().EnqueueRead(buffer, four),
        queue().ReadBlocking(buffer, std::span(four).first(1), 3), queue().ReadBlocking(buffer, std::span(four).first(1), SIZE_MAX / 4),
        queue().ReadBlocking(buffer, std::span(four).first(1), SIZE_MAX / 4 + 1), queue().Copy(buffer, buffer, 1, 3, 0),
        queue().Copy(buffer, buffer, 1, 0, 3), queue().Copy(buffer, buffer, SIZE_MAX / 4 + 1)}) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(Message(status), HasSubstr("three"));
  }
  EXPECT_EQ(Download(buffer), (std::vector<int32_t>{1, 2, 3}));
}

TEST_F(BufferTest, TooLargeIsRefusedByNameAndSize) {
  const size_t bytes = context()->allocated_bytes();
  const size_t limit = context()->device().max_allocation_bytes;
  for (const size_t count : {limit + 1, SIZE_MAX}) {
    const auto buffer = DeviceBuffer<uint8_t>::Create(context(), count, "huge");
    EXPECT_TRUE(absl::IsResourceExhausted(buffer.status())) << buffer.status();
    EXPECT_THAT(Message(buffer.status()), HasSubstr("huge"));
  }
  // A size in bytes that does not fit 64 bits must not wrap to a small one.
  const auto wrapped = DeviceBuffer<uint64_t>::Create(context(), SIZE_MAX / 8 + 2, "wrapped");
  EXPECT_TRUE(absl::IsResourceExhausted(wrapped.status())) << wrapped.status();
  EXPECT_EQ(context()->allocated_bytes(), bytes);
}

TEST_F(BufferTest, GrowsOnlyWhereItMust) {
  DeviceBuffer<uint32_t> buffer;
  PALPATE_ASSERT_OK(Grow(context(), buffer, 10, "growing"));
  EXPECT_EQ(buffer.count(), 10U);
  PALPATE_ASSERT_OK(queue().Fill(buffer, 7));
  PALPATE_ASSERT_OK(Grow(context(), buffer, 4, "growing"));
  EXPECT_EQ(Download(buffer), std::vector<uint32_t>(10, 7)) << "large enough: untouched";
  PALPATE_ASSERT_OK(Grow(context(), buffer, 11, "growing"));
  EXPECT_EQ(buffer.count(), 16U) << "half as many again";
  EXPECT_TRUE(absl::IsResourceExhausted(Grow(context(), buffer, SIZE_MAX / 8, "growing")));
  EXPECT_FALSE(static_cast<bool>(buffer));
}

TEST_F(BufferTest, FillAndCopyChangeTheirRangeOnly) {
  const auto a = Upload(std::vector<int32_t>(10, 1));
  const auto b = Upload(std::vector<int32_t>(10, 2));
  PALPATE_ASSERT_OK(queue().Fill(a, 5, 4));
  EXPECT_EQ(Download(a), (std::vector<int32_t>{5, 5, 5, 5, 1, 1, 1, 1, 1, 1}));
  PALPATE_ASSERT_OK(queue().Copy(a, b, 3, 3, 7));
  EXPECT_EQ(Download(b), (std::vector<int32_t>{2, 2, 2, 2, 2, 2, 2, 5, 1, 1}));
  PALPATE_ASSERT_OK(queue().Fill(b, 0));
  EXPECT_EQ(Download(b), std::vector<int32_t>(10, 0));
}

TEST_F(BufferTest, MemoryAccountFollowsAllocations) {
  const size_t before = context()->allocated_bytes();
  {
    const auto a = Allocate<uint8_t>(1000);
    const size_t with_a = context()->allocated_bytes();
    EXPECT_GE(with_a, before + 1000);
    const auto b = Allocate<uint8_t>(5000);
    EXPECT_EQ(context()->allocated_bytes() - with_a, with_a - before + 4000);
    EXPECT_GE(context()->peak_allocated_bytes(), context()->allocated_bytes());
  }
  EXPECT_EQ(context()->allocated_bytes(), before);
}

TEST_F(BufferTest, GuardBandsShowWritesBesideTheBuffer) {
  PALPATE_TEST_ASSIGN(Kernel kernel, context()->CreateKernel(kernels::runtime_test, "write_at"));
  PALPATE_EXPECT_OK(context()->CheckGuards());
  {
    const auto inside = Allocate<int32_t>(10, "inside");
    PALPATE_ASSERT_OK(queue().Launch(kernel, {1, 1}, Arg("out", inside), Arg("offset", 9), Arg("value", 42)));
    PALPATE_ASSERT_OK(queue().FinishBlocking());
    PALPATE_EXPECT_OK(context()->CheckGuards());
  }
  for (const int offset : {10, 500, -1, -100}) {
    const auto buffer = Allocate<int32_t>(10, "target");
    PALPATE_ASSERT_OK(queue().Launch(kernel, {1, 1}, Arg("out", buffer), Arg("offset", offset), Arg("value", 42)));
    PALPATE_ASSERT_OK(queue().FinishBlocking());
    const absl::Status status = context()->CheckGuards();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(Message(status), HasSubstr("target"));
    EXPECT_THAT(Message(status), HasSubstr(offset < 0 ? "before its begin" : "behind its end"));
    // Repair it, or the buffer would report itself once more when it goes.
    PALPATE_ASSERT_OK(
        queue().Launch(kernel, {1, 1}, Arg("out", buffer), Arg("offset", offset), Arg("value", static_cast<int>(0xA5A5A5A5U))));
    PALPATE_ASSERT_OK(queue().FinishBlocking());
    PALPATE_EXPECT_OK(context()->CheckGuards());
  }
}

TEST_F(BufferTest, GuardBandsOfADestroyedBufferAreStillReported) {
  PALPATE_TEST_ASSIGN(Kernel kernel, context()->CreateKernel(kernels::runtime_test, "write_at"));
  {
    const auto buffer = Allocate<int32_t>(10, "short-lived");
    PALPATE_ASSERT_OK(queue().Launch(kernel, {1, 1}, Arg("out", buffer), Arg("offset", 10), Arg("value", 42)));
    PALPATE_ASSERT_OK(queue().FinishBlocking());
  }
  EXPECT_THAT(Message(context()->CheckGuards()), HasSubstr("short-lived"));
  PALPATE_EXPECT_OK(context()->CheckGuards());
}

TEST_F(BufferTest, WithoutGuardsNothingIsAddedToABuffer) {
  PALPATE_TEST_ASSIGN(const std::shared_ptr<Context> plain, Context::Create({.device = std::to_string(context()->device().index)}));
  PALPATE_TEST_ASSIGN(const DeviceBuffer<int32_t> buffer, DeviceBuffer<int32_t>::Create(plain, 10, "plain"));
  EXPECT_EQ(plain->allocated_bytes(), 40U);
  PALPATE_EXPECT_OK(plain->CheckGuards());
}

TEST_F(BufferTest, BufferKeepsItsContextAlive) {
  DeviceBuffer<int32_t> buffer;
  {
    PALPATE_TEST_ASSIGN(const std::shared_ptr<Context> own, Context::Create({.guard_bytes = 128}));
    PALPATE_TEST_ASSIGN(buffer, DeviceBuffer<int32_t>::Create(own, 10, "survivor"));
  }
  PALPATE_EXPECT_OK(queue().FinishBlocking());
  buffer = DeviceBuffer<int32_t>();
}

}  // namespace
}  // namespace palpate::gpu::buffer_test
