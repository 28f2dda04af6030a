#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>

#include <cmath>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/mesh/mesh_io.h"
#include "tests/server/core/server_fixture.h"

namespace palpate::server::scene_service_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SceneServiceTest : public ServerTest {
 protected:
  grpc::Status TryCreate(const v1::CreateSceneRequest& request, v1::SceneInfo* info = nullptr) {
    grpc::ClientContext context;
    v1::CreateSceneResponse response;
    const grpc::Status status = scenes_->CreateScene(&context, request, &response);
    if (info != nullptr) *info = response.scene();
    return status;
  }
};

TEST_F(SceneServiceTest, ScenesAreCreatedListedDescribedAndDeleted) {
  v1::CreateSceneRequest request;
  *request.mutable_spec() = TinyScene();
  v1::SceneInfo info;
  ASSERT_TRUE(TryCreate(request, &info).ok());
  EXPECT_FALSE(info.scene_id().empty());
  EXPECT_EQ(info.name(), "tiny");
  EXPECT_EQ(info.state(), v1::RUN_STATE_PAUSED);
  EXPECT_EQ(info.rate().mode(), v1::RATE_MODE_REAL_TIME);
  EXPECT_EQ(info.rate().speed(), 1);
  EXPECT_EQ(info.step(), 0U);
  EXPECT_THAT(info.tools(), ElementsAre("probe", "second"));
  ASSERT_EQ(info.bodies_size(), 1);
  EXPECT_EQ(info.bodies(0).vertex_count(), 27U);
  EXPECT_EQ(info.bodies(0).tet_count(), 40U);
  EXPECT_EQ(info.bodies(0).fixed_vertex_count(), 9U);
  EXPECT_NEAR(info.bodies(0).volume_m3(), 0.001, 1e-9);
  EXPECT_NEAR(info.bodies(0).mass_kg(), 1.06, 1e-6);
  EXPECT_GT(info.device_bytes(), 0U);

  EXPECT_EQ(CreateScene(false, "second-scene"), "second-scene");
  grpc::ClientContext list_context;
  v1::ListScenesResponse list;
  ASSERT_TRUE(scenes_->ListScenes(&list_context, {}, &list).ok());
  EXPECT_EQ(list.scenes_size(), 2);

  grpc::ClientContext get_context;
  v1::GetSceneRequest get;
  get.set_scene_id("second-scene");
  v1::GetSceneResponse got;
  ASSERT_TRUE(scenes_->GetScene(&get_context, get, &got).ok());
  EXPECT_EQ(got.spec().SerializeAsString(), TinyScene().SerializeAsString());

  EXPECT_TRUE(Delete("second-scene").ok());
  EXPECT_EQ(Delete("second-scene").error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Step("second-scene", 1).error_code(), grpc::StatusCode::NOT_FOUND);
  // The id is free again, and so are its metrics.
  EXPECT_EQ(CreateScene(false, "second-scene"), "second-scene");
  EXPECT_EQ(Metric("palpate_steps_total{scene=\"second-scene\"}"), 0);
  EXPECT_EQ(Metric("palpate_scenes{state=\"paused\"}"), 2);
}

TEST_F(SceneServiceTest, RefusalsNameWhatIsWrong) {
  v1::CreateSceneRequest request;
  grpc::Status status = TryCreate(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("bodies"));
  *request.mutable_spec() = TinyScene();
  request.mutable_spec()->set_dt_s(std::nan(""));
  EXPECT_EQ(TryCreate(request).error_message(), "dt_s: nan is outside [0.0001, 0.1]");
  *request.mutable_spec() = TinyScene();
  for (const std::string& id : {std::string("Upper"), std::string("a b"), std::string("a/b"), std::string(41, 'a')}) {
    request.set_scene_id(id);
    status = TryCreate(request);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << id;
    EXPECT_THAT(status.error_message(), HasSubstr("scene_id"));
  }
  request.set_scene_id("twice");
  EXPECT_TRUE(TryCreate(request).ok());
  EXPECT_EQ(TryCreate(request).error_code(), grpc::StatusCode::ALREADY_EXISTS);
  request.set_scene_id("");
  request.mutable_rate()->set_speed(1000);
  EXPECT_EQ(TryCreate(request).error_message(), "rate.speed: 1000 is outside [0.01, 100]");
  request.mutable_rate()->Clear();
  request.mutable_rate()->set_mode(static_cast<v1::RateMode>(9));
  EXPECT_THAT(TryCreate(request).error_message(), HasSubstr("rate.mode: 9"));
  EXPECT_GE(Metric("palpate_rpc_errors_total{code=\"INVALID_ARGUMENT\"}"), 8);
  // A refusal leaves nothing behind.
  EXPECT_EQ(server_->manager().List().size(), 1U);
}

