#include "gpu/collision/box_hierarchy.clh"
#include "gpu/collision/ccd_narrow.clh"
#include "gpu/shared/box.h"

/* Continuous collision detection of triangle surfaces: see ccd.h. Given by the host: CCD_DOUBLE (ccd_narrow.clh); CCD_INPUT_DOUBLE, 1 if
   positions are 3 doubles a vertex, 0 if they are a float4. */

#if CCD_INPUT_DOUBLE
#define Position double
Real3 ccd_point(global const Position* positions, uint vertex) { return vload3(vertex, positions); }
#else
#define Position float4
Real3 ccd_point(global const Position* positions, uint vertex) {
  const float4 p = positions[vertex];
  return (Real3)((Real)p.x, (Real)p.y, (Real)p.z);
}
#endif

/* Coordinates beyond this are refused: what the float filter computes from them must stay finite. */
#define MAX_COORDINATE_M 1e30f

/* Rounding of coordinates to float and of what is computed from them, as a share of their size; and what underflow may lose. */
#define NO_GROUP 0xffffffffu
#define LANE_ROUNDING 4e-7f
#define LANE_TINY 1e-36f

/* Vertex of one corner of an element. `corners`: null for elements that are vertices; else `stride` words an element. */
uint corner_of(global const uint* corners, uint stride, uint element, uint corner) {
  return corners ? corners[(size_t)element * stride + corner] : element;
}

/* Box that an element sweeps, drawn out by half the separation. One work-item an element. */
kernel void ccd_boxes(uint count, uint corner_count, uint stride, global const uint* corners, global const uint* groups,
                      global const Position* starts, global const Position* ends, float half_separation, global Box* boxes,
                      volatile global CcdCounters* counters) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  float4 lower = (float4)(INFINITY, INFINITY, INFINITY, 0.0f);
  float4 upper = (float4)(-INFINITY, -INFINITY, -INFINITY, 0.0f);
  int is_good = 1;
  /* A vertex of no triangle is in no pair, wherever it is. */
  if (groups[i] != NO_GROUP) {
    for (uint c = 0; c < corner_count; ++c) {
      const uint vertex = corner_of(corners, stride, i, c);
      for (uint side = 0; side < 2; ++side) {
        const Real3 exact = ccd_point(side == 0 ? starts : ends, vertex);
        const float4 p = (float4)((float)exact.x, (float)exact.y, (float)exact.z, 0.0f);
        const float largest = fmax(fmax(fabs(p.x), fabs(p.y)), fabs(p.z));
        /* fmax drops NaNs, the sum does not. */
        const int is_number = largest <= MAX_COORDINATE_M && p.x + p.y + p.z == p.x + p.y + p.z;
        if (!is_number) atomic_max(&counters->bad_vertex, ~vertex);
        is_good &= is_number;
        const float4 pad = (float4)(CCD_INPUT_DOUBLE ? 1.0f : 0.0f) * LANE_ROUNDING * fabs(p);
        lower = fmin(lower, p - pad);
        upper = fmax(upper, p + pad);
      }
    }
  }
  if (half_separation > 0.0f) {
    const float4 pad = half_separation * 1.000001f + LANE_ROUNDING * fmax(fabs(lower), fabs(upper)) + LANE_TINY;
    lower -= pad;
    upper += pad;
  }
  if (!is_good || groups[i] == NO_GROUP) lower = upper = (float4)(NAN);
  lower.w = upper.w = 0.0f;
  boxes[i].lower = lower;
  boxes[i].upper = upper;
}

/* What the filter needs of the elements of a cluster, 16 lanes a row. At the start, then at the end: for each of 9 directions the least and
   the largest value over the corners, drawn out by rounding and separation. */
#define LANE_DIRECTIONS 9u
#define LANE_ROWS 36u
#define LANE_IDS 3u

float16 lane_direction(uint direction, float16 x, float16 y, float16 z) {
  switch (direction) {
    case 0:
      return x;
    case 1:
      return y;
    case 2:
      return z;
    case 3:
      return x + y;
    case 4:
      return x - y;
    case 5:
      return x + z;
    case 6:
      return x - z;
    case 7:
      return y + z;
    default:
      return y - z;
  }
}

