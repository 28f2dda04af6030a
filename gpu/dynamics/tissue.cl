/* clang-format off */
/* Implicit elastodynamics with contact by vertex-block descent in colours.
   Source: Chen, Liu, Yang, Yuksel, "Vertex Block Descent", 2024 (arXiv 2403.06321); see docs/algorithms/tissue.md for what differs.

   Build options, same algorithm for all values:
     PALPATE_LANES  corners (tet, vertex) a work-item handles at once, as vector lanes: 1, 4, 8 or 16
     PALPATE_TEAM   work-items that share a vertex, 1 or a power of two up to the group size
     PALPATE_GROUP  work-group size of solve_color
     PALPATE_PHASES  1 if sweeps are phases of a launch, see sweep_phases.clh
     PALPATE_PHASE_GROUP  work-group size of run_phases, a multiple of PALPATE_TEAM
     PALPATE_ENERGY_MASK  bit c: tets of the scene have the energy with code c (gpu/shared/energies.h)
     PALPATE_FIBERS, PALPATE_VISCOUS  1 if any tet of the scene needs that term
     PALPATE_SURFACE  1 if surfaces of the scene may meet each other or themselves
     PALPATE_VOLUME  1 if there are bodies that keep their volume; see volume.cl
     PALPATE_SHAPE  1 if there are shape-matched bodies; their corners have zero moduli and are read as lists of neighbours only
     PALPATE_DISPLACED  1 if tets read displacements in place of positions; see "Displacements" below
     PALPATE_SMOOTHING  1 if there are node-smoothed tets, see smoothing.clh; their corners have the part of the moduli that tets keep
     PALPATE_RIGID  1 if rigid bodies move in phases of run_phases too, see rigid_solve.clh; needs surfaces, and groups of one work-item
     PALPATE_SHELL  bits of gpu/shared/shell_types.h: what the shells of the scene have, 0: there are none; see shell_terms.clh

   Layout: vertices are in solver order: colour by colour, fixed ones last. Edits leave slots without a vertex (no mass, no corners), blocks
   that are of nobody, and tets without one (four equal vertices). The corners of a vertex fill whole blocks of PALPATE_LANES, those that
   block_range gives it. Block b holds
     corner_real    [b][CORNER_REALS][lanes]  rest gradients of the other three vertices (rows of Dm^-1), V mu, V lambda, damping/dt; with
                                              PALPATE_FIBERS also their unit direction, V alpha, V beta, V (mu along - mu across)
     corner_index   [b][4][lanes]             the other three vertices in the order that keeps the orientation, tet with its energy in the
                                              upper bits
     corner_strain  [b][7][lanes]             C = F^T F at the start of the step and the viscosity/dt that acts in it (only with
                                              PALPATE_VISCOUS)
     corner_turns   [b][4][lanes]             rotation of F as the sweeps of the step follow it, as a quaternion (only with energies that
                                              read it)
   Padding lanes have zero gradients and zero moduli, so they add exact zeros.

   Displacements: positions are rounded in the world, by far more than what a stiff tet is strained. With PALPATE_DISPLACED the state is
   u = x - rest with low parts, see displacements.clh; x = rest + u is what contact and all else read. Who moves vertices and does not know
   of u leaves x != rest + u; before tets are read next, follow_positions takes u from x there. corner_strain then holds C - I, tet_line
   H = F - I, and x_before and x_before2 hold displacements. */
/* clang-format on */
#include "gpu/shared/dynamics_types.h"

#ifndef PALPATE_LANES /* defaults for tools that look at this file alone */
#define PALPATE_LANES 1
#define PALPATE_TEAM 1
#define PALPATE_GROUP 1
#define PALPATE_PHASES 1
#define PALPATE_PHASE_GROUP 1
#define PALPATE_ENERGY_MASK 0x7fffu
#define PALPATE_FIBERS 1
#define PALPATE_VISCOUS 1
#define PALPATE_SURFACE 1
#define PALPATE_SHAPE 1
#define PALPATE_VOLUME 1
#define PALPATE_DISPLACED 1
#define PALPATE_SMOOTHING 1
#define PALPATE_RIGID 1
#define PALPATE_SHELL 63u
#endif

#include "gpu/dynamics/lanes.clh"

#include "gpu/dynamics/block.clh"
#include "gpu/dynamics/contact.clh"
#include "gpu/dynamics/displacement_bounds.clh"
#include "gpu/dynamics/elasticity.clh"
#include "gpu/dynamics/norm.clh"
#include "gpu/dynamics/rotations.clh"
#include "gpu/dynamics/surface_contact.clh"
#include "gpu/dynamics/vertex_contact.clh"

#define CORNER_REALS (PALPATE_FIBERS ? 18 : 12)
#define NOT_A_VERTEX 0xffffffffu

#if PALPATE_DISPLACED
#include "gpu/dynamics/displacements.clh"
#define DISPLACED_ARGS , const __global float4 *rest, __global float4 *u
#define DISPLACED_VALUES , rest, u
#define OF_TETS(x) u /* what tets read */
#else
#define DISPLACED_ARGS
#define DISPLACED_VALUES
#define OF_TETS(x) x
#endif

#if PALPATE_DISPLACED
/* After moves that know of positions alone; of the first `count` slots, all of them if `anew`. Work-item: vertex. */
__kernel void follow_positions(uint count, uint anew, const __global float4* x DISPLACED_ARGS) {
  const uint v = (uint)get_global_id(0);
  if (v >= count) return;
  u[v] = anew != 0 ? (float4)(x[v].xyz - rest[v].xyz, 0.0f) : displacement_of(x[v], rest[v], u[v]);
}
#endif

#if !PALPATE_DISPLACED || PALPATE_SHELL
/* Positions of one vertex per lane. */
static inline RVec gather(const __global float4* x, const __global uint* index) {
  RVec r;
#if PALPATE_LANES == 1
  const float4 v = x[*index];
  r.x = v.x;
  r.y = v.y;
  r.z = v.z;
#else
  float px[PALPATE_LANES], py[PALPATE_LANES], pz[PALPATE_LANES];
#pragma unroll
  for (int l = 0; l < PALPATE_LANES; ++l) {
    const float4 v = x[index[l]];
    px[l] = v.x;
    py[l] = v.y;
    pz[l] = v.z;
  }
  r.x = LOAD_R(px);
  r.y = LOAD_R(py);
  r.z = LOAD_R(pz);
#endif
  return r;
}
#endif

/* How far vertices, one a lane, are from where one is. */
static inline RVec gather_edges(const __global StepParams* p, const __global float4* x, const __global uint* index, float4 from) {
  (void)p; /* read with PALPATE_DISPLACED */
#if PALPATE_DISPLACED
  float px[PALPATE_LANES], py[PALPATE_LANES], pz[PALPATE_LANES], pw[PALPATE_LANES];
#pragma unroll
  for (int l = 0; l < PALPATE_LANES; ++l) {
    const float4 v = x[index[l]];
    px[l] = v.x;
    py[l] = v.y;
    pz[l] = v.z;
    pw[l] = v.w;
  }
  const PALPATE_R w = LOAD_R(pw);
  RVec r;
  r.x = (LOAD_R(px) - SPLAT(from.x)) + p->low_unit_m * (LANE_LOW(w, 0) - SPLAT((float)LOW_BITS(from.w, 0)));
  r.y = (LOAD_R(py) - SPLAT(from.y)) + p->low_unit_m * (LANE_LOW(w, 1) - SPLAT((float)LOW_BITS(from.w, 1)));
  r.z = (LOAD_R(pz) - SPLAT(from.z)) + p->low_unit_m * (LANE_LOW(w, 2) - SPLAT((float)LOW_BITS(from.w, 2)));
  return r;
#else
  RVec r = gather(x, index);
  r.x -= SPLAT(from.x);
  r.y -= SPLAT(from.y);
  r.z -= SPLAT(from.z);
  return r;
#endif
}

/* F of the block's tets, or of displacements H = F - I, and the rest gradient g of the shape function of the vertex at xi. */
static inline RMat deformation(const __global StepParams* p, const __global float4* x, float4 xi, const __global float* real,
                               const __global uint* index, RVec* g) {
  const RVec a = gather_edges(p, x, index, xi);
  const RVec b = gather_edges(p, x, index + PALPATE_LANES, xi);
  const RVec c = gather_edges(p, x, index + 2 * PALPATE_LANES, xi);
  const PALPATE_R ax = LOAD_R(real), ay = LOAD_R(real + PALPATE_LANES), az = LOAD_R(real + 2 * PALPATE_LANES);
  const PALPATE_R bx = LOAD_R(real + 3 * PALPATE_LANES), by = LOAD_R(real + 4 * PALPATE_LANES), bz = LOAD_R(real + 5 * PALPATE_LANES);
  const PALPATE_R cx = LOAD_R(real + 6 * PALPATE_LANES), cy = LOAD_R(real + 7 * PALPATE_LANES), cz = LOAD_R(real + 8 * PALPATE_LANES);
  g->x = -(ax + bx + cx);
  g->y = -(ay + by + cy);
  g->z = -(az + bz + cz);
  RMat f;
  f.xx = a.x * ax + b.x * bx + c.x * cx;
  f.xy = a.x * ay + b.x * by + c.x * cy;
  f.xz = a.x * az + b.x * bz + c.x * cz;
  f.yx = a.y * ax + b.y * bx + c.y * cx;
  f.yy = a.y * ay + b.y * by + c.y * cy;
  f.yz = a.y * az + b.y * bz + c.y * cz;
  f.zx = a.z * ax + b.z * bx + c.z * cx;
  f.zy = a.z * ay + b.z * by + c.z * cy;
  f.zz = a.z * az + b.z * bz + c.z * cz;
  return f;
}

#if PALPATE_ENERGY_MASK & PALPATE_ROTATED_ENERGIES
static inline RMat gather_rotation(const __global float4* rotations, const __global uint* tet) {
#if PALPATE_LANES == 1
  const float4 q = rotations[*tet & PALPATE_TET_MASK];
  return rotation_of(q.x, q.y, q.z, q.w);
#else
  float qx[PALPATE_LANES], qy[PALPATE_LANES], qz[PALPATE_LANES], qw[PALPATE_LANES];
#pragma unroll
  for (int l = 0; l < PALPATE_LANES; ++l) {
    const float4 q = rotations[tet[l] & PALPATE_TET_MASK];
    qx[l] = q.x;
    qy[l] = q.y;
    qz[l] = q.z;
    qw[l] = q.w;
  }
  return rotation_of(LOAD_R(qx), LOAD_R(qy), LOAD_R(qz), LOAD_R(qw));
#endif
}
#endif

#if (PALPATE_ENERGY_MASK & (PALPATE_ENERGY_MASK - 1u)) != 0u /* more than one */
/* 1 in the lanes whose tet has this energy, else 0. */
static inline PALPATE_R lanes_of(const __global uint* tet, uint energy) {
#if PALPATE_LANES == 1
  return *tet >> PALPATE_ENERGY_SHIFT == energy ? 1.0f : 0.0f;
#else
  float m[PALPATE_LANES];
#pragma unroll
  for (int l = 0; l < PALPATE_LANES; ++l) m[l] = tet[l] >> PALPATE_ENERGY_SHIFT == energy ? 1.0f : 0.0f;
  return LOAD_R(m);
#endif
}

/* The same, of energies one after the other. */
static inline PALPATE_R tets_of(const float* energies, uint energy) {
  float m[PALPATE_LANES];
#pragma unroll
  for (int l = 0; l < PALPATE_LANES; ++l) m[l] = energies[l] == (float)energy ? 1.0f : 0.0f;
  return LOAD_R(m);
}
#else
#define lanes_of(tet, energy) SPLAT(1.0f)
#define tets_of(energies, energy) SPLAT(1.0f)
#endif