TEST_F(SceneServiceTest, ScenesStepPlayPauseAndReset) {
  const std::string id = CreateScene();
  v1::SceneInfo info;
  ASSERT_TRUE(Step(id, 3, &info).ok());
  EXPECT_EQ(info.step(), 3U);
  EXPECT_NEAR(info.sim_time_s(), 3.0 / 120, 1e-9);
  EXPECT_EQ(info.state(), v1::RUN_STATE_PAUSED);
  const uint64_t hash_after_3 = info.state_hash();
  for (const uint32_t count : {0U, 100001U}) {
    const grpc::Status status = Step(id, count);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr(absl::StrCat("count: ", count, " is outside [1, 100000]")));
  }

  ASSERT_TRUE(SetRate(id, v1::RATE_MODE_AS_FAST_AS_POSSIBLE).ok());
  ASSERT_TRUE(Play(id).ok());
  ASSERT_TRUE(Play(id).ok());
  EXPECT_EQ(Step(id, 1).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_TRUE(Eventually([&] { return Get(id).step() > 20; }));
  ASSERT_TRUE(Pause(id, &info).ok());
  EXPECT_EQ(info.state(), v1::RUN_STATE_PAUSED);
  const uint64_t paused_at = info.step();
  ASSERT_TRUE(Pause(id).ok());
  // While another scene steps on.
  const std::string other = CreateScene(true);
  EXPECT_TRUE(Eventually([&] { return Get(other).step() > 5; }));
  EXPECT_EQ(Get(id).step(), paused_at);

  grpc::ClientContext context;
  v1::ResetSceneRequest reset;
  reset.set_scene_id(id);
  v1::ResetSceneResponse response;
  ASSERT_TRUE(scenes_->ResetScene(&context, reset, &response).ok());
  EXPECT_EQ(response.scene().step(), 0U);
  EXPECT_EQ(response.scene().rate().mode(), v1::RATE_MODE_AS_FAST_AS_POSSIBLE);
  // The same steps again give the same bits.
  ASSERT_TRUE(Step(id, 3, &info).ok());
  EXPECT_EQ(info.state_hash(), hash_after_3);
}

TEST_F(SceneServiceTest, AResetOfAPlayingScenePlaysOn) {
  const std::string id = CreateScene(true);
  ASSERT_TRUE(Eventually([&] { return Get(id).step() > 2; }));
  grpc::ClientContext context;
  v1::ResetSceneRequest reset;
  reset.set_scene_id(id);
  v1::ResetSceneResponse response;
  ASSERT_TRUE(scenes_->ResetScene(&context, reset, &response).ok());
  EXPECT_EQ(response.scene().state(), v1::RUN_STATE_PLAYING);
  EXPECT_TRUE(Eventually([&] { return Get(id).step() > 2; }));
}

TEST_F(SceneServiceTest, AResetSaysWhoAskedForIt) {
  const std::string id = CreateScene(false);
  EXPECT_EQ(Get(id).reset_by(), "");
  EXPECT_EQ(Get(id).resets(), 0U);
  const auto reset = [&](const std::string& client_name) {
    grpc::ClientContext context;
    v1::ResetSceneRequest request;
    request.set_scene_id(id);
    request.set_client_name(client_name);
    v1::ResetSceneResponse response;
    return scenes_->ResetScene(&context, request, &response);
  };
  ASSERT_TRUE(reset("Station 3, Dr. H\xc3\xa5kansson").ok());
  EXPECT_EQ(Get(id).reset_by(), "Station 3, Dr. H\xc3\xa5kansson");
  EXPECT_EQ(Get(id).resets(), 1U);
  // Who gives no name is told of by address.
  ASSERT_TRUE(reset("").ok());
  EXPECT_THAT(Get(id).reset_by(), HasSubstr("127.0.0.1"));
  EXPECT_EQ(Get(id).resets(), 2U);
  for (const std::string& bad : {std::string(65, 'a'), std::string("a\nb")}) {
    const grpc::Status refused = reset(bad);
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(refused.error_message(), HasSubstr("client_name"));
  }
  EXPECT_EQ(Get(id).resets(), 2U);
}

