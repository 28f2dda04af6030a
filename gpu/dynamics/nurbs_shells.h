#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "gpu/base/state_archive.h"
#include "gpu/base/status.h"
#include "gpu/dynamics/air_drag.h"
#include "gpu/dynamics/nurbs_bindings.h"
#include "gpu/dynamics/nurbs_shell_correction.h"
#include "gpu/dynamics/nurbs_shell_layout.h"
#include "gpu/dynamics/nurbs_shell_terms.h"
#include "gpu/dynamics/surface_contact.h"
#include "gpu/dynamics/surface_follower.h"
#include "gpu/dynamics/tissue_anchors.h"
#include "gpu/dynamics/tissue_buffers.h"
#include "gpu/dynamics/tissue_layout.h"
#include "gpu/dynamics/tissue_loads.h"
#include "gpu/dynamics/tissue_types.h"
#include "gpu/dynamics/tool_contacts.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/nurbs_shell_state.h"

namespace palpate::gpu {

/// Thin deformable NURBS bodies in the implicit step of TissueSolver. Their unknowns are control points; vertices on the surface, which are
/// what touches, are means of these with the weights of the basis functions. A step minimises
///
///     sum_j m_j / (2 h^2) |q_j - y_j|^2 + energy of the shell (q) + contact energy (x(q)),
///
/// where m_j are the row sums of the mass matrix. A sweep goes through the control points colour by colour, those of one colour having no
/// vertex and no Gauss point in common; each takes a Newton step on its three coordinates. Contacts are taken at the vertices once a
/// sweep, with blocks that bound their energy while all vertices move, and followed along these. So a contact's force f at a vertex acts on
/// control point j by the value of its basis function: w_j f.
///
/// A control point goes only as far as the planes of all its vertices allow (displacement_bounds.clh); so certified positions stay
/// certified. What a filter takes back of vertices it takes back of the control points that move them.
/// docs/algorithms/nurbs_shells.md.
///
/// Thread: one at a time. Determinism: same input, same bits.
class NurbsShells final : public SurfaceFollower {
 public:
  /// Precondition: the layout of these shells succeeded. `before_rest_m_per_s`: the velocity a step before rest in free fall. Errors:
  /// those of NurbsShellTerms::Init.
  static absl::StatusOr<std::unique_ptr<NurbsShells>> Create(Queue& queue, std::span<const TissueNurbsShell> shells,
                                                             const TissueLayout& layout, double dt_s, const Float4& before_rest_m_per_s);

  /// `defines`: of tissue.cl.
  absl::Status MakeKernels(Context& context, const ProgramDefines& defines);
  absl::Status Bind(const TissueBuffers& tissue, const ToolContacts& tools, const TissueAnchors& anchors);
  absl::Status BindAnchors(const TissueAnchors& anchors);
  absl::Status BindSurface(const SurfaceContacts& surface);

  uint32_t control_count() const { return static_cast<uint32_t>(states_host_.size()); }
  /// Whether couplings hold patches together, or rims.
  bool is_coupled() const { return is_coupled_; }
  /// [shell + 1] where the control points of each begin.
  std::span<const uint32_t> control_begins() const { return control_begins_; }
  size_t device_bytes() const { return device_bytes_; }

  /// Back to the state after Create; the vertices as well.
  absl::Status Reset(Queue& queue, const DeviceBuffer<Float4>& x);
  /// Takes over the motion of the same shells, whose vertices may have had other places.
  absl::Status GoOnFrom(Queue& queue, NurbsShells& old);
  /// Where control points are, and how they move. Blocking.
  absl::Status SaveState(Queue& queue, StateWriter& archive);
  absl::Status LoadState(Queue& queue, StateReader& archive);
  /// Sets control points from vertices, [slot], and velocities [slot] (or empty: at rest): least squares; x follows. Host work; for
  /// restoring states.
  absl::Status Fit(Queue& queue, std::span<const Float4> positions_m, std::span<const Float4> velocities_m_per_s,
                   const DeviceBuffer<Float4>& x);

