#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "gpu/base/state_archive.h"
#include "gpu/base/status.h"
#include "gpu/dynamics/rigid_joints.h"
#include "gpu/dynamics/surface_contact.h"
#include "gpu/dynamics/tissue_layout.h"
#include "gpu/dynamics/tissue_types.h"
#include "gpu/runtime/context.h"
#include "gpu/shared/dynamics_types.h"

namespace palpate::gpu {

/// Parts of the force on a vertex; inertia includes gravity, loads and mass damping.
enum ForceParts : uint32_t {
  kElasticForces = 1,
  kInertialForces = 2,
  kContactForces = 4,
  kAnchorForces = 8,
  kAllForces = 15,
  kPressureForces = 16  ///< of kept volumes alone, which kElasticForces have too
};

/// Wall time of the stages of a step, ms.
struct TissueTimes {
  double detect_ms = 0;
  double solve_ms = 0;  ///< with surfaces that meet: detections between sweeps included
  double forces_ms = 0;
  double readback_ms = 0;
};

/// What a step leaves for the host. The vectors belong to the solver and are valid until its next call.
struct TissueStep {
  uint64_t hash = 0;  ///< of positions and velocities; independent of the solver's vertex order
  double kinetic_energy_j = 0;
  /// Of all tets but shape-matched ones, by the energies of docs/algorithms/tissue.md: 0 at rest, without viscosity, contacts and anchors.
  /// While a mesh recovers, with the softened lambda that acts. Only with TissueOptions::report_energy.
  std::optional<double> elastic_energy_j;
  uint32_t sweeps = 0;  ///< that were made; fewer than TissueOptions::iterations only with a tolerance
  double max_speed_m_per_s = 0;
  uint32_t bad_vertices = 0;  ///< non-finite or absurd (beyond 1e6 m, 1e6 m/s): the step was rolled back
  uint32_t inverted_tets = 0;
  bool recovering = false;                  ///< the mesh was tangled (2 % of the tets inverted) and is softened to find back
  std::span<const ContactReport> contacts;  ///< sorted by (collider, triangle); those with force, and those with a gap below range_m
  std::span<const SurfaceReport> surface_contacts;  ///< pairs of surfaces that push, sorted by (kind, a, b); indices of the caller
  SurfaceStatistics surface;
  std::span<const Collider> colliders;  ///< state after the step
  /// Per collider, after Step: how far it was stopped short so that it did not pass through tissue [m]. A driven one, of where it was told
  /// to go: it aims there in the following steps; a coupled one, of where its forces would have taken it.
  std::span<const double> blocked_m;
  uint32_t passing_colliders = 0;  ///< those whose axis passed through a surface at the start of the step: nothing is certified of them
  std::span<const AnchorReport> anchors;               ///< [anchor] as given to SetAnchors
  std::span<const JointReport> joints;                 ///< [joint of the model]
  std::span<const float> gathered_m;                   ///< positions of the vertices given to SetGathered, [count * 3]
  std::span<const Float4> control_points_m;            ///< xyz of TissueModel::nurbs_shells, shell after shell
  std::span<const NurbsSupportReport> nurbs_supports;  ///< TissueNurbsShell::supports, shell after shell; after Inspect without forces
  TissueTimes times;
};

/// Implicit (backward Euler) dynamics of tetrahedral tissue in contact with capsules and planes on an OpenCL device.
/// Minimises per step  sum_i m_i/(2 dt^2) |x_i - y_i|^2 + elastic + viscous + contact energy  by vertex-block descent; see
/// docs/algorithms/tissue.md. Guarantees: the same calls give the same bits on the same device, driver and tuning; a state that became
/// non-finite is never kept. Not thread-safe. Calls block.
class TissueSolver {
 public:
  static absl::StatusOr<std::unique_ptr<TissueSolver>> Create(std::shared_ptr<Context> context, const TissueModel& model,
                                                              const TissueOptions& options, std::span<const ColliderDescription> colliders,
                                                              std::span<const PlaneObstacle> planes, const TissueTuning& tuning);
  ~TissueSolver();
  TissueSolver(const TissueSolver&) = delete;
  TissueSolver& operator=(const TissueSolver&) = delete;

  /// Which vertices (caller's order) every step reads back.
  absl::Status SetGathered(std::span<const uint32_t> vertices);

  /// Which vertices are held, and where, from the next step on until changed or Reset; those of before are forgotten. Cheap if vertices and
  /// holders are those of before. Errors: InvalidArgument naming the anchor, ResourceExhausted (more than kMaxClips).
  static constexpr uint32_t kMaxClips = kMaxTissueClips;
  absl::Status SetAnchors(std::span<const TissueAnchor> anchors, uint32_t clip_count);

  /// What drives and limits the coordinates of a joint from the next step on, until changed or Reset. Errors: InvalidArgument (no such
  /// joint; a row, by number and field).
  absl::Status SetJointRows(uint32_t joint, const std::array<RigidJointRow, 6>& rows);
  /// Where a mount of joints is at the end of the next step, or is drawn to on its coupling: its centre, its rotation since the start
  /// (x y z w, unit), and what else acts on one with a coupling. To be given before each step. Errors: InvalidArgument.
  absl::Status SetJointMount(uint32_t mount, const std::array<double, 3>& center_m, const std::array<double, 4>& rotation,
                             const std::array<double, 3>& force_n = {});

