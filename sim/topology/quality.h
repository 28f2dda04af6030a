#pragma once

#include <array>

#include <Eigen/Core>

namespace palpate::sim {

/// Six shape measures of a tetrahedron: 1 for the regular one, towards 0 for a degenerate one, independent of size. They differ in what
/// they see (Forest 2003, section on refinement; Dompierre et al. 1998 on their equivalence).
struct TetQuality {
  double radius_ratio = 0;       ///< Q1: 3 x radius of the inscribed / of the circumscribed sphere
  double mean_ratio = 0;         ///< Q2: geometric / arithmetic mean of the eigenvalues of the map to the regular tet
  double min_solid_angle = 0;    ///< Q3: smallest solid angle / that of the regular tet
  double min_dihedral = 0;       ///< Q4: smallest dihedral angle / that of the regular tet; does not see needles
  double edge_ratio = 0;         ///< Q5: shortest / longest edge; does not see slivers
  double inradius_per_edge = 0;  ///< Q6: radius of the inscribed sphere x 2 sqrt(6) / longest edge
};

/// All six of a tet of positive orientation with volume. Points in metres, any frame.
TetQuality MeasureTet(const std::array<Eigen::Vector3d, 4>& points_m);
/// Q3 without the arcsine: smallest sine of half a solid angle / that of the regular tet. Orders tets as Q3 does.
double MinHalfSolidAngleSine(const std::array<Eigen::Vector3d, 4>& points_m);
/// Q2 and Q5 alone, as the refiner reports them.
double MeanRatio(const std::array<Eigen::Vector3d, 4>& points_m);
double EdgeRatio(const std::array<Eigen::Vector3d, 4>& points_m);

}  // namespace palpate::sim
