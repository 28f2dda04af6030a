/* Rigid bodies as blocks of six unknowns in the sweeps of tissue.cl: see rigid_blocks.h. Their vertices are fixed ones to the other
   kernels; here they follow the poses. */

#include "gpu/dynamics/contact.clh"
#include "gpu/dynamics/surface_contact.clh"
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
  const float angle = length(v);
  const float half_angle = 0.5f * angle;
  const float factor = angle > 1e-4f ? sin(half_angle) / angle : 0.5f - angle * angle / 48.0f;
  const float4 q = (float4)(factor * v, cos(half_angle));
  return q / length(q);
}

/* Inverse of exp_rotation, at most pi long. */
static inline float3 log_rotation(float4 q) {
  if (q.w < 0.0f) q = -q;
  const float s = length(q.xyz);
  return s > 1e-6f ? (2.0f * atan2(s, q.w) / s) * q.xyz : 2.0f * q.xyz;
}

/* The angle that leads from b to a, world axes. */
static inline float3 turn_between(float4 a, float4 b) { return log_rotation(multiply_rotations(a, (float4)(-b.xyz, b.w))); }

static inline float3 times_inertia(float4 q, float3 inertia, float3 v) { return rotate_vector(q, inertia * rotate_back(q, v)); }
static inline float3 by_inertia(float4 q, float3 inertia, float3 v) { return rotate_vector(q, rotate_back(q, v) / inertia); }

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
   than `cap` since the detection. Vertices move on arcs, so what a chord promises is tried and taken back. */
static inline float feasible_share(const __global RigidBlockState* block, Pose from, Pose to, float cap, const __global float4* local_m,
                                   const __global float4* detected, const __global float* clear_m, const __global uint* begins,
                                   const __global float4* planes) {
  float share = 1.0f;
  for (int attempt = 0; attempt < 8; ++attempt) {
    const Pose at = pose_between(from, to, share);
    float allowed = share;
    for (uint v = block->vertex_begin; v < block->vertex_end; ++v) {
      const float3 arm = local_m[v].xyz;
      const float3 to_m = at.center + rotate_vector(at.rotation, arm);
      const float gone = distance(to_m, detected[v].xyz);
      if (gone <= clear_m[v] && gone <= cap) continue;
      const float3 from_m = from.center + rotate_vector(from.rotation, arm);
      allowed = fmin(allowed, allowed_share(from_m, to_m, detected[v].xyz, share, begins[v], begins[v + 1], planes));
      if (gone > cap) {
        const float before = distance(from_m, detected[v].xyz);
        allowed = fmin(allowed, before < cap ? share * (cap - before) / (gone - before + cap * 1e-3f) : 0.0f);
      }
    }
    if (allowed == share) return share;
    share = attempt < 3 ? 0.98f * allowed : 0.5f * fmin(allowed, share);
    if (!(share > 1e-4f)) return 0.0f;
  }
  return 0.0f;
}

/* Start of a step: where each body goes by itself, and a first guess. Angular momentum is kept exactly; the turn is taken with the inertia
   at its middle. The guess counts gravity as far as the body followed it in the step before, as the guess of vertices does. Work-item:
   body. */
__kernel void rigid_predict(uint count, const __global StepParams* p, __global RigidBlockState* blocks) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  RigidBlockState b = blocks[i];
  b.center_start = b.center_detected = b.center;
  b.rotation_start = b.rotation_detected = b.rotation;
  const float3 gravity = (float3)(p->gravity_x, p->gravity_y, p->gravity_z);
  const float3 coasting = b.center.xyz + p->dt_s * b.velocity.xyz;
  b.center_free = (float4)(coasting + p->dt_s * p->dt_s * gravity, 0.0f);
  const float3 turn_half = 0.5f * p->dt_s * by_inertia(b.rotation, b.inertia.xyz, b.momentum.xyz);
  const float4 middle = multiply_rotations(exp_rotation(turn_half), b.rotation);
  const float3 turn = p->dt_s * by_inertia(middle, b.inertia.xyz, b.momentum.xyz);
  const float4 rotation = multiply_rotations(exp_rotation(turn), b.rotation);
  b.rotation_free = rotation / length(rotation);
  const float g = length(gravity);
  float3 along = (float3)(0.0f);
  if (g > 0.0f) along = clamp(dot(b.acceleration.xyz, gravity) / g, 0.0f, g) / g * gravity;
  b.center = (float4)(coasting + p->dt_s * p->dt_s * along, b.center.w);
  b.rotation = b.rotation_free;
  b.is_truncated = 0;
  blocks[i] = b;
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
   of its vertices, which all get that share. shares[v] in [0, 1]. Work-item: body. */
