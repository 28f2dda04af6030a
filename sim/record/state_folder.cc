#include "sim/record/state_folder.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/record/file_names.h"
#include "sim/record/past_files.h"

namespace palpate::record {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kVersionText = "palpate state 1\n";
constexpr char kRandomPattern[] = "-XXXXXX";  // what mkdtemp fills in
constexpr size_t kRandomBytes = sizeof(kRandomPattern) - 1;
constexpr std::string_view kRemovedPrefix = ".removed-";  // no scene has such an id

absl::Status MakeFolder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  return error ? FileError(path, "cannot be created", error.value()) : absl::OkStatus();
}

absl::Status CheckVersion(const fs::path& path) {
  const fs::path file = path / "version";
  const absl::StatusOr<std::string> text = ReadWholeFile(file, 256);
  if (text.ok() && *text == kVersionText) return absl::OkStatus();
  if (text.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", file.string(), "\" says \"", *text, "\"; this program reads \"",
                                                   absl::string_view(kVersionText.data(), 15), "\""));
  }
  if (!absl::IsNotFound(text.status())) return text.status();
  std::error_code error;
  // What a start that was killed has left is no reason to refuse the next one.
  const bool is_empty = std::all_of(fs::directory_iterator(path, error), fs::directory_iterator(), [](const fs::directory_entry& entry) {
    const fs::path name = entry.path().filename();
    return name == "lock" || name == absl::StrCat("version", absl::string_view(kPartExtension.data(), kPartExtension.size()));
  });
  if (!is_empty) {
    return absl::InvalidArgumentError(absl::StrCat("\"", path.string(), "\" holds files, but is no state folder of Palpate"));
  }
  const std::array<std::string_view, 1> parts = {kVersionText};
  return WriteWholeFile(SystemDisk(), file, parts);
}

/// False: a file went meanwhile.
absl::StatusOr<bool> LinkAll(const std::vector<fs::path>& files, const fs::path& folder) {
  for (const fs::path& file : files) {
    const fs::path link = folder / file.filename();
    std::error_code failure;
    fs::create_hard_link(file, link, failure);
    if (failure && failure != std::errc::no_such_file_or_directory) {
      failure.clear();
      fs::copy_file(file, link, failure);  // a file system without links
    }
    std::error_code ignored;
    if (failure && !fs::exists(file, ignored)) return false;
    if (failure) return FileError(link, "cannot be created", failure.value());
  }
  return true;
}

}  // namespace

StateFolder::StateFolder(fs::path path) : path_(std::move(path)), assets_(std::make_shared<AssetStore>(path_ / "assets")) {}

absl::StatusOr<std::unique_ptr<StateFolder>> StateFolder::Open(const fs::path& path) {
  PALPATE_RETURN_IF_ERROR(MakeFolder(path));
  std::unique_ptr<StateFolder> folder(new StateFolder(path));
  folder->lock_ = Descriptor(open((path / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0640));
  if (!folder->lock_.is_open()) return FileError(path / "lock", "cannot be opened", errno);
  if (flock(folder->lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(absl::StrCat("\"", path.string(), "\" is used by another server"));
  }
  PALPATE_RETURN_IF_ERROR(CheckVersion(path));
  PALPATE_RETURN_IF_ERROR(MakeFolder(path / "scenes"));
  std::error_code ignored;
  fs::remove_all(folder->HeldFolder(), ignored);  // of replays that ended with their process
  PALPATE_RETURN_IF_ERROR(MakeFolder(folder->HeldFolder()));
  PALPATE_RETURN_IF_ERROR(MakeFolder(path / "assets"));
  PALPATE_RETURN_IF_ERROR(SyncFolder(path));
  return folder;
}

absl::StatusOr<std::vector<std::string>> StateFolder::SceneIds() const {
  std::vector<std::string> out;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_ / "scenes", error)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory() && !absl::StartsWith(name, {kRemovedPrefix.data(), kRemovedPrefix.size()})) out.push_back(name);
  }
  if (error) return FileError(path_ / "scenes", "cannot be read", error.value());
  std::sort(out.begin(), out.end());
  return out;
}

fs::path StateFolder::SceneFolder(const std::string& id) const { return path_ / "scenes" / id; }

