#include "gpu/collision/box_hierarchy.clh"
#include "gpu/collision/gjk.clh"
#include "gpu/shared/box.h"

/* Pairs of bodies that may come near each other, and of their clusters: see body_candidates.h. */

/* Places in counters[]. */
#define COUNT_PAIRS 0
#define COUNT_REFUSABLE 1 /* bodies with coordinates that a detector may refuse */
#define COUNT_STALE 2     /* bodies whose elements a detector has to work out */
#define COUNT_ESCAPED 3   /* bodies that are no longer inside their wide boxes */
#define COUNT_LISTED 4

/* Coordinates that detectors may refuse. */
#define LARGE_COORDINATE_M 1e8f
/* Rounding of a height over a plane, as a share of the coordinates it is made of; and what underflow may lose. */
#define HEIGHT_ROUNDING 1e-6f
#define HEIGHT_TINY 1e-36f

/* Vertices of bodies are kept in blocks of 8 of one body, [block][3][8]; the last one of a body fills its last block up. */
#define BLOCK_WIDTH 8u
#define BLOCK_FLOATS 24u

/* Pairs that a work-item collects before it makes room for them. */
#define PENDING 32u

/* For the host. Work-item: vertex. */
kernel void body_copy_positions(uint count, global const float4* positions, global float4* copy) {
  const uint i = (uint)get_global_id(0);
  if (i < count) copy[i] = positions[i];
}

void store_place(global float* blocks, uint i, float4 p) {
  global float* at = blocks + (size_t)(i / BLOCK_WIDTH) * BLOCK_FLOATS + i % BLOCK_WIDTH;
  at[0] = p.x;
  at[BLOCK_WIDTH] = p.y;
  at[2 * BLOCK_WIDTH] = p.z;
}

float4 load_place(global const float* blocks, uint i) {
  global const float* at = blocks + (size_t)(i / BLOCK_WIDTH) * BLOCK_FLOATS + i % BLOCK_WIDTH;
  return (float4)(at[0], at[BLOCK_WIDTH], at[2 * BLOCK_WIDTH], 0.0f);
}

/* Whether the vertices [begin, end) end where they did in the run before. */
int ends_are_kept(uint begin, uint end, global const uint* vertices, global const float4* ends, global const float* last_ends) {
  for (uint i = begin; i < end; ++i) {
    if (!all(load_place(last_ends, i) == (float4)(ends[vertices[i]].xyz, 0.0f))) return 0;
  }
  return 1;
}

/* Elements of two bodies that are farther apart than the sum of their reaches are no candidates. `reaches`: null if that is half the
   distance for all. */
float reach_of(global const float* reaches, uint body, float half_distance) { return reaches ? reaches[body] : half_distance; }

/* Of the way in a run before: a step has several runs, some of them over a small part of it. */
#define WAY_KEPT 0.75f

/* Box around the way of a body, drawn out by its reach, its vertices in blocks, and the mean of their ways; `ends`: null if it does not
   move, then it came from where it was in the run before. Whether a detector may have to refuse it. */
