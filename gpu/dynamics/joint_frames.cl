/* Ends of joints that are no rigid bodies: sets of vertices, and poses that are given. See joint_frames.h. In double, as the joints are. */
#pragma OPENCL EXTENSION cl_khr_fp64 : enable

#include "gpu/dynamics/displacement_bounds.clh"
#include "gpu/dynamics/joint_fit.clh"
#include "gpu/dynamics/joint_rows.clh"
#include "gpu/shared/dynamics_types.h"
#include "gpu/shared/joint_types.h"
#include "gpu/shared/rigid_types.h"

/* Entry (r, c) of the lower triangle that a block keeps row by row; a mirror of it above. */
static inline uint entry_of(uint r, uint c) { return r >= c ? r * (r + 1) / 2 + c : c * (c + 1) / 2 + r; }

/* R M R^T of the 3 x 3 part of a block that begins at (r, c), from the frame's axes to the world's. */
static inline void store_turned(const __global float* h, double4 q, uint r, uint c, __global float* out) {
  const double4 back = (double4)(-q.xyz, q.w);
  double3 columns[3]; /* R M */
  for (uint k = 0; k < 3; ++k) {
    columns[k] =
        turn_vector(q, (double3)((double)h[entry_of(r, c + k)], (double)h[entry_of(r + 1, c + k)], (double)h[entry_of(r + 2, c + k)]));
  }
  for (uint k = 0; k < 3; ++k) {
    const double3 row = turn_vector(back, (double3)(k == 0 ? 1.0 : 0.0, k == 1 ? 1.0 : 0.0, k == 2 ? 1.0 : 0.0));
    const double3 column = row.x * columns[0] + row.y * columns[1] + row.z * columns[2];
    if (r >= c + k) out[entry_of(r, c + k)] = (float)column.x;
    if (r + 1 >= c + k) out[entry_of(r + 1, c + k)] = (float)column.y;
    if (r + 2 >= c + k) out[entry_of(r + 2, c + k)] = (float)column.z;
  }
}

/* The block of a set in the world's axes: what resists moves of all its vertices together. */
static inline void store_system(const __global JointSet* set, double4 q, __global JointBodySystem* system) {
  store_turned(set->h, q, 0, 0, system->h);
  store_turned(set->h, q, 3, 0, system->h);
  store_turned(set->h, q, 3, 3, system->h);
  for (uint r = 0; r < 6; ++r) system->f[r] = 0.0f;
}

/* The frame of each set at x, in the place of a rigid body, searched from its last rotation. velocity, or null: its motion too; then x is
   that at the start of the step. systems, or null: its block. rest: xyz [m] from the frame's origin, w = share of the mass. Work-item: set.
 */
__kernel void joint_set_fit(uint count, const __global JointSet* sets, const __global uint* vertices, const __global float4* rest,
                            const __global float4* x, const __global float4* velocity, __global RigidBlockState* blocks,
                            __global JointBodySystem* systems, __global double* fits) {
  const uint s = (uint)get_global_id(0);
  if (s >= count) return;
  const __global JointSet* set = sets + s;
  __global RigidBlockState* b = blocks + set->body;
  __global double* fit = fits + (size_t)s * FIT_REALS;
  double4 q = convert_double4(b->rotation);
  if (!(fabs(dot(q, q) - 1.0) < 0.01)) q = (double4)(0.0, 0.0, 0.0, 1.0); /* lost in a step that was rolled back */
  q /= sqrt(dot(q, q));
  const double3 rest_mean = convert_double3(set->rest_mean.xyz);
  double3 mean = (double3)(0.0);
  double3 mean_velocity = (double3)(0.0);
  for (uint k = set->begin; k < set->end; ++k) {
    mean += (double)rest[k].w * convert_double3(x[vertices[k]].xyz);
    if (velocity) mean_velocity += (double)rest[k].w * convert_double3(velocity[vertices[k]].xyz);
  }
  if (set->begin < set->end) {
    Covariance a = {(double3)(0.0), (double3)(0.0), (double3)(0.0)};
    for (uint k = set->begin; k < set->end; ++k) {
      const double3 at = (double)rest[k].w * (convert_double3(x[vertices[k]].xyz) - mean);
      const double3 from = convert_double3(rest[k].xyz) - rest_mean;
      a.x += at.x * from;
      a.y += at.y * from;
      a.z += at.z * from;
    }
    q = best_rotation(a, q);
    double3 moment;
    const Symmetric turn = inverse_of(fit_matrix(a, q, &moment));
    store_turn(turn, fit);
    if (velocity) {
      double3 spin = (double3)(0.0);
      for (uint k = set->begin; k < set->end; ++k) {
        spin += (double)rest[k].w *
                cross(turn_vector(q, convert_double3(rest[k].xyz) - rest_mean), convert_double3(velocity[vertices[k]].xyz) - mean_velocity);
      }
      spin = times(turn, spin);
      mean_velocity += cross(spin, -turn_vector(q, rest_mean));
      b->velocity = (float4)(convert_float3(mean_velocity), 0.0f);
      b->momentum = (float4)(convert_float3(spin), 0.0f); /* of unit moments of inertia */
    }
    const double3 origin = mean - turn_vector(q, rest_mean);
    b->center.xyz = convert_float3(origin);
    b->rotation = convert_float4(q);
    store_fit(origin, mean, q, fit);
  }
  if (systems) store_system(set, q, systems + set->member);
}

