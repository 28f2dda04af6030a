/* Elastic energy of shells as they are, each triangle and each edge once, for the host; arrays as shell_terms.clh has them.
   Build option: PALPATE_DOUBLE  1: computed and summed in double; 0: in float, with a compensated sum. */
#include "gpu/shared/dynamics_types.h"

#ifndef PALPATE_DOUBLE /* default for tools that look at this file alone */
#define PALPATE_DOUBLE 1
#endif
#if PALPATE_DOUBLE
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define PALPATE_R double
#else
#define PALPATE_R float
#endif

#include "gpu/dynamics/elasticity.clh"
#include "gpu/dynamics/shell_elasticity.clh"

static inline RVec place_of(float4 v) {
  RVec r;
  r.x = (PALPATE_R)v.x;
  r.y = (PALPATE_R)v.y;
  r.z = (PALPATE_R)v.z;
  return r;
}

/* [J] of the triangle of one corner; `real` and `index` are those of its lane. */
static inline PALPATE_R triangle_energy(const __global float4* x, uint v, const __global float* real, const __global uint* index,
                                        uint lanes) {
  const RVec at = place_of(x[v]);
  const RVec xa = place_of(x[index[0]]);
  const RVec xb = place_of(x[index[lanes]]);
  const RVec a = vec_minus(&xa, &at);
  const RVec b = vec_minus(&xb, &at);
  const PALPATE_R aa = (PALPATE_R)real[0], ab = (PALPATE_R)real[lanes], ba = (PALPATE_R)real[2 * lanes], bb = (PALPATE_R)real[3 * lanes];
  RFrame f;
  f.a.x = a.x * aa + b.x * ba;
  f.a.y = a.y * aa + b.y * ba;
  f.a.z = a.z * aa + b.z * ba;
  f.b.x = a.x * ab + b.x * bb;
  f.b.y = a.y * ab + b.y * bb;
  f.b.z = a.z * ab + b.z * bb;
  RModuli k;
  k.c_aa = (PALPATE_R)real[4 * lanes];
  k.c_ab = (PALPATE_R)real[5 * lanes];
  k.c_bb = (PALPATE_R)real[6 * lanes];
  k.shear = (PALPATE_R)real[7 * lanes];
  const RPlane e = plane_strain(&f);
  const PALPATE_R beyond = limit_energy(&e, (PALPATE_R)real[9 * lanes], (PALPATE_R)PALPATE_SHELL_STIFFENING * fmax(k.c_aa, k.c_bb));
  if (real[11 * lanes] != 0.0f) return beyond + sheet_neo_hookean_energy(&f, k.shear, (PALPATE_R)real[8 * lanes]);
  return beyond + plane_energy(&e, &k);
}

/* [J] of the hinge over the edge from the corner's vertex to the first of `corner`; `others` are c and d. */
static inline PALPATE_R edge_energy(const __global float4* x, uint v, const __global float* real, const __global uint* corner,
                                    const __global uint* others, uint lanes) {
  if (real[0] == 0.0f) return 0; /* there may be none */
  const RVec x0 = place_of(x[v]), x1 = place_of(x[corner[0]]), x2 = place_of(x[corner[lanes]]), x3 = place_of(x[others[0]]);
  const RHinge h = hinge_of(&x0, &x1, &x2, &x3);
  return hinge_energy(&h, (PALPATE_R)real[lanes], (PALPATE_R)real[0]);
}

static inline PALPATE_R quadratic_edge_energy(const __global float4* x, const __global float* real, const __global uint* index,
                                              uint lanes) {
  const RVec x0 = place_of(x[index[0]]), x1 = place_of(x[index[lanes]]), x2 = place_of(x[index[2 * lanes]]);
  const RVec x3 = place_of(x[index[3 * lanes]]);
  const RVec bend = bend_vector(&x0, &x1, &x2, &x3, (PALPATE_R)real[0], (PALPATE_R)real[lanes], (PALPATE_R)real[2 * lanes]);
  return (PALPATE_R)real[5 * lanes] * dot_r(&bend, &bend) / 2;
}

typedef struct {
  PALPATE_R sum, lost;
} EnergySum;

static inline void add_energy(EnergySum* s, PALPATE_R energy) {
#if PALPATE_DOUBLE
  s->sum += energy;
#else
  const float next = s->sum + energy; /* Neumaier 1974 */
  s->lost += fabs(s->sum) >= fabs(energy) ? (s->sum - next) + energy : (energy - next) + s->sum;
  s->sum = next;
#endif
}

/* partials[i] = elastic energy [J] as the sum of x and y, of the elements whose first vertex in the solver's order is in the share of
   work-item i. has_hinges: 0 if the scene has no angles that resist. Work-item: a contiguous share of the vertices. No atomics, no local
   memory. */
__kernel void sum_shell_energy(const __global StepParams* p, uint lanes, uint has_hinges, const __global float4* x,
                               const __global uint2* shell_range, const __global float* membrane_real, const __global uint* membrane_index,
                               const __global float* hinge_real, const __global uint* hinge_index, const __global float* quadratic_real,
                               const __global uint* quadratic_index, __global float2* partials) {
  const uint items = (uint)get_global_size(0);
  const uint me = (uint)get_global_id(0);
  const uint share = (p->vertex_count + items - 1) / items;
  const uint end = min((me + 1) * share, p->vertex_count);
  EnergySum s;
  s.sum = s.lost = 0;
  for (uint v = me * share; v < end; ++v) {
    const uint2 corners = shell_range[PALPATE_SHELL_RANGES * v];
    for (uint k = corners.x * lanes; k < corners.y * lanes; ++k) {
      const uint block = k / lanes;
      const uint lane = k % lanes;
      const __global uint* index = membrane_index + (size_t)block * 2 * lanes + lane;
      if (!(v < index[0])) continue; /* another vertex has the triangle, and this edge; or padding */
      if (v < index[lanes]) {
        add_energy(&s, triangle_energy(x, v, membrane_real + (size_t)block * PALPATE_MEMBRANE_REALS * lanes + lane, index, lanes));
      }
      if (has_hinges == 0) continue;
      add_energy(&s, edge_energy(x, v, hinge_real + (size_t)block * PALPATE_HINGE_REALS * lanes + lane, index,
                                 hinge_index + (size_t)block * 2 * lanes + lane, lanes));
    }
    const uint2 quadratic = shell_range[PALPATE_SHELL_RANGES * v + 1];
    for (uint k = quadratic.x * lanes; k < quadratic.y * lanes; ++k) {
      const uint block = k / lanes;
      const uint lane = k % lanes;
      const __global uint* index = quadratic_index + (size_t)block * 4 * lanes + lane;
      if (index[0] == index[lanes]) continue; /* padding */
      if (v > index[0] || v > index[lanes] || v > index[2 * lanes] || v > index[3 * lanes]) continue;
      add_energy(&s, quadratic_edge_energy(x, quadratic_real + (size_t)block * PALPATE_QUADRATIC_REALS * lanes + lane, index, lanes));
    }
  }
#if PALPATE_DOUBLE
  const float high = (float)s.sum;
  partials[me] = (float2)(high, (float)(s.sum - (double)high));
#else
  partials[me] = (float2)(s.sum, s.lost);
#endif
}