int sweep_body(uint begin, uint end, global const uint* vertices, global const float4* starts, global const float4* ends, float reach,
               global float* block_starts, global float* block_ends, global Box* box, global float4* mean_way) {
  float4 lower = (float4)(INFINITY);
  float4 upper = (float4)(-INFINITY);
  float4 largest = (float4)(0.0f);
  float4 sum = (float4)(0.0f); /* fmin and fmax drop NaNs, the sum does not */
  float4 way = (float4)(0.0f);
  for (uint i = begin; i < end; ++i) {
    const float4 start = (float4)(starts[vertices[i]].xyz, 0.0f);
    if (!ends) way += start - load_place(block_starts, i);
    store_place(block_starts, i, start);
    lower = fmin(lower, start);
    upper = fmax(upper, start);
    sum += 0.0f * start; /* NaN also if it is infinite */
    if (!ends) continue;
    const float4 stop = (float4)(ends[vertices[i]].xyz, 0.0f);
    store_place(block_ends, i, stop);
    way += stop - start;
    lower = fmin(lower, stop);
    upper = fmax(upper, stop);
    sum += 0.0f * stop;
  }
  largest = fmax(fabs(lower), fabs(upper));
  const int is_number = sum.x + sum.y + sum.z == 0.0f;
  const float4 pad = reach * 1.000001f + HEIGHT_ROUNDING * largest + HEIGHT_TINY;
  lower -= pad;
  upper += pad;
  if (!is_number || begin == end) lower = upper = (float4)(NAN);
  lower.w = upper.w = 0.0f;
  if (begin != end) {
    way /= (float)(end - begin);
    const float4 before = WAY_KEPT * *mean_way;
    const float way_sq = dot(way, way);
    *mean_way = way_sq >= dot(before, before) && way_sq < INFINITY ? way : before; /* a way that is no number is none */
  }
  box->lower = lower;
  box->upper = upper;
  return !is_number || (begin != end && fmax(largest.x, fmax(largest.y, largest.z)) > LARGE_COORDINATE_M);
}

/* Boxes of all bodies, or with `compares` of those that have changed: a vertex ends elsewhere than in the run before. Where `wanted` is not
   null, it tells which count as changed. A body is active at first if it meets itself or a detector may have to refuse it. Work-item:
   body. */
kernel void body_swept_boxes(uint body_count, global const uint* begins, global const uint* vertices, global const uint* meets_itself,
                             global const float4* starts, global const float4* ends, float half_distance, global const float* reaches,
                             global const uint* wanted, uint compares, global float* block_starts, global float* block_ends,
                             global Box* boxes, global float4* ways, global const Box* wide_boxes, global uint* may_be_refused,
                             global uint* active, global uint* changed, global uint* is_fresh, global uint* stale,
                             volatile global uint* counters) {
  const uint body = (uint)get_global_id(0);
  if (body >= body_count) return;
  const uint begin = begins[body] * BLOCK_WIDTH;
  const uint end = begins[body + 1] * BLOCK_WIDTH;
  const int is_changed = compares == 0u || !ends_are_kept(begin, end, vertices, ends, block_ends);
  changed[body] = wanted ? wanted[body] : is_changed ? 1u : 0u;
  if (is_changed) {
    may_be_refused[body] =
        sweep_body(begin, end, vertices, starts, ends, reach_of(reaches, body, half_distance), block_starts, block_ends, boxes + body,
                   ways + body)
            ? 1u
            : 0u;
    is_fresh[body] = 0u;
    const int4 is_inside = (wide_boxes[body].lower <= boxes[body].lower) & (boxes[body].upper <= wide_boxes[body].upper);
    if (begin != end && !all(is_inside)) atomic_inc(counters + COUNT_ESCAPED);
  }
  if (may_be_refused[body] != 0u) atomic_inc(counters + COUNT_REFUSABLE);
  const uint is_active = meets_itself[body] | may_be_refused[body];
  active[body] = is_active;
  if (is_active == 0u || is_fresh[body] != 0u) return;
  stale[atomic_inc(counters + COUNT_STALE)] = body;
  is_fresh[body] = 1u;
}

/* How many more of its last ways a body may make before it leaves its wide box. */
#define WAYS_AHEAD 3.0f

/* Draws boxes out by a share of their largest side, and along the ways of their bodies, one by one and 16 a node. Work-item: node. */
kernel void body_wide_boxes(uint body_count, float share, global const Box* boxes, global const float4* ways, global Box* wide_boxes,
                            global float* nodes) {
  const uint node = (uint)get_global_id(0);
  if (node * NODE_WIDTH >= body_count) return;
  for (uint lane = 0; lane < NODE_WIDTH; ++lane) {
    const uint body = node * NODE_WIDTH + lane;
    Box box = {(Float4)(NAN), (Float4)(NAN)};
    if (body < body_count) {
      box = boxes[body];
      const float4 sides = box.upper - box.lower;
      const float4 slack = (float4)((float3)(share * fmax(sides.x, fmax(sides.y, sides.z))), 0.0f);
      const float4 ahead = WAYS_AHEAD * ways[body];
      box.lower += fmin(ahead, 0.0f) - slack;
      box.upper += fmax(ahead, 0.0f) + slack;
      wide_boxes[body] = box;
    }
    store_lane_box(nodes, node, lane, box.lower, box.upper);
  }
}

