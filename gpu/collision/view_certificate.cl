#include "gpu/collision/view_volume.clh"

/* Classes of triangles as seen from the primitives of their components: see view_certificate.h. Triangles stand in blocks of 16 of one
   component; `ids` [block][3][16] are their corners, NO_ELEMENT in lanes without a triangle. A chunk: x component, blocks y to z. */

/* A block that is not full repeats its first triangle. */
ViewTriangles load_block(uint block, global const uint* ids, global const float4* starts, global const float4* ends) {
  float x[6][NODE_WIDTH], y[6][NODE_WIDTH], z[6][NODE_WIDTH];
  global const uint* own = ids + (size_t)block * (3u * NODE_WIDTH);
  for (uint c = 0; c < 3; ++c) {
    for (uint lane = 0; lane < NODE_WIDTH; ++lane) {
      const uint id = own[c * NODE_WIDTH + lane];
      const uint vertex = id == NO_ELEMENT ? own[c * NODE_WIDTH] : id;
      const float4 p = starts[vertex], q = ends[vertex];
      x[2 * c][lane] = p.x;
      y[2 * c][lane] = p.y;
      z[2 * c][lane] = p.z;
      x[2 * c + 1][lane] = q.x;
      y[2 * c + 1][lane] = q.y;
      z[2 * c + 1][lane] = q.z;
    }
  }
  ViewTriangles t;
  for (uint c = 0; c < 3; ++c) {
    for (uint side = 0; side < 2; ++side) {
      t.corner[c][side].x = vload16(0, x[2 * c + side]);
      t.corner[c][side].y = vload16(0, y[2 * c + side]);
      t.corner[c][side].z = vload16(0, z[2 * c + side]);
    }
  }
  return t;
}

int16 lanes_in_use(uint block, global const uint* ids) {
  return vload16(0, ids + (size_t)block * (3u * NODE_WIDTH)) != (uint16)(NO_ELEMENT);
}

/* Class and ray of each triangle to codes [block][16], and what is not as the certificate wants it to counts [component]. One work-item a
   chunk. */
kernel void view_classify(uint chunk_count, global const UInt4* chunks, global const uint* ids, global const float4* starts,
                          global const float4* ends, global const ViewPrimitive* primitives, global uint* codes,
                          volatile global ViewCounts* counts) {
  const uint chunk = (uint)get_global_id(0);
  if (chunk >= chunk_count) return;
  const uint component = chunks[chunk].x;
  const ViewPrimitive primitive = primitives[component];
  uint unsure = 0, negative = 0, ray_hits = 0, ray_unsure = 0;
  for (uint block = chunks[chunk].y; block < chunks[chunk].z; ++block) {
    const ViewTriangles t = load_block(block, ids, starts, ends);
    const ViewNormals n = view_normals(&t);
    const ViewSigns signs = view_sides(&primitive, &t, &n);
    int16 is_hit, is_unsure;
    view_ray(&primitive, &t, &n, &is_hit, &is_unsure);
    const int16 code = (signs.is_positive & (int16)((int)PALPATE_VIEW_POSITIVE)) | (signs.is_negative & (int16)((int)PALPATE_VIEW_NEGATIVE)) |
                       (is_hit & (int16)((int)PALPATE_VIEW_RAY_HIT)) | (is_unsure & (int16)((int)PALPATE_VIEW_RAY_UNSURE));
    vstore16(as_uint16(code), block, codes);
    const int16 used = lanes_in_use(block, ids);
    unsure += popcount(lane_bits(~(signs.is_positive | signs.is_negative) & used));
    negative += popcount(lane_bits(signs.is_negative & used));
    ray_hits += popcount(lane_bits(is_hit & used));
    ray_unsure += popcount(lane_bits(is_unsure & used));
  }
  if (unsure != 0u) atomic_add(&counts[component].unsure, unsure);
  if (negative != 0u) atomic_add(&counts[component].negative, negative);
  if (ray_hits != 0u) atomic_add(&counts[component].ray_hits, ray_hits);
  if (ray_unsure != 0u) atomic_add(&counts[component].ray_unsure, ray_unsure);
}

