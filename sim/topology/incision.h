#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <Eigen/Core>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sim/topology/closed_mesh.h"
#include "sim/topology/exposure_guard.h"
#include "sim/topology/ids.h"
#include "sim/topology/mesh_edit.h"

namespace palpate::sim {

struct IncisionOptions {
  /// Where the plane of the sweep crosses an edge within this share of its length from an end, the cut goes through that vertex instead. In
  /// [0.01, 0.4].
  double snap = 0.2;
  /// No split makes a tet with a mean ratio (Q2, at rest) below this; crossings that would are moved to a vertex. In [0.001, 0.5].
  double min_quality = 0.1;
  /// No split makes a piece of an edge shorter than this at rest; finite, not negative.
  double min_edge_m = 0;
  size_t tet_budget = 200000;  ///< a sweep whose splits would leave more tets in the mesh is refused
};

/// What one sweep did. Counts are of this call unless said otherwise.
struct IncisionResult {
  size_t split_edges = 0;       ///< crossings that became vertices
  size_t split_tets = 0;        ///< replaced by smaller ones
  size_t added_tets = 0;        ///< by how many the mesh grew
  size_t snapped_vertices = 0;  ///< existing vertices that the cut goes through
  size_t moved_crossings = 0;   ///< crossings moved to a vertex or along their edge for the sake of min_quality or min_edge_m
  size_t copied_vertices = 0;   ///< made by opening
  size_t opened_faces = 0;      ///< whose two sides are two surface triangles now
  double opened_area_m2 = 0;    ///< of these, one side, at rest
  size_t front_faces = 0;       ///< state after the call: faces of the cut that are closed since all their vertices lie on its front
  size_t joined_faces = 0;      ///< state after the call: further faces kept closed: no manifold, or refused
  double min_mean_ratio = 1;    ///< of the tets made by splits (Q2, at rest)
  bool is_refused = false;      ///< the budget stopped the sweep; the mesh is as the last part of the sweep that fitted left it
};

/// Cuts a mesh with a blade, without removing material: the area swept by a straight edge becomes a set of faces of the mesh, and where
/// these part the tissue, its two sides get vertices of their own (the lips). Surfaces without tets are not cut.
///
/// The cut is progressive: a mesh edge is split as soon as the blade has passed it, a face opens as soon as all its vertices were passed
/// and at least one of them does not lie on the front, the border of the cut. So tets at the blade's tip are split, but not opened; what
/// was passed is remembered, and the next call goes on from there. A stroke is a run of calls; it ends with EndStroke, or with a call that
/// finds no tissue at the blade. If it ended with the blade in the tissue, a later call that begins where the blade was goes on with it as
/// if it had not ended: so a stroke may come in as many parts as one likes, and those of several blades one among the other.
///
/// Guarantees: the real part stays a manifold after each edit (of which a call makes two at most, or two for each part of a strongly
/// twisted sweep); the sum of rest volumes is conserved to rounding; no vertex moves (new ones lie on edges, at rest and now, copies on
/// their originals; what hangs on the mesh follows through the observers); both pieces of a split edge are at least `snap` of it as the
/// blade saw it; mean ratios as in the options. The cut deviates from the swept area by at most the share `snap` of the edges that cross
/// it; where a crossing was moved to a vertex, by up to the edge, as a rule by less than half of it. Deterministic.
class Incision {
 public:
  /// `mesh` must outlive the incision. Others may edit it between calls.
  explicit Incision(ClosedMesh* mesh) : mesh_(mesh) {}

  /// From now on faces that `guard` refuses, and those of tets that are inverted where the blade meets them, stay joined.
  void SetGuard(ExposureGuard guard) { guard_ = std::move(guard); }

