/* Scatters runs of words into several buffers. */
#include "gpu/shared/types.h"

/* Work-item: run (target, first word there, word count, first word of its source). Runs do not overlap. */
kernel void write_runs(uint first, uint count, global const UInt4* runs, global const uint* words, global uint* t0, global uint* t1,
                       global uint* t2, global uint* t3, global uint* t4, global uint* t5, global uint* t6, global uint* t7) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const UInt4 run = runs[first + i];
  global uint* to = t0;
  switch (run.x) {
    case 1:
      to = t1;
      break;
    case 2:
      to = t2;
      break;
    case 3:
      to = t3;
      break;
    case 4:
      to = t4;
      break;
    case 5:
      to = t5;
      break;
    case 6:
      to = t6;
      break;
    case 7:
      to = t7;
      break;
    default:
      break;
  }
  for (uint k = 0; k < run.z; ++k) to[(size_t)run.y + k] = words[(size_t)run.w + k];
}
