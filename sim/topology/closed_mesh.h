#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <Eigen/Core>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/base/state_archive.h"
#include "sim/mesh/tet_mesh.h"
#include "sim/topology/component_tracker.h"
#include "sim/topology/ids.h"
#include "sim/topology/mesh_edit.h"

namespace palpate::sim {

class ClosedMesh;
class Neighbor;

}  // namespace palpate::sim

namespace palpate {
template <>
inline constexpr bool kIsPacked<sim::Neighbor> = true;
}  // namespace palpate

namespace palpate::sim {

/// Faces of a tet of positive orientation, [i] opposite vertex i, counter-clockwise seen from outside.
inline constexpr std::array<std::array<int, 3>, 4> kTetFaces = {{{1, 2, 3}, {0, 3, 2}, {0, 1, 3}, {0, 2, 1}}};
/// Edges of a tet, in the order in which the subdivision table numbers them.
inline constexpr std::array<std::array<int, 2>, 6> kTetEdges = {{{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}}};
/// Number of the edge between two different vertices of a tet.
constexpr int TetEdgeBetween(int a, int b) {
  for (int e = 0; e < 6; ++e) {
    const auto [i, j] = kTetEdges[static_cast<size_t>(e)];
    if ((i == a && j == b) || (i == b && j == a)) return e;
  }
  return -1;
}

/// Behind a face of a tet: another tet, or (on the surface) a virtual tet, which is the triangle joined to a virtual vertex.
class Neighbor {
 public:
  Neighbor() = default;
  static Neighbor Tet(uint32_t slot) { return Neighbor(slot); }
  static Neighbor Triangle(uint32_t slot) { return Neighbor(slot | kVirtual); }
  bool is_virtual() const { return (code_ & kVirtual) != 0; }
  uint32_t slot() const { return code_ & ~kVirtual; }  ///< of the tet, or of the triangle if virtual
  bool operator==(const Neighbor&) const = default;

 private:
  static constexpr uint32_t kVirtual = 0x80000000U;
  explicit Neighbor(uint32_t code) : code_(code) {}
  uint32_t code_ = kVirtual;
};

/// What derived data does about an edit. Calls come after the mesh has changed, in the order of the declarations. Slots freed by an edit
/// are not used again by the same edit, so arrays by slot still hold the properties of what was removed during all calls of the edit.
class MeshObserver {
 public:
  virtual ~MeshObserver() = default;
  /// A new vertex: interpolate its properties from its sources (weights sum to 1; none: a vertex without a past).
  virtual void OnVertexAdded(const ClosedMesh& mesh, const MeshDelta::AddedVertex& vertex);
  /// A new tet: take its properties from its parent, if it has one, and add its contributions.
  virtual void OnTetAdded(const ClosedMesh& mesh, const MeshDelta::AddedTet& tet);
  /// Undo the tet's contributions. `vertices` may be gone after the edit, too.
  virtual void OnTetRemoved(const ClosedMesh& mesh, TetId tet, const std::array<VertexId, 4>& vertices);
  virtual void OnVertexRemoved(const ClosedMesh& mesh, VertexId vertex);
  /// Once an edit, if triangles were added, removed or given another tet; see the lists of `delta`.
  virtual void OnSurfaceChanged(const ClosedMesh& mesh, const MeshDelta& delta);
  /// Once an edit, last.
  virtual void OnEdited(const ClosedMesh& mesh, const MeshDelta& delta);
};

/// A set of tets: a tumour, the parenchyma.
struct TetZone {
  std::string name;
  SurfaceZoneId interior_surface_zone = 0;  ///< given to triangles that are uncovered next to a tet of this zone

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [zone_name, interior] = *this;
    archive(zone_name, interior);
  }
};

