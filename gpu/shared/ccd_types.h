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

/* What the kernels of ContinuousCollisions count. Candidates and pairs are those of one batch, or of all while candidates are listed. */
typedef struct CcdCounters {
  UInt candidates; /* pairs whose swept boxes overlap */
  UInt pairs;      /* left by the filter */
  UInt hits;
  UInt bad_vertex;    /* ~the smallest vertex without usable coordinates; 0: none */
  UInt earliest_bits; /* of the least time of impact; 0xffffffff: no hit */
  UInt edge_hits;     /* of the hits, those of two edges */
  UInt padding[2];
} CcdCounters;

PALPATE_SHARED_SIZE(CcdAnswer, 16);
PALPATE_SHARED_SIZE(CcdCounters, 32);

PALPATE_SHARED_END

#endif /* PALPATE_GPU_SHARED_CCD_TYPES_H_ */
