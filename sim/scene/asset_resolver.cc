#include "sim/scene/asset_resolver.h"

#include <array>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gpu/base/status.h"

namespace palpate::scene {
namespace {

namespace fs = std::filesystem;

absl::Status CheckName(const std::string& name) {
  if (name.empty()) return absl::InvalidArgumentError("the file name is empty");
  if (name.size() > 1024) return absl::InvalidArgumentError(absl::StrCat("the file name has ", name.size(), " bytes, allowed are 1024"));
  if (name.find('\0') != std::string::npos) return absl::InvalidArgumentError("the file name holds a NUL byte");
  return absl::OkStatus();
}

/// Whether `path` lies below `root`; both canonical.
bool IsInside(const fs::path& path, const fs::path& root) {
  auto p = path.begin();
  for (const fs::path& part : root) {
    if (p == path.end() || *p != part) return false;
    ++p;
  }
  return p != path.end();
}

absl::StatusOr<fs::path> CanonicalRegularFile(const fs::path& path, const std::string& name) {
  std::error_code error;
  fs::path canonical = fs::canonical(path, error);
  if (error) return absl::NotFoundError(absl::StrCat("\"", name, "\": ", error.message()));
  if (!fs::is_regular_file(canonical, error) || error) {
    return absl::InvalidArgumentError(absl::StrCat("\"", name, "\" is not a regular file"));
  }
  return canonical;
}

}  // namespace

AssetRootResolver::AssetRootResolver(const fs::path& root) {
  if (root.empty()) return;
  std::error_code error;
  fs::path canonical = fs::canonical(root, error);
  if (!error && fs::is_directory(canonical, error) && !error) root_ = std::move(canonical);
}

absl::StatusOr<fs::path> AssetRootResolver::Resolve(const std::string& mesh_file) const {
  PALPATE_RETURN_IF_ERROR(CheckName(mesh_file));
  if (root_.empty()) return absl::InvalidArgumentError("this server has no asset folder (--asset-root); use a generator or an inline mesh");
  const fs::path relative(mesh_file);
  if (relative.is_absolute()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", mesh_file, "\" is absolute; allowed are files inside the server's asset folder"));
  }
  for (const fs::path& part : relative) {
    if (part == "..") {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", mesh_file, "\" contains \"..\"; allowed are files inside the server's asset folder"));
    }
  }
  PALPATE_ASSIGN_OR_RETURN(fs::path path, CanonicalRegularFile(root_ / relative, mesh_file));
  if (!IsInside(path, root_)) {
    return absl::InvalidArgumentError(absl::StrCat("\"", mesh_file, "\" leads outside the server's asset folder"));
  }
  // A TetGen mesh is two files: the reader opens the sibling, so that one must lie inside as well.
  const fs::path extension = path.extension();
  if (extension == ".node" || extension == ".ele") {
    fs::path sibling = path;
    sibling.replace_extension(extension == ".node" ? ".ele" : ".node");
    PALPATE_ASSIGN_OR_RETURN(fs::path other, CanonicalRegularFile(sibling, sibling.filename().string()));
    if (!IsInside(other, root_)) {
      return absl::InvalidArgumentError(absl::StrCat("\"", sibling.filename().string(), "\" leads outside the server's asset folder"));
    }
  }
  return path;
}

std::string AssetRootResolver::Redact(const std::string& message) const {
  if (root_.empty()) return message;
  const std::string prefix = (root_ / "").string();
  const std::array<std::pair<absl::string_view, absl::string_view>, 1> replacements = {{{prefix, ""}}};
  return absl::StrReplaceAll(message, replacements);
}

absl::StatusOr<fs::path> SceneFolderResolver::Resolve(const std::string& mesh_file) const {
  PALPATE_RETURN_IF_ERROR(CheckName(mesh_file));
  return CanonicalRegularFile(folder_ / fs::path(mesh_file), mesh_file);
}

}  // namespace palpate::scene
