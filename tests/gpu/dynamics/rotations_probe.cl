#include "gpu/shared/types.h"

#ifndef PALPATE_LANES
#define PALPATE_LANES 1
#endif

#include "gpu/dynamics/lanes.clh"

#include "gpu/dynamics/elasticity.clh"
#include "gpu/dynamics/rotations.clh"

/* follow_rotation of rotations.clh for the test. gradients, found: [block][9][lanes], by rows; turns: [block][4][lanes]. */
kernel void probe_follow(uint block_count, global const float* gradients, global float* turns, global float* found) {
  const size_t block = get_global_id(0);
  if (block >= block_count) return;
  global const float* in = gradients + block * 9 * PALPATE_LANES;
  global float* out = found + block * 9 * PALPATE_LANES;
  RMat f;
  f.xx = LOAD_R(in), f.xy = LOAD_R(in + PALPATE_LANES), f.xz = LOAD_R(in + 2 * PALPATE_LANES);
  f.yx = LOAD_R(in + 3 * PALPATE_LANES), f.yy = LOAD_R(in + 4 * PALPATE_LANES), f.yz = LOAD_R(in + 5 * PALPATE_LANES);
  f.zx = LOAD_R(in + 6 * PALPATE_LANES), f.zy = LOAD_R(in + 7 * PALPATE_LANES), f.zz = LOAD_R(in + 8 * PALPATE_LANES);
  const RMat r = follow_rotation(&f, turns + block * 4 * PALPATE_LANES);
  STORE_R(r.xx, out);
  STORE_R(r.xy, out + PALPATE_LANES);
  STORE_R(r.xz, out + 2 * PALPATE_LANES);
  STORE_R(r.yx, out + 3 * PALPATE_LANES);
  STORE_R(r.yy, out + 4 * PALPATE_LANES);
  STORE_R(r.yz, out + 5 * PALPATE_LANES);
  STORE_R(r.zx, out + 6 * PALPATE_LANES);
  STORE_R(r.zy, out + 7 * PALPATE_LANES);
  STORE_R(r.zz, out + 8 * PALPATE_LANES);
}
