#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "palpate/v1/edit.pb.h"

namespace palpate::server {

/// The answers to the newest requests with a key, so that a request that is sent again is not performed again. Not thread-safe.
class EditLog {
 public:
  static constexpr size_t kMaxKeys = 4096;

  /// The answer to a request that was remembered, nullptr if there is none (or the request has no key). Errors: InvalidArgument if the key
  /// was used for another request.
  absl::StatusOr<const v1::EditSceneResponse*> Find(const v1::EditSceneRequest& request) const;

  /// Keeps the answer to a request with a key that is not known yet; forgets the oldest beyond kMaxKeys.
  void Remember(const v1::EditSceneRequest& request, const v1::EditSceneResponse& response);

  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    uint64_t fingerprint = 0;  ///< of the whole request
    v1::EditSceneResponse response;
  };
  absl::flat_hash_map<std::string, Entry> entries_;
  std::deque<std::string> order_;  ///< keys, oldest first
};

}  // namespace palpate::server
