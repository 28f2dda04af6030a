#include "gpu/dynamics/nurbs_shells.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include <Eigen/Geometry>
#include <Eigen/SparseCholesky>

#include "absl/strings/str_cat.h"
#include "gpu/dynamics/driven_poses.h"
#include "gpu/dynamics/float4.h"
#include "gpu/dynamics/nurbs_shell_model.h"
#include "gpu/dynamics/packed_types.h"
#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {

namespace kernels {
extern const KernelSource nurbs_shells;
extern const KernelSource tissue;
}  // namespace kernels

namespace {

constexpr float kAbsurd = 1e6F;  // m, m/s
constexpr uint32_t kAllAxes = 7;

bool IsSane(const Float4& v) { return std::abs(v.x) + std::abs(v.y) + std::abs(v.z) < kAbsurd; }

/// What has to move from `begins` and entries to the lists of the other side: the vertices of each control point.
struct Transposed {
  std::vector<uint32_t> begins, vertices;
  std::vector<float> weights;
};

Transposed Transpose(const std::vector<uint32_t>& begins, const std::vector<uint32_t>& controls, const std::vector<float>& weights,
                     size_t control_count) {
  Transposed out;
  out.begins.assign(control_count + 1, 0);
  for (size_t k = 0; k < controls.size(); ++k) out.begins[controls[k] + 1] += weights[k] > 0 ? 1 : 0;
  std::partial_sum(out.begins.begin(), out.begins.end(), out.begins.begin());
  out.vertices.resize(out.begins.back());
  out.weights.resize(out.begins.back());
  std::vector<uint32_t> next(out.begins.begin(), out.begins.end() - 1);
  for (uint32_t v = 0; v + 1 < begins.size(); ++v) {
    for (uint32_t k = begins[v]; k < begins[v + 1]; ++k) {
      if (!(weights[k] > 0)) continue;
      const uint32_t place = next[controls[k]]++;
      out.vertices[place] = v;
      out.weights[place] = weights[k];
    }
  }
  return out;
}

}  // namespace

absl::StatusOr<std::unique_ptr<NurbsShells>> NurbsShells::Create(Queue& queue, std::span<const TissueNurbsShell> shells,
                                                                 const TissueLayout& layout, double dt_s,
                                                                 const Float4& before_rest_m_per_s) {
  if (shells.empty()) return absl::InvalidArgumentError("nurbs shells: none given");
  std::unique_ptr<NurbsShells> out(new NurbsShells);
  const size_t before = queue.context()->allocated_bytes();
  PALPATE_RETURN_IF_ERROR(out->Upload(queue, shells, layout, dt_s, before_rest_m_per_s));
  out->device_bytes_ = queue.context()->allocated_bytes() - before;
  return out;
}