/* Pairs of bodies that may meet while both are inside their wide boxes, in any order, and a normal for each that once kept the two apart
   (w is 0: there is none). They are counted past the capacity. */
typedef struct {
  uint capacity;
  global UInt2* pairs;
  global float4* hints;
  volatile global uint* counters;
  uint pending_count;
  UInt2 pending[PENDING];
} BodyList;

void flush_bodies(BodyList* list) {
  const uint begin = atomic_add(list->counters + COUNT_LISTED, list->pending_count);
  for (uint i = 0; i < list->pending_count; ++i) {
    if (begin + i >= list->capacity) break;
    list->pairs[begin + i] = list->pending[i];
    list->hints[begin + i] = (float4)(0.0f);
  }
  list->pending_count = 0;
}

void list_bodies(BodyList* list, uint a, uint b) {
  if (list->pending_count == PENDING) flush_bodies(list);
  list->pending[list->pending_count++] = (UInt2)(min(a, b), max(a, b));
}

/* Lists all pairs of bodies whose wide boxes overlap, of few bodies. Work-item: node, with those from it on. */
kernel void body_list_of_few(uint node_count, global const float* nodes, uint capacity, global UInt2* listed, global float4* hints,
                             volatile global uint* counters) {
  const uint p = (uint)get_global_id(0);
  if (p >= node_count) return;
  BodyList list;
  list.capacity = capacity;
  list.pairs = listed;
  list.hints = hints;
  list.counters = counters;
  list.pending_count = 0;
  for (uint q = p; q < node_count; ++q) {
    const LaneBoxes lanes = load_lane_boxes(nodes, q);
    for (uint row = 0; row < NODE_WIDTH; ++row) {
      uint mask = lanes_overlapping(&lanes, lane_lower(nodes, p, row), lane_upper(nodes, p, row));
      if (p == q) mask &= (ALL_LANES << 1u) << row;
      for (; mask != 0u; mask &= mask - 1u) list_bodies(&list, p * NODE_WIDTH + row, q * NODE_WIDTH + lowest_lane(mask));
    }
  }
  flush_bodies(&list);
}

/* The same of many, in the pairs [0, pair_count) of clusters of bodies. Work-item: `chunk` cluster pairs. */
kernel void body_list_of_many(uint pair_count, uint chunk, global const UInt2* cluster_pairs, global const float* nodes,
                              global const uint* node_groups, global const uint* elements, uint capacity, global UInt2* listed,
                              global float4* hints, volatile global uint* counters) {
  const uint begin = (uint)get_global_id(0) * chunk;
  if (begin >= pair_count) return;
  BodyList list;
  list.capacity = capacity;
  list.pairs = listed;
  list.hints = hints;
  list.counters = counters;
  list.pending_count = 0;
  for (uint pair = begin; pair < min(begin + chunk, pair_count); ++pair) {
    const uint p = cluster_pairs[pair].x;
    const uint q = cluster_pairs[pair].y;
    const LaneBoxes lanes = load_lane_boxes(nodes, q);
    for (uint row = 0; row < NODE_WIDTH; ++row) {
      uint mask = partners_of_row(&lanes, nodes, node_groups, p, row, node_groups, q, p == q, (global const uint*)0);
      const uint a = elements[p * NODE_WIDTH + row];
      for (; mask != 0u; mask &= mask - 1u) list_bodies(&list, a, elements[q * NODE_WIDTH + lowest_lane(mask)]);
    }
  }
  flush_bodies(&list);
}

