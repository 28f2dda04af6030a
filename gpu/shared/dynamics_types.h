/* Structs that the tissue solver shares between host and kernels. Only 4-byte scalars and 16-byte vectors, so that both sides agree on the
 * layout. */
#ifndef PALPATE_GPU_SHARED_DYNAMICS_TYPES_H_
#define PALPATE_GPU_SHARED_DYNAMICS_TYPES_H_

#include "gpu/shared/energies.h"
#include "gpu/shared/types.h"

PALPATE_SHARED_BEGIN

#define PALPATE_LAMBDA_UNCAPPED 1e30f

/* Constants of a step. Contact law: with c = margin_m - gap > 0 a contact pushes with
   stiffness_n_per_m * c * (1 + stiffening * (c / margin_m)^2), continued with constant slope beyond c = 2 margin_m. */
typedef struct StepParams {
  float dt_s;
  float inv_dt;                          /* 1/s */
  float gravity_x, gravity_y, gravity_z; /* m/s^2 */
  float margin_m;
  float stiffness_n_per_m;
  float stiffening;
  float friction;
  float slip_m;          /* sliding distance per step below which friction is proportional to it */
  float range_m;         /* gaps up to this are reported without force */
  float lambda_cap;      /* lambda acts as min(lambda, lambda_cap mu); large, except while a tangled mesh recovers */
  float low_unit_m;      /* of low parts of displacements, a power of two; see gpu/dynamics/displacements.clh */
  float low_units_per_m; /* its inverse */
  UInt free_count;       /* vertices [0, free_count) move, the rest are fixed */
  UInt vertex_count;
  UInt triangle_count;
  UInt collider_count;
  UInt plane_count;
  UInt tet_count;
} StepParams;

/* A capsule: a tool or a static obstacle. The axis runs from the tip to tip + axis. */
typedef struct Collider {
  Float4 tip_start;       /* xyz [m] at the start of the step; w = radius [m] */
  Float4 axis_start;      /* xyz [m] at the start of the step; w unused */
  Float4 tip;             /* xyz [m], end of the step, unknown of the solve when coupled; w unused */
  Float4 axis;            /* xyz [m], end of the step; w = stiffness of its contacts [N/m] */
  Float4 velocity;        /* xyz [m/s] of the tip; w = mass [kg] */
  Float4 device_tip;      /* xyz [m] where the device wants the tip; w = coupling stiffness [N/m], 0 = not coupled */
  Float4 device_velocity; /* xyz [m/s]; w = coupling damping [N s/m] */
  /* Capsules of one tool move as one, each with an axis of its own: only the tip of the first, the leader, is an unknown. */
  Float4 offset;     /* xyz [m] of the tip from the leader's, end of the step; w unused */
  UInt leader;       /* index */
  UInt members;      /* of the leader: colliders from it on that follow it, itself included */
  UInt skips_tissue; /* 1: does not push triangles of tissue (UInt4 w = 1), which are kept away by anchors */
  UInt unused1;
} Collider;

/* A spring between a vertex and a point that is rigid with a holder: a collider, or a clip, which stands after the colliders. It pulls with
   stiffness * distance, but at most max_force_n: energy k d^2 / 2, continued linearly. With a normal it is one-sided: only the way that the
   vertex is behind the plane through the target counts. */
typedef struct Anchor {
  Float4 target; /* xyz [m] from the holder's tip, end of the step; w = stiffness [N/m] */
  UInt vertex;
  UInt holder; /* index of a Collider */
  float max_force_n;
  UInt unused;
  Float4 normal; /* xyz unit; w = 1: one-sided, 0: there is none */
} Anchor;

/* What an anchor did in a step. */
typedef struct AnchorReport {
  Float4 point; /* xyz [m] of the vertex; w unused */
  Float4 force; /* xyz [N] on the vertex; w unused */
} AnchorReport;

/* One capsule against one surface triangle, linearised at the newest iterate: gap = normal . (sum_j weight_j x_j - tip - s * axis) -
 * radius. */
typedef struct ToolContact {
  Float4 normal;  /* xyz unit, from the capsule to the tissue; w = s, place on the axis in [0, 1] */
  Float4 weights; /* xyz barycentric weights of the triangle's vertices; w = 0 if the contact may not act, else its share of the stiffness,
                     negative where the axis has passed to the far side. Below 1 for shells alone: see vertex_contact.clh */
  Float4
      side; /* xyz unit: the side of the capsule on which the triangle belongs; w = SIDE_UNKNOWN, SIDE_NEAR or SIDE_SWEPT, see tools.cl */
} ToolContact;

/* Bit of a surface triangle's w, beside half the thickness of a shell: a load or a filling presses on it. */
#define PALPATE_UNDER_PRESSURE 0x80000000u

/* A contact with its force, for the host. */
typedef struct ContactReport {
  UInt collider; /* 0xffffffff: a plane */
  UInt triangle; /* surface triangle, also of a contact at a vertex of a shell; of a plane contact: the vertex */
  float gap_m;
  float arm;     /* s, place on the collider's axis in [0, 1] */
  Float4 point;  /* xyz [m] on the tissue; w = normal force [N] */
  Float4 normal; /* xyz unit, towards the tissue; w = stiffness where it begins [N/m] */
  Float4 force;  /* xyz [N] on the tissue, friction included; w unused */
} ContactReport;

