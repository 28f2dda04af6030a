/* clang-format off */
/* Bodies that resist a change of their volume V with the energy k (V - V0)^2 / (2 V0); docs/algorithms/tissue.md, "Keeping volume".

   Build option: PALPATE_VOLUME_GROUP  work-items that share a body in volume_pressure, 1 or a power of two.

   The surface vertices of such bodies have entries: colour by colour, in a colour body by body, those of fixed vertices last. Those of body
   b in colour c are begins[c body_count + b] .. begins[c body_count + b + 1]. What solve_color leaves of entry e, with the area vector
   a = dV/dx of its vertex, the move u of the vertex that the other forces want, and the block H of those:
     moves[3 e]      (u, a . u)
     moves[3 e + 1]  (w, a . w), w = H^-1 a
     moves[3 e + 2]  a, whose w is a . move once keep_volumes has moved the vertex

   bodies: x = k' / V0 [Pa/m^3], y = k' / k, z = V - V0 [m^3], w = pressure [Pa] of the colour that was balanced last; k' <= k acts within a
   sweep, and a multiplier [Pa] that follows from sweep to sweep makes up for the rest. */
/* clang-format on */

#ifndef PALPATE_VOLUME_GROUP /* default for tools that look at this file alone */
#define PALPATE_VOLUME_GROUP 64
#endif

#define NO_COLOR 0xffffffffu
#define IN_THIS_SWEEP 0xfffffffeu
#define IN_NEXT_SWEEP 0xfffffffdu

/* Adds to a sum that carries what its additions round off (Neumaier). */
static inline void add_to(float* sum, float* lost, float value) {
  const float next = *sum + value;
  *lost += fabs(*sum) >= fabs(value) ? (*sum - next) + value : (value - next) + *sum;
  *sum = next;
}

/* Shares of the volumes: signed volumes between a point of the body and its triangles. Work-item: part of a body.
   partials: [body][part] sum [m^3] and what it rounded off. */
__kernel void measure_volumes(uint body_count, uint parts, const __global uint* triangle_begins, const __global uint* body_triangles,
                              const __global uint4* triangles, const __global float4* x, __global float2* partials) {
  const uint i = (uint)get_global_id(0);
  if (i >= body_count * parts) return;
  const uint begin = triangle_begins[i / parts];
  const uint end = triangle_begins[i / parts + 1];
  const uint share = (end - begin + parts - 1) / parts;
  const float3 origin = x[triangles[body_triangles[begin]].x].xyz;
  float sum = 0.0f, lost = 0.0f;
  const uint last = min(begin + (i % parts + 1) * share, end);
  for (uint k = begin + (i % parts) * share; k < last; ++k) {
    const uint4 tri = triangles[body_triangles[k]];
    add_to(&sum, &lost, dot(x[tri.x].xyz - origin, cross(x[tri.y].xyz - origin, x[tri.z].xyz - origin)) / 6.0f);
  }
  partials[i] = (float2)(sum, lost);
}

/* The pressure that the moves of a colour lead to, exactly: with what they want, sum of a . u, and how much they yield to a pressure, sum
   of a . w, it is (multiplier + k' / V0 (V - V0 + sum a . u)) / (1 + k' / V0 sum a . w). Other values of `color` ask for that at the
   positions as they are: NO_COLOR for k (V - V0) / V0, IN_THIS_SWEEP for multiplier + k' (V - V0) / V0, IN_NEXT_SWEEP for the same when
   the multiplier has followed. V follows from the partials if `previous` is NO_COLOR, else from what the moves of that colour did to it.
   goes_on: a sweep is over, and the multiplier follows. Work-group: body. */
