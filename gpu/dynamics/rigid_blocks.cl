/* Rigid bodies as blocks of six unknowns in the sweeps of tissue.cl: see rigid_blocks.h. Their vertices are fixed ones to the other
   kernels; here they follow the poses. */

#include "gpu/dynamics/body_group.clh"
#include "gpu/dynamics/contact.clh"
#include "gpu/dynamics/norm.clh"
#include "gpu/dynamics/surface_contact.clh"
#include "gpu/shared/joint_types.h"
#include "gpu/shared/rigid_types.h"

/* An iterate turns a body by at most this angle [rad]: the block is a model for small ones. */
#define MAX_TURN 0.25f

static inline float3 rotate_vector(float4 q, float3 v) {
  const float3 t = 2.0f * cross(q.xyz, v);
  return v + q.w * t + cross(q.xyz, t);
}
static inline float3 rotate_back(float4 q, float3 v) { return rotate_vector((float4)(-q.xyz, q.w), v); }

/* The rotation b, then a. */
static inline float4 multiply_rotations(float4 a, float4 b) {
  return (float4)(a.w * b.xyz + b.w * a.xyz + cross(a.xyz, b.xyz), a.w * b.w - dot(a.xyz, b.xyz));
}

/* The rotation by |v| about v. */
static inline float4 exp_rotation(float3 v) {
  const float angle = norm3(v);
  const float half_angle = 0.5f * angle;
  const float factor = angle > 1e-4f ? sin(half_angle) / angle : 0.5f - angle * angle / 48.0f;
  const float4 q = (float4)(factor * v, cos(half_angle));
  return q / length(q);
}

/* Inverse of exp_rotation, at most pi long. */
static inline float3 log_rotation(float4 q) {
  if (q.w < 0.0f) q = -q;
  const float s = norm3(q.xyz);
  return s > 1e-6f ? (2.0f * atan2(s, q.w) / s) * q.xyz : 2.0f * q.xyz;
}

/* The angle that leads from b to a, world axes. */
static inline float3 turn_between(float4 a, float4 b) { return log_rotation(multiply_rotations(a, (float4)(-b.xyz, b.w))); }

static inline float3 times_inertia(float4 q, float3 inertia, float3 v) { return rotate_vector(q, inertia * rotate_back(q, v)); }
static inline float3 by_inertia(float4 q, float3 inertia, float3 v) { return rotate_vector(q, rotate_back(q, v) / inertia); }

/* Bodies with joints that turn by less in a step take their momentum at its middle [rad]; others as the free turn left it. */
#define MAX_MIDDLE_TURN 1.0f

/* The angular momentum of a turn from one rotation to another in a step, with the inertia half way: the same seen from both ends. */
static inline float3 middle_momentum(float4 from, float4 to, float3 inertia, float inv_dt) {
  const float3 turn = turn_between(to, from);
  const float4 middle = multiply_rotations(exp_rotation(0.5f * turn), from);
  return inv_dt * times_inertia(middle, inertia, turn);
}

static inline int has_middle_momentum(const __global RigidBlockState* b) {
  const float3 turn = turn_between(b->rotation_free, b->rotation_start);
  return b->joint_member != 0u && dot(turn, turn) < MAX_MIDDLE_TURN * MAX_MIDDLE_TURN;
}

typedef struct {
  float3 center;
  float4 rotation;
} Pose;

/* The pose at `share` of the way; exactly the one or the other at 0 and 1. */
static inline Pose pose_between(Pose from, Pose to, float share) {
  if (share <= 0.0f) return from;
  if (share >= 1.0f) return to;
  Pose pose;
  pose.center = from.center + share * (to.center - from.center);
  pose.rotation = multiply_rotations(exp_rotation(share * turn_between(to.rotation, from.rotation)), from.rotation);
  return pose;
}

/* At least as far as a vertex of the body goes from one pose to another: the move of the centre, and the chord of the turn. */
static inline float longest_way(Pose from, Pose to, float radius_m) {
  const float4 turn = multiply_rotations(to.rotation, (float4)(-from.rotation.xyz, from.rotation.w));
  return 1.00001f * (norm3(from.center - to.center) + 2.0f * norm3(turn.xyz) * radius_m);
}

/* Lower triangle of a symmetric positive definite 6 x 6 matrix, row by row, and minus the gradient; unknowns: move of the centre, turn. */
typedef struct {
  float h[21];
  float f[6];
} RigidSystem;

/* h becomes its factors, h = L D L^T: D on the diagonal, L below. */
static inline void factor_rigid(RigidSystem* s) {
  for (int c = 0; c < 6; ++c) {
    const int cc = c * (c + 1) / 2;
    float pivot = s->h[cc + c];
    for (int k = 0; k < c; ++k) pivot -= s->h[cc + k] * s->h[cc + k] * s->h[k * (k + 1) / 2 + k];
    s->h[cc + c] = pivot;
    for (int r = c + 1; r < 6; ++r) {
      const int rr = r * (r + 1) / 2;
      float value = s->h[rr + c];
      for (int k = 0; k < c; ++k) value -= s->h[rr + k] * s->h[cc + k] * s->h[k * (k + 1) / 2 + k];
      s->h[rr + c] = value / pivot;
    }
  }
}

/* h d = f by the factors of h. */
static inline void solve_rigid(const RigidSystem* s, const float* f, float* d) {
  for (int r = 0; r < 6; ++r) {
    d[r] = f[r];
    for (int k = 0; k < r; ++k) d[r] -= s->h[r * (r + 1) / 2 + k] * d[k];
  }
  for (int r = 0; r < 6; ++r) d[r] /= s->h[r * (r + 1) / 2 + r];
  for (int r = 5; r >= 0; --r) {
    for (int k = r + 1; k < 6; ++k) d[r] -= s->h[k * (k + 1) / 2 + r] * d[k];
  }
}

/* d^T h d by the factors of h. */
static inline float energy_norm_sq(const RigidSystem* s, const float* d) {
  float sum = 0.0f;
  for (int c = 0; c < 6; ++c) {
    float along = d[c];
    for (int r = c + 1; r < 6; ++r) along += s->h[r * (r + 1) / 2 + c] * d[r];
    sum += s->h[c * (c + 1) / 2 + c] * along * along;
  }
  return sum;
}

/* How far along [0, 1] a vertex comes that is at `from` and at share `share` (of the whole way) would be at `to`, before a plane stops it.
 */
