#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "clients/cpp/connection.h"
#include "palpate/v1/control.grpc.pb.h"
#include "palpate/v1/edit.grpc.pb.h"

namespace palpate::client {

/// Blocking calls of SceneService and EditService, see proto/palpate/v1/control.proto and edit.proto for what they do and which errors they
/// give; DeadlineExceeded after `timeout`. Thread-safe.
class SceneClient {
 public:
  explicit SceneClient(Connection connection, std::chrono::milliseconds timeout = std::chrono::seconds(30));

  absl::StatusOr<v1::SceneInfo> Create(const v1::CreateSceneRequest& request);
  absl::StatusOr<v1::CheckSceneResponse> Check(const v1::SceneSpec& spec);
  absl::StatusOr<std::vector<v1::SceneInfo>> List();
  absl::StatusOr<v1::GetSceneResponse> Get(const std::string& scene_id);
  absl::Status Delete(const std::string& scene_id);
  absl::StatusOr<v1::SceneInfo> Play(const std::string& scene_id);
  absl::StatusOr<v1::SceneInfo> Pause(const std::string& scene_id);
  absl::StatusOr<v1::SceneInfo> Step(const std::string& scene_id, uint32_t count);
  /// `client_name`: whom the others are told of; the address of this machine if empty.
  absl::StatusOr<v1::SceneInfo> Reset(const std::string& scene_id, const std::string& client_name = {});
  absl::StatusOr<v1::SceneInfo> SetRate(const std::string& scene_id, const v1::Rate& rate);
  absl::StatusOr<v1::EditSceneResponse> Edit(const v1::EditSceneRequest& request);
  absl::StatusOr<v1::ExportSceneResponse> Export(const v1::ExportSceneRequest& request);
  absl::StatusOr<v1::GetServerInfoResponse> ServerInfo();

 private:
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(Stub& stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                                const Request& request);
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(grpc::Status (v1::SceneService::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                                const Request& request) {
    return Call(*stub_, method, request);
  }

  Connection connection_;
  std::chrono::milliseconds timeout_;
  std::unique_ptr<v1::SceneService::Stub> stub_;
  std::unique_ptr<v1::EditService::Stub> edit_stub_;
};

}  // namespace palpate::client
