#include "gpu/collision/box_hierarchy.clh"
#include "gpu/collision/closest.clh"
#include "gpu/shared/box.h"
#include "gpu/shared/collision_types.h"

/* Proximity of the elements of triangle surfaces: see proximity.h. Given by the host: LANES (closest.clh). Where `spheres` is not null a
   triangle's volume is its bounding sphere. */

/* Places in counters[]; the 64-bit ones take two words, low first. */
#define COUNT_CONTACTS 0
#define BAD_VERTEX 1 /* ~smallest vertex that is not a usable number; 0: none */
#define COUNT_TRIANGLE_PAIRS 2
#define COUNT_ELEMENT_PAIRS 4
#define COUNT_TESTS 6
#define COUNT_REST_EXCLUDED 8
#define COUNT_PATCHES 10 /* clusters not tested with themselves */

/* Coordinates beyond this are refused: fourth powers of lengths must stay finite. */
#define MAX_COORDINATE_M 1e8f

void add_wide(volatile global uint* counter, uint value) {
  if (value == 0u) return;
  const uint old = atomic_add(counter, value);
  if (old + value < old) atomic_inc(counter + 1);
}

/* How far a triangle's box is drawn out on each side so that boxes of elements with a computed distance within the range overlap: its
   reach, the rounding of the distance (relative to the extent of the elements) and that of the box itself (relative to coordinates). */
float box_reserve(float reach_m, float4 lower, float4 upper) {
  const float4 extent = upper - lower;
  const float4 far = fmax(fabs(lower), fabs(upper));
  return 1.00002f * reach_m + 2e-6f * fmax(extent.x, fmax(extent.y, extent.z)) + 2.5e-7f * fmax(far.x, fmax(far.y, far.z));
}

/* How far around the elements of a group is looked: pairs are within the range if their distance is below the sum of both reaches.
   `reaches` [body], or null: half the range for all. */
float reach_of(global const float* reaches, uint group, float range_m) {
  return reaches ? reaches[group & PALPATE_GROUP_MASK] : 0.5f * range_m;
}

float4 point(global const float4* positions, uint vertex) { return (float4)(positions[vertex].xyz, 0.0f); }

/* Smallest sphere around a triangle: through its corners, or around its longest edge where the angle opposite is not acute. */
float4 bounding_sphere(float4 a, float4 b, float4 c) {
  const float ab = dot(b - a, b - a);
  const float bc = dot(c - b, c - b);
  const float ca = dot(a - c, a - c);
  const float wa = bc * (ab + ca - bc);
  const float wb = ca * (ab + bc - ca);
  const float wc = ab * (bc + ca - ab);
  float4 centre;
  if (!(wa > 0.0f)) {
    centre = 0.5f * (b + c);
  } else if (!(wb > 0.0f)) {
    centre = 0.5f * (a + c);
  } else if (!(wc > 0.0f)) {
    centre = 0.5f * (a + b);
  } else {
    const float4 weighted = wb * (b - a) + wc * (c - a);
    centre = a + weighted / (wa + wb + wc);
  }
  const float radius_sq = fmax(dot(a - centre, a - centre), fmax(dot(b - centre, b - centre), dot(c - centre, c - centre)));
  return (float4)(centre.xyz, sqrt(radius_sq) * 1.000001f);
}

/* Volume of each triangle of an active body (null: of all), drawn out by its reserve. One work-item a triangle. */
kernel void proximity_boxes(uint triangle_count, global const uint4* triangles, global const uint* groups, global const uint* active_bodies,
                            global const float4* positions, float range_m, global const float* reaches, global Box* boxes,
                            global float4* spheres, volatile global uint* counters) {
  const uint i = (uint)get_global_id(0);
  if (i >= triangle_count || is_inactive(active_bodies, groups[i])) return;
  const uint4 t = triangles[i];
  const float4 a = point(positions, t.x);
  const float4 b = point(positions, t.y);
  const float4 c = point(positions, t.z);
  float4 lower = fmin(a, fmin(b, c));
  float4 upper = fmax(a, fmax(b, c));
  const float4 limit = (float4)(MAX_COORDINATE_M);
  const int4 good = (fabs(a) <= limit) & (fabs(b) <= limit) & (fabs(c) <= limit);
  if (!all(good)) {
    if (!all(fabs(a) <= limit)) atomic_max(counters + BAD_VERTEX, ~t.x);
    if (!all(fabs(b) <= limit)) atomic_max(counters + BAD_VERTEX, ~t.y);
    if (!all(fabs(c) <= limit)) atomic_max(counters + BAD_VERTEX, ~t.z);
    lower = (float4)(INFINITY);
    upper = (float4)(-INFINITY);
  }
  const float reserve = box_reserve(reach_of(reaches, groups[i], range_m), lower, upper);
  float grow = reserve;
  if (spheres && all(good)) {
    const float4 sphere = bounding_sphere(a, b, c);
    grow += sphere.w;
    lower = upper = (float4)(sphere.xyz, 0.0f);
    spheres[i] = (float4)(sphere.xyz, grow);
  }
  const Box box = {lower - (float4)(grow, grow, grow, 0.0f), upper + (float4)(grow, grow, grow, 0.0f)};
  boxes[i] = box;
}

/* Unit normal of a triangle; z for one without area. */
float3 face_normal(global const float4* positions, uint4 t) {
  const float3 a = positions[t.x].xyz;
  const float3 n = cross(positions[t.y].xyz - a, positions[t.z].xyz - a);
  const float n_sq = dot(n, n);
  return n_sq > 0.0f ? n / sqrt(n_sq) : (float3)(0.0f, 0.0f, 1.0f);
}

/* A directed edge of a triangle of a cluster. */
typedef struct {
  uint edge, from, to;
} ClusterEdge;

float cross2(float2 a, float2 b) { return a.x * b.y - a.y * b.x; }

float point_segment_dist_sq(float2 p, float2 a, float2 b) {
  const float2 d = b - a;
  const float d_sq = dot(d, d);
  const float t = d_sq > 0.0f ? clamp(dot(p - a, d) / d_sq, 0.0f, 1.0f) : 0.0f;
  const float2 offset = p - a - t * d;
  return dot(offset, offset);
}

float segments_dist_sq(float2 a, float2 b, float2 c, float2 d) {
  if (cross2(b - a, c - a) * cross2(b - a, d - a) < 0.0f && cross2(d - c, a - c) * cross2(d - c, b - c) < 0.0f) return 0.0f;
  return fmin(fmin(point_segment_dist_sq(a, c, d), point_segment_dist_sq(b, c, d)),
              fmin(point_segment_dist_sq(c, a, b), point_segment_dist_sq(d, a, b)));
}