/// A topologically closed tetrahedral mesh: real tets, and for each surface triangle a virtual tet that joins it to a virtual vertex, one
/// for each connected component of the surface (Forest 2003, section on the data structure). The real part is always a manifold: the link
/// of each vertex is a sphere, or a disc on the surface. So the surface has two triangles at each edge and one fan at each vertex.
///
/// Elements lie in slots (indices below the *_slot_count(), with gaps), which are also the places of device arrays; ids name them across
/// edits. All queries take slots of live elements. Positions are those at rest: edits do not depend on the deformation. Not safe for use by
/// several threads, not even of const functions (they share scratch). Deterministic: same calls, same slots, ids, deltas and hash.
///
/// Limits: 2^31 - 1 slots of each kind; zone numbers up to 65,535.
class ClosedMesh {
 public:
  /// Number of elements, virtual ones apart. Edges and faces need a pass over the mesh.
  struct Counts {
    size_t vertices = 0, edges = 0, faces = 0, tets = 0;  ///< real
    size_t virtual_vertices = 0, virtual_edges = 0, virtual_faces = 0,
           virtual_tets = 0;  ///< = surface components, vertices, edges, triangles
    /// Euler characteristic of the real part, of the surface, and of the closed complex.
    int64_t RealChi() const;
    int64_t SurfaceChi() const;
    int64_t ClosedChi() const;
  };
  /// What the last Apply looked at, to see that an edit costs what it is worth.
  struct EditCost {
    size_t tets_read = 0;         ///< tets in the neighbourhoods of the edit's vertices
    size_t records_written = 0;   ///< tets, triangles and vertices
    size_t component_visits = 0;  ///< cells visited by the searches for connected components
  };
  struct SurfaceCorner {
    uint32_t triangle_count = 0;                             ///< triangles of the zone at this vertex
    std::optional<std::array<float, 2>> texture_coordinate;  ///< nothing where none was ever given

    template <typename Archive>
    void VisitState(Archive& archive) {
      auto& [count, coordinate] = *this;
      archive(count, coordinate);
    }
  };
  struct DetachedPiece;

  ClosedMesh();

  /// A mesh of the vertices and tets of `mesh`, in their order: vertex and tet i are in slot i. `tet_zones`: [tet_count] or empty (all 0);
  /// zones up to the largest number exist then, with interior surface zone 0. All triangles get surface zone 0.
  /// Errors: those of ValidateTetMesh; InvalidArgument if the real part is not a manifold, or the zones do not match.
  static absl::StatusOr<ClosedMesh> Build(const TetMesh& mesh, std::span<const TetZoneId> tet_zones = {});

  // --- elements -------------------------------------------------------------------------------------------------------------------------

  uint32_t vertex_slot_count() const { return static_cast<uint32_t>(vertices_.size()); }
  uint32_t tet_slot_count() const { return static_cast<uint32_t>(tets_.size()); }
  uint32_t triangle_slot_count() const { return static_cast<uint32_t>(triangles_.size()); }
  size_t vertex_count() const { return vertex_count_; }
  size_t tet_count() const { return tet_count_; }
  size_t triangle_count() const { return triangle_count_; }
  bool IsVertex(uint32_t slot) const { return slot < vertices_.size() && vertices_[slot].tet != kNoSlot; }
  bool IsTet(uint32_t slot) const { return slot < tets_.size() && tets_[slot].vertices[0] != kNoSlot; }
  bool IsTriangle(uint32_t slot) const { return slot < triangles_.size() && triangles_[slot].tet != kNoSlot; }

  VertexId IdOfVertex(uint32_t slot) const { return MakeId<VertexId>(slot, vertices_[slot].generation); }
  TetId IdOfTet(uint32_t slot) const { return MakeId<TetId>(slot, tets_[slot].generation); }
  TriangleId IdOfTriangle(uint32_t slot) const { return MakeId<TriangleId>(slot, triangles_[slot].generation); }
  /// The slot of a live element, kNoSlot if it is gone or never was. O(1).
  uint32_t Find(VertexId id) const;
  uint32_t Find(TetId id) const;
  uint32_t Find(TriangleId id) const;

  const Eigen::Vector3d& PositionOf(uint32_t vertex) const { return vertices_[vertex].position_m; }  ///< at rest, m
  const std::array<uint32_t, 4>& TetVertices(uint32_t tet) const { return tets_[tet].vertices; }
  /// Behind the face opposite vertex i.
  Neighbor TetNeighbor(uint32_t tet, int i) const { return tets_[tet].neighbors[static_cast<size_t>(i)]; }
  TetZoneId TetZoneOf(uint32_t tet) const { return tets_[tet].zone; }
  /// Corners counter-clockwise seen from outside.
  const std::array<uint32_t, 3>& TriangleVertices(uint32_t triangle) const { return triangles_[triangle].vertices; }
  /// The triangle across the edge opposite corner i.
  uint32_t TriangleNeighbor(uint32_t triangle, int i) const { return triangles_[triangle].neighbors[static_cast<size_t>(i)]; }
  uint32_t TriangleTet(uint32_t triangle) const { return triangles_[triangle].tet; }
  SurfaceZoneId TriangleZoneOf(uint32_t triangle) const { return triangles_[triangle].zone; }
  double RestVolume(uint32_t tet) const;  ///< m^3, positive

