#include "gpu/dynamics/nurbs_bindings.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include <Eigen/SparseCore>

#include "gpu/dynamics/nurbs_shell_stiffness.h"
#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource nurbs_bindings;
}
namespace {

constexpr double kResistShare = 0.55;  // of the bound below: half of it would be enough for sweeps that do not go uphill
constexpr double kGuessSlack = 1.1;    // of an eigenvalue, for what its iteration has not reached
constexpr int kPowerIterations = 60;

using SparseMatrix = Eigen::SparseMatrix<double>;

/// What resists the moves of these control points, rising, at rest: three coordinates each [N/m].
SparseMatrix StiffnessOf(const NurbsShellModel& model, const std::vector<uint32_t>& controls, double dt_s) {
  const std::vector<Eigen::Vector3d> rest_m = NurbsRestPositions(model);
  std::vector<Eigen::Triplet<double>> entries;
  for (const NurbsShellGauss& gauss : model.gauss) {
    std::vector<std::pair<int, Eigen::Index>> here;  // of these control points, and of all of the Gauss point
    for (uint32_t e = gauss.begin; e < gauss.end; ++e) {
      const auto at = std::lower_bound(controls.begin(), controls.end(), model.entries[e].control);
      if (at == controls.end() || *at != model.entries[e].control) continue;
      for (int axis = 0; axis < 3; ++axis) {
        here.emplace_back(3 * static_cast<int>(at - controls.begin()) + axis, 3 * (e - gauss.begin) + axis);
      }
    }
    if (here.empty()) continue;
    const Eigen::MatrixXd stiffness = NurbsGaussStiffness(model, gauss, rest_m, dt_s);
    for (const auto& [row, r] : here) {
      for (const auto& [column, c] : here) entries.emplace_back(row, column, stiffness(r, c));
    }
  }
  const auto size = 3 * static_cast<Eigen::Index>(controls.size());
  SparseMatrix out(size, size);
  out.setFromTriplets(entries.begin(), entries.end());
  return out;
}

/// Numbers s with sum s_v |d_v|^2 >= d' K d for all d of three coordinates for each v: multiples of the diagonal blocks' norms, by the
/// largest eigenvalue of K in their scale.
std::vector<double> IsotropicBound(const SparseMatrix& stiffness) {
  const Eigen::Index count = stiffness.rows() / 3;
  Eigen::VectorXd norms(count);
  for (Eigen::Index v = 0; v < count; ++v) norms[v] = Eigen::Matrix3d(stiffness.block(3 * v, 3 * v, 3, 3)).norm();
  Eigen::VectorXd scale(3 * count), direction(3 * count);
  for (Eigen::Index i = 0; i < scale.size(); ++i) {
    scale[i] = norms[i / 3] > 0 ? 1 / std::sqrt(norms[i / 3]) : 0;
    direction[i] = 1 + 0.37 * static_cast<double>((7 * i) % 11);  // any that is along no axis
  }
  double largest = 0;
  for (int k = 0; k < kPowerIterations; ++k) {
    direction.normalize();
    const Eigen::VectorXd next = scale.cwiseProduct(stiffness * scale.cwiseProduct(direction));
    largest = next.norm();
    if (!(largest > 0)) break;
    direction = next;
  }
  std::vector<double> out(static_cast<size_t>(count));
  for (Eigen::Index v = 0; v < count; ++v) out[static_cast<size_t>(v)] = kGuessSlack * largest * norms[v];
  return out;
}

}  // namespace

