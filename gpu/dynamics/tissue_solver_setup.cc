// Buffers, kernels and their arguments.
#include <algorithm>
#include <string>
#include <tuple>

#include "gpu/dynamics/tissue_solver_impl.h"

namespace palpate::gpu {

namespace kernels {
extern const KernelSource tissue;
extern const KernelSource tools;
}  // namespace kernels

namespace {

constexpr float kStiffening = 10.0F;
constexpr double kSlipSpeed_m_per_s = 0.001;  // below it friction is viscous
constexpr double kToolContactRatio = 20;      // a coupled tool's contacts are at most this much stiffer than what drives it
constexpr uint32_t kMaxColliders = 32;        // bits of a triangle's collider mask
// Room that is left for edits once there was one: a fresh layout, which costs as much as some hundred deltas, comes after as many at least.
constexpr TissueSlack kEditSlack = {.share = 0.25, .least = 32, .spare_colors = 4};

double MeanRigidMass(const TissueModel& model) {
  if (model.rigid.empty()) return 0;
  double sum = 0;
  for (const TissueRigidBody& rigid : model.rigid) sum += rigid.mass_kg;
  return sum / static_cast<double>(model.rigid.size());
}

}  // namespace

TissueTuning TissueTuning::For(const DeviceInfo& device) {
  // Not by the number of cores: sums of partial sums have the same bits with any.
  if (device.is_cpu) return {.lanes = 8, .team = 1, .group = 8, .list_group = 1, .shape_group = 1, .partials = 32};
  return {.lanes = 1, .team = 8, .group = 64, .list_group = 256, .shape_group = 64, .partials = 1024};
}

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

