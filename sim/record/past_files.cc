#include "sim/record/past_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <utility>

#include "sim/record/file_names.h"

namespace palpate::record {
namespace {

namespace fs = std::filesystem;

using FileKey = std::pair<dev_t, ino_t>;

/// `visit(path, key, bytes)` for each file in a folder.
template <typename Visit>
void VisitFiles(const fs::path& folder, const Visit& visit) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    struct stat about {};
    if (stat(entry.path().c_str(), &about) != 0 || !S_ISREG(about.st_mode)) continue;
    visit(entry.path(), FileKey(about.st_dev, about.st_ino), static_cast<uint64_t>(about.st_size));
  }
}

}  // namespace

PastFiles ListPast(const fs::path& folder, std::span<const fs::path> held) {
  // Before those of the scene, so that one that the scene lets go meanwhile is not missed.
  std::map<FileKey, uint64_t> only_held;
  for (const fs::path& hold : held) {
    VisitFiles(hold, [&](const fs::path&, const FileKey& key, uint64_t bytes) { only_held[key] = bytes; });
  }
  PastFiles out;
  VisitFiles(folder, [&](const fs::path& path, const FileKey& key, uint64_t bytes) {
    const auto state = StateOfFile(path);
    const auto journal = SequenceOfJournal(path);
    if (!state && !journal) return;
    const bool is_held = only_held.erase(key) > 0;
    out.bytes += bytes;
    if (state) {
      out.states.push_back({path, state->sequence, state->position, bytes, is_held});
    } else {
      out.journals.push_back({path, *journal, 0, bytes, is_held});
    }
  });
  for (const auto& [key, bytes] : only_held) out.held_bytes += bytes;
  const auto by_sequence = [](const PastFile& a, const PastFile& b) { return a.sequence < b.sequence; };
  std::sort(out.states.begin(), out.states.end(), by_sequence);
  std::sort(out.journals.begin(), out.journals.end(), by_sequence);
  return out;
}

}  // namespace palpate::record
