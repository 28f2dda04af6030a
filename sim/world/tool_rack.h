#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/dynamics/tissue_solver.h"
#include "sim/scene/description.h"
#include "sim/world/tool_state.h"
#include "sim/world/world.h"

namespace palpate::sim {

/// The tools of a scene: what they were told last, where that sends their capsules, and where they are. Capsules of tools are the solver's
/// first colliders, together for each tool and one tool after the other; those of obstacles follow.
class ToolRack {
 public:
  /// Keeps a reference.
  explicit ToolRack(const SceneDescription& description) : description_(description) {}

  /// Tools as at rest.
  void Reset();
  void ResetCommands();  ///< as if nobody had told them anything
  /// Resets the tools, and appends their capsules to `colliders`, as the first ones. Errors: InvalidArgument naming the tool.
  absl::Status Make(std::vector<gpu::ColliderDescription>* colliders);
  /// A capsule that nobody drives stands behind them.
  void AddFixed(const gpu::ColliderDescription& collider);

  /// Commands of a step, null: as before. Errors: InvalidArgument (number, not finite).
  absl::Status TakeCommands(std::span<const ToolCommand* const> commands);
  /// In the middle of a step: of tools for which nothing has been worked out from the pose that they had at its begin.
  void TakeNewerPoses(std::span<const ToolCommand* const> commands);
  /// Where the tool's capsules are wanted at the end of the step.
  void Aim(size_t t);
  /// Tells the capsules of a tool to go where it is aimed.
  void SetTargets(size_t t);
  /// Where a step left them; what tissue does to them begins at 0.
  void Follow(const gpu::TissueStep& step);
  /// After joint_force_n of a tool is known: of one on a coupling it moves the target, as if it pulled at the spring, by a share in each
  /// step.
  void FollowJoints(size_t t);
  /// Where a tool is at step 0.
  static RigidPose RestPose(const ToolDescription& tool);

  /// Of a reader, one that Make() has made of the same description. What numbers name, its caller must check.
  template <typename Archive>
  void VisitState(Archive& archive) {
    [[maybe_unused]] auto& [description, commands, targets, tools, tool_of_collider, carries_joint, any_projection] = *this;
    const size_t tool_count = tools.size();
    archive.Enter("ToolRack");
    archive(commands);
    archive.Check(commands.size() == tool_count, "another number of tools");
    for (ToolState& tool : tools) {
      const size_t part_count = tool.parts.size();
      archive(tool);
      archive.Check(tool.parts.size() == part_count && tool.capsules_m.size() == part_count, "a tool of other parts");
      for (const HeldVertex& held : tool.held) archive.Check(held.part < part_count, "a vertex is held by no part");
    }
    for (gpu::ColliderTarget& target : targets) archive(target.tip_m, target.axis_m);
  }

  const SceneDescription& description() const { return description_; }
  std::vector<ToolState>& tools() { return tools_; }
  const std::vector<ToolState>& tools() const { return tools_; }
  const std::vector<ToolCommand>& commands() const { return commands_; }
  const std::vector<gpu::ColliderTarget>& targets() const { return targets_; }
  /// [collider] of those of tools, which come first
  const std::vector<uint32_t>& tool_of_collider() const { return tool_of_collider_; }
  bool any_projection() const { return any_projection_; }  ///< is the response of a tool

 private:
  const SceneDescription& description_;
  std::vector<ToolCommand> commands_;  // newest per tool
  std::vector<gpu::ColliderTarget> targets_;
  std::vector<ToolState> tools_;
  std::vector<uint32_t> tool_of_collider_;
  std::vector<bool> carries_joint_;  // [tool]
  bool any_projection_ = false;
};

}  // namespace palpate::sim
