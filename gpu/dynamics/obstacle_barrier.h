#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/dynamics/step_gate.h"
#include "gpu/dynamics/surface_follower.h"
#include "gpu/dynamics/tissue_layout.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/dynamics_types.h"

namespace palpate::gpu {

/// The state of a step that is about to end, on the device; solver order.
struct ObstacleScene {
  const DeviceBuffer<UInt4>* triangles = nullptr;
  const DeviceBuffer<UInt2>* vertex_triangle_range = nullptr;
  const DeviceBuffer<UInt2>* block_range = nullptr;      // neighbours of each vertex, as in tissue.cl
  const DeviceBuffer<uint32_t>* corner_index = nullptr;  // likewise
  const DeviceBuffer<PlaneObstacle>* planes = nullptr;
  const DeviceBuffer<Float4>* x_start = nullptr;
  const DeviceBuffer<Float4>* x = nullptr;
  const DeviceBuffer<Collider>* colliders = nullptr;
  const DeviceBuffer<uint8_t>* touched = nullptr;
  SurfaceFollower* follower = nullptr;  // or null
};

/// What certifying a step did.
struct ObstacleOutcome {
  bool tissue_moved = false;     ///< moves of vertices were cut short
  uint32_t passing = 0;          ///< capsules that pass through tissue from the start of the step: nothing is certified of them
  std::span<const float> cut_m;  ///< [collider_count] by how much the move of each capsule was cut short; valid until the next call
};

/// Keeps tissue and obstacles from passing through each other, whatever the solver made of a step: capsules, which are tools or never move,
/// and half-spaces. It runs after the sweeps, which push by forces, and changes nothing where those did their work.
///
/// Guarantee, where the capsule's axis did not pass through the surface at the start of the step: no point of the surface is nearer to the
/// axis than the radius at the end, or than it was at the start if that is less; and there is a motion from the start to the end on which
/// the axis never touches the surface. No surface vertex ends behind a plane, or farther behind than at its start. Rounding: 1e-6 of the
/// coordinates' size.
/// Method: the straight joint moves of axis and triangles by continuous collision detection with the radius as separation. Where a capsule
/// outruns the tissue, the tissue moves first, beside the capsule where that was, then the capsule as far as it gets, and on along what it
/// met. Only where the tissue meets the capsule's old place, or a plane, its own moves are shortened, in rounds, until nothing meets.
/// Capsules of one tool move by the same share of their ways, so that it stays in one piece.
/// docs/algorithms/surface_contact.md.
///
/// Thread: one at a time. Determinism: same input, same bits.
class ObstacleBarrier {
 public:
  /// `margin_m`: moves that are cut short end this much's fiftieth before the radius. Errors: ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<ObstacleBarrier>> Create(Queue& queue, const TissueLayout& layout, uint32_t collider_count,
                                                                 uint32_t plane_count, double margin_m);

  /// Certifies the moves from x_start to x and of the colliders from their start; changes x and the colliders' ends. A state that is not
  /// finite is left alone. One blocking read, more where something meets.
  /// For a host that runs ahead: Certify as the last check of StepGate. If the gate stays open, its outcome is that nothing was done.
  absl::Status CertifyAhead(Queue& queue, const ObstacleScene& scene, StepGate& gate, const DeviceBuffer<uint32_t>& gate_buffer);
  absl::StatusOr<ObstacleOutcome> Certify(Queue& queue, const ObstacleScene& scene);

  /// Ends the step where it began: certified without a look.
  absl::Status TakeAllBack(Queue& queue, const ObstacleScene& scene);

  /// The surface has another number of triangles now.
  void SetTriangleCount(uint32_t count) { triangle_count_ = count; }

  size_t device_bytes() const { return device_bytes_; }

 private:
  ObstacleBarrier() = default;
  absl::Status Init(Queue& queue, const TissueLayout& layout);
  /// Runs the detection with legs_; the counters and, sorted, the meetings are then on the host.
  absl::Status LaunchMeetings(Queue& queue, const ObstacleScene& scene, const DeviceBuffer<Float4>& from, bool marks, bool planes);
  absl::Status FindMeetings(Queue& queue, const ObstacleScene& scene, const DeviceBuffer<Float4>& from, bool marks, bool planes);
  absl::Status ShortenTissue(Queue& queue, const ObstacleScene& scene, int round);
  /// Tools of which a capsule `is_met` go as far as they get; capsules that pass through tissue go along.
  absl::Status MoveCapsules(Queue& queue, const ObstacleScene& scene, std::span<const uint8_t> is_met, std::span<const uint8_t> passes);

  uint32_t vertex_count_ = 0;
  uint32_t free_count_ = 0;
  uint32_t triangle_count_ = 0;
  uint32_t lanes_ = 1;
  uint32_t collider_count_ = 0;
  uint32_t plane_count_ = 0;
  float ahead_m_ = 0;
  size_t device_bytes_ = 0;

  Kernel make_legs_, find_meetings_, find_behind_, keep_shares_, spread_shares_, apply_shares_;
  DeviceBuffer<CapsuleLeg> legs_;
  DeviceBuffer<ObstacleCounters> counters_;
  DeviceBuffer<CapsuleMeeting> meetings_;
  DeviceBuffer<uint32_t> shares_;
  DeviceBuffer<Float4> goal_;
  DeviceBuffer<float> kept_, spread_;
  std::vector<float> cut_m_;
  std::vector<Collider> colliders_host_;
  std::vector<CapsuleLeg> legs_host_;
  std::vector<CapsuleMeeting> meetings_host_;
  ObstacleCounters counters_host_{};
};

}  // namespace palpate::gpu
