#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "sim/scene/description.h"
#include "sim/topology/closed_mesh.h"
#include "sim/topology/embedded_points.h"
#include "sim/topology/sheet_points.h"

namespace palpate::sim {

/// The markers that ride in a body.
class BodyMarkers {
 public:
  /// Its position is the sum of the weights times the positions of four vertices (slots). In a shell the last is the first once more, with
  /// weight 0.
  struct Marker {
    uint32_t index = 0;  ///< in Frame::markers
    std::array<uint32_t, 4> vertices{};
    std::array<double, 4> weights{};
  };
  /// A marker on its way from a body into a piece of it.
  template <typename Point>
  struct Rider {
    uint32_t index = 0;
    Point point;
  };

  /// Takes up markers of a body, all placed; their indices run from first_index on. `mesh`, or `sheet` of a shell, outlives
  /// this; both null: the body cannot be edited. Errors: InvalidArgument, with a message that begins with the field.
  absl::Status Take(const BodyDescription& description, std::span<const MarkerDescription> markers, ClosedMesh* mesh, SheetMesh* sheet,
                    uint32_t first_index);
  std::vector<Marker> List(const ClosedMesh* mesh, const SheetMesh* sheet) const;

  /// Before a component leaves the mesh: its markers, which are gone here.
  std::vector<Rider<EmbeddedPoints::Point>> Withdraw(ComponentId component);
  std::vector<Rider<SheetPoints::Point>> WithdrawFromSheet(ComponentId component);
  /// In the piece that it became. `source_tets`: of the old mesh, ascending slots, for each tet of `mesh`.
  void Adopt(const std::vector<Rider<EmbeddedPoints::Point>>& riders, ClosedMesh* mesh, const std::vector<TetId>& source_tets);
  void Adopt(const std::vector<Rider<SheetPoints::Point>>& riders, SheetMesh* sheet, const std::vector<TriangleId>& source_triangles);
  void OnSheetEdited(const SheetDelta& delta) {
    if (sheet_points_) sheet_points_->OnEdited(delta);
  }
  /// Indices of markers whose tissue was taken out since the last call, ascending.
  std::vector<uint32_t> TakeReleased();

  /// Of a reader the mesh or sheet, if there is one, must have been read before; `marker_count`: of the scene. Markers of a body that
  /// cannot be edited are as described.
  template <typename Archive>
  void VisitState(Archive& archive, ClosedMesh* mesh, SheetMesh* sheet, size_t marker_count) {
    [[maybe_unused]] auto& [points, sheet_points, marker_of_point, markers] = *this;
    bool has_points = points != nullptr || sheet_points != nullptr;
    archive.Enter("BodyMarkers");
    archive(has_points);
    archive.Check(!has_points || mesh != nullptr || sheet != nullptr, "points in a body that cannot be edited");
    if (!has_points || !archive.ok()) return;
    if (mesh != nullptr) {
      if (points == nullptr) points = std::make_unique<EmbeddedPoints>(mesh);
      archive(*points);
    } else {
      if (sheet_points == nullptr) sheet_points = std::make_unique<SheetPoints>(sheet);
      archive(*sheet_points);
    }
    archive(marker_of_point);
    archive.Check(marker_of_point.size() == (mesh != nullptr ? points->size() : sheet_points->size()), "another number of markers");
    for (const uint32_t marker : marker_of_point) archive.Check(marker < marker_count, "a marker is not in the scene");
  }

 private:
  // Of a body that can be edited one of them; null: no markers.
  std::unique_ptr<EmbeddedPoints> points_;
  std::unique_ptr<SheetPoints> sheet_points_;  // of a shell
  std::vector<uint32_t> marker_of_point_;      // [point]
  std::vector<Marker> markers_;                // of a body that cannot be edited
};

}  // namespace palpate::sim
