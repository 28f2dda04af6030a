// The harness itself: results are those of a device, and each kind of fault is found.
#include "tests/native_kernels/native_runtime.h"

#include <gmock/gmock.h>

#include "gpu/runtime/kernel_source.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::native_runtime_test {
namespace {

using NativeRuntimeTest = test::DeviceTest;

constexpr KernelSource kSource = {"tests/faults.cl", R"(#line 1 "tests/faults.cl"
kernel void square(global const int* in, global int* out, uint count) {
  const size_t i = get_global_id(0);
  if (i < count) out[i] = in[i] * in[i];
}
kernel void write_at(global int* out, int offset) { out[offset] = 1; }
kernel void local_overflow(global int* out, uint index) {
  int values[4] = {1, 2, 3, 4};
  values[index] = 5;
  out[0] = values[index & 3];
}
kernel void increment(global int* out, int by) { out[0] += by; }
kernel void reverse_group(global int* values, local int* scratch) {
  const size_t l = get_local_id(0);
  scratch[l] = values[get_global_id(0)];
  barrier(CLK_LOCAL_MEM_FENCE);
  values[get_global_id(0)] = scratch[get_local_size(0) - 1 - l];
}
kernel void reverse_group_without_barrier(global int* values, local int* scratch) {
  const size_t l = get_local_id(0);
  scratch[l] = values[get_global_id(0)];
  values[get_global_id(0)] = scratch[get_local_size(0) - 1 - l];
}
kernel void divergent(global int* values) {
  if (get_local_id(0) < 3) barrier(CLK_LOCAL_MEM_FENCE);
  values[get_global_id(0)] = 1;
}
kernel void all_write_one(global int* values) { values[0] = (int)get_global_id(0); }
kernel void count_all(global uint* count) { atomic_inc(count); }
)"};

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool kHasAsan = true;
#else
constexpr bool kHasAsan = false;
#endif
#if __has_feature(thread_sanitizer)
constexpr bool kHasTsan = true;
#else
constexpr bool kHasTsan = false;
#endif
#endif

TEST_F(NativeRuntimeTest, KernelsRun) {
  ASSERT_EQ(context()->device().name, "native") << "this program must not use the system's OpenCL";
  PALPATE_TEST_ASSIGN(Kernel square, context()->CreateKernel(kSource, "square"));
  const auto in = Upload(std::vector<int32_t>{1, -2, 3});
  const auto out = Allocate<int32_t>(3);
  PALPATE_ASSERT_OK(queue().Launch(square, {3, 2}, Arg("in", in), Arg("out", out), Arg("count", 3U)));
  EXPECT_EQ(Download(out), (std::vector<int32_t>{1, 4, 9}));
  PALPATE_TEST_ASSIGN(Kernel reverse, context()->CreateKernel(kSource, "reverse_group"));
  const auto values = Upload(std::vector<int32_t>{1, 2, 3, 4, 5, 6});
  PALPATE_ASSERT_OK(queue().Launch(reverse, {6, 3}, Arg("values", values), Arg("scratch", LocalMemory{12})));
  EXPECT_EQ(Download(values), (std::vector<int32_t>{3, 2, 1, 6, 5, 4}));
  PALPATE_TEST_ASSIGN(Kernel count, context()->CreateKernel(kSource, "count_all"));
  const auto counter = Upload(std::vector<uint32_t>{0});
  PALPATE_ASSERT_OK(queue().Launch(count, {100, 4}, Arg("count", counter)));
  EXPECT_EQ(Download(counter), std::vector<uint32_t>{100});
}

TEST_F(NativeRuntimeTest, WrongLaunchesAreErrors) {
  PALPATE_TEST_ASSIGN(Kernel square, context()->CreateKernel(kSource, "square"));
  const auto in = Allocate<int32_t>(3);
  const Arg from("in", in), to("out", in);
  EXPECT_FALSE(queue().Launch(square, {3, 1}, from, to).ok()) << "an argument is missing";
  EXPECT_FALSE(queue().Launch(square, {3, 1}, from, to, Arg("count", uint64_t{3})).ok()) << "an argument has the wrong type";
  EXPECT_FALSE(queue().Launch(square, {3, 1}, from, to, Arg("count", 3U), Arg("more", 4U)).ok()) << "too many arguments";
}

class NativeFaultTest : public NativeRuntimeTest {
 protected:
  void SetUp() override {
    NativeRuntimeTest::SetUp();
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  }

