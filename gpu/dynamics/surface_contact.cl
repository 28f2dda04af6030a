/* Contact between bodies and within a body: what surrounds the sweeps of tissue.cl. Pairs of elements are made from a detection, listed by
   vertex, linearised once a sweep; moves are bounded and checked. See docs/algorithms/surface_contact.md. */

#include "gpu/dynamics/displacement_bounds.clh"
#include "gpu/dynamics/driven_pose.clh"
#include "gpu/dynamics/norm.clh"
#include "gpu/dynamics/pair_lines.clh"
#include "gpu/dynamics/surface_contact.clh"
#include "gpu/shared/box.h"

/* Share of the way to the middle of a pair that a vertex may use; SurfaceContacts lets whole components use some of the rest. */
#define BOUND_SHARE 0.7f

/* Rounding of positions, and of what is computed from them, as a share of their coordinates. */
#define POSITION_ROUNDING 5e-7f
/* Pairs come no nearer than the least gap, or this many roundings if that is more: so near that rounding hides which side is which, a pair
   could only stay where it is, whatever pulls it apart, and hold the tissue around it. */
#define LEAST_GAP_ROUNDINGS 8.0f

/* Of the distance to a vertex's nearest plane: rounding must not take it through. */
#define CLEAR_SHARE 0.999f

static inline float least_gap(float least_gap_m, float rounding) { return fmax(least_gap_m, LEAST_GAP_ROUNDINGS * rounding); }

static inline bool on_a(uint kind, uint role) { return kind == PALPATE_VERTEX_TRIANGLE ? role == 0 : role < 2; }

/* Of pairs across a cut, whose margin is small: they bear as much pressure as others before only the planes hold them. */
#define LIP_STIFFNESS 4.0f

/* The plane of each vertex of a pair, from where it was detected. planes: [4] by role. */
static inline void store_role_planes(SurfaceContact c, uint is_disabled, float least_gap_m, const __global float4* x,
                                     __global float4* planes) {
  const float3 n = c.normal.xyz;
  const float distance_m = c.normal.w;
  const float3 at[4] = {x[c.vertices.x].xyz, x[c.vertices.y].xyz, x[c.vertices.z].xyz, x[c.vertices.w].xyz};
  /* Height above the first vertex along n of the farthest vertex of A and of the nearest vertex of B: the plane lies between. */
  const float h[4] = {0.0f, dot(n, at[1] - at[0]), dot(n, at[2] - at[0]), dot(n, at[3] - at[0])};
  const bool vertex_triangle = c.kind == PALPATE_VERTEX_TRIANGLE;
  const float top_a = vertex_triangle ? 0.0f : fmax(0.0f, h[1]);
  const float low_b = vertex_triangle ? fmin(h[1], fmin(h[2], h[3])) : fmin(h[2], h[3]);
  const float middle = 0.5f * (top_a + low_b);
  for (uint role = 0; role < 4; ++role) {
    const float rounding = POSITION_ROUNDING * (fabs(at[role].x) + fabs(at[role].y) + fabs(at[role].z));
    float4 plane = (float4)(0.0f, 0.0f, 0.0f, MAXFLOAT);
    if (is_disabled == 0u && low_b - top_a > 2.0f * rounding) {
      const bool a_side = on_a(c.kind, role);
      const float kept = 0.5f * fmin(low_b - top_a, least_gap(least_gap_m, rounding));
      const float way = (a_side ? middle - h[role] : h[role] - middle) - kept;
      plane = (float4)(a_side ? n : -n, fmax(BOUND_SHARE * way - rounding, 0.0f));
    } else if (is_disabled == 0u) {
      plane.w = fmax(0.5f * BOUND_SHARE * distance_m - rounding, 0.0f);
    }
    planes[role] = plane;
  }
}

/* Pairs from the contacts of a detection at x, and the four (vertex, 4 pair + role) entries of each with their planes; values are the
   entries' own indices.
   A pair of one body, or of components of one, acts from half its distance at rest on, if that is less than the margin: what is near at
   rest does not push itself. Where a cut parted the two they touch at rest, and act from a small share of the margin on, which they were
   opened by; so does all that lies on cuts, or lips that slide over each other would meet a step of the margin at the end of each element.
   vertex_origins: twice the number of the body that a vertex was part of at first, plus 1 if it lies on a cut.
   p->margin_m is that of the two thickest vertices. thinner_m, or null: by how much less than half of the thickest shell the surface lies
   before a vertex.
   tangled[v]: v is of an edge or triangle that passes through another. movers: see FollowedWays, or null. Work-item: contact. */
