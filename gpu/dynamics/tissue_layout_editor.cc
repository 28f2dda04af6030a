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
  const auto look_at = [&](uint32_t slot, uint32_t color, std::vector<SolverSlot>* free) {
    const uint32_t vertex = layout->original_index[SolverSlot{slot}];
    if (vertex == kNoTissueVertex) {
      free->push_back(SolverSlot{slot});
    } else {
      color_[vertex] = color;
    }
  };
  for (uint32_t c = 0; c < layout->color_end.size(); ++c) {
    for (uint32_t slot = layout->color_end[c]; slot-- > layout->color_begin[c];) look_at(slot, c, &free_slots_[c]);
  }
  for (uint32_t slot = layout->fixed_end; slot-- > layout->free_count;) look_at(slot, kNoColor, &free_slots_.back());
}

TissueLayoutEditor::TissueLayoutEditor(const TissueModel& model, double dt_s, const LayoutSkeleton& skeleton, TissueLayout* layout)
    : TissueLayoutEditor(model, dt_s, layout) {
  blocks_ = skeleton.blocks;
  fans_ = skeleton.fans;
}

LayoutSkeleton TissueLayoutEditor::Skeleton() const {
  // All members, so that a new one is not forgotten: what is not used here follows from the model, is of the edit that runs (delta), or a
  // constant.
  [[maybe_unused]] const auto& [dt_s, layout, delta, rest_m, tets, triangles, vertex_tets, vertex_triangles, color, free_slots, blocks,
                                fans] = *this;
  LayoutSkeleton skeleton;
  skeleton.lanes = layout.lanes;
  skeleton.vertex_count = layout.vertex_count;
  skeleton.free_count = layout.free_count;
  skeleton.fixed_end = layout.fixed_end;
  skeleton.color_begin = layout.color_begin;
  skeleton.color_end = layout.color_end;
  skeleton.solver_index = layout.solver_index;
  const auto begin_of = [](const UInt2& range) { return range.x == range.y ? 0U : range.x; };  // empty ones begin anywhere
  for (const UInt2& range : layout.block_range) skeleton.block_begins.push_back(begin_of(range));
  for (const UInt2& range : layout.vertex_triangle_range) skeleton.fan_begins.push_back(begin_of(range));
  skeleton.tet_room = static_cast<uint32_t>(layout.tets.size());
  skeleton.triangle_room = static_cast<uint32_t>(layout.triangles.size());
  skeleton.has_energy = layout.has_energy;
  skeleton.has_fibers = layout.has_fibers;
  skeleton.has_viscosity = layout.has_viscosity;
  skeleton.displacement_exponent = layout.displacement_exponent;
  skeleton.mean_edge_m = layout.mean_edge_m;
  skeleton.mean_young_modulus_pa = layout.mean_young_modulus_pa;
  skeleton.blocks = blocks;
  skeleton.fans = fans;
  return skeleton;
}

bool TissueLayoutEditor::HasKindsOf(const TissueTet& tet) const {
  return layout_.Has(tet.energy) && (layout_.has_fibers || !LayoutEntries::HasFibers(tet)) &&
         (layout_.has_viscosity || !LayoutEntries::HasViscosity(tet)) && (layout_.has_smoothing || !LayoutEntries::IsSmoothed(tet));
}

void TissueLayoutEditor::ReleaseSlot(uint32_t vertex) {
  const SolverSlot slot = std::exchange(layout_.solver_index[vertex], kNoSolverSlot);
  if (slot == kNoSolverSlot) return;
  const UInt2 blocks = layout_.block_range[slot];
  blocks_.Give(blocks.x, blocks.y - blocks.x);
  const UInt2 fan = layout_.vertex_triangle_range[slot];
  fans_.Give(fan.x, TriangleListRoom(fan.y - fan.x));
  LayoutEntries::ClearSlot(&layout_, slot);
  delta_.slots.push_back(ToNumber(slot));
  const uint32_t color = std::exchange(color_[vertex], kNoColor);
  std::vector<SolverSlot>& free = free_slots_[color == kNoColor ? free_slots_.size() - 1 : color];
  free.insert(std::lower_bound(free.begin(), free.end(), slot, std::greater<>()), slot);
}

