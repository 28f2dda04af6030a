// Random edits of a playing scene, seen by three clients at different paces.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <Eigen/Core>
#include <Eigen/Geometry>

#include "absl/strings/str_cat.h"
#include "clients/cli/own_server.h"
#include "clients/cpp/connection.h"
#include "clients/cpp/scene_client.h"
#include "clients/cpp/watch_stream.h"
#include "tests/support/http_get.h"

namespace palpate::edits_test {
namespace {

using client::TopologyMirror;
using Eigen::Vector3d;
using ::testing::HasSubstr;

constexpr int kEdits = 600;
constexpr int kEditsOfRequest = 4;
constexpr int kLateAt = kEdits / 2;  ///< edits before the late reader comes
constexpr int kRepeatEvery = 40;
constexpr int kMarkers = 200;
constexpr std::chrono::milliseconds kPause(400);  ///< of the reader that takes its time with each message
constexpr double kReach_m = 1;                    ///< of edits

v1::SceneSpec TwoLivers() {
  v1::SceneSpec spec;
  spec.set_dt_s(1.0 / 120);
  spec.mutable_contact()->set_check_intersections(true);
  v1::ObstacleSpec& floor = *spec.add_obstacles();
  floor.set_name("floor");
  floor.mutable_plane()->mutable_point_m()->set_z(-0.06);
  for (int i = 0; i < 2; ++i) {
    v1::BodySpec& body = *spec.add_bodies();
    body.set_name(i == 0 ? "left" : "right");
    body.mutable_generator()->mutable_liver()->set_length_m(0.1);
    body.mutable_generator()->set_edge_length_m(0.017);
    body.mutable_pose()->mutable_position_m()->set_x(0.14 * i);
    body.mutable_texture()->set_pattern(v1::TEXTURE_PATTERN_LIVER);
    body.mutable_texture()->set_tile_size_m(0.03);
    if (i == 0) {
      body.mutable_texture()->mutable_planar();
    } else {
      body.mutable_texture()->mutable_spherical();
    }
    v1::Box& box = *body.add_fixed()->mutable_box();
    box.mutable_min_m()->set_x(-1);
    box.mutable_min_m()->set_y(0.02);
    box.mutable_min_m()->set_z(-1);
    box.mutable_max_m()->set_x(1);
    box.mutable_max_m()->set_y(1);
    box.mutable_max_m()->set_z(1);
  }
  // Over the left one, for edits that grasp: nobody drives it.
  v1::ToolSpec& forceps = *spec.add_tools();
  forceps.set_name("forceps");
  forceps.mutable_rest_pose()->mutable_position_m()->set_z(0.03);
  forceps.mutable_instrument()->set_kind(v1::INSTRUMENT_KIND_FORCEPS);
  return spec;
}

/// A marker of the test, and where it is at rest: in a tet, with these weights.
struct Placed {
  size_t body = 0;
  size_t tet = 0;  ///< slot
  TopologyMirror::Tet vertices{};
  Eigen::Vector4d weights = Eigen::Vector4d::Zero();
};

Vector3d PositionIn(const std::string& positions, uint32_t vertex) {
  std::array<float, 3> xyz{};
  std::memcpy(xyz.data(), positions.data() + size_t{12} * vertex, 12);
  return {xyz[0], xyz[1], xyz[2]};
}

Eigen::Vector4d WeightsOf(const std::array<Vector3d, 4>& x, const Vector3d& p) {
  Eigen::Matrix3d edges;
  for (int c = 0; c < 3; ++c) edges.col(c) = x[static_cast<size_t>(c) + 1] - x[0];
  const Vector3d w = edges.inverse() * (p - x[0]);
  return {1 - w.sum(), w[0], w[1], w[2]};
}

/// Puts markers at random places into the bodies of a scene at rest, as a client sees them.
std::vector<Placed> AddMarkers(const client::Connection& connection, const std::string& scene_id, v1::SceneSpec* spec) {
  v1::WatchRequest request;
  request.set_scene_id(scene_id);
  request.set_with_volume(true);
  client::WatchStream stream(connection, request);
  v1::WatchUpdate update;
  std::vector<Placed> out;
  if (!stream.Read(&update) || !update.has_keyframe()) return out;
  std::mt19937 random(7);
  std::uniform_real_distribution<double> unit(0.02, 1);
  for (int m = 0; m < kMarkers; ++m) {
    Placed& placed = out.emplace_back();
    placed.body = static_cast<size_t>(m) / (kMarkers / 2);
    const TopologyMirror::Body& body = stream.topology().bodies()[placed.body];
    placed.tet = random() % body.tets.size();
    placed.vertices = body.tets[placed.tet];
    for (int c = 0; c < 4; ++c) placed.weights[c] = unit(random);
    placed.weights /= placed.weights.sum();
    const std::string& positions = update.keyframe().frame().bodies(static_cast<int>(placed.body)).positions();
    Vector3d at = Vector3d::Zero();
    for (int c = 0; c < 4; ++c) at += placed.weights[c] * PositionIn(positions, placed.vertices[static_cast<size_t>(c)]);
    v1::MarkerSpec& marker = *spec->mutable_bodies(static_cast<int>(placed.body))->add_markers();
    marker.set_name(absl::StrCat("m", m));
    marker.mutable_position_m()->set_x(at.x());
    marker.mutable_position_m()->set_y(at.y());
    marker.mutable_position_m()->set_z(at.z());
  }
  stream.Cancel();
  (void)stream.Finish();
  return out;
}

/// A client that watches on a thread of its own. WatchStream itself refuses an update whose arrays do not have the server's hash and a
/// frame of another version than the arrays.
class Reader {
 public:
  /// `placed`: the scene's markers, which a reader with the volume checks against the tets around them; empty: it does not. `pause`: what
  /// it does besides after each message.
  Reader(const client::Connection& connection, const std::string& scene_id, bool with_volume, double max_rate_hz,
         std::vector<Placed> placed = {}, std::chrono::milliseconds pause = {})
      : placed_(std::move(placed)), has_volume_(with_volume), pause_(pause) {
    v1::WatchRequest request;
    request.set_scene_id(scene_id);
    request.set_with_volume(with_volume);
    request.set_max_rate_hz(max_rate_hz);
    stream_ = std::make_unique<client::WatchStream>(connection, request);
    thread_ = std::thread([this] { Run(); });
  }
  ~Reader() { (void)Stop(); }