__kernel void make_pairs(uint count, float least_gap_m, const __global SurfaceParams* p, const __global SurfaceContact* contacts,
                         const __global float4* x, const __global float4* rest, const __global uint* vertex_origins,
                         const __global float* vertex_stiffness_n_per_m, const __global float* thinner_m, const __global uint* tangled,
                         const __global uint* movers, __global SurfacePair* pairs, __global PairWay* ways, __global uchar* is_near,
                         __global uint* keys, __global float4* role_planes) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const SurfaceContact c = contacts[i];
  const uint4 v = c.vertices;
  SurfacePair out;
  out.vertices = v;
  out.weights = (float4)(0.0f);
  float margin = p->margin_m;
  const uint last = c.kind == PALPATE_VERTEX_TRIANGLE ? v.y : v.z; /* a vertex of B */
  if (thinner_m) margin -= thinner_m[v.x] + thinner_m[last];
  float stiffer = 1.0f;
  const uint origin_a = vertex_origins[v.x], origin_b = vertex_origins[last];
  if (origin_a >> 1 == origin_b >> 1) {
    const float3 r0 = rest[v.x].xyz, r1 = rest[v.y].xyz, r2 = rest[v.z].xyz, r3 = rest[v.w].xyz;
    float sin_sq;
    const PairWeights w = closest_pair(c.kind, r0, r1, r2, r3, &sin_sq);
    const float rest_m = norm3(pair_vector(r0, r1, r2, r3, w));
    const bool on_cuts = (vertex_origins[v.x] & vertex_origins[v.y] & vertex_origins[v.z] & vertex_origins[v.w] & 1u) != 0u;
    if (on_cuts || rest_m < 0.001f * p->margin_m) {
      margin *= PALPATE_LIP_SHARE;
      stiffer = LIP_STIFFNESS;
    } else {
      margin = fmin(margin, 0.5f * rest_m);
    }
  }
  out.normal = (float4)(c.normal.xyz, margin);
  out.stiffness_n_per_m = 0.0f;
  uint tangled_a = tangled[v.x];
  uint tangled_b = tangled[v.z] | tangled[v.w];
  if (c.kind == PALPATE_VERTEX_TRIANGLE) {
    tangled_b |= tangled[v.y];
  } else {
    tangled_a |= tangled[v.y];
  }
  out.flags = c.kind | ((tangled_a & tangled_b) != 0u ? PALPATE_PAIR_DISABLED : 0u);
  out.full_n_per_m = stiffer * fmin(fmin(vertex_stiffness_n_per_m[v.x], vertex_stiffness_n_per_m[v.y]),
                                    fmin(vertex_stiffness_n_per_m[v.z], vertex_stiffness_n_per_m[v.w]));
  out.b = c.b;
  pairs[i] = out;
  is_near[i] = 0;
  store_role_planes(c, out.flags & PALPATE_PAIR_DISABLED, least_gap_m, x, role_planes + 4 * (size_t)i);
  if (movers) ways[i] = (PairWay){movers[v.x], movers[last], -1.0f};
  keys[4 * i] = v.x;
  keys[4 * i + 1] = v.y;
  keys[4 * i + 2] = v.z;
  keys[4 * i + 3] = v.w;
}

/* After the entries were sorted by vertex: where those of each vertex begin (begins: [vertex_count + 1]), and the plane of each entry.
   Work-item: entry, and one more. */
__kernel void bound_entries(uint entry_count, uint vertex_count, const __global uint* keys, const __global uint* entries,
                            const __global float4* role_planes, __global uint* begins, __global float4* planes) {
  const uint i = (uint)get_global_id(0);
  if (i > entry_count) return;
  const uint first = i == 0 ? 0 : keys[i - 1] + 1;
  const uint last = i == entry_count ? vertex_count : keys[i];
  for (uint v = first; v <= last; ++v) begins[v] = i;
  if (i < entry_count) planes[i] = role_planes[entries[i]];
}