bool TissueLayoutEditor::TakeSlot(const TissueModel& model, uint32_t vertex) {
  const auto take = [&](std::vector<SolverSlot>* free, uint32_t* end, uint32_t limit) {
    if (free->empty() && *end == limit) return false;
    SolverSlot slot{*end};
    if (free->empty()) {
      ++*end;
    } else {
      slot = free->back();
      free->pop_back();
    }
    layout_.solver_index[vertex] = slot;
    layout_.original_index[slot] = vertex;
    delta_.slots.push_back(ToNumber(slot));
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
    const SolverSlot slot = layout_.solver_index[v];
    if (slot == kNoSolverSlot) continue;
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
    delta_.slots.push_back(ToNumber(slot));
    for (uint32_t k = range.x; k < range.y; ++k) delta_.fan_places.push_back(k);
  }
  return true;
}

/// Lists of one Apply(); vertices are the caller's, all rise and hold each entry once where they are read.
struct TissueLayoutEditor::Work {
  std::vector<uint32_t> vertices;    // of the change
  std::vector<uint32_t> tets;        // of the change, and those around vertices whose rest position differs
  std::vector<uint32_t> touched;     // whose tets or slot changed
  std::vector<uint32_t> homeless;    // that need a slot
  std::vector<uint32_t> rewritten;   // tets whose entries change
  std::vector<uint32_t> neighbours;  // whose corners name a vertex that moved
};