  /// Ends the stream. What it ended with, if not by us.
  absl::Status Stop() {
    if (thread_.joinable()) {
      HurryUp();
      stream_->Cancel();
      thread_.join();
      status_ = stream_->Finish();
    }
    return absl::IsCancelled(status_) ? absl::OkStatus() : status_;
  }

  /// No more pauses.
  void HurryUp() {
    const std::lock_guard lock(hurry_mutex_);
    hurries_ = true;
    hurry_.notify_all();
  }

  bool has_volume() const { return has_volume_; }
  bool ended() const { return ended_; }
  uint64_t version() const {
    const std::lock_guard lock(mutex_);
    return bodies_version_;
  }
  std::vector<TopologyMirror::Body> bodies() const {
    const std::lock_guard lock(mutex_);
    return bodies_;
  }
  uint64_t step() const { return step_; }
  std::vector<v1::MarkerState> markers() const {
    const std::lock_guard lock(mutex_);
    return markers_;
  }
  size_t markers_in_their_first_tet() const { return in_first_tet_; }
  size_t markers_in_other_tets() const { return in_other_tets_; }
  int keyframes() const { return keyframes_; }
  int deltas() const { return deltas_; }
  size_t messages() const { return messages_; }
  /// Of the messages before the newest keyframe.
  size_t bytes_before_keyframe() const { return bytes_before_keyframe_; }
  uint64_t dropped() const { return dropped_; }
  std::string problem() const {
    const std::lock_guard lock(mutex_);
    return problem_;
  }

  /// A place on the surface of a body that has one left; its name in `body`.
  Vector3d PlaceOnSurface(std::mt19937& random, std::string& body) const {
    const std::lock_guard lock(mutex_);
    for (int tries = 0; tries < 1000; ++tries) {
      const size_t b = random() % bodies_.size();
      if (bodies_[b].triangles.empty()) continue;
      const TopologyMirror::Triangle& triangle = bodies_[b].triangles[random() % bodies_[b].triangles.size()];
      if (triangle == TopologyMirror::kFreeTriangle || positions_[b].empty()) continue;
      float xyz[3];
      std::memcpy(xyz, positions_[b].data() + size_t{12} * triangle[0], 12);
      if (!(std::abs(xyz[2]) < kReach_m)) continue;  // a piece that has fallen far away
      body = bodies_[b].name;
      return {xyz[0], xyz[1], xyz[2]};
    }
    body.clear();
    return Vector3d::Zero();
  }