__kernel __attribute__((reqd_work_group_size(PALPATE_VOLUME_GROUP, 1, 1))) void volume_pressure(
    uint body_count, uint parts, uint color, uint previous, uint goes_on, const __global uint* begins, const __global float2* partials,
    const __global float2* rest_volumes, const __global float4* moves, __global float* multipliers, __global float4* bodies) {
  __local float wanted[PALPATE_VOLUME_GROUP];
  __local float yielded[PALPATE_VOLUME_GROUP];
  __local float moved[PALPATE_VOLUME_GROUP];
  const uint b = (uint)get_group_id(0);
  const uint me = (uint)get_local_id(0);
  wanted[me] = yielded[me] = moved[me] = 0.0f;
  if (color < IN_NEXT_SWEEP) {
    const uint end = begins[color * body_count + b + 1];
    for (uint e = begins[color * body_count + b] + me; e < end; e += PALPATE_VOLUME_GROUP) {
      wanted[me] += moves[3 * e].w;
      yielded[me] += moves[3 * e + 1].w;
    }
  }
  if (previous != NO_COLOR) {
    const uint end = begins[previous * body_count + b + 1];
    for (uint e = begins[previous * body_count + b] + me; e < end; e += PALPATE_VOLUME_GROUP) moved[me] += moves[3 * e + 2].w;
  }
  for (uint half_group = PALPATE_VOLUME_GROUP / 2; half_group > 0; half_group /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (me < half_group) {
      wanted[me] += wanted[me + half_group];
      yielded[me] += yielded[me + half_group];
      moved[me] += moved[me + half_group];
    }
  }
  if (me != 0) return;
  float4 body = bodies[b];
  if (previous != NO_COLOR) {
    body.z += moved[0];
  } else {
    float sum = -rest_volumes[b].x, lost = -rest_volumes[b].y;
    for (uint i = 0; i < parts; ++i) {
      add_to(&sum, &lost, partials[b * parts + i].x);
      lost += partials[b * parts + i].y;
    }
    body.z = sum + lost;
  }
  if (color == NO_COLOR) {
    body.w = body.x / body.y * body.z;
  } else if (color >= IN_NEXT_SWEEP) {
    body.w = multipliers[b] + body.x * body.z;
    if (color == IN_NEXT_SWEEP) body.w = (1.0f - body.y) * body.w + body.x * body.z;
  } else {
    float multiplier = multipliers[b];
    if (goes_on != 0) {
      multiplier = (1.0f - body.y) * (multiplier + body.x * body.z);
      multipliers[b] = multiplier;
    }
    body.w = (multiplier + body.x * (body.z + wanted[0])) / (1.0f + body.x * yielded[0]);
  }
  bodies[b] = body;
}

/* How much of the yields of its vertices a body takes from their moves, so that the moves u - s w are those of the whole matrix, volume
   included, where u and w are those of the matrix without (Sherman, Morrison 1950): s = k' / V0 sum a . u / (1 + k' / V0 sum a . w).
   gradients, moves, yields: [slot] a, u, w. Work-group: body. */
__kernel __attribute__((reqd_work_group_size(PALPATE_VOLUME_GROUP, 1, 1))) void volume_shares(
    uint body_count, uint color_count, const __global uint* begins, const __global uint* entry_vertex, const __global float4* gradients,
    const __global float4* moves, const __global float4* yields, const __global float4* bodies, __global float* shares) {
  __local float wanted[PALPATE_VOLUME_GROUP];
  __local float yielded[PALPATE_VOLUME_GROUP];
  const uint b = (uint)get_group_id(0);
  const uint me = (uint)get_local_id(0);
  wanted[me] = yielded[me] = 0.0f;
  for (uint c = 0; c < color_count; ++c) {
    const uint end = begins[c * body_count + b + 1];
    for (uint e = begins[c * body_count + b] + me; e < end; e += PALPATE_VOLUME_GROUP) {
      const uint v = entry_vertex[e];
      wanted[me] += dot(gradients[v].xyz, moves[v].xyz);
      yielded[me] += dot(gradients[v].xyz, yields[v].xyz);
    }
  }
  for (uint half_group = PALPATE_VOLUME_GROUP / 2; half_group > 0; half_group /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (me < half_group) {
      wanted[me] += wanted[me + half_group];
      yielded[me] += yielded[me + half_group];
    }
  }
  if (me != 0) return;
  const float stiffness = bodies[b].x;
  const float share = stiffness * wanted[0] / (1.0f + stiffness * yielded[0]);
  shares[b] = yielded[0] >= 0.0f && isfinite(share) ? share : 0.0f;
}
