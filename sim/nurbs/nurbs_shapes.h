#pragma once

#include <vector>

#include "sim/nurbs/nurbs_surface.h"

namespace palpate::sim {

/// Closed shapes as exact surfaces, normals outwards; the axis is z. Preconditions: lengths positive and finite. Each is made of quarters
/// of a revolution: a circle needs weights, and in quarters these stay at cos 45 degrees or more.

/// About the origin: eight octants of degree 2 x 2, each with a pole at an end of the axis.
std::vector<NurbsSurface> NurbsSphere(double radius_m);
/// About the origin; `radius_m` of the circle that the middle of the tube goes round, greater than `tube_radius_m`. 16 patches.
std::vector<NurbsSurface> NurbsTorus(double radius_m, double tube_radius_m);
/// From z = 0 to `height_m`: side and two discs, in quarters.
std::vector<NurbsSurface> NurbsCylinder(double radius_m, double height_m);
/// A disc at z = 0 and a tip at `height_m`, in quarters.
std::vector<NurbsSurface> NurbsCone(double radius_m, double height_m);

}  // namespace palpate::sim
