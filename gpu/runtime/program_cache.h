#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace palpate::gpu {

/// Program binaries on disk. A file holds the whole key (source, options, device, driver) and a checksum, so a collision of file names or a
/// damaged file is noticed and counts as absent. Files are replaced atomically: processes may share the folder. Failures are never errors,
/// only misses.
class ProgramCache {
 public:
  /// An empty folder name switches the cache off.
  explicit ProgramCache(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// $PALPATE_CACHE_DIR, else $XDG_CACHE_HOME/palpate, else $HOME/.cache/palpate, else "" (off).
  static std::filesystem::path DefaultFolder();

  std::optional<std::vector<unsigned char>> Load(std::string_view key) const;
  void Store(std::string_view key, const std::vector<unsigned char>& binary) const;

  /// The file that would hold this key.
  std::filesystem::path FileOf(std::string_view key) const;

 private:
  std::filesystem::path folder_;
};

/// FNV-1a, 64 bit. Stable across runs and machines.
uint64_t Fnv1a64(std::string_view bytes, uint64_t seed = 0xcbf29ce484222325ULL);

}  // namespace palpate::gpu
