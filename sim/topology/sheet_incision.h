#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <Eigen/Core>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "gpu/base/state_archive.h"
#include "sim/topology/sheet_mesh.h"

namespace palpate::sim {

struct SheetIncisionOptions {
  /// Where the sweep crosses an edge within this share of its length from an end, the cut goes through that vertex instead.
  double snap = 0.2;
  /// No split makes a triangle with a mean ratio (at rest) below this, unless it was no better; crossings that would are moved to a vertex.
  double min_quality = 0.1;
  size_t triangle_budget = 200000;  ///< a sweep whose splits would leave more is refused
};

/// What one sweep did.
struct SheetIncisionResult {
  size_t split_edges = 0;       ///< crossings that became vertices
  size_t snapped_vertices = 0;  ///< existing vertices that the cut goes through
  size_t moved_crossings = 0;   ///< crossings moved to a vertex
  size_t copied_vertices = 0;   ///< made by opening
  size_t closed_edges = 0;      ///< state after the call: edges of the cut that its front holds together
  bool is_refused = false;      ///< the budget stopped it; the mesh is as the last part of the sweep left it
};

/// Cuts a sheet with a blade: where the area that a straight edge sweeps crosses the sheet, a row of its edges is parted, and the two sides
/// get vertices of their own (the lips). Progressive, as Incision: an edge is split as soon as the blade has passed it, and the cut opens
/// where it has gone on. So at the blade's tip it is split, but closed. A stroke is a run of calls, which ends with EndStroke or with a
/// call that finds nothing at the blade. One that ended in the sheet goes on with a later call that begins where its blade was.
///
/// Guarantees: a manifold with boundary after each edit; area and surface at rest are conserved to rounding; no vertex moves: new ones lie
/// on edges, copies on their originals. The cut deviates from the sweep by at most the share `snap` of the edges it crosses; where a
/// crossing was moved for the sake of quality, by up to half an edge. A sheet that lies along the sweep (less than 3 degrees) is not cut
/// there. Deterministic.
class SheetIncision {
 public:
  /// `mesh` must outlive it. Others may edit it between calls.
  explicit SheetIncision(SheetMesh* mesh) : mesh_(*mesh) {}

  /// One sweep of the blade through the sheet as it lies now: the triangles (from 0, from 1, to 1) and (from 0, to 1, to 0).
  /// `positions_by_slot_m`: [vertex_slot_count()] W, m. Errors: InvalidArgument (too few positions, a coordinate that is not finite, an
  /// option out of range), with nothing changed; those of SheetMesh::Apply. O(mesh) box tests, and O(triangles at the sweep).
  absl::StatusOr<SheetIncisionResult> Cut(std::span<const Eigen::Vector3d> positions_by_slot_m,
                                          const std::array<Eigen::Vector3d, 2>& blade_from_m,
                                          const std::array<Eigen::Vector3d, 2>& blade_to_m, const SheetIncisionOptions& options = {});
  /// The front is forgotten, but for a call that begins where the blade is. Of such ends the newest 16 are known.
  void EndStroke();
  /// Whether the blade is in a sheet that it has marked.
  bool IsUnderWay() const { return !front_.empty(); }

  template <typename Archive>
  void VisitState(Archive& archive) {
    [[maybe_unused]] auto& [mesh, front, closed, blade_m, is_blade_known, rests, x, facets, crossings, of_edge, fresh] = *this;
    archive.Enter("SheetIncision");
    archive(front, closed, blade_m, is_blade_known, rests);
  }

 private:
  using Edge = std::array<VertexId, 2>;
  /// A vertex that the cut has come to, and has not opened.
  struct Mark {
    VertexId vertex = kNoVertex;
    bool is_snapped = false;  ///< was there before the cut

    template <typename Archive>
    void VisitState(Archive& archive) {
      auto& [of, snapped] = *this;
      archive(of, snapped);
    }
  };
  /// A stroke that ended in the sheet.
  struct Rest {
    std::array<Eigen::Vector3d, 2> blade_m;
    std::vector<Mark> front;
    std::vector<Edge> closed;

    template <typename Archive>
    void VisitState(Archive& archive) {
      auto& [blade, marks, edges] = *this;
      archive(blade, marks, edges);
    }
  };
  struct Facet {
    std::array<Eigen::Vector3d, 3> corners_m;
    Eigen::Vector3d normal;  // unit; zero without area
  };
  struct Crossing {
    uint32_t a = 0, b = 0;  // vertex slots, a < b
    double t = 0;           // from a to b
    bool is_split = true;
    uint32_t vertex = kNoSlot;  // where it is split
  };

  void Resume(const std::array<Eigen::Vector3d, 2>& blade_m);
  void ForgetGone();
  absl::Status CutPart(const std::array<Eigen::Vector3d, 4>& quad, const SheetIncisionOptions& options, SheetIncisionResult* result);
  std::vector<uint32_t> FindCandidates(const std::array<Eigen::Vector3d, 4>& quad) const;
  void FindCrossings(const std::vector<uint32_t>& candidates);
  bool Crosses(uint32_t a, uint32_t b, const Facet& facet, double* t) const;
  void Snap(const SheetIncisionOptions& options);
  bool MoveTo(uint32_t vertex);
  void KeepQuality(const std::vector<uint32_t>& candidates, const SheetIncisionOptions& options);
  std::vector<std::array<uint32_t, 3>> ChildrenOf(const std::array<uint32_t, 3>& corners) const;
  Eigen::Vector3d RestOf(uint32_t point) const;
  uint32_t PointOn(uint32_t a, uint32_t b) const;
  absl::Status Split(const std::vector<uint32_t>& candidates, const SheetIncisionOptions& options, SheetIncisionResult* result);
  void AddCut(const std::array<uint32_t, 3>& corners);
  absl::Status Open(SheetIncisionResult* result);
  void FollowOpening(const std::vector<Edge>& parted, const std::vector<std::pair<TriangleId, std::array<size_t, 2>>>& beside);

  SheetMesh& mesh_;
  std::vector<Mark> front_;
  std::vector<Edge> closed_;  // edges of the cut that two triangles still share
  std::array<Eigen::Vector3d, 2> blade_m_ = {Eigen::Vector3d::Zero(), Eigen::Vector3d::Zero()};
  bool is_blade_known_ = false;
  std::vector<Rest> rests_;  // oldest first

  // Of one part of a sweep.
  std::vector<Eigen::Vector3d> x_;  // [vertex slot] W
  std::array<Facet, 2> facets_;
  std::vector<Crossing> crossings_;
  absl::flat_hash_map<std::pair<uint32_t, uint32_t>, uint32_t> of_edge_;  // place in crossings_
  std::vector<uint32_t> fresh_;                                           // vertices that the cut goes through, ascending
};

}  // namespace palpate::sim
