#pragma once

#include <memory>
#include <span>

#include <Eigen/Geometry>

#include "sim/mesh/tet_mesh.h"

namespace palpate::bench {

/// libfcl's tree of turned boxes over the triangles of a surface: what a user would take instead of queries between NURBS.
class FclMesh {
 public:
  static std::unique_ptr<FclMesh> Create(const sim::SurfaceMesh& mesh);
  virtual ~FclMesh() = default;
  /// Whether some triangles of the two meet; libfcl stops at the first. One thread.
  virtual bool Meets(const Eigen::Isometry3d& pose, const FclMesh& other, const Eigen::Isometry3d& other_pose) const = 0;
};

}  // namespace palpate::bench