  /// Start of a step that ends at `end_s` since the last reset: targets, and first guess of control points and vertices. Enqueues only,
  /// like all calls below.
  absl::Status Predict(Queue& queue, const DeviceBuffer<StepParams>& params, const DeviceBuffer<Float4>& x, double end_s);
  /// After that: what the air gives control points in the step.
  absl::Status PushByAir(Queue& queue, const TissueBuffers& tissue, AirDrag& air);
  /// One Newton step of each control point, colour by colour.
  absl::Status Sweep(Queue& queue, const TissueBuffers& tissue, TissueLoads& loads);
  /// Between sweeps: all control points of a shell move together towards where nothing is left of their forces, as far as planes allow.
  /// `surface`: null where surfaces do not meet. Not of shells of more than some hundred control points.
  /// `relinearize`: makes contacts what they are at the newest positions, which may be given up again (is_trial); without it a correction
  /// would run into what it does not touch yet.
  using Relinearize = std::function<absl::Status(bool is_trial)>;
  absl::Status Correct(Queue& queue, const TissueBuffers& tissue, TissueLoads& loads, const SurfaceContacts* surface,
                       const Relinearize& relinearize);
  // For control points that tissue carries (NurbsBindings).
  bool is_bound() const { return bindings_ != nullptr; }
  /// After an edit of the layout. False: other control points are bound now, so that the shells must be made anew.
  absl::StatusOr<bool> SetBound(Queue& queue, std::span<const TissueNurbsShell> shells, const TissueLayout& layout);
  /// Bound control points go to where the tissue has them, as far as planes allow. `surface`: null where surfaces do not meet.
  absl::Status FollowTissue(Queue& queue, const TissueBuffers& tissue, const SurfaceContacts* surface);
  /// Before a sweep of the tissue, when what touches the shells is known: what they do to it goes into its inertial targets.
  absl::Status PushTissue(Queue& queue, const TissueBuffers& tissue, TissueLoads& loads);
  /// What each did to the tissue in the newest sweep, [control point of all shells] N; 0 where it is not bound. Blocking.
  absl::StatusOr<std::vector<Float4>> ReadBoundForces(Queue& queue);
  double MassAt(size_t slot) const { return mass_kg_[slot]; }  ///< [kg] of a control point, 0 where it is held

  // For joints (NurbsJointFrames).
  uint32_t SlotOf(uint32_t control) const {
    return elastic_.control_slot[control];
  }                                                                                  ///< of a control point, all shells one after the other
  const DeviceBuffer<Float4>& control() const { return control_; }                   ///< [slot] m
  const DeviceBuffer<ControlPointState>& control_states() const { return states_; }  ///< [slot]
  const DeviceBuffer<uint32_t>& support_begins() const { return support_begins_; }   ///< [slot + 1] in support()
  const DeviceBuffer<uint32_t>& support() const { return support_; }                 ///< places in slots()
  const DeviceBuffer<uint32_t>& slots() const { return slots_; }                     ///< [vertex]
  const DeviceBuffer<Float4>& kept() const { return kept_; }                         ///< [vertex] m, before Go
  /// Control points go their moves [slot], and vertices with them; `slot_part` [slot]: 0, or 0xffffffff for those that stay.
  absl::Status Go(Queue& queue, const DeviceBuffer<uint32_t>& slot_part, const DeviceBuffer<Float4>& moves, const DeviceBuffer<Float4>& x);
  /// After Go: back to where they were.
  absl::Status Undo(Queue& queue, const DeviceBuffer<Float4>& x);
  /// After Go: as far as planes allow, one control point after the other.
  absl::Status HoldBack(Queue& queue, const DeviceBuffer<Float4>& detected, const DeviceBuffer<float>& clear_m,
                        const DeviceBuffer<uint32_t>& entry_begins, const DeviceBuffer<Float4>& planes, const DeviceBuffer<Float4>& x,
                        const DeviceBuffer<uint8_t>& touched);
  /// Forces [N] that are left at control points that are free, contacts being those of the newest positions: the sum of squares, and how
  /// many there are. Blocking; for tests of convergence.
  struct LeftForces {
    double sum_sq_n2 = 0;
    size_t count = 0;
  };
  absl::StatusOr<LeftForces> ReadForces(Queue& queue, const TissueBuffers& tissue, TissueLoads& loads);
  /// See NurbsShellTerms::Energy.
  absl::StatusOr<double> Energy(Queue& queue, uint32_t partials, bool in_double) {
    return terms_->Energy(queue, control_, partials, in_double);
  }
  /// At the end of a step, before ReadStates: what supported control points do to what holds them where they are now, contacts being
  /// those of the newest sweep.
  absl::Status FindSupportForces(Queue& queue, const TissueBuffers& tissue, TissueLoads& loads);
  /// End of a step that is kept.
  absl::Status Finish(Queue& queue, const DeviceBuffer<StepParams>& params);

