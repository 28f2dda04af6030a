#include "gpu/dynamics/tissue_sweeps.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/dynamics/layout_entries.h"
#include "gpu/dynamics/shape_clusters.h"
#include "gpu/dynamics/tissue_solver.h"

namespace palpate::gpu {

namespace kernels {
extern const KernelSource tissue;
}  // namespace kernels

namespace {

// Of phase_chunk: items of phases that do less for each.
constexpr uint32_t kLightChunk = 8;
constexpr uint32_t kCopyChunk = 32;
constexpr uint32_t kContactParts = 4;

/// Of Chebyshev's recurrence, after 0, 1, ... sweeps: two plain ones come first.
std::vector<float> Omegas(double rho, uint32_t count) {
  std::vector<float> omegas;
  double omega = 1;
  for (uint32_t k = 0; k < count; ++k) {
    if (k == 2) omega = 2 / (2 - rho * rho);
    if (k > 2) omega = 4 / (4 - rho * rho * omega);
    omegas.push_back(static_cast<float>(omega));
  }
  return omegas;
}

/// What tets read: positions, or displacements.
struct OfTets {
  const DeviceBuffer<Float4>& now;
  const DeviceBuffer<Float4>& start;

  OfTets(const TissueBuffers& tissue, const TissueLayout& layout)
      : now(layout.IsDisplaced() ? tissue.u : tissue.x), start(layout.IsDisplaced() ? tissue.u_start : tissue.x_start) {}
};

/// The phases of a sweep, in stages that need each other.
class PhaseList {
 public:
  void Add(uint32_t kind, uint32_t first, uint32_t count, uint32_t chunk) {
    if (count == 0) return;
    phases_.push_back({.kind = kind, .first = first, .count = count, .chunk = chunk, .begin = chunks_, .needs = stage_});
    chunks_ += count / chunk + (count % chunk != 0 ? 1 : 0);
    widest_ = std::max(widest_, chunks_ - stage_);
  }
  void EndStage() { stage_ = chunks_; }
  const std::vector<SweepPhase>& phases() const { return phases_; }
  uint32_t chunks() const { return chunks_; }
  uint32_t widest() const { return widest_; }  ///< chunks of a stage at most

