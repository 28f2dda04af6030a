#include "clients/cpp/scene_client.h"

#include <utility>

namespace palpate::client {

SceneClient::SceneClient(Connection connection, std::chrono::milliseconds timeout)
    : connection_(std::move(connection)),
      timeout_(timeout),
      stub_(v1::SceneService::NewStub(connection_.channel())),
      edit_stub_(v1::EditService::NewStub(connection_.channel())) {}

template <typename Stub, typename Request, typename Response>
absl::StatusOr<Response> SceneClient::Call(Stub& stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                                           const Request& request) {
  grpc::ClientContext context;
  connection_.Prepare(context, timeout_);
  Response response;
  const absl::Status status = ToAbslStatus((stub.*method)(&context, request, &response));
  if (!status.ok()) return status;
  return response;
}

namespace {

template <typename Request>
Request ForScene(const std::string& scene_id) {
  Request request;
  request.set_scene_id(scene_id);
  return request;
}

template <typename Response>
absl::StatusOr<v1::SceneInfo> SceneOf(absl::StatusOr<Response> response) {
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_scene());
}

}  // namespace

absl::StatusOr<v1::SceneInfo> SceneClient::Create(const v1::CreateSceneRequest& request) {
  return SceneOf(Call(&v1::SceneService::Stub::CreateScene, request));
}

absl::StatusOr<v1::CheckSceneResponse> SceneClient::Check(const v1::SceneSpec& spec) {
  v1::CheckSceneRequest request;
  *request.mutable_spec() = spec;
  return Call(&v1::SceneService::Stub::CheckScene, request);
}

absl::StatusOr<std::vector<v1::SceneInfo>> SceneClient::List() {
  const absl::StatusOr<v1::ListScenesResponse> response = Call(&v1::SceneService::Stub::ListScenes, v1::ListScenesRequest());
  if (!response.ok()) return response.status();
  return std::vector<v1::SceneInfo>(response->scenes().begin(), response->scenes().end());
}

absl::StatusOr<v1::GetSceneResponse> SceneClient::Get(const std::string& scene_id) {
  return Call(&v1::SceneService::Stub::GetScene, ForScene<v1::GetSceneRequest>(scene_id));
}

absl::Status SceneClient::Delete(const std::string& scene_id) {
  return Call(&v1::SceneService::Stub::DeleteScene, ForScene<v1::DeleteSceneRequest>(scene_id)).status();
}

absl::StatusOr<v1::SceneInfo> SceneClient::Play(const std::string& scene_id) {
  return SceneOf(Call(&v1::SceneService::Stub::PlayScene, ForScene<v1::PlaySceneRequest>(scene_id)));
}

absl::StatusOr<v1::SceneInfo> SceneClient::Pause(const std::string& scene_id) {
  return SceneOf(Call(&v1::SceneService::Stub::PauseScene, ForScene<v1::PauseSceneRequest>(scene_id)));
}

absl::StatusOr<v1::SceneInfo> SceneClient::Step(const std::string& scene_id, uint32_t count) {
  v1::StepSceneRequest request = ForScene<v1::StepSceneRequest>(scene_id);
  request.set_count(count);
  return SceneOf(Call(&v1::SceneService::Stub::StepScene, request));
}

absl::StatusOr<v1::SceneInfo> SceneClient::Reset(const std::string& scene_id, const std::string& client_name) {
  v1::ResetSceneRequest request = ForScene<v1::ResetSceneRequest>(scene_id);
  request.set_client_name(client_name);
  return SceneOf(Call(&v1::SceneService::Stub::ResetScene, request));
}

absl::StatusOr<v1::SceneInfo> SceneClient::SetRate(const std::string& scene_id, const v1::Rate& rate) {
  v1::SetSceneRateRequest request = ForScene<v1::SetSceneRateRequest>(scene_id);
  *request.mutable_rate() = rate;
  return SceneOf(Call(&v1::SceneService::Stub::SetSceneRate, request));
}

absl::StatusOr<v1::EditSceneResponse> SceneClient::Edit(const v1::EditSceneRequest& request) {
  return Call(*edit_stub_, &v1::EditService::Stub::EditScene, request);
}

absl::StatusOr<v1::ExportSceneResponse> SceneClient::Export(const v1::ExportSceneRequest& request) {
  return Call(&v1::SceneService::Stub::ExportScene, request);
}

absl::StatusOr<v1::GetServerInfoResponse> SceneClient::ServerInfo() {
  return Call(&v1::SceneService::Stub::GetServerInfo, v1::GetServerInfoRequest());
}

}  // namespace palpate::client
