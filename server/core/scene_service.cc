#include <utility>

#include "absl/strings/str_cat.h"
#include "server/core/services.h"

namespace palpate::server {

void SceneServiceImpl::Finish(grpc::ServerUnaryReactor* reactor, const absl::Status& status) {
  if (!status.ok()) manager_.metrics().OnRpcError(status.code());
  reactor->Finish(ToGrpc(status));
}

bool SceneServiceImpl::Refused(grpc::CallbackServerContext* context, grpc::ServerUnaryReactor* reactor) {
  const absl::Status status = authenticator_.Check(*context);
  if (!status.ok()) Finish(reactor, status);
  return !status.ok();
}

std::shared_ptr<Scene> SceneServiceImpl::SceneOf(grpc::CallbackServerContext* context, grpc::ServerUnaryReactor* reactor,
                                                 const std::string& scene_id) {
  if (Refused(context, reactor)) return nullptr;
  absl::StatusOr<std::shared_ptr<Scene>> scene = manager_.Find(scene_id);
  if (!scene.ok()) {
    Finish(reactor, scene.status());
    return nullptr;
  }
  return *std::move(scene);
}

template <typename Response>
Done<v1::SceneInfo> SceneServiceImpl::InfoInto(grpc::ServerUnaryReactor* reactor, Response* response) {
  return [this, reactor, response](absl::StatusOr<v1::SceneInfo> info) {
    if (info.ok()) *response->mutable_scene() = *std::move(info);
    Finish(reactor, info.status());
  };
}

grpc::ServerUnaryReactor* SceneServiceImpl::CreateScene(grpc::CallbackServerContext* context, const v1::CreateSceneRequest* request,
                                                        v1::CreateSceneResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (Refused(context, reactor)) return reactor;
  manager_.Create(
      *request, nullptr, [context] { return context->IsCancelled(); }, InfoInto(reactor, response));
  return reactor;
}

grpc::ServerUnaryReactor* SceneServiceImpl::CheckScene(grpc::CallbackServerContext* context, const v1::CheckSceneRequest* request,
                                                       v1::CheckSceneResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (Refused(context, reactor)) return reactor;
  manager_.Check(
      request->spec(), [context] { return context->IsCancelled(); },
      [this, reactor, response](absl::StatusOr<v1::CheckSceneResponse> result) {
        if (result.ok()) *response = *std::move(result);
        Finish(reactor, result.status());
      });
  return reactor;
}

grpc::ServerUnaryReactor* SceneServiceImpl::ListScenes(grpc::CallbackServerContext* context, const v1::ListScenesRequest* /*request*/,
                                                       v1::ListScenesResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (Refused(context, reactor)) return reactor;
  for (const std::shared_ptr<Scene>& scene : manager_.List()) *response->add_scenes() = scene->Info();
  Finish(reactor, absl::OkStatus());
  return reactor;
}

grpc::ServerUnaryReactor* SceneServiceImpl::GetScene(grpc::CallbackServerContext* context, const v1::GetSceneRequest* request,
                                                     v1::GetSceneResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (const std::shared_ptr<Scene> scene = SceneOf(context, reactor, request->scene_id())) {
    *response->mutable_scene() = scene->Info();
    *response->mutable_spec() = scene->spec();
    Finish(reactor, absl::OkStatus());
  }
  return reactor;
}

grpc::ServerUnaryReactor* SceneServiceImpl::DeleteScene(grpc::CallbackServerContext* context, const v1::DeleteSceneRequest* request,
                                                        v1::DeleteSceneResponse* /*response*/) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (Refused(context, reactor)) return reactor;
  manager_.Delete(request->scene_id(),
                  [this, reactor](const absl::StatusOr<v1::DeleteSceneResponse>& result) { Finish(reactor, result.status()); });
  return reactor;
}

grpc::ServerUnaryReactor* SceneServiceImpl::PlayScene(grpc::CallbackServerContext* context, const v1::PlaySceneRequest* request,
                                                      v1::PlaySceneResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (const std::shared_ptr<Scene> scene = SceneOf(context, reactor, request->scene_id())) scene->Play(InfoInto(reactor, response));
  return reactor;
}

grpc::ServerUnaryReactor* SceneServiceImpl::PauseScene(grpc::CallbackServerContext* context, const v1::PauseSceneRequest* request,
                                                       v1::PauseSceneResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (const std::shared_ptr<Scene> scene = SceneOf(context, reactor, request->scene_id())) scene->Pause(InfoInto(reactor, response));
  return reactor;
}

grpc::ServerUnaryReactor* SceneServiceImpl::StepScene(grpc::CallbackServerContext* context, const v1::StepSceneRequest* request,
                                                      v1::StepSceneResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (const std::shared_ptr<Scene> scene = SceneOf(context, reactor, request->scene_id())) {
    // The context lives until the call is finished, which the last step does.
    scene->Step(
        request->count(), [context] { return context->IsCancelled(); }, InfoInto(reactor, response));
  }
  return reactor;
}

grpc::ServerUnaryReactor* SceneServiceImpl::ResetScene(grpc::CallbackServerContext* context, const v1::ResetSceneRequest* request,
                                                       v1::ResetSceneResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (const std::shared_ptr<Scene> scene = SceneOf(context, reactor, request->scene_id())) {
    scene->Reset([context] { return context->IsCancelled(); }, InfoInto(reactor, response));
  }
  return reactor;
}

grpc::ServerUnaryReactor* SceneServiceImpl::SetSceneRate(grpc::CallbackServerContext* context, const v1::SetSceneRateRequest* request,
                                                         v1::SetSceneRateResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const std::shared_ptr<Scene> scene = SceneOf(context, reactor, request->scene_id());
  if (!scene) return reactor;
  const absl::StatusOr<v1::Rate> rate = NormalizeRate(request->rate());
  if (!rate.ok()) {
    Finish(reactor, rate.status());
  } else {
    scene->SetRate(*rate, InfoInto(reactor, response));
  }
  return reactor;
}

grpc::ServerUnaryReactor* SceneServiceImpl::ExportScene(grpc::CallbackServerContext* context, const v1::ExportSceneRequest* request,
                                                        v1::ExportSceneResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (const std::shared_ptr<Scene> scene = SceneOf(context, reactor, request->scene_id())) {
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
  return reactor;
}

grpc::ServerUnaryReactor* SceneServiceImpl::GetServerInfo(grpc::CallbackServerContext* context, const v1::GetServerInfoRequest* /*request*/,
                                                          v1::GetServerInfoResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (Refused(context, reactor)) return reactor;
  *response = manager_.ServerInfo();
  Finish(reactor, absl::OkStatus());
  return reactor;
}

}  // namespace palpate::server
