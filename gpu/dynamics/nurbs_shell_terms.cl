/* Gauss points of NURBS shells from positions of all control points; arrays as nurbs_shell_terms.clh has them.
   Build option: PALPATE_LANES  1, 4, 8 or 16. */
#include "gpu/shared/dynamics_types.h"

#ifndef PALPATE_LANES /* default for tools that look at this file alone */
#define PALPATE_LANES 1
#endif
#define PALPATE_TEAM 1
#define PALPATE_NURBS_VISCOUS 0
#include "gpu/dynamics/lanes.clh"

#include "gpu/dynamics/elasticity.clh"
#include "gpu/dynamics/shell_elasticity.clh"

#include "gpu/dynamics/nurbs_shell_terms.clh"

/* nurbs_vectors of all blocks. Work-item: block. `x`: positions by slot. Derivatives of basis functions sum to 0 over a Gauss point, so
   places are taken from that of the block's first control point, which keeps what is rounded small. */
__kernel void nurbs_strains(uint block_count, const __global float4* x, const __global uint2* block_range, const __global uint* block_slot,
                            const __global uint* block_entry, const __global float* nurbs_basis, __global float* nurbs_vectors) {
  const uint block = (uint)get_global_id(0);
  if (block >= block_count) return;
  const uint2 range = block_range[block];
  RNurbsVectors p;
  p.a1.x = p.a1.y = p.a1.z = SPLAT(0.0f);
  p.a2 = p.a11 = p.a22 = p.a12 = p.a1;
  const float4 origin = x[block_slot[range.x]];
  for (uint k = range.x; k < range.y; ++k) {
    const float4 place = x[block_slot[k]] - origin;
    RVec d;
    d.x = SPLAT(place.x);
    d.y = SPLAT(place.y);
    d.z = SPLAT(place.z);
    const RNurbsBasis r = load_nurbs_basis(nurbs_basis + (size_t)block_entry[k] * PALPATE_NURBS_BASIS_REALS * PALPATE_LANES);
    add_nurbs_move(&p, &r, &d);
  }
  store_nurbs_vectors(&p, nurbs_vectors + (size_t)block * PALPATE_NURBS_VECTOR_REALS * PALPATE_LANES);
}

/* Strains and curvatures at the start of the step, from nurbs_vectors. Work-item: block. */
__kernel void start_nurbs(uint block_count, const __global float* nurbs_vectors, __global float* nurbs_start) {
  const uint block = (uint)get_global_id(0);
  if (block >= block_count) return;
  const RNurbsVectors p = load_nurbs_vectors(nurbs_vectors + (size_t)block * PALPATE_NURBS_VECTOR_REALS * PALPATE_LANES);
  const RNurbsGeometry q = nurbs_geometry(&p);
  __global float* out = nurbs_start + (size_t)block * PALPATE_NURBS_START_REALS * PALPATE_LANES;
  STORE_R(q.strain.aa, out);
  STORE_R(q.strain.bb, out + PALPATE_LANES);
  STORE_R(q.strain.ab, out + 2 * PALPATE_LANES);
  STORE_R(q.curvature.aa, out + 3 * PALPATE_LANES);
  STORE_R(q.curvature.bb, out + 4 * PALPATE_LANES);
  STORE_R(q.curvature.ab, out + 5 * PALPATE_LANES);
}
