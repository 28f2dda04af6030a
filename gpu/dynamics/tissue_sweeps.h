#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gpu/base/state_archive.h"
#include "gpu/base/status.h"
#include "gpu/dynamics/shape_goals.h"
#include "gpu/dynamics/shell_terms.h"
#include "gpu/dynamics/smoothing_domains.h"
#include "gpu/dynamics/surface_contact.h"
#include "gpu/dynamics/tissue_anchors.h"
#include "gpu/dynamics/tissue_buffers.h"
#include "gpu/dynamics/tissue_layout.h"
#include "gpu/dynamics/tissue_layout_editor.h"
#include "gpu/dynamics/tissue_types.h"
#include "gpu/dynamics/tool_contacts.h"
#include "gpu/dynamics/volume_keeper.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"

namespace palpate::gpu {

/// What a launch of sweeps does besides moving the vertices of tissue.
struct SweepParts {
  bool colors = true;
  bool contacts = false;       ///< contacts of tools are linearised before each sweep
  uint32_t pairs = 0;          ///< so are as many pairs of surfaces
  uint32_t colliders = 0;      ///< coupled tools among them move after each
  uint32_t clips = 0;          ///< so do clips
  uint32_t bodies = 0;         ///< so many rigid bodies move before these
  uint32_t body_vertices = 0;  ///< and as many slots follow them
  bool accelerates = false;    ///< then Chebyshev's recurrence carries the moves on
};

/// The sweeps over the vertices of tissue: each vertex in turn, colour by colour, goes to where its block of the step's energy is least
/// (vertex block descent); Chebyshev's recurrence carries the moves on. With what a sweep takes from the positions as they are: rotations
/// of corotated tets, goals of shape-matched bodies, pressures of bodies that keep their volume. And the forces of the same energy.
class TissueSweeps {
 public:
  /// Keeps a reference to `layout`. Errors: InvalidArgument (shape-matched bodies, volumes), ResourceExhausted.
  explicit TissueSweeps(const TissueLayout& layout) : layout_(layout) {}
  absl::Status Init(Queue& queue, const TissueModel& model, const TissueOptions& options, const TissueTuning& tuning, bool surfaces_meet,
                    bool moves_bodies, TissueSweeps* old);
  absl::Status Bind(Queue& queue, const TissueBuffers& tissue, const ToolContacts& tools, const TissueAnchors& anchors);
  absl::Status BindAnchors(const TissueAnchors& anchors);  ///< when their buffer became another
  /// The arguments that change when the lists of pairs grow.
  absl::Status BindSurface(const SurfaceContacts& surface);
  /// What the program was built with.
  const ProgramDefines& defines() const { return defines_; }

  /// After an edit of the layout, whose entries have been written.
  absl::Status Follow(Queue& queue, const TissueBuffers& tissue, const TissueModel& model, const TissueChange& change,
                      const TissueLayoutDelta& delta);
  /// Forgets pressures.
  absl::Status Reset(Queue& queue);
  absl::Status GoOnFrom(Queue& queue, TissueSweeps& old);
  /// Pressures, and rotations of smoothing domains: all else is of a step, or follows from the model and the layout. Blocking.
  absl::Status SaveState(Queue& queue, StateWriter& archive);
  absl::Status LoadState(Queue& queue, StateReader& archive);

  /// Start of a step: strains that viscosity and damping work against.
  absl::Status Begin(Queue& queue, const TissueBuffers& tissue);
  /// Start of the sweeps of a step, from x.
  absl::Status BeginSweeps(Queue& queue);
  /// Where displacements are kept: takes them from positions that were written, all of them.
  absl::Status TakePositions(Queue& queue);
  /// Start of a sweep: rotations of smoothing domains and goals, at x. Those of tets follow their vertices in the sweep.
  absl::Status UpdateForSweep(Queue& queue, const TissueBuffers& tissue);
  /// Before forces are asked for: all rotations and goals, at x.
  absl::Status Update(Queue& queue, const TissueBuffers& tissue);
  /// One sweep, after UpdateForSweep.
  absl::Status Sweep(Queue& queue, const TissueBuffers& tissue);
  /// Whether sweeps can be phases of a launch: the tuning asks for it, and no body keeps its volume.
  bool HasPhases() const { return tuning_.phase_groups > 0 && !volumes_; }
  /// Whether RunPhases can move rigid bodies; phases() is then for RigidBlocks::PreparePhases.
  bool MovesBodies() const { return moves_bodies_ && HasPhases(); }
  Kernel& phases() { return run_phases_; }
  /// Whether UpdateForSweep has something to do.
  bool UpdatesEachSweep() const { return (smoothing_ && layout_.HasRotatedEnergies()) || shapes_ != nullptr; }
  /// `sweeps` sweeps in one launch, with the bits of as many calls of what `parts` names, one after the other. Needs phases; `surface` with
  /// pairs.
  absl::Status RunPhases(Queue& queue, const SweepParts& parts, uint32_t sweeps, const SurfaceContacts* surface);
  /// After a sweep. Two plain ones fill the history; then the usual recurrence.
  absl::Status Accelerate(Queue& queue);
  /// The positions jumped: the history says nothing about them.
  void ForgetHistory();
  /// How far the recurrence has come, to go back to it.
  uint32_t history() const { return plain_; }
  void GoBackTo(uint32_t history) { plain_ = history; }
  /// Between sweeps: moves vertices by share[0] of `moves` [slot], as far as their bounds allow, and the history with them.
  absl::Status MoveAlong(Queue& queue, const DeviceBuffer<Float4>& moves, const DeviceBuffer<float>& share);

