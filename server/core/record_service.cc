#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "server/core/log.h"
#include "server/core/recording_feed.h"
#include "server/core/services.h"
#include "server/core/upload_file.h"

namespace palpate::server {
namespace {

/// One reader of a recording. `Request`: RecordSceneRequest or SaveSceneRequest.
template <typename Request>
class RecordReactor : public grpc::ServerBidiReactor<Request, v1::RecordingChunk> {
 public:
  RecordReactor(SceneManager& manager, grpc::CallbackServerContext* context) : manager_(manager), context_(context) {}

  void Begin(const absl::Status& status, std::chrono::milliseconds upload_timeout) {
    if (!status.ok()) return Refuse(status);
    timer_.Start(upload_timeout, [this, upload_timeout] { Refuse(UploadTooLate(upload_timeout)); });
    this->StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!timer_.Stop()) return;  // ended already
    if (!ok) return Refuse(absl::InvalidArgumentError("the call carries no request, or one that cannot be read"));
    absl::Status status = Record();
    if (status.ok()) return;
    // A feed finishes the call, since a cancellation may end it at the same time.
    feed_ ? feed_->End(status) : Refuse(status);
  }
  void OnWriteDone(bool ok) override { feed_->OnWriteDone(ok); }
  void OnCancel() override {
    if (const std::shared_ptr<RecordingFeed> feed = std::atomic_load(&shared_feed_)) {
      feed->End(absl::CancelledError("the reader is gone"));
    }
  }
  void OnDone() override { delete this; }

 private:
  void Refuse(const absl::Status& status) {
    if (!absl::IsCancelled(status)) manager_.metrics().OnRpcError(status.code());
    this->Finish(ToGrpc(status));
  }

  absl::Status Record() {
    PALPATE_ASSIGN_OR_RETURN(const std::shared_ptr<Scene> scene, manager_.Find(request_.scene_id()));
    std::optional<uint64_t> until_step;
    bool is_past = false;
    bool goes_on = false;
    if constexpr (std::is_same_v<Request, v1::RecordSceneRequest>) {
      is_past = request_.from_begin() || request_.has_from_step();
      if (request_.has_until_step()) until_step = request_.until_step();
      const uint64_t now = scene->Snapshot()->frame->step;
      goes_on = until_step.value_or(now + 1) > now;
      if (scene->is_replay()) {
        return absl::FailedPreconditionError("scene_id: the scene replays a recording; record the scene that is replayed");
      }
      if (is_past && !scene->past().is_kept()) {
        return absl::FailedPreconditionError("from_step: the scene has no past on disk (--state-dir); record from now");
      }
      if (request_.from_step() > now) {
        return absl::InvalidArgumentError(
            absl::StrCat("from_step: ", request_.from_step(), " is not done yet: the scene is at step ", now));
      }
      if (until_step.value_or(request_.from_step()) < request_.from_step()) {
        return absl::InvalidArgumentError(absl::StrCat("until_step: ", *until_step, " is before from_step: ", request_.from_step()));
      }
      if (!is_past && !goes_on) {
        return absl::InvalidArgumentError(absl::StrCat("until_step: ", *until_step, " is done: the scene is at step ", now));
      }
    }
    RecordingFeed::Operations operations;
    operations.start_write = [this](const v1::RecordingChunk* chunk) { this->StartWrite(chunk); };
    operations.finish = [this](const absl::Status& status) { Refuse(status); };
    operations.cancel = [this] { context_->TryCancel(); };
    feed_ = std::make_shared<RecordingFeed>(manager_.encode_pool(), std::move(operations), until_step);
    std::atomic_store(&shared_feed_, feed_);
    PALPATE_ASSIGN_OR_RETURN(ticket_,
                             manager_.OpenStream(StreamKind::kRecord, [feed = feed_](const absl::Status& reason) { feed->End(reason); }));
    if (context_->IsCancelled()) return absl::CancelledError("the reader is gone");
    const auto begin = [&store = manager_.store(), feed = feed_, scene, is_past, goes_on,
                        request = request_](absl::StatusOr<BranchPoint> point) {
      if (!point.ok()) return feed->End(point.status());
      const auto shared = std::make_shared<const BranchPoint>(*std::move(point));
      if (!is_past) return feed->Begin(RecordingFrom(shared), !goes_on);
      scene->WhenDurable([&store, feed, shared, goes_on, request](const absl::Status& status) {
        if (!status.ok()) return feed->End(status);
        if constexpr (std::is_same_v<Request, v1::RecordSceneRequest>) feed->Begin(PastSource(store, shared, request), !goes_on);
      });
    };
    scene->Fork(goes_on ? feed_ : nullptr, begin);
    return absl::OkStatus();
  }

  static ChunkSource PastSource(const SceneStore& store, const std::shared_ptr<const BranchPoint>& point,
                                const v1::RecordSceneRequest& request) {
    const v1::SceneState& now = point->state;
    const auto place = [&now](uint64_t step) { return now.position() - std::min(now.position(), now.step() - std::min(now.step(), step)); };
    PastSpan span;
    if (!request.from_begin()) span.begin = place(request.from_step());
    if (request.has_until_step() && request.until_step() <= now.step()) span.end = place(request.until_step());
    return RecordingOfPast(
        point, [&store, id = point->head.scene_id()] { return store.HoldPast(id); }, span);
  }

