#include "gpu/collision/kdop.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource kdop;
extern const KernelSource oriented_box;
}  // namespace kernels
namespace {

constexpr std::array<std::array<double, 3>, 3> kMain = {{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}};
constexpr std::array<std::array<double, 3>, 6> kEdges = {{{1, 1, 0}, {1, -1, 0}, {1, 0, 1}, {1, 0, -1}, {0, 1, 1}, {0, 1, -1}}};
constexpr std::array<std::array<double, 3>, 4> kCorners = {{{1, 1, 1}, {1, 1, -1}, {1, -1, 1}, {1, -1, -1}}};

// Vertices of one work-item: long runs on a CPU, on a GPU enough runs to fill it.
uint32_t RunLength(const Context& context, const PrimitiveConfig& config, uint32_t vertex_count) {
  if (config.group_size == 1) return 4096;
  const uint32_t items = std::max(context.device().compute_units, 1U) * 128;
  return std::clamp(vertex_count / items, 32U, 1024U);
}

Range RunRange(const PrimitiveConfig& config, uint32_t vertex_count, uint32_t run_length) {
  return {(size_t{vertex_count} + run_length - 1) / run_length, config.group_size == 1 ? size_t{1} : size_t{64}};
}

Range BodyRange(const PrimitiveConfig& config, uint32_t body_count) {
  return {body_count, config.group_size == 1 ? size_t{128} : size_t{64}};
}

}  // namespace

const char* BoundingVolumeName(BoundingVolume volume) {
  switch (volume) {
    case BoundingVolume::kSphere:
      return "sphere";
    case BoundingVolume::kDop6:
      return "6-dop";
    case BoundingVolume::kDop14:
      return "14-dop";
    case BoundingVolume::kDop18:
      return "18-dop";
    case BoundingVolume::kDop26:
      return "26-dop";
    case BoundingVolume::kOrientedBox:
      return "obb";
  }
  return "unknown";
}

uint32_t AxisCount(BoundingVolume volume) {
  switch (volume) {
    case BoundingVolume::kSphere:
      return 0;
    case BoundingVolume::kDop6:
    case BoundingVolume::kOrientedBox:
      return 3;
    case BoundingVolume::kDop14:
      return 7;
    case BoundingVolume::kDop18:
      return 9;
    case BoundingVolume::kDop26:
      return 13;
  }
  return 0;
}

uint32_t SweepAxisCount(BoundingVolume volume) { return volume == BoundingVolume::kSphere ? 9 : AxisCount(volume); }

std::array<double, 3> SweepAxis(BoundingVolume volume, uint32_t axis) {
  if (axis < 3) return kMain[axis];
  if (volume == BoundingVolume::kDop14) return kCorners[axis - 3];
  return axis < 9 ? kEdges[axis - 3] : kCorners[axis - 9];
}

uint32_t FloatsPerVolume(BoundingVolume volume) {
  if (volume == BoundingVolume::kOrientedBox) return 21;
  return volume == BoundingVolume::kSphere ? 4 : 2 * AxisCount(volume);
}

ProgramDefines VolumeDefines(BoundingVolume volume) {
  ProgramDefines defines = {{"AXES", std::to_string(AxisCount(volume))}};
  if (volume == BoundingVolume::kOrientedBox) defines.emplace("ORIENTED", "1");
  return defines;
}

absl::StatusOr<InstanceTransform> InstanceTransform::Create(const std::shared_ptr<Context>& context) {
  InstanceTransform transform;
  transform.config_ = PrimitiveConfig::For(context->device());
  PALPATE_ASSIGN_OR_RETURN(transform.kernel_,
                           context->CreateKernel(kernels::kdop, "instance_vertices", VolumeDefines(BoundingVolume::kDop6)));
  return transform;
}

absl::Status InstanceTransform::Run(Queue& queue, BufferView<Float4> mesh_vertices, BufferView<RigidInstance> instances,
                                    BufferView<uint32_t> begins, uint32_t instance_count, uint32_t vertex_count,
                                    BufferView<Float4> world_vertices) {
  PALPATE_RETURN_IF_ERROR(CheckCapacity("InstanceTransform", "instances", instances.count, instance_count));
  PALPATE_RETURN_IF_ERROR(CheckCapacity("InstanceTransform", "begins", begins.count, size_t{instance_count} + 1));
  PALPATE_RETURN_IF_ERROR(CheckCapacity("InstanceTransform", "world_vertices", world_vertices.count, vertex_count));
  const uint32_t run_length = RunLength(*queue.context(), config_, vertex_count);
  return queue.Launch(kernel_, RunRange(config_, vertex_count, run_length), Arg("vertex_count", vertex_count),
                      Arg("instance_count", instance_count), Arg("run_length", run_length), Arg("mesh_vertices", mesh_vertices),
                      Arg("instances", instances), Arg("begins", begins), Arg("out", world_vertices));
}

