#include <functional>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/core/services.h"

namespace palpate::server {

EditServiceImpl::EditServiceImpl(SceneManager& manager, const CallPolicy& policy) : GuardedService(policy), manager_(manager) {
  AddUnary<v1::EditSceneRequest, v1::EditSceneResponse>("/palpate.v1.EditService/EditScene",
                                                        std::bind_front(&EditServiceImpl::EditScene, this));
}

void EditServiceImpl::Finish(UnaryReactor* reactor, const absl::Status& status) {
  if (!status.ok()) manager_.metrics().OnRpcError(status.code());
  reactor->Finish(ToGrpc(status));
}

void EditServiceImpl::EditScene(grpc::CallbackServerContext* context, UnaryReactor* reactor, const v1::EditSceneRequest* request,
                                v1::EditSceneResponse* response) {
  absl::StatusOr<std::shared_ptr<Scene>> scene = manager_.Find(request->scene_id());
  if (!scene.ok()) {
    Finish(reactor, scene.status());
    return;
  }
  // The context lives until the call is finished, which the answer does.
  (*scene)->Edit(
      *request, [context] { return context->IsCancelled(); },
      [this, reactor, response](absl::StatusOr<v1::EditSceneResponse> result) {
        if (result.ok()) *response = *std::move(result);
        Finish(reactor, result.status());
      });
}

}  // namespace palpate::server
