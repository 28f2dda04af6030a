#include "sim/record/recording.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gpu/base/status.h"
#include "sim/record/file_names.h"
#include "sim/scene/edit_request.h"

namespace palpate::record {
namespace {

namespace fs = std::filesystem;

std::string KindsOf(const v1::EditSceneRequest& request) {
  std::vector<std::string> kinds;
  for (const v1::Edit& edit : request.edits()) {
    if (edit.edit_case() == v1::Edit::EDIT_NOT_SET) continue;
    const auto kind = std::string(scene::kEditKindNames[edit.edit_case() - v1::Edit::kCarve]);
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
  }
  return absl::StrJoin(kinds, ", ");
}

}  // namespace

void EventList::Note(const v1::JournalEntry& entry, uint64_t position, uint64_t step) {
  v1::Timeline::Event event;
  event.set_position(position);
  event.set_step(step);
  switch (entry.entry_case()) {
    case v1::JournalEntry::kEdit:
      if (!entry.edit().has_request()) return;
      event.set_kind("edit");
      event.set_label(KindsOf(entry.edit().request()));
      break;
    case v1::JournalEntry::kReset:
      event.set_kind("reset");
      event.set_label(entry.reset().reset_by());
      break;
    case v1::JournalEntry::kBookmark: {
      const v1::Bookmark& bookmark = entry.bookmark().bookmark();
      std::erase_if(events_, [&bookmark](const auto& old) { return old.kind() == "bookmark" && old.label() == bookmark.name(); });
      if (entry.bookmark().is_removed()) return;
      event.set_position(bookmark.position());
      event.set_step(bookmark.step());
      event.set_time_us(bookmark.time_us());
      event.set_kind("bookmark");
      event.set_label(bookmark.name());
      break;
    }
    default:
      return;
  }
  Add(std::move(event));
}

void EventList::Add(v1::Timeline::Event event) {
  const auto at = std::upper_bound(events_.begin(), events_.end(), event.position(),
                                   [](uint64_t position, const auto& other) { return position < other.position(); });
  events_.insert(at, std::move(event));
  if (events_.size() > kMaxEvents) events_.pop_front();
}

uint64_t EventList::StepAt(uint64_t position) const {
  uint64_t reset = 0;
  for (const v1::Timeline::Event& event : events_) {
    if (event.kind() == "reset" && event.position() <= position) reset = event.position();
  }
  return position - reset;
}

std::optional<uint64_t> EventList::FindBookmark(const std::string& name) const {
  for (const v1::Timeline::Event& event : events_) {
    if (event.kind() == "bookmark" && event.label() == name) return event.position();
  }
  return std::nullopt;
}

absl::StatusOr<std::shared_ptr<const Recording>> Recording::OpenFile(const fs::path& path) {
  auto recording = std::make_shared<Recording>();
  PALPATE_RETURN_IF_ERROR(recording->ReadJournal(path, /*is_recording=*/true));
  return recording;
}

absl::StatusOr<std::shared_ptr<const Recording>> Recording::OpenFolder(const fs::path& folder) {
  std::vector<fs::path> journals;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (SequenceOfJournal(entry.path())) journals.push_back(entry.path());
  }
  if (error) return FileError(folder, "cannot be read", error.value());
  std::sort(journals.begin(), journals.end());
  auto recording = std::make_shared<Recording>();
  for (const fs::path& path : journals) {
    if (absl::Status status = recording->ReadJournal(path, /*is_recording=*/false); !status.ok()) {
      if (absl::IsInvalidArgument(status)) return status;  // another version: nothing of it is touched
      recording->damages_.emplace_back(status.message());
    }
  }
  if (recording->files_.empty()) {
    return absl::DataLossError(absl::StrCat("\"", folder.string(), "\" holds no journal that can be read",
                                            recording->damages_.empty() ? "" : ": ", absl::StrJoin(recording->damages_, "; ")));
  }
  recording->FindStates(folder);
  return recording;
}

