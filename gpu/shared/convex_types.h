/* Structs that the convex narrow phase and the rigid bodies share between host and kernels. */
#ifndef PALPATE_GPU_SHARED_CONVEX_TYPES_H_
#define PALPATE_GPU_SHARED_CONVEX_TYPES_H_

#include "gpu/shared/types.h"

PALPATE_SHARED_BEGIN

/* What became of a pair of convex bodies. */
#define PALPATE_CONVEX_SEPARATED 0u     /* apart by separation_m, with closest points */
#define PALPATE_CONVEX_FAR 1u           /* apart by at least separation_m, which exceeds the range asked for; no closest points */
#define PALPATE_CONVEX_OVERLAPPING 2u   /* separation_m <= 0 */
#define PALPATE_CONVEX_NOT_CONVERGED 3u /* the iteration cap was reached; the rest of the record is the best estimate so far */

/* Flags in ConvexContact.iterations, above the counts. */
#define PALPATE_CONVEX_COUNT_MASK 0xfffu
#define PALPATE_CONVEX_EPA_SHIFT 12u
#define PALPATE_CONVEX_REBUILT 0x80000000u /* GJK ended with a degenerate tetrahedron, which EPA replaced */

/* Body b of a contact with a plane: this bit and the index of the plane. */
#define PALPATE_PLANE_BIT 0x80000000u

/* Lanes of a block of vertices. */
#define PALPATE_CONVEX_LANES 8u

/* A convex mesh. Vertices are stored in blocks of PALPATE_CONVEX_LANES: x of all lanes, then y, then z; the last block repeats a vertex. */
typedef struct ConvexShape {
  UInt block_begin;
  UInt block_count;
  UInt vertex_count;
  UInt row_begin; /* neighbours of vertex i: neighbors[rows[row_begin + i], rows[row_begin + i + 1]); 0xffffffff: scan all vertices */
} ConvexShape;

/* One pair of convex bodies, or a body and a plane. */
typedef struct ConvexContact {
  UInt a;
  UInt b;
  UInt status;
  UInt iterations; /* GJK supports | EPA supports << PALPATE_CONVEX_EPA_SHIFT | flags */
  Float4 normal;   /* xyz unit, from A to B; w = separation_m, negative = penetration depth */
  Float4 point_a;  /* xyz [m] on A; w: separation_m - w is a lower bound of the separation [m] */
  Float4 point_b;  /* xyz [m] on B; w unused */
} ConvexContact;

PALPATE_SHARED_SIZE(ConvexShape, 16);
PALPATE_SHARED_SIZE(ConvexContact, 64);

PALPATE_SHARED_END

#endif /* PALPATE_GPU_SHARED_CONVEX_TYPES_H_ */
