#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <Eigen/Core>

#include "sim/topology/ids.h"

namespace palpate::sim {

/// A vertex that contributes to a new one.
struct VertexSource {
  VertexId vertex = kNoVertex;
  double weight = 0;
};

/// A transaction: tets to take out and tets to put in, all or nothing (ClosedMesh::Apply). Vertices that lose their last tet disappear.
struct MeshEdit {
  struct NewVertex {
    Eigen::Vector3d position_m;                ///< at rest
    std::array<VertexSource, 4> sources = {};  ///< existing vertices from which all other properties are interpolated; weights sum to 1
    uint32_t source_count = 0;                 ///< 0..4; 0: a vertex without a past
  };
  struct NewTet {
    std::array<VertexId, 4> vertices = {};  ///< positive orientation; existing vertices, or NewVertexId of one of this edit
    TetId parent = kNoTet;                  ///< one of `removed`, which hands over zone and properties; kNoTet: a tet without a past
    TetZoneId zone = 0;                     ///< of a tet without parent
  };

  std::vector<TetId> removed = {};
  std::vector<NewVertex> vertices = {};  ///< each must be used by a new tet
  std::vector<NewTet> tets = {};

  void Clear() {
    removed.clear();
    vertices.clear();
    tets.clear();
  }
};

/// How a NewTet names vertex `index` of MeshEdit::vertices.
inline constexpr uint32_t kNewVertexGeneration = 0xffffffffU;
constexpr VertexId NewVertexId(size_t index) { return MakeId<VertexId>(static_cast<uint32_t>(index), kNewVertexGeneration); }

/// What one transaction changed, enough to bring a copy of the mesh from one version to the next (MeshMirror). Its size is proportional to
/// the edit, except for `moved_tets` and `moved_triangles`, which list the smaller part of what fell apart or grew together.
struct MeshDelta {
  struct AddedVertex {
    VertexId id;
    Eigen::Vector3d position_m;  ///< at rest
    std::array<VertexSource, 4> sources = {};
    uint32_t source_count = 0;
  };
  struct AddedTet {
    TetId id;
    std::array<VertexId, 4> vertices;
    TetId parent;
    TetZoneId zone;
    ComponentId component;
  };
  struct AddedTriangle {
    TriangleId id;
    std::array<VertexId, 3> vertices;  ///< counter-clockwise seen from outside
    TetId tet;                         ///< the tet behind it
    SurfaceZoneId zone;
    ComponentId surface;  ///< the virtual vertex it is joined to
  };
  /// A surface triangle that stayed while the tet behind it was replaced.
  struct RehomedTriangle {
    TriangleId id;
    TetId tet;
  };
  struct Move {
    uint32_t slot;
    ComponentId from, to;
  };

  uint64_t version = 0;  ///< of the mesh after the edit; the one before is version - 1
  uint64_t hash = 0;     ///< MeshHash after the edit
  std::vector<VertexId> removed_vertices;
  std::vector<AddedVertex> added_vertices;
  std::vector<TetId> removed_tets;
  std::vector<AddedTet> added_tets;
  std::vector<TriangleId> removed_triangles;
  std::vector<AddedTriangle> added_triangles;
  std::vector<RehomedTriangle> rehomed_triangles;
  std::vector<Move> moved_tets;                                   ///< existing tets that now belong to another component
  std::vector<Move> moved_triangles;                              ///< existing triangles that now belong to another surface component
  std::vector<ComponentId> added_components, removed_components;  ///< of tets
  std::vector<ComponentId> added_surfaces, removed_surfaces;      ///< of the surface: virtual vertices

  void Clear();
};

}  // namespace palpate::sim
