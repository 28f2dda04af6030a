/* Air around tissue: see air_drag.h. */

#include "gpu/dynamics/block.clh"
#include "gpu/shared/dynamics_types.h"

/* Adds to a block what the air gives a vertex in a step: h f and h K, with f the force at the velocity that it would have at the end, and K
   the slope of it if the corners of a triangle go faster together. Returns whether it gives anything. */
static inline uint add_air(Block* block, uint v, const __global StepParams* p, float4 wind, const __global float* triangle_drag,
                           const __global float4* x_start, const __global float4* velocity, const __global uint2* vertex_triangle_range,
                           const __global uint* vertex_triangles, const __global uint4* triangles) {
  const float dt = p->dt_s;
  const float3 fall = dt * (float3)(p->gravity_x, p->gravity_y, p->gravity_z);
  const uint2 fan = vertex_triangle_range[v];
  uint is_felt = 0;
  for (uint k = fan.x; k < fan.y; ++k) {
    const uint t = vertex_triangles[k];
    if (triangle_drag[t] == 0.0f) continue;
    const uint4 tri = triangles[t];
    const float3 o = x_start[tri.x].xyz;
    const float3 normal = cross(x_start[tri.y].xyz - o, x_start[tri.z].xyz - o);
    const float double_area = length(normal);
    if (!(double_area > 0.0f)) continue;
    const float3 n = normal / double_area;
    const float3 moves = (velocity[tri.x].xyz + velocity[tri.y].xyz + velocity[tri.z].xyz) / 3.0f + fall;
    const float speed = dot(wind.xyz - moves, n);
    const float third = triangle_drag[t] * double_area / 6.0f;
    add_normal_term(block, n, dt * third * fabs(speed) * speed, 2.0f * dt * third * fabs(speed));
    is_felt = 1;
  }
  return is_felt;
}

/* What the air gives each vertex in a step: its inertial target moves by h (M + h K)^-1 h f. Work-item: free vertex. */
__kernel void air_push_vertices(const __global StepParams* p, float4 wind, const __global float* triangle_drag,
                                const __global float4* x_start, const __global float4* velocity,
                                const __global uint2* vertex_triangle_range, const __global uint* vertex_triangles,
                                const __global uint4* triangles, const __global float* mass, __global float4* y) {
  const uint v = (uint)get_global_id(0);
  if (v >= p->free_count || mass[v] == 0.0f) return;
  Block block;
  block.force = (float3)(0.0f);
  block.xx = block.yy = block.zz = mass[v] * (1.0f + y[v].w);
  block.xy = block.xz = block.yz = 0.0f;
  const uint is_felt = add_air(&block, v, p, wind, triangle_drag, x_start, velocity, vertex_triangle_range, vertex_triangles, triangles);
  if (is_felt != 0) y[v].xyz += p->dt_s * solve_block(&block);
}

/* The same for vertices that follow something else: h f in impulses, w = 1 where there is any, and h K in slopes, xx xy xz yy, yz zz.
   Work-item: vertex, in `slots`. */
__kernel void air_push_followers(uint count, const __global uint* slots, const __global StepParams* p, float4 wind,
                                 const __global float* triangle_drag, const __global float4* x_start, const __global float4* velocity,
                                 const __global uint2* vertex_triangle_range, const __global uint* vertex_triangles,
                                 const __global uint4* triangles, __global float4* impulses, __global float4* slopes) {
  const uint e = (uint)get_global_id(0);
  if (e >= count) return;
  Block block;
  block.force = (float3)(0.0f);
  block.xx = block.xy = block.xz = block.yy = block.yz = block.zz = 0.0f;
  const uint is_felt =
      add_air(&block, slots[e], p, wind, triangle_drag, x_start, velocity, vertex_triangle_range, vertex_triangles, triangles);
  impulses[e] = (float4)(block.force, is_felt != 0 ? 1.0f : 0.0f);
  slopes[2 * e] = (float4)(block.xx, block.xy, block.xz, block.yy);
  slopes[2 * e + 1] = (float4)(block.yz, block.zz, 0.0f, 0.0f);
}