static inline float allowed_share(float3 from, float3 to, float3 detected, float share, uint begin, uint end,
                                  const __global float4* planes) {
  const float3 u0 = from - detected;
  const float3 u = to - detected;
  float allowed = share;
  for (uint i = begin; i < end; ++i) {
    const float4 plane = planes[i];
    const float at = dot(plane.xyz, u);
    if (at > plane.w) {
      const float at0 = dot(plane.xyz, u0);
      allowed = fmin(allowed, at0 < plane.w ? share * (plane.w - at0) / (at - at0) : 0.0f);
    } else if (dot(plane.xyz, plane.xyz) == 0.0f && dot(u, u) > plane.w * plane.w) {
      allowed = 0.0f; /* too near to tell the sides apart */
    }
  }
  return allowed;
}

/* The largest share found of the way from one allowed pose to another at which every vertex is behind its planes and has not gone farther
   than `cap` since the detection. Vertices move on arcs, so what a chord promises is tried and taken back. All of a group come here, and to
   what calls it. */
static inline float feasible_share(const __global RigidBlockState* block, Pose from, Pose to, float cap, const __global float4* local_m,
                                   const __global float4* detected, const __global float* clear_m, const __global uint* begins,
                                   const __global float4* planes, __local float* shared) {
  float share = 1.0f;
  for (int attempt = 0; attempt < 8; ++attempt) {
    const Pose at = pose_between(from, to, share);
    const float4 axis_x = (float4)(rotate_vector(at.rotation, (float3)(1.0f, 0.0f, 0.0f)), 0.0f);
    const float4 axis_y = (float4)(rotate_vector(at.rotation, (float3)(0.0f, 1.0f, 0.0f)), 0.0f);
    const float4 axis_z = (float4)(rotate_vector(at.rotation, (float3)(0.0f, 0.0f, 1.0f)), 0.0f);
    float allowed = share;
    for (uint v = block->vertex_begin + BODY_ITEM; v < block->vertex_end; v += PALPATE_BODY_GROUP) {
      const float4 own = local_m[v];
      const float4 moved = ((float4)(at.center, 0.0f) - detected[v]) + own.x * axis_x + own.y * axis_y + own.z * axis_z;
      const float gone_sq = moved.x * moved.x + moved.y * moved.y + moved.z * moved.z;
      if (gone_sq <= clear_m[v] * clear_m[v] && gone_sq <= cap * cap) continue;
      const float3 arm = own.xyz;
      const float3 to_m = at.center + rotate_vector(at.rotation, arm);
      const float gone = norm3(to_m - detected[v].xyz);
      const float3 from_m = from.center + rotate_vector(from.rotation, arm);
      allowed = fmin(allowed, allowed_share(from_m, to_m, detected[v].xyz, share, begins[v], begins[v + 1], planes));
      if (gone > cap) {
        const float before = norm3(from_m - detected[v].xyz);
        allowed = fmin(allowed, before < cap ? share * (cap - before) / (gone - before + cap * 1e-3f) : 0.0f);
      }
    }
    allowed = least_of_group(allowed, shared);
    if (allowed == share) return share;
    share = attempt < 3 ? 0.98f * allowed : 0.5f * fmin(allowed, share);
    if (!(share > 1e-4f)) return 0.0f;
  }
  return 0.0f;
}

/* Planes are taken one after the other so often before a move is shortened as a whole. */
#define RIGID_PLANE_PASSES 4

/* Behind a plane that a move is shifted to [m], and by how much of what it was over: else it would be over by rounding or the next arc. */
#define SHIFT_BEHIND_M 1e-8f
#define SHIFT_BEHIND_SHARE 0.02f

#if PALPATE_BODY_GROUP > 1
/* The first vertex from `first` on that is over a plane at this pose, vertex_end if none is. */
static inline uint first_over(const __global RigidBlockState* block, Pose at, uint first, const __global float4* local_m,
                              const __global float4* detected, const __global float* clear_m, const __global uint* begins,
                              const __global float4* planes, __local float* shared) {
  uint found = block->vertex_end;
  for (uint v = first + BODY_ITEM; v < found; v += PALPATE_BODY_GROUP) {
    const float3 moved = at.center - detected[v].xyz + rotate_vector(at.rotation, local_m[v].xyz);
    if (dot(moved, moved) <= clear_m[v] * clear_m[v]) continue;
    for (uint i = begins[v]; i < begins[v + 1]; ++i) {
      if (dot(planes[i].xyz, moved) - planes[i].w > 0.0f && dot(planes[i].xyz, planes[i].xyz) != 0.0f) found = v;
    }
  }
  return first + (uint)least_of_group((float)(found - first), shared); /* exact: a body has fewer vertices than 2^24 */
}
#endif

/* `to` shifted and turned by the least, as `system` (factored) measures it, that takes its vertices behind their planes, one plane after
   the other. Where an end of an edge would meet a plane in a turn, the body turns about that end instead. */
static inline Pose shifted_behind(const __global RigidBlockState* block, const RigidSystem* system, Pose to, const __global float4* local_m,
                                  const __global float4* detected, const __global float* clear_m, const __global uint* begins,
                                  const __global float4* planes, __local float* shared) {
  (void)shared;
  Pose at = to;
  for (int pass = 0; pass < RIGID_PLANE_PASSES; ++pass) {
    bool is_over = false;
    for (uint v = block->vertex_begin; v < block->vertex_end; ++v) {
#if PALPATE_BODY_GROUP > 1
      v = first_over(block, at, v, local_m, detected, clear_m, begins, planes, shared);
      if (v == block->vertex_end) break;
#endif
      const float3 from = detected[v].xyz;
      float3 arm = rotate_vector(at.rotation, local_m[v].xyz);
      const float3 moved = at.center - from + arm;
      if (dot(moved, moved) <= clear_m[v] * clear_m[v]) continue;
      for (uint i = begins[v]; i < begins[v + 1]; ++i) {
        const float4 plane = planes[i];
        const float over = dot(plane.xyz, at.center - from + arm) - plane.w;
        if (!(over > 0.0f) || dot(plane.xyz, plane.xyz) == 0.0f) continue;
        const float3 moment = cross(arm, plane.xyz);
        const float row[6] = {plane.x, plane.y, plane.z, moment.x, moment.y, moment.z};
        float d[6];
        solve_rigid(system, row, d);
        float yield_sq = 0.0f;
        for (int k = 0; k < 6; ++k) yield_sq += row[k] * d[k];
        const float by = ((1.0f + SHIFT_BEHIND_SHARE) * over + SHIFT_BEHIND_M) / yield_sq;
        at.center -= by * (float3)(d[0], d[1], d[2]);
        at.rotation = multiply_rotations(exp_rotation(-by * (float3)(d[3], d[4], d[5])), at.rotation);
        arm = rotate_vector(at.rotation, local_m[v].xyz);
        is_over = true;
      }
    }
    if (!is_over) break;
  }
  at.rotation /= length(at.rotation);
  return at;
}