  template <std::same_as<Arg>... Args>
  void Launch(const char* name, Range range, const Args&... args) {
    PALPATE_TEST_ASSIGN(Kernel kernel, context()->CreateKernel(kSource, name));
    PALPATE_ASSERT_OK(queue().Launch(kernel, range, args...));
  }
};

TEST_F(NativeFaultTest, AccessOutsideABufferIsFound) {
  if (!kHasAsan) GTEST_SKIP() << "needs AddressSanitizer";
  const auto out = Upload(std::vector<int32_t>(10, 0));
  Launch("write_at", {1, 1}, Arg("out", out), Arg("offset", 9));
  for (const int offset : {10, -1, 1000}) {
    EXPECT_DEATH(Launch("write_at", {1, 1}, Arg("out", out), Arg("offset", offset)), "AddressSanitizer(.|\n)*faults.cl:5") << offset;
  }
  PALPATE_TEST_ASSIGN(const std::shared_ptr<Context> plain, Context::Create());
  PALPATE_TEST_ASSIGN(const DeviceBuffer<int32_t> unguarded, DeviceBuffer<int32_t>::Create(plain, 10, "unguarded"));
  EXPECT_DEATH(Launch("write_at", {1, 1}, Arg("out", unguarded), Arg("offset", 10)), "heap-buffer-overflow(.|\n)*faults.cl:5");
}

TEST_F(NativeFaultTest, AccessOutsideAPrivateArrayIsFound) {
  if (!kHasAsan) GTEST_SKIP() << "needs AddressSanitizer";
  const auto out = Allocate<int32_t>(1);
  EXPECT_DEATH(Launch("local_overflow", {1, 1}, Arg("out", out), Arg("index", 6U)), "faults.cl:8");
}

TEST_F(NativeFaultTest, SignedOverflowIsFound) {
  if (!kHasAsan) GTEST_SKIP() << "needs UndefinedBehaviorSanitizer";
  const auto out = Upload(std::vector<int32_t>{0x7ffffffe});
  Launch("increment", {1, 1}, Arg("out", out), Arg("by", 1));
  EXPECT_DEATH(Launch("increment", {1, 1}, Arg("out", out), Arg("by", 1)), "faults.cl:11(.|\n)*signed integer overflow");
}

TEST_F(NativeFaultTest, BarriersThatNotAllReachEndTheProgram) {
  const auto out = Allocate<int32_t>(4);
  EXPECT_DEATH(Launch("divergent", {4, 4}, Arg("values", out)), "barrier was reached by some");
}

TEST_F(NativeFaultTest, MissingBarriersAreFoundAsRaces) {
  if (!kHasTsan) GTEST_SKIP() << "needs ThreadSanitizer";
  const auto values = Upload(std::vector<int32_t>(8, 1));
  Launch("reverse_group", {8, 4}, Arg("values", values), Arg("scratch", LocalMemory{16}));
  EXPECT_DEATH(Launch("reverse_group_without_barrier", {8, 4}, Arg("values", values), Arg("scratch", LocalMemory{16})),
               "data race(.|\n)*faults.cl:2");
}

TEST_F(NativeFaultTest, WorkItemsThatWriteTheSamePlaceAreFoundAsRaces) {
  if (!kHasTsan) GTEST_SKIP() << "needs ThreadSanitizer";
  const auto values = Upload(std::vector<int32_t>(8, 1));
  EXPECT_DEATH(Launch("all_write_one", {8}, Arg("values", values)), "data race(.|\n)*faults.cl:2");
}

}  // namespace
}  // namespace palpate::gpu::native_runtime_test
