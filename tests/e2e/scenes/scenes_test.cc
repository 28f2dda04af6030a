#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <numbers>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <Eigen/Core>
#include <Eigen/Geometry>
#include <Eigen/SVD>

#include "clients/cli/own_server.h"
#include "clients/cli/scene_file.h"
#include "clients/cpp/connection.h"
#include "clients/cpp/scene_client.h"
#include "clients/cpp/watch_stream.h"
#include "palpate/v1/haptics.grpc.pb.h"
#include "sim/mesh/surface_check.h"
#include "sim/scene/edit_request.h"
#include "sim/scene/scene_spec.h"

namespace palpate::scenes_test {
namespace {

namespace fs = std::filesystem;
using Eigen::Vector3d;

Vector3d ToEigen(const v1::Vec3& v) { return {v.x(), v.y(), v.z()}; }

/// One palpate-server for all tests of the program.
const absl::StatusOr<cli::OwnServer>& Server() {
  static const auto server = cli::OwnServer::Start({.program = PALPATE_SERVER_BINARY, .http = "off"});
  return server;
}

/// A scene of scenes/, paused, advanced one step at a time; the frame of every step is checked.
class SceneRun {
 public:
  /// `tool`: the one to hold, or empty. `change`: what is different from the file, or empty.
  SceneRun(const std::string& name, const std::string& tool, const std::function<void(v1::SceneSpec*)>& change = {})
      : connection_(Server()->connection()), client_(connection_, std::chrono::minutes(5)) {
    const absl::Status status = Init(name, tool, change);
    EXPECT_TRUE(status.ok()) << status;
    is_ready_ = status.ok();
  }

  ~SceneRun() {
    if (is_ready_) {
      for (int b = 0; b < body_count(); ++b) EXPECT_EQ(InvertedTets(b), 0) << "at the end, of " << topology(b).name;
    }
    LetGo();
    if (watch_) {
      watch_->Cancel();
      v1::WatchUpdate update;
      while (watch_->Read(&update)) continue;
      EXPECT_TRUE(absl::IsCancelled(watch_->Finish()));
    }
    if (!scene_id_.empty()) {
      EXPECT_TRUE(client_.Delete(scene_id_).ok());
    }
  }

  bool is_ready() const { return is_ready_; }
  const v1::SceneSpec& spec() const { return spec_; }
  double dt_s() const { return spec_.dt_s(); }
  const v1::Frame& frame() const { return frame_; }
  uint64_t max_contacts() const { return max_contacts_; }
  int body_count() const { return static_cast<int>(watch_->topology().bodies().size()); }
  const std::vector<Vector3d>& positions(int body) const { return positions_[static_cast<size_t>(body)]; }
  /// The arrays of the newest frame.
  const client::TopologyMirror::Body& topology(int body) const { return watch_->topology().bodies()[static_cast<size_t>(body)]; }
  double mass_kg(int body) const {
    double sum = 0;
    for (const double m : masses_[static_cast<size_t>(body)]) sum += m;
    return sum;
  }
  /// None of a shape-matched body: its tets give it mass only, and may turn inside out where it is pressed.
  int InvertedTets(int body) const {
    if (SpecOf(body).simulation() == v1::SIMULATION_SHAPE_MATCHED) return 0;
    int count = 0;
    const std::vector<Vector3d>& x = positions(body);
    for (const client::TopologyMirror::Tet& tet : topology(body).tets) {
      if (tet == client::TopologyMirror::Tet{}) continue;  // free
      if ((x[tet[1]] - x[tet[0]]).cross(x[tet[2]] - x[tet[0]]).dot(x[tet[3]] - x[tet[0]]) < 0) ++count;
    }
    return count;
  }
  Vector3d Center(int body) const {
    Vector3d sum = Vector3d::Zero();
    const auto b = static_cast<size_t>(body);
    for (size_t v = 0; v < masses_[b].size(); ++v) sum += masses_[b][v] * positions_[b][v];
    return sum / mass_kg(body);
  }
  /// Force of contact with other bodies on a body.
  Vector3d SurfaceForce(int body) const {
    Vector3d sum = Vector3d::Zero();
    for (const v1::SurfaceContact& contact : frame_.surface_contacts()) {
      if (contact.body_a() == contact.body_b()) continue;
      if (contact.body_b() == static_cast<uint32_t>(body)) sum += ToEigen(contact.force_n());
      if (contact.body_a() == static_cast<uint32_t>(body)) sum -= ToEigen(contact.force_n());
    }
    return sum;
  }
  int ContactsBetween(uint32_t a, uint32_t b) const {
    int count = 0;
    for (const v1::SurfaceContact& contact : frame_.surface_contacts()) {
      if (std::minmax(contact.body_a(), contact.body_b()) == std::minmax(a, b)) ++count;
    }
    return count;
  }

  /// Lets go of the tool that is held, and takes another one.
  void Take(const std::string& tool) {
    LetGo();
    Attach(tool);
  }

  /// Where the tool shall be for the next steps, how far its jaws shall be open, and whether its pedal shall be down.
  void MoveTool(const Vector3d& tip_m, double jaw_angle_rad = 0, bool pedal = false) {
    v1::OperateRequest request;
    v1::ToolPose& pose = *request.mutable_pose();
    pose.set_sequence(++pose_sequence_);
    pose.mutable_pose()->mutable_position_m()->set_x(tip_m.x());
    pose.mutable_pose()->mutable_position_m()->set_y(tip_m.y());
    pose.mutable_pose()->mutable_position_m()->set_z(tip_m.z());
    *pose.mutable_pose()->mutable_rotation() = rotation_;
    pose.set_jaw_angle_rad(jaw_angle_rad);
    pose.set_pedal(pedal);
    ASSERT_TRUE(operate_->Write(request));
    // Poses go another way than steps; a step that came first would only use the pose one step later.
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
  }

  /// The edits of scenes/edits/, in one request or (`each`) one for each edit with `steps` steps in between. Masses of the bodies
  /// afterwards must be those before without what was removed.
  std::vector<v1::EditOutcome> Edit(const std::string& name, bool each, uint64_t steps = 0) {
    std::vector<v1::EditOutcome> outcomes;
    std::ifstream file("scenes/edits/" + name + ".json");
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    absl::StatusOr<v1::EditSceneRequest> all = scene::ParseEditJson(text, name);
    EXPECT_TRUE(all.ok()) << all.status();
    if (!all.ok()) return outcomes;
    return Perform(*std::move(all), each, steps);
  }
  std::vector<v1::EditOutcome> Perform(const v1::EditSceneRequest& all, bool each = false, uint64_t steps = 0) {
    std::vector<v1::EditOutcome> outcomes;
    double mass_kg = TotalMass();
    for (int i = 0; i < (each ? all.edits_size() : 1); ++i) {
      v1::EditSceneRequest request;
      if (each) {
        *request.add_edits() = all.edits(i);
      } else {
        request = all;
      }
      request.set_scene_id(scene_id_);
      const absl::StatusOr<v1::EditSceneResponse> response = client_.Edit(request);
      EXPECT_TRUE(response.ok()) << response.status();
      if (!response.ok()) return outcomes;
      for (const v1::EditOutcome& outcome : response->outcomes()) {
        mass_kg -= outcome.removed_mass_kg();
        outcomes.push_back(outcome);
      }
      EXPECT_NEAR(TotalMass(), mass_kg, 1e-6 * mass_kg);
      v1::WatchUpdate update;
      while (frame_.topology_version() < response->topology_version()) {
        EXPECT_TRUE(watch_->Read(&update));
        if (update.has_frame()) frame_ = update.frame();
        if (update.has_keyframe()) frame_ = update.keyframe().frame();
      }
      ReadPositions();
      for (uint64_t s = 0; s < steps && !::testing::Test::HasFatalFailure(); ++s) Step();
    }
    return outcomes;
  }
  v1::SceneInfo Info() { return client_.Get(scene_id_)->scene(); }
  /// Of all bodies now, as the server counts it.
  double TotalMass() {
    const absl::StatusOr<v1::GetSceneResponse> scene = client_.Get(scene_id_);
    double sum = 0;
    for (const v1::BodyInfo& body : scene->scene().bodies()) sum += body.mass_kg();
    return sum;
  }

  /// One step, whose frame must be sound: no intersection, no value that is not finite.
  void Step() {
    const absl::StatusOr<v1::SceneInfo> info = client_.Step(scene_id_, 1);
    ASSERT_TRUE(info.ok()) << info.status();
    v1::WatchUpdate update;
    do {
      ASSERT_TRUE(watch_->Read(&update)) << watch_->Finish();
      if (update.has_frame()) frame_.Swap(update.mutable_frame());
    } while (frame_.step() < info->step());
    ASSERT_EQ(frame_.failure(), "");
    ASSERT_NE(frame_.state(), v1::RUN_STATE_FAILED);
    const v1::ContactStats& contact = frame_.stats().contact();
    ASSERT_TRUE(contact.intersections_checked());
    ASSERT_EQ(contact.intersection_count(), 0U) << "step " << frame_.step();
    max_contacts_ = std::max<uint64_t>(max_contacts_, contact.acting_count());
    ReadPositions();
    for (const v1::SurfaceContact& c : frame_.surface_contacts()) CheckContact(c);
  }

  /// Shells may have a border.
  bool IsOpen(int b) const {
    if (SpecOf(b).has_shell()) return true;
    if (!SpecOf(b).nurbs().has_thickness_m()) return false;
    std::set<std::pair<uint32_t, uint32_t>> edges;
    for (const client::TopologyMirror::Triangle& t : topology(b).triangles) {
      for (size_t k = 0; k < 3; ++k) edges.emplace(t[k], t[(k + 1) % 3]);
    }
    return std::ranges::any_of(edges, [&](const auto& edge) { return edges.count({edge.second, edge.first}) == 0; });
  }

  /// Exact arithmetic: no two triangles of all closed surfaces meet except where they share vertices. Independent of the server's own
  /// count, which alone looks at open ones.
  absl::Status CheckNoTriangleMeetsAnother() const {
    sim::SurfaceMesh all;
    for (int b = 0; b < body_count(); ++b) {
      if (IsOpen(b)) continue;
      const auto base = static_cast<uint32_t>(all.vertices.size());
      all.vertices.insert(all.vertices.end(), positions(b).begin(), positions(b).end());
      for (const client::TopologyMirror::Triangle& t : topology(b).triangles) {
        if (t != client::TopologyMirror::kFreeTriangle) all.triangles.push_back({base + t[0], base + t[1], base + t[2]});
      }
    }
    // Open surfaces alone: the server's own count, which Step looks at, has them.
    return all.triangles.empty() ? absl::OkStatus() : sim::CheckClosedSurface(all);
  }

 private:
  absl::Status Init(const std::string& name, const std::string& tool, const std::function<void(v1::SceneSpec*)>& change) {
    std::ifstream file("scenes/" + name + ".json");
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    absl::StatusOr<v1::SceneSpec> spec = scene::ParseSceneJson(text, name);
    if (!spec.ok()) return spec.status();
    spec->mutable_contact()->set_check_intersections(true);
    if (change) change(&*spec);
    if (absl::Status status = cli::InlineMeshFiles("scenes", *spec); !status.ok()) return status;
    v1::CreateSceneRequest create;
    *create.mutable_spec() = *spec;
    absl::StatusOr<v1::SceneInfo> info = client_.Create(create);
    if (!info.ok()) return info.status();
    spec_ = *std::move(spec);
    scene_id_ = info->scene_id();
    v1::WatchRequest watch;
    watch.set_scene_id(scene_id_);
    watch.set_with_volume(true);
    watch.set_max_rate_hz(10000);
    watch_ = std::make_unique<client::WatchStream>(connection_, watch);
    if (!tool.empty()) Attach(tool);
    // The first frames may come before the volume does.
    v1::WatchUpdate update;
    if (!watch_->Read(&update) || !update.has_keyframe()) return absl::UnavailableError("no keyframe");
    frame_ = update.keyframe().frame();
    ReadPositions();
    ComputeMasses();
    return absl::OkStatus();
  }

  void Attach(const std::string& tool) {
    rotation_.Clear();
    rotation_.set_w(1);
    for (const v1::ToolSpec& spec : spec_.tools()) {
      if (spec.name() == tool && spec.rest_pose().has_rotation()) rotation_ = spec.rest_pose().rotation();
    }
    stub_ = v1::HapticService::NewStub(connection_.channel());
    context_ = std::make_unique<grpc::ClientContext>();
    connection_.Prepare(*context_);
    operate_ = stub_->Operate(context_.get());
    v1::OperateRequest request;
    request.mutable_attach()->set_scene_id(scene_id_);
    request.mutable_attach()->set_tool(tool);
    request.mutable_attach()->set_station("scenes_test");
    v1::OperateUpdate update;
    EXPECT_TRUE(operate_->Write(request) && operate_->Read(&update) && update.has_attached());
  }

