#include "gpu/collision/box_hierarchy.clh"
#include "gpu/shared/box.h"

/* Edges that pierce triangles: see intersections.h. Given by the host: USE_DOUBLE (1: the device has double). */
#if USE_DOUBLE
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double Real;
typedef double3 Real3;
#define TO_REAL3(v) (double3)((double)(v).x, (double)(v).y, (double)(v).z)
#define ROUNDING 1.1102230246251565e-16
#define REAL(x) (x)
#else
typedef float Real;
typedef float3 Real3;
#define TO_REAL3(v) (v)
#define ROUNDING 5.9604645e-8f
#define REAL(x) (x##f)
#endif

/* Places in counters[]. */
#define COUNT_CROSSINGS 0
#define BAD_VERTEX 1 /* ~smallest vertex that is not a usable number; 0: none */
#define COUNT_TOUCHING 2

#define MAX_COORDINATE_M 1e8f

#define PIERCED 1u
#define PIERCING 2u

/* Box of each triangle of an active body (null: of all). One work-item a triangle; clears its flags. */
kernel void intersections_boxes(uint triangle_count, global const uint4* triangles, global const uint* groups,
                                global const uint* active_bodies, global const float4* positions, global Box* boxes, global uint* flags,
                                volatile global uint* counters) {
  const uint i = (uint)get_global_id(0);
  if (i >= triangle_count) return;
  flags[i] = 0u;
  if (is_inactive(active_bodies, groups[i])) return;
  const uint4 t = triangles[i];
  const uint corners[3] = {t.x, t.y, t.z};
  float4 lower = (float4)(INFINITY);
  float4 upper = (float4)(-INFINITY);
  for (uint k = 0; k < 3u; ++k) {
    const float4 p = (float4)(positions[corners[k]].xyz, 0.0f);
    if (!all(fabs(p) <= (float4)(MAX_COORDINATE_M))) atomic_max(counters + BAD_VERTEX, ~corners[k]);
    lower = fmin(lower, p);
    upper = fmax(upper, p);
  }
  const Box box = {lower, upper};
  boxes[i] = box;
}

/* Sign of (b - a) x (c - a) . (d - a), 0 where it is below the bound of its rounding. */
int orientation(Real3 a, Real3 b, Real3 c, Real3 d) {
  const Real3 u = b - a;
  const Real3 v = c - a;
  const Real3 w = d - a;
  const Real yz = v.y * w.z;
  const Real zy = v.z * w.y;
  const Real zx = v.z * w.x;
  const Real xz = v.x * w.z;
  const Real xy = v.x * w.y;
  const Real yx = v.y * w.x;
  const Real det = u.x * (yz - zy) + u.y * (zx - xz) + u.z * (xy - yx);
  const Real permanent = fabs(u.x) * (fabs(yz) + fabs(zy)) + fabs(u.y) * (fabs(zx) + fabs(xz)) + fabs(u.z) * (fabs(xy) + fabs(yx));
  const Real bound = REAL(8.0) * ROUNDING * permanent;
  return det > bound ? 1 : det < -bound ? -1 : 0;
}

#define APART 0
#define CROSSING 1
#define TOUCHING 2

/* Edge pq against triangle abc. */
int edge_against_triangle(Real3 p, Real3 q, Real3 a, Real3 b, Real3 c) {
  const int side_p = orientation(a, b, c, p);
  const int side_q = orientation(a, b, c, q);
  if (side_p * side_q > 0 || (side_p == 0 && side_q == 0)) return APART;
  const int ab = orientation(p, q, a, b);
  const int bc = orientation(p, q, b, c);
  const int ca = orientation(p, q, c, a);
  const int is_left = ab > 0 || bc > 0 || ca > 0;
  const int is_right = ab < 0 || bc < 0 || ca < 0;
  if (is_left && is_right) return APART;
  return side_p * side_q < 0 && ab * bc * ca != 0 ? CROSSING : TOUCHING;
}

uint component(uint4 v, uint k) { return k == 0u ? v.x : k == 1u ? v.y : v.z; }

Real3 corner_of(global const float4* positions, uint vertex) { return TO_REAL3(positions[vertex].xyz); }

typedef struct {
  global const float4* positions;
  uint edge_shift;
  uint capacity;
  global ulong* keys;
  volatile global uint* flags;
  volatile global uint* counters;
} Search;

