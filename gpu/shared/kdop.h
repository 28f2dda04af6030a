/* Structs of the broad phase of bodies that host and kernels share. */
#ifndef PALPATE_GPU_SHARED_KDOP_H_
#define PALPATE_GPU_SHARED_KDOP_H_

#include "gpu/shared/types.h"

PALPATE_SHARED_BEGIN

/* Filter of a body: two bodies with this bit set make no pair, nor do two whose other bits are equal and not 0. */
#define PALPATE_BODY_STATIC 0x80000000u
#define PALPATE_BODY_GROUP_MASK 0x7fffffffu

/* One placed copy of a shared mesh: a vertex v of it is at rotation * (scale .* v) + position. */
typedef struct RigidInstance {
  Float4 position; /* xyz [m]; w unused */
  Float4 rotation; /* unit quaternion, x, y, z = vector part, w = scalar part */
  Float4 scale;    /* xyz, dimensionless, may differ by axis; w unused */
  UInt4 mesh;      /* x: first vertex of the mesh; the rest unused */
} RigidInstance;
PALPATE_SHARED_SIZE(RigidInstance, 64);

/* What the emission of pairs leaves for the host. */
typedef struct PairCounters {
  UInt pair_count; /* pairs found, modulo 2^32, also those past the capacity */
  UInt wraps;      /* how often pair_count passed 2^32 */
  UInt bad_body;   /* smallest index of a body with an invalid volume; 0xffffffff if there is none */
  UInt row_tiles;  /* bodies compared with a cluster, of AllPairs */
} PairCounters;
PALPATE_SHARED_SIZE(PairCounters, 16);

/* Moments of the centres in one chunk of bodies, about one of them. */
typedef struct CentreMoments {
  Float4 reference; /* xyz [m]; w = number of bodies */
  Float4 sum;       /* xyz = sum of d = centre - reference [m] */
  Float4 diagonal;  /* xyz = sum of d_x^2, d_y^2, d_z^2 [m^2] */
  Float4 mixed;     /* xyz = sum of d_x d_y, d_x d_z, d_y d_z [m^2] */
} CentreMoments;
PALPATE_SHARED_SIZE(CentreMoments, 64);

PALPATE_SHARED_END

#endif /* PALPATE_GPU_SHARED_KDOP_H_ */
