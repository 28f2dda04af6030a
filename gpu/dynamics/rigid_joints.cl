/* Joints between rigid bodies, solved with their blocks: see rigid_joints.h. All of it in double: what a heavy body at the end of a chain
   of light ones does to the first of them is a small difference of large numbers.

   Efforts mu_r of the coordinates q_r do -J^T mu to the bodies. A sweep solves, for all bodies and joints of a group at once,

       H d + J^T mu = f,     J d - alpha mu = target - q,

   where H and f are the blocks and forces that rigid_solve left (inertia, contacts). J is that of the newest poses. What acts, however, is
   mu times a mean of the Jacobians at the ends of this step, the one before and the one before that: that keeps the energy of swings. */
#pragma OPENCL EXTENSION cl_khr_fp64 : enable

#include "gpu/dynamics/joint_rows.clh"
#include "gpu/shared/dynamics_types.h"
#include "gpu/shared/joint_types.h"
#include "gpu/shared/rigid_types.h"

/* A share of what a row moves per effort: keeps redundant rows solvable. It acts on changes of efforts alone, so they end exact. */
#define REGULARIZATION 1e-9

/* How a limit is met: to within this of the coordinate. */
#define LIMIT_SLACK 1e-9

typedef struct {
  double3 center;
  double4 rotation;
} DoublePose;

/* The rotation b, then a. */
static inline double4 turn_after(double4 a, double4 b) {
  return (double4)(a.w * b.xyz + b.w * a.xyz + cross(a.xyz, b.xyz), a.w * b.w - dot(a.xyz, b.xyz));
}

static inline double4 unit(float4 q) {
  const double4 d = convert_double4(q);
  return d / sqrt(dot(d, d));
}

static inline DoublePose pose_of(const __global RigidBlockState* blocks, uint body, int at_start) {
  DoublePose pose;
  if (body == PALPATE_JOINT_WORLD) {
    pose.center = (double3)(0.0);
    pose.rotation = (double4)(0.0, 0.0, 0.0, 1.0);
    return pose;
  }
  const __global RigidBlockState* b = blocks + body;
  pose.center = convert_double3(at_start ? b->center_start.xyz : b->center.xyz);
  pose.rotation = unit(at_start ? b->rotation_start : b->rotation);
  return pose;
}

static inline void set_row(double* jacobian, uint r, double3 along, double3 about) {
  jacobian[6 * r] = along.x;
  jacobian[6 * r + 1] = along.y;
  jacobian[6 * r + 2] = along.z;
  jacobian[6 * r + 3] = about.x;
  jacobian[6 * r + 4] = about.y;
  jacobian[6 * r + 5] = about.z;
}

typedef struct {
  double a[36], b[36]; /* rows: coordinates; columns: move of the centre, turn */
  double q[6];
  double3 arm_a, arm_b; /* of the point of B */
} JointRows;

static inline int holds_point(const __global JointData* joint) {
  int holds = 1;
  for (uint r = 0; r < 3; ++r) holds &= joint->rows[r].drive == PALPATE_ROW_LOCKED && joint->rows[r].target == 0.0f;
  return holds;
}

