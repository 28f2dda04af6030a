/* Evaluates gpu/dynamics/elasticity.clh on independent cases, for its tests. PALPATE_R: double (default) or float.
   Per case, 45 reals in: F (9, by rows), R (9), g (3), C at the start of the step (6: xx xy xz yy yz zz), rate, V mu, V lambda, rows of
   Dm^-1 (9, minus their sum is g), fibre direction (3), V alpha, V beta, V (mu along - mu across).
   Per case, 80 reals out: for neo-Hookean, corotated, viscous, linear, St-Venant-Kirchhoff, the last two with fibres, and springs in turn:
   energy, force (3), Hessian block (6: xx xy xz yy yz zz). */
#include "gpu/shared/prelude.h"

#ifndef PALPATE_R
#define PALPATE_R double
#define PALPATE_DOUBLE 1
#endif
#if PALPATE_DOUBLE
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif

#include "gpu/dynamics/elasticity.clh"

#define REALS_IN 45
#define REALS_OUT 80

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

static inline RVec load_vec(const __global PALPATE_R* in) {
  RVec v;
  v.x = in[0];
  v.y = in[1];
  v.z = in[2];
  return v;
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
  const RVec g = load_vec(in + 18);
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
  const RSym small = small_strain(&f);
  const RSym green = green_strain(&f);
  clear(&force, &hessian);
  add_linear(&small, &g, mu, lambda, &force, &hessian);
  store(hooke_energy(&small, mu, lambda), &force, &hessian, out + 30);
  clear(&force, &hessian);
  add_green(&f, &green, &g, mu, lambda, &force, &hessian);
  store(hooke_energy(&green, mu, lambda), &force, &hessian, out + 40);
  RFibers fibers;
  fibers.a = load_vec(in + 39);
  fibers.alpha_v = in[42];
  fibers.beta_v = in[43];
  fibers.shear_v = in[44];
  clear(&force, &hessian);
  add_linear(&small, &g, mu, lambda, &force, &hessian);
  add_linear_fibers(&small, &g, &fibers, &force, &hessian);
  store(hooke_energy(&small, mu, lambda) + fiber_energy(&small, &fibers), &force, &hessian, out + 50);
  clear(&force, &hessian);
  add_green(&f, &green, &g, mu, lambda, &force, &hessian);
  add_green_fibers(&f, &green, &g, &fibers, &force, &hessian);
  store(hooke_energy(&green, mu, lambda) + fiber_energy(&green, &fibers), &force, &hessian, out + 60);
  const RVec row_a = load_vec(in + 30);
  const RVec row_b = load_vec(in + 33);
  const RVec row_c = load_vec(in + 36);
  clear(&force, &hessian);
  add_springs(&f, &row_a, &row_b, &row_c, mu, &force, &hessian);
  store(springs_energy(&f, &row_a, &row_b, &row_c, mu), &force, &hessian, out + 70);
}
