/* clang-format off */
/* Coarse corrections between sweeps: d = P Q B Q' P' f for the force f that the sweeps have left, along which the vertices then go as far
   as the force along d tells. B is (P' H P)^-1, or a V-cycle that comes near it. Q turns the rest shape's nodes as their vertices have
   turned; docs/algorithms/tissue.md, "Coarse correction".

   Where bodies keep their volume there is a second pass, with the gradient of the volume in the place of f: give_way, and volume.cl.

   Build option: PALPATE_COARSE_GROUP  work-items that share a node in solve_nodes, 1 or a power of two.

   Arrays, see coarse_lattice.h. Of vertices by slot: vertex_nodes, vertex_weights [slot][8]. Of nodes: entries node_begins[n] ..
   node_begins[n + 1] of entry_vertex and entry_weight; node_slot: x = place of its three floats in node_force if it is solved, y = its fine
   node if it is not, NO_NODE otherwise. Of solved nodes: solved_part: x = first of its part, y = floats of a row of the part's inverse,
   z = place of its first row in rows of eight floats, w = place of the part's first float in node_force; solved_node: its lattice node or
   NO_NODE. node_force: in a part three floats a solved node one after the other, each part padded to whole rows. Of fine nodes: residual,
   direction, solution in the frame of the rest shape. */
/* clang-format on */
#ifndef PALPATE_COARSE_GROUP /* default for tools that look at this file alone */
#define PALPATE_COARSE_GROUP 64
#endif

#include "gpu/dynamics/shape_matching.clh"

#define CORNERS 8
#define NO_NODE 0xffffffffu
#define NO_BODY 0xffffffffu

/* How the vertices of a node have turned since rest, as a quaternion. Work-item: node. */
__kernel void turn_nodes(uint node_count, const __global uint* node_begins, const __global uint* entry_vertex,
                         const __global float* entry_weight, const __global float4* rest, const __global float4* x,
                         __global float4* rotations) {
  const uint n = (uint)get_global_id(0);
  if (n >= node_count) return;
  const uint begin = node_begins[n];
  const uint end = node_begins[n + 1];
  float sum = 0.0f;
  float3 now = (float3)(0.0f), then = (float3)(0.0f);
  for (uint e = begin; e < end; ++e) {
    const float w = entry_weight[e];
    sum += w;
    now += w * x[entry_vertex[e]].xyz;
    then += w * rest[entry_vertex[e]].xyz;
  }
  now /= fmax(sum, 1e-6f);
  then /= fmax(sum, 1e-6f);
  Matrix3 a;
  a.x = a.y = a.z = (float3)(0.0f);
  for (uint e = begin; e < end; ++e) {
    add_outer_product(&a, entry_weight[e], x[entry_vertex[e]].xyz - now, rest[entry_vertex[e]].xyz - then);
  }
  uint rank;
  bool converged;
  rotations[n] = matching_rotation(&a, &rank, &converged);
}

static inline float3 block_product(const __global float4* columns, float3 v) {
  return columns[0].xyz * v.x + columns[1].xyz * v.y + columns[2].xyz * v.z;
}

/* Whether something pushes or holds the vertex: corrections leave it where it is. A body's own stiffness says nothing of a contact's, which
   comes and goes over a small part of the way that the body as a whole would go. */
static inline bool is_held(float4 force) { return force.w != 0.0f; }

/* Forces of the vertices that nothing holds, at the nodes, turned back to the rest shape; fine nodes begin to smooth with them. Work-item:
   node. */
