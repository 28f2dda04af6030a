#include "sim/world/body_markers.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"

namespace palpate::sim {
namespace {

BodyMarkers::Marker MarkerInTriangle(uint32_t index, const std::array<uint32_t, 3>& v, const std::array<double, 3>& weights) {
  return {index, {v[0], v[1], v[2], v[0]}, {weights[0], weights[1], weights[2], 0}};
}

/// Of a body that cannot be edited.
BodyMarkers::Marker FixedMarker(const BodyDescription& description, const MarkerDescription& marker, uint32_t index) {
  const auto at = [&description](uint32_t v) { return description.mesh.vertices[v]; };
  if (description.shell) {
    const auto& v = description.shell->triangles[marker.cell];
    return MarkerInTriangle(index, v, TriangleWeights({at(v[0]), at(v[1]), at(v[2])}, marker.position_m));
  }
  const auto& v = description.mesh.tets[marker.cell];
  return {index, v, BarycentricWeights({at(v[0]), at(v[1]), at(v[2]), at(v[3])}, marker.position_m)};
}

template <typename Points>
auto WithdrawFrom(Points* points, const std::vector<uint32_t>& marker_of_point, ComponentId component) {
  std::vector<BodyMarkers::Rider<typename Points::Point>> riders;
  if (points == nullptr) return riders;
  for (const uint32_t point : points->PointsOf(component)) {
    riders.push_back({marker_of_point[point], points->point(point)});
    points->Withdraw(point);
  }
  return riders;
}

/// Of an element of the old mesh in the piece, whose elements are those of `sources`, ascending slots.
template <typename Id>
uint32_t PlaceOf(Id element, const std::vector<Id>& sources) {
  const auto at =
      std::lower_bound(sources.begin(), sources.end(), SlotOf(element), [](Id source, uint32_t slot) { return SlotOf(source) < slot; });
  return static_cast<uint32_t>(at - sources.begin());
}

}  // namespace

absl::Status BodyMarkers::Take(const BodyDescription& description, std::span<const MarkerDescription> markers, ClosedMesh* mesh,
                               SheetMesh* sheet, uint32_t first_index) {
  if (markers.empty()) return absl::OkStatus();
  if (description.kind != BodyKind::kDeformable) return absl::InvalidArgumentError(".markers: only a deformable body has markers");
  if (mesh != nullptr) points_ = std::make_unique<EmbeddedPoints>(mesh);
  if (sheet != nullptr) sheet_points_ = std::make_unique<SheetPoints>(sheet);
  const size_t cells = description.shell ? description.shell->triangles.size() : description.mesh.tets.size();
  for (uint32_t m = 0; m < markers.size(); ++m) {
    const MarkerDescription& marker = markers[m];
    if (marker.cell >= cells) {
      return absl::InvalidArgumentError(absl::StrCat(".markers[", m, "].cell: ", marker.cell, " is outside [0, ", cells - 1, "]"));
    }
    if (mesh == nullptr && sheet == nullptr) {
      markers_.push_back(FixedMarker(description, marker, first_index + m));
      continue;
    }
    const absl::StatusOr<uint32_t> point = mesh != nullptr ? points_->Embed(mesh->IdOfTet(marker.cell), marker.position_m)
                                                           : sheet_points_->Embed(sheet->IdOfTriangle(marker.cell), marker.position_m);
    if (!point.ok()) return Annotate(point.status(), absl::StrCat(".markers[", m, "].position_m"));
    marker_of_point_.push_back(first_index + m);
  }
  return absl::OkStatus();
}

std::vector<BodyMarkers::Marker> BodyMarkers::List(const ClosedMesh* mesh, const SheetMesh* sheet) const {
  if (marker_of_point_.empty()) return markers_;
  std::vector<Marker> out;
  for (uint32_t i = 0; i < marker_of_point_.size(); ++i) {
    if (points_ != nullptr) {
      const EmbeddedPoints::Point& point = points_->point(i);
      if (point.tet != kNoTet) out.push_back({marker_of_point_[i], mesh->TetVertices(SlotOf(point.tet)), point.weights});
    } else {
      const SheetPoints::Point& point = sheet_points_->point(i);
      if (point.triangle != kNoTriangle) {
        out.push_back(MarkerInTriangle(marker_of_point_[i], sheet->TriangleVertices(SlotOf(point.triangle)), point.weights));
      }
    }
  }
  return out;
}

std::vector<BodyMarkers::Rider<EmbeddedPoints::Point>> BodyMarkers::Withdraw(ComponentId component) {
  return WithdrawFrom(points_.get(), marker_of_point_, component);
}

std::vector<BodyMarkers::Rider<SheetPoints::Point>> BodyMarkers::WithdrawFromSheet(ComponentId component) {
  return WithdrawFrom(sheet_points_.get(), marker_of_point_, component);
}

void BodyMarkers::Adopt(const std::vector<Rider<EmbeddedPoints::Point>>& riders, ClosedMesh* mesh, const std::vector<TetId>& source_tets) {
  if (riders.empty()) return;
  points_ = std::make_unique<EmbeddedPoints>(mesh);
  for (const auto& rider : riders) {
    points_->Adopt(rider.point, mesh->IdOfTet(PlaceOf(rider.point.tet, source_tets)));
    marker_of_point_.push_back(rider.index);
  }
}

void BodyMarkers::Adopt(const std::vector<Rider<SheetPoints::Point>>& riders, SheetMesh* sheet,
                        const std::vector<TriangleId>& source_triangles) {
  if (riders.empty()) return;
  sheet_points_ = std::make_unique<SheetPoints>(sheet);
  for (const auto& rider : riders) {
    sheet_points_->Adopt(rider.point, sheet->IdOfTriangle(PlaceOf(rider.point.triangle, source_triangles)));
    marker_of_point_.push_back(rider.index);
  }
}

std::vector<uint32_t> BodyMarkers::TakeReleased() {
  std::vector<uint32_t> released;
  if (marker_of_point_.empty()) return released;
  for (const uint32_t point : points_ ? points_->TakeReleased() : sheet_points_->TakeReleased())
    released.push_back(marker_of_point_[point]);
  std::sort(released.begin(), released.end());
  return released;
}

}  // namespace palpate::sim
