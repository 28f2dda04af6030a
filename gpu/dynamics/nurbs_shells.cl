/* Control points of NURBS shells as blocks of three unknowns in the sweeps of tissue.cl: see nurbs_shells.h. The vertices of their surfaces
   are fixed ones to the other kernels; here they follow, each as a mean of control points.
   begins, controls, weights: the control points of each vertex. support_begins, support, support_weights: the vertices of each control
   point, likewise, by their places in `slots`, which has their places among all vertices. No two control points of a colour share a
   vertex or a Gauss point. */

#include "gpu/dynamics/block.clh"
#include "gpu/dynamics/displacement_bounds.clh"
#include "gpu/dynamics/driven_pose.clh"
#include "gpu/shared/dynamics_types.h"
#include "gpu/shared/nurbs_shell_state.h"

/* Build options: PALPATE_LANES 1, 4, 8 or 16; PALPATE_TEAM work-items of a control point; PALPATE_TEAMS of them at a time in a sweep;
   PALPATE_NURBS_VISCOUS 1: with damping. Defaults are for tools that look at this file alone. */
#ifndef PALPATE_LANES
#define PALPATE_LANES 1
#define PALPATE_TEAM 1
#define PALPATE_TEAMS 1
#define PALPATE_NURBS_VISCOUS 1
#endif
#include "gpu/dynamics/lanes.clh"

#include "gpu/dynamics/elasticity.clh"
#include "gpu/dynamics/shell_elasticity.clh"

#include "gpu/dynamics/nurbs_shell_terms.clh"

/* Start of a step, as `predict` in tissue.cl: inertial targets and a first guess. Work-item: control point. */
__kernel void nurbs_predict(uint count, const __global StepParams* p, __global ControlPointState* states, __global float4* control) {
  const uint j = (uint)get_global_id(0);
  if (j >= count) return;
  ControlPointState s = states[j];
  const float3 at = control[j].xyz;
  s.start.xyz = s.detected.xyz = at;
  s.target = (float4)(at, 0.0f);
  if (s.start.w > 0.0f) {
    const float3 g = (float3)(p->gravity_x, p->gravity_y, p->gravity_z);
    const float3 velocity = s.velocity.xyz;
    const float3 pushed = (velocity - s.before.xyz) * p->inv_dt + s.velocity.w * velocity;
    const float gg = dot(g, g);
    const float share = gg > 0.0f ? clamp(dot(pushed, g) / gg, 0.0f, 1.0f) : 0.0f;
    const float damping = p->dt_s * s.velocity.w;
    const float weight = 1.0f / (1.0f + damping);
    const float dt2 = p->dt_s * p->dt_s;
    s.target = (float4)(at + weight * (p->dt_s * velocity + dt2 * g), damping);
    control[j] = (float4)(at + weight * (p->dt_s * velocity + share * dt2 * g), control[j].w);
  }
  states[j] = s;
}

/* Control points that are driven: target and first guess are where their regions are at the end of the step. driven: (place of the control
   point, region). rest: of each of these, xyz [m]. Work-item: driven control point. */
__kernel void nurbs_drive(uint count, const __global uint2* driven, const __global DrivenPose* poses, const __global float4* rest,
                          __global ControlPointState* states, __global float4* control) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const uint j = driven[i].x;
  const float3 target = driven_place(poses[driven[i].y], rest[i].xyz);
  states[j].target.xyz = target;
  control[j].xyz = target;
}

/* Velocities of vertices from those of control points. Work-item: vertex. */
__kernel void nurbs_vertex_velocities(uint count, const __global uint* slots, const __global uint* begins, const __global uint* controls,
                                      const __global float* weights, const __global ControlPointState* states, __global float4* velocity) {
  const uint e = (uint)get_global_id(0);
  if (e >= count) return;
  float3 sum = (float3)(0.0f);
  for (uint k = begins[e]; k < begins[e + 1]; ++k) sum += weights[k] * states[controls[k]].velocity.xyz;
  velocity[slots[e]] = (float4)(sum, 0.0f);
}

