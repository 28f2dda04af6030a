#pragma once

#include <memory>

#include "palpate/v1/control.grpc.pb.h"
#include "palpate/v1/edit.grpc.pb.h"
#include "palpate/v1/haptics.grpc.pb.h"
#include "palpate/v1/stream.grpc.pb.h"
#include "server/core/rpc.h"
#include "server/core/scene_manager.h"

namespace palpate::server {

/// The gRPC services. All are thin: they authenticate, hand the request to the manager and finish the call with its answer. The manager and
/// the authenticator outlive them.
class SceneServiceImpl final : public v1::SceneService::CallbackService {
 public:
  SceneServiceImpl(SceneManager& manager, const Authenticator& authenticator) : manager_(manager), authenticator_(authenticator) {}

  grpc::ServerUnaryReactor* CreateScene(grpc::CallbackServerContext* context, const v1::CreateSceneRequest* request,
                                        v1::CreateSceneResponse* response) override;
  grpc::ServerUnaryReactor* CheckScene(grpc::CallbackServerContext* context, const v1::CheckSceneRequest* request,
                                       v1::CheckSceneResponse* response) override;
  grpc::ServerUnaryReactor* ListScenes(grpc::CallbackServerContext* context, const v1::ListScenesRequest* request,
                                       v1::ListScenesResponse* response) override;
  grpc::ServerUnaryReactor* GetScene(grpc::CallbackServerContext* context, const v1::GetSceneRequest* request,
                                     v1::GetSceneResponse* response) override;
  grpc::ServerUnaryReactor* DeleteScene(grpc::CallbackServerContext* context, const v1::DeleteSceneRequest* request,
                                        v1::DeleteSceneResponse* response) override;
  grpc::ServerUnaryReactor* PlayScene(grpc::CallbackServerContext* context, const v1::PlaySceneRequest* request,
                                      v1::PlaySceneResponse* response) override;
  grpc::ServerUnaryReactor* PauseScene(grpc::CallbackServerContext* context, const v1::PauseSceneRequest* request,
                                       v1::PauseSceneResponse* response) override;
  grpc::ServerUnaryReactor* StepScene(grpc::CallbackServerContext* context, const v1::StepSceneRequest* request,
                                      v1::StepSceneResponse* response) override;
  grpc::ServerUnaryReactor* ResetScene(grpc::CallbackServerContext* context, const v1::ResetSceneRequest* request,
                                       v1::ResetSceneResponse* response) override;
  grpc::ServerUnaryReactor* SetSceneRate(grpc::CallbackServerContext* context, const v1::SetSceneRateRequest* request,
                                         v1::SetSceneRateResponse* response) override;
  grpc::ServerUnaryReactor* ExportScene(grpc::CallbackServerContext* context, const v1::ExportSceneRequest* request,
                                        v1::ExportSceneResponse* response) override;
  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context, const v1::GetServerInfoRequest* request,
                                          v1::GetServerInfoResponse* response) override;

 private:
  /// Finishes the call, counting errors.
  void Finish(grpc::ServerUnaryReactor* reactor, const absl::Status& status);
  /// The scene of a call that may go on; otherwise finishes the call and returns null.
  std::shared_ptr<Scene> SceneOf(grpc::CallbackServerContext* context, grpc::ServerUnaryReactor* reactor, const std::string& scene_id);
  bool Refused(grpc::CallbackServerContext* context, grpc::ServerUnaryReactor* reactor);
  template <typename Response>
  Done<v1::SceneInfo> InfoInto(grpc::ServerUnaryReactor* reactor, Response* response);

  SceneManager& manager_;
  const Authenticator& authenticator_;
};

class EditServiceImpl final : public v1::EditService::CallbackService {
 public:
  EditServiceImpl(SceneManager& manager, const Authenticator& authenticator) : manager_(manager), authenticator_(authenticator) {}
  grpc::ServerUnaryReactor* EditScene(grpc::CallbackServerContext* context, const v1::EditSceneRequest* request,
                                      v1::EditSceneResponse* response) override;

 private:
  void Finish(grpc::ServerUnaryReactor* reactor, const absl::Status& status);

  SceneManager& manager_;
  const Authenticator& authenticator_;
};

class StreamServiceImpl final : public v1::StreamService::CallbackService {
 public:
  StreamServiceImpl(SceneManager& manager, const Authenticator& authenticator) : manager_(manager), authenticator_(authenticator) {}
  grpc::ServerWriteReactor<v1::WatchUpdate>* Watch(grpc::CallbackServerContext* context, const v1::WatchRequest* request) override;

 private:
  SceneManager& manager_;
  const Authenticator& authenticator_;
};

class HapticServiceImpl final : public v1::HapticService::CallbackService {
 public:
  HapticServiceImpl(SceneManager& manager, const Authenticator& authenticator) : manager_(manager), authenticator_(authenticator) {}
  grpc::ServerBidiReactor<v1::OperateRequest, v1::OperateUpdate>* Operate(grpc::CallbackServerContext* context) override;

 private:
  SceneManager& manager_;
  const Authenticator& authenticator_;
};

}  // namespace palpate::server