  /// One sweep of the blade, from one segment to another, through the mesh as it is deformed now; the area is that of the triangles (from
  /// 0, from 1, to 1) and (from 0, to 1, to 0). It is decided there, and carried to the rest state along the edges. `positions_by_slot_m`:
  /// [vertex_slot_count()] W, m; those of free slots are not read. A sweep without area does nothing. Errors: InvalidArgument (an option
  /// out of range, too few positions, a coordinate that is not finite), with nothing changed; ResourceExhausted (of ClosedMesh::Apply),
  /// with the mesh as the last edit left it. O(mesh) box tests, plus O(tets at the sweep and at the front).
  absl::StatusOr<IncisionResult> Cut(std::span<const Eigen::Vector3d> positions_by_slot_m,
                                     const std::array<Eigen::Vector3d, 2>& blade_from_m, const std::array<Eigen::Vector3d, 2>& blade_to_m,
                                     const IncisionOptions& options = {});

  /// The front is forgotten, but for joined faces, which later sweeps nearby try to open, and, if the blade is in the tissue, for a call
  /// that begins there; of such ends the newest 16 are known. O(mesh) box tests.
  void EndStroke();

  /// Whether a stroke goes on: the blade is in tissue that it has marked. O(front).
  bool IsUnderWay() const;

  /// The stroke that is under way, those that ended in tissue, and what stays joined. The guard is that of an edit. Of a reader the mesh
  /// must have been read before.
  template <typename Archive>
  void VisitState(Archive& archive) {
    [[maybe_unused]] auto& [mesh, guard, marks, marked, front_faces, joined_faces, sides, snapped, rests, blade_m, is_blade_known, stroke,
                            positions_m, facets, outcodes, candidates, candidate_vertices, shares, unsnappable, crossings, crossing_of_edge,
                            mask, masked, reached, hits, fan, star, work, edit, marked_corners, blocked, marked_tets, flat_sides, cut_faces,
                            faces_of_vertex, cut_vertices, label_index, labels, labeled_tets, groups, link, vertex_of_label, first_label] =
        *this;
    archive.Enter("Incision");
    archive(marks, marked, front_faces, joined_faces, sides, snapped, rests, blade_m, is_blade_known, stroke, positions_m);
    archive.Check(IsSound(), "a mark is on a vertex that never was");
  }

 private:
  using Quad = std::array<Eigen::Vector3d, 4>;  // from 0, from 1, to 1, to 0
  // The plane of a sweep at some place.
  struct Sheet {
    Eigen::Vector3d normal;       // unit, at rest
    Eigen::Vector3d seen_normal;  // unit, in W when the blade was there
    uint32_t stroke = 0;

    template <typename Archive>
    void VisitState(Archive& archive) {
      auto& [at_rest, seen, of_stroke] = *this;
      archive(at_rest, seen, of_stroke);
    }
  };
  // Between two sheets: as they were seen if they are of one stroke, since tissue may turn much from vertex to vertex; else at rest.
  static double Cosine(const Sheet& a, const Sheet& b) {
    return a.stroke == b.stroke ? a.seen_normal.dot(b.seen_normal) : a.normal.dot(b.normal);
  }
  // The sweep as a vertex saw it: the plane through its position - offset_m * sheet.normal.
  struct Hit {
    Sheet sheet;
    double offset_m = 0;

    template <typename Archive>
    void VisitState(Archive& archive) {
      auto& [of_sheet, offset] = *this;
      archive(of_sheet, offset);
    }
  };
  struct Mark {
    VertexId id = kNoVertex;
    std::vector<Hit> hits;     // one for each of several sweeps that pass at an angle
    bool is_joined = false;    // of a face that is kept closed
    bool is_dormant = false;   // of an earlier stroke, until a sweep comes near
    bool is_finished = false;  // has come apart, and lies on one side now

    template <typename Archive>
    void VisitState(Archive& archive) {
      auto& [vertex, of_sweeps, joined, dormant, finished] = *this;
      archive(vertex, of_sweeps, joined, dormant, finished);
    }
  };
  // A stroke that has ended in tissue.
  struct Rest {
    std::array<Eigen::Vector3d, 2> blade_m;
    std::vector<std::pair<uint32_t, Mark>> marks;  // by vertex slot
    std::vector<VertexId> snapped;                 // ascending

