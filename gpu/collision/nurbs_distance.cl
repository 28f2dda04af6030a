/* Branch and bound for the distance of two objects; see gpu/collision/nurbs_distance.h. Given by the host: MINIMA, 0 for the least
   distance, 1 for all local minima; VOLUME 0, SPLIT 0, WITH_CORNERS 1, WITH_CONES as MINIMA; and what nurbs_parts.clh takes. */
#include "gpu/collision/nurbs_parts.clh"

#define NO_DISTANCE 3.0e38f
#define IS_HIT 0x80u
#define IS_FROZEN 0x40u

/* No point of the one box is nearer to the other than this, but for rounding. The axes are those of both boxes and the way between their
   centres. */
float boxes_gap(const NurbsBox* a, const NurbsBox* b) {
  const float4 d = (float4)(b->centre.xyz - a->centre.xyz, 0.0f);
  const float4 r0 = a->x.x * b->x + a->y.x * b->y + a->z.x * b->z;
  const float4 r1 = a->x.y * b->x + a->y.y * b->y + a->z.y * b->z;
  const float4 r2 = a->x.z * b->x + a->y.z * b->y + a->z.z * b->z;
  const float4 q0 = fabs(r0), q1 = fabs(r1), q2 = fabs(r2);
  const float4 ta = fabs(d.x * a->x + d.y * a->y + d.z * a->z), tb = fabs(d.x * b->x + d.y * b->y + d.z * b->z);
  const float4 ha = a->reach, hb = b->reach;
  const float4 c0 = (float4)(q0.x, q1.x, q2.x, 0.0f), c1 = (float4)(q0.y, q1.y, q2.y, 0.0f), c2 = (float4)(q0.z, q1.z, q2.z, 0.0f);
  const float4 by_b = tb - (ha.x * q0 + ha.y * q1 + ha.z * q2) - hb;
  const float4 by_a = ta - (hb.x * c0 + hb.y * c1 + hb.z * c2) - ha;
  const float4 faces = larger4(by_a, by_b);
  float gap = larger(larger(faces.x, faces.y), faces.z);
  const float far = sqrt(dot(d, d));
  if (far > 1e-30f) {
    const float4 reach = (float4)(ha.xyz, 0.0f) * ta + (float4)(hb.xyz, 0.0f) * tb;
    gap = larger(gap, far - (reach.x + reach.y + reach.z) / far);
  }
  return gap;
}

/* Rounding of what is computed of two placed boxes. */
float rounding_of(const Volume* a, const Volume* b, float slack) {
  const float4 d = centre_of(a) - centre_of(b);
  return slack + TEST_SLACK * (a->size + b->size + sqrt(dot(d, d)));
}

float lower_bound(const Volume* a, const Volume* b, float slack) {
  return larger(0.0f, boxes_gap(&a->box, &b->box) - rounding_of(a, b, slack));
}

/* Some points of the two are no farther apart. */
float upper_bound(const Volume* a, const Volume* b, float slack) {
  const float more = rounding_of(a, b, slack);
  if (a->is_node || b->is_node) {
    const float4 d = centre_of(a) - centre_of(b);
    return sqrt(dot(d, d)) + 0.5f * (a->size + b->size) + more;
  }
  const float4 b_x = (float4)(b->corners[0].x, b->corners[1].x, b->corners[2].x, b->corners[3].x);
  const float4 b_y = (float4)(b->corners[0].y, b->corners[1].y, b->corners[2].y, b->corners[3].y);
  const float4 b_z = (float4)(b->corners[0].z, b->corners[1].z, b->corners[2].z, b->corners[3].z);
  float4 least = (float4)(INFINITY);
  for (uint i = 0; i < 4; ++i) {
    const float4 x = b_x - a->corners[i].x, y = b_y - a->corners[i].y, z = b_z - a->corners[i].z;
    least = smaller4(least, x * x + y * y + z * z);
  }
  return sqrt(fmin(fmin(least.x, least.y), fmin(least.z, least.w))) + more;
}

#if MINIMA
/* 1 if the directions of a cone all have a positive product with those in a ball about the unit vector `way`, of half-angle `open`; -1 if
   all have a negative one; 0 if that is not known. */
