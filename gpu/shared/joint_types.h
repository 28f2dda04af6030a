/* Structs of joints: see gpu/dynamics/rigid_joints.h, and joint_frames.h for ends that are no rigid bodies. */
#ifndef PALPATE_GPU_SHARED_JOINT_TYPES_H_
#define PALPATE_GPU_SHARED_JOINT_TYPES_H_

#include "gpu/shared/types.h"

PALPATE_SHARED_BEGIN

#define PALPATE_JOINT_WORLD 0xffffffffu /* in the place of a body: the world holds this end */

#define PALPATE_JOINT_FIT_REALS 16 /* doubles of the frame of a set: see joint_fit.clh */

/* Coordinates of a joint. Along: three axes of frame A, or the distance of the two points (then row 0 alone). About: none; the twist about
   z of A, with z of B along it (rows 3 and 4 hold it there, row 5 is the twist [rad]); or the rotation vector from A to B in axes of A. */
#define PALPATE_JOINT_AXES 0u
#define PALPATE_JOINT_DISTANCE 1u
#define PALPATE_JOINT_NO_TURN 0u
#define PALPATE_JOINT_TWIST 1u
#define PALPATE_JOINT_TURN 2u

/* What acts on a coordinate inside its limits. */
#define PALPATE_ROW_FREE 0u
#define PALPATE_ROW_LOCKED 1u /* it is at the target */
#define PALPATE_ROW_SPRING 2u /* stiffness (q - target) + damping dq/dt draws it back */
#define PALPATE_ROW_MOTOR 3u  /* it moves at the speed, as far as max_effort is enough */

/* A coordinate q of a joint, in m or rad; efforts in N or N m. */
typedef struct JointRow {
  float target;
  float speed;
  float stiffness;
  float damping;
  float max_effort; /* of a motor */
  float lower;      /* limits, infinite: none */
  float upper;
  UInt drive;
} JointRow;
PALPATE_SHARED_SIZE(JointRow, 32);

/* A joint. Points [m] and rotations (x y z w, to the body's frame B) in the bodies' frames, or in the world's. */
typedef struct JointData {
  Float4 point_a;
  Float4 rotation_a;
  Float4 point_b;
  Float4 rotation_b;
  UInt body_a; /* index, or PALPATE_JOINT_WORLD */
  UInt body_b;
  UInt along;
  UInt about;
  JointRow rows[6];
} JointData;
PALPATE_SHARED_SIZE(JointData, 272);

/* Where a joint's blocks are in the system of its group. */
typedef struct JointPlace {
  UInt member_a; /* body among those with joints, or PALPATE_JOINT_WORLD */
  UInt member_b;
  UInt node;
  UInt node_a; /* of the bodies, or PALPATE_JOINT_WORLD */
  UInt node_b;
  UInt block_a; /* joint and body A */
  UInt block_b;
  UInt is_transposed; /* bit 0, 1: block_a, block_b has the body's rows */
  UInt is_set;        /* bit 0, 1: A, B is a JointSet or a NurbsJointSet */
} JointPlace;
PALPATE_SHARED_SIZE(JointPlace, 36);

/* An unknown of six numbers, in the order of elimination: the move of a body, or the efforts of a joint. Its diagonal block has its own
   number. */
typedef struct JointNode {
  UInt index; /* of the member or the joint */
  UInt is_joint;
  UInt below_begin; /* blocks below the diagonal one, in `below` */
  UInt below_end;
  UInt target_begin; /* blocks that its elimination changes, in `targets`: of rows i >= j of those below, i by i */
  UInt unused0;
} JointNode;
PALPATE_SHARED_SIZE(JointNode, 24);

/* A connected group of bodies and joints. */
typedef struct JointGroup {
  UInt node_begin;
  UInt node_end;
  UInt block_begin; /* blocks off the diagonal */
  UInt block_end;
  UInt joint_begin; /* joints, in `joint_order` */
  UInt joint_end;
  UInt coupling_begin;
  UInt coupling_end;
} JointGroup;
PALPATE_SHARED_SIZE(JointGroup, 32);