/* Where a share of the newest solve takes a vertex at x. */
static inline float3 moved(const __global double* fit, const __global JointBodySystem* system, float share, float3 x) {
  const double3 shift = (double)share * (double3)((double)system->f[0], (double)system->f[1], (double)system->f[2]);
  const double3 turn = (double)share * (double3)((double)system->f[3], (double)system->f[4], (double)system->f[5]);
  const double3 arm = convert_double3(x) - load3(fit + FIT_ORIGIN);
  const double4 q = turned_by(turn, (double4)(0.0, 0.0, 0.0, 1.0));
  return x + convert_float3(shift + (turn_vector(q, arm) - arm));
}

/* The share of its way that planes leave to a set: the mean of those that they leave to its vertices, by mass. A few vertices that are
   stopped do not hold up a set that can deform; where all are, efforts do not grow against what holds them. Work-item: set. */
__kernel void joint_set_share(uint count, const __global JointSet* sets, const __global uint* vertices, const __global float4* rest,
                              const __global float4* x, const __global float4* detected, const __global uint* begins,
                              const __global float4* planes, const __global double* fits, __global JointBodySystem* systems) {
  const uint s = (uint)get_global_id(0);
  if (s >= count || sets[s].begin == sets[s].end) return;
  const __global JointSet* set = sets + s;
  __global JointBodySystem* system = systems + set->member;
  float sum = 0.0f;
  for (uint k = set->begin; k < set->end; ++k) {
    const uint v = vertices[k];
    const float3 u0 = x[v].xyz - detected[v].xyz;
    const float3 u = moved(fits + (size_t)s * FIT_REALS, system, system->share, x[v].xyz) - detected[v].xyz;
    float allowed = 1.0f;
    for (uint i = begins[v]; i < begins[v + 1]; ++i) {
      const float4 plane = planes[i];
      const float at = dot(plane.xyz, u);
      const float at0 = dot(plane.xyz, u0);
      if (at > plane.w && at > at0) allowed = fmin(allowed, fmax((plane.w - at0) / (at - at0), 0.0f));
    }
    sum += rest[k].w * allowed;
  }
  system->share *= fmin(sum, 1.0f);
}

/* Vertices of sets go their share of the newest solve, each behind its planes (begins null: there are none). owners: sets. Work-item:
   vertex of a set. */
__kernel void joint_set_move(uint count, const __global JointSet* sets, const __global uint* vertices, const __global uint* owners,
                             const __global double* fits, const __global JointBodySystem* systems, const __global float4* detected,
                             const __global float* clear_m, const __global uint* begins, const __global float4* planes, __global float4* x,
                             __global uchar* touched) {
  const uint k = (uint)get_global_id(0);
  if (k >= count) return;
  const __global JointBodySystem* system = systems + sets[owners[k]].member;
  const uint v = vertices[k];
  const float4 from = x[v];
  float3 to = moved(fits + (size_t)owners[k] * FIT_REALS, system, system->share, from.xyz);
  uint truncated = 0;
  if (begins) to = bounded_move(from.xyz, to, detected[v].xyz, clear_m[v], begins[v], begins[v + 1], planes, 0u, &truncated);
  x[v] = (float4)(to, from.w);
  touched[v] |= (uchar)(PALPATE_TOUCH_PUSHED | (truncated ? PALPATE_TOUCH_TRUNCATED : 0));
}

/* Inertial targets without joints. Work-item: vertex of a set. */
__kernel void joint_set_note(uint count, const __global uint* vertices, const __global float4* y, __global float4* y_free) {
  const uint k = (uint)get_global_id(0);
  if (k < count) y_free[k] = y[vertices[k]];
}

/* Inertial targets with what the efforts of joints do to the vertices: force and moment at the mean, shared so that they work on its moves
   and turns alone. Work-item: set. */
