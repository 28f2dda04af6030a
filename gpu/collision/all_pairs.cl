#include "gpu/collision/volume_tile.clh"
#include "gpu/primitives/radix_sort.clh"
#include "gpu/shared/kdop.h"

/* Pairs of few bodies, in their order, by one group: see all_pairs.h. */

#define WORD_BITS 32u

/* The work-items of the group take turns; a lone one takes all. */
#define FOR_EACH(i, count) for (uint i = (uint)get_local_id(0); i < (count); i += GROUP_SIZE)

/* That of the first three axes along which the middles of the volumes spread the most. */
uint widest_axis(uint count, global const float* volumes, local float (*lowest)[GROUP_SIZE], local float (*highest)[GROUP_SIZE]) {
  const uint item = (uint)get_local_id(0);
  for (uint k = 0; k < 3u; ++k) {
    float low = INFINITY;
    float high = -INFINITY;
    FOR_EACH(body, count) {
      global const float* volume = volumes + (size_t)body * VOLUME_FLOATS;
      const float middle = 0.5f * sweep_lower(volume, k) + 0.5f * sweep_upper(volume, k);
      low = fmin(low, middle); /* drops NaNs */
      high = fmax(high, middle);
    }
    lowest[k][item] = low;
    highest[k][item] = high;
  }
  GROUP_BARRIER();
  uint widest = 0;
  float spread = -INFINITY;
  for (uint k = 0; k < 3u; ++k) {
    float low = lowest[k][0];
    float high = highest[k][0];
    for (uint i = 1; i < GROUP_SIZE; ++i) {
      low = fmin(low, lowest[k][i]);
      high = fmax(high, highest[k][i]);
    }
    if (high - low > spread) {
      spread = high - low;
      widest = k;
    }
  }
  return widest;
}

/* Sets the bits of the pairs of the body in `row` of cluster p with those behind it in the sorted order that begin before its interval
   ends, [body][words], each at the smaller body; returns how many clusters were compared. */
uint mark_overlaps(uint p, uint row, uint cluster_count, uint words, global const float* sorted_keys, float end,
                   global const float* clusters, global const uint* bodies, global const uint* filters, volatile global uint* overlaps) {
  global const float* a = clusters + (size_t)p * CLUSTER_FLOATS;
  const uint body = bodies[p * NODE_WIDTH + row];
  uint q = p;
  for (; q < cluster_count && sorted_keys[(size_t)q * NODE_WIDTH] <= end; ++q) {
    global const float* b = clusters + (size_t)q * CLUSTER_FLOATS;
    uint lanes = lane_bits(lanes_overlapping_row(a, row, b));
    if (p == q) lanes &= (ALL_LANES << 1u) << row;
    for (; lanes != 0u; lanes &= lanes - 1u) {
      const uint lane = lowest_lane(lanes);
      const uint other = bodies[q * NODE_WIDTH + lane];
      if (filters && !may_pair(filters[body], filters[other])) continue;
      if (!overlap_after_all(a, row, body, b, lane, other)) continue;
      const uint second = max(body, other);
      atomic_or(overlaps + (size_t)min(body, other) * words + second / WORD_BITS, 1u << (second % WORD_BITS));
    }
  }
  return q - p;
}

/* Volumes in sorted order, 16 to a cluster, and their bodies, where past the last there is none; clears a row of `overlaps`. */
void place_body(uint slot, uint count, uint words, global const float* volumes, uint axis, global const uint* order, global float* clusters,
                global uint* bodies, global float* ends, global uint* overlaps, volatile global PairCounters* counters) {
  const uint body = slot < count ? order[slot] : NO_ELEMENT;
  store_lane(clusters + (size_t)(slot / NODE_WIDTH) * CLUSTER_FLOATS, slot % NODE_WIDTH, volumes, body);
  bodies[slot] = body;
  ends[slot] = body == NO_ELEMENT ? -INFINITY : sweep_upper(volumes + (size_t)body * VOLUME_FLOATS, axis);
  if (body != NO_ELEMENT && is_bad_volume(volumes + (size_t)body * VOLUME_FLOATS)) atomic_min(&counters->bad_body, body);
  for (uint word = 0; word < words; ++word) overlaps[(size_t)slot * words + word] = 0u;
}

/* One group. keys, keys_scratch, order_scratch, sorted_keys, order: [count]; clusters, bodies, ends: [slots], whole clusters; overlaps:
   [slots][words]; places: [slots]. Counts past the capacity. */
GROUP_KERNEL void all_pairs(uint count, uint cluster_count, uint words, global const float* volumes, global const uint* filters,
                            global uint* keys, global uint* keys_scratch, global uint* order_scratch, global uint* sorted_keys,
                            global uint* order, global float* clusters, global uint* bodies, global float* ends, global uint* overlaps,
                            global uint* places, uint capacity, global UInt2* pairs, volatile global PairCounters* counters) {
  local uint next[DIGITS];
  local uint members[MEMBER_WORDS];
  local float lowest[3][GROUP_SIZE];
  local float highest[3][GROUP_SIZE];
  const uint axis = widest_axis(count, volumes, lowest, highest);
  FOR_EACH(body, count) keys[body] = as_uint(sweep_lower(volumes + (size_t)body * VOLUME_FLOATS, axis));
  GROUP_BARRIER_ALL();
  sort_by_group(count, keys, order_scratch, 1u, 0u, 32u, keys_scratch, order_scratch, sorted_keys, order, next, members);
  const uint slots = cluster_count * NODE_WIDTH;
  FOR_EACH(slot, slots) place_body(slot, count, words, volumes, axis, order, clusters, bodies, ends, overlaps, counters);
  GROUP_BARRIER_ALL();
  uint tiles = 0;
  FOR_EACH(slot, slots) {
    tiles += mark_overlaps(slot / NODE_WIDTH, slot % NODE_WIDTH, cluster_count, words, (global const float*)sorted_keys, ends[slot],
                           clusters, bodies, filters, overlaps);
  }
  if (tiles != 0u) atomic_add(&counters->row_tiles, tiles);
  GROUP_BARRIER_ALL();
  FOR_EACH(body, slots) {
    uint found = 0;
    for (uint word = body / WORD_BITS; word < words; ++word) found += popcount(overlaps[(size_t)body * words + word]);
    places[body] = found;
  }
  GROUP_BARRIER_ALL();
  if (get_local_id(0) == 0) {
    uint before = 0;
    for (uint body = 0; body < slots; ++body) {
      const uint own = places[body];
      places[body] = before;
      before += own;
    }
    counters->pair_count = before;
  }
  GROUP_BARRIER_ALL();
  FOR_EACH(body, count) {
    uint place = places[body];
    for (uint word = body / WORD_BITS; word < words; ++word) {
      for (uint rest = overlaps[(size_t)body * words + word]; rest != 0u; rest &= rest - 1u) {
        if (place < capacity) pairs[place] = (UInt2)(body, word * WORD_BITS + lowest_lane(rest));
        ++place;
      }
    }
  }
}
