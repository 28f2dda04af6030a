#pragma once

#include "sim/scene/description.h"

namespace palpate::sim {

/// Sweeps of the solver a step that scene.bodies[body] should have: with them its free end is after half a second of swing where it would
/// be with any number, to a millimetre or a hundredth of its way. With coarse corrections the number does not depend on size and stiffness;
/// without (solver.coarse_nodes = 0, or a body that keeps its volume) bodies that hang by a thin part need more. 0 for bodies that are not
/// solved by sweeps over many vertices (rigid, static, pre-computed, shape-matched). A fit to runs of the solver, see
/// docs/evidence/tissue.md, "How many sweeps".
int AdvisedSweeps(const SceneDescription& scene, size_t body);

}  // namespace palpate::sim