/* Coordinates and Jacobians of a joint. Of the turns that a twist may be, the one nearest to `twist`. */
static inline void rows_at(const __global JointData* joint, DoublePose a, DoublePose b, double twist, JointRows* rows) {
  for (uint k = 0; k < 36; ++k) rows->a[k] = rows->b[k] = 0.0;
  for (uint r = 0; r < 6; ++r) rows->q[r] = 0.0;
  const double3 point_a = a.center + turn_vector(a.rotation, convert_double3(joint->point_a.xyz));
  const double3 point_b = b.center + turn_vector(b.rotation, convert_double3(joint->point_b.xyz));
  const double4 frame_a = turn_after(a.rotation, unit(joint->rotation_a));
  const double4 frame_b = turn_after(b.rotation, unit(joint->rotation_b));
  const double3 axes[3] = {turn_vector(frame_a, (double3)(1.0, 0.0, 0.0)), turn_vector(frame_a, (double3)(0.0, 1.0, 0.0)),
                           turn_vector(frame_a, (double3)(0.0, 0.0, 1.0))};
  const double3 apart = point_b - point_a;
  /* Points that stay together: any axes do, and those of the world do not turn from step to step. */
  const int is_fixed = joint->along == PALPATE_JOINT_AXES && holds_point(joint);
  const double3 x = is_fixed ? (double3)(1.0, 0.0, 0.0) : axes[0];
  const double3 y = is_fixed ? (double3)(0.0, 1.0, 0.0) : axes[1];
  const double3 z = is_fixed ? (double3)(0.0, 0.0, 1.0) : axes[2];
  const double3 along[3] = {x, y, z};
  rows->arm_a = point_b - a.center;
  rows->arm_b = point_b - b.center;
  if (joint->along == PALPATE_JOINT_DISTANCE) {
    const double distance_m = sqrt(dot(apart, apart));
    const double3 n = distance_m > 1e-12 ? apart / distance_m : axes[0];
    rows->q[0] = distance_m;
    set_row(rows->a, 0, -n, -cross(rows->arm_a, n));
    set_row(rows->b, 0, n, cross(rows->arm_b, n));
  } else {
    for (uint r = 0; r < 3; ++r) {
      rows->q[r] = dot(along[r], apart);
      set_row(rows->a, r, -along[r], -cross(rows->arm_a, along[r]));
      set_row(rows->b, r, along[r], cross(rows->arm_b, along[r]));
    }
  }
  if (joint->about == PALPATE_JOINT_NO_TURN) return;
  double4 turn = turn_after((double4)(-frame_a.xyz, frame_a.w), frame_b);
  if (turn.w < 0.0) turn = -turn;
  if (joint->about == PALPATE_JOINT_TWIST) {
    /* turn = swing after twist; the swing's axis is across z. */
    const double size = sqrt(turn.z * turn.z + turn.w * turn.w);
    const double4 twist_back = size > 1e-12 ? (double4)(0.0, 0.0, -turn.z, turn.w) / size : (double4)(0.0, 0.0, 0.0, 1.0);
    const double4 swing = turn_after(turn, twist_back);
    const double sine = sqrt(swing.x * swing.x + swing.y * swing.y);
    const double scale = sine > 1e-9 ? 2.0 * atan2(sine, swing.w) / sine : 2.0;
    const double angle = 2.0 * atan2(turn.z, turn.w);
    rows->q[3] = scale * swing.x;
    rows->q[4] = scale * swing.y;
    rows->q[5] = angle + 2.0 * M_PI * rint((twist - angle) / (2.0 * M_PI));
  } else {
    const double sine = sqrt(dot(turn.xyz, turn.xyz));
    const double scale = sine > 1e-9 ? 2.0 * atan2(sine, turn.w) / sine : 2.0;
    rows->q[3] = scale * turn.x;
    rows->q[4] = scale * turn.y;
    rows->q[5] = scale * turn.z;
  }
  for (uint r = 0; r < 3; ++r) {
    set_row(rows->a, 3 + r, (double3)(0.0), -axes[r]);
    set_row(rows->b, 3 + r, (double3)(0.0), axes[r]);
  }
}

/* A velocity of a body along its row of a Jacobian. */
static inline double rate_of(const double* row, const __global RigidBlockState* blocks, uint body) {
  if (body == PALPATE_JOINT_WORLD) return 0.0;
  const __global RigidBlockState* b = blocks + body;
  const double4 q = unit(b->rotation_start);
  const double3 spin_b = turn_vector((double4)(-q.xyz, q.w), convert_double3(b->momentum.xyz)) / convert_double3(b->inertia.xyz);
  const double3 spin = turn_vector(q, spin_b);
  const double3 v = convert_double3(b->velocity.xyz);
  return row[0] * v.x + row[1] * v.y + row[2] * v.z + row[3] * spin.x + row[4] * spin.y + row[5] * spin.z;
}

/* Start of a step, after rigid_predict: what was at the start of the one before is now before that. `is_first`: there was none, and the
   velocities tell. Work-item: joint. */
__kernel void joint_begin(uint count, uint is_first, const __global StepParams* p, const __global JointData* joints,
                          const __global RigidBlockState* blocks, __global double* reals, __global uint* states) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const __global JointData* joint = joints + i;
  __global double* real = reals + (size_t)i * JOINT_REALS;
  JointRows rows;
  rows_at(joint, pose_of(blocks, joint->body_a, 1), pose_of(blocks, joint->body_b, 1), is_first ? 0.0 : real[Q_NEW + 5], &rows);
  for (uint k = 0; k < 36; ++k) {
    real[J_BEFORE_A + k] = is_first ? rows.a[k] : real[J_START_A + k];
    real[J_BEFORE_B + k] = is_first ? rows.b[k] : real[J_START_B + k];
    real[J_START_A + k] = rows.a[k];
    real[J_START_B + k] = rows.b[k];
  }
  for (uint r = 0; r < 6; ++r) {
    const double rate = rate_of(rows.a + 6 * r, blocks, joint->body_a) + rate_of(rows.b + 6 * r, blocks, joint->body_b);
    real[Q_BEFORE + r] = is_first ? rows.q[r] - (double)p->dt_s * rate : real[Q_START + r];
    real[Q_START + r] = real[Q_NEW + r] = rows.q[r];
    if (!is_first) continue;
    real[EFFORT + r] = real[NEXT_EFFORT + r] = 0.0;
    states[6 * i + r] = ROW_IS_ABSENT;
  }
}

