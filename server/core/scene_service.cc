#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/core/services.h"

namespace palpate::server {

SceneServiceImpl::SceneServiceImpl(SceneManager& manager, const CallPolicy& policy) : GuardedService(policy), manager_(manager) {
  Add<v1::CreateSceneRequest, v1::CreateSceneResponse>("/palpate.v1.SceneService/CreateScene", &SceneServiceImpl::CreateScene);
  Add<v1::CheckSceneRequest, v1::CheckSceneResponse>("/palpate.v1.SceneService/CheckScene", &SceneServiceImpl::CheckScene);
  Add<v1::ListScenesRequest, v1::ListScenesResponse>("/palpate.v1.SceneService/ListScenes", &SceneServiceImpl::ListScenes);
  Add<v1::GetSceneRequest, v1::GetSceneResponse>("/palpate.v1.SceneService/GetScene", &SceneServiceImpl::GetScene);
  Add<v1::DeleteSceneRequest, v1::DeleteSceneResponse>("/palpate.v1.SceneService/DeleteScene", &SceneServiceImpl::DeleteScene);
  Add<v1::PlaySceneRequest, v1::PlaySceneResponse>("/palpate.v1.SceneService/PlayScene", &SceneServiceImpl::PlayScene);
  Add<v1::PauseSceneRequest, v1::PauseSceneResponse>("/palpate.v1.SceneService/PauseScene", &SceneServiceImpl::PauseScene);
  Add<v1::StepSceneRequest, v1::StepSceneResponse>("/palpate.v1.SceneService/StepScene", &SceneServiceImpl::StepScene);
  Add<v1::ResetSceneRequest, v1::ResetSceneResponse>("/palpate.v1.SceneService/ResetScene", &SceneServiceImpl::ResetScene);
  Add<v1::SetSceneRateRequest, v1::SetSceneRateResponse>("/palpate.v1.SceneService/SetSceneRate", &SceneServiceImpl::SetSceneRate);
  Add<v1::ExportSceneRequest, v1::ExportSceneResponse>("/palpate.v1.SceneService/ExportScene", &SceneServiceImpl::ExportScene);
  Add<v1::GetServerInfoRequest, v1::GetServerInfoResponse>("/palpate.v1.SceneService/GetServerInfo", &SceneServiceImpl::GetServerInfo);
}

template <typename Request, typename Response>
void SceneServiceImpl::Add(const char* method,
                           void (SceneServiceImpl::*handler)(grpc::CallbackServerContext*, UnaryReactor*, const Request*, Response*)) {
  AddUnary<Request, Response>(method, std::bind_front(handler, this));
}

void SceneServiceImpl::Finish(UnaryReactor* reactor, const absl::Status& status) {
  if (!status.ok()) manager_.metrics().OnRpcError(status.code());
  reactor->Finish(ToGrpc(status));
}

std::shared_ptr<Scene> SceneServiceImpl::SceneOf(UnaryReactor* reactor, const std::string& scene_id) {
  absl::StatusOr<std::shared_ptr<Scene>> scene = manager_.Find(scene_id);
  if (!scene.ok()) {
    Finish(reactor, scene.status());
    return nullptr;
  }
  return *std::move(scene);
}

template <typename Response>
Done<v1::SceneInfo> SceneServiceImpl::InfoInto(UnaryReactor* reactor, Response* response) {
  return [this, reactor, response](absl::StatusOr<v1::SceneInfo> info) {
    if (info.ok()) *response->mutable_scene() = *std::move(info);
    Finish(reactor, info.status());
  };
}

void SceneServiceImpl::CreateScene(grpc::CallbackServerContext* context, UnaryReactor* reactor, const v1::CreateSceneRequest* request,
                                   v1::CreateSceneResponse* response) {
  manager_.Create(
      *request, nullptr, [context] { return context->IsCancelled(); }, InfoInto(reactor, response));
}

void SceneServiceImpl::CheckScene(grpc::CallbackServerContext* context, UnaryReactor* reactor, const v1::CheckSceneRequest* request,
                                  v1::CheckSceneResponse* response) {
  manager_.Check(
      request->spec(), [context] { return context->IsCancelled(); },
      [this, reactor, response](absl::StatusOr<v1::CheckSceneResponse> result) {
        if (result.ok()) *response = *std::move(result);
        Finish(reactor, result.status());
      });
}

void SceneServiceImpl::ListScenes(grpc::CallbackServerContext* /*context*/, UnaryReactor* reactor, const v1::ListScenesRequest* /*request*/,
                                  v1::ListScenesResponse* response) {
  for (const std::shared_ptr<Scene>& scene : manager_.List()) *response->add_scenes() = scene->Info();
  Finish(reactor, absl::OkStatus());
}

void SceneServiceImpl::GetScene(grpc::CallbackServerContext* /*context*/, UnaryReactor* reactor, const v1::GetSceneRequest* request,
                                v1::GetSceneResponse* response) {
  if (const std::shared_ptr<Scene> scene = SceneOf(reactor, request->scene_id())) {
    *response->mutable_scene() = scene->Info();
    *response->mutable_spec() = scene->spec();
    Finish(reactor, absl::OkStatus());
  }
}

void SceneServiceImpl::DeleteScene(grpc::CallbackServerContext* /*context*/, UnaryReactor* reactor, const v1::DeleteSceneRequest* request,
                                   v1::DeleteSceneResponse* /*response*/) {
  manager_.Delete(request->scene_id(),
                  [this, reactor](const absl::StatusOr<v1::DeleteSceneResponse>& result) { Finish(reactor, result.status()); });
}

void SceneServiceImpl::PlayScene(grpc::CallbackServerContext* /*context*/, UnaryReactor* reactor, const v1::PlaySceneRequest* request,
                                 v1::PlaySceneResponse* response) {
  if (const std::shared_ptr<Scene> scene = SceneOf(reactor, request->scene_id())) scene->Play(InfoInto(reactor, response));
}

void SceneServiceImpl::PauseScene(grpc::CallbackServerContext* /*context*/, UnaryReactor* reactor, const v1::PauseSceneRequest* request,
                                  v1::PauseSceneResponse* response) {
  if (const std::shared_ptr<Scene> scene = SceneOf(reactor, request->scene_id())) scene->Pause(InfoInto(reactor, response));
}

void SceneServiceImpl::StepScene(grpc::CallbackServerContext* context, UnaryReactor* reactor, const v1::StepSceneRequest* request,
                                 v1::StepSceneResponse* response) {
  if (const std::shared_ptr<Scene> scene = SceneOf(reactor, request->scene_id())) {
    // The context lives until the call is finished, which the last step does.
    scene->Step(
        request->count(), request->tools(), [context] { return context->IsCancelled(); }, InfoInto(reactor, response));
  }
}

void SceneServiceImpl::ResetScene(grpc::CallbackServerContext* context, UnaryReactor* reactor, const v1::ResetSceneRequest* request,
                                  v1::ResetSceneResponse* response) {
  if (const std::shared_ptr<Scene> scene = SceneOf(reactor, request->scene_id())) {
    scene->Reset(
        request->client_name(), context->peer(), [context] { return context->IsCancelled(); }, InfoInto(reactor, response));
  }
}

void SceneServiceImpl::SetSceneRate(grpc::CallbackServerContext* /*context*/, UnaryReactor* reactor, const v1::SetSceneRateRequest* request,
                                    v1::SetSceneRateResponse* response) {
  const std::shared_ptr<Scene> scene = SceneOf(reactor, request->scene_id());
  if (!scene) return;
  const absl::StatusOr<v1::Rate> rate = NormalizeRate(request->rate());
  if (!rate.ok()) {
    Finish(reactor, rate.status());
  } else {
    scene->SetRate(*rate, InfoInto(reactor, response));
  }
}

void SceneServiceImpl::ExportScene(grpc::CallbackServerContext* /*context*/, UnaryReactor* reactor, const v1::ExportSceneRequest* request,
                                   v1::ExportSceneResponse* response) {
  if (const std::shared_ptr<Scene> scene = SceneOf(reactor, request->scene_id())) {
    scene->Export(request->body(), request->format(), [this, reactor, response](absl::StatusOr<v1::ExportSceneResponse> result) {
      absl::Status status = result.status();
      if (status.ok() && result->ByteSizeLong() > manager_.limits().max_message_bytes) {
        status =
            absl::ResourceExhaustedError(absl::StrCat("the export has ", result->ByteSizeLong(),
                                                      " bytes, above the limit max_message_bytes = ", manager_.limits().max_message_bytes));
      }
      if (status.ok()) *response = *std::move(result);
      Finish(reactor, status);
    });
  }
}

void SceneServiceImpl::GetServerInfo(grpc::CallbackServerContext* /*context*/, UnaryReactor* reactor,
                                     const v1::GetServerInfoRequest* /*request*/, v1::GetServerInfoResponse* response) {
  *response = manager_.ServerInfo();
  Finish(reactor, absl::OkStatus());
}

}  // namespace palpate::server