/* What the air gives vertices moves the targets of control points, as air_push_vertices does: M is the mass of a control point, and forces
   and slopes act on it by the weights of its vertices. Work-item: control point. */
__kernel void nurbs_push_by_air(uint count, const __global StepParams* p, const __global uint* support_begins, const __global uint* support,
                                const __global float* support_weights, const __global float4* forces, const __global float4* blocks,
                                __global ControlPointState* states) {
  const uint j = (uint)get_global_id(0);
  if (j >= count || states[j].start.w == 0.0f) return;
  Block b;
  b.force = (float3)(0.0f);
  b.xx = b.yy = b.zz = states[j].start.w * (1.0f + states[j].target.w);
  b.xy = b.xz = b.yz = 0.0f;
  float felt = 0.0f;
  for (uint k = support_begins[j]; k < support_begins[j + 1]; ++k) {
    const uint e = support[k];
    const float weight = support_weights[k];
    const float4 h0 = blocks[2 * e], h1 = blocks[2 * e + 1];
    felt += forces[e].w;
    b.force += weight * forces[e].xyz;
    b.xx += weight * h0.x;
    b.xy += weight * h0.y;
    b.xz += weight * h0.z;
    b.yy += weight * h0.w;
    b.yz += weight * h1.x;
    b.zz += weight * h1.y;
  }
  if (felt > 0.0f) states[j].target.xyz += p->dt_s * solve_block(&b);
}

/* Vertices go where the control points have them. Work-item: vertex. */
__kernel void nurbs_place(uint count, const __global uint* slots, const __global uint* begins, const __global uint* controls,
                          const __global float* weights, const __global float4* control, __global float4* x) {
  const uint e = (uint)get_global_id(0);
  if (e >= count) return;
  /* About the first of them: a mean of places far from the origin would lose digits. */
  const float3 first = control[controls[begins[e]]].xyz;
  float3 way = (float3)(0.0f);
  for (uint k = begins[e]; k < begins[e + 1]; ++k) way += weights[k] * (control[controls[k]].xyz - first);
  x[slots[e]] = (float4)(first + way, x[slots[e]].w);
}

/* kept[e] = where the vertex is. Work-item: vertex. */
__kernel void nurbs_keep(uint count, const __global uint* slots, const __global float4* x, __global float4* kept) {
  const uint e = (uint)get_global_id(0);
  if (e < count) kept[e] = x[slots[e]];
}

/* Where control points are becomes that of the detection. Work-item: control point. */
__kernel void nurbs_detected(uint count, const __global float4* control, __global ControlPointState* states) {
  const uint j = (uint)get_global_id(0);
  if (j < count) states[j].detected.xyz = control[j].xyz;
}

/* Where control points are becomes the goal that a filter may take back. Work-item: control point. */
__kernel void nurbs_goal(uint count, const __global float4* control, __global ControlPointState* states) {
  const uint j = (uint)get_global_id(0);
  if (j < count) states[j].goal = (float4)(control[j].xyz, 1.0f);
}

/* Takes each control point back on its way from the detection, or the start of the step, to the goal, to the least share that a filter left
   to one of its vertices. shares[v] in [0, 1]. Work-item: control point. */
__kernel void nurbs_take_back(uint count, uint from_start, const __global uint* slots, const __global uint* support_begins,
                              const __global uint* support, const __global float* shares, __global ControlPointState* states,
                              __global float4* control) {
  const uint j = (uint)get_global_id(0);
  if (j >= count) return;
  float share = 1.0f;
  for (uint k = support_begins[j]; k < support_begins[j + 1]; ++k) share = fmin(share, shares[slots[support[k]]]);
  states[j].goal.w = share;
  const float3 goal = states[j].goal.xyz;
  const float3 from = from_start ? states[j].start.xyz : states[j].detected.xyz;
  control[j].xyz = share < 1.0f ? from + share * (goal - from) : goal;
}

/* Vertices follow that: exactly back where none of their control points has a share. They get the largest share of these, and a mark where
   one is below 1. from: where they were at the detection, or the start of the step. Work-item: vertex. */
