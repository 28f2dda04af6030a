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
    mask_[t] = static_cast<uint8_t>(mask_[t] | 1U << TetEdgeBetween(i, j));
  }
  ++marked_edge_count_;
}

void Refiner::MarkPass(const RefineOptions& options) {
  mask_.resize(mesh_->tet_slot_count(), 0);
  marked_.clear();
  marked_edge_count_ = 0;
  if (options.mode == RefineOptions::Mode::kSequential) {
    double longest_m = options.max_edge_m;
    std::pair<uint32_t, int> longest = {kNoSlot, 0};
    for (const uint32_t tet : zone_) {
      for (int e = 0; e < 6; ++e) {
        if (const double length_m = EdgeLength(tet, e); length_m > longest_m) {
          longest_m = length_m;
          longest = {tet, e};
        }
      }
    }
    if (longest.first != kNoSlot) MarkEdge(longest.first, longest.second);
    return;
  }
  for (const uint32_t tet : zone_) {
    for (int e = 0; e < 6; ++e) {
      if (EdgeLength(tet, e) > options.max_edge_m) MarkEdge(tet, e);
    }
  }
  if (options.closure_ratio == 0) return;
  for (size_t i = 0; i < marked_.size(); ++i) {
    const uint32_t tet = marked_[i];
    std::array<double, 6> lengths_m;
    for (int e = 0; e < 6; ++e) lengths_m[At(e)] = EdgeLength(tet, e);
    const double limit_m = options.closure_ratio * *std::min_element(lengths_m.begin(), lengths_m.end());
    for (int e = 0; e < 6; ++e) {
      if (lengths_m[At(e)] > limit_m) MarkEdge(tet, e);
    }
  }
}

void Refiner::BuildEdit() {
  edit_.Clear();
  middle_.clear();
  for (const uint32_t tet : marked_) {
    const TetId parent = mesh_->IdOfTet(tet);
    edit_.removed.push_back(parent);
    // The order of the slots is the common order of the vertices.
    std::array<int, 4> local = {0, 1, 2, 3};
    const auto& v = mesh_->TetVertices(tet);
    bool is_even = true;
    for (size_t i = 0; i < 4; ++i) {
      for (size_t j = 3; j > i; --j) {
        if (v[At(local[j])] < v[At(local[j - 1])]) {
          std::swap(local[j], local[j - 1]);
          is_even = !is_even;
        }
      }
    }
    std::array<VertexId, 10> points;
    uint32_t mask = 0;
    for (size_t i = 0; i < 4; ++i) points[i] = mesh_->IdOfVertex(v[At(local[i])]);
    for (size_t e = 0; e < 6; ++e) {
      const int i = kTetEdges[e][0];
      const int j = kTetEdges[e][1];
      if ((mask_[tet] >> TetEdgeBetween(local[At(i)], local[At(j)]) & 1) == 0) continue;
      mask |= 1U << e;
      const uint32_t a = v[At(local[At(i)])];
      const uint32_t b = v[At(local[At(j)])];
      const auto [it, is_new] = middle_.try_emplace(static_cast<uint64_t>(a) << 32 | b, static_cast<uint32_t>(edit_.vertices.size()));
      if (is_new) {
        edit_.vertices.push_back({.position_m = 0.5 * (mesh_->PositionOf(a) + mesh_->PositionOf(b)),
                                  .sources = {{{mesh_->IdOfVertex(a), 0.5}, {mesh_->IdOfVertex(b), 0.5}}},
                                  .source_count = 2});
      }
      points[4 + e] = NewVertexId(it->second);
    }
    InnerDiagonal diagonal = InnerDiagonal::k67;
    if (mask == 63) {
      diagonal = ShortestInnerDiagonal({mesh_->PositionOf(v[At(local[0])]), mesh_->PositionOf(v[At(local[1])]),
                                        mesh_->PositionOf(v[At(local[2])]), mesh_->PositionOf(v[At(local[3])])});
    }
    const Subdivision& pattern = SubdivisionOf(mask, diagonal);
    for (int k = 0; k < pattern.count; ++k) {
      const auto& child = pattern.children[At(k)];
      MeshEdit::NewTet added{.vertices = {points[child[0]], points[child[1]], points[child[2]], points[child[3]]}, .parent = parent};
      if (!is_even) std::swap(added.vertices[0], added.vertices[1]);
      edit_.tets.push_back(added);
    }
  }
}

absl::StatusOr<RefineResult> Refiner::Refine(std::span<const TetId> zone, const RefineOptions& options) {
  if (!(options.max_edge_m > 0) || !std::isfinite(options.max_edge_m)) {
    return absl::InvalidArgumentError(absl::StrCat("max_edge_m is ", options.max_edge_m, ", must be positive and finite"));
  }
  if (options.closure_ratio != 0 && !(options.closure_ratio >= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("closure_ratio is ", options.closure_ratio, ", must be 0 or at least 1"));
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
    MarkPass(options);
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
      if (std::binary_search(zone_.begin(), zone_.end(), SlotOf(added.parent))) next.push_back(tet);
    }
    for (const uint32_t tet : marked_) mask_[tet] = 0;
    zone_ = std::move(next);
  }
}

}  // namespace palpate::sim
