#include "gpu/dynamics/component_shifts.h"

#include <utility>

namespace palpate::gpu {

namespace kernels {
extern const KernelSource tissue;
}  // namespace kernels

absl::Status ComponentShifts::MakeKernels(Context& context, const ProgramDefines& defines, ComponentShifts* old) {
  if (old != nullptr) {
    component_sums_ = std::move(old->component_sums_);
    component_shares_ = std::move(old->component_shares_);
    return absl::OkStatus();
  }
  PALPATE_ASSIGN_OR_RETURN(component_sums_, context.CreateKernel(kernels::tissue, "component_sums", defines));
  PALPATE_ASSIGN_OR_RETURN(component_shares_, context.CreateKernel(kernels::tissue, "component_shares", defines));
  return absl::OkStatus();
}

absl::Status ComponentShifts::Shift(Queue& queue, const SurfaceContacts& surface, const TissueBuffers& tissue, const ToolContacts& tools,
                                    const TissueAnchors& anchors, SweptSurfaces& swept) {
  const FreeComponents& components = surface.components();
  const uint32_t count = components.count();
  constexpr uint32_t kParts = FreeComponents::kParts;
  const Range items{size_t{count} * kParts, 0};
  PALPATE_RETURN_IF_ERROR(Grow(queue.context(), sums_, items.global_size * PALPATE_COMPONENT_SUMS, "component_sums"));
  PALPATE_RETURN_IF_ERROR(queue.Launch(component_sums_, items, Arg("p", tissue.params), Arg("component_count", count), Arg("parts", kParts),
                                       Arg("component_begin", components.begins()), Arg("component_vertices", components.vertices()),
                                       Arg("x", tissue.x), Arg("x_start", tissue.x_start), Arg("y", tissue.y), Arg("mass", tissue.mass),
                                       Arg("vertex_triangle_range", tissue.vertex_triangle_range),
                                       Arg("vertex_triangles", tissue.vertex_triangles), Arg("triangles", tissue.triangles),
                                       Arg("triangle_colliders", tools.triangle_colliders()), Arg("contacts", tools.contacts()),
                                       Arg("colliders", tools.colliders()), Arg("obstacles", tools.planes()),
                                       Arg("anchor_begin", anchors.begins()), Arg("anchors", anchors.anchors()), Arg("sums", sums_)));
  FreeComponents::ShiftLimit limit;
  if (!tools.empty()) {
    limit = [&](const DeviceBuffer<Float4>& shifts) -> absl::StatusOr<const DeviceBuffer<float>*> {
      // The sums have been read.
      PALPATE_RETURN_IF_ERROR(queue.Launch(
          component_shares_, items, Arg("p", tissue.params), Arg("component_count", count), Arg("parts", kParts),
          Arg("component_begin", components.begins()), Arg("component_vertices", components.vertices()), Arg("shifts", shifts),
          Arg("x", tissue.x), Arg("vertex_triangle_range", tissue.vertex_triangle_range), Arg("vertex_triangles", tissue.vertex_triangles),
          Arg("triangles", tissue.triangles), Arg("triangle_colliders", tools.triangle_colliders()), Arg("contacts", tools.contacts()),
          Arg("colliders", tools.colliders()), Arg("planes", tools.planes()), Arg("shares", sums_)));
      return &sums_;
    };
  }
  return swept.ShiftComponents(queue, sums_, limit, tissue.x_before, tissue.x_before2, tissue.gate);
}

}  // namespace palpate::gpu
