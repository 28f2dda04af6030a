/* Control points of NURBS shells that are bound to tissue: see nurbs_bindings.h. bindings: of each its tet and weights. */

#include "gpu/shared/dynamics_types.h"
#include "gpu/shared/nurbs_shell_state.h"

/* Where the tissue has a bound control point. About its first corner: a mean of places far from the origin would lose digits. */
static inline float3 bound_place(const __global NurbsBinding* b, const __global float4* x) {
  const float3 first = x[b->vertices.x].xyz;
  const float4 w = b->weights;
  return first + (w.y * (x[b->vertices.y].xyz - first) + w.z * (x[b->vertices.z].xyz - first) + w.w * (x[b->vertices.w].xyz - first));
}

/* Start of a step: where inertia and gravity draw bound control points, w = inertia [kg/s^2]; they are where the first guess of the tissue
   has them. Work-item: binding. */
__kernel void nurbs_binding_begin(uint count, const __global StepParams* p, const __global NurbsBinding* bindings, const __global float4* x,
                                  __global ControlPointState* states, __global float4* control, __global float4* inertial) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const __global NurbsBinding* b = bindings + i;
  const uint j = b->control;
  const float3 g = (float3)(p->gravity_x, p->gravity_y, p->gravity_z);
  const float4 velocity = states[j].velocity;
  const float braked = 1.0f + p->dt_s * velocity.w;
  const float3 way = (p->dt_s * velocity.xyz + p->dt_s * p->dt_s * g) / braked;
  inertial[i] = (float4)(states[j].start.xyz + way, b->mass * braked * p->inv_dt * p->inv_dt);
  const float3 to = bound_place(b, x);
  states[j].target.xyz = to;
  control[j].xyz = to;
}

/* Targets and goals follow the tissue. Work-item: binding. */
__kernel void nurbs_binding_follow(uint count, const __global NurbsBinding* bindings, const __global float4* x,
                                   __global ControlPointState* states) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const float3 to = bound_place(bindings + i, x);
  states[bindings[i].control].target.xyz = to;
  states[bindings[i].control].goal.xyz = to;
}

/* Nothing was loaded yet: no inertial target is equal to this. Work-item: vertex. */
__kernel void nurbs_binding_forget(uint count, __global float4* loaded) {
  const uint i = (uint)get_global_id(0);
  if (i < count) loaded[i] = (float4)(NAN);
}

/* Inertial targets of tissue with what bound control points do to it. forces: [binding] N, w = stiffness of contact. resist: [of these
   vertices] N/m, of the shells. entries: corners of bindings, 4 i + corner, of vertex v from begins[v] on. unloaded, loaded: the targets
   without and with that; one that is no longer as it was left was made anew by others. Work-item: vertex of tissue with bindings, none of
   them fixed. */
__kernel void nurbs_binding_load(uint count, const __global StepParams* p, const __global uint* vertices, const __global uint* begins,
                                 const __global uint* entries, const __global NurbsBinding* bindings, const __global float* resist,
                                 const __global float4* forces, const __global float4* inertial, const __global float4* control,
                                 const __global float4* x, const __global float* mass, __global float4* unloaded, __global float4* loaded,
                                 __global float4* y) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const uint v = vertices[i];
  const float4 now = y[v];
  const float4 left = loaded[i];
  const bool is_mine = now.x == left.x && now.y == left.y && now.z == left.z && now.w == left.w;
  const float4 base = is_mine ? unloaded[i] : now;
  const float unit = mass[v] * p->inv_dt * p->inv_dt;
  const float own = unit * (1.0f + base.w);
  float3 force = own * (base.xyz - x[v].xyz);
  float stiffness = own + resist[i];
  for (uint k = begins[i]; k < begins[i + 1]; ++k) {
    const uint b = entries[k] / 4u;
    const uint corner = entries[k] % 4u;
    const float4 w = bindings[b].weights;
    const float weight = corner == 0u ? w.x : corner == 1u ? w.y : corner == 2u ? w.z : w.w;
    const float4 target = inertial[b];
    force += weight * (forces[b].xyz + target.w * (target.xyz - control[bindings[b].control].xyz));
    stiffness += weight * (forces[b].w + target.w);
  }
  unloaded[i] = base;
  y[v] = loaded[i] = (float4)(x[v].xyz + force / stiffness, stiffness / unit - 1.0f);
}
