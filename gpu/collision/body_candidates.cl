#include "gpu/shared/prelude.h"

#include "gpu/collision/box_hierarchy.clh"
#include "gpu/collision/gjk.clh"
#include "gpu/shared/box.h"

/* Pairs of bodies that may come near each other, and of their clusters: see body_candidates.h. */

/* Places in counters[]. */
#define COUNT_PAIRS 0
#define COUNT_REFUSABLE 1 /* bodies with coordinates that a detector may refuse */

/* Coordinates that detectors may refuse. */
#define LARGE_COORDINATE_M 1e8f
/* Rounding of a height over a plane, as a share of the coordinates it is made of; and what underflow may lose. */
#define HEIGHT_ROUNDING 1e-6f
#define HEIGHT_TINY 1e-36f

/* For the host. Work-item: vertex. */
kernel void body_copy_positions(uint count, global const float4* positions, global float4* copy) {
  const uint i = (uint)get_global_id(0);
  if (i < count) copy[i] = positions[i];
}

/* Box around the way of each body, drawn out by half the distance. A body is active at first if it meets itself or a detector may have to
   refuse it. With `compares` a body is changed if a vertex ends elsewhere than in the run before. Work-item: body. */
kernel void body_swept_boxes(uint body_count, global const uint* begins, global const uint* vertices, global const uint* meets_itself,
                             global const float4* starts, global const float4* ends, float half_distance, uint compares,
                             global float4* last_ends, global Box* boxes, global uint* active, global uint* changed,
                             volatile global uint* counters) {
  const uint body = (uint)get_global_id(0);
  if (body >= body_count) return;
  float4 lower = (float4)(INFINITY);
  float4 upper = (float4)(-INFINITY);
  float largest = 0.0f;
  int is_number = 1;
  int is_same = compares != 0u;
  for (uint i = begins[body]; i < begins[body + 1]; ++i) {
    const float4 start = (float4)(starts[vertices[i]].xyz, 0.0f);
    const float4 end = (float4)(ends[vertices[i]].xyz, 0.0f);
    const float4 far = fmax(fabs(start), fabs(end)); /* drops NaNs, the sum does not */
    largest = fmax(largest, fmax(far.x, fmax(far.y, far.z)));
    const float4 sum = start + end;
    is_number &= isfinite(sum.x + sum.y + sum.z);
    lower = fmin(lower, fmin(start, end));
    upper = fmax(upper, fmax(start, end));
    is_same = is_same && all(last_ends[i] == end);
    last_ends[i] = end;
  }
  const float4 pad = half_distance * 1.000001f + HEIGHT_ROUNDING * fmax(fabs(lower), fabs(upper)) + HEIGHT_TINY;
  lower -= pad;
  upper += pad;
  if (!is_number || begins[body] == begins[body + 1]) lower = upper = (float4)(NAN);
  lower.w = upper.w = 0.0f;
  boxes[body].lower = lower;
  boxes[body].upper = upper;
  const int may_be_refused = !is_number || largest > LARGE_COORDINATE_M;
  if (may_be_refused) atomic_inc(counters + COUNT_REFUSABLE);
  active[body] = meets_itself[body] != 0u || may_be_refused ? 1u : 0u;
  changed[body] = is_same ? 0u : 1u;
}

/* The vertices of a body. */
typedef struct {
  global const uint* vertices;
  uint count;
} Body;

/* The vertex of the least height over n, relative to `origin`. */
float3 lowest_vertex(const Body* body, global const float4* positions, float3 origin, float3 n) {
  float least = INFINITY;
  float3 lowest = (float3)(0.0f);
  for (uint i = 0; i < body->count; ++i) {
    const float3 p = positions[body->vertices[i]].xyz - origin;
    const float height = dot(n, p);
    if (height >= least) continue;
    least = height;
    lowest = p;
  }
  return lowest;
}

