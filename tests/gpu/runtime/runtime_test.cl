/* Kernels of the runtime's tests. One work-item is one element. */

#ifndef SCALE
#define SCALE 1
#endif

kernel void scale_values(global const int* in, global int* out, uint count) {
  const size_t i = get_global_id(0);
  if (i < count) out[i] = in[i] * SCALE;
}

/* Writes out[offset], wherever that is. */
kernel void write_at(global int* out, int offset, int value) {
  if (get_global_id(0) == 0) out[offset] = value;
}

kernel void sum_of_group(global const uint* in, global uint* out, local uint* scratch) {
  const size_t l = get_local_id(0);
  scratch[l] = in[get_global_id(0)];
  barrier(CLK_LOCAL_MEM_FENCE);
  if (l == 0) {
    uint sum = 0;
    for (size_t i = 0; i < get_local_size(0); ++i) sum += scratch[i];
    out[get_group_id(0)] = sum;
  }
}

/* The size of the group that each work-item is in. */
kernel void group_sizes(global uint* out, uint count) {
  const size_t i = get_global_id(0);
  if (i < count) out[i] = (uint)get_local_size(0);
}

/* a * b + c, for the compiler to fuse if it may. */
kernel void multiply_add(global const float* a, global const float* b, global const float* c, global float* out, uint count) {
  const size_t i = get_global_id(0);
  if (i < count) out[i] = a[i] * b[i] + c[i];
}

kernel void divide_and_root(global const float* a, global const float* b, global float* quotient, global float* root, uint count) {
  const size_t i = get_global_id(0);
  if (i >= count) return;
  quotient[i] = a[i] / b[i];
  root[i] = sqrt(a[i]);
}
