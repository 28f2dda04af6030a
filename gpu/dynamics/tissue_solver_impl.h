#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gpu/dynamics/air_drag.h"
#include "gpu/dynamics/coarse_correction.h"
#include "gpu/dynamics/collider_aims.h"
#include "gpu/dynamics/component_shifts.h"
#include "gpu/dynamics/driven_vertices.h"
#include "gpu/dynamics/elastic_energy_sum.h"
#include "gpu/dynamics/nurbs_shells.h"
#include "gpu/dynamics/obstacle_barrier.h"
#include "gpu/dynamics/rigid_blocks.h"
#include "gpu/dynamics/rigid_impacts.h"
#include "gpu/dynamics/state_check.h"
#include "gpu/dynamics/surface_contact.h"
#include "gpu/dynamics/surface_followers.h"
#include "gpu/dynamics/tangle_recovery.h"
#include "gpu/dynamics/tissue_anchors.h"
#include "gpu/dynamics/tissue_buffers.h"
#include "gpu/dynamics/tissue_layout_editor.h"
#include "gpu/dynamics/tissue_loads.h"
#include "gpu/dynamics/tissue_solver.h"
#include "gpu/dynamics/tissue_sweeps.h"
#include "gpu/dynamics/tool_contacts.h"
#include "gpu/primitives/run_writer.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"

namespace palpate::gpu {

/// When the stages of a step began on the device: what a single wait tells, which the end of the step needs anyway.
struct StepClock {
  double begin_ms = 0, solve_ms = 0, forces_ms = 0;

  /// What the device took for stages, and for the last what is left of the time since the step began.
  TissueTimes Times(double since_begin_ms) const {
    TissueTimes times;
    times.detect_ms = std::max(solve_ms - begin_ms, 0.0);
    times.solve_ms = std::max(forces_ms - solve_ms, 0.0);
    times.forces_ms = std::max(since_begin_ms - times.detect_ms - times.solve_ms, 0.0);
    return times;
  }
};

/// What tissue_solver.h hides: the stages of a step, each a class that owns its buffers and kernels, and the order in which they run. The
/// step is in tissue_solver.cc; what stands before the first one in tissue_solver_setup.cc; the state, and how it goes on after an edit, in
/// tissue_solver_state.cc. Stages read TissueBuffers and know of each other only what their calls name.
class TissueSolver::Impl {
 public:
  Impl() : sweeps_(layout_) {}
  /// Of a saved solver, what a layout is made of.
  struct SavedLayout;
  /// `saved`, or else `old`, if given: what this goes on from. `old` is given up: its kernels and working memory are used again.
  absl::Status Init(std::shared_ptr<Queue> queue, const TissueModel& model, const TissueOptions& options,
                    std::span<const ColliderDescription> colliders, std::span<const PlaneObstacle> planes, const TissueTuning& tuning,
                    Impl* old = nullptr, const SavedLayout* saved = nullptr);
  absl::Status SaveState(StateWriter& archive);
  absl::Status LoadState(StateReader& archive);
  SavedLayout LayoutToSave() const;
  /// False: it does not fit, and this must be rebuilt.
  absl::StatusOr<bool> Update(const TissueModel& model, const TissueChange& change, std::span<const TissueVertexState> states);
  size_t delta_bytes() const { return edits_ ? edits_->delta_bytes : 0; }
  absl::StatusOr<std::unique_ptr<Impl>> Rebuilt(const TissueModel& model, std::span<const TissueVertexState> states);
  absl::Status SetPrescribed(std::span<const float> positions_m) { return driven_.SetPrescribed(*queue_, positions_m); }
  absl::Status SetGathered(std::span<const uint32_t> vertices);
  absl::Status SetJointRows(uint32_t joint, const std::array<RigidJointRow, 6>& rows) {
    if (!rigid_ || rigid_->joints() == nullptr) return absl::InvalidArgumentError("the model has no joints");
    return rigid_->joints()->SetRows(joint, rows);
  }
  absl::Status SetJointMount(uint32_t mount, const std::array<double, 3>& center_m, const std::array<double, 4>& rotation,
                             const std::array<double, 3>& force_n);
  void SetWind(const std::array<double, 3>& velocity_m_per_s) { air_.SetWind(velocity_m_per_s); }
  absl::Status SetAnchors(std::span<const TissueAnchor> anchors, uint32_t clip_count);
  absl::StatusOr<TissueStep> Step(std::span<const ColliderTarget> targets, const std::function<void()>& before_tools,
                                  std::vector<double>* residuals);
  absl::StatusOr<TissueStep> Inspect();
  absl::Status Reset();
  absl::Status ReadPositions(std::span<float> positions_m);
  absl::Status WriteState(std::span<const float> positions_m, std::span<const float> velocities);
  absl::Status ReadForces(uint32_t parts, std::span<float> forces_n);
  absl::StatusOr<std::vector<Float4>> ReadBoundForces();
  absl::Status ReadState(std::span<TissueVertexState> states);