/* Gap between the bodies along n, a above b; negative if they overlap there. */
float gap_along(const Body* a, const Body* b, global const float4* positions, float3 origin, float3 n) {
  float least = INFINITY;
  float most = -INFINITY;
  for (uint i = 0; i < a->count; ++i) least = fmin(least, dot(n, positions[a->vertices[i]].xyz - origin));
  for (uint i = 0; i < b->count; ++i) most = fmax(most, dot(n, positions[b->vertices[i]].xyz - origin));
  return least - most;
}

#define MAX_GJK_STEPS 24
/* Of the distance: what GJK may be off before it ends. */
#define GJK_TOLERANCE 1e-3f

/* Whether a plane keeps a and b apart by more than `pad` at both positions, with its normal from those at `at`. */
int has_plane(const Body* a, const Body* b, global const float4* at, global const float4* other, int is_moving, float3 origin, float pad) {
  Simplex s;
  s.count = 0;
  float3 v = at[a->vertices[0]].xyz - at[b->vertices[0]].xyz;
  float size = length(v);
  for (int step = 0; step < MAX_GJK_STEPS; ++step) {
    const float distance_m = length(v);
    /* What is this near cannot be told apart here. */
    if (!(distance_m > pad)) return 0;
    const float3 n = v / distance_m;
    const float3 w = lowest_vertex(a, at, origin, n) - lowest_vertex(b, at, origin, -n);
    const float gap = dot(n, w);
    if (gap > pad && (!is_moving || gap_along(a, b, other, origin, n) > pad)) return 1;
    if (step > 0 && distance_m - gap <= GJK_TOLERANCE * distance_m) return 0;
    size = fmax(size, length(w));
    s.p[s.count] = w;
    s.a[s.count] = s.b[s.count] = 0u;
    ++s.count;
    v = nearest_on_simplex(&s, size);
    if (s.count == 4) return 0;
  }
  return 0;
}

int are_apart(const Body* a, const Body* b, global const float4* starts, global const float4* ends, float pad) {
  const float3 origin = starts[a->vertices[0]].xyz;
  const int is_moving = starts != ends;
  return has_plane(a, b, starts, ends, is_moving, origin, pad) || (is_moving && has_plane(a, b, ends, starts, 1, origin, pad));
}

/* What decides about pairs of bodies, and where those go that are left. */
typedef struct {
  global const uint* begins;
  global const uint* vertices;
  global const float4* starts;
  global const float4* ends;
  global const Box* boxes;
  float distance_m;
  uint only_changed; /* pairs of two bodies that have not changed are left out */
  uint capacity;
  global UInt2* kept;             /* in any order */
  volatile global uint* counters; /* runs past the capacity */
  global const uint* changed;
  volatile global uint* active;
} BodyPairs;

/* Keeps the pair and makes both bodies active, unless a plane keeps them apart. */
void decide_bodies(const BodyPairs* pairs, uint body_a, uint body_b) {
  if (pairs->only_changed && (pairs->changed[body_a] | pairs->changed[body_b]) == 0u) return;
  const Body a = {pairs->vertices + pairs->begins[body_a], pairs->begins[body_a + 1] - pairs->begins[body_a]};
  const Body b = {pairs->vertices + pairs->begins[body_b], pairs->begins[body_b + 1] - pairs->begins[body_b]};
  const float4 far = fmax(fmax(fabs(pairs->boxes[body_a].lower), fabs(pairs->boxes[body_a].upper)),
                          fmax(fabs(pairs->boxes[body_b].lower), fabs(pairs->boxes[body_b].upper)));
  const float pad = pairs->distance_m * 1.00001f + 4.0f * HEIGHT_ROUNDING * (far.x + far.y + far.z) + HEIGHT_TINY;
  if (are_apart(&a, &b, pairs->starts, pairs->ends, pad)) return;
  atomic_or(pairs->active + body_a, 1u);
  atomic_or(pairs->active + body_b, 1u);
  const uint place = atomic_inc(pairs->counters + COUNT_PAIRS);
  if (place < pairs->capacity) pairs->kept[place] = (UInt2)(min(body_a, body_b), max(body_a, body_b));
}

