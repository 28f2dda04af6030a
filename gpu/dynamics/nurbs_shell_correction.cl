/* Moves of all control points of a NURBS shell at once; see nurbs_shell_correction.h. */
#include "gpu/shared/dynamics_types.h"
#include "gpu/shared/nurbs_shell_types.h"

/* Orthonormal axes from a tangent and something beside it: first, second, normal. */
typedef struct {
  float3 first, second, normal;
} Axes;

static inline float3 unit_or(float3 v, float3 otherwise) {
  const float length_sq = dot(v, v);
  return length_sq > 1e-12f ? v / sqrt(length_sq) : otherwise;
}

/* Of Gauss point g as it is; at rest where it has no area. */
static inline Axes axes_now(const __global float* nurbs_vectors, uint lanes, uint g, float3 first, float3 normal) {
  const __global float* at = nurbs_vectors + (size_t)(g / lanes) * PALPATE_NURBS_VECTOR_REALS * lanes + g % lanes;
  const float3 a1 = (float3)(at[0], at[lanes], at[2 * lanes]);
  const float3 a2 = (float3)(at[3 * lanes], at[4 * lanes], at[5 * lanes]);
  Axes r;
  r.normal = unit_or(cross(a1, a2), normal);
  r.first = unit_or(a1 - dot(a1, r.normal) * r.normal, first);
  r.second = cross(r.normal, r.first);
  return r;
}

static inline Axes axes_at_rest(const __global float4* axes, uint i) {
  Axes r;
  r.first = axes[2 * i].xyz;
  r.normal = axes[2 * i + 1].xyz;
  r.second = cross(r.normal, r.first);
  return r;
}

/* v from one set of axes to another. */
static inline float3 turned_by(const Axes* from, const Axes* to, float3 v) {
  return dot(v, from->first) * to->first + dot(v, from->second) * to->second + dot(v, from->normal) * to->normal;
}

/* turned[i] = the force on solved control point i, turned back to the rest shape. Work-item: solved control point. */
__kernel void turn_nurbs_forces(uint count, uint lanes, const __global uint* solved_slot, const __global uint* gauss,
                                const __global float4* axes, const __global float* nurbs_vectors, const __global float4* forces,
                                __global float4* turned) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const Axes rest = axes_at_rest(axes, i);
  const Axes now = axes_now(nurbs_vectors, lanes, gauss[i], rest.first, rest.normal);
  turned[i] = (float4)(turned_by(&now, &rest, forces[solved_slot[i]].xyz), 0.0f);
}

#define ON_HOST 0xffffffffu

/* moves = inverse times turned forces, or `solved` where the host has done that, turned as the surface is. Work-item: solved control point,
   three rows of its part's matrix. */
__kernel void solve_nurbs_moves(uint count, uint lanes, const __global uint* solved_slot, const __global uint4* solved_part,
                                const __global uint* gauss, const __global float4* axes, const __global float* nurbs_vectors,
                                const __global float* inverse, const __global float4* turned, const __global float4* solved,
                                __global float4* moves) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const uint4 part = solved_part[i];
  const uint columns = 3 * part.y;
  const bool is_on_host = part.z == ON_HOST;
  const __global float* row = inverse + (is_on_host ? 0 : part.z + (size_t)(i - part.x) * 3 * columns);
  float3 sum = is_on_host ? solved[i].xyz : (float3)(0.0f);
  for (uint k = 0; k < part.y && !is_on_host; ++k) {
    const float4 f = turned[part.x + k];
    const __global float* at = row + 3 * k;
    sum.x += at[0] * f.x + at[1] * f.y + at[2] * f.z;
    at += columns;
    sum.y += at[0] * f.x + at[1] * f.y + at[2] * f.z;
    at += columns;
    sum.z += at[0] * f.x + at[1] * f.y + at[2] * f.z;
  }
  const Axes rest = axes_at_rest(axes, i);
  const Axes now = axes_now(nurbs_vectors, lanes, gauss[i], rest.first, rest.normal);
  moves[solved_slot[i]] = (float4)(turned_by(&rest, &now, sum), 0.0f);
}

/* The forces of a shell along its moves, before and after. */
static inline float2 forces_along(uint2 range, const __global uint* solved_slot, const __global float4* forces,
                                  const __global float4* forces_after, const __global float4* moves) {
  float2 sums = (float2)(0.0f);
  for (uint i = range.x; i < range.y; ++i) {
    const uint slot = solved_slot[i];
    sums.x += dot(forces[slot].xyz, moves[slot].xyz);
    sums.y += dot(forces_after[slot].xyz, moves[slot].xyz);
  }
  return sums;
}

/* Where the force along the moves of a shell comes to 0, in [0, 1]; 0 where they lead uphill. Work-item: shell. */
__kernel void find_nurbs_share(uint count, const __global uint2* part_range, const __global uint* solved_slot,
                               const __global float4* forces, const __global float4* forces_after, const __global float4* moves,
                               __global float* share) {
  const uint part = (uint)get_global_id(0);
  if (part >= count) return;
  const float2 sums = forces_along(part_range[part], solved_slot, forces, forces_after, moves);
  const bool falls = sums.x > 0.0f && isfinite(sums.y);
  share[part] = !falls ? 0.0f : sums.y >= 0.0f ? 1.0f : sums.x / (sums.x - sums.y);
}

#define MOST_LEFT 0.3f /* of the force along the moves at their start */

/* Takes the share of a shell back along a line where the force along the moves pushes back there. Work-item: shell. */
__kernel void shorten_nurbs_share(uint count, const __global uint2* part_range, const __global uint* solved_slot,
                                  const __global float4* forces, const __global float4* forces_there, const __global float4* moves,
                                  __global float* share) {
  const uint part = (uint)get_global_id(0);
  if (part >= count) return;
  const float2 sums = forces_along(part_range[part], solved_slot, forces, forces_there, moves);
  if (!isfinite(sums.y)) {
    share[part] = 0.0f;
  } else if (sums.y < -MOST_LEFT * sums.x) {
    share[part] *= sums.x / (sums.x - sums.y);
  }
}

/* x += share of its shell times moves. Work-item: slot. */
__kernel void take_nurbs_moves(uint count, const __global uint* slot_part, const __global float* share, const __global float4* moves,
                               __global float4* x) {
  const uint slot = (uint)get_global_id(0);
  if (slot >= count) return;
  const uint part = slot_part[slot];
  if (part == 0xffffffffu) return;
  x[slot] += share[part] * moves[slot];
}