  SceneManager& manager_;
  grpc::CallbackServerContext* const context_;
  Request request_;
  UploadTimer timer_;
  std::shared_ptr<RecordingFeed> feed_;         ///< set once, by the request
  std::shared_ptr<RecordingFeed> shared_feed_;  ///< the same, for a cancellation, which may come at any time
  std::unique_ptr<StreamTicket> ticket_;
};

/// A recording that comes by the network, as a stream of requests with one answer.
class OpenReactor : public grpc::ServerBidiReactor<v1::OpenRecordingRequest, v1::OpenRecordingResponse> {
 public:
  OpenReactor(SceneManager& manager, grpc::CallbackServerContext* context) : manager_(manager), context_(context) {}

  /// `piece_timeout`: for each piece of the file.
  void Begin(const absl::Status& status, std::chrono::milliseconds piece_timeout) {
    if (!status.ok()) return End(status);
    piece_timeout_ = piece_timeout;
    absl::StatusOr<std::unique_ptr<StreamTicket>> ticket = manager_.OpenStream(StreamKind::kRecord, [](const absl::Status&) {});
    if (!ticket.ok()) return End(ticket.status());
    ticket_ = *std::move(ticket);
    const absl::StatusOr<std::shared_ptr<UploadFile>> file = UploadFile::Create(manager_.store().temporary_folder());
    if (!file.ok()) return End(file.status());
    file_ = *file;
    ReadPiece();
  }

  void OnReadDone(bool ok) override {
    if (!timer_->Stop()) return;  // ended already
    // A disk may be slow.
    manager_.encode_pool().Post([this, ok] { ok ? Take() : Open(); });
  }
  void OnDone() override { delete this; }

 private:
  void ReadPiece() {
    timer_ = std::make_unique<UploadTimer>();
    timer_->Start(piece_timeout_, [this] { End(UploadTooLate(piece_timeout_)); });
    StartRead(&request_);
  }

  void Take() {
    if (request_.has_open()) open_ = request_.open();
    const absl::Status status =
        open_ ? file_->Append(request_.data()) : absl::InvalidArgumentError("open: the first request must carry it");
    if (!status.ok()) return End(status);
    ReadPiece();
  }

  void Open() {
    // The end of a call that was given up looks like that of the file.
    const auto is_cancelled = [this] { return context_->IsCancelled(); };
    if (is_cancelled()) return End(absl::CancelledError("the upload was given up"));
    if (!open_) return End(absl::InvalidArgumentError("the call carries no request, or one that cannot be read"));
    if (absl::Status status = file_->Close(); !status.ok()) return End(status);
    manager_.OpenRecording(file_, *open_, is_cancelled, [this](absl::StatusOr<v1::SceneInfo> info) {
      if (!info.ok()) return End(info.status());
      if (context_->IsCancelled()) {
        manager_.Delete(info->scene_id(), [](const absl::StatusOr<v1::DeleteSceneResponse>&) {});
        return End(absl::CancelledError("the upload was given up"));
      }
      *response_.mutable_scene() = *std::move(info);
      const absl::StatusOr<std::shared_ptr<Scene>> scene = manager_.Find(response_.scene().scene_id());
      if (!scene.ok()) return End(scene.status());
      (*scene)->GetTimeline([this](absl::StatusOr<v1::Timeline> timeline) {
        if (!timeline.ok()) return End(timeline.status());
        *response_.mutable_timeline() = *std::move(timeline);
        StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
      });
    });
  }

  void End(const absl::Status& status) {
    if (!absl::IsCancelled(status)) manager_.metrics().OnRpcError(status.code());
    Finish(ToGrpc(status));
  }

  SceneManager& manager_;
  grpc::CallbackServerContext* const context_;
  std::chrono::milliseconds piece_timeout_{0};
  std::unique_ptr<UploadTimer> timer_;  ///< of the piece that is awaited
  std::unique_ptr<StreamTicket> ticket_;
  v1::OpenRecordingRequest request_;
  v1::OpenRecordingResponse response_;
  std::optional<v1::OpenRecording> open_;
  std::shared_ptr<UploadFile> file_;
};

}  // namespace

