#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <Eigen/Core>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "palpate/v1/scene.pb.h"
#include "sim/scene/checker.h"
#include "sim/scene/description.h"

namespace palpate::scene {

// The parts of a BodySpec that say what pushes it, and where: regions, surface zones, loads. scene_spec.cc calls these;
// the functions Check... look at the fields alone, those that Build... need them checked, and the mesh in its place.

/// A part of a body, in whichever of these forms it is given; the others are null.
struct Region {
  const v1::Box* box = nullptr;
  const v1::BallSpec* ball = nullptr;
  const v1::VertexList* vertices = nullptr;
  const std::string* mesh_group = nullptr;
};
Region RegionOf(const v1::ZoneSpec& zone);
Region RegionOf(const v1::FixedRegion& region);

/// `kinds`: the forms that may be given, for the message.
void CheckRegion(Checker& check, const std::string& path, const Region& region, std::string_view kinds);
/// Indices of the points in a box or ball, ascending. `what`: what the points are, for the message. Errors: InvalidArgument (none).
absl::StatusOr<std::vector<uint32_t>> PointsInside(const Region& region, const std::string& path, std::span<const Eigen::Vector3d> points,
                                                   std::string_view what);

/// Those of the mesh's vertices that a box, ball or list names, ascending. Errors: InvalidArgument (none, out of range).
absl::StatusOr<std::vector<uint32_t>> RegionVertices(const Region& region, const std::string& path, const sim::TetMesh& mesh);

/// Tets of a group of the mesh, ascending. Errors: InvalidArgument (none; lists the groups).
absl::StatusOr<std::vector<uint32_t>> GroupTets(const std::string& group, const std::string& path, const sim::TetMesh& mesh);

void CheckColor(Checker& check, const std::string& path, const v1::Color& color);
Eigen::Vector3f ColorFrom(const v1::Color& color);

void CheckSurfaceZones(Checker& check, const std::string& path, const v1::BodySpec& body);
/// Fills surface_zones. Errors: InvalidArgument where a zone has no triangle, or none that later ones leave to it.
absl::Status BuildSurfaceZones(const v1::BodySpec& body, const std::string& path, sim::BodyDescription& out);

void CheckLoads(Checker& check, const std::string& path, const v1::BodySpec& body);
/// Fills loads. Errors: InvalidArgument where a region has no vertex, or that of a pressure no triangle.
absl::Status BuildLoads(const v1::BodySpec& body, const std::string& path, sim::BodyDescription& out);

}  // namespace palpate::scene
