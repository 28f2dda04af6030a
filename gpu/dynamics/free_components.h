#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "gpu/base/state_archive.h"
#include "gpu/base/status.h"
#include "gpu/dynamics/component_balance.h"
#include "gpu/dynamics/surface_options.h"
#include "gpu/dynamics/surface_pairs.h"
#include "gpu/dynamics/tissue_layout.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/dynamics_types.h"
#include "gpu/shared/types.h"

namespace palpate::gpu {

/// The components of a scene (vertices that tets join; static and rigid bodies, which have no tets, are one), and moves of those that
/// nothing holds, joints neither, as wholes: sweeps, which move vertex by vertex, would take hundreds to do that. Within a component such a
/// move changes nothing, so that the positions at the detection move along.
class FreeComponents {
 public:
  static constexpr uint32_t kParts = 8;  ///< work-items a component, for sums

  /// Keeps references to `layout` and what `scene` names.
  FreeComponents(const TissueLayout& layout, const SurfaceSurroundings& scene, const SurfaceOptions& options)
      : layout_(layout), scene_(scene), margin_m_(options.margin_m), least_gap_m_(options.least_gap_m()) {}
  /// `old` (or null): one that is given up, whose kernels are used again.
  absl::Status Init(Queue& queue, FreeComponents* old);

  /// The layout was edited: components, and what moved of them, are not known.
  void Invalidate() {
    is_known_ = false;
    moved_m_.clear();
  }
  /// O(tets) after an edit, else nothing. What follows needs it.
  absl::Status Find(Queue& queue);
  /// A detection begins: nothing has moved as a whole since.
  absl::Status ForgetMoves(Queue& queue);
  /// Whether Shift works out the moves without the host, which takes doubles.
  bool are_on_device() const { return on_device_; }

  /// What moved as a whole since the newest detection. Blocking.
  absl::Status SaveState(Queue& queue, StateWriter& archive) const;
  absl::Status LoadState(Queue& queue, StateReader& archive);

  uint32_t count() const { return static_cast<uint32_t>(is_free_.size()); }
  bool has_free() const { return has_free_; }
  const DeviceBuffer<uint32_t>& begins() const { return begin_; }       ///< [component + 1] in vertices(); others than free ones are empty
  const DeviceBuffer<uint32_t>& vertices() const { return vertices_; }  ///< [.] slot

  /// Where a step stands. What is not const in meaning: x, detected and those before move along with components.
  struct Positions {
    const DeviceBuffer<Float4>* x = nullptr;
    const DeviceBuffer<Float4>* x_start = nullptr;
    const DeviceBuffer<Float4>* detected = nullptr;
    const DeviceBuffer<Float4>* x_before = nullptr;  ///< of the sweeps before; empty: none
    const DeviceBuffer<Float4>* x_before2 = nullptr;
  };
  /// Takes components out of the planes that the first guess x drops them into. What rests there is let sink, and what only turns is no
  /// more than stopped: nothing is thrown up. Those before x are left as they are. One blocking read.
  absl::Status Lift(Queue& queue, const DeviceBuffer<SurfaceParams>& params, std::span<const PlaneObstacle> planes,
                    const DeviceBuffer<PlaneObstacle>& device_planes, const Positions& positions);

  /// Enqueues what finds the share of its shift (x, y, z in m) that each component may go, [count()][kParts], and returns where it is.
  using ShiftLimit = std::function<absl::StatusOr<const DeviceBuffer<float>*>(const DeviceBuffer<Float4>& shifts)>;
  /// Moves free components to where the forces on them balance, see MovesToBalance. `sums`: what component_sums of tissue.cl left at x,
  /// [count()][kParts][PALPATE_COMPONENT_SUMS]; pairs are linearised at x. `limit` may be empty; components that pairs join go by the least
  /// of their shares. Not while `gate` is closed (StepGate). Blocks where the device has no doubles.
  absl::Status Shift(Queue& queue, const DeviceBuffer<SurfaceParams>& params, const SurfacePairs& pairs, const DeviceBuffer<float>& sums,
                     const ShiftLimit& limit, const Positions& positions, const DeviceBuffer<uint32_t>& gate);

  size_t device_bytes() const;

 private:
  absl::StatusOr<ComponentForces> ReadForces(Queue& queue, const DeviceBuffer<SurfaceParams>& params, const SurfacePairs& pairs,
                                             const DeviceBuffer<float>& sums, const Positions& positions);
  absl::Status LaunchRows(Queue& queue, const DeviceBuffer<SurfaceParams>& params, const SurfacePairs& pairs, const Positions& positions);
  absl::Status ShiftOnDevice(Queue& queue, const SurfacePairs& pairs, const DeviceBuffer<float>& sums, const ShiftLimit& limit,
                             const Positions& positions, const DeviceBuffer<uint32_t>& gate);
  absl::Status Limit(Queue& queue, const ShiftLimit& limit, const std::vector<uint32_t>& leader);
  std::array<double, 3> LiftOf(const float* found, std::span<const PlaneObstacle> planes) const;
  /// Rounds moves to what shifts_host_ can hold. Whether any is not 0.
  bool TakeMoves(std::span<const std::array<double, 3>> moves_m);
  absl::Status LaunchShift(Queue& queue, const Positions& positions, bool has_history, BufferView<uint32_t> moves);

  const TissueLayout& layout_;
  SurfaceSurroundings scene_;
  double margin_m_ = 0;
  double least_gap_m_ = 0;
  bool is_known_ = false;
  bool has_free_ = false;
  bool on_device_ = false;
  uint32_t balance_group_ = 1;
  std::vector<uint8_t> is_free_;
  std::vector<std::array<double, 3>> moved_m_;  // [component] since the detection; empty while they are not known
  std::vector<float> sums_host_, depths_host_;
  std::vector<Float4> shifts_host_;
  std::vector<ComponentRow> rows_host_;
  Kernel component_rows_, shift_components_, component_depths_, balance_components_, limit_components_;
  DeviceBuffer<uint32_t> vertex_component_, begin_, vertices_;
  DeviceBuffer<uint32_t> free_, picked_, leader_, moves_;  // see component_balance.cl
  DeviceBuffer<double> moved_, scratch_;                   // moved_: in place of moved_m_
  DeviceBuffer<ComponentRow> rows_;
  DeviceBuffer<Float4> shifts_;
  DeviceBuffer<float> depths_;
};

}  // namespace palpate::gpu
