#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <Eigen/Geometry>

#include "sim/topology/exposure_guard.h"
#include "sim/world/scene_vertices.h"
#include "sim/world/world_body.h"

namespace palpate::sim {

/// The surfaces of a scene as its meshes and SceneVertices::state have them, while edits run: what passes through what. Boxes of triangles
/// follow edits of the meshes by themselves. Decided exactly; one thread.
class SceneSurface {
 public:
  using Triangle = std::array<VertexHandle, 3>;
  struct Near {
    uint32_t body = 0;
    uint32_t triangle = 0;  ///< slot
    Triangle corners{};
  };

  /// Keeps references to both.
  SceneSurface(const std::vector<std::unique_ptr<WorldBody>>& bodies, const SceneVertices& vertices)
      : bodies_(&bodies), vertices_(&vertices) {}

  /// Forgets what it knows of positions and meshes.
  void Forget() { boxes_.clear(); }
  /// After vertices of a body went from it to others.
  void Forget(uint32_t body) {
    if (body < boxes_.size()) boxes_[body] = {};
  }
  /// After a vertex of a deformable body was moved.
  void FollowMove(VertexHandle handle);

  /// Triangles whose boxes meet `box`. O(triangles), a few ns each, plus what edits changed.
  void ListNear(const Eigen::AlignedBox3d& box, std::vector<Near>* out);
  /// What an ExposureGuard of the body says: faces may not pass through the surfaces of bodies that it can meet, nor through each other.
  bool Refuse(const WorldBody& body, const UncoveredFaces& faces, std::vector<uint8_t>* is_refused);

  /// Whether edge pq passes through a triangle of which it has no vertex; through an edge or a vertex counts, an end on the plane does not.
  /// `at`: position of a handle.
  template <typename At>
  static bool Pierces(VertexHandle p, VertexHandle q, const Triangle& triangle, const At& at) {
    for (const VertexHandle corner : triangle) {
      if (corner == p || corner == q) return false;
    }
    return EdgePierces(at(p), at(q), at(triangle[0]), at(triangle[1]), at(triangle[2]));
  }
  /// Whether an edge of one passes through the other.
  template <typename At>
  static bool Cross(const Triangle& a, const Triangle& b, const At& at) {
    for (size_t c = 0; c < 3; ++c) {
      if (Pierces(a[c], a[(c + 1) % 3], b, at) || Pierces(b[c], b[(c + 1) % 3], a, at)) return true;
    }
    return false;
  }
  Eigen::Vector3d PositionOf(VertexHandle handle) const {
    const gpu::Float4& x = vertices_->state[handle].position_m;
    return {x.x, x.y, x.z};
  }

 private:
  struct Boxes {
    bool is_known = false;
    uint64_t version = 0;  // of the mesh
    std::vector<Triangle> corners;
    std::vector<Eigen::AlignedBox3f> boxes;  // [triangle slot], empty: free
  };
  void Follow(const WorldBody& body);
  void Place(const WorldBody& body, uint32_t triangle);
  static bool EdgePierces(const Eigen::Vector3d& p, const Eigen::Vector3d& q, const Eigen::Vector3d& a, const Eigen::Vector3d& b,
                          const Eigen::Vector3d& c);

  const std::vector<std::unique_ptr<WorldBody>>* bodies_;
  const SceneVertices* vertices_;
  std::vector<Boxes> boxes_;  // by body
  std::vector<Near> near_;
  std::vector<uint32_t> fan_;
};

}  // namespace palpate::sim
