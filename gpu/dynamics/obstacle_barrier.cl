/* Where tissue and obstacles would meet: capsules (tools and what never moves) and half-spaces. See obstacle_barrier.h. Given by the host:
   CCD_DOUBLE (ccd_narrow.clh). */

#ifndef CCD_DOUBLE /* default for tools that look at this file alone */
#define CCD_DOUBLE 0
#endif

#include "gpu/collision/ccd_narrow.clh"
#include "gpu/dynamics/contact.clh"
#include "gpu/dynamics/norm.clh"

/* An axis nearer to a triangle than this share of the radius passes through it, as far as anyone can tell. */
#define PASSES_THROUGH 1e-3f
/* Rounding of what is computed from differences of coordinates, as a share of the coordinates. */
#define COORDINATE_ROUNDING 5e-7f
/* Time of impact up to which a meeting may be early. */
#define TOI_TOLERANCE 1e-5f
#define MAX_MARCH_STEPS 100u
/* Share of their distance at the start that two may lose at most, so that there is room to prove that they lose no more. */
#if CCD_DOUBLE
#define START_SLACK ((Real)1e-9)
#else
#define START_SLACK 1e-5f
#endif

/* The move of each capsule in the step. Work-item: collider. */
__kernel void obstacle_legs(uint count, const __global Collider* colliders, __global CapsuleLeg* legs) {
  const uint c = (uint)get_global_id(0);
  if (c >= count) return;
  const Collider k = colliders[c];
  legs[c].tip_from = k.tip_start;
  legs[c].axis_from = (float4)(k.axis_start.xyz, 1.0f);
  legs[c].tip_to = k.tip;
  legs[c].axis_to = k.axis;
}

/* How far direction n separates the capsule's axis from the triangle. */
static inline float gap_along(float3 n, float3 tip, float3 axis, float3 a, float3 b, float3 c) {
  return fmin(fmin(dot(n, a - tip), dot(n, b - tip)), dot(n, c - tip)) - fmax(dot(n, axis), 0.0f);
}

static inline Real3 to_real(float3 v) { return (Real3)((Real)v.x, (Real)v.y, (Real)v.z); }

/* A triangle and a segment that do not cross are nearest at an end of the segment or on an edge of the triangle. So five elementary pairs
   decide: the two ends of the axis with the triangle, the axis with the three edges. */
#define KIND_OF_PAIR(pair) ((pair) < 2u ? PALPATE_VERTEX_TRIANGLE : PALPATE_EDGE_EDGE)

static inline void elementary_pair(uint pair, float3 tip, float3 axis, float3 a, float3 b, float3 c, Real3* points) {
  if (pair < 2u) {
    points[0] = to_real(pair == 0u ? tip : tip + axis);
    points[1] = to_real(a);
    points[2] = to_real(b);
    points[3] = to_real(c);
  } else {
    points[0] = to_real(tip);
    points[1] = to_real(tip + axis);
    points[2] = to_real(pair == 2u ? a : pair == 3u ? b : c);
    points[3] = to_real(pair == 2u ? b : pair == 3u ? c : a);
  }
}

static inline Real distance_at_start(uint pair, float3 tip, float3 axis, float3 a, float3 b, float3 c) {
  Real3 points[4];
  elementary_pair(pair, tip, axis, a, b, c, points);
  const bool is_end = pair < 2u;
  const Real3 d = is_end ? points[1] - points[0] : points[2] - points[0];
  const Real3 u = is_end ? points[2] - points[1] : points[1] - points[0];
  const Real3 w = is_end ? points[3] - points[1] : points[3] - points[2];
  Real alpha, beta;
  ccd_closest(is_end, d, u, w, &alpha, &beta);
  const Real3 gap = ccd_gap(is_end, d, u, w, alpha, beta);
  return sqrt(ccd_dot(gap, gap));
}

/* Marks that the three vertices may only go the share up to a little before the time of impact; at least half the way to it. */
static inline void shorten(uint4 tri, float toi, float move, float ahead_m, __global uint* shares) {
  const float ahead = move > 0.0f ? ahead_m / move : 0.0f;
  const uint share = as_uint(fmax(0.5f * toi, toi - ahead) * 0.999f);
  atomic_min(shares + tri.x, share);
  atomic_min(shares + tri.y, share);
  atomic_min(shares + tri.z, share);
}

/* Every capsule and triangle that come nearer than the radius while the triangle's corners move from x0 to x1 and the axis along its leg;
   from where they were nearer at the start, they may not come any nearer. Most are cleared by one direction that separates the two at both
   ends of their straight moves, and so between. Meetings are written in any order and counted past `capacity`.
   marks: whether the moves of the triangle's vertices are to be shortened. Work-item: triangle. */
