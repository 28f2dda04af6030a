#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <Eigen/Core>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "palpate/v1/scene.pb.h"
#include "sim/mesh/figure_generators.h"
#include "sim/scene/checker.h"
#include "sim/scene/description.h"

namespace palpate::scene {

// BodySpec.fixed: what holds a body and moves what is held, as body_spec.h has other parts.

/// Fields alone, and names of regions and parents.
void CheckFixed(Checker& check, const std::string& path, const v1::BodySpec& body);
/// Whether vertices of a region slide.
bool Slides(const v1::FixedRegion& region);

/// The motion of these vertices, or other points, which are in these places at rest; blends are not set. `before`: of the body's regions
/// with motions, names and places in the list so far. Errors: InvalidArgument (the parent is not among these).
absl::StatusOr<sim::DrivenRegion> BuildMotion(const v1::FixedRegion& region, const std::string& path, std::vector<uint32_t> vertices,
                                              std::span<const Eigen::Vector3d> places_m, std::span<const std::string> before);

/// Fills fixed_vertices, driven_regions and sliding_vertices. `figure`: of a body that is one, placed; else without parts.
absl::Status BuildFixed(const v1::BodySpec& body, const std::string& path, const sim::FigureSurface& figure, sim::BodyDescription& out);

}  // namespace palpate::scene