/* Corners of the elements of a cluster, NO_ELEMENT in empty lanes; of elements with fewer than three the last one again. */
void store_ids(uint cluster, uint corner_count, uint stride, global const uint* corners, global const uint* elements, global uint* ids) {
  for (uint lane = 0; lane < NODE_WIDTH; ++lane) {
    const uint element = elements[cluster * NODE_WIDTH + lane];
    for (uint c = 0; c < LANE_IDS; ++c) {
      const uint vertex = element == NO_ELEMENT ? NO_ELEMENT : corner_of(corners, stride, element, min(c, corner_count - 1u));
      ids[((size_t)cluster * LANE_IDS + c) * NODE_WIDTH + lane] = vertex;
    }
  }
}

/* Positions of the corners of 16 elements: rows 3 side + corner. */
typedef struct {
  float x[6][NODE_WIDTH], y[6][NODE_WIDTH], z[6][NODE_WIDTH];
} LaneCorners;

void load_corners(uint cluster, uint corner_count, global const uint* ids, global const Position* starts, global const Position* ends,
                  LaneCorners* at) {
  for (uint c = 0; c < corner_count; ++c) {
    for (uint lane = 0; lane < NODE_WIDTH; ++lane) {
      const uint vertex = ids[((size_t)cluster * LANE_IDS + c) * NODE_WIDTH + lane];
      for (uint side = 0; side < 2; ++side) {
        Real3 p = (Real3)(0, 0, 0);
        if (vertex != NO_ELEMENT) p = ccd_point(side == 0 ? starts : ends, vertex);
        at->x[3 * side + c][lane] = (float)p.x;
        at->y[3 * side + c][lane] = (float)p.y;
        at->z[3 * side + c][lane] = (float)p.z;
      }
    }
  }
}

void store_intervals(uint cluster, uint corner_count, float half_separation, const LaneCorners* at, global float* intervals) {
  global float* rows = intervals + (size_t)cluster * (LANE_ROWS * NODE_WIDTH);
  for (uint side = 0; side < 2; ++side) {
    for (uint direction = 0; direction < LANE_DIRECTIONS; ++direction) {
      float16 least = (float16)(INFINITY);
      float16 most = (float16)(-INFINITY);
      float16 size = (float16)(0.0f);
      for (uint c = 0; c < corner_count; ++c) {
        const float16 cx = vload16(0, at->x[3 * side + c]), cy = vload16(0, at->y[3 * side + c]), cz = vload16(0, at->z[3 * side + c]);
        const float16 value = lane_direction(direction, cx, cy, cz);
        least = fmin(least, value);
        most = fmax(most, value);
        size = fmax(size, fabs(cx) + fabs(cy) + fabs(cz));
      }
      if (CCD_INPUT_DOUBLE || half_separation > 0.0f || direction > 2u) {
        const float16 pad = half_separation * (direction > 2u ? 1.41422f : 1.000001f) + LANE_ROUNDING * size + LANE_TINY;
        least -= pad;
        most += pad;
      }
      vstore16(least, 2 * (side * LANE_DIRECTIONS + direction), rows);
      vstore16(most, 2 * (side * LANE_DIRECTIONS + direction) + 1, rows);
    }
  }
}

/* Fills intervals[cluster][36][16] and ids[cluster][3][16]. One work-item a cluster. */
kernel void ccd_lanes(uint cluster_count, uint corner_count, uint stride, global const uint* corners, global const uint* elements,
                      global const Position* starts, global const Position* ends, float half_separation, global float* intervals,
                      global uint* ids) {
  const uint cluster = (uint)get_global_id(0);
  if (cluster >= cluster_count) return;
  store_ids(cluster, corner_count, stride, corners, elements, ids);
  LaneCorners at;
  load_corners(cluster, corner_count, ids, starts, ends, &at);
  store_intervals(cluster, corner_count, half_separation, &at, intervals);
}

/* Fills ids[cluster][3][16] alone, where they are the same in many runs. One work-item a cluster. */
kernel void ccd_ids(uint cluster_count, uint corner_count, uint stride, global const uint* corners, global const uint* elements,
                    global uint* ids) {
  const uint cluster = (uint)get_global_id(0);
  if (cluster < cluster_count) store_ids(cluster, corner_count, stride, corners, elements, ids);
}