/* How far a vertex may go from where it was detected, whichever way, before a plane of its own can stop it. Work-item: vertex. */
__kernel void clear_ways(uint vertex_count, const __global uint* begins, const __global float4* planes, __global float* clear_m) {
  const uint v = (uint)get_global_id(0);
  if (v >= vertex_count) return;
  float least = MAXFLOAT;
  for (uint i = begins[v]; i < begins[v + 1]; ++i) least = fmin(least, planes[i].w);
  clear_m[v] = CLEAR_SHARE * least;
}

/* linearize_pair of all pairs. Work-item: pair. */
__kernel void linearize_pairs(uint count, const __global SurfaceParams* p, const __global float4* x, const __global float4* x_start,
                              const __global uint4* triangles, const __global uint4* triangle_edges,
                              const __global uint2* edge_triangle_range, const __global uint* edge_triangles,
                              const __global uint2* vertex_triangle_range, const __global uint* vertex_triangles,
                              const __global float* way_m, __global PairWay* ways, __global SurfacePair* pairs, __global PairRow* rows,
                              __global uchar* is_near) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const Neighbourhood around = {triangles, triangle_edges, edge_triangle_range, edge_triangles, vertex_triangle_range, vertex_triangles};
  linearize_pair(i, p, x, x_start, &around, way_m, ways, pairs, rows, is_near);
}

/* Takes moves from the detection to x back as far as the planes demand. Work-item: vertex. */
__kernel void bound_moves(uint vertex_count, __global float4* x, const __global float4* detected, const __global float* clear_m,
                          const __global uint* begins, const __global float4* planes, const __global uint* held_axes,
                          __global uchar* touched) {
  const uint v = (uint)get_global_id(0);
  if (v >= vertex_count) return;
  uint cut = 0;
  const float4 at = x[v];
  const float3 from = detected[v].xyz;
  const float3 to = bounded_move(from, at.xyz, from, clear_m[v], begins[v], begins[v + 1], planes, held_axes[v], &cut);
  x[v] = (float4)(to, at.w);
  touched[v] = cut ? PALPATE_TOUCH_TRUNCATED : 0;
}

/* found[0] becomes 1 where a plane stands in the way of what the two sides of a pair of one body do together: vertex v of it is beyond, and
   would not be if the plane moved as the four vertices do on the mean. Planes that move so would part the two sides as well; planes stand,
   so what moves as a whole is held back by its own narrowest triangles. Work-item: vertex. */
__kernel void find_common_moves(uint vertex_count, const __global uint* vertex_groups, const __global float4* x,
                                const __global float4* detected, const __global float* clear_m, const __global uint* begins,
                                const __global uint* entries, const __global float4* planes, const __global SurfacePair* pairs,
                                volatile __global uint* found) {
  const uint v = (uint)get_global_id(0);
  if (v >= vertex_count || (vertex_groups[v] & PALPATE_GROUP_SELF) == 0u) return;
  const float3 move = x[v].xyz - detected[v].xyz;
  if (!(dot(move, move) > clear_m[v] * clear_m[v])) return;
  for (uint i = begins[v]; i < begins[v + 1]; ++i) {
    const float4 plane = planes[i];
    if (!(dot(plane.xyz, move) > plane.w)) continue;
    const uint4 u = pairs[entries[i] >> 2].vertices;
    if (vertex_groups[u.x] != vertex_groups[u.w]) continue;
    const float4 mean = 0.25f * ((x[u.x] - detected[u.x]) + (x[u.y] - detected[u.y]) + (x[u.z] - detected[u.z]) + (x[u.w] - detected[u.w]));
    if (dot(plane.xyz, move - mean.xyz) <= plane.w) atomic_or(found, 1u);
  }
}

/* Detected pairs may do at other positions if they are all that are nearer than one and a half margins there: half of it for each side. */
#define REFRESH_MARGINS 0.75f
/* Likewise of a body with a spare: at least half of the cap that it had. */
#define REFRESH_SPARE 0.25f

/* The longest way of a surface vertex of each body, as bits of floats, which order like integers. moves: [body] 0 at first. Work-item:
   vertex. */
