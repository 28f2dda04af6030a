#include "gpu/collision/box_hierarchy.clh"

/* Appends the element pairs of each cluster pair; found[0] counts them, also those past the capacity. */
kernel void box_pairs_probe(global const UInt2* cluster_pairs, uint pair_count, global const float* a_nodes, global const uint* a_groups,
                            global const uint* a_elements, global const float* b_nodes, global const uint* b_groups,
                            global const uint* b_elements, int is_within, uint capacity, global UInt2* pairs, volatile global uint* found) {
  const uint i = (uint)get_global_id(0);
  if (i >= pair_count) return;
  const uint p = cluster_pairs[i].x;
  const uint q = cluster_pairs[i].y;
  const LaneBoxes lanes = load_lane_boxes(b_nodes, q);
  for (uint row = 0; row < NODE_WIDTH; ++row) {
    uint mask = partners_of_row(&lanes, a_nodes, a_groups, p, row, b_groups, q, is_within && p == q, (global const uint*)0);
    for (; mask != 0u; mask &= mask - 1u) {
      const uint slot = atomic_inc(found);
      if (slot < capacity) pairs[slot] = (UInt2)(a_elements[p * NODE_WIDTH + row], b_elements[q * NODE_WIDTH + lowest_lane(mask)]);
    }
  }
}
