#include "gpu/collision/oriented_box.clh"
#include "gpu/collision/vertex_runs.clh"
#include "gpu/shared/float_key.h"

/* Oriented boxes from vertices; see kdop.h. The axes are given, or the principal ones of the vertices. Their moments are sums of integers,
   so that neither the runs of vertices nor the order of the atomics can be seen in the result. */

#define MOMENTS 9                      /* x, y, z, xx, yy, zz, xy, xz, yz */
#define CELLS 65535.0f                 /* of the largest side of the body's box */
#define SMALLEST_SIDE 1e-33f           /* m; below, the cells overflow, and any axes are good enough */
#define PAD 1.9073486328125e-6f        /* 2^-19: fewer than 32 roundings of 2^-24 of the box's size */
#define PLACE_PAD 4.76837158203125e-7f /* 2^-21: three roundings of the centre */

/* Half of it: differences of large coordinates stay finite. */
float half_side(global const float* box, uint axis) { return 0.5f * box[3 + axis] - 0.5f * box[axis]; }

float largest_side(global const float* box) { return 2.0f * fmax(half_side(box, 0), fmax(half_side(box, 1), half_side(box, 2))); }

float4 box_centre(global const float* box) {
  return (float4)(0.5f * box[0] + 0.5f * box[3], 0.5f * box[1] + 0.5f * box[4], 0.5f * box[2] + 0.5f * box[5], 0.0f);
}

/* Adds to a counter of 64 bits, low word first. */
void add_wide(volatile global uint* counter, ulong value) {
  const uint low = (uint)value;
  const uint before = atomic_add(counter, low);
  const uint carry = before + low < before ? 1u : 0u;
  const uint high = (uint)(value >> 32) + carry;
  if (high != 0u) atomic_add(counter + 1, high);
}

/* `moments`: 2 * MOMENTS words a body, zero before. `boxes`: lower x, y, z, upper x, y, z of each body. */
kernel void oriented_moments(uint vertex_count, uint body_count, uint run_length, global const Float4* vertices, global const uint* begins,
                             global const float* boxes, volatile global uint* moments) {
  const size_t first = get_global_id(0) * run_length;
  if (first >= vertex_count) return;
  uint v = (uint)first;
  const uint end = (uint)min(first + run_length, (size_t)vertex_count);
  uint body = upper_bound(begins, body_count + 1, v) - 1;
  while (v < end) {
    while (begins[body + 1] <= v) ++body;
    const uint stop = min(begins[body + 1], end);
    global const float* box = boxes + (size_t)body * 6;
    const float side = largest_side(box);
    /* NaN and infinite boxes too: they get no moments. */
    if (!(side >= SMALLEST_SIDE && isfinite(side))) {
      v = stop;
      continue;
    }
    const float scale = CELLS / side;
    ulong sums[MOMENTS];
    for (uint m = 0; m < MOMENTS; ++m) sums[m] = 0;
    for (; v < stop; ++v) {
      const float4 p = vertices[v];
      const uint x = (uint)fmin((p.x - box[0]) * scale, CELLS);
      const uint y = (uint)fmin((p.y - box[1]) * scale, CELLS);
      const uint z = (uint)fmin((p.z - box[2]) * scale, CELLS);
      sums[0] += x;
      sums[1] += y;
      sums[2] += z;
      sums[3] += x * x;
      sums[4] += y * y;
      sums[5] += z * z;
      sums[6] += x * y;
      sums[7] += x * z;
      sums[8] += y * z;
    }
    volatile global uint* counters = moments + (size_t)body * (2 * MOMENTS);
    for (uint m = 0; m < MOMENTS; ++m) add_wide(counters + 2 * m, sums[m]);
  }
}

long moment(global const uint* moments, uint m) { return (long)(((ulong)moments[2 * m + 1] << 32) | moments[2 * m]); }