__kernel void body_moves(uint vertex_count, const __global uint* vertex_groups, const __global float4* from, const __global float4* to,
                         volatile __global uint* moves) {
  const uint v = (uint)get_global_id(0);
  if (v >= vertex_count || vertex_groups[v] == PALPATE_NO_GROUP) return;
  const uint move = as_uint(norm3(from[v].xyz - to[v].xyz));
  volatile __global uint* longest = moves + (vertex_groups[v] & PALPATE_GROUP_MASK);
  if (move > *longest) atomic_max(longest, move);
}

/* Of a body that moves as a whole: the least reach [margins], and by what its way in a step counts. */
#define LEAST_REACH_MARGINS 1.0f
#define REACH_PER_WAY 1.25f

/* How far around each body the next detection looks: half the range; a rigid body by its way in this step. Of stale bodies alone, if
   `stale` is not null. moves: of body_moves, 0 afterwards. caps: how far its vertices may then go, which is less where it leaves out pairs
   with itself: spare, see ProximityRest. Work-item: body. */
__kernel void look_ahead(uint body_count, const __global SurfaceParams* p, const __global uint* is_whole, const __global float* spare,
                         const __global uint* stale, __global uint* moves, __global float* reaches, __global float* caps) {
  const uint i = (uint)get_global_id(0);
  if (i >= body_count) return;
  if (stale && stale[i] == 0u) {
    moves[i] = 0;
    return;
  }
  const float full = 0.5f * p->range_m;
  const float wanted = fmax(LEAST_REACH_MARGINS * p->margin_m, 0.5f * p->margin_m + REACH_PER_WAY * as_float(moves[i]));
  const float reach = is_whole[i] ? fmin(wanted, full) : full;
  reaches[i] = reach;
  caps[i] = spare[i] > 0.0f ? fmin(reach, 0.5f * spare[i]) : reach;
  moves[i] = 0;
}

/* Bodies of which a vertex goes farther than the cap, or is no number. Work-item: body. */
__kernel void mark_beyond(uint body_count, const __global float* caps, __global uint* moves, __global uint* beyond) {
  const uint i = (uint)get_global_id(0);
  if (i >= body_count) return;
  beyond[i] = as_float(moves[i]) <= PALPATE_CAP_SHARE * caps[i] ? 0u : 1u;
  moves[i] = 0;
}

/* The same pairs at other positions: less is known by what the bodies have moved. stale: whether that is too little. Work-item: body. */
__kernel void spend_reaches(uint body_count, const __global SurfaceParams* p, const __global float* spare, __global uint* moves,
                            __global float* reaches, __global float* caps, __global uint* stale) {
  const uint i = (uint)get_global_id(0);
  if (i >= body_count) return;
  const float way = 1.00001f * as_float(moves[i]);
  const float left = reaches[i] - way;
  const float cap = caps[i] - way;
  reaches[i] = left;
  caps[i] = cap;
  stale[i] = left >= REFRESH_MARGINS * p->margin_m && cap >= REFRESH_SPARE * spare[i] ? 0u : 1u;
  moves[i] = 0;
}

/* What became of the vertices since the detection. Work-item: a contiguous share of the vertices. */
__kernel void check_moves(uint vertex_count, const __global SurfaceParams* p, const __global float* reaches, const __global float* caps,
                          const __global float* spare, const __global float4* x, const __global float4* detected,
                          const __global uint* vertex_groups, const __global uchar* touched, __global MovePartial* partials) {
  const uint me = (uint)get_global_id(0);
  const uint share = (vertex_count + (uint)get_global_size(0) - 1) / (uint)get_global_size(0);
  const uint begin = min(me * share, vertex_count);
  const uint end = min(begin + share, vertex_count);
  MovePartial out;
  out.beyond_cap = 0;
  out.truncated = 0;
  out.bad = 0;
  out.used_up = 0;
  out.longest_m = 0.0f;
  for (uint v = begin; v < end; ++v) {
    const float3 at = x[v].xyz;
    if (!(fabs(at.x) + fabs(at.y) + fabs(at.z) < 1e6f)) {
      out.bad += 1;
      continue;
    }
    if (vertex_groups[v] == PALPATE_NO_GROUP) continue;
    const uint body = vertex_groups[v] & PALPATE_GROUP_MASK;
    const float move = norm3(at - detected[v].xyz);
    if (vertex_groups[v] & PALPATE_GROUP_SELF) out.longest_m = fmax(out.longest_m, move);
    if (!(move <= PALPATE_CAP_SHARE * caps[body])) out.beyond_cap += 1;
    if (!(reaches[body] - move >= REFRESH_MARGINS * p->margin_m && caps[body] - move >= REFRESH_SPARE * spare[body])) out.used_up += 1;
    if (touched[v] & PALPATE_TOUCH_TRUNCATED) out.truncated += 1;
  }
  partials[me] = out;
}