 private:
  void Run() {
    v1::WatchUpdate update;
    while (stream_->Read(&update)) {
      if (update.has_keyframe()) bytes_before_keyframe_ = bytes_.load();
      bytes_ += update.ByteSizeLong();
      ++messages_;
      keyframes_ += update.has_keyframe() ? 1 : 0;
      deltas_ += update.has_delta() ? 1 : 0;
      const v1::Frame* frame = update.has_frame() ? &update.frame() : update.has_keyframe() ? &update.keyframe().frame() : nullptr;
      if (frame != nullptr) Take(*frame);
      std::unique_lock lock(hurry_mutex_);
      hurry_.wait_for(lock, pause_, [this] { return hurries_; });
    }
    ended_ = true;
  }

  void Take(const v1::Frame& frame) {
    const std::lock_guard lock(mutex_);
    if (bodies_version_ != stream_->topology().version()) {
      bodies_ = stream_->topology().bodies();
      bodies_version_ = stream_->topology().version();
    }
    positions_.clear();
    dropped_ = frame.dropped();
    const auto note = [this, &frame](const std::string& what) {
      if (problem_.empty()) problem_ = absl::StrCat("step ", frame.step(), ", version ", frame.topology_version(), ": ", what);
    };
    if (!frame.failure().empty()) note(frame.failure());
    if (frame.stats().contact().intersection_count() > 0)
      note(absl::StrCat(frame.stats().contact().intersection_count(), " intersections"));
    if (frame.step() > 0 && !frame.stats().contact().intersections_checked()) note("nobody looked for intersections");
    for (size_t b = 0; b < bodies_.size(); ++b) {
      const std::string& bytes = frame.bodies(static_cast<int>(b)).positions();
      positions_.push_back(bytes);
      if (bytes.size() != size_t{12} * bodies_[b].vertex_count)
        note(absl::StrCat(bytes.size(), " bytes of positions of ", bodies_[b].name));
      for (size_t at = 0; at + 4 <= bytes.size(); at += 4) {
        float x = 0;
        std::memcpy(&x, bytes.data() + at, 4);
        if (!std::isfinite(x)) note("a position is not finite");
      }
    }
    markers_.assign(frame.markers().begin(), frame.markers().end());
    for (size_t m = 0; m < placed_.size(); ++m) {
      if (const std::string wrong = WrongOf(m, frame); !wrong.empty()) note(absl::StrCat("marker ", m, " ", wrong));
    }
    step_ = frame.step();
    for (const v1::SurfaceContact& contact : frame.surface_contacts()) {
      const int of_a = contact.kind() == v1::SURFACE_CONTACT_KIND_EDGE_EDGE ? 2 : 1;
      for (int i = 0; i < contact.vertices_size(); ++i) {
        const uint32_t body = i < of_a ? contact.body_a() : contact.body_b();
        if (body >= bodies_.size() || contact.vertices(i) >= bodies_[body].vertex_count) note("a contact names a vertex that is not there");
      }
    }
  }

  /// What is wrong with a marker: as long as its first tet is there it goes with its vertices, and then with some tet of its body.
  std::string WrongOf(size_t m, const v1::Frame& frame) {
    if (m >= markers_.size()) return "is missing";
    const v1::MarkerState& marker = markers_[m];
    const Vector3d at(marker.position_m().x(), marker.position_m().y(), marker.position_m().z());
    const Placed& placed = placed_[m];
    const std::vector<TopologyMirror::Tet>& tets = bodies_[placed.body].tets;
    if (placed.tet < tets.size() && tets[placed.tet] == placed.vertices) {
      if (marker.is_released()) return "is released, and its first tet is there";
      if (marker.body_index() != placed.body) return "is in another body than its tet";
      Vector3d expected = Vector3d::Zero();
      for (int c = 0; c < 4; ++c) {
        expected += placed.weights[c] * PositionIn(positions_[placed.body], placed.vertices[static_cast<size_t>(c)]);
      }
      ++in_first_tet_;
      return (expected - at).norm() < 1e-7 ? "" : absl::StrCat("is ", (expected - at).norm(), " m from its tet's point");
    }
    if (marker.is_released() || frame.step() % 16 != 0) return "";
    const TopologyMirror::Body& body = bodies_[marker.body_index()];
    for (const TopologyMirror::Tet& tet : body.tets) {
      if (tet == TopologyMirror::kFreeTet) continue;
      std::array<Vector3d, 4> x;
      Eigen::AlignedBox3d box;
      for (size_t c = 0; c < 4; ++c) {
        x[c] = PositionIn(positions_[marker.body_index()], tet[c]);
        box.extend(x[c]);
      }
      if (box.exteriorDistance(at) > 1e-6 || WeightsOf(x, at).minCoeff() < -1e-3) continue;
      ++in_other_tets_;
      return "";
    }
    return absl::StrCat("lies in no tet of ", body.name);
  }

