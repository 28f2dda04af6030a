#include "tests/server/core/server_fixture.h"

#include <chrono>
#include <cstdlib>
#include <thread>

#include "absl/strings/str_cat.h"

namespace palpate::server {

std::shared_ptr<gpu::Context> TestContext() {
  static const absl::StatusOr<std::shared_ptr<gpu::Context>> context = [] {
    gpu::ContextOptions options;
    options.device = "cpu";
    return gpu::Context::Create(options);
  }();
  EXPECT_TRUE(context.ok()) << context.status();
  return context.ok() ? *context : nullptr;
}

v1::SceneSpec TinyScene() {
  v1::SceneSpec spec;
  spec.set_name("tiny");
  spec.mutable_solver()->set_iterations(4);
  v1::BodySpec& body = *spec.add_bodies();
  body.set_name("slab");
  for (auto set : {&v1::Vec3::set_x, &v1::Vec3::set_y, &v1::Vec3::set_z}) {
    (body.mutable_generator()->mutable_slab()->mutable_size_m()->*set)(0.1);
  }
  body.mutable_generator()->set_edge_length_m(0.05);
  v1::Box& box = *body.add_fixed()->mutable_box();
  box.mutable_min_m()->set_x(-1);
  box.mutable_min_m()->set_y(-1);
  box.mutable_min_m()->set_z(-0.051);
  box.mutable_max_m()->set_x(1);
  box.mutable_max_m()->set_y(1);
  box.mutable_max_m()->set_z(-0.049);
  v1::ToolSpec& probe = *spec.add_tools();
  probe.set_name("probe");
  probe.mutable_rest_pose()->mutable_position_m()->set_z(0.1);
  v1::ToolSpec& second = *spec.add_tools();
  second.set_name("second");
  second.mutable_rest_pose()->mutable_position_m()->set_z(1);
  return spec;
}

bool Eventually(const std::function<bool()>& condition) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > give_up) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

ServerOptions ServerTest::Options() {
  ServerOptions options;
  options.listen = {"127.0.0.1", 0, true};
  options.has_http = false;
  return options;
}

void ServerTest::SetUp() {
  ConfigureLog(LogLevel::kOff, false);
  StartServer();
}

void ServerTest::TearDown() { StopServer(); }

void ServerTest::StartServer() {
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(Options(), TestContext());
  ASSERT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);
  const std::shared_ptr<grpc::Channel> channel = NewChannel();
  scenes_ = v1::SceneService::NewStub(channel);
  streams_ = v1::StreamService::NewStub(channel);
  haptics_ = v1::HapticService::NewStub(channel);
}

std::shared_ptr<grpc::Channel> ServerTest::NewChannel() const {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(64 << 20);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
  return grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", server_->grpc_port()), grpc::InsecureChannelCredentials(), arguments);
}

std::string ServerTest::CreateScene(bool play, const std::string& id, const v1::SceneSpec& spec) {
  grpc::ClientContext context;
  v1::CreateSceneRequest request;
  *request.mutable_spec() = spec;
  request.set_scene_id(id);
  request.set_play(play);
  v1::CreateSceneResponse response;
  const grpc::Status status = scenes_->CreateScene(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response.scene().scene_id();
}

grpc::Status ServerTest::Step(const std::string& id, uint32_t count, v1::SceneInfo* info) {
  grpc::ClientContext context;
  v1::StepSceneRequest request;
  request.set_scene_id(id);
  request.set_count(count);
  v1::StepSceneResponse response;
  const grpc::Status status = scenes_->StepScene(&context, request, &response);
  if (info != nullptr) *info = response.scene();
  return status;
}

v1::SceneInfo ServerTest::Get(const std::string& id) {
  grpc::ClientContext context;
  v1::GetSceneRequest request;
  request.set_scene_id(id);
  v1::GetSceneResponse response;
  const grpc::Status status = scenes_->GetScene(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response.scene();
}

grpc::Status ServerTest::Delete(const std::string& id) {
  grpc::ClientContext context;
  v1::DeleteSceneRequest request;
  request.set_scene_id(id);
  v1::DeleteSceneResponse response;
  return scenes_->DeleteScene(&context, request, &response);
}

grpc::Status ServerTest::SetRate(const std::string& id, v1::RateMode mode, double speed) {
  grpc::ClientContext context;
  v1::SetSceneRateRequest request;
  request.set_scene_id(id);
  request.mutable_rate()->set_mode(mode);
  if (speed != 0) request.mutable_rate()->set_speed(speed);
  v1::SetSceneRateResponse response;
  return scenes_->SetSceneRate(&context, request, &response);
}

grpc::Status ServerTest::Play(const std::string& id) {
  grpc::ClientContext context;
  v1::PlaySceneRequest request;
  request.set_scene_id(id);
  v1::PlaySceneResponse response;
  return scenes_->PlayScene(&context, request, &response);
}

grpc::Status ServerTest::Pause(const std::string& id, v1::SceneInfo* info) {
  grpc::ClientContext context;
  v1::PauseSceneRequest request;
  request.set_scene_id(id);
  v1::PauseSceneResponse response;
  const grpc::Status status = scenes_->PauseScene(&context, request, &response);
  if (info != nullptr) *info = response.scene();
  return status;
}

double ServerTest::Metric(const std::string& name) {
  const std::string text = absl::StrCat("\n", server_->metrics().Text());
  const size_t at = text.find(absl::StrCat("\n", name, " "));
  return at == std::string::npos ? -1 : std::strtod(text.c_str() + at + 1 + name.size(), nullptr);
}

}  // namespace palpate::server