/* Sum over the lanes in use, in a fixed order. */
float sum_of_lanes(float16 v, int16 used) {
  const float16 in = select((float16)(0.0f), v, used);
  const float8 by_8 = in.lo + in.hi;
  const float4 by_4 = by_8.lo + by_8.hi;
  const float2 by_2 = by_4.lo + by_4.hi;
  return by_2.x + by_2.y;
}
float4 sums_of_lanes(ViewVector v, int16 used) {
  return (float4)(sum_of_lanes(v.x, used), sum_of_lanes(v.y, used), sum_of_lanes(v.z, used), 0.0f);
}

/* What moves a view point to where each triangle is seen from a height of wanted_m [component] or more: the terms of Gauss-Newton for the
   sum of squares of what heights lack, and means. A hint, whose rounding does not matter. One work-item a chunk. */
kernel void view_moments(uint chunk_count, global const UInt4* chunks, global const uint* ids, global const float4* starts,
                         global const float4* ends, global const ViewPrimitive* primitives, global const float* wanted_m,
                         global ViewMoments* moments) {
  const uint chunk = (uint)get_global_id(0);
  if (chunk >= chunk_count) return;
  const ViewPrimitive primitive = primitives[chunks[chunk].x];
  const float16 wanted = (float16)(wanted_m[chunks[chunk].x]);
  float4 pull = (float4)(0.0f), diagonal = (float4)(0.0f), mixed = (float4)(0.0f), centre = (float4)(0.0f), move = (float4)(0.0f);
  for (uint block = chunks[chunk].y; block < chunks[chunk].z; ++block) {
    const ViewTriangles t = load_block(block, ids, starts, ends);
    const ViewNormals n = view_normals(&t);
    const int16 used = lanes_in_use(block, ids);
    for (uint side = 0; side < 2; ++side) {
      const ViewVector q = view_splat(side == 0u ? primitive.start : primitive.end);
      const ViewVector p = view_sub(t.corner[0][side], q);
      const ViewVector normal = n.normal[2u * side];
      const float16 length = sqrt(view_dot(normal, normal));
      const float16 scale = 1.0f / fmax(length, (float16)(1e-30f));
      const ViewVector unit = {normal.x * scale, normal.y * scale, normal.z * scale};
      const float16 height = view_dot(p, unit);
      const int16 lacks = used & (height < wanted) & (length > (float16)(0.0f));
      const float16 lack = wanted - height;
      /* What is seen from far behind, as the back of a fold is from anywhere, hardly counts (Geman and McClure's weight). */
      const float16 share = 0.5f * lack / fmax(wanted, (float16)(1e-30f));
      const float16 root = 1.0f / (1.0f + share * share);
      const float16 weight = root * root;
      const ViewVector heavy = {unit.x * weight, unit.y * weight, unit.z * weight};
      const ViewVector pulls = {heavy.x * lack, heavy.y * lack, heavy.z * lack};
      const ViewVector squares = {heavy.x * unit.x, heavy.y * unit.y, heavy.z * unit.z};
      const ViewVector products = {heavy.x * unit.y, heavy.x * unit.z, heavy.y * unit.z};
      pull += sums_of_lanes(pulls, lacks) + (float4)(0.0f, 0.0f, 0.0f, (float)popcount(lane_bits(lacks)));
      diagonal += sums_of_lanes(squares, lacks) + (float4)(0.0f, 0.0f, 0.0f, sum_of_lanes(fabs(height), used));
      mixed += sums_of_lanes(products, lacks);
      if (side == 0u) centre += sums_of_lanes(p, used) + (float4)(0.0f, 0.0f, 0.0f, sum_of_lanes(sqrt(view_dot(p, p)), used));
    }
    mixed.w += (float)popcount(lane_bits(used));
    move += sums_of_lanes(view_sub(t.corner[0][1], t.corner[0][0]), used);
  }
  moments[chunk].pull = pull;
  moments[chunk].diagonal = diagonal;
  moments[chunk].mixed = mixed;
  moments[chunk].centre = centre;
  moments[chunk].move = move;
}

