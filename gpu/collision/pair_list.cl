#include "gpu/shared/prelude.h"
#include "gpu/shared/types.h"

/* Canonical order of a list of pairs: see pair_list.h. Given by the host: LONG_SEGMENT. */

/* Each pair to its segment, that of its first body. */
kernel void pair_scatter(uint count, global const UInt2* pairs, global const uint* ranks, global const uint* offsets, global UInt2* out) {
  const size_t i = get_global_id(0);
  if (i >= count) return;
  const UInt2 pair = pairs[i];
  out[offsets[pair.x] + ranks[i]] = pair;
}

/* Sorts the short segments by insertion. One work-item a body. */
kernel void pair_sort_segments(uint body_count, global const uint* partner_counts, global const uint* offsets, global UInt2* pairs) {
  const size_t body = get_global_id(0);
  if (body >= body_count) return;
  const uint size = partner_counts[body];
  if (size < 2u || size > LONG_SEGMENT) return;
  global UInt2* segment = pairs + offsets[body];
  for (uint i = 1; i < size; ++i) {
    const UInt2 pair = segment[i];
    uint place = i;
    for (; place > 0u && segment[place - 1u].y > pair.y; --place) segment[place] = segment[place - 1u];
    segment[place] = pair;
  }
}

/* is_long[i] = whether pair i is in a long segment. */
kernel void pair_find_long(uint count, global const UInt2* pairs, global const uint* partner_counts, global uint* is_long) {
  const size_t i = get_global_id(0);
  if (i >= count) return;
  is_long[i] = partner_counts[pairs[i].x] > LONG_SEGMENT;
}

/* Sort keys of the pairs at `places`: (a, b) with b in the lower `body_bits` bits. */
kernel void pair_long_keys(uint capacity, global const uint* count, global const uint* places, global const UInt2* pairs, uint body_bits,
                           global ulong* keys) {
  const size_t i = get_global_id(0);
  if (i >= min(capacity, count[0])) return;
  const UInt2 pair = pairs[places[i]];
  keys[i] = ((ulong)pair.x << body_bits) | pair.y;
}

/* Sorted keys back to their places: those rise, and segments lie in the order of their bodies. */
kernel void pair_store_long(uint capacity, global const uint* count, global const uint* places, global const ulong* keys, uint body_bits,
                            global UInt2* pairs) {
  const size_t i = get_global_id(0);
  if (i >= min(capacity, count[0])) return;
  const ulong key = keys[i];
  pairs[places[i]] = (UInt2)((uint)(key >> body_bits), (uint)(key & ((1ul << body_bits) - 1ul)));
}