/* Turns rows p and q of a symmetric matrix until its element p, q is 0, and rows p and q of `axes` with them. */
void turn_axes(private float (*a)[3], private float (*axes)[3], uint p, uint q) {
  if (a[p][q] == 0.0f) return;
  const float theta = 0.5f * (a[q][q] - a[p][p]) / a[p][q];
  const float t = copysign(1.0f, theta) / (fabs(theta) + sqrt(theta * theta + 1.0f));
  const float c = 1.0f / sqrt(t * t + 1.0f);
  const float s = t * c;
  for (uint k = 0; k < 3; ++k) {
    const float kp = a[k][p], kq = a[k][q];
    a[k][p] = c * kp - s * kq;
    a[k][q] = s * kp + c * kq;
  }
  for (uint k = 0; k < 3; ++k) {
    const float pk = a[p][k], qk = a[q][k];
    a[p][k] = c * pk - s * qk;
    a[q][k] = s * pk + c * qk;
    const float up = axes[p][k], uq = axes[q][k];
    axes[p][k] = c * up - s * uq;
    axes[q][k] = s * up + c * uq;
  }
  a[p][q] = a[q][p] = 0.0f;
}

/* Writes the axes of each body to its volume: the columns of `rotations[body]` if there are any, else the principal axes of the vertices.
   The identity where they are not determined. */
kernel void oriented_axes(uint body_count, global const uint* begins, global const uint* moments, global const Float4* rotations,
                          global float* volumes) {
  const size_t body = get_global_id(0);
  if (body >= body_count) return;
  float axes[3][3] = {{1.0f, 0.0f, 0.0f}, {0.0f, 1.0f, 0.0f}, {0.0f, 0.0f, 1.0f}};
  if (rotations) {
    const float4 q = rotations[body];
    axes[0][0] = 1.0f - 2.0f * (q.y * q.y + q.z * q.z);
    axes[0][1] = 2.0f * (q.x * q.y + q.w * q.z);
    axes[0][2] = 2.0f * (q.x * q.z - q.w * q.y);
    axes[1][0] = 2.0f * (q.x * q.y - q.w * q.z);
    axes[1][1] = 1.0f - 2.0f * (q.x * q.x + q.z * q.z);
    axes[1][2] = 2.0f * (q.y * q.z + q.w * q.x);
  } else {
    global const uint* sums = moments + body * (2 * MOMENTS);
    const long n = (long)(begins[body + 1] - begins[body]);
    if (n > 0) {
      /* About the mean cell in integers, without loss; what is left of the mean is below one cell. */
      long mean[3];
      float rest[3];
      float a[3][3];
      for (uint i = 0; i < 3; ++i) {
        mean[i] = moment(sums, i) / n;
        rest[i] = (float)(moment(sums, i) - mean[i] * n);
      }
      float largest = 0.0f;
      for (uint i = 0; i < 3; ++i) {
        for (uint j = i; j < 3; ++j) {
          const long square = moment(sums, i == j ? 3 + i : 5 + i + j);
          const long about = square - mean[i] * moment(sums, j) - mean[j] * moment(sums, i) + n * mean[i] * mean[j];
          a[i][j] = a[j][i] = (float)about - rest[i] * (rest[j] / (float)n);
          largest = fmax(largest, fabs(a[i][j]));
        }
      }
      if (largest > 0.0f) {
        for (uint i = 0; i < 3; ++i) {
          for (uint j = 0; j < 3; ++j) a[i][j] /= largest;
        }
        /* Each sweep squares what is off the diagonal. */
        for (uint sweep = 0; sweep < 8; ++sweep) {
          turn_axes(a, axes, 0, 1);
          turn_axes(a, axes, 0, 2);
          turn_axes(a, axes, 1, 2);
        }
      }
    }
  }
  /* Orthonormal to rounding. */
  float3 u = (float3)(axes[0][0], axes[0][1], axes[0][2]);
  float3 v = (float3)(axes[1][0], axes[1][1], axes[1][2]);
  u /= sqrt(dot(u, u));
  v -= dot(u, v) * u;
  v /= sqrt(dot(v, v));
  if (!isfinite(dot(u, u) + dot(v, v))) {
    u = (float3)(1.0f, 0.0f, 0.0f);
    v = (float3)(0.0f, 1.0f, 0.0f);
  }
  const float3 w = cross(u, v);
  global float* out = volumes + body * ORIENTED_FLOATS + ORIENTED_AXES;
  out[0] = u.x;
  out[1] = u.y;
  out[2] = u.z;
  out[3] = v.x;
  out[4] = v.y;
  out[5] = v.z;
  out[6] = w.x;
  out[7] = w.y;
  out[8] = w.z;
}