/* The smallest coordinate over the corners and both sides. */
float16 least_of_corners(float (*rows)[NODE_WIDTH], uint corner_count) {
  float16 least = fmin(vload16(0, rows[0]), vload16(0, rows[3]));
  for (uint c = 1; c < corner_count; ++c) least = fmin(least, fmin(vload16(0, rows[c]), vload16(0, rows[3 + c])));
  return least;
}
float16 most_of_corners(float (*rows)[NODE_WIDTH], uint corner_count) {
  float16 most = fmax(vload16(0, rows[0]), vload16(0, rows[3]));
  for (uint c = 1; c < corner_count; ++c) most = fmax(most, fmax(vload16(0, rows[c]), vload16(0, rows[3 + c])));
  return most;
}

/* Names vertices without usable coordinates, and returns the lanes of elements that have none of them. */
int16 good_lanes(uint cluster, uint corner_count, global const uint* ids, LaneCorners* at, volatile global CcdCounters* counters) {
  int16 is_good = (int16)(-1);
  for (uint c = 0; c < corner_count; ++c) {
    for (uint row = c; row < 6u; row += 3u) {
      const int16 is_number = (fabs(vload16(0, at->x[row])) <= (float16)(MAX_COORDINATE_M)) &
                              (fabs(vload16(0, at->y[row])) <= (float16)(MAX_COORDINATE_M)) &
                              (fabs(vload16(0, at->z[row])) <= (float16)(MAX_COORDINATE_M));
      is_good &= is_number;
      const uint bad = ALL_LANES & ~lane_bits(is_number);
      for (uint mask = bad; mask != 0u; mask &= mask - 1u) {
        const uint vertex = ids[((size_t)cluster * LANE_IDS + c) * NODE_WIDTH + lowest_lane(mask)];
        atomic_max(&counters->bad_vertex, ~vertex);
      }
    }
  }
  return is_good & (vload16(0, ids + (size_t)cluster * LANE_IDS * NODE_WIDTH) != (uint16)(NO_ELEMENT));
}

/* Draws intervals of coordinates out by half the separation, as ccd_boxes does, and empties lanes that are not good. */
void pad_interval(float half_separation, int16 is_good, float16* least, float16* most) {
  if (half_separation > 0.0f) {
    const float16 pad = half_separation * 1.000001f + LANE_ROUNDING * fmax(fabs(*least), fabs(*most)) + LANE_TINY;
    *least -= pad;
    *most += pad;
  }
  *least = select((float16)(NAN), *least, is_good);
  *most = select((float16)(NAN), *most, is_good);
}

/* Intervals of the clusters of bodies, and their boxes as CandidatePairs::Fixed() wants them: of the elements, [cluster][6][16], and of
   each cluster. One work-item a body. */
kernel void ccd_body_lanes(uint body_count, global const uint* bodies, global const uint* begins, uint corner_count, global const uint* ids,
                           global const Position* starts, global const Position* ends, float half_separation, global float* nodes,
                           global Box* boxes, global float* intervals, volatile global CcdCounters* counters) {
  const uint i = (uint)get_global_id(0);
  if (i >= body_count) return;
  const uint body = bodies[i];
  for (uint cluster = begins[body]; cluster < begins[body + 1]; ++cluster) {
    LaneCorners at;
    load_corners(cluster, corner_count, ids, starts, ends, &at);
    store_intervals(cluster, corner_count, half_separation, &at, intervals);
    const int16 is_good = good_lanes(cluster, corner_count, ids, &at, counters);
    float16 lower_x = least_of_corners(at.x, corner_count), upper_x = most_of_corners(at.x, corner_count);
    float16 lower_y = least_of_corners(at.y, corner_count), upper_y = most_of_corners(at.y, corner_count);
    float16 lower_z = least_of_corners(at.z, corner_count), upper_z = most_of_corners(at.z, corner_count);
    pad_interval(half_separation, is_good, &lower_x, &upper_x);
    pad_interval(half_separation, is_good, &lower_y, &upper_y);
    pad_interval(half_separation, is_good, &lower_z, &upper_z);
    global float* node = nodes + (size_t)cluster * NODE_FLOATS;
    vstore16(lower_x, 0, node);
    vstore16(lower_y, 1, node);
    vstore16(lower_z, 2, node);
    vstore16(upper_x, 3, node);
    vstore16(upper_y, 4, node);
    vstore16(upper_z, 5, node);
    /* Drops what is empty. */
    boxes[cluster].lower = (float4)(min_of_lanes(lower_x), min_of_lanes(lower_y), min_of_lanes(lower_z), 0.0f);
    boxes[cluster].upper = (float4)(max_of_lanes(upper_x), max_of_lanes(upper_y), max_of_lanes(upper_z), 0.0f);
  }
}