RecordServiceImpl::RecordServiceImpl(SceneManager& manager, const CallPolicy& policy) : GuardedService(policy), manager_(manager) {
  const auto check = [this](const grpc::CallbackServerContext& context) {
    return this->policy().authenticator != nullptr ? this->policy().authenticator->Check(context) : absl::OkStatus();
  };
  AddStream<v1::RecordSceneRequest, v1::RecordingChunk>("/palpate.v1.RecordService/RecordScene",
                                                        [this, check](grpc::CallbackServerContext* context) {
                                                          auto* reactor = new RecordReactor<v1::RecordSceneRequest>(manager_, context);
                                                          reactor->Begin(check(*context), this->policy().upload_timeout);
                                                          return reactor;
                                                        });
  AddStream<v1::OpenRecordingRequest, v1::OpenRecordingResponse>("/palpate.v1.RecordService/OpenRecording",
                                                                 [this, check](grpc::CallbackServerContext* context) {
                                                                   auto* reactor = new OpenReactor(manager_, context);
                                                                   reactor->Begin(check(*context), this->policy().upload_timeout);
                                                                   return reactor;
                                                                 });
  AddUnary<v1::ReplaySceneRequest, v1::ReplaySceneResponse>("/palpate.v1.RecordService/ReplayScene",
                                                            std::bind_front(&RecordServiceImpl::ReplayScene, this));
  AddUnary<v1::SeekSceneRequest, v1::SeekSceneResponse>("/palpate.v1.RecordService/SeekScene",
                                                        std::bind_front(&RecordServiceImpl::SeekScene, this));
  AddUnary<v1::BranchSceneRequest, v1::BranchSceneResponse>("/palpate.v1.RecordService/BranchScene",
                                                            std::bind_front(&RecordServiceImpl::BranchScene, this));
  AddUnary<v1::GetTimelineRequest, v1::GetTimelineResponse>("/palpate.v1.RecordService/GetTimeline",
                                                            std::bind_front(&RecordServiceImpl::GetTimeline, this));
  AddUnary<v1::SetBookmarkRequest, v1::SetBookmarkResponse>("/palpate.v1.RecordService/SetBookmark",
                                                            std::bind_front(&RecordServiceImpl::SetBookmark, this));
  AddStream<v1::SaveSceneRequest, v1::RecordingChunk>("/palpate.v1.RecordService/SaveScene",
                                                      [this, check](grpc::CallbackServerContext* context) {
                                                        auto* reactor = new RecordReactor<v1::SaveSceneRequest>(manager_, context);
                                                        reactor->Begin(check(*context), this->policy().upload_timeout);
                                                        return reactor;
                                                      });
}

void RecordServiceImpl::Finish(UnaryReactor* reactor, const absl::Status& status) {
  if (!status.ok()) manager_.metrics().OnRpcError(status.code());
  reactor->Finish(ToGrpc(status));
}

template <typename T, typename Take>
Done<T> RecordServiceImpl::Into(UnaryReactor* reactor, Take take) {
  return [this, reactor, take = std::move(take)](absl::StatusOr<T> result) {
    if (result.ok()) take(*std::move(result));
    Finish(reactor, result.status());
  };
}

void RecordServiceImpl::ReplayScene(grpc::CallbackServerContext* /*context*/, UnaryReactor* reactor, const v1::ReplaySceneRequest* request,
                                    v1::ReplaySceneResponse* response) {
  manager_.Replay(*request, [this, reactor, response](absl::StatusOr<v1::ReplaySceneResponse> result) {
    if (result.ok()) *response = *std::move(result);
    Finish(reactor, result.status());
  });
}

void RecordServiceImpl::SeekScene(grpc::CallbackServerContext* context, UnaryReactor* reactor, const v1::SeekSceneRequest* request,
                                  v1::SeekSceneResponse* response) {
  const absl::StatusOr<std::shared_ptr<Scene>> scene = manager_.Find(request->scene_id());
  if (!scene.ok()) return Finish(reactor, scene.status());
  (*scene)->Seek(
      *request, [context] { return context->IsCancelled(); },
      Into<v1::SceneInfo>(reactor, [response](v1::SceneInfo info) { *response->mutable_scene() = std::move(info); }));
}

void RecordServiceImpl::BranchScene(grpc::CallbackServerContext* /*context*/, UnaryReactor* reactor, const v1::BranchSceneRequest* request,
                                    v1::BranchSceneResponse* response) {
  manager_.Branch(*request, Into<v1::SceneInfo>(reactor, [response](v1::SceneInfo info) { *response->mutable_scene() = std::move(info); }));
}

void RecordServiceImpl::GetTimeline(grpc::CallbackServerContext* /*context*/, UnaryReactor* reactor, const v1::GetTimelineRequest* request,
                                    v1::GetTimelineResponse* response) {
  const absl::StatusOr<std::shared_ptr<Scene>> scene = manager_.Find(request->scene_id());
  if (!scene.ok()) return Finish(reactor, scene.status());
  (*scene)->GetTimeline(
      Into<v1::Timeline>(reactor, [response](v1::Timeline timeline) { *response->mutable_timeline() = std::move(timeline); }));
}

void RecordServiceImpl::SetBookmark(grpc::CallbackServerContext* /*context*/, UnaryReactor* reactor, const v1::SetBookmarkRequest* request,
                                    v1::SetBookmarkResponse* response) {
  const absl::StatusOr<std::shared_ptr<Scene>> scene = manager_.Find(request->scene_id());
  if (!scene.ok()) return Finish(reactor, scene.status());
  (*scene)->SetBookmark(
      *request, Into<v1::Timeline>(reactor, [response](v1::Timeline timeline) { *response->mutable_timeline() = std::move(timeline); }));
}

}  // namespace palpate::server
