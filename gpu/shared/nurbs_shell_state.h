/* Structs of the motion of NURBS shells in the tissue solver. */
#ifndef PALPATE_GPU_SHARED_NURBS_SHELL_STATE_H_
#define PALPATE_GPU_SHARED_NURBS_SHELL_STATE_H_

#include "gpu/shared/types.h"

PALPATE_SHARED_BEGIN

/* A control point of a deformable NURBS surface as one block of the solver, but for where it is. World frame. */
typedef struct ControlPointState {
  Float4 start;    /* xyz [m] at the start of the step; w = mass [kg], 0: it is held or driven */
  Float4 target;   /* xyz [m] where inertia and mass damping draw it in the step, or its motion; w = mass damping times dt */
  Float4 velocity; /* xyz [m/s]; w = mass damping [1/s] */
  Float4 before;   /* xyz [m/s] velocity a step earlier */
  Float4 detected; /* xyz [m] at the newest detection of near pairs */
  Float4 goal;     /* xyz [m] before a filter shortens the move; w = share of it that the filter leaves */
} ControlPointState;
PALPATE_SHARED_SIZE(ControlPointState, 96);

/* A control point that is bound to tissue: it is the mean of four vertices. */
typedef struct NurbsBinding {
  UInt4 vertices; /* slots of the tissue */
  Float4 weights; /* of these, at least 0, sum 1 */
  UInt control;   /* slot of the control point */
  float mass;     /* kg */
  UInt unused0, unused1;
} NurbsBinding;
PALPATE_SHARED_SIZE(NurbsBinding, 48);

PALPATE_SHARED_END

#endif /* PALPATE_GPU_SHARED_NURBS_SHELL_STATE_H_ */