  void LetGo() {
    if (!operate_) return;
    context_->TryCancel();
    v1::OperateUpdate update;
    while (operate_->Read(&update)) continue;
    operate_->Finish();
    operate_.reset();
  }

  void ReadPositions() {
    positions_.assign(static_cast<size_t>(body_count()), {});
    for (int b = 0; b < body_count(); ++b) {
      const std::string& bytes = frame_.bodies(b).positions();
      ASSERT_EQ(bytes.size(), size_t{12} * topology(b).vertex_count);
      for (size_t at = 0; at < bytes.size(); at += 12) {
        float xyz[3];
        std::memcpy(xyz, bytes.data() + at, 12);
        const Vector3d p(xyz[0], xyz[1], xyz[2]);
        ASSERT_TRUE(p.allFinite()) << "body " << b << ", step " << frame_.step();
        positions_[static_cast<size_t>(b)].push_back(p);
      }
    }
  }

  /// What a body was described by; those of an array have its name with a number, parts that a cut parted others.
  const v1::BodySpec& SpecOf(int body) const {
    const std::string& name = topology(body).name;
    for (const v1::BodySpec& spec : spec_.bodies()) {
      if (spec.name() == name || (spec.has_array() && spec.name() == name.substr(0, name.find_last_not_of("0123456789") + 1))) return spec;
    }
    return spec_.bodies(std::min(body, spec_.bodies_size() - 1));
  }

  // A quarter of each tet's mass to its corners, a third of each triangle's of a shell, in the rest state, which the keyframe holds.
  void ComputeMasses() {
    for (int b = 0; b < body_count(); ++b) {
      std::vector<double>& masses = masses_.emplace_back(positions(b).size(), 0.0);
      const v1::MaterialSpec& material = SpecOf(b).material();
      const double density = material.has_density_kg_per_m3() ? material.density_kg_per_m3() : 1060;
      for (const client::TopologyMirror::Tet& tet : topology(b).tets) {
        const Vector3d& o = positions(b)[tet[0]];
        const double volume_m3 = (positions(b)[tet[1]] - o).cross(positions(b)[tet[2]] - o).dot(positions(b)[tet[3]] - o) / 6;
        for (const uint32_t v : tet) masses[v] += density * volume_m3 / 4;
      }
      if (!SpecOf(b).has_shell()) continue;
      for (const client::TopologyMirror::Triangle& t : topology(b).triangles) {
        const Vector3d& o = positions(b)[t[0]];
        const double area_m2 = (positions(b)[t[1]] - o).cross(positions(b)[t[2]] - o).norm() / 2;
        for (const uint32_t v : t) masses[v] += density * area_m2 * SpecOf(b).shell().thickness_m() / 3;
      }
    }
  }

  void CheckContact(const v1::SurfaceContact& contact) const {
    ASSERT_LT(contact.body_a(), static_cast<uint32_t>(body_count()));
    ASSERT_LT(contact.body_b(), static_cast<uint32_t>(body_count()));
    ASSERT_EQ(contact.vertices_size(), 4);
    const int of_a = contact.kind() == v1::SURFACE_CONTACT_KIND_EDGE_EDGE ? 2 : 1;
    for (int i = 0; i < 4; ++i) {
      ASSERT_LT(contact.vertices(i), positions(static_cast<int>(i < of_a ? contact.body_a() : contact.body_b())).size());
    }
    ASSERT_GE(contact.distance_m(), 0);
    EXPECT_NEAR(ToEigen(contact.normal()).norm(), 1, 1e-3);
    EXPECT_NEAR((ToEigen(contact.point_b_m()) - ToEigen(contact.point_a_m())).norm(), contact.distance_m(), 1e-5);
    EXPECT_GE(ToEigen(contact.force_n()).dot(ToEigen(contact.normal())), 0);  // contacts push
  }

  client::Connection connection_;
  client::SceneClient client_;
  v1::SceneSpec spec_;
  std::string scene_id_;
  std::unique_ptr<client::WatchStream> watch_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<v1::HapticService::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::OperateRequest, v1::OperateUpdate>> operate_;
  v1::Quaternion rotation_;
  uint64_t pose_sequence_ = 0;
  v1::Frame frame_;
  std::vector<std::vector<Vector3d>> positions_;
  std::vector<std::vector<double>> masses_;
  uint64_t max_contacts_ = 0;
  bool is_ready_ = false;
};

class Scenes : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(Server().ok()) << Server().status(); }

  std::unique_ptr<SceneRun> Load(const std::string& name, const std::string& tool = "",
                                 const std::function<void(v1::SceneSpec*)>& change = {}) {
    auto run = std::make_unique<SceneRun>(name, tool, change);
    if (!run->is_ready()) return nullptr;
    EXPECT_TRUE(run->CheckNoTriangleMeetsAnother().ok()) << run->CheckNoTriangleMeetsAnother();
    return run;
  }

  /// Steps until `steps`; the exact check comes every `every` steps.
  void Advance(SceneRun& run, uint64_t steps, uint64_t every, const std::function<void()>& before = {},
               const std::function<void()>& after = {}) {
    while (run.frame().step() < steps) {
      if (before) before();
      ASSERT_NO_FATAL_FAILURE(run.Step());
      if (after) after();
      if (run.frame().step() % every == 0) {
        const absl::Status status = run.CheckNoTriangleMeetsAnother();
        ASSERT_TRUE(status.ok()) << "step " << run.frame().step() << ": " << status;
      }
    }
  }

  void PressAndReleaseTori(uint64_t steps);
  void PullTheKnot(uint64_t steps);
  void FoldTheSheet(uint64_t steps);
  void StirOrgans(uint64_t steps);
  void DropBoxes(uint64_t steps);
  void WalkInADress(uint64_t steps);
  void PokeJellies(uint64_t steps);
  void DropExactBodies(uint64_t steps);
};

void Scenes::PressAndReleaseTori(uint64_t steps) {
  const std::unique_ptr<SceneRun> run = Load("tori");
  ASSERT_NE(run, nullptr);
  constexpr int kUpper = 1;
  const double mass_kg = run->mass_kg(kUpper);
  Vector3d last_m = run->Center(kUpper);
  Vector3d first_velocity = Vector3d::Zero();
  Vector3d velocity = Vector3d::Zero();
  Vector3d impulse_n_s = Vector3d::Zero();
  double largest_n = 0;
  ASSERT_NO_FATAL_FAILURE(Advance(*run, steps, 10, {}, [&] {
    velocity = (run->Center(kUpper) - last_m) / run->dt_s();
    last_m = run->Center(kUpper);
    if (run->frame().step() == 1) first_velocity = velocity;
    const Vector3d force_n = run->SurfaceForce(kUpper);
    impulse_n_s += force_n * run->dt_s();
    largest_n = std::max(largest_n, force_n.norm());
  }));
  EXPECT_NEAR(first_velocity.z(), -0.8, 0.01);
  EXPECT_GT(largest_n, 5);
  EXPECT_GT(run->max_contacts(), 30U);
  // Released: it flies away upwards, touching nothing.
  EXPECT_GT(velocity.z(), 0.1);
  EXPECT_EQ(run->ContactsBetween(0, 1), 0);
  // Nothing else acts on the upper torus: the contact forces are its change of momentum, as far as a step is solved.
  const Vector3d change_n_s = mass_kg * (velocity - first_velocity);
  EXPECT_LT((impulse_n_s - change_n_s).norm(), 0.15 * change_n_s.norm())
      << impulse_n_s.transpose() << " against " << change_n_s.transpose();
}

TEST_F(Scenes, ToriArePressedAndReleased) { PressAndReleaseTori(60); }
TEST_F(Scenes, SlowToriArePressedForTheFullLength) { PressAndReleaseTori(240); }

void Scenes::PullTheKnot(uint64_t steps) {
  const std::unique_ptr<SceneRun> run = Load("knot");
  ASSERT_NE(run, nullptr);
  // The extent of the middle fifth of the rope, in which the knot is: its vertices are numbered along the rope.
  const auto loop_m = [&]() -> Vector3d {
    Eigen::AlignedBox3d box;
    const std::vector<Vector3d>& p = run->positions(0);
    for (size_t v = p.size() / 4; v < p.size() * 3 / 4; ++v) box.extend(p[v]);
    return box.sizes();
  };
  const Vector3d before_m = loop_m();
  const double span_before_m = run->positions(0).back().x() - run->positions(0).front().x();
  ASSERT_NO_FATAL_FAILURE(Advance(*run, steps, 10));
  const double span_m = run->positions(0).back().x() - run->positions(0).front().x();
  const double pulled_s = std::min(1.5, static_cast<double>(steps) * run->dt_s());
  EXPECT_NEAR(span_m, span_before_m + 2 * 0.12 * pulled_s, 1e-4);  // the ends go where they are driven
  EXPECT_LT(loop_m().y(), before_m.y());                           // the loop shrinks
  if (pulled_s == 1.5) {
    // Tight: the rope holds itself, and no strand has passed through another, or the knot would be gone and the rope straight.
    EXPECT_GT(run->ContactsBetween(0, 0), 10);
    EXPECT_GT(loop_m().y(), 3 * 0.011);
  }
}

// After half as many steps the loop is as wide as before: the pull has to come to it along the rope.
TEST_F(Scenes, TheKnotIsPulled) { PullTheKnot(120); }
TEST_F(Scenes, SlowTheKnotIsPulledForTheFullLength) { PullTheKnot(240); }

void Scenes::FoldTheSheet(uint64_t steps) {
  const std::unique_ptr<SceneRun> run = Load("sheet");
  ASSERT_NE(run, nullptr);
  constexpr uint32_t kSheet = 0;
  constexpr uint32_t kBall = 1;
  int with_ball = 0;
  int with_itself = 0;
  ASSERT_NO_FATAL_FAILURE(Advance(*run, steps, 10, {}, [&] {
    with_ball = std::max(with_ball, run->ContactsBetween(kSheet, kBall));
    with_itself = std::max(with_itself, run->ContactsBetween(kSheet, kSheet));
    for (int b = 0; b < 2; ++b) {
      for (const Vector3d& p : run->positions(b)) ASSERT_GT(p.z(), -1e-4) << "below the table";
    }
  }));
  EXPECT_GT(with_ball, 3);
  if (steps >= 240) {
    EXPECT_GT(with_itself, 10);
    // The ball lies between the two halves of the sheet.
    const Vector3d ball_m = run->Center(kBall);
    bool is_covered = false;
    for (const Vector3d& p : run->positions(kSheet)) {
      if ((p - ball_m).head<2>().norm() < 0.01 && p.z() > ball_m.z()) is_covered = true;
    }
    EXPECT_TRUE(is_covered);
  }
}

TEST_F(Scenes, TheSheetFolds) { FoldTheSheet(60); }
TEST_F(Scenes, SlowTheSheetFoldsForTheFullLength) { FoldTheSheet(300); }

void Scenes::StirOrgans(uint64_t steps) {
  const std::unique_ptr<SceneRun> run = Load("organs", "stirrer");
  ASSERT_NE(run, nullptr);
  double largest_tool_n = 0;
  bool organs_touch = false;
  ASSERT_NO_FATAL_FAILURE(Advance(
      *run, steps, 10,
      [&] {
        // Down beside the kidneys, then around.
        const double t_s = static_cast<double>(run->frame().step()) * run->dt_s();
        const double angle = -2.5 * std::max(0.0, t_s - 0.4) - 0.6;
        run->MoveTool({0.06 * std::cos(angle), 0.045 * std::sin(angle), 0.26 - 0.21 * std::min(1.0, t_s / 0.4)});
      },
      [&] {
        largest_tool_n = std::max(largest_tool_n, ToEigen(run->frame().tools(0).force_n()).norm());
        for (uint32_t other : {1U, 2U}) organs_touch = organs_touch || run->ContactsBetween(0, other) > 0;
        for (int b = 0; b < 3; ++b) {
          for (const Vector3d& p : run->positions(b)) {
            ASSERT_LT(std::abs(p.x()), 0.1255);
            ASSERT_LT(std::abs(p.y()), 0.0955);
            ASSERT_GT(p.z(), -5e-4);
          }
        }
      }));
  EXPECT_TRUE(organs_touch);
  EXPECT_GT(largest_tool_n, 0.1);
}

TEST_F(Scenes, OrgansAreStirred) { StirOrgans(90); }
TEST_F(Scenes, SlowOrgansAreStirredForTheFullLength) { StirOrgans(480); }

