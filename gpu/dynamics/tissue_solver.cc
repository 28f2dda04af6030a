#include "gpu/dynamics/tissue_solver.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>

#include "gpu/dynamics/obstacle_barrier.h"
#include "gpu/dynamics/rigid_blocks.h"
#include "gpu/dynamics/shape_goals.h"
#include "gpu/dynamics/surface_contact.h"
#include "gpu/dynamics/tissue_layout_editor.h"
#include "gpu/primitives/run_writer.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"

namespace palpate::gpu {

namespace kernels {
extern const KernelSource surface_contact;
extern const KernelSource tissue;
}  // namespace kernels

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kPlaneContact = 0xffffffffU;
constexpr float kStiffening = 10.0F;
constexpr double kSlipSpeed_m_per_s = 0.001;  // below it friction is viscous
// Recovery of a tangled mesh, see docs/algorithms/tissue.md: begins when this share of the tets is inverted, softens volume changes to
// those of a Poisson ratio of 0.3, ends when no tet was inverted or strained beyond 1 for a while, or after a time limit.
constexpr double kTangledShare = 0.02;
constexpr float kRecoveryLambdaCap = 1.5F;
constexpr double kRecoveryCalm_s = 0.25;
constexpr double kRecoveryLimit_s = 20;
constexpr double kToolContactRatio = 20;  // a coupled tool's contacts are at most this much stiffer than what drives it
constexpr uint32_t kToolSweeps = 8;       // of the tools alone, before those of tissue and tools
constexpr uint32_t kShiftPeriod = 3;      // sweeps between moves of whole bodies
constexpr uint32_t kMinCheckPeriod = 4;   // sweeps between looks at how far surfaces moved
constexpr uint32_t kMaxColliders = 32;    // bits of a triangle's collider mask
// Room that is left for edits once there was one: a fresh layout, which costs as much as some hundred deltas, comes after as many at least.
constexpr TissueSlack kEditSlack = {.share = 0.25, .least = 32, .spare_colors = 4};
constexpr int kCertifyTurns = 3;  // of obstacles and surfaces, each of which may undo what the other found safe
// A driven tool that was cut short aims no farther beyond what it reached than this many times that way, and this share of the margin: so
// tissue that cannot yield settles against where the tool is and not against where it is wanted.
constexpr double kAimGrowth = 2;
constexpr double kAimShare = 0.25;

Float4 ToFloat4(const std::array<double, 3>& v, double w = 0) {
  return {static_cast<float>(v[0]), static_cast<float>(v[1]), static_cast<float>(v[2]), static_cast<float>(w)};
}

double MillisecondsSince(Clock::time_point* mark) {
  const Clock::time_point now = Clock::now();
  const double ms = std::chrono::duration<double, std::milli>(now - *mark).count();
  *mark = now;
  return ms;
}

std::array<double, 3> ToArray(const Float4& v) { return {v.x, v.y, v.z}; }

double Distance(const std::array<double, 3>& a, const std::array<double, 3>& b) {
  return std::hypot(b[0] - a[0], b[1] - a[1], b[2] - a[2]);
}

/// How far b is beyond a along n.
double Along(const std::array<double, 3>& n, const std::array<double, 3>& a, const std::array<double, 3>& b) {
  return n[0] * (b[0] - a[0]) + n[1] * (b[1] - a[1]) + n[2] * (b[2] - a[2]);
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

double MeanRigidMass(const TissueModel& model) {
  if (model.rigid.empty()) return 0;
  double sum = 0;
  for (const TissueRigidBody& rigid : model.rigid) sum += rigid.mass_kg;
  return sum / static_cast<double>(model.rigid.size());
}

/// Adds the motion of rigid bodies to what the kernels summed over vertices of tissue.
void AddRigid(std::span<const RigidBlockState> states, TissueStep* step) {
  for (const RigidBlockState& state : states) {
    const Float4& v = state.velocity;
    const Float4& l = state.momentum;
    const double speed_sq = static_cast<double>(v.x) * v.x + static_cast<double>(v.y) * v.y + static_cast<double>(v.z) * v.z;
    // Momentum in frame B: rotated by the inverse of the pose.
    const Float4& q = state.rotation;
    const double tx = 2 * (-static_cast<double>(q.y) * l.z + static_cast<double>(q.z) * l.y);
    const double ty = 2 * (-static_cast<double>(q.z) * l.x + static_cast<double>(q.x) * l.z);
    const double tz = 2 * (-static_cast<double>(q.x) * l.y + static_cast<double>(q.y) * l.x);
    const double bx = l.x + q.w * tx - q.y * tz + q.z * ty;
    const double by = l.y + q.w * ty - q.z * tx + q.x * tz;
    const double bz = l.z + q.w * tz - q.x * ty + q.y * tx;
    step->kinetic_energy_j +=
        (state.center.w * speed_sq + bx * bx / state.inertia.x + by * by / state.inertia.y + bz * bz / state.inertia.z) / 2;
    step->max_speed_m_per_s = std::max(step->max_speed_m_per_s, std::sqrt(speed_sq));
    for (const float value : {v.x, v.y, v.z, l.x, l.y, l.z}) {
      step->hash = (step->hash ^ std::bit_cast<uint32_t>(value)) * 0x9e3779b97f4a7c15ULL;
      step->hash ^= step->hash >> 29;
    }
  }
}

}  // namespace

TissueTuning TissueTuning::For(const DeviceInfo& device) {
  if (device.is_cpu) return {.lanes = 8, .team = 1, .group = 8, .list_group = 1, .shape_group = 1, .partials = 4 * device.compute_units};
  return {.lanes = 1, .team = 8, .group = 64, .list_group = 256, .shape_group = 64, .partials = 1024};
}

class TissueSolver::Impl {
 public:
  absl::Status Init(std::shared_ptr<Queue> queue, const TissueModel& model, const TissueOptions& options,
                    std::span<const ColliderDescription> colliders, std::span<const PlaneObstacle> planes, const TissueTuning& tuning,
                    Impl* old = nullptr);
  /// False: it does not fit, and this must be rebuilt.
  absl::StatusOr<bool> Update(const TissueModel& model, const TissueChange& change, std::span<const TissueVertexState> states);
  size_t delta_bytes() const { return delta_bytes_; }
  absl::StatusOr<std::unique_ptr<Impl>> Rebuilt(const TissueModel& model, std::span<const TissueVertexState> states);
  absl::Status SetGathered(std::span<const uint32_t> vertices);
  absl::Status SetAnchors(std::span<const TissueAnchor> anchors, uint32_t clip_count);
  absl::Status SetPrescribed(std::span<const float> positions_m);
  absl::StatusOr<TissueStep> Step(std::span<const ColliderTarget> targets, std::vector<double>* residuals);
  absl::StatusOr<TissueStep> Collect(TissueTimes times, bool advance);
  absl::Status Reset();
  absl::Status ReadPositions(std::span<float> positions_m);
  absl::Status WriteState(std::span<const float> positions_m, std::span<const float> velocities);
  absl::Status ReadForces(uint32_t parts, std::span<float> forces_n);
  absl::Status ReadState(std::span<TissueVertexState> states);