/* Least cosine between a patch's axis and its normals. */
#define PATCH_COSINE 0.5f

/* Whether the triangles of a cluster make a patch: one connected, consistently oriented piece of one body whose normals lie in a cone of 60
   degrees, and whose outline, seen along the axis of the cone, is one loop that comes no nearer to itself than the range and has no notch
   below a right angle. Seen along the axis all triangles are turned the same way and the outline winds once, so nothing lies above
   anything: elements of a patch that are within the range are neighbours along it (proximity.md, normal cones). One work-item a cluster. */
kernel void proximity_patches(uint cluster_count, global const uint* elements, global const uint4* triangles,
                              global const uint4* triangle_edges, global const float4* positions, float range_m, global uint* is_patch,
                              volatile global uint* counters) {
  const uint cluster = (uint)get_global_id(0);
  if (cluster >= cluster_count) return;
  is_patch[cluster] = 0;
  global const uint* own = elements + (size_t)cluster * NODE_WIDTH;
  uint count = 0;
  while (count < NODE_WIDTH && own[count] != NO_ELEMENT) ++count;
  if (count < 2u) return;
  float3 axis = (float3)(0.0f);
  for (uint i = 0; i < count; ++i) {
    if (triangle_edges[own[i]].w != triangle_edges[own[0]].w) return;
    axis += face_normal(positions, triangles[own[i]]);
  }
  const float axis_sq = dot(axis, axis);
  if (!(axis_sq > 0.25f)) return;
  axis /= sqrt(axis_sq);
  ClusterEdge edges[3 * NODE_WIDTH];
  for (uint i = 0; i < count; ++i) {
    const uint4 t = triangles[own[i]];
    const uint4 e = triangle_edges[own[i]];
    if (!(dot(face_normal(positions, t), axis) > PATCH_COSINE)) return;
    edges[3 * i] = (ClusterEdge){e.x, t.x, t.y};
    edges[3 * i + 1] = (ClusterEdge){e.y, t.y, t.z};
    edges[3 * i + 2] = (ClusterEdge){e.z, t.z, t.x};
  }
  /* Triangles that share an edge, and the outline: edges without a partner. */
  uint neighbors[NODE_WIDTH];
  for (uint i = 0; i < count; ++i) neighbors[i] = 1u << i;
  ClusterEdge outline[3 * NODE_WIDTH];
  uint outline_count = 0;
  for (uint i = 0; i < 3u * count; ++i) {
    uint partners = 0;
    for (uint j = 0; j < 3u * count; ++j) {
      if (j == i || edges[j].edge != edges[i].edge) continue;
      if (edges[j].from != edges[i].to) return;
      ++partners;
      neighbors[i / 3u] |= 1u << (j / 3u);
    }
    if (partners > 1u) return;
    if (partners == 0u) outline[outline_count++] = edges[i];
  }
  uint reached = 1u;
  for (uint before = 0u; before != reached;) {
    before = reached;
    for (uint i = 0; i < count; ++i) reached |= ((reached >> i) & 1u) != 0u ? neighbors[i] : 0u;
  }
  if (reached != (1u << count) - 1u) return;
  /* The outline in order: one loop. */
  for (uint i = 0; i < outline_count; ++i) {
    const uint end = outline[i].to;
    uint next = outline_count;
    for (uint j = 0; j < outline_count; ++j) {
      if (outline[j].from != end) continue;
      if (next != outline_count) return; /* the outline touches itself */
      next = j;
    }
    const uint wanted = i + 1u < outline_count ? i + 1u : 0u;
    if (next == outline_count || next < wanted || (wanted == 0u && next != 0u)) return;
    const ClusterEdge swapped = outline[wanted];
    outline[wanted] = outline[next];
    outline[next] = swapped;
  }
  if (outline_count < 3u) return;
  /* Seen along the axis, relative to a corner. */
  const float3 helper = fabs(axis.x) < 0.6f ? (float3)(1.0f, 0.0f, 0.0f) : (float3)(0.0f, 1.0f, 0.0f);
  const float3 u = normalize(cross(helper, axis));
  const float3 v = cross(axis, u);
  const float3 origin = positions[outline[0].from].xyz;
  float2 corner[3 * NODE_WIDTH + 1];
  for (uint i = 0; i < outline_count; ++i) {
    const float3 offset = positions[outline[i].from].xyz - origin;
    corner[i] = (float2)(dot(offset, u), dot(offset, v));
  }
  corner[outline_count] = corner[0];
  const float clearance_sq = 1.001f * range_m * range_m;
  for (uint i = 0; i < outline_count; ++i) {
    const float2 in = corner[i + 1u] - corner[i];
    const float2 out = corner[i + 1u < outline_count ? i + 2u : 1u] - corner[i + 1u];
    if (cross2(in, out) <= 0.0f && dot(in, out) <= 0.0f) return;
    for (uint j = i + 2u; j < outline_count; ++j) {
      if (i == 0u && j + 1u == outline_count) continue;
      if (!(segments_dist_sq(corner[i], corner[i + 1u], corner[j], corner[j + 1u]) > clearance_sq)) return;
    }
  }
  is_patch[cluster] = 1;
  atomic_inc(counters + COUNT_PATCHES);
}

/* What a work-item has found so far and not tested. */
typedef struct {
  uint a[LANES];
  uint b[LANES];
  uint count;
} Batch;

/* Where contacts go, and what decides. */
typedef struct {
  global const uint4* triangles;
  global const uint2* edges;
  global const uint* vertex_groups;
  global const float4* positions;
  global const float4* rest_positions;
  global const float* reaches; /* see reach_of */
  float range_m;
  float rest_exclusion_sq_m2; /* 0: none */
  global const float* spare;  /* [body] or null: see drop_far_for_rest */
  float spare_more_m;         /* to be added to those above 0 */
  uint shifts;                /* of A in a key, B being below it, and SHIFT_BITS higher that of the kind */
  int element_boxes; /* boxes of vertices and edges are tested before their distance */
  int counts_pairs;  /* see ProximityOptions::counts_element_pairs */
  uint capacity;
  global ulong* keys;
  volatile global uint* counters;
  uint tests, rest_excluded;
} Search;

#define SHIFT_BITS 8u
uint a_shift_of(const Search* search) { return search->shifts & ((1u << SHIFT_BITS) - 1u); }
uint kind_shift_of(const Search* search) { return search->shifts >> SHIFT_BITS; }

/* Coordinates of one corner in all lanes. */
typedef struct {
  float x[LANES], y[LANES], z[LANES];
} Gathered;

void gather_point(Gathered* to, uint lane, float4 p) {
  to->x[lane] = p.x;
  to->y[lane] = p.y;
  to->z[lane] = p.z;
}
LaneVector gathered(const Gathered* from) {
  const LaneVector v = {LANE_LOAD(from->x), LANE_LOAD(from->y), LANE_LOAD(from->z)};
  return v;
}

