#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/core/log.h"
#include "server/core/services.h"
#include "server/core/stream_writer.h"

namespace palpate::server {
namespace {

/// How long a station may stay silent before it says which tool it wants.
constexpr std::chrono::seconds kAttachTimeout{10};

using Writer = StreamWriter<v1::OperateUpdate>;

/// Passes on the snapshots of a new step. Those between two steps (an edit, a change of state) say nothing new of the contact, and a model
/// that comes twice would start the station's blend anew.
class StepListener : public SnapshotListener {
 public:
  explicit StepListener(std::shared_ptr<Writer> writer) : writer_(std::move(writer)) {}

  void OnSnapshot(const std::shared_ptr<const SceneSnapshot>& snapshot) override {
    // The first one, which comes when the listener is added, carries the answer to `attach`.
    if (last_step_ == snapshot->frame->step) return;
    last_step_ = snapshot->frame->step;
    writer_->Offer(snapshot);
  }
  void OnSceneEnd(const absl::Status& reason) override { writer_->End(reason); }

 private:
  const std::shared_ptr<Writer> writer_;
  std::optional<uint64_t> last_step_;
};

class OperateReactor : public grpc::ServerBidiReactor<v1::OperateRequest, v1::OperateUpdate> {
 public:
  OperateReactor(SceneManager& manager, grpc::CallbackServerContext* context) : manager_(manager), context_(context) {
    Writer::Operations operations;
    operations.encode = [this](const auto& snapshot, uint64_t /*dropped*/, v1::OperateUpdate& update) {
      return Encode(*snapshot, update) ? Encoded::kLast : Encoded::kNothing;
    };
    operations.start_write = [this](const v1::OperateUpdate* update) { StartWrite(update); };
    operations.finish = [this](const absl::Status& status) {
      if (!status.ok() && status.code() != absl::StatusCode::kCancelled) manager_.metrics().OnRpcError(status.code());
      Finish(ToGrpc(status));
    };
    operations.cancel = [this] { context_->TryCancel(); };
    operations.on_dropped = [this] { lease_->scene()->metrics().OnModelDropped(); };
    writer_ = std::make_shared<Writer>(manager_.haptic_pool(), std::move(operations));
  }

  /// Begins the stream, or ends it with a status that is not OK.
  void Begin(const absl::Status& status) {
    if (!status.ok()) return writer_->End(status);
    absl::StatusOr<std::unique_ptr<StreamTicket>> ticket =
        manager_.OpenStream(StreamKind::kOperate, [writer = writer_](const absl::Status& reason) { writer->End(reason); });
    if (!ticket.ok()) return writer_->End(ticket.status());
    ticket_ = *std::move(ticket);
    manager_.encode_pool().PostAt(WorkerPool::Clock::now() + kAttachTimeout, [writer = std::weak_ptr(writer_), attached = attached_] {
      if (*attached) return;
      if (const std::shared_ptr<Writer> alive = writer.lock()) {
        alive->End(absl::DeadlineExceededError(absl::StrCat("no `attach` came within ", kAttachTimeout.count(), " s")));
      }
    });
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return writer_->End(absl::OkStatus());  // the station has said all it wanted, or is gone
    if (absl::Status status = Handle(request_); !status.ok()) return writer_->End(status);
    StartRead(&request_);
  }

  void OnWriteDone(bool ok) override { writer_->OnWriteDone(ok); }
  void OnCancel() override { writer_->End(absl::CancelledError("the station is gone")); }

  void OnDone() override {
    if (lease_) {
      lease_->scene()->RemoveListener(listener_.get());
      Log(LogLevel::kInfo, "station left", {{"scene", lease_->scene()->id()}, {"tool", tool_}, {"station", station_}});
    }
    writer_->OnDone();
    delete this;
  }

 private:
  absl::Status Handle(const v1::OperateRequest& request) {
    switch (request.request_case()) {
      case v1::OperateRequest::kAttach:
        return Attach(request.attach());
      case v1::OperateRequest::kPose:
        if (!lease_) return absl::InvalidArgumentError("request: the first request must carry `attach`");
        return lease_->SetPose(request.pose());
      case v1::OperateRequest::REQUEST_NOT_SET:
        break;
    }
    return absl::InvalidArgumentError("request: neither `attach` nor `pose` is given");
  }

  absl::Status Attach(const v1::Attach& attach) {
    if (lease_) return absl::InvalidArgumentError("attach: this stream operates a tool already");
    absl::StatusOr<std::shared_ptr<Scene>> scene = manager_.Find(attach.scene_id());
    if (!scene.ok()) return scene.status();
    absl::StatusOr<std::unique_ptr<ToolLease>> lease = (*scene)->AcquireTool(attach);
    if (!lease.ok()) return lease.status();
    lease_ = *std::move(lease);
    *attached_ = true;
    tool_ = attach.tool();
    station_ = attach.station();
    Log(LogLevel::kInfo, "station attached",
        {{"scene", (*scene)->id()}, {"tool", tool_}, {"station", station_}, {"peer", context_->peer()}});
    listener_ = std::make_shared<StepListener>(writer_);
    return (*scene)->AddListener(listener_, false);
  }

  bool Encode(const SceneSnapshot& snapshot, v1::OperateUpdate& update) {
    update.Clear();
    if (!answered_) {
      answered_ = true;
      *update.mutable_attached() = lease_->attached();
      return true;
    }
    const uint32_t tool = lease_->tool_index();
    if (tool >= snapshot.frame->local_models.size()) return false;
    EncodeLocalModel(snapshot.frame->local_models[tool], snapshot.frame->tools[tool], *update.mutable_model());
    const std::chrono::duration<double> age = std::chrono::steady_clock::now() - snapshot.step_end;
    lease_->scene()->metrics().OnModelSent(age.count());
    manager_.metrics().OnStreamBytes(StreamKind::kOperate, update.ByteSizeLong());
    return true;
  }

  SceneManager& manager_;
  grpc::CallbackServerContext* const context_;
  std::shared_ptr<Writer> writer_;
  std::unique_ptr<StreamTicket> ticket_;
  v1::OperateRequest request_;
  std::unique_ptr<ToolLease> lease_;  ///< set once, before the listener that leads to its other users
  std::shared_ptr<StepListener> listener_;
  std::string tool_;
  std::string station_;
  std::shared_ptr<std::atomic<bool>> attached_ = std::make_shared<std::atomic<bool>>(false);
  bool answered_ = false;  ///< of the encoding job
};

}  // namespace

grpc::ServerBidiReactor<v1::OperateRequest, v1::OperateUpdate>* HapticServiceImpl::Operate(grpc::CallbackServerContext* context) {
  auto* reactor = new OperateReactor(manager_, context);
  reactor->Begin(authenticator_.Check(*context));
  return reactor;
}

}  // namespace palpate::server