absl::StatusOr<VolumeBuilder> VolumeBuilder::Create(const std::shared_ptr<Context>& context, BoundingVolume volume) {
  VolumeBuilder builder;
  builder.context_ = context;
  builder.config_ = PrimitiveConfig::For(context->device());
  builder.volume_ = volume;
  PALPATE_ASSIGN_OR_RETURN(builder.ends_kernel_,
                           context->CreateKernel(kernels::kdop, "swept_vertices", VolumeDefines(BoundingVolume::kDop6)));
  PALPATE_ASSIGN_OR_RETURN(builder.swept_begins_kernel_,
                           context->CreateKernel(kernels::kdop, "swept_begins", VolumeDefines(BoundingVolume::kDop6)));
  const bool is_sphere = volume == BoundingVolume::kSphere;
  const bool is_oriented = volume == BoundingVolume::kOrientedBox;
  if (is_sphere || is_oriented) {
    PALPATE_ASSIGN_OR_RETURN(VolumeBuilder boxes, Create(context, BoundingVolume::kDop6));
    builder.boxes_builder_ = std::make_unique<VolumeBuilder>(std::move(boxes));
  }
  if (is_oriented) {
    PALPATE_ASSIGN_OR_RETURN(builder.moments_kernel_, context->CreateKernel(kernels::oriented_box, "oriented_moments"));
    PALPATE_ASSIGN_OR_RETURN(builder.axes_kernel_, context->CreateKernel(kernels::oriented_box, "oriented_axes"));
    PALPATE_ASSIGN_OR_RETURN(builder.extents_kernel_, context->CreateKernel(kernels::oriented_box, "oriented_extents"));
    PALPATE_ASSIGN_OR_RETURN(builder.finish_kernel_, context->CreateKernel(kernels::oriented_box, "oriented_finish"));
    return builder;
  }
  const ProgramDefines defines = VolumeDefines(volume);
  PALPATE_ASSIGN_OR_RETURN(builder.runs_, context->CreateKernel(kernels::kdop, is_sphere ? "sphere_runs" : "volume_runs", defines));
  PALPATE_ASSIGN_OR_RETURN(builder.rest_, context->CreateKernel(kernels::kdop, is_sphere ? "sphere_rest" : "volume_rest", defines));
  return builder;
}

absl::Status VolumeBuilder::BuildSwept(Queue& queue, BufferView<Float4> start_vertices, BufferView<Float4> end_vertices,
                                       BufferView<uint32_t> begins, uint32_t body_count, uint32_t vertex_count, BufferView<float> volumes) {
  const char* name = "VolumeBuilder::BuildSwept";
  PALPATE_RETURN_IF_ERROR(CheckCapacity(name, "start_vertices", start_vertices.count, vertex_count));
  PALPATE_RETURN_IF_ERROR(CheckCapacity(name, "end_vertices", end_vertices.count, vertex_count));
  PALPATE_RETURN_IF_ERROR(CheckCapacity(name, "begins", begins.count, size_t{body_count} + 1));
  if (vertex_count > kMaxItems / 2) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", vertex_count, " vertices, at most ", kMaxItems / 2));
  }
  // The segment is in every convex volume that holds both of its ends.
  PALPATE_RETURN_IF_ERROR(Grow(context_, ends_, 2 * size_t{vertex_count}, "ends of motions"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, swept_begins_, size_t{body_count} + 1, "begins of motions"));
  const size_t group = config_.group_size == 1 ? 128 : 64;
  PALPATE_RETURN_IF_ERROR(queue.Launch(ends_kernel_, {vertex_count, group}, Arg("vertex_count", vertex_count), Arg("start", start_vertices),
                                       Arg("end", end_vertices), Arg("out", ends_)));
  PALPATE_RETURN_IF_ERROR(queue.Launch(swept_begins_kernel_, {size_t{body_count} + 1, group}, Arg("body_count", body_count),
                                       Arg("begins", begins), Arg("out", swept_begins_)));
  return Build(queue, ends_, swept_begins_, body_count, 2 * vertex_count, volumes);
}

absl::Status VolumeBuilder::BuildBoxes(Queue& queue, BufferView<Float4> vertices, BufferView<uint32_t> begins, uint32_t body_count,
                                       uint32_t vertex_count, uint32_t run_length) {
  PALPATE_RETURN_IF_ERROR(Grow(context_, boxes_, size_t{body_count} * 6, "boxes of volumes"));
  return boxes_builder_->Build(queue, vertices, begins, body_count, vertex_count, boxes_, {}, run_length);
}

