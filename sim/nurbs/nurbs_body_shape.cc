#include "sim/nurbs/nurbs_body_shape.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/nurbs/nurbs_mass_properties.h"
#include "sim/nurbs/nurbs_object_tessellation.h"

namespace palpate::sim {
namespace {

/// Places near the centroids of triangles. Triangles come patch by patch, so the place of one leads to that of the next.
std::vector<NurbsPlace> PlacesOf(const SurfaceMesh& mesh, const NurbsNearest& nearest, double tolerance_m) {
  std::vector<NurbsPlace> places;
  places.reserve(mesh.triangles.size());
  for (const auto& [a, b, c] : mesh.triangles) {
    const Eigen::Vector3d centroid_m = (mesh.vertices[a] + mesh.vertices[b] + mesh.vertices[c]) / 3;
    if (!places.empty()) {
      const NurbsPlace place = nearest.NearestFrom(places.back(), centroid_m);
      if (nearest.IsInside(place) && (place.point_m - centroid_m).norm() <= tolerance_m) {
        places.push_back(place);
        continue;
      }
    }
    places.push_back(nearest.Nearest(centroid_m));
  }
  return places;
}

/// Whole patches that fit edge to edge need far fewer triangles as grids.
absl::StatusOr<SurfaceMesh> Tessellate(const NurbsObject& object, double tolerance_m, double join_tolerance_m, size_t least_cells,
                                       size_t max_triangles, std::vector<NurbsGridPlace>* places) {
  PALPATE_ASSIGN_OR_RETURN(std::optional<SurfaceMesh> grids,
                           TessellateNurbsGrids(object, tolerance_m, join_tolerance_m, places, least_cells, max_triangles));
  if (grids) return *std::move(grids);
  return TessellateNurbsObject(object, tolerance_m, join_tolerance_m, places, least_cells, max_triangles);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const NurbsBodyShape>> MakeNurbsBodyShape(NurbsObject object, double tolerance_m, double join_tolerance_m,
                                                                         bool must_close, size_t max_triangles, size_t least_cells) {
  const absl::Status closed = object.CheckClosed(join_tolerance_m);
  if (must_close) PALPATE_RETURN_IF_ERROR(closed);
  NurbsMassProperties properties;
  if (closed.ok()) {
    const absl::StatusOr<NurbsMassProperties> exact = ComputeNurbsObjectMassProperties(object, 1, join_tolerance_m);
    if (!exact.ok() && must_close) return exact.status();
    if (exact.ok()) properties = *exact;
  }
  std::vector<NurbsGridPlace> vertex_places;
  PALPATE_ASSIGN_OR_RETURN(SurfaceMesh mesh, Tessellate(object, tolerance_m, join_tolerance_m, least_cells, max_triangles, &vertex_places));
  if (mesh.triangles.empty()) return absl::InvalidArgumentError("patches: there is no triangle of this tolerance");
  NurbsNearest nearest(object);
  std::vector<NurbsPlace> places = PlacesOf(mesh, nearest, tolerance_m);
  const bool is_solid = closed.ok() && properties.volume_m3 > 0;
  return std::make_shared<const NurbsBodyShape>(NurbsBodyShape{.object = std::move(object),
                                                               .tolerance_m = tolerance_m,
                                                               .is_closed = is_solid,
                                                               .volume_m3 = properties.volume_m3,
                                                               .mass_at_unit_density = properties.mass,
                                                               .vertices = std::move(mesh.vertices),
                                                               .triangles = std::move(mesh.triangles),
                                                               .vertex_places = std::move(vertex_places),
                                                               .triangle_places = std::move(places),
                                                               .nearest = std::move(nearest)});
}

}  // namespace palpate::sim
