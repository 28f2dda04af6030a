#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <Eigen/Core>

#include "absl/status/statusor.h"
#include "gpu/dynamics/nurbs_shell_model.h"
#include "gpu/dynamics/tissue_layout.h"
#include "sim/haptics/local_model.h"
#include "sim/nurbs/nurbs_object.h"
#include "sim/scene/description.h"

namespace palpate::sim {

/// The shell about a surface, in the surface's frame; `join_tolerance_m` as in NurbsObject::Edges. Errors: InvalidArgument naming the field
/// of the body (thickness, a material that a shell cannot have) or what is wrong with the surface.
absl::StatusOr<gpu::NurbsShellModel> NurbsShellModelOf(const NurbsObject& object, const Material& material, double thickness_m,
                                                       double join_tolerance_m = 0);

/// Adds what holds the rims of a shell for whose points `is_held` says so; both in the surface's frame. Returns the control points that
/// then are to be held: those of a frame that takes the rims along. Errors: InvalidArgument.
absl::StatusOr<std::vector<uint32_t>> HoldNurbsRims(const NurbsObject& object, const Material& material, double thickness_m,
                                                    double join_tolerance_m, bool is_clamped,
                                                    const std::function<bool(const Eigen::Vector3d& point_m)>& is_held,
                                                    gpu::NurbsShellModel* model);

/// The same shell elsewhere.
gpu::NurbsShellModel MovedNurbsShell(gpu::NurbsShellModel model, const RigidPose& pose);

/// That a body is what a NURBS shell can be. Errors: InvalidArgument naming the field.
absl::Status CheckNurbsShell(const BodyDescription& body);

/// As the solver takes it; `first_vertex`: of the body, in the solver's model. Precondition: CheckNurbsShell.
gpu::TissueNurbsShell TissueNurbsShellOf(const BodyDescription& body, uint32_t index, uint32_t first_vertex);

/// What a joint at a place (u, v) of a patch holds of a shell. The origin of its frame is the point of the exact surface, by the basis
/// functions; it turns with the control points of the knot span that are free, by their masses. Preconditions: there is such a place;
/// CheckNurbsShell.
std::vector<JointControlPoint> JointControlPointsAt(const BodyDescription& body, uint32_t patch, double u, double v);
/// What a joint holds of a shell with these control points, ascending: their centre of mass.
std::vector<JointControlPoint> JointControlPointsOf(const BodyDescription& body, std::span<const uint32_t> control);
/// Where the frame of a joint is at rest, in W.
Eigen::Vector3d JointOriginOf(const BodyDescription& body, std::span<const JointControlPoint> control);

/// At rest [m^2], and [kg].
double NurbsShellArea_m2(const gpu::NurbsShellModel& model);
double NurbsShellMass_kg(const gpu::NurbsShellModel& model);

}  // namespace palpate::sim
