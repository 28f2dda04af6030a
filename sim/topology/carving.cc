#include "sim/topology/carving.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"

namespace palpate::sim {
namespace {

// How far from the tet a set may reach; the source's value.
constexpr int kMaxSearchDepth = 10;

// Rings and tets by which a removal grows that would uncover what is refused.
constexpr int kMaxWidenings = 4;
constexpr size_t kMaxWidened = 32;

size_t At(int i) { return static_cast<size_t>(i); }

bool Contains(const std::vector<uint32_t>& list, uint32_t value) { return std::find(list.begin(), list.end(), value) != list.end(); }

}  // namespace

CarveClass Carver::Classify(uint32_t tet) const {
  const auto& v = mesh_->TetVertices(tet);
  std::array<int, 4> surface_faces = {};
  size_t count = 0;
  for (int f = 0; f < 4; ++f) {
    if (mesh_->IsFaceOnSurface(tet, f)) surface_faces[count++] = f;
  }
  if (count == 0) {
    const bool touches = std::any_of(v.begin(), v.end(), [&](uint32_t w) { return mesh_->IsVertexOnSurface(w); });
    return touches ? CarveClass::kInside : CarveClass::kRemovable;
  }
  if (count == 1) {
    const int apex = surface_faces[0];
    if (!mesh_->IsVertexOnSurface(v[At(apex)])) return CarveClass::kRemovable;
    for (int c = 0; c < 4; ++c) {
      if (c != apex && mesh_->IsEdgeOnSurface(tet, TetEdgeBetween(apex, c))) return CarveClass::kSingularVertexEdge;
    }
    return CarveClass::kSingularVertex;
  }
  // The edge between the vertices opposite the two faces is the one that the faces do not share.
  if (count == 2 && mesh_->IsEdgeOnSurface(tet, TetEdgeBetween(surface_faces[0], surface_faces[1]))) return CarveClass::kSingularEdge;
  return CarveClass::kRemovable;
}

// The tets at a vertex without the blocked ones, in pieces that are joined through faces at the vertex.
void Carver::FanPieces(uint32_t vertex) {
  pieces_.clear();
  mesh_->TetsAroundVertex(vertex, &fan_);
  std::vector<bool> is_done(fan_.size(), false);
  for (size_t i = 0; i < fan_.size(); ++i) is_done[i] = Contains(blocked_, fan_[i]);
  for (size_t first = 0; first < fan_.size(); ++first) {
    if (is_done[first]) continue;
    is_done[first] = true;
    pieces_.emplace_back(1, fan_[first]);
    std::vector<uint32_t>& piece = pieces_.back();
    for (size_t i = 0; i < piece.size(); ++i) {
      const auto& v = mesh_->TetVertices(piece[i]);
      for (int f = 0; f < 4; ++f) {
        const Neighbor n = mesh_->TetNeighbor(piece[i], f);
        if (v[At(f)] == vertex || n.is_virtual()) continue;
        const auto at = static_cast<size_t>(std::find(fan_.begin(), fan_.end(), n.slot()) - fan_.begin());
        if (is_done[at]) continue;
        is_done[at] = true;
        piece.push_back(n.slot());
      }
    }
  }
}

// Without the tet, what is left around each of its vertices may be in pieces: all but the largest get a vertex of their own.
absl::Status Carver::Split(uint32_t tet, Outcome* outcome) {
  edit_.Clear();
  const std::array<uint32_t, 4> corners = mesh_->TetVertices(tet);
  edit_.removed.push_back(mesh_->IdOfTet(tet));
  blocked_.assign(1, tet);
  for (const uint32_t vertex : corners) {
    FanPieces(vertex);
    if (pieces_.size() < 2) continue;
    const auto largest = static_cast<size_t>(
        std::max_element(pieces_.begin(), pieces_.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); }) -
        pieces_.begin());
    const VertexId id = mesh_->IdOfVertex(vertex);
    for (size_t p = 0; p < pieces_.size(); ++p) {
      if (p == largest) continue;
      const VertexId copy = NewVertexId(edit_.vertices.size());
      edit_.vertices.push_back({.position_m = mesh_->PositionOf(vertex), .sources = {{{id, 1.0}}}, .source_count = 1});
      for (const uint32_t t : pieces_[p]) {
        const TetId parent = mesh_->IdOfTet(t);
        auto rewritten = std::find_if(edit_.tets.begin(), edit_.tets.end(), [parent](const auto& added) { return added.parent == parent; });
        if (rewritten == edit_.tets.end()) {
          MeshEdit::NewTet added{.vertices = {}, .parent = parent};
          for (size_t c = 0; c < 4; ++c) added.vertices[c] = mesh_->IdOfVertex(mesh_->TetVertices(t)[c]);
          edit_.removed.push_back(parent);
          edit_.tets.push_back(added);
          rewritten = edit_.tets.end() - 1;
        }
        std::replace(rewritten->vertices.begin(), rewritten->vertices.end(), id, copy);
      }
    }
  }
  outcome->copied_vertices = edit_.vertices.size();
  PALPATE_RETURN_IF_ERROR(mesh_->Apply(edit_));
  outcome->is_removed = true;
  outcome->removed_tets = 1;
  return absl::OkStatus();
}