  // --- surface, O(1) --------------------------------------------------------------------------------------------------------------------

  bool IsFaceOnSurface(uint32_t tet, int i) const { return TetNeighbor(tet, i).is_virtual(); }
  bool IsEdgeOnSurface(uint32_t tet, int edge) const { return (tets_[tet].surface_edges >> edge & 1) != 0; }
  bool IsVertexOnSurface(uint32_t vertex) const { return vertices_[vertex].triangle != kNoSlot; }

  // --- neighbourhoods; each call replaces the contents of `*out`
  // --------------------------------------------------------------------------

  /// All tets at a vertex, its first one first, by breadth-first search through faces. O(result).
  void TetsAroundVertex(uint32_t vertex, std::vector<uint32_t>* out) const;
  /// All tets at edge `edge` of `tet`, each sharing a face with the next; on the surface from one surface face to the other.
  void TetsAroundEdge(uint32_t tet, int edge, std::vector<uint32_t>* out) const;
  /// All vertices joined to a vertex by an edge, ascending slots. O(result log result).
  void NeighborsOfVertex(uint32_t vertex, std::vector<uint32_t>* out) const;
  /// The surface triangles at a vertex, counter-clockwise seen from outside; none inside the body. O(result).
  void SurfaceFan(uint32_t vertex, std::vector<uint32_t>* out) const;

  // --- components -----------------------------------------------------------------------------------------------------------------------

  /// Component of the real mesh that a tet belongs to (joined through faces).
  ComponentId ComponentOfTet(uint32_t tet) const { return tet_components_.at(tet); }
  /// The virtual vertex that a triangle is joined to.
  ComponentId SurfaceOfTriangle(uint32_t triangle) const { return surface_components_.at(triangle); }
  std::vector<ComponentId> Components() const { return tet_components_.Ids(); }
  std::vector<ComponentId> Surfaces() const { return surface_components_.Ids(); }
  /// Tets of a component, triangles of a surface; 0 for one that is gone.
  size_t ComponentTetCount(ComponentId component) const;
  size_t SurfaceTriangleCount(ComponentId surface) const;
  /// The tets of a component, breadth first. O(result).
  void TetsOfComponent(ComponentId component, std::vector<uint32_t>* out) const;
  /// Takes a component out of this mesh and makes a mesh of its own of it, with the same zones and texture coordinates. O(piece).
  /// Errors: NotFound.
  absl::StatusOr<DetachedPiece> Detach(ComponentId component);

  // --- zones ----------------------------------------------------------------------------------------------------------------------------

  /// Errors: ResourceExhausted (65,536 zones exist), InvalidArgument (no such surface zone).
  absl::StatusOr<TetZoneId> AddTetZone(TetZone zone);
  absl::StatusOr<SurfaceZoneId> AddSurfaceZone(std::string name);
  size_t tet_zone_count() const { return tet_zones_.size(); }
  size_t surface_zone_count() const { return surface_zones_.size(); }
  const TetZone& tet_zone(TetZoneId zone) const { return tet_zones_[zone]; }
  const std::string& surface_zone_name(SurfaceZoneId zone) const { return surface_zones_[zone].name; }
  /// Changes the zone of a live tet or triangle; part of building a scene, so no delta and no observer sees it (the hash does).
  /// Preconditions: live element, existing zone.
  void SetTetZone(uint32_t tet, TetZoneId zone);
  void SetTriangleZone(uint32_t triangle, SurfaceZoneId zone);
  void SetInteriorSurfaceZone(TetZoneId zone, SurfaceZoneId interior);
  /// What a surface zone knows of one of its vertices; a vertex on a border has an entry in each zone. nullptr: not in the zone.
  const SurfaceCorner* FindSurfaceCorner(SurfaceZoneId zone, uint32_t vertex) const;
  size_t SurfaceCornerCount(SurfaceZoneId zone) const { return surface_zones_[zone].corners.size(); }
  /// Precondition: the vertex has a triangle in the zone.
  void SetTextureCoordinate(SurfaceZoneId zone, uint32_t vertex, const std::array<float, 2>& value);
  /// Above 0: the first texture coordinate goes around and lies in [0, period); interpolation takes the shorter way across the seam. 0:
  /// not.
  void SetTexturePeriod(double period) { texture_period_ = period; }
  double texture_period() const { return texture_period_; }

