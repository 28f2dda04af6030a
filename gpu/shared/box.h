/* Axis-aligned box. */
#ifndef PALPATE_GPU_SHARED_BOX_H_
#define PALPATE_GPU_SHARED_BOX_H_

#include "gpu/shared/types.h"

PALPATE_SHARED_BEGIN

/* The points p with lower <= p <= upper in x, y and z [m]; w is 0. The empty box has lower = +inf, upper = -inf. */
typedef struct Box {
  Float4 lower;
  Float4 upper;
} Box;
PALPATE_SHARED_SIZE(Box, 32);

PALPATE_SHARED_END

#endif /* PALPATE_GPU_SHARED_BOX_H_ */