TEST_F(SceneServiceTest, RealTimeKeepsToTheClockAndIsNotAhead) {
  const std::string id = CreateScene();
  ASSERT_TRUE(Step(id, 1).ok());  // the first step may compile kernels
  ASSERT_TRUE(SetRate(id, v1::RATE_MODE_REAL_TIME, 0.5).ok());
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(Play(id).ok());
  EXPECT_TRUE(Eventually([&] { return Get(id).step() > 30; }));
  v1::SceneInfo info;
  ASSERT_TRUE(Pause(id, &info).ok());
  const double elapsed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  // Never faster than asked for: 60 steps per second, and one at once.
  EXPECT_LE(static_cast<double>(info.step() - 1), elapsed_s * 60 + 1);
}

TEST_F(SceneServiceTest, ASceneThatCannotKeepUpCountsOverrunsInsteadOfHidingThem) {
  v1::SceneSpec spec = TinyScene();
  spec.set_dt_s(1e-4);
  spec.mutable_solver()->set_iterations(200);
  const std::string id = CreateScene(false, "", spec);
  ASSERT_TRUE(SetRate(id, v1::RATE_MODE_REAL_TIME, 100).ok());  // a million steps per second
  ASSERT_TRUE(Play(id).ok());
  EXPECT_TRUE(Eventually([&] { return Get(id).overruns() >= 10; }));
  v1::SceneInfo info;
  ASSERT_TRUE(Pause(id, &info).ok());
  EXPECT_GT(Metric("palpate_schedule_skipped_seconds_total{scene=\"" + id + "\"}"), 0);
  EXPECT_GE(Metric("palpate_overruns_total{scene=\"" + id + "\"}"), 10);
  // The simulated time is that of the steps that were done, no more.
  EXPECT_NEAR(info.sim_time_s(), static_cast<double>(info.step()) * 1e-4, 1e-9);
}