__kernel void nurbs_follow_back(uint count, uint from_start, const __global uint* slots, const __global uint* begins,
                                const __global uint* controls, const __global float* weights, const __global ControlPointState* states,
                                const __global float4* from, __global float* shares, __global float4* x, __global uchar* touched) {
  const uint e = (uint)get_global_id(0);
  if (e >= count) return;
  float largest = 0.0f, least = 1.0f;
  float3 way = (float3)(0.0f);
  for (uint k = begins[e]; k < begins[e + 1]; ++k) {
    const __global ControlPointState* s = states + controls[k];
    const float share = s->goal.w;
    largest = fmax(largest, share);
    least = fmin(least, share);
    way += (weights[k] * share) * (s->goal.xyz - (from_start ? s->start.xyz : s->detected.xyz));
  }
  if (least >= 1.0f) return; /* at its goal */
  const uint v = slots[e];
  shares[v] = largest;
  x[v] = (float4)(from[e].xyz + way, x[v].w);
  touched[v] |= PALPATE_TOUCH_TRUNCATED;
}

/* What bounds the moves of vertices. at, next: the contact that each comes to next from where it is `at`, or null; see follower_contacts.
   The rest is null where surfaces do not meet. clear_m: how far each vertex may go whichever way before one of its planes matters. */
typedef struct {
  const __global uint* slots;
  const __global uint* support;
  const __global float* support_weights;
  const __global float4* x;
  const __global float4* at;
  const __global float4* next;
  const __global float4* detected;
  const __global float* clear_m;
  const __global uint* entry_begins;
  const __global float4* planes;
} ShiftBounds;

/* What a plane leaves of a shift d of the control point of a vertex that is at `from` and has the weight `weight`; *is_over: it is held
   back. A vertex that is over the plane before is held only from going farther. */
static inline float3 behind_plane(float4 plane, float3 from, float weight, float3 d, float slack, bool* is_over) {
  const float over = dot(plane.xyz, from + weight * d) - plane.w;
  const float towards = dot(plane.xyz, d);
  if (!(over > slack) || !(towards > 0.0f)) return d;
  *is_over = true;
  return d - fmin(over / weight, towards) * plane.xyz;
}

/* A shift of a control point near the wanted d that leaves its vertices behind their planes: bounded_move for all of them at once. A vertex
   of weight w moves by w d, so its planes are planes for d. Marks the vertices that hold d back in `touched`. */
static inline float3 bounded_shift(const ShiftBounds* bounds, float3 d, uint begin, uint end, __global uchar* touched) {
  if (!bounds->planes) return d;
  bool is_over = true;
  for (uint pass = 0; pass < PLANE_PASSES && is_over; ++pass) {
    is_over = false;
    for (uint k = begin; k < end; ++k) {
      const uint v = bounds->slots[bounds->support[k]];
      const float weight = bounds->support_weights[k];
      const float3 from = bounds->x[v].xyz - bounds->detected[v].xyz;
      const float3 u = from + weight * d;
      if (dot(u, u) <= bounds->clear_m[v] * bounds->clear_m[v]) continue;
      const float slack = pass == 0 ? 0.0f : 1e-6f * (fabs(u.x) + fabs(u.y) + fabs(u.z));
      bool is_held = false;
      const uint last = bounds->entry_begins[v + 1];
      for (uint i = bounds->entry_begins[v]; i < last; ++i) d = behind_plane(bounds->planes[i], from, weight, d, slack, &is_held);
      if (is_held) touched[v] |= PALPATE_TOUCH_TRUNCATED;
      is_over |= is_held;
    }
  }
  float share = 1.0f;
  for (uint k = begin; k < end; ++k) {
    const uint v = bounds->slots[bounds->support[k]];
    const float weight = bounds->support_weights[k];
    const float3 from = bounds->x[v].xyz - bounds->detected[v].xyz;
    const float3 u = from + weight * d;
    if (dot(u, u) <= bounds->clear_m[v] * bounds->clear_m[v]) continue;
    const uint last = bounds->entry_begins[v + 1];
    const float slack = 1e-6f * (fabs(u.x) + fabs(u.y) + fabs(u.z));
    for (uint i = bounds->entry_begins[v]; i < last; ++i) {
      const float4 plane = bounds->planes[i];
      const float at = dot(plane.xyz, u);
      if (at > plane.w + slack && dot(plane.xyz, d) > 0.0f) {
        const float at0 = dot(plane.xyz, from);
        share = fmin(share, fmax((plane.w - at0) / (at - at0), 0.0f));
        touched[v] |= PALPATE_TOUCH_TRUNCATED;
      } else if (dot(plane.xyz, plane.xyz) == 0.0f && dot(u, u) > plane.w * plane.w) {
        share = 0.0f; /* too near to tell the sides apart: it waits for the next detection */
        touched[v] |= PALPATE_TOUCH_TRUNCATED;
      }
    }
  }
  return share * d;
}

