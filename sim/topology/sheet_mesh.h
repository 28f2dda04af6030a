#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <Eigen/Core>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/base/state_archive.h"
#include "sim/topology/component_tracker.h"
#include "sim/topology/ids.h"
#include "sim/topology/mesh_edit.h"
#include "sim/topology/texture_corners.h"

namespace palpate::sim {

class SheetMesh;

/// A transaction: triangles to take out and to put in, and edges to part, all or nothing (SheetMesh::Apply). Vertices that lose their last
/// triangle disappear.
struct SheetEdit {
  struct NewTriangle {
    std::array<VertexId, 3> vertices = {};  ///< existing ones, or NewVertexId of one of this edit
    TriangleId parent = kNoTriangle;        ///< one of `removed`, which hands over its zones and texture; kNoTriangle: one without a past
  };
  std::vector<TriangleId> removed = {};
  std::vector<MeshEdit::NewVertex> vertices = {};  ///< each must be used by a new triangle
  std::vector<NewTriangle> triangles = {};
  /// Edges of existing vertices, of two triangles each after the edit, at which these are not held together. The sheet comes apart where
  /// that leaves a vertex with more than one fan.
  std::vector<std::array<VertexId, 2>> parted = {};
};

/// What one transaction changed.
struct SheetDelta {
  struct AddedTriangle {
    TriangleId id;
    std::array<VertexId, 3> vertices;
    TriangleId parent;
    SurfaceZoneId zone;
  };
  struct RemovedTriangle {
    TriangleId id;
    std::array<VertexId, 3> vertices;  ///< some may be gone, too
    double area_m2;                    ///< at rest
    TetZoneId material;
  };
  uint64_t version = 0;                                ///< of the mesh after the edit
  std::vector<MeshDelta::AddedVertex> added_vertices;  ///< those of the edit in its order, then copies: with one source of weight 1
  std::vector<AddedTriangle> added_triangles;          ///< those of the edit in its order, then those that replace others for their copies
  std::vector<RemovedTriangle> removed_triangles;
  std::vector<VertexId> removed_vertices;
  std::vector<ComponentId> added_components;
};

/// What derived data does about an edit: called once after it. Slots that it freed still hold what was there.
class SheetObserver {
 public:
  virtual ~SheetObserver() = default;
  virtual void OnSheetEdited(const SheetMesh& mesh, const SheetDelta& delta) = 0;
};

/// Triangles of a sheet at rest, under edits. Always a manifold with boundary, turned alike: an edge has two triangles that run along it in
/// opposite directions, or one, and the triangles at a vertex are one fan. Where an edit leaves a vertex with several fans, each but that
/// of the lowest triangle gets a copy of the vertex, and its triangles are replaced.
///
/// Elements lie in slots with gaps and have ids, as in ClosedMesh. Queries take slots of live elements. Deterministic: same calls, same
/// slots, ids, deltas and hash. Not safe for use by several threads.
class SheetMesh {
 public:
  SheetMesh() = default;
  SheetMesh(SheetMesh&&) = default;
  SheetMesh& operator=(SheetMesh&&) = default;

  /// Vertex and triangle i are in slot i. `zones`: of the surface, `materials`: of material, as the tets of a solid have them; each
  /// [triangle] or empty (all 0). Vertices without a triangle get a free slot. Errors: InvalidArgument (indices, repeated corners, an area
  /// that is not positive, no manifold with boundary, zones of another number).
  static absl::StatusOr<SheetMesh> Build(std::span<const Eigen::Vector3d> vertices_m, std::span<const std::array<uint32_t, 3>> triangles,
                                         std::span<const SurfaceZoneId> zones = {}, std::span<const TetZoneId> materials = {});