  const std::vector<Placed> placed_;
  const bool has_volume_;
  const std::chrono::milliseconds pause_;
  std::mutex hurry_mutex_;
  std::condition_variable hurry_;
  bool hurries_ = false;
  std::unique_ptr<client::WatchStream> stream_;
  std::thread thread_;
  absl::Status status_;
  std::atomic<bool> ended_ = false;
  std::atomic<int> keyframes_ = 0;
  std::atomic<int> deltas_ = 0;
  std::atomic<size_t> messages_ = 0, bytes_ = 0, bytes_before_keyframe_ = 0;
  std::atomic<uint64_t> dropped_ = 0;
  mutable std::mutex mutex_;
  std::vector<TopologyMirror::Body> bodies_;  ///< of the newest frame
  uint64_t bodies_version_ = 0;
  std::vector<std::string> positions_;
  std::vector<v1::MarkerState> markers_;
  std::atomic<uint64_t> step_ = 0;
  std::atomic<size_t> in_first_tet_ = 0, in_other_tets_ = 0;
  std::string problem_;
};

void Set(const Vector3d& from, v1::Vec3& to) {
  to.set_x(from.x());
  to.set_y(from.y());
  to.set_z(from.z());
}

/// Carves, refines or incises around a place of the surface, or changes the material there, or takes hold or lets go.
void AddRandomEdit(const Reader& reader, std::mt19937& random, v1::EditSceneRequest& request) {
  std::normal_distribution<double> normal;
  const auto direction = [&] { return Vector3d(normal(random), normal(random), normal(random)).normalized(); };
  v1::Edit& edit = *request.add_edits();
  const Vector3d place = reader.PlaceOnSurface(random, *edit.mutable_body());
  const auto ball = [&place](double radius_m, v1::EditRegion& region) {
    Set(place, *region.mutable_ball()->mutable_center_m());
    region.mutable_ball()->set_radius_m(radius_m);
  };
  switch (random() % 11) {
    case 0:
      edit.clear_body();
      edit.mutable_grasp()->set_tool("forceps");
      edit.mutable_grasp()->set_radius_m(0.03);
      break;
    case 1:
      if (random() % 2 == 0) {
        edit.clear_body();
        edit.mutable_release()->set_tool("forceps");
        break;
      }
      edit.mutable_material()->mutable_material()->set_young_modulus_pa(3000 + 1000 * static_cast<double>(random() % 8));
      edit.mutable_material()->mutable_material()->set_poisson_ratio(0.3 + 0.05 * static_cast<double>(random() % 4));
      break;
    case 2:
    case 3:
    case 4:
      ball(0.006, *edit.mutable_carve()->mutable_region());
      break;
    case 5:
    case 6:
    case 7:
      ball(0.008, *edit.mutable_refine()->mutable_region());
      edit.mutable_refine()->set_max_edge_m(0.012);
      edit.mutable_refine()->set_tet_budget(800);
      break;
    default: {
      const Vector3d edge = 0.012 * direction();
      const Vector3d way = 0.01 * direction();
      for (const double at : {-1.0, 0.0, 1.0}) {
        v1::BladeEdge& blade = *edit.mutable_incise()->add_edges();
        Set(place + at * way - edge, *blade.mutable_end0_m());
        Set(place + at * way + edge, *blade.mutable_end1_m());
      }
    }
  }
}

v1::EditSceneRequest RandomEdits(const std::string& scene_id, const Reader& reader, std::mt19937& random) {
  v1::EditSceneRequest request;
  request.set_scene_id(scene_id);
  for (int i = 0; i < kEditsOfRequest; ++i) AddRandomEdit(reader, random, request);
  return request;
}

TEST(Edits, ClientsOfAllPacesConvergeAfterRandomEdits) {
  const absl::StatusOr<cli::OwnServer> server = cli::OwnServer::Start({.program = PALPATE_SERVER_BINARY, .http = "off"});
  ASSERT_TRUE(server.ok()) << server.status();
  // Each reader has a channel of its own, as other machines have them.
  client::ConnectionOptions address;
  address.target = server->target();
  const auto connect = [&] { return *client::Connection::Open(address); };
  client::SceneClient client(server->connection(), std::chrono::minutes(5));
  v1::CreateSceneRequest create;
  *create.mutable_spec() = TwoLivers();
  create.mutable_rate()->set_mode(v1::RATE_MODE_AS_FAST_AS_POSSIBLE);
  const absl::StatusOr<v1::SceneInfo> unmarked = client.Create(create);
  ASSERT_TRUE(unmarked.ok()) << unmarked.status();
  const std::vector<Placed> placed = AddMarkers(server->connection(), unmarked->scene_id(), create.mutable_spec());
  ASSERT_EQ(placed.size(), static_cast<size_t>(kMarkers));
  ASSERT_TRUE(client.Delete(unmarked->scene_id()).ok());
  const absl::StatusOr<v1::SceneInfo> created = client.Create(create);
  ASSERT_TRUE(created.ok()) << created.status();
  const std::string id = created->scene_id();

  ASSERT_TRUE(client.Play(id).ok());

  auto first = std::make_unique<Reader>(connect(), id, /*with_volume=*/true, 10000, placed);
  auto slow = std::make_unique<Reader>(connect(), id, /*with_volume=*/false, 2);
  auto stalled = std::make_unique<Reader>(connect(), id, true, 10000, std::vector<Placed>{}, kPause);
  std::unique_ptr<Reader> late;
  while (first->version() == 0 && !first->ended()) std::this_thread::sleep_for(std::chrono::milliseconds(5));

  std::mt19937 random(2026);
  uint64_t version = 1;
  size_t removed = 0;
  size_t added = 0;
  size_t pieces = 0;
  size_t grasped = 0;
  std::map<v1::Edit::EditCase, int> kinds;
  std::set<std::string> released;
  std::vector<std::pair<v1::EditSceneRequest, v1::EditSceneResponse>> done;
  for (int i = 0; i < kEdits; i += kEditsOfRequest) {
    if (i == kLateAt) late = std::make_unique<Reader>(connect(), id, false, 10000);
    v1::EditSceneRequest request = RandomEdits(id, *first, random);
    request.set_key(absl::StrCat("edit ", i));
    const absl::StatusOr<v1::EditSceneResponse> response = client.Edit(request);
    ASSERT_TRUE(response.ok()) << "edit " << i << ": " << response.status() << "\n" << request.ShortDebugString();
    ASSERT_FALSE(response->is_repeat());
    ASSERT_GE(response->topology_version(), version);
    version = response->topology_version();
    ASSERT_EQ(response->outcomes_size(), kEditsOfRequest);
    for (const v1::EditOutcome& outcome : response->outcomes()) {
      removed += static_cast<size_t>(outcome.removed_tets_size());
      added += static_cast<size_t>(outcome.added_tets_size());
      pieces += static_cast<size_t>(outcome.new_bodies_size());
      grasped += outcome.grasped_vertices();
      for (const std::string& marker : outcome.released_markers()) EXPECT_TRUE(released.insert(marker).second) << marker;
    }
    for (const v1::Edit& edit : request.edits()) ++kinds[edit.edit_case()];
    done.emplace_back(std::move(request), *response);
    if (i % kRepeatEvery == 0) {
      const auto& [again, answer] = done[random() % done.size()];
      absl::StatusOr<v1::EditSceneResponse> repeat = client.Edit(again);
      ASSERT_TRUE(repeat.ok()) << repeat.status();
      EXPECT_TRUE(repeat->is_repeat());
      repeat->set_is_repeat(false);
      EXPECT_EQ(repeat->SerializeAsString(), answer.SerializeAsString());
      v1::EditSceneRequest other = again;
      other.add_edits()->set_body("left");
      other.mutable_edits(kEditsOfRequest)->mutable_carve()->mutable_region()->mutable_ball()->set_radius_m(1);
      EXPECT_THAT(std::string(client.Edit(other).status().message()), HasSubstr("was used for another request"));
      v1::EditSceneRequest bad = RandomEdits(id, *first, random);
      bad.mutable_edits(0)->set_body("spleen");
      bad.mutable_edits(0)->mutable_carve()->mutable_region()->mutable_ball()->set_radius_m(0.006);
      EXPECT_EQ(client.Edit(bad).status().message(), "edits[0].body: the scene has no body \"spleen\"");
      bad.set_expected_topology_version(version + 1);
      EXPECT_EQ(client.Edit(bad).status().code(), absl::StatusCode::kFailedPrecondition);
    }
    ASSERT_FALSE(first->ended()) << first->Stop();
    ASSERT_EQ(first->problem(), "") << "edit " << i;
  }
  const absl::StatusOr<v1::SceneInfo> info = client.Pause(id);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->failure(), "");
  EXPECT_GT(removed, 1000U);
  EXPECT_GT(added, 1000U);
  EXPECT_GT(pieces, 10U);
  EXPECT_GT(grasped, 10U);
  EXPECT_EQ(kinds.size(), 6U) << "every kind of edit";
  for (const auto& [kind, count] : kinds) EXPECT_GT(count, 10) << "edits of kind " << kind;

