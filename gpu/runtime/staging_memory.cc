#include "gpu/runtime/staging_memory.h"

#include <algorithm>
#include <utility>

#include "gpu/runtime/cl_status.h"

namespace palpate::gpu {
namespace {

constexpr size_t kAlignment = 64;  // of what is taken: no two copies share a cache line

}  // namespace

absl::StatusOr<StagingMemory> StagingMemory::Create(std::shared_ptr<Context> context, cl_command_queue queue, size_t bytes) {
  StagingMemory memory;
  memory.size_ = bytes;
  if (context->device().is_cpu) {
    memory.pageable_.resize(bytes);
    memory.data_ = memory.pageable_.data();
    return memory;
  }
  cl_int code = CL_SUCCESS;
  memory.pinned_ = clCreateBuffer(context->handle(), CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, bytes, nullptr, &code);
  PALPATE_CL_RETURN_IF_ERROR(code, "clCreateBuffer", "staging memory");
  memory.context_ = std::move(context);
  memory.queue_ = queue;
  memory.data_ = static_cast<std::byte*>(
      clEnqueueMapBuffer(queue, memory.pinned_, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, bytes, 0, nullptr, nullptr, &code));
  PALPATE_CL_RETURN_IF_ERROR(code, "clEnqueueMapBuffer", "staging memory");
  return memory;
}

StagingMemory& StagingMemory::operator=(StagingMemory&& other) noexcept {
  std::swap(context_, other.context_);
  std::swap(queue_, other.queue_);
  std::swap(pinned_, other.pinned_);
  std::swap(pageable_, other.pageable_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(taken_, other.taken_);
  return *this;
}

StagingMemory::~StagingMemory() {
  if (pinned_ == nullptr) return;
  if (data_ != nullptr) clEnqueueUnmapMemObject(queue_, pinned_, data_, 0, nullptr, nullptr);
  clReleaseMemObject(pinned_);
}

std::byte* StagingMemory::Take(size_t bytes) {
  if (bytes > size_ - taken_) return nullptr;
  std::byte* const place = data_ + taken_;
  taken_ = std::min(size_, (taken_ + bytes + kAlignment - 1) / kAlignment * kAlignment);
  return place;
}

}  // namespace palpate::gpu
