#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "palpate/v1/edit.pb.h"
#include "palpate/v1/journal.pb.h"

namespace palpate::record {

/// The answers to the newest requests with a key, so that a request that is sent again is not performed again. Not thread-safe.
class EditLog {
 public:
  static constexpr size_t kMaxKeys = 4096;
  static constexpr size_t kMaxBytes = size_t{32} << 20;  ///< of keys and encoded answers

  /// The answer to a request that was remembered, nothing if there is none (or the request has no key). Errors: InvalidArgument if the key
  /// was used for another request.
  absl::StatusOr<std::optional<v1::EditSceneResponse>> Find(const v1::EditSceneRequest& request) const;

  /// Keeps the answer to a request with a key that is not known yet; forgets the oldest beyond kMaxKeys or kMaxBytes, but never this one.
  void Remember(const v1::EditSceneRequest& request, const v1::EditSceneResponse& response);

  /// All answers, oldest first, for a checkpoint; Import replaces them by these.
  void Export(v1::SceneState* state) const;
  void Import(const v1::SceneState& state);

  size_t size() const { return entries_.size(); }
  size_t size_bytes() const { return size_bytes_; }

 private:
  void Keep(const std::string& key, uint64_t fingerprint, std::string response);

  struct Entry {
    uint64_t fingerprint = 0;  ///< of the whole request, the same in every process
    std::string response;      ///< encoded, a fraction of the message's size in memory
  };
  absl::flat_hash_map<std::string, Entry> entries_;
  std::deque<std::string> order_;  ///< keys, oldest first
  size_t size_bytes_ = 0;
};

}  // namespace palpate::record
