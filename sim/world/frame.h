#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <Eigen/Core>

#include "sim/haptics/local_model.h"
#include "sim/world/body_arrays.h"

namespace palpate::sim {

inline constexpr uint32_t kObstacleContact = 0xffffffffU;

/// One contact after a step. A = tool (or obstacle), B = body.
struct FrameContact {
  uint32_t tool_index = kObstacleContact;
  uint32_t body_index = 0;
  Eigen::Vector3f point_m;  ///< on the body's surface, in W
  Eigen::Vector3f normal;   ///< unit, from A to B
  float separation_m = 0;   ///< negative = penetration
  Eigen::Vector3f force_n;  ///< on the body, friction included
};

enum class SurfaceContactKind { kVertexTriangle, kEdgeEdge };

/// A vertex and a triangle, or two edges, of one or two bodies that push each other.
struct FrameSurfaceContact {
  SurfaceContactKind kind = SurfaceContactKind::kVertexTriangle;
  uint32_t body_a = 0;  ///< vertex-triangle: of the vertex
  uint32_t body_b = 0;  ///< may be body_a
  /// Vertex-triangle: the vertex of A, then three of B; edge-edge: two of A, two of B. Places in surface_positions_m of their body.
  std::array<SurfaceSlot, 4> vertices{};
  Eigen::Vector3f point_a_m;
  Eigen::Vector3f point_b_m;
  Eigen::Vector3f normal;  ///< unit, from A to B
  float distance_m = 0;
  Eigen::Vector3f force_n;  ///< on B, friction included; the force on A is the opposite
};

/// What contact between and within bodies did in a step.
struct FrameContactStatistics {
  uint32_t contact_count = 0;       ///< pairs of elements within the detection range
  uint32_t acting_count = 0;        ///< those with a force: size of surface_contacts
  uint32_t detection_count = 0;     ///< proximity detections
  uint32_t filter_rounds = 0;       ///< continuous collision detections of the first guess
  uint32_t filtered_vertices = 0;   ///< vertices whose first guess was shortened
  uint32_t truncated_vertices = 0;  ///< vertices that wanted to move farther than their bound at the end of the step
  uint32_t intersection_count = 0;  ///< edges through triangles after the step; only with ContactOptions::check_intersections
  double detect_ms = 0;             ///< proximity
  double filter_ms = 0;             ///< continuous collision detection
  double check_ms = 0;              ///< intersections
  uint32_t self_searches = 0;       ///< searches for near pairs of bodies with themselves
  uint32_t listed_searches = 0;     ///< those of them that looked at a list of known pairs only
  uint32_t renewed_lists = 0;       ///< such lists that were made
};

struct FrameTool {
  RigidPose pose;                                        ///< simulated
  RigidPose device_pose;                                 ///< newest given
  Eigen::Vector3d force_n = Eigen::Vector3d::Zero();     ///< of the tissue on the tool, in W
  Eigen::Vector3d torque_n_m = Eigen::Vector3d::Zero();  ///< about the tip, in W
  uint32_t contact_count = 0;
  double jaw_angle_rad = 0;
  bool is_touching = false, is_grasping = false, is_cutting = false, is_blocked = false;
  bool is_expired = false;  ///< its command was too old, in part or whole
  double blocked_m = 0;     ///< how far it was stopped short so as not to pass through tissue, see gpu::TissueStep::blocked_m
  uint32_t grasped_vertices = 0;
  uint32_t grasped_body = 0;                                 ///< of the first of them
  Eigen::Vector3d grasp_center_m = Eigen::Vector3d::Zero();  ///< their mean, in W; zero without any
  double grasp_force_n = 0;
  double removed_mass_kg = 0;  ///< by this tool since the last reset
};

/// A marker of the scene after a step.
struct FrameMarker {
  Eigen::Vector3d position_m = Eigen::Vector3d::Zero();  ///< in W; of a released one where it was last
  uint32_t body_index = 0;                               ///< that it is in; of a released one where it was last
  bool is_released = false;                              ///< the tissue around it was removed
};

/// A clip that an applier left, after a step.
struct FrameClip {
  Eigen::Vector3d position_m = Eigen::Vector3d::Zero();          ///< middle of what it holds, in W
  Eigen::Quaterniond rotation = Eigen::Quaterniond::Identity();  ///< to W from the axes of the tool that set it: its legs lie along z
  double length_m = 0;                                           ///< of the jaws that it comes from

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [at, turned, length] = *this;
    archive(at, turned, length);
  }
};

/// A stitch of a suture that holds, after a step.
struct FrameStitch {
  Eigen::Vector3d point_a_m = Eigen::Vector3d::Zero();  ///< the sewn vertex, in W
  Eigen::Vector3d point_b_m = Eigen::Vector3d::Zero();  ///< the place of the other surface that it was nearest to at rest

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [a, b] = *this;
    archive(a, b);
  }
};