  /// Velocity of the air from the next step on, at first 0: TissueModel::drag_kg_per_m3.
  void SetWind(const std::array<double, 3>& velocity_m_per_s);

  /// Where the vertices of TissueModel::prescribed go, [count * 3] m in its order, from the next step on until changed. WriteState, Rebuild
  /// and Reset leave them where they are then. They go there as far as they can without passing through anything; ReadPositions tells.
  /// Errors: InvalidArgument (wrong count, not finite).
  absl::Status SetPrescribed(std::span<const float> positions_m);

  /// Advances by dt_s. `targets`: one per collider. `before_tools`, if given, is called once before they are read, when what does not
  /// depend on them is done (the detection at the start): it may bring what they point to up to date, and must not call this solver.
  /// Errors: InvalidArgument (wrong count), Internal and ResourceExhausted (device).
  absl::StatusOr<TissueStep> Step(std::span<const ColliderTarget> targets, const std::function<void()>& before_tools = {});

  /// The current state in the form of a step's result, without advancing.
  absl::StatusOr<TissueStep> Inspect();

  /// Back to the state after Create.
  absl::Status Reset();

  /// Positions of all vertices, caller's order, [vertex_count * 3] m.
  absl::Status ReadPositions(std::span<float> positions_m);

  /// Overwrites positions (caller's order; fixed vertices too) and sets velocities to zero or to `velocities`.
  absl::Status WriteState(std::span<const float> positions_m, std::span<const float> velocities_m_per_s = {});

  /// The state of all vertices, caller's order, [vertex_count].
  absl::Status ReadState(std::span<TissueVertexState> states);

  /// Goes on with another model (tissue was cut) from `states` [vertex_count of the model]. Rigid bodies, driven regions and colliders must
  /// be as they were, and go on as they are; time and contact stiffness too. Nothing is gathered until SetGathered; Reset leads to the rest
  /// state of the new model. After an error it can only be read and destroyed. Errors: those of Create, InvalidArgument for a wrong number
  /// of states.
  absl::Status Rebuild(const TissueModel& model, std::span<const TissueVertexState> states);

  /// As Rebuild, for a model that differs from the one before in `change` alone: only what changed goes to the device, into a layout that
  /// keeps its other entries (TissueLayoutEditor). `model` must list triangle_body and keep the places of vertices and tets that are gone;
  /// vertices that the change does not name keep their state, whatever `states` says of them. False: that does not fit, and Rebuild must be
  /// called next, which leaves room for more edits; so it is at the first edit. Errors: those of Rebuild.
  absl::StatusOr<bool> Update(const TissueModel& model, const TissueChange& change, std::span<const TissueVertexState> states);
  /// Edits that were deltas, and those that laid the model out anew.
  struct EditCounts {
    uint64_t deltas = 0;
    uint64_t rebuilds = 0;
    size_t delta_bytes = 0;  ///< of the newest delta
  };
  const EditCounts& edit_counts() const { return edit_counts_; }

  /// Everything that the next calls depend on, but for what they set anew anyway (gathered vertices, anchors, prescribed positions).
  /// Blocking reads of some buffers. Errors: Internal (device).
  absl::Status SaveState(StateWriter& archive);
  /// A solver that goes on from there. `model` must be that of the saved one when it was saved, all else as it was given to Create. On the
  /// same device, driver and tuning both then do the same, bit for bit. `old` (or null): one of the same context that is given up, whose
  /// queue, kernels and working memory are used again, also if this fails. Errors: those of Create; InvalidArgument (a state that cannot be
  /// of this model).
  static absl::StatusOr<std::unique_ptr<TissueSolver>> Restore(std::shared_ptr<Context> context, const TissueModel& model,
                                                               const TissueOptions& options, std::span<const ColliderDescription> colliders,
                                                               std::span<const PlaneObstacle> planes, const TissueTuning& tuning,
                                                               StateReader& archive, TissueSolver* old = nullptr);

  /// Goes to a saved state as Restore does, if its model is that of now, and it was laid out in the same way: buffers and kernels stay.
  /// False: it was laid out in another way, and nothing has changed. After an error only Rebuild leads on. Errors: those of Restore.
  absl::StatusOr<bool> LoadState(std::string_view state);

  /// Forces on each vertex at the end of the newest step, caller's order, [vertex_count * 3] N: the sum of the chosen parts. kAllForces on
  /// free vertices is the residual of the implicit equation.
  absl::Status ReadForces(uint32_t parts, std::span<float> forces_n);

  /// What control points of NURBS shells that are bound to tissue did to it in the newest sweep, [control point of all shells] N, with
  /// their inertia and gravity; 0 of others.
  absl::StatusOr<std::vector<Float4>> ReadBoundForces();

  /// Root mean square over the free vertices, and control points of NURBS shells, of the residual of the implicit equation [N] after each
  /// sweep of one step: [iterations + 1], the first before any sweep. The step is then kept as usual.
  absl::StatusOr<std::vector<double>> StepMeasuringResidual(std::span<const ColliderTarget> targets);

  const TissueLayout& layout() const;
  uint32_t color_count() const;
  size_t device_bytes() const;
  double contact_stiffness_n_per_m() const;
  const StepParams& step_params() const;  ///< contact law and step of the model as it is now

 private:
  class Impl;
  explicit TissueSolver(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
  EditCounts edit_counts_;
};

}  // namespace palpate::gpu