__kernel void rigid_take_back(uint count, uint from_start, __global float* shares, __global RigidBlockState* blocks) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  __global RigidBlockState* b = blocks + i;
  float share = 1.0f;
  for (uint v = b->vertex_begin; v < b->vertex_end; ++v) share = fmin(share, shares[v]);
  if (share >= 1.0f) return;
  for (uint v = b->vertex_begin; v < b->vertex_end; ++v) shares[v] = share;
  const Pose from = {from_start ? b->center_start.xyz : b->center_detected.xyz, from_start ? b->rotation_start : b->rotation_detected};
  const Pose to = {b->center_goal.xyz, b->rotation_goal};
  const Pose pose = pose_between(from, to, share);
  b->center.xyz = pose.center;
  b->rotation = pose.rotation;
  b->is_truncated = 1;
}

/* Takes each body back as far as the planes and its reach demand. reaches: [body of vertex_groups]. Work-item: body. */
__kernel void rigid_bound(uint count, const __global uint* vertex_groups, const __global float* reaches, const __global float4* local_m,
                          const __global float4* detected, const __global float* clear_m, const __global uint* begins,
                          const __global float4* planes, __global RigidBlockState* blocks) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  __global RigidBlockState* b = blocks + i;
  const Pose from = {b->center_detected.xyz, b->rotation_detected};
  const Pose to = {b->center.xyz, b->rotation};
  float cap = MAXFLOAT;
  for (uint v = b->vertex_begin; v < b->vertex_end && cap == MAXFLOAT; ++v) {
    if (vertex_groups[v] != PALPATE_NO_GROUP) cap = PALPATE_CAP_SHARE * reaches[vertex_groups[v] & PALPATE_GROUP_MASK];
  }
  const float share = feasible_share(b, from, to, cap, local_m, detected, clear_m, begins, planes);
  const Pose pose = pose_between(from, to, share);
  b->center.xyz = pose.center;
  b->rotation = pose.rotation;
  b->is_truncated = share < 1.0f;
}

/* Lower triangle of a symmetric 6 x 6 matrix, row by row, and minus the gradient; unknowns: move of the centre, turn. */
typedef struct {
  float h[21];
  float f[6];
} RigidSystem;

/* Normal force and friction of one contact. `arm` is the weighted sum of the arms of the body's vertices, `weight` the sum of the weights;
   slip is tangential. `bound` multiplies the block. With the block K = friction I + (slope - friction) n n^T of the point and the matrix A
   of the cross product by the arm, the body's is [w^2 K, w K A^T; w A K, A K A^T]. */
