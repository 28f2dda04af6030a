#pragma once

#include <string>
#include <string_view>

#include <Eigen/Geometry>

#include "absl/status/statusor.h"
#include "palpate/v1/scene.pb.h"
#include "sim/scene/checker.h"
#include "sim/scene/description.h"

namespace palpate::scene {

/// The ranges of scene.proto, field by field.
void CheckMaterialRanges(Checker& check, const std::string& path, const v1::MaterialSpec& material);
/// And whether the fields go together.
void CheckMaterial(Checker& check, const std::string& path, const v1::MaterialSpec& material);

/// Applies the defaults. `turn`: rotation of the body's pose. Precondition: CheckMaterial passed.
sim::Material MaterialFrom(const v1::MaterialSpec& material, const Eigen::Quaterniond& turn);

/// The present material with what `change` gives in place of it. A new model takes along what it can have: springs have one Poisson ratio,
/// and only linear and St-Venant-Kirchhoff materials have fibres. Errors: InvalidArgument naming `path` and the field.
absl::StatusOr<sim::Material> ChangedMaterial(const sim::Material& present, const v1::MaterialSpec& change, std::string_view path);

}  // namespace palpate::scene