static inline void move_between(Pose from, Pose to, float* d) {
  const float3 turn = turn_between(to.rotation, from.rotation);
  d[0] = to.center.x - from.center.x;
  d[1] = to.center.y - from.center.y;
  d[2] = to.center.z - from.center.z;
  d[3] = turn.x;
  d[4] = turn.y;
  d[5] = turn.z;
}

/* An allowed pose near `to`: a part of the way there from the allowed pose `from`, or to where the planes shift it, whichever is nearer to
   `to` as `system` (factored) measures it. Without the shift a body that all but touches another would hang on it: a turn of the one takes
   some vertex of the two towards a plane with no way left, and the whole move with it. Sets *truncated. */
static inline Pose allowed_pose(const __global RigidBlockState* block, const RigidSystem* system, Pose from, Pose to, float cap,
                                const __global float4* local_m, const __global float4* detected, const __global float* clear_m,
                                const __global uint* begins, const __global float4* planes, uint* truncated, __local float* shared) {
  const float share = feasible_share(block, from, to, cap, local_m, detected, clear_m, begins, planes, shared);
  *truncated = share < 1.0f;
  if (share == 1.0f) return to;
  const Pose shortened = pose_between(from, to, share);
  const Pose shifted = shifted_behind(block, system, to, local_m, detected, clear_m, begins, planes, shared);
  const float shifted_share = feasible_share(block, from, shifted, cap, local_m, detected, clear_m, begins, planes, shared);
  const Pose other = pose_between(from, shifted, shifted_share);
  float missed[6], missed_shifted[6];
  move_between(shortened, to, missed);
  move_between(other, to, missed_shifted);
  return energy_norm_sq(system, missed_shifted) < energy_norm_sq(system, missed) ? other : shortened;
}

/* The inertia of a body at rotation q, times rate, as the matrix of a system. */
static inline void set_inertia(RigidSystem* s, const __global RigidBlockState* b, float4 q, float rate) {
  for (int k = 0; k < 21; ++k) s->h[k] = 0.0f;
  s->h[0] = s->h[2] = s->h[5] = b->center.w * rate;
  const float3 column0 = rate * times_inertia(q, b->inertia.xyz, (float3)(1.0f, 0.0f, 0.0f));
  const float3 column1 = rate * times_inertia(q, b->inertia.xyz, (float3)(0.0f, 1.0f, 0.0f));
  const float3 column2 = rate * times_inertia(q, b->inertia.xyz, (float3)(0.0f, 0.0f, 1.0f));
  s->h[9] = column0.x;
  s->h[13] = column0.y;
  s->h[14] = column1.y;
  s->h[18] = column0.z;
  s->h[19] = column1.z;
  s->h[20] = column2.z;
}

/* Matrix and forces of inertia at the newest pose: they draw the body to its free flight. */
static inline void set_free_flight(RigidSystem* s, const __global RigidBlockState* b, const __global StepParams* p) {
  const float rate = p->inv_dt * p->inv_dt;
  const float4 q = b->rotation_free;
  set_inertia(s, b, q, rate);
  const float3 away = b->center.w * rate * (b->center_free.xyz - b->center.xyz);
  float3 moment;
  if (has_middle_momentum(b)) {
    moment = p->inv_dt * (b->momentum.xyz - middle_momentum(b->rotation_start, b->rotation, b->inertia.xyz, p->inv_dt));
  } else {
    moment = rate * times_inertia(q, b->inertia.xyz, turn_between(q, b->rotation));
  }
  s->f[0] = away.x;
  s->f[1] = away.y;
  s->f[2] = away.z;
  s->f[3] = moment.x;
  s->f[4] = moment.y;
  s->f[5] = moment.z;
}

/* Start of a step: where each body goes by itself, and a first guess. Angular momentum is kept exactly; the turn is taken with the inertia
   at its middle. The guess counts gravity as far as the body followed it in the step before, as the guess of vertices does. way_m
   of the body is 0 again, and its momentum begins anew. Work-item: body. */
__kernel void rigid_predict(uint count, const __global StepParams* p, __global RigidBlockState* blocks, __global RigidIterate* iterates,
                            __global float* way_m) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  way_m[i + 1] = 0.0f;
  if (iterates) iterates[i].center = (float4)(0.0f);
  RigidBlockState b = blocks[i];
  b.center_start = b.center_detected = b.center;
  b.rotation_start = b.rotation_detected = b.rotation;
  const float3 gravity = (float3)(p->gravity_x, p->gravity_y, p->gravity_z);
  b.velocity.xyz /= 1.0f + b.inertia.w * p->dt_s;
  b.momentum.xyz /= 1.0f + b.momentum.w * p->dt_s;
  const float3 coasting = b.center.xyz + p->dt_s * b.velocity.xyz;
  b.center_free = (float4)(coasting + p->dt_s * p->dt_s * gravity, 0.0f);
  const float3 turn_half = 0.5f * p->dt_s * by_inertia(b.rotation, b.inertia.xyz, b.momentum.xyz);
  const float4 middle = multiply_rotations(exp_rotation(turn_half), b.rotation);
  const float3 turn = p->dt_s * by_inertia(middle, b.inertia.xyz, b.momentum.xyz);
  const float4 rotation = multiply_rotations(exp_rotation(turn), b.rotation);
  b.rotation_free = rotation / length(rotation);
  const float g = norm3(gravity);
  float3 along = (float3)(0.0f);
  if (g > 0.0f) along = clamp(dot(b.acceleration.xyz, gravity) / g, 0.0f, g) / g * gravity;
  b.center = (float4)(coasting + p->dt_s * p->dt_s * along, b.center.w);
  b.rotation = b.rotation_free;
  b.is_truncated = 0;
  blocks[i] = b;
}

/* What the air gives each body in a step: its velocities change by (M + h K)^-1 h f, with f the force and moment at the velocities of its
   free flight, and K their slope. Work-item: body. */
