/* Structs of the rigid bodies in the tissue solver. */
#ifndef PALPATE_GPU_SHARED_RIGID_TYPES_H_
#define PALPATE_GPU_SHARED_RIGID_TYPES_H_

#include "gpu/shared/types.h"

PALPATE_SHARED_BEGIN

/* A rigid body as one block of the solver. Its frame B has the centre of mass as origin and the principal axes of inertia. A pose is a
   centre [m] and a unit quaternion x y z w, from B to world. */
typedef struct RigidBlockState {
  Float4 center;   /* xyz, w = mass [kg]; 0: of a mount of joints that is exactly where it is told */
  Float4 rotation; /* newest iterate */
  Float4 center_start;
  Float4 rotation_start; /* at the start of the step */
  Float4 center_free;
  Float4 rotation_free; /* at the end of the step if nothing touched it */
  Float4 center_detected;
  Float4 rotation_detected; /* at the newest detection of near pairs */
  Float4 center_goal;
  Float4 rotation_goal; /* before a filter shortens the move */
  Float4 velocity;      /* xyz of the centre [m/s] */
  Float4 momentum;      /* xyz angular momentum about the centre [kg m^2/s], world axes; w = its damping [1/s] */
  Float4 acceleration;  /* xyz of the centre in the step before [m/s^2] */
  Float4 inertia;       /* xyz principal moments [kg m^2]; w = damping of the velocity [1/s] */
  UInt vertex_begin;    /* its vertices in solver order */
  UInt vertex_end;
  UInt triangle_begin; /* its surface triangles */
  UInt triangle_end;
  UInt is_truncated; /* its newest move was cut short by a bound */
  float radius_m;    /* of its farthest vertex from the centre */
  UInt joint_member; /* its place among the bodies with joints, plus 1; 0: none */
  UInt unused1;
} RigidBlockState;
PALPATE_SHARED_SIZE(RigidBlockState, 256);

/* Where the newest sweep wanted a body to be, before planes cut its move short and momentum carried it on. */
typedef struct RigidIterate {
  Float4 center;   /* xyz; w = sweeps in a row that carried it on, plus 1; 0: none yet in this step */
  Float4 rotation; /* as in RigidBlockState */
} RigidIterate;
PALPATE_SHARED_SIZE(RigidIterate, 32);

/* The pairs of a body since the newest detection, each once. */
typedef struct RigidPairs {
  UInt begin; /* in the list of all bodies' */
  UInt end;
  float clear_m; /* no vertex of the body meets a plane nearer to where it was detected */
} RigidPairs;
PALPATE_SHARED_SIZE(RigidPairs, 12);

PALPATE_SHARED_END

#endif /* PALPATE_GPU_SHARED_RIGID_TYPES_H_ */