static inline void add_rigid_contact(RigidSystem* s, float3 arm, float weight, float3 n, float force, float slope, float3 slip,
                                     float friction, float bound) {
  const float3 on_body = force * n - friction * slip;
  const float3 moment = cross(arm, on_body);
  s->f[0] += weight * on_body.x;
  s->f[1] += weight * on_body.y;
  s->f[2] += weight * on_body.z;
  s->f[3] += moment.x;
  s->f[4] += moment.y;
  s->f[5] += moment.z;
  const float across = bound * friction;
  const float3 along = (bound * (slope - friction)) * n;
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

/* h d = f for symmetric positive definite h, by LDL^T in place. */
static inline void solve_rigid(RigidSystem* s, float* d) {
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
  for (int r = 0; r < 6; ++r) {
    d[r] = s->f[r];
    for (int k = 0; k < r; ++k) d[r] -= s->h[r * (r + 1) / 2 + k] * d[k];
  }
  for (int r = 0; r < 6; ++r) d[r] /= s->h[r * (r + 1) / 2 + r];
  for (int r = 5; r >= 0; --r) {
    for (int k = r + 1; k < 6; ++k) d[r] -= s->h[k * (k + 1) / 2 + r] * d[k];
  }
}

/* Surface pairs of the body: each once, at the first of the body's vertices in it. Other bodies solved at the same time count where they
   are, and the block is doubled then, which bounds the pair's energy from above. */
static inline void add_pairs(RigidSystem* s, const __global RigidBlockState* b, float3 center, const __global SurfaceParams* sp,
                             uint first_vertex, uint vertex_count, const __global float4* x, const __global float4* x_start,
                             const __global uint* begins, const __global uint* entries, const __global SurfacePair* pairs,
                             const __global uchar* is_near) {
  const uint first = b->vertex_begin;
  const uint size = b->vertex_end - first;
  const uint end = begins[b->vertex_end];
  for (uint i = begins[first]; i < end; ++i) {
    if (is_near[entries[i] >> 2] == 0) continue;
    const uint role = entries[i] & 3u;
    const __global SurfacePair* pair = pairs + (entries[i] >> 2);
    const float stiffness = pair->stiffness_n_per_m;
    if (stiffness == 0.0f) continue;
    const uint4 u = pair->vertices;
    const bool own0 = u.x - first < size, own1 = u.y - first < size, own2 = u.z - first < size, own3 = u.w - first < size;
    if (role != (own0 ? 0u : own1 ? 1u : own2 ? 2u : 3u)) continue;
    const float4 weights = pair->weights;
    PairWeights w;
    w.w0 = weights.x;
    w.w1 = weights.y;
    w.w2 = weights.z;
    w.w3 = weights.w;
    const float3 x0 = x[u.x].xyz, x1 = x[u.y].xyz, x2 = x[u.z].xyz, x3 = x[u.w].xyz;
    const float3 n = pair->normal.xyz;
    const float3 d = pair_vector(x0, x1, x2, x3, w);
    float slope;
    const float force = barrier_force(dot(n, d), pair->normal.w, stiffness, &slope);
    if (force == 0.0f) continue;
    float weight = 0.0f;
    float3 arm = (float3)(0.0f);
    if (own0) {
      weight += w.w0;
      arm += w.w0 * (x0 - center);
    }
    if (own1) {
      weight += w.w1;
      arm += w.w1 * (x1 - center);
    }
    if (own2) {
      weight += w.w2;
      arm += w.w2 * (x2 - center);
    }
    if (own3) {
      weight += w.w3;
      arm += w.w3 * (x3 - center);
    }
    const bool with_rigid = (!own0 && u.x - first_vertex < vertex_count) || (!own1 && u.y - first_vertex < vertex_count) ||
                            (!own2 && u.z - first_vertex < vertex_count) || (!own3 && u.w - first_vertex < vertex_count);
    float3 slip = d - pair_vector(x_start[u.x].xyz, x_start[u.y].xyz, x_start[u.z].xyz, x_start[u.w].xyz, w);
    slip -= dot(slip, n) * n;
    const float friction = sp->friction * force / fmax(length(slip), sp->slip_m);
    add_rigid_contact(s, arm, weight, n, force, slope, slip, friction, with_rigid ? 2.0f : 1.0f);
  }
}

/* Planes at the vertices, capsules at the triangles. */
static inline void add_obstacles(RigidSystem* s, const __global RigidBlockState* b, float3 center, const __global StepParams* p,
                                 const __global float4* x, const __global float4* x_start, const __global uint4* triangles,
                                 const __global uint* triangle_colliders, const __global ToolContact* contacts,
                                 const __global Collider* colliders, const __global PlaneObstacle* planes) {
  for (uint k = 0; k < p->plane_count; ++k) {
    const float4 plane = planes[k].normal_offset;
    for (uint v = b->vertex_begin; v < b->vertex_end; ++v) {
      const float3 at = x[v].xyz;
      float slope;
      const float force = contact_force(p, p->stiffness_n_per_m, p->margin_m - (dot(plane.xyz, at) - plane.w), &slope);
      if (force == 0.0f) continue;
      float3 slip = at - x_start[v].xyz;
      slip -= dot(slip, plane.xyz) * plane.xyz;
      add_rigid_contact(s, at - center, 1.0f, plane.xyz, force, slope, slip, friction_factor(p, force, length(slip)), 1.0f);
    }
  }
  if (p->collider_count == 0) return;
  for (uint t = b->triangle_begin; t < b->triangle_end; ++t) {
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
      add_rigid_contact(s, point - center, 1.0f, n, force, slope, slip, friction_factor(p, force, length(slip)), 1.0f);
    }
  }
}