/* See StepGate. Work-item: one. */
__kernel void judge_moves(uint parts, const __global MovePartial* moves, uint limit, uint asks_for_bad, uint number, __global uint* gate) {
  if (get_global_id(0) != 0 || gate[0] != 0) return;
  uint beyond_cap = 0, truncated = 0, bad = 0;
  for (uint i = 0; i < parts; ++i) {
    beyond_cap += moves[i].beyond_cap;
    truncated += moves[i].truncated;
    bad += moves[i].bad;
  }
  if (bad != 0 ? asks_for_bad != 0 : beyond_cap != 0 || truncated > limit) gate[0] = number;
}

/* Work-item: one. */
__kernel void judge_obstacles(const __global ObstacleCounters* counters, uint number, __global uint* gate) {
  if (get_global_id(0) != 0 || gate[0] != 0) return;
  if ((counters->meetings | counters->behind | counters->bad) != 0) gate[0] = number;
}

/* Every pair that pushes, for the host, which sorts them. Counts past capacity. Work-item: pair. */
__kernel void report_pairs(uint count, uint capacity, const __global SurfaceParams* p, const __global float4* x,
                           const __global float4* x_start, const __global SurfaceContact* contacts, const __global SurfacePair* pairs,
                           __global uint* header, __global SurfaceReport* reports) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const SurfacePair pair = pairs[i];
  if (pair.stiffness_n_per_m == 0.0f) return;
  const uint4 v = pair.vertices;
  const float3 x0 = x[v.x].xyz, x1 = x[v.y].xyz, x2 = x[v.z].xyz, x3 = x[v.w].xyz;
  PairWeights w;
  w.w0 = pair.weights.x;
  w.w1 = pair.weights.y;
  w.w2 = pair.weights.z;
  w.w3 = pair.weights.w;
  const float3 n = pair.normal.xyz;
  const float3 d = pair_vector(x0, x1, x2, x3, w);
  const float gap = dot(n, d);
  float slope;
  const float force = barrier_force(gap, pair.normal.w, pair.stiffness_n_per_m, &slope);
  if (force == 0.0f) return;
  const uint at = atomic_inc(header);
  if (at >= capacity) return;
  float3 slip = d - pair_vector(x_start[v.x].xyz, x_start[v.y].xyz, x_start[v.z].xyz, x_start[v.w].xyz, w);
  slip -= dot(slip, n) * n;
  const float3 point_a = pair.flags & PALPATE_PAIR_KIND_MASK ? x0 + w.w1 * (x0 - x1) : x0; /* w1 is negative on an edge of A */
  SurfaceReport r;
  r.kind = pair.flags & PALPATE_PAIR_KIND_MASK;
  r.a = contacts[i].a;
  r.b = pair.b;
  r.unused = 0;
  r.vertices = v;
  r.point_a = (float4)(point_a, norm3(d));
  r.point_b = (float4)(point_a + d, 0.0f);
  r.normal = (float4)(n, force);
  r.force = (float4)(force * n - p->friction * force / fmax(norm3(slip), p->slip_m) * slip, 0.0f);
  reports[at] = r;
}

/* The first guess of a step, or what a sweep made of vertices that nothing bounds, as shares of straight moves from `detected` to `goal`:
   every vertex of a pair that meets on the way gets a share that ends a little before, or with `stop` none. A pair that rests
   can only be too near for the detection to tell, and counts as apart. shares: bits of floats, 1 at first, which order like integers.
   found[0]: how many hits count; found[1]: bits of the least time of impact of those. Work-item: hit. */
