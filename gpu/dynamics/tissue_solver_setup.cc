// What stands before the first step.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/dynamics/tissue_solver_impl.h"

namespace palpate::gpu {

namespace kernels {
extern const KernelSource tissue;
}  // namespace kernels

namespace {

constexpr float kStiffening = 10.0F;
constexpr double kSlipSpeed_m_per_s = 0.001;  // below it friction is viscous
constexpr double kTissueStiffness = 20;       // of a contact: this many times modulus and mean edge
// Room that is left for edits once there was one: a fresh layout, which costs as much as some hundred deltas, comes after as many at least.
constexpr TissueSlack kEditSlack = {.share = 0.25, .least = 32, .spare_colors = 4};

double MeanRigidMass(const TissueModel& model) {
  if (model.rigid.empty()) return 0;
  double sum = 0;
  for (const TissueRigidBody& rigid : model.rigid) sum += rigid.mass_kg;
  return sum / static_cast<double>(model.rigid.size());
}

double MeanNurbsStiffness(const TissueModel& model, const TissueLayout& layout) {
  double sum = 0, count = 0;
  for (const TissueNurbsShell& shell : model.nurbs_shells) {
    for (uint32_t v = shell.vertices[0]; v < shell.vertices[1]; ++v, ++count)
      sum += layout.vertex_stiffness_n_per_m[layout.solver_index[v]];
  }
  return sum / count;
}

double ContactStiffness(const TissueModel& model, const TissueOptions& options, const TissueLayout& layout) {
  if (options.stiffness_n_per_m > 0) return options.stiffness_n_per_m;
  if (layout.live_tet_count == 0 && !layout.shell.empty()) return layout.shell.mean_stiffness_n_per_m;
  if (layout.live_tet_count == 0 && !model.nurbs_shells.empty()) return MeanNurbsStiffness(model, layout);
  if (layout.live_tet_count == 0) return MeanRigidMass(model) / (options.dt_s * options.dt_s);
  return kTissueStiffness * layout.mean_young_modulus_pa * layout.mean_edge_m;
}

StepParams MakeParams(const TissueModel& model, const TissueOptions& options, const TissueLayout& layout) {
  StepParams p{};
  p.dt_s = static_cast<float>(options.dt_s);
  p.inv_dt = static_cast<float>(1.0 / options.dt_s);
  p.gravity_x = static_cast<float>(options.gravity_m_per_s2[0]);
  p.gravity_y = static_cast<float>(options.gravity_m_per_s2[1]);
  p.gravity_z = static_cast<float>(options.gravity_m_per_s2[2]);
  p.margin_m = static_cast<float>(options.margin_m);
  p.stiffness_n_per_m = static_cast<float>(ContactStiffness(model, options, layout));
  p.stiffening = kStiffening;
  p.friction = static_cast<float>(options.friction);
  p.slip_m = static_cast<float>(kSlipSpeed_m_per_s * options.dt_s);
  p.range_m = static_cast<float>(options.range_m);
  p.lambda_cap = PALPATE_LAMBDA_UNCAPPED;
  p.low_unit_m = std::ldexp(1.0F, layout.displacement_exponent);
  p.low_units_per_m = std::ldexp(1.0F, -layout.displacement_exponent);
  p.free_count = layout.free_count;
  p.vertex_count = layout.vertex_count;
  p.triangle_count = layout.triangle_count;
  p.tet_count = layout.tet_count;
  return p;
}

absl::Status CheckJointSets(const TissueModel& model) {
  if (model.joints.empty() && !(model.joint_sets.empty() && model.nurbs_joint_sets.empty() && model.joint_mounts.empty())) {
    return absl::InvalidArgumentError("joint_sets: there are no joints");
  }
  std::vector<bool> is_held(model.rest_m.size(), false);
  for (size_t s = 0; s < model.joint_sets.size(); ++s) {
    for (const uint32_t v : model.joint_sets[s].vertices) {
      const auto error = [&](const char* what) {
        return absl::InvalidArgumentError(absl::StrCat("joint_sets[", s, "]: vertex ", v, what));
      };
      if (v >= model.rest_m.size()) return error(" is out of range");
      if (model.fixed[v] != kFreeVertex || (!model.held_axes.empty() && model.held_axes[v] != 0)) return error(" is not free");
      if (is_held[v]) return error(" is given twice");
      is_held[v] = true;
    }
  }
  return absl::OkStatus();
}

}  // namespace

TissueTuning TissueTuning::For(const DeviceInfo& device) {
  // But for groups of phases not by the number of cores: sums of partial sums have the same bits with any.
  TissueTuning tuning;
  if (device.is_cpu) {
    tuning = {.lanes = 8, .team = 1, .group = 8, .list_group = 1, .shape_group = 1, .partials = 32, .phase_group = 1, .phase_chunk = 16};
  } else {
    tuning = {
        .lanes = 1, .team = 8, .group = 64, .list_group = 256, .shape_group = 64, .partials = 1024, .phase_group = 64, .phase_chunk = 8};
  }
  if (device.has_device_fence) tuning.phase_groups = std::max(device.compute_units, 1U);
  return tuning;
}

absl::Status TissueSolver::Impl::Init(std::shared_ptr<Queue> queue, const TissueModel& model, const TissueOptions& options,
                                      std::span<const ColliderDescription> colliders, std::span<const PlaneObstacle> planes,
                                      const TissueTuning& tuning, Impl* old, const SavedLayout* saved) {
  queue_ = std::move(queue);
  options_ = options;
  tuning_ = tuning;
  if (saved != nullptr) options_.stiffness_n_per_m = saved->option_stiffness_n_per_m;
  const bool goes_on = old != nullptr && saved == nullptr;
  PALPATE_RETURN_IF_ERROR(LayOut(model, saved, goes_on));
  params_host_ = MakeParams(model, options_, layout_);
  if (saved != nullptr) params_host_.stiffness_n_per_m = saved->stiffness_n_per_m;
  params_host_.collider_count = static_cast<uint32_t>(colliders.size());
  params_host_.plane_count = static_cast<uint32_t>(planes.size());
  aims_ = ColliderAims(colliders.size(), options.margin_m);

  PALPATE_RETURN_IF_ERROR(tools_.Init(*queue_, layout_, options, tuning, colliders, planes, params_host_.stiffness_n_per_m));
  PALPATE_ASSIGN_OR_RETURN(tissue_, TissueBuffers::Create(*queue_, layout_, params_host_, options.acceleration > 0));
  PALPATE_RETURN_IF_ERROR(anchors_.Init(*queue_, layout_));
  if (layout_.has_surface_contact) {
    SurfaceContacts* const old_surface = old == nullptr ? nullptr : old->surface_.get();
    PALPATE_RETURN_IF_ERROR(MakeSurface(old_surface, goes_on && old_surface != nullptr ? old_surface->reach_edge_m() : 0));
  }
  if (!tools_.empty()) {
    PALPATE_ASSIGN_OR_RETURN(
        barrier_, ObstacleBarrier::Create(*queue_, layout_, params_host_.collider_count, params_host_.plane_count, options.margin_m));
  }
  if (surface_ || barrier_) PALPATE_RETURN_IF_ERROR(gate_.Init(*queue_, old == nullptr ? nullptr : &old->gate_));
  PALPATE_RETURN_IF_ERROR(CheckJointSets(model));
  PALPATE_RETURN_IF_ERROR(CheckNurbsJointSets(model.nurbs_shells, model.nurbs_joint_sets));
  if (!model.nurbs_shells.empty()) PALPATE_RETURN_IF_ERROR(MakeNurbs(model));
  if (!model.rigid.empty() || !model.joints.empty()) PALPATE_RETURN_IF_ERROR(MakeRigid(model));
  if (rigid_) followers_.Add(rigid_.get());
  if (nurbs_) followers_.Add(nurbs_.get());
  if (surface_ && !followers_.empty()) surface_->SetFollower(&followers_);
  PALPATE_RETURN_IF_ERROR(SetRestitution(model));
  PALPATE_RETURN_IF_ERROR(air_.SetSurface(*queue_, model, layout_));
  PALPATE_RETURN_IF_ERROR(loads_.SetLoads(*queue_, model.loads, layout_));
  PALPATE_RETURN_IF_ERROR(driven_.SetRegions(*queue_, model.driven, layout_));
  PALPATE_RETURN_IF_ERROR(driven_.MakePrescribed(*queue_, model.prescribed.vertices.size()));
  PALPATE_RETURN_IF_ERROR(driven_.Hold(*queue_, layout_, layout_.rest_m));
  const bool moves_bodies = rigid_ && rigid_->CanMoveInPhases() && !nurbs_;
  PALPATE_RETURN_IF_ERROR(
      sweeps_.Init(*queue_, model, options, tuning, surface_ != nullptr, moves_bodies, old == nullptr ? nullptr : &old->sweeps_));
  if (options_.coarse_nodes > 0) {
    PALPATE_ASSIGN_OR_RETURN(correction_, CoarseCorrection::Create(*queue_, model, layout_, options_, tuning));
  }
  PALPATE_RETURN_IF_ERROR(MakeKernels(old));
  PALPATE_RETURN_IF_ERROR(tools_.Bind(tissue_, anchors_));
  PALPATE_RETURN_IF_ERROR(sweeps_.Bind(*queue_, tissue_, tools_, anchors_));
  if (nurbs_) {
    PALPATE_RETURN_IF_ERROR(nurbs_->MakeKernels(*queue_->context(), sweeps_.defines()));
    PALPATE_RETURN_IF_ERROR(nurbs_->Bind(tissue_, tools_, anchors_));
  }
  PALPATE_RETURN_IF_ERROR(state_check_.Bind(tissue_));
  return surface_ ? BindSurface() : absl::OkStatus();
}

/// `has_room`: for edits. Scenes that are never edited need none.
absl::Status TissueSolver::Impl::LayOut(const TissueModel& model, const SavedLayout* saved, bool has_room) {
  const bool is_edited = saved != nullptr && saved->skeleton;
  if (is_edited) {
    PALPATE_ASSIGN_OR_RETURN(layout_, LayOutTissueAs(model, options_.dt_s, *saved->skeleton));
  } else {
    PALPATE_ASSIGN_OR_RETURN(layout_, LayOutTissue(model, options_.dt_s, tuning_.lanes, has_room ? kEditSlack : TissueSlack{}));
  }
  if (!is_edited && !has_room) return absl::OkStatus();
  PALPATE_ASSIGN_OR_RETURN(RunWriter writer, RunWriter::Create(queue_->context()));
  edits_.reset(new Edits{.editor = is_edited ? TissueLayoutEditor(model, options_.dt_s, *saved->skeleton, &layout_)
                                             : TissueLayoutEditor(model, options_.dt_s, &layout_),
                         .writer = std::move(writer)});
  return absl::OkStatus();
}

/// `old`: one that is given up, or null. `reach_edge_m`: SurfaceReach's, if it is known.
absl::Status TissueSolver::Impl::MakeSurface(SurfaceContacts* old, double reach_edge_m) {
  SurfaceOptions options;
  options.dt_s = options_.dt_s;
  options.margin_m = options_.margin_m + 2 * layout_.shell.max_half_thickness_m;  // of the thickest pair; SurfacePairs knows the others
  options.stiffness_n_per_m = options_.stiffness_n_per_m;
  options.friction = options_.surface_friction;
  options.reserve_m = options_.surface_reserve_m;
  options.reach_edge_m = reach_edge_m;
  options.max_detections = options_.surface_max_detections;
  options.check_intersections = options_.check_intersections;
  options.self_pairs = options_.self_pairs;
  const SurfaceSurroundings scene = {.block_range = &tissue_.block_range,
                                     .corner_index = &tissue_.corner_index,
                                     .vertex_triangle_range = &tissue_.vertex_triangle_range,
                                     .vertex_triangles = &tissue_.vertex_triangles,
                                     .held_axes = &tissue_.held_axes};
  PALPATE_ASSIGN_OR_RETURN(surface_,
                           SurfaceContacts::Create(*queue_, layout_, options, scene, tuning_.partials, edits_ ? kEditSlack.share : 0, old));
  return absl::OkStatus();
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
    blocks.push_back({.vertex_begin = ToNumber(layout_.solver_index[rigid.vertices[0]]),
                      .vertex_end = ToNumber(layout_.solver_index[rigid.vertices[1] - 1]) + 1,
                      .triangle_begin = static_cast<uint32_t>(of_body - layout_.triangle_body.begin()),
                      .triangle_end = static_cast<uint32_t>(past - layout_.triangle_body.begin()),
                      .mass_kg = rigid.mass_kg,
                      .center_m = rigid.center_m,
                      .inertia_kg_m2 = rigid.inertia_kg_m2,
                      .velocity_m_per_s = rigid.velocity_m_per_s,
                      .angular_velocity_rad_per_s = rigid.angular_velocity_rad_per_s,
                      .damping_per_s = rigid.damping_per_s,
                      .angular_damping_per_s = rigid.angular_damping_per_s});
  }
  const std::vector<JointSetVertices> sets = JointSetsOf(model, layout_, options_.dt_s);
  std::vector<std::array<double, 3>> origins_m;
  for (const TissueNurbsJointSet& set : model.nurbs_joint_sets) origins_m.push_back(NurbsJointOrigin(model.nurbs_shells, set));
  const bool has_momentum = options_.acceleration > 0 && layout_.free_count == 0 && model.nurbs_shells.empty();
  PALPATE_ASSIGN_OR_RETURN(
      rigid_, RigidBlocks::Create(*queue_, blocks, layout_.rest_m, JointFrames::States(sets, origins_m, model.joint_mounts), has_momentum));
  if (model.joints.empty()) return absl::OkStatus();
  return rigid_->SetJoints(*queue_, model.joints, options_.joint_dissipation,
                           {.sets = sets,
                            .shell_sets = model.nurbs_joint_sets,
                            .mounts = model.joint_mounts,
                            .shell_models = model.nurbs_shells,
                            .shells = nurbs_.get(),
                            .dt_s = options_.dt_s});
}

