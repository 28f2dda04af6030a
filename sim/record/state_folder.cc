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

namespace palpate::record {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kVersionText = "palpate state 1\n";
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

absl::StatusOr<std::unique_ptr<TemporaryFolder>> StateFolder::HoldPast(const std::string& id) const {
  PALPATE_ASSIGN_OR_RETURN(std::unique_ptr<TemporaryFolder> held, TemporaryFolder::CreateIn(HeldFolder()));
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(SceneFolder(id), error)) {
    if (!SequenceOfJournal(entry.path()) && !StateOfFile(entry.path())) continue;
    const fs::path link = held->path() / entry.path().filename();
    std::error_code failure;
    fs::create_hard_link(entry.path(), link, failure);
    if (failure == std::errc::no_such_file_or_directory) continue;  // trimmed just now
    if (failure) fs::copy_file(entry.path(), link, failure);        // a file system without links
    std::error_code ignored;
    if (failure && fs::exists(entry.path(), ignored)) return FileError(link, "cannot be created", failure.value());
  }
  if (error) return FileError(SceneFolder(id), "cannot be read", error.value());
  return held;
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

absl::StatusOr<std::unique_ptr<TemporaryFolder>> TemporaryFolder::CreateIn(const fs::path& parent) {
  std::string name = (parent / "palpate-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) return FileError(name, "cannot be created", errno);
  return std::unique_ptr<TemporaryFolder>(new TemporaryFolder(name));
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace palpate::record