absl::Status NurbsShells::Upload(Queue& queue, std::span<const TissueNurbsShell> shells, const TissueLayout& layout, double dt_s,
                                 const Float4& before_rest_m_per_s) {
  const std::shared_ptr<Context>& context = queue.context();
  const bool is_cpu = context->device().is_cpu;
  control_group_ = is_cpu ? 16 : 64;
  team_ = is_cpu ? 1 : 32;
  teams_ = is_cpu ? 1 : 8;
  NurbsShellModel all;
  for (const TissueNurbsShell& shell : shells) AppendNurbsShell(*shell.model, &all);
  PALPATE_ASSIGN_OR_RETURN(elastic_, LayOutNurbsShells(all, is_cpu ? 8 : 1, dt_s));
  initial_control_m_.resize(all.control_count());
  initial_.resize(all.control_count());
  mass_kg_.resize(all.control_count());
  begins_host_ = {0};
  control_begins_ = {0};
  for (const TissueNurbsShell& shell : shells) {
    const NurbsShellModel& model = *shell.model;
    const uint32_t first = control_begins_.back();
    control_begins_.push_back(first + static_cast<uint32_t>(model.control_count()));
    for (uint32_t j = 0; j < model.control_count(); ++j) {
      const uint32_t slot = elastic_.control_slot[first + j];
      const bool is_held = std::binary_search(shell.held.begin(), shell.held.end(), j);
      const bool is_bound = std::ranges::binary_search(shell.bound, j, {}, &TissueNurbsShell::Bound::control);
      const Float4 at = ToFloat4(model.rest_m[j]);
      const Float4 velocity = is_held ? Float4{} : ToFloat4(shell.velocity_m_per_s, model.mass_damping_per_s[j]);
      ControlPointState& state = initial_[slot];
      state.start = {at.x, at.y, at.z, is_held || is_bound ? 0.0F : static_cast<float>(model.mass_kg[j])};
      mass_kg_[slot] = is_held ? 0 : model.mass_kg[j];
      state.target = state.detected = state.goal = at;
      state.velocity = velocity;
      const auto braked = static_cast<float>(1 + dt_s * model.mass_damping_per_s[j]);
      state.before = {braked * velocity.x + before_rest_m_per_s.x, braked * velocity.y + before_rest_m_per_s.y,
                      braked * velocity.z + before_rest_m_per_s.z, 0};
      initial_control_m_[slot] = at;
    }
    for (uint32_t v = shell.vertices[0]; v < shell.vertices[1]; ++v) slots_host_.push_back(ToNumber(layout.solver_index[v]));
    const auto entries = static_cast<uint32_t>(controls_host_.size());
    for (size_t v = 1; v < shell.begins.size(); ++v) begins_host_.push_back(entries + shell.begins[v]);
    for (const uint32_t j : shell.controls) controls_host_.push_back(elastic_.control_slot[first + j]);
    weights_host_.insert(weights_host_.end(), shell.weights.begin(), shell.weights.end());
  }
  is_vertex_.assign(layout.vertex_count, 0);
  for (const uint32_t slot : slots_host_) is_vertex_[slot] = 1;
  control_host_ = initial_control_m_;
  states_host_ = initial_;
  std::vector<UInt2> driven;
  std::vector<Float4> driven_rest;
  for (size_t s = 0; s < shells.size(); ++s) {
    const auto first_region = static_cast<uint32_t>(regions_.size());
    for (const TissueDrivenRegion& region : shells[s].driven) {
      for (const uint32_t j : region.vertices) {
        driven.push_back({elastic_.control_slot[control_begins_[s] + j], static_cast<uint32_t>(regions_.size())});
        driven_rest.push_back(initial_control_m_[driven.back().x]);
      }
      regions_.push_back(region);
      if (region.parent != TissueDrivenRegion::kNoParent) regions_.back().parent += first_region;
    }
  }
  poses_host_.resize(regions_.size());
  std::vector<uint32_t> order, shell_colors;
  for (size_t s = 0; s < shells.size(); ++s) {
    for (uint32_t c = 0; c < elastic_.color_count(); ++c) {
      shell_colors.push_back(static_cast<uint32_t>(order.size()));
      for (uint32_t slot = elastic_.color_begin[c]; slot < elastic_.color_begin[c + 1]; ++slot) {
        const uint32_t control = elastic_.slot_control[slot];
        if (control >= control_begins_[s] && control < control_begins_[s + 1]) order.push_back(slot);
      }
    }
    shell_colors.push_back(static_cast<uint32_t>(order.size()));
  }
  const Transposed support = Transpose(begins_host_, controls_host_, weights_host_, initial_.size());
  const size_t vertices = slots_host_.size();
  const auto upload = [&]<typename T>(const std::vector<T>& values, DeviceBuffer<T>* buffer, const char* name) -> absl::Status {
    PALPATE_ASSIGN_OR_RETURN(*buffer, CreateBufferFrom(queue, std::span<const T>(values), name));
    return absl::OkStatus();
  };
  PALPATE_RETURN_IF_ERROR(upload(initial_control_m_, &control_, "nurbs control points"));
  PALPATE_RETURN_IF_ERROR(upload(initial_, &states_, "nurbs states"));
  PALPATE_RETURN_IF_ERROR(upload(order, &order_, "nurbs order"));
  if (!driven.empty()) {
    PALPATE_RETURN_IF_ERROR(upload(driven, &driven_, "nurbs driven"));
    PALPATE_RETURN_IF_ERROR(upload(driven_rest, &driven_rest_, "nurbs driven at rest"));
    PALPATE_ASSIGN_OR_RETURN(poses_, DeviceBuffer<DrivenPose>::Create(context, regions_.size(), "nurbs driven poses"));
  }
  PALPATE_RETURN_IF_ERROR(upload(shell_colors, &shell_colors_, "nurbs colours"));
  PALPATE_RETURN_IF_ERROR(upload(support.begins, &support_begins_, "nurbs support begins"));
  PALPATE_RETURN_IF_ERROR(upload(support.vertices, &support_, "nurbs support"));
  PALPATE_RETURN_IF_ERROR(upload(support.weights, &support_weights_, "nurbs support weights"));
  PALPATE_RETURN_IF_ERROR(upload(slots_host_, &slots_, "nurbs slots"));
  PALPATE_RETURN_IF_ERROR(upload(begins_host_, &begins_, "nurbs begins"));
  PALPATE_RETURN_IF_ERROR(upload(controls_host_, &controls_, "nurbs controls"));
  PALPATE_RETURN_IF_ERROR(upload(weights_host_, &weights_, "nurbs weights"));
  for (const auto& [buffer, count, name] : std::initializer_list<std::tuple<DeviceBuffer<Float4>*, size_t, const char*>>{
           {&start_, vertices, "nurbs vertices at the start"},
           {&detected_, vertices, "nurbs vertices as detected"},
           {&at_, vertices, "nurbs vertices in contact"},
           {&forces_, vertices, "nurbs vertex forces"},
           {&blocks_, 2 * vertices, "nurbs vertex blocks"},
           {&next_, 2 * vertices, "nurbs next contacts"},
           {&pushes_, vertices, "nurbs vertex loads"},
           {&kept_, vertices, "nurbs vertices as kept"},
           {&saved_, initial_.size(), "nurbs control points as saved"},
           {&left_, initial_.size(), "nurbs forces"},
           {&left_there_, initial_.size(), "nurbs forces of a trial"}}) {
    PALPATE_ASSIGN_OR_RETURN(*buffer, DeviceBuffer<Float4>::Create(context, count, name));
  }
  std::vector<uint32_t> held_axes(all.control_count(), 0);
  for (size_t s = 0; s < shells.size(); ++s) {
    for (const uint32_t j : shells[s].held) held_axes[control_begins_[s] + j] = kAllAxes;
    for (const TissueNurbsShell::Bound& bound : shells[s].bound) held_axes[control_begins_[s] + bound.control] = kAllAxes;
  }
  for (size_t s = 0; s < shells.size(); ++s) {
    for (const std::vector<uint32_t>& region : shells[s].supports) {
      for (const uint32_t j : region) {
        supported_.push_back(
            {elastic_.control_slot[control_begins_[s] + j], shells[s].model->mass_kg[j], shells[s].model->mass_damping_per_s[j]});
      }
      support_ends_.push_back(static_cast<uint32_t>(supported_.size()));
    }
  }
  if (!supported_.empty()) {
    std::vector<uint32_t> slots;
    for (const Supported& at : supported_) slots.push_back(at.slot);
    support_forces_host_.resize(slots.size());
    PALPATE_RETURN_IF_ERROR(upload(slots, &supported_slots_, "nurbs supported"));
    PALPATE_ASSIGN_OR_RETURN(support_forces_, DeviceBuffer<Float4>::Create(context, slots.size(), "nurbs support forces"));
    PALPATE_RETURN_IF_ERROR(queue.Fill(support_forces_, Float4{}));
  }
  PALPATE_ASSIGN_OR_RETURN(bindings_, NurbsBindings::Create(queue, shells, control_begins_, all, elastic_, dt_s));
  for (const TissueNurbsShell& shell : shells) bound_.insert(bound_.end(), shell.bound.begin(), shell.bound.end());
  if (bindings_) PALPATE_RETURN_IF_ERROR(bindings_->SetVertices(queue, shells, layout));
  PALPATE_ASSIGN_OR_RETURN(correction_, NurbsShellCorrection::Create(queue, all, elastic_, held_axes, dt_s));
  is_coupled_ = std::ranges::any_of(all.gauss, [](const NurbsShellGauss& gauss) { return gauss.coupling.has_value(); });
  terms_ = std::make_unique<NurbsShellTerms>(elastic_);
  return terms_->Init(queue);
}