__kernel void joint_set_push(uint count, constant JointScheme* scheme, const __global StepParams* p, const __global JointSet* sets,
                             const __global uint* vertices, const __global float4* rest, const __global uint* ends,
                             const __global JointPlace* places, const __global JointBodySystem* systems, const __global double* reals,
                             const __global uint* states, const __global double* fits, const __global float* mass,
                             const __global float4* y_free, __global float4* y) {
  const uint s = (uint)get_global_id(0);
  if (s >= count) return;
  const __global JointSet* set = sets + s;
  const Weights weights = weights_of(scheme);
  double3 force = (double3)(0.0);
  double3 moment = (double3)(0.0); /* about the frame's origin */
  add_efforts(&weights, set->joint_begin, set->joint_end, ends, places, systems, reals, states, &force, &moment);
  const __global double* fit = fits + (size_t)s * FIT_REALS;
  const double3 rest_mean = convert_double3(set->rest_mean.xyz);
  const double4 q = (double4)(fit[FIT_ROTATION], fit[FIT_ROTATION + 1], fit[FIT_ROTATION + 2], fit[FIT_ROTATION + 3]);
  moment -= cross(load3(fit + FIT_MEAN) - load3(fit + FIT_ORIGIN), force);
  const Symmetric to_turn = turn_of(fit);
  const double3 turn = times(to_turn, moment);
  const double dt2 = (double)p->dt_s * (double)p->dt_s;
  for (uint k = set->begin; k < set->end; ++k) {
    const double3 arm = turn_vector(q, convert_double3(rest[k].xyz) - rest_mean);
    const double3 on_vertex = (double)rest[k].w * (force + cross(turn, arm));
    const float4 target = y_free[k];
    const double factor = dt2 / ((double)mass[vertices[k]] * (1.0 + (double)target.w));
    y[vertices[k]] = (float4)(target.xyz + convert_float3(factor * on_vertex), target.w);
  }
}

/* Efforts before the first guess, or back to these. kept: [joint][6]. Work-item: joint. */
__kernel void joint_efforts(uint count, uint is_back, __global double* reals, __global double* kept) {
  const uint j = (uint)get_global_id(0);
  if (j >= count) return;
  __global double* real = reals + (size_t)j * JOINT_REALS;
  for (uint r = 0; r < 6; ++r) {
    if (is_back != 0u) {
      real[EFFORT + r] = real[NEXT_EFFORT + r] = kept[6 * j + r];
    } else {
      kept[6 * j + r] = real[EFFORT + r];
    }
  }
}

/* What draws a mount to its end of the step. */
typedef struct {
  float3 pull; /* at `center` */
  float stiffness;
} MountPull;

static inline MountPull mount_pull(const __global JointMount* mount, const __global StepParams* p, const __global RigidBlockState* b,
                                   float3 center) {
  const float inertia = mount->force.w * p->inv_dt * p->inv_dt;
  const float damping = mount->before.w * p->inv_dt;
  const float3 start = b->center_start.xyz;
  MountPull out;
  out.pull = inertia * (start + p->dt_s * b->velocity.xyz - center) + damping * (start + mount->center.xyz - mount->before.xyz - center) +
             mount->center.w * (mount->center.xyz - center) + mount->force.xyz;
  out.stiffness = inertia + damping + mount->center.w;
  return out;
}

/* After the free flights: mounts to the ends of the step, in the places of rigid bodies from `first` on; those on couplings as if no joint
   held them. Work-item: one. */
__kernel void joint_mounts_place(uint count, uint first, const __global StepParams* p, const __global JointMount* mounts,
                                 __global RigidBlockState* blocks) {
  const uint m = (uint)get_global_id(0);
  if (m >= count) return;
  __global RigidBlockState* b = blocks + first + m;
  b->rotation = mounts[m].rotation;
  if (mounts[m].center.w == 0.0f) {
    b->center.xyz = mounts[m].center.xyz;
  } else {
    const MountPull pull = mount_pull(mounts + m, p, b, b->center_start.xyz);
    b->center.xyz = b->center_start.xyz + pull.pull / pull.stiffness;
  }
}

/* Turns of mounts are given: what resists them [N m] at a stiffness of 1 N/m of the coupling. */
#define MOUNT_TURNING 1e6f

/* Blocks of mounts on couplings, after those of rigid bodies. Work-item: mount. */
__kernel void joint_mount_systems(uint count, uint first, const __global StepParams* p, const __global JointMount* mounts,
                                  const __global RigidBlockState* blocks, __global JointBodySystem* systems) {
  const uint m = (uint)get_global_id(0);
  if (m >= count || mounts[m].center.w == 0.0f) return;
  const __global RigidBlockState* b = blocks + first + m;
  const MountPull pull = mount_pull(mounts + m, p, b, b->center.xyz);
  __global JointBodySystem* system = systems + (b->joint_member - 1u);
  for (uint k = 0; k < 21; ++k) system->h[k] = 0.0f;
  system->h[0] = system->h[2] = system->h[5] = pull.stiffness;
  system->h[9] = system->h[14] = system->h[20] = MOUNT_TURNING * pull.stiffness;
  system->f[0] = pull.pull.x;
  system->f[1] = pull.pull.y;
  system->f[2] = pull.pull.z;
  system->f[3] = system->f[4] = system->f[5] = 0.0f;
}
