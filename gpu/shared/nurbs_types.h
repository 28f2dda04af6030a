/* Structs of the queries between NURBS objects that host and kernels share. */
#ifndef PALPATE_GPU_SHARED_NURBS_TYPES_H_
#define PALPATE_GPU_SHARED_NURBS_TYPES_H_

#include "gpu/shared/types.h"

PALPATE_SHARED_BEGIN

/* Highest degree of a surface, and how often a patch may be halved in one direction. */
#define PALPATE_NURBS_MAX_DEGREE 15
#define PALPATE_NURBS_MAX_HALVINGS 24u

/* How a part is cut. A node of the tree that is no patch is cut into its two children, whatever is asked. */
#define PALPATE_NURBS_WHOLE 0u
#define PALPATE_NURBS_CUT_U 1u
#define PALPATE_NURBS_CUT_V 2u
#define PALPATE_NURBS_CUT_FOUR 3u

/* A rational Bezier patch of a surface, between knots. */
typedef struct NurbsPatch {
  UInt control;     /* first control point of its (degree_u + 1) x (degree_v + 1) in the surface's net */
  UInt stride;      /* control points of a row of the net */
  UInt to_bezier_u; /* first of (degree_u + 1)^2 coefficients: row k makes Bezier point k of the net's points */
  UInt to_bezier_v;
  UInt order_u; /* degree + 1 */
  UInt order_v;
  UInt bezier; /* first of its order_u * order_v Bezier points, v fastest */
  UInt padding;
} NurbsPatch;

/* A node of an object's tree: some of its patches. */
typedef struct NurbsNode {
  UInt child; /* first of two, which follow each other; 0: a single patch */
  UInt patch; /* first of rows x columns patches */
  UInt rows;
  UInt columns;
  UInt stride; /* patches of a row of the surface; 0: of several surfaces, which counts as no cut and is never a hit */
  UInt padding[3];
} NurbsNode;

/* A box with orthonormal axes. */
typedef struct NurbsBox {
  Float4 centre; /* xyz [m]; w: diagonal [m] */
  Float4 x;      /* x components of the three axes */
  Float4 y;
  Float4 z;
  Float4 reach; /* half-extents along the axes [m]; w, of the node of a tree: PALPATE_NURBS_CUT_*, the longer direction of a patch */
} NurbsBox;

/* Two placed objects. World axes, origin where the first object's is: a point p of it is at a p, one of the other at b p + offset. */
typedef struct NurbsPlacement {
  Float4 a0; /* rows of a; w unused */
  Float4 a1;
  Float4 a2;
  Float4 b0; /* rows of b; w: offset [m] */
  Float4 b1;
  Float4 b2;
  UInt root_a; /* nodes */
  UInt root_b;
  float slack_m; /* bound on all rounding: of points, of places, of tests */
  UInt is_rigid; /* a and b are orthonormal to rounding */
} NurbsPlacement;

/* Two parts that are not known to be apart. Part: a node; of a patch the interval [i, i + 1] / 2^level of it in u and v, i | level << 24.
 */
typedef struct NurbsPair {
  UInt query;
  UInt level; /* cuts so far, of both */
  UInt node_a;
  UInt u_a;
  UInt v_a;
  UInt node_b;
  UInt u_b;
  UInt v_b;
  UInt cuts;      /* PALPATE_NURBS_CUT_* of a | of b << 2: the next cut */
  float lower_m;  /* of distances: no points of the two are nearer */
  UInt is_frozen; /* of distances: not cut on, since its query has too many pairs */
  UInt time;      /* of motions: interval of [0, 1], as of u */
} NurbsPair;

/* What is known of the least distance of a query. Bits of floats that are not negative are in the order of these. */
typedef struct NurbsDistanceBest {
  UInt upper_bits;       /* the distance is no more [m] */
  UInt patch_upper_bits; /* the same, from pairs of parts of patches alone */
  UInt child;            /* of the level: the first with this bound */
  UInt is_done;          /* nothing is left to search: no distance is less by more than the allowance */
  NurbsPair pair;        /* with this bound */
} NurbsDistanceBest;

/* The middles of the two parts of a hit. World axes, origin where the first object's is. */
typedef struct NurbsMiddles {
  Float4 on_a; /* xyz [m]; w: longer diagonal of the two parts' boxes [m] */
  Float4 on_b; /* xyz [m]; w: distance of the two [m] */
} NurbsMiddles;

/* What a search obeys. */
typedef struct NurbsRule {
  float tolerance_m;
  UInt max_level;
  UInt count; /* of pairs, or of queries */
  UInt padding;
} NurbsRule;

PALPATE_SHARED_SIZE(NurbsPatch, 32);
PALPATE_SHARED_SIZE(NurbsNode, 32);
PALPATE_SHARED_SIZE(NurbsBox, 80);
PALPATE_SHARED_SIZE(NurbsPlacement, 112);
PALPATE_SHARED_SIZE(NurbsPair, 48);
PALPATE_SHARED_SIZE(NurbsDistanceBest, 64);
PALPATE_SHARED_SIZE(NurbsMiddles, 32);
PALPATE_SHARED_SIZE(NurbsRule, 16);

PALPATE_SHARED_END

#endif /* PALPATE_GPU_SHARED_NURBS_TYPES_H_ */