  // Who comes last of all gets what the server has, and the others must have the same.
  Reader surface(connect(), id, false, 10000);
  Reader volume(connect(), id, true, 10000);
  stalled->HurryUp();
  for (const Reader* reader : {first.get(), slow.get(), stalled.get(), late.get(), &surface, &volume}) {
    while ((reader->version() != version || reader->step() != info->step()) && !reader->ended())
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(reader->version(), version);
  }
  size_t textured = 0;
  for (const Reader* reader : {first.get(), slow.get(), stalled.get(), late.get()}) {
    EXPECT_EQ(reader->problem(), "");
    const std::vector<TopologyMirror::Body> mine = reader->bodies();
    const std::vector<TopologyMirror::Body> servers = (reader->has_volume() ? volume : surface).bodies();
    ASSERT_EQ(mine.size(), servers.size());
    ASSERT_EQ(mine.size(), static_cast<size_t>(info->bodies_size()));
    for (size_t b = 0; b < mine.size(); ++b) {
      EXPECT_EQ(mine[b].mesh_hash, servers[b].mesh_hash) << mine[b].name;
      EXPECT_EQ(mine[b].triangles, servers[b].triangles) << mine[b].name;
      EXPECT_EQ(mine[b].tets, servers[b].tets) << mine[b].name;
      EXPECT_EQ(mine[b].fixed, servers[b].fixed) << mine[b].name;
      EXPECT_EQ(mine[b].texture_coordinates, servers[b].texture_coordinates) << mine[b].name;
      textured += static_cast<size_t>(std::count_if(mine[b].texture_coordinates.begin(), mine[b].texture_coordinates.end(),
                                                    [](const std::array<float, 2>& uv) { return uv[0] != 0 || uv[1] != 0; }));
      EXPECT_EQ(mine[b].triangle_count(), info->bodies(static_cast<int>(b)).surface_triangle_count()) << mine[b].name;
      if (reader->has_volume()) {
        EXPECT_EQ(mine[b].tet_count(), info->bodies(static_cast<int>(b)).tet_count()) << mine[b].name;
      }
    }
  }
  EXPECT_GT(textured, 200U);
  // All have the same markers, bit for bit, and those are released that the answers named.
  std::set<std::string> gone;
  size_t in_pieces = 0;
  const std::vector<v1::MarkerState> markers = volume.markers();
  ASSERT_EQ(markers.size(), static_cast<size_t>(kMarkers));
  for (size_t m = 0; m < markers.size(); ++m) {
    if (markers[m].is_released()) gone.insert(absl::StrCat("m", m));
    in_pieces += !markers[m].is_released() && markers[m].body_index() > 1 ? 1 : 0;
    for (const Reader* reader : {first.get(), slow.get(), stalled.get(), late.get(), &surface}) {
      EXPECT_EQ(reader->markers()[m].SerializeAsString(), markers[m].SerializeAsString()) << m;
    }
  }
  EXPECT_EQ(gone, released);
  EXPECT_GT(released.size(), 10U);
  EXPECT_LT(released.size(), static_cast<size_t>(kMarkers));
  EXPECT_GT(first->markers_in_their_first_tet(), 1000U);
  EXPECT_GT(first->markers_in_other_tets(), 100U);
  std::printf("%d markers: %zu released, %zu in pieces\n", kMarkers, released.size(), in_pieces);
  std::printf("%d edits in %lu steps: %zu tets removed, %zu added, %zu pieces, version %lu\n", kEdits,
              static_cast<unsigned long>(info->step()), removed, added, pieces, static_cast<unsigned long>(version));
  for (const auto& [name, reader] : {std::pair("first", first.get()), std::pair("slow", slow.get()), std::pair("stalled", stalled.get()),
                                     std::pair("late", late.get())}) {
    std::printf("%-7s reader: %d keyframes, %d deltas, %lu frames missed\n", name, reader->keyframes(), reader->deltas(),
                static_cast<unsigned long>(reader->dropped()));
    EXPECT_GT(reader->deltas(), 0) << name;
  }
  EXPECT_LT(slow->deltas(), first->deltas()) << "deltas of skipped versions are merged";
  EXPECT_LT(stalled->deltas(), first->deltas());
  EXPECT_GT(stalled->dropped(), first->dropped()) << "what a reader does not take is not kept for it";
  for (Reader* reader : {first.get(), slow.get(), stalled.get(), late.get(), &surface, &volume}) {
    const absl::Status status = reader->Stop();
    EXPECT_TRUE(status.ok()) << status;
  }

