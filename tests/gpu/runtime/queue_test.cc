#include "gpu/runtime/queue.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <numeric>
#include <thread>

#include "gpu/runtime/kernel_source.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::kernels {
extern const KernelSource runtime_test;
}  // namespace palpate::gpu::kernels

namespace palpate::gpu::queue_test {
namespace {

using ::testing::HasSubstr;
using QueueTest = test::DeviceTest;

TEST_F(QueueTest, CommandsRunInOrder) {
  PALPATE_TEST_ASSIGN(Kernel twice, context()->CreateKernel(kernels::runtime_test, "scale_values", {{"SCALE", "2"}}));
  const auto a = Upload(std::vector<int32_t>(100, 1));
  const auto b = Allocate<int32_t>(100);
  std::vector<int32_t> early(100);
  for (int i = 0; i < 10; ++i) {
    PALPATE_ASSERT_OK(queue().Launch(twice, {100}, Arg("in", a), Arg("out", b), Arg("count", 100U)));
    PALPATE_ASSERT_OK(queue().Launch(twice, {100}, Arg("in", b), Arg("out", a), Arg("count", 100U)));
    if (i == 4) PALPATE_ASSERT_OK(queue().EnqueueRead(a, early));
  }
  EXPECT_EQ(Download(a), std::vector<int32_t>(100, 1 << 20));
  EXPECT_EQ(early, std::vector<int32_t>(100, 1 << 10));
}

TEST_F(QueueTest, GlobalSizeIsRoundedUpToWholeGroups) {
  PALPATE_TEST_ASSIGN(Kernel kernel, context()->CreateKernel(kernels::runtime_test, "scale_values", {{"SCALE", "3"}}));
  const auto in = Upload(std::vector<int32_t>(101, 7));
  const auto out = Upload(std::vector<int32_t>(101, 0));
  PALPATE_ASSERT_OK(queue().Launch(kernel, {101, 32}, Arg("in", in), Arg("out", out), Arg("count", 101U)));
  EXPECT_EQ(Download(out), std::vector<int32_t>(101, 21));
}

TEST_F(QueueTest, GroupsKeepTheirSizeWhateverTheNumberOfItems) {
  PALPATE_TEST_ASSIGN(Kernel kernel, context()->CreateKernel(kernels::runtime_test, "group_sizes"));
  const auto usual = static_cast<uint32_t>(UsualLocalSize(context()->device().is_cpu));
  for (const size_t count : {1, 7, 97, 100, 1009, 4096}) {
    const auto out = Allocate<uint32_t>(count);
    PALPATE_ASSERT_OK(queue().Launch(kernel, {count}, Arg("out", out), Arg("count", static_cast<uint32_t>(count))));
    EXPECT_EQ(Download(out), std::vector<uint32_t>(count, usual)) << count;
  }
}

TEST_F(QueueTest, LocalMemoryHoldsAGroup) {
  PALPATE_TEST_ASSIGN(Kernel kernel, context()->CreateKernel(kernels::runtime_test, "sum_of_group"));
  std::vector<uint32_t> values(64);
  std::iota(values.begin(), values.end(), 0U);
  const auto in = Upload(values);
  const auto out = Allocate<uint32_t>(4);
  PALPATE_ASSERT_OK(queue().Launch(kernel, {64, 16}, Arg("in", in), Arg("out", out), Arg("scratch", LocalMemory{16 * sizeof(uint32_t)})));
  EXPECT_EQ(Download(out), (std::vector<uint32_t>{120, 376, 632, 888}));
}

TEST_F(QueueTest, ArgumentsStayBound) {
  PALPATE_TEST_ASSIGN(Kernel kernel, context()->CreateKernel(kernels::runtime_test, "write_at"));
  const auto out = Upload(std::vector<int32_t>(4, 0));
  PALPATE_ASSERT_OK(kernel.Bind(Arg("out", out), Arg("offset", 0), Arg("value", 9)));
  PALPATE_ASSERT_OK(queue().Enqueue(kernel, {1, 1}));
  PALPATE_ASSERT_OK(kernel.Bind(Arg("offset", 2)));
  PALPATE_ASSERT_OK(queue().Enqueue(kernel, {1, 1}));
  EXPECT_EQ(Download(out), (std::vector<int32_t>{9, 0, 9, 0}));
}

// One line of each kind of mistake that positions used to hide.
TEST_F(QueueTest, WrongArgumentsNameKernelAndArgument) {
  PALPATE_TEST_ASSIGN(Kernel kernel, context()->CreateKernel(kernels::runtime_test, "write_at"));
  const auto out = Allocate<int32_t>(1);
  const auto floats = Allocate<float>(1);
  const auto message = [](const absl::Status& status) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(message(kernel.Bind(Arg("ofset", 1))),
              "kernel write_at, argument 'ofset': there is none; its arguments are out, offset, value");
  EXPECT_THAT(message(kernel.Bind(Arg("offset", 1), Arg("value", 2), Arg("offset", 3))),
              "kernel write_at, argument 'offset': bound twice in one call");
  EXPECT_THAT(message(kernel.Bind(Arg("offset", 1U))),
              "kernel write_at, argument 'offset': is a value of type int, bound to a value of type uint");
  EXPECT_THAT(message(kernel.Bind(Arg("out", floats))), "kernel write_at, argument 'out': is a buffer of int, bound to a buffer of float");
  EXPECT_THAT(message(kernel.Bind(Arg("out", 1))), "kernel write_at, argument 'out': is a buffer of int, bound to a value of type int");
  EXPECT_THAT(message(kernel.Bind(Arg("value", out))),
              "kernel write_at, argument 'value': is a value of type int, bound to a buffer of int");
  EXPECT_THAT(message(kernel.Bind(Arg("out", LocalMemory{4}))), HasSubstr("bound to local memory"));
  PALPATE_EXPECT_OK(kernel.Bind(Arg("out", As<int32_t>(floats))));
  PALPATE_EXPECT_OK(kernel.Bind(Arg("out", Opaque(floats))));
}

TEST_F(QueueTest, KernelsWithAnArgumentThatWasNeverBoundAreNotEnqueued) {
  PALPATE_TEST_ASSIGN(Kernel kernel, context()->CreateKernel(kernels::runtime_test, "write_at"));
  const auto out = Upload(std::vector<int32_t>{5});
  const absl::Status status = queue().Launch(kernel, {1, 1}, Arg("value", 9), Arg("out", out));
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("kernel write_at, argument 'offset': not bound"));
  EXPECT_EQ(Download(out), std::vector<int32_t>{5});
  PALPATE_ASSERT_OK(queue().Launch(kernel, {1, 1}, Arg("offset", 0)));
  EXPECT_EQ(Download(out), std::vector<int32_t>{9});
}

TEST_F(QueueTest, VariantsOfAKernelHaveTheirOwnArguments) {
  const KernelSource source = {"variants.cl",
                               "#ifdef WITH_SCALE\n#define SCALE_ARG , int scale\n#else\n#define SCALE_ARG\n#define scale 1\n#endif\n"
                               "kernel void f(global int* x SCALE_ARG) { x[0] = 3 * scale; }\n"};
  PALPATE_TEST_ASSIGN(Kernel plain, context()->CreateKernel(source, "f"));
  PALPATE_TEST_ASSIGN(Kernel scaled, context()->CreateKernel(source, "f", {{"WITH_SCALE", "1"}}));
  EXPECT_FALSE(plain.Has("scale"));
  EXPECT_TRUE(scaled.Has("scale"));
  const auto out = Allocate<int32_t>(1);
  PALPATE_EXPECT_OK(queue().Launch(plain, {1, 1}, Arg("x", out)));
  EXPECT_EQ(Download(out), std::vector<int32_t>{3});
  EXPECT_FALSE(queue().Launch(scaled, {1, 1}, Arg("x", out)).ok());
  PALPATE_EXPECT_OK(queue().Launch(scaled, {1, 1}, Arg("scale", 2)));
  EXPECT_EQ(Download(out), std::vector<int32_t>{6});
}

TEST_F(QueueTest, TooLargeAGroupIsAnErrorThatNamesTheKernel) {
  PALPATE_TEST_ASSIGN(Kernel kernel, context()->CreateKernel(kernels::runtime_test, "write_at"));
  const auto out = Allocate<int32_t>(1);
  const size_t too_large = context()->device().max_work_group_size * 2;
  const absl::Status status = queue().Launch(kernel, {too_large, too_large}, Arg("out", out), Arg("offset", 0), Arg("value", 0));
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("write_at"));
}

