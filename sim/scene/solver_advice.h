#pragma once

#include "sim/scene/description.h"

namespace palpate::sim {

/// Sweeps of the solver a step that scene.bodies[body] should have: with them its free end is after half a second of swing where it would
/// be with any number, to a millimetre or a hundredth of its way. With coarse corrections the number does not depend on size and stiffness;
/// without (solver.coarse_nodes = 0) bodies that hang by a thin part need more. 0 for bodies that are not solved by sweeps over many
/// vertices (rigid, static, pre-computed, shape-matched). A fit to runs of the solver, see
/// docs/evidence/tissue.md, "How many sweeps".
int AdvisedSweeps(const SceneDescription& scene, size_t body);

/// Whether coarse corrections act in the scene: scene.solver.coarse_nodes > 0.
bool AreCorrected(const SceneDescription& scene);

/// What scene.solver.coarse_nodes is where nobody says: 4096 if a body wants more sweeps without corrections than
/// scene.solver.iterations, or if scene.solver.tolerance_m_per_s2 asks for them; else 0.
int ChosenCoarseNodes(const SceneDescription& scene);

/// What suits scene.solver where corrections act. The fourth correction comes before the last of 17 sweeps; more acceleration makes what a
/// correction leaves swing.
inline constexpr int kCorrectedSweeps = 17;
inline constexpr double kCorrectedAcceleration = 0.85;

}  // namespace palpate::sim