/* The Newton step of a control point, given its block, with the contacts that its vertices would come to on the way: those that the step
   runs into act as springs from where they begin. */
static inline float3 step_with_next_contacts(const Block* b, const ShiftBounds* bounds, uint begin, uint end) {
  float3 d = solve_block(b);
  for (uint pass = 0; pass < 2; ++pass) {
    Block with = *b;
    bool runs_into = false;
    for (uint k = begin; k < end; ++k) {
      const uint e = bounds->support[k];
      const float4 next = bounds->next[2 * e];
      if (next.w == MAXFLOAT) continue;
      const float weight = bounds->support_weights[k];
      const float over = dot(next.xyz, bounds->x[bounds->slots[e]].xyz - bounds->at[e].xyz) - next.w;
      if (!(over + weight * dot(next.xyz, d) > 0.0f)) continue;
      const float stiffness = bounds->next[2 * e + 1].x;
      add_normal_term(&with, next.xyz, -weight * stiffness * over, weight * weight * stiffness);
      runs_into = true;
    }
    if (!runs_into) break;
    d = solve_block(&with);
  }
  return d;
}

/* What acts on the vertices of control point j, this work-item's share of them: forces as they were where `at` has the vertices, with
   blocks that bound their energy from above, and along these where the vertices are now. forces[e].w = 0: nothing acts. */
static inline void add_vertices(Block* b, uint begin, uint end, uint lane, const __global uint* slots, const __global uint* support,
                                const __global float* support_weights, const __global float4* x, const __global float4* at,
                                const __global float4* forces, const __global float4* blocks) {
  for (uint k = begin + lane; k < end; k += PALPATE_TEAM) {
    const uint e = support[k];
    const float4 force = forces[e];
    if (force.w == 0.0f) continue;
    const float weight = support_weights[k];
    const float4 h0 = blocks[2 * e], h1 = blocks[2 * e + 1]; /* xx xy xz yy, yz zz */
    const float3 d = x[slots[e]].xyz - at[e].xyz;
    const float w2 = weight * weight;
    b->force.x += weight * (force.x - (h0.x * d.x + h0.y * d.y + h0.z * d.z));
    b->force.y += weight * (force.y - (h0.y * d.x + h0.w * d.y + h1.x * d.z));
    b->force.z += weight * (force.z - (h0.z * d.x + h1.x * d.y + h1.y * d.z));
    b->xx += w2 * h0.x;
    b->xy += w2 * h0.y;
    b->xz += w2 * h0.z;
    b->yy += w2 * h0.w;
    b->yz += w2 * h1.x;
    b->zz += w2 * h1.y;
  }
}

/* Where a control point goes, and its vertices with it: what every work-item of its team does after the first one knows the shift. */
static inline void shift_vertices(float3 d, uint begin, uint end, uint lane, const __global uint* slots, const __global uint* support,
                                  const __global float* support_weights, __global float4* x) {
  for (uint k = begin + lane; k < end; k += PALPATE_TEAM) x[slots[support[k]]].xyz += support_weights[k] * d;
}

