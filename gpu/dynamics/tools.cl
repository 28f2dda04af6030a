/* Tools in contact with the tissue of tissue.cl: capsules, alone or with followers that go where their leader goes, and clips. See
   docs/algorithms/tissue.md.

   Build options, same algorithm for all values: PALPATE_LIST_GROUP, work-group size of list_contacts, and PALPATE_TOOL_GROUP, that of
   solve_colliders, powers of two. */
#include "gpu/shared/dynamics_types.h"

#ifndef PALPATE_LIST_GROUP /* for tools that look at this file alone */
#define PALPATE_LIST_GROUP 1
#endif
#ifndef PALPATE_TOOL_GROUP
#define PALPATE_TOOL_GROUP 1
#endif

#include "gpu/dynamics/block.clh"
#include "gpu/dynamics/contact.clh"
#include "gpu/dynamics/norm.clh"
#include "gpu/dynamics/vertex_contact.clh"
/* Needs those above. */
#include "gpu/dynamics/tool_solve.clh"

#define NOT_A_TRIANGLE 0xffffffffu

/* Start of a step for the capsules. Work-item: collider; leaders move, each with its followers. targets: two float4 a collider: tip of the
   device at the end of the step, axis at the end. A coupled tool first moves as if nothing touched it. */
__kernel void move_colliders(const __global StepParams* p, __global Collider* colliders, const __global float4* targets) {
  const uint c = (uint)get_global_id(0);
  if (c >= p->collider_count) return;
  if (colliders[c].leader != c) return;
  Collider k = colliders[c];
  k.tip_start = (float4)(k.tip.xyz, k.tip_start.w);
  k.axis_start = k.axis;
  const float3 target = targets[2 * c].xyz;
  k.axis = (float4)(targets[2 * c + 1].xyz, k.axis.w);
  k.device_velocity = (float4)((target - k.device_tip.xyz) * p->inv_dt, k.device_velocity.w);
  k.device_tip = (float4)(target, k.device_tip.w);
  const float coupling = k.device_tip.w;
  if (coupling == 0.0f) {
    k.tip = (float4)(target, 0.0f);
  } else {
    const float inertia = k.velocity.w * p->inv_dt * p->inv_dt;
    const float damping = k.device_velocity.w * p->inv_dt;
    const float3 ballistic = k.tip_start.xyz + p->dt_s * k.velocity.xyz;
    const float3 dragged = k.tip_start.xyz + p->dt_s * k.device_velocity.xyz;
    k.tip = (float4)((inertia * ballistic + damping * dragged + coupling * target) / (inertia + damping + coupling), 0.0f);
  }
  colliders[c] = k;
  for (uint m = c + 1; m < c + k.members; ++m) {
    Collider follower = colliders[m];
    follower.tip_start = (float4)(follower.tip.xyz, follower.tip_start.w);
    follower.axis_start = follower.axis;
    follower.axis = (float4)(targets[2 * m + 1].xyz, follower.axis.w);
    follower.offset = (float4)(targets[2 * m].xyz - target, 0.0f);
    follower.device_velocity = (float4)((targets[2 * m].xyz - follower.device_tip.xyz) * p->inv_dt, follower.device_velocity.w);
    follower.device_tip = (float4)(targets[2 * m].xyz, follower.device_tip.w);
    colliders[m] = follower;
  }
  place_followers(colliders, c);
}

/* Which triangles each capsule may touch in this step, and on which side of it they belong. Work-item: surface triangle.
   The capsule's axis and the triangle move linearly from their start to their predicted end; they are sampled so densely that between two
   samples they approach by less than half a radius, so no crossing of the axis goes unseen. Conservative within `slack`, which bounds how
   much nearer than predicted the solve may bring them. */
