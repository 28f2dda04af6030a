#include "server/core/edit_log.h"

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"

namespace palpate::server {
namespace {

// No message of a request holds a map, so equal requests have equal bytes within a process.
uint64_t FingerprintOf(const v1::EditSceneRequest& request) { return absl::HashOf(request.SerializeAsString()); }

}  // namespace

absl::StatusOr<const v1::EditSceneResponse*> EditLog::Find(const v1::EditSceneRequest& request) const {
  if (request.key().empty()) return nullptr;
  const auto at = entries_.find(request.key());
  if (at == entries_.end()) return nullptr;
  if (at->second.fingerprint != FingerprintOf(request)) {
    return absl::InvalidArgumentError(absl::StrCat("key: \"", request.key(), "\" was used for another request"));
  }
  return &at->second.response;
}

void EditLog::Remember(const v1::EditSceneRequest& request, const v1::EditSceneResponse& response) {
  if (request.key().empty()) return;
  if (!entries_.emplace(request.key(), Entry{FingerprintOf(request), response}).second) return;
  order_.push_back(request.key());
  if (order_.size() > kMaxKeys) {
    entries_.erase(order_.front());
    order_.pop_front();
  }
}

}  // namespace palpate::server
