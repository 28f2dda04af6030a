#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <Eigen/Core>

#include "absl/status/statusor.h"
#include "sim/mesh/tet_mesh.h"

namespace palpate::sim {

/// A standing, simplified human figure and a dress for it, for cloth on a body that moves. z is up and the soles are at z = 0; the figure
/// looks towards -y, and its left is +x. Its arms hang 35 degrees away from the body, its legs are slightly apart. All of it is
/// proportional to the height, which is in [0.1, 3] m.
///
/// An edge length of 0 means the default, a kDefaultEdgesPerFigure-th of the height. It must otherwise lie between a kMaxEdgesPerFigure-th
/// and a kMinEdgesPerFigure-th of the height. A value outside is InvalidArgument naming the parameter, the value and the range. The mean
/// edge is within 15 % of the edge length. No angle of a triangle is below kMinFigureAngleDeg, as tests over sizes find but nothing proves
/// (least seen: 37 degrees for the figure, 23 for the dress). Deterministic; about 0.1 ms a triangle.
inline constexpr double kDefaultEdgesPerFigure = 100;
inline constexpr double kMaxEdgesPerFigure = 400;
inline constexpr double kMinEdgesPerFigure = 80;
inline constexpr double kMinFigureAngleDeg = 20;

/// A rigid part of the figure, which turns about a joint at its upper end (the pelvis: its middle).
struct FigurePart {
  std::string name;
  int parent = -1;  ///< index of the part that carries it, which comes first; -1 = none
  Eigen::Vector3d joint_m = Eigen::Vector3d::Zero();
};

/// How much of a part's motion a vertex follows.
struct PartWeight {
  uint32_t part = 0;
  float weight = 0;
};

struct FigureSurface {
  SurfaceMesh surface;
  std::vector<FigurePart> parts;                 ///< [11] pelvis, torso, head, then upper and lower part of each limb
  std::vector<std::vector<PartWeight>> weights;  ///< [vertex_count] one to three each, positive, of sum 1
};

/// Across each joint the weights change smoothly over this fraction of the height, about; elsewhere a vertex follows one part alone.
inline constexpr double kFigureJointBand = 0.05;

/// A closed surface of one part, a sphere in its topology, turned outwards.
absl::StatusOr<FigureSurface> GenerateFigureSurface(double height_m = 1.7, double edge_length_m = 0);

/// The distance of a point from the figure: negative inside, never more than the true distance outside. [m]
double FigureDistance(const Eigen::Vector3d& x_m, double height_m = 1.7);

/// A dress for the figure of that height: fitted above the waist, flared below it, down to the knees. It is open at the neck, at sleeves
/// that cover most of the upper arms, and at the hem; these four boundaries lie in planes. It is turned outwards and does not
/// touch the figure's surface of the same edge length. `gap_m`: how far its vertices are from the figure at least, and where it fits it
/// not much more; for a height of 1.7 m, in proportion for others; in [0.002, 0.015].
absl::StatusOr<SurfaceMesh> GenerateDressSurface(double figure_height_m = 1.7, double gap_m = 0.008, double edge_length_m = 0);

}  // namespace palpate::sim