  // SurfaceFollower.
  bool MovesAsWhole(uint32_t /*slot*/) const override { return false; }
  bool ReadsSweepStart() const override { return true; }
  bool IsNeverCut(uint32_t slot) const override { return slot < is_vertex_.size() && is_vertex_[slot] != 0; }
  FollowedWays ways() const override { return {}; }
  absl::Status Detected(Queue& queue) override;
  absl::Status FilterBegins(Queue& queue) override;
  absl::Status TakeBack(Queue& queue, bool from_start, const DeviceBuffer<float>& shares, const DeviceBuffer<uint32_t>& entry_begins,
                        const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched) override;
  absl::Status TakeBackFromStart(Queue& queue, const DeviceBuffer<float>& shares, const DeviceBuffer<Float4>& x,
                                 const DeviceBuffer<uint8_t>& touched) override;
  absl::Status RollBack(Queue& queue) override;
  absl::Status Bound(Queue& queue, const DeviceBuffer<uint32_t>& vertex_groups, const DeviceBuffer<float>& reaches,
                     const DeviceBuffer<Float4>& detected, const DeviceBuffer<float>& clear_m, const DeviceBuffer<uint32_t>& entry_begins,
                     const DeviceBuffer<Float4>& bounds, const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched) override;

  /// Where control points are and how they move at the end of the newest step, shell after shell. Blocking.
  absl::Status ReadStates(Queue& queue);
  std::vector<Float4> ControlPoints() const;                                  ///< as read last; xyz, shell after shell in the models' order
  std::span<const ControlPointState> states() const { return states_host_; }  ///< as read last, in an order of their own
  bool IsFinite() const;                                                      ///< as read last, and within 1e6 m and m/s
  /// As read last: [support], shell after shell. `has_forces`: FindSupportForces was called in this step, which was kept; else there are
  /// places alone. `gravity_m_per_s2`, `dt_s`: of the step.
  std::vector<NurbsSupportReport> SupportReports(bool has_forces, const std::array<double, 3>& gravity_m_per_s2, double dt_s) const;

 private:
  NurbsShells() = default;
  absl::Status Upload(Queue& queue, std::span<const TissueNurbsShell> shells, const TissueLayout& layout, double dt_s,
                      const Float4& before_rest_m_per_s);
  absl::Status Place(Queue& queue, const DeviceBuffer<Float4>& x);
  absl::Status Keep(Queue& queue, const DeviceBuffer<Float4>& x, const DeviceBuffer<Float4>& kept);
  absl::Status Put(Queue& queue, const DeviceBuffer<Float4>& kept, const DeviceBuffer<Float4>& x);
  absl::Status FindContacts(Queue& queue, const TissueBuffers& tissue, TissueLoads& loads);
  absl::Status FindForces(Queue& queue, const TissueBuffers& tissue, TissueLoads& loads, const Relinearize& relinearize, bool is_trial,
                          const DeviceBuffer<Float4>& left_n);
  absl::Status GoAlong(Queue& queue, bool has_share, const DeviceBuffer<Float4>& x);
  absl::Status GoAlong(Queue& queue, const DeviceBuffer<uint32_t>& slot_part, const BufferView<float>& share,
                       const DeviceBuffer<Float4>& moves, const DeviceBuffer<Float4>& x);
  absl::Status MoveTowardsGoals(Queue& queue, const DeviceBuffer<Float4>& detected, const DeviceBuffer<float>& clear_m,
                                const DeviceBuffer<uint32_t>& entry_begins, const DeviceBuffer<Float4>& bounds,
                                const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched);
  absl::Status TakeStates(Queue& queue, std::vector<Float4> control_m, std::vector<ControlPointState> states);
  Range Controls() const { return {states_host_.size(), control_group_}; }
  Range Vertices() const { return {slots_host_.size(), control_group_}; }
  Range Shells() const { return {(control_begins_.size() - 1) * team_ * teams_, team_ * teams_}; }

