#include "gpu/collision/view_collisions.h"

#include <algorithm>
#include <utility>

#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource view_certificate;
}

absl::StatusOr<ViewCollisions> ViewCollisions::Create(const std::shared_ptr<Context>& context, const ViewCollisionsOptions& options) {
  ViewCollisionsOptions own = options;
  own.ccd.candidates = CandidateStructure::kTree;
  own.certificate.margin_m = options.ccd.separation_m;
  ViewCollisions collisions;
  collisions.context_ = context;
  PALPATE_ASSIGN_OR_RETURN(ContinuousCollisions detector, ContinuousCollisions::Create(context, own.ccd));
  collisions.detector_ = std::make_unique<ContinuousCollisions>(std::move(detector));
  PALPATE_ASSIGN_OR_RETURN(ViewCertificate certificate, ViewCertificate::Create(context, own.certificate));
  collisions.certificate_ = std::make_unique<ViewCertificate>(std::move(certificate));
  PALPATE_ASSIGN_OR_RETURN(collisions.groups_kernel_, context->CreateKernel(kernels::view_certificate, "view_groups"));
  return collisions;
}

absl::Status ViewCollisions::SetTopology(Queue& queue, const SurfaceTopology& topology) {
  PALPATE_RETURN_IF_ERROR(certificate_->SetSurface(queue, topology));
  PALPATE_ASSIGN_OR_RETURN(DeviceSurface plain, DeviceSurface::Upload(queue, topology));
  plain_ = std::make_shared<DeviceSurface>(std::move(plain));
  PALPATE_ASSIGN_OR_RETURN(DeviceSurface grouped, DeviceSurface::Upload(queue, topology));
  // One group more for each certificate.
  grouped.body_count += static_cast<uint32_t>(certificate_->components().size());
  grouped_ = std::make_shared<DeviceSurface>(std::move(grouped));
  PALPATE_ASSIGN_OR_RETURN(labels_, DeviceBuffer<uint32_t>::Create(context_, topology.triangles.size(), "view labels"));
  self_triangles_ = 0;
  for (const ViewComponent& component : certificate_->components()) self_triangles_ += component.triangle_count;
  grouped_version_ = 0;
  is_grouped_ = false;
  statistics_ = {};
  detector_->SetSurface(plain_);
  return absl::OkStatus();
}

absl::Status ViewCollisions::Group(Queue& queue) {
  if (grouped_version_ == certificate_->labels_version()) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(queue.Copy(plain_->groups, grouped_->groups, plain_->triangle_count));
  PALPATE_RETURN_IF_ERROR(queue.Copy(plain_->vertex_groups, grouped_->vertex_groups, plain_->vertex_count));
  PALPATE_RETURN_IF_ERROR(queue.Copy(plain_->edge_groups, grouped_->edge_groups, plain_->edge_count));
  PALPATE_RETURN_IF_ERROR(queue.Write(labels_, certificate_->labels()));
  PALPATE_RETURN_IF_ERROR(queue.Launch(groups_kernel_, {plain_->triangle_count, 0}, Arg("triangle_count", plain_->triangle_count),
                                       Arg("first_group", plain_->body_count), Arg("labels", labels_), Arg("triangles", plain_->triangles),
                                       Arg("triangle_edges", plain_->triangle_edges), Arg("groups", grouped_->groups),
                                       Arg("vertex_groups", grouped_->vertex_groups), Arg("edge_groups", grouped_->edge_groups)));
  grouped_version_ = certificate_->labels_version();
  return absl::OkStatus();
}

absl::Status ViewCollisions::Run(Queue& queue, BufferView<Float4> starts_m, BufferView<Float4> ends_m) {
  statistics_ = {};
  if (plain_ == nullptr) return absl::FailedPreconditionError("view collisions: SetTopology comes before Run");
  PALPATE_RETURN_IF_ERROR(certificate_->Run(queue, starts_m, ends_m));
  statistics_.triangles = self_triangles_;
  statistics_.certified = certificate_->certified_count();
  const auto components = certificate_->components();
  statistics_.was_asked = std::any_of(components.begin(), components.end(), [](const ViewComponent& c) { return c.was_seen; });
  if (components.size() == 1 && statistics_.certified == plain_->triangle_count) {
    statistics_.was_traversed = false;
    return absl::OkStatus();
  }
  const bool groups = statistics_.certified > 0;
  if (groups) PALPATE_RETURN_IF_ERROR(Group(queue));
  if (groups != is_grouped_) {
    detector_->SetSurface(groups ? grouped_ : plain_);
    is_grouped_ = groups;
  }
  return detector_->Run(queue, starts_m, ends_m);
}

}  // namespace palpate::gpu