/* Where what couples two bodies besides their joints, or a body with itself, is in the system of its group. */
typedef struct JointCoupling {
  UInt node; /* of the body of the rows */
  UInt other_node;
  UInt block;         /* not read where the two are one */
  UInt is_transposed; /* the block has the rows of the other */
} JointCoupling;
PALPATE_SHARED_SIZE(JointCoupling, 16);

/* How a step weighs what is at its end, at its start and at the start of the one before: Newmark's weights, as of positions at three times.
   A rate is (rate q_end + (1 - 2 rate) q_start - (1 - rate) q_before) / dt. */
typedef struct JointScheme {
  float end;
  float start;
  float before;
  float rate;
} JointScheme;
PALPATE_SHARED_SIZE(JointScheme, 16);

/* The block of a body, as rigid_solve leaves it: the lower triangle of its matrix, row by row, and forces. These become its move, of which
   it goes a share. */
typedef struct JointBodySystem {
  float h[21];
  float f[6];
  float share;
} JointBodySystem;
PALPATE_SHARED_SIZE(JointBodySystem, 112);

/* Vertices that joints move as one body: its frame fits them best, with the weights of their masses. */
typedef struct JointSet {
  Float4 rest_mean; /* xyz [m] weighted mean of the vertices at rest, from the frame's origin; w = [kg] of the set */
  float h[21];      /* what resists a move of all vertices together, in the frame's axes, as JointBodySystem has it */
  UInt begin;       /* in the lists of vertices */
  UInt end;         /* begin: it cannot be fitted, and stays where it is */
  UInt body;        /* its state among those of rigid bodies */
  UInt member;      /* its place among the bodies with joints */
  UInt joint_begin; /* in the list of ends: 2 joint, plus 1 if the set is B */
  UInt joint_end;
  UInt unused0;
} JointSet;
PALPATE_SHARED_SIZE(JointSet, 128);

/* Control points of a NURBS shell that carry a frame: a mean of them is its origin, and it turns as fits them best. */
typedef struct NurbsJointSet {
  UInt begin; /* in the lists of parts */
  UInt end;
  UInt body;        /* its state among those of rigid bodies */
  UInt member;      /* its place among the bodies with joints */
  UInt joint_begin; /* in the list of ends: 2 joint, plus 1 if the set is B */
  UInt joint_end;
  UInt stiffness_begin; /* in the list of what couples it with sets of its shell, itself too */
  UInt stiffness_end;
} NurbsJointSet;
PALPATE_SHARED_SIZE(NurbsJointSet, 32);

/* A control point of such a set. */
typedef struct NurbsJointPart {
  Float4 arm;   /* xyz [m] at rest from the mean of the control points by `turning`; w = `turning`: its weight in the rotation */
  UInt control; /* slot */
  float place;  /* its weight in the origin */
  UInt set;
  UInt unused0;
} NurbsJointPart;
PALPATE_SHARED_SIZE(NurbsJointPart, 32);

/* A pose that carries joints from outside: where it is at the end of a step; or what draws a body of a mass there, by its coupling. */
typedef struct JointMount {
  Float4 center;   /* xyz [m]; w = stiffness of the coupling [N/m], 0: it is exactly there */
  Float4 rotation; /* x y z w, exactly */
  Float4 before;   /* xyz of the centre in the step before; w = damping of the coupling [N s/m] */
  Float4 force;    /* xyz [N] of what else acts; w = mass [kg] */
} JointMount;
PALPATE_SHARED_SIZE(JointMount, 64);

/* What a joint did in a step. */
typedef struct JointReport {
  Float4 force;         /* xyz [N] on B at its point, world axes; w = farthest that a locked or limited coordinate is off [m] */
  Float4 torque;        /* xyz [N m] on B about its point, world axes; w likewise [rad] */
  Float4 point;         /* xyz [m] of B, in W */
  Float4 point_a;       /* xyz [m] of A, in W */
  Float4 axis;          /* xyz unit, z of the frame that A carries, in W */
  float coordinates[6]; /* m, rad */
  float efforts[6];     /* what draws the coordinates back: N, N m */
} JointReport;
PALPATE_SHARED_SIZE(JointReport, 128);

PALPATE_SHARED_END

#endif /* PALPATE_GPU_SHARED_JOINT_TYPES_H_ */
