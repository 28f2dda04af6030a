// Deltas as the server encodes them, applied by the client's copy, against the arrays they come from.
#include "clients/cpp/topology_mirror.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "server/api/topology.h"
#include "sim/mesh/generators.h"
#include "sim/mesh/tet_mesh.h"

namespace palpate::topology_mirror_test {
namespace {

using client::TopologyMirror;
using server::SceneTopology;
using server::TopologyChange;
using server::TopologyHistory;
using sim::BodyArrays;
using sim::SurfaceSlot;
using ::testing::HasSubstr;
using Triangle = std::array<uint32_t, 3>;
using Tet = std::array<uint32_t, 4>;

/// The places of an array that are in use, by content; free places are taken again, the newest first.
template <typename Key>
class Slots {
 public:
  /// Makes `wanted` the content. Returns the slots that change.
  std::vector<uint32_t> Assign(const std::set<Key>& wanted) {
    std::vector<uint32_t> changed;
    for (auto it = slots_.begin(); it != slots_.end();) {
      if (wanted.contains(it->first)) {
        ++it;
        continue;
      }
      free_.push_back(it->second);
      changed.push_back(it->second);
      it = slots_.erase(it);
    }
    for (const Key& key : wanted) {
      if (slots_.contains(key)) continue;
      uint32_t slot = count_;
      if (free_.empty()) {
        ++count_;
      } else {
        slot = free_.back();
        free_.pop_back();
      }
      slots_.emplace(key, slot);
      changed.push_back(slot);
    }
    std::sort(changed.begin(), changed.end());
    changed.erase(std::unique(changed.begin(), changed.end()), changed.end());
    return changed;
  }
  const std::map<Key, uint32_t>& slots() const { return slots_; }
  uint32_t count() const { return count_; }

 private:
  std::map<Key, uint32_t> slots_;
  std::vector<uint32_t> free_;
  uint32_t count_ = 0;
};

/// A body from which tets are taken and to which they come back, kept by slots as a world does.
class FakeBody {
 public:
  enum class Texture { kNone, kByVertex, kByCorner };
  FakeBody(std::string name, std::string parent, std::vector<uint32_t> fixed, Texture texture)
      : texture_(texture), mesh_(*sim::BoxMesh({4, 4, 4}, {0.1, 0.1, 0.1})) {
    arrays_.name = std::move(name);
    arrays_.parent = std::move(parent);
    arrays_.fixed_vertices = std::move(fixed);
    arrays_.surface_zones = {{"skin", {1, 0, 0}}, {"inside", {0, 1, 0}, true}};
    arrays_.vertex_slot_count = static_cast<uint32_t>(mesh_.vertices.size());
    arrays_.has_texture_corners = texture == Texture::kByCorner;
    present_.assign(mesh_.tets.size(), true);
    Update(0);
  }

  sim::BodyArraysChange Edit(uint32_t body, std::mt19937& random) {
    turn_ = static_cast<uint32_t>(random() % 7);
    for (int i = 0; i < 3; ++i) {
      const size_t t = random() % present_.size();
      present_[t] = !present_[t];
    }
    return Update(body);
  }

  Texture texture() const { return texture_; }
  std::shared_ptr<const BodyArrays> arrays() const { return std::make_shared<BodyArrays>(arrays_); }

