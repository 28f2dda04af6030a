/* Structs that the collision stages share between host and kernels. */
#ifndef PALPATE_GPU_SHARED_COLLISION_TYPES_H_
#define PALPATE_GPU_SHARED_COLLISION_TYPES_H_

#include "gpu/shared/types.h"

PALPATE_SHARED_BEGIN

/* Elements of a box hierarchy in one group with this bit set may be paired with each other; without it, only with other groups. */
#define PALPATE_GROUP_SELF 0x80000000u
#define PALPATE_GROUP_MASK 0x7fffffffu
#define PALPATE_NO_GROUP 0xffffffffu /* of no surface */

/* Kinds of element pairs. */
#define PALPATE_VERTEX_TRIANGLE 0u
#define PALPATE_EDGE_EDGE 1u

/* A vertex and a triangle, or two edges, nearer than the query's range. Element indices are of the surface given to the detector. A is the
   vertex or the edge of smaller index, B the triangle or the edge of larger index. Sorted by (kind, a, b): that triple is the stable id. */
typedef struct SurfaceContact {
  UInt kind;
  UInt a;
  UInt b;
  UInt group_a;   /* body of A */
  Float4 weights; /* vertex-triangle: barycentric (b0, b1, b2) of the point on B, w = 1; edge-edge: (1-s, s) on A, then (1-t, t) on B */
  Float4 normal;  /* xyz unit, from the point on A to the point on B; w = distance [m] >= 0 */
  UInt4 vertices; /* vertex-triangle: v, t0, t1, t2; edge-edge: a0, a1, b0, b1 */
} SurfaceContact;

/* A vertex and a triangle, or two edges, that meet while their vertices move on straight lines over one step. */
typedef struct CcdHit {
  UInt kind;
  UInt a;
  UInt b;
  float toi;      /* share of the step in [0, 1] that is certainly free of contact; never late */
  Float4 weights; /* as in SurfaceContact: of the points that are nearest to each other at toi */
  Float4 normal;  /* xyz unit, a direction that separated A from B just before toi, from A to B; z if they touch at the start; w unused */
  UInt4 vertices; /* as in SurfaceContact */
} CcdHit;

PALPATE_SHARED_SIZE(SurfaceContact, 64);
PALPATE_SHARED_SIZE(CcdHit, 64);

PALPATE_SHARED_END

#endif /* PALPATE_GPU_SHARED_COLLISION_TYPES_H_ */
