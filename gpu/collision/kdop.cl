#include "gpu/collision/kdop.clh"
#include "gpu/collision/vertex_runs.clh"
#include "gpu/shared/float_key.h"
#include "gpu/shared/kdop.h"

/* Bounding volumes from vertices; see kdop.h. Each work-item takes a run of `run_length` vertices, whatever bodies they belong to. A body
   inside one run is written at once. One that reaches over several runs has a slot, that of the run in which it begins, where the runs
   meet by atomic minimum and maximum of order-preserving integer keys: the result does not depend on their order. */

/* World vertices of placed meshes: out[begins[i] ... begins[i+1]) are those of instance i. */
kernel void instance_vertices(uint vertex_count, uint instance_count, uint run_length, global const Float4* mesh_vertices,
                              global const RigidInstance* instances, global const uint* begins, global Float4* out) {
  const size_t first = get_global_id(0) * run_length;
  if (first >= vertex_count) return;
  uint v = (uint)first;
  const uint end = (uint)min(first + run_length, (size_t)vertex_count);
  uint i = upper_bound(begins, instance_count + 1, v) - 1;
  while (v < end) {
    while (begins[i + 1] <= v) ++i;
    const RigidInstance instance = instances[i];
    const float4 q = instance.rotation;
    /* Columns of the rotation, scaled. */
    const float4 x = (float4)(1.0f - 2.0f * (q.y * q.y + q.z * q.z), 2.0f * (q.x * q.y + q.w * q.z), 2.0f * (q.x * q.z - q.w * q.y), 0.0f) *
                     instance.scale.x;
    const float4 y = (float4)(2.0f * (q.x * q.y - q.w * q.z), 1.0f - 2.0f * (q.x * q.x + q.z * q.z), 2.0f * (q.y * q.z + q.w * q.x), 0.0f) *
                     instance.scale.y;
    const float4 z = (float4)(2.0f * (q.x * q.z + q.w * q.y), 2.0f * (q.y * q.z - q.w * q.x), 1.0f - 2.0f * (q.x * q.x + q.y * q.y), 0.0f) *
                     instance.scale.z;
    const float4 position = (float4)(instance.position.xyz, 0.0f);
    const uint stop = min(begins[i + 1], end);
    global const Float4* mesh = mesh_vertices + instance.mesh.x;
    for (const uint begin = begins[i]; v < stop; ++v) {
      const float4 p = mesh[v - begin];
      out[v] = x * p.x + y * p.y + z * p.z + position;
    }
  }
}

/* out[2 v] = start[v], out[2 v + 1] = end[v]: the vertices of a body stay together. */
kernel void swept_vertices(uint vertex_count, global const Float4* start, global const Float4* end, global Float4* out) {
  const size_t v = get_global_id(0);
  if (v >= vertex_count) return;
  out[2 * v] = start[v];
  out[2 * v + 1] = end[v];
}

kernel void swept_begins(uint body_count, global const uint* begins, global uint* out) {
  const size_t body = get_global_id(0);
  if (body <= body_count) out[body] = 2u * begins[body];
}

#if AXES > 0

/* Of a slot: the keys of the lower bounds, those of the upper bounds, and whether a vertex is not finite. */
#define SLOT_WORDS (2 * AXES + 1)

void store_volume(global float* volume, private float* lower, private float* upper, int is_bad) {
  round_outwards(lower, upper);
  for (int i = 0; i < AXES; ++i) {
    volume[i] = is_bad ? NAN : lower[i];
    volume[AXES + i] = is_bad ? NAN : upper[i];
  }
}

kernel void volume_runs(uint vertex_count, uint body_count, uint run_length, global const Float4* vertices, global const uint* begins,
                        volatile global uint* slots, global float* volumes) {
  const size_t first = get_global_id(0) * run_length;
  if (first >= vertex_count) return;
  uint v = (uint)first;
  const uint end = (uint)min(first + run_length, (size_t)vertex_count);
  uint body = upper_bound(begins, body_count + 1, v) - 1;
  while (v < end) {
    while (begins[body + 1] <= v) ++body;
    const uint body_begin = begins[body];
    const uint body_end = begins[body + 1];
    const uint stop = min(body_end, end);
    float lower[AXES];
    float upper[AXES];
    float4 zero = (float4)(0.0f); /* becomes NaN if a coordinate is not finite */
    for (int i = 0; i < AXES; ++i) {
      lower[i] = INFINITY;
      upper[i] = -INFINITY;
    }
    for (; v < stop; ++v) {
      const float4 p = vertices[v];
      float d[AXES];
      project(p, d);
      for (int i = 0; i < AXES; ++i) {
        lower[i] = d[i] < lower[i] ? d[i] : lower[i];
        upper[i] = d[i] > upper[i] ? d[i] : upper[i];
      }
      zero += p * 0.0f;
    }
    const int is_bad = !(zero.x == 0.0f && zero.y == 0.0f && zero.z == 0.0f);
    if (body_begin >= first && body_end <= end) {
      store_volume(volumes + (size_t)body * VOLUME_FLOATS, lower, upper, is_bad);
    } else {
      volatile global uint* slot = slots + (size_t)(body_begin / run_length) * SLOT_WORDS;
      for (int i = 0; i < AXES; ++i) {
        atomic_min(slot + i, FloatBitsToKey(as_uint(lower[i])));
        atomic_min(slot + AXES + i, ~FloatBitsToKey(as_uint(upper[i])));
      }
      if (is_bad) atomic_min(slot + 2 * AXES, 0u);
    }
  }
}

