#include "gpu/dynamics/tissue_solver.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/dynamics/float4.h"
#include "gpu/dynamics/tissue_solver_impl.h"

namespace palpate::gpu {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kShiftPeriod = 3;            // sweeps between moves of whole components
constexpr uint32_t kCorrectionPeriod = 5;       // sweeps between coarse corrections, the first after the first
constexpr uint32_t kNurbsCorrectionPeriod = 2;  // likewise, between corrections of NURBS shells
constexpr uint32_t kSettlingSweeps = 6;         // of rigid bodies alone, after the last one of a step with NURBS shells
constexpr uint32_t kMinCheckPeriod = 4;         // sweeps between looks at how far surfaces moved
constexpr int kCertifyTurns = 3;                // of obstacles and surfaces, each of which may undo what the other found safe

double MillisecondsSince(Clock::time_point* mark) {
  const Clock::time_point now = Clock::now();
  const double ms = std::chrono::duration<double, std::milli>(now - *mark).count();
  *mark = now;
  return ms;
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

/// Likewise the motion of control points, whose masses are lumped.
void AddNurbs(const NurbsShells& shells, TissueStep* step) {
  for (size_t j = 0; j < shells.states().size(); ++j) {
    const Float4& v = shells.states()[j].velocity;
    const double speed_sq = static_cast<double>(v.x) * v.x + static_cast<double>(v.y) * v.y + static_cast<double>(v.z) * v.z;
    step->kinetic_energy_j += shells.MassAt(j) * speed_sq / 2;
    step->max_speed_m_per_s = std::max(step->max_speed_m_per_s, std::sqrt(speed_sq));
    for (const float value : {v.x, v.y, v.z}) {
      step->hash = (step->hash ^ std::bit_cast<uint32_t>(value)) * 0x9e3779b97f4a7c15ULL;
      step->hash ^= step->hash >> 29;
    }
  }
}

}  // namespace

absl::StatusOr<TissueStep> TissueSolver::Impl::Step(std::span<const ColliderTarget> targets, const std::function<void()>& before_tools,
                                                    std::vector<double>* residuals) {
  if (targets.size() != tools_.collider_count()) {
    return absl::InvalidArgumentError(absl::StrCat(targets.size(), " collider targets for ", tools_.collider_count(), " colliders"));
  }
  const Clock::time_point begin = Clock::now();
  queue_->StampNext(&clock_.begin_ms);
  PALPATE_ASSIGN_OR_RETURN(std::optional<SweptSurfaces> swept, Predict());
  PALPATE_RETURN_IF_ERROR(sweeps_.Begin(*queue_, tissue_));
  if (before_tools) before_tools();
  PALPATE_RETURN_IF_ERROR(tools_.Begin(*queue_, layout_.triangle_count, aims_.Aim(tools_.states(), targets)));
  if (tools_.any_coupled()) PALPATE_RETURN_IF_ERROR(SolveToolsAlone());
  PALPATE_RETURN_IF_ERROR(anchors_.SolveClips(*queue_, tissue_, tools_.colliders()));

  queue_->StampNext(&clock_.solve_ms);
  PALPATE_RETURN_IF_ERROR(BeginSweeps());
  std::optional<CertifiedSurfaces> certified;
  const bool ran_ahead = residuals == nullptr && CanRunAhead(swept);
  if (ran_ahead) {
    PALPATE_ASSIGN_OR_RETURN(certified, RunAhead(swept));
  }
  if (!ran_ahead || gate_.closed_by() != StepGate::kOpen) {
    const bool sweeps_are_done = ran_ahead && gate_.closed_by() == StepGate::kEnd;
    if (ran_ahead) PALPATE_RETURN_IF_ERROR(gate_.Open(*queue_, tissue_.gate));
    if (!sweeps_are_done) PALPATE_RETURN_IF_ERROR(SweepAll(swept, residuals));
    PALPATE_ASSIGN_OR_RETURN(certified, Certify(std::move(swept)));
    PALPATE_RETURN_IF_ERROR(FinishStep(certified));
    PALPATE_RETURN_IF_ERROR(queue_->FinishBlocking());
  }
  ++steps_;
  Clock::time_point mark = begin;
  TissueTimes times = clock_.Times(MillisecondsSince(&mark));
  PALPATE_RETURN_IF_ERROR(TakeReports(certified));
  PALPATE_ASSIGN_OR_RETURN(TissueStep step, Close(/*advance=*/true));
  times.readback_ms = MillisecondsSince(&mark);
  step.times = times;
  aims_.Note(tools_.states(), targets);
  return step;
}

absl::StatusOr<TissueStep> TissueSolver::Impl::Inspect() {
  tools_.ForgetReport();
  surface_reports_.clear();
  PALPATE_RETURN_IF_ERROR(EnqueueReads());
  PALPATE_RETURN_IF_ERROR(queue_->FinishBlocking());
  return Close(/*advance=*/false);
}

absl::Status TissueSolver::Impl::SolveToolsAlone() {
  if (!sweeps_.HasPhases()) return tools_.SolveAlone(*queue_, tissue_);
  PALPATE_RETURN_IF_ERROR(BindNewPairs());
  return sweeps_.RunPhases(*queue_, {.colors = false, .contacts = true, .colliders = tools_.collider_count()}, ToolContacts::kSweepsAlone,
                           surface_.get());
}

/// The first guess of all vertices; where surfaces meet, a certified one, or nothing if it is not finite.
absl::StatusOr<std::optional<SweptSurfaces>> TissueSolver::Impl::Predict() {
  PALPATE_RETURN_IF_ERROR(queue_->Enqueue(predict_, {layout_.vertex_count, 0}));
  PALPATE_RETURN_IF_ERROR(air_.Apply(*queue_, tissue_, Surroundings(), rigid_.get()));
  if (!loads_.empty()) PALPATE_RETURN_IF_ERROR(loads_.Begin(*queue_, tissue_, static_cast<double>(steps_) * options_.dt_s));
  if (driven_.count() > 0) PALPATE_RETURN_IF_ERROR(driven_.Begin(*queue_, tissue_, static_cast<double>(steps_ + 1) * options_.dt_s));
  const bool holds_shells = rigid_ && rigid_->holds_shells();
  if (rigid_ && !holds_shells) PALPATE_RETURN_IF_ERROR(rigid_->Predict(*queue_, Surroundings(), tissue_.x, tissue_.touched));
  if (nurbs_) {
    const double end_s = static_cast<double>(steps_ + 1) * options_.dt_s;
    PALPATE_RETURN_IF_ERROR(nurbs_->Predict(*queue_, tissue_.params, tissue_.x, end_s));
    PALPATE_RETURN_IF_ERROR(nurbs_->PushByAir(*queue_, tissue_, air_));
  }
  if (holds_shells) PALPATE_RETURN_IF_ERROR(rigid_->Predict(*queue_, Surroundings(), tissue_.x, tissue_.touched));
  if (!surface_) return std::nullopt;
  PALPATE_RETURN_IF_ERROR(surface_->LiftGuess(*queue_, tools_.planes_host(), tools_.planes(), tissue_.x_start, tissue_.x));
  return surface_->Begin(*queue_, tissue_.x_start, tissue_.x, tissue_.touched);
}

absl::Status TissueSolver::Impl::BeginSweeps() {
  sweep_count_ = 0;
  PALPATE_RETURN_IF_ERROR(sweeps_.BeginSweeps(*queue_));
  return correction_ && !recovery_.active() ? correction_->Begin(*queue_, tissue_) : absl::OkStatus();
}

/// Whether all that changes the state between the start of the sweeps and the end of the step obeys the gate, or does the same again.
bool TissueSolver::Impl::CanRunAhead(const std::optional<SweptSurfaces>& swept) const {
  if (!sweeps_.HasPhases() || sweeps_.UpdatesEachSweep() || rigid_ || nurbs_ || options_.tolerance_m_per_s2 > 0) return false;
  if (!surface_) return barrier_ != nullptr;
  return swept && swept->can_run_ahead() && driven_.count() == 0 &&
         (!surface_->components().has_free() || surface_->components().are_on_device());
}

/// The sweeps and the end of the step as if no check found anything, in one wait. If the gate is open then, the step is done. Else sweeps
/// go on from where it was closed; kEnd: they are done.
absl::StatusOr<std::optional<CertifiedSurfaces>> TissueSolver::Impl::RunAhead(std::optional<SweptSurfaces>& swept) {
  ahead_.clear();
  runs_ahead_ = true;
  const absl::Status status = SweepAll(swept, nullptr);
  runs_ahead_ = false;
  PALPATE_RETURN_IF_ERROR(status);
  std::optional<CertifiedSurfaces> certified;
  if (swept) {
    PALPATE_ASSIGN_OR_RETURN(certified, swept->CertifyAhead(*queue_, gate_, tissue_.gate));
  }
  if (barrier_) PALPATE_RETURN_IF_ERROR(barrier_->CertifyAhead(*queue_, Obstacles(), gate_, tissue_.gate));
  PALPATE_RETURN_IF_ERROR(FinishStep(certified));
  PALPATE_RETURN_IF_ERROR(gate_.EnqueueRead(*queue_, tissue_.gate));
  PALPATE_RETURN_IF_ERROR(queue_->FinishBlocking());
  const uint32_t closed_by = gate_.closed_by();
  if (closed_by == StepGate::kOpen) {
    if (barrier_) aims_.ForgetCuts();
    passing_colliders_ = 0;
    if (certified) PALPATE_RETURN_IF_ERROR(certified->TakeChecks(*queue_));
    return certified;
  }
  if (closed_by == StepGate::kEnd) return certified;
  const auto check = std::ranges::find(ahead_, closed_by, &AheadCheck::sweep);
  if (check == ahead_.end()) return absl::InternalError(absl::StrCat("a step was held up by check ", closed_by, ", which was not made"));
  sweep_count_ = check->sweep;
  sweeps_.GoBackTo(check->history);
  return certified;
}

/// Velocities, the sums of the state and the reports, and what they are read into.
absl::Status TissueSolver::Impl::FinishStep(std::optional<CertifiedSurfaces>& certified) {
  queue_->StampNext(&clock_.forces_ms);
  PALPATE_RETURN_IF_ERROR(tools_.Finish(*queue_, tissue_));
  PALPATE_RETURN_IF_ERROR(state_check_.Finish(*queue_));
  PALPATE_RETURN_IF_ERROR(EnqueueReports(certified));
  return EnqueueReads();
}

/// From sweep_count_ on.
absl::Status TissueSolver::Impl::SweepAll(std::optional<SweptSurfaces>& swept, std::vector<double>* residuals) {
  const auto note_residual = [&]() -> absl::Status {
    if (residuals == nullptr) return absl::OkStatus();
    PALPATE_ASSIGN_OR_RETURN(const double residual, Residual(swept));
    residuals->push_back(residual);
    return absl::OkStatus();
  };
  if (sweep_count_ == 0) PALPATE_RETURN_IF_ERROR(note_residual());
  // The guess of a step parts rims from what holds them. A sweep would send control points that hardly act on the shell far away to close
  // that gap; a move of all at once does not.
  if (sweep_count_ == 0 && nurbs_ && nurbs_->is_coupled()) {
    PALPATE_RETURN_IF_ERROR(FollowTissue(swept));
    PALPATE_RETURN_IF_ERROR(BeforeSweep(swept));
    PALPATE_RETURN_IF_ERROR(CorrectNurbs(swept));
  }
  const uint32_t sweep_count = options_.iterations;
  const uint32_t check_period = std::max(kMinCheckPeriod, sweep_count / 4);
  const bool corrects = correction_ && !recovery_.active();
  const bool shifts = swept && surface_->components().has_free();
  const auto is_checked_before = [&](uint32_t k) { return swept && k > 0 && k % check_period == 0; };
  const auto is_corrected_after = [&](uint32_t k) { return corrects && k % kCorrectionPeriod == 0 && k + 1 < sweep_count; };
  const auto is_nurbs_corrected_after = [&](uint32_t k) { return nurbs_ && k % kNurbsCorrectionPeriod == 0 && k + 1 < sweep_count; };
  const auto is_shifted_after = [&](uint32_t k) { return shifts && (k < 2 || (k + 1) % kShiftPeriod == 0); };
  for (bool is_last = false; !is_last;) {
    if (is_checked_before(sweep_count_) && runs_ahead_) {
      ahead_.push_back({sweep_count_, sweeps_.history()});
      PALPATE_RETURN_IF_ERROR(swept->CheckAhead(*queue_, gate_, tissue_.gate, sweep_count_));
    } else if (is_checked_before(sweep_count_)) {
      PALPATE_ASSIGN_OR_RETURN(const bool has_jumped, swept->MayDetectAgain(*queue_));
      if (has_jumped) sweeps_.ForgetHistory();
    }
    uint32_t last = sweep_count_;  // of those that nothing else comes between
    while (last + 1 < sweep_count && residuals == nullptr && !is_corrected_after(last) && !is_nurbs_corrected_after(last) &&
           !is_shifted_after(last) && !is_checked_before(last + 1)) {
      ++last;
    }
    PALPATE_RETURN_IF_ERROR(Sweep(swept, last + 1 - sweep_count_));
    sweep_count_ = last + 1;
    is_last = sweep_count_ == sweep_count;
    if (is_corrected_after(last)) {
      PALPATE_RETURN_IF_ERROR(PushTissueAgain(swept));
      PALPATE_ASSIGN_OR_RETURN(const bool goes_on, correction_->Correct(*queue_, tissue_, tools_, sweeps_));
      is_last = !goes_on;
    }
    if (is_nurbs_corrected_after(last)) PALPATE_RETURN_IF_ERROR(CorrectNurbs(swept));
    if (is_shifted_after(last) || (shifts && is_last)) {
      PALPATE_RETURN_IF_ERROR(component_shifts_.Shift(*queue_, *surface_, tissue_, tools_, anchors_, *swept));
    }
    if (is_last) PALPATE_RETURN_IF_ERROR(SettleRigid(swept));
    if (is_last) PALPATE_RETURN_IF_ERROR(FollowTissue(swept));
    PALPATE_RETURN_IF_ERROR(note_residual());
  }
  return absl::OkStatus();
}

/// Rigid bodies to where what pushes them carries them, after the last move of NURBS shells. Corrections take bodies for walls and push
/// shells into them; forces reported of what is left would not be those that the bodies' motion shows.
absl::Status TissueSolver::Impl::SettleRigid(std::optional<SweptSurfaces>& swept) {
  if (!rigid_ || !nurbs_ || !swept) return absl::OkStatus();
  for (uint32_t k = 0; k < kSettlingSweeps; ++k) {
    PALPATE_RETURN_IF_ERROR(BeforeSweep(swept));
    RigidSurroundings scene = Surroundings();
    scene.moves_only_rigid = !rigid_->holds_shells();
    PALPATE_RETURN_IF_ERROR(rigid_->Sweep(*queue_, scene, tissue_.x, tissue_.touched));
  }
  return absl::OkStatus();
}

/// Loads of the surface as it is, in the inertial targets. What joints do to these is lost with the old ones.
absl::Status TissueSolver::Impl::ApplyLoads() {
  PALPATE_RETURN_IF_ERROR(loads_.Apply(*queue_, tissue_));
  return rigid_ && loads_.has_acting() ? rigid_->PushAgain(*queue_, Surroundings()) : absl::OkStatus();
}

/// Forces that a sweep reads: loads, tools, pairs.
absl::Status TissueSolver::Impl::BeforeSweep(std::optional<SweptSurfaces>& swept) {
  PALPATE_RETURN_IF_ERROR(ApplyLoads());
  PALPATE_RETURN_IF_ERROR(tools_.Update(*queue_, tissue_));
  PALPATE_RETURN_IF_ERROR(sweeps_.UpdateForSweep(*queue_, tissue_));
  if (swept) PALPATE_RETURN_IF_ERROR(swept->BeforeSweep(*queue_));
  return BindNewPairs();
}

/// Where lists of pairs have grown since a sweep: no kernel may be launched with what was there before.
absl::Status TissueSolver::Impl::BindNewPairs() {
  return surface_ && surface_generation_ != surface_->pairs().generation() ? BindSurface() : absl::OkStatus();
}

absl::Status TissueSolver::Impl::Sweep(std::optional<SweptSurfaces>& swept, uint32_t count) {
  const bool moves_driven = surface_ && driven_.count() > 0;
  const bool bodies_fit = !rigid_ || (sweeps_.MovesBodies() && swept);
  if (sweeps_.HasPhases() && bodies_fit && !nurbs_ && !moves_driven) return SweepInPhases(swept, count);
  for (uint32_t k = 0; k < count; ++k) {
    PALPATE_RETURN_IF_ERROR(FollowTissue(swept));
    PALPATE_RETURN_IF_ERROR(BeforeSweep(swept));
    if (nurbs_) PALPATE_RETURN_IF_ERROR(nurbs_->PushTissue(*queue_, tissue_, loads_));
    if (moves_driven) PALPATE_RETURN_IF_ERROR(driven_.Move(*queue_, tissue_, *surface_));
    if (sweeps_.HasPhases()) {
      PALPATE_RETURN_IF_ERROR(sweeps_.RunPhases(*queue_, {}, 1, surface_.get()));
    } else {
      PALPATE_RETURN_IF_ERROR(sweeps_.Sweep(*queue_, tissue_));
    }
    const bool holds_shells = rigid_ && rigid_->holds_shells();
    if (holds_shells) PALPATE_RETURN_IF_ERROR(nurbs_->Sweep(*queue_, tissue_, loads_));
    if (rigid_) PALPATE_RETURN_IF_ERROR(rigid_->Sweep(*queue_, Surroundings(), tissue_.x, tissue_.touched));
    if (nurbs_ && !holds_shells) PALPATE_RETURN_IF_ERROR(nurbs_->Sweep(*queue_, tissue_, loads_));
    PALPATE_RETURN_IF_ERROR(tools_.Solve(*queue_));
    PALPATE_RETURN_IF_ERROR(anchors_.SolveClips(*queue_, tissue_, tools_.colliders()));
    PALPATE_RETURN_IF_ERROR(sweeps_.Accelerate(*queue_));
  }
  return absl::OkStatus();
}

/// Before a correction of tissue that carries control points: what these do to it where they are now.
absl::Status TissueSolver::Impl::PushTissueAgain(std::optional<SweptSurfaces>& swept) {
  if (!nurbs_ || !nurbs_->is_bound()) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(FollowTissue(swept));
  PALPATE_RETURN_IF_ERROR(BeforeSweep(swept));
  return nurbs_->PushTissue(*queue_, tissue_, loads_);
}

/// Control points that tissue carries to where it is now.
absl::Status TissueSolver::Impl::FollowTissue(const std::optional<SweptSurfaces>& swept) {
  return nurbs_ ? nurbs_->FollowTissue(*queue_, tissue_, swept ? surface_.get() : nullptr) : absl::OkStatus();
}

/// The same, with all that a sweep does to tools and surfaces in the launch of its colours. Loads, rotations and goals stand before it.
absl::Status TissueSolver::Impl::SweepInPhases(std::optional<SweptSurfaces>& swept, uint32_t count) {
  PALPATE_RETURN_IF_ERROR(BindNewPairs());
  const SweepParts parts{.contacts = tools_.collider_count() > 0,
                         .pairs = swept ? surface_->pairs().count() : 0,
                         .colliders = tools_.any_coupled() ? tools_.collider_count() : 0,
                         .clips = anchors_.clip_count(),
                         .bodies = rigid_ ? rigid_->count() : 0,
                         .body_vertices = rigid_ ? rigid_->vertex_count() : 0,
                         .accelerates = true};
  if (rigid_) {
    PALPATE_RETURN_IF_ERROR(surface_->ReserveRows(*queue_));
    PALPATE_RETURN_IF_ERROR(rigid_->PreparePhases(*queue_, Surroundings(), sweeps_.phases()));
    PALPATE_RETURN_IF_ERROR(sweeps_.phases().Bind(Arg("pair_ways", surface_->pairs().ways()), Arg("pair_rows", surface_->pairs().rows())));
  }
  const bool has_more = !loads_.empty() || sweeps_.UpdatesEachSweep();
  for (uint32_t done = 0; done < count; done += has_more ? 1 : count) {
    PALPATE_RETURN_IF_ERROR(loads_.Apply(*queue_, tissue_));
    PALPATE_RETURN_IF_ERROR(sweeps_.UpdateForSweep(*queue_, tissue_));
    PALPATE_RETURN_IF_ERROR(sweeps_.RunPhases(*queue_, parts, has_more ? 1 : count, surface_.get()));
  }
  return absl::OkStatus();
}

absl::Status TissueSolver::Impl::CorrectNurbs(std::optional<SweptSurfaces>& swept) {
  return nurbs_->Correct(*queue_, tissue_, loads_, swept ? surface_.get() : nullptr, [&](bool is_trial) -> absl::Status {
    PALPATE_RETURN_IF_ERROR(is_trial ? tools_.Try(*queue_, tissue_.x) : tools_.Update(*queue_, tissue_));
    return swept ? swept->BeforeSweep(*queue_) : absl::OkStatus();
  });
}

absl::StatusOr<double> TissueSolver::Impl::Residual(std::optional<SweptSurfaces>& swept) {
  PALPATE_RETURN_IF_ERROR(BeforeSweep(swept));
  PALPATE_RETURN_IF_ERROR(sweeps_.Update(*queue_, tissue_));
  std::vector<Float4> forces_n(layout_.vertex_count);
  PALPATE_RETURN_IF_ERROR(sweeps_.ReadForces(*queue_, tissue_, kAllForces, forces_n));
  double sum = 0;
  for (uint32_t i = 0; i < layout_.free_count; ++i) {
    const Float4 f = AlongFreeAxes(layout_.held_axes[SolverSlot{i}], forces_n[i]);
    sum += static_cast<double>(f.x) * f.x + static_cast<double>(f.y) * f.y + static_cast<double>(f.z) * f.z;
  }
  size_t count = layout_.free_count;
  if (nurbs_) {
    PALPATE_ASSIGN_OR_RETURN(const NurbsShells::LeftForces left, nurbs_->ReadForces(*queue_, tissue_, loads_));
    sum += left.sum_sq_n2;
    count += left.count;
  }
  return std::sqrt(sum / static_cast<double>(std::max<size_t>(count, 1)));
}

absl::StatusOr<std::optional<CertifiedSurfaces>> TissueSolver::Impl::Certify(std::optional<SweptSurfaces> swept) {
  std::optional<CertifiedSurfaces> certified;
  if (swept) {
    PALPATE_ASSIGN_OR_RETURN(certified, (*std::move(swept)).Certify(*queue_));
  }
  const bool will_be_rolled_back = surface_ && !certified;
  if (barrier_ && !will_be_rolled_back) PALPATE_RETURN_IF_ERROR(CertifyObstacles(certified));
  return certified;
}

ObstacleScene TissueSolver::Impl::Obstacles() {
  ObstacleScene scene;
  scene.triangles = &tissue_.triangles;
  scene.vertex_triangle_range = &tissue_.vertex_triangle_range;
  scene.block_range = &tissue_.block_range;
  scene.corner_index = &tissue_.corner_index;
  scene.planes = &tools_.planes();
  scene.x_start = &tissue_.x_start;
  scene.x = &tissue_.x;
  scene.colliders = &tools_.colliders();
  scene.touched = &tissue_.touched;
  if (!followers_.empty()) scene.follower = &followers_;
  return scene;
}

/// Obstacles are certified after surfaces, and surfaces again where that moved tissue: both take moves back to the start of the step.
absl::Status TissueSolver::Impl::CertifyObstacles(std::optional<CertifiedSurfaces>& certified) {
  const ObstacleScene scene = Obstacles();
  aims_.ForgetCuts();
  for (int turn = 0;; ++turn) {
    PALPATE_ASSIGN_OR_RETURN(const ObstacleOutcome outcome, barrier_->Certify(*queue_, scene));
    aims_.AddCuts(outcome.cut_m);
    passing_colliders_ = outcome.passing;
    if (!outcome.tissue_moved || !certified) return absl::OkStatus();
    PALPATE_ASSIGN_OR_RETURN(const bool moved_again, certified->CertifyFromStart(*queue_));
    if (!moved_again) return absl::OkStatus();
    if (turn == kCertifyTurns) return barrier_->TakeAllBack(*queue_, scene);
  }
}

/// Contacts of tools and surfaces, and what anchors pull with.
absl::Status TissueSolver::Impl::EnqueueReports(std::optional<CertifiedSurfaces>& certified) {
  PALPATE_RETURN_IF_ERROR(tools_.EnqueueReport(*queue_, tissue_));
  PALPATE_RETURN_IF_ERROR(anchors_.EnqueueReports(*queue_, tissue_, tools_.colliders()));
  if (nurbs_) PALPATE_RETURN_IF_ERROR(nurbs_->FindSupportForces(*queue_, tissue_, loads_));
  return certified ? certified->EnqueueReport(*queue_) : absl::OkStatus();
}

/// The same in the caller's indices, after the wait.
absl::Status TissueSolver::Impl::TakeReports(std::optional<CertifiedSurfaces>& certified) {
  surface_reports_.clear();
  if (certified) {
    PALPATE_ASSIGN_OR_RETURN(const std::span<const SurfaceReport> reports, certified->TakeReport(*queue_));
    surface_reports_.assign(reports.begin(), reports.end());
    const auto original = [&](uint32_t v) { return layout_.original_index[SolverSlot{v}]; };
    for (SurfaceReport& r : surface_reports_) {
      if (r.kind == PALPATE_VERTEX_TRIANGLE) r.a = original(r.a);
      r.vertices = {original(r.vertices.x), original(r.vertices.y), original(r.vertices.z), original(r.vertices.w)};
    }
  }
  anchors_.TakeReports();
  return tools_.CollectReport(*queue_, tissue_, layout_);
}

/// What the end of a step is read from.
absl::Status TissueSolver::Impl::EnqueueReads() {
  PALPATE_RETURN_IF_ERROR(gathered_.EnqueueRead(*queue_));
  PALPATE_RETURN_IF_ERROR(tools_.EnqueueRead(*queue_));
  return state_check_.EnqueueRead(*queue_);
}

/// After EnqueueReads and a wait: keeps the state or the one before, and tells.
absl::StatusOr<TissueStep> TissueSolver::Impl::Close(bool advance) {
  const StateSums sums = state_check_.Take();
  TissueStep step;
  step.hash = sums.hash;
  step.kinetic_energy_j = sums.kinetic_energy_j;
  step.max_speed_m_per_s = sums.max_speed_m_per_s;
  step.sweeps = advance ? sweep_count_ : 0;
  step.bad_vertices = sums.bad_vertices;
  step.inverted_tets = sums.inverted_tets;
  PALPATE_RETURN_IF_ERROR(Settle(sums, &step, advance));
  step.recovering = recovery_.active();
  if (energy_) {
    PALPATE_ASSIGN_OR_RETURN(step.elastic_energy_j, energy_->At(*queue_, tissue_, layout_));
    if (ShellTerms* const shells = sweeps_.shells(); shells != nullptr) {
      PALPATE_ASSIGN_OR_RETURN(const double of_shells_j, shells->Energy(*queue_, tissue_, tuning_.partials, options_.energy_in_double));
      *step.elastic_energy_j += of_shells_j;
    }
    if (SmoothingDomains* const smoothing = sweeps_.smoothing(); smoothing != nullptr) {
      PALPATE_ASSIGN_OR_RETURN(const double of_domains_j, smoothing->Energy(*queue_, tissue_, tuning_.partials, options_.energy_in_double));
      *step.elastic_energy_j += of_domains_j;
    }
    if (nurbs_) {
      PALPATE_ASSIGN_OR_RETURN(const double of_nurbs_j, nurbs_->Energy(*queue_, tuning_.partials, options_.energy_in_double));
      *step.elastic_energy_j += of_nurbs_j;
    }
  }
  step.contacts = tools_.reports();
  step.surface_contacts = surface_reports_;
  if (surface_) step.surface = surface_->statistics();
  step.colliders = tools_.states();
  step.blocked_m = aims_.blocked_m();
  step.passing_colliders = passing_colliders_;
  step.anchors = anchors_.reports();
  step.gathered_m = gathered_.positions_m();
  step.control_points_m = control_points_;
  step.nurbs_supports = nurbs_supports_;
  return step;
}

/// Rigid bodies and NURBS shells end the step as the vertices do; a bad one is rolled back.
absl::Status TissueSolver::Impl::Settle(const StateSums& sums, TissueStep* step, bool advance) {
  const bool is_good = sums.bad_vertices == 0;
  if (advance && is_good) PALPATE_RETURN_IF_ERROR(UpdateRecovery(sums));
  if (rigid_) {
    if (advance) PALPATE_RETURN_IF_ERROR(is_good ? rigid_->Finish(*queue_, Surroundings(), tissue_.x) : rigid_->RollBack(*queue_));
    std::vector<RigidBlockState> before;
    if (!restitution_.empty()) before.assign(rigid_->states().begin(), rigid_->states().end());
    PALPATE_RETURN_IF_ERROR(rigid_->ReadStates(*queue_).status());
    if (advance && is_good) PALPATE_RETURN_IF_ERROR(Bounce(before));
    AddRigid(rigid_->states(), step);
    PALPATE_ASSIGN_OR_RETURN(step->joints, rigid_->ReadJoints(*queue_));
  }
  if (nurbs_) {
    if (advance) PALPATE_RETURN_IF_ERROR(is_good ? nurbs_->Finish(*queue_, tissue_.params) : nurbs_->RollBack(*queue_));
    PALPATE_RETURN_IF_ERROR(nurbs_->ReadStates(*queue_));
    AddNurbs(*nurbs_, step);
    control_points_ = nurbs_->ControlPoints();
    nurbs_supports_ = nurbs_->SupportReports(advance && is_good, options_.gravity_m_per_s2, options_.dt_s);
  }
  return is_good ? absl::OkStatus() : KeepLastState();
}

absl::Status TissueSolver::Impl::KeepLastState() {
  PALPATE_RETURN_IF_ERROR(ForgetRotations());
  PALPATE_RETURN_IF_ERROR(queue_->Copy(tissue_.x_start, tissue_.x, layout_.vertex_count));
  if (layout_.IsDisplaced()) PALPATE_RETURN_IF_ERROR(queue_->Copy(tissue_.u_start, tissue_.u, layout_.vertex_count));
  PALPATE_RETURN_IF_ERROR(queue_->Copy(tissue_.velocity_before, tissue_.velocity, layout_.vertex_count));
  PALPATE_RETURN_IF_ERROR(gathered_.EnqueueRead(*queue_));
  return queue_->FinishBlocking();
}

absl::Status TissueSolver::Impl::UpdateRecovery(const StateSums& sums) {
  const TangleRecovery::Counts counts{
      .inverted = sums.inverted_tets, .inverted_elastic = sums.inverted_elastic, .strained = sums.strained_tets};
  if (!recovery_.Update(counts, layout_.live_tet_count, options_.dt_s)) return absl::OkStatus();
  if (!recovery_.active() && surface_ && recovery_.was_given_tangled()) {
    recovery_.ForgetGiven();
    PALPATE_RETURN_IF_ERROR(surface_->SetSelfCollision(*queue_, true));
    PALPATE_RETURN_IF_ERROR(surface_->Reset(*queue_, tissue_.x));
  }
  params_host_.lambda_cap = recovery_.lambda_cap();
  return WriteParams();
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
absl::Status TissueSolver::SetJointRows(uint32_t joint, const std::array<RigidJointRow, 6>& rows) {
  return impl_->SetJointRows(joint, rows);
}
absl::Status TissueSolver::SetJointMount(uint32_t mount, const std::array<double, 3>& center_m, const std::array<double, 4>& rotation,
                                         const std::array<double, 3>& force_n) {
  return impl_->SetJointMount(mount, center_m, rotation, force_n);
}
void TissueSolver::SetWind(const std::array<double, 3>& velocity_m_per_s) { impl_->SetWind(velocity_m_per_s); }
absl::Status TissueSolver::SetPrescribed(std::span<const float> positions_m) { return impl_->SetPrescribed(positions_m); }
absl::StatusOr<TissueStep> TissueSolver::Step(std::span<const ColliderTarget> targets, const std::function<void()>& before_tools) {
  return impl_->Step(targets, before_tools, nullptr);
}
absl::StatusOr<TissueStep> TissueSolver::Inspect() { return impl_->Inspect(); }
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
absl::StatusOr<std::vector<Float4>> TissueSolver::ReadBoundForces() { return impl_->ReadBoundForces(); }
absl::StatusOr<std::vector<double>> TissueSolver::StepMeasuringResidual(std::span<const ColliderTarget> targets) {
  std::vector<double> residuals;
  PALPATE_RETURN_IF_ERROR(impl_->Step(targets, {}, &residuals).status());
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
