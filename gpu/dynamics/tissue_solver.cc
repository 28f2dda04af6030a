#include "gpu/dynamics/tissue_solver.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>

#include "gpu/dynamics/tissue_solver_impl.h"

namespace palpate::gpu {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kPlaneContact = 0xffffffffU;
constexpr uint32_t kToolSweeps = 8;      // of the tools alone, before those of tissue and tools
constexpr uint32_t kShiftPeriod = 3;     // sweeps between moves of whole bodies
constexpr uint32_t kMinCheckPeriod = 4;  // sweeps between looks at how far surfaces moved
constexpr int kCertifyTurns = 3;         // of obstacles and surfaces, each of which may undo what the other found safe

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

}  // namespace

/// What a sweep takes from the positions as they are: rotations of tets, goals of shape-matched bodies.
absl::Status TissueSolver::Impl::UpdateFollowed() {
  if (layout_.Has(TissueEnergy::kCorotated)) PALPATE_RETURN_IF_ERROR(queue_->Enqueue(extract_rotations_, {layout_.tet_count, 0}));
  return shapes_ ? shapes_->Update(*queue_, tissue_.x) : absl::OkStatus();
}

/// Bodies that nothing holds go as wholes to where the forces on them balance.
absl::Status TissueSolver::Impl::ShiftPieces() {
  const uint32_t pieces = surface_->piece_count();
  constexpr uint32_t kParts = SurfaceContacts::kParts;
  if (const size_t sums = size_t{pieces} * kParts * PALPATE_PIECE_SUMS; piece_sums_buffer_.count() < sums) {
    PALPATE_RETURN_IF_ERROR(Make(&piece_sums_buffer_, sums + sums / 2, "piece_sums"));
  }
  PALPATE_RETURN_IF_ERROR(
      queue_->Launch(piece_sums_, {size_t{pieces} * kParts, 0}, Arg("p", tissue_.params), Arg("piece_count", pieces), Arg("parts", kParts),
                     Arg("piece_begin", surface_->piece_begin()), Arg("piece_vertices", surface_->piece_vertices()), Arg("x", tissue_.x),
                     Arg("x_start", tissue_.x_start), Arg("y", tissue_.y), Arg("mass", tissue_.mass),
                     Arg("vertex_triangle_range", tissue_.vertex_triangle_range), Arg("vertex_triangles", tissue_.vertex_triangles),
                     Arg("triangles", tissue_.triangles), Arg("triangle_colliders", triangle_colliders_), Arg("contacts", contacts_),
                     Arg("colliders", colliders_), Arg("obstacles", planes_), Arg("anchor_begin", anchors_.begins()),
                     Arg("anchors", anchors_.anchors()), Arg("sums", piece_sums_buffer_)));
  SurfaceContacts::ShiftLimit limit;
  if (params_host_.collider_count + params_host_.plane_count > 0) {
    limit = [&](const DeviceBuffer<Float4>& shifts) -> absl::StatusOr<const DeviceBuffer<float>*> {
      // The sums have been read.
      PALPATE_RETURN_IF_ERROR(queue_->Launch(piece_shares_, {size_t{pieces} * kParts, 0}, Arg("p", tissue_.params),
                                             Arg("piece_count", pieces), Arg("parts", kParts), Arg("piece_begin", surface_->piece_begin()),
                                             Arg("piece_vertices", surface_->piece_vertices()), Arg("shifts", shifts), Arg("x", tissue_.x),
                                             Arg("vertex_triangle_range", tissue_.vertex_triangle_range),
                                             Arg("vertex_triangles", tissue_.vertex_triangles), Arg("triangles", tissue_.triangles),
                                             Arg("triangle_colliders", triangle_colliders_), Arg("contacts", contacts_),
                                             Arg("colliders", colliders_), Arg("planes", planes_), Arg("shares", piece_sums_buffer_)));
      return &piece_sums_buffer_;
    };
  }
  return surface_->ShiftPieces(*queue_, piece_sums_buffer_, limit, tissue_.x, tissue_.x_start, x_before_, x_before2_);
}

/// After solve_color: moves the vertices of bodies that keep their volume.
absl::Status TissueSolver::Impl::KeepVolumes(uint32_t color) {
  const UInt2 entries = volumes_->EntriesOf(color);
  if (entries.y == 0) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(volumes_->Balance(*queue_, color));
  PALPATE_RETURN_IF_ERROR(keep_volumes_.Bind(Arg("first", entries.x)));
  PALPATE_RETURN_IF_ERROR(keep_volumes_.Bind(Arg("count", entries.y)));
  return queue_->Enqueue(keep_volumes_, {entries.y, 0});
}

