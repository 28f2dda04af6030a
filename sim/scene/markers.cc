#include "sim/scene/markers.h"

#include <vector>

#include <Eigen/Geometry>

#include "absl/strings/str_cat.h"
#include "sim/mesh/point_location.h"

namespace palpate::sim {

absl::Status PlaceMarkers(BodyDescription* body) {
  if (body->markers.empty()) return absl::OkStatus();
  if (body->kind != BodyKind::kDeformable) return absl::InvalidArgumentError(".markers: only a deformable body has markers");
  if (body->markers.size() > kMaxMarkers) {
    return absl::InvalidArgumentError(absl::StrCat(".markers: ", body->markers.size(), " exceed ", kMaxMarkers));
  }
  std::vector<size_t> unplaced;
  std::vector<Eigen::Vector3d> points_m;
  for (size_t m = 0; m < body->markers.size(); ++m) {
    const MarkerDescription& marker = body->markers[m];
    if (!marker.position_m.allFinite()) return absl::InvalidArgumentError(absl::StrCat(".markers[", m, "].position_m: is not finite"));
    if (marker.tet != MarkerDescription::kUnplaced) continue;
    unplaced.push_back(m);
    points_m.push_back(marker.position_m);
  }
  if (unplaced.empty()) return absl::OkStatus();
  Eigen::AlignedBox3d box;
  for (const Eigen::Vector3d& v : body->mesh.vertices) box.extend(v);
  const double reach_m = kMarkerReach * box.sizes().maxCoeff();
  const std::vector<PointPlace> places = LocatePoints(body->mesh, points_m, reach_m);
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].tet == PointPlace::kNone) {
      const Eigen::Vector3d& p = points_m[i];
      return absl::InvalidArgumentError(absl::StrCat(
          ".markers[", unplaced[i], "].position_m: (", p.x(), ", ", p.y(), ", ", p.z(), ") lies ", DistanceToSurface(body->mesh, p),
          " m outside the body; a marker is put on the surface from at most ", reach_m, " m (", kMarkerReach, " of its extent)"));
    }
    MarkerDescription& marker = body->markers[unplaced[i]];
    marker.tet = places[i].tet;
    marker.position_m = places[i].point_m;
  }
  return absl::OkStatus();
}

}  // namespace palpate::sim