TEST_F(QueueTest, KernelTimesAreBooked) {
  PALPATE_TEST_ASSIGN(const std::shared_ptr<Context> own, Context::Create({.time_one_in = 1}));
  PALPATE_TEST_ASSIGN(const std::unique_ptr<Queue> timed, Queue::Create(own));
  PALPATE_TEST_ASSIGN(Kernel kernel, own->CreateKernel(kernels::runtime_test, "scale_values"));
  PALPATE_TEST_ASSIGN(const DeviceBuffer<int32_t> buffer, DeviceBuffer<int32_t>::Create(own, 1 << 20, "values"));
  PALPATE_ASSERT_OK(timed->Fill(buffer, 1));
  for (int i = 0; i < 3; ++i)
    PALPATE_ASSERT_OK(timed->Launch(kernel, {1 << 20}, Arg("in", buffer), Arg("out", buffer), Arg("count", uint32_t{1} << 20)));
  PALPATE_ASSERT_OK(timed->FinishBlocking());
  std::vector<KernelTime> times = own->KernelTimes();
  ASSERT_EQ(times.size(), 1U);
  EXPECT_EQ(times[0].name, "scale_values");
  EXPECT_EQ(times[0].launches, 3U);
  EXPECT_GT(times[0].seconds, 0);
  const double seconds = times[0].seconds;

  timed->set_timing(false);
  PALPATE_ASSERT_OK(timed->Launch(kernel, {1 << 20}, Arg("in", buffer), Arg("out", buffer), Arg("count", uint32_t{1} << 20)));
  PALPATE_ASSERT_OK(timed->FinishBlocking());
  times = own->KernelTimes();
  EXPECT_EQ(times[0].launches, 4U);
  EXPECT_EQ(times[0].seconds, seconds);
}

