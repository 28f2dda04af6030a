#include "gpu/shared/types.h"

#include "gpu/dynamics/shape_matching.clh"

/* Functions of shape_matching.clh for the test: a matrix is three Float4, its columns. */
kernel void probe_svd(uint count, global const Float4* matrices, global Float4* scaled, global Float4* turned, global Float4* rotations,
                      global UInt2* outcome) {
  const size_t i = get_global_id(0);
  if (i >= count) return;
  Matrix3 a;
  a.x = matrices[3 * i].xyz;
  a.y = matrices[3 * i + 1].xyz;
  a.z = matrices[3 * i + 2].xyz;
  bool converged;
  uint rank;
  rotations[i] = matching_rotation(&a, &rank, &converged);
  outcome[i] = (UInt2)(rank, converged);
  Matrix3 v;
  (void)jacobi_svd(&a, &v);
  scaled[3 * i] = (Float4)(a.x, 0.0f);
  scaled[3 * i + 1] = (Float4)(a.y, 0.0f);
  scaled[3 * i + 2] = (Float4)(a.z, 0.0f);
  turned[3 * i] = (Float4)(v.x, 0.0f);
  turned[3 * i + 1] = (Float4)(v.y, 0.0f);
  turned[3 * i + 2] = (Float4)(v.z, 0.0f);
}

/* logs[i] = log(exp(vectors[i])); quotients[i] = q exp(v) q^-1 applied to e_x, for q = exp of the next vector. */
kernel void probe_quaternions(uint count, global const Float4* vectors, global Float4* logs, global Float4* products) {
  const size_t i = get_global_id(0);
  if (i >= count) return;
  const float4 turn = quaternion_from_vector(vectors[i].xyz);
  const float4 other = quaternion_from_vector(vectors[(i + 1) % count].xyz);
  logs[i] = (Float4)(vector_from_quaternion(turn), length(turn));
  const float4 product = quaternion_product(other, quaternion_product(turn, quaternion_inverse(other)));
  products[i] = (Float4)(quaternion_rotate(product, (float3)(1.0f, 0.0f, 0.0f)), 0.0f);
}
