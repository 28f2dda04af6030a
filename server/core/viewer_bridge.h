#pragma once

#include <memory>
#include <string>

#include "server/core/scene_manager.h"
#include "server/web/viewer_backend.h"

namespace palpate::server {

/// Gives browsers what gRPC clients have: the same requests, limits and rules, over the same SceneManager, which outlives it.
class ViewerBridge : public ViewerBackend {
 public:
  explicit ViewerBridge(SceneManager& manager) : manager_(manager) {}
  absl::StatusOr<std::unique_ptr<ViewerSession>> OpenSession(std::shared_ptr<ViewerSink> sink, const std::string& peer) override;
  absl::StatusOr<ViewerImage> FindImage(std::string_view id) override;

 private:
  SceneManager& manager_;
};

}  // namespace palpate::server
