#pragma once

#include <CL/cl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "gpu/base/status.h"
#include "gpu/runtime/context.h"

namespace palpate::gpu {

/// Bytes of `count` elements; SIZE_MAX where that does not fit, which no buffer can hold.
constexpr size_t SaturatedBytes(size_t count, size_t element_bytes) {
  return count > SIZE_MAX / element_bytes ? SIZE_MAX : count * element_bytes;
}

/// Owner of one device allocation; DeviceBuffer<T> is the typed face of it.
class RawBuffer {
 public:
  static absl::StatusOr<std::unique_ptr<RawBuffer>> Create(std::shared_ptr<Context> context, size_t size_bytes, std::string name);
  ~RawBuffer();
  RawBuffer(const RawBuffer&) = delete;
  RawBuffer& operator=(const RawBuffer&) = delete;

  cl_mem handle() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }
  const std::string& name() const { return name_; }

 private:
  friend class Context;
  RawBuffer() = default;
  absl::Status VerifyGuards(cl_command_queue queue) const;

  std::shared_ptr<Context> context_;
  std::string name_;
  size_t size_bytes_ = 0;
  size_t allocated_bytes_ = 0;
  size_t guard_bytes_ = 0;
  cl_mem allocation_ = nullptr;
  cl_mem data_ = nullptr;  // the allocation itself, or the part of it between the guard bands
};

/// A non-owning view of a buffer's first `count` elements, what kernels are given.
template <typename T>
struct BufferView {
  cl_mem handle = nullptr;
  size_t count = 0;
};

/// Move-only array of T in device memory. T is trivially copyable and has the same layout on host and device (see gpu/shared).
/// An empty buffer (count 0) is valid and holds one element of storage, so that it can be a kernel argument.
template <typename T>
class DeviceBuffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&&) noexcept = default;
  DeviceBuffer& operator=(DeviceBuffer&&) noexcept = default;

  /// Contents undefined. Errors: ResourceExhausted naming the buffer and its size.
  static absl::StatusOr<DeviceBuffer> Create(const std::shared_ptr<Context>& context, size_t count, std::string name) {
    DeviceBuffer buffer;
    PALPATE_ASSIGN_OR_RETURN(buffer.raw_, RawBuffer::Create(context, SaturatedBytes(count == 0 ? 1 : count, sizeof(T)), std::move(name)));
    buffer.count_ = count;
    return buffer;
  }

  size_t count() const { return count_; }
  size_t size_bytes() const { return count_ * sizeof(T); }
  cl_mem handle() const { return raw_ ? raw_->handle() : nullptr; }
  const std::string& name() const { return raw_->name(); }
  explicit operator bool() const { return raw_ != nullptr; }
  BufferView<T> view() const { return {handle(), count_}; }
  operator BufferView<T>() const { return view(); }  // NOLINT: a buffer is passed wherever a view is wanted

 private:
  std::unique_ptr<RawBuffer> raw_;
  size_t count_ = 0;
};

/// The same memory as elements of type To, for a kernel that reads it so.
template <typename To, typename From>
BufferView<To> As(BufferView<From> buffer) {
  return {buffer.handle, buffer.count * sizeof(From) / sizeof(To)};
}
template <typename To, typename From>
BufferView<To> As(const DeviceBuffer<From>& buffer) {
  return As<To>(buffer.view());
}

/// Makes `buffer` hold at least `count` elements. Where it has to grow its contents are lost, and it gets room for half as many again (the
/// first time for `count` alone), so that a slowly growing scene does not do it each step. Errors: as DeviceBuffer::Create; the buffer is
/// then empty.
template <typename T>
absl::Status Grow(const std::shared_ptr<Context>& context, DeviceBuffer<T>& buffer, size_t count, const char* name) {
  if (buffer && buffer.count() >= count) return absl::OkStatus();
  const size_t target = buffer ? count + count / 2 : count;
  buffer = DeviceBuffer<T>();  // first, so that both do not have to fit at once
  PALPATE_ASSIGN_OR_RETURN(buffer, DeviceBuffer<T>::Create(context, target, name));
  return absl::OkStatus();
}

}  // namespace palpate::gpu
