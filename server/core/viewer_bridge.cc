#include "server/core/viewer_bridge.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/api/encode.h"
#include "server/core/frame_pacer.h"
#include "server/core/log.h"
#include "server/core/watch_encoder.h"

namespace palpate::server {
namespace {

/// Requests of one browser that wait for their scene.
constexpr int kMaxWaiting = 64;

void SendError(ViewerSink& sink, uint32_t request_id, const absl::Status& status) {
  v1::ViewerUpdate update;
  update.set_request_id(request_id);
  update.mutable_error()->set_code(static_cast<int32_t>(status.code()));
  update.mutable_error()->set_message(std::string(status.message()));
  sink.Send(std::move(update));
}

/// The watch of one connection: a pacer whose snapshots go to the sink's slot, latest wins; what the browser needs of one is decided when
/// the connection can take it.
class ViewerWatch {
 public:
  ViewerWatch(SceneManager& manager, std::shared_ptr<ViewerSink> sink, std::shared_ptr<Scene> scene, const FrameOptions& options,
              double rate_hz)
      : scene_(std::move(scene)), state_(std::make_shared<State>(manager.metrics(), std::move(sink), scene_, options)) {
    pacer_ = FramePacer::Create(
        rate_hz, options.with_volume, manager.encode_pool(),
        [state = state_](const std::shared_ptr<const SceneSnapshot>& snapshot) { state->Offer(snapshot); },
        [state = state_](const absl::Status& reason) { SendError(*state->sink, 0, reason); });
    scene_->OnWatcherOpened();
  }

  const std::string& scene_id() const { return scene_->id(); }
  absl::Status Begin(bool with_volume) { return scene_->AddListener(pacer_, with_volume); }

  ~ViewerWatch() {
    pacer_->Stop();
    scene_->RemoveListener(pacer_.get());
    scene_->OnWatcherClosed();
    state_->Close();
  }

 private:
  struct State : std::enable_shared_from_this<State> {
    State(Metrics& metrics, std::shared_ptr<ViewerSink> s, std::shared_ptr<Scene> sc, const FrameOptions& options)
        : sink(std::move(s)), scene(std::move(sc)), encoder(scene, metrics, StreamKind::kViewer, options) {}

    void Offer(const std::shared_ptr<const SceneSnapshot>& snapshot) {
      const std::lock_guard lock(mutex);
      if (closed) return;
      sink->OfferFrame([self = shared_from_this(), snapshot](uint64_t dropped, v1::ViewerUpdate& update) {
        return self->Write(*snapshot, dropped, update);
      });
    }

    bool Write(const SceneSnapshot& snapshot, uint64_t dropped, v1::ViewerUpdate& update) {
      if (dropped > counted_dropped) scene->metrics().OnFramesDropped(dropped - counted_dropped);
      counted_dropped = dropped;
      return encoder.Encode(snapshot, dropped, *update.mutable_watch()) == Encoded::kMore;
    }

    void Close() {
      const std::lock_guard lock(mutex);
      closed = true;
    }

    const std::shared_ptr<ViewerSink> sink;
    const std::shared_ptr<Scene> scene;
    WatchEncoder encoder;          ///< of the sink's writer thread
    uint64_t counted_dropped = 0;  ///< of the sink's writer thread
    std::mutex mutex;
    bool closed = false;
  };

  std::shared_ptr<Scene> scene_;
  std::shared_ptr<State> state_;
  std::shared_ptr<FramePacer> pacer_;
};

class Session : public ViewerSession {
 public:
  Session(SceneManager& manager, std::shared_ptr<ViewerSink> sink, std::unique_ptr<StreamTicket> ticket, std::string peer)
      : manager_(manager), sink_(std::move(sink)), ticket_(std::move(ticket)), peer_(std::move(peer)) {}
  ~Session() override { state_->is_gone = true; }