  // --- edits ----------------------------------------------------------------------------------------------------------------------------

  /// Performs an edit, then calls the observers. Orientation is that given by the order of a tet's vertices and must be positive at rest.
  /// A new surface triangle that lies in a surface triangle of its tet's parent (refinement, copies of vertices) takes over its zone and
  /// interpolated texture coordinates; one that is uncovered gets the interior surface zone of its tet's zone.
  /// Errors leave the mesh unchanged and call nobody. NotFound: a removed tet, vertex or source that is not alive. InvalidArgument: a tet
  /// twice, repeated vertices in a tet, orientation not positive or not that of a neighbour, a face with three tets, a new vertex without a
  /// tet, weights that do not sum to 1, coordinates that are not finite, an unknown zone, a parent that is not removed.
  /// FailedPrecondition: the result would not be a manifold (names a vertex). ResourceExhausted: no more slots.
  /// Cost: tets around the vertices of the edit, plus the smaller of two pieces where something separates or joins.
  absl::Status Apply(const MeshEdit& edit);
  /// Whether taking out these tets (slots, each once) leaves a manifold. Leaves the mesh unchanged. O(tets around their vertices).
  bool CanRemove(std::span<const uint32_t> tets);
  /// Of the last Apply that returned OK and changed something.
  const MeshDelta& delta() const { return delta_; }
  const EditCost& edit_cost() const { return cost_; }
  /// Number of edits so far.
  uint64_t version() const { return delta_.version; }
  /// Sum of the hashes of all live elements (see MeshHash* below): equal meshes with equal ids have equal hashes, however they came about.
  uint64_t hash() const { return delta_.hash; }

  /// Not owned; must outlive the mesh or be removed. Called in the order in which they were added; must not edit the mesh from a call. A
  /// mesh that has observers is not to be copied or moved.
  void AddObserver(MeshObserver* observer);
  void RemoveObserver(MeshObserver* observer);

  // --- whole mesh -----------------------------------------------------------------------------------------------------------------------

  /// The real tets by ascending slot; `vertex_slots` (may be null): slot of each vertex of the result.
  TetMesh ToTetMesh(std::vector<uint32_t>* vertex_slots = nullptr) const;
  Counts Count() const;
  /// Recomputes everything that is stored from the tets' vertices alone and compares. Internal naming the first difference. O(n log n).
  absl::Status Check() const;

  /// The mesh with its ids, the order in which free slots are used again, and the names of components. Observers stay who they are and are
  /// not told; of delta() only version and hash are state. A reader must call Accept() next.
  template <typename Archive>
  void VisitState(Archive& archive) {
    [[maybe_unused]] auto& [vertices, tets, triangles, free_vertices, free_tets, free_triangles, vertex_count, tet_count, triangle_count,
                            tet_components, surface_components, tet_zones, surface_zones, texture_period, observers, delta, cost,
                            query_mark, query_epoch, epoch, dying_mark, near_mark, vertex_mark, touched_index, dying, near, touched,
                            new_vertices, new_tets, parents, faces, open_faces, glued_triangles, old_vertex_count, old_tet_count,
                            new_tet_index, triangle_mark, removed_tet_vertices, undo, star, old_triangles, added_triangles, dead_triangles,
                            seeds, scratch, fan_mark, fan_epoch] = *this;
    archive.Enter("ClosedMesh");
    archive(vertices, tets, triangles, free_vertices, free_tets, free_triangles, tet_components, surface_components, tet_zones,
            surface_zones, texture_period, delta.version, delta.hash);
  }
  /// After a read: counts what is alive, and looks whether all of it is as edits leave it. Errors: InvalidArgument.
  absl::Status Accept();

