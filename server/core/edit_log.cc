#include "server/core/edit_log.h"

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"

namespace palpate::server {
namespace {

// No message of a request holds a map, so equal requests have equal bytes within a process.
uint64_t FingerprintOf(const v1::EditSceneRequest& request) { return absl::HashOf(request.SerializeAsString()); }

}  // namespace

absl::StatusOr<std::optional<v1::EditSceneResponse>> EditLog::Find(const v1::EditSceneRequest& request) const {
  if (request.key().empty()) return std::nullopt;
  const auto at = entries_.find(request.key());
  if (at == entries_.end()) return std::nullopt;
  if (at->second.fingerprint != FingerprintOf(request)) {
    return absl::InvalidArgumentError(absl::StrCat("key: \"", request.key(), "\" was used for another request"));
  }
  v1::EditSceneResponse response;
  if (!response.ParseFromString(at->second.response)) return absl::InternalError("key: the answer that was kept cannot be read");
  return response;
}

void EditLog::Remember(const v1::EditSceneRequest& request, const v1::EditSceneResponse& response) {
  if (request.key().empty()) return;
  const auto [at, is_new] = entries_.emplace(request.key(), Entry{FingerprintOf(request), response.SerializeAsString()});
  if (!is_new) return;
  order_.push_back(request.key());
  size_bytes_ += request.key().size() + at->second.response.size();
  while (order_.size() > 1 && (order_.size() > kMaxKeys || size_bytes_ > kMaxBytes)) {
    const auto oldest = entries_.find(order_.front());
    size_bytes_ -= oldest->first.size() + oldest->second.response.size();
    entries_.erase(oldest);
    order_.pop_front();
  }
}

}  // namespace palpate::server