__kernel void rigid_push_by_air(uint count, const __global StepParams* p, float4 wind, const __global uint4* triangles,
                                const __global float* triangle_drag, const __global float4* x, __global RigidBlockState* blocks) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  __global RigidBlockState* b = blocks + i;
  if (b->triangle_begin == b->triangle_end || triangle_drag[b->triangle_begin] == 0.0f) return;
  const float dt = p->dt_s;
  const float3 velocity = b->velocity.xyz + dt * (float3)(p->gravity_x, p->gravity_y, p->gravity_z);
  const float3 turning = by_inertia(b->rotation, b->inertia.xyz, b->momentum.xyz);
  RigidSystem s;
  for (int k = 0; k < 6; ++k) s.f[k] = 0.0f;
  for (int k = 0; k < 21; ++k) s.h[k] = 0.0f;
  s.h[0] = s.h[2] = s.h[5] = b->center.w;
  for (int k = 0; k < 3; ++k) {
    const float3 axis = (float3)(k == 0 ? 1.0f : 0.0f, k == 1 ? 1.0f : 0.0f, k == 2 ? 1.0f : 0.0f);
    const float3 column = times_inertia(b->rotation, b->inertia.xyz, axis);
    const int row = (3 + k) * (4 + k) / 2 + 3;
    s.h[row] = column.x;
    if (k > 0) s.h[row + 1] = column.y;
    if (k > 1) s.h[row + 2] = column.z;
  }
  for (uint t = b->triangle_begin; t < b->triangle_end; ++t) {
    const float3 o = x[triangles[t].x].xyz, q = x[triangles[t].y].xyz, r = x[triangles[t].z].xyz;
    const float3 normal = cross(q - o, r - o);
    const float double_area = norm3(normal);
    if (!(double_area > 0.0f)) continue;
    const float3 n = normal / double_area;
    const float3 arm = (o + q + r) / 3.0f - b->center.xyz;
    const float speed = dot(wind.xyz - velocity - cross(turning, arm), n);
    const float drag = 0.5f * triangle_drag[t] * double_area * fabs(speed);
    const float3 moment = cross(arm, n);
    const float row[6] = {n.x, n.y, n.z, moment.x, moment.y, moment.z};
    for (int k = 0; k < 6; ++k) {
      s.f[k] += dt * drag * speed * row[k];
      for (int l = 0; l <= k; ++l) s.h[k * (k + 1) / 2 + l] += 2.0f * dt * drag * row[k] * row[l];
    }
  }
  float d[6];
  factor_rigid(&s);
  solve_rigid(&s, s.f, d);
  b->velocity.xyz += (float3)(d[0], d[1], d[2]);
  b->momentum.xyz += times_inertia(b->rotation, b->inertia.xyz, (float3)(d[3], d[4], d[5]));
}

#define NOT_RIGID 0xffffffffu

/* Vertices follow the poses. Work-item: vertex of a rigid body; others among them stay (block_of: NOT_RIGID). */
__kernel void rigid_place(uint first, uint count, const __global uint* block_of, const __global RigidBlockState* blocks,
                          const __global float4* local_m, const __global uint* begins, __global float4* x, __global uchar* touched) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const uint v = first + i;
  if (block_of[i] == NOT_RIGID) return;
  const __global RigidBlockState* b = blocks + block_of[i];
  x[v] = (float4)(b->center.xyz + rotate_vector(b->rotation, local_m[v].xyz), x[v].w);
  touched[v] = b->is_truncated && begins[v] != begins[v + 1] ? PALPATE_TOUCH_TRUNCATED : 0;
}

/* The pose becomes that of the detection. Work-item: body. */
__kernel void rigid_detected(uint count, __global RigidBlockState* blocks) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  blocks[i].center_detected = blocks[i].center;
  blocks[i].rotation_detected = blocks[i].rotation;
}

/* The pose becomes the goal that a filter may take back. Work-item: body. */
__kernel void rigid_goal(uint count, __global RigidBlockState* blocks) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  blocks[i].center_goal = blocks[i].center;
  blocks[i].rotation_goal = blocks[i].rotation;
}

/* Takes each body back on its way from the detection, or the start of the step, to the goal, to the least share that a filter left to one
   of its vertices, which all get that share. shares[v] in [0, 1]; way_m as in rigid_solve. Group: body. */
KERNEL_OF_BODIES void rigid_take_back(uint count, uint from_start, __global float* shares, __global RigidBlockState* blocks,
                                      __global float* way_m) {
  SHARED_BY_GROUP(shared, 1)
  const uint i = body_of_group();
  if (i >= count) return;
  __global RigidBlockState* b = blocks + i;
  float share = 1.0f;
  for (uint v = b->vertex_begin + BODY_ITEM; v < b->vertex_end; v += PALPATE_BODY_GROUP) share = fmin(share, shares[v]);
  share = least_of_group(share, shared);
  if (share >= 1.0f) return;
  for (uint v = b->vertex_begin + BODY_ITEM; v < b->vertex_end; v += PALPATE_BODY_GROUP) shares[v] = share;
  if (BODY_ITEM != 0u) return;
  const Pose from = {from_start ? b->center_start.xyz : b->center_detected.xyz, from_start ? b->rotation_start : b->rotation_detected};
  const Pose to = {b->center_goal.xyz, b->rotation_goal};
  const Pose pose = pose_between(from, to, share);
  const Pose before = {b->center.xyz, b->rotation};
  way_m[i + 1] += longest_way(before, pose, b->radius_m);
  b->center.xyz = pose.center;
  b->rotation = pose.rotation;
  b->is_truncated = 1;
}

/* How far a body may go from where it was detected, by its reach: see PALPATE_CAP_SHARE. */
static inline float cap_of(const __global RigidBlockState* b, const __global uint* vertex_groups, const __global float* reaches) {
  float cap = MAXFLOAT;
  for (uint v = b->vertex_begin; v < b->vertex_end && cap == MAXFLOAT; ++v) {
    if (vertex_groups[v] != PALPATE_NO_GROUP) cap = PALPATE_CAP_SHARE * reaches[vertex_groups[v] & PALPATE_GROUP_MASK];
  }
  return cap;
}

/* Takes each body back as far as the planes and its reach demand, measured by its inertia. reaches: [body of vertex_groups]. Of a body with
   joints it only tells the share, in `systems`. Group: body. */
KERNEL_OF_BODIES void rigid_bound(uint count, const __global uint* vertex_groups, const __global float* reaches,
                                  const __global float4* local_m, const __global float4* detected, const __global float* clear_m,
                                  const __global uint* begins, const __global float4* planes, __global RigidBlockState* blocks,
                                  __global JointBodySystem* systems) {
  SHARED_BY_GROUP(shared, 1)
  const uint i = body_of_group();
  if (i >= count) return;
  __global RigidBlockState* b = blocks + i;
  const Pose from = {b->center_detected.xyz, b->rotation_detected};
  const Pose to = {b->center.xyz, b->rotation};
  const float cap = cap_of(b, vertex_groups, reaches);
  if (b->joint_member != 0u) {
    const float share = feasible_share(b, from, to, cap, local_m, detected, clear_m, begins, planes, shared);
    if (BODY_ITEM == 0u) systems[b->joint_member - 1u].share = share;
    return;
  }
  RigidSystem s;
  set_inertia(&s, b, to.rotation, 1.0f);
  factor_rigid(&s);
  uint truncated = 0;
  const Pose pose = allowed_pose(b, &s, from, to, cap, local_m, detected, clear_m, begins, planes, &truncated, shared);
  BODY_BARRIER
  if (BODY_ITEM != 0u) return;
  b->center.xyz = pose.center;
  b->rotation = pose.rotation;
  b->is_truncated = truncated;
}

