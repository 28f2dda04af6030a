// Edits of a model: a layout that follows them holds what a fresh one would, and a solver that follows them goes on as one made anew.
#include <gmock/gmock.h>

#include <Eigen/Dense>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "gpu/base/state_archive.h"
#include "gpu/dynamics/tissue_layout_editor.h"
#include "gpu/dynamics/tissue_solver.h"
#include "tests/gpu/dynamics/tissue_models.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::tissue_edit_test {
namespace {

using Eigen::Vector3d;
using ::testing::HasSubstr;

constexpr double kDt = 0.01;
constexpr TissueSlack kSlack = {.share = 0.25, .least = 8, .spare_colors = 2};

/// A model that random edits change, with what the edits changed. Vertices have states.
struct EditedModel {
  TissueModel model;
  std::vector<TissueVertexState> states;
  TissueChange change;
  std::map<std::array<uint32_t, 3>, uint32_t> places;  // of triangles
  std::vector<uint32_t> body;                          // of each vertex
  std::mt19937_64 random;

  explicit EditedModel(TissueModel from, uint64_t seed) : model(std::move(from)), random(seed) {
    body.resize(model.rest_m.size(), 0);
    for (uint32_t b = 0; b + 1 < model.body_triangle_begin.size(); ++b) {
      for (uint32_t t = model.body_triangle_begin[b]; t < model.body_triangle_begin[b + 1]; ++t) {
        model.triangle_body.push_back(b);
        for (const uint32_t v : model.surface_triangles[t]) body[v] = b;
      }
    }
    for (const TissueTet& tet : model.tets) {  // vertices inside
      for (const uint32_t v : tet.vertices) body[v] = std::max(body[v], body[tet.vertices[0]]);
    }
    model.body_triangle_begin.clear();
    model.may_be_at_rest = true;
    for (uint32_t t = 0; t < model.surface_triangles.size(); ++t) places[model.surface_triangles[t]] = t;
    std::uniform_real_distribution<float> small(-1e-3F, 1e-3F);
    for (const auto& r : model.rest_m) {
      TissueVertexState state;
      state.position_m = {static_cast<float>(r[0]) + small(random), static_cast<float>(r[1]) + small(random),
                          static_cast<float>(r[2]) + small(random), 0};
      state.velocity_m_per_s = state.velocity_before_m_per_s = {small(random), small(random), small(random), 0};
      states.push_back(state);
    }
  }

  uint32_t Pick(size_t count) { return static_cast<uint32_t>(random() % count); }
  bool IsLive(uint32_t t) const { return model.tets[t].vertices[0] != kNoTissueVertex; }
  /// A live tet.
  uint32_t PickTet() {
    uint32_t t = Pick(model.tets.size());
    while (!IsLive(t)) t = Pick(model.tets.size());
    return t;
  }
  void RemoveTet(uint32_t t) {
    model.tets[t].vertices = kFreeTissueTet;
    change.tets.push_back(t);
  }
  void AddTet(const TissueTet& tet) {
    for (uint32_t t = 0; t < model.tets.size(); ++t) {
      if (IsLive(t)) continue;
      model.tets[t] = tet;
      change.tets.push_back(t);
      return;
    }
    change.tets.push_back(static_cast<uint32_t>(model.tets.size()));
    model.tets.push_back(tet);
  }
  /// A new vertex, the mean of others of one body.
  uint32_t AddVertex(const std::vector<uint32_t>& sources, uint8_t kind) {
    std::array<double, 3> rest{};
    TissueVertexState state;
    const auto add = [&](Float4* to, const Float4& from) {
      const auto w = 1.0F / static_cast<float>(sources.size());
      *to = {to->x + w * from.x, to->y + w * from.y, to->z + w * from.z, 0};
    };
    for (const uint32_t s : sources) {
      for (size_t k = 0; k < 3; ++k) rest[k] += model.rest_m[s][k] / static_cast<double>(sources.size());
      add(&state.position_m, states[s].position_m);
      add(&state.velocity_m_per_s, states[s].velocity_m_per_s);
      add(&state.velocity_before_m_per_s, states[s].velocity_before_m_per_s);
    }
    uint32_t v = 0;
    while (v < model.fixed.size() && model.fixed[v] != kAbsentVertex) ++v;
    if (v == model.fixed.size()) {
      model.rest_m.emplace_back();
      model.fixed.emplace_back();
      states.emplace_back();
      body.emplace_back();
      if (!model.vertex_origin.empty()) model.vertex_origin.emplace_back();
    }
    model.rest_m[v] = rest;
    model.fixed[v] = kind;
    states[v] = state;
    body[v] = body[sources[0]];
    if (!model.vertex_origin.empty()) model.vertex_origin[v] = model.vertex_origin[sources[0]];
    change.vertices.push_back(v);
    return v;
  }
  void Carve() { RemoveTet(PickTet()); }
  /// One tet into four about its centroid, or all tets at an edge into two.
  void Refine() {
    const uint32_t t = PickTet();
    const TissueTet tet = model.tets[t];
    if (random() % 2 == 0) {
      const uint32_t v = AddVertex({tet.vertices.begin(), tet.vertices.end()}, kFreeVertex);
      RemoveTet(t);
      for (size_t c = 0; c < 4; ++c) {
        TissueTet part = tet;
        part.vertices[c] = v;
        AddTet(part);
      }
      return;
    }
    const uint32_t a = tet.vertices[0];
    const uint32_t b = tet.vertices[1];
    const uint32_t v = AddVertex({a, b}, model.fixed[a] == kFixedVertex && model.fixed[b] == kFixedVertex ? kFixedVertex : kFreeVertex);
    const auto count = static_cast<uint32_t>(model.tets.size());
    for (uint32_t i = 0; i < count; ++i) {
      const TissueTet old = model.tets[i];
      const auto at = [&](uint32_t vertex) { return std::find(old.vertices.begin(), old.vertices.end(), vertex) - old.vertices.begin(); };
      if (!IsLive(i) || at(a) == 4 || at(b) == 4) continue;
      model.tets[i].vertices[static_cast<size_t>(at(a))] = v;
      change.tets.push_back(i);
      TissueTet part = old;
      part.vertices[static_cast<size_t>(at(b))] = v;
      AddTet(part);
    }
  }
  /// Half of the tets around a vertex get a copy of it.
  void Split() {
    const uint32_t vertex = model.tets[PickTet()].vertices[random() % 4];
    std::vector<uint32_t> around;
    for (uint32_t t = 0; t < model.tets.size(); ++t) {
      const auto& v = model.tets[t].vertices;
      if (IsLive(t) && std::find(v.begin(), v.end(), vertex) != v.end()) around.push_back(t);
    }
    if (around.size() < 2) return;
    const uint32_t copy = AddVertex({vertex}, model.fixed[vertex]);
    for (size_t i = 0; i < around.size() / 2; ++i) {
      auto& v = model.tets[around[i]].vertices;
      *std::find(v.begin(), v.end(), vertex) = copy;
      change.tets.push_back(around[i]);
    }
    if (!model.vertex_origin.empty()) {
      model.vertex_origin[vertex] |= 1;
      model.vertex_origin[copy] |= 1;
      change.vertices.push_back(vertex);
    }
  }
  /// Joins two vertices that were not neighbours by tets of their own: what shared a colour may not any longer.
  void Join() {
    const TissueTet like = model.tets[PickTet()];
    TissueTet tet = like;
    for (int attempt = 0; attempt < 50; ++attempt) {
      for (uint32_t& v : tet.vertices) v = model.tets[PickTet()].vertices[random() % 4];
      const std::set<uint32_t> distinct(tet.vertices.begin(), tet.vertices.end());
      if (distinct.size() < 4) continue;
      std::set<uint32_t> bodies;
      for (const uint32_t v : tet.vertices) bodies.insert(body[v]);
      if (bodies.size() > 1) continue;
      const auto at = [&](size_t c) { return Vector3d(model.rest_m[tet.vertices[c]].data()); };
      const double volume = (at(1) - at(0)).cross(at(2) - at(0)).dot(at(3) - at(0));
      if (std::abs(volume) < 1e-9) continue;
      if (volume < 0) std::swap(tet.vertices[2], tet.vertices[3]);
      AddTet(tet);
      return;
    }
  }
  void Soften() {
    const uint32_t t = PickTet();
    model.tets[t].mu_pa *= 0.5F;
    model.tets[t].lambda_pa *= 0.5F;
    change.tets.push_back(t);
  }
  void MoveAtRest() {
    const uint32_t v = model.tets[PickTet()].vertices[0];
    for (size_t k = 0; k < 3; ++k) model.rest_m[v][k] *= 1 + 1e-6;
    change.vertices.push_back(v);
  }
  void TurnFixed() {
    const uint32_t v = model.tets[PickTet()].vertices[1];
    model.fixed[v] = model.fixed[v] == kFixedVertex ? kFreeVertex : kFixedVertex;
    change.vertices.push_back(v);
  }