/* Rows of Dm^-1 and so on of a block's lanes: the three reals from `first` on. */
static inline RVec load_vec(const __global float* real, uint first) {
  RVec r;
  r.x = LOAD_R(real + first * PALPATE_LANES);
  r.y = LOAD_R(real + (first + 1) * PALPATE_LANES);
  r.z = LOAD_R(real + (first + 2) * PALPATE_LANES);
  return r;
}

#if PALPATE_VISCOUS
/* C at the start of the step, or C - I. */
static inline RSym load_strain(const __global float* known) {
  RSym c;
  c.xx = LOAD_R(known);
  c.xy = LOAD_R(known + PALPATE_LANES);
  c.xz = LOAD_R(known + 2 * PALPATE_LANES);
  c.yy = LOAD_R(known + 3 * PALPATE_LANES);
  c.yz = LOAD_R(known + 4 * PALPATE_LANES);
  c.zz = LOAD_R(known + 5 * PALPATE_LANES);
  return c;
}
#endif

#if PALPATE_VISCOUS
/* start: as load_strain has it. */
static inline __attribute__((always_inline)) void add_corner_viscous(const RCorner* k, const RSym* start, PALPATE_R rate, RVec* force,
                                                                     RSym* hessian) {
#if PALPATE_DISPLACED
  add_viscous_displaced(&k->f, &k->h, &k->g, start, rate, k->mu_v, k->lambda_v, force, hessian);
#else
  add_viscous(&k->f, &k->g, start, rate, k->mu_v, k->lambda_v, force, hessian);
#endif
}
#endif

/* Adds the elastic and viscous terms of one block of corners; x, xi: with PALPATE_DISPLACED displacements. Where energies read rotations,
   they follow F in corner_turns; with none of these, they are those of `rotations`. */
static inline void add_block(const __global StepParams* p, const __global float4* x, float4 xi, uint block,
                             const __global float* corner_real, const __global uint* corner_index, const __global float* corner_strain,
                             const __global float4* rotations, __global float* corner_turns, RVec* force, RSym* hessian) {
  const __global float* real = corner_real + (size_t)block * CORNER_REALS * PALPATE_LANES;
  const __global uint* index = corner_index + (size_t)block * 4 * PALPATE_LANES;
  const __global uint* tet = index + 3 * PALPATE_LANES;
  (void)tet; /* which of these are read depends on the build options */
  (void)corner_strain;
  (void)rotations;
  (void)corner_turns;
  RCorner corner;
  const RMat f = deformation(p, x, xi, real, index, &corner.g);
  set_deformation(&corner, &f);
  corner.row_a = load_vec(real, 0);
  corner.row_b = load_vec(real, 3);
  corner.row_c = load_vec(real, 6);
  corner.mu_v = LOAD_R(real + 9 * PALPATE_LANES);
  corner.lambda_v = fmin(LOAD_R(real + 10 * PALPATE_LANES), p->lambda_cap * corner.mu_v);
  corner.has_fibers = PALPATE_FIBERS;
#if PALPATE_FIBERS
  corner.fibers.a = load_vec(real, 12);
  corner.fibers.alpha_v = LOAD_R(real + 15 * PALPATE_LANES);
  corner.fibers.beta_v = LOAD_R(real + 16 * PALPATE_LANES);
  corner.fibers.shear_v = LOAD_R(real + 17 * PALPATE_LANES);
#endif
#if PALPATE_ENERGY_MASK & PALPATE_ROTATED_ENERGIES
  if (corner_turns) {
    follow_rotation(&corner, corner_turns + (size_t)block * 4 * PALPATE_LANES);
  } else {
    const RMat r = gather_rotation(rotations, tet);
    set_rotation(&corner, &r);
  }
#endif
#define ADD_ENERGY(name, Name, api, code, text) \
  if ((PALPATE_ENERGY_MASK >> code & 1u) != 0u) add_##name##_corner(&corner, lanes_of(tet, code), force, hessian);
  PALPATE_ELASTIC_ENERGIES(ADD_ENERGY)
#undef ADD_ENERGY
#if PALPATE_VISCOUS
  const __global float* known = corner_strain + (size_t)block * 7 * PALPATE_LANES;
  const RSym start = load_strain(known);
  add_corner_viscous(&corner, &start, LOAD_R(known + 6 * PALPATE_LANES), force, hessian);
#endif
}

/* Contact of the vertex `v`, through its surface triangles with capsules, and directly with planes. moving: so many vertices of a triangle
   move at the same time; blocks times that bound the energy of its contacts from above. Returns whether any contact pushed. */
static inline bool add_contacts(const __global StepParams* p, uint v, const __global float4* x, const __global float4* x_start,
                                const __global uint2* vertex_triangle_range, const __global uint* vertex_triangles,
                                const __global uint4* triangles, const __global uint* triangle_colliders,
                                const __global ToolContact* contacts, const __global Collider* colliders,
                                const __global PlaneObstacle* planes, float moving, Block* b) {
  const uint2 fan = vertex_triangle_range[v];
  bool pushed = false;
  uint near = 0, passed = 0; /* as in colliders_at_vertex */
  for (uint k = fan.x; k < fan.y; ++k) {
    const uint t = vertex_triangles[k];
    uint mask = triangle_colliders[t];
    if (mask == 0) continue;
    const uint4 tri = triangles[t];
    if (has_vertex_contacts(tri)) near |= mask;
    for (uint c = 0; mask != 0; ++c, mask >>= 1) {
      if (!(mask & 1u)) continue;
      const ToolContact contact = contacts[(size_t)c * p->triangle_count + t];
      if (contact.weights.w == 0.0f) continue;
      if (contact.weights.w < 0.0f) passed |= 1u << c;
      const float weight = v == tri.x ? contact.weights.x : v == tri.y ? contact.weights.y : contact.weights.z;
      if (weight == 0.0f) continue;
      const float4 tip = colliders[c].tip;
      const float4 axis = colliders[c].axis;
      const float radius = colliders[c].tip_start.w + surface_offset(tri);
      const float3 n = contact.normal.xyz;
      const float s = contact.normal.w;
      const float3 on_axis = tip.xyz + s * axis.xyz;
      const float3 point = contact.weights.x * x[tri.x].xyz + contact.weights.y * x[tri.y].xyz + contact.weights.z * x[tri.z].xyz;
      float slope;
      const float force = contact_force(p, fabs(contact.weights.w) * axis.w, p->margin_m + radius - dot(n, point - on_axis), &slope);
      if (force == 0.0f) continue;
      pushed = true;
      add_normal_term(b, n, weight * force, moving * weight * weight * slope);
      const float3 start =
          contact.weights.x * x_start[tri.x].xyz + contact.weights.y * x_start[tri.y].xyz + contact.weights.z * x_start[tri.z].xyz;
      float3 slip = (point - start) - (on_axis - colliders[c].tip_start.xyz - s * colliders[c].axis_start.xyz);
      slip -= dot(slip, n) * n;
      add_friction_term(b, n, slip, friction_factor(p, force, norm3(slip)), weight, moving);
    }
  }
  if ((near & ~passed) != 0) {
    const float offset = vertex_offset(fan, vertex_triangles, triangles);
    pushed |= add_vertex_contacts(p, near & ~passed, x[v].xyz, x_start[v].xyz, offset, colliders, b);
  }
  if (fan.x != fan.y && p->plane_count != 0) {
    const float margin = p->margin_m + surface_offset(triangles[vertex_triangles[fan.x]]);
    for (uint i = 0; i < p->plane_count; ++i) {
      const float4 plane = planes[i].normal_offset;
      float slope;
      const float force = contact_force(p, p->stiffness_n_per_m, margin - (dot(plane.xyz, x[v].xyz) - plane.w), &slope);
      if (force == 0.0f) continue;
      pushed = true;
      add_normal_term(b, plane.xyz, force, slope);
      float3 slip = x[v].xyz - x_start[v].xyz;
      slip -= dot(slip, plane.xyz) * plane.xyz;
      add_friction_term(b, plane.xyz, slip, friction_factor(p, force, norm3(slip)), 1.0f, 1.0f);
    }
  }
  return pushed;
}

/* A plane that does not push a vertex at `at`, but would where its step takes it, resists this step as it does where it begins to push. Else
   a vertex that strain presses on a floor would go as deep as it likes as soon as it is lifted off by the least. Returns whether any does. */
static inline bool meet_planes(const __global StepParams* p, uint v, float3 at, uint held, const __global uint2* vertex_triangle_range,
                               const __global uint* vertex_triangles, const __global uint4* triangles, const __global PlaneObstacle* planes,
                               Block* b) {
  const uint2 fan = vertex_triangle_range[v];
  if (p->plane_count == 0 || fan.x == fan.y) return false;
  const float margin = p->margin_m + surface_offset(triangles[vertex_triangles[fan.x]]);
  Block of_step = *b;
  if (held) hold_axes(&of_step, held);
  const float3 step = solve_block(&of_step);
  bool meets = false;
  for (uint i = 0; i < p->plane_count; ++i) {
    const float4 plane = planes[i].normal_offset;
    const float within = margin - (dot(plane.xyz, at) - plane.w);
    if (within > 0.0f || !(within > dot(plane.xyz, step))) continue;
    add_normal_term(b, plane.xyz, p->stiffness_n_per_m * within, p->stiffness_n_per_m);
    meets = true;
  }
  return meets;
}

/* Springs that hold vertex v; those of it are anchors[anchor_begin[v] .. anchor_begin[v + 1]). Returns whether any pulls. */
static inline bool add_anchors(uint v, float3 xv, const __global uint* anchor_begin, const __global Anchor* anchors,
                               const __global Collider* colliders, Block* b) {
  float sum = 0.0f;
  bool pulls = false;
  const uint end = anchor_begin[v + 1];
  for (uint i = anchor_begin[v]; i < end; ++i) {
    const float3 d = anchor_stretch(anchors + i, xv - colliders[anchors[i].holder].tip.xyz - anchors[i].target.xyz);
    const float factor = anchor_factor(anchors + i, norm3(d));
    if (anchors[i].normal.w == 0.0f) {
      b->force -= factor * d;
      sum += factor;
      pulls = true;
    } else if (dot(d, d) > 0.0f) {
      add_normal_term(b, anchors[i].normal.xyz, factor * norm3(d), factor);
      pulls = true;
    }
  }
  b->xx += sum;
  b->yy += sum;
  b->zz += sum;
  return pulls;
}

/* goals: of shape-matched bodies, see shape_goals.cl. */
#if PALPATE_SHAPE
#define SHAPE_ARGS , const __global float4* goals
#define SHAPE_VALUES , goals
#else
#define SHAPE_ARGS
#define SHAPE_VALUES
#endif

/* Of bodies that keep their volume, see volume.cl. vertex_entry: by vertex. */
#define NOT_AN_ENTRY 0xffffffffu
#if PALPATE_VOLUME
#define MOVE_ARGS , const __global uint *vertex_entry, __global float4 *volume_moves
#define MOVE_VALUES , vertex_entry, volume_moves
#define PRESSURE_ARGS , const __global uint *vertex_entry, const __global uint *entry_body, const __global float4 *volume_bodies

