#include "gpu/collision/box_hierarchy.clh"
#include "gpu/shared/box.h"
#include "gpu/shared/collision_types.h"
#include "gpu/shared/float_key.h"

/* Build of a packed tree of boxes along a Hilbert curve, and its cluster pairs: see box_hierarchy.h. */

/* The part of space that is ordered by one curve: cell = (centre - origin) * cells_per_m. */
#define Frame float4 /* origin x, y, z [m], cells per metre */

float4 centre_of(Box box) { return 0.5f * box.lower + 0.5f * box.upper; }

/* Not so for a box with a NaN and for an infinite or empty one; those go to cell 0. */
int has_finite_centre(float4 centre) { return isfinite(centre.x) && isfinite(centre.y) && isfinite(centre.z); }

/* Which curve an element is on: that of its body, or the only one. */
uint curve_of(global const uint* groups, uint element, int is_by_body) { return is_by_body ? groups[element] & PALPATE_GROUP_MASK : 0u; }

uint key_of(float x) { return FloatBitsToKey(as_uint(x)); }

/* Lowers the six bounds of one curve: keys of the lower corner, complements of the keys of the upper, so that all are minima. Minima of
   integers do not depend on the order of the atomic operations. */
void merge_bounds(volatile global uint* bounds, uint curve, float4 lower, float4 upper) {
  if (!(lower.x <= upper.x)) return;
  volatile global uint* b = bounds + (size_t)curve * 6;
  atomic_min(b + 0, key_of(lower.x));
  atomic_min(b + 1, key_of(lower.y));
  atomic_min(b + 2, key_of(lower.z));
  atomic_min(b + 3, ~key_of(upper.x));
  atomic_min(b + 4, ~key_of(upper.y));
  atomic_min(b + 5, ~key_of(upper.z));
}

/* Bounds of the centres on each curve; bounds[] is all ones before. Each work-item takes `run_length` elements in a row. */
kernel void hierarchy_bounds(global const Box* boxes, global const uint* groups, int is_by_body, uint count, uint run_length,
                             volatile global uint* bounds) {
  const size_t begin = get_global_id(0) * run_length;
  const size_t end = min(begin + run_length, (size_t)count);
  const float4 inf = (float4)(INFINITY);
  float4 lower = inf;
  float4 upper = -inf;
  uint current = 0;
  for (size_t i = begin; i < end; ++i) {
    const uint curve = curve_of(groups, (uint)i, is_by_body);
    if (curve != current) {
      merge_bounds(bounds, current, lower, upper);
      lower = inf;
      upper = -inf;
      current = curve;
    }
    const float4 centre = centre_of(boxes[i]);
    if (!has_finite_centre(centre)) continue;
    lower = fmin(lower, centre);
    upper = fmax(upper, centre);
  }
  merge_bounds(bounds, current, lower, upper);
}

/* One work-item a curve. */
kernel void hierarchy_frames(global const uint* bounds, uint curve_count, uint bits_per_axis, global Frame* frames) {
  const uint curve = (uint)get_global_id(0);
  if (curve >= curve_count) return;
  global const uint* b = bounds + (size_t)curve * 6;
  const float4 lower = (float4)(as_float(KeyToFloatBits(b[0])), as_float(KeyToFloatBits(b[1])), as_float(KeyToFloatBits(b[2])), 0.0f);
  const float4 upper = (float4)(as_float(KeyToFloatBits(~b[3])), as_float(KeyToFloatBits(~b[4])), as_float(KeyToFloatBits(~b[5])), 0.0f);
  const float4 extent = upper - lower;
  const float widest = fmax(extent.x, fmax(extent.y, extent.z));
  /* A curve without elements has NaN bounds, one at a single point has width 0: all in cell 0. */
  float cells_per_m = (float)(1u << bits_per_axis) / widest;
  if (!(widest > 0.0f) || !isfinite(cells_per_m)) cells_per_m = 0.0f;
  frames[curve] = (float4)(lower.xyz, cells_per_m);
}

