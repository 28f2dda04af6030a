/* Elastic energy of NURBS shells as they are, for the host; arrays as nurbs_shell_terms.clh has them.
   Build option: PALPATE_DOUBLE  1: computed and summed in double; 0: in float, with a compensated sum. */
#include "gpu/shared/dynamics_types.h"
#include "gpu/shared/nurbs_shell_types.h"

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

#include "gpu/dynamics/nurbs_shell_elasticity.clh"

#include "gpu/dynamics/nurbs_shell_coupling.clh"

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

/* [J] of the Gauss point in lane `lane` of a block. */
static inline PALPATE_R gauss_energy(const __global float4* x, uint lanes, uint lane, uint2 range, const __global uint* block_slot,
                                     const __global uint* block_entry, const __global float* nurbs_basis, const __global float* rest) {
  RNurbsVectors p;
  p.a1.x = p.a1.y = p.a1.z = 0;
  p.a2 = p.a11 = p.a22 = p.a12 = p.a1;
  const float4 origin = x[block_slot[range.x]];
  for (uint k = range.x; k < range.y; ++k) {
    const float4 place = x[block_slot[k]];
    RVec d;
    d.x = (PALPATE_R)place.x - (PALPATE_R)origin.x;
    d.y = (PALPATE_R)place.y - (PALPATE_R)origin.y;
    d.z = (PALPATE_R)place.z - (PALPATE_R)origin.z;
    const __global float* at = nurbs_basis + (size_t)block_entry[k] * PALPATE_NURBS_BASIS_REALS * lanes + lane;
    add_scaled(&p.a1, (PALPATE_R)at[0], &d);
    add_scaled(&p.a2, (PALPATE_R)at[lanes], &d);
    add_scaled(&p.a11, (PALPATE_R)at[2 * lanes], &d);
    add_scaled(&p.a22, (PALPATE_R)at[3 * lanes], &d);
    add_scaled(&p.a12, (PALPATE_R)at[4 * lanes], &d);
  }
  if (rest[7 * lanes] < 0.0f) {
    const RCoupling coupling = nurbs_coupling(&p);
    RCouplingRest at_rest;
    at_rest.cosine = (PALPATE_R)rest[0];
    at_rest.sine = (PALPATE_R)rest[lanes];
    at_rest.gap = (PALPATE_R)rest[3 * lanes];
    at_rest.turn = (PALPATE_R)rest[4 * lanes];
    return coupling_energy(&p, &coupling, &at_rest);
  }
  const RNurbsGeometry q = nurbs_geometry(&p);
  RPlane rest_curvature;
  rest_curvature.aa = (PALPATE_R)rest[0];
  rest_curvature.bb = (PALPATE_R)rest[lanes];
  rest_curvature.ab = (PALPATE_R)rest[2 * lanes];
  RModuli bending;
  bending.c_aa = (PALPATE_R)rest[3 * lanes];
  bending.c_ab = (PALPATE_R)rest[4 * lanes];
  bending.c_bb = (PALPATE_R)rest[5 * lanes];
  bending.shear = (PALPATE_R)rest[6 * lanes];
  return nurbs_energy(&q, &rest_curvature, &bending, (PALPATE_R)rest[7 * lanes]);
}

/* partials[i] = elastic energy [J] as the sum of x and y, of the blocks in the share of work-item i. `x`: positions by slot. Work-item: a
   contiguous share of the blocks, in order. No atomics, no local memory. */
__kernel void sum_nurbs_energy(uint block_count, uint lanes, const __global float4* x, const __global uint2* block_range,
                               const __global uint* block_slot, const __global uint* block_entry, const __global float* nurbs_basis,
                               const __global float* nurbs_rest, __global float2* partials) {
  const uint items = (uint)get_global_size(0);
  const uint me = (uint)get_global_id(0);
  const uint share = (block_count + items - 1) / items;
  const uint end = min((me + 1) * share, block_count);
  EnergySum s;
  s.sum = s.lost = 0;
  for (uint block = me * share; block < end; ++block) {
    const __global float* rest = nurbs_rest + (size_t)block * PALPATE_NURBS_REST_REALS * lanes;
    for (uint lane = 0; lane < lanes; ++lane) {
      if (rest[3 * lanes + lane] == 0.0f) continue; /* padding */
      add_energy(&s, gauss_energy(x, lanes, lane, block_range[block], block_slot, block_entry, nurbs_basis, rest + lane));
    }
  }
#if PALPATE_DOUBLE
  const float high = (float)s.sum;
  partials[me] = (float2)(high, (float)(s.sum - (double)high));
#else
  partials[me] = (float2)(s.sum, s.lost);
#endif
}