/* After that, bodies with joints go back by the share of their group. Group: one of these. */
KERNEL_OF_BODIES void rigid_bound_jointed(uint count, const __global uint* members, const __global uint* vertex_groups,
                                          const __global float* reaches, const __global float4* local_m, const __global float4* detected,
                                          const __global float* clear_m, const __global uint* begins, const __global float4* planes,
                                          __global RigidBlockState* blocks, const __global JointBodySystem* systems) {
  SHARED_BY_GROUP(shared, 1)
  const uint m = body_of_group();
  if (m >= count) return;
  __global RigidBlockState* b = blocks + members[m];
  if (BODY_ITEM == 0u) b->is_truncated = systems[m].share < 1.0f;
  if (systems[m].share >= 1.0f) return;
  const Pose from = {b->center_detected.xyz, b->rotation_detected};
  const Pose end = {b->center.xyz, b->rotation};
  const Pose to = pose_between(from, end, systems[m].share);
  const float cap = cap_of(b, vertex_groups, reaches);
  const Pose pose = pose_between(from, to, feasible_share(b, from, to, cap, local_m, detected, clear_m, begins, planes, shared));
  BODY_BARRIER
  if (BODY_ITEM != 0u) return;
  b->center.xyz = pose.center;
  b->rotation = pose.rotation;
}

/* One contact, which does `on_body` to a body for a weight of 1. `arm` is the weighted sum of the arms of the body's vertices, `weight` the
   sum of the weights. With the block K = across I + along_n n n^T of the point and the matrix A of the cross product by the arm, the body's
   is [w^2 K, w K A^T; w A K, A K A^T]. */
static inline void add_rigid_contact(RigidSystem* s, float3 arm, float weight, float3 n, float3 on_body, float across, float along_n) {
  const float3 moment = cross(arm, on_body);
  s->f[0] += weight * on_body.x;
  s->f[1] += weight * on_body.y;
  s->f[2] += weight * on_body.z;
  s->f[3] += moment.x;
  s->f[4] += moment.y;
  s->f[5] += moment.z;
  const float3 along = along_n * n;
  const float3 k0 = along * n.x + (float3)(across, 0.0f, 0.0f);
  const float3 k1 = along * n.y + (float3)(0.0f, across, 0.0f);
  const float3 k2 = along * n.z + (float3)(0.0f, 0.0f, across);
  const float w_sq = weight * weight;
  s->h[0] += w_sq * k0.x;
  s->h[1] += w_sq * k0.y;
  s->h[2] += w_sq * k1.y;
  s->h[3] += w_sq * k0.z;
  s->h[4] += w_sq * k1.z;
  s->h[5] += w_sq * k2.z;
  const float3 m0 = cross(arm, k0), m1 = cross(arm, k1), m2 = cross(arm, k2); /* columns of A K */
  const float3 r0 = cross(arm, (float3)(m0.x, m1.x, m2.x));                   /* rows of A K A^T */
  const float3 r1 = cross(arm, (float3)(m0.y, m1.y, m2.y));
  const float3 r2 = cross(arm, (float3)(m0.z, m1.z, m2.z));
  s->h[6] += weight * m0.x;
  s->h[7] += weight * m1.x;
  s->h[8] += weight * m2.x;
  s->h[9] += r0.x;
  s->h[10] += weight * m0.y;
  s->h[11] += weight * m1.y;
  s->h[12] += weight * m2.y;
  s->h[13] += r1.x;
  s->h[14] += r1.y;
  s->h[15] += weight * m0.z;
  s->h[16] += weight * m1.z;
  s->h[17] += weight * m2.z;
  s->h[18] += r2.x;
  s->h[19] += r2.y;
  s->h[20] += r2.z;
}

/* The pairs of each body, each once, in the order of its entries and from begins[vertex_begin] on: 2 pair, plus 1 if the body is B. And how
   far its vertices may go whichever way before a plane matters. After each detection; `lists` is 0 if it found the pairs that are listed.
   Group: body. */
KERNEL_OF_BODIES void rigid_list_pairs(uint count, uint lists, const __global RigidBlockState* blocks, const __global uint* begins,
                                       const __global uint* entries, const __global SurfacePair* pairs, const __global float* clear_m,
                                       __global uint* own_pairs, __global RigidPairs* own) {
  SHARED_BY_GROUP(shared, 1)
  const uint i = body_of_group();
  if (i >= count) return;
  const uint first = blocks[i].vertex_begin;
  const uint size = blocks[i].vertex_end - first;
  float clear = MAXFLOAT;
  for (uint v = first + BODY_ITEM; v < first + size; v += PALPATE_BODY_GROUP) clear = fmin(clear, clear_m[v]);
  clear = least_of_group(clear, shared);
  if (lists == 0u) {
    if (BODY_ITEM == 0u) own[i].clear_m = clear;
    return;
  }
  RigidPairs out;
  out.begin = out.end = begins[first];
  out.clear_m = clear;
  const uint end = begins[first + size];
  for (uint next = out.begin; next < end; next += PALPATE_BODY_GROUP) {
    const uint k = next + BODY_ITEM;
    uint listed = 0u, is_listed = 0u;
    if (k < end) {
      const uint pair = entries[k] >> 2;
      const uint4 u = pairs[pair].vertices;
      const uint role = u.x - first < size ? 0u : u.y - first < size ? 1u : u.z - first < size ? 2u : 3u;
      const bool is_vertex = (pairs[pair].flags & PALPATE_PAIR_KIND_MASK) == PALPATE_VERTEX_TRIANGLE;
      is_listed = (entries[k] & 3u) == role ? 1u : 0u;
      listed = 2u * pair + (role >= (is_vertex ? 1u : 2u) ? 1u : 0u);
    }
    uint total;
    const uint place = place_in_group(is_listed, &total, shared);
    if (is_listed != 0u) own_pairs[out.end + place] = listed;
    out.end += total;
  }
  if (BODY_ITEM == 0u) own[i] = out;
}

/* What pairs need of the scene. */
typedef struct {
  float friction, slip_m;
  const __global float4* x;
  const __global float4* x_start;
  const __global SurfacePair* pairs;
  const __global PairRow* rows;
} PairScene;

