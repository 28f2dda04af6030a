/* Runs closest.clh on lists of four vertices, for tests. Out: the offset with the squared distance in w, then s, t, is_interior, 0. */
#include "gpu/collision/closest.clh"

typedef struct {
  float x[LANES], y[LANES], z[LANES];
} Corner;

LaneVector corner(Corner* c, uint k, uint begin, uint count, global const uint4* vertices, global const float4* positions) {
  for (uint lane = 0; lane < LANES; ++lane) {
    const uint4 v = vertices[min(begin + lane, count - 1u)];
    const float4 p = positions[k == 0u ? v.x : k == 1u ? v.y : k == 2u ? v.z : v.w];
    c->x[lane] = p.x;
    c->y[lane] = p.y;
    c->z[lane] = p.z;
  }
  const LaneVector v = {LANE_LOAD(c->x), LANE_LOAD(c->y), LANE_LOAD(c->z)};
  return v;
}

kernel void probe_closest_elements(uint count, uint is_edge_edge, global const uint4* vertices, global const float4* positions,
                                   global float4* results) {
  const uint begin = (uint)get_global_id(0) * LANES;
  if (begin >= count) return;
  Corner scratch;
  const LaneVector x0 = corner(&scratch, 0, begin, count, vertices, positions);
  const LaneVector x1 = corner(&scratch, 1, begin, count, vertices, positions);
  const LaneVector x2 = corner(&scratch, 2, begin, count, vertices, positions);
  const LaneVector x3 = corner(&scratch, 3, begin, count, vertices, positions);
  const Closest c = is_edge_edge != 0u ? closest_edge_edge(x0, x1, x2, x3) : closest_vertex_triangle(x0, x1, x2, x3);
  Corner offsets;
  float dist_sq[LANES], s[LANES], t[LANES];
  int is_interior[LANES];
  LANE_STORE(c.offset.x, offsets.x);
  LANE_STORE(c.offset.y, offsets.y);
  LANE_STORE(c.offset.z, offsets.z);
  LANE_STORE(c.dist_sq, dist_sq);
  LANE_STORE(c.s, s);
  LANE_STORE(c.t, t);
  LANE_STORE(c.is_interior, is_interior);
  for (uint lane = 0; lane < LANES && begin + lane < count; ++lane) {
    const size_t i = begin + lane;
    results[2 * i] = (float4)(offsets.x[lane], offsets.y[lane], offsets.z[lane], dist_sq[lane]);
    results[2 * i + 1] = (float4)(s[lane], t[lane], is_interior[lane] != 0 ? 1.0f : 0.0f, 0.0f);
  }
}
