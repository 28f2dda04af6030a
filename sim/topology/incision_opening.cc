// Incision: where a mesh that has been split along a sweep comes apart, and how that keeps its surface a manifold.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>

#include <Eigen/Geometry>

#include "gpu/base/status.h"
#include "sim/topology/incision.h"

namespace palpate::sim {
namespace {

// Sweeps that meet in a vertex are one surface if the cosine between them is at least this.
constexpr double kOneSheet = 0.5;

size_t At(int i) { return static_cast<size_t>(i); }

}  // namespace

// The mean plane of one sweep that went through all these corners.
bool Incision::PlaneOf(uint32_t tet, std::span<const int> corners, Plane* plane) const {
  const auto& v = mesh_->TetVertices(tet);
  for (const Hit& first : marks_.at(v[At(corners[0])]).hits) {
    Eigen::Vector3d normal = Eigen::Vector3d::Zero();
    Eigen::Vector3d point = Eigen::Vector3d::Zero();
    bool is_found = true;
    for (const int c : corners) {
      const Hit* best = nullptr;
      for (const Hit& hit : marks_.at(v[At(c)]).hits) {
        if (best == nullptr || std::abs(Cosine(hit.sheet, first.sheet)) > std::abs(Cosine(best->sheet, first.sheet))) best = &hit;
      }
      const double cosine = Cosine(best->sheet, first.sheet);
      is_found = is_found && std::abs(cosine) >= kOneSheet;
      normal += cosine < 0 ? Eigen::Vector3d(-best->sheet.normal) : best->sheet.normal;
      point += mesh_->PositionOf(v[At(c)]) - best->offset_m * best->sheet.normal;
    }
    if (!is_found) continue;
    plane->sheet = first.sheet;
    if (normal.norm() > 0) plane->sheet.normal = normal.normalized();
    plane->distance_m = plane->sheet.normal.dot(point) / static_cast<double>(corners.size());
    return true;
  }
  return false;
}

// What was noted of a vertex or tet for a sweep in about this plane.
const Incision::Side* Incision::FindSide(std::span<const Side> sides, const Sheet& sheet) {
  const Side* best = nullptr;
  for (const Side& side : sides) {
    const double cosine = std::abs(Cosine(side.sheet, sheet));
    if (cosine >= kOneSheet && (best == nullptr || cosine > std::abs(Cosine(best->sheet, sheet)))) best = &side;
  }
  return best;
}

void Incision::NoteSide(uint32_t vertex, const Side& side) {
  const VertexId id = mesh_->IdOfVertex(vertex);
  NotedSides& noted = sides_[vertex];
  if (noted.id != id) noted = {id, {}};
  if (FindSide(noted.sides, side.sheet) == nullptr) noted.sides.push_back(side);
}

// Notes on which side of a hit the vertices next to it lie, the first time that they are met: so all tets at a vertex agree, and the cut
// has no holes where tissue has moved since, or bends.
void Incision::NoteSides(uint32_t vertex, const Hit& hit, const Facet& facet) {
  mesh_->TetsAroundVertex(vertex, &star_);
  for (const uint32_t tet : star_) {
    for (const uint32_t w : mesh_->TetVertices(tet)) {
      if (!marks_.contains(w)) NoteSide(w, {hit.sheet, facet.HeightOf(positions_m_[w]) > 0});
    }
  }
}

// On which side of a sweep in this plane a vertex lies that it does not go through.
bool Incision::IsVertexAbove(uint32_t vertex, const Plane& plane) const {
  const auto it = sides_.find(vertex);
  if (it != sides_.end() && it->second.id == mesh_->IdOfVertex(vertex)) {
    const Side* side = FindSide(it->second.sides, plane.sheet);
    if (side != nullptr) return side->is_above == (Cosine(side->sheet, plane.sheet) >= 0);
  }
  return plane.sheet.normal.dot(mesh_->PositionOf(vertex)) >= plane.distance_m;
}

// On which side of the plane a tet with three or four marked corners lies.
bool Incision::IsAbove(uint32_t tet, const Plane& plane) {
  const auto& v = mesh_->TetVertices(tet);
  const uint32_t marked = marked_corners_[tet];
  if (marked != 0xF) return IsVertexAbove(v[At(std::countr_one(marked))], plane);
  // A flat one is on the same side for all its faces.
  std::vector<Side>& sides = flat_sides_[tet];
  const Side* known = FindSide(sides, plane.sheet);
  if (known != nullptr) return known->is_above == (Cosine(known->sheet, plane.sheet) >= 0);
  // It goes with a corner that has come apart, or with its neighbours if they agree.
  for (const uint32_t w : v) {
    if (IsOnCut(w)) continue;
    sides.push_back({plane.sheet, IsVertexAbove(w, plane)});
    return sides.back().is_above;
  }
  bool has_above = false;
  bool has_below = false;
  Eigen::Vector3d centre = Eigen::Vector3d::Zero();
  for (int f = 0; f < 4; ++f) {
    centre += mesh_->PositionOf(v[At(f)]) / 4;
    const Neighbor n = mesh_->TetNeighbor(tet, f);
    if (n.is_virtual() || marked_corners_[n.slot()] == 0xF) continue;
    Plane at;
    if (!PlaneOf(tet, kTetFaces[At(f)], &at)) continue;
    const uint32_t w = mesh_->TetVertices(n.slot())[At(std::countr_one(static_cast<uint32_t>(marked_corners_[n.slot()])))];
    (IsVertexAbove(w, at) == (Cosine(at.sheet, plane.sheet) >= 0) ? has_above : has_below) = true;
  }
  const bool is_above = has_above != has_below ? has_above : plane.sheet.normal.dot(centre) >= plane.distance_m;
  sides.push_back({plane.sheet, is_above});
  return is_above;
}

// The faces whose three vertices the cut goes through, between tets on either side of it.
void Incision::FindCutFaces() {
  marked_corners_.resize(mesh_->tet_slot_count(), 0);
  blocked_.resize(mesh_->tet_slot_count(), 0);
  marked_tets_.clear();
  for (const uint32_t vertex : marked_) {
    Mark& mark = marks_.at(vertex);
    if (mark.is_dormant) mark.is_dormant = !std::binary_search(candidate_vertices_.begin(), candidate_vertices_.end(), vertex);
    if (mark.is_dormant) continue;
    if (mark.is_finished && !std::binary_search(candidate_vertices_.begin(), candidate_vertices_.end(), vertex)) continue;
    mesh_->TetsAroundVertex(vertex, &star_);
    for (const uint32_t tet : star_) {
      if (marked_corners_[tet] == 0) marked_tets_.push_back(tet);
      marked_corners_[tet] = static_cast<uint8_t>(marked_corners_[tet] | 1U << CornerOf(mesh_->TetVertices(tet), vertex));
    }
  }
  std::sort(marked_tets_.begin(), marked_tets_.end());
  cut_faces_.clear();
  flat_sides_.clear();
  for (const uint32_t tet : marked_tets_) {
    for (int f = 0; f < 4; ++f) {
      if ((marked_corners_[tet] | 1U << f) != 0xF) continue;
      const Neighbor n = mesh_->TetNeighbor(tet, f);
      if (n.is_virtual() || n.slot() < tet) continue;
      Plane plane;
      if (!PlaneOf(tet, kTetFaces[At(f)], &plane) || IsAbove(tet, plane) == IsAbove(n.slot(), plane)) continue;
      cut_faces_.push_back({tet, f, n.slot()});
    }
  }
}

uint32_t Incision::LabelOf(uint32_t tet, uint32_t vertex) const {
  const uint32_t index = label_index_[tet];
  return index == kNoSlot ? vertex : labels_[index][At(CornerOf(mesh_->TetVertices(tet), vertex))];
}

bool Incision::IsOpen(uint32_t tet, int face) const {
  const Neighbor n = mesh_->TetNeighbor(tet, face);
  if (n.is_virtual()) return true;
  const auto& v = mesh_->TetVertices(tet);
  return std::any_of(kTetFaces[At(face)].begin(), kTetFaces[At(face)].end(),
                     [&](int c) { return LabelOf(tet, v[At(c)]) != LabelOf(n.slot(), v[At(c)]); });
}

// Groups of the tets at a vertex that are joined through faces at it which are not cut: the largest keeps the vertex.
void Incision::LabelVertex(uint32_t vertex) {
  mesh_->TetsAroundVertex(vertex, &star_);
  const auto label = [&](uint32_t tet) -> uint32_t& { return labels_[label_index_[tet]][At(CornerOf(mesh_->TetVertices(tet), vertex))]; };
  for (const uint32_t tet : star_) {
    if (label_index_[tet] == kNoSlot) {
      label_index_[tet] = static_cast<uint32_t>(labels_.size());
      labels_.push_back(mesh_->TetVertices(tet));
      labeled_tets_.push_back(tet);
    }
    label(tet) = kNoSlot;
  }
  groups_.clear();
  for (const uint32_t first : star_) {
    if (label(first) != kNoSlot) continue;
    const auto number = static_cast<uint32_t>(groups_.size());
    groups_.emplace_back(1, first);
    std::vector<uint32_t>& group = groups_.back();
    label(first) = number;
    for (size_t i = 0; i < group.size(); ++i) {
      const auto& v = mesh_->TetVertices(group[i]);
      for (int f = 0; f < 4; ++f) {
        const Neighbor n = mesh_->TetNeighbor(group[i], f);
        if (v[At(f)] == vertex || n.is_virtual() || (blocked_[group[i]] >> f & 1) != 0 || label(n.slot()) != kNoSlot) continue;
        label(n.slot()) = number;
        group.push_back(n.slot());
      }
    }
  }
  const auto largest = static_cast<size_t>(
      std::max_element(groups_.begin(), groups_.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); }) - groups_.begin());
  for (size_t g = 0; g < groups_.size(); ++g) {
    uint32_t name = vertex;
    if (g != largest) {
      name = first_label_ + static_cast<uint32_t>(vertex_of_label_.size());
      vertex_of_label_.push_back(vertex);
    }
    for (const uint32_t tet : groups_[g]) label(tet) = name;
  }
}

