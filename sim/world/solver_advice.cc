#include "sim/world/solver_advice.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <Eigen/Geometry>

#include "sim/mesh/tet_mesh.h"
#include "sim/scene/material.h"

namespace palpate::sim {
namespace {

constexpr int kCorrectedSweeps = 15;
constexpr double kLeastSweeps = 20;    // without corrections
constexpr double kFreeEdges = 1.2;     // that a push may travel in a step without needing more
constexpr double kSweepsPerEdge = 14;  // what has gone to and fro through the whole body needs no more
constexpr double kRounding = 5;        // the fit is no better

bool AreCorrected(const SceneDescription& scene) {
  return scene.solver.coarse_nodes > 0 &&
         std::none_of(scene.bodies.begin(), scene.bodies.end(), [](const BodyDescription& b) { return b.volume_stiffness_pa > 0; });
}

}  // namespace

int AdvisedSweeps(const SceneDescription& scene, size_t index) {
  const BodyDescription& body = scene.bodies[index];
  const bool is_swept = body.kind == BodyKind::kDeformable && body.simulation == Simulation::kDynamic;
  if (!is_swept || body.mesh.tets.empty()) return 0;
  if (AreCorrected(scene)) return kCorrectedSweeps;
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

}  // namespace palpate::sim