    template <typename Archive>
    void VisitState(Archive& archive) {
      auto& [blade, on_vertices, through] = *this;
      archive(blade, on_vertices, through);
    }
  };
  // sheet.normal . x = distance_m, at rest.
  struct Plane {
    Sheet sheet;
    double distance_m = 0;
  };
  // A vertex that the sweep has reached.
  struct ReachedHit {
    uint32_t vertex = 0;
    uint32_t facet = 0;
    Hit hit;
  };
  // On which side of a sweep something lies.
  struct Side {
    Sheet sheet;
    bool is_above = false;

    template <typename Archive>
    void VisitState(Archive& archive) {
      auto& [of_sheet, above] = *this;
      archive(of_sheet, above);
    }
  };
  // Of a vertex, one for each of several sweeps.
  struct NotedSides {
    VertexId id = kNoVertex;
    std::vector<Side> sides;

    template <typename Archive>
    void VisitState(Archive& archive) {
      auto& [vertex, of_sweeps] = *this;
      archive(vertex, of_sweeps);
    }
  };
  // A triangle of the sweep.
  struct Facet {
    std::array<Eigen::Vector3d, 3> corners_m;
    Eigen::Vector3d normal;  // unit, or zero if it has no area
    double HeightOf(const Eigen::Vector3d& x) const { return normal.dot(x - corners_m[0]); }
  };
  // A mesh edge that the sweep crosses.
  struct Crossing {
    uint32_t a = 0, b = 0;  // vertex slots, a < b
    uint32_t tet = 0;       // one with the edge
    int edge = 0;           // its number there
    double t = 0;           // from a to b
    uint32_t facet = 0;
    bool is_split = true;
  };
  struct CutFace {
    uint32_t tet = 0;
    int face = 0;
    uint32_t neighbor = 0;
    bool is_joined = false;
  };
  // Children of a tet: vertex slots, or kNewPoint | place in crossings_.
  using Children = std::array<std::array<uint32_t, 4>, 8>;

  bool IsSound() const;
  absl::Status CutPart(const Quad& quad, const IncisionOptions& options, IncisionResult* result);
  // What the sweep meets.
  bool FindCandidates(const Quad& quad);
  void FindCrossings(const IncisionOptions& options, IncisionResult* result);
  double ShareAt(uint32_t vertex, uint32_t facet);
  bool IsSnappable(uint32_t vertex, uint32_t facet, const IncisionOptions& options);
  void FindUnsnappable(const IncisionOptions& options);
  bool IsNear(uint32_t vertex, uint32_t facet, const IncisionOptions& options);
  void FindHits(const IncisionOptions& options);
  Hit HitOf(std::span<const uint32_t> tets, const Facet& facet, double height_m) const;
  // Splitting.
  void MoveTo(uint32_t vertex, uint32_t facet);
  void KeepQuality(const IncisionOptions& options, IncisionResult* result);
  int MakeChildren(uint32_t tet, Children* children) const;
  Eigen::Vector3d RestOf(uint32_t point) const;
  absl::Status Split(const IncisionOptions& options, IncisionResult* result);
  void AddHit(uint32_t vertex, const Hit& hit);
  // Opening.
  absl::Status Open(IncisionResult* result);
  void LabelCutVertices();
  std::vector<uint32_t> MakeOpening(std::vector<uint32_t>* new_index);
  void DropMarks(bool is_stroke_over);
  bool IsBladeInTissue() const;
  void Resume(const std::array<Eigen::Vector3d, 2>& blade_m);
  void FindCutFaces();
  bool PlaneOf(uint32_t tet, std::span<const int> corners, Plane* plane) const;
  static const Side* FindSide(std::span<const Side> sides, const Sheet& sheet);
  void NoteSide(uint32_t vertex, const Side& side);
  void NoteSides(uint32_t vertex, const Hit& hit, const Facet& facet);
  bool IsVertexAbove(uint32_t vertex, const Plane& plane) const;
  bool IsAbove(uint32_t tet, const Plane& plane);
  void LabelVertex(uint32_t vertex);
  bool IsLinkGood(uint32_t vertex);
  void KeepManifold();
  void KeepApart();
  template <typename F>
  void ForParts(uint32_t vertex, const F& see);
  bool IsOnCut(uint32_t vertex) const;
  void SetJoined(CutFace* face, bool is_joined);
  void SetBlocked(const CutFace& face, bool is_blocked);
  static int CornerOf(const std::array<uint32_t, 4>& vertices, uint32_t vertex) {
    return static_cast<int>(std::find(vertices.begin(), vertices.end(), vertex) - vertices.begin());
  }
  uint32_t LabelOf(uint32_t tet, uint32_t vertex) const;
  bool IsOpen(uint32_t tet, int face) const;