/* The edges that triangle `own` owns against triangle `other`, whose box is given. */
void test_edges(const Search* search, uint own, uint4 t, uint4 own_edges, uint other, uint4 u, float4 lower, float4 upper) {
  for (uint k = 0; k < 3u; ++k) {
    if (((t.w >> (3u + k)) & 1u) == 0u) continue;
    const uint p = component(t, k);
    const uint q = component(t, k == 2u ? 0u : k + 1u);
    if (p == u.x || p == u.y || p == u.z || q == u.x || q == u.y || q == u.z) continue;
    const float4 at_p = (float4)(search->positions[p].xyz, 0.0f);
    const float4 at_q = (float4)(search->positions[q].xyz, 0.0f);
    if (!all((fmin(at_p, at_q) <= upper) & (fmax(at_p, at_q) >= lower))) continue;
    const int result = edge_against_triangle(TO_REAL3(at_p.xyz), TO_REAL3(at_q.xyz), corner_of(search->positions, u.x),
                                             corner_of(search->positions, u.y), corner_of(search->positions, u.z));
    if (result == TOUCHING) atomic_inc(search->counters + COUNT_TOUCHING);
    if (result != CROSSING) continue;
    const uint place = atomic_inc(search->counters + COUNT_CROSSINGS);
    if (place < search->capacity) search->keys[place] = ((ulong)component(own_edges, k) << search->edge_shift) | other;
    atomic_or(search->flags + own, PIERCING);
    atomic_or(search->flags + other, PIERCED);
  }
}

/* Appends a key (edge, triangle) for each crossing. Each work-item takes `chunk` cluster pairs in a row. Counts past the capacity; stops
   somewhere past `max_crossings`, which the host refuses in any case. */
kernel void intersections_detect(global const float* nodes, global const uint* node_groups, global const uint* elements,
                                 global const uint* apart, global const UInt2* cluster_pairs, uint pair_count, global const uint* found,
                                 uint chunk, global const uint4* triangles, global const uint4* triangle_edges,
                                 global const float4* positions, uint edge_shift, uint capacity, uint max_crossings, global ulong* keys,
                                 volatile global uint* flags, volatile global uint* counters) {
  if (found) pair_count = found[1] != 0u || found[0] > pair_count ? 0u : found[0]; /* as in proximity_detect */
  const uint begin = (uint)get_global_id(0) * chunk;
  if (begin >= pair_count) return;
  const uint end = min(begin + chunk, pair_count);
  const Search search = {positions, edge_shift, capacity, keys, flags, counters};
  for (uint i = begin; i < end; ++i) {
    if (atomic_or(counters + COUNT_CROSSINGS, 0u) > max_crossings) break;
    const UInt2 pair = cluster_pairs[i];
    const LaneBoxes q_lanes = load_lane_boxes(nodes, pair.y);
    for (uint row = 0; row < NODE_WIDTH; ++row) {
      uint mask = partners_of_row(&q_lanes, nodes, node_groups, pair.x, row, node_groups, pair.y, pair.x == pair.y, apart);
      if (mask == 0u) continue;
      const uint own = elements[(size_t)pair.x * NODE_WIDTH + row];
      const uint4 t = triangles[own];
      const uint4 own_edges = triangle_edges[own];
      const float4 lower = lane_lower(nodes, pair.x, row);
      const float4 upper = lane_upper(nodes, pair.x, row);
      for (; mask != 0u; mask &= mask - 1u) {
        const uint lane = lowest_lane(mask);
        const uint other = elements[(size_t)pair.y * NODE_WIDTH + lane];
        const uint4 u = triangles[other];
        test_edges(&search, own, t, own_edges, other, u, lane_lower(nodes, pair.y, lane), lane_upper(nodes, pair.y, lane));
        test_edges(&search, other, u, triangle_edges[other], own, t, lower, upper);
      }
    }
  }
}

/* Sorted keys as (edge, triangle); the triangles of a piercing edge that do not own it get their flag, too. */
kernel void intersections_records(uint count, global const ulong* keys, uint edge_shift, global const uint2* edge_triangle_range,
                                  global const uint* edge_triangles, global UInt2* crossings, volatile global uint* flags) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const uint edge = (uint)(keys[i] >> edge_shift);
  crossings[i] = (UInt2)(edge, (uint)keys[i] & ((1u << edge_shift) - 1u));
  for (uint k = edge_triangle_range[edge].x; k < edge_triangle_range[edge].y; ++k) atomic_or(flags + edge_triangles[k], PIERCING);
}