  /// After a few of the above: vertices without tets go, and the surface is what it is then, without gaps.
  void Finish() {
    std::vector<uint8_t> has_tet(model.rest_m.size(), 0);
    std::vector<TissueTet> live;
    for (const TissueTet& tet : model.tets) {
      if (tet.vertices[0] == kNoTissueVertex) continue;
      live.push_back(tet);
      for (const uint32_t v : tet.vertices) has_tet[v] = 1;
    }
    for (uint32_t v = 0; v < has_tet.size(); ++v) {
      if (has_tet[v] != 0 || model.fixed[v] == kAbsentVertex) continue;
      model.fixed[v] = kAbsentVertex;
      model.rest_m[v] = {};
      change.vertices.push_back(v);
    }
    const std::vector<std::array<uint32_t, 3>> boundary = BoundaryOf(live);
    const std::set<std::array<uint32_t, 3>> now(boundary.begin(), boundary.end());
    std::vector<uint32_t> gaps;
    for (auto it = places.begin(); it != places.end();) {
      if (now.count(it->first) == 0) gaps.push_back(it->second);
      it = now.count(it->first) == 0 ? places.erase(it) : std::next(it);
    }
    std::sort(gaps.begin(), gaps.end());
    const auto put = [&](uint32_t place, const std::array<uint32_t, 3>& triangle) {
      model.surface_triangles[place] = triangle;
      model.triangle_body[place] = body[triangle[0]];
      places[triangle] = place;
      change.triangles.push_back(place);
    };
    size_t filled = 0;
    for (const auto& triangle : boundary) {
      if (places.count(triangle) != 0) continue;
      if (filled == gaps.size()) {
        gaps.push_back(static_cast<uint32_t>(model.surface_triangles.size()));
        model.surface_triangles.emplace_back();
        model.triangle_body.emplace_back();
      }
      put(gaps[filled++], triangle);
    }
    for (size_t end = gaps.size(); filled < end;) {
      const auto last = static_cast<uint32_t>(model.surface_triangles.size() - 1);
      if (gaps[end - 1] == last) {
        --end;
      } else {
        put(gaps[filled++], model.surface_triangles[last]);
      }
      model.surface_triangles.pop_back();
      model.triangle_body.pop_back();
    }
  }
  void RandomEdit(bool manifold_only) {
    change = {};
    const uint32_t count = 1 + Pick(3);
    for (uint32_t i = 0; i < count; ++i) {
      switch (manifold_only ? Pick(2) : Pick(7)) {
        case 0:
          Carve();
          break;
        case 1:
          Refine();
          break;
        case 2:
          Split();
          break;
        case 3:
          Join();
          break;
        case 4:
          Soften();
          break;
        case 5:
          MoveAtRest();
          break;
        default:
          TurnFixed();
          break;
      }
    }
    Finish();
  }
};

constexpr double kStiff_pa = 6e4;  // of a body whose tets read displacements

/// Two boxes beside each other, the first in part fixed.
TissueModel TwoBoxes(TissueEnergy energy, double damping_s, double young_modulus_pa = 10000) {
  TissueModel model = BoxModel({5, 3, 3}, {0.1, 0.06, 0.06}, {0, 0, 0},
                               {.young_modulus_pa = young_modulus_pa, .damping_s = damping_s, .mass_damping_per_s = 0.5, .energy = energy});
  for (uint32_t v = 0; v < model.rest_m.size(); ++v) model.fixed[v] = model.rest_m[v][2] < 0.01 ? kFixedVertex : kFreeVertex;
  const TissueModel other =
      BoxModel({2, 2, 2}, {0.04, 0.04, 0.04}, {0.2, 0, 0}, {.young_modulus_pa = 3 * young_modulus_pa, .damping_s = damping_s});
  const auto base = static_cast<uint32_t>(model.rest_m.size());
  model.body_triangle_begin = {0, static_cast<uint32_t>(model.surface_triangles.size())};
  model.rest_m.insert(model.rest_m.end(), other.rest_m.begin(), other.rest_m.end());
  model.fixed.insert(model.fixed.end(), other.fixed.begin(), other.fixed.end());
  for (TissueTet tet : other.tets) {
    for (uint32_t& v : tet.vertices) v += base;
    model.tets.push_back(tet);
  }
  for (auto triangle : other.surface_triangles) {
    for (uint32_t& v : triangle) v += base;
    model.surface_triangles.push_back(triangle);
  }
  model.body_triangle_begin.push_back(static_cast<uint32_t>(model.surface_triangles.size()));
  model.self_collision = {1, 1};
  for (uint32_t v = 0; v < model.rest_m.size(); ++v) model.vertex_origin.push_back(v < base ? 0 : 2);
  return model;
}

void ExpectSameFloats(float a, float b, const char* what, uint32_t vertex) { ASSERT_EQ(a, b) << what << " of vertex " << vertex; }

/// Everything a layout says, in the caller's terms, is the same bit for bit; and slots, blocks and lists are sound.
void ExpectSame(const TissueLayout& a, const TissueLayout& fresh, const TissueModel& model) {
  ASSERT_EQ(a.live_tet_count, fresh.live_tet_count);
  ASSERT_EQ(a.solver_index.size(), fresh.solver_index.size());
  const auto color_of = [](const TissueLayout& layout, uint32_t slot) {
    return static_cast<size_t>(std::upper_bound(layout.color_begin.begin(), layout.color_begin.end(), slot) - layout.color_begin.begin());
  };
  std::set<uint32_t> blocks;
  std::set<uint32_t> list_places;
  size_t present = 0;
  for (uint32_t v = 0; v < a.solver_index.size(); ++v) {
    const SolverSlot i = a.solver_index[v];
    const SolverSlot f = fresh.solver_index[v];
    ASSERT_EQ(i == kNoSolverSlot, f == kNoSolverSlot) << v;
    if (i == kNoSolverSlot) continue;
    ++present;
    ASSERT_TRUE(a.original_index.contains(i));
    ASSERT_EQ(a.original_index[i], v);
    ASSERT_EQ(ToNumber(i) < a.free_count, model.fixed[v] == kFreeVertex) << v;
    if (ToNumber(i) < a.free_count) {
      ASSERT_LT(ToNumber(i), a.color_end[color_of(a, ToNumber(i)) - 1]) << "a free vertex lies where sweeps come";
    } else {
      ASSERT_LT(ToNumber(i), a.fixed_end);
    }
    ExpectSameFloats(a.mass_kg[i], fresh.mass_kg[f], "mass", v);
    ExpectSameFloats(a.mass_damping_per_s[i], fresh.mass_damping_per_s[f], "mass damping", v);
    ExpectSameFloats(a.vertex_stiffness_n_per_m[i], fresh.vertex_stiffness_n_per_m[f], "stiffness", v);
    ExpectSameFloats(a.rest_m[i].x, fresh.rest_m[f].x, "rest position", v);
    ExpectSameFloats(a.rest_m[i].z, fresh.rest_m[f].z, "rest position", v);
    ASSERT_EQ(a.vertex_origin.empty(), fresh.vertex_origin.empty());
    if (!fresh.vertex_origin.empty()) {
      ASSERT_EQ(a.vertex_origin[i], fresh.vertex_origin[f]);
    }
    const UInt2 own = a.block_range[i];
    const UInt2 other = fresh.block_range[f];
    ASSERT_EQ(own.y - own.x, other.y - other.x) << v;
    ASSERT_LE(own.y, a.block_count);
    const uint32_t lanes = a.lanes;
    for (uint32_t b = 0; b < own.y - own.x; ++b) {
      ASSERT_TRUE(blocks.insert(own.x + b).second) << "two vertices share a block";
      ASSERT_EQ(a.block_vertex[own.x + b], ToNumber(i));
      for (uint32_t k = 0; k < a.corner_reals * lanes; ++k) {
        const size_t ka = size_t{own.x + b} * a.corner_reals * lanes + k;
        const size_t kf = size_t{other.x + b} * fresh.corner_reals * lanes + k;
        ASSERT_EQ(a.corner_real[ka], fresh.corner_real[kf]) << "corners of vertex " << v;
      }
      for (uint32_t k = 0; k < 4 * lanes; ++k) {
        const uint32_t ia = a.corner_index[size_t{own.x + b} * 4 * lanes + k];
        const uint32_t jf = fresh.corner_index[size_t{other.x + b} * 4 * lanes + k];
        if (k < 3 * lanes) {
          ASSERT_EQ(a.original_index[SolverSlot{ia}], fresh.original_index[SolverSlot{jf}]) << "neighbours of vertex " << v;
        } else {
          ASSERT_EQ(ia, jf) << "tets of vertex " << v;
        }
      }
    }
    const UInt2 fan = a.vertex_triangle_range[i];
    const UInt2 fresh_fan = fresh.vertex_triangle_range[f];
    const std::vector<uint32_t> list(a.vertex_triangles.begin() + fan.x, a.vertex_triangles.begin() + fan.y);
    ASSERT_EQ(list, std::vector<uint32_t>(fresh.vertex_triangles.begin() + fresh_fan.x, fresh.vertex_triangles.begin() + fresh_fan.y));
    for (uint32_t k = fan.x; k < fan.y; ++k) ASSERT_TRUE(list_places.insert(k).second) << "two vertices share a place of a triangle";
    ASSERT_EQ(a.load_bits.empty(), fresh.load_bits.empty());
    if (!fresh.load_bits.empty()) {
      ASSERT_EQ(a.load_bits[i], fresh.load_bits[f]);
    }
  }
  for (const SolverSlot i : a.original_index.indices()) {
    if (a.original_index[i] != kNoTissueVertex) continue;
    ASSERT_EQ(a.mass_kg[i], 0) << "an empty slot moves nothing";
    ASSERT_EQ(a.block_range[i].x, a.block_range[i].y);
    ASSERT_EQ(a.vertex_triangle_range[i].x, a.vertex_triangle_range[i].y);
  }
  ASSERT_EQ(static_cast<size_t>(a.vertex_count - std::count(a.original_index.begin(), a.original_index.end(), kNoTissueVertex)), present);
  for (uint32_t t = 0; t < a.tet_count; ++t) {
    const bool is_live = model.tets[t].vertices[0] != kNoTissueVertex;
    const UInt4& s = a.tets[t];
    ASSERT_EQ(s.x != s.y, is_live) << t;
    if (!is_live) continue;
    const std::array<uint32_t, 4> slots{s.x, s.y, s.z, s.w};
    std::set<size_t> colors;
    size_t free_vertices = 0;
    for (size_t c = 0; c < 4; ++c) {
      ASSERT_EQ(a.original_index[SolverSlot{slots[c]}], model.tets[t].vertices[c]);
      if (slots[c] >= a.free_count) continue;
      ++free_vertices;
      colors.insert(color_of(a, slots[c]));
    }
    ASSERT_EQ(colors.size(), free_vertices) << "tet " << t << " holds a colour twice";
    for (size_t row = 0; row < 3; ++row) ASSERT_EQ(a.tet_rest[3 * t + row].y, fresh.tet_rest[3 * t + row].y);
    ASSERT_EQ(a.tet_moduli[t].x, fresh.tet_moduli[t].x);
    ASSERT_EQ(a.tet_moduli[t].y, fresh.tet_moduli[t].y);
    ASSERT_EQ(a.tet_moduli[t].z, fresh.tet_moduli[t].z);
    ASSERT_EQ(a.tet_moduli[t].w, fresh.tet_moduli[t].w);
  }
  ASSERT_EQ(a.triangle_count, fresh.triangle_count);
  ASSERT_EQ(a.triangle_body, fresh.triangle_body);
  for (uint32_t t = 0; t < a.triangle_count; ++t) {
    ASSERT_EQ(a.original_index[SolverSlot{a.triangles[t].x}], fresh.original_index[SolverSlot{fresh.triangles[t].x}]);
    ASSERT_EQ(a.original_index[SolverSlot{a.triangles[t].y}], fresh.original_index[SolverSlot{fresh.triangles[t].y}]);
    ASSERT_EQ(a.original_index[SolverSlot{a.triangles[t].z}], fresh.original_index[SolverSlot{fresh.triangles[t].z}]);
  }
}

TEST(TissueLayoutEditorTest, FollowsRandomEdits) {
  for (const uint32_t lanes : {1U, 8U}) {
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      SCOPED_TRACE(testing::Message() << lanes << " lanes, seed " << seed);
      EditedModel scene(TwoBoxes(seed % 2 == 0 ? TissueEnergy::kCorotated : TissueEnergy::kStableNeoHookean, 0.01), seed);
      scene.model.loads.push_back({.vertices = {3, 4, 5}, .pressure_pa = 10, .duration_s = 1});
      auto laid = LayOutTissue(scene.model, kDt, lanes, kSlack);
      ASSERT_TRUE(laid.ok()) << laid.status();
      TissueLayout layout = *std::move(laid);
      auto editor = std::make_unique<TissueLayoutEditor>(scene.model, kDt, &layout);
      int followed = 0;
      int fresh_layouts = 0;
      int moved = 0;
      for (int edit = 0; edit < 100; ++edit) {
        scene.RandomEdit(false);
        for (const uint32_t v : scene.change.vertices) {
          if (scene.model.fixed[v] == kAbsentVertex) std::erase(scene.model.loads[0].vertices, v);
        }
        const auto follows = editor->Apply(scene.model, scene.change);
        ASSERT_TRUE(follows.ok()) << "edit " << edit << ": " << follows.status();
        const auto fresh = LayOutTissue(scene.model, kDt, lanes);
        ASSERT_TRUE(fresh.ok()) << fresh.status();
        if (!*follows) {
          ++fresh_layouts;
          auto again = LayOutTissue(scene.model, kDt, lanes, kSlack);
          ASSERT_TRUE(again.ok());
          editor.reset();
          layout = *std::move(again);
          editor = std::make_unique<TissueLayoutEditor>(scene.model, kDt, &layout);
        } else {
          ++followed;
          moved += editor->delta().has_moved ? 1 : 0;
        }
        ASSERT_NO_FATAL_FAILURE(ExpectSame(layout, *fresh, scene.model)) << "edit " << edit;
      }
      EXPECT_GT(followed, 8 * fresh_layouts) << "room is used up too fast";
      EXPECT_GT(moved, 0) << "no two vertices of a colour were joined, so that was not tested";
    }
  }
}

