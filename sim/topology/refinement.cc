#include "sim/topology/refinement.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/topology/quality.h"
#include "sim/topology/subdivision.h"

namespace palpate::sim {
namespace {

size_t At(int i) { return static_cast<size_t>(i); }

std::array<Eigen::Vector3d, 4> PointsOf(const ClosedMesh& mesh, uint32_t tet) {
  const auto& v = mesh.TetVertices(tet);
  return {mesh.PositionOf(v[0]), mesh.PositionOf(v[1]), mesh.PositionOf(v[2]), mesh.PositionOf(v[3])};
}

}  // namespace

double Refiner::EdgeLength(uint32_t tet, int edge) const {
  const auto& v = mesh_->TetVertices(tet);
  return (mesh_->PositionOf(v[At(kTetEdges[At(edge)][0])]) - mesh_->PositionOf(v[At(kTetEdges[At(edge)][1])])).norm();
}

void Refiner::MarkEdge(uint32_t tet, int edge) {
  if ((mask_[tet] >> edge & 1) != 0) return;
  const uint32_t a = mesh_->TetVertices(tet)[At(kTetEdges[At(edge)][0])];
  const uint32_t b = mesh_->TetVertices(tet)[At(kTetEdges[At(edge)][1])];
  mesh_->TetsAroundEdge(tet, edge, &fan_);
  for (const uint32_t t : fan_) {
    const auto& v = mesh_->TetVertices(t);
    const auto i = static_cast<int>(std::find(v.begin(), v.end(), a) - v.begin());
    const auto j = static_cast<int>(std::find(v.begin(), v.end(), b) - v.begin());
    if (mask_[t] == 0) marked_.push_back(t);
    queue_.push_back(t);
    mask_[t] = static_cast<uint8_t>(mask_[t] | 1U << TetEdgeBetween(i, j));
  }
  ++marked_edge_count_;
}

void Refiner::MarkZone(const RefineOptions& options, RefineResult* result) {
  mask_.resize(mesh_->tet_slot_count(), 0);
  marked_.clear();
  queue_.clear();
  marked_edge_count_ = 0;
  double longest_m = options.max_edge_m;
  std::pair<uint32_t, int> longest = {kNoSlot, 0};
  for (const uint32_t tet : zone_) {
    bool is_asked = false;
    for (int e = 0; e < 6; ++e) {
      const double length_m = EdgeLength(tet, e);
      if (!(length_m > options.max_edge_m)) continue;
      is_asked = true;
      if (options.mode == RefineOptions::Mode::kSimultaneous) MarkEdge(tet, e);
      if (length_m > longest_m) {
        longest_m = length_m;
        longest = {tet, e};
      }
    }
    result->asked_tet_count += is_asked ? 1 : 0;
  }
  if (options.mode == RefineOptions::Mode::kSequential && longest.first != kNoSlot) MarkEdge(longest.first, longest.second);
}

void Refiner::CloseFaces(uint32_t tet, double ratio) {
  for (const auto& [a, b, c] : kOppositeFaces) {
    std::array<std::pair<double, int>, 3> edges;  // longest first
    double split_m = 0;
    size_t n = 0;
    for (const int e : {TetEdgeBetween(a, b), TetEdgeBetween(a, c), TetEdgeBetween(b, c)}) {
      edges[n++] = {EdgeLength(tet, e), e};
      if ((mask_[tet] >> e & 1) != 0) split_m = std::max(split_m, edges[n - 1].first);
    }
    const auto longest = *std::max_element(edges.begin(), edges.end());
    if (split_m > 0 && longest.first > ratio * split_m) MarkEdge(tet, longest.second);
  }
}

void Refiner::Close(const RefineOptions& options, RefineResult* result) {
  if (options.closure_ratio == 0 || options.mode == RefineOptions::Mode::kSequential) return;
  // In a lattice edges are equal but for rounding.
  const double ratio = options.closure_ratio * (1 + 1e-9);
  const auto limit = (1 + options.closure_growth) * static_cast<double>(marked_.size());
  // First come, first served: what is near the zone is closed before what is far.
  for (size_t i = 0; i < queue_.size(); ++i) {
    if (static_cast<double>(marked_.size()) > limit) {
      result->is_closure_cut = true;
      return;
    }
    const uint32_t tet = queue_[i];
    if (options.closure == RefineOptions::Closure::kSplitEdge) {
      CloseFaces(tet, ratio);
      continue;
    }
    std::array<double, 6> lengths_m;
    for (int e = 0; e < 6; ++e) lengths_m[At(e)] = EdgeLength(tet, e);
    const double limit_m = ratio * *std::min_element(lengths_m.begin(), lengths_m.end());
    for (int e = 0; e < 6; ++e) {
      if (lengths_m[At(e)] > limit_m) MarkEdge(tet, e);
    }
  }
}

bool Refiner::IsSplitFirst(uint32_t tet, int edge, int other) const {
  const double difference = EdgeLength(tet, edge) - EdgeLength(tet, other);
  if (difference != 0) return difference > 0;
  // Of equals the one of lower vertices, which both tets at a face find alike.
  const auto key = [this, tet](int e) {
    const auto& v = mesh_->TetVertices(tet);
    return std::minmax(v[At(kTetEdges[At(e)][0])], v[At(kTetEdges[At(e)][1])]);
  };
  return std::pair<uint32_t, uint32_t>(key(edge)) < std::pair<uint32_t, uint32_t>(key(other));
}

void Refiner::BuildEdit() {
  edit_.Clear();
  middle_.clear();
  for (const uint32_t tet : marked_) {
    const TetId parent = mesh_->IdOfTet(tet);
    edit_.removed.push_back(parent);
    const auto& v = mesh_->TetVertices(tet);
    const uint32_t mask = mask_[tet];
    std::array<VertexId, 10> points;
    for (size_t i = 0; i < 4; ++i) points[i] = mesh_->IdOfVertex(v[i]);
    for (size_t e = 0; e < 6; ++e) {
      if ((mask >> e & 1) == 0) continue;
      const auto [a, b] = std::pair<uint32_t, uint32_t>(std::minmax(v[At(kTetEdges[e][0])], v[At(kTetEdges[e][1])]));
      const auto [it, is_new] = middle_.try_emplace(static_cast<uint64_t>(a) << 32 | b, static_cast<uint32_t>(edit_.vertices.size()));
      if (is_new) {
        edit_.vertices.push_back({.position_m = 0.5 * (mesh_->PositionOf(a) + mesh_->PositionOf(b)),
                                  .sources = {{{mesh_->IdOfVertex(a), 0.5}, {mesh_->IdOfVertex(b), 0.5}}},
                                  .source_count = 2});
      }
      points[4 + e] = NewVertexId(it->second);
    }
    uint32_t higher = 0;
    for (size_t f = 0; f < 4; ++f) {
      // Of two split edges: the diagonal joins the middle of the one that is split first with the vertex opposite it.
      std::array<std::pair<int, int>, 3> split;  // edge, vertex opposite it
      size_t count = 0;
      const auto& [a, b, c] = kOppositeFaces[f];
      for (const auto& [p, q, opposite] : {std::array{a, b, c}, std::array{a, c, b}, std::array{b, c, a}}) {
        const int e = TetEdgeBetween(p, q);
        if ((mask >> e & 1) != 0) split[count++] = {e, opposite};
      }
      if (count != 2) continue;
      const bool first_is_first = IsSplitFirst(tet, split[0].first, split[1].first);
      const int start = first_is_first ? split[0].second : split[1].second;
      const int other = first_is_first ? split[1].second : split[0].second;
      if (start > other) higher |= 1U << f;
    }
    InnerDiagonal diagonal = InnerDiagonal::k67;
    if (mask == 63) diagonal = ShortestInnerDiagonal(PointsOf(*mesh_, tet));
    const Subdivision& pattern = SubdivisionOf(mask, diagonal, higher);
    for (int k = 0; k < pattern.count; ++k) {
      const auto& child = pattern.children[At(k)];
      edit_.tets.push_back({.vertices = {points[child[0]], points[child[1]], points[child[2]], points[child[3]]}, .parent = parent});
    }
  }
}

absl::StatusOr<RefineResult> Refiner::Refine(std::span<const TetId> zone, const RefineOptions& options,
                                             absl::FunctionRef<bool(TetId)> stays) {
  if (!(options.max_edge_m > 0) || !std::isfinite(options.max_edge_m)) {
    return absl::InvalidArgumentError(absl::StrCat("max_edge_m is ", options.max_edge_m, ", must be positive and finite"));
  }
  if (options.closure_ratio != 0 && !(options.closure_ratio >= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("closure_ratio is ", options.closure_ratio, ", must be 0 or at least 1"));
  }
  if (!(options.closure_growth >= 0)) {
    return absl::InvalidArgumentError(absl::StrCat("closure_growth is ", options.closure_growth, ", must be at least 0"));
  }
  if (options.max_passes < 1) return absl::InvalidArgumentError(absl::StrCat("max_passes is ", options.max_passes, ", must be at least 1"));
  zone_.clear();
  for (const TetId id : zone) {
    const uint32_t tet = mesh_->Find(id);
    if (tet == kNoSlot) return absl::NotFoundError(absl::StrCat("tet ", SlotOf(id), " (generation ", GenerationOf(id), ") does not exist"));
    zone_.push_back(tet);
  }
  RefineResult result;
  const bool is_sequential = options.mode == RefineOptions::Mode::kSequential;
  for (;;) {
    MarkZone(options, &result);
    Close(options, &result);
    if (marked_.empty()) {
      result.is_done = true;
      return result;
    }
    bool can_go_on = is_sequential || result.pass_count < options.max_passes;
    absl::Status status;
    if (can_go_on) {
      BuildEdit();
      if (mesh_->tet_count() - marked_.size() + edit_.tets.size() > options.tet_budget) {
        can_go_on = false;
        result.is_refused = true;
        ++refused_count_;
      } else {
        status = mesh_->Apply(edit_);
      }
    }
    if (!can_go_on || !status.ok()) {
      for (const uint32_t tet : marked_) mask_[tet] = 0;
      if (!status.ok()) return status;
      return result;
    }
    ++result.pass_count;
    result.split_edge_count += marked_edge_count_;
    result.created_tet_count += edit_.tets.size();
    // The zone goes on in the children of its tets; what was not split has no long edges, or (one edge at a time) stays.
    std::vector<uint32_t> next;
    std::sort(zone_.begin(), zone_.end());
    if (is_sequential) {
      for (const uint32_t tet : zone_) {
        if (mask_[tet] == 0) next.push_back(tet);
      }
    }
    for (const auto& added : mesh_->delta().added_tets) {
      const uint32_t tet = SlotOf(added.id);
      const auto points = PointsOf(*mesh_, tet);
      result.min_edge_ratio = std::min(result.min_edge_ratio, EdgeRatio(points));
      result.min_mean_ratio = std::min(result.min_mean_ratio, MeanRatio(points));
      if (std::binary_search(zone_.begin(), zone_.end(), SlotOf(added.parent)) && stays(added.id)) next.push_back(tet);
    }
    for (const uint32_t tet : marked_) mask_[tet] = 0;
    zone_ = std::move(next);
  }
}

}  // namespace palpate::sim