/* One Newton step of each body on its six coordinates, cut short as a whole by the planes; the vertices follow in rigid_place. Reads other
   bodies' vertices as they are: none moves in this launch. `has_pairs` is 0 where surfaces do not meet: then the arguments of pairs and
   planes are not read. Work-item: body. */
__kernel void rigid_solve(uint count, uint first_vertex, uint vertex_count, uint has_pairs, const __global StepParams* p,
                          const __global SurfaceParams* sp, const __global float4* x, const __global float4* x_start,
                          const __global float4* local_m, const __global float4* detected, const __global float* clear_m,
                          const __global uint* begins, const __global uint* entries, const __global SurfacePair* pairs,
                          const __global uchar* is_near, const __global float4* bounds, const __global uint4* triangles,
                          const __global uint* triangle_colliders, const __global ToolContact* contacts, const __global Collider* colliders,
                          const __global PlaneObstacle* obstacles, __global RigidBlockState* blocks) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  __global RigidBlockState* b = blocks + i;
  const Pose from = {b->center.xyz, b->rotation};
  RigidSystem s;
  for (int k = 0; k < 21; ++k) s.h[k] = 0.0f;
  const float rate = p->inv_dt * p->inv_dt;
  const float inertia = b->center.w * rate;
  const float3 away = inertia * (b->center_free.xyz - from.center);
  const float4 q = b->rotation_free;
  const float3 moment = rate * times_inertia(q, b->inertia.xyz, turn_between(q, from.rotation));
  s.h[0] = s.h[2] = s.h[5] = inertia;
  const float3 column0 = rate * times_inertia(q, b->inertia.xyz, (float3)(1.0f, 0.0f, 0.0f));
  const float3 column1 = rate * times_inertia(q, b->inertia.xyz, (float3)(0.0f, 1.0f, 0.0f));
  const float3 column2 = rate * times_inertia(q, b->inertia.xyz, (float3)(0.0f, 0.0f, 1.0f));
  s.h[9] = column0.x;
  s.h[13] = column0.y;
  s.h[14] = column1.y;
  s.h[18] = column0.z;
  s.h[19] = column1.z;
  s.h[20] = column2.z;
  s.f[0] = away.x;
  s.f[1] = away.y;
  s.f[2] = away.z;
  s.f[3] = moment.x;
  s.f[4] = moment.y;
  s.f[5] = moment.z;
  if (has_pairs) add_pairs(&s, b, from.center, sp, first_vertex, vertex_count, x, x_start, begins, entries, pairs, is_near);
  add_obstacles(&s, b, from.center, p, x, x_start, triangles, triangle_colliders, contacts, colliders, obstacles);
  float d[6];
  solve_rigid(&s, d);
  float3 turn = (float3)(d[3], d[4], d[5]);
  const float angle = length(turn);
  if (angle > MAX_TURN) turn *= MAX_TURN / angle;
  Pose to;
  to.center = from.center + (float3)(d[0], d[1], d[2]);
  to.rotation = multiply_rotations(exp_rotation(turn), from.rotation);
  to.rotation /= length(to.rotation);
  float share = 1.0f;
  if (has_pairs && begins[b->vertex_begin] != begins[b->vertex_end]) {
    share = feasible_share(b, from, to, MAXFLOAT, local_m, detected, clear_m, begins, bounds);
  }
  const Pose pose = pose_between(from, to, share);
  b->center.xyz = pose.center;
  b->rotation = pose.rotation;
  b->is_truncated = share < 1.0f;
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
  const float3 turned = turn_between(b->rotation, b->rotation_free);
  b->momentum.xyz += p->inv_dt * times_inertia(b->rotation_free, b->inertia.xyz, turned);
}

/* Back to the start of the step. Work-item: body. */
__kernel void rigid_roll_back(uint count, __global RigidBlockState* blocks) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  blocks[i].center = (float4)(blocks[i].center_start.xyz, blocks[i].center.w);
  blocks[i].rotation = blocks[i].rotation_start;
}
