#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/collision/ccd.h"
#include "gpu/collision/surface_topology.h"
#include "gpu/collision/view_certificate.h"
#include "gpu/collision/view_rest.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/collision_types.h"

namespace palpate::gpu {

struct ViewCollisionsOptions {
  CcdDetectorOptions ccd;              ///< candidates are found by the tree in any case
  ViewCertificateOptions certificate;  ///< margin_m is taken from ccd.separation_m
};

/// What the certificate saved in one run.
struct ViewStatistics {
  uint32_t triangles = 0;     ///< of bodies that meet themselves
  uint32_t certified = 0;     ///< of these, in a certificate
  uint32_t searched = 0;      ///< triangles of the surface that pairs were sought in
  bool was_traversed = true;  ///< false: no pair was left, and nothing was sought
  bool was_asked = true;      ///< false: all components were left alone
};

/// Continuous collisions of triangle surfaces, with what the view certificate excludes left out before any pair is looked at.
///
/// Guarantee: the hits are those of ContinuousCollisions, to the bit, except that pairs within a certificate which are reported there for
/// want of a proof (some roundings apart) may be missing; statistics differ. Elements that a certificate has are put in
/// one group that does not meet itself, so that whole subtrees are passed over. Where there is one certificate, only what is not in it is
/// looked at, with what may meet it; where all is in one, nothing is built or sought.
/// Thread: one at a time. Determinism: as ContinuousCollisions. docs/algorithms/view_certificate.md.
class ViewCollisions {
 public:
  /// Errors: InvalidArgument naming the option out of range.
  static absl::StatusOr<ViewCollisions> Create(const std::shared_ptr<Context>& context, const ViewCollisionsOptions& options = {});

  /// Uploads the connectivity. Blocking.
  absl::Status SetTopology(Queue& queue, const SurfaceTopology& topology);

  /// As ContinuousCollisions::Run, with its errors.
  absl::Status Run(Queue& queue, BufferView<Float4> starts_m, BufferView<Float4> ends_m);

  uint32_t hit_count() const { return statistics_.was_traversed ? detector_->hit_count() : 0; }
  /// Sorted by (kind, a, b); valid until the next run.
  BufferView<CcdHit> hits() const { return {detector_->hits().handle, hit_count()}; }
  const DeviceBuffer<CcdHit>& hit_buffer() const { return detector_->hit_buffer(); }
  const ViewStatistics& statistics() const { return statistics_; }
  /// Of the search for what the certificate left; as it was before where there was none.
  const CcdStatistics& ccd_statistics() const { return detector_->statistics(); }
  const ViewCertificate& certificate() const { return *certificate_; }

 private:
  absl::Status Group(Queue& queue);
  void Give(const std::shared_ptr<const DeviceSurface>& surface);
  // Looks at what one certificate leaves, if that is little; false: nothing was done.
  absl::StatusOr<bool> SearchRest(Queue& queue, BufferView<Float4> starts_m, BufferView<Float4> ends_m);

  std::shared_ptr<Context> context_;
  std::unique_ptr<ViewCertificate> certificate_;
  std::unique_ptr<ContinuousCollisions> detector_;
  ViewStatistics statistics_;
  uint32_t self_triangles_ = 0;
  float pad_m_ = 0;
  std::shared_ptr<const DeviceSurface> given_;  // which surface the detector has
  uint64_t grouped_version_ = 0;
  std::shared_ptr<DeviceSurface> plain_, grouped_;
  ViewRest rest_;
  DeviceBuffer<uint32_t> labels_;
  Kernel groups_kernel_;
};

}  // namespace palpate::gpu