 private:
  // Parts of Check().
  struct CheckState;
  absl::Status CheckVertices(CheckState* s) const;
  absl::Status CheckTets(CheckState* s) const;
  absl::Status CheckFaces(CheckState* s) const;
  absl::Status CheckTriangles(CheckState* s) const;
  absl::Status CheckCounts(CheckState* s) const;
  absl::Status CheckSurfaceEdges(CheckState* s) const;
  absl::Status CheckSurfaceZones(CheckState* s) const;
  absl::Status CheckLinks(CheckState* s) const;

  friend class ClosedMeshPeer;  // tests of Check()

  struct Vertex {
    Eigen::Vector3d position_m = Eigen::Vector3d::Zero();
    uint32_t tet = kNoSlot;       // one of its tets; kNoSlot: the slot is free
    uint32_t triangle = kNoSlot;  // one of its surface triangles (the virtual edge), kNoSlot inside
    uint32_t generation = 1;

    template <typename Archive>
    void VisitState(Archive& archive) {
      auto& [position, one_tet, one_triangle, number] = *this;
      archive(position, one_tet, one_triangle, number);
    }
  };
  struct Tet {
    std::array<uint32_t, 4> vertices = {kNoSlot, kNoSlot, kNoSlot, kNoSlot};  // kNoSlot: the slot is free
    std::array<Neighbor, 4> neighbors;
    uint32_t generation = 1;
    TetZoneId zone = 0;
    uint8_t surface_edges = 0;  // bit e: edge e lies on the surface

    template <typename Archive>
    void VisitState(Archive& archive) {
      auto& [corners, behind, number, of_zone, edges] = *this;
      archive(corners, behind, number, of_zone, edges);
    }
  };
  struct Triangle {
    std::array<uint32_t, 3> vertices = {kNoSlot, kNoSlot, kNoSlot};
    std::array<uint32_t, 3> neighbors = {kNoSlot, kNoSlot, kNoSlot};
    uint32_t tet = kNoSlot;  // kNoSlot: the slot is free
    uint32_t generation = 1;
    SurfaceZoneId zone = 0;

    template <typename Archive>
    void VisitState(Archive& archive) {
      auto& [corners, across, behind, number, of_zone] = *this;
      archive(corners, across, behind, number, of_zone);
    }
  };
  struct SurfaceZone {
    std::string name;
    absl::flat_hash_map<uint32_t, SurfaceCorner> corners;  // by vertex slot

    template <typename Archive>
    void VisitState(Archive& archive) {
      auto& [zone_name, of_vertices] = *this;
      archive(zone_name, of_vertices);
    }
  };
  // A face of the edit that has to find its partner.
  struct OpenFace {
    std::array<uint32_t, 3> key;  // vertex slots, ascending
    uint32_t tet;
    uint8_t face;
    bool is_even;   // whether the face, seen from outside its tet, runs in the direction of the key
    bool is_added;  // of a new tet
  };
  // A vertex that the edit touches; its tets after the edit are star_[begin, end).
  struct TouchedVertex {
    uint32_t slot;
    uint32_t expected = 0;  // tets that contain it after the edit
    uint32_t first_tet = kNoSlot;
    uint32_t begin = 0, end = 0;
    bool is_new = false;
  };
  // Parts of Accept().
  bool HasSoundIndices() const;
  bool HasSoundFreeSlots() const;
  // Parts of Apply (closed_mesh_edit.cc).
  absl::Status ResolveEdit(const MeshEdit& edit);
  absl::Status Join(const MeshEdit& edit);
  absl::Status MatchFaces();
  absl::Status GlueToSurface(const OpenFace& face);
  bool CheckLinks(uint32_t* bad_vertex);
  void Undo();
  void Commit(const MeshEdit& edit);
  void UpdateTriangles(const MeshEdit& edit);
  void LinkTriangle(uint32_t triangle);
  SurfaceZoneId ZoneOfNewTriangle(const OpenFace& face, const MeshEdit& edit) const;
  void AddCorner(SurfaceZoneId zone, uint32_t vertex, const MeshEdit& edit);
  void DropCorner(SurfaceZoneId zone, uint32_t vertex);
  void UpdateTouchedVertices();
  void UpdateComponents();
  void Notify();
  void Touch(uint32_t vertex);
  bool IsDying(uint32_t tet) const { return tet < dying_mark_.size() && dying_mark_[tet] == epoch_; }
  OpenFace MakeOpenFace(uint32_t tet, int face, bool is_added) const;
  int FaceBehind(uint32_t tet, uint32_t neighbor) const;
  void NextEpoch();
  void TetsAroundVertexFrom(uint32_t first_tet, uint32_t vertex, std::vector<uint32_t>* out) const;
  uint64_t HashOf(const Vertex& vertex, uint32_t slot) const;
  uint64_t HashOf(const Tet& tet, uint32_t slot) const;
  uint64_t HashOf(const Triangle& triangle, uint32_t slot) const;
  // Calls f(slot) for what shares a face with a tet, or an edge with a triangle.
  template <typename F>
  void ForTetNeighbors(uint32_t tet, const F& f) const {
    for (const Neighbor n : tets_[tet].neighbors) {
      if (!n.is_virtual()) f(n.slot());
    }
  }
  template <typename F>
  void ForTriangleNeighbors(uint32_t triangle, const F& f) const {
    for (const uint32_t n : triangles_[triangle].neighbors) f(n);
  }