/* Distances of a batch in the given configuration; lanes past its count repeat the last. */
Closest batch_vertex_triangle(const Search* search, const Batch* batch, global const float4* positions) {
  Gathered p, a, b, c;
  for (uint lane = 0; lane < LANES; ++lane) {
    const uint slot = min(lane, batch->count - 1u);
    const uint4 t = search->triangles[batch->b[slot]];
    gather_point(&p, lane, positions[batch->a[slot]]);
    gather_point(&a, lane, positions[t.x]);
    gather_point(&b, lane, positions[t.y]);
    gather_point(&c, lane, positions[t.z]);
  }
  return closest_vertex_triangle(gathered(&p), gathered(&a), gathered(&b), gathered(&c));
}

Closest batch_edge_edge(const Search* search, const Batch* batch, global const float4* positions) {
  Gathered p0, p1, q0, q1;
  for (uint lane = 0; lane < LANES; ++lane) {
    const uint slot = min(lane, batch->count - 1u);
    const uint2 p = search->edges[batch->a[slot]];
    const uint2 q = search->edges[batch->b[slot]];
    gather_point(&p0, lane, positions[p.x]);
    gather_point(&p1, lane, positions[p.y]);
    gather_point(&q0, lane, positions[q.x]);
    gather_point(&q1, lane, positions[q.y]);
  }
  return closest_edge_edge(gathered(&p0), gathered(&p1), gathered(&q0), gathered(&q1));
}

/* Leaves those of `hits` whose distance is below the sum of their bodies' reaches; returns how many. */
uint drop_beyond_reaches(const Search* search, const Batch* batch, uint kind, LaneFloat dist_sq, int* hits) {
  float distances_sq[LANES];
  LANE_STORE(dist_sq, distances_sq);
  uint found = 0;
  for (uint lane = 0; lane < batch->count; ++lane) {
    if (hits[lane] == 0) continue;
    const uint a = kind == PALPATE_VERTEX_TRIANGLE ? batch->a[lane] : search->edges[batch->a[lane]].x;
    const uint b = kind == PALPATE_VERTEX_TRIANGLE ? search->triangles[batch->b[lane]].x : search->edges[batch->b[lane]].x;
    const float reach = reach_of(search->reaches, search->vertex_groups[a], search->range_m) +
                        reach_of(search->reaches, search->vertex_groups[b], search->range_m);
    if (distances_sq[lane] < reach * reach) {
      ++found;
    } else {
      hits[lane] = 0;
    }
  }
  return found;
}

/* Leaves those of `hits` that a body with a spare s > 0 has with itself if their distance is below half of that at rest, and s. */
uint drop_far_for_rest(const Search* search, const Batch* batch, uint kind, LaneFloat dist_sq, int* hits) {
  float spare[LANES];
  bool is_asked = false;
  uint found = 0;
  for (uint lane = 0; lane < batch->count; ++lane) {
    spare[lane] = 0.0f;
    if (hits[lane] == 0) continue;
    ++found;
    const uint a = kind == PALPATE_VERTEX_TRIANGLE ? batch->a[lane] : search->edges[batch->a[lane]].x;
    const uint b = kind == PALPATE_VERTEX_TRIANGLE ? search->triangles[batch->b[lane]].x : search->edges[batch->b[lane]].x;
    const uint group = search->vertex_groups[a];
    if (group != search->vertex_groups[b]) continue;
    const float of_body = search->spare[group & PALPATE_GROUP_MASK];
    if (!(of_body > 0.0f)) continue;
    spare[lane] = of_body + search->spare_more_m;
    is_asked = true;
  }
  if (!is_asked) return found;
  const Closest rest = kind == PALPATE_VERTEX_TRIANGLE ? batch_vertex_triangle(search, batch, search->rest_positions)
                                                       : batch_edge_edge(search, batch, search->rest_positions);
  float distances_sq[LANES], rest_sq[LANES];
  LANE_STORE(dist_sq, distances_sq);
  LANE_STORE(rest.dist_sq, rest_sq);
  for (uint lane = 0; lane < batch->count; ++lane) {
    if (spare[lane] == 0.0f) continue;
    const float bound = 0.5f * sqrt(rest_sq[lane]) + spare[lane];
    if (distances_sq[lane] < bound * bound) continue;
    hits[lane] = 0;
    --found;
  }
  return found;
}

/* Tests a batch and appends a key for each pair within the range that is not excluded by its distance at rest. */
void flush_batch(Search* search, Batch* batch, uint kind) {
  if (batch->count == 0u) return;
  search->tests += batch->count;
  const Closest now = kind == PALPATE_VERTEX_TRIANGLE ? batch_vertex_triangle(search, batch, search->positions)
                                                      : batch_edge_edge(search, batch, search->positions);
  const LaneMask is_near = now.dist_sq < search->range_m * search->range_m;
  int hits[LANES];
  LANE_STORE(is_near, hits);
  uint found = 0;
  for (uint lane = 0; lane < batch->count; ++lane) found += hits[lane] != 0 ? 1u : 0u;
  if (found != 0u && search->reaches) found = drop_beyond_reaches(search, batch, kind, now.dist_sq, hits);
  if (found != 0u && search->spare) found = drop_far_for_rest(search, batch, kind, now.dist_sq, hits);
  if (found != 0u && search->rest_exclusion_sq_m2 > 0.0f) {
    const Closest rest = kind == PALPATE_VERTEX_TRIANGLE ? batch_vertex_triangle(search, batch, search->rest_positions)
                                                         : batch_edge_edge(search, batch, search->rest_positions);
    int excluded[LANES];
    LANE_STORE(rest.dist_sq < search->rest_exclusion_sq_m2, excluded);
    for (uint lane = 0; lane < batch->count; ++lane) {
      if (hits[lane] == 0 || excluded[lane] == 0) continue;
      const uint a = kind == PALPATE_VERTEX_TRIANGLE ? batch->a[lane] : search->edges[batch->a[lane]].x;
      const uint b = kind == PALPATE_VERTEX_TRIANGLE ? search->triangles[batch->b[lane]].x : search->edges[batch->b[lane]].x;
      if (search->vertex_groups[a] != search->vertex_groups[b]) continue;
      hits[lane] = 0;
      --found;
      search->rest_excluded += 1u;
    }
  }
  if (found != 0u) {
    uint place = atomic_add(search->counters + COUNT_CONTACTS, found);
    for (uint lane = 0; lane < batch->count; ++lane) {
      if (hits[lane] == 0) continue;
      if (place < search->capacity) {
        search->keys[place] = ((ulong)kind << kind_shift_of(search)) | ((ulong)batch->a[lane] << a_shift_of(search)) | batch->b[lane];
      }
      ++place;
    }
  }
  batch->count = 0;
}