/* Efforts go as far towards those of the newest solve as the bodies went of its moves: what would push them where contact does not let
   them is not felt. */
static inline void take_efforts(__global double* real, JointPlace place, const __global JointBodySystem* systems) {
  const double share = share_of(place, systems);
  for (uint r = 0; r < 6; ++r) real[EFFORT + r] = real[NEXT_EFFORT + r] = effort_after(real, r, share);
}

static inline int is_there(const __global JointData* joint, uint r) {
  if (r < 3) return joint->along == PALPATE_JOINT_AXES || r == 0;
  return joint->about != PALPATE_JOINT_NO_TURN;
}

/* What the drive of a row asks for: a target and a compliance, or an effort. */
typedef struct {
  uint state;
  double target, compliance, given;
} Drive;

static inline Drive drive_of(const __global JointRow* row, const Weights* scheme, double dt, uint state, double q, double q_start,
                             double q_before, double effort) {
  Drive out = {ROW_IS_ABSENT, 0.0, 0.0, 0.0};
  if (row->drive == PALPATE_ROW_LOCKED) {
    out.state = ROW_IS_SOLVED;
    out.target = (double)row->target;
  } else if (row->drive == PALPATE_ROW_SPRING) {
    /* effort = stiffness (w q + known - target) + damping (g q + known) / dt */
    const double stiffness = (double)row->stiffness;
    const double rate = (double)row->damping / dt;
    const double total = stiffness * scheme->end + rate * scheme->rate;
    if (!(total > 0.0)) return out;
    const double q_known = scheme->start * q_start + scheme->before * q_before;
    const double rate_known = (1.0 - 2.0 * scheme->rate) * q_start - (1.0 - scheme->rate) * q_before;
    out.state = ROW_IS_SOLVED;
    out.compliance = 1.0 / total;
    out.target = -(stiffness * (q_known - (double)row->target) + rate * rate_known) / total;
  } else if (row->drive == PALPATE_ROW_MOTOR) {
    out.state = ROW_IS_SOLVED;
    out.target = q_start + dt * (double)row->speed;
    const double most = (double)row->max_effort;
    if (state == ROW_IS_GIVEN) {
      /* It goes on pushing until the coordinate is beyond where it is wanted. */
      if ((q - out.target) * effort > 0.0) out.state = ROW_IS_GIVEN;
      out.given = effort > 0.0 ? most : -most;
    } else if (state == ROW_IS_SOLVED && fabs(effort) > most) {
      out.state = ROW_IS_GIVEN;
      out.given = effort > 0.0 ? most : -most;
    }
  }
  return out;
}

