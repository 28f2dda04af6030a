#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/runtime/context.h"
#include "sim/scene/description.h"
#include "sim/scene/edit.h"
#include "sim/world/frame.h"
#include "sim/world/world_state.h"

namespace palpate::sim {

/// What a client wants of one tool for the next step.
struct ToolCommand {
  RigidPose device_pose;  ///< X_WT, finite
  Eigen::Vector3d velocity_m_per_s = Eigen::Vector3d::Zero();
  uint64_t pose_sequence = 0;
  int64_t station_time_us = 0;
  double device_max_stiffness_n_per_m = 0;  ///< 0 = no limit
  double jaw_angle_rad = 0;                 ///< wanted; 0 = closed
  bool pedal = false;                       ///< energy on, or clip
  double power_w = 0;                       ///< while the pedal is down; 0: the instrument's largest
  double duty = 0;                          ///< share of the time that power flows; 0: 1
  // What is old: see ToolDescription::energy_hold_s.
  bool is_energy_expired = false;  ///< only told on (FrameTool::is_expired); the pedal is to be up then
  bool is_hold_expired = false;    ///< jaws keep their angle and what they hold, a blade cuts nothing

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [pose, velocity, sequence, time, stiffness, angle, is_down, power, share, energy_expired, hold_expired] = *this;
    archive(pose, velocity, sequence, time, stiffness, angle, is_down, power, share, energy_expired, hold_expired);
  }
};

/// Counts and sizes of one body, constant between topology edits; mass and volume at rest.
struct BodyStatistics {
  std::string name;
  uint32_t vertex_count = 0, tet_count = 0, surface_vertex_count = 0, surface_triangle_count = 0, fixed_vertex_count = 0;
  uint32_t quasi_static_tets = 0;  ///< of tet_count: of a pre-computed body, or of zones of a hybrid one that nothing has cut
  double mass_kg = 0, volume_m3 = 0;
  bool is_volume_released = false;  ///< a shell's that was kept until an edit opened it
  double volume_stiffness_pa = 0;   ///< 0: nothing keeps its volume
  double kept_volume_m3 = 0;        ///< of one whose volume is kept: within its surface at rest
};

/// A running scene on one OpenCL device. Not thread-safe: one thread owns a World and steps it; the frames it returns are immutable and
/// shared freely. Deterministic: the same description, the same commands before the same steps, the same device and driver give
/// bit-identical states.
class World {
 public:
  /// Builds the device state. `context` is shared by many worlds. Errors: InvalidArgument (description), ResourceExhausted (device memory),
  /// Internal (OpenCL).
  static absl::StatusOr<std::unique_ptr<World>> Create(std::shared_ptr<gpu::Context> context, SceneDescription description);
  ~World();

  /// All that this is between two steps, to go on from later: what takes time, making bytes of it (EncodeWorldState), any thread may do.
  /// Some blocking reads; O(scene), about as long as a copy of it takes. Errors: FailedPrecondition (the scene has failed), Internal
  /// (device).
  absl::StatusOr<std::shared_ptr<const WorldState>> Capture();

  /// Goes on from a state of the same description, in this process or another. Guarantee: on the same device and driver both then do the
  /// same, bit for bit, after the same commands and edits; Reset leads back to the scene as described. Whether frames carry volumes is not
  /// part of a state (SetVolumeWanted). No edit is done again. `old` (or null): a world of the same context that is given up, which makes
  /// this quicker: its kernels and working memory are used again. It must not step, be edited or be reset afterwards, also if this fails.
  /// Errors: those of Create; InvalidArgument (a state of another description, or one that cannot be: names the part).
  static absl::StatusOr<std::unique_ptr<World>> Restore(std::shared_ptr<gpu::Context> context, SceneDescription description,
                                                        const WorldState& state, World* old = nullptr);

