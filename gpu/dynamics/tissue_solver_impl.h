#pragma once

#include <array>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gpu/dynamics/driven_vertices.h"
#include "gpu/dynamics/elastic_energy_sum.h"
#include "gpu/dynamics/obstacle_barrier.h"
#include "gpu/dynamics/rigid_blocks.h"
#include "gpu/dynamics/shape_goals.h"
#include "gpu/dynamics/surface_contact.h"
#include "gpu/dynamics/tangle_recovery.h"
#include "gpu/dynamics/tissue_anchors.h"
#include "gpu/dynamics/tissue_buffers.h"
#include "gpu/dynamics/tissue_layout_editor.h"
#include "gpu/dynamics/tissue_loads.h"
#include "gpu/dynamics/tissue_solver.h"
#include "gpu/dynamics/volume_keeper.h"
#include "gpu/primitives/run_writer.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"

namespace palpate::gpu {

inline Float4 ToFloat4(const std::array<double, 3>& v, double w = 0) {
  return {static_cast<float>(v[0]), static_cast<float>(v[1]), static_cast<float>(v[2]), static_cast<float>(w)};
}

/// How far a driven collider goes after it was cut short.
struct ColliderAim {
  float cut_m = 0;                                          // in the newest step
  std::array<double, 3> behind{};                           // unit: where its target was, seen from it
  double room_m = std::numeric_limits<double>::infinity();  // of the tip that way
  double turn_m = std::numeric_limits<double>::infinity();  // of the other end about the tip
  std::array<double, 3> tip_from{};                         // at the start of the step
  std::array<double, 3> axis_from{};
  bool is_short = false;  // it was not sent where it is wanted
};

/// What tissue_solver.h hides. The step is in tissue_solver.cc; what stands before the first one in tissue_solver_setup.cc; what acts from
/// outside in tissue_solver_drive.cc; the state, and how it goes on after an edit, in tissue_solver_state.cc. Parts of a step that own what
/// they need are classes of their own: anchors, loads, driven vertices, rigid blocks, shape goals, kept volumes, surface contacts, the
/// barrier of obstacles, recovery, the sum of the energy.
class TissueSolver::Impl {
 public:
  absl::Status Init(std::shared_ptr<Queue> queue, const TissueModel& model, const TissueOptions& options,
                    std::span<const ColliderDescription> colliders, std::span<const PlaneObstacle> planes, const TissueTuning& tuning,
                    Impl* old = nullptr);
  /// False: it does not fit, and this must be rebuilt.
  absl::StatusOr<bool> Update(const TissueModel& model, const TissueChange& change, std::span<const TissueVertexState> states);
  size_t delta_bytes() const { return delta_bytes_; }
  absl::StatusOr<std::unique_ptr<Impl>> Rebuilt(const TissueModel& model, std::span<const TissueVertexState> states);
  absl::Status SetPrescribed(std::span<const float> positions_m) { return driven_.SetPrescribed(*queue_, positions_m); }
  absl::Status SetGathered(std::span<const uint32_t> vertices);
  absl::Status SetAnchors(std::span<const TissueAnchor> anchors, uint32_t clip_count);
  absl::StatusOr<TissueStep> Step(std::span<const ColliderTarget> targets, const std::function<void()>& before_tools,
                                  std::vector<double>* residuals);
  absl::StatusOr<TissueStep> Collect(TissueTimes times, bool advance);
  absl::Status Reset();
  absl::Status ReadPositions(std::span<float> positions_m);
  absl::Status WriteState(std::span<const float> positions_m, std::span<const float> velocities);
  absl::Status ReadForces(uint32_t parts, std::span<float> forces_n);
  absl::Status ReadState(std::span<TissueVertexState> states);

  const TissueLayout& layout() const { return layout_; }
  size_t device_bytes() const {
    return device_bytes_ + (surface_ ? surface_->device_bytes() : 0) + (barrier_ ? barrier_->device_bytes() : 0) + anchors_.device_bytes() +
           loads_.device_bytes() + driven_.device_bytes() + (energy_ ? energy_->device_bytes() : 0) +
           (rigid_ ? rigid_->device_bytes() : 0) + (shapes_ ? shapes_->device_bytes() : 0) + (volumes_ ? volumes_->device_bytes() : 0);
  }
  double stiffness() const { return params_host_.stiffness_n_per_m; }
  const StepParams& params() const { return params_host_; }

