#include "server/web/static_files.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace palpate::server {
namespace {

namespace fs = std::filesystem;

// FNV-1a, 64 bits: an ETag has to change with the content, not to resist anybody.
uint64_t HashOf(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

bool IsSafeName(std::string_view name) {
  return !name.empty() && name.front() != '.' && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
  });
}

}  // namespace

std::string_view MimeType(std::string_view file_name) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kTypes = {{
      {".html", "text/html; charset=utf-8"},
      {".js", "text/javascript; charset=utf-8"},
      {".mjs", "text/javascript; charset=utf-8"},
      {".css", "text/css; charset=utf-8"},
      {".json", "application/json"},
      {".map", "application/json"},
      {".svg", "image/svg+xml"},
      {".png", "image/png"},
      {".jpg", "image/jpeg"},
      {".ico", "image/x-icon"},
      {".webmanifest", "application/manifest+json"},
      {".wasm", "application/wasm"},
      {".woff2", "font/woff2"},
      {".txt", "text/plain; charset=utf-8"},
  }};
  for (const auto& [ending, type] : kTypes) {
    if (file_name.ends_with(ending)) return type;
  }
  return "application/octet-stream";
}

absl::StatusOr<StaticFile> ReadStaticFile(const std::string& root, std::string_view url_path) {
  const absl::Status not_found = absl::NotFoundError("no such page");
  if (url_path.empty() || url_path.front() != '/') return not_found;
  std::string_view rest = url_path.substr(1);
  if (rest.empty()) rest = "index.html";

  fs::path path(root);
  while (true) {
    const size_t slash = rest.find('/');
    const std::string_view name = rest.substr(0, slash);
    if (!IsSafeName(name)) return not_found;
    path /= name;
    if (slash == std::string_view::npos) break;
    rest = rest.substr(slash + 1);
  }

  std::error_code error;
  const fs::path real_root = fs::canonical(root, error);
  if (error) return not_found;
  const fs::path real_path = fs::canonical(path, error);
  if (error) return not_found;
  const auto [root_end, path_rest] = std::mismatch(real_root.begin(), real_root.end(), real_path.begin(), real_path.end());
  if (root_end != real_root.end() || !fs::is_regular_file(real_path, error) || error) return not_found;
  const uintmax_t size_bytes = fs::file_size(real_path, error);
  if (error) return not_found;
  if (size_bytes > kMaxStaticFileBytes)
    return absl::ResourceExhaustedError(absl::StrCat("file larger than ", kMaxStaticFileBytes, " bytes"));

  std::ifstream in(real_path, std::ios::binary);
  StaticFile file;
  file.content.resize(static_cast<size_t>(size_bytes));
  if (!in || !in.read(file.content.data(), static_cast<std::streamsize>(file.content.size()))) return not_found;
  const std::string name = real_path.filename().string();
  file.content_type = MimeType(name);
  file.etag = absl::StrFormat("\"%016x-%x\"", HashOf(file.content), file.content.size());
  file.immutable = url_path.starts_with("/assets/");
  return file;
}

}  // namespace palpate::server