/* dV/dx of a vertex of a closed surface: a third of the area vectors around it. It does not depend on the vertex's own place. */
static inline float3 volume_gradient(uint v, const __global float4* x, const __global uint2* vertex_triangle_range,
                                     const __global uint* vertex_triangles, const __global uint4* triangles) {
  const uint2 fan = vertex_triangle_range[v];
  float3 sum = (float3)(0.0f);
  for (uint k = fan.x; k < fan.y; ++k) {
    const uint4 tri = triangles[vertex_triangles[k]];
    const float3 o = x[tri.x].xyz;
    sum += cross(x[tri.y].xyz - o, x[tri.z].xyz - o);
  }
  return sum / 6.0f;
}
#else
#define MOVE_ARGS
#define MOVE_VALUES
#define PRESSURE_ARGS
#endif

#if PALPATE_SURFACE
/* What the kernels of a sweep need of contact between surfaces; see surface_contact.cl. x_sweep: positions at the start of the sweep. */
#define SURFACE_ARGS                                                                                                                   \
  , const __global SurfaceParams *sp, const __global float4 *x_sweep, const __global uint *entry_begins, const __global uint *entries, \
      const __global SurfacePair *pairs, const __global uchar *is_near
#define BOUND_ARGS , const __global float4 *detected, const __global float4 *planes, const __global float *clear_m
#define SURFACE_VALUES , sp, x_sweep, entry_begins, entries, pairs, is_near
#define BOUND_VALUES , detected, planes, clear_m

/* Contact of vertex v with other vertices of surfaces. A pair may hold several vertices of one colour, [first, first + count): the others
   of them move at the same time, so they count as they were at the start of the sweep, and the block is multiplied by their number, which
   bounds the pair's energy from above. Returns whether any pair pushed. */
static inline bool add_surface_contacts(const __global SurfaceParams* sp, uint v, uint first, uint count, const __global float4* x,
                                        const __global float4* x_sweep, const __global float4* x_start, const __global uint* entry_begins,
                                        const __global uint* entries, const __global SurfacePair* pairs, const __global uchar* is_near, Block* b) {
  bool pushed = false;
  const uint end = entry_begins[v + 1];
  for (uint i = entry_begins[v]; i < end; ++i) {
    const uint entry = entries[i];
    if (is_near[entry >> 2] == 0) continue; /* most are not, and a byte a pair stays in the caches */
    const __global SurfacePair* pair = pairs + (entry >> 2);
    const float stiffness = pair->stiffness_n_per_m;
    if (stiffness == 0.0f) continue;
    const float4 weights = pair->weights;
    const uint role = entry & 3u;
    const float weight = role == 0 ? weights.x : role == 1 ? weights.y : role == 2 ? weights.z : weights.w;
    if (weight == 0.0f) continue;
    const uint4 u = pair->vertices;
    const float4 normal = pair->normal;
    const bool m0 = u.x - first < count, m1 = u.y - first < count, m2 = u.z - first < count, m3 = u.w - first < count;
    const float3 x0 = m0 && u.x != v ? x_sweep[u.x].xyz : x[u.x].xyz;
    const float3 x1 = m1 && u.y != v ? x_sweep[u.y].xyz : x[u.y].xyz;
    const float3 x2 = m2 && u.z != v ? x_sweep[u.z].xyz : x[u.z].xyz;
    const float3 x3 = m3 && u.w != v ? x_sweep[u.w].xyz : x[u.w].xyz;
    PairWeights w;
    w.w0 = weights.x;
    w.w1 = weights.y;
    w.w2 = weights.z;
    w.w3 = weights.w;
    const float3 n = normal.xyz;
    const float3 d = pair_vector(x0, x1, x2, x3, w);
    float slope;
    const float force = barrier_force(dot(n, d), normal.w, stiffness, &slope);
    if (force == 0.0f) continue;
    pushed = true;
    const float moving = fmax((m0 && w.w0 != 0.0f ? 1.0f : 0.0f) + (m1 && w.w1 != 0.0f ? 1.0f : 0.0f) + (m2 && w.w2 != 0.0f ? 1.0f : 0.0f) +
                                  (m3 && w.w3 != 0.0f ? 1.0f : 0.0f),
                              1.0f);
    add_normal_term(b, n, weight * force, moving * weight * weight * slope);
    float3 slip = d - pair_vector(x_start[u.x].xyz, x_start[u.y].xyz, x_start[u.z].xyz, x_start[u.w].xyz, w);
    slip -= dot(slip, n) * n;
    add_friction_term(b, n, slip, sp->friction * force / fmax(norm3(slip), sp->slip_m), weight, moving);
  }
  return pushed;
}
#else
#define SURFACE_ARGS
#define BOUND_ARGS
#define SURFACE_VALUES
#define BOUND_VALUES
#endif

/* Of shells, see shell_terms.clh. */
#if PALPATE_SHELL
#include "gpu/dynamics/shell_terms.clh"
#else
#define SHELL_ARGS
#define SHELL_VALUES
#endif

/* Of node-smoothed tets, see smoothing.clh. */
#if PALPATE_SMOOTHING
#include "gpu/dynamics/smoothing.clh"
#else
#define SMOOTHING_ARGS
#define SMOOTHING_VALUES
#define SMOOTHING_PHASE_ARGS
#endif

/* How far a vertex is beyond its inertial target. */
#if PALPATE_DISPLACED
#define TO_TARGET(v) ((rest[v].xyz - y[v].xyz) + u[v].xyz)
#else
#define TO_TARGET(v) (x[v].xyz - y[v].xyz)
#endif

/* Sums force and Hessian of vertex v over the blocks that this work-item of the team handles, and the pull of its goal at the first. */
static inline Block elastic_block(const __global StepParams* p, uint v, uint lane, const __global float4* x,
                                  const __global uint2* block_range, const __global float* corner_real, const __global uint* corner_index,
                                  const __global float* corner_strain, const __global float4* rotations,
                                  __global float* corner_turns DISPLACED_ARGS SHAPE_ARGS SHELL_ARGS SMOOTHING_ARGS) {
  const float4 xi = x[v];
  const float4 of_tets = OF_TETS(x)[v];
  (void)xi; /* which of these are read depends on the build options */
#if PALPATE_DISPLACED
  (void)rest;
#endif
  RVec force;
  force.x = force.y = force.z = SPLAT(0.0f);
  RSym h;
  h.xx = h.xy = h.xz = h.yy = h.yz = h.zz = SPLAT(0.0f);
#if PALPATE_SHAPE
  const float4 goal = goals[v];
  const uint2 blocks = goal.w > 0.0f ? (uint2)(0) : block_range[v]; /* what has a goal has no elastic tets */
#else
  const uint2 blocks = block_range[v];
#endif
  for (uint block = blocks.x + lane; block < blocks.y; block += PALPATE_TEAM) {
    add_block(p, OF_TETS(x), of_tets, block, corner_real, corner_index, corner_strain, rotations, corner_turns, &force, &h);
  }
#if PALPATE_SHELL
  add_shells(v, lane, x, xi SHELL_VALUES, &force, &h);
#endif
#if PALPATE_SMOOTHING
  for (uint block = smoothing_range[v].x + lane; block < smoothing_range[v].y; block += PALPATE_TEAM) {
    add_domains(p->lambda_cap, block SMOOTHING_VALUES, &force, &h);
  }
#endif
  Block b;
  b.force = (float3)(lane_sum(force.x), lane_sum(force.y), lane_sum(force.z));
  b.xx = lane_sum(h.xx);
  b.xy = lane_sum(h.xy);
  b.xz = lane_sum(h.xz);
  b.yy = lane_sum(h.yy);
  b.yz = lane_sum(h.yz);
  b.zz = lane_sum(h.zz);
#if PALPATE_SHAPE
  if (goal.w > 0.0f && lane == 0) {
    b.force -= goal.w * (xi.xyz - goal.xyz);
    b.xx += goal.w;
    b.yy += goal.w;
    b.zz += goal.w;
  }
#endif
  return b;
}

/* Start of a step. Work-item: vertex. x_start <- x; y <- the point that inertia and mass damping draw the vertex to, w = mass damping times
   dt: the inertia of the step is m (1 + w) / dt^2; x <- the initial guess of Chen et al. 4.1: gravity enters as far
   as the vertex accelerated along it in the last step, so that resting tissue starts at rest. Coordinates in held_axes stay; their targets
   do not, so that the residual there is all that the support has to bear. */
__kernel void predict(const __global StepParams* p, __global float4* x, __global float4* x_start, __global float4* y,
                      const __global float4* velocity, const __global float4* velocity_before, const __global float* mass,
                      const __global float* mass_damping, const __global uint* held_axes
#if PALPATE_DISPLACED
                          DISPLACED_ARGS,
                      __global float4* u_start
#endif
) {
  const uint v = (uint)get_global_id(0);
  if (v >= p->vertex_count) return;
  const float4 xv = x[v];
  x_start[v] = xv;
#if PALPATE_DISPLACED
  const float4 uv = displacement_of(xv, rest[v], u[v]);
  u[v] = uv;
  u_start[v] = uv;
#endif
  if (v >= p->free_count || mass[v] == 0.0f) {
    y[v] = (float4)(xv.xyz, 0.0f);
    return;
  }
  const float3 g = (float3)(p->gravity_x, p->gravity_y, p->gravity_z);
  const float3 vel = velocity[v].xyz;
  const float3 pushed = (vel - velocity_before[v].xyz) * p->inv_dt + mass_damping[v] * vel; /* acceleration without that of the damping */
  const uint held = held_axes[v];
  const float3 free_g = without_held(g, held);
  const float gg = dot(free_g, free_g);
  const float share = gg > 0.0f ? clamp(dot(pushed, free_g) / gg, 0.0f, 1.0f) : 0.0f;
  const float damping = p->dt_s * mass_damping[v];
  const float weight = 1.0f / (1.0f + damping);
  const float dt2 = p->dt_s * p->dt_s;
  /* Positions are far larger than moves: what rounds them must not act in the same direction in every step. */
  y[v] = (float4)(xv.xyz + weight * (p->dt_s * vel + dt2 * g), damping);
#if PALPATE_DISPLACED
  const float4 to = displaced_by(p, uv, without_held(weight * (p->dt_s * vel + share * dt2 * g), held));
  u[v] = to;
  x[v] = (float4)(keep_held(xv.xyz, rest[v].xyz + to.xyz, held), xv.w);
#else
  x[v] = (float4)(keep_held(xv.xyz, xv.xyz + weight * (p->dt_s * vel + share * dt2 * g), held), xv.w);
#endif
}

/* Of the loads on vertex v: its force of constant direction, and the pressures. See apply_loads. */
static inline float3 load_force(uint v, uint load_count, const __global float* pressures, const __global uint* load_bits, uint any_triangle,
                                const __global uint* triangle_loads, const __global float4* load_forces, const __global float4* x,
                                const __global uint2* vertex_triangle_range, const __global uint* vertex_triangles,
                                const __global uint4* triangles) {
  float3 force = load_forces[v].xyz;
  const uint bits = load_bits[v];
  const uint2 fan = (bits | any_triangle) != 0 ? vertex_triangle_range[v] : (uint2)(0, 0);
  for (uint k = fan.x; k < fan.y; ++k) {
    const uint t = vertex_triangles[k];
    const uint4 tri = triangles[t];
    uint common = (load_bits[tri.x] & load_bits[tri.y] & load_bits[tri.z]) | (any_triangle != 0 ? triangle_loads[t] : 0);
    float pressure = 0.0f;
    for (uint load = 0; load < load_count; ++load, common >>= 1) pressure += (common & 1u) ? pressures[load] : 0.0f;
    if (pressure == 0.0f) continue;
    const float3 o = x[tri.x].xyz;
    force -= (pressure / 6.0f) * cross(x[tri.y].xyz - o, x[tri.z].xyz - o);
  }
  return force;
}