namespace {

absl::Status CheckLists(const TissueModel& model, size_t known_vertices, size_t known_tets) {
  const size_t n = model.rest_m.size();
  if (n < known_vertices || model.tets.size() < known_tets || model.fixed.size() != n ||
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
  return absl::OkStatus();
}

/// Whether a change reaches rigid bodies, by triangles or vertices (rising).
bool ReachesRigid(const TissueModel& model, const TissueLayout& layout, std::span<const uint32_t> triangles,
                  std::span<const uint32_t> vertices) {
  const auto is_rigid = [&](uint32_t body) {
    return std::any_of(model.rigid.begin(), model.rigid.end(), [&](const TissueRigidBody& rigid) { return rigid.body == body; });
  };
  for (const uint32_t t : triangles) {
    if (t < layout.triangle_body.size() && is_rigid(layout.triangle_body[t])) return true;
    if (t < model.triangle_body.size() && is_rigid(model.triangle_body[t])) return true;
  }

  for (const TissueRigidBody& rigid : model.rigid) {
    const auto first = std::lower_bound(vertices.begin(), vertices.end(), rigid.vertices[0]);
    if (first != vertices.end() && *first < rigid.vertices[1]) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<bool> TissueLayoutEditor::Apply(const TissueModel& model, const TissueChange& change) {
  delta_ = {};
  LayoutEntries entries(model, dt_s_, &layout_);
  Work work;
  PALPATE_RETURN_IF_ERROR(CheckLists(model, rest_m_.size(), tets_.size()));
  PALPATE_ASSIGN_OR_RETURN(bool fits, ListTets(model, change, entries, &work));
  if (!fits) return false;
  JoinTets(model, &work);
  for (const uint32_t t : change.triangles) {
    if (t < model.surface_triangles.size()) PALPATE_RETURN_IF_ERROR(entries.CheckTriangle(t));
  }
  if (ReachesRigid(model, layout_, change.triangles, work.vertices)) return false;
  const auto is_of_shell = [&](uint32_t v) { return layout_.shell.HasVertex(v); };  // shells are laid out as a whole
  if (std::any_of(work.vertices.begin(), work.vertices.end(), is_of_shell)) return false;
  PALPATE_RETURN_IF_ERROR(ReleaseSlots(model, &work));
  if (!TakeSlots(model, change, &work)) return false;
  PALPATE_ASSIGN_OR_RETURN(fits, WriteEntries(model, entries, &work));
  if (!fits) return false;
  FinishDelta(model, &work);
  return true;
}

/// Tets of the change, and those around vertices whose rest position differs. False: they do not fit.
absl::StatusOr<bool> TissueLayoutEditor::ListTets(const TissueModel& model, const TissueChange& change, const LayoutEntries& entries,
                                                  Work* w) {
  const size_t n = model.rest_m.size();
  rest_m_.resize(n);
  vertex_tets_.resize(n);
  vertex_triangles_.resize(n);
  color_.resize(n, kNoColor);
  layout_.solver_index.resize(n, kNoSolverSlot);

  w->tets = change.tets;
  w->vertices = change.vertices;
  SortUnique(&w->vertices);
  for (const uint32_t v : w->vertices) {
    if (v >= n) return absl::InvalidArgumentError(absl::StrCat("vertex ", v, " is outside [0, ", n, ")"));
    PALPATE_RETURN_IF_ERROR(entries.CheckHeld(v));
    if (rest_m_[v] != model.rest_m[v]) w->tets.insert(w->tets.end(), vertex_tets_[v].begin(), vertex_tets_[v].end());
    rest_m_[v] = model.rest_m[v];
  }
  for (size_t t = tets_.size(); t < model.tets.size(); ++t) w->tets.push_back(static_cast<uint32_t>(t));
  SortUnique(&w->tets);
  while (!w->tets.empty() && w->tets.back() >= model.tets.size()) w->tets.pop_back();
  if (model.tets.size() > layout_.tets.size() || w->tets.size() * kMaxChangedShare > layout_.tets.size()) return false;
  tets_.resize(model.tets.size(), kFreeTissueTet);
  layout_.tet_count = static_cast<uint32_t>(tets_.size());
  for (const uint32_t t : w->tets) {
    const TissueTet& tet = model.tets[t];
    if (LayoutEntries::IsFree(tet)) continue;
    PALPATE_RETURN_IF_ERROR(entries.CheckTet(t));
    if (!HasKindsOf(tet)) return false;
  }
  return true;
}

/// Takes over which vertices the tets join.
void TissueLayoutEditor::JoinTets(const TissueModel& model, Work* w) {
  for (const uint32_t t : w->tets) {
    const bool is_free = LayoutEntries::IsFree(model.tets[t]);
    for (const uint32_t v : tets_[t]) {
      if (tets_[t] == kFreeTissueTet) break;
      EraseSorted(&vertex_tets_[v], t);
      w->touched.push_back(v);
    }
    layout_.live_tet_count += (is_free ? 0U : 1U) - (tets_[t] == kFreeTissueTet ? 0U : 1U);
    tets_[t] = is_free ? kFreeTissueTet : model.tets[t].vertices;
    for (const uint32_t v : tets_[t]) {
      if (is_free) break;
      InsertSorted(&vertex_tets_[v], t);
      w->touched.push_back(v);
    }
  }
}

/// Of vertices that are gone or turned into another kind, and of two of a colour that a tet now joins.
absl::Status TissueLayoutEditor::ReleaseSlots(const TissueModel& model, Work* w) {
  for (const uint32_t v : w->vertices) {
    const SolverSlot slot = layout_.solver_index[v];
    const bool is_present = model.fixed[v] != kAbsentVertex;
    if (!is_present && !vertex_tets_[v].empty()) return absl::InvalidArgumentError(absl::StrCat("vertex ", v, " is absent, but of a tet"));
    if (slot != kNoSolverSlot && (!is_present || (ToNumber(slot) < layout_.free_count) != (model.fixed[v] == kFreeVertex))) ReleaseSlot(v);
    if (is_present && layout_.solver_index[v] == kNoSolverSlot) w->homeless.push_back(v);
  }
  for (const uint32_t t : w->tets) {
    if (tets_[t] == kFreeTissueTet) continue;
    for (size_t a = 0; a < 4; ++a) {
      for (size_t b = a + 1; b < 4; ++b) {
        uint32_t u = tets_[t][a];
        uint32_t v = tets_[t][b];
        if (color_[u] == kNoColor || color_[u] != color_[v]) continue;
        if (vertex_tets_[u].size() < vertex_tets_[v].size() || (vertex_tets_[u].size() == vertex_tets_[v].size() && u > v)) std::swap(u, v);
        ReleaseSlot(v);
        w->homeless.push_back(v);
        delta_.has_moved = true;
      }
    }
  }
  SortUnique(&w->homeless);
  return absl::OkStatus();
}

/// For vertices without, and for triangles around them. False: there is no room.
bool TissueLayoutEditor::TakeSlots(const TissueModel& model, const TissueChange& change, Work* w) {
  std::vector<uint32_t> triangles = change.triangles;
  std::vector<uint32_t> fans = w->homeless;
  w->rewritten = w->tets;
  w->neighbours = w->touched;
  for (const uint32_t v : w->homeless) {
    if (!TakeSlot(model, v)) return false;
    w->touched.push_back(v);
    triangles.insert(triangles.end(), vertex_triangles_[v].begin(), vertex_triangles_[v].end());
    for (const uint32_t t : vertex_tets_[v]) {
      w->rewritten.push_back(t);
      w->neighbours.insert(w->neighbours.end(), tets_[t].begin(), tets_[t].end());
    }
  }
  // Tets beside changed ones count, too: their vertices' masses did not change, but corners of those around a changed rest position did.
  if (!PlaceTriangles(model, std::move(triangles), &fans)) return false;
  return true;
}

/// Entries of tets, vertices and blocks. False: there is no room for blocks.
absl::StatusOr<bool> TissueLayoutEditor::WriteEntries(const TissueModel& model, LayoutEntries& entries, Work* w) {
  SortUnique(&w->rewritten);
  for (const uint32_t t : w->rewritten) entries.WriteTet(t);
  delta_.tets = std::move(w->rewritten);
  w->neighbours.insert(w->neighbours.end(), w->touched.begin(), w->touched.end());
  SortUnique(&w->neighbours);
  SortUnique(&w->touched);
  delta_.touched_vertices = w->touched;
  w->touched.insert(w->touched.end(), w->vertices.begin(), w->vertices.end());
  SortUnique(&w->touched);
  for (const uint32_t v : w->touched) {
    if (layout_.solver_index[v] == kNoSolverSlot) continue;
    entries.WriteVertex(v, vertex_tets_[v]);
    delta_.slots.push_back(ToNumber(layout_.solver_index[v]));
  }
  for (const uint32_t v : w->neighbours) {
    const SolverSlot slot = layout_.solver_index[v];
    if (slot == kNoSolverSlot) {
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
      delta_.slots.push_back(ToNumber(slot));
    }
    entries.WriteBlocks(v, vertex_tets_[v]);
    for (uint32_t b = range.x; b < range.y; ++b) delta_.blocks.push_back(b);
  }
  return true;
}

void TissueLayoutEditor::FinishDelta(const TissueModel& model, Work* w) {
  layout_.block_count = blocks_.end();
  layout_.vertex_triangles_end = fans_.end();
  layout_.self_collision = model.self_collision;
  ListLoadsAndDriven(model, &layout_);
  MarkUnderPressure(model, &layout_);

  delta_.state_vertices = std::move(w->vertices);
  delta_.state_vertices.insert(delta_.state_vertices.end(), w->homeless.begin(), w->homeless.end());
  SortUnique(&delta_.state_vertices);
  std::erase_if(delta_.state_vertices, [&](uint32_t v) { return layout_.solver_index[v] == kNoSolverSlot; });
  for (std::vector<uint32_t>* list : {&delta_.slots, &delta_.blocks, &delta_.fan_places}) SortUnique(list);
}

}  // namespace palpate::gpu
