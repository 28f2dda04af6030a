#include "sim/world/body_surface.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/scene/nurbs_description.h"
#include "sim/world/texture_charts.h"

namespace palpate::sim {

absl::Status MakeSurfaceZones(const BodyDescription& description, ClosedMesh* mesh, BodyArrays* arrays) {
  arrays->surface_zones.push_back({"surface", description.color});
  if (mesh != nullptr) {
    arrays->surface_zones.push_back({"inside", description.interior_color, true});
    for (const ZoneDescription& zone : description.zones) {
      arrays->surface_zones.push_back({absl::StrCat("inside ", zone.name), zone.interior_color, true});
    }
  }
  if (description.surface_zones.empty()) return absl::OkStatus();
  const auto key = [](std::array<uint32_t, 3> corners) {
    std::sort(corners.begin(), corners.end());
    return corners;
  };
  absl::flat_hash_map<std::array<uint32_t, 3>, uint32_t> slots;
  for (uint32_t t = 0; mesh != nullptr && t < mesh->triangle_slot_count(); ++t) slots[key(mesh->TriangleVertices(t))] = t;
  for (uint32_t t = 0; mesh == nullptr && t < arrays->surface_triangles.size(); ++t) {
    std::array<uint32_t, 3> corners{};
    for (size_t c = 0; c < 3; ++c) corners[c] = arrays->surface_vertices[arrays->surface_triangles[t][c]];
    slots[key(corners)] = t;
  }
  for (size_t k = 0; k < description.surface_zones.size(); ++k) {
    const SurfaceZoneDescription& zone = description.surface_zones[k];
    const SurfaceZoneId id = NamedSurfaceZone(mesh != nullptr, 1 + description.zones.size(), k);
    arrays->surface_zones.push_back({zone.name, zone.color});
    if (mesh != nullptr) PALPATE_RETURN_IF_ERROR(mesh->AddSurfaceZone(zone.name).status());
    if (zone.triangles.empty()) return absl::InvalidArgumentError(absl::StrCat(".surface_zones[", k, "]: has no triangle"));
    for (size_t i = 0; i < zone.triangles.size(); ++i) {
      const auto found = slots.find(key(zone.triangles[i]));
      if (found == slots.end()) {
        return absl::InvalidArgumentError(absl::StrCat(".surface_zones[", k, "].triangles[", i, "]: is none of the surface"));
      }
      if (mesh != nullptr) {
        mesh->SetTriangleZone(found->second, id);
      } else {
        arrays->triangle_zones[found->second] = id;
      }
    }
  }
  return absl::OkStatus();
}

namespace {

/// The corners of a triangle as the boundary has it, in the order of `vertices`, which are the same. Adding zero takes the sign off a
/// negative one.
TextureCorners CornersInOrder(const std::array<uint32_t, 3>& boundary, const TextureCorners& given,
                              const std::array<uint32_t, 3>& vertices) {
  TextureCorners out{};
  for (size_t c = 0; c < 3; ++c) {
    for (size_t k = 0; k < 3; ++k) {
      if (boundary[k] == vertices[c]) out[c] = {given[k][0] + 0.0F, given[k][1] + 0.0F};
    }
  }
  return out;
}

/// Coordinates by corner: on the mesh, each chart of a zone is a zone of its own, so that edits keep its coordinates apart from its
/// neighbours'.
absl::Status TakeCorners(const BodyDescription& description, ClosedMesh* mesh, BodyArrays* arrays) {
  const std::vector<CornerCoordinates>& given = description.texture.corners;
  const BoundarySurface boundary = SurfaceOf(description);
  if (given.size() != boundary.triangles.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(".texture.corners: ", given.size(), " entries for ", boundary.triangles.size(), " triangles of the surface"));
  }
  if (description.texture.u_period != 0) return absl::InvalidArgumentError(".texture.u_period: corners have no period");
  const auto vertices_of = [&boundary](size_t t) {
    const auto& [a, b, c] = boundary.triangles[t];
    return std::array<uint32_t, 3>{boundary.vertices[a], boundary.vertices[b], boundary.vertices[c]};
  };
  absl::flat_hash_map<std::array<uint32_t, 3>, size_t> place;
  for (size_t t = 0; t < given.size(); ++t) {
    for (const auto& [u, v] : given[t]) {
      if (!std::isfinite(u) || !std::isfinite(v)) {
        return absl::InvalidArgumentError(absl::StrCat(".texture.corners[", t, "]: (", u, ", ", v, ") is not finite"));
      }
    }
    std::array<uint32_t, 3> key = vertices_of(t);
    std::sort(key.begin(), key.end());
    place[key] = t;
  }
  arrays->has_texture_corners = true;
  if (mesh == nullptr) {
    for (size_t t = 0; t < given.size(); ++t) arrays->texture_corners.push_back(CornersInOrder(vertices_of(t), given[t], vertices_of(t)));
    return absl::OkStatus();
  }
  std::vector<ChartedTriangle> triangles(mesh->triangle_slot_count());
  for (uint32_t t = 0; t < triangles.size(); ++t) {
    std::array<uint32_t, 3> key = mesh->TriangleVertices(t);
    std::sort(key.begin(), key.end());
    const auto found = place.find(key);
    if (found == place.end()) return absl::InternalError(absl::StrCat("triangle ", t, " of the mesh is none of its boundary"));
    triangles[t] = {mesh->TriangleVertices(t), mesh->TriangleZoneOf(t),
                    CornersInOrder(vertices_of(found->second), given[found->second], mesh->TriangleVertices(t))};
  }
  const std::vector<uint32_t> charts = AssignCharts(triangles);
  absl::flat_hash_map<std::pair<SurfaceZoneId, uint32_t>, SurfaceZoneId> zone_of;
  for (uint32_t t = 0; t < triangles.size(); ++t) {
    SurfaceZoneId zone = triangles[t].zone;
    if (charts[t] != 0) {
      const auto [known, is_new] = zone_of.try_emplace({zone, charts[t]}, 0);
      if (is_new) {
        PALPATE_ASSIGN_OR_RETURN(known->second,
                                 mesh->AddSurfaceZone(absl::StrCat(arrays->surface_zones[zone].name, ", chart ", charts[t])));
        if (known->second != arrays->surface_zones.size() + arrays->chart_zones.size()) return absl::InternalError("zones out of order");
        arrays->chart_zones.push_back(zone);
      }
      zone = known->second;
    }
    mesh->SetTriangleZone(t, zone);
    for (size_t c = 0; c < 3; ++c) mesh->SetTextureCoordinate(zone, triangles[t].vertices[c], triangles[t].corners[c]);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status TakeTexture(const BodyDescription& description, ClosedMesh* mesh, BodyArrays* arrays) {
  const std::vector<std::array<float, 2>>& given = description.texture.coordinates;
  if (!description.texture.corners.empty()) {
    if (!given.empty()) return absl::InvalidArgumentError(".texture: coordinates by vertex and by corner");
    return TakeCorners(description, mesh, arrays);
  }
  if (given.empty()) return absl::OkStatus();
  const double period = description.texture.u_period;
  if (!std::isfinite(period) || period < 0) {
    return absl::InvalidArgumentError(absl::StrCat(".texture.u_period: ", period, " is negative or not finite"));
  }
  if (given.size() != description.mesh.vertices.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(".texture.coordinates: ", given.size(), " entries for ", description.mesh.vertices.size(), " vertices"));
  }
  for (size_t v = 0; v < given.size(); ++v) {
    const auto& [u, w] = given[v];
    if (!std::isfinite(u) || !std::isfinite(w) || (period > 0 && !(u >= 0 && u < period))) {
      return absl::InvalidArgumentError(
          absl::StrCat(".texture.coordinates[", v, "]: (", u, ", ", w, ") is not finite or does not lie within the period"));
    }
  }
  // Adding zero takes the sign off a negative one.
  const auto value = [&given](uint32_t vertex) { return std::array<float, 2>{given[vertex][0] + 0.0F, given[vertex][1] + 0.0F}; };
  arrays->texture_coordinates.assign(given.size(), {});
  if (mesh == nullptr) {
    for (const uint32_t v : arrays->surface_vertices) arrays->texture_coordinates[v] = value(v);
    return absl::OkStatus();
  }
  mesh->SetTexturePeriod(period);
  for (uint32_t t = 0; t < mesh->triangle_slot_count(); ++t) {
    for (const uint32_t v : mesh->TriangleVertices(t)) mesh->SetTextureCoordinate(mesh->TriangleZoneOf(t), v, value(v));
  }
  return absl::OkStatus();
}

}  // namespace palpate::sim