/* Number of pairs to look at: `most`, or what an earlier kernel found, if that is less. */
uint pairs_at_hand(uint most, global const uint* device_count) { return device_count ? min(most, device_count[0]) : most; }

/* Lanes of `mask` that no direction keeps apart from lane `row` of the other cluster. If one element is below the other along a direction
   at the start and at the end, it is between them too, since both move on straight lines. */
uint lanes_not_apart(global const float* p_rows, uint row, global const float* q_rows, uint mask) {
  for (uint direction = 0; direction < LANE_DIRECTIONS; ++direction) {
    const uint start = 2 * direction;
    const uint end = 2 * (LANE_DIRECTIONS + direction);
    const float least_start = p_rows[start * NODE_WIDTH + row], most_start = p_rows[(start + 1) * NODE_WIDTH + row];
    const float least_end = p_rows[end * NODE_WIDTH + row], most_end = p_rows[(end + 1) * NODE_WIDTH + row];
    const int16 is_above = (vload16(start + 1, q_rows) < (float16)(least_start)) & (vload16(end + 1, q_rows) < (float16)(least_end));
    const int16 is_below = (vload16(start, q_rows) > (float16)(most_start)) & (vload16(end, q_rows) > (float16)(most_end));
    mask &= ~lane_bits(is_above | is_below);
    if (mask == 0u) return 0u;
  }
  return mask;
}

/* Lanes that have a corner in common with the row. */
uint lanes_sharing(global const uint* p_ids, uint p_corners, uint row, global const uint* q_ids, uint q_corners) {
  int16 shares = (int16)(0);
  for (uint i = 0; i < p_corners; ++i) {
    const uint16 own = (uint16)(p_ids[i * NODE_WIDTH + row]);
    for (uint k = 0; k < q_corners; ++k) shares |= vload16(k, q_ids) == own;
  }
  return lane_bits(shares);
}

#define PENDING 64u

void flush_pairs(const uint2* pending, uint count, uint capacity, global uint2* pairs, volatile global uint* pair_count) {
  const uint begin = atomic_add(pair_count, count);
  for (uint i = 0; i < count; ++i) {
    if (begin + i < capacity && begin + i >= begin) pairs[begin + i] = pending[i];
  }
}

/* Rows of a cluster whose boxes overlap the box around all lanes of another. */
uint rows_overlapping(global const float* p_nodes, uint p, const LaneBoxes* q_lanes) {
  const LaneBoxes p_lanes = load_lane_boxes(p_nodes, p);
  const float4 lower = (float4)(min_of_lanes(q_lanes->lower_x), min_of_lanes(q_lanes->lower_y), min_of_lanes(q_lanes->lower_z), 0.0f);
  const float4 upper = (float4)(max_of_lanes(q_lanes->upper_x), max_of_lanes(q_lanes->upper_y), max_of_lanes(q_lanes->upper_z), 0.0f);
  return lanes_overlapping(&p_lanes, lower, upper);
}

/* Element pairs of the cluster pairs [first, last), `chunk` a work-item, that the filter cannot tell apart, in any order, to pairs[];
   counts all of them. p is a vertex and q a triangle, or is_within: both are edges. */