void Scenes::DropBoxes(uint64_t steps) {
  const std::unique_ptr<SceneRun> run = Load("boxes");
  ASSERT_NE(run, nullptr);
  constexpr int kWalls = 5;
  ASSERT_EQ(run->body_count(), kWalls + 512);
  const std::vector<Vector3d> floor = run->positions(0);
  std::vector<double> size_m;  // of each body: two vertices far apart
  const auto span_m = [&](int b) { return (run->positions(b).front() - run->positions(b).back()).norm(); };
  for (int b = 0; b < run->body_count(); ++b) size_m.push_back(span_m(b));
  ASSERT_NO_FATAL_FAILURE(Advance(*run, steps, 20));
  EXPECT_EQ(run->positions(0), floor) << "static bodies stay";
  EXPECT_GT(run->max_contacts(), steps >= 240 ? 1000U : 50U);
  for (int b = kWalls; b < run->body_count(); ++b) {
    EXPECT_NEAR(span_m(b), size_m[static_cast<size_t>(b)], 2e-5) << "rigid";
    const Vector3d center = run->Center(b);
    ASSERT_LT(center.head<2>().cwiseAbs().maxCoeff(), center.z() > 0.145 ? 0.321 : 0.3)
        << run->topology(b).name << ": in the tray or on a wall";
    ASSERT_GT(center.z(), 0.009) << run->topology(b).name;
    if (steps >= 240) {
      ASSERT_LT(center.z(), 0.25) << "has fallen";
      // Each is carried by what it lies on: none hangs in the air.
      const double weight_n = 9.81 * run->mass_kg(b);
      ASSERT_NEAR(run->SurfaceForce(b).z(), weight_n, 0.25 * weight_n) << run->topology(b).name << " at " << center.transpose();
    }
  }
}

TEST_F(Scenes, RigidBodiesAreDropped) { DropBoxes(40); }
TEST_F(Scenes, SlowRigidBodiesAreDroppedForTheFullLength) { DropBoxes(300); }

TEST_F(Scenes, GauzeIsLaidOnALiverAndDabbed) {
  const std::unique_ptr<SceneRun> run = Load("gauze", "probe");
  ASSERT_NE(run, nullptr);
  const double weight_n = 9.81 * run->mass_kg(1);
  EXPECT_NEAR(weight_n, 9.81 * 250 * 0.0005 * 0.09 * 0.07, 1e-3 * weight_n);
  ASSERT_NO_FATAL_FAILURE(Advance(*run, 60, 20));
  EXPECT_GT(run->ContactsBetween(0, 1), 10) << "it lies on the liver";
  EXPECT_LT(run->Center(1).z(), 0.045);
  EXPECT_GT(run->Center(1).z(), 0.02);
  double largest_n = 0;
  const auto dab = [&] {
    const double t = static_cast<double>(run->frame().step() - 60) / 30;
    run->MoveTool({-0.04, -0.01, 0.11 - 0.075 * std::sin(t * std::numbers::pi / 2)});
  };
  ASSERT_NO_FATAL_FAILURE(Advance(*run, 90, 30, dab, [&] {
    for (const v1::ToolState& tool : run->frame().tools()) largest_n = std::max(largest_n, ToEigen(tool.force_n()).norm());
  }));
  EXPECT_GT(largest_n, 0.05) << "the probe feels it and what is under it";
}

/// The body of a name.
int BodyNamed(const SceneRun& run, const std::string& name) {
  for (int b = 0; b < run.body_count(); ++b) {
    if (run.topology(b).name == name) return b;
  }
  ADD_FAILURE() << "no body " << name;
  return 0;
}

// Breath takes the liver towards the feet and back, period by period, and a retractor that stands still feels it.
TEST_F(Scenes, BreathingMovesALiver) {
  const std::unique_ptr<SceneRun> run = Load("breathing", "retractor");
  ASSERT_NE(run, nullptr);
  constexpr int kPeriod = 480;  // steps
  const std::vector<Vector3d> rest = run->positions(0);
  const auto at_diaphragm = [&](size_t v) { return rest[v].y() > 0.046; };
  std::vector<Vector3d> inhaled, exhaled;
  std::array<double, 2> pressed_n{};  // while it is out, and while it is in
  const auto hold = [&] { run->MoveTool({-0.05, -0.02, std::max(0.036, 0.09 - 0.001 * static_cast<double>(run->frame().step()))}); };
  for (int period = 0; period < 2; ++period) {
    for (int i = 1; i <= kPeriod; ++i) {
      hold();
      ASSERT_NO_FATAL_FAILURE(run->Step());
      const bool is_in = i == 210, is_out = i == 440;
      if (!is_in && !is_out) continue;
      ASSERT_EQ(run->frame().tools_size(), 1);
      pressed_n[is_in ? 1 : 0] = run->frame().tools(0).force_n().z();
      (is_in ? inhaled : exhaled) = run->positions(0);
    }
  }
  size_t moved = 0, rests = 0;
  for (size_t v = 0; v < rest.size(); ++v) {
    if (at_diaphragm(v)) {
      ++moved;
      EXPECT_LT((inhaled[v] - rest[v] - Vector3d(0, -0.012, 0.0015)).norm(), 2e-4);
      EXPECT_LT((exhaled[v] - rest[v]).norm(), 2e-4);
    }
    if (rest[v].y() < 0.014 && rest[v].z() < -0.031) {
      ++rests;
      EXPECT_LT((inhaled[v] - rest[v]).norm(), 1e-6) << "the spine holds it";
    }
  }
  EXPECT_GT(moved, 10U);
  EXPECT_GT(rests, 2U);
  EXPECT_GT(std::abs(pressed_n[0]), 0.1) << "the retractor presses on it";
  EXPECT_GT(std::abs(pressed_n[1] - pressed_n[0]), 0.02) << "and feels its breath";
}

// It hangs on the shoulders, swings with the legs, and is never passed through.
void Scenes::WalkInADress(uint64_t steps) {
  const std::unique_ptr<SceneRun> run = Load("dress", "");
  ASSERT_NE(run, nullptr);
  const int figure = BodyNamed(*run, "figure"), dress = BodyNamed(*run, "dress");
  const auto lowest_of = [&](int body) {
    double lowest_m = 3;
    for (const Vector3d& p : run->positions(body)) lowest_m = std::min(lowest_m, p.z());
    return lowest_m;
  };
  const double hem_m = lowest_of(dress);
  double foremost_m = 0, rearmost_m = 0;
  ASSERT_NO_FATAL_FAILURE(Advance(
      *run, steps, 30, [] {},
      [&] {
        double y_m = 0;
        size_t count = 0;
        for (const Vector3d& p : run->positions(figure)) {
          if (p.z() > 0.15 || p.x() < 0) continue;  // the left foot and ankle
          y_m += p.y();
          ++count;
        }
        if (count == 0) return;
        foremost_m = std::min(foremost_m, y_m / static_cast<double>(count));
        rearmost_m = std::max(rearmost_m, y_m / static_cast<double>(count));
        ASSERT_GT(lowest_of(dress), hem_m - 0.1) << "it hangs on the figure";
      }));
  EXPECT_LT(foremost_m, -0.15) << "it walks";
  EXPECT_GT(rearmost_m, 0.15);
  EXPECT_GT(run->ContactsBetween(figure, dress), 50);
  // The shoulders carry it: what the figure gives the dress is its weight, but for what swings.
  EXPECT_NEAR(run->SurfaceForce(dress).z(), 9.81 * run->mass_kg(dress), 0.6 * 9.81 * run->mass_kg(dress));
}

TEST_F(Scenes, ADressIsWornByAWalkingFigure) { WalkInADress(210); }
TEST_F(Scenes, SlowADressIsWornInWindForTheFullLength) { WalkInADress(420); }

TEST_F(Scenes, AChainHoldsAWeight) {
  const std::unique_ptr<SceneRun> run = Load("chain", "");
  ASSERT_NE(run, nullptr);
  const int weight = BodyNamed(*run, "weight");
  double lowest = 1;
  for (int i = 0; i < 120; ++i) {
    ASSERT_NO_FATAL_FAILURE(run->Step());
    ASSERT_EQ(run->frame().joints_size(), 51);
    for (const v1::JointState& joint : run->frame().joints()) ASSERT_LT(joint.gap_m(), 2e-5) << "step " << i;
    lowest = std::min(lowest, run->Center(weight).z());
  }
  EXPECT_GT(run->mass_kg(weight), 99 * run->mass_kg(0));
  EXPECT_LT(lowest, -0.2) << "it swings down";
  EXPECT_GT(lowest, 0.6 - 1.04) << "and no farther than the chain is long";
}

TEST_F(Scenes, ABridgeCarriesCrates) {
  const std::unique_ptr<SceneRun> run = Load("bridge", "");
  ASSERT_NE(run, nullptr);
  const int crate = BodyNamed(*run, "crate0");
  for (int i = 0; i < 200; ++i) {
    ASSERT_NO_FATAL_FAILURE(run->Step());
    // Where crates strike, planks are cut short at their planes, and joints give.
    for (const v1::JointState& joint : run->frame().joints()) ASSERT_LT(joint.gap_m(), i < 160 ? 0.02 : 1e-4) << "step " << i;
  }
  double carried_n = 0;
  for (int b = 0; b < 3; ++b) {
    EXPECT_GT(run->Center(crate + b).z(), 0.2) << "on the bridge";
    carried_n += run->SurfaceForce(crate + b).z();
  }
  EXPECT_GT(carried_n, 0) << "they lie on planks";
  // Forces on B, the planks: the left hinge and both ropes carry all.
  const auto& joints = run->frame().joints();
  const double held_n = joints[0].force_n().z() + joints[60].force_n().z() + joints[61].force_n().z();
  EXPECT_GT(held_n, 0);
  EXPECT_GT(joints[60].effort(), 0) << "a rope pulls";
}

TEST_F(Scenes, ACradleHandsItsSwingOn) {
  const std::unique_ptr<SceneRun> run = Load("cradle", "");
  ASSERT_NE(run, nullptr);
  const int first = BodyNamed(*run, "ball0");
  const auto height = [&](int ball) {
    double sum = 0;
    const std::vector<Vector3d> positions = run->positions(first + ball);
    for (const Vector3d& p : positions) sum += p.z();
    return sum / static_cast<double>(positions.size());
  };
  const double dropped_m = height(0), hangs_m = height(4);
  double last_m = hangs_m, middle_m = hangs_m, back_m = hangs_m;
  for (int i = 0; i < 130; ++i) {
    ASSERT_NO_FATAL_FAILURE(run->Step());
    for (const v1::JointState& string : run->frame().joints()) ASSERT_LT(string.gap_m(), 1e-4) << "step " << i;
    last_m = std::max(last_m, height(4));
    for (const int ball : {1, 2, 3}) middle_m = std::max(middle_m, height(ball));
    if (i > 100) back_m = std::max(back_m, height(0));
  }
  const double fell_m = dropped_m - hangs_m;
  EXPECT_GT(last_m - hangs_m, 0.85 * fell_m);
  EXPECT_LT(middle_m - hangs_m, 0.1 * fell_m);
  EXPECT_GT(back_m - hangs_m, 0.7 * fell_m) << "and back";
  EXPECT_LT(back_m - hangs_m, 1.01 * fell_m);
}

TEST_F(Scenes, WindMovesWhatIsLight) {
  const std::unique_ptr<SceneRun> run = Load("wind", "");
  ASSERT_NE(run, nullptr);
  const int flag = BodyNamed(*run, "flag"), ball = BodyNamed(*run, "ball");
  const double hangs_y = run->Center(flag).y(), hangs_z = run->Center(flag).z();
  std::array<double, 3> angles{};
  double blown_m = 0, raised_m = 0;
  for (int i = 0; i < 480; ++i) {
    ASSERT_NO_FATAL_FAILURE(run->Step());
    for (int plate = 0; plate < 3; ++plate) angles[plate] = std::max(angles[plate], std::abs(run->frame().joints(plate).position()));
    blown_m = std::max(blown_m, run->Center(flag).y() - hangs_y);
    raised_m = std::max(raised_m, run->Center(flag).z() - hangs_z);
  }
  EXPECT_GT(angles[0], 0.5);
  EXPECT_GT(angles[0], 1.2 * angles[1]);
  EXPECT_GT(angles[1], 1.2 * angles[2]);
  EXPECT_GT(angles[2], 0.02);
  EXPECT_GT(blown_m, 0.03);
  EXPECT_GT(raised_m, 0.01);
  EXPECT_GT(run->Center(ball).y(), 0.3) << "carried away";
}