TEST(TissueLayoutEditorTest, WritesOnlyWhatIsNear) {
  // The same edit in meshes of 960 and 30,720 tets.
  std::vector<std::array<size_t, 4>> written;
  for (const uint32_t scale : {1U, 4U}) {
    EditedModel scene(BoxModel({10 * scale, 4, 4 * scale * scale / (scale == 1 ? 1 : 2)}, {0.1 * scale, 0.04, 0.04 * scale}, {0, 0, 0}, {}),
                      1);
    scene.model.triangle_body.assign(scene.model.surface_triangles.size(), 0);
    scene.model.self_collision = {1};
    auto layout = LayOutTissue(scene.model, kDt, 8, kSlack);
    ASSERT_TRUE(layout.ok());
    TissueLayoutEditor editor(scene.model, kDt, &*layout);
    scene.RemoveTet(17);
    scene.Finish();
    const auto follows = editor.Apply(scene.model, scene.change);
    ASSERT_TRUE(follows.ok() && *follows);
    const TissueLayoutDelta& delta = editor.delta();
    written.push_back({delta.slots.size(), delta.blocks.size(), delta.tets.size(), delta.triangles.size()});
  }
  EXPECT_EQ(written[0], written[1]);
  EXPECT_LE(written[0][1], 16U);
}