  const std::shared_ptr<Queue>& queue() const { return queue_; }
  const TissueLayout& layout() const { return layout_; }
  size_t device_bytes() const;
  double stiffness() const { return params_host_.stiffness_n_per_m; }
  const StepParams& params() const { return params_host_; }

 private:
  // Only with room for edits, which there is after the first one.
  struct Edits {
    TissueLayoutEditor editor;
    RunWriter writer;
    size_t delta_bytes = 0;  // of the newest
  };

  // Set-up.
  absl::Status LayOut(const TissueModel& model, const SavedLayout* saved, bool has_room);
  absl::Status MakeSurface(SurfaceContacts* old, double reach_edge_m);
  absl::Status MakeRigid(const TissueModel& model);
  absl::Status MakeNurbs(const TissueModel& model);
  absl::Status MakeKernels(Impl* old);
  absl::Status BindSurface();
  absl::Status GoOnFrom(Impl& old, std::span<const TissueVertexState> states);

  // A step, in this order; what is optional is what the scene does not have or the step could not certify.
  absl::StatusOr<std::optional<SweptSurfaces>> Predict();
  absl::Status BeginSweeps();
  absl::Status SweepAll(std::optional<SweptSurfaces>& swept, std::vector<double>* residuals);
  bool CanRunAhead(const std::optional<SweptSurfaces>& swept) const;
  absl::Status FinishStep(std::optional<CertifiedSurfaces>& certified);
  absl::StatusOr<std::optional<CertifiedSurfaces>> RunAhead(std::optional<SweptSurfaces>& swept);
  ObstacleScene Obstacles();
  absl::Status Sweep(std::optional<SweptSurfaces>& swept, uint32_t count);
  absl::Status SweepInPhases(std::optional<SweptSurfaces>& swept, uint32_t count);
  absl::Status CorrectNurbs(std::optional<SweptSurfaces>& swept);
  absl::Status FollowTissue(const std::optional<SweptSurfaces>& swept);
  absl::Status PushTissueAgain(std::optional<SweptSurfaces>& swept);
  absl::Status SettleRigid(std::optional<SweptSurfaces>& swept);
  absl::Status SolveToolsAlone();
  absl::Status BindNewPairs();
  absl::Status ApplyLoads();
  absl::Status BeforeSweep(std::optional<SweptSurfaces>& swept);
  absl::StatusOr<std::optional<CertifiedSurfaces>> Certify(std::optional<SweptSurfaces> swept);
  absl::Status CertifyObstacles(std::optional<CertifiedSurfaces>& certified);
  absl::Status EnqueueReports(std::optional<CertifiedSurfaces>& certified);
  absl::Status TakeReports(std::optional<CertifiedSurfaces>& certified);
  absl::Status EnqueueReads();
  absl::StatusOr<TissueStep> Close(bool advance);
  absl::Status SetRestitution(const TissueModel& model);
  std::optional<uint32_t> ImpactBody(uint32_t slot) const;
  struct Impacts {
    std::vector<ImpactContact> contacts;
    std::map<uint32_t, Vector6d> outside;  // RigidImpacts::Apply
  };
  void AddOutside(uint32_t body, const Eigen::Vector3d& point_m, const Eigen::Vector3d& force_n, Impacts* out) const;
  void AddImpact(const SurfaceReport& report, Impacts* out) const;
  void AddImpact(const ContactReport& report, Impacts* out) const;
  Impacts ListImpacts() const;
  absl::Status Bounce(std::span<const RigidBlockState> before);
  absl::Status Settle(const StateSums& sums, TissueStep* step, bool advance);
  absl::Status ForgetRotations();
  absl::Status KeepLastState();
  absl::StatusOr<double> Residual(std::optional<SweptSurfaces>& swept);

