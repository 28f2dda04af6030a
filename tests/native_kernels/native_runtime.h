#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// The OpenCL calls of gpu/runtime, implemented for this process: linked instead of the system's OpenCL library, it lets every program of
/// ours that uses the device run its kernels as host code under sanitizers.
///
/// clBuildProgram compiles the kernels with clang (`-x cl`, with the sanitizers this program was built with) to a shared object and loads
/// it; built-in functions come from native_builtins.cl. Commands run at once, in the calling thread; the work-items of a group are fibers
/// that switch at barriers. So these are found:
///   - AddressSanitizer: an access outside a buffer (also into the guard bands of a test context), a local array or a private one;
///   - UndefinedBehaviorSanitizer: misaligned access, overflow of signed integers, casts and shifts out of range, ...;
///   - ThreadSanitizer: two work-items that touch the same memory without a barrier between them, although they run one after the other;
///   - always: a barrier that not all work-items of a group reach; a launch with an argument missing, or of the wrong size.
/// Not found: races between work-groups of kernels with local memory (local variables are one object for all groups, so groups are
/// synchronised); what another compiler makes of the code.
namespace palpate::native {

struct LaunchRecord {
  std::string file;    ///< the .cl file, from the repository root
  std::string kernel;  ///< entry point
  uint64_t launches = 0;
};

/// Every kernel compiled so far in this process, with its launches.
std::vector<LaunchRecord> Launches();

}  // namespace palpate::native