__kernel void obstacle_meetings(uint triangle_count, uint collider_count, uint marks, float ahead_m, const __global uint4* triangles,
                                const __global float4* x0, const __global float4* x1, const __global CapsuleLeg* legs, uint capacity,
                                volatile __global ObstacleCounters* counters, __global CapsuleMeeting* meetings, __global uint* shares) {
  const uint t = (uint)get_global_id(0);
  if (t >= triangle_count) return;
  const uint4 tri = triangles[t];
  const float3 a0 = x0[tri.x].xyz, b0 = x0[tri.y].xyz, c0 = x0[tri.z].xyz;
  const float3 a1 = x1[tri.x].xyz, b1 = x1[tri.y].xyz, c1 = x1[tri.z].xyz;
  const float motion = fmax(fmax(norm3(a0 - a1), norm3(b0 - b1)), norm3(c0 - c1));
  if (!(motion < 1e6f)) {
    atomic_inc(&counters->bad);
    return;
  }
  const float3 center = (a0 + b0 + c0) * (1.0f / 3.0f);
  const float extent = fmax(fmax(norm3(center - a0), norm3(center - b0)), norm3(center - c0));
  for (uint k = 0; k < collider_count; ++k) {
    if (legs[k].axis_from.w == 0.0f) continue;
    const float3 p0 = legs[k].tip_from.xyz;
    const float3 d0 = legs[k].axis_from.xyz;
    const float3 p1 = legs[k].tip_to.xyz;
    const float3 d1 = legs[k].axis_to.xyz;
    const float radius = legs[k].tip_from.w;
    const float3 tip_move = p1 - p0;
    const float3 end_move = tip_move + (d1 - d0);
    const float tool_motion = fmax(norm3(tip_move), norm3(end_move));
    if (motion + tool_motion == 0.0f) continue;
    const float rounding = COORDINATE_ROUNDING * (fabs(center.x) + fabs(center.y) + fabs(center.z) + extent + motion + tool_motion);
    const float reach = radius + motion + tool_motion + rounding;
    float s;
    if (norm3(closest_on_segment_to_point(p0, d0, center, &s) - center) > reach + extent) continue;
    float3 weights;
    float3 n = closest_segment_triangle(p0, d0, a0, b0, c0, &s, &weights);
    const float before = norm3(n);
    if (before > reach) continue;
    float toi = -1.0f;
    if (before > PASSES_THROUGH * radius) {
      const float clear = radius + rounding;
      n /= before;
      if (before > clear && gap_along(n, p1, d1, a1, b1, c1) > clear) continue;
      float3 m = closest_segment_triangle(p1, d1, a1, b1, c1, &s, &weights);
      const float after = norm3(m);
      if (after > clear && gap_along(m / after, p0, d0, a0, b0, c0) > clear) continue;
      toi = 2.0f;
      Real least = (Real)MAXFLOAT;
      for (uint pair = 0; pair < 5u; ++pair) least = fmin(least, distance_at_start(pair, p0, d0, a0, b0, c0));
      /* Where they are nearer than that already, as when rounding took a little, they may not lose more; but for the slack that it takes to
         prove that they do not. */
      const Real apart = fmin((Real)radius, least * ((Real)1 - START_SLACK));
      for (uint pair = 0; pair < 5u; ++pair) {
        Real3 start[4], end[4];
        elementary_pair(pair, p0, d0, a0, b0, c0, start);
        elementary_pair(pair, p1, d1, a1, b1, c1, end);
        CcdPair geometry;
        float cleared = 0.0f;
        float3 normal = n;
        if (ccd_load(KIND_OF_PAIR(pair), start, end, apart, (Real)0, &geometry)) {
          const CcdOutcome outcome = ccd_march(&geometry, (Real)TOI_TOLERANCE, MAX_MARCH_STEPS);
          if (!outcome.is_hit) continue;
          cleared = ccd_round_down(outcome.toi);
          const float3 found = (float3)((float)outcome.normal.x, (float)outcome.normal.y, (float)outcome.normal.z);
          const float size = norm3(found);
          if (size > 0.0f) normal = found / size;
        }
        if (cleared < toi) {
          toi = cleared;
          m = normal;
        }
      }
      if (toi > 1.0f) continue;
      n = m;
      atomic_min(&counters->earliest_toi, as_uint(toi));
      if (marks) shorten(tri, toi, motion, ahead_m, shares);
    }
    const uint at = atomic_inc(&counters->meetings);
    if (at >= capacity) continue;
    CapsuleMeeting out;
    out.collider = k;
    out.triangle = t;
    out.toi = toi;
    out.unused = 0;
    out.normal = (float4)(n, 0.0f);
    meetings[at] = out;
  }
}

/* Vertices of surfaces that end behind a half-space's plane, or farther behind than they began: their moves are marked to end a little
   before it, after half the way there at least. Work-item: vertex. */
__kernel void plane_meetings(uint vertex_count, uint plane_count, float ahead_m, const __global PlaneObstacle* planes,
                             const __global uint2* vertex_triangle_range, const __global float4* x0, const __global float4* x1,
                             volatile __global ObstacleCounters* counters, __global uint* shares) {
  const uint v = (uint)get_global_id(0);
  if (v >= vertex_count || vertex_triangle_range[v].x == vertex_triangle_range[v].y) return;
  const float3 from = x0[v].xyz;
  const float3 to = x1[v].xyz;
  if (!(norm3(from - to) < 1e6f)) {
    atomic_inc(&counters->bad);
    return;
  }
  float share = 1.0f;
  for (uint i = 0; i < plane_count; ++i) {
    const float4 plane = planes[i].normal_offset;
    const float h0 = dot(plane.xyz, from) - plane.w;
    const float h1 = dot(plane.xyz, to) - plane.w;
    const float level = fmin(h0, 0.0f);
    if (!(h1 < level)) continue;
    const float toi = (h0 - level) / (h0 - h1);
    share = fmin(share, fmax(0.5f * toi, toi - ahead_m / (h0 - h1)) * 0.999f);
    atomic_min(&counters->earliest_toi, as_uint(toi));
  }
  if (share == 1.0f) return;
  atomic_inc(&counters->behind);
  atomic_min(shares + v, as_uint(share));
}
