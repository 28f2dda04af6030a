#include "gpu/primitives/group.clh"
#include "gpu/shared/box.h"

/* Reduction: each work-group reduces its chunk to one partial result, then one group reduces the partial results. The order of the
   operations depends only on the count and the launch shape, so floating-point sums are the same from run to run.

   Given by the host: VALUE (type of the result), ELEMENT (type of the input), and one of REDUCE_SUM, REDUCE_MIN, REDUCE_MAX, REDUCE_BOX;
   IDENTITY for the first three. */

#if defined(REDUCE_BOX)
VALUE identity(void) {
  const VALUE box = {(Float4)(INFINITY, INFINITY, INFINITY, 0.0f), (Float4)(-INFINITY, -INFINITY, -INFINITY, 0.0f)};
  return box;
}
VALUE combine(VALUE a, VALUE b) {
  const VALUE box = {fmin(a.lower, b.lower), fmax(a.upper, b.upper)};
  return box;
}
VALUE value_of(ELEMENT point) {
  const Float4 p = (Float4)(point.xyz, 0.0f);
  const VALUE box = {p, p};
  return box;
}
#else
VALUE identity(void) { return IDENTITY; }
VALUE value_of(ELEMENT element) { return element; }
#if defined(REDUCE_SUM)
VALUE combine(VALUE a, VALUE b) { return a + b; }
#elif defined(REDUCE_MIN)
VALUE combine(VALUE a, VALUE b) { return MIN_FUNCTION(a, b); }
#elif defined(REDUCE_MAX)
VALUE combine(VALUE a, VALUE b) { return MAX_FUNCTION(a, b); }
#endif
#endif

#if GROUP_SIZE > 1
/* All work-items call it; the result is valid in work-item 0. */
VALUE reduce_group(VALUE value, local VALUE* scratch) {
  const uint item = (uint)get_local_id(0);
  scratch[item] = value;
  for (uint width = GROUP_SIZE / 2; width > 0; width /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < width) scratch[item] = combine(scratch[item], scratch[item + width]);
  }
  return item == 0 ? scratch[0] : value; /* it alone has written there since the last barrier */
}
#else
#define reduce_group(value, scratch) (value)
#endif

/* partials[group] = the combined elements of the group's chunk. Work-item i combines elements i*ITEMS+k of each tile, each k on its own
   (the compiler turns them into vector lanes), then the lanes in order. */
GROUP_KERNEL void reduce_chunks(uint capacity, global const uint* device_count, global const ELEMENT* in, global VALUE* partials) {
#if GROUP_SIZE > 1
  local VALUE scratch[GROUP_SIZE];
#endif
  const Chunk chunk = chunk_of_group(element_count(capacity, device_count));
  VALUE lanes[ITEMS];
  for (uint k = 0; k < ITEMS; ++k) lanes[k] = identity();
  const size_t whole_tiles = (chunk.end - chunk.begin) / TILE;
  size_t i = chunk.begin + get_local_id(0) * ITEMS;
  for (size_t tile = 0; tile < whole_tiles; ++tile, i += TILE) {
#pragma unroll
    for (uint k = 0; k < ITEMS; ++k) lanes[k] = combine(lanes[k], value_of(in[i + k]));
  }
  for (uint k = 0; k < ITEMS; ++k) {
    if (i + k < chunk.end) lanes[k] = combine(lanes[k], value_of(in[i + k]));
  }
  VALUE value = lanes[0];
  for (uint k = 1; k < ITEMS; ++k) value = combine(value, lanes[k]);
  value = reduce_group(value, scratch);
  if (get_local_id(0) == 0) partials[get_group_id(0)] = value;
}

/* out[0] = the combined partials. One work-group. */
GROUP_KERNEL void reduce_partials(uint partial_count, global const VALUE* partials, global VALUE* out) {
#if GROUP_SIZE > 1
  local VALUE scratch[GROUP_SIZE];
#endif
  VALUE value = identity();
  for (uint i = (uint)get_local_id(0); i < partial_count; i += GROUP_SIZE) value = combine(value, partials[i]);
  value = reduce_group(value, scratch);
  if (get_local_id(0) == 0) out[0] = value;
}
