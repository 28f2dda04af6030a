#pragma once

#include <CL/cl.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/runtime/device.h"
#include "gpu/runtime/kernel_signature.h"
#include "gpu/runtime/kernel_source.h"
#include "gpu/runtime/program_cache.h"

namespace palpate::gpu {

class Kernel;

/// -D macros of a program, in canonical (sorted) order so that the cache key is stable.
using ProgramDefines = std::map<std::string, std::string>;

struct ContextOptions {
  std::string device = {};                                 ///< see SelectDevice
  std::optional<std::filesystem::path> cache_folder = {};  ///< of program binaries; nullopt = ProgramCache::DefaultFolder(), "" = no cache
  size_t guard_bytes = 0;                                  ///< tests: this many patterned bytes around each buffer, see CheckGuards
  /// Device times by kernel: of its launches one in so many is timed and stands for all, since timing one costs as much as a launch; 0:
  /// none. A prime, so that launches which come in turns (colours, sweeps) all have theirs.
  uint32_t time_one_in = 61;
};

/// Device time of one kernel since the context began.
struct KernelTime {
  std::string name;
  uint64_t launches = 0;
  double seconds = 0;  ///< an estimate unless each launch is timed
};

/// What was asked of a device. Where commands are many and small, their number is what a step costs, and each wait a round trip.
struct CommandCounts {
  uint64_t launches = 0;
  uint64_t transfers = 0;  ///< reads and writes of host memory
  uint64_t fills = 0;      ///< fills and copies within the device
  uint64_t waits = 0;      ///< times that the host waited for all commands so far

  uint64_t commands() const { return launches + transfers + fills; }
  friend CommandCounts operator-(const CommandCounts& a, const CommandCounts& b) {
    return {a.launches - b.launches, a.transfers - b.transfers, a.fills - b.fills, a.waits - b.waits};
  }
};

/// A built program; kernels of it may be made on any thread.
class Program {
 public:
  Program(cl_program program, ProgramSignatures signatures, std::string path)
      : program_(program), signatures_(std::move(signatures)), path_(std::move(path)) {}
  ~Program() { clReleaseProgram(program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  cl_program handle() const { return program_; }
  const ProgramSignatures& signatures() const { return signatures_; }
  const std::string& path() const { return path_; }

 private:
  cl_program program_;
  ProgramSignatures signatures_;
  std::string path_;
};

/// One device with its programs, memory account and kernel times. Thread-safe. Buffers, queues and kernels keep it alive.
class Context : public std::enable_shared_from_this<Context> {
 public:
  static absl::StatusOr<std::shared_ptr<Context>> Create(const ContextOptions& options = {});
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const DeviceInfo& device() const { return device_; }
  cl_context handle() const { return context_; }
  uint32_t time_one_in() const { return time_one_in_; }

  /// Builds (or takes from memory or disk) a program. Every program gets -cl-std=CL1.2 and the defines. Errors: Internal with the
  /// compiler's log.
  absl::StatusOr<std::shared_ptr<Program>> BuildProgram(const KernelSource& source, const ProgramDefines& defines = {});

  /// A kernel object of its own (arguments are per object, so one thread uses it). Errors: NotFound for an unknown entry point.
  absl::StatusOr<Kernel> CreateKernel(const KernelSource& source, const char* entry_point, const ProgramDefines& defines = {});

  size_t allocated_bytes() const { return allocated_bytes_.load(std::memory_order_relaxed); }
  size_t peak_allocated_bytes() const { return peak_bytes_.load(std::memory_order_relaxed); }
  uint64_t programs_compiled() const { return programs_compiled_.load(std::memory_order_relaxed); }  ///< not found in any cache

  /// Of all queues since the context began.
  CommandCounts commands() const;

  /// Kernel times so far, by name.
  std::vector<KernelTime> KernelTimes() const;

  /// Blocking. Verifies the guard bands of all live buffers, and of those destroyed since the last call; InvalidArgument naming the first
  /// damaged one. OK when guard_bytes was 0. Commands of unfinished queues may be missed.
  absl::Status CheckGuards();

 private:
  friend class RawBuffer;
  friend class Queue;
  friend class Kernel;
  struct Timer {
    std::atomic<uint64_t> launches{0};
    std::atomic<uint64_t> nanoseconds{0};
  };

  Context() : cache_({}) {}
  absl::StatusOr<std::shared_ptr<Program>> LoadOrCompile(const KernelSource& source, const std::string& options);
  Timer* TimerFor(const std::string& kernel_name);
  void AddAllocation(size_t bytes);
  void RemoveAllocation(size_t bytes) { allocated_bytes_.fetch_sub(bytes, std::memory_order_relaxed); }

  DeviceInfo device_;
  cl_context context_ = nullptr;
  uint32_t time_one_in_ = 0;
  size_t guard_bytes_ = 0;
  ProgramCache cache_;
  std::atomic<size_t> allocated_bytes_{0};
  std::atomic<size_t> peak_bytes_{0};
  std::atomic<uint64_t> programs_compiled_{0};
  std::atomic<uint64_t> launches_{0};
  std::atomic<uint64_t> transfers_{0};
  std::atomic<uint64_t> fills_{0};
  std::atomic<uint64_t> waits_{0};

  mutable std::mutex mutex_;  // of those below
  std::map<std::string, std::shared_ptr<Program>> programs_;
  std::map<std::string, std::unique_ptr<Timer>> timers_;
  std::set<class RawBuffer*> guarded_buffers_;
  absl::Status guard_damage_;  // of a buffer that was destroyed since the last check
};

}  // namespace palpate::gpu
