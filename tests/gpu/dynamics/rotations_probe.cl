#include "gpu/shared/types.h"

#ifndef PALPATE_LANES
#define PALPATE_LANES 1
#endif

#include "gpu/dynamics/lanes.clh"

#include "gpu/dynamics/elasticity.clh"
#include "gpu/dynamics/rotations.clh"

/* follow_rotation of rotations.clh for the test. gradients: [block][9][lanes], by rows; turns: [block][4][lanes]; found: [block][13][lanes],
   the rotation by rows, it times g, and the sum of the stretches. */
kernel void probe_follow(uint block_count, float4 g, global const float* gradients, global float* turns, global float* found) {
  const size_t block = get_global_id(0);
  if (block >= block_count) return;
  global const float* in = gradients + block * 9 * PALPATE_LANES;
  global float* out = found + block * 13 * PALPATE_LANES;
  RCorner corner;
  corner.f.xx = LOAD_R(in), corner.f.xy = LOAD_R(in + PALPATE_LANES), corner.f.xz = LOAD_R(in + 2 * PALPATE_LANES);
  corner.f.yx = LOAD_R(in + 3 * PALPATE_LANES), corner.f.yy = LOAD_R(in + 4 * PALPATE_LANES), corner.f.yz = LOAD_R(in + 5 * PALPATE_LANES);
  corner.f.zx = LOAD_R(in + 6 * PALPATE_LANES), corner.f.zy = LOAD_R(in + 7 * PALPATE_LANES), corner.f.zz = LOAD_R(in + 8 * PALPATE_LANES);
  corner.g.x = SPLAT(g.x), corner.g.y = SPLAT(g.y), corner.g.z = SPLAT(g.z);
  follow_rotation(&corner, turns + block * 4 * PALPATE_LANES);
  const RMat r = corner.r;
  STORE_R(r.xx, out);
  STORE_R(r.xy, out + PALPATE_LANES);
  STORE_R(r.xz, out + 2 * PALPATE_LANES);
  STORE_R(r.yx, out + 3 * PALPATE_LANES);
  STORE_R(r.yy, out + 4 * PALPATE_LANES);
  STORE_R(r.yz, out + 5 * PALPATE_LANES);
  STORE_R(r.zx, out + 6 * PALPATE_LANES);
  STORE_R(r.zy, out + 7 * PALPATE_LANES);
  STORE_R(r.zz, out + 8 * PALPATE_LANES);
  STORE_R(corner.rg.x, out + 9 * PALPATE_LANES);
  STORE_R(corner.rg.y, out + 10 * PALPATE_LANES);
  STORE_R(corner.rg.z, out + 11 * PALPATE_LANES);
  STORE_R(corner.stretches, out + 12 * PALPATE_LANES);
}