__kernel void shorten_moves(uint count, uint stop, float least_gap_m, const __global SurfaceParams* p, const __global CcdHit* hits,
                            const __global float4* detected, const __global float4* x, const __global uint* tangled, __global uint* shares,
                            __global uint* found) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const CcdHit hit = hits[i];
  const uint4 v = hit.vertices;
  const bool vertex_triangle = hit.kind == PALPATE_VERTEX_TRIANGLE;
  const uint tangled_a = tangled[v.x] | (vertex_triangle ? 0u : tangled[v.y]);
  const uint tangled_b = (vertex_triangle ? tangled[v.y] : 0u) | tangled[v.z] | tangled[v.w];
  if ((tangled_a & tangled_b) != 0u) return;
  const float3 m0 = x[v.x].xyz - detected[v.x].xyz;
  const float3 m1 = x[v.y].xyz - detected[v.y].xyz;
  const float3 m2 = x[v.z].xyz - detected[v.z].xyz;
  const float3 m3 = x[v.w].xyz - detected[v.w].xyz;
  float approach = fmax(norm3(m0 - m2), norm3(m0 - m3));
  approach = fmax(approach, vertex_triangle ? norm3(m0 - m1) : fmax(norm3(m1 - m2), norm3(m1 - m3)));
  if (approach == 0.0f && dot(m0, m0) == 0.0f) return;
  atomic_inc(found);
  atomic_min(found + 1, as_uint(hit.toi));
  /* Half a margin before they meet, where the barrier takes over; at least half of the way, unless that leaves less than the least gap. */
  const float near = fmax(0.5f * hit.toi, hit.toi - 0.5f * p->margin_m / approach) * 0.999f;
  const float3 a0 = detected[v.x].xyz + near * m0, a1 = detected[v.y].xyz + near * m1;
  const float3 a2 = detected[v.z].xyz + near * m2, a3 = detected[v.w].xyz + near * m3;
  float sin_sq;
  const PairWeights w = closest_pair(hit.kind, a0, a1, a2, a3, &sin_sq);
  const float left_m = norm3(pair_vector(a0, a1, a2, a3, w));
  const float least_m = least_gap(least_gap_m, POSITION_ROUNDING * (fabs(a0.x) + fabs(a0.y) + fabs(a0.z)));
  const uint share = as_uint(stop || left_m < least_m ? 0.0f : near);
  atomic_min(shares + v.x, share);
  atomic_min(shares + v.y, share);
  atomic_min(shares + v.z, share);
  atomic_min(shares + v.w, share);
}

/* kept *= shares; the shares are 1 again. Work-item: vertex. */
__kernel void keep_shares(uint vertex_count, __global uint* shares, __global float* kept) {
  const uint v = (uint)get_global_id(0);
  if (v >= vertex_count) return;
  kept[v] *= as_float(shares[v]);
  shares[v] = as_uint(1.0f);
}

/* One ring of what was shortened: behind a vertex that stopped its neighbours may come nearer by half of their distance at most, so that
   the tissue behind an impact is squeezed and not turned inside out. Work-item: free vertex; others keep their share. Lists of neighbours
   as in tissue.cl: [block][4][lanes]. */
__kernel void spread_shares(uint vertex_count, uint free_count, uint lanes, const __global uint2* block_range,
                            const __global uint* corner_index, const __global float4* detected, const __global float4* goal,
                            const __global float* kept, __global float* spread) {
  const uint v = (uint)get_global_id(0);
  if (v >= vertex_count) return;
  float share = kept[v];
  if (v < free_count) {
    const float3 at = detected[v].xyz;
    const float move = norm3(goal[v].xyz - at);
    const uint2 blocks = block_range[v];
    for (uint block = blocks.x; block < blocks.y; ++block) {
      const __global uint* index = corner_index + (size_t)block * 4 * lanes;
      for (uint i = 0; i < 3 * lanes; ++i) {
        const uint u = index[i];
        if (kept[u] >= share) continue;
        share = fmin(share, kept[u] + 0.5f * norm3(at - detected[u].xyz) / move);
      }
    }
  }
  spread[v] = share;
}

