#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gpu/shared/types.h"
#include "sim/nurbs/nurbs_body_shape.h"
#include "sim/scene/description.h"
#include "sim/world/frame.h"
#include "sim/world/world_body.h"

namespace palpate::sim {

/// The exact surfaces of a scene: where they are after a step, and their points near contacts.
class NurbsFollower {
 public:
  /// Keeps references.
  NurbsFollower(const SceneDescription& description, const std::vector<std::unique_ptr<WorldBody>>& bodies)
      : description_(description), bodies_(bodies) {}

  /// Fills the poses of a frame that has positions: the best fit to the body's vertices (Kabsch 1976), of a static body the pose at rest.
  /// Of shells the control points, from those that are unknowns, `control_m` (xyz), shell after shell. Also whether there is any such body.
  bool Place(std::span<const gpu::Float4> control_m, Frame* frame);

  bool IsNurbs(uint32_t body) const { return body < description_.bodies.size() && description_.bodies[body].nurbs != nullptr; }
  bool IsShell(uint32_t body) const { return body < description_.bodies.size() && description_.bodies[body].nurbs_shell.has_value(); }

  // The nearest point of the body's surface, if that is exact, to a point that lies on a triangle or beside a vertex of it. Precondition:
  // Place.
  std::optional<FrameNurbsPlace> NearTriangle(const Frame& frame, uint32_t body, uint32_t triangle, const Eigen::Vector3d& point_m) const;
  std::optional<FrameNurbsPlace> NearVertex(const Frame& frame, uint32_t body, uint32_t vertex, const Eigen::Vector3d& point_m) const;

  /// Of a segment near a triangle, in W. Preconditions: Place, IsNurbs.
  NurbsApproach Approach(const Frame& frame, uint32_t body, uint32_t triangle, const Eigen::Vector3d& end0_m,
                         const Eigen::Vector3d& end1_m) const;

 private:
  struct Known {
    bool is_nurbs = false;
    Eigen::Vector3d middle_m{0, 0, 0};      // of the shape's vertices
    std::vector<uint32_t> vertex_triangle;  // [vertex] one that has it
  };
  void MakeKnown();
  /// The surface of a shell as it is in the frame, in W. Made when it is asked for the first time.
  const NurbsNearest& NearestOf(const Frame& frame, uint32_t body) const;
  FrameNurbsPlace Near(const Frame& frame, uint32_t body, uint32_t triangle, const Eigen::Vector3d& point_m) const;

  const SceneDescription& description_;
  const std::vector<std::unique_ptr<WorldBody>>& bodies_;
  std::vector<Known> known_;                                          // of the description's bodies, once Place was called
  mutable std::vector<std::unique_ptr<const NurbsNearest>> nearest_;  // likewise, of shells that were asked for since
};

}  // namespace palpate::sim
