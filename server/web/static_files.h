#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace palpate::server {

/// A file of the built viewer, read whole.
struct StaticFile {
  std::string content;
  std::string content_type;
  std::string etag;        ///< quoted; of the content
  bool immutable = false;  ///< its name carries a hash of its content, so it may be cached for ever
};

/// The largest file that is served.
inline constexpr size_t kMaxStaticFileBytes = 64u << 20;

/// Reads the file that `url_path` ("/", "/assets/viewer.js"; decoded, without query) names below `root`. "/" is index.html. Names are made
/// of [A-Za-z0-9._-] and do not begin with a dot, links that lead out of `root` do not count as below it, folders are not listed. Errors:
/// NotFound (all of the above), ResourceExhausted (too large).
absl::StatusOr<StaticFile> ReadStaticFile(const std::string& root, std::string_view url_path);

/// MIME type by the file name's ending; application/octet-stream if unknown.
std::string_view MimeType(std::string_view file_name);

}  // namespace palpate::server
