#include "gpu/runtime/program_cache.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace palpate::gpu {
namespace {

constexpr std::string_view kMagic = "palpate-program-1\n";

struct Header {
  uint64_t key_size = 0;
  uint64_t binary_size = 0;
  uint64_t checksum = 0;  // of key, then binary
};

}  // namespace

uint64_t Fnv1a64(std::string_view bytes, uint64_t seed) {
  uint64_t hash = seed;
  for (const char byte : bytes) {
    hash ^= static_cast<unsigned char>(byte);
    hash *= 0x100000001b3ULL;
  }
  return hash;
}

std::filesystem::path ProgramCache::DefaultFolder() {
  if (const char* folder = std::getenv("PALPATE_CACHE_DIR")) return folder;
  if (const char* base = std::getenv("XDG_CACHE_HOME"); base != nullptr && *base != '\0') return std::filesystem::path(base) / "palpate";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') return std::filesystem::path(home) / ".cache" / "palpate";
  return {};
}

std::filesystem::path ProgramCache::FileOf(std::string_view key) const {
  const uint64_t first = Fnv1a64(key);
  const uint64_t second = Fnv1a64(key, first ^ 0x9e3779b97f4a7c15ULL);
  return folder_ / absl::StrFormat("%016x%016x.clbin", first, second);
}

std::optional<std::vector<unsigned char>> ProgramCache::Load(std::string_view key) const {
  if (folder_.empty()) return std::nullopt;
  std::ifstream file(FileOf(key), std::ios::binary | std::ios::ate);
  if (!file) return std::nullopt;
  const auto size = static_cast<uint64_t>(file.tellg());
  file.seekg(0);
  std::string magic(kMagic.size(), '\0');
  Header header;
  if (size < kMagic.size() + sizeof(header)) return std::nullopt;
  file.read(magic.data(), static_cast<std::streamsize>(magic.size()));
  file.read(reinterpret_cast<char*>(&header), sizeof(header));
  if (!file || magic != kMagic || header.key_size != key.size() || header.binary_size > size ||
      header.key_size + header.binary_size + kMagic.size() + sizeof(header) != size) {
    return std::nullopt;
  }
  std::string stored_key(header.key_size, '\0');
  std::vector<unsigned char> binary(header.binary_size);
  file.read(stored_key.data(), static_cast<std::streamsize>(stored_key.size()));
  file.read(reinterpret_cast<char*>(binary.data()), static_cast<std::streamsize>(binary.size()));
  if (!file || stored_key != key) return std::nullopt;
  const std::string_view view(reinterpret_cast<const char*>(binary.data()), binary.size());
  if (Fnv1a64(view, Fnv1a64(key)) != header.checksum) return std::nullopt;
  return binary;
}

void ProgramCache::Store(std::string_view key, const std::vector<unsigned char>& binary) const {
  if (folder_.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) return;
  static std::atomic<uint64_t> serial{0};
  const std::filesystem::path target = FileOf(key);
  const std::filesystem::path temporary = absl::StrCat(target.string(), ".", getpid(), ".", serial.fetch_add(1), ".tmp");
  {
    std::ofstream file(temporary, std::ios::binary);
    const std::string_view view(reinterpret_cast<const char*>(binary.data()), binary.size());
    const Header header{key.size(), binary.size(), Fnv1a64(view, Fnv1a64(key))};
    file.write(kMagic.data(), static_cast<std::streamsize>(kMagic.size()));
    file.write(reinterpret_cast<const char*>(&header), sizeof(header));
    file.write(key.data(), static_cast<std::streamsize>(key.size()));
    file.write(view.data(), static_cast<std::streamsize>(view.size()));
    if (!file) {
      file.close();
      std::filesystem::remove(temporary, error);
      return;
    }
  }
  std::filesystem::rename(temporary, target, error);
  if (error) std::filesystem::remove(temporary, error);
}

}  // namespace palpate::gpu