// One of five stands for the others: no first launch alone, and in the end all of them.
TEST_F(QueueTest, SomeLaunchesAreTimedForAll) {
  PALPATE_TEST_ASSIGN(const std::shared_ptr<Context> own, Context::Create({.time_one_in = 5}));
  PALPATE_TEST_ASSIGN(const std::unique_ptr<Queue> timed, Queue::Create(own));
  PALPATE_TEST_ASSIGN(Kernel kernel, own->CreateKernel(kernels::runtime_test, "scale_values"));
  PALPATE_TEST_ASSIGN(const DeviceBuffer<int32_t> buffer, DeviceBuffer<int32_t>::Create(own, 1 << 20, "values"));
  PALPATE_ASSERT_OK(timed->Fill(buffer, 1));
  const auto seconds_after = [&](int launches) {
    for (int i = 0; i < launches; ++i) {
      PALPATE_EXPECT_OK(timed->Launch(kernel, {1 << 20}, Arg("in", buffer), Arg("out", buffer), Arg("count", uint32_t{1} << 20)));
    }
    PALPATE_EXPECT_OK(timed->FinishBlocking());
    return own->KernelTimes().at(0).seconds;
  };
  EXPECT_EQ(seconds_after(2), 0);
  const double after_5 = seconds_after(3);
  EXPECT_GT(after_5, 0);
  EXPECT_EQ(seconds_after(2), after_5);
  EXPECT_GT(seconds_after(3), after_5);
  EXPECT_EQ(own->KernelTimes()[0].launches, 10U);
}

// What is written may be changed at once, though nobody has waited; also when there is more than the queue keeps copies of.
TEST_F(QueueTest, SourcesOfWritesMayBeUsedAgain) {
  constexpr uint32_t kCount = 3000;
  const auto buffer = Allocate<uint32_t>(kCount);
  for (const uint32_t at_once : {1U, 7U, kCount}) {
    std::vector<uint32_t> source(at_once);
    for (int round = 0; round < 20; ++round) {
      for (uint32_t first = 0; first + at_once <= kCount; first += at_once) {
        for (uint32_t i = 0; i < at_once; ++i) source[i] = 1000 * (first + i) + static_cast<uint32_t>(round);
        PALPATE_ASSERT_OK(queue().Write(buffer, source, first));
      }
    }
    std::fill(source.begin(), source.end(), 0);
    const std::vector<uint32_t> written = Download(buffer);
    for (uint32_t i = 0; i < kCount / at_once * at_once; ++i) ASSERT_EQ(written[i], 1000 * i + 19) << at_once;
  }
}

