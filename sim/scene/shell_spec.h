#pragma once

#include <memory>
#include <string>

#include <Eigen/Geometry>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "palpate/v1/scene.pb.h"
#include "sim/mesh/figure_generators.h"
#include "sim/mesh/tet_mesh.h"
#include "sim/scene/asset_resolver.h"
#include "sim/scene/checker.h"
#include "sim/scene/description.h"
#include "sim/scene/scene_spec.h"

namespace palpate::scene {

// BodySpec.shell, as body_spec.h has the other parts. Precondition of all: body.has_shell().

void CheckShell(Checker& check, const std::string& path, const v1::BodySpec& body, const SceneLimits& limits);

/// The surface in the frame of its file or generator. Errors: those of the readers; InvalidArgument naming the field, the file and the
/// first place where it is no manifold or its triangles are not turned alike. Without parts, if it is no figure.
absl::StatusOr<sim::FigureSurface> LoadShellSurface(const v1::BodySpec& body, const std::string& path, const AssetResolver& assets);

/// Everything but triangles. `turn`: of the body's pose.
sim::ShellDescription ShellFrom(const v1::BodySpec& body, const Eigen::Quaterniond& turn);

/// Where a zone differs from the shell. `turn`: of the body's pose.
sim::ShellZoneDescription ShellZoneFrom(const v1::ZoneSpec& zone, const Eigen::Quaterniond& turn);

/// Puts triangles in the place of a file's name, for scenes that leave their folder.
void SetInlineSurface(const sim::SurfaceMesh& surface, v1::ShellSpec& shell);

}  // namespace palpate::scene