kernel void ccd_candidates(uint is_within, uint filters, uint p_corners, uint q_corners, uint first, uint last, uint chunk,
                           global const uint* device_count, global const UInt2* cluster_pairs, global const float* p_nodes,
                           global const uint* p_groups, global const uint* p_elements, global const float* p_intervals,
                           global const uint* p_ids, global const float* q_nodes, global const uint* q_groups,
                           global const uint* q_elements, global const float* q_intervals, global const uint* q_ids,
                           global const uint* apart, uint capacity, global uint2* pairs, volatile global CcdCounters* counters) {
  const size_t begin = first + get_global_id(0) * chunk;
  const size_t end = min(begin + chunk, (size_t)pairs_at_hand(last, device_count));
  uint2 pending[PENDING];
  uint pending_count = 0;
  uint candidates = 0;
  for (size_t i = begin; i < end; ++i) {
    const uint p = cluster_pairs[i].x;
    const uint q = cluster_pairs[i].y;
    const LaneBoxes lanes = load_lane_boxes(q_nodes, q);
    global const float* p_rows = p_intervals + (size_t)p * (LANE_ROWS * NODE_WIDTH);
    global const float* q_rows = q_intervals + (size_t)q * (LANE_ROWS * NODE_WIDTH);
    global const uint* p_own = p_ids + (size_t)p * (LANE_IDS * NODE_WIDTH);
    global const uint* q_own = q_ids + (size_t)q * (LANE_IDS * NODE_WIDTH);
    for (uint rows = rows_overlapping(p_nodes, p, &lanes); rows != 0u; rows &= rows - 1u) {
      const uint row = lowest_lane(rows);
      uint mask = partners_of_row(&lanes, p_nodes, p_groups, p, row, q_groups, q, is_within && p == q, apart);
      if (mask == 0u) continue;
      mask &= ~lanes_sharing(p_own, p_corners, row, q_own, q_corners);
      candidates += popcount(mask);
      if (mask != 0u && filters) mask = lanes_not_apart(p_rows, row, q_rows, mask);
      if (mask == 0u) continue;
      if (pending_count > PENDING - NODE_WIDTH) {
        flush_pairs(pending, pending_count, capacity, pairs, &counters->pairs);
        pending_count = 0;
      }
      const uint a = p_elements[p * NODE_WIDTH + row];
      for (; mask != 0u; mask &= mask - 1u) {
        const uint b = q_elements[q * NODE_WIDTH + lowest_lane(mask)];
        pending[pending_count++] = is_within && b < a ? (uint2)(b, a) : (uint2)(a, b);
      }
    }
  }
  if (pending_count > 0u) flush_pairs(pending, pending_count, capacity, pairs, &counters->pairs);
  if (candidates > 0u) atomic_add(&counters->candidates, candidates);
}

/* Least and largest height of the vertices of A along n, then of those of B. */
float4 heights(uint kind, uint4 vertices, float3 n, global const Position* positions, float* size) {
  float h[4];
  *size = 0.0f;
  for (uint c = 0; c < 4; ++c) {
    const Real3 exact = ccd_point(positions, c == 0u ? vertices.x : c == 1u ? vertices.y : c == 2u ? vertices.z : vertices.w);
    const float3 p = (float3)((float)exact.x, (float)exact.y, (float)exact.z);
    h[c] = dot(n, p);
    *size = fmax(*size, fabs(p.x) + fabs(p.y) + fabs(p.z));
  }
  return kind == PALPATE_EDGE_EDGE ? (float4)(fmin(h[0], h[1]), fmax(h[0], h[1]), fmin(h[2], h[3]), fmax(h[2], h[3]))
                                   : (float4)(h[0], h[0], fmin(h[1], fmin(h[2], h[3])), fmax(h[1], fmax(h[2], h[3])));
}

/* Of the contacts of one kind those whose own normal does not keep them apart at the start and at the end, and so in between, in any order,
   to pairs[]; counts all of them. Work-item: contact. */
kernel void ccd_listed(uint kind, uint count, global const SurfaceContact* contacts, global const Position* starts,
                       global const Position* ends, float separation, uint capacity, global uint2* pairs,
                       volatile global CcdCounters* counters) {
  const uint i = (uint)get_global_id(0);
  if (i >= count || contacts[i].kind != kind) return;
  const uint4 vertices = contacts[i].vertices;
  const float3 n = contacts[i].normal.xyz;
  float size_start, size_end;
  const float4 start = heights(kind, vertices, n, starts, &size_start);
  const float4 end = heights(kind, vertices, n, ends, &size_end);
  const float pad = separation * 1.000001f + 2.0f * LANE_ROUNDING * fmax(size_start, size_end) + LANE_TINY;
  if (start.z - start.y > pad && end.z - end.y > pad) return;
  const uint place = atomic_inc(&counters->pairs);
  if (place < capacity) pairs[place] = (uint2)(contacts[i].a, contacts[i].b);
}