 private:
  sim::BodyArraysChange Update(uint32_t body) {
    const BodyArrays before = arrays_;
    sim::TetMesh mesh;
    mesh.vertices = mesh_.vertices;
    std::set<Tet> tets;
    for (size_t t = 0; t < present_.size(); ++t) {
      if (!present_[t]) continue;
      mesh.tets.push_back(mesh_.tets[t]);
      tets.insert(mesh_.tets[t]);
    }
    const sim::BoundarySurface surface = sim::ExtractBoundary(mesh);
    std::set<Triangle> triangles;
    std::set<uint32_t> vertices(surface.vertices.begin(), surface.vertices.end());
    for (const Triangle& t : surface.triangles) {
      triangles.insert({surface.vertices[t[0]], surface.vertices[t[1]], surface.vertices[t[2]]});
    }
    sim::BodyArraysChange change;
    change.body = body;
    vertices_.Assign(vertices);
    triangles_.Assign(triangles);
    change.tets = tets_.Assign(tets);

    arrays_.surface_vertices.assign(vertices_.count(), sim::kNoSlot);
    for (const auto& [vertex, slot] : vertices_.slots()) arrays_.surface_vertices[SurfaceSlot{slot}] = vertex;
    arrays_.surface_triangles.assign(triangles_.count(), sim::kFreeTriangle);
    arrays_.triangle_zones.assign(triangles_.count(), 0);
    arrays_.surface_hash = 0;
    for (const auto& [corners, slot] : triangles_.slots()) {
      std::array<SurfaceSlot, 3>& t = arrays_.surface_triangles[slot];
      for (size_t i = 0; i < 3; ++i) t[i] = SurfaceSlot{vertices_.slots().at(corners[i])};
      arrays_.triangle_zones[slot] = static_cast<uint16_t>(corners[0] % 2);
      arrays_.surface_hash += sim::HashOfTriangle(slot, t, arrays_.triangle_zones[slot]);
    }
    arrays_.tets.assign(tets_.count(), {0, 0, 0, 0});
    arrays_.volume_hash = 0;
    for (const auto& [corners, slot] : tets_.slots()) {
      arrays_.tets[slot] = corners;
      arrays_.volume_hash += sim::HashOfTet(slot, corners);
    }
    if (texture_ == Texture::kByVertex) TextureSurface(before, &change);
    if (texture_ == Texture::kByCorner) TextureCorners();
    for (uint32_t slot = 0; slot < arrays_.surface_triangles.size(); ++slot) {
      if (Corners(before, slot) != Corners(arrays_, slot)) change.triangles.push_back(slot);
    }
    return change;
  }

  /// Coordinates by corner, which belong to the triangle as long as it lives.
  void TextureCorners() {
    arrays_.texture_corners.assign(triangles_.count(), {});
    for (const auto& [corners, slot] : triangles_.slots()) {
      if (corners[0] % 5 == 0) continue;
      for (size_t c = 0; c < 3; ++c) arrays_.texture_corners[slot][c] = {0.25F * static_cast<float>(corners[c] + corners[0]), -1.5F};
      arrays_.surface_hash += sim::HashOfTextureCorners(slot, arrays_.texture_corners[slot]);
      arrays_.volume_hash += sim::HashOfTextureCorners(slot, arrays_.texture_corners[slot]);
    }
  }

  /// Coordinates on the surface, none at some vertices, of which some change with each edit.
  void TextureSurface(const BodyArrays& before, sim::BodyArraysChange* change) {
    arrays_.texture_coordinates.assign(arrays_.vertex_slot_count, {});
    for (const SurfaceSlot slot : arrays_.surface_vertices.indices()) {
      const uint32_t v = arrays_.surface_vertices[slot];
      if (v == sim::kNoSlot || v % 7 == turn_) continue;
      arrays_.texture_coordinates[v] = {0.5F * static_cast<float>(v % 10), -0.25F * static_cast<float>(v / 10)};
      for (float& x : arrays_.texture_coordinates[v]) x += 0.0F;
      arrays_.surface_hash += sim::HashOfTextureCoordinate(slot, arrays_.texture_coordinates[v]);
      arrays_.volume_hash += sim::HashOfTextureCoordinate(v, arrays_.texture_coordinates[v]);
    }
    for (const SurfaceSlot slot : arrays_.surface_vertices.indices()) {
      if (Coordinate(before, slot) != Coordinate(arrays_, slot)) change->texture_places.push_back(slot);
    }
    for (uint32_t v = 0; v < arrays_.vertex_slot_count; ++v) {
      if (before.texture_coordinates.empty() || before.texture_coordinates[v] != arrays_.texture_coordinates[v]) {
        change->texture_vertices.push_back(v);
      }
    }
  }

 public:
  static std::array<float, 2> Coordinate(const BodyArrays& arrays, SurfaceSlot slot) {
    if (!arrays.surface_vertices.contains(slot) || arrays.surface_vertices[slot] >= arrays.texture_coordinates.size()) return {};
    return arrays.texture_coordinates[arrays.surface_vertices[slot]];
  }

 private:
  /// Places, vertices and zone of a triangle.
  static std::vector<uint32_t> Corners(const BodyArrays& arrays, uint32_t slot) {
    if (slot >= arrays.surface_triangles.size()) return {};
    const std::array<SurfaceSlot, 3>& t = arrays.surface_triangles[slot];
    if (t == sim::kFreeTriangle) return {};
    return {ToNumber(t[0]),
            ToNumber(t[1]),
            ToNumber(t[2]),
            arrays.surface_vertices[t[0]],
            arrays.surface_vertices[t[1]],
            arrays.surface_vertices[t[2]],
            arrays.triangle_zones[slot]};
  }

