#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gpu/runtime/buffer.h"
#include "gpu/runtime/context.h"
#include "gpu/runtime/device.h"
#include "gpu/runtime/queue.h"

/// The value of a StatusOr; fails the enclosing test (a function that returns void) with the status otherwise.
#define PALPATE_TEST_ASSIGN(lhs, expr) PALPATE_TEST_ASSIGN_IMPL(PALPATE_CONCAT(palpate_test_or_, __LINE__), lhs, expr)
#define PALPATE_TEST_ASSIGN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                             \
  ASSERT_TRUE(tmp.ok()) << tmp.status();         \
  lhs = *std::move(tmp)
#define PALPATE_ASSERT_OK(expr)                                   \
  do {                                                            \
    const absl::Status palpate_test_status = (expr);              \
    ASSERT_TRUE(palpate_test_status.ok()) << palpate_test_status; \
  } while (false)
#define PALPATE_EXPECT_OK(expr)                                   \
  do {                                                            \
    const absl::Status palpate_test_status = (expr);              \
    EXPECT_TRUE(palpate_test_status.ok()) << palpate_test_status; \
  } while (false)

namespace palpate::test {

/// Base of tests that use an OpenCL device. All tests of the program share one context on the default device ($PALPATE_TEST_DEVICE selects
/// another), whose buffers have guard bands. A test fails when a kernel wrote beside a buffer or device memory was not given back, and is
/// skipped only on a machine without any OpenCL device, where none is asked for.
class DeviceTest : public ::testing::Test {
 public:
  static constexpr size_t kGuardBytes = 4096;

  /// The shared context; null (with the reason in `error`) if there is none.
  static std::shared_ptr<gpu::Context> SharedContext(absl::Status* error = nullptr) {
    static const absl::StatusOr<std::shared_ptr<gpu::Context>> context = [] {
      gpu::ContextOptions options;
      options.guard_bytes = kGuardBytes;
      if (const char* device = std::getenv("PALPATE_TEST_DEVICE")) options.device = device;
      return gpu::Context::Create(options);
    }();
    if (error != nullptr) *error = context.status();
    return context.ok() ? *context : nullptr;
  }

 protected:
  void SetUp() override {
    const auto devices = gpu::ListDevices();
    ASSERT_TRUE(devices.ok()) << devices.status();
    if (devices->empty() && std::getenv("PALPATE_TEST_DEVICE") == nullptr)
      GTEST_SKIP() << "no OpenCL device on this machine; pocl-opencl-icd provides one";
    absl::Status error;
    context_ = SharedContext(&error);
    ASSERT_NE(context_, nullptr) << error;
    PALPATE_TEST_ASSIGN(queue_, gpu::Queue::Create(context_));
    bytes_before_ = context_->allocated_bytes();
  }

  void TearDown() override {
    if (queue_ != nullptr) PALPATE_EXPECT_OK(queue_->FinishBlocking());
    queue_.reset();
    if (context_ == nullptr) return;
    PALPATE_EXPECT_OK(context_->CheckGuards());
    EXPECT_EQ(context_->allocated_bytes(), bytes_before_) << "device memory was not given back";
  }

  const std::shared_ptr<gpu::Context>& context() const { return context_; }
  gpu::Queue& queue() { return *queue_; }

  /// A device copy of `values`; an invalid buffer and a failed test on error.
  template <typename T>
  gpu::DeviceBuffer<T> Upload(const std::vector<T>& values, std::string name = "test") {
    auto buffer = gpu::CreateBufferFrom(*queue_, std::span<const T>(values), std::move(name));
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    return buffer.ok() ? *std::move(buffer) : gpu::DeviceBuffer<T>();
  }

  template <typename T>
  gpu::DeviceBuffer<T> Allocate(size_t count, std::string name = "test") {
    auto buffer = gpu::DeviceBuffer<T>::Create(context_, count, std::move(name));
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    return buffer.ok() ? *std::move(buffer) : gpu::DeviceBuffer<T>();
  }

  /// The buffer's first `count` elements (all by default).
  template <typename T>
  std::vector<T> Download(const gpu::DeviceBuffer<T>& buffer, size_t count = SIZE_MAX) {
    std::vector<T> values(std::min(count, buffer.count()));
    PALPATE_EXPECT_OK(queue_->ReadBlocking(buffer, values));
    return values;
  }

 private:
  std::shared_ptr<gpu::Context> context_;
  std::unique_ptr<gpu::Queue> queue_;
  size_t bytes_before_ = 0;
};

}  // namespace palpate::test