/* Index along the Hilbert curve of cells (x, y, z) of `bits` bits each, 16 at a time. After Skilling, "Programming the Hilbert curve",
   2004: undo the rotations of the lower bits, Gray-encode, interleave. */
uint16 hilbert_index(uint16 x, uint16 y, uint16 z, uint bits) {
  for (uint bit = 1u << (bits - 1u); bit > 1u; bit >>= 1u) {
    const uint16 low = (uint16)(bit - 1u);
    /* All ones where the bit of the axis is set. */
    const uint16 sx = as_uint16((x & bit) != (uint16)(0u));
    x ^= low & sx; /* the x axis never swaps with itself */
    const uint16 sy = as_uint16((y & bit) != (uint16)(0u));
    const uint16 ty = (x ^ y) & low & ~sy;
    x ^= (low & sy) | ty;
    y ^= ty;
    const uint16 sz = as_uint16((z & bit) != (uint16)(0u));
    const uint16 tz = (x ^ z) & low & ~sz;
    x ^= (low & sz) | tz;
    z ^= tz;
  }
  y ^= x;
  z ^= y;
  uint16 flip = (uint16)(0u);
  for (uint bit = 1u << (bits - 1u); bit > 1u; bit >>= 1u) flip ^= (uint16)(bit - 1u) & as_uint16((z & bit) != (uint16)(0u));
  x ^= flip;
  y ^= flip;
  z ^= flip;
  uint16 index = (uint16)(0u);
  for (uint shift = bits; shift-- > 0u;) {
    index = (index << 3u) | (((x >> shift) & 1u) << 2u) | (((y >> shift) & 1u) << 1u) | ((z >> shift) & 1u);
  }
  return index;
}

/* Sort keys: curve, then place along it. One work-item takes 16 elements. */
kernel void hierarchy_keys(global const Box* boxes, global const uint* groups, int is_by_body, uint count, uint bits_per_axis,
                           global const Frame* frames, global uint* keys) {
  const size_t begin = get_global_id(0) * NODE_WIDTH;
  if (begin >= count) return;
  const uint size = (uint)min((size_t)NODE_WIDTH, count - begin);
  const float last_cell = (float)((1u << bits_per_axis) - 1u);
  float x[NODE_WIDTH], y[NODE_WIDTH], z[NODE_WIDTH];
  uint curves[NODE_WIDTH];
  for (uint k = 0; k < NODE_WIDTH; ++k) {
    const uint element = (uint)begin + min(k, size - 1u);
    const float4 centre = centre_of(boxes[element]);
    /* What has no place may have no body either. */
    const uint curve = has_finite_centre(centre) ? curve_of(groups, element, is_by_body) : 0u;
    const Frame frame = frames[curve];
    const float4 cell = has_finite_centre(centre) ? (centre - frame) * frame.w : (float4)(0.0f);
    x[k] = cell.x;
    y[k] = cell.y;
    z[k] = cell.z;
    curves[k] = curve;
  }
  /* fmax and fmin drop the NaN of an overflowing difference. */
  const uint16 cell_x = convert_uint16(fmin(fmax(vload16(0, x), 0.0f), last_cell));
  const uint16 cell_y = convert_uint16(fmin(fmax(vload16(0, y), 0.0f), last_cell));
  const uint16 cell_z = convert_uint16(fmin(fmax(vload16(0, z), 0.0f), last_cell));
  const uint16 key = hilbert_index(cell_x, cell_y, cell_z, bits_per_axis);
  uint place[NODE_WIDTH];
  vstore16(key, 0, place);
  for (uint k = 0; k < size; ++k) keys[begin + k] = is_by_body ? (curves[k] << (3u * bits_per_axis)) | place[k] : place[k];
}