absl::Status VolumeBuilder::BuildOriented(Queue& queue, BufferView<Float4> vertices, BufferView<uint32_t> begins, uint32_t body_count,
                                          uint32_t vertex_count, BufferView<float> volumes, BufferView<Float4> rotations,
                                          uint32_t run_length) {
  const Range runs = RunRange(config_, vertex_count, run_length);
  const Range bodies = BodyRange(config_, body_count);
  PALPATE_RETURN_IF_ERROR(BuildBoxes(queue, vertices, begins, body_count, vertex_count, run_length));
  if (rotations.handle == nullptr && body_count > 0) {
    const size_t words = size_t{body_count} * 18;
    PALPATE_RETURN_IF_ERROR(Grow(context_, moments_, words, "moments of bodies"));
    PALPATE_RETURN_IF_ERROR(queue.Fill(moments_, 0U, words));
    PALPATE_RETURN_IF_ERROR(queue.Launch(moments_kernel_, runs, Arg("vertex_count", vertex_count), Arg("body_count", body_count),
                                         Arg("run_length", run_length), Arg("vertices", vertices), Arg("begins", begins),
                                         Arg("boxes", boxes_), Arg("moments", moments_)));
  }
  PALPATE_RETURN_IF_ERROR(queue.Launch(axes_kernel_, bodies, Arg("body_count", body_count), Arg("begins", begins), Arg("moments", moments_),
                                       Arg("rotations", rotations), Arg("volumes", volumes)));
  const size_t words = size_t{body_count} * 6;
  PALPATE_RETURN_IF_ERROR(Grow(context_, extents_, words, "extents of oriented boxes"));
  if (words > 0) PALPATE_RETURN_IF_ERROR(queue.Fill(extents_, UINT32_MAX, words));
  PALPATE_RETURN_IF_ERROR(queue.Launch(extents_kernel_, runs, Arg("vertex_count", vertex_count), Arg("body_count", body_count),
                                       Arg("run_length", run_length), Arg("vertices", vertices), Arg("begins", begins),
                                       Arg("boxes", boxes_), Arg("volumes", volumes), Arg("keys", extents_)));
  return queue.Launch(finish_kernel_, bodies, Arg("body_count", body_count), Arg("begins", begins), Arg("boxes", boxes_),
                      Arg("keys", extents_), Arg("volumes", volumes));
}

absl::Status VolumeBuilder::Build(Queue& queue, BufferView<Float4> vertices, BufferView<uint32_t> begins, uint32_t body_count,
                                  uint32_t vertex_count, BufferView<float> volumes, const BodyPoses& poses, uint32_t run_length) {
  const char* name = "VolumeBuilder";
  const BufferView<Float4> centres = poses.positions;
  PALPATE_RETURN_IF_ERROR(CheckCapacity(name, "vertices", vertices.count, vertex_count));
  PALPATE_RETURN_IF_ERROR(CheckCapacity(name, "begins", begins.count, size_t{body_count} + 1));
  PALPATE_RETURN_IF_ERROR(CheckCapacity(name, "volumes", volumes.count, size_t{body_count} * FloatsPerVolume(volume_)));
  if (centres.handle != nullptr) PALPATE_RETURN_IF_ERROR(CheckCapacity(name, "positions", centres.count, body_count));
  if (poses.rotations.handle != nullptr) PALPATE_RETURN_IF_ERROR(CheckCapacity(name, "rotations", poses.rotations.count, body_count));
  if (run_length == 0) run_length = RunLength(*context_, config_, vertex_count);
  if (volume_ == BoundingVolume::kOrientedBox) {
    return BuildOriented(queue, vertices, begins, body_count, vertex_count, volumes, poses.rotations, run_length);
  }

  const bool is_sphere = volume_ == BoundingVolume::kSphere;
  const Range range = RunRange(config_, vertex_count, run_length);
  const size_t slot_words = size_t{is_sphere ? 3 : 2 * AxisCount(volume_) + 1};
  const size_t words = range.global_size * slot_words;
  PALPATE_RETURN_IF_ERROR(Grow(context_, slots_, words, "volume slots"));
  if (words > 0) PALPATE_RETURN_IF_ERROR(queue.Fill(slots_, UINT32_MAX, words));
  if (!is_sphere) {
    PALPATE_RETURN_IF_ERROR(queue.Launch(runs_, range, Arg("vertex_count", vertex_count), Arg("body_count", body_count),
                                         Arg("run_length", run_length), Arg("vertices", vertices), Arg("begins", begins),
                                         Arg("slots", slots_), Arg("volumes", volumes)));
    return queue.Launch(rest_, BodyRange(config_, body_count), Arg("body_count", body_count), Arg("run_length", run_length),
                        Arg("begins", begins), Arg("slots", slots_), Arg("volumes", volumes));
  }
  BufferView<float> boxes = {};
  if (centres.handle == nullptr) {
    PALPATE_RETURN_IF_ERROR(BuildBoxes(queue, vertices, begins, body_count, vertex_count, run_length));
    boxes = boxes_.view();
  }
  PALPATE_RETURN_IF_ERROR(queue.Launch(runs_, range, Arg("vertex_count", vertex_count), Arg("body_count", body_count),
                                       Arg("run_length", run_length), Arg("vertices", vertices), Arg("begins", begins), Arg("boxes", boxes),
                                       Arg("centres", centres), Arg("slots", slots_), Arg("volumes", volumes)));
  return queue.Launch(rest_, BodyRange(config_, body_count), Arg("body_count", body_count), Arg("run_length", run_length),
                      Arg("begins", begins), Arg("boxes", boxes), Arg("centres", centres), Arg("slots", slots_), Arg("volumes", volumes));
}

}  // namespace palpate::gpu
