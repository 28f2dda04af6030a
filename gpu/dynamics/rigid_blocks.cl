/* Rigid bodies as blocks of six unknowns in the sweeps of tissue.cl: see rigid_blocks.h. Their vertices are fixed ones to the other
   kernels; here they follow the poses. */

#include "gpu/dynamics/rigid_solve.clh"

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

/* Vertices follow the poses. Work-item: vertex of a rigid body; others among them stay. */
__kernel void rigid_place(uint first, uint count, const __global uint* block_of, const __global RigidBlockState* blocks,
                          const __global float4* local_m, const __global uint* begins, __global float4* x, __global uchar* touched) {
  const uint i = (uint)get_global_id(0);
  if (i < count) place_rigid_vertex(i, first, block_of, blocks, local_m, begins, x, touched);
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

/* solve_rigid_body of each body. Group: body. */
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
  solve_rigid_body(i, near_bits, p, sp, x, x_start, local_m, detected, clear_m, begins, own_pairs, own, pairs, rows, is_near, bounds,
                   triangles, triangle_colliders, contacts, colliders, obstacles, anchor_begin, anchors, blocks, iterates, systems, way_m,
                   shared);
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