/* Level 0: the boxes, groups and numbers of each run of 16 sorted elements. One work-item a cluster. */
kernel void hierarchy_clusters(global const Box* boxes, global const uint* groups, uint count, global const uint* order, uint cluster_count,
                               global float* nodes, global uint* node_groups, global uint* elements) {
  const uint cluster = (uint)get_global_id(0);
  if (cluster >= cluster_count) return;
  global float* node = nodes + (size_t)cluster * NODE_FLOATS;
  for (uint lane = 0; lane < NODE_WIDTH; ++lane) {
    const uint slot = cluster * NODE_WIDTH + lane;
    const uint element = slot < count ? order[slot] : NO_ELEMENT;
    /* An empty lane: a box that overlaps nothing, not even an infinite one, and a range of groups that changes no minimum or maximum. */
    Box box = {(Float4)(NAN), (Float4)(NAN)};
    uint smallest = 0xffffffffu;
    uint largest = 0u;
    if (element != NO_ELEMENT) {
      box = boxes[element];
      smallest = largest = groups ? groups[element] : PALPATE_GROUP_SELF;
    }
    node[lane] = box.lower.x;
    node[lane + NODE_WIDTH] = box.lower.y;
    node[lane + 2 * NODE_WIDTH] = box.lower.z;
    node[lane + 3 * NODE_WIDTH] = box.upper.x;
    node[lane + 4 * NODE_WIDTH] = box.upper.y;
    node[lane + 5 * NODE_WIDTH] = box.upper.z;
    node_groups[(size_t)cluster * NODE_GROUPS + lane] = smallest;
    node_groups[(size_t)cluster * NODE_GROUPS + NODE_WIDTH + lane] = largest;
    elements[slot] = element;
  }
}

uint smallest_of_lanes(uint16 v) {
  const uint8 by_8 = min(v.lo, v.hi);
  const uint4 by_4 = min(by_8.lo, by_8.hi);
  const uint2 by_2 = min(by_4.lo, by_4.hi);
  return min(by_2.x, by_2.y);
}
uint largest_of_lanes(uint16 v) { return ~smallest_of_lanes(~v); }

/* Nodes of one level from those of the level below. One work-item a lane. NaN bounds are ignored (fmin, fmax): they overlap nothing. */
kernel void hierarchy_level(uint child_begin, uint child_count, uint begin, uint count, global float* nodes, global uint* node_groups) {
  const uint slot = (uint)get_global_id(0);
  if (slot >= count * NODE_WIDTH) return;
  const size_t node = begin + slot / NODE_WIDTH;
  const uint lane = slot % NODE_WIDTH;
  const float16 nothing = (float16)(NAN);
  LaneBoxes lanes = {nothing, nothing, nothing, nothing, nothing, nothing};
  uint smallest = 0xffffffffu;
  uint largest = 0u;
  if (slot < child_count) {
    const uint child = child_begin + slot;
    lanes = load_lane_boxes(nodes, child);
    smallest = smallest_of_lanes(vload16(0, node_groups + (size_t)child * NODE_GROUPS));
    largest = largest_of_lanes(vload16(1, node_groups + (size_t)child * NODE_GROUPS));
  }
  global float* box = nodes + node * NODE_FLOATS + lane;
  box[0] = min_of_lanes(lanes.lower_x);
  box[NODE_WIDTH] = min_of_lanes(lanes.lower_y);
  box[2 * NODE_WIDTH] = min_of_lanes(lanes.lower_z);
  box[3 * NODE_WIDTH] = max_of_lanes(lanes.upper_x);
  box[4 * NODE_WIDTH] = max_of_lanes(lanes.upper_y);
  box[5 * NODE_WIDTH] = max_of_lanes(lanes.upper_z);
  global uint* range = node_groups + node * NODE_GROUPS + lane;
  range[0] = smallest;
  range[NODE_WIDTH] = largest;
}

/* Visits the clusters of b that cluster p of a meets, in rising order; `is_within`: b is a, and only clusters from p on. Writes those
   with number [0, capacity) of the visit to `out`. Returns how many there are. */