  void OnRequest(const v1::ViewerRequest& request) override {
    const uint32_t id = request.request_id();
    v1::ViewerUpdate update;
    update.set_request_id(id);
    absl::Status status;
    bool has_answer = true;  // now: what a scene is asked for comes when it is done, and the connection goes on meanwhile
    switch (request.request_case()) {
      case v1::ViewerRequest::kWatch:
        status = Watch(request.watch());
        has_answer = false;
        break;
      case v1::ViewerRequest::kList:
        for (const std::shared_ptr<Scene>& scene : manager_.List()) *update.mutable_list()->add_scenes() = scene->Info();
        update.mutable_list();
        break;
      case v1::ViewerRequest::kPlay:
        status = Ask(request.play().scene_id(), [&](Scene& scene) { scene.Play(InfoLater(id)); });
        has_answer = false;
        break;
      case v1::ViewerRequest::kPause:
        status = Ask(request.pause().scene_id(), [&](Scene& scene) { scene.Pause(InfoLater(id)); });
        has_answer = false;
        break;
      case v1::ViewerRequest::kStep:
        status = Ask(request.step().scene_id(), [&](Scene& scene) {
          scene.Step(
              request.step().count(), request.step().tools(), [state = state_] { return state->is_gone.load(); }, InfoLater(id));
        });
        has_answer = false;
        break;
      case v1::ViewerRequest::kReset:
        status = Ask(request.reset().scene_id(), [&](Scene& scene) {
          scene.Reset(
              request.reset().client_name(), absl::StrCat("browser ", peer_), [state = state_] { return state->is_gone.load(); },
              InfoLater(id));
        });
        has_answer = false;
        break;
      case v1::ViewerRequest::kSetRate: {
        const absl::StatusOr<v1::Rate> rate = NormalizeRate(request.set_rate().rate());
        status = rate.status();
        if (rate.ok()) {
          status = Ask(request.set_rate().scene_id(), [&](Scene& scene) { scene.SetRate(*rate, InfoLater(id)); });
        }
        has_answer = false;
        break;
      }
      case v1::ViewerRequest::kAttach:
        status = Attach(request.attach(), update);
        break;
      case v1::ViewerRequest::kPose:
        has_answer = false;
        status = lease_ ? lease_->SetPose(request.pose()) : absl::FailedPreconditionError("pose: no tool is attached");
        break;
      case v1::ViewerRequest::kRelease:
        lease_.reset();
        update.mutable_released();
        break;
      case v1::ViewerRequest::kServerInfo:
        *update.mutable_server_info() = manager_.ServerInfo();
        break;
      case v1::ViewerRequest::kEdit:
        status = Ask(request.edit().scene_id(), [&](Scene& scene) {
          scene.Edit(
              request.edit(), [state = state_] { return state->is_gone.load(); },
              AnswerLater<v1::EditSceneResponse>(
                  id, [](v1::EditSceneResponse response, v1::ViewerUpdate& answer) { *answer.mutable_edit() = std::move(response); }));
        });
        has_answer = false;
        break;
      case v1::ViewerRequest::kTimeline:
      case v1::ViewerRequest::kReplay:
      case v1::ViewerRequest::kSeek:
      case v1::ViewerRequest::kBranch:
      case v1::ViewerRequest::kBookmark:
      case v1::ViewerRequest::kDelete:
        status = AskForPast(request);
        has_answer = false;
        break;
      case v1::ViewerRequest::REQUEST_NOT_SET:
        status = absl::InvalidArgumentError("request: none is given");
        break;
    }
    if (!status.ok()) {
      manager_.metrics().OnRpcError(status.code());
      SendError(*sink_, request.request_id(), status);
    } else if (has_answer) {
      sink_->Send(std::move(update));
    }
  }

 private:
  struct State {
    std::atomic<int> waiting = 0;  ///< for an answer
    std::atomic<bool> is_gone = false;
  };

  absl::Status Watch(const v1::WatchRequest& request) {
    absl::StatusOr<std::shared_ptr<Scene>> scene = manager_.Find(request.scene_id());
    if (!scene.ok()) return scene.status();
    const absl::StatusOr<FrameOptions> options = FrameOptionsFromProto(request, *(*scene)->Snapshot()->topology);
    if (!options.ok()) return options.status();
    watch_.reset();
    sink_->BeginStream();
    watch_ = std::make_unique<ViewerWatch>(manager_, sink_, *std::move(scene), *options, MaxRateFromProto(request));
    return watch_->Begin(options->with_volume);
  }

  /// Requests about the past of scenes; their answers come later.
  absl::Status AskForPast(const v1::ViewerRequest& request) {
    const uint32_t id = request.request_id();
    const auto timeline_later = [&] {
      return AnswerLater<v1::Timeline>(
          id, [](v1::Timeline timeline, v1::ViewerUpdate& answer) { *answer.mutable_timeline() = std::move(timeline); });
    };
    switch (request.request_case()) {
      case v1::ViewerRequest::kTimeline:
        return Ask(request.timeline().scene_id(), [&](Scene& scene) { scene.GetTimeline(timeline_later()); });
      case v1::ViewerRequest::kBookmark:
        return Ask(request.bookmark().scene_id(), [&](Scene& scene) { scene.SetBookmark(request.bookmark(), timeline_later()); });
      case v1::ViewerRequest::kSeek:
        return Ask(request.seek().scene_id(), [&](Scene& scene) {
          scene.Seek(
              request.seek(), [state = state_] { return state->is_gone.load(); }, InfoLater(id));
        });
      case v1::ViewerRequest::kReplay:
        return Ask(request.replay().scene_id(), [&](Scene&) {
          manager_.Replay(request.replay(),
                          AnswerLater<v1::ReplaySceneResponse>(id, [](v1::ReplaySceneResponse response, v1::ViewerUpdate& answer) {
                            *answer.mutable_replay() = std::move(response);
                          }));
        });
      case v1::ViewerRequest::kBranch:
        return Ask(request.branch().scene_id(), [&](Scene&) { manager_.Branch(request.branch(), InfoLater(id)); });
      default:
        return Delete(request.delete_().scene_id(), id);
    }
  }

