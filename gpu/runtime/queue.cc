#include "gpu/runtime/queue.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

namespace palpate::gpu {
namespace {

// Small writes between two waits go through memory of the queue. A step makes some of a few bytes each.
constexpr size_t kWriteBytes = size_t{64} << 10;
// What is read between two waits goes through as much at first, and at most.
constexpr size_t kReadBytes = size_t{256} << 10;
constexpr size_t kMostReadBytes = size_t{64} << 20;

absl::Status RangeError(const std::string& name, size_t buffer_bytes, size_t offset, size_t size) {
  return absl::InvalidArgumentError(
      absl::StrCat("buffer ", name, ": ", size, " bytes from byte ", offset, " on are outside its ", buffer_bytes, " bytes"));
}

void Count(std::atomic<uint64_t>& number) { number.fetch_add(1, std::memory_order_relaxed); }

bool InRange(size_t buffer_bytes, size_t offset, size_t size) { return offset <= buffer_bytes && size <= buffer_bytes - offset; }

}  // namespace

absl::StatusOr<std::unique_ptr<Queue>> Queue::Create(std::shared_ptr<Context> context) {
  std::unique_ptr<Queue> queue(new Queue());
  cl_int code = CL_SUCCESS;
  const cl_command_queue_properties properties = context->time_one_in() > 0 ? CL_QUEUE_PROFILING_ENABLE : 0;
  queue->queue_ = clCreateCommandQueue(context->handle(), context->device().id, properties, &code);
  PALPATE_CL_RETURN_IF_ERROR(code, "clCreateCommandQueue", context->device().name);
  queue->time_one_in_ = context->time_one_in();
  queue->usual_local_size_ = UsualLocalSize(context->device().is_cpu);
  queue->context_ = std::move(context);
  PALPATE_ASSIGN_OR_RETURN(queue->writes_, StagingMemory::Create(queue->context_, queue->queue_, kWriteBytes));
  if (!queue->context_->device().is_cpu) {
    PALPATE_ASSIGN_OR_RETURN(queue->reads_, StagingMemory::Create(queue->context_, queue->queue_, kReadBytes));
  }
  return queue;
}

Queue::~Queue() {
  if (queue_ == nullptr) return;
  clFinish(queue_);
  for (const auto& [at_ms, event] : stamps_) clReleaseEvent(event);  // nobody waits for them
  stamps_.clear();
  BookTimes();
  writes_ = StagingMemory();
  reads_ = StagingMemory();
  clReleaseCommandQueue(queue_);
}

absl::Status Queue::Enqueue(Kernel& kernel, Range range) {
  if (range.global_size == 0) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(kernel.CheckAllBound());
  const size_t local = range.local_size == 0 ? usual_local_size_ : range.local_size;
  const size_t global = (range.global_size + local - 1) / local * local;
  // Not the first of a kernel, which may be compiled then.
  const uint64_t launch = kernel.timer_->launches.fetch_add(1, std::memory_order_relaxed);
  const bool is_timed = time_one_in_ > 0 && launch % time_one_in_ == time_one_in_ / 2;
  cl_event event = nullptr;
  const bool has_event = is_timed || !next_stamps_.empty();
  const cl_int code = clEnqueueNDRangeKernel(queue_, kernel.kernel_, 1, nullptr, &global, &local, 0, nullptr, has_event ? &event : nullptr);
  if (code != CL_SUCCESS) return ClStatus(code, "clEnqueueNDRangeKernel", kernel.name_);
  Count(context_->launches_);
  for (double* const at_ms : next_stamps_) {
    clRetainEvent(event);
    stamps_.emplace_back(at_ms, event);
  }
  next_stamps_.clear();
  if (is_timed) {
    pending_.emplace_back(kernel.timer_, event);
  } else if (event != nullptr) {
    clReleaseEvent(event);
  }
  return absl::OkStatus();
}

absl::Status Queue::WriteBytes(cl_mem buffer, const std::string& name, size_t buffer_bytes, size_t offset, const void* source,
                               size_t size) {
  if (!InRange(buffer_bytes, offset, size)) return RangeError(name, buffer_bytes, offset, size);
  if (size == 0) return absl::OkStatus();
  std::byte* const staged = writes_.Take(size);
  const bool blocking = staged == nullptr;
  if (!blocking) std::memcpy(staged, source, size);
  const cl_int code =
      clEnqueueWriteBuffer(queue_, buffer, blocking ? CL_TRUE : CL_FALSE, offset, size, blocking ? source : staged, 0, nullptr, nullptr);
  Count(context_->transfers_);
  if (blocking && code == CL_SUCCESS) NoteDone();
  return ClStatus(code, "clEnqueueWriteBuffer", name);
}

void Queue::NoteDone() {
  Count(context_->waits_);
  writes_.Clear();
  for (const Read& read : taken_) std::memcpy(read.target, read.staged, read.size);
  taken_.clear();
  reads_.Clear();
  if (read_bytes_ > reads_.size()) GrowReads();
  read_bytes_ = 0;
  BookTimes();
}

void Queue::GrowReads() {
  if (reads_.size() == 0 || reads_.size() >= kMostReadBytes) return;
  absl::StatusOr<StagingMemory> larger =
      StagingMemory::Create(context_, queue_, std::bit_ceil(std::min(read_bytes_ + read_bytes_ / 4, kMostReadBytes)));
  if (larger.ok()) reads_ = *std::move(larger);  // else it stays as it is, which is slower
}

absl::Status Queue::ReadBytes(cl_mem buffer, const std::string& name, size_t buffer_bytes, size_t offset, void* target, size_t size,
                              bool blocking) {
  if (!InRange(buffer_bytes, offset, size)) return RangeError(name, buffer_bytes, offset, size);
  if (size == 0) return blocking ? FinishBlocking() : absl::OkStatus();
  std::byte* const staged = blocking ? nullptr : reads_.Take(size);
  if (!blocking) read_bytes_ += size;
  const cl_int code =
      clEnqueueReadBuffer(queue_, buffer, blocking ? CL_TRUE : CL_FALSE, offset, size, staged ? staged : target, 0, nullptr, nullptr);
  Count(context_->transfers_);
  if (blocking && code == CL_SUCCESS) NoteDone();
  if (staged && code == CL_SUCCESS) taken_.push_back({target, staged, size});
  return ClStatus(code, "clEnqueueReadBuffer", name);
}

absl::Status Queue::FillBytes(cl_mem buffer, const std::string& name, const void* pattern, size_t pattern_size, size_t size) {
  if (size == 0) return absl::OkStatus();
  Count(context_->fills_);
  return ClStatus(clEnqueueFillBuffer(queue_, buffer, pattern, pattern_size, 0, size, 0, nullptr, nullptr), "clEnqueueFillBuffer", name);
}

absl::Status Queue::CopyBytes(cl_mem source, cl_mem target, const std::string& name, size_t source_bytes, size_t target_bytes, size_t size,
                              size_t source_offset, size_t target_offset) {
  if (!InRange(source_bytes, source_offset, size)) return RangeError(name, source_bytes, source_offset, size);
  if (!InRange(target_bytes, target_offset, size)) return RangeError(name, target_bytes, target_offset, size);
  if (size == 0) return absl::OkStatus();
  Count(context_->fills_);
  return ClStatus(clEnqueueCopyBuffer(queue_, source, target, source_offset, target_offset, size, 0, nullptr, nullptr),
                  "clEnqueueCopyBuffer", name);
}

absl::Status Queue::Flush() { return ClStatus(clFlush(queue_), "clFlush"); }

absl::Status Queue::FinishBlocking() {
  const cl_int code = clFinish(queue_);
  if (code == CL_SUCCESS) NoteDone();
  return ClStatus(code, "clFinish");
}

void Queue::StampNext(double* at_ms) {
  if (context_->time_one_in() > 0) {
    next_stamps_.push_back(at_ms);
  } else {
    *at_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
}

void Queue::BookTimes() {
  for (const auto& [at_ms, event] : stamps_) {
    cl_ulong begin = 0;
    if (clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof(begin), &begin, nullptr) == CL_SUCCESS) {
      *at_ms = static_cast<double>(begin) * 1e-6;
    }
    clReleaseEvent(event);
  }
  stamps_.clear();
  for (const auto& [timer, event] : pending_) {
    cl_ulong begin = 0;
    cl_ulong end = 0;
    if (clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof(begin), &begin, nullptr) == CL_SUCCESS &&
        clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof(end), &end, nullptr) == CL_SUCCESS && end > begin) {
      timer->nanoseconds.fetch_add((end - begin) * context_->time_one_in(), std::memory_order_relaxed);
    }
    clReleaseEvent(event);
  }
  pending_.clear();
}

}  // namespace palpate::gpu
