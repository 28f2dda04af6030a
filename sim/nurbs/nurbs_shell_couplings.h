#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include <Eigen/Core>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/dynamics/nurbs_shell_model.h"
#include "sim/nurbs/nurbs_object.h"
#include "sim/nurbs/nurbs_shell_builder.h"

namespace palpate::sim {

/// Couplings give way by a hundredth of what a span gives way: they have the stiffness of a strip as wide as a span, so many times.
inline constexpr double kNurbsCouplingStiffness = 100;
/// The most that two sides of a coupling may be apart, as a share of a span's width there.
inline constexpr double kMaxNurbsCouplingGap = 0.01;

/// Adds couplings (gpu::NurbsShellCoupling) to the model of a shell: what holds patches together along curves on which their control points
/// do not, and what holds rims. Gauss points lie on the curves between lines of knots of all that meets there, degree + 1 on each part.
/// Afterwards NurbsShellModel::ListEntries is due.
class NurbsShellCoupler {
 public:
  /// Keeps references. `model`: of the object, at the place where the object is.
  NurbsShellCoupler(const NurbsObject& object, const NurbsShellMaterial& material, gpu::NurbsShellModel* model);

  /// Along all edges of two patches, but where both have the same points for all positions of the control points. `creases_turn`: where
  /// patches meet at an angle, they turn freely. Errors: InvalidArgument, naming the patch: the surface has no area on an edge, or the
  /// patches are too far from each other.
  absl::Status CoupleEdges(double join_tolerance_m, bool creases_turn);

  /// Holds the points of rims, the edges of one patch, for which `is_held` says so, by a frame of four control points of its own; returns
  /// these. They are the corners of a tetrahedron about the mean of the held points, so where they are moved as a rigid body the rims go
  /// along. `is_clamped`: normals of the surface are held too. Error: InvalidArgument where nothing is held.
  absl::StatusOr<std::vector<uint32_t>> HoldRims(double join_tolerance_m, bool is_clamped,
                                                 const std::function<bool(const Eigen::Vector3d& point_m)>& is_held);

 private:
  /// One side of a coupling at a point of the common curve. Axis 1 runs along the curve, axis 2 is the normal x axis 1.
  struct Side {
    Eigen::Vector3d place, along, normal;
    double speed = 0;                           // length by the share of the curve
    double size = 0;                            // of a span
    std::map<uint32_t, Eigen::Vector3d> parts;  // [control point] of the place, and derivatives along the axes [1/m]
  };

  const NurbsTrim& TrimAt(const NurbsTrimPlace& at) const { return boundaries_[at.patch][at.loop][at.curve]; }
  absl::StatusOr<Side> SideAt(const NurbsTrimPlace& at, double share) const;
  std::vector<double> BreaksOf(const NurbsEdge& edge) const;
  absl::Status ForEachPoint(const NurbsEdge& edge, const std::function<absl::Status(double share, double weight)>& visit) const;
  absl::Status Couple(const NurbsEdge& edge, double share, double weight, bool creases_turn);
  bool Add(const Side& a, const Side& b, double weight, uint32_t patch, double size, bool turns);

  const NurbsObject& object_;
  double extension_n_per_m_, plate_n_m_;
  std::vector<std::vector<std::vector<NurbsTrim>>> boundaries_;  // [patch]
  gpu::NurbsShellModel* model_;
};

}  // namespace palpate::sim