 private:
  std::vector<SweepPhase> phases_;
  uint32_t chunks_ = 0;
  uint32_t stage_ = 0;
  uint32_t widest_ = 0;
};

/// One past the last slot of a vertex of a tet or a shell.
uint32_t ElasticEnd(const TissueLayout& layout) {
  if (!layout.shell.empty()) return layout.vertex_count;
  uint32_t end = layout.free_count;
  for (const UInt4& t : layout.tets) end = std::max({end, t.x + 1, t.y + 1, t.z + 1, t.w + 1});
  return end;
}

}  // namespace

absl::Status TissueSweeps::Init(Queue& queue, const TissueModel& model, const TissueOptions& options, const TissueTuning& tuning,
                                bool surfaces_meet, bool moves_bodies, TissueSweeps* old) {
  tuning_ = tuning;
  dt_s_ = options.dt_s;
  spectral_radius_ = options.acceleration;
  moves_along_ = options.coarse_nodes > 0;
  elastic_end_ = ElasticEnd(layout_);
  // Groups of one work-item are those of bodies too.
  moves_bodies_ = moves_bodies && surfaces_meet && tuning.phase_group == 1 && layout_.free_count > 0;
  omegas_host_ = Omegas(spectral_radius_, std::max(options.iterations, 1U));
  PALPATE_ASSIGN_OR_RETURN(forces_, DeviceBuffer<Float4>::Create(queue.context(), layout_.vertex_count, "forces"));
  if (layout_.Has(TissueEnergy::kShapeMatched)) PALPATE_RETURN_IF_ERROR(MakeShapes(queue, model));
  if (KeepsVolumes(model)) {
    PALPATE_ASSIGN_OR_RETURN(const VolumeLists volumes, ListVolumes(model, layout_));
    PALPATE_ASSIGN_OR_RETURN(volumes_, VolumeKeeper::Create(queue, volumes, tuning.list_group));
  }
  if (layout_.has_smoothing) smoothing_ = std::make_unique<SmoothingDomains>(layout_, dt_s_);
  if (moves_along_ && HasStresses()) {
    const size_t reals = (layout_.tets.size() + layout_.lanes - 1) / layout_.lanes * layout_.lanes;
    PALPATE_ASSIGN_OR_RETURN(tet_line_, DeviceBuffer<float>::Create(queue.context(), 18 * reals, "tet_line"));
    PALPATE_ASSIGN_OR_RETURN(tet_strain_,
                             DeviceBuffer<float>::Create(queue.context(), layout_.has_viscosity ? 7 * reals : 1, "tet_strain"));
  }
  if (HasPhases()) {
    PALPATE_ASSIGN_OR_RETURN(omegas_, CreateBufferFrom(queue, std::span<const float>(omegas_host_), "omegas"));
    PALPATE_ASSIGN_OR_RETURN(tickets_, DeviceBuffer<uint32_t>::Create(queue.context(), 3, "tickets"));
    PALPATE_RETURN_IF_ERROR(queue.Zero(tickets_));
  }
  PALPATE_RETURN_IF_ERROR(MakeKernels(*queue.context(), surfaces_meet, old));
  return smoothing_ ? smoothing_->Init(queue, model, defines_) : absl::OkStatus();
}

/// Those of `old` (or null) are used again if they are the same.
absl::Status TissueSweeps::MakeKernels(Context& context, bool surfaces_meet, TissueSweeps* old) {
  const auto flag = [](bool set) { return std::string(set ? "1" : "0"); };
  defines_ = {{"PALPATE_LANES", std::to_string(tuning_.lanes)},
              {"PALPATE_TEAM", std::to_string(tuning_.team)},
              {"PALPATE_GROUP", std::to_string(tuning_.group)},
              {"PALPATE_PHASES", flag(HasPhases())},
              {"PALPATE_PHASE_GROUP", std::to_string(tuning_.phase_group)},
              {"PALPATE_ENERGY_MASK", absl::StrCat(layout_.EnergyMask(), "u")},
              {"PALPATE_FIBERS", flag(layout_.has_fibers)},
              {"PALPATE_VISCOUS", flag(layout_.has_viscosity)},
              {"PALPATE_SURFACE", flag(surfaces_meet)},
              {"PALPATE_SHAPE", flag(shapes_ != nullptr)},
              {"PALPATE_VOLUME", flag(volumes_ != nullptr)},
              {"PALPATE_SMOOTHING", flag(smoothing_ != nullptr)},
              {"PALPATE_DISPLACED", flag(layout_.IsDisplaced())},
              {"PALPATE_RIGID", "0"},
              {"PALPATE_SHELL", absl::StrCat(layout_.shell.mask, "u")}};
  constexpr std::pair<Kernel TissueSweeps::*, const char*> kKernels[] = {
      {&TissueSweeps::start_strain_, "start_strain"},   {&TissueSweeps::extract_rotations_, "extract_rotations"},
      {&TissueSweeps::turn_corners_, "turn_corners"},   {&TissueSweeps::solve_color_, "solve_color"},
      {&TissueSweeps::vertex_forces_, "vertex_forces"}, {&TissueSweeps::accelerate_, "accelerate"},
      {&TissueSweeps::move_along_, "move_along"},       {&TissueSweeps::start_tets_, "start_tets"},
      {&TissueSweeps::begin_line_, "begin_line"},       {&TissueSweeps::work_on_line_, "work_on_line"},
      {&TissueSweeps::keep_volumes_, "keep_volumes"},   {&TissueSweeps::volume_gradients_, "volume_gradients"},
      {&TissueSweeps::run_phases_, "run_phases"},       {&TissueSweeps::follow_positions_, "follow_positions"}};
  ProgramDefines phase_defines = defines_;  // others need not be compiled anew
  phase_defines["PALPATE_RIGID"] = flag(moves_bodies_);
  const bool is_same = old != nullptr && old->defines_ == defines_ && old->moves_bodies_ == moves_bodies_;
  for (const auto& [kernel, name] : kKernels) {
    if (kernel == &TissueSweeps::keep_volumes_ && !volumes_) continue;
    if (kernel == &TissueSweeps::volume_gradients_ && !(volumes_ && moves_along_)) continue;
    const bool is_of_rotations = kernel == &TissueSweeps::extract_rotations_ || kernel == &TissueSweeps::turn_corners_;
    if (is_of_rotations && !layout_.HasRotatedEnergies()) continue;
    if (kernel == &TissueSweeps::run_phases_ && !HasPhases()) continue;
    if (kernel == &TissueSweeps::move_along_ && !moves_along_) continue;
    if (kernel == &TissueSweeps::follow_positions_ && !layout_.IsDisplaced()) continue;
    const bool is_of_line =
        kernel == &TissueSweeps::start_tets_ || kernel == &TissueSweeps::begin_line_ || kernel == &TissueSweeps::work_on_line_;
    if (is_of_line && !(moves_along_ && HasStresses())) continue;
    if (is_same && old->*kernel) {
      this->*kernel = std::move(old->*kernel);
    } else {
      const bool is_phases = kernel == &TissueSweeps::run_phases_;
      PALPATE_ASSIGN_OR_RETURN(this->*kernel, context.CreateKernel(kernels::tissue, name, is_phases ? phase_defines : defines_));
    }
  }
  return absl::OkStatus();
}

absl::Status TissueSweeps::Bind(Queue& queue, const TissueBuffers& tissue, const ToolContacts& tools, const TissueAnchors& anchors) {
  PALPATE_RETURN_IF_ERROR(start_strain_.Bind(Arg("p", tissue.params), Arg("block_count", layout_.block_count),
                                             Arg("x_start", OfTets(tissue, layout_).start), Arg("block_vertex", tissue.block_vertex),
                                             Arg("corner_real", tissue.corner_real), Arg("corner_index", tissue.corner_index),
                                             Arg("corner_strain", tissue.corner_strain)));
  if (layout_.HasRotatedEnergies()) {
    PALPATE_RETURN_IF_ERROR(extract_rotations_.Bind(Arg("gate", tissue.gate), Arg("p", tissue.params),
                                                    Arg("x", OfTets(tissue, layout_).now), Arg("tets", tissue.tets),
                                                    Arg("tet_rest", tissue.tet_rest), Arg("rotations", tissue.rotations)));
    PALPATE_RETURN_IF_ERROR(turn_corners_.Bind(Arg("block_count", layout_.block_count), Arg("corner_index", tissue.corner_index),
                                               Arg("rotations", tissue.rotations), Arg("corner_turns", tissue.corner_turns)));
  }
  for (Kernel* kernel : {&solve_color_, &vertex_forces_}) {
    PALPATE_RETURN_IF_ERROR(kernel->Bind(
        Arg("p", tissue.params), Arg("x", tissue.x), Arg("x_start", tissue.x_start), Arg("y", tissue.y), Arg("mass", tissue.mass),
        Arg("block_range", tissue.block_range), Arg("corner_real", tissue.corner_real), Arg("corner_index", tissue.corner_index),
        Arg("corner_strain", tissue.corner_strain), Arg("vertex_triangle_range", tissue.vertex_triangle_range),
        Arg("vertex_triangles", tissue.vertex_triangles), Arg("triangles", tissue.triangles),
        Arg("triangle_colliders", tools.triangle_colliders()), Arg("contacts", tools.contacts()), Arg("colliders", tools.colliders()),
        Arg("obstacles", tools.planes()), Arg("anchor_begin", anchors.begins()), Arg("anchors", anchors.anchors())));
  }
  PALPATE_RETURN_IF_ERROR(vertex_forces_.Bind(Arg("rotations", tissue.rotations)));
  PALPATE_RETURN_IF_ERROR(
      solve_color_.Bind(Arg("corner_turns", tissue.corner_turns), Arg("touched", tissue.touched), Arg("held_axes", tissue.held_axes)));
  if (HasPhases()) {
    PALPATE_RETURN_IF_ERROR(run_phases_.Bind(
        Arg("omegas", omegas_), Arg("gate", tissue.gate), Arg("tickets", tickets_), Arg("p", tissue.params), Arg("x", tissue.x),
        Arg("x_before", tissue.x_before), Arg("x_before2", tissue.x_before2), Arg("x_start", tissue.x_start), Arg("y", tissue.y),
        Arg("mass", tissue.mass), Arg("block_range", tissue.block_range), Arg("corner_real", tissue.corner_real),
        Arg("corner_index", tissue.corner_index), Arg("corner_strain", tissue.corner_strain), Arg("corner_turns", tissue.corner_turns),
        Arg("vertex_triangle_range", tissue.vertex_triangle_range), Arg("vertex_triangles", tissue.vertex_triangles),
        Arg("triangles", tissue.triangles), Arg("triangle_colliders", tools.triangle_colliders()), Arg("list", tools.list()),
        Arg("contacts", tools.contacts()), Arg("colliders", tools.colliders()), Arg("obstacles", tools.planes()),
        Arg("anchor_begin", anchors.begins()), Arg("anchors", anchors.anchors()), Arg("touched", tissue.touched),
        Arg("held_axes", tissue.held_axes)));
    if (moves_bodies_) {  // tools alone need none of them
      PALPATE_RETURN_IF_ERROR(run_phases_.Bind(Arg("first_rigid", uint32_t{0}), Arg("rigid_of", BufferView<uint32_t>{}),
                                               Arg("rigid_local", BufferView<Float4>{}), Arg("own_pairs", BufferView<uint32_t>{}),
                                               Arg("own", BufferView<RigidPairs>{}), Arg("rigid_states", BufferView<RigidBlockState>{}),
                                               Arg("rigid_way", BufferView<float>{}), Arg("pair_ways", BufferView<PairWay>{}),
                                               Arg("pair_rows", BufferView<PairRow>{})));
    }
  }
  if (moves_along_) {
    PALPATE_RETURN_IF_ERROR(move_along_.Bind(Arg("p", tissue.params), Arg("gate", tissue.gate), Arg("x", tissue.x),
                                             Arg("has_history", uint32_t{spectral_radius_ > 0 ? 1U : 0U}), Arg("x_before", tissue.x_before),
                                             Arg("x_before2", tissue.x_before2), Arg("touched", tissue.touched),
                                             Arg("held_axes", tissue.held_axes)));
    if (HasStresses()) PALPATE_RETURN_IF_ERROR(BindLine(tissue));
  }
  PALPATE_RETURN_IF_ERROR(accelerate_.Bind(Arg("p", tissue.params), Arg("x", tissue.x), Arg("x_before", tissue.x_before),
                                           Arg("x_before2", tissue.x_before2), Arg("touched", tissue.touched),
                                           Arg("held_axes", tissue.held_axes)));
  if (layout_.IsDisplaced()) PALPATE_RETURN_IF_ERROR(BindDisplacements(tissue));
  if (shapes_) PALPATE_RETURN_IF_ERROR(BindShapes());
  if (!layout_.shell.empty()) {
    shells_ = std::make_unique<ShellTerms>(layout_.shell);
    PALPATE_RETURN_IF_ERROR(shells_->Init(queue, layout_.lanes, defines_, tissue));
    for (Kernel* kernel : {&solve_color_, &vertex_forces_}) PALPATE_RETURN_IF_ERROR(shells_->Bind(*kernel));
    if (HasPhases()) PALPATE_RETURN_IF_ERROR(shells_->Bind(run_phases_));
  }
  if (smoothing_) PALPATE_RETURN_IF_ERROR(BindSmoothing());
  return volumes_ ? BindVolumes(tissue) : absl::OkStatus();
}

/// The arguments that change when an edit makes the lists of smoothing_ grow.
absl::Status TissueSweeps::BindSmoothing() {
  for (Kernel* kernel : {&solve_color_, &vertex_forces_}) PALPATE_RETURN_IF_ERROR(smoothing_->Bind(*kernel));
  if (!HasPhases()) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(smoothing_->Bind(run_phases_));
  return smoothing_->BindPhases(run_phases_);
}

absl::Status TissueSweeps::BindDisplacements(const TissueBuffers& tissue) {
  x_ = &tissue.x;
  for (Kernel* kernel : {&solve_color_, &vertex_forces_, &accelerate_, &move_along_, &run_phases_, &follow_positions_}) {
    if (*kernel) PALPATE_RETURN_IF_ERROR(kernel->Bind(Arg("rest", tissue.rest), Arg("u", tissue.u)));
  }
  return follow_positions_.Bind(Arg("x", tissue.x));
}

/// Where something else moved vertices, before tets are read. Those of rigid bodies and NURBS shells have none, and come last.
absl::Status TissueSweeps::FollowPositions(Queue& queue) {
  if (!layout_.IsDisplaced()) return absl::OkStatus();
  return queue.Launch(follow_positions_, {elastic_end_, 0}, Arg("count", elastic_end_), Arg("anew", uint32_t{0}));
}

absl::Status TissueSweeps::TakePositions(Queue& queue) {
  if (!layout_.IsDisplaced()) return absl::OkStatus();
  return queue.Launch(follow_positions_, {layout_.vertex_count, 0}, Arg("count", layout_.vertex_count), Arg("anew", uint32_t{1}));
}

/// Work along moves.
absl::Status TissueSweeps::BindLine(const TissueBuffers& tissue) {
  PALPATE_RETURN_IF_ERROR(start_tets_.Bind(Arg("p", tissue.params), Arg("x_start", OfTets(tissue, layout_).start), Arg("tets", tissue.tets),
                                           Arg("tet_rest", tissue.tet_rest), Arg("tet_moduli", tissue.tet_moduli),
                                           Arg("tet_strain", tet_strain_)));
  PALPATE_RETURN_IF_ERROR(begin_line_.Bind(Arg("tets", tissue.tets), Arg("tet_rest", tissue.tet_rest)));
  for (Kernel* kernel : {&begin_line_, &work_on_line_}) {
    PALPATE_RETURN_IF_ERROR(kernel->Bind(Arg("p", tissue.params), Arg("tet_moduli", tissue.tet_moduli), Arg("rotations", tissue.rotations),
                                         Arg("tet_strain", tet_strain_), Arg("tet_line", tet_line_)));
  }
  return absl::OkStatus();
}

absl::Status TissueSweeps::BindAnchors(const TissueAnchors& anchors) {
  PALPATE_RETURN_IF_ERROR(solve_color_.Bind(Arg("anchors", anchors.anchors())));
  if (HasPhases()) PALPATE_RETURN_IF_ERROR(run_phases_.Bind(Arg("anchors", anchors.anchors())));
  return vertex_forces_.Bind(Arg("anchors", anchors.anchors()));
}

absl::Status TissueSweeps::BindShapes() {
  PALPATE_RETURN_IF_ERROR(solve_color_.Bind(Arg("goals", shapes_->goals())));
  if (HasPhases()) PALPATE_RETURN_IF_ERROR(run_phases_.Bind(Arg("goals", shapes_->goals())));
  return vertex_forces_.Bind(Arg("goals", shapes_->goals()));
}

/// The arguments that change when an edit makes the lists of volumes_ grow.
absl::Status TissueSweeps::BindVolumes(const TissueBuffers& tissue) {
  PALPATE_RETURN_IF_ERROR(solve_color_.Bind(Arg("vertex_entry", volumes_->vertex_entry()), Arg("volume_moves", volumes_->moves())));
  PALPATE_RETURN_IF_ERROR(vertex_forces_.Bind(Arg("vertex_entry", volumes_->vertex_entry()), Arg("entry_body", volumes_->entry_body()),
                                              Arg("volume_bodies", volumes_->bodies())));
  if (volume_gradients_) {
    PALPATE_RETURN_IF_ERROR(volume_gradients_.Bind(Arg("vertex_count", layout_.vertex_count), Arg("vertex_entry", volumes_->vertex_entry()),
                                                   Arg("x", tissue.x), Arg("vertex_triangle_range", tissue.vertex_triangle_range),
                                                   Arg("vertex_triangles", tissue.vertex_triangles), Arg("triangles", tissue.triangles)));
  }
  return keep_volumes_.Bind(Arg("entry_vertex", volumes_->entry_vertex()), Arg("entry_body", volumes_->entry_body()),
                            Arg("volume_bodies", volumes_->bodies()), Arg("volume_moves", volumes_->moves()), Arg("x", tissue.x),
                            Arg("held_axes", tissue.held_axes), Arg("touched", tissue.touched));
}

absl::Status TissueSweeps::BindSurface(const SurfaceContacts& surface) {
  const SurfacePairs& pairs = surface.pairs();
  for (Kernel* kernel : {&solve_color_, &vertex_forces_}) {
    PALPATE_RETURN_IF_ERROR(kernel->Bind(Arg("sp", surface.params()), Arg("x_sweep", surface.x_sweep()),
                                         Arg("entry_begins", pairs.entry_begins()), Arg("entries", pairs.entries()),
                                         Arg("pairs", pairs.pairs()), Arg("is_near", pairs.is_near())));
  }
  PALPATE_RETURN_IF_ERROR(
      solve_color_.Bind(Arg("detected", surface.detected()), Arg("planes", pairs.planes()), Arg("clear_m", pairs.clear_m())));
  if (HasPhases()) {
    PALPATE_RETURN_IF_ERROR(
        run_phases_.Bind(Arg("sp", surface.params()), Arg("x_sweep", surface.x_sweep()), Arg("entry_begins", pairs.entry_begins()),
                         Arg("entries", pairs.entries()), Arg("pairs", pairs.pairs()), Arg("is_near", pairs.is_near()),
                         Arg("detected", surface.detected()), Arg("planes", pairs.planes()), Arg("clear_m", pairs.clear_m())));
    PALPATE_RETURN_IF_ERROR(BindTopology(surface));
  }
  for (Kernel* kernel : {&accelerate_, &move_along_, &keep_volumes_}) {
    if (kernel == &keep_volumes_ && !volumes_) continue;
    if (kernel == &move_along_ && !moves_along_) continue;
    PALPATE_RETURN_IF_ERROR(kernel->Bind(Arg("detected", surface.detected()), Arg("planes", pairs.planes()),
                                         Arg("clear_m", pairs.clear_m()), Arg("entry_begins", pairs.entry_begins())));
  }
  return absl::OkStatus();
}

/// Clusters of all shape-matched bodies, and their goals.
absl::Status TissueSweeps::MakeShapes(Queue& queue, const TissueModel& model) {
  PALPATE_ASSIGN_OR_RETURN(const ShapeClusters clusters, BuildShapeClusters(model, layout_.solver_index, layout_.vertex_count, dt_s_));
  PALPATE_ASSIGN_OR_RETURN(shapes_, ShapeGoals::Create(queue, clusters, tuning_.shape_group));
  has_goal_.assign(layout_.vertex_count, 0);
  for (const uint32_t slot : clusters.member_vertex) has_goal_[slot] = 1;
  return absl::OkStatus();
}

/// Whether an edit reaches shape-matched bodies: tets of them changed, or slots that were theirs.
bool TissueSweeps::TouchesShapes(const TissueModel& model, const TissueChange& change, const TissueLayoutDelta& delta) const {
  return std::any_of(delta.slots.begin(), delta.slots.end(), [&](uint32_t slot) { return has_goal_[slot] != 0; }) ||
         std::any_of(change.tets.begin(), change.tets.end(), [&](uint32_t t) {
           return t < model.tets.size() && !LayoutEntries::IsFree(model.tets[t]) && model.tets[t].energy == TissueEnergy::kShapeMatched;
         });
}

absl::Status TissueSweeps::Follow(Queue& queue, const TissueBuffers& tissue, const TissueModel& model, const TissueChange& change,
                                  const TissueLayoutDelta& delta) {
  PALPATE_RETURN_IF_ERROR(start_strain_.Bind(Arg("block_count", layout_.block_count)));
  if (turn_corners_) PALPATE_RETURN_IF_ERROR(turn_corners_.Bind(Arg("block_count", layout_.block_count)));
  elastic_end_ = ElasticEnd(layout_);
  if (shapes_ && TouchesShapes(model, change, delta)) {
    PALPATE_RETURN_IF_ERROR(MakeShapes(queue, model));
    PALPATE_RETURN_IF_ERROR(BindShapes());
  }
  if (smoothing_) {
    PALPATE_RETURN_IF_ERROR(smoothing_->Follow(queue, model));
    PALPATE_RETURN_IF_ERROR(BindSmoothing());
  }
  if (!volumes_) return absl::OkStatus();
  PALPATE_ASSIGN_OR_RETURN(const VolumeLists volumes, ListVolumes(model, layout_));
  PALPATE_RETURN_IF_ERROR(volumes_->Follow(queue, volumes));
  return BindVolumes(tissue);
}

absl::Status TissueSweeps::Reset(Queue& queue) { return volumes_ ? volumes_->Reset(queue) : absl::OkStatus(); }

absl::Status TissueSweeps::GoOnFrom(Queue& queue, TissueSweeps& old) {
  return volumes_ && old.volumes_ ? volumes_->GoOnFrom(queue, *old.volumes_) : absl::OkStatus();
}

absl::Status TissueSweeps::SaveState(Queue& queue, StateWriter& archive) {
  // All members, so that a new one is not forgotten.
  [[maybe_unused]] auto& [layout, tuning, defines, dt_s, elastic_end, moves_bodies, moves_along, spectral_radius, omegas_host, plain,
                          has_swept, shapes, volumes, shells, smoothing, has_goal, strain, rotations, turn_corners, solve, vertex_forces,
                          accelerate, move, keep_volumes, volume_gradients, start_tets, begin_line, work_on_line, run_phases,
                          follow_positions, x, forces, tet_strain, tet_line, phases, omegas, tickets] = *this;
  if (smoothing) PALPATE_RETURN_IF_ERROR(smoothing->SaveState(queue, archive));
  return volumes ? volumes->SaveState(queue, archive) : absl::OkStatus();
}

absl::Status TissueSweeps::LoadState(Queue& queue, StateReader& archive) {
  if (smoothing_) PALPATE_RETURN_IF_ERROR(smoothing_->LoadState(queue, archive));
  return volumes_ ? volumes_->LoadState(queue, archive) : absl::OkStatus();
}

absl::Status TissueSweeps::Begin(Queue& queue, const TissueBuffers& tissue) {
  if (shapes_) PALPATE_RETURN_IF_ERROR(shapes_->Begin(queue, tissue.x_start));
  if (shells_) PALPATE_RETURN_IF_ERROR(shells_->Begin(queue));
  if (smoothing_) PALPATE_RETURN_IF_ERROR(smoothing_->Begin(queue, tissue.x_start));
  if (!layout_.has_viscosity) return absl::OkStatus();
  if (moves_along_ && HasStresses()) PALPATE_RETURN_IF_ERROR(queue.Enqueue(start_tets_, {layout_.BatchesOfTets(), 0}));
  return queue.Enqueue(start_strain_, {layout_.block_count, 0});
}

absl::Status TissueSweeps::BeginSweeps(Queue& queue) {
  ForgetHistory();
  has_swept_ = false;
  if (!layout_.HasRotatedEnergies()) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(FollowPositions(queue));
  PALPATE_RETURN_IF_ERROR(queue.Enqueue(extract_rotations_, {layout_.BatchesOfTets(), 0}));
  return queue.Enqueue(turn_corners_, {layout_.block_count, 0});
}

void TissueSweeps::ForgetHistory() { plain_ = 0; }

absl::Status TissueSweeps::UpdateForSweep(Queue& queue, const TissueBuffers& tissue) {
  if (smoothing_ && layout_.HasRotatedEnergies()) {
    PALPATE_RETURN_IF_ERROR(smoothing_->Measure(queue, tissue.x));
    PALPATE_RETURN_IF_ERROR(smoothing_->Turn(queue));
  }
  return shapes_ ? shapes_->Update(queue, tissue.x) : absl::OkStatus();
}

absl::Status TissueSweeps::Update(Queue& queue, const TissueBuffers& tissue) {
  PALPATE_RETURN_IF_ERROR(FollowPositions(queue));
  if (layout_.HasRotatedEnergies()) PALPATE_RETURN_IF_ERROR(queue.Enqueue(extract_rotations_, {layout_.BatchesOfTets(), 0}));
  return UpdateForSweep(queue, tissue);
}

absl::Status TissueSweeps::Sweep(Queue& queue, const TissueBuffers& tissue) {
  if (volumes_) PALPATE_RETURN_IF_ERROR(volumes_->Measure(queue, tissue.triangles, tissue.x, std::exchange(has_swept_, true)));
  if (smoothing_) PALPATE_RETURN_IF_ERROR(smoothing_->Measure(queue, tissue.x));
  PALPATE_RETURN_IF_ERROR(FollowPositions(queue));
  for (size_t c = 0; c < layout_.color_end.size(); ++c) {
    const uint32_t count = layout_.color_end[c] - layout_.color_begin[c];
    if (count == 0) continue;
    PALPATE_RETURN_IF_ERROR(queue.Launch(solve_color_, {size_t{count} * tuning_.team, tuning_.group}, Arg("first", layout_.color_begin[c]),
                                         Arg("count", count)));
    if (volumes_) PALPATE_RETURN_IF_ERROR(KeepVolumes(queue, static_cast<uint32_t>(c)));
    if (smoothing_) PALPATE_RETURN_IF_ERROR(smoothing_->Move(queue, tissue.x, layout_.color_begin[c], count));
  }
  return absl::OkStatus();
}

/// After solve_color: moves the vertices of bodies that keep their volume.
absl::Status TissueSweeps::KeepVolumes(Queue& queue, uint32_t color) {
  const UInt2 entries = volumes_->EntriesOf(color);
  if (entries.y == 0) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(volumes_->Balance(queue, color));
  return queue.Launch(keep_volumes_, {entries.y, 0}, Arg("first", entries.x), Arg("count", entries.y));
}

absl::Status TissueSweeps::Accelerate(Queue& queue) {
  const double rho = spectral_radius_;
  if (!(rho > 0)) return absl::OkStatus();
  return queue.Launch(accelerate_, {layout_.free_count, 0}, Arg("omega", omegas_host_[plain_++]));
}

absl::Status TissueSweeps::RunPhases(Queue& queue, const SweepParts& parts, uint32_t sweeps, const SurfaceContacts* surface) {
  const uint32_t chunk = std::max(tuning_.phase_chunk, 1U);
  const uint32_t teams = tuning_.phase_group / tuning_.team;
  PhaseList list;
  if (parts.contacts) list.Add(PALPATE_PHASE_CONTACTS, 0, kContactParts, 1);
  if (parts.pairs > 0) {
    list.Add(PALPATE_PHASE_COPY, 0, layout_.free_count, kCopyChunk * chunk);
    list.Add(PALPATE_PHASE_PAIRS, 0, parts.pairs, kLightChunk * chunk);
  }
  const uint32_t domains = smoothing_ && parts.colors ? smoothing_->domain_count() : 0;
  list.Add(PALPATE_PHASE_DOMAINS, 0, domains, chunk);
  list.EndStage();
  for (size_t c = 0; parts.colors && c < layout_.color_end.size(); ++c) {
    list.Add(PALPATE_PHASE_COLOR, layout_.color_begin[c], layout_.color_end[c] - layout_.color_begin[c],
             (chunk + teams - 1) / teams * teams);
    list.EndStage();
    if (layout_.color_end[c] == layout_.color_begin[c]) continue;
    list.Add(PALPATE_PHASE_DOMAIN_MOVES, 0, domains, kLightChunk * chunk);
    list.EndStage();
  }
  list.Add(PALPATE_PHASE_RIGID, 0, parts.bodies, 1);
  list.EndStage();
  list.Add(PALPATE_PHASE_PLACE, 0, parts.body_vertices, kCopyChunk * chunk);
  list.EndStage();
  list.Add(PALPATE_PHASE_COLLIDERS, 0, parts.colliders, 1);
  list.Add(PALPATE_PHASE_CLIPS, 0, parts.clips, 1);
  list.EndStage();
  const bool accelerates = parts.accelerates && spectral_radius_ > 0;
  if (accelerates) list.Add(PALPATE_PHASE_ACCELERATE, 0, layout_.free_count, kLightChunk * chunk);
  const uint32_t first_omega = plain_;
  if (accelerates) plain_ += sweeps;
  if (list.phases().empty()) return absl::OkStatus();
  PhaseTable& table = phases_[parts.colors ? 0 : 1];
  if (!std::ranges::equal(table.host, list.phases(), [](const SweepPhase& a, const SweepPhase& b) {
        return std::tie(a.kind, a.first, a.count, a.chunk, a.begin, a.needs) ==
               std::tie(b.kind, b.first, b.count, b.chunk, b.begin, b.needs);
      })) {
    PALPATE_RETURN_IF_ERROR(Grow(queue.context(), table.device, list.phases().size(), "sweep phases"));
    PALPATE_RETURN_IF_ERROR(queue.Write(table.device, std::span<const SweepPhase>(list.phases())));
    table.host = list.phases();
  }
  if (surface != nullptr) PALPATE_RETURN_IF_ERROR(BindTopology(*surface));
  if (parts.colors) PALPATE_RETURN_IF_ERROR(FollowPositions(queue));
  const size_t groups = std::min(tuning_.phase_groups, list.widest());
  return queue.Launch(run_phases_, {groups * tuning_.phase_group, tuning_.phase_group}, Arg("phases", table.device),
                      Arg("phase_count", static_cast<uint32_t>(list.phases().size())), Arg("ticket_count", list.chunks()),
                      Arg("sweep_count", sweeps), Arg("first_omega", first_omega));
}

/// What edits may lay out anew.
absl::Status TissueSweeps::BindTopology(const SurfaceContacts& surface) {
  const DeviceSurface& device = surface.device();
  return run_phases_.Bind(Arg("near_triangles", device.triangles), Arg("triangle_edges", device.triangle_edges),
                          Arg("edge_triangle_range", device.edge_triangle_range), Arg("edge_triangles", device.edge_triangles));
}

absl::Status TissueSweeps::MoveAlong(Queue& queue, const DeviceBuffer<Float4>& moves, const DeviceBuffer<float>& share) {
  return queue.Launch(move_along_, {layout_.free_count, 0}, Arg("moves", moves), Arg("share", share));
}

absl::Status TissueSweeps::EnqueueForces(Queue& queue, uint32_t count, uint32_t parts, const DeviceBuffer<Float4>& positions,
                                         const DeviceBuffer<Float4>& forces_n) {
  if (smoothing_) PALPATE_RETURN_IF_ERROR(smoothing_->Measure(queue, positions));
  if (layout_.IsDisplaced()) {
    const bool is_trial = &positions != x_;
    if (is_trial && (parts & kElasticForces) != 0) {
      return absl::InvalidArgumentError("elastic forces at positions whose displacements are not known");
    }
    PALPATE_RETURN_IF_ERROR(vertex_forces_.Bind(Arg("is_trial", uint32_t{is_trial ? 1U : 0U})));
  }
  return queue.Launch(vertex_forces_, {count, 0}, Arg("count", count), Arg("parts", parts), Arg("x", positions), Arg("forces", forces_n));
}

absl::Status TissueSweeps::Press(Queue& queue, const TissueBuffers& tissue, const DeviceBuffer<Float4>& positions, KeptPressure which) {
  if (!volumes_) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(volumes_->Measure(queue, tissue.triangles, positions, /*goes_on=*/false));
  return volumes_->Balance(queue, which);
}

absl::Status TissueSweeps::EnqueueVolumeGradients(Queue& queue, const DeviceBuffer<Float4>& forces, const DeviceBuffer<Float4>& gradients) {
  return queue.Launch(volume_gradients_, {layout_.vertex_count, 0}, Arg("forces", forces), Arg("gradients", gradients));
}

absl::Status TissueSweeps::BeginLine(Queue& queue, const Range& range, const TissueBuffers& tissue, const DeviceBuffer<Float4>& moves,
                                     const DeviceBuffer<float>& sums) {
  return queue.Launch(begin_line_, range, Arg("x", OfTets(tissue, layout_).now), Arg("moves", moves), Arg("sums", sums));
}

absl::Status TissueSweeps::WorkOnLine(Queue& queue, const Range& range, const DeviceBuffer<float>& share, const DeviceBuffer<float>& sums) {
  return queue.Launch(work_on_line_, range, Arg("share", share), Arg("sums", sums));
}

absl::Status TissueSweeps::ReadForces(Queue& queue, const TissueBuffers& tissue, uint32_t parts, std::span<Float4> forces_n) {
  PALPATE_RETURN_IF_ERROR(Press(queue, tissue, tissue.x, KeptPressure::kOfEnergy));
  PALPATE_RETURN_IF_ERROR(EnqueueForces(queue, layout_.vertex_count, parts, tissue.x, forces_));
  return queue.ReadBlocking(forces_, forces_n);
}

size_t TissueSweeps::device_bytes() const {
  return forces_.size_bytes() + tet_strain_.size_bytes() + tet_line_.size_bytes() + (shapes_ ? shapes_->device_bytes() : 0) +
         (volumes_ ? volumes_->device_bytes() : 0) + (shells_ ? shells_->device_bytes() : 0) +
         (smoothing_ ? smoothing_->device_bytes() : 0);
}

}  // namespace palpate::gpu
