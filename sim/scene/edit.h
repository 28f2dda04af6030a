#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <Eigen/Core>

#include "sim/scene/description.h"
#include "sim/topology/ids.h"

namespace palpate::sim {

/// Parts of a body's present shape, in W.
struct BallRegion {
  Eigen::Vector3d center_m{0, 0, 0};
  double radius_m = 0;
};
struct CapsuleRegion {
  Eigen::Vector3d end0_m{0, 0, 0};
  Eigen::Vector3d end1_m{0, 0, 0};
  double radius_m = 0;
};
struct TetListRegion {
  std::vector<TetId> tets;
};
/// Of a shell.
struct TriangleListRegion {
  std::vector<TriangleId> triangles;
};
struct ZoneRegion {
  std::string zone;
};
using EditRegion = std::variant<BallRegion, CapsuleRegion, TetListRegion, ZoneRegion, TriangleListRegion>;

/// Takes out the tets whose centroid lies in the region, from the surface inwards; of a shell the triangles.
struct CarveEdit {
  EditRegion region;
};
/// Halves edges of the tets that reach into the region until none of those that do is longer than max_edge_m at rest; of a shell those of
/// triangles.
struct RefineEdit {
  EditRegion region;
  double max_edge_m = 0;
  size_t tet_budget = 0;       ///< of the body; 0: ten times what it has; in any case SceneDescription::max_tets
  size_t triangle_budget = 0;  ///< of a shell, likewise
};
/// A blade's cutting edge moves in straight lines through these places.
struct InciseEdit {
  std::vector<std::array<Eigen::Vector3d, 2>> edges_m;
  bool goes_on = false;  ///< the stroke is not over: what the blade has passed at its tip opens when a later edit passes on
};
struct ZoneMaterial {
  std::string zone;  ///< name
  Material material;
};
struct MaterialEdit {
  std::string zone;  ///< empty: the whole body
  Material material;
  std::vector<Material> of_zones = {};  ///< of the whole body: one for each zone in place of `material`; may be empty
};
/// Takes hold of the surface vertices near a tool's tip (its jaws), as closing jaws do; the jaws then close onto them. Where there are none
/// but the surface is within reach, those of the triangle nearest to the tip.
struct GraspEdit {
  size_t tool = 0;
  double radius_m = 0;  ///< reach; 0: what lies between the jaws, and a reach of the longest edge of the nearest triangle
};
struct ReleaseEdit {
  size_t tool = 0;
};

/// Another drive and other limits of a joint's coordinate, or none of all that it holds.
struct JointEdit {
  size_t joint = 0;
  bool is_released = false;
  JointDriveDescription drive = {};
  std::optional<std::array<double, 2>> limits = {};  ///< of a distance; others keep theirs
};

struct Edit {
  size_t body = 0;  ///< index into World::bodies; not of grasp, release and joint edits
  std::variant<CarveEdit, RefineEdit, InciseEdit, MaterialEdit, GraspEdit, ReleaseEdit, JointEdit> what;
};

/// Tissue that an edit has cut off and that goes on in a body of its own, where it has other ids.
struct MovedTissue {
  uint32_t body = 0;                                         ///< index of the piece
  std::vector<std::pair<TetId, TetId>> tets;                 ///< (id in the body that was edited, id in the piece)
  std::vector<std::pair<VertexId, VertexId>> vertices;       ///< likewise
  std::vector<std::pair<TriangleId, TriangleId>> triangles;  ///< of a shell, likewise
};

/// What an edit did. Ids are those of the body's ClosedMesh, of a shell those of its SheetMesh.
struct EditOutcome {
  std::vector<TetId> removed_tets;                     ///< and gone: none that goes on in a piece
  std::vector<TetId> added_tets;                       ///< in this body and its pieces
  std::vector<std::pair<TetId, TetId>> remapped_tets;  ///< (removed, one of the tets that replace it)
  std::vector<VertexId> removed_vertices;
  std::vector<VertexId> added_vertices;
  std::vector<uint32_t> new_bodies;  ///< pieces that were cut off, indices of bodies
  // Of a shell, as those of tets.
  std::vector<TriangleId> removed_triangles, added_triangles;
  std::vector<std::pair<TriangleId, TriangleId>> remapped_triangles;
  uint32_t unchanged_count = 0;  ///< tets or triangles that were wanted and stayed, or are unknown
  bool is_refused = false;       ///< a budget stopped it
  std::string note;
  double removed_mass_kg = 0;
  uint32_t grasped_vertices = 0;
  double grasp_reach_m = 0;        ///< of a grasp
  double tissue_distance_m = -1;   ///< of a grasp: from the tip to the nearest tissue; negative: there is none
  std::vector<MovedTissue> moved;  ///< of each of new_bodies
  // Of added_tets at rest, see TetQuality, or of added_triangles (TriangleMeanRatio); 1 if there are none.
  double min_mean_ratio = 1;
  double min_edge_ratio = 1;
  std::vector<uint32_t> released_markers;  ///< indices into Frame::markers, ascending: their tissue was removed
};

}  // namespace palpate::sim