  uint32_t vertex_slot_count() const { return static_cast<uint32_t>(vertices_.size()); }
  uint32_t triangle_slot_count() const { return static_cast<uint32_t>(triangles_.size()); }
  size_t vertex_count() const { return vertices_.size() - free_vertices_.size(); }
  size_t triangle_count() const { return triangles_.size() - free_triangles_.size(); }
  bool IsVertex(uint32_t slot) const { return slot < vertices_.size() && !vertices_[slot].star.empty(); }
  bool IsTriangle(uint32_t slot) const { return slot < triangles_.size() && triangles_[slot].is_live != 0; }
  bool IsVertexOnSurface(uint32_t vertex) const { return IsVertex(vertex); }  ///< as ClosedMesh has it
  VertexId IdOfVertex(uint32_t slot) const { return MakeId<VertexId>(slot, vertices_[slot].generation); }
  TriangleId IdOfTriangle(uint32_t slot) const { return MakeId<TriangleId>(slot, triangles_[slot].generation); }
  uint32_t Find(VertexId id) const;  ///< kNoSlot: gone, or never was
  uint32_t Find(TriangleId id) const;

  const Eigen::Vector3d& PositionOf(uint32_t vertex) const { return vertices_[vertex].position_m; }  ///< at rest, m
  const std::array<uint32_t, 3>& TriangleVertices(uint32_t triangle) const { return triangles_[triangle].vertices; }
  SurfaceZoneId TriangleZoneOf(uint32_t triangle) const { return triangles_[triangle].zone; }
  TetZoneId MaterialZoneOf(uint32_t triangle) const { return triangles_[triangle].material; }
  /// Zeros where none were given. What edits make of a triangle takes over the affine map of its parent from places at rest, so that
  /// nothing slides; corners that stay keep their bits.
  const TextureCorners& TextureCornersOf(uint32_t triangle) const { return triangles_[triangle].texture; }
  void SetTextureCorners(uint32_t triangle, const TextureCorners& corners) { triangles_[triangle].texture = corners; }
  size_t MaterialZoneEnd() const;            ///< one past the largest of live triangles; O(triangles)
  double RestArea(uint32_t triangle) const;  ///< m^2
  /// Triangles at a vertex, ascending.
  std::span<const uint32_t> TrianglesAround(uint32_t vertex) const { return vertices_[vertex].star; }
  /// The triangle other than `triangle` at the edge between two vertices; kNoSlot at the boundary.
  uint32_t Across(uint32_t triangle, uint32_t a, uint32_t b) const;
  /// Triangles at the edge between two vertices, ascending: none where they have no edge.
  std::vector<uint32_t> TrianglesAtEdge(uint32_t a, uint32_t b) const;
  /// Whether a triangle at the vertex has an edge there of no other triangle. O(triangles around).
  bool IsOnBoundary(uint32_t vertex) const;
  /// Whether there is no boundary. O(triangles).
  bool IsClosed() const;

  ComponentId ComponentOfTriangle(uint32_t triangle) const { return components_.at(triangle); }
  std::vector<ComponentId> Components() const { return components_.Ids(); }
  size_t ComponentTriangleCount(ComponentId component) const;
  struct DetachedPiece;
  /// Takes a component out into a mesh of its own. O(mesh). Errors: NotFound.
  absl::StatusOr<DetachedPiece> Detach(ComponentId component);

  /// Errors leave the mesh unchanged. NotFound: an element that is not alive. InvalidArgument: a triangle twice or with a corner twice, one
  /// without area (below 2e-7 of the square of its longest edge, twice), a new vertex without a triangle, weights that do not sum to 1,
  /// coordinates that are not finite, a parent that is not removed, a parted edge that two triangles do not have. FailedPrecondition: an
  /// edge of three triangles, or two that run along it in one direction. ResourceExhausted: no more slots.
  absl::Status Apply(const SheetEdit& edit);
  const SheetDelta& delta() const { return delta_; }  ///< of the last Apply that returned OK
  uint64_t version() const { return delta_.version; }
  uint64_t hash() const { return hash_; }  ///< sum over live elements, see MeshHashVertex
  /// One at most; not owned; outlives the mesh or is taken away (nullptr).
  void SetObserver(SheetObserver* observer) { observer_ = observer; }

  /// Looks at all of it. Internal: the first thing that is not as it should be.
  absl::Status Check() const;