  std::vector<Vertex> vertices_;
  std::vector<Tet> tets_;
  std::vector<Triangle> triangles_;
  std::vector<uint32_t> free_vertices_, free_tets_, free_triangles_;
  size_t vertex_count_ = 0, tet_count_ = 0, triangle_count_ = 0;  // live
  ComponentTracker tet_components_, surface_components_;
  std::vector<TetZone> tet_zones_;
  std::vector<SurfaceZone> surface_zones_;
  double texture_period_ = 0;
  std::vector<MeshObserver*> observers_;
  MeshDelta delta_;
  EditCost cost_;

  // Scratch of queries.
  mutable std::vector<uint32_t> query_mark_;  // [tet slot]
  mutable uint32_t query_epoch_ = 0;
  // Scratch of Apply, valid within one call. Marks hold the epoch in which they were set.
  uint32_t epoch_ = 0;
  std::vector<uint32_t> dying_mark_, near_mark_;       // [tet slot]
  std::vector<uint32_t> vertex_mark_, touched_index_;  // [vertex slot] touched, and its place in touched_
  std::vector<uint32_t> dying_, near_;                 // tet slots: removed; kept, at a vertex of the edit
  std::vector<TouchedVertex> touched_;
  std::vector<uint32_t> new_vertices_, new_tets_;  // slots, in the order of the edit
  std::vector<uint32_t> parents_;                  // [new tet] slot of the parent or kNoSlot
  std::vector<OpenFace> faces_, open_faces_;       // to be matched; on the surface after the edit
  std::vector<uint32_t> glued_triangles_;
  size_t old_vertex_count_ = 0, old_tet_count_ = 0;
  std::vector<uint32_t> new_tet_index_;  // [tet slot] place in new_tets_
  std::vector<uint8_t> triangle_mark_;   // [triangle slot] 0 outside UpdateTriangles
  std::vector<std::array<VertexId, 4>> removed_tet_vertices_;
  std::vector<std::pair<std::pair<uint32_t, int>, Neighbor>> undo_;  // (tet, face), what was behind it
  std::vector<uint32_t> star_;
  std::vector<uint32_t> old_triangles_, added_triangles_, dead_triangles_, seeds_, scratch_;
  std::vector<uint32_t> fan_mark_;  // [vertex slot]
  uint32_t fan_epoch_ = 0;
};

/// A component as a mesh of its own.
struct ClosedMesh::DetachedPiece {
  ClosedMesh mesh;
  std::vector<VertexId> source_vertices;  ///< [vertex slot of `mesh`] id in the mesh it came from
  std::vector<TetId> source_tets;         ///< [tet slot of `mesh`], of ascending slots; its vertices are in the same order
};

/// Hashes of single elements, mixed well enough that their sum modulo 2^64 tells meshes apart.
uint64_t MeshHashVertex(VertexId id, const Eigen::Vector3d& position_m);
uint64_t MeshHashTet(TetId id, const std::array<VertexId, 4>& vertices, TetZoneId zone);
uint64_t MeshHashTriangle(TriangleId id, const std::array<VertexId, 3>& vertices, SurfaceZoneId zone, TetId tet);

}  // namespace palpate::sim