  Texture texture_ = Texture::kNone;
  uint32_t turn_ = 0;
  const sim::TetMesh mesh_;
  std::vector<bool> present_;
  Slots<uint32_t> vertices_;
  Slots<Triangle> triangles_;
  Slots<Tet> tets_;
  BodyArrays arrays_;
};

sim::SceneDescription ThreeBodies() {
  sim::SceneDescription description;
  for (const char* name : {"a", "b", "c"}) {
    sim::BodyDescription body;
    body.name = name;
    body.color = {0.25F, 0.5F, 0.75F};
    body.texture.pattern = sim::TexturePattern::kMuscle;
    body.texture.u_period = 8;
    if (body.name == "c") body.texture.corners.resize(1);
    description.bodies.push_back(std::move(body));
  }
  return description;
}

/// A scene that is edited, with all its versions.
class FakeScene {
 public:
  explicit FakeScene(uint32_t seed) : random_(seed) {
    bodies_.emplace_back("a", "", std::vector<uint32_t>{0, 1, 2, 21, 42}, FakeBody::Texture::kByVertex);
    bodies_.emplace_back("b", "", std::vector<uint32_t>{}, FakeBody::Texture::kNone);
    bodies_.emplace_back("c", "", std::vector<uint32_t>{5}, FakeBody::Texture::kByCorner);
    auto world = std::make_shared<sim::WorldTopology>();
    for (const FakeBody& body : bodies_) world->bodies.push_back(body.arrays());
    topology_ = server::BuildTopology(ThreeBodies(), world);
  }

  void Edit() {
    auto world = std::make_shared<sim::WorldTopology>(*topology_->world);
    world->version = topology_->version + 1;
    world->follows = true;
    world->changes.clear();
    const auto b = static_cast<uint32_t>(random_() % bodies_.size());
    world->changes.push_back(bodies_[b].Edit(b, random_));
    world->bodies[b] = bodies_[b].arrays();
    if (random_() % 20 == 0) {
      bodies_.emplace_back("piece" + std::to_string(bodies_.size()), bodies_[b].arrays()->name, std::vector<uint32_t>{3},
                           bodies_[b].texture());
      world->bodies.push_back(bodies_.back().arrays());
    }
    Take(std::move(world));
  }

  /// Back to three bodies, with a version of its own.
  void Reset() {
    auto world = std::make_shared<sim::WorldTopology>(*topology_->world);
    world->version = topology_->version + 1;
    world->follows = false;
    world->changes.clear();
    while (bodies_.size() > 3) bodies_.pop_back();
    world->bodies.resize(3);
    Take(std::move(world));
  }

  const SceneTopology& topology() const { return *topology_; }
  const TopologyHistory& history() const { return history_; }

 private:
  void Take(std::shared_ptr<const sim::WorldTopology> world) {
    std::shared_ptr<const SceneTopology> after = server::AdvanceTopology(*topology_, std::move(world));
    history_.Append(*topology_, *after);
    topology_ = std::move(after);
  }

  std::mt19937 random_;
  std::vector<FakeBody> bodies_;
  std::shared_ptr<const SceneTopology> topology_;
  TopologyHistory history_;
};

/// A stream of one reader without the frames.
struct Reader {
  explicit Reader(bool volume) : with_volume(volume) {}

  void Update(const FakeScene& scene) {
    if (mirror.version() == scene.topology().version) return;
    const std::optional<TopologyChange> change =
        mirror.version() == 0 ? std::nullopt : scene.history().Between(mirror.version(), scene.topology().version);
    v1::TopologyDelta delta;
    if (change && server::EncodeDelta(scene.topology(), *change, with_volume, delta)) {
      ++deltas;
      const absl::Status status = mirror.Apply(delta);
      ASSERT_TRUE(status.ok()) << status;
    } else {
      ++keyframes;
      v1::Keyframe keyframe;
      server::EncodeTopology(scene.topology(), with_volume, keyframe);
      const absl::Status status = mirror.Apply(keyframe);
      ASSERT_TRUE(status.ok()) << status;
    }
    Compare(scene.topology());
  }

