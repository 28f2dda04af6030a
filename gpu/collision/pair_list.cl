#include "gpu/shared/types.h"

/* out[i] = (first[i], second[i]). */
kernel void pair_zip(uint count, global const uint* first, global const uint* second, global UInt2* out) {
  const size_t i = get_global_id(0);
  if (i < count) out[i] = (UInt2)(first[i], second[i]);
}
