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

}  // namespace palpate::bench
