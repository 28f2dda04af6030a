#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "gpu/dynamics/tissue_solver.h"
#include "sim/haptics/build_model.h"
#include "sim/haptics/patch_stiffness.h"
#include "sim/world/frame.h"
#include "sim/world/grasping.h"
#include "sim/world/nurbs_follower.h"
#include "sim/world/scene_vertices.h"
#include "sim/world/solver_model.h"
#include "sim/world/tissue_projection.h"
#include "sim/world/tool_rack.h"
#include "sim/world/world_body.h"

namespace palpate::sim {

/// The local contact models of a scene's tools, which stations close their 1 kHz loops on; docs/algorithms/haptics.md.
class LocalModels {
 public:
  /// Keeps references.
  LocalModels(const ToolRack& rack, const Grasping& grasping, TissueProjection& projection,
              const std::vector<std::unique_ptr<WorldBody>>& bodies, const SceneVertices& vertices, const SolverModel& model,
              const NurbsFollower& nurbs)
      : rack_(rack),
        description_(rack.description()),
        tools_(rack.tools()),
        commands_(rack.commands()),
        tool_of_collider_(rack.tool_of_collider()),
        grasping_(grasping),
        projection_(projection),
        bodies_(bodies),
        vertices_(vertices),
        model_(model),
        nurbs_(nurbs) {}

  /// Fills local_models of a frame that has all else.
  void Build(const gpu::TissueStep& step, Frame* frame);

 private:
  std::array<double, 3> WeightsIn(uint32_t triangle, const Eigen::Vector3d& point_m, const Frame& frame) const;
  ContactSpread SpreadOn(uint32_t triangle, const std::array<double, 3>& weights) const;
  std::vector<Eigen::Vector3d> SurfaceByHandle(const Frame& frame) const;
  void ListContacts(size_t t, const gpu::TissueStep& step, const Frame& frame);
  void ListExactContacts(size_t t, const gpu::TissueStep& step, const Frame& frame);
  void AddPull(const ToolState& state, const Eigen::Vector3d& force_n, const Eigen::Vector3d& torque_n_m, const Material& material,
               double area_m2);
  void AddGrasp(size_t t);
  void AddBlade(size_t t);
  void AddJoint(size_t t);

  const ToolRack& rack_;
  const SceneDescription& description_;
  const std::vector<ToolState>& tools_;
  const std::vector<ToolCommand>& commands_;
  const std::vector<uint32_t>& tool_of_collider_;
  const Grasping& grasping_;
  TissueProjection& projection_;
  const std::vector<std::unique_ptr<WorldBody>>& bodies_;
  const SceneVertices& vertices_;
  const SolverModel& model_;
  const NurbsFollower& nurbs_;
  std::vector<LocalContact> contacts_;  // of the tool whose model is made
  std::vector<ContactSpread> spreads_;
};

}  // namespace palpate::sim
