/* Runs closest_segment_triangle on independent cases, for its test. Per case, five float4 in: p, d (segment p + s d), a, b, c; two float4
   out: the vector from the axis to the triangle with s in w, and the barycentric weights. */
#include "gpu/dynamics/contact.clh"

__kernel void probe_closest(uint count, const __global float4* cases, __global float4* results) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const __global float4* in = cases + (size_t)i * 5;
  float s;
  float3 weights;
  const float3 d = closest_segment_triangle(in[0].xyz, in[1].xyz, in[2].xyz, in[3].xyz, in[4].xyz, &s, &weights);
  results[2 * i] = (float4)(d, s);
  results[2 * i + 1] = (float4)(weights, 0.0f);
}

/* contact_force at violation c[i]: the force and its slope. */
__kernel void probe_contact_force(uint count, const __global StepParams* p, const __global float* violations, __global float2* results) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  float slope;
  const float force = contact_force(p, p->stiffness_n_per_m, violations[i], &slope);
  results[i] = (float2)(force, slope);
}