absl::Status TissueSolver::Impl::MakeNurbs(const TissueModel& model) {
  PALPATE_ASSIGN_OR_RETURN(nurbs_, NurbsShells::Create(*queue_, model.nurbs_shells, layout_, options_.dt_s, FallenFromRest()));
  return absl::OkStatus();
}

RigidSurroundings TissueSolver::Impl::Surroundings() const {
  RigidSurroundings scene;
  scene.params = &tissue_.params;
  scene.x_start = &tissue_.x_start;
  scene.y = &tissue_.y;
  scene.velocity = &tissue_.velocity;
  scene.mass = &tissue_.mass;
  scene.triangles = &tissue_.triangles;
  scene.triangle_colliders = &tools_.triangle_colliders();
  scene.tool_contacts = &tools_.contacts();
  scene.colliders = &tools_.colliders();
  scene.planes = &tools_.planes();
  if (!anchors_.empty()) {
    scene.anchor_begins = &anchors_.begins();
    scene.anchors = &anchors_.anchors();
  }
  if (surface_) {
    scene.surface_params = &surface_->params();
    scene.detected = &surface_->detected();
    const SurfacePairs& pairs = surface_->pairs();
    scene.clear_m = &pairs.clear_m();
    scene.entry_begins = &pairs.entry_begins();
    scene.entries = &pairs.entries();
    scene.pairs = &pairs.pairs();
    scene.rows = &pairs.rows();
    scene.is_near = &pairs.is_near();
    scene.bounds = &pairs.planes();
    scene.pairs_edition = pairs.edition();
    scene.pairs_listing = pairs.listing();
    scene.moves_only_rigid = layout_.free_count == 0 && driven_.count() == 0;
  }
  return scene;
}

