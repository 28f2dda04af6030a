#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "sim/nurbs/nurbs_body_shape.h"
#include "sim/scene/description.h"
#include "sim/world/frame.h"
#include "sim/world/world_body.h"

namespace palpate::sim {

/// The exact surfaces of a scene's rigid and static bodies: where they are after a step, and their points near contacts.
class NurbsFollower {
 public:
  /// Keeps references.
  NurbsFollower(const SceneDescription& description, const std::vector<std::unique_ptr<WorldBody>>& bodies)
      : description_(description), bodies_(bodies) {}

  /// Fills the poses of a frame that has positions: the best fit to the body's vertices (Kabsch 1976), of a static body the pose at rest.
  /// Also whether there is any such body.
  bool Place(Frame* frame);

  bool IsNurbs(uint32_t body) const { return body < description_.bodies.size() && description_.bodies[body].nurbs != nullptr; }

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
  FrameNurbsPlace Near(const Frame& frame, uint32_t body, uint32_t triangle, const Eigen::Vector3d& point_m) const;

  const SceneDescription& description_;
  const std::vector<std::unique_ptr<WorldBody>>& bodies_;
  std::vector<Known> known_;  // of the description's bodies, once Place was called
};

}  // namespace palpate::sim