absl::StatusOr<std::unique_ptr<NurbsBindings>> NurbsBindings::Create(Queue& queue, std::span<const TissueNurbsShell> shells,
                                                                     std::span<const uint32_t> control_begins, const NurbsShellModel& all,
                                                                     const NurbsShellLayout& elastic, double dt_s) {
  std::vector<uint32_t> controls;
  for (size_t s = 0; s < shells.size(); ++s) {
    for (const TissueNurbsShell::Bound& bound : shells[s].bound) controls.push_back(control_begins[s] + bound.control);
  }
  if (controls.empty()) return nullptr;
  const std::shared_ptr<Context>& context = queue.context();
  std::unique_ptr<NurbsBindings> out(new NurbsBindings);
  out->group_ = context->device().is_cpu ? 1 : 32;
  out->stiffness_ = StiffnessOf(all, controls, dt_s);
  for (size_t i = 0; i < controls.size(); ++i) {
    NurbsBinding& binding = out->bindings_host_.emplace_back();
    binding.control = elastic.control_slot[controls[i]];
    binding.mass = static_cast<float>(all.mass_kg[controls[i]]);
    out->slots_host_.push_back(binding.control);
  }
  PALPATE_ASSIGN_OR_RETURN(out->slots_, CreateBufferFrom(queue, std::span<const uint32_t>(out->slots_host_), "nurbs bound"));
  for (DeviceBuffer<Float4>* buffer : {&out->inertial_, &out->forces_}) {
    PALPATE_ASSIGN_OR_RETURN(*buffer, DeviceBuffer<Float4>::Create(context, controls.size(), "nurbs bound forces"));
    PALPATE_RETURN_IF_ERROR(queue.Fill(*buffer, Float4{}));
  }
  for (const auto& [kernel, name] : std::initializer_list<std::pair<Kernel*, const char*>>{{&out->begin_, "nurbs_binding_begin"},
                                                                                           {&out->follow_, "nurbs_binding_follow"},
                                                                                           {&out->load_, "nurbs_binding_load"},
                                                                                           {&out->forget_, "nurbs_binding_forget"}}) {
    PALPATE_ASSIGN_OR_RETURN(*kernel, context->CreateKernel(kernels::nurbs_bindings, name));
  }
  return out;
}

absl::Status NurbsBindings::SetVertices(Queue& queue, std::span<const TissueNurbsShell> shells, const TissueLayout& layout) {
  const std::shared_ptr<Context>& context = queue.context();
  std::map<uint32_t, std::vector<uint32_t>> entries_of;  // free slots
  uint32_t i = 0;
  for (const TissueNurbsShell& shell : shells) {
    for (const TissueNurbsShell::Bound& bound : shell.bound) {
      std::array<uint32_t, 4> slots{};
      for (uint32_t k = 0; k < 4; ++k) {
        slots[k] = ToNumber(layout.solver_index[bound.vertices[k]]);
        if (slots[k] < layout.free_count && bound.weights[k] > 0) entries_of[slots[k]].push_back(4 * i + k);
      }
      NurbsBinding& binding = bindings_host_[i++];
      binding.vertices = {slots[0], slots[1], slots[2], slots[3]};
      binding.weights = {static_cast<float>(bound.weights[0]), static_cast<float>(bound.weights[1]), static_cast<float>(bound.weights[2]),
                         static_cast<float>(bound.weights[3])};
    }
  }
  std::vector<uint32_t> vertices, begins = {0}, entries;
  for (const auto& [slot, of_slot] : entries_of) {
    vertices.push_back(slot);
    entries.insert(entries.end(), of_slot.begin(), of_slot.end());
    begins.push_back(static_cast<uint32_t>(entries.size()));
  }
  vertex_count_ = static_cast<uint32_t>(vertices.size());
  std::vector<float> resist;
  for (const double s : ResistanceOf(vertices)) resist.push_back(static_cast<float>(s));
  resist.push_back(0);
  vertices.push_back(0);  // none of them may be free
  entries.push_back(0);
  PALPATE_ASSIGN_OR_RETURN(bindings_, CreateBufferFrom(queue, std::span<const NurbsBinding>(bindings_host_), "nurbs bindings"));
  PALPATE_ASSIGN_OR_RETURN(vertices_, CreateBufferFrom(queue, std::span<const uint32_t>(vertices), "nurbs bound vertices"));
  PALPATE_ASSIGN_OR_RETURN(begins_, CreateBufferFrom(queue, std::span<const uint32_t>(begins), "nurbs bound begins"));
  PALPATE_ASSIGN_OR_RETURN(entries_, CreateBufferFrom(queue, std::span<const uint32_t>(entries), "nurbs bound entries"));
  PALPATE_ASSIGN_OR_RETURN(resist_, CreateBufferFrom(queue, std::span<const float>(resist), "nurbs bound resistance"));
  PALPATE_ASSIGN_OR_RETURN(unloaded_, DeviceBuffer<Float4>::Create(context, vertices.size(), "nurbs bound targets"));
  PALPATE_ASSIGN_OR_RETURN(loaded_, DeviceBuffer<Float4>::Create(context, vertices.size(), "nurbs bound targets, loaded"));
  return absl::OkStatus();
}

