#include "sim/record/edit_log.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/record/disk.h"
#include "sim/record/little_endian.h"

namespace palpate::record {
namespace {

// No message of a request holds a map, so equal requests have equal bytes.
uint64_t FingerprintOf(const v1::EditSceneRequest& request) {
  const std::string hash = Sha256(request.SerializeAsString());
  return ReadU64(hash, 0) ^ ReadU64(hash, 32);
}

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
  if (!request.key().empty()) Keep(request.key(), FingerprintOf(request), response.SerializeAsString());
}

void EditLog::Keep(const std::string& key, uint64_t fingerprint, std::string response) {
  const auto [at, is_new] = entries_.emplace(key, Entry{fingerprint, std::move(response)});
  if (!is_new) return;
  order_.push_back(key);
  size_bytes_ += key.size() + at->second.response.size();
  while (order_.size() > 1 && (order_.size() > kMaxKeys || size_bytes_ > kMaxBytes)) {
    const auto oldest = entries_.find(order_.front());
    size_bytes_ -= oldest->first.size() + oldest->second.response.size();
    entries_.erase(oldest);
    order_.pop_front();
  }
}

void EditLog::Export(v1::SceneState* state) const {
  for (const std::string& key : order_) {
    const Entry& entry = entries_.at(key);
    v1::KeptAnswer& answer = *state->add_answers();
    answer.set_key(key);
    answer.set_fingerprint(entry.fingerprint);
    answer.set_response(entry.response);
  }
}

void EditLog::Import(const v1::SceneState& state) {
  *this = EditLog();
  for (const v1::KeptAnswer& answer : state.answers()) Keep(answer.key(), answer.fingerprint(), answer.response());
}

}  // namespace palpate::record