// Whether the links of a vertex and of its copies would be spheres or discs (as ClosedMesh checks them).
bool Incision::IsLinkGood(uint32_t vertex) {
  mesh_->TetsAroundVertex(vertex, &star_);
  std::stable_sort(star_.begin(), star_.end(), [&](uint32_t a, uint32_t b) { return LabelOf(a, vertex) < LabelOf(b, vertex); });
  for (size_t i = 0; i < star_.size();) {
    const uint32_t label = LabelOf(star_[i], vertex);
    int64_t triangles = 0;
    int64_t border = 0;
    link_.clear();
    for (; i < star_.size() && LabelOf(star_[i], vertex) == label; ++i) {
      const uint32_t tet = star_[i];
      ++triangles;
      for (int c = 0; c < 4; ++c) {
        const uint32_t v = mesh_->TetVertices(tet)[At(c)];
        if (v == vertex) continue;
        link_.push_back(LabelOf(tet, v));
        border += IsOpen(tet, c) ? 1 : 0;
      }
    }
    std::sort(link_.begin(), link_.end());
    const auto vertices = std::unique(link_.begin(), link_.end()) - link_.begin();
    if (vertices - (3 * triangles + border) / 2 + triangles != (border > 0 ? 1 : 2)) return false;
  }
  return true;
}

