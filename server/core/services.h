#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "palpate/v1/batch.grpc.pb.h"
#include "palpate/v1/control.grpc.pb.h"
#include "palpate/v1/edit.grpc.pb.h"
#include "palpate/v1/haptics.grpc.pb.h"
#include "palpate/v1/record.grpc.pb.h"
#include "palpate/v1/stream.grpc.pb.h"
#include "server/core/rpc.h"
#include "server/core/scene_manager.h"
#include "server/core/unary_call.h"

namespace palpate::server {

/// The gRPC services. All are thin: they hand the request to the manager and finish the call with its answer. A call without the token does
/// not reach them (CallPolicy). The manager and what the policy points to outlive them.
class SceneServiceImpl final : public GuardedService {
 public:
  SceneServiceImpl(SceneManager& manager, const CallPolicy& policy);

 private:
  void CreateScene(grpc::CallbackServerContext* context, UnaryReactor* reactor, const v1::CreateSceneRequest* request,
                   v1::CreateSceneResponse* response);
  void CheckScene(grpc::CallbackServerContext* context, UnaryReactor* reactor, const v1::CheckSceneRequest* request,
                  v1::CheckSceneResponse* response);
  void ListScenes(grpc::CallbackServerContext* context, UnaryReactor* reactor, const v1::ListScenesRequest* request,
                  v1::ListScenesResponse* response);
  void GetScene(grpc::CallbackServerContext* context, UnaryReactor* reactor, const v1::GetSceneRequest* request,
                v1::GetSceneResponse* response);
  void DeleteScene(grpc::CallbackServerContext* context, UnaryReactor* reactor, const v1::DeleteSceneRequest* request,
                   v1::DeleteSceneResponse* response);
  void PlayScene(grpc::CallbackServerContext* context, UnaryReactor* reactor, const v1::PlaySceneRequest* request,
                 v1::PlaySceneResponse* response);
  void PauseScene(grpc::CallbackServerContext* context, UnaryReactor* reactor, const v1::PauseSceneRequest* request,
                  v1::PauseSceneResponse* response);
  void StepScene(grpc::CallbackServerContext* context, UnaryReactor* reactor, const v1::StepSceneRequest* request,
                 v1::StepSceneResponse* response);
  void ResetScene(grpc::CallbackServerContext* context, UnaryReactor* reactor, const v1::ResetSceneRequest* request,
                  v1::ResetSceneResponse* response);
  void SetSceneRate(grpc::CallbackServerContext* context, UnaryReactor* reactor, const v1::SetSceneRateRequest* request,
                    v1::SetSceneRateResponse* response);
  void ExportScene(grpc::CallbackServerContext* context, UnaryReactor* reactor, const v1::ExportSceneRequest* request,
                   v1::ExportSceneResponse* response);
  void GetServerInfo(grpc::CallbackServerContext* context, UnaryReactor* reactor, const v1::GetServerInfoRequest* request,
                     v1::GetServerInfoResponse* response);

  template <typename Request, typename Response>
  void Add(const char* method, void (SceneServiceImpl::*handler)(grpc::CallbackServerContext*, UnaryReactor*, const Request*, Response*));
  /// Finishes the call, counting errors.
  void Finish(UnaryReactor* reactor, const absl::Status& status);
  /// The scene of a call that may go on; otherwise finishes the call and returns null.
  std::shared_ptr<Scene> SceneOf(UnaryReactor* reactor, const std::string& scene_id);
  template <typename Response>
  Done<v1::SceneInfo> InfoInto(UnaryReactor* reactor, Response* response);

  SceneManager& manager_;
};

class EditServiceImpl final : public GuardedService {
 public:
  EditServiceImpl(SceneManager& manager, const CallPolicy& policy);

 private:
  void EditScene(grpc::CallbackServerContext* context, UnaryReactor* reactor, const v1::EditSceneRequest* request,
                 v1::EditSceneResponse* response);
  void Finish(UnaryReactor* reactor, const absl::Status& status);

  SceneManager& manager_;
};

class StreamServiceImpl final : public GuardedService {
 public:
  StreamServiceImpl(SceneManager& manager, const CallPolicy& policy);

 private:
  grpc::ServerBidiReactor<v1::WatchRequest, v1::WatchUpdate>* Watch(grpc::CallbackServerContext* context);

  SceneManager& manager_;
};

class HapticServiceImpl final : public v1::HapticService::CallbackService {
 public:
  HapticServiceImpl(SceneManager& manager, const Authenticator& authenticator) : manager_(manager), authenticator_(authenticator) {}
  grpc::ServerBidiReactor<v1::OperateRequest, v1::OperateUpdate>* Operate(grpc::CallbackServerContext* context) override;

 private:
  SceneManager& manager_;
  const Authenticator& authenticator_;
};

class RecordServiceImpl final : public GuardedService {
 public:
  RecordServiceImpl(SceneManager& manager, const CallPolicy& policy);

 private:
  void ReplayScene(grpc::CallbackServerContext* context, UnaryReactor* reactor, const v1::ReplaySceneRequest* request,
                   v1::ReplaySceneResponse* response);
  void SeekScene(grpc::CallbackServerContext* context, UnaryReactor* reactor, const v1::SeekSceneRequest* request,
                 v1::SeekSceneResponse* response);
  void BranchScene(grpc::CallbackServerContext* context, UnaryReactor* reactor, const v1::BranchSceneRequest* request,
                   v1::BranchSceneResponse* response);
  void GetTimeline(grpc::CallbackServerContext* context, UnaryReactor* reactor, const v1::GetTimelineRequest* request,
                   v1::GetTimelineResponse* response);
  void SetBookmark(grpc::CallbackServerContext* context, UnaryReactor* reactor, const v1::SetBookmarkRequest* request,
                   v1::SetBookmarkResponse* response);
  void Finish(UnaryReactor* reactor, const absl::Status& status);
  /// The answer to a call, or its error.
  template <typename T, typename Take>
  Done<T> Into(UnaryReactor* reactor, Take take);

  SceneManager& manager_;
};

class BatchBudget;

/// Scenes of a call of its own, stepped by a pool of this service.
class BatchServiceImpl final : public GuardedService {
 public:
  BatchServiceImpl(SceneManager& manager, const CallPolicy& policy);
  ~BatchServiceImpl();

 private:
  grpc::ServerBidiReactor<v1::BatchRequest, v1::BatchResponse>* RunBatch(grpc::CallbackServerContext* context);

  SceneManager& manager_;
  std::unique_ptr<BatchBudget> budget_;
  std::unique_ptr<WorkerPool> pool_;  ///< ends first: what it does gives to the budget
};

/// The standard health service (grpc.health.v1), which needs no token: SERVING for the server ("") and each of `services` until Stop.
/// `Watch` is not offered: anybody could hold streams with it.
class HealthServiceImpl final : public GuardedService {
 public:
  HealthServiceImpl(std::vector<std::string> services, const CallPolicy& policy);
  void Stop() { is_serving_ = false; }

 private:
  const std::vector<std::string> services_;
  std::atomic<bool> is_serving_{true};
};

}  // namespace palpate::server
