#include "gpu/dynamics/shape_goals.h"

#include <string>

#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource shape_goals;
}

absl::StatusOr<std::unique_ptr<ShapeGoals>> ShapeGoals::Create(Queue& queue, const ShapeClusters& clusters, uint32_t group_size) {
  std::unique_ptr<ShapeGoals> goals(new ShapeGoals);
  const std::shared_ptr<Context>& context = queue.context();
  const size_t before = context->allocated_bytes();
  goals->cluster_count_ = static_cast<uint32_t>(clusters.clusters.size());
  goals->vertex_count_ = static_cast<uint32_t>(clusters.share_begin.size() - 1);
  goals->group_size_ = group_size;
  goals->is_damped_ = clusters.is_damped;
  const size_t members = clusters.member_vertex.size();
  PALPATE_ASSIGN_OR_RETURN(goals->clusters_, CreateBufferFrom(queue, std::span<const ShapeCluster>(clusters.clusters), "shape clusters"));
  PALPATE_ASSIGN_OR_RETURN(goals->member_vertex_,
                           CreateBufferFrom(queue, std::span<const uint32_t>(clusters.member_vertex), "shape member vertices"));
  PALPATE_ASSIGN_OR_RETURN(goals->member_linear_,
                           CreateBufferFrom(queue, std::span<const Float4>(clusters.member_linear), "shape coordinates"));
  PALPATE_ASSIGN_OR_RETURN(goals->member_quadratic_,
                           CreateBufferFrom(queue, std::span<const Float4>(clusters.member_quadratic), "shape quadratic coordinates"));
  PALPATE_ASSIGN_OR_RETURN(goals->share_begin_,
                           CreateBufferFrom(queue, std::span<const uint32_t>(clusters.share_begin), "shape share begins"));
  PALPATE_ASSIGN_OR_RETURN(goals->shares_, CreateBufferFrom(queue, std::span<const UInt2>(clusters.shares), "shape shares"));
  PALPATE_ASSIGN_OR_RETURN(goals->poses_, DeviceBuffer<ShapePose>::Create(context, clusters.clusters.size(), "shape poses"));
  PALPATE_ASSIGN_OR_RETURN(goals->strains_, DeviceBuffer<Float4>::Create(context, clusters.is_damped ? members : 0, "shape strains"));
  PALPATE_ASSIGN_OR_RETURN(goals->goals_, DeviceBuffer<Float4>::Create(context, goals->vertex_count_, "shape goals"));
  PALPATE_RETURN_IF_ERROR(queue.Zero(goals->strains_));
  PALPATE_RETURN_IF_ERROR(queue.Zero(goals->goals_));
  const ProgramDefines defines = {{"PALPATE_SHAPE_GROUP", std::to_string(group_size)}};
  PALPATE_ASSIGN_OR_RETURN(goals->match_clusters_, context->CreateKernel(kernels::shape_goals, "match_clusters", defines));
  PALPATE_ASSIGN_OR_RETURN(goals->note_strains_, context->CreateKernel(kernels::shape_goals, "note_strains", defines));
  PALPATE_ASSIGN_OR_RETURN(goals->gather_goals_, context->CreateKernel(kernels::shape_goals, "gather_goals", defines));
  goals->device_bytes_ = context->allocated_bytes() - before;
  return goals;
}

absl::Status ShapeGoals::Match(Queue& queue, const DeviceBuffer<Float4>& x) {
  return queue.Launch(match_clusters_, {size_t{cluster_count_} * group_size_, group_size_}, Arg("cluster_count", cluster_count_),
                      Arg("clusters", clusters_), Arg("x", x), Arg("member_vertex", member_vertex_), Arg("member_linear", member_linear_),
                      Arg("member_quadratic", member_quadratic_), Arg("poses", poses_));
}

absl::Status ShapeGoals::Begin(Queue& queue, const DeviceBuffer<Float4>& x_start) {
  if (!is_damped_) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(Match(queue, x_start));
  return queue.Launch(note_strains_, {vertex_count_, 0}, Arg("vertex_count", vertex_count_), Arg("clusters", clusters_),
                      Arg("poses", poses_), Arg("x_start", x_start), Arg("share_begin", share_begin_), Arg("shares", shares_),
                      Arg("member_linear", member_linear_), Arg("member_quadratic", member_quadratic_), Arg("strains", strains_));
}

absl::Status ShapeGoals::Update(Queue& queue, const DeviceBuffer<Float4>& x) {
  PALPATE_RETURN_IF_ERROR(Match(queue, x));
  return queue.Launch(gather_goals_, {vertex_count_, 0}, Arg("vertex_count", vertex_count_), Arg("damped", uint32_t{is_damped_ ? 1U : 0U}),
                      Arg("clusters", clusters_), Arg("poses", poses_), Arg("x", x), Arg("share_begin", share_begin_),
                      Arg("shares", shares_), Arg("member_linear", member_linear_), Arg("member_quadratic", member_quadratic_),
                      Arg("strains", strains_), Arg("goals", goals_));
}

}  // namespace palpate::gpu
