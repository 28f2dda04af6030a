#include "gpu/collision/epa.clh"

#define GJK_MAX_ITERATIONS 128
#define EPA_MAX_ITERATIONS 96
/* Shares of the size of the Minkowski difference: what rounding leaves uncertain, and where EPA stops. */
#define TOUCHING 3e-7f
#define EPA_TOLERANCE 2e-6f
#define NO_VERTEX 0xffffffffu
#define STATISTICS_CHUNK 256
#define STATISTICS_BINS 64

/* The bodies of pair (a, b) in a frame whose origin is the position of A, where coordinates are small wherever the pair is. */
static inline void load_pair(uint a, uint b, global const uint* meshes, global const Float4* positions, global const Float4* rotations,
                             global const Float4* scales, global const ConvexShape* shapes, Hull* hull_a, Hull* hull_b) {
  hull_a->shape = shapes[meshes[a]];
  hull_b->shape = shapes[meshes[b]];
  set_hull_axes(hull_a, rotations[a], scales[a]);
  set_hull_axes(hull_b, rotations[b], scales[b]);
  hull_a->origin = (float3)(0.0f);
  hull_b->origin = positions[b].xyz - positions[a].xyz;
  hull_a->start = 0;
  hull_b->start = 0;
}

/* What came of input that is not finite, or of products that overflow. */
static inline void mark_if_not_finite(ConvexContact* contact) {
  const float4 sum = contact->normal + contact->point_a + contact->point_b;
  if (isfinite(sum.x + sum.y + sum.z + sum.w)) return;
  contact->status = PALPATE_CONVEX_NOT_CONVERGED;
  contact->normal = (Float4)(0.0f, 1.0f, 0.0f, 0.0f);
  contact->point_a = contact->point_b = (Float4)(0.0f);
}

/* GJK for each pair. Decides pairs that are apart; writes simplex and flag of the others, for EPA. Pairs farther apart than range_m end as
   soon as that is known. */