/* Bodies without vertices and those of several runs. */
kernel void volume_rest(uint body_count, uint run_length, global const uint* begins, global const uint* slots, global float* volumes) {
  const size_t body = get_global_id(0);
  if (body >= body_count) return;
  const uint begin = begins[body];
  const uint end = begins[body + 1];
  global float* volume = volumes + body * VOLUME_FLOATS;
  if (begin == end) {
    for (int i = 0; i < AXES; ++i) {
      volume[i] = INFINITY;
      volume[AXES + i] = -INFINITY;
    }
  } else if (begin / run_length != (end - 1) / run_length) {
    global const uint* slot = slots + (size_t)(begin / run_length) * SLOT_WORDS;
    float lower[AXES];
    float upper[AXES];
    for (int i = 0; i < AXES; ++i) {
      lower[i] = as_float(KeyToFloatBits(slot[i]));
      upper[i] = as_float(KeyToFloatBits(~slot[AXES + i]));
    }
    store_volume(volume, lower, upper, slot[2 * AXES] == 0u);
  }
}

#else

/* Radius about the centre of the body's box, or about a given point. The square of a distance below 1e-19 m underflows: there the largest
   coordinate bounds the distance. */
float radius_of(float max_dist_sq, float max_coordinate) {
  return max_coordinate < 1e-15f ? 1.732052f * max_coordinate : sqrt(max_dist_sq) * (1.0f + SPHERE_SLACK);
}

float4 sphere_centre(uint body, global const float* boxes, global const Float4* centres) {
  if (centres) return centres[body];
  global const float* box = boxes + (size_t)body * 6;
  return (float4)(0.5f * box[0] + 0.5f * box[3], 0.5f * box[1] + 0.5f * box[4], 0.5f * box[2] + 0.5f * box[5], 0.0f);
}

void store_sphere(global float* volume, float4 centre, float max_dist_sq, float max_coordinate, int is_bad) {
  volume[0] = centre.x;
  volume[1] = centre.y;
  volume[2] = centre.z;
  volume[3] = is_bad ? NAN : radius_of(max_dist_sq, max_coordinate);
}

/* `boxes`: lower x, y, z, upper x, y, z of each body; not read if there are centres. */
kernel void sphere_runs(uint vertex_count, uint body_count, uint run_length, global const Float4* vertices, global const uint* begins,
                        global const float* boxes, global const Float4* centres, volatile global uint* slots, global float* volumes) {
  const size_t first = get_global_id(0) * run_length;
  if (first >= vertex_count) return;
  uint v = (uint)first;
  const uint end = (uint)min(first + run_length, (size_t)vertex_count);
  uint body = upper_bound(begins, body_count + 1, v) - 1;
  while (v < end) {
    while (begins[body + 1] <= v) ++body;
    const uint body_begin = begins[body];
    const uint body_end = begins[body + 1];
    const uint stop = min(body_end, end);
    const float4 centre = sphere_centre(body, boxes, centres);
    float max_dist_sq = 0.0f;
    float max_coordinate = 0.0f;
    float zero = 0.0f; /* becomes NaN if a distance is not finite */
    for (; v < stop; ++v) {
      const float4 p = vertices[v];
      const float x = fabs(p.x - centre.x), y = fabs(p.y - centre.y), z = fabs(p.z - centre.z);
      const float dist_sq = x * x + y * y + z * z;
      max_dist_sq = dist_sq > max_dist_sq ? dist_sq : max_dist_sq;
      max_coordinate = fmax(max_coordinate, fmax(x, fmax(y, z)));
      zero += dist_sq * 0.0f;
    }
    const int is_bad = !(zero == 0.0f);
    if (body_begin >= first && body_end <= end) {
      store_sphere(volumes + (size_t)body * VOLUME_FLOATS, centre, max_dist_sq, max_coordinate, is_bad);
    } else {
      volatile global uint* slot = slots + (size_t)(body_begin / run_length) * 3;
      atomic_min(slot, ~as_uint(max_dist_sq)); /* not negative: the bits have the order of the values */
      atomic_min(slot + 1, ~as_uint(max_coordinate));
      if (is_bad) atomic_min(slot + 2, 0u);
    }
  }
}

kernel void sphere_rest(uint body_count, uint run_length, global const uint* begins, global const float* boxes,
                        global const Float4* centres, global const uint* slots, global float* volumes) {
  const size_t body = get_global_id(0);
  if (body >= body_count) return;
  const uint begin = begins[body];
  const uint end = begins[body + 1];
  global float* volume = volumes + body * VOLUME_FLOATS;
  if (begin == end) {
    volume[0] = volume[1] = volume[2] = 0.0f;
    volume[3] = -INFINITY;
  } else if (begin / run_length != (end - 1) / run_length) {
    global const uint* slot = slots + (size_t)(begin / run_length) * 3;
    store_sphere(volume, sphere_centre((uint)body, boxes, centres), as_float(~slot[0]), as_float(~slot[1]), slot[2] == 0u);
  }
}

#endif