__kernel void gather_forces(uint node_count, const __global uint* node_begins, const __global uint* entry_vertex,
                            const __global float* entry_weight, const __global uint* node_frame, const __global uint2* node_slot,
                            const __global float4* rotations, const __global float4* forces, __global float* node_force,
                            const __global float4* inverse_diagonal, float first, __global float4* residual, __global float4* direction,
                            __global float4* solution) {
  const uint n = (uint)get_global_id(0);
  if (n >= node_count) return;
  float3 sum = (float3)(0.0f);
  for (uint e = node_begins[n]; e < node_begins[n + 1]; ++e) {
    const uint v = entry_vertex[e];
    if (!is_held(forces[v])) sum += entry_weight[e] * forces[v].xyz;
  }
  sum = quaternion_rotate(quaternion_inverse(rotations[node_frame[n]]), sum);
  const uint2 slot = node_slot[n];
  if (slot.x != NO_NODE) {
    vstore3(sum, 0, node_force + slot.x);
    return;
  }
  const float4 d = (float4)(first * block_product(inverse_diagonal + (size_t)3 * slot.y, sum), 0.0f);
  residual[slot.y] = (float4)(sum, 0.0f);
  direction[slot.y] = d;
  solution[slot.y] = d;
}

/* A step of Chebyshev's iteration with D^-1 A: what the last direction leaves of the residual, and the next direction, `keep` times the
   last and `add` times the new. Work-item: fine node. */
__kernel void relax_nodes(uint fine_count, const __global uint* row_begins, const __global uint* columns, const __global float4* blocks,
                          const __global float4* inverse_diagonal, const __global uint* fine_nodes, const __global uint* node_frame,
                          const __global float4* rotations, float keep, float add, const __global float4* direction,
                          __global float4* next_direction, __global float4* residual, __global float4* solution,
                          __global float4* node_move) {
  const uint i = (uint)get_global_id(0);
  if (i >= fine_count) return;
  float3 r = residual[i].xyz;
  for (uint e = row_begins[i]; e < row_begins[i + 1]; ++e) r -= block_product(blocks + (size_t)3 * e, direction[columns[e]].xyz);
  const float3 next = keep * direction[i].xyz + add * block_product(inverse_diagonal + (size_t)3 * i, r);
  const float3 s = solution[i].xyz + next;
  residual[i] = (float4)(r, 0.0f);
  next_direction[i] = (float4)(next, 0.0f);
  solution[i] = (float4)(s, 0.0f);
  const uint n = fine_nodes[i];
  node_move[n] = (float4)(quaternion_rotate(rotations[node_frame[n]], s), 0.0f);
}

/* What is left at fine nodes, at those that they hang on. Work-item: solved node. */
__kernel void restrict_residual(uint solved_count, const __global uint* child_begins, const __global uint* children,
                                const __global float* child_weights, const __global uint4* solved_part, const __global float4* residual,
                                __global float* node_force) {
  const uint s = (uint)get_global_id(0);
  if (s >= solved_count) return;
  const uint begin = child_begins[s];
  const uint end = child_begins[s + 1];
  if (begin == end) return; /* of a part that is solved as it is */
  float3 sum = (float3)(0.0f);
  for (uint e = begin; e < end; ++e) sum += child_weights[e] * residual[children[e]].xyz;
  const uint4 part = solved_part[s];
  vstore3(sum, 0, node_force + part.w + 3 * (s - part.x));
}

/* Rows of the inverse times the forces of the part, in the frame of the rest shape; where a lattice node is solved its move, turned as its
   vertices are. Work-group: solved node. */