absl::Status NurbsShells::MakeKernels(Context& context, const ProgramDefines& defines) {
  PALPATE_ASSIGN_OR_RETURN(contacts_, context.CreateKernel(kernels::tissue, "follower_contacts", defines));
  const ProgramDefines own = {{"PALPATE_LANES", std::to_string(elastic_.lanes)},
                              {"PALPATE_TEAM", std::to_string(team_)},
                              {"PALPATE_TEAMS", std::to_string(teams_)},
                              {"PALPATE_NURBS_VISCOUS", elastic_.is_viscous ? "1" : "0"}};
  for (const auto& [kernel, name] : std::initializer_list<std::pair<Kernel*, const char*>>{{&predict_, "nurbs_predict"},
                                                                                           {&drive_, "nurbs_drive"},
                                                                                           {&vertex_velocities_, "nurbs_vertex_velocities"},
                                                                                           {&push_by_air_, "nurbs_push_by_air"},
                                                                                           {&place_, "nurbs_place"},
                                                                                           {&keep_, "nurbs_keep"},
                                                                                           {&put_, "nurbs_put"},
                                                                                           {&to_detection_, "nurbs_to_detection"},
                                                                                           {&detected_kernel_, "nurbs_detected"},
                                                                                           {&goal_, "nurbs_goal"},
                                                                                           {&take_back_, "nurbs_take_back"},
                                                                                           {&follow_back_, "nurbs_follow_back"},
                                                                                           {&sweep_, "nurbs_sweep"},
                                                                                           {&move_towards_, "nurbs_move_towards"},
                                                                                           {&find_forces_, "nurbs_forces"},
                                                                                           {&bound_forces_, "nurbs_bound_forces"},
                                                                                           {&go_along_, "nurbs_go_along"},
                                                                                           {&follow_along_, "nurbs_follow_along"},
                                                                                           {&finish_, "nurbs_finish"},
                                                                                           {&roll_back_, "nurbs_roll_back"}}) {
    PALPATE_ASSIGN_OR_RETURN(*kernel, context.CreateKernel(kernels::nurbs_shells, name, own));
  }
  return absl::OkStatus();
}

absl::Status NurbsShells::Bind(const TissueBuffers& tissue, const ToolContacts& tools, const TissueAnchors& anchors) {
  x_ = &tissue.x;
  const auto vertices = static_cast<uint32_t>(slots_host_.size());
  const auto [least, most] = std::minmax_element(slots_host_.begin(), slots_host_.end());
  PALPATE_RETURN_IF_ERROR(contacts_.Bind(
      Arg("p", tissue.params), Arg("count", vertices), Arg("first_slot", *least), Arg("slot_count", *most + 1 - *least),
      Arg("slots", slots_), Arg("x", tissue.x), Arg("x_start", tissue.x_start), Arg("vertex_triangle_range", tissue.vertex_triangle_range),
      Arg("vertex_triangles", tissue.vertex_triangles), Arg("triangles", tissue.triangles),
      Arg("triangle_colliders", tools.triangle_colliders()), Arg("contacts", tools.contacts()), Arg("colliders", tools.colliders()),
      Arg("obstacles", tools.planes()), Arg("anchor_begin", anchors.begins()), Arg("anchors", anchors.anchors()), Arg("at", at_),
      Arg("next", next_), Arg("forces", forces_), Arg("blocks", blocks_), Arg("touched", tissue.touched)));
  PALPATE_RETURN_IF_ERROR(sweep_.Bind(
      Arg("color_count", elastic_.color_count()), Arg("shell_colors", shell_colors_), Arg("order", order_), Arg("p", tissue.params),
      Arg("support_begins", support_begins_), Arg("support", support_), Arg("support_weights", support_weights_), Arg("slots", slots_),
      Arg("at", at_), Arg("next", next_), Arg("forces", forces_), Arg("blocks", blocks_), Arg("states", states_), Arg("control", control_),
      Arg("x", tissue.x), Arg("touched", tissue.touched), Arg("detected", BufferView<Float4>{}), Arg("clear_m", BufferView<float>{}),
      Arg("entry_begins", BufferView<uint32_t>{}), Arg("planes", BufferView<Float4>{})));
  PALPATE_RETURN_IF_ERROR(find_forces_.Bind(Arg("p", tissue.params), Arg("support_begins", support_begins_), Arg("support", support_),
                                            Arg("support_weights", support_weights_), Arg("slots", slots_), Arg("at", at_),
                                            Arg("forces", forces_), Arg("blocks", blocks_), Arg("states", states_),
                                            Arg("control", control_), Arg("x", tissue.x)));
  PALPATE_RETURN_IF_ERROR(terms_->Bind(find_forces_));
  PALPATE_RETURN_IF_ERROR(bound_forces_.Bind(Arg("support_begins", support_begins_), Arg("support", support_),
                                             Arg("support_weights", support_weights_), Arg("slots", slots_), Arg("at", at_),
                                             Arg("forces", forces_), Arg("blocks", blocks_), Arg("x", tissue.x)));
  PALPATE_RETURN_IF_ERROR(terms_->Bind(bound_forces_));
  PALPATE_RETURN_IF_ERROR(terms_->Bind(sweep_));
  return move_towards_.Bind(Arg("color_count", elastic_.color_count()), Arg("shell_colors", shell_colors_), Arg("order", order_),
                            Arg("support_begins", support_begins_), Arg("support", support_), Arg("support_weights", support_weights_),
                            Arg("slots", slots_), Arg("states", states_), Arg("control", control_));
}

