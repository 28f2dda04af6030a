#include "sim/scene/markers.h"

#include <algorithm>
#include <vector>

#include <Eigen/Geometry>

#include "absl/strings/str_cat.h"
#include "sim/mesh/point_location.h"
#include "sim/mesh/signed_distance.h"

namespace palpate::sim {

namespace {

/// On the middle surface: the triangle takes the place of the tet.
std::vector<PointPlace> LocateOnShell(const BodyDescription& body, const std::vector<Eigen::Vector3d>& points_m, double reach_m) {
  const SignedDistance surface({body.mesh.vertices, body.shell->triangles});
  std::vector<PointPlace> places;
  for (const Eigen::Vector3d& p : points_m) {
    const SignedDistance::Nearest nearest = surface.NearestTo(p);
    const double distance_m = (nearest.point_m - p).norm();
    places.push_back({distance_m <= reach_m ? nearest.triangle : PointPlace::kNone, nearest.point_m, distance_m});
  }
  return places;
}

}  // namespace

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
    if (marker.cell != MarkerDescription::kUnplaced) continue;
    unplaced.push_back(m);
    points_m.push_back(marker.position_m);
  }
  if (unplaced.empty()) return absl::OkStatus();
  Eigen::AlignedBox3d box;
  for (const Eigen::Vector3d& v : body->mesh.vertices) box.extend(v);
  const double share_m = kMarkerReach * box.sizes().maxCoeff();
  const double reach_m = body->shell ? std::max(share_m, body->shell->thickness_m) : share_m;
  const std::vector<PointPlace> places =
      body->shell ? LocateOnShell(*body, points_m, reach_m) : LocatePoints(body->mesh, points_m, reach_m);
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].tet == PointPlace::kNone) {
      const Eigen::Vector3d& p = points_m[i];
      const double distance_m = body->shell ? places[i].distance_m : DistanceToSurface(body->mesh, p);
      return absl::InvalidArgumentError(
          absl::StrCat(".markers[", unplaced[i], "].position_m: (", p.x(), ", ", p.y(), ", ", p.z(), ") lies ", distance_m,
                       " m outside the body; a marker is put on the surface from at most ", reach_m, " m (", kMarkerReach, " of its extent",
                       body->shell ? ", or the thickness of the shell)" : ")"));
    }
    MarkerDescription& marker = body->markers[unplaced[i]];
    marker.cell = places[i].tet;
    marker.position_m = places[i].point_m;
  }
  return absl::OkStatus();
}

}  // namespace palpate::sim