/* Blocks [begin, end) of a body's vertices. */
typedef struct {
  uint begin;
  uint end;
} Body;

float3 first_vertex(const Body* body, global const float* blocks) { return load_place(blocks, body->begin * BLOCK_WIDTH).xyz; }

/* Heights of a block's vertices over n, relative to `origin`. */
float8 block_heights(global const float* blocks, uint block, float3 origin, float3 n) {
  global const float* at = blocks + (size_t)block * BLOCK_FLOATS;
  return n.x * (vload8(0, at) - origin.x) + n.y * (vload8(1, at) - origin.y) + n.z * (vload8(2, at) - origin.z);
}

float8 lower_of(float8 a, float8 b) { return select(b, a, a < b); }

float least_of(float8 v) {
  const float4 by_4 = select(v.hi, v.lo, v.lo < v.hi);
  const float2 by_2 = select(by_4.hi, by_4.lo, by_4.lo < by_4.hi);
  return by_2.x < by_2.y ? by_2.x : by_2.y;
}

/* The vertex of the least height over n, relative to `origin`. */
float3 lowest_vertex(const Body* body, global const float* blocks, float3 origin, float3 n) {
  float8 heights = block_heights(blocks, body->begin, origin, n);
  int8 block_of = (int8)((int)body->begin);
  for (uint block = body->begin + 1; block < body->end; ++block) {
    const float8 others = block_heights(blocks, block, origin, n);
    const int8 is_lower = others < heights;
    heights = select(heights, others, is_lower);
    block_of = select(block_of, (int8)((int)block), is_lower);
  }
  const float least = least_of(heights);
  const int8 bits = (heights <= (float8)(least)) & (int8)(1, 2, 4, 8, 16, 32, 64, 128);
  const int4 by_4 = bits.lo | bits.hi;
  const int2 by_2 = by_4.lo | by_4.hi;
  const uint lane = lowest_lane((uint)(by_2.x | by_2.y));
  int lanes[BLOCK_WIDTH];
  vstore8(block_of, 0, lanes);
  return load_place(blocks, (uint)lanes[lane] * BLOCK_WIDTH + lane).xyz - origin;
}

float least_height(const Body* body, global const float* blocks, float3 origin, float3 n) {
  float8 heights = block_heights(blocks, body->begin, origin, n);
  for (uint block = body->begin + 1; block < body->end; ++block) heights = lower_of(heights, block_heights(blocks, block, origin, n));
  return least_of(heights);
}

/* Gap between the bodies along n, a above b; negative if they overlap there. */
float gap_along(const Body* a, const Body* b, global const float* blocks, float3 origin, float3 n) {
  return least_height(a, blocks, origin, n) + least_height(b, blocks, origin, -n);
}

#define MAX_GJK_STEPS 24
/* Of the distance: what GJK may be off before it ends. */
#define GJK_TOLERANCE 1e-3f

#define PLANE_FOUND 1
#define PLANE_NOT_FOUND 0
#define PLANE_IS_NONE 2 /* the bodies are nearer than `pad` at `at`: there is no such plane */

/* Looks for a plane that keeps a and b apart by more than `pad` at both positions, with its normal n from those at `at`; n is where the
   search begins, and where it ended. `other`: null if the bodies do not move. */
int find_plane(const Body* a, const Body* b, global const float* at, global const float* other, float3 origin, float pad, float3* n) {
  Simplex s;
  s.count = 0;
  float3 v = *n;
  float size = 0.0f;
  for (int step = 0; step < MAX_GJK_STEPS; ++step) {
    const float distance_m = length(v);
    /* What is this near cannot be told apart here. */
    if (!(distance_m > (step > 0 ? pad : 0.0f))) return PLANE_IS_NONE;
    *n = v / distance_m;
    const float3 w = lowest_vertex(a, at, origin, *n) - lowest_vertex(b, at, origin, -*n);
    const float gap = dot(*n, w);
    if (gap > pad && (!other || gap_along(a, b, other, origin, *n) > pad)) return PLANE_FOUND;
    if (step > 0 && distance_m - gap <= GJK_TOLERANCE * distance_m) return gap > pad ? PLANE_NOT_FOUND : PLANE_IS_NONE;
    size = fmax(size, length(w));
    s.p[s.count] = w;
    s.a[s.count] = s.b[s.count] = 0u;
    ++s.count;
    v = nearest_on_simplex(&s, size);
    if (s.count == 4) return PLANE_IS_NONE;
  }
  return PLANE_NOT_FOUND;
}