kernel void convex_gjk(uint capacity, global const uint* device_count, global const UInt2* pairs, global const uint* meshes,
                       global const Float4* positions, global const Float4* rotations, global const Float4* scales,
                       global const ConvexShape* shapes, global const float* vertices, global const uint* rows,
                       global const uint* neighbors, float range_m, global ConvexContact* contacts, global UInt4* simplex_a,
                       global UInt4* simplex_b, global uint* overlaps) {
  const size_t pair = get_global_id(0);
  if (pair >= capacity) return;
  overlaps[pair] = 0;
  if (device_count && pair >= device_count[0]) return;
  const uint body_a = pairs[pair].x;
  const uint body_b = pairs[pair].y;
  Hull a, b;
  load_pair(body_a, body_b, meshes, positions, rotations, scales, shapes, &a, &b);

  float3 v = -b.origin; /* a direction at first, then the point of the simplex nearest to the origin */
  if (!(dot(v, v) > 0.0f)) v = (float3)(1.0f, 0.0f, 0.0f);
  float v_length = length(v);
  Simplex s;
  s.count = 0;
  float size = 0.0f;
  float lower = -INFINITY; /* no point of the difference is nearer than this, */
  float3 normal = v;       /* as the plane with this normal shows */
  Simplex nearest;         /* of all so far */
  nearest.count = 0;
  float nearest_length = INFINITY;
  uint stalls = 0;
  uint iterations = 0;
  uint status = PALPATE_CONVEX_NOT_CONVERGED;
  while (iterations < GJK_MAX_ITERATIONS) {
    uint index_a, index_b;
    const float3 w = minkowski_support(vertices, rows, neighbors, &a, &b, -v, &index_a, &index_b);
    ++iterations;
    size = fmax(size, largest_coordinate(w));
    const float height = dot(v, w) / v_length;
    if (height > lower) {
      lower = height;
      normal = v / -v_length;
    }
    if (lower > range_m) {
      status = PALPATE_CONVEX_FAR;
      break;
    }
    bool known = s.count > 0 && nearest_length - lower <= 1e-6f * nearest_length;
    for (uint i = 0; i < s.count; ++i) known = known || (s.a[i] == index_a && s.b[i] == index_b);
    if (known || stalls > 2) {
      status = PALPATE_CONVEX_SEPARATED;
      break;
    }
    s.p[s.count] = w;
    s.a[s.count] = index_a;
    s.b[s.count] = index_b;
    ++s.count;
    const float3 next = nearest_on_simplex(&s, size);
    const float next_length = length(next);
    if (s.count == 4 || next_length <= TOUCHING * size) {
      status = PALPATE_CONVEX_OVERLAPPING;
      break;
    }
    if (next_length < nearest_length) {
      nearest = s;
      nearest_length = next_length;
    } else {
      ++stalls; /* as near as rounding allows; a few more planes may show it better */
    }
    v = next;
    v_length = next_length;
  }
  /* Without a proof that they are apart the pair is EPA's, which finds one or a depth. */
  if (status == PALPATE_CONVEX_SEPARATED && !(lower > 0.0f)) status = PALPATE_CONVEX_OVERLAPPING;
  if (status != PALPATE_CONVEX_OVERLAPPING) s = nearest;

  ConvexContact contact;
  contact.a = body_a;
  contact.b = body_b;
  contact.status = status;
  contact.iterations = iterations;
  float3 on_a = (float3)(0.0f);
  float3 on_b = (float3)(0.0f);
  for (uint i = 0; status != PALPATE_CONVEX_OVERLAPPING && i < s.count; ++i) { /* else EPA finds the points */
    on_a += s.lam[i] * hull_vertex(vertices, &a, s.a[i]);
    on_b += s.lam[i] * hull_vertex(vertices, &b, s.b[i]);
  }
  const float separation = status == PALPATE_CONVEX_FAR ? lower : nearest_length;
  contact.normal = (Float4)(normal, separation);
  contact.point_a = (Float4)(on_a + positions[body_a].xyz, status == PALPATE_CONVEX_OVERLAPPING ? size : fmax(0.0f, separation - lower));
  contact.point_b = (Float4)(on_b + positions[body_a].xyz, 0.0f);
  if (status == PALPATE_CONVEX_OVERLAPPING) contact.normal.w = 0.0f;
  mark_if_not_finite(&contact);
  contacts[pair] = contact;
  if (contact.status == PALPATE_CONVEX_OVERLAPPING) {
    overlaps[pair] = 1;
    simplex_a[pair] = (UInt4)(s.a[0], s.count > 1 ? s.a[1] : NO_VERTEX, s.count > 2 ? s.a[2] : NO_VERTEX, s.count > 3 ? s.a[3] : NO_VERTEX);
    simplex_b[pair] = (UInt4)(s.b[0], s.count > 1 ? s.b[1] : NO_VERTEX, s.count > 2 ? s.b[2] : NO_VERTEX, s.count > 3 ? s.b[3] : NO_VERTEX);
  }
}

/* Stores the support point along d as vertex `slot`. */
static inline float3 find_vertex(global const float* vertices, global const uint* rows, global const uint* neighbors, Hull* a, Hull* b,
                                 float3 d, Polytope* poly, uint slot) {
  uint index_a, index_b;
  const float3 w = minkowski_support(vertices, rows, neighbors, a, b, d, &index_a, &index_b);
  poly->p[slot] = w;
  poly->a[slot] = index_a;
  poly->b[slot] = index_b;
  poly->size = fmax(poly->size, largest_coordinate(w));
  return w;
}

static inline void move_vertex(Polytope* poly, uint from, uint to) {
  poly->p[to] = poly->p[from];
  poly->a[to] = poly->a[from];
  poly->b[to] = poly->b[from];
}

/* Makes a tetrahedron with volume of the `count` points that GJK left. Returns the dimension of the difference where that is less than 3,
   with its first dimension + 1 vertices spanning it; 3 otherwise. *replaced: a degenerate tetrahedron was thrown away. */