int sign_along(float4 cone, float4 way, float open) {
  if (!(cone.w < NO_CONE)) return 0;
  const float angle = acos(clamp(dot((float4)(cone.xyz, 0.0f), way), -1.0f, 1.0f));
  const float wide = cone.w + open + 1e-3f;
  return angle + wide < 1.5707f ? 1 : angle - wide > 1.5709f ? -1 : 0;
}

/* Whether the distance grows or falls throughout along a parameter, so that there is no minimum but at the end of the patch, and that end
   is not in the interval. */
int is_passed(int sign, uint interval) {
  if (sign == 0) return 0;
  const uint at_low = INDEX_OF(interval) == 0, at_high = INDEX_OF(interval) + 1u == (1u << LEVEL_OF(interval));
  return sign > 0 ? !at_low : !at_high;
}

/* Whether no local minimum of the distance is in the two parts of patches. */
int has_no_minimum(const Volume* a, const Volume* b, const Part* part_a, const Part* part_b, float slack) {
  if (a->is_node || b->is_node) return 0;
  const float4 d = centre_of(a) - centre_of(b);
  const float far = sqrt(dot(d, d)), around = 0.5f * (a->size + b->size) + rounding_of(a, b, slack);
  if (!(far > 1.01f * around)) return 0;
  const float4 way = d / far;
  const float open = asin(fmin(1.0f, around / far)) + 1e-3f;
  return is_passed(sign_along(a->cone_u, way, open), part_a->u) || is_passed(sign_along(a->cone_v, way, open), part_a->v) ||
         is_passed(-sign_along(b->cone_u, way, open), part_b->u) || is_passed(-sign_along(b->cone_v, way, open), part_b->v);
}
#endif

/* Work-item: query. Its first pair, and no distance known yet. */
kernel void nurbs_distance_roots(uint count, global const NurbsPlacement* placements, global NurbsPair* pairs,
                                 global NurbsDistanceBest* bests) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const NurbsPair pair = {i, 0, placements[i].root_a, 0, 0, placements[i].root_b, 0, 0, NOT_TESTED, 0.0f, 0, 0};
  pairs[i] = pair;
  const NurbsDistanceBest best = {as_uint(NO_DISTANCE), as_uint(NO_DISTANCE), 0xffffffffu, 0, pair};
  bests[i] = best;
}

/* The largest distance of which the host wants to know, if the query has these bounds. A bound of patches alone has a place, and what is
   not below it by more than the allowance does not matter. Other bounds of nodes say that nodes farther than that do not. */
float wanted(float least_upper, float patch_upper, float range_m, float slack, uint is_node) {
#if MINIMA
  (void)least_upper;
  (void)patch_upper;
  (void)slack;
  (void)is_node;
  return range_m;
#else
  const float allowed = patch_upper - fmax(range_m, 4.0f * slack + 1.52587890625e-5f * patch_upper);
  return is_node ? fmin(least_upper, allowed) : allowed;
#endif
}

#if !MINIMA
/* How many pairs wait at most in a search in depth. */
#define STACK 64

/* Work-item: query. bests: a first bound with a place, from a search in depth of at most `most` cuts that goes into the nearest parts
   first; is_done, if nothing is left that could be nearer by more than the allowance. */
