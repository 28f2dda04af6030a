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

/* Best rigid motion of a point set. */
typedef struct ShapeMatch {
  Float4 rotation;    /* unit quaternion: xyz = vector part, w = scalar part */
  Float4 rest_center; /* xyz [m], w = sum of the weights */
  Float4 center;      /* xyz [m], w = sum of the weights */
  UInt rank;          /* 3: a solid set, 2: flat, 1: straight, 0: a point */
  UInt converged;     /* 0: the rotation is the identity because the input was not finite */
  UInt unused0, unused1;
} ShapeMatch;

#define PALPATE_RIGID_VERLET 1u
#define PALPATE_RIGID_CORRECT_VELOCITIES 2u
#define PALPATE_RIGID_GROUND 4u
#define PALPATE_RIGID_LINE_SEARCH 8u
#define PALPATE_RIGID_VOLUME_CONTACTS 16u /* contacts push whole bodies along their normals, through the centres of mass */

/* Constants of the steps of rigid bodies. */
typedef struct RigidParams {
  Float4 gravity; /* xyz [m/s^2] */
  Float4 ground;  /* xyz unit normal, w = offset [m]; solid where normal . x < offset */
  float dt_s;
  float damping; /* PALPATE_RIGID_VERLET: factor on velocities each step; else rate [1/s] */
  float restitution;
  float friction;
  UInt body_count;
  UInt flags;
  UInt unused0, unused1;
} RigidParams;

/* Iterations of bodies by their distance from a point of interest. */
typedef struct RigidDetail {
  Float4 point;          /* xyz [m] */
  float full_distance_m; /* of the nearest point of a body: up to here all iterations */
  float reduced_distance_m;
  UInt iterations;
  UInt reduced_iterations;
} RigidDetail;

/* What went wrong or was cut in a step, and was dealt with. */
typedef struct RigidCounters {
  UInt unresolved_pairs;    /* a pair whose narrow phase did not converge was skipped in one iteration */
  UInt incomplete_matches;  /* a body whose points are on a line or one: the open part of its rotation was kept */
  UInt failed_matches;      /* the decomposition did not end: only the translation was used */
  UInt limited_rotations;   /* the rotation of one iteration exceeded half a radian and was cut */
  UInt limited_corrections; /* the speed of a correction exceeded those of the bodies in contact and was cut */
  UInt restored_bodies;     /* a pose or velocity beyond 1e18, or not finite: the body stayed where it was, at rest */
  UInt unused0, unused1;
} RigidCounters;

PALPATE_SHARED_SIZE(ShapeMatch, 64);
PALPATE_SHARED_SIZE(RigidParams, 64);
PALPATE_SHARED_SIZE(RigidDetail, 32);
PALPATE_SHARED_SIZE(RigidCounters, 32);
PALPATE_SHARED_SIZE(ConvexShape, 16);
PALPATE_SHARED_SIZE(ConvexContact, 64);

PALPATE_SHARED_END

#endif /* PALPATE_GPU_SHARED_CONVEX_TYPES_H_ */
