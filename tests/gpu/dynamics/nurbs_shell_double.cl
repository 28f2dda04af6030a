/* Evaluates gpu/dynamics/nurbs_shell_elasticity.clh on independent cases, for its tests, in double.
   evaluate_nurbs_points, 35 reals in: a1, a2, a11, a22, a12 (15), curvature at rest 11, 22, 12 (3), at the start of the step (3), strain
   there 11, 22, 12 (3), bending moduli (4), membrane moduli as multiples, damping/dt, basis g1, g2, h11, h22, h12 (5). 10 reals
   out: energy with what damping adds, force (3), Hessian block (6: xx xy xz yy yz zz). */
#define PALPATE_R double
#pragma OPENCL EXTENSION cl_khr_fp64 : enable

#include "gpu/dynamics/elasticity.clh"
#include "gpu/dynamics/shell_elasticity.clh"

#include "gpu/dynamics/nurbs_shell_elasticity.clh"

static inline RVec load_vec(const __global PALPATE_R* in) {
  RVec v;
  v.x = in[0];
  v.y = in[1];
  v.z = in[2];
  return v;
}

static inline RPlane load_plane(const __global PALPATE_R* in) {
  RPlane p;
  p.aa = in[0];
  p.bb = in[1];
  p.ab = in[2];
  return p;
}

/* Work-item: case. */
__kernel void evaluate_nurbs_points(uint count, const __global PALPATE_R* cases, __global PALPATE_R* results) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const __global PALPATE_R* in = cases + (size_t)i * 35;
  __global PALPATE_R* out = results + (size_t)i * 10;
  RNurbsVectors p;
  p.a1 = load_vec(in);
  p.a2 = load_vec(in + 3);
  p.a11 = load_vec(in + 6);
  p.a22 = load_vec(in + 9);
  p.a12 = load_vec(in + 12);
  const RPlane rest = load_plane(in + 15);
  const RPlane curvature_before = load_plane(in + 18);
  const RPlane strain_before = load_plane(in + 21);
  RModuli bending;
  bending.c_aa = in[24];
  bending.c_ab = in[25];
  bending.c_bb = in[26];
  bending.shear = in[27];
  RModuli membrane = bending;
  membrane.c_aa *= in[28];
  membrane.c_ab *= in[28];
  membrane.c_bb *= in[28];
  membrane.shear *= in[28];
  const PALPATE_R rate = in[29];
  RNurbsBasis r;
  r.g1 = in[30];
  r.g2 = in[31];
  r.h11 = in[32];
  r.h22 = in[33];
  r.h12 = in[34];
  const RNurbsGeometry q = nurbs_geometry(&p);
  const RPlane change = plane_minus(&q.curvature, &rest);
  const RPlane bent = plane_minus(&q.curvature, &curvature_before);
  const RPlane strained = plane_minus(&q.strain, &strain_before);
  RPlane stress;
  stress.aa = stress.ab = stress.bb = 0;
  RPlane moment = stress;
  add_plane_stress(&q.strain, (PALPATE_R)1, &membrane, &stress);
  add_plane_stress(&strained, rate, &membrane, &stress);
  add_plane_stress(&change, (PALPATE_R)1, &bending, &moment);
  add_plane_stress(&bent, rate, &bending, &moment);
  const PALPATE_R viscous = rate * (plane_energy(&bent, &bending) + plane_energy(&strained, &membrane));
  const PALPATE_R energy = nurbs_energy(&q, &rest, &bending, in[28]) + viscous;
  RModuli bending_slope = bending;
  bending_slope.c_aa *= 1 + rate;
  bending_slope.c_ab *= 1 + rate;
  bending_slope.c_bb *= 1 + rate;
  bending_slope.shear *= 1 + rate;
  RModuli membrane_slope = membrane;
  membrane_slope.c_aa *= 1 + rate;
  membrane_slope.c_ab *= 1 + rate;
  membrane_slope.c_bb *= 1 + rate;
  membrane_slope.shear *= 1 + rate;
  RVec force;
  force.x = force.y = force.z = 0;
  RSym h;
  h.xx = h.xy = h.xz = h.yy = h.yz = h.zz = 0;
  add_nurbs_point(&p, &q, &stress, &moment, &membrane_slope, &bending_slope, &r, &force, &h);
  out[0] = energy;
  out[1] = force.x;
  out[2] = force.y;
  out[3] = force.z;
  out[4] = h.xx;
  out[5] = h.xy;
  out[6] = h.xz;
  out[7] = h.yy;
  out[8] = h.yz;
  out[9] = h.zz;
}
