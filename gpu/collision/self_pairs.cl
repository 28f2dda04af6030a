#include "gpu/collision/box_hierarchy.clh"
#include "gpu/shared/collision_types.h"
#include "gpu/shared/types.h"

/* How far a list of the pairs within bodies still reaches: see self_pairs.h. */

/* As in proximity.cl: what is beyond it is refused there. */
#define MAX_COORDINATE_M 1e8f

/* The surface in parts: the clusters of a hierarchy, whose triangles are those of one body nearly always. Part c is the triangles of cluster
   c that are of the body of its first one; those of its last body, if that is another, are part cluster_count + body. Boxes [6][stride]:
   lower x, y, z, upper x, y, z of each part; those of a part without triangles overlap nothing. */
void store_box(global float* boxes, uint stride, uint part, float4 lower, float4 upper) {
  global float* own = boxes + part;
  own[0] = lower.x;
  own[stride] = lower.y;
  own[2 * stride] = lower.z;
  own[3 * stride] = upper.x;
  own[4 * stride] = upper.y;
  own[5 * stride] = upper.z;
}

/* Before self_boxes: empties the parts behind the clusters, and sets spreads to 0. Work-item: such a part. */
kernel void self_begin(uint cluster_count, uint stride, uint body_count, global uint* part_bodies, global float* boxes, global uint* spreads) {
  const uint i = (uint)get_global_id(0);
  const uint part = cluster_count + i;
  if (part >= stride) return;
  part_bodies[part] = i < body_count ? i : PALPATE_NO_GROUP;
  store_box(boxes, stride, part, (float4)(INFINITY), (float4)(-INFINITY));
  if (i < body_count) spreads[i] = 0u;
}

/* Boxes around the moves of the vertices of each part, or (from is null) around their places. What is no usable number may have moved by
   anything. A body that has a third part in a cluster has moved by anything too. Work-item: cluster. */
kernel void self_boxes(uint cluster_count, uint stride, global const uint* elements, global const uint4* triangles,
                       global const uint* groups, global const float4* from, global const float4* to, global uint* part_bodies,
                       global float* boxes, volatile global uint* spreads) {
  const uint cluster = (uint)get_global_id(0);
  if (cluster >= cluster_count) return;
  global const uint* own = elements + (size_t)cluster * NODE_WIDTH;
  uint count = 1;
  while (count < NODE_WIDTH && own[count] != NO_ELEMENT) ++count;
  const uint first = groups[own[0]] & PALPATE_GROUP_MASK;
  const uint last = groups[own[count - 1u]] & PALPATE_GROUP_MASK;
  const float4 limit = (float4)(MAX_COORDINATE_M);
  float4 lower[2], upper[2];
  for (uint side = 0; side < 2u; ++side) {
    lower[side] = (float4)(INFINITY);
    upper[side] = (float4)(-INFINITY);
  }
  for (uint i = 0; i < count; ++i) {
    const uint body = groups[own[i]] & PALPATE_GROUP_MASK;
    if (body != first && body != last) {
      atomic_max(spreads + body, as_uint(INFINITY));
      continue;
    }
    const uint side = body == first ? 0u : 1u;
    const uint4 t = triangles[own[i]];
    for (uint k = 0; k < 3u; ++k) {
      const uint v = k == 0u ? t.x : k == 1u ? t.y : t.z;
      const float4 p = (float4)(to[v].xyz, 0.0f);
      const int is_usable = all(fabs(p) <= limit);
      const float4 value = from ? p - (float4)(from[v].xyz, 0.0f) : p;
      lower[side] = is_usable ? fmin(lower[side], value) : (float4)(-INFINITY);
      upper[side] = is_usable ? fmax(upper[side], value) : (float4)(INFINITY);
    }
  }
  part_bodies[cluster] = first;
  store_box(boxes, stride, cluster, lower[0], upper[0]);
  if (last != first) store_box(boxes, stride, cluster_count + last, lower[1], upper[1]);
}

/* Of one part and each of 16 others, summed over the axes. */
typedef struct {
  float16 nearer_sq; /* of what two of their vertices may have come nearer */
  float16 gap_sq;    /* between their places */
  float16 far;       /* the largest move of a vertex, along an axis */
  float16 size;      /* of the larger part, along an axis */
} PartPairs;

