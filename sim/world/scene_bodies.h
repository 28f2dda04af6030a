#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpu/base/status.h"
#include "sim/scene/description.h"
#include "sim/world/body_arrays.h"
#include "sim/world/scene_vertices.h"
#include "sim/world/solver_model.h"
#include "sim/world/world.h"
#include "sim/world/world_body.h"

namespace palpate::sim {

/// The bodies of a scene, those of the description and then components that edits cut off, with their vertices and what moves of itself.
/// The vectors and SceneVertices stay where they are for as long as this lives.
class SceneBodies {
 public:
  /// Keeps a reference.
  explicit SceneBodies(const SceneDescription& description) : description_(description) {}

  /// All bodies at rest, as described. Errors: InvalidArgument naming the body and the field.
  absl::Status Build();

  /// Worked out when somebody asks: after an edit that is O(tets of the body).
  const std::vector<BodyStatistics>& Statistics();
  void ForgetStatistics() { statistics_known_.assign(bodies_.size(), 0); }
  void ForgetStatistics(size_t body) {
    statistics_known_.resize(bodies_.size(), 0);
    statistics_known_[body] = 0;
  }

  absl::Status CheckIndex(size_t body) const;  ///< errors: InvalidArgument
  /// Of the body's mesh, by slot; free ones are 0.
  std::vector<Eigen::Vector3d> RestPositions(size_t body) const;
  std::vector<TetZoneId> TetZones(size_t body) const;
  std::vector<ZoneMaterial> MaterialsOf(size_t body) const;
  bool HasName(const std::string& name) const;
  size_t TetsOfOthers(size_t body) const;  ///< of editable bodies
  /// Positions and velocities of all vertices at the start, [3 vertex]; empty where nothing but rigid bodies moves.
  struct Start {
    std::vector<float> positions_m, velocities_m_per_s;
  };
  Start StartOfMotion() const;

  std::vector<std::unique_ptr<WorldBody>>& bodies() { return bodies_; }
  const std::vector<std::unique_ptr<WorldBody>>& bodies() const { return bodies_; }
  SceneVertices& vertices() { return vertices_; }
  const SceneMotions& motions() const { return motions_; }
  const std::vector<BoundarySurface>& surfaces() const { return surfaces_; }  ///< as described

 private:
  absl::Status Add(const BodyDescription& body, uint32_t index, const std::string& name, uint32_t first_marker);
  absl::Status AddDriven(const BodyDescription& body, uint32_t base, const std::string& name);
  absl::Status AddLoads(const BodyDescription& body, uint32_t base, const std::string& name);
  absl::Status AddJoints();
  absl::Status AddBindings();
  void AddRigid(const BodyDescription& body, uint32_t index, uint32_t base);
  BodyStatistics StatisticsOf(const WorldBody& body) const;

  const SceneDescription& description_;
  std::vector<std::unique_ptr<WorldBody>> bodies_;
  SceneVertices vertices_;
  SceneMotions motions_;
  std::vector<BoundarySurface> surfaces_;
  std::vector<BodyStatistics> statistics_;
  std::vector<uint8_t> statistics_known_;  // per body: as the body is now
  bool moves_at_start_ = false;            // a deformable body has a velocity
};

}  // namespace palpate::sim
