#pragma once

#include <optional>
#include <vector>

#include <Eigen/Core>

namespace palpate::bench {

/// A rigid body as the hull of its vertices.
struct PileBody {
  std::vector<Eigen::Vector3d> vertices_m;  ///< at the start, in W
  Eigen::Vector3d center_m;                 ///< of mass
  double mass_kg = 0;                       ///< 0: static
};

struct PileRun {
  std::vector<double> step_ms;
  double height_m = 0;  ///< at the end, mean of the bodies that move and are above z = 0, each by the mean of its vertices
  int lost = 0;         ///< bodies below it: they have gone through the floor, or over a wall
};

/// Drops bodies with Bullet as it comes: sequential impulses, 10 iterations, one thread, no sleeping. Nothing where it was built without.
/// Lengths are tenfold in it, since it is tuned for bodies of some tenths of a metre; hulls are drawn out by half of `margin_m`.
std::optional<PileRun> DropWithBullet(const std::vector<PileBody>& bodies, double friction, double margin_m, double dt_s, int steps);

/// Boxes in a row, each joined to the one before by a ball or a hinge about y, and the first to the world.
struct ChainBody {
  Eigen::Vector3d center_m;  ///< at the start
  Eigen::Vector3d half_m;    ///< sides, along W
  double mass_kg = 0;
};
struct ChainLink {
  Eigen::Vector3d point_m;  ///< at the start
  int before = -1;          ///< -1: the world
  int after = -1;           ///< likewise
};
struct ChainRun {
  std::vector<double> step_ms;
  double worst_gap_m = 0;  ///< of a joint's two points, in any step
};

/// Lets a chain swing with Bullet: point constraints or hinges, sequential impulses with so many iterations, one thread, no sleeping, no
/// contact. Nothing where it was built without.
std::optional<ChainRun> SwingWithBullet(const std::vector<ChainBody>& bodies, const std::vector<ChainLink>& links, bool are_hinges,
                                        int iterations, double dt_s, int steps);

}  // namespace palpate::bench