// Takes a face out of the cut, or puts it back.
void Incision::SetJoined(CutFace* face, bool is_joined) {
  face->is_joined = is_joined;
  SetBlocked(*face, !is_joined);
  for (const int c : kTetFaces[At(face->face)]) LabelVertex(mesh_->TetVertices(face->tet)[At(c)]);
}

void Incision::SetBlocked(const CutFace& face, bool is_blocked) {
  const auto set = [&](uint32_t tet, int f) {
    blocked_[tet] = static_cast<uint8_t>(is_blocked ? blocked_[tet] | 1U << f : blocked_[tet] & ~(1U << f));
  };
  set(face.tet, face.face);
  for (int f = 0; f < 4; ++f) {
    if (mesh_->TetNeighbor(face.neighbor, f) == Neighbor::Tet(face.tet)) set(face.neighbor, f);
  }
}

// Takes faces out of the cut until it can be opened: those at a vertex where the surface would touch itself.
void Incision::KeepManifold() {
  const auto faces_of = [&](uint32_t vertex) {
    return std::span(std::lower_bound(faces_of_vertex_.begin(), faces_of_vertex_.end(), std::pair<uint32_t, uint32_t>{vertex, 0}),
                     std::lower_bound(faces_of_vertex_.begin(), faces_of_vertex_.end(), std::pair<uint32_t, uint32_t>{vertex + 1, 0}));
  };
  std::vector<std::pair<size_t, uint32_t>> bad;  // number of faces, vertex
  std::vector<uint32_t> changed;
  for (;;) {
    bad.clear();
    for (const uint32_t vertex : cut_vertices_) {
      if (IsLinkGood(vertex)) continue;
      const auto faces = faces_of(vertex);
      bad.emplace_back(std::count_if(faces.begin(), faces.end(), [&](const auto& entry) { return !cut_faces_[entry.second].is_joined; }),
                       vertex);
    }
    if (bad.empty()) return;
    std::sort(bad.begin(), bad.end());
    changed.clear();
    for (const auto& [count, vertex] : bad) {
      // One at a time in each neighbourhood: the next may be well then.
      if (std::find(changed.begin(), changed.end(), vertex) != changed.end()) continue;
      const auto faces = faces_of(vertex);
      // One face may do; the one that costs the fewest others.
      const CutFace* best = nullptr;
      size_t most = 0;
      for (const auto& entry : faces) {
        CutFace& face = cut_faces_[entry.second];
        if (face.is_joined) continue;
        SetJoined(&face, true);
        const bool is_good = IsLinkGood(vertex);
        size_t open = 0;
        for (const int c : kTetFaces[At(face.face)]) {
          for (const auto& other : faces_of(mesh_->TetVertices(face.tet)[At(c)])) {
            open += IsOpen(cut_faces_[other.second].tet, cut_faces_[other.second].face) ? 1 : 0;
          }
        }
        SetJoined(&face, false);
        if (!is_good || (best != nullptr && open <= most)) continue;
        best = &face;
        most = open;
      }
      for (const auto& entry : faces) {
        CutFace& face = cut_faces_[entry.second];
        if (face.is_joined || (best != nullptr && best != &face)) continue;
        SetJoined(&face, true);
        for (const int c : kTetFaces[At(face.face)]) changed.push_back(mesh_->TetVertices(face.tet)[At(c)]);
      }
    }
    if (!changed.empty()) continue;
    // A vertex without faces of the cut is as it was, so this cannot be; still, no cut is better than no end.
    for (CutFace& face : cut_faces_) SetJoined(&face, true);
    return;
  }
}

