/* Evaluates gpu/dynamics/surface_contact.clh in double on independent cases, for its tests.
   Per case, 16 reals in: x0, x1, x2, x3 (3 each), margin, stiffness, kind, 0. Per case, 32 reals out: energy at the nearest points, their
   distance, squared sine, force, slope, the four weights, minus the energy's gradient (12), the largest block slope weight^2 n n^T of
   vertex 0 (6), 0... */

#pragma OPENCL EXTENSION cl_khr_fp64 : enable

#define PALPATE_S double
#define PALPATE_S3 double3
#include "gpu/dynamics/surface_contact.clh"

__kernel void evaluate_pairs(uint count, const __global double* cases, __global double* results) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const __global double* in = cases + (size_t)i * 16;
  __global double* out = results + (size_t)i * 32;
  const double3 x0 = vload3(0, in), x1 = vload3(1, in), x2 = vload3(2, in), x3 = vload3(3, in);
  const double margin = in[12];
  const double stiffness = in[13];
  double sin_sq;
  const PairWeights w = closest_pair((uint)in[14], x0, x1, x2, x3, &sin_sq);
  const double3 d = pair_vector(x0, x1, x2, x3, w);
  const double dist = length(d);
  const double3 n = d / dist;
  double slope;
  const double force = barrier_force(dist, margin, stiffness, &slope);
  out[0] = barrier_energy(dist, margin, stiffness);
  out[1] = dist;
  out[2] = sin_sq;
  out[3] = force;
  out[4] = slope;
  out[5] = w.w0;
  out[6] = w.w1;
  out[7] = w.w2;
  out[8] = w.w3;
  vstore3(w.w0 * force * n, 0, out + 9);
  vstore3(w.w1 * force * n, 0, out + 12);
  vstore3(w.w2 * force * n, 0, out + 15);
  vstore3(w.w3 * force * n, 0, out + 18);
  const double h = w.w0 * w.w0 * slope;
  out[21] = h * n.x * n.x;
  out[22] = h * n.x * n.y;
  out[23] = h * n.x * n.z;
  out[24] = h * n.y * n.y;
  out[25] = h * n.y * n.z;
  out[26] = h * n.z * n.z;
}