/* Before each solve, of joint i: Jacobians at the newest poses, and what each row asks for. */
static inline void make_rows(uint i, const Weights* weights, double dt_s, const __global JointData* joints, const __global JointPlace* places,
                             const __global JointBodySystem* systems, const __global RigidBlockState* blocks, __global double* reals,
                             __global uint* states) {
  const __global JointData* joint = joints + i;
  __global double* real = reals + (size_t)i * JOINT_REALS;
  take_efforts(real, places[i], systems);
  JointRows rows;
  rows_at(joint, pose_of(blocks, joint->body_a, 0), pose_of(blocks, joint->body_b, 0), real[Q_START + 5], &rows);
  for (uint k = 0; k < 36; ++k) {
    real[J_NEW_A + k] = rows.a[k];
    real[J_NEW_B + k] = rows.b[k];
  }
  real[ARM_A] = rows.arm_a.x;
  real[ARM_A + 1] = rows.arm_a.y;
  real[ARM_A + 2] = rows.arm_a.z;
  real[ARM_B] = rows.arm_b.x;
  real[ARM_B + 1] = rows.arm_b.y;
  real[ARM_B + 2] = rows.arm_b.z;
  for (uint r = 0; r < 6; ++r) {
    const double q = rows.q[r];
    real[Q_NEW + r] = q;
    if (!is_there(joint, r)) {
      states[6 * i + r] = ROW_IS_ABSENT;
      real[EFFORT + r] = real[NEXT_EFFORT + r] = 0.0;
      continue;
    }
    const __global JointRow* row = joint->rows + r;
    const uint state = states[6 * i + r];
    const double effort = real[EFFORT + r];
    Drive drive = drive_of(row, weights, dt_s, state, q, real[Q_START + r], real[Q_BEFORE + r], effort);
    if (row->drive != PALPATE_ROW_LOCKED) {
      /* A limit pushes, it does not pull; and a motor that leads away from it is not stopped by it. */
      const int leaves_lower = row->drive == PALPATE_ROW_MOTOR && row->speed > 0.0f;
      const int leaves_upper = row->drive == PALPATE_ROW_MOTOR && row->speed < 0.0f;
      /* Limits may be taken away while the row is at one. */
      const int has_lower = isfinite(row->lower), has_upper = isfinite(row->upper);
      const int at_lower = state == ROW_AT_LOWER ? effort < 0.0 || q < (double)row->lower - LIMIT_SLACK : q < (double)row->lower;
      const int at_upper = state == ROW_AT_UPPER ? effort > 0.0 || q > (double)row->upper + LIMIT_SLACK : q > (double)row->upper;
      if ((has_lower && at_lower && !leaves_lower) || (has_upper && at_upper && !leaves_upper)) {
        /* What the drive does meanwhile is given. */
        double given = drive.given;
        if (drive.state == ROW_IS_SOLVED) given = drive.compliance > 0.0 ? (q - drive.target) / drive.compliance : 0.0;
        drive.state = has_lower && at_lower && !leaves_lower ? ROW_AT_LOWER : ROW_AT_UPPER;
        drive.target = (double)(drive.state == ROW_AT_LOWER ? row->lower : row->upper);
        drive.compliance = 0.0;
        drive.given = given;
      }
    }
    if (drive.state == ROW_IS_ABSENT || (drive.state >= ROW_AT_LOWER && state != drive.state)) real[EFFORT + r] = 0.0;
    if (drive.state == ROW_IS_GIVEN) real[EFFORT + r] = drive.given;
    real[NEXT_EFFORT + r] = real[EFFORT + r];
    states[6 * i + r] = drive.state;
    real[TARGET + r] = drive.target;
    real[COMPLIANCE + r] = drive.compliance;
    real[GIVEN + r] = drive.state >= ROW_AT_LOWER ? drive.given : 0.0;
  }
}

/* a = L D L^T of the lower triangle of a symmetric [6][6], in place: D on the diagonal, L below. */
static inline void factor_block(double* a) {
  for (uint c = 0; c < 6; ++c) {
    double pivot = a[7 * c];
    for (uint k = 0; k < c; ++k) pivot -= a[6 * c + k] * a[6 * c + k] * a[7 * k];
    a[7 * c] = pivot;
    const double inverse = 1.0 / pivot;
    for (uint r = c + 1; r < 6; ++r) {
      double value = a[6 * r + c];
      for (uint k = 0; k < c; ++k) value -= a[6 * r + k] * a[6 * c + k] * a[7 * k];
      a[6 * r + c] = value * inverse;
    }
  }
}

/* x = a^-1 x by the factors of a. */
static inline void solve_block(const double* a, double* x) {
  for (uint r = 1; r < 6; ++r) {
    for (uint k = 0; k < r; ++k) x[r] -= a[6 * r + k] * x[k];
  }
  for (uint r = 0; r < 6; ++r) x[r] /= a[7 * r];
  for (uint r = 5; r-- > 0u;) {
    for (uint k = r + 1; k < 6; ++k) x[r] -= a[6 * k + r] * x[k];
  }
}

/* Adds what turning the arm under a force does to a body's block: the second derivative of -f . R arm, shifted so that it is not negative.
 */
static inline void add_turning(double* h, double3 force, double3 arm, double weight) {
  const double along = dot(force, arm);
  const double size = sqrt(dot(force, force) * dot(arm, arm));
  const double diagonal = 0.5 * weight * (along + size);
  const double f[3] = {force.x, force.y, force.z};
  const double a[3] = {arm.x, arm.y, arm.z};
  for (uint r = 0; r < 3; ++r) {
    for (uint c = 0; c < 3; ++c) h[6 * (3 + r) + 3 + c] += (r == c ? diagonal : 0.0) - 0.5 * weight * (f[r] * a[c] + f[c] * a[r]);
  }
}

