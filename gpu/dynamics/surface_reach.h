#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/dynamics/surface_options.h"
#include "gpu/primitives/run_writer.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/dynamics_types.h"
#include "gpu/shared/types.h"

namespace palpate::gpu {

/// The numbers of SurfaceParams on host and device: how far a detection looks (range), and how far vertices may go after it before they
/// need continuous detection (cap). Any range beyond the margin is safe; cap_m() is always below half the distance within which all pairs
/// are known.
class SurfaceReach {
 public:
  SurfaceReach() = default;
  explicit SurfaceReach(const SurfaceOptions& options);

  /// The range for surfaces with these edges at rest [m]. It goes by their mean, unless the reserve was given, and follows edits where that
  /// has become another by three tenths: a range of many elements would find pairs by the square of that number, and a shorter one is as
  /// safe. Host only; returns whether it changed.
  bool SetEdges(std::span<const UInt2> edges, const std::vector<Float4>& rest);
  /// The same after an edit, if enough edges have come or gone.
  bool FollowEdges(std::span<const UInt2> edges, const std::vector<Float4>& rest);

  absl::Status Upload(Queue& queue);  ///< creates the buffer, or writes to it
  absl::Status AddTo(RunWriter* writer) const { return writer->Add(params_, std::span<const SurfaceParams>(&host_, 1), 0); }

  /// The cap where all pairs nearer than known_m are known.
  absl::Status SetCap(Queue& queue, double known_m);

  float range_m() const { return host_.range_m; }
  float cap_m() const { return host_.cap_m; }
  double edge_m() const { return edge_m_; }  ///< mean edge that the range goes by

  /// Of what is read, the device knows after Upload.
  template <typename Archive>
  void VisitState(Archive& archive) {
    [[maybe_unused]] auto& [margin_m, reserve_m, edge_m, edge_count, host, params] = *this;
    archive.Enter("SurfaceReach");
    archive(edge_m, edge_count, host.range_m, host.cap_m);
    archive.Check(host.range_m > 0 && host.cap_m > 0, "a range is not positive");
  }
  const DeviceBuffer<SurfaceParams>& params() const { return params_; }

 private:
  double margin_m_ = 0;
  double reserve_m_ = 0;
  double edge_m_ = 0;
  size_t edge_count_ = 0;  // when it was last looked at
  SurfaceParams host_{};
  DeviceBuffer<SurfaceParams> params_;
};

}  // namespace palpate::gpu
