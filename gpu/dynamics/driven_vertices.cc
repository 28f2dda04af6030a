#include "gpu/dynamics/driven_vertices.h"

#include <algorithm>
#include <cmath>

#include "gpu/dynamics/driven_poses.h"
#include "gpu/dynamics/surface_contact.h"

namespace palpate::gpu {

namespace kernels {
extern const KernelSource surface_contact;
}

absl::Status DrivenVertices::MakeKernels(Context& context) {
  PALPATE_ASSIGN_OR_RETURN(drive_, context.CreateKernel(kernels::surface_contact, "drive_vertices"));
  PALPATE_ASSIGN_OR_RETURN(prescribe_, context.CreateKernel(kernels::surface_contact, "prescribe_vertices"));
  PALPATE_ASSIGN_OR_RETURN(move_, context.CreateKernel(kernels::surface_contact, "move_driven"));
  return absl::OkStatus();
}

absl::Status DrivenVertices::SetRegions(Queue& queue, std::span<const TissueDrivenRegion> regions, const TissueLayout& layout) {
  regions_.assign(regions.begin(), regions.end());
  poses_host_.resize(regions_.size());
  count_ = static_cast<uint32_t>(layout.driven_vertices.size());
  region_count_ = static_cast<uint32_t>(layout.driven_regions.size());
  if (count_ == 0) return absl::OkStatus();
  const std::shared_ptr<Context>& context = queue.context();
  PALPATE_RETURN_IF_ERROR(Grow(context, vertices_, count_, "driven_vertices"));
  PALPATE_RETURN_IF_ERROR(Grow(context, vertex_regions_, count_, "driven_regions"));
  PALPATE_RETURN_IF_ERROR(Grow(context, vertex_shares_, count_, "driven_shares"));
  PALPATE_RETURN_IF_ERROR(Grow(context, poses_, regions_.size(), "driven_poses"));
  PALPATE_RETURN_IF_ERROR(Grow(context, rest_, layout.vertex_count, "rest"));
  PALPATE_RETURN_IF_ERROR(queue.Write(vertices_, std::span<const uint32_t>(layout.driven_vertices)));
  PALPATE_RETURN_IF_ERROR(queue.Write(vertex_regions_, std::span<const UInt4>(layout.driven_regions)));
  PALPATE_RETURN_IF_ERROR(queue.Write(vertex_shares_, std::span<const Float4>(layout.driven_shares)));
  return queue.Write(rest_, std::span<const Float4>(layout.rest_m));
}

absl::Status DrivenVertices::MakePrescribed(Queue& queue, size_t count) {
  PALPATE_ASSIGN_OR_RETURN(prescribed_, DeviceBuffer<Float4>::Create(queue.context(), count, "prescribed"));
  return absl::OkStatus();
}

absl::Status DrivenVertices::Hold(Queue& queue, const TissueLayout& layout, std::span<const Float4> positions) {
  prescribed_host_.clear();
  for (size_t i = region_count_; i < layout.driven_vertices.size(); ++i) {
    prescribed_host_.push_back(positions[layout.driven_vertices[i]]);
  }
  return prescribed_host_.empty() ? absl::OkStatus() : queue.Write(prescribed_, std::span<const Float4>(prescribed_host_));
}

absl::Status DrivenVertices::SetPrescribed(Queue& queue, std::span<const float> positions_m) {
  if (positions_m.size() != prescribed_host_.size() * 3) {
    return absl::InvalidArgumentError(absl::StrCat(positions_m.size(), " floats for ", prescribed_host_.size(), " prescribed vertices"));
  }
  if (!std::all_of(positions_m.begin(), positions_m.end(), [](float v) { return std::isfinite(v); })) {
    return absl::InvalidArgumentError("a prescribed position is not finite");
  }
  for (size_t i = 0; i < prescribed_host_.size(); ++i) {
    prescribed_host_[i] = {positions_m[3 * i], positions_m[3 * i + 1], positions_m[3 * i + 2], 0.0F};
  }
  return prescribed_host_.empty() ? absl::OkStatus() : queue.Write(prescribed_, std::span<const Float4>(prescribed_host_));
}

absl::Status DrivenVertices::Begin(Queue& queue, const TissueBuffers& tissue, double end_s) {
  if (prescribed_.count() > 0) {
    const auto count = static_cast<uint32_t>(prescribed_.count());
    PALPATE_RETURN_IF_ERROR(queue.Launch(prescribe_, {count, 0}, Arg("count", count), Arg("driven", region_count_),
                                         Arg("vertices", vertices_), Arg("targets", prescribed_), Arg("y", tissue.y), Arg("x", tissue.x)));
  }
  if (regions_.empty()) return absl::OkStatus();
  PosesOf(regions_, end_s, poses_host_);
  PALPATE_RETURN_IF_ERROR(queue.Write(poses_, std::span<const DrivenPose>(poses_host_)));
  return queue.Launch(drive_, {region_count_, 0}, Arg("count", region_count_), Arg("vertices", vertices_), Arg("regions", vertex_regions_),
                      Arg("shares", vertex_shares_), Arg("poses", poses_), Arg("rest", rest_), Arg("y", tissue.y), Arg("x", tissue.x));
}

absl::Status DrivenVertices::Move(Queue& queue, const TissueBuffers& tissue, const SurfaceContacts& surface) {
  return queue.Launch(move_, {count_, 0}, Arg("count", count_), Arg("vertices", vertices_), Arg("y", tissue.y),
                      Arg("detected", surface.detected()), Arg("clear_m", surface.pairs().clear_m()),
                      Arg("begins", surface.pairs().entry_begins()), Arg("planes", surface.pairs().planes()), Arg("x", tissue.x),
                      Arg("touched", tissue.touched));
}

size_t DrivenVertices::device_bytes() const {
  return vertices_.size_bytes() + vertex_regions_.size_bytes() + vertex_shares_.size_bytes() + poses_.size_bytes() + rest_.size_bytes() +
         prescribed_.size_bytes();
}

}  // namespace palpate::gpu