// Takes faces out of the cut until none opens that the guard refuses.
void Incision::KeepApart() {
  if (!guard_) return;
  const auto is_inverted = [&](uint32_t tet) {
    const auto& v = mesh_->TetVertices(tet);
    const Eigen::Vector3d& o = positions_m_[v[0]];
    return !((positions_m_[v[1]] - o).cross(positions_m_[v[2]] - o).dot(positions_m_[v[3]] - o) > 0);
  };
  for (CutFace& face : cut_faces_) {
    if (!face.is_joined && (is_inverted(face.tet) || is_inverted(face.neighbor))) SetJoined(&face, true);
  }
  KeepManifold();
  UncoveredFaces uncovered;
  std::vector<CutFace*> opening;
  std::vector<uint8_t> is_refused;
  for (;;) {
    uncovered.faces.clear();
    opening.clear();
    for (CutFace& face : cut_faces_) {
      if (face.is_joined || !IsOpen(face.tet, face.face)) continue;
      const auto& v = mesh_->TetVertices(face.tet);
      const auto& c = kTetFaces[At(face.face)];
      uncovered.faces.push_back({v[At(c[0])], v[At(c[1])], v[At(c[2])]});
      opening.push_back(&face);
    }
    if (opening.empty() || !guard_(uncovered, &is_refused)) return;
    for (size_t i = 0; i < opening.size(); ++i) {
      if (is_refused[i] != 0) SetJoined(opening[i], true);
    }
    KeepManifold();
  }
}