/* The inertial targets with the loads: forces of constant direction, and pressures on triangles that have the bit of the load, or all of
   whose vertices do, with the areas as they are in x. The force on a vertex of a closed fan does not depend on its own place, so that
   between sweeps this is all that the implicit equation asks for. y_free: targets without loads. triangle_loads: read if any_triangle is
   not 0. Work-item: free vertex. */
__kernel void apply_loads(const __global StepParams* p, uint load_count, const __global float* pressures, const __global uint* load_bits,
                          uint any_triangle, const __global uint* triangle_loads, const __global float4* load_forces,
                          const __global float4* x, const __global uint2* vertex_triangle_range, const __global uint* vertex_triangles,
                          const __global uint4* triangles, const __global float* mass, const __global float4* y_free, __global float4* y) {
  const uint v = (uint)get_global_id(0);
  if (v >= p->free_count || mass[v] == 0.0f) return;
  const float3 force = load_force(v, load_count, pressures, load_bits, any_triangle, triangle_loads, load_forces, x, vertex_triangle_range,
                                  vertex_triangles, triangles);
  const float4 target = y_free[v];
  y[v] = (float4)(target.xyz + p->dt_s * p->dt_s / (mass[v] * (1.0f + target.w)) * force, target.w);
}

/* The loads on vertices that follow something else (NURBS shells). pushes: [count] N. Work-item: one of these vertices. */
__kernel void follower_loads(uint count, const __global uint* slots, uint load_count, const __global float* pressures,
                             const __global uint* load_bits, uint any_triangle, const __global uint* triangle_loads,
                             const __global float4* load_forces, const __global float4* x, const __global uint2* vertex_triangle_range,
                             const __global uint* vertex_triangles, const __global uint4* triangles, __global float4* pushes) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  pushes[i] = (float4)(load_force(slots[i], load_count, pressures, load_bits, any_triangle, triangle_loads, load_forces, x,
                                  vertex_triangle_range, vertex_triangles, triangles),
                       0.0f);
}

/* C = F^T F at the start of a step, or C - I from H = F - I, and the viscosity/dt that acts in it: `rate`, which fades where tissue is
   strained far; inverted tets have none. */
static inline void store_strain(const RMat* gradient, PALPATE_R rate, __global float* out) {
  RCorner corner;
  set_deformation(&corner, gradient);
  const RMat* f = &corner.f;
#if PALPATE_DISPLACED
  const RSym strain = twice_green_strain(gradient);
  const RSym* c = &strain;
  const PALPATE_R xx = c->xx, yy = c->yy, zz = c->zz;
#else
  const RSym strain = right_cauchy_green(gradient);
  const RSym* c = &strain;
  const PALPATE_R xx = c->xx - 1.0f, yy = c->yy - 1.0f, zz = c->zz - 1.0f;
#endif
  STORE_R(c->xx, out);
  STORE_R(c->xy, out + PALPATE_LANES);
  STORE_R(c->xz, out + 2 * PALPATE_LANES);
  STORE_R(c->yy, out + 3 * PALPATE_LANES);
  STORE_R(c->yz, out + 4 * PALPATE_LANES);
  STORE_R(c->zz, out + 5 * PALPATE_LANES);
  const RMat cof = cofactor(f);
  const PALPATE_R strain_sq = 0.25f * (xx * xx + yy * yy + zz * zz + 2.0f * (c->xy * c->xy + c->xz * c->xz + c->yz * c->yz));
  const PALPATE_R fade = 1.0f / (1.0f + strain_sq * strain_sq * 0.0625f);
  STORE_R(rate * fade * step(SPLAT(0.0f), determinant(f, &cof)), out + 6 * PALPATE_LANES);
}

/* store_strain of every corner at the start of the step; x_start: with PALPATE_DISPLACED displacements. A law linear in Green strain is
   sound up to strains of order one; beyond, it would hold a tangled mesh in its tangle, so it fades as 1 / (1 + (|E|/2)^4) and does not act
   in inverted tets. Work-item: block of corners of vertex block_vertex[block]. */
__kernel void start_strain(const __global StepParams* p, uint block_count, const __global float4* x_start,
                           const __global uint* block_vertex, const __global float* corner_real, const __global uint* corner_index,
                           __global float* corner_strain) {
  const uint block = (uint)get_global_id(0);
  if (block >= block_count) return;
  RVec g;
  const RMat f = deformation(p, x_start, x_start[block_vertex[block]], corner_real + (size_t)block * CORNER_REALS * PALPATE_LANES,
                             corner_index + (size_t)block * 4 * PALPATE_LANES, &g);
  store_strain(&f, LOAD_R(corner_real + (size_t)block * CORNER_REALS * PALPATE_LANES + 11 * PALPATE_LANES),
               corner_strain + (size_t)block * 7 * PALPATE_LANES);
}

/* F, or of displacements H = F - I, of the tets first .. first + lanes - 1 (the last one where there are fewer), and which of these are no
   free places. */
static inline __attribute__((always_inline)) RMat deformation_of_tets(const __global StepParams* p, uint first, uint last,
                                                                      const __global float4* x, const __global uint4* tets,
                                                                      const __global float4* tet_rest, LANE_INT* is_tet) {
  (void)p; /* read with PALPATE_DISPLACED */
  float edge[9][PALPATE_LANES], row[9][PALPATE_LANES];
  int used[PALPATE_LANES];
#pragma unroll
  for (uint l = 0; l < PALPATE_LANES; ++l) {
    const uint t = min(first + l, last);
    uint4 v = tets[t];
    used[l] = first + l <= last && v.x != v.y ? -1 : 0;
    if (!used[l]) v = (uint4)(0);
    const float4 o = x[v.x], a = x[v.y], b = x[v.z], c = x[v.w];
    const float4 ra = tet_rest[3 * t], rb = tet_rest[3 * t + 1], rc = tet_rest[3 * t + 2];
#if PALPATE_DISPLACED
    const float3 oa = displacement_between(p, a, o), ob = displacement_between(p, b, o), oc = displacement_between(p, c, o);
#else
    const float3 oa = a.xyz - o.xyz, ob = b.xyz - o.xyz, oc = c.xyz - o.xyz;
#endif
    edge[0][l] = oa.x, edge[1][l] = oa.y, edge[2][l] = oa.z;
    edge[3][l] = ob.x, edge[4][l] = ob.y, edge[5][l] = ob.z;
    edge[6][l] = oc.x, edge[7][l] = oc.y, edge[8][l] = oc.z;
    row[0][l] = ra.x, row[1][l] = ra.y, row[2][l] = ra.z;
    row[3][l] = rb.x, row[4][l] = rb.y, row[5][l] = rb.z;
    row[6][l] = rc.x, row[7][l] = rc.y, row[8][l] = rc.z;
  }
  const PALPATE_R ax = LOAD_R(edge[0]), ay = LOAD_R(edge[1]), az = LOAD_R(edge[2]);
  const PALPATE_R bx = LOAD_R(edge[3]), by = LOAD_R(edge[4]), bz = LOAD_R(edge[5]);
  const PALPATE_R cx = LOAD_R(edge[6]), cy = LOAD_R(edge[7]), cz = LOAD_R(edge[8]);
  const PALPATE_R ax_r = LOAD_R(row[0]), ay_r = LOAD_R(row[1]), az_r = LOAD_R(row[2]);
  const PALPATE_R bx_r = LOAD_R(row[3]), by_r = LOAD_R(row[4]), bz_r = LOAD_R(row[5]);
  const PALPATE_R cx_r = LOAD_R(row[6]), cy_r = LOAD_R(row[7]), cz_r = LOAD_R(row[8]);
  *is_tet = LOAD_R(used);
  RMat f;
  f.xx = ax * ax_r + bx * bx_r + cx * cx_r;
  f.xy = ax * ay_r + bx * by_r + cx * cy_r;
  f.xz = ax * az_r + bx * bz_r + cx * cz_r;
  f.yx = ay * ax_r + by * bx_r + cy * cx_r;
  f.yy = ay * ay_r + by * by_r + cy * cy_r;
  f.yz = ay * az_r + by * bz_r + cy * cz_r;
  f.zx = az * ax_r + bz * bx_r + cz * cx_r;
  f.zy = az * ay_r + bz * by_r + cz * cy_r;
  f.zz = az * az_r + bz * bz_r + cz * cz_r;
  return f;
}

/* Rotation of the polar decomposition of each tet's F, from its last value: always a proper rotation, also for flat and inverted tets.
   Work-item: PALPATE_LANES tets; what one gets does not depend on its neighbours. tet_rest: rows of Dm^-1, three float4 a tet. gate: null,
   or nothing is done where it is closed. x: with PALPATE_DISPLACED displacements. */
__kernel void extract_rotations(const __global uint* gate, const __global StepParams* p, const __global float4* x,
                                const __global uint4* tets, const __global float4* tet_rest, __global float4* rotations) {
  const uint first = (uint)get_global_id(0) * PALPATE_LANES;
  if (first >= p->tet_count || (gate && gate[0] != 0)) return;
  const uint last = min(first + PALPATE_LANES, p->tet_count) - 1;
  LANE_INT moving;
  const RMat gradient = deformation_of_tets(p, first, last, x, tets, tet_rest, &moving);
  RCorner corner;
  set_deformation(&corner, &gradient);
  find_rotations(&corner.f, first, last, moving, rotations);
}

/* Start of the sweeps of a step: corner_turns are the rotations of the tets. Work-item: block of corners. */
__kernel void turn_corners(uint block_count, const __global uint* corner_index, const __global float4* rotations,
                           __global float* corner_turns) {
  const uint block = (uint)get_global_id(0);
  if (block >= block_count) return;
  const __global uint* tet = corner_index + ((size_t)block * 4 + 3) * PALPATE_LANES;
  __global float* turns = corner_turns + (size_t)block * 4 * PALPATE_LANES;
  for (uint l = 0; l < PALPATE_LANES; ++l) {
    const float4 q = rotations[tet[l] & PALPATE_TET_MASK];
    turns[l] = q.x;
    turns[PALPATE_LANES + l] = q.y;
    turns[2 * PALPATE_LANES + l] = q.z;
    turns[3 * PALPATE_LANES + l] = q.w;
  }
}

#if PALPATE_SMOOTHING
/* Rotations of F of the domains as they were measured, as extract_rotations finds those of tets. Work-item: PALPATE_LANES domains. */
__kernel void turn_domains(uint domain_count, const __global float4* domain_f, __global float4* domain_turns) {
  const uint first = (uint)get_global_id(0) * PALPATE_LANES;
  if (first >= domain_count) return;
  const uint last = min(first + PALPATE_LANES, domain_count) - 1;
  int used[PALPATE_LANES];
  float f[9][PALPATE_LANES];
#pragma unroll
  for (uint l = 0; l < PALPATE_LANES; ++l) {
    used[l] = first + l <= last ? -1 : 0;
    const __global float4* state = domain_f + (size_t)min(first + l, last) * PALPATE_SMOOTHING_STATES;
    f[0][l] = state[0].x, f[1][l] = state[0].y, f[2][l] = state[0].z;
    f[3][l] = state[1].x, f[4][l] = state[1].y, f[5][l] = state[1].z;
    f[6][l] = state[2].x, f[7][l] = state[2].y, f[8][l] = state[2].z;
  }
  RMat m;
  m.xx = LOAD_R(f[0]), m.xy = LOAD_R(f[1]), m.xz = LOAD_R(f[2]);
  m.yx = LOAD_R(f[3]), m.yy = LOAD_R(f[4]), m.yz = LOAD_R(f[5]);
  m.zx = LOAD_R(f[6]), m.zy = LOAD_R(f[7]), m.zz = LOAD_R(f[8]);
  find_rotations(&m, first, last, LOAD_R(used), domain_turns);
}
#endif

