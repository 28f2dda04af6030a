#include "sim/world/body_markers.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"

namespace palpate::sim {

absl::Status BodyMarkers::Take(const BodyDescription& description, ClosedMesh* mesh, uint32_t first_index) {
  if (description.markers.empty()) return absl::OkStatus();
  if (description.kind != BodyKind::kDeformable) return absl::InvalidArgumentError(".markers: only a deformable body has markers");
  if (mesh != nullptr) points_ = std::make_unique<EmbeddedPoints>(mesh);
  for (uint32_t m = 0; m < description.markers.size(); ++m) {
    const MarkerDescription& marker = description.markers[m];
    if (marker.tet >= description.mesh.tets.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(".markers[", m, "].tet: ", marker.tet, " is outside [0, ", description.mesh.tets.size() - 1, "]"));
    }
    if (mesh != nullptr) {
      const absl::StatusOr<uint32_t> point = points_->Embed(mesh->IdOfTet(marker.tet), marker.position_m);
      if (!point.ok()) return Annotate(point.status(), absl::StrCat(".markers[", m, "].position_m"));
      marker_of_point_.push_back(first_index + m);
    } else {
      const auto& v = description.mesh.tets[marker.tet];
      std::array<Eigen::Vector3d, 4> corners_m;
      for (size_t c = 0; c < 4; ++c) corners_m[c] = description.mesh.vertices[v[c]];
      markers_.push_back({first_index + m, v, BarycentricWeights(corners_m, marker.position_m)});
    }
  }
  return absl::OkStatus();
}

std::vector<BodyMarkers::Marker> BodyMarkers::List(const ClosedMesh* mesh) const {
  if (points_ == nullptr) return markers_;
  std::vector<Marker> out;
  for (uint32_t i = 0; i < points_->size(); ++i) {
    const EmbeddedPoints::Point& point = points_->point(i);
    if (point.tet != kNoTet) out.push_back({marker_of_point_[i], mesh->TetVertices(SlotOf(point.tet)), point.weights});
  }
  return out;
}

std::vector<BodyMarkers::Rider> BodyMarkers::Withdraw(ComponentId component) {
  std::vector<Rider> riders;
  if (points_ == nullptr) return riders;
  for (const uint32_t point : points_->PointsOf(component)) {
    riders.push_back({marker_of_point_[point], points_->point(point)});
    points_->Withdraw(point);
  }
  return riders;
}

void BodyMarkers::Adopt(const std::vector<Rider>& riders, ClosedMesh* mesh, const std::vector<TetId>& source_tets) {
  if (riders.empty()) return;
  points_ = std::make_unique<EmbeddedPoints>(mesh);
  for (const Rider& rider : riders) {
    const auto tet = std::lower_bound(source_tets.begin(), source_tets.end(), SlotOf(rider.point.tet),
                                      [](TetId source, uint32_t slot) { return SlotOf(source) < slot; });
    points_->Adopt(rider.point, mesh->IdOfTet(static_cast<uint32_t>(tet - source_tets.begin())));
    marker_of_point_.push_back(rider.index);
  }
}

std::vector<uint32_t> BodyMarkers::TakeReleased() {
  std::vector<uint32_t> released;
  if (points_ == nullptr) return released;
  for (const uint32_t point : points_->TakeReleased()) released.push_back(marker_of_point_[point]);
  std::sort(released.begin(), released.end());
  return released;
}

}  // namespace palpate::sim