  ClosedMesh* mesh_;
  ExposureGuard guard_;
  absl::flat_hash_map<uint32_t, Mark> marks_;        // by vertex slot: vertices on the cut, and finished parts of them
  std::vector<uint32_t> marked_;                     // keys of marks_, oldest first
  size_t front_faces_ = 0, joined_faces_ = 0;        // after the last Open
  absl::flat_hash_map<uint32_t, NotedSides> sides_;  // by vertex slot: of this stroke, of vertices next to marked ones
  absl::flat_hash_set<VertexId> snapped_;            // vertices that this stroke goes through, reached already or not: no splits at them

  std::vector<Rest> rests_;                                                                      // oldest first
  std::array<Eigen::Vector3d, 2> blade_m_ = {Eigen::Vector3d::Zero(), Eigen::Vector3d::Zero()};  // where the last call left it
  bool is_blade_known_ = false;
  uint32_t stroke_ = 0;  // number of this stroke

  std::vector<Eigen::Vector3d> positions_m_;  // [vertex slot] W, in the last call

  // Scratch of one call.
  std::array<Facet, 2> facets_;
  std::vector<uint8_t> outcodes_;                          // [vertex slot] sides of the sweep's box that it is beyond
  std::vector<uint32_t> candidates_, candidate_vertices_;  // tets that may meet the sweep, their vertices
  absl::flat_hash_map<uint64_t, double> shares_;           // ShareAt by vertex and facet
  absl::flat_hash_set<uint64_t> unsnappable_;              // vertex and facet, likewise
  std::vector<Crossing> crossings_;
  absl::flat_hash_map<uint64_t, uint32_t> crossing_of_edge_;
  std::vector<uint8_t> mask_;  // [tet slot] split edges; 0 between calls
  std::vector<uint32_t> masked_;
  std::vector<std::pair<uint32_t, uint32_t>> reached_;  // vertex, facet
  std::vector<ReachedHit> hits_;
  std::vector<uint32_t> fan_, star_, work_;
  MeshEdit edit_;
  // Scratch of Open; the arrays by slot are reset between calls.
  std::vector<uint8_t> marked_corners_;  // [tet slot]
  std::vector<uint8_t> blocked_;         // [tet slot] faces of the cut
  std::vector<uint32_t> marked_tets_;
  absl::flat_hash_map<uint32_t, std::vector<Side>> flat_sides_;  // [tet slot] of those with four marked corners
  std::vector<CutFace> cut_faces_;
  std::vector<std::pair<uint32_t, uint32_t>> faces_of_vertex_;  // cut vertex, place in cut_faces_; ascending
  std::vector<uint32_t> cut_vertices_;                          // ascending
  std::vector<uint32_t> label_index_;                           // [tet slot] place in labels_, or kNoSlot
  std::vector<std::array<uint32_t, 4>> labels_;  // of a tet's corners: the vertex's slot, or a number that a copy will stand for
  std::vector<uint32_t> labeled_tets_;           // beside labels_
  std::vector<std::vector<uint32_t>> groups_;
  std::vector<uint32_t> link_;
  std::vector<uint32_t> vertex_of_label_;  // [label - first_label_]
  uint32_t first_label_ = 0;
};

}  // namespace palpate::sim