absl::Status TissueSolver::Impl::Sweep() {
  PALPATE_RETURN_IF_ERROR(loads_.Apply(*queue_, tissue_));
  if (params_host_.collider_count > 0) {
    PALPATE_RETURN_IF_ERROR(queue_->Enqueue(update_contacts_, {tuning_.list_group * size_t{4}, tuning_.list_group}));
  }
  PALPATE_RETURN_IF_ERROR(UpdateFollowed());
  if (surface_) {
    PALPATE_RETURN_IF_ERROR(surface_->BeforeSweep(*queue_, tissue_.x));
    if (surface_generation_ != surface_->generation()) PALPATE_RETURN_IF_ERROR(BindSurface());
    if (driven_.count() > 0) PALPATE_RETURN_IF_ERROR(driven_.Move(*queue_, tissue_, *surface_));
  }
  if (volumes_) PALPATE_RETURN_IF_ERROR(volumes_->Measure(*queue_, tissue_.triangles, tissue_.x, std::exchange(has_swept_, true)));
  for (size_t c = 0; c < layout_.color_end.size(); ++c) {
    const uint32_t count = layout_.color_end[c] - layout_.color_begin[c];
    if (count == 0) continue;
    PALPATE_RETURN_IF_ERROR(solve_color_.Bind(Arg("first", layout_.color_begin[c])));
    PALPATE_RETURN_IF_ERROR(solve_color_.Bind(Arg("count", count)));
    PALPATE_RETURN_IF_ERROR(queue_->Enqueue(solve_color_, {size_t{count} * tuning_.team, tuning_.group}));
    if (volumes_) PALPATE_RETURN_IF_ERROR(KeepVolumes(static_cast<uint32_t>(c)));
  }
  if (rigid_) PALPATE_RETURN_IF_ERROR(rigid_->Sweep(*queue_, Surroundings(), tissue_.x, tissue_.touched));
  return SolveHolders();
}

absl::StatusOr<double> TissueSolver::Impl::Residual() {
  PALPATE_RETURN_IF_ERROR(loads_.Apply(*queue_, tissue_));
  if (params_host_.collider_count > 0) {
    PALPATE_RETURN_IF_ERROR(queue_->Enqueue(update_contacts_, {tuning_.list_group * size_t{4}, tuning_.list_group}));
  }
  if (surface_) {
    PALPATE_RETURN_IF_ERROR(surface_->BeforeSweep(*queue_, tissue_.x));
    if (surface_generation_ != surface_->generation()) PALPATE_RETURN_IF_ERROR(BindSurface());
  }
  PALPATE_RETURN_IF_ERROR(UpdateFollowed());
  if (volumes_) {
    PALPATE_RETURN_IF_ERROR(volumes_->Measure(*queue_, tissue_.triangles, tissue_.x, false));
    PALPATE_RETURN_IF_ERROR(volumes_->BalanceAsItIs(*queue_));
  }
  PALPATE_RETURN_IF_ERROR(vertex_forces_.Bind(Arg("parts", uint32_t{kAllForces})));
  PALPATE_RETURN_IF_ERROR(queue_->Enqueue(vertex_forces_, Vertices()));
  PALPATE_RETURN_IF_ERROR(queue_->ReadBlocking(forces_, std::span<Float4>(scratch_)));
  double sum = 0;
  for (uint32_t i = 0; i < layout_.free_count; ++i) {
    Float4 f = scratch_[i];
    if (layout_.held_axes[i] & 1U) f.x = 0;
    if (layout_.held_axes[i] & 2U) f.y = 0;
    if (layout_.held_axes[i] & 4U) f.z = 0;
    sum += static_cast<double>(f.x) * f.x + static_cast<double>(f.y) * f.y + static_cast<double>(f.z) * f.z;
  }
  return std::sqrt(sum / std::max(layout_.free_count, 1U));
}