absl::Status Recording::ReadJournal(const fs::path& path, bool is_recording) {
  PALPATE_ASSIGN_OR_RETURN(JournalReader reader, JournalReader::Open(path));
  v1::JournalEntry entry;
  PALPATE_ASSIGN_OR_RETURN(const bool has_head, reader.Next(&entry));
  if (!has_head || !entry.has_head()) {
    return absl::DataLossError(absl::StrCat("\"", path.string(), "\", byte ", kFileHeaderBytes, ": the head is missing"));
  }
  File file;
  file.path = path;
  file.begin_sequence = entry.sequence() + 1;
  file.end_sequence = entry.sequence();
  if (files_.empty()) {
    head_ = entry.head();
    begin_sequence_ = file.begin_sequence;
    begin_position_ = end_position_ = head_.begin_position();
    end_sequence_ = entry.sequence();
  } else if (file.begin_sequence > end_sequence_ + 1) {
    damages_.push_back(
        absl::StrCat("entries ", end_sequence_ + 1, " to ", entry.sequence(), " are missing before \"", path.string(), "\""));
    end_position_ = entry.head().begin_position();
    end_sequence_ = entry.sequence();
    v1::Timeline::Event gap;
    gap.set_kind("gap");
    gap.set_label(damages_.back());
    gap.set_position(end_position_);
    events_.Add(std::move(gap));
  }
  uint64_t offset = reader.offset();
  while (true) {
    absl::StatusOr<bool> has_entry = reader.Next(&entry);
    if (!has_entry.ok()) {
      damages_.emplace_back(has_entry.status().message());
      break;
    }
    if (!*has_entry) break;
    NoteEntry(entry, offset, &file, is_recording);
    offset = reader.offset();
  }
  file.end_offset = reader.offset();
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

void Recording::NoteEntry(const v1::JournalEntry& entry, uint64_t offset, File* file, bool is_recording) {
  if (entry.has_state()) {
    if (!is_recording) return;
    states_.push_back({entry.sequence(), entry.state().position(), file->path, offset});
    if (begin_sequence_ > 1 && states_.size() == 1) begin_position_ = end_position_ = entry.state().position();
    return;
  }
  if (entry.has_head() || entry.has_asset() || entry.sequence() <= end_sequence_) return;
  file->end_sequence = end_sequence_ = entry.sequence();
  if (entry.has_step()) {
    ++end_position_;
    step_ = entry.step().step();
  } else if (entry.has_reset()) {
    step_ = 0;
  }
  events_.Note(entry, end_position_, step_);
}

void Recording::FindStates(const fs::path& folder) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::optional<StateFileName> name = StateOfFile(entry.path());
    if (name) states_.push_back({name->sequence, name->position, entry.path(), std::nullopt});
  }
  std::sort(states_.begin(), states_.end(), [](const StateRef& a, const StateRef& b) { return a.sequence < b.sequence; });
  // What is not reached from a state (or from the creation) cannot be shown.
  if (!has_begin() && !states_.empty()) begin_position_ = std::max(begin_position_, states_.front().position);
  // A state may be newer than the entries that could be read.
  if (!states_.empty() && states_.back().sequence > end_sequence_) {
    end_sequence_ = states_.back().sequence;
    end_position_ = states_.back().position;
  }
}

absl::StatusOr<SceneCheckpoint> Recording::LoadState(const StateRef& state) const {
  if (!state.entry_offset) return ReadStateFile(state.file);
  PALPATE_ASSIGN_OR_RETURN(JournalReader reader, JournalReader::Open(state.file));
  reader.SeekTo(*state.entry_offset);
  v1::JournalEntry entry;
  PALPATE_ASSIGN_OR_RETURN(const bool has_entry, reader.Next(&entry));
  if (!has_entry || !entry.has_state()) return absl::DataLossError(absl::StrCat("\"", state.file.string(), "\" has changed"));
  return DecodeState(entry.state().checkpoint(), absl::StrCat("\"", state.file.string(), "\", the state at byte ", *state.entry_offset));
}

absl::Status Recording::UnpackAssets(const AssetStore& store) const {
  if (files_.empty() || head_.assets().empty()) return absl::OkStatus();
  PALPATE_ASSIGN_OR_RETURN(JournalReader reader, JournalReader::Open(files_.front().path));
  std::vector<AssetFile> group;
  const auto put = [&]() -> absl::Status {
    if (group.empty()) return absl::OkStatus();
    const absl::Status status = store.Put(group).status();
    group.clear();
    return status;
  };
  v1::JournalEntry entry;
  while (true) {
    PALPATE_ASSIGN_OR_RETURN(const bool has_entry, reader.Next(&entry));
    if (!has_entry) break;
    if (entry.has_head()) continue;
    if (!entry.has_asset()) break;  // assets lie right behind the head
    const v1::JournalAsset& asset = entry.asset();
    if (Sha256(asset.content()) != asset.reference().hash()) {
      return absl::DataLossError(absl::StrCat("asset \"", asset.reference().name(), "\" is not what its hash says"));
    }
    if (!asset.goes_with_previous()) PALPATE_RETURN_IF_ERROR(put());
    group.push_back({asset.reference().name(), asset.content()});
  }
  return put();
}

absl::StatusOr<bool> Recording::Cursor::Next(v1::JournalEntry* entry) {
  const std::vector<File>& files = recording_.files_;
  while (true) {
    if (!reader_) {
      while (file_ < files.size() && files[file_].end_sequence <= sequence_) ++file_;
      if (file_ == files.size()) return false;
      if (files[file_].begin_sequence > sequence_ + 1) {
        return absl::DataLossError(absl::StrCat("entries ", sequence_ + 1, " to ", files[file_].begin_sequence - 1,
                                                " are missing before \"", files[file_].path.string(), "\""));
      }
      PALPATE_ASSIGN_OR_RETURN(reader_, JournalReader::Open(files[file_].path));
    }
    // Behind the last good entry there is nothing, or damage that is known.
    if (reader_->offset() >= files[file_].end_offset) {
      reader_.reset();
      ++file_;
      continue;
    }
    PALPATE_RETURN_IF_ERROR(reader_->Next(entry).status());
    if (entry->has_head() || entry->has_asset() || entry->has_state() || entry->sequence() <= sequence_) continue;
    if (entry->sequence() != sequence_ + 1) {
      return absl::DataLossError(absl::StrCat("\"", reader_->path().string(), "\", before byte ", reader_->offset(), ": entry ",
                                              entry->sequence(), " comes after ", sequence_));
    }
    sequence_ = entry->sequence();
    return true;
  }
}

}  // namespace palpate::record