  const TissueLayout& layout() const { return layout_; }
  size_t device_bytes() const {
    return device_bytes_ + (surface_ ? surface_->device_bytes() : 0) + (barrier_ ? barrier_->device_bytes() : 0) +
           (rigid_ ? rigid_->device_bytes() : 0) + (shapes_ ? shapes_->device_bytes() : 0);
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
  absl::Status UpdateFollowed();
  absl::Status SolveHolders();
  absl::Status Drive();
  absl::Status HoldPrescribed(std::span<const Float4> positions);
  absl::Status MakeLoads(const TissueModel& model);
  absl::Status ChooseLoads();
  absl::Status MakeDriven(const TissueModel& model);
  absl::Status ForgetContacts();
  absl::Status WriteDelta(const TissueLayoutDelta& delta, std::span<const TissueVertexState> states);
  absl::Status ApplyLoads();
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

  absl::Status UpdateRecovery(const TissueStep& step);
  absl::Status StartRecovery();

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

  DeviceBuffer<StepParams> params_;
  DeviceBuffer<Float4> x_, x_start_, y_, velocity_, velocity_before_, x_before_, x_before2_;
  DeviceBuffer<float> mass_, mass_damping_;
  DeviceBuffer<UInt2> block_range_, vertex_triangle_range_;
  DeviceBuffer<uint32_t> original_index_, block_vertex_, corner_index_;
  DeviceBuffer<float> corner_real_, corner_strain_;
  DeviceBuffer<UInt4> tets_, triangles_;
  DeviceBuffer<Float4> tet_rest_, rotations_;
  DeviceBuffer<uint32_t> vertex_triangles_, triangle_colliders_;
  DeviceBuffer<ToolContact> contacts_;
  DeviceBuffer<Collider> colliders_;
  DeviceBuffer<Float4> targets_;
  DeviceBuffer<PlaneObstacle> planes_;
  DeviceBuffer<uint32_t> anchor_begin_;  // [vertex_count + 1]
  DeviceBuffer<Anchor> anchors_;         // sorted by vertex
  DeviceBuffer<AnchorReport> anchor_reports_;
  DeviceBuffer<uint8_t> touched_;
  DeviceBuffer<uint32_t> list_, report_count_, gathered_index_;
  DeviceBuffer<ContactReport> reports_;
  DeviceBuffer<StepPartial> partials_;
  DeviceBuffer<float> gathered_;
  DeviceBuffer<Float4> forces_;

  Kernel predict_, start_strain_, extract_rotations_, solve_color_, vertex_forces_, accelerate_, move_colliders_, find_contacts_,
      list_contacts_, update_contacts_, solve_colliders_, finish_colliders_, report_contacts_, finish_step_, inspect_state_,
      gather_positions_, drive_vertices_, prescribe_vertices_, move_driven_, piece_sums_, solve_clips_, report_anchors_, apply_loads_;

  std::vector<Float4> targets_host_;
  std::vector<ContactReport> reports_host_;
  std::vector<StepPartial> partials_host_;
  std::vector<Collider> colliders_host_;
  std::vector<Anchor> anchors_host_;  // as on the device
  std::vector<uint32_t> anchor_begin_host_;
  std::vector<uint32_t> anchor_place_;  // of each of the caller's
  std::vector<AnchorReport> anchor_reports_host_, anchor_reports_sorted_;
  uint32_t clip_count_ = 0;
  std::vector<float> gathered_host_;
  uint32_t gathered_count_ = 0;
  uint32_t driven_count_ = 0;
  std::vector<Float4> scratch_;
  std::unique_ptr<RigidBlocks> rigid_;        // null: none
  std::unique_ptr<ShapeGoals> shapes_;        // null: no shape-matched bodies
  std::vector<uint8_t> has_goal_;             // [slot], if there are
  std::unique_ptr<SurfaceContacts> surface_;  // null: surfaces do not meet
  uint32_t surface_generation_ = 0;           // of the arguments bound
  std::unique_ptr<ObstacleBarrier> barrier_;  // null: no obstacles
  uint32_t passing_colliders_ = 0;
  std::vector<ColliderAim> aims_;  // per collider
  std::vector<double> blocked_m_;  // per collider, in the newest step
  std::vector<SurfaceReport> surface_reports_;
  std::vector<TissueDrivenRegion> driven_;
  std::vector<DrivenPose> driven_poses_host_;
  DeviceBuffer<uint32_t> driven_vertices_, driven_regions_;
  DeviceBuffer<DrivenPose> driven_poses_;
  DeviceBuffer<Float4> prescribed_;  // targets of the last ones of driven_vertices_
  std::vector<Float4> prescribed_host_;
  DeviceBuffer<Float4> rest_;
  std::vector<TissueLoad> loads_;
  std::vector<std::vector<std::pair<uint32_t, float>>> load_shares_;  // of each load with a force: solver vertices and their parts of it
  uint32_t acting_loads_ = 0;                                         // bits of those in the device buffers
  DeviceBuffer<float> load_pressures_;
  DeviceBuffer<uint32_t> load_bits_;
  DeviceBuffer<Float4> load_forces_, y_free_;
  DeviceBuffer<float> piece_sums_buffer_;
  uint64_t steps_ = 0;              // since the last reset
  bool was_given_tangled_ = false;  // positions came from outside with many inverted tets, and have not recovered yet
  bool any_coupled_ = false;
  uint32_t strained_tets_ = 0;
  uint32_t inverted_elastic_ = 0;
  double recovery_left_s_ = 0;  // > 0 while a tangled mesh recovers
  double calm_s_ = 0;           // how long it has looked untangled
};

absl::Status TissueSolver::Impl::Init(std::shared_ptr<Queue> queue, const TissueModel& model, const TissueOptions& options,
                                      std::span<const ColliderDescription> colliders, std::span<const PlaneObstacle> planes,
                                      const TissueTuning& tuning, Impl* old) {
  if (colliders.size() > kMaxColliders) {
    return absl::InvalidArgumentError(absl::StrCat(colliders.size(), " tools and capsule obstacles exceed the limit of ", kMaxColliders));
  }
  options_ = options;
  tuning_ = tuning;
  collider_descriptions_.assign(colliders.begin(), colliders.end());
  plane_obstacles_.assign(planes.begin(), planes.end());
  // Scenes that are never edited need no room.
  PALPATE_ASSIGN_OR_RETURN(layout_, LayOutTissue(model, options.dt_s, tuning.lanes, old == nullptr ? TissueSlack{} : kEditSlack));
  queue_ = std::move(queue);
  if (old != nullptr) {
    editor_ = std::make_unique<TissueLayoutEditor>(model, options.dt_s, &layout_);
    PALPATE_ASSIGN_OR_RETURN(writer_, RunWriter::Create(queue_->context()));
  }

  params_host_ = {};
  params_host_.dt_s = static_cast<float>(options.dt_s);
  params_host_.inv_dt = static_cast<float>(1.0 / options.dt_s);
  params_host_.gravity_x = static_cast<float>(options.gravity_m_per_s2[0]);
  params_host_.gravity_y = static_cast<float>(options.gravity_m_per_s2[1]);
  params_host_.gravity_z = static_cast<float>(options.gravity_m_per_s2[2]);
  params_host_.margin_m = static_cast<float>(options.margin_m);
  params_host_.stiffness_n_per_m =
      static_cast<float>(options.stiffness_n_per_m > 0 ? options.stiffness_n_per_m
                         : layout_.live_tet_count == 0 ? MeanRigidMass(model) / (options.dt_s * options.dt_s)
                                                       : 20 * layout_.mean_young_modulus_pa * layout_.mean_edge_m);
  params_host_.stiffening = kStiffening;
  params_host_.friction = static_cast<float>(options.friction);
  params_host_.slip_m = static_cast<float>(kSlipSpeed_m_per_s * options.dt_s);
  params_host_.range_m = static_cast<float>(options.range_m);
  params_host_.lambda_cap = PALPATE_LAMBDA_UNCAPPED;
  params_host_.free_count = layout_.free_count;
  params_host_.vertex_count = layout_.vertex_count;
  params_host_.triangle_count = layout_.triangle_count;
  params_host_.collider_count = static_cast<uint32_t>(colliders.size());
  params_host_.plane_count = static_cast<uint32_t>(planes.size());
  params_host_.tet_count = layout_.tet_count;

  const size_t n = layout_.vertex_count;
  rest_positions_ = layout_.rest_m;
  for (const ColliderDescription& description : colliders) {
    const auto index = static_cast<uint32_t>(initial_colliders_.size());
    const uint32_t place = description.places_after_leader;
    if (place > 0 && (place > index || initial_colliders_[index - place].leader != index - place ||
                      initial_colliders_[index - place].members != place)) {
      return absl::InvalidArgumentError(absl::StrCat("collider ", index, ": is ", place, " places after no leader"));
    }
    ColliderDescription c = description;
    Collider collider{};
    collider.leader = index - place;
    collider.members = 1;
    collider.skips_tissue = description.skips_tissue ? 1 : 0;
    if (place > 0) {
      const ColliderDescription& leader = colliders[collider.leader];
      initial_colliders_[collider.leader].members = place + 1;
      c.coupling_n_per_m = leader.coupling_n_per_m;
      c.damping_n_s_per_m = leader.damping_n_s_per_m;
      c.mass_kg = leader.mass_kg;
      collider.offset = ToFloat4({c.tip_m[0] - leader.tip_m[0], c.tip_m[1] - leader.tip_m[1], c.tip_m[2] - leader.tip_m[2]});
    }
    collider.tip_start = ToFloat4(c.tip_m, c.radius_m);
    collider.axis_start = ToFloat4(c.axis_m);
    collider.tip = ToFloat4(c.tip_m);
    // Against a light tool on a soft coupling a stiff contact is only slow to solve, and what is left unsolved shows as force peaks.
    const double impedance_n_per_m = c.mass_kg / (options.dt_s * options.dt_s) + c.damping_n_s_per_m / options.dt_s + c.coupling_n_per_m;
    const double stiffness_n_per_m = params_host_.stiffness_n_per_m;
    collider.axis =
        ToFloat4(c.axis_m, c.coupling_n_per_m > 0 ? std::min(stiffness_n_per_m, kToolContactRatio * impedance_n_per_m) : stiffness_n_per_m);
    collider.velocity = ToFloat4({}, c.mass_kg);
    collider.device_tip = ToFloat4(c.tip_m, c.coupling_n_per_m);
    collider.device_velocity = ToFloat4({}, c.damping_n_s_per_m);
    initial_colliders_.push_back(collider);
    any_coupled_ |= c.coupling_n_per_m > 0;
  }
  targets_host_.resize(2 * colliders.size());
  colliders_host_ = initial_colliders_;
  blocked_m_.resize(colliders.size());
  aims_.resize(colliders.size());
  partials_host_.resize(tuning_.partials);
  scratch_.resize(n);

  PALPATE_RETURN_IF_ERROR(Fill(&params_, std::span<const StepParams>(&params_host_, 1), "params"));
  PALPATE_RETURN_IF_ERROR(Fill(&x_, std::span<const Float4>(rest_positions_), "positions"));
  PALPATE_RETURN_IF_ERROR(Fill(&x_start_, std::span<const Float4>(rest_positions_), "positions_start"));
  PALPATE_RETURN_IF_ERROR(Fill(&y_, std::span<const Float4>(rest_positions_), "inertial_targets"));
  PALPATE_RETURN_IF_ERROR(Make(&velocity_, n, "velocities"));
  PALPATE_RETURN_IF_ERROR(Make(&velocity_before_, n, "velocities_before"));
  const size_t history = options_.acceleration > 0 ? n : 0;
  PALPATE_RETURN_IF_ERROR(Make(&x_before_, history, "positions_before"));
  PALPATE_RETURN_IF_ERROR(Make(&x_before2_, history, "positions_before2"));
  PALPATE_RETURN_IF_ERROR(Fill(&mass_, std::span<const float>(layout_.mass_kg), "masses"));
  PALPATE_RETURN_IF_ERROR(Fill(&mass_damping_, std::span<const float>(layout_.mass_damping_per_s), "mass_damping"));
  PALPATE_RETURN_IF_ERROR(Fill(&original_index_, std::span<const uint32_t>(layout_.original_index), "original_index"));
  PALPATE_RETURN_IF_ERROR(Fill(&block_range_, std::span<const UInt2>(layout_.block_range), "block_range"));
  PALPATE_RETURN_IF_ERROR(Fill(&block_vertex_, std::span<const uint32_t>(layout_.block_vertex), "block_vertex"));
  PALPATE_RETURN_IF_ERROR(Fill(&corner_real_, std::span<const float>(layout_.corner_real), "corner_real"));
  PALPATE_RETURN_IF_ERROR(Fill(&corner_index_, std::span<const uint32_t>(layout_.corner_index), "corner_index"));
  PALPATE_RETURN_IF_ERROR(
      Make(&corner_strain_, layout_.has_viscosity ? layout_.block_vertex.size() * 7 * layout_.lanes : 0, "corner_strain"));
  PALPATE_RETURN_IF_ERROR(Fill(&tets_, std::span<const UInt4>(layout_.tets), "tets"));
  PALPATE_RETURN_IF_ERROR(Fill(&tet_rest_, std::span<const Float4>(layout_.tet_rest), "tet_rest"));
  const std::vector<Float4> identity(layout_.Has(TissueEnergy::kCorotated) ? layout_.tets.size() : 0, Float4{0, 0, 0, 1});
  PALPATE_RETURN_IF_ERROR(Fill(&rotations_, std::span<const Float4>(identity), "rotations"));
  PALPATE_RETURN_IF_ERROR(Fill(&triangles_, std::span<const UInt4>(layout_.triangles), "triangles"));
  PALPATE_RETURN_IF_ERROR(Fill(&vertex_triangle_range_, std::span<const UInt2>(layout_.vertex_triangle_range), "vertex_triangle_range"));
  PALPATE_RETURN_IF_ERROR(Fill(&vertex_triangles_, std::span<const uint32_t>(layout_.vertex_triangles), "vertex_triangles"));
  PALPATE_RETURN_IF_ERROR(Make(&triangle_colliders_, layout_.triangles.size(), "triangle_colliders"));
  PALPATE_RETURN_IF_ERROR(Make(&contacts_, layout_.triangles.size() * colliders.size(), "contacts"));
  PALPATE_RETURN_IF_ERROR(Make(&colliders_, colliders.size() + kMaxClips, "colliders"));
  PALPATE_RETURN_IF_ERROR(Make(&anchor_begin_, n + 1, "anchor_begin"));
  PALPATE_RETURN_IF_ERROR(Make(&anchors_, 1, "anchors"));
  PALPATE_RETURN_IF_ERROR(Make(&anchor_reports_, 1, "anchor_reports"));
  anchor_begin_host_.assign(n + 1, 0);
  PALPATE_RETURN_IF_ERROR(Make(&targets_, 2 * colliders.size(), "collider_targets"));
  PALPATE_RETURN_IF_ERROR(Fill(&planes_, planes, "planes"));
  PALPATE_RETURN_IF_ERROR(Make(&touched_, n, "touched"));
  PALPATE_RETURN_IF_ERROR(Make(&list_, layout_.triangles.size() * colliders.size() + 1, "contact_list"));
  PALPATE_RETURN_IF_ERROR(Make(&report_count_, 1, "report_count"));
  PALPATE_RETURN_IF_ERROR(Make(&reports_, 256, "contact_reports"));
  PALPATE_RETURN_IF_ERROR(Make(&partials_, tuning_.partials, "step_partials"));
  PALPATE_RETURN_IF_ERROR(Make(&forces_, n, "forces"));
  PALPATE_RETURN_IF_ERROR(Make(&gathered_index_, 0, "gathered_index"));
  PALPATE_RETURN_IF_ERROR(Make(&gathered_, 0, "gathered"));
  if (layout_.has_surface_contact) {
    SurfaceOptions surface;
    surface.dt_s = options.dt_s;
    surface.margin_m = options.margin_m;
    surface.stiffness_n_per_m = options.stiffness_n_per_m;
    surface.friction = options.surface_friction;
    surface.reserve_m = options.surface_reserve_m;
    if (old != nullptr && old->surface_) surface.reach_edge_m = old->surface_->reach_edge_m();
    surface.max_detections = options.surface_max_detections;
    surface.check_intersections = options.check_intersections;
    PALPATE_ASSIGN_OR_RETURN(
        surface_,
        SurfaceContacts::Create(*queue_, layout_, surface, {&block_range_, &corner_index_, &vertex_triangle_range_, &vertex_triangles_},
                                tuning_.partials, old == nullptr ? 0 : kEditSlack.share, old == nullptr ? nullptr : old->surface_.get()));
  }
  if (!colliders.empty() || !planes.empty()) {
    PALPATE_ASSIGN_OR_RETURN(
        barrier_, ObstacleBarrier::Create(*queue_, layout_, params_host_.collider_count, params_host_.plane_count, options.margin_m));
  }
  if (!model.rigid.empty()) PALPATE_RETURN_IF_ERROR(MakeRigid(model));
  if (layout_.Has(TissueEnergy::kShapeMatched)) PALPATE_RETURN_IF_ERROR(MakeShapes(model));
  PALPATE_RETURN_IF_ERROR(MakeLoads(model));
  PALPATE_RETURN_IF_ERROR(MakeDriven(model));
  PALPATE_RETURN_IF_ERROR(Make(&prescribed_, model.prescribed.vertices.size(), "prescribed"));
  PALPATE_RETURN_IF_ERROR(HoldPrescribed(rest_positions_));
  PALPATE_RETURN_IF_ERROR(MakeKernels(old));
  return Bind();
}

absl::Status TissueSolver::Impl::MakeDriven(const TissueModel& model) {
  driven_ = model.driven;
  driven_poses_host_.resize(driven_.size());
  driven_count_ = static_cast<uint32_t>(layout_.driven_vertices.size());
  if (driven_count_ == 0) return absl::OkStatus();
  const std::shared_ptr<Context>& context = queue_->context();
  device_bytes_ -= driven_vertices_.size_bytes() + driven_regions_.size_bytes() + driven_poses_.size_bytes() + rest_.size_bytes();
  PALPATE_RETURN_IF_ERROR(Grow(context, driven_vertices_, std::max(driven_count_, 1U), "driven_vertices"));
  PALPATE_RETURN_IF_ERROR(Grow(context, driven_regions_, std::max(driven_count_, 1U), "driven_regions"));
  PALPATE_RETURN_IF_ERROR(Grow(context, driven_poses_, driven_.size(), "driven_poses"));
  PALPATE_RETURN_IF_ERROR(Grow(context, rest_, layout_.vertex_count, "rest"));
  device_bytes_ += driven_vertices_.size_bytes() + driven_regions_.size_bytes() + driven_poses_.size_bytes() + rest_.size_bytes();
  PALPATE_RETURN_IF_ERROR(queue_->Write(driven_vertices_, std::span<const uint32_t>(layout_.driven_vertices)));
  PALPATE_RETURN_IF_ERROR(queue_->Write(driven_regions_, std::span<const uint32_t>(layout_.driven_regions)));
  return queue_->Write(rest_, std::span<const Float4>(layout_.rest_m));
}

absl::Status TissueSolver::Impl::MakeRigid(const TissueModel& model) {
  std::vector<RigidBlock> blocks;
  for (const TissueRigidBody& rigid : model.rigid) {
    const auto of_body = std::find(layout_.triangle_body.begin(), layout_.triangle_body.end(), rigid.body);
    const auto past = std::find_if(of_body, layout_.triangle_body.end(), [&](uint32_t body) { return body != rigid.body; });
    if (std::find(past, layout_.triangle_body.end(), rigid.body) != layout_.triangle_body.end()) {
      return absl::InvalidArgumentError(absl::StrCat("triangle_body: the triangles of rigid body ", rigid.body, " do not stand together"));
    }
    // Fixed vertices without tets keep their order, so a range of the caller's is one of the solver's.
    blocks.push_back({.vertex_begin = layout_.solver_index[rigid.vertices[0]],
                      .vertex_end = layout_.solver_index[rigid.vertices[1] - 1] + 1,
                      .triangle_begin = static_cast<uint32_t>(of_body - layout_.triangle_body.begin()),
                      .triangle_end = static_cast<uint32_t>(past - layout_.triangle_body.begin()),
                      .mass_kg = rigid.mass_kg,
                      .center_m = rigid.center_m,
                      .inertia_kg_m2 = rigid.inertia_kg_m2,
                      .velocity_m_per_s = rigid.velocity_m_per_s,
                      .angular_velocity_rad_per_s = rigid.angular_velocity_rad_per_s});
  }
  PALPATE_ASSIGN_OR_RETURN(rigid_, RigidBlocks::Create(*queue_, blocks, rest_positions_));
  if (surface_) surface_->SetFollower(rigid_.get());
  return absl::OkStatus();
}

RigidSurroundings TissueSolver::Impl::Surroundings() const {
  RigidSurroundings scene;
  scene.params = &params_;
  scene.x_start = &x_start_;
  scene.triangles = &triangles_;
  scene.triangle_colliders = &triangle_colliders_;
  scene.tool_contacts = &contacts_;
  scene.colliders = &colliders_;
  scene.planes = &planes_;
  if (surface_) {
    scene.surface_params = &surface_->params();
    scene.detected = &surface_->detected();
    scene.entry_begins = &surface_->entry_begins();
    scene.entries = &surface_->entries();
    scene.pairs = &surface_->pairs();
    scene.bounds = &surface_->planes();
  }
  return scene;
}

/// Those of `old` (or null) are used again if they are the same.
absl::Status TissueSolver::Impl::MakeKernels(Impl* old) {
  const auto flag = [](bool set) { return std::string(set ? "1" : "0"); };
  defines_ = {{"PALPATE_LANES", std::to_string(tuning_.lanes)},
              {"PALPATE_TEAM", std::to_string(tuning_.team)},
              {"PALPATE_GROUP", std::to_string(tuning_.group)},
              {"PALPATE_LIST_GROUP", std::to_string(tuning_.list_group)},
              {"PALPATE_COROTATED", flag(layout_.Has(TissueEnergy::kCorotated))},
              {"PALPATE_NEO_HOOKEAN", flag(layout_.Has(TissueEnergy::kStableNeoHookean))},
              {"PALPATE_LINEAR", flag(layout_.Has(TissueEnergy::kLinear))},
              {"PALPATE_GREEN", flag(layout_.Has(TissueEnergy::kStVenantKirchhoff))},
              {"PALPATE_SPRINGS", flag(layout_.Has(TissueEnergy::kMassSpring))},
              {"PALPATE_FIBERS", flag(layout_.has_fibers)},
              {"PALPATE_VISCOUS", flag(layout_.has_viscosity)},
              {"PALPATE_SURFACE", flag(surface_ != nullptr)},
              {"PALPATE_SHAPE", flag(shapes_ != nullptr)}};
  constexpr std::pair<Kernel Impl::*, const char*> kKernels[] = {{&Impl::predict_, "predict"},
                                                                 {&Impl::start_strain_, "start_strain"},
                                                                 {&Impl::extract_rotations_, "extract_rotations"},
                                                                 {&Impl::solve_color_, "solve_color"},
                                                                 {&Impl::vertex_forces_, "vertex_forces"},
                                                                 {&Impl::accelerate_, "accelerate"},
                                                                 {&Impl::move_colliders_, "move_colliders"},
                                                                 {&Impl::find_contacts_, "find_contacts"},
                                                                 {&Impl::list_contacts_, "list_contacts"},
                                                                 {&Impl::update_contacts_, "update_contacts"},
                                                                 {&Impl::solve_colliders_, "solve_colliders"},
                                                                 {&Impl::finish_colliders_, "finish_colliders"},
                                                                 {&Impl::report_contacts_, "report_contacts"},
                                                                 {&Impl::finish_step_, "finish_step"},
                                                                 {&Impl::inspect_state_, "inspect_state"},
                                                                 {&Impl::solve_clips_, "solve_clips"},
                                                                 {&Impl::report_anchors_, "report_anchors"},
                                                                 {&Impl::gather_positions_, "gather_positions"},
                                                                 {&Impl::apply_loads_, "apply_loads"},
                                                                 {&Impl::piece_sums_, "piece_sums"}};
  constexpr std::pair<Kernel Impl::*, const char*> kDriving[] = {
      {&Impl::drive_vertices_, "drive_vertices"}, {&Impl::prescribe_vertices_, "prescribe_vertices"}, {&Impl::move_driven_, "move_driven"}};
  Context& context = *queue_->context();
  const bool is_same = old != nullptr && old->defines_ == defines_;
  for (const auto& [kernel, name] : kKernels) {
    if (kernel == &Impl::piece_sums_ && !surface_) continue;
    if (is_same) {
      this->*kernel = std::move(old->*kernel);
    } else {
      PALPATE_ASSIGN_OR_RETURN(this->*kernel, context.CreateKernel(kernels::tissue, name, defines_));
    }
  }
  for (const auto& [kernel, name] : kDriving) {
    PALPATE_ASSIGN_OR_RETURN(this->*kernel, context.CreateKernel(kernels::surface_contact, name));
  }
  return absl::OkStatus();
}

absl::Status TissueSolver::Impl::Bind() {
  PALPATE_RETURN_IF_ERROR(predict_.SetArgs(params_, x_, x_start_, y_, velocity_, velocity_before_, mass_, mass_damping_));
  PALPATE_RETURN_IF_ERROR(start_strain_.SetArgs(layout_.block_count, x_start_, block_vertex_, corner_real_, corner_index_, corner_strain_));
  PALPATE_RETURN_IF_ERROR(extract_rotations_.SetArgs(params_, x_, tets_, tet_rest_, rotations_));
  PALPATE_RETURN_IF_ERROR(solve_color_.SetArgs(params_, 0U, 0U, x_, x_start_, y_, mass_, block_range_, corner_real_, corner_index_,
                                               corner_strain_, rotations_, vertex_triangle_range_, vertex_triangles_, triangles_,
                                               triangle_colliders_, contacts_, colliders_, planes_, anchor_begin_, anchors_, touched_));
  PALPATE_RETURN_IF_ERROR(vertex_forces_.SetArgs(params_, uint32_t{kAllForces}, x_, x_start_, y_, mass_, block_range_, corner_real_,
                                                 corner_index_, corner_strain_, rotations_, vertex_triangle_range_, vertex_triangles_,
                                                 triangles_, triangle_colliders_, contacts_, colliders_, planes_, anchor_begin_, anchors_,
                                                 forces_));
  PALPATE_RETURN_IF_ERROR(accelerate_.SetArgs(params_, 1.0F, x_, x_before_, x_before2_, touched_));
  PALPATE_RETURN_IF_ERROR(move_colliders_.SetArgs(params_, colliders_, targets_));
  PALPATE_RETURN_IF_ERROR(find_contacts_.SetArgs(params_, x_, x_start_, triangles_, colliders_, contacts_, triangle_colliders_));
  PALPATE_RETURN_IF_ERROR(list_contacts_.SetArgs(params_, triangle_colliders_, list_));
  PALPATE_RETURN_IF_ERROR(update_contacts_.SetArgs(params_, x_, triangles_, colliders_, list_, contacts_));
  PALPATE_RETURN_IF_ERROR(
      solve_colliders_.SetArgs(params_, x_, x_start_, triangles_, list_, contacts_, anchor_begin_, anchors_, colliders_));
  PALPATE_RETURN_IF_ERROR(finish_colliders_.SetArgs(params_, colliders_));
  PALPATE_RETURN_IF_ERROR(
      finish_step_.SetArgs(params_, x_, x_start_, velocity_, velocity_before_, mass_, original_index_, tets_, tet_rest_, partials_));
  PALPATE_RETURN_IF_ERROR(inspect_state_.SetArgs(params_, x_, velocity_, mass_, original_index_, tets_, tet_rest_, partials_));
  if (shapes_) PALPATE_RETURN_IF_ERROR(BindShapes());
  return surface_ ? BindSurface() : absl::OkStatus();
}

/// Clusters of all shape-matched bodies, and their goals.
absl::Status TissueSolver::Impl::MakeShapes(const TissueModel& model) {
  PALPATE_ASSIGN_OR_RETURN(const ShapeClusters clusters,
                           BuildShapeClusters(model, layout_.solver_index, layout_.vertex_count, options_.dt_s));
  PALPATE_ASSIGN_OR_RETURN(shapes_, ShapeGoals::Create(*queue_, clusters, tuning_.shape_group));
  has_goal_.assign(layout_.vertex_count, 0);
  for (const uint32_t slot : clusters.member_vertex) has_goal_[slot] = 1;
  return absl::OkStatus();
}

/// Whether an edit reaches shape-matched bodies: tets of them changed, or slots that were theirs.
bool TissueSolver::Impl::TouchesShapes(const TissueModel& model, const TissueChange& change, const TissueLayoutDelta& delta) const {
  return std::any_of(delta.slots.begin(), delta.slots.end(), [&](uint32_t slot) { return has_goal_[slot] != 0; }) ||
         std::any_of(change.tets.begin(), change.tets.end(), [&](uint32_t t) {
           return t < model.tets.size() && !LayoutEntries::IsFree(model.tets[t]) && model.tets[t].energy == TissueEnergy::kShapeMatched;
         });
}

/// The last arguments of the kernels that read goals.
absl::Status TissueSolver::Impl::BindShapes() {
  PALPATE_RETURN_IF_ERROR(solve_color_.SetArg(surface_ ? 29 : 22, shapes_->goals()));
  return vertex_forces_.SetArg(surface_ ? 26 : 21, shapes_->goals());
}

/// What a sweep takes from the positions as they are: rotations of tets, goals of shape-matched bodies.
absl::Status TissueSolver::Impl::UpdateFollowed() {
  if (layout_.Has(TissueEnergy::kCorotated)) PALPATE_RETURN_IF_ERROR(queue_->Enqueue(extract_rotations_, {layout_.tet_count, 0}));
  return shapes_ ? shapes_->Update(*queue_, x_) : absl::OkStatus();
}

/// The arguments that change when the lists of pairs grow.
absl::Status TissueSolver::Impl::BindSurface() {
  surface_generation_ = surface_->generation();
  const auto bind = [&](Kernel& kernel, cl_uint first) -> absl::Status {
    PALPATE_RETURN_IF_ERROR(kernel.SetArg(first, surface_->params()));
    PALPATE_RETURN_IF_ERROR(kernel.SetArg(first + 1, surface_->x_sweep()));
    PALPATE_RETURN_IF_ERROR(kernel.SetArg(first + 2, surface_->entry_begins()));
    PALPATE_RETURN_IF_ERROR(kernel.SetArg(first + 3, surface_->entries()));
    return kernel.SetArg(first + 4, surface_->pairs());
  };
  PALPATE_RETURN_IF_ERROR(bind(solve_color_, 22));
  PALPATE_RETURN_IF_ERROR(solve_color_.SetArg(27, surface_->detected()));
  PALPATE_RETURN_IF_ERROR(solve_color_.SetArg(28, surface_->planes()));
  PALPATE_RETURN_IF_ERROR(bind(vertex_forces_, 21));
  PALPATE_RETURN_IF_ERROR(accelerate_.SetArg(6, surface_->detected()));
  PALPATE_RETURN_IF_ERROR(accelerate_.SetArg(7, surface_->planes()));
  return accelerate_.SetArg(8, surface_->entry_begins());
}

/// The arguments that change when anchors_ grows.
absl::Status TissueSolver::Impl::BindAnchors() {
  PALPATE_RETURN_IF_ERROR(solve_color_.SetArg(20, anchors_));
  PALPATE_RETURN_IF_ERROR(vertex_forces_.SetArg(19, anchors_));
  return solve_colliders_.SetArg(7, anchors_);
}

absl::Status TissueSolver::Impl::SetAnchors(std::span<const TissueAnchor> anchors, uint32_t clip_count) {
  if (clip_count > kMaxClips) {
    return absl::ResourceExhaustedError(absl::StrCat(clip_count, " clips exceed the limit of ", kMaxClips));
  }
  const uint32_t holder_count = params_host_.collider_count + clip_count;
  const auto is_positive = [](double value) { return value > 0 && std::isfinite(value); };
  const auto is_normal = [&](const TissueAnchor& a) {
    const double length = std::hypot(a.normal[0], a.normal[1], a.normal[2]);
    return length == 0 || (std::abs(length - 1) < 1e-6 && a.holder < params_host_.collider_count);
  };
  for (size_t i = 0; i < anchors.size(); ++i) {
    const TissueAnchor& a = anchors[i];
    if (!HasVertex(a.vertex) || a.holder >= holder_count || !is_positive(a.stiffness_n_per_m) || !is_positive(a.max_force_n) ||
        !std::isfinite(a.target_m[0] + a.target_m[1] + a.target_m[2]) || !is_normal(a)) {
      return absl::InvalidArgumentError(absl::StrCat("anchor ", i, ": vertex ", a.vertex, " must be one of ", layout_.solver_index.size(),
                                                     ", holder ", a.holder, " below ", holder_count, ", stiffness ", a.stiffness_n_per_m,
                                                     " N/m and force ", a.max_force_n,
                                                     " N positive, the target finite, the normal zero or (not of a clip) unit"));
    }
  }
  if (anchors.empty() && anchors_host_.empty() && clip_count == clip_count_) return absl::OkStatus();
  std::vector<uint32_t> begin(layout_.vertex_count + 1, 0);
  for (const TissueAnchor& a : anchors) ++begin[layout_.solver_index[a.vertex] + 1];
  for (size_t v = 0; v < layout_.vertex_count; ++v) begin[v + 1] += begin[v];
  anchors_host_.resize(anchors.size());
  anchor_place_.resize(anchors.size());
  anchor_reports_host_.assign(anchors.size(), AnchorReport{});
  anchor_reports_sorted_.resize(anchors.size());
  std::vector<uint32_t> next(begin.begin(), begin.end() - 1);
  for (size_t i = 0; i < anchors.size(); ++i) {
    const TissueAnchor& a = anchors[i];
    const uint32_t vertex = layout_.solver_index[a.vertex];
    anchor_place_[i] = next[vertex]++;
    anchors_host_[anchor_place_[i]] = {.target = ToFloat4(a.target_m, a.stiffness_n_per_m),
                                       .vertex = vertex,
                                       .holder = a.holder,
                                       .max_force_n = static_cast<float>(a.max_force_n),
                                       .unused = 0,
                                       .normal = ToFloat4(a.normal, a.normal == std::array<double, 3>{} ? 0 : 1)};
  }
  clip_count_ = clip_count;
  if (begin != anchor_begin_host_) {
    anchor_begin_host_ = std::move(begin);
    PALPATE_RETURN_IF_ERROR(queue_->Write(anchor_begin_, std::span<const uint32_t>(anchor_begin_host_)));
  }
  if (anchors.size() > anchors_.count()) {
    device_bytes_ -= anchors_.size_bytes() + anchor_reports_.size_bytes();
    PALPATE_RETURN_IF_ERROR(Grow(queue_->context(), anchors_, anchors.size(), "anchors"));
    PALPATE_RETURN_IF_ERROR(Grow(queue_->context(), anchor_reports_, anchors.size(), "anchor_reports"));
    device_bytes_ += anchors_.size_bytes() + anchor_reports_.size_bytes();
    PALPATE_RETURN_IF_ERROR(BindAnchors());
  }
  return anchors.empty() ? absl::OkStatus() : queue_->Write(anchors_, std::span<const Anchor>(anchors_host_));
}

/// Tools and clips go to where what acts on them balances.
absl::Status TissueSolver::Impl::SolveHolders() {
  if (any_coupled_) {
    PALPATE_RETURN_IF_ERROR(
        queue_->Enqueue(solve_colliders_, {size_t{params_host_.collider_count} * tuning_.list_group, tuning_.list_group}));
  }
  if (clip_count_ == 0) return absl::OkStatus();
  return queue_->Launch(solve_clips_, {clip_count_, 0}, params_, clip_count_, x_, anchor_begin_, anchors_, colliders_);
}

/// Bodies that nothing holds go as wholes to where the forces on them balance.
absl::Status TissueSolver::Impl::ShiftPieces() {
  const uint32_t pieces = surface_->piece_count();
  constexpr uint32_t kParts = SurfaceContacts::kParts;
  if (const size_t sums = size_t{pieces} * kParts * PALPATE_PIECE_SUMS; piece_sums_buffer_.count() < sums) {
    PALPATE_RETURN_IF_ERROR(Make(&piece_sums_buffer_, sums + sums / 2, "piece_sums"));
  }
  PALPATE_RETURN_IF_ERROR(queue_->Launch(piece_sums_, {size_t{pieces} * kParts, 0}, params_, pieces, kParts, surface_->piece_begin(),
                                         surface_->piece_vertices(), x_, x_start_, y_, mass_, vertex_triangle_range_, vertex_triangles_,
                                         triangles_, triangle_colliders_, contacts_, colliders_, planes_, anchor_begin_, anchors_,
                                         piece_sums_buffer_));
  return surface_->ShiftPieces(*queue_, piece_sums_buffer_, x_, x_start_, x_before_, x_before2_);
}

/// Targets and first guesses of driven vertices for the step that begins.
absl::Status TissueSolver::Impl::Drive() {
  if (prescribed_.count() > 0) {
    const auto count = static_cast<uint32_t>(prescribed_.count());
    const auto first = static_cast<uint32_t>(layout_.driven_regions.size());
    PALPATE_RETURN_IF_ERROR(queue_->Launch(prescribe_vertices_, {count, 0}, count, first, driven_vertices_, prescribed_, y_, x_));
  }
  if (driven_.empty()) return absl::OkStatus();
  const double end_s = static_cast<double>(steps_ + 1) * options_.dt_s;
  for (size_t r = 0; r < driven_.size(); ++r) {
    const TissueDrivenRegion& region = driven_[r];
    const double moved_s = std::clamp(end_s - region.start_s, 0.0, region.duration_s);
    const auto& w = region.angular_velocity_rad_per_s;
    const double speed = std::hypot(w[0], w[1], w[2]);
    const double share = speed > 0 ? std::sin(speed * moved_s / 2) / speed : 0;
    DrivenPose& pose = driven_poses_host_[r];
    pose.rotation = ToFloat4({w[0] * share, w[1] * share, w[2] * share}, std::cos(speed * moved_s / 2));
    pose.center_start = ToFloat4(region.center_m);
    const auto& v = region.velocity_m_per_s;
    pose.center = ToFloat4({region.center_m[0] + v[0] * moved_s, region.center_m[1] + v[1] * moved_s, region.center_m[2] + v[2] * moved_s});
  }
  PALPATE_RETURN_IF_ERROR(queue_->Write(driven_poses_, std::span<const DrivenPose>(driven_poses_host_)));
  const auto count = static_cast<uint32_t>(layout_.driven_regions.size());
  return queue_->Launch(drive_vertices_, {count, 0}, count, driven_vertices_, driven_regions_, driven_poses_, rest_, y_, x_);
}

/// Prescribed vertices stay where they are in `positions` [solver's vertex].
absl::Status TissueSolver::Impl::HoldPrescribed(std::span<const Float4> positions) {
  const size_t first = layout_.driven_regions.size();
  prescribed_host_.clear();
  for (size_t i = first; i < layout_.driven_vertices.size(); ++i) prescribed_host_.push_back(positions[layout_.driven_vertices[i]]);
  return prescribed_host_.empty() ? absl::OkStatus() : queue_->Write(prescribed_, std::span<const Float4>(prescribed_host_));
}

absl::Status TissueSolver::Impl::SetPrescribed(std::span<const float> positions_m) {
  if (positions_m.size() != prescribed_host_.size() * 3) {
    return absl::InvalidArgumentError(absl::StrCat(positions_m.size(), " floats for ", prescribed_host_.size(), " prescribed vertices"));
  }
  if (!std::all_of(positions_m.begin(), positions_m.end(), [](float v) { return std::isfinite(v); })) {
    return absl::InvalidArgumentError("a prescribed position is not finite");
  }
  for (size_t i = 0; i < prescribed_host_.size(); ++i) {
    prescribed_host_[i] = {positions_m[3 * i], positions_m[3 * i + 1], positions_m[3 * i + 2], 0.0F};
  }
  return prescribed_host_.empty() ? absl::OkStatus() : queue_->Write(prescribed_, std::span<const Float4>(prescribed_host_));
}

/// Shares of the loads with a force, and the buffers of all.
absl::Status TissueSolver::Impl::MakeLoads(const TissueModel& model) {
  loads_ = model.loads;
  load_shares_.clear();
  acting_loads_ = 0;
  const size_t n = loads_.empty() ? 0 : layout_.vertex_count;
  for (size_t k = 0; k < loads_.size(); ++k) {
    std::vector<double> share(n, 0.0);
    double sum = 0;
    for (const UInt4& t : std::span(layout_.triangles).first(layout_.triangle_count)) {
      if (!(layout_.load_bits[t.x] & layout_.load_bits[t.y] & layout_.load_bits[t.z] & 1U << k)) continue;
      const Float4& o = layout_.rest_m[t.x];
      const Float4& b = layout_.rest_m[t.y];
      const Float4& c = layout_.rest_m[t.z];
      const double bx = b.x - o.x, by = b.y - o.y, bz = b.z - o.z, cx = c.x - o.x, cy = c.y - o.y, cz = c.z - o.z;
      const double area = std::hypot(by * cz - bz * cy, bz * cx - bx * cz, bx * cy - by * cx) / 2;
      for (const uint32_t v : {t.x, t.y, t.z}) share[v] += area / 3;
      sum += area;
    }
    for (size_t v = 0; sum == 0 && v < n; ++v) {
      if (layout_.load_bits[v] & 1U << k) share[v] = layout_.mass_kg[v];
    }
    if (sum == 0) sum = std::accumulate(share.begin(), share.end(), 0.0);
    load_shares_.emplace_back();
    for (uint32_t v = 0; v < n; ++v) {
      if (share[v] > 0) load_shares_.back().emplace_back(v, static_cast<float>(share[v] / sum));
    }
  }
  PALPATE_RETURN_IF_ERROR(Fill(&load_bits_, std::span<const uint32_t>(layout_.load_bits), "load_bits"));
  PALPATE_RETURN_IF_ERROR(Make(&load_pressures_, loads_.size(), "load_pressures"));
  PALPATE_RETURN_IF_ERROR(Make(&y_free_, n, "inertial_targets_without_loads"));
  return Make(&load_forces_, n, "load_forces");
}

/// The loads of the step that begins. What acts changes seldom: only then the device is told.
absl::Status TissueSolver::Impl::ChooseLoads() {
  const double start_s = static_cast<double>(steps_) * options_.dt_s;
  uint32_t acting = 0;
  for (size_t k = 0; k < loads_.size(); ++k) {
    const double age_s = start_s - loads_[k].start_s + 1e-9;
    if (age_s >= 0 && age_s < loads_[k].duration_s) acting |= 1U << k;
  }
  if (acting != acting_loads_) {
    acting_loads_ = acting;
    std::vector<float> pressures(loads_.size(), 0.0F);
    std::vector<Float4> forces(layout_.vertex_count);
    for (size_t k = 0; k < loads_.size(); ++k) {
      if (!(acting & 1U << k)) continue;
      pressures[k] = static_cast<float>(loads_[k].pressure_pa);
      const Float4 force = ToFloat4(loads_[k].force_n);
      for (const auto& [v, share] : load_shares_[k]) {
        forces[v] = {forces[v].x + share * force.x, forces[v].y + share * force.y, forces[v].z + share * force.z, 0.0F};
      }
    }
    PALPATE_RETURN_IF_ERROR(queue_->Write(load_pressures_, std::span<const float>(pressures)));
    PALPATE_RETURN_IF_ERROR(queue_->Write(load_forces_, std::span<const Float4>(forces)));
  }
  if (acting == 0) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(queue_->Copy(y_, y_free_, layout_.vertex_count));
  return ApplyLoads();
}

/// Loads as they are where the tissue is now.
absl::Status TissueSolver::Impl::ApplyLoads() {
  if (acting_loads_ == 0) return absl::OkStatus();
  return queue_->Launch(apply_loads_, Vertices(), params_, static_cast<uint32_t>(loads_.size()), load_pressures_, load_bits_, load_forces_,
                        x_, vertex_triangle_range_, vertex_triangles_, triangles_, mass_, y_free_, y_);
}

absl::Status TissueSolver::Impl::SetGathered(std::span<const uint32_t> vertices) {
  std::vector<uint32_t> indices;
  indices.reserve(vertices.size());
  for (const uint32_t v : vertices) {
    if (!HasVertex(v)) {
      return absl::InvalidArgumentError(absl::StrCat("vertex ", v, " is absent or outside [0, ", layout_.solver_index.size(), ")"));
    }
    indices.push_back(layout_.solver_index[v]);
  }
  gathered_count_ = static_cast<uint32_t>(indices.size());
  device_bytes_ -= gathered_index_.size_bytes() + gathered_.size_bytes();
  PALPATE_RETURN_IF_ERROR(Grow(queue_->context(), gathered_index_, std::max<size_t>(indices.size(), 1), "gathered_index"));
  PALPATE_RETURN_IF_ERROR(Grow(queue_->context(), gathered_, std::max<size_t>(indices.size(), 1) * 3, "gathered"));
  device_bytes_ += gathered_index_.size_bytes() + gathered_.size_bytes();
  PALPATE_RETURN_IF_ERROR(queue_->Write(gathered_index_, std::span<const uint32_t>(indices)));
  gathered_host_.assign(indices.size() * 3, 0.0F);
  return gather_positions_.SetArgs(static_cast<uint32_t>(indices.size()), x_, gathered_index_, gathered_);
}

absl::Status TissueSolver::Impl::Sweep() {
  PALPATE_RETURN_IF_ERROR(ApplyLoads());
  if (params_host_.collider_count > 0) {
    PALPATE_RETURN_IF_ERROR(queue_->Enqueue(update_contacts_, {tuning_.list_group * size_t{4}, tuning_.list_group}));
  }
  PALPATE_RETURN_IF_ERROR(UpdateFollowed());
  if (surface_) {
    PALPATE_RETURN_IF_ERROR(surface_->BeforeSweep(*queue_, x_));
    if (surface_generation_ != surface_->generation()) PALPATE_RETURN_IF_ERROR(BindSurface());
    if (driven_count_ > 0) {
      PALPATE_RETURN_IF_ERROR(queue_->Launch(move_driven_, {driven_count_, 0}, driven_count_, driven_vertices_, y_, surface_->detected(),
                                             surface_->entry_begins(), surface_->planes(), x_, touched_));
    }
  }
  for (size_t c = 0; c < layout_.color_end.size(); ++c) {
    const uint32_t count = layout_.color_end[c] - layout_.color_begin[c];
    if (count == 0) continue;
    PALPATE_RETURN_IF_ERROR(solve_color_.SetArg(1, layout_.color_begin[c]));
    PALPATE_RETURN_IF_ERROR(solve_color_.SetArg(2, count));
    PALPATE_RETURN_IF_ERROR(queue_->Enqueue(solve_color_, {size_t{count} * tuning_.team, tuning_.group}));
  }
  if (rigid_) PALPATE_RETURN_IF_ERROR(rigid_->Sweep(*queue_, Surroundings(), x_, touched_));
  return SolveHolders();
}

absl::StatusOr<double> TissueSolver::Impl::Residual() {
  PALPATE_RETURN_IF_ERROR(ApplyLoads());
  if (params_host_.collider_count > 0) {
    PALPATE_RETURN_IF_ERROR(queue_->Enqueue(update_contacts_, {tuning_.list_group * size_t{4}, tuning_.list_group}));
  }
  if (surface_) {
    PALPATE_RETURN_IF_ERROR(surface_->BeforeSweep(*queue_, x_));
    if (surface_generation_ != surface_->generation()) PALPATE_RETURN_IF_ERROR(BindSurface());
  }
  PALPATE_RETURN_IF_ERROR(UpdateFollowed());
  PALPATE_RETURN_IF_ERROR(vertex_forces_.SetArg(1, uint32_t{kAllForces}));
  PALPATE_RETURN_IF_ERROR(queue_->Enqueue(vertex_forces_, Vertices()));
  PALPATE_RETURN_IF_ERROR(queue_->ReadBlocking(forces_, std::span<Float4>(scratch_)));
  double sum = 0;
  for (uint32_t i = 0; i < layout_.free_count; ++i) {
    const Float4& f = scratch_[i];
    sum += static_cast<double>(f.x) * f.x + static_cast<double>(f.y) * f.y + static_cast<double>(f.z) * f.z;
  }
  return std::sqrt(sum / std::max(layout_.free_count, 1U));
}

/// Where the colliders go in this step. A tool that was cut short closes the gap to its target a little faster than it managed before; what
/// the target moves across that gap it follows as ever. Capsules of one tool are held back together.
void TissueSolver::Impl::Aim(std::span<const ColliderTarget> targets) {
  for (size_t leader = 0, end = 0; leader < targets.size(); leader = end) {
    end = leader + colliders_host_[leader].members;
    double over_m = 0;
    double turn_share = 1;
    const std::array<double, 3>* behind = nullptr;
    for (size_t c = leader; c < end; ++c) {
      ColliderAim& aim = aims_[c];
      aim.tip_from = ToArray(colliders_host_[c].tip);
      aim.axis_from = ToArray(colliders_host_[c].axis);
      if (const double over = Along(aim.behind, aim.tip_from, targets[c].tip_m) - aim.room_m; over > over_m) {
        over_m = over;
        behind = &aim.behind;
      }
      const double turn_m = Distance(aim.axis_from, targets[c].axis_m);
      if (turn_m > aim.turn_m) turn_share = std::min(turn_share, aim.turn_m / turn_m);
    }
    std::array<double, 3> back{};
    for (size_t k = 0; behind != nullptr && k < 3; ++k) back[k] = over_m * (*behind)[k];
    for (size_t c = leader; c < end; ++c) {
      ColliderAim& aim = aims_[c];
      std::array<double, 3> tip = targets[leader].tip_m;
      std::array<double, 3> axis = targets[c].axis_m;
      for (size_t k = 0; k < 3; ++k) {
        const double offset_from = aim.tip_from[k] - aims_[leader].tip_from[k];
        const double offset = targets[c].tip_m[k] - targets[leader].tip_m[k];
        tip[k] += offset_from + turn_share * (offset - offset_from) - back[k];
        axis[k] = aim.axis_from[k] + turn_share * (axis[k] - aim.axis_from[k]);
      }
      aim.is_short = behind != nullptr || turn_share < 1;
      // Where nothing holds it back it goes to its target to the bit.
      targets_host_[2 * c] = ToFloat4(aim.is_short ? tip : targets[c].tip_m);
      targets_host_[2 * c + 1] = ToFloat4(aim.is_short ? axis : targets[c].axis_m);
    }
  }
}

/// Obstacles are certified after surfaces, and surfaces again where that moved tissue: both take moves back to the start of the step.
absl::Status TissueSolver::Impl::CertifyObstacles(bool certified) {
  if (surface_ && !certified) return absl::OkStatus();  // the step will be undone
  ObstacleScene scene;
  scene.triangles = &triangles_;
  scene.vertex_triangle_range = &vertex_triangle_range_;
  scene.block_range = &block_range_;
  scene.corner_index = &corner_index_;
  scene.planes = &planes_;
  scene.x_start = &x_start_;
  scene.x = &x_;
  scene.colliders = &colliders_;
  scene.touched = &touched_;
  scene.rigid = rigid_.get();
  for (ColliderAim& aim : aims_) aim.cut_m = 0;
  for (int turn = 0;; ++turn) {
    PALPATE_ASSIGN_OR_RETURN(const ObstacleOutcome outcome, barrier_->Certify(*queue_, scene));
    for (size_t c = 0; c < aims_.size(); ++c) aims_[c].cut_m += outcome.cut_m[c];
    passing_colliders_ = outcome.passing;
    if (!outcome.tissue_moved || !surface_) return absl::OkStatus();
    PALPATE_ASSIGN_OR_RETURN(const bool moved_again, surface_->CertifyFromStart(*queue_, x_start_, x_, touched_));
    if (!moved_again) return absl::OkStatus();
    if (turn == kCertifyTurns) return barrier_->TakeAllBack(*queue_, scene);
  }
}

/// After a step: how far each collider was stopped short, and how far it may go next.
void TissueSolver::Impl::NoteBlocked(std::span<const ColliderTarget> targets) {
  for (size_t c = 0; c < targets.size(); ++c) {
    ColliderAim& aim = aims_[c];
    aim.room_m = aim.turn_m = std::numeric_limits<double>::infinity();
    blocked_m_[c] = aim.cut_m;
    if (colliders_host_[c].device_tip.w > 0) continue;  // what drives a coupled tool yields by itself
    if (!(aim.cut_m > 0) && !aim.is_short) continue;
    const std::array<double, 3> tip = ToArray(colliders_host_[c].tip);
    const std::array<double, 3> axis = ToArray(colliders_host_[c].axis);
    const double gap_m = Distance(tip, targets[c].tip_m);
    std::array<double, 3> end = tip;
    std::array<double, 3> end_target = targets[c].tip_m;
    for (size_t k = 0; k < 3; ++k) {
      end[k] += axis[k];
      end_target[k] += targets[c].axis_m[k];
      aim.behind[k] = gap_m > 0 ? (targets[c].tip_m[k] - tip[k]) / gap_m : 0;
    }
    blocked_m_[c] = std::max(gap_m, Distance(end, end_target));
    const double least_m = kAimShare * options_.margin_m;
    aim.room_m = kAimGrowth * std::max(Along(aim.behind, aim.tip_from, tip), 0.0) + least_m;
    if (Distance(axis, targets[c].axis_m) > least_m) aim.turn_m = kAimGrowth * Distance(aim.axis_from, axis) + least_m;
  }
}

absl::StatusOr<TissueStep> TissueSolver::Impl::Step(std::span<const ColliderTarget> targets, std::vector<double>* residuals) {
  if (targets.size() != params_host_.collider_count) {
    return absl::InvalidArgumentError(absl::StrCat(targets.size(), " collider targets for ", params_host_.collider_count, " colliders"));
  }
  TissueTimes times;
  Clock::time_point mark = Clock::now();
  Aim(targets);
  PALPATE_RETURN_IF_ERROR(queue_->Enqueue(predict_, Vertices()));
  if (!loads_.empty()) PALPATE_RETURN_IF_ERROR(ChooseLoads());
  if (driven_count_ > 0) PALPATE_RETURN_IF_ERROR(Drive());
  if (rigid_) PALPATE_RETURN_IF_ERROR(rigid_->Predict(*queue_, Surroundings(), x_, touched_));
  bool certified = false;  // surfaces are kept apart in this step
  if (surface_) {
    PALPATE_ASSIGN_OR_RETURN(certified, surface_->Begin(*queue_, x_start_, x_));
  }
  if (shapes_) PALPATE_RETURN_IF_ERROR(shapes_->Begin(*queue_, x_start_));
  if (layout_.has_viscosity) PALPATE_RETURN_IF_ERROR(queue_->Enqueue(start_strain_, {layout_.block_count, 0}));
  if (!targets.empty()) {
    PALPATE_RETURN_IF_ERROR(queue_->Write(targets_, std::span<const Float4>(targets_host_)));
    PALPATE_RETURN_IF_ERROR(queue_->Enqueue(move_colliders_, {targets.size(), 0}));
    PALPATE_RETURN_IF_ERROR(queue_->Enqueue(find_contacts_, {layout_.triangle_count, 0}));
    PALPATE_RETURN_IF_ERROR(queue_->Enqueue(list_contacts_, {tuning_.list_group, tuning_.list_group}));
    // A coupled tool was moved as if nothing touched it, which may be far into the tissue. The sweeps start from where it rests against the
    // tissue as that stands, or few of them could not bring it out again.
    for (uint32_t k = 0; any_coupled_ && k < kToolSweeps; ++k) {
      PALPATE_RETURN_IF_ERROR(queue_->Enqueue(update_contacts_, {tuning_.list_group * size_t{4}, tuning_.list_group}));
      PALPATE_RETURN_IF_ERROR(
          queue_->Enqueue(solve_colliders_, {size_t{params_host_.collider_count} * tuning_.list_group, tuning_.list_group}));
    }
  }
  if (clip_count_ > 0) {
    PALPATE_RETURN_IF_ERROR(queue_->Launch(solve_clips_, {clip_count_, 0}, params_, clip_count_, x_, anchor_begin_, anchors_, colliders_));
  }
  PALPATE_RETURN_IF_ERROR(queue_->FinishBlocking());
  times.detect_ms = MillisecondsSince(&mark);

  if (residuals != nullptr) {
    PALPATE_ASSIGN_OR_RETURN(const double residual, Residual());
    residuals->push_back(residual);
  }
  const double rho = options_.acceleration;
  double omega = 1;
  const uint32_t check_period = std::max(kMinCheckPeriod, options_.iterations / 4);
  uint32_t plain = 0;  // sweeps since the start or the last jump of the positions
  for (uint32_t k = 0; k < options_.iterations; ++k, ++plain) {
    if (certified && k > 0 && k % check_period == 0) {
      bool jumped = false;
      PALPATE_RETURN_IF_ERROR(surface_->MayDetectAgain(*queue_, x_, touched_, &jumped));
      if (jumped) {
        plain = 0;
        omega = 1;
      }
    }
    PALPATE_RETURN_IF_ERROR(Sweep());
    if (rho > 0) {
      // Two plain sweeps fill the history; then the usual Chebyshev recurrence.
      if (plain == 2) omega = 2 / (2 - rho * rho);
      if (plain > 2) omega = 4 / (4 - rho * rho * omega);
      PALPATE_RETURN_IF_ERROR(accelerate_.SetArg(1, static_cast<float>(omega)));
      PALPATE_RETURN_IF_ERROR(queue_->Enqueue(accelerate_, {layout_.free_count, 0}));
    }
    if (certified && surface_->has_free_pieces() && (k < 2 || (k + 1) % kShiftPeriod == 0 || k + 1 == options_.iterations)) {
      PALPATE_RETURN_IF_ERROR(ShiftPieces());
    }
    if (residuals != nullptr) {
      PALPATE_ASSIGN_OR_RETURN(const double residual, Residual());
      residuals->push_back(residual);
    }
  }
  if (certified) PALPATE_RETURN_IF_ERROR(surface_->Certify(*queue_, x_, touched_));
  if (barrier_) PALPATE_RETURN_IF_ERROR(CertifyObstacles(certified));
  PALPATE_RETURN_IF_ERROR(queue_->FinishBlocking());
  times.solve_ms = MillisecondsSince(&mark);
  ++steps_;
  PALPATE_ASSIGN_OR_RETURN(const TissueStep step, Collect(times, true));
  NoteBlocked(targets);
  return step;
}

absl::StatusOr<TissueStep> TissueSolver::Impl::Collect(TissueTimes times, bool advance) {
  Clock::time_point mark = Clock::now();
  const bool contacts_possible = params_host_.collider_count + params_host_.plane_count > 0;
  if (advance) {
    if (params_host_.collider_count > 0) {
      PALPATE_RETURN_IF_ERROR(queue_->Enqueue(update_contacts_, {tuning_.list_group * size_t{4}, tuning_.list_group}));
      PALPATE_RETURN_IF_ERROR(queue_->Enqueue(finish_colliders_, {params_host_.collider_count, 0}));
    }
    PALPATE_RETURN_IF_ERROR(queue_->Enqueue(finish_step_, Partials()));
  }
  uint32_t report_count = 0;
  const auto report = [&]() -> absl::Status {
    PALPATE_RETURN_IF_ERROR(queue_->Fill(report_count_, 0U));
    const size_t local = tuning_.list_group;
    PALPATE_RETURN_IF_ERROR(queue_->Launch(report_contacts_, {local * 4, local}, params_, static_cast<uint32_t>(reports_.count()), x_,
                                           x_start_, triangles_, colliders_, list_, contacts_, planes_, vertex_triangle_range_,
                                           report_count_, reports_));
    reports_host_.resize(reports_.count());
    PALPATE_RETURN_IF_ERROR(queue_->EnqueueRead(report_count_, std::span<uint32_t>(&report_count, 1)));
    return queue_->EnqueueRead(reports_, std::span<ContactReport>(reports_host_));
  };
  if (contacts_possible && advance) PALPATE_RETURN_IF_ERROR(report());
  if (!anchors_host_.empty() && advance) {
    const auto count = static_cast<uint32_t>(anchors_host_.size());
    PALPATE_RETURN_IF_ERROR(queue_->Launch(report_anchors_, {count, 0}, count, x_, anchors_, colliders_, anchor_reports_));
    PALPATE_RETURN_IF_ERROR(queue_->EnqueueRead(anchor_reports_, std::span<AnchorReport>(anchor_reports_sorted_)));
  }
  surface_reports_.clear();
  if (surface_ && advance) {
    PALPATE_ASSIGN_OR_RETURN(const std::span<const SurfaceReport> surface_reports, surface_->Report(*queue_, x_, x_start_));
    surface_reports_.assign(surface_reports.begin(), surface_reports.end());
    const auto original = [&](uint32_t v) { return layout_.original_index[v]; };
    for (SurfaceReport& r : surface_reports_) {
      if (r.kind == PALPATE_VERTEX_TRIANGLE) r.a = original(r.a);
      r.vertices = {original(r.vertices.x), original(r.vertices.y), original(r.vertices.z), original(r.vertices.w)};
    }
  }
  PALPATE_RETURN_IF_ERROR(queue_->FinishBlocking());
  times.forces_ms = MillisecondsSince(&mark);

  if (report_count > reports_.count()) {  // grow and run the stage again
    PALPATE_RETURN_IF_ERROR(Make(&reports_, size_t{report_count} * 2, "contact_reports"));
    PALPATE_RETURN_IF_ERROR(report());
    PALPATE_RETURN_IF_ERROR(queue_->FinishBlocking());
  }
  reports_host_.resize(report_count);
  std::sort(reports_host_.begin(), reports_host_.end(), [](const ContactReport& a, const ContactReport& b) {
    return std::tie(a.collider, a.triangle, a.arm) < std::tie(b.collider, b.triangle, b.arm);
  });
  for (ContactReport& r : reports_host_) {
    if (r.collider == kPlaneContact) r.triangle = layout_.original_index[r.triangle];
  }

  if (gathered_count_ > 0) {
    PALPATE_RETURN_IF_ERROR(queue_->Enqueue(gather_positions_, {gathered_count_, 0}));
    PALPATE_RETURN_IF_ERROR(queue_->EnqueueRead(gathered_, std::span<float>(gathered_host_)));
  }
  if (!colliders_host_.empty()) PALPATE_RETURN_IF_ERROR(queue_->EnqueueRead(colliders_, std::span<Collider>(colliders_host_)));
  PALPATE_RETURN_IF_ERROR(queue_->ReadBlocking(partials_, std::span<StepPartial>(partials_host_)));

  TissueStep step;
  strained_tets_ = inverted_elastic_ = 0;
  for (const StepPartial& partial : partials_host_) {
    step.hash += partial.hash;
    step.kinetic_energy_j += partial.kinetic_energy_j;
    step.max_speed_m_per_s = std::max<double>(step.max_speed_m_per_s, partial.max_speed_m_per_s);
    step.bad_vertices += partial.bad_vertices;
    step.inverted_tets += partial.inverted_tets;
    strained_tets_ += partial.strained_tets;
    inverted_elastic_ += partial.inverted_elastic;
  }
  if (advance && step.bad_vertices == 0) PALPATE_RETURN_IF_ERROR(UpdateRecovery(step));
  if (rigid_) {
    if (advance) {
      PALPATE_RETURN_IF_ERROR(step.bad_vertices == 0 ? rigid_->Finish(*queue_, Surroundings()) : rigid_->Undo(*queue_));
    }
    PALPATE_ASSIGN_OR_RETURN(const std::span<const RigidBlockState> states, rigid_->ReadStates(*queue_));
    AddRigid(states, &step);
  }
  step.recovering = recovery_left_s_ > 0;
  if (step.bad_vertices > 0) {  // keep the last good state
    PALPATE_RETURN_IF_ERROR(queue_->Copy(x_start_, x_, layout_.vertex_count));
    PALPATE_RETURN_IF_ERROR(queue_->Copy(velocity_before_, velocity_, layout_.vertex_count));
    if (gathered_count_ > 0) {
      PALPATE_RETURN_IF_ERROR(queue_->Enqueue(gather_positions_, {gathered_count_, 0}));
      PALPATE_RETURN_IF_ERROR(queue_->EnqueueRead(gathered_, std::span<float>(gathered_host_)));
    }
    PALPATE_RETURN_IF_ERROR(queue_->FinishBlocking());
  }
  step.contacts = reports_host_;
  step.surface_contacts = surface_reports_;
  if (surface_) step.surface = surface_->statistics();
  step.colliders = colliders_host_;
  step.blocked_m = blocked_m_;
  step.passing_colliders = passing_colliders_;
  if (advance) {
    for (size_t i = 0; i < anchor_place_.size(); ++i) anchor_reports_host_[i] = anchor_reports_sorted_[anchor_place_[i]];
  }
  step.anchors = anchor_reports_host_;
  step.gathered_m = gathered_host_;
  times.readback_ms = MillisecondsSince(&mark);
  step.times = times;
  return step;
}

absl::Status TissueSolver::Impl::UpdateRecovery(const TissueStep& step) {
  const bool was_recovering = recovery_left_s_ > 0;
  if (!was_recovering) {
    if (inverted_elastic_ > kTangledShare * static_cast<double>(layout_.live_tet_count)) return StartRecovery();
  } else {
    recovery_left_s_ -= options_.dt_s;
    calm_s_ = step.inverted_tets + strained_tets_ == 0 ? calm_s_ + options_.dt_s : 0;
    if (calm_s_ >= kRecoveryCalm_s) recovery_left_s_ = 0;
  }
  const bool recovering = recovery_left_s_ > 0;
  if (recovering == was_recovering) return absl::OkStatus();
  if (!recovering && surface_ && was_given_tangled_) {
    was_given_tangled_ = false;
    PALPATE_RETURN_IF_ERROR(surface_->SetSelfCollision(*queue_, true));
    PALPATE_RETURN_IF_ERROR(surface_->Reset(*queue_, x_));
  }
  params_host_.lambda_cap = PALPATE_LAMBDA_UNCAPPED;
  return queue_->Write(params_, std::span<const StepParams>(&params_host_, 1));
}

absl::Status TissueSolver::Impl::StartRecovery() {
  recovery_left_s_ = kRecoveryLimit_s;
  calm_s_ = 0;
  params_host_.lambda_cap = kRecoveryLambdaCap;
  return queue_->Write(params_, std::span<const StepParams>(&params_host_, 1));
}

absl::Status TissueSolver::Impl::Reset() {
  recovery_left_s_ = 0;
  steps_ = 0;
  params_host_.lambda_cap = PALPATE_LAMBDA_UNCAPPED;
  PALPATE_RETURN_IF_ERROR(queue_->Write(params_, std::span<const StepParams>(&params_host_, 1)));
  PALPATE_RETURN_IF_ERROR(queue_->Write(x_, std::span<const Float4>(rest_positions_)));
  if (rigid_) PALPATE_RETURN_IF_ERROR(rigid_->Reset(*queue_, x_, touched_));
  PALPATE_RETURN_IF_ERROR(queue_->Copy(x_, x_start_, layout_.vertex_count));
  PALPATE_RETURN_IF_ERROR(queue_->Fill(velocity_, Float4{}));
  PALPATE_RETURN_IF_ERROR(queue_->Fill(velocity_before_, FallenFromRest()));
  PALPATE_RETURN_IF_ERROR(queue_->Fill(triangle_colliders_, 0U));
  PALPATE_RETURN_IF_ERROR(queue_->Fill(list_, 0U));
  if (rotations_.count() > 0) PALPATE_RETURN_IF_ERROR(queue_->Fill(rotations_, Float4{0, 0, 0, 1}));
  PALPATE_RETURN_IF_ERROR(SetAnchors({}, 0));
  PALPATE_RETURN_IF_ERROR(HoldPrescribed(rest_positions_));
  if (!initial_colliders_.empty()) {
    PALPATE_RETURN_IF_ERROR(queue_->Write(colliders_, std::span<const Collider>(initial_colliders_)));
  }
  colliders_host_ = initial_colliders_;
  std::fill(blocked_m_.begin(), blocked_m_.end(), 0.0);
  std::fill(aims_.begin(), aims_.end(), ColliderAim{});
  if (surface_) {
    was_given_tangled_ = false;
    PALPATE_RETURN_IF_ERROR(surface_->SetSelfCollision(*queue_, true));
    PALPATE_RETURN_IF_ERROR(surface_->Reset(*queue_, x_));
  }
  PALPATE_RETURN_IF_ERROR(queue_->Enqueue(finish_step_, Partials()));
  return queue_->FinishBlocking();
}

absl::Status TissueSolver::Impl::CheckFloats(size_t count) const {
  if (count == layout_.solver_index.size() * 3) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(count, " floats for ", layout_.solver_index.size(), " vertices"));
}

/// From the solver's order to the caller's; absent vertices have zeros.
void TissueSolver::Impl::ScatterScratch(std::span<float> values) const {
  for (size_t v = 0; v < layout_.solver_index.size(); ++v) {
    const uint32_t slot = layout_.solver_index[v];
    const Float4 value = slot == kNoTissueVertex ? Float4{} : scratch_[slot];
    values[3 * v] = value.x;
    values[3 * v + 1] = value.y;
    values[3 * v + 2] = value.z;
  }
}

absl::Status TissueSolver::Impl::ReadPositions(std::span<float> positions_m) {
  PALPATE_RETURN_IF_ERROR(CheckFloats(positions_m.size()));
  PALPATE_RETURN_IF_ERROR(queue_->ReadBlocking(x_, std::span<Float4>(scratch_)));
  ScatterScratch(positions_m);
  return absl::OkStatus();
}

absl::Status TissueSolver::Impl::WriteState(std::span<const float> positions_m, std::span<const float> velocities) {
  const size_t n = layout_.vertex_count;
  PALPATE_RETURN_IF_ERROR(CheckFloats(positions_m.size()));
  if (!velocities.empty()) PALPATE_RETURN_IF_ERROR(CheckFloats(velocities.size()));
  const auto ordered = [&](std::span<const float> values) {
    for (size_t i = 0; i < n; ++i) {
      scratch_[i] = {};
      if (layout_.original_index[i] == kNoTissueVertex) continue;
      const float* const v = &values[size_t{layout_.original_index[i]} * 3];
      scratch_[i] = {v[0], v[1], v[2], 0.0F};
    }
    return std::span<const Float4>(scratch_);
  };
  PALPATE_RETURN_IF_ERROR(queue_->Write(x_, ordered(positions_m)));
  PALPATE_RETURN_IF_ERROR(HoldPrescribed(scratch_));
  if (rigid_) {
    const std::vector<Float4> positions = scratch_;
    std::vector<Float4> speeds;
    if (!velocities.empty()) {
      const auto given = ordered(velocities);
      speeds.assign(given.begin(), given.end());
    }
    PALPATE_RETURN_IF_ERROR(rigid_->Fit(*queue_, positions, speeds, x_, touched_));
  }
  PALPATE_RETURN_IF_ERROR(queue_->Copy(x_, x_start_, n));
  if (surface_) {
    // A mesh inside out must pass through itself to find its shape.
    PALPATE_RETURN_IF_ERROR(queue_->Enqueue(finish_step_, Partials()));
    PALPATE_RETURN_IF_ERROR(queue_->ReadBlocking(partials_, std::span<StepPartial>(partials_host_)));
    uint32_t inverted = 0;
    for (const StepPartial& partial : partials_host_) inverted += partial.inverted_tets;
    was_given_tangled_ = inverted > kTangledShare * static_cast<double>(layout_.live_tet_count);
    if (was_given_tangled_) PALPATE_RETURN_IF_ERROR(StartRecovery());
    PALPATE_RETURN_IF_ERROR(surface_->SetSelfCollision(*queue_, !was_given_tangled_));
    PALPATE_RETURN_IF_ERROR(surface_->Reset(*queue_, x_));
  }
  if (velocities.empty()) {
    PALPATE_RETURN_IF_ERROR(queue_->Fill(velocity_, Float4{}));
    return queue_->Fill(velocity_before_, FallenFromRest());
  }
  PALPATE_RETURN_IF_ERROR(queue_->Write(velocity_, ordered(velocities)));
  const Float4 before = FallenFromRest();
  for (size_t i = 0; i < n; ++i) {
    Float4& v = scratch_[i];
    const float braked = 1 + params_host_.dt_s * layout_.mass_damping_per_s[i];
    v = {braked * v.x + before.x, braked * v.y + before.y, braked * v.z + before.z, 0.0F};
  }
  return queue_->Write(velocity_before_, std::span<const Float4>(scratch_));
}

absl::Status TissueSolver::Impl::ReadState(std::span<TissueVertexState> states) {
  const size_t n = layout_.vertex_count;
  if (states.size() != layout_.solver_index.size()) {
    return absl::InvalidArgumentError(absl::StrCat(states.size(), " states for ", layout_.solver_index.size(), " vertices"));
  }
  std::vector<Float4> velocities(n);
  std::vector<Float4> velocities_before(n);
  PALPATE_RETURN_IF_ERROR(queue_->EnqueueRead(x_, std::span<Float4>(scratch_)));
  PALPATE_RETURN_IF_ERROR(queue_->EnqueueRead(velocity_, std::span<Float4>(velocities)));
  PALPATE_RETURN_IF_ERROR(queue_->ReadBlocking(velocity_before_, std::span<Float4>(velocities_before)));
  for (size_t v = 0; v < states.size(); ++v) {
    const uint32_t i = layout_.solver_index[v];
    states[v] = i == kNoTissueVertex ? TissueVertexState{} : TissueVertexState{scratch_[i], velocities[i], velocities_before[i]};
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<TissueSolver::Impl>> TissueSolver::Impl::Rebuilt(const TissueModel& model,
                                                                                std::span<const TissueVertexState> states) {
  if (states.size() != model.rest_m.size()) {
    return absl::InvalidArgumentError(absl::StrCat(states.size(), " states for ", model.rest_m.size(), " vertices"));
  }
  auto next = std::make_unique<Impl>();
  PALPATE_RETURN_IF_ERROR(next->Init(queue_, model, options_, collider_descriptions_, plane_obstacles_, tuning_, this));
  PALPATE_RETURN_IF_ERROR(next->GoOnFrom(*this, states));
  return next;
}

absl::Status TissueSolver::Impl::GoOnFrom(Impl& old, std::span<const TissueVertexState> states) {
  const uint32_t n = layout_.vertex_count;
  const float stiffness_n_per_m = old.params_host_.stiffness_n_per_m;
  params_host_.stiffness_n_per_m = stiffness_n_per_m;
  params_host_.lambda_cap = old.params_host_.lambda_cap;
  PALPATE_RETURN_IF_ERROR(queue_->Write(params_, std::span<const StepParams>(&params_host_, 1)));
  steps_ = old.steps_;
  was_given_tangled_ = old.was_given_tangled_;
  recovery_left_s_ = old.recovery_left_s_;
  calm_s_ = old.calm_s_;
  initial_colliders_ = old.initial_colliders_;
  PALPATE_RETURN_IF_ERROR(queue_->Copy(old.colliders_, colliders_, colliders_.count()));
  colliders_host_ = old.colliders_host_;
  blocked_m_ = old.blocked_m_;
  aims_ = old.aims_;
  passing_colliders_ = old.passing_colliders_;

  std::vector<Float4> positions(n);
  std::vector<Float4> velocities(n);
  std::vector<Float4> velocities_before(n);
  for (uint32_t i = 0; i < n; ++i) {
    if (layout_.original_index[i] == kNoTissueVertex) continue;
    const TissueVertexState& state = states[layout_.original_index[i]];
    positions[i] = state.position_m;
    velocities[i] = state.velocity_m_per_s;
    velocities_before[i] = state.velocity_before_m_per_s;
  }
  PALPATE_RETURN_IF_ERROR(queue_->Write(x_, std::span<const Float4>(positions)));
  PALPATE_RETURN_IF_ERROR(HoldPrescribed(positions));
  PALPATE_RETURN_IF_ERROR(queue_->Write(velocity_, std::span<const Float4>(velocities)));
  PALPATE_RETURN_IF_ERROR(queue_->Write(velocity_before_, std::span<const Float4>(velocities_before)));
  if (rotations_.count() > 0) PALPATE_RETURN_IF_ERROR(queue_->Fill(rotations_, Float4{0, 0, 0, 1}));
  PALPATE_RETURN_IF_ERROR(ForgetContacts());
  if (rigid_) PALPATE_RETURN_IF_ERROR(rigid_->GoOnFrom(*queue_, *old.rigid_));
  if (surface_) {
    PALPATE_RETURN_IF_ERROR(surface_->SetSelfCollision(*queue_, !was_given_tangled_));
    PALPATE_RETURN_IF_ERROR(surface_->Reset(*queue_, x_));
  }
  return queue_->FinishBlocking();
}

/// After an edit: the state is that of the end of a step in which nothing touched a tool.
absl::Status TissueSolver::Impl::ForgetContacts() {
  PALPATE_RETURN_IF_ERROR(queue_->Enqueue(inspect_state_, Partials()));
  PALPATE_RETURN_IF_ERROR(queue_->Copy(x_, x_start_, layout_.vertex_count));
  PALPATE_RETURN_IF_ERROR(queue_->Fill(triangle_colliders_, 0U));
  return queue_->Fill(list_, 0U, 1);
}

/// Hands the changed entries to writer_.
absl::Status TissueSolver::Impl::WriteDelta(const TissueLayoutDelta& delta, std::span<const TissueVertexState> states) {
  const size_t lanes = layout_.lanes;
  RunWriter& w = *writer_;
  PALPATE_RETURN_IF_ERROR(w.Add(params_, std::span<const StepParams>(&params_host_, 1), 0));
  PALPATE_RETURN_IF_ERROR(w.AddElements(mass_, layout_.mass_kg, delta.slots));
  PALPATE_RETURN_IF_ERROR(w.AddElements(mass_damping_, layout_.mass_damping_per_s, delta.slots));
  PALPATE_RETURN_IF_ERROR(w.AddElements(original_index_, layout_.original_index, delta.slots));
  PALPATE_RETURN_IF_ERROR(w.AddElements(block_range_, layout_.block_range, delta.slots));
  PALPATE_RETURN_IF_ERROR(w.AddElements(vertex_triangle_range_, layout_.vertex_triangle_range, delta.slots));
  PALPATE_RETURN_IF_ERROR(w.AddElements(vertex_triangles_, layout_.vertex_triangles, delta.fan_places));
  PALPATE_RETURN_IF_ERROR(w.AddElements(block_vertex_, layout_.block_vertex, delta.blocks));
  PALPATE_RETURN_IF_ERROR(w.AddElements(corner_real_, layout_.corner_real, delta.blocks, layout_.corner_reals * lanes));
  PALPATE_RETURN_IF_ERROR(w.AddElements(corner_index_, layout_.corner_index, delta.blocks, 4 * lanes));
  PALPATE_RETURN_IF_ERROR(w.AddElements(tets_, layout_.tets, delta.tets));
  PALPATE_RETURN_IF_ERROR(w.AddElements(tet_rest_, layout_.tet_rest, delta.tets, 3));
  PALPATE_RETURN_IF_ERROR(w.AddElements(triangles_, layout_.triangles, delta.triangles));
  const Float4 identity{0, 0, 0, 1};
  for (const uint32_t t : delta.tets) {
    if (rotations_.count() > 0) PALPATE_RETURN_IF_ERROR(w.Add(rotations_, std::span<const Float4>(&identity, 1), t));
  }
  const auto write_state = [&](uint32_t slot, const TissueVertexState& state) -> absl::Status {
    PALPATE_RETURN_IF_ERROR(w.Add(x_, std::span<const Float4>(&state.position_m, 1), slot));
    PALPATE_RETURN_IF_ERROR(w.Add(velocity_, std::span<const Float4>(&state.velocity_m_per_s, 1), slot));
    return w.Add(velocity_before_, std::span<const Float4>(&state.velocity_before_m_per_s, 1), slot);
  };
  for (const uint32_t slot : delta.slots) {
    if (layout_.original_index[slot] == kNoTissueVertex) PALPATE_RETURN_IF_ERROR(write_state(slot, {}));
  }
  for (const uint32_t v : delta.state_vertices) PALPATE_RETURN_IF_ERROR(write_state(layout_.solver_index[v], states[v]));
  return absl::OkStatus();
}

absl::StatusOr<bool> TissueSolver::Impl::Update(const TissueModel& model, const TissueChange& change,
                                                std::span<const TissueVertexState> states) {
  if (states.size() != model.rest_m.size()) {
    return absl::InvalidArgumentError(absl::StrCat(states.size(), " states for ", model.rest_m.size(), " vertices"));
  }
  const bool had_surface_contact = layout_.has_surface_contact;
  const bool has_surface_contact = model.self_collision.size() > 1 || (!model.self_collision.empty() && model.self_collision[0] != 0);
  if (!editor_ || has_surface_contact != had_surface_contact) return false;
  if (!prescribed_host_.empty() || !model.prescribed.vertices.empty()) return false;
  PALPATE_ASSIGN_OR_RETURN(const bool fits, editor_->Apply(model, change));
  if (!fits) return false;
  const TissueLayoutDelta& delta = editor_->delta();
  params_host_.triangle_count = layout_.triangle_count;
  params_host_.tet_count = layout_.tet_count;
  for (const uint32_t slot : delta.slots) rest_positions_[slot] = layout_.rest_m[slot];
  PALPATE_RETURN_IF_ERROR(WriteDelta(delta, states));
  if (surface_) {
    PALPATE_ASSIGN_OR_RETURN(const bool follows, surface_->Follow(delta, &*writer_));
    if (!follows) return false;
  }
  delta_bytes_ = writer_->pending_bytes();
  PALPATE_RETURN_IF_ERROR(writer_->Flush(*queue_));
  PALPATE_RETURN_IF_ERROR(start_strain_.SetArg(0, layout_.block_count));
  if (shapes_ && TouchesShapes(model, change, delta)) {
    PALPATE_RETURN_IF_ERROR(MakeShapes(model));
    PALPATE_RETURN_IF_ERROR(BindShapes());
  }
  if (barrier_) barrier_->SetTriangleCount(layout_.triangle_count);
  PALPATE_RETURN_IF_ERROR(MakeDriven(model));
  if (!loads_.empty()) PALPATE_RETURN_IF_ERROR(MakeLoads(model));
  PALPATE_RETURN_IF_ERROR(SetAnchors({}, 0));
  gathered_count_ = 0;
  gathered_host_.clear();
  PALPATE_RETURN_IF_ERROR(ForgetContacts());
  if (surface_) {
    uint32_t inverted = 0;
    PALPATE_RETURN_IF_ERROR(queue_->ReadBlocking(partials_, std::span<StepPartial>(partials_host_)));
    for (const StepPartial& partial : partials_host_) inverted += partial.inverted_tets;
    PALPATE_RETURN_IF_ERROR(surface_->GoOn(*queue_, x_, inverted > 0));
  }
  PALPATE_RETURN_IF_ERROR(queue_->FinishBlocking());
  return true;
}

absl::Status TissueSolver::Impl::ReadForces(uint32_t parts, std::span<float> forces_n) {
  PALPATE_RETURN_IF_ERROR(CheckFloats(forces_n.size()));
  if (steps_ > 0) PALPATE_RETURN_IF_ERROR(ApplyLoads());
  PALPATE_RETURN_IF_ERROR(UpdateFollowed());
  PALPATE_RETURN_IF_ERROR(vertex_forces_.SetArg(1, parts));
  PALPATE_RETURN_IF_ERROR(queue_->Enqueue(vertex_forces_, Vertices()));
  PALPATE_RETURN_IF_ERROR(queue_->ReadBlocking(forces_, std::span<Float4>(scratch_)));
  ScatterScratch(forces_n);
  return absl::OkStatus();
}

TissueSolver::TissueSolver(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TissueSolver::~TissueSolver() = default;

absl::StatusOr<std::unique_ptr<TissueSolver>> TissueSolver::Create(std::shared_ptr<Context> context, const TissueModel& model,
                                                                   const TissueOptions& options,
                                                                   std::span<const ColliderDescription> colliders,
                                                                   std::span<const PlaneObstacle> planes, const TissueTuning& tuning) {
  auto impl = std::make_unique<Impl>();
  PALPATE_ASSIGN_OR_RETURN(std::unique_ptr<Queue> queue, Queue::Create(std::move(context)));
  PALPATE_RETURN_IF_ERROR(impl->Init(std::move(queue), model, options, colliders, planes, tuning));
  PALPATE_RETURN_IF_ERROR(impl->Reset());
  return std::unique_ptr<TissueSolver>(new TissueSolver(std::move(impl)));
}

absl::Status TissueSolver::SetGathered(std::span<const uint32_t> vertices) { return impl_->SetGathered(vertices); }
absl::Status TissueSolver::SetAnchors(std::span<const TissueAnchor> anchors, uint32_t clip_count) {
  return impl_->SetAnchors(anchors, clip_count);
}
absl::Status TissueSolver::SetPrescribed(std::span<const float> positions_m) { return impl_->SetPrescribed(positions_m); }
absl::StatusOr<TissueStep> TissueSolver::Step(std::span<const ColliderTarget> targets) { return impl_->Step(targets, nullptr); }
absl::StatusOr<TissueStep> TissueSolver::Inspect() { return impl_->Collect({}, false); }
absl::Status TissueSolver::Reset() { return impl_->Reset(); }
absl::Status TissueSolver::ReadPositions(std::span<float> positions_m) { return impl_->ReadPositions(positions_m); }
absl::Status TissueSolver::WriteState(std::span<const float> positions_m, std::span<const float> velocities_m_per_s) {
  return impl_->WriteState(positions_m, velocities_m_per_s);
}
absl::Status TissueSolver::ReadState(std::span<TissueVertexState> states) { return impl_->ReadState(states); }
absl::Status TissueSolver::Rebuild(const TissueModel& model, std::span<const TissueVertexState> states) {
  PALPATE_ASSIGN_OR_RETURN(std::unique_ptr<Impl> next, impl_->Rebuilt(model, states));
  impl_ = std::move(next);
  ++edit_counts_.rebuilds;
  return absl::OkStatus();
}
absl::StatusOr<bool> TissueSolver::Update(const TissueModel& model, const TissueChange& change, std::span<const TissueVertexState> states) {
  PALPATE_ASSIGN_OR_RETURN(const bool fits, impl_->Update(model, change, states));
  if (!fits) return false;
  ++edit_counts_.deltas;
  edit_counts_.delta_bytes = impl_->delta_bytes();
  return true;
}
absl::Status TissueSolver::ReadForces(uint32_t parts, std::span<float> forces_n) { return impl_->ReadForces(parts, forces_n); }
absl::StatusOr<std::vector<double>> TissueSolver::StepMeasuringResidual(std::span<const ColliderTarget> targets) {
  std::vector<double> residuals;
  PALPATE_RETURN_IF_ERROR(impl_->Step(targets, &residuals).status());
  return residuals;
}
const TissueLayout& TissueSolver::layout() const { return impl_->layout(); }
uint32_t TissueSolver::color_count() const {
  const TissueLayout& layout = impl_->layout();
  uint32_t count = 0;
  for (size_t c = 0; c < layout.color_end.size(); ++c) count += layout.color_end[c] > layout.color_begin[c] ? 1 : 0;
  return count;
}
size_t TissueSolver::device_bytes() const { return impl_->device_bytes(); }
double TissueSolver::contact_stiffness_n_per_m() const { return impl_->stiffness(); }
const StepParams& TissueSolver::step_params() const { return impl_->params(); }

}  // namespace palpate::gpu