TEST_F(Scenes, ATrayOnSpringsCarriesExactBodies) {
  const std::unique_ptr<SceneRun> run = Load("nurbs-swing", "");
  ASSERT_NE(run, nullptr);
  const int tray = BodyNamed(*run, "tray");
  for (int i = 0; i < 240; ++i) ASSERT_NO_FATAL_FAILURE(run->Step());
  const v1::SceneInfo info = run->Info();
  double pull_n = 0;
  double weight_n = 9.81 * info.bodies(tray).mass_kg();
  for (const v1::JointState& spring : run->frame().joints()) pull_n += spring.force_n().z();
  for (const char* const name : {"torus", "vase"}) {
    const int body = BodyNamed(*run, name);
    weight_n += 9.81 * info.bodies(body).mass_kg();
    double lowest_m = 1;  // an exact body has no tets, whose mass Center() counts
    for (const Vector3d& p : run->positions(body)) lowest_m = std::min(lowest_m, p.z());
    EXPECT_GT(lowest_m, run->Center(tray).z()) << name << " lies on the tray";
  }
  EXPECT_NEAR(pull_n, weight_n, 0.2 * weight_n);
}

TEST_F(Scenes, AnExactSheetOnSpringsCarriesExactBodies) {
  const std::unique_ptr<SceneRun> run = Load("nurbs-hammock", "");
  ASSERT_NE(run, nullptr);
  const int sheet = BodyNamed(*run, "sheet");
  constexpr int kSteps = 300, kSwaying = 60;
  double pull_n = 0;  // of the last steps, on the mean: it still sways
  for (int i = 0; i < kSteps; ++i) {
    ASSERT_NO_FATAL_FAILURE(run->Step());
    if (i < kSteps - kSwaying) continue;
    for (const v1::JointState& spring : run->frame().joints()) pull_n += spring.force_n().z() / kSwaying;
  }
  const v1::SceneInfo info = run->Info();
  double weight_n = 0;
  for (const v1::BodyInfo& body : info.bodies()) weight_n += 9.81 * body.mass_kg();
  EXPECT_NEAR(pull_n, weight_n, 0.02 * weight_n) << "the springs carry all";
  const auto lowest_m = [&](int body) {
    double lowest = 1;
    for (const Vector3d& p : run->positions(body)) lowest = std::min(lowest, p.z());
    return lowest;
  };
  for (const char* const name : {"torus", "ball"}) EXPECT_GT(lowest_m(BodyNamed(*run, name)), lowest_m(sheet)) << name;
  EXPECT_GT(lowest_m(sheet), -0.1) << "it hangs";
  EXPECT_LT(lowest_m(sheet), -0.005) << "it sags";
}

TEST_F(Scenes, ADoorOpensAndAGateIsPushed) {
  const std::unique_ptr<SceneRun> run = Load("door", "hand");
  ASSERT_NE(run, nullptr);
  const Vector3d rest = ToEigen(run->spec().tools(0).rest_pose().position_m());
  const int ball = BodyNamed(*run, "ball");
  const double ball_y = run->Center(ball).y();
  double farthest = 0;
  double felt_n = 0;
  for (int i = 0; i < 150; ++i) {
    // The hand goes through where the gate was.
    ASSERT_NO_FATAL_FAILURE(run->MoveTool(rest + Vector3d(0, std::min(0.003 * i, 0.2), 0)));
    ASSERT_NO_FATAL_FAILURE(run->Step());
    farthest = std::max(farthest, run->frame().joints(1).position());
    felt_n = std::max(felt_n, ToEigen(run->frame().tools(0).force_n()).norm());
  }
  EXPECT_NEAR(run->frame().joints(0).position(), 0.5 * 1.3, 0.01) << "at 1.25 s: half way";
  EXPECT_GT(farthest, 0.15) << "the gate yields";
  EXPECT_GT(run->Center(ball).y(), ball_y + 0.03) << "the door pushes the ball";
  EXPECT_GT(felt_n, 0.5) << "the hand feels the gate";
  // Let go, the gate comes back; and a client brakes the door.
  v1::EditSceneRequest request;
  v1::JointEdit& brake = *request.add_edits()->mutable_joint();
  brake.set_joint("door");
  brake.mutable_turn()->mutable_motor()->set_speed_rad_per_s(0);
  ASSERT_EQ(run->Perform(request).size(), 1U);
  const double held = run->frame().joints(0).position();
  for (int i = 0; i < 90; ++i) {
    ASSERT_NO_FATAL_FAILURE(run->MoveTool(rest - Vector3d(0, 0.1, 0)));
    ASSERT_NO_FATAL_FAILURE(run->Step());
  }
  EXPECT_LT(run->frame().joints(1).position(), 0.5 * farthest);
  EXPECT_NEAR(run->frame().joints(0).position(), held, 1e-4);
}

TEST_F(Scenes, AMuscleHoldsAForearmThatAHandPresses) {
  const std::unique_ptr<SceneRun> run = Load("elbow", "hand");
  ASSERT_NE(run, nullptr);
  const Vector3d rest = ToEigen(run->spec().tools(0).rest_pose().position_m());
  const v1::SceneInfo info = run->Info();
  const double weight_n = 9.81 * info.bodies(BodyNamed(*run, "forearm")).mass_kg();
  double worst_m = 0;
  const auto step = [&] {
    ASSERT_NO_FATAL_FAILURE(run->Step());
    for (const v1::JointState& joint : run->frame().joints()) worst_m = std::max(worst_m, joint.gap_m());
  };
  for (int i = 0; i < 240; ++i) ASSERT_NO_FATAL_FAILURE(step());
  // Moments about the elbow: the weight at the middle of the forearm, 12 cm off, and the muscle 5.5 cm off.
  const double pull_n = run->frame().joints(1).force_n().z();
  const Vector3d elbow_m = ToEigen(run->frame().joints(0).point_m());
  const Vector3d of_muscle = (ToEigen(run->frame().joints(1).point_m()) - elbow_m).cross(ToEigen(run->frame().joints(1).force_n()));
  const double of_weight = (run->Center(BodyNamed(*run, "forearm")).x() - elbow_m.x()) * weight_n;
  EXPECT_NEAR(-of_muscle.y(), of_weight, 0.02 * of_weight);
  EXPECT_NEAR(of_weight, 0.12 * weight_n, 0.05 * 0.12 * weight_n);
  EXPECT_LT(std::abs(run->frame().joints(0).position()), 0.3) << "the forearm hangs by the muscle, not at its limit";
  // What the shoulder carries is the muscle and what it pulls.
  EXPECT_NEAR(run->frame().joints(2).force_n().z(), -pull_n - 9.81 * info.bodies(BodyNamed(*run, "muscle")).mass_kg(), 0.05 * pull_n);
  // A hand presses on the wrist: the muscle is stretched and pulls harder.
  double pressed_n = 0, felt_n = 0;
  const double angle = run->frame().joints(0).position();
  for (int i = 0; i < 180; ++i) {
    ASSERT_NO_FATAL_FAILURE(run->MoveTool(rest - Vector3d(0, 0, std::min(0.002 * i, 0.15))));
    ASSERT_NO_FATAL_FAILURE(step());
    pressed_n = run->frame().joints(1).force_n().z();
    felt_n = run->frame().tools(0).force_n().z();
  }
  EXPECT_LT(run->frame().joints(0).position(), angle - 0.02);
  EXPECT_GT(pressed_n, 1.2 * pull_n);
  EXPECT_GT(felt_n, 0.3) << "the hand feels it";
  EXPECT_LT(worst_m, 5e-6);
}

void Scenes::PokeJellies(uint64_t steps) {
  const std::unique_ptr<SceneRun> run = Load("jelly", "finger");
  ASSERT_NE(run, nullptr);
  ASSERT_EQ(run->body_count(), 5);
  double largest_tool_n = 0;
  bool bodies_touch = false;
  ASSERT_NO_FATAL_FAILURE(Advance(
      *run, steps, 10,
      [&] {
        // Down into the pile once it lies, as far as the top of the cube at its bottom, and up again.
        const double t_s = static_cast<double>(run->frame().step()) * run->dt_s();
        run->MoveTool({0.005, 0, 0.26 - 0.215 * std::clamp(2 * t_s - 0.4, 0.0, 1.0) + 0.215 * std::clamp(t_s - 1.6, 0.0, 1.0)});
      },
      [&] {
        largest_tool_n = std::max(largest_tool_n, ToEigen(run->frame().tools(0).force_n()).norm());
        for (int a = 0; a < 5; ++a) {
          for (int b = a + 1; b < 5; ++b) bodies_touch |= run->ContactsBetween(static_cast<uint32_t>(a), static_cast<uint32_t>(b)) > 0;
          for (const Vector3d& p : run->positions(a)) ASSERT_GT(p.z(), -5e-4);
        }
      }));
  EXPECT_TRUE(bodies_touch);
  EXPECT_GT(largest_tool_n, 0.05);
}

/// Torus and vase fall on a sheet, and a plate from a CAD file beside them.
void Scenes::DropExactBodies(uint64_t steps) {
  const std::unique_ptr<SceneRun> run = Load("nurbs-drop");
  ASSERT_NE(run, nullptr);
  constexpr int kSheet = 0;
  ASSERT_EQ(run->body_count(), 4);
  const double margin_m = run->spec().contact().margin_m();
  const v1::SceneInfo info = run->Info();
  // 2 pi^2 R r^2 times the density.
  EXPECT_NEAR(info.bodies(1).mass_kg(), 2 * std::numbers::pi * std::numbers::pi * 0.03 * 0.01 * 0.01 * 1200, 1e-9);
  const auto span_m = [&](int b) { return (run->positions(b).front() - run->positions(b).back()).norm(); };
  std::vector<double> spans_m;
  for (int b = 0; b < run->body_count(); ++b) spans_m.push_back(span_m(b));
  std::set<int> with_places;
  const auto check_places = [&] {
    for (const v1::SurfaceContact& contact : run->frame().surface_contacts()) {
      for (const bool is_b : {false, true}) {
        const int body = static_cast<int>(is_b ? contact.body_b() : contact.body_a());
        ASSERT_EQ(is_b ? contact.has_place_b() : contact.has_place_a(), body != kSheet);
        if (body == kSheet) continue;
        with_places.insert(body);
        const v1::NurbsPlace& place = is_b ? contact.place_b() : contact.place_a();
        const v1::NurbsSpec& nurbs = run->spec().bodies(body).nurbs();
        ASSERT_LT(place.patch(), static_cast<uint32_t>(nurbs.object().patches_size()));
        const double tolerance_m = nurbs.has_tolerance_m() ? nurbs.tolerance_m() : 0.25 * margin_m;
        // A trimmed patch ends along polylines, a millionth of its domain from its loops.
        EXPECT_LT((ToEigen(place.point_m()) - ToEigen(is_b ? contact.point_b_m() : contact.point_a_m())).norm(), tolerance_m + 1e-6)
            << run->topology(body).name;
      }
    }
  };
  ASSERT_NO_FATAL_FAILURE(Advance(*run, steps, 40, {}, check_places));
  EXPECT_EQ(with_places.count(1), 1U) << "the torus has come down";
  for (int b = 1; b < run->body_count(); ++b) {
    EXPECT_NEAR(span_m(b), spans_m[static_cast<size_t>(b)], 2e-6) << "rigid";
    for (const Vector3d& p : run->positions(b)) ASSERT_GT(p.z(), -0.0601) << run->topology(b).name << ": above the table";
  }
  if (steps < 400) return;
  EXPECT_EQ(with_places.size(), 3U);
  EXPECT_LT(run->frame().stats().max_speed_m_per_s(), 0.2);
  double carried_n = 0;
  double weight_n = 0;
  for (int b = 1; b < run->body_count(); ++b) {
    carried_n += run->SurfaceForce(b).z();
    weight_n += 9.81 * info.bodies(b).mass_kg();
  }
  EXPECT_NEAR(carried_n, weight_n, 0.1 * weight_n) << "they rest on the sheet";
}

TEST_F(Scenes, ExactBodiesAreDropped) { DropExactBodies(60); }
TEST_F(Scenes, SlowExactBodiesAreDroppedForTheFullLength) { DropExactBodies(600); }

