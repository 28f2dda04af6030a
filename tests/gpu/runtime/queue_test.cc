#include "gpu/runtime/queue.h"

#include <gmock/gmock.h>

#include <numeric>
#include <thread>

#include "gpu/runtime/kernel_source.h"
#include "tests/support/device_test.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource runtime_test;
}
namespace {

using ::testing::HasSubstr;
using QueueTest = test::DeviceTest;

TEST_F(QueueTest, CommandsRunInOrder) {
  PALPATE_TEST_ASSIGN(Kernel twice, context()->CreateKernel(kernels::runtime_test, "scale_values", {{"SCALE", "2"}}));
  const auto a = Upload(std::vector<int32_t>(100, 1));
  const auto b = Allocate<int32_t>(100);
  std::vector<int32_t> early(100);
  for (int i = 0; i < 10; ++i) {
    PALPATE_ASSERT_OK(queue().Launch(twice, {100}, a, b, 100U));
    PALPATE_ASSERT_OK(queue().Launch(twice, {100}, b, a, 100U));
    if (i == 4) PALPATE_ASSERT_OK(queue().EnqueueRead(a, early));
  }
  EXPECT_EQ(Download(a), std::vector<int32_t>(100, 1 << 20));
  EXPECT_EQ(early, std::vector<int32_t>(100, 1 << 10));
}

TEST_F(QueueTest, GlobalSizeIsRoundedUpToWholeGroups) {
  PALPATE_TEST_ASSIGN(Kernel kernel, context()->CreateKernel(kernels::runtime_test, "scale_values", {{"SCALE", "3"}}));
  const auto in = Upload(std::vector<int32_t>(101, 7));
  const auto out = Upload(std::vector<int32_t>(101, 0));
  PALPATE_ASSERT_OK(queue().Launch(kernel, {101, 32}, in, out, 101U));
  EXPECT_EQ(Download(out), std::vector<int32_t>(101, 21));
}

TEST_F(QueueTest, GroupsKeepTheirSizeWhateverTheNumberOfItems) {
  PALPATE_TEST_ASSIGN(Kernel kernel, context()->CreateKernel(kernels::runtime_test, "group_sizes"));
  const auto usual = static_cast<uint32_t>(UsualLocalSize(context()->device().is_cpu));
  for (const size_t count : {1, 7, 97, 100, 1009, 4096}) {
    const auto out = Allocate<uint32_t>(count);
    PALPATE_ASSERT_OK(queue().Launch(kernel, {count}, out, static_cast<uint32_t>(count)));
    EXPECT_EQ(Download(out), std::vector<uint32_t>(count, usual)) << count;
  }
}

TEST_F(QueueTest, LocalMemoryArgument) {
  PALPATE_TEST_ASSIGN(Kernel kernel, context()->CreateKernel(kernels::runtime_test, "sum_of_group"));
  std::vector<uint32_t> values(64);
  std::iota(values.begin(), values.end(), 0U);
  const auto in = Upload(values);
  const auto out = Allocate<uint32_t>(4);
  PALPATE_ASSERT_OK(queue().Launch(kernel, {64, 16}, in, out, LocalMemory{16 * sizeof(uint32_t)}));
  EXPECT_EQ(Download(out), (std::vector<uint32_t>{120, 376, 632, 888}));
}

TEST_F(QueueTest, ArgumentsStayBound) {
  PALPATE_TEST_ASSIGN(Kernel kernel, context()->CreateKernel(kernels::runtime_test, "write_at"));
  const auto out = Upload(std::vector<int32_t>(4, 0));
  PALPATE_ASSERT_OK(kernel.SetArgs(out, 0, 9));
  PALPATE_ASSERT_OK(queue().Enqueue(kernel, {1, 1}));
  PALPATE_ASSERT_OK(kernel.SetArg(1, 2));
  PALPATE_ASSERT_OK(queue().Enqueue(kernel, {1, 1}));
  EXPECT_EQ(Download(out), (std::vector<int32_t>{9, 0, 9, 0}));
}

TEST_F(QueueTest, WrongArgumentsNameKernelAndIndex) {
  PALPATE_TEST_ASSIGN(Kernel kernel, context()->CreateKernel(kernels::runtime_test, "write_at"));
  const absl::Status too_many = kernel.SetArg(3, 1);
  EXPECT_TRUE(absl::IsInternal(too_many));
  EXPECT_THAT(std::string(too_many.message()), HasSubstr("write_at argument 3"));
  const absl::Status wrong_size = kernel.SetArg(1, uint64_t{1});
  EXPECT_THAT(std::string(wrong_size.message()), HasSubstr("write_at argument 1"));
}

TEST_F(QueueTest, TooLargeAGroupIsAnErrorThatNamesTheKernel) {
  PALPATE_TEST_ASSIGN(Kernel kernel, context()->CreateKernel(kernels::runtime_test, "write_at"));
  const auto out = Allocate<int32_t>(1);
  const size_t too_large = context()->device().max_work_group_size * 2;
  const absl::Status status = queue().Launch(kernel, {too_large, too_large}, out, 0, 0);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("write_at"));
}

