/* Evaluates gpu/dynamics/elasticity.clh on independent cases, for its tests. PALPATE_R: double (default) or float. With PALPATE_DISPLACED F
   and C are given without the unit matrix.
   Per case, 45 reals in: F (9, by rows), R (9), g (3), C at the start of the step (6: xx xy xz yy yz zz), rate, V mu, V lambda, rows of
   Dm^-1 (9, minus their sum is g), fibre direction (3), V alpha, V beta, V (mu along - mu across).
   Per case, 10 reals out for each energy of gpu/shared/energies.h, then for each with fibres (the same where it has none), then for
   viscosity: energy, force (3), Hessian block (6: xx xy xz yy yz zz). */
#include "gpu/shared/energies.h"

#ifndef PALPATE_R
#define PALPATE_R double
#define PALPATE_DOUBLE 1
#endif
#if PALPATE_DOUBLE
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif

#include "gpu/dynamics/elasticity.clh"

#define REALS_IN 45
#define COUNT_ENERGY(name, Name, api, code, text) +1
#define TERMS ((PALPATE_ELASTIC_ENERGIES(COUNT_ENERGY)) * 2 + 1)
#define REALS_OUT (TERMS * 10)

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
  RCorner corner;
  const RMat gradient = load_mat(in);
  set_deformation(&corner, &gradient);
  corner.g = load_vec(in + 18);
  const RMat r = load_mat(in + 9);
  set_rotation(&corner, &r);
  RSym start;
  start.xx = in[21];
  start.xy = in[22];
  start.xz = in[23];
  start.yy = in[24];
  start.yz = in[25];
  start.zz = in[26];
  const PALPATE_R rate = in[27];
  corner.mu_v = in[28];
  corner.lambda_v = in[29];
  corner.row_a = load_vec(in + 30);
  corner.row_b = load_vec(in + 33);
  corner.row_c = load_vec(in + 36);
  corner.fibers.a = load_vec(in + 39);
  corner.fibers.alpha_v = in[42];
  corner.fibers.beta_v = in[43];
  corner.fibers.shear_v = in[44];
  RVec force;
  RSym hessian;
  for (corner.has_fibers = 0; corner.has_fibers < 2; ++corner.has_fibers) {
#define EVALUATE(name, Name, api, code, text)                           \
  clear(&force, &hessian);                                              \
  add_##name##_corner(&corner, (PALPATE_R)1, &force, &hessian);         \
  store(name##_corner_energy(&corner), &force, &hessian, out);          \
  out += 10;
    PALPATE_ELASTIC_ENERGIES(EVALUATE)
  }
  clear(&force, &hessian);
#if PALPATE_DISPLACED
  add_viscous_displaced(&corner.f, &corner.h, &corner.g, &start, rate, corner.mu_v, corner.lambda_v, &force, &hessian);
  const RSym strain = green_strain_since(&corner.h, &start);
  store(hooke_energy(&strain, rate * corner.mu_v, rate * corner.lambda_v), &force, &hessian, out);
#else
  add_viscous(&corner.f, &corner.g, &start, rate, corner.mu_v, corner.lambda_v, &force, &hessian);
  store(viscous_energy(&corner.f, &start, rate, corner.mu_v, corner.lambda_v), &force, &hessian, out);
#endif
}