static inline uint make_tetrahedron(global const float* vertices, global const uint* rows, global const uint* neighbors, Hull* a, Hull* b,
                                    Polytope* poly, uint count, bool* replaced) {
  const float flat = 1e-6f;
  *replaced = false;
  if (count == 4) {
    uint opposite = 0; /* of the largest face */
    float largest = -1.0f;
    float height = 0.0f;
    for (uint f = 0; f < 4; ++f) {
      const float3 p = poly->p[(f + 1) & 3u];
      const float3 n = cross(poly->p[(f + 2) & 3u] - p, poly->p[(f + 3) & 3u] - p);
      const float area = length(n);
      if (area <= largest) continue;
      largest = area;
      opposite = f;
      height = area > 0.0f ? fabs(dot(n, poly->p[f] - p)) / area : 0.0f;
    }
    if (height > flat * poly->size) return 3;
    *replaced = true;
    if (opposite != 3) move_vertex(poly, 3, opposite);
    count = 3;
  }
  if (count == 3) {
    const float3 ab = poly->p[1] - poly->p[0];
    const float3 bc = poly->p[2] - poly->p[1];
    const float3 ca = poly->p[0] - poly->p[2];
    const float longest = fmax(fmax(dot(ab, ab), dot(bc, bc)), dot(ca, ca));
    if (!(length(cross(ab, ca)) > flat * poly->size * sqrt(longest))) {
      if (longest == dot(bc, bc)) {
        move_vertex(poly, 2, 0);
      } else if (longest == dot(ca, ca)) {
        move_vertex(poly, 2, 1);
      }
      count = 2;
    }
  }
  if (count == 2 && !(length(poly->p[1] - poly->p[0]) > flat * poly->size)) count = 1;
  for (uint i = 0; count == 1 && i < 6; ++i) {
    const float sign = i < 3 ? 1.0f : -1.0f;
    const float3 d = sign * (float3)(i % 3 == 0 ? 1.0f : 0.0f, i % 3 == 1 ? 1.0f : 0.0f, i % 3 == 2 ? 1.0f : 0.0f);
    const float3 w = find_vertex(vertices, rows, neighbors, a, b, d, poly, 1);
    if (length(w - poly->p[0]) > flat * poly->size) count = 2;
  }
  if (count == 1) return 0;
  if (count == 2) {
    const float3 e = normalize(poly->p[1] - poly->p[0]);
    const float3 axis = fabs(e.x) < 0.6f ? (float3)(1.0f, 0.0f, 0.0f) : (float3)(0.0f, 1.0f, 0.0f);
    const float3 d0 = normalize(cross(e, axis));
    const float3 d1 = cross(e, d0);
    for (uint i = 0; count == 2 && i < 4; ++i) {
      const float3 d = (i & 1u) ? -(i & 2u ? d1 : d0) : (i & 2u ? d1 : d0);
      const float3 w = find_vertex(vertices, rows, neighbors, a, b, d, poly, 2) - poly->p[0];
      if (length(w - dot(w, e) * e) > flat * poly->size) count = 3;
    }
    if (count == 2) return 1;
  }
  const float3 n = normalize(cross(poly->p[1] - poly->p[0], poly->p[2] - poly->p[0]));
  for (uint i = 0; i < 2; ++i) {
    const float3 w = find_vertex(vertices, rows, neighbors, a, b, i == 0 ? n : -n, poly, 3);
    if (fabs(dot(w - poly->p[0], n)) > flat * poly->size) return 3;
  }
  return 2;
}

/* What EPA knows of the depth of a pair. */
typedef struct {
  float depth; /* the smallest height of a support plane so far: moving B by it along `normal` parts the two */
  float lower; /* the depth is not less than this */
  float3 normal;
  uchar4 face; /* of the polytope, that the normal is of */
  uint iterations;
  uint status;
} EpaDepth;