kernel void nurbs_distance_in_depth(NurbsRule rule, uint most, float range_m, global const NurbsPlacement* placements, OBJECT_PARAMETERS,
                                    global NurbsDistanceBest* bests) {
  const uint q = (uint)get_global_id(0);
  if (q >= rule.count) return;
  const Objects objects = OBJECTS;
  const Place at_a = place_a(&placements[q]), at_b = place_b(&placements[q]);
  const float slack = placements[q].slack_m;
  NurbsPair stack[STACK];
  uint waiting = 0, has_kept = 0;
  Children children;
  KeptVolumes kept;
  NurbsPair pair = bests[q].pair, nearest = pair;
  float upper = NO_DISTANCE, want = NO_DISTANCE;
  uint is_complete = 1, is_next = 1;
  for (uint n = 0; is_next && n < most; ++n) {
    cut_pair(&pair, has_kept ? &kept : 0, &at_a, &at_b, &objects, &children);
    /* Of the children the nearer one is next, the other one waits. Boxes that overlap are told apart by their centres. */
    float key_of_next = INFINITY;
    is_next = 0;
    for (uint c = 0; c < children.count_a * children.count_b; ++c) {
      const Volume *a = &children.volume_a[c / children.count_b], *b = &children.volume_b[c % children.count_b];
      NurbsPair child = child_pair(&children, q, c / children.count_b, c % children.count_b);
      const Part part_a = part_a_of(&child), part_b = part_b_of(&child);
      child.cuts = next_cuts(children.level, a, b, &part_a, &part_b, &rule);
      child.lower_m = lower_bound(a, b, slack);
      if (!(a->is_node || b->is_node) && child.lower_m < upper) {
        const float of_child = upper_bound(a, b, slack);
        if (of_child < upper) {
          upper = of_child;
          want = wanted(NO_DISTANCE, upper, range_m, slack, 0);
          nearest = child;
        }
      }
      if (child.lower_m > want) continue;
      if (child.cuts == 0) {
        is_complete = 0;
        continue;
      }
      const float4 d = centre_of(a) - centre_of(b);
      const float key = child.lower_m + sqrt(dot(d, d));
      const uint is_nearer = !is_next || key <= key_of_next;
      if (is_next) {
        if (waiting < STACK) {
          stack[waiting++] = is_nearer ? pair : child;
        } else {
          is_complete = 0;
        }
      }
      if (!is_nearer) continue;
      pair = child;
      key_of_next = key;
      kept.a = *a;
      kept.b = *b;
      is_next = has_kept = 1;
    }
    if (is_next && pair.lower_m > want) is_next = 0; /* the other child brought a better bound */
    while (!is_next && waiting > 0) {
      pair = stack[--waiting];
      is_next = pair.lower_m <= want;
      has_kept = 0;
    }
  }
  bests[q].is_done = is_complete && !is_next;
  bests[q].upper_bits = bests[q].patch_upper_bits = as_uint(upper);
  bests[q].pair = nearest;
}
#endif

/* Work-item: pair. Of child c of its MAX_CHILDREN: codes[c], 0 if there is none, IS_HIT | next cuts, or IS_FROZEN if the query has more
   than `most` pairs, and the pair stays as it is; lowers[c], a bound on its distances; uppers[c]. bests: the least uppers of the query, of
   all pairs and of pairs of patches alone. Queries that are done have no children. */
kernel void nurbs_distance_bounds(NurbsRule rule, uint most, global const NurbsPair* pairs, global const NurbsPlacement* placements,
                                  OBJECT_PARAMETERS, global const uint* pairs_of_query, global uchar* codes, global float* lowers,
                                  global float* uppers, global NurbsDistanceBest* bests) {
  const size_t n = get_global_id(0);
  if (n >= rule.count) return;
  const NurbsPair pair = pairs[n];
  codes[n * MAX_CHILDREN] = codes[n * MAX_CHILDREN + 1] = 0;
  if (bests[pair.query].is_done) return;
  if (pairs_of_query[pair.query] > most) {
    codes[n * MAX_CHILDREN] = IS_FROZEN;
    lowers[n * MAX_CHILDREN] = pair.lower_m;
    uppers[n * MAX_CHILDREN] = NO_DISTANCE;
    return;
  }
  const Objects objects = OBJECTS;
  const Place at_a = place_a(&placements[pair.query]), at_b = place_b(&placements[pair.query]);
  const float slack = placements[pair.query].slack_m;
  Children children;
  cut_pair(&pair, 0, &at_a, &at_b, &objects, &children);
  for (uint c = 0; c < children.count_a * children.count_b; ++c) {
    const uint i = c / children.count_b, j = c % children.count_b;
    const Volume *a = &children.volume_a[i], *b = &children.volume_b[j];
#if MINIMA
    if (has_no_minimum(a, b, &children.a[i], &children.b[j], slack)) continue;
#endif
    const uint to = (uint)n * MAX_CHILDREN + c;
    const uint is_node = a->is_node || b->is_node;
    codes[to] = (uchar)(IS_HIT | next_cuts(children.level, a, b, &children.a[i], &children.b[j], &rule));
    lowers[to] = fmax(pair.lower_m, lower_bound(a, b, slack));
    const float upper = upper_bound(a, b, slack);
    atomic_min(&bests[pair.query].upper_bits, as_uint(upper));
    if (!is_node) atomic_min(&bests[pair.query].patch_upper_bits, as_uint(upper));
    uppers[to] = is_node ? NO_DISTANCE : upper;
  }
}

