#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include <Eigen/Geometry>

#include "sim/haptics/local_model.h"
#include "sim/instrument/geometry.h"
#include "sim/instrument/jaw_drive.h"
#include "sim/topology/ids.h"
#include "sim/world/indices.h"

namespace palpate::sim {

/// A vertex that a tool or a clip holds. A handle whose vertex is at another place at rest than it was
/// belongs to another vertex by now.
struct HeldVertex {
  VertexHandle handle = kNoHandle;
  Eigen::Vector3d rest_m;
  uint32_t part = 0;         ///< of the tool's capsules: the one that it is rigid with
  Eigen::Vector3d target_m;  ///< in the part's frame, from the tip of its axis; of a clip from its place, unrotated
  double slipped_m = 0;      ///< way of the target since it was taken

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [vertex, rest, of_part, target, slipped] = *this;
    archive(vertex, rest, of_part, target, slipped);
  }
};

/// What a world remembers of a tool between steps.
struct ToolState {
  uint32_t first_collider = 0;
  std::vector<InstrumentCapsule> parts;  ///< in T, the jaws as they are
  JawDrive jaws{JawDrive::Limits{}};
  RigidPose aim;   ///< where it was told to be in the newest step: the device's pose, inside the trocar
  RigidPose pose;  ///< simulated, after the newest step
  std::vector<std::array<Eigen::Vector3d, 2>> capsules_m;      ///< tip and axis of each part then, W
  Eigen::Vector3d velocity_m_per_s = Eigen::Vector3d::Zero();  ///< of the tip of the first part then
  Eigen::Vector3d wanted_tip_m = Eigen::Vector3d::Zero();      ///< of the first part, in the newest step
  Eigen::Vector3d tissue_force_n = Eigen::Vector3d::Zero();    ///< of all that tissue did to it in the newest step
  double held_back_m = 0;  ///< how far a projection stopped it short in the newest step, since tissue had no place to go
  // What tissue did to the jaws in the newest step.
  double resistance_n_m = 0;          ///< against closing, on average of both
  std::array<double, 2> pinch_n{};    ///< normal forces of contacts on their inner sides
  std::vector<VertexHandle> pinched;  ///< vertices of surface triangles that touch an inner side
  // What it holds.
  std::vector<HeldVertex> held;
  double grasp_angle_rad = 0;                                  ///< jaws that are to open farther let go
  std::optional<double> closes_to_rad;                         ///< took hold by request: the jaws close that far, onto what they hold
  Eigen::Vector3d grasp_center_m = Eigen::Vector3d::Zero();    ///< mean of the held vertices after the newest step, W
  Eigen::Vector3d grasp_force_n = Eigen::Vector3d::Zero();     ///< of what it holds on the tool, in the newest step
  Eigen::Vector3d grasp_torque_n_m = Eigen::Vector3d::Zero();  ///< about the tip
  bool was_pedal_down = false;
  // What it removes or cuts.
  std::optional<std::array<Eigen::Vector3d, 2>> blade_m;  ///< the edge where it cut last, W
  bool is_blade_led = true;                               ///< somebody leads it, by commands that are not too old
  double blade_lag_m = 0;          ///< > 0: nobody led it; it cuts again once it has come to the hand, from which it was this far away
  std::vector<size_t> cut_bodies;  ///< that it is in
  Eigen::Vector3d drag_m = Eigen::Vector3d::Zero();  ///< from the edge of the blade to the tissue that was there and has been dragged
  Eigen::Vector3d blade_force_n = Eigen::Vector3d::Zero();     ///< of tissue on the edge, in the newest step
  Eigen::Vector3d blade_torque_n_m = Eigen::Vector3d::Zero();  ///< about the tip
  Eigen::Vector3d joint_force_n = Eigen::Vector3d::Zero();     ///< of joints on it, in the newest step
  Eigen::Vector3d joint_torque_n_m = Eigen::Vector3d::Zero();  ///< about the tip
  Eigen::Vector3d joint_pull_n =
      Eigen::Vector3d::Zero();   ///< what of that draws it away from where it is aimed; see ToolRack::FollowJoints
  uint32_t joint_body = 0;       ///< that the last joint holds
  uint32_t blade_body = 0;       ///< whose force that is; of several the first
  std::vector<TetId> due;        ///< tets that were to be removed when it tried last
  uint64_t refined_version = 0;  ///< topology when tissue at the tip was last refined
  uint64_t due_version = 0;      ///< topology then
  bool is_cutting = false;       ///< in the newest step
  double removed_mass_kg = 0;

