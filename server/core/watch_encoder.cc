#include "server/core/watch_encoder.h"

#include <optional>
#include <utility>

namespace palpate::server {

Encoded WatchEncoder::Encode(const SceneSnapshot& snapshot, uint64_t dropped, v1::WatchUpdate& update) {
  update.Clear();
  Encoded encoded = Encoded::kLast;
  v1::Frame* frame = nullptr;
  if (snapshot.topology->version == topology_version_) {
    frame = update.mutable_frame();
  } else if (EncodeChange(snapshot, update)) {
    encoded = Encoded::kMore;
    scene_->metrics().OnDeltaSent(update.ByteSizeLong());
  } else {
    if (topology_version_ != 0) scene_->metrics().OnKeyframeForGap();
    v1::Keyframe& keyframe = *update.mutable_keyframe();
    EncodeTopology(*snapshot.topology, options_.with_volume, keyframe, options_.with_nurbs);
    *keyframe.mutable_scene() = scene_->InfoOf(snapshot);
    frame = keyframe.mutable_frame();
  }
  topology_version_ = snapshot.topology->version;
  if (frame != nullptr) {
    EncodeFrame(*snapshot.frame, *snapshot.topology, snapshot.status, options_, dropped, *frame);
    scene_->metrics().OnFrameSent();
  }
  metrics_.OnStreamBytes(kind_, update.ByteSizeLong());
  return encoded;
}

bool WatchEncoder::EncodeChange(const SceneSnapshot& snapshot, v1::WatchUpdate& update) {
  if (topology_version_ == 0 || topology_version_ > snapshot.topology->version) return false;
  const std::optional<TopologyChange> change = scene_->topology_history().Between(topology_version_, snapshot.topology->version);
  return change && EncodeDelta(*snapshot.topology, *change, options_.with_volume, *update.mutable_delta());
}

}  // namespace palpate::server