/* Force and block of the shell at a control point, this work-item's share of them. */
static inline Block elastic_block_of(uint j, uint lane NURBS_SHELL_ARGS) {
  RVec force;
  force.x = force.y = force.z = SPLAT(0.0f);
  RSym h;
  h.xx = h.xy = h.xz = h.yy = h.yz = h.zz = SPLAT(0.0f);
  add_nurbs_elasticity(j, lane NURBS_SHELL_VALUES, &force, &h);
  Block b;
  b.force = (float3)(lane_sum(force.x), lane_sum(force.y), lane_sum(force.z));
  b.xx = lane_sum(h.xx);
  b.xy = lane_sum(h.xy);
  b.xz = lane_sum(h.xz);
  b.yy = lane_sum(h.yy);
  b.yz = lane_sum(h.yz);
  b.zz = lane_sum(h.zz);
  return b;
}

static inline void add_inertia(Block* b, const __global StepParams* p, const __global ControlPointState* s, float3 at) {
  const float inertia = s->start.w * p->inv_dt * p->inv_dt * (1.0f + s->target.w);
  b->force -= inertia * (at - s->target.xyz);
  b->xx += inertia;
  b->yy += inertia;
  b->zz += inertia;
}

/* The control points of a shell in the order of a sweep: those of colour c are order[colors[c]] .. order[colors[c + 1]]. The TEAMS teams of
   a group take them one after the other; a team's first work-item finds the shift, all of it carry it out. */
#define GROUP_SIZE (PALPATE_TEAM * PALPATE_TEAMS)

/* A sweep: control points take a Newton step each, as far as the planes allow. Those that are held do not, and those that are driven go on
   to their targets. at, forces, blocks: of the contacts, see add_vertices. shell_colors: [shell][colour + 1] places in `order`.
   Group: shell. */
__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) void nurbs_sweep(
    uint color_count, const __global uint* shell_colors, const __global uint* order, const __global StepParams* p,
    const __global uint* support_begins, const __global uint* support, const __global float* support_weights, const __global uint* slots,
    const __global float4* at, const __global float4* next, const __global float4* forces, const __global float4* blocks,
    const __global float4* detected, const __global float* clear_m, const __global uint* entry_begins, const __global float4* planes,
    const __global ControlPointState* states, __global float4* control, __global float4* x, __global uchar* touched NURBS_SHELL_ARGS) {
  __local float4 shifts[PALPATE_TEAMS];
#if PALPATE_TEAM > 1
  __local float sums[9 * GROUP_SIZE];
#endif
  const uint lane = (uint)get_local_id(0) % PALPATE_TEAM;
  const uint team = (uint)get_local_id(0) / PALPATE_TEAM;
  const __global uint* colors = shell_colors + (size_t)get_group_id(0) * (color_count + 1);
  const ShiftBounds bounds = {slots, support, support_weights, x, at, next, detected, clear_m, entry_begins, planes};
  for (uint c = 0; c < color_count; ++c) {
    for (uint first = colors[c]; first < colors[c + 1]; first += PALPATE_TEAMS) {
      const uint j = order[min(first + team, colors[c + 1] - 1)];
      const bool is_free = states[j].start.w > 0.0f;
      const bool moves = first + team < colors[c + 1] && (is_free || any(states[j].target.xyz != states[j].start.xyz));
      const uint begin = support_begins[j], end = support_begins[j + 1];
      Block b;
      if (moves && is_free) {
        b = elastic_block_of(j, lane NURBS_SHELL_VALUES);
        add_vertices(&b, begin, end, lane, slots, support, support_weights, x, at, forces, blocks);
      }
#if PALPATE_TEAM > 1
      b = sum_of_team(sums + get_local_id(0), GROUP_SIZE, lane, PALPATE_TEAM, b);
#endif
      if (moves && lane == 0) {
        if (is_free) add_inertia(&b, p, states + j, control[j].xyz);
        const float3 wanted = is_free ? step_with_next_contacts(&b, &bounds, begin, end) : states[j].target.xyz - control[j].xyz;
        const float3 d = bounded_shift(&bounds, wanted, begin, end, touched);
        control[j].xyz += d;
        shifts[team] = (float4)(d, 0.0f);
      }
      barrier(CLK_LOCAL_MEM_FENCE);
      if (moves) {
        const float3 d = shifts[team].xyz;
        shift_vertices(d, begin, end, lane, slots, support, support_weights, x);
        move_nurbs_vectors(j, lane, d, nurbs_range, nurbs_block, nurbs_basis, nurbs_vectors);
      }
    }
    barrier(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE);
  }
}