PartPairs add_axis(PartPairs pairs, uint axis, uint part, uint begin, uint stride, global const float* moves, global const float* places) {
  const size_t lower = (size_t)axis * stride, upper = (size_t)(3u + axis) * stride;
  const float16 least = (float16)(moves[lower + part]), largest = (float16)(moves[upper + part]);
  const float16 other_least = vload16(0, moves + lower + begin), other_largest = vload16(0, moves + upper + begin);
  const float16 nearer = fmax(largest - other_least, other_largest - least);
  pairs.nearer_sq += nearer * nearer;
  pairs.far = fmax(pairs.far, fmax(fmax(fabs(least), fabs(largest)), fmax(fabs(other_least), fabs(other_largest))));
  const float16 low = (float16)(places[lower + part]), high = (float16)(places[upper + part]);
  const float16 other_low = vload16(0, places + lower + begin), other_high = vload16(0, places + upper + begin);
  const float16 gap = fmax((float16)(0.0f), fmax(low - other_high, other_low - high));
  pairs.gap_sq += gap * gap;
  pairs.size = fmax(pairs.size, fmax(high - low, other_high - other_low));
  return pairs;
}

/* Of each body the most, over pairs of its parts, that two vertices may have come nearer to each other [m], less what the parts were farther
   apart than list_range_m when their boxes `places` were made. With what rounding takes: of moves, relative to them; of distances then and
   now, relative to the size of the parts. Work-item: part. */
kernel void self_spreads(uint part_count, uint stride, global const uint* part_bodies, global const float* moves, global const float* places,
                         float list_range_m, volatile global uint* spreads) {
  const uint part = (uint)get_global_id(0);
  if (part >= part_count) return;
  const uint body = part_bodies[part];
  float16 most = (float16)(0.0f);
  for (uint begin = part / NODE_WIDTH * NODE_WIDTH; begin < stride; begin += NODE_WIDTH) {
    const int16 is_same = vload16(0, part_bodies + begin) == (uint16)(body);
    if (lane_bits(is_same) == 0u) continue;
    const float16 none = (float16)(0.0f);
    PartPairs pairs = {none, none, none, none};
    pairs = add_axis(pairs, 0u, part, begin, stride, moves, places);
    pairs = add_axis(pairs, 1u, part, begin, stride, moves, places);
    pairs = add_axis(pairs, 2u, part, begin, stride, moves, places);
    const float16 way = 1.00001f * sqrt(pairs.nearer_sq) + 1e-6f * pairs.far;
    const float16 spread = way + 1e-5f * (2.0f * pairs.size + way) - fmax(none, 0.99999f * sqrt(pairs.gap_sq) - list_range_m);
    /* Parts without triangles give what is no number, or nothing: their lower bounds are above the upper ones. */
    const int16 is_part = is_same & (vload16(0, moves + begin) <= vload16(0, moves + 3u * stride + begin));
    most = fmax(most, select(none, spread, is_part));
  }
  const float own = max_of_lanes(most);
  if (moves[part] <= moves[3u * stride + part] && own > 0.0f) atomic_max(spreads + body, as_uint(own));
}

/* Groups in which the bodies in use do not meet themselves. Work-item: triangle. */
kernel void self_groups(uint triangle_count, global const uint* groups, global const uint* used, global uint* changed) {
  const uint i = (uint)get_global_id(0);
  if (i >= triangle_count) return;
  const uint body = groups[i] & PALPATE_GROUP_MASK;
  changed[i] = used[body] != 0u ? body : groups[i];
}

/* Reaches of the search for a list; own_reaches, or null: half the range. Work-item: body. */
kernel void self_reaches(uint body_count, global const uint* used, global const float* own_reaches, float reach_m, float list_reach_m,
                         global float* reaches) {
  const uint body = (uint)get_global_id(0);
  if (body >= body_count) return;
  reaches[body] = used[body] != 0u ? list_reach_m : own_reaches ? own_reaches[body] : reach_m;
}

/* For views, which a queue would not copy. Work-item: vertex, and element of a cluster. */
kernel void self_keep(uint vertex_count, uint element_count, global const float4* positions, global const uint* elements,
                      global float4* kept_positions, global uint* kept_elements) {
  const uint i = (uint)get_global_id(0);
  if (i < vertex_count) kept_positions[i] = positions[i];
  if (i < element_count) kept_elements[i] = elements[i];
}