// Whether a vertex is one that the cut goes through, and not on one side.
bool Incision::IsOnCut(uint32_t vertex) const {
  const auto it = marks_.find(vertex);
  return it != marks_.end() && !(it->second.is_finished && sides_.contains(vertex));
}

// Calls see(label, is_finished, sides) for the parts of a vertex that comes apart: finished are those that have no tissue on both sides of
// any sweep; with the sides that they are on.
template <typename F>
void Incision::ForParts(uint32_t vertex, const F& see) {
  mesh_->TetsAroundVertex(vertex, &star_);
  work_.clear();
  for (const uint32_t tet : star_) work_.push_back(LabelOf(tet, vertex));
  std::sort(work_.begin(), work_.end());
  work_.erase(std::unique(work_.begin(), work_.end()), work_.end());
  if (work_.size() < 2) return;
  std::vector<Side> sides;
  for (const uint32_t label : work_) {
    bool is_finished = true;
    sides.clear();
    for (const Hit& hit : marks_.at(vertex).hits) {
      const Plane plane = {hit.sheet, hit.sheet.normal.dot(mesh_->PositionOf(vertex)) - hit.offset_m};
      bool has_above = false;
      bool has_below = false;
      for (const uint32_t tet : star_) {
        if (LabelOf(tet, vertex) != label) continue;
        for (const uint32_t w : mesh_->TetVertices(tet)) {
          if (!IsOnCut(w)) (IsVertexAbove(w, plane) ? has_above : has_below) = true;
        }
      }
      is_finished = is_finished && !(has_above && has_below);
      if (has_above != has_below) sides.push_back({hit.sheet, has_above});
    }
    see(label, is_finished, sides);
  }
}

/// Blocks the cut faces, and labels the parts into which they divide the tets around each of their vertices.
void Incision::LabelCutVertices() {
  faces_of_vertex_.clear();
  cut_vertices_.clear();
  labels_.clear();
  labeled_tets_.clear();
  vertex_of_label_.clear();
  label_index_.resize(mesh_->tet_slot_count(), kNoSlot);
  first_label_ = mesh_->vertex_slot_count();
  for (uint32_t i = 0; i < cut_faces_.size(); ++i) {
    const CutFace& face = cut_faces_[i];
    SetBlocked(face, true);
    for (const int c : kTetFaces[At(face.face)]) {
      const uint32_t vertex = mesh_->TetVertices(face.tet)[At(c)];
      faces_of_vertex_.emplace_back(vertex, i);
      cut_vertices_.push_back(vertex);
    }
  }
  std::sort(faces_of_vertex_.begin(), faces_of_vertex_.end());
  std::sort(cut_vertices_.begin(), cut_vertices_.end());
  cut_vertices_.erase(std::unique(cut_vertices_.begin(), cut_vertices_.end()), cut_vertices_.end());
  for (const uint32_t vertex : cut_vertices_) LabelVertex(vertex);
}

/// Fills edit_ with copies of the vertices that come apart; `new_index` of a label: the copy's place in it. Returns each copy's original.
std::vector<uint32_t> Incision::MakeOpening(std::vector<uint32_t>* new_index) {
  edit_.Clear();
  std::vector<uint32_t> opened;
  for (size_t i = 0; i < labels_.size(); ++i) {
    if (std::all_of(labels_[i].begin(), labels_[i].end(), [&](uint32_t label) { return label < first_label_; })) continue;
    const TetId parent = mesh_->IdOfTet(labeled_tets_[i]);
    edit_.removed.push_back(parent);
    MeshEdit::NewTet added{.vertices = {}, .parent = parent};
    for (size_t c = 0; c < 4; ++c) {
      const uint32_t label = labels_[i][c];
      if (label < first_label_) {
        added.vertices[c] = mesh_->IdOfVertex(label);
        continue;
      }
      uint32_t& index = (*new_index)[label - first_label_];
      if (index == kNoSlot) {
        index = static_cast<uint32_t>(edit_.vertices.size());
        const uint32_t original = vertex_of_label_[label - first_label_];
        opened.push_back(original);
        edit_.vertices.push_back(
            {.position_m = mesh_->PositionOf(original), .sources = {{{mesh_->IdOfVertex(original), 1.0}}}, .source_count = 1});
      }
      added.vertices[c] = NewVertexId(index);
    }
    edit_.tets.push_back(added);
  }
  return opened;
}