  /// A reader must call Accept() next. Observers are not state.
  template <typename Archive>
  void VisitState(Archive& archive) {
    [[maybe_unused]] auto& [vertices, triangles, free_vertices, free_triangles, components, hash, delta, observer] = *this;
    archive.Enter("SheetMesh");
    archive(vertices, triangles, free_vertices, free_triangles, components, hash, delta.version);
  }
  /// After a read. Errors: InvalidArgument.
  absl::Status Accept();

 private:
  struct Vertex {
    Eigen::Vector3d position_m = Eigen::Vector3d::Zero();
    uint32_t generation = 1;
    std::vector<uint32_t> star;  // triangles, ascending; empty: the slot is free

    template <typename Archive>
    void VisitState(Archive& archive) {
      auto& [position, number, around] = *this;
      archive(position, number, around);
    }
  };
  struct Triangle {
    std::array<uint32_t, 3> vertices = {kNoSlot, kNoSlot, kNoSlot};
    uint32_t generation = 1;
    SurfaceZoneId zone = 0;
    TetZoneId material = 0;
    uint8_t is_live = 0;
    TextureCorners texture = {};

    template <typename Archive>
    void VisitState(Archive& archive) {
      auto& [corners, number, of_zone, of_material, live, of_texture] = *this;
      archive(corners, number, of_zone, of_material, live, of_texture);
    }
  };
  struct Work;  // of one Apply

  absl::Status Resolve(const SheetEdit& edit, Work* work) const;
  absl::Status ResolveNew(const SheetEdit& edit, Work* work) const;
  absl::Status CheckEdges(const Work& work) const;
  void Join(const SheetEdit& edit, Work* work);
  void SplitFans(Work* work);
  std::vector<std::vector<uint32_t>> FansOf(uint32_t vertex, const std::vector<std::pair<uint32_t, uint32_t>>& parted) const;
  void Finish(Work* work);
  uint32_t TakeVertex(const Eigen::Vector3d& position_m);
  uint32_t TakeTriangle(const std::array<uint32_t, 3>& vertices, uint32_t parent);
  TextureCorners TextureFrom(uint32_t parent, const std::array<uint32_t, 3>& vertices) const;
  void Link(uint32_t triangle);
  void Unlink(uint32_t triangle);
  void UpdateComponents(const Work& work);
  uint64_t HashOfTriangle(uint32_t triangle) const;
  template <typename F>
  void ForNeighbors(uint32_t triangle, const F& see) const {
    const auto& v = triangles_[triangle].vertices;
    for (size_t k = 0; k < 3; ++k) {
      if (const uint32_t other = Across(triangle, v[k], v[(k + 1) % 3]); other != kNoSlot) see(other);
    }
  }

  std::vector<Vertex> vertices_;
  std::vector<Triangle> triangles_;
  std::vector<uint32_t> free_vertices_, free_triangles_;  // the last is used first
  ComponentTracker components_;
  uint64_t hash_ = 0;
  SheetDelta delta_;
  SheetObserver* observer_ = nullptr;
};

/// A component as a mesh of its own.
struct SheetMesh::DetachedPiece {
  SheetMesh mesh;
  std::vector<VertexId> source_vertices;     ///< [vertex slot of `mesh`] id in the mesh it came from, slots ascending
  std::vector<TriangleId> source_triangles;  ///< [triangle slot of `mesh`] likewise
};

/// Weights of the place in a triangle's plane that is nearest to a point; they sum to 1 but for rounding. Precondition: it has area.
std::array<double, 3> TriangleWeights(const std::array<Eigen::Vector3d, 3>& x, const Eigen::Vector3d& point_m);
/// Mean ratio of a triangle: 1 if it is regular, 0 without area.
double TriangleMeanRatio(const std::array<Eigen::Vector3d, 3>& x);
/// Whether Apply takes it for a triangle with area.
bool HasSheetArea(const std::array<Eigen::Vector3d, 3>& x);

}  // namespace palpate::sim