absl::Status NurbsShells::BindAnchors(const TissueAnchors& anchors) { return contacts_.Bind(Arg("anchors", anchors.anchors())); }

absl::Status NurbsShells::BindSurface(const SurfaceContacts& surface) {
  meets_ = true;
  const SurfacePairs& pairs = surface.pairs();
  PALPATE_RETURN_IF_ERROR(contacts_.Bind(Arg("sp", surface.params()), Arg("x_sweep", surface.x_sweep()),
                                         Arg("entry_begins", pairs.entry_begins()), Arg("entries", pairs.entries()),
                                         Arg("pairs", pairs.pairs()), Arg("is_near", pairs.is_near())));
  return sweep_.Bind(Arg("detected", surface.detected()), Arg("clear_m", pairs.clear_m()), Arg("entry_begins", pairs.entry_begins()),
                     Arg("planes", pairs.planes()));
}

absl::Status NurbsShells::Place(Queue& queue, const DeviceBuffer<Float4>& x) {
  return queue.Launch(place_, Vertices(), Arg("count", static_cast<uint32_t>(slots_host_.size())), Arg("slots", slots_),
                      Arg("begins", begins_), Arg("controls", controls_), Arg("weights", weights_), Arg("control", control_), Arg("x", x));
}

absl::Status NurbsShells::Keep(Queue& queue, const DeviceBuffer<Float4>& x, const DeviceBuffer<Float4>& kept) {
  return queue.Launch(keep_, Vertices(), Arg("count", static_cast<uint32_t>(slots_host_.size())), Arg("slots", slots_), Arg("x", x),
                      Arg("kept", kept));
}

absl::Status NurbsShells::Reset(Queue& queue, const DeviceBuffer<Float4>& x) {
  PALPATE_RETURN_IF_ERROR(TakeStates(queue, initial_control_m_, initial_));
  return Place(queue, x);
}

absl::Status NurbsShells::GoOnFrom(Queue& queue, NurbsShells& old) {
  PALPATE_RETURN_IF_ERROR(old.ReadStates(queue));
  return TakeStates(queue, old.control_host_, old.states_host_);
}

absl::Status NurbsShells::TakeStates(Queue& queue, std::vector<Float4> control_m, std::vector<ControlPointState> states) {
  if (control_m.size() != initial_.size() || states.size() != initial_.size()) {
    return absl::InvalidArgumentError("nurbs shells: another number of control points");
  }
  control_host_ = std::move(control_m);
  states_host_ = std::move(states);
  for (size_t j = 0; j < initial_.size(); ++j) {
    states_host_[j].start.w = initial_[j].start.w;
    states_host_[j].velocity.w = initial_[j].velocity.w;
  }
  PALPATE_RETURN_IF_ERROR(queue.Write(control_, std::span<const Float4>(control_host_)));
  return queue.Write(states_, std::span<const ControlPointState>(states_host_));
}

absl::Status NurbsShells::SaveState(Queue& queue, StateWriter& archive) {
  // All members, so that a new one is not forgotten: the rest is as described, or lives for one step.
  [[maybe_unused]] auto& [control_group, team, teams, device_bytes, control_begins, elastic, slots_host, is_vertex, begins_host,
                          controls_host, weights_host, initial_control, control_host, initial, states_host, x, meets, terms, is_coupled,
                          correction, bindings, bound, mass, supported, support_ends, support_forces_host, regions, poses_host, contacts,
                          predict, drive, vertex_velocities, push_by_air, place, keep, put, to_detection, detected_kernel, goal, take_back,
                          follow_back, sweep, move_towards, find_forces, bound_forces, go_along, follow_along, finish, roll_back, control,
                          states, driven, driven_rest, poses, order, shell_colors, support_begins, support, support_weights, slots, begins,
                          controls, weights, start, detected, at, forces, blocks, next, pushes, supported_slots, support_forces, kept,
                          saved, left, left_there] = *this;
  PALPATE_RETURN_IF_ERROR(ReadStates(queue));
  archive.Enter("NurbsShells");
  archive(control_host, states_host);
  return absl::OkStatus();
}

absl::Status NurbsShells::LoadState(Queue& queue, StateReader& archive) {
  std::vector<Float4> control_m;
  std::vector<ControlPointState> states;
  archive.Enter("NurbsShells");
  archive(control_m, states);
  archive.Check(control_m.size() == initial_.size() && states.size() == initial_.size(), "another number of control points");
  archive.Check(std::all_of(control_m.begin(), control_m.end(), IsSane), "a control point is not finite");
  PALPATE_RETURN_IF_ERROR(archive.status());
  return TakeStates(queue, std::move(control_m), std::move(states));
}