/// Obstacles are certified after surfaces, and surfaces again where that moved tissue: both take moves back to the start of the step.
absl::Status TissueSolver::Impl::CertifyObstacles(bool certified) {
  if (surface_ && !certified) return absl::OkStatus();  // the step will be undone
  ObstacleScene scene;
  scene.triangles = &tissue_.triangles;
  scene.vertex_triangle_range = &tissue_.vertex_triangle_range;
  scene.block_range = &tissue_.block_range;
  scene.corner_index = &tissue_.corner_index;
  scene.planes = &planes_;
  scene.x_start = &tissue_.x_start;
  scene.x = &tissue_.x;
  scene.colliders = &colliders_;
  scene.touched = &tissue_.touched;
  scene.rigid = rigid_.get();
  for (ColliderAim& aim : aims_) aim.cut_m = 0;
  for (int turn = 0;; ++turn) {
    PALPATE_ASSIGN_OR_RETURN(const ObstacleOutcome outcome, barrier_->Certify(*queue_, scene));
    for (size_t c = 0; c < aims_.size(); ++c) aims_[c].cut_m += outcome.cut_m[c];
    passing_colliders_ = outcome.passing;
    if (!outcome.tissue_moved || !surface_) return absl::OkStatus();
    PALPATE_ASSIGN_OR_RETURN(const bool moved_again, surface_->CertifyFromStart(*queue_, tissue_.x_start, tissue_.x, tissue_.touched));
    if (!moved_again) return absl::OkStatus();
    if (turn == kCertifyTurns) return barrier_->TakeAllBack(*queue_, scene);
  }
}