void add_to_batch(Search* search, Batch* batch, uint kind, uint a, uint b) {
  batch->a[batch->count] = a;
  batch->b[batch->count] = b;
  if (++batch->count == LANES) flush_batch(search, batch, kind);
}

uint component(uint4 v, uint k) { return k == 0u ? v.x : k == 1u ? v.y : v.z; }

int has_corner(uint4 t, uint vertex) { return vertex == t.x || vertex == t.y || vertex == t.z; }

/* Corners, and edges, that the triangles of a cluster own: at most so many. */
#define CLUSTER_FEATURES 48u
#define FEATURE_FLOATS (CLUSTER_FEATURES * 6u)

/* Those of one cluster. */
typedef struct {
  global const float* boxes;   /* drawn out by the reserve of their triangle; laid out as nodes of NODE_WIDTH boxes */
  global const uint* elements; /* of edges, with both ends after them, see ends_of */
  global const uint* lanes;    /* of their triangles */
  uint count;
} FeatureList;

/* Those of all clusters: boxes, lanes and counts are [cluster][2], corners and edges; elements [cluster][4], corners, edges and their
   ends. */
typedef struct {
  global const float* boxes;
  global const uint* elements;
  global const uint* lanes;
  global const uint* counts;
} Features;

FeatureList corners_of(const Features* all, uint cluster) {
  const size_t at = cluster;
  const FeatureList corners = {all->boxes + 2u * at * FEATURE_FLOATS, all->elements + 4u * at * CLUSTER_FEATURES,
                               all->lanes + 2u * at * CLUSTER_FEATURES, all->counts[2u * at]};
  return corners;
}
FeatureList edges_of(const Features* all, uint cluster) {
  const size_t at = cluster;
  const FeatureList edges = {all->boxes + (2u * at + 1u) * FEATURE_FLOATS, all->elements + (4u * at + 1u) * CLUSTER_FEATURES,
                             all->lanes + (2u * at + 1u) * CLUSTER_FEATURES, all->counts[2u * at + 1u]};
  return edges;
}

/* The ends 0 and 1 of edges of a list. */
global const uint* ends_of(const FeatureList* edges, uint end) { return edges->elements + (1u + end) * CLUSTER_FEATURES; }

/* Box around a and b, drawn out, as that of feature `i`. */
void store_feature_box(global float* boxes, uint i, float4 a, float4 b, float reserve) {
  store_lane_box(boxes, i / NODE_WIDTH, i % NODE_WIDTH, min(a, b) - reserve, max(a, b) + reserve);
}

/* Features of the triangles of each cluster whose body is active (null: of all). boxes, elements, lanes, counts: see Features. Work-item:
   cluster. */
kernel void proximity_features(uint cluster_count, global const uint* cluster_elements, global const uint4* triangles,
                               global const uint4* triangle_edges, global const uint* active_bodies, global const float4* positions,
                               float range_m, global const float* reaches, global float* boxes, global uint* elements, global uint* lanes,
                               global uint* counts) {
  const uint cluster = (uint)get_global_id(0);
  if (cluster >= cluster_count) return;
  const size_t at = cluster;
  global float* corner_boxes = boxes + 2u * at * FEATURE_FLOATS;
  global float* edge_boxes = corner_boxes + FEATURE_FLOATS;
  global uint* corners = elements + 4u * at * CLUSTER_FEATURES;
  global uint* own_edges = corners + CLUSTER_FEATURES;
  global uint* corner_lanes = lanes + 2u * at * CLUSTER_FEATURES;
  global uint* edge_lanes = corner_lanes + CLUSTER_FEATURES;
  uint corner_count = 0;
  uint edge_count = 0;
  for (uint lane = 0; lane < NODE_WIDTH; ++lane) {
    const uint triangle = cluster_elements[at * NODE_WIDTH + lane];
    if (triangle == NO_ELEMENT) continue;
    const uint4 e = triangle_edges[triangle];
    if (is_inactive(active_bodies, e.w)) continue;
    const uint4 t = triangles[triangle];
    const float4 corner[4] = {point(positions, t.x), point(positions, t.y), point(positions, t.z), point(positions, t.x)};
    const float reserve = box_reserve(reach_of(reaches, e.w, range_m), min(corner[0], min(corner[1], corner[2])),
                                      max(corner[0], max(corner[1], corner[2])));
    for (uint k = 0; k < 3u; ++k) {
      if (((t.w >> k) & 1u) != 0u) {
        store_feature_box(corner_boxes, corner_count, corner[k], corner[k], reserve);
        corners[corner_count] = component(t, k);
        corner_lanes[corner_count++] = lane;
      }
      if (((t.w >> (3u + k)) & 1u) != 0u) {
        store_feature_box(edge_boxes, edge_count, corner[k], corner[k + 1u], reserve);
        own_edges[edge_count] = component(e, k);
        own_edges[CLUSTER_FEATURES + edge_count] = component(t, k);
        own_edges[2u * CLUSTER_FEATURES + edge_count] = component(t, k == 2u ? 0u : k + 1u);
        edge_lanes[edge_count++] = lane;
      }
    }
  }
  counts[2u * at] = corner_count;
  counts[2u * at + 1u] = edge_count;
}

/* Two clusters, and which triangles of the one may touch which of the other. */
typedef struct {
  uint p, q;
  global const float* nodes;
  global const uint* p_elements;
  global const uint* q_elements;
  const Features* features;
  float4 q_lower, q_upper; /* box of all of Q */
  uint rows;               /* of P that meet that box: those with a mask that is not 0 are among them */
  uint masks[NODE_WIDTH];  /* [row of P] lanes of Q */
} ClusterPair;

/* Those of NODE_WIDTH features, from feature vector * NODE_WIDTH on, that are there. */
uint features_there(const FeatureList* list, uint vector) {
  const uint left = list->count - vector * NODE_WIDTH;
  return left >= NODE_WIDTH ? ALL_LANES : (1u << left) - 1u;
}

/* Those of NODE_WIDTH features of P that may meet something of Q. */
uint features_near_q(const Search* search, const FeatureList* list, uint vector, const ClusterPair* pair) {
  const uint there = features_there(list, vector);
  if (!search->element_boxes) return there;
  const LaneBoxes boxes = load_lane_boxes(list->boxes, vector);
  return there & lanes_overlapping(&boxes, pair->q_lower, pair->q_upper);
}

