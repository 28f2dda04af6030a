#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "sim/topology/closed_mesh.h"

namespace palpate::sim {

struct RefineOptions {
  double max_edge_m = 0;  ///< at rest, positive: longer edges of the zone are halved
  /// In a face with a split edge, edges longer than this times the longest one that is split are split too; >= 1, or 0: none. With 1 each
  /// face is halved at its longest edge first.
  double closure_ratio = 1.2;
  /// kShortestEdge is the rule of the source, where the ratio is 2, for comparison: in a tet with a split edge, edges longer than
  /// closure_ratio times its shortest one are split too. It spreads without end where transition tets do not meet it.
  enum class Closure { kSplitEdge, kShortestEdge } closure = Closure::kSplitEdge;
  /// The closure stops when it has added this many times the tets that a pass splits without it; what is split then conforms all the same.
  double closure_growth = 8;
  int max_passes = 32;         ///< >= 1; a pass halves each edge at most once
  size_t tet_budget = 200000;  ///< a pass that would leave more tets in the mesh is refused
  /// kSimultaneous splits all edges of a pass at once; kSequential one edge at a time, the longest first (Picinbono 2001), for comparison.
  enum class Mode { kSimultaneous, kSequential } mode = Mode::kSimultaneous;
};

struct RefineResult {
  int pass_count = 0;  ///< edits applied
  size_t split_edge_count = 0;
  size_t created_tet_count = 0;  ///< including those that a later pass replaced
  size_t asked_tet_count = 0;    ///< tets of the zone with an edge longer than max_edge_m, of all passes
  bool is_closure_cut = false;   ///< closure_growth stopped the closure of a pass
  bool is_done = false;          ///< no edge of the zone is longer than max_edge_m
  bool is_refused = false;       ///< the budget stopped it; the mesh is as the last pass that fitted left it
  double min_edge_ratio = 1;     ///< of all tets created (Q5)
  double min_mean_ratio = 1;     ///< of all tets created (Q2)
};

/// Refines part of a mesh by putting vertices into the middle of its long edges (Forest 2003, section on refinement): each tet is replaced
/// by the pattern for its split edges, in one edit for all. The diagonal of a face with two split edges starts in the middle of the longer
/// one (Rivara's bisection; Plaza and Carey 2000). The mesh stays conforming and a manifold; volume, surface and zones are preserved; what
/// is derived from the mesh is handed over through the observers (new vertices lie in the middle of two sources).
///
/// Growth: a pass adds at most 7 (1 + closure_growth) tets for each tet around a long edge of the zone.
class Refiner {
 public:
  /// `mesh` must outlive the refiner.
  explicit Refiner(ClosedMesh* mesh) : mesh_(mesh) {}

  /// Refines until no edge of the tets of `zone`, and of those they are replaced by, is longer than max_edge_m, or passes or budget run
  /// out. The closure may split tets outside the zone. Errors leave the mesh unchanged: NotFound (a tet of the zone does not exist),
  /// InvalidArgument (an option out of range). An edit that the mesh refuses (a tet too flat for its children to be positive in double
  /// precision) returns its error, with the mesh as after the pass before. O(tets around the split edges) a pass.
  absl::StatusOr<RefineResult> Refine(std::span<const TetId> zone, const RefineOptions& options) {
    return Refine(zone, options, [](TetId) { return true; });
  }
  /// Children for which `stays` is false leave the zone.
  absl::StatusOr<RefineResult> Refine(std::span<const TetId> zone, const RefineOptions& options, absl::FunctionRef<bool(TetId)> stays);

  /// How many calls of Refine the budget has stopped.
  uint64_t refused_count() const { return refused_count_; }

  template <typename Archive>
  void VisitState(Archive& archive) {
    [[maybe_unused]] auto& [mesh, refused_count, zone, mask, marked, queue, fan, marked_edge_count, middle, edit] = *this;
    archive.Enter("Refiner");
    archive(refused_count);
  }

 private:
  void MarkEdge(uint32_t tet, int edge);
  double EdgeLength(uint32_t tet, int edge) const;
  void MarkZone(const RefineOptions& options, RefineResult* result);
  void Close(const RefineOptions& options, RefineResult* result);
  void CloseFaces(uint32_t tet, double ratio);
  bool IsSplitFirst(uint32_t tet, int edge, int other) const;
  void BuildEdit();

  ClosedMesh* mesh_;
  uint64_t refused_count_ = 0;
  // Scratch of one pass.
  std::vector<uint32_t> zone_;    // tet slots
  std::vector<uint8_t> mask_;     // [tet slot] split edges; 0 outside a pass
  std::vector<uint32_t> marked_;  // tets with a mask
  std::vector<uint32_t> queue_;   // tets whose mask has changed
  std::vector<uint32_t> fan_;
  size_t marked_edge_count_ = 0;
  absl::flat_hash_map<uint64_t, uint32_t> middle_;  // edge -> new vertex
  MeshEdit edit_;
};

}  // namespace palpate::sim
