#pragma once

#include <cstdint>
#include <functional>

#include <Eigen/Core>
#include <Eigen/Geometry>

#include "absl/status/statusor.h"
#include "sim/mesh/tet_mesh.h"

namespace palpate::sim {

/// A solid as the set {x : f(x) < 0}: negative inside, positive outside, zero on the surface; continuous. Argument in metres. Need not be a
/// distance; the closer to one near the surface, the better the linear interpolation of cut points.
using ImplicitFunction = std::function<double(const Eigen::Vector3d& x_m)>;

/// Called now and then with the fraction of the work done, in [0, 1] and never decreasing. Returning false cancels the work.
using ProgressCallback = std::function<bool(double fraction)>;

struct StuffingOptions {
  /// Target length of the tets' edges = the lattice constant of the body-centred cubic background lattice: away from the surface a third of
  /// the edges of a tet have this length and two thirds sqrt(3)/2 of it; there are 12 tets per edge_length_m^3. Positive, finite. [m]
  double edge_length_m = 0;

  /// Steps of bracketed false position that move each cut point from the linear interpolation of the lattice values towards the true zero
  /// of f on its lattice edge. 0 = linear interpolation alone. At most 64. Does not affect the angle bound.
  int root_iterations = 6;

  /// True if |f(x) - f(y)| <= |x - y| for all x, y, as holds for a signed distance. f is then evaluated only where the surface can be near.
  bool is_distance = false;

  /// Largest number of background lattice points; 16 bytes each are needed while meshing.
  uint64_t max_lattice_points = 20'000'000;

  /// Largest number of output tets.
  uint64_t max_tets = 20'000'000;

  /// May be empty.
  ProgressCallback progress;
};

/// The paper's published bounds on every dihedral angle of the uniform variant with the parameters below. [degrees]
inline constexpr double kStuffingMinDihedralDeg = 10.78;
inline constexpr double kStuffingMaxDihedralDeg = 164.74;

/// Snap thresholds as fractions of the edge: a lattice point that has a cut point closer than this on one of its long (short) edges is
/// moved onto it.
inline constexpr double kStuffingAlphaLong = 0.24999;
inline constexpr double kStuffingAlphaShort = 0.41189;

/// Fills the solid {f < 0} with tets: uniform isosurface stuffing (Labelle and Shewchuk, "Isosurface Stuffing: Fast Tetrahedral Meshes with
/// Good Dihedral Angles", SIGGRAPH 2007). `bounds_m` must contain the solid; f is evaluated up to about one edge length outside it.
///
/// Guarantees, for every f: the result passes ValidateTetMesh; the boundary is a closed 2-manifold in its connectivity (two sheets may
/// touch at a point where the solid is thinner than the lattice); the same input gives the same bits on the same build. Every dihedral
/// angle lies in [kStuffingMinDihedralDeg, kStuffingMaxDihedralDeg]: verified by test up to white noise, on smooth shapes 18 degrees and
/// better, but not proven for this implementation; see docs/meshing.md. Features thinner than about one edge length may be lost, joined or
/// cut, and sharp edges are rounded at that scale.
///
/// Errors: InvalidArgument (an option out of range, empty or non-finite bounds, f not finite at a point, the solid reaches out of the
/// bounds, no lattice point inside the solid: the edge length is too coarse or the solid is empty); ResourceExhausted (lattice or tet
/// limit; names edge length and count); Cancelled. Single-threaded; O(lattice points) evaluations of f, or O(surface points) if
/// is_distance.
absl::StatusOr<TetMesh> StuffIsosurface(const ImplicitFunction& f, const Eigen::AlignedBox3d& bounds_m, const StuffingOptions& options);

}  // namespace palpate::sim
