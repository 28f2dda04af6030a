#include "gpu/collision/volume_tile.clh"
#include "gpu/shared/kdop.h"

/* All pairs of few bodies, in their order: see all_pairs.h. */

/* Volumes in the order of the bodies, 16 to a cluster, and the smallest body with an invalid one. One work-item a cluster. */
kernel void all_pairs_clusters(uint count, uint cluster_count, global const float* volumes, global float* clusters,
                               volatile global PairCounters* counters) {
  const uint cluster = (uint)get_global_id(0);
  if (cluster >= cluster_count) return;
  for (uint lane = 0; lane < NODE_WIDTH; ++lane) {
    const uint body = cluster * NODE_WIDTH + lane;
    store_lane(clusters + (size_t)cluster * CLUSTER_FLOATS, lane, volumes, body < count ? body : NO_ELEMENT);
    if (body < count && is_bad_volume(volumes + (size_t)body * VOLUME_FLOATS)) atomic_min(&counters->bad_body, body);
  }
}

/* masks[body][cluster]: the bodies of a cluster that overlap it, of those behind it; counts[cluster]: how many pairs its bodies have. One
   work-item a cluster. */
kernel void all_pairs_masks(uint cluster_count, global const float* clusters, global const uint* filters, global ushort* masks,
                            global uint* counts) {
  const uint p = (uint)get_global_id(0);
  if (p >= cluster_count) return;
  global const float* a = clusters + (size_t)p * CLUSTER_FLOATS;
  uint found = 0;
  for (uint row = 0; row < NODE_WIDTH; ++row) {
    const uint body = p * NODE_WIDTH + row;
    for (uint q = p; q < cluster_count; ++q) {
      global const float* b = clusters + (size_t)q * CLUSTER_FLOATS;
      uint mask = lane_bits(lanes_overlapping_row(a, row, b));
      if (p == q) mask &= (ALL_LANES << 1u) << row;
      for (uint rest = mask; rest != 0u; rest &= rest - 1u) {
        const uint lane = lowest_lane(rest);
        const uint other = q * NODE_WIDTH + lane;
        const int is_pair = (!filters || may_pair(filters[body], filters[other])) && overlap_after_all(a, row, body, b, lane, other);
        if (!is_pair) mask &= ~(1u << lane);
      }
      masks[(size_t)body * cluster_count + q] = (ushort)mask;
      found += popcount(mask);
    }
  }
  counts[p] = found;
}

/* The pairs of each cluster behind those of the clusters before it. One work-item a cluster. */
kernel void all_pairs_write(uint cluster_count, global const ushort* masks, global const uint* counts, uint capacity, global UInt2* pairs,
                            volatile global PairCounters* counters) {
  const uint p = (uint)get_global_id(0);
  if (p >= cluster_count) return;
  uint place = 0;
  for (uint before = 0; before < p; ++before) place += counts[before];
  if (p + 1u == cluster_count) counters->pair_count = place + counts[p];
  for (uint row = 0; row < NODE_WIDTH; ++row) {
    const uint body = p * NODE_WIDTH + row;
    for (uint q = p; q < cluster_count; ++q) {
      for (uint rest = masks[(size_t)body * cluster_count + q]; rest != 0u; rest &= rest - 1u) {
        if (place < capacity) pairs[place] = (UInt2)(body, q * NODE_WIDTH + lowest_lane(rest));
        ++place;
      }
    }
  }
}
