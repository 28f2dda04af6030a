#pragma once

#include <cstdint>

#include "gpu/base/status.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/dynamics_types.h"

namespace palpate::gpu {

/// How far bodies that move as wholes went in this step: at least the length of the way of each of their vertices by the moves that the
/// sweeps made, and back where a filter took them; infinite after RollBack.
struct FollowedWays {
  BufferView<uint32_t> movers;  ///< [slot] which of way_m; 0 for vertices that are not followed
  BufferView<float> way_m;      ///< [0] infinite
};

/// Something whose vertices move together (rigid bodies, NURBS shells), told by SurfaceContacts and ObstacleBarrier what happens to the
/// positions x, so that it can keep them together. Calls enqueue only.
class SurfaceFollower {
 public:
  virtual ~SurfaceFollower() = default;

  /// Whether the vertex in this slot is of a body that moves as one piece.
  virtual bool MovesAsWhole(uint32_t slot) const = 0;

  /// Whether it is of a body whose surface no edit changes.
  virtual bool IsNeverCut(uint32_t /*slot*/) const { return false; }

  /// Whether its vertices take pairs with each other as they were at the start of the sweep, like tissue's of one colour.
  virtual bool ReadsSweepStart() const { return false; }

  virtual FollowedWays ways() const = 0;

  /// Near pairs are detected at the current positions: moves are counted from here.
  virtual absl::Status Detected(Queue& queue) = 0;

  /// The current positions are goals that a filter is about to take back.
  virtual absl::Status FilterBegins(Queue& queue) = 0;

  /// The filter leaves vertex v the share shares[v] of its way from the detection, or from the start of the step, to its goal. The follower
  /// moves all vertices that move together by the least of their shares, which it writes back, and marks them in `touched`.
  virtual absl::Status TakeBack(Queue& queue, bool from_start, const DeviceBuffer<float>& shares,
                                const DeviceBuffer<uint32_t>& entry_begins, const DeviceBuffer<Float4>& x,
                                const DeviceBuffer<uint8_t>& touched) = 0;
  /// The same from the start of the step, where surfaces need not meet.
  virtual absl::Status TakeBackFromStart(Queue& queue, const DeviceBuffer<float>& shares, const DeviceBuffer<Float4>& x,
                                         const DeviceBuffer<uint8_t>& touched) = 0;

  /// All vertices are back at the start of the step.
  virtual absl::Status RollBack(Queue& queue) = 0;

  /// Takes moves since the detection back to where the planes of all vertices (displacement_bounds.clh) and the reaches of their bodies
  /// (SurfaceReach) allow. `vertex_groups`: of DeviceSurface. `clear_m`: how far each vertex may go whichever way before one of its planes
  /// matters.
  virtual absl::Status Bound(Queue& queue, const DeviceBuffer<uint32_t>& vertex_groups, const DeviceBuffer<float>& reaches,
                             const DeviceBuffer<Float4>& detected, const DeviceBuffer<float>& clear_m,
                             const DeviceBuffer<uint32_t>& entry_begins, const DeviceBuffer<Float4>& bounds, const DeviceBuffer<Float4>& x,
                             const DeviceBuffer<uint8_t>& touched) = 0;
};

}  // namespace palpate::gpu