 private:
  template <typename T>
  absl::Status Fill(DeviceBuffer<T>* buffer, std::span<const T> data, const char* name) {
    if (*buffer) device_bytes_ -= std::max<size_t>(buffer->size_bytes(), sizeof(T));
    PALPATE_ASSIGN_OR_RETURN(*buffer, CreateBufferFrom<T>(*queue_, data, name));
    device_bytes_ += std::max<size_t>(buffer->size_bytes(), sizeof(T));
    return absl::OkStatus();
  }
  template <typename T>
  absl::Status Make(DeviceBuffer<T>* buffer, size_t count, const char* name) {
    if (*buffer) device_bytes_ -= std::max<size_t>(buffer->size_bytes(), sizeof(T));
    PALPATE_ASSIGN_OR_RETURN(*buffer, DeviceBuffer<T>::Create(queue_->context(), count, name));
    device_bytes_ += std::max<size_t>(buffer->size_bytes(), sizeof(T));
    return queue_->Zero(*buffer);
  }
  absl::Status MakeKernels(Impl* old);
  absl::Status Bind();
  absl::Status BindSurface();
  absl::Status BindAnchors();
  absl::Status MakeShapes(const TissueModel& model);
  bool TouchesShapes(const TissueModel& model, const TissueChange& change, const TissueLayoutDelta& delta) const;
  absl::Status BindShapes();
  absl::Status BindVolumes();
  absl::Status KeepVolumes(uint32_t color);
  absl::Status UpdateFollowed();
  absl::Status SolveHolders();
  absl::Status ForgetContacts();
  absl::Status WriteDelta(const TissueLayoutDelta& delta, std::span<const TissueVertexState> states);
  absl::Status ShiftPieces();
  absl::Status Sweep();
  void Aim(std::span<const ColliderTarget> targets);
  absl::Status CertifyObstacles(bool certified);
  void NoteBlocked(std::span<const ColliderTarget> targets);
  absl::StatusOr<double> Residual();
  absl::Status CheckFloats(size_t count) const;
  void ScatterScratch(std::span<float> values) const;
  absl::Status MakeRigid(const TissueModel& model);
  absl::Status GoOnFrom(Impl& old, std::span<const TissueVertexState> states);
  RigidSurroundings Surroundings() const;
  /// Velocity a step before rest in free fall: what makes the first guess after a given state that of free fall, so that a body that
  /// nothing holds falls right from its first step.
  Float4 FallenFromRest() const {
    const StepParams& p = params_host_;
    return {-p.dt_s * p.gravity_x, -p.dt_s * p.gravity_y, -p.dt_s * p.gravity_z, 0.0F};
  }
  bool HasVertex(uint32_t vertex) const { return vertex < layout_.solver_index.size() && layout_.solver_index[vertex] != kNoTissueVertex; }
  Range Vertices() const { return {layout_.vertex_count, 0}; }
  Range Partials() const { return {tuning_.partials, tuning_.partials % 64 == 0 ? 64U : 1U}; }  // exactly as many, whatever the device

  absl::Status UpdateRecovery(const TangleRecovery::Counts& counts);
  absl::Status WriteParams() { return queue_->Write(tissue_.params, std::span<const StepParams>(&params_host_, 1)); }

  std::shared_ptr<Queue> queue_;
  TissueLayout layout_;
  std::unique_ptr<TissueLayoutEditor> editor_;  // null: the layout has no room for edits
  std::optional<RunWriter> writer_;             // likewise
  size_t delta_bytes_ = 0;
  TissueOptions options_;
  TissueTuning tuning_;
  StepParams params_host_;
  ProgramDefines defines_;
  std::vector<ColliderDescription> collider_descriptions_;
  std::vector<PlaneObstacle> plane_obstacles_;
  std::vector<Float4> rest_positions_;
  std::vector<Collider> initial_colliders_;
  size_t device_bytes_ = 0;

  TissueBuffers tissue_;
  DeviceBuffer<Float4> x_before_, x_before2_;
  DeviceBuffer<uint32_t> triangle_colliders_;
  DeviceBuffer<ToolContact> contacts_;
  DeviceBuffer<Collider> colliders_;
  DeviceBuffer<Float4> targets_;
  DeviceBuffer<PlaneObstacle> planes_;
  DeviceBuffer<uint32_t> list_, report_count_, gathered_index_;
  DeviceBuffer<ContactReport> reports_;
  DeviceBuffer<StepPartial> partials_;
  DeviceBuffer<float> gathered_;
  DeviceBuffer<Float4> forces_;

  Kernel predict_, start_strain_, extract_rotations_, solve_color_, vertex_forces_, accelerate_, move_colliders_, find_contacts_,
      list_contacts_, update_contacts_, solve_colliders_, finish_colliders_, report_contacts_, finish_step_, inspect_state_,
      gather_positions_, piece_sums_, piece_shares_, keep_volumes_;

  std::vector<Float4> targets_host_;
  std::vector<ContactReport> reports_host_;
  std::vector<StepPartial> partials_host_;
  std::vector<Collider> colliders_host_;
  std::vector<float> gathered_host_;
  uint32_t gathered_count_ = 0;
  std::vector<Float4> scratch_;
  std::unique_ptr<RigidBlocks> rigid_;        // null: none
  std::unique_ptr<ShapeGoals> shapes_;        // null: no shape-matched bodies
  std::unique_ptr<VolumeKeeper> volumes_;     // null: no bodies that keep their volume
  std::vector<uint8_t> has_goal_;             // [slot], if there are
  std::unique_ptr<SurfaceContacts> surface_;  // null: surfaces do not meet
  uint32_t surface_generation_ = 0;           // of the arguments bound
  std::unique_ptr<ObstacleBarrier> barrier_;  // null: no obstacles
  uint32_t passing_colliders_ = 0;
  std::vector<ColliderAim> aims_;  // per collider
  std::vector<double> blocked_m_;  // per collider, in the newest step
  std::vector<SurfaceReport> surface_reports_;
  DeviceBuffer<float> piece_sums_buffer_;
  uint64_t steps_ = 0;              // since the last reset
  bool has_swept_ = false;          // in this step
  bool was_given_tangled_ = false;  // positions came from outside with many inverted tets, and have not recovered yet
  bool any_coupled_ = false;
  TissueAnchors anchors_;
  TissueLoads loads_;
  DrivenVertices driven_;
  std::optional<ElasticEnergySum> energy_;  // if someone asks for it
  TangleRecovery recovery_;
};

}  // namespace palpate::gpu