absl::Status NurbsShells::Fit(Queue& queue, std::span<const Float4> positions_m, std::span<const Float4> velocities_m_per_s,
                              const DeviceBuffer<Float4>& x) {
  // Normal equations, with a little of where control points were, which vertices may not tell.
  constexpr double kLeast = 1e-9;
  const auto n = static_cast<Eigen::Index>(initial_.size());
  Eigen::SparseMatrix<double> map(static_cast<Eigen::Index>(slots_host_.size()), n);
  std::vector<Eigen::Triplet<double>> entries;
  for (size_t v = 0; v < slots_host_.size(); ++v) {
    for (uint32_t k = begins_host_[v]; k < begins_host_[v + 1]; ++k) {
      entries.emplace_back(static_cast<int>(v), static_cast<int>(controls_host_[k]), weights_host_[k]);
    }
  }
  map.setFromTriplets(entries.begin(), entries.end());
  Eigen::SparseMatrix<double> normal = map.transpose() * map;
  for (Eigen::Index j = 0; j < n; ++j) normal.coeffRef(j, j) += kLeast;
  const Eigen::SimplicialLDLT<Eigen::SparseMatrix<double>> factor(normal);
  if (factor.info() != Eigen::Success) return absl::InternalError("nurbs shells: control points cannot be fitted to vertices");
  const auto solve = [&](std::span<const Float4> by_slot, const std::vector<Float4>& before) {
    Eigen::MatrixX3d target(map.rows(), 3), start(n, 3);
    for (Eigen::Index v = 0; v < map.rows(); ++v) {
      const Float4& p = by_slot[slots_host_[static_cast<size_t>(v)]];
      target.row(v) << p.x, p.y, p.z;
    }
    for (Eigen::Index j = 0; j < n; ++j) {
      const Float4& p = before[static_cast<size_t>(j)];
      start.row(j) << p.x, p.y, p.z;
    }
    const Eigen::MatrixX3d fitted = factor.solve(Eigen::MatrixX3d(map.transpose() * target + kLeast * start));
    std::vector<Float4> out(static_cast<size_t>(n));
    for (Eigen::Index j = 0; j < n; ++j) {
      out[static_cast<size_t>(j)] = {static_cast<float>(fitted(j, 0)), static_cast<float>(fitted(j, 1)), static_cast<float>(fitted(j, 2)),
                                     0};
    }
    return out;
  };
  std::vector<ControlPointState> states = initial_;
  const std::vector<Float4> control_m = solve(positions_m, control_host_);
  std::vector<Float4> velocities(initial_.size());
  if (!velocities_m_per_s.empty()) velocities = solve(velocities_m_per_s, velocities);
  for (size_t j = 0; j < states.size(); ++j) {
    if (mass_kg_[j] == 0) velocities[j] = {};
    states[j].velocity = {velocities[j].x, velocities[j].y, velocities[j].z, states[j].velocity.w};
    states[j].before = states[j].velocity;
    for (Float4* place : {&states[j].target, &states[j].detected, &states[j].goal}) *place = control_m[j];
    states[j].start = {control_m[j].x, control_m[j].y, control_m[j].z, states[j].start.w};
  }
  PALPATE_RETURN_IF_ERROR(TakeStates(queue, control_m, std::move(states)));
  return Place(queue, x);
}

absl::Status NurbsShells::Predict(Queue& queue, const DeviceBuffer<StepParams>& params, const DeviceBuffer<Float4>& x, double end_s) {
  PALPATE_RETURN_IF_ERROR(Keep(queue, x, start_));
  PALPATE_RETURN_IF_ERROR(queue.Copy(start_, detected_, start_.count()));
  if (elastic_.is_viscous) {
    PALPATE_RETURN_IF_ERROR(terms_->Gather(queue, control_));
    PALPATE_RETURN_IF_ERROR(terms_->Begin(queue));
  }
  PALPATE_RETURN_IF_ERROR(queue.Launch(predict_, Controls(), Arg("count", control_count()), Arg("p", params), Arg("states", states_),
                                       Arg("control", control_)));
  if (!regions_.empty()) {
    PosesOf(regions_, end_s, poses_host_);
    PALPATE_RETURN_IF_ERROR(queue.Write(poses_, std::span<const DrivenPose>(poses_host_)));
    const auto count = static_cast<uint32_t>(driven_.count());
    PALPATE_RETURN_IF_ERROR(queue.Launch(drive_, {count, 0}, Arg("count", count), Arg("driven", driven_), Arg("poses", poses_),
                                         Arg("rest", driven_rest_), Arg("states", states_), Arg("control", control_)));
  }
  if (bindings_) PALPATE_RETURN_IF_ERROR(bindings_->Begin(queue, params, x, states_, control_));
  return Place(queue, x);
}

absl::StatusOr<bool> NurbsShells::SetBound(Queue& queue, std::span<const TissueNurbsShell> shells, const TissueLayout& layout) {
  std::vector<TissueNurbsShell::Bound> bound;
  for (const TissueNurbsShell& shell : shells) bound.insert(bound.end(), shell.bound.begin(), shell.bound.end());
  if (!std::ranges::equal(bound, bound_, {}, &TissueNurbsShell::Bound::control, &TissueNurbsShell::Bound::control)) return false;
  bound_ = std::move(bound);
  if (bindings_) PALPATE_RETURN_IF_ERROR(bindings_->SetVertices(queue, shells, layout));
  return true;
}