/* `middle`: about from b to a; `hint`: a normal to try first, and one that was found. */
int are_apart(const Body* a, const Body* b, global const float* starts, global const float* ends, float3 middle, float pad,
              global float4* hint) {
  const float3 origin = first_vertex(a, starts);
  float3 n = (*hint).xyz;
  if ((*hint).w != 0.0f && gap_along(a, b, starts, origin, n) > pad && (!ends || gap_along(a, b, ends, origin, n) > pad)) return 1;
  n = dot(middle, middle) > 0.0f ? middle : origin - first_vertex(b, starts);
  int found = find_plane(a, b, starts, ends, origin, pad, &n);
  if (found == PLANE_NOT_FOUND && ends) found = find_plane(a, b, ends, starts, origin, pad, &n);
  if (found == PLANE_FOUND) *hint = (float4)(n, 1.0f);
  return found == PLANE_FOUND;
}

/* Those of the listed pairs [0, count) that no plane keeps apart are kept, in any order, and their bodies made active; `chunk` of them a
   work-item. With only_changed pairs of two bodies that have not changed are left out. `ends`: null if nothing moves. Counts past the
   capacity. Does nothing if the list is out of date. */
kernel void body_pairs(uint count, uint chunk, global const UInt2* listed, global float4* hints, global const uint* begins,
                       global const float* starts, global const float* ends, global const Box* boxes, float half_distance,
                       global const float* reaches, uint only_changed, uint capacity, global UInt2* kept, global const uint* changed,
                       volatile global uint* active, global uint* is_fresh, global uint* stale, volatile global uint* counters) {
  if (counters[COUNT_ESCAPED] != 0u) return;
  const uint first = (uint)get_global_id(0) * chunk;
  for (uint i = first; i < min(first + chunk, count); ++i) {
    const UInt2 pair = listed[i];
    if (only_changed && (changed[pair.x] | changed[pair.y]) == 0u) continue;
    const Box box_a = boxes[pair.x];
    const Box box_b = boxes[pair.y];
    if (!all((box_a.lower <= box_b.upper) & (box_b.lower <= box_a.upper))) continue;
    const Body a = {begins[pair.x], begins[pair.x + 1]};
    const Body b = {begins[pair.y], begins[pair.y + 1]};
    const float4 far = fmax(fmax(fabs(box_a.lower), fabs(box_a.upper)), fmax(fabs(box_b.lower), fabs(box_b.upper)));
    const float distance_m = reach_of(reaches, pair.x, half_distance) + reach_of(reaches, pair.y, half_distance);
    const float pad = distance_m * 1.00001f + 4.0f * HEIGHT_ROUNDING * (far.x + far.y + far.z) + HEIGHT_TINY;
    const float4 middle = 0.5f * box_a.lower - 0.5f * box_b.lower + 0.5f * box_a.upper - 0.5f * box_b.upper;
    if (are_apart(&a, &b, starts, ends, middle.xyz, pad, hints + i)) continue;
    for (uint side = 0; side < 2; ++side) {
      const uint body = side == 0u ? pair.x : pair.y;
      if (atomic_xchg(active + body, 1u) != 0u || is_fresh[body] != 0u) continue;
      is_fresh[body] = 1u;
      stale[atomic_inc(counters + COUNT_STALE)] = body;
    }
    const uint place = atomic_inc(counters + COUNT_PAIRS);
    if (place < capacity) kept[place] = pair;
  }
}