TEST_F(Scenes, ExactBodiesFallOnAnExactSheet) {
  const std::unique_ptr<SceneRun> run = Load("nurbs-sheet");
  ASSERT_NE(run, nullptr);
  const v1::SceneInfo info = run->Info();
  EXPECT_NEAR(info.bodies(0).mass_kg(), 1000 * 0.0015 * 0.26 * 0.26, 1e-6);
  std::set<uint32_t> touched;
  constexpr uint64_t kSteps = 260;
  constexpr uint64_t kCarriedFrom = 100;
  std::array<std::vector<double>, 2> forces_n;  // on torus and ball
  const auto check_contacts = [&] {
    if (run->frame().step() > kCarriedFrom) {
      for (const int b : {0, 1}) forces_n[static_cast<size_t>(b)].push_back(run->SurfaceForce(b + 1).z());
    }
    for (const v1::SurfaceContact& contact : run->frame().surface_contacts()) {
      if (contact.body_a() == contact.body_b()) continue;
      const bool is_a = contact.body_a() == 0;
      if (!is_a && contact.body_b() != 0) continue;
      touched.insert(is_a ? contact.body_b() : contact.body_a());
      ASSERT_TRUE(contact.has_place_a() && contact.has_place_b());
      // Triangles are chords of the bent sheet: 1.7 mm off in the impact.
      const v1::NurbsPlace& place = is_a ? contact.place_a() : contact.place_b();
      EXPECT_LT((ToEigen(place.point_m()) - ToEigen(is_a ? contact.point_a_m() : contact.point_b_m())).norm(), 2.5e-3);
    }
  };
  ASSERT_NO_FATAL_FAILURE(Advance(*run, kSteps, 20, {}, check_contacts));
  EXPECT_EQ(touched, (std::set<uint32_t>{1, 2})) << "torus and ball lie on the sheet";
  // They still sway. A step that is cut short reports more than it does: so the median.
  for (const int b : {0, 1}) {
    std::vector<double>& on_body_n = forces_n[static_cast<size_t>(b)];
    std::ranges::nth_element(on_body_n, on_body_n.begin() + static_cast<std::ptrdiff_t>(on_body_n.size() / 2));
    const double weight_n = 9.81 * info.bodies(b + 1).mass_kg();
    EXPECT_NEAR(on_body_n[on_body_n.size() / 2], weight_n, 0.09 * weight_n) << "it is carried";
    for (const Vector3d& p : run->positions(b + 1)) ASSERT_GT(p.z(), -0.085) << "by the sheet, not by the table";
  }
}

TEST_F(Scenes, AnExactDrapeWithAnOpeningFallsOverABall) {
  const std::unique_ptr<SceneRun> run = Load("nurbs-drape");
  ASSERT_NE(run, nullptr);
  // Of 26 mm between lines of knots: corners of radius 2, an opening of radius 1.35.
  const double area_m2 = 0.026 * 0.026 * (100 - (4 - std::numbers::pi) * 4 - std::numbers::pi * 1.35 * 1.35);
  EXPECT_NEAR(run->Info().bodies(0).mass_kg(), 1000 * 0.0008 * area_m2, 1e-7);
  ASSERT_NO_FATAL_FAILURE(Advance(*run, 180, 20));
  // The ball, of 55 mm about (0, 0, 60) mm, comes through: the rim of the opening is around it, below its top and on it.
  double least_m = 1, highest_m = 0, lowest_m = 1, nearest_m = 1;
  for (const Vector3d& p : run->positions(0)) {
    least_m = std::min(least_m, p.head<2>().norm());
    highest_m = std::max(highest_m, p.z());
    lowest_m = std::min(lowest_m, p.z());
    nearest_m = std::min(nearest_m, (p - Vector3d(0, 0, 0.06)).norm());
  }
  EXPECT_GT(nearest_m, 0.0545) << "outside the ball, whose triangles are up to 0.25 mm inside its surface";
  EXPECT_GT(least_m, 0.02) << "the opening is where the top of the ball is";
  EXPECT_LT(highest_m, 0.115) << "below the top";
  EXPECT_GT(highest_m, 0.09) << "it lies on the ball";
  EXPECT_LT(lowest_m, 0.06) << "and hangs down around it";
  EXPECT_GT(lowest_m, 0) << "above the table";
}

TEST_F(Scenes, APlateFromCadPressesAnExactBladder) {
  const std::unique_ptr<SceneRun> run = Load("nurbs-bladder");
  ASSERT_NE(run, nullptr);
  const auto height = [&] {
    double most_m = 0;
    for (const Vector3d& p : run->positions(0)) {
      EXPECT_GT(p.z(), 0) << "above the table";
      most_m = std::max(most_m, p.z());
    }
    return most_m;
  };
  ASSERT_NO_FATAL_FAILURE(Advance(*run, 36, 12));
  const double before_m = height();
  ASSERT_NO_FATAL_FAILURE(Advance(*run, 180, 36));
  EXPECT_NEAR(run->frame().joints(0).position(), -0.045, 1e-3);
  EXPECT_LT(run->SurfaceForce(0).z(), -0.1) << "the plate presses it";
  // The middle is under the plate, which is 42 mm above the table.
  double beneath_m = 0;
  for (const Vector3d& p : run->positions(0)) {
    if (p.head<2>().norm() < 0.008 && p.z() > 0.03) beneath_m = std::max(beneath_m, p.z());
  }
  EXPECT_LT(beneath_m, before_m - 0.01);
}

TEST_F(Scenes, AHandLiftsAnExactBladderThatIsSewnToTissue) {
  const std::unique_ptr<SceneRun> run = Load("nurbs-sewn", "hand");
  ASSERT_NE(run, nullptr);
  const Vector3d rest = ToEigen(run->spec().tools(0).rest_pose().position_m());
  const v1::SceneInfo info = run->Info();
  const int floor = BodyNamed(*run, "floor");
  double worst_m = 0;
  const auto step = [&] {
    ASSERT_NO_FATAL_FAILURE(run->Step());
    for (const v1::JointState& joint : run->frame().joints()) worst_m = std::max(worst_m, joint.gap_m());
  };
  // Of the tissue where it is sewn.
  const auto height = [&] {
    double sum_m = 0;
    int count = 0;
    for (const Vector3d& p : run->positions(floor)) {
      if (p.head<2>().norm() > 0.018 || p.z() < -0.008) continue;
      sum_m += p.z();
      ++count;
    }
    EXPECT_GT(count, 4);
    return sum_m / count;
  };
  for (int i = 0; i < 120; ++i) {
    ASSERT_NO_FATAL_FAILURE(run->MoveTool(rest));
    ASSERT_NO_FATAL_FAILURE(step());
  }
  const double before_m = height(), felt_n = -run->frame().tools(0).force_n().z();
  const double bead_n = 9.81 * info.bodies(BodyNamed(*run, "bead")).mass_kg();
  EXPECT_NEAR(run->frame().joints(3).force_n().z(), -bead_n, 0.25 * bead_n) << "on the bladder, which the bead leans on";
  for (int i = 0; i < 200; ++i) {
    ASSERT_NO_FATAL_FAILURE(run->MoveTool(rest + Vector3d(0, 0, std::min(0.0002 * i, 0.025))));
    ASSERT_NO_FATAL_FAILURE(step());
  }
  EXPECT_GT(-run->frame().tools(0).force_n().z(), felt_n + 0.1) << "the hand feels what it lifts";
  EXPECT_GT(height(), before_m + 0.0001) << "stitches draw the tissue up";
  EXPECT_LT(worst_m, 5e-6);
}

TEST_F(Scenes, AnOrganHangsOnAVesselThatRunsThroughIt) {
  const std::unique_ptr<SceneRun> run = Load("nurbs-vessel", "probe");
  ASSERT_NE(run, nullptr);
  const Vector3d rest = ToEigen(run->spec().tools(0).rest_pose().position_m());
  const int organ = BodyNamed(*run, "organ");
  const auto height = [&] {
    double sum_m = 0;
    for (const Vector3d& p : run->positions(organ)) sum_m += p.z();
    return sum_m / static_cast<double>(run->positions(organ).size());
  };
  const double start_m = height();
  for (int i = 0; i < 180; ++i) {
    ASSERT_NO_FATAL_FAILURE(run->MoveTool(rest));
    ASSERT_NO_FATAL_FAILURE(run->Step());
  }
  const double hanging_m = height();
  EXPECT_LT(hanging_m, start_m - 0.0005) << "the vessel gives way under its weight";
  EXPECT_GT(hanging_m, start_m - 0.015) << "and carries it";
  // Its ends bear all that hangs there, the organ what holds it up.
  ASSERT_EQ(run->frame().supports_size(), 3);
  const double organ_n = 9.81 * run->Info().bodies(organ).mass_kg(),
               vessel_n = 9.81 * run->Info().bodies(BodyNamed(*run, "vessel")).mass_kg();
  const double at_ends_n = run->frame().supports(0).force_n().z() + run->frame().supports(1).force_n().z();
  EXPECT_NEAR(at_ends_n, -organ_n - vessel_n, 0.05 * organ_n);
  EXPECT_NEAR(run->frame().supports(2).force_n().z(), organ_n, 0.05 * organ_n);
  for (int i = 0; i < 120; ++i) {
    ASSERT_NO_FATAL_FAILURE(run->MoveTool(rest - Vector3d(0, 0, std::min(0.0003 * i, 0.025))));
    ASSERT_NO_FATAL_FAILURE(run->Step());
  }
  EXPECT_LT(height(), hanging_m - 0.0005) << "the probe presses it down";
  EXPECT_GT(run->frame().tools(0).force_n().z(), 0.05) << "and feels it";
  for (int i = 0; i < 240; ++i) {
    ASSERT_NO_FATAL_FAILURE(run->MoveTool(rest));
    ASSERT_NO_FATAL_FAILURE(run->Step());
  }
  EXPECT_NEAR(height(), hanging_m, 0.0002) << "it swings back";
}

TEST_F(Scenes, AProbePressesABladderWhoseNeckIsClampedAtItsRim) {
  const std::unique_ptr<SceneRun> run = Load("nurbs-neck", "probe");
  ASSERT_NE(run, nullptr);
  const Vector3d rest = ToEigen(run->spec().tools(0).rest_pose().position_m());
  const std::vector<Vector3d> start = run->positions(0);
  const auto moved_m = [&](const std::function<bool(const Vector3d&)>& is_meant) {
    double most_m = 0;
    for (size_t v = 0; v < start.size(); ++v) {
      if (is_meant(start[v])) most_m = std::max(most_m, (run->positions(0)[v] - start[v]).norm());
    }
    return most_m;
  };
  const auto height = [&] {
    double most_m = 0;
    for (const Vector3d& p : run->positions(0)) {
      EXPECT_GT(p.z(), 0) << "above the table";
      most_m = std::max(most_m, p.z());
    }
    return most_m;
  };
  const auto step = [&](int count, double down_m) {
    for (int i = 0; i < count; ++i) {
      ASSERT_NO_FATAL_FAILURE(run->MoveTool(rest - Vector3d(0, 0, std::min(0.0005 * i, down_m))));
      ASSERT_NO_FATAL_FAILURE(run->Step());
    }
  };
  ASSERT_NO_FATAL_FAILURE(step(60, 0));
  const double before_m = height();
  EXPECT_EQ(ToEigen(run->frame().tools(0).force_n()).norm(), 0);
  ASSERT_NO_FATAL_FAILURE(step(90, 0.031));
  const Vector3d felt_n = ToEigen(run->frame().tools(0).force_n());
  EXPECT_GT(felt_n.z(), 0.2) << "the probe feels it";
  EXPECT_LT(height(), before_m - 0.003) << "it gives way";
  // The rim stays, however its control points lie, and so do the directions there: no wall goes far from where it was near it.
  const Vector3d along = Vector3d(1, 0.12, 0.1).normalized();
  const auto on_axis_m = [&](const Vector3d& p) { return (p - Vector3d(0, 0.004, 0.04)).dot(along); };
  double rim_m = 0;
  for (const Vector3d& p : start) rim_m = std::max(rim_m, on_axis_m(p));
  EXPECT_LT(moved_m([&](const Vector3d& p) { return on_axis_m(p) > rim_m - 1e-4; }), 5e-5);
  EXPECT_LT(moved_m([&](const Vector3d& p) { return on_axis_m(p) > rim_m - 0.004; }), 1e-3);
  EXPECT_GT(moved_m([&](const Vector3d& p) { return p.x() < 0; }), 0.005);
  ASSERT_EQ(run->frame().supports_size(), 1);
  EXPECT_GT(ToEigen(run->frame().supports(0).force_n()).norm(), 0.05) << "the rim carries";
  ASSERT_NO_FATAL_FAILURE(step(120, 0));
  EXPECT_NEAR(height(), before_m, 0.001) << "it comes back";
}

TEST_F(Scenes, JelliesFallAndArePoked) { PokeJellies(90); }
TEST_F(Scenes, SlowJelliesArePokedForTheFullLength) { PokeJellies(420); }

