#include "gpu/dynamics/tissue_layout_editor.h"

#include <algorithm>
#include <functional>

namespace palpate::gpu {
namespace {

constexpr size_t kMaxChangedShare = 4;  // beyond one tet in this many a fresh layout is cheaper, and better ordered

void SortUnique(std::vector<uint32_t>* values) {
  std::sort(values->begin(), values->end());
  values->erase(std::unique(values->begin(), values->end()), values->end());
}

void InsertSorted(std::vector<uint32_t>* values, uint32_t value) {
  values->insert(std::lower_bound(values->begin(), values->end(), value), value);
}

void EraseSorted(std::vector<uint32_t>* values, uint32_t value) {
  const auto found = std::lower_bound(values->begin(), values->end(), value);
  if (found != values->end() && *found == value) values->erase(found);
}

}  // namespace

TissueLayoutEditor::TissueLayoutEditor(const TissueModel& model, double dt_s, TissueLayout* layout)
    : dt_s_(dt_s),
      layout_(*layout),
      rest_m_(model.rest_m),
      triangles_(model.surface_triangles),
      vertex_tets_(model.rest_m.size()),
      vertex_triangles_(model.rest_m.size()),
      color_(model.rest_m.size(), kNoColor),
      free_slots_(layout->color_end.size() + 1),
      blocks_(layout->block_count, static_cast<uint32_t>(layout->block_vertex.size())),
      fans_(layout->vertex_triangles_end, static_cast<uint32_t>(layout->vertex_triangles.size())) {
  tets_.reserve(model.tets.size());
  for (uint32_t t = 0; t < model.tets.size(); ++t) {
    tets_.push_back(LayoutEntries::IsFree(model.tets[t]) ? kFreeTissueTet : model.tets[t].vertices);
    for (const uint32_t v : tets_[t]) {
      if (tets_[t] != kFreeTissueTet) vertex_tets_[v].push_back(t);
    }
  }
  for (uint32_t t = 0; t < triangles_.size(); ++t) {
    for (const uint32_t v : triangles_[t]) vertex_triangles_[v].push_back(t);
  }
  for (uint32_t c = 0; c < layout->color_end.size(); ++c) {
    for (uint32_t slot = layout->color_begin[c]; slot < layout->color_end[c]; ++slot) color_[layout->original_index[slot]] = c;
  }
}

bool TissueLayoutEditor::HasKindsOf(const TissueTet& tet) const {
  return layout_.Has(tet.energy) && (layout_.has_fibers || !LayoutEntries::HasFibers(tet)) &&
         (layout_.has_viscosity || !LayoutEntries::HasViscosity(tet));
}

void TissueLayoutEditor::ReleaseSlot(uint32_t vertex) {
  const uint32_t slot = std::exchange(layout_.solver_index[vertex], kNoTissueVertex);
  if (slot == kNoTissueVertex) return;
  const UInt2 blocks = layout_.block_range[slot];
  blocks_.Give(blocks.x, blocks.y - blocks.x);
  const UInt2 fan = layout_.vertex_triangle_range[slot];
  fans_.Give(fan.x, TriangleListRoom(fan.y - fan.x));
  LayoutEntries::ClearSlot(&layout_, slot);
  delta_.slots.push_back(slot);
  const uint32_t color = std::exchange(color_[vertex], kNoColor);
  std::vector<uint32_t>& free = free_slots_[color == kNoColor ? free_slots_.size() - 1 : color];
  free.insert(std::lower_bound(free.begin(), free.end(), slot, std::greater<>()), slot);
}

bool TissueLayoutEditor::TakeSlot(const TissueModel& model, uint32_t vertex) {
  const auto take = [&](std::vector<uint32_t>* free, uint32_t* end, uint32_t limit) {
    if (free->empty() && *end == limit) return false;
    uint32_t slot = *end;
    if (free->empty()) {
      ++*end;
    } else {
      slot = free->back();
      free->pop_back();
    }
    layout_.solver_index[vertex] = slot;
    layout_.original_index[slot] = vertex;
    delta_.slots.push_back(slot);
    return true;
  };
  if (model.fixed[vertex] == kFixedVertex) return take(&free_slots_.back(), &layout_.fixed_end, layout_.vertex_count);
  std::vector<uint8_t> is_taken(layout_.color_end.size(), 0);
  for (const uint32_t t : vertex_tets_[vertex]) {
    for (const uint32_t other : tets_[t]) {
      if (color_[other] != kNoColor) is_taken[color_[other]] = 1;
    }
  }
  for (uint32_t c = 0; c < is_taken.size(); ++c) {
    if (is_taken[c] != 0 || !take(&free_slots_[c], &layout_.color_end[c], layout_.color_begin[c + 1])) continue;
    color_[vertex] = c;
    return true;
  }
  return false;
}

/// Entries of triangles and, of the vertices `fans` and theirs, the lists of triangles.
bool TissueLayoutEditor::PlaceTriangles(const TissueModel& model, std::vector<uint32_t> changed, std::vector<uint32_t>* fans) {
  LayoutEntries entries(model, dt_s_, &layout_);
  const auto count = static_cast<uint32_t>(model.surface_triangles.size());
  const auto old_count = static_cast<uint32_t>(triangles_.size());
  if (count > layout_.triangles.size()) return false;
  for (uint32_t t = std::min(count, old_count); t < std::max(count, old_count); ++t) changed.push_back(t);
  SortUnique(&changed);
  for (const uint32_t t : changed) {
    if (t >= old_count) continue;
    for (const uint32_t v : triangles_[t]) {
      EraseSorted(&vertex_triangles_[v], t);
      fans->push_back(v);
    }
  }
  triangles_.resize(count);
  layout_.triangle_count = count;
  layout_.triangle_body.resize(model.triangle_body.size());
  for (const uint32_t t : changed) {
    if (t >= count) continue;
    triangles_[t] = model.surface_triangles[t];
    for (const uint32_t v : triangles_[t]) {
      InsertSorted(&vertex_triangles_[v], t);
      fans->push_back(v);
    }
    if (!model.triangle_body.empty()) layout_.triangle_body[t] = model.triangle_body[t];
    entries.WriteTriangle(t, !vertex_tets_[triangles_[t][0]].empty());
    delta_.triangles.push_back(t);
  }
  SortUnique(fans);
  for (const uint32_t v : *fans) {
    const uint32_t slot = layout_.solver_index[v];
    if (slot == kNoTissueVertex) continue;
    UInt2& range = layout_.vertex_triangle_range[slot];
    const auto length = static_cast<uint32_t>(vertex_triangles_[v].size());
    const uint32_t room = TriangleListRoom(range.y - range.x);
    if (TriangleListRoom(length) != room) {
      fans_.Give(range.x, room);
      const std::optional<uint32_t> begin = fans_.Take(TriangleListRoom(length));
      if (!begin) return false;
      range.x = *begin;
    }
    range.y = range.x + length;
    std::copy(vertex_triangles_[v].begin(), vertex_triangles_[v].end(), layout_.vertex_triangles.begin() + range.x);
    delta_.slots.push_back(slot);
    for (uint32_t k = range.x; k < range.y; ++k) delta_.fan_places.push_back(k);
  }
  return true;
}

absl::StatusOr<bool> TissueLayoutEditor::Apply(const TissueModel& model, const TissueChange& change) {
  delta_ = {};
  LayoutEntries entries(model, dt_s_, &layout_);
  const size_t n = model.rest_m.size();
  if (n < rest_m_.size() || model.tets.size() < tets_.size() || model.fixed.size() != n ||
      (!model.held_axes.empty() && model.held_axes.size() != n)) {
    return absl::InvalidArgumentError("an edit must keep the places of vertices and tets that are gone");
  }
  if (!model.triangle_loads.empty() && model.triangle_loads.size() != model.surface_triangles.size()) {
    return absl::InvalidArgumentError("triangle_loads must name every triangle");
  }
  if (!model.body_triangle_begin.empty() ||
      (!model.self_collision.empty() && model.triangle_body.size() != model.surface_triangles.size())) {
    return absl::InvalidArgumentError("edits need TissueModel::triangle_body, of every triangle");
  }
  rest_m_.resize(n);
  vertex_tets_.resize(n);
  vertex_triangles_.resize(n);
  color_.resize(n, kNoColor);
  layout_.solver_index.resize(n, kNoTissueVertex);

  // Tets: those of the change, and those around vertices whose rest position differs.
  std::vector<uint32_t> tets = change.tets;
  std::vector<uint32_t> vertices = change.vertices;
  SortUnique(&vertices);
  for (const uint32_t v : vertices) {
    if (v >= n) return absl::InvalidArgumentError(absl::StrCat("vertex ", v, " is outside [0, ", n, ")"));
    PALPATE_RETURN_IF_ERROR(entries.CheckHeld(v));
    if (rest_m_[v] != model.rest_m[v]) tets.insert(tets.end(), vertex_tets_[v].begin(), vertex_tets_[v].end());
    rest_m_[v] = model.rest_m[v];
  }
  for (size_t t = tets_.size(); t < model.tets.size(); ++t) tets.push_back(static_cast<uint32_t>(t));
  SortUnique(&tets);
  while (!tets.empty() && tets.back() >= model.tets.size()) tets.pop_back();
  if (model.tets.size() > layout_.tets.size() || tets.size() * kMaxChangedShare > layout_.tets.size()) return false;
  tets_.resize(model.tets.size(), kFreeTissueTet);
  layout_.tet_count = static_cast<uint32_t>(tets_.size());
  std::vector<uint32_t> touched;
  for (const uint32_t t : tets) {
    const TissueTet& tet = model.tets[t];
    if (LayoutEntries::IsFree(tet)) continue;
    PALPATE_RETURN_IF_ERROR(entries.CheckTet(t));
    if (!HasKindsOf(tet)) return false;
  }
  for (const uint32_t t : tets) {
    const bool is_free = LayoutEntries::IsFree(model.tets[t]);
    for (const uint32_t v : tets_[t]) {
      if (tets_[t] == kFreeTissueTet) break;
      EraseSorted(&vertex_tets_[v], t);
      touched.push_back(v);
    }
    layout_.live_tet_count += (is_free ? 0U : 1U) - (tets_[t] == kFreeTissueTet ? 0U : 1U);
    tets_[t] = is_free ? kFreeTissueTet : model.tets[t].vertices;
    for (const uint32_t v : tets_[t]) {
      if (is_free) break;
      InsertSorted(&vertex_tets_[v], t);
      touched.push_back(v);
    }
  }
  for (const uint32_t t : change.triangles) {
    if (t < model.surface_triangles.size()) PALPATE_RETURN_IF_ERROR(entries.CheckTriangle(t));
  }

  const auto is_rigid = [&](uint32_t body) {
    return std::any_of(model.rigid.begin(), model.rigid.end(), [&](const TissueRigidBody& rigid) { return rigid.body == body; });
  };
  for (const uint32_t t : change.triangles) {
    if (t < layout_.triangle_body.size() && is_rigid(layout_.triangle_body[t])) return false;
    if (t < model.triangle_body.size() && is_rigid(model.triangle_body[t])) return false;
  }

  // Slots: of vertices that are gone or turned into another kind, and of two of a colour that a tet now joins.
  for (const TissueRigidBody& rigid : model.rigid) {
    const auto first = std::lower_bound(vertices.begin(), vertices.end(), rigid.vertices[0]);
    if (first != vertices.end() && *first < rigid.vertices[1]) return false;
  }
  std::vector<uint32_t> homeless;
  for (const uint32_t v : vertices) {
    const uint32_t slot = layout_.solver_index[v];
    const bool is_present = model.fixed[v] != kAbsentVertex;
    if (!is_present && !vertex_tets_[v].empty()) return absl::InvalidArgumentError(absl::StrCat("vertex ", v, " is absent, but of a tet"));
    if (slot != kNoTissueVertex && (!is_present || (slot < layout_.free_count) != (model.fixed[v] == kFreeVertex))) ReleaseSlot(v);
    if (is_present && layout_.solver_index[v] == kNoTissueVertex) homeless.push_back(v);
  }
  for (const uint32_t t : tets) {
    if (tets_[t] == kFreeTissueTet) continue;
    for (size_t a = 0; a < 4; ++a) {
      for (size_t b = a + 1; b < 4; ++b) {
        uint32_t u = tets_[t][a];
        uint32_t v = tets_[t][b];
        if (color_[u] == kNoColor || color_[u] != color_[v]) continue;
        if (vertex_tets_[u].size() < vertex_tets_[v].size() || (vertex_tets_[u].size() == vertex_tets_[v].size() && u > v)) std::swap(u, v);
        ReleaseSlot(v);
        homeless.push_back(v);
        delta_.has_moved = true;
      }
    }
  }
  SortUnique(&homeless);
  std::vector<uint32_t> triangles = change.triangles;
  std::vector<uint32_t> rewritten = tets;
  std::vector<uint32_t> fans = homeless;
  std::vector<uint32_t> neighbours = touched;  // whose corners name a vertex that moved
  for (const uint32_t v : homeless) {
    if (!TakeSlot(model, v)) return false;
    touched.push_back(v);
    triangles.insert(triangles.end(), vertex_triangles_[v].begin(), vertex_triangles_[v].end());
    for (const uint32_t t : vertex_tets_[v]) {
      rewritten.push_back(t);
      neighbours.insert(neighbours.end(), tets_[t].begin(), tets_[t].end());
    }
  }
  // Tets beside changed ones count, too: their vertices' masses did not change, but corners of those around a changed rest position did.
  if (!PlaceTriangles(model, std::move(triangles), &fans)) return false;

  SortUnique(&rewritten);
  for (const uint32_t t : rewritten) entries.WriteTet(t);
  delta_.tets = std::move(rewritten);
  neighbours.insert(neighbours.end(), touched.begin(), touched.end());
  SortUnique(&neighbours);
  SortUnique(&touched);
  delta_.touched_vertices = touched;
  touched.insert(touched.end(), vertices.begin(), vertices.end());
  SortUnique(&touched);
  for (const uint32_t v : touched) {
    if (layout_.solver_index[v] == kNoTissueVertex) continue;
    entries.WriteVertex(v, vertex_tets_[v]);
    delta_.slots.push_back(layout_.solver_index[v]);
  }
  for (const uint32_t v : neighbours) {
    const uint32_t slot = layout_.solver_index[v];
    if (slot == kNoTissueVertex) {
      if (model.fixed[v] != kAbsentVertex) return absl::InvalidArgumentError(absl::StrCat("vertex ", v, " came unannounced"));
      continue;
    }
    UInt2& range = layout_.block_range[slot];
    const auto length = static_cast<uint32_t>((vertex_tets_[v].size() + layout_.lanes - 1) / layout_.lanes);
    if (length != range.y - range.x) {
      blocks_.Give(range.x, range.y - range.x);
      const std::optional<uint32_t> begin = blocks_.Take(length);
      if (!begin) return false;
      range = {*begin, *begin + length};
      delta_.slots.push_back(slot);
    }
    entries.WriteBlocks(v, vertex_tets_[v]);
    for (uint32_t b = range.x; b < range.y; ++b) delta_.blocks.push_back(b);
  }
  layout_.block_count = blocks_.end();
  layout_.vertex_triangles_end = fans_.end();
  layout_.self_collision = model.self_collision;
  ListLoadsAndDriven(model, &layout_);

  delta_.state_vertices = std::move(vertices);
  delta_.state_vertices.insert(delta_.state_vertices.end(), homeless.begin(), homeless.end());
  SortUnique(&delta_.state_vertices);
  std::erase_if(delta_.state_vertices, [&](uint32_t v) { return layout_.solver_index[v] == kNoTissueVertex; });
  for (std::vector<uint32_t>* list : {&delta_.slots, &delta_.blocks, &delta_.fan_places}) SortUnique(list);
  return true;
}

}  // namespace palpate::gpu