/* A straight move of a capsule whose axis runs from the tip to tip + axis: both ends go on straight lines. */
typedef struct CapsuleLeg {
  Float4 tip_from;  /* xyz [m]; w = radius [m] */
  Float4 axis_from; /* xyz [m]; w = 1, or 0: not looked at */
  Float4 tip_to;    /* xyz [m]; w unused */
  Float4 axis_to;   /* xyz [m]; w unused */
} CapsuleLeg;

/* A capsule and a surface triangle that come nearer than they may while both move. */
typedef struct CapsuleMeeting {
  UInt collider;
  UInt triangle;
  float toi; /* share of the move that is certainly free of it, never late; -1: the axis passes through the triangle from the start */
  UInt unused;
  Float4 normal; /* xyz unit, from the capsule to the triangle; w unused */
} CapsuleMeeting;

/* What the kernels of ObstacleBarrier count. */
typedef struct ObstacleCounters {
  UInt meetings;     /* of capsules, past the capacity too */
  UInt behind;       /* vertices that would end behind a plane */
  UInt bad;          /* vertices that are not finite */
  UInt earliest_toi; /* bits of the least time of impact, which order like integers */
} ObstacleCounters;

/* Half-space obstacle: solid where normal . x < offset. */
typedef struct PlaneObstacle {
  Float4 normal_offset; /* xyz unit normal, w = offset [m] */
} PlaneObstacle;

/* One work-item's share of the checks after a step. */
typedef struct StepPartial {
  ULong hash; /* sum over vertices of a mix of index, position and velocity bits */
  float kinetic_energy_j;
  float max_speed_m_per_s;
  UInt bad_vertices; /* non-finite position or velocity */
  UInt inverted_tets;
  UInt strained_tets;    /* |E| > 1; counted only while lambda_cap is below PALPATE_LAMBDA_UNCAPPED */
  UInt inverted_elastic; /* inverted_tets without those of shape-matched bodies */
} StepPartial;

/* Constants of contact between and within bodies, see surface_contact.clh. */
typedef struct SurfaceParams {
  float margin_m; /* pairs push each other from this distance on */
  float friction;
  float slip_m;  /* sliding distance per step below which friction is proportional to it */
  float range_m; /* no detection looks for pairs farther apart */
} SurfaceParams;

/* Share of its body's reach that a vertex may go after a detection: two elements that were at least both reaches apart have not met then.
 */
#define PALPATE_CAP_SHARE 0.98f

/* What the newest sweep did to a vertex. */
#define PALPATE_TOUCH_PUSHED 1    /* a contact pushed it */
#define PALPATE_TOUCH_TRUNCATED 2 /* its move was cut short by a bound */

/* Share of the margin by which the lips of a cut are opened, and from which on they push each other. */
#define PALPATE_LIP_SHARE 0.05f

#define PALPATE_PAIR_KIND_MASK 1u
#define PALPATE_PAIR_DISABLED 2u /* of elements that pass through each other: neither pushes nor bounds */

/* A vertex and a triangle, or two edges, linearised at the newest iterate: sum_i weight_i x_i leads from the nearest point of A to that of
 * B. */
typedef struct SurfacePair {
  UInt4 vertices;          /* vertex-triangle: v, t0, t1, t2; edge-edge: a0, a1, b0, b1 */
  Float4 weights;          /* of the vertices, negative on A, their sum is 0 */
  Float4 normal;           /* xyz unit, from A to B; w = margin of this pair [m] */
  float stiffness_n_per_m; /* 0: does not push now */
  UInt flags;              /* kind in PALPATE_PAIR_KIND_MASK, PALPATE_PAIR_DISABLED */
  float full_n_per_m;      /* its stiffness when it pushes */
  UInt b;                  /* element as in SurfaceContact */
} SurfacePair;

/* Bits of what a linearisation says of a pair: it may push in this sweep; it does push where it is; it has a row. */
#define PALPATE_PAIR_NEAR 1u
#define PALPATE_PAIR_PUSHES 2u
#define PALPATE_PAIR_HAS_ROW 4u

/* A pair of two followed bodies that pushes: nearest points, what it does to B (to A the opposite), and its block
   across I + along n n^T on either side, doubled because both bodies move at once [N/m]. */
typedef struct PairRow {
  Float4 point_a; /* xyz; w = across */
  Float4 point_b; /* xyz; w = along */
  Float4 normal;  /* xyz unit, from A to B */
  Float4 on_b;    /* xyz [N] */
} PairRow;

/* How long a pair of two followed bodies stays too far to push. */
typedef struct PairWay {
  UInt mover_a; /* as in FollowedWays */
  UInt mover_b;
  float far_until_m; /* while the ways of both bodies together are below it */
} PairWay;