/* What a vertex's block is made of, and where its move goes. In the colour [first, first + count). */
#define VERTEX_ARGS                                                                                                                        \
  const __global StepParams *p, uint first, uint count, __global float4 *x, const __global float4 *x_start, const __global float4 *y,      \
      const __global float *mass, const __global uint2 *block_range, const __global float *corner_real, const __global uint *corner_index, \
      const __global float *corner_strain, __global float *corner_turns, const __global uint2 *vertex_triangle_range,                      \
      const __global uint *vertex_triangles, const __global uint4 *triangles, const __global uint *triangle_colliders,                     \
      const __global ToolContact *contacts, const __global Collider *colliders, const __global PlaneObstacle *obstacles,                   \
      const __global uint *anchor_begin, const __global Anchor *anchors, __global uchar *touched,                                          \
      const __global uint *held_axes DISPLACED_ARGS SURFACE_ARGS BOUND_ARGS SHAPE_ARGS MOVE_ARGS SHELL_ARGS SMOOTHING_ARGS
#define VERTEX_VALUES(first, count)                                                                                              \
  p, first, count, x, x_start, y, mass, block_range, corner_real, corner_index, corner_strain, corner_turns, vertex_triangle_range, \
      vertex_triangles, triangles, triangle_colliders, contacts, colliders, obstacles, anchor_begin, anchors, touched,           \
      held_axes DISPLACED_VALUES SURFACE_VALUES BOUND_VALUES SHAPE_VALUES MOVE_VALUES SHELL_VALUES SMOOTHING_VALUES

/* The Newton step of vertex `item` of a colour, by a team of work-items; with PALPATE_TEAM > 1 all of the group come here. sums: 9 local
   floats for each of them then. */
static inline void solve_vertex(uint item, __local float* sums, VERTEX_ARGS) {
#if PALPATE_TEAM == 1
  (void)sums;
  if (item >= count) return;
  const uint v = first + item;
  if (mass[v] == 0.0f) return; /* an empty slot */
  Block b = elastic_block(p, v, 0, x, block_range, corner_real, corner_index, corner_strain, (const __global float4*)0,
                          corner_turns DISPLACED_VALUES SHAPE_VALUES SHELL_VALUES SMOOTHING_VALUES);
#else
  const uint lane = (uint)get_local_id(0) % PALPATE_TEAM;
  const uint v = first + min(item, count - 1);
  Block b;
  b.force = (float3)(0.0f);
  b.xx = b.xy = b.xz = b.yy = b.yz = b.zz = 0.0f;
  if (item < count) { /* the last teams only come to the barriers: corner_turns of a vertex are written by one */
    b = elastic_block(p, v, lane, x, block_range, corner_real, corner_index, corner_strain, (const __global float4*)0,
                      corner_turns DISPLACED_VALUES SHAPE_VALUES SHELL_VALUES SMOOTHING_VALUES);
  }
  b = sum_of_team(sums + (uint)get_local_id(0), (uint)get_local_size(0), lane, PALPATE_TEAM, b);
  if (lane != 0 || item >= count || mass[v] == 0.0f) return;
#endif
  const float4 xi = x[v];
  const float inertia = mass[v] * p->inv_dt * p->inv_dt * (1.0f + y[v].w);
  b.force -= inertia * TO_TARGET(v);
  b.xx += inertia;
  b.yy += inertia;
  b.zz += inertia;
  bool pushed = add_contacts(p, v, x, x_start, vertex_triangle_range, vertex_triangles, triangles, triangle_colliders, contacts, colliders,
                             obstacles, 1.0f, &b);
  pushed |= add_anchors(v, xi.xyz, anchor_begin, anchors, colliders, &b);
#if PALPATE_SURFACE
  pushed |= add_surface_contacts(sp, v, first, count, x, x_sweep, x_start, entry_begins, entries, pairs, is_near, &b);
#endif
  const uint held = held_axes[v];
  pushed |= meet_planes(p, v, xi.xyz, held, vertex_triangle_range, vertex_triangles, triangles, obstacles, &b);
  if (held) hold_axes(&b, held);
#if PALPATE_VOLUME
  const uint entry = vertex_entry[v];
  if (entry != NOT_AN_ENTRY) { /* keep_volumes moves it, when the pressure is known */
    const float3 a = without_held(volume_gradient(v, x, vertex_triangle_range, vertex_triangles, triangles), held);
    const float3 u = solve_block(&b);
    b.force = a;
    const float3 w = solve_block(&b);
    volume_moves[3 * entry] = (float4)(u, dot(a, u));
    volume_moves[3 * entry + 1] = (float4)(w, dot(a, w));
    volume_moves[3 * entry + 2] = (float4)(a, 0.0f);
    touched[v] = pushed ? PALPATE_TOUCH_PUSHED : 0;
    return;
  }
#endif
#if PALPATE_DISPLACED
  const float4 u_wanted = displaced_by(p, u[v], without_held(solve_block(&b), held));
  const float3 wanted = keep_held(xi.xyz, rest[v].xyz + u_wanted.xyz, held);
#else
  const float3 wanted = keep_held(xi.xyz, xi.xyz + solve_block(&b), held);
#endif
#if PALPATE_SURFACE
  uint truncated = 0;
  const float3 to = bounded_move(xi.xyz, wanted, detected[v].xyz, clear_m[v], entry_begins[v], entry_begins[v + 1], planes, held, &truncated);
  touched[v] = (uchar)((pushed ? PALPATE_TOUCH_PUSHED : 0) | (truncated ? PALPATE_TOUCH_TRUNCATED : 0));
#else
  const float3 to = wanted;
  touched[v] = pushed ? PALPATE_TOUCH_PUSHED : 0;
#endif
  x[v] = (float4)(to, xi.w);
#if PALPATE_DISPLACED
  u[v] = displacement_of(x[v], rest[v], u_wanted);
#endif
}

/* One colour of a sweep: no two of its vertices share a tet, so the order within it does not matter.
   Work-items: PALPATE_TEAM a vertex, for the vertices [first, first + count). */
__kernel __attribute__((reqd_work_group_size(PALPATE_GROUP, 1, 1))) void solve_color(VERTEX_ARGS) {
#if PALPATE_TEAM == 1
  solve_vertex((uint)get_global_id(0), (__local float*)0, VERTEX_VALUES(first, count));
#else
  __local float sums[9 * PALPATE_GROUP];
  solve_vertex((uint)get_global_id(0) / PALPATE_TEAM, sums, VERTEX_VALUES(first, count));
#endif
}

#if PALPATE_VOLUME
/* Moves the vertices of a colour whose bodies keep their volume: what their other forces want, and what the pressure of the body does
   besides. Work-item: entry, from `first` on. */
__kernel void keep_volumes(uint first, uint count, const __global uint* entry_vertex, const __global uint* entry_body,
                           const __global float4* volume_bodies, __global float4* volume_moves, __global float4* x,
                           const __global uint* held_axes, __global uchar* touched BOUND_ARGS
#if PALPATE_SURFACE
                           ,
                           const __global uint* entry_begins
#endif
) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const uint e = first + i;
  const uint v = entry_vertex[e];
  const float4 xi = x[v];
  const uint held = held_axes[v];
  float3 to = xi.xyz + (volume_moves[3 * e].xyz - volume_bodies[entry_body[e]].w * volume_moves[3 * e + 1].xyz);
  to = keep_held(xi.xyz, to, held);
#if PALPATE_SURFACE
  uint truncated = 0;
  to = bounded_move(xi.xyz, to, detected[v].xyz, clear_m[v], entry_begins[v], entry_begins[v + 1], planes, held, &truncated);
  if (truncated) touched[v] |= PALPATE_TOUCH_TRUNCATED;
#else
  (void)touched;
#endif
  const float3 a = volume_moves[3 * e + 2].xyz;
  volume_moves[3 * e + 2] = (float4)(a, dot(a, to - xi.xyz));
  x[v] = (float4)(to, xi.w);
}

/* dV/dx of vertices whose bodies keep their volume, of others 0; w is that of `forces`. Work-item: vertex. */
__kernel void volume_gradients(uint vertex_count, const __global uint* vertex_entry, const __global float4* x,
                               const __global uint2* vertex_triangle_range, const __global uint* vertex_triangles,
                               const __global uint4* triangles, const __global float4* forces, __global float4* gradients) {
  const uint v = (uint)get_global_id(0);
  if (v >= vertex_count) return;
  float3 a = (float3)(0.0f);
  if (vertex_entry[v] != NOT_AN_ENTRY) a = volume_gradient(v, x, vertex_triangle_range, vertex_triangles, triangles);
  gradients[v] = (float4)(a, forces[v].w);
}
#endif

/* Where elastic and viscous forces are stresses (PALPATE_STRESS_ENERGIES, no fibres), what they do along moves needs each tet once only, in
   batches of PALPATE_LANES. x and x_start: with PALPATE_DISPLACED displacements. tet_moduli: V mu, V lambda, damping/dt, energy. tet_strain
   [batch][7][lanes]: as corner_strain. tet_line [batch][18][lanes]: F or H, and how the moves change it. */
#define LINE_REALS 18

/* C and the acting viscosity at the start of a step. Work-item: batch. */
__kernel void start_tets(const __global StepParams* p, const __global float4* x_start, const __global uint4* tets,
                         const __global float4* tet_rest, const __global float4* tet_moduli, __global float* tet_strain) {
  const uint batch = (uint)get_global_id(0);
  const uint first = batch * PALPATE_LANES;
  if (first >= p->tet_count) return;
  const uint last = min(first + PALPATE_LANES, p->tet_count) - 1;
  LANE_INT is_tet;
  const RMat f = deformation_of_tets(p, first, last, x_start, tets, tet_rest, &is_tet);
  float rates[PALPATE_LANES];
#pragma unroll
  for (uint l = 0; l < PALPATE_LANES; ++l) rates[l] = first + l <= last ? tet_moduli[first + l].z : 0.0f;
  store_strain(&f, LOAD_R(rates), tet_strain + (size_t)batch * 7 * PALPATE_LANES);
}

static inline RMat load_mat(const __global float* real) {
  RMat m;
  m.xx = LOAD_R(real), m.xy = LOAD_R(real + PALPATE_LANES), m.xz = LOAD_R(real + 2 * PALPATE_LANES);
  m.yx = LOAD_R(real + 3 * PALPATE_LANES), m.yy = LOAD_R(real + 4 * PALPATE_LANES), m.yz = LOAD_R(real + 5 * PALPATE_LANES);
  m.zx = LOAD_R(real + 6 * PALPATE_LANES), m.zy = LOAD_R(real + 7 * PALPATE_LANES), m.zz = LOAD_R(real + 8 * PALPATE_LANES);
  return m;
}

static inline void store_mat(const RMat* m, __global float* real) {
  STORE_R(m->xx, real);
  STORE_R(m->xy, real + PALPATE_LANES);
  STORE_R(m->xz, real + 2 * PALPATE_LANES);
  STORE_R(m->yx, real + 3 * PALPATE_LANES);
  STORE_R(m->yy, real + 4 * PALPATE_LANES);
  STORE_R(m->yz, real + 5 * PALPATE_LANES);
  STORE_R(m->zx, real + 6 * PALPATE_LANES);
  STORE_R(m->zy, real + 7 * PALPATE_LANES);
  STORE_R(m->zz, real + 8 * PALPATE_LANES);
}

