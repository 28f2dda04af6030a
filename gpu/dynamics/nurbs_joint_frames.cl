/* Control points of NURBS shells as ends of joints: see nurbs_joint_frames.h. In double, as the joints are. */
#pragma OPENCL EXTENSION cl_khr_fp64 : enable

#include "gpu/dynamics/joint_fit.clh"
#include "gpu/dynamics/joint_rows.clh"
#include "gpu/shared/dynamics_types.h"
#include "gpu/shared/joint_types.h"
#include "gpu/shared/nurbs_shell_state.h"
#include "gpu/shared/rigid_types.h"

static inline double3 position_of(const __global float4* control, const __global ControlPointState* start, uint j) {
  return convert_double3(start ? start[j].start.xyz : control[j].xyz);
}

/* The frame of each set, in the place of a rigid body, searched from its last rotation. start, or null: at the start of the step, with its
   motion; else where `control` is. systems, or null: nothing in them, what resists the set is among the couplings. Work-item: set. */
__kernel void nurbs_joint_fit(uint count, const __global NurbsJointSet* sets, const __global NurbsJointPart* parts,
                              const __global float4* control, const __global ControlPointState* start, __global RigidBlockState* blocks,
                              __global JointBodySystem* systems, __global double* fits) {
  const uint s = (uint)get_global_id(0);
  if (s >= count) return;
  const NurbsJointSet set = sets[s];
  __global RigidBlockState* b = blocks + set.body;
  __global double* fit = fits + (size_t)s * FIT_REALS;
  double4 q = convert_double4(b->rotation);
  if (!(fabs(dot(q, q) - 1.0) < 0.01)) q = (double4)(0.0, 0.0, 0.0, 1.0); /* lost in a step that was rolled back */
  q /= sqrt(dot(q, q));
  double3 origin = (double3)(0.0), mean = (double3)(0.0);
  for (uint k = set.begin; k < set.end; ++k) {
    const double3 at = position_of(control, start, parts[k].control);
    origin += (double)parts[k].place * at;
    mean += (double)parts[k].arm.w * at;
  }
  Covariance a = {(double3)(0.0), (double3)(0.0), (double3)(0.0)};
  for (uint k = set.begin; k < set.end; ++k) {
    const double3 at = (double)parts[k].arm.w * (position_of(control, start, parts[k].control) - mean);
    const double3 arm = convert_double3(parts[k].arm.xyz);
    a.x += at.x * arm;
    a.y += at.y * arm;
    a.z += at.z * arm;
  }
  q = best_rotation(a, q);
  double3 moment;
  const Symmetric turn = inverse_of(fit_matrix(a, q, &moment));
  store_turn(turn, fit);
  if (start) {
    double3 velocity = (double3)(0.0), spin = (double3)(0.0);
    for (uint k = set.begin; k < set.end; ++k) {
      const double3 v = convert_double3(start[parts[k].control].velocity.xyz);
      velocity += (double)parts[k].place * v;
      spin += (double)parts[k].arm.w * cross(turn_vector(q, convert_double3(parts[k].arm.xyz)), v);
    }
    b->velocity = (float4)(convert_float3(velocity), 0.0f);
    b->momentum = (float4)(convert_float3(times(turn, spin)), 0.0f); /* of unit moments of inertia */
  }
  b->center.xyz = convert_float3(origin);
  b->rotation = convert_float4(q);
  store_fit(origin, mean, q, fit);
  if (!systems) return;
  for (uint k = 0; k < 21; ++k) systems[set.member].h[k] = 0.0f;
  for (uint k = 0; k < 6; ++k) systems[set.member].f[k] = 0.0f;
}

static inline double4 rotation_of(const __global double* fit) {
  return (double4)(fit[FIT_ROTATION], fit[FIT_ROTATION + 1], fit[FIT_ROTATION + 2], fit[FIT_ROTATION + 3]);
}

/* What must act on a set so that all sets of its shell go their share of the newest moves: H d. couplings: (other set, twice the pair, and 1
   if the set is its second). wrenches: [set][2]. Work-item: set. */
__kernel void nurbs_joint_wrench(uint count, const __global NurbsJointSet* sets, const __global UInt2* couplings,
                                 const __global double* stiffness, const __global JointBodySystem* systems, __global float4* wrenches) {
  const uint s = (uint)get_global_id(0);
  if (s >= count) return;
  double sum[6] = {0.0, 0.0, 0.0, 0.0, 0.0, 0.0};
  for (uint k = sets[s].stiffness_begin; k < sets[s].stiffness_end; ++k) {
    const UInt2 coupling = couplings[k];
    const __global double* h = stiffness + 36 * (size_t)(coupling.y >> 1);
    const __global JointBodySystem* system = systems + sets[coupling.x].member;
    for (uint c = 0; c < 6; ++c) {
      const double d = (double)system->share * (double)system->f[c];
      for (uint r = 0; r < 6; ++r) sum[r] += ((coupling.y & 1u) ? h[6 * c + r] : h[6 * r + c]) * d;
    }
  }
  wrenches[2 * s] = (float4)((float)sum[0], (float)sum[1], (float)sum[2], 0.0f);
  wrenches[2 * s + 1] = (float4)((float)sum[3], (float)sum[4], (float)sum[5], 0.0f);
}

/* What control points do where that acts on the sets of their shells. solved: slot, range in frame_order, first response. Work-item: one of
   these. */
