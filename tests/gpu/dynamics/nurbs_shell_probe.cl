/* Forces of NURBS shells and sweeps over their control points, for the test of nurbs_shell_terms.clh.
   Build options: PALPATE_LANES, PALPATE_NURBS_VISCOUS. */
#include "gpu/shared/dynamics_types.h"

#ifndef PALPATE_LANES /* defaults for tools that look at this file alone */
#define PALPATE_LANES 1
#define PALPATE_NURBS_VISCOUS 1
#endif
#define PALPATE_TEAM 1
#include "gpu/dynamics/lanes.clh"

#include "gpu/dynamics/block.clh"
#include "gpu/dynamics/elasticity.clh"
#include "gpu/dynamics/shell_elasticity.clh"

#include "gpu/dynamics/nurbs_shell_terms.clh"

static inline Block nurbs_block_of(uint slot NURBS_SHELL_ARGS) {
  RVec force;
  force.x = force.y = force.z = SPLAT(0.0f);
  RSym h;
  h.xx = h.xy = h.xz = h.yy = h.yz = h.zz = SPLAT(0.0f);
  add_nurbs_elasticity(slot, 0 NURBS_SHELL_VALUES, &force, &h);
  Block b;
  b.force = (float3)(lane_sum(force.x), lane_sum(force.y), lane_sum(force.z));
  b.xx = lane_sum(h.xx);
  b.xy = lane_sum(h.xy);
  b.xz = lane_sum(h.xz);
  b.yy = lane_sum(h.yy);
  b.yz = lane_sum(h.yz);
  b.zz = lane_sum(h.zz);
  return b;
}

/* Work-item: control point. out: [slot][9] force, block (xx xy xz yy yz zz). */
__kernel void nurbs_forces(uint count NURBS_SHELL_ARGS, __global float* out) {
  const uint slot = (uint)get_global_id(0);
  if (slot >= count) return;
  const Block b = nurbs_block_of(slot NURBS_SHELL_VALUES);
  __global float* at = out + (size_t)slot * 9;
  at[0] = b.force.x;
  at[1] = b.force.y;
  at[2] = b.force.z;
  at[3] = b.xx;
  at[4] = b.xy;
  at[5] = b.xz;
  at[6] = b.yy;
  at[7] = b.yz;
  at[8] = b.zz;
}

/* One colour of a sweep that looks for the least of energy + inertia / 2 |x - target|^2. Work-item: control point from `begin` on.
   target: place, and the inertia [N/m] as the fourth; negative: the control point does not move. */
__kernel void nurbs_descend(uint begin, uint end, __global float4* x, const __global float4* target NURBS_SHELL_ARGS) {
  const uint slot = begin + (uint)get_global_id(0);
  if (slot >= end) return;
  const float4 to = target[slot];
  if (to.w < 0.0f) return;
  const float4 at = x[slot];
  Block b = nurbs_block_of(slot NURBS_SHELL_VALUES);
  b.force -= to.w * (at.xyz - to.xyz);
  b.xx += to.w;
  b.yy += to.w;
  b.zz += to.w;
  const float3 step = solve_block(&b);
  const float4 moved = at + (float4)(step, 0.0f);
  x[slot] = moved;
  move_nurbs_vectors(slot, 0, moved.xyz - at.xyz, nurbs_range, nurbs_block, nurbs_basis, nurbs_vectors);
}

/* Forces of energy and inertia at the Gauss points as they are, 0 where nothing moves. Work-item: control point. */
__kernel void nurbs_residual(uint count, const __global float4* x, const __global float4* target NURBS_SHELL_ARGS, __global float4* out) {
  const uint slot = (uint)get_global_id(0);
  if (slot >= count) return;
  const float4 to = target[slot];
  const Block b = nurbs_block_of(slot NURBS_SHELL_VALUES);
  out[slot] = to.w < 0.0f ? (float4)(0.0f) : (float4)(b.force - to.w * (x[slot].xyz - to.xyz), 0.0f);
}

/* out = x + moves. Work-item: control point. */
__kernel void nurbs_try(uint count, const __global float4* x, const __global float4* moves, __global float4* out) {
  const uint slot = (uint)get_global_id(0);
  if (slot >= count) return;
  out[slot] = x[slot] + moves[slot];
}