  PALPATE_RETURN_IF_ERROR(Fill(&tissue_.params, std::span<const StepParams>(&params_host_, 1), "params"));
  PALPATE_RETURN_IF_ERROR(Fill(&tissue_.x, std::span<const Float4>(rest_positions_), "positions"));
  PALPATE_RETURN_IF_ERROR(Fill(&tissue_.x_start, std::span<const Float4>(rest_positions_), "positions_start"));
  PALPATE_RETURN_IF_ERROR(Fill(&tissue_.y, std::span<const Float4>(rest_positions_), "inertial_targets"));
  PALPATE_RETURN_IF_ERROR(Make(&tissue_.velocity, n, "velocities"));
  PALPATE_RETURN_IF_ERROR(Make(&tissue_.velocity_before, n, "velocities_before"));
  const size_t history = options_.acceleration > 0 ? n : 0;
  PALPATE_RETURN_IF_ERROR(Make(&x_before_, history, "positions_before"));
  PALPATE_RETURN_IF_ERROR(Make(&x_before2_, history, "positions_before2"));
  PALPATE_RETURN_IF_ERROR(Fill(&tissue_.mass, std::span<const float>(layout_.mass_kg), "masses"));
  PALPATE_RETURN_IF_ERROR(Fill(&tissue_.mass_damping, std::span<const float>(layout_.mass_damping_per_s), "mass_damping"));
  PALPATE_RETURN_IF_ERROR(Fill(&tissue_.held_axes, std::span<const uint32_t>(layout_.held_axes), "held_axes"));
  PALPATE_RETURN_IF_ERROR(Fill(&tissue_.original_index, std::span<const uint32_t>(layout_.original_index), "original_index"));
  PALPATE_RETURN_IF_ERROR(Fill(&tissue_.block_range, std::span<const UInt2>(layout_.block_range), "block_range"));
  PALPATE_RETURN_IF_ERROR(Fill(&tissue_.block_vertex, std::span<const uint32_t>(layout_.block_vertex), "block_vertex"));
  PALPATE_RETURN_IF_ERROR(Fill(&tissue_.corner_real, std::span<const float>(layout_.corner_real), "corner_real"));
  PALPATE_RETURN_IF_ERROR(Fill(&tissue_.corner_index, std::span<const uint32_t>(layout_.corner_index), "corner_index"));
  PALPATE_RETURN_IF_ERROR(
      Make(&tissue_.corner_strain, layout_.has_viscosity ? layout_.block_vertex.size() * 7 * layout_.lanes : 0, "corner_strain"));
  PALPATE_RETURN_IF_ERROR(Fill(&tissue_.tets, std::span<const UInt4>(layout_.tets), "tets"));
  PALPATE_RETURN_IF_ERROR(Fill(&tissue_.tet_rest, std::span<const Float4>(layout_.tet_rest), "tet_rest"));
  const std::vector<Float4> identity(layout_.Has(TissueEnergy::kCorotated) ? layout_.tets.size() : 0, Float4{0, 0, 0, 1});
  PALPATE_RETURN_IF_ERROR(Fill(&tissue_.rotations, std::span<const Float4>(identity), "rotations"));
  PALPATE_RETURN_IF_ERROR(Fill(&tissue_.triangles, std::span<const UInt4>(layout_.triangles), "triangles"));
  PALPATE_RETURN_IF_ERROR(
      Fill(&tissue_.vertex_triangle_range, std::span<const UInt2>(layout_.vertex_triangle_range), "vertex_triangle_range"));
  PALPATE_RETURN_IF_ERROR(Fill(&tissue_.vertex_triangles, std::span<const uint32_t>(layout_.vertex_triangles), "vertex_triangles"));
  PALPATE_RETURN_IF_ERROR(Make(&triangle_colliders_, layout_.triangles.size(), "triangle_colliders"));
  PALPATE_RETURN_IF_ERROR(Make(&contacts_, layout_.triangles.size() * colliders.size(), "contacts"));
  PALPATE_RETURN_IF_ERROR(Make(&colliders_, colliders.size() + kMaxClips, "colliders"));
  PALPATE_RETURN_IF_ERROR(anchors_.Init(*queue_, layout_));
  PALPATE_RETURN_IF_ERROR(Make(&targets_, 2 * colliders.size(), "collider_targets"));
  PALPATE_RETURN_IF_ERROR(Fill(&planes_, planes, "planes"));
  PALPATE_RETURN_IF_ERROR(Make(&tissue_.touched, n, "touched"));
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
    PALPATE_ASSIGN_OR_RETURN(surface_, SurfaceContacts::Create(*queue_, layout_, surface,
                                                               {&tissue_.block_range, &tissue_.corner_index, &tissue_.vertex_triangle_range,
                                                                &tissue_.vertex_triangles, &tissue_.held_axes},
                                                               tuning_.partials, old == nullptr ? 0 : kEditSlack.share,
                                                               old == nullptr ? nullptr : old->surface_.get()));
  }
  if (!colliders.empty() || !planes.empty()) {
    PALPATE_ASSIGN_OR_RETURN(
        barrier_, ObstacleBarrier::Create(*queue_, layout_, params_host_.collider_count, params_host_.plane_count, options.margin_m));
  }
  if (!model.rigid.empty()) PALPATE_RETURN_IF_ERROR(MakeRigid(model));
  if (layout_.Has(TissueEnergy::kShapeMatched)) PALPATE_RETURN_IF_ERROR(MakeShapes(model));
  if (KeepsVolumes(model)) {
    PALPATE_ASSIGN_OR_RETURN(const VolumeLists volumes, ListVolumes(model, layout_));
    PALPATE_ASSIGN_OR_RETURN(volumes_, VolumeKeeper::Create(*queue_, volumes, tuning_.list_group));
  }
  PALPATE_RETURN_IF_ERROR(loads_.SetLoads(*queue_, model.loads, layout_));
  PALPATE_RETURN_IF_ERROR(driven_.SetRegions(*queue_, model.driven, layout_));
  PALPATE_RETURN_IF_ERROR(driven_.MakePrescribed(*queue_, model.prescribed.vertices.size()));
  PALPATE_RETURN_IF_ERROR(driven_.Hold(*queue_, layout_, rest_positions_));
  PALPATE_RETURN_IF_ERROR(MakeKernels(old));
  return Bind();
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
  scene.params = &tissue_.params;
  scene.x_start = &tissue_.x_start;
  scene.triangles = &tissue_.triangles;
  scene.triangle_colliders = &triangle_colliders_;
  scene.tool_contacts = &contacts_;
  scene.colliders = &colliders_;
  scene.planes = &planes_;
  if (surface_) {
    scene.surface_params = &surface_->params();
    scene.detected = &surface_->detected();
    scene.clear_m = &surface_->clear_m();
    scene.entry_begins = &surface_->entry_begins();
    scene.entries = &surface_->entries();
    scene.pairs = &surface_->pairs();
    scene.is_near = &surface_->is_near();
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
              {"PALPATE_COROTATED", flag(layout_.Has(TissueEnergy::kCorotated))},
              {"PALPATE_NEO_HOOKEAN", flag(layout_.Has(TissueEnergy::kStableNeoHookean))},
              {"PALPATE_LINEAR", flag(layout_.Has(TissueEnergy::kLinear))},
              {"PALPATE_GREEN", flag(layout_.Has(TissueEnergy::kStVenantKirchhoff))},
              {"PALPATE_SPRINGS", flag(layout_.Has(TissueEnergy::kMassSpring))},
              {"PALPATE_FIBERS", flag(layout_.has_fibers)},
              {"PALPATE_VISCOUS", flag(layout_.has_viscosity)},
              {"PALPATE_SURFACE", flag(surface_ != nullptr)},
              {"PALPATE_SHAPE", flag(shapes_ != nullptr)},
              {"PALPATE_VOLUME", flag(volumes_ != nullptr)}};
  constexpr std::pair<Kernel Impl::*, const char*> kKernels[] = {
      {&Impl::predict_, "predict"},         {&Impl::start_strain_, "start_strain"},   {&Impl::extract_rotations_, "extract_rotations"},
      {&Impl::solve_color_, "solve_color"}, {&Impl::vertex_forces_, "vertex_forces"}, {&Impl::accelerate_, "accelerate"},
      {&Impl::finish_step_, "finish_step"}, {&Impl::inspect_state_, "inspect_state"}, {&Impl::gather_positions_, "gather_positions"},
      {&Impl::piece_sums_, "piece_sums"},   {&Impl::piece_shares_, "piece_shares"},   {&Impl::keep_volumes_, "keep_volumes"}};
  constexpr std::pair<Kernel Impl::*, const char*> kTools[] = {
      {&Impl::move_colliders_, "move_colliders"},   {&Impl::find_contacts_, "find_contacts"},
      {&Impl::list_contacts_, "list_contacts"},     {&Impl::update_contacts_, "update_contacts"},
      {&Impl::solve_colliders_, "solve_colliders"}, {&Impl::finish_colliders_, "finish_colliders"},
      {&Impl::report_contacts_, "report_contacts"}};
  Context& context = *queue_->context();
  const bool is_same = old != nullptr && old->defines_ == defines_;
  for (const auto& [kernel, name] : kKernels) {
    if ((kernel == &Impl::piece_sums_ || kernel == &Impl::piece_shares_) && !surface_) continue;
    if (kernel == &Impl::keep_volumes_ && !volumes_) continue;
    if (is_same) {
      this->*kernel = std::move(old->*kernel);
    } else {
      PALPATE_ASSIGN_OR_RETURN(this->*kernel, context.CreateKernel(kernels::tissue, name, defines_));
    }
  }
  if (options_.report_energy) {
    energy_.emplace();
    PALPATE_RETURN_IF_ERROR(energy_->Init(*queue_, layout_, defines_, tuning_.partials, options_.energy_in_double));
  }
  const ProgramDefines list_group = {{"PALPATE_LIST_GROUP", std::to_string(tuning_.list_group)}};
  const bool same_tools = old != nullptr && old->tuning_.list_group == tuning_.list_group;
  for (const auto& [kernel, name] : kTools) {
    if (same_tools) {
      this->*kernel = std::move(old->*kernel);
    } else {
      PALPATE_ASSIGN_OR_RETURN(this->*kernel, context.CreateKernel(kernels::tools, name, list_group));
    }
  }
  PALPATE_RETURN_IF_ERROR(anchors_.MakeKernels(context, list_group, same_tools ? &old->anchors_ : nullptr));
  PALPATE_RETURN_IF_ERROR(loads_.MakeKernels(context, defines_, is_same ? &old->loads_ : nullptr));
  return driven_.MakeKernels(context);
}