/// Those of `old` (or null) are used again if they are the same.
absl::Status TissueSolver::Impl::MakeKernels(Impl* old) {
  Context& context = *queue_->context();
  const ProgramDefines& defines = sweeps_.defines();
  Impl* const same = old != nullptr && old->sweeps_.defines() == defines ? old : nullptr;
  PALPATE_RETURN_IF_ERROR(state_check_.Init(*queue_, defines, tuning_.partials, same ? &same->state_check_ : nullptr));
  PALPATE_RETURN_IF_ERROR(gathered_.Init(*queue_, defines, same ? &same->gathered_ : nullptr));
  PALPATE_RETURN_IF_ERROR(loads_.MakeKernels(context, defines, same ? &same->loads_ : nullptr));
  PALPATE_RETURN_IF_ERROR(air_.MakeKernels(context, old == nullptr ? nullptr : &old->air_));
  if (surface_) {
    PALPATE_RETURN_IF_ERROR(component_shifts_.MakeKernels(context, defines, same ? &same->component_shifts_ : nullptr));
  }
  if (options_.report_energy) {
    energy_.emplace();
    PALPATE_RETURN_IF_ERROR(energy_->Init(*queue_, layout_, defines, tuning_.partials, options_.energy_in_double));
  }
  PALPATE_RETURN_IF_ERROR(tools_.MakeKernels(context, old == nullptr ? nullptr : &old->tools_));
  PALPATE_RETURN_IF_ERROR(anchors_.MakeKernels(context, tools_.defines(), old == nullptr ? nullptr : &old->anchors_));
  PALPATE_RETURN_IF_ERROR(driven_.MakeKernels(context));
  PALPATE_ASSIGN_OR_RETURN(predict_, context.CreateKernel(kernels::tissue, "predict", defines));
  if (layout_.IsDisplaced()) {
    PALPATE_RETURN_IF_ERROR(predict_.Bind(Arg("rest", tissue_.rest), Arg("u", tissue_.u), Arg("u_start", tissue_.u_start)));
  }
  return predict_.Bind(Arg("p", tissue_.params), Arg("x", tissue_.x), Arg("x_start", tissue_.x_start), Arg("y", tissue_.y),
                       Arg("velocity", tissue_.velocity), Arg("velocity_before", tissue_.velocity_before), Arg("mass", tissue_.mass),
                       Arg("mass_damping", tissue_.mass_damping), Arg("held_axes", tissue_.held_axes));
}

/// The arguments that change when the lists of pairs grow.
absl::Status TissueSolver::Impl::BindSurface() {
  surface_generation_ = surface_->pairs().generation();
  if (nurbs_) PALPATE_RETURN_IF_ERROR(nurbs_->BindSurface(*surface_));
  return sweeps_.BindSurface(*surface_);
}

size_t TissueSolver::Impl::device_bytes() const {
  return tissue_.device_bytes() + tools_.device_bytes() + sweeps_.device_bytes() + component_shifts_.device_bytes() +
         state_check_.device_bytes() + gathered_.device_bytes() + anchors_.device_bytes() + loads_.device_bytes() + air_.device_bytes() +
         driven_.device_bytes() + (surface_ ? surface_->device_bytes() : 0) + (barrier_ ? barrier_->device_bytes() : 0) +
         (energy_ ? energy_->device_bytes() : 0) + (rigid_ ? rigid_->device_bytes() : 0) + (nurbs_ ? nurbs_->device_bytes() : 0) +
         (correction_ ? correction_->device_bytes() : 0);
}

}  // namespace palpate::gpu
