#include "server/core/viewer_bridge.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/api/encode.h"
#include "server/core/frame_pacer.h"
#include "server/core/log.h"
#include "server/core/watch_encoder.h"

namespace palpate::server {
namespace {

/// Waits on the connection's own thread for an answer that another thread gives.
template <typename T>
class Wait {
 public:
  Done<T> done() {
    return [state = state_](absl::StatusOr<T> result) {
      const std::lock_guard lock(state->mutex);
      state->result = std::move(result);
      state->ready.notify_one();
    };
  }
  absl::StatusOr<T> Get() {
    std::unique_lock lock(state_->mutex);
    state_->ready.wait(lock, [this] { return state_->result.has_value(); });
    return *std::move(state_->result);
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable ready;
    std::optional<absl::StatusOr<T>> result;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

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

  void OnRequest(const v1::ViewerRequest& request) override {
    v1::ViewerUpdate update;
    update.set_request_id(request.request_id());
    absl::Status status;
    bool has_answer = true;
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
        status = Control(request.play().scene_id(), update, [](Scene& scene, Done<v1::SceneInfo> done) { scene.Play(std::move(done)); });
        break;
      case v1::ViewerRequest::kPause:
        status = Control(request.pause().scene_id(), update, [](Scene& scene, Done<v1::SceneInfo> done) { scene.Pause(std::move(done)); });
        break;
      case v1::ViewerRequest::kStep:
        status = Control(request.step().scene_id(), update, [&request](Scene& scene, Done<v1::SceneInfo> done) {
          scene.Step(request.step().count(), nullptr, std::move(done));
        });
        break;
      case v1::ViewerRequest::kReset:
        status = Control(request.reset().scene_id(), update, [](Scene& scene, Done<v1::SceneInfo> done) { scene.Reset(std::move(done)); });
        break;
      case v1::ViewerRequest::kSetRate: {
        const absl::StatusOr<v1::Rate> rate = NormalizeRate(request.set_rate().rate());
        status = rate.status();
        if (rate.ok()) {
          status = Control(request.set_rate().scene_id(), update,
                           [&rate](Scene& scene, Done<v1::SceneInfo> done) { scene.SetRate(*rate, std::move(done)); });
        }
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
        status = Edit(request.edit(), update);
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

  absl::Status Edit(const v1::EditSceneRequest& request, v1::ViewerUpdate& update) {
    absl::StatusOr<std::shared_ptr<Scene>> scene = manager_.Find(request.scene_id());
    if (!scene.ok()) return scene.status();
    Wait<v1::EditSceneResponse> wait;
    (*scene)->Edit(request, wait.done());
    absl::StatusOr<v1::EditSceneResponse> response = wait.Get();
    if (response.ok()) *update.mutable_edit() = *std::move(response);
    return response.status();
  }

  template <typename Act>
  absl::Status Control(const std::string& scene_id, v1::ViewerUpdate& update, Act act) {
    absl::StatusOr<std::shared_ptr<Scene>> scene = manager_.Find(scene_id);
    if (!scene.ok()) return scene.status();
    Wait<v1::SceneInfo> wait;
    act(**scene, wait.done());
    absl::StatusOr<v1::SceneInfo> info = wait.Get();
    if (info.ok()) *update.mutable_scene() = *std::move(info);
    return info.status();
  }

  SceneManager& manager_;
  const std::shared_ptr<ViewerSink> sink_;
  const std::unique_ptr<StreamTicket> ticket_;
  const std::string peer_;
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

}  // namespace palpate::server
