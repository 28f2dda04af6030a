#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "gpu/base/status.h"
#include "server/core/frame_pacer.h"
#include "server/core/log.h"
#include "server/core/services.h"
#include "server/core/stream_writer.h"
#include "server/core/watch_encoder.h"

namespace palpate::server {
namespace {

/// One reader of a scene. A stream to the reader only, but read like one in both directions, so that the token is checked before the
/// request is in memory, and a request that does not arrive ends the call.
class WatchReactor : public grpc::ServerBidiReactor<v1::WatchRequest, v1::WatchUpdate> {
 public:
  using Writer = StreamWriter<v1::WatchUpdate>;

  WatchReactor(SceneManager& manager, grpc::CallbackServerContext* context) : manager_(manager), context_(context) {
    Writer::Operations operations;
    operations.encode = [this](const auto& snapshot, uint64_t dropped, v1::WatchUpdate& update) {
      return encoder_->Encode(*snapshot, dropped, update);
    };
    operations.start_write = [this](const v1::WatchUpdate* update) { StartWrite(update); };
    operations.finish = [this](const absl::Status& status) {
      if (!status.ok() && status.code() != absl::StatusCode::kCancelled) manager_.metrics().OnRpcError(status.code());
      Finish(ToGrpc(status));
    };
    operations.cancel = [this] { context_->TryCancel(); };
    operations.on_dropped = [this] { scene_->metrics().OnFramesDropped(1); };
    writer_ = std::make_shared<Writer>(manager_.encode_pool(), std::move(operations));
  }

  /// Begins the stream, or ends it with a status that is not OK.
  void Begin(const absl::Status& status, std::chrono::milliseconds upload_timeout) {
    if (!status.ok()) return writer_->End(status);
    timer_.Start(upload_timeout, [writer = writer_, upload_timeout] { writer->End(UploadTooLate(upload_timeout)); });
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!timer_.Stop()) return;  // ended already
    if (!ok) return writer_->End(absl::InvalidArgumentError("the call carries no request, or one that cannot be read"));
    if (absl::Status status = Watch(); !status.ok()) writer_->End(status);
  }
  void OnWriteDone(bool ok) override { writer_->OnWriteDone(ok); }
  void OnCancel() override { writer_->End(absl::CancelledError("the reader is gone")); }

  void OnDone() override {
    if (pacer_) {
      pacer_->Stop();
      scene_->RemoveListener(pacer_.get());
      scene_->OnWatcherClosed();
    }
    writer_->OnDone();
    delete this;
  }

 private:
  absl::Status Watch() {
    PALPATE_ASSIGN_OR_RETURN(scene_, manager_.Find(request_.scene_id()));
    PALPATE_ASSIGN_OR_RETURN(const FrameOptions options, FrameOptionsFromProto(request_, *scene_->Snapshot()->topology));
    encoder_.emplace(scene_, manager_.metrics(), StreamKind::kWatch, options);
    pacer_ = FramePacer::Create(
        MaxRateFromProto(request_), options.with_volume, manager_.encode_pool(),
        [writer = writer_](const auto& snapshot) { writer->Offer(snapshot); },
        [writer = writer_](const absl::Status& reason) { writer->End(reason); });
    scene_->OnWatcherOpened();
    PALPATE_ASSIGN_OR_RETURN(
        ticket_, manager_.OpenStream(StreamKind::kWatch, [writer = writer_](const absl::Status& reason) { writer->End(reason); }));
    return scene_->AddListener(pacer_, options.with_volume);
  }

  SceneManager& manager_;
  grpc::CallbackServerContext* const context_;
  v1::WatchRequest request_;
  UploadTimer timer_;
  std::shared_ptr<Writer> writer_;
  // Set once, by the request, before the listener that leads to their other users.
  std::shared_ptr<Scene> scene_;
  std::optional<WatchEncoder> encoder_;  ///< of the encoding job
  std::shared_ptr<FramePacer> pacer_;
  std::unique_ptr<StreamTicket> ticket_;
};

}  // namespace

StreamServiceImpl::StreamServiceImpl(SceneManager& manager, const CallPolicy& policy) : GuardedService(policy), manager_(manager) {
  AddStream<v1::WatchRequest, v1::WatchUpdate>("/palpate.v1.StreamService/Watch", std::bind_front(&StreamServiceImpl::Watch, this));
}

grpc::ServerBidiReactor<v1::WatchRequest, v1::WatchUpdate>* StreamServiceImpl::Watch(grpc::CallbackServerContext* context) {
  auto* reactor = new WatchReactor(manager_, context);
  reactor->Begin(policy().authenticator != nullptr ? policy().authenticator->Check(*context) : absl::OkStatus(), policy().upload_timeout);
  return reactor;
}

}  // namespace palpate::server
