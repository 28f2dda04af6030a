#include <gmock/gmock.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "clients/cpp/topology_mirror.h"
#include "palpate/v1/edit.grpc.pb.h"
#include "tests/server/core/server_fixture.h"

namespace palpate::server::edit_service_test {
namespace {

using ::testing::HasSubstr;

/// TinyScene, finer.
v1::SceneSpec Tissue() {
  v1::SceneSpec spec = TinyScene();
  spec.mutable_bodies(0)->mutable_generator()->set_edge_length_m(0.025);
  return spec;
}

v1::EditSceneRequest Carve(const std::string& id, double x, double y, double z, double radius_m) {
  v1::EditSceneRequest request;
  request.set_scene_id(id);
  v1::Edit& edit = *request.add_edits();
  edit.set_body("slab");
  v1::BallRegion& ball = *edit.mutable_carve()->mutable_region()->mutable_ball();
  ball.mutable_center_m()->set_x(x);
  ball.mutable_center_m()->set_y(y);
  ball.mutable_center_m()->set_z(z);
  ball.set_radius_m(radius_m);
  return request;
}

class EditServiceTest : public ServerTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    edits_ = v1::EditService::NewStub(NewChannel());
    id_ = CreateScene(false, "a", Tissue());
  }

  grpc::Status Edit(const v1::EditSceneRequest& request, v1::EditSceneResponse* response) {
    grpc::ClientContext context;
    response->Clear();
    return edits_->EditScene(&context, request, response);
  }
  v1::EditSceneResponse MustEdit(const v1::EditSceneRequest& request) {
    v1::EditSceneResponse response;
    const grpc::Status status = Edit(request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  void ExpectRefused(const v1::EditSceneRequest& request, grpc::StatusCode code, const std::string& message) {
    v1::EditSceneResponse response;
    const grpc::Status status = Edit(request, &response);
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(message));
  }

  std::unique_ptr<v1::EditService::Stub> edits_;
  std::string id_;
};

/// One Watch call whose updates are applied to a copy of the arrays.
class Watcher {
 public:
  Watcher(v1::StreamService::Stub& stub, const std::string& id, bool with_volume) {
    v1::WatchRequest request;
    request.set_scene_id(id);
    request.set_max_rate_hz(10000);
    request.set_with_volume(with_volume);
    reader_ = stub.Watch(&context_, request);
  }
  ~Watcher() {
    context_.TryCancel();
    v1::WatchUpdate update;
    while (reader_->Read(&update)) {
    }
    reader_->Finish();
  }
  /// 'k', 'd' or 'f': what came; 0 at the end or if it did not fit.
  char Read() {
    if (!reader_->Read(&update_)) return 0;
    absl::Status status;
    char kind = 'f';
    if (update_.has_keyframe()) {
      kind = 'k';
      status = mirror_.Apply(update_.keyframe());
      if (status.ok()) status = mirror_.Check(update_.keyframe().frame());
    } else if (update_.has_delta()) {
      kind = 'd';
      status = mirror_.Apply(update_.delta());
    } else {
      status = mirror_.Check(update_.frame());
    }
    EXPECT_TRUE(status.ok()) << status;
    return status.ok() ? kind : '\0';
  }
  /// As Read, past frames of versions that are known.
  char ReadChange() {
    char kind = Read();
    while (kind == 'f') kind = Read();
    return kind;
  }
  /// Past frames of earlier steps.
  char ReadStep(uint64_t step) {
    char kind = Read();
    while (kind == 'f' && update_.frame().step() < step) kind = Read();
    return kind;
  }
  const v1::WatchUpdate& update() const { return update_; }
  const client::TopologyMirror& mirror() const { return mirror_; }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::WatchUpdate>> reader_;
  v1::WatchUpdate update_;
  client::TopologyMirror mirror_;
};

TEST_F(EditServiceTest, WhatABudgetRefusesIsToldAndCounted) {
  const uint32_t tets = static_cast<uint32_t>(Get(id_).bodies(0).tet_count());
  v1::EditSceneRequest request;
  request.set_scene_id(id_);
  v1::Edit& edit = *request.add_edits();
  edit.set_body("slab");
  v1::RefineEdit& refine = *edit.mutable_refine();
  refine.mutable_region()->mutable_ball()->set_radius_m(1);
  refine.set_max_edge_m(0.002);
  refine.set_tet_budget(tets + 10);
  const v1::EditOutcome outcome = MustEdit(request).outcomes(0);
  EXPECT_TRUE(outcome.is_refused());
  EXPECT_THAT(outcome.note(), HasSubstr("tets would be needed"));
  EXPECT_EQ(Get(id_).bodies(0).tet_count(), tets);
  EXPECT_EQ(Metric("palpate_edits_refused_total{kind=\"refine\",scene=\"" + id_ + "\"}"), 1);
  EXPECT_EQ(Metric("palpate_edits_refused_total{kind=\"carve\",scene=\"" + id_ + "\"}"), 0);
}

TEST_F(EditServiceTest, ABodyThatCannotBeCutRefusesAndTheSceneGoesOn) {
  v1::SceneSpec spec = Tissue();
  spec.mutable_bodies(0)->set_simulation(v1::SIMULATION_PRECOMPUTED);
  const std::string id = CreateScene(false, "still", spec);
  ExpectRefused(Carve(id, 0, 0, 0.05, 0.03), grpc::StatusCode::FAILED_PRECONDITION, "is pre-computed: its mesh cannot change");
  v1::SceneInfo info;
  ASSERT_TRUE(Step(id, 2, &info).ok()) << "the refusal has failed the scene";
  EXPECT_EQ(info.step(), 2U);
}

TEST_F(EditServiceTest, EditsHoldWhenTheAnswerComes) {
  const v1::BodyInfo before = Get(id_).bodies(0);
  const v1::EditSceneResponse response = MustEdit(Carve(id_, 0, 0, 0.05, 0.03));
  EXPECT_EQ(response.topology_version(), 2U);
  EXPECT_EQ(response.step(), 0U);
  EXPECT_FALSE(response.is_repeat());
  ASSERT_EQ(response.outcomes_size(), 1);
  const v1::EditOutcome& outcome = response.outcomes(0);
  EXPECT_EQ(outcome.body(), "slab");
  EXPECT_GT(outcome.removed_tets_size(), 5);
  EXPECT_GT(outcome.removed_mass_kg(), 0);
  const v1::BodyInfo after = Get(id_).bodies(0);
  EXPECT_EQ(static_cast<int>(after.tet_count()),
            static_cast<int>(before.tet_count()) - outcome.removed_tets_size() + outcome.added_tets_size());
  EXPECT_NEAR(after.mass_kg(), before.mass_kg() - outcome.removed_mass_kg(), 1e-9);
  EXPECT_NEAR(after.mass_kg() / after.volume_m3(), before.mass_kg() / before.volume_m3(), 1e-6);
  v1::SceneInfo info;
  ASSERT_TRUE(Step(id_, 2, &info).ok());
  EXPECT_EQ(info.step(), 2U);

  const std::string labels = "{scene=\"" + id_ + "\"}";
  EXPECT_EQ(Metric("palpate_edits_total{kind=\"carve\",scene=\"" + id_ + "\"}"), 1);
  EXPECT_EQ(Metric("palpate_edits_total{kind=\"incise\",scene=\"" + id_ + "\"}"), 0);
  EXPECT_EQ(Metric("palpate_tets_removed_total" + labels), outcome.removed_tets_size());
  EXPECT_EQ(Metric("palpate_topology_version" + labels), 2);
  EXPECT_EQ(Metric("palpate_edit_seconds_count" + labels), 1);
}

TEST_F(EditServiceTest, ARequestIsPerformedOnce) {
  v1::EditSceneRequest request = Carve(id_, 0, 0, 0.05, 0.03);
  request.set_key("first");
  const v1::EditSceneResponse first = MustEdit(request);
  MustEdit(Carve(id_, 0.05, 0.05, 0.05, 0.03));
  const uint32_t tets = Get(id_).bodies(0).tet_count();
  v1::EditSceneResponse repeat = MustEdit(request);
  EXPECT_TRUE(repeat.is_repeat());
  repeat.set_is_repeat(false);
  EXPECT_EQ(repeat.SerializeAsString(), first.SerializeAsString());
  EXPECT_EQ(Get(id_).bodies(0).tet_count(), tets);
  EXPECT_EQ(Metric("palpate_topology_version{scene=\"" + id_ + "\"}"), 3);
  request.mutable_edits(0)->mutable_carve()->mutable_region()->mutable_ball()->set_radius_m(0.02);
  ExpectRefused(request, grpc::StatusCode::INVALID_ARGUMENT, "key: \"first\" was used for another request");
  // An error is nothing that was done: the same request may succeed later.
  v1::EditSceneRequest later = Carve(id_, -0.05, -0.05, 0.05, 0.03);
  later.set_key("later");
  later.set_expected_topology_version(4);
  ExpectRefused(later, grpc::StatusCode::FAILED_PRECONDITION, "expected_topology_version: 4, but the scene is at version 3");
  MustEdit(Carve(id_, -0.05, 0.05, 0.05, 0.03));
  EXPECT_FALSE(MustEdit(later).is_repeat());
  EXPECT_TRUE(MustEdit(later).is_repeat());
}

TEST_F(EditServiceTest, WhatCannotBeIsRefusedAndNothingIsDone) {
  ExpectRefused(Carve("none", 0, 0, 0, 0.01), grpc::StatusCode::NOT_FOUND, "none");
  ExpectRefused(Carve(id_, 0, 0, 0, -1), grpc::StatusCode::INVALID_ARGUMENT, "edits[0].carve.region.ball.radius_m: -1 is outside (0, 10]");
  v1::EditSceneRequest request = Carve(id_, 0, 0, 0.05, 0.03);
  *request.add_edits() = request.edits(0);
  request.mutable_edits(1)->set_body("liver");
  ExpectRefused(request, grpc::StatusCode::NOT_FOUND, "edits[1].body: the scene has no body \"liver\"");
  request.mutable_edits(1)->set_body("slab");
  request.mutable_edits(1)->mutable_carve()->mutable_region()->set_zone("tumor");
  ExpectRefused(request, grpc::StatusCode::NOT_FOUND, "edits[1]");
  EXPECT_EQ(Metric("palpate_topology_version{scene=\"" + id_ + "\"}"), 1);
  EXPECT_EQ(Get(id_).bodies(0).tet_count(), 320U);
  EXPECT_GE(Metric("palpate_rpc_errors_total{code=\"NOT_FOUND\"}"), 3);
}

TEST_F(EditServiceTest, ReadersGetTheDeltaBeforeTheFirstFrameOfAVersion) {
  Watcher surface(*streams_, id_, false);
  Watcher volume(*streams_, id_, true);
  ASSERT_EQ(surface.Read(), 'k');
  ASSERT_EQ(volume.Read(), 'k');
  const size_t tets = volume.mirror().bodies()[0].tet_count();
  const v1::EditSceneResponse response = MustEdit(Carve(id_, 0.05, 0.05, 0.05, 0.025));
  for (Watcher* watcher : {&surface, &volume}) {
    EXPECT_EQ(watcher->ReadChange(), 'd');
    EXPECT_EQ(watcher->update().delta().to_version(), 2U);
    EXPECT_EQ(watcher->Read(), 'f');
    EXPECT_EQ(watcher->update().frame().step(), 0U);
  }
  EXPECT_EQ(volume.mirror().bodies()[0].tet_count(),
            tets - static_cast<size_t>(response.outcomes(0).removed_tets_size() - response.outcomes(0).added_tets_size()));
  ASSERT_TRUE(Step(id_, 1).ok());
  EXPECT_EQ(surface.ReadStep(1), 'f');
  EXPECT_EQ(surface.update().frame().step(), 1U);
  EXPECT_GE(Metric("palpate_topology_deltas_total{scene=\"" + id_ + "\"}"), 2);

  // One who comes now sees the same.
  Watcher late(*streams_, id_, false);
  ASSERT_EQ(late.Read(), 'k');
  EXPECT_EQ(late.mirror().version(), 2U);
  EXPECT_EQ(late.mirror().bodies()[0].mesh_hash, surface.mirror().bodies()[0].mesh_hash);

  // A reset is a new version that follows from nothing.
  grpc::ClientContext context;
  v1::ResetSceneRequest reset;
  reset.set_scene_id(id_);
  v1::ResetSceneResponse answer;
  ASSERT_TRUE(scenes_->ResetScene(&context, reset, &answer).ok());
  EXPECT_EQ(answer.scene().bodies(0).tet_count(), tets);
  EXPECT_EQ(late.ReadChange(), 'k');
  EXPECT_EQ(late.mirror().version(), 3U);
  EXPECT_EQ(late.mirror().bodies()[0].triangle_count(), 192U);
  EXPECT_GE(Metric("palpate_topology_keyframes_total{scene=\"" + id_ + "\"}"), 1);
}

TEST_F(EditServiceTest, ClientsLearnThatAShellHasLostItsFilling) {
  v1::SceneSpec spec;
  v1::BodySpec& body = *spec.add_bodies();
  body.set_name("slab");  // as Carve has it
  body.mutable_shell()->mutable_sphere()->set_radius_m(0.03);
  body.mutable_shell()->set_edge_length_m(0.01);
  body.set_volume_stiffness_pa(1e5);
  const std::string id = CreateScene(false, "filled", spec);
  ASSERT_EQ(Get(id).bodies_size(), 1);
  EXPECT_FALSE(Get(id).bodies(0).volume_released());
  const v1::EditSceneResponse response = MustEdit(Carve(id, 0, 0, 0.03, 0.012));
  ASSERT_EQ(response.outcomes_size(), 1);
  EXPECT_THAT(response.outcomes(0).note(), HasSubstr("no longer kept"));
  EXPECT_TRUE(Get(id).bodies(0).volume_released());
  grpc::ClientContext context;
  v1::ResetSceneRequest reset;
  reset.set_scene_id(id);
  v1::ResetSceneResponse done;
  ASSERT_TRUE(scenes_->ResetScene(&context, reset, &done).ok());
  EXPECT_FALSE(Get(id).bodies(0).volume_released()) << "filled again";
}

TEST_F(EditServiceTest, APieceThatIsCutOffIsABodyOfItsOwn) {
  Watcher watcher(*streams_, id_, true);
  ASSERT_EQ(watcher.Read(), 'k');
  // A layer across the slab, between the held bottom and the top.
  v1::EditSceneRequest request;
  request.set_scene_id(id_);
  for (int i = 0; i < 5; ++i) {
    v1::Edit& edit = *request.add_edits();
    edit.set_body("slab");
    v1::CapsuleRegion& capsule = *edit.mutable_carve()->mutable_region()->mutable_capsule();
    for (v1::Vec3* end : {capsule.mutable_end0_m(), capsule.mutable_end1_m()}) end->set_y(-0.05 + 0.025 * i);
    capsule.mutable_end0_m()->set_x(-0.06);
    capsule.mutable_end1_m()->set_x(0.06);
    capsule.set_radius_m(0.02);
  }
  const v1::EditSceneResponse response = MustEdit(request);
  std::vector<std::string> pieces;
  for (const v1::EditOutcome& outcome : response.outcomes())
    pieces.insert(pieces.end(), outcome.new_bodies().begin(), outcome.new_bodies().end());
  ASSERT_FALSE(pieces.empty());
  EXPECT_EQ(pieces[0], "slab.1");
  const v1::SceneInfo info = Get(id_);
  ASSERT_EQ(static_cast<size_t>(info.bodies_size()), 1 + pieces.size());
  EXPECT_EQ(info.bodies(1).name(), pieces[0]);
  EXPECT_GT(info.bodies(1).mass_kg(), 0);
  const char kind = watcher.ReadChange();
  EXPECT_TRUE(kind == 'd' || kind == 'k');
  ASSERT_EQ(watcher.mirror().bodies().size(), 1 + pieces.size());
  EXPECT_EQ(watcher.mirror().bodies()[1].parent, "slab");

  // It can be edited, watched and exported by its name.
  v1::ExportSceneRequest request_export;
  request_export.set_scene_id(id_);
  request_export.set_body(pieces[0]);
  for (const v1::ExportFormat format : {v1::EXPORT_FORMAT_OBJ, v1::EXPORT_FORMAT_MSH}) {
    request_export.set_format(format);
    grpc::ClientContext context;
    v1::ExportSceneResponse exported;
    ASSERT_TRUE(scenes_->ExportScene(&context, request_export, &exported).ok());
    if (format == v1::EXPORT_FORMAT_OBJ) {
      const auto vertices = std::count(exported.data().begin(), exported.data().end(), 'v');
      EXPECT_EQ(static_cast<uint32_t>(vertices), info.bodies(1).surface_vertex_count()) << "free places are left out";
    }
  }
  v1::EditSceneRequest again = Carve(id_, 0, 0, 0, 0.2);
  again.mutable_edits(0)->set_body(pieces[0]);
  EXPECT_GT(MustEdit(again).outcomes(0).removed_tets_size(), 0);
}

}  // namespace
}  // namespace palpate::server::edit_service_test