__kernel __attribute__((reqd_work_group_size(PALPATE_COARSE_GROUP, 1, 1))) void solve_nodes(
    const __global uint4* solved_part, const __global uint* solved_node, const __global uint* node_frame, const __global float4* rotations,
    const __global float* inverse, const __global float* node_force, __global float4* solved_move, __global float4* node_move) {
  __local float sums[3 * PALPATE_COARSE_GROUP];
  const uint s = (uint)get_group_id(0);
  const uint me = (uint)get_local_id(0);
  const uint4 part = solved_part[s];
  const __global float* force = node_force + part.w;
  const __global float* row = inverse + 8 * ((size_t)part.z + (size_t)3 * (s - part.x) * (part.y / 8));
  float8 a = (float8)(0.0f), b = (float8)(0.0f), c = (float8)(0.0f);
  for (uint k = 8 * me; k < part.y; k += 8 * PALPATE_COARSE_GROUP) {
    const float8 f = vload8(0, force + k);
    a += vload8(0, row + k) * f;
    b += vload8(0, row + part.y + k) * f;
    c += vload8(0, row + 2 * part.y + k) * f;
  }
  const float4 a4 = a.lo + a.hi, b4 = b.lo + b.hi, c4 = c.lo + c.hi;
  __local float* mine = sums + 3 * me;
  mine[0] = (a4.x + a4.z) + (a4.y + a4.w);
  mine[1] = (b4.x + b4.z) + (b4.y + b4.w);
  mine[2] = (c4.x + c4.z) + (c4.y + c4.w);
  for (uint half_group = PALPATE_COARSE_GROUP / 2; half_group > 0; half_group /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (me < half_group) {
      for (uint k = 0; k < 3; ++k) mine[k] += mine[3 * half_group + k];
    }
  }
  if (me != 0) return;
  const float3 move = (float3)(mine[0], mine[1], mine[2]);
  solved_move[s] = (float4)(move, 0.0f);
  const uint n = solved_node[s];
  if (n != NO_NODE) node_move[n] = (float4)(quaternion_rotate(rotations[node_frame[n]], move), 0.0f);
}

/* Moves of the solved nodes at the fine ones that hang on them, the next direction. Work-item: fine node. */
__kernel void prolong_moves(uint fine_count, const __global uint* parents, const __global float* parent_weights,
                            const __global float4* solved_move, __global float4* direction, __global float4* solution) {
  const uint i = (uint)get_global_id(0);
  if (i >= fine_count) return;
  float4 move = (float4)(0.0f);
  for (uint c = 0; c < CORNERS; ++c) {
    const float weight = parent_weights[(size_t)i * CORNERS + c];
    if (weight > 0.0f) move += weight * solved_move[parents[(size_t)i * CORNERS + c]];
  }
  direction[i] = move;
  solution[i] += move;
}

/* The slots of free vertices that belong to this work-item, [begin, end). */
static inline uint2 own_slots(uint free_count) {
  const uint items = (uint)get_global_size(0);
  const uint share = (free_count + items - 1) / items;
  const uint begin = min((uint)get_global_id(0) * share, free_count);
  return (uint2)(begin, min(begin + share, free_count));
}

/* Moves of the vertices, where they would lead, and the force along them; fixed ones stay. Work-item: a contiguous share of the free slots,
   and of the fixed ones, which come after them; sums: [item]. */
__kernel void spread_moves(uint vertex_count, uint free_count, const __global uint* vertex_nodes, const __global float* vertex_weights,
                           const __global float4* node_move, const __global float4* forces, const __global float4* x, __global float4* moves,
                           __global float4* trial, __global float* sums) {
  const uint me = (uint)get_global_id(0);
  const uint2 own = own_slots(free_count);
  float sum = 0.0f;
  for (uint v = own.x; v < own.y; ++v) {
    float3 move = (float3)(0.0f);
    for (uint c = 0; c < CORNERS && !is_held(forces[v]); ++c) {
      const float weight = vertex_weights[(size_t)v * CORNERS + c];
      if (weight > 0.0f) move += weight * node_move[vertex_nodes[(size_t)v * CORNERS + c]].xyz;
    }
    moves[v] = (float4)(move, 0.0f);
    trial[v] = x[v] + (float4)(move, 0.0f);
    sum += dot(forces[v].xyz, move);
  }
  sums[me] = sum;
  const uint share = (vertex_count - free_count + (uint)get_global_size(0) - 1) / (uint)get_global_size(0);
  const uint end = min(free_count + (me + 1) * share, vertex_count);
  for (uint v = free_count + me * share; v < end; ++v) {
    moves[v] = (float4)(0.0f);
    trial[v] = x[v];
  }
}

/* Takes from the moves of bodies that keep their volume what volume_shares tells. slot_body: place among these, NO_BODY of others.
   Work-item: as of spread_moves. */