  void Compare(const SceneTopology& topology) const {
    ASSERT_EQ(mirror.version(), topology.version);
    ASSERT_EQ(mirror.bodies().size(), topology.world->bodies.size());
    for (size_t b = 0; b < mirror.bodies().size(); ++b) {
      const BodyArrays& arrays = *topology.world->bodies[b];
      const TopologyMirror::Body& body = mirror.bodies()[b];
      EXPECT_EQ(body.name, arrays.name);
      EXPECT_EQ(body.parent, arrays.parent);
      ASSERT_EQ(body.triangles.size(), arrays.surface_triangles.size());
      for (size_t t = 0; t < body.triangles.size(); ++t) {
        Triangle expected{};
        const bool is_free = arrays.surface_triangles[t] == sim::kFreeTriangle;
        for (size_t c = 0; c < 3 && !is_free; ++c) {
          const SurfaceSlot slot = arrays.surface_triangles[t][c];
          expected[c] = with_volume ? arrays.surface_vertices[slot] : ToNumber(slot);
        }
        ASSERT_EQ(body.triangles[t], expected) << "body " << b << " slot " << t;
        ASSERT_EQ(body.zones[t], arrays.triangle_zones[t]);
      }
      std::vector<uint32_t> fixed;
      if (with_volume) {
        EXPECT_EQ(body.tets, arrays.tets);
        EXPECT_EQ(body.vertex_count, arrays.vertex_slot_count);
        fixed = arrays.fixed_vertices;
      } else {
        EXPECT_EQ(body.vertex_count, arrays.surface_vertices.size());
        EXPECT_EQ(body.mesh_hash, arrays.surface_hash);
        for (const SurfaceSlot slot : arrays.surface_vertices.indices()) {
          if (std::binary_search(arrays.fixed_vertices.begin(), arrays.fixed_vertices.end(), arrays.surface_vertices[slot])) {
            fixed.push_back(ToNumber(slot));
          }
        }
      }
      EXPECT_EQ(body.fixed, fixed) << "body " << b;
      ASSERT_EQ(body.has_texture, arrays.has_texture());
      EXPECT_EQ(body.texture_corners, arrays.texture_corners) << "body " << b;
      if (!body.has_texture || arrays.has_texture_corners) continue;
      EXPECT_EQ(body.texture.pattern(), v1::TEXTURE_PATTERN_MUSCLE);
      EXPECT_EQ(body.texture.u_period(), 8);
      if (with_volume) {
        EXPECT_EQ(body.texture_coordinates, arrays.texture_coordinates) << "body " << b;
        continue;
      }
      ASSERT_EQ(body.texture_coordinates.size(), arrays.surface_vertices.size());
      for (const SurfaceSlot slot : arrays.surface_vertices.indices()) {
        const uint32_t v = ToNumber(slot);
        ASSERT_EQ(body.texture_coordinates[v], FakeBody::Coordinate(arrays, slot)) << "body " << b << " place " << v;
      }
    }
  }

