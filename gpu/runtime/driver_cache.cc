#include "gpu/runtime/driver_cache.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "gpu/runtime/program_cache.h"

namespace palpate::gpu {
namespace {

namespace fs = std::filesystem;

bool IsDamagedSharedObject(std::istream& file, uintmax_t size) {
  Elf64_Ehdr header{};
  if (!file.read(reinterpret_cast<char*>(&header), sizeof(header)) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return true;
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return false;  // of another kind of machine: not ours to judge
  return header.e_shoff + uintmax_t{header.e_shentsize} * header.e_shnum > size;
}

bool IsDamagedBitcode(std::istream& file) {
  char magic[4] = {};
  return !file.read(magic, sizeof(magic)) || std::memcmp(magic, "BC\xC0\xDE", sizeof(magic)) != 0;
}

/// Why nothing can be kept in the folder, which is made if need be; empty if it can.
std::string WhyUnusable(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return absl::StrCat("cannot be made (", error.message(), ")");
  const fs::path probe = folder / absl::StrCat("probe-", getpid());
  {
    std::ofstream file(probe, std::ios::binary);
    file << std::string(4096, 'x');
    file.flush();
    if (!file) error = std::make_error_code(std::errc::permission_denied);
  }
  std::error_code ignored;
  fs::remove(probe, ignored);
  if (error) return "cannot be written";
  const fs::space_info space = fs::space(folder, error);
  if (!error && space.available < kLeastFreeBytes) {
    return absl::StrCat("has ", space.available >> 20, " MiB free where ", kLeastFreeBytes >> 20, " are needed");
  }
  return "";
}

/// A folder that is this process's alone, for drivers that need one; empty if there is none to be had.
std::string TemporaryFolder() {
  for (const char* base : {"/dev/shm", "/tmp", "/var/tmp"}) {
    std::string name = absl::StrCat(base, "/palpate-pocl-XXXXXX");
    if (mkdtemp(name.data()) == nullptr) continue;
    if (WhyUnusable(name).empty()) return name;
    rmdir(name.c_str());
  }
  return "";
}

constexpr std::chrono::seconds kWritten{60};  // so long after its last change nobody is writing a file any more

/// Locks the folder for the rest of this process's life, shared with others. True if no other process had it: then `alone` runs first, and
/// meanwhile nobody else gets it.
template <typename Alone>
bool LockFolder(const fs::path& folder, const Alone& alone) {
  std::error_code ignored;
  fs::create_directories(folder.parent_path(), ignored);
  const int file = open(absl::StrCat(folder.string(), ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  const bool is_alone = file < 0 || flock(file, LOCK_EX | LOCK_NB) == 0;
  if (is_alone) alone();
  if (file >= 0) flock(file, LOCK_SH);  // held until the process ends
  return is_alone;
}

std::vector<std::string> Prepare() {
  std::vector<std::string> notes;
  const char* const given = std::getenv("POCL_CACHE_DIR");
  if (given != nullptr && *given != '\0') {
    if (const std::string why = WhyUnusable(given); !why.empty()) notes.push_back(absl::StrCat("$POCL_CACHE_DIR ", given, " ", why));
    if (const auto damaged = DamagedFiles(given); !damaged.empty()) {
      notes.push_back(absl::StrCat("$POCL_CACHE_DIR holds ", damaged.size(), " damaged files, for instance ", damaged[0].string(),
                                   ", on which PoCL may end this program; remove the folder"));
    }
    return notes;
  }
  const fs::path base = ProgramCache::DefaultFolder();
  if (base.empty() || std::getenv("POCL_KERNEL_CACHE") != nullptr) return notes;
  fs::path folder = base / "pocl";
  const auto tell = [&](const std::vector<fs::path>& damaged, const std::string& done) {
    notes.push_back(absl::StrCat("PoCL's cache ", folder.string(), " holds ", damaged.size(), " damaged files, for instance ",
                                 damaged[0].string(), "; ", done));
  };
  const bool is_alone = LockFolder(folder, [&] {
    const std::vector<fs::path> damaged = DamagedFiles(folder);
    if (damaged.empty()) return;
    const fs::path aside = base / absl::StrCat("pocl-damaged-", getpid());
    std::error_code error;
    fs::rename(folder, aside, error);
    tell(damaged, error ? "it cannot be moved: " + error.message() : "it was moved to " + aside.string() + ", kernels are compiled anew");
    if (error) folder.clear();
  });
  if (!is_alone) {
    if (const std::vector<fs::path> damaged = DamagedFiles(folder, kWritten); !damaged.empty()) {
      tell(damaged, "it is left to the programs that use it");
      folder.clear();
    }
  }
  if (!folder.empty()) {
    if (const std::string why = WhyUnusable(folder); !why.empty()) {
      notes.push_back(absl::StrCat("PoCL's cache ", folder.string(), " ", why));
      folder.clear();
    }
  }
  if (folder.empty()) {
    folder = TemporaryFolder();
    notes.push_back(folder.empty() ? "no folder for PoCL's compiled kernels can be found; it may end this program"
                                   : "kernels are compiled into " + folder.string() + ", which is not kept");
    if (folder.empty()) return notes;
    static const fs::path temporary = folder;
    std::atexit([] {
      std::error_code ignored;
      fs::remove_all(temporary, ignored);
    });
  }
  setenv("POCL_CACHE_DIR", folder.c_str(), 1);
  return notes;
}

}  // namespace

std::vector<fs::path> DamagedFiles(const fs::path& folder, std::chrono::seconds min_age) {
  std::vector<fs::path> damaged;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code gone;
    const fs::path& path = at->path();
    const bool is_object = path.extension() == ".so";
    const bool is_bitcode = path.extension() == ".bc";
    if ((!is_object && !is_bitcode) || !at->is_regular_file(gone)) continue;
    std::ifstream file(path, std::ios::binary);
    const uintmax_t size = fs::file_size(path, gone);
    if (min_age.count() > 0 && fs::file_time_type::clock::now() - fs::last_write_time(path, gone) < min_age) continue;
    if (!file || gone) continue;
    if (is_object ? IsDamagedSharedObject(file, size) : IsDamagedBitcode(file)) damaged.push_back(path);
  }
  return damaged;
}

const std::vector<std::string>& PrepareDriverCache(bool prints_notes) {
  static const std::vector<std::string> notes = [prints_notes] {
    std::vector<std::string> found = Prepare();
    for (const std::string& note : found) {
      if (prints_notes) std::fprintf(stderr, "palpate: %s\n", note.c_str());
    }
    return found;
  }();
  return notes;
}

}  // namespace palpate::gpu