/* Adds what turning its direction does to the pull of a distance. Twice on the diagonal stands for the pair of bodies: a bound of its
   quadratic form, so that no block joins the two directly. */
static inline void add_swinging(double* h, double3 n, double pull_per_m) {
  const double a[3] = {n.x, n.y, n.z};
  for (uint r = 0; r < 3; ++r) {
    for (uint c = 0; c < 3; ++c) h[6 * r + c] += 2.0 * pull_per_m * ((r == c ? 1.0 : 0.0) - a[r] * a[c]);
  }
}

/* Body nodes: their blocks and forces. */
static inline void place_bodies(JointGroup group, const __global JointNode* nodes, const __global JointBodySystem* systems,
                                __global double* diagonals, __global double* unknowns) {
  for (uint n = group.node_begin; n < group.node_end; ++n) {
    if (nodes[n].is_joint) continue;
    const __global JointBodySystem* system = systems + nodes[n].index;
    __global double* h = diagonals + 36 * (size_t)n;
    for (uint r = 0; r < 6; ++r) {
      for (uint c = 0; c < 6; ++c) h[6 * r + c] = (double)system->h[r >= c ? r * (r + 1) / 2 + c : c * (c + 1) / 2 + r];
      unknowns[6 * (size_t)n + (size_t)r] = (double)system->f[r];
    }
  }
}

/* Adds what couples bodies. */
static inline void place_couplings(JointGroup group, const __global JointCoupling* couplings, const __global double* coupling_h,
                                   __global double* diagonals, __global double* blocks) {
  for (uint k = group.coupling_begin; k < group.coupling_end; ++k) {
    const JointCoupling coupling = couplings[k];
    const __global double* h = coupling_h + 36 * (size_t)k;
    const int is_one = coupling.node == coupling.other_node;
    __global double* to = is_one ? diagonals + 36 * (size_t)coupling.node : blocks + 36 * (size_t)coupling.block;
    for (uint r = 0; r < 6; ++r) {
      for (uint c = 0; c < 6; ++c) to[coupling.is_transposed ? 6 * c + r : 6 * r + c] += h[6 * r + c];
    }
  }
}

/* One side of a joint: its rows in the block with the body, and what its efforts do to the body beyond that. A set of vertices already is
   where they are balanced by the efforts so far, so only what these change moves it. */
static inline void place_side(const __global double* real, const __global uint* state, const Weights* scheme, uint mean, int of_b,
                              int is_transposed, int is_set, __global double* block, __global double* f) {
  for (uint r = 0; r < 6; ++r) {
    if (state[r] == ROW_IS_ABSENT) continue;
    const __global double* now = real + (of_b ? J_NEW_B : J_NEW_A) + 6 * r;
    double acting[6];
    acting_row(real, of_b, r, scheme, (mean >> r) & 1u, acting);
    const int is_given = state[r] == ROW_IS_GIVEN;
    const double effort = real[EFFORT + r];
    for (uint c = 0; c < 6; ++c) {
      if (is_set) {
        f[c] += is_given ? 0.0 : effort * now[c];
      } else {
        f[c] -= is_given ? effort * acting[c] : effort * (acting[c] - now[c]) + real[GIVEN + r] * acting[c];
      }
      if (!is_given) block[is_transposed ? 6 * c + r : 6 * r + c] = now[c];
    }
  }
}