/* Decides the pairs [first, last), or those of them that were found. A hit goes to hits[], in any order, with its key for sorting to
 * keys[]. One work-item a pair. */
kernel void ccd_decide(uint kind, uint first, uint last, global const CcdCounters* found, global const uint2* pairs,
                       global const uint2* edges, global const uint4* triangles, global const Position* starts, global const Position* ends,
                       Real separation, Real input_error, Real tolerance, uint max_steps, uint a_shift, uint kind_shift, uint capacity,
                       global CcdHit* hits, global ulong* keys, volatile global CcdCounters* counters) {
  const size_t i = first + get_global_id(0);
  if (i >= (found ? min(last, found->pairs) : last)) return;
  const uint2 pair = pairs[i];
  uint4 vertices;
  if (kind == PALPATE_EDGE_EDGE) {
    vertices = (uint4)(edges[pair.x], edges[pair.y]);
  } else {
    vertices = (uint4)(pair.x, triangles[pair.y].xyz);
  }
  const Real3 start[4] = {ccd_point(starts, vertices.x), ccd_point(starts, vertices.y), ccd_point(starts, vertices.z),
                          ccd_point(starts, vertices.w)};
  const Real3 end[4] = {ccd_point(ends, vertices.x), ccd_point(ends, vertices.y), ccd_point(ends, vertices.z), ccd_point(ends, vertices.w)};
  CcdPair geometry;
  CcdHit hit;
  hit.kind = kind;
  hit.a = pair.x;
  hit.b = pair.y;
  hit.vertices = vertices;
  CcdOutcome outcome;
  if (ccd_load(kind, start, end, separation, input_error, &geometry)) {
    outcome = ccd_march(&geometry, tolerance, max_steps);
    if (!outcome.is_hit) return;
  } else {
    /* Coordinates are finite, but a difference of two is not. */
    outcome.toi = outcome.alpha = outcome.beta = (Real)0;
    outcome.normal = (Real3)(0, 0, 0);
  }
  const uint place = atomic_inc(&counters->hits);
  if (kind == PALPATE_EDGE_EDGE) atomic_inc(&counters->edge_hits);
  hit.toi = ccd_round_down(outcome.toi);
  /* Not negative, so that its bits rise with it. */
  atomic_min(&counters->earliest_bits, as_uint(hit.toi));
  if (place >= capacity) return;
  const float alpha = (float)outcome.alpha;
  const float beta = (float)outcome.beta;
  hit.weights = kind == PALPATE_EDGE_EDGE ? (float4)((float)(1 - outcome.alpha), alpha, (float)(1 - outcome.beta), beta)
                                          : (float4)((float)fmax(1 - outcome.alpha - outcome.beta, (Real)0), alpha, beta, 1.0f);
  const float3 normal = (float3)((float)outcome.normal.x, (float)outcome.normal.y, (float)outcome.normal.z);
  const float size = sqrt(normal.x * normal.x + normal.y * normal.y + normal.z * normal.z);
  hit.normal = (float4)(size > 0.0f ? normal / size : (float3)(0.0f, 0.0f, 1.0f), 0.0f);
  hits[place] = hit;
  keys[place] = ((ulong)kind << kind_shift) | ((ulong)pair.x << a_shift) | pair.y;
}

/* Hits in the order of their keys, of which no two are equal, where they are few: each is put behind all that are smaller. */
kernel void ccd_rank_hits(uint count, global const CcdHit* hits, global const ulong* keys, global CcdHit* sorted) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const ulong key = keys[i];
  long8 smaller = (long8)(0);
  uint j = 0;
  for (; j + 8 <= count; j += 8) smaller -= vload8(0, keys + j) < (ulong8)(key);
  const long4 by_4 = smaller.lo + smaller.hi;
  uint rank = (uint)(by_4.x + by_4.y + by_4.z + by_4.w);
  for (; j < count; ++j) rank += keys[j] < key ? 1u : 0u;
  sorted[rank] = hits[i];
}

/* sorted[i] = hits[order[i]]. */
kernel void ccd_gather_hits(uint count, global const CcdHit* hits, global const uint* order, global CcdHit* sorted) {
  const size_t i = get_global_id(0);
  if (i < count) sorted[i] = hits[order[i]];
}
