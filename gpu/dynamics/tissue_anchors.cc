#include "gpu/dynamics/tissue_anchors.h"

#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/dynamics/float4.h"

namespace palpate::gpu {

namespace kernels {
extern const KernelSource tools;
}

namespace {

absl::Status Check(std::span<const TissueAnchor> anchors, const TissueLayout& layout, uint32_t collider_count, uint32_t clip_count) {
  if (clip_count > kMaxTissueClips) {
    return absl::ResourceExhaustedError(absl::StrCat(clip_count, " clips exceed the limit of ", kMaxTissueClips));
  }
  const uint32_t holder_count = collider_count + clip_count;
  const auto is_present = [&](uint32_t vertex) {
    return vertex < layout.solver_index.size() && layout.solver_index[vertex] != kNoSolverSlot;
  };
  const auto is_positive = [](double value) { return value > 0 && std::isfinite(value); };
  const auto is_normal = [&](const TissueAnchor& a) {
    const double length = std::hypot(a.normal[0], a.normal[1], a.normal[2]);
    return length == 0 || (std::abs(length - 1) < 1e-6 && a.holder < collider_count);
  };
  for (size_t i = 0; i < anchors.size(); ++i) {
    const TissueAnchor& a = anchors[i];
    if (is_present(a.vertex) && a.holder < holder_count && is_positive(a.stiffness_n_per_m) && is_positive(a.max_force_n) &&
        std::isfinite(a.target_m[0] + a.target_m[1] + a.target_m[2]) && is_normal(a)) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat("anchor ", i, ": vertex ", a.vertex, " must be one of ", layout.solver_index.size(),
                                                   ", holder ", a.holder, " below ", holder_count, ", stiffness ", a.stiffness_n_per_m,
                                                   " N/m and force ", a.max_force_n,
                                                   " N positive, the target finite, the normal zero or (not of a clip) unit"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status TissueAnchors::MakeKernels(Context& context, const ProgramDefines& defines, TissueAnchors* old) {
  if (old != nullptr) {
    solve_clips_ = std::move(old->solve_clips_);
    report_ = std::move(old->report_);
    return absl::OkStatus();
  }
  PALPATE_ASSIGN_OR_RETURN(solve_clips_, context.CreateKernel(kernels::tools, "solve_clips", defines));
  PALPATE_ASSIGN_OR_RETURN(report_, context.CreateKernel(kernels::tools, "report_anchors", defines));
  return absl::OkStatus();
}

absl::Status TissueAnchors::Init(Queue& queue, const TissueLayout& layout) {
  begins_host_.assign(layout.vertex_count + 1, 0);
  PALPATE_ASSIGN_OR_RETURN(begins_, CreateBufferFrom(queue, std::span<const uint32_t>(begins_host_), "anchor_begin"));
  PALPATE_ASSIGN_OR_RETURN(anchors_, DeviceBuffer<Anchor>::Create(queue.context(), 1, "anchors"));
  PALPATE_ASSIGN_OR_RETURN(reports_, DeviceBuffer<AnchorReport>::Create(queue.context(), 1, "anchor_reports"));
  return absl::OkStatus();
}

absl::StatusOr<bool> TissueAnchors::Set(Queue& queue, const TissueLayout& layout, std::span<const TissueAnchor> anchors,
                                        uint32_t collider_count, uint32_t clip_count) {
  PALPATE_RETURN_IF_ERROR(Check(anchors, layout, collider_count, clip_count));
  if (anchors.empty() && anchors_host_.empty() && clip_count == clip_count_) return false;
  std::vector<uint32_t> begins(layout.vertex_count + 1, 0);
  for (const TissueAnchor& a : anchors) ++begins[ToNumber(layout.solver_index[a.vertex]) + 1];
  for (size_t v = 0; v < layout.vertex_count; ++v) begins[v + 1] += begins[v];
  anchors_host_.resize(anchors.size());
  place_.resize(anchors.size());
  reports_host_.assign(anchors.size(), AnchorReport{});
  reports_by_slot_.resize(anchors.size());
  std::vector<uint32_t> next(begins.begin(), begins.end() - 1);
  for (size_t i = 0; i < anchors.size(); ++i) {
    const TissueAnchor& a = anchors[i];
    const uint32_t slot = ToNumber(layout.solver_index[a.vertex]);
    place_[i] = next[slot]++;
    anchors_host_[place_[i]] = {.target = ToFloat4(a.target_m, a.stiffness_n_per_m),
                                .vertex = slot,
                                .holder = a.holder,
                                .max_force_n = static_cast<float>(a.max_force_n),
                                .unused = 0,
                                .normal = ToFloat4(a.normal, a.normal == std::array<double, 3>{} ? 0 : 1)};
  }
  clip_count_ = clip_count;
  if (begins != begins_host_) {
    begins_host_ = std::move(begins);
    PALPATE_RETURN_IF_ERROR(queue.Write(begins_, std::span<const uint32_t>(begins_host_)));
  }
  const bool grows = anchors.size() > anchors_.count();
  if (grows) {
    PALPATE_RETURN_IF_ERROR(Grow(queue.context(), anchors_, anchors.size(), "anchors"));
    PALPATE_RETURN_IF_ERROR(Grow(queue.context(), reports_, anchors.size(), "anchor_reports"));
  }
  if (!anchors.empty()) PALPATE_RETURN_IF_ERROR(queue.Write(anchors_, std::span<const Anchor>(anchors_host_)));
  return grows;
}

absl::Status TissueAnchors::SolveClips(Queue& queue, const TissueBuffers& tissue, const DeviceBuffer<Collider>& colliders) {
  if (clip_count_ == 0) return absl::OkStatus();
  return queue.Launch(solve_clips_, {clip_count_, 0}, Arg("p", tissue.params), Arg("clip_count", clip_count_), Arg("x", tissue.x),
                      Arg("anchor_begin", begins_), Arg("anchors", anchors_), Arg("colliders", colliders));
}

absl::Status TissueAnchors::EnqueueReports(Queue& queue, const TissueBuffers& tissue, const DeviceBuffer<Collider>& colliders) {
  if (anchors_host_.empty()) return absl::OkStatus();
  const auto count = static_cast<uint32_t>(anchors_host_.size());
  PALPATE_RETURN_IF_ERROR(queue.Launch(report_, {count, 0}, Arg("anchor_count", count), Arg("x", tissue.x), Arg("anchors", anchors_),
                                       Arg("colliders", colliders), Arg("reports", reports_)));
  return queue.EnqueueRead(reports_, std::span<AnchorReport>(reports_by_slot_));
}

void TissueAnchors::TakeReports() {
  for (size_t i = 0; i < place_.size(); ++i) reports_host_[i] = reports_by_slot_[place_[i]];
}

}  // namespace palpate::gpu