int boxes_overlap(const global Box* a, const global Box* b) {
  return a->lower.x <= b->upper.x && b->lower.x <= a->upper.x && a->lower.y <= b->upper.y && b->lower.y <= a->upper.y &&
         a->lower.z <= b->upper.z && b->lower.z <= a->upper.z;
}

/* Boxes of the elements of each cluster of an active body, lane by lane and all together. Work-item: cluster. */
kernel void body_clusters(uint cluster_count, global const uint* cluster_body, global const uint* active, global const uint* elements,
                          global const Box* boxes, global float* nodes, global Box* cluster_boxes) {
  const uint cluster = (uint)get_global_id(0);
  if (cluster >= cluster_count || active[cluster_body[cluster]] == 0u) return;
  Box all = {(Float4)(INFINITY), (Float4)(-INFINITY)};
  for (uint lane = 0; lane < NODE_WIDTH; ++lane) {
    const uint element = elements[(size_t)cluster * NODE_WIDTH + lane];
    Box box = {(Float4)(NAN), (Float4)(NAN)};
    if (element != NO_ELEMENT) box = boxes[element];
    store_lane_box(nodes, cluster, lane, box.lower, box.upper);
    all.lower = fmin(all.lower, box.lower); /* drops NaNs */
    all.upper = fmax(all.upper, box.upper);
  }
  cluster_boxes[cluster] = all;
}

void flush(const UInt2* pending, uint count, uint capacity, global UInt2* pairs, volatile global uint* counter) {
  const uint begin = atomic_add(counter, count);
  for (uint i = 0; i < count; ++i) {
    if (begin + i < capacity) pairs[begin + i] = pending[i];
  }
}

/* Pairs of a cluster p of body x and a cluster q of body y whose boxes overlap. */
uint list_cluster_pairs(uint x, uint y, uint is_within, global const uint* p_begins, global const Box* p_boxes, global const uint* q_begins,
                        global const Box* q_boxes, UInt2* pending, uint pending_count, uint capacity, global UInt2* pairs,
                        volatile global uint* counter) {
  for (uint p = p_begins[x]; p < p_begins[x + 1]; ++p) {
    for (uint q = is_within && x == y ? p : q_begins[y]; q < q_begins[y + 1]; ++q) {
      if (!boxes_overlap(p_boxes + p, q_boxes + q)) continue;
      if (pending_count == PENDING) {
        flush(pending, pending_count, capacity, pairs, counter);
        pending_count = 0;
      }
      pending[pending_count++] = (UInt2)(p, q);
    }
  }
  return pending_count;
}

/* Pairs of clusters of the pairs of bodies [0, body_pair_count), in any order; `is_within`: p and q are of one kind. Counts past the
   capacity; ends somewhere past `limit`. Work-item: `chunk` pairs of bodies. */
kernel void body_cluster_pairs(uint body_pair_count, uint chunk, global const UInt2* body_pairs, uint is_within,
                               global const uint* p_begins, global const Box* p_boxes, global const uint* q_begins,
                               global const Box* q_boxes, uint limit, uint capacity, global UInt2* pairs, volatile global uint* counter) {
  const uint begin = (uint)get_global_id(0) * chunk;
  const uint end = min(begin + chunk, body_pair_count);
  UInt2 pending[PENDING];
  uint pending_count = 0;
  for (uint i = begin; i < end; ++i) {
    if (atomic_or(counter, 0u) > limit) return;
    const uint a = body_pairs[i].x;
    const uint b = body_pairs[i].y;
    pending_count =
        list_cluster_pairs(a, b, is_within, p_begins, p_boxes, q_begins, q_boxes, pending, pending_count, capacity, pairs, counter);
    if (is_within || a == b) continue;
    pending_count =
        list_cluster_pairs(b, a, is_within, p_begins, p_boxes, q_begins, q_boxes, pending, pending_count, capacity, pairs, counter);
  }
  if (pending_count > 0u) flush(pending, pending_count, capacity, pairs, counter);
}
