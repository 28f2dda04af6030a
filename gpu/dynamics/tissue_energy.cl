/* Elastic energy of the tissue as it is, each tet once, for the host.
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
#include "gpu/shared/smoothing_types.h"

static inline RVec load_row(const __global float* real, uint row, uint lanes) {
  RVec r;
  r.x = (PALPATE_R)real[3 * row * lanes];
  r.y = (PALPATE_R)real[(3 * row + 1) * lanes];
  r.z = (PALPATE_R)real[(3 * row + 2) * lanes];
  return r;
}

static inline RVec difference(float4 a, float4 b) {
  RVec r;
  r.x = (PALPATE_R)a.x - (PALPATE_R)b.x;
  r.y = (PALPATE_R)a.y - (PALPATE_R)b.y;
  r.z = (PALPATE_R)a.z - (PALPATE_R)b.z;
  return r;
}

/* What is left of the error of a rotation changes the energy by its square. */
static inline RMat unit_rotation(float4 q) {
  const PALPATE_R qx = (PALPATE_R)q.x, qy = (PALPATE_R)q.y, qz = (PALPATE_R)q.z, qw = (PALPATE_R)q.w;
  const PALPATE_R scale = 1 / sqrt(qx * qx + qy * qy + qz * qz + qw * qw);
  return rotation_of(scale * qx, scale * qy, scale * qz, scale * qw);
}

/* [J]; 0: shape-matched. */
static inline PALPATE_R energy_of(uint energy, const RCorner* corner) {
#define CORNER_ENERGY(name, Name, api, code, text) \
  if (energy == code) return name##_corner_energy(corner);
  PALPATE_ELASTIC_ENERGIES(CORNER_ENERGY)
#undef CORNER_ENERGY
  return 0;
}

/* A sum in double, or in float with what rounding lost (Neumaier 1974). */
typedef struct EnergySum {
  PALPATE_R sum;
  float lost; /* in double unused */
} EnergySum;

static inline void add_energy(EnergySum* s, PALPATE_R energy) {
#if PALPATE_DOUBLE
  s->sum += energy;
#else
  const float next = s->sum + energy;
  s->lost += fabs(s->sum) >= fabs(energy) ? (s->sum - next) + energy : (energy - next) + s->sum;
  s->sum = next;
#endif
}

/* The sum as that of x and y. */
static inline float2 two_floats(EnergySum s) {
#if PALPATE_DOUBLE
  const float high = (float)s.sum;
  return (float2)(high, (float)(s.sum - (double)high));
#else
  return (float2)(s.sum, s.lost);
#endif
}

/* Elastic energy [J] of the tet of one corner: `real` and `index` are those of its lane, see the head of tissue.cl. */
static inline PALPATE_R corner_energy(const __global StepParams* p, float4 xi, const __global float4* x, const __global float* real,
                                      const __global uint* index, uint lanes, uint corner_reals, const __global float4* rotations) {
  const RVec a = difference(x[index[0]], xi);
  const RVec b = difference(x[index[lanes]], xi);
  const RVec c = difference(x[index[2 * lanes]], xi);
  RCorner corner;
  corner.row_a = load_row(real, 0, lanes);
  corner.row_b = load_row(real, 1, lanes);
  corner.row_c = load_row(real, 2, lanes);
  const RVec row_a = corner.row_a, row_b = corner.row_b, row_c = corner.row_c;
  corner.f.xx = a.x * row_a.x + b.x * row_b.x + c.x * row_c.x;
  corner.f.xy = a.x * row_a.y + b.x * row_b.y + c.x * row_c.y;
  corner.f.xz = a.x * row_a.z + b.x * row_b.z + c.x * row_c.z;
  corner.f.yx = a.y * row_a.x + b.y * row_b.x + c.y * row_c.x;
  corner.f.yy = a.y * row_a.y + b.y * row_b.y + c.y * row_c.y;
  corner.f.yz = a.y * row_a.z + b.y * row_b.z + c.y * row_c.z;
  corner.f.zx = a.z * row_a.x + b.z * row_b.x + c.z * row_c.x;
  corner.f.zy = a.z * row_a.y + b.z * row_b.y + c.z * row_c.y;
  corner.f.zz = a.z * row_a.z + b.z * row_b.z + c.z * row_c.z;
  corner.mu_v = (PALPATE_R)real[9 * lanes];
  corner.lambda_v = fmin((PALPATE_R)real[10 * lanes], (PALPATE_R)p->lambda_cap * corner.mu_v);
  corner.has_fibers = corner_reals > 12;
  if (corner.has_fibers) {
    corner.fibers.a = load_row(real, 4, lanes);
    corner.fibers.alpha_v = (PALPATE_R)real[15 * lanes];
    corner.fibers.beta_v = (PALPATE_R)real[16 * lanes];
    corner.fibers.shear_v = (PALPATE_R)real[17 * lanes];
  }
  const uint energy = index[3 * lanes] >> PALPATE_ENERGY_SHIFT;
  if (energy < 15u && (PALPATE_ROTATED_ENERGIES >> energy & 1u) != 0u) {
    corner.r = unit_rotation(rotations[index[3 * lanes] & PALPATE_TET_MASK]);
  }
  return energy_of(energy, &corner);
}

