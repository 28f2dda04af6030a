#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/nurbs_types.h"

namespace palpate::gpu {

/// One NURBS surface, seen, not owned.
struct NurbsNet {
  uint32_t degree_u = 0, degree_v = 0;   ///< [1, PALPATE_NURBS_MAX_DEGREE]
  std::span<const double> knots_u = {};  ///< not decreasing, clamped: the first and the last degree_u + 1 are equal
  std::span<const double> knots_v = {};  ///< likewise
  std::span<const double> control = {};  ///< [count_u][count_v][4]: x w, y w, z w [m] and the weight w > 0
};

/// Objects of NURBS surfaces on the device: the current control points, the rational Bezier patches between their knots, and for each
/// object a binary tree over its patches with a turned box for each node. What does not change is made once: the tree follows the grid of
/// knots. New control points cost their upload and two launches, O(control points * depth of the tree).
///
/// Points are kept in float about the middle of their object, so that its place in the world costs no digits. Thread: one at a time.
/// Determinism: the result is unique.
class NurbsObjects {
 public:
  /// A weight may be smaller than the largest of its object by this factor.
  static constexpr double kMaxWeightRatio = 0x1p40;
  static constexpr size_t kMaxControlPoints = size_t{1} << 26;

  /// Blocking. Errors: InvalidArgument naming object, surface and field; ResourceExhausted (more than 2^28 points of Bezier patches).
  static absl::StatusOr<NurbsObjects> Create(Queue& queue, std::span<const std::vector<NurbsNet>> objects);

  /// New control points for all surfaces of an object, one after the other, as in NurbsNet: deformed, or moved. Errors: InvalidArgument
  /// (object, number of points, a point that is not finite, a weight that is not positive or too small); nothing is changed then.
  absl::Status SetControl(Queue& queue, uint32_t object, std::span<const double> control);

  uint32_t object_count() const { return static_cast<uint32_t>(objects_.size()); }
  uint32_t first_patch(uint32_t object) const { return objects_[object].patch_begin; }
  uint32_t patch_count(uint32_t object) const { return objects_[object].patch_end - objects_[object].patch_begin; }
  bool Owns(uint32_t object, uint32_t patch) const { return patch >= objects_[object].patch_begin && patch < objects_[object].patch_end; }
  uint32_t node_count() const { return static_cast<uint32_t>(nodes_.size()); }
  /// Cuts from the whole object to its deepest patch.
  uint32_t depth(uint32_t object) const { return objects_[object].depth; }

  /// A patch as a place in its surface.
  struct PatchPlace {
    uint32_t surface = 0;                  ///< of its object
    std::array<double, 2> u = {}, v = {};  ///< between these knots
    uint32_t control = 0, stride = 0;      ///< first point in the object's control, points from row to row
    uint32_t degree_u = 0, degree_v = 0;
    std::array<const double*, 2> to_bezier = {};  ///< [degree + 1][degree + 1], in u and in v
  };
  PatchPlace patch_place(uint32_t patch) const;
  /// As given, of all surfaces of an object: [points][4].
  std::span<const double> control(uint32_t object) const { return objects_[object].control; }
  std::array<double, 3> middle_m(uint32_t object) const { return objects_[object].middle_m; }
  /// No control point is farther from the middle, coordinate by coordinate, than the sides of a box of which this is half the diagonal.
  double radius_m(uint32_t object) const { return objects_[object].radius_m; }
  uint32_t root(uint32_t object) const { return objects_[object].root; }
  const NurbsNode& node(uint32_t node) const { return nodes_[node]; }

  /// Macros of nurbs_volume.clh but for VOLUME. They change when weights do.
  ProgramDefines Defines() const;
  /// Bound on the error of a point of a part, as computed on the device, as a share of radius_m. See docs/algorithms/nurbs.md.
  double relative_error() const;

  /// Blocking. The Bezier points of all patches, homogeneous and about the middle of their object; as many as bezier().count.
  absl::Status ReadBezierBlocking(Queue& queue, std::span<Float4> points) const { return queue.ReadBlocking(device_bezier_, points); }

  BufferView<NurbsNode> nodes() const { return device_nodes_; }
  BufferView<NurbsBox> boxes() const { return device_boxes_; }
  BufferView<NurbsPatch> patches() const { return device_patches_; }
  BufferView<Float4> bezier() const { return device_bezier_; }

 private:
  struct Surface {
    uint32_t degree_u = 0, degree_v = 0;
    uint32_t count_u = 0, count_v = 0;
    uint32_t control = 0;  // first of its points among those of the object
    std::vector<std::array<double, 2>> spans_u, spans_v;
    std::vector<uint32_t> first_u, first_v;          // control point, of each span
    std::vector<uint32_t> to_bezier_u, to_bezier_v;  // first coefficient, of each span
  };
  struct Object {
    std::vector<Surface> surfaces;
    std::vector<double> control;
    uint32_t control_begin = 0;  // on the device
    uint32_t patch_begin = 0, patch_end = 0;
    uint32_t node_begin = 0, node_end = 0;
    uint32_t root = 0;
    uint32_t depth = 0;
    std::array<double, 3> middle_m = {};
    double radius_m = 0;
    bool is_rational = false;
  };
  struct PatchSource {
    uint32_t surface = 0;
    uint32_t span_u = 0, span_v = 0;
    uint32_t object = 0;
  };

  NurbsObjects() = default;
  absl::Status AddObject(std::span<const NurbsNet> nets, uint32_t index);
  absl::Status Check(const Object& object, std::span<const double> control, uint32_t index) const;
  static void Place(Object& object);
  absl::Status Upload(Queue& queue, const Object& object);
  void AddKnots(std::span<const double> knots, uint32_t degree, std::vector<std::array<double, 2>>& spans, std::vector<uint32_t>& first,
                std::vector<uint32_t>& coefficients);
  absl::Status MakeKernels(const std::shared_ptr<Context>& context);

  std::vector<Object> objects_;
  std::vector<NurbsNode> nodes_;
  std::vector<NurbsPatch> patches_;
  std::vector<PatchSource> sources_;
  std::vector<double> to_bezier_;
  uint32_t bezier_count_ = 0;
  uint32_t control_count_ = 0;
  uint32_t max_order_ = 0;
  uint32_t common_order_u_ = 0, common_order_v_ = 0;  // 0: they differ
  ProgramDefines kernel_defines_;
  Kernel extract_, node_boxes_;
  DeviceBuffer<Float4> device_control_;
  DeviceBuffer<float> device_to_bezier_;
  DeviceBuffer<Float4> device_bezier_;
  DeviceBuffer<NurbsPatch> device_patches_;
  DeviceBuffer<NurbsNode> device_nodes_;
  DeviceBuffer<NurbsBox> device_boxes_;
};

}  // namespace palpate::gpu
