#include "gpu/collision/view_collisions.h"

#include <algorithm>
#include <utility>

#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource view_certificate;
}

namespace {

// A rest of more than this share of the triangles is not worth to be made a surface of its own.
constexpr double kMostRest = 0.5;

}  // namespace

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
  PALPATE_ASSIGN_OR_RETURN(collisions.rest_, ViewRest::Create(context));
  collisions.pad_m_ = static_cast<float>(1.001 * options.ccd.separation_m);
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
  statistics_ = {};
  given_ = nullptr;
  Give(plain_);
  return absl::OkStatus();
}

void ViewCollisions::Give(const std::shared_ptr<const DeviceSurface>& surface) {
  if (given_ != surface || surface == rest_.surface()) detector_->SetSurface(surface);
  given_ = surface;
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
  statistics_.searched = plain_->triangle_count;
  if (statistics_.certified == 0) {
    Give(plain_);
    return detector_->Run(queue, starts_m, ends_m);
  }
  PALPATE_RETURN_IF_ERROR(Group(queue));
  PALPATE_ASSIGN_OR_RETURN(const bool is_done, SearchRest(queue, starts_m, ends_m));
  if (is_done) return absl::OkStatus();
  statistics_.searched = plain_->triangle_count;
  Give(grouped_);
  return detector_->Run(queue, starts_m, ends_m);
}

absl::StatusOr<bool> ViewCollisions::SearchRest(Queue& queue, BufferView<Float4> starts_m, BufferView<Float4> ends_m) {
  const auto components = certificate_->components();
  // Two certificates may meet each other.
  if (std::count_if(components.begin(), components.end(), [](const ViewComponent& c) { return c.certified > 0; }) != 1) return false;
  PALPATE_ASSIGN_OR_RETURN(const bool is_small,
                           rest_.Build(queue, *grouped_, certificate_->labels(), labels_, starts_m, ends_m, pad_m_, kMostRest));
  if (!is_small) return false;
  Give(rest_.surface());
  statistics_.searched = rest_.surface()->triangle_count;
  // An error names elements of the rest; the whole surface has the same, with numbers that the caller knows.
  if (!detector_->Run(queue, rest_.starts_m(), rest_.ends_m()).ok()) return false;
  PALPATE_RETURN_IF_ERROR(rest_.NameHits(queue, detector_->hits()));
  return true;
}

}  // namespace palpate::gpu
