#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include <Eigen/Core>

#include "absl/status/statusor.h"
#include "sim/mesh/mass_properties.h"
#include "sim/nurbs/nurbs_grid_tessellation.h"
#include "sim/nurbs/nurbs_nearest.h"
#include "sim/nurbs/nurbs_object.h"

namespace palpate::sim {

/// The exact surface of a body, of a deformable one at rest, with the triangles that contact is made with. Metres, in a frame of its own.
/// Immutable, shared by copies of the body.
struct NurbsBodyShape {
  NurbsObject object;
  double tolerance_m = 0;                          ///< of the triangles, see TessellateNurbsGrids and TessellateNurbsObject
  bool is_closed = false;                          ///< else it may only be static
  double volume_m3 = 0;                            ///< exact; 0 of an open one
  MassProperties mass_at_unit_density;             ///< exact surface integrals; zeros of an open one
  std::vector<Eigen::Vector3d> vertices;           ///< of the triangles, each used, on the surface but for gaps between patches
  std::vector<std::array<uint32_t, 3>> triangles;  ///< indices into vertices, outwards
  std::vector<NurbsGridPlace> vertex_places;       ///< [vertex] where it is on the surface
  std::vector<NurbsPlace> triangle_places;         ///< [triangle] the point of the surface nearest to its centroid
  NurbsNearest nearest;
};

/// Errors: those of the tessellation; InvalidArgument if `must_close` and the object does not, or is inside out, naming the patch;
/// `max_triangles`: more are ResourceExhausted. `least_cells`: see TessellateNurbsGrids and
/// TessellateNurbsObject. Deterministic.
absl::StatusOr<std::shared_ptr<const NurbsBodyShape>> MakeNurbsBodyShape(NurbsObject object, double tolerance_m, double join_tolerance_m,
                                                                         bool must_close, size_t max_triangles, size_t least_cells = 1);

}  // namespace palpate::sim
