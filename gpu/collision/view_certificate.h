#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/collision/surface_topology.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/types.h"
#include "gpu/shared/view_types.h"

namespace palpate::gpu {

/// What the certificate may spend, and what it promises.
struct ViewCertificateOptions {
  double margin_m = 0;            ///< elements of a certificate keep more than this from each other; >= 0, finite
  bool uses_segments = true;      ///< components that no point suits are seen from a segment; only with margin_m = 0
  bool caps_from_corner = false;  ///< holes are capped by a fan from a vertex of theirs, not from a ghost vertex
  double least_share = 0.5;       ///< a component is given up when less of its triangles can be certified; in (0, 1]
  uint32_t max_rounds = 4;        ///< times that holes around what is not positive are widened in a run; at most 16
  uint32_t max_rest_runs = 32;    ///< most runs that a component which was given up is left alone for, doubling from 1; at most 1024
};

/// One part of a surface whose triangles hang together by edges.
struct ViewComponent {
  uint32_t body = 0;
  uint32_t triangle_count = 0;
  uint32_t hole_count = 0;  ///< boundary loops
  bool is_fit = true;       ///< false: an edge has three triangles, or two that run the same way; never certified
  ViewPrimitive primitive = {};
  ViewCounts counts = {};  ///< of the last run, all triangles
  uint32_t certified = 0;  ///< triangles of the last run
  bool was_seen = false;   ///< in the last run; false: left alone, or not fit
};

/// Proves for parts of surfaces that they do not touch themselves while their vertices move straight over one step, in time linear in the
/// triangles and without looking at pairs.
///
/// Guarantee: two elements (vertex, edge, triangle) of triangles that have the same label, and which have no vertex in common, do not meet
/// at any time of the step; with margin_m they keep more than that from each other. No state of the steps before is relied on, nor that
/// the surface is free of intersections at the start. A label of 0 says nothing.
/// Method: each component is seen from a point or a segment. Triangles with a certain sign of their moving volume are kept, holes around
/// the others and at boundaries are capped, and if all is positive and one ray meets the whole once, each direction is covered once.
/// docs/algorithms/view_certificate.md. Only bodies with PALPATE_GROUP_SELF are looked at.
///
/// Thread: one at a time. Determinism: the same calls give the same labels on one device.
class ViewCertificate {
 public:
  /// Errors: InvalidArgument naming the option out of range.
  static absl::StatusOr<ViewCertificate> Create(const std::shared_ptr<Context>& context, const ViewCertificateOptions& options = {});

  /// Uploads the connectivity; no primitive is known afterwards. Blocking.
  absl::Status SetSurface(Queue& queue, const SurfaceTopology& topology);

  /// Looks at the step from `starts_m` to `ends_m`, [vertex_count] each [m], w unused. One blocking read where the primitives at hand
  /// serve, some more elsewhere. Errors: FailedPrecondition without a surface; InvalidArgument (a buffer too small). Coordinates that are
  /// not finite are no error: their triangles are not certified. After an error nothing is certified.
  absl::Status Run(Queue& queue, BufferView<Float4> starts_m, BufferView<Float4> ends_m);

  /// As Run, once, from the given primitives [component] instead of those chosen. Their rays are replaced, and so is start.w, from margin_m
  /// and the end.w [m] that is given.
  absl::Status RunFrom(Queue& queue, BufferView<Float4> starts_m, BufferView<Float4> ends_m, std::span<const ViewPrimitive> primitives);

  /// Of the last run: [triangle] 0, or 1 + the component.
  std::span<const uint32_t> labels() const { return labels_; }
  /// Changes when labels() do.
  uint64_t labels_version() const { return labels_version_; }
  std::span<const ViewComponent> components() const { return components_; }
  uint32_t certified_count() const;
  /// Whether the body is one component, with one label in all its triangles: it does not meet itself.
  bool IsBodyCertified(uint32_t body) const;
  /// Blocking. Codes of the last classification, [triangle]: PALPATE_VIEW_...; for checks. 0 for triangles of components not looked at.
  absl::StatusOr<std::vector<uint32_t>> Codes(Queue& queue) const;

