#include "sim/mesh/tet_mesh.h"

namespace palpate::sim {

double TetVolume(const TetMesh& mesh, size_t t) {
  const auto& [a, b, c, d] = mesh.tets[t];
  const Eigen::Vector3d& origin = mesh.vertices[a];
  return (mesh.vertices[b] - origin).cross(mesh.vertices[c] - origin).dot(mesh.vertices[d] - origin) / 6.0;
}

}  // namespace palpate::sim