/* partials[i] = elastic energy [J] as the sum of x and y, of the tets whose first vertex in the solver's order is in the share of work-item
   i. Work-item: a contiguous share of the vertices. Corners are read as tissue.cl has them; rotations: of corotated tets, those of x. No
   atomics, no local memory. */
__kernel void sum_elastic_energy(const __global StepParams* p, uint lanes, uint corner_reals, const __global float4* x,
                                 const __global uint2* block_range, const __global float* corner_real, const __global uint* corner_index,
                                 const __global float4* rotations, __global float2* partials) {
  const uint items = (uint)get_global_size(0);
  const uint me = (uint)get_global_id(0);
  const uint share = (p->vertex_count + items - 1) / items;
  const uint end = min((me + 1) * share, p->vertex_count);
  EnergySum sum = {0, 0};
  for (uint v = me * share; v < end; ++v) {
    const uint2 blocks = block_range[v];
    const float4 xi = x[v];
    for (uint k = blocks.x * lanes; k < blocks.y * lanes; ++k) {
      const uint block = k / lanes;
      const uint lane = k % lanes;
      const __global uint* index = corner_index + (size_t)block * 4 * lanes + lane;
      if (!(v < index[0] && v < index[lanes] && v < index[2 * lanes])) continue; /* another corner's, or padding */
      const __global float* real = corner_real + (size_t)block * corner_reals * lanes + lane;
      const PALPATE_R energy = corner_energy(p, xi, x, real, index, lanes, corner_reals, rotations);
      add_energy(&sum, energy);
    }
  }
  partials[me] = two_floats(sum);
}

/* Elastic energy [J] of a smoothing domain, see smoothing.clh. */
static inline PALPATE_R domain_energy(const __global StepParams* p, uint i, const __global float4* x, const __global uint* domain_begin,
                                      const __global uint* domain_slots, const __global float4* domain_gradients,
                                      const __global float4* domain_f, const __global float4* domain_turns) {
  const __global float4* state = domain_f + (size_t)i * PALPATE_SMOOTHING_STATES;
  const uint begin = domain_begin[i];
  const uint end = domain_begin[i + 1];
  const float4 o = x[domain_slots[begin]];
  RCorner corner;
  corner.f.xx = corner.f.xy = corner.f.xz = corner.f.yx = corner.f.yy = corner.f.yz = corner.f.zx = corner.f.zy = corner.f.zz = 0;
  for (uint k = begin + 1; k < end; ++k) {
    const RVec d = difference(x[domain_slots[k]], o);
    const PALPATE_R gx = (PALPATE_R)domain_gradients[k].x, gy = (PALPATE_R)domain_gradients[k].y, gz = (PALPATE_R)domain_gradients[k].z;
    corner.f.xx += d.x * gx, corner.f.xy += d.x * gy, corner.f.xz += d.x * gz;
    corner.f.yx += d.y * gx, corner.f.yy += d.y * gy, corner.f.yz += d.y * gz;
    corner.f.zx += d.z * gx, corner.f.zy += d.z * gy, corner.f.zz += d.z * gz;
  }
  corner.mu_v = (PALPATE_R)state[0].w;
  corner.lambda_v = fmin((PALPATE_R)state[1].w, (PALPATE_R)p->lambda_cap * corner.mu_v);
  corner.has_fibers = 0;
  corner.row_a.x = corner.row_a.y = corner.row_a.z = 0;
  corner.row_b = corner.row_c = corner.row_a;
  const uint energy = (uint)state[2].w;
  if ((PALPATE_ROTATED_ENERGIES >> energy & 1u) != 0u) {
    corner.r = unit_rotation(domain_turns[i]);
  }
  return energy_of(energy, &corner);
}

/* partials[i] = elastic energy [J] as the sum of x and y, of a contiguous share of the smoothing domains. Work-item: partial. */
__kernel void sum_domain_energy(const __global StepParams* p, uint domain_count, const __global float4* x,
                                const __global uint* domain_begin, const __global uint* domain_slots,
                                const __global float4* domain_gradients, const __global float4* domain_f,
                                const __global float4* domain_turns, __global float2* partials) {
  const uint items = (uint)get_global_size(0);
  const uint me = (uint)get_global_id(0);
  const uint share = (domain_count + items - 1) / items;
  const uint end = min((me + 1) * share, domain_count);
  EnergySum sum = {0, 0};
  for (uint i = me * share; i < end; ++i) {
    const PALPATE_R energy = domain_energy(p, i, x, domain_begin, domain_slots, domain_gradients, domain_f, domain_turns);
    add_energy(&sum, energy);
  }
  partials[me] = two_floats(sum);
}
