#include "gpu/collision/volume_tile.clh"
#include "gpu/shared/box.h"
#include "gpu/shared/kdop.h"

/* Boxes around the volumes, for the hierarchy, and the smallest body with an invalid volume. */
kernel void volume_boxes(uint count, global const float* volumes, global Box* boxes, volatile global PairCounters* counters) {
  const size_t body = get_global_id(0);
  if (body >= count) return;
  global const float* volume = volumes + body * VOLUME_FLOATS;
  boxes[body].lower = (float4)(sweep_lower(volume, 0), sweep_lower(volume, 1), sweep_lower(volume, 2), 0.0f);
  boxes[body].upper = (float4)(sweep_upper(volume, 0), sweep_upper(volume, 1), sweep_upper(volume, 2), 0.0f);
  if (is_bad_volume(volume)) atomic_min(&counters->bad_body, (uint)body);
}

/* Volumes in the order of the hierarchy's clusters. One work-item a cluster. */
kernel void cluster_volumes(uint cluster_count, global const uint* bodies, global const float* volumes, global float* clusters) {
  const size_t cluster = get_global_id(0);
  if (cluster >= cluster_count) return;
  for (uint lane = 0; lane < NODE_WIDTH; ++lane) {
    store_lane(clusters + cluster * CLUSTER_FLOATS, lane, volumes, bodies[cluster * NODE_WIDTH + lane]);
  }
}

/* Tests the tiles of a list of cluster pairs, the same number in each work-item. Rows whose box misses the other cluster are left out. */
kernel void cluster_tiles(uint tile_count, global const UInt2* tiles, global const float* nodes, uint level_1, global const float* volumes,
                          global const uint* bodies, global const uint* filters, volatile global PairCounters* counters, uint capacity,
                          global uint* first, global uint* second) {
  const ulong items = get_global_size(0);
  const uint begin = (uint)(get_global_id(0) * (ulong)tile_count / items);
  const uint end = (uint)((get_global_id(0) + 1) * (ulong)tile_count / items);
  if (begin >= end) return;
  const Clusters clusters = {volumes, bodies, filters};
  const PairSink sink = {counters, capacity, first, second};
  PairStage stage;
  stage.size = 0;
  for (uint t = begin; t < end; ++t) {
    const UInt2 tile = tiles[t];
    const LaneBoxes lanes = load_lane_boxes(nodes, tile.x);
    const uint node = level_1 + tile.y / NODE_WIDTH;
    const uint lane = tile.y % NODE_WIDTH;
    const uint rows = lanes_overlapping(&lanes, lane_lower(nodes, node, lane), lane_upper(nodes, node, lane));
    if (rows != 0u) test_tile(&clusters, &stage, &sink, tile.x, tile.y, rows);
  }
  flush_pairs(&stage, &sink);
}