__kernel void find_contacts(const __global StepParams* p, const __global float4* x, const __global float4* x_start,
                            const __global uint4* triangles, const __global Collider* colliders, __global ToolContact* contacts,
                            __global uint* triangle_colliders) {
  const uint t = (uint)get_global_id(0);
  if (t >= p->triangle_count) return;
  const uint4 tri = triangles[t];
  const float3 a0 = x_start[tri.x].xyz, b0 = x_start[tri.y].xyz, c0 = x_start[tri.z].xyz;
  const float3 a1 = x[tri.x].xyz, b1 = x[tri.y].xyz, c1 = x[tri.z].xyz;
  const float motion = fmax(fmax(norm3(a0 - a1), norm3(b0 - b1)), norm3(c0 - c1));
  const float3 center = (a0 + b0 + c0) * (1.0f / 3.0f);
  const float extent = fmax(fmax(norm3(center - a0), norm3(center - b0)), norm3(center - c0));
  const uint mask_before = triangle_colliders[t];
  uint mask = 0;
  for (uint k = 0; k < p->collider_count; ++k) {
    if (tri.w == 1u && colliders[k].skips_tissue != 0u) continue;
    const float3 p0 = colliders[k].tip_start.xyz;
    const float3 d0 = colliders[k].axis_start.xyz;
    const float3 p1 = colliders[k].tip.xyz;
    const float3 d1 = colliders[k].axis.xyz;
    const float radius = colliders[k].tip_start.w + surface_offset(tri);
    const float tool_motion = fmax(norm3(p0 - p1), norm3(p0 + d0 - (p1 + d1)));
    const float slack = motion + tool_motion + fmax(radius, p->range_m);
    const float reach = radius + p->margin_m + slack;
    float s;
    const float3 nearest = closest_on_segment_to_point(p0, d0, center, &s);
    if (norm3(nearest - center) > reach + extent) continue;
    float3 weights;
    float3 d = closest_segment_triangle(p0, d0, a0, b0, c0, &s, &weights);
    float dist = norm3(d);
    if (dist > reach) continue;
    const size_t slot = (size_t)k * p->triangle_count + t;
    const float touch = radius + p->margin_m;
    ToolContact contact;
    contact.normal = (float4)(0.0f);
    contact.weights = (float4)(0.0f);
    contact.side = (float4)(0.0f);
    if (dist < touch) {
      const bool known = ((mask_before >> k) & 1u) && contacts[slot].side.w != SIDE_UNKNOWN;
      if (known && is_beyond(d, contacts[slot].side, cross(b0 - a0, c0 - a0))) {
        contact.side = contacts[slot].side;
      } else {
        const float3 n = dist > 1e-9f ? d / dist : -normalize(cross(b0 - a0, c0 - a0));
        contact.side = (float4)(n, SIDE_NEAR);
      }
    } else if (dist < touch + motion + tool_motion) { /* else neither comes so near on its way */
      const int samples = (int)clamp(ceil((tool_motion + motion) / (0.5f * radius)), 1.0f, 1024.0f);
      for (int i = 1; i <= samples; ++i) {
        const float u = (float)i / (float)samples;
        d = closest_segment_triangle(mix(p0, p1, u), mix(d0, d1, u), mix(a0, a1, u), mix(b0, b1, u), mix(c0, c1, u), &s, &weights);
        dist = norm3(d);
        if (dist < touch) {
          const float3 n = dist > 1e-9f ? d / dist : -normalize(cross(b0 - a0, c0 - a0));
          contact.side = (float4)(n, SIDE_SWEPT);
          break;
        }
      }
    }
    contacts[slot] = contact;
    mask |= 1u << k;
  }
  triangle_colliders[t] = mask;
}

/* Lists the (collider, triangle) slots that find_contacts marked, in order, so that the host need not know how many there are.
   One work-group; each work-item takes a contiguous share of the triangles. list[0] = count, then the slots. */