// Looks for tets that, taken out with `tet`, open the fan of `vertex` up to its rim; leaves them in best_.
bool Carver::FindSet(uint32_t tet, uint32_t vertex, bool* is_heuristic) {
  best_.clear();
  *is_heuristic = false;
  bool has_counted = false;
  search_.assign(1, {tet, 0, 0});
  for (size_t i = 0; i < search_.size(); ++i) {
    const Reached at = search_[i];
    const auto& v = mesh_->TetVertices(at.tet);
    bool is_at_rim = false;
    for (int f = 0; f < 4; ++f) is_at_rim = is_at_rim || (v[At(f)] != vertex && mesh_->IsFaceOnSurface(at.tet, f));
    if (i > 0 && is_at_rim) {
      path_.clear();
      for (size_t p = i; p != 0; p = search_[p].from) path_.push_back(search_[p].tet);
      path_.push_back(tet);
      if (mesh_->CanRemove(path_)) {
        best_ = path_;
        *is_heuristic = false;
        return true;
      }
      if (best_.empty()) {
        statistics_.heuristic_tries += has_counted ? 0 : 1;
        has_counted = true;
        // Most often the path cuts the fan of another vertex of the tet in two: take one of the parts along.
        for (const uint32_t w : mesh_->TetVertices(tet)) {
          if (w == vertex || !best_.empty()) continue;
          blocked_ = path_;
          FanPieces(w);
          if (pieces_.size() != 2) continue;
          if (pieces_[0].size() > pieces_[1].size()) std::swap(pieces_[0], pieces_[1]);
          for (const auto& piece : pieces_) {
            set_ = path_;
            set_.insert(set_.end(), piece.begin(), piece.end());
            if (best_.empty() && mesh_->CanRemove(set_)) best_ = set_;
          }
        }
        *is_heuristic = !best_.empty();
      }
    }
    if (at.depth == kMaxSearchDepth) continue;
    for (int f = 0; f < 4; ++f) {
      const Neighbor n = mesh_->TetNeighbor(at.tet, f);
      if (v[At(f)] == vertex || n.is_virtual()) continue;
      if (std::none_of(search_.begin(), search_.end(), [&](const Reached& r) { return r.tet == n.slot(); })) {
        search_.push_back({n.slot(), static_cast<uint32_t>(i), at.depth + 1});
      }
    }
  }
  return !best_.empty();
}

// Whether the faces behind these tets may become surface; takes along tets behind those that may not. Nothing changes if it fails.
bool Carver::MayUncover(std::vector<uint32_t>* tets) {
  if (!guard_) return true;
  set_ = *tets;
  for (int widening = 0; widening <= kMaxWidenings; ++widening) {
    uncovered_.faces.clear();
    uncovered_.gone.clear();
    behind_.clear();
    for (const uint32_t tet : set_) {
      const auto& v = mesh_->TetVertices(tet);
      for (int f = 0; f < 4; ++f) {
        const Neighbor n = mesh_->TetNeighbor(tet, f);
        if (n.is_virtual()) {
          uncovered_.gone.push_back(n.slot());
        } else if (!Contains(set_, n.slot())) {
          const auto& c = kTetFaces[At(f)];
          uncovered_.faces.push_back({v[At(c[0])], v[At(c[1])], v[At(c[2])]});
          behind_.push_back(n.slot());
        }
      }
    }
    if (!guard_(uncovered_, &refused_)) {
      if (widening > 0 && !mesh_->CanRemove(set_)) return false;
      *tets = set_;
      return true;
    }
    const size_t before = set_.size();
    for (size_t i = 0; i < behind_.size() && set_.size() < kMaxWidened; ++i) {
      if (refused_[i] != 0 && may_take_ && may_take_(behind_[i]) && !Contains(set_, behind_[i])) set_.push_back(behind_[i]);
    }
    if (set_.size() == before) return false;
  }
  return false;
}

absl::Status Carver::RemoveSet(std::span<const uint32_t> tets, Outcome* outcome) {
  edit_.Clear();
  for (const uint32_t t : tets) edit_.removed.push_back(mesh_->IdOfTet(t));
  PALPATE_RETURN_IF_ERROR(mesh_->Apply(edit_));
  outcome->is_removed = true;
  outcome->removed_tets = tets.size();
  return absl::OkStatus();
}