/// A joint of the scene after a step.
struct FrameJoint {
  double position = 0;  ///< hinge [rad], slider, distance, spring [m]
  double effort = 0;    ///< of what drives or limits it, on B along the coordinate [N m, N]; distance and spring: the pull on B
  Eigen::Vector3d force_n = Eigen::Vector3d::Zero();     ///< on B at its point, in W
  Eigen::Vector3d torque_n_m = Eigen::Vector3d::Zero();  ///< on B about its point, in W
  Eigen::Vector3d point_m = Eigen::Vector3d::Zero();     ///< of B, in W
  Eigen::Vector3d point_a_m = Eigen::Vector3d::Zero();   ///< of A, in W
  Eigen::Vector3d axis = Eigen::Vector3d::UnitZ();       ///< that A carries, in W
  double gap_m = 0;                                      ///< how far what it holds is off
  double gap_rad = 0;
  bool is_broken = false;

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [at, drawn, force, torque, point, point_a, along, off_m, off_rad, broken] = *this;
    archive(at, drawn, force, torque, point, point_a, along, off_m, off_rad, broken);
  }
};

/// The point of a body's exact surface nearest to a contact.
struct FrameNurbsPlace {
  uint32_t patch = 0;  ///< of the object
  double u = 0, v = 0;
  Eigen::Vector3d point_m{0, 0, 0};  ///< in W
};

/// What control points of a NURBS shell do to what holds, drives or carries them.
struct FrameSupport {
  Eigen::Vector3d force_n = Eigen::Vector3d::Zero();     ///< in W, on what holds them
  Eigen::Vector3d torque_n_m = Eigen::Vector3d::Zero();  ///< about `point_m`
  Eigen::Vector3d point_m = Eigen::Vector3d::Zero();     ///< mean of the control points, in W
  bool is_released = false;                              ///< the tissue that carried them is gone

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [force, torque, point, released] = *this;
    archive(force, torque, point, released);
  }
};

/// Of scenes with NURBS bodies; empty in others.
struct FrameNurbs {
  std::vector<std::optional<RigidPose>> poses;                                ///< per body, from the frame of its shape to W; of rigid and
                                                                              ///< static ones
  std::vector<std::vector<float>> control_m;                                  ///< per body, of a shell: control points in W, patch by
                                                                              ///< patch, [point * 3]; of others empty
  std::vector<std::optional<FrameNurbsPlace>> places;                         ///< per contact of Frame::contacts
  std::vector<std::array<std::optional<FrameNurbsPlace>, 2>> surface_places;  ///< per contact of Frame::surface_contacts, of A and B
  std::vector<FrameSupport> supports;                                         ///< NurbsShellDescription::supports, body by body
};

/// Stages of a step, in order; names for metrics and streams.
inline constexpr std::array<std::string_view, 6> kStageNames = {"tools", "detect", "solve", "forces", "readback", "models"};

/// The scene after a step: an immutable snapshot that any thread may read.
struct Frame {
  uint64_t step = 0;
  double sim_time_s = 0;
  int64_t server_time_us = 0;     ///< wall clock when the step ended
  uint64_t state_hash = 0;        ///< of positions and velocities on the device
  uint64_t topology_version = 1;  ///< that of `topology`
  std::shared_ptr<const WorldTopology> topology;
  std::vector<std::vector<float>> surface_positions_m;  ///< per body, [surface slot * 3] in W; free slots hold the last or zeros
  std::vector<std::vector<float>> volume_positions_m;   ///< per body, [vertex slot * 3] in W; empty unless World::SetVolumeWanted
  /// Per body, of those that keep their volume: k (V0 - V) / V0 [Pa], V0 the volume within the surface at rest. Empty: no body does.
  std::vector<std::optional<double>> kept_pressures_pa;
  std::vector<FrameContact> contacts;                 ///< with tools and obstacles
  std::vector<FrameSurfaceContact> surface_contacts;  ///< between and within bodies; those with a force
  FrameContactStatistics contact_statistics;
  std::vector<FrameTool> tools;
  FrameNurbs nurbs;
  std::vector<FrameMarker> markers;      ///< those of the description, body by body
  std::vector<FrameJoint> joints;        ///< those of the description
  std::vector<FrameClip> clips;          ///< that are there, in the order in which they were set
  std::vector<FrameStitch> stitches;     ///< that hold, suture by suture
  std::vector<LocalModel> local_models;  ///< one per tool
  double step_ms = 0;
  std::array<double, kStageNames.size()> stage_ms{};
  double kinetic_energy_j = 0;
  std::optional<double> elastic_energy_j;  ///< of all dynamic tissue, see gpu::TissueStep; only with SolverOptions::report_energy
  double max_speed_m_per_s = 0;
  uint32_t inverted_tets = 0;
  uint32_t sweeps = 0;           ///< of the solver, see gpu::TissueStep
  double max_penetration_m = 0;  ///< deepest contact; 0 = none
};

}  // namespace palpate::sim