absl::Status NurbsShells::FollowTissue(Queue& queue, const TissueBuffers& tissue, const SurfaceContacts* surface) {
  if (!bindings_) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(FilterBegins(queue));
  PALPATE_RETURN_IF_ERROR(bindings_->Follow(queue, tissue.x, states_));
  const bool has_planes = surface != nullptr && surface->pairs().count() > 0;
  return queue.Launch(move_towards_, Shells(), Arg("x", tissue.x), Arg("touched", tissue.touched),
                      Arg("detected", has_planes ? BufferView<Float4>(surface->detected()) : BufferView<Float4>{}),
                      Arg("clear_m", has_planes ? BufferView<float>(surface->pairs().clear_m()) : BufferView<float>{}),
                      Arg("entry_begins", has_planes ? BufferView<uint32_t>(surface->pairs().entry_begins()) : BufferView<uint32_t>{}),
                      Arg("planes", has_planes ? BufferView<Float4>(surface->pairs().planes()) : BufferView<Float4>{}));
}

absl::Status NurbsShells::PushTissue(Queue& queue, const TissueBuffers& tissue, TissueLoads& loads) {
  if (!bindings_) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(FindContacts(queue, tissue, loads));
  PALPATE_RETURN_IF_ERROR(terms_->Gather(queue, control_));
  PALPATE_RETURN_IF_ERROR(queue.Launch(bound_forces_, {bindings_->count() * team_, team_}, Arg("bound", bindings_->slots()),
                                       Arg("forces_n", bindings_->forces())));
  return bindings_->Load(queue, tissue, control_);
}

absl::StatusOr<std::vector<Float4>> NurbsShells::ReadBoundForces(Queue& queue) {
  std::vector<Float4> out(control_count());
  if (!bindings_) return out;
  PALPATE_ASSIGN_OR_RETURN(const std::vector<Float4> forces_n, bindings_->ReadForces(queue, control_));
  for (size_t i = 0; i < forces_n.size(); ++i) out[elastic_.slot_control[bindings_->slot(i)]] = forces_n[i];
  return out;
}

absl::Status NurbsShells::PushByAir(Queue& queue, const TissueBuffers& tissue, AirDrag& air) {
  if (air.empty()) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(queue.Launch(vertex_velocities_, Vertices(), Arg("count", static_cast<uint32_t>(slots_host_.size())),
                                       Arg("slots", slots_), Arg("begins", begins_), Arg("controls", controls_), Arg("weights", weights_),
                                       Arg("states", states_), Arg("velocity", tissue.velocity)));
  PALPATE_RETURN_IF_ERROR(air.PushFollowers(queue, tissue, slots_, forces_, blocks_));
  return queue.Launch(push_by_air_, Controls(), Arg("count", control_count()), Arg("p", tissue.params),
                      Arg("support_begins", support_begins_), Arg("support", support_), Arg("support_weights", support_weights_),
                      Arg("forces", forces_), Arg("blocks", blocks_), Arg("states", states_));
}

absl::StatusOr<NurbsShells::LeftForces> NurbsShells::ReadForces(Queue& queue, const TissueBuffers& tissue, TissueLoads& loads) {
  const auto as_it_is = [](bool /*is_trial*/) { return absl::OkStatus(); };
  PALPATE_RETURN_IF_ERROR(FindForces(queue, tissue, loads, as_it_is, /*is_trial=*/false, left_));
  std::vector<Float4> left_n(control_count());
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(left_, std::span<Float4>(left_n)));
  LeftForces out;
  for (size_t j = 0; j < left_n.size(); ++j) {
    const Float4& f = left_n[j];
    out.sum_sq_n2 += static_cast<double>(f.x) * f.x + static_cast<double>(f.y) * f.y + static_cast<double>(f.z) * f.z;
    out.count += initial_[j].start.w > 0 ? 1 : 0;
  }
  return out;
}

absl::Status NurbsShells::FindContacts(Queue& queue, const TissueBuffers& tissue, TissueLoads& loads) {
  if (loads.has_acting()) PALPATE_RETURN_IF_ERROR(loads.Push(queue, tissue, slots_, pushes_));
  return queue.Launch(contacts_, Vertices(), Arg("pushes", loads.has_acting() ? BufferView<Float4>(pushes_) : BufferView<Float4>{}));
}

absl::Status NurbsShells::Sweep(Queue& queue, const TissueBuffers& tissue, TissueLoads& loads) {
  PALPATE_RETURN_IF_ERROR(FindContacts(queue, tissue, loads));
  PALPATE_RETURN_IF_ERROR(terms_->Gather(queue, control_));
  return queue.Enqueue(sweep_, Shells());
}

absl::Status NurbsShells::FindForces(Queue& queue, const TissueBuffers& tissue, TissueLoads& loads, const Relinearize& relinearize,
                                     bool is_trial, const DeviceBuffer<Float4>& left_n) {
  PALPATE_RETURN_IF_ERROR(relinearize(is_trial));
  PALPATE_RETURN_IF_ERROR(FindContacts(queue, tissue, loads));
  PALPATE_RETURN_IF_ERROR(terms_->Gather(queue, control_));
  return queue.Launch(find_forces_, {size_t{control_count()} * team_, team_}, Arg("left_n", left_n));
}

absl::Status NurbsShells::GoAlong(Queue& queue, const DeviceBuffer<uint32_t>& slot_part, const BufferView<float>& share,
                                  const DeviceBuffer<Float4>& moves, const DeviceBuffer<Float4>& x) {
  PALPATE_RETURN_IF_ERROR(queue.Launch(go_along_, Controls(), Arg("count", control_count()), Arg("saved", saved_),
                                       Arg("slot_part", slot_part), Arg("share", share), Arg("moves", moves), Arg("states", states_),
                                       Arg("control", control_)));
  return queue.Launch(follow_along_, Vertices(), Arg("count", static_cast<uint32_t>(slots_host_.size())), Arg("slots", slots_),
                      Arg("begins", begins_), Arg("controls", controls_), Arg("weights", weights_), Arg("kept", kept_),
                      Arg("slot_part", slot_part), Arg("share", share), Arg("moves", moves), Arg("x", x));
}