/* Whether the triangles of NODE_WIDTH features are in a mask of lanes. */
int16 are_in_mask(const FeatureList* list, uint vector, uint mask) {
  return (((uint16)(mask) >> vload16(vector, list->lanes)) & (uint16)(1u)) != (uint16)(0u);
}

/* Pairs of a corner of P and a triangle of Q whose boxes overlap. */
void add_corners_of_p(Search* search, Batch* batch, const ClusterPair* pair, const LaneBoxes* q_boxes) {
  const FeatureList corners = corners_of(pair->features, pair->p);
  for (uint vector = 0; vector * NODE_WIDTH < corners.count; ++vector) {
    for (uint near = features_near_q(search, &corners, vector, pair); near != 0u; near &= near - 1u) {
      const uint lane = lowest_lane(near);
      const uint i = vector * NODE_WIDTH + lane;
      uint lanes = pair->masks[corners.lanes[i]];
      if (lanes != 0u && search->element_boxes) {
        lanes &= lanes_overlapping(q_boxes, lane_lower(corners.boxes, vector, lane), lane_upper(corners.boxes, vector, lane));
      }
      for (; lanes != 0u; lanes &= lanes - 1u) {
        const uint v = corners.elements[i];
        const uint triangle = pair->q_elements[lowest_lane(lanes)];
        if (!has_corner(search->triangles[triangle], v)) add_to_batch(search, batch, PALPATE_VERTEX_TRIANGLE, v, triangle);
      }
    }
  }
}

/* Pairs of a corner of Q and a triangle of P whose boxes overlap. */
void add_corners_of_q(Search* search, Batch* batch, const ClusterPair* pair) {
  const FeatureList corners = corners_of(pair->features, pair->q);
  for (uint vector = 0; vector * NODE_WIDTH < corners.count; ++vector) {
    const LaneBoxes boxes = load_lane_boxes(corners.boxes, vector);
    const uint16 vertices = vload16(vector, corners.elements);
    for (uint rows = pair->rows; rows != 0u; rows &= rows - 1u) {
      const uint row = lowest_lane(rows);
      uint found = features_there(&corners, vector);
      if (search->element_boxes) {
        found &= lanes_overlapping(&boxes, lane_lower(pair->nodes, pair->p, row), lane_upper(pair->nodes, pair->p, row));
      }
      if (found == 0u) continue;
      const uint triangle = pair->p_elements[row];
      const uint4 t = search->triangles[triangle];
      const int16 is_corner = (vertices == (uint16)(t.x)) | (vertices == (uint16)(t.y)) | (vertices == (uint16)(t.z));
      found &= lane_bits(are_in_mask(&corners, vector, pair->masks[row]) & ~is_corner);
      for (; found != 0u; found &= found - 1u) {
        add_to_batch(search, batch, PALPATE_VERTEX_TRIANGLE, corners.elements[vector * NODE_WIDTH + lowest_lane(found)], triangle);
      }
    }
  }
}

/* Pairs of an edge of P and NODE_WIDTH edges of Q, from vector * NODE_WIDTH on, whose boxes overlap: those of edge `lane` of P's p_vector
   with the boxes `boxes`. */
void add_edges_of_p(Search* search, Batch* batch, const ClusterPair* pair, const FeatureList* p_edges, uint p_vector, uint lane,
                    const FeatureList* q_edges, uint vector, const LaneBoxes* boxes) {
  const uint j = p_vector * NODE_WIDTH + lane;
  const uint mask = pair->masks[p_edges->lanes[j]];
  if (mask == 0u) return;
  uint found = features_there(q_edges, vector);
  if (search->element_boxes) {
    found &= lanes_overlapping(boxes, lane_lower(p_edges->boxes, p_vector, lane), lane_upper(p_edges->boxes, p_vector, lane));
  }
  if (found == 0u) return;
  const uint16 begins = vload16(vector, ends_of(q_edges, 0u));
  const uint16 ends = vload16(vector, ends_of(q_edges, 1u));
  const uint16 from = (uint16)(ends_of(p_edges, 0u)[j]);
  const uint16 to = (uint16)(ends_of(p_edges, 1u)[j]);
  const int16 are_neighbors = (begins == from) | (begins == to) | (ends == from) | (ends == to);
  found &= lane_bits(are_in_mask(q_edges, vector, mask) & ~are_neighbors);
  for (; found != 0u; found &= found - 1u) {
    const uint a = p_edges->elements[j];
    const uint b = q_edges->elements[vector * NODE_WIDTH + lowest_lane(found)];
    add_to_batch(search, batch, PALPATE_EDGE_EDGE, min(a, b), max(a, b));
  }
}

/* Pairs of an edge of each whose boxes overlap. */
void add_edges(Search* search, Batch* batch, const ClusterPair* pair) {
  const FeatureList p_edges = edges_of(pair->features, pair->p);
  const FeatureList q_edges = edges_of(pair->features, pair->q);
  for (uint vector = 0; vector * NODE_WIDTH < q_edges.count; ++vector) {
    const LaneBoxes boxes = load_lane_boxes(q_edges.boxes, vector);
    for (uint p_vector = 0; p_vector * NODE_WIDTH < p_edges.count; ++p_vector) {
      for (uint near = features_near_q(search, &p_edges, p_vector, pair); near != 0u; near &= near - 1u) {
        add_edges_of_p(search, batch, pair, &p_edges, p_vector, lowest_lane(near), &q_edges, vector, &boxes);
      }
    }
  }
}

/* Elementary tests of all pairs of triangles in the masks, by who owns what. `lanes`: those in any mask. */
uint count_element_pairs(const Search* search, const ClusterPair* pair, uint lanes) {
  uint owners[6] = {0u, 0u, 0u, 0u, 0u, 0u}; /* lanes of Q that own their corner k or edge 3 + k */
  for (; lanes != 0u; lanes &= lanes - 1u) {
    const uint lane = lowest_lane(lanes);
    const uint owned = search->triangles[pair->q_elements[lane]].w;
    for (uint k = 0; k < 6u; ++k) owners[k] |= ((owned >> k) & 1u) << lane;
  }
  uint count = 0;
  for (uint rows = pair->rows; rows != 0u; rows &= rows - 1u) {
    const uint row = lowest_lane(rows);
    const uint mask = pair->masks[row];
    const uint owned = search->triangles[pair->p_elements[row]].w;
    uint edges = 0;
    for (uint k = 0; k < 3u; ++k) {
      count += popcount(owners[k] & mask);
      edges += popcount(owners[3u + k] & mask);
    }
    count += popcount(owned & 7u) * popcount(mask) + popcount(owned & 56u) * edges;
  }
  return count;
}

