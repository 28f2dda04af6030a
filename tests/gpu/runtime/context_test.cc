#include "gpu/runtime/context.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "gpu/runtime/cl_status.h"
#include "gpu/runtime/kernel_source.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::kernels {
extern const KernelSource runtime_test;
}  // namespace palpate::gpu::kernels

namespace palpate::gpu::context_test {
namespace {

using ::testing::HasSubstr;
using ContextTest = test::DeviceTest;

TEST_F(ContextTest, UnknownEntryPointIsNotFound) {
  const auto kernel = context()->CreateKernel(kernels::runtime_test, "no_such_kernel");
  EXPECT_TRUE(absl::IsNotFound(kernel.status())) << kernel.status();
  EXPECT_THAT(std::string(kernel.status().message()), HasSubstr("no_such_kernel"));
  EXPECT_THAT(std::string(kernel.status().message()), HasSubstr("tests/gpu/runtime/runtime_test.cl"));
}

TEST_F(ContextTest, BuildErrorCarriesTheCompilersLogWithOurFileAndLine) {
  const KernelSource broken = {"gpu/nowhere/broken.cl",
                               "#line 1 \"gpu/nowhere/broken.cl\"\nkernel void f(global int* x) {\n  x[0] = undeclared_name;\n}\n"};
  const auto kernel = context()->CreateKernel(broken, "f");
  ASSERT_TRUE(absl::IsInternal(kernel.status())) << kernel.status();
  const std::string message(kernel.status().message());
  EXPECT_THAT(message, HasSubstr("undeclared_name"));
  EXPECT_THAT(message, HasSubstr("clBuildProgram"));
  EXPECT_THAT(message, HasSubstr("broken.cl:2"));
}

TEST_F(ContextTest, DefinesReachTheKernel) {
  for (const auto& [scale, expected] : {std::pair{"5", 50}, std::pair{"-3", -30}}) {
    PALPATE_TEST_ASSIGN(Kernel kernel, context()->CreateKernel(kernels::runtime_test, "scale_values", {{"SCALE", scale}}));
    const auto in = Upload(std::vector<int32_t>{10});
    const auto out = Allocate<int32_t>(1);
    PALPATE_ASSERT_OK(queue().Launch(kernel, {1, 1}, Arg("in", in), Arg("out", out), Arg("count", 1U)));
    EXPECT_EQ(Download(out), std::vector<int32_t>{expected});
  }
}

TEST_F(ContextTest, SourcesWithTheSamePathAreToldApart) {
  const KernelSource first = {"same.cl", "kernel void f(global int* x) { x[0] = 1; }\n"};
  const KernelSource second = {"same.cl", "kernel void f(global int* x) { x[0] = 2; }\n"};
  const auto out = Allocate<int32_t>(1);
  for (const auto& [source, expected] : {std::pair{first, 1}, std::pair{second, 2}, std::pair{first, 1}}) {
    PALPATE_TEST_ASSIGN(Kernel kernel, context()->CreateKernel(source, "f"));
    PALPATE_ASSERT_OK(queue().Launch(kernel, {1, 1}, Arg("x", out)));
    EXPECT_EQ(Download(out), std::vector<int32_t>{expected});
  }
}

TEST_F(ContextTest, KernelsOfOneProgramHaveTheirOwnArguments) {
  PALPATE_TEST_ASSIGN(Kernel a, context()->CreateKernel(kernels::runtime_test, "write_at"));
  PALPATE_TEST_ASSIGN(Kernel b, context()->CreateKernel(kernels::runtime_test, "write_at"));
  const auto out = Upload(std::vector<int32_t>(2, 0));
  PALPATE_ASSERT_OK(a.Bind(Arg("out", out), Arg("offset", 0), Arg("value", 1)));
  PALPATE_ASSERT_OK(b.Bind(Arg("out", out), Arg("offset", 1), Arg("value", 2)));
  PALPATE_ASSERT_OK(queue().Enqueue(a, {1, 1}));
  PALPATE_ASSERT_OK(queue().Enqueue(b, {1, 1}));
  EXPECT_EQ(Download(out), (std::vector<int32_t>{1, 2}));
  Kernel c = std::move(a);
  EXPECT_FALSE(a);  // NOLINT(bugprone-use-after-move)
  PALPATE_ASSERT_OK(c.Bind(Arg("value", 7)));
  PALPATE_ASSERT_OK(queue().Enqueue(c, {1, 1}));
  EXPECT_EQ(Download(out), (std::vector<int32_t>{7, 2}));
}

TEST_F(ContextTest, SumsOfProductsAreNotFused) {
  PALPATE_TEST_ASSIGN(Kernel kernel, context()->CreateKernel(kernels::runtime_test, "multiply_add"));
  std::mt19937 random(7);
  std::uniform_real_distribution<float> any(1, 2);
  std::vector<float> a(1000), b(1000), c(1000);
  std::ranges::generate(a, [&] { return any(random); });
  std::ranges::generate(b, [&] { return any(random); });
  for (size_t i = 0; i < a.size(); ++i) c[i] = -(a[i] * b[i]);  // a fused operation leaves what rounding took
  const auto out = Allocate<float>(a.size());
  PALPATE_ASSERT_OK(queue().Launch(kernel, {a.size()}, Arg("a", Upload(a)), Arg("b", Upload(b)), Arg("c", Upload(c)), Arg("out", out),
                                   Arg("count", static_cast<uint32_t>(a.size()))));
  EXPECT_EQ(Download(out), std::vector<float>(a.size(), 0.0F));
}

TEST_F(ContextTest, DivisionAndRootAreRoundedCorrectlyWhereTheDeviceOffersIt) {
  if (!context()->device().rounds_divide_and_sqrt) GTEST_SKIP() << "this device does not";
  PALPATE_TEST_ASSIGN(Kernel kernel, context()->CreateKernel(kernels::runtime_test, "divide_and_root"));
  std::mt19937 random(8);
  std::uniform_real_distribution<float> any(0.001F, 1000);
  std::vector<float> a(10000), b(10000), quotients, roots;
  std::ranges::generate(a, [&] { return any(random); });
  std::ranges::generate(b, [&] { return any(random); });
  for (size_t i = 0; i < a.size(); ++i) {
    quotients.push_back(static_cast<float>(double{a[i]} / b[i]));
    roots.push_back(static_cast<float>(std::sqrt(double{a[i]})));
  }
  const auto quotient = Allocate<float>(a.size());
  const auto root = Allocate<float>(a.size());
  PALPATE_ASSERT_OK(queue().Launch(kernel, {a.size()}, Arg("a", Upload(a)), Arg("b", Upload(b)), Arg("quotient", quotient),
                                   Arg("root", root), Arg("count", static_cast<uint32_t>(a.size()))));
  EXPECT_EQ(Download(quotient), quotients);
  EXPECT_EQ(Download(root), roots);
}

TEST_F(ContextTest, CommandsAndWaitsAreCounted) {
  PALPATE_TEST_ASSIGN(Kernel kernel, context()->CreateKernel(kernels::runtime_test, "scale_values"));
  const auto in = Allocate<int32_t>(100);
  const auto out = Allocate<int32_t>(100);
  const CommandCounts before = context()->commands();
  std::vector<int32_t> values(100, 3);
  PALPATE_ASSERT_OK(queue().Write(in, values));  // small enough to be staged: nobody waits
  for (int i = 0; i < 3; ++i) PALPATE_ASSERT_OK(queue().Launch(kernel, {100}, Arg("in", in), Arg("out", out), Arg("count", 100U)));
  PALPATE_ASSERT_OK(queue().Enqueue(kernel, {0}));  // nothing to do is no command
  PALPATE_ASSERT_OK(queue().Fill(in, 1));
  PALPATE_ASSERT_OK(queue().Copy(out, in, 10));
  PALPATE_ASSERT_OK(queue().EnqueueRead(out, values));
  PALPATE_ASSERT_OK(queue().ReadBlocking(in, values));
  PALPATE_ASSERT_OK(queue().FinishBlocking());
  const CommandCounts counts = context()->commands() - before;
  EXPECT_EQ(counts.launches, 3);
  EXPECT_EQ(counts.transfers, 3);
  EXPECT_EQ(counts.fills, 2);
  EXPECT_EQ(counts.waits, 2);
  EXPECT_EQ(counts.commands(), 8);
}

TEST_F(ContextTest, StatusesNameCallAndError) {
  PALPATE_EXPECT_OK(ClStatus(CL_SUCCESS, "clFoo"));
  const absl::Status memory = ClStatus(CL_MEM_OBJECT_ALLOCATION_FAILURE, "clFoo", "thing");
  EXPECT_TRUE(absl::IsResourceExhausted(memory));
  EXPECT_THAT(std::string(memory.message()), HasSubstr("CL_MEM_OBJECT_ALLOCATION_FAILURE"));
  EXPECT_THAT(std::string(memory.message()), HasSubstr("clFoo"));
  EXPECT_THAT(std::string(memory.message()), HasSubstr("thing"));
  EXPECT_TRUE(absl::IsInternal(ClStatus(CL_OUT_OF_RESOURCES, "clFoo"))) << "a fault, not a lack of memory";
  EXPECT_TRUE(absl::IsResourceExhausted(ClStatus(CL_OUT_OF_HOST_MEMORY, "clFoo")));
  EXPECT_TRUE(absl::IsInternal(ClStatus(CL_INVALID_VALUE, "clFoo")));
  EXPECT_THAT(ClErrorName(-12345), HasSubstr("-12345"));
}

}  // namespace
}  // namespace palpate::gpu::context_test