/* The diagonal of a joint and what it asks for; and the shares of bodies in it. */
static inline void place_joint(uint j, const __global JointData* joints, const __global JointPlace* places, const Weights* scheme,
                               const __global double* reals, const __global uint* states, __global double* diagonals,
                               __global double* blocks, __global double* unknowns) {
  const JointPlace place = places[j];
  const __global double* real = reals + (size_t)j * JOINT_REALS;
  const __global uint* state = states + 6 * j;
  __global double* d = diagonals + 36 * (size_t)place.node;
  for (uint k = 0; k < 36; ++k) d[k] = 0.0;
  uint mean = 0;
  double3 force = (double3)(0.0); /* on B */
  for (uint r = 0; r < 6; ++r) {
    const __global double* row_a = real + J_NEW_A + 6 * r;
    const __global double* row_b = real + J_NEW_B + 6 * r;
    if (may_average(real, r)) mean |= 1u << r;
    if (state[r] != ROW_IS_ABSENT && r < 3) force -= (real[EFFORT + r] + real[GIVEN + r]) * (double3)(row_b[0], row_b[1], row_b[2]);
    if (state[r] == ROW_IS_ABSENT || state[r] == ROW_IS_GIVEN) {
      d[7 * r] = -1.0;
      unknowns[6 * (size_t)place.node + r] = 0.0;
      continue;
    }
    double yield = 0.0;
    for (uint c = 0; c < 6; ++c) {
      if (place.node_a != PALPATE_JOINT_WORLD) yield += row_a[c] * row_a[c] / diagonals[36 * (size_t)place.node_a + 7 * c];
      if (place.node_b != PALPATE_JOINT_WORLD) yield += row_b[c] * row_b[c] / diagonals[36 * (size_t)place.node_b + 7 * c];
    }
    d[7 * r] = -(real[COMPLIANCE + r] + REGULARIZATION * yield);
    unknowns[6 * (size_t)place.node + r] = real[TARGET + r] - real[Q_NEW + r] - REGULARIZATION * yield * real[EFFORT + r];
  }
  const double3 arm_a = (double3)(real[ARM_A], real[ARM_A + 1], real[ARM_A + 2]);
  const double3 arm_b = (double3)(real[ARM_B], real[ARM_B + 1], real[ARM_B + 2]);
  const double pull =
      joints[j].along == PALPATE_JOINT_DISTANCE && real[Q_NEW] > 1e-9 ? scheme->end * (real[EFFORT] + real[GIVEN]) / real[Q_NEW] : 0.0;
  const double3 n = (double3)(real[J_NEW_B], real[J_NEW_B + 1], real[J_NEW_B + 2]);
  for (int of_b = 0; of_b < 2; ++of_b) {
    const uint node = of_b ? place.node_b : place.node_a;
    if (node == PALPATE_JOINT_WORLD) continue;
    place_side(real, state, scheme, mean, of_b, (place.is_transposed >> of_b) & 1u, (place.is_set >> of_b) & 1u,
               blocks + 36 * (size_t)(of_b ? place.block_b : place.block_a), unknowns + 6 * (size_t)node);
  }
  /* After all yields of this joint were read. */
  for (int of_b = 0; of_b < 2; ++of_b) {
    const uint node = of_b ? place.node_b : place.node_a;
    if (node == PALPATE_JOINT_WORLD) continue;
    double h[36];
    for (uint k = 0; k < 36; ++k) h[k] = 0.0;
    add_turning(h, of_b ? force : -force, of_b ? arm_b : arm_a, scheme->end);
    if (pull > 0.0) add_swinging(h, n, pull);
    for (uint k = 0; k < 36; ++k) diagonals[36 * (size_t)node + k] += h[k];
  }
}

/* Solves a group: block LDL^T in an order that the host chose (no pivots between blocks: bodies are positive, and a joint comes after one
   of its bodies, so it is negative). Moves go to `systems`, efforts to the joints, and 1 to shares[g]. Its work-items make the rows; one of
   them solves. Group of work-items: group of joints. */
