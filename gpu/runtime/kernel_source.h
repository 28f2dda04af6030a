#pragma once

#include <string_view>

namespace palpate::gpu {

/// The flattened text of one .cl file, embedded at build time. Declare the ones you use:
///   namespace palpate::gpu::kernels { extern const KernelSource radix_sort; }
struct KernelSource {
  std::string_view path;  ///< from the repository root, as it appears in compiler messages
  std::string_view text;
};

}  // namespace palpate::gpu