  // And back: a reset undoes everything.
  const absl::StatusOr<v1::SceneInfo> reset = client.Reset(id);
  ASSERT_TRUE(reset.ok()) << reset.status();
  EXPECT_EQ(reset->step(), 0U);
  ASSERT_EQ(reset->bodies_size(), 2);
  EXPECT_EQ(reset->bodies(0).tet_count(), created->bodies(0).tet_count());
  EXPECT_EQ(reset->state_hash(), created->state_hash());
  // A key stays known.
  const absl::StatusOr<v1::EditSceneResponse> old = client.Edit(done.back().first);
  ASSERT_TRUE(old.ok()) << old.status();
  EXPECT_TRUE(old->is_repeat());
}

/// A value of the server's metrics page; -1: it is not there.
double Metric(int http_port, const std::string& name) {
  const std::string page = test::HttpGet(http_port, "/metrics");
  const size_t at = page.find(absl::StrCat("\n", name, " "));
  return at == std::string::npos ? -1 : std::strtod(page.c_str() + at + 1 + name.size(), nullptr);
}

/// A reader that takes nothing while 24 changes are made, of a server that keeps `kept_versions` for such readers (0: its default), and one
/// that keeps up. Expects the same arrays of both at the end; what the first one got instead of the changes that it missed is told.
void StallThenCatchUp(int kept_versions, int* keyframes, int* deltas) {
  constexpr uint64_t kChanges = 24;
  constexpr size_t kWindow = 64 << 10;
  cli::OwnServerOptions options = {.program = PALPATE_SERVER_BINARY};
  if (kept_versions > 0) options.arguments = {"--max-kept-versions", absl::StrCat(kept_versions)};
  const absl::StatusOr<cli::OwnServer> server = cli::OwnServer::Start(options);
  ASSERT_TRUE(server.ok()) << server.status();
  client::SceneClient client(server->connection(), std::chrono::minutes(5));
  v1::CreateSceneRequest create;
  *create.mutable_spec() = TwoLivers();
  create.mutable_rate()->set_mode(v1::RATE_MODE_AS_FAST_AS_POSSIBLE);
  const absl::StatusOr<v1::SceneInfo> created = client.Create(create);
  ASSERT_TRUE(created.ok()) << created.status();
  const std::string id = created->scene_id();
  const auto metric = [&](const char* name) { return Metric(server->http_port(), absl::StrCat(name, "{scene=\"", id, "\"}")); };

  // What the reader's machine takes in for it stays small, so that it is the server that has to wait.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, static_cast<int>(kWindow));
  const auto connection =
      client::Connection::FromChannel(grpc::CreateCustomChannel(server->target(), grpc::InsecureChannelCredentials(), arguments));
  Reader stalled(connection, id, true, 10000, {}, std::chrono::hours(1));
  while (stalled.messages() == 0 && !stalled.ended()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ASSERT_EQ(stalled.keyframes(), 1);
  ASSERT_TRUE(client.Play(id).ok());
  // Nobody else watches: when the scene goes on and no frame goes out, the stream is full.
  for (double sent = -1, step = 0;;) {
    const double now_sent = metric("palpate_frames_total");
    const double now_step = metric("palpate_steps_total");
    ASSERT_GE(now_step, 0);
    if (now_sent != sent) {
      sent = now_sent;
      step = now_step;
    } else if (now_step > step + 500) {
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

  client::ConnectionOptions address;
  address.target = server->target();
  Reader quick(*client::Connection::Open(address), id, true, 10000);
  while (quick.version() == 0 && !quick.ended()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::mt19937 random(5);
  uint64_t version = 1;
  const auto edit = [&] {
    v1::EditSceneRequest request;
    request.set_scene_id(id);
    AddRandomEdit(quick, random, request);
    const absl::StatusOr<v1::EditSceneResponse> response = client.Edit(request);
    ASSERT_TRUE(response.ok()) << response.status();
    version = response->topology_version();
  };
  while (version <= kChanges) {
    ASSERT_NO_FATAL_FAILURE(edit());
    while (quick.version() < version && !quick.ended()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_FALSE(quick.ended()) << quick.Stop();
  }
  EXPECT_EQ(stalled.messages(), 1U);
  const absl::StatusOr<v1::SceneInfo> info = client.Pause(id);
  ASSERT_TRUE(info.ok()) << info.status();
  stalled.HurryUp();
  const auto wait = [&](uint64_t step) {
    for (const Reader* reader : {&stalled, &quick}) {
      while ((reader->version() != version || reader->step() != step) && !reader->ended()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      ASSERT_EQ(reader->version(), version);
      EXPECT_EQ(reader->problem(), "");
    }
    const std::vector<TopologyMirror::Body> bodies = stalled.bodies();
    const std::vector<TopologyMirror::Body> quicks = quick.bodies();
    ASSERT_EQ(bodies.size(), quicks.size());
    for (size_t b = 0; b < bodies.size(); ++b) {
      EXPECT_EQ(bodies[b].mesh_hash, quicks[b].mesh_hash) << bodies[b].name;
      EXPECT_EQ(bodies[b].triangles, quicks[b].triangles) << bodies[b].name;
      EXPECT_EQ(bodies[b].tets, quicks[b].tets) << bodies[b].name;
      EXPECT_EQ(bodies[b].texture_coordinates, quicks[b].texture_coordinates) << bodies[b].name;
    }
  };
  ASSERT_NO_FATAL_FAILURE(wait(info->step()));
  EXPECT_EQ(quick.keyframes(), 1);
  EXPECT_EQ(static_cast<uint64_t>(quick.deltas()), version - 1);
  EXPECT_EQ(metric("palpate_topology_keyframes_total"), stalled.keyframes() - 1);
  EXPECT_GT(stalled.dropped(), 500U);
  *keyframes = stalled.keyframes();
  *deltas = stalled.deltas();
  std::printf("kept versions %d: %d keyframes and %d deltas for %lu changes, %lu frames not kept, %zu bytes before the keyframe\n",
              kept_versions, *keyframes, *deltas, static_cast<unsigned long>(version - 1), static_cast<unsigned long>(stalled.dropped()),
              stalled.bytes_before_keyframe());
  // What was under way when it stopped reading: the window of the stream and a message or two.
  if (*keyframes > 1) {
    EXPECT_LT(stalled.bytes_before_keyframe(), 16 * kWindow);
  }
  // And it goes on from there.
  for (int i = 0; i < 8; ++i) ASSERT_NO_FATAL_FAILURE(edit());
  ASSERT_NO_FATAL_FAILURE(wait(info->step()));
  EXPECT_EQ(stalled.keyframes(), *keyframes);
}

TEST(Edits, AReaderThatMissedMoreThanIsKeptGetsAKeyframe) {
  int keyframes = 0;
  int deltas = 0;
  ASSERT_NO_FATAL_FAILURE(StallThenCatchUp(8, &keyframes, &deltas));
  EXPECT_EQ(keyframes, 2);
  EXPECT_EQ(deltas, 0);
}

// The same stall and the same changes: what is kept makes the difference.
TEST(Edits, AReaderThatMissedLessThanIsKeptGetsADelta) {
  int keyframes = 0;
  int deltas = 0;
  ASSERT_NO_FATAL_FAILURE(StallThenCatchUp(0, &keyframes, &deltas));
  EXPECT_EQ(keyframes, 1);
  EXPECT_GT(deltas, 0);
}

}  // namespace
}  // namespace palpate::edits_test
