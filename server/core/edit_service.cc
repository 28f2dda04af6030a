#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/core/services.h"

namespace palpate::server {

void EditServiceImpl::Finish(grpc::ServerUnaryReactor* reactor, const absl::Status& status) {
  if (!status.ok()) manager_.metrics().OnRpcError(status.code());
  reactor->Finish(ToGrpc(status));
}

grpc::ServerUnaryReactor* EditServiceImpl::EditScene(grpc::CallbackServerContext* context, const v1::EditSceneRequest* request,
                                                     v1::EditSceneResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (absl::Status status = authenticator_.Check(*context); !status.ok()) {
    Finish(reactor, status);
    return reactor;
  }
  absl::StatusOr<std::shared_ptr<Scene>> scene = manager_.Find(request->scene_id());
  if (!scene.ok()) {
    Finish(reactor, scene.status());
    return reactor;
  }
  // The context lives until the call is finished, which the answer does.
  (*scene)->Edit(
      *request, [context] { return context->IsCancelled(); },
      [this, reactor, response](absl::StatusOr<v1::EditSceneResponse> result) {
        if (result.ok()) *response = *std::move(result);
        Finish(reactor, result.status());
      });
  return reactor;
}

}  // namespace palpate::server