__kernel __attribute__((reqd_work_group_size(PALPATE_LIST_GROUP, 1, 1))) void list_contacts(const __global StepParams* p,
                                                                                            const __global uint* triangle_colliders,
                                                                                            __global uint* list) {
  __local uint offsets[PALPATE_LIST_GROUP];
  const uint me = (uint)get_local_id(0);
  const uint share = (p->triangle_count + PALPATE_LIST_GROUP - 1) / PALPATE_LIST_GROUP;
  const uint begin = min(me * share, p->triangle_count);
  const uint end = min(begin + share, p->triangle_count);
  uint count = 0;
  for (uint t = begin; t < end; ++t) count += popcount(triangle_colliders[t]);
  offsets[me] = count;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (me == 0) {
    uint sum = 0;
    for (uint i = 0; i < PALPATE_LIST_GROUP; ++i) {
      const uint own = offsets[i];
      offsets[i] = sum;
      sum += own;
    }
    list[0] = sum;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  uint at = 1 + offsets[me];
  for (uint t = begin; t < end; ++t) {
    uint mask = triangle_colliders[t];
    for (uint c = 0; mask != 0; ++c, mask >>= 1) {
      if (mask & 1u) list[at++] = c * p->triangle_count + t;
    }
  }
}

/* Linearises every listed contact at the current iterate. Work-item: list entries, strided. */
__kernel void update_contacts(const __global StepParams* p, const __global uint* gate, const __global float4* x,
                              const __global uint4* triangles, const __global Collider* colliders, const __global uint* list,
                              uint notes_sides, __global ToolContact* contacts) {
  const uint count = gate[0] != 0 ? 0 : list[0];
  for (uint i = (uint)get_global_id(0); i < count; i += (uint)get_global_size(0)) {
    update_contact(p, list[1 + i], x, triangles, colliders, notes_sides, contacts);
  }
}

/* The blocks of coupled tools. One work-group a collider. */
__kernel __attribute__((reqd_work_group_size(PALPATE_TOOL_GROUP, 1, 1))) void solve_colliders(
    const __global StepParams* p, const __global float4* x, const __global float4* x_start, const __global uint4* triangles,
    const __global uint* list, const __global uint* triangle_colliders, const __global uint2* vertex_triangle_range,
    const __global uint* vertex_triangles, const __global ToolContact* contacts, const __global uint* anchor_begin,
    const __global Anchor* anchors, __global Collider* colliders) {
  __local float sums[9 * PALPATE_TOOL_GROUP];
  solve_collider(p, (uint)get_group_id(0), (uint)get_local_id(0), PALPATE_TOOL_GROUP, x, x_start, triangles, list, triangle_colliders,
                 vertex_triangle_range, vertex_triangles, contacts, anchor_begin, anchors, sums, colliders);
}

/* Work-item: clip. */
__kernel void solve_clips(const __global StepParams* p, uint clip_count, const __global float4* x, const __global uint* anchor_begin,
                          const __global Anchor* anchors, __global Collider* colliders) {
  const uint clip = (uint)get_global_id(0);
  if (clip < clip_count) solve_clip(p, clip, x, anchor_begin, anchors, colliders);
}

/* Work-item: anchor. */
__kernel void report_anchors(uint anchor_count, const __global float4* x, const __global Anchor* anchors,
                             const __global Collider* colliders, __global AnchorReport* reports) {
  const uint i = (uint)get_global_id(0);
  if (i >= anchor_count) return;
  const float3 point = x[anchors[i].vertex].xyz;
  const float3 d = anchor_stretch(anchors + i, point - colliders[anchors[i].holder].tip.xyz - anchors[i].target.xyz);
  reports[i].point = (float4)(point, 0.0f);
  reports[i].force = (float4)(-anchor_factor(anchors + i, norm3(d)) * d, 0.0f);
}

/* End of a step for the capsules. Work-item: collider. */
__kernel void finish_colliders(const __global StepParams* p, const __global uint* gate, __global Collider* colliders) {
  const uint c = (uint)get_global_id(0);
  if (c >= p->collider_count || gate[0] != 0) return;
  const float4 velocity = colliders[c].velocity;
  colliders[c].velocity = (float4)((colliders[c].tip.xyz - colliders[c].tip_start.xyz) * p->inv_dt, velocity.w);
}

/* Counts past capacity. */
static inline void add_report(uint capacity, ContactReport r, __global uint* header, __global ContactReport* reports) {
  const uint at = atomic_inc(header);
  if (at < capacity) reports[at] = r;
}

/* The contact of a capsule with a triangle. */
static inline void report_triangle(const __global StepParams* p, uint slot, uint capacity, const __global float4* x,
                                   const __global float4* x_start, const __global uint4* triangles, const __global Collider* colliders,
                                   const __global ToolContact* contacts, __global uint* header, __global ContactReport* reports) {
  const uint c = slot / p->triangle_count;
  const uint t = slot % p->triangle_count;
  const uint4 tri = triangles[t];
  const ToolContact contact = contacts[slot];
  const float radius = colliders[c].tip_start.w + surface_offset(tri);
  const float3 n = contact.normal.xyz;
  const float s = contact.normal.w;
  const float3 on_axis = colliders[c].tip.xyz + s * colliders[c].axis.xyz;
  const float3 point = contact.weights.x * x[tri.x].xyz + contact.weights.y * x[tri.y].xyz + contact.weights.z * x[tri.z].xyz;
  const float gap = dot(n, point - on_axis) - radius;
  const float share =
      contact.weights.w < 0.0f ? 1.0f : triangle_share(p, tri, radius, x[tri.x].xyz, x[tri.y].xyz, x[tri.z].xyz);
  const float stiffness = fabs(contact.weights.w) * colliders[c].axis.w;
  float slope;
  const float force = contact.weights.w != 0.0f ? contact_force(p, stiffness, p->margin_m - gap, &slope) : 0.0f;
  if (force == 0.0f && (share == 0.0f || !(gap < p->range_m))) return;
  const float3 start =
      contact.weights.x * x_start[tri.x].xyz + contact.weights.y * x_start[tri.y].xyz + contact.weights.z * x_start[tri.z].xyz;
  float3 slip = (point - start) - (on_axis - colliders[c].tip_start.xyz - s * colliders[c].axis_start.xyz);
  slip -= dot(slip, n) * n;
  ContactReport r;
  r.collider = c;
  r.triangle = t;
  r.gap_m = gap;
  r.arm = s;
  r.point = (float4)(point - surface_offset(tri) * n, force);
  r.normal = (float4)(n, share * colliders[c].axis.w);
  r.force = (float4)(force * n - friction_factor(p, force, norm3(slip)) * slip, 0.0f);
  add_report(capacity, r, header, reports);
}

/* The contacts of a capsule with vertices of a shell that are counted with this triangle. */
static inline void report_vertices(const __global StepParams* p, uint slot, uint capacity, const __global float4* x,
                                   const __global float4* x_start, const __global uint4* triangles, const __global Collider* colliders,
                                   const __global uint* triangle_colliders, const __global ToolContact* contacts,
                                   const __global uint2* vertex_triangle_range, const __global uint* vertex_triangles,
                                   __global uint* header, __global ContactReport* reports) {
  const uint c = slot / p->triangle_count;
  const uint t = slot % p->triangle_count;
  if (!has_vertex_contacts(triangles[t])) return;
  for (uint corner = 0; corner < 3; ++corner) {
    const uint v = corner_of(triangles[t], corner);
    if (!counts_vertex(p, v, t, c, vertex_triangle_range, vertex_triangles, triangles, triangle_colliders, contacts)) continue;
    const float offset = vertex_offset(vertex_triangle_range[v], vertex_triangles, triangles);
    const VertexContact contact = vertex_contact(p, colliders + c, x[v].xyz, x_start[v].xyz, offset);
    if (contact.force == 0.0f && !(contact.gap < p->range_m)) continue;
    ContactReport r;
    r.collider = c;
    r.triangle = t;
    r.gap_m = contact.gap;
    r.arm = contact.s;
    r.point = (float4)(x[v].xyz - offset * contact.normal, contact.force);
    r.normal = (float4)(contact.normal, colliders[c].axis.w);
    const float3 friction = friction_factor(p, contact.force, norm3(contact.slip)) * contact.slip;
    r.force = (float4)(contact.force * contact.normal - friction, 0.0f);
    add_report(capacity, r, header, reports);
  }
}

/* Force of each acting contact, for the host. Slots are taken in any order; the host sorts by (collider, triangle). Counts past capacity.
   Work-item: list entries, then surface vertices for planes; header[0] = count. */
__kernel void report_contacts(const __global StepParams* p, uint capacity, const __global float4* x, const __global float4* x_start,
                              const __global uint4* triangles, const __global Collider* colliders, const __global uint* list,
                              const __global uint* triangle_colliders, const __global ToolContact* contacts,
                              const __global PlaneObstacle* planes, const __global uint2* vertex_triangle_range,
                              const __global uint* vertex_triangles, __global uint* header, __global ContactReport* reports) {
  const uint count = list[0];
  for (uint i = (uint)get_global_id(0); i < count; i += (uint)get_global_size(0)) {
    report_triangle(p, list[1 + i], capacity, x, x_start, triangles, colliders, contacts, header, reports);
    report_vertices(p, list[1 + i], capacity, x, x_start, triangles, colliders, triangle_colliders, contacts, vertex_triangle_range,
                    vertex_triangles, header, reports);
  }
  if (p->plane_count == 0) return;
  for (uint v = (uint)get_global_id(0); v < p->vertex_count; v += (uint)get_global_size(0)) {
    if (vertex_triangle_range[v].x == vertex_triangle_range[v].y) continue;
    for (uint i = 0; i < p->plane_count; ++i) {
      const float4 plane = planes[i].normal_offset;
      const float offset = surface_offset(triangles[vertex_triangles[vertex_triangle_range[v].x]]);
      const float gap = dot(plane.xyz, x[v].xyz) - plane.w - offset;
      float slope;
      const float force = contact_force(p, p->stiffness_n_per_m, p->margin_m - gap, &slope);
      if (force == 0.0f) continue;
      float3 slip = x[v].xyz - x_start[v].xyz;
      slip -= dot(slip, plane.xyz) * plane.xyz;
      ContactReport r;
      r.collider = NOT_A_TRIANGLE;
      r.triangle = v;
      r.gap_m = gap;
      r.arm = (float)i;
      r.point = (float4)(x[v].xyz - offset * plane.xyz, force);
      r.normal = (float4)(plane.xyz, p->stiffness_n_per_m);
      r.force = (float4)(force * plane.xyz - friction_factor(p, force, norm3(slip)) * slip, 0.0f);
      add_report(capacity, r, header, reports);
    }
  }
}