  const bool with_volume;
  TopologyMirror mirror;
  int deltas = 0;
  int keyframes = 0;
};

TEST(MeshHash, IsThatOfTheDocumentation) {
  EXPECT_EQ(client::HashOfTriangle(0, {0, 1, 2}, 0), 0xac0384c8a72943acULL);
  EXPECT_EQ(client::HashOfTriangle(7, {5, 6, 8}, 2), 0x7cd99ce37c3d9b92ULL);
  EXPECT_EQ(client::HashOfTriangle(4294967295U, {4294967294U, 1, 2}, 9), 0x4bd474e54de8c36bULL);
  EXPECT_EQ(client::HashOfTet(0, {0, 1, 2, 3}), 0xb45ef7fd4682d806ULL);
  EXPECT_EQ(client::HashOfTet(11, {13, 17, 19, 23}), 0x9a05db4493505e2eULL);
  EXPECT_EQ(client::HashOfTextureCoordinate(0, {1, 0}), 0xca6b4292f51227c2ULL);
  EXPECT_EQ(client::HashOfTextureCoordinate(7, {0.1F, -2.5F}), 0x41fd161c62c09471ULL);
  EXPECT_EQ(client::HashOfTextureCoordinate(7, {0, 0}), 0U);
  EXPECT_EQ(client::HashOfTextureCorners(0, {{{1, 0}, {0, 1}, {0.5F, 0.5F}}}), 0x845a376a051eb226ULL);
  EXPECT_EQ(client::HashOfTextureCorners(9, {{{0.1F, -2.5F}, {0, 0}, {3, 0.25F}}}), 0xddf37d91c9a95a94ULL);
  EXPECT_EQ(client::HashOfTextureCorners(9, {}), 0U);
  std::mt19937 random(3);
  for (int i = 0; i < 1000; ++i) {
    std::array<uint32_t, 5> n{};
    for (uint32_t& number : n) number = static_cast<uint32_t>(random());
    EXPECT_EQ(client::HashOfTriangle(n[0], {n[1], n[2], n[3]}, n[4]), sim::HashOfTriangle(n[0], Triangle{n[1], n[2], n[3]}, n[4]));
    EXPECT_EQ(client::HashOfTet(n[0], {n[1], n[2], n[3], n[4]}), sim::HashOfTet(n[0], {n[1], n[2], n[3], n[4]}));
    const std::array<float, 2> uv = {static_cast<float>(n[1]), -static_cast<float>(n[2]) / 1024};
    EXPECT_EQ(client::HashOfTextureCoordinate(n[0], uv), sim::HashOfTextureCoordinate(n[0], uv));
    const sim::TextureCorners corners = {uv, {static_cast<float>(n[3]), 0.5F}, {0, static_cast<float>(n[4])}};
    EXPECT_EQ(client::HashOfTextureCorners(n[0], corners), sim::HashOfTextureCorners(n[0], corners));
  }
}

TEST(TopologyMirror, FollowsRandomEditsAtAnyPace) {
  FakeScene scene(1);
  std::mt19937 random(2);
  Reader each(false);
  Reader each_volume(true);
  Reader slow(false);
  Reader slow_volume(true);
  Reader late(true);
  for (int i = 0; i < 600; ++i) {
    if (i > 0) scene.Edit();
    if (i == 300) scene.Reset();
    ASSERT_NO_FATAL_FAILURE(each.Update(scene));
    ASSERT_NO_FATAL_FAILURE(each_volume.Update(scene));
    if (random() % 8 == 0) {
      ASSERT_NO_FATAL_FAILURE(slow.Update(scene));
    }
    if (random() % 8 == 0) {
      ASSERT_NO_FATAL_FAILURE(slow_volume.Update(scene));
    }
    if (i > 500) {
      ASSERT_NO_FATAL_FAILURE(late.Update(scene));
    }
  }
  EXPECT_GT(each.mirror.bodies().size(), 5U);
  EXPECT_EQ(each.mirror.bodies()[3].parent.empty(), false);
  // The beginning and the reset, nothing else.
  EXPECT_EQ(each.keyframes, 2);
  EXPECT_EQ(each_volume.keyframes, 2);
  EXPECT_EQ(late.keyframes, 1);
  EXPECT_GT(slow.deltas, 20);
  EXPECT_GT(slow_volume.deltas, 20);
}

TEST(TopologyMirror, AReaderFarBehindGetsAKeyframe) {
  FakeScene scene(4);
  Reader reader(false);
  ASSERT_NO_FATAL_FAILURE(reader.Update(scene));
  for (size_t i = 0; i < TopologyHistory::kDefaultVersions; ++i) scene.Edit();
  EXPECT_TRUE(scene.history().Between(1, scene.topology().version).has_value());
  scene.Edit();
  EXPECT_FALSE(scene.history().Between(1, scene.topology().version).has_value());
  EXPECT_TRUE(scene.history().Between(2, scene.topology().version).has_value());
  EXPECT_FALSE(scene.history().Between(2, scene.topology().version + 1).has_value());
  ASSERT_NO_FATAL_FAILURE(reader.Update(scene));
  EXPECT_EQ(reader.keyframes, 2);
}

TEST(TopologyMirror, ALongDeltaIsNoDelta) {
  FakeScene scene(5);
  TopologyChange change;
  change.from_version = 1;
  change.body_count = 2;
  const auto count = static_cast<uint32_t>(scene.topology().world->bodies[0]->surface_triangles.size());
  server::BodySlots all;
  for (uint32_t t = 0; t < count; ++t) all.triangles.push_back(t);
  change.bodies = {all};
  v1::TopologyDelta delta;
  EXPECT_TRUE(server::EncodeDelta(scene.topology(), change, false, delta));  // one body of two
  change.bodies.push_back(all);
  change.bodies[1].body = 1;
  EXPECT_FALSE(server::EncodeDelta(scene.topology(), change, false, delta));
}

TEST(TopologyMirror, WhatDoesNotFitIsAnError) {
  FakeScene scene(6);
  TopologyMirror start;
  v1::Keyframe keyframe;
  server::EncodeTopology(scene.topology(), true, keyframe);
  ASSERT_TRUE(start.Apply(keyframe).ok());
  scene.Edit();
  v1::TopologyDelta good;
  ASSERT_TRUE(server::EncodeDelta(scene.topology(), *scene.history().Between(1, 2), true, good));
  ASSERT_GT(good.bodies(0).triangle_slots_size(), 0);
  const auto apply = [&start](const v1::TopologyDelta& delta) {
    TopologyMirror mirror = start;
    return mirror.Apply(delta);
  };
  EXPECT_TRUE(apply(good).ok());
  const auto expect_error = [&](const v1::TopologyDelta& bad, const char* what) {
    const absl::Status status = apply(bad);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << what;
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
  };
  v1::TopologyDelta bad = good;
  bad.set_from_version(7);
  expect_error(bad, "from version 7");
  bad = good;
  bad.mutable_bodies(0)->set_body_index(3);
  expect_error(bad, "body 3, which is outside [0, 3)");
  bad = good;
  bad.mutable_bodies(0)->mutable_triangles()->RemoveLast();
  expect_error(bad, "do not fit together");
  bad = good;
  bad.mutable_bodies(0)->set_triangle_slots(0, bad.bodies(0).triangle_count());
  expect_error(bad, "do not fit together");
  bad = good;
  bad.mutable_bodies(0)->set_tets(0, bad.bodies(0).vertex_count());
  expect_error(bad, "an index is outside");
  bad = good;
  bad.mutable_bodies(0)->add_texture_vertices(0);
  expect_error(bad, "numbers of texture coordinates do not fit");
  bad = good;
  bad.mutable_bodies(0)->add_texture_corners(0);
  expect_error(bad, "numbers of texture coordinates do not fit");
  // Body 0 or 1, of which the first has texture coordinates.
  bad = good;
  bad.mutable_bodies(0)->set_body_index(0);
  bad.mutable_bodies(0)->add_texture_vertices(1U << 20);
  bad.mutable_bodies(0)->add_texture_coordinates(1);
  bad.mutable_bodies(0)->add_texture_coordinates(1);
  expect_error(bad, "a texture coordinate of 1048576, which is outside");
  bad.mutable_bodies(0)->set_texture_vertices(bad.bodies(0).texture_vertices_size() - 1, 0);
  bad.mutable_bodies(0)->set_texture_coordinates(bad.bodies(0).texture_coordinates_size() - 1, NAN);
  expect_error(bad, "a texture coordinate is not finite");
  bad = good;
  bad.mutable_bodies(0)->set_body_index(1);
  bad.mutable_bodies(0)->add_texture_vertices(0);
  bad.mutable_bodies(0)->add_texture_coordinates(1);
  bad.mutable_bodies(0)->add_texture_coordinates(1);
  expect_error(bad, "numbers of texture coordinates do not fit");
  bad = good;
  bad.mutable_bodies(0)->set_triangle_zones(0, 5);
  expect_error(bad, "the arrays have the hash");
  bad = good;
  bad.mutable_bodies(0)->set_mesh_hash(good.bodies(0).mesh_hash() ^ 1);
  expect_error(bad, "the arrays have the hash");
  v1::Frame frame;
  EXPECT_THAT(std::string(start.Check(frame).message()), HasSubstr("topology version 0, the arrays are of 1"));
  frame.set_topology_version(1);
  EXPECT_THAT(std::string(start.Check(frame).message()), HasSubstr("0 bodies of 3"));
  for (int b = 0; b < 3; ++b) frame.add_bodies();
  EXPECT_TRUE(start.Check(frame).ok());
  frame.add_markers();
  EXPECT_THAT(std::string(start.Check(frame).message()), HasSubstr("1 markers of 0"));
  v1::Keyframe marked = keyframe;
  marked.add_markers()->set_name("seed");
  marked.mutable_markers(0)->set_body("b");
  TopologyMirror with_marker;
  ASSERT_TRUE(with_marker.Apply(marked).ok());
  ASSERT_EQ(with_marker.markers().size(), 1U);
  EXPECT_EQ(with_marker.markers()[0].name, "seed");
  EXPECT_EQ(with_marker.markers()[0].body, "b");
  EXPECT_TRUE(with_marker.Check(frame).ok());
  frame.mutable_markers(0)->set_body_index(3);
  EXPECT_THAT(std::string(with_marker.Check(frame).message()), HasSubstr("a marker is in body 3, which is outside [0, 3)"));
  v1::Keyframe broken = keyframe;
  broken.mutable_bodies(0)->mutable_triangle_zones()->RemoveLast();
  TopologyMirror mirror;
  EXPECT_EQ(mirror.Apply(broken).code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace palpate::topology_mirror_test