/* For a difference without an inside: the depth is that of a direction across it, zero but for rounding. */
static inline void depth_of_flat(global const float* vertices, global const uint* rows, global const uint* neighbors, Hull* a, Hull* b,
                                 Polytope* poly, uint dimension, EpaDepth* out) {
  const float3 e = poly->p[1] - poly->p[0];
  float3 n = (float3)(0.0f, 1.0f, 0.0f);
  if (dimension == 1) n = normalize(cross(e, fabs(e.x) <= fabs(e.y) ? (float3)(1.0f, 0.0f, 0.0f) : (float3)(0.0f, 1.0f, 0.0f)));
  if (dimension == 2) n = normalize(cross(e, poly->p[2] - poly->p[0]));
  for (uint i = 0; i < 2; ++i) {
    const float3 d = i == 0 ? n : -n;
    const float height = dot(d, find_vertex(vertices, rows, neighbors, a, b, d, poly, 3));
    ++out->iterations;
    if (height >= out->depth) continue;
    out->depth = height;
    out->normal = d;
  }
  out->lower = out->depth;
  out->status = PALPATE_CONVEX_OVERLAPPING;
}

/* The four faces of the tetrahedron that the first vertices span. */
static inline void start_polytope(Polytope* poly) {
  poly->inside = 0.25f * (poly->p[0] + poly->p[1] + poly->p[2] + poly->p[3]);
  const float3 n = cross(poly->p[1] - poly->p[0], poly->p[2] - poly->p[0]);
  const uchar one = dot(n, poly->p[3] - poly->p[0]) < 0.0f ? 1 : 2;
  const uchar two = one == 1 ? 2 : 1;
  set_face(poly, 0, 0, one, two);
  set_face(poly, 1, 0, 3, one);
  set_face(poly, 2, 0, two, 3);
  set_face(poly, 3, one, 3, two);
  poly->vertex_count = 4;
  poly->face_count = 4;
}

/* INFINITY if none can move outwards any more. */
static inline float nearest_face(const Polytope* poly, uint* nearest) {
  float distance_m = INFINITY;
  *nearest = 0;
  for (uint f = 0; f < poly->face_count; ++f) {
    if (poly->corner[f].w == EPA_REMOVED || poly->plane[f].w >= distance_m) continue;
    distance_m = poly->plane[f].w;
    *nearest = f;
  }
  return distance_m;
}

/* Moves the nearest face outwards until no support plane is much farther out than it. */
static inline void expand_polytope(global const float* vertices, global const uint* rows, global const uint* neighbors, Hull* a, Hull* b,
                                   Polytope* poly, EpaDepth* out) {
  while (out->iterations < EPA_MAX_ITERATIONS && poly->vertex_count < EPA_MAX_VERTICES) {
    uint nearest;
    const float distance_m = nearest_face(poly, &nearest);
    if (distance_m == INFINITY) break;
    out->lower = distance_m;
    const float3 n = poly->plane[nearest].xyz;
    const uint apex = poly->vertex_count;
    const float3 w = find_vertex(vertices, rows, neighbors, a, b, n, poly, apex);
    ++out->iterations;
    const float height = dot(n, w);
    if (height < out->depth) {
      out->depth = height;
      out->normal = n;
      out->face = poly->corner[nearest];
    }
    if (out->depth - distance_m <= EPA_TOLERANCE * poly->size) {
      out->status = PALPATE_CONVEX_OVERLAPPING;
      break;
    }
    bool known = false;
    for (uint i = 0; i < poly->vertex_count; ++i) known = known || (poly->a[i] == poly->a[apex] && poly->b[i] == poly->b[apex]);
    if (known) { /* rounding has bent the polytope here; the face cannot move outwards any more */
      poly->plane[nearest].w = INFINITY;
      continue;
    }
    ++poly->vertex_count;
    if (!grow(poly, (uchar)apex, nearest, TOUCHING * poly->size)) break;
  }
}

