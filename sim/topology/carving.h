#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/topology/closed_mesh.h"
#include "sim/topology/exposure_guard.h"

namespace palpate::sim {

/// What taking a tet out would do to the surface (Forest 2003, section on cutting).
enum class CarveClass {
  kRemovable,           ///< nothing singular
  kSingularEdge,        ///< two faces on the surface, and the edge opposite to the one they share
  kSingularVertexEdge,  ///< one face on the surface, the opposite vertex too, and 1 to 3 of the edges at it
  kSingularVertex,      ///< one face on the surface, the opposite vertex too, but no edge at it
  kInside,              ///< no face on the surface, but a vertex: cannot be reached yet
};

/// Counts of a Carver, as the source tabulates them. An operation is a request for one tet; attempts on the same tet count once.
struct CarvingStatistics {
  uint64_t no_problem = 0;        ///< operations that just took the tet out
  uint64_t edge_problem = 0;      ///< solved by splitting an edge
  uint64_t vertex_split = 0;      ///< vertex problems solved by splitting vertices
  uint64_t vertex_set = 0;        ///< solved by removing a set of tets
  uint64_t vertex_heuristic = 0;  ///< solved by a set that was extended
  uint64_t unsolved = 0;          ///< tets that are still there: a problem of a vertex, or a guard refuses
  uint64_t solved_by_others = 0;  ///< at first unsolved, then removed together with another tet
  uint64_t removed_in_sets = 0;   ///< tets in the sets of vertex_set
  uint64_t removed_in_heuristic_sets = 0;
  uint64_t removed_tets = 0;     ///< in all operations
  uint64_t copied_vertices = 0;  ///< made by splits
  uint64_t retries = 0;          ///< attempts after the first one
  uint64_t heuristic_tries = 0;  ///< searches that needed the heuristic

  uint64_t vertex_problem() const { return vertex_split + vertex_set + vertex_heuristic + unsolved + solved_by_others; }
  uint64_t operations() const { return no_problem + edge_problem + vertex_problem(); }

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = *this;
    archive(a, b, c, d, e, f, g, h, i, j, k, l, m);
  }
};

/// Takes tets out of a mesh as a cavitron or a cautery does, so that the surface is a manifold after every single operation. Where taking
/// out the tet alone would leave a singular edge or vertex, vertices are split; where the tet would pierce a thin place, a small set of
/// tets around it goes with it.
class Carver {
 public:
  struct Outcome {
    bool is_removed = false;  ///< false: the tet stays for now (kInside, refused, or no set was found); ask again later
    CarveClass carve_class = CarveClass::kRemovable;
    size_t removed_tets = 0;     ///< including the requested one; split tets that were only rewritten do not count
    size_t copied_vertices = 0;  ///< new vertices of a split
  };

  /// `mesh` must outlive the carver.
  explicit Carver(ClosedMesh* mesh) : mesh_(mesh) {}

  /// From now on nothing goes whose removal uncovers a face that `guard` refuses. Tets behind such faces go along where `may_take` lets
  /// them, a few at most.
  void SetGuard(ExposureGuard guard, std::function<bool(uint32_t tet)> may_take) {
    guard_ = std::move(guard);
    may_take_ = std::move(may_take);
  }

  /// What taking out a live tet would do. O(1).
  CarveClass Classify(uint32_t tet) const;

  /// One operation: removes a tet, if need be with splits or neighbours. A tet that cannot be removed is remembered for RetryPending.
  /// Copies of vertices have their original as only source, and rewritten tets their old self as parent. Errors: NotFound.
  absl::StatusOr<Outcome> Remove(TetId tet);

  /// Tries again the tets that could not be removed. Returns how many are gone now. O(pending).
  size_t RetryPending();

  /// Unsolved ones are those pending now.
  CarvingStatistics statistics() const;

  /// What was tried and could not go. The guard is that of an edit.
  template <typename Archive>
  void VisitState(Archive& archive) {
    [[maybe_unused]] auto& [mesh, guard, may_take, statistics, pending, edit, fan, set, path, best, going, behind, uncovered, refused,
                            blocked, pieces, search] = *this;
    archive.Enter("Carver");
    archive(statistics, pending);
  }

 private:
  absl::Status Split(uint32_t tet, Outcome* outcome);
  bool MayUncover(std::vector<uint32_t>* tets);
  absl::Status RemoveSet(std::span<const uint32_t> tets, Outcome* outcome);
  bool FindSet(uint32_t tet, uint32_t vertex, bool* is_heuristic);
  void FanPieces(uint32_t vertex);
  void Count(const Outcome& outcome, bool is_heuristic);
  void FollowPending();

  ClosedMesh* mesh_;
  ExposureGuard guard_;
  std::function<bool(uint32_t tet)> may_take_;
  CarvingStatistics statistics_;
  std::vector<TetId> pending_;
  // Scratch.
  MeshEdit edit_;
  std::vector<uint32_t> fan_, set_, path_, best_, going_, behind_;
  UncoveredFaces uncovered_;
  std::vector<uint8_t> refused_;
  std::vector<uint32_t> blocked_;  // tets that FanPieces leaves out
  std::vector<std::vector<uint32_t>> pieces_;
  struct Reached {
    uint32_t tet;
    uint32_t from;  // place in the search
    int depth;
  };
  std::vector<Reached> search_;
};

}  // namespace palpate::sim
