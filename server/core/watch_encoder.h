#pragma once

#include <cstdint>
#include <memory>

#include "palpate/v1/stream.pb.h"
#include "server/api/encode.h"
#include "server/core/metrics.h"
#include "server/core/scene.h"
#include "server/core/stream_writer.h"

namespace palpate::server {

/// What one reader of a scene gets, message by message: a keyframe, then frames, and before the first frame of another version of the
/// topology a delta (or, where the delta is not to be had or longer, a keyframe, which carries the frame). Skipped versions are merged into
/// one delta. One thread at a time.
class WatchEncoder {
 public:
  WatchEncoder(std::shared_ptr<Scene> scene, Metrics& metrics, StreamKind kind, FrameOptions options)
      : scene_(std::move(scene)), metrics_(metrics), kind_(kind), options_(std::move(options)) {}

  /// Overwrites `update` with the next message for a snapshot. kMore: it is a delta, and the next call must be for the same snapshot.
  Encoded Encode(const SceneSnapshot& snapshot, uint64_t dropped, v1::WatchUpdate& update);

 private:
  bool EncodeChange(const SceneSnapshot& snapshot, v1::WatchUpdate& update);

  const std::shared_ptr<Scene> scene_;
  Metrics& metrics_;
  const StreamKind kind_;
  const FrameOptions options_;
  uint64_t topology_version_ = 0;  ///< that the reader knows; versions begin at 1
};

}  // namespace palpate::server