/* For the host to read. One work-item a vertex. */
kernel void view_copy(uint count, global const float4* from, global float4* to) {
  const uint i = (uint)get_global_id(0);
  if (i < count) to[i] = from[i];
}

float4 view_unit(float4 v) {
  const float length = sqrt(v.x * v.x + v.y * v.y + v.z * v.z);
  return length > 0.0f ? (float4)(v.x / length, v.y / length, v.z / length, 0.0f) : (float4)(0.0f);
}
float4 xyz_of(float4 v) { return (float4)(v.x, v.y, v.z, 0.0f); }
float4 view_cross4(float4 a, float4 b) { return (float4)(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x, 0.0f); }
float dot_xyz(float4 a, float4 b) { return a.x * b.x + a.y * b.y + a.z * b.z; }

/* Point of the primitive that a loop is seen from: the one nearest to its mean. */
float4 check_point(const ViewPrimitive* primitive, float4 origin, float4 mean) {
  const float length_sq = dot_xyz(primitive->axis, primitive->axis);
  if (primitive->axis.w == 0.0f || !(length_sq > 0.0f)) return origin;
  return origin + clamp(dot_xyz(mean - origin, primitive->axis) / length_sq, 0.0f, 1.0f) * xyz_of(primitive->axis);
}

#define CAP_SWEEPS 16u

/* A direction that sees each edge of a hole from within, if the sweeps find one: the area vector of the loop on the unit sphere, then
   corrected by edges that it does not see so. A hint. */
float4 cap_direction(uint begin, uint end, global const uint* vertices, global const float4* starts, global const float4* ends,
                     float4 from_start, float4 from_end) {
  float4 sum = (float4)(0.0f);
  for (uint sweep = 0; sweep <= CAP_SWEEPS; ++sweep) {
    const float4 direction = view_unit(sum);
    uint wrong = 0;
    for (uint i = begin; i < end; ++i) {
      const uint a = vertices[i], b = vertices[i + 1u < end ? i + 1u : begin];
      for (uint side = 0; side < 2; ++side) {
        global const float4* at = side == 0u ? starts : ends;
        const float4 from = side == 0u ? from_start : from_end;
        const float4 normal = view_cross4(view_unit(xyz_of(at[b]) - from), view_unit(xyz_of(at[a]) - from));
        if (sweep == 0u) {
          sum += normal;
        } else if (!(dot_xyz(view_unit(normal), direction) > 1e-3f)) {
          sum += view_unit(normal) * (0.1f * sqrt(dot_xyz(sum, sum)) + 1e-6f);
          ++wrong;
        }
      }
    }
    if (sweep > 0u && wrong == 0u) break;
  }
  return view_unit(sum);
}

/* Caps of holes, seen from the primitives of their components: a fan of triangles over the loop of each hole, whose edges run as the
   surface has them. Its apex is a ghost vertex, or with from_corner the first vertex of the loop. counts [hole]: caps that are not
   positive (all as unsure), and what the ray meets. One work-item a hole. */