  /// Forces [N] at `positions` of the first `count` slots, of which free vertices have the first free_count: the sum of the chosen
  /// ForceParts, w = 1 where a contact or an anchor of these acts; after Update.
  /// With HasStresses the elastic ones are those at the solver's own positions only.
  /// Of bodies that keep their volume: the pressures that were worked out last, see Press.
  absl::Status EnqueueForces(Queue& queue, uint32_t count, uint32_t parts, const DeviceBuffer<Float4>& positions,
                             const DeviceBuffer<Float4>& forces_n);
  /// Where bodies keep their volume: works out their pressures at `positions`.
  absl::Status Press(Queue& queue, const TissueBuffers& tissue, const DeviceBuffer<Float4>& positions, KeptPressure which);
  /// The gradients of kept volumes, at x: by slot, of others 0; w as that of `forces`.
  absl::Status EnqueueVolumeGradients(Queue& queue, const DeviceBuffer<Float4>& forces, const DeviceBuffer<Float4>& gradients);
  /// Whether BeginLine can: no fibres, no smoothed tets, and all energies are PALPATE_STRESS_ENERGIES. What draws shape-matched bodies to
  /// their goals does not count, so they must not move along. Nor do pressures of kept volumes.
  bool HasStresses() const { return layout_.HasStresses(); }
  /// What the elastic and viscous forces do along `moves` [J], by slot, at positions tissue.x + moves, as parts whose sum it is: one for
  /// each of the work-items of `range`. After Update, whose rotations count. Each tet once: a fraction of the work of EnqueueForces. Needs
  /// moves.
  absl::Status BeginLine(Queue& queue, const Range& range, const TissueBuffers& tissue, const DeviceBuffer<Float4>& moves,
                         const DeviceBuffer<float>& sums);
  /// The same at x + share[0] * moves of the last BeginLine, for less.
  absl::Status WorkOnLine(Queue& queue, const Range& range, const DeviceBuffer<float>& share, const DeviceBuffer<float>& sums);
  /// Those at positions x. Blocking.
  absl::Status ReadForces(Queue& queue, const TissueBuffers& tissue, uint32_t parts, std::span<Float4> forces_n);

  bool keeps_volumes() const { return volumes_ != nullptr; }
  /// Null: no body keeps its volume.
  VolumeKeeper* volumes() { return volumes_.get(); }
  /// Null: there are no shells.
  ShellTerms* shells() { return shells_.get(); }
  /// Null: there are no node-smoothed tets.
  SmoothingDomains* smoothing() { return smoothing_.get(); }
  size_t device_bytes() const;

 private:
  absl::Status MakeKernels(Context& context, bool surfaces_meet, TissueSweeps* old);
  absl::Status MakeShapes(Queue& queue, const TissueModel& model);
  bool TouchesShapes(const TissueModel& model, const TissueChange& change, const TissueLayoutDelta& delta) const;
  absl::Status BindLine(const TissueBuffers& tissue);
  absl::Status BindDisplacements(const TissueBuffers& tissue);
  absl::Status FollowPositions(Queue& queue);
  absl::Status BindShapes();
  absl::Status BindVolumes(const TissueBuffers& tissue);
  absl::Status BindSmoothing();
  absl::Status KeepVolumes(Queue& queue, uint32_t color);
  absl::Status BindTopology(const SurfaceContacts& surface);

  const TissueLayout& layout_;
  TissueTuning tuning_;
  ProgramDefines defines_;
  double dt_s_ = 0;
  uint32_t elastic_end_ = 0;                     // one past the last slot of a vertex of a tet or a shell
  bool moves_bodies_ = false;                    // rigid ones move in phases
  bool moves_along_ = false;                     // there are corrections between sweeps
  double spectral_radius_ = 0;                   // of a sweep, estimated; 0: no acceleration
  std::vector<float> omegas_host_;               // of the recurrence, by sweeps since the start or the last jump of the positions
  uint32_t plain_ = 0;                           // as many
  bool has_swept_ = false;                       // in this step
  std::unique_ptr<ShapeGoals> shapes_;           // null: no shape-matched bodies
  std::unique_ptr<VolumeKeeper> volumes_;        // null: no bodies that keep their volume
  std::unique_ptr<ShellTerms> shells_;           // null: no shells
  std::unique_ptr<SmoothingDomains> smoothing_;  // null: no node-smoothed tets
  std::vector<uint8_t> has_goal_;                // [slot], if there are shape-matched bodies
  Kernel start_strain_, extract_rotations_, turn_corners_, solve_color_, vertex_forces_, accelerate_, move_along_, keep_volumes_,
      volume_gradients_;
  Kernel start_tets_, begin_line_, work_on_line_, run_phases_, follow_positions_;
  const DeviceBuffer<Float4>* x_ = nullptr;  // whose displacements are kept; null: of none
  DeviceBuffer<Float4> forces_;
  DeviceBuffer<float> tet_strain_, tet_line_;
  /// Phases as they were last written: with colours, and of tools alone.
  struct PhaseTable {
    std::vector<SweepPhase> host;
    DeviceBuffer<SweepPhase> device;
  };
  std::array<PhaseTable, 2> phases_;
  DeviceBuffer<float> omegas_;
  DeviceBuffer<uint32_t> tickets_;
};

}  // namespace palpate::gpu