std::string BytesOf(const LayoutSkeleton& skeleton) {
  StateWriter writer;
  writer(skeleton);
  return writer.Take();
}

TEST(TissueLayoutEditorTest, GoesOnFromASkeleton) {
  for (const uint32_t lanes : {1U, 8U}) {
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(testing::Message() << lanes << " lanes, seed " << seed);
      EditedModel scene(TwoBoxes(seed % 2 == 0 ? TissueEnergy::kCorotated : TissueEnergy::kStableNeoHookean, 0.01), seed);
      auto laid = LayOutTissue(scene.model, kDt, lanes, kSlack);
      ASSERT_TRUE(laid.ok()) << laid.status();
      TissueLayout layout = *std::move(laid);
      auto editor = std::make_unique<TissueLayoutEditor>(scene.model, kDt, &layout);
      std::unique_ptr<TissueLayout> restored;
      std::unique_ptr<TissueLayoutEditor> next;
      int compared = 0;
      for (int edit = 0; edit < 60; ++edit) {
        scene.RandomEdit(false);
        const auto follows = editor->Apply(scene.model, scene.change);
        ASSERT_TRUE(follows.ok()) << "edit " << edit << ": " << follows.status();
        if (next) {
          const auto next_follows = next->Apply(scene.model, scene.change);
          ASSERT_TRUE(next_follows.ok()) << next_follows.status();
          ASSERT_EQ(*next_follows, *follows) << "edit " << edit;
        }
        if (!*follows) {
          next.reset();
          editor.reset();
          auto again = LayOutTissue(scene.model, kDt, lanes, kSlack);
          ASSERT_TRUE(again.ok()) << again.status();
          layout = *std::move(again);
          editor = std::make_unique<TissueLayoutEditor>(scene.model, kDt, &layout);
          continue;
        }
        if (next) {
          ++compared;
          ASSERT_TRUE(BytesOf(next->Skeleton()) == BytesOf(editor->Skeleton())) << "edit " << edit;
          ASSERT_EQ(next->delta().slots, editor->delta().slots);
          ASSERT_EQ(next->delta().blocks, editor->delta().blocks);
          ASSERT_NO_FATAL_FAILURE(ExpectSame(*restored, layout, scene.model)) << "edit " << edit;
        }
        if (edit % 7 != 5) continue;
        const std::string bytes = BytesOf(editor->Skeleton());
        LayoutSkeleton skeleton;
        StateReader reader(bytes, "test");
        reader(skeleton);
        ASSERT_TRUE(reader.Finish().ok()) << reader.status();
        auto as = LayOutTissueAs(scene.model, kDt, skeleton);
        ASSERT_TRUE(as.ok()) << as.status();
        next.reset();
        restored = std::make_unique<TissueLayout>(*std::move(as));
        next = std::make_unique<TissueLayoutEditor>(scene.model, kDt, skeleton, restored.get());
        ASSERT_EQ(restored->solver_index, layout.solver_index);
        ASSERT_NO_FATAL_FAILURE(ExpectSame(*restored, layout, scene.model));
      }
      EXPECT_GT(compared, 10) << "few edits were followed";
    }
  }
}