/* A pair with something that is not followed, at the newest positions. */
static inline void add_rigid_pair(RigidSystem* s, const PairScene* scene, uint first, uint size, float3 center, uint index) {
  const __global SurfacePair* pair = scene->pairs + index;
  const uint4 u = pair->vertices;
  const float4 weights = pair->weights;
  PairWeights w;
  w.w0 = weights.x;
  w.w1 = weights.y;
  w.w2 = weights.z;
  w.w3 = weights.w;
  const __global float4* x = scene->x;
  const float3 x0 = x[u.x].xyz, x1 = x[u.y].xyz, x2 = x[u.z].xyz, x3 = x[u.w].xyz;
  const float3 n = pair->normal.xyz;
  const float3 d = pair_vector(x0, x1, x2, x3, w);
  float slope;
  const float force = barrier_force(dot(n, d), pair->normal.w, pair->stiffness_n_per_m, &slope);
  if (force == 0.0f) return;
  float weight = 0.0f;
  float3 arm = (float3)(0.0f);
  if (u.x - first < size) {
    weight += w.w0;
    arm += w.w0 * (x0 - center);
  }
  if (u.y - first < size) {
    weight += w.w1;
    arm += w.w1 * (x1 - center);
  }
  if (u.z - first < size) {
    weight += w.w2;
    arm += w.w2 * (x2 - center);
  }
  if (u.w - first < size) {
    weight += w.w3;
    arm += w.w3 * (x3 - center);
  }
  const __global float4* x_start = scene->x_start;
  float3 slip = d - pair_vector(x_start[u.x].xyz, x_start[u.y].xyz, x_start[u.z].xyz, x_start[u.w].xyz, w);
  slip -= dot(slip, n) * n;
  const float friction = scene->friction * force / fmax(norm3(slip), scene->slip_m);
  add_rigid_contact(s, arm, weight, n, force * n - friction * slip, friction, slope - friction);
}

/* Rows taken together. They are loaded first, so that the loads, most of which miss the caches, do not wait for each other. */
#define ROW_BATCH 8

/* The pairs of a body: rows of those with another body, others by the bits of is_near that they must have. */
static inline void add_pairs(RigidSystem* s, const PairScene* scene, const __global RigidBlockState* b, float3 center, uint begin, uint end,
                             const __global uint* own_pairs, const __global uchar* is_near, uint near_bits) {
  for (uint i = begin + BODY_ITEM; i < end;) {
    uint with_row[ROW_BATCH];
    uint others[ROW_BATCH];
    uint row_count = 0;
    uint other_count = 0;
    for (; i < end && row_count < ROW_BATCH && other_count < ROW_BATCH; i += PALPATE_BODY_GROUP) {
      const uint is = is_near[own_pairs[i] >> 1];
      with_row[row_count] = own_pairs[i];
      others[other_count] = own_pairs[i] >> 1;
      row_count += (is & PALPATE_PAIR_HAS_ROW) != 0u ? 1u : 0u;
      other_count += (is & PALPATE_PAIR_HAS_ROW) == 0u && (is & near_bits) != 0u ? 1u : 0u;
    }
    PairRow rows[ROW_BATCH];
    for (uint k = 0; k < row_count; ++k) rows[k] = scene->rows[with_row[k] >> 1];
    for (uint k = 0; k < row_count; ++k) {
      const PairRow row = rows[k];
      const bool is_b = (with_row[k] & 1u) != 0u;
      const float weight = is_b ? 1.0f : -1.0f;
      const float3 arm = weight * ((is_b ? row.point_b.xyz : row.point_a.xyz) - center);
      add_rigid_contact(s, arm, weight, row.normal.xyz, row.on_b.xyz, row.point_a.w, row.point_b.w);
    }
    for (uint k = 0; k < other_count; ++k) {
      add_rigid_pair(s, scene, b->vertex_begin, b->vertex_end - b->vertex_begin, center, others[k]);
    }
  }
}

/* Springs that hold vertices of a body; those of vertex v are anchors[anchor_begin[v] .. anchor_begin[v + 1]). */
static inline void add_anchors(RigidSystem* s, const __global RigidBlockState* b, float3 center, const __global float4* x,
                               const __global uint* anchor_begin, const __global Anchor* anchors, const __global Collider* colliders) {
  if (anchor_begin[b->vertex_begin] == anchor_begin[b->vertex_end]) return;
  for (uint v = b->vertex_begin + BODY_ITEM; v < b->vertex_end; v += PALPATE_BODY_GROUP) {
    for (uint i = anchor_begin[v]; i < anchor_begin[v + 1]; ++i) {
      const float3 d = anchor_stretch(anchors + i, x[v].xyz - colliders[anchors[i].holder].tip.xyz - anchors[i].target.xyz);
      const float factor = anchor_factor(anchors + i, norm3(d));
      const int is_one_sided = anchors[i].normal.w != 0.0f;
      if (is_one_sided && dot(d, d) == 0.0f) continue;
      add_rigid_contact(s, x[v].xyz - center, 1.0f, anchors[i].normal.xyz, -factor * d, is_one_sided ? 0.0f : factor,
                        is_one_sided ? factor : 0.0f);
    }
  }
}

/* Planes at the vertices, capsules at the triangles. */
static inline void add_obstacles(RigidSystem* s, const __global RigidBlockState* b, float3 center, const __global StepParams* p,
                                 const __global float4* x, const __global float4* x_start, const __global uint4* triangles,
                                 const __global uint* triangle_colliders, const __global ToolContact* contacts,
                                 const __global Collider* colliders, const __global PlaneObstacle* planes) {
  for (uint k = 0; k < p->plane_count; ++k) {
    const float4 plane = planes[k].normal_offset;
    /* Rounding of the two heights is far below that share of the radius and the margin, or of where the centre is. */
    const float above_m = dot(plane.xyz, center) - plane.w - 1e-5f * (fabs(center.x) + fabs(center.y) + fabs(center.z));
    if (above_m > 1.001f * (b->radius_m + p->margin_m)) continue;
    for (uint v = b->vertex_begin + BODY_ITEM; v < b->vertex_end; v += PALPATE_BODY_GROUP) {
      const float3 at = x[v].xyz;
      float slope;
      const float force = contact_force(p, p->stiffness_n_per_m, p->margin_m - (dot(plane.xyz, at) - plane.w), &slope);
      if (force == 0.0f) continue;
      float3 slip = at - x_start[v].xyz;
      slip -= dot(slip, plane.xyz) * plane.xyz;
      const float friction = friction_factor(p, force, norm3(slip));
      add_rigid_contact(s, at - center, 1.0f, plane.xyz, force * plane.xyz - friction * slip, friction, slope - friction);
    }
  }
  if (p->collider_count == 0) return;
  for (uint t = b->triangle_begin + BODY_ITEM; t < b->triangle_end; t += PALPATE_BODY_GROUP) {
    uint mask = triangle_colliders[t];
    for (uint c = 0; mask != 0; ++c, mask >>= 1) {
      if (!(mask & 1u)) continue;
      const ToolContact contact = contacts[(size_t)c * p->triangle_count + t];
      if (contact.weights.w == 0.0f) continue;
      const uint4 tri = triangles[t];
      const float3 w = contact.weights.xyz;
      const float4 axis = colliders[c].axis;
      const float3 n = contact.normal.xyz;
      const float along = contact.normal.w;
      const float3 on_axis = colliders[c].tip.xyz + along * axis.xyz;
      const float3 point = w.x * x[tri.x].xyz + w.y * x[tri.y].xyz + w.z * x[tri.z].xyz;
      float slope;
      const float force = contact_force(p, axis.w, p->margin_m + colliders[c].tip_start.w - dot(n, point - on_axis), &slope);
      if (force == 0.0f) continue;
      const float3 start = w.x * x_start[tri.x].xyz + w.y * x_start[tri.y].xyz + w.z * x_start[tri.z].xyz;
      float3 slip = (point - start) - (on_axis - colliders[c].tip_start.xyz - along * colliders[c].axis_start.xyz);
      slip -= dot(slip, n) * n;
      const float friction = friction_factor(p, force, norm3(slip));
      add_rigid_contact(s, point - center, 1.0f, n, force * n - friction * slip, friction, slope - friction);
    }
  }
}