/* `keys`, 6 words a body, all ones before: those of the lower bounds of (p - centre of the box) on the three axes, and the complements of
   those of the upper bounds. */
kernel void oriented_extents(uint vertex_count, uint body_count, uint run_length, global const Float4* vertices, global const uint* begins,
                             global const float* boxes, global const float* volumes, volatile global uint* keys) {
  const size_t first = get_global_id(0) * run_length;
  if (first >= vertex_count) return;
  uint v = (uint)first;
  const uint end = (uint)min(first + run_length, (size_t)vertex_count);
  uint body = upper_bound(begins, body_count + 1, v) - 1;
  while (v < end) {
    while (begins[body + 1] <= v) ++body;
    const uint stop = min(begins[body + 1], end);
    const float4 centre = box_centre(boxes + (size_t)body * 6);
    global const float* axes = volumes + (size_t)body * ORIENTED_FLOATS + ORIENTED_AXES;
    float lower[3] = {INFINITY, INFINITY, INFINITY};
    float upper[3] = {-INFINITY, -INFINITY, -INFINITY};
    for (; v < stop; ++v) {
      const float4 d = vertices[v] - centre;
      for (uint i = 0; i < 3; ++i) {
        const float along = d.x * axes[3 * i] + d.y * axes[3 * i + 1] + d.z * axes[3 * i + 2];
        lower[i] = along < lower[i] ? along : lower[i];
        upper[i] = along > upper[i] ? along : upper[i];
      }
    }
    volatile global uint* of_body = keys + (size_t)body * 6;
    for (uint i = 0; i < 3; ++i) {
      atomic_min(of_body + i, FloatBitsToKey(as_uint(lower[i])));
      atomic_min(of_body + 3 + i, ~FloatBitsToKey(as_uint(upper[i])));
    }
  }
}

/* Centre and half-extents from the extents, and the interval of the vertices on x, y and z. */
kernel void oriented_finish(uint body_count, global const uint* begins, global const float* boxes, global const uint* keys,
                            global float* volumes) {
  const size_t body = get_global_id(0);
  if (body >= body_count) return;
  global const float* box = boxes + body * 6;
  global const uint* of_body = keys + body * 6;
  global float* volume = volumes + body * ORIENTED_FLOATS;
  global const float* axes = volume + ORIENTED_AXES;
  if (begins[body] == begins[body + 1]) {
    for (uint i = 0; i < ORIENTED_FLOATS; ++i) volume[i] = i < 3 ? INFINITY : i < 6 ? -INFINITY : 0.0f;
    return;
  }
  float4 centre = box_centre(box);
  float extent[3];
  float size = 0.0f;
  for (uint i = 0; i < 3; ++i) {
    const float lower = as_float(KeyToFloatBits(of_body[i]));
    const float upper = as_float(KeyToFloatBits(~of_body[3 + i]));
    const float middle = 0.5f * upper + 0.5f * lower;
    extent[i] = 0.5f * upper - 0.5f * lower;
    size += extent[i] + fabs(middle);
    centre.x += middle * axes[3 * i];
    centre.y += middle * axes[3 * i + 1];
    centre.z += middle * axes[3 * i + 2];
  }
  const float place[3] = {centre.x, centre.y, centre.z};
  const float pad = PAD * size + PLACE_PAD * (fabs(centre.x) + fabs(centre.y) + fabs(centre.z)) + 2.0f * ORIENTED_TINY;
  int is_bad = 0;
  for (uint i = 0; i < 3; ++i) {
    volume[i] = box[i];
    volume[3 + i] = box[3 + i];
    volume[ORIENTED_CENTRE + i] = place[i];
    volume[ORIENTED_HALF + i] = extent[i] + pad;
    is_bad |= !isfinite(box[i]) || !isfinite(box[3 + i]) || !isfinite(place[i]) || !isfinite(extent[i] + pad);
  }
  for (uint i = 0; is_bad && i < ORIENTED_FLOATS; ++i) volume[i] = NAN;
}