__kernel void give_way(uint free_count, const __global uint* slot_body, const __global float* shares, const __global float4* yields,
                       const __global float4* forces, const __global float4* x, __global float4* moves, __global float4* trial,
                       __global float* sums) {
  const uint2 own = own_slots(free_count);
  float sum = 0.0f;
  for (uint v = own.x; v < own.y; ++v) {
    const uint body = slot_body[v];
    float4 move = moves[v];
    if (body != NO_BODY) move.xyz -= shares[body] * yields[v].xyz;
    moves[v] = move;
    trial[v] = x[v] + move;
    sum += dot(forces[v].xyz, move.xyz);
  }
  sums[get_global_id(0)] = sum;
}

/* Squares of forces over masses, of vertices that weigh at a node. Work-item: as of spread_moves. */
__kernel void sum_left(uint free_count, const __global float* vertex_weights, const __global float4* forces, const __global float* mass,
                       __global float* sums) {
  const uint2 own = own_slots(free_count);
  float sum = 0.0f;
  for (uint v = own.x; v < own.y; ++v) {
    const __global float* weights = vertex_weights + (size_t)v * CORNERS;
    float weight = 0.0f;
    for (uint c = 0; c < CORNERS; ++c) weight += weights[c];
    if (weight > 0.0f) sum += dot(forces[v].xyz, forces[v].xyz) / mass[v];
  }
  sums[get_global_id(0)] = sum;
}

/* The force along the moves where they lead. Work-item: as of spread_moves. */
__kernel void sum_along(uint free_count, const __global float4* forces, const __global float4* moves, __global float* sums) {
  const uint2 own = own_slots(free_count);
  float sum = 0.0f;
  for (uint v = own.x; v < own.y; ++v) sum += dot(forces[v].xyz, moves[v].xyz);
  sums[get_global_id(0)] = sum;
}

static inline float sum_of(uint count, const __global float* values) {
  float sum = 0.0f;
  for (uint i = 0; i < count; ++i) sum += values[i];
  return sum;
}

#define MOST_SHARE 2.0f
#define MOST_LEFT 0.3f /* of the force along the moves at their start */

/* How much of the moves leads to where the force along them is zero, as the line through both its values tells. None if it does not push
   that way at the start, or if any of it is not finite. tet_sums: what belongs to sums_end besides, if has_tets is 1. share: [2], the
   second the force at the end of the moves over that at their start. Work-item: one. */
__kernel void find_share(uint count, const __global float* sums_start, const __global float* sums_end, uint has_tets,
                         const __global float* tet_sums, __global float* share) {
  if (get_global_id(0) != 0) return;
  const float start = sum_of(count, sums_start);
  const float end = sum_of(count, sums_end) + sum_of(has_tets * count, tet_sums);
  float found = 0.0f;
  if (start > 0.0f && isfinite(start) && isfinite(end)) {
    found = start - end > start / MOST_SHARE ? start / (start - end) : end > 0.0f ? 1.0f : MOST_SHARE;
  }
  share[0] = found;
  share[1] = end / start;
}

/* Where the share of the moves leads. Work-item: free vertex. */
__kernel void try_share(uint free_count, const __global float4* x, const __global float4* moves, const __global float* share,
                        __global float4* trial) {
  const uint v = (uint)get_global_id(0);
  if (v >= free_count) return;
  trial[v] = x[v] + share[0] * moves[v];
}

/* Gives the moves up if the force along them pushes back where their share leads: something stiff came on the way, and the line through
   the ends knows nothing of that. Where it still pushes on, it fell late on the way, as it does where moves are turns that stretch, or end
   in a contact. Then the line from there to the end is below it, and leads farther. Work-item: one. */
__kernel void judge_share(uint count, const __global float* sums_start, const __global float* sums_end, uint has_tets,
                          const __global float* tet_sums, __global float* share) {
  if (get_global_id(0) != 0 || share[0] == 0.0f) return;
  const float start = sum_of(count, sums_start);
  const float left = (sum_of(count, sums_end) + sum_of(has_tets * count, tet_sums)) / start;
  if (!(left >= -MOST_LEFT && left < INFINITY)) {
    share[0] = 0.0f;
  } else if (left > MOST_LEFT && share[0] < 1.0f) {
    share[0] += (1.0f - share[0]) * left / (left - share[1]);
  }
}