TEST(TissueLayoutEditorTest, RefusesTheSkeletonOfAnotherModel) {
  EditedModel scene(TwoBoxes(TissueEnergy::kStableNeoHookean, 0.01), 1);
  auto layout = LayOutTissue(scene.model, kDt, 1, kSlack);
  ASSERT_TRUE(layout.ok()) << layout.status();
  const LayoutSkeleton good = TissueLayoutEditor(scene.model, kDt, &*layout).Skeleton();
  ASSERT_TRUE(LayOutTissueAs(scene.model, kDt, good).ok());
  const auto expect_refused = [&](const char* what, const std::function<void(LayoutSkeleton*)>& damage) {
    LayoutSkeleton bad = good;
    damage(&bad);
    const auto refused = LayOutTissueAs(scene.model, kDt, bad);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << what;
  };
  expect_refused("slots of two", [](LayoutSkeleton* s) { s->solver_index[0] = s->solver_index[1]; });
  expect_refused("no slot", [](LayoutSkeleton* s) { s->solver_index[0] = kNoSolverSlot; });
  expect_refused("a slot beyond the end", [](LayoutSkeleton* s) { s->solver_index[0] = SolverSlot{1U << 30}; });
  expect_refused("one colour", [](LayoutSkeleton* s) {
    const uint32_t free = s->free_count;
    s->color_begin = {0, free};
    s->color_end = {free};
  });
  expect_refused("blocks of two", [](LayoutSkeleton* s) { std::fill(s->block_begins.begin(), s->block_begins.end(), 0U); });
  expect_refused("lists beyond the end", [](LayoutSkeleton* s) { std::fill(s->fan_begins.begin(), s->fan_begins.end(), 1U << 30); });
  expect_refused("slots", [](LayoutSkeleton* s) { s->vertex_count = 1U << 31; });
  expect_refused("tets", [](LayoutSkeleton* s) { s->tet_room = 1U << 30; });
  expect_refused("lanes", [](LayoutSkeleton* s) { s->lanes = 0; });
  expect_refused("energies", [](LayoutSkeleton* s) { s->has_energy = {}; });
}