  template <typename Archive>
  void VisitState(Archive& archive) {
    // The number of its first collider is as described.
    [[maybe_unused]] auto& [collider, capsules, drive, aimed, simulated, placed, velocity, wanted_tip, force, held_back, resistance, pinch,
                            pinched_vertices, holds, grasp_angle, closes_to, center, grasp_force, grasp_torque, was_down, blade, is_led,
                            lag, in_bodies, drag, blade_force, blade_torque, joint_force, joint_torque, joint_pull, of_joint, of_body,
                            due_tets, refined, due_at, cutting, removed_mass] = *this;
    archive.Enter("ToolState");
    archive(capsules, drive, aimed, simulated, placed, velocity, wanted_tip, force, held_back, resistance, pinch, pinched_vertices, holds,
            grasp_angle, closes_to, center, grasp_force, grasp_torque, was_down, blade, is_led, lag, in_bodies, drag, blade_force,
            blade_torque, joint_force, joint_torque, joint_pull, of_joint, of_body, due_tets, refined, due_at, cutting, removed_mass);
  }
};

/// A vertex that a tool whose response is the projection keeps away, in the newest step.
struct ProjectedContact {
  VertexHandle handle = kNoHandle;
  Eigen::Vector3d rest_m{0, 0, 0};
  uint32_t collider = 0;
  Eigen::Vector3d target_m{0, 0, 0};   ///< from the collider's tip, world axes: the vertex stays before the plane through it
  Eigen::Vector3d normal{0, 0, 0};     ///< unit, from the tool to the tissue
  Eigen::Vector3d contact_m{0, 0, 0};  ///< from the collider's tip: where the surface was pushed
  Eigen::Vector3d point_m{0, 0, 0};    ///< the same after the step, W
  double force_n = 0;                  ///< on the vertex along the normal
  double separation_m = 0;             ///< of the surface there from the tool's

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [vertex, rest, of_collider, target, away, contact, point, force, separation] = *this;
    archive(vertex, rest, of_collider, target, away, contact, point, force, separation);
  }
};

/// What was between the jaws of a clip applier, held together by nothing but itself; or a stitch, which goes with the first vertex.
struct Clip {
  std::vector<HeldVertex> held;
  bool is_stitch = false;
  std::array<double, 3> foot{};  ///< of a stitch: where on the triangle of the other vertices the first one is sewn to, as their shares
  Eigen::Quaterniond rotation = Eigen::Quaterniond::Identity();
  Eigen::Quaterniond applied = Eigen::Quaterniond::Identity();  ///< of a clip: of the tool that set it
  double length_m = 0;                                          ///< likewise: of its jaws

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [vertices, stitch, shares, turned, set, length] = *this;
    archive(vertices, stitch, shares, turned, set, length);
  }
};

/// A part's own axes in T: of a jaw (along it to its tip, inward, and y), of others those of T.
Eigen::Matrix3d PartFrame(const InstrumentDescription& instrument, double jaw_angle_rad, uint32_t part);

/// The rotation that takes `from` nearest to `to`, both about their means (least squares, Kabsch). [i] correspond.
Eigen::Quaterniond BestRotation(const std::vector<Eigen::Vector3d>& from, const std::vector<Eigen::Vector3d>& to);

}  // namespace palpate::sim
