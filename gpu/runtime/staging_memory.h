#pragma once

#include <CL/cl.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/runtime/context.h"

namespace palpate::gpu {

/// Host memory that commands of one queue read from or write to after the call that enqueued them has returned. On a device with memory of
/// its own it is page-locked: to other memory its driver copies once more, and holds up the caller meanwhile.
class StagingMemory {
 public:
  StagingMemory() = default;  ///< of no bytes
  /// Errors: ResourceExhausted.
  static absl::StatusOr<StagingMemory> Create(std::shared_ptr<Context> context, cl_command_queue queue, size_t bytes);
  StagingMemory(StagingMemory&& other) noexcept { *this = std::move(other); }
  StagingMemory& operator=(StagingMemory&& other) noexcept;
  /// Precondition: no command uses it any more, and the queue still exists.
  ~StagingMemory();

  size_t size() const { return size_; }

  /// The next `bytes` that are free, null if there are not so many.
  std::byte* Take(size_t bytes);
  /// All is free again. Precondition: no command uses it any more.
  void Clear() { taken_ = 0; }

 private:
  std::shared_ptr<Context> context_;
  cl_command_queue queue_ = nullptr;
  cl_mem pinned_ = nullptr;  // mapped to data_ for good
  std::vector<std::byte> pageable_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  size_t taken_ = 0;
};

}  // namespace palpate::gpu
