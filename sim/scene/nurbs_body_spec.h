#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "palpate/v1/scene.pb.h"
#include "palpate/v1/stream.pb.h"
#include "sim/nurbs/nurbs_body_shape.h"
#include "sim/scene/asset_resolver.h"
#include "sim/scene/checker.h"
#include "sim/scene/description.h"

namespace palpate::scene {

// Bodies with an exact surface (BodySpec.nurbs); docs/nurbs.md, "In scenes".

/// The fields alone. `path`: of the body.
void CheckNurbs(Checker& check, const std::string& path, const v1::BodySpec& body);

/// Reads or takes the object, scales it and makes its triangles. Errors: those of the file or the object, behind the path of the field;
/// InvalidArgument (a rigid body that does not close), ResourceExhausted (more than `max_triangles`).
absl::StatusOr<std::shared_ptr<const sim::NurbsBodyShape>> LoadNurbs(const v1::BodySpec& body, const std::string& path, double margin_m,
                                                                     const AssetResolver& assets, size_t max_triangles);

/// The body's triangles in W, from those of its shape.
void PlaceNurbs(std::shared_ptr<const sim::NurbsBodyShape> shape, const sim::RigidPose& pose, sim::BodyDescription* out);

/// Of a deformable body, in the frame of the shape. Errors: those of sim::NurbsShellModelOf, behind the path of the field.
absl::StatusOr<std::shared_ptr<const gpu::NurbsShellModel>> LoadNurbsShell(const v1::BodySpec& body, const std::string& path,
                                                                           const sim::NurbsBodyShape& shape);
/// The body's nurbs_shell, in W, held where its regions are, and bound to bodies that BindNurbsShells names. Errors: InvalidArgument (a
/// region without control points, all are held).
absl::Status PlaceNurbsShell(const v1::BodySpec& body, const std::string& path, const gpu::NurbsShellModel& model,
                             const sim::RigidPose& pose, sim::BodyDescription* out);

/// Finds what shells are bound to. `spec_of_body`: of each built body the place in the spec. Precondition: all bodies are built. Errors:
/// InvalidArgument (a body that is missing, and those of sim::PlaceNurbsBinding), behind the path of the field.
absl::Status BindNurbsShells(const v1::SceneSpec& spec, std::span<const int> spec_of_body, sim::SceneDescription* out);

/// NurbsShellDescription::supports of all bodies, body by body, as streams tell them.
std::vector<v1::SupportInfo> EncodeSupportInfos(const sim::SceneDescription& description);

}  // namespace palpate::scene