TEST_F(Scenes, AToolAtFiveMetresPerSecondDoesNotTunnel) {
  const std::unique_ptr<SceneRun> run = Load("whip", "whip");
  ASSERT_NE(run, nullptr);
  constexpr double kSpeed_m_per_s = 5;
  // The vertices of the ligament near its middle.
  std::vector<size_t> middle;
  for (size_t v = 0; v < run->positions(0).size(); ++v) {
    if (std::abs(run->positions(0)[v].y()) < 0.006) middle.push_back(v);
  }
  ASSERT_GE(middle.size(), 9U);
  double x_m = -0.06;
  const auto whip_to = [&](double target_m) {
    const double step_m = kSpeed_m_per_s * run->dt_s();
    while (x_m != target_m) {
      x_m = target_m > x_m ? std::min(target_m, x_m + step_m) : std::max(target_m, x_m - step_m);
      ASSERT_NO_FATAL_FAILURE(Advance(*run, run->frame().step() + 1, 1, [&] { run->MoveTool({x_m, 0, -0.06}); }));
    }
  };
  ASSERT_NO_FATAL_FAILURE(whip_to(0.03));
  // The tool, which goes forty millimetres a step, never comes out on the other side: in the plane in which it moves all of the ligament is
  // ahead of it (beside that it wraps around the tool), first on its way and then held back by the tool, which waits where the ligament
  // does not yield fast enough.
  ASSERT_NO_FATAL_FAILURE(Advance(*run, run->frame().step() + 40, 1, {}, [&] {
    const double tool_x_m = run->frame().tools(0).pose().position_m().x();
    size_t crossings = 0;
    for (const auto& triangle : run->topology(0).triangles) {
      for (size_t c = 0; c < 3; ++c) {
        const Vector3d& a = run->positions(0)[triangle[c]];
        const Vector3d& b = run->positions(0)[triangle[(c + 1) % 3]];
        if ((a.y() < 0) == (b.y() < 0)) continue;
        ++crossings;
        ASSERT_GT((a + a.y() / (a.y() - b.y()) * (b - a)).x(), tool_x_m) << "step " << run->frame().step();
      }
    }
    ASSERT_GT(crossings, 10U);
  }));
  EXPECT_NEAR(run->frame().tools(0).pose().position_m().x(), 0.03, 1e-6) << "it has caught up";
  EXPECT_EQ(run->frame().tools(0).blocked_m(), 0);
  EXPECT_GT(ToEigen(run->frame().tools(0).force_n()).dot(-Vector3d::UnitX()), 0.1);
  ASSERT_NO_FATAL_FAILURE(whip_to(-0.06));
  // Released, it springs back and swings no farther than it was bent, while the tool stays away: had it passed through, it would drag it
  // along.
  double least_m = 0;
  ASSERT_NO_FATAL_FAILURE(Advance(*run, run->frame().step() + 60, 12, {}, [&] {
    for (const size_t v : middle) least_m = std::min(least_m, run->positions(0)[v].x());
    ASSERT_EQ(run->frame().tools(0).contact_count(), 0U);
  }));
  EXPECT_LT(least_m, 0);
  EXPECT_GT(least_m, -0.035);
}

/// Names of the markers that edits released, in their order.
std::vector<std::string> Released(const std::vector<v1::EditOutcome>& outcomes) {
  std::vector<std::string> names;
  for (const v1::EditOutcome& outcome : outcomes) {
    names.insert(names.end(), outcome.released_markers().begin(), outcome.released_markers().end());
  }
  return names;
}

TEST_F(Scenes, ALobeIsResectedAlongTheLine) {
  const std::unique_ptr<SceneRun> run = Load("hepatectomy");
  ASSERT_NE(run, nullptr);
  const std::vector<v1::EditOutcome> outcomes = run->Edit("hepatectomy", /*each=*/true, /*steps=*/1);
  ASSERT_FALSE(HasFatalFailure());
  ASSERT_GE(run->body_count(), 2);
  double removed_kg = 0;
  for (const v1::EditOutcome& outcome : outcomes) removed_kg += outcome.removed_mass_kg();
  EXPECT_GT(removed_kg, 0.02);
  // The lobe is the largest piece; it falls, and its rest stays where it is held.
  int lobe = 1;
  size_t most = 0;
  for (int b = 1; b < run->body_count(); ++b) {
    if (run->topology(b).tet_count() <= most) continue;
    most = run->topology(b).tet_count();
    lobe = b;
  }
  EXPECT_GT(most, 200U);
  EXPECT_EQ(run->topology(lobe).parent, "liver");
  const auto lowest_m = [&](int body) {
    double z = 1;
    for (const client::TopologyMirror::Triangle& t : run->topology(body).triangles) {
      if (t != client::TopologyMirror::kFreeTriangle) z = std::min(z, run->positions(body)[t[0]].z());
    }
    return z;
  };
  ASSERT_NO_FATAL_FAILURE(Advance(*run, run->frame().step() + 30, 10));
  EXPECT_LT(lowest_m(lobe), -0.08) << "on the table";
  EXPECT_GT(lowest_m(lobe), -0.0901) << "below the table";
  // The marker on the line is gone, those beside it are on their sides.
  EXPECT_THAT(Released(outcomes), ::testing::ElementsAre("line"));
  ASSERT_EQ(run->frame().markers_size(), 4);
  EXPECT_TRUE(run->frame().markers(0).is_released());
  for (const int m : {1, 2}) EXPECT_EQ(run->frame().markers(m).body_index(), static_cast<uint32_t>(lobe)) << m;
  EXPECT_LT(run->frame().markers(1).position_m().z(), -0.01) << "fallen with the lobe";
  EXPECT_EQ(run->frame().markers(3).body_index(), 0U);
  // Once it lies still nothing of it is inside out.
  ASSERT_NO_FATAL_FAILURE(Advance(*run, run->frame().step() + 60, 60));
}

TEST_F(Scenes, AnIncisionUnderTensionOpens) {
  const std::unique_ptr<SceneRun> run = Load("incision");
  ASSERT_NE(run, nullptr);
  ASSERT_NO_FATAL_FAILURE(Advance(*run, 60, 20));
  const std::vector<v1::EditOutcome> outcomes = run->Edit("incision", /*each=*/false);
  ASSERT_EQ(outcomes.size(), 1U);
  EXPECT_GT(outcomes[0].added_tets_size(), 0) << outcomes[0].note();
  EXPECT_NEAR(outcomes[0].removed_mass_kg(), 0, 1e-12);
  EXPECT_EQ(run->body_count(), 1);
  // How far apart the lips are at the top, in the middle of the cut.
  const auto opening_m = [&] {
    Eigen::AlignedBox1d box;
    for (size_t t = 0; t < run->topology(0).triangles.size(); ++t) {
      if (run->topology(0).zones[t] == 0) continue;
      for (const uint32_t v : run->topology(0).triangles[t]) {
        const Vector3d& p = run->positions(0)[v];
        if (std::abs(p.y()) < 0.008 && p.z() > 0.004) box.extend(Eigen::Matrix<double, 1, 1>(p.x()));
      }
    }
    return box.isEmpty() ? 0.0 : box.sizes()[0];
  };
  EXPECT_LT(opening_m(), 0.002);
  ASSERT_NO_FATAL_FAILURE(Advance(*run, 100, 20));
  EXPECT_GT(opening_m(), 0.004);
}

/// Loops of edges of one triangle, in the surface that clients hold.
size_t Borders(const SceneRun& run, int body) {
  std::map<uint32_t, uint32_t> next;
  std::set<std::pair<uint32_t, uint32_t>> edges;
  for (const client::TopologyMirror::Triangle& t : run.topology(body).triangles) {
    for (size_t k = 0; k < 3 && t[0] != t[1]; ++k) edges.insert({t[k], t[(k + 1) % 3]});
  }
  for (const auto& [a, b] : edges) {
    if (!edges.contains({b, a})) next[a] = b;
  }
  size_t loops = 0;
  for (; !next.empty(); ++loops) {
    for (auto at = next.begin(); at != next.end();) {
      const uint32_t to = at->second;
      next.erase(at);
      at = next.find(to);
    }
  }
  return loops;
}

TEST_F(Scenes, AHoleInAMesenteryFallsOpen) {
  const std::unique_ptr<SceneRun> run = Load("mesentery");
  ASSERT_NE(run, nullptr);
  ASSERT_NO_FATAL_FAILURE(Advance(*run, 60, 20));
  const std::vector<v1::EditOutcome> outcomes = run->Edit("mesentery", /*each=*/false);
  ASSERT_EQ(outcomes.size(), 3U);
  EXPECT_GT(outcomes[0].added_triangles_size(), 2 * outcomes[0].removed_triangles_size() - 10) << "refined";
  EXPECT_GT(outcomes[1].removed_triangles_size(), 40) << "carved";
  // A disc of 12 mm radius, seen from above.
  EXPECT_NEAR(outcomes[1].removed_mass_kg(), std::numbers::pi * 0.012 * 0.012 * 0.0008 * 1050, 8e-5);
  EXPECT_GT(outcomes[2].added_vertices_size(), 10) << "cut";
  EXPECT_NEAR(outcomes[2].removed_mass_kg(), 0, 1e-12);
  EXPECT_EQ(run->body_count(), 1);
  // How far the slit is open in its middle.
  const auto opening_m = [&] {
    std::vector<double> x_m;
    for (const Vector3d& p : run->positions(0)) {
      if (std::abs(p.y()) < 0.004 && std::abs(p.x() - 0.013) < 0.02) x_m.push_back(p.x());
    }
    std::sort(x_m.begin(), x_m.end());
    double widest = 0;
    for (size_t i = 0; i + 1 < x_m.size(); ++i) widest = std::max(widest, x_m[i + 1] - x_m[i]);
    return widest;
  };
  EXPECT_EQ(Borders(*run, 0), 3U);
  const double at_first_m = opening_m();
  ASSERT_NO_FATAL_FAILURE(Advance(*run, 120, 20));
  EXPECT_EQ(Borders(*run, 0), 3U);
  EXPECT_GT(opening_m(), at_first_m + 0.004);
}

TEST_F(Scenes, ALoopOfBowelIsPulledThroughAMesentery) {
  const std::unique_ptr<SceneRun> run = Load("bowel-loop", "hook");
  ASSERT_NE(run, nullptr);
  constexpr int kMesentery = 0;
  constexpr int kColon = 1;
  constexpr int kBowel = 2;
  const auto highest_m = [&](int body) {
    double z = -1;
    for (const Vector3d& p : run->positions(body)) z = std::max(z, p.z());
    return z;
  };
  const auto triangles = [&] {
    const auto& all = run->topology(kMesentery).triangles;
    return all.size() - static_cast<size_t>(std::ranges::count(all, client::TopologyMirror::kFreeTriangle));
  };
  int touching = 0;
  double largest_n = 0;
  const auto look = [&] {
    touching = std::max(touching, run->ContactsBetween(kMesentery, kBowel));
    largest_n = std::max(largest_n, run->SurfaceForce(kBowel).norm());
  };
  Vector3d tip_m(-0.03, 0.02, 0.06);
  const auto go = [&](uint64_t steps, const Vector3d& to_m, double jaw_rad = 0) {
    const Vector3d step_m = (to_m - tip_m) / static_cast<double>(steps);
    Advance(
        *run, run->frame().step() + steps, 20, [&] { run->MoveTool(tip_m += step_m, jaw_rad); }, look);
  };
  // The hook burns a hole along a spiral.
  EXPECT_EQ(Borders(*run, kMesentery), 1U);
  ASSERT_NO_FATAL_FAILURE(go(40, {0, 0, -0.0125}));
  const uint64_t begin = run->frame().step();
  const auto burn = [&] {
    const double u = std::sqrt(static_cast<double>(run->frame().step() - begin) / 180);
    const double angle = 6 * std::numbers::pi * u;
    run->MoveTool(tip_m = Vector3d(0.0115 * u * std::cos(angle), 0.0115 * u * std::sin(angle), -0.0125), 0, /*pedal=*/true);
  };
  ASSERT_NO_FATAL_FAILURE(Advance(*run, begin + 181, 20, burn));
  ASSERT_NO_FATAL_FAILURE(go(20, {-0.03, 0.02, 0.06}));
  EXPECT_EQ(Borders(*run, kMesentery), 2U);
  const double removed_kg = run->frame().tools(1).removed_mass_kg();
  EXPECT_GT(removed_kg, std::numbers::pi * 0.0115 * 0.0115 * 0.001 * 1050);
  EXPECT_LT(removed_kg, std::numbers::pi * 0.02 * 0.02 * 0.001 * 1050);
  // Jaws go through it and open, and close on the bowel that lies below.
  run->Take("grasper");
  tip_m = {0.03, 0, 0.07};
  ASSERT_NO_FATAL_FAILURE(go(30, {0, 0.001, 0.03}));
  ASSERT_NO_FATAL_FAILURE(go(50, {0, 0.001, -0.022}));
  ASSERT_NO_FATAL_FAILURE(go(40, {0, 0.001, -0.03}, 1));
  ASSERT_NO_FATAL_FAILURE(go(60, {0, 0.001, -0.049}, 1));
  ASSERT_NO_FATAL_FAILURE(go(70, {0, 0.001, -0.049}));
  EXPECT_GE(run->frame().tools(0).grasped_vertices(), 8U);
  EXPECT_EQ(run->frame().tools(0).grasped_body(), static_cast<uint32_t>(kBowel));
  EXPECT_LT(highest_m(kBowel), -0.025) << "all of it is below";
  const size_t triangles_before = triangles();
  const int bodies_before = run->body_count();
  touching = 0;
  largest_n = 0;
  double pull_n = 0;
  for (int i = 0; i < 12; ++i) {
    ASSERT_NO_FATAL_FAILURE(go(20, {0, 0.001, -0.049 + 0.119 * (i + 1) / 12}));
    pull_n = std::max(pull_n, -ToEigen(run->frame().tools(0).force_n()).z());
  }
  ASSERT_NO_FATAL_FAILURE(go(60, {0, 0.001, 0.07}));
  // The loop stands above the mesentery, which has given way and hangs around it, whole but for the hole.
  EXPECT_GT(touching, 50);
  EXPECT_GT(largest_n, 0.1);
  EXPECT_GT(pull_n, 0.3);
  EXPECT_GE(run->frame().tools(0).grasped_vertices(), 8U);
  EXPECT_LT(highest_m(kMesentery), 0.02);
  EXPECT_GT(highest_m(kBowel), 0.07);
  const auto is_beyond = [](const Vector3d& p) { return p.z() > 0.02; };
  EXPECT_GT(std::ranges::count_if(run->positions(kBowel), is_beyond), 100);
  EXPECT_EQ(Borders(*run, kMesentery), 2U);
  EXPECT_EQ(triangles(), triangles_before);
  EXPECT_EQ(run->body_count(), bodies_before);
  // It is still sewn to the colon, and frames say so.
  EXPECT_EQ(run->frame().stitches_m_size(), 6 * run->spec().sutures(0).vertices().indices_size());
  for (const uint32_t v : run->spec().sutures(0).vertices().indices()) {
    double least_m = 1;
    for (const Vector3d& p : run->positions(kColon)) least_m = std::min(least_m, (p - run->positions(kMesentery)[v]).norm());
    ASSERT_LT(least_m, 0.008) << "vertex " << v;
  }
}

