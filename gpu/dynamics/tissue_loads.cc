#include "gpu/dynamics/tissue_loads.h"

#include <cmath>
#include <numeric>

namespace palpate::gpu {

namespace kernels {
extern const KernelSource tissue;
}

absl::Status TissueLoads::MakeKernels(Context& context, const ProgramDefines& defines, TissueLoads* old) {
  if (old != nullptr) {
    apply_ = std::move(old->apply_);
    push_ = std::move(old->push_);
    return absl::OkStatus();
  }
  PALPATE_ASSIGN_OR_RETURN(apply_, context.CreateKernel(kernels::tissue, "apply_loads", defines));
  PALPATE_ASSIGN_OR_RETURN(push_, context.CreateKernel(kernels::tissue, "follower_loads", defines));
  return absl::OkStatus();
}

// A force goes to the vertices of its triangles by area, or to its vertices by mass where they span no triangle.
void TissueLoads::ShareForces(const TissueLayout& layout) {
  shares_.clear();
  for (size_t k = 0; k < loads_.size(); ++k) {
    TissueLayout::BySlot<double> share(vertex_count_, 0.0);
    double sum = 0;
    for (uint32_t place = 0; place < layout.triangle_count; ++place) {
      const UInt4& t = layout.triangles[place];
      const uint32_t own = layout.triangle_loads.empty() ? 0 : layout.triangle_loads[place];
      const std::array<SolverSlot, 3> corners = {SolverSlot{t.x}, SolverSlot{t.y}, SolverSlot{t.z}};
      const uint32_t of_all = layout.load_bits[corners[0]] & layout.load_bits[corners[1]] & layout.load_bits[corners[2]];
      if (!((of_all | own) & 1U << k)) continue;
      const Float4& o = layout.rest_m[corners[0]];
      const Float4& b = layout.rest_m[corners[1]];
      const Float4& c = layout.rest_m[corners[2]];
      const double bx = b.x - o.x, by = b.y - o.y, bz = b.z - o.z, cx = c.x - o.x, cy = c.y - o.y, cz = c.z - o.z;
      const double area = std::hypot(by * cz - bz * cy, bz * cx - bx * cz, bx * cy - by * cx) / 2;
      for (const SolverSlot v : corners) share[v] += area / 3;
      sum += area;
    }
    for (const SolverSlot v : share.indices()) {
      if (sum == 0 && layout.load_bits[v] & 1U << k) share[v] = layout.mass_kg[v];
    }
    if (sum == 0) sum = std::accumulate(share.begin(), share.end(), 0.0);
    std::vector<std::pair<uint32_t, float>>& shares = shares_.emplace_back();
    for (const SolverSlot v : share.indices()) {
      if (share[v] > 0) shares.emplace_back(ToNumber(v), static_cast<float>(share[v] / sum));
    }
  }
}

absl::Status TissueLoads::SetLoads(Queue& queue, std::span<const TissueLoad> loads, const TissueLayout& layout) {
  const std::shared_ptr<Context>& context = queue.context();
  loads_.assign(loads.begin(), loads.end());
  acting_ = 0;
  any_triangle_ = !layout.triangle_loads.empty();
  vertex_count_ = loads_.empty() ? 0 : layout.vertex_count;
  ShareForces(layout);
  PALPATE_ASSIGN_OR_RETURN(bits_, CreateBufferFrom(queue, std::span<const uint32_t>(layout.load_bits.values()), "load_bits"));
  PALPATE_ASSIGN_OR_RETURN(triangle_loads_, CreateBufferFrom(queue, std::span<const uint32_t>(layout.triangle_loads), "triangle_loads"));
  PALPATE_ASSIGN_OR_RETURN(pressures_, DeviceBuffer<float>::Create(context, loads_.size(), "load_pressures"));
  PALPATE_ASSIGN_OR_RETURN(y_free_, DeviceBuffer<Float4>::Create(context, vertex_count_, "inertial_targets_without_loads"));
  PALPATE_ASSIGN_OR_RETURN(forces_, DeviceBuffer<Float4>::Create(context, vertex_count_, "load_forces"));
  return absl::OkStatus();
}

absl::Status TissueLoads::WriteActing(Queue& queue) {
  std::vector<float> pressures(loads_.size(), 0.0F);
  std::vector<Float4> forces(vertex_count_);
  for (size_t k = 0; k < loads_.size(); ++k) {
    if (!(acting_ & 1U << k)) continue;
    pressures[k] = static_cast<float>(loads_[k].pressure_pa);
    const auto& [fx, fy, fz] = loads_[k].force_n;
    const Float4 force = {static_cast<float>(fx), static_cast<float>(fy), static_cast<float>(fz), 0.0F};
    for (const auto& [v, share] : shares_[k]) {
      forces[v] = {forces[v].x + share * force.x, forces[v].y + share * force.y, forces[v].z + share * force.z, 0.0F};
    }
  }
  PALPATE_RETURN_IF_ERROR(queue.Write(pressures_, std::span<const float>(pressures)));
  return queue.Write(forces_, std::span<const Float4>(forces));
}

absl::Status TissueLoads::Begin(Queue& queue, const TissueBuffers& tissue, double start_s) {
  uint32_t acting = 0;
  for (size_t k = 0; k < loads_.size(); ++k) {
    const double age_s = start_s - loads_[k].start_s + 1e-9;
    if (age_s >= 0 && age_s < loads_[k].duration_s) acting |= 1U << k;
  }
  if (acting != acting_) {  // seldom: only then the device is told
    acting_ = acting;
    PALPATE_RETURN_IF_ERROR(WriteActing(queue));
  }
  if (acting == 0) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(queue.Copy(tissue.y, y_free_, vertex_count_));
  return Apply(queue, tissue);
}

absl::Status TissueLoads::Apply(Queue& queue, const TissueBuffers& tissue) {
  if (acting_ == 0) return absl::OkStatus();
  return queue.Launch(apply_, {vertex_count_, 0}, Arg("p", tissue.params), Arg("load_count", static_cast<uint32_t>(loads_.size())),
                      Arg("pressures", pressures_), Arg("load_bits", bits_), Arg("any_triangle", any_triangle_ ? 1U : 0U),
                      Arg("triangle_loads", triangle_loads_), Arg("load_forces", forces_), Arg("x", tissue.x),
                      Arg("vertex_triangle_range", tissue.vertex_triangle_range), Arg("vertex_triangles", tissue.vertex_triangles),
                      Arg("triangles", tissue.triangles), Arg("mass", tissue.mass), Arg("y_free", y_free_), Arg("y", tissue.y));
}

absl::Status TissueLoads::Push(Queue& queue, const TissueBuffers& tissue, const DeviceBuffer<uint32_t>& slots,
                               const DeviceBuffer<Float4>& pushes) {
  return queue.Launch(push_, {slots.count(), 0}, Arg("count", static_cast<uint32_t>(slots.count())), Arg("slots", slots),
                      Arg("load_count", static_cast<uint32_t>(loads_.size())), Arg("pressures", pressures_), Arg("load_bits", bits_),
                      Arg("any_triangle", any_triangle_ ? 1U : 0U), Arg("triangle_loads", triangle_loads_), Arg("load_forces", forces_),
                      Arg("x", tissue.x), Arg("vertex_triangle_range", tissue.vertex_triangle_range),
                      Arg("vertex_triangles", tissue.vertex_triangles), Arg("triangles", tissue.triangles), Arg("pushes", pushes));
}

size_t TissueLoads::device_bytes() const {
  return pressures_.size_bytes() + bits_.size_bytes() + triangle_loads_.size_bytes() + forces_.size_bytes() + y_free_.size_bytes();
}

}  // namespace palpate::gpu