/* Those of the lanes in `mask` whose bounding sphere meets that of triangle `own`. */
uint lanes_with_near_sphere(global const float4* spheres, uint own, global const uint* q_elements, uint mask) {
  const float4 sphere = spheres[own];
  for (uint lanes = mask; lanes != 0u; lanes &= lanes - 1u) {
    const uint lane = lowest_lane(lanes);
    const float4 other = spheres[q_elements[lane]];
    const float3 between = other.xyz - sphere.xyz;
    const float reach = sphere.w + other.w;
    if (!(dot(between, between) <= reach * reach * 1.000001f)) mask &= ~(1u << lane);
  }
  return mask;
}

/* Lanes of a cluster whose body is stale. */
uint stale_lanes(global const uint* node_groups, uint cluster, global const uint* stale_bodies) {
  global const uint* groups = node_groups + (size_t)cluster * NODE_GROUPS;
  uint lanes = 0;
  for (uint lane = 0; lane < NODE_WIDTH; ++lane) {
    /* Lanes without an element have no group. */
    const int is_empty = groups[lane] > groups[NODE_WIDTH + lane];
    if (!is_empty && stale_bodies[groups[lane] & PALPATE_GROUP_MASK] != 0u) lanes |= 1u << lane;
  }
  return lanes;
}

/* The elements of a key: see proximity_detect. */
typedef struct {
  uint kind, a, b;
} PairKey;

PairKey pair_of_key(ulong key, uint a_shift, uint kind_shift) {
  const PairKey pair = {(uint)(key >> kind_shift), (uint)(key >> a_shift) & (uint)((1u << (kind_shift - a_shift)) - 1u),
                        (uint)key & ((1u << a_shift) - 1u)};
  return pair;
}

/* The groups of their bodies. */
uint2 groups_of_pair(PairKey pair, global const uint4* triangles, global const uint2* edges, global const uint* vertex_groups) {
  const int is_vertex = pair.kind == PALPATE_VERTEX_TRIANGLE;
  return (uint2)(vertex_groups[is_vertex ? pair.a : edges[pair.a].x], vertex_groups[is_vertex ? triangles[pair.b].x : edges[pair.b].x]) &
         (uint2)(PALPATE_GROUP_MASK);
}

/* Appends the keys of an earlier run of whose elements' bodies none is stale. One work-item takes KEYS_KEPT_TOGETHER in a row. */
#define KEYS_KEPT_TOGETHER 64
kernel void proximity_keep(uint count, global const ulong* known_keys, uint a_shift, uint kind_shift, global const uint4* triangles,
                           global const uint2* edges, global const uint* vertex_groups, global const uint* stale_bodies, global ulong* keys,
                           volatile global uint* counters) {
  const size_t begin = get_global_id(0) * KEYS_KEPT_TOGETHER;
  if (begin >= count) return;
  const uint size = (uint)min((size_t)KEYS_KEPT_TOGETHER, count - begin);
  ulong kept[KEYS_KEPT_TOGETHER];
  uint kept_count = 0;
  for (uint i = 0; i < size; ++i) {
    const ulong key = known_keys[begin + i];
    const uint2 groups = groups_of_pair(pair_of_key(key, a_shift, kind_shift), triangles, edges, vertex_groups);
    kept[kept_count] = key;
    kept_count += (stale_bodies[groups.x] | stale_bodies[groups.y]) == 0u ? 1u : 0u;
  }
  if (kept_count == 0u) return;
  const uint place = atomic_add(counters + COUNT_CONTACTS, kept_count);
  for (uint i = 0; i < kept_count; ++i) keys[place + i] = kept[i];
}

/* Appends a key (kind, a, b) for each pair of elements within the range: one work-item takes `chunk` cluster pairs in a row. found, or
   null: how many pairs there are, and whether they are refused; if so, or if they are more than pair_count, nothing is done. Counts past
   the capacity; stops counting somewhere past `max_contacts`, which the host refuses in any case. stale_bodies, or null: pairs of two
   bodies that are not are left out. */
kernel void proximity_detect(global const float* nodes, global const uint* node_groups, global const uint* elements,
                             global const UInt2* cluster_pairs, uint pair_count, global const uint* found, uint chunk,
                             global const float* feature_boxes, global const uint* feature_elements, global const uint* feature_lanes,
                             global const uint* feature_counts, global const uint4* triangles, global const uint2* edges,
                             global const uint* vertex_groups, global const uint* apart, global const float4* spheres,
                             global const uint* is_patch, global const uint* stale_bodies, global const float4* positions,
                             global const float4* rest_positions, float range_m, global const float* reaches, float rest_exclusion_m,
                             global const float* spare, float spare_more_m, int element_boxes, int counts_pairs, uint a_shift,
                             uint kind_shift, uint capacity, uint max_contacts, global ulong* keys, volatile global uint* counters) {
  const uint begin = (uint)get_global_id(0) * chunk;
  if (found) pair_count = found[1] != 0u || found[0] > pair_count ? 0u : found[0];
  const uint end = min(begin + chunk, pair_count);
  if (begin >= pair_count) return;
  Search search = {.triangles = triangles,
                   .edges = edges,
                   .vertex_groups = vertex_groups,
                   .positions = positions,
                   .rest_positions = rest_positions,
                   .reaches = reaches,
                   .range_m = range_m,
                   .rest_exclusion_sq_m2 = rest_exclusion_m * rest_exclusion_m,
                   .spare = spare,
                   .spare_more_m = spare_more_m,
                   .shifts = a_shift | kind_shift << SHIFT_BITS,
                   .element_boxes = element_boxes,
                   .counts_pairs = counts_pairs,
                   .capacity = capacity,
                   .keys = keys,
                   .counters = counters};
  const Features features = {feature_boxes, feature_elements, feature_lanes, feature_counts};
  uint triangle_pairs = 0;
  uint element_pairs = 0;
  Batch near_triangles;
  Batch near_edges;
  near_triangles.count = 0;
  near_edges.count = 0;
  for (uint i = begin; i < end; ++i) {
    if (atomic_or(counters + COUNT_CONTACTS, 0u) > max_contacts) break;
    const UInt2 pair = cluster_pairs[i];
    if (is_patch && pair.x == pair.y && is_patch[pair.x] != 0u) continue;
    const uint p_stale = stale_bodies ? stale_lanes(node_groups, pair.x, stale_bodies) : ALL_LANES;
    const uint q_stale = stale_bodies ? stale_lanes(node_groups, pair.y, stale_bodies) : ALL_LANES;
    if ((p_stale | q_stale) == 0u) continue;
    const LaneBoxes q_lanes = load_lane_boxes(nodes, pair.y);
    ClusterPair clusters = {.p = pair.x,
                            .q = pair.y,
                            .nodes = nodes,
                            .p_elements = elements + (size_t)pair.x * NODE_WIDTH,
                            .q_elements = elements + (size_t)pair.y * NODE_WIDTH,
                            .features = &features};
    clusters.q_lower = (float4)(min_of_lanes(q_lanes.lower_x), min_of_lanes(q_lanes.lower_y), min_of_lanes(q_lanes.lower_z), 0.0f);
    clusters.q_upper = (float4)(max_of_lanes(q_lanes.upper_x), max_of_lanes(q_lanes.upper_y), max_of_lanes(q_lanes.upper_z), 0.0f);
    const LaneBoxes p_lanes = load_lane_boxes(nodes, pair.x);
    const uint near_rows = lanes_overlapping(&p_lanes, clusters.q_lower, clusters.q_upper);
    uint any = 0;
    clusters.rows = 0;
    for (uint row = 0; row < NODE_WIDTH; ++row) {
      clusters.masks[row] = 0;
      if (((near_rows >> row) & 1u) == 0u) continue;
      uint mask = partners_of_row(&q_lanes, nodes, node_groups, pair.x, row, node_groups, pair.y, pair.x == pair.y, apart);
      if (((p_stale >> row) & 1u) == 0u) mask &= q_stale;
      if (spheres && mask != 0u) mask = lanes_with_near_sphere(spheres, clusters.p_elements[row], clusters.q_elements, mask);
      triangle_pairs += popcount(mask);
      any |= mask;
      clusters.masks[row] = mask;
      clusters.rows |= mask != 0u ? 1u << row : 0u;
    }
    if (any == 0u) continue;
    if (search.counts_pairs) element_pairs += count_element_pairs(&search, &clusters, any);
    add_corners_of_p(&search, &near_triangles, &clusters, &q_lanes);
    add_corners_of_q(&search, &near_triangles, &clusters);
    add_edges(&search, &near_edges, &clusters);
  }
  flush_batch(&search, &near_triangles, PALPATE_VERTEX_TRIANGLE);
  flush_batch(&search, &near_edges, PALPATE_EDGE_EDGE);
  add_wide(counters + COUNT_TRIANGLE_PAIRS, triangle_pairs);
  add_wide(counters + COUNT_ELEMENT_PAIRS, element_pairs);
  add_wide(counters + COUNT_TESTS, search.tests);
  add_wide(counters + COUNT_REST_EXCLUDED, search.rest_excluded);
}