TEST_F(Scenes, AFilledBladderGivesWayToTheSides) {
  const std::unique_ptr<SceneRun> run = Load("bladder");
  ASSERT_NE(run, nullptr);
  const auto volume_m3 = [&] {
    double sum = 0;
    for (const client::TopologyMirror::Tet& tet : run->topology(0).tets) {
      const std::vector<Vector3d>& x = run->positions(0);
      sum += (x[tet[1]] - x[tet[0]]).cross(x[tet[2]] - x[tet[0]]).dot(x[tet[3]] - x[tet[0]]) / 6;
    }
    return sum;
  };
  const auto extent_m = [&]() -> Vector3d {
    Eigen::AlignedBox3d box;
    for (const Vector3d& p : run->positions(0)) box.extend(p);
    return box.sizes();
  };
  const std::vector<Vector3d> rest = run->positions(0);
  const Vector3d rest_center_m = run->Center(0);
  // The direction in which what was up at rest points: of the best rotation from rest to now.
  const auto upright = [&] {
    Eigen::Matrix3d covariance = Eigen::Matrix3d::Zero();
    const Vector3d center_m = run->Center(0);
    for (size_t v = 0; v < rest.size(); ++v) covariance += (run->positions(0)[v] - center_m) * (rest[v] - rest_center_m).transpose();
    const Eigen::JacobiSVD<Eigen::Matrix3d> svd(covariance, Eigen::ComputeFullU | Eigen::ComputeFullV);
    return (svd.matrixU() * svd.matrixV().transpose())(2, 2);
  };
  const double rest_m3 = volume_m3();
  // What stands on the table stays on it, and may slide.
  const auto check = [&] {
    EXPECT_NEAR(volume_m3(), rest_m3, 0.005 * rest_m3) << "step " << run->frame().step();
    for (size_t v = 0; v < rest.size(); ++v) {
      if (rest[v].z() > -0.038) continue;
      ASSERT_EQ(run->positions(0)[v].z(), rest[v].z()) << "vertex " << v << ", step " << run->frame().step();
    }
    // It stands: upright, above its foot, nothing of it in the table.
    EXPECT_EQ(run->frame().stats().inverted_tets(), 0U) << "step " << run->frame().step();
    EXPECT_GT(upright(), 0.99) << "step " << run->frame().step();
    EXPECT_GT(run->Center(0).z(), rest_center_m.z() - 0.02) << "step " << run->frame().step();
    EXPECT_LT((run->Center(0) - rest_center_m).head<2>().norm(), 0.005) << "step " << run->frame().step();
    for (const Vector3d& p : run->positions(0)) EXPECT_GT(p.z(), run->spec().obstacles(0).plane().point_m().z());
  };
  ASSERT_NO_FATAL_FAILURE(Advance(*run, 71, 20, {}, check));
  const Vector3d settled_m = extent_m();
  ASSERT_NO_FATAL_FAILURE(Advance(*run, 142, 20, {}, check));
  const Vector3d pressed_m = extent_m();
  EXPECT_LT(pressed_m.z(), settled_m.z() - 0.004);
  EXPECT_GT(pressed_m.x(), settled_m.x() + 0.002);
  double slide_m = 0;
  for (size_t v = 0; v < rest.size(); ++v) {
    if (rest[v].z() <= -0.038) slide_m = std::max(slide_m, (run->positions(0)[v] - rest[v]).norm());
  }
  EXPECT_GT(slide_m, 0.0005);
  ASSERT_NO_FATAL_FAILURE(Advance(*run, 260, 20, {}, check));
  EXPECT_GT(extent_m().z(), pressed_m.z() + 0.7 * (settled_m.z() - pressed_m.z())) << "released, it rises again";
}

TEST_F(Scenes, ATumorIsReachedAndTakenOut) {
  const std::unique_ptr<SceneRun> run = Load("tumor");
  ASSERT_NE(run, nullptr);
  ASSERT_NO_FATAL_FAILURE(Advance(*run, 3, 3));
  const std::vector<v1::EditOutcome> outcomes = run->Edit("tumor", /*each=*/true, /*steps=*/3);
  ASSERT_FALSE(HasFatalFailure());
  ASSERT_EQ(outcomes.size(), 2U);
  EXPECT_GT(outcomes[0].removed_tets_size(), 10);
  EXPECT_GT(outcomes[1].removed_tets_size(), 20);
  EXPECT_LT(outcomes[1].unchanged_count(), static_cast<uint32_t>(outcomes[1].removed_tets_size()) / 10 + 1);
  ASSERT_NO_FATAL_FAILURE(Advance(*run, run->frame().step() + 10, 5));
  // The tumour's marker goes with it, the margins stay in the liver.
  EXPECT_THAT(Released(outcomes), ::testing::ElementsAre("tumor"));
  ASSERT_EQ(run->frame().markers_size(), 6);
  for (int m = 1; m < 6; ++m) {
    EXPECT_FALSE(run->frame().markers(m).is_released()) << m;
    EXPECT_EQ(run->frame().markers(m).body_index(), 0U) << m;
  }
}

/// Whether the first tool does this in the newest frame.
bool Does(const SceneRun& run, v1::ToolActivity activity) {
  const auto& activities = run.frame().tools(0).activities();
  return std::find(activities.begin(), activities.end(), activity) != activities.end();
}

TEST_F(Scenes, AspiratorsResectWithThePedalDown) {
  const struct {
    const char* scene;
    Vector3d above_m;
  } cases[] = {{"hepatectomy", {-0.035, -0.01, 0.12}}, {"tumor", {-0.03, 0, 0.085}}};
  for (const auto& c : cases) {
    const std::unique_ptr<SceneRun> run = Load(c.scene, "aspirator");
    ASSERT_NE(run, nullptr);
    const double whole_kg = run->TotalMass();
    Vector3d tip_m = c.above_m;
    // Down to the tissue with the pedal up.
    for (int i = 0; i < 120 && !Does(*run, v1::TOOL_ACTIVITY_TOUCHING); ++i) {
      tip_m.z() -= 0.001;
      run->MoveTool(tip_m);
      ASSERT_NO_FATAL_FAILURE(run->Step());
    }
    ASSERT_TRUE(Does(*run, v1::TOOL_ACTIVITY_TOUCHING)) << c.scene;
    EXPECT_EQ(run->frame().tools(0).removed_mass_kg(), 0) << "the pedal is up";
    // 60 W for 2 s: 6 g at 2e4 J/kg, of which part is still only warm.
    int cutting = 0;
    ASSERT_NO_FATAL_FAILURE(Advance(
        *run, run->frame().step() + 240, 60,
        [&] {
          tip_m.z() -= 0.00005;
          run->MoveTool(tip_m, 0, true);
        },
        [&] { cutting += Does(*run, v1::TOOL_ACTIVITY_CUTTING) ? 1 : 0; }));
    const double removed_kg = run->frame().tools(0).removed_mass_kg();
    EXPECT_GT(cutting, 120) << c.scene;
    EXPECT_GT(removed_kg, 0.001) << c.scene;
    EXPECT_LT(removed_kg, 0.009) << c.scene;
    EXPECT_NEAR(run->TotalMass(), whole_kg - removed_kg, 1e-6 * whole_kg);
  }
}

TEST_F(Scenes, AToolWorksThroughItsTrocar) {
  const std::unique_ptr<SceneRun> run = Load("trocar", "aspirator");
  ASSERT_NE(run, nullptr);
  const v1::TrocarSpec& trocar = run->spec().tools(0).trocar();
  double tilt_rad = 0, most_tilt_rad = 0, off_m = 0;
  const auto check = [&] {
    for (int t = 0; t < 2; ++t) {
      const v1::Pose& pose = run->frame().tools(t).pose();
      const v1::Quaternion& q = pose.rotation();
      const Vector3d shaft = Eigen::Quaterniond(q.w(), q.x(), q.y(), q.z()) * Vector3d::UnitZ();
      const v1::TrocarSpec& own = run->spec().tools(t).trocar();
      const Vector3d in_m = ToEigen(pose.position_m()) - ToEigen(own.pivot_m());
      // A coupled tool in motion is laid through the pivot and the place where its tip was a step ago.
      const double missed_by_m = in_m.cross(shaft).norm();
      EXPECT_LT(missed_by_m, 0.0015) << "tool " << t << " left its trocar at step " << run->frame().step();
      EXPECT_LT(in_m.norm(), own.max_insertion_m() + 1e-3);
      EXPECT_GT(in_m.norm(), own.min_insertion_m() - 1e-3);
      if (t > 0) continue;
      tilt_rad = std::acos(std::clamp(-in_m.normalized().z(), -1.0, 1.0));
      most_tilt_rad = std::max(most_tilt_rad, tilt_rad);
      off_m = missed_by_m;
    }
  };
  const double whole_kg = run->TotalMass();
  double z_m = 0.05;
  ASSERT_NO_FATAL_FAILURE(Advance(
      *run, 60, 30,
      [&] {
        z_m -= 0.0005;
        run->MoveTool({0, 0, z_m}, 0, z_m < 0.049);  // a pedal counts once it has been up
      },
      check));
  // To and fro along a line, the device upright throughout: the trocar tilts the shaft.
  int step = 0;
  const auto sweep = [&] {
    ++step;
    run->MoveTool({0.02 * std::sin(2 * std::numbers::pi * step / 120), 0, 0.016 - 0.00002 * step}, 0, true);
  };
  ASSERT_NO_FATAL_FAILURE(Advance(*run, run->frame().step() + 240, 60, sweep, check));
  EXPECT_GT(most_tilt_rad, 0.15);
  EXPECT_LT(most_tilt_rad, 0.3) << "20 mm to the side, 75 mm below the pivot";
  const double removed_kg = run->frame().tools(0).removed_mass_kg();
  EXPECT_GT(removed_kg, 0.001);
  EXPECT_NEAR(run->TotalMass(), whole_kg - removed_kg, 1e-6 * whole_kg);
  // Out, and farther to the side than the trocar lets it.
  for (int i = 0; i < 200; ++i) {
    run->MoveTool({0.0008 * std::min(i, 150), 0, 0.05});
    ASSERT_NO_FATAL_FAILURE(run->Step());
    check();
  }
  EXPECT_NEAR(tilt_rad, trocar.max_tilt_rad(), 1e-3);
  EXPECT_LT(off_m, 1e-5) << "at rest the shaft passes through the pivot";
}