/* A sweep towards goals: each control point goes on to its own as far as the planes allow. Group: shell. */
__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) void nurbs_move_towards(
    uint color_count, const __global uint* shell_colors, const __global uint* order, const __global uint* support_begins,
    const __global uint* support, const __global float* support_weights, const __global uint* slots, const __global float4* detected,
    const __global float* clear_m, const __global uint* entry_begins, const __global float4* planes,
    const __global ControlPointState* states, __global float4* control, __global float4* x, __global uchar* touched) {
  __local float4 shifts[PALPATE_TEAMS];
  const uint lane = (uint)get_local_id(0) % PALPATE_TEAM;
  const uint team = (uint)get_local_id(0) / PALPATE_TEAM;
  const __global uint* colors = shell_colors + (size_t)get_group_id(0) * (color_count + 1);
  const ShiftBounds bounds = {slots, support, support_weights, x, 0, 0, detected, clear_m, entry_begins, planes};
  for (uint c = 0; c < color_count; ++c) {
    for (uint first = colors[c]; first < colors[c + 1]; first += PALPATE_TEAMS) {
      const uint j = order[min(first + team, colors[c + 1] - 1)];
      const bool moves = first + team < colors[c + 1] && (states[j].start.w > 0.0f || any(states[j].goal.xyz != states[j].detected.xyz));
      const uint begin = support_begins[j], end = support_begins[j + 1];
      if (moves && lane == 0) {
        const float3 d = bounded_shift(&bounds, states[j].goal.xyz - control[j].xyz, begin, end, touched);
        control[j].xyz += d;
        shifts[team] = (float4)(d, 0.0f);
      }
      barrier(CLK_LOCAL_MEM_FENCE);
      if (moves) shift_vertices(shifts[team].xyz, begin, end, lane, slots, support, support_weights, x);
    }
    barrier(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE);
  }
}

/* Control points are where they were detected. Work-item: control point. */
__kernel void nurbs_to_detection(uint count, const __global ControlPointState* states, __global float4* control) {
  const uint j = (uint)get_global_id(0);
  if (j < count) control[j].xyz = states[j].detected.xyz;
}

/* Vertices are where they were kept. Work-item: vertex. */
__kernel void nurbs_put(uint count, const __global uint* slots, const __global float4* kept, __global float4* x) {
  const uint e = (uint)get_global_id(0);
  if (e < count) x[slots[e]].xyz = kept[e].xyz;
}

/* End of a step: velocities. Work-item: control point. */
__kernel void nurbs_finish(uint count, const __global StepParams* p, const __global float4* control, __global ControlPointState* states) {
  const uint j = (uint)get_global_id(0);
  if (j >= count) return;
  __global ControlPointState* s = states + j;
  s->before = s->velocity;
  s->velocity.xyz = p->inv_dt * (control[j].xyz - s->start.xyz);
}

/* Back to the start of the step. Work-item: control point. */
__kernel void nurbs_roll_back(uint count, const __global ControlPointState* states, __global float4* control) {
  const uint j = (uint)get_global_id(0);
  if (j < count) control[j].xyz = states[j].start.xyz;
}

/* The force that is left at each control point; 0 where it is held. at, forces, blocks: of the contacts, just made. Group: control point.
 */