TEST(TissueLayoutEditorTest, SameEditsGiveTheSameLayout) {
  std::vector<TissueLayout> layouts;
  for (int run = 0; run < 2; ++run) {
    EditedModel scene(TwoBoxes(TissueEnergy::kStableNeoHookean, 0), 9);
    auto layout = LayOutTissue(scene.model, kDt, 8, kSlack);
    ASSERT_TRUE(layout.ok());
    TissueLayoutEditor editor(scene.model, kDt, &*layout);
    for (int edit = 0; edit < 40; ++edit) {
      scene.RandomEdit(false);
      const auto follows = editor.Apply(scene.model, scene.change);
      ASSERT_TRUE(follows.ok()) << follows.status();
      if (!*follows) break;
    }
    layouts.push_back(*layout);
  }
  EXPECT_EQ(layouts[0].original_index, layouts[1].original_index);
  EXPECT_EQ(layouts[0].corner_index, layouts[1].corner_index);
  EXPECT_EQ(layouts[0].corner_real, layouts[1].corner_real);
  EXPECT_EQ(layouts[0].vertex_triangles, layouts[1].vertex_triangles);
}

TEST(TissueLayoutEditorTest, SaysWhatDoesNotFit) {
  const TissueModel good = [] {
    TissueModel model = TwoBoxes(TissueEnergy::kStableNeoHookean, 0);
    EditedModel scene(std::move(model), 1);
    return scene.model;
  }();
  const auto apply = [&](const TissueModel& model, const TissueChange& change) -> absl::StatusOr<bool> {
    PALPATE_ASSIGN_OR_RETURN(TissueLayout layout, LayOutTissue(good, kDt, 8, kSlack));
    return TissueLayoutEditor(good, kDt, &layout).Apply(model, change);
  };
  const auto expect_error = [&](const TissueModel& model, const TissueChange& change, const std::string& text) {
    const auto result = apply(model, change);
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_TRUE(absl::IsInvalidArgument(result.status()));
    EXPECT_THAT(std::string(result.status().message()), HasSubstr(text));
  };
  TissueModel edited = good;
  std::swap(edited.tets[5].vertices[0], edited.tets[5].vertices[1]);
  expect_error(edited, {.tets = {5}}, "tet 5: volume");
  edited = good;
  edited.fixed[edited.tets[5].vertices[2]] = kAbsentVertex;
  expect_error(edited, {.vertices = {edited.tets[5].vertices[2]}}, "is absent, but of a tet");
  edited = good;
  edited.tets[5].vertices[2] = 100000;
  expect_error(edited, {.tets = {5}}, "tet 5: vertex 100000 is outside");
  edited = good;
  edited.tets.pop_back();
  expect_error(edited, {}, "must keep the places");
  expect_error(good, {.vertices = {100000}}, "vertex 100000 is outside");
  const auto expect_fresh = [&](const TissueModel& model, const TissueChange& change) {
    const auto result = apply(model, change);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_FALSE(*result);
  };
  edited = good;
  edited.tets[7].energy = TissueEnergy::kCorotated;
  expect_fresh(edited, {.tets = {7}});
  edited = good;
  edited.tets[7].damping_s = 0.1F;
  expect_fresh(edited, {.tets = {7}});
  TissueChange all;
  for (uint32_t t = 0; t < good.tets.size(); ++t) all.tets.push_back(t);
  expect_fresh(good, all);
  const auto nothing = apply(good, {});
  ASSERT_TRUE(nothing.ok());
  EXPECT_TRUE(*nothing);
}

