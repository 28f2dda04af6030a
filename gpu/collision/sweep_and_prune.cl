#include "gpu/collision/volume_tile.clh"
#include "gpu/shared/kdop.h"

/* Sort keys of the sweep, and the smallest body with an invalid volume. */
kernel void sweep_keys(uint count, global const float* volumes, uint axis, global float* keys, volatile global PairCounters* counters) {
  const size_t body = get_global_id(0);
  if (body >= count) return;
  global const float* volume = volumes + body * VOLUME_FLOATS;
  keys[body] = sweep_lower(volume, axis);
  if (is_bad_volume(volume)) atomic_min(&counters->bad_body, (uint)body);
}

/* Volumes in sorted order, 16 to a cluster; `ends`: where each interval on the sweep axis ends. One work-item a cluster. */
kernel void sweep_clusters(uint count, uint cluster_count, global const float* volumes, uint axis, global const uint* order,
                           global float* clusters, global uint* bodies, global float* ends) {
  const size_t cluster = get_global_id(0);
  if (cluster >= cluster_count) return;
  for (uint lane = 0; lane < NODE_WIDTH; ++lane) {
    const size_t slot = cluster * NODE_WIDTH + lane;
    const uint body = slot < count ? order[slot] : NO_ELEMENT;
    store_lane(clusters + cluster * CLUSTER_FLOATS, lane, volumes, body);
    bodies[slot] = body;
    ends[slot] = body == NO_ELEMENT ? -INFINITY : sweep_upper(volumes + (size_t)body * VOLUME_FLOATS, axis);
  }
}

/* Cluster p meets the clusters from p to tile_ends[p] - 1: those that begin before its longest interval ends. unit_counts: tiles in units
   of `unit_tiles`. One work-item a cluster. */
kernel void sweep_tile_counts(uint cluster_count, global const float* sorted_keys, global const float* ends, uint unit_tiles,
                              global uint* tile_ends, global uint* unit_counts) {
  const size_t p = get_global_id(0);
  if (p >= cluster_count) return;
  float end = -INFINITY;
  for (uint lane = 0; lane < NODE_WIDTH; ++lane) end = fmax(end, ends[p * NODE_WIDTH + lane]);
  uint low = (uint)p + 1u;
  uint high = cluster_count;
  while (low < high) {
    const uint middle = low + (high - low) / 2u;
    if (sorted_keys[(size_t)middle * NODE_WIDTH] <= end) {
      low = middle + 1u;
    } else {
      high = middle;
    }
  }
  tile_ends[p] = low;
  unit_counts[p] = (low - (uint)p + unit_tiles - 1u) / unit_tiles;
}

/* Tests all tiles; each work-item takes the same number of units, wherever they are, so that no long interval holds up the rest. */
kernel void sweep_tiles(uint cluster_count, uint unit_tiles, global const uint* unit_total, global const uint* unit_offsets,
                        global const uint* tile_ends, global const float* sorted_keys, global const float* ends,
                        global const float* volumes, global const uint* bodies, global const uint* filters,
                        volatile global PairCounters* counters, uint capacity, global uint* first, global uint* second) {
  const ulong total = unit_total[0];
  const ulong items = get_global_size(0);
  const uint begin = (uint)(get_global_id(0) * total / items);
  const uint end = (uint)((get_global_id(0) + 1) * total / items);
  if (begin >= end) return;
  const Clusters clusters = {volumes, bodies, filters};
  const PairSink sink = {counters, capacity, first, second};
  PairStage stage;
  stage.size = 0;

  /* The last cluster whose units begin at or before `begin`; each has at least one. */
  uint p = 0;
  uint high = cluster_count;
  while (high - p > 1u) {
    const uint middle = p + (high - p) / 2u;
    if (unit_offsets[middle] <= begin) {
      p = middle;
    } else {
      high = middle;
    }
  }
  float16 row_ends = vload16(p, ends);
  for (uint unit = begin; unit < end; ++unit) {
    if (p + 1u < cluster_count && unit_offsets[p + 1u] <= unit) {
      ++p;
      row_ends = vload16(p, ends);
    }
    uint q = p + (unit - unit_offsets[p]) * unit_tiles;
    const uint q_end = min(q + unit_tiles, tile_ends[p]);
    for (; q < q_end; ++q) {
      const uint rows = lane_bits(row_ends >= (float16)(sorted_keys[(size_t)q * NODE_WIDTH]));
      if (rows != 0u) test_tile(&clusters, &stage, &sink, p, q, rows);
    }
  }
  flush_pairs(&stage, &sink);
}