/// What the shells resist with where these vertices move, whichever way and all at once [N/m].
std::vector<double> NurbsBindings::ResistanceOf(std::span<const uint32_t> vertices) const {
  std::vector<Eigen::Triplet<double>> entries;
  for (size_t i = 0; i < bindings_host_.size(); ++i) {
    const NurbsBinding& b = bindings_host_[i];
    const std::array<std::pair<uint32_t, float>, 4> corners = {
        {{b.vertices.x, b.weights.x}, {b.vertices.y, b.weights.y}, {b.vertices.z, b.weights.z}, {b.vertices.w, b.weights.w}}};
    for (const auto& [slot, weight] : corners) {
      const auto at = std::lower_bound(vertices.begin(), vertices.end(), slot);
      if (at == vertices.end() || *at != slot) continue;
      for (int axis = 0; axis < 3; ++axis) {
        entries.emplace_back(3 * static_cast<int>(i) + axis, 3 * static_cast<int>(at - vertices.begin()) + axis, weight);
      }
    }
  }
  SparseMatrix carried(stiffness_.rows(), 3 * static_cast<Eigen::Index>(vertices.size()));
  carried.setFromTriplets(entries.begin(), entries.end());
  const SparseMatrix of_vertices = carried.transpose() * stiffness_ * carried;
  std::vector<double> out = IsotropicBound(of_vertices);
  for (double& s : out) s *= kResistShare;
  return out;
}

absl::Status NurbsBindings::Begin(Queue& queue, const DeviceBuffer<StepParams>& params, const DeviceBuffer<Float4>& x,
                                  const DeviceBuffer<ControlPointState>& states, const DeviceBuffer<Float4>& control) {
  if (vertex_count_ > 0) {
    PALPATE_RETURN_IF_ERROR(queue.Launch(forget_, {vertex_count_, group_}, Arg("count", vertex_count_), Arg("loaded", loaded_)));
  }
  return queue.Launch(begin_, Bindings(), Arg("count", static_cast<uint32_t>(count())), Arg("p", params), Arg("bindings", bindings_),
                      Arg("x", x), Arg("states", states), Arg("control", control), Arg("inertial", inertial_));
}

absl::Status NurbsBindings::Follow(Queue& queue, const DeviceBuffer<Float4>& x, const DeviceBuffer<ControlPointState>& states) {
  return queue.Launch(follow_, Bindings(), Arg("count", static_cast<uint32_t>(count())), Arg("bindings", bindings_), Arg("x", x),
                      Arg("states", states));
}

absl::Status NurbsBindings::Load(Queue& queue, const TissueBuffers& tissue, const DeviceBuffer<Float4>& control) {
  if (vertex_count_ == 0) return absl::OkStatus();
  return queue.Launch(load_, {vertex_count_, group_}, Arg("count", vertex_count_), Arg("p", tissue.params), Arg("vertices", vertices_),
                      Arg("begins", begins_), Arg("entries", entries_), Arg("bindings", bindings_), Arg("resist", resist_),
                      Arg("forces", forces_), Arg("inertial", inertial_), Arg("control", control), Arg("x", tissue.x),
                      Arg("mass", tissue.mass), Arg("unloaded", unloaded_), Arg("loaded", loaded_), Arg("y", tissue.y));
}

absl::StatusOr<std::vector<Float4>> NurbsBindings::ReadForces(Queue& queue, const DeviceBuffer<Float4>& control) const {
  std::vector<Float4> forces(count()), inertial(count()), at(control.count());
  PALPATE_RETURN_IF_ERROR(queue.EnqueueRead(forces_, std::span<Float4>(forces)));
  PALPATE_RETURN_IF_ERROR(queue.EnqueueRead(inertial_, std::span<Float4>(inertial)));
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(control, std::span<Float4>(at)));
  for (size_t i = 0; i < count(); ++i) {
    const Float4 &y = inertial[i], &q = at[slots_host_[i]];
    forces[i] = {forces[i].x + y.w * (y.x - q.x), forces[i].y + y.w * (y.y - q.y), forces[i].z + y.w * (y.z - q.z), 0};
  }
  return forces;
}

}  // namespace palpate::gpu