class TissueUpdateTest : public test::DeviceTest {
 protected:
  static constexpr TissueTuning kTuning = {};
  static constexpr uint32_t kCoarseNodes = 60;
  static ColliderDescription Probe() { return {.radius_m = 0.005, .tip_m = {0.05, 0.03, 0.064}, .axis_m = {0, 0, 0.1}}; }
  static TissueOptions Options(uint32_t iterations, uint32_t coarse_nodes) {
    TissueOptions options;
    options.dt_s = kDt;
    options.iterations = iterations;
    options.coarse_nodes = coarse_nodes;
    options.margin_m = 0.001;
    return options;
  }
  absl::StatusOr<std::unique_ptr<TissueSolver>> Make(const TissueModel& model, uint32_t iterations, uint32_t coarse_nodes = 0) {
    const ColliderDescription probe = Probe();
    return TissueSolver::Create(context(), model, Options(iterations, coarse_nodes), {&probe, 1}, {}, kTuning);
  }
  static std::vector<float> Positions(TissueSolver& solver) {
    std::vector<float> flat(solver.layout().solver_index.size() * 3);
    PALPATE_EXPECT_OK(solver.ReadPositions(flat));
    return flat;
  }
  /// As a delta if that fits.
  static absl::Status Follow(TissueSolver& solver, const EditedModel& scene) {
    PALPATE_ASSIGN_OR_RETURN(const bool fits, solver.Update(scene.model, scene.change, scene.states));
    return fits ? absl::OkStatus() : solver.Rebuild(scene.model, scene.states);
  }
  static std::vector<ColliderTarget> Target() { return {{{0.05, 0.03, 0.062}, {0, 0, 0.1}}}; }
};

// After each edit the solver that followed it has the state, to the bit, of one made anew, and takes the same step up to what is left of
// the residual: the two sweep in other orders.
TEST_F(TissueUpdateTest, GoesOnAsASolverMadeAnew) {
  for (const auto& [energy, damping_s, coarse_nodes, young_modulus_pa] : {std::tuple(TissueEnergy::kStableNeoHookean, 0.01, 0U, 1e4),
                                                                          {TissueEnergy::kStableNeoHookean, 0.01, kCoarseNodes, 1e4},
                                                                          {TissueEnergy::kStableNeoHookean, 0.01, kCoarseNodes, kStiff_pa},
                                                                          {TissueEnergy::kCorotated, 0.0, 0U, 1e4},
                                                                          {TissueEnergy::kCorotated, 0.0, kCoarseNodes, 1e4}}) {
    SCOPED_TRACE(testing::Message() << coarse_nodes << " nodes, " << young_modulus_pa << " Pa");
    EditedModel scene(TwoBoxes(energy, damping_s, young_modulus_pa), 5);
    PALPATE_TEST_ASSIGN(std::unique_ptr<TissueSolver> solver, Make(scene.model, 60, coarse_nodes));
    EXPECT_EQ(solver->layout().IsDisplaced(), young_modulus_pa == kStiff_pa);
    PALPATE_ASSERT_OK(solver->Rebuild(scene.model, scene.states));
    PALPATE_TEST_ASSIGN(const std::unique_ptr<TissueSolver> fresh, Make(scene.model, 60, coarse_nodes));
    for (int edit = 0; edit < 8; ++edit) {
      SCOPED_TRACE(edit);
      PALPATE_ASSERT_OK(solver->ReadState(scene.states));
      scene.RandomEdit(true);
      PALPATE_ASSERT_OK(Follow(*solver, scene));
      PALPATE_ASSERT_OK(fresh->Rebuild(scene.model, scene.states));
      std::vector<TissueVertexState> states(scene.states.size());
      PALPATE_ASSERT_OK(solver->ReadState(states));
      for (uint32_t v = 0; v < states.size(); ++v) {
        if (scene.model.fixed[v] == kAbsentVertex) continue;
        ASSERT_EQ(states[v].position_m.x, scene.states[v].position_m.x) << v;
        ASSERT_EQ(states[v].velocity_m_per_s.y, scene.states[v].velocity_m_per_s.y) << v;
        ASSERT_EQ(states[v].velocity_before_m_per_s.z, scene.states[v].velocity_before_m_per_s.z) << v;
      }
      PALPATE_TEST_ASSIGN(const TissueStep now, solver->Inspect());
      PALPATE_TEST_ASSIGN(const TissueStep now_fresh, fresh->Inspect());
      EXPECT_EQ(now.hash, now_fresh.hash);
      EXPECT_EQ(now.inverted_tets, now_fresh.inverted_tets);
      PALPATE_TEST_ASSIGN(const TissueStep step, solver->Step(Target()));
      PALPATE_TEST_ASSIGN(const TissueStep step_fresh, fresh->Step(Target()));
      EXPECT_EQ(step.bad_vertices, 0U);
      EXPECT_EQ(step.inverted_tets, step_fresh.inverted_tets);
      EXPECT_EQ(step.contacts.size(), step_fresh.contacts.size());
      const std::vector<float> x = Positions(*solver);
      const std::vector<float> y = Positions(*fresh);
      double difference = 0;
      double moved = 0;
      for (uint32_t v = 0; v < states.size(); ++v) {
        const Vector3d a(x[3 * v], x[3 * v + 1], x[3 * v + 2]);
        const Vector3d b(y[3 * v], y[3 * v + 1], y[3 * v + 2]);
        if (scene.model.fixed[v] == kAbsentVertex) continue;
        difference = std::max(difference, (a - b).norm());
        const Float4& from = states[v].position_m;
        moved = std::max(moved, (b - Vector3d(from.x, from.y, from.z)).norm());
      }
      EXPECT_LT(difference, 0.01 * moved + 1e-6) << "of moves up to " << moved;
    }
    EXPECT_GE(solver->edit_counts().deltas, 6U);
    EXPECT_GT(solver->edit_counts().delta_bytes, 0U);
  }
}

