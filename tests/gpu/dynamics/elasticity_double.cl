/* Evaluates gpu/dynamics/elasticity.clh on independent cases, for its tests. PALPATE_R: double (default) or float.
   Per case, 31 reals in: F (9, by rows), R (9), g (3), C at the start of the step (6: xx xy xz yy yz zz), rate, V mu, V lambda, 0.
   Per case, 30 reals out: for neo-Hookean, corotated, viscous in turn: energy, force (3), Hessian block (6: xx xy xz yy yz zz). */
#include "gpu/shared/prelude.h"

#ifndef PALPATE_R
#define PALPATE_R double
#define PALPATE_DOUBLE 1
#endif
#if PALPATE_DOUBLE
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif

#include "gpu/dynamics/elasticity.clh"

#define REALS_IN 31
#define REALS_OUT 30

static inline RMat load_mat(const __global PALPATE_R* in) {
  RMat m;
  m.xx = in[0];
  m.xy = in[1];
  m.xz = in[2];
  m.yx = in[3];
  m.yy = in[4];
  m.yz = in[5];
  m.zx = in[6];
  m.zy = in[7];
  m.zz = in[8];
  return m;
}

static inline void clear(RVec* force, RSym* hessian) {
  force->x = force->y = force->z = 0;
  hessian->xx = hessian->xy = hessian->xz = hessian->yy = hessian->yz = hessian->zz = 0;
}

static inline void store(PALPATE_R energy, const RVec* force, const RSym* hessian, __global PALPATE_R* out) {
  out[0] = energy;
  out[1] = force->x;
  out[2] = force->y;
  out[3] = force->z;
  out[4] = hessian->xx;
  out[5] = hessian->xy;
  out[6] = hessian->xz;
  out[7] = hessian->yy;
  out[8] = hessian->yz;
  out[9] = hessian->zz;
}

__kernel void evaluate_elasticity(uint count, const __global PALPATE_R* cases, __global PALPATE_R* results) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const __global PALPATE_R* in = cases + (size_t)i * REALS_IN;
  __global PALPATE_R* out = results + (size_t)i * REALS_OUT;
  const RMat f = load_mat(in);
  const RMat r = load_mat(in + 9);
  RVec g;
  g.x = in[18];
  g.y = in[19];
  g.z = in[20];
  RSym start;
  start.xx = in[21];
  start.xy = in[22];
  start.xz = in[23];
  start.yy = in[24];
  start.yz = in[25];
  start.zz = in[26];
  const PALPATE_R rate = in[27];
  const PALPATE_R mu = in[28];
  const PALPATE_R lambda = in[29];
  RVec force;
  RSym hessian;
  clear(&force, &hessian);
  add_neo_hookean(&f, &g, mu, lambda, &force, &hessian);
  store(neo_hookean_energy(&f, mu, lambda), &force, &hessian, out);
  clear(&force, &hessian);
  add_corotated(&f, &r, &g, mu, lambda, &force, &hessian);
  store(corotated_energy(&f, &r, mu, lambda), &force, &hessian, out + 10);
  clear(&force, &hessian);
  add_viscous(&f, &g, &start, rate, mu, lambda, &force, &hessian);
  store(viscous_energy(&f, &start, rate, mu, lambda), &force, &hessian, out + 20);
}