__kernel void nurbs_joint_moves(uint count, const __global uint4* solved, const __global uint* frame_order, const __global float* responses,
                                const __global float4* wrenches, __global float4* moves) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const uint4 of = solved[i];
  const __global float* at = responses + of.w;
  float3 sum = (float3)(0.0f);
  for (uint k = of.y; k < of.z; ++k, at += 18) {
    const float3 f = wrenches[2 * frame_order[k]].xyz;
    const float3 m = wrenches[2 * frame_order[k] + 1].xyz;
    sum.x += at[0] * f.x + at[1] * f.y + at[2] * f.z + at[3] * m.x + at[4] * m.y + at[5] * m.z;
    sum.y += at[6] * f.x + at[7] * f.y + at[8] * f.z + at[9] * m.x + at[10] * m.y + at[11] * m.z;
    sum.z += at[12] * f.x + at[13] * f.y + at[14] * f.z + at[15] * m.x + at[16] * m.y + at[17] * m.z;
  }
  moves[of.x] = (float4)(sum, 0.0f);
}

/* The share of the way from `kept` to `x` that planes leave to the vertices that a control point moves. */
static inline float share_of_control(uint j, const __global uint* support_begins, const __global uint* support, const __global uint* slots,
                                     const __global float4* kept, const __global float4* x, const __global float4* detected,
                                     const __global uint* begins, const __global float4* planes) {
  float allowed = 1.0f;
  for (uint k = support_begins[j]; k < support_begins[j + 1]; ++k) {
    const uint e = support[k];
    const uint v = slots[e];
    const float3 u0 = kept[e].xyz - detected[v].xyz;
    const float3 u = x[v].xyz - detected[v].xyz;
    for (uint i = begins[v]; i < begins[v + 1]; ++i) {
      const float4 plane = planes[i];
      const float at = dot(plane.xyz, u);
      const float at0 = dot(plane.xyz, u0);
      if (at > plane.w && at > at0) allowed = fmin(allowed, fmax((plane.w - at0) / (at - at0), 0.0f));
    }
  }
  return allowed;
}

/* The share of its way that planes leave to a set, the shell having gone it: the mean of those of its control points, as they count at its
   origin. kept: [vertex] where they were. Work-item: set. */
__kernel void nurbs_joint_share(uint count, const __global NurbsJointSet* sets, const __global NurbsJointPart* parts,
                                const __global uint* support_begins, const __global uint* support, const __global uint* slots,
                                const __global float4* kept, const __global float4* x, const __global float4* detected,
                                const __global uint* begins, const __global float4* planes, __global JointBodySystem* systems) {
  const uint s = (uint)get_global_id(0);
  if (s >= count) return;
  float sum = 0.0f;
  for (uint k = sets[s].begin; k < sets[s].end; ++k) {
    sum += parts[k].place *
           share_of_control(parts[k].control, support_begins, support, slots, kept, x, detected, begins, planes);
  }
  systems[sets[s].member].share *= fmin(sum, 1.0f);
}

/* Inertial targets without joints. Work-item: control point of a set. */
__kernel void nurbs_joint_note(uint count, const __global uint* held, const __global ControlPointState* states, __global float4* y_free) {
  const uint k = (uint)get_global_id(0);
  if (k < count) y_free[k] = states[held[k]].target;
}

/* What efforts do to each set: force, and the turn K^-1 T that its control points feel. loads: [set][6]. Work-item: set. */
__kernel void nurbs_joint_load(uint count, constant JointScheme* scheme, const __global NurbsJointSet* sets, const __global uint* ends,
                               const __global JointPlace* places, const __global JointBodySystem* systems, const __global double* reals,
                               const __global uint* states, const __global double* fits, __global double* loads) {
  const uint s = (uint)get_global_id(0);
  if (s >= count) return;
  const Weights weights = weights_of(scheme);
  double3 force = (double3)(0.0), moment = (double3)(0.0);
  add_efforts(&weights, sets[s].joint_begin, sets[s].joint_end, ends, places, systems, reals, states, &force, &moment);
  const __global double* fit = fits + (size_t)s * FIT_REALS;
  const Symmetric to_turn = turn_of(fit);
  store3(force, loads + 6 * (size_t)s);
  store3(times(to_turn, moment), loads + 6 * (size_t)s + 3);
}

/* Inertial targets with that. held_parts: of each control point, those of sets. Work-item: control point of a set. */
__kernel void nurbs_joint_push(uint count, const __global StepParams* p, const __global uint* held, const __global uint* held_begins,
                               const __global uint* held_parts, const __global NurbsJointPart* parts, const __global double* fits,
                               const __global double* loads, const __global float4* y_free, __global ControlPointState* states) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  double3 force = (double3)(0.0);
  for (uint k = held_begins[i]; k < held_begins[i + 1]; ++k) {
    const NurbsJointPart part = parts[held_parts[k]];
    const double3 arm = turn_vector(rotation_of(fits + (size_t)part.set * FIT_REALS), convert_double3(part.arm.xyz));
    const __global double* load = loads + 6 * (size_t)part.set;
    force += (double)part.place * load3(load) + (double)part.arm.w * cross(load3(load + 3), arm);
  }
  __global ControlPointState* state = states + held[i];
  const double factor = (double)p->dt_s * (double)p->dt_s / ((double)state->start.w * (1.0 + (double)y_free[i].w));
  state->target = (float4)(y_free[i].xyz + convert_float3(factor * force), y_free[i].w);
}
