#pragma once

#include <cstdint>

#include "gpu/base/status.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/context.h"
#include "gpu/runtime/queue.h"

namespace palpate::gpu {

/// Shape of the launches of a primitive: its input is cut into one contiguous chunk per work-group (see group.clh). Results of integer
/// primitives do not depend on it; floating-point sums do (the order of additions changes), and are the same from run to run for one shape.
struct PrimitiveConfig {
  uint32_t group_size = 1;    ///< work-items of a work-group; a power of two, 1 on CPUs
  uint32_t max_groups = 1;    ///< work-groups of a launch, at most kMaxGroups
  uint32_t min_chunk = 1024;  ///< elements a work-group must have to be worth its launch

  static constexpr uint32_t kMaxGroups = 1024;

  /// GPU: 256 work-items and up to 8 groups a compute unit. Otherwise: one work-item a group and 4 groups a core, so that one slow core
  /// does not hold up the others.
  static PrimitiveConfig For(const DeviceInfo& device);

  /// InvalidArgument naming the field out of range.
  absl::Status Validate() const;

  uint32_t GroupsFor(uint32_t count) const;
  Range RangeFor(uint32_t count) const { return {size_t{GroupsFor(count)} * group_size, group_size}; }

  /// -D macros of group.clh for tiles with `items` elements a work-item.
  ProgramDefines Defines(uint32_t items) const;
};

/// How many elements a primitive works on: `capacity`, or fewer if an earlier kernel left a smaller number in `on_device[0]`. Launches are
/// sized by `capacity`, so no host round trip is needed.
struct ItemCount {
  ItemCount(uint32_t capacity_in) : capacity(capacity_in) {}  // NOLINT: a number is passed wherever a count is wanted
  ItemCount(uint32_t capacity_in, BufferView<uint32_t> on_device_in) : capacity(capacity_in), on_device(on_device_in) {}
  uint32_t capacity;
  BufferView<uint32_t> on_device = {};
};

/// Largest capacity of a primitive.
inline constexpr uint32_t kMaxItems = 1U << 31;

/// InvalidArgument naming primitive and buffer if a buffer of `available` elements is smaller than `needed`.
absl::Status CheckCapacity(const char* primitive, const char* buffer, size_t available, size_t needed);

}  // namespace palpate::gpu