/* Where the bodies touch: where the nearest face holds the foot of the perpendicular; of several faces in that plane one does. */
static inline void place_contact(global const float* vertices, const Hull* a, const Hull* b, const Polytope* poly, uint dimension,
                                 const EpaDepth* found, float3* on_a, float3* on_b) {
  const float3 foot = found->depth < INFINITY ? found->depth * found->normal : (float3)(0.0f);
  uchar4 face = found->face;
  float la, lb, lc;
  float3 miss = nearest_on_triangle(poly->p[face.x] - foot, poly->p[face.y] - foot, poly->p[face.z] - foot, &la, &lb, &lc);
  for (uint f = 0; dimension == 3 && f < poly->face_count; ++f) {
    const uchar4 corner = poly->corner[f];
    if (corner.w == EPA_REMOVED || fabs(poly->plane[f].w - found->depth) > 2.0f * EPA_TOLERANCE * poly->size) continue;
    float ma, mb, mc;
    const float3 other = nearest_on_triangle(poly->p[corner.x] - foot, poly->p[corner.y] - foot, poly->p[corner.z] - foot, &ma, &mb, &mc);
    if (dot(other, other) >= dot(miss, miss)) continue;
    miss = other;
    face = corner;
    la = ma;
    lb = mb;
    lc = mc;
  }
  *on_a = la * hull_vertex(vertices, a, poly->a[face.x]) + lb * hull_vertex(vertices, a, poly->a[face.y]) +
          lc * hull_vertex(vertices, a, poly->a[face.z]);
  *on_b = la * hull_vertex(vertices, b, poly->b[face.x]) + lb * hull_vertex(vertices, b, poly->b[face.y]) +
          lc * hull_vertex(vertices, b, poly->b[face.z]);
}

/* EPA for the pairs that GJK could not show apart. */
kernel void convex_epa(uint capacity, global const uint* device_count, global const uint* overlapping, global const uint* meshes,
                       global const Float4* positions, global const Float4* rotations, global const Float4* scales,
                       global const ConvexShape* shapes, global const float* vertices, global const uint* rows,
                       global const uint* neighbors, global const UInt4* simplex_a, global const UInt4* simplex_b,
                       global ConvexContact* contacts) {
  const size_t item = get_global_id(0);
  if (item >= capacity || item >= device_count[0]) return;
  const uint pair = overlapping[item];
  ConvexContact contact = contacts[pair];
  Hull a, b;
  load_pair(contact.a, contact.b, meshes, positions, rotations, scales, shapes, &a, &b);

  Polytope poly;
  poly.size = contact.point_a.w;
  const uint start_a[4] = {simplex_a[pair].x, simplex_a[pair].y, simplex_a[pair].z, simplex_a[pair].w};
  const uint start_b[4] = {simplex_b[pair].x, simplex_b[pair].y, simplex_b[pair].z, simplex_b[pair].w};
  uint count = 0;
  for (; count < 4 && start_a[count] != NO_VERTEX; ++count) {
    poly.a[count] = start_a[count];
    poly.b[count] = start_b[count];
    poly.p[count] = hull_vertex(vertices, &a, start_a[count]) - hull_vertex(vertices, &b, start_b[count]);
  }
  bool replaced = false;
  const uint dimension = make_tetrahedron(vertices, rows, neighbors, &a, &b, &poly, count, &replaced);

  EpaDepth found;
  found.depth = INFINITY;
  found.lower = -INFINITY;
  found.normal = (float3)(0.0f, 1.0f, 0.0f);
  found.face = (uchar4)(0, dimension > 0 ? 1 : 0, dimension > 1 ? 2 : 0, 0);
  found.iterations = 0;
  found.status = PALPATE_CONVEX_NOT_CONVERGED;
  if (dimension < 3) {
    depth_of_flat(vertices, rows, neighbors, &a, &b, &poly, dimension, &found);
  } else {
    start_polytope(&poly);
    expand_polytope(vertices, rows, neighbors, &a, &b, &poly, &found);
  }
  if (found.status == PALPATE_CONVEX_OVERLAPPING && found.depth < 0.0f) found.status = PALPATE_CONVEX_SEPARATED;
  float3 on_a, on_b;
  place_contact(vertices, &a, &b, &poly, dimension, &found, &on_a, &on_b);

  contact.status = found.status;
  contact.iterations |= (found.iterations << PALPATE_CONVEX_EPA_SHIFT) | (replaced ? PALPATE_CONVEX_REBUILT : 0u);
  contact.normal = (Float4)(found.normal, -found.depth);
  contact.point_a = (Float4)(on_a + positions[contact.a].xyz, fmax(0.0f, found.depth - found.lower));
  contact.point_b = (Float4)(on_b + positions[contact.a].xyz, 0.0f);
  mark_if_not_finite(&contact);
  contacts[pair] = contact;
}