kernel void view_caps(uint hole_count, uint from_corner, global const uint* begins, global const uint* vertices, global const uint* components,
                      global const float4* starts, global const float4* ends, global const ViewPrimitive* primitives,
                      global ViewCounts* counts) {
  const uint hole = (uint)get_global_id(0);
  if (hole >= hole_count) return;
  ViewPrimitive primitive = primitives[components[hole]];
  primitive.end.w = -INFINITY; /* Caps may come near. */
  const uint begin = begins[hole], end = begins[hole + 1];
  const uint count = end - begin;
  float4 mean_start = (float4)(0.0f), mean_end = (float4)(0.0f);
  for (uint i = begin; i < end; ++i) {
    mean_start += xyz_of(starts[vertices[i]]);
    mean_end += xyz_of(ends[vertices[i]]);
  }
  mean_start /= (float)count;
  mean_end /= (float)count;
  float4 apex_start = xyz_of(starts[vertices[begin]]), apex_end = xyz_of(ends[vertices[begin]]);
  if (from_corner == 0u) {
    const float4 from_start = check_point(&primitive, xyz_of(primitive.start), mean_start);
    const float4 from_end = check_point(&primitive, xyz_of(primitive.end), mean_end);
    const float4 direction = cap_direction(begin, end, vertices, starts, ends, from_start, from_end);
    float far_sq = 0.0f;
    for (uint i = begin; i < end; ++i) {
      const float4 d = xyz_of(starts[vertices[i]]) - from_start;
      far_sq = fmax(far_sq, dot_xyz(d, d));
    }
    apex_start = from_start + sqrt(far_sq) * direction;
    apex_end = from_end + sqrt(far_sq) * direction;
  }
  ViewCounts found = {0u, 0u, 0u, 0u};
  for (uint first = begin; first < end; first += NODE_WIDTH) {
    float x[4][NODE_WIDTH], y[4][NODE_WIDTH], z[4][NODE_WIDTH];
    uint used = 0;
    for (uint lane = 0; lane < NODE_WIDTH; ++lane) {
      const uint i = first + lane < end ? first + lane : first;
      const uint next = i + 1u < end ? i + 1u : begin;
      /* Edges at the corner itself span no cap with it. */
      if (first + lane < end && (from_corner == 0u || (i != begin && next != begin))) used |= 1u << lane;
      for (uint row = 0; row < 4; ++row) {
        const float4 p = (row % 2u == 0u ? starts : ends)[vertices[row < 2u ? next : i]];
        x[row][lane] = p.x;
        y[row][lane] = p.y;
        z[row][lane] = p.z;
      }
    }
    ViewTriangles t;
    t.corner[0][0] = view_splat(apex_start);
    t.corner[0][1] = view_splat(apex_end);
    for (uint row = 0; row < 4; ++row) {
      t.corner[1u + row / 2u][row % 2u].x = vload16(0, x[row]);
      t.corner[1u + row / 2u][row % 2u].y = vload16(0, y[row]);
      t.corner[1u + row / 2u][row % 2u].z = vload16(0, z[row]);
    }
    const ViewNormals n = view_normals(&t);
    const ViewSigns signs = view_sides(&primitive, &t, &n);
    int16 is_hit, is_unsure;
    view_ray(&primitive, &t, &n, &is_hit, &is_unsure);
    found.unsure += popcount(lane_bits(~signs.is_positive) & used);
    found.ray_hits += popcount(lane_bits(is_hit) & used);
    found.ray_unsure += popcount(lane_bits(is_unsure) & used);
  }
  counts[hole] = found;
}

/* Puts triangles with a label other than 0 [triangle], and their edges and vertices, into the groups first_group + label - 1, below all
   that the elements are in, which are those of bodies that meet themselves. Of several labels the smallest holds. One work-item a
   triangle. */
kernel void view_groups(uint triangle_count, uint first_group, global const uint* labels, global const UInt4* triangles,
                        global const UInt4* triangle_edges, global uint* groups, volatile global uint* vertex_groups,
                        volatile global uint* edge_groups) {
  const uint i = (uint)get_global_id(0);
  if (i >= triangle_count || labels[i] == 0u) return;
  const uint group = first_group + labels[i] - 1u;
  groups[i] = group;
  const UInt4 v = triangles[i], e = triangle_edges[i];
  atomic_min(&vertex_groups[v.x], group);
  atomic_min(&vertex_groups[v.y], group);
  atomic_min(&vertex_groups[v.z], group);
  atomic_min(&edge_groups[e.x], group);
  atomic_min(&edge_groups[e.y], group);
  atomic_min(&edge_groups[e.z], group);
}