/* What a pair means for two connected components of the scene that move as wholes. */
typedef struct ComponentRow {
  Float4 normal;   /* xyz unit, from A to B; w = force that pushes them apart [N] */
  Float4 friction; /* xyz [N] on A, minus that on B; w = its slope [N/m] */
  Float4 detected; /* xyz normal at the detection; w = distance then [m] */
  UInt component_a;
  UInt component_b; /* equal to component_a: the row says nothing */
  float slope_n_per_m;
  float rounding_m; /* that the distance may be off, and positions by a move */
} ComponentRow;

#define PALPATE_NO_COMPONENT 0xffffffffu
#define PALPATE_COMPONENT_SUMS 9 /* force (3) and block xx xy xz yy yz zz of a component that moves as a whole */

/* A pair that pushes, for the host. */
typedef struct SurfaceReport {
  UInt kind;
  UInt a; /* elements as in SurfaceContact */
  UInt b;
  UInt unused;
  UInt4 vertices;
  Float4 point_a; /* xyz [m]; w = distance [m] */
  Float4 point_b; /* xyz [m]; w unused */
  Float4 normal;  /* xyz unit, from A to B; w = normal force [N] */
  Float4 force;   /* xyz [N] on B, friction included; w unused */
} SurfaceReport;

/* What a work-item found about the moves since the last detection. */
typedef struct MovePartial {
  UInt beyond_cap; /* vertices of surfaces that may have met what no pair is known of */
  UInt truncated;  /* vertices of surfaces whose newest move was cut short */
  UInt bad;        /* vertices that are not finite */
  UInt used_up;    /* vertices of surfaces near which so little is known by now that pairs have to be detected anew */
  float longest_m; /* way of a vertex of a body that meets itself */
} MovePartial;

/* What a phase of a sweep does: see sweep_phases.clh. */
#define PALPATE_PHASE_COLOR 0u        /* vertices of a colour move */
#define PALPATE_PHASE_CONTACTS 1u     /* contacts of tools are linearised; items: shares of their list */
#define PALPATE_PHASE_COPY 2u         /* positions are noted as those at the start of the sweep; items: vertices */
#define PALPATE_PHASE_PAIRS 3u        /* pairs of surfaces are linearised */
#define PALPATE_PHASE_COLLIDERS 4u    /* coupled tools move */
#define PALPATE_PHASE_CLIPS 5u        /* clips move */
#define PALPATE_PHASE_ACCELERATE 6u   /* free vertices go on as the sweeps before tell */
#define PALPATE_PHASE_DOMAINS 7u      /* mean deformation gradients of smoothing domains are measured */
#define PALPATE_PHASE_DOMAIN_MOVES 8u /* they follow the vertices of the phase before, which is a colour */
#define PALPATE_PHASE_RIGID 9u        /* rigid bodies move */
#define PALPATE_PHASE_PLACE 10u       /* their vertices follow */

/* A phase of a sweep: `count` items, for vertices those from `first` on, in chunks. */
typedef struct SweepPhase {
  UInt kind; /* PALPATE_PHASE_... */
  UInt first;
  UInt count;
  UInt chunk; /* items that a group takes at a time */
  UInt begin; /* chunks of the sweep before its own */
  UInt needs; /* of these, those that must be done before: phases of one stage need the same */
} SweepPhase;

#define PALPATE_DRIVEN_RESTS 0xffffffffu /* in place of a region */

/* Motion of the fixed vertices of a region: x = rotation (rest - center_start) + center. */
typedef struct DrivenPose {
  Float4 rotation;     /* quaternion x y z w */
  Float4 center_start; /* xyz [m] */
  Float4 center;       /* xyz [m] at the end of the step */
} DrivenPose;

PALPATE_SHARED_SIZE(StepParams, 80);
PALPATE_SHARED_SIZE(Collider, 144);
PALPATE_SHARED_SIZE(Anchor, 48);
PALPATE_SHARED_SIZE(AnchorReport, 32);
PALPATE_SHARED_SIZE(ToolContact, 48);
PALPATE_SHARED_SIZE(ContactReport, 64);
PALPATE_SHARED_SIZE(CapsuleLeg, 64);
PALPATE_SHARED_SIZE(CapsuleMeeting, 32);
PALPATE_SHARED_SIZE(ObstacleCounters, 16);
PALPATE_SHARED_SIZE(PlaneObstacle, 16);
PALPATE_SHARED_SIZE(StepPartial, 32);
PALPATE_SHARED_SIZE(SurfaceParams, 16);
PALPATE_SHARED_SIZE(PairRow, 64);
PALPATE_SHARED_SIZE(PairWay, 12);
PALPATE_SHARED_SIZE(SurfacePair, 64);
PALPATE_SHARED_SIZE(ComponentRow, 64);
PALPATE_SHARED_SIZE(SurfaceReport, 96);
PALPATE_SHARED_SIZE(MovePartial, 20);
PALPATE_SHARED_SIZE(SweepPhase, 24);
PALPATE_SHARED_SIZE(DrivenPose, 48);

PALPATE_SHARED_END

#endif /* PALPATE_GPU_SHARED_DYNAMICS_TYPES_H_ */