TEST_F(TissueUpdateTest, SameEditsGiveTheSameBits) {
  std::vector<uint64_t> hashes[2];
  for (std::vector<uint64_t>& of_run : hashes) {
    EditedModel scene(TwoBoxes(TissueEnergy::kStableNeoHookean, 0.01), 21);
    PALPATE_TEST_ASSIGN(const std::unique_ptr<TissueSolver> solver, Make(scene.model, 10));
    for (int edit = 0; edit < 12; ++edit) {
      PALPATE_ASSERT_OK(solver->ReadState(scene.states));
      scene.RandomEdit(true);
      PALPATE_ASSERT_OK(Follow(*solver, scene));
      PALPATE_TEST_ASSIGN(const TissueStep step, solver->Step(Target()));
      ASSERT_EQ(step.bad_vertices, 0U);
      of_run.push_back(step.hash);
    }
    EXPECT_EQ(solver->edit_counts().rebuilds, 1U) << "the first edit, which makes room";
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

// Corrections work with an inverse that edits have left behind, until enough has changed: that is part of the state.
TEST_F(TissueUpdateTest, CoarseCorrectionsGoOnFromASavedState) {
  EditedModel scene(TwoBoxes(TissueEnergy::kStableNeoHookean, 0.01), 33);
  PALPATE_TEST_ASSIGN(const std::unique_ptr<TissueSolver> solver, Make(scene.model, 10, kCoarseNodes));
  PALPATE_ASSERT_OK(solver->Rebuild(scene.model, scene.states));
  std::set<uint64_t> hashes;
  for (int edit = 0; edit < 10; ++edit) {
    SCOPED_TRACE(edit);
    PALPATE_ASSERT_OK(solver->ReadState(scene.states));
    scene.RandomEdit(true);
    PALPATE_ASSERT_OK(Follow(*solver, scene));
    StateWriter writer;
    PALPATE_ASSERT_OK(solver->SaveState(writer));
    const std::string bytes = writer.Take();
    StateReader reader(bytes, "test");
    const ColliderDescription probe = Probe();
    PALPATE_TEST_ASSIGN(const std::unique_ptr<TissueSolver> restored,
                        TissueSolver::Restore(context(), scene.model, Options(10, kCoarseNodes), {&probe, 1}, {}, kTuning, reader));
    for (int i = 0; i < 2; ++i) {
      PALPATE_TEST_ASSIGN(const TissueStep step, solver->Step(Target()));
      PALPATE_TEST_ASSIGN(const TissueStep again, restored->Step(Target()));
      ASSERT_EQ(step.bad_vertices, 0U);
      ASSERT_EQ(step.hash, again.hash) << "step " << i;
      hashes.insert(step.hash);
    }
  }
  EXPECT_EQ(hashes.size(), 20U);
  EXPECT_GE(solver->edit_counts().deltas, 8U);
}

// Of stiff tissue the displacements with their low parts are part of the state, which positions do not tell.
TEST_F(TissueUpdateTest, StiffTissueGoesOnFromASavedState) {
  EditedModel scene(TwoBoxes(TissueEnergy::kStableNeoHookean, 0.01, kStiff_pa), 33);
  PALPATE_TEST_ASSIGN(const std::unique_ptr<TissueSolver> solver, Make(scene.model, 10, kCoarseNodes));
  PALPATE_ASSERT_OK(solver->Rebuild(scene.model, scene.states));
  for (int edit = 0; edit < 4; ++edit) {
    SCOPED_TRACE(edit);
    PALPATE_ASSERT_OK(solver->ReadState(scene.states));
    scene.RandomEdit(true);
    PALPATE_ASSERT_OK(Follow(*solver, scene));
    ASSERT_TRUE(solver->layout().IsDisplaced());
    for (int i = 0; i < 2; ++i) PALPATE_ASSERT_OK(solver->Step(Target()).status());
    StateWriter writer;
    PALPATE_ASSERT_OK(solver->SaveState(writer));
    const std::string bytes = writer.Take();
    StateReader reader(bytes, "test");
    const ColliderDescription probe = Probe();
    PALPATE_TEST_ASSIGN(const std::unique_ptr<TissueSolver> restored,
                        TissueSolver::Restore(context(), scene.model, Options(10, kCoarseNodes), {&probe, 1}, {}, kTuning, reader));
    ASSERT_TRUE(restored->layout().IsDisplaced());
    for (int i = 0; i < 2; ++i) {
      PALPATE_TEST_ASSIGN(const TissueStep step, solver->Step(Target()));
      PALPATE_TEST_ASSIGN(const TissueStep again, restored->Step(Target()));
      ASSERT_EQ(step.bad_vertices, 0U);
      ASSERT_EQ(step.hash, again.hash) << "step " << i;
    }
  }
}

TEST_F(TissueUpdateTest, AbsentVerticesCannotBeHeldOrGathered) {
  EditedModel scene(TwoBoxes(TissueEnergy::kStableNeoHookean, 0), 2);
  PALPATE_TEST_ASSIGN(const std::unique_ptr<TissueSolver> solver, Make(scene.model, 5));
  const uint32_t corner = 5;  // all tets that have it go
  for (uint32_t t = 0; t < scene.model.tets.size(); ++t) {
    const auto& v = scene.model.tets[t].vertices;
    if (scene.IsLive(t) && std::find(v.begin(), v.end(), corner) != v.end()) scene.RemoveTet(t);
  }
  scene.Finish();
  ASSERT_EQ(scene.model.fixed[corner], kAbsentVertex);
  PALPATE_ASSERT_OK(Follow(*solver, scene));
  const std::vector<uint32_t> vertices = {corner};
  EXPECT_TRUE(absl::IsInvalidArgument(solver->SetGathered(vertices)));
  const TissueAnchor anchor{.vertex = corner, .holder = 0, .stiffness_n_per_m = 1, .max_force_n = 1};
  EXPECT_TRUE(absl::IsInvalidArgument(solver->SetAnchors({&anchor, 1}, 0)));
  PALPATE_EXPECT_OK(solver->Step(Target()).status());
}

}  // namespace
}  // namespace palpate::gpu::tissue_edit_test