/* Appends the keys of a list whose elements are within the range now: one work-item takes `chunk` of them in a row. list_count: how many
   there are, or null: list_capacity; if they are more than that, nothing is done. used_bodies [body], or null: only pairs of one body for
   which it is 1. */
kernel void proximity_listed(global const ulong* list, global const uint* list_count, uint list_capacity, uint chunk,
                             global const uint* used_bodies, global const uint4* triangles, global const uint2* edges,
                             global const uint* vertex_groups, global const float4* positions, global const float4* rest_positions,
                             float range_m, global const float* reaches, global const float* spare, uint a_shift, uint kind_shift,
                             uint capacity, global ulong* keys, volatile global uint* counters) {
  const uint count = !list_count ? list_capacity : list_count[0] > list_capacity ? 0u : list_count[0];
  const uint begin = (uint)get_global_id(0) * chunk;
  if (begin >= count) return;
  const uint end = min(begin + chunk, count);
  Search search = {.triangles = triangles,
                   .edges = edges,
                   .vertex_groups = vertex_groups,
                   .positions = positions,
                   .rest_positions = rest_positions,
                   .reaches = reaches,
                   .range_m = range_m,
                   .rest_exclusion_sq_m2 = 0.0f,
                   .spare = spare,
                   .spare_more_m = 0.0f,
                   .shifts = a_shift | kind_shift << SHIFT_BITS,
                   .element_boxes = 0,
                   .counts_pairs = 0,
                   .capacity = capacity,
                   .keys = keys,
                   .counters = counters};
  Batch near_triangles;
  Batch near_edges;
  near_triangles.count = 0;
  near_edges.count = 0;
  for (uint i = begin; i < end; ++i) {
    const PairKey pair = pair_of_key(list[i], a_shift, kind_shift);
    if (used_bodies) {
      const uint2 groups = groups_of_pair(pair, triangles, edges, vertex_groups);
      if (groups.x != groups.y || used_bodies[groups.x] == 0u) continue;
    }
    add_to_batch(&search, pair.kind == PALPATE_VERTEX_TRIANGLE ? &near_triangles : &near_edges, pair.kind, pair.a, pair.b);
  }
  flush_batch(&search, &near_triangles, PALPATE_VERTEX_TRIANGLE);
  flush_batch(&search, &near_edges, PALPATE_EDGE_EDGE);
  add_wide(counters + COUNT_TESTS, search.tests);
}

/* Below this share of the elements' size a distance vector is mostly rounding, and the direction is taken from the elements. */
#define SURE_DIRECTION 1e-4f

int is_sure_direction(float dist_sq, float size_sq) { return dist_sq > SURE_DIRECTION * SURE_DIRECTION * size_sq; }

/* The mean of the normals of an edge's triangles; of the first where they cancel out. */
float3 normal_at_edge(uint2 range, global const uint* edge_triangles, global const uint4* triangles, global const float4* positions) {
  float3 sum = (float3)(0.0f);
  for (uint k = range.x; k < range.y; ++k) sum += face_normal(positions, triangles[edge_triangles[k]]);
  const float sum_sq = dot(sum, sum);
  return sum_sq > 1e-6f ? sum / sqrt(sum_sq) : face_normal(positions, triangles[edge_triangles[range.x]]);
}

/* Direction from A to B. Where the distance is not sure of it: `across` is perpendicular to both elements where the nearest points are
   inside them, else 0; `outside` points out of B, so that -outside is the choice where nothing tells the side. */
float3 contact_direction(float3 offset, float dist_sq, float size_sq, float3 across, float3 outside) {
  if (is_sure_direction(dist_sq, size_sq)) return offset / sqrt(dist_sq);
  const float across_sq = dot(across, across);
  if (across_sq > 0.0f) {
    const float along = dot(offset, across);
    const float side = along != 0.0f ? along : -dot(outside, across);
    return across * ((side < 0.0f ? -1.0f : 1.0f) / sqrt(across_sq));
  }
  return dist_sq > 0.0f ? offset / sqrt(dist_sq) : -outside;
}