absl::Status NurbsShells::GoAlong(Queue& queue, bool has_share, const DeviceBuffer<Float4>& x) {
  return GoAlong(queue, correction_.slot_part(), has_share ? BufferView<float>(correction_.share()) : BufferView<float>{},
                 correction_.moves(), x);
}

absl::Status NurbsShells::Correct(Queue& queue, const TissueBuffers& tissue, TissueLoads& loads, const SurfaceContacts* surface,
                                  const Relinearize& relinearize) {
  if (correction_.empty()) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(FindForces(queue, tissue, loads, relinearize, /*is_trial=*/false, left_));
  PALPATE_RETURN_IF_ERROR(correction_.Propose(queue, *terms_, left_));
  PALPATE_RETURN_IF_ERROR(queue.Copy(control_, saved_, control_count()));
  PALPATE_RETURN_IF_ERROR(Keep(queue, tissue.x, kept_));
  PALPATE_RETURN_IF_ERROR(GoAlong(queue, /*has_share=*/false, tissue.x));
  PALPATE_RETURN_IF_ERROR(FindForces(queue, tissue, loads, relinearize, /*is_trial=*/true, left_there_));
  PALPATE_RETURN_IF_ERROR(correction_.Share(queue, left_, left_there_));
  PALPATE_RETURN_IF_ERROR(GoAlong(queue, /*has_share=*/true, tissue.x));
  PALPATE_RETURN_IF_ERROR(FindForces(queue, tissue, loads, relinearize, /*is_trial=*/true, left_there_));
  PALPATE_RETURN_IF_ERROR(correction_.Shorten(queue, left_, left_there_));
  PALPATE_RETURN_IF_ERROR(GoAlong(queue, /*has_share=*/true, tissue.x));
  if (surface == nullptr || surface->pairs().count() == 0) return absl::OkStatus();
  const SurfacePairs& pairs = surface->pairs();
  return HoldBack(queue, surface->detected(), pairs.clear_m(), pairs.entry_begins(), pairs.planes(), tissue.x, tissue.touched);
}

absl::Status NurbsShells::Go(Queue& queue, const DeviceBuffer<uint32_t>& slot_part, const DeviceBuffer<Float4>& moves,
                             const DeviceBuffer<Float4>& x) {
  PALPATE_RETURN_IF_ERROR(queue.Copy(control_, saved_, control_count()));
  PALPATE_RETURN_IF_ERROR(Keep(queue, x, kept_));
  return GoAlong(queue, slot_part, BufferView<float>{}, moves, x);
}

absl::Status NurbsShells::Undo(Queue& queue, const DeviceBuffer<Float4>& x) {
  PALPATE_RETURN_IF_ERROR(queue.Copy(saved_, control_, control_count()));
  return Put(queue, kept_, x);
}

absl::Status NurbsShells::HoldBack(Queue& queue, const DeviceBuffer<Float4>& detected, const DeviceBuffer<float>& clear_m,
                                   const DeviceBuffer<uint32_t>& entry_begins, const DeviceBuffer<Float4>& planes,
                                   const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched) {
  PALPATE_RETURN_IF_ERROR(Undo(queue, x));
  return MoveTowardsGoals(queue, detected, clear_m, entry_begins, planes, x, touched);
}

absl::Status NurbsShells::FindSupportForces(Queue& queue, const TissueBuffers& tissue, TissueLoads& loads) {
  if (supported_.empty()) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(FindContacts(queue, tissue, loads));
  PALPATE_RETURN_IF_ERROR(terms_->Gather(queue, control_));
  return queue.Launch(bound_forces_, {supported_.size() * team_, team_}, Arg("bound", supported_slots_), Arg("forces_n", support_forces_));
}

std::vector<NurbsSupportReport> NurbsShells::SupportReports(bool has_forces, const std::array<double, 3>& gravity_m_per_s2,
                                                            double dt_s) const {
  const Eigen::Vector3d gravity(gravity_m_per_s2.data());
  const auto vector_of = [](const Float4& v) { return Eigen::Vector3d(v.x, v.y, v.z); };
  std::vector<NurbsSupportReport> out;
  size_t begin = 0;
  for (const uint32_t end : support_ends_) {
    const auto holds = [&](size_t i) { return initial_[supported_[i].slot].start.w == 0; };
    size_t held = 0;
    for (size_t i = begin; i < end; ++i) held += holds(i) ? 1 : 0;
    const auto counts = [&](size_t i) { return held == 0 || holds(i); };
    Eigen::Vector3d point = Eigen::Vector3d::Zero(), force = Eigen::Vector3d::Zero(), torque = Eigen::Vector3d::Zero();
    for (size_t i = begin; i < end; ++i) {
      if (counts(i)) point += vector_of(control_host_[supported_[i].slot]);
    }
    point /= static_cast<double>(std::max<size_t>(held > 0 ? held : end - begin, 1));
    for (size_t i = begin; i < end && has_forces; ++i) {
      if (!holds(i)) continue;
      const ControlPointState& state = states_host_[supported_[i].slot];
      // m (y - q) / h^2 with the inertial target y: velocities are those of this step and of the one before.
      const Eigen::Vector3d braking = (1 + dt_s * supported_[i].damping_per_s) * vector_of(state.velocity) - vector_of(state.before);
      const Eigen::Vector3d of_point = vector_of(support_forces_host_[i]) + supported_[i].mass_kg * (gravity - braking / dt_s);
      force += of_point;
      torque += (vector_of(control_host_[supported_[i].slot]) - point).cross(of_point);
    }
    out.push_back({.force_n = {force.x(), force.y(), force.z()},
                   .torque_n_m = {torque.x(), torque.y(), torque.z()},
                   .point_m = {point.x(), point.y(), point.z()},
                   .is_released = held == 0});
    begin = end;
  }
  return out;
}

