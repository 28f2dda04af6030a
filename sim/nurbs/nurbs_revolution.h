#pragma once

#include <span>
#include <vector>

#include "sim/nurbs/nurbs_curve.h"
#include "sim/nurbs/nurbs_surface.h"

namespace palpate::sim {

/// Quarters of a revolution about z of curves in the half plane (distance from the axis, z), the solid to their left: normals point
/// outwards. u goes around, v along the curve. Precondition: the distances of control points are not negative.
std::vector<NurbsSurface> NurbsRevolution(std::span<const NurbsCurve<2>> outline);

/// A hollow vase that stands on the origin, of 20 patches; `radius_m` about where it is widest, walls of a twelfth of that. Its outline is
/// a base, two B-spline curves of degree 3 and a round lip. Preconditions: lengths positive and finite.
std::vector<NurbsSurface> NurbsVase(double radius_m, double height_m);

}  // namespace palpate::sim
