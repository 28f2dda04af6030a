/* Structs of the continuous collision detector. */
#ifndef PALPATE_GPU_SHARED_CCD_TYPES_H_
#define PALPATE_GPU_SHARED_CCD_TYPES_H_

#include "gpu/shared/types.h"

PALPATE_SHARED_BEGIN

/* What a single query found. */
typedef struct CcdAnswer {
  float toi;      /* share of the step that is certainly free of contact, rounded down; 1 without a hit */
  UInt is_hit;    /* 0: proven not to meet */
  UInt is_finite; /* 0: a coordinate is NaN or too large to take differences; is_hit is 1 then */
  UInt steps;     /* of the march through time */
} CcdAnswer;

PALPATE_SHARED_SIZE(CcdAnswer, 16);

PALPATE_SHARED_END

#endif /* PALPATE_GPU_SHARED_CCD_TYPES_H_ */