TEST_F(SceneServiceTest, PauseInterruptsALongStepRequest) {
  const std::string id = CreateScene();
  grpc::Status stepped;
  std::thread stepper([&] { stepped = Step(id, 100000); });
  EXPECT_TRUE(Eventually([&] { return Get(id).step() > 2; }));
  v1::SceneInfo info;
  ASSERT_TRUE(Pause(id, &info).ok());
  stepper.join();
  EXPECT_EQ(stepped.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_THAT(stepped.error_message(), HasSubstr("of 100000 steps"));
  EXPECT_LT(info.step(), 100000U);
}

TEST_F(SceneServiceTest, ACancelledStepRequestStopsStepping) {
  const std::string id = CreateScene();
  ASSERT_TRUE(Step(id, 1).ok());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  v1::StepSceneRequest request;
  request.set_scene_id(id);
  request.set_count(100000);
  v1::StepSceneResponse response;
  EXPECT_EQ(scenes_->StepScene(&context, request, &response).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  // The scene takes new work: it does not grind through the rest first.
  v1::SceneInfo info;
  ASSERT_TRUE(Step(id, 1, &info).ok());
  EXPECT_LT(info.step(), 100000U);
}

TEST_F(SceneServiceTest, TwoScenesAtOnceGiveTheBitsOfOneAlone) {
  const std::string alone = CreateScene();
  v1::SceneInfo reference;
  ASSERT_TRUE(Step(alone, 40, &reference).ok());
  const std::string a = CreateScene();
  const std::string b = CreateScene();
  v1::SceneInfo info_a;
  v1::SceneInfo info_b;
  std::thread thread([&] { EXPECT_TRUE(Step(a, 40, &info_a).ok()); });
  EXPECT_TRUE(Step(b, 40, &info_b).ok());
  thread.join();
  EXPECT_EQ(info_a.state_hash(), reference.state_hash());
  EXPECT_EQ(info_b.state_hash(), reference.state_hash());
  EXPECT_NE(reference.state_hash(), Get(CreateScene()).state_hash());
}

TEST_F(SceneServiceTest, ExportGivesTheCurrentState) {
  const std::string id = CreateScene();
  ASSERT_TRUE(Step(id, 5).ok());
  v1::ExportSceneRequest request;
  request.set_scene_id(id);
  const auto run = [&](v1::ExportFormat format, v1::ExportSceneResponse* response) {
    grpc::ClientContext context;
    request.set_format(format);
    return scenes_->ExportScene(&context, request, response);
  };
  v1::ExportSceneResponse response;
  ASSERT_TRUE(run(v1::EXPORT_FORMAT_OBJ, &response).ok());
  EXPECT_EQ(response.step(), 5U);
  const absl::StatusOr<sim::SurfaceMesh> surface = sim::ParseSurface(response.data(), ".obj", "export");
  ASSERT_TRUE(surface.ok()) << surface.status();
  EXPECT_EQ(surface->vertices.size(), 26U);
  for (const v1::ExportFormat format : {v1::EXPORT_FORMAT_VTK, v1::EXPORT_FORMAT_MSH}) {
    ASSERT_TRUE(run(format, &response).ok());
    const absl::StatusOr<sim::TetMesh> mesh =
        format == v1::EXPORT_FORMAT_VTK ? sim::ParseVtk(response.data(), "export") : sim::ParseMsh(response.data(), "export");
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    EXPECT_EQ(mesh->vertices.size(), 27U);
    EXPECT_EQ(mesh->tets.size(), 40U);
    // It sags under its weight: the top is below where it began.
    double top_m = -1;
    for (const Eigen::Vector3d& p : mesh->vertices) top_m = std::max(top_m, p.z());
    EXPECT_LT(top_m, 0.05);
    EXPECT_GT(top_m, 0.0);
  }
  // What the others hold is told by readers of their own (tests/sim/export).
  for (const auto& [format, begin] : {std::pair(v1::EXPORT_FORMAT_VTU, "<?xml version=\"1.0\"?>\n<VTKFile type=\"UnstructuredGrid\""),
                                      std::pair(v1::EXPORT_FORMAT_VTP, "<?xml version=\"1.0\"?>\n<VTKFile type=\"PolyData\""),
                                      std::pair(v1::EXPORT_FORMAT_GLB, "glTF\x02")}) {
    const grpc::Status status = run(format, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.step(), 5U);
    EXPECT_THAT(response.data(), ::testing::StartsWith(begin));
  }
  ASSERT_TRUE(run(v1::EXPORT_FORMAT_VTU, &response).ok());
  for (const char* text : {"NumberOfPoints=\"27\" NumberOfCells=\"40\"", "Name=\"displacement\"", "Name=\"velocity\"", "Name=\"zone\""}) {
    EXPECT_THAT(response.data(), ::testing::HasSubstr(text));
  }
  EXPECT_EQ(run(static_cast<v1::ExportFormat>(17), &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request.set_body("none");
  EXPECT_EQ(run(v1::EXPORT_FORMAT_OBJ, &response).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(SceneServiceTest, CheckCreatesNothing) {
  grpc::ClientContext context;
  v1::CheckSceneRequest request;
  *request.mutable_spec() = TinyScene();
  v1::CheckSceneResponse response;
  ASSERT_TRUE(scenes_->CheckScene(&context, request, &response).ok());
  EXPECT_EQ(response.bodies(0).tet_count(), 40U);
  EXPECT_GT(response.device_bytes(), 0U);
  EXPECT_GE(response.color_count(), 4U);
  EXPECT_TRUE(server_->manager().List().empty());
  // The estimate without a device agrees with what is then built.
  const v1::SceneInfo built = Get(CreateScene());
  EXPECT_NEAR(static_cast<double>(response.device_bytes()), static_cast<double>(built.device_bytes()),
              0.3 * static_cast<double>(built.device_bytes()));
  grpc::ClientContext bad_context;
  request.mutable_spec()->mutable_bodies(0)->mutable_material()->set_poisson_ratio(0.6);
  EXPECT_THAT(scenes_->CheckScene(&bad_context, request, &response).error_message(), HasSubstr("bodies[0].material.poisson_ratio: 0.6"));
}

TEST_F(SceneServiceTest, GetLeavesInlineMeshesOut) {
  v1::SceneSpec spec;
  v1::TetMeshData& mesh = *spec.add_bodies()->mutable_mesh();
  for (const double x : {0.0, 0.0, 0.0, 0.1, 0.0, 0.0, 0.0, 0.1, 0.0, 0.0, 0.0, 0.1}) mesh.add_vertices_m(x);
  for (const uint32_t v : {0U, 1U, 2U, 3U}) mesh.add_tets(v);
  const std::string id = CreateScene(false, "", spec);
  grpc::ClientContext context;
  v1::GetSceneRequest get;
  get.set_scene_id(id);
  v1::GetSceneResponse got;
  ASSERT_TRUE(scenes_->GetScene(&context, get, &got).ok());
  EXPECT_TRUE(got.spec().bodies(0).has_mesh());
  EXPECT_EQ(got.spec().bodies(0).mesh().vertices_m_size(), 0);
}

TEST_F(SceneServiceTest, ServerInfoSaysWhatRuns) {
  grpc::ClientContext context;
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(scenes_->GetServerInfo(&context, {}, &info).ok());
  EXPECT_FALSE(info.version().empty());
  EXPECT_FALSE(info.commit().empty());
  EXPECT_FALSE(info.device().empty());
  EXPECT_EQ(info.limits().max_scenes(), 16U);
}

TEST_F(SceneServiceTest, GarbageIsAnErrorOfThatCallOnly) {
  const std::string id = CreateScene(true);
  const std::shared_ptr<grpc::Channel> channel = NewChannel();
  grpc::GenericStub stub(channel);
  for (const std::string& bytes : {std::string("\xff\xff\xff\xff"), std::string(1000, '\x0a'), std::string("\x0a\xff\xff\xff\x7f")}) {
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer response;
    grpc::Status status;
    const auto call = stub.PrepareUnaryCall(&context, "/palpate.v1.SceneService/CreateScene", request, &queue);
    call->StartCall();
    call->Finish(&response, &status, &queue);
    void* tag = nullptr;
    bool ok = false;
    ASSERT_TRUE(queue.Next(&tag, &ok));
    EXPECT_FALSE(status.ok());
    queue.Shutdown();
    while (queue.Next(&tag, &ok)) {
    }
  }
  const uint64_t step = Get(id).step();
  EXPECT_TRUE(Eventually([&] { return Get(id).step() > step; }));
}

class LimitedServerTest : public SceneServiceTest {
 protected:
  ServerOptions Options() override {
    ServerOptions options = ServerTest::Options();
    options.limits.max_scenes = 2;
    options.limits.scene.max_bodies_per_scene = 1;
    options.limits.scene.max_tets_per_scene = 100;
    options.limits.max_message_bytes = 64 * 1024;
    options.limits.max_streams = 1;
    return options;
  }
};

TEST_F(LimitedServerTest, AFullServerSaysWhichLimit) {
  v1::CreateSceneRequest request;
  *request.mutable_spec() = TinyScene();
  const auto expect_exhausted = [&](const std::string& text) {
    const grpc::Status status = TryCreate(request);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(text));
  };
  *request.mutable_spec()->add_bodies() = request.spec().bodies(0);
  request.mutable_spec()->mutable_bodies(1)->set_name("other");
  expect_exhausted("max_bodies_per_scene = 1");
  *request.mutable_spec() = TinyScene();
  request.mutable_spec()->mutable_bodies(0)->mutable_generator()->set_edge_length_m(0.03);
  expect_exhausted("max_tets_per_scene = 100");
  const std::string id = CreateScene(false, "a");
  CreateScene(false, "b");
  *request.mutable_spec() = TinyScene();
  expect_exhausted("max_scenes = 2");
  ASSERT_TRUE(Delete("b").ok());
  CreateScene(false, "b");

  // A message above the limit never reaches the scenes.
  v1::TetMeshData& mesh = *request.mutable_spec()->mutable_bodies(0)->mutable_mesh();
  for (int i = 0; i < 100000; ++i) mesh.add_vertices_m(i);
  expect_exhausted("");

  v1::WatchRequest watch;
  watch.set_scene_id(id);
  grpc::ClientContext first_context;
  const auto first = streams_->Watch(&first_context, watch);
  v1::WatchUpdate update;
  ASSERT_TRUE(first->Read(&update));
  grpc::ClientContext second_context;
  const auto second = streams_->Watch(&second_context, watch);
  EXPECT_FALSE(second->Read(&update));
  const grpc::Status status = second->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("max_streams = 1"));
  first_context.TryCancel();
  while (first->Read(&update)) {
  }
  first->Finish();
  // The place is free again.
  EXPECT_TRUE(Eventually([&] {
    grpc::ClientContext context;
    const auto stream = streams_->Watch(&context, watch);
    const bool ok = stream->Read(&update);
    context.TryCancel();
    stream->Finish();
    return ok;
  }));
}

TEST_F(SceneServiceTest, StopWaitsForNothingAndAnswersEverybody) {
  const std::string id = CreateScene();
  grpc::Status stepped;
  std::thread stepper([&] { stepped = Step(id, 100000); });
  EXPECT_TRUE(Eventually([&] { return Get(id).step() > 2; }));
  server_->Stop();
  stepper.join();
  EXPECT_EQ(stepped.error_code(), grpc::StatusCode::UNAVAILABLE) << stepped.error_message();
}

}  // namespace
}  // namespace palpate::server::scene_service_test