/* What the forces of a batch do along its moves [J] where they have gone by this share, with the rotations as they are. */
static inline __attribute__((always_inline)) PALPATE_R work_of_batch(const __global StepParams* p, uint batch, const RMat* from,
                                                                     const RMat* turn, float share, const __global float4* tet_moduli,
                                                                     const __global float4* rotations, const __global float* tet_strain) {
  const uint first = batch * PALPATE_LANES;
  const uint last = min(first + PALPATE_LANES, p->tet_count) - 1;
  float moduli[3][PALPATE_LANES], known[4][PALPATE_LANES];
#pragma unroll
  for (uint l = 0; l < PALPATE_LANES; ++l) {
    const float4 m = first + l <= last ? tet_moduli[first + l] : (float4)(0.0f);
    moduli[0][l] = m.x, moduli[1][l] = m.y, moduli[2][l] = m.w;
#if PALPATE_ENERGY_MASK & PALPATE_ROTATED_ENERGIES
    const float4 q = rotations[min(first + l, last)];
    known[0][l] = q.x, known[1][l] = q.y, known[2][l] = q.z, known[3][l] = q.w;
#endif
  }
  RMat at;
  at.xx = from->xx + share * turn->xx, at.xy = from->xy + share * turn->xy, at.xz = from->xz + share * turn->xz;
  at.yx = from->yx + share * turn->yx, at.yy = from->yy + share * turn->yy, at.yz = from->yz + share * turn->yz;
  at.zx = from->zx + share * turn->zx, at.zy = from->zy + share * turn->zy, at.zz = from->zz + share * turn->zz;
  RCorner corner;
  set_deformation(&corner, &at);
  corner.mu_v = LOAD_R(moduli[0]);
  corner.lambda_v = fmin(LOAD_R(moduli[1]), p->lambda_cap * corner.mu_v);
  corner.has_fibers = 0;
  corner.row_a.x = corner.row_a.y = corner.row_a.z = SPLAT(0.0f); /* such energies do without rows */
  corner.row_b = corner.row_c = corner.row_a;
#if PALPATE_ENERGY_MASK & PALPATE_ROTATED_ENERGIES
  const RMat r = rotation_of(LOAD_R(known[0]), LOAD_R(known[1]), LOAD_R(known[2]), LOAD_R(known[3]));
#else
  (void)rotations;
  (void)known;
#endif
#if PALPATE_VISCOUS
  const __global float* strain = tet_strain + (size_t)batch * 7 * PALPATE_LANES;
  const RSym start = load_strain(strain);
  const PALPATE_R rate = LOAD_R(strain + 6 * PALPATE_LANES);
#else
  (void)tet_strain;
#endif
  const RVec columns[3] = {{turn->xx, turn->yx, turn->zx}, {turn->xy, turn->yy, turn->zy}, {turn->xz, turn->yz, turn->zz}};
  PALPATE_R sum = SPLAT(0.0f);
#pragma unroll
  for (uint axis = 0; axis < 3; ++axis) { /* a corner with this axis as its gradient feels minus this column of the stress */
    corner.g.x = SPLAT(axis == 0 ? 1.0f : 0.0f);
    corner.g.y = SPLAT(axis == 1 ? 1.0f : 0.0f);
    corner.g.z = SPLAT(axis == 2 ? 1.0f : 0.0f);
#if PALPATE_ENERGY_MASK & PALPATE_ROTATED_ENERGIES
    set_rotation(&corner, &r);
#endif
    RVec force;
    force.x = force.y = force.z = SPLAT(0.0f);
    RSym unused;
    unused.xx = unused.xy = unused.xz = unused.yy = unused.yz = unused.zz = SPLAT(0.0f);
#define ADD_ENERGY(name, Name, api, code, text) \
  if ((PALPATE_ENERGY_MASK >> code & 1u) != 0u) add_##name##_corner(&corner, tets_of(moduli[2], code), &force, &unused);
    PALPATE_ELASTIC_ENERGIES(ADD_ENERGY)
#undef ADD_ENERGY
#if PALPATE_VISCOUS
    add_corner_viscous(&corner, &start, rate, &force, &unused);
#endif
    sum += dot_r(&force, &columns[axis]);
  }
  return sum;
}

/* tet_line for moves from x, and what the forces do along them at their end [J]. Work-item: a contiguous share of the batches;
   sums: [item]. */
__kernel void begin_line(const __global StepParams* p, const __global float4* x, const __global float4* moves, const __global uint4* tets,
                         const __global float4* tet_rest, const __global float4* tet_moduli, const __global float4* rotations,
                         const __global float* tet_strain, __global float* tet_line, __global float* sums) {
  const uint items = (uint)get_global_size(0);
  const uint me = (uint)get_global_id(0);
  const uint batches = (p->tet_count + PALPATE_LANES - 1) / PALPATE_LANES;
  const uint part = (batches + items - 1) / items;
  const uint end = min((me + 1) * part, batches);
  PALPATE_R sum = SPLAT(0.0f);
  for (uint batch = me * part; batch < end; ++batch) {
    const uint first = batch * PALPATE_LANES;
    const uint last = min(first + PALPATE_LANES, p->tet_count) - 1;
    LANE_INT is_tet;
    const RMat f = deformation_of_tets(p, first, last, x, tets, tet_rest, &is_tet);
    const RMat turn = deformation_of_tets(p, first, last, moves, tets, tet_rest, &is_tet);
    __global float* line = tet_line + (size_t)batch * LINE_REALS * PALPATE_LANES;
    store_mat(&f, line);
    store_mat(&turn, line + 9 * PALPATE_LANES);
    sum += work_of_batch(p, batch, &f, &turn, 1.0f, tet_moduli, rotations, tet_strain);
  }
  sums[me] = lane_sum(sum);
}

/* What the forces do along the moves of tet_line [J], where they have gone by share[0]. Work-item, sums: as of begin_line. */
__kernel void work_on_line(const __global StepParams* p, const __global float* share, const __global float4* tet_moduli,
                           const __global float4* rotations, const __global float* tet_strain, const __global float* tet_line,
                           __global float* sums) {
  const uint items = (uint)get_global_size(0);
  const uint me = (uint)get_global_id(0);
  const uint batches = (p->tet_count + PALPATE_LANES - 1) / PALPATE_LANES;
  const uint part = (batches + items - 1) / items;
  const uint end = min((me + 1) * part, batches);
  PALPATE_R sum = SPLAT(0.0f);
  for (uint batch = me * part; batch < end; ++batch) {
    const __global float* line = tet_line + (size_t)batch * LINE_REALS * PALPATE_LANES;
    const RMat f = load_mat(line);
    const RMat turn = load_mat(line + 9 * PALPATE_LANES);
    sum += work_of_batch(p, batch, &f, &turn, share[0], tet_moduli, rotations, tet_strain);
  }
  sums[me] = lane_sum(sum);
}

/* The residual of the implicit equation at the current x: the sum of all forces minus mass times acceleration [N]; parts are selected by
   `parts`: 1 elastic and viscous, pressure of a kept volume included, 2 inertia, gravity, loads and mass damping, 4 contact, 8 anchors,
   16 pressure of a kept volume alone.
   w = 1 where a contact or an anchor of these acts, else 0. is_trial: displacements are not those of x, and no elastic forces are wanted.
   Of the first `count` slots: free vertices come first. Work-item: vertex. */
__kernel void vertex_forces(uint count, const __global StepParams* p, uint parts, const __global float4* x, const __global float4* x_start,
                            const __global float4* y, const __global float* mass, const __global uint2* block_range,
                            const __global float* corner_real, const __global uint* corner_index, const __global float* corner_strain,
                            const __global float4* rotations, const __global uint2* vertex_triangle_range,
                            const __global uint* vertex_triangles, const __global uint4* triangles, const __global uint* triangle_colliders,
                            const __global ToolContact* contacts, const __global Collider* colliders,
                            const __global PlaneObstacle* obstacles, const __global uint* anchor_begin, const __global Anchor* anchors,
                            __global float4* forces
#if PALPATE_DISPLACED
                                DISPLACED_ARGS,
                            uint is_trial
#endif
                                SURFACE_ARGS SHAPE_ARGS PRESSURE_ARGS SHELL_ARGS SMOOTHING_ARGS) {
  const uint v = (uint)get_global_id(0);
  if (v >= count) return;
  Block b;
  b.force = (float3)(0.0f);
  b.xx = b.xy = b.xz = b.yy = b.yz = b.zz = 0.0f;
  if (parts & 1u) {
    for (uint lane = 0; lane < PALPATE_TEAM; ++lane) {
      b.force += elastic_block(p, v, lane, x, block_range, corner_real, corner_index, corner_strain, rotations,
                               (__global float*)0 DISPLACED_VALUES SHAPE_VALUES SHELL_VALUES SMOOTHING_VALUES)
                     .force;
    }
  }
#if PALPATE_VOLUME
  const uint entry = (parts & 17u) != 0 ? vertex_entry[v] : NOT_AN_ENTRY;
  if (entry != NOT_AN_ENTRY) {
    b.force -= volume_bodies[entry_body[entry]].w * volume_gradient(v, x, vertex_triangle_range, vertex_triangles, triangles);
  }
#endif
  if (parts & 2u) {
#if PALPATE_DISPLACED
    const float3 beyond = is_trial != 0 ? x[v].xyz - y[v].xyz : TO_TARGET(v);
#else
    const float3 beyond = TO_TARGET(v);
#endif
    b.force -= mass[v] * p->inv_dt * p->inv_dt * (1.0f + y[v].w) * beyond;
  }
  bool acts = false;
  if (parts & 4u) {
    acts = add_contacts(p, v, x, x_start, vertex_triangle_range, vertex_triangles, triangles, triangle_colliders, contacts, colliders,
                        obstacles, 1.0f, &b);
#if PALPATE_SURFACE
    acts |= add_surface_contacts(sp, v, 0, 0, x, x_sweep, x_start, entry_begins, entries, pairs, is_near, &b);
#endif
  }
  if (parts & 8u) acts |= add_anchors(v, x[v].xyz, anchor_begin, anchors, colliders, &b);
  forces[v] = (float4)(b.force, acts ? 1.0f : 0.0f);
}

/* The contact that lets a vertex go least far before it begins to push. */
typedef struct {
  float3 into;             /* unit */
  float gap;               /* [m] to where it begins; MAXFLOAT: there is none */
  float stiffness_n_per_m; /* there, of all that begin about as near */
} NextContact;

static inline void keep_nearest(NextContact* next, float3 into, float gap, float near, float stiffness_n_per_m) {
  if (gap < 0.0f) return; /* pushes already */
  if (gap < near) next->stiffness_n_per_m += stiffness_n_per_m;
  if (gap >= next->gap) return;
  if (gap >= near) next->stiffness_n_per_m = stiffness_n_per_m;
  next->into = into;
  next->gap = gap;
}