absl::Status TissueSolver::Impl::Bind() {
  PALPATE_RETURN_IF_ERROR(predict_.Bind(Arg("p", tissue_.params), Arg("x", tissue_.x), Arg("x_start", tissue_.x_start), Arg("y", tissue_.y),
                                        Arg("velocity", tissue_.velocity), Arg("velocity_before", tissue_.velocity_before),
                                        Arg("mass", tissue_.mass), Arg("mass_damping", tissue_.mass_damping),
                                        Arg("held_axes", tissue_.held_axes)));
  PALPATE_RETURN_IF_ERROR(start_strain_.Bind(Arg("block_count", layout_.block_count), Arg("x_start", tissue_.x_start),
                                             Arg("block_vertex", tissue_.block_vertex), Arg("corner_real", tissue_.corner_real),
                                             Arg("corner_index", tissue_.corner_index), Arg("corner_strain", tissue_.corner_strain)));
  PALPATE_RETURN_IF_ERROR(extract_rotations_.Bind(Arg("p", tissue_.params), Arg("x", tissue_.x), Arg("tets", tissue_.tets),
                                                  Arg("tet_rest", tissue_.tet_rest), Arg("rotations", tissue_.rotations)));
  PALPATE_RETURN_IF_ERROR(solve_color_.Bind(
      Arg("p", tissue_.params), Arg("first", 0U), Arg("count", 0U), Arg("x", tissue_.x), Arg("x_start", tissue_.x_start),
      Arg("y", tissue_.y), Arg("mass", tissue_.mass), Arg("block_range", tissue_.block_range), Arg("corner_real", tissue_.corner_real),
      Arg("corner_index", tissue_.corner_index), Arg("corner_strain", tissue_.corner_strain), Arg("rotations", tissue_.rotations),
      Arg("vertex_triangle_range", tissue_.vertex_triangle_range), Arg("vertex_triangles", tissue_.vertex_triangles),
      Arg("triangles", tissue_.triangles), Arg("triangle_colliders", triangle_colliders_), Arg("contacts", contacts_),
      Arg("colliders", colliders_), Arg("obstacles", planes_), Arg("anchor_begin", anchors_.begins()), Arg("anchors", anchors_.anchors()),
      Arg("touched", tissue_.touched), Arg("held_axes", tissue_.held_axes)));
  PALPATE_RETURN_IF_ERROR(vertex_forces_.Bind(
      Arg("p", tissue_.params), Arg("parts", uint32_t{kAllForces}), Arg("x", tissue_.x), Arg("x_start", tissue_.x_start),
      Arg("y", tissue_.y), Arg("mass", tissue_.mass), Arg("block_range", tissue_.block_range), Arg("corner_real", tissue_.corner_real),
      Arg("corner_index", tissue_.corner_index), Arg("corner_strain", tissue_.corner_strain), Arg("rotations", tissue_.rotations),
      Arg("vertex_triangle_range", tissue_.vertex_triangle_range), Arg("vertex_triangles", tissue_.vertex_triangles),
      Arg("triangles", tissue_.triangles), Arg("triangle_colliders", triangle_colliders_), Arg("contacts", contacts_),
      Arg("colliders", colliders_), Arg("obstacles", planes_), Arg("anchor_begin", anchors_.begins()), Arg("anchors", anchors_.anchors()),
      Arg("forces", forces_)));
  PALPATE_RETURN_IF_ERROR(accelerate_.Bind(Arg("p", tissue_.params), Arg("omega", 1.0F), Arg("x", tissue_.x), Arg("x_before", x_before_),
                                           Arg("x_before2", x_before2_), Arg("touched", tissue_.touched),
                                           Arg("held_axes", tissue_.held_axes)));
  PALPATE_RETURN_IF_ERROR(move_colliders_.Bind(Arg("p", tissue_.params), Arg("colliders", colliders_), Arg("targets", targets_)));
  PALPATE_RETURN_IF_ERROR(find_contacts_.Bind(Arg("p", tissue_.params), Arg("x", tissue_.x), Arg("x_start", tissue_.x_start),
                                              Arg("triangles", tissue_.triangles), Arg("colliders", colliders_), Arg("contacts", contacts_),
                                              Arg("triangle_colliders", triangle_colliders_)));
  PALPATE_RETURN_IF_ERROR(
      list_contacts_.Bind(Arg("p", tissue_.params), Arg("triangle_colliders", triangle_colliders_), Arg("list", list_)));
  PALPATE_RETURN_IF_ERROR(update_contacts_.Bind(Arg("p", tissue_.params), Arg("x", tissue_.x), Arg("triangles", tissue_.triangles),
                                                Arg("colliders", colliders_), Arg("list", list_), Arg("contacts", contacts_)));
  PALPATE_RETURN_IF_ERROR(solve_colliders_.Bind(Arg("p", tissue_.params), Arg("x", tissue_.x), Arg("x_start", tissue_.x_start),
                                                Arg("triangles", tissue_.triangles), Arg("list", list_), Arg("contacts", contacts_),
                                                Arg("anchor_begin", anchors_.begins()), Arg("anchors", anchors_.anchors()),
                                                Arg("colliders", colliders_)));
  PALPATE_RETURN_IF_ERROR(finish_colliders_.Bind(Arg("p", tissue_.params), Arg("colliders", colliders_)));
  PALPATE_RETURN_IF_ERROR(finish_step_.Bind(Arg("p", tissue_.params), Arg("x", tissue_.x), Arg("x_start", tissue_.x_start),
                                            Arg("velocity", tissue_.velocity), Arg("velocity_before", tissue_.velocity_before),
                                            Arg("mass", tissue_.mass), Arg("original_index", tissue_.original_index),
                                            Arg("tets", tissue_.tets), Arg("tet_rest", tissue_.tet_rest), Arg("partials", partials_)));
  PALPATE_RETURN_IF_ERROR(inspect_state_.Bind(Arg("p", tissue_.params), Arg("x", tissue_.x), Arg("velocity", tissue_.velocity),
                                              Arg("mass", tissue_.mass), Arg("original_index", tissue_.original_index),
                                              Arg("tets", tissue_.tets), Arg("tet_rest", tissue_.tet_rest), Arg("partials", partials_)));
  if (shapes_) PALPATE_RETURN_IF_ERROR(BindShapes());
  if (volumes_) PALPATE_RETURN_IF_ERROR(BindVolumes());
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

absl::Status TissueSolver::Impl::BindShapes() {
  PALPATE_RETURN_IF_ERROR(solve_color_.Bind(Arg("goals", shapes_->goals())));
  return vertex_forces_.Bind(Arg("goals", shapes_->goals()));
}

/// The arguments that change when an edit makes the lists of volumes_ grow.
absl::Status TissueSolver::Impl::BindVolumes() {
  PALPATE_RETURN_IF_ERROR(solve_color_.Bind(Arg("vertex_entry", volumes_->vertex_entry()), Arg("volume_moves", volumes_->moves())));
  PALPATE_RETURN_IF_ERROR(vertex_forces_.Bind(Arg("vertex_entry", volumes_->vertex_entry()), Arg("entry_body", volumes_->entry_body()),
                                              Arg("volume_bodies", volumes_->bodies())));
  return keep_volumes_.Bind(Arg("entry_vertex", volumes_->entry_vertex()), Arg("entry_body", volumes_->entry_body()),
                            Arg("volume_bodies", volumes_->bodies()), Arg("volume_moves", volumes_->moves()), Arg("x", tissue_.x),
                            Arg("held_axes", tissue_.held_axes), Arg("touched", tissue_.touched));
}

/// The arguments that change when the lists of pairs grow.
absl::Status TissueSolver::Impl::BindSurface() {
  surface_generation_ = surface_->generation();
  for (Kernel* kernel : {&solve_color_, &vertex_forces_}) {
    PALPATE_RETURN_IF_ERROR(kernel->Bind(Arg("sp", surface_->params()), Arg("x_sweep", surface_->x_sweep()),
                                         Arg("entry_begins", surface_->entry_begins()), Arg("entries", surface_->entries()),
                                         Arg("pairs", surface_->pairs())));
  }
  PALPATE_RETURN_IF_ERROR(solve_color_.Bind(Arg("detected", surface_->detected()), Arg("planes", surface_->planes())));
  if (volumes_) {
    PALPATE_RETURN_IF_ERROR(keep_volumes_.Bind(Arg("detected", surface_->detected()), Arg("planes", surface_->planes()),
                                               Arg("entry_begins", surface_->entry_begins())));
  }
  return accelerate_.Bind(Arg("detected", surface_->detected()), Arg("planes", surface_->planes()),
                          Arg("entry_begins", surface_->entry_begins()));
}

/// The arguments that change when the buffer of anchors grows.
absl::Status TissueSolver::Impl::BindAnchors() {
  PALPATE_RETURN_IF_ERROR(solve_color_.Bind(Arg("anchors", anchors_.anchors())));
  PALPATE_RETURN_IF_ERROR(vertex_forces_.Bind(Arg("anchors", anchors_.anchors())));
  return solve_colliders_.Bind(Arg("anchors", anchors_.anchors()));
}

}  // namespace palpate::gpu