/// On devices with memory of their own reads go through memory of the queue that grows; the test asks for a GPU beside the device at hand.
class QueueReadsTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (const char* const before = std::getenv("PALPATE_ASSUME_GPU")) before_ = before;
    if (GetParam()) setenv("PALPATE_ASSUME_GPU", "4", 1);
  }
  void TearDown() override { before_.empty() ? unsetenv("PALPATE_ASSUME_GPU") : setenv("PALPATE_ASSUME_GPU", before_.c_str(), 1); }

 private:
  std::string before_;
};
INSTANTIATE_TEST_SUITE_P(Devices, QueueReadsTest, ::testing::Bool(),
                         [](const auto& kind) { return std::string(kind.param ? "AsGpu" : "AsItIs"); });

TEST_P(QueueReadsTest, TargetsAreValidAfterTheNextBlockingCall) {
  PALPATE_TEST_ASSIGN(const std::shared_ptr<Context> own, Context::Create({}));
  PALPATE_TEST_ASSIGN(const std::unique_ptr<Queue> reading, Queue::Create(own));
  PALPATE_TEST_ASSIGN(Kernel thrice, own->CreateKernel(kernels::runtime_test, "scale_values", {{"SCALE", "3"}}));
  constexpr uint32_t kCount = 100'003;
  PALPATE_TEST_ASSIGN(const DeviceBuffer<int32_t> a, DeviceBuffer<int32_t>::Create(own, kCount, "a"));
  PALPATE_TEST_ASSIGN(const DeviceBuffer<int32_t> b, DeviceBuffer<int32_t>::Create(own, kCount, "b"));
  for (int round = 0; round < 4; ++round) {  // from the second on there is room for all
    std::vector<int32_t> ones(kCount, round + 1);
    PALPATE_ASSERT_OK(reading->Write(a, ones));
    std::vector<int32_t> before(kCount), after(kCount), some(7), none;
    PALPATE_ASSERT_OK(reading->EnqueueRead(a, before));
    PALPATE_ASSERT_OK(reading->EnqueueRead(a, none));
    PALPATE_ASSERT_OK(reading->Launch(thrice, {kCount}, Arg("in", a), Arg("out", b), Arg("count", kCount)));
    PALPATE_ASSERT_OK(reading->Copy(b, a, kCount));
    PALPATE_ASSERT_OK(reading->EnqueueRead(a, after));
    PALPATE_ASSERT_OK(reading->EnqueueRead(a, some, kCount - 7));
    EXPECT_TRUE(absl::IsInvalidArgument(reading->EnqueueRead(a, some, kCount - 6)));
    int32_t last = 0;
    PALPATE_ASSERT_OK(reading->ReadBlocking(a, std::span<int32_t>(&last, 1), kCount - 1));
    const int32_t first = round + 1;
    EXPECT_EQ(last, 3 * first);
    EXPECT_EQ(before, std::vector<int32_t>(kCount, first));
    EXPECT_EQ(after, std::vector<int32_t>(kCount, 3 * first));
    EXPECT_EQ(some, std::vector<int32_t>(7, 3 * first));
  }
}

TEST_F(QueueTest, WithoutTimingLaunchesAreCountedOnly) {
  PALPATE_TEST_ASSIGN(const std::shared_ptr<Context> own, Context::Create({.time_one_in = 0}));
  PALPATE_TEST_ASSIGN(const std::unique_ptr<Queue> plain, Queue::Create(own));
  PALPATE_TEST_ASSIGN(Kernel kernel, own->CreateKernel(kernels::runtime_test, "write_at"));
  PALPATE_TEST_ASSIGN(const DeviceBuffer<int32_t> buffer, DeviceBuffer<int32_t>::Create(own, 1, "value"));
  PALPATE_ASSERT_OK(plain->Launch(kernel, {1, 1}, Arg("out", buffer), Arg("offset", 0), Arg("value", 1)));
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
          PALPATE_RETURN_IF_ERROR(own->Launch(kernel, {500}, Arg("in", in), Arg("out", out), Arg("count", 500U)));
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
}  // namespace palpate::gpu::queue_test