/* x = detected + kept * scale (goal - detected); vertices that got less than their goal are marked. Work-item: vertex. */
__kernel void apply_shares(uint vertex_count, float scale, const __global float4* detected, const __global float4* goal,
                           __global float* kept, __global float4* x, __global uchar* touched) {
  const uint v = (uint)get_global_id(0);
  if (v >= vertex_count) return;
  const float share = kept[v] * scale;
  kept[v] = share;
  const float4 to = goal[v];
  const float3 from = detected[v].xyz;
  x[v] = share < 1.0f ? (float4)(from + share * (to.xyz - from), to.w) : to;
  if (share < 1.0f) touched[v] |= PALPATE_TOUCH_TRUNCATED;
}

/* Inertial targets of driven vertices, and their first guess: where their region takes them, or the mean of several. regions, shares: see
   TissueDrivenBlend. Work-item: driven vertex. */
__kernel void drive_vertices(uint count, const __global uint* vertices, const __global uint4* regions, const __global float4* shares,
                             const __global DrivenPose* poses, const __global float4* rest, __global float4* y, __global float4* x) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const uint v = vertices[i];
  const float4 target = (float4)(blended_place(poses, regions[i], shares[i], rest[v].xyz), 0.0f);
  y[v] = target;
  x[v] = target;
}

/* The same for vertices whose places the caller prescribes. Work-item: prescribed vertex; `vertices` begins with `driven` others. */
__kernel void prescribe_vertices(uint count, uint driven, const __global uint* vertices, const __global float4* targets, __global float4* y,
                                 __global float4* x) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const uint v = vertices[driven + i];
  y[v] = targets[i];
  x[v] = targets[i];
}

/* Driven and prescribed vertices go on towards their targets as far as the planes allow. Work-item: driven vertex. */
__kernel void move_driven(uint count, const __global uint* vertices, const __global float4* y, const __global float4* detected,
                          const __global float* clear_m, const __global uint* begins, const __global float4* planes, __global float4* x,
                          __global uchar* touched) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const uint v = vertices[i];
  uint cut = 0;
  x[v] = (float4)(bounded_move(x[v].xyz, y[v].xyz, detected[v].xyz, clear_m[v], begins[v], begins[v + 1], planes, 0u, &cut), 0.0f);
  touched[v] = cut ? PALPATE_TOUCH_TRUNCATED : 0;
}

/* What each pair means for the components that it joins. Work-item: pair. */
__kernel void component_rows(uint count, const __global SurfaceParams* p, const __global SurfaceContact* contacts,
                             const __global SurfacePair* pairs, const __global uint* vertex_component, const __global float4* x,
                             const __global float4* x_start, __global ComponentRow* rows) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const SurfacePair pair = pairs[i];
  const uint4 v = pair.vertices;
  ComponentRow row;
  row.normal = (float4)(0.0f);
  row.friction = (float4)(0.0f);
  row.detected = contacts[i].normal;
  row.component_a = vertex_component[v.x];
  row.component_b = pair.flags & PALPATE_PAIR_DISABLED ? row.component_a : vertex_component[v.w];
  row.slope_n_per_m = 0.0f;
  const float3 size = fmax(fmax(fabs(x[v.x].xyz), fabs(x[v.y].xyz)), fmax(fabs(x[v.z].xyz), fabs(x[v.w].xyz)));
  row.rounding_m = POSITION_ROUNDING * (size.x + size.y + size.z);
  if (row.component_a != row.component_b && pair.stiffness_n_per_m != 0.0f) {
    PairWeights w;
    w.w0 = pair.weights.x;
    w.w1 = pair.weights.y;
    w.w2 = pair.weights.z;
    w.w3 = pair.weights.w;
    const float3 n = pair.normal.xyz;
    const float3 d = pair_vector(x[v.x].xyz, x[v.y].xyz, x[v.z].xyz, x[v.w].xyz, w);
    float slope;
    const float force = barrier_force(dot(n, d), pair.normal.w, pair.stiffness_n_per_m, &slope);
    float3 slip = d - pair_vector(x_start[v.x].xyz, x_start[v.y].xyz, x_start[v.z].xyz, x_start[v.w].xyz, w);
    slip -= dot(slip, n) * n;
    const float factor = p->friction * force / fmax(norm3(slip), p->slip_m);
    row.normal = (float4)(n, force);
    row.friction = (float4)(factor * slip, factor);
    row.slope_n_per_m = slope;
  }
  rows[i] = row;
}