absl::Status NurbsShells::Finish(Queue& queue, const DeviceBuffer<StepParams>& params) {
  return queue.Launch(finish_, Controls(), Arg("count", control_count()), Arg("p", params), Arg("control", control_),
                      Arg("states", states_));
}

absl::Status NurbsShells::RollBack(Queue& queue) {
  return queue.Launch(roll_back_, Controls(), Arg("count", control_count()), Arg("states", states_), Arg("control", control_));
}

absl::Status NurbsShells::Detected(Queue& queue) {
  PALPATE_RETURN_IF_ERROR(Keep(queue, *x_, detected_));
  return queue.Launch(detected_kernel_, Controls(), Arg("count", control_count()), Arg("control", control_), Arg("states", states_));
}

absl::Status NurbsShells::FilterBegins(Queue& queue) {
  return queue.Launch(goal_, Controls(), Arg("count", control_count()), Arg("control", control_), Arg("states", states_));
}

absl::Status NurbsShells::TakeBackFromStart(Queue& queue, const DeviceBuffer<float>& shares, const DeviceBuffer<Float4>& x,
                                            const DeviceBuffer<uint8_t>& touched) {
  return TakeBack(queue, true, shares, begins_, x, touched);
}

absl::Status NurbsShells::TakeBack(Queue& queue, bool from_start, const DeviceBuffer<float>& shares,
                                   const DeviceBuffer<uint32_t>& /*entry_begins*/, const DeviceBuffer<Float4>& x,
                                   const DeviceBuffer<uint8_t>& touched) {
  const uint32_t is_from_start = from_start ? 1 : 0;
  PALPATE_RETURN_IF_ERROR(queue.Launch(take_back_, Controls(), Arg("count", control_count()), Arg("from_start", is_from_start),
                                       Arg("slots", slots_), Arg("support_begins", support_begins_), Arg("support", support_),
                                       Arg("shares", shares), Arg("states", states_), Arg("control", control_)));
  return queue.Launch(follow_back_, Vertices(), Arg("count", static_cast<uint32_t>(slots_host_.size())), Arg("from_start", is_from_start),
                      Arg("slots", slots_), Arg("begins", begins_), Arg("controls", controls_), Arg("weights", weights_),
                      Arg("states", states_), Arg("from", from_start ? start_ : detected_), Arg("shares", shares), Arg("x", x),
                      Arg("touched", touched));
}

absl::Status NurbsShells::Bound(Queue& queue, const DeviceBuffer<uint32_t>& /*vertex_groups*/, const DeviceBuffer<float>& /*reaches*/,
                                const DeviceBuffer<Float4>& detected, const DeviceBuffer<float>& clear_m,
                                const DeviceBuffer<uint32_t>& entry_begins, const DeviceBuffer<Float4>& bounds,
                                const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched) {
  // From the detection on again, one control point after the other, as far as planes let each go.
  PALPATE_RETURN_IF_ERROR(FilterBegins(queue));
  PALPATE_RETURN_IF_ERROR(
      queue.Launch(to_detection_, Controls(), Arg("count", control_count()), Arg("states", states_), Arg("control", control_)));
  PALPATE_RETURN_IF_ERROR(Put(queue, detected_, x));
  return MoveTowardsGoals(queue, detected, clear_m, entry_begins, bounds, x, touched);
}

absl::Status NurbsShells::Put(Queue& queue, const DeviceBuffer<Float4>& kept, const DeviceBuffer<Float4>& x) {
  return queue.Launch(put_, Vertices(), Arg("count", static_cast<uint32_t>(slots_host_.size())), Arg("slots", slots_), Arg("kept", kept),
                      Arg("x", x));
}

absl::Status NurbsShells::MoveTowardsGoals(Queue& queue, const DeviceBuffer<Float4>& detected, const DeviceBuffer<float>& clear_m,
                                           const DeviceBuffer<uint32_t>& entry_begins, const DeviceBuffer<Float4>& bounds,
                                           const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched) {
  return queue.Launch(move_towards_, Shells(), Arg("x", x), Arg("touched", touched), Arg("detected", detected), Arg("clear_m", clear_m),
                      Arg("entry_begins", entry_begins), Arg("planes", bounds));
}

std::vector<Float4> NurbsShells::ControlPoints() const {
  std::vector<Float4> out;
  out.reserve(control_host_.size());
  for (const uint32_t slot : elastic_.control_slot) out.push_back(control_host_[slot]);
  return out;
}

absl::Status NurbsShells::ReadStates(Queue& queue) {
  PALPATE_RETURN_IF_ERROR(queue.EnqueueRead(control_, std::span<Float4>(control_host_)));
  if (!supported_.empty()) PALPATE_RETURN_IF_ERROR(queue.EnqueueRead(support_forces_, std::span<Float4>(support_forces_host_)));
  return queue.ReadBlocking(states_, std::span<ControlPointState>(states_host_));
}

bool NurbsShells::IsFinite() const {
  return std::all_of(control_host_.begin(), control_host_.end(), IsSane) &&
         std::all_of(states_host_.begin(), states_host_.end(), [](const ControlPointState& s) { return IsSane(s.velocity); });
}

}  // namespace palpate::gpu