  uint32_t control_group_ = 1;  // work-items of a group where each has a control point or a vertex
  uint32_t team_ = 1;           // of a control point
  uint32_t teams_ = 1;          // of a shell in a sweep
  size_t device_bytes_ = 0;
  std::vector<uint32_t> control_begins_;
  NurbsShellLayout elastic_;          // gives control points their slots
  std::vector<uint32_t> slots_host_;  // [vertex]
  std::vector<uint8_t> is_vertex_;    // [slot of all vertices]
  std::vector<uint32_t> begins_host_, controls_host_;
  std::vector<float> weights_host_;
  std::vector<Float4> initial_control_m_, control_host_;
  std::vector<ControlPointState> initial_, states_host_;
  const DeviceBuffer<Float4>* x_ = nullptr;  // of the solver
  bool meets_ = false;                       // surfaces do
  std::unique_ptr<NurbsShellTerms> terms_;
  bool is_coupled_ = false;  // a Gauss point is of a coupling
  NurbsShellCorrection correction_;
  std::unique_ptr<NurbsBindings> bindings_;     // null: tissue carries none
  std::vector<TissueNurbsShell::Bound> bound_;  // shell after shell
  std::vector<double> mass_kg_;                 // [slot]; 0: held
  // Supports, one after the other: their control points, and of each its mass and mass damping.
  struct Supported {
    uint32_t slot = 0;
    double mass_kg = 0, damping_per_s = 0;
  };
  std::vector<Supported> supported_;
  std::vector<uint32_t> support_ends_;  // [support]
  std::vector<Float4> support_forces_host_;
  std::vector<TissueDrivenRegion> regions_;
  std::vector<DrivenPose> poses_host_;
  Kernel contacts_, predict_, drive_, vertex_velocities_, push_by_air_, place_, keep_, put_, to_detection_, detected_kernel_, goal_,
      take_back_, follow_back_, sweep_, move_towards_, find_forces_, bound_forces_, go_along_, follow_along_, finish_, roll_back_;
  DeviceBuffer<Float4> control_;                 // [slot of a control point]; w is not used
  DeviceBuffer<ControlPointState> states_;       // likewise
  DeviceBuffer<UInt2> driven_;                   // slot of a control point, region
  DeviceBuffer<Float4> driven_rest_;             // of these
  DeviceBuffer<DrivenPose> poses_;               // [region]
  DeviceBuffer<uint32_t> order_, shell_colors_;  // see nurbs_sweep
  DeviceBuffer<uint32_t> support_begins_, support_;
  DeviceBuffer<float> support_weights_;
  DeviceBuffer<uint32_t> slots_, begins_, controls_;  // [vertex]
  DeviceBuffer<float> weights_;
  DeviceBuffer<Float4> start_, detected_;      // [vertex] m
  DeviceBuffer<Float4> at_, forces_, blocks_;  // [vertex], [vertex][2]: contacts as they were linearised
  DeviceBuffer<Float4> next_;                  // [vertex][2] see next_contact
  DeviceBuffer<Float4> pushes_;                // [vertex] N, of loads
  DeviceBuffer<uint32_t> supported_slots_;
  DeviceBuffer<Float4> support_forces_;  // [supported] N
  // Of a correction: where vertices and control points were, and the forces that were left there and where it leads.
  DeviceBuffer<Float4> kept_, saved_, left_, left_there_;
};

}  // namespace palpate::gpu