/* The next contact of vertex v that does not push yet: a sweep that knows contacts as they were at its start must not run into it. */
static inline NextContact next_contact(const __global StepParams* p, uint v, const __global float4* x,
                                       const __global uint2* vertex_triangle_range, const __global uint* vertex_triangles,
                                       const __global uint4* triangles, const __global uint* triangle_colliders,
                                       const __global ToolContact* contacts, const __global Collider* colliders,
                                       const __global PlaneObstacle* planes
#if PALPATE_SURFACE
                                       ,
                                       const __global uint* entry_begins, const __global uint* entries, const __global SurfacePair* pairs,
                                       const __global uchar* is_near
#endif
) {
  NextContact next;
  next.into = (float3)(0.0f);
  next.gap = MAXFLOAT;
  next.stiffness_n_per_m = 0.0f;
  const float near = 0.25f * p->margin_m;
  const uint2 fan = vertex_triangle_range[v];
  for (uint k = fan.x; k < fan.y; ++k) {
    const uint t = vertex_triangles[k];
    uint mask = triangle_colliders[t];
    const uint4 tri = triangles[t];
    for (uint c = 0; mask != 0; ++c, mask >>= 1) {
      if (!(mask & 1u)) continue;
      const ToolContact contact = contacts[(size_t)c * p->triangle_count + t];
      const float3 point = contact.weights.x * x[tri.x].xyz + contact.weights.y * x[tri.y].xyz + contact.weights.z * x[tri.z].xyz;
      const float3 on_axis = colliders[c].tip.xyz + contact.normal.w * colliders[c].axis.xyz;
      const float begins = p->margin_m + colliders[c].tip_start.w + surface_offset(tri);
      const float weight = v == tri.x ? contact.weights.x : v == tri.y ? contact.weights.y : contact.weights.z;
      /* The three vertices of a triangle may move together. */
      keep_nearest(&next, -contact.normal.xyz, dot(contact.normal.xyz, point - on_axis) - begins, near,
                   3.0f * weight * weight * colliders[c].axis.w);
    }
  }
  uint at_vertex = colliders_at_vertex(p, fan, vertex_triangles, triangles, triangle_colliders, contacts);
  for (uint c = 0; at_vertex != 0; ++c, at_vertex >>= 1) {
    if (!(at_vertex & 1u)) continue;
    const VertexContact contact = vertex_contact(p, colliders + c, x[v].xyz, x[v].xyz, vertex_offset(fan, vertex_triangles, triangles));
    keep_nearest(&next, -contact.normal, contact.gap - p->margin_m, near, colliders[c].axis.w);
  }
  if (fan.x != fan.y) {
    const float begins = p->margin_m + surface_offset(triangles[vertex_triangles[fan.x]]);
    for (uint i = 0; i < p->plane_count; ++i) {
      const float4 plane = planes[i].normal_offset;
      keep_nearest(&next, -plane.xyz, dot(plane.xyz, x[v].xyz) - plane.w - begins, near, p->stiffness_n_per_m);
    }
  }
#if PALPATE_SURFACE
  for (uint i = entry_begins[v]; i < entry_begins[v + 1]; ++i) {
    if (is_near[entries[i] >> 2] == 0) continue;
    const __global SurfacePair* pair = pairs + (entries[i] >> 2);
    if (pair->stiffness_n_per_m == 0.0f) continue;
    const float4 weights = pair->weights;
    const uint role = entries[i] & 3u;
    const float weight = role == 0 ? weights.x : role == 1 ? weights.y : role == 2 ? weights.z : weights.w;
    if (weight == 0.0f) continue;
    const uint4 u = pair->vertices;
    PairWeights w;
    w.w0 = weights.x;
    w.w1 = weights.y;
    w.w2 = weights.z;
    w.w3 = weights.w;
    const float4 normal = pair->normal;
    /* Both sides may come nearer: half of the gap is for each. */
    const float gap = dot(normal.xyz, pair_vector(x[u.x].xyz, x[u.y].xyz, x[u.z].xyz, x[u.w].xyz, w)) - normal.w;
    keep_nearest(&next, weight > 0.0f ? -normal.xyz : normal.xyz, 0.5f * gap, near, 4.0f * weight * weight * pair->stiffness_n_per_m);
  }
#endif
  return next;
}

/* Contacts and anchors of vertices that follow something else (NURBS shells), and loads `pushes`, or null: forces, w = 1 where some act,
   and blocks xx xy xz yy, yz zz that bound the energy of contacts from above however all of these vertices move. at: where these are now,
   next: of next_contact, xyz = into, w = gap, then x = stiffness. They are among the slots [first_slot, first_slot + slot_count).
   Work-item: vertex, blocks and next: [count][2]. */
__kernel void follower_contacts(const __global StepParams* p, uint count, uint first_slot, uint slot_count, const __global uint* slots,
                                const __global float4* x, const __global float4* x_start, const __global uint2* vertex_triangle_range,
                                const __global uint* vertex_triangles, const __global uint4* triangles,
                                const __global uint* triangle_colliders, const __global ToolContact* contacts,
                                const __global Collider* colliders, const __global PlaneObstacle* obstacles,
                                const __global uint* anchor_begin, const __global Anchor* anchors, const __global float4* pushes,
                                __global float4* at, __global float4* next, __global float4* forces, __global float4* blocks,
                                __global uchar* touched SURFACE_ARGS) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const uint v = slots[i];
  Block b;
  b.force = (float3)(0.0f);
  b.xx = b.xy = b.xz = b.yy = b.yz = b.zz = 0.0f;
  bool acts = add_contacts(p, v, x, x_start, vertex_triangle_range, vertex_triangles, triangles, triangle_colliders, contacts, colliders,
                           obstacles, 3.0f, &b);
  acts |= add_anchors(v, x[v].xyz, anchor_begin, anchors, colliders, &b);
#if PALPATE_SURFACE
  acts |= add_surface_contacts(sp, v, first_slot, slot_count, x, x_sweep, x_start, entry_begins, entries, pairs, is_near, &b);
#else
  (void)first_slot;
  (void)slot_count;
#endif
  touched[v] = acts ? PALPATE_TOUCH_PUSHED : 0;
  if (pushes) {
    b.force += pushes[i].xyz;
    acts = true;
  }
  at[i] = x[v];
  const NextContact after =
      next_contact(p, v, x, vertex_triangle_range, vertex_triangles, triangles, triangle_colliders, contacts, colliders, obstacles
#if PALPATE_SURFACE
                   ,
                   entry_begins, entries, pairs, is_near
#endif
      );
  next[2 * i] = (float4)(after.into, after.gap);
  next[2 * i + 1] = (float4)(after.stiffness_n_per_m, 0.0f, 0.0f, 0.0f);
  forces[i] = (float4)(b.force, acts ? 1.0f : 0.0f);
  if (!acts) return;
  blocks[2 * i] = (float4)(b.xx, b.xy, b.xz, b.yy);
  blocks[2 * i + 1] = (float4)(b.yz, b.zz, 0.0f, 0.0f);
}

#if PALPATE_SURFACE
/* Forces on a component of the scene as a whole, without those of pairs, and their block: inertia, capsules, planes and anchors. The
   weights of a capsule's contact on a triangle sum to 1, so thrice the sum of the vertices' blocks bounds that of the component. Elastic
   forces cancel. Work-item: part of a component; sums: [component_count][parts][PALPATE_COMPONENT_SUMS]. */
__kernel void component_sums(const __global StepParams* p, uint component_count, uint parts, const __global uint* component_begin,
                             const __global uint* component_vertices, const __global float4* x, const __global float4* x_start,
                             const __global float4* y, const __global float* mass, const __global uint2* vertex_triangle_range,
                             const __global uint* vertex_triangles, const __global uint4* triangles,
                             const __global uint* triangle_colliders, const __global ToolContact* contacts,
                             const __global Collider* colliders, const __global PlaneObstacle* obstacles, const __global uint* anchor_begin,
                             const __global Anchor* anchors, __global float* sums) {
  const uint i = (uint)get_global_id(0);
  if (i >= component_count * parts) return;
  Block b;
  b.force = (float3)(0.0f);
  b.xx = b.xy = b.xz = b.yy = b.yz = b.zz = 0.0f;
  float inertia = 0.0f;
  for (uint k = component_begin[i / parts] + i % parts; k < component_begin[i / parts + 1]; k += parts) {
    const uint v = component_vertices[k];
    const float own = mass[v] * p->inv_dt * p->inv_dt * (1.0f + y[v].w);
    b.force -= own * (x[v].xyz - y[v].xyz);
    inertia += own;
    add_contacts(p, v, x, x_start, vertex_triangle_range, vertex_triangles, triangles, triangle_colliders, contacts, colliders, obstacles,
                 1.0f, &b);
    add_anchors(v, x[v].xyz, anchor_begin, anchors, colliders, &b);
  }
  __global float* out = sums + (size_t)i * PALPATE_COMPONENT_SUMS;
  out[0] = b.force.x;
  out[1] = b.force.y;
  out[2] = b.force.z;
  out[3] = inertia + 3.0f * b.xx;
  out[4] = 3.0f * b.xy;
  out[5] = 3.0f * b.xz;
  out[6] = inertia + 3.0f * b.yy;
  out[7] = 3.0f * b.yz;
  out[8] = inertia + 3.0f * b.zz;
}

/* A contact with an obstacle comes nearer by what is left to the margin, or by as much as it is within, and this share of the margin. */
#define SHIFT_OVERLAP 0.02f

static inline float shift_share(float within_m, float approach_m, float margin_m) {
  const float room_m = fabs(within_m) + SHIFT_OVERLAP * margin_m;
  return approach_m > room_m ? room_m / approach_m : 1.0f;
}

/* Share of its shift that a component may go before it would meet capsules and planes that component_sums did not know of, or that push
   with another slope there. Work-item: part of a component; shares: [component_count][parts]. */
__kernel void component_shares(const __global StepParams* p, uint component_count, uint parts, const __global uint* component_begin,
                               const __global uint* component_vertices, const __global float4* shifts, const __global float4* x,
                               const __global uint2* vertex_triangle_range, const __global uint* vertex_triangles,
                               const __global uint4* triangles, const __global uint* triangle_colliders,
                               const __global ToolContact* contacts, const __global Collider* colliders,
                               const __global PlaneObstacle* planes, __global float* shares) {
  const uint i = (uint)get_global_id(0);
  if (i >= component_count * parts) return;
  const float3 shift = shifts[i / parts].xyz;
  float share = 1.0f;
  for (uint k = component_begin[i / parts] + i % parts; k < component_begin[i / parts + 1]; k += parts) {
    const uint v = component_vertices[k];
    const uint2 fan = vertex_triangle_range[v];
    if (fan.x == fan.y) continue;
    for (uint j = 0; j < p->plane_count; ++j) {
      const float4 plane = planes[j].normal_offset;
      const float margin = p->margin_m + surface_offset(triangles[vertex_triangles[fan.x]]);
      const float within = margin - (dot(plane.xyz, x[v].xyz) - plane.w);
      share = fmin(share, shift_share(within, -dot(plane.xyz, shift), p->margin_m));
    }
    for (uint f = fan.x; f < fan.y; ++f) {
      const uint t = vertex_triangles[f];
      uint mask = triangle_colliders[t];
      const uint4 tri = triangles[t];
      if (v != tri.x) continue; /* once a triangle */
      for (uint c = 0; mask != 0; ++c, mask >>= 1) {
        if (!(mask & 1u)) continue;
        const ToolContact contact = contacts[(size_t)c * p->triangle_count + t];
        const float3 n = contact.normal.xyz;
        const float3 on_axis = colliders[c].tip.xyz + contact.normal.w * colliders[c].axis.xyz;
        const float3 point = contact.weights.x * x[tri.x].xyz + contact.weights.y * x[tri.y].xyz + contact.weights.z * x[tri.z].xyz;
        const float within = p->margin_m + (colliders[c].tip_start.w + surface_offset(tri)) - dot(n, point - on_axis);
        share = fmin(share, shift_share(within, -dot(n, shift), p->margin_m));
      }
    }
    uint at_vertex = colliders_at_vertex(p, fan, vertex_triangles, triangles, triangle_colliders, contacts);
    for (uint c = 0; at_vertex != 0; ++c, at_vertex >>= 1) {
      if (!(at_vertex & 1u)) continue;
      const VertexContact contact = vertex_contact(p, colliders + c, x[v].xyz, x[v].xyz, vertex_offset(fan, vertex_triangles, triangles));
      share = fmin(share, shift_share(p->margin_m - contact.gap, -dot(contact.normal, shift), p->margin_m));
    }
  }
  shares[i] = share;
}
#endif