absl::Status StateFolder::AddScene(const std::string& id) const {
  std::error_code error;
  if (!fs::create_directory(SceneFolder(id), error)) {
    if (error) return FileError(SceneFolder(id), "cannot be created", error.value());
    return absl::AlreadyExistsError(absl::StrCat("\"", SceneFolder(id).string(), "\" exists"));
  }
  return SyncFolder(path_ / "scenes");
}

absl::Status StateFolder::RemoveScene(const std::string& id) const {
  fs::path removed;
  std::error_code error;
  for (int n = 0; removed.empty() || fs::exists(removed, error); ++n) {
    removed = path_ / "scenes" / absl::StrCat(absl::string_view(kRemovedPrefix.data(), kRemovedPrefix.size()), n, "-", id);
  }
  fs::rename(SceneFolder(id), removed, error);
  if (error) return FileError(SceneFolder(id), "cannot be removed", error.value());
  PALPATE_RETURN_IF_ERROR(SyncFolder(path_ / "scenes"));
  fs::remove_all(removed, error);
  return absl::OkStatus();
}

std::vector<fs::path> StateFolder::HoldFolders(const std::string& id) const {
  std::vector<fs::path> out;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(HeldFolder(), error)) {
    const std::string name = entry.path().filename().string();
    // Another id may begin with this one.
    if (name.size() == id.size() + kRandomBytes && absl::StartsWith(name, id)) out.push_back(entry.path());
  }
  return out;
}

absl::StatusOr<std::unique_ptr<TemporaryFolder>> StateFolder::HoldPast(const std::string& id, uint64_t max_bytes) const {
  const std::lock_guard lock(hold_mutex_);
  const std::vector<fs::path> holds = HoldFolders(id);
  const PastFiles past = ListPast(SceneFolder(id), holds);
  if (past.held_bytes > 0 && past.bytes + past.held_bytes > max_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(holds.size(), holds.size() == 1 ? " replay or recording under way holds " : " replays or recordings under way hold ",
                     past.held_bytes, " bytes that scene \"", id, "\" has let go; with its own ", past.bytes,
                     " these are beyond max_state_bytes = ", max_bytes, ". There is room again when a replay of it is deleted"));
  }
  // What is listed and linked without a loss is the past of one moment. Where something was trimmed meanwhile, the rest would have a gap.
  while (true) {
    PALPATE_ASSIGN_OR_RETURN(std::unique_ptr<TemporaryFolder> held, TemporaryFolder::CreateIn(HeldFolder(), id));
    std::vector<fs::path> files;
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(SceneFolder(id), error)) {
      if (SequenceOfJournal(entry.path()) || StateOfFile(entry.path())) files.push_back(entry.path());
    }
    if (error == std::errc::no_such_file_or_directory) return absl::NotFoundError(absl::StrCat("scene \"", id, "\" is not kept"));
    if (error) return FileError(SceneFolder(id), "cannot be read", error.value());
    PALPATE_ASSIGN_OR_RETURN(const bool is_whole, LinkAll(files, held->path()));
    if (is_whole) return held;
  }
}

void StateFolder::CollectGarbage(const std::vector<v1::AssetReference>& references) const {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_ / "scenes", error)) {
    if (absl::StartsWith(entry.path().filename().string(), {kRemovedPrefix.data(), kRemovedPrefix.size()})) {
      std::error_code ignored;
      fs::remove_all(entry.path(), ignored);
    }
  }
  const std::set<std::string> wanted = KeysOf(references);
  for (const fs::directory_entry& entry : fs::directory_iterator(assets_->folder(), error)) {
    std::error_code ignored;
    if (wanted.count(entry.path().filename().string()) == 0) fs::remove_all(entry.path(), ignored);
  }
}

absl::StatusOr<std::unique_ptr<TemporaryFolder>> TemporaryFolder::Create() {
  std::error_code error;
  const fs::path base = fs::temp_directory_path(error);
  return CreateIn(error ? fs::path("/tmp") : base);
}

absl::StatusOr<std::unique_ptr<TemporaryFolder>> TemporaryFolder::CreateIn(const fs::path& parent, const std::string& prefix) {
  std::string name = (parent / (prefix + kRandomPattern)).string();
  if (mkdtemp(name.data()) == nullptr) return FileError(name, "cannot be created", errno);
  return std::unique_ptr<TemporaryFolder>(new TemporaryFolder(name));
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace palpate::record