TEST_F(Scenes, ForcepsHoldPullAndLetGo) {
  const std::unique_ptr<SceneRun> run = Load("grasp", "forceps");
  ASSERT_NE(run, nullptr);
  constexpr double kOpen_rad = 1.2;
  double z_m = 0.05;
  double jaw_rad = kOpen_rad;
  const auto go = [&](uint64_t steps, double to_m) {
    const double step_m = (to_m - z_m) / static_cast<double>(steps);
    Advance(*run, run->frame().step() + steps, 30, [&] { run->MoveTool({0, 0, z_m += step_m}, jaw_rad); });
  };
  const auto highest_m = [&] {
    double z = -1;
    for (const Vector3d& p : run->positions(0)) z = std::max(z, p.z());
    return z;
  };
  ASSERT_NO_FATAL_FAILURE(go(60, z_m));    // the jaws open
  ASSERT_NO_FATAL_FAILURE(go(80, 0.003));  // astride
  EXPECT_EQ(run->frame().tools(0).grasped_vertices(), 0U);
  jaw_rad = 0;
  ASSERT_NO_FATAL_FAILURE(go(90, z_m));
  EXPECT_GE(run->frame().tools(0).grasped_vertices(), 4U);
  EXPECT_GT(run->frame().tools(0).jaw_angle_rad(), 0.1) << "there is tissue between";
  const auto& activities = run->frame().tools(0).activities();
  EXPECT_NE(std::find(activities.begin(), activities.end(), v1::TOOL_ACTIVITY_GRASPING), activities.end());
  const double before_m = highest_m();
  ASSERT_NO_FATAL_FAILURE(go(60, 0.009));
  EXPECT_GT(highest_m(), before_m + 0.002);
  EXPECT_LT(run->frame().tools(0).force_n().z(), -0.1) << "the tissue pulls back";
  jaw_rad = kOpen_rad;
  ASSERT_NO_FATAL_FAILURE(go(60, z_m));
  EXPECT_EQ(run->frame().tools(0).grasped_vertices(), 0U);
}

// Instruments and kinds of bodies that no scene of the folder has, at the ridge of grasp.json: 12 mm wide in x, its top at z = 10 mm.
v1::InstrumentSpec& Become(v1::SceneSpec* spec, v1::InstrumentKind kind, v1::ToolDrive drive) {
  v1::ToolSpec& tool = *spec->mutable_tools(0);
  tool.set_drive(drive);
  tool.clear_instrument();
  tool.mutable_instrument()->set_kind(kind);
  return *tool.mutable_instrument();
}

TEST_F(Scenes, AScalpelCutsAgainstTheToughness) {
  static constexpr double kToughness_j_per_m2 = 15;
  const std::unique_ptr<SceneRun> run = Load("grasp", "forceps", [](v1::SceneSpec* spec) {
    Become(spec, v1::INSTRUMENT_KIND_SCALPEL, v1::TOOL_DRIVE_DIRECT).set_blade_length_m(0.03);
    spec->mutable_bodies(0)->mutable_material()->set_fracture_toughness_j_per_m2(kToughness_j_per_m2);
  });
  ASSERT_NE(run, nullptr);
  const double whole_kg = run->TotalMass();
  const auto cut_triangles = [&] {
    const client::TopologyMirror::Body& body = run->topology(0);
    return body.triangles.size() - static_cast<size_t>(std::count(body.zones.begin(), body.zones.end(), 0U));
  };
  EXPECT_EQ(cut_triangles(), 0U);
  // The edge points along x and goes down through the ridge, from one side to the other.
  int cutting = 0;
  double largest_n = 0;
  double z_m = 0.05;
  ASSERT_NO_FATAL_FAILURE(Advance(
      *run, 60, 20,
      [&] {
        run->MoveTool({-0.015, 0.001, z_m = std::max(0.001, z_m - 0.001)});
      },
      [&] {
        cutting += Does(*run, v1::TOOL_ACTIVITY_CUTTING) ? 1 : 0;
        largest_n = std::max(largest_n, ToEigen(run->frame().tools(0).force_n()).norm());
      }));
  EXPECT_NEAR(largest_n, kToughness_j_per_m2 * 0.012, 0.03) << "across a ridge of 12 mm, somewhat wider where it is pressed";
  EXPECT_GE(cutting, 5);
  EXPECT_GT(cut_triangles(), 10U);
  EXPECT_NEAR(run->TotalMass(), whole_kg, 1e-6 * whole_kg) << "a blade removes nothing";
  EXPECT_EQ(run->frame().tools(0).removed_mass_kg(), 0);
}

TEST_F(Scenes, AHookBurns) {
  const std::unique_ptr<SceneRun> run = Load("grasp", "forceps", [](v1::SceneSpec* spec) {
    Become(spec, v1::INSTRUMENT_KIND_CAUTERY_HOOK, v1::TOOL_DRIVE_DIRECT);
    spec->mutable_bodies(0)->mutable_ablation()->set_energy_j_per_kg(2e4);
  });
  ASSERT_NE(run, nullptr);
  const double whole_kg = run->TotalMass();
  ASSERT_NO_FATAL_FAILURE(Advance(*run, 20, 20, [&] { run->MoveTool({0, 0, 0.0135}); }));
  EXPECT_EQ(run->frame().tools(0).removed_mass_kg(), 0) << "the pedal is up";
  ASSERT_NO_FATAL_FAILURE(Advance(*run, 80, 20, [&] { run->MoveTool({0, 0, 0.0125}, 0, /*pedal=*/true); }));
  const double removed_kg = run->frame().tools(0).removed_mass_kg();
  EXPECT_GT(removed_kg, 1e-5);
  EXPECT_NEAR(run->TotalMass(), whole_kg - removed_kg, 1e-6 * whole_kg);
}

TEST_F(Scenes, AClipStaysWhenTheApplierHasLetGo) {
  const std::unique_ptr<SceneRun> run = Load("grasp", "forceps", [](v1::SceneSpec* spec) {
    const double force_n = spec->tools(0).instrument().max_grasp_force_n();
    v1::InstrumentSpec& applier = Become(spec, v1::INSTRUMENT_KIND_CLIP_APPLIER, v1::TOOL_DRIVE_COUPLED);
    applier.set_max_jaw_angle_rad(1.2);
    applier.set_max_grasp_force_n(force_n);
  });
  ASSERT_NE(run, nullptr);
  std::vector<size_t> top;
  for (size_t v = 0; v < run->positions(0).size(); ++v) {
    const Vector3d& p = run->positions(0)[v];
    if (p.z() > 0.0099 && std::abs(p.y()) < 0.003) top.push_back(v);
  }
  ASSERT_GE(top.size(), 3U);
  const auto width_m = [&] {
    Eigen::AlignedBox3d box;
    for (const size_t v : top) box.extend(run->positions(0)[v]);
    return box.sizes().x();
  };
  const double rest_m = width_m();
  double z_m = 0.05;
  double jaw_rad = 1.2;
  bool pedal = false;
  const auto go = [&](uint64_t steps, double to_m) {
    const double step_m = (to_m - z_m) / static_cast<double>(steps);
    Advance(*run, run->frame().step() + steps, 30, [&] { run->MoveTool({0, 0, z_m += step_m}, jaw_rad, pedal); });
  };
  ASSERT_NO_FATAL_FAILURE(go(50, z_m));
  ASSERT_NO_FATAL_FAILURE(go(60, 0.003));
  jaw_rad = 0;
  ASSERT_NO_FATAL_FAILURE(go(90, z_m));
  ASSERT_GE(run->frame().tools(0).grasped_vertices(), 4U);
  const double held_m = width_m();
  ASSERT_LT(held_m, 0.95 * rest_m);
  pedal = true;
  ASSERT_NO_FATAL_FAILURE(go(2, z_m));
  pedal = false;
  jaw_rad = 1.2;
  ASSERT_NO_FATAL_FAILURE(go(40, z_m));
  ASSERT_NO_FATAL_FAILURE(go(40, 0.05));
  EXPECT_EQ(run->frame().tools(0).grasped_vertices(), 0U);
  EXPECT_LT(width_m(), (held_m + rest_m) / 2) << "the clip holds it together";
}

TEST_F(Scenes, AToolThatProjectsKeepsTheSurfaceOut) {
  const std::unique_ptr<SceneRun> run = Load("grasp", "forceps", [](v1::SceneSpec* spec) {
    Become(spec, v1::INSTRUMENT_KIND_PROBE, v1::TOOL_DRIVE_DIRECT);
    spec->mutable_tools(0)->set_response(v1::TOOL_RESPONSE_PROJECTION);
  });
  ASSERT_NE(run, nullptr);
  double z_m = 0.02;
  ASSERT_NO_FATAL_FAILURE(Advance(*run, 50, 20, [&] { run->MoveTool({0.001, 0.001, z_m = std::max(0.0085, z_m - 0.0005)}); }));
  EXPECT_GT(run->frame().tools(0).force_n().z(), 0.02) << "3 mm deep, at a margin of 1 mm";
  const Vector3d tip_m = ToEigen(run->frame().tools(0).pose().position_m());
  double least_m = 1;
  for (const Vector3d& p : run->positions(0)) {
    const Vector3d from_tip = p - tip_m;
    least_m = std::min(least_m, (from_tip - std::max(0.0, from_tip.z()) * Vector3d::UnitZ()).norm());
  }
  EXPECT_GT(least_m, run->spec().tools(0).radius_m() - 1e-4);
  EXPECT_LT(least_m, run->spec().tools(0).radius_m() + 0.004);
}

TEST_F(Scenes, AHybridBodyBecomesDynamicWhereItIsCut) {
  const std::unique_ptr<SceneRun> run = Load("grasp", "forceps", [](v1::SceneSpec* spec) {
    Become(spec, v1::INSTRUMENT_KIND_PROBE, v1::TOOL_DRIVE_COUPLED);
    v1::BodySpec& body = *spec->mutable_bodies(0);
    body.set_simulation(v1::SIMULATION_HYBRID);
    v1::ZoneSpec& zone = *body.add_zones();
    zone.set_name("end");
    zone.mutable_box()->mutable_min_m()->set_x(-1);
    zone.mutable_box()->mutable_min_m()->set_z(-1);
    zone.mutable_box()->mutable_max_m()->set_x(1);
    zone.mutable_box()->mutable_max_m()->set_y(1);
    zone.mutable_box()->mutable_max_m()->set_z(1);
  });
  ASSERT_NE(run, nullptr);
  const uint32_t all = run->Info().bodies(0).tet_count();
  EXPECT_EQ(run->Info().bodies(0).quasi_static_tets(), all);
  double z_m = 0.016;
  ASSERT_NO_FATAL_FAILURE(Advance(*run, 40, 20, [&] { run->MoveTool({0, -0.01, z_m = std::max(0.01, z_m - 0.0004)}); }));
  EXPECT_GT(run->frame().tools(0).force_n().z(), 0.05);
  v1::EditSceneRequest request;
  v1::Edit& edit = *request.add_edits();
  edit.set_body("ridge");
  edit.mutable_carve()->mutable_region()->mutable_ball()->mutable_center_m()->set_y(0.015);
  edit.mutable_carve()->mutable_region()->mutable_ball()->mutable_center_m()->set_z(0.01);
  edit.mutable_carve()->mutable_region()->mutable_ball()->set_radius_m(0.005);
  const std::vector<v1::EditOutcome> outcomes = run->Perform(request);
  ASSERT_EQ(outcomes.size(), 1U);
  EXPECT_GT(outcomes[0].removed_tets_size(), 0) << outcomes[0].note();
  ASSERT_NO_FATAL_FAILURE(Advance(*run, run->frame().step() + 20, 20));
  const uint32_t still = run->Info().bodies(0).quasi_static_tets();
  EXPECT_GT(still, 0U) << "the zone that nothing has cut";
  EXPECT_LT(still, all);
}

// The scenes that only wait for a hand.
TEST_F(Scenes, TheOthersStayWhereTheyAre) {
  for (const char* const name : {"liver", "slab", "torus", "two-bodies"}) {
    SCOPED_TRACE(name);
    const std::unique_ptr<SceneRun> run = Load(name);
    ASSERT_NE(run, nullptr);
    const Vector3d rest_m = run->Center(0);
    ASSERT_NO_FATAL_FAILURE(Advance(*run, 60, 15));
    // Those that nothing carries but their fixed regions sag a little.
    if (run->spec().obstacles().empty()) {
      EXPECT_LT((run->Center(0) - rest_m).norm(), 0.03);
    }
    for (int b = 0; b < run->body_count() && run->spec().obstacles_size() > 0; ++b) {
      for (const Vector3d& p : run->positions(b)) ASSERT_GT(p.z(), -1e-4) << "below the table";
    }
  }
}

}  // namespace
}  // namespace palpate::scenes_test
