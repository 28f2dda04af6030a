#include "gpu/collision/kdop.clh"
#include "gpu/shared/convex_types.h"

/* Contacts of rigid bodies from their bounding volumes alone. Given by the host: AXES and ORIENTED (see kdop.clh). */

typedef struct {
  float3 normal; /* unit, from A to B */
  float depth;   /* negative: apart [m] */
} VolumeContact;

/* Keeps the direction in which the least move parts the volumes. */
void offer(private VolumeContact* best, float3 normal, float depth) {
  if (depth < best->depth) {
    best->normal = normal;
    best->depth = depth;
  }
}

#if AXES > 0
/* The intervals on axis n, of any length, that are element i of the volumes. */
void offer_axis(private VolumeContact* best, global const float* a, global const float* b, uint i, float3 n) {
  const float inverse = 1.0f / length(n);
  offer(best, inverse * n, inverse * (a[AXES + i] - b[i]));
  offer(best, -inverse * n, inverse * (b[AXES + i] - a[i]));
}
#endif

VolumeContact least_overlap(global const float* a, global const float* b) {
  VolumeContact best;
  best.normal = (float3)(1.0f, 0.0f, 0.0f);
  best.depth = INFINITY;
#if AXES > 0
  for (uint i = 0; i < AXES; ++i) {
    const float4 n = volume_axis(i);
    offer_axis(&best, a, b, i, n.xyz);
  }
#if ORIENTED
  const OrientedPair p = load_oriented_pair(a, b, 1);
  const float3 apart = (float3)(b[ORIENTED_CENTRE] - a[ORIENTED_CENTRE], b[ORIENTED_CENTRE + 1] - a[ORIENTED_CENTRE + 1],
                                b[ORIENTED_CENTRE + 2] - a[ORIENTED_CENTRE + 2]);
  for (uint i = 0; i < 3; ++i) {
    global const float* u = a + ORIENTED_AXES + 3 * i;
    global const float* v = b + ORIENTED_AXES + 3 * i;
    const float3 of_a = (float3)(u[0], u[1], u[2]);
    const float3 of_b = (float3)(v[0], v[1], v[2]);
    offer(&best, dot(apart, of_a) < 0.0f ? -of_a : of_a, -oriented_gap_a(&p, i));
    offer(&best, dot(apart, of_b) < 0.0f ? -of_b : of_b, -oriented_gap_b(&p, i));
    for (uint j = 0; j < 3; ++j) {
      global const float* w = b + ORIENTED_AXES + 3 * j;
      const float3 n = cross(of_a, (float3)(w[0], w[1], w[2]));
      const float n_length = length(n);
      /* Nearly parallel edges: the faces decide. */
      if (n_length < 1e-3f) continue;
      offer(&best, (dot(apart, n) < 0.0f ? -n : n) / n_length, -oriented_gap_edges(&p, i, j) / n_length);
    }
  }
#endif
#else
  const float3 apart = (float3)(b[0] - a[0], b[1] - a[1], b[2] - a[2]);
  const float distance_m = length(apart);
  if (distance_m > 0.0f) best.normal = apart / distance_m;
  best.depth = a[3] + b[3] - distance_m;
#endif
  return best;
}

/* contacts[p]: normal and depth of the volumes of pair p, its points are between the bodies. acting[2 p], acting[2 p + 1]: as rigid_note.
 */
kernel void rigid_volume_contacts(uint pair_count, uint is_first, global const UInt2* pairs, global const float* volumes,
                                  global const Float4* positions, global ConvexContact* contacts, global Float4* acting,
                                  global RigidCounters* counters) {
  const size_t p = get_global_id(0);
  if (p >= pair_count) return;
  const UInt2 pair = pairs[p];
  const VolumeContact found = least_overlap(volumes + (size_t)pair.x * VOLUME_FLOATS, volumes + (size_t)pair.y * VOLUME_FLOATS);
  const bool is_good = isfinite(found.depth) && isfinite(dot(found.normal, found.normal));
  const float3 middle = 0.5f * positions[pair.x].xyz + 0.5f * positions[pair.y].xyz;
  ConvexContact contact;
  contact.a = pair.x;
  contact.b = pair.y;
  contact.status = !is_good ? PALPATE_CONVEX_NOT_CONVERGED : found.depth >= 0.0f ? PALPATE_CONVEX_OVERLAPPING : PALPATE_CONVEX_SEPARATED;
  contact.iterations = 0;
  contact.normal = is_good ? (Float4)(found.normal, -found.depth) : (Float4)(1.0f, 0.0f, 0.0f, 0.0f);
  contact.point_a = (Float4)(middle, 0.0f);
  contact.point_b = (Float4)(middle, 0.0f);
  contacts[p] = contact;
  if (!is_good) atomic_inc(&counters->unresolved_pairs);
  if (is_first) acting[2 * p] = acting[2 * p + 1] = (Float4)(0.0f);
  if (contact.status == PALPATE_CONVEX_OVERLAPPING && !(acting[2 * p].w > 0.0f)) {
    acting[2 * p] = (Float4)(found.normal, 1.0f);
    acting[2 * p + 1] = (Float4)(middle, 0.0f);
  }
}
