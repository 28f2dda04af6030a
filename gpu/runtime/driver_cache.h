#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace palpate::gpu {

/// PoCL keeps what it has compiled in a folder of its own, trusts what it finds there, and ends the process when a file is damaged or the
/// folder takes no more: with it go all scenes. So before OpenCL is used the first time in a process, the cache is moved into Palpate's own
/// cache folder (beside other programs' it could be spoiled by them), looked through, and set aside if it cannot be used. Nothing happens
/// if $POCL_CACHE_DIR or $POCL_KERNEL_CACHE is set: that folder is somebody else's, and only looked at. Other drivers do not know of it.
///
/// Processes share the folder, and hold a lock while they use it. What looks damaged may be a file that another process is writing: only
/// who is alone believes it at once and sets the folder aside, others look at files that are a minute old and go elsewhere.
///
/// Found are: a folder that cannot be written or has less than kLeastFreeBytes free; empty files; shared objects whose sections end beyond
/// the file; programs that are no LLVM bitcode. Not found is a file of the right shape with wrong contents.
///
/// Returns what was wrong and what was done, one sentence each, and prints it on standard error if `prints_notes`; nothing if all is well.
/// Only the first call of a process does anything, others return what it found. Must not run beside code that reads the environment: call
/// it early. Thread-safe against itself.
const std::vector<std::string>& PrepareDriverCache(bool prints_notes = true);

/// What PrepareDriverCache looks for in the folder, without its effects: a path for each damaged file that was last written at least
/// `min_age` ago. Files that vanish meanwhile, as other processes replace them, are no damage.
std::vector<std::filesystem::path> DamagedFiles(const std::filesystem::path& folder, std::chrono::seconds min_age = {});

inline constexpr uintmax_t kLeastFreeBytes = uintmax_t{64} << 20;

}  // namespace palpate::gpu