__kernel void joint_solve(constant JointScheme* scheme, const __global StepParams* p, const __global JointGroup* groups,
                          const __global JointNode* nodes, const __global UInt2* below, const __global uint* targets,
                          const __global uint* joint_order, const __global JointCoupling* couplings, const __global double* coupling_h,
                          const __global JointData* joints, const __global JointPlace* places, const __global RigidBlockState* bodies,
                          __global double* reals, __global uint* states, __global double* diagonals, __global double* blocks,
                          __global double* lower, __global double* unknowns, __global JointBodySystem* systems, __global uint* shares) {
  const uint g = (uint)get_group_id(0);
  const Weights weights = weights_of(scheme);
  const JointGroup group = groups[g];
  for (uint k = group.joint_begin + (uint)get_local_id(0); k < group.joint_end; k += (uint)get_local_size(0)) {
    make_rows(joint_order[k], &weights, (double)p->dt_s, joints, places, systems, bodies, reals, states);
  }
  barrier(CLK_GLOBAL_MEM_FENCE);
  if (get_local_id(0) != 0) return;
  shares[g] = as_uint(1.0f);
  for (size_t k = 36 * (size_t)group.block_begin; k < 36 * (size_t)group.block_end; ++k) blocks[k] = 0.0;
  place_bodies(group, nodes, systems, diagonals, unknowns);
  place_couplings(group, couplings, coupling_h, diagonals, blocks);
  for (uint k = group.joint_begin; k < group.joint_end; ++k) {
    place_joint(joint_order[k], joints, places, &weights, reals, states, diagonals, blocks, unknowns);
  }
  for (uint n = group.node_begin; n < group.node_end; ++n) {
    const JointNode node = nodes[n];
    double a[36], x[6];
    for (uint k = 0; k < 36; ++k) a[k] = diagonals[36 * (size_t)n + k];
    for (uint k = 0; k < 6; ++k) x[k] = unknowns[6 * (size_t)n + k];
    factor_block(a);
    for (uint k = 0; k < 36; ++k) diagonals[36 * (size_t)n + k] = a[k];
    uint target = node.target_begin;
    for (uint i = node.below_begin; i < node.below_end; ++i) {
      const UInt2 row = below[i]; /* node, block */
      double l[36];
      for (uint k = 0; k < 36; ++k) l[k] = blocks[36 * (size_t)row.y + k];
      for (uint r = 0; r < 6; ++r) solve_block(a, l + 6 * r);
      for (uint k = 0; k < 36; ++k) lower[36 * (size_t)row.y + k] = l[k];
      for (uint r = 0; r < 6; ++r) {
        double sum = 0.0;
        for (uint c = 0; c < 6; ++c) sum += l[6 * r + c] * x[c];
        unknowns[6 * (size_t)row.x + r] -= sum;
      }
      for (uint j = node.below_begin; j <= i; ++j, ++target) {
        const __global double* w = blocks + 36 * (size_t)below[j].y;
        __global double* out = j == i ? diagonals + 36 * (size_t)row.x : blocks + 36 * (size_t)targets[target];
        for (uint r = 0; r < 6; ++r) {
          for (uint c = 0; c < 6; ++c) {
            double sum = 0.0;
            for (uint k = 0; k < 6; ++k) sum += l[6 * r + k] * w[6 * c + k];
            out[6 * r + c] -= sum;
          }
        }
      }
    }
  }
  for (uint n = group.node_end; n-- > group.node_begin;) {
    const JointNode node = nodes[n];
    double a[36], x[6];
    for (uint k = 0; k < 36; ++k) a[k] = diagonals[36 * (size_t)n + k];
    for (uint k = 0; k < 6; ++k) x[k] = unknowns[6 * (size_t)n + k];
    solve_block(a, x);
    for (uint i = node.below_begin; i < node.below_end; ++i) {
      const UInt2 row = below[i];
      const __global double* l = lower + 36 * (size_t)row.y;
      const __global double* y = unknowns + 6 * (size_t)row.x;
      for (uint c = 0; c < 6; ++c) {
        for (uint r = 0; r < 6; ++r) x[c] -= l[6 * r + c] * y[r];
      }
    }
    for (uint k = 0; k < 6; ++k) unknowns[6 * (size_t)n + k] = x[k];
    for (uint k = 0; k < 6; ++k) {
      if (!node.is_joint) {
        systems[node.index].f[k] = (float)x[k];
      } else if (states[6 * node.index + k] != ROW_IS_ABSENT && states[6 * node.index + k] != ROW_IS_GIVEN) {
        reals[(size_t)node.index * JOINT_REALS + NEXT_EFFORT + k] = x[k];
      }
    }
  }
}

/* End of a step: efforts as far as the newest moves went, and where these led. The next step may be that of a solver that took over or
   loaded this state, which does not hold the shares of these moves. Work-item: joint. */
__kernel void joint_finish(uint count, const __global JointData* joints, const __global JointPlace* places,
                           const __global JointBodySystem* systems, const __global RigidBlockState* blocks, __global double* reals) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const __global JointData* joint = joints + i;
  __global double* real = reals + (size_t)i * JOINT_REALS;
  take_efforts(real, places[i], systems);
  JointRows rows;
  rows_at(joint, pose_of(blocks, joint->body_a, 0), pose_of(blocks, joint->body_b, 0), real[Q_START + 5], &rows);
  for (uint r = 0; r < 6; ++r) real[Q_NEW + r] = rows.q[r];
}