  /// Goes to a state as a world that is restored from it, if tissue is in it as it is here: bodies and pieces, materials, layout on the
  /// device. What takes long to make is kept then. False: tissue is another, or some is quasi-static, and nothing has changed. After an
  /// error has_failed(). Errors: those of Restore. The same guarantees, and volumes are not wanted.
  absl::StatusOr<bool> GoTo(const WorldState& state);

  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// Advances by dt_s. `commands` holds one entry per tool, nullptr = no client: the tool keeps its target, with the pedal up
  /// and a blade that cuts nothing. Blocking.
  /// Errors: Internal (device), DataLoss when the state became non-finite: the world is then at its last good state and refuses further
  /// steps until Reset.
  ///
  /// `before_tools`, if given, is called once on this thread when what does not depend on tools is done (the detection at the start, up to
  /// a third of a step): it may bring what `commands` points to up to date. Newer poses are then taken of tools that do not cut, hold or
  /// project and have no trocar, if they are finite, in scenes without quasi-static bodies; so they are that much younger.
  absl::StatusOr<std::shared_ptr<const Frame>> Step(std::span<const ToolCommand* const> commands,
                                                    const std::function<void()>& before_tools = {});

  /// Performs edits between two steps, in order. Everything is checked first: an error leaves the world as it was. A piece that is cut off
  /// becomes a body of its own at the end of bodies(), with its velocity. CurrentFrame has the new topology afterwards.
  /// Errors: InvalidArgument naming edits[i] and its field; NotFound (body, tool, zone); FailedPrecondition (the scene has failed, or the
  /// body cannot be edited in that way).
  /// `is_enough`, if given, is asked after each edit: once it says so the rest is left, and there are as many outcomes as edits were done.
  absl::StatusOr<std::vector<EditOutcome>> Apply(std::span<const Edit> edits, const std::function<bool()>& is_enough = {});

  /// Back to the rest state, step 0; every edit is undone, pieces that were cut off are gone.
  absl::StatusOr<std::shared_ptr<const Frame>> Reset();

  /// The frame of the newest step (of the rest state before the first).
  std::shared_ptr<const Frame> CurrentFrame() const;

  /// Whether frames carry the positions of all vertices. Off at first. Takes effect with the next step.
  void SetVolumeWanted(bool wanted);

  /// Current positions of all vertices of a body, [BodyArrays::vertex_slot_count * 3] in W; free slots hold zeros. Blocking read.
  absl::StatusOr<std::vector<float>> ReadVolumePositions(size_t body_index);

  /// Places at rest of all vertices of a body, [BodyArrays::vertex_slot_count] in W as the mesh has them, new vertices included; zeros in
  /// free slots. Precondition: body_index < Frame::topology->bodies.size().
  std::vector<Eigen::Vector3d> RestPositions(size_t body_index) const;

  /// Velocities of all vertices of a body, [BodyArrays::vertex_slot_count * 3] m/s in W; zeros in free slots and of what is quasi-static.
  /// Blocking read.
  absl::StatusOr<std::vector<float>> ReadVolumeVelocities(size_t body_index);
  /// Zones of the tets of a body, [tet slot], as in MaterialsOf; 0 in free slots. Precondition: as RestPositions.
  std::vector<uint16_t> TetZones(size_t body_index) const;

  /// Overwrites positions ([BodyArrays::vertex_slot_count * 3], W) and zeroes velocities of a body: for tests and recovery. Fixed vertices
  /// stay where they are.
  absl::Status WriteVolumePositions(size_t body_index, std::span<const float> positions_m);

  /// Whether an error has left the world in a state that only Reset mends.
  bool has_failed() const;
  /// Present materials of a body by zone; the first is that of the body itself, without a name.
  std::vector<ZoneMaterial> MaterialsOf(size_t body) const;

  const SceneDescription& description() const;
  const std::vector<BodyStatistics>& body_statistics() const;
  const std::vector<BoundarySurface>& surfaces() const;  ///< per body of the description, before any edit; see Frame::topology
  size_t device_bytes() const;                           ///< device memory held
  /// How edits reached the device since the scene was built: as deltas, or in a fresh layout.
  struct EditCounts {
    uint64_t deltas = 0;
    uint64_t rebuilds = 0;
    size_t delta_bytes = 0;  ///< of the newest delta
  };
  EditCounts edit_counts() const;
  uint32_t color_count() const;

 private:
  class Impl;
  explicit World(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace palpate::sim
