#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "gpu/base/status.h"
#include "sim/record/file_names.h"
#include "sim/record/journal_file.h"
#include "sim/record/past_files.h"
#include "sim/record/scene_journal.h"

namespace palpate::record {
namespace {

namespace fs = std::filesystem;

class FolderTrimmer {
 public:
  FolderTrimmer(const fs::path& folder, std::span<const fs::path> held) : FolderTrimmer(ListPast(folder, held)) {}

  absl::Status TrimTo(uint64_t max_bytes) {
    while (total_ > max_bytes && status_.ok() && (ThinStates() || DropOldestJournals())) {
    }
    return status_;
  }

  /// Nothing: the creation.
  std::optional<uint64_t> BeginPosition() const {
    if (has_begin() || journals_.empty()) return std::nullopt;
    for (const PastFile& state : states_) {
      if (state.sequence + 1 >= journals_.front().sequence) return state.position;
    }
    return std::nullopt;
  }

 private:
  explicit FolderTrimmer(PastFiles files)
      : states_(std::move(files.states)), journals_(std::move(files.journals)), total_(files.bytes + files.held_bytes) {}
  bool has_begin() const { return !journals_.empty() && journals_.front().sequence == 1; }

  bool ThinStates() {
    // Without the begin the oldest state is what the past begins with.
    const size_t first = has_begin() ? 0 : 1;
    const size_t kept = 2;
    if (states_.size() <= first + kept) return false;
    const uint64_t now = states_.back().position;
    size_t best = states_.size();
    double best_score = 0;
    for (size_t s = first; s + kept < states_.size(); ++s) {
      if (states_[s].is_held) continue;
      const uint64_t before = s == 0 ? 0 : states_[s - 1].position;
      const double score = static_cast<double>(states_[s + 1].position - before) / static_cast<double>(now - states_[s].position + 1);
      if (best == states_.size() || score < best_score) {
        best = s;
        best_score = score;
      }
    }
    if (best == states_.size()) return false;
    Remove(&states_, best);
    return true;
  }

  /// As few as make room: what a replay holds too goes only before something that nobody holds.
  bool DropOldestJournals() {
    if (states_.size() < 2) return false;
    // The two newest states and what is behind the older of them bring the scene back.
    const uint64_t wanted = states_[states_.size() - 2].sequence + 1;
    size_t count = 0;
    bool makes_room = false;
    while (!makes_room && count + 1 < journals_.size() && journals_[count + 1].sequence <= wanted) {
      makes_room = !journals_[count++].is_held;
      for (const PastFile& state : states_) makes_room |= state.sequence + 1 < journals_[count].sequence && !state.is_held;
    }
    if (!makes_room) return false;
    for (; count > 0; --count) Remove(&journals_, 0);
    while (!states_.empty() && states_.front().sequence + 1 < journals_.front().sequence) Remove(&states_, 0);
    return true;
  }

  void Remove(std::vector<PastFile>* files, size_t at) {
    std::error_code error;
    fs::remove((*files)[at].path, error);
    if (error) status_ = FileError((*files)[at].path, "cannot be removed", error.value());
    if (!(*files)[at].is_held) total_ -= (*files)[at].bytes;
    files->erase(files->begin() + static_cast<std::ptrdiff_t>(at));
  }

  std::vector<PastFile> states_, journals_;
  uint64_t total_ = 0;  // with what only replays have
  absl::Status status_;
};

/// A journal that begins with its head and ends there.
bool IsWithoutEntries(const fs::path& path) {
  absl::StatusOr<JournalReader> reader = JournalReader::Open(path);
  if (!reader.ok()) return false;
  v1::JournalEntry entry;
  const absl::StatusOr<bool> has_head = reader->Next(&entry);
  if (!has_head.ok() || !*has_head) return false;
  const absl::StatusOr<bool> has_entry = reader->Next(&entry);
  return has_entry.ok() && !*has_entry;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> SetAsideBehind(const fs::path& folder, uint64_t sequence) {
  std::vector<fs::path> parts, behind;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const auto journal = SequenceOfJournal(entry.path());
    const auto state = StateOfFile(entry.path());
    if (entry.path().extension() == kPartExtension || (journal && *journal > sequence && IsWithoutEntries(entry.path()))) {
      parts.push_back(entry.path());
    } else if ((journal && *journal > sequence) || (state && state->sequence > sequence)) {
      behind.push_back(entry.path());
    }
  }
  if (error) return FileError(folder, "cannot be read", error.value());
  for (const fs::path& path : parts) {
    if (!fs::remove(path, error) && error) return FileError(path, "cannot be removed", error.value());
  }
  std::vector<std::string> out;
  for (const fs::path& path : behind) {
    const std::string aside = path.string() + ".aside";
    fs::rename(path, aside, error);
    if (error) return FileError(path, "cannot be renamed", error.value());
    out.push_back(aside);
  }
  return out;
}

absl::Status TrimFolder(const fs::path& folder, uint64_t max_bytes, uint64_t* begin_position, std::span<const fs::path> held) {
  FolderTrimmer trimmer(folder, held);
  const absl::Status status = trimmer.TrimTo(max_bytes);
  if (begin_position != nullptr) *begin_position = trimmer.BeginPosition().value_or(*begin_position);
  return status;
}

}  // namespace palpate::record