  // The state.
  absl::Status SaveBuffers(StateWriter& archive);
  absl::Status LoadBuffers(StateReader& archive);
  absl::Status GiveToSurface();
  absl::Status WriteVelocities(std::vector<Float4> velocities);
  absl::Status ForgetContacts();
  absl::Status UpdateRecovery(const StateSums& sums);
  absl::Status CheckFloats(size_t count) const;
  void Scatter(std::span<const Float4> by_slot, std::span<float> values) const;
  std::vector<Float4> BySlot(std::span<const float> values) const;
  RigidSurroundings Surroundings() const;
  /// Velocity a step before rest in free fall: what makes the first guess after a given state that of free fall, so that a body that
  /// nothing holds falls right from its first step.
  Float4 FallenFromRest() const {
    const StepParams& p = params_host_;
    return {-p.dt_s * p.gravity_x, -p.dt_s * p.gravity_y, -p.dt_s * p.gravity_z, 0.0F};
  }
  bool HasVertex(uint32_t vertex) const { return vertex < layout_.solver_index.size() && layout_.solver_index[vertex] != kNoSolverSlot; }
  absl::Status WriteParams() { return queue_->Write(tissue_.params, std::span<const StepParams>(&params_host_, 1)); }

  std::shared_ptr<Queue> queue_;
  TissueOptions options_;
  TissueTuning tuning_;
  TissueLayout layout_;
  std::unique_ptr<Edits> edits_;  // null: the layout has no room for edits
  StepParams params_host_;
  TissueBuffers tissue_;
  uint64_t steps_ = 0;        // since the last reset
  uint32_t sweep_count_ = 0;  // of the last step

  Kernel predict_;
  AirDrag air_;
  std::vector<float> restitution_;  // [slot]; empty: nothing bounces
  TissueLoads loads_;
  DrivenVertices driven_;
  std::unique_ptr<RigidBlocks> rigid_;              // null: none
  std::unique_ptr<NurbsShells> nurbs_;              // null: none
  SurfaceFollowers followers_;                      // those two
  std::vector<Float4> control_points_;              // of nurbs_, after the newest step
  std::vector<NurbsSupportReport> nurbs_supports_;  // likewise
  std::unique_ptr<SurfaceContacts> surface_;        // null: surfaces do not meet
  uint32_t surface_generation_ = 0;                 // of the arguments bound
  std::vector<SurfaceReport> surface_reports_;
  ToolContacts tools_;
  ColliderAims aims_;
  TissueAnchors anchors_;
  TissueSweeps sweeps_;
  std::unique_ptr<CoarseCorrection> correction_;  // null: none
  ComponentShifts component_shifts_;
  std::unique_ptr<ObstacleBarrier> barrier_;  // null: no obstacles
  StepGate gate_;
  bool runs_ahead_ = false;  // the host enqueues sweeps before it knows what the checks between them find
  struct AheadCheck {
    uint32_t sweep = 0, history = 0;  // before which, and TissueSweeps::history() then
  };
  std::vector<AheadCheck> ahead_;
  uint32_t passing_colliders_ = 0;
  StepClock clock_;
  StateCheck state_check_;
  GatheredPositions gathered_;
  TangleRecovery recovery_;
  std::optional<ElasticEnergySum> energy_;  // if someone asks for it
};

struct TissueSolver::Impl::SavedLayout {
  uint32_t lanes = 0;                      // for which vertices got their slots
  double option_stiffness_n_per_m = 0;     // as the options had it
  float stiffness_n_per_m = 0;             // of contacts, worked out when the scene was made
  std::optional<LayoutSkeleton> skeleton;  // with room for edits: how they left it. Else it follows from the model

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [lane_count, option, stiffness, layout] = *this;
    archive.Enter("TissueSolver");
    archive(lane_count, option, stiffness, layout);
  }
};

}  // namespace palpate::gpu
