#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "gpu/base/status.h"
#include "gpu/primitives/primitive_config.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/kdop.h"

namespace palpate::gpu {

/// Kinds of bounding volume of a body. k-DOP: the intervals of the body's vertices on k/2 fixed axes; kDop6 is the axis-aligned box.
/// kOrientedBox: a box on axes of the body's own, with the body's intervals on x, y and z (its 6-DOP): two volumes overlap if both do.
enum class BoundingVolume { kSphere, kDop6, kDop14, kDop18, kDop26, kOrientedBox };

inline constexpr std::array<BoundingVolume, 6> kBoundingVolumes = {BoundingVolume::kSphere, BoundingVolume::kDop6,
                                                                   BoundingVolume::kDop14,  BoundingVolume::kDop18,
                                                                   BoundingVolume::kDop26,  BoundingVolume::kOrientedBox};

/// "sphere", "6-dop", ..., "obb".
const char* BoundingVolumeName(BoundingVolume volume);

/// Fixed axes whose intervals a volume holds; 0 for a sphere, x, y and z for an oriented box.
uint32_t AxisCount(BoundingVolume volume);

/// Axes along which the volumes can be swept: those of the k-DOP; for a sphere the nine of the 18-DOP.
uint32_t SweepAxisCount(BoundingVolume volume);

/// Direction of sweep axis `axis` < SweepAxisCount; components are 0, 1 and -1, not normalised. First x, y, z; then, for k = 18 and 26 and
/// spheres, x+y, x-y, x+z, x-z, y+z, y-z; then, for k = 14 and 26, x+y+z, x+y-z, x-y+z, x-y-z.
std::array<double, 3> SweepAxis(BoundingVolume volume, uint32_t axis);

/// Floats of one volume in a volume buffer. k-DOP: the lower bounds on all axes, then the upper ones [m]. Sphere: centre x, y, z, radius.
/// Oriented box: the 6-DOP of the body, then the centre of the box, its half-extents along its axes [m], its three axes one after the
/// other, orthonormal to 1e-6. The volume of a body without vertices is empty: lower bounds +inf, upper -inf; radius -inf. It overlaps
/// nothing.
uint32_t FloatsPerVolume(BoundingVolume volume);

/// -D macros that specialise a kernel to a volume: see kdop.clh.
ProgramDefines VolumeDefines(BoundingVolume volume);

/// Places copies of shared meshes: meshes are uploaded once, each step only the poses.
class InstanceTransform {
 public:
  static absl::StatusOr<InstanceTransform> Create(const std::shared_ptr<Context>& context);

  /// Enqueues world_vertices[begins[i] ... begins[i+1]) = the vertices of instance i in world coordinates [m]: rotation * (scale .* v) +
  /// position for the vertices v of mesh_vertices from instances[i].mesh.x on. `begins` has instance_count + 1 elements, rises from 0 to
  /// vertex_count. Errors: InvalidArgument (a buffer too small).
  absl::Status Run(Queue& queue, BufferView<Float4> mesh_vertices, BufferView<RigidInstance> instances, BufferView<uint32_t> begins,
                   uint32_t instance_count, uint32_t vertex_count, BufferView<Float4> world_vertices);

 private:
  PrimitiveConfig config_;
  Kernel kernel_;
};

/// Poses of bodies that volumes may follow; null where there are none.
struct BodyPoses {
  BufferView<Float4> positions;  ///< [m]
  BufferView<Float4> rotations;  ///< unit quaternions, x, y, z = vector part, w = scalar part
};

/// Builds the bounding volumes of bodies from the current vertices.
///
/// Guarantee: every vertex is inside its body's volume in exact arithmetic; each bound is within a few units in the last place of the exact
/// one (spheres: 1e-6 of the radius about their centre; oriented boxes: 4e-6 of the box's size and 4e-7 of the coordinates about their
/// axes). An oriented box has the axes of the body's rotation, or without rotations the principal axes of the vertices.
/// S. Gottschalk, M. C. Lin, D. Manocha, "OBBTree", SIGGRAPH 1996. A body with a vertex that is not finite (or too far for a sphere, |p -
/// c|^2 not finite) gets a volume of NaNs, which BodyBroadPhase refuses by name. Work is split over vertices, so that one large body and
/// many small ones both fill the device. Thread: one at a time. Determinism: the result is unique.
class VolumeBuilder {
 public:
  static absl::StatusOr<VolumeBuilder> Create(const std::shared_ptr<Context>& context, BoundingVolume volume);

  BoundingVolume volume() const { return volume_; }

  /// Enqueues volumes[i] for the bodies i with vertices[begins[i] ... begins[i+1]) (w unused). `begins` has body_count + 1 elements, rises
  /// from 0 to vertex_count (a precondition; it is not checked). `poses`: the positions are the centres of spheres (null: the centre of
  /// each body's box), the rotations turn oriented boxes; k-DOPs ignore both. `run_length` is for tests: vertices of one work-item, 0 = as
  /// suits the device. Errors: InvalidArgument (a buffer too small), ResourceExhausted.
  absl::Status Build(Queue& queue, BufferView<Float4> vertices, BufferView<uint32_t> begins, uint32_t body_count, uint32_t vertex_count,
                     BufferView<float> volumes, const BodyPoses& poses = {}, uint32_t run_length = 0);

  /// As Build, for motion: volumes[i] holds every vertex of body i wherever it is on the straight line from start_vertices to end_vertices,
  /// so bodies that meet at any time of the step have volumes that overlap. Poses are not used: spheres are about the box of both ends,
  /// oriented boxes have the principal axes of both. Memory: 32 bytes a vertex. Errors: also InvalidArgument (more than kMaxItems / 2
  /// vertices).
  absl::Status BuildSwept(Queue& queue, BufferView<Float4> start_vertices, BufferView<Float4> end_vertices, BufferView<uint32_t> begins,
                          uint32_t body_count, uint32_t vertex_count, BufferView<float> volumes);

 private:
  absl::Status BuildBoxes(Queue& queue, BufferView<Float4> vertices, BufferView<uint32_t> begins, uint32_t body_count,
                          uint32_t vertex_count, uint32_t run_length);
  absl::Status BuildOriented(Queue& queue, BufferView<Float4> vertices, BufferView<uint32_t> begins, uint32_t body_count,
                             uint32_t vertex_count, BufferView<float> volumes, BufferView<Float4> rotations, uint32_t run_length);

  std::shared_ptr<Context> context_;
  PrimitiveConfig config_;
  BoundingVolume volume_ = BoundingVolume::kDop6;
  Kernel runs_, rest_;
  std::unique_ptr<VolumeBuilder> boxes_builder_;  // of the centres of spheres and the scale of moments
  DeviceBuffer<float> boxes_;
  DeviceBuffer<uint32_t> slots_;
  Kernel ends_kernel_, swept_begins_kernel_;
  DeviceBuffer<Float4> ends_;  // of motions: start and end of each vertex
  DeviceBuffer<uint32_t> swept_begins_;
  Kernel moments_kernel_, axes_kernel_, extents_kernel_, finish_kernel_;  // oriented boxes
  DeviceBuffer<uint32_t> moments_, extents_;
};

}  // namespace palpate::gpu
