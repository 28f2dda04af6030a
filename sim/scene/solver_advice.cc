#include "sim/scene/solver_advice.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <Eigen/Geometry>

#include "sim/mesh/tet_mesh.h"
#include "sim/scene/material.h"

namespace palpate::sim {
namespace {

constexpr int kCoarseNodes = 4096;
constexpr double kLeastSweeps = 20;    // without corrections
constexpr double kFreeEdges = 1.2;     // that a push may travel in a step without needing more
constexpr double kSweepsPerEdge = 14;  // what has gone to and fro through the whole body needs no more
constexpr double kRounding = 5;        // the fit is no better

bool IsSwept(const BodyDescription& body) {
  return body.kind == BodyKind::kDeformable && body.simulation == Simulation::kDynamic && !body.mesh.tets.empty();
}

int SweepsWithoutCorrections(const SceneDescription& scene, size_t index) {
  const BodyDescription& body = scene.bodies[index];
  if (!IsSwept(body)) return 0;
  double volume_m3 = 0;
  for (size_t t = 0; t < body.mesh.tets.size(); ++t) volume_m3 += TetVolume(body.mesh, t);
  // Of a regular tet of the mean volume.
  const double edge_m = std::cbrt(6 * std::numbers::sqrt2 * volume_m3 / static_cast<double>(body.mesh.tets.size()));
  double speed_m_per_s = 0;
  for (size_t zone = 0; zone <= body.zones.size(); ++zone) {
    const Material& material = MaterialOf(body, zone);
    speed_m_per_s = std::max(speed_m_per_s, std::sqrt(material.young_modulus_pa / material.density_kg_per_m3));
  }
  Eigen::AlignedBox3d box;
  for (const Eigen::Vector3d& vertex : body.mesh.vertices) box.extend(vertex);
  const double beyond = std::max(1.0, speed_m_per_s * scene.dt_s / (kFreeEdges * edge_m));
  const double sweeps = std::min(kLeastSweeps * beyond * beyond, kSweepsPerEdge * box.sizes().maxCoeff() / edge_m);
  return static_cast<int>(kRounding * std::round(std::max(sweeps, kLeastSweeps) / kRounding));
}

}  // namespace

bool AreCorrected(const SceneDescription& scene) { return scene.solver.coarse_nodes > 0; }

int AdvisedSweeps(const SceneDescription& scene, size_t body) {
  return IsSwept(scene.bodies[body]) && AreCorrected(scene) ? kCorrectedSweeps : SweepsWithoutCorrections(scene, body);
}

int ChosenCoarseNodes(const SceneDescription& scene) {
  bool is_wanted = scene.solver.tolerance_m_per_s2 > 0;
  for (size_t body = 0; body < scene.bodies.size() && !is_wanted; ++body) {
    is_wanted = SweepsWithoutCorrections(scene, body) > scene.solver.iterations;
  }
  return is_wanted ? kCoarseNodes : 0;
}

}  // namespace palpate::sim
