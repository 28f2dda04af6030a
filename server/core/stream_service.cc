#include <memory>
#include <utility>

#include "server/core/frame_pacer.h"
#include "server/core/log.h"
#include "server/core/services.h"
#include "server/core/stream_writer.h"
#include "server/core/watch_encoder.h"

namespace palpate::server {
namespace {

/// A stream that ends before it begins.
template <typename Base>
class RefusedReactor : public Base {
 public:
  explicit RefusedReactor(const absl::Status& status) { this->Finish(ToGrpc(status)); }
  void OnDone() override { delete this; }
};

/// One reader of a scene.
class WatchReactor : public grpc::ServerWriteReactor<v1::WatchUpdate> {
 public:
  using Writer = StreamWriter<v1::WatchUpdate>;

  WatchReactor(SceneManager& manager, grpc::CallbackServerContext* context, std::shared_ptr<Scene> scene, const FrameOptions& options,
               double max_rate_hz)
      : manager_(manager),
        context_(context),
        scene_(std::move(scene)),
        with_volume_(options.with_volume),
        encoder_(scene_, manager_.metrics(), StreamKind::kWatch, options) {
    Writer::Operations operations;
    operations.encode = [this](const auto& snapshot, uint64_t dropped, v1::WatchUpdate& update) {
      return encoder_.Encode(*snapshot, dropped, update);
    };
    operations.start_write = [this](const v1::WatchUpdate* update) { StartWrite(update); };
    operations.finish = [this](const absl::Status& status) {
      if (!status.ok() && status.code() != absl::StatusCode::kCancelled) manager_.metrics().OnRpcError(status.code());
      Finish(ToGrpc(status));
    };
    operations.cancel = [this] { context_->TryCancel(); };
    operations.on_dropped = [metrics = scene_] { metrics->metrics().OnFramesDropped(1); };
    writer_ = std::make_shared<Writer>(manager_.encode_pool(), std::move(operations));
    pacer_ = FramePacer::Create(
        max_rate_hz, with_volume_, manager_.encode_pool(), [writer = writer_](const auto& snapshot) { writer->Offer(snapshot); },
        [writer = writer_](const absl::Status& reason) { writer->End(reason); });
  }

  void Begin() {
    scene_->OnWatcherOpened();
    absl::StatusOr<std::unique_ptr<StreamTicket>> ticket =
        manager_.OpenStream(StreamKind::kWatch, [writer = writer_](const absl::Status& reason) { writer->End(reason); });
    if (!ticket.ok()) return writer_->End(ticket.status());
    ticket_ = *std::move(ticket);
    if (absl::Status status = scene_->AddListener(pacer_, with_volume_); !status.ok()) writer_->End(status);
  }

  void OnWriteDone(bool ok) override { writer_->OnWriteDone(ok); }
  void OnCancel() override { writer_->End(absl::CancelledError("the reader is gone")); }

  void OnDone() override {
    pacer_->Stop();
    scene_->RemoveListener(pacer_.get());
    scene_->OnWatcherClosed();
    writer_->OnDone();
    delete this;
  }

 private:
  SceneManager& manager_;
  grpc::CallbackServerContext* const context_;
  const std::shared_ptr<Scene> scene_;
  const bool with_volume_;
  WatchEncoder encoder_;  ///< of the encoding job
  std::shared_ptr<Writer> writer_;
  std::shared_ptr<FramePacer> pacer_;
  std::unique_ptr<StreamTicket> ticket_;
};

}  // namespace

grpc::ServerWriteReactor<v1::WatchUpdate>* StreamServiceImpl::Watch(grpc::CallbackServerContext* context, const v1::WatchRequest* request) {
  const auto refuse = [this](const absl::Status& status) {
    manager_.metrics().OnRpcError(status.code());
    return new RefusedReactor<grpc::ServerWriteReactor<v1::WatchUpdate>>(status);
  };
  if (absl::Status status = authenticator_.Check(*context); !status.ok()) return refuse(status);
  absl::StatusOr<std::shared_ptr<Scene>> scene = manager_.Find(request->scene_id());
  if (!scene.ok()) return refuse(scene.status());
  const absl::StatusOr<FrameOptions> options = FrameOptionsFromProto(*request, *(*scene)->Snapshot()->topology);
  if (!options.ok()) return refuse(options.status());
  auto* reactor = new WatchReactor(manager_, context, *std::move(scene), *options, MaxRateFromProto(*request));
  reactor->Begin();
  return reactor;
}

}  // namespace palpate::server