static inline Pose moved_by(Pose from, const float* d, float share) {
  Pose to;
  to.center = from.center + share * (float3)(d[0], d[1], d[2]);
  to.rotation = multiply_rotations(exp_rotation(share * (float3)(d[3], d[4], d[5])), from.rotation);
  to.rotation /= length(to.rotation);
  return to;
}

/* Where momentum carries a body on to that a sweep wants at `wanted`: by Nesterov's share of the way from where the sweep before wanted it,
   if the forces `f` at the start of this one are along that way. Else, and after a move that was cut short, momentum begins anew. */
static inline Pose carried_on(Pose wanted, const float* f, uint was_cut_short, RigidIterate* iterate) {
  const float sweeps = was_cut_short ? 0.0f : iterate->center.w;
  Pose to = wanted;
  float next = 1.0f;
  if (sweeps > 0.0f) {
    const Pose before = {iterate->center.xyz, iterate->rotation};
    float way[6];
    move_between(before, wanted, way);
    float work = 0.0f;
    for (int k = 0; k < 6; ++k) work += f[k] * way[k];
    if (work > 0.0f) {
      to = moved_by(wanted, way, sweeps / (sweeps + 3.0f));
      next = sweeps + 1.0f;
    }
  }
  iterate->center = (float4)(wanted.center, next);
  iterate->rotation = wanted.rotation;
  return to;
}

/* Moves a body by the turn and shift d, and on by momentum, as far as its planes allow. `system`: its block, factored. `iterate`: null
   without momentum. */
static inline void move_rigid(__global RigidBlockState* b, const RigidSystem* system, float* d, __global RigidIterate* iterate,
                              int has_planes, float pairs_clear_m, const __global float4* local_m, const __global float4* detected,
                              const __global float* clear_m, const __global uint* begins, const __global float4* bounds,
                              __global float* way_m, __local float* shared) {
  const Pose from = {b->center.xyz, b->rotation};
  const float angle = norm3((float3)(d[3], d[4], d[5]));
  for (int k = 3; k < 6; ++k) d[k] *= angle > MAX_TURN ? MAX_TURN / angle : 1.0f;
  Pose to = moved_by(from, d, 1.0f);
  RigidIterate carried;
  if (iterate) {
    carried = *iterate;
    to = carried_on(to, system->f, b->is_truncated, &carried);
  }
  uint truncated = 0;
  Pose pose = to;
  const Pose detected_pose = {b->center_detected.xyz, b->rotation_detected};
  if (has_planes && longest_way(detected_pose, to, b->radius_m) > pairs_clear_m) {
    pose = allowed_pose(b, system, from, to, MAXFLOAT, local_m, detected, clear_m, begins, bounds, &truncated, shared);
  }
  BODY_BARRIER
  if (BODY_ITEM != 0u) return;
  if (iterate) *iterate = carried;
  b->center.xyz = pose.center;
  b->rotation = pose.rotation;
  b->is_truncated = truncated;
  *way_m += longest_way(from, pose, b->radius_m);
}

/* One Newton step of each body on its six coordinates, as far as the planes allow; the vertices follow in rigid_place. Reads other
   bodies' vertices as they are: none moves in this launch. `near_bits`: those of is_near that a pair must have to count; 0 where surfaces
   do not meet, then the arguments of pairs and planes are not read. way_m[body + 1] grows by the way of the body's vertices at most.
   A body with joints leaves its block and forces in `systems` instead, and moves in rigid_move_jointed. `iterates`: null without
   momentum. Group: body. */
KERNEL_OF_BODIES void rigid_solve(uint count, uint near_bits, const __global StepParams* p, const __global SurfaceParams* sp,
                                  const __global float4* x, const __global float4* x_start, const __global float4* local_m,
                                  const __global float4* detected, const __global float* clear_m, const __global uint* begins,
                                  const __global uint* own_pairs, const __global RigidPairs* own, const __global SurfacePair* pairs,
                                  const __global PairRow* rows, const __global uchar* is_near, const __global float4* bounds,
                                  const __global uint4* triangles, const __global uint* triangle_colliders,
                                  const __global ToolContact* contacts, const __global Collider* colliders,
                                  const __global PlaneObstacle* obstacles, const __global uint* anchor_begin,
                                  const __global Anchor* anchors, __global RigidBlockState* blocks, __global RigidIterate* iterates,
                                  __global JointBodySystem* systems, __global float* way_m) {
  SHARED_BY_GROUP(shared, 21)
  const uint i = body_of_group();
  if (i >= count) return;
  __global RigidBlockState* b = blocks + i;
  if (b->center.w == 0.0f) return; /* a mount of joints that is exactly where it is told */
  const float3 center = b->center.xyz;
  RigidSystem s;
  if (BODY_ITEM == 0u) {
    set_free_flight(&s, b, p);
  } else {
    for (int k = 0; k < 21; ++k) s.h[k] = 0.0f;
    for (int k = 0; k < 6; ++k) s.f[k] = 0.0f;
  }
  if (near_bits != 0u) {
    const PairScene scene = {sp->friction, sp->slip_m, x, x_start, pairs, rows};
    add_pairs(&s, &scene, b, center, own[i].begin, own[i].end, own_pairs, is_near, near_bits);
  }
  add_obstacles(&s, b, center, p, x, x_start, triangles, triangle_colliders, contacts, colliders, obstacles);
  if (anchor_begin) add_anchors(&s, b, center, x, anchor_begin, anchors, colliders);
  sum_of_group(s.h, 21u, shared);
  sum_of_group(s.f, 6u, shared);
  if (b->joint_member != 0u) {
    if (BODY_ITEM != 0u) return;
    __global JointBodySystem* out = systems + (b->joint_member - 1u);
    for (int k = 0; k < 21; ++k) out->h[k] = s.h[k];
    for (int k = 0; k < 6; ++k) out->f[k] = s.f[k];
    return;
  }
  factor_rigid(&s);
  float d[6];
  solve_rigid(&s, s.f, d);
  move_rigid(b, &s, d, iterates ? iterates + i : 0, near_bits != 0u, near_bits != 0u ? own[i].clear_m : 0.0f, local_m, detected, clear_m,
             begins, bounds, way_m + i + 1, shared);
}