/* Contact records of sorted keys. One work-item takes LANES in a row. */
kernel void proximity_records(uint count, global const ulong* keys, uint a_shift, uint kind_shift, global const uint4* triangles,
                              global const uint2* edges, global const uint* vertex_groups, global const uint2* edge_triangle_range,
                              global const uint* edge_triangles, global const float4* positions, global SurfaceContact* contacts) {
  const size_t begin = get_global_id(0) * LANES;
  if (begin >= count) return;
  const uint size = (uint)min((size_t)LANES, count - begin);
  /* Both kinds are worked out for all lanes where they meet; that is one work-item. */
  const uint first_kind = (uint)(keys[begin] >> kind_shift);
  const uint last_kind = (uint)(keys[begin + size - 1u] >> kind_shift);
  for (uint kind = first_kind; kind <= last_kind; ++kind) {
    Gathered points[4];
    for (uint lane = 0; lane < LANES; ++lane) {
      const ulong key = keys[begin + min(lane, size - 1u)];
      const PairKey pair = pair_of_key(key, a_shift, kind_shift);
      /* A key of the other kind is any pair here; its numbers may be out of range. */
      uint4 v = (uint4)(0u);
      if (pair.kind == kind && kind == PALPATE_VERTEX_TRIANGLE) {
        v = (uint4)(pair.a, triangles[pair.b].xyz);
      } else if (pair.kind == kind) {
        v = (uint4)(edges[pair.a], edges[pair.b]);
      }
      gather_point(&points[0], lane, positions[v.x]);
      gather_point(&points[1], lane, positions[v.y]);
      gather_point(&points[2], lane, positions[v.z]);
      gather_point(&points[3], lane, positions[v.w]);
    }
    const LaneVector x0 = gathered(&points[0]);
    const LaneVector x1 = gathered(&points[1]);
    const LaneVector x2 = gathered(&points[2]);
    const LaneVector x3 = gathered(&points[3]);
    const Closest closest = kind == PALPATE_VERTEX_TRIANGLE ? closest_vertex_triangle(x0, x1, x2, x3) : closest_edge_edge(x0, x1, x2, x3);
    Gathered offsets;
    float dist_sq[LANES], s[LANES], t[LANES];
    int is_interior[LANES];
    LANE_STORE(closest.offset.x, offsets.x);
    LANE_STORE(closest.offset.y, offsets.y);
    LANE_STORE(closest.offset.z, offsets.z);
    LANE_STORE(closest.dist_sq, dist_sq);
    LANE_STORE(closest.s, s);
    LANE_STORE(closest.t, t);
    LANE_STORE(closest.is_interior, is_interior);
    for (uint lane = 0; lane < size; ++lane) {
      const PairKey pair = pair_of_key(keys[begin + lane], a_shift, kind_shift);
      if (pair.kind != kind) continue;
      SurfaceContact contact;
      contact.kind = kind;
      contact.a = pair.a;
      contact.b = pair.b;
      const float3 offset = (float3)(offsets.x[lane], offsets.y[lane], offsets.z[lane]);
      float3 across = (float3)(0.0f);
      float3 outside = (float3)(0.0f);
      float3 d, e; /* along both edges, or two of the triangle's */
      if (kind == PALPATE_VERTEX_TRIANGLE) {
        const uint4 tri = triangles[contact.b];
        contact.vertices = (uint4)(contact.a, tri.xyz);
        contact.weights = (float4)(fmax(1.0f - s[lane] - t[lane], 0.0f), s[lane], t[lane], 1.0f);
        d = positions[tri.y].xyz - positions[tri.x].xyz;
        e = positions[tri.z].xyz - positions[tri.x].xyz;
      } else {
        const uint2 p = edges[contact.a];
        const uint2 q = edges[contact.b];
        contact.vertices = (uint4)(p, q);
        contact.weights = (float4)(1.0f - s[lane], s[lane], 1.0f - t[lane], t[lane]);
        d = positions[p.y].xyz - positions[p.x].xyz;
        e = positions[q.y].xyz - positions[q.x].xyz;
      }
      const float size_sq = fmax(dot(d, d), dot(e, e));
      if (!is_sure_direction(dist_sq[lane], size_sq)) {
        if (kind == PALPATE_VERTEX_TRIANGLE) {
          outside = face_normal(positions, triangles[contact.b]);
        } else {
          outside = normal_at_edge(edge_triangle_range[contact.b], edge_triangles, triangles, positions);
        }
        if (is_interior[lane]) across = cross(d, e);
      }
      contact.group_a = vertex_groups[contact.vertices.x] & PALPATE_GROUP_MASK;
      const float3 direction = contact_direction(offset, dist_sq[lane], size_sq, across, outside);
      contact.normal = (float4)(direction, sqrt(dist_sq[lane]));
      contacts[begin + lane] = contact;
    }
  }
}

/* Reduction to the nearest contact of each element: slots for the vertices, then for the edges. A distance is >= 0, so that its bits have
   its order. */
kernel void proximity_nearest_distance(uint count, global const SurfaceContact* contacts, uint vertex_count,
                                       volatile global uint* nearest) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const uint distance = as_uint(contacts[i].normal.w);
  if (contacts[i].kind == PALPATE_VERTEX_TRIANGLE) {
    atomic_min(nearest + contacts[i].a, distance);
  } else {
    atomic_min(nearest + vertex_count + contacts[i].a, distance);
    atomic_min(nearest + vertex_count + contacts[i].b, distance);
  }
}

/* The first contact of each element at that distance. */
kernel void proximity_nearest_contact(uint count, global const SurfaceContact* contacts, uint vertex_count, global const uint* nearest,
                                      volatile global uint* nearest_contact) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const uint distance = as_uint(contacts[i].normal.w);
  if (contacts[i].kind == PALPATE_VERTEX_TRIANGLE) {
    if (nearest[contacts[i].a] == distance) atomic_min(nearest_contact + contacts[i].a, i);
  } else {
    const size_t a = (size_t)vertex_count + contacts[i].a;
    const size_t b = (size_t)vertex_count + contacts[i].b;
    if (nearest[a] == distance) atomic_min(nearest_contact + a, i);
    if (nearest[b] == distance) atomic_min(nearest_contact + b, i);
  }
}

kernel void proximity_nearest_flags(uint count, global const SurfaceContact* contacts, uint vertex_count,
                                    global const uint* nearest_contact, global uint* flags) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const int is_vertex = contacts[i].kind == PALPATE_VERTEX_TRIANGLE;
  const size_t a = (is_vertex ? 0u : (size_t)vertex_count) + contacts[i].a;
  uint is_kept = nearest_contact[a] == i ? 1u : 0u;
  if (!is_vertex && nearest_contact[(size_t)vertex_count + contacts[i].b] == i) is_kept = 1u;
  flags[i] = is_kept;
}

kernel void proximity_gather(uint count, global const uint* kept_count, global const uint* kept, global const SurfaceContact* from,
                             global SurfaceContact* to) {
  const uint i = (uint)get_global_id(0);
  if (i < count && i < kept_count[0]) to[i] = from[kept[i]];
}