uint visit_clusters(global const float* a_nodes, global const uint* a_groups, uint a_level_1, uint p, global const float* b_nodes,
                    global const uint* b_groups, uint8 b_begins, uint b_top, int is_within, global UInt2* out, uint capacity) {
  const uint own_node = a_level_1 + p / NODE_WIDTH;
  const uint own_lane = p % NODE_WIDTH;
  const float4 lower = lane_lower(a_nodes, own_node, own_lane);
  const float4 upper = lane_upper(a_nodes, own_node, own_lane);
  const uint2 groups = lane_group_range(a_groups, own_node, own_lane);
  uint begins[8];
  vstore8(b_begins, 0, begins);
  uint masks[8];
  uint found = 0;
  uint level = b_top;
  uint node = 0; /* within its level */
  int is_new = 1;
  while (level <= b_top) {
    if (is_new) {
      const LaneBoxes lanes = load_lane_boxes(b_nodes, begins[level] + node);
      uint mask = lanes_overlapping(&lanes, lower, upper);
      if (mask != 0u) mask &= lanes_with_partner(b_groups, begins[level] + node, groups);
      if (is_within) {
        const uint first = p >> (4u * (level - 1u)); /* ancestor of p among the children of this level */
        if (first / NODE_WIDTH == node) mask &= ALL_LANES << (first % NODE_WIDTH);
      }
      masks[level] = mask;
      is_new = 0;
    }
    const uint mask = masks[level];
    if (mask == 0u) {
      ++level;
      node /= NODE_WIDTH;
      continue;
    }
    masks[level] = mask & (mask - 1u);
    const uint child = node * NODE_WIDTH + lowest_lane(mask);
    if (level > 1u) {
      --level;
      node = child;
      is_new = 1;
      continue;
    }
    if (found < capacity) out[found] = (UInt2)(p, child);
    ++found;
  }
  return found;
}

/* Counts the partners of each cluster and keeps the first `slots` of each. total[0] is the sum of the counts, total[1] is set once that is
   beyond `limit`; no further visit begins then, since n clusters in one place have n^2 pairs. One work-item a cluster of a. */
kernel void hierarchy_count_pairs(global const float* a_nodes, global const uint* a_groups, uint a_level_1, uint a_clusters,
                                  global const float* b_nodes, global const uint* b_groups, uint8 b_begins, uint b_top, int is_within,
                                  uint slots, uint limit, global UInt2* first_pairs, global uint* counts, volatile global uint* total) {
  const uint p = (uint)get_global_id(0);
  if (p >= a_clusters || atomic_or(total + 1, 0u) != 0u) return;
  const uint count = visit_clusters(a_nodes, a_groups, a_level_1, p, b_nodes, b_groups, b_begins, b_top, is_within,
                                    first_pairs + (size_t)p * slots, slots);
  counts[p] = count;
  if (count == 0u) return;
  const uint before = atomic_add(total, count);
  if (before > limit || count > limit - before) atomic_or(total + 1, 1u);
}

/* Puts the pairs of each cluster in their place, if there is room for them all; visits again only where there were more than the slots
   hold. */
kernel void hierarchy_write_pairs(global const float* a_nodes, global const uint* a_groups, uint a_level_1, uint a_clusters,
                                  global const float* b_nodes, global const uint* b_groups, uint8 b_begins, uint b_top, int is_within,
                                  uint slots, global const UInt2* first_pairs, global const uint* counts, global const uint* offsets,
                                  global const uint* total, uint capacity, global UInt2* pairs) {
  const uint p = (uint)get_global_id(0);
  if (p >= a_clusters || total[1] != 0u || total[0] > capacity) return;
  const uint count = counts[p];
  global UInt2* out = pairs + offsets[p];
  if (count <= slots) {
    for (uint i = 0; i < count; ++i) out[i] = first_pairs[(size_t)p * slots + i];
    return;
  }
  visit_clusters(a_nodes, a_groups, a_level_1, p, b_nodes, b_groups, b_begins, b_top, is_within, out, count);
}
