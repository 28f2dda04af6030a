#include "sim/record/asset_store.h"

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gpu/base/status.h"

namespace palpate::record {
namespace {

namespace fs = std::filesystem;

std::string ExtensionOf(const std::string& name) { return absl::AsciiStrToLower(fs::path(name).extension().string()); }

/// The other file of a TetGen mesh; empty: there is none.
std::string SiblingOf(const std::string& name) {
  const std::string extension = ExtensionOf(name);
  if (extension != ".node" && extension != ".ele") return "";
  return fs::path(name).replace_extension(extension == ".node" ? ".ele" : ".node").string();
}

/// The same whichever of two files is named first.
std::string KeyOf(std::vector<v1::AssetReference> references) {
  if (references.size() == 1) return references[0].hash();
  std::sort(references.begin(), references.end(), [](const auto& a, const auto& b) { return a.name() < b.name(); });
  std::string hashes;
  for (const v1::AssetReference& reference : references) hashes += reference.hash();
  return Sha256(hashes);
}

/// An extension comes from outside: letters and digits only.
absl::StatusOr<std::string> FileNameOf(const std::string& name) {
  const std::string extension = ExtensionOf(name);
  for (const char c : extension) {
    if (c != '.' && !absl::ascii_isalnum(static_cast<unsigned char>(c))) {
      return absl::InvalidArgumentError(absl::StrCat("\"", name, "\": the extension holds a character that no format has"));
    }
  }
  return absl::StrCat("mesh", extension);
}

}  // namespace

std::vector<v1::AssetReference> GroupOf(const v1::AssetReference& reference, const v1::JournalHead& head) {
  const std::string sibling = SiblingOf(reference.name());
  for (const v1::AssetReference& other : head.assets()) {
    if (sibling.empty() || other.name() != sibling) continue;
    // Which half the spec named does not matter: the first is that of the smaller name.
    if (sibling < reference.name()) return {};
    return {reference, other};
  }
  return {reference};
}

std::set<std::string> KeysOf(const std::vector<v1::AssetReference>& references) {
  std::set<std::string> out;
  for (const v1::AssetReference& reference : references) {
    out.insert(reference.hash());
    for (const v1::AssetReference& other : references) {
      if (other.name() == SiblingOf(reference.name())) out.insert(KeyOf({reference, other}));
    }
  }
  return out;
}

absl::StatusOr<std::vector<AssetFile>> ReadAsset(const std::string& name, const fs::path& path) {
  std::vector<AssetFile> out(1);
  out[0].name = name;
  PALPATE_ASSIGN_OR_RETURN(out[0].content, ReadWholeFile(path, kMaxAssetBytes));
  if (const std::string sibling = SiblingOf(name); !sibling.empty()) {
    AssetFile& other = out.emplace_back();
    other.name = sibling;
    PALPATE_ASSIGN_OR_RETURN(other.content, ReadWholeFile(fs::path(SiblingOf(path.string())), kMaxAssetBytes));
  }
  return out;
}

absl::StatusOr<std::vector<v1::AssetReference>> AssetStore::Put(const std::vector<AssetFile>& files) const {
  std::vector<v1::AssetReference> references;
  for (const AssetFile& file : files) {
    v1::AssetReference& reference = references.emplace_back();
    reference.set_name(file.name);
    reference.set_hash(Sha256(file.content));
    reference.set_size_bytes(file.content.size());
  }
  const fs::path folder = folder_ / KeyOf(references);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return FileError(folder, "cannot be created", error.value());
  for (size_t f = 0; f < files.size(); ++f) {
    PALPATE_ASSIGN_OR_RETURN(const std::string name, FileNameOf(files[f].name));
    // What is damaged is written anew.
    const absl::StatusOr<std::string> kept = ReadWholeFile(folder / name, kMaxAssetBytes);
    if (kept.ok() && *kept == files[f].content) continue;
    const std::array<std::string_view, 1> parts = {files[f].content};
    PALPATE_RETURN_IF_ERROR(WriteWholeFile(SystemDisk(), folder / name, parts));
  }
  PALPATE_RETURN_IF_ERROR(SyncFolder(folder_));
  return references;
}

absl::StatusOr<fs::path> AssetStore::PathOf(const std::vector<v1::AssetReference>& references) const {
  for (const v1::AssetReference& reference : references) {
    // It names a folder, and may come from outside.
    const std::string& hash = reference.hash();
    if (hash.size() != Sha256("").size() || !std::all_of(hash.begin(), hash.end(), absl::ascii_isxdigit)) {
      return absl::InvalidArgumentError(absl::StrCat("\"", reference.name(), "\": the hash is no SHA-256"));
    }
  }
  const fs::path folder = folder_ / KeyOf(references);
  for (const v1::AssetReference& reference : references) {
    PALPATE_ASSIGN_OR_RETURN(const std::string name, FileNameOf(reference.name()));
    PALPATE_ASSIGN_OR_RETURN(const std::string content, ReadWholeFile(folder / name, kMaxAssetBytes));
    if (Sha256(content) != reference.hash()) {
      return absl::DataLossError(absl::StrCat("\"", (folder / name).string(), "\" does not hold what its name says"));
    }
  }
  PALPATE_ASSIGN_OR_RETURN(const std::string first, FileNameOf(references[0].name()));
  return folder / first;
}

absl::StatusOr<fs::path> KeepingResolver::Resolve(const std::string& mesh_file) const {
  PALPATE_ASSIGN_OR_RETURN(const fs::path path, inner_.Resolve(mesh_file));
  PALPATE_ASSIGN_OR_RETURN(const std::vector<AssetFile> files, ReadAsset(mesh_file, path));
  PALPATE_ASSIGN_OR_RETURN(const std::vector<v1::AssetReference> references, store_.Put(files));
  {
    const std::lock_guard lock(mutex_);
    for (const v1::AssetReference& reference : references) references_[reference.name()] = reference;
  }
  PALPATE_ASSIGN_OR_RETURN(fs::path copy, store_.PathOf(references));
  const std::lock_guard lock(mutex_);
  names_[copy.string()] = mesh_file;
  return copy;
}

/// Errors of a mesh name the file that the client named, not the copy.
std::string KeepingResolver::Redact(const std::string& message) const {
  std::vector<std::pair<std::string, std::string>> replacements;
  {
    const std::lock_guard lock(mutex_);
    replacements.assign(names_.begin(), names_.end());
  }
  return inner_.Redact(absl::StrReplaceAll(message, replacements));
}

std::vector<v1::AssetReference> KeepingResolver::references() const {
  const std::lock_guard lock(mutex_);
  std::vector<v1::AssetReference> out;
  for (const auto& [name, reference] : references_) out.push_back(reference);
  return out;
}

StoredResolver::StoredResolver(const AssetStore& store, const v1::JournalHead& head) : store_(store) {
  for (const v1::AssetReference& reference : head.assets()) references_[reference.name()] = reference;
}

absl::StatusOr<fs::path> StoredResolver::Resolve(const std::string& mesh_file) const {
  const auto missing = [](const std::string& name) { return absl::NotFoundError(absl::StrCat("\"", name, "\" is not in the recording")); };
  const auto found = references_.find(mesh_file);
  if (found == references_.end()) return missing(mesh_file);
  std::vector<v1::AssetReference> references = {found->second};
  if (const std::string sibling = SiblingOf(mesh_file); !sibling.empty()) {
    const auto other = references_.find(sibling);
    if (other == references_.end()) return missing(sibling);
    references.push_back(other->second);
  }
  return store_.PathOf(references);
}

}  // namespace palpate::record
