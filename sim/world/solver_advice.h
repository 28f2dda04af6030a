#pragma once

#include "sim/scene/description.h"

namespace palpate::sim {

/// Sweeps of the solver a step that a dynamic body should have: with them its free end is after half a second of swing where it would be
/// with any number, to a millimetre or a hundredth of its way. 0 for bodies that are not solved by sweeps over many vertices (rigid,
/// static, pre-computed, shape-matched). The rule is a fit to runs of the solver with the default acceleration, see
/// docs/algorithms/tissue.md, "How many sweeps"; bodies that hang by a thin part need more.
int AdvisedSweeps(const BodyDescription& body, double dt_s);

}  // namespace palpate::sim