/* Work-item: pair. Drops the children that are too far, and counts the others: live, hits, and live_of_query. best.child: the first child
   that has the least upper bound. range_m: without MINIMA how far the result may be from the least distance. */
kernel void nurbs_distance_count(uint count, float range_m, global const NurbsPair* pairs, global const NurbsPlacement* placements,
                                 global const float* lowers, global const float* uppers, global uchar* codes,
                                 global NurbsDistanceBest* bests, global uint* live_of_query, global uint* live, global uint* hits) {
  const size_t n = get_global_id(0);
  if (n >= count) return;
  const NurbsPair pair = pairs[n];
  const uint patch_upper = bests[pair.query].patch_upper_bits;
  const float least_upper = as_float(bests[pair.query].upper_bits);
  uint live_count = 0, hit_count = 0;
  for (uint c = 0; c < MAX_CHILDREN; ++c) {
    const uint i = (uint)n * MAX_CHILDREN + c;
    const uint code = codes[i];
    if (code == 0) continue;
    const uint is_node = uppers[i] == NO_DISTANCE && code != IS_FROZEN;
    if (uppers[i] != NO_DISTANCE && as_uint(uppers[i]) == patch_upper) atomic_min(&bests[pair.query].child, i);
    if (lowers[i] > wanted(least_upper, as_float(patch_upper), range_m, placements[pair.query].slack_m, is_node)) {
      codes[i] = 0;
    } else if (code == IS_FROZEN || (code & 0x3fu) == 0) {
      ++hit_count;
    } else {
      ++live_count;
    }
  }
  live[n] = live_count;
  hits[n] = hit_count;
  if (live_count > 0) atomic_add(&live_of_query[pair.query], live_count);
}

/* Work-item: pair. As nurbs_emit; and the child that is the query's best goes to its best.pair. */
kernel void nurbs_distance_emit(uint count, uint first_hit, global const NurbsPair* pairs, global const NurbsNode* nodes,
                                global const uchar* codes, global const float* lowers, global const uint* live_begins,
                                global const uint* hit_begins, global NurbsDistanceBest* bests, global NurbsPair* next,
                                global NurbsPair* found) {
  const size_t n = get_global_id(0);
  if (n >= count) return;
  const NurbsPair pair = pairs[n];
  Children children;
  parts_of_pair(&pair, nodes, &children);
  uint to = live_begins[n], hit = first_hit + hit_begins[n];
  for (uint c = 0; c < MAX_CHILDREN; ++c) {
    const uint i = (uint)n * MAX_CHILDREN + c;
    const uint code = codes[i], is_best = bests[pair.query].child == i;
    if (code == 0 && !is_best) continue;
    if (code == IS_FROZEN) {
      NurbsPair left = pair;
      left.is_frozen = 1;
      found[hit++] = left;
      continue;
    }
    NurbsPair child = child_pair(&children, pair.query, c / children.count_b, c % children.count_b);
    child.lower_m = lowers[i];
    child.cuts = code & 0x3fu;
    if (is_best) bests[pair.query].pair = child;
    if (code == 0) continue;
    if (child.cuts == 0) {
      found[hit++] = child;
    } else {
      next[to++] = child;
    }
  }
}

/* Work-item: query. Before a level. */
kernel void nurbs_distance_next(uint count, global NurbsDistanceBest* bests, global uint* live_of_query) {
  const size_t i = get_global_id(0);
  if (i >= count) return;
  bests[i].child = 0xffffffffu;
  live_of_query[i] = 0;
}