absl::Status Incision::Open(IncisionResult* result) {
  DropMarks(false);
  front_faces_ = joined_faces_ = 0;
  FindCutFaces();
  LabelCutVertices();
  KeepManifold();
  KeepApart();

  // A part of a vertex that comes apart is finished, unless it still lies on both sides, or has a joined face.
  struct Kept {
    uint32_t label;
    bool is_joined;
    bool is_finished;
    std::vector<Hit> hits;
    std::vector<Side> sides;
  };
  std::vector<Kept> kept;
  for (const uint32_t vertex : cut_vertices_) {
    ForParts(vertex, [&](uint32_t label, bool is_finished, const std::vector<Side>& sides) {
      kept.push_back({label, false, is_finished, marks_.at(vertex).hits, sides});
    });
  }
  for (auto& entry : marks_) {
    if (!entry.second.is_dormant) entry.second.is_joined = false;
  }
  for (const CutFace& face : cut_faces_) {
    if (face.is_joined) {
      ++joined_faces_;
      for (const int c : kTetFaces[At(face.face)]) {
        const uint32_t vertex = mesh_->TetVertices(face.tet)[At(c)];
        kept.push_back({LabelOf(face.tet, vertex), true, false, marks_.at(vertex).hits, {}});
      }
    } else if (!IsOpen(face.tet, face.face)) {
      ++front_faces_;
    } else {
      ++result->opened_faces;
      std::array<Eigen::Vector3d, 3> p;
      for (size_t c = 0; c < 3; ++c) p[c] = mesh_->PositionOf(mesh_->TetVertices(face.tet)[At(kTetFaces[At(face.face)][c])]);
      result->opened_area_m2 += (p[1] - p[0]).cross(p[2] - p[0]).norm() / 2;
    }
  }
  std::vector<uint32_t> new_index(vertex_of_label_.size(), kNoSlot);
  const std::vector<uint32_t> opened = MakeOpening(&new_index);
  for (const uint32_t tet : marked_tets_) marked_corners_[tet] = blocked_[tet] = 0;
  for (const uint32_t tet : labeled_tets_) label_index_[tet] = kNoSlot;
  if (!edit_.tets.empty()) {
    PALPATE_RETURN_IF_ERROR(mesh_->Apply(edit_));
    positions_m_.resize(mesh_->vertex_slot_count());
    for (size_t i = 0; i < opened.size(); ++i) {
      positions_m_[SlotOf(mesh_->delta().added_vertices[i].id)] = positions_m_[opened[i]];
      marks_.erase(opened[i]);
    }
    result->copied_vertices += opened.size();
    std::erase_if(marked_, [&](uint32_t vertex) { return !marks_.contains(vertex); });
  }
  for (const Kept& part : kept) {
    const uint32_t vertex =
        part.label < first_label_ ? part.label : SlotOf(mesh_->delta().added_vertices[new_index[part.label - first_label_]].id);
    for (const Hit& hit : part.hits) AddHit(vertex, hit);
    Mark& mark = marks_.at(vertex);
    mark.is_joined = mark.is_joined || part.is_joined;
    mark.is_finished = part.is_finished;
    if (!part.is_finished) continue;
    sides_.erase(vertex);
    for (const Side& side : part.sides) NoteSide(vertex, side);
  }
  return absl::OkStatus();
}

}  // namespace palpate::sim
