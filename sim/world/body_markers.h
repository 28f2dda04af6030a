#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "sim/scene/description.h"
#include "sim/topology/closed_mesh.h"
#include "sim/topology/embedded_points.h"

namespace palpate::sim {

/// The markers that ride in a body.
class BodyMarkers {
 public:
  /// Its position is the sum of the weights times the positions of four vertices (slots).
  struct Marker {
    uint32_t index = 0;  ///< in Frame::markers
    std::array<uint32_t, 4> vertices{};
    std::array<double, 4> weights{};
  };
  /// A marker on its way from a body into a piece of it.
  struct Rider {
    uint32_t index = 0;
    EmbeddedPoints::Point point;
  };

  /// Takes up the markers of a description, all placed; their indices run from first_index on. `mesh` outlives this; null: the body cannot
  /// be edited. Errors: InvalidArgument, with a message that begins with the field.
  absl::Status Take(const BodyDescription& description, ClosedMesh* mesh, uint32_t first_index);
  std::vector<Marker> List(const ClosedMesh* mesh) const;

  /// Before a component leaves the mesh: its markers, which are gone here.
  std::vector<Rider> Withdraw(ComponentId component);
  /// In the piece that it became. `source_tets`: of the old mesh, ascending slots, for each tet of `mesh`.
  void Adopt(const std::vector<Rider>& riders, ClosedMesh* mesh, const std::vector<TetId>& source_tets);
  /// Indices of markers whose tissue was taken out since the last call, ascending.
  std::vector<uint32_t> TakeReleased();

  /// Of a reader the mesh, if there is one, must have been read before; `marker_count`: of the scene. Markers of a body that cannot be
  /// edited are as described.
  template <typename Archive>
  void VisitState(Archive& archive, ClosedMesh* mesh, size_t marker_count) {
    [[maybe_unused]] auto& [points, marker_of_point, markers] = *this;
    bool has_points = points != nullptr;
    archive.Enter("BodyMarkers");
    archive(has_points);
    archive.Check(!has_points || mesh != nullptr, "points in a body that cannot be edited");
    if (!has_points || !archive.ok()) return;
    if (points == nullptr) points = std::make_unique<EmbeddedPoints>(mesh);
    archive(*points, marker_of_point);
    archive.Check(marker_of_point.size() == points->size(), "another number of markers");
    for (const uint32_t marker : marker_of_point) archive.Check(marker < marker_count, "a marker is not in the scene");
  }

 private:
  std::unique_ptr<EmbeddedPoints> points_;  // null: none, or the body cannot be edited
  std::vector<uint32_t> marker_of_point_;   // [point]
  std::vector<Marker> markers_;             // of a body that cannot be edited
};

}  // namespace palpate::sim
