#include "gpu/dynamics/air_drag.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace palpate::gpu {

namespace kernels {
extern const KernelSource air_drag;
}

absl::Status AirDrag::MakeKernels(Context& context, AirDrag* old) {
  if (empty()) return absl::OkStatus();
  if (old != nullptr && !old->empty()) {
    push_vertices_ = std::move(old->push_vertices_);
    push_followers_ = std::move(old->push_followers_);
    return absl::OkStatus();
  }
  PALPATE_ASSIGN_OR_RETURN(push_vertices_, context.CreateKernel(kernels::air_drag, "air_push_vertices"));
  PALPATE_ASSIGN_OR_RETURN(push_followers_, context.CreateKernel(kernels::air_drag, "air_push_followers"));
  return absl::OkStatus();
}

absl::Status AirDrag::SetSurface(Queue& queue, const TissueModel& model, const TissueLayout& layout) {
  const std::vector<double>& of_body = model.drag_kg_per_m3;
  if (!of_body.empty() && of_body.size() != model.self_collision.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("drag_kg_per_m3: ", of_body.size(), " entries for ", model.self_collision.size(), " bodies"));
  }
  for (size_t b = 0; b < of_body.size(); ++b) {
    if (!(of_body[b] >= 0 && std::isfinite(of_body[b]))) {
      return absl::InvalidArgumentError(absl::StrCat("drag_kg_per_m3[", b, "]: ", of_body[b], " must be finite and not negative"));
    }
  }
  is_felt_ = std::any_of(of_body.begin(), of_body.end(), [](double drag) { return drag > 0; });
  free_count_ = layout.free_count;
  if (!is_felt_) return absl::OkStatus();
  std::vector<float> drag(layout.triangle_count);
  for (uint32_t t = 0; t < layout.triangle_count; ++t) drag[t] = static_cast<float>(of_body[layout.triangle_body[t]]);
  PALPATE_ASSIGN_OR_RETURN(drag_, CreateBufferFrom(queue, std::span<const float>(drag), "triangle_drag"));
  return absl::OkStatus();
}

Float4 AirDrag::Wind() const {
  const auto& [x, y, z] = wind_m_per_s_;
  return {static_cast<float>(x), static_cast<float>(y), static_cast<float>(z), 0.0F};
}

absl::Status AirDrag::PushFollowers(Queue& queue, const TissueBuffers& tissue, const DeviceBuffer<uint32_t>& slots,
                                    const DeviceBuffer<Float4>& impulses, const DeviceBuffer<Float4>& slopes) {
  return queue.Launch(push_followers_, {slots.count(), 0}, Arg("count", static_cast<uint32_t>(slots.count())), Arg("slots", slots),
                      Arg("p", tissue.params), Arg("wind", Wind()), Arg("triangle_drag", drag_), Arg("x_start", tissue.x_start),
                      Arg("velocity", tissue.velocity), Arg("vertex_triangle_range", tissue.vertex_triangle_range),
                      Arg("vertex_triangles", tissue.vertex_triangles), Arg("triangles", tissue.triangles), Arg("impulses", impulses),
                      Arg("slopes", slopes));
}

absl::Status AirDrag::Apply(Queue& queue, const TissueBuffers& tissue, const RigidSurroundings& scene, RigidBlocks* rigid) {
  if (empty()) return absl::OkStatus();
  const Float4 wind = Wind();
  if (free_count_ > 0) {
    PALPATE_RETURN_IF_ERROR(queue.Launch(push_vertices_, {free_count_, 0}, Arg("p", tissue.params), Arg("wind", wind),
                                         Arg("triangle_drag", drag_), Arg("x_start", tissue.x_start), Arg("velocity", tissue.velocity),
                                         Arg("vertex_triangle_range", tissue.vertex_triangle_range),
                                         Arg("vertex_triangles", tissue.vertex_triangles), Arg("triangles", tissue.triangles),
                                         Arg("mass", tissue.mass), Arg("y", tissue.y)));
  }
  return rigid == nullptr ? absl::OkStatus() : rigid->PushByAir(queue, scene, wind, drag_, tissue.x);
}

}  // namespace palpate::gpu