absl::StatusOr<TissueStep> TissueSolver::Impl::Step(std::span<const ColliderTarget> targets, const std::function<void()>& before_tools,
                                                    std::vector<double>* residuals) {
  if (targets.size() != params_host_.collider_count) {
    return absl::InvalidArgumentError(absl::StrCat(targets.size(), " collider targets for ", params_host_.collider_count, " colliders"));
  }
  TissueTimes times;
  Clock::time_point mark = Clock::now();
  PALPATE_RETURN_IF_ERROR(queue_->Enqueue(predict_, Vertices()));
  if (!loads_.empty()) PALPATE_RETURN_IF_ERROR(loads_.Begin(*queue_, tissue_, static_cast<double>(steps_) * options_.dt_s));
  if (driven_.count() > 0) PALPATE_RETURN_IF_ERROR(driven_.Begin(*queue_, tissue_, static_cast<double>(steps_ + 1) * options_.dt_s));
  if (rigid_) PALPATE_RETURN_IF_ERROR(rigid_->Predict(*queue_, Surroundings(), tissue_.x, tissue_.touched));
  bool certified = false;  // surfaces are kept apart in this step
  if (surface_) {
    PALPATE_RETURN_IF_ERROR(surface_->LiftGuess(*queue_, plane_obstacles_, planes_, tissue_.x_start, tissue_.x));
    PALPATE_ASSIGN_OR_RETURN(certified, surface_->Begin(*queue_, tissue_.x_start, tissue_.x));
  }
  if (shapes_) PALPATE_RETURN_IF_ERROR(shapes_->Begin(*queue_, tissue_.x_start));
  if (layout_.has_viscosity) PALPATE_RETURN_IF_ERROR(queue_->Enqueue(start_strain_, {layout_.block_count, 0}));
  if (before_tools) before_tools();
  Aim(targets);
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
  PALPATE_RETURN_IF_ERROR(anchors_.SolveClips(*queue_, tissue_, colliders_));
  PALPATE_RETURN_IF_ERROR(queue_->FinishBlocking());
  times.detect_ms = MillisecondsSince(&mark);

  if (residuals != nullptr) {
    PALPATE_ASSIGN_OR_RETURN(const double residual, Residual());
    residuals->push_back(residual);
  }
  const double rho = options_.acceleration;
  double omega = 1;
  const uint32_t check_period = std::max(kMinCheckPeriod, options_.iterations / 4);
  has_swept_ = false;
  uint32_t plain = 0;  // sweeps since the start or the last jump of the positions
  for (uint32_t k = 0; k < options_.iterations; ++k, ++plain) {
    if (certified && k > 0 && k % check_period == 0) {
      bool jumped = false;
      PALPATE_RETURN_IF_ERROR(surface_->MayDetectAgain(*queue_, tissue_.x, tissue_.touched, &jumped));
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
      PALPATE_RETURN_IF_ERROR(accelerate_.Bind(Arg("omega", static_cast<float>(omega))));
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
  if (certified) PALPATE_RETURN_IF_ERROR(surface_->Certify(*queue_, tissue_.x, tissue_.touched));
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
    PALPATE_RETURN_IF_ERROR(queue_->Launch(
        report_contacts_, {local * 4, local}, Arg("p", tissue_.params), Arg("capacity", static_cast<uint32_t>(reports_.count())),
        Arg("x", tissue_.x), Arg("x_start", tissue_.x_start), Arg("triangles", tissue_.triangles), Arg("colliders", colliders_),
        Arg("list", list_), Arg("contacts", contacts_), Arg("planes", planes_), Arg("vertex_triangle_range", tissue_.vertex_triangle_range),
        Arg("header", report_count_), Arg("reports", reports_)));
    reports_host_.resize(reports_.count());
    PALPATE_RETURN_IF_ERROR(queue_->EnqueueRead(report_count_, std::span<uint32_t>(&report_count, 1)));
    return queue_->EnqueueRead(reports_, std::span<ContactReport>(reports_host_));
  };
  if (contacts_possible && advance) PALPATE_RETURN_IF_ERROR(report());
  if (advance) PALPATE_RETURN_IF_ERROR(anchors_.EnqueueReports(*queue_, tissue_, colliders_));
  surface_reports_.clear();
  if (surface_ && advance) {
    PALPATE_ASSIGN_OR_RETURN(const std::span<const SurfaceReport> surface_reports, surface_->Report(*queue_, tissue_.x, tissue_.x_start));
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
  TangleRecovery::Counts counts;
  for (const StepPartial& partial : partials_host_) {
    step.hash += partial.hash;
    step.kinetic_energy_j += partial.kinetic_energy_j;
    step.max_speed_m_per_s = std::max<double>(step.max_speed_m_per_s, partial.max_speed_m_per_s);
    step.bad_vertices += partial.bad_vertices;
    step.inverted_tets += partial.inverted_tets;
    counts.strained += partial.strained_tets;
    counts.inverted_elastic += partial.inverted_elastic;
  }
  counts.inverted = step.inverted_tets;
  if (advance && step.bad_vertices == 0) PALPATE_RETURN_IF_ERROR(UpdateRecovery(counts));
  if (rigid_) {
    if (advance) {
      PALPATE_RETURN_IF_ERROR(step.bad_vertices == 0 ? rigid_->Finish(*queue_, Surroundings()) : rigid_->Undo(*queue_));
    }
    PALPATE_ASSIGN_OR_RETURN(const std::span<const RigidBlockState> states, rigid_->ReadStates(*queue_));
    AddRigid(states, &step);
  }
  step.recovering = recovery_.active();
  if (step.bad_vertices > 0) {  // keep the last good state
    PALPATE_RETURN_IF_ERROR(queue_->Copy(tissue_.x_start, tissue_.x, layout_.vertex_count));
    PALPATE_RETURN_IF_ERROR(queue_->Copy(tissue_.velocity_before, tissue_.velocity, layout_.vertex_count));
    if (gathered_count_ > 0) {
      PALPATE_RETURN_IF_ERROR(queue_->Enqueue(gather_positions_, {gathered_count_, 0}));
      PALPATE_RETURN_IF_ERROR(queue_->EnqueueRead(gathered_, std::span<float>(gathered_host_)));
    }
    PALPATE_RETURN_IF_ERROR(queue_->FinishBlocking());
  }
  if (energy_) {
    PALPATE_ASSIGN_OR_RETURN(step.elastic_energy_j, energy_->At(*queue_, tissue_, layout_));
  }
  step.contacts = reports_host_;
  step.surface_contacts = surface_reports_;
  if (surface_) step.surface = surface_->statistics();
  step.colliders = colliders_host_;
  step.blocked_m = blocked_m_;
  step.passing_colliders = passing_colliders_;
  if (advance) anchors_.TakeReports();
  step.anchors = anchors_.reports();
  step.gathered_m = gathered_host_;
  times.readback_ms = MillisecondsSince(&mark);
  step.times = times;
  return step;
}

absl::Status TissueSolver::Impl::UpdateRecovery(const TangleRecovery::Counts& counts) {
  if (!recovery_.Update(counts, layout_.live_tet_count, options_.dt_s)) return absl::OkStatus();
  if (!recovery_.active() && surface_ && was_given_tangled_) {
    was_given_tangled_ = false;
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
absl::Status TissueSolver::SetPrescribed(std::span<const float> positions_m) { return impl_->SetPrescribed(positions_m); }
absl::StatusOr<TissueStep> TissueSolver::Step(std::span<const ColliderTarget> targets, const std::function<void()>& before_tools) {
  return impl_->Step(targets, before_tools, nullptr);
}
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