/* Blocks and forces of inertia alone, for the first guess of bodies with joints. Work-item: one of these. */
__kernel void rigid_inertia_jointed(uint count, const __global StepParams* p, const __global uint* members,
                                    const __global RigidBlockState* blocks, __global JointBodySystem* systems) {
  const uint m = (uint)get_global_id(0);
  if (m >= count) return;
  const __global RigidBlockState* b = blocks + members[m];
  RigidSystem s;
  set_free_flight(&s, b, p);
  for (int k = 0; k < 21; ++k) systems[m].h[k] = s.h[k];
  for (int k = 0; k < 6; ++k) systems[m].f[k] = s.f[k];
}

/* Where joint_solve sends a body with joints, but for turns that are too far: then a part of the way. */
static inline Pose jointed_goal(const __global RigidBlockState* b, const __global JointBodySystem* system, float share) {
  const float3 shift = (float3)(system->f[0], system->f[1], system->f[2]);
  const float3 turn = (float3)(system->f[3], system->f[4], system->f[5]);
  Pose to;
  to.center = b->center.xyz + share * shift;
  to.rotation = multiply_rotations(exp_rotation(share * turn), b->rotation);
  to.rotation /= length(to.rotation);
  return to;
}

/* The share of its way that planes leave to each body with joints, and the least one of its group. `members`: the bodies. Group: one of
   these. */
KERNEL_OF_BODIES void rigid_share_jointed(uint count, uint has_planes, const __global uint* members, const __global float4* local_m,
                                          const __global float4* detected, const __global float* clear_m, const __global uint* begins,
                                          const __global RigidPairs* own, const __global float4* bounds,
                                          const __global RigidBlockState* blocks, const __global uint* group_of,
                                          __global JointBodySystem* systems, __global uint* group_shares) {
  SHARED_BY_GROUP(shared, 1)
  const uint m = body_of_group();
  if (m >= count) return;
  const uint i = members[m];
  const __global RigidBlockState* b = blocks + i;
  const float angle = norm3((float3)(systems[m].f[3], systems[m].f[4], systems[m].f[5]));
  float share = angle > MAX_TURN ? MAX_TURN / angle : 1.0f;
  const Pose from = {b->center.xyz, b->rotation};
  const Pose to = jointed_goal(b, systems + m, share);
  const Pose detected_pose = {b->center_detected.xyz, b->rotation_detected};
  if (has_planes != 0u && longest_way(detected_pose, to, b->radius_m) > own[i].clear_m) {
    share *= feasible_share(b, from, to, MAXFLOAT, local_m, detected, clear_m, begins, bounds, shared);
  }
  if (BODY_ITEM != 0u) return;
  systems[m].share = share;
  atomic_min(&group_shares[group_of[m]], as_uint(share)); /* shares are not negative: their bits are in their order */
}

/* Bodies with joints move along as far as their group may. They are not shifted behind planes, as others are: that would take them out of
   their joints, and so does it if one of them is stopped alone. Group: one of these bodies. */
KERNEL_OF_BODIES void rigid_move_jointed(uint count, uint has_planes, const __global uint* members, const __global float4* local_m,
                                         const __global float4* detected, const __global float* clear_m, const __global uint* begins,
                                         const __global RigidPairs* own, const __global float4* bounds, const __global uint* group_of,
                                         const __global uint* group_shares, __global RigidBlockState* blocks,
                                         __global JointBodySystem* systems, __global float* way_m) {
  SHARED_BY_GROUP(shared, 1)
  const uint m = body_of_group();
  if (m >= count) return;
  const uint i = members[m];
  __global RigidBlockState* b = blocks + i;
  const Pose from = {b->center.xyz, b->rotation};
  const Pose detected_pose = {b->center_detected.xyz, b->rotation_detected};
  const float share = as_float(group_shares[group_of[m]]);
  Pose pose = jointed_goal(b, systems + m, share);
  /* Arcs may bulge where their ends are allowed. */
  if (has_planes != 0u && longest_way(detected_pose, pose, b->radius_m) > own[i].clear_m) {
    const float allowed = feasible_share(b, from, pose, MAXFLOAT, local_m, detected, clear_m, begins, bounds, shared);
    pose = pose_between(from, pose, allowed);
  }
  BODY_BARRIER
  if (BODY_ITEM != 0u) return;
  systems[m].share = share;
  b->is_truncated = share < 1.0f;
  b->center.xyz = pose.center;
  b->rotation = pose.rotation;
  way_m[i + 1] += longest_way(from, pose, b->radius_m);
}

/* End of a step: velocities from poses. The angular momentum takes up what contact turned the body away from its free flight, so that it
   changes by the moments of the contacts alone. Work-item: body. */
__kernel void rigid_finish(uint count, const __global StepParams* p, __global RigidBlockState* blocks) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  __global RigidBlockState* b = blocks + i;
  const float3 velocity = p->inv_dt * (b->center.xyz - b->center_start.xyz);
  b->acceleration = (float4)(p->inv_dt * (velocity - b->velocity.xyz), 0.0f);
  b->velocity = (float4)(velocity, 0.0f);
  if (has_middle_momentum(b)) {
    b->momentum.xyz = middle_momentum(b->rotation_start, b->rotation, b->inertia.xyz, p->inv_dt);
    return;
  }
  const float3 turned = turn_between(b->rotation, b->rotation_free);
  b->momentum.xyz += p->inv_dt * times_inertia(b->rotation_free, b->inertia.xyz, turned);
}

/* Back to the start of the step. How far that is, is not worked out: way_m is infinite. Work-item: body. */
__kernel void rigid_roll_back(uint count, __global RigidBlockState* blocks, __global float* way_m) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  blocks[i].center = (float4)(blocks[i].center_start.xyz, blocks[i].center.w);
  blocks[i].rotation = blocks[i].rotation_start;
  way_m[i + 1] = INFINITY;
}
