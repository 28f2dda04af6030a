/* Evaluates gpu/dynamics/shell_elasticity.clh on independent cases, for its tests. PALPATE_R: double (default) or float.
   evaluate_membranes, 20 reals in: positions of the three vertices of a triangle (9), rows of Dm^-1 of the second and the third (4),
   moduli (4), lambda'/mu, limit, modulus of the limit. 30 reals out, for the first vertex: St-Venant-Kirchhoff, neo-Hookean, limit alone,
   each with energy, force (3), Hessian block (6: xx xy xz yy yz zz).
   evaluate_hinges, 13 reals in: positions (12), angle at rest. 40 reals
   out: for each vertex of the hinge as above. */
#ifndef PALPATE_R
#define PALPATE_R double
#define PALPATE_DOUBLE 1
#endif
#if PALPATE_DOUBLE
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif

#include "gpu/dynamics/elasticity.clh"
#include "gpu/dynamics/shell_elasticity.clh"

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

/* Work-item: case of 20 reals. */
__kernel void evaluate_membranes(uint count, const __global PALPATE_R* cases, __global PALPATE_R* results) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const __global PALPATE_R* in = cases + (size_t)i * 20;
  __global PALPATE_R* out = results + (size_t)i * 30;
  const RVec x0 = load_vec(in);
  const RVec x1 = load_vec(in + 3);
  const RVec x2 = load_vec(in + 6);
  const RVec a = vec_minus(&x1, &x0);
  const RVec b = vec_minus(&x2, &x0);
  const RVec opposite = vec_minus(&x2, &x1);
  RFrame f;
  f.a.x = a.x * in[9] + b.x * in[11];
  f.a.y = a.y * in[9] + b.y * in[11];
  f.a.z = a.z * in[9] + b.z * in[11];
  f.b.x = a.x * in[10] + b.x * in[12];
  f.b.y = a.y * in[10] + b.y * in[12];
  f.b.z = a.z * in[10] + b.z * in[12];
  const PALPATE_R ga = -(in[9] + in[11]);
  const PALPATE_R gb = -(in[10] + in[12]);
  RModuli k;
  k.c_aa = in[13];
  k.c_ab = in[14];
  k.c_bb = in[15];
  k.shear = in[16];
  const RPlane e = plane_strain(&f);
  RVec force;
  RSym hessian;
  RPlane s;
  s.aa = s.ab = s.bb = 0;
  add_plane_stress(&e, (PALPATE_R)1, &k, &s);
  clear(&force, &hessian);
  add_plane(&f, ga, gb, &s, &k, &force, &hessian);
  store(plane_energy(&e, &k), &force, &hessian, out);
  clear(&force, &hessian);
  add_sheet_neo_hookean(&f, ga, gb, &opposite, k.shear, in[17], &force, &hessian);
  store(sheet_neo_hookean_energy(&f, k.shear, in[17]), &force, &hessian, out + 10);
  s.aa = s.ab = s.bb = 0;
  RModuli slope;
  slope.c_aa = slope.c_ab = slope.c_bb = slope.shear = 0;
  add_limit(&e, in[18], in[19], &s, &slope);
  clear(&force, &hessian);
  add_plane(&f, ga, gb, &s, &slope, &force, &hessian);
  store(limit_energy(&e, in[18], in[19]), &force, &hessian, out + 20);
}

/* Work-item: case of 13 reals. The stiffness is 1. */
__kernel void evaluate_hinges(uint count, const __global PALPATE_R* cases, __global PALPATE_R* results) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const __global PALPATE_R* in = cases + (size_t)i * 13;
  __global PALPATE_R* out = results + (size_t)i * 40;
  const RVec x0 = load_vec(in);
  const RVec x1 = load_vec(in + 3);
  const RVec x2 = load_vec(in + 6);
  const RVec x3 = load_vec(in + 9);
  const RHinge hinges[2] = {hinge_of(&x0, &x1, &x2, &x3), hinge_of(&x1, &x0, &x3, &x2)};
  for (uint v = 0; v < 4; ++v) {
    const RHinge h = hinges[v & 1u];
    const PALPATE_R moment = turn_from(in[12], h.angle);
    RVec force;
    RSym hessian;
    clear(&force, &hessian);
    if (v < 2) {
      add_hinge_end(&h, moment, (PALPATE_R)1, &force, &hessian);
    } else {
      add_hinge_side(&h, moment, (PALPATE_R)1, &force, &hessian);
    }
    store(hinge_energy(&h, in[12], (PALPATE_R)1), &force, &hessian, out + 10 * v);
  }
}