TEST_F(QueueTest, KernelTimesAreBooked) {
  PALPATE_TEST_ASSIGN(const std::shared_ptr<Context> own, Context::Create());
  PALPATE_TEST_ASSIGN(const std::unique_ptr<Queue> timed, Queue::Create(own));
  PALPATE_TEST_ASSIGN(Kernel kernel, own->CreateKernel(kernels::runtime_test, "scale_values"));
  PALPATE_TEST_ASSIGN(const DeviceBuffer<int32_t> buffer, DeviceBuffer<int32_t>::Create(own, 1 << 20, "values"));
  PALPATE_ASSERT_OK(timed->Fill(buffer, 1));
  for (int i = 0; i < 3; ++i) PALPATE_ASSERT_OK(timed->Launch(kernel, {1 << 20}, buffer, buffer, uint32_t{1} << 20));
  PALPATE_ASSERT_OK(timed->FinishBlocking());
  std::vector<KernelTime> times = own->KernelTimes();
  ASSERT_EQ(times.size(), 1U);
  EXPECT_EQ(times[0].name, "scale_values");
  EXPECT_EQ(times[0].launches, 3U);
  EXPECT_GT(times[0].seconds, 0);
  const double seconds = times[0].seconds;

  timed->set_profiling(false);
  PALPATE_ASSERT_OK(timed->Launch(kernel, {1 << 20}, buffer, buffer, uint32_t{1} << 20));
  PALPATE_ASSERT_OK(timed->FinishBlocking());
  times = own->KernelTimes();
  EXPECT_EQ(times[0].launches, 4U);
  EXPECT_EQ(times[0].seconds, seconds);
}

TEST_F(QueueTest, WithoutProfilingLaunchesAreCountedOnly) {
  PALPATE_TEST_ASSIGN(const std::shared_ptr<Context> own, Context::Create({.profiling = false}));
  PALPATE_TEST_ASSIGN(const std::unique_ptr<Queue> plain, Queue::Create(own));
  PALPATE_TEST_ASSIGN(Kernel kernel, own->CreateKernel(kernels::runtime_test, "write_at"));
  PALPATE_TEST_ASSIGN(const DeviceBuffer<int32_t> buffer, DeviceBuffer<int32_t>::Create(own, 1, "value"));
  PALPATE_ASSERT_OK(plain->Launch(kernel, {1, 1}, buffer, 0, 1));
  PALPATE_ASSERT_OK(plain->FinishBlocking());
  const std::vector<KernelTime> times = own->KernelTimes();
  ASSERT_EQ(times.size(), 1U);
  EXPECT_EQ(times[0].launches, 1U);
  EXPECT_EQ(times[0].seconds, 0);
}

TEST_F(QueueTest, ThreadsWithTheirOwnQueuesDoNotDisturbEachOther) {
  constexpr int kThreads = 4;
  std::vector<absl::Status> statuses(kThreads);
  std::vector<int> wrong(kThreads, 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t, &statuses, &wrong] {
      statuses[t] = [&]() -> absl::Status {
        PALPATE_ASSIGN_OR_RETURN(const std::unique_ptr<Queue> own, Queue::Create(context()));
        PALPATE_ASSIGN_OR_RETURN(Kernel kernel, context()->CreateKernel(kernels::runtime_test, "scale_values", {{"SCALE", "2"}}));
        for (int round = 0; round < 20; ++round) {
          const std::vector<int32_t> values(500, t * 1000 + round);
          PALPATE_ASSIGN_OR_RETURN(const DeviceBuffer<int32_t> in, CreateBufferFrom(*own, std::span<const int32_t>(values), "in"));
          PALPATE_ASSIGN_OR_RETURN(const DeviceBuffer<int32_t> out, DeviceBuffer<int32_t>::Create(context(), 500, "out"));
          PALPATE_RETURN_IF_ERROR(own->Launch(kernel, {500}, in, out, 500U));
          std::vector<int32_t> read(500);
          PALPATE_RETURN_IF_ERROR(own->ReadBlocking(out, read));
          wrong[t] += read != std::vector<int32_t>(500, 2 * (t * 1000 + round));
        }
        return absl::OkStatus();
      }();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < kThreads; ++t) {
    PALPATE_EXPECT_OK(statuses[t]);
    EXPECT_EQ(wrong[t], 0);
  }
}

}  // namespace
}  // namespace palpate::gpu
