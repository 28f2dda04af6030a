#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <Eigen/Core>

#include "sim/mesh/tet_mesh.h"

namespace palpate::sim {

/// Where a point lies in a mesh.
struct PointPlace {
  static constexpr uint32_t kNone = 0xffffffffU;
  uint32_t tet = kNone;              ///< that holds it, or of the nearest point of the surface; kNone: farther away than the reach
  Eigen::Vector3d point_m{0, 0, 0};  ///< as given, or the nearest point of the surface; frame of the mesh
  double distance_m = 0;             ///< from the given point to that
};

/// Finds the tets that hold points (frame of the mesh, finite); where several do, as on a face, the one it lies deepest in, the first of
/// equals. A point outside by no more than reach_m gets the nearest point of the surface. A point may be outside its tet by 1e-6 in a
/// barycentric weight. Precondition: ValidateTetMesh. O(points log(points) + tets (log(points) + points in the x range of a tet)).
std::vector<PointPlace> LocatePoints(const TetMesh& mesh, std::span<const Eigen::Vector3d> points_m, double reach_m);

/// From a point outside to the surface of a mesh. O(tets).
double DistanceToSurface(const TetMesh& mesh, const Eigen::Vector3d& point_m);

}  // namespace palpate::sim