/* What each joint does, at the end of a step or after any of its sweeps. Work-item: joint. */
__kernel void joint_report(uint count, constant JointScheme* scheme, const __global JointData* joints, const __global JointPlace* places,
                           const __global JointBodySystem* systems, const __global RigidBlockState* blocks, const __global double* reals,
                           const __global uint* states, __global JointReport* reports) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const Weights weights = weights_of(scheme);
  const __global JointData* joint = joints + i;
  const __global double* real = reals + (size_t)i * JOINT_REALS;
  const double share = share_of(places[i], systems);
  JointRows rows;
  rows_at(joint, pose_of(blocks, joint->body_a, 0), pose_of(blocks, joint->body_b, 0), real[Q_START + 5], &rows);
  JointReport out;
  double3 force = (double3)(0.0), torque = (double3)(0.0);
  double off_m = 0.0, off_rad = 0.0;
  for (uint r = 0; r < 6; ++r) {
    const uint state = states[6 * i + r];
    out.coordinates[r] = (float)rows.q[r];
    const double effort = state == ROW_IS_ABSENT ? 0.0 : effort_after(real, r, share) + real[GIVEN + r];
    out.efforts[r] = (float)effort;
    double acting[6];
    acting_row(real, 1, r, &weights, may_average(real, r), acting);
    if (r < 3) {
      force -= effort * (double3)(acting[0], acting[1], acting[2]);
    } else {
      torque -= effort * (double3)(acting[3], acting[4], acting[5]);
    }
    double off = 0.0;
    if (joint->rows[r].drive == PALPATE_ROW_LOCKED && is_there(joint, r)) {
      off = fabs(rows.q[r] - (double)joint->rows[r].target);
    } else if (is_there(joint, r)) {
      off = fmax(0.0, fmax((double)joint->rows[r].lower - rows.q[r], rows.q[r] - (double)joint->rows[r].upper));
    }
    if (r < 3) {
      off_m = fmax(off_m, off);
    } else {
      off_rad = fmax(off_rad, off);
    }
  }
  out.force = (float4)((float)force.x, (float)force.y, (float)force.z, (float)off_m);
  out.torque = (float4)((float)torque.x, (float)torque.y, (float)torque.z, (float)off_rad);
  const DoublePose b = pose_of(blocks, joint->body_b, 0);
  const double3 point = b.center + rows.arm_b;
  out.point = (float4)((float)point.x, (float)point.y, (float)point.z, 0.0f);
  const DoublePose a = pose_of(blocks, joint->body_a, 0);
  const double3 point_a = a.center + turn_vector(a.rotation, convert_double3(joint->point_a.xyz));
  out.point_a = (float4)((float)point_a.x, (float)point_a.y, (float)point_a.z, 0.0f);
  const double3 axis = turn_vector(turn_after(a.rotation, unit(joint->rotation_a)), (double3)(0.0, 0.0, 1.0));
  out.axis = (float4)((float)axis.x, (float)axis.y, (float)axis.z, 0.0f);
  reports[i] = out;
}

/* The first guess of a group is taken back as a whole, to the least share that a filter left to a vertex of one of its bodies: else those
   that stay behind would be out of their joints. shares: [vertex]. Work-item: group. */
__kernel void joint_share(uint count, const __global JointGroup* groups, const __global JointNode* nodes, const __global uint* members,
                          const __global RigidBlockState* blocks, __global float* shares) {
  const uint g = (uint)get_global_id(0);
  if (g >= count) return;
  float share = 1.0f;
  for (uint n = groups[g].node_begin; n < groups[g].node_end; ++n) {
    if (nodes[n].is_joint) continue;
    const __global RigidBlockState* b = blocks + members[nodes[n].index];
    for (uint v = b->vertex_begin; v < b->vertex_end; ++v) share = fmin(share, shares[v]);
  }
  if (share >= 1.0f) return;
  for (uint n = groups[g].node_begin; n < groups[g].node_end; ++n) {
    if (nodes[n].is_joint) continue;
    const __global RigidBlockState* b = blocks + members[nodes[n].index];
    for (uint v = b->vertex_begin; v < b->vertex_end; ++v) shares[v] = share;
  }
}

/* The least share of a group's bodies becomes that of all of them. Work-item: group. */
__kernel void joint_least(uint count, const __global JointGroup* groups, const __global JointNode* nodes,
                          __global JointBodySystem* systems, __global uint* shares) {
  const uint g = (uint)get_global_id(0);
  if (g >= count) return;
  float share = 1.0f;
  for (uint n = groups[g].node_begin; n < groups[g].node_end; ++n) {
    if (!nodes[n].is_joint) share = fmin(share, systems[nodes[n].index].share);
  }
  for (uint n = groups[g].node_begin; n < groups[g].node_end; ++n) {
    if (!nodes[n].is_joint) systems[nodes[n].index].share = share;
  }
  shares[g] = as_uint(share);
}
