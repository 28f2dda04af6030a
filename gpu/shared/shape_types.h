/* Structs of shape-matched bodies that host and kernels share; see gpu/dynamics/shape_goals.cl. */
#ifndef PALPATE_GPU_SHARED_SHAPE_TYPES_H_
#define PALPATE_GPU_SHARED_SHAPE_TYPES_H_

#include "gpu/shared/types.h"

PALPATE_SHARED_BEGIN

/* How a cluster may deform. */
#define PALPATE_SHAPE_RIGID 0u
#define PALPATE_SHAPE_LINEAR 1u
#define PALPATE_SHAPE_QUADRATIC 2u

/* Vertices that follow one shape. With q the place of a vertex at rest from the cluster's centre and phi its whitened coordinates,
   q = basis phi: over the members, by their stiffness, phi has mean 0 and covariance 1. */
typedef struct ShapeCluster {
  Float4 basis_x; /* xyz [m] columns of the basis, the longest first; w = 1 / determinant of the basis [1/m^3] */
  Float4 basis_y; /* xyz [m]; w = 1 / sum of the members' stiffness [m/N] */
  Float4 basis_z; /* xyz [m]; w = 1 + damping / dt, what damping multiplies the stiffness by */
  UInt begin;     /* members [begin, end) */
  UInt end;
  UInt mode;
  UInt rank;   /* columns in which the members extend far enough to tell how they deform; the others follow the rotation */
  float beta;  /* share of the goal that deforms */
  float keeps; /* 1: the deformation keeps its volume, 0: not */
  float held;  /* damping / (dt + damping): share of the strain at the start of the step that damping holds on to */
  UInt unused;
} ShapeCluster;

/* Where a cluster wants its members: goal = center + columns phi (+ quadratic psi). */
typedef struct ShapePose {
  Float4 center;   /* xyz [m]; w unused */
  Float4 rotation; /* quaternion xyzw of the best rotation */
  Float4 column_x; /* xyz [m]; w unused */
  Float4 column_y;
  Float4 column_z;
  Float4 quadratic[6]; /* xyz [m] columns of the quadratic coordinates psi; w unused. Zero unless PALPATE_SHAPE_QUADRATIC */
} ShapePose;

PALPATE_SHARED_SIZE(ShapeCluster, 80);
PALPATE_SHARED_SIZE(ShapePose, 176);

PALPATE_SHARED_END

#endif /* PALPATE_GPU_SHARED_SHAPE_TYPES_H_ */