/* Each body against each plane (xyz unit normal, w offset; solid below): the deepest vertex. contacts[body * plane_count + plane]. */
kernel void convex_planes(uint body_count, global const uint* meshes, global const Float4* positions, global const Float4* rotations,
                          global const Float4* scales, global const ConvexShape* shapes, global const float* vertices,
                          global const uint* rows, global const uint* neighbors, uint plane_count, global const Float4* planes,
                          global ConvexContact* contacts) {
  const size_t item = get_global_id(0);
  if (item >= (size_t)body_count * plane_count) return;
  const uint body = (uint)(item / plane_count);
  const uint plane = (uint)(item % plane_count);
  Hull hull;
  hull.shape = shapes[meshes[body]];
  set_hull_axes(&hull, rotations[body], scales[body]);
  hull.origin = positions[body].xyz;
  hull.start = 0;
  const float3 up = planes[plane].xyz;
  const float3 deepest = hull_vertex(vertices, &hull, hull_support(vertices, rows, neighbors, &hull, -up));
  const float gap = dot(up, deepest) - planes[plane].w;
  ConvexContact contact;
  contact.a = body;
  contact.b = PALPATE_PLANE_BIT | plane;
  contact.status = gap > 0.0f ? PALPATE_CONVEX_SEPARATED : gap <= 0.0f ? PALPATE_CONVEX_OVERLAPPING : PALPATE_CONVEX_NOT_CONVERGED;
  contact.iterations = 1;
  contact.normal = (Float4)(-up, isfinite(gap) ? gap : 0.0f);
  contact.point_a = isfinite(gap) ? (Float4)(deepest, 0.0f) : (Float4)(0.0f);
  contact.point_b = isfinite(gap) ? (Float4)(deepest - gap * up, 0.0f) : (Float4)(0.0f);
  contacts[item] = contact;
}

/* Adds to bins[0..63] the pairs by GJK supports, to bins[64..127] those that used EPA by EPA supports (the last bin holds all above), to
   bins[128 + status] the pairs by status, to bins[132] the degenerate tetrahedra. */
kernel void convex_statistics(uint capacity, global const uint* device_count, global const ConvexContact* contacts, global uint* bins) {
  const uint count = device_count ? min(capacity, device_count[0]) : capacity;
  const size_t begin = get_global_id(0) * STATISTICS_CHUNK;
  if (begin >= count) return;
  const size_t end = min(begin + STATISTICS_CHUNK, (size_t)count);
  for (size_t i = begin; i < end; ++i) {
    const uint iterations = contacts[i].iterations;
    const uint epa = (iterations >> PALPATE_CONVEX_EPA_SHIFT) & PALPATE_CONVEX_COUNT_MASK;
    atomic_inc(&bins[min(iterations & PALPATE_CONVEX_COUNT_MASK, (uint)STATISTICS_BINS - 1)]);
    if (epa > 0) atomic_inc(&bins[STATISTICS_BINS + min(epa, (uint)STATISTICS_BINS - 1)]);
    atomic_inc(&bins[2 * STATISTICS_BINS + contacts[i].status]);
    if (iterations & PALPATE_CONVEX_REBUILT) atomic_inc(&bins[2 * STATISTICS_BINS + 4]);
  }
}
