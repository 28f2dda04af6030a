#include "sim/world/body_surface.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"

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

absl::Status TakeTexture(const BodyDescription& description, ClosedMesh* mesh, BodyArrays* arrays) {
  const std::vector<std::array<float, 2>>& given = description.texture.coordinates;
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
