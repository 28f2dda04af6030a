#include "gpu/shared/convex_types.h"

#include "gpu/dynamics/shape_matching.clh"

/* Set i: points [begins[i], begins[i + 1]). matches[i] and the goals of its points. */
kernel void shape_match(uint set_count, global const uint* begins, global const Float4* rest, global const Float4* current,
                        global ShapeMatch* matches, global Float4* goals) {
  const size_t set = get_global_id(0);
  if (set >= set_count) return;
  const uint begin = begins[set];
  const uint end = begins[set + 1];
  /* Means are taken from the first point, so that sets far from the origin lose nothing. */
  float mass = 0.0f;
  float3 rest_sum = (float3)(0.0f);
  float3 current_sum = (float3)(0.0f);
  for (uint i = begin; i < end; ++i) {
    mass += rest[i].w;
    rest_sum += rest[i].w * (rest[i].xyz - rest[begin].xyz);
    current_sum += rest[i].w * (current[i].xyz - current[begin].xyz);
  }
  ShapeMatch match;
  match.rotation = (Float4)(0.0f, 0.0f, 0.0f, 1.0f);
  match.rest_center = (Float4)(0.0f);
  match.center = (Float4)(0.0f);
  match.rank = 0;
  match.converged = 1;
  match.unused0 = 0;
  match.unused1 = 0;
  if (begin < end && mass > 0.0f) {
    const float3 rest_center = rest_sum / mass;
    const float3 center = current_sum / mass;
    Matrix3 a;
    a.x = a.y = a.z = (float3)(0.0f);
    for (uint i = begin; i < end; ++i) {
      add_outer_product(&a, rest[i].w, (current[i].xyz - current[begin].xyz) - center, (rest[i].xyz - rest[begin].xyz) - rest_center);
    }
    bool converged;
    match.rotation = matching_rotation(&a, &match.rank, &converged);
    match.converged = converged;
    match.rest_center = (Float4)(rest_center + rest[begin].xyz, mass);
    match.center = (Float4)(center + current[begin].xyz, mass);
    for (uint i = begin; i < end; ++i) {
      const float3 goal = quaternion_rotate(match.rotation, (rest[i].xyz - rest[begin].xyz) - rest_center);
      goals[i] = (Float4)(goal + center + current[begin].xyz, 0.0f);
    }
  }
  matches[set] = match;
}
