#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sim/scene/edit.h"
#include "sim/topology/ids.h"

namespace palpate::sim {

/// Where an outcome lists cells of a kind.
struct TetLists {
  using Id = TetId;
  static constexpr Id kNone = kNoTet;
  static constexpr auto kRemoved = &EditOutcome::removed_tets;
  static constexpr auto kAdded = &EditOutcome::added_tets;
  static constexpr auto kRemapped = &EditOutcome::remapped_tets;
};
struct TriangleLists {
  using Id = TriangleId;
  static constexpr Id kNone = kNoTriangle;
  static constexpr auto kRemoved = &EditOutcome::removed_triangles;
  static constexpr auto kAdded = &EditOutcome::added_triangles;
  static constexpr auto kRemapped = &EditOutcome::remapped_triangles;
};

/// Adds up what one edit does to a mesh of cells: tets, or triangles of a shell. Cells and vertices that come and go within the edit count
/// for nothing; what is left has the cell before the edit that it comes from.
template <typename Lists>
class CellTally {
 public:
  using Id = typename Lists::Id;

  void Begin() { *this = {}; }
  void OnVertexAdded(VertexId vertex) { added_vertices_.push_back(vertex); }
  void OnVertexRemoved(VertexId vertex) {
    const auto added = std::find(added_vertices_.begin(), added_vertices_.end(), vertex);
    if (added == added_vertices_.end()) {
      outcome_.removed_vertices.push_back(vertex);
    } else {
      added_vertices_.erase(added);
    }
  }
  /// `parent`: the cell that it takes the place of, or Lists::kNone.
  void OnAdded(Id cell, Id parent, double mass_kg) {
    const auto before = first_parent_.find(parent);
    const Id first = before == first_parent_.end() ? parent : before->second;
    first_parent_[cell] = first;
    outcome_.removed_mass_kg -= mass_kg;
    touched_mass_kg_ += mass_kg;
  }
  void OnRemoved(Id cell, double mass_kg) {
    if (first_parent_.erase(cell) == 0) (outcome_.*Lists::kRemoved).push_back(cell);
    outcome_.removed_mass_kg += mass_kg;
    touched_mass_kg_ += mass_kg;
  }
  bool IsAdded(Id cell) const { return first_parent_.contains(cell); }
  /// Quality at rest of a cell that this edit has added: see EditOutcome.
  void Judge(double mean_ratio, double edge_ratio) {
    outcome_.min_mean_ratio = std::min(outcome_.min_mean_ratio, mean_ratio);
    outcome_.min_edge_ratio = std::min(outcome_.min_edge_ratio, edge_ratio);
  }
  MovedTissue& AddPiece(uint32_t body) {
    outcome_.moved.emplace_back().body = body;
    return outcome_.moved.back();
  }
  /// What it was, in ascending order; the tally is empty then. `see(cell)` is called for each cell that was added and may Judge it.
  template <typename See>
  EditOutcome Finish(const See& see) {
    for (const auto& [cell, parent] : first_parent_) {
      (outcome_.*Lists::kAdded).push_back(cell);
      see(cell);
      if (parent != Lists::kNone) (outcome_.*Lists::kRemapped).emplace_back(parent, cell);
    }
    outcome_.added_vertices = std::move(added_vertices_);
    const auto sort = [](auto& list) { std::sort(list.begin(), list.end()); };
    sort(outcome_.*Lists::kAdded);
    sort(outcome_.*Lists::kRemapped);
    sort(outcome_.*Lists::kRemoved);
    sort(outcome_.added_vertices);
    sort(outcome_.removed_vertices);
    // What is refined or cut weighs what it did, but for rounding.
    if (std::abs(outcome_.removed_mass_kg) < 1e-12 * touched_mass_kg_) outcome_.removed_mass_kg = 0;
    EditOutcome outcome = std::move(outcome_);
    Begin();
    return outcome;
  }

 private:
  EditOutcome outcome_;
  double touched_mass_kg_ = 0;                // of all cells that came and went
  absl::flat_hash_map<Id, Id> first_parent_;  // of cells added by this edit: the one before it that they come from, or Lists::kNone
  std::vector<VertexId> added_vertices_;
};

}  // namespace palpate::sim