absl::StatusOr<Carver::Outcome> Carver::Remove(TetId id) {
  const uint32_t tet = mesh_->Find(id);
  if (tet == kNoSlot) return absl::NotFoundError(absl::StrCat("tet ", SlotOf(id), " (generation ", GenerationOf(id), ") does not exist"));
  Outcome outcome;
  outcome.carve_class = Classify(tet);
  const bool is_retry = std::find(pending_.begin(), pending_.end(), id) != pending_.end();
  statistics_.retries += is_retry ? 1 : 0;
  bool is_heuristic = false;
  if (outcome.carve_class == CarveClass::kInside) return outcome;
  const auto stays = [&] {
    if (!is_retry) pending_.push_back(id);
    return outcome;
  };
  going_.assign(1, tet);
  switch (outcome.carve_class) {
    case CarveClass::kInside:
      break;
    case CarveClass::kRemovable:
      if (!MayUncover(&going_)) return stays();
      PALPATE_RETURN_IF_ERROR(RemoveSet(going_, &outcome));
      break;
    case CarveClass::kSingularEdge:
    case CarveClass::kSingularVertexEdge:
      if (!MayUncover(&going_)) return stays();
      // A set that has grown can go as it is.
      PALPATE_RETURN_IF_ERROR(going_.size() > 1 ? RemoveSet(going_, &outcome) : Split(tet, &outcome));
      break;
    case CarveClass::kSingularVertex: {
      uint32_t apex = kNoSlot;
      for (int f = 0; f < 4; ++f) {
        if (mesh_->IsFaceOnSurface(tet, f)) apex = mesh_->TetVertices(tet)[At(f)];
      }
      if (!FindSet(tet, apex, &is_heuristic)) return stays();
      going_ = best_;
      if (!MayUncover(&going_)) return stays();
      PALPATE_RETURN_IF_ERROR(RemoveSet(going_, &outcome));
      break;
    }
  }
  if (is_retry) pending_.erase(std::find(pending_.begin(), pending_.end(), id));
  FollowPending();
  Count(outcome, is_heuristic);
  return outcome;
}

void Carver::Count(const Outcome& outcome, bool is_heuristic) {
  statistics_.removed_tets += outcome.removed_tets;
  statistics_.copied_vertices += outcome.copied_vertices;
  switch (outcome.carve_class) {
    case CarveClass::kRemovable:
      ++statistics_.no_problem;
      break;
    case CarveClass::kSingularEdge:
      ++statistics_.edge_problem;
      break;
    case CarveClass::kSingularVertexEdge:
      ++statistics_.vertex_split;
      break;
    case CarveClass::kSingularVertex:
      ++(is_heuristic ? statistics_.vertex_heuristic : statistics_.vertex_set);
      (is_heuristic ? statistics_.removed_in_heuristic_sets : statistics_.removed_in_sets) += outcome.removed_tets;
      break;
    case CarveClass::kInside:
      break;
  }
}

// Pending tets may have been rewritten by a split, or removed together with another one.
void Carver::FollowPending() {
  size_t kept = 0;
  for (size_t i = 0; i < pending_.size(); ++i) {
    TetId id = pending_[i];
    if (mesh_->Find(id) == kNoSlot) {
      const auto& added = mesh_->delta().added_tets;
      const auto child = std::find_if(added.begin(), added.end(), [id](const auto& tet) { return tet.parent == id; });
      if (child == added.end()) {
        ++statistics_.solved_by_others;
        continue;
      }
      id = child->id;
    }
    pending_[kept++] = id;
  }
  pending_.resize(kept);
}

size_t Carver::RetryPending() {
  // Another's edit (a refinement) may have replaced a tet: whoever wants its children asks for them.
  const size_t before = pending_.size();
  pending_.erase(std::remove_if(pending_.begin(), pending_.end(), [&](TetId id) { return mesh_->Find(id) == kNoSlot; }), pending_.end());
  // Only ids that are pending at the start; a rewritten one comes again next time.
  const std::vector<TetId> ids = pending_;
  for (const TetId id : ids) {
    // An error means that it is gone already; then it is not pending any more.
    if (mesh_->Find(id) != kNoSlot) Remove(id).status().IgnoreError();
  }
  return before - pending_.size();
}

CarvingStatistics Carver::statistics() const {
  CarvingStatistics statistics = statistics_;
  for (const TetId id : pending_) statistics.unsolved += mesh_->Find(id) != kNoSlot ? 1 : 0;
  return statistics;
}

}  // namespace palpate::sim