  /// A browser may take away what a browser made: replays.
  absl::Status Delete(const std::string& scene_id, uint32_t id) {
    const absl::StatusOr<std::shared_ptr<Scene>> scene = manager_.Find(scene_id);
    if (!scene.ok()) return scene.status();
    if (!(*scene)->is_replay()) return absl::FailedPreconditionError(absl::StrCat("scene_id: scene \"", scene_id, "\" is no replay"));
    if (watch_ && watch_->scene_id() == scene_id) watch_.reset();
    manager_.Delete(scene_id, AnswerLater<v1::DeleteSceneResponse>(
                                  id, [](const v1::DeleteSceneResponse&, v1::ViewerUpdate& answer) { answer.mutable_deleted(); }));
    return absl::OkStatus();
  }

  absl::Status Attach(const v1::Attach& attach, v1::ViewerUpdate& update) {
    if (lease_) return absl::FailedPreconditionError("attach: this browser operates a tool already; release it first");
    absl::StatusOr<std::shared_ptr<Scene>> scene = manager_.Find(attach.scene_id());
    if (!scene.ok()) return scene.status();
    v1::Attach named = attach;
    if (named.station().empty()) named.set_station(absl::StrCat("browser ", peer_).substr(0, 64));
    absl::StatusOr<std::unique_ptr<ToolLease>> lease = (*scene)->AcquireTool(named);
    if (!lease.ok()) return lease.status();
    lease_ = *std::move(lease);
    *update.mutable_operate()->mutable_attached() = lease_->attached();
    return absl::OkStatus();
  }

  template <typename Act>
  absl::Status Ask(const std::string& scene_id, Act act) {
    absl::StatusOr<std::shared_ptr<Scene>> scene = manager_.Find(scene_id);
    if (!scene.ok()) return scene.status();
    if (state_->waiting >= kMaxWaiting) {
      return absl::ResourceExhaustedError(absl::StrCat(kMaxWaiting, " requests of this browser wait for an answer; wait for one"));
    }
    act(**scene);
    return absl::OkStatus();
  }

  /// Sends the answer to request `id` when the scene has it; the session may be gone by then.
  template <typename T, typename Fill>
  Done<T> AnswerLater(uint32_t id, Fill fill) {
    ++state_->waiting;
    return [sink = sink_, state = state_, &metrics = manager_.metrics(), id, fill](absl::StatusOr<T> result) {
      --state->waiting;
      if (!result.ok()) {
        metrics.OnRpcError(result.status().code());
        SendError(*sink, id, result.status());
        return;
      }
      v1::ViewerUpdate update;
      update.set_request_id(id);
      fill(*std::move(result), update);
      sink->Send(std::move(update));
    };
  }
  Done<v1::SceneInfo> InfoLater(uint32_t id) {
    return AnswerLater<v1::SceneInfo>(id, [](v1::SceneInfo info, v1::ViewerUpdate& answer) { *answer.mutable_scene() = std::move(info); });
  }

  SceneManager& manager_;
  const std::shared_ptr<ViewerSink> sink_;
  const std::unique_ptr<StreamTicket> ticket_;
  const std::string peer_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::unique_ptr<ViewerWatch> watch_;
  std::unique_ptr<ToolLease> lease_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ViewerSession>> ViewerBridge::OpenSession(std::shared_ptr<ViewerSink> sink, const std::string& peer) {
  absl::StatusOr<std::unique_ptr<StreamTicket>> ticket = manager_.OpenStream(StreamKind::kViewer, [sink](const absl::Status& reason) {
    SendError(*sink, 0, reason);
    sink->Close();
  });
  if (!ticket.ok()) return ticket.status();
  return std::make_unique<Session>(manager_, std::move(sink), *std::move(ticket), peer);
}

absl::StatusOr<ViewerImage> ViewerBridge::FindImage(std::string_view id) {
  absl::StatusOr<std::shared_ptr<const sim::TextureImage>> image = manager_.FindImage(id);
  if (!image.ok()) return image.status();
  return ViewerImage{(*image)->media_type, (*image)->bytes};
}

}  // namespace palpate::server