int boxes_overlap(const global Box* a, const global Box* b) {
  return a->lower.x <= b->upper.x && b->lower.x <= a->upper.x && a->lower.y <= b->upper.y && b->lower.y <= a->upper.y &&
         a->lower.z <= b->upper.z && b->lower.z <= a->upper.z;
}

/* All pairs of bodies whose boxes overlap, of few bodies. Work-item: body, with those after it. */
kernel void body_pairs_of_few(uint body_count, global const uint* begins, global const uint* vertices, global const float4* starts,
                              global const float4* ends, global const Box* boxes, float distance_m, uint only_changed, uint capacity,
                              global UInt2* kept, volatile global uint* counters, global const uint* changed,
                              volatile global uint* active) {
  const uint a = (uint)get_global_id(0);
  if (a >= body_count) return;
  const BodyPairs pairs = {begins, vertices, starts, ends, boxes, distance_m, only_changed, capacity, kept, counters, changed, active};
  for (uint b = a + 1; b < body_count; ++b) {
    if (boxes_overlap(boxes + a, boxes + b)) decide_bodies(&pairs, a, b);
  }
}

/* The same of many, in the pairs [0, pair_count) of clusters of bodies. Work-item: cluster pair. */
kernel void body_pairs_of_many(uint pair_count, global const UInt2* cluster_pairs, global const float* nodes,
                               global const uint* node_groups, global const uint* elements, global const uint* begins,
                               global const uint* vertices, global const float4* starts, global const float4* ends, global const Box* boxes,
                               float distance_m, uint only_changed, uint capacity, global UInt2* kept, volatile global uint* counters,
                               global const uint* changed, volatile global uint* active) {
  const uint pair = (uint)get_global_id(0);
  if (pair >= pair_count) return;
  const uint p = cluster_pairs[pair].x;
  const uint q = cluster_pairs[pair].y;
  const LaneBoxes lanes = load_lane_boxes(nodes, q);
  const BodyPairs pairs = {begins, vertices, starts, ends, boxes, distance_m, only_changed, capacity, kept, counters, changed, active};
  for (uint row = 0; row < NODE_WIDTH; ++row) {
    uint mask = partners_of_row(&lanes, nodes, node_groups, p, row, node_groups, q, p == q);
    const uint a = elements[p * NODE_WIDTH + row];
    for (; mask != 0u; mask &= mask - 1u) decide_bodies(&pairs, a, elements[q * NODE_WIDTH + lowest_lane(mask)]);
  }
}

/* Boxes of the elements of each cluster of an active body, lane by lane and all together. Work-item: cluster. */
kernel void body_clusters(uint cluster_count, global const uint* cluster_body, global const uint* active, global const uint* elements,
                          global const Box* boxes, global float* nodes, global Box* cluster_boxes) {
  const uint cluster = (uint)get_global_id(0);
  if (cluster >= cluster_count || active[cluster_body[cluster]] == 0u) return;
  global float* node = nodes + (size_t)cluster * NODE_FLOATS;
  Box all = {(Float4)(INFINITY), (Float4)(-INFINITY)};
  for (uint lane = 0; lane < NODE_WIDTH; ++lane) {
    const uint element = elements[(size_t)cluster * NODE_WIDTH + lane];
    Box box = {(Float4)(NAN), (Float4)(NAN)};
    if (element != NO_ELEMENT) box = boxes[element];
    node[lane] = box.lower.x;
    node[lane + NODE_WIDTH] = box.lower.y;
    node[lane + 2 * NODE_WIDTH] = box.lower.z;
    node[lane + 3 * NODE_WIDTH] = box.upper.x;
    node[lane + 4 * NODE_WIDTH] = box.upper.y;
    node[lane + 5 * NODE_WIDTH] = box.upper.z;
    all.lower = fmin(all.lower, box.lower); /* drops NaNs */
    all.upper = fmax(all.upper, box.upper);
  }
  cluster_boxes[cluster] = all;
}

#define PENDING 32u

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