__kernel __attribute__((reqd_work_group_size(PALPATE_TEAM, 1, 1))) void nurbs_forces(
    const __global StepParams* p, const __global uint* support_begins, const __global uint* support, const __global float* support_weights,
    const __global uint* slots, const __global float4* at, const __global float4* forces, const __global float4* blocks,
    const __global ControlPointState* states, const __global float4* control, const __global float4* x,
    __global float4* left_n NURBS_SHELL_ARGS) {
  const uint j = (uint)get_group_id(0);
  const uint lane = (uint)get_local_id(0);
  Block b = elastic_block_of(j, lane NURBS_SHELL_VALUES);
  add_vertices(&b, support_begins[j], support_begins[j + 1], lane, slots, support, support_weights, x, at, forces, blocks);
#if PALPATE_TEAM > 1
  __local float sums[9 * PALPATE_TEAM];
  b = sum_of_team(sums + lane, PALPATE_TEAM, lane, PALPATE_TEAM, b);
#endif
  if (lane != 0) return;
  add_inertia(&b, p, states + j, control[j].xyz);
  left_n[j] = states[j].start.w == 0.0f ? (float4)(0.0f) : (float4)(b.force, 0.0f);
}

/* What acts on control points that are bound to tissue, but for inertia: bound[i] is the place of one. forces_n: w = stiffness of contacts,
   a bound whichever way all control points move. Group: bound control point. */
__kernel __attribute__((reqd_work_group_size(PALPATE_TEAM, 1, 1))) void nurbs_bound_forces(
    const __global uint* bound, const __global uint* support_begins, const __global uint* support, const __global float* support_weights,
    const __global uint* slots, const __global float4* at, const __global float4* forces, const __global float4* blocks,
    const __global float4* x, __global float4* forces_n NURBS_SHELL_ARGS) {
  const uint j = bound[get_group_id(0)];
  const uint lane = (uint)get_local_id(0);
  const uint begin = support_begins[j], end = support_begins[j + 1];
  Block b = elastic_block_of(j, lane NURBS_SHELL_VALUES);
  add_vertices(&b, begin, end, lane, slots, support, support_weights, x, at, forces, blocks);
#if PALPATE_TEAM > 1
  __local float sums[9 * PALPATE_TEAM];
  b = sum_of_team(sums + lane, PALPATE_TEAM, lane, PALPATE_TEAM, b);
#endif
  if (lane != 0) return;
  float stiffness = 0.0f;
  for (uint k = begin; k < end; ++k) {
    const uint e = support[k];
    if (forces[e].w != 0.0f) stiffness += support_weights[k] * (blocks[2 * e].x + blocks[2 * e].w + blocks[2 * e + 1].y);
  }
  forces_n[get_group_id(0)] = (float4)(b.force, stiffness);
}

#define NO_PART 0xffffffffu

/* What a control point shall go of its moves: the share of its shell, or all of them if `share` is null. */
static inline float3 share_of_move(uint j, const __global uint* slot_part, const __global float* share, const __global float4* moves) {
  if (slot_part[j] == NO_PART) return (float3)(0.0f);
  const float part = share ? share[slot_part[j]] : 1.0f;
  return part != 0.0f ? part * moves[j].xyz : (float3)(0.0f); /* 0: moves may not be finite */
}

/* Control points at a share of their moves from where they were, also as goals. Work-item: control point. */
__kernel void nurbs_go_along(uint count, const __global float4* saved, const __global uint* slot_part, const __global float* share,
                             const __global float4* moves, __global ControlPointState* states, __global float4* control) {
  const uint j = (uint)get_global_id(0);
  if (j >= count) return;
  const float3 to = saved[j].xyz + share_of_move(j, slot_part, share, moves);
  control[j].xyz = to;
  states[j].goal = (float4)(to, 1.0f);
}

/* Vertices follow that, from where they were kept. Work-item: vertex. */
__kernel void nurbs_follow_along(uint count, const __global uint* slots, const __global uint* begins, const __global uint* controls,
                                 const __global float* weights, const __global float4* kept, const __global uint* slot_part,
                                 const __global float* share, const __global float4* moves, __global float4* x) {
  const uint e = (uint)get_global_id(0);
  if (e >= count) return;
  float3 way = (float3)(0.0f);
  for (uint k = begins[e]; k < begins[e + 1]; ++k) way += weights[k] * share_of_move(controls[k], slot_part, share, moves);
  x[slots[e]].xyz = kept[e].xyz + way;
}
