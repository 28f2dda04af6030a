#pragma once

#include <CL/cl.h>

#include <bit>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/cl_status.h"
#include "gpu/runtime/context.h"
#include "gpu/runtime/kernel.h"
#include "gpu/runtime/staging_memory.h"

namespace palpate::gpu {

/// Work-items of a launch. global_size is rounded up to a multiple of local_size: kernels check their bounds. local_size 0 stands for
/// UsualLocalSize: drivers left to choose follow the divisors of global_size, so that a prime one runs item by item, and PoCL compiles the
/// kernel again whenever the size is new, in the middle of a cut.
struct Range {
  size_t global_size = 0;
  size_t local_size = 0;
};

/// Work-items of a group where a kernel has no wish of its own: of the order of a vector register on CPUs, of a few warps elsewhere.
constexpr size_t UsualLocalSize(bool is_cpu) { return is_cpu ? 8 : 64; }

/// An in-order queue: commands run one after the other. Not thread-safe; make one per thread.
class Queue {
 public:
  static absl::StatusOr<std::unique_ptr<Queue>> Create(std::shared_ptr<Context> context);
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  const std::shared_ptr<Context>& context() const { return context_; }
  cl_command_queue handle() const { return queue_; }

  /// Enqueues the kernel with the arguments bound to it. A range of 0 does nothing. Errors: FailedPrecondition naming kernel and argument
  /// if one was never bound.
  absl::Status Enqueue(Kernel& kernel, Range range);

  /// Binds `args` and enqueues.
  template <std::same_as<Arg>... Args>
  absl::Status Launch(Kernel& kernel, Range range, const Args&... args) {
    PALPATE_RETURN_IF_ERROR(kernel.Bind(args...));
    return Enqueue(kernel, range);
  }

  /// Copies host elements to buffer[offset...]. The source may be reused on return: little of it is copied, so that nobody waits; more
  /// is waited for. InvalidArgument past the end.
  template <typename T>
  absl::Status Write(const DeviceBuffer<T>& buffer, std::span<const std::type_identity_t<T>> source, size_t offset = 0) {
    return WriteBytes(buffer.handle(), buffer.name(), buffer.size_bytes(), SaturatedBytes(offset, sizeof(T)), source.data(),
                      source.size_bytes());
  }

  /// Copies buffer[offset...] to the host and waits for it and everything enqueued before. InvalidArgument past the end.
  template <typename T>
  absl::Status ReadBlocking(const DeviceBuffer<T>& buffer, std::span<std::type_identity_t<T>> target, size_t offset = 0) {
    return ReadBytes(buffer.handle(), buffer.name(), buffer.size_bytes(), SaturatedBytes(offset, sizeof(T)), target.data(),
                     target.size_bytes(), true);
  }

  /// As ReadBlocking, without waiting: `target` is valid after the next blocking call, and has to be there until then.
  template <typename T>
  absl::Status EnqueueRead(const DeviceBuffer<T>& buffer, std::span<std::type_identity_t<T>> target, size_t offset = 0) {
    return ReadBytes(buffer.handle(), buffer.name(), buffer.size_bytes(), SaturatedBytes(offset, sizeof(T)), target.data(),
                     target.size_bytes(), false);
  }

  /// Sets `count` elements (all by default) to `value`.
  template <typename T>
  absl::Status Fill(const DeviceBuffer<T>& buffer, const std::type_identity_t<T>& value, size_t count = SIZE_MAX) {
    static_assert(std::has_single_bit(sizeof(T)) && sizeof(T) <= 128, "OpenCL fills with patterns of 1, 2, 4, ... 128 bytes");
    return FillBytes(buffer.handle(), buffer.name(), &value, sizeof(T), std::min(count, buffer.count()) * sizeof(T));
  }

  /// Sets every byte of the buffer to zero.
  template <typename T>
  absl::Status Zero(const DeviceBuffer<T>& buffer) {
    const unsigned char zero = 0;
    return FillBytes(buffer.handle(), buffer.name(), &zero, 1, buffer.size_bytes());
  }

  /// Copies count elements between buffers on the device.
  template <typename T>
  absl::Status Copy(const DeviceBuffer<T>& source, const DeviceBuffer<T>& target, size_t count, size_t source_offset = 0,
                    size_t target_offset = 0) {
    return CopyBytes(source.handle(), target.handle(), target.name(), source.size_bytes(), target.size_bytes(),
                     SaturatedBytes(count, sizeof(T)), SaturatedBytes(source_offset, sizeof(T)), SaturatedBytes(target_offset, sizeof(T)));
  }

  /// Starts what was enqueued without waiting.
  absl::Status Flush();

  /// Waits for everything enqueued and books the kernel times.
  absl::Status FinishBlocking();

  /// When the next launch begins, to be written to `*at_ms` by the next blocking call: by the clock of the device, ms. Where the context
  /// times no launches, it is that of the host, and the time of this call. `at_ms` lives until then.
  void StampNext(double* at_ms);

  /// Pauses or resumes the timing of this queue's launches (on at first if the context times some); they are counted in any case.
  void set_timing(bool on) { time_one_in_ = on ? context_->time_one_in() : 0; }

 private:
  Queue() = default;
  absl::Status WriteBytes(cl_mem buffer, const std::string& name, size_t buffer_bytes, size_t offset, const void* source, size_t size);
  absl::Status ReadBytes(cl_mem buffer, const std::string& name, size_t buffer_bytes, size_t offset, void* target, size_t size,
                         bool blocking);
  absl::Status FillBytes(cl_mem buffer, const std::string& name, const void* pattern, size_t pattern_size, size_t size);
  absl::Status CopyBytes(cl_mem source, cl_mem target, const std::string& name, size_t source_bytes, size_t target_bytes, size_t size,
                         size_t source_offset, size_t target_offset);
  void BookTimes();
  /// All commands so far are done: what they read goes to its targets.
  void NoteDone();
  /// Memory for what is read comes to hold as much as was read between two waits.
  void GrowReads();

  std::shared_ptr<Context> context_;
  cl_command_queue queue_ = nullptr;
  uint32_t time_one_in_ = 0;
  size_t usual_local_size_ = 1;
  std::vector<std::pair<Context::Timer*, cl_event>> pending_;
  std::vector<double*> next_stamps_;                  // of the next launch
  std::vector<std::pair<double*, cl_event>> stamps_;  // launches that have been enqueued
  struct Read {
    void* target;
    const std::byte* staged;
    size_t size;
  };
  StagingMemory writes_;     // of fixed size
  StagingMemory reads_;      // on devices with memory of their own; what does not fit goes to its target at once
  std::vector<Read> taken_;  // of reads_, since the last wait
  size_t read_bytes_ = 0;    // since the last wait, whether they fitted or not
};

/// Creates a buffer filled from host memory.
template <typename T>
absl::StatusOr<DeviceBuffer<T>> CreateBufferFrom(Queue& queue, std::span<const T> source, std::string name) {
  PALPATE_ASSIGN_OR_RETURN(DeviceBuffer<T> buffer, DeviceBuffer<T>::Create(queue.context(), source.size(), std::move(name)));
  if (!source.empty()) PALPATE_RETURN_IF_ERROR(queue.Write(buffer, source));
  return buffer;
}

}  // namespace palpate::gpu