#if PALPATE_SURFACE
#define ENTRY_ARGS , const __global uint* entry_begins
#define ENTRY_VALUES , entry_begins
#else
#define ENTRY_ARGS
#define ENTRY_VALUES
#endif

/* Chebyshev acceleration of the sweeps (Chen et al. 4.2) for vertices that touch nothing. x_before, x_before2: with PALPATE_DISPLACED
   displacements. */
static inline void accelerate_vertex(const __global StepParams* p, uint v, float omega, __global float4* x, __global float4* x_before,
                                     __global float4* x_before2, __global uchar* touched,
                                     const __global uint* held_axes DISPLACED_ARGS BOUND_ARGS ENTRY_ARGS) {
  (void)p; /* read with PALPATE_DISPLACED */
#if PALPATE_DISPLACED
#define MOVE_BETWEEN(a, b) displacement_between(p, a, b)
#else
#define MOVE_BETWEEN(a, b) ((a).xyz - (b).xyz)
#endif
  float4 now = OF_TETS(x)[v];
  /* A sweep that takes back more than half of the move before it ends the momentum of its vertex: where the estimate of the spectral
     radius is too high, the recurrence would swing ever farther. */
  const float3 last = MOVE_BETWEEN(x_before[v], x_before2[v]);
  const bool goes_on = dot(MOVE_BETWEEN(now, x_before[v]), last) >= -0.5f * dot(last, last);
  if (omega != 1.0f && goes_on && !(touched[v] & PALPATE_TOUCH_PUSHED)) {
    const uint held = held_axes[v];
    float4 xv = x[v];
#if PALPATE_DISPLACED
    const float4 wanted = displaced_by(p, now, without_held((omega - 1.0f) * displacement_between(p, now, x_before2[v]), held));
    const float3 to = keep_held(xv.xyz, rest[v].xyz + wanted.xyz, held);
#else
    const float4 on = omega * (now - x_before2[v]) + x_before2[v];
    const float3 to = keep_held(now.xyz, on.xyz, held);
#endif
#if PALPATE_SURFACE
    uint truncated = 0;
    xv.xyz = bounded_move(xv.xyz, to, detected[v].xyz, clear_m[v], entry_begins[v], entry_begins[v + 1], planes, held, &truncated);
    if (truncated) touched[v] |= PALPATE_TOUCH_TRUNCATED;
#elif PALPATE_DISPLACED
    xv.xyz = to;
#else
    xv = (float4)(to, on.w);
#endif
    x[v] = xv;
#if PALPATE_DISPLACED
    now = displacement_of(xv, rest[v], wanted);
    u[v] = now;
#else
    now = xv;
#endif
  }
  x_before2[v] = x_before[v];
  x_before[v] = now;
}

/* Work-item: free vertex. */
__kernel void accelerate(const __global StepParams* p, float omega, __global float4* x, __global float4* x_before,
                         __global float4* x_before2, __global uchar* touched,
                         const __global uint* held_axes DISPLACED_ARGS BOUND_ARGS ENTRY_ARGS) {
  const uint v = (uint)get_global_id(0);
  if (v < p->free_count) {
    accelerate_vertex(p, v, omega, x, x_before, x_before2, touched, held_axes DISPLACED_VALUES BOUND_VALUES ENTRY_VALUES);
  }
}

#if PALPATE_PHASES
#include "gpu/dynamics/sweep_phases.clh"
#endif

/* Moves vertices by share[0] of `moves`, as far as their bounds allow, and with them where they were in the sweeps before: what these moves
   mend, the recurrence must not carry on. Work-item: free vertex. */
__kernel void move_along(const __global StepParams* p, const __global uint* gate, const __global float4* moves, const __global float* share,
                         __global float4* x, uint has_history, __global float4* x_before, __global float4* x_before2,
                         __global uchar* touched, const __global uint* held_axes DISPLACED_ARGS BOUND_ARGS
#if PALPATE_SURFACE
                         ,
                         const __global uint* entry_begins
#endif
) {
  const uint v = (uint)get_global_id(0);
  if (v >= p->free_count || gate[0] != 0) return;
  const float3 move = share[0] * moves[v].xyz;
  if (!(dot(move, move) > 0.0f)) return;
  const float4 xv = x[v];
  const uint held = held_axes[v];
#if PALPATE_DISPLACED
  const float4 from = u[v];
  const float4 wanted = displaced_by(p, from, without_held(move, held));
  float3 to = keep_held(xv.xyz, rest[v].xyz + wanted.xyz, held);
#else
  float3 to = keep_held(xv.xyz, xv.xyz + move, held);
#endif
#if PALPATE_SURFACE
  uint truncated = 0;
  to = bounded_move(xv.xyz, to, detected[v].xyz, clear_m[v], entry_begins[v], entry_begins[v + 1], planes, held, &truncated);
  if (truncated) touched[v] |= PALPATE_TOUCH_TRUNCATED;
#else
  (void)touched;
#endif
  x[v] = (float4)(to, xv.w);
#if PALPATE_DISPLACED
  u[v] = displacement_of(x[v], rest[v], wanted);
  if (has_history == 0) return;
  const float3 moved = displacement_between(p, u[v], from);
  x_before[v] = displaced_by(p, x_before[v], moved);
  x_before2[v] = displaced_by(p, x_before2[v], moved);
#else
  if (has_history == 0) return;
  x_before[v].xyz += to - xv.xyz;
  x_before2[v].xyz += to - xv.xyz;
#endif
}

static inline ulong mix_bits(ulong h) {
  h ^= h >> 33;
  h *= 0xff51afd7ed558ccdUL;
  h ^= h >> 33;
  h *= 0xc4ceb9fe1a85ec53UL;
  h ^= h >> 33;
  return h;
}

/* What the host checks of a state: x with velocities, of a contiguous share of the vertices and tets. */
static inline void check_state(const __global StepParams* p, uint me, uint items, const __global float4* x, const __global float4* velocity,
                               const __global float* mass, const __global uint* original_index, const __global uint4* tets,
                               const __global float4* tet_rest, __global StepPartial* partials) {
  StepPartial out;
  out.hash = 0;
  out.kinetic_energy_j = 0.0f;
  out.max_speed_m_per_s = 0.0f;
  out.bad_vertices = 0;
  out.inverted_tets = 0;
  out.strained_tets = 0;
  out.inverted_elastic = 0;
  uint share = (p->vertex_count + items - 1) / items;
  uint end = min((me + 1) * share, p->vertex_count);
  for (uint v = me * share; v < end; ++v) {
    const float3 xv = x[v].xyz;
    float3 vel = (float3)(0.0f);
    if (original_index[v] == NOT_A_VERTEX) continue;
    if (v < p->free_count) {
      vel = velocity[v].xyz;
      const float speed_sq = dot(vel, vel);
      out.kinetic_energy_j += 0.5f * mass[v] * speed_sq;
      out.max_speed_m_per_s = fmax(out.max_speed_m_per_s, speed_sq);
      if (!(fabs(xv.x) + fabs(xv.y) + fabs(xv.z) < 1e6f) || !(speed_sq < 1e12f)) out.bad_vertices += 1;
    } else if (!(fabs(xv.x) + fabs(xv.y) + fabs(xv.z) < 1e6f)) {
      out.bad_vertices += 1; /* driven, or of a rigid body */
    }
    ulong h = mix_bits(((ulong)original_index[v] << 32) ^ as_uint(xv.x));
    h = mix_bits(h ^ ((ulong)as_uint(xv.y) << 32 | as_uint(xv.z)));
    h = mix_bits(h ^ ((ulong)as_uint(vel.x) << 32 | as_uint(vel.y)));
    out.hash += mix_bits(h ^ as_uint(vel.z));
  }
  out.max_speed_m_per_s = sqrt(out.max_speed_m_per_s);
  share = (p->tet_count + items - 1) / items;
  end = min((me + 1) * share, p->tet_count);
  for (uint t = me * share; t < end; ++t) {
    const uint4 v = tets[t];
    if (v.x == v.y) continue; /* a free place */
    const float3 o = x[v.x].xyz;
    const float3 a = x[v.y].xyz - o;
    const float3 b = x[v.z].xyz - o;
    const float3 c = x[v.w].xyz - o;
    if (!(dot(cross(a, b), c) > 0.0f)) {
      out.inverted_tets += 1;
      out.inverted_elastic += tet_rest[3 * t].w == 0.0f ? 1 : 0;
    }
    if (p->lambda_cap < PALPATE_LAMBDA_UNCAPPED) {
      const float3 ra = tet_rest[3 * t].xyz;
      const float3 rb = tet_rest[3 * t + 1].xyz;
      const float3 rc = tet_rest[3 * t + 2].xyz;
      const float3 f0 = a * ra.x + b * rb.x + c * rc.x; /* columns of F */
      const float3 f1 = a * ra.y + b * rb.y + c * rc.y;
      const float3 f2 = a * ra.z + b * rb.z + c * rc.z;
      const float3 e = 0.5f * ((float3)(dot(f0, f0), dot(f1, f1), dot(f2, f2)) - 1.0f);
      const float3 g = 0.5f * (float3)(dot(f0, f1), dot(f0, f2), dot(f1, f2));
      if (!(dot(e, e) + 2.0f * dot(g, g) < 1.0f)) out.strained_tets += 1;
    }
  }
  partials[me] = out;
}

/* Velocities of the step, and what the host checks after it. Work-item: a contiguous share of the vertices and tets, one partial each. */
__kernel void finish_step(const __global StepParams* p, const __global uint* gate, const __global float4* x, const __global float4* x_start,
                          __global float4* velocity, __global float4* velocity_before, const __global float* mass,
                          const __global uint* original_index, const __global uint4* tets, const __global float4* tet_rest,
                          __global StepPartial* partials) {
  if (gate[0] != 0) return;
  const uint items = (uint)get_global_size(0);
  const uint me = (uint)get_global_id(0);
  const uint share = (p->vertex_count + items - 1) / items;
  const uint end = min(min((me + 1) * share, p->vertex_count), p->free_count);
  for (uint v = me * share; v < end; ++v) {
    velocity_before[v] = velocity[v];
    velocity[v] = (float4)((x[v].xyz - x_start[v].xyz) * p->inv_dt, 0.0f);
  }
  check_state(p, me, items, x, velocity, mass, original_index, tets, tet_rest, partials);
}

/* The checks alone, of a state that came from elsewhere. Work-item: as of finish_step. */
__kernel void inspect_state(const __global StepParams* p, const __global float4* x, const __global float4* velocity,
                            const __global float* mass, const __global uint* original_index, const __global uint4* tets,
                            const __global float4* tet_rest, __global StepPartial* partials) {
  check_state(p, (uint)get_global_id(0), (uint)get_global_size(0), x, velocity, mass, original_index, tets, tet_rest, partials);
}

/* Positions in the order of `indices`, packed as x y z. Work-item: entry. */
__kernel void gather_positions(uint count, const __global float4* x, const __global uint* indices, __global float* packed) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const float4 v = x[indices[i]];
  packed[3 * i] = v.x;
  packed[3 * i + 1] = v.y;
  packed[3 * i + 2] = v.z;
}