/* How much farther into the margin of each plane, or beyond, a first guess takes a component than its surface was at the start of the
   step. Work-item: part of a component; depths: [component_count][parts][4 + plane_count], m: the sum of its vertices' moves, their number,
   depths. */
__kernel void component_depths(uint component_count, uint parts, uint plane_count, const __global SurfaceParams* p,
                               const __global uint* component_begin, const __global uint* component_vertices,
                               const __global float4* x_start, const __global float4* x, const __global uint2* vertex_triangle_range,
                               const __global PlaneObstacle* planes, __global float* depths) {
  const uint i = (uint)get_global_id(0);
  if (i >= component_count * parts) return;
  __global float* out = depths + (size_t)i * (4 + plane_count);
  float4 sum = (float4)(0.0f);
  for (uint k = component_begin[i / parts] + i % parts; k < component_begin[i / parts + 1]; k += parts) {
    const uint v = component_vertices[k];
    sum += (float4)(x[v].xyz - x_start[v].xyz, 1.0f);
  }
  vstore4(sum, 0, out);
  for (uint j = 0; j < plane_count; ++j) {
    const float4 plane = planes[j].normal_offset;
    float deepest = 0.0f;
    for (uint k = component_begin[i / parts] + i % parts; k < component_begin[i / parts + 1]; k += parts) {
      const uint v = component_vertices[k];
      if (vertex_triangle_range[v].x == vertex_triangle_range[v].y) continue;
      const float before = fmin(dot(plane.xyz, x_start[v].xyz) - plane.w, p->margin_m);
      deepest = fmax(deepest, before - (dot(plane.xyz, x[v].xyz) - plane.w));
    }
    out[4 + j] = deepest;
  }
}

/* Moves whole components, and with them where their vertices were at the detection and in the sweeps before: within a component nothing
   changes. history: whether there are x_before and x_before2. moves, or null: [1] whether any does. Work-item: vertex. */
__kernel void shift_components(uint vertex_count, const __global uint* vertex_component, const __global uint* moves,
                               const __global float4* shifts, __global float4* x, __global float4* detected, uint history,
                               __global float4* x_before, __global float4* x_before2) {
  const uint v = (uint)get_global_id(0);
  if (moves && moves[0] == 0) return;
  if (v >= vertex_count || vertex_component[v] == PALPATE_NO_COMPONENT) return;
  const float4 shift = shifts[vertex_component[v]];
  x[v] += shift;
  detected[v] += shift;
  if (history == 0) return;
  x_before[v] += shift;
  x_before2[v] += shift;
}

/* Boxes of each body's moves from `from` to `to`, in parts. Work-item: part of a body; boxes: [body_count][parts]. */
__kernel void body_boxes(uint body_count, uint parts, const __global uint* body_begin, const __global uint* body_vertices,
                         const __global float4* from, const __global float4* to, __global Box* boxes) {
  const uint i = (uint)get_global_id(0);
  if (i >= body_count * parts) return;
  const uint body = i / parts;
  float4 lower = (float4)(INFINITY, INFINITY, INFINITY, 0.0f);
  float4 upper = (float4)(-INFINITY, -INFINITY, -INFINITY, 0.0f);
  for (uint k = body_begin[body] + i % parts; k < body_begin[body + 1]; k += parts) {
    const float4 a = from[body_vertices[k]];
    const float4 b = to[body_vertices[k]];
    lower.xyz = fmin(lower.xyz, fmin(a.xyz, b.xyz));
    upper.xyz = fmax(upper.xyz, fmax(a.xyz, b.xyz));
  }
  boxes[i].lower = lower;
  boxes[i].upper = upper;
}

/* Marks the vertices of elements that pass through each other. Work-item: crossing, an edge and a triangle. */
__kernel void mark_tangled(uint count, const __global uint2* crossings, const __global uint2* edges, const __global uint4* triangles,
                           __global uint* tangled) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const uint2 e = edges[crossings[i].x];
  const uint4 t = triangles[crossings[i].y];
  atomic_or(tangled + e.x, 1u);
  atomic_or(tangled + e.y, 1u);
  atomic_or(tangled + t.x, 1u);
  atomic_or(tangled + t.y, 1u);
  atomic_or(tangled + t.z, 1u);
}