 private:
  // What is known of a component besides what is told.
  struct Part {
    uint32_t first_block = 0, last_block = 0;
    std::vector<uint32_t> triangles;
    std::vector<std::vector<uint32_t>> holes;  // loops of vertices, as the edges of the surface run
    bool has_primitive = false;
    uint32_t ray = 0;   // of the table
    uint32_t rest = 0;  // runs that it is left alone from now on
    uint32_t next_rest = 1;
    double height_m = 0;       // of its triangles over the primitive, in the mean or as would be good
    uint32_t usual_wrong = 0;  // triangles that were not positive when the primitive was chosen
    ViewCounts caps;           // of the last classification, those of all holes
  };
  struct Chunks {
    DeviceBuffer<UInt4> list;
    uint32_t count = 0;
  };
  struct Step {
    BufferView<Float4> starts_m, ends_m;
  };
  struct Holes {
    std::vector<uint32_t> begins = {0};
    std::vector<uint32_t> vertices;
    std::vector<uint32_t> components;
    void Add(uint32_t component, std::span<const uint32_t> loop);
    uint32_t count() const { return static_cast<uint32_t>(components.size()); }
  };

  absl::Status Look(Queue& queue, BufferView<Float4> starts_m, BufferView<Float4> ends_m);
  absl::Status LookFrom(Queue& queue, BufferView<Float4> starts_m, BufferView<Float4> ends_m, std::span<const ViewPrimitive> primitives);
  absl::Status EndRun(const absl::Status& status);
  absl::Status BeginRun(BufferView<Float4> starts_m, BufferView<Float4> ends_m);
  absl::Status UploadChunks(Queue& queue, std::span<const uint32_t> components);
  absl::Status WritePrimitives(Queue& queue);
  absl::Status Choose(Queue& queue, const Step& step, std::span<const uint32_t> components, bool is_new);
  absl::Status MovePoints(Queue& queue, const Step& step, std::span<const uint32_t> components, bool centres, double wanted_share);
  // Other points where those at hand see more from behind than they did, and other rays.
  absl::Status Improve(Queue& queue, const Step& step, std::span<const uint32_t> seen, std::span<const uint32_t> fresh);
  absl::Status ReadPositions(Queue& queue, BufferView<Float4> positions_m, std::span<Float4> target);
  // The segment along the longest axis of a component, over all its length.
  ViewPrimitive LongAxis(uint32_t component, std::span<const Float4> positions) const;
  absl::Status ChooseSegments(Queue& queue, const Step& step, std::span<const uint32_t> components);
  // Fills counts of the components and of their caps.
  absl::Status Classify(Queue& queue, const Step& step, std::span<const uint32_t> components);
  absl::Status EnqueueCaps(Queue& queue, const Step& step, const Holes& holes, std::vector<ViewCounts>* counts);
  // Whether the whole component is certified by the counts of the last classification.
  bool IsWhole(uint32_t component) const;
  // Looks for the largest part that can be certified.
  absl::Status CertifyPart(Queue& queue, const Step& step, uint32_t component);
  std::vector<std::vector<uint32_t>> LoopsOf(std::span<const uint32_t> triangles, uint32_t kept) const;
  uint32_t KeepLargest(std::span<const uint32_t> triangles);
  void Widen(std::span<const uint32_t> triangles, uint32_t rings);
  void SetLabels();
  void NextRay(uint32_t component);
  // Sets what goes with the place of a primitive: ray and margin.
  void Complete(uint32_t component, float reach_m);

  std::shared_ptr<Context> context_;
  ViewCertificateOptions options_;
  bool has_surface_ = false;
  size_t local_size_ = 1;
  uint32_t blocks_a_chunk_ = 1;
  uint32_t vertex_count_ = 0;
  std::vector<std::array<uint32_t, 3>> triangles_;
  std::vector<std::array<uint32_t, 3>> neighbours_;  // [triangle] across the edges (0, 1), (1, 2), (2, 0), or none
  std::vector<uint32_t> vertex_triangle_begin_, vertex_triangles_;
  std::vector<uint32_t> slots_;  // [triangle] place in codes
  std::vector<uint32_t> marks_;  // [triangle] while a part is sought: kept, and in which piece
  std::vector<ViewComponent> components_;
  std::vector<Part> parts_;
  std::vector<uint32_t> component_of_;  // [triangle], or none
  std::vector<uint32_t> labels_, before_;
  uint64_t labels_version_ = 0;
  std::vector<uint32_t> codes_;  // [slot] as last read
  bool has_codes_ = false;
  Kernel classify_kernel_, moments_kernel_, copy_kernel_, caps_kernel_;
  DeviceBuffer<uint32_t> ids_, device_codes_, hole_begins_, hole_vertices_, hole_components_;
  Chunks chunks_;
  std::vector<uint32_t> chunked_;  // components that chunks_ is of
  std::vector<UInt4> chunk_list_;
  DeviceBuffer<Float4> positions_;
  DeviceBuffer<ViewPrimitive> primitives_;
  DeviceBuffer<float> wanted_m_;
  DeviceBuffer<ViewCounts> counts_, device_hole_counts_;
  DeviceBuffer<ViewMoments> moments_;
};

}  // namespace palpate::gpu
