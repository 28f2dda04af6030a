#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <Eigen/Core>

#include "absl/status/status.h"
#include "sim/topology/closed_mesh.h"
#include "sim/topology/ids.h"
#include "sim/topology/mesh_edit.h"

namespace palpate::sim {

/// A copy of a ClosedMesh kept up to date by its deltas alone, as a client or the owner of device buffers keeps one: flat arrays by slot.
class MeshMirror {
 public:
  struct Vertex {
    VertexId id = kNoVertex;  ///< kNoVertex: the slot is free; likewise below
    Eigen::Vector3d position_m = Eigen::Vector3d::Zero();
  };
  struct Tet {
    TetId id = kNoTet;
    std::array<VertexId, 4> vertices = {};
    TetZoneId zone = 0;
    ComponentId component = 0;
  };
  struct Triangle {
    TriangleId id = kNoTriangle;
    std::array<VertexId, 3> vertices = {};
    TetId tet = kNoTet;
    SurfaceZoneId zone = 0;
    ComponentId surface = 0;
  };

  /// A full copy, which can then follow from the mesh's version on. O(mesh).
  explicit MeshMirror(const ClosedMesh& mesh);

  /// Brings the copy to delta.version. O(delta). Errors leave the copy unchanged or, where noted, useless: FailedPrecondition (the delta is
  /// not that of the next version); DataLoss (an id that does not fit, or the hash differs afterwards: take a full copy).
  absl::Status Apply(const MeshDelta& delta);

  uint64_t version() const { return version_; }
  uint64_t hash() const { return hash_; }  ///< maintained by Apply
  /// The hash of all elements, from the arrays.
  uint64_t ComputeHash() const;
  const std::vector<Vertex>& vertices() const { return vertices_; }
  const std::vector<Tet>& tets() const { return tets_; }
  const std::vector<Triangle>& triangles() const { return triangles_; }

 private:
  uint64_t version_ = 0;
  uint64_t hash_ = 0;
  std::vector<Vertex> vertices_;
  std::vector<Tet> tets_;
  std::vector<Triangle> triangles_;
};

}  // namespace palpate::sim
